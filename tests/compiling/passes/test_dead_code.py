"""Dead-code elimination."""

import re

import numpy as np

from pydispatch import compile, ops
from pydispatch.compiling.passes.dead_code import without_dead
from pydispatch.higher_order import scan
from tests.compiling.passes.interpreter import SEEDS, program
from tests.compiling.same import check_same
from tests.together import together


@together("seed", SEEDS)
def test_the_results_and_what_they_are_computed_from_remain(seed):
    # The oracle follows the reads of the results backwards until nothing changes.
    made = program(seed)
    live = {i for i, step in enumerate(made.steps) if any(storage.kind == "result" for storage in step.accesses()[1])}
    while True:
        needed = {i for i, step in enumerate(made.steps) if any(
            step.accesses()[1] & made.steps[k].accesses()[0] for k in live if k > i)}
        if needed <= live:
            break
        live |= needed
    kept = without_dead(made.steps)
    assert [made.steps.index(step) for step in kept] == sorted(live)
    np.testing.assert_equal(made.run(kept), made.run(made.steps))


def test_no_loop_whose_results_nothing_uses():
    compiled = compile(lambda x: (ops.np.sin(x), ops.np.cos(x), x + 1)[2])
    assert len(compiled.plan(np.ones(5)).splitlines()) == 1


def test_no_loop_of_a_body_whose_results_nothing_uses():
    def function(x):
        def step(state, row):
            unused = ops.np.cos(ops.np.sin(row))
            return state + row, (unused, state * 2.0)
        return scan(step, x[0], x)[1][1]

    compiled, x = compile(function), np.random.default_rng(0).standard_normal((5, 3))
    assert not re.search("sin|cos", compiled.plan(x))
    check_same(compiled(x), function(x))
