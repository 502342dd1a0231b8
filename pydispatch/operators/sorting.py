"""Sorting along an axis."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import ArrayMethod, MetaArray
from pydispatch.operators.batching import batch_of, rows_along
from pydispatch.operators.declare import declare, operators
from pydispatch.operators.layouts import laid_out_like
from pydispatch.operators.meta import along, dtype_of, shape_of

positions_in_order, take_along = operators("argsort", "take_along_axis")


def sorting(name, kernel, *, takes_scalars, **parts):
    """Declare an operator that orders the elements along an axis, or all elements without one.

    NumPy's argsort treats a 0-d array as a vector of one element. NumPy's sort refuses it.
    """
    def check_axis(axis, ndim):
        if axis is not None and not takes_scalars:
            normalize_axis_index(axis, ndim)

    def meta(a, axis=-1, *args, **options):
        shape = shape_of(a)
        check_axis(axis, len(shape))
        dtype = kernel(np.empty(0, dtype_of(a)), -1, *args, **options).dtype
        return MetaArray(along(shape, axis)[0], dtype)

    def sort_batch(op, info, in_dims, a, axis, kind, stable):
        a = batch_of(a, in_dims[0], info.batch_size)
        check_axis(axis, a.ndim - 1)
        return op(*rows_along(a, axis), kind, stable=stable), 0

    declare(name, "Tensor a, int? axis=-1, str? kind=None, *, bool? stable=None", kernel, meta, tags=("sorting",),
            left_out={"order": "it names fields, which arrays of operators do not have: sort by one key at a time",
                      "descending": f"new in NumPy 2.5: use pydispatch.numpy.{name}"},
            vmap=sort_batch, **parts)


def sorted_by_position(a, axis=-1, kind=None, *, stable=None):
    """Sort an array by operators, so that the tape saves its order, the positions of its elements in `a`."""
    options = {} if kind is None and stable is None else {"kind": kind, "stable": stable}
    positions = positions_in_order(a, axis, **options)
    return take_along(a, positions if axis is None else laid_out_like(positions, a), axis)


PARTITIONED = 200       # from this number of elements on, a partition is faster than sorting


def argpartition(a, kth, axis=-1):
    """Return positions in an order with the right elements at `kth`, smaller ones before and larger ones behind."""
    a = np.asarray(a)
    return a.argpartition(kth, axis) if check_kth(a.shape, kth, axis) >= PARTITIONED else a.argsort(axis)


def check_kth(shape, kth, axis):
    """Return the number of elements along the axis. Raise ValueError for positions that are not among them.

    An array without elements may have any positions, as in NumPy.
    """
    shape, axis = along(shape, axis)
    for k in kth if prod(shape) else ():
        if not -shape[axis] <= k < shape[axis]:
            raise ValueError(f"kth(={k}) out of bounds ({shape[axis]})")
    return shape[axis]


def argpartition_meta(a, kth, axis=-1):
    check_kth(shape_of(a), kth, axis)
    return MetaArray(along(shape_of(a), axis)[0], np.dtype(np.intp))


def argpartition_batch(op, info, in_dims, a, kth, axis):
    rows, axis = rows_along(a, axis)
    return op(rows, kth, axis), 0


declare("argpartition", "Tensor a, int[] kth, int? axis=-1", argpartition, argpartition_meta, tags=("sorting",),
        left_out={"kind": "NumPy has one kind", "order": "it names fields, which arrays of operators do not have"},
        differentiable=False, vmap=argpartition_batch)
sorting("argsort", ArrayMethod("argsort"), takes_scalars=True, differentiable=False)
sorting("sort", np.sort, takes_scalars=False, differentiated_as=sorted_by_position)
