"""Fusion of loops in blocks."""

import numpy as np
import pytest

from pydispatch import compile, ops
from pydispatch.compiling.passes import fusion
from pydispatch.compiling.passes.fusion import Fusion, in_blocks
from pydispatch.compiling.steps import BlocksStep
from tests.compiling.passes.interpreter import SEEDS, assert_reordered, program
from tests.together import together


@together("seed", SEEDS)
@pytest.mark.parametrize("block", [1, 3, 20])
def test_blocks_compute_the_same_in_an_order_that_fits(block, seed):
    made = program(seed)
    found = in_blocks(made.steps, Fusion(smallest=1))
    assert_reordered([inner for step in found for inner in step.inner() or (step,)], made.steps)
    for step in found:
        if isinstance(step, BlocksStep):
            step.block = block
    np.testing.assert_equal(made.run(found), made.run(made.steps))


@together("seed", SEEDS)
def test_no_other_step_uses_local_memory(seed):
    found = in_blocks(program(seed).steps, Fusion(smallest=1))
    for step in found:
        for other in found:
            if isinstance(step, BlocksStep) and other is not step:
                assert step.local.isdisjoint(set().union(*other.accesses()))


def test_random_steps_share_blocks_of_both_kinds():
    found = [step for seed in SEEDS for step in in_blocks(program(seed).steps, Fusion(smallest=1))
             if isinstance(step, BlocksStep)]
    assert len(found) > 30
    assert {step.is_flat for step in found} == {True, False}
    assert any(step.local for step in found)


@pytest.mark.parametrize(("options", "expected"), [
    (Fusion(smallest=1), True), (Fusion(smallest=21), False), (Fusion(smallest=1, fewest=9), False),
    (Fusion(smallest=1, fewest=9, n_threads=2), True), (Fusion(smallest=1, can_join=lambda step: False), False),
], ids=["default", "small", "few", "on threads", "none can join"])
def test_options_decide_what_is_a_group(options, expected):
    made = program(0)
    builder = made.builder
    with builder.body() as steps:
        value = builder.ufunc(np.sin, (builder.inputs[0],))
        builder.ufunc(np.multiply, (value, value))
    assert any(isinstance(step, BlocksStep) for step in in_blocks(steps, options)) is expected


@pytest.mark.parametrize("n", [1, 2, 10, 300])
def test_the_time_to_make_a_plan_grows_with_its_length(n, monkeypatch):
    compared = []
    original = fusion._Group.modes_with
    monkeypatch.setattr(fusion._Group, "modes_with", lambda *args: compared.append(1) or original(*args))

    def function(x):
        for _ in range(n):
            x = ops.np.sin(x) + 0.5
        return x

    compile(function).plan(np.ones(10_000))
    assert len(compared) <= 20 * n + 20
