"""Fusion: group loops over the same rows in blocks, so that their temporaries stay in the cache.

Assumes: dead code is removed, because each loop counts.

Guarantees: each step still comes after those that it depends on, and calls of Python keep their order. No loop of a
group uses what another one writes in other rows. A storage is local to a group only if no other step uses it. Sums of
everything that a group computes may join it, and add up in the order of NumPy.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pydispatch.compiling.passes.ordering import dependencies
from pydispatch.compiling.steps import BlocksStep, LoopStep, Mode, RowAccesses, Step, flat, uses_of
from pydispatch.compiling.values import Storage, Value

CACHED = 40 << 10               # bytes that a block's temporaries may take. Measured: fits the cache closest to a core
CACHED_IN_A_ROW = 256 << 10     # if a loop takes one element of each row: few rows take about as long as many
SMALLEST_IN_BLOCKS = 1 << 10    # elements. With fewer, separate loops are as fast
SMALLEST_CUT = 1 << 13          # elements. With fewer, all are one block, since all temporaries fit the cache anyway
LARGEST_BLOCK = 1 << 12         # elements
SHORTEST_PART = 1 << 7          # elements. NumPy adds up to this number in order, and more by halves

ADDED_BY_HALVES = frozenset((np.dtype(np.float32).num, np.dtype(np.float64).num))
"""The numbers of dtypes that NumPy sums by halves."""


class Fusion(NamedTuple):
    """The groups to form: those with a loop over at least `smallest` elements, and at least `fewest` loops.

    If several threads share the rows, a single loop is also a group. `can_join` selects the steps. `with_sums` decides
    whether sums of everything that a group computes are part of it. `most` is the largest number of loops in a group.
    """

    n_threads: int = 1
    smallest: int = SMALLEST_IN_BLOCKS
    fewest: int = 2
    with_sums: bool = True
    can_join: Callable[[Step], bool] | None = None
    most: int = sys.maxsize

    def is_worthwhile(self, group: _Group, n_sums: int) -> bool:
        """Return whether a group and this number of sums should share blocks."""
        return bool(group.modes) and (len(group.steps) + n_sums >= self.fewest or self.n_threads > 1) and (
            max([step.elements() for step in group.steps]) >= self.smallest)


def in_blocks(steps: Sequence[Step], fusion: Fusion, uses: dict[Storage, int] | None = None) -> list[Step]:
    """Return the steps, loops over the same rows in groups.

    Steps inside others get the `uses` of the whole plan, because later steps may use the results of a branch.
    """
    smallest = fusion.smallest
    lengths = [step.elements() for step in steps]       # 0 for a step with others inside
    largest = max(lengths, default=0)
    if uses is None:
        if largest < smallest and (all(lengths) or max([step.elements() for step in flat(steps)]) < smallest):
            return list(steps)
        uses = uses_of(steps)
    for step in steps:
        step.map_bodies(lambda body: in_blocks(body, fusion, uses))
    if largest < smallest:
        return list(steps)
    found: list[Step] = []
    groups = _gathered(steps, fusion)
    sums = _sums_of(groups) if fusion.with_sums else {}
    for group in groups:
        added_up = _added_up(group, sums) if sums and group.modes else []
        if fusion.is_worthwhile(group, len(added_up)):
            found.append(_as_blocks_with_sums(group, added_up, uses))
        else:
            found += group.steps
    return found


# --- groups ----------------------------------------------------------------------------------------------------------

AccessesByMode = dict[Mode, RowAccesses]


def _accesses_in(step: Step, modes: frozenset[Mode]) -> AccessesByMode:
    """Return the accesses of the step in each mode in which it can share blocks."""
    return {mode: step.row_accesses(mode) for mode in modes}


class _Rows(NamedTuple):
    """The rows of a storage that steps use, and those that they write: (bytes to the next row, number of the first)."""

    all: set[tuple[int, int]]
    written: set[tuple[int, int]]


class _Group:
    """A group that is being collected: steps that can share blocks, the modes for it, and the rows that they use."""

    def __init__(self, step: Step, accesses: AccessesByMode) -> None:
        self.steps: list[Any] = [step]
        self.accesses = [accesses]
        self.modes = frozenset(accesses)
        self.rows: dict[Mode, dict[Storage, _Rows]] = {mode: {} for mode in accesses}
        self._note(accesses)

    def modes_with(self, accesses: AccessesByMode) -> frozenset[Mode]:
        """Return the modes in which a step can join: no step may use what another one writes in other rows."""
        if len(self.modes) == 1:
            mode = min(self.modes)
            return self.modes if mode in accesses and self._fits(accesses[mode], mode) else frozenset()
        return frozenset([mode for mode in self.modes if mode in accesses and self._fits(accesses[mode], mode)])

    def add(self, step: Step, accesses: AccessesByMode, modes: frozenset[Mode]) -> None:
        """Add a step, and restrict the group to these modes."""
        self.steps.append(step)
        self.accesses.append(accesses)
        self.modes = modes
        self._note(accesses)

    def add_after(self, i: int, step: Step, mode: Mode) -> None:
        """Insert a step after the one with this number, and restrict the group to this mode."""
        self.steps.insert(i + 1, step)
        self.accesses.insert(i + 1, _accesses_in(step, frozenset((mode,))))
        self.modes = frozenset((mode,))

    def uses_some(self, accessed: RowAccesses, mode: Mode) -> bool:
        """Return whether the group uses one of these storages in rows."""
        rows = self.rows[mode]
        return any(row and storage in rows for storage, row, _, _ in accessed)

    def _fits(self, accessed: RowAccesses, mode: Mode) -> bool:
        rows = self.rows[mode]
        for storage, row, offset, writes in accessed:
            known = rows.get(storage)
            if known is not None:
                others = known.all if writes else known.written
                if others and (not row or others != {(row, offset // row)}):
                    return False
        return True

    def _note(self, accesses: AccessesByMode) -> None:
        for mode in self.modes:
            rows = self.rows[mode]
            for storage, row, offset, writes in accesses[mode]:
                known = rows.get(storage)
                if known is None:
                    known = rows[storage] = _Rows(set(), set())
                place = (row, offset // row) if row else (0, 0)
                known.all.add(place)
                if writes:
                    known.written.add(place)


class _Ready:
    """The steps that can come next, by families."""

    def __init__(self, families: Sequence[int]) -> None:
        self._families = families
        self._by_family: dict[int, list[int]] = {}

    def add(self, i: int) -> None:
        """Add the step with this number."""
        bisect.insort(self._by_family.setdefault(self._families[i], []), i)

    def of_family(self, family: int) -> Sequence[int]:
        """Return the ready steps of a family, in order."""
        return self._by_family.get(family, ())

    def first(self) -> int | None:
        """Return a step to begin a group with. Steps that share no blocks go first, to make more steps ready."""
        if not self._by_family:
            return None
        return self._by_family[ALONE][0] if ALONE in self._by_family else min([
            waiting[0] for waiting in self._by_family.values()])

    def take(self, i: int) -> None:
        """Remove a step."""
        waiting = self._by_family[self._families[i]]
        waiting.remove(i)
        if not waiting:
            del self._by_family[self._families[i]]


ALONE = -1
"""The family of steps that share no blocks."""


def _families(accesses: Sequence[AccessesByMode]) -> list[int]:
    """Return the number of each step's family: steps that use the same storages, directly or through other steps."""
    parents = list(range(len(accesses)))

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    users: dict[Storage, int] = {}
    for i, of_modes in enumerate(accesses):
        for storage in {storage for accessed in of_modes.values() for storage, row, _, _ in accessed if row}:
            other = users.setdefault(storage, i)
            if other != i:
                parents[root(i)] = root(other)
    return [root(i) if of_modes else ALONE for i, of_modes in enumerate(accesses)]


