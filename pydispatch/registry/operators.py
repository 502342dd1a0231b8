"""Find operators by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch.exceptions import OperatorNotFoundError, StaleOperatorError
from pydispatch.keys import DispatchKey, parse_key
from pydispatch.loading import deferred
from pydispatch.registry.registrations import definition_of, kernels_of, operators, packets
from pydispatch.schema import OperatorName, Schema, parse_name

_on_demand: dict[str, str] = {}
load_pack = deferred("registry.packs", "load_pack")


def load_on_demand(modules: Mapping[str, str]) -> None:
    """Import these modules, each when an operator whose name starts with its key is first asked for."""
    _on_demand.update(modules)


def load(name: str) -> None:
    """Import the module that defines an operator of this name, if there is one that was not imported yet."""
    namespace = name.partition("::")[0]
    if namespace != "np":       # whose pack is always there
        load_pack(namespace)
    for start, module in list(_on_demand.items()):
        if name.startswith(start):
            import_module(module)


def families_of(namespace: str) -> list[str]:
    """The modules that define operators of this namespace on demand."""
    return [module for start, module in list(_on_demand.items()) if start.partition("::")[0] == namespace]


def load_all(namespace: str) -> None:
    """Import the pack of a namespace with all its families; raises PackError where the pack fails to load."""
    if namespace != "np":
        load_pack(namespace)
    for module in families_of(namespace):
        import_module(module)


def find(name: str | OperatorName) -> OpOverload | None:
    """The operator of that name, with or without a schema; None if there is none."""
    full = str(parse_name(name) if isinstance(name, str) else name)
    op = operators.get(full)
    is_undefined = op is None or definition_of(op) is None      # kernels of a user's may come before the definition
    if is_undefined:
        load(full)
        op = operators.get(full)
    return op


def find_or_raise(name: str | OperatorName) -> OpOverload:
    """The operator of that name, which must have a schema; raises OperatorNotFoundError."""
    op = find(name)
    if op is None:
        raise OperatorNotFoundError(f"no operator {name}\n{nearest_names(str(name))}")
    if definition_of(op) is None:
        raise OperatorNotFoundError(
            f"operator {name} has no definition, although it has implementations; was its definition forgotten?\n"
            f'define it: pydispatch.library.define("{name}", "(...) -> ...")'
        )
    return op


def find_packet(name: str) -> OpOverloadPacket:
    """The packet of a qualified name; raises OperatorNotFoundError."""
    parsed = parse_name(name)
    family = packets.get(parsed.namespace or "", {})
    packet = family.get(parsed.name)
    if packet is None:
        load(name)
        packet = packets.get(parsed.namespace or "", {}).get(parsed.name)
    if packet is None:
        raise OperatorNotFoundError(f"no operator {name}\n{nearest_names(name)}")
    return packet


def packet(namespace: str, name: str) -> OpOverloadPacket:
    """The packet of a name; a new, empty one if nothing of that name is defined yet."""
    family = packets.setdefault(namespace, {})
    return family.setdefault(name, OpOverloadPacket(f"{namespace}::{name}"))


def nearest_names(name: str) -> str:
    """A line that names similar names, for messages about a name that does not exist."""
    namespace = name.partition("::")[0]
    known = sorted(other for other in list(operators) if other.partition("::")[0] == namespace)
    if not known:
        return f"no operator is registered in namespace {namespace!r}: is the module that defines it imported?"
    alike = [other for other in known if other.startswith(name) or name.startswith(other)]
    if alike:
        return f"did you mean {' or '.join(alike[:5])}?"
    return f"operators of {namespace}: {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"


def dangling() -> list[OpOverload]:
    """Operators that have kernels but no definition; meaningful once everything has been imported."""
    return [op for op in list(operators.values()) if definition_of(op) is None and kernels_of(op)]


def names_with_kernel(key: str | DispatchKey | None = None) -> list[str]:
    """Full names of the operators with a kernel registered under exactly this key; without a key, of all operators."""
    wanted = None if key is None else parse_key(key)
    return sorted(name for name, op in list(operators.items()) if wanted is None or wanted in kernels_of(op))


def schema_of(op: OpOverload) -> Schema:
    """The schema; StaleOperatorError for an operator that has none, or no longer has one."""
    definition = definition_of(op)
    if definition is None:
        raise undefined(op)
    return definition.schema


def undefined(op: OpOverload) -> StaleOperatorError:
    """The error for an operator without a schema."""
    if op.removed_at is not None:
        return StaleOperatorError(
            f"operator {op.name} is no longer registered: its last registration was removed at {op.removed_at}\n"
            f"look it up again after registering it: pydispatch.ops.{str(op.name).replace('::', '.')}"
        )
    return StaleOperatorError(
        f"operator {op.name} has no schema: it has implementations, but no definition is in force\n"
        f'define it: pydispatch.library.define("{op.name}", "(...) -> ...")'
    )
