"""The `ctx` of functions that users write: what they save, and what they say about inputs and outputs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydispatch._core import Node, Tensor, value_below
from pydispatch.autograd.saved import SavedTensor, as_tensor, released_error
from pydispatch.exceptions import AutogradError, DispatchTypeError


class Context:
    """What one call of a Function or custom operator keeps until its backward pass.

    Free attributes may be set; those that hold outputs keep the graph alive, so save Tensors by `save_for_backward`.
    """

    def __init__(self, needs_input_grad: tuple[Any, ...], level: Any) -> None:
        self.needs_input_grad = needs_input_grad
        self.materialize = True
        self.dirty: tuple[Tensor, ...] = ()
        self.non_differentiable: tuple[Tensor, ...] = ()
        self._level = level
        self._to_save: tuple[Any, ...] | None = None
        self._for_forward: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = None
        self._released = False
        self._node: Any = None
        self._as_saved = True
        self._dependencies: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | Any | None) -> None:
        """Keep arrays, or None, for backward. Inputs and outputs only: an intermediate is a constant to further
        differentiation. Raises DispatchTypeError for anything that is no array."""
        if self._to_save is not None:
            raise AutogradError("ctx.save_for_backward was called twice\ncall it once, with everything that is saved")
        self._to_save = _arrays_only("save_for_backward", tensors)

    def save_for_forward(self, *tensors: Tensor | Any | None) -> None:
        """Keep arrays, or None, for `jvp`."""
        self._for_forward = _arrays_only("save_for_forward", tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept; raises AutogradError after it was released, or modified in place."""
        if self._released and self._to_save:
            raise released_error(self._node() or _Nameless())
        if self._saved is None:
            return self._for_forward or self._to_save or ()
        node = None if self._node is None else self._node()
        return tuple([
            item.unpack(node, self._as_saved) if isinstance(item, SavedTensor) else None if item is None else as_tensor(item)
            for item in self._saved
        ])

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say that forward wrote to these inputs in place; each must be returned."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that these outputs have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros for outputs that took no part (the default), or None."""
        self.materialize = value

    def seal(self, node: Node | None, outputs: list[Tensor]) -> None:
        """The call is over: what is to be saved is known."""
        if node is None:
            return
        self._node = weakref.ref(node)
        kept = self._to_save or ()
        self._saved = tuple([
            SavedTensor(tensor, _index_of(tensor, outputs, self.dirty), self._level)
            if isinstance(tensor, Tensor) else tensor
            for tensor in kept
        ])
        self._to_save = ("kept",) if kept else ()

    def seal_for_forward(self, level: Any) -> None:
        """The same for `jvp`, which runs at once: what was saved is seen from the level below."""
        kept = self._for_forward or self._to_save or ()
        self._saved = tuple([
            SavedTensor(tensor, None, self._level) if isinstance(tensor, Tensor) else tensor for tensor in kept
        ])
        self._as_saved = False

    def replace_output(self, old: Tensor, new: Tensor) -> None:
        """What the author said of one Tensor is meant for another."""
        self.non_differentiable = tuple([new if tensor is old else tensor for tensor in self.non_differentiable])

    def keep_dependencies(self, tensors: tuple[Tensor, ...]) -> None:
        """What gradients depend on, for a backward that cannot be differentiated again."""
        self._dependencies = tensors

    @property
    def dependencies(self) -> tuple[Any, ...]:
        """The same as values of the level that backward runs at."""
        if self._as_saved:
            return self._dependencies
        return tuple([value_below(tensor, self._level) for tensor in self._dependencies])

    def release(self) -> None:
        """Let go of what was saved."""
        self._released = True
        self._saved = ()

    @contextmanager
    def running(self, node: Node, create_graph: bool) -> Iterator[None]:
        """Inside, saved Tensors are those of the level that backward runs at."""
        before, self._as_saved = self._as_saved, create_graph or self._level is None
        try:
            yield
        finally:
            self._as_saved = before


class _Nameless:
    name = "the Function"


def _index_of(tensor: Tensor, outputs: list[Tensor], dirty: tuple[Tensor, ...]) -> int | None:
    return next((i for i, output in enumerate(outputs) if output is tensor), None)


def _arrays_only(method: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    for i, value in enumerate(values):
        if value is not None and not hasattr(value, "dtype"):
            raise DispatchTypeError(
                f"ctx.{method}: can only save arrays and None; argument {i} is a {type(value).__name__}\n"
                f"keep it as an attribute: ctx.name = value"
            )
    return values
