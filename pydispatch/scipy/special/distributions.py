"""Incomplete gamma and beta functions (DLMF 8), and distribution functions that follow from them.

The derivative with respect to a shape parameter follows from a draw of the distribution whose quantile stays
the same. It is minus the density times the slope of the draw, an integral that `pydispatch.operators.quantiles`
computes for random numbers. The inverse of a function f(p, x), with respect to x, has the slopes 1 / f_x and
-f_p / f_x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

import pydispatch.operators.distributions  # noqa: F401     # declares the slopes of draws
from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import COUNT, PARAMETER, helper, in_double, pointwise

beta_slope, exp, floor, gamma_slope, log1p, sign, sqrt, trunc, where = operators(
    "random_beta_slope", "exp", "floor", "random_gamma_slope", "log1p", "sign", "sqrt", "trunc", "where")
betaln, gammaln, xlogy = SCIPY.operators(
    "special_betaln", "special_gammaln", "special_xlogy")
hyp0f1, kolmogorov_slope, smirnov_slope = SCIPY.operators(
    "special_hyp0f1", "special_kolmogorov_slope", "special_smirnov_slope")
chndtr, ive = SCIPY.operators("special_chndtr", "special_ive")

# --- incomplete gamma functions (8.8.13) -----------------------------------------------------------------------------


def gamma_density(a: Any, x: Any) -> Any:
    """Return x**(a - 1) exp(-x) / gamma(a)."""
    return exp(xlogy(a - 1, x) - x - gammaln(a))


def gammainc_slope(a: Any, x: Any) -> Any:
    """Return the slope of the lower function in its shape."""
    return -gamma_density(a, x) * gamma_slope(a, x)


pointwise("gammainc", "Tensor a, Tensor x", (
    lambda g, a, x: g * gammainc_slope(a, x), lambda g, a, x: g * gamma_density(a, x)))
pointwise("gammaincc", "Tensor a, Tensor x", (
    lambda g, a, x: -g * gammainc_slope(a, x), lambda g, a, x: -g * gamma_density(a, x)))
pointwise("gammaincinv", "Tensor a, Tensor y", (
    lambda g, a, result: g * gamma_slope(a, result), lambda g, a, result: g / gamma_density(a, result)), instead=0.5)
pointwise("gammainccinv", "Tensor a, Tensor y", (
    lambda g, a, result: g * gamma_slope(a, result), lambda g, a, result: -g / gamma_density(a, result)), instead=0.5)

# --- incomplete beta functions (8.17) --------------------------------------------------------------------------------


def beta_density(a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return x**(a - 1) y**(b - 1) / B(a, b), with y = 1 - x."""
    return exp(xlogy(a - 1, x) + xlogy(b - 1, y) - betaln(a, b))


