"""Functions that make arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, is_array, known_array
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import (
    array_function,
    as_array,
    as_nonscalar,
    as_order,
    chosen_order,
    entered,
    holds_arrays_of_others,
    in_order,
)
from pydispatch.numpy.standard import check_device
from pydispatch.ops import ops
from pydispatch.schema.base_types import as_dtype


def new_in_order(x: Any, order: str | None) -> Any:
    """Return a new array, made by an operator in C order, in the given order."""
    return in_order(x, "F") if as_order(order) == "F" else x


def like_of(result: Any, prototype: Any, order: str | None) -> Any:
    """Return a new array, made by an operator in the prototype's layout, in the given order."""
    return in_order(result, chosen_order(as_order(order, default="K"), [prototype]))


def made(result: Any, like: Any) -> Any:
    """Return a new array, as a Tensor if `like` is one (NEP 35)."""
    return Tensor(result) if isinstance(like, Tensor) and not isinstance(result, Tensor) else result


def made_of(results: Any, inputs: Any) -> Any:
    """Return a tuple of new arrays, as Tensors if an input is one."""
    like = next((value for value in inputs if isinstance(value, Tensor)), None)
    return tuple([made(result, like) for result in results])


OF_THE_STANDARD = ("device",)
"""Arguments that NumPy's function is never called with, since NumPy has no "CPU", the device of Tensors."""


@array_function()
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False,
          ndmin: int = 0, ndmax: int = 0, like: Any = None) -> Any:
    """Return a value as an array.

    A nested sequence with Tensors in it becomes a Tensor that passes gradients on to them.
    """
    order = as_order(order, default="K")
    if isinstance(copy, np._CopyMode):
        copy = None if copy is np._CopyMode.IF_NEEDED else copy is np._CopyMode.ALWAYS
    dtype = None if dtype is None else as_dtype(dtype)
    if dtype is not None and isinstance(object, (list, tuple)) and (
            dtype.names is not None or dtype.hasobject) and holds_arrays_of_others(object):
        raise DispatchTypeError(f"numpy.array was called with Tensors in a list and dtype={dtype}, whose "
                                "elements are not numbers\npass arrays in the list: tensor.numpy()")
    result = as_nonscalar(object)
    if ndmax and result.ndim > ndmax:
        raise ValueError("object too deep for desired array")
    fresh = not is_array(object)
    if fresh:
        result = entered(result)
    if dtype is not None and result.dtype != dtype:
        if copy is False:
            raise ValueError("array: a copy is needed to change the dtype, but copy=False was passed\npass copy=None")
        result, fresh = ops.np.astype(result, dtype), True
    if (copy and not fresh) or _core.is_scalar(result):     # a scalar is not an array
        result = in_order(result, order, copy=True)
    else:
        result = in_order(result, order, copy=copy and None)
    if len(result.shape) < ndmin:
        result = ops.np.reshape(result, (*(1,) * (ndmin - len(result.shape)), *result.shape))
    return made(result, like)


@array_function(added=OF_THE_STANDARD, keeps="K")
def asarray(a: Any, dtype: Any = None, order: str | None = None, *, device: Any = None, copy: bool | None = None,
            like: Any = None) -> Any:
    """Return the value as an array or Tensor. An array or Tensor is returned itself."""
    check_device("asarray", device)
    return array(a, dtype, copy=copy, order=order or "K", like=like)


@array_function(added=OF_THE_STANDARD, keeps="K")
def asanyarray(a: Any, dtype: Any = None, order: str | None = None, *, device: Any = None, copy: bool | None = None,
               like: Any = None) -> Any:
    """Return the value as an array or Tensor. An array or Tensor is returned itself."""
    return asarray(a, dtype, order, device=device, copy=copy, like=like)


@array_function(keeps="C")
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """Return the value as an array of at least one axis in C order. It is copied if it has another order."""
    return array(a, dtype, copy=None, order="C", ndmin=1, like=like)


@array_function()
def asarray_chkfinite(a: Any, dtype: Any = None, order: str | None = None) -> Any:
    """Return the value as an array. Raise ValueError if it contains nan or infinities."""
    result = asarray(a, dtype, order)
    if result.dtype.kind in "fc" and not ops.np.all(ops.np.isfinite(result)):
        raise ValueError("array must not contain infs or NaNs")
    return result


