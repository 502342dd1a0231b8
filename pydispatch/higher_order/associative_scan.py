"""`associative_scan`: all partial results of an associative function, in about log2(n) steps over whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch._core import Interpreter, Jvp, Vmap
from pydispatch.autograd.custom_derivatives import materialized
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
    check_function,
    first_run_of,
    lift,
    results_without_data,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.scan import batched_carry, length_of, slice_like, slices_first, split
from pydispatch.higher_order.steps import check_carry
from pydispatch.ops import ops
from pydispatch.tree import tree_flatten, tree_unflatten


def associative_scan(combine: Callable[..., Any], xs: Any, *, axis: int = 0, reverse: bool = False) -> Any:
    """Compute all partial results of an associative function along an axis.

    The results are `x[0]`, `combine(x[0], x[1])`, `combine(combine(x[0], x[1]), x[2])`, and so on. Modes and transforms
    see one operator.

    Parameters
    ----------
    combine : callable
        An associative function `combine(a, b)`. It takes two slices, nested like `xs`, and returns one of the same
        structure, shapes and dtypes. It may capture arrays, and must not write to its arguments. It runs under `vmap`,
        for many pairs at once, about 2 log2(n) times. It is called once more with arrays without data, to find out what
        it captures and returns.
    xs : array or pytree of arrays
        The arrays to combine slices of.
    axis : int, optional
        The axis of the slices.
    reverse : bool, optional
        With True, start with the last slice, so that the first result combines all slices.

    Returns
    -------
    array or pytree of arrays
        The partial results, along `axis`.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import higher_order
    >>> higher_order.associative_scan(lambda a, b: a * b, numpy.array([1.0, 2.0, 3.0]))
    array([1., 2., 6.])
    """
    check_function("associative_scan: combine", combine, "associative_scan(lambda a, b: a * b, xs)")
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise DispatchTypeError("associative_scan: xs contains no arrays, expected at least one\n"
                                "pass the arrays to combine")
    xs_leaves, leaves = leaves, slices_first("associative_scan", leaves, axis)
    n = length_of("associative_scan", leaves)
    if not n:
        return tree_unflatten(all_as_passed(list(map(ops.np.copy, xs_leaves)), xs_leaves), spec)
    slices = [slice_like(x) for x in leaves]
    pair = (tree_unflatten(slices, spec), tree_unflatten(slices, spec))
    nesting = Nesting(spec, "xs", "return a pytree with the structure of a slice of xs")
    function = FlatFunction("associative_scan: combine", combine, pair, nesting, keeps_inputs=True)
    found = abstract_result(function, (*slices, *slices))
    if found.results is not None:
        check_carry("associative_scan: combine", slices, found.results)
    (flat,), captured = lift([function], [found])
    inputs = (*leaves, *leaves, *captured)
    with first_run_of(function, inputs=inputs, state="carry it: scan(combine, value, xs)"):
        results = ASSOCIATIVE_SCAN(flat, tuple(leaves), captured, n, reverse)
    moved = [result if axis == 0 else ops.np.moveaxis(result, 0, axis) for result in results]
    return tree_unflatten(all_as_passed(moved, leaves, captured), spec)


def _examples(combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool) -> dict[int, Arrays]:
    first = tuple([ops.np.getitem(x, 0) for x in xs])
    return {0: (*first, *first, *args)}


def _n_results(combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool) -> int:
    return len(xs)


def run(combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool) -> Arrays:
    """Combine pairs of neighbours, then all pairs by the same method, then the results between them."""
    def of_pairs(left: Arrays, right: Arrays) -> Arrays:
        flags = (True,) * (len(left) + len(right)) + (False,) * len(args)
        interpreter = Vmap(left[0].shape[0], "different", "associative_scan")
        results = rules.batched(combine, flags, interpreter)(*left, *right, *args)
        check_carry("associative_scan: combine", left, results)
        return results

    def partial(values: Arrays, n: int) -> Arrays:
        if n < 2:
            return values
        evens, odds = every_second(values, 0), every_second(values, 1)
        sums = partial(of_pairs(parts(evens, 0, n // 2), odds), n // 2)
        if n < 3:
            rest = parts(evens, 0, 1)
        else:
            between = of_pairs(parts(sums, 0, (n - 1) // 2), parts(evens, 1, (n + 1) // 2))
            rest = tuple([ops.np.concatenate((first, others))
                          for first, others in zip(parts(evens, 0, 1), between, strict=True)])
        return tuple([interleaved(even, odd, n) for even, odd in zip(rest, sums, strict=True)])

    ordered = tuple([ops.np.flip(x, 0) for x in xs]) if reverse else xs
    results = partial(ordered, length)
    if reverse:
        return tuple([ops.np.flip(result, 0) for result in results])
    return tuple([ops.np.copy(result) for result in results]) if length == 1 else results


def every_second(values: Arrays, start: int) -> Arrays:
    """Return every second layer of each value."""
    return tuple([ops.np.getitem(value, slice(start, None, 2)) for value in values])


def parts(values: Arrays, start: int, stop: int) -> Arrays:
    """Return the layers from `start` to `stop` of each value."""
    return tuple([ops.np.getitem(value, slice(start, stop)) for value in values])


def interleaved(evens: Any, odds: Any, n: int) -> Any:
    """Interleave the layers of two arrays to `n` layers.

    `evens` has the first layer, and as many layers as `odds` or one more.
    """
    n_pairs = odds.shape[0]
    pairs = ops.np.stack((ops.np.getitem(evens, slice(0, n_pairs)), odds), axis=1)
    flat = ops.np.reshape(pairs, (2 * n_pairs, *evens.shape[1:]))
    if n % 2 == 0:
        return flat
    return ops.np.concatenate((flat, ops.np.getitem(evens, slice(n_pairs, None))))


ASSOCIATIVE_SCAN = HigherOrderOperator(
    "associative_scan", examples=_examples, transforms=True, n_results=_n_results, captures=2, planned_as=run)
rules.register_common_rules(ASSOCIATIVE_SCAN)
ASSOCIATIVE_SCAN.py_impl("CompositeExplicitAutograd")(run)


@ASSOCIATIVE_SCAN.py_impl("Meta")
def run_without_data(combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool) -> Arrays:
    """Combine one pair, since the results have the shapes and dtypes of its slices."""
    first = tuple([ops.np.getitem(x, 0) for x in xs])
    if length > 1:
        check_carry("associative_scan: combine", first, results_without_data(combine, (*first, *first, *args)))
    return tuple([rules.without_data(x) for x in xs])


@ASSOCIATIVE_SCAN.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool) -> Arrays:
    """Run the scan over batches of slices."""
    slices, fixed = [slice_like(x) for x in xs], rules.owned(args, interpreter)
    flags = rules.owned(xs, interpreter)
    if not all(flags):
        flags, _ = batched_carry(combine, (*slices, *slices, *args), flags, fixed, interpreter, times=2)
    step = rules.batched(combine, (*flags, *flags, *fixed), interpreter, flags)
    values = rules.swapped_at(flags, rules.batches(xs, interpreter, flags))
    results = ASSOCIATIVE_SCAN(step, values, rules.below(args, interpreter), length, reverse)
    return rules.wrapped(rules.swapped_at(flags, results), interpreter, flags)


@ASSOCIATIVE_SCAN.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool) -> Arrays:
    """Combine values with their tangents by the function and its derivative, which is associative too."""
    n, n_args = len(xs), len(args)
    moves = [rules.is_differentiable(value) for value in xs]
    tangents = rules.tangents_or_zeros(xs, interpreter)
    arg_tangents = rules.tangents_of(args, interpreter)
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = rules.jvp_of(combine, (*moves, *moves, *arg_flags), interpreter)
    n_moving = sum(moves)

    def step(*values: Any) -> Arrays:
        left, left_t, right, right_t, arg, arg_t = split(values, n, n_moving, n, n_moving, n_args)
        results = function(*left, *right, *arg, *left_t, *right_t, *arg_t)
        return (*results[:n], *rules.chosen(results[n:], moves))

    results = ASSOCIATIVE_SCAN(step, (*rules.below(xs, interpreter), *rules.chosen(tangents, moves)),
                               (*rules.below(args, interpreter), *rules.chosen(arg_tangents, arg_flags)), length,
                               reverse)
    return rules.with_tangents(results[:n], rules.placed(results[n:], moves), interpreter)


@rules.recording_rule(ASSOCIATIVE_SCAN)
def run_and_record(
    interpreter: Interpreter | None, combine: Flat, xs: Arrays, args: Arrays, length: int, reverse: bool
) -> Arrays:
    """Make the call below and record it as one node, whose backward runs the steps again and goes back through them."""
    draws = rules.draws_of(combine)
    results = rules.wrapped(rules.first_run(draws, ASSOCIATIVE_SCAN, combine, rules.below(xs, interpreter),
                                            rules.below(args, interpreter), length, reverse), interpreter)
    flags = [rules.is_differentiable(result) for result in results]
    metas = [meta_of(result) for result in rules.chosen(results, flags)]

    def again(*values: Any) -> Arrays:
        return run(combine, values[:len(xs)], values[len(xs):], length, reverse)

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        cotangents = materialized(rules.chosen(grads, flags), metas)
        gradients: Arrays = rules.another_run(
            draws, rules.gradients_of(again, wanted, flags, "associative_scan"), *saved, *cotangents)
        return gradients

    rules.record(ASSOCIATIVE_SCAN, interpreter, (*xs, *args), results, (*xs, *args), pull)
    return results
