"""Plans of graphs: made, run, and printed."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Iterator, Mapping, Sequence

from pydispatch import _core
from pydispatch.compiling.builder import Builder
from pydispatch.compiling.lowering import lower_graph
from pydispatch.compiling.scheduling import (
    donations,
    finished_plan,
    in_blocks,
    placed_results,
    with_results_at_hand,
    without_dead,
)
from pydispatch.compiling.values import (
    Array,
    BlocksStep,
    CallStep,
    LoopStep,
    RepeatStep,
    Step,
    Storage,
    Value,
)
from pydispatch.exceptions import CompilationError
from pydispatch.tracing import Graph


class PlanFunction:
    """A graph as a function of raw arrays that runs a plan.

    A subclass may group steps in another way, and put others in the place of groups.
    """

    def __init__(self, graph: Graph, threads: int = 1) -> None:
        self._graph = graph
        self.threads = threads
        self.plan, _, builder = self._made()
        self.notes = builder.notes
        self.folded = builder.folded

    @functools.cached_property
    def counts(self) -> tuple[int, int]:
        """(loops, calls of Python) among the steps."""
        return _counts(self._steps())

    def _made(self) -> tuple[_core.Plan, list[Step], Builder]:
        """The plan, its steps, and the builder, which knows what was folded and what could not be a loop."""
        builder = Builder(PlanFunction)
        for node in self._graph.placeholders:
            if node.meta["val"].dtype.hasobject:
                raise CompilationError(
                    f"compile: the argument {node.name} has dtype {node.meta['val'].dtype}, expected one without "
                    'objects\nleave it out of the compiled function, or write compile(f, backend="python")')
        given = [builder.input(node.meta["val"].shape, node.meta["val"].dtype, node.meta.get("donated", False))
                 for node in self._graph.placeholders]
        results = placed_results(builder, lower_graph(builder, self._graph, given))
        steps = with_results_at_hand(self.grouped(builder, without_dead(builder.steps)))
        donated = donations(builder, results, steps)
        same = {results[i].storage: builder.inputs[number].storage for i, number in enumerate(donated) if number >= 0}
        steps = self.replaced(builder, steps, same)
        return finished_plan(builder, results, steps, donated, self.threads), steps, builder

    def grouped(self, builder: Builder, steps: Sequence[Step]) -> list[Step]:
        """The steps, with loops over the same rows together."""
        return in_blocks(steps, self.threads)

    def replaced(self, builder: Builder, steps: list[Step], same: Mapping[Storage, Storage]) -> list[Step]:
        """The steps that run; a memory may be the one that `same` has for it."""
        return steps

    @property
    def text(self) -> str:
        """The steps, a line each."""
        return "\n".join(_lines(self._steps(), ""))

    def _steps(self) -> list[Step]:
        """The steps, made once more: nothing but reports asks for them."""
        return contextvars.Context().run(self._made)[1]     # outside of transforms and modes, as the plan was made

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        return self.plan.run(*arrays)


def compile_to_plan(graph: Graph, threads: int = 1) -> PlanFunction:
    """The plan of a graph."""
    return PlanFunction(graph, threads)


def _counts(steps: Sequence[Step]) -> tuple[int, int]:
    """(loops, calls of Python) among the steps and what they have inside."""
    loops = calls = 0
    for step in steps:
        if isinstance(step, LoopStep):
            loops += 1
        elif isinstance(step, CallStep):
            calls += 1
        else:
            parts = (step.steps if isinstance(step, BlocksStep) else [*step.test, *step.body]
                     if isinstance(step, RepeatStep) else [*step.branches[0], *step.branches[1]])
            inner = _counts(parts)
            loops, calls = loops + inner[0], calls + inner[1]
    return loops, calls


# --- text ------------------------------------------------------------------------------------------------------------


def _lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    """The steps as text, a line each."""
    for step in steps:
        if isinstance(step, LoopStep):
            n = len(step.operands) - step.n_out
            written, read = (", ".join(map(_shown, values)) for values in (step.operands[n:], step.operands[:n]))
            yield f"{indent}{written} = {step.name}({read})"
        elif isinstance(step, CallStep):
            written = f"{', '.join(map(_shown, step.outputs))} = " if step.outputs else ""
            yield f"{indent}{written}call {step.name}({', '.join(map(_shown, step.inputs))})"
        elif isinstance(step, BlocksStep):
            yield f"{indent}for each block of {step.block} of {step.n} {'elements' if step.is_flat else 'rows'}:"
            yield from _lines(step.steps, indent + "    ")
        elif isinstance(step, RepeatStep):
            moving = ", ".join([f"part of {_place(whole)}" for _, whole, _, _ in step.moves])
            carried = f", carrying {len(step.carries)}" if step.carries else ""
            if step.length is None:
                yield f"{indent}while{carried}:"
                yield from _lines(step.test, indent + "    ? ")
            else:
                yield f"{indent}repeat {step.length} times{carried}{', over ' + moving if moving else ''}:"
            yield from _lines(step.body, indent + "    ")
        else:
            yield f"{indent}if {_shown(step.condition)}:"
            yield from _lines(step.branches[0], indent + "    ")
            yield f"{indent}else:"
            yield from _lines(step.branches[1], indent + "    ")


def _shown(value: Value) -> str:
    """A value: where it lies, its dtype and shape."""
    if value.constant is not None and value.constant.size == 1:
        return str(value.constant.ravel()[0])
    extents = ",".join(map(str, value.shape))
    layout = "" if value.template.flags.c_contiguous else " strided"
    return f"{_place(value)}:{value.dtype.char if value.dtype.kind in 'SUV' else value.dtype}[{extents}]{layout}"


def _place(value: Value) -> str:
    storage = value.storage.final()
    if storage.kind == "arena":
        return f"@{storage.offset + value.offset}"
    start = f"+{value.offset}" if value.offset else ""
    return f"{storage.kind}{storage.number}{start}"
