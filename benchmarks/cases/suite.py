"""Every case, measured one by one, and all of it for JSON."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import platform
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.cases.compilation import compilation_cases
from benchmarks.cases.custom import custom_cases
from benchmarks.cases.dispatch import add_cases, backend_cases, floor_cases, peer_cases
from benchmarks.cases.filling import filling_cases
from benchmarks.cases.gradients import gradient_cases
from benchmarks.cases.graphs import GRAPH_ROWS, GRAPHS
from benchmarks.cases.interpreters import interpreter_cases
from benchmarks.cases.kinds import Absolute, Case, Effort, Row, matches
from benchmarks.cases.large import large_cases
from benchmarks.cases.loops import loop_cases
from benchmarks.cases.once import ONCE, ONCE_ROWS
from benchmarks.cases.peers import NAMESPACE
from benchmarks.cases.python_dispatch import compiled_cases, handler_cases, torch_cases, tracing_cases
from benchmarks.cases.scans import scan_cases
from benchmarks.cases.small import small_cases
from benchmarks.cases.solvers import solver_cases
from benchmarks.cases.transforms import transform_cases
from pydispatch import __version__
from pydispatch.cli.timing import quiet
from pydispatch.library import Library

FULL = Effort(201, 11)
QUICK = Effort(15, 3, 0.1)


def cases(library: Library, left_out: dict[str, str], pattern: str = "") -> Iterator[Case]:
    """Return the cases whose "group/name" matches. Their operators go into `library`, which is open on NAMESPACE."""
    chained: Iterator[Case] = itertools.chain(
        floor_cases(library), backend_cases(library), add_cases(), small_cases(),
        peer_cases(library, left_out, pattern),
        gradient_cases(left_out, pattern), compilation_cases(left_out, pattern),
        custom_cases(library, left_out, pattern), handler_cases(), tracing_cases(),
        torch_cases(left_out, pattern), compiled_cases(pattern),
        transform_cases(left_out, pattern), interpreter_cases(), loop_cases(),
        scan_cases(left_out, pattern), solver_cases(), filling_cases(left_out, pattern), large_cases(left_out, pattern),
        (Absolute(GRAPHS, *row) for row in GRAPH_ROWS), (Absolute(ONCE, *row) for row in ONCE_ROWS),
    )
    return (case for case in chained if matches(case.group, case.name, pattern))


def measure(effort: Effort, pattern: str, left_out: dict[str, str]) -> Iterator[Row]:
    """Yield the rows, one by one as they are measured."""
    with Library(NAMESPACE, "FRAGMENT") as library:
        for case in cases(library, left_out, pattern):
            with quiet():
                row = case.measure(effort)
            yield row


def report(rows: Sequence[Row], left_out: dict[str, str], effort: Effort) -> dict[str, Any]:
    """Return all rows, with the environment, for JSON."""
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
    """Return the name of the processor, if the system tells it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
