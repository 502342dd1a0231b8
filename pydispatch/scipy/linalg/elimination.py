"""LU factors, and solutions from them."""

from __future__ import annotations

import warnings
from functools import partial
from math import prod
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from scipy.linalg.lapack import get_lapack_funcs

from pydispatch._core import MetaArray
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.batching import batch_of
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.scipy.errors import ErrorsOf
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.linalg.triangular import solved
from pydispatch.scipy.pack import FACE, SCIPY

constant_lu, lu_of_matrix, row_exchanges = SCIPY.operators(
    "linalg_lu_constant", "linalg_lu_of_matrix", "linalg_row_exchanges")


def lu_of_one(a):
    factor, = get_lapack_funcs(("getrf",), (a,))
    lu, pivots, info = factor(a)
    if info > 0:
        warnings.warn(f"linalg.lu_factor: Diagonal number {info} is exactly zero. Singular matrix.", LinAlgWarning,
                      stacklevel=2)
    return lu, pivots


lu_of_stack = arguments.over_stack(lu_of_one, "lu_factor")


def lu_kernel(a, overwrite_a=False, check_finite=True):
    """Return the factors L and U in one matrix, and the row exchanges, as constants."""
    a = np.asarray(a)
    arguments.check_matrices("lu_factor", a.shape)
    if check_finite:
        arguments.check_finite_values("lu_factor", a)
    if not a.size:
        return a.copy(), np.empty((*a.shape[:-2], min(a.shape[-2:])), np.int32)
    return lu_of_stack(a.astype(arguments.precise(a.dtype), copy=False))


def lu_meta(a, overwrite_a=False, check_finite=True):
    shape = shape_of(a)
    arguments.check_matrices("lu_factor", shape)
    return MetaArray(shape, arguments.precise(dtype_of(a))), MetaArray((*shape[:-2], min(shape[-2:])), np.int32)


def row_exchanges_kernel(lu, pivots):
    """Return the matrix P for which P @ L @ U is the matrix that was factored."""
    n = lu.shape[-2]
    pivots = np.asarray(pivots)
    order = np.broadcast_to(np.arange(n), (*pivots.shape[:-1], n)).copy()
    rows = np.arange(prod(pivots.shape[:-1]))
    flat, exchanged = order.reshape((-1, n)), pivots.reshape((-1, pivots.shape[-1]))
    for i in range(pivots.shape[-1]):
        flat[rows, i], flat[rows, exchanged[:, i]] = flat[rows, exchanged[:, i]], flat[rows, i].copy()
    return (order[..., None, :] == np.arange(n)[:, None]).astype(lu.dtype.type(0).real.dtype)


def row_exchanges_meta(lu, pivots):
    n = shape_of(lu)[-2]
    return MetaArray((*shape_of(pivots)[:-1], n, n), dtype_of(lu).type(0).real.dtype)


def row_exchanges_batch(op, info, in_dims, lu, pivots):
    return op(lu, pivots), 0 if in_dims[1] == 0 else None


def identity_like(x: Any, n: int, first: int) -> Any:
    """Return the identity of size n with zeros in the first places of its diagonal."""
    dtype = x.dtype.type(0).real.dtype
    return np.diag((np.arange(n) >= first).astype(dtype))


def with_zeros(x: Any, n: int, axis: int) -> Any:
    """Append zeros along an axis of a matrix up to the length `n`."""
    missing = n - x.shape[axis]
    if missing <= 0:
        return x
    shape = list(x.shape)
    shape[axis] = missing
    return ops.np.concatenate([x, ops.np.zeros_like(x, shape=tuple(shape))], axis)


def unpacked(lu: Any) -> tuple[Any, Any]:
    """Return square L and U. For a matrix that is not square, one of them is completed with the identity."""
    m, n = lu.shape[-2:]
    below, above = arguments.in_triangle(lu, True, True), arguments.in_triangle(lu, False)
    if m == n:
        return below + identity_like(lu, m, 0), above
    left = with_zeros(below[..., :, :min(m, n)], m, -1) + identity_like(lu, m, 0)
    return left, with_zeros(above[..., :min(m, n), :], n, -2) + identity_like(lu, n, m)


def lu_vjp(g, pivots, result):
    lower, upper = unpacked(result)
    g = arguments.in_triangle(lower.mT @ g, True, True) + arguments.in_triangle(g @ upper.mT, False)
    with ErrorsOf("linalg.lu_factor"):
        g = solved(lower, g, 1, True, True)
        g = solved(upper, g.mT, 0, False, False).mT
    return row_exchanges(result, pivots) @ g


def lu_jvp(t, pivots, result):
    lower, upper = unpacked(result)
    t = row_exchanges(result, pivots).mT @ t
    with ErrorsOf("linalg.lu_factor"):
        t = solved(lower, t, 0, True, True)
        t = solved(upper, t.mT, 1, False, False).mT
    return lower @ arguments.in_triangle(t, True, True) + arguments.in_triangle(t, False) @ upper


