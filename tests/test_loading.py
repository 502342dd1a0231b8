"""`import pydispatch` loads what a plain call needs. The rest comes when it is asked for, from any thread."""

import ast
import importlib
import operator
import pydoc
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import pydispatch
from pydispatch import _loading, autograd

ROOT = Path(pydispatch.__file__).parent


def run(code):
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    return done.stdout.split()


LOADED = "print(*sorted(m.removeprefix('pydispatch.') for m in sys.modules if m.startswith('pydispatch.')))"
PLAIN_CALLS = """
import numpy as np
from pydispatch import Tensor, ops
x = Tensor(np.arange(4.0))
x[0], x + x, x.sum(), ops.np.add(np.ones(2), 1.0, out=np.ones(2)), ops.np.concatenate([x, x], dtype=np.float32)
x[1] = 2.0
ops.np.zeros((2, 3), dtype=int)
"""
ON_DEMAND = {"func", "library", "compat", "debug", "subclasses", "higher_order", "tracing", "testing"}


def test_a_plain_call_loads_nothing_more():
    imported = run(f"import sys, pydispatch; {LOADED}")
    assert {name.partition(".")[0] for name in imported} & ON_DEMAND == set()
    assert not {"autograd.function", "autograd.forward", "autograd.grad_modes",
                "schema.checks", "schema.inference"} & set(imported)
    assert run(f"import sys, pydispatch\n{PLAIN_CALLS}\n{LOADED}") == imported


