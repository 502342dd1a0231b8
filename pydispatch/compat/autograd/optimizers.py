"""Optimizers of functions of nested lists, tuples and dicts, given `grad(x, i)`, the gradient in iteration i."""

# tests: tests/compat/autograd/test_values.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydispatch.numpy as np
from pydispatch.compat.autograd.operators import wraps
from pydispatch.compat.autograd.structures import flatten

__all__ = ["adam", "rmsprop", "sgd", "unflatten_optimizer"]
Function = Callable[..., Any]


def unflatten_optimizer(optimize: Function) -> Function:
    """Return the optimizer for any structure of arrays that an optimizer for vectors defines."""
    @wraps(optimize)
    def optimizer(grad: Function, x0: Any, callback: Function | None = None, *args: Any, **kwargs: Any) -> Any:
        vector, unflatten = flatten(x0)

        def seen(x: Any, i: int, g: Any) -> None:
            if callback is not None:
                callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(lambda x, i: flatten(grad(unflatten(x), i))[0], vector, seen, *args, **kwargs))

    return optimizer


def _steps(grad: Function, x: Any, callback: Function | None, num_iters: int, step: Callable[[Any, int], Any]) -> Any:
    """Return the vector after adding `step(gradient, i)` in each iteration."""
    for i in range(num_iters):
        g = grad(x, i)
        if callback is not None:
            callback(x, i, g)
        x = x + step(g, i)
    return x


@unflatten_optimizer
def sgd(grad: Function, x: Any, callback: Function | None = None, num_iters: int = 200, step_size: float = 0.1,
        mass: float = 0.9) -> Any:
    """Return `x` after gradient descent with momentum."""
    velocity: Any = 0.0

    def step(g: Any, i: int) -> Any:
        nonlocal velocity
        velocity = mass * velocity - (1.0 - mass) * g
        return step_size * velocity

    return _steps(grad, x, callback, num_iters, step)


@unflatten_optimizer
def rmsprop(grad: Function, x: Any, callback: Function | None = None, num_iters: int = 100, step_size: float = 0.1,
            gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """Return `x` after gradient descent with steps divided by the root of the mean square of the gradients."""
    square: Any = 1.0

    def step(g: Any, i: int) -> Any:
        nonlocal square
        square = square * gamma + g**2 * (1 - gamma)
        return -step_size * g / (np.sqrt(square) + eps)

    return _steps(grad, x, callback, num_iters, step)


@unflatten_optimizer
def adam(grad: Function, x: Any, callback: Function | None = None, num_iters: int = 100, step_size: float = 0.001,
         b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Return `x` after gradient descent with estimates of the first two moments of the gradients (Kingma and Ba)."""
    m: Any = 0.0
    v: Any = 0.0

    def step(g: Any, i: int) -> Any:
        nonlocal m, v
        m, v = (1 - b1) * g + b1 * m, (1 - b2) * g**2 + b2 * v
        return -step_size * m / (1 - b1**(i + 1)) / (np.sqrt(v / (1 - b2**(i + 1))) + eps)

    return _steps(grad, x, callback, num_iters, step)
