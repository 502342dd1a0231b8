"""The journeys of docs/development.md, walked: how many places each change touches.

`tests/packaging/test_new_parts.py` walks those that change the core: a transform in C, and a kind of step that the core
runs itself.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pydispatch import compile, func, ops
from pydispatch.compiling import lowering
from pydispatch.compiling.rules import RULES
from pydispatch.higher_order import scan
from pydispatch.tree import tree_leaves
from tests.compiling.several import SeveralStep

ROOT = Path(__file__).parents[1]
IGNORED = shutil.ignore_patterns("__pycache__", "core", "plans", "*.c", "_build", "generated", "build", "samples.json")


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the package, with its compiled core, and of what regenerates its files."""
    for folder in ("pydispatch", "tests", "tools", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=IGNORED)
    return tmp_path


def run(folder: Path, *arguments: str | Path) -> str:
    """Return what Python prints in a checkout, and fail with its errors."""
    variables = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=variables, capture_output=True, text=True,
                          check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- change the precedence: one place --------------------------------------------------------------------------------

ROW_OF_AUTOGRAD = "    (Label.AUTOGRAD, _explicit(DispatchKey.Autograd)),\n"
ROW_OF_COMPOSITES = "    (Label.COMPOSITE, _implicit),\n"
PRECEDENCE_PROGRAM = """
import numpy as np
from pydispatch import Tensor, library, ops
from pydispatch.debug import dump_table
lib = library.Library("journey", "DEF")
f = lib.define("f(Tensor x) -> Tensor")
lib.impl("f", lambda x: ops.np.negative(x), "CompositeImplicitAutograd")
lib.impl("f", lambda x: ops.np.exp(x), "Autograd")
print(ops.journey.f(Tensor(np.zeros(()))).item())
print(next(line for line in str(dump_table(ops.journey.f.default)).splitlines() if "AutogradCPU" in line))
print(ops.journey.f.explain(Tensor(np.zeros(()))))
"""


def test_the_precedence_is_changed_in_one_place(checkout):
    value, row, *explained = run(checkout, "-c", PRECEDENCE_PROGRAM).splitlines()
    assert float(value) == 0.0
    assert "math kernel" in row
    table = checkout / "pydispatch/_registry/tables.py"
    text = table.read_text()
    assert text.count(ROW_OF_AUTOGRAD) == text.count(ROW_OF_COMPOSITES) == 1
    table.write_text(text.replace(ROW_OF_AUTOGRAD, "").replace(ROW_OF_COMPOSITES, ROW_OF_AUTOGRAD + ROW_OF_COMPOSITES))
    value, row, *changed = run(checkout, "-c", PRECEDENCE_PROGRAM).splitlines()
    assert float(value) == 1.0      # the table runs the kernel of the alias
    assert "math kernel" not in row
    assert "CompositeImplicitAutograd" in "".join(explained)
    assert "it is registered as a composite" not in "".join(changed)


# --- add a backend: one call -----------------------------------------------------------------------------------------

BACKEND_PROGRAM = """
import numpy as np
import pydispatch
from pydispatch import Tensor, func, ops

class Boxed:
    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.ndim, self.size = self.values.ndim, self.values.size

class library:
    pass

def of_boxed(function):
    def called(*args, **options):
        return Boxed(function(*[arg.values if isinstance(arg, Boxed) else arg for arg in args], **options))
    return staticmethod(called)

for name in ("add", "multiply", "sum", "reshape", "broadcast_to", "full_like", "transpose"):
    setattr(library, name, of_boxed(getattr(np, name)))

pydispatch.register_backend("Boxed", Boxed, namespace=library)

x = Boxed([1.0, 2.0])
assert type(ops.np.add(x, x)) is Boxed
assert type(ops.np.square(x)) is Boxed                          # by its decomposition
assert func.grad(lambda x: ops.np.sum(x * x * x))(x).values.tolist() == [3.0, 12.0]
rows = Boxed([[1.0, 2.0], [3.0, 4.0]])
assert func.vmap(lambda row: ops.np.sum(row * row))(rows).values.tolist() == [5.0, 25.0]
leaf = Tensor(x, requires_grad=True)
ops.np.sum(leaf * leaf).backward()
assert leaf.grad.array.values.tolist() == [2.0, 4.0]
"""


