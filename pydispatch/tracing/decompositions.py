"""Decompositions: functions of simpler operators, which are traced instead of an operator.

`make_fx(f, decompositions=get_decompositions(...))` applies them.

A decomposition takes the arguments that differ from their defaults, as a kernel does, and calls operators. It returns
NotImplemented for a call that it does not cover, which is then recorded unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from math import log, pi, prod
from typing import Any, TypeVar, overload

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._sites import remember, replaces_former
from pydispatch.exceptions import DispatchTypeError, RegistrationError
from pydispatch.operators.indexing import over_slices
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

F = TypeVar("F", bound=Callable[..., Any])

Decomposition = Callable[..., Any]

_table: dict[OpOverload, Decomposition] = {}


def get_decompositions(operators: Iterable[OpOverload | OpOverloadPacket]) -> dict[OpOverload, Decomposition]:
    """Return the decompositions of these operators.

    Parameters
    ----------
    operators : iterable
        Overloads and packets. A packet means its overloads that have a decomposition.

    Returns
    -------
    dict
        The decompositions by overload, for `make_fx`.

    Raises
    ------
    DispatchTypeError
        For an overload, or a whole packet, that has none.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import ops
    >>> from pydispatch.tracing import get_decompositions, make_fx
    >>> table = get_decompositions([ops.np.square])
    >>> print(make_fx(ops.np.square, decompositions=table)(numpy.zeros(2)).code)
    def forward(x_1):
        multiply = ops.np.multiply(x_1, x_1);  x_1 = None
        return multiply
    """
    found: dict[OpOverload, Decomposition] = {}
    for operator in operators:
        known = {overload: _table[overload] for overload in _overloads_of(operator) if overload in _table}
        if not known:
            raise DispatchTypeError(f"{operator.name}: no decomposition is registered\n"
                                    "register one: register_decomposition(ops.np.square.default, function)")
        found |= known
    return found


def decomposition_of(operator: OpOverload) -> Decomposition | None:
    """Return the decomposition of an overload, or None."""
    return _table.get(operator)


@overload
def register_decomposition(operator: OpOverload, function: F) -> F: ...
@overload
def register_decomposition(operator: OpOverload) -> Callable[[F], F]: ...
def register_decomposition(operator: OpOverload, function: F | None = None) -> F | Callable[[F], F]:
    """Register `function` as the decomposition of an overload.

    If the code that registered it runs again, the new function replaces the old one, with OverrideWarning.

    Parameters
    ----------
    operator : OpOverload
        The overload.
    function : callable, optional
        A function of the operator's arguments that calls other operators. It returns NotImplemented for a call that it
        does not cover.

    Returns
    -------
    callable
        The function, or without one, a decorator.

    Raises
    ------
    RegistrationError
        If the overload already has another decomposition.
    """
    if function is None:
        def register(function: F) -> F:
            register_decomposition(operator, function)
            return function

        return register
    if not isinstance(operator, OpOverload):
        raise DispatchTypeError(f"register_decomposition: argument operator is {operator!r}, expected an OpOverload\n"
                                "pass the overload: ops.np.square.default")
    if operator in _table and not replaces_former("decomposition of", operator):
        raise RegistrationError(f"{operator.name}: a decomposition is already registered\n"
                                "pass another one to make_fx directly: decompositions={overload: function}")
    remember("decomposition of", operator)
    _table[operator] = function
    return function


def _overloads_of(operator: Any) -> tuple[OpOverload, ...]:
    if isinstance(operator, OpOverload):
        return (operator,)
    if isinstance(operator, OpOverloadPacket):
        return operator.overloads
    raise DispatchTypeError(f"get_decompositions: {operator!r} is not an operator\npass ops.np.square, or an overload")


# --- the table -------------------------------------------------------------------------------------------------------


def _decompose(name: str, function: Decomposition, kinds: str = "biufc") -> None:
    """Register a decomposition that declines keyword arguments, and arrays of other kinds of dtype."""
    def decomposition(*args: Any, **options: Any) -> Any:
        arrays = [arg for arg in args if _core.is_array(arg)]
        if options or not arrays or any(array.dtype.kind not in kinds for array in arrays):
            return NotImplemented
        return function(*args)

    decomposition.__name__ = decomposition.__qualname__ = name
    decomposition.kinds = kinds  # type: ignore[attr-defined]
    register_decomposition(getattr(ops.np, name).default, decomposition)


# pointwise


def _scaled(factor: float, x: Any) -> Any:
    return x * factor


_decompose("square", lambda x: x * x, "fc")
_decompose("reciprocal", lambda x: 1 / x, "fc")
_decompose("exp2", lambda x: ops.np.exp(x * log(2)), "fc")
_decompose("log2", lambda x: ops.np.log(x) * (1 / log(2)), "fc")
_decompose("log10", lambda x: ops.np.log(x) * (1 / log(10)), "fc")
_decompose("positive", lambda x: ops.np.copy(x))
_decompose("fabs", lambda x: ops.np.absolute(x), "f")
for _name, _factor in (("radians", pi / 180), ("deg2rad", pi / 180), ("degrees", 180 / pi), ("rad2deg", 180 / pi)):
    _decompose(_name, partial(_scaled, _factor), "f")
_decompose("tan", lambda x: ops.np.sin(x) / ops.np.cos(x), "fc")
_decompose("cosh", lambda x: (ops.np.exp(x) + ops.np.exp(-x)) / 2, "fc")
_decompose("absolute", lambda x: ops.np.hypot(ops.np.real(x), ops.np.imag(x)), "c")
_decompose("hypot", lambda x1, x2: ops.np.sqrt(x1 * x1 + x2 * x2), "f")
_decompose("not_equal", lambda x1, x2: ops.np.logical_not(ops.np.equal(x1, x2)))
_decompose("greater", lambda x1, x2: ops.np.less(x2, x1))
_decompose("greater_equal", lambda x1, x2: ops.np.less_equal(x2, x1))


@register_decomposition(ops.np.clip.default)
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None, **options: Any) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    if not _core.is_array(a) or a.dtype.kind != "f":
        return NotImplemented       # limits may be numbers that its dtype does not hold
    if options or (a_min is not None and min is not None) or (a_max is not None and max is not None):
        return NotImplemented
    if low is None or high is None:
        if low is high:
            return NotImplemented
        return ops.np.minimum(a, high) if low is None else ops.np.maximum(a, low)
    return ops.np.minimum(ops.np.maximum(a, low), high)


# reductions


@register_decomposition(ops.np.mean.default)
def _mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    if where is not None or not _sums_up(a) or (dtype is not None and np.dtype(dtype).kind not in "fc"):
        return NotImplemented
    return ops.np.sum(a, axis, dtype or _dtype_of_mean(a), keepdims=keepdims) / _n_terms(a, axis)


@register_decomposition(ops.np.var.default)
def _var(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False, where: Any = None,
    mean: Any = None, correction: Any = None,
) -> Any:
    if dtype is not None or where is not None or not _sums_up(a):
        return NotImplemented
    difference = a - (ops.np.mean(a, axis, keepdims=True) if mean is None else mean)
    if difference.dtype.kind == "c":
        squares = ops.np.real(difference * ops.np.conjugate(difference))
    else:
        squares = difference * difference
    n = _n_terms(a, axis) - (ddof if correction is None else correction)
    return ops.np.sum(squares, axis, _dtype_of_mean(a), keepdims=keepdims) / max(n, 0)


@register_decomposition(ops.np.std.default)
def _std(a: Any, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
    return ops.np.sqrt(ops.np.var(a, axis, dtype, **options)) if _sums_up(a) else NotImplemented


def _sums_up(a: Any) -> bool:
    """Return whether this is a non-empty array whose sum NumPy computes in the dtype of the mean."""
    return _core.is_array(a) and a.dtype != np.float16 and a.size > 0


def _dtype_of_mean(a: Any) -> Any:
    """Return the dtype to sum in, where NumPy's mean and sum use different ones."""
    return None if a.dtype.kind in "fc" else np.float64


