"""The same code runs again: a cell of a notebook, a line at a prompt, a module that is reloaded."""

import ast
import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.compat import custom_ops
from pydispatch.exceptions import OverrideWarning, RegistrationError
from tests.warning_filters import all_warnings

IMPORTS = """
import enum
import numpy as np
import pydispatch
from pydispatch import Tensor, library, ops
from pydispatch.library import Library
"""
DEFINED = """
library.define("again{n}::f", "(Tensor x) -> Tensor")
library.impl("again{n}::f", "CPU", lambda x: x * 2)"""
CELLS = {
    "library": """
lib = Library("again{n}", "DEF")
lib.define("f(Tensor x) -> Tensor")
lib.impl("f", lambda x: x * 2, "CPU")""",
    "library in a function": """
def setup():
    lib = Library("again{n}", "DEF")
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x * 2, "CPU")
setup()""",
    "definition": DEFINED,
    "kernel first": """
library.impl("again{n}::f", "CPU", lambda x: x * 2)
library.define("again{n}::f", "(Tensor x) -> Tensor")""",
    "fragment": """
with_two = Library("again{n}", "FRAGMENT")
with_two.define("f(Tensor x) -> Tensor", lambda x: x * 2, "CPU")
with_two.define("g(Tensor x) -> Tensor")""",
    "registrations": """
library.define("again{n}::f", "(Tensor x) -> Tensor")
library.register_kernel("again{n}::f", "cpu", lambda x: x * 2)
library.register_autograd("again{n}::f", lambda ctx, g: g * 2)
library.register_fake("again{n}::f")(lambda x: x)
library.register_vmap("again{n}::f")(lambda info, in_dims, x: (x * 2, in_dims[0]))""",
    "custom operator": """
@library.custom_op("again{n}::f", mutates_args=())
def f(x: Tensor) -> Tensor:
    return x * 2
f.register_autograd(lambda ctx, g: g * 2)
f.register_fake(lambda x: x)""",
    "interface of 2023": """
from pydispatch.compat.custom_ops import *
@custom_op("again{n}::f")
def f(x: Tensor) -> Tensor: ...
@impl("again{n}::f")
def kernel(x): return x * 2
@impl_abstract("again{n}::f")
def fake(x): return x
@impl_save_for_backward("again{n}::f")
def save(inputs, output): return None
@impl_backward("again{n}::f")
def backward(ctx, saved, g): return {{"x": g * 2}}""",
    "opaque type": """
class Kind{n}(enum.Enum):
    A = 1
library.register_opaque_type(Kind{n})""" + DEFINED,
    "pytree node": """
if "Node" not in globals():
    class Node: pass
pydispatch.tree.register_pytree_node(Node, lambda node: ((), None), lambda children, _: Node())""" + DEFINED,
    "array type": """
if "Sub" not in globals():
    class Sub(np.ndarray): pass
pydispatch.register_array_type(Sub, "CPU")""" + DEFINED,
    "compiler": """
pydispatch.register_compiler("again{n}", lambda graph: graph)""" + DEFINED,
    "decomposition": """
library.define("again{n}::f", "(Tensor x) -> Tensor")
library.impl("again{n}::f", "CPU", lambda x: x * 2)
pydispatch.tracing.register_decomposition(ops.again{n}.f.default, lambda x: x + x)""",
}
ROWS = list(enumerate(CELLS))


def session():
    scope = {"__name__": "__main__"}
    exec(IMPORTS, scope)
    return scope


def run(scope, source, file):
    """Run a cell as IPython does, statement by statement, and returns the warnings."""
    with all_warnings() as caught:
        for statement in ast.parse(source).body:
            exec(compile(ast.Module([statement], []), file, "exec"), scope)
    return caught


def values_of(n):
    return getattr(ops, f"again{n}").f(np.ones(2)).tolist()


