"""Encoding: describe the steps in numbers, for `_core.Plan`.

Assumes: all passes are done. Each storage of the arena has its offset, and each result its number.

Guarantees: the core gets a tuple for each step, inner steps after the step that contains them, and one for each call of
Python. `encoded_step` names the parts of the former.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch.compiling.builder import Builder
from pydispatch.compiling.passes.memory import Arena
from pydispatch.compiling.steps import BlocksStep, LoopStep, Mode, Step, flat
from pydispatch.compiling.values import Storage, Value, coalesced

LARGEST_IN_CACHE = 1 << 22      # bytes of arguments and results that stay in the cache between runs

EncodedStep = tuple[Any, ...]


def encoded_step(
    kind: str, n_inside: int = 0, loop: tuple[Any, ...] | None = None, buffers: tuple[int, ...] = (),
    offsets: tuple[int, ...] = (), extents: tuple[int, ...] = (), strides: tuple[int, ...] = (),
    sizes: tuple[int, ...] = (), steps: tuple[int, ...] = (), numbers: tuple[int, ...] = (), work: int = 0,
    name: str = "", site: str | None = None,
) -> EncodedStep:
    """Return a step as the core gets it: a plain tuple, which is quick to make.

    The `numbers` depend on the kind: see `plans/kinds.pyx`. Those of a loop in blocks are the elements in a row, or 0
    if rows are apart. For each operand, the bytes to the next row. For each operand, whether it is local to the block.
    For each operand, whether it is prefetched.
    """
    return kind, n_inside, loop, buffers, offsets, extents, strides, sizes, steps, numbers, work, (name, site)


WORK = 10       # the index of the work in an encoded step


def encoded_plan(
    builder: Builder, results: Sequence[Value], steps: Sequence[Step], donated: tuple[int, ...], n_threads: int
) -> _core.Plan:
    """Return the plan of steps that return these values as new arrays, or in donated ones."""
    size = Arena().place(steps)
    shares_rows = n_threads > 1 and any(isinstance(step, BlocksStep) for step in flat(steps))
    encoder = Encoder(builder, results, size if shares_rows else 0, n_threads)
    encoder.add_all(steps)
    return _core.Plan(
        tuple([(value.shape, value.dtype) for value in builder.inputs]), tuple(builder.constants),
        tuple([(value.shape, value.dtype) for value in results]), encoder.first_entry + builder.n_entries,
        size + (n_threads - 1) * encoder.local_bytes, tuple(encoder.steps), tuple(encoder.calls), n_threads, donated)


class Encoder:
    """The encoded steps and calls of a plan, and the numbers of buffers in its table of addresses."""

    def __init__(self, builder: Builder, results: Sequence[Value], local_bytes: int, n_threads: int) -> None:
        self.steps: list[EncodedStep] = []
        self.calls: list[tuple[Any, ...]] = []
        self.local_bytes = local_bytes      # a thread's private memory, as large as the arena
        self.n_threads = n_threads
        self.fit_cache = sum([value.storage.nbytes for value in (*builder.inputs, *results)]) <= LARGEST_IN_CACHE
        n_inputs, n_constants = len(builder.inputs), len(builder.constants)
        first_result = 1 + n_inputs + n_constants
        self.first_entry = first_result + len(results)
        self._first = {"arena": 0, "input": 1, "constant": 1 + n_inputs, "result": first_result,
                       "entry": self.first_entry}

    def number(self, storage: Storage) -> int:
        """Return the number of the buffer that a storage lies in."""
        storage = storage.final()
        return self._first[storage.kind] + storage.number

    def place(self, value: Value) -> tuple[int, int]:
        """Return (number, offset) of a value."""
        (number,), (offset,) = self.places((value,))
        return number, offset

    def places(self, values: Iterable[Value]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return (numbers, offsets) of values."""
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

    def arrays(self, values: Sequence[Value]) -> tuple[tuple[Any, ...], ...]:
        """Return values as the core makes arrays of them, for calls of Python."""
        return tuple([(*self.place(value), value.shape, value.template.strides, value.dtype) for value in values])

    # --- steps ---

    def add_all(self, steps: Sequence[Step]) -> None:
        """Encode steps."""
        for step in steps:
            step.encode(self)

    def add_bodies(self, first: Sequence[Step], second: Sequence[Step]) -> tuple[int, int]:
        """Encode two lists of inner steps. Return where they begin, and the number of encoded steps of the first."""
        at = len(self.steps)
        self.add_all(first)
        n_first = len(self.steps) - at
        self.add_all(second)
        return at, n_first

    def work_since(self, at: int) -> int:
        """Return the work of the steps that were encoded from this position on."""
        return sum([step[WORK] for step in self.steps[at:]])

    def add_header(
        self, kind: str, at: int, work: int, name: str = "", site: str | None = None, *, rest: Sequence[int] = (),
        **numbers: int,
    ) -> None:
        """Add a step that contains those that were encoded from this position on.

        The `numbers` are the fields of the struct that describes the kind in the core. The `rest` follows them.
        """
        self.steps.insert(at, encoded_step(
            kind, n_inside=len(self.steps) - at, work=work, name=name, site=site,
            numbers=(*[numbers[field] for field in _core.STEP_FIELDS[kind]], *rest)))

    def add_loop(
        self, step: LoopStep, extents: list[int], outer: list[list[int]], sizes: list[int], strides: list[int],
        numbers: tuple[int, ...] = (),
    ) -> None:
        """Add a loop that runs as in `LoopStep.iteration`."""
        buffers, offsets = self.places(step.operands)
        self.steps.append(encoded_step(     # by position, which is quicker
            "loop", 0, step.loop, buffers, offsets, tuple(extents),
            tuple([stride for axis in outer for stride in axis]) if outer else (), tuple(sizes), tuple(strides),
            numbers, step.elements(), step.name, step.site))

    def add_loops_on_rows(self, blocks: BlocksStep) -> None:
        """Add the loops of a group."""
        mode = blocks.mode
        ahead = set() if self.fit_cache else _fetched_ahead(blocks, mode)
        for step in blocks.steps:
            self._add_loop_on_rows(step, blocks, mode, ahead)

    def _add_loop_on_rows(self, step: LoopStep, blocks: BlocksStep, mode: Mode, ahead: set[Storage]) -> None:
        """Add a loop in blocks: one call per block if its rows are adjacent in memory, else a call per row.

        The loop prefetches the storages of `ahead` that it reads or writes, and removes them from that set.
        """
        extents, outer, sizes, strides = step.iteration()
        to_next = step.row_strides(mode)
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
        self.add_loop(step, extents, outer, sizes, strides, (whole, *rows, *is_local, *fetched))


def _fetched_ahead(blocks: BlocksStep, mode: Mode) -> set[Storage]:
    """Return the storages whose rows of the next block should be prefetched while one block is computed.

    The processor prefetches along a row by itself, but from block to block, the loops go through many rows.
    """
    if len(blocks.steps) == 1:
        return set()
    return {value.storage.final() for step in blocks.steps
            for value, row in zip(step.operands, step.row_strides(mode), strict=True) if row > 0}
