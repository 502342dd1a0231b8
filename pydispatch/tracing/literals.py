"""Literals: the values other than nodes that a node's arguments may hold, and their Python source."""

# tests: tests/tracing/test_codegen.py
from __future__ import annotations

import enum
import math
from collections.abc import Callable
from functools import partial
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema.frozen import short_repr
from pydispatch.tracing.names import is_plain
from pydispatch.tracing.values import map_values, values_in
from pydispatch.tree import is_pytree_node_type, tree_flatten

PLAIN_TYPES = frozenset({NoneType, bool, int, float, complex, str, bytes, EllipsisType})
DTYPE_CLASSES = (bool, int, float, complex, str, bytes, object)
LONGEST_INT = 2000      # in bits. Python reads and writes at most some hundreds of decimal digits
DEEPEST = 50            # in nested pytrees. Python's parser fails at 200 brackets
Bind = Callable[[str, Any], str]
"""A function that makes an object known to generated code: wanted name, object -> name."""


def is_literal(value: Any) -> bool:
    """Return whether a node's argument can be, or hold, this value."""
    if type(value) in PLAIN_TYPES:
        return True
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufc" and value.dtype.char != "G"      # a clongdouble has no literal
    if isinstance(value, type):
        return value in DTYPE_CLASSES or issubclass(value, np.generic)
    return isinstance(value, (np.dtype, enum.Enum))


def refuse_literal(where: str, value: Any) -> DispatchTypeError:
    """Return the error for a value that is not a literal. `where` names the node."""
    kind = _core.a_type(value)
    if _core.is_array(value):
        return DispatchTypeError(f"{where}: an argument is an array, {kind} of shape {value.shape}, expected nodes "
                                 "and literals\nmake it a constant of the graph: graph.add_constant(array)")
    return DispatchTypeError(f"{where}: an argument is {short_repr(value)}, {kind}, expected nodes, numbers, "
                             "strings, dtypes, None, and pytrees of these\n"
                             "make it a constant of the graph: graph.add_constant(value)")


def expression(value: Any, leaf: Callable[[Any], str], bind: Bind, depth: int = 0) -> str:
    """Return a value as Python source. `leaf` writes the leaves of its pytree nodes and slices."""
    def inner(item: Any) -> str:
        return expression(item, leaf, bind, depth + 1)

    kind = type(value)
    if depth == DEEPEST and (kind is slice or is_pytree_node_type(kind)):
        return f"{bind('refill', partial(_refill, value))}({', '.join(map(leaf, values_in(value)))})"
    if kind is slice:
        parts = [value.start, value.stop] if value.step is None else [value.start, value.stop, value.step]
        return f"slice({', '.join(map(inner, parts))})"
    if kind is tuple:
        items = ", ".join(map(inner, value))
        return f"({items},)" if len(value) == 1 else f"({items})"
    if kind is list:
        return f"[{', '.join(map(inner, value))}]"
    if kind is dict and all(map(is_literal, value)):
        return f"{{{', '.join([f'{literal(key, bind)}: {inner(item)}' for key, item in value.items()])}}}"
    leaves, spec = tree_flatten(value)
    if spec.type is None:
        return leaf(value)
    return f"tree_unflatten([{', '.join(map(inner, leaves))}], {bind('spec', spec)})"


def _refill(pytree: Any, *values: Any) -> Any:
    """Return a pytree like this one, with these leaves."""
    rest = iter(values)
    return map_values(lambda _: next(rest), pytree)


def literal(value: Any, bind: Bind) -> str:
    """Return a literal as Python source, whose value is equal to it and of the same type.

    If no source is certain to produce that object, bind it to a name, and return the name.
    """
    kind = type(value)
    if kind is int and value.bit_length() > LONGEST_INT:
        return hex(value)
    if kind is float and math.isnan(value):
        return "nan"
    if kind is complex:
        return f"complex({literal(value.real, bind)}, {literal(value.imag, bind)})"
    if kind in PLAIN_TYPES:
        return "..." if value is Ellipsis else repr(value)
    if isinstance(value, np.generic):
        return _numpy_scalar(value) or bind(kind.__name__, value)
    if isinstance(value, np.dtype):
        is_plain_dtype = (value.kind in "biufcmMSUOV" and value.isbuiltin != 2       # 2: of another package
                          and value.names is None and value.subdtype is None)
        return f"np.{value!r}" if is_plain_dtype else bind("dtype", value)
    if isinstance(value, type):
        name = value.__name__
        if value in DTYPE_CLASSES:
            return name
        return f"np.{name}" if is_plain(name) and vars(np).get(name) is value else bind(name, value)
    assert isinstance(value, enum.Enum)
    name = value.name           # None for a Flag of several members, or any text, by Enum("Color", ["..."])
    if name is not None and is_plain(name) and kind.__members__.get(name) is value is getattr(kind, name):
        return f"{bind(kind.__name__, kind)}.{name}"
    return bind(kind.__name__, value)


def _numpy_scalar(value: np.generic[Any]) -> str | None:
    """Return a NumPy scalar as source, or None for a subclass and if NumPy prints in a legacy format."""
    kind = type(value)
    if kind is not value.dtype.type:
        return None
    if isinstance(value, np.complexfloating):
        return f"np.{kind.__name__}({literal(complex(value), _name_alone)})"
    text = repr(value)
    return text if text.startswith("np.") else None


def same_literal(left: Any, right: Any) -> bool:
    """Return whether two literals are equal and of equal type.

    1, 1.0 and True differ, and so do 0.0 and -0.0. NaN equals NaN.
    """
    if left is right:
        return True
    if type(left) is not type(right) or not is_literal(left) or isinstance(left, (type, enum.Enum)):
        return False
    if isinstance(left, np.dtype):
        return bool(left == right)
    return literal(left, _name_alone) == literal(right, _name_alone)


def _name_alone(name: str, value: Any) -> str:
    return f"{name}_{id(value)}"
