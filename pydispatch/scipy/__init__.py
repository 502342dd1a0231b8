"""SciPy's functions for arrays and Tensors, under SciPy's names: with gradients, under transforms and modes.

The functions take and return arrays as they do in SciPy. The package needs SciPy, the extra `scipy`.
docs/scipy.md lists the functions.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from pydispatch.scipy.pack import FAMILIES as _FAMILIES
from pydispatch.scipy.pack import SOLVERS as _SOLVERS

__all__ = [*_FAMILIES, *_SOLVERS]


def __getattr__(name: str) -> _ModuleType:
    if name not in __all__:
        raise AttributeError(f"module 'pydispatch.scipy' has no attribute {name!r}")
    return _import_module(f"pydispatch.scipy.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
