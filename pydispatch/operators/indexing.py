"""Selecting elements, and writing to selected ones.

Basic keys (ints, slices, None, Ellipsis) give views; keys with index arrays or masks give copies. They are two
operators each for reading and for writing, since everything above kernels treats them differently.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from pydispatch._core import sum_to
from pydispatch.autograd.levels import described_level
from pydispatch.backends.meta import (
    MetaArray,
    along,
    broadcast,
    broadcastable,
    dtype_of,
    sample,
    shape_of,
    stand_in,
    view_of,
)
from pydispatch.exceptions import DataDependentError, DispatchTypeError, VmapError
from pydispatch.operators.batching import (
    ALL,
    axis_behind,
    batch_of,
    each_example,
    fitted,
    from_front,
    into,
    lanes,
    padded,
    permuted,
    rank,
    reshaped,
    to_front,
)
from pydispatch.operators.declare import array_method, declare, declare_writer, is_plain, operators, range_like

astype, limited, remainder, selected, take_along, where, with_added, with_item, with_selected, zeros_like = operators(
    "astype", "clip", "remainder", "index", "take_along_axis", "where", "scatter_add", "setitem", "index_put",
    "zeros_like")

INDEX_ARRAYS = (np.ndarray, MetaArray, np.bool_, bool, list, tuple)
"""What selects elements one by one; sequences are among them in NumPy."""


def basic_items(name, key, other):
    """The items of a basic key; DispatchTypeError, naming the operator for index arrays, for any other."""
    items = key if type(key) is tuple else (key,)
    for item in items:
        if isinstance(item, INDEX_ARRAYS):
            raise DispatchTypeError(
                f"{name}: argument key holds a {type(item).__name__}, expected ints, slices, None and Ellipsis\n"
                f"use ops.np.{other} for index arrays and masks"
            )
    return items


def advanced_items(name, key, other):
    """The items of a key with at least one index array or mask; DispatchTypeError for any other key."""
    items = key if type(key) is tuple else (key,)
    for item in items:
        if isinstance(item, (list, tuple)):
            raise DispatchTypeError(
                f"{name}: argument key holds a {type(item).__name__}, expected arrays, ints, slices, None, Ellipsis\n"
                f"pass np.array({item})"
            )
    if not any(isinstance(item, INDEX_ARRAYS) for item in items):
        raise DispatchTypeError(f"{name}: argument key holds no index array and no mask\nuse ops.np.{other}")
    return items


# reading and writing through a basic key


def getitem(x, key):
    """A view of the elements that a basic key selects; an array even of one element, hence the Ellipsis."""
    items = basic_items("getitem", key, "index")
    return np.asanyarray(x)[items if Ellipsis in items else (*items, Ellipsis)]


def getitem_meta(x, key):
    result = getitem(stand_in(x), key)
    return view_of(x, result.shape, result.dtype)


def setitem(x, key, value):
    x[basic_items("setitem_", key, "index_put_")] = value


def setitem_meta(x, key, value):
    sample(x)[...] = sample(value)
    check_assignable("setitem_", shape_of(value), getitem(stand_in(x), key).shape)


def check_assignable(name, shape, target):
    """ValueError unless values of `shape`, less leading ones, broadcast to the shape of what is written to."""
    while len(shape) > len(target) and shape[0] == 1:
        shape = shape[1:]
    if not broadcastable(shape, target):
        raise ValueError(
            f"{name}: values of shape {shape} do not broadcast to the selected elements, of shape {target}\n"
            "pass values of that shape, or a scalar"
        )


# reading and writing through index arrays


def index(x, key):
    """A copy of the elements that a key with index arrays or masks selects."""
    return np.asanyarray(x)[advanced_items("index", key, "getitem")]


def index_meta(x, key):
    return MetaArray(indexed_shape(shape_of(x), advanced_items("index", key, "getitem")), dtype_of(x))


def index_put(x, key, values, *, accumulate=False):
    items = advanced_items("index_put_", key, "setitem_")
    if accumulate:
        # NumPy 2.4 reads past the end of values of fewer dimensions than the one index array of a vector
        filled = values if np.ndim(values) == 0 else np.broadcast_to(values, indexed_shape(x.shape, items))
        np.add.at(x, items, filled)
    else:
        x[items] = values


def index_put_meta(x, key, values, *, accumulate=False):
    items = advanced_items("index_put_", key, "setitem_")
    index_put(sample(x), np.empty(0, int), sample(values), accumulate=accumulate)
    if shape_of(values) or not any(map(is_mask, items)):
        check_assignable("index_put_", shape_of(values), indexed_shape(shape_of(x), items))


def is_mask(item):
    return isinstance(item, bool) or getattr(item, "dtype", None) == np.bool_


def consumed(item):
    """The number of axes that an item of a key selects from."""
    if item is None or item is Ellipsis:
        return 0
    return len(shape_of(item)) if is_mask(item) else 1


def indexed_shape(shape, items):
    """The shape of the elements that a key with index arrays selects from an array of `shape`; IndexError as NumPy's.

    The index arrays, and the ints beside them, broadcast to one shape. It takes the place of the first of them where
    they stand together, else it comes first; the other items act as in a basic key.
    """
    items = items if any(item is Ellipsis for item in items) else (*items, Ellipsis)
    hidden = len(shape) - sum(map(consumed, items))
    if hidden < 0:
        raise IndexError(f"index: argument key selects from {len(shape) - hidden} axes of an array of shape {shape}")
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
    """The shape of one index array: of an int (), of a mask the number of elements that are set."""
    if isinstance(item, MetaArray) and item.dtype.kind == "b":
        raise DataDependentError(
            "index: argument key holds a mask on Meta, which has no data to tell the shape of the result\n"
            "use ops.np.where(mask, x, other), whose result has the shape of x"
        )
    if is_mask(item):
        if shape_of(item) != extents:
            raise IndexError(f"index: argument key holds a mask of shape {shape_of(item)} for axes {extents}")
        return (np.count_nonzero(item),)
    if dtype_of(item).kind not in "iu":
        raise IndexError(f"index: argument key holds {item!r}, expected ints, bools, slices, None and Ellipsis")
    if isinstance(item, int) and not -extents[0] <= item < extents[0]:
        raise IndexError(f"index: argument key holds {item} for an axis of extent {extents[0]}")
    return shape_of(item)


def broadcast_indices(shapes):
    """The shape that index arrays broadcast to; IndexError where they do not."""
    try:
        return broadcast(shapes)
    except ValueError as error:
        raise IndexError(f"index arrays do not broadcast together: {error}") from None


# along an axis


def take_meta(a, indices, axis=None, *, mode="raise", out=None):
    """The rule: the indices' shape in place of the axis."""
    options = {} if out is None else {"out": sample(out)}
    dtype = np.empty(1, dtype_of(a)).take(np.empty(0, dtype_of(indices)), mode=mode, **options).dtype
    shape, axis = along(shape_of(a), axis)
    if shape[axis] == 0 and prod(shape_of(indices)):
        raise IndexError(f"take: argument a has shape {shape}, there is nothing to take along axis {axis}")
    return MetaArray((*shape[:axis], *shape_of(indices), *shape[axis + 1:]), dtype)


