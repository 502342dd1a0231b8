"""`scan`: a loop over slices that carries values from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import Interpreter, Jvp, MetaArray, Tensor, Vmap
from pydispatch._registry.backends import dtype_of
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.randomness import Draws, StepDraws
from pydispatch.autograd.values import meta_of
from pydispatch.exceptions import DataDependentError, DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import (
    AbstractResult,
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    abstract_result,
    as_scalars,
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
from pydispatch.higher_order.steps import (
    Recording,
    check_carry,
    in_steps,
    run_at_once,
    run_steps,
    run_steps_and_stack,
    slices,
)
from pydispatch.ops import ops
from pydispatch.tree import OPEN, TreeSpec, tree_flatten, tree_unflatten


def scan(
    combine: Callable[..., Any], init: Any, xs: Any = None, *, length: int | None = None, axis: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run a loop over slices that carries values from step to step: `carry, y = combine(carry, x)` for each slice `x`.

    Modes and transforms see one operator. The gradient keeps the residuals of every step, or if observed, the carry of
    every step.

    Parameters
    ----------
    combine : callable
        The function of a step. It receives Tensors, may capture arrays, must not write to its arguments, and returns
        new arrays, possibly in pytrees. If something observes the loop, it is called once more with arrays without
        data, to find out what it captures and returns.
    init : array, number or pytree
        The first carry. Numbers become scalars. The carry keeps its structure, shapes and dtypes.
    xs : array or pytree of arrays, optional
        The arrays to loop over. Without them, `x` is None.
    length : int, optional
        The number of steps. It is required without `xs`.
    axis : int, optional
        The axis of `xs` to loop along.
    reverse : bool, optional
        With True, start with the last slice. `ys` stay in the order of `xs`.

    Returns
    -------
    carry : array or pytree of arrays
        The last carry.
    ys : array or pytree of arrays
        The `y` of all steps, stacked along axis 0.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import higher_order
    >>> higher_order.scan(lambda carry, x: (carry + x, carry * x), 0.0, numpy.array([1.0, 2.0, 3.0]))
    (np.float64(6.0), array([0., 2., 9.]))
    """
    check_function("scan: combine", combine, "scan(lambda carry, x: (new_carry, y), init, xs)")
    carry, init, carry_spec = as_carry("scan", init)
    leaves, spec = tree_flatten(xs)
    leaves = [] if xs is None else slices_first("scan", leaves, axis)
    if not leaves and length is None:
        return init, []
    n_steps = length_of("scan", leaves, length)
    slices = [slice_like(x) for x in leaves]
    nesting = Nesting(TreeSpec(tuple, None, (carry_spec, OPEN)), "(init, y)",
                      "return (carry, y) with a carry in the structure of init, or (carry, None) if there is nothing "
                      "to stack")
    step = FlatFunction("scan: combine", combine, (init, tree_unflatten(slices, spec) if leaves else xs), nesting)
    results, captured = (
        _results_at_once(step, tuple(carry), tuple(leaves), n_steps, reverse)
        or _results_in_general(step, tuple(carry), tuple(leaves), slices, n_steps, reverse))
    nested: tuple[Any, Any] = nesting.nested(all_as_passed(results, carry, leaves, captured))
    return nested


def _results_at_once(
    step: FlatFunction, init: Arrays, xs: Arrays, length: int, reverse: bool
) -> tuple[Arrays, Arrays] | None:
    """Return the results and captured Tensors if nothing observes the loop, or None if something may."""
    if not length or not rules.is_constant_and_unseen(SCAN, run, (*init, *xs), step):
        return None
    return run_at_once(step, init, xs, (), in_steps(length, reverse))


def _results_in_general(
    step: FlatFunction, init: Arrays, xs: Arrays, slices: list[Tensor], length: int, reverse: bool
) -> tuple[Arrays, Arrays]:
    """Return the results and captured Tensors, computed by the operator."""
    found = abstract_result(step, (*init, *slices))
    last = None if found.results is None else found.results[: len(init)]
    if last is not None:
        check_carry("scan: combine", init, last)
    if length == 0:
        unchanged = [ops.np.getitem(value, ()) if last is not None and _core.is_scalar(last[i]) else ops.np.copy(value)
                     for i, value in enumerate(init)]
        return (*unchanged, *without_slices("scan: combine", found, len(init))), ()
    (function,), captured = lift([step], [found])
    state = "make it a part of init: scan(combine, (init, value), ...)" if length > 1 else ""
    with first_run_of(step, inputs=(*init, *xs, *captured), state=state, n_steps=length):
        return as_scalars(SCAN(function, init, xs, captured, length, reverse), last), captured


