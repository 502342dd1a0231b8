"""Windows: weights that fall off towards both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch.numpy.declare import CONSTANT, array_function, as_array, declare
from pydispatch.ops import ops


def constant_window(name: str) -> Callable[..., Any]:
    """NumPy's window: no array goes in."""
    def window(M: Any) -> Any:
        return getattr(np, name)(int(M))
    window.__name__, window.__doc__ = name, f"The weights of numpy.{name}, for M points."
    return window


for name in ("bartlett", "blackman", "hamming", "hanning"):
    declare(name, constant_window(name), CONSTANT)


@array_function()
def kaiser(M: Any, beta: Any) -> Any:
    """The weights of the Kaiser window of M points, which are narrower for a larger beta."""
    M, beta = int(M), as_array(beta)
    if M < 1:
        return ops.np.zeros_like(ops.np.multiply(beta, 1.0), shape=(0,))
    if M == 1:
        return ops.np.ones_like(ops.np.multiply(beta, 1.0), shape=(1,))
    alpha = (M - 1) / 2.0
    height = np.sqrt(1 - ((np.arange(M) - alpha) / alpha) ** 2.0)
    return ops.np.divide(ops.np.i0(ops.np.multiply(beta, height)), ops.np.i0(ops.np.multiply(beta, 1.0)))
