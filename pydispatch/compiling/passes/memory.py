"""Memory planning: assign a place in memory to each value.

Assumes: results are placed before the other passes run, since a result is not a temporary. Donations and the arena come
after fusion, when the order of the steps is final.

Guarantees: two storages share bytes of the arena only if one is no longer needed when the other is first written,
or if one loop reads each element before it writes that place. A result takes the memory of a donated input only on the
same terms.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from operator import itemgetter

from pydispatch.compiling.builder import Builder
from pydispatch.compiling.steps import BlocksStep, LoopStep, Step, can_share_memory
from pydispatch.compiling.values import Storage, Value

ALIGNMENT = 64                  # bytes: a line of the cache


def placed_results(builder: Builder, results: Sequence[Value]) -> list[Value]:
    """Return the results, each in a separate new array: computed there if possible, else copied."""
    placed = []
    for number, value in enumerate(results):
        storage = value.storage
        if not (value.is_whole and storage.kind == "arena" and storage.instead is None):
            value = builder.copied(value)
        value.storage.kind, value.storage.number = "result", number
        placed.append(value)
    return placed


def donations(builder: Builder, results: Sequence[Value], steps: Sequence[Step]) -> tuple[int, ...]:
    """Return for each result the number of a donated input whose memory it can take, or -1. Return () if none can.

    A result can take the memory if all reads of the input come before the first write of the result, or if one loop
    reads and writes element by element.
    """
    if not builder.donated:
        return ()
    touching: dict[Storage, list[int]] = defaultdict(list)      # the steps that read or write a storage
    for i, step in enumerate(steps):
        read, written = step.accesses()
        for storage in read | written:
            touching[storage].append(i)

    def can_take(result: Value, given: Value) -> bool:
        if result.shape != given.shape or result.dtype != given.dtype:
            return False
        new, old = result.storage.final(), given.storage
        return can_share_memory([steps[i] for i in sorted({*touching[new], *touching[old]})], new, old)

    left = list(builder.donated)
    found = []
    for result in results:
        taken = next((number for number in left if can_take(result, builder.inputs[number])), -1)
        if taken >= 0:
            left.remove(taken)
        found.append(taken)
    return tuple(found) if any(number >= 0 for number in found) else ()


_Writer = tuple[int, int, Sequence[Storage], LoopStep | BlocksStep]
"""(first time, last time, other storages, step): the condition for taking the place of another storage.

