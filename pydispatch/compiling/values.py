"""The values of plans: where they lie in memory, and in which layout."""

# tests: tests/compiling/test_plan.py
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch import _core

Array = np.ndarray[Any, Any]


class Storage:
    """One piece of memory of a plan.

    `kind` is "arena", "input", "constant", "result", or "entry": an address that moves in a repetition, over the
    storages `behind` it. `number` counts those of one kind. `instead` is the storage that replaces this one. `owner` is
    an array of its size without meaningful contents, and `address` is its first byte. Templates of values are views of
    it.
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
        """Return the storage that remains after all replacements."""
        storage = self
        while storage.instead is not None:
            storage = storage.instead
        return storage


class Value:
    """An array of a plan under construction: its storage, and a template.

    The template is an array that lies in `storage.owner` as this one will lie in the storage, `offset` bytes from its
    beginning. `shape` and `dtype` are the template's. `constant` is the array itself if it is known now.
    """

    __slots__ = ("constant", "dtype", "offset", "shape", "storage", "template")

    def __init__(self, storage: Storage, template: Array, constant: Array | None = None) -> None:
        self.storage = storage
        self.template = template
        self.shape: tuple[int, ...] = template.shape
        self.dtype: np.dtype[Any] = template.dtype
        self.constant = constant
        self.offset: int = 0 if template is storage.owner else _core.address(template) - storage.address

    @property
    def is_whole(self) -> bool:
        """Return whether the value is all of its storage, in C order."""
        template = self.template
        return (template is self.storage.owner or (
            template.flags.c_contiguous and template.nbytes == self.storage.nbytes and self.offset == 0))

    @property
    def place(self) -> tuple[Any, ...]:
        """A key that equal values share: the place of the elements, and their dtype."""
        return self.storage, self.offset, self.shape, self.template.strides, self.dtype

    def viewed(self, template: Array) -> Value:
        """Return another value in the same storage."""
        return Value(self.storage, template)

    @property
    def start(self) -> str:
        """The place of the first byte, as text."""
        storage = self.storage.final()
        if storage.kind == "arena":
            return f"@{storage.offset + self.offset}"
        return f"{storage.kind}{storage.number}" + (f"+{self.offset}" if self.offset else "")

    def __str__(self) -> str:
        if self.constant is not None and self.constant.size == 1:
            return str(self.constant.ravel()[0])
        extents = ",".join(map(str, self.shape))
        layout = "" if self.template.flags.c_contiguous else " strided"
        return f"{self.start}:{self.dtype.char if self.dtype.kind in 'SUV' else self.dtype}[{extents}]{layout}"


def strides_over(shape: tuple[int, ...], values: Sequence[Value]) -> tuple[tuple[int, ...], ...]:
    """Return the strides of each of the values when it is broadcast to a shape."""
    return tuple([
        value.template.strides if value.shape == shape else (0,) * (len(shape) - len(value.shape)) + tuple([
            0 if extent == 1 else stride for extent, stride in zip(value.shape, value.template.strides, strict=True)])
        for value in values])


def coalesced(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Return the same iteration with as few axes as possible: (extents, strides axis by axis)."""
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
