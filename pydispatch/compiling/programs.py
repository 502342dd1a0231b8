"""Programs: a function for arrays of certain shapes and dtypes as a graph, and what is derived from it.

A program is traced where no mode is on and no transform active, so one program serves all levels of the stack: what a
level asks for (a batch, tangents, gradients) is a program of its own, traced when it is asked for the first time.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core, func
from pydispatch._core import OpOverload, Tensor
from pydispatch.compiling.compilers import compiler_named
from pydispatch.exceptions import CompilationError
from pydispatch.tracing import ArraySpec, Graph, Node, make_fx
from pydispatch.tracing.rewriting import eliminate_dead_code
from pydispatch.tracing.values import map_values
from pydispatch.tree import TreeSpec, tree_flatten, tree_unflatten

Flat = Callable[..., tuple[Any, ...]]
Specs = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]


class Backend(NamedTuple):
    """The compiler of a program, and the number of threads that it may use."""

    name: str
    threads: int = 1

    def compile(self, graph: Graph) -> Callable[..., tuple[Any, ...]]:
        """The graph as a function of raw arrays."""
        lower = compiler_named(self.name)
        function: Callable[..., tuple[Any, ...]] = (
            lower(graph) if self.threads == 1 else lower(graph, threads=self.threads))
        return function


class Program:
    """A function of arrays that returns a tuple of arrays, for the shapes and dtypes in `specs`.

    `flat` is the function, `graph` what it was traced to, which returns a tuple too. `nest` makes the user's result of
    the tuple. A backend makes the graph a function of raw arrays when it is run for the first time.
    """

    def __init__(
        self, flat: Flat, specs: Specs, backend: Backend, graph: Graph,
        nest: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        self.flat = flat
        self.specs = specs
        self.backend = backend
        self.graph = graph
        self.nest = nest
        self.results = tuple([node.meta["val"] for node in results_of(graph)])
        self._run: Callable[..., tuple[Any, ...]] | None = None
        self._derived: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @property
    def run(self) -> Callable[..., tuple[Any, ...]]:
        """The compiled function of raw arrays."""
        if self._run is None:
            with self._lock:
                self._run = self._run or self.backend.compile(self.graph)
        return self._run

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returned the first time."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]

    def transformed(self, key: Any, flat: Flat, specs: Specs) -> Program:
        """The program of another function, which is made of this one."""
        program: Program = self.derived(key, lambda: traced(flat, specs, self.backend))
        return program

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.graph, self.specs, self.backend, self.nest)

    def __repr__(self) -> str:
        return f"<Program({', '.join([f'{dtype}{list(shape)}' for shape, dtype in self.specs])})>"


def _restored(graph: Graph, specs: Specs, backend: Backend, nest: Any) -> Program:
    return Program(graph, specs, backend, graph, nest)


def results_of(graph: Graph) -> list[Node]:
    """The nodes that a graph returns in a tuple."""
    assert graph.output_node is not None
    return list(graph.output_node.args[0])


class Nest:
    """Makes the result of a function of the arrays in it; what is no array is always the same."""

    def __init__(self, spec: TreeSpec, leaves: Sequence[Any]) -> None:
        self._spec = spec
        self._leaves = tuple(leaves)        # ARRAY stands for one

    def __call__(self, arrays: Sequence[Any]) -> Any:
        rest = iter(arrays)
        return tree_unflatten([next(rest) if isinstance(leaf, _Array) else leaf for leaf in self._leaves], self._spec)


class _Array:
    """Stands for an array."""


def of_function(
    f: Callable[..., Any], names: Sequence[str], arrays: Sequence[Any], backend: Backend
) -> Program:
    """The program of a function of these arrays, which returns arrays and literals in any nesting."""
    nests: list[Nest] = []

    def flat(*values: Any) -> tuple[Any, ...]:
        leaves, spec = tree_flatten(f(*values))
        nests[:] = [Nest(spec, [_Array() if _core.is_array(leaf) else leaf for leaf in leaves])]
        return tuple([leaf for leaf in leaves if _core.is_array(leaf)])

    flat.__signature__ = inspect.Signature([     # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names])
    program = traced(flat, tuple([(tuple(array.shape), array.dtype) for array in arrays]), backend, arrays)
    program.nest = nests[0]
    return program


def traced(flat: Flat, specs: Specs, backend: Backend, examples: Sequence[Any] | None = None) -> Program:
    """The program of a flat function; `examples` are arrays with data, where they are at hand."""
    return contextvars.Context().run(_traced, flat, specs, backend, examples)


def _traced(flat: Flat, specs: Specs, backend: Backend, examples: Sequence[Any] | None) -> Program:
    graph = make_fx(flat, tracing_mode="fake")(*[np.empty(shape, dtype) for shape, dtype in specs])
    if any(map(writes, graph.nodes)):
        if examples is None:
            examples = [np.ones(shape, dtype) for shape, dtype in specs]
        copies = [np.array(_raw(example)) for example in examples]
        functional = func.functionalize(flat)
        if hasattr(flat, "__signature__"):
            functional.__signature__ = flat.__signature__  # type: ignore[attr-defined]
        graph = make_fx(functional)(*copies)
        writer = next(filter(writes, graph.nodes), None)
        if writer is not None:
            written = next((node.name for node in writer.all_input_nodes if node.op == "placeholder"), "an argument")
            raise CompilationError(
                f"compile: the function writes to its argument {written.rpartition('_')[0]}, and compiled functions "
                "leave their arguments as they are\nreturn the new value, or write to a copy: ops.np.copy(x)")
    eliminate_dead_code(graph)
    _check_results(graph)
    return Program(flat, specs, backend, graph)


def _raw(value: Any) -> Any:
    while isinstance(value, Tensor):
        value = value.array
    return value


def writes(node: Node) -> bool:
    """Does the node write to an array?"""
    return isinstance(node.target, OpOverload) and node.target.schema.is_mutable


def _check_results(graph: Graph) -> None:
    for node in results_of(graph):
        spec = node.meta.get("val")
        if not isinstance(spec, ArraySpec):
            raise CompilationError(f"compile: the shape of the result {node.name} is unknown before the function runs\n"
                                   "compile a part of it whose shapes do not depend on data")


# --- forward and backward --------------------------------------------------------------------------------------------


class Differentiated:
    """A program as two: the forward one also returns residuals, of which the backward one makes gradients.

    The forward one takes all arrays, and returns the results, then residuals. The backward one takes residuals and
    the gradients of the results with a flag, and returns those of the arrays with a flag.
    """

    def __init__(self, program: Program, wanted: tuple[bool, ...], moving: tuple[bool, ...]) -> None:
        joint = self._joint(program, wanted, moving)
        n = len(program.specs)
        self.forward, self.backward = partitioned(joint, n, len(program.results))

    def _joint(self, program: Program, wanted: tuple[bool, ...], moving: tuple[bool, ...]) -> Program:
        n = len(program.specs)

        def joint(*values: Any) -> tuple[Any, ...]:
            primals, cotangents = values[:n], values[n:]
            rest = list(primals)

            def of_wanted(*chosen: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
                given = iter(chosen)
                full = [next(given) if flag else value for value, flag in zip(rest, wanted, strict=True)]
                results = program.flat(*full)
                moving_results = tuple([value for value, flag in zip(results, moving, strict=True) if flag])
                return moving_results, results

            chosen = [value for value, flag in zip(primals, wanted, strict=True) if flag]
            _, pull, results = func.vjp(of_wanted, *chosen, has_aux=True)
            return (*results, *pull(tuple(cotangents)))

        cotangents = tuple([(spec.shape, spec.dtype) for spec, flag in zip(program.results, moving, strict=True)
                            if flag])
        return traced(joint, (*program.specs, *cotangents), program.backend)


def partitioned(joint: Program, n_primals: int, n_results: int) -> tuple[Program, Program]:
    """(forward, backward) of a program of primals and cotangents, which returns results and gradients."""
    graph = joint.graph
    placeholders = graph.placeholders
    outputs = results_of(graph)
    late: set[Node] = set(placeholders[n_primals:])
    for node in graph.nodes:
        if node.op == "call_function" and any(used in late for used in node.all_input_nodes):
            late.add(node)
    early_outputs = outputs[:n_results]
    gradients = outputs[n_results:]
    again: set[Node] = set()                # what is cheap is computed again
    for node in graph.nodes:
        if node not in late and node.op == "call_function" and _is_cheap(node):
            again.add(node)
    needed = _needed(list(gradients), lambda node: node in late or node in again or node.op == "get_attr")
    residuals = [node for node in graph.nodes if node in needed and node not in late and node not in again
                 and node.op != "get_attr"]
    forward = _part(graph, placeholders[:n_primals], [], (*early_outputs, *residuals))
    backward = _part(graph, residuals, placeholders[n_primals:], gradients)
    return (Program(forward, joint.specs[:n_primals], joint.backend, forward),
            Program(backward, tuple([_spec(node) for node in (*residuals, *placeholders[n_primals:])]), joint.backend,
                    backward))


def _spec(node: Node) -> tuple[tuple[int, ...], np.dtype[Any]]:
    spec = node.meta["val"]
    return spec.shape, spec.dtype


VIEWS = frozenset({"transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "broadcast_to", "reshape", "getitem"})


def _is_cheap(node: Node) -> bool:
    """Is it a view, or a new array of what is known?"""
    target = node.target
    return isinstance(target, OpOverload) and target.namespace == "np" and (
        target.name.name in VIEWS or not node.all_input_nodes or target.name.name in ("zeros_like", "ones_like"))


def _needed(targets: Sequence[Node], goes_on: Callable[[Node], bool]) -> set[Node]:
    """The targets, and what leads to them through nodes for which `goes_on`."""
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


def _part(graph: Graph, inputs: Sequence[Node], more: Sequence[Node], outputs: Sequence[Node]) -> Graph:
    """The graph from some nodes to others."""
    part = Graph()
    part.constants.update(graph.constants)
    values: dict[Node, Node] = {}
    for node in (*inputs, *more):
        if node not in values:
            values[node] = part.placeholder(node.name)
            values[node].meta.update(val=node.meta["val"])
    needed = _needed(outputs, lambda node: node not in values)
    for node in graph.nodes:
        if node in needed and node not in values and node.op in ("call_function", "get_attr"):
            values[node] = part.copy_node(node, values.__getitem__)
    part.output(map_values(lambda leaf: values[leaf] if isinstance(leaf, Node) else leaf, tuple(outputs)))
    return part
