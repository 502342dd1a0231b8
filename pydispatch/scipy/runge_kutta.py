"""Steps of Dormand and Prince's Runge-Kutta method of order 5, with their error and an interpolant of order 4.

A state is a tuple of arrays. All functions call operators, so they run eagerly and as parts of plans alike.
"""

# tests: tests/scipy/test_integrate.py
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pydispatch.higher_order.closures import Arrays, Flat
from pydispatch.higher_order.scan import SCAN
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.ops import ops
from pydispatch.scipy.implicit import described_example

State = tuple[Any, ...]
Slope = Callable[[State, Any], State]

NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
MIDDLE = (-12715105075 / 11282082432, 0.0, 87487479700 / 32700410799, -10690763975 / 1880347072,
          701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423)
MAX_STEPS = 10_000      # between two output times, unless the caller specifies it
KNOWN = bool, np.bool_      # types of conditions that are known


def combined(weights: Sequence[float], slopes: Sequence[State], scale: Any) -> State:
    """Return the weighted sum of slopes, times a number."""
    multiply, add = ops.np.multiply, ops.np.add
    return tuple([multiply(functools.reduce(add, [
        multiply(part, weight) for weight, part in zip(weights, parts, strict=True) if weight]), scale)
        for parts in zip(*slopes, strict=True)])


def moved(state: State, step: State) -> State:
    """Add two states."""
    return tuple(map(ops.np.add, state, step))


def taken_step(slope: Slope, state: State, first: State, t: Any, h: Any) -> tuple[State, list[State]]:
    """Return the state at `t + h`, and the slopes of all stages: `first`, the next ones, and that at the end."""
    slopes = [first]
    for node, weights in zip(NODES, STAGES, strict=True):
        state_there = moved(state, combined(weights, slopes, h))
        slopes.append(slope(state_there, t + node * h))
    return state_there, slopes


def interpolant(state: State, end: State, first: State, last: State, middle: State, h: Any) -> list[State]:
    """Return the coefficients of the states within a step, one state each. `middle` combines slopes by MIDDLE."""
    change = tuple([last - value for value, last in zip(state, end, strict=True)])
    bend = tuple([h * slope - part for slope, part in zip(first, change, strict=True)])
    twist = tuple([part - h * slope - other for part, slope, other in zip(change, last, bend, strict=True)])
    return [state, change, bend, twist, middle]


def interpolated(coefficients: Sequence[Any], where: Any) -> Any:
    """Return the value of one array of the state at a fraction of the step."""
    start, change, bend, twist, middle = coefficients
    rest = 1.0 - where
    return start + where * (change + rest * (bend + where * (twist + rest * middle)))


def one_of(condition: Any, one: Any, other: Any) -> Any:
    """Return one of two values, by `where` unless the condition is known."""
    if isinstance(condition, KNOWN):
        return one if condition else other
    return ops.np.where(condition, one, other)


def repeated(test: Flat, step: Flat, carry: Arrays, args: Arrays) -> Arrays:
    """Return the carry after all steps of a `while_loop`, which runs here if the conditions are known."""
    (holds,) = test(*carry, *args)
    if not isinstance(holds, KNOWN):
        return WHILE(test, step, carry, args, False)
    while test(*carry, *args)[0]:
        carry = step(*carry, *args)
    return carry


# --- choosing steps --------------------------------------------------------------------------------------------------


