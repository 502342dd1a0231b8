"""Loop-invariant code motion: compute what is the same in each repetition once, before the repetition.

Assumes: dead code is removed. A body writes to its carries, to slices, and to memory that it writes before it reads:
carries do not lie in one memory yet.

Guarantees: only pure steps are moved, out of repetitions that run at least once, and they keep their order.
"""

from __future__ import annotations

from pydispatch.compiling.steps import LoopStep, RepeatStep, Step
from pydispatch.compiling.values import Storage


def with_invariants_outside(steps: list[Step]) -> list[Step]:
    """Return the steps, with those that no repetition changes before it."""
    found: list[Step] = []
    for step in steps:
        if not isinstance(step, LoopStep):
            step.map_bodies(with_invariants_outside)
        if isinstance(step, RepeatStep) and step.length:
            invariant = _invariant(step)
            if invariant:
                found += [inner for inner in step.body if id(inner) in invariant]
                step.body = [inner for inner in step.body if id(inner) not in invariant]
        found.append(step)
    return found


def _invariant(step: RepeatStep) -> set[int]:
    """Return the ids of the steps of the body that read and write what no other steps change."""
    changed: set[Storage] = {part.final() for carry in step.carries for part in carry}
    for entry, whole, _, _ in step.moves:
        changed.update((entry, entry.final(), whole.storage.final()))
    movable, found = list(step.body), len(step.body) + 1
    while len(movable) < found:         # a later step may change what an earlier one writes
        found, kept = len(movable), []
        for inner in movable:
            read, written = inner.accesses()
            if inner.is_pure and all(storage.kind == "arena" for storage in written) and changed.isdisjoint(
                    read) and changed.isdisjoint(written):
                kept.append(inner)
            else:
                changed |= written
        movable = kept
    return set(map(id, movable))
