"""Functions that rearrange, join and split arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.loading import deferred
from pydispatch.numpy.declare import array_function, as_array, as_index, as_nonscalar, into, known_values, read_off
from pydispatch.ops import ops


@array_function()
def atleast_1d(*arys: Any) -> Any:
    """Arrays of at least one axis."""
    return of_each(lambda x: x if x.ndim else ops.np.reshape(x, (1,)), arys)


def of_each(function: Any, arrays: tuple[Any, ...]) -> Any:
    """The result of a function for one array, or a tuple of its results for several."""
    results = tuple([function(as_nonscalar(x)) for x in arrays])
    return results[0] if len(results) == 1 else results


def check_out(name: str, out: Any, dtype: Any) -> None:
    """TypeError where both say which dtype the result has."""
    if out is not None and dtype is not None:
        raise TypeError(f"{name}() only takes `out` or `dtype` as an argument, but both were provided.")


@array_function(operator=(1, 2, ("axis",)), joins=True)
def concatenate(
    arrays: Any, /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Join arrays along an axis that they have."""
    check_out("concatenate", out, dtype)
    return into(out, ops.np.concatenate([as_nonscalar(x) for x in arrays], axis, dtype=dtype, casting=casting))


@array_function()
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along the first axis, vectors as rows."""
    rows = [x if x.ndim > 1 else ops.np.reshape(x, (1, -1)) for x in map(as_nonscalar, tup)]
    return ops.np.concatenate(rows, 0, dtype=dtype, casting=casting)


@array_function(operator=(1, 2, ()))
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """The same elements in another shape, read and written in `order`."""
    a = as_array(a)
    if order == "F":
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return ops.np.transpose(ops.np.reshape(ops.np.transpose(a), shape[::-1], copy=copy))
    return ops.np.reshape(a, shape, copy=copy)


@array_function(operator=(1, 2, ("axis",)), joins=True)
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along a new axis."""
    check_out("stack", out, dtype)
    return into(out, ops.np.stack([as_nonscalar(x) for x in arrays], axis, dtype=dtype, casting=casting))


@array_function()
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """A list of views: that many of equal length, or those between indices."""
    return list(ops.np.split(as_nonscalar(ary), as_sections(indices_or_sections), axis))


def as_sections(indices_or_sections: Any) -> Any:
    """A number of sections, or a tuple of indices."""
    if isinstance(indices_or_sections, int):
        return indices_or_sections
    found = np.asarray(indices_or_sections)
    return int(found) if found.ndim == 0 else tuple(found.tolist())


