"""Operators run at the depth that a row names, and the calls that remain of them are on arrays."""

from contextlib import nullcontext

import numpy as np
import pytest

from benchmarks.cases import interpreters as bench
from benchmarks.cases.interpreters import (
    DEPTHS,
    LENGTH,
    NESTED,
    OPERATORS,
    Noted,
    at_depths,
    interpreter_cases,
    nested,
    noted_calls,
    slope,
    straight_line,
)
from benchmarks.cases.kinds import Effort
from pydispatch import Tensor, _core, func, ops
from pydispatch._core import current_state
from pydispatch.cli.timing import make_loop
from tests.together import together


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("transform", NESTED)
def test_nested_interpreters_are_around_the_body(transform, depth):
    shapes, values = [], []

    def body(x):
        value = x
        while type(value) is not np.ndarray:
            values.append(value)
            value = _core.array_of(value)
        shapes.append((x.shape, value.shape))
        return x

    nested(transform, body, [nullcontext()] * depth)()
    assert len(values) == depth
    assert shapes == [((4,), (*(LENGTH,) * depth, 4) if transform == "vmap" else (4,))]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("transform", NESTED)
@together("depth", DEPTHS)
def test_what_remains_of_a_call_is_on_arrays(transform, operator, depth):
    text, names, _ = OPERATORS[operator]
    turn, points = make_loop(text, {"x": None, **names}), []
    remaining, *_ = noted_calls(transform, lambda x: turn(1, x), depth)
    assert remaining
    assert not any(call.has_wrappers for call in remaining)
    at_depths(transform, operator, [depth], points.extend)
    assert points[0].processed >= depth


@pytest.mark.parametrize(("transform", "operator", "remaining", "processed"), [
    ("vmap", "sin", [1, 1, 1, 1], [*DEPTHS]), ("grad", "sin", [1, 1, 1, 1], [*DEPTHS]),
    ("vmap", "getitem", [2, 2, 2, 2], [2 * depth - 1 for depth in DEPTHS]),     # each level but one copies the elements
    ("jvp", "sum", [2, 3, 4, 5], [*DEPTHS]),
])
def test_how_many_calls_remain(transform, operator, remaining, processed):
    turn = make_loop(OPERATORS[operator][0], {"x": None, **OPERATORS[operator][1]})
    counts = [len(noted_calls(transform, lambda x: turn(1, x), depth)[0]) for depth in DEPTHS]
    assert counts == remaining
    at_depths(transform, operator, DEPTHS, lambda points: counts.extend(point.processed for point in points))
    assert counts[len(DEPTHS):] == processed


@pytest.mark.parametrize("transform", NESTED)
def test_loops_run_among_their_own_interpreters_alone(transform, monkeypatch):
    seen = []

    def look(x):
        seen.append((x, current_state()))
        return x

    monkeypatch.setitem(OPERATORS, "look", ("sin(look(x))", {"look": look, "sin": ops.np.sin}, 1.0))

    def use(points):
        seen.clear()
        for point in (*points, *points):
            point.loop(2)

    at_depths(transform, "look", (1, 3), use)
    assert [depth_of(x) for x, _ in seen] == [1, 1, 3, 3] * 2
    assert [state is seen[0][1] for _, state in seen] == [True, True, False, False] * 2


def depth_of(x):
    return 0 if type(x) is np.ndarray else 1 + depth_of(_core.array_of(x))


def test_noted_calls_are_repeated_in_a_straight_line():
    called = []

    def operator(*args, **kwargs):
        called.append((args, kwargs))

    loop = straight_line([Noted(operator, (1, "a"), {}), Noted(operator, (), {"axis": None})])
    loop(2)
    assert called == [((1, "a"), {}), ((), {"axis": None})] * 2


def test_calls_of_wrappers_are_processed():
    def check(x):
        assert Noted(None, (np.ones(1), [x]), {}).has_wrappers
        assert Noted(None, (), {"x": x}).has_wrappers
        return x.sum()

    func.grad(check)(np.ones(1))
    assert not Noted(None, (np.ones(1), Tensor(np.ones(1)), 2), {"x": 3}).has_wrappers


def test_the_slope_goes_through_the_origin():
    assert slope([1, 2, 3], [2, 4, 6]) == 2
    assert slope([1, 2], [1, 4]) == pytest.approx(9 / 5)


def test_an_interpreter_costs_what_it_adds_for_each_call_that_it_processes(work, monkeypatch):
    def points(transform, operator, depths, use):
        use([
            bench.AtDepth(*(make_loop(f"work({time * depth})", {"work": work}) for time in (13, 3)), 2 * depth)
            for depth in depths
        ])

    monkeypatch.setattr(bench, "at_depths", points)
    cases = {(case.group, case.name): case for case in interpreter_cases()}
    row = cases[bench.INTERPRETER, "vmap, sin"].measure(Effort(5, 1))
    assert (row.value, row.unit, row.bound) == (pytest.approx(5), "µs", 0.4)
    assert row.times == pytest.approx({f"depth {d}, {2 * d} processed": 10_000 * d for d in DEPTHS})
    assert cases[bench.LINE, "vmap, sin"].measure(Effort(5, 1)).value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("times", "expected"), [((15, 25, 35, 45), 0), ((10, 20, 20, 30), 3 / (30 / 4))])
def test_the_deviation_is_the_largest_distance_from_a_line(work, monkeypatch, times, expected):
    def points(transform, operator, depths, use):
        use([
            bench.AtDepth(*(make_loop(f"work({time})", {"work": work}) for time in (times[depth - 1] + 5, 5)), depth)
            for depth in depths
        ])

    monkeypatch.setattr(bench, "at_depths", points)
    row = bench.OffLine(bench.LINE, "vmap, sin", 0.25, "vmap", "sin").measure(Effort(5, 1))
    assert row.value == pytest.approx(expected, abs=1e-6)
    assert row.times == pytest.approx(
        {f"depth {d}, {d} processed": 1000 * time for d, time in zip(DEPTHS, times, strict=True)})


def test_bounds_of_interpreters():
    of_interpreters = {case.name: case.bound for case in interpreter_cases() if case.group == bench.INTERPRETER}
    assert of_interpreters == {
        f"{transform}, {operator}": 0.4 if operator == "sin" else 1.0
        for transform in NESTED for operator in ("sin", "sum", "matmul", "reshape", "getitem")
    }
