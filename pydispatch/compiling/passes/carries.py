"""Carries in place: let a repetition write to a carry where it lies, instead of to a copy.

Assumes: dead code is removed. The next repetition reads what this one writes to a carry, which dead-code elimination
does not know. Ordering and fusion have not run yet.

Guarantees: a carry stays in one memory only if its next value begins as a copy of the present one, which no step reads
after the first write to the copy.
"""

from __future__ import annotations

from pydispatch.compiling.steps import Carry, LoopStep, RepeatStep, Step
from pydispatch.compiling.values import Storage


def with_carries_in_place(steps: list[Step]) -> list[Step]:
    """Return the steps, with one memory for each carry that needs no other."""
    for step in steps:
        if isinstance(step, RepeatStep):
            step.carries = [carry for carry in step.carries if not _stays(step, carry)]
        if not isinstance(step, LoopStep):
            step.map_bodies(with_carries_in_place)
    return steps


def _stays(step: RepeatStep, carry: Carry) -> bool:
    """Keep a carry in its first memory if that is possible, and return whether it is."""
    memory, _, now, following = carry
    accesses = [inner.accesses() for inner in step.body]
    writers = [i for i, (_, written) in enumerate(accesses) if following in written]
    if not writers or not _is_copy(step.body[writers[0]], following, now):
        return False
    last_read = max([i for i, (read, _) in enumerate(accesses) if now in read])
    if last_read >= min(writers[1:], default=len(accesses)):
        return False
    del step.body[writers[0]]
    now.instead = following.instead = memory
    return True


def _is_copy(step: Step, target: Storage, source: Storage) -> bool:
    """Return whether a step copies all of one memory to another."""
    return isinstance(step, LoopStep) and step.loop[0] == "copy" and [
        (value.storage.final(), value.is_whole) for value in step.operands] == [(source, True), (target, True)]
