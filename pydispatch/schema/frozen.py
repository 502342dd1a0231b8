"""The frozen values that names, types and schemas are made of, and their comparison and description."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, ClassVar, Final, NoReturn

from pydispatch import _core


class Frozen:
    """A frozen value, compared by its fields: the slots, in the order of the constructor's parameters."""

    __slots__: tuple[str, ...] = ()
    _setters: ClassVar[tuple[Callable[[Any, object], None], ...]] = ()      # one for each slot

    def __init_subclass__(cls) -> None:
        cls._setters = tuple([getattr(cls, name).__set__ for name in cls.__slots__])

    def _freeze(self, *values: object) -> None:
        for assign, value in zip(self._setters, values, strict=True):
            assign(self, value)

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
    """A marker: a value that is equal only to itself."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


REQUIRED: Final = _Marker("REQUIRED")  # the default of an argument that has none
MISSING: Final = _Marker("MISSING")  # the result of `word` for a word that the type does not have


# The core strips defaults with another equality, which runs on each call and passes an argument when in doubt: NaN and
# arrays never equal a default. Here they equal themselves, because a schema must equal itself.
def same_value(a: object, b: object) -> bool:
    """Return whether converted values are equal: 1, 1.0 and True differ, NaN equals NaN, an array only itself."""
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


def described(value: object) -> str:
    """Return the type of a value and its repr, short and on one line, for messages."""
    return f"{type(value).__name__} {' '.join(short_repr(value).split())}"


_repr = reprlib.Repr()
_repr.maxother = _repr.maxstring = 60
short_repr = _repr.repr  # for messages
