"""Names, types and schemas of operators: parse, print, compare, infer, and convert values to declared types.

A schema is a line of text: ``np::add.out(Tensor x1, Tensor x2, *, Tensor(a!) out) -> Tensor(a!)``.
Names, types and schemas are frozen values; reading back what one prints gives an equal one.
"""

# ruff: noqa: RUF023  the order of the slots is the order of the fields
from __future__ import annotations

import collections.abc
import enum
import inspect
import itertools
import numbers
import re
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import RegistrationError, SchemaError
from pydispatch.keys import backend_names

MAX_ARGUMENTS: Final = 64  # positions of arguments are bits of one machine word

# fmt: off
RESERVED_WORDS: Final = frozenset((
    "def", "if", "else", "elif", "while", "return", "is", "True", "False", "None",
    "and", "or", "not", "global", "for", "in", "raise", "assert", "break", "continue",
    "del", "pass", "class", "import", "with", "as", "Ellipsis", "NoneType",
))
# fmt: on


class Value:
    """A frozen value, compared by its fields: the slots, in the order of the constructor."""

    __slots__: tuple[str, ...] = ()

    def _freeze(self, *values: object) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def _fields(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__slots__])

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} is frozen: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} is frozen: cannot delete {name!r}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self), self._fields()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields()


