"""Universal functions that SciPy keeps private and calls for its distributions. Their values are SciPy's."""

# tests: tests/scipy/test_distributions.py
from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from scipy.special import _ufuncs

from pydispatch.operators.declare import LIBRARY
from pydispatch.scipy.pack import SCIPY

cos, exp, floor, maximum, sin, sqrt, tan = LIBRARY.operators("cos", "exp", "floor", "maximum", "sin", "sqrt", "tan")
betainc, betaincc, betaincinv, betaln, chndtr, gammaln, ndtr, owens_t, xlog1py, xlogy = SCIPY.operators(
    "special_betainc", "special_betaincc", "special_betaincinv", "special_betaln", "special_chndtr",
    "special_gammaln", "special_ndtr", "special_owens_t", "special_xlog1py", "special_xlogy")


def private(name: str, arguments: str, same: Callable[..., Any] | None = None, **parts: Any) -> None:
    """Declare a universal function. `same` computes the same by operators, and has its derivatives."""
    kernel = getattr(_ufuncs, name, None)
    if kernel is None:
        return
    tensors = ", ".join([f"Tensor {argument}" for argument in arguments.split()])
    if same is not None:
        parts["differentiated_as"] = same
    SCIPY.pointwise(f"special_{name}", kernel, tensors, **parts)
    globals()[name], = SCIPY.operators(f"special_{name}")
    __all__.append(name)


__all__: list[str] = []


def others(k: Any, n: Any) -> Any:
    """Return the number of other outcomes, at least one."""
    return maximum(floor(n) - floor(k), 1.0)


def chosen_ways(n: Any, k: Any) -> Any:
    """Return the logarithm of the number of ways to choose k of n."""
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


private("_beta_pdf", "x a b", lambda x, a, b: exp(xlog1py(b - 1.0, -x) + xlogy(a - 1.0, x) - betaln(a, b)))
private("_beta_ppf", "q a b", lambda q, a, b: betaincinv(a, b, q))
private("_binom_pmf", "k n p", lambda k, n, p: exp(chosen_ways(n, k) + xlogy(k, p) + xlog1py(n - k, -p)))
private("_binom_cdf", "k n p", lambda k, n, p: betaincc(floor(k) + 1.0, others(k, n), p))
private("_binom_sf", "k n p", lambda k, n, p: betainc(floor(k) + 1.0, others(k, n), p))
private("_nbinom_pmf", "k n p", lambda k, n, p: exp(
    gammaln(n + k) - gammaln(k + 1.0) - gammaln(n) + xlogy(n, p) + xlog1py(k, -p)))
private("_nbinom_cdf", "k n p", lambda k, n, p: betainc(n, floor(k) + 1.0, p))
private("_nbinom_sf", "k n p", lambda k, n, p: betaincc(n, floor(k) + 1.0, p))
private("_nbinom_mean", "n p", lambda n, p: n * (1.0 - p) / p)
private("_nbinom_variance", "n p", lambda n, p: n * (1.0 - p) / (p * p))
private("_nbinom_skewness", "n p", lambda n, p: (2.0 - p) / sqrt(n * (1.0 - p)))
private("_nbinom_kurtosis_excess", "n p", lambda n, p: 6.0 / n + p * p / (n * (1.0 - p)))
private("_scaled_exp1", "x", vjp=lambda g, x, result: g * (result + result / x - 1.0))
private("_cauchy_ppf", "q loc scale", lambda q, loc, scale: loc + scale * tan(pi * (q - 0.5)))
private("_cauchy_isf", "q loc scale", lambda q, loc, scale: loc - scale * tan(pi * (q - 0.5)))
private("_cosine_cdf", "x", lambda x: (pi + x + sin(x)) / (2 * pi))
private("_cosine_invcdf", "q", vjp=lambda g, result: g * (2 * pi) / (1.0 + cos(result)))
private("_skewnorm_cdf", "x loc scale a",
        lambda x, loc, scale, a: ndtr((x - loc) / scale) - 2.0 * owens_t((x - loc) / scale, a))
private("_ncx2_sf", "x df nc", lambda x, df, nc: 1.0 - chndtr(x, df, nc))
private("_hypergeom_pmf", "k r n N", differentiable=False)
private("_hypergeom_cdf", "k r n N", differentiable=False)
private("_hypergeom_sf", "k r n N", differentiable=False)
