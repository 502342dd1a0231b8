"""Runs operators over the chunks of Dask arrays. Each chunk, or each whole row of chunks, is a NumPy array.

A result's shape and dtype come from the operator's kernel for Meta. Finding them computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from threading import Lock
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.array.core import elemwise

from pydispatch._core import MetaArray, OpOverload
from pydispatch._registry.backends import unknown_sizes
from pydispatch.backends.dask.other_chunks import any_masked, check_chunks, has_other_chunks, with_masked_chunks
from pydispatch.backends.masked import mask, with_mask
from pydispatch.exceptions import DispatchError
from pydispatch.operators.sizes import blame_unknown_sizes
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten


class Call(NamedTuple):
    """A call of an operator as a function of its arrays. It is pickled by the operator's name."""

    operator: OpOverload
    leaves: tuple[Any, ...]
    spec: TreeSpec
    places: tuple[int, ...]

    @property
    def __name__(self) -> str:
        return str(self.operator.name).replace("::", "_")

    def __call__(self, *arrays: Any) -> Any:
        """Call the operator with these arrays."""
        leaves = list(self.leaves)
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = array
        args, options = tree_unflatten(leaves, self.spec)
        return self.operator(*args, **options)


def opened(operator: OpOverload, *args: Any, **options: Any) -> tuple[Call, list[Any]]:
    """Split a call into a function of its arrays and these arrays."""
    leaves, spec = tree_flatten((args, options))
    places = tuple([i for i, leaf in enumerate(leaves) if isinstance(leaf, (da.Array, np.ndarray))])
    rest = tuple([None if i in places else leaf for i, leaf in enumerate(leaves)])
    return Call(operator, rest, spec, places), [leaves[place] for place in places]


def metadata_of(operator: OpOverload, *args: Any, **options: Any) -> Any:
    """Return the shape and dtype of a call's result as a MetaArray. An unknown length counts as 1."""
    args, options = tree_map(_as_meta, (args, options))
    return operator(*args, **options)


def _as_meta(leaf: Any) -> Any:
    if not isinstance(leaf, da.Array):
        return leaf
    return MetaArray(tuple([1 if math.isnan(n) else n for n in leaf.shape]), leaf.dtype)


def as_dask(value: Any) -> Any:
    """Convert a NumPy array or a number to a Dask array."""
    return value if isinstance(value, da.Array) else da.asarray(value)


MOST_REMEMBERED = 256
_remembered: dict[tuple[int, ...], Any] = {}
_lock = Lock()


def remember_chunks(a: Any) -> None:
    """Remember the chunks of an array that is reduced, because its gradient is later made from its shape only."""
    with _lock:
        _remembered.pop(a.shape, None)
        _remembered[a.shape] = a.chunks
        if len(_remembered) > MOST_REMEMBERED:
            del _remembered[next(iter(_remembered))]


def remembered_chunks(shape: tuple[int, ...]) -> Any:
    """Return the chunks of the last reduced array of this shape, or None."""
    return _remembered.get(shape)


def of_known_sizes(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel so that errors caused by unknown sizes name the operator, the sizes and a remedy.

    Dask's own errors speak of chunks if these meet, and of nan if unknown sizes are computed with.
    """
    @wraps(kernel)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            return kernel(*args, **options)
        except DispatchError:
            raise
        except Exception as error:
            blame_unknown_sizes(f"operator np::{name}", kernel, args, options, error)
            raise
    return checked


def check_axes(operator: OpOverload, a: Any, axes: Sequence[int]) -> None:
    """Raise UnsupportedError if an operator works along an axis of unknown length."""
    if any(math.isnan(a.shape[axis]) for axis in axes):
        raise unknown_sizes(f"operator {operator.name}", a,
                            f"it requires the length of axis {' and '.join(map(str, axes))}")


def on_elements(operator: OpOverload, *args: Any, **options: Any) -> Any:
    """Run a pointwise operator chunk by chunk."""
    check_chunks(operator, *args, **options)
    call, arrays = opened(operator, *args, **options)
    return elemwise(call, *arrays, dtype=metadata_of(operator, *args, **options).dtype)


def on_masked(operator: OpOverload, a: Any, *args: Any) -> Any:
    """Run an operator of the pack of masked arrays chunk by chunk."""
    call, arrays = opened(operator, a, *args)
    found = elemwise(call, *arrays, dtype=bool if operator is mask.default else a.dtype)
    return with_masked_chunks(found) if operator is with_mask.default else found


def along(operator: OpOverload, axes: Sequence[int], a: Any, *args: Any, **options: Any) -> Any:
    """Run an operator whose result has the axes of its first argument. It works along axes of one chunk."""
    axes = [axis % a.ndim for axis in axes]
    check_axes(operator, a, axes)
    check_chunks(operator, a)
    a = in_one_chunk(a, axes)
    result = metadata_of(operator, a, *args, **options)
    call, _ = opened(operator, a, *args, **options)
    labels = tuple(range(a.ndim))
    chunk = call(a._meta) if has_other_chunks(a) else np.empty((0,) * a.ndim, result.dtype)
    return da.blockwise(call, labels, a, labels, dtype=result.dtype, meta=chunk,
                        adjust_chunks={axis: (result.shape[axis],) for axis in axes})


def in_one_chunk(a: Any, axes: Sequence[int]) -> Any:
    """Join the chunks of an array along each of these axes."""
    split = {axis: -1 for axis in axes if len(a.chunks[axis]) > 1}
    return a.rechunk(split) if split else a


def on_rows(operator: OpOverload, signature: str, *args: Any, **options: Any) -> Any:
    """Run an operator as a generalized universal function. Its core axes, the last ones, are in one chunk."""
    check_chunks(operator, *args, **options)
    call, arrays = opened(operator, *args, **options)
    inputs, outputs = (side[1:-1].split("),(") for side in signature.split("->"))
    for array, names in zip(arrays, inputs, strict=True):
        check_axes(operator, array, range(array.ndim - len(names.split(",")) if names else array.ndim, array.ndim))
    results = tree_leaves(metadata_of(operator, *args, **options))
    sizes: dict[str, int] = {}
    for result, names in zip(results, outputs, strict=True):
        core = names.split(",") if names else []
        sizes |= dict(zip(core, result.shape[result.ndim - len(core):], strict=True))
    given = {name for names in inputs for name in names.split(",")}
    dtypes = [result.dtype for result in results]
    is_empty = any(0 in array.shape for array in arrays)    # Dask cannot divide an empty array
    if is_empty:
        arrays = [in_one_chunk(as_dask(array), range(array.ndim)) for array in arrays]
    found = da.apply_gufunc(call, signature, *arrays, allow_rechunk=not is_empty,
                            output_sizes={name: n for name, n in sizes.items() if name not in given},
                            output_dtypes=dtypes if len(dtypes) > 1 else dtypes[0])
    return tree_map(with_masked_chunks, found) if any_masked(*arrays) else found
