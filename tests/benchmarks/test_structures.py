"""Programs that scatter, select and solve give the same in all ways."""

import pytest

from benchmarks.cases import structures
from benchmarks.cases.contests import check


@pytest.mark.parametrize("title", structures.STRUCTURES)
def test_all_ways_give_the_gradients_by_hand(title):
    check(structures.structure_calls(title, 1, ["eager", "plan"]), title)


def test_a_table_has_a_row_for_each_title_that_matches(monkeypatch, capsys):
    monkeypatch.setattr(structures, "EFFORT", structures.Effort(1, 1, 0.0))
    monkeypatch.setattr(structures, "MAKERS", {"eager": structures.eagerly})
    structures.main(["columns"])
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["numpy", "eager"]
    assert row.startswith("columns")
