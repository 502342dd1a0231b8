"""Find a pattern in a graph, and replace it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydispatch._core import OpOverload
from pydispatch.exceptions import GraphError
from pydispatch.tracing.arguments import stripped_arguments
from pydispatch.tracing.effects import SharedMemory, is_pure, written_nodes
from pydispatch.tracing.graph import Graph, Match, Node, nodes_in
from pydispatch.tracing.literals import same_literal
from pydispatch.tracing.symbolic import trace_with_proxies
from pydispatch.tracing.values import values_in
from pydispatch.tree import tree_flatten


class Template:
    """A pattern or a replacement: parameters, calls in order, results, and nodes that may share memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parameters = graph.placeholders
        self.calls = graph.find_nodes(op="call_function")
        self.structure = graph.out_spec
        assert graph.output_node is not None
        self.results: list[Any] = list(values_in(graph.output_node.args[0]))
        memory = SharedMemory(graph.nodes, as_if_separate=True)
        self.sharing = {
            (i, j) for i, result in enumerate(self.results) for j, other in enumerate((*self.results, *self.parameters))
            if isinstance(result, Node) and isinstance(other, Node) and memory.may_overlap(result, other)
        }


Binding = dict[Node, Any]
"""The values that match the nodes of a pattern."""


def eliminate_dead_code(graph: Graph) -> bool:
    """Erase nodes without users and without side effects, and constants that no node uses.

    Nodes that write, draw random numbers, return nothing or call an unknown function stay, and so do arguments.

    Returns
    -------
    bool
        Whether anything was erased.
    """
    erased = False
    for node in reversed(graph.nodes):
        if not node.users and is_pure(node):
            graph.erase_node(node)
            erased = True
    used = {node.target for node in graph.find_nodes(op="get_attr")} if graph.constants else set()
    for name in [name for name in graph.constants if name not in used]:
        del graph.constants[name]
        erased = True
    return erased


def replace_pattern(
    graph: Graph, pattern: Callable[..., Any] | Graph, replacement: Callable[..., Any] | Graph
) -> list[Match]:
    """Replace `pattern` by `replacement` wherever the graph computes it.

    A match is skipped if another node uses one of its intermediate values, or if it overlaps an earlier match. It is
    also skipped if something may write to the values it reads between its first operator and the place of the
    replacement. Dead code is erased first, and the result is linted.

    Parameters
    ----------
    graph : Graph
        The graph, which is changed.
    pattern : callable or Graph
        A function written with operators, or a graph. An argument of the pattern matches any value. If the pattern uses
        it twice, it must be the same value both times. Literals match only equal ones of equal type. The order of an
        operator's arguments counts.
    replacement : callable or Graph
        A function or graph with as many arguments.

    Returns
    -------
    list of Match
        The matches, first to last.

    Raises
    ------
    GraphError
        For a pattern that writes.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import ops
    >>> from pydispatch.tracing import make_fx
    >>> graph = make_fx(lambda x: ops.np.sin(x ** 2))(numpy.zeros(2))
    >>> graph.replace(lambda x: x ** 2, lambda x: x * x)
    [Match(arguments={'x': x_1}, nodes={'square': square}, results=(multiply,))]
    >>> print(graph.code)
    def forward(x_1):
        multiply = ops.np.multiply(x_1, x_1);  x_1 = None
        sin = ops.np.sin(multiply);  multiply = None
        return sin
    """
    graph.lint()
    old, new = [Template(value if isinstance(value, Graph) else trace_with_proxies(value, type(graph)()))
                for value in (pattern, replacement)]
    matches = replace_template(graph, old, new)
    graph.lint()
    return matches


def replace_template(graph: Graph, old: Template, new: Template) -> list[Match]:
    """Replace templates that are not checked yet, like replace_pattern."""
    check_pattern(old)
    check_replacement(old, new)
    graph.eliminate_dead_code()
    matches = []
    made: set[Node] = set()
    for node in list(graph.nodes):
        if node.graph is None or node.op != "call_function" or node in made:
            continue
        for binding in bindings(old, graph, node, made):
            where = insertion_point(old, new, graph, binding)
            if where is not None:
                before = set(graph.nodes)
                matches.append(insert_replacement(old, new, graph, binding, where))
                made.update(set(graph.nodes) - before)
                break
    return matches


