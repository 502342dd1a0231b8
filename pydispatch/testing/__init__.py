"""Tools for your tests: check that operators do what they declare, and log the operators that a program calls."""

from pydispatch._loading import only_public
from pydispatch._sites import count_as_user
from pydispatch.exceptions import OpCheckError
from pydispatch.testing.backends import check_backend
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs, log_input
from pydispatch.testing.opcheck import opcheck

__all__ = ["LoggingMode", "LoggingTensor", "OpCheckError", "capture_logs", "check_backend", "log_input", "opcheck"]
__dir__ = only_public(globals())

count_as_user(__name__)     # sample operators are defined as users define theirs
