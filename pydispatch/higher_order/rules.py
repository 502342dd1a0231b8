"""Helpers of the rules of higher-order operators: above all, functions of flat arrays under one transform.

The rule of an interpreter passes such a function to the operator below. It enters a new interpreter whenever it runs.
It may therefore run at any interpreter, later, and any number of times.
"""

# tests: tests/higher_order/test_operator.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Context, Grad, Interpreter, Jvp, MetaArray, Tensor, Vmap
from pydispatch._registry.backends import dtype_of
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.backward import edges_at, gradients_of_inputs
from pydispatch.autograd.batches import repeated
from pydispatch.autograd.custom_derivatives import needs_grad
from pydispatch.autograd.randomness import Draws
from pydispatch.autograd.values import Meta, as_tensor, bottom_of
from pydispatch.exceptions import AutogradError
from pydispatch.func.functionalize import Functionalize, functionalize
from pydispatch.func.linearize import Linearize
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Lifted,
    abstract_run_of,
    derived,
    in_batch,
    is_plain,
    may_draw,
    meta_like,
    unseen,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.steps import Recording
from pydispatch.keys import DispatchKey
from pydispatch.ops import ops
from pydispatch.tree import tree_map

F = TypeVar("F", bound=Callable[..., Any])


def is_differentiable(value: Any) -> bool:
    """Return whether this is a floating-point or complex array."""
    return dtype_of(value).kind in "fc"


def chosen(values: Sequence[Any], flags: Sequence[Any]) -> Arrays:
    """Return the values whose flag is set."""
    return tuple([value for value, flag in zip(values, flags, strict=True) if flag])


