"""Contests: several ways to compute the same, timed in turn in a process of their own, with one thread or more."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.cases.kinds import Case, Effort, Row
from pydispatch.cli import timing
from pydispatch.cli.timing import make_loop, quiet, time_in_rounds
from pydispatch.tree import tree_leaves

Call = Callable[[], Any]
Ways = Callable[..., dict[str, Call]]       # makes the calls: of the arguments of the contest, threads, and the names

FLOOR = "numpy"
PAUSE_OF_THREADS = 0.01     # seconds
ROOFLINE = "roofline"       # computes nothing, but moves as many bytes
PRECISION: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10}       # other exponentials, sums in another order
THREADS = {"OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_MAX_THREADS"}
KEPT = 31 << 20     # bytes


class Contest:
    """The ways of a task that are timed together, once for all rows."""

    def __init__(self, ways: Ways, arguments: tuple[Any, ...], threads: int, names: Sequence[str]) -> None:
        self.ways, self.arguments, self.threads, self.names = ways, arguments, threads, tuple(names)
        self._times: dict[Effort, dict[str, list[float]]] = {}

    def times(self, effort: Effort) -> dict[str, list[float]]:
        """Return nanoseconds of each way in each round."""
        if effort not in self._times:
            future = workers(self.threads).submit(run, self.ways, self.arguments, self.threads, self.names, effort)
            self._times[effort] = future.result()
        return self._times[effort]


@dataclass(frozen=True)
class Entry(Case):
    """The time of one way of a contest over that of another, with times for each of equal parts."""

    contest: Contest = field(repr=False)
    way: str
    over: str = FLOOR
    parts: int = 1

    def measure(self, effort: Effort) -> Row:
        """Run the contest, unless another of its rows has."""
        times = self.contest.times(effort)
        ratios = [this / other for this, other in zip(times[self.way], times[self.over], strict=True)]
        medians = {name: statistics.median(times[name]) / self.parts for name in (self.way, self.over)}
        return self.row(ratios, medians)


def run(
    ways: Ways, arguments: tuple[Any, ...], threads: int, names: Sequence[str], effort: Effort
) -> dict[str, list[float]]:
    """Return a contest: nanoseconds of each way in each round, after a check that all give what NumPy gives."""
    calls = ways(*arguments, threads, names)
    check(calls, f"{ways.__name__}{arguments}")
    loops = [make_loop("call()", {"call": call}) for call in calls.values()]
    with quiet(threads):
        rounds = time_in_rounds(loops, effort.rounds, effort.seconds * len(loops) / 2,
                                PAUSE_OF_THREADS if threads > 1 else 0.0)
    return dict(zip(calls, map(list, zip(*rounds, strict=True)), strict=True))


def check(calls: dict[str, Call], title: str, precision: dict[str, Any] = PRECISION) -> None:
    """Raise AssertionError if a way gives something else than NumPy."""
    expected = tree_leaves(calls[FLOOR]())
    for name, call in calls.items():
        if name != ROOFLINE:
            for ours, theirs in zip(tree_leaves(call()), expected, strict=True):
                np.testing.assert_allclose(np.asarray(ours), theirs, **precision, err_msg=f"{name} of {title}")


# --- processes -------------------------------------------------------------------------------------------------------


@functools.cache
def workers(threads: int) -> ProcessPoolExecutor:
    """Return a process whose libraries may use this many threads, each on a separate core."""
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), set_up, (threads,))
    atexit.register(pool.shutdown)
    return pool


def set_up(threads: int) -> None:
    """Set the environment before libraries, which read it and the number of cores, are imported."""
    for variable in THREADS:
        os.environ[variable] = str(threads)
    if threads > 1:
        timing.clock = time.perf_counter        # the processor's time would count all threads
    timing.pin(threads)
    np.empty(KEPT, np.uint8)        # malloc keeps as much of what is freed from now on, whatever is measured first
