"""Windows: weights that fall off towards both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch.numpy.declare import CONSTANT, array_function, as_array, declare, maker_beside
from pydispatch.ops import ops


def triangle(points: Any, last: float) -> Any:
    """Return the weights of `bartlett`, from points between -last and last."""
    slope = ops.np.divide(points, last)
    return ops.np.where(ops.np.less_equal(points, 0), ops.np.add(1, slope), ops.np.subtract(1, slope))


def sum_of_cosines(constant: float, *heights: float) -> Callable[[Any, float], Any]:
    """Return the weights of a window that is a constant plus a sum of cosines.

    The i-th height belongs to the cosine of i periods.
    """
    def weights(points: Any, last: float) -> Any:
        result: Any = constant
        for i, height in enumerate(heights):
            angle = ops.np.divide(ops.np.multiply((i + 1) * np.pi, points), last)
            result = ops.np.add(result, ops.np.multiply(height, ops.np.cos(angle)))
        return result
    return weights


def constant_window(name: str, weights: Callable[[Any, float], Any]) -> Callable[..., Any]:
    """Return one of NumPy's windows that do not take an array, on the default backend."""
    def window(M: Any) -> Any:
        M = float(M)
        if M < 1:
            return ops.np.zeros(0)
        return ops.np.ones(1) if M == 1 else weights(ops.np.arange(1 - M, M, 2), M - 1)
    window.__name__, window.__doc__ = name, f"The weights of numpy.{name}, for M points."
    return window


for name, weights in {
    "bartlett": triangle, "blackman": sum_of_cosines(0.42, 0.5, 0.08), "hamming": sum_of_cosines(0.54, 0.46),
    "hanning": sum_of_cosines(0.5, 0.5),
}.items():
    declare(name, constant_window(name, weights), CONSTANT, creates=True)


@array_function(creates=True)
def kaiser(M: Any, beta: Any) -> Any:
    """Return the weights of the Kaiser window of M points, which are narrower for a larger beta."""
    M, beta = int(M), as_array(beta)
    make = maker_beside(beta)
    if M == 1:
        return ops.np.ones_like(ops.np.multiply(beta, 1.0), shape=(1,))
    alpha = (M - 1) / 2.0
    distances = make.power(make.divide(make.subtract(make.arange(M), alpha), alpha), 2.0)
    heights = make.sqrt(make.subtract(1, distances))
    return ops.np.divide(ops.np.i0(ops.np.multiply(beta, heights)), ops.np.i0(ops.np.multiply(beta, 1.0)))
