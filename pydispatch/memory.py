"""Where the elements of NumPy arrays lie in memory, and which of them share it."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pydispatch import _core


def items_of(key: Any) -> tuple[Any, ...]:
    """The items of a basic key, slices as (start, stop, step): hashable, and equal for keys that select the same."""
    return tuple([item if item is None or item is Ellipsis
                  else (item.start, item.stop, item.step) if isinstance(item, slice) else operator.index(item)
                  for item in (key if isinstance(key, tuple) else (key,))])


def addresses(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The address of each element, in the shape of the array."""
    found = np.full(array.shape, _core.address(array), np.int64)
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        found += steps.reshape((-1,) + (1,) * (array.ndim - 1 - axis))
    return found


def positions_among(wanted: np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The positions of these addresses among others, in C order of those; ValueError where one is not there."""
    known = known.ravel()
    order = np.argsort(known, kind="stable")
    found = np.searchsorted(known, wanted, sorter=order)
    if wanted.size and (found.max() >= known.size or not np.array_equal(known[order[found]], wanted)):
        raise ValueError("an address is not among the known ones")
    return np.asarray(order[found])


def may_overlap(one: Any, other: Any) -> bool:
    """May two NumPy arrays share memory? By their bounds alone; what is no NumPy array shares none."""
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def overlaps_itself(array: Any) -> bool:
    """Do elements of the array share memory with one another?"""
    if not isinstance(array, np.ndarray) or array.size == 0:
        return False
    reach = array.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for stride, extent in sorted((abs(stride), extent) for stride, extent in axes if extent > 1):
        if stride < reach:      # the axis does not step over all that shorter steps reach
            return _elements_collide(array)
        reach += stride * (extent - 1)
    return False


def _elements_collide(array: np.ndarray[Any, Any]) -> bool:
    axes = zip(array.strides, array.shape, strict=True)
    if array.itemsize + sum(abs(stride) * (extent - 1) for stride, extent in axes) < array.nbytes:
        return True     # there is less memory than elements, maybe much less
    return bool((np.diff(np.sort(addresses(array), axis=None)) < array.itemsize).any())


_core.connect(overlaps_itself=overlaps_itself)
