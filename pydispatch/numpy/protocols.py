"""NumPy's own functions called with Tensors: NEP 13 for universal functions, NEP 18 for the others."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import ArrayFunction, Tensor
from pydispatch._registry.conversions import ARGUMENT
from pydispatch.exceptions import DispatchTypeError, UnsupportedError
from pydispatch.numpy.declare import OF_NUMPY, Adapter
from pydispatch.numpy.standard import API_VERSIONS
from pydispatch.operators.declare import LIBRARY
from pydispatch.operators.sizes import blame_unknown_sizes
from pydispatch.tree import tree_leaves, tree_map


def call_universal(ufunc: np.ufunc, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """Call a universal function, or a method of one, that does not go directly to an operator."""
    function = OF_NUMPY.get(ufunc) or of_scipy(ufunc)
    if function is None:
        return call_unknown(ufunc, method, inputs, kwargs)
    if method == "__call__":
        return function.on_tensors(*inputs, **kwargs)
    if "out" in kwargs and not any(isinstance(value, Tensor) for value in inputs):
        # methods such as ndarray.mean call it, and continue as if the sum were not in `out`
        raise DispatchTypeError(f"numpy.{ufunc.__name__}.{method} of arrays was called with a Tensor as out\n"
                                "also pass a Tensor as the argument: Tensor(array)")
    method_of_function = function.__dict__.get(method)
    if method_of_function is None:
        raise no_such_function(ufunc, method)
    return method_of_function.on_tensors(*inputs, **kwargs)


def call_unknown(ufunc: np.ufunc, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """Call a universal function that a user made, by numba or `numpy.frompyfunc`, on the arrays under the Tensors.

    It has no derivative, so converting Tensors that are differentiated or batched raises. NumPy's and SciPy's own
    functions raise because an operator is missing.
    """
    is_of_numpy = type(ufunc) is np.ufunc and any(
        getattr(sys.modules.get(name), ufunc.__name__, None) is ufunc for name in OF_LIBRARIES)
    if is_of_numpy:
        raise no_such_function(ufunc, method)
    arrays, options = tree_map(as_argument, (inputs, kwargs))
    found = (ufunc if method == "__call__" else getattr(ufunc, method))(*arrays, **options)
    return tree_map(lambda leaf: Tensor(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf, found)


def as_argument(value: Any) -> Any:
    """Return the array under a Tensor, and any other value unchanged."""
    if not isinstance(value, Tensor):
        return value
    _core.refuse_conversion(value, ARGUMENT)
    return np.asarray(value)


def of_scipy(ufunc: np.ufunc) -> ArrayFunction | None:
    """Return the array function for a universal function of `scipy.special`. Its operators are loaded on first use."""
    special = sys.modules.get("scipy.special")
    if special is None or getattr(special, ufunc.__name__, None) is not ufunc:
        return None
    import_module("pydispatch.scipy.special")
    return OF_NUMPY.get(ufunc)


def function_of_numpy(function: Any) -> ArrayFunction:
    """Return the array function for one of NumPy's functions.

    Those of `numpy.linalg` and `numpy.fft` are loaded on first use.
    """
    family = getattr(function, "__module__", "").removeprefix("numpy.")
    if family in (*LIBRARY.families, "lib.stride_tricks") and f"pydispatch.numpy.{family}" not in sys.modules:
        import_module(f"pydispatch.numpy.{family}")
    if function not in OF_NUMPY:
        raise no_such_function(function)
    REACHED.update({each: ours for each, ours in OF_NUMPY.items() if each not in LIKE})
    return OF_NUMPY[function]


def array_namespace(tensor: Tensor, *, api_version: str | None = None) -> ModuleType:
    """Return the namespace of the array API standard, in which functions make Tensors.

    Raises ValueError for an unknown version.
    """
    if api_version is not None and api_version not in API_VERSIONS:
        raise ValueError(f"__array_namespace__: argument api_version is {api_version!r}, "
                         f"but {', '.join(API_VERSIONS)} are supported\nleave it out")
    return import_module("pydispatch.numpy.tensors")


def no_such_function(function: Any, method: str = "__call__") -> DispatchTypeError:
    """Return the error for a NumPy function that does not take Tensors. It never computes on their raw arrays."""
    name = f"{getattr(function, '__module__', None) or 'numpy'}.{function.__name__}"
    name = name if method == "__call__" else f"{name}.{method}"
    return DispatchTypeError(
        f"{name} was called with a Tensor, but pydispatch.numpy has no such function\n"
        "pass tensor.numpy() to NumPy, or make a custom operator of the code: pydispatch.library.custom_op")


def of_like(numpy_function: Any) -> ArrayFunction:
    """Wrap a function that makes arrays, so that its result is a Tensor.

    It serves calls with a Tensor as `like` (NEP 35), which NumPy has removed from the arguments.
    """
    function = OF_NUMPY.get(numpy_function, numpy_function)

    def making_tensor(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found if isinstance(found, Tensor) else Tensor(found)

    return ArrayFunction(None, making_tensor)


OF_LIBRARIES = ("numpy", "numpy.linalg._umath_linalg", "numpy.strings", "scipy.special")
"""The modules of NumPy and SciPy universal functions. Those without an operator raise. Others are a user's."""

LIKE = {getattr(np, name): of_like(getattr(np, name)) for name in (
    "arange", "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "empty", "eye", "frombuffer",
    "fromfile", "fromfunction", "fromiter", "fromstring", "full", "genfromtxt", "identity", "loadtxt", "ones",
    "require", "tri", "zeros")}
REACHED: dict[Any, ArrayFunction] = OF_NUMPY | LIKE
"""The functions that `Tensor.__array_function__` calls, for each of NumPy's functions."""

_core.set_functions_of_numpy(REACHED)


def call_on_backend(function: ArrayFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function on arrays of another backend.

    An error to which unknown sizes contribute is replaced by one that reports them. Python's own error reports the nan
    that it computed with.
    """
    try:
        return _called_on_backend(function, args, kwargs)
    except UnsupportedError:
        raise
    except Exception as error:
        blame_unknown_sizes(f"{function.__module__}.{function.__name__}", partial(_called_on_backend, function),
                            (args, kwargs), {}, error)
        raise


def _called_on_backend(function: ArrayFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function. Arrays get the methods of Tensors if it is written with operators.

    An adapter has one operator to call, which takes the arrays unchanged, and for them runs the backend's kernel. An
    implementation that takes raw arrays gets them unchanged too.
    """
    are_raw = not any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs)))
    if isinstance(function.implementation, Adapter) or (
            are_raw and getattr(function.implementation, "takes_raw", False)):
        return function.implementation(*args, **kwargs)
    args, kwargs = tree_map(_as_tensor, (args, kwargs))
    result = function.on_tensors(*args, **kwargs)
    return tree_map(_as_raw, result) if are_raw else result


def _as_tensor(leaf: Any) -> Any:
    if isinstance(leaf, _core.Shell):       # a fake implementation under a trace receives it, and no Tensor holds it
        return Tensor(_core.MetaArray(leaf.shape, leaf.dtype))
    return Tensor(leaf) if _core.is_array(leaf) and not isinstance(leaf, (Tensor, np.ndarray, np.generic)) else leaf


def _as_raw(leaf: Any) -> Any:
    return leaf.array if type(leaf) is Tensor and not leaf.requires_grad else leaf


_core.connect(call_universal=call_universal, function_of_numpy=function_of_numpy, call_on_backend=call_on_backend)
