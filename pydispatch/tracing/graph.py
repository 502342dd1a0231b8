"""`Graph`: a program as an editable list of nodes. Other operations on graphs are in separate modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.higher_order.closures import AbstractRun
from pydispatch.tracing.arguments import overload_for
from pydispatch.tracing.compiled import CompiledGraph
from pydispatch.tracing.literals import is_literal, refuse_literal
from pydispatch.tracing.names import Names
from pydispatch.tracing.source import Source
from pydispatch.tracing.targets import PATHS, name_of, path_of
from pydispatch.tracing.values import LEAVES, check_shape, map_values, values_in
from pydispatch.tree import LEAF, TreeSpec, flat_spec, tree_flatten

OPS = ("placeholder", "get_attr", "call_function", "output")
Target: TypeAlias = str | Callable[..., Any]
T = TypeVar("T")


NAMES: dict[OpOverload, str] = {}
"""The names of nodes that call operators which are never removed."""

NO_KEYWORDS: dict[str, Any] = {}
"""The keyword arguments of nodes that have none. Never changed."""


class Node:
    """One value of a graph and the call that makes it.

    `op` is "placeholder" (an argument of the graph), "get_attr" (one of its constants), "call_function" or "output".
    `target` is the called function, the name of the argument or of the constant, or "output". `args` and `kwargs` hold
    nodes and literals, also in pytrees. Both can be set. `users` are the nodes that use this one, oldest use first.
    `meta` is a dict for notes of any kind. `meta["val"]` describes the known properties of the value.
    """

    __slots__ = ("_args", "_inputs", "_kwargs", "_target", "graph", "meta", "name", "next", "op", "prev", "users")

    def __init__(self, graph: Graph, op: str, name: str, target: Target) -> None:
        self.graph: Graph | None = graph        # None: erased
        self.op = op
        self.name = name
        self._target = target
        self._args: tuple[Any, ...] = ()
        self._kwargs = NO_KEYWORDS
        self._inputs: tuple[Node, ...] = ()     # a copy, since a list in the arguments can be changed
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.prev: Node | None = None
        self.next: Node | None = None

    @property
    def target(self) -> Target:
        """The function that the node calls, or a name."""
        return self._target

    @target.setter
    def target(self, target: Target) -> None:
        self._target = target
        self._live_graph().note_change()

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments: nodes and literals, also in pytrees."""
        return self._args

    @args.setter
    def args(self, args: Iterable[Any]) -> None:
        self.set_arguments(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, in a new dict. To change one, set the whole dict."""
        return dict(self._kwargs)

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self.set_arguments(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in the arguments, each once, from left to right."""
        return list(self._inputs)

    def set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Set positional and keyword arguments at once.

        Raises DispatchTypeError for a value that is neither a node of this graph nor a literal.
        """
        self._live_graph()
        inputs: dict[Node, None] = {}
        # kernels take tuples for lists
        lists = tuple if isinstance(self._target, OpOverload) else list

        def checked(value: Any) -> Any:
            return self._checked(value, inputs)

        args = map_values(checked, args, lists=lists)
        if kwargs:
            if not all(isinstance(name, str) for name in kwargs):
                raise DispatchTypeError(f"node {self.name}: the keywords are {list(kwargs)}, expected strings\n"
                                        f"name arguments as in a call: {{'axis': 0}}")
            kwargs = map_values(checked, {str.__str__(name): kwargs[name] for name in kwargs}, lists=lists)
        self._use(args, kwargs, inputs)

    def _use(self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: dict[Node, None]) -> None:
        """Set arguments that are known to be valid. `inputs` are the nodes in them."""
        for node in self._inputs:
            del node.users[self]
        self._args, self._kwargs, self._inputs = args, kwargs, tuple(inputs)
        for node in inputs:
            node.users[self] = None
        self._live_graph().note_change()

    def replace_all_uses_with(self, other: Node) -> list[Node]:
        """Replace this node by `other` in all of its users except `other`, and return these users."""
        users = [user for user in self.users if user is not other]
        for user in users:
            user.replace_input_with(self, other)
        return users

    def replace_input_with(self, old: Node, new: Any) -> None:
        """Replace a node in the arguments by `new`, a node or a literal."""
        args, kwargs = map_values(lambda value: new if value is old else value, (self._args, self._kwargs))
        self.set_arguments(args, kwargs)

    def __repr__(self) -> str:
        return self.name

    def _checked(self, value: Any, inputs: dict[Node, None]) -> Any:
        """Check that `value` may be in the arguments, add a node to the inputs, and return `value`."""
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


LEAVES.add(Node)


@dataclass(frozen=True, slots=True)
class Match:
    """One match of a pattern.

    `arguments` are the values that its parameters matched, `nodes` the erased nodes by their names in the pattern, and
    `results` the values that replaced them.
    """

    arguments: dict[str, Any]
    nodes: dict[str, Node]
    results: tuple[Any, ...]


class Nodes:
    """The nodes of a graph in order. Nodes may be erased and inserted during an iteration."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        node = self._graph.first
        while node is not None:
            if node.graph is not None:
                yield node
            node = node.next

    def __reversed__(self) -> Iterator[Node]:
        node = self._graph.last
        while node is not None:
            if node.graph is not None:
                yield node
            node = node.prev

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"[{', '.join([node.name for node in self])}]"


class Graph:
    """A program: arguments, constants, calls of operators and functions, and an output.

    Nodes are added at the end, before the output, or where `inserting_before` and `inserting_after` specify.
    `constants` are values, by name, that are part of the graph. `in_spec` is the structure of the arguments, whose
    leaves are the placeholders. Without it, each placeholder is an argument. With `check_shapes`, arguments must have
    the shapes and dtypes in the placeholders' `meta["val"]`.
    """

    def __init__(self) -> None:
        self._check_shapes = True
        self.is_body = False        # whether it does the same as a function passed to an operator: see `kept`
        self.constants: dict[str, Any] = {}
        self.first: Node | None = None
        self.last: Node | None = None
        self.output_node: Node | None = None
        self._in_spec: TreeSpec | None = None
        self._names = Names()
        self._before: Node | None = None        # where new nodes go, None: at the end
        self._cache: dict[Callable[[Graph], Any], Any] = {}
        self._targets: dict[OpOverload, str] = {}       # the called operators, with names of nodes for their calls

    @property
    def check_shapes(self) -> bool:
        """Whether runs raise if shapes differ from the trace. Setting it to False erases the nodes that check."""
        return self._check_shapes

    @check_shapes.setter
    def check_shapes(self, checks: bool) -> None:
        self._check_shapes = checks
        if not checks:
            for node in self.find_nodes(target=check_shape):
                self.erase_node(node)

    # --- reading ---

    @property
    def nodes(self) -> Nodes:
        """The nodes, in order."""
        return Nodes(self)

    @property
    def placeholders(self) -> list[Node]:
        """The nodes of the arguments, in order."""
        return list(self.cached(_placeholders_of))

    @property
    def in_spec(self) -> TreeSpec:
        """The structure of the tuple of arguments, whose leaves are the placeholders."""
        return flat_spec(len(self.placeholders)) if self._in_spec is None else self._in_spec

    @in_spec.setter
    def in_spec(self, spec: TreeSpec | None) -> None:
        self._in_spec = spec

    @property
    def out_spec(self) -> TreeSpec:
        """The structure of the output."""
        return LEAF if self.output_node is None else tree_flatten(self.output_node.args[0])[1]

    def find_nodes(self, *, op: str | None = None, target: Any = None) -> list[Node]:
        """Return the nodes of this kind, or with this target. A packet matches all of its overloads."""
        targets = target.overloads if isinstance(target, OpOverloadPacket) else (target,)
        return [node for node in self.nodes if op in (None, node.op) and (
            target is None or any(node.target is one or node.target == one for one in targets))]

    @property
    def code(self) -> str:
        """Python source of a function `forward`, which runs with `globals` as its globals."""
        return self.generate().text

    @property
    def globals(self) -> dict[str, Any]:
        """The values of the global names in `code`."""
        return dict(self.generate().names)

    def cached(self, compute: Callable[[Graph], T]) -> T:
        """Return the result of a function of the graph, which runs again only after the nodes have changed."""
        result: T | None = self._cache.get(compute)
        if result is None:
            result = self._cache[compute] = compute(self)
        return result

    @property
    def kept(self) -> dict[Any, Any] | None:
        """The functions that transforms derived from a body, or None for another graph."""
        return self.cached(_nothing_kept) if self.is_body else None

    @property
    def abstract_run(self) -> AbstractRun | None:
        """The arguments and results of a body, or None for another graph."""
        return self.cached(_abstract_run_of_body) if self.is_body else None

    def __repr__(self) -> str:
        return f"<Graph of {len(self.nodes)} nodes>"

    # --- making nodes ---

    def placeholder(self, name: str) -> Node:
        """Add an argument."""
        return self._insert("placeholder", name, name)

    def get_attr(self, name: str) -> Node:
        """Add a node for one of the `constants`. Raises KeyError for an unknown name."""
        if name not in self.constants:
            raise KeyError(f"the graph has no constant {name!r}: call graph.add_constant(value, {name!r})")
        return self._insert("get_attr", name, name)

    def add_constant(self, value: Any, name: str = "constant") -> Node:
        """Make a value a constant of the graph, under this name or, if it is taken, one like it."""
        taken = Names()
        for known in self.constants:
            taken.reserve(known)
        key = taken.fresh(name)
        self.constants[key] = value
        return self.get_attr(key)

    def constant_node(self, value: Any, name: str = "constant") -> Node:
        """Return a node for this object, which becomes a constant of that name unless it is already one."""
        for known, other in self.constants.items():
            if other is value:
                return self.get_attr(known)
        return self.add_constant(value, name)

    def call_function(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Node:
        """Add a call of an operator or a Python function, or for a packet, of the overload that fits the arguments.

        Raises DispatchTypeError for arguments that are neither nodes of this graph nor literals.
        """
        kwargs = {} if kwargs is None else kwargs
        if isinstance(target, OpOverloadPacket):
            target = overload_for(target, tuple(args), kwargs)
        if not callable(target):
            raise TypeError(f"call_function: target is {target!r}, {_core.a_type(target)}, expected an operator or "
                            "a function\npass an operator, such as ops.np.add.default")
        node = self._new_node("call_function", self._name_of_call(target), target)
        node.set_arguments(tuple(args), kwargs)
        return self._linked(node)

    def add_call(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], inputs: dict[Node, None]
    ) -> Node:
        """Add a call with arguments that are known to be valid. `inputs` are the nodes in them."""
        node = self._new_node("call_function", self._name_of_call(target), target)
        node._args, node._kwargs, node._inputs = args, kwargs or NO_KEYWORDS, tuple(inputs)
        for used in inputs:
            used.users[node] = None
        return self._linked(node)

    def _name_of_call(self, target: Callable[..., Any]) -> str:
        """Return the name for a node that calls this, and reserve a name that generated code uses for the target."""
        name = NAMES.get(target) or self._targets.get(target) if isinstance(target, OpOverload) else None
        if name is None:
            name = name_of(target)
            if path_of(target) is None and name.isidentifier():
                self._names.reserve(name)           # generated code calls the target by its name
            elif isinstance(target, OpOverload):
                (NAMES if target in PATHS else self._targets)[target] = name
        return name

    def output(self, value: Any) -> Node:
        """Add the output: nodes and literals, also in pytrees. This is allowed once. Later, set `output_node.args`."""
        if self.output_node is not None:
            raise GraphError("the graph already has an output\nset graph.output_node.args = (value,)")
        before, self._before = self._before, None
        try:
            self.output_node = self._insert("output", "output", "output", (value,))
        finally:
            self._before = before
        return self.output_node

    def copy_node(self, node: Node, value_of: Callable[[Node], Any]) -> Node:
        """Add a node like one of another graph, with each of its inputs replaced by its `value_of`."""
        args, kwargs = map_values(
            lambda value: value_of(value) if isinstance(value, Node) else value, (node.args, node.kwargs))
        if node.op == "output":
            copy = self.output(*args)
        else:
            copy = self._insert(node.op, node.name, node.target, args, kwargs)
        copy.meta = dict(node.meta)
        return copy

    def _insert(
        self, op: str, name: str, target: Target, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Node:
        node = self._new_node(op, name, target)
        if args or kwargs:
            node.set_arguments(args, kwargs or {})
        return self._linked(node)

    def _new_node(self, op: str, name: str, target: Target) -> Node:
        return Node(self, op, self._names.fresh(name), target)

    def _linked(self, node: Node) -> Node:
        """Link the node into the order, and return it."""
        before = self.output_node if self._before is None else self._before
        after = self.last if before is None else before.prev
        node.prev, node.next = after, before
        if after is None:
            self.first = node
        else:
            after.next = node
        if before is None:
            self.last = node
        else:
            before.prev = node
        self.note_change()
        return node

    # --- editing ---

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        """Add nodes before this one in the block, in the order in which they are made."""
        with self._at(node):
            yield

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[None]:
        """Add nodes after this one in the block, in the order in which they are made."""
        with self._at(node.next):
            yield

    @contextmanager
    def _at(self, node: Node | None) -> Iterator[None]:
        if node is not None and node.graph is not self:
            raise GraphError(f"node {node.name} is not in this graph\nname one of graph.nodes")
        before, self._before = self._before, node
        try:
            yield
        finally:
            self._before = before

    def erase_node(self, node: Node) -> None:
        """Remove a node. Raises GraphError if it has users."""
        if node.graph is not self:
            raise GraphError(f"node {node.name} is not in this graph\nname one of graph.nodes")
        if node.users:
            raise GraphError(f"node {node.name} cannot be erased: {', '.join([user.name for user in node.users])} use "
                             f"its value\nmake them use another node: {node.name}.replace_all_uses_with(node)")
        if self._before is node:
            self._before = node.next
        if self.output_node is node:
            self.output_node = None
        node.set_arguments((), {})
        self._unlink(node)
        self.note_change()
        node.graph = None

    def note_change(self) -> None:
        """Discard all values computed from the nodes, after they have changed."""
        self._cache.clear()
        self.is_body = False

    def _unlink(self, node: Node) -> None:
        if node.prev is None:
            self.first = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self.last = node.prev
        else:
            node.next.prev = node.prev

    # --- operations: functions in other modules, which `tracing/__init__.py` makes methods ---

    __str__: ClassVar[Callable[[Graph], str]]
    generate: ClassVar[Callable[[Graph], Source]]
    lint: ClassVar[Callable[[Graph], None]]
    eliminate_dead_code: ClassVar[Callable[[Graph], bool]]
    replace: ClassVar[Callable[..., list[Match]]]
    flatten_arguments: ClassVar[Callable[[Graph, tuple[Any, ...]], list[Any]]]
    __call__: ClassVar[Callable[..., Any]]
    interpret: ClassVar[Callable[..., Any]]
    compile: ClassVar[Callable[[Graph], CompiledGraph]]
    draw: ClassVar[Callable[..., str]]
    _repr_html_: ClassVar[Callable[[Graph], str]]

    # --- copying ---

    @property
    def reachable(self) -> tuple[Any, ...]:
        """The objects that a call may reach."""
        return tuple(self.constants.values())

    def __reduce__(self) -> tuple[Any, ...]:
        index = {node: _Reference(i) for i, node in enumerate(self.nodes)}
        nodes = [
            (node.op, node.name, node.target,
             *map_values(lambda value: index[value] if isinstance(value, Node) else value, (node.args, node.kwargs)),
             dict(node.meta))
            for node in index
        ]
        return _rebuild, (type(self), nodes, dict(self.constants), self._in_spec, self.check_shapes)


def _nothing_kept(graph: Graph) -> dict[Any, Any]:
    return {}


def _abstract_run_of_body(graph: Graph) -> AbstractRun:
    assert graph.output_node is not None
    examples, results = [[(node.meta["val"].shape, node.meta["val"].dtype) for node in nodes]
                         for nodes in (graph.placeholders, graph.output_node.args[0])]
    return AbstractRun(examples, results, [], False)


def _placeholders_of(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


class _Reference:
    """A node in pickled data: its position in the order."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _rebuild(
    cls: type[Graph], described: list[Any], constants: dict[str, Any], in_spec: TreeSpec | None, check_shapes: bool
) -> Graph:
    graph = cls()
    graph.check_shapes = check_shapes
    graph.constants.update(constants)
    graph.in_spec = in_spec
    nodes: list[Node] = []
    for op, name, target, args, kwargs, meta in described:
        args, kwargs = map_values(
            lambda value: nodes[value.index] if isinstance(value, _Reference) else value, (args, kwargs))
        node = graph.output(*args) if op == "output" else graph._insert(op, name, target, args, kwargs)
        node.meta = meta
        nodes.append(node)
    return graph


def nodes_in(value: Any) -> list[Node]:
    """Return the nodes in a value, each once, from left to right."""
    return list(dict.fromkeys([item for item in values_in(value) if isinstance(item, Node)]))


def holds_node(value: Any) -> bool:
    """Return whether there is a node in this value."""
    return any(isinstance(item, Node) for item in values_in(value))
