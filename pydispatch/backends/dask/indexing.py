"""Indexing, where Dask's arrays do it otherwise than NumPy's: several index arrays, and writing what they select."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.array.core import elemwise

from pydispatch import _core
from pydispatch.backends.dask.chunkwise import as_dask, in_one_chunk, on_rows, opened
from pydispatch.backends.dask.shaping import ravel, reshape
from pydispatch.backends.masked import with_mask
from pydispatch.exceptions import UnsupportedError
from pydispatch.ops import ops
from pydispatch.registry.backends import has_unknown_sizes, is_masked, unknown_sizes

ALL = slice(None)


class Selection(NamedTuple):
    """A key of an array in two steps: a basic key, then index arrays along axes of what that leaves.

    `place` is the axis of the result from which on the axes of the index arrays stand.
    """

    basic: tuple[Any, ...]
    arrays: dict[int, Any]
    place: int


def index(x: Any, key: Any) -> Any:
    """The elements that a key selects, as NumPy does; UnsupportedError where their number depends on several masks."""
    x = as_dask(x)
    if is_taken_by_dask(x, key):
        return x[key]
    selection = selection_of(x, key)
    return gathered(x[selection.basic], selection)


def is_taken_by_dask(x: Any, key: Any) -> bool:
    """Does `x[key]` do what NumPy does? So it is with at most one index array, of one axis, or a mask for all axes."""
    arrays = [item for item in as_items(key) if is_array(item)]
    if len(arrays) == 1 and arrays[0].dtype.kind == "b" and isinstance(arrays[0], da.Array):
        return arrays[0].ndim in (1, x.ndim)
    return not arrays or (len(arrays) == 1 and arrays[0].ndim == 1 and not any(
        isinstance(item, (int, np.integer)) for item in as_items(key)))


def as_items(key: Any) -> tuple[Any, ...]:
    """The items of a key, lists as arrays."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple([np.asarray(item, np.intp if not item else None) if isinstance(item, list) else item
                  for item in items])


def is_array(item: Any) -> bool:
    return isinstance(item, (da.Array, np.ndarray))


def selection_of(x: Any, key: Any) -> Selection:
    """A key with index arrays in two steps."""
    basic: list[Any] = []
    arrays: dict[int, Any] = {}
    places: list[int] = []      # of the key's items that are index arrays, or numbers beside them
    axis = 0        # of what the basic key leaves
    for place, item in enumerate(expanded(as_items(key), x.ndim)):
        if is_array(item) and item.dtype.kind == "b":
            for one in positions_in(item):
                arrays[axis] = one
                basic.append(ALL)
                axis += 1
            places.append(place)
        elif is_array(item) or isinstance(item, (int, np.integer)):
            arrays[axis] = item
            basic.append(ALL)
            places.append(place)
            axis += 1
        else:
            basic.append(item)
            axis += 1
    is_together = places[-1] - places[0] == len(places) - 1
    return Selection(tuple(basic), arrays, min(arrays) if is_together else 0)


