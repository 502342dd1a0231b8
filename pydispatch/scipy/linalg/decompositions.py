"""Eigenvalues, singular values, orthogonal factors, least squares, and matrices made of vectors."""

# tests: tests/scipy/test_functions.py
from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from pydispatch.func.values import all_as_passed
from pydispatch.numpy import linalg as numpys
from pydispatch.numpy.declare import as_nonscalar, known_values, read_off
from pydispatch.operators.decompositions import eigh_jvp, eigh_vjp, meta_on_stacks
from pydispatch.ops import ops
from pydispatch.scipy.batches import by_example_if_needed
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.linalg.functions import as_square
from pydispatch.scipy.linalg.structured import toeplitz
from pydispatch.scipy.pack import FACE, SCIPY

cholesky, eigh_of, expm_direction, solve_triangular, tridiagonal_of = SCIPY.operators(
    "linalg_cholesky", "linalg_eigh", "linalg_expm_direction", "linalg_solve_triangular", "linalg_eigh_of_tridiagonal")


def refuse_options(name: str, **options: Any) -> None:
    """Raise NotImplementedError for options whose results have no derivative here."""
    for option, value in options.items():
        if value:
            raise NotImplementedError(f"linalg.{name}: {option}={value!r} is not supported for Tensors\n"
                                      f"leave out {option}, or pass an array")


# --- eigenvalues -----------------------------------------------------------------------------------------------------


def eigh_kernel(a: Any, lower: bool = True, check_finite: bool = True) -> Any:
    arguments.check_square("eigh", a.shape)
    if check_finite:
        arguments.check_finite_values("eigh", a)
    a = a.astype(arguments.precise(a.dtype), copy=False)
    if not a.size:
        return np.empty(a.shape[:-1], a.real.dtype), np.empty_like(a)
    return arguments.over_stack(lambda a: linalg.eigh(a, lower=lower, check_finite=False), "eigh")(a)


SCIPY.declare("linalg_eigh", "Tensor a, bool lower=True, bool check_finite=True", eigh_kernel,
              meta_on_stacks(eigh_kernel), returns="(Tensor, Tensor)", tags=("linalg",), jvp=eigh_jvp,
              vjp=lambda g, a, result, lower: eigh_vjp(g, a, result, "L" if lower else "U"),
              vmap=arguments.matrices_batch("eigh"))


@FACE.array_function("linalg")
def eigh(a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
         overwrite_b: bool = False, type: int = 1, check_finite: bool = True, subset_by_index: Any = None,
         subset_by_value: Any = None, driver: Any = None) -> Any:
    """Compute eigenvalues and eigenvectors of a Hermitian matrix, of `b` too by its triangular factor."""
    refuse_options("eigh", subset_by_value=subset_by_value is not None)
    a = as_square("eigh", a)
    factor = None
    if b is not None:
        factor = cholesky(as_square("eigh", b), lower=True)
        a = reduced(hermitian(a, lower), factor, type)
    values, vectors = eigh_of(a, bool(lower), bool(check_finite))
    if subset_by_index is not None:
        first, last = subset_by_index
        values = ops.np.getitem(values, (..., slice(first, last + 1)))
        vectors = ops.np.getitem(vectors, (..., slice(first, last + 1)))
    if eigvals_only:
        return values
    if factor is None:
        return values, vectors
    return values, (ops.np.matmul(factor, vectors) if type == 3 else
                    solve_triangular(factor, vectors, trans=2, lower=True))


def hermitian(a: Any, lower: bool) -> Any:
    """Return the Hermitian matrix given by the triangle that is read."""
    return arguments.in_triangle(a, lower) + ops.np.conjugate(arguments.in_triangle(a, lower, True)).mT


def reduced(a: Any, factor: Any, type: int) -> Any:
    """Return the matrix whose eigenvalues are those of `a` and of the matrix with this factor."""
    if type == 1:
        left = solve_triangular(factor, a, lower=True)
        return ops.np.conjugate(solve_triangular(factor, ops.np.conjugate(left).mT, lower=True)).mT
    return ops.np.matmul(ops.np.matmul(ops.np.conjugate(factor).mT, a), factor)


@FACE.array_function("linalg")
def eigvalsh(a: Any, b: Any = None, *, lower: bool = True, overwrite_a: bool = False, overwrite_b: bool = False,
             type: int = 1, check_finite: bool = True, subset_by_index: Any = None, subset_by_value: Any = None,
             driver: Any = None) -> Any:
    """Compute eigenvalues of a Hermitian matrix."""
    return eigh(a, b, lower=lower, eigvals_only=True, type=type, check_finite=check_finite,
                subset_by_index=subset_by_index, subset_by_value=subset_by_value)


