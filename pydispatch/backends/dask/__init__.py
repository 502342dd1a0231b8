"""Dask arrays as raw arrays, and functions over their chunks. Needs the extra `dask`.

The package is imported when the first Dask array is used. Its modules that need the scheduler are imported on
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydispatch import _loading
from pydispatch.backends.dask import arrays

if TYPE_CHECKING:
    from pydispatch.backends.dask.chunks import map_chunks
    from pydispatch.backends.dask.workers import RegisterOperators

__all__ = ["RegisterOperators", "map_chunks"]

__getattr__, __dir__ = _loading.attributes_on_demand(__name__, globals(), {
    "RegisterOperators": "workers", "map_chunks": "chunks"})

arrays.register()
