"""From steps to a plan: loops over the same rows in blocks, a place in memory for each value, the form of the core."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch.compiling.builder import Builder
from pydispatch.compiling.rules import elements, iteration
from pydispatch.compiling.values import (
    BlocksStep,
    CallStep,
    ChooseStep,
    LoopStep,
    RepeatStep,
    Step,
    Storage,
    Value,
    coalesced,
)

ALIGNMENT = 64                  # bytes: a line of the cache
CACHED = 40 << 10               # bytes that the temporaries of a block may take; measured: what stays close to a core
CACHED_IN_A_ROW = 256 << 10     # where a loop takes one element of each row: few rows take it about as long as many
LARGEST_IN_CACHE = 1 << 22      # bytes of arguments and results that no run has to fetch from memory
SMALLEST_IN_BLOCKS = 1 << 10    # elements: below, loops do not take longer one by one
SMALLEST_CUT = 1 << 13          # elements: below, all are one block, since all temporaries fit the cache anyway
LARGEST_BLOCK = 1 << 12         # elements
SHORTEST_PART = 1 << 7          # elements: NumPy adds up as many one after the other, and more by halves
WORK_OF_THREAD = 1 << 16        # elements of quick loops: to hand work over takes a small part of their time
WORK_OF_SLOW_LOOP = 8           # quick loops, about: what a loop with functions such as `exp` takes
WORK_OF_WHILE = 1 << 17         # elements: how often it repeats is not known, so other threads run meanwhile


def finished_plan(
    builder: Builder, results: Sequence[Value], steps: Sequence[Step], donated: tuple[int, ...], n_threads: int
) -> _core.Plan:
    """The plan of steps that return these values as new arrays, or in donated ones."""
    size = Arena().place(steps)
    numbers = _Numbers(builder, results, size if has_blocks(steps) and n_threads > 1 else 0, n_threads)
    described: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    _describe(steps, numbers, described, calls)
    return _core.Plan(
        tuple([(value.shape, value.dtype) for value in builder.inputs]), tuple(builder.constants),
        tuple([(value.shape, value.dtype) for value in results]), numbers.first_entry + builder.n_entries,
        size + (n_threads - 1) * numbers.local_bytes, tuple(described), tuple(calls), n_threads, donated)


def placed_results(builder: Builder, results: Sequence[Value]) -> list[Value]:
    """The results, each in a new array of its own: computed there, where that is possible, else copied."""
    placed = []
    for number, value in enumerate(results):
        storage = value.storage
        if value.is_whole and storage.kind == "arena" and storage.instead is None:
            storage.kind, storage.number = "result", number
            placed.append(value)
        else:
            result = builder.fresh(value.shape, value.dtype)
            builder.copy_into(result, value)
            result.storage.kind, result.storage.number = "result", number
            placed.append(result)
    return placed


def donations(builder: Builder, results: Sequence[Value], steps: Sequence[Step]) -> tuple[int, ...]:
    """For each result the number of the donated input whose memory it can take, or -1; () where there is none.

    It can if all reads of the input come before the first write of the result, or if one loop reads and writes element
    by element.
    """
    left = list(builder.donated)
    found = []
    for result in results:
        taken = next((number for number in left if _can_take(result, builder.inputs[number], steps)), -1)
        if taken >= 0:
            left.remove(taken)
        found.append(taken)
    return tuple(found) if any(number >= 0 for number in found) else ()


def _can_take(result: Value, given: Value, steps: Sequence[Step]) -> bool:
    if result.shape != given.shape or result.dtype != given.dtype:
        return False
    written = False
    for step in steps:
        reads, writes = accesses(step)
        is_read, is_written = given.storage in reads, result.storage.final() in writes
        if is_read and written:
            return False
        if is_read and is_written and not _reads_where_it_writes(step, result.storage.final(), given.storage):
            return False
        written = written or is_written
    return True


def _reads_where_it_writes(step: Step, result: Storage, given: Storage) -> bool:
    """Does a step read an element of one memory only before it writes the one at the same place of the other?"""
    if isinstance(step, BlocksStep):
        mode = _mode_of(step)
        both, row_of_both = {result, given}, result.nbytes // step.n
        for inner in step.steps:
            if both.isdisjoint(accesses(inner)[0]) and both.isdisjoint(accesses(inner)[1]):
                continue
            for storage, row, offset, _ in _accessed(inner, mode):
                if storage in both and (row != row_of_both or offset >= row):
                    return False
        return _can_take_in_order(step.steps, result, given)
    return isinstance(step, LoopStep) and step.is_elementwise and all(
        value.is_whole and strides == step.strides[-1]
        for value, strides in zip(step.operands, step.strides, strict=True) if value.storage.final() in (result, given))


def _can_take_in_order(steps: Sequence[LoopStep], result: Storage, given: Storage) -> bool:
    """`_can_take` for the steps of one block."""
    written = False
    for step in steps:
        reads, writes = accesses(step)
        if given in reads and (written or (result in writes and not _reads_where_it_writes(step, result, given))):
            return False
        written = written or result in writes
    return True


def without_dead(steps: Sequence[Step], used: Iterable[Storage] = ()) -> list[Step]:
    """The steps without those whose results nothing uses, neither later steps nor, of a body, what is around it."""
    used = set(used)
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, RepeatStep):
            _leave_out_moves(step, used)
        read, written = accesses(step)
        if isinstance(step, LoopStep):
            if _is_dead(written, used):
                continue
        else:
            if isinstance(step, CallStep) and step.is_pure and _is_dead(written, used):
                continue
            if isinstance(step, RepeatStep):
                around = used.union(*step.carries, *accesses_of_all(step.test))
                step.body = without_dead(step.body, around)
            elif isinstance(step, ChooseStep):
                step.branches = without_dead(step.branches[0], used), without_dead(step.branches[1], used)
            used |= written         # such as carries
        for storage in read:
            used.add(storage)
            if storage.behind:
                used.update([part.final() for part in storage.behind])
        kept.append(step)
    return kept[::-1]


def _is_dead(written: set[Storage], used: set[Storage]) -> bool:
    """Is what is written in the arena, and not among the storages that are used?"""
    return used.isdisjoint(written) and all(storage.kind == "arena" for storage in written)


def _leave_out_moves(step: RepeatStep, used: set[Storage]) -> None:
    """Leave out slices that a repetition does not read, or only writes to arrays that are not among the `used` ones."""
    if not step.moves:
        return
    read, written = accesses_of_all([*step.test, *step.body])
    unused = {entry for entry, whole, _, _ in step.moves if entry not in read and (
        entry not in written or (whole.storage.kind == "arena" and whole.storage.final() not in used))}
    if unused and all(isinstance(inner, LoopStep) for inner in step.body):
        step.body = [inner for inner in step.body if not accesses(inner)[1] <= unused]
        step.moves = [move for move in step.moves if move[0] not in unused]


def with_results_at_hand(steps: Sequence[Step]) -> list[Step]:
    """The steps, with those of repetitions in an order in which each step needs what the one before computes.

    Code on single numbers has that in a register. So of two operands the one that takes more steps is computed last.
    Long functions come early then, where their operands are known: meanwhile the processor does what follows.
    """
    for step in steps:
        if isinstance(step, RepeatStep):
            step.body, step.test = with_results_at_hand(step.body), with_results_at_hand(step.test)
            if all(isinstance(inner, LoopStep) for inner in step.body):
                step.body = _depth_first(step.body, {now for _, _, now, _ in step.carries})
    return list(steps)


def _depth_first(steps: Sequence[Step], carries: set[Storage]) -> list[Step]:
    """The steps, each right after what it depends on; what few others have to run before, before the rest.

    Long functions of what is no carry come first of all: amid others, these would have to wait for memory after them.
    """
    _, followers = _dependencies(steps)
    before: list[set[int]] = [set() for _ in steps]
    needed: list[set[int]] = []         # all that have to run before a step
    for i, following in enumerate(followers):
        needed.append(before[i].union(*[needed[other] for other in before[i]]))
        for follower in following:
            before[follower].add(i)
    in_order: list[int] = []
    done: set[int] = set()
    waiting = sorted([i for i, following in enumerate(followers) if not following],
                     key=lambda i: len(needed[i]))
    waiting += [i for i, step in reversed([*enumerate(steps)]) if isinstance(step, LoopStep) and not needed[i] and (
        not is_quick(step) and carries.isdisjoint(accesses(step)[0]))]
    while waiting:
        i = waiting[-1]
        missing = before[i] - done
        if i in done or not missing:
            waiting.pop()
            if i not in done:
                in_order.append(i)
                done.add(i)
        else:
            waiting += sorted(missing, key=lambda other: (-len(needed[other]), -other))
    return [steps[i] for i in in_order]


ADDED_BY_HALVES = frozenset((np.dtype(np.float32).num, np.dtype(np.float64).num))
"""The numbers of dtypes whose sums NumPy makes of sums of halves."""


# --- loops over the same rows ----------------------------------------------------------------------------------------

Mode = tuple[str, int]
"""How loops go through arrays together: ("flat", elements) or ("rows", length of the first axis)."""


def modes_of(step: Step) -> frozenset[Mode]:
    """The ways in which a step can share a block with others."""
    if not isinstance(step, LoopStep) or step.core_sizes:
        return frozenset()
    shape = step.shape
    if not shape:
        return frozenset()
    modes: list[Mode] = []
    if shape[0] > 1 and (step.is_elementwise or step.strides[0][0]):
        modes.append(("rows", shape[0]))
    if step.is_elementwise and elements(step) > 1:
        outer, _, sizes, steps = iteration(step)
        if not outer and _follow_each_other(steps, step.operands):
            modes.append(("flat", sizes[0]))
    return frozenset(modes)


def _follow_each_other(strides: Sequence[int], operands: Sequence[Value]) -> bool:
    """Do the elements of each operand follow each other in memory, or are all the same one?"""
    for stride, value in zip(strides, operands, strict=True):
        if stride and stride != value.template.itemsize:
            return False
    return True


def in_blocks(
    steps: Sequence[Step], n_threads: int = 1, modes_of: Callable[[Step], frozenset[Mode]] = modes_of,
    smallest: int = SMALLEST_IN_BLOCKS, fewest: int = 2, uses: dict[Storage, int] | None = None,
    with_sums: bool = True,
) -> list[Step]:
    """The steps, with loops over the same rows in groups, in which temporaries stay in the cache.

    A group has a loop over at least `smallest` elements, and at least `fewest` loops unless threads share it; sums of
    all that it computes are part of it. Steps that are inside of others get the `uses` of the whole plan: what a branch
    computes may be used after it.
    """
    if uses is None:
        if not has_large_loop(steps, smallest):
            return list(steps)
        uses = uses_of(steps)

    def inside(body: Sequence[Step]) -> list[Step]:
        return in_blocks(body, n_threads, modes_of, smallest, fewest, uses, with_sums)

    is_large = False
    for step in steps:
        if isinstance(step, LoopStep):
            is_large = is_large or elements(step) >= smallest
        elif isinstance(step, RepeatStep):
            step.body, step.test = inside(step.body), inside(step.test)
        elif isinstance(step, ChooseStep):
            step.branches = inside(step.branches[0]), inside(step.branches[1])
    if not is_large:
        return list(steps)
    found: list[Step] = []
    groups = _gathered(steps, modes_of)
    sums = _sums_of(groups) if with_sums else {}
    for group in groups:
        added_up = _added_up(group, sums) if sums and group.modes else []
        if group.modes and (len(group.steps) + len(added_up) >= fewest or n_threads > 1) and (
                max(map(elements, group.steps)) >= smallest):
            parts = [_with_parts(group, i, total.steps[0], uses) for i, total in added_up]
            blocks = _as_blocks(group, uses, by_halves=bool(added_up))
            for (_, total), sums_of_parts in zip(added_up, parts, strict=True):
                total.steps[0] = _sum_of_parts(total.steps[0], sums_of_parts, blocks.block)
            found.append(blocks)
        else:
            found += group.steps
    return found


def has_large_loop(steps: Iterable[Step], smallest: int) -> bool:
    """Is there a loop over so many elements, among the steps or inside of them?"""
    return any(elements(step) >= smallest if isinstance(step, LoopStep) else has_large_loop(inner_steps(step), smallest)
               for step in steps)


def row_strides(step: LoopStep, mode: Mode) -> list[int]:
    """The bytes to the next row of each operand; not to be changed."""
    if mode[0] == "flat":
        return iteration(step)[3]
    return [strides[0] for strides in step.strides]


Accessed = list[tuple[Storage, int, int, bool]]
Accesses = dict[Mode, Accessed]


def _accessed(step: LoopStep, mode: Mode) -> Accessed:
    """(storage, bytes to the next row, offset, whether it is written) of the operands."""
    n = len(step.operands) - step.n_out
    return [(value.storage if value.storage.instead is None else value.storage.final(), row, value.offset, i >= n)
            for i, (value, row) in enumerate(zip(step.operands, row_strides(step, mode), strict=True))]


def _accesses_of(step: Step, modes: frozenset[Mode]) -> Accesses:
    """What `_accessed` says of a step, for each way in which it can share blocks."""
    return {mode: _accessed(step, mode) for mode in modes} if isinstance(step, LoopStep) else {}


class _Rows(NamedTuple):
    """The rows of a storage that steps use, and those that they write: (bytes to the next row, number of the first)."""

    all: set[tuple[int, int]]
    written: set[tuple[int, int]]


class _Group:
    """A group that is being collected: steps that can share blocks, in which ways, and which rows they use."""

    def __init__(self, step: Step, accesses: Accesses) -> None:
        self.steps: list[Any] = [step]
        self.accesses = [accesses]
        self.modes = frozenset(accesses)
        self.rows: dict[Mode, dict[Storage, _Rows]] = {mode: {} for mode in accesses}
        self._note(accesses)

    def modes_with(self, accesses: Accesses) -> frozenset[Mode]:
        """The ways in which a step can join: no step may use what another one writes in other rows."""
        if len(self.modes) == 1:
            mode = min(self.modes)
            return self.modes if mode in accesses and self._fits(accesses[mode], mode) else frozenset()
        return frozenset([mode for mode in self.modes if mode in accesses and self._fits(accesses[mode], mode)])

    def add(self, step: Step, accesses: Accesses, modes: frozenset[Mode]) -> None:
        """Add a step; from now on the group can share blocks in these ways."""
        self.steps.append(step)
        self.accesses.append(accesses)
        self.modes = modes
        self._note(accesses)

    def add_after(self, i: int, step: Step, mode: Mode) -> None:
        """Add a step behind the one with this number; from now on the group shares blocks in this way alone."""
        self.steps.insert(i + 1, step)
        self.accesses.insert(i + 1, _accesses_of(step, frozenset((mode,))))
        self.modes = frozenset((mode,))

    def uses_some(self, accessed: Accessed, mode: Mode) -> bool:
        """Does the group use a storage of these, in rows?"""
        rows = self.rows[mode]
        return any(row and storage in rows for storage, row, _, _ in accessed)

    def _fits(self, accessed: Accessed, mode: Mode) -> bool:
        rows = self.rows[mode]
        for storage, row, offset, writes in accessed:
            known = rows.get(storage)
            if known is not None:
                others = known.all if writes else known.written
                if others and (not row or others != {(row, offset // row)}):
                    return False
        return True

    def _note(self, accesses: Accesses) -> None:
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
        """The steps of a family, in order."""
        return self._by_family.get(family, ())

    def first(self) -> int | None:
        """A step to begin a group with; those that share no blocks go first, so that more are ready for the next."""
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


def _families(accesses: Sequence[Accesses]) -> list[int]:
    """The number of each step's family: steps that use the same storages, directly or through other steps."""
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


