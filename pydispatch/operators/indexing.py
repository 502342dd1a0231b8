"""Reading selected elements, and writing to them.

Basic keys (ints, slices, None, Ellipsis) give views. Keys with index arrays or masks give copies. Reading and writing
have two operators each, one per kind of key, since all layers above the kernels treat the two kinds differently.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from pydispatch._core import (
    NOT_FLAT,
    ArrayMethod,
    MetaArray,
    Tensor,
    add_at,
    added_at,
    advanced_items,
    getitem,
    index,
    is_of_numpy,
    is_vector_of_positions,
    mapped_linearly,
    setitem,
    sum_to,
    take_along_axis,
)
from pydispatch._registry import backends
from pydispatch._sites import describe_interpreter
from pydispatch.exceptions import DataDependentError, VmapError
from pydispatch.operators import batching
from pydispatch.operators.declare import declare, declare_writer, operators, range_like
from pydispatch.operators.layouts import in_c_order
from pydispatch.operators.meta import along, broadcast, broadcastable, dtype_of, sample, shape_of, stand_in, view_of
from pydispatch.operators.shapes import inverted

(astype, broadcast_to, concatenate, equal, filled_slices, full_like, less, limited, logical_and, logical_or, moveaxis,
 part, remainder, selected, slice_sums, swapaxes, take, take_along, total, where, with_added, with_item, with_selected,
 zeros_like) = operators(
    "astype", "broadcast_to", "concatenate", "equal", "slices_filled", "full_like", "less", "clip", "logical_and",
    "logical_or", "moveaxis", "getitem", "remainder", "index", "slice_sums", "swapaxes", "take", "take_along_axis",
    "sum", "where", "scatter_add", "setitem", "index_put", "zeros_like")

INSTEAD_OF_MASK = ("write np.where(mask, x, other), whose result has the shape of x, and instead of x[mask] *= 2: "
                   "x[...] = np.where(mask, x * 2, x)")

# reading and writing through a basic key


def getitem_meta(x, key):
    result = getitem(stand_in(x), key)
    if isinstance(result, np.generic):
        return MetaArray((), result.dtype)
    return view_of(x, result.shape, result.dtype)


def setitem_meta(x, key, value):
    sample(x)[...] = sample(value)
    check_element(key, batching.rank(x), batching.rank(value), x.dtype)
    check_assignable("setitem_", shape_of(value), getitem(stand_in(x), key).shape)


def check_element(key, ndim, n_axes, dtype):
    """Raise or warn as NumPy does if one element of an array of `ndim` axes gets a value with axes.

    NumPy converts an array of one element to a bool.
    """
    items = key if type(key) is tuple else (key,)
    if n_axes and len(items) == ndim and all(hasattr(item, "__index__") for item in items):
        np.zeros(1, dtype)[0] = np.zeros((1,) * n_axes, dtype)


def check_assignable(name, shape, target):
    """Raise ValueError unless values of `shape` broadcast to the target's shape.

    Leading axes of length 1 of the values are ignored.
    """
    while len(shape) > len(target) and shape[0] == 1:
        shape = shape[1:]
    if not broadcastable(shape, target):
        raise ValueError(
            f"{name}: values of shape {shape} do not broadcast to the selected elements, of shape {target}\n"
            "pass values of that shape, or a scalar"
        )


# reading and writing through index arrays


def index_meta(x, key):
    return MetaArray(indexed_shape(shape_of(x), advanced_items("index", key, "getitem")), dtype_of(x))


def index_put(x, key, values, *, accumulate=False):
    items = advanced_items("index_put_", key, "setitem_")
    if accumulate:
        # NumPy 2.4 reads past the end of values of fewer dimensions than the one index array of a vector
        filled = values if np.ndim(values) == 0 else np.broadcast_to(values, indexed_shape(x.shape, items))
        add_at(x, items, filled)
    elif READS_WHAT_IT_WROTE:
        x[tuple([apart_from(x, item) for item in items])] = apart_from(x, values)
    else:
        x[items] = values


READS_WHAT_IT_WROTE = np.lib.NumpyVersion(np.__version__) < "2.2.0"
"""Whether this NumPy assigns while it still reads index arrays and values from the same memory.

