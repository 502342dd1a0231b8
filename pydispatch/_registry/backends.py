"""Backends: registered array types, and the kernels that a backend provides without registering each of them."""

# tests: tests/test_keys.py
from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core, keys
from pydispatch._core import OpOverload
from pydispatch._registry.kernels import check_function
from pydispatch._registry.packs import load_backend_pack
from pydispatch._registry.registrations import assign_item, lock, mark_all_stale
from pydispatch._sites import caller_site, calling_code, frames_to_caller
from pydispatch.exceptions import DispatchTypeError, OverrideWarning, UnsupportedError
from pydispatch.keys import DispatchKey
from pydispatch.schema import parse_name


class Backend:
    """A backend that was registered at run time, with the site of its registration.

    `namespace` is a module, another object with functions as attributes, the name of a module, or None. `kernels` maps
    the names of operators that the namespace and decompositions lack to kernels. `code` identifies the code that
    registered the backend, to recognize a second run of that code.
    """

    __slots__ = ("array_type", "code", "kernels", "name", "namespace", "site")

    def __init__(
        self, name: str, array_type: type, namespace: Any, kernels: dict[str, Callable[..., Any]], site: str,
        code: tuple[str, str],
    ) -> None:
        self.name = name
        self.array_type = array_type
        self.namespace = namespace
        self.kernels = kernels
        self.site = site
        self.code = code

    @property
    def functions(self) -> Any:
        """The namespace, or None if there is none or if it is a module that was not imported yet."""
        return sys.modules.get(self.namespace) if isinstance(self.namespace, str) else self.namespace

    @property
    def provides(self) -> bool:
        """Whether the backend can provide kernels now."""
        return self.functions is not None or bool(self.kernels)

    def is_again(self, other: Backend) -> bool:
        """Return whether the same code registers the backend again, perhaps with an edited array type."""
        ours, theirs = self.array_type, other.array_type
        is_same = ours is theirs or (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)
        return is_same and self.code == other.code


BACKENDS: dict[str, Backend] = {}
"""The backends that were registered at run time, by name."""


class Missing(NamedTuple):
    """The reason why a backend provides no kernel."""

    reason: str


_provide: Callable[[OpOverload, Backend], Any]


def provide_with(function: Callable[[OpOverload, Backend], Any]) -> None:
    """Set the function that finds the kernel that a backend provides for an operator, or returns why it is Missing."""
    global _provide
    _provide = function


def kernel_provided(op: OpOverload, backend: Backend) -> Any:
    """Return the kernel that a backend provides for an operator without a registered one, or why it is Missing."""
    return _provide(op, backend) if backend.provides else Missing("it was registered without a namespace")


def register_backend(
    name: str, array_type: type, above: Iterable[str] = (), *, namespace: Any = None,
    kernels: Mapping[str, Callable[..., Any]] | None = None,
) -> DispatchKey:
    """Add a backend for the rest of the process.

    If the same code runs again, as a cell of a notebook does, its backend replaces the former one, with an
    OverrideWarning. A call with only the name and the type of a registered backend, and `above`, ranks that backend
    above further ones. The backend may also be one that a pack registered.

    Parameters
    ----------
    name
        The name of the backend and of its dense key.
    array_type
        The type whose instances are the raw arrays of the backend.
    above
        The names of backends that this one outranks when arrays of both are in one call. CPU is always outranked.
    namespace
        A module or its name, such as "dask.array", or another object with functions as attributes. The functions have
        NumPy's names or those of the Array API. They are the kernels of operators that have no other kernel for this
        backend.
    kernels
        Kernels by names of operators, for operators that the namespace lacks and that no decomposition replaces.

    Returns
    -------
    DispatchKey
        The dense key of the backend.

    Raises
    ------
    RegistrationError
        If the name is not an identifier or is taken by another backend. If the type cannot be an array type or already
        belongs to another backend. If a kernel is not callable. If all 14 places for run-time backends are taken.
    UnknownKeyError
        If `above` names an unknown backend.
    """
    backend = Backend(name, array_type, namespace, _checked(name, kernels), caller_site(), calling_code())
    with lock:
        former = BACKENDS.get(name) if isinstance(name, str) else None
        is_again = former is not None and isinstance(array_type, type) and backend.is_again(former)
        is_ranked = former is not None and former.array_type is array_type and above and namespace is kernels is None
        if is_ranked and not is_again:
            lower = (above,) if isinstance(above, str) else tuple(above)
            key = keys.replace_backend(name, array_type, array_type, (*keys.outranked_by(name), *lower))
            mark_all_stale()
            return key
        if former is not None and is_again:
            warnings.warn(f"backend {name}: registered again at {backend.site}, replacing the registration at "
                          f"{former.site}", OverrideWarning, stacklevel=frames_to_caller())
            key = keys.replace_backend(name, former.array_type, array_type, above)
        else:
            key = keys.add_backend(name, array_type, above)
        assign_item(BACKENDS, name, backend)
        mark_all_stale()
        return key


