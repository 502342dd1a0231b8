"""Distributions of vectors."""

# tests: tests/scipy/test_stats.py
from __future__ import annotations

from math import inf, log, nan, pi
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.scipy.checks import value_check
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.stats.distributions import REFUSED, Methods, add_method, add_refusals, mask_of

add, exp, multiply, square, subtract, where = LIBRARY.operators("add", "exp", "multiply", "square", "subtract", "where")
cholesky, gammaln, xlogy = SCIPY.operators("linalg_cholesky", "special_gammaln", "special_xlogy")
LOG_2_PI = log(2 * pi)

def normal_parameters(mean: Any, cov: Any) -> tuple[int, Any, Any]:
    """Return the number of dimensions, mean and covariance. In simple cases these are given as numbers or vectors."""
    mean = None if mean is None else as_nonscalar(mean)
    cov = as_nonscalar(1.0 if cov is None else cov)
    dim = mean.size if mean is not None else cov.shape[0] if cov.ndim > 1 else 1
    mean = np.zeros(dim) if mean is None else ops.np.reshape(mean, (dim,))
    if cov.ndim == 0 or (cov.ndim == 1 and cov.shape[0] == dim):
        cov = multiply(cov, np.eye(dim))
    if cov.ndim != 2 or cov.shape[0] != cov.shape[1]:
        raise ValueError("array 'cov' must be square if it is two dimensional, but "
                         f"cov.shape = {tuple(cov.shape)}, and mean has {dim} elements")
    if cov.shape[0] != dim:
        raise ValueError(f"mean has {dim} elements, cov is of shape {tuple(cov.shape)}")
    return dim, mean, cov


def check_definite(diagonal: Any, who: str) -> None:
    """Raise SciPy's error for a covariance that is singular within rounding, from the diagonal of its factor.

    SciPy compares eigenvalues. They are at least as far apart as the squares of these elements.
    """
    if diagonal.size and (diagonal.min(-1) ** 2 <= ROUNDED * diagonal.max(-1) ** 2).any():
        raise LinAlgError(f"{who}: the covariance must be symmetric positive definite\n"
                          "add a little to its diagonal, for example cov + 1e-9 * numpy.eye(n)")


definite = value_check("stats_definite", check_definite)
ROUNDED = 1e6 * np.finfo(float).eps
"""The quotient of eigenvalues below which SciPy takes the smaller one for 0."""


