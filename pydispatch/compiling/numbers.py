"""Python numbers that are arguments of a plan, instead of constants that each new value compiles again."""

# tests: tests/compiling/test_numbers.py
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch._core import Tensor
from pydispatch.tracing import Graph, Node
from pydispatch.tracing.numbers import LARGEST_INT, plain, value_of
from pydispatch.tracing.values import map_values


class Varying:
    """A number among the arguments of a call that is an argument of the plan."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.sign = 1 if value > 0 else -1


def may_vary(value: Any) -> bool:
    """Return whether guards can describe this number by its type and sign."""
    if type(value) is float:
        return 0 < abs(value) < np.inf
    return type(value) is int and 0 < abs(value) <= LARGEST_INT


def read_numbers(graph: Graph) -> None:
    """Note that the values of all numbers in a graph are used."""
    for constant in graph.constants.values():
        if isinstance(constant, Graph):
            read_numbers(constant)
        else:
            plain(constant)


def is_same_program(general: Any, program: Any) -> bool:
    """Return whether a program with traced numbers is that of their values."""
    return (_comparable(general.graph, general.numbers) == _comparable(program.graph, ())
            and general.unflatten.leaves == program.unflatten.leaves)


def _comparable(graph: Graph, numbers: Sequence[int]) -> list[Any]:
    """Return the calls of a graph, with values for traced numbers, so that equal graphs have equal lists."""
    arrays = [node for i, node in enumerate(graph.placeholders) if i not in numbers]
    names: dict[Node, Any] = {node: ("argument", i) for i, node in enumerate(arrays)}

    def described(leaf: Any) -> Any:
        return names[leaf] if type(leaf) is Node else (type(leaf), repr(leaf))

    found: list[Any] = []
    for node in graph.nodes:
        if node.op == "get_attr":
            names[node] = _constant(graph.constants[str(node.target)])
        elif node.op != "placeholder":
            names[node] = "call", len(found)
            found.append((node.target, map_values(described, (node.args, node.kwargs))))
    return found


def _constant(value: Any) -> Any:
    value = value_of(value)
    if isinstance(value, Graph):
        return _comparable(value, ())
    array = value.array if isinstance(value, Tensor) else value
    if isinstance(array, np.ndarray) and not array.dtype.hasobject:
        return array.dtype, array.shape, array.tobytes()
    return type(value), repr(value) if isinstance(value, (float, int)) else id(value)
