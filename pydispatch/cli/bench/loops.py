"""What loops that are one operator cost, over the same steps in a Python loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pydispatch import func, higher_order
from pydispatch._core import Tensor
from pydispatch.cli.bench.kinds import Excess
from pydispatch.cli.bench.transforms import Call, SameValues
from pydispatch.ops import ops

STEP = "Loops: a step, more than in a Python loop"
GRADIENT = "Loops: the gradient, over that of a Python loop"

Loop = Callable[[Any, "Cell"], Any]


class Cell(NamedTuple):
    """What a loop computes with, besides weights: the first state, and what comes in at each step."""

    title: str
    weights: np.ndarray
    start: np.ndarray
    inputs: np.ndarray


@functools.cache
def cells() -> tuple[Cell, ...]:
    """A small one, where a step is three operators of half a microsecond, and a large one."""
    normal = np.random.default_rng(0).standard_normal
    return (
        Cell("2 units", normal((2, 2)) / 2, normal(2), normal((300, 2))),
        Cell("64x64", normal((64, 64)) / 64, normal((64, 64)), normal((100, 64, 64))),
    )


# --- loops -----------------------------------------------------------------------------------------------------------


def step(weights: Any, state: Any, x: Any) -> Any:
    """The next state."""
    return ops.np.tanh(weights @ state + x)


def by_scan(weights: Any, cell: Cell) -> Any:
    """The last state."""
    return higher_order.scan(lambda state, x: (step(weights, state, x), None), cell.start, cell.inputs)[0]


def by_for(weights: Any, cell: Cell) -> Any:
    """The same in Python."""
    state = Tensor(cell.start)
    for x in cell.inputs:
        state = step(weights, state, x)
    return state


def by_while_loop(weights: Any, cell: Cell) -> Any:
    """The last state of as many steps that all get the same."""
    return higher_order.while_loop(
        lambda i, state: i < len(cell.inputs), lambda i, state: (i + 1, step(weights, state, cell.start)),
        (0, cell.start),
    )[1]


def by_while(weights: Any, cell: Cell) -> Any:
    """The same in Python."""
    i, state, x = Tensor(np.array(0)), Tensor(cell.start), Tensor(cell.start)
    while i < len(cell.inputs):
        i, state = i + 1, step(weights, state, x)
    return state


def by_map(weights: Any, cell: Cell) -> Any:
    """A step from each input, which gets it once more."""
    return higher_order.map(lambda x: step(weights, x, x), cell.inputs)


def by_comprehension(weights: Any, cell: Cell) -> Any:
    """The same in Python."""
    return ops.np.stack([step(weights, x, x) for x in map(Tensor, cell.inputs)])


LOOPS: dict[str, tuple[Loop, Loop]] = {
    "scan": (by_scan, by_for), "while_loop": (by_while_loop, by_while), "map": (by_map, by_comprehension),
}


# --- what is timed ---------------------------------------------------------------------------------------------------


def forward(loop: Loop, cell: Cell) -> Call:
    """The loop alone, on a Tensor."""
    return functools.partial(loop, Tensor(cell.weights), cell)


def by_transform(loop: Loop, cell: Cell) -> Call:
    """The gradient of the sum of what the loop returns, by the weights."""
    return functools.partial(func.grad(lambda weights: loop(weights, cell).sum()), cell.weights)


def by_tape(loop: Loop, cell: Cell) -> Call:
    """The same on the tape."""
    weights = Tensor(cell.weights, requires_grad=True)

    def gradient() -> Any:
        weights.grad = None
        loop(weights, cell).sum().backward()
        return weights.grad
    return gradient


GRADIENTS = {"func.grad": by_transform, "Tensor.backward": by_tape}


@dataclass(frozen=True)
class StepExcess(SameValues, Excess):
    """The microseconds that a step of one loop takes more than one of another, once both give the same."""


def loop_cases() -> Iterator[SameValues]:
    """Each loop over each cell, and its gradients."""
    programs = [(name, cell, *loops) for cell in cells() for name, loops in LOOPS.items()]
    for name, cell, ours, theirs in programs:
        yield StepExcess(
            STEP, f"{name}, {cell.title}", 1, "loop()", "python()", {}, parts=len(cell.inputs),
            make_call=functools.partial(forward, ours, cell), make_over=functools.partial(forward, theirs, cell),
        )
    for name, cell, ours, theirs in programs:
        for how, make in GRADIENTS.items():
            yield SameValues(
                GRADIENT, f"{name}, {cell.title}, {how}", 1.2, "loop()", "python()", {},
                make_call=functools.partial(make, ours, cell), make_over=functools.partial(make, theirs, cell),
            )
