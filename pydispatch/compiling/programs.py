"""Programs: a function for arrays of certain shapes and dtypes as a graph, and the programs derived from it.

A program is traced while no mode or transform is active, so one program serves all interpreters. An interpreter that
needs results for a batch, tangents or gradients uses a separate program, which is traced at first use.
"""

from __future__ import annotations

import contextvars
import gc
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core, func
from pydispatch._core import OpOverload, Tensor
from pydispatch._registry.backends import dtype_of
from pydispatch.autograd.randomness import Draws, SavedDraws, batches_of
from pydispatch.autograd.views import needs_memory
from pydispatch.compiling.compilers import NewResults, compiler_named, takes_threads
from pydispatch.compiling.plan import PlanFunction
from pydispatch.exceptions import (
    AutogradError,
    CompilationError,
    DataDependentError,
    DispatchError,
    FunctionalizationError,
)
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.higher_order.closures import meta_like, unseen
from pydispatch.modes import DispatchMode
from pydispatch.operators.layouts import layout_of
from pydispatch.ops import ops
from pydispatch.tracing import ArraySpec, FakeMode, Graph, Node
from pydispatch.tracing.effects import SharedMemory, effects_of, is_pure, makes_other_numbers, written_nodes
from pydispatch.tracing.numbers import TracedNumber, plain
from pydispatch.tracing.rewriting import eliminate_dead_code
from pydispatch.tracing.sources import Sources
from pydispatch.tracing.targets import name_of
from pydispatch.tracing.trace import PARAMETERS, graph_of_call
from pydispatch.tracing.values import map_values, spec_of
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

Flat = Callable[..., tuple[Any, ...]]
Specs = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
Layouts = tuple[tuple[int, ...] | None, ...]
"""The layouts of arrays in memory: the strides of each, None for C order."""


class GarbageKept:
    """Disables Python's garbage collector, which would go through the graph and the steps again and again.

    Threads that compile at the same time share the state: the last one to end puts it back.
    """

    lock = Lock()
    n_inside = 0
    was_enabled = False

    def __enter__(self) -> None:
        cls = GarbageKept
        with cls.lock:
            if not cls.n_inside:
                cls.was_enabled = gc.isenabled()
                gc.disable()
            cls.n_inside += 1

    def __exit__(self, *_: Any) -> None:
        cls = GarbageKept
        with cls.lock:
            cls.n_inside -= 1
            if not cls.n_inside and cls.was_enabled:
                gc.enable()


class ChosenCompiler(NamedTuple):
    """The compiler of a program, and the number of threads that it may use."""

    name: str
    threads: int = 1

    def compile(self, graph: Graph) -> Callable[..., tuple[Any, ...]]:
        """Compile a graph to a function of raw arrays."""
        lower = compiler_named(self.name)
        if self.threads == 1:
            function: Callable[..., tuple[Any, ...]] = lower(graph)
        elif takes_threads(lower):
            function = lower(graph, threads=self.threads)
        else:
            raise CompilationError(f"compile: threads is {self.threads}, and the compiler {self.name!r} uses one\n"
                                   "leave threads out")
        if isinstance(function, PlanFunction):
            return function
        return NewResults(function, graph.constants.values())


