"""The page about operators tells what there is."""

from __future__ import annotations

from tests.operators.page import PAGE, renewed


def test_the_tables_are_up_to_date():
    text = PAGE.read_text()
    assert text == renewed(text), "run: python -m tests.operators.page"
