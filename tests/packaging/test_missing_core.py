"""Without its compiled core, the package says what is missing and what to do."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import pydispatch
from pydispatch import missing_core

OTHERS = "_core.cpython-310-any.so"


@pytest.mark.parametrize(("others", "found"), [((), "found none"), ((OTHERS,), f"found {OTHERS}, built for another")],
                         ids=["none", "of another Python"])
def test_doctor_without_a_core_says_what_to_do(tmp_path, others, found):
    folder = tmp_path / "pydispatch"
    shutil.copytree(Path(pydispatch.__file__).parent, folder, ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.pyx"))
    for name in others:
        (folder / name).touch()
    done = subprocess.run([sys.executable, "-m", "pydispatch", "doctor"], cwd=tmp_path, capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode != 0
    last = done.stderr[done.stderr.rindex("ImportError"):]
    assert f"the compiled core is missing in {folder}: {found}" in last
    assert f"expected _core{EXTENSION_SUFFIXES[0]}" in last
    assert "pip install --force-reinstall pydispatch-numpy" in last
    assert "circular" not in done.stderr


def test_a_core_that_is_there_and_fails_tells_its_own_error(tmp_path):
    (tmp_path / f"_core{EXTENSION_SUFFIXES[0]}").touch()
    assert missing_core.reason(tmp_path) is None
