"""`make_fx`: run a function once, and return a graph of the operators that it calls.

The function runs on Tensors, not on proxies. A mode sees each call, runs it, and adds a node to the graph. The mode
recognizes a value by the raw array under all its wrappers. The value may therefore be detached, saved on a tape, or
wrapped by a transform on its way to the next call.
"""

from __future__ import annotations

import contextvars
import inspect
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import starmap
from types import FunctionType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import ActiveMode, MetaArray, OpOverload, Shell, Tensor, Wrapper
from pydispatch._registry.backends import is_like_numpy
from pydispatch._registry.conversions import user_call, way_instead, written_in_trace
from pydispatch._registry.tables import has_state
from pydispatch._sites import CallerSites, caller_site
from pydispatch.autograd.captures import in_reach, sources_in_reach, tensors_in_reach
from pydispatch.autograd.function import FunctionCall
from pydispatch.autograd.randomness import bits_of, for_another_context, generator_here, note_state_of, sources
from pydispatch.autograd.residuals import watching_copies
from pydispatch.autograd.values import bottom_of
from pydispatch.autograd.views import needs_memory
from pydispatch.exceptions import (
    AliasingError,
    AutogradError,
    DataDependentError,
    DispatchTypeError,
    FunctionalizationError,
    NoDataError,
    NoKernelError,
)
from pydispatch.func.functions import TransformedFunction, returned_by
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.higher_order.closures import Derived, Known, abstract_run_of, metas_of
from pydispatch.modes import DispatchMode
from pydispatch.operators.declare import PACKS
from pydispatch.operators.meta import view_of
from pydispatch.ops import ops
from pydispatch.schema.fitting import signature_of
from pydispatch.subclasses import flatten, is_traceable_wrapper
from pydispatch.tensor import read_only
from pydispatch.tracing.arguments import naming_the_call, written_arrays
from pydispatch.tracing.effects import OperatorEffects, effects_of, makes_other_numbers
from pydispatch.tracing.fake import FakeMode, FakeTensor
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.interpreting import GraphInterpreter
from pydispatch.tracing.literals import PLAIN_TYPES, is_literal
from pydispatch.tracing.rewriting import eliminate_dead_code
from pydispatch.tracing.shapes import has_shape_of_data
from pydispatch.tracing.sources import Sources
from pydispatch.tracing.targets import name_of
from pydispatch.tracing.values import ArraySpec, check_shape, device_of, map_values, spec_of
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Decompositions = Mapping[OpOverload, Callable[..., Any]]

TRACING_MODES = ("real", "fake")

PARAMETERS = "__pydispatch_parameters__"
"""The attribute in which a function of this package has the names of its parameters."""


def make_fx(
    f: Callable[..., Any], *, tracing_mode: str = "real", decompositions: Decompositions | None = None,
    check_shapes: bool = True,
) -> Callable[..., Graph]:
    """Return a function that traces `f`: `make_fx(f)(*args)` calls `f(*args)` and returns the Graph of the call.

    The graph holds the operators that were called: one branch of each `if`, each iteration of a loop. Numbers, None and
    strings among the arguments are part of the graph, which raises an error for other values of them. Captured arrays
    become constants, with the values that they had when they were used. A captured value of an enclosing transform or
    trace stays one. A captured numpy.random.Generator is shared. The call of a Function is one node, which keeps its
    derivative.

    Parameters
    ----------
    f : callable
        A function that receives Tensors for arrays. Arguments and results may be pytrees.
    tracing_mode : {"real", "fake"}, optional
        With "fake" nothing is computed: `f` receives arrays that have a shape and a dtype but no data.
    decompositions : mapping, optional
        Functions that are traced instead of operators, by operator. See `get_decompositions`.
    check_shapes : bool, optional
        Shapes are also numbers, so the graph accepts only arguments of the traced shapes and dtypes. If the shape of a
        result depends on data, as that of `x[x > 0]`, each run checks it. With False the graph accepts all shapes and
        dtypes. Use that for functions that never read the shape or dtype of an array.

    Returns
    -------
    callable
        A function of the arguments of `f` that returns a Graph. It raises DataDependentError if `f` converts an array
        that depends on its arguments to a number.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch.tracing import make_fx
    >>> graph = make_fx(lambda x: np.sum(x ** 2))(numpy.zeros(2))
    >>> print(graph.code)
    def forward(x_1):
        square = ops.np.square(x_1);  x_1 = None
        sum_1 = ops.np.sum(square);  square = None
        return sum_1
    >>> graph(numpy.array([1.0, 2.0]))
    np.float64(5.0)
    """
    if tracing_mode not in TRACING_MODES:
        raise DispatchTypeError(f"make_fx: argument tracing_mode is {tracing_mode!r}, expected 'real' or 'fake'\n"
                                "pass tracing_mode='fake' to trace without computing")
    table = dict(decompositions or {})
    for key in table:
        if not isinstance(key, OpOverload):
            raise DispatchTypeError(f"make_fx: a key of argument decompositions is {key!r}, expected an OpOverload\n"
                                    "pass the overload: {ops.np.square.default: function}")

    @returned_by(make_fx, f, tracing_mode=tracing_mode, decompositions=decompositions, check_shapes=check_shapes)
    def traced(*args: Any) -> Graph:
        sources = Sources("make_fx", in_reach((f, *tree_leaves(args))))
        with naming_the_call("make_fx(f)", f, args, {}):
            return graph_of_call(f, args, tracing_mode == "fake", table, check_shapes, sources=sources)

    return traced


