"""`scipy.linalg` for arrays and Tensors: triangular systems, factors, functions of matrices, structured matrices.

Operators take matrices and stacks of them; the rules of formulas are those of `operators/decompositions.py`. Sources:
Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008); for
functions of matrices, Higham, "Functions of Matrices" (2008), theorem 3.6 (the derivative as a block of the function of
a matrix twice as large).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from math import isfinite, prod
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg import LinAlgError, LinAlgWarning, lapack
from scipy.linalg.lapack import get_lapack_funcs

from pydispatch._core import MetaArray, sum_to
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.batching import batch_of, padded, rank
from pydispatch.operators.decompositions import (
    DOUBLE,
    cholesky_jvp,
    cholesky_vjp,
    cofactor,
    is_complex,
    multiply,
    solve_batch,
    solve_jvp_of_a,
    solve_of_vectors,
    solve_vjp,
    stack_batch,
)
from pydispatch.operators.decompositions import solve as regular
from pydispatch.operators.linalg import adjoint, conjugated
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.pack import FACE, SCIPY

constant_lu, lu_of_matrix, row_exchanges, sylvester, triangular = SCIPY.operators(
    "linalg_lu_constant", "linalg_lu_of_matrix", "linalg_row_exchanges", "linalg_solve_sylvester",
    "linalg_solve_triangular")


# --- arguments of kernels --------------------------------------------------------------------------------------------


def check_finite_values(name: str, *arrays: np.ndarray) -> None:
    """ValueError where an element is infinite or nan."""
    for x in arrays:
        if x.dtype is DOUBLE:
            flat = x.reshape(-1)
            if isfinite(flat.dot(flat)):    # a product takes a third of the time; it may overflow
                continue
        if x.dtype.kind in "fc" and not np.isfinite(x).all():
            raise ValueError(f"{name}: array must not contain infs or NaNs")


def check_square(name: str, shape: tuple[int, ...], argument: str = "a") -> None:
    """ValueError for what is no stack of square matrices."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"{name}: expected square matrix, argument {argument} has shape {shape}")


def precise(x: Any) -> np.dtype:
    """The dtype in which LAPACK computes with elements of this dtype."""
    dtype = np.dtype(x)
    return dtype if dtype.char in "fdFD" else np.dtype(
        np.float32 if dtype.char == "e" else np.complex128 if dtype.kind == "c" else np.float64)


def named_example(name: str, i: int, batch: tuple[int, ...], error: str) -> str:
    """The message of an error in one of a stack of matrices."""
    where = f" in matrix {tuple(map(int, np.unravel_index(i, batch)))} of the stack" if batch else ""
    return f"{name}: {error}{where}"


