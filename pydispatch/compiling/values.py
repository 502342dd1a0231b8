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

    `kind` says where it lies: "arena", "input", "constant", "result", or "entry" for what moves in a repetition;
    `number` which of these. What becomes a part of another memory is `instead` there. An entry moves over the storages
    `behind` it. `address` is that of the first byte among the templates of its values, whose contents mean nothing.
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
        """The memory that it becomes."""
        storage = self
        while storage.instead is not None:
            storage = storage.instead
        return storage


class Value:
    """An array while a plan is made: a storage, and a template, an array that lies there as this one will.

    `constant` is the array itself where it is known.
    """

    __slots__ = ("constant", "storage", "template")

    def __init__(self, storage: Storage, template: Array, constant: Array | None = None) -> None:
        self.storage = storage
        self.template = template
        self.constant = constant

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        shape: tuple[int, ...] = self.template.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        dtype: np.dtype[Any] = self.template.dtype
        return dtype

    @property
    def offset(self) -> int:
        """Where it begins in its storage, in bytes."""
        return int(_core.address(self.template)) - self.storage.address

    @property
    def is_whole(self) -> bool:
        """Is it all of its storage, in C order?"""
        template = self.template
        return (template is self.storage.owner or (
            template.flags.c_contiguous and template.nbytes == self.storage.nbytes and self.offset == 0))

    def viewed(self, template: Array) -> Value:
        """Another view of the same storage; of a known array, that of the same elements."""
        return Value(self.storage, template)


@dataclass(slots=True)
class LoopStep:
    """A loop over arrays, as `_core.Plan` knows it.

    `strides` has for each operand the strides along the axes of `shape`. A loop over more than elements, such as a
    product of matrices, has `core_sizes` and `core_strides`, as NumPy's loops get them. The last `n_out` operands are
    written to.
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


@dataclass(slots=True)
class CallStep:
    """A call of Python: `function(inputs, outputs)`; one that `is_pure` is left out where nothing uses its results."""

    function: Callable[[tuple[Array, ...], tuple[Array, ...]], None]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str
    site: str | None
    is_pure: bool


@dataclass(slots=True)
class BlocksStep:
    """Loops over the same `n` rows, `block` of them at a time. What is `local` holds the rows of one block.

    A row is one element where `is_flat`, else what lies behind an index of the first axis.
    """

    steps: list[LoopStep]
    n: int
    block: int
    is_flat: bool
    local: set[Storage]


@dataclass(slots=True)
class RepeatStep:
    """Steps that are taken `length` times, or, where that is None, as long as `test` leaves True in `condition`.

    `carries` are (memory, other memory, entry, other entry): the entries change places after each repetition. `moves`
    are (entry, the value that it is a part of, first byte, stride).
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
    """The strides of an array that is repeated to a shape."""
    if template.shape == shape:
        return template.strides
    missing = len(shape) - template.ndim
    return (0,) * missing + tuple([
        0 if extent == 1 else stride for extent, stride in zip(template.shape, template.strides, strict=True)])


def coalesced(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The same iteration with as few axes as possible: (extents, strides axis by axis)."""
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