Then `x[x] = 7` writes outside of the array (NumPy issues 26542 and 26844, fixed in 2.1 and 2.2).
"""


def apart_from(x, read):
    """Return `read`, or a copy of it if it may share memory with `x`."""
    return read.copy() if isinstance(read, np.ndarray) and np.may_share_memory(x, read) else read


def index_put_meta(x, key, values, *, accumulate=False):
    items = advanced_items("index_put_", key, "setitem_")
    index_put(sample(x), np.empty(0, int), sample(values), accumulate=accumulate)
    if shape_of(values) or not any(map(is_mask, items)):
        check_assignable("index_put_", shape_of(values), indexed_shape(shape_of(x), items))


def is_mask(item):
    return isinstance(item, bool) or (hasattr(item, "dtype") and backends.dtype_of(item).kind == "b")


def consumed(item):
    """Return the number of axes that an item of a key consumes."""
    if item is None or item is Ellipsis:
        return 0
    return len(shape_of(item)) if is_mask(item) else 1


def indexed_shape(shape, items):
    """Return the shape of the elements that a key with index arrays selects from an array of `shape`.

    The index arrays, and the ints among the items, broadcast to one shape. If they are adjacent, that shape replaces
    the first of them. Otherwise, it comes first. The other items act as in a basic key. Raises IndexError like NumPy.
    """
    items = items if any(item is Ellipsis for item in items) else (*items, Ellipsis)
    hidden = len(shape) - sum(map(consumed, items))
    if hidden < 0:
        raise IndexError(f"index: argument key selects from {len(shape) - hidden} axes of an array of shape {shape}\n"
                         "give at most one index for each of its axes")
    kept, picked, places = [], [], []
    axis = 0
    for place, item in enumerate(items):
        n_axes = hidden if item is Ellipsis else consumed(item)
        extents = shape[axis:axis + n_axes]
        axis += n_axes
        if item is None:
            kept.append(1)
        elif item is Ellipsis:
            kept.extend(extents)
        elif isinstance(item, slice):
            kept.append(len(range(*item.indices(extents[0]))))
        else:
            picked.append(picked_shape(item, extents))
            places.append((place, len(kept)))
    shape_picked = broadcast_indices(picked)
    together = places[-1][0] - places[0][0] == len(places) - 1
    position = places[0][1] if together else 0
    return (*kept[:position], *shape_picked, *kept[position:])


def picked_shape(item, extents):
    """Return the shape of one index array: () for an int, and for a mask the number of True elements."""
    if isinstance(item, MetaArray) and item.dtype.kind == "b":
        raise DataDependentError(
            "index: argument key holds a mask on Meta, whose data would determine the shape of the result\n"
            + INSTEAD_OF_MASK
        )
    if is_mask(item):
        if shape_of(item) != extents:
            raise IndexError(f"index: argument key holds a mask of shape {shape_of(item)} for axes {extents}\n"
                             "pass a mask of their shape")
        return (np.count_nonzero(item),)
    if dtype_of(item).kind not in "iu":
        raise IndexError(f"index: argument key holds {item!r}, expected ints, bools, slices, None and Ellipsis\n"
                         "convert indices to integers: array.astype(int)")
    if isinstance(item, int) and not -extents[0] <= item < extents[0]:
        raise IndexError(f"index: argument key holds {item} for an axis of {extents[0]} elements\n"
                         f"pass an index from {-extents[0]} to {extents[0] - 1}")
    return shape_of(item)


def broadcast_indices(shapes):
    """Return the shape that index arrays broadcast to. Raise IndexError if they do not broadcast."""
    try:
        return broadcast(shapes)
    except ValueError as error:
        raise IndexError(f"index: index arrays do not broadcast together: {error}\n"
                         "to select rows and columns independently, use numpy.ix_(rows, columns)") from None


# along an axis


def take_meta(a, indices, axis=None, *, mode="raise", out=None):
    """Infer the metadata: the axis is replaced by the shape of the indices."""
    options = {} if out is None else {"out": sample(out)}
    dtype = np.empty(1, dtype_of(a)).take(np.empty(0, dtype_of(indices)), mode=mode, **options).dtype
    shape, axis = along(shape_of(a), axis)
    looks = prod(shape[:axis]) if mode == "raise" else prod(shape[:axis] + shape[axis + 1:])
    if shape[axis] == 0 and prod(shape_of(indices)) and looks:
        raise IndexError(f"take: argument a has shape {shape}, with no elements along axis {axis}\n"
                         "pass an array with elements, or no indices")
    return MetaArray((*shape[:axis], *shape_of(indices), *shape[axis + 1:]), dtype)


def take_along_axis_meta(arr, indices, axis=-1):
    """Infer the metadata: the indices' shape along the axis, broadcast to the array's along the others."""
    dtype = np.take_along_axis(np.empty(0, dtype_of(arr)), np.empty(0, dtype_of(indices)), 0).dtype
    return MetaArray(along_shape("take_along_axis", shape_of(arr), shape_of(indices), axis), dtype)


def along_shape(name, shape, indices, axis):
    """Return the shape of the elements that indices of shape `indices` select along an axis of an array of `shape`."""
    shape, axis = along(shape, axis)
    if len(indices) != len(shape):
        raise ValueError(f"{name}: argument indices has {len(indices)} axes, expected {len(shape)}\n"
                         "pass as many axes as the array has, or to take whole slices, use ops.np.take")
    return broadcast_indices([indices, (*shape[:axis], 1, *shape[axis + 1:])])


@lru_cache(maxsize=256)
def grid_of(shape):
    """Return the indices of all elements, as an array for each axis that broadcasts along the others."""
    return np.indices(shape, sparse=True)


def scatter_add(x, indices, values, axis):
    """Add the values at the elements that take_along_axis would read. Repeated indices add repeatedly."""
    if is_vector_of_positions(x, indices, axis):
        add_at(x, indices, values)
        return
    along_shape("scatter_add_", x.shape, np.shape(indices), axis)
    grid = list(grid_of(x.shape))
    grid[axis] = indices
    np.add.at(x, tuple(grid), values)


def scatter_add_meta(x, indices, values, axis):
    selected = along_shape("scatter_add_", shape_of(x), shape_of(indices), axis)
    check_assignable("scatter_add_", shape_of(values), selected)
    np.add.at(sample(x), sample(indices), sample(values))


# batches


def behind_batch(key, ndim=0, batch_size=0):
    """Convert a basic key for one example to a key for the batch."""
    return (batching.ALL, *key) if type(key) is tuple else (batching.ALL, key)


def setitem_batch(op, info, in_dims, x, key, value):
    x = batching.batch_of(x, in_dims[0], info.batch_size)
    if batching.rank(value):
        check_element(key, x.ndim - 1, batching.rank(value) - (in_dims[2] is not None), x.dtype)
        value = batching.fitted(value, in_dims[2], selected_rank(key, x.ndim - 1))
    return op(x, behind_batch(key), value), 0


def selected_rank(key, ndim):
    """Return the number of axes that a basic key selects from an array of `ndim`."""
    for item in key if type(key) is tuple else (key,):
        if item is None:
            ndim += 1
        elif item is not Ellipsis and type(item) is not slice:
            ndim -= 1
    return ndim


NEW_AXIS, HIDDEN_AXES, ONE_AXIS = "None", "...", ":"


def indexed_axes(op, info, items, dims, ndim):
    """Locate the axes that come from index arrays in the selection of a key, for one example with `ndim` axes.

    `dims` specifies which items of the key are batches. Returns (ndim, n_picked, n_before, together). Of the `ndim`
    axes, `n_picked` come from the index arrays, which broadcast together. They come after `n_before` other axes, or
    first if the index arrays are not adjacent (`together`).
    """
    kinds = list(items)
    n_hidden = ndim
    for i, (item, dim) in enumerate(zip(items, dims, strict=True)):
        if item is None:
            kinds[i] = NEW_AXIS
        elif item is Ellipsis:
            kinds[i] = HIDDEN_AXES
        elif type(item) is slice:
            kinds[i] = ONE_AXIS
            n_hidden -= 1
        elif is_mask(item):
            if dim == 0:
                raise mask_error(op, info)
            kinds[i] = 1
            n_hidden -= batching.rank(item)
        else:
            kinds[i] = batching.rank(item) - (dim == 0)
            n_hidden -= 1
    return indexed_axes_of_kinds(tuple(kinds), n_hidden)


@lru_cache(maxsize=1024)
def indexed_axes_of_kinds(kinds, n_hidden):
    """Compute `indexed_axes` for items of these kinds. For an index array, the kind is its number of axes."""
    if HIDDEN_AXES not in kinds:
        kinds = (*kinds, HIDDEN_AXES)
    n_kept, positions, places = 0, [], []
    for position, kind in enumerate(kinds):
        if type(kind) is int:
            positions.append(position)
            places.append(n_kept)
        else:
            n_kept += n_hidden if kind is HIDDEN_AXES else 1
    together = positions[-1] - positions[0] == len(positions) - 1
    n_picked = max([kinds[position] for position in positions])
    return n_kept + n_picked, n_picked, places[0] if together else 0, together


def mask_error(op, info):
    return VmapError(
        f"{op.name}: argument key holds a mask that differs from example to example of {describe_interpreter(info)}, "
        "and so would the number of elements that it selects\n"
        + INSTEAD_OF_MASK
    )


def items_of(key, dims):
    """Return the items of a key, and the batch axis of each."""
    if type(key) is not tuple:
        return (key,), (dims,)
    return key, (None,) * len(key) if dims is None else dims


def aligned_items(items, dims, n_picked):
    """Return the items, with batches reshaped so that their examples broadcast together."""
    return tuple([batching.padded(item, n_picked) if dim == 0 else item for item, dim in zip(items, dims, strict=True)])


def index_batch(op, info, in_dims, x, key):
    """Index with a batch of sources, batches of index arrays, or both.

    With both, each example has its own source.
    """
    is_batch = in_dims[0] == 0
    if type(key) is not tuple and not is_mask(key):
        if in_dims[1] is None:
            return op(x, (batching.ALL, key)), 0
        return op(x, (batching.each_example(info.batch_size, batching.rank(key) - 1), key) if is_batch else key), 0
    items, dims = items_of(key, in_dims[1])
    _, n_picked, place, together = indexed_axes(op, info, items, dims, batching.rank(x) - is_batch)
    if 0 not in dims:
        # NumPy puts the axes of index arrays that are not adjacent before all others
        return batching.to_front(op(x, (batching.ALL, *items)), 0 if together else n_picked), 0
    items = aligned_items(items, dims, n_picked)
    if not is_batch:
        return batching.to_front(op(x, items), place), 0
    picked = op(x, (batching.each_example(info.batch_size, n_picked), *items))
    return picked_at(picked, n_picked, place), 0


@lru_cache(maxsize=256)
def picked_order(ndim, n_picked, place):
    """Return the permutation that moves axes 1, ..., n_picked after `place` others, not counting the batch axis."""
    others = range(1 + n_picked, ndim)
    return 0, *others[:place], *range(1, 1 + n_picked), *others[place:]


def picked_at(batch, n_picked, place):
    """Move the picked axes, which come first in each example, to their place among the other axes."""
    return batching.permuted(batch, picked_order(batch.ndim, n_picked, place)) if n_picked and place else batch


def picked_first(batch, n_picked, place):
    """Undo `picked_at`: move the picked axes of each example to the front."""
    return batching.permuted(batch, inverted(picked_order(batch.ndim, n_picked, place)))


def index_put_batch(op, info, in_dims, x, key, values, accumulate):
    n = info.batch_size
    x = batching.batch_of(x, in_dims[0], n)
    items, dims = items_of(key, in_dims[1])
    if 0 in (dims[-1], in_dims[2]) and is_one_mask(items) and batching.rank(values) == (in_dims[2] == 0) and not (
            accumulate and in_dims[2] == 0):
        mask = behind_slices(batching.batch_of_one(items[-1], dims[-1]), x.shape[1:len(items)])
        return put_by_mask(op, n, x, mask, values, in_dims[2], accumulate), 0
    ndim, n_picked, place, together = indexed_axes(op, info, items, dims, x.ndim - 1)
    has_axes = batching.rank(values)
    if has_axes:
        values = batching.fitted(values, in_dims[2], ndim)
    if 0 in dims:
        key = (batching.each_example(n, n_picked), *aligned_items(items, dims, n_picked))
        if has_axes and n_picked and place:
            values = picked_first(as_batch(values, in_dims[2], ndim), n_picked, place)
    else:
        key = (batching.ALL, *items)
        if has_axes and n_picked and not together:
            values = batching.from_front(as_batch(values, in_dims[2], ndim), n_picked)
    return (op(x, key, values, accumulate=True) if accumulate else op(x, key, values)), 0


def as_batch(values, dim, ndim):
    """Return values as a batch of arrays with `ndim` axes. Without a batch axis, it is a batch of one example."""
    return batching.padded(batching.batch_of_one(values, dim), ndim)


def is_one_mask(items):
    """Return whether a key ends in an array of bools, after only full slices."""
    last = items[-1]
    return not isinstance(last, bool) and is_mask(last) and all(
        type(item) is slice and item == batching.ALL for item in items[:-1])


def behind_slices(masks, extents):
    """Repeat the masks of a batch along leading axes of these extents, which full slices select."""
    if not extents:
        return masks
    n, *shape = masks.shape
    return broadcast_to(batching.reshaped(masks, (n, *(1,) * len(extents), *shape)), (n, *extents, *shape))


def put_by_mask(op, n, x, mask, value, dim, accumulate):
    """Write one number per example where the mask of that example is True. All shapes are known beforehand."""
    if dim != 0:
        return op(x, mask, value, accumulate=accumulate)
    n_axes = x.ndim - 1
    value = astype(batching.padded(value, n_axes), x.dtype)      # `where` would promote int64 to float64
    mask = batching.reshaped(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    return op(x, batching.each_example(n, 0), where(mask, value, x))


def take_batch(op, info, in_dims, a, indices, axis, mode, *out):
    is_batch, n = in_dims[0] == 0, info.batch_size
    if in_dims[1] != 0:
        rows, axis = batching.rows_along(batching.batch_of(a, in_dims[0], n), axis)
        return op(rows, indices, axis, mode=mode, **batching.into(out)), 0
    if not is_batch:
        axis = along(tuple(getattr(a, "shape", ())), axis)[1] if axis is not None else None
        out = tuple([batching.from_front(array, axis or 0) for array in out])
        return batching.to_front(op(a, indices, axis, mode=mode, **batching.into(out)), axis or 0), 0
    rows, axis = batching.rows_along(a, axis)
    if mode != "raise":
        extent = rows.shape[axis]
        indices = remainder(indices, extent) if mode == "wrap" else limited(indices, 0, extent - 1)
    ndim = batching.rank(indices) - 1
    numbers = astype(indices, np.dtype(int)) if is_mask(indices) else indices
    key = (batching.each_example(n, ndim), *(batching.ALL,) * (axis - 1), numbers)
    picked = in_c_order(picked_at(selected(rows, key), ndim, axis - 1))
    if out:
        # the operator itself checks `out`
        op(picked, np.arange(prod(picked.shape)).reshape(picked.shape), **batching.into(out))
    return picked, 0


def take_along_batch(op, info, in_dims, arr, indices, axis):
    arr, axis = batching.rows_along(batching.batch_of_one(arr, in_dims[0]), axis)
    return op(arr, batching.batch_of_one(indices, in_dims[1]), axis), 0


def scatter_add_batch(op, info, in_dims, x, indices, values, axis):
    x = batching.batch_of(x, in_dims[0], info.batch_size)
    values = batching.fitted(values, in_dims[2], x.ndim - 1)
    return op(x, batching.batch_of_one(indices, in_dims[1]), values, batching.axis_behind(axis, x.ndim - 1, None)), 0


# sums of slices


def slices_filled(g, indices, n, axis=0):
    """Return, for each of `n` positions along an axis, the sum of the elements whose slices contain it."""
    g, indices = np.asarray(g), np.asarray(indices)
    shape, axis = along(g.shape, axis)
    lengths = np.diff(indices, append=n)
    if not indices[:1].any() and (lengths > 0).all():
        return g.repeat(lengths, axis)
    lengths = np.where(lengths > 0, lengths, 1)     # as NumPy reads an end that is not behind the start
    ends = lengths.cumsum()
    places = np.arange(lengths.sum()) + (indices - ends + lengths).repeat(lengths)
    return added_at(g.repeat(lengths, axis), (*(batching.ALL,) * axis, places), (*shape[:axis], n, *shape[axis + 1:]))


def slice_sums_meta(a, indices, axis=0):
    shape, axis = along(shape_of(a), axis)
    return MetaArray((*shape[:axis], *shape_of(indices), *shape[axis + 1:]),
                     np.add.reduceat(np.ones(1, dtype_of(a)), [0]).dtype)


def slices_filled_meta(g, indices, n, axis=0):
    shape, axis = along(shape_of(g), axis)
    return MetaArray((*shape[:axis], n, *shape[axis + 1:]), dtype_of(g))


def is_in_slice(indices, n):
    """Return whether each slice, along the last axis but one, contains each of `n` positions."""
    places, shape = range_like(indices, n), (*indices.shape, 1)
    starts = take(places, where(less(indices, 0), n, indices))      # a negative index is out of bounds
    last = full_like(starts, n, shape=(*shape[:-2], min(1, shape[-2])))
    ends = concatenate([part(starts, (..., slice(1, None))), last], -1)
    starts, ends = batching.reshaped(starts, shape), batching.reshaped(ends, shape)
    return logical_or(equal(starts, places), logical_and(less(starts, places), less(places, ends)))


def over_slices(a: Any, indices: Any, axis: int, *n: int) -> Any:
    """Compute `slice_sums`, or with `n` `slices_filled`, by other operators. Stacks of indices are allowed."""
    rows = moveaxis(a, axis, -1)
    chosen = swapaxes(is_in_slice(indices, *n), -1, -2) if n else is_in_slice(indices, rows.shape[-1])
    missing = batching.rank(a) - batching.rank(indices)
    chosen = batching.reshaped(chosen, (*indices.shape[:-1], *(1,) * missing, *chosen.shape[-2:]))
    rows = where(chosen, part(rows, (..., None, batching.ALL)), zeros_like(rows, shape=()))
    return moveaxis(total(rows, -1, rows.dtype if n else None), -1, axis)


def slices_batch(op, info, in_dims, a, indices, *options):
    ndim, (*n, axis) = batching.rank(a) - (in_dims[0] == 0), options
    axis = batching.axis_behind(axis, ndim, None)
    if in_dims[1] is None:
        return op(a, indices, *n, axis), 0
    return over_slices(batching.batch_of(a, in_dims[0], info.batch_size), indices, axis, *n), 0


# derivatives: the gradient of reading is written to zeros, the gradient of writing is read


def item_placed(g, shape, key):
    """Return zeros of `shape`, with `g` at a basic key."""
    if is_of_numpy(g):
        result = np.zeros(shape, g.dtype)
        result[key] = g
        return result
    result = mapped_linearly(lambda g, n: batch_placed(g, n, shape, key), g) if shape else NOT_FLAT
    return with_item(zeros_like(g, shape=shape), key, g) if result is NOT_FLAT else result


def batch_placed(g, n, shape, key):
    """Apply `item_placed` to an array whose first n axes are batches."""
    result = np.zeros((*g.shape[:n], *shape), g.dtype)
    result[(batching.ALL,) * n + (key if type(key) is tuple else (key,))] = g
    return result


def selection_summed(g, shape, key):
    """Return zeros of `shape`, with `g` added at the elements that a key with index arrays selects."""
    items = key if type(key) is tuple else (key,)
    if not is_of_numpy(g) or any(isinstance(item, Tensor) for item in items):      # a batch may read unbatched arrays
        return with_selected(zeros_like(g, shape=shape), key, g, accumulate=True)
    return added_at(g, key, shape)


def assigned_part(g, shape):
    """Return the gradient of values that were broadcast to the target. They may have leading axes of length 1."""
    n_leading = max(len(shape) - g.ndim, 0)
    return sum_to(g, shape[n_leading:]).reshape(shape)


def last_written(g, key, shape):
    """Return, for each element that a key with index arrays selects from `g`, whether its value was kept.

    A value was not kept if a later, equal index wrote to the same element. `shape` is the shape of the selection.
    """
    items = key if type(key) is tuple else (key,)
    if all(is_mask(item) or np.ndim(item) == 0 for item in items):
        return True
    numbers = range_like(g, prod(shape)).reshape(shape)
    return selected(with_selected(zeros_like(g, dtype=np.dtype(int)), key, numbers), key) == numbers


def put_vjp_of_values(g, key, values_shape, accumulate):
    *before, mask = key if type(key) is tuple else (key,)
    if prod(values_shape) == 1 and is_mask(mask) and all(
            type(item) is slice and item == batching.ALL for item in before):
        mask = np.asarray(mask) if isinstance(mask, bool) else mask     # the number of True elements does not matter
        shape = (1,) * len(before) + tuple(mask.shape)
        return where(batching.reshaped(mask, shape + (1,) * (g.ndim - len(shape))), g, 0.0).sum().reshape(values_shape)
    found = selected(g, key)
    return assigned_part(found if accumulate else found * last_written(g, key, tuple(found.shape)), values_shape)


def take_vjp(g, a_shape, indices, axis, mode):
    """Return the gradient of each element: the sum over all positions that it was copied to."""
    shape, axis = along(a_shape, axis)
    if isinstance(indices, (int, np.integer)):
        index = {"raise": indices, "wrap": indices % shape[axis], "clip": min(max(indices, 0), shape[axis] - 1)}[mode]
        return item_placed(g, shape, (*(slice(None),) * axis, int(index))).reshape(a_shape)
    if mode != "raise":
        indices = indices % shape[axis] if mode == "wrap" else limited(indices, 0, shape[axis] - 1)
    return selection_summed(g, shape, (*(slice(None),) * axis, indices)).reshape(a_shape)


def take_along_vjp(g, arr_shape, indices, axis):
    is_of_raw_arrays = is_of_numpy(g) and is_of_numpy(indices)
    if is_of_raw_arrays and len(arr_shape) == 1:
        return added_at(g, indices, arr_shape)
    shape, axis = along(arr_shape, axis)
    if not is_of_raw_arrays:
        return with_added(zeros_like(g, shape=shape), indices, g, axis).reshape(arr_shape)
    result = np.zeros(shape, g.dtype)
    scatter_add(result, indices, g, axis)
    return result.reshape(arr_shape)


declare("getitem", "Tensor(a) x, Any key", getitem, getitem_meta, returns="Tensor(a)",
        tags=("view", "zero_d_by_key"),
        vjp=lambda g, x_shape, key: item_placed(g, x_shape, key), jvp="linear",
        put=lambda x, part, key: with_item(x, key, part), vmap={"key": behind_batch})
declare_writer("setitem", "Tensor x, Any key, Tensor value", setitem, setitem_meta, tags=("indexing",), vjp=(
    lambda g, key: with_item(g, key, 0.0), None, lambda g, key, value_shape: assigned_part(g[key], value_shape)),
    jvp="linear", vmap=setitem_batch)
declare("index", "Tensor x, Any key", index, index_meta, tags=("indexing", "zero_d_by_key"),
        vjp=lambda g, x_shape, key: selection_summed(g, x_shape, key), jvp="linear",
        vmap=index_batch)
declare_writer("index_put", "Tensor x, Any key, Tensor values, *, bool accumulate=False", index_put, index_put_meta,
               tags=("indexing",), vjp=(
                   lambda g, key, accumulate: g if accumulate else with_selected(g, key, 0.0), None, put_vjp_of_values),
               jvp="linear", vmap=index_put_batch)
TAKE = ArrayMethod("take")
declare("take", 'Tensor a, Tensor indices, int? axis=None, *, str mode="raise"', TAKE, take_meta, out=TAKE,
        tags=("indexing",), vjp=take_vjp, jvp="linear", vmap=take_batch)
declare("take_along_axis", "Tensor arr, Tensor indices, int? axis=-1", take_along_axis, take_along_axis_meta,
        tags=("indexing",), vjp=take_along_vjp, jvp="linear", vmap=take_along_batch)
declare_writer("scatter_add", "Tensor x, Tensor indices, Tensor values, int axis", scatter_add, scatter_add_meta,
               tags=("indexing",), jvp="linear", vmap=scatter_add_batch, vjp=(
                   lambda g: g, None,
                   lambda g, indices, values_shape, axis: assigned_part(take_along(g, indices, axis), values_shape)))
declare("slice_sums", "Tensor a, Tensor indices, int axis=0", np.add.reduceat, slice_sums_meta, tags=("indexing",),
        vjp=(lambda g, a_shape, indices, axis: filled_slices(g, indices, a_shape[axis], axis), None), jvp="linear",
        vmap=slices_batch)
declare("slices_filled", "Tensor g, Tensor indices, int n, int axis=0", slices_filled, slices_filled_meta,
        tags=("indexing",), vjp=(lambda g, indices, axis: slice_sums(g, indices, axis), None), jvp="linear",
        vmap=slices_batch)
