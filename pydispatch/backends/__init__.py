"""The backends that come with the package: Meta. NumPy's backend, CPU, needs no code here."""

from __future__ import annotations

from pydispatch._loading import deferred, only_public
from pydispatch._registry.backends import provide_with
from pydispatch.backends.meta import MetaArray

__all__ = ["MetaArray"]
__dir__ = only_public(globals())

provide_with(deferred("backends.providing", "provided"))        # which imports `tracing`