def _n_terms(a: Any, axis: Any) -> int:
    """Return the number of elements that are reduced to one."""
    return prod(a.shape if axis is None else [a.shape[i] for i in axis])


# views and joins

_decompose("ravel", lambda a: ops.np.reshape(a, -1))


@register_decomposition(ops.np.expand_dims.default)
def _expand_dims(a: Any, axis: Any) -> Any:
    if not _core.is_array(a):
        return NotImplemented
    ndim = len(a.shape) + len(axis)
    new, rest = normalize_axis_tuple(axis, ndim), iter(a.shape)
    return ops.np.reshape(a, tuple([1 if i in new else next(rest) for i in range(ndim)]))


@register_decomposition(ops.np.squeeze.default)
def _squeeze(a: Any, axis: Any = None) -> Any:
    if not _core.is_array(a):
        return NotImplemented
    dropped = normalize_axis_tuple(range(len(a.shape)) if axis is None else axis, len(a.shape))
    if axis is not None and any(a.shape[i] != 1 for i in dropped):
        return NotImplemented
    return ops.np.reshape(a, tuple([n for i, n in enumerate(a.shape) if n != 1 or i not in dropped]))


@register_decomposition(ops.np.moveaxis.default)
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    if not _core.is_array(a) or len(source) != len(destination):
        return NotImplemented
    ndim = len(a.shape)
    moved, places = normalize_axis_tuple(source, ndim), normalize_axis_tuple(destination, ndim)
    order = [i for i in range(ndim) if i not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return ops.np.transpose(a, order)


@register_decomposition(ops.np.diagonal.default)
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    if not _core.is_array(a) or len(a.shape) < 2:
        return NotImplemented
    ndim = len(a.shape)
    first, second = normalize_axis_tuple((axis1, axis2), ndim)
    order = (first, second, *[axis for axis in range(ndim) if axis not in (first, second)])
    n = max(0, min(a.shape[first] + min(offset, 0), a.shape[second] - max(offset, 0)))
    steps = np.arange(n)
    found = ops.np.index(ops.np.transpose(a, order), (steps + max(-offset, 0), steps + max(offset, 0)))
    return ops.np.transpose(found, (*range(1, ndim - 1), 0))


@register_decomposition(ops.np.sliding_window_view.default)
def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    if not _core.is_array(x):
        return NotImplemented
    axes = normalize_axis_tuple(range(len(x.shape)) if axis is None else axis, len(x.shape), allow_duplicate=True)
    if len(axes) != len(window_shape):
        return NotImplemented
    for size, along in zip(window_shape, axes, strict=True):
        starts = x.shape[along] - size + 1
        if size < 0 or starts < 1:
            return NotImplemented
        places = np.arange(starts)[:, np.newaxis] + np.arange(size)
        x = ops.np.moveaxis(ops.np.take(x, places, along), along + 1, -1)
    return x


_decompose("read_only", lambda a: a)


@register_decomposition(ops.np.split.default)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if not _core.is_array(ary):
        return NotImplemented
    axis = normalize_axis_index(axis, len(ary.shape))
    n = ary.shape[axis]
    if isinstance(indices_or_sections, int):
        if n == 0 or indices_or_sections <= 0 or n % indices_or_sections:
            return NotImplemented
        indices_or_sections = range(n // indices_or_sections, n, n // indices_or_sections)
    ends = [0, *indices_or_sections, n]
    before = (slice(None),) * axis
    return [ops.np.getitem(ary, (*before, slice(start, stop))) for start, stop in pairwise(ends)]


@register_decomposition(ops.np.swapaxes.default)
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    if not _core.is_array(a):
        return NotImplemented
    ndim = len(a.shape)
    order = list(range(ndim))
    first, second = normalize_axis_index(axis1, ndim), normalize_axis_index(axis2, ndim)
    order[first], order[second] = order[second], order[first]
    return ops.np.transpose(a, order)


@register_decomposition(ops.np.flip.default)
def _flip(m: Any, axis: Any = None) -> Any:
    if not _core.is_array(m):
        return NotImplemented
    ndim = len(m.shape)
    flipped = range(ndim) if axis is None else normalize_axis_tuple(axis, ndim)
    return ops.np.getitem(m, tuple([slice(None, None, -1 if i in flipped else None) for i in range(ndim)]))


@register_decomposition(ops.np.stack.default)
def _stack(arrays: Any, axis: int = 0, **options: Any) -> Any:
    if not all(map(_core.is_array, arrays)) or len({array.shape for array in arrays}) != 1:
        return NotImplemented
    return ops.np.concatenate([ops.np.expand_dims(array, axis) for array in arrays], axis, **options)


# writing


@register_decomposition(ops.np.setitem.default)
def _setitem(x: Any, key: Any, value: Any) -> Any:
    return _replaced(x, key, value, accumulate=False)


@register_decomposition(ops.np.index_put.default)
def _index_put(x: Any, key: Any, values: Any, *, accumulate: bool = False) -> Any:
    return _replaced(x, key, values, accumulate=accumulate)


def _replaced(x: Any, key: Any, value: Any, *, accumulate: bool) -> Any:
    """Return x with the elements that the key selects replaced, without writing to an array.

    The positions of these elements have to be known, so index arrays that are not NumPy's are declined.
    """
    if not _core.is_array(x) or not all(isinstance(leaf, np.ndarray) for leaf in tree_leaves(key)
                                        if _core.is_array(leaf)):
        return NotImplemented
    places = np.arange(prod(x.shape)).reshape(x.shape)[key]
    if places.size == 0:
        return ops.np.copy(x)
    value = _as_array_like(value, x)
    n_leading = max(len(value.shape) - places.ndim, 0)      # leading axes of length 1, which NumPy drops
    if n_leading:
        value = ops.np.reshape(value, tuple(value.shape)[n_leading:])
    spread = ops.np.reshape(ops.np.broadcast_to(value, places.shape), (-1,))
    for sources, is_written in _rounds(places.ravel(), x.shape, accumulate):
        found = ops.np.index(spread, (sources,))
        x = ops.np.where(is_written, ops.np.add(x, found) if accumulate else found, x)
    return x


def _rounds(places: Any, shape: tuple[int, ...], accumulate: bool) -> Iterator[tuple[Any, Any]]:
    """Yield, for each element of an array, the position of the value written to it, and whether there is one.

    If several values are written to one element, only the last counts. If they accumulate, each has a separate round.
    """
    order = np.argsort(places, kind="stable")
    is_first = np.append(True, np.diff(places[order]) > 0)
    count = np.arange(len(places)) - np.maximum.accumulate(np.where(is_first, np.arange(len(places)), 0))
    for number in range(int(count.max()) + 1) if accumulate else (None,):
        chosen = order if number is None else order[count == number]
        sources, is_written = np.zeros(prod(shape), np.intp), np.zeros(prod(shape), bool)
        sources[places[chosen]] = chosen
        is_written[places[chosen]] = True
        yield sources.reshape(shape), is_written.reshape(shape)


def _as_array_like(value: Any, x: Any) -> Any:
    """Return the value as an array with the dtype of x."""
    if not _core.is_array(value):
        return ops.np.full_like(x, value, shape=())
    return value if value.dtype == x.dtype else ops.np.astype(value, x.dtype)


@register_decomposition(ops.np.take_along_axis.default)
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """Take elements by comparing every index with every position along the axis, so that no index has to be known."""
    if axis is None or not _core.is_array(arr) or len(getattr(indices, "shape", ())) != len(arr.shape):
        return NotImplemented
    axis = normalize_axis_index(axis, len(arr.shape))
    n = arr.shape[axis]
    if n == 0 or arr.dtype.kind not in "iuf":
        return NotImplemented
    places = np.arange(n).reshape((n, *(1,) * (len(arr.shape) - axis - 1)))
    indices = ops.np.where(ops.np.less(indices, 0), ops.np.add(indices, n), indices)
    is_there = ops.np.equal(ops.np.expand_dims(indices, axis + 1), places)
    found = ops.np.where(is_there, ops.np.expand_dims(arr, axis), ops.np.full_like(arr, 0, shape=()))
    return ops.np.sum(found, axis + 1, arr.dtype.newbyteorder("="))


@register_decomposition(ops.np.scatter_add.default)
def _scatter_add(x: Any, indices: Any, values: Any, axis: int) -> Any:
    """Add elements by comparing every index with every position along the axis, so that no index has to be known."""
    if not all(map(_core.is_array, (x, indices, values))) or len(indices.shape) != len(x.shape):
        return NotImplemented
    axis = normalize_axis_index(axis, len(x.shape))
    n = x.shape[axis]
    places = np.arange(n).reshape((n, *(1,) * (len(x.shape) - axis)))
    values = ops.np.broadcast_to(values, (*x.shape[:axis], indices.shape[axis], *x.shape[axis + 1:]))
    indices = ops.np.where(ops.np.less(indices, 0), ops.np.add(indices, n), indices)
    is_there = ops.np.equal(ops.np.expand_dims(indices, axis), places)
    moved = ops.np.where(is_there, ops.np.expand_dims(values, axis), ops.np.full_like(x, 0, shape=()))
    return ops.np.add(x, ops.np.sum(moved, axis + 1, x.dtype.newbyteorder("=")))


@register_decomposition(ops.np.slice_sums.default)
def _slice_sums(a: Any, indices: Any, axis: int = 0) -> Any:
    return over_slices(a, indices, axis)


@register_decomposition(ops.np.slices_filled.default)
def _slices_filled(g: Any, indices: Any, n: int, axis: int = 0) -> Any:
    return over_slices(g, indices, axis, n)


@register_decomposition(ops.np.argpartition.default)
def _argpartition(a: Any, kth: Any, axis: int | None = -1) -> Any:
    return ops.np.argsort(a, axis)


@register_decomposition(ops.np.linalg_solve_with.default)
def _solve_with(a: Any, b: Any, *, transposed: bool = False, lower: bool = False) -> Any:
    a = ops.np.multiply(a, np.tri(a.shape[-1], dtype=bool)) if lower else a
    return ops.np.linalg_solve(ops.np.swapaxes(a, -1, -2) if transposed else a, b)


# arrays from shapes


@register_decomposition(ops.np.zeros_like.default)
def _zeros_like(a: Any, **options: Any) -> Any:
    return ops.np.full_like(a, 0, **options)


@register_decomposition(ops.np.ones_like.default)
def _ones_like(a: Any, **options: Any) -> Any:
    return ops.np.full_like(a, 1, **options)
