"""Fusion of loops into nests: steps over the same elements share a nest, unless one needs another's other elements.

All steps are done for one *row* before the next. For a group of loops, a mode specifies the rows (see steps). For
a repetition, a row is one turn.
"""

# tests: tests/compiling/test_control_flow.py
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pydispatch.compiling.expressions import product_of, template
from pydispatch.compiling.positions import PositionStep
from pydispatch.compiling.steps import ChooseStep, LoopStep, Mode, RepeatStep, Step
from pydispatch.compiling.values import Storage, Value

UNROLLED = 16               # elements that are written out without a loop
UNROLLED_PRODUCT = 64       # products of elements of two matrices that are written out
LARGEST_PRODUCT = 256       # BLAS is faster for larger ones


class Access(NamedTuple):
    """A step's use of one operand: the places of its elements.

    `row` is the distance to the next row. `strides` are those along the axes of `space`, in bytes, and `terms` those
    along the variables of loops around. `number` is set if all elements are one known number.
    """

    storage: Storage
    row: int
    offset: int
    space: tuple[int, ...]
    strides: tuple[int, ...]
    terms: tuple[tuple[str, int], ...]
    dtype: np.dtype[Any]
    number: np.generic | None = None
    is_indexed: bool = False        # whether it is one element of the space at a computed position

    @property
    def is_one_place(self) -> bool:
        """Return whether several elements of the space share a place."""
        return any(extent > 1 and not stride for extent, stride in zip(self.space, self.strides, strict=True))

    def cells(self) -> list[int]:
        """Return the offsets of all elements."""
        return [self.offset + sum([i * stride for i, stride in zip(index, self.strides, strict=True)])
                for index in np.ndindex(*self.space)]


@dataclass
class Nest:
    """Steps that share a nest of loops. They are done in order for each element."""

    space: tuple[int, ...]
    steps: list[tuple[LoopStep, list[Access]]]
    is_unrolled: bool


@dataclass
class Repetition:
    """A loop around nests, with a number of turns or a test of a condition."""

    variable: str
    length: int | None
    test: list[Node]
    condition: Access | None
    body: list[Node]


@dataclass
class Branch:
    """Two branches, of which one is taken."""

    condition: Access
    branches: tuple[list[Node], list[Node]]


Node = Nest | Repetition | Branch


def is_supported(step: Step) -> bool:
    """Return whether the step can be part of such a function."""
    if isinstance(step, PositionStep):
        return True
    if isinstance(step, LoopStep):
        if product_of(step) is not None:
            return math.prod(step.shape) == 1 and math.prod(step.core_sizes) <= LARGEST_PRODUCT
        # an accumulation reads elements that it has written elsewhere
        return not step.core_sizes and template(step) is not None and (
            step.is_elementwise or step.operands[0].offset == step.operands[-1].offset)
    if isinstance(step, RepeatStep):
        return (step.condition is None or step.condition.constant is None) and all(
            map(is_supported, step.inner()))
    return isinstance(step, ChooseStep) and all(map(is_supported, step.inner()))


def carrying(step: RepeatStep) -> list[LoopStep]:
    """Return the copies at the end of a turn that put carries where the next turn reads them."""
    copies = []
    for one, other, _, _ in step.carries:
        target, source = Value(one, one.owner), Value(other, other.owner)
        copies.append(LoopStep(("copy", one.owner.dtype.itemsize), (source, target), target.shape,
                               (source.template.strides, target.template.strides), "copy", None))
    return copies


