"""Polynomials by their coefficients, those of the highest powers first.

NumPy drops leading coefficients that are 0, so shapes depend on values. Where these are unknown, in traces and on Meta,
the functions raise. An option keeps the zeros.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pydispatch._core import MetaArray
from pydispatch._loading import deferred
from pydispatch._sites import caller_site
from pydispatch.exceptions import DataDependentError
from pydispatch.func.concrete import concrete_value
from pydispatch.numpy.calculus import convolve
from pydispatch.numpy.declare import array_function, as_nonscalar, as_zero_d, known_values
from pydispatch.numpy.diagonals import vander
from pydispatch.ops import ops

inv, lstsq, real_where_known = [
    deferred("numpy.linalg", name) for name in ("inv", "lstsq", "real_where_known")]


def coefficients(p: Any) -> Any:
    """Return the coefficients as a vector."""
    p = as_nonscalar(p)
    return p if p.ndim else ops.np.reshape(p, (1,))


def padded(p: Any, n: int) -> Any:
    """Return `n` coefficients, with zeros before the given ones."""
    missing = n - p.shape[0]
    return p if missing <= 0 else ops.np.concatenate([ops.np.zeros_like(p, shape=(missing,)), p])


def without_leading_zeros(p: Any, remedy: str) -> Any:
    """Return the coefficients from the first one that is not 0, or a single 0 if all are."""
    n = leading_zeros(p, remedy)
    return p if n == 0 else ops.np.getitem(p, slice(min(n, p.shape[0] - 1), None))


def leading_zeros(p: Any, remedy: str, tolerance: float = 0.0) -> int:
    """Count the leading coefficients that are 0, in all examples of a batch. The count is 0 for a lazy array.

    Raises DataDependentError if the count is unknown, or differs between examples. `remedy` is for the message.
    """
    try:
        known = concrete_value(p, batches=True)
    except DataDependentError as error:
        raise _unknown_zeros("is unknown in a trace and without data", remedy) from error
    if isinstance(known, MetaArray):
        raise _unknown_zeros("is unknown without data", remedy)
    if not isinstance(known, (np.ndarray, np.generic)):
        return 0
    rows = ~(np.abs(np.asarray(known).reshape(-1, p.shape[0])) <= tolerance)
    counts = np.where(rows.any(1), rows.argmax(1), p.shape[0])
    if len(set(counts)) > 1:
        raise _unknown_zeros("differs between the examples of a batch", remedy)
    return int(counts[0]) if len(counts) else 0


def _unknown_zeros(why: str, remedy: str) -> DataDependentError:
    return DataDependentError(
        f"NumPy drops leading coefficients that are 0, and their number {why} (at {caller_site()})\n{remedy}")


@array_function()
def polyval(p: Any, x: Any) -> Any:
    """Evaluate a polynomial by Horner's scheme."""
    p, x = as_nonscalar(p), as_nonscalar(x)
    if not p.ndim:
        raise TypeError("iteration over a 0-d array")
    y = ops.np.zeros_like(x)
    for i in range(p.shape[0]):
        y = ops.np.add(ops.np.multiply(y, x), ops.np.getitem(p, i))
    return y


@array_function()
def polyadd(a1: Any, a2: Any) -> Any:
    """Add two polynomials."""
    a1, a2 = coefficients(a1), coefficients(a2)
    n = max(a1.shape[0], a2.shape[0])
    return ops.np.add(padded(a1, n), padded(a2, n))


@array_function()
def polysub(a1: Any, a2: Any) -> Any:
    """Subtract two polynomials."""
    a1, a2 = coefficients(a1), coefficients(a2)
    n = max(a1.shape[0], a2.shape[0])
    return ops.np.subtract(padded(a1, n), padded(a2, n))


@array_function()
def polymul(a1: Any, a2: Any) -> Any:
    """Multiply two polynomials."""
    remedy = "use np.convolve(a1, a2), the product with these zeros"
    return convolve(without_leading_zeros(coefficients(a1), remedy), without_leading_zeros(coefficients(a2), remedy))