def _worthwhile(
    steps: Sequence[Step], modes_of: Callable[[Step], frozenset[Mode]]
) -> list[frozenset[Mode]]:
    """The ways of each step to share blocks; where all steps that have any can go flat together, no others."""
    found = list(map(modes_of, steps))
    common = frozenset.intersection(*filter(None, found)) if any(found) else frozenset()
    for mode in common:
        if mode[0] == "flat":       # which blocks prefer, and which fits wherever another way does
            only = frozenset((mode,))
            return [only if modes else modes for modes in found]
    return found


def _gathered(steps: Sequence[Step], modes_of: Callable[[Step], frozenset[Mode]]) -> list[_Group]:
    """The steps in groups that can share blocks, each step after those that it depends on."""
    accesses = [_accesses_of(step, modes) for step, modes in zip(steps, _worthwhile(steps, modes_of), strict=True)]
    groups = _gathered_in_order(steps, accesses)
    return _gathered_by_family(steps, accesses) if groups is None else groups


def _gathered_in_order(steps: Sequence[Step], accesses: Sequence[Accesses]) -> list[_Group] | None:
    """The groups if the steps that can share blocks follow each other, and are one family: then no order is better."""
    groups: list[_Group] = []
    shared: _Group | None = None
    for step, of_modes in zip(steps, accesses, strict=True):
        if of_modes and shared is not None:
            modes = shared.modes_with(of_modes) if groups[-1] is shared else None
            if not modes or not shared.uses_some(of_modes[min(modes)], min(modes)):
                return None
            shared.add(step, of_modes, modes)
        else:
            groups.append(_Group(step, of_modes))
            if of_modes:
                shared = groups[-1]
    return groups


