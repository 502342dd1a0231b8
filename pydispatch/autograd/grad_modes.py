"""Switches of recording: guards of the ambient state, one per thread and task."""

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
    """Record nothing inside.

    Parameters
    ----------
    function : callable, optional
        The function to decorate. The decorator works with and without parentheses.

    Returns
    -------
    Guard or callable
        A context manager, or the decorated function.

    Examples
    --------
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> with autograd.no_grad():
    ...     print((x * 2).requires_grad)
    False
    """
    return _guard(Guard("no_grad()", grad=False), function)


@overload
def enable_grad(function: F) -> F: ...
@overload
def enable_grad(function: None = None) -> Guard: ...
def enable_grad(function: Any = None) -> Any:
    """Record inside, even within a surrounding `no_grad`.

    Parameters
    ----------
    function : callable, optional
        The function to decorate. The decorator works with and without parentheses.

    Returns
    -------
    Guard or callable
        A context manager, or the decorated function.

    Examples
    --------
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> with autograd.no_grad(), autograd.enable_grad():
    ...     print((x * 2).requires_grad)
    True
    """
    return _guard(Guard("enable_grad()", grad=True), function)


@overload
def inference_mode(mode: F) -> F: ...
@overload
def inference_mode(mode: bool = True) -> Guard: ...
def inference_mode(mode: Any = True) -> Any:
    """Record nothing inside, and mark Tensors made there as never to be differentiated.

    Outside, marked Tensors cannot be saved for backward, written to, or made to require grad.

    Parameters
    ----------
    mode : bool or callable, optional
        False switches inference mode off inside. A function is decorated.

    Returns
    -------
    Guard or callable
        A context manager, or the decorated function.

    Examples
    --------
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> with autograd.inference_mode():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """
    if callable(mode):
        return Guard("inference_mode()", grad=False, inference=True)(mode)
    return Guard(f"inference_mode({mode})", grad=not mode, inference=bool(mode))


class _Switch(_core.Switch, Guard):
    def __call__(self, function: F) -> F:
        self.hold()
        return super().__call__(function)


class set_grad_enabled(_Switch):  # noqa: N801  PyTorch's name
    """Switch recording on or off, as a context manager or at once for the rest of the surrounding block.

    Examples
    --------
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> with autograd.set_grad_enabled(False):
    ...     print((x * 2).requires_grad)
    False
    """

    what = "grad"


def is_grad_enabled() -> bool:
    """Return whether recording is on."""
    return _core.current_state().grad


def is_inference_mode_enabled() -> bool:
    """Return whether Tensors made here are marked as never to be differentiated."""
    return _core.current_state().inference


def _guard(guard: Guard, function: Any) -> Any:
    return guard if function is None else guard(function)
