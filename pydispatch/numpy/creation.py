"""Functions that make arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch._core import Tensor, is_array, known_array
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import array_function, as_array, as_nonscalar
from pydispatch.numpy.standard import check_device
from pydispatch.ops import ops


def check_order(name: str, order: str | None) -> None:
    """Raise DispatchTypeError for a memory layout that operators do not promise."""
    if order not in ("K", "C", "A", None):
        raise DispatchTypeError(f"numpy.{name} was called with a Tensor and order={order!r}\n"
                                "results of operators have no particular memory layout; leave it out")


def made(result: Any, like: Any) -> Any:
    """A new array; a Tensor if `like` is one (NEP 35)."""
    return Tensor(result) if isinstance(like, Tensor) and not isinstance(result, Tensor) else result


def made_of(results: Any, inputs: Any) -> Any:
    """A tuple of new arrays; Tensors if an input is one."""
    like = next((value for value in inputs if isinstance(value, Tensor)), None)
    return tuple([made(result, like) for result in results])


OF_THE_STANDARD = ("device",)
"""Where it is passed NumPy's function is not called, which knows no device "CPU", as Tensors call theirs."""


@array_function()
def array(object: Any, dtype: Any = None, *, copy: bool | None = True, order: str = "K", subok: bool = False,
          ndmin: int = 0, ndmax: int = 0, like: Any = None) -> Any:
    """An array from a value. From a nested sequence with Tensors in it, a Tensor that passes gradients on to these."""
    check_order("array", order)
    result = as_nonscalar(object)
    fresh = not is_array(object)
    if dtype is not None and result.dtype != np.dtype(dtype):
        if copy is False:
            raise ValueError("array: a copy is needed to change the dtype, and copy=False was passed\npass copy=None")
        result, fresh = ops.np.astype(result, dtype), True
    if copy and not fresh:
        result = ops.np.copy(result)
    if len(result.shape) < ndmin:
        result = ops.np.reshape(result, (*(1,) * (ndmin - len(result.shape)), *result.shape))
    return made(result, like)


@array_function(added=OF_THE_STANDARD, keeps="K")
def asarray(a: Any, dtype: Any = None, order: str | None = None, *, device: Any = None, copy: bool | None = None,
            like: Any = None) -> Any:
    """The value as an array or Tensor; itself if it is one."""
    check_device("asarray", device)
    return array(a, dtype, copy=copy, order=order or "K", like=like)


@array_function(added=OF_THE_STANDARD, keeps="K")
def asanyarray(a: Any, dtype: Any = None, order: str | None = None, *, device: Any = None, copy: bool | None = None,
               like: Any = None) -> Any:
    """The value as an array or Tensor; itself if it is one."""
    return asarray(a, dtype, order, device=device, copy=copy, like=like)


@array_function(keeps="C")
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """The value as an array of at least one axis; Tensors have no memory layout."""
    return array(a, dtype, copy=None, ndmin=1, like=like)


@array_function()
def asarray_chkfinite(a: Any, dtype: Any = None, order: str | None = None) -> Any:
    """The value as an array; ValueError where it has nan or infinities."""
    result = asarray(a, dtype, order)
    if result.dtype.kind in "fc" and not ops.np.all(ops.np.isfinite(result)):
        raise ValueError("array must not contain infs or NaNs")
    return result


@array_function(constant=True, added=OF_THE_STANDARD)
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """The array of another library, on the same memory; a Tensor of a Tensor, which may not be tracked."""
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
    """The same elements in memory of their own."""
    check_order("copy", order)
    return ops.np.copy(as_nonscalar(a))


@array_function(added=OF_THE_STANDARD)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """The elements converted to a dtype."""
    check_device("astype", device)
    return ops.np.astype(x, dtype, copy=copy)


@array_function(added=OF_THE_STANDARD, creates=True)
def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Zeros."""
    check_device("zeros", device)
    return made(ops.np.zeros(shape, dtype=dtype), like)


@array_function(added=OF_THE_STANDARD, creates=True)
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Ones."""
    check_device("ones", device)
    return made(ops.np.ones(shape, dtype=dtype), like)


@array_function(added=OF_THE_STANDARD, creates=True)
def empty(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Elements of no particular value."""
    check_device("empty", device)
    return made(ops.np.empty(shape, dtype=dtype), like)


@array_function(added=OF_THE_STANDARD, creates=True)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None,
         like: Any = None) -> Any:
    """Elements that are all one value, or broadcast from several."""
    check_device("full", device)
    return made(ops.np.full(shape, as_array(fill_value), dtype=dtype), like)


@array_function(added=OF_THE_STANDARD)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
               device: Any = None) -> Any:
    """Zeros in the shape and dtype of another array."""
    check_device("zeros_like", device)
    return ops.np.zeros_like(as_nonscalar(a), dtype=dtype, shape=shape)


@array_function(added=OF_THE_STANDARD)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:
    """Ones in the shape and dtype of another array."""
    check_device("ones_like", device)
    return ops.np.ones_like(as_nonscalar(a), dtype=dtype, shape=shape)


@array_function(added=OF_THE_STANDARD)
def empty_like(prototype: Any, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
               device: Any = None) -> Any:
    """Elements of no particular value, in the shape and dtype of another array."""
    check_device("empty_like", device)
    return ops.np.empty_like(as_nonscalar(prototype), dtype=dtype, shape=shape)


@array_function(added=OF_THE_STANDARD)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:
    """One value, or several that broadcast, in the shape and dtype of another array."""
    check_device("full_like", device)
    return ops.np.full_like(as_nonscalar(a), as_array(fill_value), dtype=dtype, shape=shape)


@array_function(added=OF_THE_STANDARD, creates=True)
def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None,
           like: Any = None) -> Any:
    """Numbers at equal distances in an interval that leaves out its end."""
    check_device("arange", device)
    ends = [as_number("arange", value) for value in (start_or_stop, stop, step)]
    return made(ops.np.arange(*ends, dtype=dtype), like)


def as_number(name: str, value: Any) -> Any:
    """A number that decides how long a result is, and so has no gradient."""
    return value.item() if is_array(value) else value


@array_function(added=OF_THE_STANDARD, creates=True)
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:
    """`num` numbers at equal distances from one to another."""
    check_device("linspace", device)
    start, stop = as_array(start), as_array(stop)
    result = ops.np.linspace(start, stop, num, endpoint, dtype=dtype, axis=axis)
    if not retstep:
        return result
    return result, ops.np.divide(ops.np.subtract(stop, start), max(num - 1 if endpoint else num, 1))


@array_function(added=OF_THE_STANDARD, creates=True)
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C", *, device: Any = None,
        like: Any = None) -> Any:
    """Ones on a diagonal, zeros elsewhere."""
    check_device("eye", device)
    return made(ops.np.eye(N, M, k, dtype=dtype), like)


@array_function(creates=True)
def identity(n: int, dtype: Any = None, *, like: Any = None) -> Any:
    """The identity matrix."""
    return eye(n, dtype=dtype or float, like=like)
