"""Builds Dask's graph of a function over chunks. Nothing here computes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import getitem
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.core import flatten
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph

from pydispatch.backends.dask.functions import Arrays, ChunkFunction, Specs
from pydispatch.backends.dask.workers import ShippedFunction, Work, run_on_chunk
from pydispatch.exceptions import DispatchTypeError

ADDED_AT_ONCE = 8
"""The number of results that one task of a sum over chunks adds."""


def over_chunks(
    function: ChunkFunction, summed: Sequence[bool], chunked: Sequence[Any], shared: Sequence[Any], is_compiled: bool
) -> list[Any]:
    """Return a function's results over aligned chunks as Dask arrays, joined along axis 0 or summed over chunks."""
    arrays = _aligned(chunked)
    n_rows = arrays[0].chunks[0]
    bundles = _bundles(ShippedFunction(function, is_compiled), arrays, shared)
    known = {size: function.specs_of_results(_specs_of_chunk(arrays, size, shared)) for size in dict.fromkeys(n_rows)}
    specs = known[n_rows[0]]
    sums = iter(_sums(_parts(bundles, summed), [specs[i] for i, flag in enumerate(summed) if flag])
                if any(summed) else ())
    return [next(sums) if flag else _joined(bundles, i, specs[i], tuple([known[size][i][0][0] for size in n_rows]))
            for i, flag in enumerate(summed)]


def _aligned(chunked: Sequence[Any]) -> list[Any]:
    """Return Dask arrays with the same chunks along axis 0 and one chunk along each other axis."""
    first = next(array for array in chunked if isinstance(array, da.Array))
    arrays = [array if isinstance(array, da.Array) else da.from_array(array, chunks=(first.chunks[0], *array.shape[1:]))
              for array in chunked]
    for number, array in enumerate(arrays):
        if any(n_blocks > 1 for n_blocks in array.numblocks[1:]):
            raise DispatchTypeError(
                f"map_chunks: chunked array {number} has chunks along several axes: {array.chunks}, expected only "
                f"axis 0\npass array.rechunk({dict.fromkeys(range(1, array.ndim), -1)})")
        if array.shape[0] != first.shape[0] and not np.isnan(array.shape[0]):
            raise DispatchTypeError(f"map_chunks: chunked array {number} has {array.shape[0]} rows, expected "
                                    f"{first.shape[0]} as in the first\npass arrays with the same number of rows")
    _, unified = da.core.unify_chunks(*_with_indices(arrays))
    return list(unified)


def _with_indices(arrays: Sequence[Any]) -> list[Any]:
    """Return each array, followed by labels for its axes: 0 for the rows, and a separate label for each other axis."""
    names = count(1)
    return [item for array in arrays for item in (array, (0, *[next(names) for _ in array.shape[1:]]))]


def _specs_of_chunk(arrays: Sequence[Any], n_rows: float, shared: Sequence[Any]) -> Specs:
    """Return shapes and dtypes of the arguments for a chunk. Assume two rows if Dask does not know their number."""
    size = 2 if np.isnan(n_rows) else int(n_rows)
    return (*[((size, *map(int, array.shape[1:])), array.dtype) for array in arrays],
            *[(tuple(map(int, value.shape)), value.dtype) for value in shared])


def _bundles(function: ShippedFunction, arrays: Sequence[Any], shared: Sequence[Any]) -> Any:
    """Return a Dask array whose chunks are tuples: the results for each chunk.

    It has the axes of all arrays, with one block along each but the first. Without these axes, Dask would join blocks
    along them, or not fuse the array with the tasks that make the chunks.
    """
    if any(isinstance(value, da.Array) for value in shared):
        work = delayed(_work_of, pure=True)(function, *shared)
    else:
        name = f"pydispatch-work-{tokenize(function, *shared)}"
        work = delayed(Work(function, tuple(shared)), name=name, traverse=False)
    axes = tuple(range(1 + sum(array.ndim - 1 for array in arrays)))
    return da.blockwise(run_on_chunk, axes, work, None, *_with_indices(arrays), dtype=object,
                        meta=np.empty((0,) * len(axes), object), token="map_chunks", concatenate=True)


def _work_of(function: ShippedFunction, *shared: Any) -> Work:
    return Work(function, tuple(map(np.asarray, shared)))


def _joined(bundles: Any, number: int, spec: Any, n_rows: tuple[int, ...]) -> Any:
    """Join one result of each chunk along axis 0."""
    shape, dtype = spec
    unknown = any(map(np.isnan, bundles.chunks[0]))
    return da.blockwise(
        _chosen, tuple(range(len(shape))), bundles, (0, *range(-1, -bundles.ndim, -1)), number, None,
        new_axes={axis: size for axis, size in enumerate(shape) if axis > 0},
        adjust_chunks={0: (np.nan,) * len(n_rows) if unknown else n_rows},
        dtype=dtype, meta=np.empty((0,) * len(shape), dtype), token="map_chunks-result")


def _chosen(results: Any, number: int) -> Any:
    """Return one result of a chunk. The results are nested in a list for each axis that this one lacks."""
    while isinstance(results, list):
        (results,) = results
    return results[number]


def _parts(bundles: Any, chosen: Sequence[bool]) -> Any:
    """Return the bundles with the chosen results only."""
    if all(chosen):
        return bundles
    axes = tuple(range(bundles.ndim))
    numbers = tuple([i for i, flag in enumerate(chosen) if flag])
    return da.blockwise(_part, axes, bundles, axes, numbers=numbers, dtype=object,
                        meta=np.empty((0,) * len(axes), object), token="map_chunks-part")


def _part(results: Arrays, numbers: tuple[int, ...]) -> Arrays:
    return tuple([results[number] for number in numbers])


def _sums(parts: Any, specs: Sequence[Any]) -> list[Any]:
    """Sum the results of all chunks by a tree, whose order is always the same.

    `dask.array.reduction` would wrap this in a function for each chunk, which costs more than small chunks.
    """
    keys = list(flatten(parts.__dask_keys__()))
    name = f"map_chunks-sum-{tokenize(parts.name)}"
    graph: dict[Any, Any] = {}
    level = 0
    while len(keys) > 1 or level == 0:
        groups = [keys[start:start + ADDED_AT_ONCE] for start in range(0, len(keys), ADDED_AT_ONCE)]
        keys = [(name, level, number) for number in range(len(groups))]
        graph |= {key: Task(key, _added, *map(TaskRef, group)) for key, group in zip(keys, groups, strict=True)}
        level += 1
    total: Any = Delayed(keys[0], HighLevelGraph.from_collections(name, graph, dependencies=[parts]), layer=name)
    return [_element(total, i, shape, dtype) for i, (shape, dtype) in enumerate(specs)]


def _element(total: Any, number: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return one of the sums as an array. `total[number]` would need two tasks, which Dask fuses into a third kind."""
    name = f"{total.key[0]}-{number}"
    key: Any = (name, *(0,) * len(shape))
    graph = HighLevelGraph.from_collections(
        name, {key: Task(key, getitem, TaskRef(total.key), number)}, dependencies=[total])
    return da.Array(graph, name, tuple([(n,) for n in shape]), meta=np.empty((0,) * len(shape), dtype))


def _added(*parts: Arrays) -> Arrays:
    """Add the results of several chunks."""
    first, *rest = parts
    if not rest:
        return tuple(first)
    sums = [value + other for value, other in zip(first, rest[0], strict=True)]
    for part in rest[1:]:
        sums = [np.add(value, other, out=value) if value.ndim else value + other
                for value, other in zip(sums, part, strict=True)]
    return tuple(map(np.asarray, sums))