def take_along_axis_meta(arr, indices, axis=-1):
    """The rule: the indices' shape along the axis, broadcast to the array's along the others."""
    dtype = np.take_along_axis(np.empty(0, dtype_of(arr)), np.empty(0, dtype_of(indices)), 0).dtype
    return MetaArray(along_shape("take_along_axis", shape_of(arr), shape_of(indices), axis), dtype)


def along_shape(name, shape, indices, axis):
    """The shape of what indices of shape `indices` select from an array of `shape` along the axis."""
    shape, axis = along(shape, axis)
    if len(indices) != len(shape):
        raise ValueError(f"{name}: argument indices has {len(indices)} axes, expected {len(shape)}")
    return broadcast_indices([indices, (*shape[:axis], 1, *shape[axis + 1:])])


def scatter_add(x, indices, values, axis):
    """Add the values where take_along_axis would read, once for every index."""
    along_shape("scatter_add_", x.shape, indices.shape, axis)
    grid = list(np.indices(x.shape, sparse=True))
    grid[axis] = indices
    np.add.at(x, tuple(grid), values)


def scatter_add_meta(x, indices, values, axis):
    selected = along_shape("scatter_add_", shape_of(x), shape_of(indices), axis)
    check_assignable("scatter_add_", shape_of(values), selected)
    np.add.at(sample(x), sample(indices), sample(values))


