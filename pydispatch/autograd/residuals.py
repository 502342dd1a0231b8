"""Residuals: the values that users' functions save for backward, and hooks that see every residual."""

# tests: tests/autograd/test_saved_tensors.py
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
    """Pass every residual saved in the block through `pack`, and through `unpack` when it is needed.

    Only the innermost pair applies.

    Parameters
    ----------
    pack : callable
        A function that receives a Tensor, which it must not write to, and may return anything.
    unpack : callable
        A function from the result of `pack` to a Tensor of the same shape.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> def pack(tensor):
    ...     return tensor.numpy().astype("float16")
    >>> def unpack(packed):
    ...     return Tensor(packed.astype("float64"))
    >>> with autograd.saved_tensors_hooks(pack, unpack):
    ...     y = np.sum(x ** 2)
    >>> autograd.grad(y, x)
    (Tensor([2., 4.]),)
    """
    return _HooksGuard("saved_tensors_hooks(...)", saved_hooks=(pack, unpack))


def disable_saved_tensors_hooks(message: str) -> Guard:
    """Make `saved_tensors_hooks` raise AutogradError with this message in the block.

    Parameters
    ----------
    message : str
        The message of the error.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.
    """
    return _Disabled("disable_saved_tensors_hooks(...)", saved_hooks=_Forbidden(message))


class _Forbidden:
    """A replacement for hooks with which entering `saved_tensors_hooks` raises this message. Saving still works."""

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
    """Sets a `_Forbidden` as the hooks, or only the message if there are hooks outside, so that saving raises it."""

    def inside(self, state: State) -> State:
        if isinstance(state.saved_hooks, (tuple, str)):
            self.changes = {"saved_hooks": self.changes["saved_hooks"].message}
        return super().inside(state)


_watchers: ContextVar[tuple[Callable[[Any, Any], None], ...]] = ContextVar("pydispatch.copies", default=())


def watching_copies(watcher: Callable[[Any, Any], None]) -> Setting[None]:
    """Call `watcher(value, copy)` for each value that the tape copies because it is about to be overwritten.

    These copies are made under the active modes, so a mode sees no call of an operator for them.
    """
    return Setting(_watchers, (*_watchers.get(), watcher))


def copy_kept(value: Any) -> Any:
    """Copy a value that a formula needs and the call is about to overwrite."""
    copy = ops.np.copy(value)
    for watcher in reversed(_watchers.get()):
        watcher(value, copy)
    return copy


class Packed:
    """A residual in the form in which a user's hook keeps it."""

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
                "the pack hook of saved_tensors_hooks wrote to its argument in place\nreturn a changed copy"
            )

    def unpack(self, create_graph: bool, made_by: Any) -> Tensor:
        """Return the value again, recorded with `create_graph`: as the original value, or as the result of a node.

        Raise AutogradError if the hook returns anything but a Tensor of its shape.
        """
        tensor = _core.with_grad_mode(False, self._unpack, self._kept)
        if not isinstance(tensor, Tensor) or tensor.shape != self._shape:
            found = f"a Tensor of shape {tensor.shape}" if isinstance(tensor, Tensor) else _core.a_type(tensor)
            raise AutogradError(
                f"the unpack hook of saved_tensors_hooks returned {found}, expected a Tensor of shape {self._shape}\n"
                "return the packed value as a Tensor"
            )
        edge = self._edge if made_by is None else made_by
        if create_graph and edge is not None:
            tensor = _core.detach(tensor)
            _core.attach(tensor, edge)
        return tensor


def pack(hooks: Hooks | str, value: Any, node: TapeNode | None = None) -> Packed:
    """Pass a value through the hooks. Raise AutogradError if hooks are forbidden."""
    if isinstance(hooks, str):
        raise AutogradError(hooks)
    return Packed(hooks, value)


def overwritten_error(value: Tensor) -> AutogradError:
    """Return the error for a residual that was overwritten before the write was announced."""
    return AutogradError(
        f"a Tensor of shape {tuple(value.shape)} that a gradient needs was modified in-place by a Function that wrote "
        "to the array of its input, so its original value is lost\n"
        "write with operators in forward (ops.np.multiply_(x, 2)), or pass a copy to the Function: tensor.copy()"
    )


def inference_error(node: Any, value: Tensor) -> AutogradError:
    """Return the error for saving a Tensor of inference mode."""
    return AutogradError(
        f"{getattr(node, 'name', 'a Function')} cannot save a Tensor of shape {value.shape} that was made in inference "
        "mode\n"
        "make it outside inference_mode(), or pass a copy made there: tensor.copy()"
    )


def released_error(node: TapeNode | None) -> AutogradError:
    """Return the error for running a graph a second time."""
    who = "" if node is None else f"{node.name}: "
    return AutogradError(
        f"{who}Trying to backward through the graph a second time: the values that it saved were released\n"
        "keep them in the first pass: backward(retain_graph=True)"
    )


_core.connect(copy_kept=copy_kept, pack=pack, Packed=Packed, overwritten_error=overwritten_error,
              inference_error=inference_error, released_error=released_error)