@pytest.mark.parametrize(("n", "name"), ROWS)
def test_a_cell_runs_twice_and_again_after_an_edit(n, name):
    scope, source = session(), CELLS[name].format(n=n)
    assert [str(each.message) for each in run(scope, source, f"<cell {n} run 1>")] == []
    for turn, (edited, file, factor) in enumerate([
            (source, f"<cell {n} run 1>", 2.0), (f"# a comment\n\n{source}", f"<cell {n} run 2>", 2.0),
            (source.replace("x * 2", "x * 3"), f"<cell {n} run 3>", 3.0)]):
        caught = run(scope, edited, file)
        assert {each.category for each in caught} <= {OverrideWarning}
        assert caught, turn
        assert all(each.filename == file for each in caught)
        assert values_of(n) == [factor, factor]


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
@pytest.mark.parametrize(("n", "name"), [row for row in ROWS if row[1] != "custom operator"])
def test_another_place_still_clashes(n, name):
    n += 100
    source = CELLS[name].format(n=n)
    scope = session()
    run(scope, source, "<cell 1>")
    lines = source.replace("import *", f"import {', '.join(custom_ops.__all__)}").split("\n")
    inside = "\n    ".join(["def elsewhere():", "global lib, with_two, f, Node, Sub", *lines, "return"])
    module = {"__name__": "a_module", "__file__": "/a/module.py", **{
        name: scope[name] for name in ("np", "pydispatch", "Tensor", "library", "Library", "ops", "enum")}}
    if name in ("pytree node", "array type"):
        module |= {key: scope[key] for key in ("Node", "Sub") if key in scope}
    for other in (lambda: run(scope, f"{inside}\nelsewhere()", "<cell 2>"),
                  lambda: exec(compile(source, "/a/module.py", "exec"), module)):
        with pytest.raises(RegistrationError):
            other()


FUNCTIONALITY = """
import warnings
import pydispatch
from pydispatch.library import Library, fallthrough_kernel

warnings.simplefilter("error")
def register(): pydispatch.register_functionality("Again")
register()
try: register()
except pydispatch.exceptions.RegistrationError as error: print("clash", "is taken" in str(error))

warnings.simplefilter("ignore")
cell = 'key = pydispatch.register_functionality("Cell"); Library("_", "IMPL").fallback(fallthrough_kernel, "Cell")'
scope = {"__name__": "__main__", "pydispatch": pydispatch, "Library": Library, "fallthrough_kernel": fallthrough_kernel}
keys = []
for file in ("<cell 1>", "<cell 1>", "<cell 1 edited>"):
    exec(compile(cell, file, "exec"), scope)
    keys.append(scope["key"])
fallbacks = [handle.key.name for handle in pydispatch._registry.registrations.fallbacks if handle.active]
print(len(set(keys)), fallbacks.count("Cell"))
"""


def test_functionalities_and_fallbacks_run_again():
    command = [sys.executable, "-c", FUNCTIONALITY]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["clash", "True", "1", "1"]


def test_twice_in_one_run_clashes():
    scope = session()
    for source in (
        'library.define("twice::f", "(Tensor x) -> Tensor")\nlibrary.define("twice::f", "(Tensor x) -> Tensor")',
        'for _ in range(2): library.define("twice::g", "(Tensor x) -> Tensor")',
        'def define(): library.define("twice::h", "(Tensor x) -> Tensor")\ndefine()\ndefine()',
    ):
        with pytest.raises(RegistrationError, match="is defined already"):
            run(scope, source, f"<cell {hash(source)}>")


def test_a_function_of_another_cell_is_called_again():
    scope = session()
    run(scope, 'def define(): library.define("called::f", "(Tensor x) -> Tensor")', "<cell 1>")
    run(scope, "define()", "<cell 2>")
    caught = run(scope, "define()", "<cell 2>")
    assert "registered again" in str(caught[0].message)


def test_an_edited_schema_takes_back_kernels_that_do_not_fit():
    scope = session()
    run(scope, 'library.define("edited::f", "(Tensor x) -> Tensor")', "<cell 1>")
    run(scope, 'library.impl("edited::f", "CPU", lambda x: x)', "<cell 2>")
    op = ops.edited.f.default
    run(scope, 'library.define("edited::f", "(Tensor x, Tensor y) -> Tensor")', "<cell 1 edited>")
    assert ops.edited.f.default is op       # what was looked up before is still the operator
    assert not op.has_kernel("CPU")
    run(scope, 'library.impl("edited::f", "CPU", lambda x, y: x + y)', "<cell 2 edited>")
    assert op(np.ones(1), np.ones(1)).tolist() == [2.0]


