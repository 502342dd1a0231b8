"""Convert values of any interpreter to Tensors and raw arrays, and return their shapes and dtypes, and zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Interpreter, Tensor
from pydispatch.exceptions import DataDependentError
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves, tree_map

Meta = tuple[tuple[int, ...], Any]      # shape and dtype
WITHOUT_LAYOUT = "a trace without data does not know the memory layout of its values"      # why an error is raised


def as_tensor(value: Any) -> Tensor:
    """Return an array of any interpreter as a Tensor."""
    return value if isinstance(value, Tensor) else Tensor(value)


def bottom_of(value: Any) -> Any:
    """Return the raw array below all interpreters of a Tensor, or the value itself if it is not a Tensor.

    For a batch, the array is that of one example.
    """
    return _core.bottom_array(value) if isinstance(value, Tensor) else value


def check_no_fake(name: str, output: Any, arguments: Any) -> None:
    """Raise DataDependentError for a FakeTensor that no argument or mode explains: its gradient is not zero."""
    if not _is_fake(output) or _core.active_modes() or any(map(_is_fake, tree_leaves(arguments))):
        return
    raise DataDependentError(
        f"{name}: the function returned a FakeTensor, which has no data: it escaped from a function that was traced or "
        "compiled\nreturn it from that function, and keep what the graph or the compiled function returns")


def _is_fake(value: Any) -> bool:
    return bool(getattr(bottom_of(value), "fake", False))


def one_beside(value: Any) -> Any:
    """Return the gradient of a value of one element with respect to itself, made by an operator if a mode is active."""
    if not isinstance(bottom_of(value), (np.ndarray, np.generic)):
        return ops.np.ones_like(value)
    if _core.active_modes():
        return _core.below_transforms(_ones, tuple(value.shape), value.dtype)
    return _core.one_of(value.dtype) if value.ndim == 0 else np.ones(value.shape, value.dtype)


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    return ops.np.ones(shape, dtype=dtype, device="CPU")


def meta_of(value: Any) -> Meta | None:
    """Return the shape and dtype, or None if this is not an array."""
    return (tuple(value.shape), value.dtype) if hasattr(value, "dtype") else None


def zeros_beside(value: Any, meta: Meta) -> Any:
    """Return zeros of a shape and dtype, on the backend and of the class of another value.

    If the value is None, return zeros as for new arrays.
    """
    shape, dtype = meta
    if value is None:
        return ops.np.zeros(shape, dtype=dtype)
    return ops.np.zeros_like(value, shape=shape, dtype=dtype)


def as_raw_constant(value: Any) -> Any:
    """Return the array of a Tensor that all interpreters around treat as a constant, or any other value unchanged.

    Modes treat no Tensor as a constant. A trace, for example, cannot see what NumPy does with a Tensor's array.
    """
    if not isinstance(value, Tensor) or isinstance(value, _core.Wrapper) or value.requires_grad:
        return value
    return value if value.dispatches_to_python or _core.tensors_are_followed() else _core.raw_of(value)


def enter_arrays(interpreter: Interpreter, value: Any) -> Any:
    """Wrap the arrays of a pytree as new values of an interpreter."""
    return tree_map(lambda leaf: _core.wrap_value_at(interpreter, leaf) if _core.is_array(leaf) else leaf, value)


def values_below(value: Any, interpreter: Interpreter) -> Any:
    """Replace the values of an interpreter in a pytree by the values below."""
    return tree_map(lambda leaf: _core.value_below(leaf, interpreter), value)


def with_batch_outermost(batch: Any) -> Any:
    """Copy a batch so that each example is contiguous. The axes of an example keep their order in memory."""
    return contiguous_examples(batch, [axis - 1 for axis in order_in_memory(batch) if axis])


def order_in_memory(value: Any) -> list[int]:
    """Return the axes of an array, those with the longest steps in memory first."""
    strides = getattr(bottom_of(value), "strides", None) or (0,) * value.ndim
    return sorted(range(value.ndim), key=lambda axis: -abs(strides[axis]))


def contiguous_examples(batch: Any, order: Sequence[int]) -> Any:
    """Copy a batch so that its examples follow each other in memory, each with its axes in this order."""
    shape = tuple(batch.shape)
    if list(order) == sorted(order):
        return ops.np.reshape(batch, shape, copy=True)
    axes = (0, *[axis + 1 for axis in order])
    copied = ops.np.reshape(ops.np.transpose(batch, axes), tuple([shape[axis] for axis in axes]), copy=True)
    return ops.np.transpose(copied, tuple(sorted(range(len(axes)), key=axes.__getitem__)))


_core.connect(
    zeros_like=lambda value: ops.np.zeros_like(value),
    reshape=lambda value, shape: ops.np.reshape(value, shape),
    moveaxis=lambda value, source, destination: ops.np.moveaxis(value, source, destination),
    add_to=lambda total, value: ops.np.add_(total, value),
    copy=lambda value: ops.np.copy(value),
    sum=lambda value, axis: ops.np.sum(value, axis),
    broadcast_to=lambda value, shape: ops.np.broadcast_to(value, shape),
    with_batch_outermost=with_batch_outermost,
)
