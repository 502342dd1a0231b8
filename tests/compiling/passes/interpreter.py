"""Random steps of plans, and an interpreter of steps in NumPy, which shares no code with the passes and the core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pydispatch.compiling.builder import Builder
from pydispatch.compiling.passes.memory import placed_results
from pydispatch.compiling.steps import BlocksStep, LoopStep, Step
from pydispatch.compiling.values import Storage, Value

SEEDS = range(100)
N = 20      # rows
LOOPS = (np.add, np.subtract, np.multiply, np.maximum)
VIEWS = (lambda x: x[1:], lambda x: x[:-1], lambda x: x[::-1], lambda x: x[:, None], lambda x: x[:1], lambda x: x[:, 0])


class Program(NamedTuple):
    """The steps of a plan, and values for its inputs."""

    builder: Builder
    steps: list[Step]
    results: list[Value]
    arrays: list[np.ndarray]

    def memory(self, arena: int | None = None) -> Memory:
        """Return a memory that holds the inputs and constants."""
        known = dict(zip([value.storage for value in self.builder.inputs], self.arrays, strict=True))
        return Memory(known, arena)

    def run(self, steps: Iterable[Step], arena: int | None = None) -> list[np.ndarray]:
        memory = self.memory(arena)
        for step in steps:
            run(step, memory)
        return [memory.array(value, value.shape, value.template.strides) for value in self.results]


def program(seed: int) -> Program:
    """Return loops over rows of vectors and matrices, some of which write to a part of what others have computed."""
    random = np.random.default_rng(seed)
    builder = Builder(NotImplemented)
    values = [builder.input(shape, np.dtype(float)) for shape in ((N,), (N,), (N, 3))]
    computed: list[Value] = []
    for _ in range(random.integers(4, 30)):
        one, other = [values[max(len(values) - random.geometric(0.3), 0)] for _ in range(2)]     # often late ones
        try:
            match random.integers(4):
                case 0:
                    values.append(builder.viewed(one, VIEWS[random.integers(len(VIEWS))]))
                case 1 if computed:
                    target = computed[random.integers(len(computed))]
                    part = builder.viewed(target, VIEWS[random.integers(len(VIEWS))])
                    if part.storage is not one.storage and np.broadcast_shapes(part.shape, one.shape) == part.shape:
                        builder.copy_into(part, one)
                case _:
                    if np.prod(np.broadcast_shapes(one.shape, other.shape)) <= 3 * N:
                        computed.append(builder.ufunc(LOOPS[random.integers(len(LOOPS))], (one, other)))
                        values.append(computed[-1])
        except (IndexError, ValueError):        # the shapes do not fit
            continue
    results = placed_results(builder, values[-2:])
    return Program(builder, builder.steps, results, [random.integers(-9, 9, value.shape) * 1.0 for value in values[:3]])


def may_swap(one: Step, other: Step) -> bool:
    """Return whether neither step uses what the other one writes."""
    (reads, writes), (also_reads, also_writes) = one.accesses(), other.accesses()
    return writes.isdisjoint(also_reads | also_writes) and reads.isdisjoint(also_writes)


def assert_reordered(found: Sequence[Step], steps: Sequence[Step]) -> None:
    """Assert that the steps are the same, and that no two that depend on each other have changed places."""
    places = {id(step): i for i, step in enumerate(found)}
    assert sorted(places) == sorted(map(id, steps))
    for i, step in enumerate(steps):
        for later in steps[i + 1:]:
            assert may_swap(step, later) or places[id(step)] < places[id(later)]


class Memory:
    """Bytes for each storage, or one arena for all temporaries, first full of garbage."""

    def __init__(self, known: dict[Storage, np.ndarray], arena: int | None) -> None:
        self._buffers = {storage: bytearray(array.tobytes()) for storage, array in known.items()}
        self._arena = None if arena is None else bytearray(b"\xa5" * arena)

    def array(self, value: Value, shape: Sequence[int], strides: Sequence[int], start: int = 0) -> np.ndarray:
        """Return the elements of a value from this byte on."""
        storage = value.storage.final()
        start += value.offset
        if storage.kind == "arena" and self._arena is not None:
            return np.ndarray(shape, value.dtype, self._arena, start + storage.offset, strides)
        garbage = bytearray(b"\xa5" * storage.nbytes)
        return np.ndarray(shape, value.dtype, self._buffers.setdefault(storage, garbage), start, strides)


def run(step: Step, memory: Memory) -> None:
    if isinstance(step, LoopStep):
        apply(step, [memory.array(value, step.shape, strides)
                     for value, strides in zip(step.operands, step.strides, strict=True)])
        return
    assert isinstance(step, BlocksStep)
    for start in range(0, step.n, step.block):
        n = min(step.block, step.n - start)
        for loop in step.steps:
            apply(loop, [in_block(memory, step, start, n, loop.shape, *operand)
                         for operand in zip(loop.operands, loop.strides, strict=True)])


def in_block(
    memory: Memory, blocks: BlocksStep, start: int, n: int, shape: Sequence[int], value: Value, strides: Sequence[int]
) -> np.ndarray:
    """Return the rows of an operand in one block. Local memory has only those of one block."""
    if value.storage.final() in blocks.local:
        start = 0
    if blocks.is_flat:      # a row is an element
        row = [stride for extent, stride in zip(shape, strides, strict=True) if extent != 1][-1]
        return memory.array(value, (n,), (row,), start * row)
    return memory.array(value, (n, *shape[1:]), strides, start * strides[0])


def apply(step: LoopStep, arrays: Sequence[np.ndarray]) -> None:
    """Do what a loop does, element by element, so that overlaps of an operand and the result show."""
    *inputs, output = arrays
    assert step.loop[0] in ("ufunc", "copy")
    function = step.loop[1] if step.loop[0] == "ufunc" else np.positive
    for index in np.ndindex(output.shape):
        output[index] = function(*[array[index] for array in inputs])
