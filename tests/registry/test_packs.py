"""Packs: found by entry points, loaded at the first use of their namespace. Errors name the pack."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from pydispatch.packs import Pack
pack = Pack("found")
twice, = pack.operators("twice")
pack.pointwise("twice", lambda x: x * 2, "Tensor x", vjp=lambda g: twice(g))
pack.install()
print("loaded")
"""


@pytest.fixture
def folder(tmp_path):
    """Provide a folder where packs lie as if they were installed."""
    def add(distribution: str, module: str, source: str, namespace: str = "found") -> Path:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{distribution}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[pydispatch.packs]\n{namespace} = {module}\n")
        return tmp_path
    return add


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])})


PLANNED = """
import numpy as np
from pydispatch import compile, ops
from pydispatch.packs import Pack
pack = Pack("planned")
centred_by_operators = lambda x, *, scale=1.0: (x - ops.np.sum(x) / 4.0) * scale
pack.declare("centred", "Tensor x, *, float scale=1.0", lambda x, scale=1.0: (x - x.sum() / 4.0) * scale,
             lambda x, scale=1.0: x, planned_as=centred_by_operators)
pack.install()
x = np.array([1.0, 2.0, 3.0, np.inf])

def function(x):
    return ops.planned.centred(x * 2.0, scale=0.5)      # the line of all of its steps

compiled = compile(function)
assert ", 0 calls of Python," in compiled.explain(x), compiled.explain(x)
assert "call planned::centred" not in compiled.plan(x)
assert np.array_equal(compiled(np.arange(4.0)), function(np.arange(4.0)))
with np.errstate(invalid="raise"):
    try:
        compiled(x)
    except FloatingPointError as error:
        print(error)
"""


def test_an_operator_says_what_it_is_in_a_plan(tmp_path):
    script = tmp_path / "planned.py"
    script.write_text(PLANNED)
    done = python(tmp_path, str(script))
    line = 1 + PLANNED[:PLANNED.index("    return ops.planned")].count("\n")
    site = re.fullmatch(r"invalid value encountered in subtract \(at (?:\.{3})?(.*)\)\n", done.stdout)
    assert site is not None, done.stderr
    assert f"{script}:{line}".endswith(site[1])        # NumPy keeps a hundred characters
    assert "planned.py" in site[1]


USES = {
    "call": "print(ops.found.twice(np.ones(2)).tolist())",
    "overload": "print(ops.found.twice.default(np.ones(2)).tolist())",
    "gradient": "print(func.grad(lambda x: ops.found.twice(x).sum())(np.ones(2)).tolist())",
    "kernel registered before": "library.impl('found::twice', 'CPU', lambda x: x * 2, allow_override=True); "
                                "print(ops.found.twice(np.ones(2)).tolist())",
    "from two threads": "import threading; found = []; "
                        "each = lambda: found.append(ops.found.twice(np.ones(2)).tolist()); "
                        "threads = [threading.Thread(target=each) for _ in range(2)]; "
                        "[thread.start() for thread in threads]; [thread.join() for thread in threads]; "
                        "assert found[0] == found[1]; print(found[0])",
}


def test_pack_that_looks_for_an_operator_of_its_own(folder):
    asks = "from pydispatch import ops\nassert not hasattr(ops.found, 'twice')\n"
    done = python(folder("good-pack", "good_pack", asks + GOOD), "-c", f"import good_pack, numpy as np\n{asks[:27]}\n"
                  "print(ops.found.twice(np.ones(2)).tolist())")
    assert done.stdout.splitlines() == ["loaded", "[2.0, 2.0]"], done.stderr


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_first_use_loads_the_pack_once(folder, use):
    where = folder("good-pack", "good_pack", GOOD)
    start = "import numpy as np; from pydispatch import func, library, ops; print('found' in dir(ops)); "
    done = python(where, "-c", start + use)
    assert done.stdout.splitlines() == ["True", "loaded", "[2.0, 2.0]"], done.stderr


def test_command_line_lists_operators_of_packs(folder):
    done = python(folder("good-pack", "good_pack", GOOD), "-m", "pydispatch", "ops", "found")
    assert "found::twice" in done.stdout


def test_other_namespaces_load_no_pack(folder):
    where = folder("good-pack", "good_pack", GOOD)
    done = python(where, "-c", "import numpy as np; from pydispatch import ops; ops.np.sin(np.ones(2)); "
                               "print(hasattr(ops.other, 'twice'))")
    assert done.stdout.splitlines() == ["False"], done.stderr