def expanded(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """The items of a key with slices in place of an ellipsis, and of what it leaves out."""
    used = sum(item.ndim if is_array(item) and item.dtype.kind == "b" else item is not None and item is not Ellipsis
               for item in items)
    place = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    return (*items[:place], *(ALL,) * (ndim - used), *items[place + 1:])


def positions_in(mask: Any) -> tuple[Any, ...]:
    """Where a mask is true, along each of its axes; UnsupportedError for Dask's, whose number of these is unknown."""
    if isinstance(mask, da.Array):
        raise UnsupportedError(f"a mask of {mask.ndim} axes beside other index arrays, whose number of elements is "
                               "known only when it is computed\npass mask.compute(), or write where(mask, x, 0)")
    return np.nonzero(mask)


def gathered(x: Any, selection: Selection) -> Any:
    """The elements of an array that index arrays along some of its axes select."""
    axes = list(selection.arrays)
    if any(isinstance(item, da.Array) for item in selection.arrays.values()):
        flat, indices = with_one_axis(x, selection)
        rows = da.take(flat, indices.ravel(), axis=0)
        found = reshape(rows, (*indices.shape, *flat.shape[1:]))
    else:
        indices = np.broadcast_arrays(*selection.arrays.values())
        by_axis = dict(zip(axes, indices, strict=True))
        found = x.vindex[tuple([by_axis.get(axis, ALL) for axis in range(x.ndim)])]
    n = np.broadcast(*[np.empty(item.shape, bool) if is_array(item) else item
                       for item in selection.arrays.values()]).ndim
    return da.moveaxis(found, tuple(range(n)), tuple(range(selection.place, selection.place + n)))


def with_one_axis(x: Any, selection: Selection) -> tuple[Any, Any]:
    """The array with those axes joined to its first one, and positions along it."""
    axes = list(selection.arrays)
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    extents = [x.shape[axis] for axis in axes]
    flat = reshape(x.transpose((*axes, *rest)), (math.prod(extents), *[x.shape[axis] for axis in rest]))
    position: Any = 0
    for item, extent in zip(selection.arrays.values(), extents, strict=True):
        position = position * extent + (elemwise(np.mod, item, extent) if isinstance(item, da.Array) else
                                        np.mod(item, extent))
    return flat, position


# --- writing ---------------------------------------------------------------------------------------------------------


def setitem(x: Any, key: Any, value: Any) -> Any:
    """The array with other elements where a key selects them."""
    return index_put(x, key, value)


def index_put(x: Any, key: Any, values: Any, *, accumulate: bool = False) -> Any:
    """`setitem` with index arrays; with `accumulate`, the sum of an element and all that they put there."""
    x = as_dask(x)
    if is_masked(values) and not is_masked(x):
        x = with_mask(x, False)
    arrays = [item for item in as_items(key) if is_array(item)]
    if is_mask_of_rows(key):
        return put_by_mask(x, arrays[0], values, accumulate)
    if accumulate and any(item.dtype.kind in "iu" for item in arrays):
        return added(x, key, values)
    if is_writable_by_dask(key, arrays):
        changed = x.copy()
        changed[key] = x[key] + values if accumulate else values
        return changed
    return in_one_task(ops.np.index_put.default, x, key, values, accumulate=accumulate)


def is_writable_by_dask(key: Any, arrays: list[Any]) -> bool:
    """Does Dask take this key when it writes?"""
    return not arrays or (len(arrays) == 1 and arrays[0].ndim == 1 and isinstance(arrays[0], np.ndarray) and not any(
        item is None or isinstance(item, (int, np.integer)) for item in as_items(key)))


def is_mask_of_rows(key: Any) -> bool:
    """Is the key one mask of Dask's for the first axis?"""
    items = as_items(key)
    return len(items) == 1 and isinstance(items[0], da.Array) and items[0].dtype.kind == "b" and items[0].ndim == 1


def put_by_mask(x: Any, mask: Any, values: Any, accumulate: bool) -> Any:
    """Each chunk of values, of unknown length, belongs to a chunk of the mask."""
    x = x.rechunk({0: mask.chunks[0]})
    labels = tuple(range(x.ndim))
    pairs: list[Any] = [x, labels, mask, (0,)]
    if isinstance(values, da.Array) and values.ndim == x.ndim:
        values = values if values.numblocks[0] == x.numblocks[0] else values.rechunk({0: x.chunks[0]})
        pairs += [values.rechunk({axis: x.chunks[axis] for axis in labels[1:]}) if x.ndim > 1 else values, labels]
    else:
        pairs += [values, None]
    return da.blockwise(put_in_chunk, labels, *pairs, accumulate=accumulate, align_arrays=False, dtype=x.dtype,
                        meta=x._meta)


def put_in_chunk(x: Any, mask: Any, values: Any, accumulate: bool) -> Any:
    """The chunk with other rows where the mask is true."""
    result = x.copy()
    result[mask] = result[mask] + values if accumulate else values
    return result


def added(x: Any, key: Any, values: Any) -> Any:
    """The array plus the values at the elements that index arrays select.

    Each chunk of values gives a sum over it alone, and these are added up in a tree.
    """
    selection = selection_of(x, key)
    part = x[selection.basic]
    axes = list(selection.arrays)
    rest = [axis for axis in range(part.ndim) if axis not in axes]
    flat, position = with_one_axis(part, selection)
    shape = np.shape(position)
    n = len(shape)
    values = da.broadcast_to(as_dask(values), index_shape(part, selection, shape))
    values = da.moveaxis(values, tuple(range(selection.place, selection.place + n)), tuple(range(n)))
    rows = reshape(values, (math.prod(shape), *flat.shape[1:]))
    total = summed_at(flat.shape[0], reshape(as_dask(position), (math.prod(shape),)), rows.astype(x.dtype))
    total = reshape(total, tuple([part.shape[axis] for axis in (*axes, *rest)]))
    total = part + total.transpose(tuple(np.argsort([*axes, *rest])))
    total = total[tuple([0 if item is None else ALL for item in selection.basic])]
    kept = tuple([item for item in selection.basic if item is not None])
    if all(item == ALL for item in kept):
        return total
    changed = x.copy()
    changed[kept] = total
    return changed


def index_shape(x: Any, selection: Selection, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a selection reads, whose index arrays broadcast to `shape`."""
    rest = tuple([x.shape[axis] for axis in range(x.ndim) if axis not in selection.arrays])
    return (*rest[:selection.place], *shape, *rest[selection.place:])


def summed_at(n: int, position: Any, rows: Any) -> Any:
    """An array of n rows: the sums of those that have the same position."""
    position = position.rechunk({0: rows.chunks[0]})
    labels = tuple(range(1, rows.ndim + 1))
    partial = da.blockwise(
        rows_summed, (1, 0, *labels[1:]), position, (1,), rows, labels, n=n, new_axes={0: n}, dtype=rows.dtype,
        adjust_chunks={1: 1}, meta=np.empty((0,) * (rows.ndim + 1), rows.dtype))
    return partial.sum(0)


def rows_summed(position: Any, rows: Any, n: int) -> Any:
    """The sums of the rows of a chunk, as the only element along a new first axis."""
    result = np.zeros((1, n, *rows.shape[1:]), rows.dtype)
    np.add.at(result[0], position, rows)
    return result


def in_one_task(operator: Any, x: Any, *args: Any, **options: Any) -> Any:
    """An operator over whole arrays, whose result has the shape of its first argument."""
    if has_unknown_sizes(x):
        raise unknown_sizes(f"operator {operator.name}", x, "it works on whole arrays")
    call, arrays = opened(operator, x, *args, **options)
    pairs: list[Any] = []
    axes = tuple(range(x.ndim))
    n = 0
    for array in arrays:
        pairs += [in_one_chunk(as_dask(array), range(array.ndim)), tuple(range(n, n + array.ndim))]
        n += array.ndim
    return da.blockwise(call, axes, *pairs, concatenate=True, align_arrays=False, dtype=x.dtype, meta=x._meta)


def take(a: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Any:
    """The elements at positions along an axis."""
    a = as_dask(a)
    if axis is None:
        a, axis = ravel(a), 0
    indices = indices if _core.is_array(indices) else np.asarray(indices)
    if mode != "raise":
        last = a.shape[axis] - 1
        indices = np.mod(indices, last + 1) if mode == "wrap" else np.clip(indices, 0, last)
    return index(a, (*(ALL,) * (axis % a.ndim), indices))


def scatter_add(x: Any, indices: Any, values: Any, axis: int) -> Any:
    """The array plus the values at the elements that take_along_axis would read."""
    x, indices, values = map(as_dask, (x, indices, values))
    if x.ndim == indices.ndim == 1:
        rows = da.broadcast_to(values, indices.shape).astype(x.dtype)
        return x + summed_at(x.shape[0], np.mod(indices, x.shape[0]), rows)
    shape = list(np.broadcast_shapes((*x.shape[:axis], 1, *x.shape[axis:][1:]), indices.shape))
    rows = [da.moveaxis(a, axis, -1) for a in (x, da.broadcast_to(indices, shape), da.broadcast_to(values, shape))]
    found = on_rows(ops.np.scatter_add.default, "(n),(k),(k)->(n)", *rows, -1)
    return da.moveaxis(found, -1, axis)