class Program:
    """A function of arrays that returns a tuple of arrays, for the shapes and dtypes in `specs`.

    `flat` is the function. `graph` is its trace, which also returns a tuple. `unflatten` makes the user's output from
    the tuple. The backend compiles the graph when the program first runs.

    If `layouts` is not None, the trace depends on the layouts of the arrays in memory, and serves only arrays with
    these layouts.

    A graph does not contain what a function hides from derivatives: blocks without gradients and custom backward
    passes. If `flat` runs a graph, derivatives are therefore those of another function, `smooth`, with the same
    results. Only the first `n_smooth` results have derivatives (None: all).
    """

    def __init__(
        self, flat: Flat, specs: Specs, backend: ChosenCompiler, graph: Graph,
        unflatten: Unflattening | None = None, smooth: Flat | None = None,
        n_smooth: int | None = None, layouts: Layouts | None = None,
    ) -> None:
        self.flat = flat
        self.smooth = flat if smooth is None else smooth
        self.specs = specs
        self.layouts = layouts
        self.backend = backend
        self.graph = graph
        self.unflatten = unflatten
        self.results = tuple([node.meta["val"] for node in results_of(graph)])
        self.n_smooth = len(self.results) if n_smooth is None else n_smooth
        self.numbers: tuple[int, ...] = ()              # which arrays are Python numbers of the call
        self.variant: _core.Variant | None = None       # the core's variant of it
        self.compiled: Callable[..., tuple[Any, ...]] | None = None
        self._derived: dict[Any, Any] = {}
        self._lock = _core.Lock()

    @property
    def run(self) -> Callable[..., tuple[Any, ...]]:
        """The compiled function of raw arrays."""
        if self.compiled is None:
            with self._lock, GarbageKept():
                # outside transforms and modes, so that constants which operators make are raw arrays
                self.compiled = self.compiled or contextvars.Context().run(self.backend.compile, self.graph)
        return self.compiled

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, called without guard, mode or transform when this key is first requested."""
        with self._lock, GarbageKept():
            if key not in self._derived:
                self._derived[key] = contextvars.Context().run(make)
            return self._derived[key]

    @property
    def graph_with_functions(self) -> Graph:
        """The graph, with one node for each call of a Function."""
        graph: Graph = self.derived("functions", lambda: _traced(self.flat, self.specs, self.layouts, True)[1])
        return graph

    def __reduce__(self) -> tuple[Any, ...]:
        return Program, (self.flat, self.specs, self.backend, self.graph, self.unflatten, None, None, self.layouts)

    def __repr__(self) -> str:
        return f"<Program({', '.join([f'{dtype}{list(shape)}' for shape, dtype in self.specs])})>"


def results_of(graph: Graph) -> list[Node]:
    """Return the nodes that a graph returns in a tuple."""
    assert graph.output_node is not None
    return list(graph.output_node.args[0])


def draws_number(node: Node) -> bool:
    """Return whether a scalar value is a draw that Generator returns as a Python number. Its integers are NumPy's."""
    target = node.target
    return (isinstance(target, OpOverload) and target.namespace == "np" and "random" in target.tags
            and target.name.name != "random_integers")


class Unflattening:
    """Rebuilds the output of a function from its arrays. Its other leaves are constants."""

    def __init__(self, spec: TreeSpec, leaves: Sequence[Any]) -> None:
        self._spec = spec
        self.leaves = tuple(leaves)     # marks for arrays, scalars, and numbers that are drawn

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return tree_unflatten(filled(self.leaves, arrays), self._spec)

    def note_numbers(self, nodes: Sequence[Node]) -> None:
        """Mark the results that Generators return as Python numbers. `nodes` are those of the arrays."""
        rest = iter(nodes)
        self.leaves = tuple([NUMBER if isinstance(leaf, Mark) and draws_number(next(rest)) and leaf is SCALAR else leaf
                             for leaf in self.leaves])


class Mark(Enum):
    """A placeholder, which is the same object in every process."""

    ARRAY = "an array"
    SCALAR = "a scalar"
    NUMBER = "a Python number"


ARRAY, SCALAR, NUMBER = Mark.ARRAY, Mark.SCALAR, Mark.NUMBER


def filled(leaves: Sequence[Any], arrays: Iterable[Any]) -> list[Any]:
    """Replace the marks in the leaves by the arrays, converted as the marks specify. A TracedNumber stays."""
    rest = iter(arrays)
    return [_as_marked(next(rest), leaf) if isinstance(leaf, Mark) or type(leaf) is TracedNumber else leaf
            for leaf in leaves]


def _as_marked(value: Any, mark: Any) -> Any:
    if mark is ARRAY:
        return value
    if type(mark) is TracedNumber:
        return mark
    scalar = _core.to_scalar(value)
    return scalar.item() if mark is NUMBER and isinstance(scalar, np.generic) else scalar


