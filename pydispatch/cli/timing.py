"""Time calls against each other: in loops, back to back, on one core.

A round runs the loop of each call once. Results are medians over many rounds. A slowdown of the machine therefore slows
all loops down, or affects too few rounds to matter.
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

SEGMENT = 5e-4              # seconds that a loop takes, which is too short for frequent interruptions
WARM = 100                  # the fewest turns of a longer loop, since the first turns have cold caches
LONGEST = 8e-3              # seconds that a loop takes at most
AT_LEAST = 5                # rounds
clock = time.process_time   # does not count other processes on this core

Loop = Callable[[int], None]


def make_loop(call: str, names: dict[str, Any]) -> Loop:
    """Return a function of n that evaluates the call n times, as timeit does, with its names as local variables."""
    used = ", ".join(f"{name}={name}" for name in names)
    scope = {"repeat": itertools.repeat, **names}
    exec(f"def loop(n, {used}):\n    for _ in repeat(None, n):\n        {call}\n", scope)
    return scope["loop"]  # type: ignore[no-any-return]


def seconds(loop: Loop, number: int) -> float:
    """Return the time of one run of a loop."""
    start = clock()
    loop(number)
    return clock() - start


def long_enough(loop: Loop) -> int:
    """Return the number of turns to time a loop for, found after a warm-up: the first call of an operator is slow."""
    number = 1
    while (elapsed := min(seconds(loop, number), seconds(loop, number))) < SEGMENT / 4:
        number *= 2
    turn = elapsed / number
    return max(1, round(SEGMENT / turn), min(WARM, round(LONGEST / turn)))


def time_in_rounds(
    loops: Sequence[Loop], rounds: int, limit: float = math.inf, pause: float = 0.0
) -> list[list[float]]:
    """Return nanoseconds per call: a list per round, in the order of the loops.

    Every other round runs in reverse order. If calls are slow, the rounds end after `limit` seconds. There are at least
    five. Threads that a loop has used keep looking for work for a while, and would disturb the next loop. A `pause` of
    some seconds lets them fall asleep.
    """
    numbers = [long_enough(loop) for loop in loops]
    result: list[list[float]] = []
    start = clock()
    for i in range(rounds):
        if i >= AT_LEAST and clock() - start > limit:
            break
        order = range(len(loops)) if i % 2 else reversed(range(len(loops)))
        times = {}
        for j in order:
            if pause:
                time.sleep(pause)
                loops[j](1)
            times[j] = seconds(loops[j], numbers[j]) / numbers[j] * 1e9
        result.append([times[j] for j in range(len(loops))])
    return result


def on_one_core() -> None:
    """Restart this process with libraries limited to one thread, since work on other cores would not be measured."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")
    if any(os.environ.get(name) != number for name, number in threads.items()):
        pin()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **threads})


def pin(cores: int = 1) -> set[int] | None:
    """Pin this process to this number of cores if the system allows it, and return the cores allowed before."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    if cores > len(allowed):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    # the last cores, since interrupts go to the first
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    return allowed


@contextlib.contextmanager
def quiet(cores: int = 1) -> Iterator[None]:
    """Run the block on one core, or on `cores`, if possible, and without the garbage collector."""
    allowed = pin(cores)
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
    """Run the block with the garbage collector, to include its work in the time."""
    collects = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not collects:
            gc.disable()
