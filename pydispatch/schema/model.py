"""Schemas, their arguments, returns and alias annotations. They print as the text that they are parsed from."""

# ruff: noqa: RUF023  the order of the slots is the order of the fields
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from pydispatch import _core
from pydispatch.schema.base_types import NUMBERS, NUMERIC_TYPES, TENSOR, GeneratorType, Type, holds_numbers, refusal
from pydispatch.schema.compound_types import DictType, ListType, OptionalType, TupleType, without_none
from pydispatch.schema.frozen import REQUIRED, Frozen, described, same_value
from pydispatch.schema.names import OperatorName, parse_name

MAX_ARGUMENTS: Final = 64  # positions of arguments are bits of one machine word


class AliasInfo(Frozen):
    """An alias annotation: alias sets before and after the call, and whether the value is written to.

    `contained` is the annotation of a list's elements. A bare ``!`` is a separate set without a name, which is written
    to. A list of which only the elements are annotated also has no names. It is written to if its elements are.
    """

    __slots__ = ("before", "write", "after", "contained")
    before: frozenset[str]
    write: bool
    after: frozenset[str]
    contained: AliasInfo | None

    def __init__(
        self,
        before: frozenset[str],
        write: bool,
        after: frozenset[str] | None = None,
        contained: AliasInfo | None = None,
    ):
        self._freeze(before, write, before if after is None else after, contained)

    def __str__(self) -> str:
        if not self.before:
            inherited = self.contained is not None and self.contained.write
            return "!" if self.write and not inherited else ""
        mark = "!" if self.write else ""
        after = "" if self.after == self.before else f" -> {'|'.join(sorted(self.after))}"
        return f"({'|'.join(sorted(self.before))}{mark}{after})"


WRITTEN = AliasInfo(frozenset(), True)  # a bare !


def alias_of_list(contained: AliasInfo | None) -> AliasInfo | None:
    """Return the annotation of a list of which only the elements are annotated."""
    return contained and AliasInfo(frozenset(), contained.write, None, contained)


def spell_type(type: Type, alias: AliasInfo | None, size: int | None) -> str:
    """Return the text of a type with its annotations and size hint."""
    if isinstance(type, OptionalType):
        return f"{spell_type(type.inner, alias, size)}?"
    mark = "" if alias is None else str(alias)
    if isinstance(type, ListType):
        inner = spell_type(type.inner, None if alias is None else alias.contained, None)
        return f"{inner}[{'' if size is None else size}]{mark}"
    return f"{type}{mark}"


class _LaidOut(Frozen):
    """A frozen value with a slot for the layout that the core's Signature computes. The slot is not a field."""

    __slots__ = ("layout",)


class Argument(_LaidOut):
    """An argument of a schema. `size` is the hint N of ``T[N]``."""

    __slots__ = ("name", "type", "size", "default", "kw_only", "alias")
    name: str
    type: Type
    size: int | None
    default: Any
    kw_only: bool
    alias: AliasInfo | None

    def __init__(
        self,
        name: str,
        type: Type,
        size: int | None = None,
        default: Any = REQUIRED,
        kw_only: bool = False,
        alias: AliasInfo | None = None,
    ):
        self._freeze(name, type, size, default, kw_only, alias)

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED

    @property
    def mutable(self) -> bool:
        """Return whether the operator writes to this argument."""
        alias = self.alias
        while alias is not None:
            if alias.write:
                return True
            alias = alias.contained
        return False

    @property
    def is_out(self) -> bool:
        """Return whether this is an output argument: passed by keyword, and written to."""
        return self.kw_only and self.mutable

    def convert(self, value: Any) -> Any:
        """Convert a value to the declared type. A single number for a list of N numbers is repeated N times.

        Raises TypeError or ValueError with the message "expected <type>, found <type name> <short repr>".
        """
        if self.size is not None and _is_number(value) and _is_list_of_numbers(self.type):
            value = (value,) * self.size
        converted = self.type.convert(value)
        return _changed(self.type, converted, _writable) if self.mutable else converted

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Argument):
            return NotImplemented
        return self._but_default() == other._but_default() and same_value(self.default, other.default)

    def __hash__(self) -> int:
        return hash(self._but_default())

    def _but_default(self) -> tuple[Any, ...]:
        return self.name, self.type, self.size, self.kw_only, self.alias

    def __str__(self) -> str:
        text = f"{spell_type(self.type, self.alias, self.size)} {self.name}"
        return f"{text}={self._default_literal()}" if self.has_default else text

    def _default_literal(self) -> str:
        value = self.default
        if self.size is not None and isinstance(value, tuple) and len(value) == self.size > 1:
            first = value[0]
            if type(first) is int and value == (first,) * self.size:
                return repr(first)
        return self.type.literal(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) or (holds_numbers(value) and value.ndim == 0)


