"""Compile a graph to straight-line Python that calls NumPy kernels directly."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from pydispatch._core import OpOverload, mutated_argument
from pydispatch._registry.kernels import Kernel
from pydispatch._registry.tables import Label, is_device, table_entry
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.keys import DispatchKey
from pydispatch.operators.declare import PACKS, declaration_of
from pydispatch.schema import Argument, Schema
from pydispatch.tracing import codegen
from pydispatch.tracing.arguments import stripped_arguments
from pydispatch.tracing.calling import is_fixed, shape_and_dtype
from pydispatch.tracing.compiled import CompiledArgument, CompiledGraph, unwrapped
from pydispatch.tracing.effects import SharedMemory, draws, nodes_told_from_scalars, written_nodes
from pydispatch.tracing.graph import Graph, Node, holds_node
from pydispatch.tracing.literals import expression, literal
from pydispatch.tracing.source import Source
from pydispatch.tracing.targets import name_of
from pydispatch.tree import flat_spec, is_pytree_node_type


def written_values(graph: Graph) -> set[Node]:
    """Return the nodes whose values the graph may write to, if arguments and constants share no memory."""
    return sharing_with(graph, [node for writer in graph.nodes for node in written_nodes(writer)])


def values_to_be_arrays(graph: Graph) -> set[Node]:
    """Return the nodes whose values must not be NumPy scalars."""
    return sharing_with(graph, [node for user in graph.nodes for node in nodes_told_from_scalars(user)])


def sharing_with(graph: Graph, nodes: list[Node]) -> set[Node]:
    """Return these nodes and everything that may share memory with them, if arguments and constants do not."""
    return SharedMemory(graph.nodes, as_if_separate=True).overlapping(nodes) if nodes else set()


class Statement(NamedTuple):
    """A line of the function: its text, the locals that it reads, and the local that it sets."""

    text: str
    reads: list[str]
    sets: str | None


def compile_graph(graph: Graph) -> CompiledGraph:
    """Compile a graph to a function of the same arguments that calls NumPy's kernels without dispatch.

    Returns
    -------
    CompiledGraph
        The function.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch.tracing import make_fx
    >>> compiled = make_fx(lambda x: np.sum(x ** 2))(numpy.zeros(2)).compile()
    >>> compiled(numpy.array([1.0, 2.0]))
    np.float64(5.0)
    """
    graph.lint()
    emitter = Emitter(graph)
    statements = [statement for node in graph.nodes if (statement := emitter.statement(node))]
    lines = [codegen.comment(f"{name}: {text}") for name, text in emitter.notes.items()]
    lines.append(f"def forward({', '.join([node.name for node in graph.placeholders])}):")
    uses = codegen.last_uses([(reads, sets) for _, reads, sets in statements])
    for (text, *_), dead in zip(statements, uses, strict=True):
        lines.append(f"    {text}{codegen.freeing(dead)}")
    source = Source("\n".join(lines) + "\n", emitter.scope.names)
    return CompiledGraph(source, graph, *compiled_arguments(graph, emitter.arrays))


def compiled_arguments(graph: Graph, arrays: set[Node]) -> tuple[list[CompiledArgument], bool]:
    """Return the arguments, and whether the function can take them without checks of structure or values."""
    written, placeholders = written_values(graph), graph.placeholders
    arguments = [
        CompiledArgument(node.name, node in written, node in arrays,
                         shape_and_dtype(node) if graph.check_shapes else None) for node in placeholders]
    return arguments, graph.in_spec == flat_spec(len(placeholders)) and not any(map(is_fixed, placeholders))


class Calling(NamedTuple):
    """The way to call an operator: its kernel, dispatch (None), or a ufunc that writes to its first argument.

    `results` is the template that turns the kernel's result into the operator's, or None if results must be checked.
    `filled` are the arguments for which the kernel has no default.
    """

    schema: Schema
    kernel: Kernel | None
    ufunc: np.ufunc | None
    results: str | None
    filled: frozenset[str]


def calling_of(op: OpOverload) -> Calling:
    """Return the way to call an operator, by its table."""
    schema, kernel = op.schema, plain_kernel(op)
    filled: frozenset[str] = frozenset() if kernel is None else kernel.fit(schema).filled
    return Calling(schema, kernel, ufunc_that_writes(op, kernel), how_results_come(schema), filled)


class Emitter:
    """Writes the lines of the function.

    `notes` explain the global names. `arrays` are the nodes whose values must not be NumPy scalars.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = codegen.Scope(graph)
        self.notes: dict[str, str] = {}
        self._local: dict[Node, str] = {}       # the name of a node's value
        self._global: set[str] = set()          # those of these names that are not locals
        self.arrays = values_to_be_arrays(graph)
        self._callings: dict[OpOverload, Calling] = {}

    def statement(self, node: Node) -> Statement | None:
        """Return the line for a node, or None if it needs none."""
        reads = list(dict.fromkeys([
            name for used in node.all_input_nodes if (name := self._local[used]) not in self._global]))
        self._local[node] = node.name
        if node.op == "placeholder":
            return None
        if node.op == "get_attr":
            self._local[node] = self._constant(node)
            self._global.add(self._local[node])
            return None
        if node.op == "output":
            return Statement(f"return {self.text(node.args[0])}", reads, None)
        if isinstance(node.target, OpOverload):
            return self._operator(node, node.target, reads)
        if node.target is operator.getitem and len(node.args) == 2 and not node.kwargs:
            value, index = map(self.text, node.args)
            return Statement(f"{node.name} = {value}[{index}]", reads, node.name)
        target = node.target
        if isinstance(target, HigherOrderOperator):
            rule = target.rule_for("CPU")
            if rule is not None and not draws(node):
                self._bind(target.name, rule, f"the rule of {target.name} for NumPy arrays")
                target = rule
        call = codegen.call_text(codegen.target_text(target, self.scope), node.args, node.kwargs, self.text)
        return Statement(f"{node.name} = {call}", reads, node.name)

    def text(self, value: Any) -> str:
        """Return an argument as source: a node by the name of its value, and a value that never changes as a global."""
        if is_shareable(value) and not is_folded(value):
            return self._bind("literal", value, codegen.argument_text(value, self.scope))
        return expression(value, self._leaf, self.scope.bind)

    def _leaf(self, leaf: Any) -> str:
        if isinstance(leaf, Node):
            return self._local[leaf]
        text = literal(leaf, self.scope.bind)
        return text if is_folded(leaf) else self._bind("literal", leaf, text)

    def _bind(self, wanted: str, value: Any, note: str) -> str:
        name = self.scope.bind(wanted, value)
        self.notes[name] = note
        return name

    def _constant(self, node: Node) -> str:
        name = str(node.target)
        value = self.graph.constants[name]
        if isinstance(value, Graph):
            return self._graph(node, name, value)
        value = unwrapped(name, value)
        return self._bind(name, value, f"a constant of the graph, {type(value).__name__}")

    def _graph(self, node: Node, name: str, graph: Graph) -> str:
        """Bind a graph that is passed to higher-order operators: compiled, unless one of them transforms it."""
        if any(isinstance(user.target, HigherOrderOperator) and user.target.transforms for user in node.users):
            return self._bind(name, graph, "a graph")
        return self._bind(name, graph.compile(), "a graph, compiled")

    # --- operators ---

    def _operator(self, node: Node, op: OpOverload, reads: list[str]) -> Statement:
        calling = self._callings.get(op)
        if calling is None:
            calling = self._callings[op] = calling_of(op)
        schema, kernel, ufunc, results, filled = calling
        passed = stripped_arguments(schema, node.args, node.kwargs)
        if kernel is None or results is None or draws(node) or not is_known_when_compiling(schema, passed):
            call = codegen.call_text(codegen.target_text(op, self.scope), node.args, node.kwargs, self.text)
            return Statement(f"{node.name} = {call}", reads, node.name)
        target = written_argument(schema, passed)
        if ufunc is not None:
            passed = {**passed, "out": passed[schema.arguments[0].name]}
            call = self._kernel_call(op, ufunc, schema, passed, frozenset(), ("out",))
        else:
            call = self._kernel_call(op, kernel.function, schema, passed, filled)
        if isinstance(target, Node):
            self._local[node] = self._local[target]       # the value is the argument itself
            return Statement(call, reads, None)
        if may_return_numbers(op, schema, node):
            array_of = self._bind("array_of", array_of_number, "converts a Python number to an array")
            call = f"{array_of}({call})" if results == AS_IT_IS else f"map({array_of}, {call})"
        if node in self.arrays and results == AS_IT_IS:
            results = AS_ARRAY
        return Statement(f"{node.name} = {results.format(call)}", reads, node.name)

    def _function(self, op: OpOverload, function: Any) -> str:
        # a global, since looking up an attribute of np takes 20 ns
        name = name_of(function)
        if vars(np).get(name) is function:
            return self._bind(f"np_{name}", function, f"np.{name}")
        return self._bind(f"{op.name.namespace}_{op.name.name}", function, f"the kernel of {op.name}, {name}")

    def _kernel_call(
        self, op: OpOverload, function: Any, schema: Schema, passed: dict[str, Any], filled: frozenset[str],
        more: tuple[str, ...] = (),
    ) -> str:
        """Return the kernel call as dispatch makes it: trailing defaults stripped, `filled` arguments added."""
        needed = [argument for argument in schema.arguments if argument.name in passed or argument.name in filled]
        positional = [argument for argument in schema.arguments if not argument.kw_only]
        while positional and positional[-1] not in needed:
            positional.pop()
        values = passed | {argument.name: argument.default for argument in (*positional, *needed)
                           if argument.name not in passed}
        by_keyword = [argument.name for argument in needed if argument.kw_only]
        return codegen.call_text(self._function(op, function), [values[argument.name] for argument in positional],
                                 {name: values[name] for name in (*by_keyword, *more)}, self.text)