@array_function()
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element several times."""
    counts = np.asarray(repeats)
    return ops.np.repeat(as_nonscalar(a), int(counts) if counts.ndim == 0 else tuple(counts.tolist()), axis)


@array_function()
def ravel(a: Any, order: str = "C") -> Any:
    """The elements as a vector, read in `order`."""
    a = as_nonscalar(a)
    return ops.np.ravel(ops.np.transpose(a) if order == "F" else a)


def join(name: str, prepare: Any, axis: int) -> Any:
    """`hstack`, `dstack` and the like: give arrays more axes, then join them along one."""
    def joined(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        parts = [prepare(as_nonscalar(x)) for x in tup]
        along = 0 if parts and len(parts[0].shape) == 1 else axis
        return ops.np.concatenate(parts, along, dtype=dtype, casting=casting)
    joined.__name__ = joined.__qualname__ = name
    joined.__doc__ = f"Arrays joined as numpy.{name} does."
    return array_function()(joined)


def two_axes(x: Any) -> Any:
    """An array of at least two axes, a vector as a row."""
    return ops.np.reshape(x, (1, *x.shape) if len(x.shape) == 1 else (1, 1)) if len(x.shape) < 2 else x


def three_axes(x: Any) -> Any:
    """An array of at least three axes, the new ones as atleast_3d puts them."""
    if len(x.shape) == 0:
        return ops.np.reshape(x, (1, 1, 1))
    if len(x.shape) == 1:
        return ops.np.reshape(x, (1, x.shape[0], 1))
    return ops.np.reshape(x, (*x.shape, 1)) if len(x.shape) == 2 else x


def one_axis(x: Any) -> Any:
    """An array of at least one axis."""
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
    """Arrays of at least two axes."""
    return of_each(two_axes, arys)


@array_function()
def atleast_3d(*arys: Any) -> Any:
    """Arrays of at least three axes."""
    return of_each(three_axes, arys)


@array_function()
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """A list of views: that many of nearly equal length, or those between indices."""
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
    """A tuple of the arrays along an axis."""
    x = as_nonscalar(x)
    if len(x.shape) == 0:
        raise ValueError("Input array must be at least 1-d.")
    front = ops.np.moveaxis(x, axis, 0)
    return tuple([ops.np.getitem(front, i) for i in range(front.shape[0])])


@array_function()
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """The array with an axis moved before another one."""
    a = as_nonscalar(a)
    n = len(a.shape)
    axis = normalize_axis_index(axis, n)
    if not -n <= start <= n:
        raise np.exceptions.AxisError(f"'start' arg requires {-n} <= start < {n + 1}, but {start} was passed in")
    start += n if start < 0 else 0
    return ops.np.moveaxis(a, axis, start - 1 if axis < start else start)


@array_function()
def matrix_transpose(x: Any, /) -> Any:
    """The last two axes swapped."""
    x = as_nonscalar(x)
    if len(x.shape) < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {len(x.shape)}")
    return ops.np.swapaxes(x, -1, -2)


@array_function()
def fliplr(m: Any) -> Any:
    """The array with the order along the second axis reversed."""
    m = as_nonscalar(m)
    if len(m.shape) < 2:
        raise ValueError("Input must be >= 2-d.")
    return ops.np.flip(m, 1)


@array_function()
def flipud(m: Any) -> Any:
    """The array with the order along the first axis reversed."""
    m = as_nonscalar(m)
    if len(m.shape) < 1:
        raise ValueError("Input must be >= 1-d.")
    return ops.np.flip(m, 0)


@array_function()
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """The array rotated by `k` right angles in the plane of two axes."""
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
    """The arrays broadcast to their common shape."""
    arrays = [as_nonscalar(x) for x in args]
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    return tuple([ops.np.broadcast_to(x, shape) for x in arrays])


@array_function()
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """The array with values after it along an axis; without an axis, both as vectors."""
    arr, values = as_nonscalar(arr), as_nonscalar(values)
    if axis is None:
        arr, values, axis = ops.np.ravel(arr), ops.np.ravel(values), 0
    return ops.np.concatenate((arr, values), axis)


@array_function()
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """The array without the elements at some indices along an axis."""
    arr = as_nonscalar(arr)
    if axis is None:
        arr, axis = ops.np.ravel(arr), 0
    axis = normalize_axis_index(axis, max(len(arr.shape), 1))
    obj = as_index(obj)
    if isinstance(obj, Tensor):
        known = known_values(obj)
        if known is None:
            raise DispatchTypeError("numpy.delete was called with an obj whose elements are not known, and they decide "
                                    "about the shape of the result\npass obj as an array")
        obj = known
    kept = np.delete(np.arange(arr.shape[axis]), obj)
    return ops.np.take(arr, kept, axis)


@array_function()
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """The array with values before some indices along an axis."""
    arr, values = as_nonscalar(arr), as_nonscalar(values)
    if axis is None:
        arr, axis = ops.np.ravel(arr), 0
    axis = normalize_axis_index(axis, len(arr.shape))
    n = arr.shape[axis]
    if isinstance(obj, slice):
        obj = np.arange(n)[obj]
    indices = np.asarray(obj)
    if indices.ndim == 0:
        # the values of one index may be several, which lie along their own first axis
        values = ops.np.reshape(values, (*(1,) * (len(arr.shape) - len(values.shape)), *values.shape))
        values = ops.np.moveaxis(values, 0, axis)
        indices = np.repeat(indices, values.shape[axis])
    marks = np.insert(np.zeros(n, bool), indices, True)
    shape = (*arr.shape[:axis], int(marks.sum()), *arr.shape[axis + 1:])
    values = ops.np.astype(ops.np.broadcast_to(values, shape), arr.dtype)
    if indices.size > 1:
        values = ops.np.take(values, np.argsort(np.where(indices < 0, indices + n, indices), kind="stable"), axis)
    source = np.where(marks, n + np.cumsum(marks) - 1, np.cumsum(~marks) - 1)
    return ops.np.take(ops.np.concatenate((arr, values), axis), source, axis)


@array_function()
def resize(a: Any, new_shape: Any) -> Any:
    """The elements in another shape, repeated from the start where there are too few."""
    a = ops.np.ravel(as_nonscalar(a))
    shape = (new_shape,) if isinstance(new_shape, (int, np.integer)) else tuple(new_shape)
    if any(extent < 0 for extent in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    size = int(np.prod(shape))
    if a.shape[0] == 0 or size == 0:
        return ops.np.zeros_like(a, shape=shape)
    return ops.np.take(a, np.arange(size).reshape(shape) % a.shape[0])


@array_function()
def block(arrays: Any) -> Any:
    """Nested lists of arrays, joined: the innermost lists along the last axis, those around them along earlier ones."""
    def depth_of(item: Any) -> int:
        return 1 + max(map(depth_of, item)) if isinstance(item, list) else 0

    def ndim_of(item: Any) -> int:
        return max(map(ndim_of, item)) if isinstance(item, list) else len(as_nonscalar(item).shape)

    def joined(item: Any, level: int) -> Any:
        if isinstance(item, list):
            if not item:
                raise ValueError("block: a list is empty")
            return ops.np.concatenate([joined(part, level + 1) for part in item], level - depth)
        x = as_nonscalar(item)
        return ops.np.reshape(x, (*(1,) * (ndim - len(x.shape)), *x.shape))

    depth = depth_of(arrays)
    ndim = max(ndim_of(arrays), depth)
    return joined(arrays, 0) if depth else ops.np.copy(as_nonscalar(arrays))


median = deferred("numpy.statistics", "median")


PAD_OPTIONS = {
    "constant": "constant_values", "linear_ramp": "end_values", "reflect": "reflect_type", "symmetric": "reflect_type",
    "maximum": "stat_length", "minimum": "stat_length", "mean": "stat_length", "median": "stat_length",
    "edge": None, "wrap": None, "empty": None,
}
"""The keyword that each mode takes."""


@array_function()
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Elements around an array: a constant, its edges, its reflection, statistics of its ends, or a ramp."""
    array = as_nonscalar(array)
    widths = pad_widths(pad_width, len(array.shape))
    if callable(mode):
        raise DispatchTypeError("numpy.pad was called with a Tensor and a function as mode\n"
                                "write into a larger Tensor: result[...] = array")
    if mode in PAD_OPTIONS and (wrong := kwargs.keys() - {PAD_OPTIONS[mode]}):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {wrong}")
    if mode in ("constant", "empty"):
        return padded_by_constant(array, widths, kwargs.get("constant_values", 0))
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        is_odd = mode in ("reflect", "symmetric") and kwargs.get("reflect_type", "even") == "odd"
        for axis, width in enumerate(widths):
            if width == (0, 0):
                continue
            if is_odd:
                # NumPy itself says which elements each is a sum of
                weights = np.pad(np.eye(array.shape[axis]), ((0, 0), width), mode, reflect_type="odd")
                rows = ops.np.matmul(ops.np.moveaxis(array, axis, -1), weights.astype(array.dtype))
                array = ops.np.moveaxis(rows, -1, axis)
            else:
                # or which is repeated where
                array = ops.np.take(array, np.pad(np.arange(array.shape[axis]), width, mode), axis)
        return array
    for axis, width in enumerate(widths):
        array = padded_by_ends(array, axis, width, mode, kwargs)
    return array