def _checked(name: str, functions: Mapping[str, Callable[..., Any]] | None) -> dict[str, Callable[..., Any]]:
    """Map full names of operators to these functions, or raise RegistrationError for a value that is not callable."""
    given = {str(parse_name(each if "::" in each else f"np::{each}")): function
             for each, function in (functions or {}).items()}
    for each, function in given.items():
        check_function(f"register_backend: the kernel of {each}", "a kernel", function,
                       f'write register_backend({name!r}, array_type, kernels={{"{each}": function}})')
    return given


def backend_of_key(key: DispatchKey) -> Backend | None:
    """Return the run-time backend of a dense key, or None for other keys and for built-in backends."""
    return BACKENDS.get(key.backend or "") if key.is_dense else None


def bring_into_use(key: DispatchKey) -> None:
    """Import the namespace of the backend of this key, if it is a module that was not imported yet."""
    backend = backend_of_key(key)
    if backend is not None and backend.namespace is not None and backend.functions is None:
        import_module(backend.namespace)
        mark_all_stale()


def load_backend(array_type: type) -> None:
    """Load the pack of the backend for this array type, if one is installed. Raise PackError if that fails."""
    for module in modules_of(array_type):
        load_backend_pack(f"arrays of {array_type.__module__}.{array_type.__qualname__}", module)


def modules_of(array_type: type) -> list[str]:
    """Return the modules of a class and its bases that may have a pack, up to the first registered array type.

    Modules of Python, NumPy and pydispatch are left out, so that no entry points are read for most types. The exception
    is `numpy.ma`, whose arrays are another kind.
    """
    found: dict[str, None] = {}
    for cls in array_type.__mro__:
        if _core.registered_word(cls):
            break
        module = cls.__module__
        is_known = not isinstance(module, str) or module.partition(".")[0] in ("builtins", "pydispatch") or (
            module.partition(".")[0] == "numpy" and not f"{module}.".startswith("numpy.ma."))
        if not is_known:
            found[module] = None
    return list(found)


@cache
def dtype_like(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's dtype with the name of another library's dtype: float32 for `torch.float32`.

    Raises DispatchTypeError if NumPy has none of that name.
    """
    name = str(dtype).rpartition(".")[2]
    try:
        return np.dtype(name)
    except TypeError as error:
        raise DispatchTypeError(f"dtype {dtype}: NumPy has no dtype named {name!r}\n"
                                "convert the array to a dtype of NumPy, such as float32") from error


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return NumPy's dtype for an array of any library."""
    dtype = value.dtype
    return dtype if isinstance(dtype, np.dtype) else dtype_like(dtype)


def has_unknown_sizes(array: Any) -> bool:
    """Return whether a length is nan, which means unknown until the array is computed. Dask has such arrays."""
    return any(map(math.isnan, array.shape))


def is_like_numpy(array: np.ndarray[Any, Any]) -> bool:
    """Return whether NumPy's functions and operators mean the same on this array as on an array of its base class.

    They do not for a numpy.matrix, and for a subclass with an implementation of NumPy's protocols.
    """
    cls = type(array)
    return cls is np.ndarray or (
        cls.__array_ufunc__ is np.ndarray.__array_ufunc__ and not issubclass(cls, np.matrix)
        and cls.__array_function__ is np.ndarray.__array_function__)


def is_masked(value: Any) -> bool:
    """Return whether this is a masked array, or has masked chunks, directly or below Tensors."""
    chunk = chunk_like(value)
    return type(chunk) is not np.ndarray and isinstance(chunk, np.ma.MaskedArray)


def chunk_like(value: Any) -> Any:
    """Return the empty array that describes the chunks of a Dask array, or any other array itself.

    Tensors are unwrapped first. Of a batch, the array of all examples is used.
    """
    while isinstance(value, _core.Tensor):
        batch = value if isinstance(value, _core.BatchedTensor) else None
        value = value.array if batch is None else _core.value_below(batch, batch.interpreter)
    return value if type(value) is np.ndarray else getattr(value, "_meta", value)


def unknown_sizes(what: str, array: Any, reason: str) -> UnsupportedError:
    """Return the error for a call that needs a length that is known only when the array is computed."""
    return UnsupportedError(f"{what}: found an array of unknown sizes, {tuple(array.shape)}: {reason}\n"
                            "call array.compute_chunk_sizes() first")


def check_sizes(what: str, *arrays: Any, axes: slice = slice(None)) -> None:
    """Raise UnsupportedError if axes of an array have unknown lengths. Callers would silently compute with nan."""
    for array in arrays:
        if any(map(math.isnan, array.shape[axes])):
            raise unknown_sizes(what, array, "the result depends on its sizes")


_core.connect(bring_into_use=bring_into_use, load_backend=load_backend, dtype_like=dtype_like)
