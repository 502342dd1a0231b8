"""Kinds of cases measure what they say, on a clock that only the measured calls move on."""

import pytest

from benchmarks.cases.kinds import Absolute, Added, Case, Effort, Excess, Ratio, Row


def test_a_ratio_is_that_of_the_calls(work):
    row = Ratio("group", "name", 2.5, "work(30)", "work(10)", {"work": work}).measure(Effort(5, 1))
    assert (row.low, row.value, row.high) == pytest.approx((3, 3, 3))
    assert row.times == pytest.approx({"work(30)": 30_000, "work(10)": 10_000})
    assert (row.unit, row.at_least, row.ok) == ("×", False, False)


@pytest.mark.parametrize("parts", [1, 10])
def test_an_excess_is_the_time_that_the_other_call_does_not_take(work, parts):
    row = Excess("group", "name", 0.3, "work(30)", "work(10)", {"work": work}, parts=parts).measure(Effort(5, 1))
    assert row.value == pytest.approx(20 / parts)
    assert row.times == pytest.approx({"work(30)": 30_000 / parts, "work(10)": 10_000 / parts})
    assert (row.unit, row.at_least, row.ok) == ("µs", False, False)


def test_what_a_peer_adds_is_compared_with_what_we_add(work):
    names = {
        "kernel": lambda x, y: work(10), "op": lambda x, y: work(12), "peer": lambda a, b: work(18),
        "x": 0, "y": 0, "a": 0, "b": 0,
    }
    row = Added("group", "name", 3, names).measure(Effort(5, 1))
    assert row.value == pytest.approx(4)
    assert row.times == pytest.approx({"kernel(x, y)": 10_000, "op(x, y)": 12_000, "peer(a, b)": 18_000})
    assert (row.at_least, row.ok) == (True, True)


def test_an_absolute_value_is_the_median_of_the_repetitions():
    row = Absolute("group", "name", 3, "ms", lambda n: [2.0] * n + [100.0, 1.0]).measure(Effort(1, 3))
    assert (row.value, row.unit, row.times) == (2, "ms", {})


def test_rounds_that_were_disturbed_do_not_count():
    row = Case("group", "name", 1).row([2.0] * 8 + [50.0, 0.1], {})
    assert row.value == 2
    assert row.low <= row.value <= row.high


def test_slow_calls_get_fewer_rounds(work):
    names = {"slow": lambda: work(100_000), "fast": lambda: work(50)}
    counted = []
    case = Ratio("group", "name", 3, "slow()", "fast()", names | {"slow": lambda: (work(100_000), counted.append(1))})
    assert case.measure(Effort(50, 1, 0.75)).value == pytest.approx(2000)
    assert len(counted) == 2 + 8        # two to see how slow it is, then until 0.75 s are over


@pytest.mark.parametrize(("value", "at_most", "at_least"), [(1, True, False), (2, True, True), (3, False, True)])
def test_a_bound_is_a_bound(value, at_most, at_least):
    assert Row("", "", value, value, value, "×", 2, at_least=False).ok == at_most
    assert Row("", "", value, value, value, "×", 2, at_least=True).ok == at_least


def test_a_row_without_a_bound_is_one_to_compare_with():
    assert Row("", "", 7, 7, 7, "×", None, at_least=False).ok
    assert Row("", "", 7, 7, 7, "×", None, at_least=True).ok