# batches


def behind_batch(key):
    """A key for each example, as one for the batch."""
    return (ALL, *key) if type(key) is tuple else (ALL, key)


def getitem_batch(op, info, in_dims, x, key):
    return op(x, behind_batch(key)), 0


def setitem_batch(op, info, in_dims, x, key, value):
    x = batch_of(x, in_dims[0], info.batch_size)
    if rank(value):
        items = key if type(key) is tuple else (key,)
        n_new = sum([item is None for item in items])
        n_kept = sum([item is Ellipsis or isinstance(item, slice) for item in items])
        value = fitted(value, in_dims[2], x.ndim - 1 - len(items) + n_kept + 2 * n_new)
    return op(x, behind_batch(key), value), 0


class Selection(NamedTuple):
    """What a key with index arrays selects from one example.

    `n_picked` axes are those of the index arrays, which broadcast together; among the `n_kept` others they are at
    `place`. Where the index arrays do not stand `together` that is 0.
    """

    items: tuple
    dims: tuple
    n_picked: int
    n_kept: int
    place: int
    together: bool

    @property
    def has_batch(self):
        return 0 in self.dims


def selection(op, info, key, dims, ndim):
    """The Selection of a key, of which `dims` says what is a batch, from examples of `ndim` axes."""
    if type(key) is not tuple:
        key, dims = (key,), (dims,)
    if dims is None:
        dims = (None,) * len(key)
    if any(is_mask(item) and dim == 0 for item, dim in zip(key, dims, strict=True)):
        raise VmapError(
            f"{op.name}: argument key holds a mask that differs from example to example of {described_level(info)}, as "
            "would the number of elements that it selects\n"
            "use ops.np.where(mask, x, other), whose result has the shape of x"
        )
    hidden = ndim - sum([n_axes_of(item) for item in key])
    n_picked, n_kept, places = 0, 0, []
    for position, (item, dim) in enumerate(zip(key, dims, strict=True)):
        if item is Ellipsis:
            n_kept, hidden = n_kept + hidden, 0
        elif item is None or isinstance(item, slice):
            n_kept += 1
        else:
            n_picked = max(n_picked, 1 if is_mask(item) else rank(item) - (dim == 0))
            places.append((position, n_kept))
    together = places[-1][0] - places[0][0] == len(places) - 1
    return Selection(key, dims, n_picked, n_kept + hidden, places[0][1] if together else 0, together)


def n_axes_of(item):
    """The number of axes of an example that an item of a key selects from."""
    if item is None or item is Ellipsis:
        return 0
    return rank(item) if is_mask(item) else 1


def aligned_items(chosen):
    """The items of the key, its batches such that their examples broadcast together."""
    return tuple([padded(item, chosen.n_picked) if dim == 0 else item
                  for item, dim in zip(chosen.items, chosen.dims, strict=True)])


def index_batch(op, info, in_dims, x, key):
    """Index arrays of a batch of sources, or batches of index arrays, or both: then each with its own source."""
    is_batch = in_dims[0] == 0
    chosen = selection(op, info, key, in_dims[1], rank(x) - is_batch)
    if not chosen.has_batch:
        # NumPy puts what index arrays that do not stand together pick before all other axes
        return to_front(op(x, (ALL, *chosen.items)), 0 if chosen.together else chosen.n_picked), 0
    items = aligned_items(chosen)
    if not is_batch:
        return to_front(op(x, items), chosen.place), 0
    picked = op(x, (each_example(info.batch_size, chosen.n_picked), *items))
    return permuted_picked(picked, chosen.n_picked, chosen.place), 0


@lru_cache(maxsize=256)
def picked_order(ndim, n_picked, place):
    """The permutation that puts axes 1, ..., n_picked behind `place` others, the axis of the batch not counted."""
    others = range(1 + n_picked, ndim)
    return 0, *others[:place], *range(1, 1 + n_picked), *others[place:]


@lru_cache(maxsize=256)
def picked_first_order(ndim, n_picked, place):
    """The permutation that undoes that of picked_order."""
    return 0, *range(1 + place, 1 + place + n_picked), *range(1, 1 + place), *range(1 + place + n_picked, ndim)


