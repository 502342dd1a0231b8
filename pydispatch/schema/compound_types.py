"""Types made of other types: optional ones, lists, tuples, dicts and unions."""

# tests: tests/schema/test_types.py
from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydispatch import _core
from pydispatch.schema.base_types import Type, found_instead, holds_numbers, numbers_in, refusal
from pydispatch.schema.frozen import MISSING, same_value
from pydispatch.schema.literals import literal


class OptionalType(Type):
    """``T?``: a T or None."""

    __slots__ = ("inner",)
    inner: Type

    def __init__(self, inner: Type):
        self._freeze(inner)

    @property
    def contains_arrays(self) -> bool:
        return self.inner.contains_arrays

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            return self.inner.convert(value)
        except (TypeError, ValueError) as error:
            raise _as(self, self.inner, error) from None

    def word(self, text: str) -> object:
        return self.inner.word(text)

    def literal(self, value: Any) -> str:
        return "None" if value is None else self.inner.literal(value)

    def __str__(self) -> str:
        return f"{self.inner}?"


class ListType(Type):
    """``T[]``: a sequence of T, and for numbers also an array. The converted value is a tuple."""

    __slots__ = ("inner",)
    inner: Type

    def __init__(self, inner: Type):
        self._freeze(inner)

    @property
    def contains_arrays(self) -> bool:
        return self.inner.contains_arrays

    def convert(self, value: Any) -> tuple[Any, ...]:
        return _convert_items(self, value, _items(self, value), itertools.repeat(self.inner))

    def word(self, text: str) -> object:
        return self.inner.word(text)

    def literal(self, value: Any) -> str:
        return f"[{', '.join(map(self.inner.literal, value))}]"

    def __str__(self) -> str:
        return f"{self.inner}[]"


class TupleType(Type):
    """``(A, B)``: a sequence of exactly these types. The converted value is a tuple."""

    __slots__ = ("items",)
    items: tuple[Type, ...]

    def __init__(self, items: Iterable[Type]):
        self._freeze(tuple(items))

    @property
    def contains_arrays(self) -> bool:
        return any(item.contains_arrays for item in self.items)

    def convert(self, value: Any) -> tuple[Any, ...]:
        items = _items(self, value)
        if len(items) != len(self.items):
            raise ValueError(f"{found_instead(self, value)} of length {len(items)}")
        return _convert_items(self, value, items, self.items)

    def word(self, text: str) -> object:
        return _first_word(self.items, text)

    def literal(self, value: Any) -> str:
        items = [item.literal(x) for item, x in zip(self.items, value, strict=True)]
        return f"[{', '.join(items)}]"

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


class DictType(Type):
    """``Dict(K, V)``: a mapping from K to V. The converted value is a new dict."""

    __slots__ = ("key", "value")
    key: Type
    value: Type

    def __init__(self, key: Type, value: Type):
        self._freeze(key, value)

    @property
    def contains_arrays(self) -> bool:
        return self.value.contains_arrays

    def convert(self, value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise refusal(self, value)
        keys = _convert_items(self, value, value.keys(), itertools.repeat(self.key))
        values = _convert_items(self, value, value.values(), itertools.repeat(self.value))
        return dict(zip(keys, values, strict=True))

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value})"


class UnionType(Type):
    """``Union(A, B)``: the first type that accepts a value and keeps its kind, else the first that accepts it."""

    __slots__ = ("members",)
    members: tuple[Type, ...]

    def __init__(self, members: Iterable[Type]):
        self._freeze(tuple(members))

    @property
    def contains_arrays(self) -> bool:
        return any(member.contains_arrays for member in self.members)

    def convert(self, value: Any) -> Any:
        candidates = []
        for member in self.members:
            try:
                converted = member.convert(value)
            except (TypeError, ValueError):
                continue
            if type(converted) is type(value):
                return converted
            candidates.append(converted)
        if candidates:
            return candidates[0]
        raise refusal(self, value)

    def word(self, text: str) -> object:
        return _first_word(self.members, text)

    def literal(self, value: Any) -> str:
        for member in self.members:
            try:
                if same_value(member.convert(value), value):
                    return member.literal(value)
            except (TypeError, ValueError):
                continue
        return literal(value)

    def __str__(self) -> str:
        return f"Union({', '.join(map(str, self.members))})"


def _items(type: Type, value: Any) -> list[Any] | tuple[Any, ...]:
    """Return the elements of a value passed for a list or tuple. Raise TypeError if it is not a sequence."""
    if isinstance(value, (list, tuple)):
        return value
    if _core.is_array(value):
        if type.contains_arrays or not holds_numbers(value) or value.ndim == 0:
            raise refusal(type, value)
        numbers: list[Any] = numbers_in(type, value)
        return numbers
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        return tuple(value)
    raise refusal(type, value)


def _as(outer: Type, inner: Type, error: TypeError | ValueError) -> TypeError | ValueError:
    """Turn the error of one part into an error about the whole value."""
    text = str(error).replace(f"expected {inner}", f"expected {outer}", 1)
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def _convert_items(whole: Type, value: Any, items: Iterable[Any], item_types: Iterable[Type]) -> tuple[Any, ...]:
    converted: list[Any] = []
    try:
        for item_type, item in zip(item_types, items, strict=False):
            converted.append(item_type.convert(item))  # its length shows where an error happened
    except (TypeError, ValueError) as error:
        reason, *remedy = str(error).split("\n", 1)
        text = "\n".join([f"{found_instead(whole, value)} (element {len(converted)}: {reason})", *remedy])
        raise (TypeError if isinstance(error, TypeError) else ValueError)(text) from None
    return tuple(converted)


def _first_word(members: Iterable[Type], text: str) -> object:
    return next((value for member in members if (value := member.word(text)) is not MISSING), MISSING)


def optional(inner: Type) -> Type:
    """Return ``T?``, or the type itself if it is already optional."""
    return inner if isinstance(inner, OptionalType) else OptionalType(inner)


def without_none(type: Type) -> Type:
    """Return T for ``T?``, and any other type itself."""
    return type.inner if isinstance(type, OptionalType) else type


def union(members: Iterable[Type | None]) -> Type:
    """Return ``Union(...)`` in its simplest form. None among the members makes it optional.

    Raises ValueError if no type is left.
    """
    flat: dict[Type, None] = {}
    is_optional = False
    for member in members:
        if member is None or isinstance(member, OptionalType):
            is_optional = True
        if member is not None:
            inner = without_none(member)
            flat.update(dict.fromkeys(inner.members if isinstance(inner, UnionType) else (inner,)))
    if not flat:
        raise ValueError("a Union needs at least one type besides None")
    whole = UnionType(flat) if len(flat) > 1 else next(iter(flat))
    return optional(whole) if is_optional else whole