def _modes_of(steps: Sequence[Step], can_join: Callable[[Step], bool] | None) -> list[frozenset[Mode]]:
    """Return the modes of each step. If all steps that have any can go flat together, return only that mode."""
    found = [step.modes() if can_join is None or can_join(step) else frozenset() for step in steps]
    common = frozenset.intersection(*filter(None, found)) if any(found) else frozenset()
    for mode in common:
        if mode[0] == "flat":       # blocks prefer it, and it fits wherever another mode does
            only = frozenset((mode,))
            return [only if modes else modes for modes in found]
    return found


def _gathered(steps: Sequence[Step], fusion: Fusion) -> list[_Group]:
    """Return the steps in groups that can share blocks, each step after those that it depends on."""
    accesses = [_accesses_in(step, modes)
                for step, modes in zip(steps, _modes_of(steps, fusion.can_join), strict=True)]
    groups = _gathered_in_order(steps, accesses, fusion.most)
    return _gathered_by_family(steps, accesses, fusion.most) if groups is None else groups


def _gathered_in_order(steps: Sequence[Step], accesses: Sequence[AccessesByMode], most: int) -> list[_Group] | None:
    """Return the groups if the steps that can share blocks are adjacent and one family: no order is better then."""
    groups: list[_Group] = []
    shared: _Group | None = None
    for step, of_modes in zip(steps, accesses, strict=True):
        if of_modes and shared is not None:
            modes = shared.modes_with(of_modes) if groups[-1] is shared and len(shared.steps) < most else None
            if not modes or not shared.uses_some(of_modes[min(modes)], min(modes)):
                return None
            shared.add(step, of_modes, modes)
        else:
            groups.append(_Group(step, of_modes))
            if of_modes:
                shared = groups[-1]
    return groups