@array_function(constant=True, added=OF_THE_STANDARD)
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return the array of another library, on the same memory.

    A Tensor gives a Tensor. It must not be tracked.
    """
    check_device("from_dlpack", device)
    is_tensor = isinstance(x, Tensor)
    if is_tensor and not isinstance(known_array(x), (np.ndarray, type(None))):
        x = x.detach().array
    elif is_tensor:
        np.asarray(x)       # raises if it is tracked
        x = x.numpy()
    found = np.from_dlpack(x)
    found = found.copy() if copy else found
    return Tensor(found) if is_tensor else found


@array_function()
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """Return a copy of the array."""
    return in_order(as_nonscalar(a), order, copy=True)


@array_function()
def fromiter(iter: Any, dtype: Any, count: int = -1, *, like: Any = None) -> Any:
    """Return the numbers of an iterable as a vector."""
    return made(entered(np.fromiter(iter, dtype, count)), like)


@array_function(added=OF_THE_STANDARD)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Convert the elements to a dtype."""
    check_device("astype", device)
    return ops.np.astype(x, as_dtype(dtype), copy=copy)


@array_function(added=OF_THE_STANDARD, creates=True)
def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Return an array of zeros."""
    check_device("zeros", device)
    return made(new_in_order(ops.np.zeros(shape, dtype=dtype), order), like)


@array_function(added=OF_THE_STANDARD, creates=True)
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Return an array of ones."""
    check_device("ones", device)
    return made(new_in_order(ops.np.ones(shape, dtype=dtype), order), like)


@array_function(added=OF_THE_STANDARD, creates=True)
def empty(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Return an array without initialized elements."""
    check_device("empty", device)
    return made(new_in_order(ops.np.empty(shape, dtype=dtype), order), like)


@array_function(added=OF_THE_STANDARD, creates=True)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None,
         like: Any = None) -> Any:
    """Return an array filled with one value, or with values that broadcast."""
    check_device("full", device)
    return made(new_in_order(ops.np.full(shape, as_array(fill_value), dtype=dtype), order), like)


@array_function(added=OF_THE_STANDARD)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
               device: Any = None) -> Any:
    """Return zeros in the shape and dtype of another array."""
    check_device("zeros_like", device)
    return like_of(ops.np.zeros_like(as_nonscalar(a), dtype=dtype, shape=shape), a, order)


@array_function(added=OF_THE_STANDARD)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:
    """Return ones in the shape and dtype of another array."""
    check_device("ones_like", device)
    return like_of(ops.np.ones_like(as_nonscalar(a), dtype=dtype, shape=shape), a, order)


@array_function(added=OF_THE_STANDARD)
def empty_like(prototype: Any, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
               device: Any = None) -> Any:
    """Return an array without initialized elements, in the shape and dtype of another one."""
    check_device("empty_like", device)
    return like_of(ops.np.empty_like(as_nonscalar(prototype), dtype=dtype, shape=shape), prototype, order)


@array_function(added=OF_THE_STANDARD)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:
    """Return an array filled with one value, or with values that broadcast, in the shape and dtype of another one."""
    check_device("full_like", device)
    return like_of(ops.np.full_like(as_nonscalar(a), as_array(fill_value), dtype=dtype, shape=shape), a, order)


@array_function(added=OF_THE_STANDARD, creates=True)
def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None,
           like: Any = None) -> Any:
    """Return evenly spaced numbers in an interval, which excludes its end."""
    check_device("arange", device)
    ends = [as_number("arange", value) for value in (start_or_stop, stop, step)]
    return made(ops.np.arange(*ends, dtype=dtype), like)


def as_number(name: str, value: Any) -> Any:
    """Return a number that determines the length of a result, and therefore has no gradient."""
    return value.item() if is_array(value) else value


@array_function(added=OF_THE_STANDARD, creates=True)
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:
    """Return `num` evenly spaced numbers from `start` to `stop`."""
    check_device("linspace", device)
    start, stop = as_array(start), as_array(stop)
    result = ops.np.linspace(start, stop, num, endpoint, dtype=dtype, axis=axis)
    if not retstep:
        return result
    n = num - 1 if endpoint else num
    return result, ops.np.divide(ops.np.subtract(stop, start), n if n > 0 else np.nan)


@array_function(added=OF_THE_STANDARD, creates=True)
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C", *, device: Any = None,
        like: Any = None) -> Any:
    """Return a matrix with ones on a diagonal and zeros elsewhere."""
    check_device("eye", device)
    return made(new_in_order(ops.np.eye(N, M, k, dtype=dtype), order), like)


@array_function(creates=True)
def identity(n: int, dtype: Any = None, *, like: Any = None) -> Any:
    """Return the identity matrix."""
    return eye(n, dtype=dtype or float, like=like)
