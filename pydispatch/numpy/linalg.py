"""`numpy.linalg` for arrays and Tensors: inverses, solutions, determinants, decompositions and norms."""

from __future__ import annotations

import operator
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._loading import only_public
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy import diagonals, products
from pydispatch.numpy.declare import (
    ABSENT,
    FUNCTIONS,
    array_function,
    as_array,
    as_nonscalar,
    as_scalar,
    declare_operator,
    into,
    known_values,
    number_if_known,
)
from pydispatch.operators import decompositions  # noqa: F401  declares the operators
from pydispatch.operators.declare import HAS_NUMPY_2_5
from pydispatch.operators.layouts import laid_out_like
from pydispatch.ops import ops

LinAlgError = np.linalg.LinAlgError
ONE = np.eye(1)
EigResult, EighResult, QRResult, SlogdetResult, SVDResult = map(type, (
    np.linalg.eig(ONE), np.linalg.eigh(ONE), np.linalg.qr(ONE), np.linalg.slogdet(ONE), np.linalg.svd(ONE)))
"""NumPy's named tuples of results."""

declare_operator("linalg.inv", 1, 1)
declare_operator("linalg.det", 1, 1)
declare_operator("linalg.solve", 2, 2)
declare_operator("linalg.cholesky", 1, 1, ("upper",))
declare_operator("linalg.eigvalsh", 1, 2, ("UPLO",))


def as_matrices(a: Any) -> Any:
    """Return the argument as an array. Raise LinAlgError if it has fewer than two axes."""
    a = as_nonscalar(a)
    if a.ndim < 2:
        raise LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    return a


def as_squares(a: Any) -> Any:
    """Return the argument as an array of square matrices. Raise LinAlgError if they are not square."""
    a = as_matrices(a)
    if a.shape[-1] != a.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return a


# --- determinants and decompositions ---------------------------------------------------------------------------------


@array_function("linalg")
def slogdet(a: Any) -> Any:
    """Return the sign, and the logarithm of the absolute value, of the determinant."""
    return SlogdetResult(*ops.np.linalg_slogdet(as_nonscalar(a)))


@array_function("linalg")
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Compute the eigenvalues, ascending, and the eigenvectors of a Hermitian matrix."""
    return EighResult(*ops.np.linalg_eigh(as_nonscalar(a), UPLO))


@array_function("linalg")
def eig(a: Any) -> Any:
    """Compute eigenvalues and right eigenvectors.

    They are complex, or real where those of NumPy before 2.5 are.
    """
    a = as_nonscalar(a)
    values, vectors = ops.np.linalg_eig(a)
    if not HAS_NUMPY_2_5 and has_real_values(a, values):
        return EigResult(ops.np.real(values), ops.np.real(vectors))
    return EigResult(values, vectors)


@array_function("linalg")
def eigvals(a: Any) -> Any:
    """Compute eigenvalues. They are complex, or real where those of NumPy before 2.5 are."""
    a = as_nonscalar(a)
    return ops.np.linalg_eigvals(a) if HAS_NUMPY_2_5 else real_where_known(a)


def real_where_known(a: Any) -> Any:
    """Return the eigenvalues, as real numbers if all are known to be."""
    values = ops.np.linalg_eigvals(a)
    return ops.np.real(values) if has_real_values(a, values) else values


def has_real_values(a: Any, values: Any) -> bool:
    """Return whether all eigenvalues of a real matrix are known to be real.

    They are unknown under vmap, in a trace and on Meta.
    """
    known = known_values(values)
    return a.dtype.kind != "c" and known is not None and not known.imag.any()


@array_function("linalg")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Compute the singular value decomposition: u, s (descending) and vh, or only s."""
    a = as_nonscalar(a)
    if not compute_uv:
        return ops.np.linalg_svdvals(a, hermitian)
    return SVDResult(*ops.np.linalg_svd(a, full_matrices, hermitian))


