"""Functions over the chunks of Dask arrays, on one machine or many. Needs the extra `dask`; imported on demand only."""

from __future__ import annotations

from pydispatch.backends.dask import arrays
from pydispatch.backends.dask.chunks import map_chunks
from pydispatch.backends.dask.workers import RegisterOperators

__all__ = ["RegisterOperators", "map_chunks"]

arrays.register()