def pad_widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """The widths of the padding: (before, after) for each axis."""
    if type(pad_width) is int and pad_width >= 0:
        return [(pad_width, pad_width)] * ndim
    if isinstance(pad_width, dict):
        found = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            found[axis] = (width, width) if isinstance(width, int) else tuple(width)
        return found
    pairs = np.broadcast_to(np.asarray(pad_width), (ndim, 2)).tolist()
    if any(width < 0 for pair in pairs for width in pair):
        raise ValueError("index can't contain negative values")
    return [(before, after) for before, after in pairs]


def padded_by_constant(array: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    """The array in the middle of a larger one that holds the padding; in corners, that of the later axis wins."""
    shape = [extent + sum(width) for extent, width in zip(array.shape, widths, strict=True)]
    inner = tuple([slice(before, before + extent) for extent, (before, _) in zip(array.shape, widths, strict=True)])
    if not isinstance(values, Tensor) and np.ndim(values) == 0:
        return ops.np.setitem(ops.np.full_like(array, values, shape=tuple(shape)), inner, array)
    pairs = ops.np.broadcast_to(as_nonscalar(values), (len(shape), 2))
    for axis, width in enumerate(widths):
        fills = [ops.np.broadcast_to(ops.np.getitem(pairs, (axis, side)),
                                     (*array.shape[:axis], width[side], *array.shape[axis + 1:])) for side in (0, 1)]
        fills = [ops.np.astype(fill, array.dtype) for fill in fills]
        array = ops.np.concatenate((fills[0], array, fills[1]), axis)
    return array


def padded_by_ends(array: Any, axis: int, width: tuple[int, int], mode: str, options: dict[str, Any]) -> Any:
    """One axis padded by what its ends give: a ramp, or a statistic."""
    n = array.shape[axis]

    def part(start: int, stop: int) -> Any:
        return ops.np.take(array, np.arange(start, stop), axis)

    if mode == "linear_ramp":
        ends = np.broadcast_to(np.asarray(options.get("end_values", 0)), (len(array.shape), 2))[axis]
        ramps = []
        for side, edge in ((0, part(0, 1)), (1, part(n - 1, n))):
            end = ops.np.full_like(edge, ends[side])
            steps = width[side]
            ramp = ops.np.linspace(ops.np.squeeze(end, axis), ops.np.squeeze(edge, axis), steps, endpoint=False,
                                   dtype=array.dtype, axis=axis)
            ramps.append(ramp if side == 0 else ops.np.flip(ramp, axis))
        return ops.np.concatenate((ramps[0], array, ramps[1]), axis)
    statistics: dict[str, Any] = {"maximum": ops.np.max, "minimum": ops.np.min, "mean": ops.np.mean, "median": median}
    if mode not in statistics:
        raise ValueError(f"mode '{mode}' is not supported")
    length = options.get("stat_length")
    lengths = np.broadcast_to(np.asarray(n if length is None else length), (len(array.shape), 2))[axis].tolist()
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
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """The array without the zeros at the ends of its axes; which those are is read off the values."""
    filt = as_nonscalar(filt)
    known = known_values(filt)      # of a raw array also in a trace
    places = np.argwhere(read_off(ops.np.not_equal(filt, 0)) if known is None else known)
    axes = range(filt.ndim) if axis is None else normalize_axis_tuple(axis, filt.ndim, "axis")
    key = [slice(None)] * filt.ndim
    for each in axes:
        first = int(places[:, each].min()) if len(places) and "f" in trim.lower() else 0
        last = int(places[:, each].max()) + 1 if len(places) and "b" in trim.lower() else filt.shape[each]
        key[each] = slice(first, last) if len(places) else slice(0, 0)
    return ops.np.getitem(filt, tuple(key))