BAD = {
    "import error": ("import package_that_is_not_there",
                     "failed to load: ModuleNotFoundError: No module named 'package_that_is_not_there'"),
    "another namespace": (GOOD.replace('"found"', '"elsewhere"').replace("print", "str"),
                          "ops.found: the pack bad-pack 1.2 (bad_pack) declares no operator of this namespace"),
    "schema": (GOOD.replace('"Tensor x"', '"Tensor"'),
               "ops.found: the pack bad-pack 1.2 (bad_pack) failed to load: SchemaError: "),
    "kernel": (GOOD.replace("lambda x: x * 2", "None"),
               "failed to load: RegistrationError: operator found::twice: kernel is a NoneType, expected a function"),
    "formula": (GOOD.replace("lambda g: twice(g)", "(2.0,)"),
                "operator found::twice: a formula of vjp is a float, expected a function or None"),
    "formulas": (GOOD.replace("lambda g: twice(g)", "(None, None)"),
                 "operator found::twice: vjp has 2 formulas, but the schema has 1 arrays among its arguments"),
    "part of a declaration": (GOOD.replace("vjp=", "gradient="),
                              "operator found::twice: unknown parameter `gradient`, expected some of "),
}


@pytest.mark.parametrize(("source", "message"), [
    pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name in ("formula", "formulas", "part of a declaration")))
    for name, case in BAD.items()])
def test_pack_that_fails_to_load(folder, source, message):
    where = folder("bad-pack", "bad_pack", source)
    program = """
from pydispatch import ops
from pydispatch.exceptions import PackError
for _ in range(2):      # the second look-up tries again
    try:
        ops.found.twice
    except PackError as error:
        print(error)
"""
    done = python(where, "-c", program)
    assert done.stdout.count(message) == 2, done.stdout + done.stderr


def test_command_line_lists_the_others_if_a_pack_fails_to_load(folder):
    source, message = next(iter(BAD.values()))
    done = python(folder("bad-pack", "bad_pack", source), "-m", "pydispatch", "ops", "np.sin")
    assert message in done.stderr
    assert "np::sin" in done.stdout


def test_two_packs_of_one_namespace(folder):
    folder("one-pack", "one_pack", GOOD)
    done = python(folder("other-pack", "other_pack", GOOD), "-c", "from pydispatch import ops; ops.found.twice")
    assert "one-pack 1.2 (one_pack)" in done.stderr
    assert "other-pack 1.2 (other_pack)" in done.stderr
    assert "uninstall all but one of them" in done.stderr


def test_modules_share_no_namespace():
    program = "from pydispatch.packs import Pack; Pack('np')"
    done = python(Path(), "-c", program)
    assert "Pack: namespace 'np' already belongs to pydispatch.operators" in done.stderr


def test_families_are_loaded_when_one_of_their_operators_is_asked_for(folder):
    of_families = "from pydispatch.packs import Pack\npack = Pack('found', {'twice': 'of_twice'})\npack.install()\n"
    family = ("from good_pack import pack\npack.pointwise('twice', lambda x: x * 2, 'Tensor x')\n"
              "pack.install('twice')\nprint('family')\n")
    place = folder("good-pack", "good_pack", of_families)
    (place / "of_twice.py").write_text(family)
    done = python(place, "-c", "import numpy as np\nfrom pydispatch import ops\nops.found\nprint('found')\n"
                               "print(ops.found.twice(np.ones(2)).tolist())")
    assert done.stdout.splitlines() == ["found", "family", "[2.0, 2.0]"], done.stderr
    listed = python(place, "-m", "pydispatch", "ops", "found")
    assert "found::twice" in listed.stdout, listed.stderr


SCIPY_IS_MISSING = "import sys\nsys.modules['scipy'] = None\nimport pydispatch\n"


@pytest.mark.parametrize(("use", "error"), [
    ("pydispatch.ops.scipy.special_gammaln", "PackError: ops.scipy: the pack pydispatch-numpy"),
    ("import pydispatch.scipy", "ImportError: pydispatch.scipy needs SciPy, which is not installed"),
])
def test_the_pack_of_scipy_tells_what_it_needs(use, error):
    done = subprocess.run([sys.executable, "-c", SCIPY_IS_MISSING + use], capture_output=True, text=True, check=False)
    assert error in done.stderr
    assert 'pip install "pydispatch-numpy[scipy]"' in done.stderr
