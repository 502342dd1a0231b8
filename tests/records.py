"""Records of the calls of a function under test."""

from typing import Any


class Runs(list[Any]):
    """A record of all runs of a body, including those without data, after which plain lists are restored."""
