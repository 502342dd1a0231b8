"""Functions of matrices, and Sylvester's equation.

Source: Higham, "Functions of Matrices" (2008), theorem 3.6: a derivative is a block of the function of a matrix
that is twice as large.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg import LinAlgError

from pydispatch._core import MetaArray, sum_to
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.decompositions import is_complex
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.pack import FACE, SCIPY

sylvester, = SCIPY.operators("linalg_solve_sylvester")


def block_matrix(a, e):
    """Return the block matrix [[a, e], [0, a]]."""
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
    """Return the kernel of a matrix function's derivative along a direction, a block of the function of a larger
    matrix.

    The kernel scales the direction to the size of the matrix, because a much larger one would cost precision.
    """
    def kernel(a, e):
        """Return the derivative of a function of matrices along a direction."""
        scale = largest(e) / largest(a)
        return scale * corner(function(block_matrix(a, e / scale)), a.shape[-1])
    return kernel


def largest(x):
    """Return the largest magnitude in each matrix, or 1 where all elements are 0."""
    size = np.abs(x).max((-2, -1), keepdims=True, initial=0)
    return np.where(size == 0, size.dtype.type(1), size)


def direction_meta(a, e):
    return MetaArray(broadcast((shape_of(a), shape_of(e))), arguments.precise(np.result_type(dtype_of(a), dtype_of(e))))


def matrix_function(name, kernel, kernel_of_blocks):
    """Declare a matrix function and its derivative along a direction, whose own derivatives are its blocks."""
    along, = SCIPY.operators(f"linalg_{name}_direction")
    of_matrix, = SCIPY.operators(f"linalg_{name}")

    def vjp(g, A):
        found = along(A.mT, g)
        return found if is_complex(A) or not is_complex(found) else found.real

    SCIPY.declare(f"linalg_{name}", "Tensor A", kernel, arguments.square_meta(name), tags=("linalg",), vjp=vjp,
                  jvp=lambda t, A: along(A, t), vmap=arguments.matrices_batch(name))
    SCIPY.declare(f"linalg_{name}_direction", "Tensor a, Tensor e", direction_kernel(kernel_of_blocks),
                  direction_meta, tags=("linalg",), vmap=arguments.stacks_batch,
                  differentiated_as=lambda a, e: corner(of_matrix(block_by_operators(a, e)), a.shape[-1]))


def quietly(function):
    """Return `function` without warnings."""
    def kernel(a):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(a)
    return kernel


def checked(name, function):
    """Return the kernel of a function of square matrices, also of integers and of half precision."""
    def kernel(A):
        A = np.asarray(A)
        arguments.check_square(name, A.shape, "A")
        dtype = arguments.precise(A.dtype)
        return function(A.astype(dtype, copy=False)) if A.size else np.empty(A.shape, dtype)
    return kernel


NODES, WEIGHTS = [x / 2 for x in np.polynomial.legendre.leggauss(12)]
"""Gauss-Legendre quadrature: a Padé approximant of log(1 + x), exact to the last digits for a norm of 0.5."""


def logarithm(a):
    """Compute a logarithm by square roots until the matrix is near the identity.

    SciPy's function estimates norms at random, so its results vary.
    """
    root, n_roots, unit = a, 0, np.eye(a.shape[-1], dtype=a.dtype)
    while np.abs(root - unit).sum(0).max() > 0.5:
        if n_roots == 64:       # a singular matrix
            return linalg.logm(a)
        root, n_roots = linalg.sqrtm(root), n_roots + 1
    x = root - unit
    nodes, weights = [(values + shift).astype(x.real.dtype)[:, None, None]
                      for values, shift in ((NODES, 0.5), (WEIGHTS, 0))]
    return 2 ** n_roots * (weights * np.linalg.solve(unit + nodes * x, x)).sum(0)


def finite_logarithm(a):
    """Compute a logarithm. Raise ValueError for nan and infinity, as SciPy does."""
    if not np.isfinite(a).all():
        raise ValueError("array must not contain infs or NaNs")
    return logarithm(a)


EXPM = checked("expm", linalg.expm)
matrix_function("expm", EXPM, EXPM)
# warnings and errors are those of the matrix itself, not of the blocks of its derivative
matrix_function("logm", checked("logm", arguments.over_stack(finite_logarithm, "logm")),
                quietly(checked("logm", arguments.over_stack(logarithm, "logm"))))


def sqrtm_vjp(g, A, result):
    found = sylvester(result.mT, result.mT, g)
    return found if is_complex(A) or not is_complex(found) else found.real


SCIPY.declare("linalg_sqrtm", "Tensor A", checked("sqrtm", arguments.over_stack(linalg.sqrtm, "sqrtm")),
              arguments.square_meta("sqrtm"), tags=("linalg",), vmap=arguments.matrices_batch("sqrtm"),
              vjp=sqrtm_vjp, jvp=lambda t, result: sylvester(result, result, t))


def as_square(name: str, A: Any) -> Any:
    """Return the argument as an array of square matrices. One element becomes a matrix."""
    A = as_nonscalar(A)
    if A.ndim < 2 and A.size == 1:
        A = ops.np.reshape(A, (1, 1))
    arguments.check_square(name, tuple(A.shape), "A")
    return A


def refuse_error_estimate(name: str, disp: Any) -> None:
    if disp is False:
        raise NotImplementedError(f"linalg.{name}: a Tensor's error estimate is not supported\nleave out disp=False")


@FACE.array_function("linalg")
def expm(A: Any) -> Any:
    """Compute the exponential of a matrix."""
    return ops.scipy.linalg_expm(as_square("expm", A))


@arguments.of_every_version
def sqrtm(A: Any, disp: Any = None, blocksize: Any = None) -> Any:
    """Compute the principal square root of a matrix. It is complex where SciPy's is."""
    refuse_error_estimate("sqrtm", disp)
    return ops.scipy.linalg_sqrtm(as_square("sqrtm", A))


