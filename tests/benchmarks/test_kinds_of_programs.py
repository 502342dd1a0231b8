"""Ordinary programs of many kinds give the same as plans and by hand."""

import pytest

from benchmarks.cases import kinds_of_programs
from benchmarks.cases.kinds import Effort


@pytest.mark.parametrize("title", kinds_of_programs.PROGRAMS)
def test_plans_give_the_results_by_hand(title, monkeypatch):
    monkeypatch.setattr(kinds_of_programs, "EFFORT", Effort(1, 1, 0.0))
    assert [*kinds_of_programs.times_of(title, ["plan"])] == ["numpy", "plan"]


def test_a_table_has_a_row_for_each_title_that_matches(monkeypatch, capsys):
    monkeypatch.setattr(kinds_of_programs, "EFFORT", Effort(1, 1, 0.0))
    monkeypatch.setattr(kinds_of_programs, "MAKERS", {"plan": kinds_of_programs.by_plan})
    kinds_of_programs.main(["quantile"])
    heading, _, row = capsys.readouterr().out.splitlines()
    assert heading.split(" | ")[1] == "plan, µs"
    assert row.startswith("| quantile loss, gradient |")
