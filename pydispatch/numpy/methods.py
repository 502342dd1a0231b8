"""Methods and attributes of `ndarray` on Tensors, but for those that are operators, which are in `tensor.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, is_array
from pydispatch.exceptions import ConversionError, DispatchTypeError
from pydispatch.numpy.declare import FUNCTIONS, as_array, as_key
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.ops import ops
from pydispatch.schema import Schema
from pydispatch.tensor import read_only

OF_FUNCTIONS = ("argpartition", "argsort", "choose", "diagonal", "dot", "nonzero", "put", "searchsorted",
                "trace")
"""Methods that are functions of their name."""
OF_BYTES = ("dump", "dumps", "tobytes", "tofile")
"""Methods that write the elements somewhere; they work where `numpy.asarray(tensor)` does."""
REFUSED = {
    "byteswap": "a Tensor has the machine's byte order; use tensor.numpy().byteswap()",
    "getfield": "it reads part of each element's bytes; use tensor.numpy().getfield(...)",
    "setfield": "it writes part of each element's bytes, which has no derivative; use tensor.numpy().setfield(...)",
    "setflags": "the flags of a Tensor's array are its own; use tensor.numpy().setflags(...)",
    "resize": "a Tensor keeps its shape; use pydispatch.numpy.resize(tensor, shape)",
}


def method_of(name: str) -> Callable[..., Any]:
    """The function of this name as a method."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if name not in FUNCTIONS:
            raise DispatchTypeError(f"Tensor.{name} was called, and pydispatch.numpy has no such function")
        return FUNCTIONS[name].on_tensors(self, *args, **kwargs)
    return documented(method, name)


def method_of_bytes(name: str) -> Callable[..., Any]:
    """The method of this name of the NumPy array that `numpy.asarray` makes of the Tensor."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(np.asarray(self), name)(*args, **kwargs)
    return documented(method, name)


def refused(name: str) -> Callable[..., NoReturn]:
    """A method of `ndarray` that Tensors refuse, and say why."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise DispatchTypeError(f"Tensor.{name} was called\n{REFUSED[name]}")
    return documented(method, name)


def call_as_function(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                     error: DispatchTypeError | None) -> Any:
    """What NumPy's function of a method's name does with a call that the operator has refused, or with `out`.

    An error that came later than the arguments were bound is raised: kernels and handlers must not run twice.
    """
    function = FUNCTIONS.get(operator.name.removeprefix("np::"))
    if error is None:
        return (function.implementation if function is not None else operator)(*args, **kwargs)
    if function is None or is_in_schema(operator.overloads[0].schema, args, kwargs):
        raise error
    try:
        return function.implementation(*args, **kwargs)
    except (DispatchTypeError, TypeError):
        raise error from None


