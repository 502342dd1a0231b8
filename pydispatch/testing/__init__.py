"""For the tests of users: are operators what they say, and which operators does a program call?"""

from pydispatch.exceptions import OpCheckError
from pydispatch.registry.sites import count_as_user
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs, log_input
from pydispatch.testing.opcheck import opcheck

__all__ = ["LoggingMode", "LoggingTensor", "OpCheckError", "capture_logs", "log_input", "opcheck"]

count_as_user(__name__)     # its sample operators are defined as users define theirs
