"""`cond`: one of two functions, as the predicate says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Grad, Interpreter, Jvp, Vmap
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.values import meta_of
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    batched_results,
    check_function,
    lift,
    n_results,
    outline,
    results_without_data,
    show,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.transformed import (
    batched,
    below,
    chosen,
    gradients_of,
    is_differentiable,
    is_one_element,
    jvp_of,
    owned,
    record,
    register_common_rules,
    tangents_of,
    with_tangents,
    without_data,
    wrapped,
)
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`true_fn(*operands)` if `pred` holds, else `false_fn(*operands)`. Modes and transforms see one operator.

    `pred` is a bool or number, which is decided here, or an array of one element. `operands` is a tuple or list,
    nested as you like; the functions get Tensors in place of the arrays in it, and may capture arrays. Both
    return new arrays, in pytrees too, of the same structure, shapes and dtypes, and must not write to their arguments.
    Only the chosen function runs, but both are called once with arrays without data, to see what they capture and
    return.

    Under `vmap` with a predicate that differs between examples, both functions run for all examples, and `where`
    selects the results. So a division by zero in the other function happens, and a NaN there spoils gradients. Make the
    operands safe first: `where(x > 0, x, 1)`.
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
    outlines = [outline(branch, arrays) for branch in branches]
    if outlines[0].results is not None and outlines[1].results is not None:
        check_same_results(outlines[0].results, outlines[1].results)
    functions, captured = lift(branches, outlines)
    results = COND(pred, *functions, (*arrays, *captured))
    return nesting.nested(all_as_passed(results, (pred,), arrays, captured))


def check_predicate(who: str, pred: Any) -> None:
    """DispatchTypeError unless it is an array of one element."""
    if not _core.is_array(pred):
        raise DispatchTypeError(f"{who} is {_core.a_type(pred)}, expected a bool or an array of one element\n"
                                "pass a comparison of arrays: x.sum() > 0")
    if not is_one_element(pred):
        raise DispatchTypeError(f"{who} has shape {tuple(pred.shape)}, expected one element\n"
                                "reduce it: pred.all() or pred.any(); for a choice by element use ops.np.where")


def check_same_results(left: Arrays, right: Arrays) -> None:
    """DispatchTypeError unless the results have the same shapes and dtypes."""
    if len(left) != len(right):
        raise DispatchTypeError(f"cond: true_fn returns {len(left)} arrays, false_fn {len(right)}\n"
                                "return the same structure from both")
    for i, (one, other) in enumerate(zip(left, right, strict=True)):
        if meta_of(one) != meta_of(other):
            raise DispatchTypeError(f"cond: result {i} is {show(one)} from true_fn and {show(other)} from false_fn\n"
                                    "return the same shapes and dtypes from both: x.astype(dtype)")


def _examples(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> dict[int, Arrays]:
    return {1: operands, 2: operands}


def _n_results(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> int | None:
    return n_results(true_fn, operands)


COND = HigherOrderOperator("cond", examples=_examples, n_results=_n_results)
register_common_rules(COND)


@COND.py_impl("CompositeExplicitAutograd")
def run(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """The chosen branch."""
    return (true_fn if bool(pred) else false_fn)(*operands)


@COND.py_impl("Meta")
def run_without_data(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """One branch, for the shapes and dtypes."""
    return tuple([without_data(result) for result in results_without_data(true_fn, operands)])


@COND.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """The branches on batches; both of them, and a choice by example, where the predicate is a batch itself."""
    flags = owned(operands, interpreter)
    values = below(operands, interpreter)
    if not _core.is_owned_by(pred, interpreter):
        found = [batched_results(branch, operands, flags, interpreter) for branch in (true_fn, false_fn)]
        result_flags = None if None in found else [one or other for one, other in zip(*found, strict=True)]
        branches = [batched(branch, flags, interpreter, result_flags) for branch in (true_fn, false_fn)]
        return wrapped(COND(pred, *branches, values), interpreter, result_flags)
    wanted = bools(_core.value_below(pred, interpreter))
    left, right = [batched(branch, flags, interpreter)(*values) for branch in (true_fn, false_fn)]
    check_same_results(left, right)
    return wrapped([select(wanted, one, other) for one, other in zip(left, right, strict=True)], interpreter)


def bools(value: Any) -> Any:
    """A batch of predicates of one element as a vector of bools."""
    flat = ops.np.reshape(value, (value.shape[0],))
    return flat if flat.dtype.kind == "b" else flat != 0


def select(pred: Any, left: Any, right: Any) -> Any:
    """For each example what the predicate says: a vector of bools, against two batches."""
    return ops.np.where(ops.np.reshape(pred, (*pred.shape, *(1,) * (left.ndim - pred.ndim))), left, right)


@COND.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """One call on the values and tangents, of the branches with their derivatives."""
    tangents = tangents_of(operands, interpreter)
    flags = [tangent is not None for tangent in tangents]
    results = COND(_core.value_below(pred, interpreter), jvp_of(true_fn, flags, interpreter),
                   jvp_of(false_fn, flags, interpreter), (*below(operands, interpreter),
                                                                  *chosen(tangents, flags)))
    n = len(results) // 2
    return with_tangents(results[:n], results[n:], interpreter)


@COND.py_impl(Grad)
def run_and_record(interpreter: Interpreter | None, pred: Any, true_fn: Flat, false_fn: Flat,
                   operands: Arrays) -> Arrays:
    """The call below, as one node; its backward is a cond of the branches' gradients."""
    results = wrapped(COND(*below((pred,), interpreter), true_fn, false_fn, below(operands, interpreter)), interpreter)
    flags = [is_differentiable(result) for result in results]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        pred, *operands = saved
        cotangents = materialized(chosen(grads, flags), metas)
        branches = [gradients_of(branch, wanted, flags, "cond") for branch in (true_fn, false_fn)]
        gradients: Arrays = COND(pred, *branches, (*operands, *cotangents))
        return gradients

    metas = [meta_of(result) for result in chosen(results, flags)]
    record(COND, interpreter, operands, results, (*below((pred,), interpreter), *operands), pull)
    return results


@COND.py_impl("Autograd")
def run_on_tape(pred: Any, true_fn: Flat, false_fn: Flat, operands: Arrays) -> Arrays:
    """`run_and_record` on the tape."""
    return run_and_record(None, pred, true_fn, false_fn, operands)
