"""Switches of recording: guards of the ambient state, so each thread and task has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from pydispatch import _core
from pydispatch.modes import Guard

F = TypeVar("F", bound=Callable[..., Any])


@overload
def no_grad(function: F) -> F: ...
@overload
def no_grad(function: None = None) -> Guard: ...
def no_grad(function: Any = None) -> Any:
    """Record nothing inside: `with no_grad():`, or as a decorator, with or without parentheses."""
    return _guard(Guard("no_grad()", grad=False), function)


@overload
def enable_grad(function: F) -> F: ...
@overload
def enable_grad(function: None = None) -> Guard: ...
def enable_grad(function: Any = None) -> Any:
    """Record inside, although a surrounding `no_grad` says otherwise."""
    return _guard(Guard("enable_grad()", grad=True), function)


@overload
def inference_mode(mode: F) -> F: ...
@overload
def inference_mode(mode: bool = True) -> Guard: ...
def inference_mode(mode: Any = True) -> Any:
    """Record nothing inside, and mark what is made there as never to be differentiated.

    Marked Tensors cannot be saved for backward, written to, or made to require grad outside.
    """
    if callable(mode):
        return Guard("inference_mode()", grad=False, inference=True)(mode)
    return Guard(f"inference_mode({mode})", grad=not mode, inference=bool(mode))


class _Switch(_core.Switch, Guard):
    def __call__(self, function: F) -> F:
        self.hold()
        return super().__call__(function)


class set_grad_enabled(_Switch):  # noqa: N801  PyTorch's name
    """Switch recording on or off: at once for the rest of the surrounding block, or as a context manager."""

    what = "grad"


class set_forward_enabled(_Switch):  # noqa: N801  beside the above
    """Switch forward mode on or off: inside, `jvp` propagates no tangents when it is off."""

    what = "forward"


def is_grad_enabled() -> bool:
    """Is recording on?"""
    return _core.current_state().grad


def is_inference_mode_enabled() -> bool:
    """Is what is made here marked as never to be differentiated?"""
    return _core.current_state().inference


def _guard(guard: Guard, function: Any) -> Any:
    return guard if function is None else guard(function)
