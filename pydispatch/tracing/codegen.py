"""Generate the Python source of a graph: one assignment per node, with values freed after their last use."""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pydispatch.exceptions import GraphError
from pydispatch.ops import ops
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.linting import check_name
from pydispatch.tracing.literals import expression, literal
from pydispatch.tracing.names import Names, is_plain
from pydispatch.tracing.source import Source
from pydispatch.tracing.targets import name_of, path_of
from pydispatch.tracing.values import describe_spec
from pydispatch.tree import tree_unflatten

T = TypeVar("T")


class Scope:
    """The global names of generated code, none of which is the name of a node."""

    def __init__(self, graph: Graph) -> None:
        self.names: dict[str, Any] = {
            "ops": ops, "np": np, "operator": operator, "inf": float("inf"), "nan": float("nan"),
            "constants": graph.constants, "tree_unflatten": tree_unflatten,
        }
        self._fresh = Names()
        self._bound: list[tuple[Any, str]] = []
        taken: set[str] = set()
        for node in graph.nodes:
            check_name(node, taken)
            self._fresh.reserve(node.name)

    def bind(self, wanted: str, value: Any) -> str:
        """Return the name of an object, choosing one in the first call."""
        for known, name in self._bound:
            if known is value:
                return name
        name = self._fresh.fresh(wanted)
        self.names[name] = value
        self._bound.append((value, name))
        return name


def generate(graph: Graph) -> Source:
    """Return the source of a graph, generated again only after its nodes have changed.

    Raises GraphError for a graph without an output.
    """
    return graph.cached(source_of)


def listing(graph: Graph) -> str:
    """Return the source of a graph with comments on its values, and the sources of the graphs among its constants."""
    inner = [f"\n{comment(name)}\n{textwrap.indent(str(value), '# ')}" for name, value in graph.constants.items()
             if isinstance(value, Graph)]
    return source_of(graph, comments=True).text + "".join(inner)


def source_of(graph: Graph, comments: bool = False) -> Source:
    """Generate the source of a graph, with `comments` on the known properties of values.

    Raise GraphError for a graph without an output.
    """
    result = graph.output_node
    if result is None:
        raise GraphError("the graph has no output\nadd one: graph.output(node)")
    scope = Scope(graph)
    nodes = list(graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    lines = [f"def forward({', '.join([node.name for node in placeholders])}):"]
    if comments:
        lines += [f"    {comment(f'{node.name}: {known}')}" for node in placeholders if (known := what_is_known(node))]
    for node, dead in zip(nodes, values_let_go(nodes), strict=True):
        if node.op in ("get_attr", "call_function"):
            line = f"    {node.name} = {value_text(node, scope)}{freeing([used.name for used in dead])}"
            known = what_is_known(node) if comments else ""
            lines.append(f"{line}  {comment(known)}" if known else line)
    lines.append(f"    return {argument_text(result.args[0], scope)}")
    return Source("\n".join(lines) + "\n", scope.names)


def what_is_known(node: Node) -> str:
    """Return `meta["val"]` as text."""
    return describe_spec(node.meta.get("val"))


def comment(text: str) -> str:
    """Format text as a one-line comment."""
    return f"# {''.join([character if character.isprintable() else ' ' for character in text])}"


def values_let_go(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return, for each node, the nodes whose values no later node needs. See last_uses."""
    return last_uses([
        (node.all_input_nodes, node if node.op in ("get_attr", "call_function") else None) for node in nodes])


def last_uses(steps: Sequence[tuple[Sequence[T], T | None]]) -> list[list[T]]:
    """Return, for each step, the things that no later step uses. A step is given by its uses and its result.

    A thing that no step uses is freed where it is made. The things that the last step uses are returned, and so not
    freed.
    """
    seen: set[T] = set()
    found: list[list[T]] = []
    for uses, made in reversed(steps):
        dead = [used for used in uses if used not in seen]
        if made is not None and made not in seen and made not in dead:
            dead.append(made)
        seen.update(dead)
        found.append(dead)
    return [*found[:0:-1], []] if found else []


def freeing(names: Sequence[str]) -> str:
    """Return the code at the end of a line that frees values."""
    return f";  {' = '.join(names)} = None" if names else ""


def value_text(node: Node, scope: Scope) -> str:
    """Return the expression that is assigned to a node, as Python source."""
    if node.op == "get_attr":
        return f"constants[{str.__repr__(node.target)}]"
    if node.target is operator.getitem and len(node.args) == 2 and not node.kwargs:
        value, index = [argument_text(argument, scope) for argument in node.args]
        return f"{value}[{index}]"
    return call_text(target_text(node.target, scope), node.args, node.kwargs, lambda value: argument_text(value, scope))


def target_text(target: Any, scope: Scope) -> str:
    """Return the target of a call, as Python source."""
    return path_of(target) or scope.bind(name_of(target), target)


def call_text(
    function: str, args: Iterable[Any], kwargs: Mapping[str, Any], text_of: Callable[[Any], str]
) -> str:
    """Return a call as Python source. `text_of` writes an argument."""
    texts = [*map(text_of, args), *[
        f"{name}={text_of(value)}" if is_plain(name) else f"**{{{str.__repr__(name)}: {text_of(value)}}}"
        for name, value in kwargs.items()
    ]]
    return f"{function}({', '.join(texts)})"


def argument_text(value: Any, scope: Scope) -> str:
    """Return an argument, as Python source."""
    return expression(value, lambda leaf: _leaf_text(leaf, scope), scope.bind)


def _leaf_text(leaf: Any, scope: Scope) -> str:
    return leaf.name if isinstance(leaf, Node) else literal(leaf, scope.bind)
