"""The small calls that are timed do what NumPy's do, on arrays and on Tensors."""

import numpy as np
import pytest

from benchmarks.cases.small import ROWS, small_cases
from pydispatch import Tensor

NAMES = [case.name for case in small_cases()]


def value_of(name, attribute):
    """Return the result of a call, or the state after an assignment, on copies of the arrays."""
    case = next(case for case in small_cases() if case.name == name)
    text = getattr(case, attribute)
    if " = " in text:
        exec(text, case.names)
        text = text.partition("[")[0]
    return eval(text, case.names)


@pytest.mark.parametrize("name", NAMES)
def test_both_calls_do_the_same(name):
    ours, numpys = value_of(name, "call"), np.asarray(value_of(name, "over"))
    assert isinstance(ours, Tensor) == name.endswith(", Tensors")
    assert (ours.shape, ours.dtype) == (numpys.shape, numpys.dtype)
    if not name.startswith("empty"):
        np.testing.assert_array_equal(np.asarray(ours), numpys)


def test_every_row_is_timed():
    assert len(NAMES) == len(set(NAMES)) == sum(call is not None for row in ROWS for call in row[1:3])
