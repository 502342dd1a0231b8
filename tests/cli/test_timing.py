"""Loops, rounds and the clock, on a clock of our own, so that nothing here depends on time."""

import gc
import math
import os
import subprocess
import sys

import pytest

from pydispatch.cli import timing
from pydispatch.cli.timing import long_enough, make_loop, quiet, time_in_rounds


class Clock:
    """A clock that only work moves on."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def work(self, microseconds):
        self.now += microseconds * 1e-6
        self.log.append(microseconds)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "clock", clock)
    return clock


def test_a_loop_makes_its_call_n_times_with_its_names_as_locals():
    made = []
    loop = make_loop("made.append(x)", {"made": made, "x": 7, "unused": None})
    loop(3)
    assert made == [7, 7, 7]
    assert "made" in loop.__code__.co_varnames
    assert "made" not in loop.__code__.co_names


@pytest.mark.parametrize(("microseconds", "turns"), [(0.1, 5000), (1, 500), (50, 100), (800, 10), (10_000, 1)])
def test_a_loop_is_timed_for_a_segment_or_until_it_is_warm(clock, microseconds, turns):
    first = [1_000_000]     # the first call of an operator computes its table

    def call():
        clock.work(microseconds + (first.pop() if first else 0))

    assert long_enough(make_loop("call()", {"call": call})) == pytest.approx(turns, rel=0.01)


def test_a_round_times_each_loop_once_and_every_other_goes_backwards(clock):
    loops = [make_loop(f"work({n})", {"work": clock.work}) for n in (1000, 4000)]
    assert time_in_rounds(loops, 3) == [pytest.approx([1_000_000, 4_000_000])] * 3
    per_round = [1000] * 8, [4000] * 2
    assert clock.log[-30:] == [*per_round[1], *per_round[0], *per_round[0], *per_round[1], *per_round[1], *per_round[0]]


@pytest.mark.parametrize(("limit", "rounds"), [(math.inf, 20), (0.13, 7), (0.01, 5)])
def test_rounds_end_with_the_time_but_not_before_the_fifth(clock, limit, rounds):
    loops = [make_loop(f"work({n})", {"work": clock.work}) for n in (10_000, 5_000)]
    assert len(time_in_rounds(loops, 20, limit)) == rounds


def test_a_process_starts_again_on_one_core_with_its_arguments():
    code = """
import os, sys
from pydispatch.cli.timing import on_one_core
print("started", flush=True)
on_one_core()
threads = [os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
print(sys.argv[1:], threads, len(getattr(os, "sched_getaffinity", lambda pid: [0])(0)))
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", code, "an argument"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert output.splitlines() == ["started", "started", "['an argument'] ['1', '1'] 1"]


def test_quiet_is_on_one_core_without_the_collector_and_puts_all_back():
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with quiet():
        assert not gc.isenabled()
        assert allowed is None or len(os.sched_getaffinity(0)) == 1
    assert gc.isenabled()
    assert allowed is None or os.sched_getaffinity(0) == allowed


def test_quiet_puts_back_after_an_error():
    with pytest.raises(KeyboardInterrupt), quiet():
        raise KeyboardInterrupt
    assert gc.isenabled()


def test_quiet_leaves_a_collector_off_that_was_off():
    gc.disable()
    try:
        with quiet():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
