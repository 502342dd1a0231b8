"""Functions of flat arrays under one transform: what the rule of an interpreter passes to the operator below.

Each enters a fresh interpreter whenever it runs, so it may run at any interpreter, later, and any number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Context, Grad, Interpreter, Jvp, MetaArray, Tensor, Vmap
from pydispatch.autograd.backward import edges_at, gradients_of_inputs
from pydispatch.autograd.batches import repeated
from pydispatch.autograd.custom_derivatives import needs_grad
from pydispatch.autograd.values import Meta, as_tensor, bottom_of
from pydispatch.exceptions import AutogradError
from pydispatch.func.functionalize import Functionalize, functionalize
from pydispatch.func.linearize import Linearize
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Lifted,
    in_batch,
    is_plain,
    meta_like,
    outlined_of,
    unseen,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.steps import Recording
from pydispatch.keys import DispatchKey
from pydispatch.ops import ops
from pydispatch.registry.backends import dtype_of
from pydispatch.registry.derivatives import CustomDerivative
from pydispatch.registry.sites import describe_interpreter
from pydispatch.tree import tree_map


def is_differentiable(value: Any) -> bool:
    """Is this a floating-point or complex array?"""
    return dtype_of(value).kind in "fc"


def chosen(values: Sequence[Any], flags: Sequence[Any]) -> Arrays:
    """The values whose flag is set."""
    return tuple([value for value, flag in zip(values, flags, strict=True) if flag])


def placed(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The values in the places whose flag is set, None in the others."""
    left = iter(values)
    return [next(left) if flag else None for flag in flags]


def without_data(value: Any, n: int | None = None) -> Any:
    """An array without data like a value, or like `n` of them; a fake in a FakeMode, or for one."""
    shape = tuple(value.shape) if n is None else (n, *value.shape)
    like = ops.np.empty_like(value, shape=shape)
    bottom = bottom_of(like)
    return like if isinstance(bottom, MetaArray) else Tensor(MetaArray(shape, dtype_of(value)))


# --- vmap ------------------------------------------------------------------------------------------------------------


def owned(values: Sequence[Any], interpreter: Interpreter) -> list[bool]:
    """Which values belong to an interpreter."""
    return [_core.is_owned_by(value, interpreter) for value in values]


def below(values: Sequence[Any], interpreter: Interpreter | None) -> Arrays:
    """The values of the interpreter below; under all interpreters, the same ones untracked."""
    if interpreter is None:
        return tuple([_core.detach_at(value, None) if isinstance(value, Tensor) else value for value in values])
    return tuple(_core.leaves_below(values, interpreter))


def batches(values: Sequence[Any], interpreter: Vmap, flags: Sequence[bool]) -> Arrays:
    """The values below an interpreter of vmap, as batches wherever the flag is set."""
    return tuple([
        repeated(value, interpreter.batch_size) if flag and not _core.is_owned_by(value, interpreter)
        else _core.value_below(value, interpreter)
        for value, flag in zip(values, flags, strict=True)
    ])


def axes_swapped(value: Any) -> Any:
    """A batch of things to scan over as a thing to scan over whose slices are batches, and the other way round."""
    return ops.np.swapaxes(value, 0, 1)


def batched(function: Flat, flags: Sequence[bool], interpreter: Vmap,
            result_flags: Sequence[bool] | None = None) -> Flat:
    """The function on batches: `flags` says which arguments have one, `result_flags` which results; None is all."""

    def on_batches(*values: Any) -> Arrays:
        inner = Vmap(interpreter.batch_size, interpreter.randomness, interpreter.name, interpreter.site)
        entered = [_core.wrap_value_at(inner, value) if flag else value
                   for value, flag in zip(values, flags, strict=True)]
        results = _core.run_under(inner, function, *entered)
        return batches(results, inner, (True,) * len(results) if result_flags is None else result_flags)

    known = outlined_of(function)
    if known is not None and result_flags is not None:      # its shapes follow from those of one example
        on_batches.outlined = known._replace(       # type: ignore[attr-defined]
            examples=_metas_of_batches(known.examples, flags, interpreter),
            results=_metas_of_batches(known.results, result_flags, interpreter))
    return on_batches


def _metas_of_batches(metas: Sequence[Meta], flags: Sequence[bool], interpreter: Vmap) -> list[Meta]:
    """Shapes and dtypes of one example as those of batches, wherever the flag is set."""
    return [((interpreter.batch_size, *shape), dtype) if flag else (shape, dtype)
            for (shape, dtype), flag in zip(metas, flags, strict=True)]


def wrapped(results: Sequence[Any], interpreter: Interpreter | None, flags: Sequence[bool] | None = None) -> Arrays:
    """Results of the interpreter below as values of this one (None: the tape) where the flag is set; None is all."""
    return tuple([
        _core.wrap_value_at(interpreter, result) if flag else result
        for result, flag in zip(results, (True,) * len(results) if flags is None else flags, strict=True)
    ])


