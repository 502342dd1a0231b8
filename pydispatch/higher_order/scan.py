"""`scan`: a loop over slices that carries values from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import Grad, Interpreter, Jvp, MetaArray, Vmap
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.values import meta_of
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    as_taken,
    batched_results,
    bound,
    check_function,
    lift,
    n_results,
    outline,
    results_without_data,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.steps import (
    Recording,
    check_carry,
    in_steps,
    run_at_once,
    slices,
    take_steps,
    take_steps_and_stack,
)
from pydispatch.higher_order.transformed import (
    axes_swapped,
    batched,
    batches,
    below,
    chosen,
    gradients_of,
    is_constant_and_unseen,
    is_differentiable,
    is_recorded_whole,
    jvp_of,
    owned,
    placed,
    record,
    register_common_rules,
    tangents_of,
    tangents_or_zeros,
    with_tangents,
    without_data,
    wrapped,
)
from pydispatch.ops import ops
from pydispatch.registry.backends import dtype_of
from pydispatch.tree import OPEN, TreeSpec, tree_flatten, tree_unflatten


def scan(
    combine: Callable[..., Any], init: Any, xs: Any = None, *, length: int | None = None, axis: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`(carry, ys)` of a loop: `carry, y = combine(carry, x)` for each slice `x` of `xs` along `axis`.

    `init`, `xs` and what `combine` returns are arrays, in pytrees too; numbers in `init` become arrays. The carry
    keeps its structure, shapes and dtypes; the `y` of all steps are stacked along axis 0. `reverse` starts with the
    last slice, and `ys` stay in the order of `xs`. Without `xs`, `length` says how many steps there are, and `x` is
    None. `combine` gets Tensors, may capture arrays, must not write to its arguments, and returns new arrays.
    Where something observes the loop, `combine` is called once more with arrays without data, to see what it captures
    and returns.

    Modes and transforms see one operator. The gradient keeps the residuals of every step, or, when observed, the carry
    of every step.
    """
    check_function("scan: combine", combine, "scan(lambda carry, x: (new_carry, y), init, xs)")
    carry, carry_spec = as_carry("scan", init, "without a carry use map: higher_order.map(f, xs)")
    init = tree_unflatten(carry, carry_spec)
    leaves, spec = tree_flatten(xs)
    leaves = [] if xs is None else slices_first("scan", leaves, axis)
    if not leaves and length is None:
        return init, []
    n_steps = length_of("scan", leaves, length)
    slices = [slice_like(x) for x in leaves]
    nesting = Nesting(TreeSpec(tuple, None, (carry_spec, OPEN)), "(init, y)",
                      "return (carry, y), the carry in the structure of init; (carry, None) when there is nothing to "
                      "stack")
    step = FlatFunction("scan: combine", combine, (init, tree_unflatten(slices, spec) if leaves else xs), nesting)
    results, captured = (
        _results_at_once(step, tuple(carry), tuple(leaves), n_steps, reverse)
        or _results_in_general(step, tuple(carry), tuple(leaves), slices, n_steps, reverse))
    nested: tuple[Any, Any] = nesting.nested(all_as_passed(results, carry, leaves, captured))
    return nested


def _results_at_once(
    step: FlatFunction, init: Arrays, xs: Arrays, length: int, reverse: bool
) -> tuple[Arrays, Arrays] | None:
    """The results, and what the function captures, where nothing observes the loop; None where something may."""
    if not is_constant_and_unseen(SCAN, run, (*init, *xs), step):
        return None
    return run_at_once(step, init, xs, (), in_steps(length, reverse))


def _results_in_general(
    step: FlatFunction, init: Arrays, xs: Arrays, slices: list[MetaArray], length: int, reverse: bool
) -> tuple[Arrays, Arrays]:
    """The results, and what the function captures, by the operator."""
    found = outline(step, (*init, *slices))
    if found.results is not None:
        check_carry("scan: combine", init, found.results[: len(init)])
    (function,), captured = lift([step], [found])
    return SCAN(function, init, xs, captured, length, reverse), captured