class _Marker:
    """A value that only stands for itself."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


REQUIRED: Final = _Marker("REQUIRED")  # the default of an argument that has none
MISSING: Final = _Marker("MISSING")


# --- names --------------------------------------------------------------------------------------------------


class OperatorName(Value):
    """``namespace::name.overload``; no namespace is None, no overload the empty string."""

    __slots__ = ("namespace", "name", "overload")
    namespace: str | None
    name: str
    overload: str

    def __init__(self, namespace: str | None, name: str, overload: str = ""):
        self._freeze(namespace, name, overload)

    @property
    def qualified(self) -> str:
        """The name without its overload."""
        return self.name if self.namespace is None else f"{self.namespace}::{self.name}"

    def with_namespace(self, namespace: str) -> OperatorName:
        """This name in `namespace`, unless it already has a namespace: then this very object."""
        return self if self.namespace is not None else OperatorName(namespace, self.name, self.overload)

    def __str__(self) -> str:
        return f"{self.qualified}.{self.overload}" if self.overload else self.qualified


def _is_identifier(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def validate_namespace(text: str) -> str:
    """`text`, if it can be the namespace of operators.

    SchemaError otherwise.
    """
    if not isinstance(text, str) or not _is_identifier(text) or text in RESERVED_WORDS:
        why = "a reserved word" if text in RESERVED_WORDS else "not an identifier"
        raise SchemaError(
            f"namespace {text!r} is {why}\nUse ASCII letters, digits and underscores, as in `my_lib`"
        )
    return text


# --- values -------------------------------------------------------------------------------------------------

PYTHON_SCALARS: Final = (bool, int, float, complex)
_NUMBERS: Final = (*PYTHON_SCALARS, np.number, np.bool_)
_INTEGERS: Final = (int, np.integer, np.bool_)
_REALS: Final = (int, float, np.integer, np.floating, np.bool_)

_short = reprlib.Repr()
_short.maxother = _short.maxstring = 60


def _found(expected: Type, value: object) -> str:
    text = " ".join(_short.repr(value).split())
    return f"expected {expected}, found {type(value).__name__} {text}"


def _refusal(expected: Type, value: object) -> TypeError:
    return TypeError(_found(expected, value))


def same_value(a: object, b: object) -> bool:
    """Equality of converted values: 1, 1.0 and True differ, NaN equals NaN, arrays are only themselves."""
    if a is b:
        return True
    if type(a) is not type(b) or _core.is_array(a):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, complex) and isinstance(b, complex):
        return same_value(a.real, b.real) and same_value(a.imag, b.imag)
    return bool(a == b) or (a != a and b != b)


# --- types --------------------------------------------------------------------------------------------------


class Type(Value):
    """A type of the schema language."""

    __slots__ = ()

    @property
    def contains_arrays(self) -> bool:
        """Can a value of this type hold an array, and so choose a kernel?"""
        return False

    def convert(self, value: Any) -> Any:
        """`value` as this type.

        TypeError or ValueError: "expected <type>, found <type name> <short repr>".
        """
        raise NotImplementedError

    def word(self, text: str) -> object:
        """The value that a bare word stands for in a default, or MISSING."""
        return MISSING

    def literal(self, value: Any) -> str:
        """How a converted value is written as a default."""
        return _literal(value)

    def __str__(self) -> str:
        raise NotImplementedError


class _BaseType(Type):
    """A type without parameters; its spelling is an attribute of the class."""

    __slots__ = ()
    spelling: typing.ClassVar[str]

    def __str__(self) -> str:
        return self.spelling


class TensorType(_BaseType):
    """An array; Python scalars pass as they are."""

    __slots__ = ()
    spelling = "Tensor"

    @property
    def contains_arrays(self) -> bool:
        return True

    def convert(self, value: Any) -> Any:
        if _core.is_array(value) or isinstance(value, PYTHON_SCALARS):
            return value
        if isinstance(value, (list, tuple)):
            raise TypeError(f"{_found(self, value)}; lists are not arrays, pass np.asarray(...)")
        raise _refusal(self, value)


class IntType(_BaseType):
    """A Python int."""

    __slots__ = ()
    spelling = "int"

    def convert(self, value: Any) -> int:
        if isinstance(value, _INTEGERS):
            return int(value)
        raise _refusal(self, value)


class FloatType(_BaseType):
    """A Python float."""

    __slots__ = ()
    spelling = "float"

    def convert(self, value: Any) -> float:
        if isinstance(value, _REALS):
            try:
                return float(value)
            except OverflowError:
                raise ValueError(_found(self, value)) from None
        raise _refusal(self, value)


class BoolType(_BaseType):
    """A Python bool; 0 and 1 pass for one."""

    __slots__ = ()
    spelling = "bool"

    def convert(self, value: Any) -> bool:
        if isinstance(value, _INTEGERS) and (value == 0 or value == 1):
            return bool(value)
        raise _refusal(self, value)


class StrType(_BaseType):
    """A Python str."""

    __slots__ = ()
    spelling = "str"

    def convert(self, value: Any) -> str:
        if isinstance(value, str):
            return str(value)
        raise _refusal(self, value)


class ComplexType(_BaseType):
    """A Python complex."""

    __slots__ = ()
    spelling = "complex"

    def convert(self, value: Any) -> complex:
        if isinstance(value, _NUMBERS):
            try:
                return complex(value)
            except OverflowError:
                raise ValueError(_found(self, value)) from None
        raise _refusal(self, value)


class ScalarType(_BaseType):
    """A Python bool, int, float or complex that keeps its kind."""

    __slots__ = ()
    spelling = "Scalar"

    def convert(self, value: Any) -> bool | int | float | complex:
        if isinstance(value, np.generic):
            if isinstance(value, np.floating):
                return float(value)  # item() of a longdouble is a longdouble
            if isinstance(value, np.complexfloating):
                return complex(value)
            if isinstance(value, (np.integer, np.bool_)):
                return value.item()
        elif isinstance(value, PYTHON_SCALARS):
            return value
        raise _refusal(self, value)


class DtypeType(_BaseType):
    """A NumPy dtype, spelled ``ScalarType``."""

    __slots__ = ()
    spelling = "ScalarType"

    def convert(self, value: Any) -> np.dtype[Any]:
        if isinstance(value, np.dtype):
            return value
        # np.dtype would take None for float64 and an array for its dtype.
        if value is None or _core.is_array(value):
            raise _refusal(self, value)
        try:
            dtype: np.dtype[Any] = np.dtype(value)
        except (TypeError, ValueError):
            raise _refusal(self, value) from None
        return dtype

    def word(self, text: str) -> object:
        """The dtype of that name; aliases such as `double` or `f8` are not names."""
        try:
            dtype = np.dtype(text)
        except TypeError:
            return MISSING
        return dtype if dtype.name == text else MISSING


class DeviceType(_BaseType):
    """The name of a backend, in any case of letters."""

    __slots__ = ()
    spelling = "Device"

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            raise _refusal(self, value)
        names = backend_names()
        for name in names:
            if name.lower() == value.lower():
                return name
        raise ValueError(f"{_found(self, value)}; backends: {', '.join(names)}")


class GeneratorType(_BaseType):
    """A numpy.random.Generator."""

    __slots__ = ()
    spelling = "Generator"

    def convert(self, value: Any) -> np.random.Generator:
        if isinstance(value, np.random.Generator):
            return value
        raise _refusal(self, value)


class AnyType(_BaseType):
    """Anything; lists become tuples."""

    __slots__ = ()
    spelling = "Any"

    @property
    def contains_arrays(self) -> bool:
        return True

    def convert(self, value: Any) -> Any:
        return tuple(map(self.convert, value)) if type(value) in (list, tuple) else value


TENSOR: Final = TensorType()
INT: Final = IntType()
FLOAT: Final = FloatType()
BOOL: Final = BoolType()
STR: Final = StrType()
COMPLEX: Final = ComplexType()
SCALAR: Final = ScalarType()
DTYPE: Final = DtypeType()
DEVICE: Final = DeviceType()
GENERATOR: Final = GeneratorType()
ANY: Final = AnyType()

BASE_TYPES: Final[dict[str, Type]] = {
    base.spelling: base
    for base in (TENSOR, INT, FLOAT, BOOL, STR, COMPLEX, SCALAR, DTYPE, DEVICE, GENERATOR, ANY)
}
_NUMERIC: Final = (INT, FLOAT, BOOL, COMPLEX, SCALAR)


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
    """``T[]``: a list or tuple of T; the value is a tuple."""

    __slots__ = ("inner",)
    inner: Type

    def __init__(self, inner: Type):
        self._freeze(inner)

    @property
    def contains_arrays(self) -> bool:
        return self.inner.contains_arrays

    def convert(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, (list, tuple)):
            return _convert_items(self, value, itertools.repeat(self.inner))
        raise _refusal(self, value)

    def word(self, text: str) -> object:
        return self.inner.word(text)

    def literal(self, value: Any) -> str:
        return f"[{', '.join(map(self.inner.literal, value))}]"

    def __str__(self) -> str:
        return f"{self.inner}[]"


class TupleType(Type):
    """``(A, B)``: a tuple of exactly these."""

    __slots__ = ("items",)
    items: tuple[Type, ...]

    def __init__(self, items: Iterable[Type]):
        self._freeze(tuple(items))

    @property
    def contains_arrays(self) -> bool:
        return any(item.contains_arrays for item in self.items)

    def convert(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _refusal(self, value)
        if len(value) != len(self.items):
            raise ValueError(f"{_found(self, value)} of length {len(value)}")
        return _convert_items(self, value, self.items)

    def word(self, text: str) -> object:
        return _first_word(self.items, text)

    def literal(self, value: Any) -> str:
        items = [item.literal(x) for item, x in zip(self.items, value, strict=True)]
        return f"[{', '.join(items)}]"

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


class DictType(Type):
    """``Dict(K, V)``; the value is a new dict."""

    __slots__ = ("key", "value")
    key: Type
    value: Type

    def __init__(self, key: Type, value: Type):
        self._freeze(key, value)

    @property
    def contains_arrays(self) -> bool:
        return self.value.contains_arrays

    def convert(self, value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _refusal(self, value)
        keys = _convert_items(self, value, itertools.repeat(self.key))
        values = _convert_items(self, value.values(), itertools.repeat(self.value))
        return dict(zip(keys, values, strict=True))

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value})"


class UnionType(Type):
    """``Union(A, B)``: the first that takes the value and keeps its kind, else the first that takes it."""

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
        raise _refusal(self, value)

    def word(self, text: str) -> object:
        return _first_word(self.members, text)

    def literal(self, value: Any) -> str:
        for member in self.members:
            try:
                if same_value(member.convert(value), value):
                    return member.literal(value)
            except (TypeError, ValueError):
                continue
        return _literal(value)

    def __str__(self) -> str:
        return f"Union({', '.join(map(str, self.members))})"


class EnumType(Type):
    """A registered enumeration; defaults are written ``Color.RED``."""

    __slots__ = ("name", "cls")
    name: str
    cls: type[enum.Enum]

    def __init__(self, name: str, cls: type[enum.Enum]):
        self._freeze(name, cls)

    def convert(self, value: Any) -> enum.Enum:
        if isinstance(value, self.cls):
            return value
        raise _refusal(self, value)

    def word(self, text: str) -> object:
        name, _, member = text.partition(".")
        return self.cls.__members__.get(member, MISSING) if name == self.name else MISSING

    def literal(self, value: Any) -> str:
        return f"{self.name}.{value.name}"

    def __str__(self) -> str:
        return self.name


class OpaqueType(Type):
    """A registered class of the user.

    It counts as holding arrays: whether the class can be flattened into arrays is asked at each call, so that
    it does not matter which was registered first, the operator or the flattening.
    """

    __slots__ = ("name", "cls")
    name: str
    cls: type

    def __init__(self, name: str, cls: type):
        self._freeze(name, cls)

    @property
    def contains_arrays(self) -> bool:
        return True

    def convert(self, value: Any) -> Any:
        if isinstance(value, self.cls):
            return value
        raise _refusal(self, value)

    def __str__(self) -> str:
        return self.name


def _as(outer: Type, inner: Type, error: TypeError | ValueError) -> TypeError | ValueError:
    """The error of a part of a type, told of the whole."""
    text = str(error).replace(f"expected {inner}", f"expected {outer}", 1)
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def _convert_items(whole: Type, values: Collection[Any], item_types: Iterable[Type]) -> tuple[Any, ...]:
    converted: list[Any] = []
    try:
        for item_type, value in zip(item_types, values, strict=False):
            converted.append(item_type.convert(value))  # its length tells where an error happened
    except (TypeError, ValueError) as error:
        text = f"{_found(whole, values)} (element {len(converted)}: {error})"
        raise (TypeError if isinstance(error, TypeError) else ValueError)(text) from None
    return tuple(converted)


def _first_word(members: Iterable[Type], text: str) -> object:
    return next((value for member in members if (value := member.word(text)) is not MISSING), MISSING)


def optional(inner: Type) -> Type:
    """``T?``; a type that is already optional is left as it is."""
    return inner if isinstance(inner, OptionalType) else OptionalType(inner)


def union(members: Iterable[Type | None]) -> Type:
    """``Union(...)`` in its simplest form; None among the members makes it optional.

    ValueError when no type is left.
    """
    flat: dict[Type, None] = {}
    is_optional = False
    for member in members:
        if member is None or isinstance(member, OptionalType):
            is_optional = True
        inner = member.inner if isinstance(member, OptionalType) else member
        if inner is not None:
            flat.update(dict.fromkeys(inner.members if isinstance(inner, UnionType) else (inner,)))
    if not flat:
        raise ValueError("a Union needs at least one type besides None")
    whole = UnionType(flat) if len(flat) > 1 else next(iter(flat))
    return optional(whole) if is_optional else whole


# --- types of the user --------------------------------------------------------------------------------------

_registered: dict[str, EnumType | OpaqueType] = {}
_type_of_class: dict[type, EnumType | OpaqueType] = {}

# Names that other dispatchers know, and what to write here.
_NO_MEANING: Final = "it means nothing to NumPy; leave the argument out"
_DROPPED: Final = {
    "SymInt": "sizes are always known: write `int`",
    "SymBool": "conditions are always known: write `bool`",
    "DeviceIndex": "write `int`",
    "Layout": _NO_MEANING,
    "MemoryFormat": f"{_NO_MEANING}, or write `str order`",
    "Stream": _NO_MEANING,
    "Storage": "write `Tensor`",
    "QScheme": _NO_MEANING,
    "Quantizer": _NO_MEANING,
    "ConstQuantizerPtr": _NO_MEANING,
    "Capsule": "register the Python class: register_opaque_type(cls)",
    "Future": "write `Any`, or register the class: register_opaque_type(cls)",
    "RRef": "write `Any`, or register the class: register_opaque_type(cls)",
    "Await": "write `Any`, or register the class: register_opaque_type(cls)",
    "AnyClassType": "write `Any`",
    "AnyEnumType": "register the enumeration: register_opaque_type(cls)",
    "__torch__": "register the Python class: register_opaque_type(cls)",
}
# fmt: off
_SPELLINGS: Final = {
    "double": "float", "half": "float", "single": "float", "float64": "float", "float32": "float",
    "int64_t": "int", "int64": "int", "int32": "int", "uint64": "int", "size_t": "int", "integer": "int",
    "long": "int", "boolean": "bool", "string": "str", "number": "Scalar", "array": "Tensor",
    "ndarray": "Tensor", "dtype": "ScalarType", "optional": "T?",
    "list": "T[]", "sequence": "T[]", "intlist": "int[]",
    "tensorlist": "Tensor[]", "tuple": "(A, B)", "object": "Any", "callable": "Any", "none": "T?",
    "nonetype": "T?", "void": "()",
}
# fmt: on
_SPELLINGS.update((name.lower(), name) for name in (*BASE_TYPES, "Dict", "Union"))


def register_opaque_type(cls: type, name: str | None = None) -> None:
    """Let schemas name `cls`, by its own name or by `name`.

    An enum.Enum becomes a type whose defaults are written ``Color.RED``; any other class an opaque type.
    RegistrationError when the name is not an identifier, is taken, or the class already has another name.
    """
    name = cls.__name__ if name is None else name
    if not _is_identifier(name) or name in RESERVED_WORDS:
        raise RegistrationError(
            f"type {name!r}: not an identifier of the schema language\nGive it one: "
            f"register_opaque_type({cls.__name__}, name='MyType')"
        )
    if name in BASE_TYPES or name in _DROPPED or name in ("Dict", "Union"):
        raise RegistrationError(
            f"type {name!r}: the schema language itself uses this name\nGive it another: "
            f"register_opaque_type({cls.__name__}, name='My{name}')"
        )
    known = _type_of_class.get(cls)
    taken = _registered.get(name)
    if known is not None and known is taken:
        return
    if known is not None:
        raise RegistrationError(
            f"type {name!r}: {cls.__qualname__} is registered as {known.name!r}\n"
            f"Remove that first: unregister_opaque_type({known.name!r})"
        )
    if taken is not None:
        raise RegistrationError(
            f"type {name!r}: the name is taken by {taken.cls.__module__}.{taken.cls.__qualname__}\n"
            f"Give it another name, or remove the old one first: unregister_opaque_type({name!r})"
        )
    new = EnumType(name, cls) if issubclass(cls, enum.Enum) else OpaqueType(name, cls)
    _registered[name] = _type_of_class[cls] = new


def unregister_opaque_type(cls: type | str) -> None:
    """Forget a class, given itself or its name; schemas that already use it keep it.

    RegistrationError when it is not registered.
    """
    known = _registered.get(cls) if isinstance(cls, str) else _type_of_class.get(cls)
    if known is None:
        names = ", ".join(_registered) or "none"
        raise RegistrationError(f"type {cls!r} is not registered\nThese are: {names}")
    del _registered[known.name], _type_of_class[known.cls]


def _why_unknown(name: str) -> tuple[str, str]:
    """The error and the remedy for a name that is not a type."""
    if name in _DROPPED:
        return f"type {name!r} does not exist here", _DROPPED[name]
    spelling = _SPELLINGS.get(name.lower())
    if spelling is not None:
        return f"unknown type {name!r}", f"write `{spelling}`"
    if len(name) == 1 or (name.islower() and len(name) <= 2):
        return f"unknown type {name!r}; there are no type variables", "write `Any`"
    known = ", ".join((*BASE_TYPES, *_registered))
    return f"unknown type {name!r}", f"types: {known}, T?, T[], (A, B), Dict(K, V), Union(A, B)"


# --- schemas ------------------------------------------------------------------------------------------------

_NO_SETS: Final[frozenset[str]] = frozenset()


class AliasInfo(Value):
    """Alias sets before and after the call, and whether the value is written to.

    `contained` is the annotation of a list's elements. A bare ``!`` is a written set of its own: no names. A
    list whose elements alone are annotated has no names either, and is written to when they are.
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


