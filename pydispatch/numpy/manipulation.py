"""Functions that rearrange, join and split arrays."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import Tensor, is_array
from pydispatch._loading import deferred
from pydispatch.autograd.values import order_in_memory
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import (
    array_function,
    as_array,
    as_elements,
    as_index,
    as_indices,
    as_nonscalar,
    as_zero_d,
    axes_in_order,
    common_dtype,
    into,
    known_values,
    numbers_that_decide,
    read_off,
)
from pydispatch.operators.layouts import in_order_of, with_axes_in_order
from pydispatch.ops import ops


@array_function()
def atleast_1d(*arys: Any) -> Any:
    """Return the arrays with at least one axis."""
    return of_each(lambda x: x if x.ndim else ops.np.reshape(x, (1,)), arys)


def of_each(function: Any, arrays: tuple[Any, ...]) -> Any:
    """Return the result of a function for one array, or a tuple of its results for several."""
    results = tuple([function(as_nonscalar(x)) for x in arrays])
    return results[0] if len(results) == 1 else results


def check_out(name: str, out: Any, dtype: Any) -> None:
    """Raise TypeError if both `out` and `dtype` specify the dtype of the result."""
    if out is not None and dtype is not None:
        raise TypeError(f"{name}() only takes `out` or `dtype` as an argument, but both were provided.")


@array_function(operator=(1, 2, ("axis",)), joins=True)
def concatenate(
    arrays: Any, /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Join arrays along an axis that they have."""
    check_out("concatenate", out, dtype)
    if axis is None:        # here numbers are allowed, and adapt to the dtype of the arrays
        common = common_dtype([as_array(x) for x in arrays]) if dtype is None else dtype
        arrays = [x if is_array(x) else ops.np.astype(as_nonscalar(x), common) for x in arrays]
    return into(out, ops.np.concatenate([as_nonscalar(x) for x in arrays], axis, dtype=dtype, casting=casting), casting)


@array_function()
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along the first axis, vectors as rows."""
    rows = [x if x.ndim > 1 else ops.np.reshape(x, (1, -1)) for x in map(as_nonscalar, tup)]
    return ops.np.concatenate(rows, 0, dtype=dtype, casting=casting)


@array_function(operator=(1, 2, ()))
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """Return the same elements in another shape, read and written in `order`."""
    a = as_nonscalar(a)
    if axes_in_order(a, order, "CFA") is None:
        return ops.np.reshape(a, shape, copy=copy)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return ops.np.transpose(ops.np.reshape(ops.np.transpose(a), shape[::-1], copy=copy))


@array_function(operator=(1, 2, ("axis",)), joins=True)
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along a new axis."""
    check_out("stack", out, dtype)
    return into(out, ops.np.stack([as_nonscalar(x) for x in arrays], axis, dtype=dtype, casting=casting), casting)


@array_function()
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split an array into a list of views: a number of equal length, or those between indices."""
    return list(ops.np.split(as_nonscalar(ary), as_sections(indices_or_sections), axis))


def as_sections(indices_or_sections: Any) -> Any:
    """Return a number of sections, or a tuple of indices."""
    if isinstance(indices_or_sections, int):
        return indices_or_sections
    found = numbers_that_decide(indices_or_sections, "where numpy.split splits", "pass the positions as integers; for "
                                "a part that differs from example to example, use where(mask, x, other)")
    return int(found) if found.ndim == 0 else tuple(found.tolist())


@array_function()
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat each element."""
    counts = numbers_that_decide(repeats, "how often numpy.repeat repeats", "pass repeats as integers")
    return ops.np.repeat(as_nonscalar(a), int(counts) if counts.ndim == 0 else tuple(counts.tolist()), axis)


