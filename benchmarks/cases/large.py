"""Programs over large arrays: plans beside NumPy, numexpr, numba and JAX, and beside what memory allows.

`large_tasks.py` has the programs. The rooflines copy as many bytes as the arguments and the results have, in the same
rounds: nothing that reads and writes them once is faster, unless they stay in a cache.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.cases.contests import FLOOR, ROOFLINE, Call, Contest, Entry
from benchmarks.cases.kinds import import_or_note, matches
from benchmarks.cases.large_tasks import TASKS, LargeTask
from pydispatch import compile
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

LARGE = "Large arrays: {}, {:,} elements, over NumPy"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
THREADS = (1, 2)
PLAN, WITH_NUMBA, NUMBA = "plan", "backend numba", "numba"
OVER_NUMBA = f"{WITH_NUMBA}, over {NUMBA}"
OVER_NUMBA_BOUND = 1.1
MODULES = {PLAN: "pydispatch", WITH_NUMBA: "numba", "numexpr": "numexpr", NUMBA: "numba", "jax.jit": "jax",
           ROOFLINE: "numpy"}


def large_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[Entry]:
    """Yield each program at each size, in all ways with one thread, then in all with two."""
    for task in TASKS.values():
        for size in SIZES:
            group = LARGE.format(task.title, size)
            for threads in THREADS:
                ways = ways_of(task)
                rows = {name: name if threads == 1 else f"{name}, {threads} threads" for name in (*ways, OVER_NUMBA)}
                chosen = [name for name, row in rows.items() if matches(group, row, pattern)]
                needed = [name for name in ways
                          if name in chosen or (OVER_NUMBA in chosen and name in (WITH_NUMBA, NUMBA))]
                there = [name for name in needed if import_or_note(MODULES[name], name, left_out)]
                contest = Contest(large_calls, (task.title, size), threads, there)
                for name in chosen:
                    if name == OVER_NUMBA and NUMBA in there:
                        yield Entry(group, rows[name], OVER_NUMBA_BOUND, contest, WITH_NUMBA, NUMBA)
                    elif name in there:
                        yield Entry(group, rows[name], task.bound if name == PLAN else None, contest, name)


def ways_of(task: LargeTask) -> list[str]:
    """Return the ways that can compute it."""
    return [name for name in MODULES if name != "numexpr" or task.in_numexpr is not None]


def large_calls(title: str, size: int, threads: int, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls, NumPy's first."""
    task = TASKS[title]
    arguments = task.arguments(size)
    in_numpy = functools.partial(task.by_hand or task.make(np), *arguments)
    return {FLOOR: in_numpy} | {name: MAKERS[name](task, arguments, threads) for name in names}


# --- ways ------------------------------------------------------------------------------------------------------------


def by_plan(task: LargeTask, arguments: tuple[Any, ...], threads: int) -> Call:
    """Compile the task to a plan."""
    return functools.partial(compile(task.make(ops.np), threads=threads), *arguments)


def by_plan_with_numba(task: LargeTask, arguments: tuple[Any, ...], threads: int) -> Call:
    """Compile the task to a plan with machine code of numba's."""
    return functools.partial(compile(task.make(ops.np), backend="numba", threads=threads), *arguments)


def by_jax(task: LargeTask, arguments: tuple[Any, ...], threads: int) -> Call:
    """Compile the task by XLA, in float64. Each call waits for its results."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    function = jax.jit(task.make(jax.numpy))
    on_device = jax.tree.map(jax.numpy.asarray, arguments)
    return lambda: jax.block_until_ready(function(*on_device))


def by_numexpr(task: LargeTask, arguments: tuple[Any, ...], threads: int) -> Call:
    """Compute by strings that numexpr has compiled before."""
    numexpr = importlib.import_module("numexpr")
    numexpr.set_num_threads(threads)
    assert task.in_numexpr is not None
    return functools.partial(task.in_numexpr(numexpr), *arguments)


def by_numba(task: LargeTask, arguments: tuple[Any, ...], threads: int) -> Call:
    """Compute by loops that are written by hand, in parallel with more than one thread."""
    numba = importlib.import_module("numba")
    compiler: Callable[..., Any] = numba.njit(parallel=True) if threads > 1 else numba.njit
    return functools.partial(task.in_loops(compiler), *arguments)


def by_copying(task: LargeTask, arguments: tuple[Any, ...], threads: int) -> Call:
    """Make a copy that reads and writes as many bytes in sum as the program must."""
    results = (task.by_hand or task.make(np))(*arguments)
    n_bytes = sum(array.nbytes for array in tree_leaves([arguments, results]) if isinstance(array, np.ndarray))
    source = np.ones(math.ceil(n_bytes / 2 / threads / 8) * threads).reshape(threads, -1)
    target = np.zeros_like(source)
    if threads == 1:
        return functools.partial(np.copyto, target, source)
    pool = ThreadPoolExecutor(threads)
    return lambda: [*pool.map(np.copyto, target, source)]


MAKERS: dict[str, Callable[[LargeTask, tuple[Any, ...], int], Call]] = {
    PLAN: by_plan, WITH_NUMBA: by_plan_with_numba, "numexpr": by_numexpr, NUMBA: by_numba, "jax.jit": by_jax,
    ROOFLINE: by_copying,
}
