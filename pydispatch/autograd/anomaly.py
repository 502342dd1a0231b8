"""Anomaly mode: nodes remember the call that made them, gradients are checked for NaN, saved arrays for writes."""

from __future__ import annotations

import sys
import traceback
import warnings
import zlib
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import State, TapeNode
from pydispatch._sites import is_ours
from pydispatch.autograd.hooks import notes_of
from pydispatch.exceptions import AutogradError, NaNError
from pydispatch.modes import Guard

CHECK_NAN, CHECK_SAVED = 1, 2


class Checks(Guard):
    """A guard that notes where calls are recorded, and turns `checks` on nodes on and `no_checks` off."""

    def __init__(self, text: str, checks: int, no_checks: int = 0) -> None:
        super().__init__(text, anomaly=True, checks=checks)
        self._checks, self._no_checks = checks, no_checks

    def inside(self, state: State) -> State:
        self.changes = {"anomaly": True, "checks": state.checks & ~self._no_checks | self._checks}
        return super().inside(state)


def detect_anomaly(check_nan: bool = True) -> Guard:
    """Make errors of a backward pass name the forward call that they belong to.

    Calls inside are recorded with their place in the program. This is slow and meant for debugging.

    Parameters
    ----------
    check_nan : bool, optional
        Whether a backward pass inside raises AutogradError for a node that produces a NaN.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> with autograd.detect_anomaly():
    ...     autograd.backward(np.sum(np.sqrt(x)))
    """
    return Checks(f"detect_anomaly(check_nan={check_nan})", *((CHECK_NAN,) if check_nan else (0, CHECK_NAN)))


def note_origin(node: TapeNode) -> None:
    """Keep the stack of the call that is being recorded, and for higher orders the node that is running."""
    notes = notes_of(node)
    frames = traceback.StackSummary.extract(
        (frame, line) for frame, line in traceback.walk_stack(sys._getframe()) if not is_ours(frame))
    notes.origin = "".join(traceback.format_list(frames[::-1]))
    notes.parent = _core.running_node()
    if _core.current_state().checks & CHECK_SAVED:
        notes.saved = [(array, checksum(array)) for array in _core.raw_residuals(node)]


def tell_origin(node: TapeNode) -> None:
    """Warn with the place where the call of a node that raised was recorded."""
    if not _core.current_state().anomaly or isinstance(sys.exc_info()[1], NaNError):     # whose message has it
        return
    origin = getattr(node.notes, "origin", None)
    if origin is None:
        warnings.warn(f"Error detected in {node.name}. No forward pass information: the call was recorded outside "
                      "anomaly mode", UserWarning, stacklevel=2)
        return
    warnings.warn(f"Error detected in {node.name}. Traceback of forward call that caused the error:\n{origin}",
                  UserWarning, stacklevel=2)
    parent = node.notes.parent
    if parent is not None and getattr(parent.notes, "origin", None):
        warnings.warn(f"Previous calculation was induced by {parent.name}. Traceback of forward call that induced it:\n"
                      f"{parent.notes.origin}", UserWarning, stacklevel=2)


def checksum(array: np.ndarray[Any, Any]) -> int:
    """Return a number that changes when the array is written to."""
    return zlib.crc32(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())


def check_node(node: TapeNode, gradients: list[Any], checks: int) -> None:
    """Run the checks that the active guards ask for on a node that has run."""
    if checks & CHECK_SAVED:
        check_saved(node)
    if checks & CHECK_NAN:
        check_nan(node, gradients)


def check_saved(node: TapeNode) -> None:
    """Raise AutogradError if a raw array was written to after the node saved it."""
    for array, before in node.notes.saved if node.notes is not None else ():
        if checksum(array) != before:
            raise AutogradError(
                f"{node.name} saved an ndarray of shape {array.shape} and dtype {array.dtype}, which was written to "
                "before its gradient was computed\n"
                "write to a copy, or save a Tensor, whose writes are tracked: Tensor(array)\n"
                f"it was saved by this call:\n{node.notes.origin}")


def check_nan(node: TapeNode, gradients: list[Any]) -> None:
    """Raise AutogradError if a gradient holds a NaN."""
    for i, gradient in enumerate(gradients):
        if gradient is None:
            continue
        array = _core.bottom_array(gradient) if isinstance(gradient, _core.Tensor) else np.asarray(gradient)
        if isinstance(array, np.ndarray) and array.dtype.kind in "fc" and np.isnan(array).any():
            error = AutogradError(f"{node.name} returned nan values in its {i}th output\n"
                                  "check the operands of the forward call")
            tell_origin(node)
            raise error


_core.connect(note_origin=note_origin, tell_origin=tell_origin, check_node=check_node)