def test_a_kernel_takes_the_place_of_the_former_one():
    scope = session()
    run(scope, 'library.define("kernels::f", "(Tensor x) -> Tensor")', "<cell 1>")
    for _ in range(3):
        run(scope, 'library.impl("kernels::f", "CPU", lambda x: x, allow_override=False)', "<cell 2>")
    kernels = [each for each in ops.kernels.f.default.registrations if type(each).__name__ == "KernelHandle"]
    assert len(kernels) == 1
    assert ops.kernels.f(np.ones(1)).tolist() == [1.0]


def test_a_kernel_of_another_name_shadows_the_former_one():
    scope = session()
    run(scope, 'library.define("shadowed::f", "(Tensor x) -> Tensor")', "<cell 1>")
    first = 'def first(x): return x * 2\nlibrary.impl("shadowed::f", "CPU", first)'
    run(scope, first, "<cell 2>")
    run(scope, 'plain = library.get_kernel("shadowed::f", "CPU")\ndef second(x): return plain(x) + 1\n'
               'override = library.impl("shadowed::f", "CPU", second)', "<cell 3>")
    assert ops.shadowed.f(np.ones(1)).tolist() == [3.0]
    run(scope, "override.remove()", "<cell 4>")
    assert ops.shadowed.f(np.ones(1)).tolist() == [2.0]
    run(scope, first.replace("2", "5"), "<cell 2 edited>")
    kernels = [each for each in ops.shadowed.f.default.registrations if type(each).__name__ == "KernelHandle"]
    assert len(kernels) == 1
    assert ops.shadowed.f(np.ones(1)).tolist() == [5.0]


def test_one_half_of_a_formula_runs_again():
    scope = session()
    run(scope, CELLS["interface of 2023"].format(n=500), "<cell 1>")
    half = ('from pydispatch.compat.custom_ops import *\n@impl_backward("again500::f")\n'
            'def backward(ctx, saved, g): return {"x": g * 5}')
    with pytest.raises(RegistrationError, match="already has a backward impl"):     # a statement at another line
        run(scope, "def elsewhere():\n    " + half.replace("import *", "import impl_backward").replace(
            "\n", "\n    ") + "\nelsewhere()", "<cell 2>")
    halves = CELLS["interface of 2023"].format(n=501)
    run(scope, halves.partition("@impl_backward")[0], "<cell 3>")
    last = '@impl_backward("again501::f")\ndef backward(ctx, saved, g): return {"x": g * 5}'
    run(scope, last, "<cell 4>")
    assert run(scope, last.replace("5}", "7}"), "<cell 4 edited>")
    x = Tensor(np.ones(1), requires_grad=True)
    ops.again501.f(x).backward(Tensor(np.ones(1)))
    assert x.grad.tolist() == [7.0]


def test_a_refused_run_changes_nothing():
    scope = session()
    run(scope, CELLS["definition"].format(n=600), "<cell 1>")
    bad = 'library.define("again600::f", "(Tensor x) -> Tensor", tags=["out"])'
    with pytest.raises(Exception, match="out"):
        run(scope, bad, "<cell 1 edited>")
    assert values_of(600) == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OverrideWarning):
            exec(compile('library.define("again600::f", "(Tensor x) -> Tensor")', "<edited again>", "exec"), scope)
    assert values_of(600) == [2.0, 2.0]


def test_a_module_is_reloaded(tmp_path, monkeypatch):
    path = tmp_path / "reloaded_module.py"
    path.write_text(IMPORTS + CELLS["library"].format(n=700))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("reloaded_module")
    path.write_text(IMPORTS + "# one more line\n" + CELLS["library"].format(n=700).replace("x * 2", "x * 30"))
    importlib.invalidate_caches()
    with pytest.warns(OverrideWarning, match="the DEF library 'again700': registered again"):
        importlib.reload(module)
    assert values_of(700) == [30.0, 30.0]
    sys.modules.pop("reloaded_module")