class Tolerance:
    """The tolerated error of a step: in each array, the root mean square over an example, for the worst example.

    `likes` are the arrays in the vector of all, and `axes` the numbers of their batch axes.
    """

    def __init__(self, likes: Arrays, axes: Sequence[int], rtol: float, atol: float) -> None:
        sizes = [math.prod(like.shape) for like in likes]
        parts = [slice(*ends) for ends in pairwise(np.cumsum([0, *sizes]).tolist())]
        self._parts = [(part, like.shape[:n]) for part, like, n in zip(parts, likes, axes, strict=True)
                       if part.start < part.stop]
        self._rtol, self._atol = rtol, atol

    def norm(self, vector: Any, scale: Any) -> Any:
        """Return the largest root mean square of the vector over the scale, or infinity if it is not finite."""
        if not self._parts:
            return np.float64(0.0)      # no array has elements
        largest = functools.reduce(ops.np.maximum, [ops.np.max(each) for each in self._squares(vector, scale)])
        return one_of(ops.np.isfinite(largest), ops.np.sqrt(largest), math.inf)

    def _squares(self, vector: Any, scale: Any) -> list[Any]:
        """Return the mean squares of each array over the scale, for each of its examples."""
        ratio = ops.np.absolute(vector / scale)
        squares = ratio * ratio
        return [ops.np.mean(ops.np.reshape(squares[part], (math.prod(batch), -1)), axis=1)
                for part, batch in self._parts]

    def worst_example(self, vector: Any, scale: Any) -> str:
        """Return the text that names the example of a batch with the largest error, for messages."""
        largest = -1.0
        index: tuple[Any, ...] = ()
        every = self._squares(np.where(np.isfinite(vector), vector, np.inf), scale)
        for squares, (_, batch) in zip(every, self._parts, strict=True):
            if batch and squares.max() > largest:
                largest, index = squares.max(), np.unravel_index(squares.argmax(), batch)
        return described_example(tuple(map(int, index)))

    def scale(self, *vectors: Any) -> Any:
        """Return the tolerated error of each element for a state about as large as these vectors."""
        sizes = functools.reduce(ops.np.maximum, map(ops.np.absolute, vectors))
        return ops.np.maximum(self._atol + self._rtol * sizes, np.finfo(np.float64).tiny)


def first_step(slope: Slope, state: Any, first: Any, t: Any, direction: Any, tolerance: Tolerance) -> Any:
    """Estimate a first step from the size of the slope and of its change."""
    scale = tolerance.scale(state)
    size, speed = tolerance.norm(state, scale), tolerance.norm(first, scale)
    is_tiny = (size < 1e-5) | (speed < 1e-5)
    guess = one_of(is_tiny, 1e-6, 0.01 * size / one_of(is_tiny, 1.0, speed))
    (there,) = slope((state + guess * direction * first,), t + guess * direction)
    largest = ops.np.maximum(speed, tolerance.norm(there - first, scale) / guess)
    better = one_of(largest <= 1e-15, ops.np.maximum(1e-6, guess * 1e-3),
                    ops.np.power(0.01 / ops.np.maximum(largest, 1e-15), 0.2))
    return ops.np.minimum(100 * guess, better)


class Progress(NamedTuple):
    """The carry of a solution: the last accepted step, and the size of the next.

    `n_steps` counts the attempts since the last output time. The solution has ended early unless it `goes_on`.
    """

    t: Any
    state: Any
    slope: Any
    size: Any
    n_steps: Any
    goes_on: Any
    t_before: Any
    state_before: Any
    slope_before: Any
    h: Any                  # the length of the step from there to here
    middle: Any             # see `interpolant`


