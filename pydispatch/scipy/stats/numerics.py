"""Parts of SciPy's statistics that are compiled code, or whose derivatives cancel, for Tensors."""

# tests: tests/scipy/test_classes.py
from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import _kde

import pydispatch.numpy as pnp
from pydispatch._core import Tensor
from pydispatch.scipy.borrowed import REPLACED, MathFace
from pydispatch.scipy.linalg import solve_triangular
from pydispatch.scipy.special import logsumexp


def log_estimate(points: Any, weights: Any, x: Any, factor: Any) -> Any:
    """Return the logarithm of the density at each x: of normal kernels at points, with a covariance by its factor."""
    def whitened(rows: Any) -> Any:
        return pnp.swapaxes(solve_triangular(factor, pnp.swapaxes(rows, 0, 1), lower=True), 0, 1)

    distances = pnp.sum((whitened(x)[:, None] - whitened(points)[None]) ** 2, -1)
    size = 0.5 * points.shape[1] * np.log(2 * np.pi) + pnp.sum(pnp.log(pnp.diagonal(factor)))
    return logsumexp(-0.5 * distances, axis=1, b=pnp.swapaxes(weights, 0, 1)) - size


class Estimate:
    """A compiled function of SciPy's, by the dtype, that takes Tensors also."""

    def __init__(self, original: Any, is_log: bool) -> None:
        self.original, self.is_log = original, is_log

    def __getitem__(self, dtype: str) -> Any:
        def estimate(points: Any, weights: Any, x: Any, factor: Any, output_dtype: Any) -> Any:
            args = (points, weights, x, factor)
            if not any(isinstance(each, Tensor) for each in args):
                return self.original[dtype](*args, output_dtype)
            found = log_estimate(*args)
            return pnp.astype(found if self.is_log else pnp.exp(found), output_dtype)[:, None]
        return estimate


def log_variance(logx: Any, xp: Any = None, axis: int = 0) -> Any:
    """Return the logarithm of the variance of exp(logx), whose derivatives are right where logx is near 0, too."""
    if (abs(logx) < 1).all():
        return pnp.log(pnp.var(pnp.expm1(logx), axis))
    mean = logsumexp(logx, axis=axis, keepdims=True) - np.log(logx.shape[axis])
    distance = pnp.maximum(logx, mean) + pnp.log1p(-pnp.exp(-abs(logx - mean)))
    return logsumexp(2 * distance, axis=axis) - np.log(logx.shape[axis])


REPLACED["scipy.stats._morestats"] = {"_log_var": log_variance, "math": MathFace()}
REPLACED["scipy.stats._kde"] = {
    "gaussian_kernel_estimate": Estimate(_kde.gaussian_kernel_estimate, False),
    "gaussian_kernel_estimate_log": Estimate(_kde.gaussian_kernel_estimate_log, True)}
