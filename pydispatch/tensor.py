"""The Python part of Tensor: NumPy's attributes and methods, which call library operators, and NumPy interoperability.

`operators/` connects the operators of the language (`+`, `[]`, ...) to library operators, in C.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable
from inspect import signature
from types import MethodType
from typing import Any, NoReturn

import numpy as np

from pydispatch import _core, _loading
from pydispatch._core import BatchedTensor, Tensor
from pydispatch._registry.operators import packet
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.ops import ops

AS_ARRAY = "a NumPy array"


def _backend(tensor: Tensor) -> str:
    """Return the name of the backend of its array."""
    for key in tensor.keys:
        if key.backend is not None:
            return key.backend
    raise DispatchTypeError("this Tensor was never initialized\ncall super().__init__(array) in its __init__")


def _numpy(self: Tensor) -> np.ndarray[Any, Any]:
    """Return the NumPy array that this Tensor wraps, sharing memory. Raises DispatchTypeError for another backend."""
    array = _array_for(self, AS_ARRAY)
    return read_only(array) if isinstance(self, _core.Wrapper) else array


def _convert(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return the array under a Tensor for code that may write to it, read-only if a gradient may follow it."""
    tensor = in_place_of(tensor)
    array = _array_for(tensor, AS_ARRAY)
    array = array if _core.may_be_written(tensor) else read_only(array)
    observers: list[Any] = [each for each in (getattr(tensor, "interpreter", None), *_core.active_modes())
                            if hasattr(each, "on_given_out")]
    if observers:
        array = np.asarray(_Shared(array))
        for each in observers:
            each.on_given_out(tensor, weakref.ref(array))
    return array


class _Shared:
    """The memory of an array for another one, which all views of that other one keep alive."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def in_place_of(tensor: Tensor) -> Tensor:
    """Return the argument that was passed for a captured value that carries a gradient or a batch, or else the Tensor.

    A body runs below the interpreter of the value. An array that it makes there can hold the argument.
    """
    substitute = _core.current_state().substitute
    carries = type(tensor) is not Tensor or tensor.requires_grad
    return substitute(tensor) if carries and substitute is not None else tensor


def _array_for(tensor: Tensor, use: str) -> np.ndarray[Any, Any]:
    """Return the NumPy array to convert.

    All code that reads values from a Tensor as an array calls this: `refuse_conversion` and the modes may raise.
    """
    array = _bottom_for(tensor, use)
    if isinstance(array, _core.MetaArray):
        raise array.no_data("numpy.asarray()")
    if not isinstance(array, np.ndarray):
        raise DispatchTypeError(
            f"a Tensor of backend {_backend(tensor)} holds {_core.a_type(array)} instead of a NumPy array\n"
            "convert tensor.array with that backend's own functions"
        )
    return array.copy() if _core.is_scalar(tensor) else array      # a scalar shares memory with nothing


def _bottom_for(tensor: Tensor, use: str) -> Any:
    """Return the array under all interpreters, for a conversion that the tape, the transforms and the modes allow."""
    _core.refuse_conversion(tensor, use)
    known = values_in_modes(tensor, use)
    if known is not None:
        return known
    array: Any = tensor
    if _core.is_processed_in_python(tensor):
        array = ops.np.detach(tensor)       # updates the value
    while isinstance(array, Tensor):
        array = _core.array_of(array)
    if isinstance(array, _core.Shell):
        raise array.no_data(f"{type(tensor).__name__}.numpy()")
    return array


def values_in_modes(tensor: Tensor, use: str) -> np.ndarray[Any, Any] | None:
    """Return the array that a mode knows for a Tensor without data, or None. Modes may refuse the conversion."""
    known: np.ndarray[Any, Any] | None = None
    for mode in _core.active_modes():
        found = mode.on_conversion(tensor, use)
        known = found if known is None else known
    return known


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view of the array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _as_array(tensor: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """Return the array under the Tensor, or a converted copy, for numpy.asarray(tensor)."""
    array = _convert(tensor)
    if dtype is None and not copy:
        return array
    return np.array(array, dtype=dtype, copy=copy)


def _array_interface(tensor: Tensor) -> dict[str, Any]:
    """Return the memory of the array under the Tensor, for code without NumPy's C API. NumPy reads it first."""
    if not _core.has_plain_array(tensor):
        raise AttributeError("a Tensor under a mode, or with its own __array__, has no __array_interface__\n"
                             "use numpy.asarray(tensor)")
    interface: dict[str, Any] = _convert(tensor).__array_interface__
    return interface


def _item(self: Tensor, *index: Any) -> Any:
    """Return one element as a Python scalar: the only one, or that at an index."""
    return _number(self, "item()", *index)


