"""The backends that the package brings along: Meta. NumPy's own, CPU, needs no code."""

from __future__ import annotations

from pydispatch.backends.meta import MetaArray

__all__ = ["MetaArray"]
