"""Functions that select, sort and search elements.

The number of elements that `nonzero` and similar functions find depends on values. Under `vmap`, in traces and on Meta
they take `size=` as in JAX, which NumPy's own do not have. They then return that many elements, filled up with
`fill_value`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import MetaArray, is_array, known_array
from pydispatch._registry.backends import is_masked
from pydispatch.numpy.declare import (
    array_function,
    as_array,
    as_elements,
    as_nonscalar,
    as_scalar,
    columns_of,
    common_dtype,
    decided_by,
    into,
    into_alike,
    known_values,
)
from pydispatch.operators.declare import range_like
from pydispatch.operators.layouts import in_c_order, laid_out_like
from pydispatch.ops import ops

# --- by conditions ---------------------------------------------------------------------------------------------------


@array_function(operator=(3, 3, ()))
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """Return the elements of x where the condition is true, and of y elsewhere.

    Without x and y, return the indices where it is true.
    """
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return ops.np.where(as_array(condition), as_array(x), as_array(y))


def truth_of(a: Any) -> Any:
    """Return the elements as truth values. Masked ones are false."""
    a = as_nonscalar(a)
    a = ops.masked.filled(a, 0) if is_masked(a) else a
    if a.dtype.kind in "SUT":
        return ops.np.not_equal(a, np.zeros((), a.dtype))
    return a if a.dtype.kind == "b" else ops.np.not_equal(a, 0)


@array_function(constant=True, added=("size", "fill_value"))
def flatnonzero(a: Any, *, size: int | None = None, fill_value: int = 0) -> Any:
    """Return the positions, in the flattened array, of elements that are not 0, exactly `size` if that is given."""
    a = as_nonscalar(a)
    if size is None and isinstance(a, np.ndarray):
        return np.flatnonzero(a)
    mask = ops.np.ravel(truth_of(a))
    if size is None and may_have_unknown_sizes(mask):
        return ops.np.index(range_like(mask, mask.shape[0]), mask)
    order = ops.np.argsort(ops.np.logical_not(mask), 0, None, stable=True)
    if size is None:
        return ops.np.getitem(order, slice(number_of(mask)))
    if size > mask.shape[0]:
        filler = ops.np.full_like(order, fill_value, shape=(size - mask.shape[0],))
        order = ops.np.concatenate([order, filler])
    found = ops.np.less(np.arange(size), ops.np.sum(mask))
    return ops.np.where(found, ops.np.getitem(order, slice(size)), fill_value)


def may_have_unknown_sizes(a: Any) -> bool:
    """Return whether the array's library can leave the number of elements open until it is computed."""
    array = known_array(a)
    return array is not None and not isinstance(array, (np.ndarray, np.generic, MetaArray))


def number_of(mask: Any) -> int:
    """Count the elements that are True. Raise DataDependentError if the values are unknown."""
    known = known_values(mask)
    if known is not None:
        return int(np.count_nonzero(known))
    return decided_by(ops.np.sum(mask), "how many elements numpy.nonzero, unique and the like return",
                      "pass size=, the number of elements to return, or use where(mask, x, other), which has the shape "
                      "of x")


@array_function(constant=True, added=("size", "fill_value"))
def nonzero(a: Any, *, size: int | None = None, fill_value: int | tuple[int, ...] = 0) -> Any:
    """Return the indices of the elements that are not 0, an array per axis, exactly `size` if that is given.

    `fill_value` is one number for all axes, or one for each.
    """
    a = as_nonscalar(a)
    if a.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    flat = flatnonzero(a) if size is None else flatnonzero(a, size=size, fill_value=-1)
    indices = [ops.np.remainder(ops.np.floor_divide(flat, max(1, math.prod(a.shape[axis + 1:]))), max(1, a.shape[axis]))
               for axis in range(a.ndim)]
    if size is None:
        return columns_of(indices)
    fillers = fill_value if isinstance(fill_value, (list, tuple)) else [fill_value] * a.ndim
    return tuple([ops.np.where(ops.np.less(flat, 0), filler, index)
                  for filler, index in zip(fillers, indices, strict=True)])


