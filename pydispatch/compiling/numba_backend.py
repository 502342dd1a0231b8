"""The backend "numba": a plan, of which groups of loops and repetitions of small bodies are machine code of numba's.

Each of these is one function like the loops of a ufunc (`loop_sources`), so a plan runs it as it runs NumPy's own: in
blocks, on threads of its own, without the GIL. Numba's threads are not used, since not all of its ways to run them can
be called by several threads at once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, types

from pydispatch.compiling.builder import Builder
from pydispatch.compiling.loop_sources import LoopSource, source_of_group, source_of_repetition
from pydispatch.compiling.nests import is_supported
from pydispatch.compiling.numba_functions import NAMES
from pydispatch.compiling.plan import PlanFunction
from pydispatch.compiling.positions import PositionStep, with_positions, without_positions
from pydispatch.compiling.rules import elements
from pydispatch.compiling.scheduling import accesses, in_blocks, inner_steps, modes_of, work_of_loop
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
from pydispatch.tracing import Graph

SMALLEST_GROUP = 1 << 9         # elements: below, NumPy's loops take less time than it takes to compile others
FEWEST_LOOPS = 2                # in a group: a loop alone is NumPy's
SHORTEST_REPETITION = 16        # turns
LARGEST_BODY = 1 << 12          # elements of a loop: beyond, a body is groups of loops
TURNS = 1 << 12                 # between two looks at signals
BLOCK = 1 << 14                 # rows
LOCAL_BYTES = 1 << 16           # of a memory that is a block's own, of which only the first row is used
MOST_OPERANDS = 60              # of a loop of the core, without those that are counted twice

SIGNATURE = types.void(
    types.CPointer(types.voidptr), types.CPointer(types.intp), types.CPointer(types.intp), types.voidptr)


class MachineCode(NamedTuple):
    """A compiled function: its address, and the object that keeps it in memory."""

    address: int
    owner: Any


_compiled: dict[str, MachineCode] = {}
_lock = threading.Lock()


def machine_code(source: str) -> MachineCode:
    """The function of a source; equal sources have one function."""
    with _lock:
        found = _compiled.get(source)
        if found is None:
            names = dict(NAMES)
            exec(compile(source, "<loop of a compiled function>", "exec"), names)
            owner = cfunc(SIGNATURE, error_model="numpy")(names["loop"])
            found = _compiled[source] = MachineCode(int(owner.address or 0), owner)
        return found


class NumbaFunction(PlanFunction):
    """A graph as a function of raw arrays: a plan with machine code."""

    def grouped(self, builder: Builder, steps: Sequence[Step]) -> list[Step]:
        """Repetitions as loops, and what is left in groups of loops over the same rows."""
        counts = Counter(_storages(steps))
        ready = with_positions(builder, _with_repetitions(builder, steps, counts, self.threads))
        return in_blocks(ready, self.threads, _modes_of, SMALLEST_GROUP, FEWEST_LOOPS, with_sums=False)

    def replaced(self, builder: Builder, steps: Sequence[Step], same: Mapping[Storage, Storage]) -> list[Step]:
        """Groups of loops as one loop each."""
        found: list[Step] = []
        for step in steps:
            if isinstance(step, BlocksStep) and not step.in_order:
                found += _as_loop(builder, step, same)
                continue
            if isinstance(step, RepeatStep):
                step.body, step.test = self.replaced(builder, step.body, same), self.replaced(builder, step.test, same)
            elif isinstance(step, ChooseStep):
                step.branches = (self.replaced(builder, step.branches[0], same),
                                 self.replaced(builder, step.branches[1], same))
            found.append(step)
        return without_positions(found)


def compile_to_numba(graph: Graph, threads: int = 1) -> NumbaFunction:
    """The plan of a graph, with machine code."""
    return NumbaFunction(graph, threads)


def _modes_of(step: Step) -> Any:
    return modes_of(step) if is_supported(step) else frozenset()


# --- groups of loops -------------------------------------------------------------------------------------------------


def _as_loop(builder: Builder, blocks: BlocksStep, same: Mapping[Storage, Storage]) -> list[Step]:
    """A group as one loop, if it has enough loops and elements, and not too many operands."""
    rest: list[Step] = [blocks]
    if any(isinstance(step, PositionStep) for step in blocks.steps):
        rest = list(blocks.steps)
    if len(blocks.steps) < FEWEST_LOOPS or max(map(elements, blocks.steps)) < SMALLEST_GROUP:
        return rest
    mode = "flat" if blocks.is_flat else "rows", blocks.n
    loop = _loop(builder, source_of_group(blocks.steps, mode, blocks.local, same), blocks.n,
                 [step.name for step in blocks.steps], sum(map(work_of_loop, blocks.steps)))
    if loop is None:
        return rest
    left = blocks.local & set().union(*accesses(loop))
    row = max([1, *[storage.nbytes // blocks.n for storage in left]])
    return [BlocksStep([loop], blocks.n, min(blocks.n, BLOCK, max(LOCAL_BYTES // row, 1)), blocks.is_flat, left)]


def _loop(builder: Builder, source: LoopSource, n: int, names: Sequence[str], work: int) -> LoopStep | None:
    """A function as a step; None where it has too many operands."""
    if len(source.operands) > MOST_OPERANDS:
        return None
    code = machine_code(source.text)
    operands = [Value(operand.storage, operand.storage.owner) for operand in source.operands]
    rows = [(operand.row,) for operand in source.operands]
    if source.numbers:
        operands.insert(0, builder.constant(np.array(source.numbers, np.int64)))
        rows.insert(0, (0,))
    return LoopStep(
        ("native", *code), tuple(operands), (n,), tuple(rows), f"loop of numba's({', '.join(names)})", None,
        core_sizes=(max(work // n, 1),), n_out=sum([operand.is_written for operand in source.operands]),
        is_elementwise=False)


# --- repetitions -----------------------------------------------------------------------------------------------------


def _with_repetitions(
    builder: Builder, steps: Sequence[Step], counts: Counter[Storage], n_threads: int
) -> list[Step]:
    """The steps, with repetitions of small bodies as loops."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, RepeatStep):
            loops = _repetition(builder, step, counts, n_threads)
            if loops is not None:
                found += loops
                continue
            step.body = _with_repetitions(builder, step.body, counts, n_threads)
            step.test = _with_repetitions(builder, step.test, counts, n_threads)
        elif isinstance(step, ChooseStep):
            step.branches = (_with_repetitions(builder, step.branches[0], counts, n_threads),
                             _with_repetitions(builder, step.branches[1], counts, n_threads))
        found.append(step)
    return found