def _spell(type: Type, alias: AliasInfo | None, size: int | None) -> str:
    """A type with its annotations and size hint."""
    if isinstance(type, OptionalType):
        return f"{_spell(type.inner, alias, size)}?"
    mark = "" if alias is None else str(alias)
    if isinstance(type, ListType):
        inner = _spell(type.inner, None if alias is None else alias.contained, None)
        return f"{inner}[{'' if size is None else size}]{mark}"
    return f"{type}{mark}"


class Argument(Value):
    """An argument of a schema; `size` is the hint N of ``T[N]``."""

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
        """Is the value written to?"""
        alias = self.alias
        while alias is not None:
            if alias.write:
                return True
            alias = alias.contained
        return False

    @property
    def is_out(self) -> bool:
        """Does the caller pass it, by keyword, to receive a result?"""
        return self.kw_only and self.mutable

    def convert(self, value: Any) -> Any:
        """`value` as the declared type; one number for a list of N numbers is repeated N times.

        TypeError or ValueError: "expected <type>, found <type name> <short repr>".
        """
        if self.size is not None and isinstance(value, _NUMBERS) and _is_list_of_numbers(self.type):
            value = (value,) * self.size
        return self.type.convert(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Argument):
            return NotImplemented
        return self._but_default() == other._but_default() and same_value(self.default, other.default)

    def __hash__(self) -> int:
        return hash(self._but_default())

    def _but_default(self) -> tuple[Any, ...]:
        return self.name, self.type, self.size, self.kw_only, self.alias

    def __str__(self) -> str:
        text = f"{_spell(self.type, self.alias, self.size)} {self.name}"
        return f"{text}={self._default_literal()}" if self.has_default else text

    def _default_literal(self) -> str:
        value = self.default
        if self.size is not None and isinstance(value, tuple) and len(value) == self.size > 1:
            first = value[0]
            if type(first) is int and value == (first,) * self.size:
                return repr(first)
        return self.type.literal(value)


def _is_list_of_numbers(type: Type) -> bool:
    outer = type.inner if isinstance(type, OptionalType) else type
    if not isinstance(outer, ListType):
        return False
    inner = outer.inner
    return (inner.inner if isinstance(inner, OptionalType) else inner) in _NUMERIC