@array_function()
def polydiv(u: Any, v: Any, *, trim_leading_zeros_from_remainder: bool = True) -> Any:
    """Return the quotient of two polynomials, and the remainder, without leading coefficients that are 0."""
    u, v = [ops.np.add(coefficients(p), 0.0) for p in (u, v)]
    m, n = u.shape[0] - 1, v.shape[0] - 1
    dtype = np.result_type(u.dtype, v.dtype)
    scale = ops.np.divide(1.0, ops.np.getitem(v, 0))
    rest, quotient, done = ops.np.astype(u, dtype), [], []
    for _ in range(m - n + 1):
        factor = ops.np.multiply(scale, ops.np.getitem(rest, 0))
        quotient.append(factor)
        head = ops.np.subtract(ops.np.getitem(rest, slice(n + 1)), ops.np.multiply(factor, v))
        done.append(ops.np.getitem(head, slice(1)))         # 0 except for rounding
        rest = ops.np.concatenate([ops.np.getitem(head, slice(1, None)), ops.np.getitem(rest, slice(n + 1, None))])
    if not quotient:
        first, whole = ops.np.zeros_like(rest, shape=(1,)), rest
    else:
        first, whole = ops.np.stack(quotient), ops.np.concatenate([*done, rest])
    if not trim_leading_zeros_from_remainder:
        return first, rest if rest.shape[0] else done[-1]
    zeros = leading_zeros(
        whole, "use np.polydiv(u, v, trim_leading_zeros_from_remainder=False) to keep those of the remainder", ATOL)
    return first, ops.np.getitem(whole, slice(min(zeros, whole.shape[0] - 1), None))


ATOL = 1e-8
"""The greatest coefficient of a remainder that NumPy drops."""


@array_function()
def polyder(p: Any, m: int = 1) -> Any:
    """Compute the m-th derivative of a polynomial."""
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    p = as_nonscalar(p)
    for _ in range(min(int(m), max(p.shape[0], 1))):        # after that, no coefficients are left
        p = ops.np.multiply(ops.np.getitem(p, slice(-1)), np.arange(p.shape[0] - 1, 0, -1))
    return p


