"""The journey "Add a transform in C" of docs/development.md, walked: `counting`, built into a copy of the package."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

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


def add_line(path: Path, after: str, line: str) -> None:
    """Put a line behind the one that begins so."""
    text, n = re.subn(rf"^{re.escape(after)}.*$", lambda found: f"{found[0]}\n{line}", path.read_text(),
                      flags=re.MULTILINE)
    assert n == 1, path
    path.write_text(text)


def test_a_transform_in_c_is_a_part_an_entry_point_and_a_line_in_each_list(
    tmp_path: Path, environment: Environment
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(CHECKOUT, checkout, ignore=NOT_SOURCE)
    package = checkout / "pydispatch"
    for name, folder in (("counting.pyx", "core/stack"), ("counting.pxd", "core/stack"), ("counting.py", "func")):
        shutil.copy(SOURCES / name, package / folder)
    add_line(package / "_core.pyx", 'include "core/stack/vmap.pyx"', 'include "core/stack/counting.pyx"')
    add_line(package / "_core.pxd", 'include "core/stack/vmap.pxd"', 'include "core/stack/counting.pxd"')
    add_line(package / "func/__init__.py", "from pydispatch.func.concrete",
             "from pydispatch.func.counting import counting")
    setup = checkout / "setup.py"
    setup.write_text(setup.read_text().replace('"-O3"', '"-O0"'))      # compiles in half of the time

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, checkout)
    environment.pip("install", *tmp_path.glob("*.whl"))
    done = environment.python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr
