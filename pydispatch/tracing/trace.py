"""`make_fx`: run a function once, and return a graph of the operators that it calls.

The function runs on Tensors, not on proxies: a mode sees each call, runs it, and adds a node to the graph. The mode
recognizes a value by the raw array under all its wrappers, so the value may be detached, saved on a tape, or wrapped
by a transform on its way to the next call.
"""

from __future__ import annotations

import contextvars
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import MetaArray, OpOverload, Shell, Tensor
from pydispatch.autograd.residuals import watching_copies
from pydispatch.autograd.values import bottom_of
from pydispatch.autograd.views import needs_memory
from pydispatch.exceptions import AliasingError, AutogradError, DataDependentError, DispatchTypeError, NoKernelError
from pydispatch.func.functions import TransformedFunction, returned_by
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.modes import DispatchMode
from pydispatch.operators.meta import view_of
from pydispatch.ops import ops
from pydispatch.registry.sites import caller_site
from pydispatch.subclasses import flatten, is_traceable_wrapper
from pydispatch.tracing.arguments import written_arrays
from pydispatch.tracing.effects import effects_of
from pydispatch.tracing.fake import FakeMode, FakeTensor
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.literals import PLAIN_TYPES, is_literal
from pydispatch.tracing.values import device_of, map_values, spec_of
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten

Decompositions = Mapping[OpOverload, Callable[..., Any]]

TRACING_MODES = ("real", "fake")

PARAMETERS = "__pydispatch_parameters__"
"""The attribute in which a function of this package has the names of its parameters."""


def make_fx(
    f: Callable[..., Any], *, tracing_mode: str = "real", decompositions: Decompositions | None = None,
    check_shapes: bool = True,
) -> Callable[..., Graph]:
    """A function that traces `f`: `make_fx(f)(*args)` calls `f` with these arguments and returns the Graph of the call.

    `f` gets Tensors in place of arrays; arguments and results may be pytrees. The graph holds the operators that were
    called: one branch of each `if`, each turn of a loop. Numbers, None and strings among the arguments are part of the
    graph, which refuses other values in their place. Captured arrays become constants, with the values that they had
    when they were used; a captured numpy.random.Generator is shared.

    With `tracing_mode="fake"` nothing is computed: `f` gets arrays that have a shape and a dtype and no data.
    `decompositions` maps operators to functions that are traced in their place; see `get_decompositions`.

    Shapes are numbers, too, so the graph refuses arguments of other shapes and dtypes than these. With
    `check_shapes=False` it accepts all of them; use that for functions that never ask an array for its shape or dtype.

    Raises DataDependentError where `f` converts an array that depends on its arguments to a number.
    """
    if tracing_mode not in TRACING_MODES:
        raise DispatchTypeError(f"make_fx: argument tracing_mode is {tracing_mode!r}, expected 'real' or 'fake'\n"
                                "pass tracing_mode='fake' to trace without computing")
    table = dict(decompositions or {})
    for key in table:
        if not isinstance(key, OpOverload):
            raise DispatchTypeError(f"make_fx: a key of argument decompositions is {key!r}, expected an OpOverload\n"
                                    "name the overload: {ops.np.square.default: function}")

    @returned_by(make_fx, f, tracing_mode=tracing_mode, decompositions=decompositions, check_shapes=check_shapes)
    def traced(*args: Any) -> Graph:
        return graph_of_call(f, args, tracing_mode == "fake", table, check_shapes)

    return traced


def graph_of_call(
    f: Callable[..., Any], args: tuple[Any, ...], fakes: bool, decompositions: Decompositions | None = None,
    check_shapes: bool = True,
) -> Graph:
    """The graph of `f(*args)`, as `make_fx` says; of fakes, nothing is computed."""
    leaves, in_spec = tree_flatten(args)
    names = _leaf_names(f, args)
    inputs = _own_values(leaves, names)
    fake_mode = _fake_mode_of(inputs) if fakes else None
    if fake_mode is not None:
        inputs = [fake_mode.from_array(value) if _core.is_array(value) else value for value in inputs]
    mode = TraceMode(decompositions or {}, fake_mode, check_shapes)
    for name, value in zip(names, inputs, strict=True):
        mode.add_placeholder(name, value)
    with fake_mode or nullcontext(), mode:
        result = f(*tree_unflatten(inputs, in_spec))
    graph = mode.finish(result)
    graph.in_spec, graph.check_shapes = in_spec, check_shapes
    return graph


def _leaf_names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """A name for each leaf of the arguments: the name of the parameter and a number, counted from 1."""
    counts: dict[str, int] = {}
    names = []
    for parameter, arg in zip(_parameter_names(f, len(args)), args, strict=True):
        for _ in tree_leaves(arg):
            counts[parameter] = n = counts.get(parameter, 0) + 1
            names.append(f"{parameter}_{n}")
    return names


def _parameter_names(f: Callable[..., Any], n: int) -> list[str]:
    """The names of the parameters for `n` positional arguments; `arg` if the signature is unknown."""
    known = simple_parameters(f)
    if known is not None and len(known) == n:
        return list(known)
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return ["arg"] * n
    names = [parameter.name for parameter in parameters
             if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    rest = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL), "arg")
    return (names + [rest] * n)[:n]


def simple_parameters(f: Any) -> Sequence[str] | None:
    """The names of a function's parameters, where all are positional; else None. `inspect` is much slower.

    A function may have them as the attribute PARAMETERS.
    """
    while True:
        attributes = getattr(f, "__dict__", {})
        if PARAMETERS in attributes:
            names: Sequence[str] = attributes[PARAMETERS]
            return names
        if "__signature__" in attributes or type(f) not in (FunctionType, TransformedFunction):
            return None
        if "__wrapped__" not in attributes:
            break
        f = attributes["__wrapped__"]
    code = f.__code__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_kwonlyargcount:
        return None
    found: Sequence[str] = code.co_varnames[:code.co_argcount]
    return found


