"""Properties of arrays: shapes, dtypes, memory. Arrays as text and in files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch import _core
from pydispatch._core import Tensor, is_array, known_array
from pydispatch.numpy import calculus, manipulation, operators  # noqa: F401  functions that have other names, too
from pydispatch.numpy.creation import asarray
from pydispatch.numpy.declare import FUNCTIONS, OF_NUMPY, array_function, as_nonscalar, refuse

# --- shapes and dtypes -----------------------------------------------------------------------------------------------


@array_function(constant=True)
def shape(a: Any) -> tuple[int, ...]:
    """The number of elements along each axis."""
    return tuple(as_nonscalar(a).shape)


@array_function(constant=True)
def ndim(a: Any) -> int:
    """The number of axes."""
    return int(as_nonscalar(a).ndim)


@array_function(constant=True)
def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or of those along axes."""
    a = as_nonscalar(a)
    if axis is None:
        return int(a.size)
    return int(np.prod([a.shape[i] for i in normalize_axis_tuple(axis, a.ndim)]))


def dtype_or_value(value: Any) -> Any:
    """The dtype of a Tensor; a dtype, number or array itself."""
    return value.dtype if isinstance(value, (Tensor, _core.MetaArray)) else value


@array_function(constant=True)
def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype of a result that is computed from these."""
    return np.result_type(*map(dtype_or_value, arrays_and_dtypes))


@array_function(constant=True)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Can a dtype be cast to another?"""
    return np.can_cast(dtype_or_value(from_), dtype_or_value(to), casting)


@array_function(constant=True)
def common_type(*arrays: Any) -> type:
    """The inexact type that all arrays can be converted to."""
    return np.common_type(*[np.empty(0, as_nonscalar(x).dtype) for x in arrays])


@array_function(constant=True, takes_more=True)
def finfo(dtype: Any) -> Any:
    """What there is to know of a floating-point dtype, or of that of an array."""
    return np.finfo(dtype.dtype if is_array(dtype) else dtype)


@array_function(constant=True, takes_more=True)
def iinfo(type: Any) -> Any:
    """What there is to know of a dtype of integers, or of that of an array."""
    return np.iinfo(type.dtype if is_array(type) else type)


# --- memory ----------------------------------------------------------------------------------------------------------


def memory(value: Any) -> Any:
    """The raw array at the bottom of a Tensor."""
    while isinstance(value, Tensor):
        value = value.array
    return value


@array_function(constant=True)
def may_share_memory(a: Any, b: Any, /, max_work: Any = 0) -> bool:
    """May two arrays share memory?"""
    return np.may_share_memory(memory(a), memory(b), max_work)


@array_function(constant=True)
def shares_memory(a: Any, b: Any, /, max_work: Any = -1) -> bool:
    """Do two arrays share memory?"""
    return np.shares_memory(memory(a), memory(b), max_work)


@array_function(keeps="F")
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """The value as an array; Tensors have no memory layout."""
    return asarray(a, dtype, like=like)


@array_function()
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """The value as an array; Tensors have no memory layout."""
    return asarray(a, dtype, like=like)


# --- text and files --------------------------------------------------------------------------------------------------


@array_function(constant=True)
def array_repr(arr: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None) -> str:
    """The array as text, with its type."""
    return printed(repr, arr, max_line_width, precision, suppress_small)


@array_function(constant=True)
def array_str(a: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None) -> str:
    """The elements as text."""
    return printed(str, a, max_line_width, precision, suppress_small)


def printed(text_of: Callable[[Any], str], a: Any, max_line_width: Any, precision: Any, suppress_small: Any) -> str:
    """The text of an array with some of the printing options changed; None leaves one as it is."""
    options = {"linewidth": max_line_width, "precision": precision, "suppress": suppress_small}
    changed = {name: value for name, value in options.items() if value is not None}
    if not changed:
        return text_of(a)
    with np.printoptions(**changed):
        return text_of(a)


@array_function(constant=True)
def array2string(a: Any, *args: Any, **kwargs: Any) -> str:
    """The elements as text, formatted as the options say."""
    array = known_array(a)
    return np.array2string(np.asarray(a.detach() if array is None else array), *args, **kwargs)


@array_function(constant=True)
def save(file: Any, arr: Any, *args: Any, **kwargs: Any) -> None:
    """Write an array to a file; of a Tensor, its elements, where `numpy.asarray` takes the Tensor."""
    np.save(file, np.asarray(arr), *args, **kwargs)


@array_function(constant=True)
def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to a file."""
    np.savez(file, *map(as_written, args), **{name: as_written(value) for name, value in kwds.items()})


@array_function(constant=True)
def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to a file, compressed."""
    np.savez_compressed(file, *map(as_written, args), **{name: as_written(value) for name, value in kwds.items()})


def as_written(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Tensor) else value


@array_function(constant=True)
def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:
    """Write the elements to a file as text."""
    np.savetxt(fname, np.asarray(X), *args, **kwargs)


# --- other names, and what there is not ------------------------------------------------------------------------------

for alias, name in {"amax": "max", "amin": "min", "row_stack": "vstack", "trapz": "trapezoid"}.items():
    if hasattr(np, alias):      # NumPy has dropped some, or will
        OF_NUMPY[getattr(np, alias)] = FUNCTIONS[name]

refuse({
    "asmatrix": "numpy.matrix is a class of its own, which NumPy advises against; Tensors of two axes are matrices",
    "bmat": "numpy.matrix is a class of its own, which NumPy advises against; use block([[a, b], [c, d]])",
})
