"""Convert Python annotations to types of the schema language."""

# tests: tests/schema/test_inference.py
from __future__ import annotations

import collections.abc
import enum
import inspect
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pydispatch import _core
from pydispatch.schema import base_types
from pydispatch.schema.compound_types import DictType, ListType, TupleType, union
from pydispatch.schema.user_types import registered_type

_LISTS: Final = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
_DICTS: Final = (dict, collections.abc.Mapping)
_ALIAS_TYPE: Final[Any] = getattr(typing, "TypeAliasType", ())     # since CPython 3.12
_TYPE_OF_BUILTIN: Final[dict[type, base_types.Type]] = {
    bool: base_types.BOOL,
    int: base_types.INT,
    float: base_types.FLOAT,
    complex: base_types.COMPLEX,
    str: base_types.STR,
    numbers.Number: base_types.SCALAR,
    np.dtype: base_types.DTYPE,
    type: base_types.DTYPE,
}
_MAPPABLE: Final = (
    "np.ndarray, int, float, bool, str, complex, numbers.Number, np.dtype, X | None, list[X], tuple[X, ...], "
    "tuple[X, Y], dict[K, V], or a class after register_opaque_type(cls)"
)

Evaluate = Callable[[str], Any]


class UnmappedError(Exception):
    """No schema type corresponds to an annotation. The message is the remedy."""


def evaluator(fn: Callable[..., Any]) -> Evaluate:
    """Return a function that evaluates annotations given as text, with the names visible to the annotated function."""
    function = inspect.unwrap(fn)
    function = getattr(function, "func", function)  # unwrap a functools.partial
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        function = getattr(type(function).__call__, "__func__", type(function).__call__)
    scope = getattr(function, "__globals__", {})
    captured = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if captured else ()

    def evaluate(text: str) -> Any:
        seen = {name: cell.cell_contents for name, cell in zip(names, captured, strict=True)}
        return eval(text, scope, seen)

    return evaluate


def type_of(annotation: Any, evaluate: Evaluate) -> base_types.Type:
    """Return the schema type of an annotation.

    Raises UnmappedError if there is none.
    """
    annotation = _resolve(annotation, evaluate)
    if isinstance(annotation, base_types.Type):
        return annotation
    if annotation is Any:
        return base_types.ANY
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is None:
        return _type_of_class(annotation)
    if origin is typing.Annotated:
        return type_of(arguments[0], evaluate)
    if origin is typing.Literal:
        return union(None if value is None else _type_of_class(type(value)) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return union(None if item is types.NoneType else type_of(item, evaluate) for item in arguments)
    if origin in _LISTS or (origin is tuple and arguments[1:] == (...,)):
        return ListType(type_of(arguments[0], evaluate))
    if origin is tuple:
        return TupleType(type_of(item, evaluate) for item in arguments)
    if origin in _DICTS:
        return DictType(*(type_of(item, evaluate) for item in arguments))
    return _type_of_class(origin)


def types_of_results(annotation: Any, evaluate: Evaluate) -> tuple[base_types.Type, ...]:
    """Return the schema types of the results: several for a tuple, none for None.

    Raises UnmappedError if a result has no schema type.
    """
    annotation = _resolve(annotation, evaluate)
    if annotation is None or annotation is types.NoneType:
        return ()
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and arguments[1:] != (...,):
        if len(arguments) < 2:
            raise UnmappedError("Return None, the value itself, or a tuple of two or more")
        return tuple([type_of(item, evaluate) for item in arguments])
    return (type_of(annotation, evaluate),)


def _resolve(annotation: Any, evaluate: Evaluate) -> Any:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return _meaning(annotation)
    try:
        return _meaning(evaluate(annotation))
    except Exception as error:  # an annotation may be any expression
        raise UnmappedError(f"It could not be evaluated: {error}. Use names that the module defines") from error


def _meaning(annotation: Any) -> Any:
    """Return the value of a type alias (PEP 695), such as the NDArray of NumPy 2.5, and any other annotation itself."""
    alias = typing.get_origin(annotation) or annotation
    if not isinstance(alias, _ALIAS_TYPE):
        return annotation
    value = alias.__value__
    given = dict(zip(alias.__type_params__, typing.get_args(annotation), strict=False))
    if isinstance(value, typing.TypeVar):
        return _meaning(given.get(value, value))
    parameters = tuple([given.get(parameter, parameter) for parameter in getattr(value, "__parameters__", ())])
    return _meaning(value[parameters] if parameters else value)


def _type_of_class(annotation: Any) -> base_types.Type:
    if isinstance(annotation, type):
        known = registered_type(annotation) or _TYPE_OF_BUILTIN.get(annotation)
        if known is not None:
            return known
        if _core.is_array_type(annotation):
            return base_types.TENSOR
        if annotation.__name__ == "Generator" and annotation.__module__.startswith("numpy.random"):
            return base_types.GENERATOR  # np.random is imported lazily
        if annotation in _LISTS:
            raise UnmappedError(f"Name the type of its elements: {annotation.__name__}[int]")
        if annotation in _DICTS or annotation is tuple:
            raise UnmappedError(f"Name the types of its keys and values: {annotation.__name__}[str, int]")
        if issubclass(annotation, enum.Enum):
            raise UnmappedError(f"Register it: register_opaque_type({annotation.__name__})")
    raise UnmappedError(f"Use {_MAPPABLE}")
