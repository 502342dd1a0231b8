"""Arrays whose chunks are not NumPy arrays but masked or sparse ones, as their `_meta` shows.

The backend of a chunk computes on it. An operator for which it has no kernel raises when it is called, before anything
is computed. Reductions and products of masked chunks are differentiated as those of masked arrays.
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
from pydispatch._registry.backends import is_masked
from pydispatch._registry.tables import table_entry
from pydispatch.exceptions import NoKernelError, UnsupportedArgumentError
from pydispatch.keys import DispatchKey
from pydispatch.tree import tree_leaves


def any_masked(*args: Any, **options: Any) -> bool:
    """Return whether an argument of a call is an array of masked chunks."""
    return any(map(is_masked, args))


def has_other_chunks(value: Any) -> bool:
    """Return whether a value is a Dask array whose chunks are masked, or not NumPy arrays at all."""
    return isinstance(value, da.Array) and type(value._meta) is not np.ndarray and (
        not isinstance(value._meta, np.generic))


def chunk_has(operator: OpOverload, value: Any) -> bool:
    """Return whether a value is an array of such chunks, whose backend has a kernel for the operator."""
    key = key_of_chunks(value) if has_other_chunks(value) else None
    return key is not None and table_entry(operator, key) is not None


def check_chunks(operator: OpOverload, *args: Any, **options: Any) -> None:
    """Raise NoKernelError if the backend of an argument's chunks has no kernel for an operator."""
    for value in tree_leaves((args, options)):
        if has_other_chunks(value) and not chunk_has(operator, value):
            key = key_of_chunks(value)
            reason = "which is not an array type" if key is None else f"and there is no kernel for the key {key.name}"
            convert = "numpy.ma.filled, 0.0" if is_masked(value) else "lambda chunk: chunk.todense()"
            raise NoKernelError(
                f"operator {operator.name}: found a Dask array whose chunks are of {type(value._meta).__name__}, "
                f"{reason}\nconvert the chunks: array.map_blocks({convert})")


def checked(operator: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that raises for chunks whose backend lacks the operator."""
    @wraps(kernel)
    def checking(*args: Any, **options: Any) -> Any:
        check_chunks(operator, *args, **options)
        return kernel(*args, **options)
    return checking


def key_of_chunks(value: Any) -> DispatchKey | None:
    """Return the key that the chunks of an array bring."""
    return next((key for key in _core.keys_of(value._meta) if key.is_dense or key.is_sparse), None)


def made_dense(result: Any, a: Any) -> Any:
    """Convert the chunks of an array's reduction to NumPy arrays if those of the array are sparse."""
    if not has_other_chunks(a) or is_masked(a):
        return result
    return result.map_blocks(_made_dense, dtype=result.dtype, meta=np.empty((0,) * result.ndim, result.dtype))


def _made_dense(chunk: Any) -> Any:
    return chunk.todense() if hasattr(chunk, "todense") else chunk


def refuse_masked(name: str, a: Any, options: dict[str, Any]) -> None:
    """Raise UnsupportedArgumentError if a reduction of masked chunks gets arguments that masked arrays do not take."""
    given = [option for option, value in options.items() if value is not None]
    if given and is_masked(a):
        raise UnsupportedArgumentError(
            f"operator np::{name}: argument {given[0]!r}: reductions of masked chunks do not support it\n"
            "mask the elements to leave out: dask.array.ma.masked_where(condition, array)")


def with_masked_chunks(array: Any) -> Any:
    """Return the same Dask array, marked as one of masked chunks."""
    chunk = ma.masked_array(np.empty((0,) * array.ndim, array.dtype))
    return da.Array(array.dask, array.name, array.chunks, meta=chunk)
