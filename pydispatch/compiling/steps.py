"""The steps of plans: a class for each kind, which defines everything that the passes need to know about it.

A new kind is a class here, a rule that adds it to plans, and, unless `encode` adds steps of other kinds, a kind of the
core in `plans/kinds.pyx`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydispatch.compiling.arithmetic import ELEMENTARY, SLOW
from pydispatch.compiling.values import Array, Storage, Value, coalesced

if TYPE_CHECKING:
    from pydispatch.compiling.passes.encoding import Encoder
    from pydispatch.compiling.passes.memory import Arena

Iteration = tuple[list[int], list[list[int]], list[int], list[int]]
"""The description of a loop's run. See `LoopStep.iteration`."""

Mode = tuple[str, int]
"""The way in which loops go through arrays together: ("flat", elements) or ("rows", length of the first axis)."""

Accesses = tuple[set[Storage], set[Storage]]
"""The storages that are read, and those that are written to."""

RowAccesses = list[tuple[Storage, int, int, bool]]
"""(storage, bytes to the next row, offset, whether it is written) of each operand of a loop."""

Carry = tuple[Storage, Storage, Storage, Storage]
Move = tuple[Storage, Value, int, int]

WORK_OF_CALL = 1 << 10          # elements of quick loops that take about as long
WORK_OF_WHILE = 1 << 17         # elements. The number of repetitions is unknown, so other threads run meanwhile
WORK_OF_THREAD = 1 << 16        # elements of quick loops, so that handing over work takes a small part of their time


class Step:
    """One step of a plan. The defaults suit a step that only runs those inside it."""

    __slots__ = ()
    counts = 0, 0               # (loops, calls of Python), without those of inner steps
    is_pure: bool = False       # whether the step is removed when nothing uses what it writes

    def inner(self) -> Sequence[Step]:
        """Return the steps inside this one."""
        return ()

    def map_bodies(self, function: Callable[[list[Step]], list[Step]]) -> None:
        """Replace each list of inner steps that passes may change by the result of the function."""

    def accesses(self) -> Accesses:
        """Return the storages that the step reads, and those that it writes to. Do not change the sets."""
        read, written = accesses_of(self.inner())
        read.update(self.uses())
        return read, written

    def uses(self) -> list[Storage]:
        """Return the storages that a step with inner steps uses itself, once for each use."""
        return []

    def elements(self) -> int:
        """Return about how many elements the step's own loop goes through, or 0 if it has none."""
        return 0

    def modes(self) -> frozenset[Mode]:
        """Return the modes in which the step can share blocks with others."""
        return frozenset()

    def row_accesses(self, mode: Mode) -> RowAccesses:
        """Return the accesses of the operands in one of the step's modes."""
        return []

    def reads_where_it_writes(self, result: Storage, given: Storage) -> bool:
        """Return whether the step reads each element of `given` before it writes that place of `result`."""
        return False

    def lines(self, indent: str) -> Iterator[str]:
        """Yield the text of the step, a line each."""
        raise NotImplementedError

    def add_lifetimes(self, arena: Arena) -> None:
        """Report to the arena when each storage is used."""
        raise NotImplementedError

    def encode(self, encoder: Encoder) -> None:
        """Add the step to the encoded plan."""
        raise NotImplementedError