def _gathered_by_family(steps: Sequence[Step], accesses: Sequence[Accesses]) -> list[_Group]:
    """The groups, in an order in which as many steps as possible join the one before."""
    waiting, followers = _dependencies(steps)
    families = _families(accesses)
    ready = _Ready(families)
    for i, count in enumerate(waiting):
        if not count:
            ready.add(i)
    groups: list[_Group] = []
    family = ALONE
    while (first := ready.first()) is not None:
        chosen = None
        for i in ready.of_family(family) if family != ALONE else ():
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


def _dependencies(steps: Sequence[Step]) -> tuple[list[int], list[set[int]]]:
    """For each step: how many steps have to run before it, and which steps wait for it."""
    followers: list[set[int]] = [set() for _ in steps]
    writers: dict[Storage, list[int]] = {}
    readers: dict[Storage, list[int]] = {}
    last_call: int | None = None
    for i, step in enumerate(steps):
        read, written = accesses(step)
        before: set[int] = set()
        for storage in read:
            before.update(writers.get(storage, ()))
        for storage in written:
            before.update(writers.get(storage, ()))
            before.update(readers.get(storage, ()))
        if not isinstance(step, LoopStep) and has_calls(step):
            if last_call is not None:
                before.add(last_call)           # calls may have effects
            last_call = i
        for storage in read:
            readers.setdefault(storage, []).append(i)
        for storage in written:
            writers.setdefault(storage, []).append(i)
        for other in before - {i}:
            followers[other].add(i)
    waiting = [0] * len(steps)
    for following in followers:
        for follower in following:
            waiting[follower] += 1
    return waiting, followers


