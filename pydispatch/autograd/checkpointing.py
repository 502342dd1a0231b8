"""Checkpoints: recompute instead of remembering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydispatch._core import Tensor
from pydispatch.autograd.backward import grad
from pydispatch.autograd.function import Function, once_differentiable
from pydispatch.autograd.grad_modes import enable_grad
from pydispatch.tree import tree_leaves


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        ctx.function = function
        ctx.constants = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.save_for_backward(*[arg if isinstance(arg, Tensor) else None for arg in args])
        return function(*args)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors
        args = [
            constant if tensor is None else tensor.detach().requires_grad_(tensor.requires_grad)
            for tensor, constant in zip(tensors, ctx.constants, strict=True)
        ]
        with enable_grad():
            outputs = tree_leaves(ctx.function(*args))
        wanted = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
        pairs = [(output, given) for output, given in zip(outputs, grads, strict=True)
                 if isinstance(output, Tensor) and output.requires_grad]
        found = iter(grad([output for output, _ in pairs], wanted, [given for _, given in pairs], allow_unused=True))
        return (None, *[next(found) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in args])


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, whose intermediate values are not kept but computed again in the backward pass.

    The function must give the same result each time. Differentiating its gradients again raises AutogradError.
    """
    return _Checkpoint.apply(function, *args)
