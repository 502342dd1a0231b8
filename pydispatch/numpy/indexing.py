"""Indices: grids, `r_` and `c_`, positions in flattened arrays, and bits as numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import Tensor, is_array
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import (
    array_function,
    as_elements,
    as_nonscalar,
    as_order,
    columns_of,
    common_dtype,
    entered,
    holds_arrays_of_others,
    known_values,
)
from pydispatch.operators.layouts import in_order_of
from pydispatch.ops import ops


class Grid:
    """`mgrid` and `ogrid`, which make the coordinates of a grid from the slices between brackets."""

    def __init__(self, numpys: Any) -> None:
        self.numpys = numpys

    def __getitem__(self, key: Any) -> Any:
        return entered(self.numpys[key])


class JoinByIndex(Grid):
    """`r_` and `c_`, which join the arrays, numbers and slices between brackets along an axis."""

    def __init__(self, numpys: Any, axis: int, ndmin: int, trans1d: int) -> None:
        super().__init__(numpys)
        self.axis, self.ndmin, self.trans1d = axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        if not holds_arrays_of_others(items):
            return super().__getitem__(key)
        axis, ndmin, trans1d = self.axis, self.ndmin, self.trans1d
        if isinstance(items[0], str):
            axis, ndmin, trans1d = directive(items.pop(0), axis, ndmin, trans1d)
        parts = [part_of(item, ndmin, trans1d) for item in items]
        dtype = common_dtype([item if isinstance(item, (bool, int, float, complex)) else part
                              for item, part in zip(items, parts, strict=True)])
        parts = [as_elements(item if isinstance(item, (int, float, complex)) else part, dtype)
                 for item, part in zip(items, parts, strict=True)]
        return ops.np.concatenate([part_of(part, ndmin, trans1d) for part in parts], axis)

    def __len__(self) -> int:
        return 0


def directive(text: str, axis: int, ndmin: int, trans1d: int) -> tuple[int, int, int]:
    """Parse the options in a string that is the first item: "axis", "axis,ndmin" or "axis,ndmin,trans1d"."""
    if text in ("r", "c"):
        raise DispatchTypeError(f"numpy.r_ was given a Tensor and {text!r}, which requests a matrix\n"
                                "write r_['0,2', ...] for an array of two axes")
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError("special directives must be the first entry, and be integers") from None
    return (*numbers, *(axis, ndmin, trans1d)[len(numbers):])    # type: ignore[return-value]


def part_of(item: Any, ndmin: int, trans1d: int) -> Any:
    """Return an item as an array of at least `ndmin` axes. Its own axes begin at number `trans1d`."""
    if isinstance(item, slice):
        item = np.r_[item]
    array = as_nonscalar(item)
    missing = ndmin - array.ndim
    if missing <= 0:
        return array
    array_ndim = array.ndim
    array = ops.np.reshape(array, (1,) * missing + tuple(array.shape))
    if trans1d == -1 or not array_ndim:
        return array
    first = trans1d + missing + 1 if trans1d < 0 else trans1d
    order = [*range(first), *range(missing, ndmin), *range(first, missing)]
    return ops.np.transpose(array, tuple(order))


mgrid, ogrid = Grid(np.mgrid), Grid(np.ogrid)
r_ = JoinByIndex(np.r_, 0, 1, -1)
c_ = JoinByIndex(np.c_, -1, 2, 0)


@array_function(constant=True)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """Convert positions in a flattened array to a tuple of indices."""
    indices = as_nonscalar(indices)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if indices.dtype.kind not in "iu":
        raise TypeError("only int indices permitted")
    known = known_values(indices)
    if type(indices) is Tensor and known is not None:
        return tuple([
            _core.wrap_value_at(None, each)
            for each in np.unravel_index(known, shape, order)])      # type: ignore[call-overload]
    size = math.prod(shape)
    if known is not None and known.size and not 0 <= known.min() <= known.max() < size:
        worst = known.min() if known.min() < 0 else known.max()
        raise ValueError(f"index {worst} is out of bounds for array with size {size}")
    axes = range(len(shape)) if as_order(order, "CF") == "F" else range(len(shape))[::-1]
    found = {}
    for axis in axes:
        found[axis] = ops.np.astype(ops.np.remainder(indices, shape[axis]), np.dtype(np.intp))
        indices = ops.np.floor_divide(indices, shape[axis])
    return columns_of([found[axis] for axis in range(len(shape))])


@array_function(constant=True)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """Convert indices to positions in a flattened array."""
    if is_array(multi_index):
        multi_index = [ops.np.getitem(multi_index, i) for i in range(multi_index.shape[0])]
    parts = [as_nonscalar(part) for part in multi_index]
    if any(part.dtype.kind not in "iub" for part in parts):
        raise TypeError("only int indices permitted")
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    modes = [mode] * len(dims) if isinstance(mode, str) else list(mode)
    if len(parts) != len(dims):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(dims)}")
    is_empty = 0 in np.broadcast_shapes(*[tuple(part.shape) for part in parts])
    if 0 in dims and not is_empty:
        raise ValueError("invalid entry in coordinates array" if "raise" in modes else
                         "cannot unravel if shape has zero entries (is empty).")
    axes = list(range(len(dims)))[::-1] if as_order(order, "CF") == "F" else list(range(len(dims)))
    total: Any = None
    for axis in axes:
        index, n = parts[axis], dims[axis]
        if modes[axis] == "wrap":
            index = ops.np.remainder(index, n)
        elif modes[axis] == "clip":
            index = ops.np.clip(index, 0, n - 1)
        else:
            known = known_values(index)
            if known is not None and not is_empty and not 0 <= known.min() <= known.max() < n:
                raise ValueError("invalid entry in coordinates array")
        total = index if total is None else ops.np.add(ops.np.multiply(total, n), index)
    return ops.np.astype(total, np.dtype(np.intp))


def weights_of(bitorder: str) -> np.ndarray:
    """Return the place value of each of eight bits."""
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    weights = 2 ** np.arange(8)
    return (weights[::-1] if bitorder == "big" else weights).astype(np.uint8)


@array_function(constant=True)
def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    """Pack truth values into bytes, eight in each."""
    a = as_nonscalar(a)
    if a.dtype.kind not in "iub":
        raise TypeError("Expected an input array of integer or boolean data type")
    weights = weights_of(bitorder)
    a = ops.np.ravel(a) if axis is None else a
    axis = normalize_axis_index(0 if axis is None else axis, a.ndim)
    bits = ops.np.moveaxis(ops.np.not_equal(a, 0), axis, -1)
    shape = tuple(bits.shape)
    missing = -shape[-1] % 8
    if missing:
        bits = ops.np.concatenate([bits, ops.np.zeros_like(bits, shape=(*shape[:-1], missing))], -1)
    groups = ops.np.reshape(bits, (*shape[:-1], (shape[-1] + missing) // 8, 8))
    found = ops.np.sum(ops.np.multiply(groups, weights), -1, dtype=np.dtype(np.uint8))
    return in_order_of(ops.np.moveaxis(found, -1, axis), a)


@array_function(constant=True)
def unpackbits(a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """Unpack the bits of bytes, each to an element."""
    a = as_nonscalar(a)
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    weights = weights_of(bitorder)
    a = ops.np.ravel(a) if axis is None else a
    axis = normalize_axis_index(0 if axis is None else axis, a.ndim)
    bytes_ = ops.np.expand_dims(ops.np.moveaxis(a, axis, -1), -1)
    bits = ops.np.astype(ops.np.not_equal(ops.np.bitwise_and(bytes_, weights), 0), np.dtype(np.uint8))
    shape = tuple(bits.shape)
    bits = ops.np.reshape(bits, (*shape[:-2], shape[-2] * 8))
    n = shape[-2] * 8
    if count is not None:
        if count < -n:
            raise ValueError("-count larger than number of elements")
        wanted = count if count >= 0 else n + count
        bits = ops.np.getitem(bits, (..., slice(wanted)))
        if wanted > n:
            filler = ops.np.zeros_like(bits, shape=(*shape[:-2], wanted - n))
            bits = ops.np.concatenate([bits, filler], -1)
    return in_order_of(ops.np.moveaxis(bits, -1, axis), a)


@array_function()
def ndenumerate(arr: Any) -> Any:
    """Iterate over pairs of the indices of an element, and the element, in C order."""
    arr = as_nonscalar(arr)
    if isinstance(arr, np.ndarray):
        return np.ndenumerate(arr)
    return ((place, ops.np.getitem(arr, place)) for place in np.ndindex(*arr.shape))
