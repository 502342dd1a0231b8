"""Steps of a plan as the source of one function, for numba. Some values are variables, others go to memory.

The function has the signature of a ufunc's loop, `loop(args, dims, steps, data)`. It goes through `dims[0]` rows, and
does all steps for one row before the next. Only small sizes are part of the source. Shapes with the same source
therefore share one function.

Values that one nest makes and uses are variables. So are written values of few elements: the variables of their
elements are called *cells*.
"""

# tests: tests/compiling/test_numba.py
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pydispatch.compiling.expressions import is_sum, literal, scalar_type, template, typed
from pydispatch.compiling.nests import (
    UNROLLED_PRODUCT,
    Access,
    Branch,
    Nest,
    NestFinder,
    Node,
    Repetition,
    accesses_in,
    carrying,
    indexed,
    inside,
    is_same_place,
    nests_in,
)
from pydispatch.compiling.positions import PositionStep
from pydispatch.compiling.steps import LoopStep, Mode, RepeatStep
from pydispatch.compiling.values import Storage, coalesced

MOST_CELLS = 64             # the most cells of one memory
SMALL_NUMBER = 64           # sizes and strides up to this are part of the source


class Operand(NamedTuple):
    """A memory that the function gets, and the distance to its next row."""

    storage: Storage
    row: int
    is_written: bool


class LoopSource(NamedTuple):
    """A function: its source, the numbers that it gets in an array, if any, and the memories that follow.

    Written memories come last. A memory that is read before it is written occurs twice, so that steps show what they
    read.
    """

    text: str
    numbers: list[int]
    operands: list[Operand]


def source_of_group(
    steps: Sequence[LoopStep], mode: Mode, local: set[Storage], same: Mapping[Storage, Storage]
) -> LoopSource:
    """Return the function of loops over the same rows. Memories that may overlap have the same memory in `same`."""
    finder = NestFinder(mode, same, local)
    return _Writer(finder.nodes(steps), local, same).source()


def source_of_repetition(step: RepeatStep, local: set[Storage], same: Mapping[Storage, Storage]) -> LoopSource:
    """Return the function of a repetition, in which a row is a turn. It can be called again for the remaining turns."""
    finder = NestFinder(None, same, set())
    finder.note_moves(step, None)
    test = finder.nodes(step.test)
    condition = None if step.condition is None else finder.access(step.condition, (), (), 0)
    return _Writer(finder.nodes([*step.body, *carrying(step)]), local, same, test, condition).source()


# --- the source ------------------------------------------------------------------------------------------------------

Place = tuple[int, tuple[tuple[str, int], ...]]
"""The position of an element: an offset, and the strides along variables."""


@dataclass
class _Memory:
    """The function's use of a memory: in cells, in variables of one nest, or in memory."""

    kind: str
    is_written: bool
    is_read_first: bool
    accesses: list[Access] = field(default_factory=list)
    writes: list[bool] = field(default_factory=list)        # for each access


