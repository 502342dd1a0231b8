"""The Meta backend: arrays without data, whose kernels compute shapes and dtypes. Its array type is compiled."""

from __future__ import annotations

from pydispatch._core import MetaArray
from pydispatch._loading import only_public
from pydispatch.keys import register_array_type

__all__ = ["MetaArray"]
__dir__ = only_public(globals())

register_array_type(MetaArray, "Meta")
