"""Programs: a function for arrays of certain shapes and dtypes as a graph, and what is derived from it.

A program is traced while no mode or transform is active, so one program serves all interpreters. What an interpreter
needs (results for a batch, tangents, gradients) is a program of its own, traced when it is first needed.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core, func
from pydispatch._core import OpOverload
from pydispatch.autograd.views import needs_memory
from pydispatch.compiling.compilers import NewResults, compiler_named, takes_threads
from pydispatch.compiling.plan import PlanFunction
from pydispatch.exceptions import AutogradError, CompilationError, DataDependentError
from pydispatch.ops import ops
from pydispatch.registry.backends import dtype_of
from pydispatch.tracing import ArraySpec, FakeMode, Graph, Node
from pydispatch.tracing.effects import effects_of
from pydispatch.tracing.rewriting import eliminate_dead_code
from pydispatch.tracing.trace import PARAMETERS, graph_of_call
from pydispatch.tracing.values import map_values
from pydispatch.tree import TreeSpec, tree_flatten, tree_unflatten

Flat = Callable[..., tuple[Any, ...]]
Specs = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]


class ChosenCompiler(NamedTuple):
    """The compiler of a program, and the number of threads that it may use."""

    name: str
    threads: int = 1

    def compile(self, graph: Graph) -> Callable[..., tuple[Any, ...]]:
        """The graph, compiled to a function of raw arrays."""
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

    `flat` is the function; `graph` is its trace, which returns a tuple too. `unflatten` makes the user's output from
    the tuple. When the program first runs, the backend compiles the graph.

    A graph does not know what a function hides from derivatives: blocks without gradients, backward passes of its own.
    So where `flat` runs a graph, derivatives are those of another function, `smooth`, which returns the same; only the
    first `n_smooth` results have any (None: all).
    """

    def __init__(
        self, flat: Flat, specs: Specs, backend: ChosenCompiler, graph: Graph,
        unflatten: Callable[[Sequence[Any]], Any] | None = None, smooth: Flat | None = None,
        n_smooth: int | None = None,
    ) -> None:
        self.flat = flat
        self.smooth = flat if smooth is None else smooth
        self.specs = specs
        self.backend = backend
        self.graph = graph
        self.unflatten = unflatten
        self.results = tuple([node.meta["val"] for node in results_of(graph)])
        self.n_smooth = len(self.results) if n_smooth is None else n_smooth
        self.is_guarded = False         # does the core know it?
        self.compiled: Callable[..., tuple[Any, ...]] | None = None
        self._derived: dict[Any, Any] = {}
        self._lock = _core.Lock()

    @property
    def run(self) -> Callable[..., tuple[Any, ...]]:
        """The compiled function of raw arrays."""
        if self.compiled is None:
            with self._lock:
                # outside of transforms and modes: constants that operators make are raw arrays
                self.compiled = self.compiled or contextvars.Context().run(self.backend.compile, self.graph)
        return self.compiled

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returned when this key was first asked for."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]

    def transformed(
        self, key: Any, flat: Flat, specs: Specs, smooth: Flat | None = None, n_smooth: int | None = None
    ) -> Program:
        """The program of a function that is made from this one, traced when this key is first asked for."""
        program: Program = self.derived(key, lambda: traced(flat, specs, self.backend, smooth, n_smooth))
        return program

    def __reduce__(self) -> tuple[Any, ...]:
        return Program, (self.flat, self.specs, self.backend, self.graph, self.unflatten)

    def __repr__(self) -> str:
        return f"<Program({', '.join([f'{dtype}{list(shape)}' for shape, dtype in self.specs])})>"


def results_of(graph: Graph) -> list[Node]:
    """The nodes that a graph returns in a tuple."""
    assert graph.output_node is not None
    return list(graph.output_node.args[0])


class Unflattening:
    """Makes the output of a function from the arrays in it; its other leaves are always the same."""

    def __init__(self, spec: TreeSpec, leaves: Sequence[Any]) -> None:
        self._spec = spec
        self._leaves = tuple(leaves)        # ARRAY stands for each array

    def __call__(self, arrays: Sequence[Any]) -> Any:
        rest = iter(arrays)
        return tree_unflatten([next(rest) if leaf is ARRAY else leaf for leaf in self._leaves], self._spec)