def without_slices(who: str, result: AbstractResult, start: int) -> list[Any]:
    """Return the stacked results of zero steps: those from `start` on, with an empty first axis."""
    if result.results is None:
        raise DataDependentError(f"{who} needs data to find the shapes of its results, but there is no slice to run it "
                                 "on\nskip the call")
    return [ops.np.zeros((0, *each.shape), dtype=dtype_of(each)) for each in result.results[start:]]


def as_carry(who: str, init: Any) -> tuple[list[Any], Any, TreeSpec]:
    """Return the arrays in the initial values, the values with scalars for numbers, and their nesting.

    Raise DispatchTypeError for any other leaf.
    """

    def as_array(leaf: Any) -> Any:
        if isinstance(leaf, (bool, int, float, complex)) and not _core.is_array(leaf):
            return ops.np.full((), leaf)
        if not _core.is_array(leaf):
            raise DispatchTypeError(f"{who}: init contains {_core.a_type(leaf)}, expected arrays\n"
                                    "leave it out: the function can capture it")
        return leaf

    leaves, spec = tree_flatten(init)
    arrays = [as_array(leaf) for leaf in leaves]
    values = [leaf if _core.is_array(leaf) else _core.to_scalar(array)
              for leaf, array in zip(leaves, arrays, strict=True)]
    return arrays, tree_unflatten(values, spec), spec


def slices_first(who: str, leaves: Sequence[Any], axis: int) -> list[Any]:
    """Return the arrays to loop over, with the axis of the loop first."""
    for leaf in leaves:
        if not _core.is_array(leaf):
            raise DispatchTypeError(f"{who}: xs contains {_core.a_type(leaf)}, expected arrays\n"
                                    "leave it out: the function can capture it")
    return [leaf if axis == 0 and leaf.ndim else ops.np.moveaxis(leaf, normalize_axis_index(axis, leaf.ndim), 0)
            for leaf in leaves]


def slice_like(value: Any) -> Tensor:
    """Return an array without data, or a scalar, that is like a slice of an array along its first axis."""
    slice_: Tensor = _core.to_scalar(Tensor(MetaArray(tuple(value.shape)[1:], dtype_of(value))))
    return slice_


def first_slice(x: Any) -> Any:
    """Return a slice of an array along its first axis, for its shape and dtype, with any contents if there is none."""
    return ops.np.getitem(x, 0) if x.shape[0] else ops.np.empty_like(x, shape=tuple(x.shape)[1:])


def length_of(who: str, leaves: Sequence[Any], length: int | None = None) -> int:
    """Return the number of steps. Raise DispatchTypeError if it is negative or arrays differ in it."""
    found = [leaf.shape[0] for leaf in leaves]
    if length is not None:
        found.append(length)
    if len(set(found)) > 1:
        raise DispatchTypeError(f"{who}: xs have lengths {', '.join(map(str, found))} along the loop's axis, expected "
                                "equal lengths\npass the same number of slices of each array")
    if found[0] < 0:
        raise DispatchTypeError(f"{who}: length is {found[0]}, expected a number of steps\npass 0 for no steps")
    return int(found[0])


