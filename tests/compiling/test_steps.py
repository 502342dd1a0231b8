"""Kinds of steps: a new one needs a class, and no change of the passes."""

from pathlib import Path

import numpy as np
import pytest

from pydispatch.compiling import steps as module
from pydispatch.compiling.builder import Builder
from pydispatch.compiling.passes.dead_code import without_dead
from pydispatch.compiling.passes.encoding import encoded_plan
from pydispatch.compiling.passes.fusion import Fusion, in_blocks
from pydispatch.compiling.passes.memory import placed_results
from pydispatch.compiling.passes.ordering import ordered
from pydispatch.compiling.steps import BlocksStep, flat, lines_of
from tests.compiling.several import SeveralStep

ROOT = Path(module.__file__).parent


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", [5, 20_000])
def test_all_passes_handle_a_new_kind(n, n_threads):
    builder = Builder(NotImplemented)
    x = builder.input((n,), np.dtype(float))
    with builder.body() as body:
        total = builder.copied(x)
        start, body[:] = body[:], []
        builder.ufunc(np.cos, (total,))     # nothing uses it
        moved = builder.ufunc(np.add, (builder.ufunc(np.multiply, (total, 3.0)), 1.0))
        builder.copy_into(total, moved)
    builder.steps += [*start, SeveralStep(body, 2)]
    result, = placed_results(builder, [builder.ufunc(np.sqrt, (total,))])
    steps = ordered(in_blocks(without_dead(builder.steps), Fusion(n_threads)))
    plan = encoded_plan(builder, [result], steps, (), n_threads)
    text = "\n".join(lines_of(steps))
    assert "2 times:\n    " in text
    assert "cos" not in text
    assert any(isinstance(step, BlocksStep) for step in flat(steps)) is (n > 5)
    array = np.arange(n) * 1.0
    np.testing.assert_array_equal(plan.run(array)[0], np.sqrt((array * 3 + 1) * 3 + 1))


def test_the_passes_name_only_the_kinds_that_they_are_about():
    kinds = [name for name in vars(module) if name.endswith("Step") and name != "Step"]
    named = {path.stem: {kind for kind in kinds if kind in path.read_text()} for path in (ROOT / "passes").glob("*.py")}
    assert named == {"__init__": set(), "dead_code": {"LoopStep", "RepeatStep"}, "ordering": {"LoopStep", "RepeatStep"},
                     "fusion": {"LoopStep", "BlocksStep"}, "memory": {"LoopStep", "BlocksStep"},
                     "encoding": {"LoopStep", "BlocksStep"}, "carries": {"LoopStep", "RepeatStep"},
                     "invariants": {"LoopStep", "RepeatStep"}, "layouts": {"LoopStep"}}