class Return(Value):
    """A result of a schema; the name may be empty."""

    __slots__ = ("name", "type", "size", "alias")
    name: str
    type: Type
    size: int | None
    alias: AliasInfo | None

    def __init__(self, name: str, type: Type, size: int | None = None, alias: AliasInfo | None = None):
        self._freeze(name, type, size, alias)

    @property
    def mutable(self) -> bool:
        """Is it an argument that was written to?"""
        return self.alias is not None and self.alias.write

    def convert(self, value: Any) -> Any:
        """A kernel's result as the declared type; unlike an argument, a Python scalar is no array here."""
        converted = self.type.convert(value)
        if _innermost(self.type) == TENSOR:
            for leaf in _leaves(converted):
                if leaf is not None and not _core.is_array(leaf):
                    raise _refusal(TENSOR, leaf)
        return converted

    def __str__(self) -> str:
        text = _spell(self.type, self.alias, self.size)
        return f"{text} {self.name}" if self.name else text


def _innermost(type: Type) -> Type:
    while isinstance(type, (OptionalType, ListType)):
        type = type.inner
    return type


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


class Schema(Value):
    """What an operator takes and returns; one inferred from a function may have no name."""

    __slots__ = ("name", "arguments", "returns")
    name: OperatorName | None
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]

    def __init__(self, name: OperatorName | None, arguments: Iterable[Argument], returns: Iterable[Return]):
        self._freeze(name, tuple(arguments), tuple(returns))

    @property
    def overload(self) -> str:
        return "" if self.name is None else self.name.overload

    @property
    def is_mutable(self) -> bool:
        """Does the operator write to an argument?"""
        return any(argument.mutable for argument in self.arguments)

    def with_name(self, name: OperatorName | str) -> Schema:
        """The same arguments and returns under another name."""
        return Schema(parse_name(name) if isinstance(name, str) else name, self.arguments, self.returns)

    def with_namespace(self, namespace: str) -> Schema:
        """This schema in `namespace`, unless its name already has a namespace: then this very object."""
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


# --- literals -----------------------------------------------------------------------------------------------

_ESCAPES: Final = dict(zip("\\'\"ntabfv", "\\'\"\n\t\a\b\f\v", strict=True))
_ESCAPED: Final = {ord(char): f"\\{letter}" for letter, char in _ESCAPES.items()}
_ESCAPED.update((code, f"\\{code:03o}") for code in (*range(32), 127) if code not in _ESCAPED)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|.)", re.DOTALL)


def _literal(value: Any) -> str:
    """A Python value as a default is written, whatever the declared type."""
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPED)}"'
    if isinstance(value, complex):
        return repr(value).strip("()")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, np.dtype):
        is_word = _is_identifier(value.name) and DTYPE.word(value.name) == value
        return value.name if is_word else _literal(value.str)
    return repr(value)


# --- the parser ---------------------------------------------------------------------------------------------

# Strings, names, numbers, then text that merely starts like a number, then marks.
_TOKEN: Final = re.compile(
    r'''("""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*\''''
    r"""|[A-Za-z_]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?(?![\w.])|\.?\d[\w.]*"""
    r"""|::|->|\.\.\.|\#[^\n]*|\n|[^ \t\r])""",
    re.ASCII | re.DOTALL,
)
_NUMERAL: Final = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)j?", re.ASCII)
_CONSTANTS: Final = {"True": True, "False": False, "None": None}
_LARGEST_INT: Final = 2**63


def _tokens(text: str) -> list[tuple[str, int]]:
    """Tokens and their offsets, without comments and the line ends that mean nothing."""
    tokens: list[tuple[str, int]] = []
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token == "(") - (token == ")")
        is_blank = token == "\n" and (depth > 0 or not text[match.end() :].strip(" \t\r"))
        if not is_blank and not token.startswith("#"):
            tokens.append((token, match.start()))
    tokens.append(("", len(text.rstrip())))
    return tokens


