"""Values at any interpreter: as Tensors, as the raw arrays that they hold, their shapes and dtypes, zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Interpreter, Tensor
from pydispatch.ops import ops
from pydispatch.tree import tree_map

Meta = tuple[tuple[int, ...], Any]      # shape and dtype


def as_tensor(value: Any) -> Tensor:
    """An array of any interpreter as a Tensor."""
    return value if isinstance(value, Tensor) else Tensor(value)


def bottom_of(value: Any) -> Any:
    """The raw array below all interpreters of a Tensor, of a batch that of one example; what is none as it is."""
    return _core.bottom_array(value) if isinstance(value, Tensor) else value


def one_beside(value: Any) -> Any:
    """The gradient of a value of one element with respect to itself; an operator makes it where a mode sees that."""
    if not isinstance(bottom_of(value), (np.ndarray, np.generic)):
        return ops.np.ones_like(value)
    if _core.active_modes():
        return _core.below_transforms(_ones, tuple(value.shape), value.dtype)
    return _core.one_of(value.dtype) if value.ndim == 0 else np.ones(value.shape, value.dtype)


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    return ops.np.ones(shape, dtype=dtype, device="CPU")


def meta_of(value: Any) -> Meta | None:
    """Shape and dtype; None for what is no array."""
    return (tuple(value.shape), value.dtype) if hasattr(value, "dtype") else None


def zeros_beside(value: Any, meta: Meta) -> Any:
    """Zeros of a shape and dtype, on the backend and of the class of another value; None: those for new arrays."""
    shape, dtype = meta
    if value is None:
        return ops.np.zeros(shape, dtype=dtype)
    return ops.np.zeros_like(value, shape=shape, dtype=dtype)


def as_raw_constant(value: Any) -> Any:
    """The array of a Tensor that is a constant to all around; any other Tensor, and what is none, as it is.

    To a mode no Tensor is a constant: a trace, for one, cannot see what NumPy does with its array.
    """
    if not isinstance(value, Tensor) or isinstance(value, _core.Wrapper) or value.requires_grad:
        return value
    return value if value.dispatches_to_python or _core.tensors_are_followed() else value.array


def enter_arrays(interpreter: Interpreter, value: Any) -> Any:
    """A pytree with its arrays as new values of an interpreter."""
    return tree_map(lambda leaf: _core.wrap_value_at(interpreter, leaf) if _core.is_array(leaf) else leaf, value)


def values_below(value: Any, interpreter: Interpreter) -> Any:
    """A pytree with what its values of an interpreter are below it."""
    return tree_map(lambda leaf: _core.value_below(leaf, interpreter), value)


_core.connect(
    zeros_like=lambda value: ops.np.zeros_like(value),
    reshape=lambda value, shape: ops.np.reshape(value, shape),
    moveaxis=lambda value, source, destination: ops.np.moveaxis(value, source, destination),
    add_to=lambda total, value: ops.np.add_(total, value),
    copy=lambda value: ops.np.copy(value),
    sum=lambda value, axis: ops.np.sum(value, axis),
    broadcast_to=lambda value, shape: ops.np.broadcast_to(value, shape),
)
