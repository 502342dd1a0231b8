"""The cost of a recorded operator: memory, and time in a backward pass through up to a million of them."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch._core import Tensor
from pydispatch.autograd import grad, no_grad
from pydispatch.cli.timing import clock

Operator = Callable[[Any], Any]


def size_of_node(repetitions: int) -> list[float]:
    """Return bytes of the node of a multiplication, with the header of the garbage collector."""
    x = Tensor(np.ones(4), requires_grad=True)
    return [sys.getsizeof((x * x).grad_fn)]


def traced_size_of_node(repetitions: int) -> list[float]:
    """Return the bytes that recording takes per operator: a node and all that it keeps alive, without the results."""
    x = Tensor(np.ones(4), requires_grad=True)
    factor = Tensor(np.ones(4))
    recorded = traced_size_of_chain(lambda y: y * factor, x)
    with no_grad():
        unrecorded = traced_size_of_chain(lambda y: y * factor, x)
    return [recorded - unrecorded]


def traced_size_of_chain(operator: Operator, x: Tensor, length: int = 20_000) -> float:
    """Return bytes per operator that a chain of them takes, each result kept."""
    results: list[Any] = [x] * (length + 1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for i in range(length):
            results[i + 1] = operator(results[i])
        return (tracemalloc.get_traced_memory()[0] - before) / length
    finally:
        tracemalloc.stop()


def backward_time(length: int) -> float:
    """Return nanoseconds per operator of a backward pass through a chain of this many multiplications."""
    x = Tensor(np.ones(4), requires_grad=True)
    y = x
    for _ in range(length):
        y = y * 1.0
    ones = Tensor(np.ones(4))
    start = clock()
    grad(y, x, ones)
    return (clock() - start) / length * 1e9


def backward_times(length: int) -> Callable[[int], list[float]]:
    """Return the time as a function of the repetitions."""
    return lambda repetitions: [backward_time(length) for _ in range(max(1, repetitions // 3))]


def slowdown(length: int, over: int) -> Callable[[int], list[float]]:
    """Return the time per operator in a long chain over that in a shorter chain."""
    return lambda repetitions: [
        backward_time(length) / backward_time(over) for _ in range(max(1, repetitions // 3))
    ]


GRAPHS = "Recorded operators"
GRAPH_ROWS = (
    ("node, sys.getsizeof", 300, "B", size_of_node),
    ("node and saved, tracemalloc", 300, "B", traced_size_of_node),
    ("backward, 10,000 in a chain", None, "ns", backward_times(10_000)),
    ("backward, 100,000", None, "ns", backward_times(100_000)),
    ("backward, 1,000,000", None, "ns", backward_times(1_000_000)),
    ("1,000,000 over 10,000", 3, "×", slowdown(1_000_000, 10_000)),
)
