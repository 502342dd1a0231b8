"""Plans of graphs: how they are made, run and printed."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Mapping, Sequence

from pydispatch import _core
from pydispatch.compiling.builder import Builder
from pydispatch.compiling.lowering import lower_graph
from pydispatch.compiling.passes.carries import with_carries_in_place
from pydispatch.compiling.passes.dead_code import without_dead
from pydispatch.compiling.passes.encoding import encoded_plan
from pydispatch.compiling.passes.fusion import Fusion, in_blocks
from pydispatch.compiling.passes.invariants import with_invariants_outside
from pydispatch.compiling.passes.layouts import in_read_order
from pydispatch.compiling.passes.memory import donations, placed_results
from pydispatch.compiling.passes.ordering import ordered
from pydispatch.compiling.steps import CallStep, Step, flat, lines_of
from pydispatch.compiling.values import Array, Storage
from pydispatch.exceptions import CompilationError
from pydispatch.tracing import Graph


class PlanFunction:
    """A graph as a function of raw arrays that runs a plan.

    A subclass may group steps in another way, and replace groups by other steps.
    """

    def __init__(self, graph: Graph, threads: int = 1) -> None:
        self._graph = graph
        self.threads = threads
        self.plan, _, builder = self._made()
        self.notes = builder.notes
        self.folded = builder.folded

    @functools.cached_property
    def counts(self) -> tuple[int, int]:
        """The numbers of (loops, calls of Python) among the steps."""
        counts = [step.counts for step in flat(self._steps())]
        return sum([loops for loops, _ in counts]), sum([calls for _, calls in counts])

    @property
    def calls(self) -> list[str]:
        """The calls of Python among the steps, each with its reason and the user's line."""
        return [f"{step.name} is called: {step.reason} (at {step.site})"
                for step in flat(self._steps()) if isinstance(step, CallStep)]

    def _made(self) -> tuple[_core.Plan, list[Step], Builder]:
        """Return the plan, its steps, and the builder, which notes what was folded and what could not be a loop."""
        builder = Builder(PlanFunction)
        for node in self._graph.placeholders:
            if node.meta["val"].dtype.hasobject:
                raise CompilationError(
                    f"compile: the argument {node.name} has dtype {node.meta['val'].dtype}, expected one without "
                    'objects\nleave it out of the compiled function, or write compile(f, backend="python")')
        given = [builder.input(node.meta["val"].shape, node.meta["val"].dtype, node.meta.get("donated", False))
                 for node in self._graph.placeholders]
        builder.numbers = {i for i, node in enumerate(self._graph.placeholders) if node.meta.get("number")}
        results = placed_results(builder, lower_graph(builder, self._graph, given))
        steps = without_dead(builder.steps)
        if builder.n_entries:
            steps = with_carries_in_place(with_invariants_outside(steps))
        steps = ordered(self.grouped(builder, in_read_order(steps)))
        donated = donations(builder, results, steps)
        same = {results[i].storage: builder.inputs[number].storage for i, number in enumerate(donated) if number >= 0}
        steps = self.replaced(builder, steps, same)
        return encoded_plan(builder, results, steps, donated, self.threads), steps, builder

    def grouped(self, builder: Builder, steps: Sequence[Step]) -> list[Step]:
        """Group the loops over the same rows."""
        return in_blocks(steps, Fusion(self.threads))

    def replaced(self, builder: Builder, steps: list[Step], same: Mapping[Storage, Storage]) -> list[Step]:
        """Return the steps to run. `same` maps a storage to the one whose memory it shares."""
        return steps

    @property
    def text(self) -> str:
        """The steps as text, a line each."""
        return "\n".join(lines_of(self._steps()))

    def _steps(self) -> list[Step]:
        """Return the steps, which are made again, since only reports need them."""
        return contextvars.Context().run(self._made)[1]     # outside transforms and modes, like the plan

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        return self.plan.run(*arrays)


def compile_to_plan(graph: Graph, threads: int = 1) -> PlanFunction:
    """Compile a graph to a plan."""
    return PlanFunction(graph, threads)
