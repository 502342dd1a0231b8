"""Solvers that are timed give what SciPy's give, within the tolerance of both."""

import numpy as np
import pytest

from benchmarks.cases.solvers import PROGRAMS, solver_cases


@pytest.mark.parametrize("case", list(solver_cases()), ids=lambda case: case.name)
def test_solvers_by_hand(case):
    _, by_hand, argument, _ = PROGRAMS[case.name]
    np.testing.assert_allclose(case.make_call()(), by_hand(argument), rtol=1e-10)