def placed(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Return the values at the positions whose flag is set, and None at the others."""
    left = iter(values)
    return [next(left) if flag else None for flag in flags]


def without_data(value: Any, n: int | None = None) -> Any:
    """Return an array without data like a value, or like `n` of them stacked.

    In a FakeMode, or for a fake, the result is a fake.
    """
    shape = tuple(value.shape) if n is None else (n, *value.shape)
    like = ops.np.empty_like(value, shape=shape)
    bottom = bottom_of(like)
    return like if isinstance(bottom, MetaArray) else Tensor(MetaArray(shape, dtype_of(value)))


# --- vmap ------------------------------------------------------------------------------------------------------------


def owned(values: Sequence[Any], interpreter: Interpreter) -> list[bool]:
    """Return which values belong to an interpreter."""
    return [_core.is_owned_by(value, interpreter) for value in values]


def below(values: Sequence[Any], interpreter: Interpreter | None) -> Arrays:
    """Return the values of the interpreter below, or under all interpreters, the same values untracked."""
    if interpreter is None:
        return tuple([_core.detach_at(value, None) if isinstance(value, Tensor) else value for value in values])
    return tuple(_core.leaves_below(values, interpreter))


def batches(values: Sequence[Any], interpreter: Vmap, flags: Sequence[bool]) -> Arrays:
    """Return the values below an interpreter of vmap, as batches wherever the flag is set."""
    return tuple([
        repeated(value, interpreter.batch_size) if flag and not _core.is_owned_by(value, interpreter)
        else _core.value_below(value, interpreter)
        for value, flag in zip(values, flags, strict=True)
    ])


def axes_swapped(value: Any) -> Any:
    """Convert a batch of arrays to scan over to an array whose slices are batches, or back."""
    return ops.np.swapaxes(value, 0, 1)


def swapped_at(flags: Sequence[bool], values: Sequence[Any]) -> Arrays:
    """Apply `axes_swapped` to the values whose flag is set."""
    return tuple([axes_swapped(value) if flag else value for value, flag in zip(values, flags, strict=True)])


def batched(function: Flat, flags: Sequence[bool], interpreter: Vmap,
            result_flags: Sequence[bool] | None = None) -> Flat:
    """Return the function on batches of the arguments in `flags`. It returns batches for `result_flags`, or for all."""
    key = ("vmap", tuple(flags), None if result_flags is None else tuple(result_flags), interpreter.batch_size,
           interpreter.randomness)
    return derived(function, key, lambda: _batched(function, flags, interpreter, result_flags))


def _batched(function: Flat, flags: Sequence[bool], interpreter: Vmap, result_flags: Sequence[bool] | None) -> Flat:
    def on_batches(*values: Any) -> Arrays:
        inner = interpreter.again()
        entered = [_core.wrap_value_at(inner, value) if flag else value
                   for value, flag in zip(values, flags, strict=True)]
        results = _core.run_under(inner, function, *entered)
        return batches(results, inner, (True,) * len(results) if result_flags is None else result_flags)

    known = abstract_run_of(function)
    if known is not None and result_flags is not None:      # the shapes of batches follow from those of one example
        on_batches.abstract_run = known._replace(       # type: ignore[attr-defined]
            examples=_metas_of_batches(known.examples, flags, interpreter),
            results=_metas_of_batches(known.results, result_flags, interpreter))
    return on_batches


def _metas_of_batches(metas: Sequence[Meta], flags: Sequence[bool], interpreter: Vmap) -> list[Meta]:
    """Convert shapes and dtypes of one example to those of batches, wherever the flag is set."""
    return [((interpreter.batch_size, *shape), dtype) if flag else (shape, dtype)
            for (shape, dtype), flag in zip(metas, flags, strict=True)]


def wrapped(results: Sequence[Any], interpreter: Interpreter | None, flags: Sequence[bool] | None = None) -> Arrays:
    """Wrap results of the interpreter below as values of this one (None: the tape) where the flag is set.

    If `flags` is None, all are set. Under vmap, the other results are the same in all examples.
    """
    return tuple([
        _core.wrap_value_at(interpreter, whole(result) if interpreter is None else result) if flag
        else _core.own_value_at(interpreter, result)
        for result, flag in zip(results, (True,) * len(results) if flags is None else flags, strict=True)
    ])


def whole(result: Any) -> Any:
    """Return a result without a base. An array that it is a view of is out of reach."""
    return Tensor(result.array) if type(result) is Tensor and _core.is_view(result) else result


# --- forward mode ----------------------------------------------------------------------------------------------------


def tangents_of(values: Sequence[Any], interpreter: Jvp) -> list[Any]:
    """Return the tangent of each value at an interpreter of jvp, None for zeros."""
    return [_core.tangent_of(value) if _core.is_owned_by(value, interpreter) else None for value in values]


def tangents_or_zeros(values: Sequence[Any], interpreter: Jvp) -> list[Any]:
    """Return the tangent of each value at an interpreter of jvp, with arrays of zeros."""
    return [
        ops.np.zeros_like(_core.value_below(value, interpreter)) if tangent is None else tangent
        for value, tangent in zip(values, tangents_of(values, interpreter), strict=True)
    ]


def jvp_of(function: Flat, flags: Sequence[bool], interpreter: Jvp) -> Flat:
    """Return the function (*values, *tangents of those whose flag is set) -> (*results, *tangents of all)."""
    return derived(function, ("jvp", tuple(flags)), lambda: _jvp_of(function, flags, interpreter))


def _jvp_of(function: Flat, flags: Sequence[bool], interpreter: Jvp) -> Flat:
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
    """Wrap results of the interpreter below as values of an interpreter of jvp."""
    return tuple([
        _core.wrap_value_at(interpreter, result, tangent if is_differentiable(result) else None)
        for result, tangent in zip(results, tangents, strict=True)
    ])


# --- reverse mode ----------------------------------------------------------------------------------------------------


def gradients_of(function: Flat, flags: Sequence[bool], result_flags: Sequence[bool], name: str) -> Flat:
    """Return the function (*values, *cotangents of chosen results) -> gradients of arguments whose flag is set."""
    return derived(function, ("gradients", tuple(flags), tuple(result_flags)), lambda: (
        lambda *values: _results_and_gradients(function, flags, result_flags, name, values)[1]))


def with_gradients(function: Flat, flags: Sequence[bool], result_flags: Sequence[bool], name: str) -> Flat:
    """Return the function of `gradients_of`, which here also returns the results, before the gradients."""

    def both(*values: Any) -> Arrays:
        results, gradients = _results_and_gradients(function, flags, result_flags, name, values)
        return (*results, *gradients)

    return both


def _results_and_gradients(
    function: Flat, flags: Sequence[bool], result_flags: Sequence[bool], name: str, values: Arrays
) -> tuple[Arrays, Arrays]:
    """Return the results of a function, and the gradients of the arguments whose flag is set."""
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


def draws_of(*functions: Flat) -> Draws | None:
    """Return a record of draws for the gradient of a call of these functions, or None if they draw nothing."""
    return Draws() if any(map(may_draw, functions)) else None


def first_run(draws: Draws | None, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function and record its draws."""
    return function(*args) if draws is None else draws.record(function, *args)


def another_run(draws: Draws | None, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with the draws of the first run."""
    return function(*args) if draws is None else draws.replay(function, *args)


class CallDerivative(CustomDerivative):
    """The derivative of one call of a higher-order operator: its residuals, and the function for gradients.

    `pull(saved, wanted, gradients)` returns one gradient for each argument that is `wanted`. A gradient that is None is
    zeros. A `recording` computes the same and is faster. It is used only while unobserved, and not after a write to a
    residual, since it has saved parts of the same memory.
    """

    def __init__(self, name: str, saved: Arrays, pull: Any, recording: Recording | None = None) -> None:
        self.name = f"{''.join([part.capitalize() for part in name.split('_')])}Backward"
        self._to_save = saved
        self._pull = pull
        self._recording = recording

    def setup(self, ctx: Context, values: Arrays, output: Any) -> None:
        """Pass the residuals to the tape."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*self._to_save)
        ctx._recorded, self._recording = self._recording, None
        ctx._arrays = [bottom_of(value) if isinstance(value, Tensor) else None for value in self._to_save]
        self._to_save = ()

    def backward(self, ctx: Context, grads: Arrays) -> Arrays:
        """Return one gradient per argument, None for those that need none."""
        wanted = ctx.needs_input_grad
        if all(grad is None for grad in grads):
            return (None,) * len(wanted)
        recording = ctx._recorded
        saved = ctx.saved_tensors
        if (recording is not None and goes_unseen(recording.interpreter, grads)
                and all(array is None or bottom_of(value) is array
                        for value, array in zip(saved, ctx._arrays, strict=True))):
            found = iter(recording.gradients(wanted, grads, keep=ctx._keeps_graph))
        else:
            found = iter(self._pull(saved, wanted, grads))
        return tuple([as_tensor(next(found)) if is_wanted else None for is_wanted in wanted])


def record(
    operator: HigherOrderOperator, interpreter: Interpreter | None, arguments: Arrays, results: Arrays, saved: Arrays,
    pull: Any, recording: Recording | None = None,
) -> None:
    """Add a node for a call whose `results` are values of the interpreter. See CallDerivative."""
    ctx = Context(tuple([needs_grad(value, interpreter) for value in arguments]), interpreter)
    derivative = CallDerivative(operator.name, saved, pull, recording)
    derivative.setup(ctx, arguments, results)
    _core.attach_custom(derivative, ctx, arguments, results, interpreter)


def is_recorded_whole(
    operator: HigherOrderOperator, run: Any, interpreter: Interpreter | None, functions: Sequence[Flat],
    values: Sequence[Any],
) -> bool:
    """Return whether the operators that a call makes may be recorded in its interpreter.

    They may if nothing has to see the call as a whole. `run` is the operator's rule for NumPy arrays. Functions may use
    values of the interpreter that are not among their arguments, unless all values that they use are known.
    """
    if any(isinstance(function, Lifted) and not function.is_open for function in functions):
        return False
    values_below = _core.leaves_below(values, interpreter)
    return (_core.is_unobserved() and operator.rule_for(DispatchKey.CPU) is run and is_plain(values_below)
            and (interpreter is None or not any(_core.is_tracked_at(value, None) for value in values_below)))


def is_constant_and_unseen(
    operator: HigherOrderOperator, run: Any, values: Sequence[Any], *functions: FlatFunction
) -> bool:
    """Return whether a call may skip the operator.

    It may if nothing observes it, and no argument or variable of a function is tracked. `run` is the rule that the
    operator has for NumPy arrays.
    """
    return (_core.is_unobserved() and operator.rule_for(DispatchKey.CPU) is run and _core.are_plain_constants(values)
            and not any(function.holds_tracked for function in functions))


def goes_unseen(interpreter: Interpreter | None, grads: Sequence[Any]) -> bool:
    """Return whether a backward pass may use a recording: its own steps are neither recorded nor observed."""
    given = [grad for grad in grads if grad is not None]
    return (_core.is_unobserved() and not (interpreter is None and _core.current_state().grad) and is_plain(given)
            and not any(isinstance(grad, Tensor) and grad.requires_grad for grad in given))


# --- transforms that are the same for all operators ------------------------------------------------------------------


def register_common_rules(operator: HigherOrderOperator) -> None:
    """Register the rules of `functionalize` and `linearize`, which are the same for all operators."""

    @operator.py_impl(Functionalize)
    def functional(interpreter: Functionalize, *args: Any) -> Any:
        """Call the operator on the values below, and on functionalized functions."""
        remove = "mutations_and_views" if interpreter.copies else "mutations"
        below_args, _ = interpreter.arguments_below(args, {})
        return interpreter.fresh(operator(*[
            functional_of(arg, remove) if callable(arg) else arg for arg in below_args]))

    @operator.py_impl(Linearize)
    def taken_down(interpreter: Linearize, *args: Any) -> Any:
        """Process the call as one step. Results that depend on no tangent are not tangents."""
        results = interpreter.process_call(_DrawingOnce(operator), args, {})
        flags = dependent_results(operator, args, interpreter)
        return tuple([result if flag else _core.value_below(result, interpreter)
                      for result, flag in zip(results, flags, strict=True)])


def recording_rule(operator: HigherOrderOperator) -> Callable[[F], F]:
    """Register the decorated function as the rule for `grad`, and with None for the interpreter, for the tape."""

    def register(rule: F) -> F:
        operator.py_impl("Autograd")(partial(rule, None))
        return operator.py_impl(Grad)(rule)

    return register


def functional_of(function: Flat, remove: str) -> Flat:
    """Return the function without writes. It has no attributes of the function, whose graph may write."""

    def make() -> Flat:
        functional = functionalize(function, remove=remove)

        def without_writes(*values: Any) -> Arrays:
            results: Arrays = functional(*values)
            return results

        without_writes.abstract_run = abstract_run_of(function)     # type: ignore[attr-defined]
        return without_writes

    return derived(function, ("functionalize", remove), make)


class _DrawingOnce:
    """A repeated call of an operator, in which each later call sees the draws of the first one."""

    def __init__(self, operator: HigherOrderOperator) -> None:
        self.name = operator.name
        self._operator = operator
        self._draws: Draws | None = None

    def __call__(self, *args: Any) -> Any:
        if self._draws is not None:
            return self._draws.replay(self._operator, *args)
        self._draws = Draws()
        return self._draws.record(self._operator, *args)


def dependent_results(operator: HigherOrderOperator, args: Arrays, interpreter: Interpreter) -> list[bool]:
    """Return which results of a call depend on values of an interpreter.

    If these values were batches, exactly these results would differ between examples.
    """
    batch = Vmap(1, "same", operator.name)

    def substitute(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        return in_batch(batch, leaf) if _core.is_owned_by(leaf, interpreter) else meta_like(leaf)

    def run() -> list[bool]:
        results = _core.run_under(batch, operator, *tree_map(substitute, args))
        return [_core.is_owned_by(result, batch) and not _core.is_uniform_value(result) for result in results]

    try:
        flags: list[bool] = unseen(run)
    except (RecursionError, MemoryError):
        raise
    except Exception as error:
        raise AutogradError(
            f"operator {operator.name} needs data to find which inputs its results depend on, under "
            f"{describe_interpreter(interpreter)}\n"
            "use jvp instead of linearize") from error
    return flags


def is_one_element(value: Any) -> bool:
    """Return whether an array has exactly one element."""
    return int(np.prod(value.shape, dtype=int)) == 1
