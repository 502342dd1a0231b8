"""SciPy and scikit-learn take Tensors by the array API standard."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = [line.split('"')[1] for line in (Path(__file__).parent / "libraries.py").read_text().splitlines()
         if line.startswith('    "') and '": ' in line]


@pytest.fixture(scope="module")
def outcomes():
    ran = subprocess.run([sys.executable, "-m", "tests.numpy.libraries"], cwd=ROOT, capture_output=True, text=True,
                         timeout=300, check=False, env={**os.environ, "SCIPY_ARRAY_API": "1"})
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_a_library_takes_tensors(name, outcomes):
    assert outcomes.pop(name) == ""


def test_each_function_is_tested(outcomes):
    assert not outcomes