class _Writer:
    """Writes the source, line by line."""

    def __init__(
        self, nodes: list[Node], local: set[Storage], same: Mapping[Storage, Storage],
        test: list[Node] | None = None, condition: Access | None = None,
    ) -> None:
        self._nodes, self._test, self._condition = nodes, test or [], condition
        self._local, self._same = local, same
        self._memories = self._found_memories()
        self._names: dict[Storage, int] = {}
        self._pointers: dict[tuple[Storage, int], str] = {}
        self._scopes: dict[Storage, int] = {}
        self._numbers: dict[int, str] = {}
        self._lines: list[str] = []
        self._indent = "    "
        self._n_variables = 0
        self._known: dict[Any, str] = {}

    def source(self) -> LoopSource:
        """Return the function."""
        self._indent = "        "
        cells = [(storage, memory) for storage, memory in self._memories.items()
                 if memory.kind == "cells" and storage not in self._local]
        kept = [(storage, memory) for storage, memory in cells if not memory.accesses[0].row]
        moving = [(storage, memory) for storage, memory in cells if memory.accesses[0].row]
        for storage, memory in moving:
            if memory.is_read_first:
                self._load_cells(storage, memory)
        self._write(self._test)
        if self._condition is not None:
            self._leave_unless(self._condition)
        self._write(self._nodes)
        for storage, memory in moving:
            self._store_cells(storage, memory)
        body, self._lines, self._indent = self._lines, [], "    "
        for storage, memory in kept:
            self._load_cells(storage, memory)
        before, self._lines = self._lines, []
        for storage, memory in kept:
            self._store_cells(storage, memory)
        after = self._lines
        operands = self._operands()
        names = {self._pointers[operand.storage, operand.row]: i for i, operand in enumerate(operands)}
        header = [f"    {name} = args[{i + bool(self._numbers)}]" for name, i in names.items()]
        if self._numbers:
            header.append("    numbers = args[0]")
            header += [f"    {name} = load(numbers, {8 * i}, i8, {len(self._scopes)}, {{n}})"
                       for i, name in enumerate(self._numbers.values())]
        lines = ["def loop(args, dims, steps, data):", *header, *before, "    for i in range(dims[0]):", *body, *after]
        n_scopes = str(len(self._scopes) + bool(self._numbers))
        return LoopSource("\n".join(lines).replace("{n}", n_scopes) + "\n", list(self._numbers), operands)

    def _operands(self) -> list[Operand]:
        memories = self._memories
        read = [Operand(*key, False) for key in self._pointers if not memories[key[0]].is_written]
        written = [key for key in self._pointers if memories[key[0]].is_written]
        return [*read, *[Operand(*key, False) for key in written if memories[key[0]].is_read_first],
                *[Operand(*key, True) for key in written]]

    # --- memories ---

    def _found_memories(self) -> dict[Storage, _Memory]:
        nests: dict[Storage, list[Nest]] = {}
        memories: dict[Storage, _Memory] = {}
        conditions = [node for node in self._all_nodes() if not isinstance(node, Nest) and node.condition is not None]
        for node in (*self._test, *self._nodes):
            for access, writes in accesses_in(node):
                if access.number is None:
                    memory = memories.setdefault(access.storage, _Memory("memory", False, not writes))
                    memory.is_written |= writes
                    memory.accesses.append(access)
                    memory.writes.append(writes)
        if self._condition is not None:
            memory = memories.setdefault(self._condition.storage, _Memory("memory", False, True))
            memory.accesses.append(self._condition)
            memory.writes.append(False)
            nests.setdefault(self._condition.storage, [])
        for nest in nests_in([*self._test, *self._nodes]):
            for _, accesses in nest.steps:
                for access in accesses:
                    nests.setdefault(access.storage, []).append(nest)
        read_elsewhere = {node.condition.storage for node in conditions if node.condition is not None}
        for storage, memory in memories.items():
            first = memory.accesses[0]
            in_one = len({id(nest) for nest in nests.get(storage, ())}) == 1 and storage not in read_elsewhere
            if not memory.is_written or any(access.is_indexed for access in memory.accesses):
                continue
            if storage in self._local and in_one and not memory.is_read_first and all(
                    is_same_place(access, first) for access in memory.accesses):
                memory.kind = "variable"
            if _are_cells(memory.accesses, nests.get(storage, ())):
                memory.kind = "cells"
                memory.is_read_first = _is_some_cell_read_first(memory)
        return memories

    def _all_nodes(self) -> Iterator[Node]:
        left = [*self._test, *self._nodes]
        while left:
            node = left.pop()
            yield node
            if not isinstance(node, Nest):
                left += inside(node)

    def _offsets(self, memory: _Memory) -> list[int]:
        return sorted({offset for access in memory.accesses for offset in _cells_of(access)})

    def _load_cells(self, storage: Storage, memory: _Memory) -> None:
        access = memory.accesses[0]
        for offset in self._offsets(memory):
            self._line(f"{self._cell(storage, offset)} = {self._load(access, (offset, ()))}")

    def _store_cells(self, storage: Storage, memory: _Memory) -> None:
        access = memory.accesses[0]
        for offset in self._offsets(memory):
            self._store(access, (offset, ()), self._cell(storage, offset))

    def _cell(self, storage: Storage, offset: int) -> str:
        number = self._names.setdefault(storage, len(self._names))
        return f"c{number}_{offset}".replace("-", "m")

    # --- lines ---

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def _fresh(self) -> str:
        self._n_variables += 1
        return f"t{self._n_variables}"

    def _number(self, number: int) -> str:
        if abs(number) <= SMALL_NUMBER:
            return str(number)
        return self._numbers.setdefault(number, f"n{len(self._numbers)}")

    def _write(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._known = {}
            if isinstance(node, Nest):
                self._write_nest(node)
            elif isinstance(node, Branch):
                self._line(f"if {self._read(node.condition, (node.condition.offset, ()))}:")
                with self._indented():
                    self._write(node.branches[0])
                self._line("else:")
                with self._indented():
                    self._write(node.branches[1])
            else:
                self._write_repetition(node)
        self._known = {}

    @contextmanager
    def _indented(self, n: int = 1) -> Iterator[None]:
        self._indent += "    " * n
        n_lines = len(self._lines)
        yield
        if len(self._lines) == n_lines:
            self._line("pass")
        self._indent = self._indent[: -4 * n]

    def _write_repetition(self, node: Repetition) -> None:
        if node.condition is None:
            self._line(f"for {node.variable} in range({self._number(node.length or 0)}):")
            with self._indented():
                self._write(node.body)
            return
        self._line("while True:")
        with self._indented():
            self._write(node.test)
            self._leave_unless(node.condition)
            self._write(node.body)

    def _leave_unless(self, condition: Access) -> None:
        self._line(f"if not {self._read(condition, (condition.offset, ()))}:")
        self._line("    break")

    def _write_nest(self, nest: Nest) -> None:
        if nest.steps[0][0].core_sizes:
            self._write_product(nest)
            return
        if nest.is_unrolled:
            for index in np.ndindex(*nest.space):
                self._write_elements(nest, _at(index))
            return
        every = [access for _, accesses in nest.steps for access in accesses]
        extents, strides = coalesced(nest.space, [access.strides for access in every])
        variables = [f"j{axis}" for axis in range(len(extents))]
        around = self._indent
        for variable, extent in zip(variables, extents, strict=True):
            self._line(f"for {variable} in range({self._number(extent)}):")
            self._indent += "    "
        self._write_elements(nest, lambda access, k: (access.offset, tuple(
            [(variable, of_axis[k]) for variable, of_axis in zip(variables, strides, strict=True) if of_axis[k]])))
        self._indent = around

    def _write_elements(self, nest: Nest, place: Callable[[Access, int], Place]) -> None:
        """Write the steps of a nest for one element."""
        k = 0
        for step, accesses in nest.steps:
            places = [(access.offset, ()) if access.is_indexed else place(access, k + i)
                      for i, access in enumerate(accesses)]
            k += len(accesses)
            if isinstance(step, PositionStep):
                self._write_position(step, accesses, places)
                continue
            given = [self._read(access, where) for access, where in zip(accesses[:-1], places[:-1], strict=True)]
            text = template(step)
            assert text is not None
            if is_sum(step) and accesses[-1].is_one_place and not nest.is_unrolled:
                text = typed("add_in_any_order({0}, {1})", step.operands[-1].dtype)
            self._assign(accesses[-1], places[-1], text.format(*given), step.loop[0] == "copy")

    def _write_position(self, step: PositionStep, accesses: Sequence[Access], places: Sequence[Place]) -> None:
        """Read or write the element of a row."""
        layers, stride = step.layers
        i, at = indexed(step), 1 - indexed(step) // 2
        name = self._fresh()
        self._line(f"{name} = position({self._read(accesses[at], places[at])}, {self._number(layers)})")
        element = accesses[i].offset, ((name, stride),)
        if step.loop[0] == "pick":
            self._assign(accesses[2], places[2], self._read(accesses[0], element), True)
            return
        text = self._read(accesses[1], places[1])
        if step.loop[1]:
            text = typed(f"{self._read(accesses[2], element)} + {text}", accesses[2].dtype)
        self._assign(accesses[2], element, text, not step.loop[1])

    def _write_product(self, nest: Nest) -> None:
        (step, (left, right, result)), = nest.steps
        rows, inner, columns = step.core_sizes
        dtype = result.dtype
        one, other, found = [self._axes(access, sizes, step.core_strides[2 * k : 2 * k + 2]) for k, (access, sizes)
                             in enumerate(zip((left, right, result), ((rows, inner), (inner, columns), (rows, columns)),
                                              strict=True))]
        if nest.is_unrolled:
            for row, column in np.ndindex(rows, columns):
                terms = [f"{self._read(left, one(row, k))} * {self._read(right, other(k, column))}"
                         for k in range(inner)]
                self._assign(result, found(row, column), typed(" + ".join(terms), dtype), False)
            return
        around, total = self._indent, self._fresh()
        self._line(f"for j0 in range({self._number(rows)}):")
        self._line(f"    for j1 in range({self._number(columns)}):")
        self._line(f"        {total} = {typed('0.0', dtype)}")
        self._line(f"        for j2 in range({self._number(inner)}):")
        self._indent += " " * 12
        factors = f"{self._read(left, one('j0', 'j2'))} * {self._read(right, other('j2', 'j1'))}"
        self._line(f"{total} = {typed(f'add_in_any_order({total}, {typed(factors, dtype)})', dtype)}")
        self._indent = around + " " * 8
        self._known = {}
        self._assign(result, found("j0", "j1"), total, False)
        self._indent = around

    @staticmethod
    def _axes(access: Access, sizes: Sequence[int], strides: Sequence[int]) -> Callable[[Any, Any], Place]:
        """Return a function from the indices of a matrix's element, numbers or variables, to its place."""
        def place(row: Any, column: Any) -> Place:
            offset, terms = access.offset, []
            for index, stride in zip((row, column), strides, strict=True):
                if isinstance(index, str):
                    terms.append((index, stride))
                else:
                    offset += index * stride
            return offset, tuple(terms)

        return place

    # --- elements ---

    def _read(self, access: Access, place: Place) -> str:
        """Return a variable or a number that holds this element."""
        if access.number is not None:
            return literal(access.number)
        if self._memories[access.storage].kind == "cells":
            return self._cell(access.storage, place[0])
        key = access.storage, access.row, access.terms, place, access.dtype
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = self._fresh()
            self._line(f"{name} = {self._load(access, place)}")
        return name

    def _assign(self, access: Access, place: Place, text: str, is_copy: bool) -> None:
        kind = self._memories[access.storage].kind
        if kind == "cells":
            self._line(f"{self._cell(access.storage, place[0])} = {text}")
            return
        name = text
        if not is_copy or text.startswith("c"):     # a cell may change later
            name = self._fresh()
            self._line(f"{name} = {text}")
        self._known[access.storage, access.row, access.terms, place, access.dtype] = name
        if kind == "memory":
            self._store(access, place, name)

    def _load(self, access: Access, place: Place) -> str:
        pointer, address, scope = self._address(access, place)
        if access.dtype.kind == "b":
            return f"load({pointer}, {address}, u1, {scope}, {{n}}) != 0"
        return f"load({pointer}, {address}, {scalar_type(access.dtype)}, {scope}, {{n}})"

    def _store(self, access: Access, place: Place, name: str) -> None:
        pointer, address, scope = self._address(access, place)
        value = f"u1({name})" if access.dtype.kind == "b" else name
        self._line(f"store({pointer}, {address}, {value}, {scope}, {{n}})")

    def _address(self, access: Access, place: Place) -> tuple[str, str, int]:
        """Return (pointer, offset, number of the memory) of an element."""
        pointer = self._pointers.setdefault((access.storage, access.row), f"p{len(self._pointers)}")
        scope = self._scopes.setdefault(self._same.get(access.storage, access.storage), len(self._scopes))
        offset, along = place
        terms = [("i", access.row), *along, *access.terms]
        parts = [f"{variable} * {self._number(stride)}" for variable, stride in terms if stride]
        if offset or not parts:
            parts.append(self._number(offset))
        return pointer, " + ".join(parts), scope


def _at(index: tuple[int, ...]) -> Callable[[Access, int], Place]:
    def place(access: Access, k: int) -> Place:
        return access.offset + sum([i * stride for i, stride in zip(index, access.strides, strict=True)]), ()

    return place


def _are_cells(accesses: Sequence[Access], nests: Sequence[Nest]) -> bool:
    """Return whether the elements can be variables: each must be named without a loop."""
    first = accesses[0]
    if any(access.row != first.row or access.dtype != first.dtype or access.terms for access in accesses):
        return False
    moving = [access for access in accesses if any(access.strides)]
    if moving and not all(nest.is_unrolled for nest in nests):
        return False
    return (all(math.prod(access.space) <= UNROLLED_PRODUCT for access in moving)
            and len({offset for access in accesses for offset in _cells_of(access)}) <= MOST_CELLS)


def _is_some_cell_read_first(memory: _Memory) -> bool:
    """Return whether a cell is read before it is written. Earlier steps may have written a part of the memory."""
    written: set[int] = set()
    for access, writes in zip(memory.accesses, memory.writes, strict=True):
        cells = _cells_of(access)
        if not writes and not written.issuperset(cells):
            return True
        written.update(cells if writes else ())
    return False


def _cells_of(access: Access) -> list[int]:
    return access.cells() if any(access.strides) else [access.offset]
