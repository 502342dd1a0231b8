"""Distributions whose formulas are written here, with gradients of all orders at every point of the domain."""

# tests: tests/scipy/test_stats.py
from __future__ import annotations

from collections.abc import Callable
from math import inf, log, pi
from typing import Any

from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.stats.distributions import (
    DiscreteDistribution,
    Distribution,
    Parameter,
    chosen,
    count,
    declare,
    mask_of,
    not_negative,
    probability,
)

add, divide, exp, expm1, floor, log1p, multiply, negative, square, subtract, where = LIBRARY.operators(
    "add", "divide", "exp", "expm1", "floor", "log1p", "multiply", "negative", "square", "subtract", "where")
betainc, betaincc, betainccinv, betaincinv, betaln = SCIPY.operators(
    "special_betainc", "special_betaincc", "special_betainccinv", "special_betaincinv", "special_betaln")
gammainc, gammaincc, gammainccinv, gammaincinv, gammaln = SCIPY.operators(
    "special_gammainc", "special_gammaincc", "special_gammainccinv", "special_gammaincinv", "special_gammaln")
log_ndtr, ndtr, ndtri, poch, stdtr, stdtrit, xlog1py, xlogy = SCIPY.operators(
    "special_log_ndtr", "special_ndtr", "special_ndtri", "special_poch", "special_stdtr", "special_stdtrit",
    "special_xlog1py", "special_xlogy")
LOG_2, LOG_PI, LOG_2_PI = log(2), log(pi), log(2 * pi)

# --- continuous distributions ----------------------------------------------------------------------------------------


norm = declare(
    Distribution("norm", (), -inf, inf, 0.0, "The normal distribution."),
    lambda x: subtract(multiply(square(x), -0.5), LOG_2_PI / 2),
    cdf=ndtr, sf=lambda x: ndtr(negative(x)), ppf=ndtri, isf=lambda q: negative(ndtri(q)),
    logcdf=log_ndtr, logsf=lambda x: log_ndtr(negative(x)))


def t_log_density(x: Any, df: Any) -> Any:
    """Return the log density, which is that of the normal distribution for an infinite `df`."""
    finite = mask_of(lambda of, df: of.isfinite(df), df)
    df = chosen(finite, df, 1.0)
    half = multiply(df, 0.5)
    factor = subtract(ops.np.log(poch(half, 0.5)), multiply(add(ops.np.log(df), LOG_PI), 0.5))
    found = subtract(factor, multiply(add(half, 0.5), log1p(divide(square(x), df))))
    return found if finite is None else where(finite, found, subtract(multiply(square(x), -0.5), LOG_2_PI / 2))


t = declare(
    Distribution("t", (Parameter("df"),), -inf, inf, 0.0, "Student's t distribution."), t_log_density,
    cdf=lambda x, df: stdtr(df, x), sf=lambda x, df: stdtr(df, negative(x)), ppf=lambda q, df: stdtrit(df, q),
    isf=lambda q, df: negative(stdtrit(df, q)))
gamma = declare(
    Distribution("gamma", (Parameter("a"),), 0, inf, 1.0, "The gamma distribution."),
    lambda x, a: subtract(subtract(xlogy(subtract(a, 1.0), x), x), gammaln(a)),
    cdf=lambda x, a: gammainc(a, x), sf=lambda x, a: gammaincc(a, x), ppf=lambda q, a: gammaincinv(a, q),
    isf=lambda q, a: gammainccinv(a, q))


def chi2_log_density(x: Any, df: Any) -> Any:
    half = multiply(df, 0.5)
    return subtract(subtract(xlogy(subtract(half, 1.0), x), multiply(x, 0.5)),
                    add(gammaln(half), multiply(half, LOG_2)))


chi2 = declare(
    Distribution("chi2", (Parameter("df"),), 0, inf, 1.0, "The chi-squared distribution."), chi2_log_density,
    cdf=lambda x, df: gammainc(multiply(df, 0.5), multiply(x, 0.5)),
    sf=lambda x, df: gammaincc(multiply(df, 0.5), multiply(x, 0.5)),
    ppf=lambda q, df: multiply(gammaincinv(multiply(df, 0.5), q), 2.0),
    isf=lambda q, df: multiply(gammainccinv(multiply(df, 0.5), q), 2.0))
