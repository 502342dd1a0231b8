"""Checkpoints: the backward pass computes values again instead of saving them.

The function runs once, with the tape off. Captures are noticed in that run: every operator substitutes the Tensors
among its arguments (`_core.substituting`). Then each interpreter that records makes one node, with edges for arguments
and captured Tensors. The backward of that node runs the function again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

from pydispatch import _core
from pydispatch._core import ActiveMode, Grad, Interpreter, Tensor, Vmap
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch.autograd.backward import gradients_in_interpreter
from pydispatch.autograd.batches import left_leaf
from pydispatch.autograd.function import attach_results, wrap_outputs
from pydispatch.autograd.randomness import Draws, check_untouched
from pydispatch.autograd.surroundings import Surroundings
from pydispatch.autograd.trials import cut_off_kept
from pydispatch.autograd.values import as_tensor, check_no_fake, values_below
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Meaning = Callable[[Tensor], Tensor]        # the substitute of a captured Tensor at an interpreter
# runs the function at an interpreter, on the leaves of its arguments
BackwardPass = Callable[[Meaning, Sequence[Any]], Any]

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


def checkpoint(function: Callable[[*Ts], R], *args: *Ts) -> R:
    """Call `function(*args)` without saving intermediate values, and compute them again in the backward pass.

    Captured arrays, such as the weights of a layer, get their gradients like arguments. The gradients can be
    differentiated again. The checkpoint can be transformed, and the function then sees values of transforms. Under
    `jvp`, or a transform of your own, its operators run as they do elsewhere.

    Parameters
    ----------
    function : callable
        A function that returns the same result each time. Its second run draws the random numbers of the first.
    `*args` : object
        Its arguments.

    Returns
    -------
    object
        The result of the function.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([0.0, 1.0], requires_grad=True)
    >>> y = autograd.checkpoint(lambda x: np.sum(np.exp(x) * x), x)
    >>> autograd.grad(y, x)
    (Tensor([1.        , 5.43656366]),)
    """
    leaves, spec = tree_flatten(args)
    scalars = list(map(_core.is_scalar, leaves))

    def run(meaning: Meaning, leaves: Sequence[Any]) -> Any:
        leaves = [_core.to_scalar(leaf) if flag else leaf for leaf, flag in zip(leaves, scalars, strict=True)]
        output = _core.substituting(meaning, function, *tree_unflatten(leaves, spec))
        return tree_map(lambda leaf: meaning(leaf) if isinstance(leaf, Tensor) else leaf, output)

    captures = _Captures(Surroundings(function))
    leaves = _core.unwrap_all_dead(leaves)
    try:
        output: R = captures.generators.record(_apply, run, captures, captures.of, tuple(leaves))
    finally:
        captures.closed = True
    cut_off_kept("checkpoint: the function", function, lambda: args, captures.surroundings,
                 (*leaves, *captures.tensors))
    return output


class _Captures:
    """The captured Tensors of a function that can be tracked, and their substitutes.

    They are noticed as they are used, until the call returns. So are the generators that it draws from.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        state = _core.current_state()
        self.surroundings = surroundings
        self.tensors: list[Tensor] = []
        self.generators = Draws()
        self.closed = False
        self._interpreters = state.stack
        self._outside = state.substitute
        self._meanings: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """Return the substitute of a Tensor where the checkpoint was called, and note the Tensor as captured."""
        known = self._meanings.get(id(tensor))
        if known is not None:
            return known
        value = tensor if self._outside is None else self._outside(tensor)
        if not self.closed and self._may_be_tracked(value):
            self.tensors.append(tensor)
            self._meanings[id(tensor)] = value
        return value

    def _may_be_tracked(self, value: Any) -> bool:
        if isinstance(value, _core.Wrapper):        # a value of another interpreter was made inside
            return any(value.interpreter is interpreter for interpreter in self._interpreters)
        return isinstance(value, Tensor) and value.requires_grad


