"""Indexing where Dask arrays differ from NumPy's: several index arrays, and assignments through them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.array.core import elemwise

from pydispatch import _core
from pydispatch._registry.backends import has_unknown_sizes, is_masked, unknown_sizes
from pydispatch.backends.dask.chunkwise import as_dask, in_one_chunk, on_rows, opened
from pydispatch.backends.dask.shaping import ravel, reshape
from pydispatch.backends.masked import with_mask
from pydispatch.exceptions import UnsupportedError
from pydispatch.ops import ops

ALL = slice(None)


class Selection(NamedTuple):
    """A key of an array in two steps: a basic key, then index arrays along axes of the array that the basic key leaves.

    The axes of the index arrays begin at the axis `place` of the result.
    """

    basic: tuple[Any, ...]
    arrays: dict[int, Any]
    place: int


def index(x: Any, key: Any) -> Any:
    """Return the elements that a key selects. Raise UnsupportedError if several masks decide their number."""
    x = as_dask(x)
    if is_taken_by_dask(x, key):
        return x[key]
    selection = selection_of(x, key)
    return gathered(x[selection.basic], selection)


def is_taken_by_dask(x: Any, key: Any) -> bool:
    """Return whether Dask's `x[key]` does what NumPy's does.

    It does for at most one index array, of one axis, and for one Dask mask for one axis or all axes.
    """
    arrays = [item for item in as_items(key) if is_array(item)]
    if len(arrays) == 1 and arrays[0].dtype.kind == "b" and isinstance(arrays[0], da.Array):
        return arrays[0].ndim in (1, x.ndim)
    return not arrays or (len(arrays) == 1 and arrays[0].ndim == 1 and not any(
        isinstance(item, (int, np.integer)) for item in as_items(key)))


def as_items(key: Any) -> tuple[Any, ...]:
    """Return the items of a key, with lists converted to arrays."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple([np.asarray(item, np.intp if not item else None) if isinstance(item, list) else item
                  for item in items])


def is_array(item: Any) -> bool:
    return isinstance(item, (da.Array, np.ndarray))


def selection_of(x: Any, key: Any) -> Selection:
    """Split a key with index arrays into two steps."""
    basic: list[Any] = []
    arrays: dict[int, Any] = {}
    places: list[int] = []      # positions in the key of index arrays, and of numbers next to them
    axis = 0        # of the array that the basic key leaves
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
    """Return the items of a key with slices for an ellipsis, and for axes that the key leaves out."""
    used = sum(item.ndim if is_array(item) and item.dtype.kind == "b" else item is not None and item is not Ellipsis
               for item in items)
    place = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    return (*items[:place], *(ALL,) * (ndim - used), *items[place + 1:])


def positions_in(mask: Any) -> tuple[Any, ...]:
    """Return the positions where a mask is true, along each axis. Raise UnsupportedError for a Dask mask."""
    if isinstance(mask, da.Array):
        raise UnsupportedError(f"a mask of {mask.ndim} axes beside other index arrays, whose number of elements is "
                               "unknown until it is computed\npass mask.compute(), or write where(mask, x, 0)")
    return np.nonzero(mask)


def gathered(x: Any, selection: Selection) -> Any:
    """Return the elements that index arrays along some axes of an array select."""
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
    """Join the axes of the index arrays to a first one. Return the array and the positions along that axis."""
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
    """Return a copy of the array with assigned elements."""
    return index_put(x, key, value)


def index_put(x: Any, key: Any, values: Any, *, accumulate: bool = False) -> Any:
    """Return a copy of the array with assigned elements, or, with `accumulate`, with added ones."""
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
    """Return whether Dask can assign to this key."""
    return not arrays or (len(arrays) == 1 and arrays[0].ndim == 1 and isinstance(arrays[0], np.ndarray) and not any(
        item is None or isinstance(item, (int, np.integer)) for item in as_items(key)))


