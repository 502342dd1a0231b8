"""Triangular systems, and Cholesky factors."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
import scipy
from scipy.linalg import LinAlgError, blas
from scipy.linalg.blas import get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from pydispatch._core import MetaArray, sum_to
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.decompositions import DOUBLE, cholesky_jvp, cholesky_vjp, is_complex
from pydispatch.operators.linalg import adjoint, conjugated
from pydispatch.operators.meta import dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.pack import FACE, SCIPY

triangular, = SCIPY.operators("linalg_solve_triangular")


TRANSPOSITIONS = {"N": 0, "T": 1, "C": 2}


def triangular_kernel(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=True,
                      is_factor=False):
    """Solve triangular systems, also in stacks, without SciPy's checks, which take longer than a small system.

    For factors, SciPy ignores zeros on a diagonal, so that results are infinite or nan.
    """
    unchecked = unit_diagonal or is_factor
    a, b = np.asarray(a), np.asarray(b)
    batch = arguments.check_systems("solve_triangular", a.shape, b.shape)
    if check_finite:
        arguments.check_finite_values("solve_triangular", a, b)
    if batch == () and a.dtype is DOUBLE and b.dtype is DOUBLE and b.size:
        return solve_one_triangle(blas.dtrsm, a, b, trans, lower, unit_diagonal, unchecked, 0, ())
    dtype = arguments.precise(np.result_type(a, b))
    if not b.size or not prod(batch):
        return np.empty((*batch, *b.shape[-2:]) if b.ndim > 1 else (*batch, *b.shape), dtype)
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    solve, = get_blas_funcs(("trsm",), (a, b))
    if not batch:
        return solve_one_triangle(solve, a, b, trans, lower, unit_diagonal, unchecked, 0, ())
    core = b.shape[-1:] if b.ndim == 1 else b.shape[-2:]
    a = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape((-1, *a.shape[-2:]))
    b = np.broadcast_to(b, (*batch, *core)).reshape((-1, *core))
    result = np.empty(b.shape, dtype)
    for i, (matrix, side) in enumerate(zip(a, b, strict=True)):
        result[i] = solve_one_triangle(solve, matrix, side, trans, lower, unit_diagonal, unchecked, i, batch)
    return result.reshape((*batch, *core))


def solve_one_triangle(solve, a, b, trans, lower, unit_diagonal, unchecked, i, batch):
    """Solve one system by BLAS's trsm, which requires contiguous columns.

    LAPACK's trtrs, which SciPy calls, starts threads for the smallest system.
    """
    if not unchecked and not (diagonal := a.diagonal()).all():
        zero = int((diagonal == 0).argmax())
        raise LinAlgError(arguments.named_example("solve_triangular", i, batch,
                                                  f"singular matrix: resolution failed at diagonal {zero}"))
    columns = b[:, None] if b.ndim == 1 else b
    if (trans == 2 and a.dtype.kind == "c") or a.flags.f_contiguous:
        x = solve(1, a, columns, lower=lower, trans_a=trans, diag=unit_diagonal)
    else:
        x = solve(1, a.T, columns, lower=not lower, trans_a=not trans, diag=unit_diagonal)
    return x[:, 0] if b.ndim == 1 else x


def triangular_meta(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=True,
                    is_factor=False):
    other = shape_of(b)
    batch = arguments.check_systems("solve_triangular", shape_of(a), other)
    core = other if len(other) == 1 else other[-2:]
    return MetaArray((*batch, *core), arguments.precise(np.result_type(dtype_of(a), dtype_of(b))))


def solved(a, b, trans, lower, unit_diagonal, is_factor=False):
    """Solve without a check of values. Right-hand sides are vectors, also stacked, if `b` has fewer axes than `a`."""
    return triangular(a, b, trans, lower, unit_diagonal, check_finite=False, is_factor=is_factor)


def solved_vectors(a, b, trans, lower, unit_diagonal, is_factor):
    """Solve for a `b` whose last axis is a vector, in each system of a stack."""
    if b.ndim == 1:
        return solved(a, b, trans, lower, unit_diagonal, is_factor)
    return solved(a, b[..., None], trans, lower, unit_diagonal, is_factor)[..., 0]


def triangular_vjp(g, a, result, b_shape, trans, lower, unit_diagonal, is_factor):
    solve = solved_vectors if len(b_shape) == 1 else solved
    if trans == 2 and is_complex(a):
        of_b = conjugated(solve(a, conjugated(g), 0, lower, unit_diagonal, is_factor))
    else:
        of_b = solve(a, g, 0 if trans else 1, lower, unit_diagonal, is_factor)
    left, right = (result, of_b) if trans else (of_b, result)
    of_a = left[..., :, None] * right[..., None, :] if len(b_shape) == 1 else left @ right.mT
    of_a = -arguments.in_triangle(of_a, lower, unit_diagonal)
    if trans == 2:
        of_a = conjugated(of_a)
    return sum_to(of_a, tuple(a.shape)), sum_to(of_b, b_shape)


def triangular_jvp_of_a(t, a, result, b_shape, trans, lower, unit_diagonal, is_factor):
    t = arguments.in_triangle(t, lower, unit_diagonal)
    t = t if not trans else t.mT if trans == 1 else adjoint(t)
    if len(b_shape) == 1:
        return -solved_vectors(a, (t @ result[..., None])[..., 0], trans, lower, unit_diagonal, is_factor)
    return -solved(a, t @ result, trans, lower, unit_diagonal, is_factor)


def triangular_jvp_of_b(t, a, b_shape, trans, lower, unit_diagonal, is_factor):
    return (solved_vectors if len(b_shape) == 1 else solved)(a, t, trans, lower, unit_diagonal, is_factor)


SCIPY.declare(
    "linalg_solve_triangular", "Tensor a, Tensor b, int trans=0, bool lower=False, bool unit_diagonal=False, "
    "bool overwrite_b=False, bool check_finite=True, bool is_factor=False", triangular_kernel, triangular_meta,
    tags=("linalg",), vjp=Joint(triangular_vjp), jvp=(triangular_jvp_of_a, triangular_jvp_of_b),
    vmap=arguments.systems_batch("solve_triangular"))


@FACE.array_function("linalg", operator=(2, 2, ("lower", "unit_diagonal", "check_finite")))
def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False,
                     overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Solve a triangular system. `b` is never overwritten if the result is a Tensor."""
    return ops.scipy.linalg_solve_triangular(
        as_nonscalar(a), as_nonscalar(b), TRANSPOSITIONS.get(trans, trans), lower, unit_diagonal,
        check_finite=check_finite)


