"""The Python part of Tensor: NumPy's attributes and methods, forwarding to library operators, and NumPy interplay.

Operators of the language (`+`, `[]`, ...) are wired to library operators by `operators/`, in C.
"""

from __future__ import annotations

import copy
from inspect import signature
from types import MethodType
from typing import Any, NoReturn

import numpy as np

from pydispatch import _core, loading
from pydispatch._core import BatchedTensor, Tensor
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.ops import ops
from pydispatch.registry.operators import packet


def _backend(tensor: Tensor) -> str:
    """The name of the backend of its array."""
    for key in tensor.keys:
        if key.backend is not None:
            return key.backend
    raise DispatchTypeError("this Tensor was never initialized\ncall super().__init__(array) in its __init__")


def _numpy(self: Tensor) -> np.ndarray[Any, Any]:
    """The NumPy array that this Tensor wraps, sharing memory; DispatchTypeError for another backend's."""
    _core.end_trial()
    _leave(self, "a NumPy array")
    array = _core.array_of(self)
    if isinstance(array, _core.Shell):
        raise array.no_data(f"{type(self).__name__}.numpy()")
    if isinstance(array, Tensor):
        return _numpy(array)
    if not isinstance(array, np.ndarray):
        raise DispatchTypeError(
            f"a Tensor of backend {_backend(self)} holds no NumPy array but {_core.a_type(array)}\n"
            "convert tensor.array with that backend's own functions"
        )
    return array


