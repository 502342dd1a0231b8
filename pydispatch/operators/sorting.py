"""Sorting along an axis."""

from __future__ import annotations

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import ArrayMethod, MetaArray
from pydispatch.operators.batching import batch_of, rows_along
from pydispatch.operators.declare import declare, operators
from pydispatch.operators.meta import along, dtype_of, shape_of

positions_in_order, take_along = operators("argsort", "take_along_axis")


def sorting(name, kernel, *, takes_scalars, **parts):
    """Declare an operator that orders the elements along an axis, or all elements without one.

    NumPy's argsort treats a 0-d array as a vector of one element; its sort refuses it.
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
            left_out={"order": "it names fields, which arrays here do not have; sort by one key after the other",
                      "descending": f"of NumPy 2.5; pydispatch.numpy.{name} takes it"},
            vmap=sort_batch, **parts)


def sorted_by_position(a, axis=-1, kind=None, *, stable=None):
    """The sorted array, by operators: the tape then saves its order, the positions of its elements in `a`."""
    if kind is None and stable is None:
        return take_along(a, positions_in_order(a, axis), axis)
    return take_along(a, positions_in_order(a, axis, kind, stable=stable), axis)


sorting("argsort", ArrayMethod("argsort"), takes_scalars=True, differentiable=False)
sorting("sort", np.sort, takes_scalars=False, differentiated_as=sorted_by_position)
