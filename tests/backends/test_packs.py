"""Packs of backends: found by the module of an array's type, loaded when an array of it is first seen. Replacing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ARRAYS = """
class Array:
    shape, dtype = (2,), __import__("numpy").dtype(float)
class Other(Array):
    pass
"""
PACK = """
import pydispatch
from arrays.core import Array
print("loaded")
pydispatch.register_backend("Found", Array, namespace="arrays.functions")
"""


@pytest.fixture
def folder(tmp_path):
    """Provide a folder with a library of arrays and its packs, laid out as if they were installed."""
    (tmp_path / "arrays").mkdir()
    (tmp_path / "arrays" / "__init__.py").write_text("")
    (tmp_path / "arrays" / "core.py").write_text(ARRAYS)
    (tmp_path / "arrays" / "functions.py").write_text("print('functions'); negative = lambda x: x")

    def add(distribution: str, source: str, name: str = "arrays") -> None:
        (tmp_path / f"{distribution}.py").write_text(source)
        info = tmp_path / f"{distribution}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[pydispatch.backends]\n{name} = {distribution}\n")
    return tmp_path, add


def python(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])})


HEAD = "import sys\nfrom pydispatch import ops, Tensor\nfrom arrays.core import Array, Other\nimport numpy as np\n"
FIRST_USES = {
    "operator": ("arrays", "x = Array(); assert ops.np.negative(x) is x"),
    "Tensor": ("arrays.core", "x = Array(); assert ops.np.negative(Tensor(x)).array is x"),
    "subclass": ("arrays", "x = Other(); assert ops.np.negative(x) is x"),
    "beside an array of NumPy's": (
        "arrays", ("try: ops.np.where(np.ones(2, bool), Array(), 1.0)\n"
        "except NotImplementedError as error: assert 'Found' in str(error)\nelse: raise AssertionError")),
}


@pytest.mark.parametrize(("name", "use"), FIRST_USES.values(), ids=list(FIRST_USES))
def test_a_pack_is_loaded_when_an_array_is_first_seen(folder, name, use):
    path, add = folder
    add("pack_of_arrays", PACK, name)
    done = python(path, f"{HEAD}ops.np.negative(np.ones(2)); assert 'pack_of_arrays' not in sys.modules\n{use}")
    assert done.stdout.splitlines() == ["loaded", "functions"], done.stderr


def test_a_namespace_is_imported_when_a_kernel_is_asked_for(folder):
    path, add = folder
    add("pack_of_arrays", PACK)
    done = python(path, f"{HEAD}x = Tensor(Array()); ops.np.negative(np.ones(2)); ops.np.negative(2.0)\n"
                        "assert 'arrays.functions' not in sys.modules\nops.np.negative(x)")
    assert done.stdout.splitlines() == ["loaded", "functions"], done.stderr


def test_other_arrays_and_arguments_load_nothing(folder):
    path, add = folder
    add("pack_of_arrays", PACK, "arr")
    done = python(path, HEAD + ("ops.np.sum(np.ones((2, 2)), axis=[0], dtype=np.dtype('f4'))\n"
                                "ops.np.getitem(np.ones(3), slice(2))\nops.np.add(np.float64(2), 1)\n"
                                "assert 'importlib.metadata' not in sys.modules\n"
                                "from pydispatch import is_array\nassert not is_array(Array())\n"
                                "assert 'pack_of_arrays' not in sys.modules"))
    assert done.returncode == 0, done.stderr


FAILURES = {
    "import error": (PACK + "import no_such_module", ["PackError: arrays of arrays.core.Array", "pack_of_arrays 1.2",
                                                       "No module named 'no_such_module'", "repair or reinstall it"]),
    "error": ("1 / 0", ["ZeroDivisionError: division by zero", "python -c 'import pack_of_arrays'"]),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_pack_that_fails_is_named_each_time(folder, failure):
    path, add = folder
    source, parts = FAILURES[failure]
    add("pack_of_arrays", source)
    program = HEAD + ("for _ in range(2):\n    try: ops.np.negative(Array())\n"
                      "    except Exception as error: print(type(error).__name__ + ': ' + str(error))\n")
    done = python(path, program if failure == "error" else f"{HEAD}ops.np.negative(Array())")
    text = done.stdout + done.stderr
    assert all(part in text for part in parts), text
    assert failure != "error" or text.count("PackError") == 2


@pytest.mark.parametrize(("source", "expected"), [
    ("import no_such_library.core", "backend arrays: needs no_such_library, which is not installed\n"),
    ("1 / 0", "failed to load: ZeroDivisionError: division by zero\nrepair or reinstall it"),
], ids=["library is not installed", "error"])
def test_the_command_line_tells_which_packs_do_not_load(folder, source, expected):
    path, add = folder
    add("pack_of_arrays", source)
    done = python(path, "from pydispatch.cli.main import main\nmain(['backends', 'arrays'])")
    assert expected in done.stderr


def test_two_packs_for_the_same_arrays(folder):
    path, add = folder
    add("one_pack", PACK)
    add("other_pack", PACK)
    done = python(path, f"{HEAD}ops.np.negative(Array())")
    assert "register a backend for them" in done.stderr
    assert "uninstall all but one of them" in done.stderr


# --- the same code again ---------------------------------------------------------------------------------------------

CELL = """
import numpy as np
import pydispatch
class Mine:
    def __init__(self, data): self.data = np.asarray(data); self.shape = self.data.shape; self.dtype = self.data.dtype