class Mark(Enum):
    """What stands for something else, the same object in every process."""

    ARRAY = "an array"


ARRAY = Mark.ARRAY


class FlatFunction:
    """A function of pytrees as one of arrays, which returns a tuple of arrays; its parameters have these names."""

    def __init__(self, f: Callable[..., Any], names: Sequence[str]) -> None:
        self._f = f
        self._names = tuple(names)
        setattr(self, PARAMETERS, self._names)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.Signature([
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in self._names])

    def output_of(self, *values: Any) -> tuple[tuple[Any, ...], Unflattening]:
        """The arrays that it returns, and what makes the user's output from them."""
        leaves, spec = tree_flatten(self._f(*values))
        return (tuple([leaf for leaf in leaves if _core.is_array(leaf)]),
                Unflattening(spec, [ARRAY if _core.is_array(leaf) else leaf for leaf in leaves]))

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        return self.output_of(*values)[0]


class NotingOutput(FlatFunction):
    """One that keeps what makes the user's output from the arrays that it returned last."""

    unflatten: Unflattening | None = None

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        results, self.unflatten = self.output_of(*values)
        return results


class Functional:
    """A flat function that writes to nothing, though another one does."""

    def __init__(self, flat: Flat) -> None:
        self._flat = flat

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._flat)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = func.functionalize(self._flat)(*values)
        return results


def of_function(
    f: Callable[..., Any], names: Sequence[str], arrays: Sequence[Any], backend: ChosenCompiler
) -> Program:
    """The program of a function of these arrays, which returns a pytree of arrays and literals."""
    noting = NotingOutput(f, names)
    program = traced(noting, tuple([(tuple(array.shape), dtype_of(array)) for array in arrays]), backend)
    flat = FlatFunction(f, names)
    program.flat = program.smooth = flat if program.flat is noting else Functional(flat)
    program.unflatten = noting.unflatten
    return program


def traced(
    flat: Flat, specs: Specs, backend: ChosenCompiler, smooth: Flat | None = None, n_smooth: int | None = None
) -> Program:
    """The program of a function of arrays that returns a tuple; see Program."""
    flat, graph = contextvars.Context().run(_traced, flat, specs)       # with no guard, mode or transform
    return Program(flat, specs, backend, graph, None, smooth, n_smooth)


def _traced(flat: Flat, specs: Specs) -> tuple[Flat, Graph]:
    """The graph of a function, and the function, or one like it that writes to nothing."""
    with np.errstate(all="ignore"):     # runs report errors; of what is known, too
        graph = _graph_of(flat, specs)
        if any(map(writes, _nodes_of(graph))):
            flat = Functional(flat)
            graph = _graph_of(flat, specs, needs_layout=any(map(_may_be_view, _nodes_of(graph))))
    if isinstance(flat, Functional):
        writer = next(filter(writes, graph.nodes), None)
        if writer is not None:
            written = next((node.name for node in writer.all_input_nodes if node.op == "placeholder"), "an argument")
            raise CompilationError(
                f"compile: the function writes to its argument {written.rpartition('_')[0]}, and compiled functions "
                "leave their arguments as they are\nreturn the new value, or write to a copy: ops.np.copy(x)")
    eliminate_dead_code(graph)
    _check_constants(graph)
    _check_results(graph)
    return flat, graph


def _graph_of(flat: Flat, specs: Specs, *, needs_layout: bool = False) -> Graph:
    """The graph of a function for arrays without data; of zeros and ones where it depends on how they lie in memory."""
    try:
        if not needs_layout:
            mode = FakeMode(allow_real_inputs=True)
            return graph_of_call(flat, tuple([mode.new_fake(shape, dtype) for shape, dtype in specs]), True)
    except AutogradError as error:
        if not needs_memory(error):
            raise
    values = [(np.ones if dtype.kind in "fc" else np.zeros)(shape, dtype) for shape, dtype in specs]
    try:
        return graph_of_call(flat, tuple(values), False)
    except IndexError as error:
        raise DataDependentError(
            "compile: a function that writes to an array of unknown layout is traced with zeros and ones, and for them "
            f"a position is out of range: {error}\n"
            "compute positions outside of the function, or write to an array that is not reshaped") from error


LAYOUT_DECIDES = frozenset({"reshape", "ravel"})
"""Operators whose result is a view of an argument that lies in order, which arrays without data cannot tell."""