def check_pattern(pattern: Template) -> None:
    """Raise GraphError for a pattern that writes, computes nothing, or ignores a parameter."""
    for node in pattern.calls:
        if not is_pure(node):
            raise GraphError(f"the pattern's node {node.name} has side effects, or can have them, so a match could "
                             "not be moved\nmatch only operators that do not write")
        if not node.users:
            raise GraphError(f"no node uses the pattern's node {node.name}\nreturn its value, or leave it out")
    for result in pattern.results:
        if not isinstance(result, Node) or result.op != "call_function":
            raise GraphError(f"the pattern returns {result}, which is not a result of its operators\n"
                             "return results of operators")
    for parameter in pattern.parameters:
        if not parameter.users:
            raise GraphError(f"the pattern does not use its parameter {parameter.name}\nleave it out")
    if not pattern.results:
        raise GraphError("the pattern returns nothing\nreturn the results to replace")


def check_replacement(pattern: Template, replacement: Template) -> None:
    """Raise GraphError if the numbers of parameters or results differ, or if the replacement writes to a parameter."""
    n, m = len(pattern.parameters), len(replacement.parameters)
    if n != m:
        raise GraphError(f"the pattern has {n} parameters, but the replacement {m}\ngive both the same parameters")
    if pattern.structure != replacement.structure:
        raise GraphError("the pattern and the replacement return different structures\n"
                         "return the same structure from both")
    memory = SharedMemory(replacement.graph.nodes)
    for node in replacement.calls:
        if not isinstance(node.target, OpOverload):
            continue                    # the user who put the function there is responsible for its effects
        for written in written_nodes(node):
            if any(memory.may_overlap(written, outside) for outside in replacement.graph.nodes
                   if outside.op in ("placeholder", "get_attr")):
                raise GraphError(f"the replacement's node {node.name} writes, or can write, to a parameter or a "
                                 "constant\nwrite only to values that the replacement makes")


# --- matching ---


def bindings(pattern: Template, graph: Graph, last: Node, made: set[Node]) -> Iterator[Binding]:
    """Yield the ways in which the pattern can match with its last operator at this node."""
    results = [node for node in pattern.calls if node in pattern.results]
    binding: Binding = {}
    if match_node(pattern, graph, results[-1], last, binding, made):
        yield from _with_other_results(pattern, graph, results[-2::-1], binding, made)


def _with_other_results(
    pattern: Template, graph: Graph, results: Sequence[Node], binding: Binding, made: set[Node]
) -> Iterator[Binding]:
    if not results:
        yield binding
    elif results[0] in binding:
        yield from _with_other_results(pattern, graph, results[1:], binding, made)
    else:
        for node in graph.find_nodes(op="call_function", target=results[0].target):
            longer = dict(binding)
            if match_node(pattern, graph, results[0], node, longer, made):
                yield from _with_other_results(pattern, graph, results[1:], longer, made)


def match_node(
    pattern: Template, graph: Graph, wanted: Node, value: Any, binding: Binding, made: set[Node]
) -> bool:
    """Return whether the pattern's node matches this value, and extend the binding as far as it does."""
    if wanted in binding:
        return same_values(binding[wanted], value)
    binding[wanted] = value
    if wanted.op == "placeholder":
        return True
    if not isinstance(value, Node) or value in made or value.op != wanted.op:
        return False
    if wanted.op == "get_attr":
        return pattern.graph.constants[wanted.target] is graph.constants[value.target]  # type: ignore[index]
    if wanted.target is not value.target and wanted.target != value.target:
        return False
    return match_values(pattern, graph, _arguments(wanted), _arguments(value), binding, made)


def _arguments(node: Node) -> Any:
    if isinstance(node.target, OpOverload):
        return stripped_arguments(node.target.schema, node.args, node.kwargs)
    return node.args, node.kwargs


