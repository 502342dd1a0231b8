"""Views and in-place writes: relate the gradient of a memory to those of its views.

A view selects elements of the memory, by position. Its gradient is gathered from that of the memory, and scattered back
there. Positions are computed from addresses and strides, so the operators that made a view do not matter.
"""

# tests: tests/autograd/test_in_place.py
from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import CustomNode, Interpreter, MetaArray, OpOverload, TapeNode, Tensor
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.custom_derivatives import TapeDerivative
from pydispatch.autograd.values import WITHOUT_LAYOUT, bottom_of
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.memory import addresses, may_overlap, overlaps_itself, positions_among
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves


def positions(view: Any, whole: Any) -> Any:
    """Return, for every element of `view`, its position among the elements of `whole` in C order.

    For a view of the real or imaginary part of complex numbers, count the real numbers that `whole` holds.
    """
    if view.dtype != whole.dtype and not is_part(view, whole):
        raise AutogradError(
            f"cannot differentiate a write through a view of dtype {view.dtype} of memory of dtype {whole.dtype}\n"
            "write to the whole, or to a copy of the part: tensor.copy()"
        )
    if isinstance(whole, MetaArray):
        problem = WriteProblem.WITHOUT_MEMORY
        raise AutogradError(
            f"an array of shape {tuple(view.shape)} cannot be written to in place: {problem.why}\n{problem.remedy}")
    known = addresses(whole)
    if is_part(view, whole):
        known = known[..., None] + np.array([0, view.dtype.itemsize])
    try:
        return positions_among(addresses(view), known)
    except ValueError:
        raise AutogradError(
            "a view extends beyond the memory that it was made from\nwrite to a copy: tensor.copy()") from None


def is_part(view: Any, whole: Any) -> bool:
    """Return whether this is a view of real numbers in a memory of complex ones."""
    return bool(whole.dtype.kind == "c" and view.dtype.kind == "f" and 2 * view.dtype.itemsize == whole.dtype.itemsize)


def elements(values: Any, part: bool) -> Any:
    """Return the elements in C order, as real numbers if a view of a part needs them."""
    flat = values.reshape(-1)
    return ops.np.stack((ops.np.real(flat), ops.np.imag(flat)), axis=-1).reshape(-1) if part else flat


def whole_of(flat: Any, shape: tuple[int, ...], part: bool) -> Any:
    """Rebuild an array from its elements, as the inverse of `elements`."""
    if part:
        pairs = flat.reshape((-1, 2))
        flat = ops.np.getitem(pairs, (Ellipsis, 0)) + 1j * ops.np.getitem(pairs, (Ellipsis, 1))
    return flat.reshape(shape)


def gather(values: Any, where: Any, part: bool) -> Any:
    """Return the elements at these positions."""
    return ops.np.index(elements(values, part), where)


def scatter(values: Any, where: Any, shape: tuple[int, ...], part: bool) -> Any:
    """Return zeros of `shape` with these values at these positions."""
    size = int(np.prod(shape)) * (2 if part else 1)
    zeros = ops.np.zeros_like(values, shape=(size,))
    # a broadcast view has several elements at one position
    return whole_of(ops.np.index_put(zeros, where, values, accumulate=True), shape, part)


class PartDerivative(TapeDerivative):
    """The relation between the gradients of a memory and of a view of it.

    Raw gradients are read and written in place, at the strides of the view, in time proportional to the view. This
    requires a memory whose elements lie in C order. Positions of elements work for all memories.
    """

    def __init__(self, view: Any, whole: Any) -> None:
        self.shape, self.is_part = whole.shape, is_part(view, whole)
        self._placement = placement_in(view, whole)
        self._where = positions(view, whole) if self._placement is None else None

    @property
    def where(self) -> Any:
        """Return, for every element of the view, its position in the memory."""
        if self._where is None:
            assert self._placement is not None
            self._where = self._placement.positions()
        return self._where

    def part(self, gradient: Any) -> Any:
        """Return the part of a memory's raw gradient that belongs to the view, as a view, or None if impossible."""
        placement = self._placement
        if placement is None or not gradient.flags.c_contiguous or gradient.itemsize != placement.itemsize:
            return None
        return _core.view_at(gradient, placement.offset, placement.shape, placement.strides)