@array_function("linalg")
def svdvals(x: Any, /) -> Any:
    """Return the singular values, descending."""
    return ops.np.linalg_svdvals(as_nonscalar(x))


@array_function("linalg")
def qr(a: Any, mode: str = "reduced") -> Any:
    """Compute orthonormal q and upper triangular r, or only r with mode "r"."""
    if mode == "r":
        return ops.np.linalg_qr(as_nonscalar(a), "reduced")[1]
    if mode in ("f", "full"):
        warnings.warn("The 'full' option is deprecated in favor of 'reduced'.\nFor backward compatibility let mode "
                      "default.", DeprecationWarning, stacklevel=2)
        mode = "reduced"
    if mode in ("e", "economic"):
        raise DispatchTypeError(f"numpy.linalg.qr was called with a Tensor and mode={mode!r}, which is deprecated and "
                                "returns a part of LAPACK's internal format\nuse mode='r'")
    if mode not in ("reduced", "complete"):
        if mode == "raw":
            raise DispatchTypeError("numpy.linalg.qr was called with a Tensor and mode='raw', LAPACK's internal "
                                    "format\nuse another mode")
        raise ValueError(f"Unrecognized mode '{mode}'")
    return QRResult(*ops.np.linalg_qr(as_nonscalar(a), mode))


# --- solutions -------------------------------------------------------------------------------------------------------


@array_function("linalg")
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = ABSENT) -> Any:
    """Compute the pseudo-inverse. Singular values below `rcond` times the largest count as 0.

    An array as `rcond` or `rtol` has a cutoff for each matrix.
    """
    a = as_matrices(a)
    if rcond is not None and rtol is not ABSENT:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if rtol is None:
        rcond = max(a.shape[-2:]) * np.finfo(a.dtype).eps
    elif rtol is not ABSENT:
        rcond = rtol
    if rcond is not None and as_nonscalar(rcond).ndim:
        return pinv_of_each(a, as_nonscalar(rcond), hermitian)
    return ops.np.linalg_pinv(a, None if rcond is None else float(rcond), hermitian)


def pinv_of_each(a: Any, rcond: Any, hermitian: bool) -> Any:
    """Compute the pseudo-inverses of matrices with a cutoff each. Those with the same one are inverted together."""
    known = known_values(rcond)
    if known is None:
        raise DispatchTypeError("numpy.linalg.pinv was called with a cutoff for each matrix whose values are unknown "
                                "here, under vmap, in a trace or on Meta\npass numbers as rcond")
    stack, core = tuple(a.shape[:-2]), tuple(a.shape[-2:])
    cutoffs, of_matrix = np.unique(np.broadcast_to(known, stack), return_inverse=True)
    if not len(cutoffs):
        return ops.np.linalg_pinv(a, None, hermitian)
    of_matrix = of_matrix.reshape(-1)
    matrices = ops.np.reshape(a, (-1, *core))
    inverses = ops.np.concatenate([
        ops.np.linalg_pinv(ops.np.take(matrices, np.flatnonzero(of_matrix == i), 0), float(cutoff), hermitian)
        for i, cutoff in enumerate(cutoffs)])
    place = np.argsort(np.argsort(of_matrix, kind="stable"))
    return ops.np.reshape(ops.np.take(inverses, place, 0), (*stack, *core[::-1]))


