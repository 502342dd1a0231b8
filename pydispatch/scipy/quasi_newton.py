"""Minimization by BFGS with the line search of Moré and Thuente, as SciPy has both, by operators."""

# tests: tests/scipy/test_optimize.py
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pydispatch.higher_order.closures import Arrays
from pydispatch.higher_order.cond import COND
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.ops import ops
from pydispatch.scipy.implicit import norm, quotient

Both = Callable[..., Arrays]
"""`both(x, *args)` returns the value of a function at x, and its gradient."""

TOLERANCE = 1e-5            # SciPy's, of the largest part of the gradient
DECREASE, CURVATURE = 1e-4, 0.9     # what the line search demands, as parts of the slope at its start
SHORTEST, LONGEST, NARROWEST = 1e-100, 1e100, 1e-14     # steps of the line search, and its relative interval
MOST_TRIED = 99             # steps of the line search
MOST_STEPS = 200            # for each unknown
NEAR = 1e-4                 # parts of x that Newton's first step may move it


class Descent(NamedTuple):
    """The carry of a minimization. It has failed if it no longer `goes_on` and the gradient is not small."""

    x: Any
    value: Any
    gradient: Any
    inverse: Any            # of the Hessian, about
    value_before: Any
    n_steps: Any
    goes_on: Any


class Line(NamedTuple):
    """The carry of a line search: the last step with value, slope and gradient, and the two ends of the interval."""

    step: Any
    value: Any
    slope: Any
    gradient: Any
    is_second: Any          # whether the search is in its second stage
    is_bracketed: Any       # whether a minimum lies between the ends
    best: Any               # the end with the least value
    best_value: Any
    best_slope: Any
    other: Any
    other_value: Any
    other_slope: Any
    least: Any              # bounds of the step
    most: Any
    width: Any
    width_before: Any
    n_tried: Any
    is_found: Any
    has_failed: Any


def minimum(
    both: Both, hessian: Callable[..., Any], x: Any, args: Arrays, *, gtol: float | None, maxiter: int | None
) -> tuple[Any, Any]:
    """Return where the steps from x end, and whether that is a minimum. The settings are SciPy's."""
    value, gradient = both(x, *args)
    if not x.dtype == value.dtype == gradient.dtype == np.float64:
        raise NotImplementedError
    size = x.shape[0]
    tolerance = TOLERANCE if gtol is None else gtol
    most_steps = MOST_STEPS * size if maxiter is None else maxiter

    def is_small(gradient: Any) -> Any:
        return ops.np.max(ops.np.absolute(gradient)) <= tolerance

    def goes_on(*values: Any) -> Arrays:
        now = Descent(*values[:n])
        return (now.goes_on & ops.np.logical_not(is_small(now.gradient)) & (now.n_steps < most_steps),)

    def step(*values: Any) -> Arrays:
        now, args = Descent(*values[:n]), values[n:]
        direction = -ops.np.matmul(now.inverse, now.gradient)
        found = searched(both, now, direction, args)
        move, bend = found.step * direction, found.gradient - now.gradient
        curvature = ops.np.matmul(bend, move)
        rate = ops.np.where(curvature == 0, 1000.0, 1 / ops.np.where(curvature == 0, 1.0, curvature))
        column, row = ops.np.expand_dims(move, 1), ops.np.expand_dims(move, 0)
        left = np.eye(size) - column * ops.np.expand_dims(bend, 0) * rate
        right = np.eye(size) - ops.np.expand_dims(bend, 1) * row * rate
        inverse = ops.np.matmul(left, ops.np.matmul(now.inverse, right)) + rate * column * row
        return Descent(now.x + move, found.value, found.gradient, inverse, now.value, now.n_steps + 1,
                       found.is_found & ops.np.isfinite(found.value))

    begun = Descent(x, value, gradient, np.eye(size), value + norm(gradient) / 2, np.zeros((), int), np.ones((), bool))
    n = len(begun)
    end = Descent(*WHILE(goes_on, step, begun, args, False))
    is_found = end.goes_on & is_small(end.gradient) & ops.np.isfinite(end.value)

    def complete(x: Any, gradient: Any, *args: Any) -> Arrays:
        return completed(lambda x, *args: both(x, *args)[1], hessian, x, gradient, args, tolerance)

    x, is_found = COND(is_found, lambda x, *others: (x, np.ones((), bool)), complete, (end.x, end.gradient, *args))
    return x, is_found


