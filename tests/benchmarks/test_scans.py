"""Scans that are timed give the same in all ways, and their gradients by hand are those of finite differences."""

import numpy as np
import pytest

from benchmarks.cases import scans
from benchmarks.cases.contests import FLOOR, Entry, check
from benchmarks.cases.kinds import import_or_note
from benchmarks.cases.loops import StepExcess
from benchmarks.cases.scan_tasks import SCAN_TASKS
from pydispatch import compile
from pydispatch.higher_order import scan
from pydispatch.ops import ops
from pydispatch.tracing import make_fx

N = 40
each_task = pytest.mark.parametrize("task", SCAN_TASKS.values(), ids=SCAN_TASKS)
each_kind = pytest.mark.parametrize("is_gradient", [False, True], ids=["forward", "gradient"])
COMPILES_FOR_SECONDS = [pytest.mark.slow]
WAYS = [pytest.param(name, marks=COMPILES_FOR_SECONDS * (name == scans.NUMBA)) for name in scans.MODULES]


@pytest.mark.parametrize("name", WAYS)
@each_kind
@each_task
def test_every_way_gives_what_numpy_gives(task, is_gradient, name):
    if import_or_note(scans.MODULES[name], name, left_out := {}) is None:
        pytest.skip(left_out[name])
    calls = scans.scan_calls(task.title, is_gradient, N, 1, [name])
    assert [*calls] == [FLOOR, name]
    check(calls, task.title)
    check(calls, task.title)


@each_kind
@each_task
def test_loops_for_numba_give_in_python_what_numpy_gives(task, is_gradient):
    arguments = task.arguments(N)
    loops, by_hand = [(task.in_loops, task.by_hand), (task.gradient_in_loops, task.gradient_by_hand)][is_gradient]
    check({FLOOR: lambda: by_hand(*arguments), "loops": lambda: loops(*arguments)}, task.title)


@each_task
def test_gradients_by_hand_are_those_of_finite_differences(task):
    first, *rest = task.arguments(N)
    step = 1e-6
    slope = (task.by_hand(first + step, *rest)[0] - task.by_hand(first - step, *rest)[0]) / (2 * step)
    np.testing.assert_allclose(task.gradient_by_hand(first, *rest), slope, rtol=1e-6)


@each_task
def test_a_plan_is_a_loop_in_c(task):
    compiled, arguments = compile(task.make(scans.OURS)), task.arguments(N)
    assert "0 calls of Python" in compiled.explain(*arguments)
    assert f"repeat {N} times" in compiled.plan(*arguments)


@pytest.mark.parametrize("title", ["a pendulum", "exponential smoothing"])
def test_steps_without_a_loop_give_the_same_state(title):
    with_loop, without = scans.last_state(title, scan), scans.last_state(title, scans.in_python)
    check({FLOOR: with_loop, "without a loop": without}, title)
    plans = [call.func.plan(*call.args) for call in (with_loop, without)]
    assert ["repeat" in plan for plan in plans] == [True, False]
    body = len(plans[0].split(":\n")[-1].splitlines())
    assert len(plans[1].splitlines()) > scans.FEW_STEPS * (body - 3)


def test_what_is_traced_is_a_single_scan():
    task = SCAN_TASKS["a pendulum"]
    start, velocity, steps = task.arguments(N)
    graph = make_fx(lambda start, velocity: task.make(scans.OURS)(start, velocity, steps))(start, velocity)
    targets = [str(node.target) for node in graph.find_nodes(op="call_function")]
    assert sum("scan" in target for target in targets) == 1
    assert not any(str(ops.np.sin.default) in target for target in targets)


def test_rows_and_bounds():
    left_out = {}
    cases = {(case.group, case.name): case for case in scans.scan_cases(left_out)}
    assert scans.STEPS == 100_000
    for (group, name), case in cases.items():
        if group == scans.OVER_LOOPS:
            assert (type(case), case.bound, case.parts) == (StepExcess, 0.05, scans.FEW_STEPS)
        else:
            assert (case.bound, case.parts) == (1 if name == scans.OVER_JAX else None, scans.STEPS)
            assert (case.way, case.over) == ((scans.PLAN, "jax.lax.scan") if name == scans.OVER_JAX else (name, FLOOR))


def test_a_comparison_needs_both(monkeypatch):
    def comparisons(left_out):
        found = scans.scan_cases(left_out, f"*pendulum, over*/{scans.OVER_JAX}")
        return [case.contest.names for case in found if isinstance(case, Entry)]

    monkeypatch.setitem(scans.MODULES, "jax.lax.scan", "numpy")
    assert comparisons({}) == [(scans.PLAN, "jax.lax.scan")]
    monkeypatch.setitem(scans.MODULES, "jax.lax.scan", "no_such_module")
    left_out = {}
    assert comparisons(left_out) == []
    assert left_out == {"jax.lax.scan": "No module named 'no_such_module'"}
