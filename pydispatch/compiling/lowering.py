"""Lowering of a graph to the steps of a plan: node by node, by the lowering rules of operators."""

# tests: tests/compiling/test_plan.py
from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Tensor
from pydispatch.compiling import array_rules, rules
from pydispatch.compiling.builder import Builder, CannotLowerError, QuietSite, native
from pydispatch.compiling.control_flow import BODIES, graph_at_call
from pydispatch.compiling.numbers import read_numbers
from pydispatch.compiling.rules import RULES, Rule, operands, pointwise
from pydispatch.compiling.steps import has_calls
from pydispatch.compiling.values import Array, Value
from pydispatch.exceptions import CompilationError
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.operators.declare import PACKS, declaration_of
from pydispatch.schema import Schema
from pydispatch.tracing import ArraySpec, Graph, Node
from pydispatch.tracing.arguments import by_name
from pydispatch.tracing.compilation import plain_kernel
from pydispatch.tracing.effects import is_pure
from pydispatch.tracing.numbers import TracedNumber, plain
from pydispatch.tracing.targets import name_of
from pydispatch.tracing.values import LEAVES, map_values, values_in
from pydispatch.tree import tree_leaves

LEAVES.add(Value)
RULE_MODULES = (rules, array_rules)
"""The modules whose import registers the rules."""


def lower_graph(builder: Builder, graph: Graph, given: Sequence[Any]) -> Any:
    """Add the steps of a graph whose placeholders are these values. Return its output, a pytree of values."""
    values: dict[Node, Any] = dict(zip(graph.placeholders, given, strict=True))
    around = builder.site
    for node, may_repeat in _needed_nodes(graph):
        if node.op == "get_attr":
            values[node] = _constant(builder, graph.constants[str(node.target)])
            continue
        site = node.meta.get("site")
        builder.site = around if site is None else str(site)
        values[node] = _lower_node(builder, node, values, may_repeat)
    builder.site = around
    assert graph.output_node is not None
    return _filled(graph.output_node.args[0], values)


def _needed_nodes(graph: Graph) -> list[tuple[Node, bool]]:
    """Return the nodes that the output depends on, and the calls with effects (dead-code elimination).

    Nodes without effects are marked True: they need not be repeated for the same arguments.
    """
    assert graph.output_node is not None
    found: list[tuple[Node, bool]] = []
    needed: set[Node] = set(graph.output_node.all_input_nodes)
    for node in reversed(graph.nodes):
        if node.op == "call_function":
            pure = is_pure(node)
            if node in needed or not pure:
                needed.update(node.all_input_nodes)
                found.append((node, pure))
        elif node.op == "get_attr" and node in needed:
            found.append((node, True))
    found.reverse()
    return found


def _constant(builder: Builder, value: Any) -> Any:
    if isinstance(value, Tensor) and type(value) is Tensor and not value.requires_grad:
        value = value.array
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return builder.constant(value)
    if _core.is_array(value) and not isinstance(value, np.generic):
        raise CompilationError(f"compile: the function captures {_core.a_type(value)}, expected NumPy arrays\n"
                               "capture NumPy arrays, or do not compile the function")
    return value


def _filled(value: Any, values: dict[Node, Any]) -> Any:
    """Replace nodes by their values in arguments."""
    if type(value) is tuple:        # all positional arguments, without a call for each
        return tuple([values[item] if type(item) is Node else item if type(item) in LEAVES else _filled(item, values)
                      for item in value])
    return map_values(lambda leaf: values[leaf] if type(leaf) is Node else leaf, value)


