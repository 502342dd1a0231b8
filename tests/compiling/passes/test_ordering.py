"""The order of steps, and dependencies between them."""

import re

import numpy as np

from pydispatch import compile, ops
from pydispatch.compiling.passes.ordering import dependencies, ordered
from pydispatch.compiling.steps import RepeatStep
from pydispatch.higher_order import scan
from tests.compiling.passes.interpreter import SEEDS, assert_reordered, may_swap, program
from tests.compiling.same import check_same
from tests.together import together


@together("seed", SEEDS)
def test_dependencies_are_those_of_each_pair(seed):
    steps = program(seed).steps
    waiting, followers = dependencies(steps)
    for i, step in enumerate(steps):
        assert followers[i] == {k for k in range(i + 1, len(steps)) if not may_swap(step, steps[k])}
    assert waiting == [sum(i in following for following in followers) for i in range(len(steps))]


@together("seed", SEEDS)
def test_a_body_keeps_its_steps_and_their_dependencies(seed):
    made = program(seed)
    repeated, = ordered([RepeatStep(made.steps, 1, [], [], "scan")])
    assert_reordered(repeated.body, made.steps)
    np.testing.assert_equal(made.run(repeated.body), made.run(made.steps))


def test_bodies_compute_the_longer_operand_last():
    def function(x):
        return scan(lambda state, y: (ops.np.sin(state) * y + (state - 1.0), None), np.array(0.0), x)[0]

    compiled, x = compile(function), np.random.default_rng(0).standard_normal(5)
    assert re.findall(r"= (\w+)\(", compiled.plan(x))[1:] == ["subtract", "sin", "multiply", "add", "copy"]
    check_same(compiled(x), function(x))
