"""Powell's hybrid method for roots, as MINPACK's `hybrj` has it, by operators: dogleg steps in a trust region.

MINPACK updates factors of the Jacobian. Here the Jacobian itself is updated, so steps are those of SciPy within
rounding.
"""

# tests: tests/scipy/test_optimize.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pydispatch.higher_order.closures import Arrays
from pydispatch.higher_order.cond import COND
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.ops import ops
from pydispatch.scipy.implicit import norm, quotient

TOLERANCE = 1.49012e-8      # SciPy's, relative to x
LARGEST = 100               # unknowns. With more, updates of factors are faster than solutions
EPSILON = float(np.finfo(float).eps)


class Search(NamedTuple):
    """The carry of a search: the point, the value and the Jacobian there, and what the tests count."""

    x: Any
    value: Any
    jacobian: Any
    scale: Any              # of each unknown: the largest norm of its column so far
    radius: Any             # of the trust region
    n_calls: Any
    n_good: Any             # steps in a row
    n_bad: Any              # steps in a row. After two, a new Jacobian is needed, but not after more
    n_slow: Any             # steps in a row
    n_slow_jacobians: Any   # in a row
    is_new: Any             # whether a new Jacobian is needed
    is_first: Any           # whether no step has been accepted
    goes_on: Any
    is_root: Any


def root(
    function: Callable[..., Any], jacobian: Callable[..., Any], x: Any, args: Arrays, *, xtol: float | None,
    maxfev: int, factor: float,
) -> tuple[Any, Any]:
    """Return where a search from x ends, and whether that is a root of `function(x, *args)`.

    The settings are SciPy's. `factor` is that of the size of x to the radius of the first trust region.
    """
    size = x.shape[0]
    tolerance, most_calls = TOLERANCE if xtol is None else xtol, maxfev or 100 * (size + 1)
    if x.dtype != np.float64 or size > LARGEST:
        raise NotImplementedError
    zero, yes = np.zeros(()), np.ones((), bool)
    value = function(x, *args)
    if value.dtype != np.float64:
        raise NotImplementedError
    begun = Search(x, value, np.zeros((size, size)), np.zeros(size), zero, zero + 1, zero, zero, zero, zero, yes, yes,
                   ops.np.all(ops.np.isfinite(value)), ~yes)
    n = len(begun)

    def goes_on(*values: Any) -> Arrays:
        return (Search(*values[:n]).goes_on,)

    def renew(*values: Any) -> Arrays:
        now, args = Search(*values[:n]), values[n:]
        found = jacobian(now.x, *args)
        sizes = ops.np.sqrt(ops.np.sum(found * found, axis=0))
        first = ops.np.where(sizes == 0, 1.0, sizes)
        scale = ops.np.maximum(ops.np.where(now.is_first, first, now.scale), sizes)
        start = factor * norm(scale * now.x)
        radius = ops.np.where(now.is_first, ops.np.where(start == 0, float(factor), start), now.radius)
        return found, scale, radius

    def step(*values: Any) -> Arrays:
        now, args = Search(*values[:n]), values[n:]
        renewed = COND(now.is_new, renew, lambda *values: values[2:5], values)
        now = now._replace(jacobian=renewed[0], scale=renewed[1], radius=renewed[2])
        return attempt(function, now, args, tolerance, most_calls)

    end = Search(*WHILE(goes_on, step, begun, args, False))
    return end.x, end.is_root


def dogleg(now: Search) -> Any:
    """Return the step in the trust region on the path along the gradient, then to the root of the linear function."""
    where = ops.np.where
    newton = ops.np.linalg_solve(now.jacobian, ops.np.expand_dims(now.value, 1))[:, 0]
    length = norm(now.scale * newton)
    gradient = ops.np.matmul(now.value, now.jacobian) / now.scale
    steepness = norm(gradient)
    is_flat = steepness == 0
    down = quotient(gradient, steepness) / now.scale
    rise = norm(ops.np.matmul(now.jacobian, down))
    lowest = where(is_flat, 0.0, quotient(quotient(steepness, rise), rise))
    size, part, inside = norm(now.value), quotient(now.radius, length), lowest / now.radius
    mixed = quotient(size, steepness) * quotient(size, length) * inside
    rest = (1 - part * part) * (1 - inside * inside)
    mixed = mixed - part * (inside * inside) + ops.np.sqrt(ops.np.square(mixed - part) + rest)
    weight = where(is_flat, part, where(lowest < now.radius, quotient(part * (1 - inside * inside), mixed), 0.0))
    bent = where(is_flat, 0.0, (1 - weight) * ops.np.minimum(lowest, now.radius) * down) + weight * newton
    return where(length <= now.radius, newton, bent)


def attempt(
    function: Callable[..., Any], now: Search, args: Arrays, tolerance: float, most_calls: int
) -> Search:
    """Take a step if it leads closer to a root, and update the trust region and the Jacobian."""
    where, maximum, square = ops.np.where, ops.np.maximum, ops.np.square
    move = -dogleg(now)
    length = norm(now.scale * move)
    radius = where(now.is_first, ops.np.minimum(now.radius, length), now.radius)
    x = now.x + move
    value = function(x, *args)
    before, after = norm(now.value), norm(value)
    expected = now.value + ops.np.matmul(now.jacobian, move)
    reduction = where(after < before, 1 - square(quotient(after, before)), -1.0)
    promised = where(norm(expected) < before, 1 - square(quotient(norm(expected), before)), 0.0)
    ratio = where(promised > 0, quotient(reduction, promised), 0.0)

    is_bad = ratio < 0.1
    n_bad, n_good = where(is_bad, now.n_bad + 1, 0.0), where(is_bad, 0.0, now.n_good + 1)
    wider = where((ratio >= 0.5) | (n_good > 1), maximum(radius, 2 * length), radius)
    wider = where(ops.np.absolute(ratio - 1) <= 0.1, 2 * length, wider)
    radius = where(is_bad, 0.5 * radius, wider)
    is_accepted = ratio >= 1e-4
    new_x, new_value = where(is_accepted, x, now.x), where(is_accepted, value, now.value)
    n_slow = where(reduction >= 0.001, 0.0, now.n_slow + 1)
    n_slow_jacobians = where(reduction >= 0.1, 0.0, now.n_slow_jacobians + where(now.is_new, 1.0, 0.0))

    size, left = norm(now.scale * new_x), where(is_accepted, after, before)
    is_root = (radius <= tolerance * size) | (left == 0)
    n_calls = now.n_calls + 1
    fails = (n_calls >= most_calls) | (0.1 * maximum(0.1 * radius, length) <= EPSILON * size) | (
        n_slow_jacobians == 5) | (n_slow == 10) | ops.np.logical_not(ops.np.isfinite(length) & ops.np.isfinite(after))
    is_new = n_bad == 2
    correction = ops.np.expand_dims(quotient(value - expected, length), 1) * (
        square(now.scale) * quotient(move, length))
    return Search(
        new_x, new_value, now.jacobian + correction, now.scale, radius, n_calls, n_good, n_bad, n_slow,
        n_slow_jacobians, is_new, now.is_first & ops.np.logical_not(is_accepted),
        ops.np.logical_not(is_root | fails), is_root)