def graph_of_call(
    f: Callable[..., Any], args: tuple[Any, ...], fakes: bool, decompositions: Decompositions | None = None,
    check_shapes: bool = True, keeps_functions: bool = True, is_body: bool = False, roots: Any = None,
    are_new: bool = False, sources: Sources | None = None,
) -> Graph:
    """Return the graph of `f(*args)`, as `make_fx` documents. For fakes, nothing is computed.

    A graph that `keeps_functions` has one node for each call of a Function, which keeps its derivative. Any other graph
    has the operators that forward calls. A part of another trace gets its `roots`: see `_check_source`. If the
    arguments `are_new`, no function can capture them, so the trace uses them without making aliases. Only operators may
    change the `sources`.
    """
    leaves, in_spec = tree_flatten(args)
    names = _leaf_names(f, args)
    inputs = list(leaves) if are_new else _own_values(leaves, names)
    if not fakes:
        _check_captures(f, leaves, inputs, names)
    fake_mode = _fake_mode_of(inputs) if fakes else None
    is_active = fake_mode is None or fake_mode in _core.active_modes()
    if fake_mode is not None:
        # an enclosing trace knows only the results of operators
        as_fake = ops.np.zeros_like if is_active else fake_mode.from_array
        inputs = [as_fake(value) if _core.is_array(value) and type(value) is not FakeTensor else value
                  for value in inputs]
    mode = TraceMode(decompositions or {}, fake_mode, check_shapes, keeps_functions, roots or (f, leaves))
    mode.sources = sources
    for name, value in zip(names, inputs, strict=True):
        mode.add_placeholder(name, value)
    with sources or nullcontext(), nullcontext() if fake_mode is None or is_active else fake_mode, mode:
        result = f(*tree_unflatten(inputs, in_spec))
    graph = mode.finish(result, is_body)
    graph.in_spec, graph.check_shapes = in_spec, check_shapes
    return graph


def _leaf_names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """Return a name for each leaf of the arguments: the name of the parameter and a number, counted from 1."""
    counts: dict[str, int] = {}
    names = []
    for parameter, arg in zip(_parameter_names(f, len(args)), args, strict=True):
        for _ in tree_leaves(arg):
            counts[parameter] = n = counts.get(parameter, 0) + 1
            names.append(f"{parameter}_{n}")
    return names


def _parameter_names(f: Callable[..., Any], n: int) -> list[str]:
    """Return the names of the parameters for `n` positional arguments, or `arg` if the signature is unknown."""
    known = simple_parameters(f)
    if known is not None and len(known) == n:
        return list(known)
    signature = signature_of(f)
    if signature is None:
        return ["arg"] * n
    parameters = signature.parameters.values()
    names = [parameter.name for parameter in parameters
             if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    rest = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL), "arg")
    return (names + [rest] * n)[:n]