def has_calls(step: Step) -> bool:
    """Does the step call Python, itself or in what it has inside?"""
    return not isinstance(step, LoopStep) and (isinstance(step, CallStep) or any(map(has_calls, inner_steps(step))))


def has_blocks(steps: Iterable[Step]) -> bool:
    """Are there blocks among the steps, or inside of them?"""
    return any(isinstance(step, BlocksStep) or has_blocks(inner_steps(step)) for step in steps
               if not isinstance(step, LoopStep))


def inner_steps(step: Step) -> list[Step]:
    """The steps that a step has inside."""
    if isinstance(step, RepeatStep):
        return [*step.test, *step.body]
    if isinstance(step, ChooseStep):
        return [*step.branches[0], *step.branches[1]]
    return list(step.steps) if isinstance(step, BlocksStep) else []


def accesses(step: Step) -> tuple[set[Storage], set[Storage]]:
    """The storages that a step reads, and those that it writes to; not to be changed."""
    if isinstance(step, LoopStep):
        if step.accesses is not None:
            return step.accesses
        storages = [value.storage if value.storage.instead is None else value.storage.final()
                    for value in step.operands]
        n = len(storages) - step.n_out
        found = set(storages[:n]), set(storages[n:])
        for storage in storages:
            if storage.kind == "entry":         # which may be replaced later
                return found
        step.accesses = found
        return found
    if isinstance(step, CallStep):
        return ({value.storage.final() for value in step.inputs}, {value.storage.final() for value in step.outputs})
    read, written = accesses_of_all(inner_steps(step))
    if isinstance(step, RepeatStep):
        for entry, whole, _, _ in step.moves:
            (written if entry in written else read).add(whole.storage.final())
        for carry in step.carries:
            written.update(carry)
    if isinstance(step, (RepeatStep, ChooseStep)) and step.condition is not None:
        read.add(step.condition.storage.final())
    return read, written