@array_function(constant=True, added=("size", "fill_value"))
def argwhere(a: Any, *, size: int | None = None, fill_value: int | tuple[int, ...] = 0) -> Any:
    """Return the indices of the elements that are not 0, a row for each."""
    a = as_nonscalar(a)
    if a.ndim == 0:
        found = ops.np.expand_dims(flatnonzero(a, size=size), 1)
        return ops.np.getitem(found, (slice(None), slice(0)))
    return ops.np.transpose(ops.np.stack(list(nonzero(a, size=size, fill_value=fill_value))))


@array_function(constant=True)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Count the elements that are not 0."""
    axis = tuple(axis) if isinstance(axis, list) else axis
    return ops.np.sum(truth_of(a), axis, keepdims=keepdims)


@array_function()
def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the slices along an axis, or the elements, for which a vector of conditions is true."""
    condition = as_nonscalar(condition)
    if condition.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return into_alike(out, ops.np.take(as_nonscalar(a), flatnonzero(condition), axis))


@array_function()
def extract(condition: Any, arr: Any) -> Any:
    """Return the elements for which a condition is true, as a vector."""
    return ops.np.take(ops.np.ravel(as_nonscalar(arr)), flatnonzero(condition), 0)


@array_function()
def choose(a: Any, choices: Any, out: Any = None, mode: str | None = "raise") -> Any:
    """Return, for each element `k`, the element at its position in `choices[k]`."""
    a = as_nonscalar(a)
    if is_array(choices):
        choices = [ops.np.getitem(choices, i) for i in range(choices.shape[0])]
    if not np.can_cast(a.dtype, np.intp):
        raise TypeError(f"Cannot cast array data from {a.dtype!r} to {np.dtype(np.intp)!r} according to the rule "
                        "'safe'")
    choices = [as_array(choice) for choice in choices]
    dtype = common_dtype(choices)
    # here 300 becomes 44 in int8, unlike in an assignment
    choices = [ops.np.astype(as_nonscalar(choice), dtype, copy=False) for choice in choices]
    shape = np.broadcast_shapes(a.shape, *[choice.shape for choice in choices])
    n = len(choices)
    if mode == "wrap":
        a = ops.np.remainder(a, n)
    elif mode == "clip":
        a = ops.np.clip(a, 0, n - 1)
    elif mode not in ("raise", None):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{mode}')")
    else:
        known = known_values(a)
        if known is not None and known.size and not 0 <= known.min() <= known.max() < n:
            raise ValueError("invalid entry in choice array")
    table = ops.np.stack([ops.np.broadcast_to(choice, shape) for choice in choices])
    index = ops.np.expand_dims(ops.np.broadcast_to(ops.np.astype(a, np.dtype(np.intp)), shape), 0)
    found = in_c_order(ops.np.squeeze(ops.np.take_along_axis(table, index, 0), 0))
    return into(out, as_scalar(found), "unsafe")


@array_function()
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Return the elements of the first choice whose condition is true, or `default` if none is."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    choices = [as_array(choice) for choice in choicelist]
    conditions = [as_nonscalar(condition) for condition in condlist]
    for i, condition in enumerate(conditions):
        if condition.dtype.kind != "b":
            raise TypeError(f"invalid entry {i} in condlist: should be boolean ndarray")
    default = as_array(default)
    dtype = np.result_type(*[getattr(x, "dtype", x) for x in [*choices, default]])
    shape = np.broadcast_shapes(*[tuple(getattr(x, "shape", ())) for x in (*conditions, *choices, default)])
    result = ops.np.astype(as_nonscalar(default), dtype)
    for condition, choice in zip(conditions[::-1], choices[::-1], strict=True):
        result = ops.np.where(condition, ops.np.astype(as_nonscalar(choice), dtype), result)
    return in_c_order(result if tuple(result.shape) == shape else ops.np.copy(ops.np.broadcast_to(result, shape)))


