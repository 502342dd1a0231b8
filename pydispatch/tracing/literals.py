"""Literals: the values, besides nodes, that a node's arguments may hold; and how they are written in Python."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema.values import short_repr
from pydispatch.tree import tree_flatten

PLAIN_TYPES = frozenset({NoneType, bool, int, float, complex, str, bytes, EllipsisType})
DTYPE_CLASSES = (bool, int, float, complex, str, bytes, object)
Bind = Callable[[str, Any], str]
"""Makes an object known to generated code: wanted name, object -> name."""


def is_literal(value: Any) -> bool:
    """Can a node's argument be, or hold, this value?"""
    if type(value) in PLAIN_TYPES:
        return True
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufc" and value.dtype.char != "G"      # a clongdouble has no literal
    if isinstance(value, type):
        return value in DTYPE_CLASSES or issubclass(value, np.generic)
    return isinstance(value, (np.dtype, enum.Enum))


def refuse_literal(where: str, value: Any) -> DispatchTypeError:
    """The error for a value that is no literal; `where` names the node."""
    kind = type(value).__name__
    if _core.is_array(value):
        return DispatchTypeError(f"{where}: an argument is an array, a {kind} of shape {value.shape}; expected nodes "
                                 "and literals\nmake it a constant of the graph: graph.add_constant(array)")
    return DispatchTypeError(f"{where}: an argument is {short_repr(value)}, a {kind}; expected nodes, numbers, "
                             "strings, dtypes, None, and containers of these\n"
                             "make it a constant of the graph: graph.add_constant(value)")


def expression(value: Any, leaf: Callable[[Any], str], bind: Bind) -> str:
    """A value as Python source; `leaf` writes what is in its containers and slices."""
    if isinstance(value, slice):
        parts = [value.start, value.stop] if value.step is None else [value.start, value.stop, value.step]
        return f"slice({', '.join([expression(part, leaf, bind) for part in parts])})"
    kind = type(value)
    if kind is tuple:
        items = ", ".join([expression(item, leaf, bind) for item in value])
        return f"({items},)" if len(value) == 1 else f"({items})"
    if kind is list:
        return f"[{', '.join([expression(item, leaf, bind) for item in value])}]"
    if kind is dict and all(is_literal(key) for key in value):
        items = ", ".join([f"{literal(key, bind)}: {expression(item, leaf, bind)}" for key, item in value.items()])
        return f"{{{items}}}"
    leaves, spec = tree_flatten(value)
    if spec.type is None:
        return leaf(value)
    items = ", ".join([expression(item, leaf, bind) for item in leaves])
    return f"tree_unflatten([{items}], {bind('spec', spec)})"


def literal(value: Any, bind: Bind) -> str:
    """A literal as Python source, whose value is equal to it and of the same type."""
    if isinstance(value, enum.Enum):
        return f"{bind(type(value).__name__, type(value))}.{value.name}"
    if isinstance(value, np.dtype):
        return f"np.{value!r}"
    if isinstance(value, type):
        return f"np.{value.__name__}" if issubclass(value, np.generic) else value.__name__
    if isinstance(value, np.complexfloating):
        return f"np.{type(value).__name__}({literal(complex(value), bind)})"
    if isinstance(value, complex):
        return f"complex({literal(value.real, bind)}, {literal(value.imag, bind)})"
    if isinstance(value, float) and math.isnan(value) and not isinstance(value, np.generic):
        return "nan"
    return "..." if value is Ellipsis else repr(value)


def same_literal(left: Any, right: Any) -> bool:
    """Are two literals equal and of equal type? 1, 1.0 and True differ, 0.0 and -0.0 too, NaN equals NaN."""
    return type(left) is type(right) and literal(left, _name_alone) == literal(right, _name_alone)


def _name_alone(name: str, value: Any) -> str:
    return f"{name}_{id(value)}"
