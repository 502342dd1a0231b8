"""Checkpoints: recompute instead of remembering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydispatch._core import Tensor
from pydispatch.autograd.backward import gradients_in_level
from pydispatch.autograd.function import Function
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten


class _Checkpoint(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.function, *args = inputs
        ctx.constants = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.save_for_backward(*[arg if isinstance(arg, Tensor) else None for arg in args])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad[1:]
        given = tree_leaves(grads)

        def run(*tracked: Any) -> list[tuple[Any, Any]]:
            left = iter(tracked)
            args = [
                next(left) if need else constant if tensor is None else tensor
                for need, tensor, constant in zip(needs, tensors, ctx.constants, strict=True)
            ]
            outputs = tree_leaves(ctx.function(*args))
            return [pair for pair in zip(outputs, given, strict=True) if pair[1] is not None]

        values = [tensor for tensor, need in zip(tensors, needs, strict=True) if need]
        found = iter(gradients_in_level("checkpoint", run, values))
        return (None, *[next(found) if need else None for need in needs])


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, whose intermediate values are not kept but computed again in the backward pass.

    The function must give the same result each time. Its gradients can be differentiated in turn, and it can be
    transformed; then it sees values of transforms.
    """
    leaves, spec = tree_flatten(args)
    return _Checkpoint.apply(lambda *leaves: function(*tree_unflatten(leaves, spec)), *leaves)
