"""Dask's arrays as raw arrays: the backend `Dask`, whose kernels are the functions of `dask.array`."""

from __future__ import annotations

import dask.array as da

from pydispatch.keys import backend_names
from pydispatch.registry.backends import register_backend

NAME = "Dask"


def register() -> None:
    """Register the backend, unless it is registered."""
    if NAME not in backend_names():
        register_backend(NAME, da.Array, namespace=da, kernels={"copy": da.Array.copy})
