"""Find operators by name."""

# tests: tests/registry/test_registrations.py
from __future__ import annotations

from importlib import import_module

from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry.packs import families_of, load_pack, modules_for
from pydispatch._registry.registrations import definition_of, operators, packets
from pydispatch.exceptions import OperatorNotFoundError, StaleOperatorError
from pydispatch.schema import OperatorName, Schema, parse_name


def load(name: str) -> None:
    """Import the module that defines an operator of this name, if there is one that was not imported yet."""
    namespace = name.partition("::")[0]
    if namespace != "np":       # the pack of np comes with the package
        load_pack(namespace)
    for module in modules_for(name):
        import_module(module)


def load_all(namespace: str) -> None:
    """Import the pack of a namespace and all its modules on demand. Raise PackError if the pack fails to load."""
    if namespace != "np":
        load_pack(namespace)
    for module in families_of(namespace):
        import_module(module)


def find(name: str | OperatorName) -> OpOverload | None:
    """Return the operator of this name, with or without a schema, or None."""
    full = str(parse_name(name) if isinstance(name, str) else name)
    op = operators.get(full)
    is_undefined = op is None or definition_of(op) is None      # a user may register kernels before the definition
    if is_undefined:
        load(full)
        op = operators.get(full)
    return op


def find_or_raise(name: str | OperatorName) -> OpOverload:
    """Return the operator of this name. Raise OperatorNotFoundError if there is none or it has no schema."""
    op = find(name)
    if op is None:
        raise OperatorNotFoundError(f"no operator {name}\n{nearest_names(str(name))}")
    if definition_of(op) is None:
        raise OperatorNotFoundError(
            f"operator {name} has implementations, but no definition\n"
            f'define it: pydispatch.library.define("{name}", "(...) -> ...")'
        )
    return op


def find_packet(name: str) -> OpOverloadPacket:
    """Return the packet of a qualified name, or raise OperatorNotFoundError."""
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
    """Return the packet of a name. It is new and empty if nothing of that name is defined yet."""
    family = packets.setdefault(namespace, {})
    return family.setdefault(name, OpOverloadPacket(f"{namespace}::{name}"))


def nearest_names(name: str) -> str:
    """Return a line of similar names, for messages about an operator that does not exist."""
    namespace = name.partition("::")[0]
    known = sorted(other for other in list(operators) if other.partition("::")[0] == namespace)
    if not known:
        return f"no operator is registered in namespace {namespace!r}: import the module that defines it"
    alike = [other for other in known if other.startswith(name) or name.startswith(other)]
    if alike:
        return f"did you mean {' or '.join(alike[:5])}?"
    return f"operators of {namespace}: {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"


def schema_of(op: OpOverload) -> Schema:
    """Return the schema of an operator, or raise StaleOperatorError if it has none or no longer has one."""
    definition = definition_of(op)
    if definition is None:
        raise undefined(op)
    return definition.schema


def undefined(op: OpOverload) -> StaleOperatorError:
    """Return the error for an operator without a schema."""
    if op.removed_at is not None:
        return StaleOperatorError(
            f"operator {op.name} is no longer registered: its last registration was removed at {op.removed_at}\n"
            f"look it up again after registering it: pydispatch.ops.{str(op.name).replace('::', '.')}"
        )
    return StaleOperatorError(
        f"operator {op.name} has no schema: it has implementations, but no definition\n"
        f'define it: pydispatch.library.define("{op.name}", "(...) -> ...")'
    )
