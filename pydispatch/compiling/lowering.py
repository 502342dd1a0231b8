"""From a graph to the steps of a plan: node by node, by the rules of operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Tensor
from pydispatch.compiling.builder import Builder, CannotLowerError
from pydispatch.compiling.control_flow import BODIES
from pydispatch.compiling.rules import RULES, pointwise
from pydispatch.compiling.values import Array, Value
from pydispatch.exceptions import CompilationError
from pydispatch.operators import DECLARATIONS, NAMESPACE
from pydispatch.tracing import ArraySpec, Graph, Node
from pydispatch.tracing.arguments import by_name
from pydispatch.tracing.compilation import plain_kernel
from pydispatch.tracing.effects import is_pure
from pydispatch.tracing.targets import name_of
from pydispatch.tracing.values import map_values
from pydispatch.tree import tree_leaves


def lower_graph(builder: Builder, graph: Graph, given: Sequence[Any]) -> Any:
    """Add the steps of a graph, whose placeholders are these values; returns its output, values in pytrees."""
    values: dict[Node, Any] = dict(zip(graph.placeholders, given, strict=True))
    impure = {node for node in graph.nodes if node.op == "call_function" and not is_pure(node)}
    needed = _needed_nodes(graph, impure)
    around = builder.site
    for node in graph.nodes:
        if node not in needed or node.op in ("placeholder", "output"):
            continue
        if node.op == "get_attr":
            values[node] = _constant(builder, graph.constants[str(node.target)])
            continue
        site = node.meta.get("site")
        builder.site = around if site is None else str(site)
        values[node] = _lower_node(builder, node, values, node not in impure)
    builder.site = around
    assert graph.output_node is not None
    return _filled(graph.output_node.args[0], values)


def _needed_nodes(graph: Graph, impure: set[Node]) -> set[Node]:
    """The nodes that the output depends on, and those with effects."""
    needed: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in needed or node in impure:
            needed.add(node)
            needed.update(node.all_input_nodes)
    return needed


def _constant(builder: Builder, value: Any) -> Any:
    if isinstance(value, Tensor) and type(value) is Tensor and not value.requires_grad:
        value = value.array
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSUMmV" and type(value) is np.ndarray:
        return builder.constant(value)
    if _core.is_array(value) and not isinstance(value, np.generic):
        raise CompilationError(f"compile: the function captures a {type(value).__name__}, expected arrays of NumPy's\n"
                               "capture arrays of NumPy's, or leave the function as it is")
    return value


def _filled(value: Any, values: dict[Node, Any]) -> Any:
    """Arguments with what nodes stand for."""
    return map_values(lambda leaf: values[leaf] if isinstance(leaf, Node) else leaf, value)


def _lower_node(builder: Builder, node: Node, values: dict[Node, Any], is_repeatable: bool) -> Any:
    target = node.target
    args, kwargs = _filled(node.args, values), _filled(node.kwargs, values)
    if target is operator.getitem:
        return args[0][args[1]]
    lower_body = BODIES.get(target)
    if lower_body is not None:
        return lower_body(builder, lower_graph, *args, **kwargs)
    spec = node.meta.get("val")
    key = None
    if isinstance(target, OpOverload) and target.namespace == NAMESPACE and is_repeatable:
        key = target, _key(args), _key(tuple(kwargs.items()))
        known = builder.known_result(key)
        if known is not None:
            return known
        result = _by_rule(builder, target, spec, args, kwargs)
        if result is None:
            result = call(builder, target, spec, args, kwargs, is_pure=True)
        builder.note_result(key, result)
        return result
    return call(builder, target, spec, args, kwargs, is_pure=is_repeatable)


def _key(value: Any) -> Any:
    """What equal arguments have in common; unique for what cannot be compared."""
    if isinstance(value, Value):
        template = value.template
        return value.storage, _core.address(template), template.shape, template.strides, template.dtype
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, slice):
        return slice, _key(value.start), _key(value.stop), _key(value.step)
    try:
        hash(value)
    except TypeError:
        return object()
    return type(value), repr(value) if isinstance(value, (float, complex)) else value


def _by_rule(builder: Builder, op: OpOverload, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the operator's rule makes of a call; None where it has to be called."""
    name = op.name.name
    kernel = plain_kernel(op)
    declared = DECLARATIONS.get(name)
    if kernel is None or declared is None:
        return None
    arguments = by_name(op.schema, args, kwargs)
    known = tree_leaves(tuple(arguments.values()))
    if arguments.pop("device", None) not in (None, "CPU"):
        return None
    before = len(builder.steps)
    try:
        if isinstance(kernel.function, np.ufunc):
            return pointwise(builder, spec, kernel.function, arguments)
        rule = RULES.get(name)
        if kernel.function is declared.kernels["CPU"]:
            if name in FOLDABLE and builder.can_fold(known, spec.shape, spec.dtype):
                return _folded(builder, op, args, kwargs)
            if rule is not None:
                return rule(builder, spec, **arguments)
    except CannotLowerError as error:
        del builder.steps[before:]
        builder.notes.append(f"{op.name} is called: {error}")
    return None


FOLDABLE = frozenset({"arange", "linspace", "eye"})


def _folded(builder: Builder, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    args, kwargs = map_values(lambda leaf: leaf.constant if isinstance(leaf, Value) else leaf, (args, kwargs))
    return builder.fold(lambda: op(*args, **kwargs))


# --- calls -----------------------------------------------------------------------------------------------------------


class Slot:
    """An argument of a call that is an array: its position among the inputs."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


class OperatorCall:
    """A call of an operator, or a function, as a step: its results are copied to where the plan has them."""

    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.target, self.args, self.kwargs = target, args, kwargs

    def __call__(self, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> None:
        args, kwargs = map_values(
            lambda leaf: inputs[leaf.position] if isinstance(leaf, Slot) else leaf, (self.args, self.kwargs))
        found = [leaf for leaf in tree_leaves(self.target(*args, **kwargs)) if leaf is not None]
        if len(found) != len(outputs):
            raise CompilationError(f"{name_of(self.target)} returned {len(found)} arrays, {len(outputs)} when the "
                                   "function was traced\nreturn as many for equal shapes and dtypes")
        for output, result in zip(outputs, found, strict=True):
            array = np.asarray(result.array if isinstance(result, Tensor) else result)
            if array.shape != output.shape or array.dtype != output.dtype:
                raise CompilationError(
                    f"{name_of(self.target)} returned {array.dtype}{list(array.shape)}, {output.dtype}"
                    f"{list(output.shape)} when the function was traced\nreturn the same for equal shapes and dtypes")
            output[...] = array


def call(
    builder: Builder, target: Any, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_pure: bool
) -> Any:
    """Add a call of an operator or function; CompilationError where it is not known what that returns."""
    inputs: list[Value] = []

    def slot(leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        inputs.append(leaf)
        return Slot(len(inputs) - 1)

    outputs: list[Value] = []

    def result(known: Any) -> Any:
        if isinstance(known, tuple):
            return tuple(map(result, known))
        if known is None:
            return None
        if not isinstance(known, ArraySpec) or known.device != "CPU" or known.dtype.hasobject:
            raise CompilationError(
                f"compile: {name_of(target)} returns {known}, which is no array of NumPy's with a fixed dtype (at "
                f"{builder.site})\nleave it out of the compiled function")
        outputs.append(builder.fresh(known.shape, known.dtype))
        return outputs[-1]

    function = OperatorCall(target, *map_values(slot, (args, kwargs)))
    results = result(spec)
    builder.call(function, inputs, outputs, str(getattr(target, "name", name_of(target))), is_pure)
    return results
