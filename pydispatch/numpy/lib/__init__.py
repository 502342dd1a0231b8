"""`numpy.lib`, with our own functions of arrays in `stride_tricks`."""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from pydispatch.numpy.lib import stride_tricks

__all__ = ["stride_tricks"]


def __getattr__(name: str) -> Any:
    return getattr(_numpy.lib, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_numpy.lib.__all__})
