"""Lowering of higher-order operators: loops and branches over the steps of the functions that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch.compiling.builder import Builder
from pydispatch.compiling.steps import CallStep, ChooseStep, LoopStep, Move, RepeatStep, Step
from pydispatch.compiling.values import Storage, Value
from pydispatch.exceptions import CompilationError
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
    """Add the steps of the body of a scan, repeated."""
    n_steps = xs[0].shape[0] if length is None else length
    carries = [_Carry(builder, value) for value in init]
    moves: list[Move] = []

    def slice_of(whole: Value) -> Value:
        part = whole.template[0, ...] if n_steps else np.empty(whole.shape[1:], whole.dtype)
        entry, stride = builder.entry(part, whole.storage), whole.template.strides[0]
        moves.append((entry, whole, (n_steps - 1) * stride if reverse else 0, -stride if reverse else stride))
        return Value(entry, part)

    slices = [slice_of(x) for x in xs]
    with builder.body() as body:
        results = lower(builder, combine, (*[carry.now for carry in carries], *slices, *args))
        _hand_on(builder, body, results[: len(carries)], [carry.next for carry in carries])
        ys = []
        for row in results[len(carries):]:
            whole = builder.fresh((n_steps, *row.shape), row.dtype)
            ys.append(whole)
            if n_steps:
                _hand_on(builder, body, [row], [slice_of(whole)])
    if n_steps:
        builder.steps.append(RepeatStep(body, n_steps, [carry.storages for carry in carries], moves, "scan"))
    return (*[carry.final(builder) for carry in carries], *ys)


def lower_map(
    builder: Builder, lower: LowerGraph, f: Graph, xs: Values, args: Values, length: int | None
) -> tuple[Value, ...]:
    """Add the steps of a map: a scan without a carry."""
    return lower_scan(builder, lower, f, (), xs, args, length, False)


class _Carry:
    """A value that goes from one repetition to the next. Two memories alternate: one is read, the other written."""

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
        """Return a copy of the value after the last repetition."""
        return builder.copied(self.now)


def _hand_on(builder: Builder, body: list[Step], values: Values, places: Values) -> None:
    """Make the body leave its values in these places: computed there if possible, else copied."""
    for value, place in zip(values, places, strict=True):
        storage = value.storage
        if value.is_whole and storage.kind == "arena" and storage.instead is None and _is_made_in(body, storage):
            storage.instead = place.storage
        else:
            builder.copy_into(place, value)


def _is_made_in(body: list[Step], storage: Storage) -> bool:
    """Return whether the body's own steps are the first to write to the memory."""
    for step in body:
        outputs = (step.operands[-1:] if isinstance(step, LoopStep) else
                   step.outputs if isinstance(step, CallStep) else ())
        if any(output.storage is storage for output in outputs):
            return True
    return False


def lower_while(
    builder: Builder, lower: LowerGraph, cond_fn: Graph, body_fn: Graph, init: Values, args: Values, stacks: bool
) -> tuple[Value, ...]:
    """Add the steps of a while loop: the body, repeated as long as the test leaves True."""
    if stacks:
        raise CompilationError("compile: the gradient of while_loop needs the carry of every step, and the number of "
                               "steps depends on data\nuse scan, with a length")
    carries = [_Carry(builder, value) for value in init]
    now = [carry.now for carry in carries]
    with builder.body() as test:
        found, = lower(builder, cond_fn, (*now, *args))
        condition = builder.cast(found, np.dtype(bool))
    with builder.body() as body:
        results = lower(builder, body_fn, (*now, *args))
        _hand_on(builder, body, results, [carry.next for carry in carries])
    builder.steps.append(RepeatStep(
        body, None, [carry.storages for carry in carries], [], "while_loop", test, condition))
    return tuple([carry.final(builder) for carry in carries])


def lower_cond(
    builder: Builder, lower: LowerGraph, pred: Any, true_fn: Graph, false_fn: Graph, operands: Values
) -> tuple[Value, ...]:
    """Add the steps of both branches of a cond, or only those of one if the predicate is known."""
    if not isinstance(pred, Value) or pred.constant is not None:
        holds = bool(pred.constant if isinstance(pred, Value) else pred)
        chosen: tuple[Value, ...] = lower(builder, true_fn if holds else false_fn, operands)
        return chosen
    condition = builder.cast(pred, np.dtype(bool))
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


def graph_at_call(function: Callable[..., Any], given: Values) -> Graph:
    """Trace a function of such arrays. All of its calls get the builder's current line."""
    graph = make_fx(function, tracing_mode="fake")(*[
        np.empty(value.shape, value.dtype) if isinstance(value, Value) else getattr(value, "example", value)
        for value in given])
    _forget_sites(graph)
    return graph


def _forget_sites(graph: Graph) -> None:
    for node in graph.nodes:
        node.meta.pop("site", None)
    for value in graph.constants.values():
        if isinstance(value, Graph):
            _forget_sites(value)


BODIES: dict[Any, Callable[..., tuple[Value, ...]]] = {
    SCAN: lower_scan, MAP: lower_map, WHILE: lower_while, COND: lower_cond,
}
"""The functions that lower higher-order operators, called as `lower(builder, lower_graph, *arguments)`."""
