"""Where the user's call stands, for registrations, warnings and errors."""

from __future__ import annotations

import sys


def caller_site() -> str:
    """file:line of the innermost frame outside of this package: where the user's call stands."""
    frame = sys._getframe(frames_to_caller() - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    """Does a module belong to the package? What defines operators as users do (`testing`) is theirs."""
    package, _, rest = module.partition(".")
    return package == "pydispatch" and rest.partition(".")[0] != "testing"


def frames_to_caller() -> int:
    """The `stacklevel` with which a warning of ours names the user's call."""
    depth = 1
    try:
        while _is_ours(sys._getframe(depth).f_globals.get("__name__", "")):     # f_back forgets to raise MemoryError
            depth += 1
    except ValueError:      # all frames are ours
        depth -= 1
    return depth
