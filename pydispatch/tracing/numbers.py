"""Numbers that a trace follows: a function is called with them in place of Python numbers.

Operators take a traced number as the number, so that dtypes are those of the number (NEP 50), and the graph holds it as
an object. Anything else that the function does with it reads its value.
"""

# tests: tests/compiling/test_numbers.py
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch._core import Tensor
from pydispatch.ops import ops

LARGEST_INT = 2**53
"""Up to this one, float64 holds every int exactly."""


class TracedNumber:
    """A number among the arguments of a traced function: leaf `leaf`, and array `position` of the program.

    It behaves as the number, and notes its leaf in `reads` when its value is used. `function` is None, or a universal
    function with its operands, numbers and traced numbers, whose result this is.
    """

    def __init__(self, value: float, reads: list[int], leaf: int, position: int, function: Any = None) -> None:
        self.value, self.reads, self.leaf, self.position, self.function = value, reads, leaf, position, function

    @property  # type: ignore[misc]     # isinstance reads it
    def __class__(self) -> type:
        return type(self.value)

    def read(self) -> float:
        """Return the value, and note that it was used."""
        self.reads.append(self.leaf)
        return self.value

    def __neg__(self) -> Any:
        return operator.mul(self, -1.0) if type(self.value) is float else -self.read()

    def __getattr__(self, name: str) -> Any:
        if not hasattr(float, name):
            raise AttributeError(name)
        return getattr(self.read(), name)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and any(isinstance(value, Tensor) for value in inputs):
            return getattr(ops.np, function.__name__)(*inputs)
        is_sample = any(isinstance(value, np.ndarray) and not value.size for value in inputs)   # only the dtype matters
        return getattr(function, method)(*map(value_of if is_sample else plain, inputs), **kwargs)


def plain(value: Any) -> Any:
    """Return the value of a traced number, which is noted, and anything else unchanged."""
    return value.read() if type(value) is TracedNumber else value


def _reading(name: str) -> Callable[..., Any]:
    def method(self: TracedNumber, *args: Any) -> Any:
        return getattr(self.read(), name)(*map(plain, args))

    return method


def _arithmetic(name: str, function: np.ufunc, is_reflected: bool) -> Callable[..., Any]:
    read = _reading(name)
    op = getattr(ops.np, function.__name__)

    def method(self: TracedNumber, other: Any) -> Any:
        operands = (other, self) if is_reflected else (self, other)
        if isinstance(other, Tensor):
            return op(*operands)
        if not _is_exact(function, operands):
            return read(self, other)
        return TracedNumber(
            function(*map(value_of, operands)).item(), self.reads, self.leaf, self.position, (function, operands))

    return method


def value_of(number: Any) -> Any:
    """Return the value of a traced number, without noting it, and anything else unchanged."""
    return number.value if type(number) is TracedNumber else number


def _is_exact(function: np.ufunc, operands: tuple[Any, Any]) -> bool:
    """Return whether float64 arithmetic gives Python's result for all values of the traced numbers."""
    values = list(map(value_of, operands))
    if function not in EXACT or float not in map(type, values) or not all(
            type(value) is float or (type(value) is int and abs(value) <= LARGEST_INT) for value in values):
        return False
    divisor = operands[1]
    if function is not np.true_divide:
        return True
    return divisor.function is None if type(divisor) is TracedNumber else divisor != 0


EXACT = frozenset((np.add, np.subtract, np.multiply, np.true_divide))
OPERATIONS: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "pow": np.power,
    "floordiv": np.floor_divide, "mod": np.remainder}
COMPARISONS: dict[str, np.ufunc] = {     # of the array with the number, by the method of the number
    "lt": np.greater, "le": np.greater_equal, "gt": np.less, "ge": np.less_equal, "eq": np.equal, "ne": np.not_equal}
READING = (
    "abs", "bool", "ceil", "divmod", "float", "floor", "format", "hash", "index", "int", "pos", "rpow", "rdivmod",
    "reduce_ex", "repr", "round", "str", "trunc", "invert", "and", "rand", "or", "ror", "xor", "rxor", "lshift",
    "rlshift", "rshift", "rrshift")

for _name in READING:
    setattr(TracedNumber, f"__{_name}__", _reading(f"__{_name}__"))
for _name, _function in COMPARISONS.items():
    setattr(TracedNumber, f"__{_name}__", _arithmetic(f"__{_name}__", _function, True))
for _name, _function in OPERATIONS.items():
    setattr(TracedNumber, f"__{_name}__", _arithmetic(f"__{_name}__", _function, False))
    if _function is not np.power:       # of which NumPy computes some by other functions
        setattr(TracedNumber, f"__r{_name}__", _arithmetic(f"__r{_name}__", _function, True))
