"""Loops whose number of steps a trace knows. Their gradients, which keep the carry of every step, are scans.

The test of such a loop depends only on a part of the carry, and this part depends only on constants. A trace has no
data for it, so the operators that compute it run here, on the values of the constants.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch._registry.backends import dtype_of
from pydispatch.exceptions import DataDependentError
from pydispatch.higher_order.closures import Arrays, Flat
from pydispatch.higher_order.scan import SCAN, with_start
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.ops import ops
from pydispatch.tracing.effects import is_pure, written_nodes
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.trace import TraceMode
from pydispatch.tracing.values import map_values


@WHILE.py_impl(TraceMode)
def record_as_scan(
    mode: TraceMode, cond_fn: Flat, body_fn: Flat, init: Arrays, args: Arrays, stacks: bool
) -> Any:
    """Record a loop that keeps the carry of every step as a scan of as many steps.

    Return NotImplemented for other loops.
    """
    if not stacks:
        return NotImplemented
    values, n = (*init, *args), len(init)
    try:
        test, body = (mode.subgraph(function, values) for function in (cond_fn, body_fn))
    except DataDependentError:
        return NotImplemented
    n_steps = _steps_of(mode, test, body, values, n)
    if n_steps is None:
        return NotImplemented
    with mode:
        active = ops.np.ones((n_steps,), dtype=np.dtype(bool))
        if not n_steps:
            return (*map(ops.np.copy, init), active, *[
                ops.np.zeros((0, *value.shape), dtype=dtype_of(value)) for value in init])
        results = SCAN(with_start(body, n), init, (), args, n_steps, False)
        return (*results[:n], active, *results[n:])


def _steps_of(mode: TraceMode, test: Graph, body: Graph, values: Arrays, n: int) -> int | None:
    """Return how many steps a loop takes that carries `n` of these values, or None if the trace cannot tell."""
    holds = _Part(test, [0])
    needed = holds.inputs
    while True:
        update = _Part(body, sorted(i for i in needed if i < n))
        if update.inputs <= needed:
            break
        needed |= update.inputs
    nodes = [mode.known_node(values[i]) for i in sorted(needed)]
    if None in nodes or holds.is_unknown or update.is_unknown:
        return None
    start = _Part(mode.graph, nodes)
    return None if start.is_unknown or start.inputs else contextvars.Context().run(
        _counted, start, holds, update, sorted(needed))


def _counted(start: _Part, holds: _Part, update: _Part, needed: list[int]) -> int:
    known = dict(zip(needed, start.values({}), strict=True))
    carried = [i for i in needed if i in update.outputs]
    n_steps = 0
    while bool(holds.values(known)[0]):
        known.update(zip(carried, update.values(known), strict=True))
        n_steps += 1
    return n_steps


class _Part:
    """The part of a graph that computes some values: nodes, or results by their positions.

    `inputs` are the positions of the arguments that it depends on. It `is_unknown` if it is not a function of these.
    """

    def __init__(self, graph: Graph, outputs: Sequence[Any]) -> None:
        self.outputs = outputs
        results = None if graph.output_node is None else graph.output_node.args[0]
        self._outputs = [output if results is None else results[output] for output in outputs]
        needed = {output for output in self._outputs if isinstance(output, Node)}
        self._nodes = []
        self.is_unknown = False
        for node in reversed(graph.nodes):
            if node in needed:
                self._nodes.append(node)
                needed.update(node.all_input_nodes)
                self.is_unknown |= node.op == "call_function" and not is_pure(node)
        self.is_unknown |= any(node in needed for writer in graph.nodes for node in written_nodes(writer))
        self._nodes.reverse()
        self._places = {node: i for i, node in enumerate(graph.placeholders) if node in needed}
        self.inputs = set(self._places.values())

    def values(self, known: dict[int, Any]) -> list[Any]:
        """Return the values, given the arguments by their positions."""
        found: dict[Any, Any] = {node: known[i] for node, i in self._places.items()}

        def filled(value: Any) -> Any:
            return map_values(lambda leaf: found[leaf] if isinstance(leaf, Node) else leaf, value)

        for node in self._nodes:
            if node.op == "get_attr" and node.graph is not None:
                found[node] = node.graph.constants[str(node.target)]
            elif node.op == "call_function":
                found[node] = node.target(*filled(node.args), **filled(node.kwargs))     # type: ignore[operator]
        return list(map(filled, self._outputs))
