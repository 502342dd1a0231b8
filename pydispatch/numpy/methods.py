"""Methods and attributes of `ndarray` on Tensors. Those that are operators are in `tensor.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, is_array
from pydispatch.exceptions import ConversionError, DispatchTypeError
from pydispatch.func.concrete import is_traced
from pydispatch.numpy.declare import FUNCTIONS, as_elements, as_key, as_order, as_scalar, chosen_order, in_order
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.ops import ops
from pydispatch.schema import Schema
from pydispatch.schema.base_types import as_dtype
from pydispatch.tensor import read_only

OF_FUNCTIONS = ("argpartition", "argsort", "choose", "diagonal", "dot", "nonzero", "put", "searchsorted",
                "trace")
"""Methods that call the function of the same name."""
OF_BYTES = ("dump", "dumps", "tobytes", "tofile")
"""Methods that write the elements to a destination. They work where `numpy.asarray(tensor)` does."""
REFUSED = {
    "byteswap": "use tensor.numpy().byteswap(): a Tensor has the machine's byte order",
    "getfield": "use tensor.numpy().getfield(...): it reads part of each element's bytes",
    "setfield": "use tensor.numpy().setfield(...): it writes part of each element's bytes, which has no derivative",
    "setflags": "use tensor.numpy().setflags(...): the flags belong to the array of the Tensor",
    "resize": "use pydispatch.numpy.resize(tensor, shape): a Tensor keeps its shape",
}


def method_of(name: str) -> Callable[..., Any]:
    """Return a method that calls the function of this name."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if name not in FUNCTIONS:
            raise DispatchTypeError(f"Tensor.{name} was called, but pydispatch.numpy has no such function")
        return FUNCTIONS[name].on_tensors(self, *args, **kwargs)
    return documented(method, name)


def method_of_bytes(name: str) -> Callable[..., Any]:
    """Return a method that calls the same method of the array that `numpy.asarray` makes of the Tensor."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(np.asarray(self), name)(*args, **kwargs)
    return documented(method, name)


def refused(name: str) -> Callable[..., NoReturn]:
    """Return a method that raises with the reason why Tensors do not have it."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise DispatchTypeError(f"Tensor.{name} was called\n{REFUSED[name]}")
    return documented(method, name)


