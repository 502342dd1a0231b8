"""Contests time all their ways together, once, in a process that may use as many cores as they have threads."""

import os
from concurrent.futures import Future

import numpy as np
import pytest

from benchmarks.cases import contests
from benchmarks.cases.contests import Contest, Entry, check, run, workers
from benchmarks.cases.kinds import Effort
from pydispatch.cli import timing

EFFORT = Effort(5, 1)


def cores_of(process_id: int = 0) -> int:
    return len(os.sched_getaffinity(process_id))


@pytest.fixture
def here(monkeypatch):
    """Run contests in this process, and count them."""
    runs = []

    class Pool:
        def submit(self, function, *args):
            runs.append(args)
            future = Future()
            future.set_result(function(*args))
            return future

    monkeypatch.setattr(contests, "workers", lambda threads: Pool())
    return runs


def test_rows_of_a_contest_are_of_the_same_rounds(here, work):
    times = {"numpy": 1000, "fast": 250, "slow": 3000}

    def ways(factor, threads, names):
        return {name: lambda name=name: work(times[name] * factor) or np.ones(2) for name in ("numpy", *names)}

    contest = Contest(ways, (2,), 1, ["fast", "slow"])
    fast, slow, between = [
        Entry("group", name, bound, contest, name, over, parts=10).measure(EFFORT)
        for name, bound, over in (("fast", 0.5, "numpy"), ("slow", 2, "numpy"), ("fast", None, "slow"))
    ]
    assert (fast.value, fast.ok) == (pytest.approx(0.25), True)
    assert (slow.value, slow.ok) == (pytest.approx(3), False)
    assert between.value == pytest.approx(1 / 12)
    assert slow.times == pytest.approx({"slow": 600_000, "numpy": 200_000})
    assert [args[1:4] for args in here] == [((2,), 1, ("fast", "slow"))]


def test_a_way_that_gives_something_else_is_not_timed():
    with pytest.raises(AssertionError, match="wrong of a task"):
        check({"numpy": lambda: np.ones(2), "wrong": lambda: np.array([1, 1 + 1e-7])}, "a task")


def test_every_result_is_compared():
    results = {"first": np.ones(2)}, [np.zeros(3), 2.0]
    check({"numpy": lambda: results, "same": lambda: results}, "a task")
    with pytest.raises(AssertionError, match="wrong of a task"):
        check({"numpy": lambda: results, "wrong": lambda: ({"first": np.ones(2)}, [np.zeros(3), 3.0])}, "a task")


def test_a_roofline_computes_nothing_to_compare():
    check({"numpy": lambda: np.ones(2), contests.ROOFLINE: lambda: None}, "a task")


def test_ways_are_checked_before_they_are_timed(monkeypatch):
    monkeypatch.setattr(contests, "time_in_rounds", lambda *args: pytest.fail("timed"))

    def ways(threads, names):
        return {"numpy": lambda: 1.0, "wrong": lambda: 2.0}

    with pytest.raises(AssertionError, match="wrong of ways"):
        run(ways, (), 1, ["wrong"], EFFORT)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system pins no process to a core")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_has_as_many_cores_as_threads(threads):
    pool = workers(threads)
    try:
        assert pool.submit(cores_of).result() == min(threads, os.cpu_count())
        assert pool.submit(os.getenv, "NUMBA_NUM_THREADS").result() == str(threads)
        assert pool.submit(os.getpid).result() != os.getpid()
    finally:
        pool.shutdown()
        workers.cache_clear()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system pins no process to a core")
def test_more_cores_than_before_can_be_asked_for():
    before = timing.pin()
    try:
        assert cores_of() == 1
        assert len(timing.pin(2)) == 1
        assert cores_of() == min(2, os.cpu_count())
    finally:
        os.sched_setaffinity(0, before)
