"""Costs of compiling are those of new gradients, and each is right."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases import compilation
from benchmarks.cases.compilation import (
    CALL,
    CALL_ROUNDS,
    CALLED,
    FIRST,
    LATE,
    PER_OPERATOR,
    THOUSANDTH,
    call_times,
    compilation_cases,
    first_calls,
    thousandth_calls,
    time_of,
    times_per_operator,
)
from benchmarks.cases.differentiators import Differentiator, functions_of
from benchmarks.cases.programs import programs
from pydispatch import compile
from pydispatch.ops import ops
from pydispatch.tracing import make_fx

POLYNOMIAL, *_ = programs()


@pytest.mark.parametrize("n", CALLED)
def test_calls_with_any_number_of_arguments_run_the_same_plan(n, work, monkeypatch):
    made = []

    def compiled(function):
        made.append(compile(function))
        return lambda *args: work(7) or made[-1](*args)

    monkeypatch.setattr(compilation, "compile", compiled)
    assert call_times(n, 1) == pytest.approx([7] * CALL_ROUNDS)
    assert made[0].plan(*[np.ones(4)] * n) == "result0:float64[4] = multiply(input0:float64[4], 2.0)"
    assert len(made[0].variants[0].plan.inputs) == n


@pytest.fixture
def ticking(monkeypatch):
    """Provide a way whose gradients take 2 s at the first call and a millisecond later, and how often each was called.
    """
    now, calls = [0.0], []

    def make(program):
        calls.append(0)

        def gradient():
            calls[-1] += 1
            now[0] += 2 if calls[-1] == 1 else 0.001
        return gradient

    monkeypatch.setattr(compilation, "clock", lambda: now[0])
    return Differentiator("numpy", lambda module: make), calls


def test_first_calls_are_those_of_new_gradients_and_slow_ones_are_made_once(ticking, monkeypatch):
    way, calls = ticking
    assert first_calls(way, None, POLYNOMIAL, 5) == [pytest.approx(2000)]
    monkeypatch.setattr(compilation, "ENOUGH", 100)
    calls.clear()
    assert first_calls(way, None, POLYNOMIAL, 3) == pytest.approx([2000] * 3)
    assert calls == [1, 1, 1]


def test_the_thousandth_call_is_that_of_one_gradient(ticking):
    way, calls = ticking
    assert thousandth_calls(way, None, POLYNOMIAL, 3) == [pytest.approx(1000)]
    assert calls == [LATE.stop - 1]
    assert 1000 in LATE


@pytest.mark.parametrize("is_gradient", [False, True])
def test_the_time_of_an_operator_is_what_the_first_call_takes_more(is_gradient, monkeypatch):
    times = iter([5.0, 1.0, 9.0, 1.0])
    monkeypatch.setattr(compilation, "time_of", lambda call: call() is None or next(times))
    short, long = times_per_operator(POLYNOMIAL, is_gradient, 2)
    assert long == pytest.approx(2 * short)
    n_operators = 4e6 / short
    assert n_operators == pytest.approx(9) if not is_gradient else n_operators > 18


def test_the_work_of_other_processes_counts():
    code = "import time\nwhile time.process_time() < 0.2: pass"
    assert time_of(lambda: subprocess.run([sys.executable, "-c", code], check=True)) > 0.2


def test_groups_and_bounds():
    cases = [*compilation_cases({}, "*, compile")]
    bounds = {(case.group, case.name): case.bound for case in cases}
    assert {case.group for case in cases} == {CALL, PER_OPERATOR, FIRST, THOUSANDTH}
    assert bounds[FIRST, "a perceptron, 8x4 inputs, 16 hidden, compile"] == 10


def test_programs_count_as_those_of_users():
    graph = make_fx(POLYNOMIAL.make(functions_of(ops.np)))(*POLYNOMIAL.arguments.values())
    assert {Path(node.meta["site"].rpartition(":")[0]).name for node in graph.find_nodes(op="call_function")} == {
        "programs.py"}
