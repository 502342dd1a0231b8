"""Operators that rearrange elements: views where memory allows, and joins."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch import _core
from pydispatch._core import ArrayMethod, MetaArray, Tensor, expand, sum_to
from pydispatch.autograd.values import with_batch_outermost
from pydispatch.operators import batching
from pydispatch.operators.declare import IS_NUMPY_2_0, LAYOUT, declare, operators, range_like
from pydispatch.operators.meta import along, broadcast, dtype_of, sample, shape_of, stand_in, view_of

concatenate, flip, index_put, moveaxis, reshape, roll, swapaxes, transpose, with_item, zeros_like = operators(
    "concatenate", "flip", "index_put", "moveaxis", "reshape", "roll", "swapaxes", "transpose", "setitem", "zeros_like")

READ_ORDER = {"order": "elements are read in C order: for another order, transpose before and after"}
JOINED = '*, ScalarType? dtype=None, str casting="same_kind"'


def view(name, arguments, kernel, *, kernel_on_meta=None, returns="Tensor(a)", tags=(), **parts):
    """Declare an operator whose result has the elements of its first argument, as a view where possible.

    `kernel_on_meta` replaces the kernel on meta arrays, where the kernel would copy.
    """
    meta = view_meta(kernel_on_meta or kernel)
    declare(name, arguments, kernel, meta, returns=returns, tags=("view", *tags), jvp="linear", **parts)


def view_meta(kernel):
    """Return a meta kernel that runs the kernel on a meta array instead of the first argument."""
    def meta(a, *args, copy=None, **options):
        result = kernel(stand_in(a), *args, **options)
        if isinstance(result, list):
            return [view_of(a, piece.shape, piece.dtype) for piece in result]
        result = np.asarray(result)     # for a number, NumPy may return the number itself
        return MetaArray(result.shape, result.dtype) if copy else view_of(a, result.shape, result.dtype)
    return meta


def rearrangement(name, arguments, kernel, shape_of_result, **parts):
    """Declare an operator whose result has the elements of its first argument in new memory."""
    def meta(a, *args):
        return MetaArray(shape_of_result(shape_of(a), *args), dtype_of(a))
    declare(name, arguments, kernel, meta, tags=("rearrangement", "zero_d_array"), jvp="linear", **parts)


def join(name, arguments, kernel, shape_of_result, **parts):
    """Declare an operator that joins the elements of several arrays in a new one."""
    def meta(arrays, axis=0, *, out=None, **options):
        if out is not None:
            options["out"] = sample(out)
        dtype = np.concatenate([np.empty(0, dtype_of(a)) for a in arrays], **options).dtype
        return MetaArray(shape_of_result([shape_of(a) for a in arrays], axis), dtype)
    declare(name, f"{arguments}, {JOINED}", kernel, meta, out=kernel, tags=("join",), jvp="linear", **parts)


def concatenated(shapes, axis):
    """Return the shape of the concatenation of `shapes`. Raise ValueError if they differ along another axis."""
    if axis is None:
        return (sum(map(prod, shapes)),)
    first = shapes[0]
    axis = normalize_axis_index(axis, len(first))
    rests = {shape[:axis] + shape[axis + 1:] for shape in shapes}
    if len(rests) > 1 or {len(shape) for shape in shapes} != {len(first)}:
        raise ValueError(f"concatenate: argument arrays has shapes {shapes}, which differ on axes other than {axis}\n"
                         "pass another axis, or arrays that agree along the others")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1:])


def stacked(shapes, axis):
    """Return the shape of arrays of equal `shapes`, stacked along a new axis."""
    first = shapes[0]
    if set(shapes) != {first}:
        raise ValueError(f"stack: argument arrays has shapes {shapes}, expected equal shapes\n"
                         "join arrays of several lengths with concatenate")
    axis = normalize_axis_index(axis, len(first) + 1)
    return (*first[:axis], len(shapes), *first[axis:])


def repeated(shape, repeats, axis=None):
    """Return the shape after each element was repeated `repeats` times: one number, or one per element."""
    shape, axis = along(shape, axis)
    if len(repeats) not in (1, shape[axis]):
        raise ValueError(f"repeat: argument repeats has {len(repeats)} numbers, expected 1 or {shape[axis]}\n"
                         "pass one for all elements, or one for each along the axis")
    if min(repeats) < 0:
        raise ValueError(f"repeat: argument repeats is {repeats}, expected no negative number\n"
                         "pass 0 for elements to leave out")
    extent = shape[axis] * repeats[0] if len(repeats) == 1 else sum(repeats)
    return (*shape[:axis], extent, *shape[axis + 1:])


def tiled(shape, reps):
    """Return the shape after `reps` copies along the axes. Fewer numbers count for the last axes."""
    ndim = max(len(shape), len(reps))
    shape = (1,) * (ndim - len(shape)) + shape
    reps = (1,) * (ndim - len(reps)) + reps
    return tuple(extent * n for extent, n in zip(shape, reps, strict=True))


def rolled(shape, shift, axis=None):
    """Return the shape unchanged. Raise AxisError for an invalid axis."""
    if axis is not None:
        normalize_axis_tuple(axis, len(shape), allow_duplicate=True)
        broadcast(((len(shift),), (len(axis),)))
    return shape


@lru_cache(maxsize=256)
def inverted(axes):
    """Return the permutation that undoes the permutation `axes`."""
    order = [axis % len(axes) for axis in axes]
    return tuple(sorted(range(len(axes)), key=order.__getitem__))


@lru_cache(maxsize=256)
def moved(ndim, source, destination):
    """Return the permutation that `moveaxis` applies."""
    source, destination = normalize_axis_tuple(source, ndim), normalize_axis_tuple(destination, ndim)
    order = [axis for axis in range(ndim) if axis not in source]
    for place, axis in sorted(zip(destination, source, strict=True)):
        order.insert(place, axis)
    return tuple(order)


def parts(g, shapes, axis):
    """Cut `g` into arrays of these shapes along the axis, or without an axis along its only one."""
    if axis is None:
        ends = accumulate([prod(shape) for shape in shapes])
        return tuple([g[end - prod(shape):end].reshape(shape) for shape, end in zip(shapes, ends, strict=True)])
    axis %= g.ndim
    before = (slice(None),) * axis
    ends = accumulate([shape[axis] for shape in shapes])
    return tuple([g[(*before, slice(end - shape[axis], end))] for shape, end in zip(shapes, ends, strict=True)])


def layers(g, n, axis):
    """Return the `n` layers of `g` along the axis."""
    before = (slice(None),) * (axis % g.ndim)
    return tuple([g[(*before, i, ...)] for i in range(n)])


def repeats_summed(g, shape, repeats, axis):
    """Sum the copies that `repeat` made of each element."""
    shape, axis = along(shape, axis)
    if len(repeats) == 1:
        return g.reshape((*shape[:axis + 1], repeats[0], *shape[axis + 1:])).sum(axis + 1)
    sources = range_like(g, shape[axis]).repeat(repeats)
    key = (*(slice(None),) * axis, sources)
    return index_put(zeros_like(g, shape=shape), key, g, accumulate=True)


def tiles_summed(g, shape, reps):
    """Sum the copies that `tile` made of each element."""
    ndim = max(len(shape), len(reps))
    extents = (1,) * (ndim - len(shape)) + shape
    reps = (1,) * (ndim - len(reps)) + tuple(reps)
    tiles = g.reshape(tuple([n for pair in zip(reps, extents, strict=True) for n in pair]))
    return tiles.sum(tuple(range(0, 2 * ndim, 2))).reshape(shape)


# diagonals and windows


def writeable_diagonal(a, offset=0, axis1=0, axis2=1):
    """Return the diagonal as a view that can be written to where the array can.

    NumPy returns a read-only view.
    """
    found = np.diagonal(a, offset, axis1, axis2)
    found.flags.writeable = a.flags.writeable
    return found


def with_diagonal(a, part, offset, axis1, axis2):
    """Return `a` with its diagonal replaced by `part`, whose last axis is along the diagonal."""
    axes = normalize_axis_tuple((axis1, axis2), a.ndim)
    matrices = moveaxis(a, axes, (-2, -1))
    *stack, rows, columns = matrices.shape
    start = max(offset, 0) + max(-offset, 0) * columns
    key = ..., slice(start, start + part.shape[-1] * (columns + 1), columns + 1)
    changed = with_item(reshape(matrices, (*stack, rows * columns)), key, part)
    return moveaxis(reshape(changed, (*stack, rows, columns)), (-2, -1), axes)


def windows(x, window_shape, axis=None):
    """Return the windows as a view that can be written to where the array can. NumPy returns a read-only view."""
    return np.lib.stride_tricks.sliding_window_view(x, window_shape, axis, writeable=True)


def windows_summed(g, ndim, axis):
    """Sum, for each element of an array of `ndim` axes, the window elements that are views of it."""
    axes = normalize_axis_tuple(range(ndim) if axis is None else axis, ndim, allow_duplicate=True)
    for number in reversed(axes):
        g = summed_across(moveaxis(g, number, -2), number)
    return g


def summed_across(x, axis):
    """Sum the elements x[..., i, k] of equal i + k, along this axis."""
    if x.shape[-1] < x.shape[-2]:
        x = swapaxes(x, -2, -1)
    *stack, rows, columns = x.shape
    n = rows + columns - 1
    # with zeros appended, each row that is one element shorter begins one element later
    padded = reshape(concatenate((x, zeros_like(x, shape=(*stack, rows, rows))), -1), (*stack, rows * (n + 1)))
    return moveaxis(reshape(padded[..., :rows * n], (*stack, rows, n)).sum(-2), -1, axis)


def windows_batch(op, info, in_dims, x, window_shape, axis):
    return op(x, window_shape, batching.axes_behind(axis, x.ndim - 1, None)), 0


def unwritable(a):
    """Return a view that cannot be written to. A scalar is returned itself, since it cannot be written to."""
    if isinstance(a, np.generic):
        return a
    view = np.asarray(a).view()
    view.flags.writeable = False
    return view


# batches


def reshape_batch(op, info, in_dims, a, shape, copy):
    n = info.batch_size
    if not n and -1 in shape:
        # without elements, NumPy cannot infer a -1 in the shape of an example
        shape = np.empty(tuple(a.shape)[1:], bool).reshape(shape).shape
    return (op(a, (n, *shape)) if copy is None else op(a, (n, *shape), copy=copy)), 0


def ravel_batch(op, info, in_dims, a):
    """Flatten the examples of a batch. Those with gaps between their elements are copied, as in a loop."""
    return (batching.flat(a) if have_no_gaps(a) else reshape(a, (a.shape[0], prod(a.shape[1:])), copy=True)), 0


def have_no_gaps(batch):
    """Return whether the elements along the last axis are contiguous in each example.

    The elements of a function's result are. Where elements along other axes are not contiguous, `reshape` copies.
    """
    array = _core.bottom_array(batch) if isinstance(batch, Tensor) else batch
    if not isinstance(array, np.ndarray):
        return True
    steps = [step for extent, step in zip(array.shape[1:], array.strides[1:], strict=True) if extent > 1]
    return not steps or steps[-1] == array.itemsize


def squeeze_batch(op, info, in_dims, a, axis):
    """Squeeze a batch. Without an axis, all axes of length 1 are removed, except the batch axis."""
    if axis is None:
        axes = tuple([axis for axis, extent in enumerate(a.shape) if extent == 1 and axis])
    else:
        axes = batching.axes_behind(axis, a.ndim - 1, None)
    return op(a, axes), 0


def broadcast_batch(op, info, in_dims, array, shape):
    return op(batching.padded(array, len(shape)), (info.batch_size, *shape)), 0


def concatenate_batch(op, info, in_dims, arrays, axis, dtype, casting, *out):
    batches = batches_of(arrays, in_dims[0], info.batch_size)
    if axis is None:
        batches, axis = tuple([batching.flat(batch) for batch in batches]), 1
    else:
        axis = batching.axis_behind(axis, batches[0].ndim - 1, None)
    return batching.with_options(op, out, dtype, casting)(batches, axis), 0


def stack_batch(op, info, in_dims, arrays, axis, dtype, casting, *out):
    batches = batches_of(arrays, in_dims[0], info.batch_size)
    axis = batching.axis_behind(axis, batches[0].ndim, None)
    return batching.with_options(op, out, dtype, casting)(batches, axis), 0


def batches_of(arrays, dims, n):
    """Return the arrays of a list, all as batches. `dims` is None if none of them is a batch."""
    dims = (None,) * len(arrays) if dims is None else dims
    return tuple([outermost(batching.batch_of(array, dim, n)) for array, dim in zip(arrays, dims, strict=True)])


def outermost(batch):
    """Return the batch with its examples contiguous in memory, one after another.

    NumPy orders the axes of a joined array by their order in memory.
    """
    array = _core.bottom_array(batch) if isinstance(batch, Tensor) else batch
    if not isinstance(array, np.ndarray) or not array.strides[0] or all(
            abs(step) <= abs(array.strides[0]) for extent, step in zip(array.shape, array.strides, strict=True)
            if extent > 1):
        return batch
    return with_batch_outermost(batch)


def repeat_batch(op, info, in_dims, a, repeats, axis):
    a, axis = batching.rows_along(a, axis)
    return op(a, repeats, axis), 0


def tile_batch(op, info, in_dims, A, reps):
    missing = batching.rank(A) - len(reps)
    return op(batching.padded(A, len(reps)), (1,) * missing + reps if missing > 0 else (1, *reps)), 0


def roll_batch(op, info, in_dims, a, shift, axis):
    if axis is None:
        return batching.reshaped(op(batching.flat(a), shift, (1,)), tuple(a.shape)), 0
    return op(a, shift, batching.axes_behind(axis, a.ndim - 1, None)), 0


def reshape_of_numpy_2_0(a, shape, *, copy=None):
    """Reshape an array, with the argument `copy` that NumPy has from 2.1 on."""
    a = np.asarray(a) if isinstance(a, np.generic) else a      # the result for a scalar is an array
    result = np.array(a, order="C").reshape(shape) if copy else np.reshape(a, shape)
    if copy is False and result.size and not np.may_share_memory(result, a):
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return result


def reshaped_back(a, part):
    return reshape(part, tuple(a.shape))


def with_section(ary, part, piece, indices_or_sections, axis):
    """Return `ary` with its section number `piece` replaced by `part`."""
    extent, axis = ary.shape[axis], axis % ary.ndim
    if isinstance(indices_or_sections, int):
        ends = [extent * (i + 1) // indices_or_sections for i in range(indices_or_sections)]
    else:
        ends = [*indices_or_sections, None]
    section = slice(ends[piece - 1] if piece else 0, ends[piece])
    return with_item(ary, (*(slice(None),) * axis, section), part)


view("reshape", "Tensor(a) a, int[1] shape, *, bool? copy=None",
     reshape_of_numpy_2_0 if IS_NUMPY_2_0 else ArrayMethod("reshape"), left_out=READ_ORDER,
     vjp=lambda g, a_shape: g.reshape(a_shape), put=reshaped_back, vmap=reshape_batch)
view("ravel", "Tensor(a) a", ArrayMethod("ravel"), kernel_on_meta=lambda a: np.reshape(a, -1), left_out=READ_ORDER,
     vjp=lambda g, a_shape: g.reshape(a_shape), put=reshaped_back, vmap=ravel_batch)
view("transpose", "Tensor(a) a, int[]? axes=None", ArrayMethod("transpose"), tags=("zero_d_as_first",),
     vjp=lambda g, axes: g.transpose() if axes is None else g.transpose(inverted(axes)),
     put=lambda a, part, axes: transpose(part, axes and inverted(axes)), vmap={"axes": batching.order_behind})
view("swapaxes", "Tensor(a) a, int axis1, int axis2", ArrayMethod("swapaxes"),
     vjp=lambda g, axis1, axis2: g.swapaxes(axis1, axis2),
     put=lambda a, part, axis1, axis2: swapaxes(part, axis1, axis2),
     vmap=dict.fromkeys(("axis1", "axis2"), batching.axis_behind))
view("moveaxis", "Tensor(a) a, int[1] source, int[1] destination", np.moveaxis,
     vjp=lambda g, source, destination: g.transpose(moved(g.ndim, destination, source)),
     put=lambda a, part, source, destination: moveaxis(part, destination, source),
     vmap={"source": batching.axes_behind, "destination": batching.axes_behind})
view("expand_dims", "Tensor(a) a, int[1] axis", np.expand_dims, vjp=lambda g, a_shape: g.reshape(a_shape),
     put=reshaped_back, vmap={"axis": batching.new_axes_behind})
view("squeeze", "Tensor(a) a, int[1]? axis=None", ArrayMethod("squeeze"), tags=("zero_d_as_first",),
     vjp=lambda g, a_shape: g.reshape(a_shape),
     put=reshaped_back, vmap=squeeze_batch)
view("broadcast_to", "Tensor(a) array, int[1] shape", expand, tags=("read_only",), left_out={"subok": LAYOUT["subok"]},
     vjp=lambda g, array_shape: sum_to(g, array_shape), vmap=broadcast_batch)
view("flip", "Tensor(a) m, int[1]? axis=None", np.flip, tags=("zero_d_scalar",), vjp=lambda g, axis: flip(g, axis),
     put=lambda m, part, axis: flip(part, axis), vmap={"axis": batching.axes_behind})
view("diagonal", "Tensor(a) a, int offset=0, int axis1=0, int axis2=1", writeable_diagonal,
     vjp=lambda g, a_shape, offset, axis1, axis2: with_diagonal(zeros_like(g, shape=a_shape), g, offset, axis1, axis2),
     put=with_diagonal, vmap={"axis1": batching.axis_behind, "axis2": batching.axis_behind})
view("sliding_window_view", "Tensor(a) x, int[1] window_shape, int[1]? axis=None", windows, tags=("zero_d_array",),
     vjp=lambda g, x_shape, axis: windows_summed(g, len(x_shape), axis), vmap=windows_batch)
view("read_only", "Tensor(a) a", unwritable, tags=("read_only", "zero_d_as_first"), vjp=lambda g: g, vmap={})
view("split", "Tensor(a) ary, Union(int, int[]) indices_or_sections, int axis=0", np.split, returns="Tensor(a)[]",
     vjp=lambda g, axis: concatenate(g, axis), put=with_section, vmap={"axis": batching.axis_behind})

join("concatenate", "Tensor[] arrays, int? axis=0", _core.concatenate, concatenated,
     vjp=lambda g, arrays_shape, axis: parts(g, arrays_shape, axis), vmap=concatenate_batch)
join("stack", "Tensor[] arrays, int axis=0", _core.stack, stacked,
     vjp=lambda g, arrays_shape, axis: layers(g, len(arrays_shape), axis), vmap=stack_batch)

rearrangement("repeat", "Tensor a, int[1] repeats, int? axis=None", _core.repeat, repeated,
              vjp=lambda g, a_shape, repeats, axis: repeats_summed(g, a_shape, repeats, axis).reshape(a_shape),
              vmap=repeat_batch)
rearrangement("tile", "Tensor A, int[1] reps", np.tile, tiled,
              vjp=lambda g, A_shape, reps: tiles_summed(g, A_shape, reps), vmap=tile_batch)
rearrangement("roll", "Tensor a, int[1] shift, int[1]? axis=None", np.roll, rolled,
              vjp=lambda g, shift, axis: roll(g, tuple([-n for n in shift]), axis), vmap=roll_batch)
