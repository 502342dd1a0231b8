"""Functions that NumPy has too, with the arguments and errors of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from pydispatch._core import MetaArray
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.decompositions import (
    cofactor,
    solve_jvp_of_a,
    solve_of_vectors,
    solve_vjp,
)
from pydispatch.operators.decompositions import solve as regular
from pydispatch.operators.meta import dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.linalg.arguments import (
    check_finite_values,
    check_square,
    check_systems,
    matrices_batch,
    of_every_version,
    over_stack,
    precise,
    square_meta,
    systems_batch,
)
from pydispatch.scipy.linalg.triangular import cho_factor, cho_solve
from pydispatch.scipy.pack import SCIPY


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


@of_every_version
def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True, *, assume_a: Any = None,
        lower: bool = False) -> Any:
    """The inverse of a matrix, from all of its elements whatever `assume_a` says."""
    check_structure("inv", assume_a)
    return ops.scipy.linalg_inv(as_nonscalar(a), check_finite)


@of_every_version
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
        raise ValueError(f"linalg.{name}: {assume_a} is not a recognized matrix structure")


@of_every_version
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
