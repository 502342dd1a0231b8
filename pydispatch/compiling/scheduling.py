"""From steps to a plan: loops over the same elements in blocks, a place in memory for each value, the core's form."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Any

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
FIRST_LEVEL = 24 << 10          # bytes of it that the temporaries of a block may take
SMALLEST_IN_BLOCKS = 1 << 13    # elements: below, all temporaries fit the cache anyway
LARGEST_BLOCK = 1 << 12         # elements


def finished_plan(
    builder: Builder, results: Sequence[Value], n_threads: int = 1
) -> tuple[_core.Plan, list[Step]]:
    """The plan of all steps, which returns these values as new arrays; and the steps, in their final order."""
    outputs = _placed_results(builder, results)
    steps = in_blocks(without_dead(builder.steps), n_threads)
    size = Arena().place(steps)
    numbers = _Numbers(builder, len(outputs), size if has_blocks(steps) and n_threads > 1 else 0)
    described: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    _describe(steps, numbers, described, calls)
    plan = _core.Plan(
        tuple([(value.shape, value.dtype) for value in builder.inputs]), tuple(builder.constants),
        tuple([(value.shape, value.dtype) for value in outputs]), numbers.first_entry + builder.n_entries,
        size + (n_threads - 1) * numbers.local_bytes, tuple(described), tuple(calls), n_threads,
        donations(builder, outputs, steps))
    return plan, steps


def _placed_results(builder: Builder, results: Sequence[Value]) -> list[Value]:
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

    It can where the input is read before the result is written, or where one loop reads and writes each element.
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
        mode = "flat" if step.is_flat else "rows", step.n
        rows = {row for inner in step.steps for storage, row, offset, _ in _accessed(inner, mode)
                if storage in (result, given) and offset < row}
        return (rows == {result.nbytes // step.n} and all(
            offset < row for inner in step.steps for storage, row, offset, _ in _accessed(inner, mode)
            if storage in (result, given)) and _can_take_in_order(step.steps, result, given))
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


def without_dead(steps: Sequence[Step]) -> list[Step]:
    """The steps without those whose results nothing uses. What is in bodies stays."""
    used: set[Storage] = set()
    kept: list[Step] = []
    for step in reversed(steps):
        read, written = accesses(step)
        may_go = isinstance(step, LoopStep) or (isinstance(step, CallStep) and step.is_pure)
        if may_go and all(storage.kind == "arena" and storage not in used for storage in written):
            continue
        used |= read
        for storage in read:
            used.update([part.final() for part in storage.behind])
        if not isinstance(step, LoopStep):
            used |= written         # of what is carried, say
        kept.append(step)
    return kept[::-1]


# --- loops over the same rows ----------------------------------------------------------------------------------------

Mode = tuple[str, int]
"""How loops go through arrays together: ("flat", elements) or ("rows", length of the first axis)."""


def in_blocks(steps: Sequence[Step], n_threads: int = 1) -> list[Step]:
    """The steps, with loops over the same rows in groups, in which temporaries stay in the cache."""
    for step in steps:
        if isinstance(step, RepeatStep):
            step.body, step.test = in_blocks(step.body, n_threads), in_blocks(step.test, n_threads)
        elif isinstance(step, ChooseStep):
            step.branches = in_blocks(step.branches[0], n_threads), in_blocks(step.branches[1], n_threads)
    if not any(isinstance(step, LoopStep) and elements(step) >= SMALLEST_IN_BLOCKS for step in steps):
        return list(steps)
    found: list[Step] = []
    ordered = _gathered(steps)
    uses = _uses(steps)
    for group, modes in ordered:
        if modes and (len(group) > 1 or n_threads > 1) and max(map(_elements_of, group)) >= SMALLEST_IN_BLOCKS:
            found.append(_as_blocks(group, modes, uses, n_threads))
        else:
            found += group
    return found


def _elements_of(step: Step) -> int:
    return elements(step) if isinstance(step, LoopStep) else 0


def modes_of(step: Step) -> frozenset[Mode]:
    """How a step can be taken together with others."""
    if not isinstance(step, LoopStep) or step.core_sizes:
        return frozenset()
    shape, strides = step.shape, step.strides
    modes: list[Mode] = []
    if len(shape) and shape[0] > 1 and (step.is_elementwise or strides[0][0]):
        modes.append(("rows", shape[0]))
    if step.is_elementwise and elements(step) > 1:
        outer, _, sizes, steps = iteration(step)
        if not outer and all(stride in (0, value.dtype.itemsize)
                             for stride, value in zip(steps, step.operands, strict=True)):
            modes.append(("flat", sizes[0]))
    return frozenset(modes)


def row_strides(step: LoopStep, mode: Mode) -> list[int]:
    """How far the next row of each operand is."""
    if mode[0] == "flat":
        return list(iteration(step)[3])
    return [strides[0] for strides in step.strides]


def _meets_elsewhere(step: LoopStep, group: Sequence[LoopStep], mode: Mode) -> bool:
    """Does the step use what the group writes, or write what it uses, in other rows than the group does?"""
    accessed = _accessed(step, mode)
    for other in group:
        for storage, row, offset, writes in accessed:
            for other_storage, other_row, other_offset, also_writes in _accessed(other, mode):
                if (writes or also_writes) and storage is other_storage and (
                        row != other_row or row == 0 or offset // row != other_offset // row):
                    return True
    return False


def _accessed(step: LoopStep, mode: Mode) -> list[tuple[Storage, int, int, bool]]:
    """(storage, bytes to the next row, offset, whether it is written) of the operands."""
    n = len(step.operands) - step.n_out
    return [(value.storage.final(), row, value.offset, i >= n)
            for i, (value, row) in enumerate(zip(step.operands, row_strides(step, mode), strict=True))]


def _gathered(steps: Sequence[Step]) -> list[tuple[list[Any], frozenset[Mode]]]:
    """The steps in groups that can be taken together, in an order in which what they use is there."""
    waiting, followers = _dependencies(steps)
    ready = [i for i, count in enumerate(waiting) if not count]
    modes = [modes_of(step) for step in steps]
    groups: list[tuple[list[Any], frozenset[Mode]]] = []

    def possible(i: int) -> frozenset[Mode]:
        step, (group, common) = steps[i], groups[-1]
        return frozenset([mode for mode in common & modes[i]
                          if isinstance(step, LoopStep) and not _meets_elsewhere(step, group, mode)])

    while ready:
        chosen, common = None, frozenset[Mode]()
        if groups and groups[-1][1]:
            for position, i in enumerate(ready):
                common = possible(i)
                if common:
                    chosen = position
                    break
        if chosen is None:      # first what is taken alone, so that more is ready for the next group
            chosen = next((position for position, i in enumerate(ready) if not modes[i]), 0)
            common = modes[ready[chosen]]
            groups.append(([], common))
        i = ready.pop(chosen)
        groups[-1] = [*groups[-1][0], steps[i]], common
        for follower in followers[i]:
            waiting[follower] -= 1
            if not waiting[follower]:
                bisect.insort(ready, follower)
    return groups


def _dependencies(steps: Sequence[Step]) -> tuple[list[int], list[set[int]]]:
    """For each step how many others have to run before, and which wait for it."""
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
        if has_calls(step):
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
    return isinstance(step, CallStep) or any(map(has_calls, inner_steps(step)))


def has_blocks(steps: Iterable[Step]) -> bool:
    """Are there blocks among the steps, or inside of them?"""
    return any(isinstance(step, BlocksStep) or has_blocks(inner_steps(step)) for step in steps)


def inner_steps(step: Step) -> list[Step]:
    """The steps that a step has inside."""
    if isinstance(step, RepeatStep):
        return [*step.test, *step.body]
    if isinstance(step, ChooseStep):
        return [*step.branches[0], *step.branches[1]]
    return list(step.steps) if isinstance(step, BlocksStep) else []


def accesses(step: Step) -> tuple[set[Storage], set[Storage]]:
    """The storages that a step reads, and those that it writes to."""
    if isinstance(step, LoopStep):
        n = len(step.operands) - step.n_out
        return ({value.storage.final() for value in step.operands[:n]},
                {value.storage.final() for value in step.operands[n:]})
    if isinstance(step, CallStep):
        return ({value.storage.final() for value in step.inputs}, {value.storage.final() for value in step.outputs})
    read: set[Storage] = set()
    written: set[Storage] = set()
    for inner in inner_steps(step):
        of_inner = accesses(inner)
        read |= of_inner[0]
        written |= of_inner[1]
    if isinstance(step, RepeatStep):
        for entry, whole, _, _ in step.moves:
            (written if entry in written else read).add(whole.storage.final())
        for carry in step.carries:
            written.update(carry)
    if isinstance(step, RepeatStep | ChooseStep) and step.condition is not None:
        read.add(step.condition.storage.final())
    return read, written


def _uses(steps: Sequence[Step]) -> dict[Storage, int]:
    """How many steps use each storage."""
    counts: dict[Storage, int] = {}
    for step in steps:
        read, written = accesses(step)
        for storage in read | written:
            counts[storage] = counts.get(storage, 0) + 1
    return counts


def _as_blocks(
    group: list[LoopStep], modes: frozenset[Mode], uses: dict[Storage, int], n_threads: int
) -> BlocksStep:
    """Loops over the same rows as one step."""
    mode = min(modes)               # "flat" rather than "rows"
    n = mode[1]
    inside = _uses(group)
    rows: dict[Storage, set[int]] = {}
    for step in group:
        for storage, row, offset, _ in _accessed(step, mode):
            rows.setdefault(storage, set()).add(row if offset < row else 0)
    local = {storage for storage, count in inside.items()
             if storage.kind == "arena" and count == uses[storage] and rows[storage] == {storage.nbytes // n}}
    widest = max([max(row) for row in rows.values()])
    block = FIRST_LEVEL // (max(widest, 1) * (_most_at_once(group, local) + 2))
    block = min(LARGEST_BLOCK, block // 64 * 64 or max(block, 1), n)
    return BlocksStep(group, n, block, mode[0] == "flat", local)


def _most_at_once(group: Sequence[LoopStep], local: set[Storage]) -> int:
    """How many of the temporaries are needed at the same time."""
    last: dict[Storage, int] = {}
    for i, step in enumerate(group):
        for value in step.operands:
            last[value.storage.final()] = i
    alive: set[Storage] = set()
    most = 0
    for i, step in enumerate(group):
        alive.update([value.storage.final() for value in step.operands])
        most = max(most, len(alive & local))
        alive = {storage for storage in alive if last[storage] > i}
    return most


# --- memory ----------------------------------------------------------------------------------------------------------


class Arena:
    """A place for each temporary: those that are not needed at the same time may share it."""

    def __init__(self) -> None:
        self._first: dict[Storage, int] = {}
        self._last: dict[Storage, int] = {}
        self._sizes: dict[Storage, int] = {}
        self._taken_over: dict[Storage, list[Storage]] = {}
        self._time = 0

    def place(self, steps: Sequence[Step]) -> int:
        """Set the offsets of all storages of the arena; returns its size in bytes."""
        self._walk(steps)
        busy: list[tuple[int, int, Storage]] = []       # offset, end, storage
        size = 0
        for storage in sorted(self._first, key=self._first.__getitem__):
            start, nbytes = self._first[storage], self._sizes[storage]
            taken = next((other for other in self._taken_over.get(storage, ())
                          if self._last.get(other) == start and self._sizes[other] == nbytes
                          and any(entry[2] is other for entry in busy)), None)
            if taken is not None:
                storage.offset = taken.offset
                busy = [entry for entry in busy if entry[2] is not taken]
            else:
                busy = [entry for entry in busy if self._last[entry[2]] >= start]
                storage.offset = _lowest_gap(busy, nbytes)
            bisect.insort(busy, (storage.offset, storage.offset + nbytes, storage), key=lambda entry: entry[0])
            size = max(size, storage.offset + nbytes)
        return max(size, ALIGNMENT)

    def _touch(self, storages: Iterable[Storage], sizes: dict[Storage, int] | None = None) -> None:
        for storage in storages:
            if storage.kind != "arena":
                self._touch([part.final() for part in storage.behind])
                continue
            if storage not in self._first:
                self._first[storage] = self._time
                nbytes = storage.nbytes if sizes is None else sizes.get(storage, storage.nbytes)
                self._sizes[storage] = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
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
        if step.is_elementwise:
            *inputs, output = step.operands
            fits: dict[Storage, bool] = {}      # is all that is read of it read where it is written to?
            for value, strides in zip(inputs, step.strides, strict=False):
                storage = value.storage.final()
                fits[storage] = fits.get(storage, True) and (
                    value.is_whole and value.dtype.itemsize == output.dtype.itemsize and strides == step.strides[-1])
            if output.is_whole:
                self._taken_over[output.storage.final()] = [storage for storage, fit in fits.items() if fit]
        self._touch(written, sizes)

    def _extend_all(self, step: BlocksStep) -> None:
        """What is not local to the blocks is needed until the last block is done."""
        self._time += 1
        read, written = accesses(step)
        for storage in read | written:
            if storage not in step.local and storage in self._last:
                self._last[storage] = self._time
                self._first[storage] = min(self._first[storage], self._time - 1 - len(step.steps))

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

    def __init__(self, builder: Builder, n_results: int, local_bytes: int) -> None:
        self.local_bytes = local_bytes      # a thread's own memory: as much as the arena
        n_inputs, n_constants = len(builder.inputs), len(builder.constants)
        first_result = 1 + n_inputs + n_constants
        self.first_entry = first_result + n_results
        self._first = {"arena": 0, "input": 1, "constant": 1 + n_inputs, "result": first_result,
                       "entry": self.first_entry}

    def of(self, storage: Storage) -> int:
        """The number of the buffer that a storage lies in."""
        storage = storage.final()
        if storage.kind == "arena":
            return 0
        return self._first[storage.kind] + storage.number

    def place(self, value: Value) -> tuple[int, int]:
        """(number, offset) of a value."""
        storage = value.storage.final()
        return self.of(storage), value.offset + (storage.offset if storage.kind == "arena" else 0)


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
            described.append(_header("blocks", len(step.steps), (step.n, step.block, numbers.local_bytes),
                                     sum(map(elements, step.steps))))
            described += [_loop_on_rows(inner, step, numbers) for inner in step.steps]
        else:
            inside: list[tuple[Any, ...]] = []
            _describe(step.test if isinstance(step, RepeatStep) else step.branches[0], numbers, inside, calls)
            n_first = len(inside)
            _describe(step.body if isinstance(step, RepeatStep) else step.branches[1], numbers, inside, calls)
            described.append(_body(step, numbers, inside, n_first))
            described += inside


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
                   work if step.length is None else work * step.length, step.name)


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
    places = [numbers.place(value) for value in step.operands]
    return ("loop", 0, step.loop, tuple([number for number, _ in places]), tuple([offset for _, offset in places]),
            tuple(extents), tuple([stride for axis in outer for stride in axis]), tuple(sizes), tuple(strides), more,
            elements(step), (step.name, step.site))


def _loop_on_rows(step: LoopStep, blocks: BlocksStep, numbers: _Numbers) -> tuple[Any, ...]:
    """A loop in blocks: along the rows of a block with one call, where these follow each other, else row by row."""
    extents, outer, sizes, strides = iteration(step)
    mode = "flat" if blocks.is_flat else "rows", blocks.n
    is_local = [value.storage.final() in blocks.local for value in step.operands]
    rows = [0 if local else row for local, row in zip(is_local, row_strides(step, mode), strict=True)]
    whole = 0
    if not extents:
        whole = sizes[0] // blocks.n
    elif extents[0] != blocks.n or outer[0] != row_strides(step, mode):     # the rows were merged with the next axis
        extents, outer = coalesced(step.shape[1:], [of_operand[1:] for of_operand in step.strides])
        strides, sizes = outer.pop(), [extents.pop()]
        extents, outer = [blocks.n, *extents], [row_strides(step, mode), *outer]
    return _described_loop(step, numbers, extents, outer, sizes, strides, (whole, *rows, *map(int, is_local)))


def _arrays(values: Sequence[Value], numbers: _Numbers) -> tuple[tuple[Any, ...], ...]:
    return tuple([(*numbers.place(value), value.shape, value.template.strides, value.dtype) for value in values])

