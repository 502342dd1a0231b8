"""Places of values in memory."""

import numpy as np
import pytest

from pydispatch import compile, ops
from pydispatch.compiling.passes.fusion import Fusion, in_blocks
from pydispatch.compiling.passes.memory import ALIGNMENT, Arena, donations
from pydispatch.compiling.steps import BlocksStep
from tests.compiling.passes.interpreter import SEEDS, program
from tests.compiling.same import check_same
from tests.together import together


@together("seed", SEEDS)
@pytest.mark.parametrize("block", [None, 1, 7])
def test_values_that_share_the_arena_stay_as_long_as_they_are_needed(block, seed):
    # The oracle gives each value its own memory.
    made = program(seed)
    steps = made.steps if block is None else in_blocks(made.steps, Fusion(smallest=1))
    for step in steps:
        if isinstance(step, BlocksStep):
            step.block = block
    expected = [array.copy() for array in made.run(steps)]
    np.testing.assert_equal(made.run(steps, arena=Arena().place(steps)), expected)


def test_temporaries_of_random_steps_share_places():
    sizes = []
    for seed in SEEDS:
        steps = program(seed).steps
        size = Arena().place(steps)
        used = set().union(*[written for _, written in [step.accesses() for step in steps]])
        sizes.append((size, sum(-(-storage.nbytes // ALIGNMENT) * ALIGNMENT for storage in used
                                if storage.kind == "arena")))
    assert sum(size for size, _ in sizes) < 0.7 * sum(apart for _, apart in sizes)


def test_a_result_takes_a_donated_input_that_is_read_before():
    made = program(0)
    builder = made.builder
    given = [builder.input((4,), np.dtype(float), is_donated=True) for _ in range(2)]
    with builder.body() as steps:
        result = builder.ufunc(np.multiply, given)
        last = builder.ufunc(np.add, (result, given[1]))
    numbers = [builder.inputs.index(value) for value in given]
    assert donations(builder, [result], steps) == (numbers[0],)     # the second one is read after it
    assert donations(builder, [last], steps) == (numbers[0],)
    assert donations(builder, [result, last], steps) == (numbers[0], numbers[1])
    assert donations(builder, [builder.fresh((5,), np.dtype(float))], steps) == ()


@pytest.mark.parametrize(("function", "shared"), [
    pytest.param(lambda m: ops.np.exp(m) * 2, True, id="each row where it was read"),
    pytest.param(lambda m: ops.np.exp(m) * m, True, id="read again by the loop that writes"),
    pytest.param(lambda m: ops.np.stack([ops.np.exp(m) * 2, m])[0], False, id="needed afterwards"),
    pytest.param(lambda m: ops.np.exp(m[1:]) * 2, False, id="of one row less"),
])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_blocks_write_where_they_read_what_ends_there(n_threads, function, shared):
    def program(x):
        return ops.np.sort(function(ops.np.sort(x)))

    x = np.random.default_rng(0).standard_normal(20_000)
    compiled = compile(program, threads=n_threads)
    check_same(compiled(x), program(x))
    call, *blocks, _ = [line for line in compiled.plan(x).splitlines() if "@" in line]
    place = call.split(":")[0]
    written = {line.strip().split(":")[0] for line in blocks}
    assert (place in written) is shared
