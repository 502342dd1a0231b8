"""The backend "numba": a plan in which numba compiles groups of loops, and repetitions of small bodies.

Each of these becomes one function like the loop of a ufunc (`loop_sources`). A plan runs it like NumPy's own loops: in
blocks, on the plan's threads, without the GIL. Numba's threads are not used, because not all of its threading layers
can be called by several threads at once.
"""

# tests: tests/compiling/test_numba.py
from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, types

from pydispatch.compiling.builder import Builder
from pydispatch.compiling.loop_sources import LoopSource, source_of_group, source_of_repetition
from pydispatch.compiling.nests import is_supported
from pydispatch.compiling.numba_functions import NAMES
from pydispatch.compiling.passes.fusion import Fusion, in_blocks
from pydispatch.compiling.plan import PlanFunction
from pydispatch.compiling.positions import PositionStep, with_positions, without_positions
from pydispatch.compiling.steps import BlocksStep, LoopStep, RepeatStep, Step, flat, uses_of
from pydispatch.compiling.values import Storage, Value
from pydispatch.tracing import Graph

SMALLEST_GROUP = 1 << 9         # elements. Compiling fewer takes longer than NumPy's loops
FEWEST_LOOPS = 2                # in a group. A single loop is NumPy's
MOST_LOOPS = 64                # in a group. LLVM takes more than twice as long for twice as many
SHORTEST_REPETITION = 16        # turns
LARGEST_BODY = 1 << 12          # elements of a loop. Larger bodies become groups of loops
TURNS = 1 << 12                 # between two checks for signals
BLOCK = 1 << 14                 # rows
LOCAL_BYTES = 1 << 16           # bytes of a block's local memory, of which only the first row is used
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
    """Compile a source. Equal sources share one function."""
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
        """Turn small repetitions into loops, and group the remaining loops over the same rows."""
        ready = with_positions(builder, _with_repetitions(builder, steps, uses_of(steps), self.threads))
        return in_blocks(ready, Fusion(self.threads, SMALLEST_GROUP, FEWEST_LOOPS, False, is_supported, MOST_LOOPS))

    def replaced(self, builder: Builder, steps: Sequence[Step], same: Mapping[Storage, Storage]) -> list[Step]:
        """Replace each group of loops by one loop."""
        found: list[Step] = []
        for step in steps:
            if isinstance(step, BlocksStep) and not step.in_order:
                found += _as_loop(builder, step, same)
                continue
            step.map_bodies(lambda body: self.replaced(builder, body, same))
            found.append(step)
        return without_positions(found)


def compile_to_numba(graph: Graph, threads: int = 1) -> NumbaFunction:
    """Compile a graph to a plan with machine code."""
    return NumbaFunction(graph, threads)


# --- groups of loops -------------------------------------------------------------------------------------------------


def _as_loop(builder: Builder, blocks: BlocksStep, same: Mapping[Storage, Storage]) -> list[Step]:
    """Return a group as one loop, if it has enough loops and elements and not too many operands."""
    rest: list[Step] = [blocks]
    if any(isinstance(step, PositionStep) for step in blocks.steps):
        rest = list(blocks.steps)
    if len(blocks.steps) < FEWEST_LOOPS or max([step.elements() for step in blocks.steps]) < SMALLEST_GROUP:
        return rest
    loop = _loop(builder, source_of_group(blocks.steps, blocks.mode, blocks.local, same), blocks.n,
                 [step.name for step in blocks.steps], sum([step.work() for step in blocks.steps]))
    if loop is None:
        return rest
    left = blocks.local & set().union(*loop.accesses())
    row = max([1, *[storage.nbytes // blocks.n for storage in left]])
    return [BlocksStep([loop], blocks.n, min(blocks.n, BLOCK, max(LOCAL_BYTES // row, 1)), blocks.is_flat, left)]


def _loop(builder: Builder, source: LoopSource, n: int, names: Sequence[str], work: int) -> LoopStep | None:
    """Return a function as a step, or None if it has too many operands."""
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
    builder: Builder, steps: Sequence[Step], counts: dict[Storage, int], n_threads: int
) -> list[Step]:
    """Replace repetitions of small bodies by loops."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, RepeatStep):
            loops = _repetition(builder, step, counts, n_threads)
            if loops is not None:
                found += loops
                continue
        step.map_bodies(lambda body: _with_repetitions(builder, body, counts, n_threads))
        found.append(step)
    return found


def _repetition(
    builder: Builder, step: RepeatStep, counts: dict[Storage, int], n_threads: int
) -> list[Step] | None:
    """Return a repetition as a loop, or None if it stays unchanged."""
    loops = [inner for inner in flat([step]) if isinstance(inner, LoopStep)]
    if not is_supported(step) or not loops or max([inner.elements() for inner in loops]) > LARGEST_BODY:
        return None
    if step.length is not None and step.length < SHORTEST_REPETITION:
        return None
    repetitions = [inner for inner in flat([step]) if isinstance(inner, RepeatStep)]
    pairs = [(entry, memory) for inner in repetitions for one, other, now, following in inner.carries
             for entry, memory in ((now, one), (following, other))]
    for entry, memory in pairs:
        entry.instead = memory          # they do not change places: the source copies
    inside = uses_of([step])
    kept = {storage.final() for storage, n in counts.items() if n > inside.get(storage, 0)}
    local = {storage for storage in inside if storage.kind == "arena" and storage not in kept}
    local -= {one.final() for one, _, _, _ in step.carries}
    if step.condition is not None:
        local.discard(step.condition.storage.final())
    names = list(dict.fromkeys([inner.name for inner in loops]))
    work = sum([inner.work() for inner in loops])
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
