"""The cost of loops that are one operator, over the same steps in a Python loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases.kinds import Excess
from benchmarks.cases.transforms import Call, SameValues
from pydispatch import func, higher_order
from pydispatch._core import Tensor
from pydispatch.ops import ops

STEP = "Loops: a step, more than in a Python loop"
GRADIENT = "Loops: the gradient, over that of a Python loop"

Loop = Callable[[Any, "LoopInputs"], Any]


class LoopInputs(NamedTuple):
    """The inputs of a loop besides the weights: the first state, and an input for each step."""

    title: str
    weights: np.ndarray
    start: np.ndarray
    inputs: np.ndarray


@functools.cache
def loop_inputs() -> tuple[LoopInputs, ...]:
    """Return a small input, where a step is three operators of half a microsecond, and a large one."""
    normal = np.random.default_rng(0).standard_normal
    return (
        LoopInputs("2 units", normal((2, 2)) / 2, normal(2), normal((300, 2))),
        LoopInputs("64x64", normal((64, 64)) / 64, normal((64, 64)), normal((100, 64, 64))),
    )


# --- loops -----------------------------------------------------------------------------------------------------------


def step(weights: Any, state: Any, x: Any) -> Any:
    """Compute the next state."""
    return ops.np.tanh(weights @ state + x)


def by_scan(weights: Any, data: LoopInputs) -> Any:
    """Compute the last state by `scan`."""
    return higher_order.scan(lambda state, x: (step(weights, state, x), None), data.start, data.inputs)[0]


def by_for(weights: Any, data: LoopInputs) -> Any:
    """Compute the last state in Python."""
    state = Tensor(data.start)
    for x in data.inputs:
        state = step(weights, state, x)
    return state


def by_while_loop(weights: Any, data: LoopInputs) -> Any:
    """Compute the last state by `while_loop`, whose steps all get the same input."""
    return higher_order.while_loop(
        lambda i, state: i < len(data.inputs), lambda i, state: (i + 1, step(weights, state, data.start)),
        (0, data.start),
    )[1]


def by_while(weights: Any, data: LoopInputs) -> Any:
    """Compute the same last state in Python."""
    i, state, x = Tensor(np.array(0)), Tensor(data.start), Tensor(data.start)
    while i < len(data.inputs):
        i, state = i + 1, step(weights, state, x)
    return state


def by_map(weights: Any, data: LoopInputs) -> Any:
    """Make one step per input, with the input as the state too."""
    return higher_order.map(lambda x: step(weights, x, x), data.inputs)


def by_comprehension(weights: Any, data: LoopInputs) -> Any:
    """Make one step per input in Python."""
    return ops.np.stack([step(weights, x, x) for x in map(Tensor, data.inputs)])


LOOPS: dict[str, tuple[Loop, Loop]] = {
    "scan": (by_scan, by_for), "while_loop": (by_while_loop, by_while), "map": (by_map, by_comprehension),
}


# --- what is timed ---------------------------------------------------------------------------------------------------


def forward(loop: Loop, data: LoopInputs) -> Call:
    """Run only the loop, on a Tensor."""
    return functools.partial(loop, Tensor(data.weights), data)


def by_transform(loop: Loop, data: LoopInputs) -> Call:
    """Return the gradient of the sum of the loop's results, by the weights."""
    def total(weights: Any) -> Any:
        return loop(weights, data).sum()

    return functools.partial(func.grad(total), data.weights)


def by_tape(loop: Loop, data: LoopInputs) -> Call:
    """Compute the same gradient on the tape."""
    weights = Tensor(data.weights, requires_grad=True)

    def gradient() -> Any:
        weights.grad = None
        loop(weights, data).sum().backward()
        return weights.grad
    return gradient


GRADIENTS = {"func.grad": by_transform, "Tensor.backward": by_tape}


@dataclass(frozen=True)
class StepExcess(SameValues, Excess):
    """The microseconds that a step takes longer in one loop than in another, after a check that both agree."""


def loop_cases() -> Iterator[SameValues]:
    """Yield each loop over each data, and its gradients."""
    programs = [(name, data, *loops) for data in loop_inputs() for name, loops in LOOPS.items()]
    for name, data, ours, theirs in programs:
        yield StepExcess(
            STEP, f"{name}, {data.title}", 1, "loop()", "python()", {}, parts=len(data.inputs),
            make_call=functools.partial(forward, ours, data), make_over=functools.partial(forward, theirs, data),
        )
    for name, data, ours, theirs in programs:
        for how, make in GRADIENTS.items():
            yield SameValues(
                GRADIENT, f"{name}, {data.title}, {how}", 1.2, "loop()", "python()", {},
                make_call=functools.partial(make, ours, data), make_over=functools.partial(make, theirs, data),
            )
