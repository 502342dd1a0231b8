"""Dask's arrays as raw arrays: the backend `Dask`, whose kernels are the functions of `dask.array`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da

from pydispatch._core import OpOverload
from pydispatch.exceptions import NoKernelError
from pydispatch.keys import backend_names, register_backend
from pydispatch.library import Library

NAME = "Dask"
METHODS: dict[str, Callable[..., Any]] = {"copy": da.Array.copy, "getitem": da.Array.__getitem__}
"""What `dask.array` has no functions for."""


def register() -> None:
    """Register the backend, unless it is registered."""
    if NAME not in backend_names():
        register_backend(NAME, da.Array)
        Library("_", "IMPL", NAME).fallback(_call_function_of_dask)


def _call_function_of_dask(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The function of `dask.array` of the same name."""
    name = op.name.name
    function: Callable[..., Any] | None = None
    if op.namespace == "np" and not op.name.overload:
        function = METHODS[name] if name in METHODS else getattr(da, name, None)
    if function is None:
        raise NoKernelError(f"operator {op.name} has no kernel for Dask arrays\n"
                            f'register one: pydispatch.library.impl("{op.name}", "Dask", fn)')
    return function(*args, **kwargs)
