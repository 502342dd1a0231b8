"""`setup.py` changes what Cython writes: its patterns are found there, and its lists name parts that exist."""

import ast
import re
from typing import Any

import pytest

from tests.packaging.conftest import CHECKOUT, Environment

PARTS = {path.stem: path.read_text() for path in CHECKOUT.glob("pydispatch/**/*.pyx")}

PROGRAM = """
import re
import runpy
from pathlib import Path

import Cython.Build
import setuptools

Cython.Build.cythonize = lambda *args, **options: []
setuptools.setup = lambda **options: None
setup = runpy.run_path(SETUP)

from Cython.Compiler.Main import compile

Path("part.pyx").write_text(SOURCE)
assert compile("part.pyx").num_errors == 0
text = Path("part.c").read_text()
with_gcc = setup["CHANGES_FOR_GCC"]
for changes in ((*setup["POSITIONS"], *with_gcc), (*setup["NO_POSITIONS"], *with_gcc), setup["CHANGES_FOR_PORTABLE"]):
    for pattern, _ in changes:
        assert re.search(pattern, text, re.MULTILINE), pattern
    changed = setup["change"](text, changes)
    assert changed != text and changed.endswith(setup["CHANGED"])
    assert setup["change"](text + "x", (*changes, (r"\\Z\\A.", ""))) == text + "x"
"""
SOURCE = """
cdef class Part:
    cdef object value

    def method(self, other):
        try:
            return [self.value + other, other * 2]
        except TypeError as error:
            raise ValueError("a part") from error
"""


def list_of_setup(name: str) -> Any:
    text, = re.findall(rf"^{name} = (\{{.*?\}})$", (CHECKOUT / "setup.py").read_text(), re.MULTILINE | re.DOTALL)
    return ast.literal_eval(text)


def test_the_lists_of_functions_that_run_once_and_often_are_up_to_date() -> None:
    run_once, run_often = list_of_setup("RUN_ONCE"), list_of_setup("RUN_OFTEN")
    assert run_once <= PARTS.keys()
    defined = {name for part in run_once
               for name in re.findall(r"^ *(?:cdef|def)\b[^\n=(]*\b(run_\w+)\(", PARTS[part], re.MULTILINE)}
    assert run_often == defined


@pytest.mark.slow
def test_each_change_of_the_generated_c_matches_what_cython_writes(environment: Environment) -> None:
    requires = re.findall(r'"([^"]+)"', re.findall(r"^requires = (.*)$", (CHECKOUT / "pyproject.toml").read_text(),
                                                   re.MULTILINE)[0])
    environment.pip("install", *requires)
    done = environment.python("-c", f"SETUP, SOURCE = {str(CHECKOUT / 'setup.py')!r}, {SOURCE!r}\n{PROGRAM}")
    assert done.returncode == 0, done.stdout + done.stderr