def _leave(tensor: Tensor, what: str) -> None:
    """Ask the tape, the transforms and the modes whether the values may go to NumPy, which none of them sees."""
    _core.refuse_conversion(tensor, what)
    for mode in _core.active_modes():
        mode.on_conversion(tensor, what)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view of the array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _as_array(tensor: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """What numpy.asarray(tensor) calls: a read-only view, so that no write goes past the version counter."""
    view = read_only(_numpy(tensor))
    if dtype is None and not copy:
        return view
    return np.array(view, dtype=dtype, copy=copy)


def _item(self: Tensor, *index: Any) -> Any:
    """One element as a Python scalar: the only one, or that at an index."""
    is_elsewhere = not isinstance(_core.bottom_array(self), (np.ndarray, _core.Shell, _core.MetaArray))
    if not (is_elsewhere or _core.is_handled_in_python(self)):
        return _concrete(self, "item").item(*index)
    if len(index) == 1 and isinstance(index[0], int):
        return ops.np.item(self.reshape(-1)[index[0]])
    return ops.np.item(self[index[0] if len(index) == 1 else index] if index else self)


def _tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python scalars."""
    for mode in _core.active_modes():
        mode.on_conversion(self, "a list")
    return _concrete(self, "tolist").tolist()


def _concrete(tensor: Tensor, method: str) -> Any:
    """The array at the bottom of all interpreters, to take numbers from; `method` is what wants them."""
    _core.check_concrete(tensor, "a number, or a list of numbers")
    if tensor.dispatches_to_python or _core.is_processed_in_python(tensor):
        tensor = ops.np.detach(tensor)
    array: Any = tensor
    while isinstance(array, Tensor):
        array = _core.array_of(array)
    if isinstance(array, _core.Shell):
        raise array.no_data(f"{type(tensor).__name__}.{method}()")
    return array if isinstance(array, np.ndarray) else _numpy(tensor)


def _repr(tensor: Tensor) -> str:
    name = type(tensor).__name__
    array = _core.array_of(tensor)
    notes = [f", {note}" for note in _notes(tensor)]
    if isinstance(array, Tensor):
        inner = repr(array).replace("\n", "\n" + " " * (len(name) + 1))
        return f"{name}({inner}{''.join(notes)})"
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return f"{name}({array!r}{''.join(notes)})"
    # NumPy's own repr of an array class of this name, so that it reads, wraps and abbreviates as NumPy's does
    text = repr(np.asarray(array).view(_printer(name)))[:-1]
    for note in notes:
        last = len(text) - text.rfind("\n") - 1
        fits = last + len(note) + 1 <= np.get_printoptions()["linewidth"]
        text += note if fits else f",\n{' ' * (len(name) + 1)}{note[2:]}"
    return f"{text})"


def _notes(tensor: Tensor) -> list[str]:
    """What the repr of a Tensor tells besides its values: what derives it, or the transform whose value it is."""
    if isinstance(tensor, _core.Wrapper):
        interpreter = tensor.interpreter
        size = f" of {interpreter.batch_size}" if isinstance(interpreter, _core.Vmap) else ""
        over = "" if interpreter.alive else ", which no longer runs"
        return [f"{interpreter.name}{size}{over}", *_level(interpreter)]
    try:
        if not tensor.requires_grad:
            return []
        grad_fn = tensor.grad_fn
    except AutogradError:       # a view that may not be used: it can still be looked at
        return ["grad_fn=<Invalid>"]
    return ["requires_grad=True" if grad_fn is None else f"grad_fn={grad_fn!r}"]


def _level(interpreter: _core.Interpreter) -> list[str]:
    """How many transforms there are up to this one, while it runs."""
    if interpreter.entered is None or not interpreter.alive:
        return []
    around = [other for other in interpreter.entered.stack if not isinstance(other, _core.ActiveMode)]
    return [f"level={len(around) + 1}"]


def _printer(name: str) -> type[np.ndarray[Any, Any]]:
    if name not in _printers:
        _printers[name] = type(name, (np.ndarray,), {})
    return _printers[name]


_printers: dict[str, type[np.ndarray[Any, Any]]] = {}
_printer("Tensor")      # that of nearly all texts is made here, so that the first one need not wait for it


def _format(tensor: Tensor, spec: str) -> str:
    if not spec and type(tensor).__repr__ is not Tensor.__repr__:
        return repr(tensor)
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
    """The same values as a constant of the same class, where that leaves operators alone."""
    result = _rebuild(type(tensor), tensor)
    _set_attributes(result, _attributes_of(tensor))
    return result


def _deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    _refuse_results(tensor)
    result = memo[id(tensor)] = _rebuild(type(tensor), copy.deepcopy(tensor.array, memo), tensor.requires_grad)
    _set_attributes(result, copy.deepcopy(_attributes_of(tensor), memo))
    return result


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    _refuse_results(tensor)
    parts = (type(tensor), tensor.array, tensor.requires_grad)
    return _rebuild, parts, _attributes_of(tensor) or None, None, None, _set_attributes


def _attributes_of(tensor: Tensor) -> dict[str, Any]:
    """What a subclass keeps on the Tensor, in its dict and its slots."""
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
        raise AutogradError(f"a value of {tensor.interpreter.name} cannot be pickled or copied by `copy.deepcopy`: it "
                            "belongs to a running call\n"
                            "use the operator: tensor.copy()")
    if tensor.requires_grad and not tensor.is_leaf:
        raise AutogradError("a Tensor that an operator made of one that requires grad cannot be copied without its "
                            "graph\ncopy its value: copy.deepcopy(tensor.detach()); or use the operator: tensor.copy()")


def _rebuild(cls: type[Tensor], array: Any, requires_grad: bool = False) -> Tensor:
    """A Tensor of this class, made without its constructor: that of a subclass may take anything."""
    tensor = cls.__new__(cls)
    Tensor.__init__(tensor, array, requires_grad=requires_grad)
    return tensor


def _reshape(self: Tensor, *shape: Any, **options: Any) -> Any:
    """A Tensor of another shape over the same elements, sharing memory where it can."""
    return ops.np.reshape(self, shape[0] if len(shape) == 1 else shape, **options)


def _transpose(self: Tensor, *axes: Any) -> Any:
    """The Tensor with its axes permuted; reversed without an argument."""
    return ops.np.transpose(self, axes[0] if len(axes) == 1 else axes or None)


def _conjugate(self: Tensor, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """The complex conjugates; bools stay bools, of which numpy.conjugate makes integers."""
    return self if self.dtype.kind == "b" else ops.np.conjugate(self, dtype=dtype, casting=casting)


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
"""Methods that `numpy/methods.py` puts in the place of these when one of them is called."""


class _MethodOnDemand:
    """A method of Tensor that is put in the place of this when it is called, or asked for its signature."""

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
        raise AttributeError(f"a Tensor has no attribute {name!r}: the tape does not see what is done with its memory\n"
                             f"{remedy}")
    return property(read)


_load_methods = loading.deferred("numpy.methods", "loaded")
_namespace_of = loading.deferred("numpy.protocols", "array_namespace")


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The namespace of the array API standard, in which Tensors are made; ValueError for an unknown version."""
    return _namespace_of(self, api_version=api_version)


def _refuse_array(tensor: BatchedTensor) -> NoReturn:
    """Refuse to show the batch axis: ConversionError, or VmapError for a value that has left its function."""
    _core.refuse_conversion(tensor, "an array, its `.array`")
    raise AssertionError


_core.extend(BatchedTensor, array=property(_refuse_array, doc="Refused: it would show the axis of the examples."))
_core.extend(
    Tensor,
    **{method: _core.Method(packet("np", operator), method) for method, operator in METHODS.items()},
    conj=_conjugate, conjugate=_conjugate,
    reshape=_reshape, transpose=_transpose, item=_item, tolist=_tolist, numpy=_numpy, detach=_core.detach,
    T=property(_transpose, doc="The Tensor with its axes reversed, sharing memory."),
    mT=property(lambda tensor: ops.np.swapaxes(tensor, -1, -2), doc="The Tensor with its last two axes swapped."),
    real=property(lambda tensor: ops.np.real(tensor), doc="The real part."),
    imag=property(lambda tensor: ops.np.imag(tensor), doc="The imaginary part."),
    device=property(_backend),
    data=_refused_attribute("data", "for the values without gradient write tensor.detach(), for a buffer "
                            "numpy.asarray(tensor).data"),
    ctypes=_refused_attribute("ctypes", "write numpy.asarray(tensor).ctypes"),
    **{name: _MethodOnDemand(name) for name in LATER},
    **{name: _attribute_on_demand(name) for name in ("base", "flags", "flat")},
    __array_ufunc__=_core.UniversalFunctions(),
    __array_namespace__=_array_namespace,
    _repr_html_=loading.deferred("debug.html", "of_tensor"),
    __array__=_as_array,
    __format__=_format, __copy__=_copy, __deepcopy__=_deepcopy, __reduce__=_reduce,
)
_core.connect(
    tensor_repr=_repr, tensor_str=_str, detached_subclass=_detached_subclass,
    item=lambda tensor: ops.np.item(tensor), detach=lambda tensor: ops.np.detach(tensor),
)
