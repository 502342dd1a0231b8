"""Checks, messages and stacks that kernels, meta kernels and batching rules of matrices share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg import LinAlgError

from pydispatch._core import MetaArray
from pydispatch.operators.batching import padded, rank
from pydispatch.operators.decompositions import multiply, solve_batch, stack_batch
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE


def check_finite_values(name: str, *arrays: np.ndarray) -> None:
    """Raise ValueError if an element is infinite or nan."""
    for x in arrays:
        if x.dtype.kind in "fc" and not np.isfinite(x).all():
            raise ValueError(f"linalg.{name}: array must not contain infs or NaNs\n"
                             "replace them, or pass check_finite=False")


def check_square(name: str, shape: tuple[int, ...], argument: str = "a") -> None:
    """Raise LinAlgError unless the shape is one of square matrices. It is also a ValueError, as SciPy raises either."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise LinAlgError(f"linalg.{name}: expected square matrix, argument {argument} has shape {shape}\n"
                          "pass an array of shape (..., n, n)")


def check_matrices(name: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the shape is one of matrices."""
    if len(shape) < 2:
        raise ValueError(f"linalg.{name}: expected a matrix, argument a has shape {shape}\n"
                         "pass an array of shape (..., m, n)")


def precise(x: Any) -> np.dtype:
    """Return the dtype in which LAPACK computes with elements of this dtype."""
    dtype = np.dtype(x)
    return dtype if dtype.char in "fdFD" else np.dtype(
        np.float32 if dtype.char == "e" else np.complex128 if dtype.kind == "c" else np.float64)


def named_example(name: str, i: int, batch: tuple[int, ...], error: str) -> str:
    """Return the message of an error in one matrix of a stack."""
    where = f" in matrix {tuple(map(int, np.unravel_index(i, batch)))} of the stack" if batch else ""
    return f"linalg.{name}: {error}{where}"


def over_stack(kernel: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Turn a kernel of one matrix into one of stacks. Errors name the function, and the matrix in the stack."""
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


@lru_cache(maxsize=256)
def triangle(n: int, m: int, lower: bool, without_diagonal: bool, dtype: Any) -> np.ndarray:
    """Return a matrix of ones in a triangle and zeros elsewhere."""
    offset = -1 if without_diagonal else 0
    found = np.tri(n, m, offset, dtype) if lower else np.tri(m, n, offset, dtype).T
    found.flags.writeable = False
    return found


def in_triangle(x: Any, lower: bool, without_diagonal: bool = False) -> Any:
    """Return the matrix with zeros outside of a triangle."""
    dtype = x.dtype if x.dtype.kind == "f" else x.dtype.type(0).real.dtype
    return multiply(x, triangle(*x.shape[-2:], bool(lower), bool(without_diagonal), dtype))


def check_systems(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the stack of systems with square matrices. Raise ValueError if shapes do not match."""
    check_square(name, shape)
    if not other or shape[-1] != other[-1 if len(other) == 1 else -2]:
        raise ValueError(f"linalg.{name}: shapes of a {shape} and b {other} are incompatible\n"
                         f"pass a b of shape (..., {shape[-1]}, k), or a vector of {shape[-1]} elements")
    return () if len(shape) == 2 and len(other) < 3 else broadcast((shape[:-2], other[:-2]))


def of_column(solve: Callable[[Any], Any], b: Any) -> Any:
    """Solve for a vector as a matrix of one column, because a stack of vectors would be mistaken for a matrix."""
    return ops.np.getitem(solve(ops.np.expand_dims(b, -1)), (..., 0))


def systems_batch(name):
    """Return the batching rule of an operator of matrices and right-hand sides."""
    def batch(op, info, in_dims, a, b, *options):
        if rank(a) - (in_dims[0] == 0) < 2 or not rank(b) - (in_dims[1] == 0):
            check_systems(name, *[tuple(getattr(x, "shape", ()))[dim == 0:]
                                  for x, dim in zip((a, b), in_dims, strict=False)])
        return solve_batch(lambda a, b: op(a, b, *options), info, in_dims, a, b)
    return batch


def square_meta(name):
    """Return the meta kernel of a function from square matrices to matrices of the same shape."""
    def meta(a, *options, **more):
        check_square(name, shape_of(a))
        return MetaArray(shape_of(a), precise(dtype_of(a)))
    return meta


def matrices_batch(name):
    """Return the batching rule of an operator of one matrix."""
    def batch(op, info, in_dims, a, *options):
        if rank(a) - 1 < 2:
            check_square(name, tuple(a.shape)[1:])
        return stack_batch(op, info, in_dims, a, *options)
    return batch


def stacks_batch(op, info, in_dims, *arrays):
    """Call the operator with batches as stacks of matrices, which broadcast."""
    ndim = max(rank(x) - (dim == 0) for x, dim in zip(arrays, in_dims, strict=True))
    for x, dim in zip(arrays, in_dims, strict=True):
        if rank(x) - (dim == 0) < 2:
            check_square(op.name.name.removeprefix("linalg_"), tuple(x.shape)[dim == 0:])
    return op(*[padded(x, ndim) if dim == 0 else x for x, dim in zip(arrays, in_dims, strict=True)]), 0


def of_every_version(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function whose arguments depend on SciPy's version. It shows the signature of the installed one."""
    function = FACE.array_function("linalg")(implementation)
    FACE.functions[f"linalg.{implementation.__name__}"].__dict__["__wrapped__"] = getattr(
        linalg, implementation.__name__)
    return function
