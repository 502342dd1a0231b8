"""`numpy.lib.stride_tricks`: windows that slide over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch.loading import only_public
from pydispatch.numpy.declare import array_function, as_nonscalar
from pydispatch.ops import ops

__all__ = ["sliding_window_view"]
__dir__ = only_public(globals())


@array_function("lib.stride_tricks")
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False,
                        writeable: bool = False) -> Any:
    """Every window of a shape, along new last axes; they are copies here, so that nothing can be written to them."""
    x = as_nonscalar(x)
    windows = (window_shape,) if isinstance(window_shape, (int, np.integer)) else tuple(window_shape)
    if any(window < 0 for window in windows):
        raise ValueError("`window_shape` cannot contain negative values")
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    if len(windows) != len(axes):
        raise ValueError(f"Must provide matching length window_shape and axis; got {len(windows)} window_shape "
                         f"elements and {len(axes)} axes elements.")
    for window, along in zip(windows, axes, strict=True):
        starts = x.shape[along] - window + 1
        if starts < 1:
            raise ValueError("window shape cannot be larger than input array shape")
        places = np.arange(starts)[:, np.newaxis] + np.arange(window)
        x = ops.np.moveaxis(ops.np.take(x, places, along), along + 1, -1)
    return x


def __getattr__(name: str) -> Any:
    return getattr(np.lib.stride_tricks, name)