class _Parser:
    """Recursive descent; one method for each line of the grammar, `token` is the next one."""

    __slots__ = ("at", "depth", "text", "token", "tokens", "what")

    def __init__(self, text: str, what: str):
        if not isinstance(text, str):
            raise SchemaError(f"expected a {what} as text, found {type(text).__name__} {_short.repr(text)}")
        self.text = text
        self.what = what
        self.tokens: list[str]
        if "\n" in text or "#" in text:
            self.tokens = [token for token, _ in _tokens(text)]
        else:
            self.tokens = _TOKEN.findall(text)
            self.tokens.append("")
        self.at = 0
        self.token = self.tokens[0]
        self.depth = 0  # of brackets within a type

    def fail(self, message: str, remedy: str = "", at: int | None = None) -> NoReturn:
        """Show the text with a caret under the token."""
        offset = _tokens(self.text)[self.at if at is None else at][1]
        start = self.text.rfind("\n", 0, offset) + 1
        line = self.text[start:].partition("\n")[0]
        blank = re.sub(r"[^\t]", " ", line[: offset - start])
        remedy = f"\n{remedy[0].upper()}{remedy[1:]}" if remedy else ""
        raise SchemaError(f"cannot read {self.what}: {message}{remedy}\n    {line}\n    {blank}^")

    def expected(self, what: str, remedy: str = "") -> NoReturn:
        self.fail(f"expected {what}, found {self.found()}", remedy)

    def found(self) -> str:
        if self.token == "":
            return "the end of the text"
        return "the end of the line" if self.token == "\n" else repr(self.token)

    def advance(self) -> str:
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self.at += 1
        self.token = self.tokens[self.at]
        return True

    def expect(self, token: str, what: str, remedy: str = "") -> None:
        if self.token != token:
            self.expected(what, remedy)
        self.at += 1
        self.token = self.tokens[self.at]

    def identifier(self, what: str, remedy: str = "") -> str:
        token = self.token
        if token in RESERVED_WORDS:
            self.fail(f"expected {what}, found the reserved word {token!r}", "choose another name")
        if not _is_identifier(token):
            self.expected(what, remedy)
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def end(self) -> None:
        if self.token != "":
            self.expected(f"the end of the {self.what}", "one text declares one operator")

    # names

    def name(self) -> OperatorName:
        name = self.identifier("the name of an operator")
        namespace = None
        if self.accept("::"):
            namespace, name = name, self.identifier("the name of an operator after '::'")
        if not self.accept("."):
            return OperatorName(namespace, name)
        overload = self.identifier("the name of an overload after '.'")
        if overload == "default" or overload.startswith("__"):
            self.fail(
                f"{overload!r} is not a legal overload name",
                "leave it out, or choose one that is neither `default` nor starts with `__`",
                self.at - 1,
            )
        return OperatorName(namespace, name, overload)

    # schemas

    def schema(self, name: OperatorName | None) -> Schema:
        arguments = self.arguments()
        self.expect("->", "'->' and what is returned", "`-> ()` returns nothing")
        returns = self.returns()
        self.end()
        return Schema(name, arguments, returns)

    def arguments(self) -> tuple[Argument, ...]:
        self.expect("(", "'(' and the arguments")
        arguments: list[Argument] = []
        names: set[str] = set()
        kw_only = False
        if self.accept(")"):
            return ()
        while True:
            if self.accept("*"):
                kw_only = True
            else:
                argument = self.argument(kw_only, arguments, names)
                names.add(argument.name)
                arguments.append(argument)
            if not self.accept(","):
                break
        self.expect(")", "',' or ')' after an argument")
        return tuple(arguments)

    def argument(self, kw_only: bool, before: list[Argument], names: set[str]) -> Argument:
        if len(before) == MAX_ARGUMENTS:
            self.fail(f"more than {MAX_ARGUMENTS} arguments", "take a list: `Tensor[] xs`")
        type, size, alias = self.type()
        at = self.at
        name = self.identifier("the name of the argument", "write it after the type: `Tensor x`")
        if name in names:
            self.fail(f"two arguments are named {name!r}", "", at)
        argument = Argument(name, type, size, REQUIRED, kw_only, alias)
        if self.accept("="):
            return Argument(name, type, size, self.default(argument), kw_only, alias)
        if before and before[-1].has_default and not kw_only and not isinstance(type, ListType):
            self.fail(
                f"argument {name!r} has no default, but {before[-1].name!r} before it has one",
                f"give it a default, or make it keyword-only: `*, {argument}`",
                at,
            )
        return argument

    def returns(self) -> tuple[Return, ...]:
        if not self.accept("("):
            return (self.result(),)
        returns: list[Return] = []
        names: set[str] = set()
        if self.accept(")"):
            return ()
        while True:
            result = self.result()
            if result.name in names:
                self.fail(f"two returns are named {result.name!r}", "", self.at - 1)
            if result.name:
                names.add(result.name)
            returns.append(result)
            if not self.accept(","):
                break
        self.expect(")", "',' or ')' after a return")
        return tuple(returns)

    def result(self) -> Return:
        type, size, alias = self.type()
        if not _is_identifier(self.token):
            return Return("", type, size, alias)
        return Return(self.identifier("the name of the return"), type, size, alias)

    # types

    def type(self) -> tuple[Type, int | None, AliasInfo | None]:
        """A type, its size hint and its annotation."""
        type = self.atom()
        alias = None
        if self.token == "(" or self.token == "!":
            if isinstance(type.inner if isinstance(type, OptionalType) else type, TupleType):
                self.fail("no alias annotation on a tuple", "take a list: `Tensor(a!)[] xs`")
            alias = self.alias()
        size: int | None = None
        while True:
            if self.accept("?"):
                type = optional(type)
            elif self.token == "[":
                if size is not None:
                    self.fail("a size hint is allowed on the outermost list only", f"write `{type}[]`")
                self.advance()
                size = self.size()
                self.expect("]", "']' or a size hint")
                type = ListType(type)
                alias = self.list_alias(alias)
            else:
                return type, size, alias

    def size(self) -> int | None:
        if self.token == "]":
            return None
        if self.depth:
            self.fail("no size hint inside a tuple, Dict or Union", "write `[]`")
        if not self.token.isdecimal():
            self.expected("']' or the size of the list", "`int[]`, or `int[2]` to repeat a single int")
        return int(self.advance())

    def list_alias(self, contained: AliasInfo | None) -> AliasInfo | None:
        own = self.alias() if self.token == "(" or self.token == "!" else None
        if own is not None:
            return AliasInfo(own.before, own.write, own.after, contained)
        return contained and AliasInfo(_NO_SETS, contained.write, _NO_SETS, contained)

    def atom(self) -> Type:
        token = self.token
        if token in BASE_TYPES:
            self.advance()
            return BASE_TYPES[token]
        if token in _registered:
            self.advance()
            return _registered[token]
        if token == "(":
            self.advance()
            return TupleType(self.type_list(self.plain_type))
        if token == "Dict":
            self.advance()
            self.expect("(", "'('", "write `Dict(str, Tensor)`")
            key, *rest = self.type_list(self.plain_type) or (None,)
            if key is None or len(rest) != 1:
                self.fail("a Dict has two types", "write `Dict(str, Tensor)`", self.at - 1)
            return DictType(key, rest[0])
        if token == "Union":
            self.advance()
            self.expect("(", "'('", "write `Union(int, str)`")
            members = self.type_list(self.union_member)
            try:
                return union(members)
            except ValueError as error:
                self.fail(str(error), "write `Union(int, None)`", self.at - 1)
        if token == "...":
            self.fail("'...' is not part of this language", "take a list: `Tensor[] xs`")
        if token in ("*", "=") or not _is_identifier(token) or token in RESERVED_WORDS - {"None", "NoneType"}:
            self.expected("a type")
        return self.fail_unknown(token)

    def fail_unknown(self, name: str) -> NoReturn:
        at = self.at
        message, remedy = _why_unknown(name)
        wraps = {"T?": "?", "T[]": "[]"}.get(_SPELLINGS.get(name.lower(), ""))
        following = self.tokens[at + 1 : at + 4]
        if wraps and following[:1] == ["["] and following[2:] == ["]"] and following[1] in BASE_TYPES:
            remedy = f"write `{following[1]}{wraps}`"  # Optional[int], List[int]
        self.fail(message, remedy, at)

    def type_list(self, item: Callable[[], Any]) -> tuple[Any, ...]:
        """Types up to the closing parenthesis."""
        self.depth += 1
        items = []
        if self.token != ")":
            items.append(item())
            while self.accept(","):
                items.append(item())
        self.depth -= 1
        self.expect(")", "',' or ')' after a type")
        return tuple(items)

    def plain_type(self) -> Type:
        return self.type()[0]

    def union_member(self) -> Type | None:
        if self.accept("None") or self.accept("NoneType"):
            return None
        return self.plain_type()

    def alias(self) -> AliasInfo:
        if self.depth:
            self.fail("no alias annotation inside a tuple, Dict or Union", "take a list: `Tensor(a!)[] xs`")
        if self.accept("!"):
            return AliasInfo(_NO_SETS, True)
        self.advance()
        before = self.alias_set()
        write = self.accept("!")
        after = self.alias_set() if self.accept("->") else before
        self.expect(")", "')' after an alias annotation", "write `(a)`, `(a!)`, `(a|b!)` or `(a -> b)`")
        return AliasInfo(before, write, after)

    def alias_set(self) -> frozenset[str]:
        names = [self.alias_name()]
        while self.accept("|"):
            names.append(self.alias_name())
        return frozenset(names)

    def alias_name(self) -> str:
        if self.accept("*"):
            return "*"
        return self.identifier("the name of an alias set", "write `(a)` or `(a!)`")

    # defaults

    def default(self, argument: Argument) -> Any:
        """The literal after '=', converted to the argument's type."""
        at = self.at
        value = self.literal(argument.type)
        outer = argument.type.inner if isinstance(argument.type, OptionalType) else argument.type
        where = f"argument {argument.name!r} of type {_spell(argument.type, None, argument.size)}"
        if value is not None and outer.contains_arrays and outer != ANY:
            remedy = f"write `{optional(outer)} {argument.name}=None`"
            self.fail(f"{where}: an array has no literal", remedy, at)
        try:
            return argument.convert(value)
        except (TypeError, ValueError) as error:
            self.fail(f"{where} cannot have this default: {error}", "", at)

    def literal(self, type: Type) -> Any:
        token = self.token
        if token == "[":
            return self.list_literal(type)
        if token[:1] in ("'", '"') and len(token) > 1:
            return self.string_literal()
        if token in _CONSTANTS:
            self.advance()
            return _CONSTANTS[token]
        if token == "-" or token[:1].isdecimal() or _NUMERAL.fullmatch(token):
            return self.number_literal()
        if not _is_identifier(token):
            self.expected("a default")
        return self.word_literal(type)

    def list_literal(self, type: Type) -> tuple[Any, ...]:
        self.advance()
        items = []
        if self.token != "]":
            items.append(self.literal(type))
            while self.accept(","):
                items.append(self.literal(type))
        self.expect("]", "',' or ']' in a list")
        return tuple(items)

    def string_literal(self) -> str:
        quotes = 3 if self.token[:3] in ('"""', "'''") else 1
        body = self.token[quotes:-quotes]

        def unescape(match: re.Match[str]) -> str:
            code = match[1]
            if code not in _ESCAPES and len(code) == 1:
                self.fail(f"unknown escape '\\{code}'", "write the character itself, or `\\ooo` in octal")
            return _ESCAPES[code] if len(code) == 1 else chr(int(code, 8))

        value = _ESCAPE.sub(unescape, body)
        self.advance()
        return value

    def number_literal(self) -> int | float | complex:
        at = self.at
        text = "-" if self.accept("-") else ""
        text += self.numeral()
        if not text.endswith("j") and self.token in ("+", "-"):
            text += self.advance() + self.numeral()
            if not text.endswith("j"):
                self.fail("expected an imaginary part such as `1j`", "", self.at - 1)
        if text.endswith("j"):
            return complex(text)
        if not text.removeprefix("-").isdecimal():
            return float(text)
        value = int(text) if len(text) < 25 else _LARGEST_INT
        if not -_LARGEST_INT <= value < _LARGEST_INT:
            self.fail(f"the integer {text} has more than 64 bits", "", at)
        return value

    def numeral(self) -> str:
        if not _NUMERAL.fullmatch(self.token):
            self.expected("a number", "numbers are decimal: `16`, `1.5`, `1e-3`, `2j`")
        return self.advance()

    def word_literal(self, type: Type) -> Any:
        at = self.at
        text = self.advance()
        if self.accept("."):
            text += f".{self.identifier('the name of a member')}"
        value = type.word(text)
        if value is MISSING:
            remedy = "" if isinstance(type, EnumType) or type == DTYPE else f"quote a string: `'{text}'`"
            if DTYPE in (type, getattr(type, "inner", None)):
                remedy = "write the name of a dtype: `float64`"
            if isinstance(type, EnumType):
                remedy = f"write one of its members: {', '.join(map(type.literal, type.cls))}"
            self.fail(f"{text!r} is not a value of type {type}", remedy, at)
        return value


