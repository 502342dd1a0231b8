"""What plans are made of: values in memory, and the steps that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pydispatch import _core

Array = np.ndarray[Any, Any]


class Storage:
    """One piece of memory of a plan.

    `kind` says where it lies: in the "arena", or as an "input", "constant" or "result"; an "entry" is an address that
    moves in a repetition, over the storages `behind` it. `number` counts those of one kind. A storage that is replaced
    by another one has that as `instead`. `owner` is an array of its size without meaningful contents, and `address` its
    first byte: templates of values are views of it.
    """

    __slots__ = ("address", "behind", "instead", "kind", "nbytes", "number", "offset", "owner")

    def __init__(self, owner: Array, kind: str = "arena", number: int = 0) -> None:
        self.owner = owner
        self.address: int = _core.address(owner)
        self.nbytes = owner.nbytes
        self.kind = kind
        self.number = number
        self.offset = 0
        self.instead: Storage | None = None
        self.behind: tuple[Storage, ...] = ()

    def final(self) -> Storage:
        """The storage that it is in the end, after all replacements."""
        storage = self
        while storage.instead is not None:
            storage = storage.instead
        return storage


class Value:
    """An array of a plan that is being made: its storage, and a template, an array that lies in `storage.owner` as this
    one will lie in the storage: `offset` bytes from its beginning.

    `constant` is the array itself if it is known now.
    """

    __slots__ = ("constant", "offset", "storage", "template")

    def __init__(self, storage: Storage, template: Array, constant: Array | None = None) -> None:
        self.storage = storage
        self.template = template
        self.constant = constant
        self.offset: int = 0 if template is storage.owner else _core.address(template) - storage.address

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        shape: tuple[int, ...] = self.template.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        dtype: np.dtype[Any] = self.template.dtype
        return dtype

    @property
    def is_whole(self) -> bool:
        """Is it all of its storage, in C order?"""
        template = self.template
        return (template is self.storage.owner or (
            template.flags.c_contiguous and template.nbytes == self.storage.nbytes and self.offset == 0))

    @property
    def place(self) -> tuple[Any, ...]:
        """What equal values have in common: where the elements lie, and their dtype."""
        return self.storage, self.offset, self.shape, self.template.strides, self.dtype

    def viewed(self, template: Array) -> Value:
        """Another value in the same storage."""
        return Value(self.storage, template)


Iteration = tuple[list[int], list[list[int]], list[int], list[int]]
"""How a loop runs; see `iteration`."""


@dataclass(slots=True)
class LoopStep:
    """A loop over arrays; `loop` is described as in `_core.Plan`.

    `strides` has the strides of each operand along the axes of `shape`. A loop whose elements are arrays, such as a
    product of matrices, has `core_sizes` and `core_strides`, as NumPy's loops get them. The loop writes to the last
    `n_out` operands. Nothing of it changes.
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
    # what functions of this name have found
    elements: int | None = field(default=None, repr=False, compare=False)
    iteration: Iteration | None = field(default=None, repr=False, compare=False)
    accesses: tuple[set[Storage], set[Storage]] | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class CallStep:
    """A call of Python: `function(inputs, outputs)`. If it `is_pure`, it is left out where nothing uses its results."""

    function: Callable[[tuple[Array, ...], tuple[Array, ...]], None]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str
    site: str | None
    is_pure: bool


@dataclass(slots=True)
class BlocksStep:
    """Loops over the same `n` rows, `block` of them at a time. A storage that is `local` holds the rows of one block.

    A row is one element if `is_flat`, else a slice along the first axis. Rows that are `in_order` need what the row
    before leaves: threads do not share them. If it is `by_halves`, blocks are the parts that NumPy adds up by
    themselves in a sum over all rows, and `block` is how many rows they have at most.
    """

    steps: list[LoopStep]
    n: int
    block: int
    is_flat: bool
    local: set[Storage]
    in_order: bool = False
    by_halves: bool = False


@dataclass(slots=True)
class RepeatStep:
    """Steps that run `length` times, or, if that is None, as long as `test` leaves True in `condition`.

    `carries` are (memory, other memory, entry, other entry): the entries change places after each repetition. `moves`
    are (entry, the value that it moves over, first byte, bytes to the next slice).
    """

    body: list[Step]
    length: int | None
    carries: list[tuple[Storage, Storage, Storage, Storage]]
    moves: list[tuple[Storage, Value, int, int]]
    name: str
    test: list[Step] = field(default_factory=list)
    condition: Value | None = None


@dataclass(slots=True)
class ChooseStep:
    """The steps of one of two branches."""

    condition: Value
    branches: tuple[list[Step], list[Step]]
    name: str


Step = LoopStep | CallStep | BlocksStep | RepeatStep | ChooseStep


def broadcast_strides(template: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array that is broadcast to a shape."""
    if template.shape == shape:
        return template.strides
    missing = len(shape) - template.ndim
    return (0,) * missing + tuple([
        0 if extent == 1 else stride for extent, stride in zip(template.shape, template.strides, strict=True)])


def coalesced(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The same iteration with as few axes as possible: (extents, strides axis by axis)."""
    if len(shape) == 1 and shape[0] != 1:       # the commonest case, and nothing to do
        return [shape[0]], [[of_operand[0] for of_operand in strides]]
    axes = [(extent, [of_operand[axis] for of_operand in strides])
            for axis, extent in enumerate(shape) if extent != 1]
    merged: list[tuple[int, list[int]]] = []
    for extent, steps in axes:
        if merged and all(before == step * extent for before, step in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = merged[-1][0] * extent, steps
        else:
            merged.append((extent, steps))
    if not merged:
        return [1], [[0] * len(strides)]
    return [extent for extent, _ in merged], [steps for _, steps in merged]
