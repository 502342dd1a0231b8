"""Libraries of the Array API standard, whose functions have NumPy's names or those of the standard.

These functions take only arrays and dtypes of their library, and promote less than NumPy's. The wrappers here let
them take the arguments of operators: NumPy dtypes and arrays, numbers, and arrays of several dtypes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial, wraps
from importlib import import_module
from typing import Any

import numpy as np

from pydispatch._loading import only_public
from pydispatch._registry.backends import dtype_of, register_backend
from pydispatch.backends.standard import FUNCTIONS
from pydispatch.exceptions import UnsupportedError
from pydispatch.keys import DispatchKey

__all__ = ["register_array_api"]
__dir__ = only_public(globals())

FLOATING = frozenset(("mean", "std", "var"))
"""Functions that compute with floating-point numbers, like those of `linalg`."""
COUNTING = frozenset(("sum", "prod", "cumsum", "cumprod"))
"""Functions that count truth values as numbers."""
REAL_TO_COMPLEX = frozenset(("fft.rfft", "fft.rfftn", "fft.ihfft"))
"""Functions of `fft` that transform real numbers. The other ones compute with complex numbers."""
PROMOTING = {
    "where": slice(1, 3), "concat": slice(1), "concatenate": slice(1), "stack": slice(1), "clip": slice(3),
    "tensordot": slice(2), "einsum": slice(1, 4), "linalg.cross": slice(2), "linalg.solve": slice(2)}
"""Functions that promote arrays to a common dtype, and the positions of these arguments."""
UNIVERSAL = {name: function for name, function in vars(np).items() if isinstance(function, np.ufunc)}
NUMBERS = (int, float, complex)


def register_array_api(
    name: str, array_type: type, module: str, above: Iterable[str] = (), *,
    functions: Mapping[str, Callable[..., Any]] | None = None, without: Iterable[str] = (),
) -> DispatchKey:
    """Add a backend for the arrays of a library that follows the Array API standard.

    Parameters
    ----------
    name, array_type, above
        As in `register_backend`.
    module
        Name of the library's namespace, such as "array_api_compat.torch". It is imported when an operator is called
        with such an array.
    functions
        Functions to use instead of the namespace's own, by names such as "linalg.svd". Each gets the namespace as its
        first argument.
    without
        Names that NumPy uses for different functions. They are left out.

    Returns
    -------
    DispatchKey
        The key of the backend.
    """
    namespace = ArrayNamespace(module, {**FUNCTIONS, **(functions or {})}, frozenset(without))
    return register_backend(name, array_type, above, namespace=namespace)


class ArrayNamespace:
    """A namespace of the Array API whose functions take the arguments of operators."""

    def __init__(self, module: str, functions: Mapping[str, Callable[..., Any]], without: frozenset[str],
                 family: str = "") -> None:
        self.__name__ = module + family
        self._module = module
        self._functions = functions
        self._without = without
        self._family = family

    def __getattr__(self, name: str) -> Any:
        path = f"{self._family}.{name}".lstrip(".")
        if path in self._without or name.startswith("__"):
            raise AttributeError(f"{self.__name__} has no {name} that matches NumPy's")
        module = loaded(self._module)
        if path in self._functions:
            found: Any = function_of(module, path, partial(self._functions[path], module))
        else:
            found = module
            for part in path.split("."):
                found = getattr(found, part)
            if isinstance(found, types.ModuleType):
                found = ArrayNamespace(self._module, self._functions, self._without, f".{path}")
            elif callable(found):
                found = function_of(module, path, found)
        setattr(self, name, found)
        return found


@cache
def loaded(module: str) -> types.ModuleType:
    """Import a namespace. If that fails, raise ImportError with the way to install `array-api-compat`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{error}\npip install 'pydispatch-numpy[array-api]'", name=error.name) from error


