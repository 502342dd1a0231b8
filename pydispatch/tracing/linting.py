"""Check that a graph is well-formed."""

# tests: tests/tracing/test_graph.py
from __future__ import annotations

from pydispatch._core import OpOverload
from pydispatch.exceptions import GraphError
from pydispatch.tracing.arguments import misfit
from pydispatch.tracing.graph import OPS, Graph, Node, nodes_in
from pydispatch.tracing.names import is_name
from pydispatch.tree import n_leaves


def lint(graph: Graph) -> None:
    """Raise a GraphError that names the node, unless the graph is well-formed.

    Names are unique identifiers that hide nothing. A node uses only nodes before it and is among their users. Targets
    fit the op. The output is the last node, and `in_spec` has a leaf for each placeholder.
    """
    names: set[str] = set()
    seen: set[Node] = set()
    for node in graph.nodes:
        check_name(node, names)
        _check_target(graph, node)
        if nodes_in((node.args, node.kwargs)) != node.all_input_nodes:
            raise _malformed(node, "a list or dict in its arguments was changed: assign new arguments to node.args")
        for used in node.all_input_nodes:
            if used not in seen:
                raise _malformed(node, f"it uses {used.name}, which does not come before it in the graph")
            if node not in used.users:
                raise _malformed(node, f"it uses {used.name}, but is not among that node's users")
        seen.add(node)
    for node in graph.nodes:
        for user in node.users:
            if node not in user.all_input_nodes:
                raise _malformed(node, f"{user.name} is among its users, but does not use it")
    if graph.output_node is None or graph.output_node is not graph.last:
        raise GraphError("the graph has no output, or has nodes after it\nadd an output at the end: graph.output(node)")
    expected, n_placeholders = n_leaves(graph.in_spec), len(graph.placeholders)
    if expected != n_placeholders:
        raise GraphError(f"in_spec has {expected} leaves, but the graph has {n_placeholders} placeholders\n"
                         "set graph.in_spec = None if the arguments are not pytrees")


def check_name(node: Node, taken: set[str]) -> None:
    """Add a name to those that are taken. Raise GraphError if it is taken or cannot name a node."""
    if not is_name(node.name) or node.name in taken:
        raise _malformed(node, f"its name {node.name!r} is taken, hides something, or is not an identifier")
    taken.add(node.name)


def _check_target(graph: Graph, node: Node) -> None:
    target = node.target
    if node.op not in OPS:
        raise _malformed(node, f"its op is {node.op!r}, expected one of {', '.join(OPS)}")
    if node.op == "output" and node is not graph.output_node:
        raise _malformed(node, "it is a second output")
    if node.op != "call_function":
        if not isinstance(target, str):
            raise _malformed(node, f"its target is {target!r}, expected a name")
        if node.op == "get_attr" and target not in graph.constants:
            raise _malformed(node, f"the graph has no constant {target!r}")
        return
    if not callable(target):
        raise _malformed(node, f"its target is {target!r}, expected an operator or a function")
    if isinstance(target, OpOverload):
        if target.removed_at is not None:
            raise _malformed(node, f"operator {target.name} was removed at {target.removed_at}")
        problem = misfit(target.schema, node.args, node.kwargs)
        if problem is not None:
            raise _malformed(node, f"operator {target.name} does not accept its arguments: {problem}")


def _malformed(node: Node, problem: str) -> GraphError:
    return GraphError(f"node {node.name}: {problem}\nfind it in print(graph)")
