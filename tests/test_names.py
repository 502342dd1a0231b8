"""The names of tests say in words what they test, and no two classes of the package have one name."""

import re
from collections import Counter
from pathlib import Path

from tests.together import together

TESTS = Path(__file__).parent
LONGEST = 80
CODE = re.compile(r"_([a-z]{1,2}\d+|\d+_\d+|(row|rule|trap|section)_\d+)(_|$)")
"""A row of a table outside the repository: `test_a15_...`, `test_7_8_...`."""
REFERENCE = re.compile(
    r"\b(?:spec|specification|section|row|rule|trap|wart)s? (?:[A-Z]?\d|[iv]+\b)|\"[A-Z]\d+[- ]|^# -+ [A-Z]\d+\b")
"""The same in ids, comments and docstrings: `spec 4.1`, `row R7`, `"X21-view"`."""


def names_in(path: Path) -> list[str]:
    return re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)


@together("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_names_are_words_and_not_too_many(path):
    names = names_in(path)
    assert [name for name in names if len(name) > LONGEST] == []
    assert [name for name in names if CODE.search(name)] == []


@together("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_line_refers_to_a_document_outside_the_repository(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [f"{n}: {line}" for n, line in lines if REFERENCE.search(line) and path.name != "test_names.py"] == []


PACKAGE = TESTS.parent / "pydispatch"
OF_ONE_CONCEPT = {
    "Arena",            # the memory of a plan: as it is laid out, and as it is had
    "FlatFunction",     # a user's function as one of flat arrays: for loops, and for programs
    "Guard",            # in the core, and what users derive from it
    "MemoryUse",        # as recorded, and as told
    "Storage",          # the memory that several arrays share
}


def test_no_two_classes_have_one_name():
    found = Counter(
        name for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx")]
        for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text(), re.MULTILINE))
    assert {name for name, n in found.items() if n > 1} == OF_ONE_CONCEPT