def simple_parameters(f: Any) -> Sequence[str] | None:
    """Return the names of a function's parameters if all are positional, or None. `inspect` is much slower.

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
    """Return the leaves, with arrays as Tensors over separate array objects, since one may be passed twice."""
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
                                    f"{type(array).__name__}, which has no views\npass a copy of one")
        seen[id(array)] = names[i]
    return values


def _own_value(leaf: Any) -> Any:
    """Return a Tensor on the memory of an array, because the function may also capture the array itself."""
    if isinstance(leaf, np.ndarray):
        return Tensor(leaf.view())
    if isinstance(leaf, np.generic):
        return _core.wrap_value_at(None, leaf)      # a scalar
    if isinstance(leaf, MetaArray):
        return Tensor(view_of(leaf, leaf.shape, leaf.dtype))
    is_plain = type(leaf) is Tensor and _has_views(_core.bottom_array(leaf))
    if is_plain or isinstance(leaf, (Wrapper, FakeTensor)):
        alias = ops.np.getitem(leaf, Ellipsis)
        if type(alias) is Tensor and alias.requires_grad:
            alias.retain_grad()     # the function may read its gradient, as it may for a leaf
        return _core.to_scalar(alias) if _core.is_scalar(leaf) else alias
    return Tensor(leaf) if _core.is_array(leaf) and not isinstance(leaf, Tensor) else leaf


def _check_captures(f: Any, leaves: Sequence[Any], inputs: Sequence[Any], names: Sequence[str]) -> None:
    """Raise if the function also captures an argument that the trace could not distinguish from it."""
    themselves = {id(leaf): (leaf, name) for leaf, value, name in zip(leaves, inputs, names, strict=True)
                  if value is leaf and isinstance(leaf, Tensor) and not isinstance(leaf, FakeTensor)}
    for captured in tensors_in_reach(f) if themselves else ():
        if id(captured) in themselves:
            leaf, name = themselves[id(captured)]
            raise DispatchTypeError(
                f"make_fx: argument {name} is {_core.a_type(leaf)} that the function also captures\n"
                "pass a copy of it, or use the argument instead of the captured variable"
            )


def _has_views(array: Any) -> bool:
    return isinstance(array, (np.ndarray, MetaArray))


def _fake_mode_of(values: Sequence[Any]) -> FakeMode:
    """Return the mode of the fakes among the values, or the active one, or else a new one."""
    fakes = (value.fake_mode for value in values if isinstance(value, FakeTensor))
    active = (mode for mode in _core.active_modes() if isinstance(mode, FakeMode))
    return next(fakes, None) or next(active, None) or FakeMode(allow_real_inputs=True)


class _Constant:
    """An array that the traced function captures: its node, the array, and a copy of its values at that time.

    `value` is the Tensor itself if the constant is a value of an enclosing level, and must stay one.
    """

    __slots__ = ("array", "copied", "fakes", "node", "snapshot", "value", "version")

    def __init__(self, node: Node, array: Any, snapshot: Any, value: Any = None) -> None:
        self.node, self.array, self.snapshot, self.value = node, array, snapshot, value
        self.version = None if value is None else value._version
        self.copied = False     # whether each run of the graph must work on a copy, because something writes to it
        self.fakes: dict[int, FakeTensor] = {}      # by the id of their memory: the fake memory that replaces it

    def lies_in(self, owner: Any) -> bool:
        return _owner(self.array) is owner or id(owner) in self.fakes

    def add_fake(self, fake: FakeTensor) -> None:
        self.fakes[id(_owner(fake.array))] = fake

    def is_as_it_was(self) -> bool:
        if self.value is not None:
            return bool(self.value._version == self.version)
        if not isinstance(self.array, np.ndarray):
            return True
        return bool(self.array.tobytes() == self.snapshot.tobytes())


ITEM = ops.np.item.default
ONLY_FAKES = (FakeTensor,)
CANNOT_TRACE = (DataDependentError, NoKernelError, AutogradError, FunctionalizationError)
"""The errors of functions that need data, or the memory of arrays."""


class TraceMode(DispatchMode):
    """The mode that adds a node for each operator, and stores the known facts about the values that it has seen."""

    _follows_tensors = True
    _knows_bodies = True

    def __init__(
        self, decompositions: Decompositions, fake_mode: FakeMode | None, check_shapes: bool, keeps_functions: bool,
        roots: Any,
    ) -> None:
        around = _core.active_modes()
        self._is_nested = any(isinstance(mode, (TraceMode, FakeMode)) for mode in around)
        self._fake_modes = {mode for mode in (*around, fake_mode) if isinstance(mode, FakeMode)}
        self._records_functions = keeps_functions
        self.graph = Graph()
        self._check_shapes = check_shapes
        self._fake_mode = fake_mode
        self._compares_shapes = check_shapes and fake_mode is None      # those of results that depend on data
        self.decompositions = decompositions
        self._nodes: dict[int, tuple[Any, Node]] = {}       # by the id of an array: the array, and its node
        self._constants: dict[int, _Constant] = {}          # by the id of an array, or of a value of a level
        self._objects: dict[int, tuple[Any, Node]] = {}     # by `_identity` of an object that is not an array
        self._roots = roots                     # the traced function and its arguments
        self._since = _core.next_number()
        self._sites = CallerSites()
        self._known: set[int] = set()           # ids of arrays that were computed only from constants
        self._constant_calls: set[Node] = set()     # that depend on no argument
        self._values: dict[Node, Any] = {}      # of constants, as far as they were needed: up to `_last_run`
        self._last_run: Node | None = None
        self._overwritten: set[int] = set()     # ids of owners of memory to which unknown values were written
        # by id: owners of memory, and weak references to the arrays that NumPy has of it, and where they were made
        self._given_out: dict[int, tuple[Any, list[tuple[Any, str]]]] = {}
        self._made: set[int] = set()            # ids of owners of memory that operators have made
        self._subclass_nodes: dict[int, Tensor] = {}     # by id: subclass objects that have nodes themselves
        self._hidden: dict[int, str] = {}       # by the id of an array: the placeholder that holds it
        self._is_open = True                    # whether the nodes show everything that derivatives need
        self.sources: Sources | None = None     # that only operators may change
        self._inlined = ""                      # a Function of which the graph has the operators, not the derivative

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
        if isinstance(value, FakeTensor):
            self._fake_modes.add(value.fake_mode)
        if _desugars(value):
            self._subclass_nodes[id(value)] = value
            self._hidden.update((id(array), name) for array in _arrays_held_by(value))

    def _add_generator(self, generator: np.random.Generator, node: Node) -> None:
        """Record draws from this generator as draws from the argument of the graph."""
        known = self._objects.get(_identity(generator))
        if known is not None:
            raise DispatchTypeError(
                f"make_fx: arguments {known[1].name} and {node.name} are the same Generator, so "
                "draws from one cannot be distinguished from draws from the other\npass it once"
            )
        self._objects[_identity(generator)] = generator, node

    def finish(self, result: Any, is_body: bool = False) -> Graph:
        """Return the graph that returns `result` in its structure. If `is_body`, it may become a body: see `Graph`."""
        self.graph.output(map_values(self._output, result))
        for constant in self._constants.values():
            if constant.copied:
                self._put_copy_behind(constant.node)
        output = self.graph.output_node
        self.graph.is_body = is_body and self._is_open and output is not None and type(output.args[0]) is tuple and all(
            isinstance(node, Node) and isinstance(node.meta.get("val"), ArraySpec)
            for node in (*output.args[0], *self.graph.placeholders))
        return self.graph

    def _output(self, value: Any) -> Any:
        if not _core.is_array(value):
            return self._replaced(value)
        if _desugars(value) and id(value) not in self._subclass_nodes:
            raise DispatchTypeError(
                f"make_fx: the function returns {_core.a_type(value)}, whose handler defines the operators on it\n"
                "return the arrays that it holds, and make the object outside"
            )
        if self._inlined and _core.is_tracked_at(value, None):
            raise AutogradError(
                f"{self._inlined} is used under make_fx, but its forward takes ctx, and the graph would lose its "
                "derivative: override setup_context\ndefine forward(*args) and setup_context(ctx, inputs, output) "
                "separately")
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
        state = _core.current_state()
        if not state.grad or not state.forward or state.inference:
            self._is_open = False
        if (types != ONLY_FAKES or self._fake_mode is None) and not self._takes(func, types, args, kwargs):
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
            with self._draws():
                return self._record_higher_order(func, args, kwargs)
        effects = effects_of(func)
        if self.sources is None or effects.is_repeatable:
            return self._record(func, effects, args, kwargs)
        with self._draws():
            return self._record(func, effects, args, kwargs)

    def on_conversion(self, tensor: Tensor, what: str) -> Any:
        """Return the array of a constant without data. Raise for a value that depends on the arguments.

        Results of NumPy would become constants.
        """
        if not self._is_known(tensor):
            raise self._data_dependent(what, tensor)
        return self._computed(tensor, what) if isinstance(bottom_of(tensor), Shell) else None

    def on_given_out(self, tensor: Tensor, reference: weakref.ref[Any]) -> None:
        """Note an array that NumPy has of a constant."""
        owner = _owner(bottom_of(tensor))
        self._given_out.setdefault(id(owner), (owner, []))[1].append((reference, caller_site()))

    def follows(self, tensor: Tensor) -> bool:
        """Return whether a value depends on the arguments of the trace."""
        return not self._is_known(tensor)

    def on_no_dispatch(self) -> None:
        """Raise if the mode is disabled. All values computed meanwhile would become constants."""
        raise DataDependentError(
            "make_fx: no_dispatch() in a traced function would disable the trace, and results computed inside it "
            "would become constants of the graph\nremove the block, or compute the results before the trace"
        )

    def _takes(self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether the call itself is traced.

        Calls with subclass objects made in the trace are not: their handlers run first. Neither are calls with fakes of
        a nested trace, whose values are used only there.
        """
        if not types:
            return True
        if any(isinstance(leaf, FakeTensor) and leaf.fake_mode not in self._fake_modes
               for leaf in tree_leaves((args, kwargs))):
            return False
        if all(issubclass(cls, FakeTensor) for cls in types):
            return True
        objects = [leaf for leaf in tree_leaves((args, kwargs)) if _desugars(leaf)]
        with_nodes = [value for value in objects if id(value) in self._subclass_nodes]
        if with_nodes and len(with_nodes) < len(objects):
            made = next(value for value in objects if id(value) not in self._subclass_nodes)
            raise DispatchTypeError(
                f"{func.name}: found {_core.a_type(with_nodes[0])} that is an argument of the trace and "
                f"{_core.a_type(made)} that was made in it\n"
                "pass the arrays that the argument holds to the traced function, and make the object there"
            )
        return len(with_nodes) == len(objects)

    def _record(
        self, func: OpOverload, effects: OperatorEffects, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not effects.is_repeatable and has_state(func.schema, func.tags):
            self._is_open = False
        nodes = self._nodes
        arrays: list[Any] = []
        identified: list[Any] = []      # the arrays that identify them
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

        if effects.writes:
            for scalar in filter(_core.is_scalar, written_arrays(func, args, kwargs)):
                self._make_array(scalar)
        # first, to get the constants before the call writes to them
        node_args = map_values(replaced, args, lists=tuple)
        node_kwargs = map_values(replaced, kwargs, lists=tuple) if kwargs else {}
        known = effects.is_repeatable and all(map(self._is_array_known, identified))
        written: Sequence[Any] = ()
        if effects.writes:
            written = written_arrays(func, args, kwargs)
            for array in written:
                self._note_write(array, known)
        try:
            if effects.writes:
                with watching_copies(self._note_copy):
                    result = func(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
        except DataDependentError:
            # the bounds of a slice may be values of transforms
            values = {id(value): self._computed(value, "data")[()] for value in arrays
                      if isinstance(bottom_of(value), Shell) and self._is_known(value)
                      and all(value is not array for array in written)}
            if not values:
                raise
            return self._record(func, effects, *map_values(lambda value: values.get(id(value), value), (args, kwargs)))
        if not known and not _core.is_array(result):
            self._refuse_numbers(func, result, arrays)
        node = self.graph.add_call(func, node_args, node_kwargs, inputs)
        if known:
            self._constant_calls.add(node)
            if any(id(_owner(bottom_of(array))) in self._given_out for array in written):
                contextvars.Context().run(self._run_constants)      # NumPy arrays see the write
        node.meta["site"] = self._sites.find(2)
        checks = _ResultChecks(written, arrays, known)
        if self._compares_shapes and not known:
            checks.shapes = has_shape_of_data(func, args, kwargs, self._is_known)
        return self._bind(result, node, checks)

    def _record_higher_order(
        self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Add one node whose functions are graphs, traced without data where possible."""
        arrays = [leaf for leaf in tree_leaves((args, kwargs)) if _core.is_array(leaf)]
        functions = {} if func.examples is None else func.examples(*args, **kwargs)
        graphs = {i: self.subgraph(args[i], examples) for i, examples in functions.items()}
        self._is_open = self._is_open and all(graph.is_body for graph in graphs.values())
        names = _parameter_names(func.examples or func, len(args))
        generators = self._lifted_generators(list(graphs.values()))
        node_args = tuple([
            self.graph.add_constant(graphs[i], names[i]) if i in graphs else map_values(self._replaced, arg)
            for i, arg in enumerate(args)
        ])
        if generators:
            assert func.captures is not None
            with_generators: list[Any] = list(node_args)
            with_generators[func.captures] = (*with_generators[func.captures], *generators)
            node_args = tuple(with_generators)
        node_kwargs = map_values(self._replaced, kwargs)
        if self._fake_mode is not None:         # the graphs describe the results of the functions
            args = tuple([_as_known(arg, graphs[i], functions[i]) if i in graphs else arg
                          for i, arg in enumerate(args)])
        result = func(*args, **kwargs)
        self._refuse_numbers(func, result, arrays)
        node = self.graph.call_function(func, node_args, node_kwargs)
        node.meta["site"] = caller_site()
        return self._bind(result, node, _ResultChecks((), arrays, False))

    @contextmanager
    def _draws(self) -> Iterator[None]:
        """Record a call that may change the sources of random numbers."""
        if self.sources is not None:
            self.sources.check()
        yield
        if self.sources is not None:
            self.sources.note()

    def _record_function(self, call: FunctionCall, args: tuple[Any, ...]) -> Any:
        """Add one node for a call of a Function, which keeps its derivative."""
        self._is_open = False
        arrays = [leaf for leaf in tree_leaves(args) if _core.is_array(leaf)]
        node_args = map_values(self._replaced, args)
        versions = [leaf._version if isinstance(leaf, Tensor) else 0 for leaf in arrays]
        untracked = {id(leaf): _core.detach_at(leaf, None) for leaf in arrays if _core.is_tracked_at(leaf, None)}
        originals = {id(untracked[id(leaf)]): leaf for leaf in arrays if id(leaf) in untracked}
        with self._draws(), watching_copies(self._note_copy):
            result = call(*tree_map(lambda leaf: untracked.get(id(leaf), leaf), args))
        result = tree_map(lambda leaf: originals.get(id(leaf), leaf), result)
        written = [leaf for leaf, version in zip(arrays, versions, strict=True)
                   if isinstance(leaf, Tensor) and leaf._version != version]
        for array in written:
            self._note_write(array, known=False)
        call.writes = bool(written)
        self._refuse_numbers(call, result, arrays)
        node = self.graph.call_function(call, node_args)
        node.meta["site"] = caller_site()
        checks = _ResultChecks(written, arrays, False)
        checks.shapes = self._compares_shapes
        if _core.is_array(result) or (type(result) is tuple and all(map(_core.is_array, result))):
            return self._bind(result, node, checks)
        leaves, spec = tree_flatten(result)
        flat = self.graph.call_function(tree_leaves, (node,))
        flat.meta["site"] = node.meta["site"]
        return tree_unflatten(self._bind(leaves, flat, checks), spec)

    def _inlines(self, label: str, args: tuple[Any, ...]) -> bool:
        """Return whether these calls become the operators of forward, because a tape in the trace may differentiate."""
        if not any(_core.is_tracked_at(leaf, None) and self.follows(leaf) for leaf in tree_leaves(args)):
            return False
        self._inlined = self._inlined or label
        return True

    def _lifted_generators(self, graphs: Sequence[Graph]) -> list[Node]:
        """Return the nodes of the generators that graphs capture, which become their last arguments.

        The generators may be made in each run of this graph, or be arguments of it.
        """
        found = {id(value): value for graph in graphs for value in graph.constants.values()
                 if isinstance(value, np.random.Generator)}
        for graph in graphs:
            for node in graph.nodes:
                if makes_other_numbers(node):
                    note_state_of(name_of(node.target))
            names = {id(value): name for name, value in graph.constants.items()}
            with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
                arguments = [graph.placeholder("generator") for _ in found]
            for key, argument in zip(found, arguments, strict=True):
                for node in graph.find_nodes(op="get_attr", target=names.get(key)) if key in names else ():
                    node.replace_all_uses_with(argument)
                    graph.erase_node(node)
                graph.constants.pop(names.get(key, ""), None)
            graph.in_spec = None
        with self:
            meant = list(map(generator_here, found.values()))
        return list(map(self._object, meant))

    def subgraph(self, function: Callable[..., Any], examples: tuple[Any, ...]) -> Graph:
        """Return the graph of a function that was passed to an operator."""
        abstract = abstract_run_of(function)
        if abstract is not None and not self.decompositions and metas_of(examples) == abstract.examples:
            known = function if isinstance(function, Graph) else getattr(function, "graph", None)
            if known is not None:
                return known
        fake_mode = self._fake_mode or FakeMode(allow_real_inputs=True)
        try:
            graph = self._traced_without_data(function, [self._fake_argument(fake_mode, each) for each in examples])
        except CANNOT_TRACE as error:
            is_of_writes = isinstance(error, (AutogradError, FunctionalizationError))
            if self._fake_mode is not None or (is_of_writes and not needs_memory(error)):
                raise
            return graph_of_call(
                function, examples, False, self.decompositions, self._check_shapes, self._records_functions,
                roots=self._roots)
        if isinstance(function, Derived) and graph.is_body and not self.decompositions:
            function.graph = graph
        return graph

    def _body_of(self, function: Any) -> Any:
        """Return the graph of a function that is passed to an operator, if it does the same at every interpreter.

        Then neither the operator nor its derivatives run the function again.
        """
        abstract, examples = abstract_run_of(function), function.examples
        if abstract is None or self.decompositions or any(
                device_of(example) not in ("CPU", "Meta") for example in examples):
            return function
        fake_mode = self._fake_mode or FakeMode(allow_real_inputs=True)
        fakes = [_core.to_scalar(fake) if _core.is_scalar(example) else fake
                 for fake, example in zip(starmap(fake_mode.new_fake, abstract.examples), examples, strict=True)]
        try:
            graph = self._traced_without_data(function, fakes)
        except CANNOT_TRACE:
            return function
        if graph.is_body:
            return graph
        function.graph = graph          # for a call that this trace sees unchanged
        return function

    def _traced_without_data(self, function: Callable[..., Any], fakes: Sequence[Any]) -> Graph:
        graph: Graph = contextvars.Context().run(
            for_another_context(graph_of_call), function, tuple(fakes), True, self.decompositions, self._check_shapes,
            self._records_functions, True, self._roots)
        if graph.is_body:
            eliminate_dead_code(graph)
            graph.is_body = True        # although it has been edited
        return graph

    def inline(self, graph: Graph, args: Sequence[Any]) -> Any:
        """Call another graph, whose nodes become nodes of this one."""
        return _Inlining(graph, self.graph).run(*args)

    def known_node(self, value: Any) -> Node | None:
        """Return the node of a value that is the same in every run of the graph, or None for any other value."""
        return self._node_of(value) if self._is_known(value) else None

    def _fake_argument(self, fake_mode: FakeMode, example: Any) -> Any:
        """Return a fake for an argument of a function. It is new, since the function may capture the example itself."""
        if type(example) is FakeTensor:
            return FakeTensor(example.kind, fake_mode)
        return fake_mode.from_array(_core.detach_at(example, None) if type(example) is Tensor else example)

    def _note_copy(self, value: Any, copy: Any) -> None:
        """Add a node for the copy that the tape, below all modes, keeps of a value before it is overwritten."""
        node = self.graph.call_function(ops.np.copy.default, (self._node_of(value),))
        node.meta.update(site=caller_site(), val=spec_of(copy))
        self._track(copy, node)

    def _make_array(self, scalar: Any) -> None:
        """Add a node that turns a scalar into an array for code that writes to it.

        Such code follows the array API standard, which has no scalars.
        """
        node = self.graph.call_function(ops.np.copy.default, (self._replaced(scalar),))
        node.meta.update(site=caller_site(), val=replace(spec_of(scalar), is_scalar=False))
        self._track(scalar, node)

    def _number(self, value: Any) -> Any:
        if not self._is_known(value):
            raise self._data_dependent("a Python number", value)
        array = bottom_of(value)
        if isinstance(array, np.ndarray) and not self._is_of_a_level(value):
            return array.item()
        try:
            return ops.np.item(value)
        except DataDependentError:
            return self._computed(value, "a Python number").item()

    def _computed(self, value: Any, what: str) -> np.ndarray[Any, Any]:
        """Return the array of a constant, by running the nodes that depend on no argument of the trace.

        They run in order, each once, so that writes to their memory are seen.
        """
        wanted = self._node_of(value)
        contextvars.Context().run(self._run_constants)
        if wanted not in self._values:
            raise NoDataError(f"{wanted.name} was used as {what}, but has no values in a trace without data, such as "
                              f"that of compile (at {caller_site()})\n"
                              "compute it before tracing, or in the function that uses it")
        return read_only(np.asarray(self._values[wanted]))

    @np.errstate(all="ignore")      # the graph's own run warns
    def _run_constants(self) -> None:
        """Run the nodes since the last call that depend on no argument of the trace."""
        node = self.graph.first if self._last_run is None else self._last_run.next
        while node is not None:
            self._last_run = node
            constant = self.graph.constants.get(str(node.target)) if node.op == "get_attr" else None
            if isinstance(constant, (np.ndarray, np.generic)):
                self._values[node] = constant.copy()
            elif callable(node.target) and (node in self._constant_calls or node.target is operator.getitem) and all(
                    used in self._values for used in node.all_input_nodes):
                args, kwargs = map_values(
                    lambda item: self._values[item] if isinstance(item, Node) else item, (node.args, node.kwargs))
                self._values[node] = node.target(*args, **kwargs)
            node = node.next

    def _refuse_numbers(
        self, func: OpOverload | HigherOrderOperator | FunctionCall, result: Any, arrays: Sequence[Any]
    ) -> None:
        for leaf in tree_leaves(result):
            if arrays and leaf is not None and not _core.is_array(leaf) and not isinstance(leaf, np.random.Generator):
                raise DataDependentError(
                    f"{func.name}: the result {leaf!r} is not an array but depends on the arguments of the trace: "
                    f"every run of the graph would repeat it (at {caller_site()})\n"
                    "return a 0-d array, or call the operator before tracing and pass the number as an argument"
                )

    def _data_dependent(self, what: str, value: Any) -> DataDependentError:
        call = user_call()
        if call.written:
            return DataDependentError(written_in_trace(call))
        return DataDependentError(
            f"make_fx: {self._node_of(value).name}, which depends on the arguments of the trace, was used as {what}: "
            f"every run of the graph would repeat its value (at {call.place})\n"
            f"{way_instead(what, call, is_batch=False)}. A constant: compute it before tracing, and pass it as an "
            "argument"
        )

    # results

    def _bind(self, value: Any, node: Node, checks: _ResultChecks) -> Any:
        """Return the result for the traced function: Tensors for arrays, each with a node."""
        if _core.is_array(value):
            node.meta["val"] = _spec(value)
            return self._bind_array(value, node, checks)
        node.meta["val"] = spec_of(value)
        if isinstance(value, (list, tuple)):
            return tuple([self._bind_item(item, node, i, checks) for i, item in enumerate(value)])
        if isinstance(value, dict):
            return {key: self._bind_item(item, node, key, checks) for key, item in value.items()}
        if isinstance(value, np.random.Generator):
            self._objects[_identity(value)] = value, node
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
        if checks.shapes:
            maker = node.args[0] if node.target is operator.getitem else node
            check = self.graph.call_function(check_shape, (node, name_of(maker.target), tuple(result.shape)))
            check.meta["site"] = node.meta["site"]
        if checks.known:
            self._known.add(id(array))
        if type(array) is Shell and array.base is None:
            self._made.add(id(array))
        elif not checks.lies_in_passed(array):
            self._made.add(id(_owner(array)))
        if type(result) is not FakeTensor and _desugars(result):
            self._subclass_nodes[id(result)] = result
        return result

    def _track(self, value: Any, node: Node) -> None:
        array = bottom_of(value)
        self._nodes[id(array)] = array, node

    def _array_of(self, value: Any) -> Any:
        """Return the array that identifies a value. The tape may save the memory of a fake instead of the fake."""
        array = _core.bottom_array(value) if isinstance(value, Tensor) else value
        if id(array) in self._nodes or not isinstance(array, Shell) or id(array.base) not in self._nodes:
            return array
        base: Any = array.base
        return base if (base.shape, base.dtype) == (array.shape, array.dtype) else array

    # values

    def _replaced(self, value: Any) -> Any:
        """Return the literal or node that replaces an argument in the graph."""
        if isinstance(value, Tensor):
            return self._node_of(value)
        if is_literal(value):
            return value
        return self._node_of(value) if _core.is_array(value) else self._object(value)

    def _object(self, value: Any) -> Node:
        """Return the node of a value that is neither an array nor a literal, and is passed on unchanged."""
        key = _identity(value)
        if key not in self._objects:
            if isinstance(value, sources()):
                self._check_source(value)
            self._objects[key] = value, self.graph.add_constant(value, "object")
        return self._objects[key][1]

    def _check_source(self, value: Any) -> None:
        """Raise if the traced function itself made this source of random numbers, and would make another each time.

        The trace knows those made by an operator, from a seed. A SeedSequence of a seed is the same each time.
        """
        if isinstance(value, np.random.Generator) and getattr(value, "_number", self._since) < self._since:
            return
        if any(_identity(each) == _identity(value) for each in sources_in_reach(self._roots, PACKS)):
            return
        if isinstance(value, np.random.SeedSequence) and not _is_fresh(value, sources_in_reach(self._roots, PACKS)):
            return
        raise DispatchTypeError(
            f"make_fx: the traced function made {_core.a_type(value)} in a way that the trace does not record, so "
            f"every run of the graph would continue with this one (at {caller_site()})\n"
            "make generators with np.random.default_rng(seed) of pydispatch.numpy, where seed is a number or omitted, "
            "or make them outside and pass them as arguments")

    def _node_of(self, value: Any) -> Node:
        return self._node_for(value, self._array_of(value))

    def _node_for(self, value: Any, array: Any) -> Node:
        """Return the node of a value that this array identifies."""
        known = self._nodes.get(id(array))
        if known is not None:
            return known[1]
        is_of_a_level = self._is_of_a_level(value)
        key = id(value) if is_of_a_level else id(array)     # two values of levels may share one array
        constant = self._constants.get(key)
        if constant is None or not (constant.copied or constant.is_as_it_was()):
            constant = self._constants[key] = self._add_constant(array, value if is_of_a_level else None)
        if isinstance(value, Tensor) and value.requires_grad:
            constant.node.meta["requires_grad"] = True
        if self._fake_mode is not None and (type(value) is Tensor or not isinstance(value, Tensor)):
            constant.add_fake(self._fake_mode.from_array(value))
        return constant.node

    def _is_of_a_level(self, value: Any) -> bool:
        """Return whether a copy of the raw array of a captured value would lose its level, its node or its history."""
        return isinstance(value, Tensor) and (
            isinstance(value, Wrapper) or value.requires_grad or (self._is_nested and not _desugars(value)))

    def _add_constant(self, array: Any, value: Tensor | None) -> _Constant:
        owner = _owner(array)
        if id(array) in self._hidden:
            raise DispatchTypeError(
                f"make_fx: an array that the argument {self._hidden[id(array)]} holds was used directly and would "
                "become a constant\n"
                "pass the arrays that the argument holds to the traced function, and make the object there"
            )
        if isinstance(array, Shell) and value is None:
            raise DataDependentError(
                f"make_fx: a FakeTensor from outside was used: it would become a constant, but has no data "
                f"(at {caller_site()})\npass it as an argument"
            )
        if isinstance(array, np.ndarray) and array.dtype.hasobject and any(
                isinstance(leaf, Tensor) and self.follows(leaf) for leaf in array.flat):
            raise DataDependentError(
                f"make_fx: an array of objects that holds values of the traced function, of shape {array.shape}, was "
                f"passed to an operator; it would become a constant (at {caller_site()})\n"
                "make an array of numbers of them: np.stack([x, y]) of pydispatch.numpy"
            )
        if id(owner) in self._made:
            raise DataDependentError(
                "make_fx: an array that NumPy made from a traced value was used and would become a constant (at "
                f"{caller_site()})\n"
                "use the Tensors that operators return, not their .array"
            )
        if any(constant.copied and constant.lies_in(owner) for constant in self._constants.values()):
            raise _overlap_error()
        snapshot = array
        if value is not None:
            self._is_open = False
            snapshot = self._copied_outside(value)
        elif isinstance(array, np.ndarray):       # a subclass with other operators, such as a masked array, is kept
            snapshot = np.array(array, subok=device_of(array) != "CPU" or not is_like_numpy(array))
        node = self.graph.add_constant(snapshot)
        node.meta["val"] = spec_of(array if value is None else value)
        return _Constant(node, array, snapshot, value)

    def _copied_outside(self, value: Tensor) -> Any:
        """Copy a value of an enclosing level, at that level, so that derivatives, batches and traces follow it."""
        innermost = _core.current_state().innermost
        if self._fake_mode is not None and isinstance(innermost, ActiveMode) and innermost.mode is self._fake_mode:
            return _core.lowered(innermost, ops.np.copy, value)
        return ops.np.copy(value)

    def _note_write(self, value: Any, known: bool) -> None:
        owner = _owner(bottom_of(value))
        if not known:
            for reference, site in self._given_out.get(id(owner), (None, ()))[1]:
                if reference() is not None:
                    raise DataDependentError(
                        "make_fx: a value that depends on the arguments of the trace was written to memory of which "
                        f"NumPy has an array, made at {site}: its results would become constants\n"
                        "use pydispatch.numpy, or convert a copy: numpy.asarray(x.copy())")
            self._overwritten.add(id(owner))
        constants = [constant for constant in self._constants.values() if constant.lies_in(owner)]
        if len(constants) > 1:
            raise _overlap_error()
        for constant in constants:
            constant.copied = True
            if not known:
                self._overwritten.add(id(_owner(constant.array)))

    def _is_known(self, value: Any) -> bool:
        """Return whether a value is the same in every run: a constant, or computed only from constants."""
        return self._is_array_known(self._array_of(value))

    def _is_array_known(self, array: Any) -> bool:
        """Return whether the value that this array identifies is the same in every run."""
        if self._overwritten and id(_owner(array)) in self._overwritten:
            return False
        return id(array) in self._known or id(array) not in self._nodes


MOST_OF_A_SEED = 1 << 64
"""The entropy that a SeedSequence gets from the system is larger, except for one in 2 ** 64."""


def _identity(value: Any) -> int:
    """Return an id that generators share if they share a stream."""
    return id(bits_of(value)) if isinstance(value, np.random.Generator) else id(value)


def _is_fresh(sequence: Any, reach: Iterable[Any]) -> bool:
    """Return whether each run makes another SeedSequence: from the system's entropy, or from a captured one."""
    entropy, key = sequence.entropy, tuple(sequence.spawn_key)
    parents = (getattr(bits_of(each) if isinstance(each, np.random.Generator) else each, "seed_seq", each)
               for each in reach)
    return (isinstance(entropy, int) and entropy >= MOST_OF_A_SEED) or any(
        isinstance(parent, np.random.SeedSequence) and parent.entropy is entropy
        and len(key) > len(parent.spawn_key) and key[:len(parent.spawn_key)] == tuple(parent.spawn_key)
        for parent in parents)


class _Inlining(GraphInterpreter):
    """Runs a graph in a trace. The new nodes get the sites of the graph's nodes."""

    def __init__(self, graph: Graph, trace: Graph) -> None:
        super().__init__(graph)
        self._trace = trace

    def run_node(self, node: Node) -> Any:
        last = self._trace.last
        result = super().run_node(node)
        made = self._trace.last
        while made is not None and made is not last:
            made.meta["site"] = node.meta.get("site", made.meta.get("site"))
            made = made.prev
        return result


def _as_known(function: Callable[..., Any], graph: Graph, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return a function whose results its graph describes, or the function unchanged if one of them is a constant."""
    assert graph.output_node is not None
    results = [node.meta.get("val") if isinstance(node, Node) else None for node in graph.output_node.args[0]]
    if not all(isinstance(result, ArraySpec) for result in results):
        return function
    return Known(function, examples, results)


class _ResultChecks:
    """The arrays that results are compared with: arguments that were written to, and arrays that were passed."""

    __slots__ = ("known", "passed", "shapes", "written")

    def __init__(self, written: Sequence[Any], passed: Sequence[Any], known: bool) -> None:
        self.written, self.passed, self.known = written, passed, known
        self.shapes = False     # whether each run compares the shapes of results with those of the trace

    def lies_in_passed(self, array: Any) -> bool:
        """Return whether a result that has no node lies in the memory of an array that was passed."""
        owner = _owner(array)
        return any(_owner(bottom_of(value)) is owner for value in self.passed)


def _spec(value: Any) -> Any:
    """Return the `spec_of` a value, quickly for fakes, which most values are."""
    return value.kind.spec if type(value) is FakeTensor and not _core.is_scalar(value) else spec_of(value)


def _overlap_error() -> AliasingError:
    return AliasingError(
        "make_fx: two captured arrays share memory, and the traced function writes to one of them (at "
        f"{caller_site()})\n"
        "pass them as arguments, or make them with operators from one Tensor"
    )


def _arrays_held_by(value: Any) -> list[Any]:
    """Return the arrays in the attributes of an object of a subclass, at any depth."""
    held = flatten(value)[0] if is_traceable_wrapper(value) else getattr(value, "__dict__", {})
    arrays = [part for part in held.values() if _core.is_array(part)]
    return [array for part in arrays for array in (bottom_of(part), *_arrays_held_by(part))]


def _owner(array: Any) -> Any:
    """Return the array that owns the memory of another."""
    base = getattr(array, "base", None)
    while base is not None and _core.is_array(base):
        array, base = base, getattr(base, "base", None)
    return array


def _desugars(value: Any) -> bool:
    """Return whether this is an object of a subclass with a handler, other than a fake."""
    return isinstance(value, Tensor) and value.dispatches_to_python and not isinstance(value, FakeTensor)
