"""Timing calls against each other: in loops, back to back, on one core.

A round runs the loop of each call once; what is reported are medians over many rounds. So whatever slows the
machine down for a while slows down all of them, or falls on too few rounds to matter.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SEGMENT = 5e-4              # seconds that a loop is timed for: too short to be interrupted often
clock = time.thread_time    # what other processes do on this core is not counted

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
    """How many turns of a loop take a SEGMENT, once it is warm: the first call of an operator is slow."""
    loop(100)
    number = 100
    while (elapsed := seconds(loop, number)) < SEGMENT / 4:
        number *= 2
    return max(1, round(number * SEGMENT / elapsed))


def time_in_rounds(loops: Sequence[Loop], rounds: int) -> list[list[float]]:
    """Nanoseconds per call: a list per round, in the order of the loops; every other round goes backwards."""
    numbers = [long_enough(loop) for loop in loops]
    result = []
    for i in range(rounds):
        order = range(len(loops)) if i % 2 else reversed(range(len(loops)))
        times = {j: seconds(loops[j], numbers[j]) / numbers[j] * 1e9 for j in order}
        result.append([times[j] for j in range(len(loops))])
    return result


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """On one core where it can be chosen, and without the garbage collector."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if allowed is not None:
        os.sched_setaffinity(0, {max(allowed)})     # the last one: interrupts go to the first
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