def _is_list_of_numbers(type: Type) -> bool:
    outer = without_none(type)
    return isinstance(outer, ListType) and without_none(outer.inner) in NUMERIC_TYPES


class Return(_LaidOut):
    """A result of a schema. The name may be empty."""

    __slots__ = ("name", "type", "size", "alias")
    name: str
    type: Type
    size: int | None
    alias: AliasInfo | None

    def __init__(self, name: str, type: Type, size: int | None = None, alias: AliasInfo | None = None):
        self._freeze(name, type, size, alias)

    @property
    def mutable(self) -> bool:
        """Return whether the result is an argument that was written to."""
        return self.alias is not None and self.alias.write

    def convert(self, value: Any, without_data: bool = False) -> Any:
        """Convert a kernel's result to the declared type. A Python number for a Tensor becomes a 0-d array.

        With `without_data`, the call computes only shapes and dtypes. Raises TypeError for a number returned instead of
        an argument that was written to.
        """
        array_of = _array if self.mutable else _array_without_data if without_data else _array_of_number
        return _changed(self.type, self.type.convert(value), array_of)

    def __str__(self) -> str:
        text = spell_type(self.type, self.alias, self.size)
        return f"{text} {self.name}" if self.name else text


def _changed(type: Type, value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply the function to every part of a value that is declared as an array."""
    if value is None or not type.contains_arrays:
        return value
    if isinstance(type, OptionalType):
        return _changed(type.inner, value, change)
    if isinstance(type, ListType):
        return tuple([_changed(type.inner, item, change) for item in value])
    if isinstance(type, TupleType):
        return tuple([_changed(inner, item, change) for inner, item in zip(type.items, value, strict=True)])
    if isinstance(type, DictType):
        return {key: _changed(type.value, item, change) for key, item in value.items()}
    return change(value) if type == TENSOR else value


def _array(value: Any) -> Any:
    if _core.is_array(value):
        return value
    raise refusal(TENSOR, value)


def _writable(value: Any) -> Any:
    if _core.is_array(value) and not isinstance(value, np.generic):
        return value
    raise TypeError(f"expected an array to write into, found {described(value)}")


def _array_of_number(value: Any) -> Any:
    if _core.is_array(value):
        return value
    array = np.asarray(value)
    return _array(value) if array.dtype == object else array    # an integer that fits no dtype


def _array_without_data(value: Any) -> Any:
    return value if _core.is_array(value) else _core.MetaArray((), _array_of_number(value).dtype)


class Schema(Frozen):
    """The name, arguments and returns of an operator. A schema that was inferred from a function may have no name.

    `written` holds the positions of the arguments that the operator writes to. `takes_generator` is True if an argument
    is a Generator.
    """

    __slots__ = ("name", "arguments", "returns", "written", "takes_generator")
    name: OperatorName | None
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    written: tuple[int, ...]
    takes_generator: bool

    def __init__(self, name: OperatorName | None, arguments: Iterable[Argument], returns: Iterable[Return]):
        arguments = tuple(arguments)
        written = tuple([i for i, argument in enumerate(arguments) if argument.alias is not None and argument.mutable])
        types = [argument.type for argument in arguments]
        takes_generator = GeneratorType in [type(t.inner) if type(t) is OptionalType else type(t) for t in types]
        self._freeze(name, arguments, tuple(returns), written, takes_generator)

    def _fields(self) -> tuple[Any, ...]:
        return self.name, self.arguments, self.returns

    @property
    def overload(self) -> str:
        return "" if self.name is None else self.name.overload

    @property
    def is_mutable(self) -> bool:
        """Return whether the operator writes to an argument."""
        return bool(self.written)

    def with_name(self, name: OperatorName | str) -> Schema:
        """Return a schema with the same arguments and returns under another name."""
        result = Schema.__new__(Schema)
        result._freeze(parse_name(name) if isinstance(name, str) else name, self.arguments, self.returns, self.written,
                       self.takes_generator)
        return result

    def with_namespace(self, namespace: str) -> Schema:
        """Return this schema in `namespace`, or the same object if its name already has a namespace."""
        if self.name is None or self.name.namespace is not None:
            return self
        return self.with_name(self.name.with_namespace(namespace))

    def __str__(self) -> str:
        parts = []
        kw_only = False
        for argument in self.arguments:
            if argument.kw_only and not kw_only:
                parts.append("*")
                kw_only = True
            parts.append(str(argument))
        returns = ", ".join(map(str, self.returns))
        if len(self.returns) != 1 or returns.startswith("("):
            returns = f"({returns})"
        return f"{'' if self.name is None else self.name}({', '.join(parts)}) -> {returns}"