def _gathered_by_family(steps: Sequence[Step], accesses: Sequence[AccessesByMode], most: int) -> list[_Group]:
    """Return the groups, in an order in which as many steps as possible join the group before them."""
    waiting, followers = dependencies(steps)
    families = _families(accesses)
    ready = _Ready(families)
    for i, count in enumerate(waiting):
        if not count:
            ready.add(i)
    groups: list[_Group] = []
    family = ALONE
    while (first := ready.first()) is not None:
        chosen = None
        for i in ready.of_family(family) if family != ALONE and len(groups[-1].steps) < most else ():
            modes = groups[-1].modes_with(accesses[i])
            if modes:
                chosen = i
                groups[-1].add(steps[i], accesses[i], modes)
                break
        if chosen is None:
            chosen, family = first, families[first]
            groups.append(_Group(steps[chosen], accesses[chosen]))
        ready.take(chosen)
        for follower in followers[chosen]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.add(follower)
    return groups


# --- sums ------------------------------------------------------------------------------------------------------------


def _sums_of(groups: Sequence[_Group]) -> dict[Storage, list[_Group]]:
    """Return the steps that add up everything that one step writes to a storage, by that storage, each in its group."""
    found: dict[Storage, list[_Group]] = {}
    for group in groups:
        step = group.steps[0]
        if not group.modes and isinstance(step, LoopStep) and step.loop[:2] == ("ufunc", np.add) and (
                step.loop[2][0] in ADDED_BY_HALVES and not step.is_elementwise):
            value = step.operands[1]
            outer, _, _, strides = step.iteration()
            if not outer and strides == [0, value.dtype.itemsize, 0] and value.is_whole:
                found.setdefault(value.storage.final(), []).append(group)
    if not found:
        return found
    n_writers = dict.fromkeys(found, 0)
    for group in groups:
        for step in group.steps:
            for storage in step.accesses()[1]:
                if storage in n_writers:
                    n_writers[storage] += 1
    return {storage: sums for storage, sums in found.items() if n_writers[storage] == 1}


def _added_up(group: _Group, sums: Mapping[Storage, list[_Group]]) -> list[tuple[int, _Group]]:
    """Return (number of a loop in a group, sum of all elements that it writes), the last loop first."""
    mode = min(group.modes)
    if mode[0] != "flat":
        return []
    return [(i, total) for i, accesses in reversed([*enumerate(group.accesses)])
            for storage, row, offset, writes in accesses[mode] if writes
            for total in sums.get(storage, ()) if (row, offset) == (total.steps[0].operands[1].dtype.itemsize, 0)
            and total.steps[0].elements() == mode[1]]


