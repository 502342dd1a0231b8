"""Errors of SciPy's functions, which begin with the name of the function."""

from __future__ import annotations

from types import TracebackType


class ErrorsOf:
    """Errors that are raised inside begin with this name and keep their class."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
                 ) -> None:
        if isinstance(error, Exception) and error.args and not str(error).startswith(self.name):
            error.args = (f"{self.name}: {error}", *error.args[1:])
