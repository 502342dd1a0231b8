"""NumPy's functions written with those of the Array API standard, where the standard lacks them or takes less.

Each gets the namespace first, and arrays of the library.
"""

# tests: tests/backends/test_array_api.py
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pydispatch.ops import ops
from pydispatch.tracing.decompositions import decomposition_of

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions by NumPy's name."""


def standing_for(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function under these names of NumPy's."""
    def declared(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function
    return declared


# --- making arrays ---------------------------------------------------------------------------------------------------


@standing_for("full")
def _full(xp, shape, fill_value, dtype=None):
    if not hasattr(fill_value, "shape"):
        return xp.full(shape, fill_value, dtype=dtype)
    return xp.broadcast_to(fill_value if dtype is None else xp.astype(fill_value, dtype), shape)


@standing_for("full_like")
def _full_like(xp, a, fill_value, dtype=None, shape=None):
    return _full(xp, tuple(a.shape) if shape is None else shape, fill_value, a.dtype if dtype is None else dtype)


@standing_for("zeros_like", "empty_like")
def _zeros_like(xp, a, dtype=None, shape=None):
    return xp.zeros(tuple(a.shape) if shape is None else shape, dtype=a.dtype if dtype is None else dtype)


@standing_for("ones_like")
def _ones_like(xp, a, dtype=None, shape=None):
    return xp.ones(tuple(a.shape) if shape is None else shape, dtype=a.dtype if dtype is None else dtype)


@standing_for("copy")
def _copy(xp, a):
    return xp.asarray(a, copy=True)


# --- choosing and arranging ------------------------------------------------------------------------------------------


@standing_for("getitem", "index")
def _getitem(xp, x, key):
    """Index an array with slices within its axes, positive steps and every axis given, as the standard requires."""
    keys = key if isinstance(key, tuple) else (key,)
    n_given = sum(each.ndim if is_mask(xp, each) else each is not None and each is not Ellipsis for each in keys)
    if not any(each is Ellipsis for each in keys) and n_given < x.ndim:
        keys = (*keys, Ellipsis)
    if n_given < x.ndim and keys[-1] is Ellipsis and any(is_positions(xp, each) for each in keys[:-1]) and all(
            isinstance(each, int) or is_positions(xp, each) for each in keys[:-1]):
        return _leading(xp, x, keys[:-1])
    forward, flipped, axis, place = [], [], 0, 0
    is_by_arrays = any(hasattr(each, "shape") for each in keys)
    for each in keys:
        if isinstance(each, slice):
            start, stop, step = each.indices(x.shape[axis])
            n = len(range(start, stop, step))
            if step < 0:
                start, step = start + (n - 1) * step, -step
                flipped.append(place)
            forward.append(slice(start, start + (n - 1) * step + 1, step) if n else slice(0, 0))
            if n and start == 0 and n == x.shape[axis]:
                forward[-1] = slice(None)
        else:
            forward.append(each)
        axis += (x.ndim - n_given if each is Ellipsis else each.ndim if is_mask(xp, each) else each is not None)
        place += x.ndim - n_given if each is Ellipsis else each is None or isinstance(each, slice)
    if flipped and is_by_arrays:
        raise NotImplementedError("slices with a negative step beside index arrays are not supported")
    found = x[tuple(forward)]
    return xp.flip(found, axis=tuple(flipped)) if flipped else found


def is_positions(xp: Any, value: Any) -> bool:
    """Return whether a value is an array of indices."""
    return hasattr(value, "dtype") and xp.isdtype(value.dtype, "integral") and len(value.shape) > 0


def _leading(xp, x, keys):
    """Return the elements at index arrays on the leading axes. The standard can index one axis only."""
    flat = xp.asarray(0)
    for each, n in zip(keys, x.shape, strict=False):
        each = xp.asarray(each)
        flat = flat * n + xp.where(each < 0, each + n, each)
    rest = x.shape[len(keys):]
    found = xp.take(xp.reshape(x, (prod(x.shape[:len(keys)]), *rest)), xp.reshape(flat, (-1,)), axis=0)
    return xp.reshape(found, (*flat.shape, *rest))


def is_mask(xp: Any, value: Any) -> bool:
    """Return whether a value is an array of bools, which covers as many axes as it has."""
    return hasattr(value, "dtype") and value.dtype == xp.bool


@standing_for("take")
def _take(xp, a, indices, axis=None):
    if axis is None:
        a, axis = xp.reshape(a, (-1,)), 0
    axis %= a.ndim
    indices = xp.asarray(indices)
    found = xp.take(a, xp.reshape(indices, (-1,)), axis=axis)
    return xp.reshape(found, (*a.shape[:axis], *indices.shape, *a.shape[axis + 1:]))


def _spread(name):
    """Return the variance or standard deviation with NumPy's argument `ddof`."""
    def function(xp, a, axis=None, ddof=0, keepdims=False):
        return getattr(xp, name)(a, axis=axis, correction=ddof, keepdims=keepdims)
    return function


standing_for("var")(_spread("var"))
standing_for("std")(_spread("std"))


@standing_for("repeat")
def _repeat(xp, a, repeats, axis=None):
    if isinstance(repeats, tuple):
        repeats = repeats[0] if len(repeats) == 1 else xp.asarray(list(repeats))
    return xp.repeat(a, repeats, axis=axis)


@standing_for("split")
def _split(xp, ary, indices_or_sections, axis=0):
    n = ary.shape[axis]
    axis %= ary.ndim
    edges = indices_or_sections
    if isinstance(edges, int):
        if n % edges:
            raise ValueError("array split does not result in an equal division")
        edges = range(n // edges, n, n // edges)
    return [_getitem(xp, ary, (slice(None),) * axis + (slice(start, stop),))
            for start, stop in zip((0, *edges), (*edges, None), strict=True)]


@standing_for("concatenate")
def _concatenate(xp, arrays, axis=0, dtype=None):
    if axis is None:
        arrays, axis = [xp.reshape(array, (-1,)) for array in arrays], 0
    return xp.concat(arrays if dtype is None else [xp.astype(array, dtype) for array in arrays], axis=axis)


@standing_for("stack")
def _stack(xp, arrays, axis=0, dtype=None):
    return _concatenate(xp, [xp.expand_dims(array, axis=axis) for array in arrays], axis, dtype)


@standing_for("argsort")
def _argsort(xp, a, axis=-1, stable=True):
    if axis is None:
        a, axis = xp.reshape(a, (-1,)), 0
    return xp.argsort(xp.astype(a, xp.uint8) if a.dtype == xp.bool else a, axis=axis, stable=True)


@standing_for("setitem")
def _setitem(xp, x, key, value):
    changed = xp.asarray(x, copy=True)
    changed[key] = xp.astype(value, x.dtype) if hasattr(value, "dtype") else value
    return changed


@standing_for("index_put")
def _index_put(xp, x, key, values, accumulate=False):
    items = key if isinstance(key, tuple) else (key,)
    if not accumulate and all(isinstance(each, int) or is_mask(xp, each) for each in items):
        return _setitem(xp, x, key, values)
    replaced: Any = decomposition_of(ops.np.index_put.default)
    found = replaced(x, as_numpy(items), values, accumulate=accumulate)
    if found is NotImplemented:
        raise NotImplementedError("these index arrays are not supported")
    return found


def as_numpy(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert the index arrays of a key to NumPy's, whose elements are known."""
    return tuple([np.from_dlpack(each) if hasattr(each, "shape") else each for each in items])


@standing_for("transpose")
def _transpose(xp, a, axes=None):
    return xp.permute_dims(a, tuple(reversed(range(a.ndim))) if axes is None else axes)


# --- arithmetic ------------------------------------------------------------------------------------------------------


@standing_for("cumsum")
def _cumsum(xp, a, axis=None, dtype=None):
    return _cumulative(xp, xp.cumulative_sum, a, axis, dtype)


@standing_for("cumprod")
def _cumprod(xp, a, axis=None, dtype=None):
    return _cumulative(xp, xp.cumulative_prod, a, axis, dtype)


def _cumulative(xp, function, a, axis, dtype):
    if axis is None:
        a, axis = xp.reshape(a, (prod(a.shape),)), 0
    return function(a, axis=axis, dtype=dtype)


@standing_for("clip")
def _clip(xp, a, a_min=None, a_max=None, min=None, max=None):
    return xp.clip(a, a_min if min is None else min, a_max if max is None else max)


@standing_for("round")
def _round(xp, a, decimals=0):
    if xp.isdtype(a.dtype, "integral") and decimals < 0:
        raise NotImplementedError("rounding integers to tens is not supported")
    if decimals == 0 or xp.isdtype(a.dtype, "integral"):
        return xp.round(a)
    factor = 10.0 ** abs(decimals)
    return xp.round(a * factor) / factor if decimals > 0 else xp.round(a / factor) * factor


@standing_for("rint")
def _rint(xp, x):
    return xp.round(x)


@standing_for("fabs")
def _fabs(xp, x):
    return xp.abs(x)


def _real(xp, val):
    return xp.real(val) if xp.isdtype(val.dtype, "complex floating") else val


def _imag(xp, val):
    return xp.imag(val) if xp.isdtype(val.dtype, "complex floating") else xp.zeros_like(val)


FUNCTIONS.update(real=_real, imag=_imag)
