"""`CompiledGraph`, the result of `Graph.compile`: a function that calls kernels without dispatch."""

# tests: tests/tracing/test_compilation.py
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.tracing.source import Source
from pydispatch.tree import tree_map


class CompiledArgument(NamedTuple):
    """An argument of the function.

    The graph may write to it if `is_written`. It must be an array rather than a NumPy scalar if `is_array`. `expected`
    is the only shape and dtype that it accepts, or None for any.
    """

    name: str
    is_written: bool
    is_array: bool
    expected: tuple[tuple[int, ...], np.dtype[Any]] | None


@_core.keep_vectorcall
class CompiledGraph(_core.Callee):
    """A graph as one Python function, with the same arguments and results. Its code is in `source`.

    Operators are not dispatched. The kernels are those for NumPy arrays at the time of compilation. Modes do not see
    the calls, and the tape records nothing. Tensors are unwrapped, and if there were any, results are wrapped.
    `function` is the function itself. It takes a raw array for each placeholder and returns raw arrays.

    Raises AutogradError for a Tensor whose gradient would be lost, and DispatchTypeError for a Tensor of another
    backend or of a class with a handler.
    """

    def __init__(
        self, source: Source, graph: Any, arguments: Sequence[CompiledArgument], is_flat: bool,
    ) -> None:
        self.source = source.text
        self.function: Callable[..., Any] = source.function()
        self._names = [argument.name for argument in arguments]
        self._written = [i for i, argument in enumerate(arguments) if argument.is_written]
        self._arrays = [i for i, argument in enumerate(arguments) if argument.is_array]
        self._graph, self._state = graph, graph.cached(_state_of)
        self.target = partial(self._run_structured, graph.flatten_arguments)
        if is_flat:
            expected = tuple([argument.expected for argument in arguments])
            self.target = _core.GuardedCall(self.function, partial(self._run_named, self.target), expected)

    def _run_named(self, general: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        return general(*(inspect.signature(self.function).bind(*args, **named).args if named else args))

    def _run_structured(self, flatten: Callable[[tuple[Any, ...]], list[Any]], /, *args: Any) -> Any:
        return self._run(flatten(args))

    def _run(self, leaves: list[Any]) -> Any:
        """Call `function` with arguments of any kind."""
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

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self._graph.cached(_state_of) is not self._state:
            raise TypeError("a compiled graph is pickled as its graph, whose nodes have changed since it was compiled\n"
                            "pickle the graph and compile it after loading: pickle.loads(data).compile()")
        return _compiled_again, (self._graph,)

    def __repr__(self) -> str:
        return f"<CompiledGraph({', '.join(self._names)})>"


def _state_of(graph: Any) -> object:
    """Return an object that stays the same until the nodes of the graph change."""
    return object()


def _compiled_again(graph: Any) -> Any:
    return graph.compile()


def unwrapped(name: str, value: Any) -> Any:
    """Return the array of a Tensor, or any other value unchanged.

    Raise if the Tensor adds something to its array that would be lost.
    """
    if not isinstance(value, Tensor):
        return value
    _core.refuse_conversion(value, f"argument {name} of a compiled graph")
    if value.dispatches_to_python or not isinstance(value.array, np.ndarray):
        raise DispatchTypeError(
            f"compiled graph: argument {name} is {_core.a_type(value)} of backend {value.device}, expected a plain "
            "Tensor of a NumPy array, because the code calls NumPy\nrun the graph itself, which dispatches: graph(...)")
    return value.array


def wrapped(value: Any, tensors: dict[int, Tensor]) -> Any:
    """Return a result as a Tensor: the argument whose array it is, or else a new Tensor."""
    if not _core.is_array(value) or isinstance(value, Tensor):
        return value
    known = tensors.get(id(value))
    return Tensor(value) if known is None else known