def permuted_picked(batch, n_picked, place):
    """What was picked for each example and comes first there, at its place among the other axes."""
    return permuted(batch, picked_order(batch.ndim, n_picked, place)) if n_picked and place else batch


def index_put_batch(op, info, in_dims, x, key, values, accumulate):
    n = info.batch_size
    x = batch_of(x, in_dims[0], n)
    if in_dims[1] == 0 and is_mask(key) and rank(values) == (in_dims[2] == 0) and not (accumulate and in_dims[2] == 0):
        return put_by_mask(op, n, x, key, values, in_dims[2], accumulate), 0
    chosen = selection(op, info, key, in_dims[1], x.ndim - 1)
    ndim = chosen.n_picked + chosen.n_kept
    values = fitted(values, in_dims[2], ndim) if rank(values) else values
    if chosen.has_batch:
        key = (each_example(n, chosen.n_picked), *aligned_items(chosen))
        if chosen.n_picked and chosen.place and rank(values):
            values = permuted(as_batch_of_rank(values, in_dims[2], ndim),
                              picked_first_order(ndim + 1, chosen.n_picked, chosen.place))
    else:
        key = (ALL, *chosen.items)
        if not chosen.together and chosen.n_picked and rank(values):
            values = from_front(as_batch_of_rank(values, in_dims[2], ndim), chosen.n_picked)
    return op(x, key, values, accumulate=accumulate), 0


def as_batch_of_rank(values, dim, ndim):
    """Values as a batch of arrays of `ndim` axes, of one example where they are the same for all."""
    return padded(values if dim == 0 else reshaped(values, (1, *values.shape)), ndim)


