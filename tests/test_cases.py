"""Rows that run as one case: each runs, and each that fails is told of."""

from __future__ import annotations

import pytest

from tests.cases import in_one_case


def rows_run(test):
    """What pytest runs of a test: the marks and the rows of each case."""
    (mark,) = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    names, cases = mark.args
    assert names == "rows"
    return [([mark.name for mark in case.marks], case.values[0]) for case in cases]


def test_every_row_runs_and_each_failure_names_its_row():
    ran = []

    @in_one_case
    @pytest.mark.parametrize("x", [1, pytest.param(2, id="two"), len])
    @pytest.mark.parametrize(("y", "z"), [(0, ()), (1, ())], ids=["zero", "one"])
    def test(x, y, z):
        ran.append((x, y, z))
        assert x != 2
        with pytest.raises(ValueError, match="no"):
            raise ValueError("no" if x is len or y else "yes")

    ((marks, rows),) = rows_run(test)
    assert marks == []
    with pytest.raises(ExceptionGroup, match="3 of 6 rows fail") as raised:
        test(rows=rows)
    assert ran == [(x, y, ()) for y in (0, 1) for x in (1, 2, len)]
    assert [error.__notes__ for error in raised.value.exceptions] == [
        ["in the row zero-1"], ["in the row zero-two"], ["in the row one-two"]]
    assert [row.name for row in rows if row.values["x"] is len] == ["zero-len", "one-len"]


def test_what_pytest_raises_fails_a_row():
    @in_one_case
    @pytest.mark.parametrize("error", [ValueError, TypeError], ids=lambda error: f"a {error.__name__}")
    def test(error):
        with pytest.raises(error):
            pass

    ((_, rows),) = rows_run(test)
    with pytest.raises(BaseExceptionGroup, match="2 of 2 rows fail") as raised:
        test(rows=rows)
    assert [error.__notes__ for error in raised.value.exceptions] == [
        ["in the row a ValueError"], ["in the row a TypeError"]]


def test_a_case_is_skipped_when_all_its_rows_are():
    @in_one_case
    @pytest.mark.parametrize("x", [0, 1])
    def test(x, reason):
        if x < reason:
            pytest.skip("too small")

    ((_, rows),) = rows_run(test)
    test(rows=rows, reason=1)
    with pytest.raises(pytest.skip.Exception, match="too small"):
        test(rows=rows, reason=2)


def test_rows_with_marks_are_cases_of_their_own():
    @in_one_case
    @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.slow), 3])
    @pytest.mark.filterwarnings("error")
    def test(x):
        pass

    assert [(marks, [row.values for row in rows]) for marks, rows in rows_run(test)] == [
        ([], [{"x": 1}, {"x": 3}]), (["slow"], [{"x": 2}])]
    assert [mark.name for mark in test.pytestmark] == ["filterwarnings", "parametrize"]


@pytest.mark.parametrize("times", [1, 2])
@in_one_case
@pytest.mark.parametrize("letter", ["a", "b"])
def test_what_is_above_stays_a_case_and_fixtures_are_passed_on(letter, times, tmp_path):
    assert len(letter * times) == times
    assert tmp_path.is_dir()


@in_one_case
@pytest.mark.parametrize("x", [1, 2])
def test_each_row_has_a_fresh_library(fresh, define, x):
    assert define(fresh, "f(int x) -> int", CIA=lambda x: x + 1)(x) == x + 1