class FlatFunction:
    """A function of pytrees as one of arrays, which returns a tuple of arrays. Its parameters have these names.

    `marks` are the leaves of its output in a trace. They are needed because operators on constants may return NumPy
    scalars.
    """

    def __init__(self, f: Callable[..., Any], names: Sequence[str], marks: Sequence[Any] = ()) -> None:
        self._f = f
        self._names = tuple(names)
        self._marks = marks
        setattr(self, PARAMETERS, self._names)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.Signature([
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in self._names])

    def output_of(self, *values: Any) -> tuple[tuple[Any, ...], Unflattening]:
        """Return the arrays in the output, and the Unflattening that makes the user's output from them."""
        leaves, spec = tree_flatten(self._f(*values))
        is_result = self._are_results(leaves)
        return (tuple([leaf for leaf, flag in zip(leaves, is_result, strict=True) if flag]),
                Unflattening(spec, [
                    plain(leaf) if not flag else SCALAR if _core.is_scalar(leaf) else ARRAY
                    for leaf, flag in zip(leaves, is_result, strict=True)]))

    def _are_results(self, leaves: list[Any]) -> list[bool]:
        if len(self._marks) == len(leaves):
            return [isinstance(mark, Mark) for mark in self._marks]
        # operators on traced values return Tensors. A NumPy scalar is a literal
        return [_core.is_array(leaf) and not isinstance(leaf, np.generic) for leaf in leaves]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        return self.output_of(*values)[0]


class NotingOutput(FlatFunction):
    """A flat function that keeps the Unflattening of its last output."""

    unflatten: Unflattening | None = None

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        results, self.unflatten = self.output_of(*values)
        return results


class Functional:
    """A flat function that runs another one, which writes to arrays, without writing to any."""

    def __init__(self, flat: Flat) -> None:
        self._flat = flat

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._flat)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = func.functionalize(self._flat)(*values)
        return results


def of_function(
    f: Callable[..., Any], names: Sequence[str], arrays: Sequence[Any], backend: ChosenCompiler,
    sources: Sources | None = None,
) -> Program:
    """Return the program of a function of these arrays, which returns a pytree of arrays and literals.

    Only operators may change the `sources`.
    """
    noting = NotingOutput(f, names)
    program = traced(noting, tuple([(tuple(array.shape), dtype_of(array)) for array in arrays]), backend,
                     # in the context where transforms run
                     layouts=partial(contextvars.copy_context().run, layouts_of, arrays), sources=sources)
    assert noting.unflatten is not None
    flat = FlatFunction(f, names, noting.unflatten.leaves)
    program.flat = program.smooth = flat if program.flat is noting else Functional(flat)
    program.unflatten = noting.unflatten
    program.unflatten.note_numbers(results_of(program.graph))
    return program


def layouts_of(arrays: Iterable[Any]) -> Layouts:
    """Return the layouts of the arrays in memory. Raise DataDependentError for values of a trace without data."""
    found = [layout_of(array, "trace it with data: make_fx(f)(*arrays)") for array in arrays]
    return tuple([None if layout is None or layout.flags.c_contiguous else layout.strides for layout in found])


def traced(
    flat: Flat, specs: Specs, backend: ChosenCompiler, smooth: Flat | None = None, n_smooth: int | None = None, *,
    layouts: Layouts | Callable[[], Layouts] | None = None, sources: Sources | None = None,
) -> Program:
    """Return the program of a function of arrays that returns a tuple. `layouts` may be a function that finds them."""
    # without guard, mode or transform
    flat, graph, layouts = contextvars.Context().run(_traced, flat, specs, layouts, sources=sources)
    return Program(flat, specs, backend, graph, None, smooth, n_smooth, layouts)


