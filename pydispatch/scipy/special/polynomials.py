"""Hypergeometric functions (DLMF 13, 15), and orthogonal polynomials, as functions of their argument (18.9)."""

from __future__ import annotations

from typing import Any

from scipy import special

from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import ORDER, PARAMETER, pointwise

exp, maximum, sqrt, where = operators("exp", "maximum", "sqrt", "where")
sph_harm_y, = SCIPY.operators("special_sph_harm_y")
binom, hyp0f1, hyp1f1, hyp2f1, hyperu, log_wright_bessel, lpmv, wright_bessel = SCIPY.operators(
    "special_binom", "special_hyp0f1", "special_hyp1f1", "special_hyp2f1", "special_hyperu",
    "special_log_wright_bessel", "special_lpmv", "special_wright_bessel")
(eval_chebys, eval_chebyu, eval_gegenbauer, eval_genlaguerre, eval_hermite, eval_hermitenorm,
 eval_jacobi) = SCIPY.operators(*[f"special_eval_{name}" for name in (
     "chebys", "chebyu", "gegenbauer", "genlaguerre", "hermite", "hermitenorm", "jacobi")])

# --- hypergeometric functions (13.3.15, 13.3.22, 15.5.1, 16.3.1) -----------------------------------------------------

pointwise("hyp0f1", "Tensor v, Tensor z", (PARAMETER, lambda g, v, z: g * (hyp0f1(v + 1, z) / v)))
pointwise("hyp1f1", "Tensor a, Tensor b, Tensor z", (
    PARAMETER, PARAMETER, lambda g, a, b, z: g * (hyp1f1(a + 1, b + 1, z) * (a / b))))
pointwise("hyp2f1", "Tensor a, Tensor b, Tensor c, Tensor z", (
    PARAMETER, PARAMETER, PARAMETER,
    lambda g, a, b, c, z: g * (hyp2f1(a + 1, b + 1, c + 1, z) * (a * b / c))), instead=0.5)
pointwise("hyperu", "Tensor a, Tensor b, Tensor x", (
    PARAMETER, PARAMETER, lambda g, a, b, x: g * (hyperu(a + 1, b + 1, x) * -a)))
pointwise("wright_bessel", "Tensor a, Tensor b, Tensor x", (
    PARAMETER, PARAMETER, lambda g, a, b, x: g * wright_bessel(a, a + b, x)))
pointwise("log_wright_bessel", "Tensor a, Tensor b, Tensor x", (
    PARAMETER, PARAMETER, lambda g, a, b, x, result: g * exp(log_wright_bessel(a, a + b, x) - result)))

# --- Legendre functions (14.10.5) ------------------------------------------------------------------------------------

pointwise("lpmv", "Tensor m, Tensor v, Tensor x", (ORDER, ORDER, lambda g, m, v, x, result: g * (
    (v * x * result - (v + m) * lpmv(m, v - 1, x)) / (x * x - 1))), instead=0.5)

# --- spherical harmonics (14.30.1), by the operators that raise and lower the order ----------------------------------


def harmonic(n: Any, m: Any, theta: Any, phi: Any) -> Any:
    """Compute a spherical harmonic."""
    return special.sph_harm_y(n, m, theta, phi)


def polar_slope(g: Any, n: Any, m: Any, theta: Any, phi: Any) -> Any:
    """Return the derivative in the polar angle. It is 0 of an order beyond the degree."""
    raised = where(m < n, sqrt(maximum((n - m) * (n + m + 1), 0)), 0.0) * sph_harm_y(n, m + 1, theta, phi)
    lowered = where(m > -n, sqrt(maximum((n + m) * (n - m + 1), 0)), 0.0) * sph_harm_y(n, m - 1, theta, phi)
    turn = exp(1j * phi)
    return g * ((raised / turn - lowered * turn) * 0.5)


if hasattr(special, "sph_harm_y"):
    pointwise("sph_harm_y", "Tensor n, Tensor m, Tensor theta, Tensor phi", (
        ORDER, ORDER, polar_slope, lambda g, n, m, theta, phi, result: g * (1j * m * result)), kernel=harmonic)

# --- polynomials -----------------------------------------------------------------------------------------------------
#
# Each derivative is a polynomial of one degree less from a neighbouring family.

ONE, TWO = "Tensor n, Tensor x", "Tensor n, Tensor alpha, Tensor x"


def lowered(function: Any, n: Any, *others: Any) -> Any:
    """Return the polynomial of degree n - 1, which is 0 for n = 0. SciPy has this case only in some families."""
    zero = n == 0
    return where(zero, 0.0, function(where(zero, 0, n - 1), *others))


pointwise("eval_jacobi", "Tensor n, Tensor alpha, Tensor beta, Tensor x", (
    ORDER, PARAMETER, PARAMETER, lambda g, n, alpha, beta, x: g * (
        lowered(eval_jacobi, n, alpha + 1, beta + 1, x) * ((n + alpha + beta + 1) / 2))))
pointwise("eval_sh_jacobi", "Tensor n, Tensor p, Tensor q, Tensor x", (
    ORDER, PARAMETER, PARAMETER, lambda g, n, p, q, x: g * (
        lowered(eval_jacobi, n, p - q + 1, q, 2 * x - 1) * (n + p) / binom(2 * n + p - 1, n))))
pointwise("eval_legendre", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_jacobi, n, 1.0, 1.0, x) * ((n + 1) / 2))))
pointwise("eval_sh_legendre", ONE, (
    ORDER, lambda g, n, x: g * (lowered(eval_jacobi, n, 1.0, 1.0, 2 * x - 1) * (n + 1))))
pointwise("eval_gegenbauer", TWO, (
    ORDER, PARAMETER, lambda g, n, alpha, x: g * (lowered(eval_gegenbauer, n, alpha + 1, x) * (2 * alpha))))
pointwise("eval_chebyt", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_chebyu, n, x) * n)))
pointwise("eval_chebyu", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_gegenbauer, n, 2.0, x) * 2)))
pointwise("eval_chebyc", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_chebys, n, x) * n)))
pointwise("eval_chebys", ONE, (ORDER, lambda g, n, x: g * lowered(eval_gegenbauer, n, 2.0, x / 2)))
pointwise("eval_sh_chebyt", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_chebyu, n, 2 * x - 1) * (2 * n))))
pointwise("eval_sh_chebyu", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_gegenbauer, n, 2.0, 2 * x - 1) * 4)))
pointwise("eval_genlaguerre", TWO, (
    ORDER, PARAMETER, lambda g, n, alpha, x: -g * lowered(eval_genlaguerre, n, alpha + 1, x)))
pointwise("eval_laguerre", ONE, (ORDER, lambda g, n, x: -g * lowered(eval_genlaguerre, n, 1.0, x)))
pointwise("eval_hermite", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_hermite, n, x) * (2 * n))))
pointwise("eval_hermitenorm", ONE, (ORDER, lambda g, n, x: g * (lowered(eval_hermitenorm, n, x) * n)))
