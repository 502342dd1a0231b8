"""Functions of arrays as sets. Their results have one element for each distinct one.

Under `vmap`, in traces and on Meta `unique` takes `size=` as in JAX: so many elements are given, the smallest ones, or
the smallest one repeated.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch.numpy.declare import array_function, as_nonscalar, numpys
from pydispatch.numpy.selection import flatnonzero, lexsort, searchsorted
from pydispatch.ops import ops


def flattened(x: Any) -> Any:
    return ops.np.ravel(as_nonscalar(x))


def differs(left: Any, right: Any, equal_nan: bool) -> Any:
    """Are the elements different? Two nan are the same where `equal_nan`."""
    unlike = ops.np.not_equal(left, right)
    if not equal_nan or left.dtype.kind not in "fc":
        return unlike
    return ops.np.logical_and(unlike, ops.np.logical_not(ops.np.logical_and(ops.np.isnan(left), ops.np.isnan(right))))


class Distinct:
    """The distinct elements of a vector, or rows of a matrix: where each is, and how often."""

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
        """For each element, its number among the distinct ones."""
        number = ops.np.subtract(ops.np.cumsum(self.first, 0), 1)
        return ops.np.take(number, ops.np.argsort(self.order, 0, None, stable=True), 0)

    def counts(self) -> Any:
        """How often each occurs."""
        if self.size is not None:
            same = ops.np.equal(ops.np.expand_dims(self.inverse(), 0), np.arange(self.size)[:, None])
            return ops.np.sum(same, 1)
        if math.isnan(self.starts.shape[0]):        # of a lazy array
            number = ops.np.cumsum(self.first, 0)
            ends = ops.np.searchsorted(number, ops.np.take(number, self.starts, 0), "right")
            return ops.np.subtract(ends, self.starts)
        ends = ops.np.concatenate([ops.np.getitem(self.starts, slice(1, None)),
                                   ops.np.full_like(self.starts, self.n, shape=(min(self.n, 1),))])
        return ops.np.subtract(ends, self.starts)


@array_function(added=("size",))
def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, sorted: bool = True, size: int | None = None) -> Any:
    """The distinct elements, ascending, or slices along an axis; their first positions, numbers and counts."""
    ar = as_nonscalar(ar)
    if axis is None:
        rows, shape = ops.np.ravel(ar), tuple(ar.shape)
        distinct = Distinct(rows, equal_nan, size)
        values = ops.np.take(rows, distinct.index, 0)
    else:
        axis = normalize_axis_index(axis, ar.ndim)
        shape = (ar.shape[axis],)
        rows = ops.np.moveaxis(ar, axis, 0)
        distinct = Distinct(ops.np.reshape(rows, (shape[0], -1 if rows.size else 0)), equal_nan, size)
        values = ops.np.moveaxis(ops.np.take(rows, distinct.index, 0), 0, axis)
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
    """The distinct elements, their first positions, the number of each element, and how often each occurs."""
    return UniqueAllResult(*unique(as_nonscalar(x), True, True, True, equal_nan=False))


@array_function()
def unique_counts(x: Any) -> Any:
    """The distinct elements, and how often each occurs."""
    return UniqueCountsResult(*unique(as_nonscalar(x), return_counts=True, equal_nan=False))


@array_function()
def unique_inverse(x: Any) -> Any:
    """The distinct elements, and the number of each element."""
    return UniqueInverseResult(*unique(as_nonscalar(x), return_inverse=True, equal_nan=False))


@array_function()
def unique_values(x: Any) -> Any:
    """The distinct elements."""
    return unique(as_nonscalar(x), equal_nan=False)


@array_function(constant=True)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         kind: str | None = None) -> Any:
    """Is the element among others?"""
    element, others = as_nonscalar(element), flattened(test_elements)
    if not others.shape[0]:
        found = ops.np.any(ops.np.equal(ops.np.expand_dims(element, -1), others), -1)
    else:
        others = ops.np.sort(others)
        position = ops.np.minimum(searchsorted(others, element), others.shape[0] - 1)
        found = ops.np.equal(ops.np.take(others, position), element)
    return ops.np.logical_not(found) if invert else found


if hasattr(np, "in1d"):         # until NumPy 2.3
    @array_function(constant=True)
    def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False, *, kind: str | None = None) -> Any:
        """Is each element of one flattened array among those of another?"""
        warnings.warn("`in1d` is deprecated. Use `np.isin` instead.", DeprecationWarning, stacklevel=2)
        return isin(flattened(ar1), ar2, assume_unique, invert, kind=kind)


def chosen(x: Any, mask: Any) -> Any:
    """The elements of a vector for which a mask holds."""
    return ops.np.take(x, flatnonzero(mask), 0)


@array_function()
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """The distinct elements that two arrays share, ascending; and their first positions in each."""
    ar1, ar2 = flattened(ar1), flattened(ar2)
    first, index1 = unique(ar1, return_index=True)
    second, index2 = unique(ar2, return_index=True)
    dtype = np.result_type(first.dtype, second.dtype)
    shared = chosen(ops.np.arange(first.shape[0]), isin(first, second))
    values = ops.np.astype(ops.np.take(first, shared, 0), dtype)
    if not return_indices:
        return values
    place = searchsorted(second, ops.np.take(first, shared, 0))
    return values, ops.np.take(index1, shared, 0), ops.np.take(index2, place, 0)


@array_function()
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """The distinct elements of one array that another does not have, ascending."""
    values = flattened(ar1) if assume_unique else unique(flattened(ar1))
    return chosen(values, isin(values, ar2, invert=True))


@array_function()
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """The distinct elements that only one of two arrays has, ascending."""
    ar1, ar2 = flattened(ar1), flattened(ar2)
    left, right = chosen(ar1, isin(ar1, ar2, invert=True)), chosen(ar2, isin(ar2, ar1, invert=True))
    return unique(ops.np.concatenate([left, right]))


@array_function()
def union1d(ar1: Any, ar2: Any) -> Any:
    """The distinct elements of two arrays, ascending."""
    return unique(ops.np.concatenate([flattened(ar1), flattened(ar2)]))
