"""Classes that users register as types, so that schemas can name them."""

# ruff: noqa: RUF023  the order of the slots is the order of the fields
from __future__ import annotations

import enum
from typing import Any

from pydispatch._sites import remember, replaces_former
from pydispatch.exceptions import RegistrationError
from pydispatch.schema.base_types import Type, refusal
from pydispatch.schema.frozen import MISSING, described
from pydispatch.schema.scanner import RESERVED_WORDS, is_identifier
from pydispatch.schema.spellings import is_taken


class EnumType(Type):
    """A registered enumeration. Defaults are written ``Color.RED``."""

    __slots__ = ("name", "cls")
    name: str
    cls: type[enum.Enum]

    def __init__(self, name: str, cls: type[enum.Enum]):
        self._freeze(name, cls)

    def convert(self, value: Any) -> enum.Enum:
        if isinstance(value, self.cls):
            return value
        raise refusal(self, value)

    def word(self, text: str) -> object:
        name, _, member = text.rpartition(".")
        return self.cls.__members__.get(member, MISSING) if name == self.name else MISSING

    def literal(self, value: Any) -> str:
        return f"{self.name}.{value.name}"

    def __str__(self) -> str:
        return self.name


class OpaqueType(Type):
    """A registered class of the user.

    It counts as holding arrays. Each call checks whether the class can be flattened into arrays, so you can register
    the type and the flattening in any order.
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
        raise refusal(self, value)

    def __str__(self) -> str:
        return self.name


type_of_name: dict[str, EnumType | OpaqueType] = {}


def registered_type(cls: type) -> EnumType | OpaqueType | None:
    """Return the type that a class is registered as, or None."""
    return next((known for known in tuple(type_of_name.values()) if known.cls is cls), None)


def register_opaque_type(cls: type, name: str | None = None) -> None:
    """Register a class as a type that schemas can name.

    A class that the same code defines again takes the name of the former one, with an OverrideWarning.

    Parameters
    ----------
    cls
        The class. An enum.Enum becomes a type whose defaults are written ``Color.RED``. Any other class becomes an
        opaque type.
    name
        The name in schemas, which may have dots: ``package.module.Name``. The default is the name of the class.

    Raises
    ------
    RegistrationError
        If the name is not a dotted name or is taken, or if the class already has another name.

    Examples
    --------
    >>> from pydispatch import library
    >>> class Options:
    ...     pass
    >>> library.register_opaque_type(Options)
    >>> definition = library.define("example::configure(Tensor x, Options options) -> Tensor")
    >>> definition.remove()
    >>> library.unregister_opaque_type(Options)
    """
    if not isinstance(cls, type):
        raise RegistrationError(
            f"register_opaque_type: argument cls is {described(cls)}, expected a class\n"
            "Write register_opaque_type(MyClass), or register_opaque_type(MyClass, name='MyType')"
        )
    name = cls.__name__ if name is None else name
    if not isinstance(name, str) or not all(is_identifier(part) and part not in RESERVED_WORDS
                                            for part in name.split(".")):
        raise RegistrationError(
            f"type {name!r}: expected an identifier of the schema language, or several joined by dots\n"
            f"Give it one: register_opaque_type({cls.__name__}, name='MyType')"
        )
    if is_taken(name.partition(".")[0]):
        raise RegistrationError(
            f"type {name!r}: the schema language itself uses this name\n"
            f"Give it another: register_opaque_type({cls.__name__}, name='My{name}')"
        )
    known = registered_type(cls)
    taken = type_of_name.get(name)
    if known is not None and known is taken:
        return
    if known is not None:
        raise RegistrationError(
            f"type {name!r}: {cls.__qualname__} is registered as {known.name!r}\n"
            f"Remove that first: unregister_opaque_type({known.name!r})"
        )
    is_anew = taken is not None and (taken.cls.__module__, taken.cls.__qualname__) == (cls.__module__, cls.__qualname__)
    if taken is not None and not (is_anew and replaces_former("type", name)):
        raise RegistrationError(
            f"type {name!r}: the name is taken by {taken.cls.__module__}.{taken.cls.__qualname__}\n"
            f"Give it another name, or remove the old one first: unregister_opaque_type({name!r})"
        )
    remember("type", name)
    type_of_name[name] = EnumType(name, cls) if issubclass(cls, enum.Enum) else OpaqueType(name, cls)


def unregister_opaque_type(cls: type | str) -> None:
    """Unregister a class, given as itself or by name. Schemas that already use it keep it.

    Raises
    ------
    RegistrationError
        If it is not registered.
    """
    known = type_of_name.get(cls) if isinstance(cls, str) else registered_type(cls)
    if known is None:
        names = ", ".join(type_of_name) or "none"
        raise RegistrationError(f"type {cls!r} is not registered\nRegistered types: {names}")
    del type_of_name[known.name]