# --- forward mode ----------------------------------------------------------------------------------------------------


def tangents_of(values: Sequence[Any], interpreter: Jvp) -> list[Any]:
    """The tangent of each value at an interpreter of jvp, None for zeros."""
    return [_core.tangent_of(value) if _core.is_owned_by(value, interpreter) else None for value in values]


def tangents_or_zeros(values: Sequence[Any], interpreter: Jvp) -> list[Any]:
    """The tangent of each value at an interpreter of jvp."""
    return [
        ops.np.zeros_like(_core.value_below(value, interpreter)) if tangent is None else tangent
        for value, tangent in zip(values, tangents_of(values, interpreter), strict=True)
    ]


def jvp_of(function: Flat, flags: Sequence[bool], interpreter: Jvp) -> Flat:
    """The function with tangents: (*values, *tangents of those whose flag is set) -> (*results, *tangents of all)."""

    def with_tangents(*values: Any) -> Arrays:
        n = len(flags)
        tangents = iter(values[n:])
        inner = Jvp(interpreter.name, interpreter.site)
        entered = [_core.wrap_value_at(inner, value, next(tangents)) if flag else value
                   for value, flag in zip(values[:n], flags, strict=True)]

        def run() -> tuple[Arrays, list[Any]]:
            results = function(*entered)
            return results, tangents_of(results, inner)

        results, found = _core.run_under(inner, run)
        values_below = below(results, inner)
        return (*values_below, *[
            ops.np.zeros_like(value) if tangent is None else tangent
            for value, tangent in zip(values_below, found, strict=True)
        ])

    return with_tangents


def with_tangents(results: Sequence[Any], tangents: Sequence[Any], interpreter: Jvp) -> Arrays:
    """Results of the interpreter below as values of an interpreter of jvp."""
    return tuple([
        _core.wrap_value_at(interpreter, result, tangent if is_differentiable(result) else None)
        for result, tangent in zip(results, tangents, strict=True)
    ])


# --- reverse mode ----------------------------------------------------------------------------------------------------


def gradients_of(function: Flat, flags: Sequence[bool], result_flags: Sequence[bool], name: str) -> Flat:
    """The gradients of the arguments whose flag is set: (*values, *cotangents of chosen results) -> gradients."""
    return lambda *values: _results_and_gradients(function, flags, result_flags, name, values)[1]


def with_gradients(function: Flat, flags: Sequence[bool], result_flags: Sequence[bool], name: str) -> Flat:
    """`gradients_of`, with the results of the function before the gradients."""

    def both(*values: Any) -> Arrays:
        results, gradients = _results_and_gradients(function, flags, result_flags, name, values)
        return (*results, *gradients)

    return both


def _results_and_gradients(
    function: Flat, flags: Sequence[bool], result_flags: Sequence[bool], name: str, values: Arrays
) -> tuple[Arrays, Arrays]:
    """The results of a function, and the gradients of the arguments whose flag is set."""
    n = len(flags)
    interpreter = Grad(name)
    entered = [_core.tracked_leaf(interpreter, value) if flag else value
               for value, flag in zip(values[:n], flags, strict=True)]
    targets = tuple([_core.edge_of_tensor(leaf) for leaf in chosen(entered, flags)])

    def run() -> tuple[Arrays, Any]:
        results = function(*entered)
        return results, edges_at(interpreter, chosen(results, result_flags))

    results, edges = _core.run_under(interpreter, run)
    found = gradients_of_inputs(interpreter, edges, values[n:], targets)
    return below(results, interpreter), tuple([
        ops.np.zeros_like(value) if gradient is None else gradient
        for gradient, value in zip(found, chosen(values[:n], flags), strict=True)
    ])


