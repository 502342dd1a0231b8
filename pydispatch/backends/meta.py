"""The Meta backend: arrays without data, whose kernels tell shapes and dtypes. Its array type is compiled."""

from __future__ import annotations

from pydispatch._core import MetaArray
from pydispatch.keys import register_array_type

__all__ = ["MetaArray"]

register_array_type(MetaArray, "Meta")