def _number(tensor: Tensor, use: str, *index: Any) -> Any:
    """Return one element as a number. `use` names the caller that needs it."""
    _core.refuse_conversion(tensor, use)
    is_elsewhere = not isinstance(_core.bottom_array(tensor), (np.ndarray, _core.Shell, _core.MetaArray))
    if not (is_elsewhere or _core.is_handled_in_python(tensor)):
        return _numbers_of(tensor, use).item(*index)
    if len(index) == 1 and isinstance(index[0], int):
        return ops.np.item(tensor.reshape(-1)[index[0]])
    return ops.np.item(tensor[index[0] if len(index) == 1 else index] if index else tensor)


def _tolist(self: Tensor) -> Any:
    """Return the elements as nested lists of Python scalars."""
    _core.refuse_conversion(self, "tolist()")
    known = values_in_modes(self, "a list")
    return (_numbers_of(self, "tolist()") if known is None else known).tolist()


def _numbers_of(tensor: Tensor, use: str) -> np.ndarray[Any, Any]:
    """Return the array at the bottom of all interpreters, to take numbers from. `use` names the caller."""
    name = type(tensor).__name__
    if tensor.dispatches_to_python or _core.is_processed_in_python(tensor):
        tensor = ops.np.detach(tensor)
    array: Any = tensor
    while isinstance(array, Tensor):
        array = _core.array_of(array)
    if isinstance(array, _core.Shell):
        raise array.no_data(f"{name}.{use}")
    return array if isinstance(array, np.ndarray) else _numpy(tensor)


def _round(self: Tensor, ndigits: int | None = None) -> Any:
    """Round one number like NumPy scalars: to an int, or to a Tensor with `ndigits` decimals."""
    if self.ndim:
        raise TypeError(f"round() was called with a Tensor of shape {self.shape}, expected a number\n"
                        "write tensor.round(decimals)")
    return round(_number(self, "round()")) if ndigits is None else ops.np.round(self, ndigits)


def _to_int(function: Callable[[Any], int]) -> Callable[[Tensor], int]:
    """Return the special method behind a function of `math` that makes an int of a number."""
    def method(self: Tensor) -> int:
        if self.ndim:
            raise TypeError(f"math.{function.__name__}() was called with a Tensor of shape {self.shape}, expected a "
                            f"number\nwrite numpy.{function.__name__}(tensor)")
        return function(_number(self, f"math.{function.__name__}()"))
    return method


def _repr(tensor: Tensor) -> str:
    name = type(tensor).__name__
    array = _core.array_of(tensor)
    notes = [f", {note}" for note in _notes(tensor)]
    if isinstance(array, Tensor):
        inner = repr(array).replace("\n", "\n" + " " * (len(name) + 1))
        return f"{name}({inner}{''.join(notes)})"
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return f"{name}({array!r}{''.join(notes)})"
    # use NumPy's own repr of an array class of this name, which reads, wraps and abbreviates as NumPy does
    text = repr(np.asarray(array).view(_printer(name)))[:-1]
    for note in notes:
        last = len(text) - text.rfind("\n") - 1
        fits = last + len(note) + 1 <= np.get_printoptions()["linewidth"]
        text += note if fits else f",\n{' ' * (len(name) + 1)}{note[2:]}"
    return f"{text})"


def _notes(tensor: Tensor) -> list[str]:
    """Return the notes in the repr of a Tensor: its node or requires_grad, or the transform that it is a value of."""
    if isinstance(tensor, _core.Wrapper):
        interpreter = tensor.interpreter
        size = f" of {interpreter.batch_size}" if isinstance(interpreter, _core.Vmap) else ""
        over = "" if interpreter.alive else ", which no longer runs"
        return [f"{interpreter.name}{size}{over}", *_level(interpreter)]
    try:
        if not tensor.requires_grad:
            return []
        grad_fn = tensor.grad_fn
    except AutogradError:       # a view that may not be used can still be printed
        return ["grad_fn=<Invalid>"]
    return ["requires_grad=True" if grad_fn is None else f"grad_fn={grad_fn!r}"]


def _level(interpreter: _core.Interpreter) -> list[str]:
    """Return how many transforms there are up to this one, while it runs."""
    if interpreter.entered is None or not interpreter.alive:
        return []
    around = [other for other in interpreter.entered.stack if not isinstance(other, _core.ActiveMode)]
    return [f"level={len(around) + 1}"]


def _printer(name: str) -> type[np.ndarray[Any, Any]]:
    if name not in _printers:
        _printers[name] = type(name, (np.ndarray,), {})
    return _printers[name]


_printers: dict[str, type[np.ndarray[Any, Any]]] = {}
_printer("Tensor")      # used in nearly all texts, so it is made here rather than for the first text


