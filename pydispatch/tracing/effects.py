"""The side effects of nodes: the values that they write to, and the values whose memory their results may share."""

# tests: tests/tracing/test_graph.py
from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pydispatch._core import OpOverload, aliased_arguments, mutated_argument
from pydispatch._registry.tables import has_state
from pydispatch.autograd.function import FunctionCall
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.operators.declare import PACKS, declaration_of
from pydispatch.tracing.arguments import by_name
from pydispatch.tracing.graph import Graph, Node, nodes_in
from pydispatch.tree import tree_leaves

PURE_FUNCTIONS = frozenset({
    operator.getitem, operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.matmul, operator.neg, operator.pos, operator.abs, operator.invert, operator.not_,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.eq, operator.ne, operator.lt,
    operator.le, operator.gt, operator.ge, operator.is_, operator.is_not, operator.contains, operator.index,
    operator.truth, abs, bool, complex, divmod, float, getattr, int, isinstance, len, max, min, pow, round, sum, tuple,
    tree_leaves,
})
"""Functions known to have no side effects. Any other function may have some."""

EFFECT_TAGS = frozenset({"random", "generators", "assertion"})
"""Tags of operators with side effects: they draw numbers, make generators (which draws change), or raise."""


class OperatorEffects(NamedTuple):
    """The effects of calls of an operator, as long as its table is this one.

    It `writes` to arguments. A call that `is_pure` may be omitted if nothing uses its results. An operator that
    `is_repeatable` returns equal results for equal arguments. This is known only for operators that a pack declares.
    """

    table: Any
    writes: bool
    is_pure: bool
    is_repeatable: bool


_effects: dict[OpOverload, OperatorEffects] = {}
"""The effects of operators that packs declare, which are never removed."""


def effects_of(op: OpOverload) -> OperatorEffects:
    """Return the effects of calls of an operator."""
    table = op.live_table       # read first: if others register meanwhile, later calls have another table
    known = _effects.get(op)
    if known is not None and known.table is table:
        return known
    schema, tags = op.schema, op.tags
    found = OperatorEffects(
        table, bool(schema.written),
        bool(schema.returns) and not (schema.written or schema.takes_generator or not EFFECT_TAGS.isdisjoint(tags)),
        op.namespace in PACKS and "random" not in tags and not schema.takes_generator)
    if table is not None and declaration_of(op) is not None:       # None: the next call computes the table
        _effects[op] = found
    return found


def is_pure(node: Node) -> bool:
    """Return whether the node may be omitted if no node uses its value.

    It may not if it writes, draws random numbers, returns nothing (then it was called for its side effects), or calls
    an unknown function.
    """
    target = node.target
    if node.op != "call_function":
        return node.op == "get_attr"
    if isinstance(target, HigherOrderOperator):
        return _calls_pure_functions(node)
    if not isinstance(target, OpOverload):
        return not target.writes if isinstance(target, FunctionCall) else target in PURE_FUNCTIONS
    return effects_of(target).is_pure


def makes_other_numbers(node: Node) -> bool:
    """Return whether a node's result differs from run to run, apart from a generator that has advanced."""
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    if target.namespace == "np":
        return target.name.name == "random_default_rng" and not (node.args or node.kwargs)
    return has_state(target.schema, target.tags) and not target.schema.takes_generator


def draws(node: Node) -> bool:
    """Return whether a node draws numbers from a generator."""
    target = node.target
    if isinstance(target, OpOverload):
        return "random" in target.tags
    return isinstance(target, HigherOrderOperator) and any(
        isinstance(leaf, Node) and isinstance(leaf.meta.get("val", _constant_of(leaf)), np.random.Generator)
        for leaf in node.all_input_nodes)


def _calls_pure_functions(node: Node) -> bool:
    """Return whether all functions that are passed to a higher-order operator are graphs of pure nodes."""
    functions = [constant for used in node.all_input_nodes if callable(constant := _constant_of(used))]
    return all(
        isinstance(function, Graph) and all(map(is_pure, function.find_nodes(op="call_function")))
        for function in functions
    )


def _constant_of(node: Node) -> Any:
    return None if node.op != "get_attr" or node.graph is None else node.graph.constants.get(str(node.target))


def written_nodes(node: Node) -> list[Node]:
    """Return the nodes whose values this one writes to, or if that is unknown, all nodes among its arguments."""
    target = node.target
    if node.op != "call_function" or target in PURE_FUNCTIONS or isinstance(target, HigherOrderOperator):
        return []
    if isinstance(target, FunctionCall) and not target.writes:
        return []
    if not isinstance(target, OpOverload):
        return node.all_input_nodes
    passed = by_name(target.schema, node.args, node.kwargs)
    return nodes_in([passed.get(argument.name) for argument in target.schema.arguments if argument.mutable])


def nodes_told_from_scalars(node: Node) -> list[Node]:
    """Return the nodes whose values must be 0-d arrays where they could be NumPy scalars.

    These are values that are written to, and arguments that the schema does not declare as Tensors. Indexing with a 0-d
    array makes a copy, indexing with a NumPy integer a view.
    """
    target = node.target
    if not isinstance(target, OpOverload):
        return []
    schema = target.schema
    passed = by_name(schema, node.args, node.kwargs)
    return nodes_in([passed.get(argument.name) for argument in schema.arguments if argument.mutable or (
        argument.type.contains_arrays and str(argument.type).rstrip("[]?") != "Tensor")])


def shared_nodes(node: Node) -> list[Node]:
    """Return the nodes whose memory the value of this one may share."""
    target = node.target
    if node.op != "call_function" or isinstance(target, HigherOrderOperator):
        return []
    if not isinstance(target, OpOverload):
        return node.all_input_nodes
    schema = target.schema
    positions = {position for result in schema.returns for position in (
        *aliased_arguments(schema.arguments, result), mutated_argument(schema.arguments, result))}
    passed = by_name(schema, node.args, node.kwargs)
    return nodes_in([passed.get(schema.arguments[position].name) for position in positions if position >= 0])


def is_new(node: Node) -> bool:
    """Return whether the value of a node has memory that no other node had before it."""
    maker = node.args[0] if node.target is operator.getitem else node       # one result of several
    return isinstance(maker, Node) and maker.op == "call_function" and not shared_nodes(maker)


class SharedMemory:
    """The nodes of a graph that may share memory, by their operators' schemas.

    Arguments and constants of a graph may all be views of one array, since the caller chooses them. With
    `as_if_separate` they are assumed to share no memory.
    """

    def __init__(self, nodes: Iterable[Node], *, as_if_separate: bool = False) -> None:
        self._parent: dict[Node, Node] = {}
        outside: Node | None = None
        for node in nodes:
            self._parent[node] = node
            sources = shared_nodes(node)
            if node.op in ("placeholder", "get_attr") and not as_if_separate:
                sources = [outside] if outside else []
                outside = outside or node
            for source in sources:
                self._parent[self._root(source)] = self._root(node)

    def may_overlap(self, left: Node, right: Node) -> bool:
        """Return whether a write to one of these two may change the other."""
        return self._root(left) is self._root(right)

    def overlapping(self, nodes: Iterable[Node]) -> set[Node]:
        """Return the nodes that a write to one of these may change."""
        roots = set(map(self._root, nodes))
        return {node for node in self._parent if self._root(node) in roots}

    def _root(self, node: Node) -> Node:
        parent = self._parent
        while parent[node] is not node:
            parent[node] = node = parent[parent[node]]
        return node