def _traced(
    flat: Flat, specs: Specs, layouts: Layouts | Callable[[], Layouts] | None, keeps_functions: bool = False,
    sources: Sources | None = None,
) -> tuple[Flat, Graph, Layouts | None]:
    """Return a function that writes to nothing (the given one if possible), its graph, and the layouts that matter."""
    tracer = ProgramTracer(specs, layouts, keeps_functions, sources)
    with np.errstate(all="ignore"):     # runs report errors, also in folded calls
        graph = tracer.graph_of(flat)
        if any(map(writes, _nodes_of(graph))):
            flat = Functional(flat)
            reshaped = _written_and_reshaped(graph)
            with_orders = list(filter(_has_orders, reshaped))
            graph = tracer.graph_of(flat, on_data=bool(reshaped), layouts_matter=bool(with_orders),
                                    bodies_reshape=any(node.graph is not graph for node in with_orders))
    if isinstance(flat, Functional):
        writer = next(filter(writes, graph.nodes), None)
        if writer is not None:
            written = next((f"its argument {node.name.rpartition('_')[0]}" for node in writer.all_input_nodes
                            if node.op == "placeholder"), "an argument")
            raise CompilationError(
                f"compile: the function writes to {written}, and compiled functions leave their arguments as they are\n"
                "return the new value, or write to a copy: ops.np.copy(x)")
    eliminate_dead_code(graph)
    _check_constants(graph)
    _check_results(graph)
    return flat, graph, tracer.layouts


class ProgramTracer:
    """Makes graphs of functions of arrays without data, or of made-up data if their layout in memory matters.

    `layouts` is None until the layouts have mattered.
    """

    def __init__(
        self, specs: Specs, layouts: Layouts | Callable[[], Layouts] | None, keeps_functions: bool,
        sources: Sources | None = None,
    ) -> None:
        self.specs = specs
        self.find_layouts = layouts if callable(layouts) else lambda: layouts or (None,) * len(specs)
        self.layouts = None if callable(layouts) else layouts
        self._trace = partial(graph_of_call, keeps_functions=keeps_functions, sources=sources)

    def graph_of(
        self, flat: Flat, *, on_data: bool = False, layouts_matter: bool = True, bodies_reshape: bool = False,
    ) -> Graph:
        """Return the graph of a function. Only on made-up data can the layouts of its arguments matter.

        `bodies_reshape` specifies that bodies of control flow reshape arrays that they write to.
        """
        try:
            if not on_data and self.layouts is None:
                mode = FakeMode(allow_real_inputs=True)
                fakes = tuple([mode.new_fake(shape, dtype) for shape, dtype in self.specs])
                return self._trace(flat, fakes, True, are_new=True)
        except (AutogradError, DataDependentError, FunctionalizationError) as error:
            if not needs_memory(error):
                raise
        if layouts_matter and self.layouts is None:
            self.layouts = self.find_layouts()
        arrays = [made_up(*spec, layout)
                  for spec, layout in zip(self.specs, self.layouts or (None,) * len(self.specs), strict=True)]
        draws = Draws()
        try:
            with OnMadeUpData(bodies_reshape):
                return draws.record(self._trace, flat, tuple(arrays), False)
        finally:
            draws.rewind()      # the operators have drawn


def made_up(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None) -> Any:
    """Return an array, in C order without strides. Floats are ones, to divide by, and others zeros, for positions."""
    value = 1 if dtype.kind in "fc" else 0
    if strides is None:
        return np.full(shape, value, dtype)
    start = sum(-stride * (extent - 1) for extent, stride in zip(shape, strides, strict=True) if stride < 0)
    array: np.ndarray[Any, Any] = np.ndarray(
        shape, dtype, np.empty(_bytes_between(shape, dtype, strides), np.uint8), start, strides)
    array[...] = value
    return array


