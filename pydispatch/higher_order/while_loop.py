"""`while_loop`: apply a function to its own results as long as a predicate of them holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Interpreter, Jvp, Vmap
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.randomness import Draws, StepDraws
from pydispatch.autograd.values import as_tensor, meta_of
from pydispatch.exceptions import DataDependentError, DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    Step,
    abstract_result,
    as_scalars,
    as_taken,
    batched_results,
    bound,
    check_function,
    derived,
    first_run_of,
    lift,
    results_without_data,
    run_speculatively,
)
from pydispatch.higher_order.cond import bools, check_predicate, for_chosen, select
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.scan import SCAN, as_carry, batched_carry, split
from pydispatch.higher_order.steps import Recording, check_carry, stacked
from pydispatch.ops import ops
from pydispatch.tree import TreeSpec, tree_unflatten


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """Run `carry = body_fn(*carry)` from `init` on, as long as `cond_fn(*carry)` holds.

    Modes and transforms see one operator. The gradient keeps the residuals of every step, or if observed, the carry of
    every step. Under `vmap`, if the predicate differs between examples, the loop continues while it holds for any.
    `body_fn` runs for the whole batch, and finished examples get the carry of a running one.

    Both functions receive Tensors, may capture arrays, and must not write to their arguments. If something observes the
    loop, they are called once more with arrays without data, to find out what they capture and return.

    Parameters
    ----------
    cond_fn : callable
        A function that returns an array of one element.
    body_fn : callable
        A function that returns as many values as `init` has, of the same structure, shapes and dtypes. It may return a
        single value by itself.
    init : tuple or list
        The first carry: arrays and numbers, nested as you like. Numbers become scalars.

    Returns
    -------
    tuple or list
        The last carry. After zero steps it is a copy of `init`.

    Examples
    --------
    >>> from pydispatch import higher_order
    >>> higher_order.while_loop(lambda x: x < 10, lambda x: x * 2, (1.0,))
    (np.float64(16.0),)
    """
    for name, function in (("cond_fn", cond_fn), ("body_fn", body_fn)):
        check_function(f"while_loop: {name}", function, "while_loop(lambda x: ..., lambda x: ..., (x,))")
    if not isinstance(init, (tuple, list)):
        raise DispatchTypeError(f"while_loop: init is {_core.a_type(init)}, expected a tuple or list\n"
                                "write while_loop(cond_fn, body_fn, (x,))")
    carry, values, spec = as_carry("while_loop", init)
    if not carry:               # nothing to compute, but the functions may draw numbers
        while _holds(FlatFunction("while_loop: cond_fn", cond_fn, tuple(init), Nesting())()):
            body_fn(*init)
        return init
    arguments = tuple(values)
    # the condition sees the last carry, which is returned as the body made it
    test = FlatFunction("while_loop: cond_fn", cond_fn, arguments, Nesting(), keeps_inputs=True, keeps_arrays=True)
    nesting = _CarryNesting(spec._replace(type=tuple, context=None))
    body = FlatFunction("while_loop: body_fn", body_fn, arguments, nesting, keeps_inputs=True)
    results, captured = (
        _results_at_once(test, body, tuple(carry)) or _results_in_general(test, body, tuple(carry)))
    return tree_unflatten(all_as_passed(results, carry, captured), spec)


def _results_at_once(test: FlatFunction, body: FlatFunction, init: Arrays) -> tuple[Arrays, Arrays] | None:
    """Return the results and captured Tensors if nothing observes the loop, or None if something may.

    The first step shows the captured Tensors. A loop of zero steps also takes the general path.
    """
    if not rules.is_constant_and_unseen(WHILE, run, init, test, body):
        return None
    init = tuple(map(as_tensor, init))
    tested = run_speculatively(test, init)
    stepped = run_speculatively(body, init) if tested is not None and _holds(tested[0]) else None
    if tested is None or stepped is None:
        assert test.surroundings is not None
        test.surroundings.restore()
        return None
    captured = (*tested[1], *stepped[1])
    _check_carry(init, stepped[0])
    return run_steps_while(test.step, body.step, stepped[0], (*init, *captured), False)[0], captured


def _results_in_general(test: FlatFunction, body: FlatFunction, init: Arrays) -> tuple[Arrays, Arrays]:
    """Return the results and captured Tensors, computed by the operator."""
    abstract = [abstract_result(test, init), abstract_result(body, init)]
    if abstract[0].results is not None:
        check_test(abstract[0].results)
    if abstract[1].results is not None:
        check_carry("while_loop: body_fn", init, abstract[1].results)
    (test_flat, body_flat), captured = lift([test, body], abstract)
    state = "make it a part of init: while_loop(cond_fn, body_fn, (*init, value))"
    with first_run_of(test, body, inputs=(*init, *captured), state=state):
        return as_scalars(WHILE(test_flat, body_flat, init, captured, False), abstract[1].results), captured


class _CarryNesting(Nesting):
    """The nesting of a carry: a tuple, but a list is accepted, and a single value by itself."""

    def __init__(self, spec: TreeSpec) -> None:
        super().__init__(spec, "init", "return a value for each argument, in the structure of init")

    def leaves_of(self, function: FlatFunction, result: Any) -> list[Any]:
        """Return the leaves of the function's result, in the order of the carry."""
        if len(self.spec.children) == 1 and not isinstance(result, (tuple, list)):
            leaves = super().leaves_of(function, (result,))
            self.returned = self.spec.children[0]
            return leaves
        leaves = super().leaves_of(function, tuple(result) if isinstance(result, (tuple, list)) else result)
        self.returned = self.spec._replace(type=type(result))
        return leaves


