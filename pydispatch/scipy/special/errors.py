"""The error function and its relatives (DLMF 7), and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from scipy import special

from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import check_real, helper, is_complex, pointwise, scaled, several, transposed

absolute, complex_numbers, cos, exp, imag, logaddexp, real, sin, where = operators(
    "absolute", "complex", "cos", "exp", "imag", "logaddexp", "real", "sin", "where")
dawsn, erf, erfcx, mills, ndtri, wofz = SCIPY.operators(
    "special_dawsn", "special_erf", "special_erfcx", "special_mills", "special_ndtri", "special_wofz")

SQRT_2, SQRT_PI = math.sqrt(2), math.sqrt(math.pi)
SLOPE = 2 / SQRT_PI
"""The slope of the error function at 0."""
PEAK = 1 / math.sqrt(2 * math.pi)
"""The largest value of the normal density."""
FAR = 25.0
"""The number from which on six terms of an asymptotic series in 1 / x**2 give double precision."""

# --- error functions (7.2, 7.10) -------------------------------------------------------------------------------------


def far_series(x: Any, sign: float) -> Any:
    """Return -(1 - 3 / (2 x**2) + ...) / x**2, from 7.12.1. The other sign gives the series for Dawson's integral."""
    step = sign / (2 * x * x)
    total = 1 + 13 * step
    for factor in (11, 9, 7, 5, 3):
        total = 1 + factor * step * total
    return -total / (x * x)


def erfcx_slope(x: Any, result: Any) -> Any:
    """Return the slope of erfcx. For large x the two terms cancel, so its asymptotic series is used."""
    far = (absolute(x) > FAR) & (real(x) >= 0)
    near = 2 * where(far, 0.0, x) * result - SLOPE
    return where(far, far_series(where(far, x, FAR), -1.0) / SQRT_PI, near)


def dawsn_slope(x: Any, result: Any) -> Any:
    if is_complex(x):
        return 1 - 2 * x * result
    far = absolute(x) > FAR
    return where(far, far_series(where(far, x, FAR), 1.0) / 2, 1 - 2 * where(far, 0.0, x) * result)


def wofz_slope(z: Any, result: Any) -> Any:
    """Return the slope of wofz. Far from 0 in the upper half plane its asymptotic series is used."""
    far = (absolute(z) > FAR) & (imag(z) >= 0)
    near = -2 * where(far, 0.0, z) * result + SLOPE * 1j
    return where(far, far_series(where(far, z, FAR), 1.0) * (1j / SQRT_PI), near)


def fresnel_slopes(z: Any) -> tuple[Any, Any]:
    angle = z * z * (math.pi / 2)
    return sin(angle), cos(angle)


pointwise("erf", "Tensor x", lambda g, x: g * (SLOPE * exp(-x * x)))
pointwise("erfc", "Tensor x", lambda g, x: g * (-SLOPE * exp(-x * x)))
pointwise("erfcx", "Tensor x", lambda g, x, result: g * erfcx_slope(x, result))
pointwise("erfi", "Tensor x", lambda g, x: g * (SLOPE * exp(x * x)))
pointwise("erfinv", "Tensor y", lambda g, result: g * (exp(result * result) / SLOPE), instead=0.0)
pointwise("erfcinv", "Tensor y", lambda g, result: g * (exp(result * result) / -SLOPE))
pointwise("dawsn", "Tensor x", lambda g, x, result: g * dawsn_slope(x, result))
pointwise("wofz", "Tensor z", lambda g, z, result: g * wofz_slope(z, result))
several("fresnel", "Tensor z", 2, lambda g, z: transposed(g, fresnel_slopes(z)),
        lambda t, z: scaled(t, fresnel_slopes(z)))

# --- the normal distribution (7.18) ----------------------------------------------------------------------------------


def mills_kernel(x: Any) -> Any:
    """Return the normal density over the distribution function, which neither underflows nor cancels."""
    return math.sqrt(2 / math.pi) / special.erfcx(x * (-1 / SQRT_2))


def mills_slope(x: Any, result: Any) -> Any:
    """Return -(x + result) result. For x < 0, where that sum cancels, it is computed from the slope of erfcx."""
    left = x < 0
    y = where(left, x, 0.0) * (-1 / SQRT_2)
    scaled_tail = erfcx(y)
    return result * where(left, erfcx_slope(y, scaled_tail) / (SQRT_2 * scaled_tail), -(x + result))


def voigt_parts(x: Any, sigma: Any, gamma: Any) -> tuple[Any, Any, Any]:
    """Return the scale 1 / (sigma sqrt(2)), the Faddeeva function's argument (7.19.3), and its derivative there."""
    scale = 1 / (SQRT_2 * sigma)
    z = complex_numbers(x * scale, gamma * scale)
    return scale, z, wofz_slope(z, wofz(z))


def voigt_vjp_of_sigma(g: Any, x: Any, sigma: Any, gamma: Any, result: Any) -> Any:
    scale, z, slope = voigt_parts(x, sigma, gamma)
    return g * (-(result + scale / SQRT_PI * real(z * slope)) / sigma)


def voigt_vjp_of_x(g: Any, x: Any, sigma: Any, gamma: Any) -> Any:
    scale, _, slope = voigt_parts(x, sigma, gamma)
    return g * (scale * scale / SQRT_PI * real(slope))


def voigt_vjp_of_gamma(g: Any, x: Any, sigma: Any, gamma: Any) -> Any:
    scale, _, slope = voigt_parts(x, sigma, gamma)
    return g * (-scale * scale / SQRT_PI * imag(slope))


def log_ndtr_slope(x: Any) -> Any:
    check_real("log_ndtr", x)
    return mills(x)


helper("mills", "Tensor x", mills_kernel, vjp=lambda g, x, result: g * mills_slope(x, result))
pointwise("ndtr", "Tensor x", lambda g, x: g * (PEAK * exp(x * x * -0.5)))
pointwise("log_ndtr", "Tensor x", lambda g, x: g * log_ndtr_slope(x))
pointwise("ndtri", "Tensor y", lambda g, result: g * (exp(result * result * 0.5) / PEAK), instead=0.5)
pointwise("ndtri_exp", "Tensor y", lambda g, result: g / mills(result), instead=-1.0)
pointwise("nrdtrimn", "Tensor p, Tensor std, Tensor x", (
    lambda g, p, std: g * (-std * exp(ndtri(p) * ndtri(p) * 0.5) / PEAK), lambda g, p: -g * ndtri(p), lambda g: g),
    instead=0.5)
pointwise("nrdtrisd", "Tensor mn, Tensor p, Tensor x", (
    lambda g, p: -g / ndtri(p),
    lambda g, p, result: g * (-result / ndtri(p) * exp(ndtri(p) * ndtri(p) * 0.5) / PEAK),
    lambda g, p: g / ndtri(p)), instead=0.25)
pointwise("owens_t", "Tensor h, Tensor a", (
    lambda g, h, a: g * (-PEAK / 2 * exp(h * h * -0.5) * erf(h * a / SQRT_2)),
    lambda g, h, a: g * (exp((h * h + (h * a) * (h * a)) * -0.5) / (a * a + 1) / (2 * math.pi))))
pointwise("voigt_profile", "Tensor x, Tensor sigma, Tensor gamma", (
    voigt_vjp_of_x, voigt_vjp_of_sigma, voigt_vjp_of_gamma))
