"""Loops, rounds and the clock; on a clock of our own, so that nothing here depends on time."""

from __future__ import annotations

import gc
import os

import pytest

from pydispatch import timing
from pydispatch.timing import SEGMENT, long_enough, make_loop, quiet, time_in_rounds


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


@pytest.mark.parametrize("microseconds", [0.1, 1, 50, 10_000])
def test_a_loop_is_timed_for_a_segment_and_warmed_up_before(clock, microseconds):
    first = [1_000_000]     # the first call of an operator computes its table

    def call():
        clock.work(microseconds + (first.pop() if first else 0))

    number = long_enough(make_loop("call()", {"call": call}))
    assert number == pytest.approx(max(1, SEGMENT * 1e6 / microseconds), rel=0.01)


def test_a_round_times_each_loop_once_and_every_other_goes_backwards(clock):
    loops = [make_loop(f"work({n})", {"work": clock.work}) for n in (100, 300)]
    assert time_in_rounds(loops, 3) == [pytest.approx([100_000, 300_000])] * 3
    per_round = [100] * 5, [300] * 2
    assert clock.log[-21:] == [*per_round[1], *per_round[0], *per_round[0], *per_round[1], *per_round[1], *per_round[0]]


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
