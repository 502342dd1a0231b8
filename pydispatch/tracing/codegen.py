"""The Python source of a graph: an assignment per node, in which a value is let go after its last use."""

from __future__ import annotations

import builtins
import itertools
import linecache
import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from pydispatch._core import OpOverload
from pydispatch.exceptions import GraphError
from pydispatch.ops import ops
from pydispatch.registry import registrations
from pydispatch.tracing.linting import check_name
from pydispatch.tracing.literals import expression, literal
from pydispatch.tracing.names import BUILTINS, Names, is_plain
from pydispatch.tracing.node import Node
from pydispatch.tracing.values import describe_spec
from pydispatch.tree import tree_unflatten

if TYPE_CHECKING:
    from pydispatch.tracing.graph import Graph

T = TypeVar("T")
numbers = itertools.count()     # of sources that were made functions
forgotten: list[str] = []       # files of functions that are gone: `linecache` may be looking through its files then


class Source(NamedTuple):
    """Python source that defines a function `forward`, and what its global names stand for."""

    text: str
    names: dict[str, Any]

    def function(self) -> Any:
        """The function, whose lines tracebacks show as long as it lives."""
        while forgotten:
            linecache.cache.pop(forgotten.pop(), None)
        filename = f"<graph {next(numbers)}>"
        namespace = dict(self.names)
        exec(compile(self.text, filename, "exec"), namespace)
        function = namespace["forward"]
        linecache.cache[filename] = len(self.text), None, self.text.splitlines(keepends=True), filename
        weakref.finalize(function, forgotten.append, filename).atexit = False
        return function


class Scope:
    """The global names of generated code; none is that of a node."""

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
        """The name of an object, which is made for it the first time."""
        for known, name in self._bound:
            if known is value:
                return name
        name = self._fresh.fresh(wanted)
        self.names[name] = value
        self._bound.append((value, name))
        return name


def generate(graph: Graph, comments: bool = False) -> Source:
    """The source of a graph; `comments` says to add what is known of the values. GraphError without an output."""
    result = graph.output_node
    if result is None:
        raise GraphError("the graph has no output\nsay what it returns: graph.output(node)")
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
    """What `meta["val"]` says, in words."""
    return describe_spec(node.meta.get("val"))


def comment(text: str) -> str:
    """A text as a comment, which ends where its line does."""
    return f"# {''.join([character if character.isprintable() else ' ' for character in text])}"


def values_let_go(nodes: Sequence[Node]) -> list[list[Node]]:
    """For each node, those whose values nobody needs after it; see last_uses."""
    return last_uses([
        (node.all_input_nodes, node if node.op in ("get_attr", "call_function") else None) for node in nodes])


def last_uses(steps: Sequence[tuple[Sequence[T], T | None]]) -> list[list[T]]:
    """For each step, given as what it uses and what it makes, the things that no later step uses.

    A thing that no step uses at all goes where it is made. What the last step uses is returned, and kept.
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
    """The end of a line that lets go of values."""
    return f";  {' = '.join(names)} = None" if names else ""


def value_text(node: Node, scope: Scope) -> str:
    """What is assigned to a node, as Python source."""
    if node.op == "get_attr":
        return f"constants[{str.__repr__(node.target)}]"
    if node.target is operator.getitem and len(node.args) == 2 and not node.kwargs:
        value, index = [argument_text(argument, scope) for argument in node.args]
        return f"{value}[{index}]"
    return call_text(target_text(node.target, scope), node.args, node.kwargs, lambda value: argument_text(value, scope))


def target_text(target: Any, scope: Scope) -> str:
    """What is called, as Python source."""
    return path_of(target) or scope.bind(name_of(target), target)


def name_of(target: Any) -> str:
    """The name of an operator, without its namespace, or of a function."""
    if isinstance(target, OpOverload):
        return str(target.name.name)
    return str(getattr(target, "__name__", type(target).__name__))


def path_of(target: Any) -> str | None:
    """How an operator or a function of NumPy's or of Python's is called anywhere; None for others."""
    if isinstance(target, OpOverload):
        path = operator_path(target)
        return ".".join(("ops", *path)) if all(map(is_plain, path)) and leads_to(target, path) else None
    name = name_of(target)
    if not is_plain(name):
        return None
    if name in BUILTINS and getattr(builtins, name, None) is target:
        return name
    for module, prefix in ((operator, "operator."), (np, "np.")):
        if getattr(module, name, None) is target:
            return f"{prefix}{name}"
    return None


def leads_to(op: OpOverload, path: tuple[str, ...]) -> bool:
    """Is what stands under these attributes of `ops` this operator, or a packet that calls it?"""
    found: Any = ops
    for part in path:
        found = getattr(found, part, None)
    return found is op or getattr(found, "overloads", ())[:1] == (op,)


def operator_path(op: OpOverload) -> tuple[str, ...]:
    """Namespace and name of an operator, and the overload where the name alone would call another one."""
    name = op.name
    packet = registrations.packets.get(name.namespace or "", {}).get(name.name)
    path = (name.namespace or "", name.name)
    is_first = packet is not None and packet.overloads[:1] == (op,)
    return path if is_first else (*path, name.overload or "default")


def call_text(
    function: str, args: Iterable[Any], kwargs: Mapping[str, Any], text_of: Callable[[Any], str]
) -> str:
    """A call as Python source; `text_of` writes an argument."""
    texts = [*map(text_of, args), *[
        f"{name}={text_of(value)}" if is_plain(name) else f"**{{{str.__repr__(name)}: {text_of(value)}}}"
        for name, value in kwargs.items()
    ]]
    return f"{function}({', '.join(texts)})"


def argument_text(value: Any, scope: Scope) -> str:
    """An argument, as Python source."""
    return expression(value, lambda leaf: _leaf_text(leaf, scope), scope.bind)


def _leaf_text(leaf: Any, scope: Scope) -> str:
    return leaf.name if isinstance(leaf, Node) else literal(leaf, scope.bind)
