"""Backends: a type of arrays, and where kernels for them come from beside those that are registered one by one."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from pydispatch import _core, keys
from pydispatch.exceptions import DispatchTypeError, OverrideWarning, UnsupportedError
from pydispatch.keys import DispatchKey
from pydispatch.loading import deferred
from pydispatch.registry.kernels import check_function
from pydispatch.registry.registrations import assign_item, lock, mark_all_stale
from pydispatch.registry.sites import caller_site, calling_code, frames_to_caller
from pydispatch.schema import parse_name

load_backend_pack = deferred("registry.packs", "load_backend_pack")


class Backend:
    """What a backend was registered with, and where: the site for messages, the code to know it when it runs again.

    `namespace` is a module, or another object with functions as attributes; the name of a module; or None. `kernels`
    are those of what the namespace and decompositions lack, by names of operators.
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
        """The namespace; None if there is none, or if it is a module that was not imported yet."""
        return sys.modules.get(self.namespace) if isinstance(self.namespace, str) else self.namespace

    @property
    def provides(self) -> bool:
        """Can it provide kernels now?"""
        return self.functions is not None or bool(self.kernels)

    def is_again(self, other: Backend) -> bool:
        """Does the same code register the same backend once more, perhaps with an edited class?"""
        ours, theirs = self.array_type, other.array_type
        is_same = ours is theirs or (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)
        return is_same and self.code == other.code


BACKENDS: dict[str, Backend] = {}
"""Those that were registered at run time, by name."""


def register_backend(
    name: str, array_type: type, above: Iterable[str] = (), *, namespace: Any = None,
    kernels: Mapping[str, Callable[..., Any]] | None = None,
) -> DispatchKey:
    """Add a backend, whose raw arrays are instances of `array_type`; it lasts for the life of the process.

    `above` names backends that this one outranks when both are in one call (CPU is always outranked). `namespace`, a
    module or its name, such as "dask.array", has functions with NumPy's names or those of the Array API: they are the
    kernels of operators that have no other for this backend. `kernels`, by names of operators, are for operators that
    the namespace lacks and that no decomposition replaces.

    Returns the backend's dense key. The same code may run again, as a cell of a notebook does: its backend replaces the
    former one, with OverrideWarning. For a backend that is registered, also by a pack, its name, its type and `above`
    alone rank it above further ones. Raises RegistrationError when the name is taken otherwise, the type is already
    another backend's, or all 14 places for run-time backends are taken.
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
            warnings.warn(f"backend {name}: registered again at {backend.site}, in place of the registration at "
                          f"{former.site}", OverrideWarning, stacklevel=frames_to_caller())
            key = keys.replace_backend(name, former.array_type, array_type, above)
        else:
            key = keys.add_backend(name, array_type, above)
        assign_item(BACKENDS, name, backend)
        mark_all_stale()
        return key


def _checked(name: str, functions: Mapping[str, Callable[..., Any]] | None) -> dict[str, Callable[..., Any]]:
    """Functions by full names of operators; RegistrationError for what is no function."""
    given = {str(parse_name(each if "::" in each else f"np::{each}")): function
             for each, function in (functions or {}).items()}
    for each, function in given.items():
        check_function(f"register_backend: the kernel of {each}", "a kernel", function,
                       f'write register_backend({name!r}, array_type, kernels={{"{each}": function}})')
    return given


def backend_of_key(key: DispatchKey) -> Backend | None:
    """The backend that a dense key is of; None for other keys and for backends that the package brings along."""
    return BACKENDS.get(key.backend or "") if key.is_dense else None


def bring_into_use(key: DispatchKey) -> None:
    """Import the namespace of the backend of a dense key, if it is a module that was not imported yet."""
    backend = backend_of_key(key)
    if backend is not None and backend.namespace is not None and backend.functions is None:
        import_module(backend.namespace)
        mark_all_stale()


def load_backend(array_type: type) -> None:
    """Load the pack of the backend of these arrays, if one is installed; PackError if that fails."""
    for module in modules_of(array_type):
        load_backend_pack(f"arrays of {array_type.__module__}.{array_type.__qualname__}", module)


def modules_of(array_type: type) -> list[str]:
    """The modules of a class and of its bases up to the first that is an array type, without those that have no pack.

    Most types are Python's, NumPy's or ours: nothing is read for them. `numpy.ma` alone has arrays of another kind.
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
    """NumPy's dtype of the name that a dtype of another library has: `torch.float32` is float32.

    Raises DispatchTypeError where NumPy has none.
    """
    name = str(dtype).rpartition(".")[2]
    try:
        return np.dtype(name)
    except TypeError as error:
        raise DispatchTypeError(f"dtype {dtype}: NumPy has none of the name {name!r}\n"
                                "convert the array to a dtype that NumPy has, such as float32") from error


def dtype_of(value: Any) -> np.dtype[Any]:
    """NumPy's dtype of an array."""
    dtype = value.dtype
    return dtype if isinstance(dtype, np.dtype) else dtype_like(dtype)


def has_unknown_sizes(array: Any) -> bool:
    """Is a length of this array, which is nan, known only when it is computed? Dask has such arrays."""
    return any(map(math.isnan, array.shape))


def is_masked(value: Any) -> bool:
    """Is this a masked array, or one of masked chunks, also below a Tensor? Then not every element counts."""
    chunk = chunk_like(value)
    return type(chunk) is not np.ndarray and isinstance(chunk, np.ma.MaskedArray)


def chunk_like(value: Any) -> Any:
    """What an array of Dask's says of its chunks: one without elements; any other array as it is, without its Tensors.

    Below a batch, these are the arrays of all examples.
    """
    while isinstance(value, _core.Tensor):
        batch = value if isinstance(value, _core.BatchedTensor) else None
        value = value.array if batch is None else _core.value_below(batch, batch.interpreter)
    return value if type(value) is np.ndarray else getattr(value, "_meta", value)


def unknown_sizes(what: str, array: Any, reason: str) -> UnsupportedError:
    """The error that a call needs a length that is known only when the array is computed."""
    return UnsupportedError(f"{what}: found an array of unknown sizes, {tuple(array.shape)}: {reason}\n"
                            "call compute_chunk_sizes() of the array first")


def check_sizes(what: str, *arrays: Any, axes: slice = slice(None)) -> None:
    """UnsupportedError where axes of an array have unknown lengths, for what would compute with nan and not notice."""
    for array in arrays:
        if any(map(math.isnan, array.shape[axes])):
            raise unknown_sizes(what, array, "the result depends on its sizes")


_core.connect(bring_into_use=bring_into_use, load_backend=load_backend, dtype_like=dtype_like)