@array_function()
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Move the elements along axes. Those that leave at the end come first."""
    a, shift = as_nonscalar(a), as_indices(shift)
    known = known_values(shift)
    if known is not None:
        return ops.np.roll(a, tuple(known.tolist()) if known.ndim else int(known), axis)
    if axis is None:
        return ops.np.reshape(rolled_by(ops.np.ravel(a), shift, (0,)), tuple(a.shape))
    return rolled_by(a, shift, normalize_axis_tuple(axis, len(a.shape), allow_duplicate=True))


def rolled_by(a: Any, shift: Any, axes: tuple[int, ...]) -> Any:
    """Roll by unknown numbers, one for each axis or one for all."""
    shape = np.broadcast_shapes(tuple(shift.shape), (len(axes),))
    if len(shape) > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    shift, axes = ops.np.broadcast_to(shift, shape), np.broadcast_to(axes, shape).tolist()
    for i, axis in enumerate(axes):
        n = a.shape[axis]
        places = ops.np.remainder(ops.np.subtract(np.arange(n), ops.np.getitem(shift, i)), max(n, 1))
        a = ops.np.take(a, places, axis)
    return a


@array_function()
def ravel(a: Any, order: str = "C") -> Any:
    """Return the elements as a vector, read in `order`."""
    a = as_nonscalar(a)
    axes = axes_in_order(a, order)
    return ops.np.ravel(a if axes is None else ops.np.transpose(a, axes))


def join(name: str, prepare: Any, axis: int) -> Any:
    """Define a function like `hstack`, which adds axes to arrays, then joins them along one."""
    def joined(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        parts = [prepare(as_nonscalar(x)) for x in tup]
        along = 0 if parts and len(parts[0].shape) == 1 else axis
        return ops.np.concatenate(parts, along, dtype=dtype, casting=casting)
    joined.__name__ = joined.__qualname__ = name
    joined.__doc__ = f"Arrays joined as numpy.{name} does."
    return array_function()(joined)


def two_axes(x: Any) -> Any:
    """Return an array with at least two axes, a vector as a row."""
    return ops.np.reshape(x, (1, *x.shape) if len(x.shape) == 1 else (1, 1)) if len(x.shape) < 2 else x


def three_axes(x: Any) -> Any:
    """Return an array with at least three axes, with new ones placed like those of atleast_3d."""
    if len(x.shape) == 0:
        return ops.np.reshape(x, (1, 1, 1))
    if len(x.shape) == 1:
        return ops.np.reshape(x, (1, x.shape[0], 1))
    return ops.np.reshape(x, (*x.shape, 1)) if len(x.shape) == 2 else x


def one_axis(x: Any) -> Any:
    """Return an array with at least one axis."""
    return x if len(x.shape) else ops.np.reshape(x, (1,))


hstack = join("hstack", one_axis, 1)


@array_function()
def dstack(tup: Any) -> Any:
    """Join arrays along the third axis."""
    return ops.np.concatenate([three_axes(as_nonscalar(x)) for x in tup], 2)


@array_function()
def column_stack(tup: Any) -> Any:
    """Join arrays along the second axis, vectors as columns."""
    parts = [as_nonscalar(x) for x in tup]
    return ops.np.concatenate([x if len(x.shape) > 1 else ops.np.transpose(two_axes(x)) for x in parts], 1)


@array_function()
def atleast_2d(*arys: Any) -> Any:
    """Return the arrays with at least two axes."""
    return of_each(two_axes, arys)


@array_function()
def atleast_3d(*arys: Any) -> Any:
    """Return the arrays with at least three axes."""
    return of_each(three_axes, arys)


@array_function()
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split an array into a list of views: a number of nearly equal length, or those between indices."""
    ary = as_nonscalar(ary)
    sections = as_sections(indices_or_sections)
    if isinstance(sections, int):
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, longer = divmod(ary.shape[axis], sections)
        ends = np.cumsum([each + 1] * longer + [each] * (sections - longer))
        sections = tuple(ends[:-1].tolist())
    return list(ops.np.split(ary, sections, axis))