def _may_be_view(node: Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and target.namespace == "np" and target.name.name in LAYOUT_DECIDES


def writes(node: Node) -> bool:
    """Does the node write to an array?"""
    target = node.target
    return isinstance(target, OpOverload) and effects_of(target).writes


def _nodes_of(graph: Graph) -> Iterator[Node]:
    """Its nodes, and those of the functions that control flow in it calls."""
    yield from graph.nodes
    for constant in graph.constants.values():
        if isinstance(constant, Graph):
            yield from _nodes_of(constant)


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

    `forward` takes all arrays; it returns the results, then the residuals. `backward` takes the residuals, all arrays
    and the gradients of the results that are `moving`; it returns the gradients of the arrays that are `wanted`.
    Residuals have no derivatives: gradients are functions of the arrays.
    """

    def __init__(self, program: Program, wanted: tuple[bool, ...], moving: tuple[bool, ...]) -> None:
        joint = self._joint(program, wanted, moving)
        n, n_results = len(program.specs), len(program.results)
        forward, backward, residuals = partitioned(joint.graph, n, n_results)
        n_residuals = len(residuals)

        def smooth_forward(*values: Any) -> tuple[Any, ...]:
            return (*program.smooth(*values), *map(ops.np.detach, forward(*values)[n_results:]))

        def smooth_backward(*values: Any) -> tuple[Any, ...]:
            return joint.flat(*values[n_residuals:])[n_results:]

        self.forward = Program(
            forward, program.specs, program.backend, forward, None, smooth_forward, program.n_smooth)
        self.backward = Program(
            backward, (*map(_spec, residuals), *joint.specs), program.backend, backward, None, smooth_backward)

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
        return traced(joint, (*program.specs, *cotangents), program.backend)


def partitioned(graph: Graph, n_primals: int, n_results: int) -> tuple[Graph, Graph, list[Node]]:
    """(forward, backward, residuals) from one graph, from primals and cotangents to results and gradients."""
    placeholders = graph.placeholders
    outputs = results_of(graph)
    late: set[Node] = set(placeholders[n_primals:])
    for node in graph.nodes:
        if node.op == "call_function" and any(used in late for used in node.all_input_nodes):
            late.add(node)
    early_outputs = outputs[:n_results]
    gradients = outputs[n_results:]
    again: set[Node] = set()                # cheap ones, which the backward program computes again
    for node in graph.nodes:
        if node not in late and node.op == "call_function" and _is_cheap(node):
            again.add(node)
    needed = _needed(list(gradients), lambda node: node in late or node in again or node.op == "get_attr")
    residuals = [node for node in graph.nodes if node in needed and node not in late and node not in again
                 and node.op == "call_function"]
    forward = _part(graph, placeholders[:n_primals], (*early_outputs, *residuals))
    return forward, _part(graph, [*residuals, *placeholders], gradients), residuals


def _spec(node: Node) -> tuple[tuple[int, ...], np.dtype[Any]]:
    spec = node.meta["val"]
    return spec.shape, spec.dtype


VIEWS = frozenset({"transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "broadcast_to", "reshape", "getitem"})


def _is_cheap(node: Node) -> bool:
    """Does the node make a view, or an array whose elements are known?"""
    target = node.target
    return isinstance(target, OpOverload) and target.namespace == "np" and (
        target.name.name in VIEWS or not node.all_input_nodes or target.name.name in ("zeros_like", "ones_like"))


def _needed(targets: Sequence[Node], goes_on: Callable[[Node], bool]) -> set[Node]:
    """The targets, and all nodes that they need; the search stops at nodes for which `goes_on` is false."""
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


def _part(graph: Graph, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
    """The part of a graph that computes `outputs` from `inputs`, its placeholders."""
    part = Graph()
    part.constants.update(graph.constants)
    values: dict[Node, Node] = {}
    for node in inputs:
        values[node] = part.placeholder(node.name)
        values[node].meta.update(val=node.meta["val"])
    needed = _needed(outputs, lambda node: node not in values)
    for node in graph.nodes:
        if node in needed and node not in values and node.op in ("call_function", "get_attr"):
            values[node] = part.copy_node(node, values.__getitem__)
    part.output(map_values(lambda leaf: values[leaf] if isinstance(leaf, Node) else leaf, tuple(outputs)))
    return part
