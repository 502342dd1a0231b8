"""Timing calls against each other: in loops, back to back, on one core.

A round runs the loop of each call once; what is reported are medians over many rounds. So whatever slows the
machine down for a while slows down all of them, or falls on too few rounds to matter.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SEGMENT = 5e-4              # seconds that a loop is timed for: too short to be interrupted often;
WARM = 100                  # longer where that is fewer turns: the first find the caches full of what ran before;
LONGEST = 8e-3              # but no longer than this
AT_LEAST = 5                # rounds
clock = time.process_time   # what other processes do on this core is not counted

Loop = Callable[[int], None]


def make_loop(call: str, names: dict[str, Any]) -> Loop:
    """A function of n that evaluates the call n times, as timeit does, with its names as local variables."""
    used = ", ".join(f"{name}={name}" for name in names)
    scope = {"repeat": itertools.repeat, **names}
    exec(f"def loop(n, {used}):\n    for _ in repeat(None, n):\n        {call}\n", scope)
    return scope["loop"]  # type: ignore[no-any-return]


def seconds(loop: Loop, number: int) -> float:
    """The time of one run of a loop."""
    start = clock()
    loop(number)
    return clock() - start


def long_enough(loop: Loop) -> int:
    """How many turns a loop is timed for; counted once it is warm, since the first call of an operator is slow."""
    number = 1
    while (elapsed := min(seconds(loop, number), seconds(loop, number))) < SEGMENT / 4:
        number *= 2
    turn = elapsed / number
    return max(1, round(SEGMENT / turn), min(WARM, round(LONGEST / turn)))


def time_in_rounds(loops: Sequence[Loop], rounds: int, limit: float = math.inf) -> list[list[float]]:
    """Nanoseconds per call: a list per round, in the order of the loops; every other round goes backwards.

    Where calls are slow, the rounds end after `limit` seconds; there are at least five.
    """
    numbers = [long_enough(loop) for loop in loops]
    result: list[list[float]] = []
    start = clock()
    for i in range(rounds):
        if i >= AT_LEAST and clock() - start > limit:
            break
        order = range(len(loops)) if i % 2 else reversed(range(len(loops)))
        times = {j: seconds(loops[j], numbers[j]) / numbers[j] * 1e9 for j in order}
        result.append([times[j] for j in range(len(loops))])
    return result


def on_one_core() -> None:
    """Start this process again where libraries make no threads: they would do work that is not seen, on other cores."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")
    if any(os.environ.get(name) != number for name, number in threads.items()):
        pin()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **threads})


def pin() -> set[int] | None:
    """Keep to one core, where the system lets choose; returns those that were allowed."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})     # the last one: interrupts go to the first
    return allowed


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """On one core where it can be chosen, and without the garbage collector."""
    allowed = pin()
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        if allowed is not None:
            os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def collecting() -> Iterator[None]:
    """With the garbage collector, whose work is a part of what is timed."""
    collects = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not collects:
            gc.disable()
