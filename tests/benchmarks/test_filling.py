"""Loops that fill an array give the same gradient in all ways that are timed."""

import numpy as np
import pytest

from benchmarks.cases.contests import FLOOR, Entry, check
from benchmarks.cases.filling import (
    COMPILED,
    FEW,
    FILLING,
    GRAD,
    MANY,
    MODULES,
    TAPE,
    filled,
    filling_calls,
    filling_cases,
    gradient_by_hand,
)
from benchmarks.cases.kinds import import_or_note


@pytest.mark.parametrize("name", MODULES)
def test_every_way_gives_what_numpy_gives(name):
    if import_or_note(MODULES[name], name, left_out := {}) is None:
        pytest.skip(left_out[name])
    calls = filling_calls(20, 1, [name])
    assert [*calls] == [FLOOR, name]
    check(calls, name)
    check(calls, name)


def test_the_gradient_by_hand_is_that_of_finite_differences():
    x = np.linspace(0.5, 1.5, 20)
    for i, slope in enumerate(gradient_by_hand(x)):
        step = np.zeros(20)
        step[i] = 1e-6
        assert slope == pytest.approx((filled(x + step) - filled(x - step)) / 2e-6, rel=1e-6)


def test_there_is_a_row_for_each_way_and_size():
    rows = {(case.group, case.name) for case in filling_cases({})}
    assert {(FILLING.format(n), name) for n in (FEW, MANY) for name in (GRAD, TAPE)} <= rows
    assert (FILLING.format(FEW), COMPILED) in rows
    assert all(isinstance(case, Entry) for case in filling_cases({}, "fills 100"))


@pytest.mark.parametrize("name", [GRAD, TAPE])
def test_many_elements_give_what_numpy_gives(name):
    check(filling_calls(MANY, 1, [name]), name)
