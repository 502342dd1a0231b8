"""Ordering: sort the steps of repetitions so that each step needs the result of the one before.

Assumes: the order given is correct. Fusion has not run yet.

Guarantees: each step still comes after those that it depends on, and calls of Python keep their order. Only bodies that
consist of loops change.

Code on single numbers holds the result of the step before in a register. Of two operands, the one that takes more steps
is computed last. Long functions come early if their operands are known, so that the processor overlaps them with the
following steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydispatch.compiling.steps import LoopStep, RepeatStep, Step, has_calls
from pydispatch.compiling.values import Storage


def ordered(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, those inside repetitions in an order for registers."""
    for step in steps:
        if isinstance(step, RepeatStep):
            step.map_bodies(ordered)
            loops = [inner for inner in step.body if isinstance(inner, LoopStep)]
            if len(loops) == len(step.body):
                step.body = _depth_first(loops, {now for _, _, now, _ in step.carries})
    return list(steps)


def _depth_first(steps: Sequence[LoopStep], carries: set[Storage]) -> list[Step]:
    """Return the steps, each right after its dependencies, those with few dependencies first.

    Long functions of values that are not carries come first of all. Amid other steps, they would have to wait for
    memory after them.
    """
    _, followers = dependencies(steps)
    before: list[set[int]] = [set() for _ in steps]
    needed: list[set[int]] = []         # all steps that have to run before a step
    for i, following in enumerate(followers):
        needed.append(before[i].union(*[needed[other] for other in before[i]]))
        for follower in following:
            before[follower].add(i)
    in_order: list[int] = []
    done: set[int] = set()
    waiting = sorted([i for i, following in enumerate(followers) if not following],
                     key=lambda i: len(needed[i]))
    waiting += [i for i, step in reversed([*enumerate(steps)]) if not needed[i] and (
        step.cost() > 1 and carries.isdisjoint(step.accesses()[0]))]
    while waiting:
        i = waiting[-1]
        missing = before[i] - done
        if i in done or not missing:
            waiting.pop()
            if i not in done:
                in_order.append(i)
                done.add(i)
        else:
            waiting += sorted(missing, key=lambda other: (-len(needed[other]), -other))
    return [steps[i] for i in in_order]


def dependencies(steps: Sequence[Step]) -> tuple[list[int], list[set[int]]]:
    """Return for each step the number of steps that must run before it, and the steps that wait for it."""
    followers: list[set[int]] = [set() for _ in steps]
    writers: dict[Storage, list[int]] = {}
    readers: dict[Storage, list[int]] = {}
    last_call: int | None = None
    for i, step in enumerate(steps):
        read, written = step.accesses()
        before: set[int] = set()
        for storage in read:
            before.update(writers.get(storage, ()))
        for storage in written:
            before.update(writers.get(storage, ()))
            before.update(readers.get(storage, ()))
        if has_calls([step]):
            if last_call is not None:
                before.add(last_call)           # calls may have effects
            last_call = i
        for storage in read:
            readers.setdefault(storage, []).append(i)
        for storage in written:
            writers.setdefault(storage, []).append(i)
        for other in before - {i}:
            followers[other].add(i)
    waiting = [0] * len(steps)
    for following in followers:
        for follower in following:
            waiting[follower] += 1
    return waiting, followers
