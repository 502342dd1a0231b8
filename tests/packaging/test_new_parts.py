"""Journeys of docs/development.md that change the core, walked in one copy of the package.

They add a transform in C, `counting`, and a kind of step of plans, "several".
"""

from __future__ import annotations

import filecmp
import inspect
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.compiling.several import SeveralStep
from tests.packaging.conftest import CHECKOUT, NOT_SOURCE, Environment, run

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "counting"
PROGRAM = """
import numpy as np
from pydispatch import ops
from pydispatch.func import counting, grad, vmap

def f(x):
    return ops.np.sum(ops.np.sin(x) * x)

def counts(calls):
    return {str(name): n for name, n in calls.items()}

x, rows = np.arange(3.0), np.ones((2, 3))
once = {"np::sin": 1, "np::multiply": 1, "np::sum": 1}

value, calls = counting(f)(x)
assert np.isclose(value, np.sum(np.sin(x) * x)) and counts(calls) == once

assert np.allclose(grad(lambda x: counting(f)(x)[0])(x), np.cos(x) * x + np.sin(x))
gradient, calls = counting(grad(f))(x)
assert np.allclose(gradient, np.cos(x) * x + np.sin(x))
assert counts(calls) == {"np::sin": 1, "np::multiply": 4, "np::sum": 1, "np::cos": 1, "np::add": 1}

assert np.allclose(vmap(lambda x: counting(f)(x)[0])(rows), 3 * np.sin(1.0))
values, calls = counting(vmap(f))(rows)
assert np.allclose(values, 3 * np.sin(1.0)) and counts(calls) == once

def write(x):
    x[...] = 2.0
    return x

value, calls = counting(write)(x)
assert value.tolist() == x.tolist() == [2.0] * 3 and counts(calls) == {"np::setitem_": 1}
"""

KIND = """

# --- steps that run several times, without carries ---

cdef struct Several:
    cnp.npy_intp times


cdef int check_several(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    if (<Several*>checker.plan.steps[i].numbers).times < 1:
        raise ValueError(f"step {i} never runs")
    return checker.check(i + 1, following)


cdef int run_several(PlanRun* run, PlanStep* step) except -1 nogil:
    cdef Py_ssize_t k
    for k in range((<Several*>step.numbers).times):
        run_plan_steps(run, step + 1, step + 1 + step.n_inside)
    return 0


add_kind("several", (<Several*>NO_NUMBERS)[0], run_several, check_several)
"""
HEADER = 'encoder.add_header("several", at, self.times * encoder.work_since(at), times=self.times)\n'
STEP = "\n\n" + re.sub(r"encoder\.add_header(.|\n)*", HEADER, inspect.getsource(SeveralStep))
RULE = """

@lowers("copy")
def lower_copy(builder, spec, a, **options):
    from pydispatch.compiling.steps import SeveralStep

    target = builder.copied(a)
    with builder.body() as body:
        builder.copy_into(target, builder.ufunc(np.add, (target, 1.0)))
    builder.steps.append(SeveralStep(body, 3))
    return target
"""
PIECES = {"plans/kinds.pyx": KIND, "compiling/steps.py": STEP, "compiling/rules.py": RULE}
PROGRAM_OF_STEP = """
import numpy as np
from pydispatch import _core, compile, ops
for n in (1, 3, 100_000):
    x = np.arange(1.0, n + 1)
    compiled = compile(lambda x: ops.np.copy(x * 2.0) - ops.np.sin(ops.np.copy(x)))
    assert np.allclose(compiled(x), x * 2 + 3 - np.sin(x + 3))
    assert compiled.plan(x).count("3 times:") == 2
*parts, steps, calls, threads, donated = compiled.variants[0].plan.described
assert [step[9] for step in steps if step[0] == "several"] == [(3,), (3,)]
for numbers in ((), (0,)):
    changed = tuple((*step[:9], numbers, *step[10:]) if step[0] == "several" else step for step in steps)
    try:
        _core.Plan(*parts, changed, calls, threads, donated)
    except ValueError:
        continue
    raise AssertionError(numbers)
"""


def add_line(path: Path, after: str, line: str) -> None:
    """Put a line behind the one that begins so."""
    text, n = re.subn(rf"^{re.escape(after)}.*$", lambda found: f"{found[0]}\n{line}", path.read_text(),
                      flags=re.MULTILINE)
    assert n == 1, path
    path.write_text(text)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, set[str]]:
    """Return an environment with the changed package, and the files of the package that differ or are new."""
    temporary = tmp_path_factory.mktemp("changed")
    checkout = temporary / "checkout"
    shutil.copytree(CHECKOUT, checkout, ignore=NOT_SOURCE)
    package = checkout / "pydispatch"
    for name, folder in (("counting.pyx", "core/stack"), ("counting.pxd", "core/stack"), ("counting.py", "func")):
        shutil.copy(SOURCES / name, package / folder)
    add_line(package / "_core.pyx", 'include "core/stack/vmap.pyx"', 'include "core/stack/counting.pyx"')
    add_line(package / "_core.pxd", 'include "core/stack/vmap.pxd"', 'include "core/stack/counting.pxd"')
    add_line(package / "func/__init__.py", "from pydispatch.func.concrete",
             "from pydispatch.func.counting import counting")
    for name, piece in PIECES.items():
        with (package / name).open("a") as file:
            file.write(piece)
    touched = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()
               and not is_same(path, CHECKOUT / path.relative_to(checkout))}
    setup = checkout / "setup.py"
    setup.write_text(setup.read_text().replace('"-O3"', '"-O0"'))      # compiles in half of the time

    run(sys.executable, "-m", "build", "--wheel", "--outdir", temporary, checkout)
    environment = Environment(temporary)
    environment.pip("install", *temporary.glob("*.whl"))
    return environment, touched


def is_same(path: Path, other: Path) -> bool:
    return other.exists() and filecmp.cmp(path, other, shallow=False)


def test_a_transform_in_c_is_a_part_an_entry_point_and_a_line_in_each_list(
    changed: tuple[Environment, set[str]]
) -> None:
    environment, touched = changed
    assert touched - PIECES.keys() == {
        "core/stack/counting.pxd", "core/stack/counting.pyx", "func/counting.py",
        "_core.pxd", "_core.pyx", "func/__init__.py"}
    done = environment.python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr


def test_a_kind_of_step_of_the_core_touches_at_most_four_files(changed: tuple[Environment, set[str]]) -> None:
    environment, touched = changed
    assert PIECES.keys() <= touched
    assert len(PIECES) <= 4
    done = environment.python("-c", PROGRAM_OF_STEP)
    assert done.returncode == 0, done.stderr
