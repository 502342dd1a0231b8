"""`map`: call a function on each slice in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Interpreter, Jvp, Vmap
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    abstract_result,
    as_taken,
    batched_results,
    bound,
    check_function,
    derived,
    first_run_of,
    lift,
    n_results,
    results_without_data,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.scan import first_slice, gradients, length_of, slice_like, slices_first, without_slices
from pydispatch.higher_order.steps import Recording, in_steps, run_at_once, run_steps, run_steps_and_stack, slices
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Call `f(x, *args)` for each slice `x` of `xs` along axis 0, and stack the results along axis 0.

    Modes and transforms see one operator. If `f` can process a whole batch, `func.vmap` is faster.

    Parameters
    ----------
    f : callable
        A function of Tensors that returns arrays, possibly in pytrees. It may capture arrays, and must not write to its
        arguments. If something observes the loop, it is called once more with arrays without data, to find out what it
        captures and returns.
    xs : array or pytree of arrays
        The arrays to loop over.
    `*args` : object
        Arguments that are the same in each call.

    Returns
    -------
    array or pytree of arrays
        The stacked results.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import higher_order
    >>> higher_order.map(np.sum, numpy.ones((3, 2)))
    array([2., 2., 2.])
    """
    check_function("map: f", f, "map(lambda x: ..., xs)")
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise DispatchTypeError("map: xs contains no arrays, expected at least one\npass the arrays to loop over")
    leaves = slices_first("map", leaves, 0)
    n_steps = length_of("map", leaves)
    slices = [slice_like(x) for x in leaves]
    nesting = Nesting(remedy="return the same structure for every slice")
    function = FlatFunction("map: f", f, (tree_unflatten(slices, spec), *args), nesting, keeps_inputs=True)
    arrays = [leaf for leaf in tree_leaves(args) if _core.is_array(leaf)]
    found = None
    if n_steps and rules.is_constant_and_unseen(MAP, run, (*leaves, *arrays), function):
        found = run_at_once(function, (), tuple(leaves), tuple(arrays), in_steps(n_steps))
    if found is None:
        known = abstract_result(function, (*slices, *arrays))
        (flat,), captured = lift([function], [known])
        state = "carry it: scan(combine, value, xs)" if n_steps > 1 else ""
        with first_run_of(function, inputs=(*leaves, *arrays, *captured), state=state, n_steps=n_steps):
            found = (MAP(flat, tuple(leaves), (*arrays, *captured), n_steps) if n_steps
                     else tuple(without_slices("map: f", known, 0))), captured
    results, captured = found
    return nesting.nested(all_as_passed(results, leaves, arrays, captured))


def _examples(f: Flat, xs: Arrays, args: Arrays, length: int) -> dict[int, Arrays]:
    return {0: (*[first_slice(x) for x in xs], *args)}


def _n_results(f: Flat, xs: Arrays, args: Arrays, length: int) -> int | None:
    return n_results(f, (*[slice_like(x) for x in xs], *args))


MAP = HigherOrderOperator("map", examples=_examples, n_results=_n_results, captures=2)
rules.register_common_rules(MAP)


@MAP.py_impl("CompositeExplicitAutograd")
def run(f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """Run the loop slice by slice."""
    step = bound(f, args)
    order = in_steps(length_of("map", xs, length))
    return run_steps_and_stack(step, (), slices(as_taken(step, xs), order), order)


@MAP.py_impl("Meta")
def run_without_data(f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """Process one slice without data, for the shapes and dtypes."""
    results = results_without_data(f, (*[first_slice(x) for x in xs], *args))
    return tuple([rules.without_data(result, length) for result in results])


@MAP.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """Run the loop over batches of slices."""
    flags = (*rules.owned(xs, interpreter), *rules.owned(args, interpreter))
    found = batched_results(f, (*[slice_like(x) for x in xs], *args), flags, interpreter)
    values = [rules.axes_swapped(_core.array_of(x)) if _core.is_owned_by(x, interpreter) else x for x in xs]
    results = MAP(rules.batched(f, flags, interpreter, found), tuple(values), rules.below(args, interpreter), length)
    found = [True] * len(results) if found is None else found
    return rules.wrapped(rules.swapped_at(found, results), interpreter, found)


@MAP.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """Run one loop over slices of values and of tangents."""
    x_tangents, arg_tangents = rules.tangents_of(xs, interpreter), rules.tangents_of(args, interpreter)
    x_flags = [tangent is not None for tangent in x_tangents]
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = rules.jvp_of(f, (*x_flags, *arg_flags), interpreter)
    n, n_moving, n_args = len(xs), sum(x_flags), len(args)

    def step_with_tangents(*values: Any) -> Arrays:
        x, x_t = values[:n], values[n: n + n_moving]
        arg, arg_t = values[n + n_moving:][:n_args], values[n + n_moving:][n_args:]
        return function(*x, *arg, *x_t, *arg_t)

    step = derived(f, ("jvp of step", tuple(x_flags), tuple(arg_flags)), lambda: step_with_tangents)
    results = MAP(step, (*rules.below(xs, interpreter), *rules.chosen(x_tangents, x_flags)),
                  (*rules.below(args, interpreter), *rules.chosen(arg_tangents, arg_flags)), length)
    half = len(results) // 2
    return rules.with_tangents(results[:half], results[half:], interpreter)


@rules.recording_rule(MAP)
def run_and_record(interpreter: Interpreter | None, f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """Run the loop below and record it as one node, whose backward is a scan that sums the gradients of `args`."""
    recording = None
    draws = rules.draws_of(f)
    if rules.is_recorded_whole(MAP, run, interpreter, (f,), (*xs, *args)):
        xs, args = _core.guarded_value((xs, args))
        recording = Recording(interpreter, (), xs, args, in_steps(length))
        found = rules.first_run(draws, recording.run, run_steps, bound(f, args), (), recording.slices())
    else:
        found = rules.first_run(draws, MAP, f, rules.below(xs, interpreter), rules.below(args, interpreter), length)
    results = rules.wrapped(found, interpreter)

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        return gradients(f, (), saved[:len(xs)], saved[len(xs):], wanted, (), grads, (), length, True, draws)

    rules.record(MAP, interpreter, (*xs, *args), results, (*xs, *args), pull, recording)
    return results
