"""Turn a function into a graph by calling it on proxies, for patterns and their replacements."""

# tests: tests/tracing/test_trace.py
from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket, Shell, Tensor
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.schema import Return
from pydispatch.schema.compound_types import ListType
from pydispatch.tracing.arguments import written_arrays
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.values import map_values, values_in


class Proxy(Tensor):
    """A value of which only the node that makes it is known. Operators on it add nodes to its graph."""

    def __init__(self, node: Node) -> None:
        super().__init__(Shell(shape=(0,), dtype=float))      # unknown. None of its results is a scalar
        self.node = node

    @classmethod
    def __pydispatch__(
        cls, func: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        proxies = [value for value in values_in((args, kwargs)) if isinstance(value, Proxy)]
        graph = proxies[0].node.graph
        assert graph is not None
        node = graph.call_function(func, *map_values(lambda value: _as_argument(graph, value), (args, kwargs or {})))
        written = {id(array) for array in written_arrays(func, args, kwargs or {})}
        for proxy in proxies:
            if id(proxy) in written:
                proxy.node = node          # later uses see the written value
        results = func.schema.returns
        if len(results) == 1:
            return _proxy_of(func, results[0], node)
        return tuple([
            _proxy_of(func, result, graph.call_function(operator.getitem, (node, i)))
            for i, result in enumerate(results)
        ]) or None

    def _unknown(self) -> Any:
        raise GraphError("a pattern cannot read shapes or dtypes, because its values have none\n"
                         "write it with operators only, or match a graph: graph.replace(Graph, Graph)")

    shape = dtype = ndim = size = strides = itemsize = nbytes = property(_unknown)


def trace_with_proxies(function: Callable[..., Any], graph: Graph) -> Graph:
    """Fill an empty graph by calling a function, or an operator, on proxies for its required parameters.

    Raise DispatchTypeError if it is not a function, or has parameters without a default that are not positional.
    """
    result = function(*[Proxy(graph.placeholder(name)) for name in parameters_of(function)])
    graph.output(map_values(lambda value: _as_argument(graph, value), result))
    return graph


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the positional parameters without a default."""
    if not callable(function):
        raise DispatchTypeError(f"the pattern is {_core.a_type(function)}, expected a function or a Graph\n"
                                "write, for example, lambda x, y: x + y")
    signature = inspect.signature(function.overloads[0] if isinstance(function, OpOverloadPacket) else function)
    required = [parameter for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    if any(parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
           for parameter in required):
        raise DispatchTypeError(f"the pattern has the parameters {signature}, expected only positional ones\n"
                                "write, for example, lambda x, y: x + y")
    return [parameter.name for parameter in required]


def _as_argument(graph: Graph, value: Any) -> Any:
    """Return the argument for a value: the node of a proxy, a constant for an array."""
    if isinstance(value, Proxy):
        return value.node
    return graph.constant_node(value) if _core.is_array(value) else value


def _proxy_of(func: OpOverload, result: Return, node: Node) -> Any:
    if not result.type.contains_arrays or isinstance(result.type, ListType):
        raise GraphError(f"operator {func.name} returns {result.type}, whose value is unknown in a pattern\n"
                         "match a graph: graph.replace(Graph, Graph)")
    return Proxy(node)