@array_function()
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Compute the m-th antiderivative of a polynomial, with the constants `k`."""
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    p = as_zero_d(as_nonscalar(p))
    constants = coefficients(np.zeros(m) if k is None else k)
    if constants.shape[0] == 1 and m > 1:
        constants = ops.np.multiply(ops.np.getitem(constants, 0), np.ones(m))
    if constants.shape[0] < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(int(m)):
        p = ops.np.divide(p, np.arange(p.shape[0], 0, -1))
        p = ops.np.concatenate([p, ops.np.getitem(constants, slice(i, i + 1))])
    return p


@array_function()
def poly(seq_of_zeros: Any) -> Any:
    """Return the polynomial with these zeros, or with the eigenvalues of a matrix as zeros."""
    zeros = coefficients(seq_of_zeros)
    is_real_matrix = zeros.ndim == 2 and zeros.dtype.kind != "c"
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] != 0:
        zeros = real_where_known(zeros)
    elif zeros.ndim == 1:
        zeros = ops.np.astype(zeros, np.dtype(np.mintypecode(zeros.dtype.char)))
    else:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if not zeros.shape[0]:
        return 1.0
    one = ops.np.ones_like(zeros, shape=(1,))
    result = one
    for i in range(zeros.shape[0]):
        factor = ops.np.concatenate([one, ops.np.negative(ops.np.getitem(zeros, slice(i, i + 1)))])
        result = ops.np.convolve(result, factor)
    if is_real_matrix:      # its eigenvalues are real, or conjugate pairs
        return ops.np.real(result)
    known = known_values(zeros)
    if zeros.dtype.kind == "c" and known is not None and (np.sort(known) == np.sort(known.conjugate())).all():
        return ops.np.real(result)
    return result


@array_function()
def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """Return the zeros of a polynomial: the eigenvalues of its companion matrix.

    Without `strip_zeros` the first coefficient must not be 0, which is not checked.
    """
    p = coefficients(p)
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    known, at_zero = known_values(p), 0
    if known is not None:
        places = np.flatnonzero(known)
        if not places.size:
            return ops.np.zeros_like(p, shape=(0,), dtype=np.dtype(float))
        at_zero = int(p.shape[0] - places[-1] - 1)
        p = ops.np.getitem(p, slice(int(places[0]), int(places[-1]) + 1))
    elif strip_zeros:
        zeros = leading_zeros(p, "use np.roots(p, strip_zeros=False) if the first coefficient is not 0")
        p = ops.np.getitem(p, slice(zeros, None))
    if p.dtype.kind not in "fc":
        p = ops.np.astype(p, np.dtype(float))
    n = p.shape[0]
    if n > 1:
        first = ops.np.divide(ops.np.negative(ops.np.getitem(p, slice(1, None))), ops.np.getitem(p, 0))
        below = np.eye(n - 2, n - 1, dtype=p.dtype)
        found = first if n == 2 else real_where_known(ops.np.concatenate([ops.np.reshape(first, (1, -1)), below]))
    else:
        found = ops.np.zeros_like(p, shape=(0,), dtype=np.dtype(float))
    if not at_zero:
        return found
    return ops.np.concatenate([found, ops.np.zeros_like(found, shape=(at_zero,))])


def rank_of(matrix: np.ndarray, inverse: np.ndarray) -> int:
    """Return the rank of a matrix with this pseudo-inverse.

    Their product is a projection, whose trace is the rank.
    """
    return round(float(np.dot(inverse.T.ravel(), matrix.ravel()).real))


@array_function()
def polyfit(x: Any, y: Any, deg: Any, rcond: float | None = None, full: bool = False, w: Any = None,
            cov: Any = False) -> Any:
    """Fit a polynomial of a degree to points by least squares."""
    order = int(deg) + 1
    x, y = ops.np.add(as_nonscalar(x), 0.0), ops.np.add(as_nonscalar(y), 0.0)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not x.shape[0]:
        raise TypeError("expected non-empty vector for x")
    if y.ndim < 1 or y.ndim > 2:
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")
    rcond = x.shape[0] * np.finfo(x.dtype).eps if rcond is None else rcond
    powers, values = vander(x, order), y
    if w is not None:
        w = ops.np.add(as_nonscalar(w), 0.0)
        if w.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length")
        column = ops.np.expand_dims(w, 1)
        powers = ops.np.multiply(powers, column)
        values = ops.np.multiply(values, column if y.ndim == 2 else w)
    scale = ops.np.sqrt(ops.np.sum(ops.np.multiply(powers, powers), 0))
    powers = ops.np.divide(powers, scale)
    scale_of_result = ops.np.expand_dims(scale, 1) if y.ndim == 2 else scale
    if full:
        found, residuals, rank, singular = lstsq(powers, values, rcond)
        return ops.np.divide(found, scale_of_result), residuals, rank, singular, rcond
    inverse = ops.np.linalg_pinv(powers, float(rcond))
    solution = ops.np.matmul(inverse, values)
    found = ops.np.divide(solution, scale_of_result)
    known, known_inverse = known_values(powers), known_values(inverse)
    rank = None if known is None or known_inverse is None else rank_of(known, known_inverse)
    if rank is not None and rank != order:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=2)
    if not cov:
        return found
    base = inv(ops.np.matmul(ops.np.transpose(powers), powers))
    base = ops.np.divide(base, ops.np.multiply(ops.np.expand_dims(scale, 1), scale))
    if y.ndim == 2:
        base = ops.np.expand_dims(base, 2)
    return found, base if cov == "unscaled" else ops.np.multiply(base, variance_of_fit(powers, values, solution, rank))


def variance_of_fit(powers: Any, values: Any, solution: Any, rank: int | None) -> Any:
    """Return the mean square of the residuals, for each column of values.

    For one vector it is an array of one element.
    """
    n, order = powers.shape
    if n <= order:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    if rank is not None and rank != order:
        raise ValueError("the covariance matrix cannot be scaled, since the points do not determine the polynomial")
    apart = ops.np.subtract(values, ops.np.matmul(powers, solution))
    residuals = ops.np.sum(ops.np.square(apart), 0, keepdims=values.ndim == 1)
    return ops.np.divide(residuals, n - order)
