"""A Tensor and a mode that log every operator that they see, and captures that collect the lines.

    $0: f64[2] = input('x')
    $1: f64[2] = np.multiply($0, 2)

`$1` names an array. Numbers are assigned in order of first appearance, arguments before results. None is reused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from pydispatch._core import OpOverload, Setting, Shell, Tensor, is_array
from pydispatch.modes import DispatchMode
from pydispatch.subclasses import return_and_correct_aliasing
from pydispatch.tree import tree_map


class LoggingTensor(Tensor):
    """A Tensor around another one, `elem`, that logs each operator that it is an argument of.

    Results are also LoggingTensors. Operators run on `elem`, below autograd, so the tape tracks the LoggingTensor
    itself. With `requires_grad`, a tracked `elem` is detached.
    """

    elem: Tensor

    def __init__(self, elem: Any, *, requires_grad: bool = False) -> None:
        inner = elem if isinstance(elem, Tensor) else Tensor(elem)
        super().__init__(Shell(inner), requires_grad=requires_grad)
        self.elem = inner.detach() if requires_grad and inner.requires_grad else inner

    @classmethod
    def __pydispatch__(
        cls, func: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        inner_args, inner_kwargs = tree_map(
            lambda leaf: leaf.elem if isinstance(leaf, LoggingTensor) else leaf, (args, kwargs)
        )
        inner_result = func(*inner_args, **inner_kwargs)
        result = tree_map(lambda leaf: cls(leaf) if is_array(leaf) else leaf, inner_result)
        _log_call(func, args, kwargs, result)
        return return_and_correct_aliasing(func, args, kwargs, result)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.elem!r})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


class LoggingMode(DispatchMode):
    """A mode that logs every operator that is called in it. Capture the lines by `capture_logs(is_mode=True)`."""

    def __pydispatch__(
        self, func: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        _log_call(func, args, kwargs, result)
        return result


def capture_logs(is_mode: bool = False) -> Setting[list[str]]:
    """Collect the lines of LoggingTensors and LoggingModes in the block, in a list.

    Nested captures each get every line, with separate numbers.

    Parameters
    ----------
    is_mode
        Whether all arrays have numbers. By default only LoggingTensors have them, and other arrays are shown in full.

    Returns
    -------
    Setting
        A context manager that returns the list of lines.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import ops, testing
    >>> with testing.capture_logs() as lines:
    ...     x = testing.LoggingTensor(np.ones(2))
    ...     testing.log_input("x", x)
    ...     result = ops.np.multiply(x, 2)
    >>> for line in lines:
    ...     print(line)
    $0: f64[2] = input('x')
    $1: f64[2] = np.multiply($0, 2)
    """
    log = _Log(is_array if is_mode else lambda value: isinstance(value, LoggingTensor))
    return Setting(_logs, (*_logs.get(), log), log.lines)


def log_input(name: str, tensor: Any) -> None:
    """Log the line `$0: f64[2] = input('x')`, which gives `tensor` a number before it is used."""
    for log in _logs.get():
        log.lines.append(f"{log.result(tensor)} = input({name!r})")


def _log_call(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    for log in _logs.get():
        arguments = [*map(log.value, args), *(f"{name}={log.value(value)}" for name, value in kwargs.items())]
        operator = str(func.name).replace("::", ".")
        log.lines.append(f"{log.result(result)} = {operator}({', '.join(arguments)})")


class _Log:
    """The lines of one capture, and the numbers of the arrays in them."""

    def __init__(self, is_numbered: Callable[[Any], bool]) -> None:
        self.lines: list[str] = []
        self._is_numbered = is_numbered
        self._numbers: dict[int, tuple[Callable[[], Any], int]] = {}    # by address: a reference, and the number
        self._next = 0

    def value(self, value: Any) -> str:
        """Return the text of an argument: numbers for arrays, also those in pytrees, and the repr of anything else."""
        return repr(tree_map(lambda leaf: _Text(self._leaf(leaf)), value))

    def result(self, value: Any) -> str:
        """Return the text of a result, which has types in addition to the numbers."""
        return repr(tree_map(lambda leaf: _Text(self._leaf(leaf) + self._type(leaf)), value))

    def _leaf(self, leaf: Any) -> str:
        if self._is_numbered(leaf):
            return f"${self._number(leaf)}"
        return " ".join(repr(leaf).split()) if is_array(leaf) else repr(leaf)

    def _type(self, leaf: Any) -> str:
        return f": {_abbreviation(leaf.dtype)}{list(leaf.shape)}" if self._is_numbered(leaf) else ""

    def _number(self, array: Any) -> int:
        known = self._numbers.get(id(array))
        if known is None or known[0]() is not array:    # the address may have belonged to an array that was freed
            known = self._numbers[id(array)] = _reference(array), self._next
            self._next += 1
        return known[1]


_logs: ContextVar[tuple[_Log, ...]] = ContextVar("pydispatch logs", default=())


def _reference(array: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(array)
    except TypeError:
        return lambda: array    # NumPy scalars do not support weak references


def _abbreviation(dtype: Any) -> str:
    """Return `f64` for float64, `b8` for bool, and the dtype's name if it holds no numbers."""
    return f"{dtype.kind}{8 * dtype.itemsize}" if isinstance(dtype, np.dtype) and dtype.kind in "biufc" else str(dtype)


class _Text(str):
    """A text whose repr is the text itself, for the repr of a pytree."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
