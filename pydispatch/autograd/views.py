"""Views and in-place writes: how the gradient of a memory and those of its views lead to one another.

A view is a choice of elements of the memory, by position: its gradient is gathered from that of the memory, and put
back there. Positions are found from addresses and strides, so it does not matter by which operators a view was made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Node, RuleNode, Tensor
from pydispatch.addresses import addresses
from pydispatch.autograd.rules import TapeRule
from pydispatch.exceptions import AutogradError
from pydispatch.ops import ops


def positions(view: Any, whole: Any) -> Any:
    """For every element of `view` its position among the elements of `whole` in C order.

    Of a view of the real or imaginary part of complex numbers, among the real numbers that `whole` holds.
    """
    if view.dtype != whole.dtype and not is_part(view, whole):
        raise AutogradError(
            f"a view of dtype {view.dtype} was written to, or the memory of dtype {whole.dtype} that it is a view of\n"
            "write to the whole, or to a copy of the part: tensor.copy()"
        )
    places = addresses(whole)
    if is_part(view, whole):
        places = places[..., None] + np.array([0, view.dtype.itemsize])
    places = places.ravel()
    order = np.argsort(places, kind="stable")
    wanted = addresses(view)
    found = np.searchsorted(places[order], wanted.ravel())
    if wanted.size and (found.max() >= places.size or not np.array_equal(places[order][found], wanted.ravel())):
        raise AutogradError("a view reaches beyond the memory that it was made from\nwrite to a copy: tensor.copy()")
    return order[found].reshape(wanted.shape)


def is_part(view: Any, whole: Any) -> bool:
    """Is this a view of real numbers in a memory of complex ones?"""
    return bool(whole.dtype.kind == "c" and view.dtype.kind == "f" and 2 * view.dtype.itemsize == whole.dtype.itemsize)


def elements(values: Any, part: bool) -> Any:
    """The elements in C order; as real numbers where a view of a part needs them."""
    flat = values.reshape(-1)
    return ops.np.stack((ops.np.real(flat), ops.np.imag(flat)), axis=-1).reshape(-1) if part else flat


def whole_of(flat: Any, shape: tuple[int, ...], part: bool) -> Any:
    """The inverse of `elements`."""
    if part:
        pairs = flat.reshape((-1, 2))
        flat = ops.np.getitem(pairs, (Ellipsis, 0)) + 1j * ops.np.getitem(pairs, (Ellipsis, 1))
    return flat.reshape(shape)


def gather(values: Any, where: Any, part: bool) -> Any:
    """The elements at these positions."""
    return ops.np.index(elements(values, part), where)


def scatter(values: Any, where: Any, shape: tuple[int, ...], part: bool) -> Any:
    """Zeros of `shape`, with these values at these positions."""
    size = int(np.prod(shape)) * (2 if part else 1)
    zeros = ops.np.zeros_like(values, shape=(size,))
    # a broadcast view has several elements at one position
    return whole_of(ops.np.index_put(zeros, where, values, accumulate=True), shape, part)


class ViewRule(TapeRule):
    """The gradient of a view: put into zeros of the whole."""

    name = "ViewBackward"

    def __init__(self, view: Any, whole: Any) -> None:
        self.where, self.shape, self.part = positions(view, whole), whole.shape, is_part(view, whole)

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """One gradient per edge."""
        return (scatter(gradient, self.where, self.shape, self.part),)


class WrittenRule(TapeRule):
    """The gradient of a memory that was written to through a view: cleared there for the old values, and the part of
    it that belongs to what was written."""

    name = "WriteThroughViewBackward"

    def __init__(self, view: Any, whole: Any) -> None:
        self.where, self.part = positions(view, whole), is_part(view, whole)

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """One gradient per edge: for the memory as it was, and for what was written."""
        flat = elements(gradient, self.part)
        written = ops.np.index(flat, self.where)
        cleared = ops.np.index_put(flat, self.where, ops.np.zeros_like(written))
        return whole_of(cleared, gradient.shape, self.part), written


def view_node(tensor: Tensor, whole: Any, edge: Any, level: Any) -> Node:
    """Where the gradient of a view goes, given where that of its memory goes."""
    rule = ViewRule(_core.bottom_array(tensor), whole)
    return RuleNode(rule, None, (edge,), ((whole.shape, whole.dtype),), None, None, level)


def written_node(tensor: Tensor, whole: Any, edge: Any, written: Node, level: Any) -> Node:
    """Where the gradient of a memory goes after the call of the node `written` wrote to a view of it."""
    view = _core.bottom_array(tensor)
    rule = WrittenRule(view, whole)
    targets = ((whole.shape, whole.dtype), (view.shape, view.dtype))
    return RuleNode(rule, None, (edge, written), targets, None, None, level)


_core.connect(view_node=view_node, written_node=written_node)