@array_function()
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the second axis, a vector along its only one."""
    ary = as_nonscalar(ary)
    if len(ary.shape) == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if len(ary.shape) > 1 else 0)


@array_function()
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the first axis."""
    ary = as_nonscalar(ary)
    if len(ary.shape) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@array_function()
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the third axis."""
    ary = as_nonscalar(ary)
    if len(ary.shape) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


@array_function()
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """Return a tuple of the arrays along an axis."""
    x = as_nonscalar(x)
    if len(x.shape) == 0:
        raise ValueError("Input array must be at least 1-d.")
    front = ops.np.moveaxis(x, axis, 0)
    return tuple([ops.np.getitem(front, i) for i in range(front.shape[0])])


@array_function()
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Move an axis before another one."""
    a = as_nonscalar(a)
    n = len(a.shape)
    axis = normalize_axis_index(axis, n)
    if not -n <= start <= n:
        raise np.exceptions.AxisError(f"'start' arg requires {-n} <= start < {n + 1}, but {start} was passed in")
    start += n if start < 0 else 0
    return ops.np.moveaxis(a, axis, start - 1 if axis < start else start)


@array_function()
def matrix_transpose(x: Any, /) -> Any:
    """Swap the last two axes."""
    x = as_nonscalar(x)
    if len(x.shape) < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {len(x.shape)}")
    return ops.np.swapaxes(x, -1, -2)


@array_function()
def fliplr(m: Any) -> Any:
    """Reverse the order along the second axis."""
    m = as_nonscalar(m)
    if len(m.shape) < 2:
        raise ValueError("Input must be >= 2-d.")
    return ops.np.flip(m, 1)


@array_function()
def flipud(m: Any) -> Any:
    """Reverse the order along the first axis."""
    m = as_nonscalar(m)
    if len(m.shape) < 1:
        raise ValueError("Input must be >= 1-d.")
    return ops.np.flip(m, 0)


@array_function()
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Rotate the array by `k` right angles in the plane of two axes."""
    m = as_nonscalar(m)
    first, second = normalize_axis_tuple(axes, len(m.shape))
    if k % 4 == 0:
        return ops.np.getitem(m, ...)
    if k % 4 == 2:
        return ops.np.flip(m, (first, second))
    if k % 4 == 1:
        return ops.np.swapaxes(ops.np.flip(m, second), first, second)
    return ops.np.flip(ops.np.swapaxes(m, first, second), second)


@array_function()
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Broadcast the arrays to their common shape."""
    arrays = [as_nonscalar(x) for x in args]
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    return tuple([as_zero_d(x) if tuple(x.shape) == shape else ops.np.broadcast_to(x, shape) for x in arrays])


@array_function()
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Append values to the array along an axis. Without an axis, both are flattened."""
    arr, values = as_nonscalar(arr), as_nonscalar(values)
    if axis is None:
        arr, values, axis = ops.np.ravel(arr), ops.np.ravel(values), 0
    return ops.np.concatenate((arr, values), axis)


@array_function()
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Return the array without the elements at some indices along an axis."""
    arr = as_nonscalar(arr)
    if axis is None:
        arr, axis = ops.np.ravel(arr), 0
    axis = normalize_axis_index(axis, max(len(arr.shape), 1))
    obj, n = as_index(obj), arr.shape[axis]
    if is_array(obj) and obj.dtype.kind in "iu" and obj.size == 1 and known_values(obj) is None:
        place, others = ops.np.take(np.arange(n), ops.np.ravel(obj)), np.arange(n - 1)
        return in_order_of(ops.np.take(arr, ops.np.add(others, ops.np.greater_equal(others, place)), axis), arr)
    if isinstance(obj, Tensor):
        obj = numbers_that_decide(obj, "how many elements numpy.delete leaves, if several indices can be equal or obj "
                                  "is a mask,", "delete one element, or pass obj as a NumPy array")
    found = ops.np.take(arr, np.delete(np.arange(n), obj), axis)
    if isinstance(obj, slice) or (np.size(obj) == 1 and np.asarray(obj).dtype.kind in "iu"):
        return in_order_of(found, arr)
    # NumPy indexes with a mask, whose axis comes first in memory
    return with_axes_in_order(found, (axis, *[other for other in order_in_memory(arr) if other != axis]))


