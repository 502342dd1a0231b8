"""Run a graph node by node, or make a new graph from it."""

from __future__ import annotations

from typing import Any

from pydispatch.tracing.codegen import values_let_go
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.values import map_values


class GraphInterpreter:
    """Runs a graph node by node. A subclass overrides the methods for kinds of nodes.

    Values are freed after their last use. `node` is the node that is running.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.node: Node | None = None
        self.values: dict[Node, Any] = {}

    def run(self, *args: Any) -> Any:
        """Run the graph. The arguments may be of any kind that the methods for the nodes accept."""
        return self.run_flat(self.graph.flatten_arguments(args))

    def run_flat(self, leaves: list[Any]) -> Any:
        """Run the graph, given a value for each placeholder."""
        nodes = list(self.graph.nodes)
        self.values = dict(zip(self.graph.placeholders, leaves, strict=True))
        result = None
        try:
            for node, dead in zip(nodes, values_let_go(nodes), strict=True):
                self.node = node
                result = self.run_node(node)
                self.values[node] = result
                for used in dead:
                    del self.values[used]
        finally:
            self.node = None
            self.values = {}
        return result

    def run_node(self, node: Node) -> Any:
        """Return the value of a node, computed by the method named like its op."""
        args, kwargs = self.arguments_of(node)
        if node.op == "placeholder":
            return self.placeholder(node.target, (self.values[node],), kwargs)
        return getattr(self, node.op)(node.target, args, kwargs)

    def arguments_of(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a node, with values for nodes."""
        args, kwargs = map_values(
            lambda value: self.values[value] if isinstance(value, Node) else value, (node.args, node.kwargs))
        return args, kwargs

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return an argument of the graph, which `args` holds."""
        return args[0]

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a constant of the graph."""
        return self.graph.constants[target]

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call."""
        return target(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the output of the graph, which `args` holds."""
        return args[0]


class Transformer(GraphInterpreter):
    """Makes a new graph from a graph. Each method returns the new node that replaces a node.

    Without overrides it makes a copy. An overridden `call_function` may call super() with another target or other
    arguments, make several nodes with `self.new_graph`, or return an existing node.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.new_graph = type(graph)()

    def transform(self) -> Graph:
        """Return the new graph, linted."""
        self.new_graph.constants.update(self.graph.constants)
        self.new_graph.in_spec = self.graph.in_spec
        self.new_graph.check_shapes = self.graph.check_shapes
        self.run_flat(list(self.graph.placeholders))
        self.new_graph.lint()
        return self.new_graph

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add the same argument to the new graph."""
        return self._described(self.new_graph.placeholder(target))

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add the same constant to the new graph."""
        return self._described(self.new_graph.get_attr(target))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add a call to the new graph."""
        return self._described(self.new_graph.call_function(target, args, kwargs))

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add the output to the new graph."""
        return self._described(self.new_graph.output(args[0]))

    def _described(self, node: Node) -> Node:
        """Copy the notes (`meta`) of the replaced node to the new one, and return it."""
        if self.node is not None:
            node.meta.update(self.node.meta)
        return node
