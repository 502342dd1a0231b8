"""Tools for your tests: check that operators do what they declare, and log the operators that a program calls."""

from pydispatch._loading import only_public
from pydispatch.testing.backends import check_backend
from pydispatch.testing.gradchecking import gradcheck, gradgradcheck
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs, log_input
from pydispatch.testing.opcheck import opcheck

__all__ = [
    "LoggingMode", "LoggingTensor", "capture_logs", "check_backend", "gradcheck", "gradgradcheck", "log_input",
    "opcheck",
]
__dir__ = only_public(globals())
