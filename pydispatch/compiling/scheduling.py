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
)

ALIGNMENT = 64                  # bytes: a line of the cache
FIRST_LEVEL = 24 << 10          # bytes of it that the temporaries of a block may take
SMALLEST_IN_BLOCKS = 1 << 13    # elements: below, all temporaries fit the cache anyway
LARGEST_BLOCK = 1 << 12         # elements


def finished_plan(builder: Builder, results: Sequence[Value]) -> tuple[_core.Plan, list[Step]]:
    """The plan of all steps, which returns these values as new arrays; and the steps, in their final order."""
    outputs = _placed_results(builder, results)
    steps = in_blocks(builder.steps)
    arena_size = Arena().place(steps)
    numbers = _Numbers(builder, len(outputs))
    described: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    _describe(steps, numbers, described, calls)
    plan = _core.Plan(
        tuple([(value.shape, value.dtype) for value in builder.inputs]), tuple(builder.constants),
        tuple([(value.shape, value.dtype) for value in outputs]), numbers.first_entry + builder.n_entries,
        arena_size, tuple(described), tuple(calls))
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


# --- loops over the same elements ------------------------------------------------------------------------------------


def in_blocks(steps: Sequence[Step]) -> list[Step]:
    """The steps, with loops over the same many elements in groups, in which temporaries stay in the cache."""
    for step in steps:
        if isinstance(step, RepeatStep):
            step.body, step.test = in_blocks(step.body), in_blocks(step.test)
        elif isinstance(step, ChooseStep):
            step.branches = in_blocks(step.branches[0]), in_blocks(step.branches[1])
    if not any(isinstance(step, LoopStep) and length_in_blocks(step) for step in steps):
        return list(steps)
    ordered = _gathered(steps)
    found: list[Step] = []
    group: list[LoopStep] = []
    uses = _uses(ordered)
    for step in ordered:
        n = length_in_blocks(step) if isinstance(step, LoopStep) else 0
        if group and (n == 0 or n != length_in_blocks(group[0]) or _meets_elsewhere(step, group)):
            found.append(_as_blocks(group, uses))
            group = []
        if n:
            group.append(step)      # type: ignore[arg-type]
        else:
            found.append(step)
    if group:
        found.append(_as_blocks(group, uses))
    return found


def length_in_blocks(step: LoopStep) -> int:
    """The number of elements that it goes through one after the other; 0 where it is not fit for blocks."""
    if not step.is_elementwise or elements(step) < SMALLEST_IN_BLOCKS:
        return 0
    outer, _, sizes, strides = iteration(step)
    if outer or any(stride not in (0, value.dtype.itemsize)
                    for stride, value in zip(strides, step.operands, strict=True)):
        return 0
    return sizes[0]


def _meets_elsewhere(step: Step, group: Sequence[LoopStep]) -> bool:
    """Does the step use what the group writes, or write what it uses, at other positions than the group does?"""
    assert isinstance(step, LoopStep)
    for other in group:
        for one, i in _accessed(step):
            for another, k in _accessed(other):
                if (i or k) and one.storage.final() is another.storage.final() and (
                        one.offset != another.offset or one.dtype.itemsize != another.dtype.itemsize
                        or one.template.size != another.template.size):
                    return True
    return False


def _accessed(step: LoopStep) -> list[tuple[Value, bool]]:
    """The operands of a step, and whether it writes to them."""
    n = len(step.operands) - step.n_out
    return [(value, i >= n) for i, value in enumerate(step.operands)]


def _gathered(steps: Sequence[Step]) -> list[Step]:
    """The steps in an order in which those of equal length follow each other, as far as what they use is there."""
    waiting, followers = _dependencies(steps)
    ready = [i for i, count in enumerate(waiting) if not count]
    lengths = [length_in_blocks(step) if isinstance(step, LoopStep) else 0 for step in steps]
    ordered: list[Step] = []
    last = 0
    while ready:
        chosen = next((position for position, i in enumerate(ready) if last and lengths[i] == last), None)
        if chosen is None:      # first what needs no block, so that blocks are long
            chosen = next((position for position, i in enumerate(ready) if not lengths[i]), 0)
        i = ready.pop(chosen)
        last = lengths[i]
        ordered.append(steps[i])
        for follower in followers[i]:
            waiting[follower] -= 1
            if not waiting[follower]:
                bisect.insort(ready, follower)
    return ordered


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


def _as_blocks(group: list[LoopStep], uses: dict[Storage, int]) -> Step:
    """Loops over the same elements as one step; one loop alone stays what it is."""
    if len(group) == 1:
        return group[0]
    n = length_in_blocks(group[0])
    inside = _uses(group)
    local = {storage for storage, count in inside.items()
             if storage.kind == "arena" and count == uses[storage] and storage.nbytes > FIRST_LEVEL}
    streams = [value for step in group for value in step.operands]
    width = max([value.dtype.itemsize for value in streams])
    block = min(LARGEST_BLOCK, max(FIRST_LEVEL // (width * (_most_at_once(group, local) + 2)), 256)) // 64 * 64
    for step in group:
        _, _, _, strides = iteration(step)
        step.moves = tuple([
            0 if value.storage.final() in local or not stride else 1
            for value, stride in zip(step.operands, strides, strict=True)])
    return BlocksStep(group, n, block, local)


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
                sizes = {storage: step.block * itemsize_of(step, storage) for storage in step.local}
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


def itemsize_of(step: BlocksStep, storage: Storage) -> int:
    """The bytes of an element of a storage."""
    return next(value.dtype.itemsize for inner in step.steps for value in inner.operands
                if value.storage.final() is storage)


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

    def __init__(self, builder: Builder, n_results: int) -> None:
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
            described.append(_loop(step, numbers, ()))
        elif isinstance(step, CallStep):
            described.append(_header("call", 0, (len(calls),), 1 << 10, step.name, step.site))
            calls.append((step.function, _arrays(step.inputs, numbers), _arrays(step.outputs, numbers)))
        elif isinstance(step, BlocksStep):
            described.append(_header("blocks", len(step.steps), (step.n, step.block), step.n * len(step.steps)))
            described += [_loop(inner, numbers, inner.moves) for inner in step.steps]
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


def _loop(step: LoopStep, numbers: _Numbers, moves: tuple[int, ...]) -> tuple[Any, ...]:
    extents, outer, sizes, strides = iteration(step)
    places = [numbers.place(value) for value in step.operands]
    return ("loop", 0, step.loop, tuple([number for number, _ in places]), tuple([offset for _, offset in places]),
            tuple(extents), tuple([stride for axis in outer for stride in axis]), tuple(sizes), tuple(strides), moves,
            elements(step), (step.name, step.site))


def _arrays(values: Sequence[Value], numbers: _Numbers) -> tuple[tuple[Any, ...], ...]:
    return tuple([(*numbers.place(value), value.shape, value.template.strides, value.dtype) for value in values])