def solution(
    slope_with: Callable[[Arrays], Slope], state: Any, times: Any, args: Arrays, tolerance: Tolerance, *, h0: float,
    hmax: float, max_steps: int, note: Callable[[Any], None] | None = None,
) -> tuple[Progress, Any]:
    """Return the end of a solution, and the states at all times, a vector each.

    `note`, only passed for raw arrays, is called with the end of each accepted step.
    """
    slope, t, end = slope_with(args), times[0], times[-1]
    direction = one_of(end >= t, 1.0, -1.0) * ops.np.ones_like(t)
    (first,) = slope((state,), t)
    is_finite = ops.np.all(ops.np.isfinite(first)) & ops.np.all(ops.np.isfinite(state))
    size = h0 * ops.np.ones_like(t) if h0 else first_step(slope, state, first, t, direction, tolerance)
    zero, one = ops.np.zeros_like(t), ops.np.ones_like(t)
    begun = Progress(t, state, first, size, zero, is_finite, t, state, first, one, first)
    n = len(begun)

    def goes_on(*values: Any) -> Arrays:
        now, (_, direction, target) = Progress(*values[:n]), values[n: n + 3]
        return (now.goes_on & ((target - now.t) * direction > 0) & (now.n_steps < max_steps),)

    def attempt(*values: Any) -> Arrays:
        now, (end, direction, _), args = Progress(*values[:n]), values[n: n + 3], values[n + 3:]
        size = ops.np.minimum(now.size, hmax) if hmax else now.size
        ends_here = size >= ops.np.absolute(end - now.t) * (1 - 1e-12)
        h = one_of(ends_here, end - now.t, direction * size)
        (found,), slopes = taken_step(slope_with(args), (now.state,), (now.slope,), now.t, h)
        (miss,) = combined(ERROR, slopes, h)
        error = tolerance.norm(miss, tolerance.scale(now.state, found))
        is_accepted = error <= 1.0
        factor = ops.np.maximum(0.2, 0.9 * ops.np.power(ops.np.maximum(error, 1e-6), -0.2))
        after = one_of(ends_here, end, now.t + h)
        if note is not None and is_accepted:
            note(after)
        (last,), (middle,) = slopes[-1], combined(MIDDLE, slopes, h)
        taken = now._replace(t=after, state=found, slope=last, t_before=now.t, state_before=now.state,
                             slope_before=now.slope, h=h, middle=middle)
        new = Progress._make([one if one is other else one_of(is_accepted, one, other)
                              for one, other in zip(taken, now, strict=True)])
        return new._replace(size=ops.np.absolute(h) * ops.np.minimum(factor, 10.0), n_steps=now.n_steps + 1,
                            goes_on=now.t + h != now.t)

    def reach(*values: Any) -> Arrays:
        now, target, others = Progress(*values[:n]), values[n], values[n + 1:]
        given = (*others[:2], target, *others[2:])
        begun = now._replace(n_steps=one_of(now.goes_on, np.float64(0.0), now.n_steps))
        now = Progress(*repeated(goes_on, attempt, begun, given))
        is_there = (target - now.t) * others[1] <= 0
        return (*now._replace(goes_on=now.goes_on & is_there), _state_at(now, target))

    *values, rows = SCAN(reach, begun, (times,), (end, direction, *args), int(times.shape[0]), False)
    return Progress(*values), rows


def _state_at(now: Progress, target: Any) -> Any:
    """Return the state at a time within the last step."""
    is_end = target == now.t
    if isinstance(is_end, KNOWN) and is_end:
        return now.state
    coefficients = interpolant(
        (now.state_before,), (now.state,), (now.slope_before,), (now.slope,), (now.middle,), now.h)
    return one_of(is_end, now.state, interpolated(
        [part for (part,) in coefficients], (target - now.t_before) / now.h))


def failure(slope: Slope, now: Progress, times: Any, tolerance: Tolerance, max_steps: int) -> str:
    """Return the reason why a solution has ended early, for messages."""
    t = float(now.t)
    if not (np.isfinite(now.slope).all() and np.isfinite(now.state).all()):
        return (f"y0, or the result of func for it at t = {t:.6g}, is not finite"
                f"{tolerance.worst_example(now.state + now.slope, np.ones(now.state.shape))}")
    h = math.copysign(now.size, times[-1] - t)
    (found,), slopes = taken_step(slope, (now.state,), (now.slope,), now.t, h)
    (miss,) = combined(ERROR, slopes, h)
    example = tolerance.worst_example(miss, tolerance.scale(now.state, found))
    if now.n_steps < max_steps:
        return (f"the step size has become too small at t = {t:.6g}: the solution may be singular there, or is not "
                f"smooth{example}")
    n_done = int(np.count_nonzero((times - t) * h <= 0))
    return (f"{max_steps} steps are not enough to get from t = {times[n_done - 1]:.6g} to {times[n_done]:.6g}: the "
            f"problem may be stiff{example}")