def completed(
    gradient: Callable[..., Any], hessian: Callable[..., Any], x: Any, value: Any, args: Arrays, tolerance: float
) -> Arrays:
    """Take Newton's steps near a minimum where values no longer differ. Return x, and whether it is a minimum.

    `value` is the gradient at x.
    """
    def largest(values: Any) -> Any:
        return ops.np.max(ops.np.absolute(values))

    def goes_on(x: Any, value: Any, n_steps: Any, improves: Any, *args: Any) -> Arrays:
        return (improves & (n_steps < 5),)

    def step(x: Any, value: Any, n_steps: Any, improves: Any, *args: Any) -> Arrays:
        move = ops.np.linalg_solve(hessian(x, *args), ops.np.expand_dims(value, 1))[:, 0]
        new = x - move
        new_value = gradient(new, *args)
        improves = (largest(new_value) < largest(value)) & (largest(move) <= NEAR * ops.np.maximum(1.0, largest(x)))
        return (ops.np.where(improves, new, x), ops.np.where(improves, new_value, value), n_steps + 1, improves)

    x, value, *_ = WHILE(goes_on, step, (x, value, np.zeros((), int), np.ones((), bool)), args, False)
    curvature = hessian(x, *args)
    curvatures = ops.np.linalg_eigvalsh(curvature)
    rounding = 1e-12 * largest(curvature) * ops.np.maximum(1.0, largest(x))
    return x, (largest(value) <= ops.np.maximum(tolerance, rounding)) & (curvatures[0] >= -1e-8 * largest(curvatures))


def searched(both: Both, now: Descent, direction: Any, args: Arrays) -> Line:
    """Return the end of a line search from the point of a descent."""
    zero, no = np.zeros(()), np.zeros((), bool)
    slope = ops.np.matmul(now.gradient, direction)
    guess = ops.np.minimum(1.0, quotient(1.01 * 2 * (now.value - now.value_before), slope))
    first = ops.np.where(guess < 0, 1.0, guess)
    can_begin = (slope < 0) & (first >= SHORTEST)
    width = zero + (LONGEST - SHORTEST)

    def tried(step: Any, x: Any, direction: Any, *args: Any) -> Arrays:
        value, gradient = both(x + step * direction, *args)
        return value, ops.np.matmul(gradient, direction), gradient

    def goes_on(*values: Any) -> Arrays:
        line = Line(*values[:n])
        return (ops.np.logical_not(line.is_found | line.has_failed) & (line.n_tried < MOST_TRIED),)

    def step(*values: Any) -> Arrays:
        line, (x, direction, value, slope), args = Line(*values[:n]), values[n: n + 4], values[n + 4:]
        line = judged(line._replace(**dict(zip(
            ("value", "slope", "gradient"), tried(line.step, x, direction, *args), strict=True))), value, slope)
        after = advanced(line, value, slope)
        is_over = line.is_found | line.has_failed
        return Line(*[old if old is new else ops.np.where(is_over, old, new)
                      for old, new in zip(line, after, strict=True)])

    begun = Line(first, now.value, slope, now.gradient, no, no, zero, now.value, slope, zero, now.value, slope, zero,
                 first + 4 * first, width, 2 * width, np.zeros((), int), no, ops.np.logical_not(can_begin))
    n = len(begun)
    return Line(*WHILE(goes_on, step, begun, (now.x, direction, now.value, slope, *args), False))


def judged(line: Line, value: Any, slope: Any) -> Line:
    """Return the line with its tests of the step. `value` and `slope` are those at the start."""
    bound = value + line.step * DECREASE * slope
    is_narrow = line.is_bracketed & (
        (line.step <= line.least) | (line.step >= line.most) | (line.most - line.least <= NARROWEST * line.most))
    is_found = (line.value <= bound) & (ops.np.absolute(line.slope) <= CURVATURE * -slope)
    is_extreme = ops.np.logical_or(line.step == LONGEST, line.step == SHORTEST)
    return line._replace(
        is_second=line.is_second | ((line.value <= bound) & (line.slope >= 0)), is_found=is_found,
        has_failed=ops.np.logical_not(is_found) & (is_narrow | is_extreme))