beta = declare(
    Distribution("beta", (Parameter("a"), Parameter("b")), 0, 1, 0.5, "The beta distribution."),
    lambda x, a, b: subtract(add(xlog1py(subtract(b, 1.0), negative(x)), xlogy(subtract(a, 1.0), x)), betaln(a, b)),
    cdf=lambda x, a, b: betainc(a, b, x), sf=lambda x, a, b: betaincc(a, b, x),
    ppf=lambda q, a, b: betaincinv(a, b, q), isf=lambda q, a, b: betainccinv(a, b, q))
expon = declare(
    Distribution("expon", (), 0, inf, 1.0, "The exponential distribution."), negative,
    cdf=lambda x: negative(expm1(negative(x))), sf=lambda x: exp(negative(x)),
    ppf=lambda q: negative(log1p(negative(q))), isf=lambda q: negative(ops.np.log(q)), logsf=negative)
uniform = declare(
    Distribution("uniform", (), 0, 1, 0.5, "The uniform distribution."), lambda x: ops.np.zeros_like(x),
    cdf=lambda x: multiply(x, 1.0), sf=lambda x: subtract(1.0, x), ppf=lambda q: multiply(q, 1.0),
    isf=lambda q: subtract(1.0, q))


def laplace_cdf(x: Any) -> Any:
    """Return the distribution function. It uses exponentials of negative numbers only, which do not overflow."""
    above = ops.np.greater(x, 0)
    half = multiply(exp(where(above, negative(x), x)), 0.5)
    return where(above, subtract(1.0, half), half)


def laplace_logcdf(x: Any) -> Any:
    above = ops.np.greater(x, 0)
    falling = where(above, negative(x), x)
    return where(above, log1p(multiply(exp(falling), -0.5)), subtract(falling, LOG_2))


def laplace_ppf(q: Any) -> Any:
    above = ops.np.greater(q, 0.5)
    found = ops.np.log(multiply(where(above, subtract(1.0, q), q), 2.0))
    return where(above, negative(found), found)


laplace = declare(
    Distribution("laplace", (), -inf, inf, 0.0, "The Laplace distribution."),
    lambda x: subtract(negative(ops.np.absolute(x)), LOG_2),
    cdf=laplace_cdf, sf=lambda x: laplace_cdf(negative(x)), ppf=laplace_ppf, isf=lambda q: negative(laplace_ppf(q)),
    logcdf=laplace_logcdf, logsf=lambda x: laplace_logcdf(negative(x)))


# --- discrete distributions ------------------------------------------------------------------------------------------


def poisson_log_density(k: Any, mu: Any) -> Any:
    k = floor(k)
    return subtract(subtract(xlogy(k, mu), gammaln(add(k, 1.0))), mu)


poisson = declare(
    DiscreteDistribution("poisson", (Parameter("mu", not_negative),), 0, inf, 0.0, "The Poisson distribution."),
    poisson_log_density, cdf=lambda k, mu: gammaincc(add(floor(k), 1.0), mu),
    sf=lambda k, mu: gammainc(add(floor(k), 1.0), mu))


def binom_log_density(k: Any, n: Any, p: Any) -> Any:
    k, n = floor(k), floor(n)
    others = subtract(n, k)
    ways = subtract(gammaln(add(n, 1.0)), add(gammaln(add(k, 1.0)), gammaln(add(others, 1.0))))
    return add(ways, add(xlogy(k, p), xlog1py(others, negative(p))))


def binom_probability(function: Any) -> Callable[..., Any]:
    """Return a distribution function by one of the beta distribution, which is not called for k = n."""
    def formula(k: Any, n: Any, p: Any) -> Any:
        k = floor(k)
        return function(add(k, 1.0), ops.np.maximum(subtract(floor(n), k), 1.0), p)
    return formula


binom = declare(
    DiscreteDistribution("binom", (Parameter("n", count), Parameter("p", probability, 0.5)), 0, "n", 0.0,
                         "The binomial distribution."),
    binom_log_density, cdf=binom_probability(betaincc), sf=binom_probability(betainc))
