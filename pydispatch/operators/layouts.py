"""The memory layout of new arrays: the same as NumPy's in the same call.

The order of the axes in memory decides whether `ravel` and `reshape` return views. Kernels that are NumPy's own lay out
their results as NumPy does. The result of a composite of several operators has the layout that the last of them
produces. Where NumPy allocates the result otherwise, one of these functions copies it. A value without memory is
returned unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pydispatch._core import MetaArray, Tensor, Wrapper
from pydispatch.autograd.values import WITHOUT_LAYOUT, bottom_of, order_in_memory
from pydispatch.exceptions import DataDependentError
from pydispatch.memory import axes_in_memory
from pydispatch.ops import ops


def layout_of(x: Any, remedy: str = 'pass order="C" or order="F"') -> Any:
    """Return the array in memory that shows the layout of the elements.

    Returns None if all orders are the same, or none is known. Raises DataDependentError for a value of a trace without
    data, whose layout is unknown.
    """
    if sum(extent != 1 for extent in x.shape) < 2:
        return None
    array = memory_of(x)
    if isinstance(array, MetaArray) and isinstance(x, Tensor) and type(x) is not Tensor:
        raise DataDependentError(
            f"the order of the elements of an array of shape {tuple(x.shape)} was requested: {WITHOUT_LAYOUT}\n"
            f"{remedy}")
    return array if isinstance(array, np.ndarray) else None


def memory_of(x: Any) -> Any:
    """Return the array at the bottom of a value, for a batch in the layout that examples have in a loop."""
    array = bottom_of(x)
    if isinstance(x, Wrapper) and isinstance(array, np.ndarray) and not array.flags.forc:
        ops.np.getitem(x, ...)      # the first view of a batch moves an inner batch axis outwards
        array = bottom_of(x)
    return array


def in_c_order(x: Any) -> Any:
    """Return `x` in the layout of a new array that NumPy makes in C order."""
    return with_axes_in_order(x, range(len(x.shape)))


def laid_out_like(x: Any, prototype: Any, without: Sequence[int] = ()) -> Any:
    """Return `x` in the layout of a new array that NumPy makes like the prototype, with the same order of axes.

    Axes of the prototype that `x` does not have are listed in `without`.
    """
    array = bottom_of(prototype)
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return in_c_order(x)
    order = [axis for axis in order_in_memory(prototype) if axis not in without]
    return with_axes_in_order(x, map(sorted(order).index, order))


def laid_out_as_in_loop(x: Any, *operands: Any) -> Any:
    """Return `x` in the layout of a new array that NumPy allocates for a loop over these operands.

    The operands broadcast.
    """
    arrays = [bottom_of(operand) for operand in operands]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return x
    order = axes_in_memory(*arrays)
    return with_axes_in_order(x, (*[axis for axis in range(len(x.shape)) if axis not in order], *order))


def in_order_of(x: Any, source: Any, *, is_batch: bool = False) -> Any:
    """Return `x` in F order if the source is in F order and not in C order, else in C order.

    In a batch, each example has this order.
    """
    array, axes = memory_of(source), tuple(range(len(x.shape)))
    if is_batch and isinstance(array, np.ndarray) and array.size:
        if array.flags.fnc:     # the elements of the examples are interleaved
            return x
        array = array[0]
    if not isinstance(array, np.ndarray) or not array.flags.fnc:
        return with_axes_in_order(x, axes)
    return with_axes_in_order(x, (0, *axes[:0:-1]) if is_batch else axes[::-1])


def with_axes_in_order(x: Any, order: Iterable[int]) -> Any:
    """Return `x` with its axes in memory in this order, the outermost first, and without gaps."""
    order = tuple(order)
    array = bottom_of(x)
    if type(array) is not np.ndarray or array.transpose(order).flags.c_contiguous:
        return x
    transposed = ops.np.transpose(x, order)
    copied = ops.np.reshape(transposed, tuple(transposed.shape), copy=True)
    return ops.np.transpose(copied, tuple(np.argsort(order).tolist()))