def may_return_numbers(op: OpOverload, schema: Schema, node: Node) -> bool:
    """Return whether the kernel may return Python numbers.

    Kernels of packs do so only for Python numbers, such as the real part of one.
    """
    takes_arrays = any(argument.type.contains_arrays for argument in schema.arguments)
    is_of_numbers = takes_arrays and not node.all_input_nodes
    return bool(schema.returns) and (op.namespace not in PACKS or is_of_numbers)


def is_shareable(value: Any) -> bool:
    """Return whether all runs can use the same object.

    They cannot if it is made during the run, or if a function could change it.
    """
    if isinstance(value, tuple):
        return all(map(is_shareable, value))
    if isinstance(value, slice):
        return all(map(is_shareable, (value.start, value.stop, value.step)))
    return not isinstance(value, Node) and not is_pytree_node_type(type(value))


def is_folded(value: Any) -> bool:
    """Return whether Python's compiler treats this as a constant."""
    if type(value) is tuple:
        return all(map(is_folded, value))
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (type(None), bool, int, str, bytes, type(Ellipsis)) or isinstance(value, type)


def plain_kernel(op: OpOverload) -> Kernel | None:
    """Return the kernel for NumPy arrays if it takes exactly the arguments, so that it can be called directly."""
    entry = table_entry(op, DispatchKey.CPU)
    if entry is None or entry.label is Label.FALLBACK or not entry.is_raw or entry.unsupported_names:
        return None
    kernel = entry.kernel
    return None if kernel.boxed or kernel.with_keyset or kernel.fallthrough else kernel


