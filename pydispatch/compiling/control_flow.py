"""Higher-order operators in a plan: loops and branches over the steps of the functions that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch.compiling.builder import Builder
from pydispatch.compiling.values import ChooseStep, RepeatStep, Step, Storage, Value
from pydispatch.exceptions import CompilationError
from pydispatch.higher_order.associative_scan import ASSOCIATIVE_SCAN
from pydispatch.higher_order.associative_scan import run as run_associative_scan
from pydispatch.higher_order.cond import COND
from pydispatch.higher_order.map import MAP
from pydispatch.higher_order.scan import SCAN
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.tracing import Graph, make_fx

Values = Sequence[Value]
LowerGraph = Callable[[Builder, Graph, Sequence[Any]], Any]


def lower_scan(
    builder: Builder, lower: LowerGraph, combine: Graph, init: Values, xs: Values, args: Values, length: int | None,
    reverse: bool,
) -> tuple[Value, ...]:
    """The steps of the body, repeated."""
    n_steps = xs[0].shape[0] if length is None else length
    carries = [_Carry(builder, value) for value in init]
    moves = []
    slices = []
    for x in xs:
        part = x.template[0, ...] if n_steps else np.empty(x.shape[1:], x.dtype)
        entry = builder.entry(part, x.storage)
        stride = x.template.strides[0]
        moves.append((entry, x, (n_steps - 1) * stride if reverse else 0, -stride if reverse else stride))
        slices.append(Value(entry, part))
    with builder.body() as body:
        results = lower(builder, combine, (*[carry.now for carry in carries], *slices, *args))
        _hand_on(builder, body, results[: len(carries)], [carry.next for carry in carries])
        ys = []
        for row in results[len(carries):]:
            whole = builder.fresh((n_steps, *row.shape), row.dtype)
            ys.append(whole)
            if not n_steps:
                continue
            part = whole.template[0, ...]
            entry = builder.entry(part, whole.storage)
            stride = whole.template.strides[0]
            moves.append((entry, whole, (n_steps - 1) * stride if reverse else 0, -stride if reverse else stride))
            _hand_on(builder, body, [row], [Value(entry, part)])
    if n_steps:
        builder.steps.append(RepeatStep(body, n_steps, [carry.storages for carry in carries], moves, "scan"))
    return (*[carry.final(builder) for carry in carries], *ys)


def lower_map(
    builder: Builder, lower: LowerGraph, f: Graph, xs: Values, args: Values, length: int | None
) -> tuple[Value, ...]:
    """A scan without a carry."""
    return lower_scan(builder, lower, f, (), xs, args, length, False)


class _Carry:
    """A value that goes from one repetition to the next: one of two memories is read, the other written."""

    def __init__(self, builder: Builder, given: Any) -> None:
        init = builder.as_value(given)          # a number is a literal of the graph
        shape, dtype = init.shape, init.dtype
        first, second = builder.fresh(shape, dtype), builder.fresh(shape, dtype)
        builder.copy_into(first, init)
        behind = first.storage, second.storage
        self.now = Value(builder.entry(first.template, *behind), first.template)
        self.next = Value(builder.entry(second.template, *behind), second.template)
        self.storages = first.storage, second.storage, self.now.storage, self.next.storage

    def final(self, builder: Builder) -> Value:
        """Its value after the last repetition."""
        return builder.copied(self.now)


def _hand_on(builder: Builder, body: list[Step], values: Values, places: Values) -> None:
    """Have the body leave its values in these places: computed there if possible, else copied."""
    for value, place in zip(values, places, strict=True):
        storage = value.storage
        if value.is_whole and storage.kind == "arena" and storage.instead is None and _is_made_in(body, storage):
            storage.instead = place.storage
        else:
            builder.copy_into(place, value)


def _is_made_in(body: list[Step], storage: Storage) -> bool:
    """Is the memory first written in the body, by its own steps?"""
    for step in body:
        if isinstance(step, RepeatStep | ChooseStep):
            continue
        outputs = step.outputs if not hasattr(step, "operands") else step.operands[-1:]  # type: ignore[union-attr]
        if any(output.storage is storage for output in outputs):
            return True
    return False


def lower_while(
    builder: Builder, lower: LowerGraph, cond_fn: Graph, body_fn: Graph, init: Values, args: Values, stacks: bool
) -> tuple[Value, ...]:
    """The steps of the body, as long as those of the test leave True."""
    if stacks:
        raise CompilationError("compile: the gradient of while_loop needs the carry of every step, and the number of "
                               "steps depends on data\nuse scan, with a length")
    carries = [_Carry(builder, value) for value in init]
    now = [carry.now for carry in carries]
    with builder.body() as test:
        found, = lower(builder, cond_fn, (*now, *args))
        condition = _single_bool(builder, found)
    with builder.body() as body:
        results = lower(builder, body_fn, (*now, *args))
        _hand_on(builder, body, results, [carry.next for carry in carries])
    builder.steps.append(RepeatStep(
        body, None, [carry.storages for carry in carries], [], "while_loop", test, condition))
    return tuple([carry.final(builder) for carry in carries])


def _single_bool(builder: Builder, value: Value) -> Value:
    return builder.cast(value, np.dtype(bool))


def lower_cond(
    builder: Builder, lower: LowerGraph, pred: Any, true_fn: Graph, false_fn: Graph, operands: Values
) -> tuple[Value, ...]:
    """The steps of one of the branches."""
    if not isinstance(pred, Value) or pred.constant is not None:
        holds = bool(pred.constant if isinstance(pred, Value) else pred)
        chosen: tuple[Value, ...] = lower(builder, true_fn if holds else false_fn, operands)
        return chosen
    condition = _single_bool(builder, pred)
    branches: list[list[Step]] = []
    results: list[Value] = []
    for function in (true_fn, false_fn):
        with builder.body() as body:
            found = lower(builder, function, operands)
            if not branches:
                results = [builder.fresh(value.shape, value.dtype) for value in found]
            for value, result in zip(found, results, strict=True):
                builder.copy_into(result, builder.as_value(value))
        branches.append(body)
    builder.steps.append(ChooseStep(condition, (branches[0], branches[1]), "cond"))
    return tuple(results)


def lower_associative_scan(
    builder: Builder, lower: LowerGraph, combine: Graph, xs: Values, args: Values, length: int, reverse: bool
) -> tuple[Value, ...]:
    """The steps of the operators that it calls for this length."""
    def run(*values: Any) -> Any:
        return run_associative_scan(combine, values[:len(xs)], values[len(xs):], length, reverse)

    given = (*xs, *args)
    results: tuple[Value, ...] = lower(builder, graph_at_call(run, given), given)
    return results


def graph_at_call(function: Callable[..., Any], given: Values) -> Graph:
    """The graph of a function of such arrays; all of its calls are at the line that the builder has now."""
    graph = make_fx(function, tracing_mode="fake")(*[np.empty(value.shape, value.dtype) for value in given])
    for node in graph.nodes:
        node.meta.pop("site", None)
    return graph


BODIES: dict[Any, Callable[..., tuple[Value, ...]]] = {
    SCAN: lower_scan, MAP: lower_map, WHILE: lower_while, COND: lower_cond, ASSOCIATIVE_SCAN: lower_associative_scan,
}
"""How higher-order operators become steps: `lower(builder, lower_graph, *arguments)`."""
