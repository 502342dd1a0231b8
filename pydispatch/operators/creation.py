"""Operators that make arrays from shapes and numbers."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import AnyDevice, MetaArray, is_of_numpy, sum_to
from pydispatch.operators.batching import axis_behind, fitted, padded, rank, shape_behind
from pydispatch.operators.declare import LAYOUT, declare, range_like
from pydispatch.operators.meta import broadcast, broadcastable, dtype_of, sample, shape_of, stand_in

MADE = "ScalarType? dtype=None, Device? device=None"
MADE_LIKE = f"int[1]? shape=None, {MADE}"
LIKE = {"like": "use device= or default_backend: the device determines the type of the array"}


def creation(name, arguments, kernel, meta, *, keywords="", left_out=None, vjp=None, vmap=None):
    """Declare a creation operator.

    Its kernels do not take the device, since each is registered for one backend.
    """
    declare(name, f"{arguments}, *, {keywords}{MADE}", AnyDevice(kernel), AnyDevice(meta), tags=("creation",),
            left_out={"order": LAYOUT["order"], **LIKE} if left_out is None else left_out,
            vjp=vjp, jvp=vjp and "linear", differentiable=vjp is not None, vmap=vmap)


def creation_like(name, arguments, kernel, *, vjp=None, vmap=None):
    """Declare a creation operator whose shape and dtype default to those of its first argument."""
    def meta(prototype, *values, dtype=None, shape=None):
        check_fill(name, values, shape_of(prototype) if shape is None else shape)
        return MetaArray(shape_of(prototype) if shape is None else shape, dtype or dtype_of(prototype))
    declare(name, f"{arguments}, *, {MADE_LIKE}", AnyDevice(kernel, stand_in), AnyDevice(meta),
            tags=("creation", "like"), left_out=LAYOUT, vjp=vjp, jvp=vjp and "linear", differentiable=vjp is not None,
            vmap=vmap or {"shape": shape_behind})


def shaped_meta(shape, *, dtype=None):
    return MetaArray(shape, dtype)


def full_meta(shape, fill_value, *, dtype=None):
    result = MetaArray(shape, dtype or dtype_of(fill_value))
    check_fill("full", (fill_value,), result.shape)
    return result


def check_fill(name, values, shape):
    """Raise ValueError if the fill value does not broadcast to `shape`."""
    for value in values:
        found = shape_of(value)
        if not broadcastable(found[count_leading_ones(found, len(shape)):], shape):
            raise ValueError(
                f"{name}: argument fill_value has shape {shape_of(value)}, which does not broadcast to {shape}\n"
                "pass a scalar, or an array whose shape broadcasts"
            )


def count_leading_ones(shape, ndim):
    """Count the leading axes of length 1 that NumPy drops from the value that fills an array of `ndim` axes."""
    extra = max(len(shape) - ndim, 0)
    return extra if shape[:extra] == (1,) * extra else 0


def arange_meta(start_or_stop, stop=None, step=1, *, dtype=None):
    """Infer the length as NumPy computes it, and the dtype of an array of the numbers."""
    start, stop = (0, start_or_stop) if stop is None else (start_or_stop, stop)
    quotient = (stop - start) / step
    length = max(0, ceil(quotient.real))
    if isinstance(quotient, complex):       # of NumPy scalars, only complex128 is one
        length = max(0, min(length, ceil(quotient.imag)))
    if dtype is None:
        # empty ranges: the dtype depends on the values, since an int may be too large for int64
        dtype = np.promote_types(np.arange(start, start, step).dtype, np.arange(stop, stop, step).dtype)
    else:
        dtype = np.arange(min(length, 3), dtype=dtype).dtype        # a range of bools has at most two elements
    return MetaArray((length,), dtype)


def linspace_meta(start, stop, num=50, endpoint=True, *, dtype=None, axis=0):
    """Infer the metadata: `num` elements along a new axis of the shape that start and stop broadcast to."""
    shape = broadcast((shape_of(start), shape_of(stop)))
    axis = normalize_axis_index(axis, len(shape) + 1)
    dtype = np.linspace(sample(start), sample(stop), 1, dtype=dtype).dtype
    return MetaArray((*shape[:axis], num, *shape[axis:]), dtype)


def eye_meta(N, M=None, k=0, *, dtype=None):
    return MetaArray((N, N if M is None else M), dtype)


def full_batch(op, info, in_dims, shape, fill_value, dtype, device):
    value = fitted(fill_value, in_dims[1], len(shape))
    return op((info.batch_size, *shape), value, dtype=dtype, device=device), 0


def full_like_batch(op, info, in_dims, a, fill_value, shape, dtype, device):
    if shape is None:
        shape = tuple(getattr(a, "shape", ()))[in_dims[0] == 0:]
    value = fitted(fill_value, in_dims[1], len(shape))
    return op(a, value, shape=(info.batch_size, *shape), dtype=dtype, device=device), 0


def linspace_batch(op, info, in_dims, start, stop, num, endpoint, axis, dtype, device):
    ends = [(start, in_dims[0]), (stop, in_dims[1])]
    ndim = max(rank(end) - (dim == 0) for end, dim in ends)
    axis = axis_behind(axis, ndim + 1, None)
    batches = [padded(end, ndim) if dim == 0 else end for end, dim in ends]
    return op(*batches, num, endpoint, axis=axis, dtype=dtype, device=device), 0


def parts_of_stop(g, num, endpoint, axis):
    """Return the weight of `stop` in each number of a `linspace`, along the axis of its gradient."""
    extents = (num,) + (1,) * (g.ndim - 1 - axis % g.ndim)
    if is_of_numpy(g):
        return np.linspace(0, 1, num, endpoint, dtype=g.dtype).reshape(extents)
    return range_like(g, num).astype(g.dtype).reshape(extents) / max(1, num - endpoint)


def start_vjp(g, num, endpoint, axis, start_shape):
    return sum_to((g * (1 - parts_of_stop(g, num, endpoint, axis))).sum(axis), start_shape)


def stop_vjp(g, num, endpoint, axis, stop_shape):
    return sum_to((g * parts_of_stop(g, num, endpoint, axis)).sum(axis), stop_shape)


creation("zeros", "int[1] shape", np.zeros, shaped_meta)
creation("ones", "int[1] shape", _core.ones, shaped_meta)
creation("empty", "int[1] shape", np.empty, shaped_meta)
creation("full", "int[1] shape, Tensor fill_value", _core.full, full_meta,
         vjp=lambda g, fill_value_shape: sum_to(g, fill_value_shape), vmap=full_batch)
creation("arange", "Scalar start_or_stop, Scalar? stop=None, Scalar step=1", np.arange, arange_meta,
         left_out=LIKE)
creation("linspace", "Tensor start, Tensor stop, int num=50, bool endpoint=True", np.linspace, linspace_meta,
         keywords="int axis=0, ",
         left_out={"retstep": "the step is (stop - start) / (num - 1), or / num without endpoint"},
         vjp=(start_vjp, stop_vjp), vmap=linspace_batch)
creation("eye", "int N, int? M=None, int k=0", np.eye, eye_meta)

creation_like("zeros_like", "Tensor a", np.zeros_like)
creation_like("ones_like", "Tensor a", np.ones_like)
creation_like("empty_like", "Tensor prototype", np.empty_like)
creation_like("full_like", "Tensor a, Tensor fill_value", np.full_like,
              vjp=(None, lambda g, fill_value_shape: sum_to(g, fill_value_shape)), vmap=full_like_batch)