def is_mask_of_rows(key: Any) -> bool:
    """Return whether the key is one Dask mask for the first axis."""
    items = as_items(key)
    return len(items) == 1 and isinstance(items[0], da.Array) and items[0].dtype.kind == "b" and items[0].ndim == 1


def put_by_mask(x: Any, mask: Any, values: Any, accumulate: bool) -> Any:
    """Assign or add values by a mask of rows. Each chunk of values, of unknown length, belongs to one of the mask."""
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
    """Return the chunk with assigned or added rows where the mask is true."""
    result = x.copy()
    result[mask] = result[mask] + values if accumulate else values
    return result


def added(x: Any, key: Any, values: Any) -> Any:
    """Add values to the elements that index arrays select.

    Each chunk of values is summed on its own first, and a tree adds these sums.
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
    """Return the shape of a selection's result, whose index arrays broadcast to `shape`."""
    rest = tuple([x.shape[axis] for axis in range(x.ndim) if axis not in selection.arrays])
    return (*rest[:selection.place], *shape, *rest[selection.place:])


def summed_at(n: int, position: Any, rows: Any) -> Any:
    """Return an array of n rows. Each is the sum of the given rows with its position."""
    position = position.rechunk({0: rows.chunks[0]})
    labels = tuple(range(1, rows.ndim + 1))
    partial = da.blockwise(
        rows_summed, (1, 0, *labels[1:]), position, (1,), rows, labels, n=n, new_axes={0: n}, dtype=rows.dtype,
        adjust_chunks={1: 1}, meta=np.empty((0,) * (rows.ndim + 1), rows.dtype))
    return partial.sum(0)


def rows_summed(position: Any, rows: Any, n: int) -> Any:
    """Return the sums of the rows of a chunk, as the only element along a new first axis."""
    result = np.zeros((1, n, *rows.shape[1:]), rows.dtype)
    np.add.at(result[0], position, rows)
    return result


def in_one_task(operator: Any, x: Any, *args: Any, **options: Any) -> Any:
    """Run an operator over whole arrays. Its result has the shape of its first argument."""
    if has_unknown_sizes(x):
        raise unknown_sizes(f"operator {operator.name}", x, "it requires whole arrays")
    call, arrays = opened(operator, x, *args, **options)
    pairs: list[Any] = []
    axes = tuple(range(x.ndim))
    n = 0
    for array in arrays:
        pairs += [in_one_chunk(as_dask(array), range(array.ndim)), tuple(range(n, n + array.ndim))]
        n += array.ndim
    return da.blockwise(call, axes, *pairs, concatenate=True, align_arrays=False, dtype=x.dtype, meta=x._meta)


def take(a: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Any:
    """Return the elements at positions along an axis."""
    a = as_dask(a)
    if axis is None:
        a, axis = ravel(a), 0
    indices = indices if _core.is_array(indices) else np.asarray(indices)
    if mode != "raise":
        last = a.shape[axis] - 1
        indices = np.mod(indices, last + 1) if mode == "wrap" else np.clip(indices, 0, last)
    return index(a, (*(ALL,) * (axis % a.ndim), indices))


def scatter_add(x: Any, indices: Any, values: Any, axis: int) -> Any:
    """Add values to the elements that take_along_axis would read."""
    x, indices, values = map(as_dask, (x, indices, values))
    if x.ndim == indices.ndim == 1:
        rows = da.broadcast_to(values, indices.shape).astype(x.dtype)
        return x + summed_at(x.shape[0], np.mod(indices, x.shape[0]), rows)
    shape = list(np.broadcast_shapes((*x.shape[:axis], 1, *x.shape[axis:][1:]), indices.shape))
    rows = [da.moveaxis(a, axis, -1) for a in (x, da.broadcast_to(indices, shape), da.broadcast_to(values, shape))]
    found = on_rows(ops.np.scatter_add.default, "(n),(k),(k)->(n)", *rows, -1)
    return da.moveaxis(found, -1, axis)