def normal_log_density(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Compute the log density by a triangular factor of the covariance, of which only the lower triangle is read."""
    dim, mean, cov = normal_parameters(mean, cov)
    x = as_nonscalar(x)
    if x.ndim == 0:
        x = ops.np.reshape(x, (1,))
    elif x.ndim == 1 and dim == 1:
        x = ops.np.reshape(x, (x.shape[0], 1))
    if x.shape[-1] != dim:
        raise ValueError(f"x has vectors of {x.shape[-1]} elements, mean has {dim}")
    x, mean, cov = [v if v.dtype == np.float64 else ops.np.astype(v, np.dtype(float)) for v in (x, mean, cov)]
    apart = subtract(x, mean)
    rows = ops.np.reshape(apart, (-1 if apart.size else 0, dim))
    found = (singular_log_density if allow_singular else definite_log_density)(rows, dim, cov)
    found = ops.np.reshape(found, tuple(apart.shape[:-1]))
    kept = tuple([n for n in found.shape if n != 1])
    return found if len(kept) == found.ndim else ops.np.reshape(found, kept)


def definite_log_density(rows: Any, dim: int, cov: Any) -> Any:
    """Compute the log density of deviations from the mean."""
    factor = cholesky(cov, lower=True)
    white = ops.np.linalg_solve(factor, ops.np.transpose(rows))
    return multiply(add(ops.np.sum(square(white), 0), add(log_determinant(factor, dim), dim * LOG_2_PI)), -0.5)


def log_determinant(factor: Any, dim: int) -> Any:
    """Compute the logarithm of the determinant of a covariance from its triangular factor."""
    diagonal = ops.np.getitem(ops.np.reshape(factor, (dim * dim,)), slice(None, None, dim + 1))
    return multiply(ops.np.sum(ops.np.log(definite(diagonal, "stats.multivariate_normal"))), 2.0)


def singular_log_density(rows: Any, dim: int, cov: Any) -> Any:
    """Compute the log density of deviations on the span of a covariance, whose rank is taken as constant.

    It is -inf elsewhere. As in SciPy, eigenvalues below a part of the largest are 0.
    """
    values, vectors = ops.np.linalg_eigh(ops.np.detach(cov))
    largest = ops.np.max(ops.np.absolute(values), 0, keepdims=True)
    kept = ops.np.greater(values, multiply(largest, ROUNDED))
    onto = ops.np.matmul(multiply(vectors, kept), ops.np.transpose(vectors))     # the projection onto the span
    others = subtract(np.eye(dim), onto)
    full = add(ops.np.matmul(ops.np.matmul(onto, cov), onto), multiply(others, largest))
    factor = cholesky(multiply(add(full, ops.np.transpose(full)), 0.5), lower=True)
    inside = ops.np.matmul(rows, onto)
    white = ops.np.linalg_solve(factor, ops.np.transpose(inside))
    rank = ops.np.astype(ops.np.sum(kept), np.dtype(float))
    left_out = multiply(subtract(float(dim), rank), ops.np.log(ops.np.sum(largest)))
    diagonal = ops.np.getitem(ops.np.reshape(factor, (dim * dim,)), slice(None, None, dim + 1))
    constant = add(subtract(multiply(ops.np.sum(ops.np.log(diagonal)), 2.0), left_out), multiply(rank, LOG_2_PI))
    found = multiply(add(ops.np.sum(square(white), 0), constant), -0.5)
    apart = ops.np.sqrt(ops.np.sum(square(ops.np.detach(subtract(rows, inside))), -1))
    return where(ops.np.less(apart, multiply(largest, 1e3 * ROUNDED)), found, -inf)


def normal_entropy(mean: Any = None, cov: Any = 1) -> Any:
    """Return the differential entropy."""
    dim, _, cov = normal_parameters(mean, cov)
    cov = cov if cov.dtype == np.float64 else ops.np.astype(cov, np.dtype(float))
    return multiply(add(log_determinant(cholesky(cov, lower=True), dim), dim * (LOG_2_PI + 1)), 0.5)


def normal_logpdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Return the logarithm of the density at vectors along the last axis."""
    return normal_log_density(x, mean, cov, allow_singular)


def normal_pdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Return the density at vectors along the last axis."""
    return exp(normal_log_density(x, mean, cov, allow_singular))


multivariate_normal = Methods("multivariate_normal", "The normal distribution of vectors.")
add_method(multivariate_normal, "logpdf", normal_logpdf)
add_method(multivariate_normal, "pdf", normal_pdf)
add_method(multivariate_normal, "entropy", normal_entropy)
add_refusals(multivariate_normal, {
    "rvs": REFUSED["rvs"], "fit": REFUSED["fit"],
    **dict.fromkeys(("cdf", "logcdf"), "the integral over a box uses random points, and has no derivative here")})


def dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    """Return the logarithm of the density at vectors along the first axis. Their last element may be left out."""
    x, alpha = as_nonscalar(x), as_nonscalar(alpha)
    if alpha.ndim != 1:
        raise ValueError(f"parameter vector 'a' must be one dimensional, but a.shape = {alpha.shape}")
    n = alpha.shape[0]
    if not x.ndim or x.shape[0] not in (n, n - 1):
        raise ValueError("vector 'x' must have either the same number of entries as, or one entry "
                         f"fewer than, parameter vector 'a', but alpha.shape = {tuple(alpha.shape)} and x.shape = "
                         f"{tuple(x.shape)}")
    alpha = all_positive(alpha, "stats.dirichlet")
    if x.shape[0] == n - 1:
        last = subtract(1.0, ops.np.sum(x, 0, keepdims=True))
        x = ops.np.concatenate((x, last), 0)
    x = ops.np.moveaxis(on_simplex(ops.np.moveaxis(x, 0, -1), "stats.dirichlet"), -1, 0)
    alphas = ops.np.reshape(alpha, (n, *(1,) * (x.ndim - 1)))
    inside = mask_of(lambda of, x, alphas: of.logical_or(of.not_equal(x, 0), of.greater_equal(alphas, 1)), x, alphas)
    if inside is not None:
        x = where(all_finite_there(inside, "stats.dirichlet"), x, 1.0)
    constant = subtract(gammaln(ops.np.sum(alpha)), ops.np.sum(gammaln(alpha)))
    return add(ops.np.sum(xlogy(subtract(alphas, 1.0), x), 0), constant)


def check_positive(alpha: Any, who: str) -> None:
    """Raise SciPy's error for parameters that are not positive."""
    if not (alpha > 0).all():
        raise ValueError(f"{who}: all parameters must be greater than 0")


def check_on_simplex(x: Any, who: str) -> None:
    """Raise SciPy's error for vectors along the last axis that are not probabilities."""
    if (x < 0).any():
        raise ValueError(f"{who}: each entry in 'x' must be greater than or equal to zero")
    if (x > 1).any():
        raise ValueError(f"{who}: each entry in 'x' must be smaller or equal one")
    if (abs(x.sum(-1) - 1) > 10e-10).any():
        raise ValueError(f"{who}: the input vector 'x' must lie within the normal simplex, but np.sum(x, 0) = "
                         f"{x.sum(-1)}")


def check_finite_there(inside: Any, who: str) -> None:
    """Raise SciPy's error where the density is infinite."""
    if not inside.all():
        raise ValueError(f"{who}: each entry in 'x' must be greater than zero if its alpha is less than one")


all_positive = value_check("stats_positive", check_positive)
on_simplex = value_check("stats_on_simplex", check_on_simplex)
all_finite_there = value_check("stats_finite_there", check_finite_there)


def dirichlet_pdf(x: Any, alpha: Any) -> Any:
    """Return the density at vectors along the first axis. Their last element may be left out."""
    return exp(dirichlet_logpdf(x, alpha))


dirichlet = Methods("dirichlet", "The Dirichlet distribution.")
add_method(dirichlet, "logpdf", dirichlet_logpdf)
add_method(dirichlet, "pdf", dirichlet_pdf)
add_refusals(dirichlet, {"rvs": REFUSED["rvs"]})


def multinomial_logpmf(x: Any, n: Any, p: Any) -> Any:
    """Return the logarithm of the probability of counts along the last axis.

    As in SciPy before 1.18, the last element of `p` is the complement of the others, and so has no gradient.
    """
    x, n, p = as_nonscalar(x), as_nonscalar(n), as_nonscalar(p)
    x, n, p = [value if value.dtype == np.float64 else ops.np.astype(value, np.dtype(float)) for value in (x, n, p)]
    others = ops.np.getitem(p, (..., slice(None, -1)))
    last, complement = ops.np.getitem(p, (..., slice(-1, None))), subtract(1.0, ops.np.sum(others, -1, keepdims=True))
    surplus = ops.np.detach(subtract(last, complement))
    complement = add(complement, where(ops.np.less_equal(ops.np.absolute(surplus), 1e-15), surplus, 0.0))
    p = ops.np.concatenate((others, complement), -1)
    inside = ops.np.logical_and(ops.np.greater_equal(p, 0), ops.np.less_equal(p, 1))
    allowed = ops.np.logical_and(ops.np.all(inside, -1), ops.np.greater_equal(n, 0))
    counts = ops.np.all(ops.np.logical_and(ops.np.greater_equal(x, 0), ops.np.equal(x, ops.np.floor(x))), -1)
    counts = ops.np.logical_and(counts, ops.np.equal(ops.np.sum(x, -1), n))
    x = where(ops.np.expand_dims(counts, -1), x, 1.0)
    terms = subtract(xlogy(x, where(inside, p, 1.0)), gammaln(add(x, 1.0)))
    found = add(gammaln(add(where(ops.np.greater_equal(n, 0), n, 0.0), 1.0)), ops.np.sum(terms, -1))
    return where(allowed, where(counts, found, -inf), nan)


def multinomial_pmf(x: Any, n: Any, p: Any) -> Any:
    """Return the probability of counts along the last axis."""
    return exp(multinomial_logpmf(x, n, p))


multinomial = Methods("multinomial", "The multinomial distribution.")
add_method(multinomial, "logpmf", multinomial_logpmf)
add_method(multinomial, "pmf", multinomial_pmf)
add_refusals(multinomial, {"rvs": REFUSED["rvs"], "entropy": "it is a sum over all counts: pass arrays",
                           "cov": "write n * (numpy.diag(p) - numpy.outer(p, p))"})