def over_stack(kernel: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A kernel of stacks of matrices from one of matrices; errors name the function, and the matrix in the stack."""
    def of_stack(a: np.ndarray, *options: Any) -> Any:
        batch, core = a.shape[:-2], a.shape[-2:]
        found = []
        for i, matrix in enumerate(a.reshape((-1, *core))):
            try:
                found.append(kernel(matrix, *options))
            except (LinAlgError, ValueError) as error:
                raise type(error)(named_example(name, i, batch, str(error))) from error
        if not batch:
            return found[0]
        if isinstance(found[0], tuple):
            return tuple([np.stack(each).reshape((*batch, *each[0].shape)) for each in zip(*found, strict=True)])
        return np.stack(found).reshape((*batch, *found[0].shape))
    return of_stack


# --- triangular systems ----------------------------------------------------------------------------------------------

TRANSPOSITIONS = {"N": 0, "T": 1, "C": 2}


@lru_cache(maxsize=256)
def triangle(n: int, m: int, lower: bool, without_diagonal: bool, dtype: Any) -> np.ndarray:
    """Ones in a triangle, zeros elsewhere."""
    offset = -1 if without_diagonal else 0
    found = np.tri(n, m, offset, dtype) if lower else np.tri(m, n, offset, dtype).T
    found.flags.writeable = False
    return found


def in_triangle(x: Any, lower: bool, without_diagonal: bool = False) -> Any:
    """The matrix with zeros outside of a triangle."""
    dtype = x.dtype if x.dtype.kind == "f" else x.dtype.type(0).real.dtype
    return multiply(x, triangle(*x.shape[-2:], bool(lower), bool(without_diagonal), dtype))


def triangular_kernel(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=True):
    """SciPy's, whose checks take longer than a small system; of stacks too."""
    a, b = np.asarray(a), np.asarray(b)
    batch = check_systems("solve_triangular", a.shape, b.shape)
    if check_finite:
        check_finite_values("solve_triangular", a, b)
    if batch == () and a.dtype is DOUBLE and b.dtype is DOUBLE and b.size:
        return solve_one_triangle(lapack.dtrtrs, a, b, trans, lower, unit_diagonal, 0, ())
    dtype = precise(np.result_type(a, b))
    if not b.size or not prod(batch):
        return np.empty((*batch, *b.shape[-2:]) if b.ndim > 1 else (*batch, *b.shape), dtype)
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    solve, = get_lapack_funcs(("trtrs",), (a, b))
    if not batch:
        return solve_one_triangle(solve, a, b, trans, lower, unit_diagonal, 0, ())
    core = b.shape[-1:] if b.ndim == 1 else b.shape[-2:]
    a = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape((-1, *a.shape[-2:]))
    b = np.broadcast_to(b, (*batch, *core)).reshape((-1, *core))
    result = np.empty(b.shape, dtype)
    for i, (matrix, side) in enumerate(zip(a, b, strict=True)):
        result[i] = solve_one_triangle(solve, matrix, side, trans, lower, unit_diagonal, i, batch)
    return result.reshape((*batch, *core))


def solve_one_triangle(solve, a, b, trans, lower, unit_diagonal, i, batch):
    """The solution of one system; `solve` is LAPACK's trtrs, which wants columns to be contiguous."""
    if (trans == 2 and a.dtype.kind == "c") or a.flags.f_contiguous:
        x, info = solve(a, b, lower=lower, trans=trans, unitdiag=unit_diagonal)
    else:
        x, info = solve(a.T, b, lower=not lower, trans=not trans, unitdiag=unit_diagonal)
    if info > 0:
        raise LinAlgError(named_example("solve_triangular", i, batch,
                                        f"singular matrix: resolution failed at diagonal {info - 1}"))
    return x


def check_systems(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the stack of systems with square matrices; ValueError where their shapes do not match."""
    check_square(name, shape)
    if not other or shape[-1] != other[-1 if len(other) == 1 else -2]:
        raise ValueError(f"{name}: shapes of a {shape} and b {other} are incompatible")
    return () if len(shape) == 2 and len(other) < 3 else broadcast((shape[:-2], other[:-2]))


def triangular_meta(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=True):
    other = shape_of(b)
    batch = check_systems("solve_triangular", shape_of(a), other)
    core = other if len(other) == 1 else other[-2:]
    return MetaArray((*batch, *core), precise(np.result_type(dtype_of(a), dtype_of(b))))


def solved(a, b, trans, lower, unit_diagonal):
    """The solution for right-hand sides that are vectors, in a stack too, if `b` has fewer axes than `a` needs."""
    return triangular(a, b, trans, lower, unit_diagonal, check_finite=False)


def solved_vectors(a, b, trans, lower, unit_diagonal):
    """The same for a `b` whose last axis is a vector, in each of a stack."""
    if b.ndim == 1:
        return solved(a, b, trans, lower, unit_diagonal)
    return solved(a, b[..., None], trans, lower, unit_diagonal)[..., 0]


def triangular_vjp(g, a, result, b_shape, trans, lower, unit_diagonal):
    solve = solved_vectors if len(b_shape) == 1 else solved
    if trans == 2 and is_complex(a):
        of_b = conjugated(solve(a, conjugated(g), 0, lower, unit_diagonal))
    else:
        of_b = solve(a, g, 0 if trans else 1, lower, unit_diagonal)
    left, right = (result, of_b) if trans else (of_b, result)
    of_a = left[..., :, None] * right[..., None, :] if len(b_shape) == 1 else left @ right.mT
    of_a = -in_triangle(of_a, lower, unit_diagonal)
    if trans == 2:
        of_a = conjugated(of_a)
    return sum_to(of_a, tuple(a.shape)), sum_to(of_b, b_shape)


def triangular_jvp_of_a(t, a, result, b_shape, trans, lower, unit_diagonal):
    t = in_triangle(t, lower, unit_diagonal)
    t = t if not trans else t.mT if trans == 1 else adjoint(t)
    if len(b_shape) == 1:
        return -solved_vectors(a, (t @ result[..., None])[..., 0], trans, lower, unit_diagonal)
    return -solved(a, t @ result, trans, lower, unit_diagonal)


def triangular_jvp_of_b(t, a, b_shape, trans, lower, unit_diagonal):
    return (solved_vectors if len(b_shape) == 1 else solved)(a, t, trans, lower, unit_diagonal)


def systems_batch(name):
    """The batching rule of an operator of matrices and right-hand sides."""
    def batch(op, info, in_dims, a, b, *options):
        if rank(a) - (in_dims[0] == 0) < 2 or not rank(b) - (in_dims[1] == 0):
            check_systems(name, *[tuple(getattr(x, "shape", ()))[dim == 0:]
                                  for x, dim in zip((a, b), in_dims, strict=False)])
        return solve_batch(lambda a, b: op(a, b, *options), info, in_dims, a, b)
    return batch


SCIPY.declare(
    "linalg_solve_triangular", "Tensor a, Tensor b, int trans=0, bool lower=False, bool unit_diagonal=False, "
    "bool overwrite_b=False, bool check_finite=True", triangular_kernel, triangular_meta, tags=("linalg",),
    vjp=Joint(triangular_vjp), jvp=(triangular_jvp_of_a, triangular_jvp_of_b), vmap=systems_batch("solve_triangular"))


@FACE.array_function("linalg", operator=(2, 2, ("lower", "unit_diagonal", "check_finite")))
def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False,
                     overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of a triangular system; `b` is never overwritten where the result is a Tensor."""
    return ops.scipy.linalg_solve_triangular(
        as_nonscalar(a), as_nonscalar(b), TRANSPOSITIONS.get(trans, trans), lower, unit_diagonal,
        check_finite=check_finite)


# --- the factors of Cholesky -----------------------------------------------------------------------------------------


def cholesky_of_one(a, lower, clean):
    factor, = get_lapack_funcs(("potrf",), (a,))
    c, info = factor(a, lower=lower, overwrite_a=False, clean=clean)
    if info > 0:
        raise LinAlgError(f"{info}-th leading minor of the array is not positive definite")
    return c


def cholesky_kernel(name, clean):
    stacked = over_stack(cholesky_of_one, name)

    def kernel(a, lower=False, overwrite_a=False, check_finite=True):
        a = np.asarray(a)
        check_square(name, a.shape)
        if check_finite:
            check_finite_values(name, a)
        a = a.astype(precise(a.dtype), copy=False)
        return stacked(a, lower, clean) if a.size else a.copy()
    return kernel


def square_meta(name):
    """The meta kernel of a function from square matrices to matrices of the same shape."""
    def meta(a, *options, **more):
        check_square(name, shape_of(a))
        return MetaArray(shape_of(a), precise(dtype_of(a)))
    return meta


def factor_vjp(g, result, lower):
    """The gradient of a factor; the other triangle holds elements of the matrix, which are taken for constants."""
    return cholesky_vjp(g, in_triangle(result, lower), not lower)


def factor_jvp(t, result, lower):
    return cholesky_jvp(t, in_triangle(result, lower), not lower)


def matrices_batch(name):
    """The batching rule of an operator of one matrix."""
    def batch(op, info, in_dims, a, *options):
        if rank(a) - 1 < 2:
            check_square(name, tuple(a.shape)[1:])
        return stack_batch(op, info, in_dims, a, *options)
    return batch


for name, clean in (("cholesky", True), ("cho_factor", False)):
    SCIPY.declare(
        f"linalg_{name}", "Tensor a, bool lower=False, bool overwrite_a=False, bool check_finite=True",
        cholesky_kernel(name, clean), square_meta(name), tags=("linalg",), vjp=factor_vjp, jvp=factor_jvp,
        vmap=matrices_batch(name))


@FACE.array_function("linalg")
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The triangular factor of a positive definite matrix; its gradient is symmetric."""
    return ops.scipy.linalg_cholesky(as_nonscalar(a), lower, check_finite=check_finite)


@FACE.array_function("linalg")
def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The triangular factor of a positive definite matrix, for `cho_solve`, and which triangle it is in."""
    return ops.scipy.linalg_cho_factor(as_nonscalar(a), lower, check_finite=check_finite), lower


@FACE.array_function("linalg")
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of a system from the factor that `cho_factor` returned."""
    c, lower = as_nonscalar(c_and_lower[0]), bool(c_and_lower[1])
    b = as_nonscalar(b)
    check_systems("cho_solve", tuple(c.shape), tuple(b.shape))
    solve = partial(ops.scipy.linalg_solve_triangular, lower=lower)
    first, second = (0, 2) if lower else (2, 0)
    return solve(c, solve(c, b, first, check_finite=check_finite), second, check_finite=False)


# --- the factors of elimination --------------------------------------------------------------------------------------


def lu_of_one(a):
    factor, = get_lapack_funcs(("getrf",), (a,))
    lu, pivots, info = factor(a)
    if info > 0:
        warnings.warn(f"lu_factor: Diagonal number {info} is exactly zero. Singular matrix.", LinAlgWarning,
                      stacklevel=2)
    return lu, pivots


lu_of_stack = over_stack(lu_of_one, "lu_factor")


def check_matrices(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) < 2:
        raise ValueError(f"{name}: expected a matrix, argument a has shape {shape}")


def lu_kernel(a, overwrite_a=False, check_finite=True):
    a = np.asarray(a)
    check_matrices("lu_factor", a.shape)
    if check_finite:
        check_finite_values("lu_factor", a)
    if not a.size:
        return a.copy(), np.empty((*a.shape[:-2], min(a.shape[-2:])), np.int32)
    return lu_of_stack(a.astype(precise(a.dtype), copy=False))


def lu_meta(a, overwrite_a=False, check_finite=True):
    shape = shape_of(a)
    check_matrices("lu_factor", shape)
    return MetaArray(shape, precise(dtype_of(a))), MetaArray((*shape[:-2], min(shape[-2:])), np.int32)


def row_exchanges_kernel(lu, pivots):
    """The matrix P for which P @ L @ U is the matrix that was factored."""
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
    """The identity of this size with zeros in the first places of its diagonal."""
    dtype = x.dtype.type(0).real.dtype
    return np.diag((np.arange(n) >= first).astype(dtype))


def with_zeros(x: Any, n: int, axis: int) -> Any:
    """The matrix with as many zeros at the end of an axis as make it `n` long."""
    missing = n - x.shape[axis]
    if missing <= 0:
        return x
    shape = list(x.shape)
    shape[axis] = missing
    return ops.np.concatenate([x, ops.np.zeros_like(x, shape=tuple(shape))], axis)


def unpacked(lu: Any) -> tuple[Any, Any]:
    """L and U, both square: of a matrix that is not, one of them is completed with the identity."""
    m, n = lu.shape[-2:]
    below, above = in_triangle(lu, True, True), in_triangle(lu, False)
    if m == n:
        return below + identity_like(lu, m, 0), above
    left = with_zeros(below[..., :, :min(m, n)], m, -1) + identity_like(lu, m, 0)
    return left, with_zeros(above[..., :min(m, n), :], n, -2) + identity_like(lu, n, m)


def lu_vjp(g, pivots, result):
    lower, upper = unpacked(result)
    g = in_triangle(lower.mT @ g, True, True) + in_triangle(g @ upper.mT, False)
    g = solved(lower, g, 1, True, True)
    g = solved(upper, g.mT, 0, False, False).mT
    return row_exchanges(result, pivots) @ g


def lu_jvp(t, pivots, result):
    lower, upper = unpacked(result)
    t = row_exchanges(result, pivots).mT @ t
    t = solved(lower, t, 0, True, True)
    t = solved(upper, t.mT, 1, False, False).mT
    return lower @ in_triangle(t, True, True) + in_triangle(t, False) @ upper


def lu_with_derivative(a, overwrite_a=False, check_finite=True):
    """One factorization; the exchanges are constants, and so is the place of each element of L and U."""
    lu, pivots = constant_lu(a, check_finite=check_finite)
    return lu_of_matrix(a, lu, pivots), pivots


def lu_of_matrix_batch(op, info, in_dims, a, lu, pivots):
    return op(*[batch_of(x, dim, info.batch_size) for x, dim in zip((a, lu, pivots), in_dims, strict=True)]), 0


LU_ENTRIES: dict[str, dict[str, Any]] = {"lu_factor": {"differentiated_as": lu_with_derivative},
                                         "lu_constant": {"differentiable": False}}
for name, entry in LU_ENTRIES.items():
    SCIPY.declare(f"linalg_{name}", "Tensor a, bool overwrite_a=False, bool check_finite=True", lu_kernel, lu_meta,
                  returns="(Tensor, Tensor)", tags=("linalg",), vmap=matrices_batch("lu_factor"), **entry)
SCIPY.declare("linalg_lu_of_matrix", "Tensor a, Tensor lu, Tensor pivots", lambda a, lu, pivots: lu.copy(),
              lambda a, lu, pivots: MetaArray(shape_of(lu), dtype_of(lu)), tags=("linalg",), vjp=lu_vjp, jvp=(lu_jvp,),
              vmap=lu_of_matrix_batch)
SCIPY.declare("linalg_row_exchanges", "Tensor lu, Tensor pivots", row_exchanges_kernel, row_exchanges_meta,
              tags=("linalg",), differentiable=False, vmap=row_exchanges_batch)


@FACE.array_function("linalg")
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """L and U in one matrix, and the exchanges of rows, which are constants."""
    return ops.scipy.linalg_lu_factor(as_nonscalar(a), check_finite=check_finite)


@FACE.array_function("linalg")
def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of a system from what `lu_factor` returned."""
    lu, pivots = map(as_nonscalar, lu_and_piv)
    b = as_nonscalar(b)
    check_systems("lu_solve", tuple(lu.shape), tuple(b.shape))
    solve = partial(ops.scipy.linalg_solve_triangular, lu, trans=trans)
    exchanges = ops.scipy.linalg_row_exchanges(lu, pivots)
    if trans:
        found = solve(b, lower=False, check_finite=check_finite)
        return ops.np.matmul(exchanges, solve(found, lower=True, unit_diagonal=True, check_finite=False))
    found = solve(ops.np.matmul(ops.np.swapaxes(exchanges, -1, -2), b), lower=True, unit_diagonal=True,
                  check_finite=check_finite)
    return solve(found, lower=False, check_finite=False)


@FACE.array_function("linalg")
def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True,
       p_indices: bool = False) -> Any:
    """P, L and U with P @ L @ U = a; P may be the order of rows instead, or multiplied into L. P is a constant."""
    a = as_nonscalar(a)
    m, n = a.shape[-2:] if a.ndim > 1 else (0, 0)
    packed, pivots = ops.scipy.linalg_lu_factor(a, check_finite=check_finite)
    k = min(m, n)
    below = ops.np.getitem(in_triangle(packed, True, True), (..., slice(None, k)))
    lower = ops.np.add(below, np.eye(m, k, dtype=packed.dtype.type(0).real.dtype))
    upper = ops.np.getitem(in_triangle(packed, False), (..., slice(None, k), slice(None)))
    exchanges = ops.scipy.linalg_row_exchanges(packed, pivots)
    if permute_l:
        return ops.np.matmul(exchanges, lower), upper
    if p_indices:
        return ops.np.astype(ops.np.argmax(exchanges, -1), np.dtype(np.int32)), lower, upper
    return exchanges, lower, upper


# --- functions of matrices -------------------------------------------------------------------------------------------


def block_matrix(a, e):
    """a beside e, over zeros beside a."""
    shape = (*broadcast((a.shape[:-2], e.shape[:-2])), *a.shape[-2:])
    n = shape[-1]
    found = np.zeros((*shape[:-2], 2 * n, 2 * n), np.result_type(a, e))
    found[..., :n, :n] = found[..., n:, n:] = a
    found[..., :n, n:] = e
    return found


def block_by_operators(a, e):
    concatenate, zeros_like = ops.np.concatenate, ops.np.zeros_like
    if a.dtype != e.dtype:
        dtype = np.result_type(a.dtype, e.dtype)
        a, e = ops.np.astype(a, dtype), ops.np.astype(e, dtype)
    shape = broadcast((tuple(a.shape), tuple(e.shape)))
    a, e = ops.np.broadcast_to(a, shape), ops.np.broadcast_to(e, shape)
    return concatenate([concatenate([a, e], -1), concatenate([zeros_like(e), a], -1)], -2)


def corner(x, n):
    return x[..., :n, n:]


def direction_kernel(function):
    """The derivative of a function of matrices along a direction: a block of the function of a larger matrix."""
    def kernel(a, e):
        return corner(function(block_matrix(a, e)), a.shape[-1]).copy()
    return kernel


def direction_meta(a, e):
    return MetaArray(broadcast((shape_of(a), shape_of(e))), precise(np.result_type(dtype_of(a), dtype_of(e))))


def stacks_batch(op, info, in_dims, *arrays):
    """A batch of matrices is a stack of them; stacks broadcast."""
    ndim = max(rank(x) - (dim == 0) for x, dim in zip(arrays, in_dims, strict=True))
    for x, dim in zip(arrays, in_dims, strict=True):
        if rank(x) - (dim == 0) < 2:
            check_square(op.name.name, tuple(x.shape)[dim == 0:])
    return op(*[padded(x, ndim) if dim == 0 else x for x, dim in zip(arrays, in_dims, strict=True)]), 0


def matrix_function(name, kernel):
    """Declare a function of matrices, and its derivative along a direction, whose own derivatives are its blocks."""
    along, = SCIPY.operators(f"linalg_{name}_direction")
    of_matrix, = SCIPY.operators(f"linalg_{name}")

    def vjp(g, A):
        found = along(A.mT, g)
        return found if is_complex(A) or not is_complex(found) else found.real

    SCIPY.declare(f"linalg_{name}", "Tensor A", kernel, square_meta(name), tags=("linalg",), vjp=vjp,
                  jvp=lambda t, A: along(A, t), vmap=matrices_batch(name))
    SCIPY.declare(f"linalg_{name}_direction", "Tensor a, Tensor e", direction_kernel(kernel), direction_meta,
                  tags=("linalg",), vmap=stacks_batch,
                  differentiated_as=lambda a, e: corner(of_matrix(block_by_operators(a, e)), a.shape[-1]))


def quietly(function):
    """`function` without warnings."""
    def kernel(a):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(a)
    return kernel


def checked(name, function):
    """The kernel of a function of square matrices, also of integers and of half precision."""
    def kernel(A):
        A = np.asarray(A)
        check_square(name, A.shape, "A")
        return function(A.astype(precise(A.dtype), copy=False)) if A.size else np.empty(A.shape, precise(A.dtype))
    return kernel


matrix_function("expm", checked("expm", linalg.expm))
matrix_function("logm", checked("logm", over_stack(linalg.logm, "logm")))


def sqrtm_vjp(g, A, result):
    found = sylvester(result.mT, result.mT, g)
    return found if is_complex(A) or not is_complex(found) else found.real


SCIPY.declare("linalg_sqrtm", "Tensor A", checked("sqrtm", over_stack(linalg.sqrtm, "sqrtm")), square_meta("sqrtm"),
              tags=("linalg",), vjp=sqrtm_vjp, jvp=lambda t, result: sylvester(result, result, t),
              vmap=matrices_batch("sqrtm"))


def as_square(name: str, A: Any) -> Any:
    """The argument as an array; one element becomes a matrix. ValueError where it is not square."""
    A = as_nonscalar(A)
    if A.ndim < 2 and A.size == 1:
        A = ops.np.reshape(A, (1, 1))
    check_square(name, tuple(A.shape), "A")
    return A


def refuse_error_estimate(name: str, disp: Any) -> None:
    if disp is False:
        raise NotImplementedError(f"{name} of a Tensor has no error estimate\nleave out disp=False")


@FACE.array_function("linalg")
def expm(A: Any) -> Any:
    """The exponential of a matrix."""
    return ops.scipy.linalg_expm(as_square("expm", A))


def sqrtm(A: Any, disp: Any = None, blocksize: Any = None) -> Any:
    """The principal square root of a matrix; complex where SciPy's is."""
    refuse_error_estimate("sqrtm", disp)
    return ops.scipy.linalg_sqrtm(as_square("sqrtm", A))


def logm(A: Any, disp: Any = None) -> Any:
    """The principal logarithm of a matrix; complex where SciPy's is."""
    refuse_error_estimate("logm", disp)
    return ops.scipy.linalg_logm(as_square("logm", A))


# --- the equation of Sylvester ---------------------------------------------------------------------------------------


def check_sylvester(a, b, q):
    check_square("solve_sylvester", a)
    check_square("solve_sylvester", b, "b")
    if len(q) < 2 or q[-2:] != (a[-1], b[-1]):
        raise ValueError(f"solve_sylvester: argument q has shape {q}, expected (..., {a[-1]}, {b[-1]}) beside "
                         f"a and b of shapes {a} and {b}")
    return broadcast((a[:-2], b[:-2], q[:-2]))


def sylvester_kernel(a, b, q):
    batch = check_sylvester(a.shape, b.shape, q.shape)
    dtype = precise(np.result_type(a, b, q))
    result = np.empty((*batch, *q.shape[-2:]), dtype)
    if not result.size:
        return result
    stacks = [np.broadcast_to(x.astype(dtype, copy=False), (*batch, *x.shape[-2:])).reshape((-1, *x.shape[-2:]))
              for x in (a, b, q)]
    for i, (row, *each) in enumerate(zip(result.reshape((-1, *q.shape[-2:])), *stacks, strict=True)):
        try:
            row[...] = linalg.solve_sylvester(*each)
        except (LinAlgError, ValueError) as error:
            raise type(error)(named_example("solve_sylvester", i, batch, str(error))) from error
    return result


def sylvester_meta(a, b, q):
    batch = check_sylvester(shape_of(a), shape_of(b), shape_of(q))
    return MetaArray((*batch, *shape_of(q)[-2:]), precise(np.result_type(*map(dtype_of, (a, b, q)))))


def sylvester_vjp(g, a, b, q_shape, result):
    of_q = sylvester(a.mT, b.mT, g)
    return (sum_to(-(of_q @ result.mT), tuple(a.shape)), sum_to(-(result.mT @ of_q), tuple(b.shape)),
            sum_to(of_q, q_shape))


SCIPY.declare("linalg_solve_sylvester", "Tensor a, Tensor b, Tensor q", sylvester_kernel, sylvester_meta,
              tags=("linalg",), vjp=Joint(sylvester_vjp), vmap=stacks_batch,
              jvp=(lambda t, a, b, result: -sylvester(a, b, t @ result),
                   lambda t, a, b, result: -sylvester(a, b, result @ t),
                   lambda t, a, b: sylvester(a, b, t)))
FACE.declare_operator("linalg.solve_sylvester", 3, 3)


# --- structured matrices ---------------------------------------------------------------------------------------------


@FACE.array_function("linalg")
def block_diag(*arrs: Any) -> Any:
    """The matrix with these blocks along its diagonal, zeros elsewhere; vectors are rows, stacks broadcast."""
    blocks = [as_nonscalar(x) for x in arrs]
    blocks = [x if x.ndim > 1 else ops.np.reshape(x, (1, -1)) for x in blocks]
    batch = broadcast([tuple(x.shape[:-2]) for x in blocks])
    width = sum(x.shape[-1] for x in blocks)
    dtype = np.result_type(*[x.dtype for x in blocks])
    rows, before = [], 0
    for x in blocks:
        n, m = tuple(x.shape[-2:])
        x = ops.np.broadcast_to(x if x.dtype == dtype else ops.np.astype(x, dtype), (*batch, n, m))
        zeros = [ops.np.zeros_like(x, shape=(*batch, n, k)) for k in (before, width - before - m)]
        rows.append(ops.np.concatenate([zeros[0], x, zeros[1]], -1))
        before += m
    return ops.np.concatenate(rows, -2)


@FACE.array_function("linalg")
def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix whose diagonals are constant, from its first column and its first row."""
    c = as_nonscalar(c)
    c = c if c.ndim else ops.np.reshape(c, (1,))
    r = ops.np.conjugate(c) if r is None else as_nonscalar(r)
    r = r if r.ndim else ops.np.reshape(r, (1,))
    n, m = c.shape[-1], r.shape[-1]
    batch = broadcast((tuple(c.shape[:-1]), tuple(r.shape[:-1])))
    dtype = np.result_type(c.dtype, r.dtype)
    parts = [ops.np.broadcast_to(x if x.dtype == dtype else ops.np.astype(x, dtype), (*batch, x.shape[-1]))
             for x in (ops.np.flip(c, -1), ops.np.getitem(r, (..., slice(1, None))))]
    place = np.arange(n - 1, -1, -1)[:, None] + np.arange(m)
    return ops.np.take(ops.np.concatenate(parts, -1), place, -1)


# --- functions that NumPy has too ------------------------------------------------------------------------------------


def finite_squares(name, a, check_finite):
    """The argument as an array of square matrices in the precision of LAPACK, once it is checked."""
    a = np.asarray(a)
    check_square(name, a.shape)
    if check_finite:
        check_finite_values(name, a)
    return a.astype(precise(a.dtype), copy=False)


def inv_kernel(a, check_finite=True):
    a = finite_squares("inv", a, check_finite)
    try:
        return np.linalg.inv(a)
    except LinAlgError:
        return over_stack(np.linalg.inv, "inv")(a)      # which finds the matrix


def det_kernel(a, check_finite=True):
    return np.linalg.det(finite_squares("det", a, check_finite))


def solve_kernel(a, b, check_finite=True):
    a, b = finite_squares("solve", a, check_finite), np.asarray(b)
    check_systems("solve", a.shape, b.shape)
    if check_finite:
        check_finite_values("solve", b)
    dtype = precise(np.result_type(a, b))
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    try:
        return np.linalg.solve(a, b)
    except LinAlgError:
        over_stack(np.linalg.inv, "solve")(a)
        raise


def solve_meta(a, b, check_finite=True):
    other = shape_of(b)
    batch = check_systems("solve", shape_of(a), other)
    return MetaArray((*batch, *(other if len(other) == 1 else other[-2:])),
                     precise(np.result_type(dtype_of(a), dtype_of(b))))


def det_meta(a, check_finite=True):
    check_square("det", shape_of(a))
    return MetaArray(shape_of(a)[:-2], precise(dtype_of(a)))


SCIPY.declare("linalg_inv", "Tensor a, bool check_finite=True", inv_kernel, square_meta("inv"), tags=("linalg",),
              vjp=lambda g, result: -(result.mT @ g @ result.mT), jvp=lambda t, result: -(result @ t @ result),
              vmap=matrices_batch("inv"))
SCIPY.declare("linalg_det", "Tensor a, bool check_finite=True", det_kernel, det_meta, tags=("linalg",),
              vjp=lambda g, a: g[..., None, None] * cofactor(a), jvp=lambda t, a: (cofactor(a) * t).sum((-2, -1)),
              vmap=matrices_batch("det"))
SCIPY.declare("linalg_solve", "Tensor a, Tensor b, bool check_finite=True", solve_kernel, solve_meta, tags=("linalg",),
              vjp=Joint(solve_vjp), vmap=systems_batch("solve"), jvp=(
                  solve_jvp_of_a, lambda t, a, b_shape: solve_of_vectors(a, t) if len(b_shape) == 1 else regular(a, t)))


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True, *, assume_a: Any = None,
        lower: bool = False) -> Any:
    """The inverse of a matrix, from all of its elements whatever `assume_a` says."""
    check_structure("inv", assume_a)
    return ops.scipy.linalg_inv(as_nonscalar(a), check_finite)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant of a matrix, always in double precision."""
    a = as_nonscalar(a)
    if a.dtype.char in "fF":
        a = ops.np.astype(a, np.dtype(np.complex128 if a.dtype.kind == "c" else np.float64))
    return ops.scipy.linalg_det(a, check_finite)


STRUCTURES = frozenset((
    None, "general", "gen", "diagonal", "tridiagonal", "banded", "upper triangular", "lower triangular", "pos",
    "positive definite", "sym", "symmetric", "her", "hermitian"))


def check_structure(name: str, assume_a: Any) -> None:
    if assume_a not in STRUCTURES:
        raise ValueError(f"{name}: {assume_a} is not a recognized matrix structure")


def solve(a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
          check_finite: bool = True, assume_a: Any = None, transposed: bool = False) -> Any:
    """The solution of a system; `assume_a` may say that the matrix is positive definite or triangular."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    check_structure("solve", assume_a)
    check_systems("solve", tuple(a.shape), tuple(b.shape))
    if assume_a in ("pos", "positive definite"):
        return cho_solve(cho_factor(a, lower, check_finite=check_finite), b, check_finite=check_finite)
    if assume_a in ("upper triangular", "lower triangular"):
        return ops.scipy.linalg_solve_triangular(a, b, int(transposed), assume_a.startswith("lower"),
                                                 check_finite=check_finite)
    return ops.scipy.linalg_solve(ops.np.swapaxes(a, -1, -2) if transposed else a, b, check_finite)


for function in (inv, det, solve, sqrtm, logm):     # whose signatures differ between versions of SciPy
    FACE.array_function("linalg")(function).__dict__["__wrapped__"] = getattr(linalg, function.__name__)


SCIPY.install("linalg")
globals().update({name.removeprefix("linalg."): function for name, function in FACE.functions.items()
                  if name.startswith("linalg.")})
