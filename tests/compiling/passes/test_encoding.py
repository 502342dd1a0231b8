"""The description of steps that the core gets."""

import inspect

import numpy as np
import pytest

from pydispatch import compile
from pydispatch.compiling.passes.encoding import WORK, encoded_plan, encoded_step
from pydispatch.compiling.passes.fusion import Fusion, in_blocks
from tests.compiling.passes.interpreter import SEEDS, program
from tests.together import together


@together("seed", SEEDS)
@pytest.mark.parametrize("blocks", [False, True])
def test_the_core_runs_the_steps(blocks, seed):
    made = program(seed)
    steps = in_blocks(made.steps, Fusion(smallest=1)) if blocks else made.steps
    plan = encoded_plan(made.builder, made.results, steps, (), 1)
    np.testing.assert_equal(list(plan.run(*made.arrays)), made.run(made.steps))
    assert plan.n_steps == sum(1 + len(step.inner()) for step in steps)


def test_parts_of_an_encoded_step_are_in_the_order_of_their_names():
    names = [*inspect.signature(encoded_step).parameters]
    step = encoded_step(*names)
    assert step == (*names[:-2], tuple(names[-2:]))
    assert step[WORK] == "work"


@pytest.mark.parametrize(("size", "expected"), [(20_000, []), (400_000, ["x", "y", "result"])])
def test_arrays_that_do_not_fit_the_cache_are_fetched_ahead_once_in_a_block(size, expected):
    compiled = compile(lambda x, y: (x * y + x) * y)
    compiled(*np.random.default_rng(0).standard_normal((2, size)))
    variant, = compiled.variants
    loops = [step for step in variant.plan.described[5] if step[0] == "loop"]
    assert len(loops) == 3
    fetched = [buffer for step in loops for buffer, flag in zip(step[3], step[9][-len(step[3]):], strict=True) if flag]
    assert fetched == [{"x": 1, "y": 2, "result": 3}[name] for name in expected]
