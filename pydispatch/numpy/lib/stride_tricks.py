"""`numpy.lib.stride_tricks`: windows that slide over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch._loading import only_public
from pydispatch.numpy.declare import array_function, as_nonscalar
from pydispatch.ops import ops

__all__ = ["sliding_window_view"]
__dir__ = only_public(globals())


@array_function("lib.stride_tricks")
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False,
                        writeable: bool = False) -> Any:
    """Return every window of a shape, along new last axes, as a view, read-only unless `writeable`."""
    windows = ops.np.sliding_window_view(as_nonscalar(x), window_shape, axis)
    return windows if writeable else ops.np.read_only(windows)


def __getattr__(name: str) -> Any:
    return getattr(np.lib.stride_tricks, name)
