"""Loops that fill an array give the same gradient in all ways that are timed."""

import numpy as np
import pytest

from benchmarks.cases import filling
from benchmarks.cases.contests import FLOOR, Entry, check
from benchmarks.cases.kinds import import_or_note


@pytest.mark.parametrize("name", filling.MODULES)
def test_every_way_gives_what_numpy_gives(name):
    if import_or_note(filling.MODULES[name], name, left_out := {}) is None:
        pytest.skip(left_out[name])
    calls = filling.filling_calls(20, 1, [name])
    assert [*calls] == [FLOOR, name]
    check(calls, name)
    check(calls, name)


def test_the_gradient_by_hand_is_that_of_finite_differences():
    x = np.linspace(0.5, 1.5, 20)
    for i, slope in enumerate(filling.gradient_by_hand(x)):
        step = np.zeros(20)
        step[i] = 1e-6
        assert slope == pytest.approx((filling.filled(x + step) - filling.filled(x - step)) / 2e-6, rel=1e-6)


def test_there_is_a_row_for_each_way_and_size():
    rows = {(case.group, case.name) for case in filling.filling_cases({})}
    groups = [filling.FILLING.format(n) for n in (filling.FEW, filling.MANY)]
    assert {(group, name) for group in groups for name in (filling.GRAD, filling.TAPE)} <= rows
    assert (filling.FILLING.format(filling.FEW), filling.COMPILED) in rows
    assert all(isinstance(case, Entry) for case in filling.filling_cases({}, "fills 100"))


@pytest.mark.parametrize("name", [filling.GRAD, filling.TAPE])
def test_many_elements_give_what_numpy_gives(name):
    check(filling.filling_calls(filling.MANY, 1, [name]), name)