@array_function("linalg")
def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """Return the solution of least squares, the sums of squared residuals, the rank and singular values of `a`.

    There are no residuals where the rank is below the number of columns. Under vmap, in traces and on Meta, where the
    rank is unknown, there are residuals.
    """
    a, b = as_nonscalar(a), as_nonscalar(b)
    for x, least in (a, 2), (b, 1):
        if not least <= x.ndim <= 2:
            raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    m, n = a.shape
    if b.shape[0] != m:
        raise LinAlgError("Incompatible dimensions")
    dtype = np.result_type(*[x.dtype if x.dtype.kind in "fc" else float for x in (a, b)])
    a, b = ops.np.astype(a, dtype, copy=False), ops.np.astype(b, dtype, copy=False)
    precision = np.finfo(dtype).eps
    cutoff = precision * max(m, n) if rcond is None else precision if rcond == -1 else rcond
    solution = ops.np.matmul(ops.np.linalg_pinv(a, float(cutoff)), b)
    values = ops.np.linalg_svdvals(a)
    rank = ops.np.astype(matrix_rank(a, rtol=cutoff), np.dtype(np.int32))
    known = number_if_known(rank)
    residuals = ops.np.zeros_like(values, shape=(0,))
    if m > n and (known is None or known == n):
        apart = ops.np.subtract(b, ops.np.matmul(a, solution))
        squares = ops.np.real(ops.np.multiply(apart, ops.np.conjugate(apart)))      # smooth at 0, unlike absolute
        residuals = ops.np.sum(squares, 0, keepdims=b.ndim == 1)
    return solution, residuals, rank if known is None else np.int32(known), values


@array_function("linalg")
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Solve tensordot(a, x, x.ndim) = b for x."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    if axes is not None:
        order = [axis for axis in range(a.ndim) if axis not in axes]
        a = ops.np.transpose(a, (*order, *[axis % a.ndim for axis in axes]))
    shape = tuple(a.shape[b.ndim:])
    n = int(np.prod(shape))
    if a.size != n ** 2:
        raise LinAlgError("Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == "
                          "prod(a.shape[:b.ndim])")
    return ops.np.reshape(ops.np.linalg_solve(ops.np.reshape(a, (n, n)), ops.np.ravel(b)), shape)


