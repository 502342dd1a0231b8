"""Loops that are timed give what the formulas give, in NumPy, as one operator and as a Python loop."""

import numpy as np
import pytest

from benchmarks.cases.kinds import Effort
from benchmarks.cases.loops import GRADIENT, LOOPS, STEP, StepExcess, loop_cases, loop_inputs
from benchmarks.cases.transforms import arrays_in
from pydispatch.tracing import make_fx

CASES = [*loop_cases()]
SMALL, LARGE = loop_inputs()


def states_by_hand(name, data):
    """Return the states before and after each step."""
    inputs = data.inputs if name != "while_loop" else np.broadcast_to(data.start, data.inputs.shape)
    befores, afters = [], []
    for x in inputs:
        befores.append(x if name == "map" else afters[-1] if afters else data.start)
        afters.append(np.tanh(data.weights @ befores[-1] + x))
    return np.array(befores), np.array(afters)


def by_hand(case):
    """Return the last state, or all of them, or the gradient of the sum by the weights, step by step backwards."""
    name, title = case.name.split(", ")[:2]
    data = next(data for data in loop_inputs() if data.title == title)
    befores, afters = states_by_hand(name, data)
    if case.group == STEP:
        return afters if name == "map" else afters[-1]
    total, of_state = np.zeros_like(data.weights), np.ones_like(data.start)
    for before, after in zip(befores[::-1], afters[::-1], strict=True):
        inside = (np.ones_like(of_state) if name == "map" else of_state) * (1 - after ** 2)
        total += np.outer(inside, before) if inside.ndim == 1 else inside @ before.T
        of_state = data.weights.T @ inside
    return total


@pytest.mark.parametrize("how", ["make_call", "make_over"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}/{case.name}")
def test_both_loops_are_the_formulas_each_time(case, how):
    call = getattr(case, how)()
    for _ in range(2):
        (found,) = arrays_in(call())
        np.testing.assert_allclose(found, by_hand(case), rtol=1e-9, atol=1e-12, strict=True)


@pytest.mark.parametrize("name", LOOPS)
def test_ours_is_one_operator_and_the_other_one_its_steps(name):
    ours, python = [
        [str(node.target) for node in make_fx(loop)(SMALL.weights, SMALL).find_nodes(op="call_function")]
        for loop in LOOPS[name]
    ]
    assert sum(name in target for target in ours) == 1
    assert not any("tanh" in target for target in ours)
    assert sum("tanh" in target for target in python) == len(SMALL.inputs)


def test_sizes_are_those_agreed():
    assert [(len(data.inputs), data.weights.shape, data.start.shape) for data in loop_inputs()] == [
        (300, (2, 2), (2,)), (100, (64, 64), (64, 64))]


def test_the_time_of_a_step_is_that_of_the_loop_over_the_number_of_steps(work):
    def loop(microseconds):
        return lambda: work(microseconds) or np.ones(2)

    case = StepExcess(STEP, "name", 1, "loop()", "python()", {}, parts=10,
                      make_call=lambda: loop(60), make_over=lambda: loop(10))
    row = case.measure(Effort(5, 1))
    assert (row.value, row.unit, row.ok) == (pytest.approx(5), "µs", False)
    assert row.times == pytest.approx({"loop()": 6000, "python()": 1000})


def test_a_loop_that_gives_something_else_is_not_timed():
    case = StepExcess(STEP, "name", 1, "loop()", "python()", {}, make_call=lambda: lambda: np.ones(2),
                      make_over=lambda: lambda: np.zeros(2))
    with pytest.raises(AssertionError, match="Loops: a step"):
        case.measure(Effort(5, 1))


def test_groups():
    assert {case.group: type(case).__name__ for case in CASES} == {STEP: "StepExcess", GRADIENT: "SameValues"}
