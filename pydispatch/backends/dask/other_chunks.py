"""Arrays whose chunks are no arrays of NumPy's, but masked or sparse ones: their `_meta` tells.

On such a chunk, the backend of the chunk computes; what it has no kernel for is refused when it is called, before
anything is computed. Reductions and products of masked chunks are differentiated as those of masked arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import dask.array as da
import numpy as np
from numpy import ma

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch.exceptions import NoKernelError, UntakenArgumentError
from pydispatch.keys import DispatchKey
from pydispatch.registry.backends import is_masked
from pydispatch.registry.tables import table_entry
from pydispatch.tree import tree_leaves


def any_masked(*args: Any, **options: Any) -> bool:
    """Is an argument of a call an array of masked chunks?"""
    return any(map(is_masked, args))


def has_other_chunks(value: Any) -> bool:
    """Is this an array of Dask's with chunks that are masked, or not NumPy's at all?"""
    return isinstance(value, da.Array) and type(value._meta) is not np.ndarray and (
        not isinstance(value._meta, np.generic))


def chunk_has(operator: OpOverload, value: Any) -> bool:
    """Is this such an array, and has the backend of its chunks a kernel for the operator?"""
    key = key_of_chunks(value) if has_other_chunks(value) else None
    return key is not None and table_entry(operator, key) is not None


def check_chunks(operator: OpOverload, *args: Any, **options: Any) -> None:
    """NoKernelError where the backend of the chunks of an argument has no kernel for an operator on these."""
    for value in tree_leaves((args, options)):
        if has_other_chunks(value) and not chunk_has(operator, value):
            key = key_of_chunks(value)
            reason = "which is no array type" if key is None else f"and there is no kernel for the key {key.name}"
            convert = "numpy.ma.filled, 0.0" if is_masked(value) else "lambda chunk: chunk.todense()"
            raise NoKernelError(
                f"operator {operator.name}: found a Dask array whose chunks are of {type(value._meta).__name__}, "
                f"{reason}\nconvert the chunks: array.map_blocks({convert})")


def checked(operator: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that refuses chunks of which the backend lacks the operator."""
    @wraps(kernel)
    def checking(*args: Any, **options: Any) -> Any:
        check_chunks(operator, *args, **options)
        return kernel(*args, **options)
    return checking


def key_of_chunks(value: Any) -> DispatchKey | None:
    """The key that the chunks of an array bring."""
    return next((key for key in _core.keys_of(value._meta) if key.is_dense or key.is_sparse), None)


def made_dense(result: Any, a: Any) -> Any:
    """A reduction of an array, in chunks of NumPy's where those of the array are sparse."""
    if not has_other_chunks(a) or is_masked(a):
        return result
    return result.map_blocks(_made_dense, dtype=result.dtype, meta=np.empty((0,) * result.ndim, result.dtype))


def _made_dense(chunk: Any) -> Any:
    return chunk.todense() if hasattr(chunk, "todense") else chunk


def refuse_masked(name: str, a: Any, options: dict[str, Any]) -> None:
    """UntakenArgumentError where a reduction of masked chunks is given what those of masked arrays do not take."""
    given = [option for option, value in options.items() if value is not None]
    if given and is_masked(a):
        raise UntakenArgumentError(
            f"operator np::{name}: argument {given[0]!r}: reductions of masked chunks do not take it\n"
            "mask what is left out: dask.array.ma.masked_where(condition, array)")


def with_masked_chunks(array: Any) -> Any:
    """The array of Dask's, known to have masked chunks."""
    chunk = ma.masked_array(np.empty((0,) * array.ndim, array.dtype))
    return da.Array(array.dask, array.name, array.chunks, meta=chunk)
