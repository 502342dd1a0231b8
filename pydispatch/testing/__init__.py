"""For the tests of users: are operators what they say, and which operators does a program call?"""

from pydispatch.exceptions import OpCheckError
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs, log_input
from pydispatch.testing.opcheck import opcheck

__all__ = ["LoggingMode", "LoggingTensor", "OpCheckError", "capture_logs", "log_input", "opcheck"]
