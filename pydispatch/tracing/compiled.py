"""`CompiledGraph`, the result of `Graph.compile`: a function that calls kernels without dispatch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.tracing.source import Source
from pydispatch.tree import tree_map


class CompiledArgument(NamedTuple):
    """An argument of the function: may the graph write to it, and must it be an array rather than a NumPy scalar?

    `expected` is the only shape and dtype that it accepts; None for any.
    """

    name: str
    is_written: bool
    is_array: bool
    expected: tuple[tuple[int, ...], np.dtype[Any]] | None


@_core.keep_vectorcall
class CompiledGraph(_core.Callee):
    """A graph as one Python function, with the same arguments and results; its code is in `source`.

    Operators are not dispatched. The kernels are those for NumPy arrays at the time of compilation; modes do not see
    the calls, and the tape records nothing. Tensors are unwrapped, and if there were any, results are wrapped.
    `function` is the function itself: it takes a raw array for each placeholder and returns raw arrays.

    Raises AutogradError for a Tensor whose gradient would be lost, DispatchTypeError for one of another backend or of
    a class with a handler.
    """

    def __init__(
        self, source: Source, flatten: Callable[[tuple[Any, ...]], list[Any]], arguments: Sequence[CompiledArgument],
        is_flat: bool,
    ) -> None:
        self.source = source.text
        self.function: Callable[..., Any] = source.function()
        self._names = [argument.name for argument in arguments]
        self._written = [i for i, argument in enumerate(arguments) if argument.is_written]
        self._arrays = [i for i, argument in enumerate(arguments) if argument.is_array]
        self.target = partial(self._run_structured, flatten)
        if is_flat:
            expected = tuple([argument.expected for argument in arguments])
            self.target = _core.GuardedCall(self.function, partial(self._run_named, self.target), expected)

    def _run_named(self, general: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        return general(*(inspect.signature(self.function).bind(*args, **named).args if named else args))

    def _run_structured(self, flatten: Callable[[tuple[Any, ...]], list[Any]], /, *args: Any) -> Any:
        return self._run(flatten(args))

    def _run(self, leaves: list[Any]) -> Any:
        """`function` for arguments of any kind."""
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return self.function(*[
                np.asarray(leaf) if i in self._arrays and isinstance(leaf, np.generic) else leaf
                for i, leaf in enumerate(leaves)])
        raw = [unwrapped(name, leaf) for name, leaf in zip(self._names, leaves, strict=True)]
        for i in self._written:
            if isinstance(leaves[i], Tensor):
                _core.note_write(leaves[i])
        tensors = {id(array): leaf for array, leaf in zip(raw, leaves, strict=True) if isinstance(leaf, Tensor)}
        return tree_map(lambda value: wrapped(value, tensors), self.function(*raw))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a compiled graph holds functions and cannot be copied or pickled\n"
                        "pickle the graph, and compile that: pickle.loads(data).compile()")

    def __repr__(self) -> str:
        return f"<CompiledGraph({', '.join(self._names)})>"


def unwrapped(name: str, value: Any) -> Any:
    """The array of a Tensor, if the Tensor adds nothing to it that would be lost; any other value unchanged."""
    if not isinstance(value, Tensor):
        return value
    _core.refuse_conversion(value, f"argument {name} of a compiled graph")
    if value.dispatches_to_python or not isinstance(value.array, np.ndarray):
        raise DispatchTypeError(
            f"compiled graph: argument {name} is {_core.a_type(value)} of backend {value.device}, expected a plain "
            "Tensor of NumPy's arrays, as the code calls NumPy\nrun the graph itself, which dispatches: graph(...)")
    return value.array


def wrapped(value: Any, tensors: dict[int, Tensor]) -> Any:
    """A result as a Tensor: the argument whose array it is, else a new one."""
    if not _core.is_array(value) or isinstance(value, Tensor):
        return value
    known = tensors.get(id(value))
    return Tensor(value) if known is None else known
