"""Functions that NumPy also has, with the arguments and errors of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from pydispatch._core import MetaArray
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.decompositions import cofactor, solve_jvp_of_a, solve_of_vectors, solve_vjp
from pydispatch.operators.decompositions import solve as regular
from pydispatch.operators.meta import dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.linalg import arguments
from pydispatch.scipy.linalg.triangular import cho_factor, cho_solve
from pydispatch.scipy.pack import SCIPY


def finite_squares(name, a, check_finite):
    """Check the argument and return it as square matrices in a precision of LAPACK."""
    a = np.asarray(a)
    arguments.check_square(name, a.shape)
    if check_finite:
        arguments.check_finite_values(name, a)
    return a.astype(arguments.precise(a.dtype), copy=False)


def inv_kernel(a, check_finite=True):
    a = finite_squares("inv", a, check_finite)
    try:
        return np.linalg.inv(a)
    except LinAlgError:
        return arguments.over_stack(np.linalg.inv, "inv")(a)      # finds the singular matrix


def det_kernel(a, check_finite=True):
    return np.linalg.det(finite_squares("det", a, check_finite))


def solve_kernel(a, b, check_finite=True):
    a, b = finite_squares("solve", a, check_finite), np.asarray(b)
    arguments.check_systems("solve", a.shape, b.shape)
    if check_finite:
        arguments.check_finite_values("solve", b)
    dtype = arguments.precise(np.result_type(a, b))
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    try:
        return np.linalg.solve(a, b)
    except LinAlgError:
        arguments.over_stack(np.linalg.inv, "solve")(a)
        raise


def solve_meta(a, b, check_finite=True):
    other = shape_of(b)
    batch = arguments.check_systems("solve", shape_of(a), other)
    return MetaArray((*batch, *(other if len(other) == 1 else other[-2:])),
                     arguments.precise(np.result_type(dtype_of(a), dtype_of(b))))


def det_meta(a, check_finite=True):
    arguments.check_square("det", shape_of(a))
    return MetaArray(shape_of(a)[:-2], arguments.precise(dtype_of(a)))


SCIPY.declare("linalg_inv", "Tensor a, bool check_finite=True", inv_kernel, arguments.square_meta("inv"),
              tags=("linalg",), vmap=arguments.matrices_batch("inv"),
              vjp=lambda g, result: -(result.mT @ g @ result.mT), jvp=lambda t, result: -(result @ t @ result))
SCIPY.declare("linalg_det", "Tensor a, bool check_finite=True", det_kernel, det_meta, tags=("linalg",),
              vjp=lambda g, a: g[..., None, None] * cofactor(a), jvp=lambda t, a: (cofactor(a) * t).sum((-2, -1)),
              vmap=arguments.matrices_batch("det"))
SCIPY.declare("linalg_solve", "Tensor a, Tensor b, bool check_finite=True", solve_kernel, solve_meta, tags=("linalg",),
              vjp=Joint(solve_vjp), vmap=arguments.systems_batch("solve"), jvp=(
                  solve_jvp_of_a, lambda t, a, b_shape: solve_of_vectors(a, t) if len(b_shape) == 1 else regular(a, t)))


@arguments.of_every_version
def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True, *, assume_a: Any = None,
        lower: bool = False) -> Any:
    """Invert a matrix. `assume_a` specifies which elements of it are read."""
    check_structure("inv", assume_a)
    a = as_nonscalar(a)
    arguments.check_square("inv", tuple(a.shape))
    return ops.scipy.linalg_inv(as_read(a, assume_a, lower), check_finite)


@arguments.of_every_version
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Compute the determinant of a matrix, always in double precision."""
    a = as_nonscalar(a)
    if a.dtype.char in "fF":
        a = ops.np.astype(a, np.dtype(np.complex128 if a.dtype.kind == "c" else np.float64))
    return ops.scipy.linalg_det(a, check_finite)


STRUCTURES = frozenset((
    None, "general", "gen", "diagonal", "tridiagonal", "banded", "upper triangular", "lower triangular", "pos",
    "positive definite", "sym", "symmetric", "her", "hermitian"))


def check_structure(name: str, assume_a: Any) -> None:
    if assume_a not in STRUCTURES:
        raise ValueError(f"linalg.{name}: {assume_a} is not a recognized matrix structure")


def as_read(a: Any, assume_a: Any, lower: bool) -> Any:
    """Return the matrix that SciPy reads if it has this structure, whichever values the other elements have.

    Only the symmetric or Hermitian part of a change of the matrix counts, as in `cholesky`.
    """
    if assume_a in ("sym", "symmetric"):
        return matrix_from(a, lower, ops.np.swapaxes(a, -1, -2))
    if assume_a in ("her", "hermitian", "pos", "positive definite"):
        return matrix_from(a, lower, ops.np.conjugate(ops.np.swapaxes(a, -1, -2)))
    if assume_a in ("diagonal", "tridiagonal", "upper triangular", "lower triangular"):
        n = a.shape[-1]
        above, below = {"diagonal": (0, 0), "tridiagonal": (1, 1), "upper triangular": (n, 0)}.get(assume_a, (0, n))
        return ops.np.where(np.tri(n, k=above, dtype=bool) & ~np.tri(n, k=-below - 1, dtype=bool), a, 0)
    return a


def matrix_from(a: Any, lower: bool, mirrored: Any) -> Any:
    """Return a matrix with one triangle of `a` and the other of `mirrored`. Its derivative is that of their mean."""
    below, above = (a, mirrored) if lower else (mirrored, a)
    n = a.shape[-1]
    read = ops.np.where(np.tri(n, k=-1, dtype=bool), below, above)
    mean = ops.np.divide(ops.np.add(a, mirrored), 2)
    return ops.np.add(mean, ops.np.detach(ops.np.subtract(read, mean)))


@arguments.of_every_version
def solve(a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
          check_finite: bool = True, assume_a: Any = None, transposed: bool = False) -> Any:
    """Solve a system. `assume_a` specifies which elements of the matrix are read."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    check_structure("solve", assume_a)
    arguments.check_systems("solve", tuple(a.shape), tuple(b.shape))
    if assume_a in ("pos", "positive definite"):
        return cho_solve(cho_factor(a, lower, check_finite=check_finite), b, check_finite=check_finite)
    if assume_a in ("upper triangular", "lower triangular"):
        return ops.scipy.linalg_solve_triangular(a, b, int(transposed), assume_a.startswith("lower"),
                                                 check_finite=check_finite)
    a = as_read(a, assume_a, lower)
    return ops.scipy.linalg_solve(ops.np.swapaxes(a, -1, -2) if transposed else a, b, check_finite)