@array_function()
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Insert values before some indices along an axis."""
    arr = as_nonscalar(arr)
    values = as_elements(values, arr.dtype)
    if axis is None:
        arr, axis = ops.np.ravel(arr), 0
    axis = normalize_axis_index(axis, len(arr.shape))
    n = arr.shape[axis]
    places = np.arange(n)[obj] if isinstance(obj, slice) else places_of(obj)
    if places.dtype.kind == "b":
        if places.ndim != 1:
            raise ValueError("boolean array argument obj to insert must be one dimensional")
        mask = np.asarray(numbers_that_decide(places, "how many elements numpy.insert inserts at a mask",
                                              "pass obj as indices"))
        if masks_are_numbers():
            warnings.warn("this version of NumPy interprets the mask in insert as the indices 0 and 1\n"
                          "pass np.flatnonzero(mask)", FutureWarning, stacklevel=2)
        places = mask.astype(np.intp) if masks_are_numbers() else np.flatnonzero(mask)
    if places.size == 1:
        # one index may have several values. For an index that is a number, they lie along their own first axis
        values = ops.np.reshape(values, (*(1,) * (len(arr.shape) - len(values.shape)), *values.shape))
        values = values if places.ndim else ops.np.moveaxis(values, 0, axis)
        places = ops.np.broadcast_to(ops.np.ravel(places), (values.shape[axis],))
    known = known_values(places)
    if known is not None and (outside := known[(known < -n) | (known > n)]).size:
        raise IndexError(f"index {outside[0]} is out of bounds for axis {axis} with size {n}")
    values = ops.np.broadcast_to(values, (*arr.shape[:axis], places.shape[0], *arr.shape[axis + 1:]))
    # n is also a position, after the last element
    places = ops.np.take(np.arange(n + 1), ops.np.where(ops.np.less(places, 0), ops.np.subtract(places, 1), places))
    order = ops.np.argsort(ops.np.concatenate((places, np.arange(n))), stable=True)
    return in_order_of(ops.np.take(ops.np.concatenate((values, arr), axis), order, axis), arr)


@functools.cache
def masks_are_numbers() -> bool:
    """Return whether the installed NumPy takes a mask in insert as indices, as older versions do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return len(np.insert([0, 0], np.array([True, False]), 0)) == 4


def places_of(obj: Any) -> Any:
    """Return the indices of insert as an array or Tensor. An empty list is one of integers."""
    found = as_nonscalar(obj)
    if found.dtype.kind not in "fc" or (isinstance(obj, (list, tuple)) and not found.size):
        return as_indices(obj)
    if found.size == 1:
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    raise IndexError("arrays used as indices must be of integer (or boolean) type")


