"""Invariants of all registrations and tables."""

# tests: tests/debug/test_debug.py
from __future__ import annotations

from collections.abc import Iterator

from pydispatch import _core
from pydispatch._core import KeyLayout, OpOverload, TableEntry
from pydispatch._registry import kernels, registrations
from pydispatch._registry.registrations import DefinitionHandle, KernelHandle, definition_of, kernels_of
from pydispatch._registry.tables import Label, compute_table, is_device
from pydispatch.debug.state import overload_of
from pydispatch.exceptions import DispatchError
from pydispatch.keys import DispatchKey, runtime_keys, slot_of


def check_invariants(op: str | OpOverload | None = None) -> None:
    """Raise AssertionError, naming the operator and the invariant, if the registry contradicts itself.

    The invariants are: I1 name and array arguments agree with the schema. I2 Nothing is registered under Undefined. I3
    No operator is empty. I4, I8 The live table is the recomputed one, including the Undefined slot. I5 The masks follow
    from the table. I6 Registrations are active and belong to their operator. I7 Names and packets are a bijection. I9
    Kernels are in order of arrival. I10 There is at most one definition. I11 Every fallback is in every table. I12
    Kernels fit the schema.

    Parameters
    ----------
    op
        The operator to check, or its name. None checks the whole registry.

    Raises
    ------
    AssertionError
        If an invariant is violated.
    ValueError
        If the operator does not exist.
    """
    with registrations.lock:
        found = None if op is None else overload_of(op)
        if op is not None and found is None:
            raise ValueError(f"check_invariants: no operator {op} is registered\n"
                             "import the module that defines it, or leave the argument out to check all operators")
        for each in registrations.operators.values() if found is None else (found,):
            for name, problem in _violations(each):
                raise AssertionError(f"operator {each.name} violates {name}: {problem}")
        for name, problem in _index_violations() if found is None else ():
            raise AssertionError(f"the registry violates {name}: {problem}")


def _violations(op: OpOverload) -> Iterator[tuple[str, str]]:
    definition = definition_of(op)
    if not op.registrations:
        yield "I3", "it has no registration"
    if registrations.operators.get(str(op.name)) is not op:
        yield "I7", "it is not the operator that its name leads to"
    packet = registrations.packets.get(op.name.namespace or "", {}).get(op.name.name)
    if (packet is not None and op in packet.overloads) != (definition is not None):
        yield "I7", "it has a schema and is not in its packet, or the reverse"
    for handle in op.registrations:
        if not handle.active or handle.operator is not op:
            yield "I6", f"{handle} is inactive, or belongs to another operator"
        if isinstance(handle, KernelHandle) and handle.key is DispatchKey.Undefined:
            yield "I2", f"{handle.kernel.debug} is registered under Undefined"
    if sum(isinstance(handle, DefinitionHandle) for handle in op.registrations) > 1:
        yield "I10", "it has two definitions"
    for key, handles in kernels_of(op).items():
        positions = [op.registrations.index(handle) for handle in handles]
        if not handles or positions != sorted(positions, reverse=True):
            yield "I9", f"the kernels under {key.name} are not in order of arrival"
    table = op.live_table
    if definition is None:
        if table is not None:
            yield "I1", "it has a table and no schema"
        return
    if not definition.is_parsed:
        return
    schema = definition.schema
    if str(schema.name) != str(op.name):
        yield "I1", f"its schema is that of {schema.name}"
    for handle in op.registrations:
        if isinstance(handle, KernelHandle):
            try:
                kernels.check_kernel(schema, definition.site, handle.kernel)
            except DispatchError as error:
                yield "I12", str(error)
    if table is not None:
        yield from _table_violations(op, table)


def _table_violations(op: OpOverload, table: _core.Table) -> Iterator[tuple[str, str]]:
    fresh = compute_table(op)
    arrays = tuple(a.name for a in op.schema.arguments if a.type.contains_arrays)
    if table.array_arguments != arrays:
        yield "I1", f"it dispatches on {table.array_arguments}, but its schema has {arrays}"
    by_slot = {key.slot: key for key in runtime_keys()}
    for slot, (live, computed) in enumerate(zip(table.rows, fresh.rows, strict=True)):
        if (live and (live.kernel, live.label)) != (computed and (computed.kernel, computed.label)):
            words = [f"{entry.kernel.debug} [{entry.label}]" if entry else "nothing" for entry in (live, computed)]
            yield "I8" if slot == 0 else "I4", f"{by_slot[slot].name} is live {words[0]}, computed {words[1]}"
    if table.masks_by_backend() != expected_masks(table.rows, any(map(is_device, op.schema.arguments))):
        yield "I5", "its fall-through masks do not follow from its table"
    for handle in registrations.fallbacks:
        for key in handle.key.members:
            entry = table.rows[slot_of(key)]
            if entry is None or (entry.label is Label.FALLBACK and entry.kernel is not handle.kernel):
                yield "I11", f"the fallback of {key.name} is not in its table"


def expected_masks(rows: tuple[TableEntry | None, ...], asks_device: bool) -> tuple[int, ...]:
    """Return the fall-through masks of a table, computed slot by slot."""
    masks = []
    for length in range(KeyLayout.backends + 1):
        highest = 1 << length >> 1
        mask = KeyLayout.functionality_bits
        for word, entry in zip(_core.slots(), rows, strict=True):
            functionality, backend = word & KeyLayout.functionality_bits, word & KeyLayout.backend_bits
            if backend and length == 0:
                mask &= ~functionality
            elif entry is not None and backend in (0, highest):
                waits = entry.asks_device and length > 0 and not asks_device
                if entry.is_fallthrough or entry.asks_handlers or waits:
                    mask &= ~functionality
        masks.append(mask)
    return tuple(masks)


def _index_violations() -> Iterator[tuple[str, str]]:
    for name, op in registrations.operators.items():
        if str(op.name) != name:
            yield "I7", f"{name} leads to {op.name}"
    for family in registrations.packets.values():
        for packet in family.values():
            for op in packet.overloads:
                if registrations.operators.get(str(op.name)) is not op or definition_of(op) is None:
                    yield "I7", f"the packet {packet.name} holds {op.name}, which is not defined"
    for handle in registrations.fallbacks:
        if not handle.active:
            yield "I6", f"the fallback {handle.kernel.debug} is inactive"
