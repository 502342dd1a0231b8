"""Single values at any level: as Tensors, as the raw arrays that they hold, their shapes and dtypes, zeros."""

from __future__ import annotations

from typing import Any

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.ops import ops

Meta = tuple[tuple[int, ...], Any]      # shape and dtype


def as_tensor(value: Any) -> Tensor:
    """An array of any level as a Tensor."""
    return value if isinstance(value, Tensor) else Tensor(value)


def bottom_of(value: Any) -> Any:
    """The raw array at the bottom of all levels of a Tensor, of a batch that of one example; what is none as it is."""
    return _core.bottom_array(value) if isinstance(value, Tensor) else value


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
    """The array of a constant Tensor; a tracked Tensor, a value of a transform and anything else as they are."""
    if isinstance(value, Tensor) and not isinstance(value, _core.Wrapper) and not value.requires_grad:
        return value if value.dispatches_to_python else value.array
    return value
