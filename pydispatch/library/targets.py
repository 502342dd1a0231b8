"""The operators and keys that users pass to registration functions."""

# tests: tests/library/test_wrong_arguments.py
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch.exceptions import RegistrationError, SchemaError, UnknownKeyError
from pydispatch.keys import DispatchKey, parse_backend, parse_key
from pydispatch.schema import OperatorName, parse_name
from pydispatch.schema.frozen import described

F = TypeVar("F", bound=Callable[..., Any])


@runtime_checkable
class Definition(Protocol):
    """An object with an operator, such as the one that `custom_op` returns."""

    @property
    def operator(self) -> OpOverload: ...


Target: TypeAlias = str | OpOverload | OpOverloadPacket | Definition


def name_of(target: Target) -> OperatorName:
    """Return the name to register under. A packet means its overload without a name."""
    if isinstance(target, str):
        return parse_name(target)
    if isinstance(target, OpOverloadPacket):
        return _name_of_packet(target)
    op = target if isinstance(target, OpOverload) else getattr(target, "operator", None)
    if not isinstance(op, OpOverload):
        raise SchemaError(
            f"unexpected type for op: {described(target)}\n"
            'name the operator: "ns::name", pydispatch.ops.ns.name, or what custom_op returned'
        )
    name: OperatorName = op.name
    return name


def _name_of_packet(packet: OpOverloadPacket) -> OperatorName:
    if all(overload.name.overload for overload in packet.overloads):
        names = ", ".join(overload.name.overload for overload in packet.overloads)
        known = names or "none, it is no longer registered"
        raise RegistrationError(
            f"{packet.name} has no overload without a name (its overloads: {known})\n"
            f"name one, as in pydispatch.ops.{packet.name.replace('::', '.')}.{names.partition(',')[0] or 'default'}"
        )
    return parse_name(packet.name)


def require_namespace(name: OperatorName) -> str:
    """Return the namespace of a name. Raise RegistrationError if it has none."""
    if name.namespace is None:
        raise RegistrationError(f"the operator name {name} has no namespace\nwrite it as ns::{name}")
    return name.namespace


def key_of(what: str, key: Any, remedy: str) -> DispatchKey:
    """Return the dispatch key. Raise UnknownKeyError for one that does not exist, and for other objects."""
    if not isinstance(key, (str, DispatchKey)):
        raise UnknownKeyError(f"{what}: argument key is {described(key)}, expected a dispatch key\n{remedy}")
    try:
        return parse_key(key)
    except UnknownKeyError as error:
        raise UnknownKeyError(f"{what}: argument key: {error}") from None


def keys_of_devices(name: OperatorName, device_types: str | Iterable[str | None] | None) -> tuple[DispatchKey, ...]:
    """Return the keys of backends, named in any case. None and "default" mean all backends that compute.

    Raises UnknownKeyError before it returns a key, so that one bad name registers nothing.
    """
    what = f"operator {name}: argument device_types"
    if device_types is not None and (callable(device_types) or not isinstance(device_types, Iterable)):
        raise UnknownKeyError(f"{what} is {described(device_types)}, expected the name of a backend, or several\n"
                              'write device_types="CPU"')
    names = (device_types,) if device_types is None or isinstance(device_types, str) else tuple(device_types)
    try:
        keys = [
            DispatchKey.CompositeExplicitAutograd if name in (None, "default") else parse_key(parse_backend(name))
            for name in names
        ]
    except UnknownKeyError as error:
        raise UnknownKeyError(f"{what}: {error}") from None
    return tuple(dict.fromkeys(keys))


def as_decorator(register: Callable[[Any], object]) -> Callable[[F], F]:
    """Return a decorator that registers its function and returns it."""

    def decorate(function: F) -> F:
        register(function)
        return function

    return decorate
