"""The site of the user's call, for registrations, warnings and errors."""

from __future__ import annotations

import sys
from types import FrameType

PACKAGE = __name__.partition(".")[0]
_users: tuple[str, ...] = ()    # modules of the package that count as users of it; names end in a dot
_ours: dict[str, bool] = {}     # by the name of a module that was asked for: is it the package's?
MOST_NAMES = 1 << 12


def count_as_user(module: str) -> None:
    """Treat the code of this module and its submodules as a user's from now on."""
    global _users
    _users += (f"{module}.",)
    _ours.clear()


def caller_site() -> str:
    """The site of the user's call: file:line of the innermost frame outside this package."""
    frame = sys._getframe(frames_to_caller() - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def caller_place() -> tuple[str, str]:
    """File and function of the user's call: the same whenever that code runs, also after an edit.

    Cells of a notebook, and what is typed at a prompt, are one file.
    """
    frame = sys._getframe(frames_to_caller() - 1)
    scope = frame.f_globals
    is_session = scope.get("__name__") == "__main__" and "__file__" not in scope
    return "session" if is_session else frame.f_code.co_filename, frame.f_code.co_qualname


def is_ours(frame: FrameType) -> bool:
    """Does a frame run code of the package, other than modules that count as users?"""
    module = frame.f_globals.get("__name__", "")
    try:
        return _ours[module]
    except KeyError:
        pass
    if len(_ours) >= MOST_NAMES:
        _ours.clear()
    found = _ours[module] = module.partition(".")[0] == PACKAGE and not f"{module}.".startswith(_users)
    return found


def frames_to_caller() -> int:
    """The `stacklevel` that makes a warning point at the user's call."""
    depth = 1
    try:
        while is_ours(sys._getframe(depth)):     # f_back does not raise MemoryError when it fails
            depth += 1
    except ValueError:      # all frames are ours
        depth -= 1
    return depth
