"""The backends that come with the package: Meta. NumPy's backend, CPU, needs no code here."""

from __future__ import annotations

from pydispatch._loading import only_public
from pydispatch.backends.meta import MetaArray

__all__ = ["MetaArray"]
__dir__ = only_public(globals())