def as_carry(who: str, init: Any, without: str) -> tuple[list[Any], TreeSpec]:
    """The arrays in the initial values, made of what is a number, and how these are nested.

    DispatchTypeError for none, and for what is no array; `without` says what to do without a carry.
    """

    def as_array(leaf: Any) -> Any:
        if isinstance(leaf, (bool, int, float, complex)) and not _core.is_array(leaf):
            return ops.np.full((), leaf)
        if not _core.is_array(leaf):
            raise DispatchTypeError(f"{who}: init holds {_core.a_type(leaf)}, expected arrays\n"
                                    "leave it out: the function may capture it")
        return leaf

    leaves, spec = tree_flatten(init)
    if not leaves:
        raise DispatchTypeError(f"{who}: init holds no array, expected at least one\n"
                                f"{without}")
    return [as_array(leaf) for leaf in leaves], spec


def slices_first(who: str, leaves: Sequence[Any], axis: int) -> list[Any]:
    """The arrays to loop over, with the axis of the loop first."""
    for leaf in leaves:
        if not _core.is_array(leaf):
            raise DispatchTypeError(f"{who}: xs holds {_core.a_type(leaf)}, expected arrays\n"
                                    "leave it out: the function may capture it")
    return [leaf if axis == 0 and leaf.ndim else ops.np.moveaxis(leaf, normalize_axis_index(axis, leaf.ndim), 0)
            for leaf in leaves]


def slice_like(value: Any) -> MetaArray:
    """An array without data that is like a slice of an array along its first axis."""
    return MetaArray(tuple(value.shape)[1:], dtype_of(value))


def length_of(who: str, leaves: Sequence[Any], length: int | None = None) -> int:
    """The number of steps; DispatchTypeError where arrays differ in it, or there is none."""
    found = [leaf.shape[0] for leaf in leaves]
    if length is not None:
        found.append(length)
    if len(set(found)) > 1:
        raise DispatchTypeError(f"{who}: xs have the lengths {', '.join(map(str, found))} along the axis of the loop, "
                                "expected equal ones\npass as many slices of each")
    if found[0] < 1:
        raise DispatchTypeError(f"{who}: xs have length {found[0]} along the axis of the loop, expected at least 1\n"
                                "without a slice the results have no shape: skip the call")
    return int(found[0])


