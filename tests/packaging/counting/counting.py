"""`counting`: which operators a function calls on its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydispatch import _core


def counting(func: Callable[..., Any]) -> Callable[..., tuple[Any, dict[str, int]]]:
    """Return a function of arrays that returns `(func(*args), calls)`, `calls` the operators that met an argument."""
    def counted(*args: Any) -> tuple[Any, dict[str, int]]:
        result: tuple[Any, dict[str, int]] = _core.run_counting(func, args, _core.calling_site())
        return result
    return counted
