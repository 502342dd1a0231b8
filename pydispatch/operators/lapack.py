"""LAPACK in the library that NumPy calls: solutions by factors that are kept, and by triangular matrices.

NumPy factors a matrix for each solution. The same routines, called one by one, give the same bits.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import _umath_linalg

from pydispatch import _core

DOUBLE = np.dtype(np.float64)
SMALLEST, SMALLEST_TRIANGLE = 64, 24        # rows. For fewer, the calls from Python take longer than the factors
LARGEST_KEPT = 1 << 10
FORMS = (("scipy_{}_64_", np.int64), ("{}$NEWLAPACK$ILP64", np.int64), ("{}_64_", np.int64), ("{}_", np.int32))


class Lapack(NamedTuple):
    """The routines for float64, and the dtype of their integers."""

    getrf: Any
    getrs: Any
    trtrs: Any
    integer: Any


def lapack_of_numpy() -> Lapack | None:
    """Return the routines, or None if they cannot be found."""
    for form, integer in FORMS:
        try:
            library = ctypes.CDLL(_umath_linalg.__file__)
            getrf, getrs, trtrs = [library[form.format(name)] for name in ("dgetrf", "dgetrs", "dtrtrs")]
            return Lapack(getrf, getrs, trtrs, integer)
        except (AttributeError, OSError):
            continue
    return None


LAPACK = lapack_of_numpy()
if LAPACK is not None:
    _core.connect_lapack([ctypes.cast(routine, ctypes.c_void_p).value for routine in LAPACK[:3]],
                         np.dtype(LAPACK.integer).itemsize)
# the loops that plans call: those whose results have the shapes that their signatures say
_core.add_core_loops(*[function for function in map(vars(_umath_linalg).get, (
    "cholesky_lo", "det", "eigh_lo", "eigvalsh_lo", "inv", "slogdet", "solve", "solve1", "svd", "svd_f", "svd_s"))
    if function is not None])


def run(routine: Any, *arguments: Any) -> int:
    """Call a routine with letters, integers and arrays in Fortran's order. Return what it reports as its last one."""
    assert LAPACK is not None
    report = np.zeros(1, LAPACK.integer)
    kept = [np.array(argument, LAPACK.integer) if isinstance(argument, int) else argument
            for argument in (*arguments, report)]
    routine(*[argument if isinstance(argument, bytes) else ctypes.c_void_p(argument.ctypes.data) for argument in kept],
            *[ctypes.c_size_t(1) for argument in kept if isinstance(argument, bytes)])
    return int(report[0])


class Factors(NamedTuple):
    """The factors of a matrix, with rows exchanged."""

    matrix: np.ndarray
    lu: np.ndarray
    pivots: np.ndarray


RECENT: list[Factors] = []
"""The factors of the last two matrices, for solutions with the same one, and for gradients."""


def factors_of(a: np.ndarray) -> Factors | None:
    """Return the factors of a matrix, or None for a singular one."""
    for factors in RECENT.copy():
        if factors.matrix.shape == a.shape and (factors.matrix == a.view(np.int64)).all():
            return factors
    found = new_factors(a)
    if found is not None and len(a) <= LARGEST_KEPT:
        RECENT[:] = [found, *RECENT[:1]]
    return found


def new_factors(a: np.ndarray) -> Factors | None:
    """Factor a matrix. Return None if it is singular."""
    assert LAPACK is not None
    n, lu = len(a), np.array(a, order="F")
    factors = Factors(a.view(np.int64).copy(), lu, np.empty(n, LAPACK.integer))
    return None if run(LAPACK.getrf, n, n, lu, n, factors.pivots) else factors


def is_solved_here(a: Any, b: Any, smallest: int = SMALLEST) -> bool:
    """Return whether these are a matrix and the right-hand sides that the routines take."""
    return (LAPACK is not None and type(a) is type(b) is np.ndarray and a.ndim == 2 and b.ndim in (1, 2) and b.size > 0
            and a.shape[0] == a.shape[1] == b.shape[0] >= smallest
            and a.dtype is b.dtype is DOUBLE and a.flags.c_contiguous)


def is_solved_as_by_numpy(a: Any, b: Any) -> bool:
    """Return whether the routines take these, and give the bits of NumPy's."""
    return is_solved_here(a, b) and has_numpys_bits(len(a), b.size // len(a))


@functools.cache
def has_numpys_bits(n: int, n_right: int) -> bool:
    """Return whether systems of this size have the same solutions by factors as by NumPy.

    NumPy calls one routine for both, which may divide work among threads differently from the two routines.
    """
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(n, n)), generator.normal(size=(n, n_right))
    factors = new_factors(a)
    return factors is not None and np.array_equal(solved(factors, b, False), np.linalg.solve(a, b))


def solution(a: np.ndarray, b: np.ndarray, transposed: bool = False) -> np.ndarray | None:
    """Solve by the factors of `a`, for it or its transpose. Return None if it is singular."""
    factors = factors_of(a)
    return None if factors is None else solved(factors, b, transposed)


def solved(factors: Factors, b: np.ndarray, transposed: bool) -> np.ndarray:
    """Solve by these factors."""
    assert LAPACK is not None
    n, x = len(factors.lu), np.array(b, order="F")
    run(LAPACK.getrs, b"T" if transposed else b"N", n, b.size // n, factors.lu, n, factors.pivots, x, n)
    return np.ascontiguousarray(x)


def triangular_solution(a: np.ndarray, b: np.ndarray, transposed: bool) -> np.ndarray | None:
    """Solve by the lower triangle of `a`, or its transpose. Return None if it is singular."""
    assert LAPACK is not None
    n, x = len(a), np.array(b, order="F")
    # for Fortran, a matrix in C order is the transpose
    if run(LAPACK.trtrs, b"U", b"N" if transposed else b"T", b"N", n, b.size // n, a, n, x, n):
        return None
    return np.ascontiguousarray(x)
