"""Find where the elements of NumPy arrays lie in memory, and whether arrays share elements."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pydispatch import _core


def items_of(key: Any) -> tuple[Any, ...]:
    """Return the items of a basic key, with slices as (start, stop, step).

    The result is hashable, and equal for keys that select the same elements.
    """
    return tuple([item if item is None or item is Ellipsis
                  else (item.start, item.stop, item.step) if isinstance(item, slice) else operator.index(item)
                  for item in (key if isinstance(key, tuple) else (key,))])


def addresses(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the address of each element, in the shape of the array."""
    found = np.full(array.shape, _core.address(array), np.int64)
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        found += steps.reshape((-1,) + (1,) * (array.ndim - 1 - axis))
    return found


def positions_among(wanted: np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the positions of these addresses among known ones, in C order. Raise ValueError for an unknown one."""
    known = known.ravel()
    order = np.argsort(known, kind="stable")
    found = np.searchsorted(known, wanted, sorter=order)
    if wanted.size and (found.max() >= known.size or not np.array_equal(known[order[found]], wanted)):
        raise ValueError("an address is unknown")
    return np.asarray(order[found])


def axes_in_memory(*arrays: np.ndarray[Any, Any]) -> list[int]:
    """Return the axes of more than one element, the outermost first, as NumPy reads them and orders those of results.

    Several arrays are those of one loop, over all their axes.
    """
    if len(arrays) == 1 and arrays[0].flags.c_contiguous:
        return [axis for axis, extent in enumerate(arrays[0].shape) if extent > 1]
    corners = [array[(slice(0, 2),) * array.ndim] for array in arrays]
    flags: Any = [["readonly"]] * len(corners) + [["writeonly", "allocate"]]
    operands: Any = [*corners, None]
    made = np.nditer(operands, ["refs_ok", "zerosize_ok"], flags).operands[-1]
    return sorted([axis for axis, extent in enumerate(made.shape) if extent > 1], key=lambda axis: -made.strides[axis])


def may_overlap(one: Any, other: Any) -> bool:
    """Return whether two NumPy arrays may share memory, by their bounds only. Other values share none."""
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def overlaps_itself(array: Any) -> bool:
    """Return whether elements of the array share memory with one another."""
    if not isinstance(array, np.ndarray) or array.size == 0:
        return False
    reach = array.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for stride, extent in sorted((abs(stride), extent) for stride, extent in axes if extent > 1):
        if stride < reach:      # the axis does not step over everything that shorter steps reach
            return _elements_collide(array)
        reach += stride * (extent - 1)
    return False


def _elements_collide(array: np.ndarray[Any, Any]) -> bool:
    axes = zip(array.strides, array.shape, strict=True)
    if array.itemsize + sum(abs(stride) * (extent - 1) for stride, extent in axes) < array.nbytes:
        return True     # there is less memory than elements, possibly much less
    return bool((np.diff(np.sort(addresses(array), axis=None)) < array.itemsize).any())


MOST_WORK: Any = 1000


def overlap(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Return whether two NumPy arrays share elements, or True if finding out takes long."""
    try:
        return np.shares_memory(one, other, max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True


_core.connect(overlaps_itself=overlaps_itself, overlap=overlap)
