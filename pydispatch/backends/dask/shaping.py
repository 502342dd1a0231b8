"""Shapes, joins and new arrays, for which Dask's functions take less than NumPy's."""

from __future__ import annotations

import math
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks
from dask.utils import parse_bytes

from pydispatch._registry.backends import has_unknown_sizes, is_masked
from pydispatch.backends.dask.chunkwise import as_dask, metadata_of, on_elements, remembered_chunks
from pydispatch.backends.masked import mask, with_mask
from pydispatch.ops import ops


def reshape(a: Any, shape: tuple[int, ...], *, copy: bool | None = None) -> Any:
    """Reshape an array. If the new axes do not join or divide the old ones, flatten it first."""
    a = as_dask(a)
    if a.size == 0:
        return da.zeros(np.empty(a.shape, bool).reshape(shape).shape, dtype=a.dtype)
    try:
        return da.reshape(a, shape)
    except NotImplementedError:
        return da.reshape(a.ravel(), shape)


def ravel(a: Any) -> Any:
    """Flatten an array."""
    return reshape(a, (-1,))


def repeat(a: Any, repeats: tuple[int, ...], axis: int | None = None) -> Any:
    """Repeat elements along an axis, each by its own number, or all by the same one."""
    if axis is None:
        a, axis = ravel(a), 0
    if len(repeats) == 1:
        return da.repeat(a, repeats[0], axis=axis)
    return da.take(a, np.repeat(np.arange(a.shape[axis]), repeats), axis=axis)


def roll(a: Any, shift: tuple[int, ...], axis: tuple[int, ...] | None = None) -> Any:
    """Roll elements along axes, each by its own shift, or all by the same one."""
    if axis is None:
        return da.roll(a, sum(shift))
    shifts, axes = np.broadcast_arrays(shift, axis)
    return da.roll(a, shifts.tolist(), axes.tolist())


def concatenate(arrays: Any, axis: int | None = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along an axis, converted to a dtype."""
    if axis is None:
        arrays, axis = [ravel(a) for a in arrays], 0
    return da.concatenate(converted(arrays, dtype, casting), axis=axis, allow_unknown_chunksizes=True)


def stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays of one shape along a new axis, converted to a dtype."""
    return da.stack(converted(arrays, dtype, casting), axis=axis, allow_unknown_chunksizes=True)


def converted(arrays: Any, dtype: Any, casting: str) -> list[Any]:
    """Convert arrays to Dask arrays of a dtype."""
    arrays = list(map(as_dask, arrays))
    return arrays if dtype is None else [a.astype(dtype, casting=casting) for a in arrays]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split an array along an axis."""
    extent = ary.shape[axis]
    if isinstance(indices_or_sections, int):
        step = extent // indices_or_sections
        if step * indices_or_sections != extent:
            raise ValueError("array split does not result in an equal division")
        indices_or_sections = [step * i for i in range(1, indices_or_sections)]
    before = (slice(None),) * (axis % ary.ndim)
    ends = [*indices_or_sections, None]
    return [ary[(*before, slice(start, end))] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, axis: int = 0, dtype: Any = None,
             device: Any = None) -> Any:
    """Return evenly spaced numbers along a new axis, which has one chunk."""
    ends = da.broadcast_arrays(as_dask(start), as_dask(stop))
    rows = [end[..., np.newaxis] for end in ends]
    result = metadata_of(ops.np.linspace.default, *ends, num, endpoint, dtype=dtype)
    found = da.map_blocks(numbers_between, *rows, num, endpoint, dtype=result.dtype, requested=dtype,
                          chunks=(*rows[0].chunks[:-1], (num,)))
    return da.moveaxis(found, -1, axis)


def numbers_between(start: Any, stop: Any, num: int, endpoint: bool, requested: Any) -> Any:
    """Return the numbers of one chunk along its last axis."""
    return np.linspace(start[..., 0], stop[..., 0], num, endpoint, axis=-1, dtype=requested)


def full(shape: tuple[int, ...], fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of one value, or of values that are broadcast."""
    value = as_dask(fill_value)
    return broadcast_to(value if dtype is None else value.astype(dtype), shape)


def broadcast_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Repeat elements along axes, in the chunks of the last reduced array of this shape, whose gradient this may be.

    Without such an array, the result has one chunk along each axis. If it is larger than Dask's usual size of chunks,
    it has chunks of that size.
    """
    array, shape = as_dask(array), tuple(shape)
    if is_masked(array):        # Dask would lose the masks
        return with_mask(broadcast_to(da.ma.getdata(array), shape), broadcast_to(mask(array), shape))
    known = remembered_chunks(shape)
    is_small = array.dtype.itemsize * math.prod(shape) <= parse_bytes(dask.config.get("array.chunk-size"))
    if known is None and is_small:
        return da.broadcast_to(array, shape)
    own = [()] * (len(shape) - array.ndim) + list(array.chunks)
    chunks = tuple([pieces if sum(pieces) == n else known[axis] if known else "auto"
                    for axis, (n, pieces) in enumerate(zip(shape, own, strict=True))])
    return da.broadcast_to(array, shape, chunks=normalize_chunks(chunks, shape, dtype=array.dtype))


def full_like(a: Any, fill_value: Any, *, shape: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of one value with the shape, the dtype and the chunks of another."""
    if has_unknown_sizes(a) and shape is None:
        return on_elements(ops.np.full_like.default, a, fill_value, dtype=dtype)
    value = as_dask(fill_value).astype(dtype or a.dtype)
    shape = a.shape if shape is None else tuple(shape)
    if value.ndim:
        return broadcast_to(value, shape)
    return da.broadcast_to(value, shape, chunks=normalize_chunks(chunks_like(a, shape), shape, dtype=value.dtype))


def zeros_like(a: Any, *, shape: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Return zeros with the shape, the dtype and the chunks of an array."""
    return _made_like(da.zeros, ops.np.zeros_like.default, a, shape, dtype)


def ones_like(a: Any, *, shape: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Return ones with the shape, the dtype and the chunks of an array."""
    return _made_like(da.ones, ops.np.ones_like.default, a, shape, dtype)


def empty_like(prototype: Any, *, shape: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Return undefined elements with the shape, the dtype and the chunks of an array."""
    return _made_like(da.empty, ops.np.empty_like.default, prototype, shape, dtype)


def _made_like(make: Any, operator: Any, a: Any, shape: Any, dtype: Any) -> Any:
    if any(map(math.isnan, a.shape if shape is None else shape)) or (shape is None and is_masked(a)):
        return on_elements(operator, a, dtype=dtype)
    shape = a.shape if shape is None else tuple(shape)
    return make(shape, dtype=dtype or a.dtype, chunks=chunks_like(a, shape))


def chunks_like(a: Any, shape: tuple[int, ...]) -> Any:
    """Return chunks for a shape: those of an array along equal axes, as long as its longest along others."""
    if len(shape) == a.ndim:
        return tuple([pieces if sum(pieces) == n else -1 if len(pieces) == 1 else max((1, *pieces))
                      for n, pieces in zip(shape, a.chunks, strict=True)])
    chunks = list(a.chunks)
    return tuple([chunks.pop(0) if chunks and sum(chunks[0]) == n else "auto" for n in shape])