def parse_name(text: str) -> OperatorName:
    """Read ``namespace::name.overload``.

    SchemaError with a caret under the token that does not fit.
    """
    parser = _Parser(text, "name")
    name = parser.name()
    if parser.token == "(":
        parser.fail("expected a name, found a schema", f"leave out the arguments: `{name}`")
    parser.end()
    return name


def parse_schema(text: str) -> Schema:
    """Read ``namespace::name.overload(arguments) -> returns``.

    SchemaError with a caret under the token that does not fit.
    """
    parser = _Parser(text, "schema")
    name = parser.name()
    if parser.token == "":
        parser.fail("expected a schema, found a name", f"write `{name}(Tensor x) -> Tensor`")
    return parser.schema(name)


def parse_signature(text: str) -> Schema:
    """Read ``(arguments) -> returns``: a schema without a name."""
    return _Parser(text, "schema").schema(None)


def parse_schema_or_name(text: str) -> Schema | OperatorName:
    """Read either; a parenthesis after the name makes it a schema."""
    parser = _Parser(text, "schema")
    name = parser.name()
    if parser.token == "(":
        return parser.schema(name)
    parser.end()
    return name


# --- strict schemas -----------------------------------------------------------------------------------------


def check_strict(schema: Schema | str, tags: Iterable[str] = ()) -> None:
    """Hold a schema to the stricter dialect of library operators, and to its tags.

    A text must be what its schema prints. Alias sets are single lower-case letters, written ones have one
    member; returns are all written or none, and if written the out arguments in order, or the first argument.
    SchemaError otherwise.
    """
    if isinstance(schema, str):
        text, schema = schema, parse_schema(schema)
        _demand(text == str(schema), schema, f"the text {text!r} is not canonical", f"write `{schema}`")
    values: tuple[Argument | Return, ...] = (*schema.arguments, *schema.returns)
    for alias in [value.alias for value in values]:
        while alias is not None:
            for name in alias.before | alias.after:
                is_letter = len(name) == 1 and (name.islower() or name == "*")
                _demand(is_letter, schema, f"alias set {name!r}", "name it by one lower-case letter: `(a!)`")
            is_single = len(alias.before) < 2 or not alias.write
            _demand(is_single, schema, f"{alias} writes to several sets", "name one: `(a!)`")
            alias = alias.contained
    outs = [argument for argument in schema.arguments if argument.is_out]
    written = [result for result in schema.returns if result.mutable]
    is_uniform = len(written) in (0, len(schema.returns))
    _demand(is_uniform, schema, "some returns are written to, some are not", "annotate all or none")
    if outs:
        _demand_outs_returned(schema, outs)
    elif written:
        allowed = [argument.alias for argument in schema.arguments[:1] if argument.mutable]
        fits = [result.alias for result in written] == allowed
        message = "a written return is neither an out argument nor the first argument"
        _demand(fits, schema, message, "annotate both alike: `(a!)`")
    check_tags(schema, tags)


def check_tags(schema: Schema, tags: Iterable[str]) -> None:
    """Do the tags `out` and `inplace` hold for this schema? Other tags mean nothing here.

    SchemaError otherwise.
    """
    mutable = [argument for argument in schema.arguments if argument.mutable]
    for tag in tags:
        if tag == "out":
            remedy = "write it like `f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`"
            _demand(bool(mutable), schema, "tagged `out`, but no argument is written to", remedy)
            for argument in mutable:
                fits = argument.kw_only and argument.type == TENSOR
                _demand(fits, schema, f"tagged `out`, but `{argument}` is not a keyword-only array", remedy)
            _demand_outs_returned(schema, mutable)
        elif tag == "inplace":
            remedy = "write it like `f_(Tensor(a!) x) -> Tensor(a!)`"
            fits = len(mutable) == 1 and mutable[0] is schema.arguments[0]
            fits = fits and mutable[0].type == TENSOR and not mutable[0].kw_only
            _demand(
                fits, schema, "tagged `inplace`, but it does not write to its first argument alone", remedy
            )
            returned = [(result.type, result.alias) for result in schema.returns]
            fits = returned == [(TENSOR, mutable[0].alias)]
            _demand(fits, schema, "tagged `inplace`, but it does not return its first argument", remedy)


def _demand_outs_returned(schema: Schema, outs: list[Argument]) -> None:
    returned = [(result.type, result.alias) for result in schema.returns]
    fits = returned == [(argument.type, argument.alias) for argument in outs]
    types = ", ".join(_spell(argument.type, argument.alias, argument.size) for argument in outs)
    _demand(fits, schema, "the returns are not the out arguments in order", f"return `({types})`")


def _demand(condition: bool, schema: Schema, message: str, remedy: str) -> None:
    if not condition:
        raise SchemaError(f"{schema}: {message}\n{remedy[0].upper()}{remedy[1:]}")


# --- inference from annotations -----------------------------------------------------------------------------

_LISTS: Final = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
_DICTS: Final = (dict, collections.abc.Mapping)
_TYPE_OF_BUILTIN: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    complex: COMPLEX,
    str: STR,
    numbers.Number: SCALAR,
    np.dtype: DTYPE,
    type: DTYPE,
}
_MAPPABLE: Final = (
    "np.ndarray, int, float, bool, str, complex, numbers.Number, np.dtype, X | None, list[X], tuple[X, ...], "
    "tuple[X, Y], dict[K, V], or a class after register_opaque_type(cls)"
)


class _UnmappedError(Exception):
    """An annotation that no schema type stands for; the text is the remedy."""


Evaluate = Callable[[str], Any]


def _evaluator(fn: Callable[..., Any]) -> Evaluate:
    """Evaluates annotations given as text, among the names that the function sees."""
    function = inspect.unwrap(fn)
    function = getattr(function, "func", function)  # of a functools.partial
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


def _resolve(annotation: Any, evaluate: Evaluate) -> Any:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    try:
        return evaluate(annotation)
    except Exception as error:  # an annotation may be any expression
        raise _UnmappedError(
            f"it could not be evaluated ({error}); use names that the module defines"
        ) from error