# --- Cholesky factors ------------------------------------------------------------------------------------------------


def cholesky_of_one(a, lower, clean):
    factor, = get_lapack_funcs(("potrf",), (a,))
    c, info = factor(a, lower=lower, overwrite_a=False, clean=clean)
    if info > 0:
        raise LinAlgError(f"{info}-th leading minor of the array is not positive definite")
    return c


def cholesky_kernel(name, clean):
    stacked = arguments.over_stack(cholesky_of_one, name)

    def kernel(a, lower=False, overwrite_a=False, check_finite=True):
        a = np.asarray(a)
        arguments.check_square(name, a.shape)
        if check_finite:
            arguments.check_finite_values(name, a)
        a = a.astype(arguments.precise(a.dtype), copy=False)
        if a.ndim > 2 and clean:
            try:
                return np.linalg.cholesky(a, upper=not lower)
            except LinAlgError:
                pass                # the loop names the matrix
        return stacked(a, lower, clean) if a.size else a.copy()
    return kernel


def factor_vjp(g, result, lower):
    """Return the gradient of a factor. The other triangle holds elements of the matrix and is treated as constant."""
    return cholesky_vjp(g, arguments.in_triangle(result, lower), not lower)


def factor_jvp(t, result, lower):
    return cholesky_jvp(t, arguments.in_triangle(result, lower), not lower)


IS_CLEAN = np.lib.NumpyVersion(scipy.__version__) >= "1.18.0"   # whether the other triangle of `cho_factor` is zero
for name, clean in (("cholesky", True), ("cho_factor", IS_CLEAN)):
    SCIPY.declare(
        f"linalg_{name}", "Tensor a, bool lower=False, bool overwrite_a=False, bool check_finite=True",
        cholesky_kernel(name, clean), arguments.square_meta(name), tags=("linalg",), vjp=factor_vjp, jvp=factor_jvp,
        vmap=arguments.matrices_batch(name))


@FACE.array_function("linalg")
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the triangular factor of a positive definite matrix. Its gradient is symmetric."""
    return ops.scipy.linalg_cholesky(as_nonscalar(a), lower, check_finite=check_finite)


@FACE.array_function("linalg")
def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the triangular factor of a positive definite matrix, for `cho_solve`, and whether it is the lower one."""
    return ops.scipy.linalg_cho_factor(as_nonscalar(a), lower, check_finite=check_finite), lower


@FACE.array_function("linalg")
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Solve a system from the result of `cho_factor`."""
    c, lower = as_nonscalar(c_and_lower[0]), bool(c_and_lower[1])
    b = as_nonscalar(b)
    arguments.check_systems("cho_solve", tuple(c.shape), tuple(b.shape))
    if b.ndim < 2 < c.ndim:
        return arguments.of_column(lambda b: cho_solve((c, lower), b, check_finite=check_finite), b)
    solve = partial(ops.scipy.linalg_solve_triangular, lower=lower, is_factor=True)
    first, second = (0, 2) if lower else (2, 0)
    return solve(c, solve(c, b, first, check_finite=check_finite), second, check_finite=False)
