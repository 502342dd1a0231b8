"""Views and in-place writes: how the gradient of a memory and those of its views lead to one another.

A view is a choice of elements of the memory, by position: its gradient is gathered from that of the memory, and put
back there. Positions are found from addresses and strides, so it does not matter by which operators a view was made.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import CustomNode, Interpreter, OpOverload, TapeNode, Tensor
from pydispatch.autograd.custom_derivatives import TapeDerivative
from pydispatch.autograd.values import bottom_of
from pydispatch.exceptions import AutogradError
from pydispatch.memory import addresses, may_overlap, positions_among
from pydispatch.ops import ops
from pydispatch.registry.sites import describe_interpreter
from pydispatch.tree import tree_leaves


def positions(view: Any, whole: Any) -> Any:
    """For every element of `view` its position among the elements of `whole` in C order.

    Of a view of the real or imaginary part of complex numbers, among the real numbers that `whole` holds.
    """
    if view.dtype != whole.dtype and not is_part(view, whole):
        raise AutogradError(
            f"a view of dtype {view.dtype} was written to, or the memory of dtype {whole.dtype} that it is a view of\n"
            "write to the whole, or to a copy of the part: tensor.copy()"
        )
    known = addresses(whole)
    if is_part(view, whole):
        known = known[..., None] + np.array([0, view.dtype.itemsize])
    try:
        return positions_among(addresses(view), known)
    except ValueError:
        raise AutogradError(
            "a view reaches beyond the memory that it was made from\nwrite to a copy: tensor.copy()") from None


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


class ViewDerivative(TapeDerivative):
    """The gradient of a view: put into zeros of the whole."""

    name = "ViewBackward"

    def __init__(self, view: Any, whole: Any) -> None:
        self.where, self.shape, self.part = positions(view, whole), whole.shape, is_part(view, whole)

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """One gradient per edge."""
        return (scatter(gradient, self.where, self.shape, self.part),)


class WriteThroughViewDerivative(TapeDerivative):
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


def view_node(tensor: Tensor, whole: Any, edge: Any, interpreter: Any) -> TapeNode:
    """Where the gradient of a view goes, given where that of its memory goes."""
    derivative = ViewDerivative(_core.bottom_array(tensor), whole)
    return CustomNode(derivative, None, (edge,), ((whole.shape, whole.dtype),), None, None, interpreter)


def written_node(tensor: Tensor, whole: Any, edge: Any, written: TapeNode, interpreter: Any) -> TapeNode:
    """Where the gradient of a memory goes after the call of the node `written` wrote to a view of it."""
    view = _core.bottom_array(tensor)
    derivative = WriteThroughViewDerivative(view, whole)
    targets = ((whole.shape, whole.dtype), (view.shape, view.dtype))
    return CustomNode(derivative, None, (edge, written), targets, None, None, interpreter)


COPY = "write to a copy: tensor.copy()"
WRITE_WITHOUT_TAPE = "write inside of no_grad(), or to a copy: tensor.copy()"


class WriteProblem(Enum):
    """Why an array cannot be written to in place, in words, and what to do instead. The core knows the names."""

    CAPTURED = (
        "{interpreter} does not own it, so the write would be lost to differentiation, or be seen outside",
        "write to a copy made inside, or pass it as an argument of the transformed function",
    )
    RAW = (
        "it is a raw array, so gradients of the value written would be lost",
        "make it a Tensor first: Tensor(array)",
    )
    LEAF = "a leaf Tensor that requires grad is being used in an in-place operation", WRITE_WITHOUT_TAPE
    PRIMAL = "it is an argument that {interpreter} differentiates with respect to, or a view of one", COPY
    VIEW_OF_A_LEAF = (
        "a view of a leaf Tensor that requires grad is being used in an in-place operation",
        WRITE_WITHOUT_TAPE,
    )
    PASSED_TWICE = (
        "another argument of {interpreter} shares memory with it, and would see the value written as a constant",
        "pass a copy of one of them: ops.np.copy(array)",
    )
    NOT_DIFFERENTIABLE = (
        "it is tracked, but the value written has no gradient",
        "use the operator that returns a new array",
    )
    OVERLAP = "several of its elements share memory, so writing to one writes to others", COPY
    WITHOUT_MEMORY = (
        "it is a wrapper without memory that is a view or has views, so gradients cannot be assigned to it", COPY,
    )
    INFERENCE = (
        "it was made in inference mode, and cannot be written to outside",
        "write inside of inference_mode(), or to a copy: tensor.copy()",
    )
    MADE_WITHOUT_TAPE = (
        "it is a view made inside of no_grad, and writing to it would lose gradients", COPY,
    )
    ONE_OF_SEVERAL = (
        "it is a view that was made together with others, and writing to it would lose gradients",
        COPY,
    )
    MADE_BY_FUNCTION = (
        "it is a view made by a Function or custom operator, and writing to it would lose gradients", COPY,
    )

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy


def needs_memory(error: AutogradError) -> bool:
    """Was a write refused because what it writes to is a wrapper without memory, such as a fake's?"""
    return WriteProblem.WITHOUT_MEMORY.why in str(error)


def write_error(op: OpOverload, argument: str, problem: str, target: Any,
                interpreter: Interpreter | None) -> AutogradError:
    """An in-place write that would lose a gradient; `problem` names a WriteProblem."""
    found = WriteProblem[problem]
    if found is WriteProblem.CAPTURED and interpreter is None and not isinstance(target, Tensor):
        found = WriteProblem.RAW
    place = "the tape" if interpreter is None else describe_interpreter(interpreter)
    return AutogradError(
        f"operator {op.name}: argument {argument!r}, of shape {tuple(target.shape)}, cannot be written to in place: "
        f"{found.why.format(interpreter=place)}\n{found.remedy}"
    )


def check_passed_once(op: OpOverload, argument: str, target: Any, interpreter: Interpreter) -> None:
    """Raise AutogradError where two arguments of a transformed function have the memory that is to be written to."""
    leaves = [leaf for leaf in tree_leaves(interpreter.arguments) if _core.is_array(leaf)]
    if len(leaves) > 1 and sum(may_overlap(bottom_of(leaf), bottom_of(target)) for leaf in leaves) > 1:
        raise write_error(op, argument, "PASSED_TWICE", target, interpreter)


def detach_error(tensor: Tensor) -> AutogradError:
    """The handler of a class has no alias of a value for the tape."""
    return AutogradError(
        f"{type(tensor).__name__}.__pydispatch__ returned its argument for np::detach, expected another object with "
        "the same value: the tape must tell a saved result from later ones\n"
        "return a new Tensor of the class that wraps the same value"
    )


_core.connect(
    view_node=view_node, written_node=written_node, write_error=write_error, check_passed_once=check_passed_once,
    detach_error=detach_error,
)