def put_by_mask(op, n, x, mask, value, dim, accumulate):
    """One number put, for each example, where its own mask says: that depends on no shape that is not known."""
    if dim != 0:
        return op(x, mask, value, accumulate=accumulate)
    n_axes = x.ndim - 1
    value = padded(value, n_axes)
    mask = reshaped(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    return op(x, each_example(n, 0), where(mask, value, x))


def take_batch(op, info, in_dims, a, indices, axis, mode, *out):
    is_batch, n = in_dims[0] == 0, info.batch_size
    if in_dims[1] != 0:
        rows, axis = lanes(batch_of(a, in_dims[0], n), axis)
        return op(rows, indices, axis, mode=mode, **into(out)), 0
    if not is_batch:
        axis = along(tuple(getattr(a, "shape", ())), axis)[1] if axis is not None else None
        out = tuple([from_front(array, axis or 0) for array in out])
        return to_front(op(a, indices, axis, mode=mode, **into(out)), axis or 0), 0
    rows, axis = lanes(a, axis)
    if mode != "raise":
        extent = rows.shape[axis]
        indices = remainder(indices, extent) if mode == "wrap" else limited(indices, 0, extent - 1)
    ndim = rank(indices) - 1
    key = (each_example(n, ndim), *(ALL,) * (axis - 1), astype(indices, np.dtype(int)) if is_mask(indices) else indices)
    picked = permuted_picked(selected(rows, key), ndim, axis - 1)
    if out:
        # the operator itself says what fits in `out`
        op(picked, np.arange(prod(picked.shape)).reshape(picked.shape), **into(out))
    return picked, 0


def take_along_batch(op, info, in_dims, arr, indices, axis):
    arr, axis = lanes(arr if in_dims[0] == 0 else reshaped(arr, (1, *arr.shape)), axis)
    return op(arr, indices if in_dims[1] == 0 else reshaped(indices, (1, *indices.shape)), axis), 0


def scatter_add_batch(op, info, in_dims, x, indices, values, axis):
    x = batch_of(x, in_dims[0], info.batch_size)
    indices = indices if in_dims[1] == 0 else reshaped(indices, (1, *indices.shape))
    return op(x, indices, fitted(values, in_dims[2], x.ndim - 1), axis_behind(axis, x.ndim - 1, None)), 0


# derivatives: the gradient of a reading is written to zeros, that of a writing is read


def item_placed(g, shape, key):
    """Zeros of `shape`, but `g` at a basic key."""
    if not is_plain(g):
        return with_item(zeros_like(g, shape=shape), key, g)
    result = np.zeros(shape, g.dtype)
    result[key] = g
    return result


def selection_summed(g, shape, key):
    """Zeros of `shape`, to which `g` is added where a key with index arrays selects."""
    if not is_plain(g):
        return with_selected(zeros_like(g, shape=shape), key, g, accumulate=True)
    result = np.zeros(shape, g.dtype)
    np.add.at(result, key, g)
    return result


def assigned_part(g, shape):
    """The gradient of values that were broadcast to what was written to; more axes of extent 1 are allowed there."""
    n_leading = max(len(shape) - g.ndim, 0)
    return sum_to(g, shape[n_leading:]).reshape(shape)


def last_written(g, key, shape):
    """Where a key with index arrays selects elements of `g`, of this shape: is what is put there there afterwards?

    Not those that a later one, of another index that is the same, has replaced.
    """
    items = key if type(key) is tuple else (key,)
    if all(map(is_mask, items)):
        return True
    numbers = range_like(g, prod(shape)).reshape(shape)
    return selected(with_selected(zeros_like(g, dtype=np.dtype(int)), key, numbers), key) == numbers


def put_vjp_of_values(g, key, values_shape, accumulate):
    found = selected(g, key)
    return assigned_part(found if accumulate else found * last_written(g, key, tuple(found.shape)), values_shape)


def take_vjp(g, a_shape, indices, axis, mode):
    """The gradient of each element, from every place that it was taken to."""
    shape, axis = along(a_shape, axis)
    if isinstance(indices, (int, np.integer)):
        index = {"raise": indices, "wrap": indices % shape[axis], "clip": min(max(indices, 0), shape[axis] - 1)}[mode]
        return item_placed(g, shape, (*(slice(None),) * axis, int(index))).reshape(a_shape)
    if mode != "raise":
        indices = indices % shape[axis] if mode == "wrap" else limited(indices, 0, shape[axis] - 1)
    return selection_summed(g, shape, (*(slice(None),) * axis, indices)).reshape(a_shape)


def take_along_vjp(g, arr_shape, indices, axis):
    shape, axis = along(arr_shape, axis)
    return with_added(zeros_like(g, shape=shape), indices, g, axis).reshape(arr_shape)


declare("getitem", "Tensor(a) x, Any key", getitem, getitem_meta, returns="Tensor(a)", tags=("view",),
        vjp=lambda g, x_shape, key: item_placed(g, x_shape, key), jvp="linear",
        put=lambda x, part, key: with_item(x, key, part), vmap=getitem_batch)
declare_writer("setitem", "Tensor x, Any key, Tensor value", setitem, setitem_meta, tags=("indexing",), vjp=(
    lambda g, key: with_item(g, key, 0.0), None, lambda g, key, value_shape: assigned_part(g[key], value_shape)),
    jvp="linear", vmap=setitem_batch)
declare("index", "Tensor x, Any key", index, index_meta, tags=("indexing",),
        vjp=lambda g, x_shape, key: selection_summed(g, x_shape, key), jvp="linear",
        vmap=index_batch)
declare_writer("index_put", "Tensor x, Any key, Tensor values, *, bool accumulate=False", index_put, index_put_meta,
               tags=("indexing",), vjp=(
                   lambda g, key, accumulate: g if accumulate else with_selected(g, key, 0.0), None, put_vjp_of_values),
               jvp="linear", vmap=index_put_batch)
TAKE = array_method("take")
declare("take", 'Tensor a, Tensor indices, int? axis=None, *, str mode="raise"', TAKE, take_meta, out=TAKE,
        tags=("indexing",), vjp=take_vjp, jvp="linear", vmap=take_batch)
declare("take_along_axis", "Tensor arr, Tensor indices, int? axis=-1", np.take_along_axis, take_along_axis_meta,
        tags=("indexing",), vjp=take_along_vjp, jvp="linear", vmap=take_along_batch)
declare_writer("scatter_add", "Tensor x, Tensor indices, Tensor values, int axis", scatter_add, scatter_add_meta,
               tags=("indexing",), jvp="linear", vmap=scatter_add_batch, vjp=(
                   lambda g: g, None,
                   lambda g, indices, values_shape, axis: assigned_part(take_along(g, indices, axis), values_shape)))
