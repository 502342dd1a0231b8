"""Factors of matrices, and solutions of Riccati's equations, whose derivatives follow from the equations they solve.

SciPy computes the values. Each equation is one of as many numbers as there are unknowns.
"""

# tests: tests/scipy/test_functions.py
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy import linalg

from pydispatch.func.values import all_as_passed
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.numpy.declare import as_nonscalar, read_off
from pydispatch.numpy.linalg import matrix_power
from pydispatch.ops import ops
from pydispatch.scipy.batches import by_example_if_needed
from pydispatch.scipy.implicit import LIMITS, REMEDIES, implicit_operator
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.linalg.banded import solve_banded, transposed
from pydispatch.scipy.linalg.decompositions import eigvalsh, hermitian, in_double, qr, refuse_options
from pydispatch.scipy.linalg.functions import as_square, expm, logm
from pydispatch.scipy.pack import FACE


def no_loops(*args: Any) -> Any:
    raise NotImplementedError


@cache
def equation(name: str) -> HigherOrderOperator:
    """Return the operator of a function, for its errors. It takes the residual, arrays and how to solve."""
    name = f"linalg.{name}"
    REMEDIES[name] = "the result is not a smooth function of the matrix, for example if eigenvalues are equal"
    LIMITS[name] = "change the matrix"
    return implicit_operator(name, lambda residual, n: residual,
                             lambda residual, x0, args, options: options["solve"](*args), no_loops)


def solved(name: str, solve: Callable[..., Any], residual: Callable[..., Any], shapes: Any, *args: Any) -> Any:
    """Return the unknowns of these shapes that `solve` computes from arrays. They are roots of the residual."""
    for each in args:
        if each.dtype.kind == "c" or each.ndim != 2:
            raise NotImplementedError(f"linalg.{name}: found a Tensor of dtype {each.dtype} and shape {each.shape}, "
                                      "expected a matrix of real numbers\nuse vmap for stacks, or pass an array")
    args = tuple(map(in_double, args))
    x0 = tuple([np.zeros(shape) for shape in shapes])
    return all_as_passed(equation(name)(residual, x0, args, (), {"solve": solve}), args)


def factors(name: str, solve: Callable[..., Any], residual: Callable[..., Any], a: Any) -> tuple[Any, ...]:
    """Return two square factors of a matrix in its precision."""
    dtype = arguments.precise(a.dtype)
    return tuple([x if x.dtype == dtype else ops.np.astype(x, dtype)
                  for x in solved(name, lambda a: solve(a.astype(dtype)), residual, (a.shape,) * 2, a)])


def triangles(lower: Any, upper: Any) -> Any:
    """Return a matrix with the elements of one below its diagonal, and those of the other elsewhere."""
    return ops.np.where(np.tri(upper.shape[-1], k=-1, dtype=bool), lower, upper)


# --- factors ---------------------------------------------------------------------------------------------------------


@FACE.array_function("linalg")
def schur(a: Any, output: str = "real", lwork: Any = None, overwrite_a: bool = False, sort: Any = None,
          check_finite: bool = True) -> Any:
    """Compute the triangular form of a real matrix, with blocks of size 2, and its orthogonal factor."""
    refuse_options("schur", output=output not in ("real", "r") and output, sort=sort)
    a = as_square("schur", a)

    def residual(t: Any, z: Any, a: Any) -> Any:
        diagonal = ops.np.diagonal(t)
        in_block = diagonal - ops.np.expand_dims(diagonal, -1)
        return (a @ z - z @ t,
                triangles(ops.np.where(ops.np.not_equal(t, 0), in_block, t), z.mT @ z - np.eye(t.shape[-1])))

    return factors("schur", linalg.schur, residual, a)


