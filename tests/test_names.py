"""The names of tests say in words what they test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.cases import in_one_case

TESTS = Path(__file__).parent
LONGEST = 80
CODE = re.compile(r"_([a-z]{1,2}\d+|\d+_\d+|(row|rule|trap|section)_\d+)(_|$)")
"""A row of a table that is elsewhere: `test_a15_...`, `test_7_8_...`."""


def names_in(path: Path) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")]


@in_one_case
@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_names_are_words_and_not_too_many(path):
    names = names_in(path)
    assert [name for name in names if len(name) > LONGEST] == []
    assert [name for name in names if CODE.search(name)] == []