@array_function("linalg")
def tensorinv(a: Any, ind: int = 2) -> Any:
    """Invert an array as a map between arrays, whose results have the first `ind` axes."""
    a = as_nonscalar(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = tuple(a.shape)
    n = int(np.prod(shape[ind:]))
    return ops.np.reshape(ops.np.linalg_inv(ops.np.reshape(a, (-1, n))), shape[ind:] + shape[:ind])


# --- products --------------------------------------------------------------------------------------------------------


@array_function("linalg")
def matrix_power(a: Any, n: int) -> Any:
    """Raise a square matrix to an integer power. A negative one is a power of the inverse."""
    a = as_squares(a)
    try:
        n = operator.index(n)
    except TypeError as error:
        raise TypeError("exponent must be an integer") from error
    if n == 0:
        unit = np.eye(a.shape[-1], dtype=a.dtype)
        return laid_out_like(ops.np.add(ops.np.zeros_like(a), unit), a)
    if n < 0:
        a, n = ops.np.linalg_inv(a), -n
    result, square = None, a
    while n:
        if n % 2:
            result = square if result is None else ops.np.matmul(result, square)
        n //= 2
        if n:
            square = ops.np.matmul(square, square)
    return result


@array_function("linalg")
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """Multiply matrices in the order that takes the fewest multiplications."""
    factors = [as_nonscalar(x) for x in arrays]
    if len(factors) < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = factors[0].ndim, factors[-1].ndim
    if first == 1:
        factors[0] = ops.np.expand_dims(factors[0], 0)
    if last == 1:
        factors[-1] = ops.np.expand_dims(factors[-1], 1)
    for x in factors:
        if x.ndim != 2:
            raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    splits = best_splits(tuple([x.shape[0] for x in factors] + [factors[-1].shape[1]]))

    def product(i: int, j: int) -> Any:
        if i == j:
            return factors[i]
        return ops.np.matmul(product(i, splits[i, j]), product(splits[i, j] + 1, j))

    result = product(0, len(factors) - 1)
    if first == 1 or last == 1:
        result = as_scalar(ops.np.reshape(result, () if first == last else (-1,)))
    products.check_product(out, result)
    return into(out, result)


@lru_cache(maxsize=64)
def best_splits(extents: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Find where to split the product of the matrices i to j, for all i < j.

    Source: Cormen et al., matrix-chain multiplication.
    """
    n = len(extents) - 1
    costs = {(i, i): 0 for i in range(n)}
    splits = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs[i, j], splits[i, j] = min(
                (costs[i, k] + costs[k + 1, j] + extents[i] * extents[k + 1] * extents[j + 1], k) for k in range(i, j))
    return splits


@array_function("linalg")
def matmul(x1: Any, x2: Any, /) -> Any:
    """Multiply matrices."""
    return ops.np.matmul(as_array(x1), as_array(x2))


@array_function("linalg")
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Sum products of elements along an axis, with the first factors conjugated."""
    return products.vecdot(x1, x2, axis=axis)


@array_function("linalg")
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sum products over the last axes of one array and the first of the other, or over pairs of axes."""
    return products.tensordot(x1, x2, axes=axes)


@array_function("linalg")
def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of all pairs of elements of two vectors."""
    x1, x2 = as_nonscalar(x1), as_nonscalar(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={x1.ndim} and x2.ndim={x2.ndim}.")
    return products.outer(x1, x2)


@array_function("linalg")
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross product of vectors of three elements."""
    x1, x2 = as_nonscalar(x1), as_nonscalar(x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
                         f"{x1.shape[axis]} and {x2.shape[axis]} dimensional instead.")
    return products.cross(x1, x2, axis=axis)


@array_function("linalg")
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sum of a diagonal of each matrix."""
    return diagonals.trace(x, offset, -2, -1, dtype)


@array_function("linalg")
def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return a diagonal of each matrix."""
    return diagonals.diagonal(x, offset, -2, -1)


@array_function("linalg")
def matrix_transpose(x: Any, /) -> Any:
    """Transpose each matrix."""
    x = as_nonscalar(x)
    if x.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x.ndim}")
    return ops.np.swapaxes(x, -1, -2)


# --- norms and ranks -------------------------------------------------------------------------------------------------


@array_function("linalg")
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return the norm of vectors, by default of all elements as one vector."""
    axis = tuple(axis) if isinstance(axis, list) else axis
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    return ops.np.linalg_vector_norm(as_nonscalar(x), axis, 2.0 if ord is None else ord, keepdims=keepdims)


@array_function("linalg")
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of matrices."""
    return norm(x, ord, (-2, -1), keepdims)


@array_function("linalg")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the norm of vectors, or of matrices for two axes, by default of all elements as one vector."""
    x = as_nonscalar(x)
    if x.dtype.kind in "biu":
        x = ops.np.astype(x, np.dtype(float))
    if ord is None and axis is None:
        return ops.np.linalg_vector_norm(x, None, 2.0, keepdims=keepdims)
    if axis is None:
        axes: tuple[int, ...] = tuple(range(x.ndim))
    elif isinstance(axis, tuple):
        axes = axis
    else:
        try:
            axes = (axis.__index__(),)
        except AttributeError:
            raise TypeError("'axis' must be None, an integer or a tuple of integers") from None
    if ord is None and len(axes) in (1, 2):
        ord = 2.0 if len(axes) == 1 else "fro"
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return ops.np.linalg_vector_norm(x, axes, ord, keepdims=keepdims)
    if len(axes) == 2:
        return norm_of_matrices(x, ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def norm_of_matrices(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Return a norm of the matrices in two axes."""
    rows, columns = [normalize_axis_index(axis, x.ndim) for axis in axes]
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    if ord in ("fro", "f"):
        result = ops.np.linalg_vector_norm(x, (rows, columns), 2.0, keepdims=keepdims)
        return laid_out_like(result, x, () if keepdims else (rows, columns))
    if ord in (2, -2, "nuc"):
        values = ops.np.linalg_svdvals(ops.np.moveaxis(x, (rows, columns), (-2, -1)))
        result = ops.np.sum(values, -1) if ord == "nuc" else extreme_norm(values, -1, ord)
    elif ord in (1, -1, np.inf, -np.inf):
        along, other = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = ops.np.sum(ops.np.absolute(x), along, keepdims=True)
        result = ops.np.squeeze(extreme_norm(sums, other, ord, keepdims=True), (rows, columns))
    else:
        raise ValueError("Invalid norm order for matrices.")
    if keepdims:
        kept = [1 if i in (rows, columns) else n for i, n in enumerate(x.shape)]
        return ops.np.reshape(result, tuple(kept))
    return as_scalar(result)


def extreme_norm(norms: Any, axis: int, ord: Any, keepdims: bool = False) -> Any:
    """Return the largest of norms, 0 if there are none, or the least if the order is negative."""
    if ord < 0:
        return ops.np.min(norms, axis, keepdims=keepdims)
    return ops.np.max(norms, axis, keepdims=keepdims, **({} if norms.shape[axis] else {"initial": 0}))


@array_function("linalg")
def cond(x: Any, p: Any = None) -> Any:
    """Return the condition number of matrices."""
    x = as_nonscalar(x)
    if 0 in x.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p is None or p in (2, -2):
        values = ops.np.linalg_svdvals(x)
        largest, smallest = ops.np.getitem(values, (..., 0)), ops.np.getitem(values, (..., -1))
        with np.errstate(all="ignore"):
            found = ops.np.divide(smallest, largest) if p == -2 else ops.np.divide(largest, smallest)
        return infinite_where(ops.np.equal(largest, 0), found)
    x = as_squares(x)
    known = known_values(x)
    # not by the determinant, which may be too small for its dtype
    signs, _ = ops.np.linalg_slogdet(x) if known is None else np.linalg.slogdet(known)
    singular = ops.np.equal(signs, 0)
    if known is not None and not singular.any():
        return ops.np.multiply(norm(x, p, (-2, -1)), norm(ops.np.linalg_inv(x), p, (-2, -1)))
    regular = ops.np.where(ops.np.getitem(singular, (..., None, None)), np.eye(x.shape[-1], dtype=x.dtype), x)
    found = ops.np.multiply(norm(x, p, (-2, -1)), norm(ops.np.linalg_inv(regular), p, (-2, -1)))
    return infinite_where(singular, found)


def infinite_where(singular: Any, found: Any) -> Any:
    """Return condition numbers, infinite for singular matrices."""
    known = known_values(singular)
    return found if known is not None and not known.any() else as_scalar(ops.np.where(singular, np.asarray(
        np.inf, found.dtype), found))


@array_function("linalg", constant=True)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Return the number of singular values above a cutoff."""
    if rtol is not None and tol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    a = as_nonscalar(A)
    if a.ndim < 2:
        return ops.np.astype(ops.np.any(ops.np.not_equal(a, 0)), np.dtype(np.intp))
    values = ops.np.linalg_svdvals(a, hermitian)
    if tol is None:
        relative = max(a.shape[-2:]) * np.finfo(values.dtype).eps if rtol is None else with_last_axis(rtol)
        tol = ops.np.multiply(ops.np.max(values, -1, keepdims=True, initial=0), relative)
    else:
        tol = with_last_axis(tol)
    return ops.np.sum(ops.np.greater(values, tol), -1)


def with_last_axis(x: Any) -> Any:
    """Add an axis to a number for each matrix, to compare it with the matrix's singular values."""
    return ops.np.expand_dims(as_nonscalar(x), -1)


__all__ = sorted([name.removeprefix("linalg.") for name in FUNCTIONS if name.startswith("linalg.")] + ["LinAlgError"])
__dir__ = only_public(globals())
globals().update({name.removeprefix("linalg."): function for name, function in FUNCTIONS.items()
                  if name.startswith("linalg.")})