def is_in_schema(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does an operator take these arguments, judging by their number, their names, and whether they are lists?"""
    positional = [argument.name for argument in schema.arguments if not argument.kw_only]
    return (len(args) <= len(positional) and kwargs.keys() <= {argument.name for argument in schema.arguments}
            and not any(isinstance(value, list) for value in (*args, *kwargs.values())))


def documented(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The method with the name and documentation that it has in NumPy."""
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = getattr(np.ndarray, name).__doc__
    return method


def flatten(self: Tensor, order: str = "C") -> Any:
    """The elements as a vector in memory of its own."""
    return ops.np.copy(FUNCTIONS["ravel"].on_tensors(self, order))


def compress(self: Tensor, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    """The slices along an axis, or the elements, for which a vector of conditions holds."""
    return FUNCTIONS["compress"].on_tensors(condition, self, axis, out)


def fill(self: Tensor, value: Any) -> None:
    """Write one value to all elements."""
    if not is_array(value) or isinstance(value, np.ndarray):
        element = np.empty((), self.dtype)
        element.fill(value)             # as NumPy reads it
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
    """The same memory. With a dtype, its bytes read in that dtype, which takes a Tensor without a gradient."""
    if type is not None:
        raise DispatchTypeError("Tensor.view was called with type=\nuse tensor.numpy().view(...)")
    if dtype is None or np.dtype(dtype) == self.dtype:
        return ops.np.getitem(self, ...)
    if self.requires_grad or isinstance(self, _core.Wrapper):
        raise ConversionError("Tensor.view was called with another dtype: the bytes of a tracked Tensor, or of a value "
                              "of a transform, have no derivative\nconvert the numbers: tensor.astype(dtype)")
    return Tensor(self.numpy().view(dtype))


def rounded(self: Tensor, ndigits: int | None = None) -> Any:
    """`round(tensor)` of one number, as NumPy's scalars have it: an int, or a Tensor rounded to decimals."""
    if self.ndim:
        raise TypeError(f"round() was called with a Tensor of shape {self.shape}, expected a number\n"
                        "write tensor.round(decimals)")
    return round(self.item()) if ndigits is None else ops.np.round(self, ndigits)


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The Tensor itself, for the device "cpu"; ValueError for another one."""
    if device not in ("cpu", "CPU", self.device) or stream is not None:
        raise ValueError(f"Tensor.to_device: argument device is {device!r}, stream is {stream!r}; the Tensor is on "
                         f'{self.device!r}\npass device="cpu" and no stream')
    return self


def dlpack(self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
           copy: bool | None = None) -> Any:
    """A DLPack capsule that shares the memory of the Tensor; it works where `numpy.asarray(tensor)` does."""
    np.asarray(self)
    array = self.numpy()
    if IS_NUMPY_2_0:        # which knows of no versions, devices and copies
        return (array.copy() if copy else array).__dlpack__(stream=stream)
    options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    return array.__dlpack__(**{name: value for name, value in options.items() if value is not None})


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """The device for DLPack: the processor."""
    return 1, 0


def flags_of(self: Tensor) -> Any:
    """How the elements lie in memory; of a tracked Tensor, too, since that is no use of its values."""
    array = _core.bottom_array(self)
    if not isinstance(array, np.ndarray):
        return np.asarray(self).flags
    return read_only(array).flags


class FlatView:
    """`tensor.flat`: the elements as a vector, to read, to write to, and to iterate over."""

    def __init__(self, tensor: Tensor) -> None:
        self.base = tensor

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(ops.np.ravel(self.base))

    def __getitem__(self, key: Any) -> Any:
        return ops.np.ravel(self.base)[key]

    def __setitem__(self, key: Any, values: Any) -> None:
        shape = self.base.shape
        places = np.arange(self.base.size)[as_key(key)]
        self.base[np.unravel_index(places, shape)] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(np.asarray(ops.np.ravel(self.base)), dtype, copy=copy)

    def copy(self) -> Any:
        """The elements as a vector in memory of its own."""
        return flatten(self.base)


def set_flat(self: Tensor, values: Any) -> None:
    """`tensor.flat = values`: write the values, repeated as needed, to the elements in C order."""
    values = ops.np.ravel(as_array(values))
    ops.np.setitem_(self, ..., ops.np.take(values, np.arange(self.size).reshape(self.shape) % values.shape[0]))


def loaded() -> None:
    """Does nothing: importing this module has given Tensor its methods."""


_core.extend(
    Tensor, flatten=flatten, fill=fill, sort=sort, partition=partition, compress=compress, view=view,
    to_device=to_device,
    __round__=rounded, __dlpack__=dlpack, __dlpack_device__=dlpack_device,
    flat=property(FlatView, set_flat, doc="The elements as a vector, to read, write to and iterate over."),
    flags=property(flags_of, doc="The flags of a read-only view of the array under it."),
    base=property(lambda self: None, doc="None: which Tensors share memory is known to the tape, not to them."),
    **{name: method_of(name) for name in OF_FUNCTIONS}, **{name: method_of_bytes(name) for name in OF_BYTES},
    **{name: refused(name) for name in REFUSED},
)
_core.connect(call_as_function=call_as_function)