A storage first needed at the first time may take the place if the other one is last needed at the last time, and the
step reads where it writes. The others of a loop are those that it reads, and not listed.
"""


class Arena:
    """Places of temporaries. Two that are not needed at the same time may share a place."""

    def __init__(self) -> None:
        self._first: dict[Storage, int] = {}
        self._last: dict[Storage, int] = {}
        self._sizes: dict[Storage, int] = {}
        self._writers: dict[Storage, _Writer] = {}
        self.time = 0

    def place(self, steps: Sequence[Step]) -> int:
        """Set the offsets of all storages of the arena, and return its size in bytes."""
        self.walk(steps)
        held: dict[Storage, int] = {}                   # the storages that are needed now, and where they end
        ends: dict[int, list[Storage]] = defaultdict(list)      # by the last time at which they are needed
        time, gaps = 0, Gaps()
        for storage, start in sorted(self._first.items(), key=itemgetter(1)):
            while time < start:
                if time in ends:
                    for ended in ends.pop(time):
                        if ended in held:
                            gaps.free(ended.offset, held.pop(ended))
                time += 1
            taken = self._place_taken_over(storage, held) if storage in self._writers else None
            if taken is not None:
                storage.offset = taken.offset
                held[storage] = held.pop(taken)
            else:
                nbytes = self._sizes[storage]
                storage.offset = gaps.take(nbytes)
                held[storage] = storage.offset + nbytes
            ends[self._last[storage]].append(storage)
        return max(gaps.top, ALIGNMENT)

    def _place_taken_over(self, storage: Storage, held: Container[Storage]) -> Storage | None:
        """Return a storage that is needed now and whose place this storage may take, or None."""
        first, last, others, step = self._writers[storage]
        if first != self._first[storage]:
            return None
        if isinstance(step, LoopStep):
            others = [value.storage.final() for value in step.operands[:-step.n_out]]
        for other in others:
            if self._last.get(other) == last and other in held and self._sizes[other] == self._sizes[storage] and (
                    step.reads_where_it_writes(storage, other)):
                return other
        return None

    def touch(self, storages: Iterable[Storage], sizes: dict[Storage, int] | None = None) -> None:
        """Note that these storages are needed now. `sizes` are those of local ones, in bytes."""
        first, last, time = self._first, self._last, self.time
        for storage in storages:
            if storage.kind != "arena":
                if storage.behind:
                    self.touch([part.final() for part in storage.behind])
                continue
            if storage not in first:
                first[storage] = time
                nbytes = storage.nbytes if sizes is None else sizes.get(storage, storage.nbytes)
                # with a gap, because some of NumPy's loops round differently if one array begins where another ends
                self._sizes[storage] = (nbytes // ALIGNMENT + 1) * ALIGNMENT
            last[storage] = time

    def walk(self, steps: Sequence[Step]) -> None:
        """Note the lifetimes of the storages of steps."""
        for step in steps:
            self.time += 1
            step.add_lifetimes(self)

    def note_loop(self, step: LoopStep, sizes: dict[Storage, int] | None = None) -> None:
        """Note that a loop reads and writes its operands now."""
        read, written = step.accesses()
        self.touch(read, sizes)
        storage = step.operands[-1].storage.final()
        if step.is_elementwise and storage not in self._first:
            self._writers[storage] = self.time, self.time, (), step
        self.touch(written, sizes)

    def extend_over_blocks(self, step: BlocksStep) -> None:
        """Extend the lifetime of storages that are not local to the blocks until the last block is done."""
        self.time += 1
        start = self.time - 1 - len(step.steps)
        read, written = step.accesses()
        around = [storage for storage in read | written if storage not in step.local and storage in self._last]
        before = [storage for storage in around if self._first[storage] < start]
        sums = {inner.operands[1].storage for inner in step.steps if inner.loop[0] == "sum_part"}
        for storage in around:
            if self._first[storage] > start and storage not in sums:        # sums of parts use little of their memory
                self._writers[storage] = start, self.time, before, step
            self._last[storage] = self.time
            self._first[storage] = min(self._first[storage], start)
        for storage in step.local:      # loops are not fused if bools lie where other elements do
            if storage.owner.itemsize == 1:
                self._first[storage], self._last[storage] = start, self.time

    def extend(self, step: Step, start: int, only_older: bool = False) -> None:
        """Extend the lifetimes of storages to the whole of a step that began at `start`."""
        self.time += 1
        read, written = step.accesses()
        for storage in read | written:
            if storage.kind == "arena" and storage in self._first and (
                    not only_older or self._first[storage] <= start):
                self._last[storage] = self.time
                self._first[storage] = min(self._first[storage], start)


class Gaps:
    """The bytes that no storage holds: below `top` the gaps, from there on all."""

    def __init__(self) -> None:
        self._gaps: list[tuple[int, int]] = []      # (start, end), in order, none beside another
        self.top = 0                                # the end of the largest arena so far

    def take(self, nbytes: int) -> int:
        """Return the lowest offset with this number of free bytes, which it takes."""
        for position, (start, end) in enumerate(self._gaps):
            if end - start >= nbytes:
                if end - start == nbytes:
                    del self._gaps[position]
                else:
                    self._gaps[position] = start + nbytes, end
                return start
        start = self.top
        if self._gaps and self._gaps[-1][1] == start:       # the last gap can grow
            start = self._gaps.pop()[0]
        self.top = start + nbytes
        return start

    def free(self, start: int, end: int) -> None:
        """Give bytes back."""
        position = bisect.bisect(self._gaps, (start, end))
        if position < len(self._gaps) and self._gaps[position][0] == end:
            end = self._gaps.pop(position)[1]
        if position and self._gaps[position - 1][1] == start:
            position -= 1
            start = self._gaps.pop(position)[0]
        self._gaps.insert(position, (start, end))