class Placement(NamedTuple):
    """The position of a view in a memory whose elements are in C order, in bytes."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    def positions(self) -> Any:
        """Return, for every element, its position in the memory."""
        found = np.full(self.shape, self.offset // self.itemsize)
        for axis, stride in enumerate(self.strides):
            steps = np.arange(self.shape[axis]) * (stride // self.itemsize)
            found += steps.reshape((-1,) + (1,) * (len(self.shape) - 1 - axis))
        return found


def placement_in(view: Any, whole: Any) -> Placement | None:
    """Return the placement of a view in its memory, or None if only positions can describe it."""
    if (type(view) is not np.ndarray or type(whole) is not np.ndarray or view.dtype != whole.dtype or not view.size
            or not whole.flags.c_contiguous or overlaps_itself(view)):
        return None
    offset, itemsize = _core.address(view) - _core.address(whole), view.itemsize
    reaches = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    first, last = (offset + sum(f(reach, 0) for reach in reaches) for f in (min, max))
    if first < 0 or last + itemsize > whole.nbytes or any(step % itemsize for step in (offset, *view.strides)):
        return None
    return Placement(offset, view.shape, view.strides, itemsize)


class ViewDerivative(PartDerivative):
    """The derivative of a view. It puts the gradient into zeros of the whole."""

    name = "ViewBackward"
    reads_part = True

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """Return one gradient per edge."""
        placement = self._placement
        if type(gradient) is np.ndarray and placement is not None and gradient.itemsize == placement.itemsize:
            whole = np.zeros(self.shape, gradient.dtype)
            self.part(whole)[...] = gradient
            return (whole,)
        return (scatter(gradient, self.where, self.shape, self.is_part),)


class WriteThroughViewDerivative(PartDerivative):
    """The derivative of a write through a view.

    The gradient of the memory is cleared at the view for the old values. The part there belongs to the values written.
    """

    name = "WriteThroughViewBackward"
    reads_part = False

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """Return one gradient per edge: for the old memory, and for the values written."""
        placement = self._placement
        if type(gradient) is np.ndarray and placement is not None and gradient.itemsize == placement.itemsize:
            whole = gradient.copy()
            part = self.part(whole)
            written = part.copy()
            part[...] = 0
            return whole, written
        flat = elements(gradient, self.is_part)
        written = ops.np.index(flat, self.where)
        cleared = ops.np.index_put(flat, self.where, ops.np.zeros_like(written))
        return whole_of(cleared, gradient.shape, self.is_part), written


def view_node(tensor: Tensor, whole: Any, edge: Any, interpreter: Any) -> TapeNode:
    """Return the node that sends the gradient of a view to that of its memory, at `edge`."""
    derivative = ViewDerivative(_core.bottom_array(tensor), whole)
    return CustomNode(derivative, None, (edge,), ((whole.shape, whole.dtype),), None, None, interpreter)


def written_node(tensor: Tensor, whole: Any, edge: Any, written: TapeNode, interpreter: Any) -> TapeNode:
    """Return the node for the gradient of a memory after the call of the node `written` wrote to a view of it."""
    view = _core.bottom_array(tensor)
    derivative = WriteThroughViewDerivative(view, whole)
    targets = ((whole.shape, whole.dtype), (view.shape, view.dtype))
    return CustomNode(derivative, None, (edge, written), targets, None, None, interpreter)


COPY = "write to a copy: tensor.copy()"
WRITE_WITHOUT_TAPE = "write inside no_grad(), or to a copy: tensor.copy()"


class WriteProblem(Enum):
    """The reasons why an array cannot be written to in place, each with a remedy. The core uses the names."""

    CAPTURED = (
        "it comes from outside {interpreter}, so a write would not be differentiated, or would be visible outside",
        "write to a copy made inside, or pass the array to the transformed function as an argument",
    )
    RAW = (
        "it is a raw array, so gradients of the written value would be lost",
        "make it a Tensor first: Tensor(array)",
    )
    LEAF = "a leaf Tensor that requires grad is being used in an in-place operation", WRITE_WITHOUT_TAPE
    PRIMAL = "it is an argument that {interpreter} differentiates with respect to, or a view of one", COPY
    VIEW_OF_A_LEAF = (
        "a view of a leaf Tensor that requires grad is being used in an in-place operation",
        WRITE_WITHOUT_TAPE,
    )
    PASSED_TWICE = (
        "another argument of {interpreter} shares memory with it, and would treat the written value as a constant",
        "pass a copy of one of them: ops.np.copy(array)",
    )
    NOT_DIFFERENTIABLE = (
        "it is tracked, but the written value has no gradient",
        "use the operator that returns a new array",
    )
    OVERLAP = "several of its elements share memory, so writing to one writes to others", COPY
    WITHOUT_MEMORY = (
        "it is a wrapper without memory that is a view or has views, so gradients cannot be assigned to it", COPY,
    )
    INFERENCE = (
        "it was made in inference mode and cannot be written to outside it",
        "write inside inference_mode(), or to a copy: tensor.copy()",
    )
    MADE_WITHOUT_TAPE = (
        "it is a view made inside no_grad, and writing to it would lose gradients", COPY,
    )
    MADE_BY_FUNCTION = (
        "it is a view made by a Function or custom operator, and writing to it would lose gradients", COPY,
    )

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy


MAY_BE_A_COPY = "an operator returned a view or a copy of it, and a wrapper without memory does not show which"


def needs_memory(error: Exception) -> bool:
    """Return whether a call failed because a wrapper without memory, such as a fake, has no known layout."""
    return any(why in str(error) for why in (WriteProblem.WITHOUT_MEMORY.why, MAY_BE_A_COPY, WITHOUT_LAYOUT))


def write_error(op: OpOverload, argument: str, problem: str, target: Any,
                interpreter: Interpreter | None) -> AutogradError:
    """Return the error for an in-place write that would lose a gradient. `problem` names a WriteProblem."""
    found = WriteProblem[problem]
    if found is WriteProblem.CAPTURED and interpreter is None and not isinstance(target, Tensor):
        found = WriteProblem.RAW
    place = "the tape" if interpreter is None else describe_interpreter(interpreter)
    return AutogradError(
        f"operator {op.name}: argument {argument!r}, of shape {tuple(target.shape)}, cannot be written to in place: "
        f"{found.why.format(interpreter=place)}\n{found.remedy}"
    )


def scalar_error(schema: Any, argument: str) -> DispatchTypeError:
    """Return the error for a call that would write to a scalar."""
    return DispatchTypeError(
        f"operator {schema.name}: argument {argument!r} is a scalar, which is immutable, as in NumPy\n"
        "index with `...` for a view that can be written to: y[0, ...], or make an array: np.array(scalar)")


def check_passed_once(op: OpOverload, argument: str, target: Any, interpreter: Interpreter) -> None:
    """Raise AutogradError if two arguments of a transformed function share the memory that is to be written to."""
    leaves = [leaf for leaf in tree_leaves(interpreter.arguments) if _core.is_array(leaf)]
    if len(leaves) > 1 and sum(may_overlap(bottom_of(leaf), bottom_of(target)) for leaf in leaves) > 1:
        raise write_error(op, argument, "PASSED_TWICE", target, interpreter)


def detach_error(tensor: Tensor) -> AutogradError:
    """Return the error for a class whose handler returns no alias of a value for the tape."""
    return AutogradError(
        f"{type(tensor).__name__}.__pydispatch__ returned its argument for np::detach, expected another object with "
        "the same value: the tape must distinguish a saved result from later ones\n"
        "return a new Tensor of the class that wraps the same value"
    )


_core.connect(
    view_node=view_node, written_node=written_node, write_error=write_error, check_passed_once=check_passed_once,
    detach_error=detach_error, scalar_error=scalar_error,
)