def test_a_backend_takes_one_call():
    run(ROOT, "-c", BACKEND_PROGRAM)


# --- add an operator: one line and the command -----------------------------------------------------------------------

LINE = "pointwise(np.heaviside, vjp=(vanished, lambda g, x1: g * (x1 == 0)))\n"
OPERATOR_PROGRAM = """
import numpy as np
from pydispatch import compile, func, ops
x, y, out = np.array([-1.0, 0.0, 2.0]), np.full(3, 0.5), np.empty(3)
assert ops.np.heaviside(x, y, out=out) is out
assert ops.np.heaviside_(x.copy(), y).tolist() == out.tolist() == [0.0, 0.5, 1.0]
slope = func.grad(lambda y: ops.np.heaviside(x, y).sum())
of_each = func.vmap(func.grad(np.heaviside, argnums=1))
for found in (slope(y), compile(slope)(y), of_each(x, y), func.jvp(lambda y: np.heaviside(x, y), (y,), (y / y,))[1]):
    assert found.tolist() == [0.0, 1.0, 0.0]
assert ops.np.heaviside(ops.np.zeros(3, device="Meta"), 0.0).shape == (3,)
"""


def test_an_operator_is_one_line_and_the_command(checkout):
    pytest.importorskip("scipy")
    pytest.importorskip("sparse")
    regenerate = importlib.import_module("tools.regenerate")
    if regenerate.wrong_versions():
        pytest.skip("the files are for other versions of NumPy and SciPy")
    generated = {name: (checkout / name).read_text() for name in regenerate.GENERATED}
    declarations = checkout / "pydispatch/operators/pointwise.py"
    text = declarations.read_text()
    assert text.count(LINE) == 1
    declarations.write_text(text.replace(LINE, ""))
    absent = "from pydispatch import ops; assert not hasattr(ops.np, 'heaviside')"
    run(checkout, "-c", absent)
    written = set(re.findall(r"^(\S+): written$", run(checkout, "tools/regenerate.py"), re.MULTILINE))
    assert {"docs/operators.md", "pydispatch/_stubs/np.pyi"} <= written

    declarations.write_text(text)
    assert written == set(re.findall(r"^(\S+): written$", run(checkout, "tools/regenerate.py"), re.MULTILINE))
    assert {name: (checkout / name).read_text() for name in regenerate.GENERATED} == generated
    run(checkout, "-c", OPERATOR_PROGRAM)


# --- add a kind of step: a class and a rule --------------------------------------------------------------------------


def in_two_runs(builder, spec, a, **options):
    """Lower `copy` to a loop that runs twice."""
    builder.copied(a)
    step = builder.steps.pop()
    builder.steps.append(SeveralStep([step], 2))
    return step.operands[-1]


copy = ops.np.copy
PROGRAMS = {
    "alone": copy,
    "between loops": lambda x: ops.np.sin(copy(x * 2.0)) + x,
    "unused": lambda x: (copy(x), x + 1.0)[1],
    "twice": lambda x: copy(ops.np.exp(copy(x) * 2.0)),
    "of sums": lambda x: copy(x + 1.0).sum(0),
    "in a loop": lambda x: scan(lambda total, row: (copy(total) + row, copy(row)), x[0] * 0.0, x),
    "gradient": func.grad(lambda x: ops.np.sum(ops.np.tanh(copy(x)) * x)),
    "batch": func.vmap(lambda row: copy(row * 2.0).sum()),
}


@pytest.mark.parametrize("shape", [(3, 2), (300, 400)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kind_of_step_is_a_class_and_a_rule(monkeypatch, name, shape):
    # No pass is changed for it.
    x = np.random.default_rng(0).standard_normal(shape)
    expected = tree_leaves(PROGRAMS[name](x))
    monkeypatch.setitem(RULES, "np::copy", in_two_runs)
    monkeypatch.setattr(lowering, "_known", {})
    compiled = compile(PROGRAMS[name])
    for found, result in zip(tree_leaves(compiled(x)), expected, strict=True):
        np.testing.assert_allclose(found, result, rtol=1e-12)
    assert ("2 times:" in compiled.plan(x)) == (name != "unused")
