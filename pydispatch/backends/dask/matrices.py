"""Linear algebra: NumPy's for stacks of matrices, and Dask's for one matrix with many chunks."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from pydispatch._registry.backends import is_masked
from pydispatch.backends import masked
from pydispatch.backends.dask.chunkwise import along, as_dask, on_rows
from pydispatch.backends.dask.other_chunks import any_masked
from pydispatch.ops import ops


def is_in_squares(a: Any) -> bool:
    """Return whether a matrix has several square chunks, which Dask factorizes chunk by chunk."""
    return a.ndim == 2 and a.npartitions > 1 and len({n for chunks in a.chunks for n in chunks}) == 1


def inv(a: Any) -> Any:
    """Invert matrices."""
    return da.linalg.inv(a) if is_in_squares(a) else along(ops.np.linalg_inv.default, (-2, -1), a)


def cholesky(a: Any, *, upper: bool = False) -> Any:
    """Return the triangle whose product with its own adjoint is the matrix."""
    if is_in_squares(a):
        return da.linalg.cholesky(a, lower=not upper)
    return along(ops.np.linalg_cholesky.default, (-2, -1), a, upper=upper)


def solve(a: Any, b: Any) -> Any:
    """Solve a x = b for x."""
    a, b = as_dask(a), as_dask(b)
    if is_in_squares(a) and b.ndim <= 2:
        return da.linalg.solve(a, b.rechunk({0: a.chunks[0]}))
    if b.ndim == 1:
        return on_rows(ops.np.linalg_solve.default, "(m,m),(m)->(m)", a, b)
    return on_rows(ops.np.linalg_solve.default, "(m,m),(m,n)->(m,n)", a, b)


def qr(a: Any, mode: str = "reduced") -> Any:
    """Factor a matrix into orthonormal columns and a triangle."""
    if is_tall(a) and mode == "reduced":
        return da.linalg.qr(a)
    return on_rows(ops.np.linalg_qr.default, "(m,n)->(m,k),(l,n)", a, mode=mode)


def svd(a: Any, full_matrices: bool = True, hermitian: bool = False) -> Any:
    """Compute the singular value decomposition. A tall matrix of many chunks uses Dask's, if its options allow."""
    if is_tall(a) and not full_matrices and not hermitian:
        return da.linalg.svd(a, coerce_signs=False)
    return on_rows(ops.np.linalg_svd.default, "(m,n)->(m,k),(r),(l,n)", a, full_matrices, hermitian)


def is_tall(a: Any) -> bool:
    """Return whether a matrix has several chunks of rows, each with all columns and at least as many rows."""
    return a.ndim == 2 and len(a.chunks[0]) > 1 and len(a.chunks[1]) == 1 and min(a.chunks[0]) >= a.shape[1]


def vector_norm(x: Any, axis: Any = None, ord: Any = 2.0, *, keepdims: bool = False) -> Any:
    """Return the norm of vectors along one or more axes."""
    size = da.absolute(x)
    options = {"axis": axis, "keepdims": keepdims}
    if ord == np.inf:
        return size.max(**options)
    if ord == -np.inf:
        return size.min(**options)
    if ord == 0:
        return (x != 0).astype(size.dtype).sum(**options)
    if ord == 1:
        return size.sum(**options)
    if ord == 2:
        return da.sqrt((size ** 2).sum(**options))
    return (size ** ord).sum(**options) ** (1 / ord)


def matmul(x1: Any, x2: Any) -> Any:
    """Multiply matrices. Dask has no product of masked chunks."""
    return masked.matmul_of_filled(x1, x2) if any_masked(x1, x2) else da.matmul(x1, x2)


def covariance(a: Any, divisor: Any) -> Any:
    """Multiply each pair of rows, less their means, and divide by a number."""
    if a.ndim < 2:
        raise ValueError(f"covariance: argument a has {a.ndim} axes, expected a matrix or a stack of them\n"
                         "make a vector a row: reshape(a, (1, -1))")
    if is_masked(a):
        return masked.covariance(a, divisor)
    apart = a - a.mean(-1, keepdims=True)
    return da.matmul(apart, da.swapaxes(apart, -1, -2).conj()) / divisor


def einsum(subscripts: str, x1: Any, x2: Any = None, others: Any = None, *, dtype: Any = None, casting: str = "safe",
           optimize: bool = False) -> Any:
    """Sum products over subscripts."""
    operands = [as_dask(x) for x in (x1, x2, *(others or ())) if x is not None]
    return da.einsum(subscripts, *operands, dtype=dtype, casting=casting, optimize=optimize)
