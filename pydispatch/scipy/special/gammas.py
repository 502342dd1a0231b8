"""Gamma and beta functions, functions that follow from them, and the zeta function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import ORDER, alias, check_real, helper, in_double, is_complex, pointwise

cos, exp, log, sin, where = operators("cos", "exp", "log", "sin", "where")
digamma, gamma, gammaln, polygamma, rgamma, zeta = SCIPY.operators(
    "special_digamma", "special_gamma", "special_gammaln", "special_polygamma", "special_rgamma", "special_zeta")
polygamma_of_any_order, zeta_slope = SCIPY.operators("special_polygamma_of_any_order", "special_zeta_slope")

LOG_PI, LOG_2_PI = math.log(math.pi), math.log(2 * math.pi)

# --- gamma functions (DLMF 5.2, 5.15) --------------------------------------------------------------------------------


def rgamma_slope(x: Any) -> Any:
    """Return the derivative of 1 / gamma. Where gamma has poles, use reflection (5.5.3), since 1 / gamma has none."""
    if is_complex(x):
        return -digamma(x) * rgamma(x)
    left = x < 0.5
    y, x = where(left, x, 0.0), where(left, 1.0, x)
    angle = math.pi * y
    return where(left, gamma(1 - y) * (cos(angle) - digamma(1 - y) * sin(angle) / math.pi), -digamma(x) * rgamma(x))


def polygamma_kernel(n: Any, x: Any) -> Any:
    """Return SciPy's polygamma, or its Euler-Maclaurin sum (25.11.28) for orders whose factorials overflow."""
    large = n > 150
    found = special.polygamma(np.where(large, 1, n), x)
    if not np.any(large):
        return found
    n, x = np.where(large, n, 151.0), np.where(x > 0, x, 1.0)
    s = n + 1
    steps = np.arange(400.0)
    end = x + len(steps)
    part = ((x[..., None] / (x[..., None] + steps)) ** s[..., None]).sum(-1)
    last = np.exp(s * np.log(x / end))
    part = part + last * (end / n + 0.5 + s / (12 * end) - s * (s + 1) * (s + 2) / (720 * end ** 3))
    value = np.exp(special.gammaln(s) - s * np.log(x) + np.log(part)) * np.where(n % 2, 1, -1)
    return np.where(large, value, found)


def multigammaln_kernel(a: Any, d: int) -> Any:
    try:
        return special.multigammaln(a, d)
    except ValueError as error:
        raise ValueError(f"multigammaln: {error}") from None


def multigammaln_slope(a: Any, d: int) -> Any:
    """Return the slope, a sum of digamma functions (35.3.4)."""
    total = digamma(a)
    for j in range(1, d):
        total = total + digamma(a - j / 2)
    return total


pointwise("gamma", "Tensor z", lambda g, z, result: g * (result * digamma(z)))
pointwise("gammaln", "Tensor x", lambda g, x: g * digamma(x))
pointwise("loggamma", "Tensor z", lambda g, z: g * digamma(z))
pointwise("gammasgn", "Tensor x", None)
pointwise("rgamma", "Tensor z", lambda g, z: g * rgamma_slope(z))
pointwise("digamma", "Tensor z", lambda g, z: g * polygamma_of_any_order(1, check_real("digamma", z)))
alias("psi", "digamma")
pointwise("polygamma", "Tensor n, Tensor x", (ORDER, lambda g, n, x: g * polygamma_of_any_order(n + 1, x)))
helper("polygamma_of_any_order", "Tensor n, Tensor x", in_double(polygamma_kernel),
       vjp=(None, lambda g, n, x: g * polygamma_of_any_order(n + 1, x)))
pointwise("multigammaln", "Tensor a, int d", lambda g, a, d: g * multigammaln_slope(a, d), instead=1e3,
          kernel=multigammaln_kernel)

# --- beta functions and quotients of gamma functions (5.12, 5.2.5) ---------------------------------------------------


def poch_slope_in_z(z: Any, m: Any, result: Any) -> Any:
    """Return the slope in z. Where gamma(z) may have a pole, use the product rule for gamma(z + m) / gamma(z)."""
    regular = z > 0
    y = where(regular, 0.5, z)
    at_poles = gamma(y + m) * (digamma(y + m) * rgamma(y) + rgamma_slope(y))
    z = where(regular, z, 1.0)
    return where(regular, result * (digamma(z + m) - digamma(z)), at_poles)


def poch_slope_in_m(z: Any, m: Any, result: Any) -> Any:
    whole = z + m
    regular = whole > 0
    return where(regular, result * digamma(where(regular, whole, 1.0)), result * digamma(where(regular, 1.0, whole)))


