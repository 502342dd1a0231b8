"""Writes of a view of a memory to another place in it: swaps and rotations of elements and rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, Wrapper
from pydispatch.ops import ops


class Move(NamedTuple):
    """A write of a view of a memory to another place in it: where the view is, and what the write has overwritten."""

    source: Any
    before: Any


def move_over(source: Any, target: Any, moves: Mapping[Any, Move], *, is_element: bool) -> Move | None:
    """The move that has overwritten the view at `source`, if what was there is to be written to `target`.

    `moves` are the last writes, by their targets. Python makes all views of `t[i], t[j], t[k] = t[j], t[k], t[i]`
    before it writes the first. An element is what it was then, as in NumPy, where it is no view. Other views show what
    was written to them, in NumPy too, but the second half of a swap takes what the first has overwritten, so that
    shuffling keeps every row.
    """
    move = moves.get(source)
    return move if move is not None and (is_element or move.source == target) else None


def write_own_view(tensor: Tensor, key: Any, view: Tensor) -> None:
    """`tensor[key] = view`, of a view of its own memory: that may be a part of `t[i], t[j] = t[j], t[i]`.

    Each part keeps what it overwrites while there are further views, which later parts may write; see `move_over`.
    """
    if isinstance(tensor, Wrapper) and tensor.interpreter.makes_new_values:
        ops.np.setitem_(tensor, key, view)
        return
    moves = _core.take_moves(tensor) or {}
    are_more = _core.has_other_views(tensor)
    target = ops.np.getitem(tensor, key)
    here, there = place_of(target), place_of(view)
    is_element = view.ndim == 0
    over = move_over(there, here, moves, is_element=is_element)
    if not is_element:
        moves = {}
    if are_more and here is not None and here != there and here not in moves and (is_element or over is None):
        moves[here] = Move(there, ops.np.copy(target))
    ops.np.setitem_(tensor, key, view if over is None else over.before)
    if are_more and moves:
        _core.note_moves(tensor, moves)


def place_of(tensor: Tensor) -> Any:
    """Where the values of a Tensor lie, or would; None where that is unknown."""
    array = _core.bottom_array(tensor)
    batch = array
    while type(batch) is _core.MetaArray:       # one example, which lies where the batch without data would
        batch = batch.base
    if isinstance(batch, _core.Shell):
        return None if batch.place is None else (batch.place, array.shape, array.strides, array.dtype)
    return (array.ctypes.data, array.shape, array.strides, array.dtype) if isinstance(array, np.ndarray) else None


_core.connect(write_own_view=write_own_view)