def _type_of(annotation: Any, evaluate: Evaluate) -> Type:
    """The schema type of an annotation."""
    annotation = _resolve(annotation, evaluate)
    if isinstance(annotation, Type):
        return annotation
    if annotation is Any:
        return ANY
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is None:
        return _type_of_plain(annotation)
    if origin is typing.Annotated:
        return _type_of(arguments[0], evaluate)
    if origin is typing.Literal:
        return union(None if value is None else _type_of_plain(type(value)) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return union(None if item is types.NoneType else _type_of(item, evaluate) for item in arguments)
    if origin in _LISTS or (origin is tuple and arguments[1:] == (...,)):
        return ListType(_type_of(arguments[0], evaluate))
    if origin is tuple:
        return TupleType(_type_of(item, evaluate) for item in arguments)
    if origin in _DICTS:
        return DictType(*(_type_of(item, evaluate) for item in arguments))
    return _type_of_plain(origin)


def _type_of_plain(annotation: Any) -> Type:
    if isinstance(annotation, type):
        known = _type_of_class.get(annotation) or _TYPE_OF_BUILTIN.get(annotation)
        if known is not None:
            return known
        if _core.is_array_type(annotation):
            return TENSOR
        if annotation.__name__ == "Generator" and annotation.__module__.startswith("numpy.random"):
            return GENERATOR  # np.random is imported lazily
        if annotation in _LISTS:
            raise _UnmappedError(f"say of what: {annotation.__name__}[int]")
        if annotation in _DICTS or annotation is tuple:
            raise _UnmappedError(f"say of what: {annotation.__name__}[str, int]")
        if issubclass(annotation, enum.Enum):
            raise _UnmappedError(f"register it: register_opaque_type({annotation.__name__})")
    raise _UnmappedError(f"use {_MAPPABLE}")


def _returned_types(annotation: Any, evaluate: Evaluate) -> tuple[Type, ...]:
    """The types of several results for a tuple of them, of none for None."""
    annotation = _resolve(annotation, evaluate)
    if annotation is None or annotation is types.NoneType:
        return ()
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and arguments[1:] != (...,):
        if len(arguments) < 2:
            raise _UnmappedError("return None, the value itself, or a tuple of two or more")
        return tuple([_type_of(item, evaluate) for item in arguments])
    return (_type_of(annotation, evaluate),)


def infer_schema(
    fn: Callable[..., Any], *, mutates_args: Collection[str] = (), name: OperatorName | str | None = None
) -> Schema:
    """The schema of a fully annotated function; without `name` it has none.

    `mutates_args` names the parameters that the function writes to, arrays or lists of arrays; "unknown"
    stands for all of these. Results are taken to share no memory with the arguments. SchemaError for a
    parameter or return without an annotation, or with one that no schema type stands for, and for a default
    that no schema can spell.
    """
    where = f"function {getattr(fn, '__qualname__', None) or repr(fn)}"
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise SchemaError(
            f"{where}: mutates_args is a text, {mutates_args!r}\nPass a tuple: ({mutates_args!r},)"
        )
    signature = inspect.signature(fn)
    evaluate = _evaluator(fn)
    for written in () if mutates_args == "unknown" else mutates_args:
        if written not in signature.parameters:
            known = ", ".join(signature.parameters)
            raise SchemaError(
                f"{where}: mutates_args names {written!r}, not a parameter\nParameters: {known}"
            )
    if len(signature.parameters) > MAX_ARGUMENTS:
        raise SchemaError(
            f"{where}: more than {MAX_ARGUMENTS} parameters\nTake a list: `xs: list[np.ndarray]`"
        )
    arguments = [
        _inferred_argument(where, position, parameter, mutates_args, evaluate)
        for position, parameter in enumerate(signature.parameters.values())
    ]
    if signature.return_annotation is signature.empty:
        raise SchemaError(
            f"{where}: the return has no annotation\nAnnotate it: `-> np.ndarray`, or `-> None`"
        )
    try:
        returned = _returned_types(signature.return_annotation, evaluate)
    except _UnmappedError as error:
        raise _unmapped(f"{where}: the return", signature.return_annotation, error) from None
    schema = Schema(None, arguments, [Return("", type) for type in returned])
    return schema if name is None else schema.with_name(name)


def _unmapped(where: str, annotation: Any, error: _UnmappedError) -> SchemaError:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    remedy = str(error)
    remedy = remedy[0].upper() + remedy[1:]
    return SchemaError(f"{where} is annotated {text!r}, which no schema type stands for\n{remedy}")


_KINDS_REFUSED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "positional-only",
    inspect.Parameter.VAR_POSITIONAL: "variadic",
    inspect.Parameter.VAR_KEYWORD: "variadic",
}


def _inferred_argument(
    where: str, position: int, parameter: inspect.Parameter, mutates_args: Collection[str], evaluate: Evaluate
) -> Argument:
    name = parameter.name
    where = f"{where}: parameter {name!r}"
    if parameter.kind in _KINDS_REFUSED:
        remedy = "Write out each parameter, without `/`, `*args` and `**kwargs`"
        raise SchemaError(f"{where} is {_KINDS_REFUSED[parameter.kind]}\n{remedy}")
    if not _is_identifier(name) or name in RESERVED_WORDS:
        raise SchemaError(f"{where} is not a name that a schema can spell\nGive it another name")
    if parameter.annotation is parameter.empty:
        raise SchemaError(f"{where} has no annotation\nAnnotate it: `{name}: np.ndarray`")
    try:
        type = _type_of(parameter.annotation, evaluate)
    except _UnmappedError as error:
        raise _unmapped(where, parameter.annotation, error) from None
    alias = None
    if _holds_tensors(type) if mutates_args == "unknown" else name in mutates_args:
        alias = _written(where, type, f"a{position}")
    kw_only = parameter.kind is parameter.KEYWORD_ONLY
    argument = Argument(name, type, None, REQUIRED, kw_only, alias)
    if parameter.default is parameter.empty:
        return argument
    return Argument(name, type, None, _inferred_default(where, argument, parameter.default), kw_only, alias)


def _inferred_default(where: str, argument: Argument, default: Any) -> Any:
    try:
        value = argument.convert(default)
    except (TypeError, ValueError) as error:
        remedy = "Change the annotation or the default"
        raise SchemaError(f"{where} cannot have its default: {error}\n{remedy}") from None
    text = str(Argument(argument.name, argument.type, None, value))
    try:
        is_spelled = same_value(parse_signature(f"({text}) -> ()").arguments[0].default, value)
    except SchemaError:
        is_spelled = False
    if not is_spelled:
        raise SchemaError(
            f"{where} has the default {_short.repr(default)}, which a schema cannot spell\n"
            f"Write `{argument.name}=None`, and choose the value inside the function"
        )
    return value


def _holds_tensors(type: Type) -> bool:
    match type:
        case TensorType():
            return True
        case OptionalType() | ListType():
            return _holds_tensors(type.inner)
        case DictType():
            return _holds_tensors(type.value)
        case UnionType():
            return any(map(_holds_tensors, type.members))
        case TupleType():
            return any(map(_holds_tensors, type.items))
    return False


def _written(where: str, type: Type, name: str) -> AliasInfo:
    """The annotation of an argument whose arrays are written to."""
    inner = type.inner if isinstance(type, OptionalType) else type
    if isinstance(inner, ListType):
        return AliasInfo(_NO_SETS, True, _NO_SETS, _written(where, inner.inner, name))
    if not _holds_tensors(inner) or isinstance(inner, TupleType):
        remedy = (
            "Only arrays and lists of arrays can be written to: annotate it np.ndarray or list[np.ndarray]"
        )
        raise SchemaError(f"{where} is in mutates_args, but its type is {type}\n{remedy}")
    return AliasInfo(frozenset((name,)), True)


