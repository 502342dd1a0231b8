"""Banded matrices, stored as their diagonals: `ab[upper + i - j, j]` is the element at (i, j)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from pydispatch._core import MetaArray, sum_to
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.linalg.triangular import cholesky
from pydispatch.scipy.pack import FACE, SCIPY

banded, = SCIPY.operators("linalg_solve_of_bands")


def check_banded(name: str, ab: tuple[int, ...], b: tuple[int, ...], lower: int) -> tuple[int, ...]:
    """Return the shape of the stack of systems. Raise ValueError if shapes do not match."""
    if len(ab) < 2 or len(b) < 2 or ab[-1] != b[-2] or not 0 <= lower < max(ab[-2], 1):
        raise ValueError(f"linalg.{name}: shapes of ab {ab} and b {b} are incompatible, with {lower} diagonals below "
                         "the main one\npass an ab of shape (lower + upper + 1, n), and a b of n rows")
    return broadcast((ab[:-2], b[:-2]))


def banded_kernel(ab, b, lower, check_finite=True):
    """Solve banded systems, also in stacks."""
    batch = check_banded("solve_banded", ab.shape, b.shape, lower)
    dtype = arguments.precise(np.result_type(ab, b))
    result = np.empty((*batch, *b.shape[-2:]), dtype)
    for index in np.ndindex(*batch) if result.size else ():
        matrix, side = [np.broadcast_to(x, (*batch, *x.shape[-2:]))[index] for x in (ab, b)]
        result[index] = linalg.solve_banded((lower, ab.shape[-2] - 1 - lower), matrix, side, check_finite=check_finite)
    return result


def banded_meta(ab, b, lower, check_finite=True):
    batch = check_banded("solve_banded", shape_of(ab), shape_of(b), lower)
    return MetaArray((*batch, *shape_of(b)[-2:]), arguments.precise(np.result_type(dtype_of(ab), dtype_of(b))))


def rows_of(n_diagonals, n, lower):
    """Return the row of each stored element, and whether it is in the matrix."""
    rows = np.arange(n) + np.arange(n_diagonals)[:, None] - (n_diagonals - 1 - lower)
    return np.clip(rows, 0, max(n - 1, 0)), (rows >= 0) & (rows < n)


def transposed(ab, lower):
    """Return the diagonals of the transposed matrix."""
    n_diagonals, n = ab.shape[-2:]
    rows, _ = rows_of(n_diagonals, n, n_diagonals - 1 - lower)
    return ops.np.index(ab, (..., np.arange(n_diagonals - 1, -1, -1)[:, None], rows))


def products(left, right, n_diagonals, lower, dtype):
    """Return the band of the sum of the outer products of columns."""
    rows, inside = rows_of(n_diagonals, left.shape[-2], lower)
    parts = ops.np.sum(ops.np.multiply(ops.np.index(left, (..., rows, slice(None))), right[..., None, :, :]), -1)
    return ops.np.multiply(parts, inside)


def banded_vjp(g, ab, b_shape, result, lower):
    n_diagonals = ab.shape[-2]
    of_b = banded(transposed(ab, lower), g, n_diagonals - 1 - lower, check_finite=False)
    of_ab = ops.np.negative(products(of_b, result, n_diagonals, lower, ab.dtype))
    return sum_to(of_ab, tuple(ab.shape)), sum_to(of_b, b_shape)


def product(ab, x, lower):
    """Return the product of a banded matrix and others."""
    n_diagonals, n = ab.shape[-2:]
    across = transposed(ab, lower)
    rows, inside = rows_of(n_diagonals, n, n_diagonals - 1 - lower)
    terms = ops.np.multiply(ops.np.multiply(across, inside)[..., None], ops.np.index(x, (..., rows, slice(None))))
    return ops.np.sum(terms, -3)


def banded_batch(op, info, in_dims, ab, b, *options):
    """Call the operator with batches as stacks of systems."""
    return arguments.stacks_batch(lambda ab, b: op(ab, b, *options), info, in_dims[:2], ab, b)


SCIPY.declare(
    "linalg_solve_of_bands", "Tensor ab, Tensor b, int lower, bool check_finite=True", banded_kernel, banded_meta,
    tags=("linalg",), vjp=Joint(banded_vjp), vmap=banded_batch, jvp=(
        lambda t, ab, result, lower: ops.np.negative(banded(ab, product(t, result, lower), lower, check_finite=False)),
        lambda t, ab, lower: banded(ab, t, lower, check_finite=False)))


@FACE.array_function("linalg")
def solve_banded(l_and_u: Any, ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False,
                 check_finite: bool = True) -> Any:
    """Solve a system with a banded matrix, of which `ab` holds the diagonals."""
    lower, upper = l_and_u
    ab, b = as_nonscalar(ab), as_nonscalar(b)
    if ab.shape[-2] != lower + upper + 1:
        raise ValueError(f"linalg.solve_banded: l_and_u is {(lower, upper)}, but ab has {ab.shape[-2]} diagonals, "
                         f"expected {lower + upper + 1}")
    if b.ndim < 2:
        return arguments.of_column(lambda b: banded(ab, b, lower, check_finite=check_finite), b)
    return banded(ab, b, lower, check_finite=check_finite)


def both_triangles(ab, lower):
    """Return all diagonals of a Hermitian matrix, given those of one triangle."""
    n = ab.shape[-2] - 1
    conjugate = transposed(ops.np.conjugate(ab), n if lower else 0)
    first, second = (conjugate, ab) if lower else (ab, conjugate)
    return ops.np.concatenate((first, ops.np.getitem(second, (..., slice(1, None), slice(None)))), -2)


@FACE.array_function("linalg")
def solveh_banded(ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False, lower: bool = False,
                  check_finite: bool = True) -> Any:
    """Solve a system with a Hermitian banded matrix. For Tensors, it need not be positive definite."""
    ab = as_nonscalar(ab)
    n = ab.shape[-2] - 1
    return solve_banded((n, n), both_triangles(ab, lower), b, check_finite=check_finite)


@FACE.array_function("linalg")
def cholesky_banded(ab: Any, overwrite_ab: bool = False, lower: bool = False, check_finite: bool = True) -> Any:
    """Return the diagonals of the triangular factor. For Tensors, it is computed from the full matrix."""
    ab = as_nonscalar(ab)
    n_diagonals, n = ab.shape[-2:]
    i, j = np.indices((n, n))
    place = i - j if lower else n_diagonals - 1 + i - j
    inside = (place >= 0) & (place < n_diagonals)
    half = ops.np.multiply(ops.np.index(ab, (..., np.where(inside, place, 0), j)), inside)
    other = ops.np.multiply(ops.np.conjugate(half.mT), i != j)
    factor = cholesky(ops.np.add(half, other), lower, check_finite=check_finite)
    rows, kept = rows_of(n_diagonals, n, n_diagonals - 1 if lower else 0)
    return ops.np.where(kept, ops.np.index(factor, (..., rows, np.arange(n))), ab)      # SciPy leaves the corners
