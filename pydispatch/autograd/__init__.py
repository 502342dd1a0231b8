"""Reverse-mode differentiation: the tape under all operators, and the features built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydispatch import _loading
from pydispatch._core import TapeNode
from pydispatch.autograd import tensors as _tensors  # noqa: F401  which gives Tensor its attributes
from pydispatch.autograd.backward import backward, grad
from pydispatch.autograd.hooks import register_multi_grad_hook
from pydispatch.autograd.residuals import disable_saved_tensors_hooks, saved_tensors_hooks

if TYPE_CHECKING:
    from pydispatch.autograd.anomaly import detect_anomaly
    from pydispatch.autograd.checkpointing import checkpoint
    from pydispatch.autograd.function import Function, once_differentiable
    from pydispatch.autograd.grad_modes import (
        enable_grad,
        inference_mode,
        is_grad_enabled,
        is_inference_mode_enabled,
        no_grad,
        set_grad_enabled,
    )
    from pydispatch.autograd.shapes import sum_to

__all__ = [
    "Function", "TapeNode", "backward", "checkpoint", "detect_anomaly", "disable_saved_tensors_hooks",
    "enable_grad", "grad", "inference_mode", "is_grad_enabled",
    "is_inference_mode_enabled", "no_grad", "once_differentiable", "register_multi_grad_hook",
    "saved_tensors_hooks", "set_grad_enabled", "sum_to",
]

__getattr__, __dir__ = _loading.attributes_on_demand(__name__, globals(), {
    "Function": "function", "once_differentiable": "function", "checkpoint": "checkpointing",
    "detect_anomaly": "anomaly", "sum_to": "shapes",
} | dict.fromkeys((
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
), "grad_modes"))
