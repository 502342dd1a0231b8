"""Special functions that NumPy has, and their derivatives of any order, which are operators too."""

from __future__ import annotations

import math

import numpy as np

from pydispatch.operators.declare import LIBRARY, named, operators

divide, frexp_exponent, i0_derivative, ldexp, multiply, sin, sinc_derivative, where = operators(
    "divide", "frexp_exponent", "i0_derivative", "ldexp", "multiply", "sin", "sinc_derivative", "where")
pointwise = LIBRARY.pointwise


def sinc_derivative_of_double(x, order=1):
    """Compute the derivative of sin(pi x) / (pi x), by its series near 0 and by (y S)' = cos elsewhere."""
    x = np.asarray(x)
    if x.dtype.kind not in "fc":
        x = x.astype(float)
    y = np.array(x * math.pi, ndmin=1)
    with np.errstate(all="ignore"):
        found = np.sin(y) / y
        for k in range(1, order + 1):
            found = (np.sin(y + k * math.pi / 2) - k * found) / y
    near = np.abs(y) < order + 2
    found[near] = sinc_series(y[near], order)
    return (found * math.pi ** order).astype(x.dtype).reshape(x.shape)[()]


def sinc_series(y, order):
    """Compute the derivative of sin(y) / y by its Taylor series, which is good for |y| up to `order` + 2."""
    total = np.zeros_like(y)
    for n in range((order + 1) // 2, 3 * order + 20):
        k = 2 * n - order
        total += y ** k * ((-1) ** n / ((2 * n + 1) * math.factorial(k)))
    return total


def i0_derivative_of_double(x, order=1):
    """Compute a derivative of the Bessel function by the trapezoidal rule.

    It is the integral of cos(t)^order cosh(x cos(t)), or sinh.
    """
    x = np.asarray(x)
    dtype = np.i0(np.empty(0, x.dtype)).dtype
    if not x.size:
        return np.empty(x.shape, dtype)
    x = x.astype(np.result_type(dtype, float))
    largest = np.max(np.abs(x), initial=0, where=np.isfinite(x))
    n = 24 + order + int(6 * math.sqrt(min(largest, 800)))      # nodes, since the error falls faster than any power
    nodes = np.cos((np.arange(n) + 0.5) * (math.pi / (2 * n)))
    with np.errstate(over="ignore"):
        values = (np.sinh if order % 2 else np.cosh)(x[..., None] * nodes)
    return (values @ (nodes ** order / n)).astype(dtype)[()]


def sinc_by_operators(x):
    """Compute `np.sinc` by operators: 0 is replaced by a small number, for which the result is 1."""
    y = multiply(x, math.pi)
    y = where(y == 0, np.finfo(y.dtype).eps, y)
    return divide(sin(y), y)


pointwise("sinc", np.sinc, "Tensor x", vjp=lambda g, x: g * sinc_derivative(x, 1), planned_as=sinc_by_operators)
pointwise("sinc_derivative", named(sinc_derivative_of_double, "sinc_derivative"), "Tensor x, int order=1",
          vjp=lambda g, x, order: g * sinc_derivative(x, order + 1))
pointwise("i0", np.i0, "Tensor x", tags=("zero_d_array",), vjp=lambda g, x: g * i0_derivative(x, 1))
pointwise("i0_derivative", named(i0_derivative_of_double, "i0_derivative"), "Tensor x, int order=1",
          vjp=lambda g, x, order: g * i0_derivative(x, order + 1))
pointwise("frexp_mantissa", named(lambda x: np.frexp(x)[0], "frexp_mantissa"), "Tensor x",
          vjp=lambda g, x: ldexp(g, -frexp_exponent(x)))
pointwise("frexp_exponent", named(lambda x: np.frexp(x)[1], "frexp_exponent"), "Tensor x", differentiable=False)
