"""Functions that rearrange, join and split arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch.numpy.declare import array_function, as_array, as_nonscalar, into
from pydispatch.ops import ops


@array_function()
def atleast_1d(*arys: Any) -> Any:
    """Arrays of at least one axis."""
    return of_each(lambda x: x if x.ndim else ops.np.reshape(x, (1,)), arys)


def of_each(function: Any, arrays: tuple[Any, ...]) -> Any:
    """The function of the one array, or of each of several."""
    results = tuple([function(as_nonscalar(x)) for x in arrays])
    return results[0] if len(results) == 1 else results


@array_function()
def concatenate(
    arrays: Any, /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Join arrays along an axis that they have."""
    return into(out, ops.np.concatenate([as_nonscalar(x) for x in arrays], axis, dtype=dtype, casting=casting))


@array_function()
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along the first axis, vectors as rows."""
    rows = [x if x.ndim > 1 else ops.np.reshape(x, (1, -1)) for x in map(as_nonscalar, tup)]
    return ops.np.concatenate(rows, 0, dtype=dtype, casting=casting)


@array_function()
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """The same elements in another shape, read and written in `order`."""
    a = as_array(a)
    if order == "F":
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return ops.np.transpose(ops.np.reshape(ops.np.transpose(a), shape[::-1], copy=copy))
    return ops.np.reshape(a, shape, copy=copy)


@array_function()
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Join arrays along a new axis."""
    return into(out, ops.np.stack([as_nonscalar(x) for x in arrays], axis, dtype=dtype, casting=casting))


@array_function()
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """A list of views: that many of equal length, or those between indices."""
    return list(ops.np.split(as_nonscalar(ary), as_sections(indices_or_sections), axis))


def as_sections(indices_or_sections: Any) -> Any:
    """A number of sections, or a tuple of indices."""
    if isinstance(indices_or_sections, int):
        return indices_or_sections
    found = np.asarray(indices_or_sections)
    return int(found) if found.ndim == 0 else tuple(found.tolist())


@array_function()
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element several times."""
    counts = np.asarray(repeats)
    return ops.np.repeat(as_nonscalar(a), int(counts) if counts.ndim == 0 else tuple(counts.tolist()), axis)


@array_function()
def ravel(a: Any, order: str = "C") -> Any:
    """The elements as a vector, read in `order`."""
    a = as_nonscalar(a)
    return ops.np.ravel(ops.np.transpose(a) if order == "F" else a)