def function_of(module: types.ModuleType, path: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of a namespace so that it takes the arguments of operators."""
    of = Arguments(module, path)

    def kernel(*args: Any, **options: Any) -> Any:
        args = of.own(args)
        try:
            return function(*of.promoted(args), **{name: of.own(value) for name, value in options.items()})
        except (TypeError, NotImplementedError, RuntimeError) as error:
            raise UnsupportedError(f"{module.__name__}.{path}: {error}\n"
                                   "pass arguments that the library supports, or register a kernel") from error

    if not isinstance(function, partial):
        kernel = wraps(function)(kernel)
    with suppress(ValueError):      # some functions written in C have no signature
        found = inspect.signature(function)
        kernel.__signature__ = found.replace(parameters=[      # type: ignore[attr-defined]
            each for each in found.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD])
    kernel.__name__ = kernel.__qualname__ = path
    return kernel


class Arguments:
    """Converts the arguments of one function to those that the library takes."""

    __slots__ = ("alike", "family", "function", "module", "own_type", "path")

    def __init__(self, module: types.ModuleType, path: str) -> None:
        self.module = module
        self.own_type = type(module.zeros(()))
        self.path = path
        self.family = path.rpartition(".")[0]
        self.function = UNIVERSAL.get(path)
        self.alike = PROMOTING.get(path)

    def own(self, value: Any) -> Any:
        """Replace NumPy dtypes and arrays in an argument by the library's."""
        if isinstance(value, (np.ndarray, np.generic)):
            return self.module.asarray(np.array(value))      # a copy, because torch warns of read-only arrays
        if isinstance(value, np.dtype):
            return getattr(self.module, value.name)
        return type(value)(map(self.own, value)) if type(value) in (tuple, list) else value

    def promoted(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert positional arguments to the dtypes that NumPy's function computes with."""
        if self.function is not None:
            n = self.function.nin
            return (*self.as_universal(self.function, args[:n]), *args[n:])
        if self.alike is not None:
            values = list(args)
            values[self.alike] = self.promoted_together(args[self.alike])
            args = tuple(values)
        if self.path in COUNTING:
            args = tuple([self.cast(arg, np.dtype(np.int64)) if isinstance(arg, self.own_type)
                          and dtype_of(arg).kind == "b" else arg for arg in args])
        if self.path in FLOATING or self.family in ("linalg", "fft"):
            args = tuple([self.as_inexact(arg) if isinstance(arg, self.own_type) else arg for arg in args])
        return args

    def as_inexact(self, array: Any) -> Any:
        """Convert an array to floating-point or complex numbers, depending on the function."""
        found = dtype = dtype_of(array)
        if found.kind in "biu":
            dtype = np.dtype(np.float64)
        if self.family == "fft" and self.path not in REAL_TO_COMPLEX:
            dtype = np.result_type(dtype, np.complex64)
        return array if dtype == found else self.cast(array, dtype)

    def as_universal(self, function: np.ufunc, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert the arguments of a universal function to the dtypes of the loop that NumPy selects for them."""
        found = tuple([type(arg) if isinstance(arg, NUMBERS) else dtype_of(arg) for arg in args])
        dtypes = loop_of(function, found)
        return args if dtypes is None else tuple(map(self.cast, args, dtypes))

    def promoted_together(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert arguments, and arrays in sequences, to the common dtype that NumPy promotes them to."""
        leaves = [leaf for arg in args for leaf in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        known = [dtype_of(leaf) if isinstance(leaf, self.own_type) else leaf for leaf in leaves
                 if isinstance(leaf, (*NUMBERS, self.own_type))]
        if not any(isinstance(each, np.dtype) for each in known):
            return args
        common = np.result_type(*known)
        return tuple([type(arg)([self.cast(each, common) for each in arg]) if isinstance(arg, list) else
                      tuple([self.cast(each, common) if isinstance(each, self.own_type) else each for each in arg])
                      if isinstance(arg, tuple) else self.cast(arg, common) for arg in args])

    def cast(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """Convert a value to an array of the library with this dtype."""
        if isinstance(value, NUMBERS):
            return self.module.asarray(value, dtype=getattr(self.module, dtype.name))
        if not isinstance(value, self.own_type) or dtype_of(value) == dtype:
            return value
        return self.module.astype(value, getattr(self.module, dtype.name))


@cache
def loop_of(function: np.ufunc, found: tuple[Any, ...]) -> tuple[np.dtype[Any], ...] | None:
    """Return the dtypes that NumPy's loop takes for these arguments, or None if it has no loop for them."""
    weak = tuple([each if isinstance(each, np.dtype) else int if each is bool else each for each in found])
    try:
        return function.resolve_dtypes((*weak, *[None] * function.nout))[:len(found)]
    except TypeError:
        return None
