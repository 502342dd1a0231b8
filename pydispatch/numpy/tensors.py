"""The namespace of Tensors for the array API standard: `pydispatch.numpy`, whose creation functions make Tensors.

Its `argsort` is stable, unlike NumPy's, and its `clip` takes one limit by position.

`Tensor.__array_namespace__()` returns it. A library that uses the standard makes arrays with it (`xp.zeros(3)`), and
then requires that all its arrays have the same namespace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pydispatch.numpy as _numpy
from pydispatch import _core
from pydispatch._core import ArrayFunction, Tensor
from pydispatch.numpy.standard import ArrayNamespaceInfo
from pydispatch.ops import ops

MAKING = ("arange", "array", "asanyarray", "asarray", "ascontiguousarray", "empty", "eye", "from_dlpack", "full",
          "geomspace", "identity", "linspace", "logspace", "ones", "tri", "zeros")
MAKING_IN_FFT = ("fftfreq", "rfftfreq")


def making_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its result as a Tensor."""
    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if isinstance(found, (Tensor, tuple)):
            return found
        # an array made from numbers is new, and can be written to. Transforms and modes have to know its origin
        is_new = _core.operators_are_watched() and not (args and _core.is_array(args[0]))
        return ops.np.copy(Tensor(found)) if is_new else Tensor(found)
    return made


def of_fft() -> SimpleNamespace:
    """Return the extension fft of the standard."""
    module: Any = _numpy.fft
    making = {name: making_tensors(getattr(module, name)) for name in MAKING_IN_FFT}
    return SimpleNamespace(**{name: getattr(module, name) for name in module.__all__} | making)


def of_special() -> SimpleNamespace:
    """Return SciPy's special functions that take Tensors, if SciPy is installed.

    SciPy itself looks them up in the namespace of its arguments.
    """
    try:
        module: Any = import_module("pydispatch.scipy.special")
    except ImportError as error:
        raise AttributeError("the namespace of Tensors has `special` only if SciPy is installed") from error
    return SimpleNamespace(**{name: function for name, function in vars(module).items()
                              if isinstance(function, ArrayFunction)})


def argsort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: Any = None, *, stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """Return the indices that sort. As the standard requires, equal elements keep their order by default."""
    stable = kind is None if stable is None else stable
    return _numpy.argsort(a, axis, kind, order, stable=stable or None, descending=descending)


def clip(a: Any, *limits: Any, **options: Any) -> Any:
    """Clip the elements to two limits. As in the standard, either can be omitted."""
    if not [limit for limit in (*limits, *options.values()) if limit is not None]:
        return _numpy.copy(a)   # NumPy 2.0 requires a limit
    if len(limits) == 1:
        limits = (*limits, options.pop("max", options.pop("a_max", None)))
    return _numpy.clip(a, *limits, **options)


PARTS = {"fft": of_fft, "special": of_special}


def __array_namespace_info__() -> ArrayNamespaceInfo:   # noqa: N807  the standard's name
    """Return the properties of the namespace."""
    return ArrayNamespaceInfo("CPU")


def __getattr__(name: str) -> Any:
    value: Any = PARTS[name]() if name in PARTS else getattr(_numpy, name)
    globals()[name] = making_tensors(value) if name in MAKING else value
    return globals()[name]


def __dir__() -> list[str]:
    return dir(_numpy)
