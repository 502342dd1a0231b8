"""The namespace of Tensors for the array API standard: `pydispatch.numpy`, where what makes arrays makes Tensors.

Its `argsort` is stable, which NumPy's is not.

`Tensor.__array_namespace__()` gives it. A library that speaks the standard makes arrays with it (`xp.zeros(3)`) and
then asks all its arrays for their namespace, which has to be one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pydispatch.numpy as _numpy
from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.numpy.standard import ArrayNamespaceInfo
from pydispatch.ops import ops

MAKING = ("arange", "array", "asanyarray", "asarray", "ascontiguousarray", "empty", "eye", "from_dlpack", "full",
          "geomspace", "identity", "linspace", "logspace", "ones", "tri", "zeros")
MAKING_IN_FFT = ("fftfreq", "rfftfreq")


def making_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its result as a Tensor."""
    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if isinstance(found, (Tensor, tuple)):
            return found
        # an array of numbers is new, and may be written to: what watches has to know where it comes from
        is_new = _core.operators_are_watched() and not (args and _core.is_array(args[0]))
        return ops.np.copy(Tensor(found)) if is_new else Tensor(found)
    return made


def of_fft() -> SimpleNamespace:
    """The extension fft."""
    module: Any = _numpy.fft
    making = {name: making_tensors(getattr(module, name)) for name in MAKING_IN_FFT}
    return SimpleNamespace(**{name: getattr(module, name) for name in module.__all__} | making)


def argsort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: Any = None, *, stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """The indices that sort; without `stable` and `kind` equal elements stay in order, as the standard has it."""
    stable = kind is None if stable is None else stable
    return _numpy.argsort(a, axis, kind, order, stable=stable or None, descending=descending)


def __array_namespace_info__() -> ArrayNamespaceInfo:   # noqa: N807  the standard's name
    """What the namespace tells about itself."""
    return ArrayNamespaceInfo("CPU")


def __getattr__(name: str) -> Any:
    value: Any = getattr(_numpy, name)
    globals()[name] = making_tensors(value) if name in MAKING else of_fft() if name == "fft" else value
    return globals()[name]


def __dir__() -> list[str]:
    return dir(_numpy)
