"""Steps of Dormand and Prince's Runge-Kutta method of order 5, with their error and an interpolant of order 4.

A state is a tuple of arrays. The functions here work on NumPy arrays and on Tensors alike.
"""

# tests: tests/scipy/test_integrate.py
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch.exceptions import ConvergenceError
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
STAGES_OF_VECTORS = tuple(map(np.array, STAGES))
ERROR_OF_VECTORS = np.array(ERROR)
MAX_STEPS = 10_000      # between two output times, unless the caller specifies it


def combined(weights: Sequence[float], slopes: Sequence[State], scale: Any) -> State:
    """Return the weighted sum of slopes, times a number."""
    sums = []
    for parts in zip(*slopes, strict=True):
        terms = [weight * part for weight, part in zip(weights, parts, strict=True) if weight]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        sums.append(total * scale)
    return tuple(sums)


def moved(state: State, step: State) -> State:
    """Add two states."""
    return tuple([value + part for value, part in zip(state, step, strict=True)])


def taken_step(slope: Slope, state: State, first: State, t: Any, h: Any) -> tuple[State, list[State]]:
    """Return the state at `t + h`, and the slopes of all stages: `first`, the next ones, and that at the end."""
    slopes = [first]
    for node, weights in zip(NODES, STAGES, strict=True):
        state_there = moved(state, combined(weights, slopes, h))
        slopes.append(slope(state_there, t + node * h))
    return state_there, slopes


def vector_step(slope: Slope, state: Any, first: Any, t: float, h: float) -> tuple[Any, Any]:
    """Take a step of one NumPy vector, faster than `taken_step`. The slopes are the rows of a matrix."""
    slopes = np.empty((len(NODES) + 1, *first.shape), np.result_type(state, first, np.float64))
    slopes[0] = first
    for i, (node, weights) in enumerate(zip(NODES, STAGES_OF_VECTORS, strict=True), 1):
        there = state + np.dot(weights, slopes[:i]) * h
        (slopes[i],) = slope((there,), t + node * h)
    return there, slopes


def interpolant(state: State, end: State, slopes: Sequence[State], h: Any) -> list[State]:
    """Return the coefficients of the states within a step, one state each."""
    change = tuple([last - value for value, last in zip(state, end, strict=True)])
    bend = tuple([h * slope - part for slope, part in zip(slopes[0], change, strict=True)])
    twist = tuple([part - h * slope - other for part, slope, other in zip(change, slopes[-1], bend, strict=True)])
    return [state, change, bend, twist, combined(MIDDLE, slopes, h)]


def interpolated(coefficients: Sequence[Any], where: Any) -> Any:
    """Return the value of one array of the state at a fraction of the step."""
    start, change, bend, twist, middle = coefficients
    rest = 1.0 - where
    return start + where * (change + rest * (bend + where * (twist + rest * middle)))


# --- choosing steps --------------------------------------------------------------------------------------------------