AS_IT_IS, AS_TUPLE = "{}", "tuple({})"
AS_ARRAY = "np.asanyarray({})"         # NumPy returns scalars for 0-d arrays


NUMBERS = frozenset((bool, int, float, complex))


def array_of_number(result: Any) -> Any:
    """Return a result of a kernel, with a Python number converted to an array."""
    return np.asarray(result) if type(result) in NUMBERS else result


def how_results_come(schema: Schema) -> str | None:
    """Return the template that turns the kernel's result into the operator's, or None if results must be checked."""
    types = [str(result.type) for result in schema.returns]
    if types in (["Tensor"], ["Tensor?"]) or not types:
        return AS_IT_IS
    is_plain = not any(result.mutable for result in schema.returns)
    if is_plain and (types == ["Tensor[]"] or all(kind in ("Tensor", "Tensor?") for kind in types)):
        return AS_TUPLE
    return None


def is_known_when_compiling(schema: Schema, passed: dict[str, Any]) -> bool:
    """Return whether binding would leave the arguments unchanged.

    It would not if an argument that is not an array is a node, because its value would be converted. Another device has
    other kernels.
    """
    return all(_is_known(argument, passed[argument.name]) for argument in schema.arguments if argument.name in passed)


def _is_known(argument: Argument, value: Any) -> bool:
    if is_device(argument):
        return value in (None, "CPU")
    return argument.type.contains_arrays or not holds_node(value)


def written_argument(schema: Schema, passed: dict[str, Any]) -> Any:
    """Return the argument that the operator returns as its only result, or None if the result is a new value."""
    if len(schema.returns) != 1:
        return None
    position = mutated_argument(schema.arguments, schema.returns[0])
    return passed.get(schema.arguments[position].name) if position >= 0 else None


def ufunc_that_writes(op: OpOverload, kernel: Kernel | None) -> np.ufunc | None:
    """Return the ufunc that a declared in-place kernel calls with its first argument as `out`, or None."""
    declared = declaration_of(op)
    if declared is None or declared.variant != "inplace":
        return None
    if kernel is None or declared.kernels["CPU"] is not kernel.function:
        return None
    return declared.out if isinstance(declared.out, np.ufunc) else None