def _bytes_between(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> int:
    """Return the number of bytes of memory that an array spans."""
    return dtype.itemsize + sum(abs(stride) * (extent - 1) for extent, stride in zip(shape, strides, strict=True))


def layouts_of_batches(program: Program, flags: Sequence[bool]) -> Layouts | None:
    """Return the layouts of batches whose examples follow each other, each laid out like the program's array."""
    return program.layouts and tuple([
        layout and ((_bytes_between(*spec, layout), *layout) if flag else layout)
        for spec, layout, flag in zip(program.specs, program.layouts, flags, strict=True)])


class OnMadeUpData(DispatchMode):
    """A mode for a trace that needs the layouts of arrays in memory: operators run, on meaningless data.

    If an operator fails on the data (a singular matrix, a position out of range), its results are made up in the shapes
    that it has without data.

    Bodies of control flow are traced as if operands were in C order. If `bodies_reshape`, other operands are refused.
    """

    def __init__(self, bodies_reshape: bool) -> None:
        super().__init__()
        self.bodies_reshape = bodies_reshape

    def __pydispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            if self.bodies_reshape and any(layouts_of(filter(_core.is_array, tree_leaves(args)))):
                raise CompilationError(
                    f"compile: a body of {func.name} writes to arrays that it reshapes, and an operand is not in C "
                    "order, which determines what views share\n"
                    "pass np.ascontiguousarray(operand)")
            rule = func.rule_for("CPU")
            if rule is None or any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(args)):
                return NotImplemented
            with self:
                return rule(*args, **kwargs or {})
        try:
            return func(*args, **kwargs or {})
        except DispatchError:
            raise
        except Exception:
            if func.schema.is_mutable:
                raise
            return tree_map(_made_up_like, unseen(
                partial(func, **_without_data(kwargs or {})), *_without_data(args)))


def _without_data(values: Any) -> Any:
    return tree_map(lambda leaf: meta_like(leaf) if _core.is_array(leaf) else leaf, values)


def _made_up_like(value: Any) -> Any:
    return Tensor(made_up(tuple(value.shape), dtype_of(value))) if _core.is_array(value) else value


LAYOUT_DECIDES = frozenset({"reshape", "ravel"})
"""Operators whose result is a view if the argument's layout allows it. Arrays without data cannot show this."""


def _written_and_reshaped(graph: Graph) -> set[Node]:
    """Return the nodes whose values may share memory with a reshaped value and with a written one."""
    found: set[Node] = set()
    for each in _graphs_in(graph):
        reshaped = list(filter(_may_be_view, each.nodes))
        if reshaped:
            memory = SharedMemory(each.nodes, as_if_separate=True)
            written = memory.overlapping([target for node in each.nodes for target in written_nodes(node)])
            found |= memory.overlapping([node for node in reshaped if node in written])
    return found


def _has_orders(node: Node) -> bool:
    """Return whether the elements of the value can lie in memory in several orders."""
    spec = node.meta.get("val")
    return not isinstance(spec, ArraySpec) or sum(extent != 1 for extent in spec.shape) > 1


def _may_be_view(node: Node) -> bool:
    target = node.target
    return (isinstance(target, OpOverload) and target.namespace == "np" and target.name.name in LAYOUT_DECIDES
            and node.kwargs.get("copy") is not True)


def writes(node: Node) -> bool:
    """Return whether the node writes to an array."""
    target = node.target
    return isinstance(target, OpOverload) and effects_of(target).writes


