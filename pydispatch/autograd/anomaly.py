"""Anomaly mode: nodes remember the call that made them, and gradients are checked for NaN."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import TapeNode
from pydispatch.autograd.hooks import notes_of
from pydispatch.exceptions import AutogradError, NaNError
from pydispatch.modes import Guard
from pydispatch.registry.sites import is_ours


def detect_anomaly(check_nan: bool = True) -> Guard:
    """Make errors of a backward pass name the forward call that they belong to.

    Calls inside are recorded with their place in the program. A backward pass inside raises AutogradError for a node
    that produces a NaN, unless `check_nan` is False. Slow: for debugging.
    """
    return Guard(f"detect_anomaly(check_nan={check_nan})", anomaly=True, checks_nan=check_nan)


def note_origin(node: TapeNode) -> None:
    """Keep the stack of the call that is being recorded, and the node that is running, for higher orders."""
    notes = notes_of(node)
    frames = traceback.StackSummary.extract(
        (frame, line) for frame, line in traceback.walk_stack(sys._getframe()) if not is_ours(frame))
    notes.origin = "".join(traceback.format_list(frames[::-1]))
    notes.parent = _core.running_node()


def tell_origin(node: TapeNode) -> None:
    """A node raised: warn with the place where its call was recorded."""
    if not _core.current_state().anomaly or isinstance(sys.exc_info()[1], NaNError):     # which says so itself
        return
    origin = getattr(node.notes, "origin", None)
    if origin is None:
        warnings.warn(f"Error detected in {node.name}. No forward pass information: the call was recorded outside of "
                      "anomaly mode", UserWarning, stacklevel=2)
        return
    warnings.warn(f"Error detected in {node.name}. Traceback of forward call that caused the error:\n{origin}",
                  UserWarning, stacklevel=2)
    parent = node.notes.parent
    if parent is not None and getattr(parent.notes, "origin", None):
        warnings.warn(f"Previous calculation was induced by {parent.name}. Traceback of forward call that induced it:\n"
                      f"{parent.notes.origin}", UserWarning, stacklevel=2)


def check_nan(node: TapeNode, gradients: list[Any]) -> None:
    """Raise AutogradError when a gradient holds a NaN."""
    for i, gradient in enumerate(gradients):
        if gradient is None:
            continue
        array = _core.bottom_array(gradient) if isinstance(gradient, _core.Tensor) else np.asarray(gradient)
        if isinstance(array, np.ndarray) and array.dtype.kind in "fc" and np.isnan(array).any():
            error = AutogradError(f"{node.name} returned nan values in its {i}th output\n"
                                  "look at the operands of the call that it belongs to")
            tell_origin(node)
            raise error


_core.connect(note_origin=note_origin, tell_origin=tell_origin, check_nan=check_nan)