@FACE.array_function("linalg")
def eig(a: Any, b: Any = None, left: bool = False, right: bool = True, overwrite_a: bool = False,
        overwrite_b: bool = False, check_finite: bool = True, homogeneous_eigvals: bool = False) -> Any:
    """Compute eigenvalues, always complex, and right eigenvectors."""
    refuse_options("eig", left=left, homogeneous_eigvals=homogeneous_eigvals, b=b is not None)
    values, vectors = ops.np.linalg_eig(as_square("eig", a))
    return (values, vectors) if right else values


@FACE.array_function("linalg")
def eigvals(a: Any, b: Any = None, overwrite_a: bool = False, check_finite: bool = True,
            homogeneous_eigvals: bool = False) -> Any:
    """Compute eigenvalues, always complex."""
    refuse_options("eigvals", homogeneous_eigvals=homogeneous_eigvals, b=b is not None)
    return ops.np.linalg_eigvals(as_square("eigvals", a))


# --- singular values, orthogonal factors -----------------------------------------------------------------------------


@FACE.array_function("linalg")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
        check_finite: bool = True, lapack_driver: str = "gesdd") -> Any:
    """Compute singular values and vectors."""
    if not compute_uv:
        return ops.np.linalg_svdvals(as_nonscalar(a))
    return tuple(ops.np.linalg_svd(as_nonscalar(a), bool(full_matrices)))


@FACE.array_function("linalg")
def svdvals(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Compute singular values."""
    return ops.np.linalg_svdvals(as_nonscalar(a))


MODES = {"full": "complete", "economic": "reduced", "r": "complete"}


@FACE.array_function("linalg")
def qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False,
       check_finite: bool = True) -> Any:
    """Compute an orthogonal and a triangular factor."""
    if pivoting:
        return by_example_if_needed(qr_with_pivots, (as_nonscalar(a), mode), {})
    if mode not in MODES:
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic', 'raw']" if mode != "raw" else
                         "linalg.qr: mode='raw' is LAPACK's own form, which Tensors lack")
    q, r = ops.np.linalg_qr(as_nonscalar(a), MODES[mode])
    return (r,) if mode == "r" else (q, r)


def qr_with_pivots(a: Any, mode: str) -> Any:
    """Compute the factors of a matrix in the order of columns that SciPy chooses, and return that order too."""
    order = linalg.qr(read_off(a), mode="r", pivoting=True)[-1]
    return *qr(ops.np.take(a, order, -1), mode=mode), *all_as_passed((order,), (a,))


@FACE.array_function("linalg")
def pinv(a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False, check_finite: bool = True) -> Any:
    """Compute the pseudo-inverse. Singular values below `rtol` times the largest count as 0."""
    refuse_options("pinv", atol=atol, return_rank=return_rank)
    a = as_nonscalar(a)
    return ops.np.linalg_pinv(a, max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else rtol)


@FACE.array_function("linalg")
def pinvh(a: Any, atol: Any = None, rtol: Any = None, lower: bool = True, return_rank: bool = False,
          check_finite: bool = True) -> Any:
    """Compute the pseudo-inverse of a Hermitian matrix."""
    refuse_options("pinvh", atol=atol, return_rank=return_rank)
    a = hermitian(as_square("pinvh", a), lower)
    return ops.np.linalg_pinv(a, max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else rtol, True)


@FACE.array_function("linalg")
def lstsq(a: Any, b: Any, cond: Any = None, overwrite_a: bool = False, overwrite_b: bool = False,
          check_finite: bool = True, lapack_driver: Any = None) -> Any:
    """Solve by least squares. Return the solution, the residuals, the rank and the singular values."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    x, residuals, rank, values = numpys.lstsq(a, b, np.finfo(a.dtype).eps if cond is None else cond)
    known = known_values(rank)
    if b.ndim == 1 and residuals.shape == (1,):
        residuals = ops.np.getitem(residuals, 0)
    return x, residuals, rank if known is None else int(known), values


@FACE.array_function("linalg")
def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True) -> Any:
    """Compute a norm of a vector or matrix."""
    return numpys.norm(as_nonscalar(a), ord, axis, keepdims)


def in_double(x: Any) -> Any:
    """Convert an array to double precision, in which SciPy computes some results."""
    return ops.np.astype(x, np.result_type(x.dtype, np.float64), copy=False)


# --- matrices made of others -----------------------------------------------------------------------------------------


@FACE.array_function("linalg")
def expm_frechet(A: Any, E: Any, method: Any = None, compute_expm: bool = True, check_finite: bool = True) -> Any:
    """Compute the exponential of a matrix, and its derivative along a direction, in double precision."""
    A, E = in_double(as_square("expm_frechet", A)), in_double(as_square("expm_frechet", E))
    along = expm_direction(A, E)
    return (ops.scipy.linalg_expm(A), along) if compute_expm else along


