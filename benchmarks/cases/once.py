"""Sizes, and costs that arise once: the import, the first call, registrations."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.cases.peers import NAMESPACE
from pydispatch._core import Tensor
from pydispatch.cli.timing import clock
from pydispatch.library import Library
from pydispatch.ops import ops

IMPORTS = """
from time import process_time

times = [process_time()]
import numpy
times.append(process_time())
import pydispatch
times.append(process_time())
print(*times)
"""


def import_ratios(repetitions: int) -> list[float]:
    """Return the processor time of `import pydispatch`, over that of `import numpy` before it in the same process."""
    with compiled_imports() as variables:
        rounds = [run(IMPORTS, variables).stdout.split() for _ in range(repetitions)]
    return [(float(end) - float(middle)) / (float(middle) - float(start)) for start, middle, end in rounds]


def process_ratios(repetitions: int) -> list[float]:
    """Return the processor time that `import pydispatch` adds to a process, over that of `import numpy`."""
    codes = ("import numpy, pydispatch", "import numpy", "pass")
    with compiled_imports() as variables:
        rounds = [[process_time(code, variables) for code in codes] for _ in range(repetitions)]
    return [(both - numpy) / (numpy - nothing) for both, numpy, nothing in rounds]


@contextlib.contextmanager
def compiled_imports() -> Iterator[dict[str, str]]:
    """Provide the environment of processes that find all their imports compiled."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        variables["PYTHONPYCACHEPREFIX"] = folder
        run("import numpy, pydispatch", variables)
        yield variables


def process_time(code: str, variables: dict[str, str]) -> float:
    """Return processor seconds of a new Python process that runs this code, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(code, variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(code: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Return a new Python process that ran this code."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, env=variables, stdout=subprocess.PIPE, text=True)


def size_of_tensor(repetitions: int) -> list[float]:
    """Return the bytes of a Tensor without its array, with the header of the collector."""
    return [sys.getsizeof(Tensor(np.ones(4)))]


def traced_size_of_tensor(repetitions: int) -> list[float]:
    """Return bytes that making a Tensor takes, for so many of them that those from a free list do not matter."""
    array = np.ones(4)
    tensors: list[Any] = [None] * 20_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for i in range(len(tensors)):
            tensors[i] = Tensor(array)
        return [(tracemalloc.get_traced_memory()[0] - before) / len(tensors)]
    finally:
        tracemalloc.stop()


def first_call_times(repetitions: int) -> list[float]:
    """Return microseconds of the first call of operators that were just registered."""
    x, y = np.ones(4), np.ones(4)
    times = []
    with Library(f"{NAMESPACE}_first", "FRAGMENT") as library:
        for i in range(20 * repetitions):
            library.define(f"op{i}(Tensor x, Tensor y, *, float alpha=1.0) -> Tensor")
            library.impl(f"op{i}", new_kernel(), "CPU")
            library.impl(f"op{i}", new_kernel(), "Meta")
            operator = getattr(getattr(ops, library.namespace), f"op{i}")
            start = clock()
            operator(x, y)
            times.append((clock() - start) * 1e6)
    return times


def registration_times(repetitions: int) -> list[float]:
    """Return seconds to define 1,000 operators and give each of them five kernels."""
    keys = ("CPU", "Meta", "SparseCPU", "Autograd", "CompositeExplicitAutograd")
    kernels = [[new_kernel() for _ in keys] for _ in range(1000)]
    times = []
    for _ in range(max(1, repetitions // 3)):
        with Library(f"{NAMESPACE}_many", "FRAGMENT") as library:
            start = clock()
            for i, functions in enumerate(kernels):
                library.define(f"op{i}(Tensor x, Tensor y, *, float alpha=1.0) -> Tensor")
                for key, function in zip(keys, functions, strict=True):
                    library.impl(f"op{i}", function, key)
            times.append(clock() - start)
    return times


def new_kernel() -> Callable[..., Any]:
    """Return a new function."""
    return lambda x, y, alpha=1.0: x


ONCE = "Sizes and one-off costs"
ONCE_ROWS = (
    ("import pydispatch, over import numpy", 0.35, "×", import_ratios),
    ("a process that imports both, over one of NumPy", None, "×", process_ratios),
    ("Tensor, sys.getsizeof", 80, "B", size_of_tensor),
    ("Tensor, tracemalloc", 80, "B", traced_size_of_tensor),
    ("first call of an operator", 100, "µs", first_call_times),
    ("register 1,000 operators", 0.5, "s", registration_times),
)
