"""The transforms of `python -m benchmarks` under pytest-benchmark, for its tables, histories and plots.

    taskset -c 1 python -m pytest benchmarks/bench_transforms.py                  time all, on one core
    python -m pytest benchmarks/bench_transforms.py --benchmark-disable           run each once

Operators at interpreters are timed a hundred at a time.
"""

from __future__ import annotations

import pytest

from benchmarks.cases.interpreters import DEPTHS, INTERPRETER, NESTED, OPERATORS, at_depths
from benchmarks.cases.kinds import import_or_note
from benchmarks.cases.transforms import THEIRS, TRANSFORMS, ArrayLibrary, batch_cases, examples, ours, tape_cases

LIBRARIES = {"pydispatch": ArrayLibrary("pydispatch", 1, ours), **THEIRS}
EXAMPLES = {example.title: example for example in examples()}
AGAINST_NUMPY = {(case.group, case.name): case for case in (*batch_cases(), *tape_cases())}
TURNS = 100


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("title", EXAMPLES)
def test_transform(benchmark, title, transform, library):
    benchmark.group = f"{transform} of {title}"
    module_name, _, set_up = LIBRARIES[library]
    module = import_or_note(module_name, library, left_out := {})
    if left_out:
        pytest.skip(left_out[library])
    benchmark(set_up(module)(transform, EXAMPLES[title].tasks[transform]))


@pytest.mark.parametrize("how", ["make_call", "make_over"])
@pytest.mark.parametrize(("group", "name"), AGAINST_NUMPY)
def test_batch_or_tape(benchmark, group, name, how):
    benchmark.group = f"{group}: {name}"
    benchmark(getattr(AGAINST_NUMPY[group, name], how)())


@pytest.mark.parametrize("what", ["loop", "arrays_only"])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("transform", NESTED)
def test_interpreter(benchmark, transform, operator, depth, what):
    benchmark.group = f"{INTERPRETER}: {transform} ×{depth}, {operator}"
    at_depths(transform, operator, [depth], lambda points: benchmark(getattr(points[0], what), TURNS))
