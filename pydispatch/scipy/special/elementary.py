"""Logarithms, exponentials and related functions.

These are entropies, losses, Box-Cox transforms and trigonometric functions of degrees.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from pydispatch.numpy.declare import NUMPY
from pydispatch.operators.declare import operators
from pydispatch.operators.pointwise import LOG_2, LOG_10, RADIANS_PER_DEGREE, nonzero, vanished
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE, SCIPY
from pydispatch.scipy.special.declare import COUNT, helper, in_double, pointwise

absolute, cos, exp, hypot, log, log1p, sign, sin, where = operators(
    "absolute", "cos", "exp", "hypot", "log", "log1p", "sign", "sin", "where")
cosdg, eval_gegenbauer, expit, exprel_derivative, hyp2f1, sindg, xlogy = SCIPY.operators(
    "special_cosdg", "special_eval_gegenbauer", "special_expit", "special_exprel_derivative", "special_hyp2f1",
    "special_sindg", "special_xlogy")

# --- logistic functions ----------------------------------------------------------------------------------------------

pointwise("expit", "Tensor x", lambda g, x, result: g * (result * expit(-x)))
pointwise("logit", "Tensor x", lambda g, x: g / (x * (1 - x)), instead=0.5)
pointwise("log_expit", "Tensor x", lambda g, x: g * expit(-x))

if hasattr(special, "softplus"):
    @FACE.array_function("special")
    def softplus(x: Any, **kwargs: Any) -> Any:
        """Return log(1 + exp(x))."""
        return ops.np.logaddexp(0, x, **kwargs)

# --- products with logarithms ----------------------------------------------------------------------------------------


def log_with_zero(x: Any, y: Any) -> Any:
    """Return log(y), or 0 where x = y = 0. There x log(y) is 0, whatever x and y do nearby."""
    return log(where((x == 0) & (y == 0), 1.0, y))


pointwise("xlogy", "Tensor x, Tensor y", (
    lambda g, x, y: g * log_with_zero(x, y), lambda g, x, y: g * (x / where((x == 0) & (y == 0), 1.0, y))))
pointwise("xlog1py", "Tensor x, Tensor y", (
    lambda g, x, y: g * log1p(where((x == 0) & (y == -1), 0.0, y)),
    lambda g, x, y: g * (x / where((x == 0) & (y == -1), 1.0, y + 1))))
pointwise("entr", "Tensor x", lambda g, x: g * (-1 - log(x)))
pointwise("rel_entr", "Tensor x, Tensor y", (
    lambda g, x, y: g * (log(x / y) + 1), lambda g, x, y: g * (-x / where((x == 0) & (y == 0), 1.0, y))))
pointwise("kl_div", "Tensor x, Tensor y", (
    lambda g, x, y: g * log(x / y), lambda g, x, y: g * ((y - x) / where((x == 0) & (y == 0), 1.0, y))))
pointwise("powm1", "Tensor x, Tensor y", (
    lambda g, x, y: g * (y * x ** (y - 1)), lambda g, x, y: g * xlogy(x ** y, x)))

# --- losses ----------------------------------------------------------------------------------------------------------


def pseudo_huber_slope(delta: Any, r: Any) -> Any:
    """Return the slope in delta: r**4 / (h (h + delta)**2) with h = hypot(delta, r).

    It equals a difference that would cancel.
    """
    h = hypot(delta, r)
    part = r / nonzero(h + delta)
    return part * part * (r / nonzero(h) * r)


pointwise("huber", "Tensor delta, Tensor r", (
    lambda g, delta, r: g * where(absolute(r) <= delta, 0.0, absolute(r) - delta),
    lambda g, delta, r: g * where(absolute(r) <= delta, r, delta * sign(r))))
pointwise("pseudo_huber", "Tensor delta, Tensor r", (
    lambda g, delta, r: g * pseudo_huber_slope(delta, r),
    lambda g, delta, r: g * (delta * (r / nonzero(hypot(delta, r))))))

# --- exponentials ----------------------------------------------------------------------------------------------------


def exprel_derivative_kernel(x: Any, order: int = 1) -> Any:
    """Return the integral of t**order exp(x t) over t from 0 to 1.

    For x < -1 it is an incomplete gamma function (DLMF 8.2.1), near 0 a series, and for large x a recurrence. The
    terms of the recurrence exceed the integral, so they are multiplied by exp(-x) until the last step.
    """
    left, right = x < -1, x > 30
    y = np.where(left, -x, 1.0)
    found = special.gammainc(order + 1, y) * math.factorial(order) / y ** (order + 1)
    near, term, total = np.where(left | right, 0.0, x), np.ones_like(x), np.zeros_like(x)
    for k in range(120):
        total = total + term / (k + order + 1)
        term = term * near / (k + 1)
    y = np.where(right, np.minimum(x, 2000.0), 30.0)
    growing, root = special.exprel(-y), np.exp(y / 2)
    for n in range(1, order + 1):
        growing = (1 - n * growing) / y
    return np.where(left, found, np.where(right, growing * root * root, total))


pointwise("expm1", "Tensor x", lambda g, x: g * exp(x))
pointwise("exp2", "Tensor x", lambda g, result: g * (LOG_2 * result))
pointwise("exp10", "Tensor x", lambda g, result: g * (LOG_10 * result))
pointwise("exprel", "Tensor x", lambda g, x: g * exprel_derivative(x, 1))
helper("exprel_derivative", "Tensor x, int order=1", in_double(exprel_derivative_kernel),
       vjp=lambda g, x, order: g * exprel_derivative(x, order + 1))
pointwise("log1p", "Tensor x", lambda g, x: g / (x + 1))
pointwise("cbrt", "Tensor x", lambda g, result: g / (3 * result * result))
pointwise("round", "Tensor x", vanished)

# --- Box-Cox transforms, and Tukey's lambda distribution -------------------------------------------------------------
#
# With t = lmbda * log(x), boxcox is log(x) * exprel(t). Its inverse is exp(y * r) with r = log(1 + lmbda * y) over
# lmbda * y. Both are smooth at lmbda = 0.


def boxcox_slope(logarithm: Any, lmbda: Any) -> Any:
    """Return the slope in lmbda from log(x). Where x is 0, log(x) is infinite, and the slope is 1 / lmbda**2."""
    at_zero = logarithm == -math.inf
    logarithm = where(at_zero, 0.0, logarithm)
    inside = logarithm * logarithm * exprel_derivative(logarithm * lmbda, 1)
    return where(at_zero, 1 / nonzero(lmbda * lmbda), inside)


def log1prel_slope(t: Any) -> Any:
    """Return the derivative of log(1 + t) / t, near 0 by a hypergeometric function (DLMF 15.4.1)."""
    near = absolute(t) < 0.5
    y = where(near, 1.0, t)
    return where(near, hyp2f1(2.0, 2.0, 3.0, -where(near, t, 0.0)) * -0.5, (y / (y + 1) - log1p(y)) / (y * y))


def tukey_slope(x: Any, lmbda: Any, result: Any) -> Any:
    """Return the slope in x, which is the density at the quantile `result`, and 0 outside of the support."""
    inside = absolute(x) * lmbda < 1
    p = where(inside, result, 0.5)
    return where(inside, 1 / (p ** (lmbda - 1) + (1 - p) ** (lmbda - 1)), 0.0)


def tukey_slope_in_lambda(x: Any, lmbda: Any, result: Any) -> Any:
    """Return minus the density times the slope of the quantile function, or 0 outside of the support."""
    p = where(absolute(x) * lmbda < 1, result, 0.5)
    of_quantile = boxcox_slope(log(p), lmbda) - boxcox_slope(log1p(-p), lmbda)
    return -tukey_slope(x, lmbda, result) * of_quantile


pointwise("boxcox", "Tensor x, Tensor lmbda", (
    lambda g, x, lmbda: g * x ** (lmbda - 1), lambda g, x, lmbda: g * boxcox_slope(log(x), lmbda)))
pointwise("boxcox1p", "Tensor x, Tensor lmbda", (
    lambda g, x, lmbda: g * (x + 1) ** (lmbda - 1), lambda g, x, lmbda: g * boxcox_slope(log1p(x), lmbda)))
pointwise("inv_boxcox", "Tensor y, Tensor lmbda", (
    lambda g, lmbda, result: g * result ** (1 - lmbda),
    lambda g, y, lmbda, result: g * (result * (y * y * log1prel_slope(y * lmbda)))))
pointwise("inv_boxcox1p", "Tensor y, Tensor lmbda", (
    lambda g, lmbda, result: g * (result + 1) ** (1 - lmbda),
    lambda g, y, lmbda, result: g * ((result + 1) * (y * y * log1prel_slope(y * lmbda)))))
pointwise("tklmbda", "Tensor x, Tensor lmbda", (
    lambda g, x, lmbda, result: g * tukey_slope(x, lmbda, result),
    lambda g, x, lmbda, result: g * tukey_slope_in_lambda(x, lmbda, result)))

# --- trigonometry ----------------------------------------------------------------------------------------------------


def diric_vjp(g: Any, x: Any, n: Any) -> Any:
    """Return the gradient in x. The function is a Chebyshev polynomial of cos(x / 2), divided by n (DLMF 18.5.2)."""
    return g * (-sin(x / 2) / n * eval_gegenbauer(n - 2, 2.0, cos(x / 2)))


pointwise("cosm1", "Tensor x", lambda g, x: -g * sin(x))
pointwise("sindg", "Tensor x", lambda g, x: g * (RADIANS_PER_DEGREE * cosdg(x)))
pointwise("cosdg", "Tensor x", lambda g, x: g * (-RADIANS_PER_DEGREE * sindg(x)))
pointwise("tandg", "Tensor x", lambda g, result: g * (RADIANS_PER_DEGREE * (result * result + 1)))
pointwise("cotdg", "Tensor x", lambda g, result: g * (-RADIANS_PER_DEGREE * (result * result + 1)))
pointwise("radian", "Tensor d, Tensor m, Tensor s", (
    lambda g: g * RADIANS_PER_DEGREE, lambda g: g * (RADIANS_PER_DEGREE / 60),
    lambda g: g * (RADIANS_PER_DEGREE / 3600)))
pointwise("diric", "Tensor x, Tensor n", (diric_vjp, COUNT))
FACE.functions["special.sinc"] = NUMPY.functions["sinc"]
FACE.kinds["special.sinc"] = NUMPY.kinds["sinc"]
