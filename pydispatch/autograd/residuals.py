"""Residuals: what functions of users save for backward, and hooks that see every residual."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from pydispatch import _core
from pydispatch._core import Setting, State, TapeNode, Tensor
from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import AutogradError
from pydispatch.modes import Guard
from pydispatch.ops import ops

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


def saved_tensors_hooks(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> Guard:
    """Pass every residual that is saved in the block through `pack`, and through `unpack` when it is needed.

    `pack` gets a Tensor that it must not write to, and may return anything; `unpack` must return a Tensor of the same
    shape. Only the innermost pair applies.
    """
    return _HooksGuard("saved_tensors_hooks(...)", saved_hooks=(pack, unpack))


def disable_saved_tensors_hooks(message: str) -> Guard:
    """Refuse `saved_tensors_hooks` inside, with this message."""
    return _Disabled("disable_saved_tensors_hooks(...)", saved_hooks=_Forbidden(message))


class _Forbidden:
    """In the place of hooks: entering `saved_tensors_hooks` is refused, with this message. Saving goes on."""

    def __init__(self, message: str) -> None:
        self.message = message


class _HooksGuard(Guard):
    def inside(self, state: State) -> State:
        forbidden = state.saved_hooks
        if isinstance(forbidden, (_Forbidden, str)):
            raise AutogradError(forbidden if isinstance(forbidden, str) else forbidden.message)
        for interpreter in state.stack:
            if isinstance(interpreter, _core.Grad):
                raise AutogradError(f"saved_tensors_hooks does not work under {interpreter.name}\n"
                                    "use it around a backward pass of the tape")
        return super().inside(state)


class _Disabled(Guard):
    """Puts a `_Forbidden` in the place of hooks; where there are some outside, its message alone: saving is refused."""

    def inside(self, state: State) -> State:
        if isinstance(state.saved_hooks, (tuple, str)):
            self.changes = {"saved_hooks": self.changes["saved_hooks"].message}
        return super().inside(state)


_watchers: ContextVar[tuple[Callable[[Any, Any], None], ...]] = ContextVar("pydispatch.copies", default=())


def watching_copies(watcher: Callable[[Any, Any], None]) -> Setting[None]:
    """Call `watcher(value, copy)` for each value that the tape copies because it is about to be overwritten.

    These copies are made under the modes that are on, so none of them sees the call of an operator.
    """
    return Setting(_watchers, (*_watchers.get(), watcher))


def copy_kept(value: Any) -> Any:
    """A copy of what a formula will need and the call is about to overwrite."""
    copy = ops.np.copy(value)
    for watcher in reversed(_watchers.get()):
        watcher(value, copy)
    return copy


class Packed:
    """A residual as a user's hook keeps it."""

    __slots__ = ("_edge", "_kept", "_shape", "_unpack")

    def __init__(self, hooks: Hooks, value: Any) -> None:
        pack, self._unpack = hooks
        tensor = as_tensor(value)
        self._edge = _core.edge_of_tensor(tensor) if tensor.requires_grad else None
        writes = tensor._version
        self._shape = tensor.shape
        self._kept = _core.with_grad_mode(False, pack, tensor)
        if tensor._version != writes:
            raise AutogradError(
                "the pack hook of saved_tensors_hooks wrote to its argument in place\nlet it return a changed copy"
            )

    def unpack(self, create_graph: bool, made_by: Any) -> Tensor:
        """The value again, to be recorded with `create_graph`: as what was saved, or as the result of a node.

        Raises AutogradError when the hook gives something else than a Tensor of its shape.
        """
        tensor = _core.with_grad_mode(False, self._unpack, self._kept)
        if not isinstance(tensor, Tensor) or tensor.shape != self._shape:
            found = f"a Tensor of shape {tensor.shape}" if isinstance(tensor, Tensor) else _core.a_type(tensor)
            raise AutogradError(
                f"the unpack hook of saved_tensors_hooks returned {found}, expected a Tensor of shape {self._shape}\n"
                "return what was packed, as a Tensor"
            )
        edge = self._edge if made_by is None else made_by
        if create_graph and edge is not None:
            tensor = _core.detach(tensor)
            _core.attach(tensor, edge)
        return tensor


def pack(hooks: Hooks | str, value: Any, node: TapeNode | None = None) -> Packed:
    """Let the hooks have a value; raises AutogradError where they are forbidden."""
    if isinstance(hooks, str):
        raise AutogradError(hooks)
    return Packed(hooks, value)


def modified_error(node: TapeNode | None, index: int | None, value: Any, expected: int, found: int) -> AutogradError:
    """The error for a residual that was written to before it was needed."""
    name = "the operator" if node is None else node.name
    what = "its result" if index == -1 else "an argument"
    shape = tuple(getattr(value, "shape", ()))
    notes = None if node is None else node.notes
    origin = getattr(notes, "origin", None)
    where = f"it was called here:\n{origin}" if origin else "find the call with autograd.detect_anomaly()"
    return AutogradError(
        f"{name} saved {what}, of shape {shape}, for backward, and it has been modified by an in-place operator since: "
        f"expected version {expected}, found {found}\n"
        "write to a copy (tensor.copy()) or use the operator that returns a new Tensor, or have all writes of a "
        f"function rewritten so: func.grad(func.functionalize(f)); {where}"
    )


def inference_error(node: Any, value: Tensor) -> AutogradError:
    """What to say when a Tensor of inference mode would have to be saved."""
    return AutogradError(
        f"{getattr(node, 'name', 'a Function')} would have to save a Tensor of shape {value.shape} that was made in "
        "inference mode\n"
        "make it outside of inference_mode(), or pass a copy made there: tensor.copy()"
    )


def released_error(node: TapeNode | None) -> AutogradError:
    """What to say when a graph is run a second time."""
    who = "" if node is None else f"{node.name}: "
    return AutogradError(
        f"{who}Trying to backward through the graph a second time: the values that it saved were released\n"
        "keep them the first time: backward(retain_graph=True)"
    )


_core.connect(copy_kept=copy_kept, pack=pack, Packed=Packed, modified_error=modified_error,
              inference_error=inference_error, released_error=released_error)