def _lower_node(builder: Builder, node: Node, values: dict[Node, Any], is_repeatable: bool) -> Any:
    target = node.target
    args, kwargs = _filled(node.args, values), node.kwargs
    if kwargs:
        kwargs = _filled(kwargs, values)
    spec = node.meta.get("val")
    if not isinstance(target, OpOverload):
        if target is operator.getitem:
            return args[0][args[1]]
        lower_body = BODIES.get(target)
        if lower_body is not None:
            return lower_body(builder, lower_graph, *args, **kwargs)
        if isinstance(target, HigherOrderOperator):
            if target.planned_as is not None:
                try:
                    return _planned(builder, target.planned_as, args, target.is_quiet)
                except NotImplementedError:     # this call is a step
                    pass
            args = tuple([_compiled(builder, arg) if isinstance(arg, Graph) else arg for arg in args])
    elif is_repeatable and target.namespace in PACKS:
        key = target, _key(args), _key(tuple(kwargs.items())) if kwargs else ()
        known = builder.known_result(key)
        if known is not None:
            return known
        try:
            result = _by_rule(builder, target, spec, args, kwargs)
        except CannotLowerError as error:
            result = call(builder, target, spec, args, kwargs, True, str(error))
        builder.note_result(key, result)
        return result
    return call(builder, target, spec, args, kwargs, is_repeatable, _reason(target))


def _reason(target: Any) -> str:
    """Return why no call of an operator or function can be a loop."""
    if isinstance(target, HigherOrderOperator):
        return "it calls functions"
    if not isinstance(target, OpOverload):
        return "it is a Python function"
    if "random" in target.tags:
        return "it draws random numbers"
    return "it has effects" if target.namespace in PACKS else "it is not an operator of the library"


def _planned(builder: Builder, function: Callable[..., Any], args: tuple[Any, ...], is_quiet: bool) -> Any:
    """Add the steps of the operators that a function calls for these arguments."""
    given = [leaf for leaf in values_in(args) if isinstance(leaf, Value)]

    def of_values(*values: Any) -> Any:
        rest = iter(values)
        return function(*map_values(lambda leaf: next(rest) if isinstance(leaf, Value) else leaf, args))

    graph, around = graph_at_call(of_values, given), builder.site
    if is_quiet:
        builder.site = QuietSite(around or "")
    results = lower_graph(builder, graph, given)
    builder.site = around
    return results


class FunctionOfOperator:
    """The function of a graph that an operator calls: a plan for arrays like those of the trace, else the graph."""

    def __init__(self, plan: _core.Plan, graph: Callable[..., Any]) -> None:
        self._plan = plan
        self._graph = graph

    def __call__(self, *values: Any) -> Any:
        return self._plan.run(*values) if self._plan.accepts(*values) else self._graph(*values)


def _compiled(builder: Builder, graph: Graph) -> Callable[..., Any]:
    """Compile the graph for an operator that calls it, or return the graph if that fails."""
    read_numbers(graph)     # its plan does not take them
    try:
        return FunctionOfOperator(builder.compile_function(graph).plan, graph)
    except CompilationError as error:
        builder.notes.append(f"a function that an operator calls is not a plan: {error}")
        return graph


_EQUAL_IF_ALIKE = frozenset((int, bool, str, type(None), type(Ellipsis)))
"""Types whose equal objects lead to equal steps, unlike those of 0.0 and -0.0."""


def _key(value: Any) -> Any:
    """Return a key that equal arguments share. An argument that cannot be hashed gets a unique key."""
    if type(value) is Value:
        template, storage = value.template, value.storage
        owner = storage.owner
        if template is owner:
            return storage
        described = _core.address(template), template.shape, template.strides, template.dtype
        if described == (storage.address, owner.shape, owner.strides, owner.dtype):
            return storage
        return storage, described
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if type(value) in _EQUAL_IF_ALIKE:
        return type(value), value
    if isinstance(value, slice):
        return slice, _key(value.start), _key(value.stop), _key(value.step)
    if type(value) is TracedNumber:
        return TracedNumber, id(value)
    try:
        hash(value)
    except TypeError:
        return object()
    return type(value), repr(value) if isinstance(value, (float, complex)) else value