def betainc_slope(a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return the slope of the lower function in a.

    The slope in b is minus this one with a and b, and x and y, exchanged (8.17.4).
    """
    return -beta_density(a, b, x, y) * beta_slope(a, b, x, y)


pointwise("betainc", "Tensor a, Tensor b, Tensor x", (
    lambda g, a, b, x: g * betainc_slope(a, b, x, 1 - x), lambda g, a, b, x: -g * betainc_slope(b, a, 1 - x, x),
    lambda g, a, b, x: g * beta_density(a, b, x, 1 - x)), instead=0.5)
pointwise("betaincc", "Tensor a, Tensor b, Tensor x", (
    lambda g, a, b, x: -g * betainc_slope(a, b, x, 1 - x), lambda g, a, b, x: g * betainc_slope(b, a, 1 - x, x),
    lambda g, a, b, x: -g * beta_density(a, b, x, 1 - x)), instead=0.5)
pointwise("betaincinv", "Tensor a, Tensor b, Tensor y", (
    lambda g, a, b, result: g * beta_slope(a, b, result, 1 - result),
    lambda g, a, b, result: -g * beta_slope(b, a, 1 - result, result),
    lambda g, a, b, result: g / beta_density(a, b, result, 1 - result)), instead=0.5)
pointwise("betainccinv", "Tensor a, Tensor b, Tensor y", (
    lambda g, a, b, result: g * beta_slope(a, b, result, 1 - result),
    lambda g, a, b, result: -g * beta_slope(b, a, 1 - result, result),
    lambda g, a, b, result: -g / beta_density(a, b, result, 1 - result)), instead=0.5)
pointwise("btdtria", "Tensor p, Tensor b, Tensor x", (
    lambda g, b, x, result: g / betainc_slope(result, b, x, 1 - x),
    lambda g, b, x, result: g * (beta_slope(b, result, 1 - x, x) / beta_slope(result, b, x, 1 - x)),
    lambda g, b, x, result: g / beta_slope(result, b, x, 1 - x)), instead=0.5)
pointwise("btdtrib", "Tensor a, Tensor p, Tensor x", (
    lambda g, a, x, result: g * (beta_slope(a, result, x, 1 - x) / beta_slope(result, a, 1 - x, x)),
    lambda g, a, x, result: -g / betainc_slope(result, a, 1 - x, x),
    lambda g, a, x, result: -g / beta_slope(result, a, 1 - x, x)), instead=0.5)

# --- gamma and chi-square distributions ------------------------------------------------------------------------------

pointwise("chdtr", "Tensor v, Tensor x", (
    lambda g, v, x: g * (gammainc_slope(v / 2, x / 2) / 2), lambda g, v, x: g * (gamma_density(v / 2, x / 2) / 2)))
pointwise("chdtrc", "Tensor v, Tensor x", (
    lambda g, v, x: g * (gammainc_slope(v / 2, x / 2) / -2), lambda g, v, x: g * (gamma_density(v / 2, x / 2) / -2)))
pointwise("chdtri", "Tensor v, Tensor p", (
    lambda g, v, result: g * gamma_slope(v / 2, result / 2),
    lambda g, v, result: g * (-2 / gamma_density(v / 2, result / 2))), instead=0.5)
pointwise("chdtriv", "Tensor p, Tensor x", (
    lambda g, x, result: g * (2 / gammainc_slope(result / 2, x / 2)),
    lambda g, x, result: g / gamma_slope(result / 2, x / 2)), instead=0.5)
pointwise("gdtr", "Tensor a, Tensor b, Tensor x", (
    lambda g, a, b, x: g * (x * gamma_density(b, a * x)), lambda g, a, b, x: g * gammainc_slope(b, a * x),
    lambda g, a, b, x: g * (a * gamma_density(b, a * x))))
pointwise("gdtrc", "Tensor a, Tensor b, Tensor x", (
    lambda g, a, b, x: -g * (x * gamma_density(b, a * x)), lambda g, a, b, x: -g * gammainc_slope(b, a * x),
    lambda g, a, b, x: -g * (a * gamma_density(b, a * x))))
pointwise("gdtria", "Tensor p, Tensor b, Tensor x", (
    lambda g, b, x, result: g / (x * gamma_density(b, result * x)),
    lambda g, b, x, result: g * (gamma_slope(b, result * x) / x),
    lambda g, x, result: g * (-result / x)), instead=0.5)
pointwise("gdtrib", "Tensor a, Tensor p, Tensor x", (
    lambda g, a, x, result: g * (x / gamma_slope(result, a * x)),
    lambda g, a, x, result: g / gammainc_slope(result, a * x),
    lambda g, a, x, result: g * (a / gamma_slope(result, a * x))), instead=0.5)
pointwise("gdtrix", "Tensor a, Tensor b, Tensor p", (
    lambda g, a, result: g * (-result / a), lambda g, a, b, result: g * (gamma_slope(b, a * result) / a),
    lambda g, a, b, result: g / (a * gamma_density(b, a * result))), instead=0.5)

# --- Poisson distribution, a gamma distribution in its mean (8.4.10) -------------------------------------------------

def of_count(result: Any, slope: Any) -> Any:
    """Return the slope of a count, or 0 where the count is 0, which SciPy returns for all smaller probabilities too."""
    return where(result == 0, 0.0, slope)


pointwise("pdtr", "Tensor k, Tensor m", (COUNT, lambda g, k, m: -g * gamma_density(floor(k) + 1, m)))
pointwise("pdtrc", "Tensor k, Tensor m", (COUNT, lambda g, k, m: g * gamma_density(floor(k) + 1, m)))
pointwise("pdtri", "Tensor k, Tensor y", (
    COUNT, lambda g, k, result: -g / gamma_density(floor(k) + 1, result)), instead=0.5)
pointwise("pdtrik", "Tensor p, Tensor m", (
    lambda g, m, result: g * of_count(result, -1 / gammainc_slope(result + 1, m)),
    lambda g, m, result: g * of_count(result, 1 / gamma_slope(result + 1, m))), instead=0.5)

# --- binomial and negative binomial distributions, beta distributions in the probability (8.17.5) --------------------


def bdtr_slope(k: Any, n: Any, p: Any) -> Any:
    """Return the slope in p of the probability of more than k successes in n trials. SciPy truncates k and n."""
    k, n = floor(k), trunc(n)
    return beta_density(k + 1, n - k, p, 1 - p)


def nbdtr_slope(k: Any, n: Any, p: Any) -> Any:
    """Return the slope in p of the probability of at most k failures before n successes."""
    return beta_density(n, floor(k) + 1, p, 1 - p)


def bdtr_slope_in_k(k: Any, n: Any, p: Any) -> Any:
    """Return the slope in k, divided by that in 1 - p, of the probability of at most k successes.

    This probability is betainc(n - k, k + 1, 1 - p).
    """
    return beta_slope(n - k, k + 1, 1 - p, p) + beta_slope(k + 1, n - k, p, 1 - p)


pointwise("bdtr", "Tensor k, Tensor n, Tensor p", (
    COUNT, COUNT, lambda g, k, n, p: -g * bdtr_slope(k, n, p)), instead=0.5)
pointwise("bdtrc", "Tensor k, Tensor n, Tensor p", (
    COUNT, COUNT, lambda g, k, n, p: g * bdtr_slope(k, n, p)), instead=0.5)
pointwise("bdtri", "Tensor k, Tensor n, Tensor y", (
    COUNT, COUNT, lambda g, k, n, result: -g / bdtr_slope(k, n, result)), instead=0.5)
pointwise("bdtrik", "Tensor y, Tensor n, Tensor p", (
    lambda g, n, p, result: g * of_count(
        result, 1 / (beta_density(n - result, result + 1, 1 - p, p) * bdtr_slope_in_k(result, n, p))),
    lambda g, n, p, result: g * of_count(
        result, beta_slope(n - result, result + 1, 1 - p, p) / bdtr_slope_in_k(result, n, p)),
    lambda g, n, p, result: g * of_count(result, 1 / bdtr_slope_in_k(result, n, p))), instead=0.5)
pointwise("bdtrin", "Tensor k, Tensor y, Tensor p", (
    lambda g, k, p, result: g * (bdtr_slope_in_k(k, result, p) / beta_slope(result - k, k + 1, 1 - p, p)),
    lambda g, k, p, result: g / betainc_slope(result - k, k + 1, 1 - p, p),
    lambda g, k, p, result: -g / beta_slope(result - k, k + 1, 1 - p, p)), instead=0.5)
pointwise("nbdtr", "Tensor k, Tensor n, Tensor p", (
    COUNT, COUNT, lambda g, k, n, p: g * nbdtr_slope(k, n, p)), instead=0.5)
pointwise("nbdtrc", "Tensor k, Tensor n, Tensor p", (
    COUNT, COUNT, lambda g, k, n, p: -g * nbdtr_slope(k, n, p)), instead=0.5)
pointwise("nbdtri", "Tensor k, Tensor n, Tensor y", (
    COUNT, COUNT, lambda g, k, n, result: g / nbdtr_slope(k, n, result)), instead=0.5)
pointwise("nbdtrik", "Tensor y, Tensor n, Tensor p", (
    lambda g, n, p, result: g * of_count(result, -1 / betainc_slope(result + 1, n, 1 - p, p)),
    lambda g, n, p, result: g * of_count(
        result, beta_slope(n, result + 1, p, 1 - p) / beta_slope(result + 1, n, 1 - p, p)),
    lambda g, n, p, result: g * of_count(result, -1 / beta_slope(result + 1, n, 1 - p, p))), instead=0.5)
pointwise("nbdtrin", "Tensor k, Tensor y, Tensor p", (
    lambda g, k, p, result: g * (beta_slope(k + 1, result, 1 - p, p) / beta_slope(result, k + 1, p, 1 - p)),
    lambda g, k, p, result: g / betainc_slope(result, k + 1, p, 1 - p),
    lambda g, k, p, result: g / beta_slope(result, k + 1, p, 1 - p)), instead=0.5)

# --- F and t distributions -------------------------------------------------------------------------------------------


def fdtr_density(n: Any, d: Any, x: Any) -> Any:
    """Return the slope in x of the distribution function, which is betainc(n / 2, d / 2, n x / (d + n x))."""
    whole = d + n * x
    return beta_density(n / 2, d / 2, n * x / whole, d / whole) * (d / whole) * (n / whole)


def fdtr_slope_in_n(n: Any, d: Any, x: Any) -> Any:
    """Return the slope of the F distribution function in n."""
    whole = d + n * x
    return betainc_slope(n / 2, d / 2, n * x / whole, d / whole) / 2 + fdtr_density(n, d, x) * x / n


def fdtr_slope_in_d(n: Any, d: Any, x: Any) -> Any:
    """Return the slope of the F distribution function in d."""
    whole = d + n * x
    return betainc_slope(d / 2, n / 2, d / whole, n * x / whole) / -2 - fdtr_density(n, d, x) * x / d


def stdtr_density(df: Any, t: Any) -> Any:
    """Return the slope in t of the distribution function: for t < 0 betainc(df / 2, 1 / 2, df / (df + t**2)) / 2."""
    return exp(log1p(t * t / df) * ((df + 1) / -2) - betaln(df / 2, 0.5)) / sqrt(df)


def stdtr_slope(df: Any, t: Any) -> Any:
    """Return the slope of the t distribution function in df."""
    square = t * t
    far = square != 0
    square = where(far, square, 1.0)
    x, y = df / (df + square), square / (df + square)
    of_x = beta_density(df / 2, 0.5, x, y)
    of_a = -of_x * beta_slope(df / 2, 0.5, x, y)
    return where(far, -sign(t) * (of_a / 2 + of_x * x * y / df) / 2, 0.0)


def of_degrees(result: Any, most: float, slope: Callable[[Any], Any]) -> Any:
    """Return the slope of degrees of freedom, or 0 where SciPy has found none and returns an end of its search."""
    inside = (result > 0) & (result < most)
    return where(inside, slope(where(inside, result, 1.0)), 0.0)


pointwise("fdtr", "Tensor dfn, Tensor dfd, Tensor x", (
    lambda g, dfn, dfd, x: g * fdtr_slope_in_n(dfn, dfd, x), lambda g, dfn, dfd, x: g * fdtr_slope_in_d(dfn, dfd, x),
    lambda g, dfn, dfd, x: g * fdtr_density(dfn, dfd, x)))
pointwise("fdtrc", "Tensor dfn, Tensor dfd, Tensor x", (
    lambda g, dfn, dfd, x: -g * fdtr_slope_in_n(dfn, dfd, x), lambda g, dfn, dfd, x: -g * fdtr_slope_in_d(dfn, dfd, x),
    lambda g, dfn, dfd, x: -g * fdtr_density(dfn, dfd, x)))
pointwise("fdtri", "Tensor dfn, Tensor dfd, Tensor p", (
    lambda g, dfn, dfd, result: -g * (fdtr_slope_in_n(dfn, dfd, result) / fdtr_density(dfn, dfd, result)),
    lambda g, dfn, dfd, result: -g * (fdtr_slope_in_d(dfn, dfd, result) / fdtr_density(dfn, dfd, result)),
    lambda g, dfn, dfd, result: g / fdtr_density(dfn, dfd, result)), instead=0.5)
pointwise("fdtridfd", "Tensor dfn, Tensor p, Tensor x", (
    lambda g, dfn, x, result: -g * of_degrees(
        result, 1e100, lambda d: fdtr_slope_in_n(dfn, d, x) / fdtr_slope_in_d(dfn, d, x)),
    lambda g, dfn, x, result: g * of_degrees(result, 1e100, lambda d: 1 / fdtr_slope_in_d(dfn, d, x)),
    lambda g, dfn, x, result: -g * of_degrees(
        result, 1e100, lambda d: fdtr_density(dfn, d, x) / fdtr_slope_in_d(dfn, d, x))), instead=0.5)
pointwise("stdtr", "Tensor df, Tensor t", (
    lambda g, df, t: g * stdtr_slope(df, t), lambda g, df, t: g * stdtr_density(df, t)))
pointwise("stdtrit", "Tensor df, Tensor p", (
    lambda g, df, result: -g * (stdtr_slope(df, result) / stdtr_density(df, result)),
    lambda g, df, result: g / stdtr_density(df, result)), instead=0.5)
pointwise("stdtridf", "Tensor p, Tensor t", (
    lambda g, t, result: g * of_degrees(result, 1e10, lambda df: 1 / stdtr_slope(df, t)),
    lambda g, t, result: -g * of_degrees(
        result, 1e10, lambda df: stdtr_density(df, t) / stdtr_slope(df, t))), instead=0.5)

# --- noncentral chi-square distribution ------------------------------------------------------------------------------


def chndtr_density(x: Any, df: Any, nc: Any) -> Any:
    """Return the noncentral density, which is the central one times a hypergeometric function.

    Where that function overflows, use a Bessel function instead (DLMF 10.39.9).
    """
    product = nc * x
    large = product > df ** 4 * 1e-6 + 1e5      # except for so many degrees that the Bessel function underflows
    near = gamma_density(df / 2, x / 2) / 2 * exp(nc * -0.5) * hyp0f1(df / 2, where(large, 0.0, product / 4))
    x, nc = where(large, x, 1.0), where(large, nc, 1.0)
    distance = sqrt(x) - sqrt(nc)
    far = exp(distance * distance * -0.5) / 2 * (x / nc) ** (df / 4 - 0.5) * ive(df / 2 - 1, sqrt(x * nc))
    return where(large, far, near)


def chndtr_slope(x: Any, df: Any, nc: Any, value: Any) -> Any:
    """Return the slope in nc, which is the mean of twice a random number. Twice that number is added to df."""
    return (chndtr(x, df + 2, nc) - value) / 2


pointwise("chndtr", "Tensor x, Tensor df, Tensor nc", (
    lambda g, x, df, nc: g * chndtr_density(x, df, nc), PARAMETER,
    lambda g, x, df, nc, result: g * chndtr_slope(x, df, nc, result)))
pointwise("chndtrix", "Tensor p, Tensor df, Tensor nc", (
    lambda g, df, nc, result: g / chndtr_density(result, df, nc), PARAMETER,
    lambda g, p, df, nc, result: -g * chndtr_slope(result, df, nc, p) / chndtr_density(result, df, nc)), instead=0.5)
pointwise("chndtrinc", "Tensor x, Tensor df, Tensor p", (
    lambda g, x, df, p, result: -g * chndtr_density(x, df, result) / chndtr_slope(x, df, result, p), PARAMETER,
    lambda g, x, df, p, result: g / chndtr_slope(x, df, result, p)), instead=0.5)

# --- distributions of Kolmogorov and Smirnov -------------------------------------------------------------------------


def kolmogorov_slope_by_series(y: Any) -> Any:
    """Return the slope by one of the two series of 1 - kolmogorov(y), a theta function (20.2.4, 20.7.32)."""
    near, inside = y < 0.85, y > 0.04
    small, large = where(near & inside, y, 0.5), where(near, 1.0, y)
    right = left = 0.0
    for k in range(1, 6):
        right = right + (-1) ** k * 8 * k * k * large * exp(large * large * (-2.0 * k * k))
        rate = (2 * k - 1) ** 2 * math.pi ** 2 / 8
        square = small * small
        left = left + (1 - 2 * rate / square) / square * exp(-rate / square)
    return where(inside, where(near, left * math.sqrt(2 * math.pi), right), 0.0)


def smirnov_slope_by_sum(n: Any, d: Any, order: int = 1) -> Any:
    """Return the derivative in d of the sum of binom(n, v) d (d + v / n)**(v - 1) (1 - d - v / n)**(n - v)."""
    arrays = np.broadcast_arrays(np.asarray(n, float), d)
    result = np.empty(arrays[0].shape)
    for index in np.ndindex(result.shape):
        size, x = (array[index] for array in arrays)
        result[index] = x * smirnov_terms(size, x, order) + order * smirnov_terms(size, x, order - 1)
    return np.where((arrays[1] <= 0) | (arrays[1] >= 1), 0.0, result)


def smirnov_terms(n: Any, d: Any, order: int) -> Any:
    """Return the derivative of the sum without its factor d."""
    v = np.arange(math.floor(n * (1 - d)) + 1.0)
    low, high = d + v / n, 1 - d - v / n
    inside = high > 0
    v, low, high = v[inside], low[inside], high[inside]
    logs = special.gammaln(n + 1) - special.gammaln(v + 1) - special.gammaln(n - v + 1)
    total = 0.0
    for j in range(order + 1):
        first = np.prod([v - 1 - i for i in range(j)], 0) if j else 1.0
        second = np.prod([i - n + v for i in range(order - j)], 0) if order > j else 1.0
        total = total + math.comb(order, j) * np.sum(first * second * np.exp(
            logs + (v - 1 - j) * np.log(low) + (n - v - order + j) * np.log(high)))
    return total


helper("kolmogorov_slope", "Tensor y", in_double(kolmogorov_slope_by_series),
       differentiated_as=kolmogorov_slope_by_series)
helper("smirnov_slope", "Tensor n, Tensor d, int order=1", in_double(smirnov_slope_by_sum),
       vjp=(None, lambda g, n, d, order: g * smirnov_slope(n, d, order + 1)))
pointwise("kolmogorov", "Tensor y", lambda g, y: g * kolmogorov_slope(y))
pointwise("kolmogi", "Tensor p", lambda g, result: g / kolmogorov_slope(result), instead=0.5)
pointwise("smirnov", "Tensor n, Tensor d", (COUNT, lambda g, n, d: g * smirnov_slope(n, d, 1)), instead=0.5)
pointwise("smirnovi", "Tensor n, Tensor p", (COUNT, lambda g, n, result: g / smirnov_slope(n, result, 1)), instead=0.5)
