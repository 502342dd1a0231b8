"""Errors of SciPy's functions, whose messages begin with the name of the function."""

from __future__ import annotations

from types import TracebackType

from numpy.exceptions import AxisError

from pydispatch.exceptions import DispatchError


def name_function(name: str, error: Exception) -> None:
    """Begin an error's message with the name of a function, such as "linalg.inv".

    A message that already begins with the name, or a part of it, is left unchanged. So are pydispatch's own errors,
    which name the operator or function that they are about, and warnings that a filter raises.
    """
    found = str(error).partition("(")[0].partition(":")[0]
    if isinstance(error, (DispatchError, Warning)) or not error.args or (found and f".{found}." in f".{name}."):
        return
    if isinstance(error, AxisError) and error.axis is not None and error.ndim is not None:
        prefix = error.args[2] if len(error.args) > 2 else None     # the message consists of a prefix and the numbers
        AxisError.__init__(error, error.axis, error.ndim, f"{name}: {prefix}" if prefix else name)
    elif isinstance(error, AxisError):
        AxisError.__init__(error, f"{name}: {error}")
    else:
        error.args = (f"{name}: {error}", *error.args[1:])


class ErrorsOf:
    """Prefixes errors that are raised inside with a name. They keep their class."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
                 ) -> None:
        if isinstance(error, Exception):
            name_function(self.name, error)
