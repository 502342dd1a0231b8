"""`map`: a function of slices, for each of them in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Grad, Interpreter, Jvp, Vmap
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
from pydispatch.higher_order.scan import gradients, length_of, slice_like, slices_first
from pydispatch.higher_order.steps import Recording, in_steps, run_at_once, slices, take_steps, take_steps_and_stack
from pydispatch.higher_order.transformed import (
    axes_swapped,
    batched,
    below,
    chosen,
    is_constant_and_unseen,
    is_recorded_whole,
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
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """The results of `f(x, *args)` for each slice `x` of `xs` along axis 0, stacked along axis 0.

    `xs` and what `f` returns are arrays, in pytrees too; there is at least one slice. `f` gets Tensors, may capture
    arrays, and must not write to its arguments. Where something observes the loop, `f` is called once more with arrays
    without data, to see what it captures and returns. Modes and transforms see one operator. If `f` can take a whole
    batch, `func.vmap` is faster.
    """
    check_function("map: f", f, "map(lambda x: ..., xs)")
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise DispatchTypeError("map: xs holds no array, expected at least one\npass the arrays to loop over")
    leaves = slices_first("map", leaves, 0)
    n_steps = length_of("map", leaves)
    slices = [slice_like(x) for x in leaves]
    nesting = Nesting(remedy="return the same structure for every slice")
    function = FlatFunction("map: f", f, (tree_unflatten(slices, spec), *args), nesting, keeps_inputs=True)
    arrays = [leaf for leaf in tree_leaves(args) if _core.is_array(leaf)]
    found = None
    if is_constant_and_unseen(MAP, run, (*leaves, *arrays), function):
        found = run_at_once(function, (), tuple(leaves), tuple(arrays), in_steps(n_steps))
    if found is None:
        (flat,), captured = lift([function], [outline(function, (*slices, *arrays))])
        found = MAP(flat, tuple(leaves), (*arrays, *captured), n_steps), captured
    results, captured = found
    return nesting.nested(all_as_passed(results, leaves, arrays, captured))


def _examples(f: Flat, xs: Arrays, args: Arrays, length: int) -> dict[int, Arrays]:
    return {0: (*[ops.np.getitem(x, 0) for x in xs], *args)}


def _n_results(f: Flat, xs: Arrays, args: Arrays, length: int) -> int | None:
    return n_results(f, (*[slice_like(x) for x in xs], *args))


MAP = HigherOrderOperator("map", examples=_examples, n_results=_n_results)
register_common_rules(MAP)


@MAP.py_impl("CompositeExplicitAutograd")
def run(f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """Slice by slice."""
    step = bound(f, args)
    order = in_steps(length_of("map", xs, length))
    return take_steps_and_stack(step, (), slices(as_taken(step, xs), order), order)


@MAP.py_impl("Meta")
def run_without_data(f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """One slice, for the shapes and dtypes."""
    results = results_without_data(f, (*[ops.np.getitem(x, 0) for x in xs], *args))
    return tuple([without_data(result, length) for result in results])


@MAP.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """The loop over batches of slices."""
    flags = (*owned(xs, interpreter), *owned(args, interpreter))
    found = batched_results(f, (*[slice_like(x) for x in xs], *args), flags, interpreter)
    values = [axes_swapped(_core.array_of(x)) if _core.is_owned_by(x, interpreter) else x for x in xs]
    results = MAP(batched(f, flags, interpreter, found), tuple(values), below(args, interpreter), length)
    found = [True] * len(results) if found is None else found
    return wrapped([axes_swapped(result) if flag else result for result, flag in zip(results, found, strict=True)],
                   interpreter, found)


@MAP.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """One loop over slices of values and of tangents."""
    x_tangents, arg_tangents = tangents_of(xs, interpreter), tangents_of(args, interpreter)
    x_flags = [tangent is not None for tangent in x_tangents]
    arg_flags = [tangent is not None for tangent in arg_tangents]
    function = jvp_of(f, (*x_flags, *arg_flags), interpreter)
    n, n_moving, n_args = len(xs), sum(x_flags), len(args)

    def step(*values: Any) -> Arrays:
        x, x_t = values[:n], values[n: n + n_moving]
        arg, arg_t = values[n + n_moving:][:n_args], values[n + n_moving:][n_args:]
        return function(*x, *arg, *x_t, *arg_t)

    results = MAP(step, (*below(xs, interpreter), *chosen(x_tangents, x_flags)),
                  (*below(args, interpreter), *chosen(arg_tangents, arg_flags)), length)
    half = len(results) // 2
    return with_tangents(results[:half], results[half:], interpreter)


@MAP.py_impl(Grad)
def run_and_record(interpreter: Interpreter | None, f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """The loop below, as one node; its backward is a scan that adds up the gradients of `args`."""
    recording = None
    if is_recorded_whole(MAP, run, interpreter, (f,), (*xs, *args)):
        recording = Recording(interpreter, (), xs, args, in_steps(length))
        results = wrapped(recording.run(take_steps, bound(f, args), (), recording.slices()), interpreter)
    else:
        results = wrapped(MAP(f, below(xs, interpreter), below(args, interpreter), length), interpreter)

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        return gradients(f, (), saved[:len(xs)], saved[len(xs):], wanted, (), grads, (), length, False)

    record(MAP, interpreter, (*xs, *args), results, (*xs, *args), pull, recording)
    return results


@MAP.py_impl("Autograd")
def run_on_tape(f: Flat, xs: Arrays, args: Arrays, length: int) -> Arrays:
    """`run_and_record` on the tape."""
    return run_and_record(None, f, xs, args, length)
