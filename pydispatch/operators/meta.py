"""Functions that meta kernels share: shapes, dtypes, and ndarrays that replace meta arrays in calls of NumPy."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import MetaArray

ARRAYS = (MetaArray, np.ndarray, np.generic)
_ONLY_META = frozenset((MetaArray,))


def shape_of(x) -> tuple[int, ...]:
    """Return the shape of an array, or () for a Python scalar."""
    return x.shape if isinstance(x, ARRAYS) else ()


def dtype_of(x) -> np.dtype:
    """Return the dtype of an array. For a Python scalar, it is the dtype of an array made from it."""
    return x.dtype if isinstance(x, ARRAYS) else np.asarray(x).dtype


def sample(x):
    """Return an ndarray of shape (0,) with the dtype of the array `x`.

    Other values, such as weak scalars, are returned unchanged.

    Running a pointwise kernel on samples costs next to nothing, gives the dtype of the result and raises the kernel's
    errors about dtypes.
    """
    return np.empty(0, x.dtype) if isinstance(x, ARRAYS) else x


def stand_in(x):
    """Return an ndarray of the shape and dtype of the MetaArray `x`, with memory for one element.

    Other values are returned unchanged. All strides of the array are 0, so NumPy reshapes, transposes and slices it
    without a copy, whatever its size.
    """
    if not isinstance(x, MetaArray):
        return x
    if x.dtype.kind == "T":     # since NumPy 2.5, an array of its strings cannot be made from given memory
        return np.broadcast_to(np.empty((), x.dtype), x.shape)
    return np.ndarray(x.shape, x.dtype, np.empty((), x.dtype), 0, (0,) * len(x.shape))


def view_of(x, shape, dtype) -> MetaArray:
    """Return a MetaArray that shares the memory of `x`, if `x` is a MetaArray."""
    if not isinstance(x, MetaArray):
        return MetaArray(shape, dtype)
    return MetaArray(shape, dtype, x if x.base is None else x.base)


def meta_like(x) -> MetaArray:
    """Return a new MetaArray of the shape and dtype of an array or scalar."""
    return MetaArray(shape_of(x), dtype_of(x))


def broadcast(shapes) -> tuple[int, ...]:
    """Return the shape that the shapes broadcast to. Raise ValueError if they do not broadcast."""
    distinct = set(shapes)
    return distinct.pop() if len(distinct) == 1 else np.broadcast_shapes(*distinct)


@cache
def dtype_of_result(kernel, *dtypes) -> np.dtype:
    """Return the dtype of a pointwise kernel's result for arrays of these dtypes."""
    return kernel(*[np.empty(0, dtype) for dtype in dtypes]).dtype


def pointwise_meta(kernel):
    """Return a meta kernel: the dtype from running the kernel on empty arrays, the shape by broadcasting."""
    def meta(*args, out=None, **options):
        if out is None and not options:
            # the dtype before the shapes, as NumPy checks them
            dtype = (dtype_of_result(kernel, *[x.dtype for x in args]) if _ONLY_META.issuperset(map(type, args))
                     else dtype_of(kernel(*map(sample, args))))
            return MetaArray(broadcast(map(shape_of, args)), dtype)
        samples = {name: sample(value) for name, value in options.items()}
        result = kernel(*map(sample, args), **samples)
        if out is not None:
            kernel(*map(sample, args), **samples, out=np.empty(shape_of(result), out.dtype))
        return MetaArray(broadcast(map(shape_of, (*args, *options.values()))), dtype_of(result))
    return meta


def along(shape: tuple[int, ...], axis: int | None) -> tuple[tuple[int, ...], int]:
    """Return the shape and the axis that a function along one axis works on. Raise AxisError for an invalid axis.

    Without an axis the function works on a vector of all elements. A scalar counts as a vector.
    """
    if axis is None:
        return (math.prod(shape),), 0
    shape = shape or (1,)
    return shape, normalize_axis_index(axis, len(shape))


def broadcastable(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether an array of `shape` broadcasts to exactly `target`."""
    extents = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(n in (1, m) for n, m in extents)
