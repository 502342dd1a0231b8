"""A node of a graph: one value, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from pydispatch._core import OpOverload
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.tracing.literals import is_literal, refuse_literal
from pydispatch.tracing.values import map_values, values_in

if TYPE_CHECKING:
    from pydispatch.tracing.graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "output")
Target: TypeAlias = str | Callable[..., Any]


class Node:
    """One step of a graph.

    `op` is "placeholder" (an argument of the graph), "get_attr" (one of its constants), "call_function" or "output".
    `target` is what is called, the name of the argument or of the constant, or "output". `args` and `kwargs` hold nodes
    and literals, in containers too; both can be set. `users` are the nodes that use this one, in the order in which
    they came to. `meta` is for everybody: `meta["val"]` is what is known of the value.
    """

    __slots__ = ("_args", "_inputs", "_kwargs", "_target", "graph", "meta", "name", "next", "op", "prev", "users")

    def __init__(self, graph: Graph, op: str, name: str, target: Target) -> None:
        self.graph: Graph | None = graph        # None: erased
        self.op = op
        self.name = name
        self._target = target
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._inputs: list[Node] = []       # not read from the arguments, in which a list can be changed
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.prev: Node | None = None
        self.next: Node | None = None

    @property
    def target(self) -> Target:
        """What is called, or a name."""
        return self._target

    @target.setter
    def target(self, target: Target) -> None:
        self._target = target
        self._live_graph().note_change()

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments: nodes and literals, in containers too."""
        return self._args

    @args.setter
    def args(self, args: Iterable[Any]) -> None:
        self.set_arguments(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, in a new dict: to change one, set all."""
        return dict(self._kwargs)

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self.set_arguments(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in the arguments, each once, from left to right."""
        return list(self._inputs)

    def set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Set both at once; DispatchTypeError for what is neither a node of this graph nor a literal."""
        graph = self._live_graph()
        inputs: dict[Node, None] = {}
        if not all(isinstance(name, str) for name in kwargs):
            raise DispatchTypeError(f"node {self.name}: the keywords are {list(kwargs)}, expected texts\n"
                                    "name arguments as in a call: {'axis': 0}")
        kwargs = {str.__str__(name): value for name, value in kwargs.items()}
        # kernels get tuples for lists
        lists = tuple if isinstance(self._target, OpOverload) else list
        args, kwargs = map_values(lambda value: self._checked(value, inputs), (args, kwargs), lists=lists)
        for node in self._inputs:
            del node.users[self]
        self._args, self._kwargs, self._inputs = args, kwargs, list(inputs)
        for node in inputs:
            node.users[self] = None
        graph.note_change()

    def replace_all_uses_with(self, other: Node) -> list[Node]:
        """Have all users use `other`; returns them. `other` itself keeps using this node."""
        users = [user for user in self.users if user is not other]
        for user in users:
            user.replace_input_with(self, other)
        return users

    def replace_input_with(self, old: Node, new: Any) -> None:
        """Put `new`, a node or a literal, in place of a node in the arguments."""
        args, kwargs = map_values(lambda value: new if value is old else value, (self._args, self._kwargs))
        self.set_arguments(args, kwargs)

    def __repr__(self) -> str:
        return self.name

    def _checked(self, value: Any, inputs: dict[Node, None]) -> Any:
        """`value` if it may stand in the arguments; a node is added to the inputs."""
        if isinstance(value, Node):
            if value.graph is not self.graph:
                whose = "was erased" if value.graph is None else "belongs to another graph"
                raise GraphError(f"node {self.name}: its argument {value.name} {whose}\npass a node of this graph")
            inputs[value] = None
        elif not is_literal(value):
            raise refuse_literal(f"node {self.name}", value)
        return value

    def _live_graph(self) -> Graph:
        if self.graph is None:
            raise GraphError(f"node {self.name} was erased from its graph\nmake a new one: graph.call_function(...)")
        return self.graph


def nodes_in(value: Any) -> list[Node]:
    """The nodes in a value, each once, from left to right."""
    return list(dict.fromkeys([item for item in values_in(value) if isinstance(item, Node)]))


def holds_node(value: Any) -> bool:
    """Is there a node in this value?"""
    return any(isinstance(item, Node) for item in values_in(value))