@FACE.array_function("linalg")
def hessenberg(a: Any, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Compute the form of a real matrix with zeros below the first subdiagonal."""
    a = as_square("hessenberg", a)

    def residual(h: Any, q: Any, a: Any) -> Any:
        zeros = ops.np.concatenate([q[:, :1], h[:, :-1]], 1)
        return a @ q - q @ h, triangles(zeros, q.mT @ q - np.eye(h.shape[-1]))

    h, q = factors("hessenberg", lambda a: linalg.hessenberg(a, True), residual, a)
    return (h, q) if calc_q else h


@FACE.array_function("linalg")
def ldl(A: Any, lower: bool = True, hermitian: bool = True, overwrite_a: bool = False, check_finite: bool = True
        ) -> Any:
    """Compute triangular and diagonal factors of a real symmetric matrix."""
    A = as_square("ldl", A)
    return by_example_if_needed(ldl_of, (A, bool(lower)), {})


def ldl_of(A: Any, lower: bool) -> Any:
    order = linalg.ldl(read_off(A), lower)[2]
    n = A.shape[-1]

    def residual(left: Any, d: Any, A: Any) -> Any:
        triangle = ops.np.take(left, order, 0)
        if not lower:
            triangle = triangle.mT
        missing = hermitian(A, lower) - left @ d @ left.mT
        in_block = ops.np.where(ops.np.not_equal(d, 0), triangle, d)
        return triangles(missing, triangle - np.eye(n)), triangles(in_block, d - d.mT + missing * np.eye(n))

    found = factors("ldl", lambda A: linalg.ldl(A, lower)[:2], residual, A)
    return (*found, *all_as_passed((order,), (A,)))


@FACE.array_function("linalg")
def rq(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", check_finite: bool = True) -> Any:
    """Compute a triangular and an orthogonal factor."""
    if mode not in ("full", "r", "economic"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic']")
    a = as_nonscalar(a)
    found = qr(ops.np.flip(a, (-1, -2)).mT, mode=mode)
    r = ops.np.flip(found[-1], (-1, -2)).mT
    return r if mode == "r" else (r, ops.np.flip(found[0], (-1, -2)).mT)


@FACE.array_function("linalg")
def qr_multiply(a: Any, c: Any, mode: str = "right", pivoting: bool = False, conjugate: bool = False,
                overwrite_a: bool = False, overwrite_c: bool = False) -> Any:
    """Multiply by the orthogonal factor of a matrix, and return the triangular one."""
    if mode not in ("left", "right"):
        raise ValueError(f"Mode argument can only be 'left' or 'right' but not '{mode}'")
    q, *others = qr(as_nonscalar(a), mode="economic", pivoting=pivoting)
    q, c = ops.np.conjugate(q) if conjugate else q, as_nonscalar(c)
    return (ops.np.matmul(q, c) if mode == "left" else ops.np.matmul(c, q), *others)


@FACE.array_function("linalg")
def cho_solve_banded(cb_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Solve a system by the triangular factor of its banded matrix."""
    band, lower = cb_and_lower
    band = as_nonscalar(band)
    n = band.shape[-2] - 1
    widths = [(n, 0), (0, n)] if lower else [(0, n), (n, 0)]
    bands = [band, transposed(ops.np.conjugate(band), n if lower else 0)]
    for width, each in zip(widths, bands, strict=True) if lower else zip(widths[::-1], bands[::-1], strict=True):
        b = solve_banded(width, each, b, check_finite=check_finite)
    return b


@FACE.array_function("linalg")
def eigvals_banded(a_band: Any, lower: bool = False, overwrite_a_band: bool = False, select: str = "a",
                   select_range: Any = None, check_finite: bool = True) -> Any:
    """Compute the eigenvalues of a Hermitian banded matrix. For Tensors, of the full matrix."""
    refuse_options("eigvals_banded", select=select not in (0, "a", "all") and select)
    band = as_nonscalar(a_band)
    n_diagonals, n = band.shape[-2:]
    i, j = np.indices((n, n))
    place = i - j if lower else n_diagonals - 1 + i - j
    inside = (place >= 0) & (place < n_diagonals)
    return eigvalsh(hermitian(ops.np.index(band, (..., np.where(inside, place, 0), j)) * inside, lower))


# --- functions of matrices -------------------------------------------------------------------------------------------


@FACE.array_function("linalg")
def funm(A: Any, func: Callable[..., Any], disp: bool = True) -> Any:
    """Compute a function of a matrix that has independent eigenvectors, from the function of its eigenvalues."""
    if not disp:
        raise NotImplementedError("linalg.funm: a Tensor's error estimate is not supported\nleave out disp=False")
    return by_example_if_needed(funm_of, (as_square("funm", A), func), {})


MOST_DEPENDENT = 1e8        # condition number of eigenvectors


def funm_of(A: Any, func: Callable[..., Any]) -> Any:
    values, vectors = ops.np.linalg_eig(A)
    known = read_off(vectors)
    if not np.linalg.cond(known) < MOST_DEPENDENT:
        raise linalg.LinAlgError("linalg.funm: the matrix has no independent eigenvectors, so its function has no "
                                 "derivative here\nchange the matrix, or use expm, logm or sqrtm")
    found = (vectors * func(values)) @ ops.np.linalg_inv(vectors)
    size = read_off(found)
    if A.dtype.kind != "c" and np.allclose(size.imag, 0, atol=1e3 * np.finfo(size.dtype).eps * max(1, abs(size).max())):
        return ops.np.real(found)
    return found


@arguments.of_every_version
def signm(A: Any, disp: Any = None) -> Any:
    """Compute the sign of a matrix, which has the signs of the eigenvalues' real parts as eigenvalues."""
    return funm(A, lambda values: ops.np.sign(ops.np.real(values)))


@FACE.array_function("linalg")
def fractional_matrix_power(A: Any, t: Any) -> Any:
    """Compute a power of a matrix, by its logarithm if the exponent is not an integer."""
    A = as_square("fractional_matrix_power", A)
    if isinstance(t, (int, np.integer)) or (isinstance(t, float) and t.is_integer()):
        return matrix_power(A, int(t))
    return expm(logm(A) * t)


# --- Riccati's equations ---------------------------------------------------------------------------------------------


def riccati(name: str, solve: Callable[..., Any], a: Any, b: Any, q: Any, r: Any, e: Any, s: Any,
            residual: Callable[..., Any]) -> Any:
    a, b, q, r = [as_nonscalar(x) for x in (a, b, q, r)]
    e = np.eye(a.shape[-1]) if e is None else as_nonscalar(e)
    s = np.zeros(b.shape) if s is None else as_nonscalar(s)
    return solved(name, solve, residual, (a.shape,), a, b, q, r, e, s)[0]


@FACE.array_function("linalg")
def solve_continuous_are(a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True) -> Any:
    """Solve a^T x e + e^T x a - (e^T x b + s) r^-1 (b^T x e + s^T) + q = 0."""
    def residual(x: Any, a: Any, b: Any, q: Any, r: Any, e: Any, s: Any) -> Any:
        gain = ops.np.linalg_solve(r, b.mT @ x @ e + s.mT)
        return (a.mT @ x @ e + e.mT @ x @ a - (e.mT @ x @ b + s) @ gain + q,)

    return riccati("solve_continuous_are", lambda *args: (linalg.solve_continuous_are(*args, balanced),),
                   a, b, q, r, e, s, residual)


@FACE.array_function("linalg")
def solve_discrete_are(a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True) -> Any:
    """Solve a^T x a - e^T x e - (a^T x b + s) (r + b^T x b)^-1 (b^T x a + s^T) + q = 0."""
    def residual(x: Any, a: Any, b: Any, q: Any, r: Any, e: Any, s: Any) -> Any:
        gain = ops.np.linalg_solve(r + b.mT @ x @ b, b.mT @ x @ a + s.mT)
        return (a.mT @ x @ a - e.mT @ x @ e - (a.mT @ x @ b + s) @ gain + q,)

    return riccati("solve_discrete_are", lambda *args: (linalg.solve_discrete_are(*args, balanced),),
                   a, b, q, r, e, s, residual)