class Tolerance:
    """The tolerated error of a step: in each array, the root mean square over an example, for the worst example.

    `parts` are the slices of the arrays in the vector of all, and `batches` the shapes of their batches.
    """

    def __init__(self, parts: Sequence[slice], batches: Sequence[tuple[int, ...]], rtol: float, atol: float) -> None:
        self._batches = [batch for part, batch in zip(parts, batches, strict=True) if part.stop > part.start]
        self._parts = [part for part in parts if part.stop > part.start]
        ends = [range(part.start, part.stop + 1, (part.stop - part.start) // math.prod(batch))
                for part, batch in zip(self._parts, self._batches, strict=True)]
        self._starts = np.array([start for each in ends for start in each[:-1]], np.intp)
        self._sizes = np.array([float(each.step) for each in ends for _ in each[:-1]])
        self._rtol, self._atol = rtol, atol

    def norm(self, vector: Any, scale: Any) -> float:
        """Return the largest root mean square of the vector over the scale, or infinity if it is not finite."""
        if not self._parts:
            return 0.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            largest = float(self._squares(vector, scale).max())
        return math.sqrt(largest) if math.isfinite(largest) else math.inf

    def _squares(self, vector: Any, scale: Any) -> Any:
        """Return the mean squares of the vector over the scale, for each example of each array in order."""
        ratio = np.abs(vector / scale)
        return np.add.reduceat(ratio * ratio, self._starts) / self._sizes

    def worst_example(self, vector: Any, scale: Any) -> str:
        """Return the text that names the example of a batch with the largest error, for messages."""
        largest = -1.0
        index: tuple[Any, ...] = ()
        every: Any = self._squares(np.where(np.isfinite(vector), vector, np.inf), scale) if self._parts else ()
        for batch in self._batches:
            n = math.prod(batch)
            squares, every = every[:n], every[n:]
            if batch and squares.max() > largest:
                largest, index = squares.max(), np.unravel_index(squares.argmax(), batch)
        return described_example(tuple(map(int, index)))

    def scale(self, *vectors: Any) -> Any:
        """Return the tolerated error of each element for a state about as large as these vectors."""
        sizes = functools.reduce(np.maximum, map(np.abs, vectors))
        return np.maximum(self._atol + self._rtol * sizes, np.finfo(sizes.dtype).tiny)


def first_step(slope: Slope, state: Any, first: Any, t: float, direction: float, tolerance: Tolerance) -> float:
    """Estimate a first step from the size of the slope and of its change."""
    scale = tolerance.scale(state)
    size, speed = tolerance.norm(state, scale), tolerance.norm(first, scale)
    guess = 1e-6 if size < 1e-5 or speed < 1e-5 else 0.01 * size / speed
    (there,) = slope((state + guess * direction * first,), t + guess * direction)
    change = tolerance.norm(there - first, scale) / guess
    largest = max(speed, change)
    better = max(1e-6, guess * 1e-3) if largest <= 1e-15 else (0.01 / largest) ** 0.2
    return min(100 * guess, better)


def solution(
    slope: Slope, state: Any, times: Any, tolerance: Tolerance, *, h0: float, hmax: float, max_steps: int
) -> tuple[Any, Any]:
    """Return the states at all times, a vector each, and the times between which steps were taken.

    Raise ConvergenceError if a step would be too small to take, or if too many steps are needed.
    """
    rows = np.empty((len(times), *state.shape), state.dtype)
    rows[0] = state
    t, end = float(times[0]), float(times[-1])
    boundaries = [t]
    direction = 1.0 if end >= t else -1.0
    (first,) = slope((state,), t)
    if not (np.isfinite(first).all() and np.isfinite(state).all()):
        raise ConvergenceError(f"y0, or the result of func for it at t = {t:.6g}, is not finite"
                               f"{tolerance.worst_example(state + first, np.ones(state.shape))}")
    n_done = 1
    while n_done < len(times) and times[n_done] == t:
        rows[n_done] = state
        n_done += 1
    size = h0 or (first_step(slope, state, first, t, direction, tolerance) if n_done < len(times) else 0.0)
    n_steps = 0
    miss = scale = tolerance.scale(state)
    while n_done < len(times):
        size = min(size, hmax) if hmax else size
        ends_here = size >= abs(end - t) * (1 - 1e-12)
        h = end - t if ends_here else direction * size
        if t + h == t:
            raise ConvergenceError(f"the step size has become too small at t = {t:.6g}: the solution may be singular "
                                   f"there, or is not smooth{tolerance.worst_example(miss, scale)}")
        if n_steps >= (max_steps or MAX_STEPS):
            raise ConvergenceError(f"{n_steps} steps are not enough to get from t = {float(times[n_done - 1]):.6g} to "
                                   f"{float(times[n_done]):.6g}: the problem may be stiff"
                                   f"{tolerance.worst_example(miss, scale)}")
        n_steps += 1
        with np.errstate(over="ignore", invalid="ignore"):      # the step is repeated with a smaller size
            found, slopes = vector_step(slope, state, first, t, h)
            miss, scale = np.dot(ERROR_OF_VECTORS, slopes) * h, tolerance.scale(state, found)
            error = tolerance.norm(miss, scale)
        if not error <= 1.0:
            size = abs(h) * (max(0.2, 0.9 * error ** -0.2) if error < np.inf else 0.2)
            continue
        after = end if ends_here else t + h
        n_reached = n_done + int(np.count_nonzero((times[n_done:] - after) * direction <= 0))
        if n_reached > n_done:
            where = ((times[n_done:n_reached] - t) / h)[:, None]
            coefficients = interpolant((state,), (found,), [(row,) for row in slopes], h)
            rows[n_done:n_reached] = interpolated([part for (part,) in coefficients], where)
            if times[n_reached - 1] == after:
                rows[n_reached - 1] = found
            n_done, n_steps = n_reached, 0
        t, state, first = after, found, slopes[-1]
        boundaries.append(t)
        size = abs(h) * (10.0 if error == 0.0 else min(10.0, max(0.2, 0.9 * error ** -0.2)))
    return rows, np.asarray(boundaries)