def infer_kernel_schema(fn: Callable[..., Any], *, with_keyset: bool = False) -> Schema | None:
    """What the annotations of a kernel say: arguments ``_0``, ``_1``, ..., no defaults.

    Keyword-only parameters keep their names, because kernels may order them as they like. None when an
    annotation is missing, or no schema type stands for it. `with_keyset`: the first parameter is the key set
    and not counted.
    """
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(function, types.FunctionType):
        return None
    try:
        annotations = function.__annotations__
    except NameError:  # since CPython 3.14 they are evaluated here
        return None
    code = function.__code__
    if "return" not in annotations or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return None
    first = (function is not fn) + with_keyset
    positional = code.co_varnames[first : code.co_argcount]
    keywords = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    if not annotations.keys() >= {*positional, *keywords}:
        return None
    evaluate = _evaluator(function)
    try:
        types_of = {name: _type_of(annotations[name], evaluate) for name in (*positional, *keywords)}
        returns = [Return("", type) for type in _returned_types(annotations["return"], evaluate)]
    except _UnmappedError:
        return None
    arguments = [Argument(f"_{i}", types_of[name]) for i, name in enumerate(positional)]
    arguments += [Argument(name, types_of[name], kw_only=True) for name in keywords]
    return Schema(None, arguments, returns)


# --- comparison ---------------------------------------------------------------------------------------------


def first_difference(real: Schema, inferred: Schema) -> str | None:
    """Where a kernel's inferred schema first differs from the real one, counting from 1; None if it does not.

    Only numbers and types count: not names, defaults, annotations, size hints, or what is keyword-only.
    """
    for what, ours, theirs in (
        ("arguments", real.arguments, inferred.arguments),
        ("returns", real.returns, inferred.returns),
    ):
        if len(ours) != len(theirs):
            return f"number of {what}: expected {len(ours)}, inferred {len(theirs)}"
    by_name = {argument.name: argument for argument in inferred.arguments if argument.kw_only}
    for i, (argument, at_same_place) in enumerate(zip(real.arguments, inferred.arguments, strict=True), 1):
        other = by_name.get(argument.name, at_same_place) if argument.kw_only else at_same_place
        if not _same_for_kernel(argument.type, other.type):
            return f"argument {i}: expected {argument.type}, inferred {other.type}"
    for i, (result, returned) in enumerate(zip(real.returns, inferred.returns, strict=True), 1):
        if not _same_for_kernel(result.type, returned.type):
            return f"return {i}: expected {result.type}, inferred {returned.type}"
    return None


def _same_for_kernel(real: Type, inferred: Type) -> bool:
    """Equality, except that Python has no class for devices: kernels annotate their names as str."""
    if isinstance(real, (OptionalType, ListType)) and type(real) is type(inferred):
        return _same_for_kernel(real.inner, typing.cast(ListType, inferred).inner)
    return real == inferred or (real == DEVICE and inferred == STR)


class _Parameters:
    """What a function can be called with: names and defaults."""

    __slots__ = ("has_varargs", "has_varkw", "keywords", "positional")

    def __init__(
        self,
        positional: list[tuple[str, Any]],
        n_positional_only: int,
        keywords: dict[str, Any],
        has_varargs: bool,
        has_varkw: bool,
    ):
        if n_positional_only:  # a name with a slash matches no keyword
            nameless = [(f"{name}/", default) for name, default in positional[:n_positional_only]]
            positional = nameless + positional[n_positional_only:]
        self.positional = positional
        self.keywords = keywords
        self.has_varargs = has_varargs
        self.has_varkw = has_varkw


def _parameters_of_function(fn: types.FunctionType) -> _Parameters:
    code = fn.__code__
    names = code.co_varnames
    n = code.co_argcount
    defaults = fn.__defaults__ or ()
    of_keywords = fn.__kwdefaults__ or {}
    return _Parameters(
        list(zip(names[:n], (REQUIRED,) * (n - len(defaults)) + defaults, strict=True)),
        code.co_posonlyargcount,
        {name: of_keywords.get(name, REQUIRED) for name in names[n : n + code.co_kwonlyargcount]},
        bool(code.co_flags & inspect.CO_VARARGS),
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )


def _parameters_of_callable(fn: Callable[..., Any]) -> _Parameters | None:
    """None when Python knows no signature, as for many functions written in C."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None

    def of_kind(*kinds: Any) -> list[tuple[str, Any]]:
        found = [p for p in parameters if p.kind in kinds]
        return [(p.name, REQUIRED if p.default is p.empty else p.default) for p in found]

    kind = inspect.Parameter
    return _Parameters(
        of_kind(kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD),
        len(of_kind(kind.POSITIONAL_ONLY)),
        dict(of_kind(kind.KEYWORD_ONLY)),
        bool(of_kind(kind.VAR_POSITIONAL)),
        bool(of_kind(kind.VAR_KEYWORD)),
    )


def compare_signature(schema: Schema, fn: Callable[..., Any], *, with_keyset: bool = False) -> frozenset[str]:
    """The arguments to fill in before calling `fn`: those whose default the schema has and `fn` has not.

    Positional arguments match by position, keyword-only ones by name. ValueError when `fn` cannot be called
    with the arguments of the schema, or has another default for one of them. A function without a known
    signature is not checked. `with_keyset`: the first parameter, the key set, is not counted.
    """
    if type(fn) is types.FunctionType and not fn.__dict__:  # no __wrapped__, no __signature__
        found: _Parameters | None = _parameters_of_function(fn)
    elif isinstance(fn, np.ufunc):  # what inspect would say too, forty microseconds later
        found = _Parameters([(f"x{i}", REQUIRED) for i in range(fn.nin)], fn.nin, {}, False, True)
    else:
        found = _parameters_of_callable(fn)
    if found is None:
        return frozenset()
    parameters = found.positional[1:] if with_keyset else found.positional
    passed = [argument for argument in schema.arguments if not argument.kw_only]
    if len(passed) > len(parameters) and not found.has_varargs:
        raise ValueError(
            f"it takes {len(parameters)} positional arguments ({', '.join(name for name, _ in parameters)}), "
            f"the schema passes {len(passed)} ({', '.join(argument.name for argument in passed)})"
        )
    left = found.keywords
    if len(parameters) > len(passed):  # the others may be passed by name
        left = dict(parameters[len(passed) :]) | left
    fill = [
        argument.name
        for argument, (_, default) in zip(passed, parameters, strict=False)
        if argument.default is not REQUIRED and not _has_default(argument, default)
    ]
    for argument in schema.arguments[len(passed) :]:
        default = left.pop(argument.name, MISSING)
        if default is MISSING:
            if not found.has_varkw or argument.name in dict(parameters):
                raise ValueError(f"it takes no keyword argument {argument.name!r}")
        elif argument.default is not REQUIRED and not _has_default(argument, default):
            fill.append(argument.name)
    for name, default in left.items():
        if default is REQUIRED:
            raise ValueError(f"it requires a parameter {name.rstrip('/')!r} that the schema does not pass")
    return frozenset(fill)


def _has_default(argument: Argument, default: Any) -> bool:
    """Has the function the argument's default, then? ValueError if it has another one."""
    if default is REQUIRED:
        return False
    try:
        is_same = default is argument.default or same_value(argument.convert(default), argument.default)
    except (TypeError, ValueError):
        is_same = False
    if not is_same:
        raise ValueError(
            f"its default for {argument.name!r} is {_short.repr(default)}, "
            f"the schema's is {_short.repr(argument.default)}"
        )
    return True
