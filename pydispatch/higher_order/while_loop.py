"""`while_loop`: a function applied to its own results, as long as a predicate of them holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Grad, Interpreter, Jvp, Vmap
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.values import as_tensor, meta_of
from pydispatch.exceptions import DataDependentError, DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    Step,
    as_taken,
    batched_results,
    bound,
    check_function,
    lift,
    outline,
    results_without_data,
    tried,
)
from pydispatch.higher_order.cond import bools, check_predicate, select
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.scan import SCAN, as_carry, batched_carry, split
from pydispatch.higher_order.steps import Recording, check_carry, stacked
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
from pydispatch.tree import TreeSpec, tree_unflatten


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """What the carry is at last: `carry = body_fn(*carry)` as long as `cond_fn(*carry)` holds, from `init` on.

    `init` is a tuple or list, nested as you like, of arrays and numbers, which become arrays; `body_fn` returns as
    many values, of the same structure, shapes and dtypes (one value alone where there is one). `cond_fn` returns an
    array of one element. After no step at all the result is a copy of `init`. Both functions get Tensors, may
    capture arrays, and must not write to their arguments. Where something observes the loop, they are called once more
    with arrays without data, to see what they capture and return.

    Modes and transforms see one operator. The gradient keeps the residuals of every step, or, when observed, the carry
    of every step. Under `vmap`, where the predicate differs between examples, the loop goes on while it holds for any:
    `body_fn` runs for finished examples too, and what it makes of them is dropped. What is not finite there may spoil
    gradients: a division by zero, say.
    """
    for name, function in (("cond_fn", cond_fn), ("body_fn", body_fn)):
        check_function(f"while_loop: {name}", function, "while_loop(lambda x: ..., lambda x: ..., (x,))")
    if not isinstance(init, (tuple, list)):
        raise DispatchTypeError(f"while_loop: init is {_core.a_type(init)}, expected a tuple or list\n"
                                "write while_loop(cond_fn, body_fn, (x,))")
    carry, spec = as_carry("while_loop", init, "carry what cond_fn looks at: while_loop(cond_fn, body_fn, (x,))")
    arguments = tuple(tree_unflatten(carry, spec))
    test = FlatFunction("while_loop: cond_fn", cond_fn, arguments, Nesting(), keeps_inputs=True)
    nesting = _CarryNesting(spec._replace(type=tuple, context=None))
    body = FlatFunction("while_loop: body_fn", body_fn, arguments, nesting, keeps_inputs=True)
    results, captured = (
        _results_at_once(test, body, tuple(carry)) or _results_in_general(test, body, tuple(carry)))
    return tree_unflatten(all_as_passed(results, carry, captured), spec)


def _results_at_once(test: FlatFunction, body: FlatFunction, init: Arrays) -> tuple[Arrays, Arrays] | None:
    """The results, and what the functions capture, where nothing observes the loop; None where something may.

    The first step shows it. A loop of no step takes the general way, too.
    """
    if not is_constant_and_unseen(WHILE, run, init, test, body):
        return None
    init = tuple(map(as_tensor, init))
    tested = tried(test, init)
    if tested is None or not _holds(tested[0]):
        return None
    stepped = tried(body, init)
    if stepped is None:
        return None
    captured = (*tested[1], *stepped[1])
    _check_carry(init, stepped[0])
    return take_steps_while(test.step, body.step, stepped[0], (*init, *captured), False)[0], captured


def _results_in_general(test: FlatFunction, body: FlatFunction, init: Arrays) -> tuple[Arrays, Arrays]:
    """The results, and what the functions capture, by the operator."""
    outlines = [outline(test, init), outline(body, init)]
    if outlines[0].results is not None:
        check_test(outlines[0].results)
    if outlines[1].results is not None:
        check_carry("while_loop: body_fn", init, outlines[1].results)
    (test_flat, body_flat), captured = lift([test, body], outlines)
    return WHILE(test_flat, body_flat, init, captured, False), captured


class _CarryNesting(Nesting):
    """That of a carry: a tuple, but a list will do, and one value alone where there is one."""

    def __init__(self, spec: TreeSpec) -> None:
        super().__init__(spec, "init", "return as many values as it gets, in the structure of init")

    def leaves_of(self, function: FlatFunction, result: Any) -> list[Any]:
        """What the function returned without pytrees, in the order of the carry."""
        if len(self.spec.children) == 1 and not isinstance(result, (tuple, list)):
            leaves = super().leaves_of(function, (result,))
            self.returned = self.spec.children[0]
            return leaves
        leaves = super().leaves_of(function, tuple(result) if isinstance(result, (tuple, list)) else result)
        self.returned = self.spec._replace(type=type(result))
        return leaves


def check_test(results: Arrays) -> None:
    """DispatchTypeError unless it returns one array of one element."""
    if len(results) != 1:
        raise DispatchTypeError(f"while_loop: cond_fn returns {len(results)} arrays, expected one of one element\n"
                                "return a comparison: x.sum() < limit")
    check_predicate("while_loop: what cond_fn returns", results[0])


def _examples(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> dict[int, Arrays]:
    return {0: (*init, *args), 1: (*init, *args)}


def _n_results(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> int:
    return len(init) * (1 + stacks) + stacks


WHILE = HigherOrderOperator("while_loop", examples=_examples, n_results=_n_results)
register_common_rules(WHILE)


@WHILE.py_impl("CompositeExplicitAutograd")
def run(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> Arrays:
    """Step by step. With `stacks`: (*carry, active, *stacked), what each step started with, and whether it counts."""
    test, step = bound(cond_fn, args), bound(body_fn, args)
    final, rows = take_steps_while(test, step, as_taken(test, as_taken(step, init)), args, stacks)
    if not stacks:
        return final
    active = ops.np.ones_like(init[0], shape=(len(rows),), dtype=bool)
    if not rows:
        return (*final, active, *[ops.np.zeros_like(value, shape=(0, *value.shape)) for value in init])
    return (*final, active, *stacked(rows))


def take_steps_while(
    test: Step, step: Step, init: Arrays, args: Arrays, keeps: bool
) -> tuple[Arrays, list[Arrays]]:
    """The last carry, in memory of its own, and if `keeps` what each step started with."""
    final, rows = _core.take_steps_while(test, step, init, _holds, _check_carry, keeps)
    return tuple([
        ops.np.copy(new) if any(_core.have_one_memory(new, given) for given in (*init, *args)) else new for new in final
    ]), rows


def _holds(results: Arrays) -> bool:
    if len(results) != 1 or results[0].size != 1:
        check_test(results)
    return bool(results[0])


def _check_carry(old: Arrays, new: Arrays) -> None:
    check_carry("while_loop: body_fn", old, new)


@WHILE.py_impl("Meta")
def run_without_data(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> Arrays:
    """One step, for the shapes and dtypes, which are those of `init`."""
    if stacks:
        raise DataDependentError("while_loop: the gradient of a loop needs the number of steps, which depends on "
                                 "data that this call lacks\n"
                                 "use scan, with a length")
    check_test(results_without_data(cond_fn, (*init, *args)))
    check_carry("while_loop: body_fn", init, results_without_data(body_fn, (*init, *args)))
    return tuple([without_data(value) for value in init])


@WHILE.py_impl(Vmap)
def run_on_batches(
    interpreter: Vmap, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Arrays:
    """The loop over batches, as long as it goes on for any example; finished examples stay as they are."""
    n = len(init)
    fixed = owned(args, interpreter)
    examples = (*init, *args)
    flags, known = batched_carry(body_fn, examples, owned(init, interpreter), fixed, interpreter)
    test_flags = batched_results(cond_fn, examples, (*flags, *fixed), interpreter)
    is_shared = test_flags is not None and bool(known) and not any(test_flags)
    if not is_shared:
        flags = [True] * n
    step = batched(body_fn, (*flags, *fixed), interpreter, flags)
    test = batched(cond_fn, (*flags, *fixed), interpreter, [not is_shared])
    values, arg_values = batches(init, interpreter, flags), below(args, interpreter)
    if is_shared:
        results = WHILE(test, step, values, arg_values, stacks)
        final, active, stacked = split(results, n, int(stacks))
    else:
        start = bools(results_without_data(test, (*values, *arg_values))[0])
        results = WHILE(any_active(n), where_active(test, step, n), (*values, start), arg_values, stacks)
        final, _, stacked, active = split(results, n, 1 + int(stacks), n if stacks else 0)
        active = tuple([axes_swapped(flags_of_steps) for flags_of_steps in active])
    stacked = tuple([axes_swapped(value) if flag else value for value, flag in zip(stacked, flags, strict=False)])
    return wrapped((*final, *active, *stacked), interpreter,
                   (*flags, *[not is_shared] * len(active), *flags[: len(stacked)]))


def any_active(n: int) -> Flat:
    """The predicate of a loop over a batch, of whose carry part number `n` says which examples go on."""
    return lambda *values: (ops.np.any(values[n]),)


def where_active(test: Flat, step: Flat, n: int) -> Flat:
    """The step of a loop over a batch: finished examples stay as they are, and who goes on comes last."""

    def masked(*values: Any) -> Arrays:
        carry, (active,), args = split(values, n, 1)
        new = [select(active, one, other)
               for one, other in zip(results_without_data(step, (*carry, *args)), carry, strict=True)]
        return (*new, bools(results_without_data(test, (*new, *args))[0]))

    return masked


@WHILE.py_impl(Jvp)
def run_with_tangents(
    interpreter: Jvp, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Arrays:
    """One loop that carries values and tangents; the predicate looks at the values."""
    n, n_args = len(init), len(args)
    moves = [is_differentiable(value) for value in init]
    tangents = tangents_or_zeros(init, interpreter)
    arg_tangents = tangents_of(args, interpreter)
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = jvp_of(body_fn, (*moves, *arg_flags), interpreter)
    n_moving = sum(moves)

    def step(*values: Any) -> Arrays:
        carry, carry_t, arg, arg_t = split(values, n, n_moving, n_args)
        results = function(*carry, *arg, *carry_t, *arg_t)
        return (*results[:n], *chosen(results[n:], moves))

    def test(*values: Any) -> Arrays:
        carry, _, arg, _ = split(values, n, n_moving, n_args)
        return cond_fn(*carry, *arg)

    results = WHILE(test, step, (*below(init, interpreter), *chosen(tangents, moves)),
                    (*below(args, interpreter), *chosen(arg_tangents, arg_flags)), stacks)
    final, final_t, active, stacked, stacked_t = split(results, n, n_moving, int(stacks), n if stacks else 0)
    return with_tangents((*final, *active, *stacked),
                         (*placed(final_t, moves), *[None] * len(active), *placed(stacked_t, moves[:len(stacked)])),
                         interpreter)


@WHILE.py_impl(Grad)
def run_and_record(
    interpreter: Interpreter | None, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Arrays:
    """The loop below, as one node; its backward is a scan from the last carry, which was stacked, to the first."""
    n = len(init)
    if not stacks and is_recorded_whole(WHILE, run, interpreter, (cond_fn, body_fn), (*init, *args)):
        return _recorded(interpreter, cond_fn, body_fn, init, args)
    results = wrapped(WHILE(cond_fn, body_fn, below(init, interpreter), below(args, interpreter), True), interpreter)
    metas = [meta_of(result) for result in results[:n]]
    moves = [is_differentiable(value) for value in init]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        (active,), starts, saved_args = split(saved, 1, n)
        ends, _, rows = split(grads, n, 1)
        ends = materialized(ends, metas, like=grads)
        if any(row is not None for row in rows):
            rows = tuple([ops.np.zeros_like(start) if row is None else row
                          for row, start in zip(rows, starts, strict=True)])
        else:
            rows = ()
        return gradients_of_loop(body_fn, active, starts, saved_args, wanted, chosen(ends, moves),
                                 chosen(rows, moves[: len(rows)]), moves)

    record(WHILE, interpreter, (*init, *args), results, (*results[n:], *args), pull)
    return results if stacks else results[:n]


def _recorded(interpreter: Interpreter | None, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays) -> Arrays:
    """The loop as one node that runs the recording of all steps backward; another loop when observed."""
    n = len(init)
    recording = Recording(interpreter, init, (), args, range(0))
    results = wrapped(recording.run(take_steps_while, bound(cond_fn, args), bound(body_fn, args), recording.init, args,
                                    False), interpreter)
    metas = [meta_of(result) for result in results]
    moves = [is_differentiable(value) for value in init]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        init, args = split(saved, n)
        _, (active,), starts = split(WHILE(cond_fn, body_fn, init, args, True), n, 1)
        ends = chosen(materialized(grads, metas), moves)
        return gradients_of_loop(body_fn, active, starts, args, wanted, ends, (), moves)

    record(WHILE, interpreter, (*init, *args), results, (*init, *args), pull, recording)
    return results


def gradients_of_loop(
    body: Flat, active: Any, starts: Arrays, args: Arrays, wanted: Sequence[bool], ends: Arrays, rows: Arrays,
    moves: Sequence[bool],
) -> Arrays:
    """The gradients of what is wanted of init and args.

    `ends` are the gradients of the last carry, `rows` those of the stacked ones, or nothing; steps that are not
    `active` left the carry as it was.
    """
    n = len(starts)
    wants_arg = wanted[n:]
    pull = gradients_of(body, (*moves, *wants_arg), moves, "while_loop")
    totals = tuple([ops.np.zeros_like(arg) for arg in chosen(args, wants_arg)])
    counts = (len(ends), len(totals), 1, n, len(rows))

    def back(*values: Any) -> Arrays:
        carry, sums, (is_active,), start, row, arg = split(values, *counts)
        new, of_arg = split(pull(*start, *arg, *carry), len(carry))
        of_start = [ops.np.where(is_active, one, other) for one, other in zip(new, carry, strict=True)]
        if row:
            of_start = [one + more for one, more in zip(of_start, row, strict=True)]
        return (*of_start, *[total + ops.np.where(is_active, part, ops.np.zeros_like(part))
                             for total, part in zip(sums, of_arg, strict=True)])

    found = SCAN(back, (*ends, *totals), (active, *starts, *rows), args, None, True)
    of_init, of_args = split(found, len(ends))
    return (*chosen(placed(of_init, moves), wanted[:n]), *of_args)


@WHILE.py_impl("Autograd")
def run_on_tape(cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool) -> Arrays:
    """`run_and_record` on the tape."""
    return run_and_record(None, cond_fn, body_fn, init, args, stacks)
