"""NumPy's public namespace for arrays and Tensors: names, signatures, defaults and dtypes are NumPy's.

For arrays, functions return arrays as in NumPy, and at its speed. For Tensors, they return Tensors, with gradients,
under transforms and modes. See docs/numpy.md for how each function is implemented.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

import numpy as _numpy

from pydispatch._registry.registrations import operators as _all_operators
from pydispatch._registry.tables import build_table as _build_table
from pydispatch.numpy import (
    calculus,
    creation,
    descriptions,
    diagonals,
    in_place,
    indexing,
    manipulation,
    mapping,
    operators,
    passed_on,
    pointwise,
    polynomials,
    products,
    protocols,
    selection,
    sets,
    standard,
    statistics,
    universal,
    windows,
)
from pydispatch.numpy.declare import FUNCTIONS as _FUNCTIONS
from pydispatch.numpy.declare import OF_NUMPY as _OF_NUMPY

_OBJECTS = {
    "vectorize": mapping.vectorize, "r_": indexing.r_, "c_": indexing.c_,
    "mgrid": indexing.mgrid, "ogrid": indexing.ogrid,
    "__array_namespace_info__": standard.ArrayNamespaceInfo, "__array_api_version__": standard.API_VERSIONS[-1],
}
_OURS = ("fft", "lib", "linalg", "polynomial", "random")
_MODULES = (*_OURS, *passed_on.MODULES)


def _public_names() -> dict[str, _Any]:
    """Return all functions, by every name that NumPy has for them, and the objects that are passed on."""
    found: dict[str, _Any] = {
        name: function.public for name, function in _FUNCTIONS.items() if "." not in name}
    for name, value in passed_on.LOADED.items():
        if callable(value) and value in _OF_NUMPY:
            found[name] = _OF_NUMPY[value].public
    passed = (*passed_on.TYPES, *passed_on.CONSTANTS, *passed_on.FUNCTIONS)
    return {name: passed_on.LOADED[name] for name in passed if name in passed_on.LOADED} | found | _OBJECTS


del calculus, creation, descriptions, diagonals, in_place, indexing, manipulation, mapping, operators, pointwise
del polynomials, products, protocols, selection, sets, standard, statistics, universal, windows
globals().update(_public_names())
# The operators that composites call most. Building their tables also builds the data that all tables share. Otherwise,
# the first use of a function would build it, and take longer for that than for the rest.
for _name in ("getitem", "subtract", "reshape", "astype", "concatenate"):
    _build_table(_all_operators[f"np::{_name}"])
__all__ = sorted([*_public_names(), *_OURS])


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'pydispatch.numpy' has no attribute {name!r}")
    module = globals()[name] = _import_module(f"pydispatch.numpy.{name}") if name in _OURS else getattr(_numpy, name)
    return module


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
