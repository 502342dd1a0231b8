"""The cost of a step of a compiled scan, compared with NumPy, JAX, numba, and the loops of its body alone."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.cases.contests import FLOOR, Call, Contest, Entry
from benchmarks.cases.kinds import import_or_note, matches
from benchmarks.cases.loops import StepExcess
from benchmarks.cases.scan_tasks import SCAN_TASKS, ScanLibrary, ScanTask
from pydispatch import compile, func, higher_order
from pydispatch.ops import ops

SCANS = "A step of a scan: {}, over NumPy"
OVER_LOOPS = "A step of a compiled scan, more than its loops"
OVER_LOOPS_BOUND = 0.05     # microseconds
STEPS, FEW_STEPS = 100_000, 100
PLAN, JAX, NUMBA = "plan", "jax.lax.scan", "numba"
OVER_JAX = f"{PLAN}, over {JAX}"
MODULES = {PLAN: "pydispatch", JAX: "jax", NUMBA: "numba"}
OURS = ScanLibrary(ops.np, higher_order.scan)


def scan_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[Entry | StepExcess]:
    """Yield each program and its gradient in all ways, then the steps of small bodies."""
    for task in SCAN_TASKS.values():
        for is_gradient in (False, True):
            group = SCANS.format(task.title + ", gradient" * is_gradient)
            chosen = [name for name in (*MODULES, OVER_JAX) if matches(group, name, pattern)]
            needed = [name for name in MODULES if name in chosen or (OVER_JAX in chosen and name != NUMBA)]
            there = [name for name in needed if import_or_note(MODULES[name], name, left_out)]
            contest = Contest(scan_calls, (task.title, is_gradient, STEPS), 1, there)
            for name in chosen:
                if name == OVER_JAX and JAX in there:
                    yield Entry(group, name, 1, contest, PLAN, JAX, parts=STEPS)
                elif name in there:
                    yield Entry(group, name, None, contest, name, parts=STEPS)
    for title in ("a pendulum", "exponential smoothing"):
        yield StepExcess(
            OVER_LOOPS, title, OVER_LOOPS_BOUND, "scan()", "loops()", {}, parts=FEW_STEPS,
            make_call=functools.partial(last_state, title, higher_order.scan),
            make_over=functools.partial(last_state, title, in_python),
        )


def scan_calls(title: str, is_gradient: bool, steps: int, threads: int, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls, NumPy's first."""
    task = SCAN_TASKS[title]
    arguments = task.arguments(steps)
    by_hand = task.gradient_by_hand if is_gradient else task.by_hand
    return {FLOOR: functools.partial(by_hand, *arguments)} | {
        name: MAKERS[name](task, is_gradient, arguments) for name in names
    }


def by_plan(task: ScanTask, is_gradient: bool, arguments: tuple[Any, ...]) -> Call:
    """Compile the task to a plan."""
    program = task.make(OURS)
    if is_gradient:
        program = func.grad(program, has_aux=True)
        return functools.partial(lambda compute: compute(*arguments)[0], compile(program))
    return functools.partial(compile(program), *arguments)


def by_jax(task: ScanTask, is_gradient: bool, arguments: tuple[Any, ...]) -> Call:
    """Compile the task by XLA, in float64. Each call waits for its results."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    program = task.make(ScanLibrary(jax.numpy, jax.lax.scan))
    if is_gradient:
        with_aux = jax.grad(program, has_aux=True)
        program = lambda *args: with_aux(*args)[0]  # noqa: E731
    numbers = [i for i, argument in enumerate(arguments) if isinstance(argument, int)]
    compute = jax.jit(program, static_argnums=numbers)
    on_device = [argument if isinstance(argument, int) else jax.numpy.asarray(argument) for argument in arguments]
    return lambda: jax.block_until_ready(compute(*on_device))


def by_numba(task: ScanTask, is_gradient: bool, arguments: tuple[Any, ...]) -> Call:
    """Compile the loops."""
    numba = importlib.import_module("numba")
    return functools.partial(numba.njit(task.gradient_in_loops if is_gradient else task.in_loops), *arguments)


MAKERS = {PLAN: by_plan, JAX: by_jax, NUMBA: by_numba}


# --- what the loop costs besides its body ----------------------------------------------------------------------------


def last_state(title: str, scan: Callable[..., Any]) -> Call:
    """Return a compiled function that takes a few steps of a program by `scan`, and gives the last state."""
    task = SCAN_TASKS[title]
    kept: list[Any] = []

    def without_results(step: Any, init: Any, xs: Any, length: int | None = None) -> Any:
        kept.append(scan(lambda state, x: (step(state, x)[0], None), init, xs, length=length)[0])
        return None, (xs if xs is not None else np.ones(2))

    def program(*arguments: Any) -> Any:
        task.make(ScanLibrary(ops.np, without_results))(*arguments)
        return kept.pop()

    return functools.partial(compile(program), *task.arguments(FEW_STEPS))


def in_python(step: Any, init: Any, xs: Any, length: int | None = None) -> Any:
    """Return a loop whose steps all become part of the plan."""
    state = init
    for i in range((length or 0) if xs is None else len(xs)):
        state, _ = step(state, None if xs is None else xs[i])
    return state, None