def binom_slope_in_n(n: Any, k: Any, result: Any) -> Any:
    """Return the slope in n of gamma(n + 1) / gamma(k + 1) / gamma(n - k + 1).

    The last gamma has a pole where k is a larger whole number.
    """
    rest = n - k + 1
    regular = rest > 0
    y = where(regular, 0.5, rest)
    at_poles = gamma(n + 1) * rgamma(k + 1) * (digamma(n + 1) * rgamma(y) + rgamma_slope(y))
    return where(regular, result * (digamma(n + 1) - digamma(where(regular, rest, 1.0))), at_poles)


def binom_slope_in_k(n: Any, k: Any, result: Any) -> Any:
    rest, start = n - k + 1, k + 1
    regular = (rest > 0) & (start > 0)
    y, x = where(regular, 0.5, rest), where(regular, 0.5, start)
    at_poles = gamma(n + 1) * (rgamma_slope(x) * rgamma(y) - rgamma(x) * rgamma_slope(y))
    rest, start = where(regular, rest, 1.0), where(regular, start, 1.0)
    return where(regular, result * (digamma(rest) - digamma(start)), at_poles)


pointwise("beta", "Tensor a, Tensor b", (
    lambda g, a, b, result: g * (result * (digamma(a) - digamma(a + b))),
    lambda g, a, b, result: g * (result * (digamma(b) - digamma(a + b)))))
pointwise("betaln", "Tensor a, Tensor b", (
    lambda g, a, b: g * (digamma(a) - digamma(a + b)), lambda g, a, b: g * (digamma(b) - digamma(a + b))))
pointwise("poch", "Tensor z, Tensor m", (
    lambda g, z, m, result: g * poch_slope_in_z(z, m, result),
    lambda g, z, m, result: g * poch_slope_in_m(z, m, result)))
pointwise("binom", "Tensor n, Tensor k", (
    lambda g, n, k, result: g * binom_slope_in_n(n, k, result),
    lambda g, n, k, result: g * binom_slope_in_k(n, k, result)))

# --- zeta function (25.11.7, 25.11.17) -------------------------------------------------------------------------------

TERMS = 14.0
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def zeta_slope_by_series(s: Any, q: Any) -> Any:
    """Return the derivative of zeta(s, q) in s, term by term of its Euler-Maclaurin sum."""
    x = q[..., None] + np.arange(TERMS)
    logs = log(x)
    total = -(logs * exp(-s[..., None] * logs)).sum(-1)
    end = q + TERMS
    log_end = log(end)
    last = exp(-s * log_end)
    total = total - last * (end * (log_end / (s - 1) + 1 / ((s - 1) * (s - 1))) + log_end / 2)
    power, rising, slope_of_rising = last / end, s, 1.0
    for j, number in enumerate(BERNOULLI, 1):
        total = total + number / math.factorial(2 * j) * power * (slope_of_rising - log_end * rising)
        for i in (2 * j - 1, 2 * j):
            slope_of_rising = slope_of_rising * (s + i) + rising
            rising = rising * (s + i)
        power = power / (end * end)
    return total


def zeta_slope_kernel(s: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the derivative of zeta(s, q) in s."""
    return zeta_slope_by_series(*np.broadcast_arrays(s, q))


def riemann_slope(s: Any) -> Any:
    """Return the derivative of the Riemann zeta function, for s < 0 by its functional equation (25.4.1)."""
    left = s < 0
    x = where(left, -s, 1.0) + 1
    angle = (math.pi / 2) * (1 - x)
    scale = exp((1 - x) * LOG_2_PI - LOG_PI + gammaln(x))
    value, slope = zeta(x, None), zeta_slope(x, 1.0)
    reflected = scale * (((LOG_2_PI - digamma(x)) * value - slope) * sin(angle) + math.pi / 2 * cos(angle) * value)
    return where(left, reflected, zeta_slope(where(left, 2.0, s), 1.0))


def zeta_vjp_of_order(g: Any, x: Any, q: Any) -> Any:
    check_real("zeta", x)
    return g * (riemann_slope(x) if q is None else zeta_slope(x, q))


helper("zeta_slope", "Tensor s, Tensor q", in_double(zeta_slope_kernel),
       differentiated_as=lambda s, q: zeta_slope_by_series(s + 0 * q, q + 0 * s))
pointwise("zeta", "Tensor x, Tensor? q=None", (
    zeta_vjp_of_order, lambda g, x, q: g * (-x * zeta(x + 1, q))), instead=2.0)
pointwise("zetac", "Tensor x", lambda g, x: g * riemann_slope(x), instead=2.0)
