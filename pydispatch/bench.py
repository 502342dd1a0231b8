"""What a dispatch costs: the cases, measured as ratios within one run, and their bounds.

`python -m pydispatch bench` prints them; docs/performance.md says what each row means.
"""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import importlib
import itertools
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pydispatch import __version__, _core
from pydispatch._core import Tensor
from pydispatch.library import Library
from pydispatch.ops import ops
from pydispatch.peers import NAMESPACE, PEERS, kernel
from pydispatch.timing import clock, make_loop, quiet, time_in_rounds


class Effort(NamedTuple):
    """How long to measure: rounds of loops, and repetitions of what takes long by itself."""

    rounds: int
    repetitions: int


FULL = Effort(201, 11)
QUICK = Effort(15, 3)


# --- kinds of cases --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A measured value, the median over the rounds, with its quartiles and its bound."""

    group: str
    name: str
    value: float
    low: float
    high: float
    unit: str
    bound: float
    at_least: bool
    times: dict[str, float] = field(default_factory=dict)   # call -> nanoseconds

    @property
    def ok(self) -> bool:
        """Is the value within its bound?"""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Case:
    """What a row measures, and the bound that it should keep."""

    group: str
    name: str
    bound: float

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        raise NotImplementedError

    def row(
        self, values: list[float], times: dict[str, float], *, unit: str = "×", at_least: bool = False
    ) -> Row:
        """The row of the values of all rounds."""
        low, value, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        return Row(self.group, self.name, value, low, high, unit, self.bound, at_least, times)


