"""Where the elements of NumPy arrays lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core


def addresses(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The address of each element, in the shape of the array."""
    found = np.full(array.shape, _core.address(array), np.int64)
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        found += steps.reshape((-1,) + (1,) * (array.ndim - 1 - axis))
    return found


def positions_among(places: np.ndarray[Any, Any], whole: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The positions of these addresses among those of the elements of `whole`, in its C order; they are there."""
    known = addresses(whole).ravel()
    order = np.argsort(known, kind="stable")
    return np.asarray(order[np.searchsorted(known, places, sorter=order)])