def _examples(
    combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> dict[int, Arrays]:
    return {0: (*init, *[ops.np.getitem(x, 0) for x in xs], *args)}


def _n_results(
    combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> int | None:
    if length is None and not xs[0].shape[0]:
        return len(init)
    return n_results(combine, (*init, *[slice_like(x) for x in xs], *args))


SCAN = HigherOrderOperator("scan", examples=_examples, n_results=_n_results)
register_common_rules(SCAN)


@SCAN.py_impl("CompositeExplicitAutograd")
def run(combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool) -> Arrays:
    """Step by step: (*carry, *ys); the carry alone where no length is given and there is no slice."""
    n_steps = int(xs[0].shape[0]) if length is None else length_of("scan", xs, length)
    step = bound(combine, args)
    order = in_steps(n_steps, reverse)
    return take_steps_and_stack(step, as_taken(step, init), slices(as_taken(step, xs), order), order)


@SCAN.py_impl("Meta")
def run_without_data(
    combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> Arrays:
    """One step, for the shapes and dtypes."""
    n = len(init)
    results = results_without_data(combine, (*init, *[ops.np.getitem(x, 0) for x in xs], *args))
    check_carry("scan: combine", init, results[:n])
    n_steps = int(xs[0].shape[0]) if length is None else length
    return (*map(without_data, results[:n]), *[without_data(result, n_steps) for result in results[n:]])


@SCAN.py_impl(Vmap)
def run_on_batches(
    interpreter: Vmap, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> Arrays:
    """The loop over batches: what differs between examples in the carry after some step does so from the start."""
    n = len(init)
    fixed = (*owned(xs, interpreter), *owned(args, interpreter))
    examples = (*init, *[slice_like(x) for x in xs], *args)
    flags, result_flags = batched_carry(combine, examples, owned(init, interpreter), fixed, interpreter)
    y_flags = result_flags[n:]
    step = batched(combine, (*flags, *fixed), interpreter, None if not result_flags else (*flags, *y_flags))
    values = [axes_swapped(_core.array_of(x)) if _core.is_owned_by(x, interpreter) else x for x in xs]
    results = SCAN(step, batches(init, interpreter, flags), tuple(values), below(args, interpreter), length, reverse)
    y_flags = y_flags[: len(results) - n] if result_flags else [True] * (len(results) - n)
    ys = [axes_swapped(y) if flag else y for y, flag in zip(results[n:], y_flags, strict=True)]
    return wrapped((*results[:n], *ys), interpreter, (*flags, *y_flags))


def batched_carry(
    function: Flat, examples: Arrays, carry: Sequence[bool], fixed: Sequence[bool], interpreter: Vmap, times: int = 1
) -> tuple[list[bool], list[bool]]:
    """Which parts of a carry differ between examples, in any step, and which results; all if unknown.

    A fixpoint: a part that comes out of a step as a batch goes into the next one as such. The function gets the carry,
    so many `times`, and what is fixed.
    """
    flags = list(carry)
    while True:
        found = batched_results(function, examples, (*flags * times, *fixed), interpreter)
        if found is None:
            return [True] * len(flags), []
        joined = [old or new for old, new in zip(flags, found, strict=False)]
        if joined == flags or all(found):       # more batches would not change a thing
            return joined, found
        flags = joined


@SCAN.py_impl(Jvp)
def run_with_tangents(
    interpreter: Jvp, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool
) -> Arrays:
    """One loop that carries values and tangents."""
    n, n_xs = len(init), len(xs)
    moves = [is_differentiable(value) for value in init]
    init_tangents = tangents_or_zeros(init, interpreter)
    x_tangents, arg_tangents = tangents_of(xs, interpreter), tangents_of(args, interpreter)
    x_flags = [tangent is not None for tangent in x_tangents]
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = jvp_of(combine, (*moves, *x_flags, *arg_flags), interpreter)
    counts = (n, sum(moves), n_xs, sum(x_flags), len(args))

    def step(*values: Any) -> Arrays:
        carry, carry_t, x, x_t, arg, arg_t = split(values, *counts)
        results = function(*carry, *x, *arg, *carry_t, *x_t, *arg_t)
        outputs, tangents = results[: len(results) // 2], results[len(results) // 2:]
        return (*outputs[:n], *chosen(tangents[:n], moves), *outputs[n:], *tangents[n:])

    results = SCAN(
        step, (*below(init, interpreter), *chosen(init_tangents, moves)),
        (*below(xs, interpreter), *chosen(x_tangents, x_flags)),
        (*below(args, interpreter), *chosen(arg_tangents, arg_flags)), length, reverse)
    carry, carry_t, rest = split(results, n, sum(moves))
    m = len(rest) // 2
    return with_tangents((*carry, *rest[:m]), (*placed(carry_t, moves), *rest[m:]), interpreter)


def split(values: Sequence[Any], *counts: int) -> list[Arrays]:
    """The values in groups of so many, and what is left."""
    groups, start = [], 0
    for count in counts:
        groups.append(tuple(values[start: start + count]))
        start += count
    return [*groups, tuple(values[start:])]


@SCAN.py_impl(Grad)
def run_and_record(
    interpreter: Interpreter | None, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None,
    reverse: bool,
) -> Arrays:
    """The loop below, as one node; its backward is a scan in the other direction.

    The carry that each step starts with is stacked as well: it is what backward starts from.
    """
    if length is not None and is_recorded_whole(SCAN, run, interpreter, (combine,), (*init, *xs, *args)):
        return _recorded(interpreter, combine, init, xs, args, length, reverse)
    n = len(init)
    step = with_start(combine, n)

    results = SCAN(step, below(init, interpreter), below(xs, interpreter), below(args, interpreter), length, reverse)
    if len(results) == n:               # no step, so nothing was stacked
        results = (*results, *[ops.np.zeros_like(value, shape=(0, *value.shape)) for value in results])
    results = wrapped(results, interpreter)
    starts, n_xs = results[len(results) - n:], len(xs)
    moves = [is_differentiable(value) for value in init]
    metas = [meta_of(result) for result in results[:n]]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        starts, xs, args = split(saved, n, n_xs)
        ends = materialized(grads[:n], metas, like=grads)
        return gradients(step, starts, xs, args, wanted, ends, grads[n:], moves, length, not reverse)

    record(SCAN, interpreter, (*init, *xs, *args), results, (*starts, *xs, *args), pull)
    return results[: len(results) - n]


def with_start(combine: Flat, n: int) -> Flat:
    """The function of a step, which also returns the carry that it starts with."""
    return lambda *values: (*combine(*values), *values[:n])


def _recorded(
    interpreter: Interpreter | None, combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int, reverse: bool
) -> Arrays:
    """The loop as one node that runs the recording of all steps backward; another loop when observed."""
    n, n_xs = len(init), len(xs)
    recording = Recording(interpreter, init, xs, args, in_steps(length, reverse))
    results = wrapped(recording.run(take_steps, bound(combine, args), recording.init, recording.slices()), interpreter)
    moves = [is_differentiable(value) for value in init]
    metas = [meta_of(result) for result in results[:n]]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        init, xs, args = split(saved, n, n_xs)
        step = with_start(combine, n)
        again = SCAN(step, init, xs, args, length, reverse)
        ends = materialized(grads[:n], metas, like=grads)
        return gradients(step, again[len(again) - n:], xs, args, wanted, ends, (*grads[n:], *[None] * n), moves, length,
                         not reverse)

    record(SCAN, interpreter, (*init, *xs, *args), results, (*init, *xs, *args), pull, recording)
    return results


def gradients(
    step: Flat, starts: Arrays, xs: Arrays, args: Arrays, wanted: Sequence[bool], ends: Arrays, rows: Sequence[Any],
    moves: Sequence[bool], length: int | None, reverse: bool,
) -> Arrays:
    """The gradients of what is wanted of init, xs and args; those of args are summed up over the steps.

    `ends` are the gradients of the last carry, `rows` those of what else `step` returns, stacked; None for zeros.
    """
    n, n_xs = len(starts), len(xs)
    wants_x, wants_arg = wanted[n: n + n_xs], wanted[n + n_xs:]
    pull = gradients_of(step, (*moves, *wants_x, *wants_arg), (*moves, *[row is not None for row in rows]), "scan")
    moving = chosen(ends, moves)
    given = tuple([row for row in rows if row is not None])
    totals = tuple([ops.np.zeros_like(arg) for arg in chosen(args, wants_arg)])
    counts = (len(moving), len(totals), n, n_xs, len(given))

    def back(*values: Any) -> Arrays:
        carry, sums, start, x, row, arg = split(values, *counts)
        new, of_x, of_arg = split(pull(*start, *x, *arg, *carry, *row), len(carry), sum(wants_x))
        return (*new, *[total + part for total, part in zip(sums, of_arg, strict=True)], *of_x)

    found = SCAN(back, (*moving, *totals), (*starts, *xs, *given), args, length, reverse)
    of_init, of_args, of_xs = split(found, len(moving), len(totals))
    if not of_xs:                       # no step
        of_xs = tuple([ops.np.zeros_like(x) for x in chosen(xs, wants_x)])
    return (*chosen(placed(of_init, moves), wanted[:n]), *of_xs, *of_args)


@SCAN.py_impl("Autograd")
def run_on_tape(combine: Flat, init: Arrays, xs: Arrays, args: Arrays, length: int | None, reverse: bool) -> Arrays:
    """`run_and_record` on the tape."""
    return run_and_record(None, combine, init, xs, args, length, reverse)
