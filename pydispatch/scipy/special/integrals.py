"""Integrals of elementary functions (DLMF 6, 8.19, 25.12), and Lambert's function (4.13)."""

from __future__ import annotations

from typing import Any

from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import ORDER, pointwise, scaled, several, transposed

absolute, cos, cosh, exp, log, trunc, where = operators(
    "absolute", "cos", "cosh", "exp", "log", "trunc", "where")
expn, hyp2f1, spherical_in, spherical_jn = SCIPY.operators(
    "special_expn", "special_hyp2f1", "special_spherical_in", "special_spherical_jn")

# --- exponential and trigonometric integrals (6.2, 8.19.13) ----------------------------------------------------------


def expn_slope(n: Any, x: Any) -> Any:
    """Return -E(n - 1), which SciPy lacks for n = 0. SciPy takes whole numbers, and truncates others."""
    n = trunc(n)
    zero = n == 0
    return where(zero, -exp(-x) * (x + 1) / (x * x), -expn(where(zero, 1, n) - 1, x))


def sici_slopes(x: Any) -> tuple[Any, Any]:
    return spherical_jn(0, x), cos(x) / x


def shichi_slopes(x: Any) -> tuple[Any, Any]:
    return spherical_in(0, x), cosh(x) / x


pointwise("expi", "Tensor x", lambda g, x: g * (exp(x) / x))
pointwise("exp1", "Tensor z", lambda g, z: -g * (exp(-z) / z))
pointwise("expn", "Tensor n, Tensor x", (ORDER, lambda g, n, x: g * expn_slope(n, x)))
several("sici", "Tensor x", 2, lambda g, x: transposed(g, sici_slopes(x)), lambda t, x: scaled(t, sici_slopes(x)))
several("shichi", "Tensor x", 2, lambda g, x: transposed(g, shichi_slopes(x)),
        lambda t, x: scaled(t, shichi_slopes(x)))

# --- the dilogarithm (25.12.2), and Lambert's function (4.13.4) ------------------------------------------------------


def spence_slope(z: Any) -> Any:
    """Return log(z) / (1 - z), which is -1 at 1, by a hypergeometric function (15.4.1) near 1."""
    near = absolute(z - 1) < 0.5
    y = where(near, 2.0, z)
    return where(near, -hyp2f1(1.0, 1.0, 2.0, where(near, 1 - z, 0.0)), log(y) / (1 - y))


pointwise("spence", "Tensor z", lambda g, z: g * spence_slope(z))
pointwise("lambertw", "Tensor z, int k=0, float tol=1e-8", lambda g, result: g * (exp(-result) / (result + 1)))
pointwise("wrightomega", "Tensor z", lambda g, result: g * (result / (result + 1)))
