"""Functions of arrays as sets. Their results have one element for each distinct one.

Under `vmap`, in traces and on Meta `unique` takes `size=` as in JAX. It then returns the smallest `size` elements. If
there are fewer, it appends `fill_value`, or the smallest element.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch.numpy.declare import array_function, as_nonscalar, as_zero_d, numpys
from pydispatch.numpy.manipulation import concatenate
from pydispatch.numpy.selection import flatnonzero, lexsort, searchsorted
from pydispatch.ops import ops


def flattened(x: Any) -> Any:
    return ops.np.ravel(as_nonscalar(x))


def differs(left: Any, right: Any, equal_nan: bool) -> Any:
    """Return whether the elements are different. Two nan are equal with `equal_nan`."""
    unlike = ops.np.not_equal(left, right)
    if not equal_nan or left.dtype.kind not in "fc":
        return unlike
    return ops.np.logical_and(unlike, ops.np.logical_not(ops.np.logical_and(ops.np.isnan(left), ops.np.isnan(right))))


class Distinct:
    """The distinct elements of a vector, or rows of a matrix, with the position and the count of each."""

    def __init__(self, x: Any, equal_nan: bool = True, size: int | None = None) -> None:
        n = x.shape[0]
        if x.ndim == 1:
            self.order = ops.np.argsort(x, 0, None, stable=True)
            ordered = ops.np.take(x, self.order, 0)
            new = differs(ops.np.getitem(ordered, slice(1, None)), ops.np.getitem(ordered, slice(-1)), equal_nan)
        else:
            columns = [ops.np.getitem(x, (slice(None), j)) for j in range(x.shape[1])]
            self.order = (lexsort(columns[::-1]) if columns else
                          ops.np.zeros_like(x, shape=(n,), dtype=np.dtype(np.intp)))
            ordered = ops.np.take(x, self.order, 0)
            new = differs(ops.np.getitem(ordered, slice(1, None)), ops.np.getitem(ordered, slice(-1)), False)
            new = ops.np.any(new, 1)
        first = ops.np.ones_like(new, shape=(min(n, 1),))
        self.first = ops.np.concatenate([first, new]) if n else first
        self.starts = flatnonzero(self.first, size=size)
        self.index = ops.np.take(self.order, self.starts, 0)
        self.n, self.size = n, size

    def inverse(self) -> Any:
        """Return the number of each element among the distinct ones."""
        number = ops.np.subtract(ops.np.cumsum(self.first, 0), 1)
        return ops.np.take(number, ops.np.argsort(self.order, 0, None, stable=True), 0)

    def counts(self) -> Any:
        """Return how often each element occurs."""
        if self.size is not None:
            same = ops.np.equal(ops.np.expand_dims(self.inverse(), 0), np.arange(self.size)[:, None])
            return ops.np.sum(same, 1)
        if math.isnan(self.starts.shape[0]):        # for a lazy array
            number = ops.np.cumsum(self.first, 0)
            ends = ops.np.searchsorted(number, ops.np.take(number, self.starts, 0), "right")
            return ops.np.subtract(ends, self.starts)
        ends = ops.np.concatenate([ops.np.getitem(self.starts, slice(1, None)),
                                   ops.np.full_like(self.starts, self.n, shape=(min(self.n, 1),))])
        return ops.np.subtract(ends, self.starts)


@functools.cache
def axis_keeps_nan() -> bool:
    """Return whether the installed NumPy keeps every nan when the only axis is named, as older versions do."""
    return len(np.unique([np.nan, np.nan], axis=0)) == 2


@array_function(added=("size", "fill_value"))
def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, sorted: bool = True, size: int | None = None,
           fill_value: Any = None) -> Any:
    """Return the distinct elements, ascending, or slices along an axis.

    First positions, numbers and counts are optional.
    """
    ar = as_nonscalar(ar)
    if axis is not None:
        axis = normalize_axis_index(axis, ar.ndim)
    if axis is None or ar.ndim == 1:
        rows, shape = ops.np.ravel(ar), tuple(ar.shape)
        distinct = Distinct(rows, equal_nan and not (axis == 0 and axis_keeps_nan()), size)
        values = ops.np.take(rows, distinct.index, 0)
    else:
        shape = (ar.shape[axis],)
        rows = ops.np.moveaxis(ar, axis, 0)
        distinct = Distinct(ops.np.reshape(rows, (shape[0], -1 if rows.size else 0)), equal_nan, size)
        values = ops.np.moveaxis(ops.np.take(rows, distinct.index, 0), 0, axis)
    if size is not None and fill_value is not None:
        is_found = ops.np.less(np.arange(size), ops.np.sum(distinct.first))
        behind = (1,) * (0 if axis is None else ar.ndim - 1 - axis)
        values = ops.np.where(ops.np.reshape(is_found, (size, *behind)), values, ops.np.astype(
            as_nonscalar(fill_value), values.dtype))
    results = [values]
    if return_index:
        results.append(distinct.index)
    if return_inverse:
        results.append(ops.np.reshape(distinct.inverse(), shape))
    if return_counts:
        results.append(distinct.counts())
    return results[0] if len(results) == 1 else tuple(results)


UniqueAllResult, UniqueCountsResult, UniqueInverseResult = [
    type(numpys(name)(np.zeros(1))) for name in ("unique_all", "unique_counts", "unique_inverse")]


@array_function()
def unique_all(x: Any) -> Any:
    """Return the distinct elements, their first positions, each element's position among them, and their counts."""
    return UniqueAllResult(*unique(as_nonscalar(x), True, True, True, equal_nan=False))


