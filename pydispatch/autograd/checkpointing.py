"""Checkpoints: the backward pass computes values again instead of saving them.

The function runs once, with the tape off. What it captures is noticed in that run: every operator asks what the Tensors
among its arguments mean (`_core.substituting`). Then each interpreter that records makes one node, with edges for
arguments and captured Tensors, whose backward runs the function again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import ActiveMode, Grad, Interpreter, Tensor, Vmap
from pydispatch.autograd.backward import gradients_in_interpreter
from pydispatch.autograd.batches import left_leaf
from pydispatch.autograd.function import attach_results, wrap_outputs
from pydispatch.autograd.values import as_tensor, values_below
from pydispatch.registry.derivatives import CustomDerivative
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Meaning = Callable[[Tensor], Tensor]        # what a Tensor that the function captures is at an interpreter
# the function at an interpreter, on the leaves of its arguments
BackwardPass = Callable[[Meaning, Sequence[Any]], Any]


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function(*args)` without saving intermediate values; the backward pass computes them again.

    Captured arrays, such as the weights of a layer, get their gradients as arguments do. The function must return the
    same result each time. Its gradients can be differentiated again, and it can be transformed; then it sees values of
    transforms. Under `jvp`, or a transform of your own, its operators run as they do elsewhere.
    """
    leaves, spec = tree_flatten(args)

    def run(meaning: Meaning, leaves: Sequence[Any]) -> Any:
        output = _core.substituting(meaning, function, *tree_unflatten(leaves, spec))
        return tree_map(lambda leaf: meaning(leaf) if isinstance(leaf, Tensor) else leaf, output)

    captures = _Captures()
    try:
        return _apply(run, captures, captures.of, tuple(_core.unwrap_all_dead(leaves)))
    finally:
        captures.closed = True


class _Captures:
    """The Tensors that a function uses besides its arguments, as far as they can be tracked, and what they mean.

    They are noticed as they are used, until the call returns.
    """

    def __init__(self) -> None:
        state = _core.current_state()
        self.tensors: list[Tensor] = []
        self.closed = False
        self._interpreters = state.stack
        self._outside = state.substitute
        self._meanings: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """What a Tensor means where the checkpoint was called."""
        known = self._meanings.get(id(tensor))
        if known is not None:
            return known
        value = tensor if self._outside is None else self._outside(tensor)
        if not self.closed and self._may_be_tracked(value):
            self.tensors.append(tensor)
            self._meanings[id(tensor)] = value
        return value

    def _may_be_tracked(self, value: Tensor) -> bool:
        if isinstance(value, _core.Wrapper):        # of other interpreters: made inside
            return any(value.interpreter is interpreter for interpreter in self._interpreters)
        return value.requires_grad


def _apply(run: BackwardPass, captures: _Captures, meaning: Meaning, leaves: tuple[Any, ...]) -> Any:
    """The call at the innermost interpreter, where captured Tensors are what `meaning` says."""
    interpreter = _core.innermost_transform_now()
    if interpreter is None:
        return _recorded(run, captures, meaning, leaves, _core.with_grad_mode(False, run, meaning, leaves), None)
    if isinstance(_core.current_state().innermost, ActiveMode) or not isinstance(interpreter, (Grad, Vmap)):
        return run(meaning, leaves)
    if isinstance(interpreter, Vmap):
        return _batched(run, captures, meaning, leaves, interpreter)
    below = values_below(leaves, interpreter)
    output = _core.lowered(interpreter, _apply, run, captures, _below(meaning, interpreter), below)
    return _recorded(run, captures, meaning, leaves, wrap_outputs(output, below, leaves, interpreter), interpreter)


def _below(meaning: Meaning, interpreter: Interpreter) -> Meaning:
    return lambda tensor: as_tensor(_core.value_below(meaning(tensor), interpreter))


def _batched(run: BackwardPass, captures: _Captures, meaning: Meaning, leaves: tuple[Any, ...],
            interpreter: Vmap) -> Any:
    """Under vmap: one call below, of the function on all examples, which enters a vmap of its own."""
    is_batched = [_core.is_owned_by(leaf, interpreter) for leaf in leaves]
    results_batched: list[bool] = []        # the leaves of the output

    def run_below(lower: Meaning, leaves: Sequence[Any]) -> Any:
        inner = Vmap(interpreter.batch_size, interpreter.randomness, interpreter.name, interpreter.site)
        entered: dict[int, Tensor] = {}

        def enter(tensor: Tensor) -> Tensor:
            if id(tensor) not in entered and _core.is_owned_by(meaning(tensor), interpreter):
                entered[id(tensor)] = _core.substituting(None, _core.wrap_value_at, inner, lower(tensor))
            return entered[id(tensor)] if id(tensor) in entered else lower(tensor)

        values = [_core.wrap_value_at(inner, leaf) if flag else leaf
                  for leaf, flag in zip(leaves, is_batched, strict=True)]
        output, spec = tree_flatten(_core.run_under(inner, run, enter, values))
        results_batched[:] = [_core.is_owned_by(leaf, inner) for leaf in output]
        return tree_unflatten([left_leaf(inner, leaf)[0] for leaf in output], spec)

    below = values_below(leaves, interpreter)
    output, spec = tree_flatten(_core.lowered(interpreter, _apply, run_below, captures, _below(meaning, interpreter),
                                              below))
    return tree_unflatten([
        _core.wrap_value_at(interpreter, leaf) if flag else leaf
        for leaf, flag in zip(output, results_batched, strict=True)], spec)


def _recorded(
    run: BackwardPass, captures: _Captures, meaning: Meaning, leaves: tuple[Any, ...], output: Any,
    interpreter: Interpreter | None,
) -> Any:
    """The output as the results of a node, where an argument or a captured Tensor is tracked."""
    captured = tuple(captures.tensors)
    if interpreter is None and any(isinstance(leaf, Tensor) for leaf in (*leaves, *captured)):
        output = tree_map(lambda leaf: _core.wrap_value_at(None, leaf) if _core.is_array(leaf) else leaf, output)
    return attach_results(_CheckpointDerivative(run, captured), (*leaves, *map(meaning, captured)), output, interpreter)


class _CheckpointDerivative(CustomDerivative):
    """One call: its arguments are the leaves of what was passed, and what the function captured."""

    name = "CheckpointBackward"
    label = "checkpoint"
    separate = True
    once = False

    def __init__(self, run: BackwardPass, captured: tuple[Tensor, ...]) -> None:
        self._run = run
        self._captured = captured

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Keep the arguments, and nothing else."""
        ctx.constants = [None if isinstance(value, Tensor) else value for value in values]
        ctx.save_for_backward(*[value if isinstance(value, Tensor) else None for value in values])

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> list[Any]:
        """The gradients of a second run."""
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad
        given = tree_leaves(grads)

        def run_again(*tracked: Any) -> list[tuple[Any, Any]]:
            left = iter(tracked)
            values = [
                next(left) if need else constant if tensor is None else tensor
                for need, tensor, constant in zip(needs, tensors, ctx.constants, strict=True)
            ]
            n = len(values) - len(self._captured)
            meanings = {id(tensor): value for tensor, value in zip(self._captured, values[n:], strict=True)}
            outputs = tree_leaves(self._run(_core.Substitution(meanings), values[:n]))
            return [pair for pair in zip(outputs, given, strict=True) if pair[1] is not None]

        values = [tensor for tensor, need in zip(tensors, needs, strict=True) if need]
        found = iter(gradients_in_interpreter("checkpoint", run_again, values))
        return [next(found) if need else None for need in needs]
