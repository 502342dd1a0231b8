"""Random nonsense for everything that can be called: no crash, no hang, and where NumPy and we compute, one result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="the process that calls has its memory limited")

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(("seconds", "turns"), [
    pytest.param(2, 1, id="briefly"),
    pytest.param(60, 8, id="long", marks=pytest.mark.slow),
])
def test_nonsense_is_refused_or_computed_as_numpy_does(seconds, turns, tmp_path, count):
    notes = tmp_path / "call"
    completed = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.properties.nonsense", str(seconds), str(turns), "17",
         notes], cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=seconds + 90,
        env=os.environ | {"PYTHONHASHSEED": "0"})       # so that the same calls are made each time
    assert completed.returncode == 0, f"{notes.read_text() if notes.exists() else ''}\n{completed.stderr}"
    found = json.loads(completed.stdout.splitlines()[-1])
    count("calls of nonsense", found["counts"]["calls"])
    assert not found["failures"], "\n\n".join(found["failures"].values())
    assert found["counts"]["computed by both"] > found["counts"]["calls"] / 20