def _repetition(
    builder: Builder, step: RepeatStep, counts: Counter[Storage], n_threads: int
) -> list[Step] | None:
    """A repetition as a loop; None where it stays what it is."""
    loops = [inner for inner in _flat([step]) if isinstance(inner, LoopStep)]
    if not is_supported(step) or not loops or max(map(elements, loops)) > LARGEST_BODY:
        return None
    if step.length is not None and step.length < SHORTEST_REPETITION:
        return None
    repetitions = [inner for inner in _flat([step]) if isinstance(inner, RepeatStep)]
    pairs = [(entry, memory) for inner in repetitions for one, other, now, following in inner.carries
             for entry, memory in ((now, one), (following, other))]
    for entry, memory in pairs:
        entry.instead = memory          # they do not change places: the source copies
    inside = Counter(_storages([step]))
    kept = {storage.final() for storage, n in counts.items() if n > inside[storage]}
    local = {storage for storage in inside if storage.kind == "arena" and storage not in kept}
    local -= {one.final() for one, _, _, _ in step.carries}
    if step.condition is not None:
        local.discard(step.condition.storage.final())
    names = list(dict.fromkeys([inner.name for inner in loops]))
    work = sum(map(work_of_loop, loops))
    source = source_of_repetition(step, local, {})
    n = TURNS if step.length is None else step.length
    loop = _loop(builder, source, n, names, work * n)
    if loop is None:
        for entry, _ in pairs:
            entry.instead = None
        return None
    if step.length is None:
        step.test, step.body, step.carries = [loop], [], []
        return [step]
    return [BlocksStep([loop], n, min(n, TURNS), False, set(), in_order=True)]


def _flat(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, and all that they have inside."""
    for step in steps:
        yield step
        yield from _flat(inner_steps(step))


def _storages(steps: Sequence[Step]) -> Iterator[Storage]:
    """The storages that steps use, each as often as there are uses."""
    for step in _flat(steps):
        if isinstance(step, LoopStep):
            yield from [value.storage.final() for value in step.operands]
        elif isinstance(step, CallStep):
            yield from [value.storage.final() for value in (*step.inputs, *step.outputs)]
        elif isinstance(step, RepeatStep):
            yield from [whole.storage.final() for _, whole, _, _ in step.moves]
        if isinstance(step, RepeatStep | ChooseStep) and step.condition is not None:
            yield step.condition.storage.final()