def lu_of_matrix_kernel(a, lu, pivots):
    """Return the known factors L and U in one matrix, as a function of the matrix, which gets their gradient."""
    return lu.copy()


def lu_with_derivative(a, overwrite_a=False, check_finite=True):
    """Factor once. The exchanges are constants, and so is the position of each element of L and U."""
    lu, pivots = constant_lu(a, check_finite=check_finite)
    return lu_of_matrix(a, lu, pivots), pivots


def lu_of_matrix_batch(op, info, in_dims, a, lu, pivots):
    return op(*[batch_of(x, dim, info.batch_size) for x, dim in zip((a, lu, pivots), in_dims, strict=True)]), 0


LU_DERIVATIVES: dict[str, dict[str, Any]] = {"lu_factor": {"differentiated_as": lu_with_derivative},
                                             "lu_constant": {"differentiable": False}}
for name, parts in LU_DERIVATIVES.items():
    SCIPY.declare(f"linalg_{name}", "Tensor a, bool overwrite_a=False, bool check_finite=True", lu_kernel, lu_meta,
                  returns="(Tensor, Tensor)", tags=("linalg",), vmap=arguments.matrices_batch("lu_factor"), **parts)
SCIPY.declare("linalg_lu_of_matrix", "Tensor a, Tensor lu, Tensor pivots", lu_of_matrix_kernel,
              lambda a, lu, pivots: MetaArray(shape_of(lu), dtype_of(lu)), tags=("linalg",), vjp=lu_vjp, jvp=(lu_jvp,),
              vmap=lu_of_matrix_batch)
SCIPY.declare("linalg_row_exchanges", "Tensor lu, Tensor pivots", row_exchanges_kernel, row_exchanges_meta,
              tags=("linalg",), differentiable=False, vmap=row_exchanges_batch)


@FACE.array_function("linalg")
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return L and U in one matrix, and the row exchanges, which are constants."""
    return ops.scipy.linalg_lu_factor(as_nonscalar(a), check_finite=check_finite)


def in_order(b: Any, order: Any) -> Any:
    """Permute the rows of right-hand sides, by a permutation per matrix of a stack. Elements may be infinite."""
    if order.ndim == 1:
        return ops.np.take(b, order, 0 if b.ndim == 1 else -2)
    rows = ops.np.expand_dims(order, -1)
    shape = (*broadcast((tuple(order.shape[:-1]), tuple(b.shape[:-2]))), *b.shape[-2:])
    return ops.np.take_along_axis(ops.np.broadcast_to(b, shape), ops.np.broadcast_to(rows, shape), -2)


@FACE.array_function("linalg")
def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Solve a system from the result of `lu_factor`."""
    lu, pivots = map(as_nonscalar, lu_and_piv)
    b = as_nonscalar(b)
    arguments.check_systems("lu_solve", tuple(lu.shape), tuple(b.shape))
    if b.ndim < 2 < lu.ndim:
        return arguments.of_column(lambda b: lu_solve((lu, pivots), b, trans, check_finite=check_finite), b)
    solve = partial(ops.scipy.linalg_solve_triangular, lu, trans=trans, is_factor=True)
    exchanges = ops.scipy.linalg_row_exchanges(lu, pivots)
    if trans:
        found = solve(b, lower=False, check_finite=check_finite)
        found = solve(found, lower=True, unit_diagonal=True, check_finite=False)
        return in_order(found, ops.np.argmax(exchanges, -1))
    found = solve(in_order(b, ops.np.argmax(exchanges, -2)), lower=True, unit_diagonal=True, check_finite=check_finite)
    return solve(found, lower=False, check_finite=False)


@FACE.array_function("linalg")
def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True,
       p_indices: bool = False) -> Any:
    """Return P, L and U with P @ L @ U = a. P is a constant. It can also be an order of rows, or multiplied into L."""
    a = as_nonscalar(a)
    m, n = a.shape[-2:] if a.ndim > 1 else (0, 0)
    packed, pivots = ops.scipy.linalg_lu_factor(a, check_finite=check_finite)
    k = min(m, n)
    below = ops.np.getitem(arguments.in_triangle(packed, True, True), (..., slice(None, k)))
    lower = ops.np.add(below, np.eye(m, k, dtype=packed.dtype.type(0).real.dtype))
    upper = ops.np.getitem(arguments.in_triangle(packed, False), (..., slice(None, k), slice(None)))
    exchanges = ops.scipy.linalg_row_exchanges(packed, pivots)
    if permute_l:
        return ops.np.matmul(exchanges, lower), upper
    if p_indices:
        return ops.np.astype(ops.np.argmax(exchanges, -1), np.dtype(np.int32)), lower, upper
    return exchanges, lower, upper
