"""The gradients of `python -m benchmarks` under pytest-benchmark, for its tables, histories and plots.

    taskset -c 1 python -m pytest benchmarks/bench_autograd.py                 time all, on one core
    python -m pytest benchmarks/bench_autograd.py --benchmark-disable          run each once
"""

from __future__ import annotations

import pytest

from benchmarks.cases.custom import APIS, WITHOUT, WITHOUT_ROWS, names_of_ours, without_gradient
from benchmarks.cases.differentiators import OURS, THEIRS
from benchmarks.cases.gradients import GRADIENTS, check
from benchmarks.cases.graphs import GRAPH_ROWS, GRAPHS
from benchmarks.cases.kinds import import_or_note
from benchmarks.cases.peers import NAMESPACE
from benchmarks.cases.programs import programs
from pydispatch.cli.timing import make_loop
from pydispatch.library import Library

TITLES = [program.title for program in programs()]
BY_HAND = "by hand in NumPy"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", [BY_HAND, *OURS, *THEIRS])
@pytest.mark.parametrize("program", programs(), ids=TITLES)
def test_gradient(benchmark, program, name):
    benchmark.group = GRADIENTS.format(program.title)
    if name == BY_HAND:
        benchmark(program.by_hand, *program.arguments.values())
        return
    way = (OURS | THEIRS)[name]
    module = import_or_note(way.module, name, left_out := {})
    if program.make in way.not_of:
        left_out[name] = "it takes minutes to compile this program"
    if left_out:
        pytest.skip(left_out[name])
    gradient = way.set_up(module)(program)
    check(gradient, program)
    benchmark(gradient)


@pytest.fixture(scope="module")
def names():
    with Library(NAMESPACE, "FRAGMENT") as library:
        yield without_gradient(library)[0].names


@pytest.mark.parametrize("call", [call for row in WITHOUT_ROWS for call in row[2:]])
def test_custom_operator(benchmark, names, call):
    benchmark.group = WITHOUT
    benchmark(make_loop(call, names), 1000)


@pytest.mark.parametrize("name", APIS)
def test_custom_operator_forward_and_backward(benchmark, name):
    benchmark.group = "A custom sine, forward and backward"
    names = names_of_ours(APIS[name][1])
    benchmark(make_loop("grad(op(X), X, ones)", names), 100)


@pytest.mark.parametrize("name", [row[0] for row in GRAPH_ROWS])
def test_graph(benchmark, name):
    benchmark.group = GRAPHS
    values = {row[0]: row[3] for row in GRAPH_ROWS}[name]
    benchmark.extra_info["values"] = benchmark.pedantic(values, (1,))
