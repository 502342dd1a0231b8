"""`cond`: call one of two functions, chosen by a predicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Interpreter, Jvp, Tensor, Vmap
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.randomness import Draws
from pydispatch.autograd.values import meta_of
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    abstract_result,
    as_scalars,
    batched_results,
    check_function,
    first_run_of,
    lift,
    n_results,
    results_without_data,
    show,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """Call `true_fn(*operands)` if `pred` holds, and `false_fn(*operands)` otherwise.

    Modes and transforms see one operator. Only the chosen function runs, but both are called once with arrays without
    data, to find out what they capture and return.

    Under `vmap` with a predicate that differs between examples, both functions run for the whole batch, and `where`
    selects the results. Examples that do not choose a function get the operands of one that does.

    Parameters
    ----------
    pred : bool, number or array
        An array has one element. A bool or number chooses immediately.
    true_fn, false_fn : callable
        Functions that receive Tensors for the arrays in `operands`, and may capture arrays. Both return new arrays,
        possibly in pytrees, of the same structure, shapes and dtypes. They must not write to their arguments.
    operands : tuple or list, optional
        The arguments, nested as you like.

    Returns
    -------
    array or pytree of arrays
        The result of the chosen function.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func, higher_order
    >>> def f(x):
    ...     return higher_order.cond(x > 0, np.sqrt, lambda x: 0 * x, (x,))
    >>> func.vmap(f)(numpy.array([4.0, -1.0]))
    array([ 2., -0.])
    """
    for name, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        check_function(f"cond: {name}", function, "cond(pred, lambda x: ..., lambda x: ..., (x,))")
    if not isinstance(operands, (tuple, list)):
        raise DispatchTypeError(f"cond: operands is {_core.a_type(operands)}, expected a tuple or list\n"
                                "write cond(pred, true_fn, false_fn, (x,))")
    if isinstance(pred, (bool, int, float)):
        return true_fn(*operands) if pred else false_fn(*operands)
    check_predicate("cond: pred", pred)
    nesting = Nesting(remedy="return the same structure from both")
    branches = [FlatFunction(f"cond: {name}", function, tuple(operands), nesting)
                for name, function in (("true_fn", true_fn), ("false_fn", false_fn))]
    arrays = [leaf for leaf in tree_leaves(operands) if _core.is_array(leaf)]
    abstract = [abstract_result(branch, arrays) for branch in branches]
    if abstract[0].results is not None and abstract[1].results is not None:
        check_same_results(abstract[0].results, abstract[1].results)
    functions, captured = lift(branches, abstract)
    with first_run_of(*branches, inputs=(*arrays, *captured)):
        results = COND(pred, *functions, (*arrays, *captured))
    if abstract[0].results is not None and abstract[1].results is not None:
        results = as_scalars(results, [
            one if _core.is_scalar(other) else other
            for one, other in zip(abstract[0].results, abstract[1].results, strict=True)])
    return nesting.nested(all_as_passed(results, (pred,), arrays, captured))


def check_predicate(who: str, pred: Any) -> None:
    """Raise DispatchTypeError unless the predicate is an array of one element."""
    if not _core.is_array(pred):
        raise DispatchTypeError(f"{who} is {_core.a_type(pred)}, expected a bool or an array of one element\n"
                                "pass a comparison of arrays: x.sum() > 0")
    if not rules.is_one_element(pred):
        raise DispatchTypeError(f"{who} has shape {tuple(pred.shape)}, expected one element\n"
                                "reduce it: pred.all() or pred.any(), or use ops.np.where to choose per element")


def check_same_results(left: Arrays, right: Arrays) -> None:
    """Raise DispatchTypeError unless the results have the same shapes and dtypes."""
    if len(left) != len(right):
        raise DispatchTypeError(f"cond: true_fn returns {len(left)} arrays, but false_fn {len(right)}\n"
                                "return the same structure from both")
    for i, (one, other) in enumerate(zip(left, right, strict=True)):
        if meta_of(one) != meta_of(other):
            raise DispatchTypeError(f"cond: result {i} is {show(one)} from true_fn, but {show(other)} from false_fn\n"
                                    "return the same shapes and dtypes from both: x.astype(dtype)")


def _examples(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> dict[int, Arrays]:
    return {1: operands, 2: operands}


def _n_results(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> int | None:
    return n_results(true_fn, operands)


COND = HigherOrderOperator("cond", examples=_examples, n_results=_n_results, captures=3)
rules.register_common_rules(COND)


@COND.py_impl("CompositeExplicitAutograd")
def run(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """Run the chosen branch."""
    return (true_fn if bool(pred) else false_fn)(*operands)


@COND.py_impl("Meta")
def run_without_data(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """Run one branch without data, for the shapes and dtypes."""
    return tuple([rules.without_data(result) for result in results_without_data(true_fn, operands)])


@COND.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """Run the branches on batches. If the predicate is a batch, run both and choose by example."""
    flags = rules.owned(operands, interpreter)
    values = rules.below(operands, interpreter)
    if not _core.is_owned_by(pred, interpreter):
        found = [batched_results(branch, operands, flags, interpreter) for branch in (true_fn, false_fn)]
        result_flags = None if None in found else [one or other for one, other in zip(*found, strict=True)]
        branches = [rules.batched(branch, flags, interpreter, result_flags) for branch in (true_fn, false_fn)]
        return rules.wrapped(COND(pred, *branches, values), interpreter, result_flags)
    wanted = bools(_core.value_below(pred, interpreter))
    on_batches = [rules.batched(branch, flags, interpreter) for branch in (true_fn, false_fn)]
    given = [for_chosen(chooses, values, flags) for chooses in (wanted, ops.np.logical_not(wanted))]
    if interpreter.randomness == "same":        # each example draws in only one branch
        draws = Draws()
        left, right = draws.record(on_batches[0], *given[0]), draws.restart(on_batches[1], *given[1])
    else:
        left, right = [branch(*operands) for branch, operands in zip(on_batches, given, strict=True)]
    check_same_results(left, right)
    return rules.wrapped([select(wanted, one, other) for one, other in zip(left, right, strict=True)], interpreter)


def bools(value: Any) -> Any:
    """Return a batch of predicates of one element as a vector of bools."""
    flat = ops.np.reshape(value, (value.shape[0],))
    return flat if flat.dtype.kind == "b" else flat != 0


def for_chosen(wanted: Any, values: Sequence[Any], flags: Sequence[bool]) -> Arrays:
    """Return operands for a function that runs for all examples, although only the wanted examples matter.

    The other examples get the operands of the first wanted one. Their own operands may be outside the function's
    domain. It could raise an error or give a gradient that is not finite, and zero times such a gradient is not zero.
    If no example is wanted, no gradient flows back.
    """
    if not wanted.shape[0]:
        return tuple(values)
    first, is_any = ops.np.argmax(wanted), ops.np.any(wanted)
    return tuple([
        select(wanted, value, ops.np.detach(ops.np.take(value, first, 0))) if flag
        else ops.np.where(is_any, value, ops.np.detach(value))
        if isinstance(value, Tensor) and rules.is_differentiable(value) else value
        for value, flag in zip(values, flags, strict=True)])


def select(pred: Any, left: Any, right: Any) -> Any:
    """Select for each example from two batches by a predicate, which is a vector of bools."""
    return ops.np.where(ops.np.reshape(pred, (*pred.shape, *(1,) * (left.ndim - pred.ndim))), left, right)


@COND.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """Run one call on the values and tangents, with branches that include their derivatives."""
    tangents = rules.tangents_of(operands, interpreter)
    flags = [tangent is not None for tangent in tangents]
    results = COND(_core.value_below(pred, interpreter), rules.jvp_of(true_fn, flags, interpreter),
                   rules.jvp_of(false_fn, flags, interpreter), (*rules.below(operands, interpreter),
                                                                  *rules.chosen(tangents, flags)))
    n = len(results) // 2
    return rules.with_tangents(results[:n], results[n:], interpreter)


@rules.recording_rule(COND)
def run_and_record(interpreter: Interpreter | None, pred: Any, true_fn: Flat, false_fn: Flat,
                   operands: Arrays) -> Arrays:
    """Make the call below and record it as one node, whose backward is a cond of the branches' gradients."""
    draws = rules.draws_of(true_fn, false_fn)
    results = rules.wrapped(rules.first_run(draws, COND, *rules.below((pred,), interpreter), true_fn, false_fn,
                                            rules.below(operands, interpreter)), interpreter)
    flags = [rules.is_differentiable(result) for result in results]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        pred, *operands = saved
        cotangents = materialized(rules.chosen(grads, flags), metas)
        branches = [rules.gradients_of(branch, wanted, flags, "cond") for branch in (true_fn, false_fn)]
        gradients: Arrays = rules.another_run(draws, COND, pred, *branches, (*operands, *cotangents))
        return gradients

    metas = [meta_of(result) for result in rules.chosen(results, flags)]
    rules.record(COND, interpreter, operands, results, (*rules.below((pred,), interpreter), *operands), pull)
    return results
