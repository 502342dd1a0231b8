"""The backends that the package brings along: Meta. NumPy's own, CPU, needs no code."""

from __future__ import annotations

from pydispatch.backends.meta import MetaArray
from pydispatch.loading import only_public

__all__ = ["MetaArray"]
__dir__ = only_public(globals())
