"""Dead-code elimination: remove steps whose results nothing uses.

Assumes: a step writes to the arena, to an entry, or to a result of the plan. Fusion has not run yet.

Guarantees: the steps that remain keep their order, and compute what they computed before. Each step that remains has an
effect or writes to something other than the arena, or a later step reads what it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydispatch.compiling.steps import LoopStep, RepeatStep, Step, accesses_of
from pydispatch.compiling.values import Storage


def without_dead(steps: Sequence[Step], used: Iterable[Storage] = ()) -> list[Step]:
    """Return the steps without dead ones. The code after them reads the `used` storages."""
    used = set(used)
    kept: list[Step] = []

    def clean(body: list[Step]) -> list[Step]:
        return without_dead(body, used)

    for step in reversed(steps):
        if isinstance(step, RepeatStep):
            _leave_out_moves(step, used)
        read, written = step.accesses()
        if used.isdisjoint(written) and step.is_pure and all(
                storage.kind == "arena" for storage in written):
            continue
        if isinstance(step, RepeatStep):        # the next turn reads the carries, and the test is kept as it is
            step.body = without_dead(step.body, used.union(*step.carries, *accesses_of(step.test)))
        elif not isinstance(step, LoopStep):
            step.map_bodies(clean)
        used |= written         # such as carries
        used |= read
        for storage in read:
            if storage.behind:
                used.update([part.final() for part in storage.behind])
        kept.append(step)
    return kept[::-1]


def _leave_out_moves(step: RepeatStep, used: set[Storage]) -> None:
    """Remove slices that a repetition does not read, or only writes to unused arrays."""
    if not step.moves:
        return
    read, written = accesses_of(step.inner())
    unused = {entry for entry, whole, _, _ in step.moves if entry not in read and (
        entry not in written or (whole.storage.kind == "arena" and whole.storage.final() not in used))}
    if unused and all(isinstance(inner, LoopStep) for inner in step.body):
        step.body = [inner for inner in step.body if not inner.accesses()[1] <= unused]
        step.moves = [move for move in step.moves if move[0] not in unused]