@array_function()
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Apply functions to the elements for which conditions are true.

    If there is one more function than conditions, it applies to the other elements. A function receives only the
    elements of its condition. Under vmap, in traces and on Meta it receives all of them.
    """
    x = as_nonscalar(x)
    if is_array(condlist):
        several = condlist.ndim > 1 or (condlist.ndim == 1 and not x.ndim)
        condlist = [ops.np.getitem(condlist, i) for i in range(condlist.shape[0])] if several else [condlist]
    elif not isinstance(condlist, (list, tuple)) or (len(condlist) and x.ndim and not (
            isinstance(condlist[0], (list, tuple, np.ndarray)) or (is_array(condlist[0]) and condlist[0].ndim))):
        condlist = [condlist]       # one condition, given by truth values, which are 0-d if they are Tensors
    conditions = list(map(truth_of, condlist))
    for condition in conditions:
        if tuple(condition.shape) != tuple(x.shape[:condition.ndim]):
            raise IndexError(f"boolean index did not match indexed array: a condition has shape "
                             f"{tuple(condition.shape)}, x has shape {tuple(x.shape)}")
    if len(funclist) == len(conditions) + 1:
        rest = conditions[0]
        for condition in conditions[1:]:
            rest = ops.np.logical_or(rest, condition)
        conditions.append(ops.np.logical_not(rest))
    elif len(funclist) != len(conditions):
        n = len(conditions)
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected")
    result = ops.np.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        known = known_values(condition)
        if not callable(function):
            values = as_elements(function, x.dtype)
        elif known is None:
            values = function(x, *args, **kw)
        else:
            picked = ops.np.index(x, condition) if x.ndim else ops.np.getitem(x, ())
            if known.any():
                value = as_nonscalar(function(picked, *args, **kw))
                value = ops.np.astype(value, x.dtype) if value.dtype != x.dtype else value
                result = ops.np.index_put(result, condition, value) if x.ndim else value
            continue
        values = ops.np.astype(as_nonscalar(values), x.dtype)
        of_leading_axes = ops.np.reshape(condition, (*condition.shape, *(1,) * (x.ndim - condition.ndim)))
        result = ops.np.where(of_leading_axes, values, result)
    return result


# --- sorting and searching -------------------------------------------------------------------------------------------


@array_function()
def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Return the elements with those at `kth` where sorting would put them."""
    a = as_nonscalar(a)
    order = order_of(a, kth, axis, kind)
    return ops.np.take_along_axis(a, order if axis is None else laid_out_like(order, a), axis)


