"""`numpy.polynomial` for arrays and Tensors: NumPy's own code, run with the functions of `pydispatch.numpy`.

NumPy writes these functions with its other functions and with Python's operators. They check `isinstance(x, ndarray)`
to decide whether to give coefficients more axes, which is false for a Tensor. For Tensors the same code runs in a
namespace where `np` has our functions, and where a Tensor counts as an `ndarray`. The classes are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.polynomial import (
    Chebyshev,
    Hermite,
    HermiteE,
    Laguerre,
    Legendre,
    Polynomial,
    polyutils,
    set_default_printstyle,
)

from pydispatch._core import Tensor, is_array
from pydispatch.numpy import linalg as linalg_of_tensors
from pydispatch.numpy.declare import FUNCTIONS, entered
from pydispatch.tree import tree_leaves

__all__ = ["Chebyshev", "Hermite", "HermiteE", "Laguerre", "Legendre", "Polynomial", "chebyshev", "hermite",
           "hermite_e", "laguerre", "legendre", "polynomial", "set_default_printstyle"]


class NumpyOfTensors:
    """The module `np` of NumPy's code, for Tensors."""

    ndarray = (np.ndarray, Tensor)
    linalg = linalg_of_tensors

    def __getattr__(self, name: str) -> Any:
        return FUNCTIONS[name].public if name in FUNCTIONS else getattr(np, name)


def run_with_ours(module: ModuleType, **replaced: Any) -> dict[str, Any]:
    """Return the names of a module of NumPy, with its functions redefined to use these names and `replaced`."""
    names = {**vars(module), "np": NumpyOfTensors(), **replaced}
    for name, value in vars(module).items():
        function = unwrap(value) if callable(value) else None       # some check `__array_function__` first
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            names[name] = FunctionType(function.__code__, names, name, function.__defaults__, function.__closure__)
            names[name].__kwdefaults__ = function.__kwdefaults__
    return names


def of_tensors_too(numpys: Callable[..., Any], ours: Callable[..., Any]) -> Any:
    """Return a function that calls NumPy's, or ours for Tensors."""
    @wraps(numpys)
    def function(*args: Any, **kwargs: Any) -> Any:
        arrays = [leaf for leaf in tree_leaves((args, kwargs)) if is_array(leaf)]
        if any(isinstance(array, Tensor) for array in arrays):
            return ours(*args, **kwargs)
        result = numpys(*args, **kwargs)
        return result if arrays else entered(result)
    return function


def family(name: str) -> ModuleType:
    """Return the module of one family of polynomials."""
    numpys = getattr(np.polynomial, name)
    ours = run_with_ours(numpys, pu=UTILITIES)
    module = ModuleType(f"{__name__}.{name}", numpys.__doc__)
    for each in numpys.__all__:
        value = getattr(numpys, each)
        vars(module)[each] = of_tensors_too(value, ours[each]) if ours[each] is not value else value
    module.__all__ = numpys.__all__     # type: ignore[attr-defined]
    module.__dir__ = lambda: list(numpys.__all__)       # type: ignore[method-assign]
    return module


UTILITIES = SimpleNamespace(**run_with_ours(polyutils))
polynomial, chebyshev, legendre, laguerre, hermite, hermite_e = map(family, (
    "polynomial", "chebyshev", "legendre", "laguerre", "hermite", "hermite_e"))


def __dir__() -> list[str]:
    return list(__all__)