def _format(tensor: Tensor, spec: str) -> str:
    if not spec and type(tensor).__repr__ is not Tensor.__repr__:
        return repr(tensor)
    if spec:
        _core.check_concrete(tensor, "a format")
    array = _core.array_of(tensor)
    if isinstance(array, _core.Shell) and not tensor.shape:
        array = ops.np.item(tensor)
    return format(array, spec) if spec or getattr(array, "ndim", 1) == 0 else str(array)


def _str(tensor: Tensor) -> str:
    return str(_core.array_of(tensor)) if type(tensor).__repr__ is Tensor.__repr__ else repr(tensor)


def _copy(tensor: Tensor) -> Any:
    if type(tensor) is Tensor or isinstance(tensor, _core.Wrapper):
        return ops.np.copy(tensor)
    _refuse_results(tensor)
    result = _rebuild(type(tensor), copy.copy(tensor.array), tensor.requires_grad)
    _set_attributes(result, _attributes_of(tensor))
    return result


def _detached_subclass(tensor: Tensor) -> Tensor:
    """Return the same values as a constant of the same class, if the class does not handle operators."""
    result = _rebuild(type(tensor), tensor)
    _set_attributes(result, _attributes_of(tensor))
    return result


def _deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Any:
    if isinstance(tensor, _core.Wrapper) or (
            type(tensor) is Tensor and not tensor.requires_grad and _core.tensors_are_followed()):
        return memo.setdefault(id(tensor), ops.np.copy(tensor))
    _refuse_results(tensor)
    result = memo[id(tensor)] = _rebuild(type(tensor), copy.deepcopy(tensor.array, memo), tensor.requires_grad)
    _set_attributes(result, copy.deepcopy(_attributes_of(tensor), memo))
    return result


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    _refuse_results(tensor)
    parts = (type(tensor), tensor.array, tensor.requires_grad)
    return _rebuild, parts, _attributes_of(tensor) or None, None, None, _set_attributes


def _attributes_of(tensor: Tensor) -> dict[str, Any]:
    """Return the attributes that a subclass stores on the Tensor, in its dict and its slots."""
    slots = [slot for cls in type(tensor).__mro__ for slot in _slots_of(cls) if hasattr(tensor, slot)]
    if isinstance(tensor, _core.WrapperTensor):
        slots.append("inner")
    return {slot: getattr(tensor, slot) for slot in slots} | getattr(tensor, "__dict__", {})


def _slots_of(cls: type) -> list[str]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    private = f"_{cls.__name__.lstrip('_')}"
    return [f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name
            for name in names if name not in ("__dict__", "__weakref__")]