def _with_parts(group: _Group, i: int, total: LoopStep, uses: dict[Storage, int]) -> Value:
    """Add a loop that sums each block, and return its sums, each at the place of the block's first element."""
    value = total.operands[1]
    template = np.empty(value.template.size, value.dtype)
    sums = Value(Storage(template), template)
    uses[sums.storage] = 2          # by the group, and after it
    strides = (value.dtype.itemsize,),
    step = LoopStep(("sum_part", value.dtype.num), (value, sums), template.shape, 2 * strides, total.name, total.site,
                    is_elementwise=False)
    group.add_after(i, step, min(group.modes))
    return sums


def _sum_of_parts(total: LoopStep, sums: Value, longest: int) -> LoopStep:
    """Return the step that adds up the sums of parts, each of at most `longest` elements."""
    first, _, result = total.operands
    return LoopStep(("add_parts", sums.dtype.num, longest), (first, sums, result), sums.shape,
                    ((0,), (sums.dtype.itemsize,), (0,)), total.name, total.site, is_elementwise=False)


# --- blocks ----------------------------------------------------------------------------------------------------------


def _as_blocks_with_sums(
    group: _Group, added_up: Sequence[tuple[int, _Group]], uses: dict[Storage, int]
) -> BlocksStep:
    """Join loops and sums of what they write into one step. The sums then add up the sums of blocks."""
    parts = [_with_parts(group, i, total.steps[0], uses) for i, total in added_up]
    blocks = _as_blocks(group, uses, by_halves=bool(added_up))
    for (_, total), sums_of_parts in zip(added_up, parts, strict=True):
        total.steps[0] = _sum_of_parts(total.steps[0], sums_of_parts, blocks.block)
    return blocks


def _as_blocks(group: _Group, uses: Mapping[Storage, int], *, by_halves: bool) -> BlocksStep:
    """Join loops over the same rows into one step."""
    mode = min(group.modes)         # "flat" before "rows"
    n = mode[1]
    steps = group.steps if mode[0] == "flat" else _by_length(group.steps)
    inside = [read | written for read, written in [step.accesses() for step in steps]]
    lengths = [step.elements() for step in steps]
    counts: dict[Storage, int] = {}
    for storages in inside:
        for storage in storages:
            counts[storage] = counts.get(storage, 0) + 1
    rows = group.rows[mode]
    local = {storage for storage, count in counts.items() if storage.kind == "arena" and count == uses[storage] and (
        rows[storage].all == {(storage.nbytes // n, 0)})}
    widest = max([row for used in rows.values() for row, first in used.all if not first], default=0)
    cached = CACHED_IN_A_ROW if n in lengths else CACHED
    block = cached // (max(widest, 1) * (_most_at_once(inside, local) + 2))
    block = min(LARGEST_BLOCK, block // 64 * 64 or max(block, 1), n)
    if max(lengths) < SMALLEST_CUT:
        block = n
    if by_halves:
        block = max(block, SHORTEST_PART)
    return BlocksStep(steps, n, block, mode[0] == "flat", local, by_halves=by_halves)


def _by_length(steps: list[Any]) -> list[Any]:
    """Return the loops of a group in an order in which those over rows of one length, which are fused, are adjacent."""
    lengths = [step.elements() for step in steps]
    if len(set(lengths)) == 1:
        return steps
    waiting, followers = dependencies(steps)
    ready = [i for i, count in enumerate(waiting) if not count]
    found: list[int] = []
    length = 0
    while ready:
        i = min(ready, key=lambda i: (lengths[i] != length, lengths[i], i))
        length = lengths[i]
        ready.remove(i)
        found.append(i)
        for follower in followers[i]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return [steps[i] for i in found]


def _most_at_once(used: Sequence[set[Storage]], local: set[Storage]) -> int:
    """Return the largest number of temporaries that these steps need at the same time."""
    last = {storage: i for i, storages in enumerate(used) for storage in storages}
    alive: set[Storage] = set()
    most = 0
    for i, storages in enumerate(used):
        alive |= storages & local
        most = max(most, len(alive))
        alive.difference_update([storage for storage in storages if last[storage] == i])
    return most