class functions:
    def negative(x): return Mine(-x.data)
pydispatch.register_backend("Mine", Mine, namespace=functions)
"""
AGAIN = {
    "cell that runs twice": ("session", CELL, "<cell 1>", CELL, "<cell 1>", [-1.0, -2.0]),
    "edited cell": ("session", CELL, "<cell 1>", CELL.replace("-x.data", "-3 * x.data"), "<cell 2>", [-3.0, -6.0]),
    "reloaded file": ("file", CELL, "/a/file.py", CELL.replace("-x.data", "-3 * x.data"), "/a/file.py", [-3.0, -6.0]),
    "other file": ("file", CELL, "/a/file.py", CELL, "/a/other.py", "RegistrationError"),
    "function": ("file", CELL, "/a/file.py", f"def f():\n{CELL.replace(chr(10), chr(10) + '    ')}\nf()", "/a/file.py",
                 "RegistrationError"),
    "another class": ("session", CELL, "<cell 1>", CELL.replace("Mine:", "Yours:").replace('"Mine", Mine',
                      '"Mine", Yours'), "<cell 1>", "RegistrationError"),
}


REGISTERING = """
import json, warnings
from pydispatch import ops
from pydispatch.exceptions import OverrideWarning

def run(n, kind, first, file, second, other):
    scope = {"__name__": "__main__"} if kind == "session" else {"__name__": "module", "__file__": file}
    first, second = first.replace("Mine\\"", f"Mine{n}\\""), second.replace("Mine\\"", f"Mine{n}\\"")
    exec(compile(first, file, "exec"), scope)
    ops.np.negative(scope["Mine"]([1.0]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(second, other, "exec"), scope)
        except Exception as error:
            return [type(error).__name__, str(error)]
    return [ops.np.negative(scope["Mine"]([1.0, 2.0])).data.tolist(),
            [(warning.category.__name__, warning.filename, str(warning.message)) for warning in caught]]

print(json.dumps([run(n, *row) for n, row in enumerate(json.loads(input()))]))
"""


@pytest.fixture(scope="module")
def again():
    """Provide the output of each row of AGAIN, in one process, as backends last."""
    rows = json.dumps([row[:-1] for row in AGAIN.values()])
    done = subprocess.run([sys.executable, "-c", REGISTERING], input=rows, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert done.returncode == 0, done.stderr
    return dict(zip(AGAIN, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", AGAIN)
def test_registering_again(again, name):
    _, _, file, _, other, expected = AGAIN[name]
    found, told = again[name]
    assert found == expected
    if expected == "RegistrationError":
        assert "is taken" in told
        return
    (category, filename, message), = told
    assert (category, filename) == ("OverrideWarning", other)
    assert f"registered again at {other}:8, replacing the registration at {file}:8" in message