@array_function()
def resize(a: Any, new_shape: Any) -> Any:
    """Return the elements in another shape, repeated from the start if there are too few."""
    a = ops.np.ravel(as_nonscalar(a))
    shape = (new_shape,) if isinstance(new_shape, (int, np.integer)) else tuple(new_shape)
    if any(extent < 0 for extent in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    size = int(np.prod(shape))
    if a.shape[0] == 0 or size == 0:
        return ops.np.zeros_like(a, shape=shape)
    return ops.np.reshape(ops.np.take(a, np.arange(size) % a.shape[0]), shape)


@array_function()
def block(arrays: Any) -> Any:
    """Join nested lists of arrays.

    The innermost lists are joined along the last axis, the lists around them along earlier axes.
    """
    elements = list(_elements_of_block(arrays, "arrays", 0))
    depth = elements[0][1]
    for where, at, _ in elements:
        if at != depth:
            raise ValueError(f"List depths are mismatched. First element was at depth {depth}, but there is an element "
                             f"at depth {at} ({where})")
    for where, _, item in elements:
        if item is None:
            raise ValueError(f"List at {where} cannot be empty")
    ndim = max([depth, *[len(as_nonscalar(item).shape) for *_, item in elements]])

    def joined(item: Any, level: int) -> Any:
        if isinstance(item, list):
            return ops.np.concatenate([joined(part, level + 1) for part in item], level - depth)
        x = as_nonscalar(item)
        return ops.np.reshape(x, (*(1,) * (ndim - len(x.shape)), *x.shape))

    return joined(arrays, 0) if depth else ops.np.copy(as_nonscalar(arrays))


def _elements_of_block(item: Any, where: str, depth: int) -> Iterator[tuple[str, int, Any]]:
    """Yield the place, the depth and the value of each element of nested lists, None for an empty list."""
    if isinstance(item, tuple):
        raise TypeError(f"{where} is a tuple. Only lists can be used to arrange blocks, and np.block does not allow "
                        "implicit conversion from tuple to ndarray.")
    if isinstance(item, list) and item:
        for i, part in enumerate(item):
            yield from _elements_of_block(part, f"{where}[{i}]", depth + 1)
    else:
        yield (where, depth + 1, None) if isinstance(item, list) else (where, depth, item)


median = deferred("numpy.statistics", "median")


PAD_OPTIONS = {
    "constant": "constant_values", "linear_ramp": "end_values", "reflect": "reflect_type", "symmetric": "reflect_type",
    "maximum": "stat_length", "minimum": "stat_length", "mean": "stat_length", "median": "stat_length",
    "edge": None, "wrap": None, "empty": None,
}
"""The keyword that each mode takes."""


@array_function()
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Pad an array with a constant, its edges, its reflection, statistics of its ends, or a ramp."""
    array = as_nonscalar(array)
    widths = pad_widths(pad_width, len(array.shape))
    if not callable(mode) and mode not in PAD_OPTIONS:
        raise ValueError(f"mode '{mode}' is not supported")
    if callable(mode):
        raise DispatchTypeError("numpy.pad was called with a Tensor and a function as mode\n"
                                "write into a larger Tensor: result[...] = array")
    if mode in PAD_OPTIONS and (wrong := kwargs.keys() - {PAD_OPTIONS[mode]}):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {wrong}")
    if mode in ("constant", "empty"):
        return in_order_of(padded_by_constant(array, widths, kwargs.get("constant_values", 0)), array)
    for axis, (n, width) in enumerate(zip(array.shape, widths, strict=True)):
        if not n and width != (0, 0):
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    found = array
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        is_odd = mode in ("reflect", "symmetric") and kwargs.get("reflect_type", "even") == "odd"
        for axis, width in enumerate(widths):
            if width == (0, 0):
                continue
            if is_odd:
                # NumPy itself determines which elements each one is a sum of
                weights = np.pad(np.eye(array.shape[axis]), ((0, 0), width), mode, reflect_type="odd")
                rows = ops.np.matmul(ops.np.moveaxis(found, axis, -1), weights.astype(array.dtype))
                found = ops.np.moveaxis(rows, -1, axis)
            else:
                # NumPy itself determines which element is repeated where
                found = ops.np.take(found, np.pad(np.arange(array.shape[axis]), width, mode), axis)
    else:
        for axis, width in enumerate(widths):
            found = padded_by_ends(found, axis, width, mode, kwargs)
    return in_order_of(found, array)


def pad_widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """Return the widths of the padding: (before, after) for each axis."""
    if type(pad_width) is int and pad_width >= 0:
        return [(pad_width, pad_width)] * ndim
    if isinstance(pad_width, dict):
        of_axes = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            of_axes[axis] = (width, width) if isinstance(width, int) else tuple(width)
        return of_axes
    found = np.asarray(pad_width)
    if found.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    pairs = np.broadcast_to(found, (ndim, 2)).tolist()
    if any(width < 0 for pair in pairs for width in pair):
        raise ValueError("index can't contain negative values")
    return [(before, after) for before, after in pairs]


def padded_by_constant(array: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    """Place the array in the middle of a larger one with the padding. In corners, the later axis wins."""
    shape = [extent + sum(width) for extent, width in zip(array.shape, widths, strict=True)]
    inner = tuple([slice(before, before + extent) for extent, (before, _) in zip(array.shape, widths, strict=True)])
    if not is_array(values) or isinstance(values, np.ndarray):
        # NumPy itself determines which elements it makes of the values, and which it refuses
        filled = np.pad(np.zeros((1,) * len(shape), array.dtype), 1, constant_values=values)
        if np.ndim(values) == 0:
            value = filled[(0,) * len(shape)]
            return ops.np.setitem(ops.np.full_like(array, value, shape=tuple(shape)), inner, array)
        middle = (1,) * len(shape)
        values = np.array([[filled[(*middle[:axis], side, *middle[axis + 1:])] for side in (0, 2)]
                           for axis in range(len(shape))])
    pairs = ops.np.broadcast_to(values, (len(shape), 2))
    for axis, width in enumerate(widths):
        fills = [ops.np.broadcast_to(ops.np.getitem(pairs, (axis, side)),
                                     (*array.shape[:axis], width[side], *array.shape[axis + 1:])) for side in (0, 1)]
        fills = [ops.np.astype(fill, array.dtype) for fill in fills]
        array = ops.np.concatenate((fills[0], array, fills[1]), axis)
    return array


def padded_by_ends(array: Any, axis: int, width: tuple[int, int], mode: str, options: dict[str, Any]) -> Any:
    """Pad one axis with a ramp or a statistic of its ends."""
    n = array.shape[axis]

    def part(start: int, stop: int) -> Any:
        return ops.np.take(array, np.arange(start, stop), axis)

    if width == (0, 0) and mode == "linear_ramp":
        return array
    if mode == "linear_ramp":
        ends = np.broadcast_to(np.asarray(options.get("end_values", 0)), (len(array.shape), 2))[axis]
        ramps = []
        for side, edge in ((0, part(0, 1)), (1, part(n - 1, n))):
            end = np.full(edge.shape, ends[side])
            steps = width[side]
            ramp = ops.np.linspace(ops.np.squeeze(end, axis), ops.np.squeeze(edge, axis), steps, endpoint=False,
                                   dtype=array.dtype, axis=axis)
            ramps.append(ramp if side == 0 else ops.np.flip(ramp, axis))
        return ops.np.concatenate((ramps[0], array, ramps[1]), axis)
    statistics: dict[str, Any] = {"maximum": ops.np.max, "minimum": ops.np.min, "mean": ops.np.mean, "median": median}
    length = options.get("stat_length")
    lengths = np.broadcast_to(np.asarray(n if length is None else length), (len(array.shape), 2))[axis].tolist()
    if min(lengths) < 0:
        raise ValueError("index can't contain negative values")
    if width == (0, 0):
        return array
    if mode in ("maximum", "minimum") and min(lengths) == 0:
        raise ValueError("stat_length of 0 yields no value for padding")
    fills = []
    for side in (0, 1):
        count = min(lengths[side], n)
        seen = part(0, count) if side == 0 else part(n - count, n)
        fill = statistics[mode](seen, axis, keepdims=True)
        if mode in ("mean", "median") and array.dtype.kind in "iu":
            fill = ops.np.rint(fill)
        fill = ops.np.astype(fill, array.dtype)
        fills.append(ops.np.broadcast_to(fill, (*array.shape[:axis], width[side], *array.shape[axis + 1:])))
    return ops.np.concatenate((fills[0], array, fills[1]), axis)


@array_function()
def trim_zeros(filt: Any, trim: Any = "fb", axis: Any = None) -> Any:
    """Return the array without the zeros at the ends of its axes, which are found by the values."""
    filt = as_nonscalar(filt)
    np.trim_zeros((), trim)     # raises for values that the installed version refuses
    known = known_values(filt)      # for a raw array, they are known in a trace, too
    places = np.argwhere(read_off(ops.np.not_equal(filt, 0)) if known is None else known)
    axes = range(filt.ndim) if axis is None else normalize_axis_tuple(axis, filt.ndim, "axis")
    key = [slice(None)] * filt.ndim
    for each in axes:
        first = int(places[:, each].min()) if len(places) and "f" in trim.lower() else 0
        last = int(places[:, each].max()) + 1 if len(places) and "b" in trim.lower() else filt.shape[each]
        key[each] = slice(first, last) if len(places) else slice(0, 0)
    return ops.np.getitem(filt, tuple(key)) if key else filt