def _set_attributes(tensor: Tensor, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(tensor, name, value)


def _refuse_results(tensor: Tensor) -> None:
    if isinstance(tensor, _core.Wrapper):
        _core.refuse_conversion(tensor, "a copy for pickle or copy.deepcopy")
        raise AutogradError(f"a value of {tensor.interpreter.name} cannot be pickled: it belongs to a running call\n"
                            "return it from the function, and pickle the result of the transform")
    if tensor.requires_grad and not tensor.is_leaf:
        raise AutogradError("a Tensor computed from one that requires grad cannot be copied without its graph\n"
                            "copy its value: copy.deepcopy(tensor.detach()), or use the operator: tensor.copy()")


def _rebuild(cls: type[Tensor], array: Any, requires_grad: bool = False) -> Tensor:
    """Return a Tensor of this class, made without its constructor, which may take any arguments in a subclass."""
    tensor = cls.__new__(cls)
    Tensor.__init__(tensor, array, requires_grad=requires_grad)
    return tensor


def _reshape(self: Tensor, *shape: Any, **options: Any) -> Any:
    """Return a Tensor of another shape over the same elements, sharing memory if possible."""
    lengths = shape[0] if len(shape) == 1 else shape
    return _call_function("reshape", self, lengths, **options) if options else ops.np.reshape(self, lengths)


def _transpose(self: Tensor, *axes: Any) -> Any:
    """Return the Tensor with its axes permuted, or reversed without an argument."""
    is_tuple = len(axes) == 1 and not hasattr(axes[0], "__index__")
    return ops.np.transpose(self, axes[0] if is_tuple else axes or None)


def _set_real(self: Tensor, value: Any) -> None:
    """Write to the real parts."""
    self.real[...] = value


def _set_imag(self: Tensor, value: Any) -> None:
    """Write to the imaginary parts. Those of real numbers are no memory to write to."""
    if self.dtype.kind != "c":
        raise TypeError(f"the imaginary part of a Tensor of dtype {self.dtype} was assigned, expected a complex dtype\n"
                        "convert it first: tensor.astype(complex)")
    self.imag[...] = value


def _conjugate(self: Tensor, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Return the complex conjugates. Real numbers are returned themselves, while numpy.conjugate copies them."""
    is_real = self.dtype.kind in "biuf" and dtype is None
    return self if is_real else ops.np.conjugate(self, dtype=dtype, casting=casting)


METHODS = {
    name: name for name in (
        "all", "any", "argmax", "argmin", "astype", "clip", "copy", "cumprod", "cumsum", "max", "mean", "min", "prod",
        "ravel", "repeat", "round", "squeeze", "std", "sum", "swapaxes", "take", "var",
    )
}

LATER = (
    "argpartition", "argsort", "byteswap", "choose", "compress", "diagonal", "dot", "dump", "dumps", "fill", "flatten",
    "getfield", "nonzero", "partition", "put", "resize", "searchsorted", "setfield", "setflags", "sort", "to_device",
    "tobytes", "tofile", "trace", "view", "__dlpack__", "__dlpack_device__",
)
"""Methods that `numpy/methods.py` replaces when one of them is called."""


class _MethodOnDemand:
    """A method of Tensor that is replaced when it is called, or when its signature is read."""

    def __init__(self, name: str) -> None:
        self.__name__, self.__qualname__ = name, f"Tensor.{name}"

    def __get__(self, tensor: Tensor | None, owner: type | None = None) -> Any:
        return self if tensor is None else MethodType(self, tensor)

    def __call__(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        _load_methods()
        return getattr(tensor, self.__name__)(*args, **kwargs)

    @property
    def __signature__(self) -> Any:
        _load_methods()
        return signature(getattr(Tensor, self.__name__))


def _attribute_on_demand(name: str) -> Any:
    def read(self: Tensor) -> Any:
        _load_methods()
        return getattr(self, name)

    def write(self: Tensor, value: Any) -> None:
        _load_methods()
        setattr(self, name, value)
    return property(read, write)


def _refused_attribute(name: str, remedy: str) -> Any:
    def read(self: Tensor) -> NoReturn:
        raise AttributeError(f"a Tensor has no attribute {name!r}: the tape cannot record accesses to its memory\n"
                             f"{remedy}")
    return property(read)


_call_function = _loading.deferred("numpy.methods", "call_function")
_load_methods = _loading.deferred("numpy.methods", "loaded")
_namespace_of = _loading.deferred("numpy.protocols", "array_namespace")


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """Return the namespace of the array API standard, in which Tensors are made.

    Raises ValueError for an unknown version. The standard knows only arrays. From then on, a scalar
    therefore accepts assignments to its elements.
    """
    _core.make_assignable(self)
    return _namespace_of(self, api_version=api_version)


def _array_of_batch(tensor: BatchedTensor) -> Any:
    """Return the array of a value that is the same in all examples, or raise if it would show the batch axis."""
    if not _core.is_uniform_value(tensor):
        _core.refuse_conversion(tensor, "an array, its `.array`")
    return _core.array_of(tensor)


_core.extend(BatchedTensor, array=property(_array_of_batch, doc="Refused: it would expose the axis of the examples."))
_core.extend(
    Tensor,
    **{method: _core.Method(packet("np", operator), method) for method, operator in METHODS.items()},
    conj=_conjugate, conjugate=_conjugate,
    reshape=_reshape, transpose=_transpose, item=_item, tolist=_tolist, numpy=_numpy, detach=_core.detach,
    T=property(_transpose, doc="The Tensor with its axes reversed, sharing memory."),
    mT=property(lambda tensor: ops.np.swapaxes(tensor, -1, -2), doc="The Tensor with its last two axes swapped."),
    real=property(lambda tensor: ops.np.real(tensor), _set_real, doc="The real part. An assignment writes into it."),
    imag=property(lambda tensor: ops.np.imag(tensor), _set_imag,
                  doc="The imaginary part. An assignment writes into it."),
    device=property(_backend),
    data=_refused_attribute("data", "for the values without gradient, write tensor.detach(). For a buffer, write "
                            "numpy.asarray(tensor).data"),
    ctypes=_refused_attribute("ctypes", "write numpy.asarray(tensor).ctypes"),
    **{name: _MethodOnDemand(name) for name in LATER},
    **{name: _attribute_on_demand(name) for name in ("base", "flags", "flat")},
    __array_ufunc__=_core.UniversalFunctions(),
    __array_namespace__=_array_namespace,
    _repr_html_=_loading.deferred("debug.html", "tensor_html"),
    __array__=_as_array,
    __array_interface__=property(_array_interface, doc="The memory of the array under it."),
    __round__=_round, __trunc__=_to_int(math.trunc), __floor__=_to_int(math.floor), __ceil__=_to_int(math.ceil),
    __reversed__=lambda self: (self[i] for i in reversed(range(len(self)))),
    __format__=_format, __copy__=_copy, __deepcopy__=_deepcopy, __reduce__=_reduce,
)
_core.connect(
    tensor_repr=_repr, tensor_str=_str, detached_subclass=_detached_subclass,
    item=lambda tensor: ops.np.item(tensor), convert=_convert, detach=lambda tensor: ops.np.detach(tensor),
)