class NestFinder:
    """Finds the nests of steps. `mode` specifies the rows of their loops. `local` memories have only one row."""

    def __init__(self, mode: Mode | None, same: Mapping[Storage, Storage], local: set[Storage]) -> None:
        self._mode = mode
        self._is_flat = mode is not None and mode[0] == "flat"
        self._same = same
        self._local = local
        self._moves: dict[Storage, tuple[Value, int, int, str | None]] = {}
        self._n_loops = 0

    def note_moves(self, step: RepeatStep, variable: str | None) -> None:
        """Note the moves of a repetition, with a variable, or with the row."""
        for entry, whole, first, stride in step.moves:
            self._moves[entry] = whole, first, stride, variable

    def access(self, value: Value, space: tuple[int, ...], strides: Sequence[int], row: int) -> Access:
        """Return the access to a value with these strides."""
        storage, offset = value.storage.final(), value.offset
        terms: list[tuple[str, int]] = []
        kept = [(extent, stride) for extent, stride in zip(space, strides, strict=True) if extent != 1]
        known = value.constant if not row and not any(stride for _, stride in kept) else None
        while storage in self._moves:
            whole, first, stride, variable = self._moves[storage]
            offset += whole.offset + first
            if variable is None:
                row += stride
            else:
                terms.append((variable, stride))
            storage = whole.storage.final()
        if storage in self._local:
            row = 0
        return Access(storage, row, offset, tuple([extent for extent, _ in kept]), tuple([move for _, move in kept]),
                      tuple(terms), value.dtype, None if known is None else known.ravel()[0])

    def nodes(self, steps: Sequence[Step]) -> list[Node]:
        """Return the nests of the steps, in order."""
        found: list[Node] = []
        for step in steps:
            if isinstance(step, LoopStep):
                self._place(step, found)
            elif isinstance(step, RepeatStep):
                found.append(self._repetition(step))
            else:
                assert isinstance(step, ChooseStep)
                found.append(Branch(self.access(step.condition, (), (), 0),
                                    (self.nodes(step.branches[0]), self.nodes(step.branches[1]))))
        return found

    def _repetition(self, step: RepeatStep) -> Repetition:
        self._n_loops += 1
        variable = f"k{self._n_loops}"
        self.note_moves(step, variable)
        test = self.nodes(step.test)
        condition = None if step.condition is None else self.access(step.condition, (), (), 0)
        return Repetition(variable, step.length, test, condition, self.nodes([*step.body, *carrying(step)]))

    def _place(self, step: LoopStep, nodes: list[Node]) -> None:
        """Add a step to the first nest over the same elements that comes after everything that it depends on."""
        accesses = self._accesses(step)
        space = accesses[-1].space if step.core_sizes else self._space(step)
        lowest = 0
        for i, node in enumerate(nodes):
            found = self._order(accesses, step, node)
            if found is not None:
                lowest = i + found
        if not step.core_sizes:
            for node in nodes[lowest:]:
                if isinstance(node, Nest) and node.space == space and not node.steps[0][0].core_sizes:
                    node.steps.append((step, accesses))
                    return
        size = math.prod(step.core_sizes) if step.core_sizes else math.prod(space)
        nodes.append(Nest(space, [(step, accesses)], size <= (UNROLLED_PRODUCT if step.core_sizes else UNROLLED)))

    def _space(self, step: LoopStep) -> tuple[int, ...]:
        whole = self._mode is None
        shape = step.shape if whole else () if self._is_flat else step.shape[1:]
        return tuple([extent for extent in shape if extent != 1])

    def _accesses(self, step: LoopStep) -> list[Access]:
        if step.core_sizes:
            rows, inner, columns = step.core_sizes
            spaces, core = ((rows, inner), (inner, columns), (rows, columns)), step.core_strides
            return [self.access(value, space, core[2 * i : 2 * i + 2], 0)
                    for i, (value, space) in enumerate(zip(step.operands, spaces, strict=True))]
        if self._mode is None:
            return [self.access(value, step.shape, strides, 0)
                    for value, strides in zip(step.operands, step.strides, strict=True)]
        first = 1 if not self._is_flat else len(step.shape)
        found = [self.access(value, step.shape[first:], strides[first:], row) for value, strides, row in zip(
            step.operands, step.strides, step.row_strides(self._mode), strict=True)]
        if isinstance(step, PositionStep):
            i = indexed(step)
            layers, stride = step.layers
            found[i] = self.access(step.operands[i], (layers,), (stride,), found[i].row)._replace(
                number=None, is_indexed=True)
        return found

    def _order(self, accesses: Sequence[Access], step: LoopStep, node: Node) -> int | None:
        """Return 0 if the step may share the nest, 1 if it must come after it, and None if they are independent."""
        found = None
        for other, writes in accesses_in(node):
            for access, also_writes in zip(accesses, writes_of(step), strict=True):
                if not (writes or also_writes) or self._memory(access) is not self._memory(other):
                    continue
                if not isinstance(node, Nest) or not is_same_place(access, other):
                    return 1
                found = 0
        return found

    def _memory(self, access: Access) -> Storage:
        return self._same.get(access.storage, access.storage)


def is_same_place(one: Access, other: Access) -> bool:
    """Return whether both use the same place for the same element, and for no other one."""
    return one[1:] == other[1:] and not one.is_one_place and not one.is_indexed


def indexed(step: PositionStep) -> int:
    """Return the number of the operand that has rows."""
    return 0 if step.loop[0] == "pick" else 2


def writes_of(step: LoopStep) -> list[bool]:
    n = len(step.operands) - step.n_out
    return [i >= n for i in range(len(step.operands))]


def accesses_in(node: Node) -> Iterator[tuple[Access, bool]]:
    """Yield (access, whether it writes) for all accesses inside a node, in order."""
    if isinstance(node, Nest):
        for step, accesses in node.steps:
            yield from zip(accesses, writes_of(step), strict=True)
        return
    if node.condition is not None and isinstance(node, Branch):
        yield node.condition, False
    for inner in inside(node):
        yield from accesses_in(inner)
    if node.condition is not None and isinstance(node, Repetition):
        yield node.condition, False


def inside(node: Repetition | Branch) -> list[Node]:
    return [*node.test, *node.body] if isinstance(node, Repetition) else [*node.branches[0], *node.branches[1]]


def nests_in(nodes: Sequence[Node]) -> Iterator[Nest]:
    for node in nodes:
        if isinstance(node, Nest):
            yield node
        else:
            yield from nests_in(inside(node))
