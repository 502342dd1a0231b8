"""Fixtures of all tests: three run-time backends, a functionality, separate namespaces, kernels that record calls.

Keys last for the life of the process, so they are registered here, once, before tests are collected.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from pydispatch import DispatchKey, register_array_type, register_backend, register_functionality
from pydispatch._registry import registrations
from pydispatch._registry.operators import find_or_raise
from pydispatch.library import Library

# A busy machine fails no test, and a run that fails fails again. `--hypothesis-profile=searching` draws other examples.
BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **BUSY)
settings.register_profile("searching", **BUSY)
settings.load_profile("repeatable")


class HostArray:
    """An array of some other backend: data in NumPy's memory, and nothing that NumPy would recognise."""

    __array_ufunc__ = None
    __slots__ = ("__weakref__", "data")

    def __init__(self, data):
        self.data = np.asarray(data)

    shape = property(lambda self: self.data.shape)
    dtype = property(lambda self: self.data.dtype)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: self.data.size)

    def __repr__(self):
        return f"{type(self).__name__}({self.data.tolist()})"


class ArrayA(HostArray):
    __slots__ = ()


class ArrayB(HostArray):
    __slots__ = ()


class ArrayC(HostArray):
    __slots__ = ()


class SparseArray(HostArray):
    __slots__ = ()


class SparseArrayA(HostArray):
    __slots__ = ()


BACKENDS = SimpleNamespace(
    ArrayA=ArrayA,
    ArrayB=ArrayB,
    ArrayC=ArrayC,
    SparseArray=SparseArray,
    SparseArrayA=SparseArrayA,
    A=register_backend("A", ArrayA),
    B=register_backend("B", ArrayB),
    C=register_backend("C", ArrayC, above=("B",)),
)
register_array_type(SparseArray, "CPU", "Sparse")
register_array_type(SparseArrayA, "A", "Sparse")
TRACER = register_functionality("Tracer")
namespaces = (f"t{n}" for n in itertools.count())


COUNTED = "counted: "
"""The prefix of a property with the number of times that a test did something."""


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """Return `count`: `count("interrupts", 12)` adds 12 to the sum that the end of a run shows."""
    return lambda what, n: record_property(COUNTED + what, n)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sums: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, n in report.user_properties:
                    if name.startswith(COUNTED):
                        sums[name.removeprefix(COUNTED)] += n
    for what, n in sums.items():
        terminalreporter.write_line(f"{n:,} {what}")


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Freeze existing objects, such as thousands of reports of tests, so that `gc.collect()` in a test is fast."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_other_thread() -> Iterator[None]:
    """Let no other thread run while allocations fail, since they fail in all threads: in pytest-xdist's, which dies."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(600.0)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(scope="session")
def backends() -> SimpleNamespace:
    """Provide the dense keys A, B, C (C above B, A unrelated), types of their arrays, sparse ones of CPU and A."""
    return BACKENDS


@pytest.fixture(scope="session")
def tracer() -> DispatchKey:
    """Provide a run-time functionality, off unless a guard includes it."""
    return TRACER


@pytest.fixture(scope="session")
def new_library():
    """Return a function that opens a FRAGMENT library on a new namespace, for tests that need several of them."""
    return lambda: Library(next(namespaces), "FRAGMENT")


@contextmanager
def opened_library() -> Iterator[Library]:
    with Library(next(namespaces), "FRAGMENT") as library:
        yield library
    remove_what_is_left(library.namespace)


@pytest.fixture
def fresh():
    """Provide a FRAGMENT library on a namespace of its own, closed after the test."""
    with opened_library() as library:
        yield library


@pytest.fixture(scope="session")
def open_fresh():
    """Return the context manager behind `fresh`, for a test that needs it many times."""
    return opened_library


def remove_what_is_left(namespace: str) -> None:
    """Undo what decorators, which give no handle, have registered for operators of a namespace."""
    for name in [name for name in registrations.operators if name.startswith(f"{namespace}::")]:
        for registration in tuple(registrations.operators[name].registrations):
            registration.remove()


@pytest.fixture(scope="session")
def define():
    """Return `define`: `define(lib, "f(Tensor x) -> Tensor", CPU=kernel)` registers, and returns the overload."""

    def define_operator(library, schema, **kernels):
        library.define(schema)
        name = f"{library.namespace}::{schema.partition('(')[0].strip()}"
        for key, kernel in kernels.items():
            library.impl(name, kernel, key)
        return find_or_raise(name)

    return define_operator


@pytest.fixture(scope="session")
def token():
    """Return `token`: `token("cpu")` is a kernel that takes anything and returns the str "cpu"."""

    def make(name):
        def kernel(*args, **kwargs):
            return name

        kernel.__name__ = kernel.__qualname__ = f"token_{name}"
        return kernel

    return make


@pytest.fixture(scope="session")
def spy():
    """Return `spy`: `spy(result)` is a kernel that returns `result` and keeps its (args, kwargs) in `.calls`."""

    def make(result=None):
        def kernel(*args, **kwargs):
            kernel.calls.append((args, kwargs))
            return result

        kernel.calls = []
        return kernel

    return make
