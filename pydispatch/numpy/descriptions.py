"""Properties of arrays: shapes, dtypes, memory. Arrays as text and in files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch import _core
from pydispatch._core import Tensor, is_array, known_array
from pydispatch.numpy import calculus, manipulation, operators  # noqa: F401  functions that also have other names
from pydispatch.numpy.creation import array, asarray, copy
from pydispatch.numpy.declare import FUNCTIONS, OF_NUMPY, array_function, as_nonscalar, refuse

# --- shapes and dtypes -----------------------------------------------------------------------------------------------


@array_function(constant=True)
def shape(a: Any) -> tuple[int, ...]:
    """Return the number of elements along each axis."""
    return tuple(as_nonscalar(a).shape)


@array_function(constant=True)
def ndim(a: Any) -> int:
    """Return the number of axes."""
    return int(as_nonscalar(a).ndim)


@array_function(constant=True)
def isscalar(element: Any) -> bool:
    """Return whether the value is a scalar, such as an element of an array, and no array."""
    return _core.is_scalar(element) if isinstance(element, Tensor) else np.isscalar(element)


@array_function(constant=True)
def size(a: Any, axis: Any = None) -> int:
    """Return the number of elements, in total or along axes."""
    a = as_nonscalar(a)
    if axis is None:
        return int(a.size)
    return int(np.prod([a.shape[i] for i in normalize_axis_tuple(axis, a.ndim)]))


def dtype_or_value(value: Any) -> Any:
    """Return the dtype of a Tensor. Return a dtype, number or array itself."""
    return value.dtype if isinstance(value, (Tensor, _core.MetaArray)) else value


@array_function(constant=True)
def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """Return the dtype of a result that is computed from these."""
    return np.result_type(*map(dtype_or_value, arrays_and_dtypes))


@array_function(constant=True)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Return whether a dtype can be cast to another."""
    return np.can_cast(dtype_or_value(from_), dtype_or_value(to), casting)


@array_function(constant=True)
def common_type(*arrays: Any) -> type:
    """Return the inexact type that all arrays can be converted to."""
    return np.common_type(*[np.empty(0, as_nonscalar(x).dtype) for x in arrays])


@array_function(constant=True, takes_more=True)
def finfo(dtype: Any) -> Any:
    """Return the limits of a floating-point dtype, or of the dtype of an array."""
    return np.finfo(dtype.dtype if is_array(dtype) else dtype)


@array_function(constant=True, takes_more=True)
def iinfo(type: Any) -> Any:
    """Return the limits of an integer dtype, or of the dtype of an array."""
    return np.iinfo(type.dtype if is_array(type) else type)


# --- memory ----------------------------------------------------------------------------------------------------------


def memory(value: Any) -> Any:
    """Return the raw array at the bottom of a Tensor."""
    while isinstance(value, Tensor):
        value = value.array
    return value


@array_function(constant=True)
def may_share_memory(a: Any, b: Any, /, max_work: Any = 0) -> bool:
    """Return whether two arrays may share memory."""
    return np.may_share_memory(memory(a), memory(b), max_work)


@array_function(constant=True)
def shares_memory(a: Any, b: Any, /, max_work: Any = -1) -> bool:
    """Return whether two arrays share memory."""
    return np.shares_memory(memory(a), memory(b), max_work)


@array_function(keeps="F")
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """Return the value as an array in Fortran order. It is copied if it has another order."""
    return array(a, dtype, copy=None, order="F", ndmin=1, like=like)


REQUIREMENTS = {
    "C": "C", "C_CONTIGUOUS": "C", "CONTIGUOUS": "C", "F": "F", "F_CONTIGUOUS": "F", "FORTRAN": "F",
    "A": "", "ALIGNED": "", "W": "W", "WRITEABLE": "W", "O": "O", "OWNDATA": "O", "E": "", "ENSUREARRAY": "",
}
"""The requirements of `numpy.require`: an order, "O" for a copy of a view, "" for those that Tensors always meet."""


@array_function()
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """Return the value as an array that meets memory requirements. It is copied if it does not."""
    names = [requirements] if isinstance(requirements, str) else requirements or ()
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"require: requirements has {name!r}, expected a string such as 'C' or 'WRITEABLE'")
    wanted = {REQUIREMENTS[name.upper()] for name in names}
    if {"C", "F"} <= wanted:
        raise ValueError("Cannot specify both \"C\" and \"F\" order")
    found = asarray(a, dtype, "F" if "F" in wanted else "C" if "C" in wanted else "K", like=like)
    memory = _core.bottom_array(found) if isinstance(found, Tensor) else found
    is_owned, is_writeable = (memory.flags.owndata, memory.flags.writeable) if isinstance(memory, np.ndarray) else (
        False, True)
    if (is_owned or "O" not in wanted) and (is_writeable or "W" not in wanted):
        return found
    return copy(found, "F" if "F" in wanted else "C" if "C" in wanted else "A")


# --- text and files --------------------------------------------------------------------------------------------------


@array_function(constant=True)
def array_repr(arr: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None) -> str:
    """Return the array as text, with its type."""
    return printed(repr, arr, max_line_width, precision, suppress_small)


@array_function(constant=True)
def array_str(a: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None) -> str:
    """Return the elements as text."""
    return printed(str, a, max_line_width, precision, suppress_small)


def printed(text_of: Callable[[Any], str], a: Any, max_line_width: Any, precision: Any, suppress_small: Any) -> str:
    """Return the text of an array with some of the printing options changed. None leaves one unchanged."""
    options = {"linewidth": max_line_width, "precision": precision, "suppress": suppress_small}
    changed = {name: value for name, value in options.items() if value is not None}
    if not changed:
        return text_of(a)
    with np.printoptions(**changed):
        return text_of(a)


@array_function(constant=True)
def array2string(a: Any, *args: Any, **kwargs: Any) -> str:
    """Return the elements as text, formatted by the options."""
    array = known_array(a)
    return np.array2string(np.asarray(a.detach() if array is None else array), *args, **kwargs)


@array_function(constant=True)
def save(file: Any, arr: Any, *args: Any, **kwargs: Any) -> None:
    """Write an array to a file. A Tensor is written if `numpy.asarray` takes it."""
    np.save(file, np.asarray(arr), *args, **kwargs)


@array_function(constant=True)
def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to a file."""
    np.savez(file, *map(as_written, args), **{name: as_written(value) for name, value in kwds.items()})


@array_function(constant=True)
def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to a compressed file."""
    np.savez_compressed(file, *map(as_written, args), **{name: as_written(value) for name, value in kwds.items()})


def as_written(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Tensor) else value


@array_function(constant=True)
def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:
    """Write the elements to a file as text."""
    np.savetxt(fname, np.asarray(X), *args, **kwargs)


# --- other names, and functions that are refused ---------------------------------------------------------------------

for alias, name in {"amax": "max", "amin": "min", "row_stack": "vstack", "trapz": "trapezoid"}.items():
    if hasattr(np, alias):      # NumPy has dropped some, or will
        OF_NUMPY[getattr(np, alias)] = FUNCTIONS[name]

refuse({
    "asmatrix": "NumPy advises against its class numpy.matrix: use a Tensor with two axes",
    "bmat": "NumPy advises against its class numpy.matrix: use block([[a, b], [c, d]])",
})
