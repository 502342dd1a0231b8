"""Checks of NumPy's BLAS library and its threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from pydispatch.cli.doctor.findings import Finding

VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")


def examine_blas() -> Iterator[Finding]:
    """Examine which BLAS NumPy was built with, and how many threads it and other libraries use."""
    built: Any = np.show_config(mode="dicts")
    blas = built["Build Dependencies"]["blas"]
    yield Finding("BLAS", f"{blas.get('name', 'none')} {blas.get('version', '')}".strip())
    cores = usable_cores()
    for library, threads in (loaded_pools() if find_spec("threadpoolctl") else chosen_threads()):
        yield examine_threads(library, threads, cores)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def loaded_pools() -> Iterator[tuple[str, int]]:
    """Yield each loaded library that has threads, and their number."""
    for pool in import_module("threadpoolctl").threadpool_info():
        yield f"{pool['prefix']} {pool['version'] or ''}".strip(), pool["num_threads"]


def chosen_threads() -> Iterator[tuple[str, int]]:
    """Yield the numbers of threads that environment variables set."""
    for name in VARIABLES:
        if os.environ.get(name, "").isdecimal():
            yield name, int(os.environ[name])


def examine_threads(library: str, threads: int, cores: int) -> Finding:
    """Check that a library has no more threads than cores, since the excess threads would wait."""
    found = f"{threads} threads, {cores} cores"
    if threads <= cores:
        return Finding(library, found)
    return Finding(library, found, f"start Python with fewer: {VARIABLES[0]}={cores} OMP_NUM_THREADS={cores}")