@dataclass(slots=True)
class LoopStep(Step):
    """A loop over arrays. `loop` has the format of `_core.Plan`.

    `strides` has the strides of each operand along the axes of `shape`. A loop whose elements are arrays, such as a
    product of matrices, has `core_sizes` and `core_strides`, as NumPy's loops get them. The loop writes to the last
    `n_out` operands. A step is not changed once it exists.
    """

    loop: tuple[Any, ...]
    operands: tuple[Value, ...]
    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    name: str
    site: str | None
    core_sizes: tuple[int, ...] = ()
    core_strides: tuple[int, ...] = ()
    n_out: int = 1
    is_elementwise: bool = True
    counts = 1, 0
    is_pure = True
    # caches of the methods with these names
    _elements: int = field(default=0, init=False, repr=False, compare=False)
    _iteration: Iteration | None = field(default=None, init=False, repr=False, compare=False)
    _accesses: Accesses | None = field(default=None, init=False, repr=False, compare=False)

    def accesses(self) -> Accesses:
        if self._accesses is not None:
            return self._accesses
        storages = [value.storage if value.storage.instead is None else value.storage.final()
                    for value in self.operands]
        n = len(storages) - self.n_out
        found = set(storages[:n]), set(storages[n:])
        for storage in storages:
            if storage.kind == "entry":         # it may be replaced later
                return found
        self._accesses = found
        return found

    def elements(self) -> int:
        """Return about how many elements a run goes through, at least one."""
        if not self._elements:
            self._elements = max(math.prod(self.shape), 1) * (math.prod(self.core_sizes) if self.core_sizes else 1)
        return self._elements

    def cost(self) -> int:
        """Return about how many additions take as long as the loop does for one element."""
        if self.loop[0] != "ufunc":
            return 1
        return ELEMENTARY[self.loop[1]].cost if self.loop[1] in ELEMENTARY else SLOW

    def work(self) -> int:
        """Return about how many elements a quick loop goes through in the time of this one."""
        return self.elements() * self.cost()

    def iteration(self) -> Iteration:
        """Return the outer axes' extents and strides, then the loop's sizes and strides. Do not change the lists."""
        if self._iteration is None:
            if len(self.shape) == 1 and self.shape[0] != 1 and not self.core_sizes:     # the commonest case
                self._iteration = [], [], list(self.shape), [strides[0] for strides in self.strides]
                return self._iteration
            extents, strides = coalesced(self.shape, self.strides)
            self._iteration = (
                extents[:-1], strides[:-1], [extents[-1], *self.core_sizes], [*strides[-1], *self.core_strides])
        return self._iteration

    def modes(self) -> frozenset[Mode]:
        shape = self.shape
        if not shape or self.core_sizes:
            return frozenset()
        modes: list[Mode] = []
        if shape[0] > 1 and (self.is_elementwise or self.strides[0][0]):
            modes.append(("rows", shape[0]))
        if self.is_elementwise and self.elements() > 1:
            outer, _, sizes, strides = self.iteration()
            if not outer and self._follow_each_other(strides):
                modes.append(("flat", sizes[0]))
        return frozenset(modes)

    def _follow_each_other(self, strides: Sequence[int]) -> bool:
        """Return whether each operand's elements are adjacent, parts of such complex numbers, or all the same one."""
        for stride, value in zip(strides, self.operands, strict=True):
            if stride and stride != value.template.itemsize and stride != 2 * value.template.itemsize:
                return False
        return True

    def row_strides(self, mode: Mode) -> list[int]:
        """Return the bytes to the next row of each operand. Do not change the list."""
        if mode[0] == "flat":
            return self.iteration()[3]
        return [strides[0] for strides in self.strides]

    def row_accesses(self, mode: Mode) -> RowAccesses:
        n = len(self.operands) - self.n_out
        return [(value.storage if value.storage.instead is None else value.storage.final(), row, value.offset, i >= n)
                for i, (value, row) in enumerate(zip(self.operands, self.row_strides(mode), strict=True))]

    def reads_where_it_writes(self, result: Storage, given: Storage) -> bool:
        written, itemsize = self.strides[-1], self.operands[-1].dtype.itemsize
        return self.is_elementwise and all(
            strides == written and value.dtype.itemsize == itemsize and value.is_whole for value, strides in zip(
                self.operands, self.strides, strict=True) if value.storage.final() in (result, given))

    def lines(self, indent: str) -> Iterator[str]:
        n = len(self.operands) - self.n_out
        yield f"{indent}{_joined(self.operands[n:])} = {self.name}({_joined(self.operands[:n])})"

    def add_lifetimes(self, arena: Arena) -> None:
        arena.note_loop(self)

    def encode(self, encoder: Encoder) -> None:
        encoder.add_loop(self, *self.iteration())


@dataclass(slots=True)
class CallStep(Step):
    """A call of Python: `function(inputs, outputs)`. If it `is_pure`, it is removed when its results are unused.

    `reason` specifies why it is not a loop.
    """

    function: Callable[[tuple[Array, ...], tuple[Array, ...]], None]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str
    site: str | None
    reason: str
    is_pure: bool
    counts = 0, 1

    def accesses(self) -> Accesses:
        return {value.storage.final() for value in self.inputs}, {value.storage.final() for value in self.outputs}

    def lines(self, indent: str) -> Iterator[str]:
        written = f"{_joined(self.outputs)} = " if self.outputs else ""
        yield f"{indent}{written}call {self.name}({_joined(self.inputs)})"

    def add_lifetimes(self, arena: Arena) -> None:
        read, written = self.accesses()
        arena.touch([*read, *written])

    def encode(self, encoder: Encoder) -> None:
        encoder.add_header("call", len(encoder.steps), WORK_OF_CALL, self.name, self.site, index=len(encoder.calls))
        target, copied = getattr(self.function, "direct", (None, ()))
        encoder.calls.append((self.function, encoder.arrays(self.inputs), encoder.arrays(self.outputs), target, copied))


