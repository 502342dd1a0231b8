"""Graph: a program as a list of nodes, which prints as Python, runs, and can be edited."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydispatch._core import OpOverloadPacket
from pydispatch.exceptions import GraphError
from pydispatch.tracing.arguments import overload_for
from pydispatch.tracing.calling import call_on_leaves, check_value
from pydispatch.tracing.codegen import Source, comment, generate, name_of, path_of
from pydispatch.tracing.compilation import CompiledGraph, compile_graph
from pydispatch.tracing.drawing import draw_graph
from pydispatch.tracing.effects import is_pure, nodes_told_from_scalars
from pydispatch.tracing.interpreting import Interpreter
from pydispatch.tracing.linting import lint
from pydispatch.tracing.names import Names
from pydispatch.tracing.node import Node, Target
from pydispatch.tracing.rewriting import Match, replace_pattern
from pydispatch.tracing.structure import structure_error
from pydispatch.tracing.symbolic import record
from pydispatch.tracing.values import map_values
from pydispatch.tree import LEAF, TreeSpec, flat_spec, in_order_of, tree_flatten


class Nodes:
    """The nodes of a graph in their order; while one iterates over them, they may be erased and others inserted."""

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
    """A program: arguments, constants, calls of operators and functions, and what is returned.

    Nodes are added at the end, before the output, or where `inserting_before` and `inserting_after` say. `constants`
    are values, by name, that are part of the graph. `in_spec` says how the arguments are made of the placeholders'
    values; without one there is an argument for each. `check_shapes` says whether arguments must have the shapes and
    dtypes that the placeholders' `meta["val"]` tells.
    """

    def __init__(self) -> None:
        self.check_shapes = True
        self.constants: dict[str, Any] = {}
        self.first: Node | None = None
        self.last: Node | None = None
        self.output_node: Node | None = None
        self._in_spec: TreeSpec | None = None
        self._names = Names()
        self._before: Node | None = None        # where nodes are inserted; None: at the end
        self._source: Source | None = None
        self._function: Callable[..., Any] | None = None
        self._tells_scalars: bool | None = None
        self._placeholders: list[Node] | None = None

    # --- reading ---

    @property
    def nodes(self) -> Nodes:
        """The nodes, in order."""
        return Nodes(self)

    @property
    def placeholders(self) -> list[Node]:
        """The nodes of the arguments, in order."""
        if self._placeholders is None:
            self._placeholders = [node for node in self.nodes if node.op == "placeholder"]
        return list(self._placeholders)

    @property
    def in_spec(self) -> TreeSpec:
        """The structure of the tuple of arguments, whose leaves are the placeholders."""
        return flat_spec(len(self.placeholders)) if self._in_spec is None else self._in_spec

    @in_spec.setter
    def in_spec(self, spec: TreeSpec | None) -> None:
        self._in_spec = spec

    @property
    def out_spec(self) -> TreeSpec:
        """The structure of what is returned."""
        return LEAF if self.output_node is None else tree_flatten(self.output_node.args[0])[1]

    def find_nodes(self, *, op: str | None = None, target: Any = None) -> list[Node]:
        """The nodes of this kind, or with this target; a packet stands for its overloads."""
        targets = target.overloads if isinstance(target, OpOverloadPacket) else (target,)
        return [node for node in self.nodes if op in (None, node.op) and (
            target is None or any(node.target is one or node.target == one for one in targets))]

    @property
    def code(self) -> str:
        """Python source of a function `forward`; it runs with `globals` as its globals."""
        return self._generated().text

    @property
    def globals(self) -> dict[str, Any]:
        """What the global names in `code` stand for."""
        return dict(self._generated().names)

    def __str__(self) -> str:
        inner = [f"\n{comment(name)}\n{textwrap.indent(str(value), '# ')}" for name, value in self.constants.items()
                 if isinstance(value, Graph)]
        return generate(self, comments=True).text + "".join(inner)

    def __repr__(self) -> str:
        return f"<Graph of {len(self.nodes)} nodes>"

    # --- making nodes ---

    def placeholder(self, name: str) -> Node:
        """One more argument."""
        return self._insert("placeholder", name, name)

    def get_attr(self, name: str) -> Node:
        """The value of one of the `constants`; KeyError for a name that is none."""
        if name not in self.constants:
            raise KeyError(f"the graph has no constant {name!r}: call graph.add_constant(value, {name!r})")
        return self._insert("get_attr", name, name)

    def add_constant(self, value: Any, name: str = "constant") -> Node:
        """A value that becomes part of the graph, under this name or, where it is taken, one like it."""
        taken = Names()
        for known in self.constants:
            taken.reserve(known)
        key = taken.fresh(name)
        self.constants[key] = value
        return self.get_attr(key)

    def constant_node(self, value: Any, name: str = "constant") -> Node:
        """The value of this very object, which becomes a constant, named so, where it is none yet."""
        for known, other in self.constants.items():
            if other is value:
                return self.get_attr(known)
        return self.add_constant(value, name)

    def call_function(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Node:
        """The result of a call of an operator or a Python function; of a packet, the overload that fits is called.

        DispatchTypeError for arguments that are neither nodes of this graph nor literals.
        """
        kwargs = {} if kwargs is None else kwargs
        if isinstance(target, OpOverloadPacket):
            target = overload_for(target, tuple(args), kwargs)
        if not callable(target):
            raise TypeError(f"call_function: target is {target!r}, a {type(target).__name__}; expected an operator or "
                            "a function\npass ops.np.add.default, say")
        name = name_of(target)
        if path_of(target) is None and name.isidentifier():
            self._names.reserve(name)           # generated code calls it by its name
        return self._insert("call_function", name, target, tuple(args), kwargs)

    def output(self, value: Any) -> Node:
        """What the graph returns: nodes and literals, in containers too. Once only; later set `output_node.args`."""
        if self.output_node is not None:
            raise GraphError("the graph has an output already\nset graph.output_node.args = (value,)")
        with self._at(None):
            self.output_node = self._insert("output", "output", "output", (value,))
        return self.output_node

    def copy_node(self, node: Node, value_of: Callable[[Node], Any]) -> Node:
        """A node like one of another graph; `value_of` says what to put for each of its inputs."""
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
        node = Node(self, op, self._names.fresh(name), target)
        node.set_arguments(args, kwargs or {})
        self._link(node, self.output_node if self._before is None else self._before)
        self.note_change()
        return node

    # --- editing ---

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        """In the block, nodes are added before this one, in the order in which they are made."""
        with self._at(node):
            yield

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[None]:
        """In the block, nodes are added after this one, in the order in which they are made."""
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
        """Take a node out; GraphError if it has users."""
        if node.graph is not self:
            raise GraphError(f"node {node.name} is not in this graph\nname one of graph.nodes")
        if node.users:
            raise GraphError(f"node {node.name} cannot be erased: {', '.join([user.name for user in node.users])} use "
                             f"its value\nhave them use another: {node.name}.replace_all_uses_with(node)")
        if self._before is node:
            self._before = node.next
        if self.output_node is node:
            self.output_node = None
        node.set_arguments((), {})
        self._unlink(node)
        self.note_change()
        node.graph = None

    def eliminate_dead_code(self) -> bool:
        """Erase the nodes without users that only make a value, and constants that no node takes.

        What writes, draws random numbers, returns nothing, or is a function that nothing is known of, stays; so do
        arguments. True if anything was erased.
        """
        erased = False
        for node in reversed(self.nodes):
            if not node.users and is_pure(node):
                self.erase_node(node)
                erased = True
        used = {node.target for node in self.find_nodes(op="get_attr")}
        for name in [name for name in self.constants if name not in used]:
            del self.constants[name]
            erased = True
        return erased

    def replace(self, pattern: Callable[..., Any] | Graph, replacement: Callable[..., Any] | Graph) -> list[Match]:
        """Put `replacement` where the graph computes `pattern`; returns the matches, first to last.

        Both are functions of as many arguments, written with operators, or graphs. An argument stands for any value;
        one that the pattern uses twice, for the same value twice. Literals match only equal ones of equal type. The
        order of the arguments of an operator counts. A match is skipped where another node uses one of its
        intermediate values, overlaps an earlier match, or straddles a write: where between its first operator and the
        place of the new ones something may write to what it reads. Dead code is erased first, and the result linted.
        GraphError for a pattern that writes.
        """
        self.lint()
        made = [value if isinstance(value, Graph) else record(value, type(self)()) for value in (pattern, replacement)]
        matches = replace_pattern(self, *made)
        self.lint()
        return matches

    def lint(self) -> None:
        """GraphError, naming the node, unless the graph is well-formed."""
        lint(self)

    def note_change(self) -> None:
        """Forget the code, as the nodes have changed."""
        self._source = self._function = self._tells_scalars = self._placeholders = None

    def _link(self, node: Node, before: Node | None) -> None:
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

    def _unlink(self, node: Node) -> None:
        if node.prev is None:
            self.first = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self.last = node.prev
        else:
            node.next.prev = node.prev

    # --- running ---

    def __call__(self, *args: Any) -> Any:
        """Run the code: every operator is dispatched. With a Tensor among the arguments results are Tensors, else raw.

        DispatchTypeError for arguments of another structure than `in_spec`; for another shape or dtype than that in the
        ArraySpec that is `meta["val"]` of a placeholder, unless `check_shapes` is off; and for another value where
        `meta["val"]` is no ArraySpec. A constant that is returned is the object in `constants`.
        """
        leaves = self.flatten_arguments(args)
        if self._function is None:
            self._function = self._generated().function()
        return call_on_leaves(self._function, leaves, self._wants_tensors())

    def interpret(self, *args: Any) -> Any:
        """The same, node by node."""
        leaves = self.flatten_arguments(args)
        return call_on_leaves(lambda *leaves: Interpreter(self).run_flat(list(leaves)), leaves, self._wants_tensors())

    def compile(self) -> CompiledGraph:
        """A function of the same arguments that calls NumPy's kernels without dispatch; see CompiledGraph."""
        return compile_graph(self)

    def draw(self, format: str = "mermaid") -> str:
        """A picture of the graph as text: "mermaid", "dot" (Graphviz), or "svg", for which Graphviz must be there."""
        return draw_graph(self, format)

    def flatten_arguments(self, args: tuple[Any, ...]) -> list[Any]:
        """The placeholders' values, given arguments of the structure `in_spec`.

        DispatchTypeError, naming the argument, for another structure, and for another shape or dtype, or another value
        of a number or text, than the placeholder's `meta["val"]` has.
        """
        leaves, spec = tree_flatten(args)
        ordered = in_order_of(self.in_spec, leaves, spec)
        if ordered is None:
            raise structure_error(self.in_spec, spec)
        return [
            check_value(node, leaf, self.check_shapes) for node, leaf in zip(self.placeholders, ordered, strict=True)]

    def _wants_tensors(self) -> bool:
        if self._tells_scalars is None:
            self._tells_scalars = any(map(nodes_told_from_scalars, self.nodes))
        return self._tells_scalars

    def _generated(self) -> Source:
        if self._source is None:
            self._source = generate(self)
        return self._source

    # --- copying ---

    def __reduce__(self) -> tuple[Any, ...]:
        index = {node: _Reference(i) for i, node in enumerate(self.nodes)}
        steps = [
            (node.op, node.name, node.target,
             *map_values(lambda value: index[value] if isinstance(value, Node) else value, (node.args, node.kwargs)),
             dict(node.meta))
            for node in index
        ]
        return _rebuild, (type(self), steps, dict(self.constants), self._in_spec, self.check_shapes)


class _Reference:
    """A node in what is pickled: its place in the order."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _rebuild(
    cls: type[Graph], steps: list[Any], constants: dict[str, Any], in_spec: TreeSpec | None, check_shapes: bool
) -> Graph:
    graph = cls()
    graph.check_shapes = check_shapes
    graph.constants.update(constants)
    graph.in_spec = in_spec
    nodes: list[Node] = []
    for op, name, target, args, kwargs, meta in steps:
        args, kwargs = map_values(
            lambda value: nodes[value.index] if isinstance(value, _Reference) else value, (args, kwargs))
        node = graph.output(*args) if op == "output" else graph._insert(op, name, target, args, kwargs)
        node.meta = meta
        nodes.append(node)
    return graph