def match_values(
    pattern: Template, graph: Graph, wanted: Any, value: Any, binding: Binding, made: set[Node]
) -> bool:
    """Return whether a value from the pattern's arguments matches another one."""
    if isinstance(wanted, Node):
        return match_node(pattern, graph, wanted, value, binding, made)
    if isinstance(value, Node):
        return False
    if isinstance(wanted, slice) and isinstance(value, slice):
        wanted, value = (wanted.start, wanted.stop, wanted.step), (value.start, value.stop, value.step)
    pairs = children(wanted, value)
    if pairs is None:
        return same_literal(wanted, value)
    return all(match_values(pattern, graph, left, right, binding, made) for left, right in pairs)


def children(left: Any, right: Any) -> list[tuple[Any, Any]] | None:
    """Return the pairs of children of two pytree nodes, or None for leaves, and for different classes or keys."""
    if type(left) is not type(right):
        return None
    if type(left) is dict:
        return [(left[key], right[key]) for key in left] if left.keys() == right.keys() else None
    if isinstance(left, (tuple, list)):
        return list(zip(left, right, strict=True)) if len(left) == len(right) else None
    mine, my_spec = tree_flatten(left)
    other, other_spec = tree_flatten(right)
    is_node = my_spec.type is not None and my_spec == other_spec
    return list(zip(mine, other, strict=True)) if is_node else None


def same_values(left: Any, right: Any) -> bool:
    """Return whether two arguments are the same node, equal literals of equal type, or pytrees of these."""
    if isinstance(left, Node) or isinstance(right, Node):
        return left is right
    pairs = children(left, right)
    return same_literal(left, right) if pairs is None else all(same_values(*pair) for pair in pairs)


# --- placing the replacement -----------------------------------------------------------------------------------------


def insertion_point(pattern: Template, replacement: Template, graph: Graph, binding: Binding) -> Node | None:
    """Return the node before which to insert the replacement, or None if that would change the graph's results."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    matched: set[Node] = {binding[node] for node in pattern.calls}
    results: list[Node] = [binding[node] for node in pattern.results]
    inputs = set(nodes_in([binding[node] for node in pattern.parameters]))
    if inputs.intersection(results):
        return None
    if any(user not in matched for node in matched.difference(results) for user in node.users):
        return None
    first, last = min(matched, key=order.__getitem__), max(matched, key=order.__getitem__)
    users = [user for result in results for user in result.users if user not in matched]
    successor = min([*users, last.next], key=lambda node: len(order) if node is None else order[node])
    if successor is None or any(order[node] >= order[successor] for node in inputs):
        return None
    touched = [*matched, *inputs]
    changes_sharing = pattern.sharing != replacement.sharing
    memory: SharedMemory | None = None
    for writer, i in order.items():
        if i <= order[first] or (i >= order[last] and not changes_sharing):
            continue
        for written in written_nodes(writer):
            memory = memory or SharedMemory(order)
            if any(memory.may_overlap(written, node) for node in touched):
                return None
    return successor


def insert_replacement(
    pattern: Template, replacement: Template, graph: Graph, binding: Binding, successor: Node
) -> Match:
    """Insert the replacement before a node, use it instead of the match, and erase the match."""
    values: Binding = {
        new: binding[old] for new, old in zip(replacement.parameters, pattern.parameters, strict=True)}
    with graph.inserting_before(successor):
        for node in replacement.graph.nodes:
            if node.op == "get_attr":
                values[node] = graph.constant_node(replacement.graph.constants[str(node.target)], str(node.target))
            elif node.op == "call_function":
                values[node] = graph.copy_node(node, values.__getitem__)
    results = []
    for old, new in zip(pattern.results, replacement.results, strict=True):
        result = values[new] if isinstance(new, Node) else new
        results.append(result)
        _use_instead(binding[old], result)
    nodes = {node.name: binding[node] for node in pattern.calls}
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in sorted(set(nodes.values()), key=order.__getitem__, reverse=True):
        if not node.users:
            graph.erase_node(node)
    arguments = {node.name: binding[node] for node in pattern.parameters}
    return Match(arguments, nodes, tuple(results))


def _use_instead(old: Node, new: Any) -> None:
    for user in list(old.users):
        user.replace_input_with(old, new)
    if isinstance(new, Node) and "val" in old.meta:
        new.meta.setdefault("val", old.meta["val"])