@dataclass(slots=True)
class BlocksStep(Step):
    """Loops over the same `n` rows, `block` of them at a time. A `local` storage holds the rows of one block.

    A row is one element if `is_flat`, else a slice along the first axis. Rows that are `in_order` depend on the row
    before, so threads do not share them. If `by_halves`, blocks are the parts that NumPy adds up separately in a sum
    over all rows, and `block` is the largest number of rows in one.
    """

    steps: list[LoopStep]
    n: int
    block: int
    is_flat: bool
    local: set[Storage]
    in_order: bool = False
    by_halves: bool = False

    def inner(self) -> Sequence[Step]:
        return self.steps

    @property
    def mode(self) -> Mode:
        """The mode that the loops share."""
        return "flat" if self.is_flat else "rows", self.n

    def n_threads(self, most: int) -> int:
        """Return the number of threads that share the rows. Each of them needs enough work."""
        if self.in_order:
            return 1
        return max(1, min(most, sum([step.work() for step in self.steps]) // WORK_OF_THREAD))

    def reads_where_it_writes(self, result: Storage, given: Storage) -> bool:
        both, row_of_both, mode = {result, given}, result.nbytes // self.n, self.mode
        for inner in self.steps:
            if both.isdisjoint(inner.accesses()[0]) and both.isdisjoint(inner.accesses()[1]):
                continue
            for storage, row, offset, _ in inner.row_accesses(mode):
                if storage in both and (row != row_of_both or offset >= row):
                    return False
        return can_share_memory(self.steps, result, given)

    def lines(self, indent: str) -> Iterator[str]:
        yield f"{indent}for each block of {self.block} of {self.n} {'elements' if self.is_flat else 'rows'}:"
        yield from lines_of(self.steps, indent + "    ")

    def add_lifetimes(self, arena: Arena) -> None:
        sizes = {storage: self.block * (storage.nbytes // self.n) for storage in self.local}
        for step in self.steps:
            arena.time += 1
            arena.note_loop(step, sizes)
        arena.extend_over_blocks(self)

    def encode(self, encoder: Encoder) -> None:
        at = len(encoder.steps)
        encoder.add_loops_on_rows(self)
        encoder.add_header(
            "blocks", at, sum([step.elements() for step in self.steps]), n_rows=self.n, block=self.block,
            local_bytes=encoder.local_bytes, order=2 if self.by_halves else int(self.in_order),
            n_threads=self.n_threads(encoder.n_threads))


@dataclass(slots=True)
class RepeatStep(Step):
    """Steps that run `length` times, or, if that is None, as long as `test` leaves True in `condition`.

    `carries` are (memory, other memory, entry, other entry). The entries change places after each repetition. `moves`
    are (entry, the value that it moves over, first byte, bytes to the next slice).
    """

    body: list[Step]
    length: int | None
    carries: list[Carry]
    moves: list[Move]
    name: str
    test: list[Step] = field(default_factory=list)
    condition: Value | None = None

    def inner(self) -> Sequence[Step]:
        return [*self.test, *self.body]

    def map_bodies(self, function: Callable[[list[Step]], list[Step]]) -> None:
        self.body, self.test = function(self.body), function(self.test)

    def accesses(self) -> Accesses:
        read, written = accesses_of(self.inner())
        for entry, whole, _, _ in self.moves:
            (written if entry in written else read).add(whole.storage.final())
        for carry in self.carries:
            written.update(carry)
        read.update(self.tested())
        return read, written

    def uses(self) -> list[Storage]:
        found = [whole.storage.final() for _, whole, _, _ in self.moves]
        found += [storage.final() for carry in self.carries for storage in carry]
        return found + self.tested()

    def tested(self) -> list[Storage]:
        """Return the storage of the condition, if there is one."""
        return [] if self.condition is None else [self.condition.storage.final()]

    def lines(self, indent: str) -> Iterator[str]:
        carried = f", carrying {len(self.carries)}" if self.carries else ""
        if self.length is None:
            yield f"{indent}while{carried}:"
            yield from lines_of(self.test, indent + "    ? ")
        else:
            moving = ", ".join([f"part of {whole.start}" for _, whole, _, _ in self.moves])
            yield f"{indent}repeat {self.length} times{carried}{', over ' + moving if moving else ''}:"
        yield from lines_of(self.body, indent + "    ")

    def add_lifetimes(self, arena: Arena) -> None:
        start = arena.time
        held = [storage for carry in self.carries for storage in carry[:2]]
        held += [whole.storage.final() for _, whole, _, _ in self.moves]
        arena.touch(held)
        arena.walk(self.test)
        arena.time += 1
        arena.touch(self.tested())
        arena.walk(self.body)
        arena.extend(self, start, only_older=True)      # the next repetition needs values from outside
        arena.touch(held)

    def encode(self, encoder: Encoder) -> None:
        at, n_test = encoder.add_bodies(self.test, self.body)
        work = 8 + encoder.work_since(at)
        places = [(encoder.number(entry), memory.offset)
                  for one, other, now, following in self.carries for memory, entry in ((one, now), (other, following))]
        moves = [(encoder.number(entry), number, offset + first, stride) for entry, whole, first, stride in self.moves
                 for number, offset in (encoder.place(whole),)]
        swaps = [(encoder.number(now), encoder.number(following)) for _, _, now, following in self.carries]
        buffer, offset = (0, 0) if self.condition is None else encoder.place(self.condition)
        encoder.add_header(
            "while" if self.length is None else "repeat", at,
            max(work, WORK_OF_WHILE) if self.length is None else work * self.length, self.name,
            rest=[number for group in (places, moves, swaps) for item in group for number in item],
            n_places=len(places), n_moves=len(moves), n_swaps=len(swaps), length=self.length or 0, buffer=buffer,
            offset=offset, n_test=n_test)


@dataclass(slots=True)
class ChooseStep(Step):
    """The steps of two branches, of which one runs."""

    condition: Value
    branches: tuple[list[Step], list[Step]]
    name: str

    def inner(self) -> Sequence[Step]:
        return [*self.branches[0], *self.branches[1]]

    def map_bodies(self, function: Callable[[list[Step]], list[Step]]) -> None:
        self.branches = function(self.branches[0]), function(self.branches[1])

    def uses(self) -> list[Storage]:
        return [self.condition.storage.final()]

    def lines(self, indent: str) -> Iterator[str]:
        yield f"{indent}if {self.condition}:"
        yield from lines_of(self.branches[0], indent + "    ")
        yield f"{indent}else:"
        yield from lines_of(self.branches[1], indent + "    ")

    def add_lifetimes(self, arena: Arena) -> None:
        start = arena.time
        arena.touch([self.condition.storage.final()])
        for branch in self.branches:
            arena.walk(branch)
        arena.extend(self, start)       # later steps may need the results of either branch

    def encode(self, encoder: Encoder) -> None:
        at, n_first = encoder.add_bodies(*self.branches)
        buffer, offset = encoder.place(self.condition)
        encoder.add_header("choose", at, 8 + encoder.work_since(at), self.name, buffer=buffer, offset=offset,
                           n_first=n_first)


# --- several steps ---------------------------------------------------------------------------------------------------


def accesses_of(steps: Iterable[Step]) -> Accesses:
    """Return the storages that some of the steps read, and those that some write to."""
    read: set[Storage] = set()
    written: set[Storage] = set()
    for step in steps:
        of_step = step.accesses()
        read |= of_step[0]
        written |= of_step[1]
    return read, written


def can_share_memory(steps: Iterable[Step], result: Storage, given: Storage) -> bool:
    """Return whether each element of `given` is read for the last time before that place of `result` is written."""
    written = False
    for step in steps:
        reads, writes = step.accesses()
        if given in reads and (written or (result in writes and not step.reads_where_it_writes(result, given))):
            return False
        written = written or result in writes
    return True


def flat(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps and those inside them."""
    for step in steps:
        yield step
        inner = step.inner()
        if inner:
            yield from flat(inner)


def has_calls(steps: Iterable[Step]) -> bool:
    """Return whether a call of Python is among the steps or inside them."""
    return any(step.counts[1] for step in flat(steps))


def uses_of(steps: Iterable[Step]) -> dict[Storage, int]:
    """Return the number of uses of each storage by the steps and those inside them."""
    found: dict[Storage, int] = {}
    for step in flat(steps):
        read, written = step.accesses()
        for storage in step.uses() if step.inner() else read | written:
            found[storage] = found.get(storage, 0) + 1
    return found


def lines_of(steps: Iterable[Step], indent: str = "") -> Iterator[str]:
    """Yield the steps as text, a line each."""
    for step in steps:
        yield from step.lines(indent)


def _joined(values: Iterable[Value]) -> str:
    return ", ".join(map(str, values))
