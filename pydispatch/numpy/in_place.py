"""Functions that write to their first argument."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import Tensor, is_array
from pydispatch.numpy.declare import (
    array_function,
    as_copied,
    as_elements,
    as_indices,
    as_nonscalar,
    check_stored,
    known_values,
)
from pydispatch.numpy.indexing import unravel_index
from pydispatch.ops import ops


def check_target(target: Any, *values: Any) -> None:
    """Raise DispatchTypeError if a NumPy array would have to hold a tracked Tensor or a value of a transform."""
    for value in () if isinstance(target, Tensor) else values:
        check_stored(value)


def check_mask(name: str, target: Any, mask: Any) -> None:
    """Raise ValueError for a mask of another size."""
    if int(np.prod(getattr(mask, "shape", ()))) != int(np.prod(target.shape)):
        raise ValueError(f"{name}: mask and data must be the same size")


@array_function()
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Write values to an array, broadcast, where a mask is true."""
    if not is_array(dst):
        raise TypeError(f"copyto() argument 1 must be numpy.ndarray, not {type(dst).__name__}")
    src = as_copied(src, dst.dtype, casting)
    check_target(dst, src)
    if where is not True:
        where = as_nonscalar(where) if is_array(where) else as_elements(where, np.dtype(bool))
        if where.dtype.kind != "b":
            raise TypeError(f"Cannot cast array data from {where.dtype!r} to dtype('bool') according to the rule "
                            "'safe'")
        src = ops.np.where(where, src, dst)
    ops.np.setitem_(dst, ..., src)


@array_function()
def put(a: Any, ind: Any, v: Any, mode: str | None = "raise") -> None:
    """Write values, repeated as often as needed, to the elements at indices into the flattened array."""
    v = ops.np.ravel(as_elements(v, a.dtype))
    check_target(a, v)
    places, size = ops.np.ravel(as_indices(ind)), int(np.prod(a.shape))
    if not places.shape[0] or not v.shape[0]:
        return
    if not size:
        raise IndexError("cannot replace elements of an empty array")
    known, mode = known_values(places), "raise" if mode is None else mode
    if known is None:
        places = ops.np.take(np.arange(size), places, mode=mode)
    elif mode == "raise":
        if (known >= size).any() or (known < -size).any():
            raise IndexError(f"index {known[(known >= size) | (known < -size)][0]} is out of bounds for axis 0 with "
                             f"size {size}")
        places = known % size
    else:
        places = known % size if mode == "wrap" else np.clip(known, 0, size - 1)
    values = ops.np.take(v, np.arange(places.shape[0]) % v.shape[0])
    if not a.shape:     # an array without axes has no index arrays, and keeps the last value
        ops.np.setitem_(a, ..., ops.np.getitem(values, -1))
    else:
        ops.np.index_put_(a, unravel_index(places, tuple(a.shape)), values)


@array_function()
def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write values, repeated as often as needed, to the elements where a mask is true."""
    vals = ops.np.ravel(as_elements(vals, arr.dtype, "safe"))
    mask = as_nonscalar(mask)
    check_target(arr, vals)
    check_mask("place", arr, mask)
    known = known_values(mask)
    if (known is None or known.any()) and not vals.shape[0]:
        raise ValueError("Cannot insert from an empty array!")
    if known is not None:
        put(arr, np.flatnonzero(known), vals)
        return
    mask = ops.np.reshape(ops.np.not_equal(mask, 0), tuple(arr.shape))
    numbers = ops.np.subtract(ops.np.cumsum(mask), 1)       # number the elements to write, in order
    spread = ops.np.take(vals, ops.np.reshape(ops.np.remainder(numbers, vals.shape[0]), tuple(arr.shape)))
    ops.np.setitem_(arr, ..., ops.np.where(mask, spread, arr))


@array_function()
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    """Write values where a mask is true. Each element gets the one at its own position among the repeated values."""
    values = ops.np.ravel(as_elements(values, a.dtype, "safe"))
    mask = as_nonscalar(mask)
    check_target(a, values)
    check_mask("putmask", a, mask)
    if not values.shape[0]:
        return
    places = np.arange(int(np.prod(a.shape))).reshape(a.shape) % values.shape[0]
    spread = ops.np.take(values, places)
    ops.np.setitem_(a, ..., ops.np.where(ops.np.reshape(mask, a.shape), spread, a))


@array_function()
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Write values, repeated, to the main diagonal."""
    if len(a.shape) < 2:
        raise ValueError("array must be at least 2-d")
    if len(a.shape) > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = a.shape[1] + 1 if len(a.shape) == 2 else 1 + int(np.cumprod(a.shape[:-1]).sum())
    end = int(np.prod(a.shape)) if wrap or len(a.shape) > 2 else min(a.shape[1] ** 2, int(np.prod(a.shape)))
    put(a, np.arange(0, end, step), val)


@array_function()
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Write values to the elements that take_along_axis reads."""
    values = as_elements(values, arr.dtype)
    check_target(arr, values)
    indices = as_nonscalar(indices)
    if axis is None:
        if indices.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        put(arr, indices, values)
        return
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if indices.ndim != arr.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    key = list(np.indices(tuple(arr.shape), sparse=True))
    key[normalize_axis_index(axis, arr.ndim)] = indices
    ops.np.index_put_(arr, tuple(key), values)
