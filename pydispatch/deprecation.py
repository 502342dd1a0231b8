"""Warnings for features that a later version removes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Deprecation(NamedTuple):
    """A deprecated feature, the version that first warns, and the first version without it."""

    name: str
    since: str
    until: str


DEPRECATIONS: list[Deprecation] = []
"""The current deprecations. A test fails if one is due for removal in this version."""


def deprecated(name: str, *, since: str, until: str, instead: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that version `until` will remove. Each call warns, and names what to write `instead`."""
    DEPRECATIONS.append(Deprecation(name, since, until))
    message = f"{name} is deprecated since version {since}, and will be removed in version {until}\nwrite {instead}"

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> R:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)
        return warned
    return decorate