def accesses_of_all(steps: Iterable[Step]) -> tuple[set[Storage], set[Storage]]:
    """The storages that some of the steps read, and those that some write to."""
    read: set[Storage] = set()
    written: set[Storage] = set()
    for step in steps:
        of_step = accesses(step)
        read |= of_step[0]
        written |= of_step[1]
    return read, written


def uses_of(steps: Iterable[Step]) -> Counter[Storage]:
    """How many steps use each storage, those inside of others and these themselves."""
    found: list[Storage] = []
    _add_uses(steps, found)
    return Counter(found)


def _add_uses(steps: Iterable[Step], found: list[Storage]) -> None:
    for step in steps:
        inside = () if isinstance(step, LoopStep) else inner_steps(step)
        if not inside:
            read, written = accesses(step)
            found += read | written
            continue
        _add_uses(inside, found)
        if isinstance(step, RepeatStep):
            found += [whole.storage.final() for _, whole, _, _ in step.moves]
            found += [storage.final() for carry in step.carries for storage in carry]
        if isinstance(step, (RepeatStep, ChooseStep)) and step.condition is not None:
            found.append(step.condition.storage.final())


def _sums_of(groups: Sequence[_Group]) -> dict[Storage, list[_Group]]:
    """The steps that add up all that one step writes to a storage, each in a group of its own, by that storage."""
    found: dict[Storage, list[_Group]] = {}
    for group in groups:
        step = group.steps[0]
        if not group.modes and isinstance(step, LoopStep) and step.loop[:2] == ("ufunc", np.add) and (
                step.loop[2][0] in ADDED_BY_HALVES and not step.is_elementwise):
            value = step.operands[1]
            outer, _, _, strides = iteration(step)
            if not outer and strides == [0, value.dtype.itemsize, 0] and value.is_whole:
                found.setdefault(value.storage.final(), []).append(group)
    if not found:
        return found
    n_writers = Counter([storage for group in groups for step in group.steps for storage in accesses(step)[1]])
    return {storage: sums for storage, sums in found.items() if n_writers[storage] == 1}


def _added_up(group: _Group, sums: Mapping[Storage, list[_Group]]) -> list[tuple[int, _Group]]:
    """(number of a loop in a group, sum of all that it writes, element by element), the last loop first."""
    mode = min(group.modes)
    if mode[0] != "flat":
        return []
    return [(i, total) for i, accesses in reversed([*enumerate(group.accesses)])
            for storage, row, offset, writes in accesses[mode] if writes
            for total in sums.get(storage, ()) if (row, offset) == (total.steps[0].operands[1].dtype.itemsize, 0)
            and elements(total.steps[0]) == mode[1]]


def _with_parts(group: _Group, i: int, total: LoopStep, uses: dict[Storage, int]) -> Value:
    """Add a loop that adds up each block for a sum; returns where: for each where its first element would be."""
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
    """A sum, from those of parts of so many elements at most."""
    first, _, result = total.operands
    return LoopStep(("add_parts", sums.dtype.num, longest), (first, sums, result), sums.shape,
                    ((0,), (sums.dtype.itemsize,), (0,)), total.name, total.site, is_elementwise=False)


