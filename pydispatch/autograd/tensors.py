"""Attributes and methods that autograd adds to Tensors and nodes."""

# tests: tests/autograd/test_tape.py
from __future__ import annotations

import warnings
from typing import Any

from pydispatch import _core
from pydispatch._core import TapeNode, Tensor
from pydispatch.autograd import hooks
from pydispatch.exceptions import AutogradError, DispatchTypeError


def _grad_fn(tensor: Tensor) -> TapeNode | None:
    """Return the node that made this Tensor, or None for a leaf."""
    edge = _core.edge_of_tensor(tensor)
    return None if edge is None else hooks.node_and_index(edge)[0]


def _is_leaf(tensor: Tensor) -> bool:
    """Return whether the user made this Tensor, rather than a recorded call. For a batch, return this for its value."""
    if isinstance(tensor, _core.BatchedTensor):
        value = _core.array_of(tensor)
        return not isinstance(value, Tensor) or _is_leaf(value)
    return _grad_fn(tensor) is None


def _requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Switch on or off that this leaf requires grad, and return the Tensor itself."""
    _core.set_requires_grad_of(self, requires_grad)
    return self


def kept_grad(tensor: Tensor) -> Tensor | None:
    """Return the gradient of a Tensor that is not a leaf.

    It exists only after retain_grad, or if a pass accumulated in it.
    """
    edge = _core.edge_of_tensor(tensor)
    if edge is None or (isinstance(edge, _core.GradientSlot) and (edge.grad is not None or edge.retains
                                                                  or edge.node is None)):
        return None if edge is None else edge.grad
    warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. No backward pass "
                  "fills it. Call tensor.retain_grad() before the backward pass", UserWarning, stacklevel=2)
    return None


def check_grad(tensor: Tensor, grad: Any) -> None:
    """Raise unless this can be the gradient of the Tensor."""
    if not isinstance(grad, Tensor):
        raise DispatchTypeError(f"tensor.grad was set to {_core.a_type(grad)}, expected a Tensor or None\n"
                                "write tensor.grad = Tensor(array)")
    if grad is tensor:
        raise AutogradError("a Tensor cannot be its own grad\nset a copy: tensor.copy()")
    if tuple(grad.shape) != tuple(tensor.shape) or grad.dtype != tensor.dtype or grad.device != tensor.device:
        raise AutogradError(
            f"tensor.grad was set to a Tensor of shape {grad.shape} and dtype {grad.dtype}, expected "
            f"{tensor.shape} and {tensor.dtype}\nconvert it first: grad.astype(tensor.dtype)"
        )


def _retains_grad(tensor: Tensor) -> bool:
    """Return whether the gradient is retained although this Tensor is not a leaf."""
    edge = _core.edge_of_tensor(tensor)
    return isinstance(edge, _core.GradientSlot) and edge.retains


def _output_nr(tensor: Tensor) -> int:
    """Return the number of this Tensor among the results of its node."""
    edge = _core.edge_of_tensor(tensor)
    return 0 if edge is None else hooks.node_and_index(edge)[1]


def _next_functions(node: TapeNode) -> tuple[tuple[Any, int], ...]:
    """Return the targets of the gradients: (node or leaf, index of the result) per differentiable argument.

    An argument without a target has (None, 0).
    """
    found = [
        (None, 0) if edge is None
        else (edge, 0) if isinstance(edge, TapeNode) or edge.is_leaf
        else (edge.node, edge.index)
        for edge in node.edges_out
    ]
    spread: list[tuple[Any, int]] = [(None, 0)] * hooks.n_arguments(node)
    for position, target in zip(hooks.argument_positions(node), found, strict=True):
        spread[position] = target
    return tuple(spread)


_core.extend(
    Tensor,
    requires_grad_=_requires_grad_,
    grad_fn=property(_grad_fn, doc=_grad_fn.__doc__), is_leaf=property(_is_leaf, doc=_is_leaf.__doc__),
    output_nr=property(_output_nr, doc=_output_nr.__doc__),
    retains_grad=property(_retains_grad, doc=_retains_grad.__doc__), retain_grad=hooks.retain_grad,
    register_hook=hooks.register_hook,
    register_post_accumulate_grad_hook=hooks.register_post_accumulate_grad_hook, backward=_core.backward,
)
_core.extend(
    TapeNode, next_functions=property(_next_functions, doc=_next_functions.__doc__),
    register_hook=hooks.register_node_hook, register_prehook=hooks.register_node_prehook,
)
_core.connect(kept_grad=kept_grad, check_grad=check_grad)