@array_function()
def unique_counts(x: Any) -> Any:
    """Return the distinct elements, and how often each occurs."""
    return UniqueCountsResult(*unique(as_nonscalar(x), return_counts=True, equal_nan=False))


@array_function()
def unique_inverse(x: Any) -> Any:
    """Return the distinct elements, and the number of each element."""
    return UniqueInverseResult(*unique(as_nonscalar(x), return_inverse=True, equal_nan=False))


@array_function()
def unique_values(x: Any) -> Any:
    """Return the distinct elements."""
    return unique(as_nonscalar(x), equal_nan=False)


@array_function(constant=True)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         kind: str | None = None) -> Any:
    """Return whether each element is among others."""
    element, others = as_nonscalar(element), flattened(test_elements)
    if kind not in (None, "sort", "table"):
        raise ValueError(f"Invalid kind: '{kind}'. Please use None, 'sort' or 'table'.")
    if kind == "table" and (element.dtype.kind not in "biu" or others.dtype.kind not in "biu"):
        raise ValueError("The 'table' method is only supported for boolean or integer arrays. Please select 'sort' or "
                         "None for kind.")
    if not others.shape[0]:
        found = ops.np.any(ops.np.equal(ops.np.expand_dims(element, -1), others), -1)
    else:
        others = ops.np.sort(others)
        position = ops.np.minimum(searchsorted(others, element), others.shape[0] - 1)
        found = ops.np.equal(ops.np.take(others, position), element)
    return as_zero_d(ops.np.logical_not(found) if invert else found)


if hasattr(np, "in1d"):         # until NumPy 2.3
    @array_function(constant=True)
    def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False, *, kind: str | None = None) -> Any:
        """Return whether each element of one flattened array is among those of another."""
        warnings.warn("`in1d` is deprecated. Use `np.isin` instead.", DeprecationWarning, stacklevel=2)
        return isin(flattened(ar1), ar2, assume_unique, invert, kind=kind)


def chosen(x: Any, mask: Any) -> Any:
    """Return the elements of a vector for which a mask is true."""
    return ops.np.take(x, flatnonzero(mask), 0)


@array_function()
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """Return the distinct elements that two arrays share, ascending, and their first positions in each."""
    index1: Any = None
    index2: Any = None
    if assume_unique:
        ar1, ar2 = flattened(ar1), flattened(ar2)
    else:
        (ar1, index1), (ar2, index2) = unique(ar1, return_index=True), unique(ar2, return_index=True)
    both = ops.np.concatenate([ar1, ar2])
    order = ops.np.argsort(both, stable=True)
    ordered = ops.np.take(both, order)
    shared = flatnonzero(ops.np.equal(ops.np.getitem(ordered, slice(1, None)), ops.np.getitem(ordered, slice(-1))))
    values = ops.np.take(ordered, shared)
    if not return_indices:
        return values
    places1 = ops.np.take(order, shared)
    places2 = ops.np.subtract(ops.np.take(order, ops.np.add(shared, 1)), ar1.shape[0])
    if assume_unique:
        return values, places1, places2
    return values, ops.np.take(index1, places1), ops.np.take(index2, places2)


@array_function()
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """Return the distinct elements of one array that another does not have, ascending."""
    values = flattened(ar1) if assume_unique else unique(flattened(ar1))
    return chosen(values, isin(values, ar2, invert=True))


@array_function()
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """Return the distinct elements that only one of two arrays has, ascending."""
    values = ops.np.sort(ops.np.concatenate([flattened(ar) if assume_unique else unique(ar) for ar in (ar1, ar2)]))
    differ = ops.np.not_equal(ops.np.getitem(values, slice(1, None)), ops.np.getitem(values, slice(-1)))
    end = ops.np.ones_like(ops.np.getitem(values, slice(1)), dtype=np.dtype(bool))     # empty if there are no elements
    return chosen(values, ops.np.logical_and(ops.np.concatenate([end, differ]), ops.np.concatenate([differ, end])))


@array_function()
def union1d(ar1: Any, ar2: Any) -> Any:
    """Return the distinct elements of two arrays, ascending."""
    return unique(concatenate([ar1, ar2], None))