class CallDerivative(CustomDerivative):
    """The derivative of one call of a higher-order operator: what it saves, and the function that gives the gradients.

    `pull(saved, wanted, gradients)` gives one gradient for each argument that is `wanted`; a gradient that is None is
    zeros. So does a `recording`, which is quicker, while unobserved.
    """

    def __init__(self, name: str, saved: Arrays, pull: Any, recording: Recording | None = None) -> None:
        self.name = f"{''.join([part.capitalize() for part in name.split('_')])}Backward"
        self._to_save = saved
        self._pull = pull
        self._recording = recording

    def setup(self, ctx: Context, values: Arrays, output: Any) -> None:
        """Hand the residuals to the tape."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*self._to_save)
        self._to_save = ()
        ctx._recorded, self._recording = self._recording, None

    def backward(self, ctx: Context, grads: Arrays) -> Arrays:
        """One gradient per argument, None for those that need none."""
        wanted = ctx.needs_input_grad
        if all(grad is None for grad in grads):
            return (None,) * len(wanted)
        recording = ctx._recorded
        if recording is not None and goes_unseen(recording.interpreter, grads):
            found = iter(recording.gradients(wanted, grads, keep=ctx._keeps_graph))
        else:
            found = iter(self._pull(ctx.saved_tensors, wanted, grads))
        return tuple([as_tensor(next(found)) if is_wanted else None for is_wanted in wanted])


def record(
    operator: HigherOrderOperator, interpreter: Interpreter | None, arguments: Arrays, results: Arrays, saved: Arrays,
    pull: Any, recording: Recording | None = None,
) -> None:
    """Add a node for a call whose `results` are values of the interpreter; see CallDerivative."""
    ctx = Context(tuple([needs_grad(value, interpreter) for value in arguments]), interpreter)
    derivative = CallDerivative(operator.name, saved, pull, recording)
    derivative.setup(ctx, arguments, results)
    _core.attach_custom(derivative, ctx, arguments, results, interpreter)


def is_recorded_whole(
    operator: HigherOrderOperator, run: Any, interpreter: Interpreter | None, functions: Sequence[Flat],
    values: Sequence[Any],
) -> bool:
    """May the operators that a call makes be recorded in its interpreter? Only if nothing must see one call.

    `run` is the rule that the operator has for arrays of NumPy's. Functions may use values of the interpreter that
    are not among their arguments, unless all that they use is known.
    """
    if any(isinstance(function, Lifted) and not function.is_open for function in functions):
        return False
    values_below = _core.leaves_below(values, interpreter)
    return (_core.is_unobserved() and operator.rule_for(DispatchKey.CPU) is run and is_plain(values_below)
            and (interpreter is None or not any(_core.is_tracked_at(value, None) for value in values_below)))


def is_constant_and_unseen(
    operator: HigherOrderOperator, run: Any, values: Sequence[Any], *functions: FlatFunction
) -> bool:
    """May a call skip the operator, since nothing observes it, and no argument or variable of a function is tracked?

    `run` is the rule that the operator has for arrays of NumPy's.
    """
    return (_core.is_unobserved() and operator.rule_for(DispatchKey.CPU) is run and _core.are_plain_constants(values)
            and not any(function.holds_tracked for function in functions))


def goes_unseen(interpreter: Interpreter | None, grads: Sequence[Any]) -> bool:
    """May a backward pass go over what was recorded? Not where its own steps are recorded, or looked at."""
    given = [grad for grad in grads if grad is not None]
    return (_core.is_unobserved() and not (interpreter is None and _core.current_state().grad) and is_plain(given)
            and not any(isinstance(grad, Tensor) and grad.requires_grad for grad in given))


# --- transforms that are the same for all operators ------------------------------------------------------------------


def register_common_rules(operator: HigherOrderOperator) -> None:
    """The rules of `functionalize` and `linearize`, which do not depend on what the operator does."""

    @operator.py_impl(Functionalize)
    def functional(interpreter: Functionalize, *args: Any) -> Any:
        """The operator on the values below, and on functions that write to nothing."""
        remove = "mutations_and_views" if interpreter.copies else "mutations"
        below_args, _ = interpreter.arguments_below(args, {})
        return interpreter.fresh(operator(*[
            functionalize(arg, remove=remove) if callable(arg) else arg for arg in below_args]))

    @operator.py_impl(Linearize)
    def taken_down(interpreter: Linearize, *args: Any) -> Any:
        """The call as one step; results that no tangent went into are no tangents."""
        results = interpreter.process_call(operator, args, {})
        flags = dependent_results(operator, args, interpreter)
        return tuple([result if flag else _core.value_below(result, interpreter)
                      for result, flag in zip(results, flags, strict=True)])


def dependent_results(operator: HigherOrderOperator, args: Arrays, interpreter: Interpreter) -> list[bool]:
    """Which results of a call depend on values of an interpreter: those would differ in a batch where these do."""
    batch = Vmap(1, "same", operator.name)

    def substitute(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        return in_batch(batch, leaf) if _core.is_owned_by(leaf, interpreter) else meta_like(leaf)

    def run() -> list[bool]:
        return owned(_core.run_under(batch, operator, *tree_map(substitute, args)), batch)

    try:
        flags: list[bool] = unseen(run)
    except (RecursionError, MemoryError):
        raise
    except Exception as error:
        raise AutogradError(
            f"operator {operator.name} needs data to tell which inputs its results depend on, under "
            f"{describe_interpreter(interpreter)}\n"
            "use jvp in place of linearize") from error
    return flags


def is_one_element(value: Any) -> bool:
    """Has an array exactly one element?"""
    return int(np.prod(value.shape, dtype=int)) == 1