def _own_values(leaves: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The leaves, with arrays as Tensors. Each has an array object of its own, since one array may be passed twice."""
    values = [_own_value(leaf) for leaf in leaves]
    seen: dict[int, str] = {}
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            continue
        array = _core.bottom_array(value)
        if id(array) in seen and _has_views(array):
            value = values[i] = ops.np.getitem(value, Ellipsis)
            array = _core.bottom_array(value)
        if id(array) in seen:
            raise DispatchTypeError(f"make_fx: arguments {seen[id(array)]} and {names[i]} are the same "
                                    f"{type(array).__name__}, which has no views\npass a copy of it")
        seen[id(array)] = names[i]
    return values


def _own_value(leaf: Any) -> Any:
    """A Tensor on the memory of an array, which the function may capture, too; a tracked Tensor stays as it is."""
    if isinstance(leaf, np.ndarray):
        return Tensor(leaf.view())
    if isinstance(leaf, MetaArray):
        return Tensor(view_of(leaf, leaf.shape, leaf.dtype))
    if type(leaf) is Tensor and not leaf.requires_grad and _has_views(_core.bottom_array(leaf)):
        return ops.np.getitem(leaf, Ellipsis)
    return Tensor(leaf) if _core.is_array(leaf) and not isinstance(leaf, Tensor) else leaf


def _has_views(array: Any) -> bool:
    return isinstance(array, (np.ndarray, MetaArray))


def _fake_mode_of(values: Sequence[Any]) -> FakeMode:
    """The mode of the fakes among the values, or a new one."""
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeMode(allow_real_inputs=True)


class _Constant:
    """An array that the traced function captures: its node, the array, and a copy of its values at that time."""

    __slots__ = ("array", "copied", "fakes", "node", "snapshot")

    def __init__(self, node: Node, array: Any, snapshot: Any) -> None:
        self.node, self.array, self.snapshot = node, array, snapshot
        self.copied = False     # must each run of the graph work on a copy, because something writes to it?
        self.fakes: dict[int, FakeTensor] = {}      # by the id of their memory: the fake memory in its place

    def lies_in(self, owner: Any) -> bool:
        return _owner(self.array) is owner or id(owner) in self.fakes

    def add_fake(self, fake: FakeTensor) -> None:
        self.fakes[id(_owner(fake.array))] = fake

    def is_as_it_was(self) -> bool:
        if not isinstance(self.array, np.ndarray):
            return True
        return bool(self.array.tobytes() == self.snapshot.tobytes())


ITEM = ops.np.item.default
ONLY_FAKES = (FakeTensor,)


class TraceMode(DispatchMode):
    """The mode that adds a node for each operator, and keeps what it knows of the values that it has seen."""

    def __init__(self, decompositions: Decompositions, fake_mode: FakeMode | None, check_shapes: bool) -> None:
        self.graph = Graph()
        self._check_shapes = check_shapes
        self._fake_mode = fake_mode
        self.decompositions = decompositions
        self._nodes: dict[int, tuple[Any, Node]] = {}       # by the id of an array: the array, and its node
        self._constants: dict[int, _Constant] = {}          # likewise
        self._objects: dict[int, tuple[Any, Node]] = {}     # likewise, of what is no array
        self._known: set[int] = set()           # ids of arrays that were computed from constants only
        self._overwritten: set[int] = set()     # ids of owners of memory to which unknown values were written
        self._made: set[int] = set()            # ids of owners of memory that operators have made
        self._subclass_nodes: dict[int, Tensor] = {}     # by id: subclass objects that have nodes themselves
        self._hidden: dict[int, str] = {}       # by the id of an array: the placeholder that holds it

    # arguments and results

    def add_placeholder(self, name: str, value: Any) -> None:
        """Add a placeholder for a leaf of the arguments: an array, a Generator, or a value that must stay the same."""
        node = self.graph.placeholder(name)
        if isinstance(value, np.random.Generator):
            self._add_generator(value, node)
            return
        node.meta["val"] = _spec(value)
        if not isinstance(value, Tensor):
            return
        self._track(value, node)
        if _desugars(value):
            self._subclass_nodes[id(value)] = value
            self._hidden.update((id(array), name) for array in _arrays_held_by(value))

    def _add_generator(self, generator: np.random.Generator, node: Node) -> None:
        """Record draws from this generator as draws from the argument of the graph."""
        if id(generator) in self._objects:
            raise DispatchTypeError(
                f"make_fx: arguments {self._objects[id(generator)][1].name} and {node.name} are the same Generator, so "
                "draws from one cannot be told from draws from the other\npass it once"
            )
        self._objects[id(generator)] = generator, node

    def finish(self, result: Any) -> Graph:
        """The graph that returns `result`, nested as it is."""
        self.graph.output(map_values(self._output, result))
        for constant in self._constants.values():
            if constant.copied:
                self._put_copy_behind(constant.node)
        return self.graph

    def _output(self, value: Any) -> Any:
        if not _core.is_array(value):
            return self._replaced(value)
        if _desugars(value) and id(value) not in self._subclass_nodes:
            raise DispatchTypeError(
                f"make_fx: the function returns {_core.a_type(value)}, whose handler defines the operators on it\n"
                "return the arrays that it holds, and make the object outside"
            )
        found = self._replaced(value)
        owner = _owner(bottom_of(value))
        for constant in self._constants.values():       # the caller may write to the result
            constant.copied |= constant.lies_in(owner)
        return found

    def _put_copy_behind(self, node: Node) -> None:
        with self.graph.inserting_after(node):
            copy = self.graph.call_function(ops.np.copy.default, (node,))
        copy.meta.update(node.meta)
        node.replace_all_uses_with(copy)
        copy.args = (node,)

    # the calls

    def __pydispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if types != ONLY_FAKES and not self._takes(func, types, args, kwargs):
            return NotImplemented
        decomposition = self.decompositions.get(func) if self.decompositions else None
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func is ITEM:
            return self._number(args[0])
        if isinstance(func, HigherOrderOperator):
            return self._record_higher_order(func, args, kwargs)
        return self._record(func, args, kwargs)

    def on_conversion(self, tensor: Tensor, what: str) -> None:
        """Refuse to convert values that depend on the arguments: results of NumPy would become constants."""
        if not self._is_known(tensor):
            raise self._data_dependent(what, tensor)

    def on_no_dispatch(self) -> None:
        """Refuse to be disabled: values that are computed meanwhile would become constants, whatever they depend on."""
        raise DataDependentError(
            "make_fx: no_dispatch() in a traced function would disable the trace, and what is computed inside of it "
            "would become a constant of the graph\nleave the block out, or compute it before the trace"
        )

    def _takes(self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is the call itself traced? Not with subclass objects made in the trace: their handlers run first."""
        if not types or all(issubclass(cls, FakeTensor) for cls in types):
            return True
        objects = [leaf for leaf in tree_leaves((args, kwargs)) if _desugars(leaf)]
        with_nodes = [value for value in objects if id(value) in self._subclass_nodes]
        if with_nodes and len(with_nodes) < len(objects):
            made = next(value for value in objects if id(value) not in self._subclass_nodes)
            raise DispatchTypeError(
                f"{func.name}: {_core.a_type(with_nodes[0])} that is an argument of the trace meets "
                f"{_core.a_type(made)} that was made in it\n"
                "pass the arrays that the argument holds to the traced function, and make the object there"
            )
        return len(with_nodes) == len(objects)

    def _record(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        effects = effects_of(func)
        nodes = self._nodes
        arrays: list[Any] = []
        identified: list[Any] = []      # the arrays that identify these
        inputs: dict[Node, None] = {}

        def replaced(value: Any) -> Any:
            if type(value) in PLAIN_TYPES:
                return value
            if _core.is_array(value):
                arrays.append(value)
                array = self._array_of(value)
                identified.append(array)
                known = nodes.get(id(array))
                if known is not None:
                    found = known[1]
                elif isinstance(value, np.generic) and is_literal(value):
                    return value
                else:
                    found = self._node_for(value, array)
            elif is_literal(value):
                return value
            else:
                found = self._object(value)
            inputs[found] = None
            return found

        # first, to get the constants before the call writes to them
        node_args = map_values(replaced, args, lists=tuple)
        node_kwargs = map_values(replaced, kwargs, lists=tuple) if kwargs else {}
        known = effects.is_repeatable and all(map(self._is_array_known, identified))
        written: Sequence[Any] = ()
        if effects.writes:
            written = written_arrays(func, args, kwargs)
            for array in written:
                self._note_write(array, known)
            with watching_copies(self._note_copy):
                result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if not known and not _core.is_array(result):
            self._refuse_numbers(func, result, arrays)
        node = self.graph.add_call(func, node_args, node_kwargs, inputs)
        node.meta["site"] = caller_site(2)
        return self._bind(result, node, _ResultChecks(written, arrays, known))

    def _record_higher_order(
        self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Add one node whose functions are graphs, traced without data where possible."""
        arrays = [leaf for leaf in tree_leaves((args, kwargs)) if _core.is_array(leaf)]
        functions = {} if func.examples is None else func.examples(*args, **kwargs)
        graphs = {i: self._subgraph(args[i], examples) for i, examples in functions.items()}
        names = _parameter_names(func.examples or func, len(args))
        node_args = tuple([
            self.graph.add_constant(graphs[i], names[i]) if i in graphs else map_values(self._replaced, arg)
            for i, arg in enumerate(args)
        ])
        node_kwargs = map_values(self._replaced, kwargs)
        result = func(*args, **kwargs)
        self._refuse_numbers(func, result, arrays)
        node = self.graph.call_function(func, node_args, node_kwargs)
        node.meta["site"] = caller_site()
        return self._bind(result, node, _ResultChecks((), arrays, False))

    def _subgraph(self, function: Callable[..., Any], examples: tuple[Any, ...]) -> Graph:
        """The graph of a function that was passed to an operator."""
        fake_mode = self._fake_mode or FakeMode(allow_real_inputs=True)
        fakes = tuple([self._fake_argument(fake_mode, example) for example in examples])
        try:
            return contextvars.Context().run(
                graph_of_call, function, fakes, True, self.decompositions, self._check_shapes)
        except (DataDependentError, NoKernelError, AutogradError) as error:
            if self._fake_mode is not None or (isinstance(error, AutogradError) and not needs_memory(error)):
                raise
        return graph_of_call(function, examples, False, self.decompositions, self._check_shapes)

    def _fake_argument(self, fake_mode: FakeMode, example: Any) -> Any:
        """A fake for an argument of a function; a new one, since the function may capture the example itself."""
        fake = fake_mode.from_array(_untracked(example))
        return FakeTensor(fake.kind, fake_mode) if fake is example else fake

    def _note_copy(self, value: Any, copy: Any) -> None:
        """Add a node for the copy that the tape, below all modes, keeps of a value before it is overwritten."""
        node = self.graph.call_function(ops.np.copy.default, (self._node_of(value),))
        node.meta.update(site=caller_site(), val=spec_of(copy))
        self._track(copy, node)

    def _number(self, value: Any) -> Any:
        if not self._is_known(value):
            raise self._data_dependent("a Python number", value)
        array = bottom_of(value)
        return array.item() if isinstance(array, np.ndarray) else ops.np.item(value)

    def _refuse_numbers(self, func: OpOverload | HigherOrderOperator, result: Any, arrays: Sequence[Any]) -> None:
        for leaf in tree_leaves(result):
            if arrays and leaf is not None and not _core.is_array(leaf):
                raise DataDependentError(
                    f"{func.name}: the result {leaf!r} is no array, and depends on the arguments of the trace: it "
                    f"would be the same in every run of the graph (at {caller_site()})\n"
                    "return a 0-d array, or call the operator before tracing and pass the number as an argument"
                )

    def _data_dependent(self, what: str, value: Any) -> DataDependentError:
        return DataDependentError(
            f"make_fx: {self._node_of(value).name}, which depends on the arguments of the trace, was used as {what}, "
            f"which would be the same in every run of the graph (at {caller_site()})\n"
            "stay with operators: ops.np.where(condition, a, b) for `if`, np.stack for np.array, func on plain Tensors "
            "for super().__pydispatch__; or compute it before tracing and pass it as an argument"
        )

    # results

    def _bind(self, value: Any, node: Node, checks: _ResultChecks) -> Any:
        """The result for the traced function: Tensors in place of arrays, each with a node."""
        if _core.is_array(value):
            node.meta["val"] = _spec(value)
            return self._bind_array(value, node, checks)
        node.meta["val"] = spec_of(value)
        if isinstance(value, (list, tuple)):
            return tuple([self._bind_item(item, node, i, checks) for i, item in enumerate(value)])
        if isinstance(value, dict):
            return {key: self._bind_item(item, node, key, checks) for key, item in value.items()}
        if isinstance(value, np.random.Generator):
            self._objects[id(value)] = value, node
        return value

    def _bind_item(self, value: Any, node: Node, key: Any, checks: _ResultChecks) -> Any:
        if value is None:
            return None
        item = self.graph.call_function(operator.getitem, (node, key))
        item.meta["site"] = node.meta["site"]
        return self._bind(value, item, checks)

    def _bind_array(self, value: Any, node: Node, checks: _ResultChecks) -> Any:
        for array in checks.written:
            if value is array:
                self._track(value, node)
                return value
        result = value if isinstance(value, Tensor) else Tensor(value)
        array = _core.bottom_array(result)
        if id(array) in self._nodes and _has_views(array):
            result = ops.np.getitem(result, Ellipsis)       # an argument itself, or detached, but with another node
            array = _core.bottom_array(result)
        self._nodes[id(array)] = array, node
        if checks.known:
            self._known.add(id(array))
        if not checks.lies_in_passed(array):
            self._made.add(id(_owner(array)))
        if type(result) is not FakeTensor and _desugars(result):
            self._subclass_nodes[id(result)] = result
        return result

    def _track(self, value: Any, node: Node) -> None:
        array = bottom_of(value)
        self._nodes[id(array)] = array, node

    def _array_of(self, value: Any) -> Any:
        """The array that identifies a value. The tape saves the memory of a fake in its place."""
        array = _core.bottom_array(value) if isinstance(value, Tensor) else value
        if id(array) in self._nodes or not isinstance(array, Shell) or id(array.base) not in self._nodes:
            return array
        base: Any = array.base
        return base if (base.shape, base.dtype) == (array.shape, array.dtype) else array

    # values

    def _replaced(self, value: Any) -> Any:
        """The literal or node that replaces an argument in the graph."""
        if isinstance(value, Tensor):
            return self._node_of(value)
        if is_literal(value):
            return value
        return self._node_of(value) if _core.is_array(value) else self._object(value)

    def _object(self, value: Any) -> Node:
        """The node of a value that is neither an array nor a literal; it is passed on unchanged."""
        if id(value) not in self._objects:
            self._objects[id(value)] = value, self.graph.add_constant(value, "object")
        return self._objects[id(value)][1]

    def _node_of(self, value: Any) -> Node:
        return self._node_for(value, self._array_of(value))

    def _node_for(self, value: Any, array: Any) -> Node:
        """The node of a value that this array identifies."""
        known = self._nodes.get(id(array))
        if known is not None:
            return known[1]
        constant = self._constants.get(id(array))
        if constant is None or not (constant.copied or constant.is_as_it_was()):
            constant = self._add_constant(array)
        if isinstance(value, Tensor) and value.requires_grad:
            constant.node.meta["requires_grad"] = True
        if self._fake_mode is not None and (type(value) is Tensor or not isinstance(value, Tensor)):
            constant.add_fake(self._fake_mode.from_array(value))
        return constant.node

    def _add_constant(self, array: Any) -> _Constant:
        owner = _owner(array)
        if id(array) in self._hidden:
            raise DispatchTypeError(
                f"make_fx: what the argument {self._hidden[id(array)]} holds was used by itself; it would become a "
                "constant\npass the arrays that the argument holds to the traced function, and make the object there"
            )
        if isinstance(array, Shell):
            raise DataDependentError(
                f"make_fx: a FakeTensor from elsewhere was used; it would become a constant, and has no data "
                f"(at {caller_site()})\npass it as an argument"
            )
        if id(owner) in self._made:
            raise DataDependentError(
                "make_fx: an array that NumPy made from a traced value was used; it would become a constant (at "
                f"{caller_site()})\n"
                "use the Tensors that operators return, not their .array"
            )
        if any(constant.copied and constant.lies_in(owner) for constant in self._constants.values()):
            raise _overlap_error()
        snapshot = array
        if isinstance(array, np.ndarray):       # a subclass of another backend, such as a masked array, stays one
            snapshot = np.array(array, subok=device_of(array) != "CPU")
        node = self.graph.add_constant(snapshot)
        node.meta["val"] = spec_of(array)
        self._constants[id(array)] = constant = _Constant(node, array, snapshot)
        return constant

    def _note_write(self, value: Any, known: bool) -> None:
        owner = _owner(bottom_of(value))
        if not known:
            self._overwritten.add(id(owner))
        constants = [constant for constant in self._constants.values() if constant.lies_in(owner)]
        if len(constants) > 1:
            raise _overlap_error()
        for constant in constants:
            constant.copied = True
            if not known:
                self._overwritten.add(id(_owner(constant.array)))

    def _is_known(self, value: Any) -> bool:
        """Is it the same in every run of the graph: a constant, or computed from constants only?"""
        return self._is_array_known(self._array_of(value))

    def _is_array_known(self, array: Any) -> bool:
        """`_is_known` of a value that this array identifies."""
        if self._overwritten and id(_owner(array)) in self._overwritten:
            return False
        return id(array) in self._known or id(array) not in self._nodes


class _ResultChecks:
    """What results are compared with: arguments that were written to, and arrays that were passed."""

    __slots__ = ("known", "passed", "written")

    def __init__(self, written: Sequence[Any], passed: Sequence[Any], known: bool) -> None:
        self.written, self.passed, self.known = written, passed, known

    def lies_in_passed(self, array: Any) -> bool:
        """Does a result that has no node lie in the memory of an array that was passed?"""
        if type(array) is Shell and array.base is None:
            return False
        owner = _owner(array)
        return any(_owner(bottom_of(value)) is owner for value in self.passed)


def _spec(value: Any) -> Any:
    """`spec_of`, quick for the fakes that most values are."""
    return value.kind.spec if type(value) is FakeTensor else spec_of(value)


def _overlap_error() -> AliasingError:
    return AliasingError(
        "make_fx: two captured arrays share memory, and the traced function writes to one of them (at "
        f"{caller_site()})\n"
        "pass them as arguments, or take the parts with operators from one Tensor"
    )


def _untracked(value: Any) -> Any:
    return _core.detach_at(value, None) if type(value) is Tensor else value


def _arrays_held_by(value: Any) -> list[Any]:
    """The arrays in the attributes of an object of a subclass, at any depth."""
    held = flatten(value)[0] if is_traceable_wrapper(value) else getattr(value, "__dict__", {})
    arrays = [part for part in held.values() if _core.is_array(part)]
    return [array for part in arrays for array in (bottom_of(part), *_arrays_held_by(part))]


def _owner(array: Any) -> Any:
    """The array that owns the memory of another."""
    base = getattr(array, "base", None)
    while base is not None and _core.is_array(base):
        array, base = base, getattr(base, "base", None)
    return array


def _desugars(value: Any) -> bool:
    """Is it an object of a subclass with a handler, other than a fake?"""
    return isinstance(value, Tensor) and value.dispatches_to_python and not isinstance(value, FakeTensor)
