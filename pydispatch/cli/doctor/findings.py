"""The findings of an examination."""

from __future__ import annotations

from typing import NamedTuple

REINSTALL = "pip install --force-reinstall --no-deps pydispatch-numpy"
"""The remedy if files of the package are missing, replaced, or mixed with those of another version."""


class Finding(NamedTuple):
    """An examined subject and its state. A finding with a remedy is a problem, any other is a fact."""

    subject: str
    found: str
    remedy: str = ""


def text_of(error: Exception) -> str:
    """Return an error in one line: its class and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
