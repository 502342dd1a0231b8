"""Programs over large arrays give the same in all ways, and are what their rows say."""

import numpy as np
import pytest

from benchmarks.cases import large
from benchmarks.cases.contests import FLOOR, ROOFLINE, check
from benchmarks.cases.kinds import import_or_note
from benchmarks.cases.large import (
    MODULES,
    NUMBA,
    OVER_NUMBA,
    PLAN,
    SIZES,
    WITH_NUMBA,
    large_calls,
    large_cases,
    ways_of,
)
from benchmarks.cases.large_tasks import LEAVES, TASKS
from pydispatch import compile
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.ops import ops
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves

SIZE = 2500
each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def cells():
    return [
        pytest.param(task, name, threads, id=f"{task.title}, {name}, {threads}",
                     marks=[pytest.mark.slow] * ("numba" in name))      # compiles for seconds
        for task in TASKS.values() for name in ways_of(task) for threads in (1, 2)
    ]


@pytest.mark.parametrize(("task", "name", "threads"), cells())
def test_every_way_gives_what_numpy_gives(task, name, threads):
    if import_or_note(MODULES[name], name, left_out := {}) is None:
        pytest.skip(left_out[name])
    calls = large_calls(task.title, SIZE, threads, [name])
    assert [*calls] == [FLOOR, name]
    check(calls, task.title)
    check(calls, task.title)


@pytest.mark.skipif(IS_NUMPY_2_0, reason="comparisons are kernels in Python")
@each_task
def test_plans_leave_nothing_but_gathers_to_python(task):
    arguments = task.arguments(SIZE)
    report = compile(task.make(ops.np)).explain(*arguments)
    assert "0 calls of Python" in report or "cross-entropy" in task.title


@each_task
def test_sizes_are_those_of_the_rows(task):
    for size in (SIZE, 10_000):
        arrays = [array for array in tree_leaves(task.arguments(size)) if array.ndim]
        largest = sum(array.size for array in arrays if array.shape == arrays[0].shape)
        n_arguments = {"15 cheap operators": 3, "Black-Scholes with greeks": 3, "Adam on 50 arrays": 4}
        assert largest == size * n_arguments.get(task.title, 1)


def test_the_expression_has_15_operators():
    task = TASKS["15 cheap operators"]
    graph = make_fx(task.make(ops.np))(*task.arguments(4))
    assert len(graph.find_nodes(op="call_function")) == 15


def test_adam_updates_50_arrays():
    task = TASKS["Adam on 50 arrays"]
    assert [len(part) for part in task.make(np)(*task.arguments(SIZE))] == [LEAVES] * 3 == [50] * 3


def test_greeks_are_derivatives_of_the_price():
    task = TASKS["Black-Scholes with greeks"]
    program = task.make(np)
    spot, strike, years = task.arguments(100)
    step = 1e-3

    def slope(up, down):
        return (up - down) / (2 * step)

    (_, delta, gamma, _, theta, _) = program(spot, strike, years)
    above, below = program(spot + step, strike, years), program(spot - step, strike, years)
    np.testing.assert_allclose(slope(above[0], below[0]), delta, atol=1e-3)
    np.testing.assert_allclose(slope(above[1], below[1]), gamma, atol=1e-4)
    later, sooner = program(spot, strike, years + step), program(spot, strike, years - step)
    np.testing.assert_allclose(-slope(later[0], sooner[0]), theta, atol=1e-2)


def test_a_roofline_moves_as_many_bytes_as_arguments_and_results_have(monkeypatch):
    copied = []
    monkeypatch.setattr(large.np, "copyto", lambda target, source: copied.append(target.nbytes + source.nbytes))
    for threads in (1, 2):
        large.by_copying(TASKS["15 cheap operators"], TASKS["15 cheap operators"].arguments(1000), threads)()
    assert copied == [4 * 8000, 4 * 4000, 4 * 4000]


def test_rows_and_bounds():
    left_out = {}
    cases = [*large_cases(left_out, "*/plan")]
    bounds = {(case.group, case.name): case.bound for case in cases}
    assert len(bounds) == len(cases) == len(TASKS) * len(SIZES) * 2
    cheap = "15 cheap operators", "a step of the heat equation", "Adam on 50 arrays"
    assert all(bound == (0.5 if any(title in group for title in cheap) else 0.7)
               for (group, _), bound in bounds.items())
    assert {case.way for case in cases} == {PLAN}
    assert [case.contest.threads for case in cases[:2]] == [1, 2]
    assert SIZES == (10**4, 10**5, 10**6, 10**7)


@pytest.mark.parametrize("threads", [1, 2])
def test_machine_code_of_numba_is_compared_with_loops_by_hand(monkeypatch, threads):
    for name in (WITH_NUMBA, NUMBA):
        monkeypatch.setitem(MODULES, name, "numpy")
    pattern = f"*heat equation, 10,000 *{OVER_NUMBA}{', 2 threads' * (threads > 1)}"
    chosen = [case for case in large_cases({}, pattern) if case.contest.threads == threads]
    assert [(case.way, case.over, case.bound, case.contest.names) for case in chosen] == [
        (WITH_NUMBA, NUMBA, 1.1, (WITH_NUMBA, NUMBA))]
    for name in (WITH_NUMBA, NUMBA):
        monkeypatch.setitem(MODULES, name, "no_such_module")
    assert list(large_cases(left_out := {}, pattern)) == []
    assert left_out == dict.fromkeys((WITH_NUMBA, NUMBA), "No module named 'no_such_module'")


def test_rooflines_have_no_bounds():
    unbounded = list(large_cases({}, f"15 cheap*/{ROOFLINE}"))
    assert {case.bound for case in unbounded} == {None}
    assert len(unbounded) == 2 * len(SIZES)


def test_libraries_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(MODULES, "numexpr", "no_such_module")
    left_out = {}
    assert list(large_cases(left_out, "15 cheap*/numexpr")) == []
    assert left_out == {"numexpr": "No module named 'no_such_module'"}