@arguments.of_every_version
def logm(A: Any, disp: Any = None) -> Any:
    """Compute the principal logarithm of a matrix, in double precision. It is complex where SciPy's is."""
    refuse_error_estimate("logm", disp)
    A = as_square("logm", A)
    if A.dtype.char in "fF":
        A = ops.np.astype(A, np.dtype(np.complex128 if A.dtype.kind == "c" else np.float64))
    return ops.scipy.linalg_logm(A)


# --- Sylvester's equation --------------------------------------------------------------------------------------------


def check_sylvester(a, b, q):
    arguments.check_square("solve_sylvester", a)
    arguments.check_square("solve_sylvester", b, "b")
    if len(q) < 2 or q[-2:] != (a[-1], b[-1]):
        raise ValueError(f"linalg.solve_sylvester: argument q has shape {q}, expected (..., {a[-1]}, {b[-1]}) beside "
                         f"a and b of shapes {a} and {b}")
    return broadcast((a[:-2], b[:-2], q[:-2]))


def sylvester_kernel(a, b, q):
    batch = check_sylvester(a.shape, b.shape, q.shape)
    dtype = arguments.precise(np.result_type(a, b, q))
    result = np.empty((*batch, *q.shape[-2:]), dtype)
    if not result.size:
        return result
    stacks = [np.broadcast_to(x.astype(dtype, copy=False), (*batch, *x.shape[-2:])).reshape((-1, *x.shape[-2:]))
              for x in (a, b, q)]
    for i, (row, *each) in enumerate(zip(result.reshape((-1, *q.shape[-2:])), *stacks, strict=True)):
        try:
            row[...] = linalg.solve_sylvester(*each)
        except (LinAlgError, ValueError) as error:
            raise type(error)(arguments.named_example("solve_sylvester", i, batch, str(error))) from error
    return result


def sylvester_meta(a, b, q):
    batch = check_sylvester(shape_of(a), shape_of(b), shape_of(q))
    return MetaArray((*batch, *shape_of(q)[-2:]), arguments.precise(np.result_type(*map(dtype_of, (a, b, q)))))


def sylvester_vjp(g, a, b, q_shape, result):
    of_q = sylvester(a.mT, b.mT, g)
    return (sum_to(-(of_q @ result.mT), tuple(a.shape)), sum_to(-(result.mT @ of_q), tuple(b.shape)),
            sum_to(of_q, q_shape))


SCIPY.declare("linalg_solve_sylvester", "Tensor a, Tensor b, Tensor q", sylvester_kernel, sylvester_meta,
              tags=("linalg",), vjp=Joint(sylvester_vjp), vmap=arguments.stacks_batch,
              jvp=(lambda t, a, b, result: -sylvester(a, b, t @ result),
                   lambda t, a, b, result: -sylvester(a, b, result @ t),
                   lambda t, a, b: sylvester(a, b, t)))
FACE.declare_operator("linalg.solve_sylvester", 3, 3)