def check_test(results: Arrays) -> None:
    """Raise DispatchTypeError unless the predicate returns one array of one element."""
    if len(results) != 1:
        raise DispatchTypeError(f"while_loop: cond_fn returns {len(results)} arrays, expected one of size 1\n"
                                "return a comparison: x.sum() < limit")
    check_predicate("while_loop: the result of cond_fn", results[0])


def _examples(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> dict[int, Arrays]:
    return {0: (*init, *args), 1: (*init, *args)}


def _n_results(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> int:
    return len(init) * (1 + stacks) + stacks


WHILE = HigherOrderOperator("while_loop", examples=_examples, n_results=_n_results, captures=3)
rules.register_common_rules(WHILE)


@WHILE.py_impl("CompositeExplicitAutograd")
def run(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> Arrays:
    """Run step by step. With `stacks`, return (*carry, active, *stacked).

    `stacked` are the carries with which the steps started, and `active` shows whether a step counts.
    """
    test, step = bound(cond_fn, args), bound(body_fn, args)
    final, rows = run_steps_while(test, step, as_taken(test, as_taken(step, init)), args, stacks)
    if not stacks:
        return final
    active = ops.np.ones_like(init[0], shape=(len(rows),), dtype=bool)
    if not rows:
        return (*final, active, *[ops.np.zeros_like(value, shape=(0, *value.shape)) for value in init])
    return (*final, active, *stacked(rows))


def run_steps_while(
    test: Step, step: Step, init: Arrays, args: Arrays, keeps: bool
) -> tuple[Arrays, list[Arrays]]:
    """Return the last carry, in separate memory, and if `keeps`, the carries with which the steps started."""
    final, rows = _core.run_steps_while(test, step, init, _holds, _check_carry, keeps)
    return tuple([
        ops.np.copy(new) if not _core.is_scalar(new) and any(
            _core.have_one_memory(new, given) for given in (*init, *args)) else new
        for new in final]), rows


def _holds(results: Arrays) -> bool:
    if len(results) != 1 or results[0].size != 1:
        check_test(results)
    return bool(results[0])


def _check_carry(old: Arrays, new: Arrays) -> None:
    check_carry("while_loop: body_fn", old, new)


@WHILE.py_impl("Meta")
def run_without_data(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> Arrays:
    """Take one step without data, for the shapes and dtypes, which are those of `init`."""
    if stacks:
        raise DataDependentError("while_loop: the gradient of a loop needs the number of steps, which depends on "
                                 "data that this call does not have\n"
                                 "use scan with a length")
    check_test(results_without_data(cond_fn, (*init, *args)))
    check_carry("while_loop: body_fn", init, results_without_data(body_fn, (*init, *args)))
    return tuple([rules.without_data(value) for value in init])


@WHILE.py_impl(Vmap)
def run_on_batches(
    interpreter: Vmap, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Arrays:
    """Run the loop over batches until it ends for every example. Finished examples stay unchanged."""
    n = len(init)
    fixed = rules.owned(args, interpreter)
    examples = (*init, *args)
    flags, known = batched_carry(body_fn, examples, rules.owned(init, interpreter), fixed, interpreter)
    test_flags = batched_results(cond_fn, examples, (*flags, *fixed), interpreter)
    is_shared = test_flags is not None and bool(known) and not any(test_flags)
    if not is_shared:
        flags = [True] * n
    step = rules.batched(body_fn, (*flags, *fixed), interpreter, flags)
    test = rules.batched(cond_fn, (*flags, *fixed), interpreter, [not is_shared])
    values, arg_values = rules.batches(init, interpreter, flags), rules.below(args, interpreter)
    if is_shared:
        results = WHILE(test, step, values, arg_values, stacks)
        final, active, stacked = split(results, n, int(stacks))
    else:
        start = bools(results_without_data(test, (*values, *arg_values))[0])
        results = WHILE(any_active(n), where_active(test, step, n, fixed), (*values, start), arg_values, stacks)
        final, _, stacked, active = split(results, n, 1 + int(stacks), n if stacks else 0)
        active = tuple([rules.axes_swapped(flags_of_steps) for flags_of_steps in active])
    stacked = tuple([rules.axes_swapped(value) if flag else value for value, flag in zip(stacked, flags, strict=False)])
    return rules.wrapped((*final, *active, *stacked), interpreter,
                         (*flags, *[not is_shared] * len(active), *flags[: len(stacked)]))


def any_active(n: int) -> Flat:
    """Return the predicate of a loop over a batch, whose carry's part number `n` marks the examples that continue."""
    return lambda *values: (ops.np.any(values[n]),)


def where_active(test: Flat, step: Flat, n: int, fixed: Sequence[bool]) -> Flat:
    """Return the step of a loop over a batch. Finished examples stay unchanged. The last result marks the others.

    `fixed` marks the arguments that are batches. The step runs for all examples. Finished examples get the operands of
    one that continues.
    """

    def masked(*values: Any) -> Arrays:
        carry, (active,), args = split(values, n, 1)
        operands = for_chosen(active, (*carry, *args), (*(True,) * n, *fixed))
        new = [select(active, one, other)
               for one, other in zip(results_without_data(step, operands), carry, strict=True)]
        return (*new, bools(results_without_data(test, (*new, *args))[0]))

    return masked


@WHILE.py_impl(Jvp)
def run_with_tangents(
    interpreter: Jvp, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Arrays:
    """Run one loop that carries values and tangents. The predicate depends on the values only."""
    n, n_args = len(init), len(args)
    moves = [rules.is_differentiable(value) for value in init]
    tangents = rules.tangents_or_zeros(init, interpreter)
    arg_tangents = rules.tangents_of(args, interpreter)
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = rules.jvp_of(body_fn, (*moves, *arg_flags), interpreter)
    n_moving = sum(moves)

    def step_with_tangents(*values: Any) -> Arrays:
        carry, carry_t, arg, arg_t = split(values, n, n_moving, n_args)
        results = function(*carry, *arg, *carry_t, *arg_t)
        return (*results[:n], *rules.chosen(results[n:], moves))

    def test_of_values(*values: Any) -> Arrays:
        carry, _, arg, _ = split(values, n, n_moving, n_args)
        return cond_fn(*carry, *arg)

    key = "jvp of step", tuple(moves), tuple(arg_flags)
    step, test = derived(body_fn, key, lambda: step_with_tangents), derived(cond_fn, key, lambda: test_of_values)
    results = WHILE(test, step, (*rules.below(init, interpreter), *rules.chosen(tangents, moves)),
                    (*rules.below(args, interpreter), *rules.chosen(arg_tangents, arg_flags)), stacks)
    final, final_t, active, stacked, stacked_t = split(results, n, n_moving, int(stacks), n if stacks else 0)
    moved = (*rules.placed(final_t, moves), *[None] * len(active), *rules.placed(stacked_t, moves[:len(stacked)]))
    return rules.with_tangents((*final, *active, *stacked), moved, interpreter)


@rules.recording_rule(WHILE)
def run_and_record(
    interpreter: Interpreter | None, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Arrays:
    """Run the loop below and record it as one node.

    Its backward is a scan over the stacked carries, from the last to the first.
    """
    n = len(init)
    if not stacks and rules.is_recorded_whole(WHILE, run, interpreter, (cond_fn, body_fn), (*init, *args)):
        init, args = _core.guarded_value((init, args))
        return _recorded(interpreter, cond_fn, body_fn, init, args)
    draws = rules.draws_of(cond_fn, body_fn)
    results = rules.wrapped(rules.first_run(draws, WHILE, cond_fn, body_fn, rules.below(init, interpreter),
                                            rules.below(args, interpreter), True), interpreter)
    metas = [meta_of(result) for result in results[:n]]
    moves = [rules.is_differentiable(value) for value in init]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        (active,), starts, saved_args = split(saved, 1, n)
        ends, _, rows = split(grads, n, 1)
        ends = materialized(ends, metas, like=grads)
        if any(row is not None for row in rows):
            rows = tuple([ops.np.zeros_like(start) if row is None else row
                          for row, start in zip(rows, starts, strict=True)])
        else:
            rows = ()
        return gradients_of_loop(cond_fn, body_fn, active, starts, saved_args, wanted, rules.chosen(ends, moves),
                                 rules.chosen(rows, moves[: len(rows)]), moves, draws)

    rules.record(WHILE, interpreter, (*init, *args), results, (*results[n:], *args), pull)
    return results if stacks else results[:n]


def _recorded(interpreter: Interpreter | None, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays) -> Arrays:
    """Run the loop as one node that runs the recording of all steps backward, or another loop if observed."""
    n, n_args = len(init), len(args)
    recording = Recording(interpreter, init, (), args, range(0))
    draws = rules.draws_of(cond_fn, body_fn)
    results = rules.wrapped(rules.first_run(draws, recording.run, run_steps_while, bound(cond_fn, args),
                                            bound(body_fn, args), recording.init, args, False), interpreter)
    metas = [meta_of(result) for result in results]
    moves = [rules.is_differentiable(value) for value in init]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        init, args, _ = split(saved, n, n_args)
        _, (active,), starts = split(rules.another_run(draws, WHILE, cond_fn, body_fn, init, args, True), n, 1)
        ends = rules.chosen(materialized(grads, metas), moves)
        return gradients_of_loop(cond_fn, body_fn, active, starts, args, wanted, ends, (), moves, draws)

    rules.record(WHILE, interpreter, (*init, *args), results, (*init, *args, *results), pull, recording)
    return results


def gradients_of_loop(
    test: Flat, body: Flat, active: Any, starts: Arrays, args: Arrays, wanted: Sequence[bool], ends: Arrays,
    rows: Arrays, moves: Sequence[bool], draws: Draws | None,
) -> Arrays:
    """Return the wanted gradients of init and args.

    `ends` are the gradients of the last carry, `rows` those of the stacked ones, or nothing. Steps that are not
    `active` left the carry unchanged.
    """
    n = len(starts)
    wants_arg = wanted[n:]
    if not active.shape[0]:
        zeros = map(ops.np.zeros_like, rules.chosen(args, wants_arg))
        return (*rules.chosen(rules.placed(ends, moves), wanted[:n]), *zeros)
    states: Arrays = ()
    if draws:
        of_steps = StepDraws(draws.batches)
        of_body = of_steps.recording(body)

        def of_step(*values: Any) -> Arrays:
            test(*values)               # it draws before the body does
            return of_body(*values)

        states = draws.replay(SCAN, of_step, (), starts, args, None, False)
        body = of_steps.replaying(body, n)
    pull = rules.gradients_of(body, (*moves, *[False for _ in states], *wants_arg), moves, "while_loop")
    totals = tuple([ops.np.zeros_like(arg) for arg in rules.chosen(args, wants_arg)])
    counts = (len(ends), len(totals), 1, n + len(states), len(rows))

    def back(*values: Any) -> Arrays:
        carry, sums, (is_active,), start, row, arg = split(values, *counts)
        new, of_arg = split(pull(*start, *arg, *carry), len(carry))
        of_start = [ops.np.where(is_active, one, other) for one, other in zip(new, carry, strict=True)]
        if row:
            of_start = [one + more for one, more in zip(of_start, row, strict=True)]
        return (*of_start, *[total + ops.np.where(is_active, part, ops.np.zeros_like(part))
                             for total, part in zip(sums, of_arg, strict=True)])

    key = "gradients of step", counts, tuple(moves), tuple(wants_arg)
    step = derived(body, key, lambda: back)
    found = SCAN(step, (*ends, *totals), (active, *starts, *states, *rows), args, None, True)
    of_init, of_args = split(found, len(ends))
    return (*rules.chosen(rules.placed(of_init, moves), wanted[:n]), *of_args)
