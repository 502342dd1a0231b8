"""mypy and pyright know the operators, and see an editable install without settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import not_installed
from tests.packaging.conftest import copy_without_core

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTATIONS = HERE / "expectations.py"


def run(*command, **options):
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=500, **options)


def test_mypy_knows_what_is_expected(tmp_path):
    # Strict mode makes an unnecessary `type: ignore` an error.
    pytest.importorskip("mypy")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-pydispatch.*]\nfollow_imports = silent\n")
    done = run(sys.executable, "-m", "mypy", "--config-file", config, EXPECTATIONS,
               env={**os.environ, "MYPYPATH": str(ROOT)}, cwd=ROOT)
    assert done.stdout.startswith("Success"), done.stdout


def test_pyright_knows_what_is_expected(tmp_path):
    pytest.importorskip("pyright")
    if run(sys.executable, "-m", "pyright", "--version").returncode:
        pytest.skip(not_installed("pyright"))     # whose Node.js is missing
    config = tmp_path / "pyrightconfig.json"
    (tmp_path / "expectations.py").write_text(EXPECTATIONS.read_text())
    config.write_text(json.dumps({"extraPaths": [str(ROOT)], "reportUnnecessaryTypeIgnoreComment": "error",
                                  "reportUnusedExpression": "none", "enableTypeIgnoreComments": True}))
    done = run(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", config)
    found = json.loads(done.stdout)
    assert [(each["range"]["start"]["line"] + 1, each["message"]) for each in found["generalDiagnostics"]] == []
    assert found["summary"]["filesAnalyzed"] == 1


MODULE = '''
import pydispatch.library as library
library.define("mine::scale", "(Tensor x, float by=2.0, *, Tensor? bias=None) -> Tensor")
library.define("mine::parts", "(Tensor[] xs, int[] n, Any other) -> (Tensor, Tensor[], int)")
library.define("mine::scale_", "(Tensor(a!) x) -> Tensor(a!)")
'''
USE = '''
from typing import Any, TYPE_CHECKING, assert_type
import numpy as np
from pydispatch import Tensor, ops
if TYPE_CHECKING:
    from mine import Operators
mine: "Operators" = ops.mine
t = Tensor(np.ones(2))
assert_type(mine.scale(t, 3.0), Tensor)
assert_type(mine.parts([t], 1, None), tuple[Tensor, tuple[Tensor, ...], int])
assert_type(mine.scale_(t), Tensor)
mine.scale(t, "2")  # type: ignore[call-overload]
'''


def test_stubs_for_operators_of_users(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "registers_mine.py").write_text(MODULE)
    (tmp_path / "use.py").write_text(USE)
    done = run(sys.executable, "-m", "pydispatch", "stubs", "--pack", "mine", "--import", "registers_mine",
               cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])})
    assert done.returncode == 0, done.stderr
    assert "mine.pyi: 3 operators" in done.stdout
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-pydispatch.*]\nfollow_imports = silent\n")
    checked = run(sys.executable, "-m", "mypy", "--config-file", config, tmp_path / "use.py",
                  env={**os.environ, "MYPYPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}, cwd=ROOT)
    assert checked.stdout.startswith("Success"), checked.stdout


def test_a_namespace_without_operators_is_refused(tmp_path):
    done = run(sys.executable, "-m", "pydispatch", "stubs", "--pack", "nonsense", "--folder", tmp_path)
    assert done.returncode == 1
    assert "no operator is registered in namespace 'nonsense'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_an_editable_install_is_seen_without_settings(editable, checker, tmp_path):
    (tmp_path / "expectations.py").write_text(EXPECTATIONS.read_text())
    where = ["--pythonpath", editable] if checker == "pyright" else []
    done = run(editable, "-m", checker, *where, "expectations.py", cwd=tmp_path, env={
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"})
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    """Provide the Python of an environment that has an editable install of a copy of the checkout."""
    folder = tmp_path_factory.mktemp("editable")
    copy = copy_without_core(folder / "copy")      # type checkers read its stub
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--quiet", "--editable", copy, "mypy", "pyright")
    assert done.returncode == 0, done.stderr
    return str(python)
