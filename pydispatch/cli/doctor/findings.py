"""What an examination finds."""

from __future__ import annotations

from typing import NamedTuple

REINSTALL = "pip install --force-reinstall --no-deps pydispatch-numpy"
"""Serves where files of the package are missing, mixed with those of another version, or replaced."""


class Finding(NamedTuple):
    """What was examined and what was found. A finding with a remedy is wrong, any other is a fact."""

    subject: str
    found: str
    remedy: str = ""


def told(error: Exception) -> str:
    """An error in one line: its class and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
