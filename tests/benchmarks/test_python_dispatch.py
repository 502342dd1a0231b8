"""The rows on dispatch to Python call the handlers that they name, as often as they say, and compute what they say."""

import sys

import numpy as np
import pytest

from benchmarks.cases import python_dispatch as bench
from benchmarks.cases.differentiators import functions_of
from benchmarks.cases.kinds import Effort
from benchmarks.cases.programs import programs
from benchmarks.cases.python_dispatch import (
    DEPTHS,
    AddedByPeer,
    AddedTime,
    Deviation,
    Pair,
    Timed,
    compiled_cases,
    handler_pairs,
    our_handlers,
    our_tracing,
    torch_cases,
    tracing_pairs,
)
from pydispatch import Tensor, ops
from pydispatch.tracing import FakeTensor, Graph, make_fx

HANDLERS = handler_pairs(our_handlers())
TRACING = tracing_pairs(our_tracing())


NAMES = ("pass_on", "decline", "rewrap", "return_constant", "__pydispatch__")


def evaluate(timed):
    with timed.within():
        return eval(timed.text, timed.names)


def handlers_called(timed):
    """Return the names of the functions with those of handlers that a call runs, with what it calls, in order."""
    names = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name in NAMES:
            names.append(frame.f_code.co_name)

    with timed.within():
        sys.setprofile(note)
        try:
            eval(timed.text, timed.names)
        finally:
            sys.setprofile(None)
    return names


@pytest.mark.parametrize(("name", "expected"), [
    *((f"mode ×{count}", ["pass_on"] * count) for count in DEPTHS),
    *((f"wrapper subclass ×{count}", ["rewrap"] * count) for count in DEPTHS),
    ("wrapper made in Python", ["rewrap"]),
    ("subclass, super()", ["__pydispatch__"]),
    ("subclass, a constant", ["return_constant"]),
    ("mode over a wrapper", ["pass_on", "rewrap"]),
    ("mode declines, subclass", ["decline", "return_constant"]),
    ("factory under a mode", ["pass_on"]),
    ("LoggingMode", ["__pydispatch__"]),
])
def test_the_handlers_that_a_row_names_run(name, expected):
    pair = HANDLERS[name]
    assert handlers_called(pair.call) == expected
    assert handlers_called(pair.plain) == []
    assert pair.number == int(name.partition("×")[2] or 1)


@pytest.mark.parametrize("name", [name for name in HANDLERS if "constant" not in name and "declines" not in name][:-2])
def test_what_handlers_pass_on_is_computed(name):
    result = evaluate(HANDLERS[name].call)
    for _ in range(HANDLERS[name].number if "wrapper" in name else 0):
        result = result.inner
    expected = evaluate(HANDLERS[name].plain)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))
    assert type(result) is type(expected) or name == "subclass, super()"


@pytest.mark.parametrize("name", ["np.add of fakes", "np.add, out of their mode", "perceptron of fakes"])
def test_rows_on_fakes_make_fakes(name):
    result = evaluate(TRACING[name].call)
    assert type(result) is FakeTensor
    assert result.shape == (() if "perceptron" in name else (4,))


@pytest.mark.parametrize("name", ["make_fx", "make_fx, fake"])
def test_rows_on_traces_make_graphs_of_so_many_operators(name):
    graph = evaluate(TRACING[name].call)
    assert type(graph) is Graph
    assert len(graph.find_nodes(op="call_function")) == TRACING[name].number


def test_compiled_programs_are_compared_with_the_same_operators():
    titles = [program.title for program in programs()]
    counts = []
    for program in programs()[:3]:
        graph = make_fx(program.make(functions_of(ops.np)))(*program.arguments.values())
        counts.append(len(graph.find_nodes(op="call_function")))
    assert counts == [9, 9, 501]
    cases = [*compiled_cases()]
    assert [case.name for case in cases] == titles[:3]
    for case in cases:
        assert eval(case.call, case.names) == eval(case.over, case.names)


# --- kinds of cases --------------------------------------------------------------------------------------------------


def timed(work, microseconds):
    return Timed(f"{microseconds}", f"work({microseconds})", {"work": work})


def test_added_time_is_that_of_one_handler(work):
    row = AddedTime("group", "name", 6, Pair(timed(work, 30), timed(work, 10), 4)).measure(Effort(5, 1))
    assert (row.value, row.unit, row.bound, row.ok) == (pytest.approx(5), "µs", 6, True)
    assert row.times == pytest.approx({"30": 30_000, "10": 10_000})


def test_without_another_call_all_of_it_counts(work):
    row = AddedTime("group", "name", 5, Pair(timed(work, 30), None, 10)).measure(Effort(5, 1))
    assert row.value == pytest.approx(3)


def test_what_pytorch_adds_is_over_what_we_add(work):
    theirs, ours = Pair(timed(work, 90), timed(work, 10), 4), Pair(timed(work, 9), timed(work, 1), 2)
    row = AddedByPeer("group", "name", 10, theirs, ours).measure(Effort(5, 1))
    assert (row.value, row.at_least, row.ok) == (pytest.approx(5), True, False)
    assert row.times == pytest.approx({"theirs": 20_000, "ours": 4_000})


@pytest.mark.parametrize(("times", "expected"), [((15, 20, 25, 30), 0), ((10, 20, 20, 30), 3 / 6)])
def test_the_deviation_is_the_largest_distance_from_the_line(work, times, expected):
    pairs = [Pair(timed(work, time), None, depth) for depth, time in enumerate(times, 1)]
    assert Deviation("group", "name", 0.25, pairs).measure(Effort(5, 1)).value == pytest.approx(expected, abs=1e-6)


def test_what_a_call_runs_in_is_entered_once_a_loop(work):
    entered = []

    class Within:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *exception):
            pass

    Timed("label", "work(1)", {"work": work}, Within).loop()(100)
    assert entered == [1]


def test_without_pytorch_its_rows_are_left_out(monkeypatch):
    monkeypatch.setattr(bench, "import_or_note", lambda module, name, left_out: left_out.update({name: module}))
    left_out = {}
    assert [*torch_cases(left_out)] == []
    assert left_out == {bench.PEER: "torch"}


def test_a_pattern_spares_the_import_of_pytorch(monkeypatch):
    monkeypatch.setattr(bench, "import_or_note", None)
    assert [*torch_cases({}, "graph.compile")] == []


def test_wrappers_keep_what_they_wrap():
    inner = Tensor(np.arange(3.0))
    assert bench.Wrapped(inner).inner is inner