def connected_names(path):
    """Return the names under which a module gives functions to the core."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {keyword.arg for call in calls if ast.unparse(call.func) == "_core.connect" for keyword in call.keywords}


def test_what_the_core_asks_for_is_there_or_is_loaded():
    at_once = set(run(f"import sys, pydispatch; {LOADED}"))
    found = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names = connected_names(path) - {None}
        if names and module not in at_once:
            found[module] = names
    assert {module: set(names) for module, names in _loading.CONNECTED.items()} == found


def test_the_core_asks_for_what_it_declares():
    source = "".join(path.read_text() for path in ROOT.rglob("*.pyx"))
    declared = re.findall(r"^    cdef public object (.*)$", (ROOT / "core/seam/upcalls.pxd").read_text(), re.MULTILINE)
    names = {name for line in declared for name in line.split(", ")}
    assert names == set(re.findall(r"(?<!/)\bupcalls\.(\w+)", source))


def test_the_core_refuses_a_function_that_it_does_not_ask_for():
    with pytest.raises(TypeError, match="reshapes"):
        pydispatch._core.connect(reshapes=np.reshape)


def test_a_function_that_nobody_gives_to_the_core_is_named():
    function = pydispatch._core.connected("reshape")
    pydispatch._core.connect(reshape=None)
    try:
        with pytest.raises(RuntimeError, match="reshape"):
            pydispatch._core.check_connected()
    finally:
        pydispatch._core.connect(reshape=function)
    pydispatch._core.check_connected()


@pytest.mark.parametrize("module", _loading.CONNECTED)
def test_each_module_gives_the_core_its_functions(module):
    importlib.import_module(f"pydispatch.{module}")
    for name in _loading.CONNECTED[module]:
        assert pydispatch._core.connected(name).__module__ != "pydispatch._loading"


@pytest.mark.parametrize("package", ["pydispatch", "pydispatch.autograd"])
def test_every_public_name_can_be_asked_for_first(package):
    names = importlib.import_module(package).__all__
    code = f"import {package} as p, importlib\nfor name in {names}: print(name, bool(getattr(p, name)), name in dir(p))"
    assert run(code) == [word for name in names for word in (name, "True", "True")]
    assert run(f"from {package} import *\nprint(*[name for name in {names} if name in globals()])") == list(names)


def test_what_is_documented_is_reachable_from_the_package_alone():
    page = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    paths = re.findall(r"^\.\. auto\w+:: pydispatch\.([\w.]+)", page, re.MULTILINE)
    assert len(paths) > 100
    code = "import pydispatch, operator\nfor path in sys.argv[1:]: operator.attrgetter(path)(pydispatch)"
    subprocess.run([sys.executable, "-c", f"import sys\n{code}", *paths], check=True, timeout=120)


def test_help_fits_on_a_screen_and_names_what_exists():
    lines = pydispatch.__doc__.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines[1:])) <= 80
    entries = [re.sub(r"\(.*?\)", "", re.split(r"  +|(?<=\)) ", line.strip())[0]).split(", ")
               for line in lines if line.startswith("    ")]
    assert len(entries) > 20
    named = {name for names in entries for name in names}
    for name in named:
        operator.attrgetter(name)(pydispatch)
    modules = {name for name in pydispatch.__all__ if isinstance(getattr(pydispatch, name), types.ModuleType)}
    assert modules <= {name.partition(".")[0] for name in named}
    assert "\n".join(f"    {line}".rstrip() for line in lines[2:]) in pydoc.plain(pydoc.render_doc(pydispatch))


def public_modules():
    """Return the package, the modules that its public names lead to, and those of `numpy` and `scipy`."""
    found, waiting = {}, [pydispatch]
    while waiting:
        module = waiting.pop()
        if module.__name__ in found or not module.__name__.startswith("pydispatch"):
            continue
        found[module.__name__] = module
        waiting += [value for name in dir(module) if isinstance(value := getattr(module, name), types.ModuleType)]
    return found


def test_dir_shows_what_is_public_and_nothing_else():
    importlib.import_module("pydispatch.deprecation")       # a submodule that is loaded is an attribute of the package
    modules = public_modules()
    assert {"pydispatch.numpy.linalg", "pydispatch.scipy.stats", "pydispatch.tree", "pydispatch.debug"} <= set(modules)
    # Modules of NumPy's are shown where NumPy has them, and `from pydispatch.numpy import *` leaves them out.
    beside = {"pydispatch.numpy": dir(np), "pydispatch.numpy.lib": np.lib.__all__}
    del modules["pydispatch.exceptions"]      # defines errors and warnings, and nothing else
    for name, module in modules.items():
        shown = dir(module)
        assert set(module.__all__) <= set(shown) <= {*module.__all__, *beside.get(name, ())}, name


def test_public_things_have_one_name():
    names = {}
    for module in public_modules().values():
        if not module.__name__.startswith(("pydispatch.numpy", "pydispatch.scipy", "pydispatch.compat")):
            for name in module.__all__ if module is not pydispatch.exceptions else dir(module):
                value = getattr(module, name)
                if callable(value):
                    names.setdefault(id(value), set()).add(f"{module.__name__}.{name}")
    assert [sorted(found) for found in names.values() if len(found) > 1] == []


def test_public_names_are_documented():
    words = {word for path in (Path(__file__).parent.parent / "docs").glob("*.md")
             for word in re.findall(r"\w+", path.read_text())}
    for name, module in public_modules().items():
        if not name.startswith(("pydispatch.numpy", "pydispatch.scipy")) and module is not pydispatch.exceptions:
            assert set(module.__all__) - words == set(), name


def test_dir_shows_what_is_documented():
    modules = public_modules()
    page = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    paths = re.findall(r"^\.\. (?:auto|py:)\w+:: (pydispatch\.[\w.]+)", page, re.MULTILINE)
    hidden = [path for path in paths if (parent := modules.get(path.rpartition(".")[0]))
              and path.rpartition(".")[2] not in dir(parent)]
    assert hidden == []


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match=r"module 'pydispatch' has no attribute 'nonsense'"):
        pydispatch.nonsense  # noqa: B018
    with pytest.raises(ImportError, match=r"cannot import name 'nonsense' from 'pydispatch\.autograd'"):
        exec("from pydispatch.autograd import nonsense")


def test_a_function_is_the_same_whichever_way_it_is_reached():
    assert autograd.checkpoint is importlib.import_module("pydispatch.autograd.checkpointing").checkpoint
    assert pydispatch.func is importlib.import_module("pydispatch.func")


FIRST_USES = {
    "tape": "t = leaf(); (t * t).sum().backward(); print(t.grad.array[0])",
    "view on the tape": "t = leaf(); u = t * 1.0; u[0] = t[1]; u.sum().backward(); print(t.grad.array[1])",
    "grad": "print(pydispatch.func.grad(lambda x: (x * x).sum())(np.ones(3))[0])",
    "jvp": "print(pydispatch.func.jvp(lambda x: x * x, (np.ones(1),), (np.ones(1),))[1][0])",
    "vmap": "print(pydispatch.func.vmap(lambda x: x * 2.0)(np.ones(3))[0])",
    "functionalize": "print(pydispatch.func.functionalize(lambda x: x * 2.0)(np.ones(3))[0])",
    "custom operator": "print(pydispatch.library.infer_schema(f))",
    "explain": "print(type(ops.np.add.explain(np.ones(3), 1.0)).__name__)",
    "py_impl": "print(callable(ops.np.add.default.py_impl('Meta')))",
    "Function": "print(autograd.Function.__name__)",
    "anomaly": "print(autograd.detect_anomaly.__name__)",
    "gradcheck": "print(pydispatch.testing.gradcheck(lambda t: t * t, leaf(), check_forward_ad=True))",
    "pickle": "print(pickle.loads(pickle.dumps(ops.np.add.out)) is ops.np.add.out)",
    "trace": "print(type(pydispatch.debug.trace()).__name__)",
}
PROLOGUE = """
import pickle, sys, threading, numpy as np, pydispatch
from pydispatch import Tensor, autograd, ops
def f(x: Tensor) -> Tensor: return x
def leaf(): return Tensor(np.ones(3), requires_grad=True)
"""


@pytest.mark.parametrize("use", FIRST_USES)
def test_first_uses_in_many_threads(use):
    alone: list[str] = []
    exec(f"{PROLOGUE}\n{FIRST_USES[use]}", {"print": lambda value: alone.extend(str(value).split())})
    together = f"""{PROLOGUE}
sys.setswitchinterval(1e-5)
start = threading.Barrier(8)
def use():
    start.wait()
    {FIRST_USES[use].replace('print(', 'found.append(')}
found = []
threads = [threading.Thread(target=use) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*found)
"""
    assert run(together) == alone * 8