@dataclass(frozen=True)
class Ratio(Case):
    """The time of one call over that of another."""

    call: str
    over: str
    names: dict[str, Any] = field(repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        calls = (self.call, self.over)
        rounds = time_in_rounds([make_loop(text, self.names) for text in calls], effort.rounds)
        times = map(statistics.median, zip(*rounds, strict=True))
        return self.row([this / other for this, other in rounds], dict(zip(calls, times, strict=True)))


@dataclass(frozen=True)
class Added(Case):
    """What a peer adds to the time of a kernel, over what an operator adds to it."""

    names: dict[str, Any] = field(repr=False)

    calls = ("kernel(x, y)", "op(x, y)", "peer(a, b)")

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        rounds = time_in_rounds([make_loop(text, self.names) for text in self.calls], effort.rounds)
        times = map(statistics.median, zip(*rounds, strict=True))
        ratios = [(theirs - direct) / (ours - direct) for direct, ours, theirs in rounds]
        return self.row(ratios, dict(zip(self.calls, times, strict=True)), at_least=True)


@dataclass(frozen=True)
class Absolute(Case):
    """A value with a unit of its own."""

    unit: str
    values: Callable[[int], list[float]] = field(repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        return self.row(self.values(effort.repetitions), {}, unit=self.unit)


# --- the cases -------------------------------------------------------------------------------------------

FLOOR = "Operators over a C function that returns its second argument"
FLOOR_ROWS = (
    ("two raw arrays", 2.5, "op(x, y)", "kernel(x, y)"),
    ("two Tensors", 3.5, "op(X, Y)", "kernel(x, y)"),
    ("both by keyword", 2.0, "op(first=x, second=y)", "op(x, y)"),
    ("one by keyword", 2.0, "op(x, second=y)", "op(x, y)"),
    ("one of 4 by position", 1.5, "four(x, 5)", "four(x)"),
    ("one of 4 by keyword", 1.5, "four(x, c=5)", "four(x)"),
    ("one of 4 keyword-only", 1.5, "named(x, c=5)", "named(x)"),
)
ADD = "np.add on 4-element arrays"
ADD_ROWS = (
    ("raw arrays", 1.15, "op(x, y)", "add(x, y)"),
    ("Tensors", 1.2, "op(X, Y)", "add(x, y)"),
    ("Tensors, as X + Y", 1.2, "X + Y", "add(x, y)"),
)
OTHERS = "What other dispatchers add to a Python kernel, over what we add"


def arrays() -> dict[str, Any]:
    """Two raw arrays x, y of shape (4,), and Tensors X, Y over them."""
    x, y = np.arange(4.0), np.ones(4)
    return {"x": x, "y": y, "X": Tensor(x), "Y": Tensor(y)}


def floor_cases(library: Library) -> list[Ratio]:
    """Operators over kernels that cost next to nothing."""
    library.define("second(Tensor first, Tensor second) -> Tensor", _core.second_argument, "CPU")
    library.define("four(Tensor x, int a=0, int b=0, int c=0, int d=0) -> Tensor", _core.first_of_five, "CPU")
    library.define("named(Tensor x, *, int a=0, int b=0, int c=0, int d=0) -> Tensor", _core.first_of_five, "CPU")
    family = getattr(ops, NAMESPACE)
    names = arrays() | {
        "op": family.second, "kernel": _core.second_argument, "four": family.four, "named": family.named,
    }
    return [Ratio(FLOOR, *row, names) for row in FLOOR_ROWS]


def add_cases() -> list[Ratio]:
    """The library's own addition."""
    names = arrays() | {"add": np.add, "op": ops.np.add}
    return [Ratio(ADD, *row, names) for row in ADD_ROWS]


def peer_cases(library: Library, left_out: dict[str, str], pattern: str = "") -> Iterator[Added]:
    """The peers that are installed; the others are noted in `left_out`."""
    library.define("first(Tensor x, Tensor y) -> Tensor", kernel, "CPU")
    names = arrays() | {"op": getattr(ops, NAMESPACE).first, "kernel": kernel}
    for name, peer in PEERS.items():
        if matches(OTHERS, name, pattern):
            try:
                module = importlib.import_module(peer.module)
            except ImportError as error:
                left_out[name] = str(error)
            else:
                set_up = {"a": names["x"], "b": names["y"], **peer.set_up(module)}
                yield Added(OTHERS, name, peer.bound, names | set_up)


def cases(library: Library, left_out: dict[str, str], pattern: str = "") -> Iterator[Case]:
    """The cases whose "group/name" matches; their operators go into `library`, which is open on NAMESPACE."""
    chained: Iterator[Case] = itertools.chain(
        floor_cases(library), add_cases(), peer_cases(library, left_out, pattern),
        (Absolute(ONCE, *row) for row in ONCE_ROWS),
    )
    return (case for case in chained if matches(case.group, case.name, pattern))


def matches(group: str, name: str, pattern: str) -> bool:
    """Does a part of "group/name" match the pattern, in which * and ? are wildcards?"""
    return fnmatch.fnmatch(f"{group}/{name}".lower(), f"*{pattern.lower()}*")


# --- sizes and one-off costs -----------------------------------------------------------------------------


def import_times(repetitions: int) -> list[float]:
    """Milliseconds that `import pydispatch` adds to `import numpy`: processor time of pairs of processes."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        variables["PYTHONPYCACHEPREFIX"] = folder
        process_time("import numpy, pydispatch", variables)     # compiles all of it
        return [
            1e3 * (process_time("import numpy, pydispatch", variables) - process_time("import numpy", variables))
            for _ in range(repetitions)
        ]


def process_time(code: str, variables: dict[str, str]) -> float:
    """Processor seconds of a new Python process that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size_of_tensor(repetitions: int) -> list[float]:
    """Bytes of a Tensor besides its array, with the header of the collector."""
    return [sys.getsizeof(Tensor(np.ones(4)))]


def traced_size_of_tensor(repetitions: int) -> list[float]:
    """Bytes that making a Tensor takes; of so many of them that those from a free list do not count."""
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
    """Microseconds of the first call of operators that were just registered."""
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
    """Seconds to define 1,000 operators and give each of them five kernels."""
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
    """A function of its own."""
    return lambda x, y, alpha=1.0: x


ONCE = "Sizes and one-off costs"
ONCE_ROWS = (
    ("import pydispatch", 30, "ms", import_times),
    ("Tensor, sys.getsizeof", 80, "B", size_of_tensor),
    ("Tensor, tracemalloc", 80, "B", traced_size_of_tensor),
    ("first call of an operator", 100, "µs", first_call_times),
    ("register 1,000 operators", 0.5, "s", registration_times),
)


# --- the report ------------------------------------------------------------------------------------------


def measure(effort: Effort, pattern: str, left_out: dict[str, str]) -> Iterator[Row]:
    """The rows, one by one as they are measured."""
    with Library(NAMESPACE, "FRAGMENT") as library:
        for case in cases(library, left_out, pattern):
            with quiet():
                row = case.measure(effort)
            yield row


def report(rows: Sequence[Row], left_out: dict[str, str], effort: Effort) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "pydispatch": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": processor(),
        "platform": platform.platform(),
        "date": datetime.date.today().isoformat(),
        "effort": effort._asdict(),
        "rows": [{**vars(row), "ok": row.ok} for row in rows],
        "left_out": left_out,
    }


def processor() -> str:
    """The name of the processor, where the system tells it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
