"""Searching in sorted arrays."""

from __future__ import annotations

import numpy as np

from pydispatch._core import MetaArray
from pydispatch.operators.batching import batch_of, rank, reshaped
from pydispatch.operators.declare import declare, operators
from pydispatch.operators.layouts import in_c_order
from pydispatch.operators.meta import dtype_of, shape_of

greater, isnan, less, logical_and, logical_not, logical_or, sum_of = operators(
    "greater", "isnan", "less", "logical_and", "logical_not", "logical_or", "sum")


def searchsorted_meta(a, v, side="left"):
    if len(shape_of(a)) != 1:
        raise ValueError("object too deep for desired array")
    np.searchsorted(np.empty(0, dtype_of(a)), np.empty(0, dtype_of(v)), side)
    return MetaArray(shape_of(v), np.dtype(np.intp))


def searchsorted_batch(op, info, in_dims, a, v, side):
    """Search a batch. Many values in one array are one call.

    With many arrays, each value is compared with all elements of its array.
    """
    if in_dims[0] is None:
        return in_c_order(op(a, v, side)), 0
    if rank(a) != 2:
        raise ValueError("object too deep for desired array")
    v = batch_of(v, in_dims[1], info.batch_size)
    shape = tuple(v.shape)
    elements, values = reshaped(a, (shape[0], *(1,) * (v.ndim - 1), a.shape[1])), reshaped(v, (*shape, 1))
    if side == "left":
        before = logical_or(less(elements, values), logical_and(isnan(values), logical_not(isnan(elements))))
    else:
        before = logical_not(logical_or(greater(elements, values), logical_and(isnan(elements),
                                                                               logical_not(isnan(values)))))
    return in_c_order(sum_of(before, -1)), 0


declare("searchsorted", 'Tensor a, Tensor v, str side="left"', np.searchsorted, searchsorted_meta, tags=("sorting",),
        differentiable=False, vmap=searchsorted_batch,
        left_out={"sorter": "use pydispatch.numpy.searchsorted, which takes the elements in that order"})