def _nodes_of(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, and of the graphs that its control flow calls, each once."""
    for each in _graphs_in(graph):
        yield from each.nodes


def _graphs_in(graph: Graph) -> Iterator[Graph]:
    """Yield the graph, and those that its control flow calls, each once."""
    graphs = [graph]
    for graph in graphs:        # the list grows during the loop
        yield graph
        graphs += [each for each in graph.constants.values() if isinstance(each, Graph) and each not in graphs]


def _check_constants(graph: Graph) -> None:
    for node in graph.find_nodes(op="get_attr") if graph.constants else ():
        if node.meta.get("requires_grad"):
            user = next((user for user in graph.nodes if node in user.all_input_nodes), node)
            raise CompilationError(
                f"compile: the function captures a Tensor that requires grad, whose gradient would be lost (at "
                f"{user.meta.get('site', 'its result')})\npass it as an argument, or capture tensor.detach()")


def _check_results(graph: Graph) -> None:
    for node in results_of(graph):
        spec = node.meta.get("val")
        if not isinstance(spec, ArraySpec):
            raise CompilationError(f"compile: the shape of the result {node.name} is unknown before the function runs\n"
                                   "compile a part of it whose shapes do not depend on data")


# --- forward and backward --------------------------------------------------------------------------------------------


class Differentiated:
    """A program as two: `forward` also returns residuals, from which `backward` computes gradients.

    `forward` takes all arrays and returns the results, then the residuals. `backward` takes the residuals, all arrays
    and the gradients of the results that are `moving`. It returns the gradients of the arrays that are `wanted`.
    Residuals have no derivatives, because gradients are functions of the arrays. The last residuals are states of
    generators, from which a second derivative draws the same numbers as `forward`.
    """

    def __init__(self, program: Program, wanted: tuple[bool, ...], moving: tuple[bool, ...]) -> None:
        joint = self._joint(program, wanted, moving)
        n, n_results = len(program.specs), len(program.results)
        forward, backward, residuals, drawn = partitioned(joint.graph, n, n_results)
        n_residuals = len(residuals)
        not_repeatable = {name_of(node.target): str(node.meta.get("site"))
                          for node in forward.nodes if makes_other_numbers(node)}

        def smooth_forward(*values: Any) -> tuple[Any, ...]:
            draws = Draws()
            results = draws.record(program.smooth, *values)
            return (*results, *map(ops.np.detach, draws.replay(forward, *values)[n_results:]))

        def smooth_backward(*values: Any) -> tuple[Any, ...]:
            residuals, rest = values[:n_residuals], values[n_residuals:]
            states = residuals[n_residuals - len(drawn):]
            draws = SavedDraws(drawn, states, batches_of((*residuals, *rest[:n])))
            draws.not_repeatable = not_repeatable
            return draws.replay(joint.flat, *rest)[n_results:]

        self.forward = Program(
            forward, program.specs, program.backend, forward, None, smooth_forward, program.n_smooth, program.layouts)
        self.backward = Program(
            backward, (*map(_spec, residuals), *joint.specs), program.backend, backward, None, smooth_backward,
            layouts=joint.layouts and ((None,) * n_residuals + joint.layouts))

    def _joint(self, program: Program, wanted: tuple[bool, ...], moving: tuple[bool, ...]) -> Program:
        n = len(program.specs)

        def joint(*values: Any) -> tuple[Any, ...]:
            primals, cotangents = values[:n], values[n:]
            rest = list(primals)

            def of_wanted(*chosen: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
                given = iter(chosen)
                full = [next(given) if flag else value for value, flag in zip(rest, wanted, strict=True)]
                results = program.smooth(*full)
                moving_results = tuple([value for value, flag in zip(results, moving, strict=True) if flag])
                return moving_results, results

            chosen = [value for value, flag in zip(primals, wanted, strict=True) if flag]
            _, pull, results = func.vjp(of_wanted, *chosen, has_aux=True)
            return (*results, *pull(tuple(cotangents)))

        cotangents = tuple([(spec.shape, spec.dtype) for spec, flag in zip(program.results, moving, strict=True)
                            if flag])
        return traced(joint, (*program.specs, *cotangents), program.backend,
                      layouts=program.layouts and (*program.layouts, *(None,) * len(cotangents)))


def partitioned(
    graph: Graph, n_primals: int, n_results: int
) -> tuple[Graph, Graph, list[Node], list[np.random.Generator]]:
    """Split a joint graph into (forward, backward, residuals, generators).

    The joint graph maps primals and cotangents to results and gradients. The last residuals are the states of these
    generators before any draw.
    """
    placeholders = graph.placeholders
    outputs = results_of(graph)
    late: set[Node] = set(placeholders[n_primals:])
    for node in graph.nodes:
        if node.op == "call_function" and any(used in late for used in node.all_input_nodes):
            late.add(node)
    _pass_states_of_generators(graph, late)
    early_outputs = outputs[:n_results]
    gradients = outputs[n_results:]
    again: set[Node] = set()                # cheap nodes, which the backward program recomputes
    for node in graph.nodes:
        if node not in late and node.op == "call_function" and _is_cheap(node):
            again.add(node)
    needed = _needed(list(gradients), lambda node: node in late or node in again or node.op == "get_attr")
    residuals = [node for node in graph.nodes if node in needed and node not in late and node not in again
                 and node.op == "call_function"]
    effects = [node for node in graph.nodes if node.op == "call_function" and node not in late and not is_pure(node)]
    drawn = _states_of_generators(graph, effects)
    residuals += drawn
    forward = _part(graph, placeholders[:n_primals], (*early_outputs, *residuals), effects)
    return forward, _part(graph, [*residuals, *placeholders], gradients), residuals, list(drawn.values())


def _spec(node: Node) -> tuple[tuple[int, ...], np.dtype[Any]]:
    spec = node.meta["val"]
    return spec.shape, spec.dtype


VIEWS = frozenset({"transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "broadcast_to", "reshape", "getitem",
                   "diagonal", "sliding_window_view", "read_only"})


def _is_cheap(node: Node) -> bool:
    """Return whether the node makes a view, or an array whose elements are known."""
    target = node.target
    return isinstance(target, OpOverload) and target.namespace == "np" and not (
        isinstance(node.meta.get("val"), np.random.Generator)) and (
        target.name.name in VIEWS or not node.all_input_nodes or target.name.name in ("zeros_like", "ones_like"))


def _needed(targets: Sequence[Node], goes_on: Callable[[Node], bool]) -> set[Node]:
    """Return the targets and all nodes that they need. The search stops at nodes for which `goes_on` is false."""
    found: set[Node] = set()
    left = list(targets)
    while left:
        node = left.pop()
        if node in found:
            continue
        found.add(node)
        if goes_on(node):
            left += node.all_input_nodes
    return found


def _pass_states_of_generators(graph: Graph, late: set[Node]) -> None:
    """Make late nodes that draw from an early generator restore its state, since residuals are arrays."""
    for node in list(graph.nodes):
        made = node.meta.get("val")
        users = [user for user in graph.nodes if user in late and node in user.all_input_nodes]
        if node.op != "call_function" or node in late or not users or not isinstance(made, np.random.Generator):
            continue
        with graph.inserting_before(users[0]):
            state = graph.call_function(ops.np.random_state.default, (node,))
            template = graph.add_constant(made, "generator")
            restored = graph.call_function(ops.np.random_restored.default, (template, state))
        state.meta["val"] = spec_of(ops.np.random_state(made))
        restored.meta["val"] = made
        late.add(restored)
        for user in users:
            user.replace_input_with(node, restored)


def _states_of_generators(graph: Graph, effects: Sequence[Node]) -> dict[Node, np.random.Generator]:
    """Add nodes for the states of the generators that these nodes draw from, before each is drawn from."""
    found: dict[Node, Node] = {}
    drawn: dict[Node, np.random.Generator] = {}
    for user in effects:
        for node in user.all_input_nodes:
            value = node.meta.get("val", graph.constants.get(str(node.target)) if node.op == "get_attr" else None)
            if isinstance(value, np.random.Generator) and node not in found and not _is_made_again(node):
                with graph.inserting_before(user):
                    state = found[node] = graph.call_function(ops.np.random_state.default, (node,))
                state.meta["val"] = spec_of(ops.np.random_state(value))
                drawn[state] = value
    return drawn


def _is_made_again(node: Node) -> bool:
    """Return whether each run makes this generator again, from a seed or another generator."""
    return isinstance(node.target, OpOverload) and node.target.namespace == "np" and not makes_other_numbers(node)


def _part(
    graph: Graph, inputs: Sequence[Node], outputs: Sequence[Node], effects: Sequence[Node] = ()
) -> Graph:
    """Return the part of a graph that computes `outputs` from `inputs`, its placeholders, and has these effects."""
    part = Graph()
    part.constants.update(graph.constants)
    values: dict[Node, Node] = {}
    for node in inputs:
        values[node] = part.placeholder(node.name)
        values[node].meta.update(val=node.meta["val"])
    needed = _needed((*outputs, *effects), lambda node: node not in values)
    for node in graph.nodes:
        if node in needed and node not in values and node.op in ("call_function", "get_attr"):
            values[node] = part.copy_node(node, values.__getitem__)
    part.output(map_values(lambda leaf: values[leaf] if isinstance(leaf, Node) else leaf, tuple(outputs)))
    return part