def call_function(name: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call NumPy's function of a method's name, for arguments that the operator of that name does not take."""
    return FUNCTIONS[name].on_tensors(tensor, *args, **kwargs)


def call_as_function(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                     error: DispatchTypeError | None) -> Any:
    """Call NumPy's function of a method's name, for a call that the operator has refused, or with `out`.

    An error raised after the arguments were bound is raised again, since kernels and handlers must not run twice.
    """
    name = operator.name.removeprefix("np::")
    if name in AS_METHODS:
        return AS_METHODS[name](*args, **kwargs)
    function = FUNCTIONS.get(name)
    if error is None:
        return (function.implementation if function is not None else operator)(*args, **kwargs)
    if function is None or is_in_schema(operator.overloads[0].schema, args, kwargs):
        raise error
    try:
        return function.implementation(*args, **kwargs)
    except (DispatchTypeError, TypeError):
        raise error from None


def astype(self: Tensor, dtype: Any = None, order: Any = "K", casting: Any = "unsafe", subok: Any = True,
           copy: bool = True) -> Any:
    """Convert the elements to another dtype, by NumPy's rules of casting."""
    dtype = as_dtype(dtype)
    if not np.can_cast(self.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {self.dtype!r} to {dtype!r} according to the rule {casting!r}\n"
                        "pass casting='unsafe'")
    order = chosen_order(as_order(order, default="K"), [self])
    return in_order(ops.np.astype(self, dtype, copy=bool(copy)), order)


def copy(self: Tensor, order: Any = "C") -> Any:
    """Return a copy, in C order by default. That of a scalar is a scalar."""
    found = in_order(self, order, copy=True)
    return as_scalar(found) if _core.is_scalar(self) else found


def take(self: Tensor, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    """Return the elements at indices along an axis."""
    return FUNCTIONS["take"].on_tensors(self, indices, axis, out, mode="raise" if mode is None else mode)


AS_METHODS: dict[str, Callable[..., Any]] = {"astype": astype, "copy": copy, "take": take}
"""Methods whose parameters differ from those of the function of the same name."""


def is_in_schema(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator takes these arguments.

    Only their number, their names, and whether they are lists are checked.
    """
    positional = [argument.name for argument in schema.arguments if not argument.kw_only]
    return (len(args) <= len(positional) and kwargs.keys() <= {argument.name for argument in schema.arguments}
            and not any(isinstance(value, list) for value in (*args, *kwargs.values())))


def documented(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Give the method the name and documentation that it has in NumPy."""
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = getattr(np.ndarray, name).__doc__
    return method


def flatten(self: Tensor, order: str = "C") -> Any:
    """Return a copy of the elements as a vector."""
    return ops.np.copy(FUNCTIONS["ravel"].on_tensors(self, order))


def compress(self: Tensor, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the slices along an axis, or the elements, for which a vector of conditions is true."""
    return FUNCTIONS["compress"].on_tensors(condition, self, axis, out)


def fill(self: Tensor, value: Any) -> None:
    """Write one value to all elements."""
    if not is_array(value) or isinstance(value, np.ndarray):
        element = np.empty((), self.dtype)
        element.fill(value)             # with the conversions that NumPy makes
        value = element
    elif value.ndim:
        raise ValueError("setting an array element with a sequence.")
    ops.np.setitem_(self, ..., value)


def sort(self: Tensor, axis: int = -1, kind: str | None = None, order: Any = None, *,
         stable: bool | None = None) -> None:
    """Sort in place, along an axis."""
    ops.np.setitem_(self, ..., FUNCTIONS["sort"].on_tensors(self, axis, kind, order, stable=stable))


def partition(self: Tensor, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
    """Partition in place, along an axis."""
    ops.np.setitem_(self, ..., FUNCTIONS["partition"].on_tensors(self, kth, axis, kind, order))


def view(self: Tensor, dtype: Any = None, type: Any = None) -> Any:
    """Return a view. With a dtype, the bytes are read in that dtype, which requires a Tensor without a gradient."""
    if type is not None:
        raise DispatchTypeError("Tensor.view was called with type=\nuse tensor.numpy().view(...)")
    if dtype is None or as_dtype(dtype) == self.dtype:
        return ops.np.getitem(self, ...)
    if self.requires_grad or isinstance(self, _core.Wrapper):
        raise ConversionError("Tensor.view was called with another dtype: the bytes of a tracked Tensor, or of a value "
                              "of a transform, have no derivative\nconvert the numbers: tensor.astype(dtype)")
    return Tensor(self.numpy().view(dtype))


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """Return the Tensor itself for the device "cpu". Raise ValueError for another one."""
    if device not in ("cpu", "CPU", self.device) or stream is not None:
        raise ValueError(f"Tensor.to_device: argument device is {device!r}, stream is {stream!r}; the Tensor is on "
                         f'{self.device!r}\npass device="cpu" and no stream')
    return self


def dlpack(self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
           copy: bool | None = None) -> Any:
    """Return a DLPack capsule that shares the memory of the Tensor. It works where `numpy.asarray(tensor)` does."""
    np.asarray(self)
    array = self.numpy()
    if IS_NUMPY_2_0:        # which does not support versions, devices and copies
        return (array.copy() if copy else array).__dlpack__(stream=stream)
    options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    return array.__dlpack__(**{name: value for name, value in options.items() if value is not None})


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """Return the device for DLPack: the processor."""
    return 1, 0


class Flags:
    """`tensor.flags`: the flags of the array's memory layout, to read, as attributes and by their names in NumPy."""

    __slots__ = ("_flags",)

    def __init__(self, flags: Any) -> None:
        object.__setattr__(self, "_flags", flags)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flags, name)

    def __getitem__(self, name: str) -> Any:
        return self._flags[name]

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"flag {name} of a Tensor was set to {value!r}: these flags describe its array, and are "
                             "read-only\nfor a view that refuses writes: pydispatch.ops.np.read_only(tensor)")

    def __setitem__(self, name: str, value: Any) -> NoReturn:
        self.__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return bool(self._flags == (other._flags if isinstance(other, Flags) else other))

    def __repr__(self) -> str:
        return repr(self._flags)


def flags_of(self: Tensor) -> Flags:
    """Return the flags of the array's memory layout.

    This works for a tracked Tensor, too, since its values are not used. Arrays without data count as C-ordered.
    """
    array = _core.bottom_array(self)
    if isinstance(array, _core.MetaArray):
        array = np.empty(array.shape, array.dtype)
    array = array if isinstance(array, np.ndarray) else np.asarray(self)
    return Flags((read_only(array) if _core.is_scalar(self) else array).flags)


def base_of(self: Tensor) -> Any:
    """Return the array that a view shares memory with, or None for an array that has its own memory.

    It has no data if a gradient or a batch follows the view, since values computed from it would lose that.
    """
    array = _core.bottom_array(self)
    is_copy = _core.is_scalar(self) or (isinstance(self, _core.BatchedTensor) and not _core.is_view(self))
    base = None if is_copy else getattr(array, "base", None)
    if base is None or not hasattr(base, "dtype"):
        return base
    if isinstance(array, np.ndarray) and not is_traced(self):
        return _core.base_of(self, base)
    return Tensor(_core.MetaArray(tuple(base.shape), base.dtype))


class FlatView:
    """`tensor.flat`: the elements as a vector, to read, to write to, and to iterate over."""

    def __init__(self, tensor: Tensor) -> None:
        self.base = tensor

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(ops.np.ravel(self.base))

    def __getitem__(self, key: Any) -> Any:
        found = ops.np.ravel(self.base)[key]
        return ops.np.copy(found) if isinstance(key, slice) or key is Ellipsis else found

    def __setitem__(self, key: Any, values: Any) -> None:
        shape = self.base.shape
        places = np.arange(self.base.size)[as_key(key)]
        self.base[np.unravel_index(places, shape)] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(np.asarray(ops.np.ravel(self.base)), dtype, copy=copy)

    def copy(self) -> Any:
        """Return a copy of the elements as a vector."""
        return flatten(self.base)


def set_flat(self: Tensor, values: Any) -> None:
    """Write the values of `tensor.flat = values`, repeated as needed, to the elements in C order."""
    values = ops.np.ravel(as_elements(values, self.dtype))
    ops.np.setitem_(self, ..., ops.np.take(values, np.arange(self.size).reshape(self.shape) % values.shape[0]))


def loaded() -> None:
    """Do nothing. Importing this module has added the methods to Tensor."""


_core.extend(
    Tensor, flatten=flatten, fill=fill, sort=sort, partition=partition, compress=compress, view=view,
    to_device=to_device,
    __dlpack__=dlpack, __dlpack_device__=dlpack_device,
    flat=property(FlatView, set_flat, doc="The elements as a vector, to read, write to and iterate over."),
    flags=property(flags_of, doc="The flags of the array under it. They cannot be set."),
    base=property(base_of, doc="The array that a view shares memory with, detached, or None."),
    **{name: method_of(name) for name in OF_FUNCTIONS}, **{name: method_of_bytes(name) for name in OF_BYTES},
    **{name: refused(name) for name in REFUSED},
)
_core.connect(call_as_function=call_as_function)
