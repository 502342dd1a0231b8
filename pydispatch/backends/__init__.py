"""The backends that the package brings along: Meta. NumPy's own, CPU, needs no code."""

from __future__ import annotations

from pydispatch.backends.meta import MetaArray
from pydispatch.keys import register_array_type

__all__ = ["MetaArray"]

register_array_type(MetaArray, "Meta")