def _as_blocks(group: _Group, uses: Mapping[Storage, int], *, by_halves: bool) -> BlocksStep:
    """Loops over the same rows as one step."""
    mode = min(group.modes)         # "flat" rather than "rows"
    n = mode[1]
    inside = [read | written for read, written in map(accesses, group.steps)]
    counts = Counter([storage for storages in inside for storage in storages])
    rows = group.rows[mode]
    local = {storage for storage, count in counts.items() if storage.kind == "arena" and count == uses[storage] and (
        rows[storage].all == {(storage.nbytes // n, 0)})}
    widest = max([row for used in rows.values() for row, first in used.all if not first], default=0)
    cached = CACHED_IN_A_ROW if any(elements(step) == n for step in group.steps) else CACHED
    block = cached // (max(widest, 1) * (_most_at_once(inside, local) + 2))
    block = min(LARGEST_BLOCK, block // 64 * 64 or max(block, 1), n)
    if max(map(elements, group.steps)) < SMALLEST_CUT:
        block = n
    if by_halves:
        block = max(block, SHORTEST_PART)
    return BlocksStep(group.steps, n, block, mode[0] == "flat", local, by_halves=by_halves)


def _most_at_once(used: Sequence[set[Storage]], local: set[Storage]) -> int:
    """How many of the temporaries are needed at the same time, at most, by steps that use these storages."""
    last = {storage: i for i, storages in enumerate(used) for storage in storages}
    alive: set[Storage] = set()
    most = 0
    for i, storages in enumerate(used):
        alive |= storages & local
        most = max(most, len(alive))
        alive.difference_update([storage for storage in storages if last[storage] == i])
    return most


# --- memory ----------------------------------------------------------------------------------------------------------


_Earlier = tuple[int, int, Storage, BlocksStep | None]
"""(first time, last time, storage, blocks): whose place a storage may take that is needed from the first time on, if
that one is needed until the last time; and blocks that have to read where they write, or None."""


class Arena:
    """Places of temporaries: two that are not needed at the same time may have the same place."""

    def __init__(self) -> None:
        self._first: dict[Storage, int] = {}
        self._last: dict[Storage, int] = {}
        self._sizes: dict[Storage, int] = {}
        self._taken_over: dict[Storage, list[_Earlier]] = {}
        self._time = 0

    def place(self, steps: Sequence[Step]) -> int:
        """Set the offsets of all storages of the arena; returns its size in bytes."""
        self._walk(steps)
        busy: list[tuple[int, int, Storage]] = []       # offset, end, storage; in order, since none overlaps another
        size = ALIGNMENT
        for storage in sorted(self._first, key=self._first.__getitem__):
            start, nbytes = self._first[storage], self._sizes[storage]
            taken = self._place_taken_over(storage, busy)
            if taken is not None:
                storage.offset = taken.offset
                busy = [entry for entry in busy if entry[2] is not taken]
            else:
                busy = [entry for entry in busy if self._last[entry[2]] >= start]
                storage.offset = _lowest_gap(busy, nbytes)
            end = storage.offset + nbytes
            bisect.insort(busy, (storage.offset, end, storage))
            if end > size:
                size = end
        return size

    def _place_taken_over(self, storage: Storage, busy: Sequence[tuple[int, int, Storage]]) -> Storage | None:
        """One of the storages that are busy, whose place another one may take; None if there is none."""
        start, nbytes = self._first[storage], self._sizes[storage]
        for first, last, other, blocks in self._taken_over.get(storage, ()):
            if (first == start and self._last.get(other) == last and self._sizes[other] == nbytes
                    and any(entry[2] is other for entry in busy)
                    and (blocks is None or _reads_where_it_writes(blocks, storage, other))):
                return other
        return None

    def _touch(self, storages: Iterable[Storage], sizes: dict[Storage, int] | None = None) -> None:
        for storage in storages:
            if storage.kind != "arena":
                if storage.behind:
                    self._touch([part.final() for part in storage.behind])
                continue
            if storage not in self._first:
                self._first[storage] = self._time
                nbytes = storage.nbytes if sizes is None else sizes.get(storage, storage.nbytes)
                # with a gap: some loops of NumPy's round otherwise where one array begins where another ends
                self._sizes[storage] = (nbytes // ALIGNMENT + 1) * ALIGNMENT
            self._last[storage] = self._time

    def _walk(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._time += 1
            if isinstance(step, BlocksStep):
                sizes = {storage: step.block * (storage.nbytes // step.n) for storage in step.local}
                for inner in step.steps:
                    self._time += 1
                    self._take(inner, sizes)
                self._extend_all(step)
            elif isinstance(step, LoopStep):
                self._take(step, None)
            elif isinstance(step, CallStep):
                self._touch([*accesses(step)[0], *accesses(step)[1]])
            else:
                self._walk_body(step)

    def _take(self, step: LoopStep, sizes: dict[Storage, int] | None) -> None:
        read, written = accesses(step)
        self._touch(read, sizes)
        output = step.operands[-1]
        storage = output.storage.final()
        if storage.kind == "arena" and step.is_elementwise and output.is_whole:
            itemsize, written_strides = output.template.itemsize, step.strides[-1]
            fits: dict[Storage, bool] = {}      # is each element read where the output is written?
            for value, strides in zip(step.operands[:-step.n_out], step.strides, strict=False):
                other = value.storage.final()
                if other.kind == "arena":
                    fits[other] = fits.get(other, True) and (
                        strides == written_strides and value.template.itemsize == itemsize and value.is_whole)
            self._taken_over[storage] = [(self._time, self._time, other, None) for other, fit in fits.items() if fit]
        self._touch(written, sizes)

    def _extend_all(self, step: BlocksStep) -> None:
        """What is not local to the blocks is needed until the last block is done."""
        self._time += 1
        start = self._time - 1 - len(step.steps)
        read, written = accesses(step)
        around = [storage for storage in read | written if storage not in step.local and storage in self._last]
        before: list[_Earlier] = [
            (start, self._time, storage, step) for storage in around if self._first[storage] < start]
        sums = {inner.operands[1].storage for inner in step.steps if inner.loop[0] == "sum_part"}
        for storage in around:
            if self._first[storage] > start and storage not in sums:        # these touch little of their memory
                self._taken_over[storage] = before
            self._last[storage] = self._time
            self._first[storage] = min(self._first[storage], start)

    def _walk_body(self, step: RepeatStep | ChooseStep) -> None:
        start = self._time
        held: list[Storage] = []
        if isinstance(step, RepeatStep):
            held += [storage for carry in step.carries for storage in carry[:2]]
            held += [whole.storage.final() for _, whole, _, _ in step.moves]
            self._touch(held)
            self._walk(step.test)
            if step.condition is not None:
                self._time += 1
                self._touch([step.condition.storage.final()])
            self._walk(step.body)
        else:
            self._touch([step.condition.storage.final()])
            for branch in step.branches:
                self._walk(branch)
        self._time += 1
        read, written = accesses(step)
        for storage in read | written:
            # what comes from outside is needed for the next repetition; what a branch writes, perhaps after it
            if storage.kind == "arena" and storage in self._first and (
                    self._first[storage] <= start or isinstance(step, ChooseStep)):
                self._last[storage] = self._time
                self._first[storage] = min(self._first[storage], start)
        self._touch(held)


def _lowest_gap(busy: Sequence[tuple[int, int, Storage]], nbytes: int) -> int:
    """The lowest offset at which so many bytes are free."""
    offset = 0
    for start, end, _ in busy:      # in order of offsets, and none overlaps another
        if offset + nbytes <= start:
            break
        offset = end
    return offset


# --- the core's form -------------------------------------------------------------------------------------------------


class _Numbers:
    """The numbers of buffers in the table of addresses."""

    def __init__(self, builder: Builder, results: Sequence[Value], local_bytes: int, n_threads: int) -> None:
        self.local_bytes = local_bytes      # a thread's own memory: as much as the arena
        self.n_threads = n_threads
        self.fit_cache = sum([value.storage.nbytes for value in (*builder.inputs, *results)]) <= LARGEST_IN_CACHE
        n_inputs, n_constants = len(builder.inputs), len(builder.constants)
        first_result = 1 + n_inputs + n_constants
        self.first_entry = first_result + len(results)
        self._first = {"arena": 0, "input": 1, "constant": 1 + n_inputs, "result": first_result,
                       "entry": self.first_entry}

    def of(self, storage: Storage) -> int:
        """The number of the buffer that a storage lies in."""
        storage = storage.final()
        return self._first[storage.kind] + storage.number

    def place(self, value: Value) -> tuple[int, int]:
        """(number, offset) of a value."""
        (number,), (offset,) = self.places((value,))
        return number, offset

    def places(self, values: Iterable[Value]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(numbers, offsets) of values."""
        numbers: list[int] = []
        offsets: list[int] = []
        first = self._first
        for value in values:
            storage = value.storage
            if storage.instead is not None:
                storage = storage.final()
            numbers.append(first[storage.kind] + storage.number)
            offsets.append(value.offset + storage.offset)
        return tuple(numbers), tuple(offsets)


def _describe(
    steps: Sequence[Step], numbers: _Numbers, described: list[tuple[Any, ...]], calls: list[tuple[Any, ...]]
) -> None:
    for step in steps:
        if isinstance(step, LoopStep):
            described.append(_loop(step, numbers))
        elif isinstance(step, CallStep):
            described.append(_header("call", 0, (len(calls),), 1 << 10, step.name, step.site))
            calls.append((step.function, _arrays(step.inputs, numbers), _arrays(step.outputs, numbers)))
        elif isinstance(step, BlocksStep):
            order = 2 if step.by_halves else int(step.in_order)
            how = step.n, step.block, numbers.local_bytes, order, _threads_for(step, numbers.n_threads)
            described.append(_header("blocks", len(step.steps), how, sum(map(elements, step.steps))))
            mode = _mode_of(step)
            ahead = set() if numbers.fit_cache else _fetched_ahead(step, mode)
            described += [_loop_on_rows(inner, step, mode, numbers, ahead) for inner in step.steps]
        else:
            inside: list[tuple[Any, ...]] = []
            _describe(step.test if isinstance(step, RepeatStep) else step.branches[0], numbers, inside, calls)
            n_first = len(inside)
            _describe(step.body if isinstance(step, RepeatStep) else step.branches[1], numbers, inside, calls)
            described.append(_body(step, numbers, inside, n_first))
            described += inside


def _threads_for(step: BlocksStep, most: int) -> int:
    """How many threads share the rows of blocks: each of them needs enough work."""
    if step.in_order:
        return 1
    return max(1, min(most, sum(map(work_of_loop, step.steps)) // WORK_OF_THREAD))


def work_of_loop(step: LoopStep) -> int:
    """About how many elements a quick loop goes through in the time that this one takes."""
    return elements(step) * (1 if is_quick(step) else WORK_OF_SLOW_LOOP)


QUICK = frozenset((
    np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.square, np.sqrt, np.maximum, np.minimum,
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.logical_and, np.logical_or,
    np.logical_not, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert))


def is_quick(step: LoopStep) -> bool:
    """Does the loop take about as long as one that adds?"""
    return step.loop[0] != "ufunc" or step.loop[1] in QUICK


def _body(
    step: RepeatStep | ChooseStep, numbers: _Numbers, inside: list[tuple[Any, ...]], n_first: int
) -> tuple[Any, ...]:
    work = 8 + sum([inner[10] for inner in inside])
    if isinstance(step, ChooseStep):
        return _header("choose", len(inside), (*numbers.place(step.condition), n_first), work, step.name)
    places = [(numbers.of(entry), memory.offset)
              for one, other, now, following in step.carries for memory, entry in ((one, now), (other, following))]
    moves = []
    for entry, whole, first, stride in step.moves:
        number, offset = numbers.place(whole)
        moves.append((numbers.of(entry), number, offset + first, stride))
    swaps = [(numbers.of(now), numbers.of(following)) for _, _, now, following in step.carries]
    kind, how = "repeat", (step.length or 0, 0, 0)
    if step.length is None:
        assert step.condition is not None
        kind, how = "while", (*numbers.place(step.condition), n_first)
    flat = [number for group in (places, moves, swaps) for item in group for number in item]
    return _header(kind, len(inside), (len(places), len(moves), len(swaps), *how, *flat),
                   max(work, WORK_OF_WHILE) if step.length is None else work * step.length, step.name)


def _header(
    kind: str, n_inside: int, numbers: tuple[int, ...], work: int, name: str = "", site: str | None = None
) -> tuple[Any, ...]:
    return kind, n_inside, None, (), (), (), (), (), (), numbers, work, (name, site)


def _loop(step: LoopStep, numbers: _Numbers) -> tuple[Any, ...]:
    return _described_loop(step, numbers, *iteration(step), ())


def _described_loop(
    step: LoopStep, numbers: _Numbers, extents: list[int], outer: list[list[int]], sizes: list[int],
    strides: list[int], more: tuple[int, ...],
) -> tuple[Any, ...]:
    buffers, offsets = numbers.places(step.operands)
    return ("loop", 0, step.loop, buffers, offsets, tuple(extents),
            tuple([stride for axis in outer for stride in axis]) if outer else (), tuple(sizes), tuple(strides), more,
            step.elements or elements(step), (step.name, step.site))


def _fetched_ahead(step: BlocksStep, mode: Mode) -> set[Storage]:
    """The storages whose rows of the next block are to be fetched from memory while one is computed.

    The processor itself fetches what follows in a row, but from block to block, the loops go through many rows.
    """
    if len(step.steps) == 1:
        return set()
    return {value.storage.final() for inner in step.steps
            for value, row in zip(inner.operands, row_strides(inner, mode), strict=True) if row > 0}


def _mode_of(step: BlocksStep) -> Mode:
    return "flat" if step.is_flat else "rows", step.n


def _loop_on_rows(
    step: LoopStep, blocks: BlocksStep, mode: Mode, numbers: _Numbers, ahead: set[Storage]
) -> tuple[Any, ...]:
    """A loop in blocks: one call for all rows of a block if these follow each other in memory, else a call per row.

    What it reads or writes `ahead`, it has fetched, and takes out of that set.
    """
    extents, outer, sizes, strides = iteration(step)
    to_next = row_strides(step, mode)
    n = len(to_next)
    rows, is_local, fetched = list(to_next), [0] * n, [0] * n
    for i, value in enumerate(step.operands):
        storage = value.storage
        if storage.instead is not None:
            storage = storage.final()
        if storage in blocks.local:
            rows[i], is_local[i] = 0, 1
        elif storage in ahead and rows[i] > 0:
            ahead.remove(storage)
            fetched[i] = 1
    whole = 0
    if not extents:
        whole = sizes[0] // blocks.n
    elif extents[0] != blocks.n or outer[0] != to_next:     # the rows were merged with the next axis
        extents, outer = coalesced(step.shape[1:], [of_operand[1:] for of_operand in step.strides])
        strides, sizes = outer.pop(), [extents.pop()]
        extents, outer = [blocks.n, *extents], [to_next, *outer]
    return _described_loop(step, numbers, extents, outer, sizes, strides, (whole, *rows, *is_local, *fetched))


def _arrays(values: Sequence[Value], numbers: _Numbers) -> tuple[tuple[Any, ...], ...]:
    return tuple([(*numbers.place(value), value.shape, value.template.strides, value.dtype) for value in values])
