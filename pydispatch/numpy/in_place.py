"""Functions that write to their first argument."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch._core import Tensor, is_array
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import array_function, as_array, as_nonscalar, carries_something, read_off
from pydispatch.ops import ops


def check_target(name: str, target: Any, *values: Any) -> None:
    """Raise DispatchTypeError if a NumPy array would have to hold a tracked Tensor or a value of a transform."""
    if not isinstance(target, Tensor) and any(
            isinstance(value, Tensor) and carries_something(value) for value in values):
        raise DispatchTypeError(f"numpy.{name} was called to write a Tensor that is tracked, or belongs to a transform "
                                "or mode, to an array, which cannot hold that\npass a Tensor as the first argument")


def check_mask(name: str, target: Any, mask: Any) -> None:
    """Raise ValueError for a mask of another size."""
    if int(np.prod(getattr(mask, "shape", ()))) != int(np.prod(target.shape)):
        raise ValueError(f"{name}: mask and data must be the same size")


@array_function()
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Write values to an array, broadcast, where a mask holds."""
    src = as_array(src)
    check_target("copyto", dst, src)
    if is_array(src) and not np.can_cast(src.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast array data from {src.dtype!r} to {dst.dtype!r} according to the rule '{casting}'")
    if where is not True:
        src = ops.np.where(as_array(where), ops.np.astype(as_nonscalar(src), dst.dtype), dst)
    ops.np.setitem_(dst, ..., src)


@array_function()
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values, repeated as often as needed, to the elements at indices into the flattened array."""
    v = ops.np.ravel(as_nonscalar(v))
    check_target("put", a, v)
    places = read_off(ind).ravel().astype(np.intp)
    if not places.size or not v.shape[0]:
        return
    size = int(np.prod(a.shape))
    if mode == "raise":
        if (places >= size).any() or (places < -size).any():
            raise IndexError(f"index {places[(places >= size) | (places < -size)][0]} is out of bounds for axis 0 with "
                             f"size {size}")
        places %= size
    else:
        places = places % size if mode == "wrap" else np.clip(places, 0, size - 1)
    values = ops.np.astype(ops.np.take(v, np.arange(places.size) % v.shape[0]), a.dtype)
    ops.np.index_put_(a, np.unravel_index(places, a.shape), values)


@array_function()
def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write values, repeated as often as needed, to the elements where a mask holds."""
    vals = ops.np.ravel(as_nonscalar(vals))
    mask = as_nonscalar(mask)
    check_target("place", arr, vals)
    check_mask("place", arr, mask)
    places = np.flatnonzero(read_off(mask))
    if places.size and not vals.shape[0]:
        raise ValueError("Cannot insert from an empty array!")
    put(arr, places, vals)


@array_function()
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    """Write values where a mask holds: each element gets the one at its own position among the repeated values."""
    values = ops.np.ravel(as_nonscalar(values))
    mask = as_nonscalar(mask)
    check_target("putmask", a, values)
    check_mask("putmask", a, mask)
    if not values.shape[0]:
        return
    places = np.arange(int(np.prod(a.shape))).reshape(a.shape) % values.shape[0]
    spread = ops.np.astype(ops.np.take(values, places), a.dtype)
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
    values = as_array(values)
    check_target("put_along_axis", arr, values)
    indices = as_nonscalar(indices)
    if axis is None:
        put(arr, indices, values)
        return
    places = np.take_along_axis(np.arange(int(np.prod(arr.shape))).reshape(arr.shape), read_off(indices), axis)
    ops.np.index_put_(arr, np.unravel_index(places, arr.shape), ops.np.astype(as_nonscalar(values), arr.dtype))
