"""Reductions with a mask of elements and with an initial value, for which Dask's functions have no argument."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from pydispatch._registry.backends import has_unknown_sizes, is_masked
from pydispatch.backends.dask.chunkwise import as_dask, remember_chunks
from pydispatch.backends.dask.other_chunks import made_dense, refuse_masked, with_masked_chunks
from pydispatch.backends.dask.shaping import ravel

IDENTITIES = {"sum": 0, "prod": 1, "all": True, "any": False}
"""The value that leaves each reduction's result unchanged. Reductions without one use the initial value instead."""
COMBINING = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def reduced(name: str, a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Any:
    """Reduce the elements where a mask holds, together with an initial value."""
    a = as_dask(a)
    remember_chunks(a)
    refuse_masked(name, a, {"initial": initial, "where": where})
    if where is not None:
        a = da.where(where, a, np.asarray(IDENTITIES.get(name, initial)).astype(a.dtype))
    if name in ("max", "min") and a.size == 0 and initial is None:     # Dask would reduce chunks without elements
        return da.zeros(getattr(np, name)(np.empty(a.shape, a.dtype), axis, keepdims=keepdims).shape, dtype=a.dtype)
    options = {} if dtype is None else {"dtype": dtype}
    if initial is not None and 0 in a.shape:
        # a chunk without elements has no maximum
        a = da.concatenate([a, da.full(with_ones(a, axis), initial, dtype=a.dtype)], first_of(axis))
        initial = None
    found = made_dense(getattr(da, name)(a, axis=axis, keepdims=keepdims, **options), a)
    if name in ("max", "min") and is_masked(a):     # Dask does not know that these are masked
        found = with_masked_chunks(found)
    return found if initial is None else COMBINING[name](found, np.asarray(initial).astype(found.dtype))


def accumulated(name: str, a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Return running sums or products. For unknown sizes, use Dask's method that does not need them."""
    if axis is None:
        a, axis = ravel(a), 0
    options = {"method": "blelloch"} if has_unknown_sizes(a) else {}
    return getattr(da, name)(a, axis=axis, dtype=dtype, **options)


def with_ones(a: Any, axis: Any) -> tuple[int, ...]:
    """Return the shape of an array that adds one element along the first reduced axis."""
    place = first_of(axis) % a.ndim
    return tuple([1 if i == place else n for i, n in enumerate(a.shape)])


def first_of(axis: Any) -> int:
    """Return the first of the reduced axes."""
    return 0 if axis is None else axis if isinstance(axis, int) else axis[0]


def mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Return the mean of the elements where a mask holds."""
    remember_chunks(as_dask(a))
    refuse_masked("mean", a, {"where": where})
    if where is None:
        return made_dense(da.mean(a, axis=axis, dtype=dtype, keepdims=keepdims), a)
    total = reduced("sum", a, axis, dtype or mean_dtype(a), keepdims=keepdims, where=where)
    return total / number(a, axis, keepdims, where)


def var(a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, keepdims: bool = False, where: Any = None,
        mean: Any = None, correction: Any = None) -> Any:
    """Return the variance of the elements where a mask holds, around their mean or a given one."""
    refuse_masked("var", a, {"where": where, "mean": mean})
    ddof = ddof if correction is None else correction
    if where is None and mean is None:
        return made_dense(da.var(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims), a)
    a, dtype = as_dask(a), dtype or mean_dtype(a)
    where = True if where is None else where
    centre = _mean(a, axis, dtype, keepdims=True, where=where) if mean is None else mean
    distance = da.absolute(a.astype(dtype) - centre)
    squares = reduced("sum", distance * distance, axis, keepdims=keepdims, where=where)
    return squares / da.maximum(number(a, axis, keepdims, where) - ddof, 0)


_mean = mean


def std(a: Any, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
    """Return the standard deviation, with the arguments of `var`."""
    return da.sqrt(var(a, axis, dtype, **options))


def number(a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    """Count the elements that each result reduces."""
    return da.broadcast_to(as_dask(where), a.shape).sum(axis=axis, keepdims=keepdims)


def mean_dtype(a: Any) -> Any:
    """Return the dtype of an array's mean."""
    return np.empty(1, a.dtype).mean().dtype
