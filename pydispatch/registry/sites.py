"""Where the user's call stands, for registrations, warnings and errors."""

from __future__ import annotations

import sys
from types import FrameType

PACKAGE = __name__.partition(".")[0]
_users: tuple[str, ...] = ()    # parts of the package that are users of the rest, with a dot after the name


def count_as_user(module: str) -> None:
    """From here on the code of this module, and of those inside it, counts as a user's."""
    global _users
    _users += (f"{module}.",)


def caller_site() -> str:
    """file:line of the innermost frame outside of this package: where the user's call stands."""
    frame = sys._getframe(frames_to_caller() - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_ours(frame: FrameType) -> bool:
    """Does a frame run code of the package, which is no user of the rest?"""
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == PACKAGE and not f"{module}.".startswith(_users)


def frames_to_caller() -> int:
    """The `stacklevel` with which a warning of ours names the user's call."""
    depth = 1
    try:
        while is_ours(sys._getframe(depth)):     # f_back forgets to raise MemoryError
            depth += 1
    except ValueError:      # all frames are ours
        depth -= 1
    return depth
