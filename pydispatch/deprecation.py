"""Warn of what a later version takes away."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Deprecation(NamedTuple):
    """What goes, since when it warns, and the first version without it."""

    name: str
    since: str
    until: str


DEPRECATIONS: list[Deprecation] = []
"""What is deprecated now; a test fails where the version is one that should be without it."""


def deprecated(name: str, *, since: str, until: str, instead: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that version `until` will not have: each call warns, and says what to write `instead`."""
    DEPRECATIONS.append(Deprecation(name, since, until))
    message = f"{name} is deprecated since version {since}, and version {until} will not have it\nwrite {instead}"

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> R:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)
        return warned
    return decorate
