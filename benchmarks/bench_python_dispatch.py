"""The rows on dispatch to Python of `python -m benchmarks` under pytest-benchmark: its tables, histories, plots.

    taskset -c 1 python -m pytest benchmarks/bench_python_dispatch.py                  time all, on one core
    python -m pytest benchmarks/bench_python_dispatch.py --benchmark-disable           run each once

Calls are timed a hundred at a time, PyTorch's beside ours.
"""

from __future__ import annotations

import pytest

from benchmarks.cases.kinds import import_or_note
from benchmarks.cases.python_dispatch import (
    COMPILED,
    compiled_cases,
    handler_pairs,
    our_handlers,
    our_tracing,
    torch_handlers,
    torch_tracing,
    tracing_pairs,
)
from pydispatch.cli.timing import make_loop

OURS = handler_pairs(our_handlers()) | tracing_pairs(our_tracing())
CASES = {case.name: case for case in compiled_cases()}
TURNS = 100


@pytest.fixture(scope="module")
def theirs():
    torch = import_or_note("torch", "torch", left_out := {})
    if left_out:
        pytest.skip(left_out["torch"])
    return handler_pairs(torch_handlers(torch)) | tracing_pairs(torch_tracing(torch))


@pytest.mark.parametrize("name", OURS)
def test_ours(benchmark, name):
    benchmark.group = name
    benchmark(OURS[name].call.loop(), TURNS)


@pytest.mark.parametrize("name", OURS)
def test_pytorch(benchmark, theirs, name):
    benchmark.group = name
    benchmark(theirs[name].call.loop(), TURNS)


@pytest.mark.parametrize("how", ["call", "over"])
@pytest.mark.parametrize("name", CASES)
def test_compiled(benchmark, name, how):
    case = CASES[name]
    benchmark.group = f"{COMPILED}: {name}"
    benchmark(make_loop(getattr(case, how), case.names), TURNS)