@FACE.array_function("linalg")
def circulant(c: Any) -> Any:
    """Return a matrix whose columns are a vector, each moved down by one."""
    c = as_nonscalar(c)
    n = c.shape[-1]
    return ops.np.take(c, (np.arange(n)[:, None] - np.arange(n)) % n, -1)


@FACE.array_function("linalg")
def hankel(c: Any, r: Any = None) -> Any:
    """Return a matrix with constant antidiagonals, from its first column and its last row."""
    c = ops.np.ravel(as_nonscalar(c))
    r = ops.np.zeros_like(c) if r is None else ops.np.ravel(as_nonscalar(r))
    vector = ops.np.concatenate([c, ops.np.getitem(r, slice(1, None))])
    return ops.np.take(vector, np.arange(c.shape[0])[:, None] + np.arange(r.shape[0]))


# --- equations with structured matrices ------------------------------------------------------------------------------


@FACE.array_function("linalg")
def solve_continuous_lyapunov(a: Any, q: Any) -> Any:
    """Solve a x + x a^H = q."""
    a = as_square("solve_continuous_lyapunov", a)
    return ops.scipy.linalg_solve_sylvester(a, ops.np.conjugate(a).mT, as_square("solve_continuous_lyapunov", q))


def column_and_row(c_or_cr: Any) -> tuple[Any, Any]:
    """Return the first column and row of a Toeplitz matrix, whose row is the conjugate of the column by default."""
    column, row = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    column = in_double(ops.np.ravel(as_nonscalar(column)))
    return column, ops.np.conjugate(column) if row is None else in_double(ops.np.ravel(as_nonscalar(row)))


@FACE.array_function("linalg")
def solve_toeplitz(c_or_cr: Any, b: Any, check_finite: bool = True) -> Any:
    """Solve a system with a Toeplitz matrix. For Tensors, by the full matrix."""
    return ops.np.linalg_solve(toeplitz(*column_and_row(c_or_cr)), in_double(as_nonscalar(b)))


@FACE.array_function("linalg")
def matmul_toeplitz(c_or_cr: Any, x: Any, check_finite: bool = False, workers: Any = None) -> Any:
    """Multiply by a Toeplitz matrix. For Tensors, by the full matrix."""
    return ops.np.matmul(toeplitz(*column_and_row(c_or_cr)), in_double(as_nonscalar(x)))


def tridiagonal_kernel(a: Any) -> Any:
    """Compute the eigenvalues and eigenvectors of symmetric matrices of which only three diagonals are not zero."""
    if not a.size:
        return np.empty(a.shape[:-1]), np.empty(a.shape)
    return arguments.over_stack(lambda a: linalg.eigh_tridiagonal(np.diagonal(a), np.diagonal(a, -1)),
                                "eigh_tridiagonal")(a)


SCIPY.declare("linalg_eigh_of_tridiagonal", "Tensor a", tridiagonal_kernel, meta_on_stacks(tridiagonal_kernel),
              returns="(Tensor, Tensor)", tags=("linalg",), jvp=eigh_jvp,
              vjp=lambda g, a, result: eigh_vjp(g, a, result, "L"), vmap=arguments.matrices_batch("eigh_tridiagonal"))


@FACE.array_function("linalg")
def eigh_tridiagonal(d: Any, e: Any, eigvals_only: bool = False, select: str = "a", select_range: Any = None,
                     check_finite: bool = True, tol: float = 0.0, lapack_driver: str = "auto") -> Any:
    """Compute eigenvalues and eigenvectors of a real symmetric tridiagonal matrix. For Tensors, all of them."""
    refuse_options("eigh_tridiagonal", select=select in (1, "v", "value") and select)
    d, e = as_nonscalar(d), as_nonscalar(e)
    n = d.shape[-1]
    above = ops.np.multiply(ops.np.expand_dims(e, -1), np.eye(n - 1, n, 1, dtype=d.dtype))
    half = ops.np.concatenate([above, ops.np.zeros_like(d, shape=(1, n))])
    full = ops.np.add(ops.np.multiply(d, np.eye(n, dtype=d.dtype)), ops.np.add(half, ops.np.transpose(half)))
    found = tridiagonal_of(full)
    if select not in (0, "a", "all"):
        found = [ops.np.getitem(x, (..., slice(select_range[0], select_range[1] + 1))) for x in found]
    return found[0] if eigvals_only else tuple(found)


@FACE.array_function("linalg")
def eigvalsh_tridiagonal(d: Any, e: Any, select: str = "a", select_range: Any = None, check_finite: bool = True,
                         tol: float = 0.0, lapack_driver: str = "auto") -> Any:
    """Compute eigenvalues of a real symmetric tridiagonal matrix."""
    return eigh_tridiagonal(d, e, True, select, select_range)
