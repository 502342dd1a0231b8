"""`fixed_point`, differentiated by the equation that it solves."""

# tests: tests/compat/autograd/test_operators.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydispatch.compat.autograd.derivatives import make_vjp
from pydispatch.compat.autograd.primitives import defvjp, primitive
from pydispatch.compat.autograd.spaces import vspace

__all__ = ["fixed_point"]
Function = Callable[..., Any]


@primitive
def fixed_point(f: Function, a: Any, x0: Any, distance: Function, tol: float) -> Any:
    """Find x such that `f(a)(x) == x`, by iterating from `x0` until a step is no longer than `tol`."""
    step, x = f(a), x0
    while True:
        x, previous = step(x), x
        if distance(x, previous) <= tol:
            return x


def _vjp(ans: Any, f: Function, a: Any, x0: Any, distance: Function, tol: float) -> Function:
    def adjoint(values: tuple[Any, ...]) -> Function:
        a, x, g = values
        pull, _ = make_vjp(f(a), x)
        return lambda y: vspace(x).add(pull(y), g)

    pull, _ = make_vjp(lambda a: f(a)(ans), a)
    return lambda g: pull(fixed_point(adjoint, (a, ans, g), vspace(x0).zeros(), distance, tol))


defvjp(fixed_point, None, _vjp, None)