@array_function(constant=True)
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Return the indices that partition an array."""
    return order_of(as_nonscalar(a), kth, axis, kind)


def order_of(a: Any, kth: Any, axis: int | None, kind: Any) -> Any:
    """Return positions in an order with the right ones at `kth`. If `kth` is unknown, they are all sorted."""
    check_kth(a, kth, axis, kind)
    known = known_values(as_nonscalar(kth))
    if known is None:
        return ops.np.argsort(a, axis)
    return ops.np.argpartition(a, tuple(known.ravel().tolist()), axis)


def check_kth(a: Any, kth: Any, axis: int | None, kind: Any) -> None:
    """Raise ValueError for a position that is not on the axis, and for an unknown `kind`."""
    if not isinstance(kind, str):
        raise TypeError(f"select kind must be str, not {type(kind).__name__}")
    if kind != "introselect":
        raise ValueError(f"select kind must be 'introselect' (got {kind!r})")
    extent = a.size if axis is None else a.shape[normalize_axis_index(axis, a.ndim)] if a.ndim else 1
    known = known_values(as_nonscalar(kth))     # if they are unknown, all elements are sorted as well
    for k in np.atleast_1d(known).tolist() if extent and known is not None else ():
        if not -extent <= k < extent:
            raise ValueError(f"kth(={k}) out of bounds ({extent})")


@array_function(constant=True)
def lexsort(keys: Any, axis: int = -1) -> Any:
    """Return the indices that sort by the last key, then by the one before it where that ties, and so on."""
    keys = [as_nonscalar(key) for key in ([ops.np.getitem(keys, i) for i in range(keys.shape[0])]
                                          if is_array(keys) and keys.ndim else keys)]
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if len({tuple(key.shape) for key in keys}) > 1:
        raise ValueError("all keys need to be the same shape")
    normalize_axis_index(axis, max(keys[0].ndim, 1))
    if not keys[0].ndim:
        return as_scalar(ops.np.zeros_like(keys[0], dtype=np.dtype(np.intp)))
    order = ops.np.argsort(keys[0], axis, None, stable=True)
    for key in keys[1:]:
        step = ops.np.argsort(ops.np.take_along_axis(key, order, axis), axis, None, stable=True)
        order = ops.np.take_along_axis(order, step, axis)
    return order


@array_function()
def sort_complex(a: Any) -> Any:
    """Return the sorted elements as complex numbers."""
    result = ops.np.sort(as_nonscalar(a))
    if result.dtype.kind == "c":
        return result
    character = "F" if result.dtype.char in "bhBH" else "G" if result.dtype.char == "g" else "D"
    return ops.np.astype(result, np.dtype(character))


@array_function(constant=True)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Return the positions at which to insert values into a sorted vector so that it stays sorted."""
    a, v = as_nonscalar(a), as_nonscalar(v)
    if a.ndim != 1:
        raise ValueError("object too deep for desired array" if a.ndim else
                         "object of too small depth for desired array")
    if not isinstance(side, str):
        raise TypeError(f"search side must be str, not {type(side).__name__}")
    if side not in ("left", "right"):
        raise ValueError(f"search side must be one of 'left' or 'right' (got {side!r})")
    if sorter is not None:
        sorter = as_nonscalar(sorter)
        if sorter.dtype.kind not in "iu":
            raise TypeError("sorter must only contain integers")
        if tuple(sorter.shape) != tuple(a.shape):
            raise ValueError("sorter.size must equal a.size")
        known = known_values(sorter)
        if known is not None and known.size and not 0 <= known.min() <= known.max() < a.shape[0]:
            raise ValueError("Sorter index out of range.")
        a = ops.np.take(a, sorter, 0)
    dtype = np.result_type(a.dtype, v.dtype)
    a, v = [x if x.dtype == dtype else ops.np.astype(x, dtype) for x in (a, v)]
    return ops.np.searchsorted(a, v, side)


@array_function(constant=True)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """Return the number of each element's bin, between edges that rise or fall."""
    x, bins = as_nonscalar(x), as_nonscalar(bins)
    if x.dtype.kind == "c":
        raise TypeError("x may not be complex")
    if bins.ndim != 1:
        raise ValueError("object too deep for desired array" if bins.ndim else
                         "object of too small depth for desired array")
    if bins.dtype.kind == "c":
        raise TypeError(f"Cannot cast array data from {bins.dtype!r} to dtype('float64') according to the rule 'safe'")
    rising = searchsorted(bins, x, "left" if right else "right")
    if not bins.shape[0]:
        return rising
    known = known_values(bins)
    if known is None:
        falls = ops.np.less(ops.np.getitem(bins, -1), ops.np.getitem(bins, 0))
        return as_scalar(ops.np.where(falls, falling(x, bins, right), rising))
    if (known[1:] >= known[:-1]).all():     # differences of unsigned numbers never fall
        return rising
    if (known[1:] <= known[:-1]).all():
        return falling(x, bins, right)
    raise ValueError("bins must be monotonically increasing or decreasing")


def falling(x: Any, bins: Any, right: bool) -> Any:
    """Return the bins between falling edges."""
    return ops.np.subtract(bins.shape[0], searchsorted(ops.np.flip(bins), x, "left" if right else "right"))