def _apply(run: BackwardPass, captures: _Captures, meaning: Meaning, leaves: tuple[Any, ...]) -> Any:
    """Call the function at the innermost interpreter, with captured Tensors replaced by `meaning`."""
    interpreter, innermost = _core.innermost_transform_now(), _core.current_state().innermost
    is_followed = isinstance(innermost, ActiveMode) and innermost.mode._follows_tensors
    if interpreter is None and not is_followed:     # a trace records the operators instead
        return _recorded(run, captures, meaning, leaves, _core.with_grad_mode(False, run, meaning, leaves), None)
    if isinstance(innermost, ActiveMode) or not isinstance(interpreter, (Grad, Vmap)):
        return run(meaning, leaves)
    if isinstance(interpreter, Vmap):
        return _batched(run, captures, meaning, leaves, interpreter)
    below = values_below(leaves, interpreter)
    output = _core.lowered(interpreter, _apply, run, captures, _below(meaning, interpreter), below)
    for leaf in tree_leaves(output):
        check_no_fake("checkpoint", leaf, leaves)
    return _recorded(run, captures, meaning, leaves, wrap_outputs(output, below, leaves, interpreter), interpreter)


def _below(meaning: Meaning, interpreter: Interpreter) -> Meaning:
    return lambda tensor: as_tensor(_core.value_below(meaning(tensor), interpreter))


def _batched(run: BackwardPass, captures: _Captures, meaning: Meaning, leaves: tuple[Any, ...],
            interpreter: Vmap) -> Any:
    """Process the call under vmap: one call below, of the function on all examples, which enters a new vmap."""
    is_batched = [_core.is_owned_by(leaf, interpreter) for leaf in leaves]
    results_batched: list[bool] = []        # the leaves of the output

    def run_below(lower: Meaning, leaves: Sequence[Any]) -> Any:
        inner = interpreter.again()
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
    """Make the output the results of a node if an argument or a captured Tensor is tracked."""
    captured = tuple(captures.tensors)
    if interpreter is None and any(isinstance(leaf, Tensor) for leaf in (*leaves, *captured)):
        output = tree_map(lambda leaf: _core.wrap_value_at(None, leaf) if _core.is_array(leaf) else leaf, output)
    derivative = _CheckpointDerivative(run, captured, captures)
    values = (*leaves, *map(meaning, captured))
    if _core.current_state().grad and any(map(_is_float, tree_leaves(output))):
        derivative.check_conversions(values, [_core.is_tracked_at(value, interpreter) for value in values])
    return attach_results(derivative, values, output, interpreter)


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, complex)) and not _core.is_array(value)


class _CheckpointDerivative(CustomDerivative):
    """The derivative of one call. Its arguments are the leaves of the passed arguments and the captured Tensors."""

    name = "CheckpointBackward"
    label = "checkpoint"
    separate = True
    once = False

    def __init__(self, run: BackwardPass, captured: tuple[Tensor, ...], captures: _Captures) -> None:
        self._run = run
        self._captured = captured
        self._draws, self._surroundings = captures.generators, captures.surroundings

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Save only the arguments."""
        ctx.constants = [None if isinstance(value, Tensor) else _core.guarded_value(value) for value in values]
        ctx.save_for_backward(*[value if isinstance(value, Tensor) else None for value in values])

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> list[Any]:
        """Run the function again and return its gradients."""
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad
        given = tree_leaves(grads)

        def run_again(*tracked: Any) -> list[tuple[Any, Any]]:
            left = iter(tracked)
            outputs = self._run_again([
                next(left) if need else constant if tensor is None else tensor
                for need, tensor, constant in zip(needs, tensors, ctx.constants, strict=True)
            ])
            return [pair for pair in zip(outputs, given, strict=True) if pair[1] is not None]

        values = [tensor for tensor, need in zip(tensors, needs, strict=True) if need]
        found = iter(gradients_in_interpreter("checkpoint", run_again, values))
        return [next(found) if need else None for need in needs]

    def check_conversions(self, values: Sequence[Any], are_tracked: Sequence[bool]) -> None:
        """Raise if the function converts a tracked value. A number in its output has no node that would notice."""
        def run_again(*tracked: Any) -> list[tuple[Any, Any]]:
            left = iter(tracked)
            self._run_again([next(left) if flag else value for value, flag in zip(values, are_tracked, strict=True)])
            return []

        tracked = [value for value, flag in zip(values, are_tracked, strict=True) if flag]
        if tracked:
            gradients_in_interpreter("checkpoint", run_again, tracked)

    def _run_again(self, values: Sequence[Any]) -> list[Any]:
        """Return the leaves of the output for these arguments and captured Tensors."""
        n = len(values) - len(self._captured)
        meanings = {id(tensor): value for tensor, value in zip(self._captured, values[n:], strict=True)}

        def run() -> Any:
            output = self._run(_core.Substitution(meanings), values[:n])
            check_untouched()
            return output

        return tree_leaves(self._surroundings.again(self._draws.replay, run))
