"""Layouts: store matrices as they are read. A sum of a product and a transposed one then goes along rows.

Assumes: dead code is removed. Steps are not grouped yet.

Guarantees: loops compute the same elements from the same operands. Only the order of elements in memory differs.
"""

# tests: tests/compiling/test_large_arrays.py
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pydispatch.compiling.steps import LoopStep, Step, uses_of
from pydispatch.compiling.values import Storage, Value


def in_read_order(steps: Sequence[Step], uses: Callable[[], Mapping[Storage, int]] | None = None) -> list[Step]:
    """Return the steps, with temporaries transposed that one loop writes and all others read transposed.

    Steps inside others get the `uses` of the whole plan.
    """
    known: list[Mapping[Storage, int]] = []

    def uses_of_all() -> Mapping[Storage, int]:
        if not known:
            known.append(uses_of(steps))
        return known[0]

    uses = uses or uses_of_all
    found = list(steps)
    writers: dict[Storage, int] = {}
    shapes: dict[Storage, tuple[int, ...]] = {}         # as they write
    readers: dict[Storage, list[tuple[int, list[int]]]] = {}
    for i, step in enumerate(found):
        if not isinstance(step, LoopStep):
            step.map_bodies(lambda body: in_read_order(body, uses))
        elif len(step.shape) == 2 and step.is_elementwise and not step.core_sizes:
            for storage in {value.storage for value in step.operands if value.storage in writers}:
                places = [k for k, value in enumerate(step.operands) if value.storage is storage]
                if step.shape == shapes[storage][::-1] and all(
                        _is_transposed(step.operands[k], step.shape, step.strides[k]) for k in places):
                    readers.setdefault(storage, []).append((i, places))
            if _can_be_transposed(step):
                storage = step.operands[-1].storage
                writers[storage], shapes[storage] = i, step.shape
    for storage, of_steps in readers.items():
        if uses()[storage] == 1 + len(of_steps):      # no other step uses it
            i = writers[storage]
            writer = found[i]
            assert isinstance(writer, LoopStep)
            found[i] = _with(writer, writer.shape[::-1], [strides[::-1] for strides in writer.strides], -1)
            for j, places in of_steps:
                for k in places:
                    reader = found[j]
                    assert isinstance(reader, LoopStep)
                    found[j] = _with(reader, reader.shape, reader.strides, k)
    return found


def _is_transposed(value: Value, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a loop over this shape reads all of a matrix, column by column."""
    itemsize = value.template.itemsize
    return (strides == (itemsize, shape[0] * itemsize) and value.offset == 0 and min(shape) > 1
            and shape[0] * shape[1] * itemsize == value.storage.nbytes)


def _can_be_transposed(step: LoopStep) -> bool:
    """Return whether a loop writes a temporary matrix, from operands that go along its columns."""
    output = step.operands[-1]
    return (output.storage.kind == "arena" and output.storage.instead is None and output.is_whole and step.n_out == 1
            and output.shape == step.shape and all(
                strides[0] in (0, value.template.itemsize)
                for strides, value in zip(step.strides[:-1], step.operands, strict=False)))


def _with(step: LoopStep, shape: tuple[int, ...], strides: Sequence[tuple[int, ...]], k: int) -> LoopStep:
    """Return a loop over this shape, whose operand number `k` lies in memory in C order."""
    operands, of_operands = list(step.operands), list(strides)
    itemsize = operands[k].template.itemsize
    operands[k] = operands[k].viewed(operands[k].storage.owner.reshape(shape))
    of_operands[k] = shape[1] * itemsize, itemsize
    return replace(step, operands=tuple(operands), shape=shape, strides=tuple(of_operands))
