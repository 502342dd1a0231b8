"""Batches of calls of functions that run one example at a time."""

# tests: tests/scipy/test_borrowed.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch._core import Interpreter, Jvp, Vmap, a_type, current_state, is_array
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.values import as_tensor, meta_of
from pydispatch.exceptions import VmapError
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import Arrays, Flat
from pydispatch.higher_order.map import MAP
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.numpy.declare import UNKNOWN
from pydispatch.tree import tree_flatten, tree_unflatten


def one_by_one(interpreter: Vmap, function: Flat, values: Arrays) -> Arrays:
    """Call a function of arrays for each example of a batch, by `map`."""
    flags = rules.owned(values, interpreter)
    values_below = rules.below(values, interpreter)
    n = sum(flags)

    def on_example(*given: Any) -> Arrays:
        slices, fixed = iter(given[:n]), iter(given[n:])
        return function(*[next(slices) if flag else next(fixed) for flag in flags])

    fixed = rules.chosen(values_below, [not flag for flag in flags])
    return rules.wrapped(MAP(on_example, rules.chosen(values_below, flags), fixed, interpreter.batch_size), interpreter)


# --- calls of a function of arrays and other arguments ---------------------------------------------------------------

BY_EXAMPLE = HigherOrderOperator("by_example")
"""`BY_EXAMPLE(function, arrays)` calls a function of arrays with values that no `vmap` owns."""

rules.register_common_rules(BY_EXAMPLE)


@BY_EXAMPLE.py_impl("CompositeExplicitAutograd")
def run(function: Flat, arrays: Arrays) -> Arrays:
    """Call the function."""
    return function(*arrays)


@BY_EXAMPLE.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, function: Flat, arrays: Arrays) -> Arrays:
    """Call the function for one example after the other."""
    return one_by_one(interpreter, lambda *example: BY_EXAMPLE(function, example), arrays)


@BY_EXAMPLE.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, function: Flat, arrays: Arrays) -> Arrays:
    """Call the function of the arrays and their tangents."""
    tangents = rules.tangents_of(arrays, interpreter)
    flags = [tangent is not None for tangent in tangents]
    results = BY_EXAMPLE(rules.jvp_of(function, flags, interpreter),
                         (*rules.below(arrays, interpreter), *rules.chosen(tangents, flags)))
    half = len(results) // 2
    return rules.with_tangents(results[:half], results[half:], interpreter)


@rules.recording_rule(BY_EXAMPLE)
def run_and_record(interpreter: Interpreter | None, function: Flat, arrays: Arrays) -> Arrays:
    """Make the call below and record it as one node, whose backward runs the function once more."""
    results = rules.wrapped(BY_EXAMPLE(function, rules.below(arrays, interpreter)), interpreter)
    flags = [rules.is_differentiable(result) for result in results]
    metas = [meta_of(result) for result in rules.chosen(results, flags)]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        cotangents = materialized(rules.chosen(grads, flags), metas)
        found: Arrays = BY_EXAMPLE(rules.gradients_of(function, wanted, flags, "by_example"), (*saved, *cotangents))
        return found

    rules.record(BY_EXAMPLE, interpreter, arrays, results, arrays, pull)
    return results


def by_example(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function for each example of a batch, where a transform inside `vmap` may process the call."""
    leaves, structure = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
    results: list[Any] = []     # the leaves of the last result and its structure

    def of_arrays(*arrays: Any) -> Arrays:
        given = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            given[i] = array
        positional, keywords = tree_unflatten(given, structure)
        found, result_structure = tree_flatten(function(*positional, **keywords))
        found = [np.asarray(leaf)[()] if isinstance(leaf, (bool, int, float, complex)) else leaf for leaf in found]
        for leaf in found:
            if not (is_array(leaf) or leaf is None or isinstance(leaf, str)):
                raise VmapError(f"vmap cannot return {a_type(leaf)}, which may differ between examples\n"
                                "return its arrays")
        if results and results[1] != result_structure:
            raise VmapError(f"vmap cannot return {result_structure} for one example and {results[1]} for another\n"
                            "return its arrays")
        results[:] = found, result_structure
        return tuple(filter(is_array, results[0]))

    arrays = iter(BY_EXAMPLE(of_arrays, tuple([leaves[i] for i in places])))
    return tree_unflatten([next(arrays) if is_array(leaf) else leaf for leaf in results[0]], results[1])


def by_example_if_needed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function for all examples of a batch at once, or if it needs their values, one after the other."""
    try:
        return function(*args, **kwargs)
    except UNKNOWN:
        if not any(isinstance(each, Vmap) for each in current_state().stack):
            raise
        return by_example(function, args, kwargs)


def all_as_tensors(result: Any) -> Any:
    """Convert the arrays of a result that do not depend on the arguments, such as grids. Objects keep theirs."""
    if type(result) in (tuple, list):
        return type(result)(map(all_as_tensors, result))
    return as_tensor(result) if is_array(result) else result