def advanced(line: Line, value: Any, slope: Any) -> Line:
    """Return the line with the next step to try."""
    where, absolute = ops.np.where, ops.np.absolute
    least_slope = DECREASE * slope
    bound = value + line.step * least_slope
    is_modified = ops.np.logical_not(line.is_second) & (line.value <= line.best_value) & (line.value > bound)
    tilt = where(is_modified, least_slope, 0.0)         # of the function that predicts the step
    new = with_next_step(line._replace(
        value=line.value - line.step * tilt, slope=line.slope - tilt,
        best_value=line.best_value - line.best * tilt, best_slope=line.best_slope - tilt,
        other_value=line.other_value - line.other * tilt, other_slope=line.other_slope - tilt))
    width = absolute(new.other - new.best)
    step = where(new.is_bracketed & (width >= 0.66 * line.width_before), new.best + 0.5 * (new.other - new.best),
                 new.step)
    least = where(new.is_bracketed, ops.np.minimum(new.best, new.other), step + 1.1 * (step - new.best))
    most = where(new.is_bracketed, ops.np.maximum(new.best, new.other), step + 4.0 * (step - new.best))
    step = ops.np.minimum(ops.np.maximum(step, SHORTEST), LONGEST)
    is_done = new.is_bracketed & ((step <= least) | (step >= most) | (most - least <= NARROWEST * most))
    step = where(is_done, new.best, step)
    return new._replace(
        step=step, value=line.value, slope=line.slope, best_value=new.best_value + new.best * tilt,
        best_slope=new.best_slope + tilt, other_value=new.other_value + new.other * tilt,
        other_slope=new.other_slope + tilt, least=least, most=most,
        width=where(new.is_bracketed, width, line.width), n_tried=line.n_tried + 1,
        width_before=where(new.is_bracketed, line.width, line.width_before),
        has_failed=ops.np.logical_not(ops.np.isfinite(step)))


def with_next_step(line: Line) -> Line:
    """Return the line with another step by interpolation, and with the interval around the minimum."""
    where, absolute = ops.np.where, ops.np.absolute
    step, value, slope, best, best_slope = line.step, line.value, line.slope, line.best, line.best_slope
    here, there = (step, value, slope), (best, line.best_value, best_slope)
    outward = where(step > best, line.most, line.least)
    is_higher = value > line.best_value
    turns = ops.np.sign(slope) * ops.np.sign(best_slope) < 0
    flattens = absolute(slope) < absolute(best_slope)

    cubic, _ = cubic_minimum(here, there)
    quadratic = best + quotient(best_slope, quotient(line.best_value - value, step - best) + best_slope) / 2 * (
        step - best)
    higher = where(absolute(cubic - best) <= absolute(quadratic - best), cubic, cubic + (quadratic - cubic) / 2)

    cubic, is_ahead = cubic_minimum(there, here)
    secant = step + quotient(slope, slope - best_slope) * (best - step)
    turned = where(absolute(cubic - step) > absolute(secant - step), cubic, secant)

    cubic = where(is_ahead, cubic, outward)
    is_closer = absolute(cubic - step) < absolute(secant - step)
    limit = step + 0.66 * (line.other - step)
    near = where(is_closer, cubic, secant)
    near = where(step > best, ops.np.minimum(limit, near), ops.np.maximum(limit, near))
    far = where(absolute(cubic - step) > absolute(secant - step), cubic, secant)
    far = ops.np.minimum(ops.np.maximum(far, line.least), line.most)
    flattened = where(line.is_bracketed, near, far)

    cubic, _ = cubic_minimum((line.other, line.other_value, line.other_slope), here)
    steeper = where(line.is_bracketed, cubic, outward)

    found = where(is_higher, higher, where(turns, turned, where(flattens, flattened, steeper)))
    other = [where(is_higher, new, where(turns, old, kept)) for new, old, kept in zip(
        here, there, (line.other, line.other_value, line.other_slope), strict=True)]
    kept = [where(is_higher, old, new) for new, old in zip(here, there, strict=True)]
    return line._replace(
        step=found, best=kept[0], best_value=kept[1], best_slope=kept[2], other=other[0], other_value=other[1],
        other_slope=other[2], is_bracketed=line.is_bracketed | is_higher | turns)


def cubic_minimum(one: Arrays, other: Arrays) -> tuple[Any, Any]:
    """Return the minimum of the cubic through two (place, value, slope), and whether it lies beyond the second."""
    (a, value_a, slope_a), (b, value_b, slope_b) = one, other
    theta = 3.0 * quotient(value_a - value_b, b - a) + slope_a + slope_b
    scale = functools.reduce(ops.np.maximum, map(ops.np.absolute, (theta, slope_a, slope_b)))
    inside = ops.np.square(quotient(theta, scale)) - quotient(slope_a, scale) * quotient(slope_b, scale)
    gamma = scale * ops.np.sqrt(ops.np.maximum(inside, 0.0))
    gamma = ops.np.where(b > a, -gamma, gamma)
    part = quotient((gamma - slope_b) + theta, ((gamma - slope_b) + gamma) + slope_a)
    return b + part * (a - b), (part < 0) & (gamma != 0)