def _by_rule(builder: Builder, op: OpOverload, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call by the operator's rule. Raise CannotLowerError if the plan has to call it."""
    table = op.live_table
    known = _known.get(op)
    if known is None or known[0] is not table:
        known = _function_and_rule(op)
        if known[0] is not None and declaration_of(op) is not None:     # it is permanent, so nothing is kept alive
            _known[op] = known
    _, function, rule, is_foldable, schema = known
    if function is None and rule is None and not is_foldable:
        raise CannotLowerError("a kernel replaces that of the library")
    before = builder.mark()
    problem = "no loop computes it"     # not an exception, which would keep the frames alive
    try:
        if function is not None and not kwargs and len(args) == function.nin:
            return pointwise(builder, spec, function, args)
        arguments = by_name(schema, args, kwargs)
        if arguments.pop("device", None) not in (None, "CPU"):
            raise CannotLowerError("it has an argument device")
        if function is not None:
            return pointwise(builder, spec, function, operands(function, arguments))
        if rule is not None:
            return rule(builder, spec, **arguments)
    except CannotLowerError as error:
        builder.roll_back(before)
        problem = str(error)
    result = _folded(builder, op, spec, args, kwargs) if is_foldable else None
    if result is None:
        raise CannotLowerError(problem)
    return result


_Known = tuple[Any, np.ufunc | None, Rule | None, bool, Schema]
_known: dict[OpOverload, _Known] = {}
"""The results of `_function_and_rule` for operators that packs declare."""


def _function_and_rule(op: OpOverload) -> _Known:
    """Return how calls of an operator are lowered: table, universal function, rule, foldability and schema."""
    table = op.live_table       # first: after a registration during this call, later calls will find another table
    kernel = plain_kernel(op)
    declared = declaration_of(op)
    function = rule = None
    is_foldable = False
    if kernel is not None and declared is not None:
        if isinstance(kernel.function, np.ufunc):
            function = kernel.function
        elif kernel.function is declared.kernels["CPU"]:
            rule, is_foldable = RULES.get(str(op.name)), True
            if rule is None and declared.planned_as is not None:
                rule = functools.partial(composite, declared.planned_as)
    return table, function, rule, is_foldable, op.schema


def composite(function: Callable[..., Any], builder: Builder, spec: Any, **arguments: Any) -> Any:
    """Lower an operator that is planned as a composite: add its steps, all at the line of the call."""
    names = [name for name, value in arguments.items() if isinstance(value, Value)]
    given = [arguments[name] for name in names]
    if len(given) != len([leaf for leaf in values_in(list(arguments.values())) if isinstance(leaf, Value)]):
        raise CannotLowerError("an argument is a list of arrays")

    def of_values(*values: Any) -> Any:
        return function(**{**arguments, **dict(zip(names, values, strict=True))})

    try:
        graph = graph_at_call(of_values, given)
    except NotImplementedError as error:
        raise CannotLowerError(str(error)) from error
    first = len(builder.steps)
    result = lower_graph(builder, graph, given)
    if has_calls(builder.steps[first:]):
        raise CannotLowerError("a part of it is a call")
    return result


def _folded(
    builder: Builder, op: OpOverload, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Value | None:
    """Return the constant result of a call whose arguments are all known, or None if each run has to make the call."""
    leaves = tree_leaves((args, kwargs))
    if not isinstance(spec, ArraySpec) or any(callable(leaf) and not isinstance(leaf, Value) for leaf in leaves) or (
            not builder.can_fold(leaves, spec.shape, spec.dtype)):
        return None
    args, kwargs = map_values(lambda leaf: leaf.constant if isinstance(leaf, Value) else leaf, (args, kwargs))
    try:
        with np.errstate(all="raise"):
            result = op(*args, **kwargs)
    except Exception:       # each run reports it
        return None
    return builder.fold(lambda: result)


# --- calls -----------------------------------------------------------------------------------------------------------


class Slot:
    """The placeholder of an array in the arguments of a call: its position among the inputs of the step."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


class MadeGenerator:
    """The placeholder of a generator that one step makes for later steps. Each thread has its own."""

    def __init__(self, example: np.random.Generator) -> None:
        self.example = example          # the generator of the trace
        self._made = threading.local()

    def get(self) -> np.random.Generator:
        """Return the generator of this run."""
        made: np.random.Generator = self._made.generator
        return made

    def put(self, generator: np.random.Generator) -> None:
        """Set the generator of this run."""
        self._made.generator = generator


class OperatorCall:
    """A step that calls an operator or function, of which each run stores the results in their places.

    The call gets copies of the inputs at the positions `copied`, because it may keep them and the plan reuses their
    memory. The core calls the `direct` target on the inputs itself, unless the result is a generator that is `made`.
    """

    def __init__(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], copied: Sequence[int],
        made: MadeGenerator | None
    ) -> None:
        self.target, self.args, self.kwargs, self.made = target, args, kwargs, made
        inside = values_in([*[arg for arg in args if type(arg) is not Slot], kwargs])
        # other functions may change their arguments, so each call needs new ones
        self._is_flat = isinstance(target, OpOverload) and not any(
            type(leaf) in (Slot, MadeGenerator) for leaf in inside) and not any(
            type(arg) is MadeGenerator for arg in args)
        slots = [arg.position for arg in args if type(arg) is Slot]
        is_plain = self._is_flat and not kwargs and slots == list(range(len(args)))
        self.direct = None if made else target if is_plain else self._apply, tuple(copied)

    def __call__(self, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> None:
        assert self.made is not None
        self.made.put(self._apply(*inputs))

    def _apply(self, *inputs: Array) -> Any:
        args, kwargs = self._arguments(inputs)
        return self.target(*args, **kwargs)

    def store(self, result: Any, outputs: tuple[Array, ...]) -> None:
        """Copy results to their places. The core does so itself for one array of the expected shape and dtype."""
        found = [leaf for leaf in tree_leaves(result) if leaf is not None]
        if len(found) != len(outputs):
            raise CompilationError(f"{name_of(self.target)} returned {len(found)} arrays, expected {len(outputs)}, as "
                                   "in the trace\nreturn as many whenever shapes and dtypes are equal")
        for output, result in zip(outputs, found, strict=True):
            self._copy(np.asarray(result.array if isinstance(result, Tensor) else result), output)

    def _arguments(self, inputs: tuple[Array, ...]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments of the call, with these arrays in the slots."""
        if self._is_flat:
            return [inputs[arg.position] if type(arg) is Slot else arg for arg in self.args], self.kwargs
        filled: tuple[Sequence[Any], dict[str, Any]] = map_values(
            lambda leaf: inputs[leaf.position] if isinstance(leaf, Slot) else (
                leaf.get() if isinstance(leaf, MadeGenerator) else leaf), (self.args, self.kwargs))
        return filled

    def _copy(self, array: Array, output: Array) -> None:
        """Copy a result to its place."""
        if array.shape != output.shape or (array.dtype is not output.dtype and native(array.dtype) != output.dtype):
            raise CompilationError(
                f"{name_of(self.target)} returned {array.dtype}{list(array.shape)}, expected {output.dtype}"
                f"{list(output.shape)}, as in the trace\nreturn the same whenever shapes and dtypes are equal")
        output[...] = array


def call(
    builder: Builder, target: Any, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_pure: bool, reason: str
) -> Any:
    """Add a call of an operator or function, which is not a loop for this reason.

    Raise CompilationError if the metadata of its results are unknown.
    """
    inputs: list[Value] = []

    def slot(leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return plain(leaf)
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
                f"compile: {name_of(target)} returns {known}, expected NumPy arrays that hold no objects (at "
                f"{builder.site})\nleave this call out of the compiled function")
        outputs.append(builder.fresh(known.shape, native(known.dtype)))
        return outputs[-1]

    args, kwargs = map_values(slot, (args, kwargs))
    is_ours = isinstance(target, OpOverload) and target.namespace in PACKS
    copied = [] if is_ours else [
        i for i, value in enumerate(inputs) if value.storage.kind not in ("input", "constant")]
    made = MadeGenerator(spec) if isinstance(spec, np.random.Generator) else None
    function = OperatorCall(target, args, kwargs, copied, made)
    results = result(spec) if made is None else made
    builder.call(function, inputs, outputs, str(getattr(target, "name", name_of(target))),
                 is_pure and made is None, reason)
    return results