def _examples(
    combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> dict[int, Arrays]:
    return {0: (*init, *map(first_slice, xs), *args)}


def _n_results(
    combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> int | None:
    if length is None and not xs[0].shape[0]:
        return len(init)
    return n_results(combine, (*init, *[slice_like(x) for x in xs], *args))


SCAN = HigherOrderOperator("scan", examples=_examples, n_results=_n_results, captures=3)
rules.register_common_rules(SCAN)


@SCAN.py_impl("CompositeExplicitAutograd")
def run(combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool) -> Arrays:
    """Run step by step: (*carry, *ys). Return only the carry if no length is given and there is no slice."""
    n_steps = int(xs[0].shape[0]) if length is None else length_of("scan", xs, length)
    step = bound(combine, args)
    order = in_steps(n_steps, reverse)
    return run_steps_and_stack(step, as_taken(step, init), slices(as_taken(step, xs), order), order)


@SCAN.py_impl("Meta")
def run_without_data(
    combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> Arrays:
    """Take one step without data, for the shapes and dtypes."""
    n = len(init)
    results = results_without_data(combine, (*init, *map(first_slice, xs), *args))
    check_carry("scan: combine", init, results[:n])
    n_steps = int(xs[0].shape[0]) if length is None else length
    return (*map(rules.without_data, results[:n]), *[rules.without_data(result, n_steps) for result in results[n:]])


@SCAN.py_impl(Vmap)
def run_on_batches(
    interpreter: Vmap, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> Arrays:
    """Run the loop over batches. Parts of the carry that differ between examples at any step are batches."""
    n = len(init)
    fixed = (*rules.owned(xs, interpreter), *rules.owned(args, interpreter))
    examples = (*init, *[slice_like(x) for x in xs], *args)
    flags, result_flags = batched_carry(combine, examples, rules.owned(init, interpreter), fixed, interpreter)
    y_flags = result_flags[n:]
    step = rules.batched(combine, (*flags, *fixed), interpreter, None if not result_flags else (*flags, *y_flags))
    values = [rules.axes_swapped(_core.array_of(x)) if _core.is_owned_by(x, interpreter) else x for x in xs]
    results = SCAN(step, rules.batches(init, interpreter, flags), tuple(values), rules.below(args, interpreter), length,
                   reverse)
    y_flags = y_flags[: len(results) - n] if result_flags else [True] * (len(results) - n)
    return rules.wrapped((*results[:n], *rules.swapped_at(y_flags, results[n:])), interpreter, (*flags, *y_flags))


def batched_carry(
    function: Flat, examples: Arrays, carry: Sequence[bool], fixed: Sequence[bool], interpreter: Vmap, times: int = 1
) -> tuple[list[bool], list[bool]]:
    """Return which parts of a carry differ between examples in any step, and which results do, or all if unknown.

    This computes a fixpoint. If a step returns a part as a batch, the next step receives it as a batch. The function
    receives the carry, repeated `times` times, and the fixed arguments.
    """
    flags = list(carry)
    while True:
        found = batched_results(function, examples, (*flags * times, *fixed), interpreter)
        if found is None:
            return [True] * len(flags), []
        joined = [old or new for old, new in zip(flags, found, strict=False)]
        if joined == flags or all(found):       # more batches would change nothing
            return joined, found
        flags = joined


@SCAN.py_impl(Jvp)
def run_with_tangents(
    interpreter: Jvp, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> Arrays:
    """Run one loop that carries values and tangents."""
    n, n_xs = len(init), len(xs)
    moves = [rules.is_differentiable(value) for value in init]
    init_tangents = rules.tangents_or_zeros(init, interpreter)
    x_tangents, arg_tangents = rules.tangents_of(xs, interpreter), rules.tangents_of(args, interpreter)
    x_flags = [tangent is not None for tangent in x_tangents]
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = rules.jvp_of(combine, (*moves, *x_flags, *arg_flags), interpreter)
    counts = (n, sum(moves), n_xs, sum(x_flags), len(args))

    def step_with_tangents(*values: Any) -> Arrays:
        carry, carry_t, x, x_t, arg, arg_t = split(values, *counts)
        results = function(*carry, *x, *arg, *carry_t, *x_t, *arg_t)
        outputs, tangents = results[: len(results) // 2], results[len(results) // 2:]
        return (*outputs[:n], *rules.chosen(tangents[:n], moves), *outputs[n:], *tangents[n:])

    step = derived(combine, ("jvp of step", tuple(moves), tuple(x_flags), tuple(arg_flags)), lambda: step_with_tangents)
    results = SCAN(
        step, (*rules.below(init, interpreter), *rules.chosen(init_tangents, moves)),
        (*rules.below(xs, interpreter), *rules.chosen(x_tangents, x_flags)),
        (*rules.below(args, interpreter), *rules.chosen(arg_tangents, arg_flags)), length, reverse)
    carry, carry_t, rest = split(results, n, sum(moves))
    m = len(rest) // 2
    return rules.with_tangents((*carry, *rest[:m]), (*rules.placed(carry_t, moves), *rest[m:]), interpreter)


def split(values: Sequence[Any], *counts: int) -> list[Arrays]:
    """Split the values into groups of these sizes, and a last group with the rest."""
    groups, start = [], 0
    for count in counts:
        groups.append(tuple(values[start: start + count]))
        start += count
    return [*groups, tuple(values[start:])]


@rules.recording_rule(SCAN)
def run_and_record(
    interpreter: Interpreter | None, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None,
    reverse: bool,
) -> Arrays:
    """Run the loop below and record it as one node, whose backward is a scan in the other direction.

    The carries with which the steps start are stacked too, because backward starts from them.
    """
    if length is not None and rules.is_recorded_whole(SCAN, run, interpreter, (combine,), (*init, *xs, *args)):
        init, xs, args = _core.guarded_value((init, xs, args))
        return _recorded(interpreter, combine, init, xs, args, length, reverse)
    n = len(init)
    step = with_start(combine, n)
    draws = rules.draws_of(combine)

    results = rules.first_run(draws, SCAN, step, rules.below(init, interpreter), rules.below(xs, interpreter),
                              rules.below(args, interpreter), length, reverse)
    if len(results) == n:               # no step, so nothing was stacked
        results = (*results, *[ops.np.zeros_like(value, shape=(0, *value.shape)) for value in results])
    results = rules.wrapped(results, interpreter)
    starts, n_xs = results[len(results) - n:], len(xs)
    moves = [rules.is_differentiable(value) for value in init]
    metas = [meta_of(result) for result in results[:n]]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        starts, xs, args = split(saved, n, n_xs)
        ends = materialized(grads[:n], metas, like=grads)
        return gradients(step, starts, xs, args, wanted, ends, grads[n:], moves, length, not reverse, draws)

    rules.record(SCAN, interpreter, (*init, *xs, *args), results, (*starts, *xs, *args), pull)
    return results[: len(results) - n]


def with_start(combine: Flat, n: int) -> Flat:
    """Return the function of a step that also returns the carry that it starts with."""
    return derived(combine, ("with start", n), lambda: lambda *values: (*combine(*values), *values[:n]))


def _recorded(
    interpreter: Interpreter | None, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int, reverse: bool
) -> Arrays:
    """Run the loop as one node that runs the recording of all steps backward, or another loop if observed."""
    n, n_xs, n_args = len(init), len(xs), len(args)
    recording = Recording(interpreter, init, xs, args, in_steps(length, reverse))
    draws = rules.draws_of(combine)
    results = rules.wrapped(rules.first_run(draws, recording.run, run_steps, bound(combine, args), recording.init,
                                            recording.slices()), interpreter)
    moves = [rules.is_differentiable(value) for value in init]
    metas = [meta_of(result) for result in results[:n]]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        init, xs, args, _ = split(saved, n, n_xs, n_args)
        step = with_start(combine, n)
        again = rules.another_run(draws, SCAN, step, init, xs, args, length, reverse)
        ends = materialized(grads[:n], metas, like=grads)
        return gradients(step, again[len(again) - n:], xs, args, wanted, ends, (*grads[n:], *[None] * n), moves, length,
                         not reverse, draws)

    rules.record(SCAN, interpreter, (*init, *xs, *args), results, (*init, *xs, *args, *results[:n]), pull, recording)
    return results


def gradients(
    step: Flat, starts: Arrays, xs: Arrays, args: Arrays, wanted: Sequence[bool], ends: Arrays, rows: Sequence[Any],
    moves: Sequence[bool], length: int | None, reverse: bool, draws: Draws | None = None,
) -> Arrays:
    """Return the wanted gradients of init, xs and args. Those of args are summed over the steps.

    `ends` are the gradients of the last carry. `rows` are the stacked gradients of the other results of `step`, None
    for zeros. `draws` are those of the whole loop. If there are any, another loop finds those of each step.
    """
    n, n_xs = len(starts), len(xs)
    if draws:
        of_steps = StepDraws(draws.batches)
        states = draws.replay(SCAN, of_steps.recording(step), (), (*starts, *xs), args, length, not reverse)
        step = of_steps.replaying(step, n + n_xs)
        wanted = (*wanted[:n + n_xs], False, *wanted[n + n_xs:])
        xs, n_xs = (*xs, *states), n_xs + 1
    wants_x, wants_arg = wanted[n: n + n_xs], wanted[n + n_xs:]
    given_rows = tuple([row is not None for row in rows])
    pull = rules.gradients_of(step, (*moves, *wants_x, *wants_arg), (*moves, *given_rows), "scan")
    moving = rules.chosen(ends, moves)
    given = tuple([row for row in rows if row is not None])
    totals = tuple([ops.np.zeros_like(arg) for arg in rules.chosen(args, wants_arg)])
    counts = (len(moving), len(totals), n, n_xs, len(given))

    def back(*values: Any) -> Arrays:
        carry, sums, start, x, row, arg = split(values, *counts)
        new, of_x, of_arg = split(pull(*start, *x, *arg, *carry, *row), len(carry), sum(wants_x))
        return (*new, *[total + part for total, part in zip(sums, of_arg, strict=True)], *of_x)

    key = "gradients of step", counts, tuple(moves), tuple(wants_x), tuple(wants_arg), given_rows
    found = SCAN(derived(step, key, lambda: back), (*moving, *totals), (*starts, *xs, *given), args, length, reverse)
    of_init, of_args, of_xs = split(found, len(moving), len(totals))
    if not of_xs:                       # no step
        of_xs = tuple([ops.np.zeros_like(x) for x in rules.chosen(xs, wants_x)])
    return (*rules.chosen(rules.placed(of_init, moves), wanted[:n]), *of_xs, *of_args)
