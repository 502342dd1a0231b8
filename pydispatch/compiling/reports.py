"""Reports on compiled functions: the plan of a graph, and the reasons for compiling again."""

# tests: tests/compiling/test_plan.py
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydispatch import _core
from pydispatch.compiling.plan import PlanFunction
from pydispatch.compiling.programs import Program


def report(title: str, program: Program, reasons: Sequence[str]) -> str:
    """Return the report on one program of a compiled function."""
    arrays = ", ".join([f"{dtype}{list(shape)}" for shape, dtype in program.specs])
    lines = [f"{title} for ({arrays})", f"  traced: {len(program.graph.find_nodes(op='call_function'))} calls"]
    run = program.run
    if isinstance(run, PlanFunction):
        loops, calls = run.counts
        lines.append(f"  plan: {loops} loops, {calls} calls of Python, {run.folded} constants folded, "
                     f"{run.plan.described[4]} bytes of memory")
        lines += [f"  not in C: {note}" for note in dict.fromkeys((*run.calls, *run.notes))]
    else:
        lines += [f"  backend {program.backend.name}:", *[f"    {line}" for line in str(run).splitlines()]]
    lines += [f"  compilation {i}: {reason}" for i, reason in enumerate(reasons, 1)]
    return "\n".join(lines)


def name_loop(error: BaseException, name: str, site: str | None) -> None:
    """Name the loop in its exception, as SciPy's functions do, and note the line of the call."""
    if type(error).__module__.startswith("scipy.special") and error.args:
        error.args = (f"special.{name}: {error}", *error.args[1:])
    if site is not None:
        error.add_note(f"in {name}, which the compiled function calls at {site}")


def difference(arguments: Any, known: Sequence[Any]) -> str:
    """Describe the first difference from the last arguments with the same structure, or from what they captured."""
    spec, leaves, captured = arguments.key
    alike = [old for old in known if old[0] == spec]
    if not alike:
        return "the arguments have another structure"
    for i, (leaf, old) in enumerate(zip(leaves, alike[-1][1], strict=True)):
        if leaf != old:
            return f"argument {i} is {_shown(leaf)} and was {_shown(old)}"
    return "the arguments are new" if captured == alike[-1][2] else arguments.captured.difference(alike[-1][2])


def _shown(leaf: Any) -> str:
    first, second, *_ = leaf
    return f"{second}{list(first)}" if isinstance(first, tuple) else str(second)


_core.connect(name_loop=name_loop)
