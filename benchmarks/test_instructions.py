"""No call takes more instructions than when the reference was written; the counts do not depend on the machine."""

from __future__ import annotations

import pytest

from benchmarks import instructions
from tests.needs import needs

HOW = "python -m benchmarks.instructions --update"


@needs("valgrind")
def test_no_call_takes_more_instructions_than_the_reference():
    expected = instructions.reference()
    if expected is None:
        pytest.skip(f"no reference for Python {instructions.version()}: {HOW}")
    counted = instructions.count()
    assert counted.keys() == expected.keys(), f"calls were added or removed: {HOW}"
    assert instructions.regressions(counted, expected) == {}, f"look into it, or accept it: {HOW}"


def test_only_more_than_the_tolerance_is_a_regression():
    expected = {"slower": 100, "a little slower": 100, "faster": 100, "gone": 100}
    counted = {"slower": 120, "a little slower": 105, "faster": 50, "new": 7}
    assert instructions.regressions(counted, expected) == {"slower": 1.2}
