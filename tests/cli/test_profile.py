"""`python -m pydispatch profile SCRIPT`."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

SCRIPT = """
import sys
import numpy as np
from helper import HALF
from pydispatch import Tensor, ops
x = Tensor(np.ones(3), requires_grad=True)
ops.np.sum(ops.np.sin(x) * HALF).backward()
print(__name__, sys.argv[1:], sys.argv[0].endswith("program.py"))
if sys.argv[1:] == ["fail"]:
    raise ValueError("the script's own")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "program.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("HALF = 0.5")

    def run(*words):
        return subprocess.run([sys.executable, "-m", "pydispatch", "profile", *words], capture_output=True, text=True,
                              encoding="utf-8", check=False)
    return run


def test_it_runs_the_script_and_prints_the_table(run, tmp_path):
    trace, flames = tmp_path / "trace.json", tmp_path / "flames.svg"
    done = run("--sort", "calls", "--by", "line", "--trace", str(trace), "--flamegraph", str(flames),
               str(tmp_path / "program.py"), "3", "--sort")
    assert done.returncode == 3
    assert "__main__ ['3', '--sort'] True" in done.stdout
    for name, line in [("np::sin", 7), ("np::sum", 7), ("SinBackward", 7)]:
        assert re.search(rf"^{name} +\S*program\.py:{line} +1 ", done.stdout, re.MULTILINE)
    assert {event["name"] for event in json.loads(trace.read_text())["traceEvents"]} >= {"np::sin", "SinBackward"}
    assert ET.parse(flames).getroot().tag.endswith("svg")


def test_the_table_is_printed_when_the_script_fails(run, tmp_path):
    done = run(str(tmp_path / "program.py"), "fail")
    assert done.returncode == 1
    assert "ValueError: the script's own" in done.stderr
    assert "np::sin" in done.stdout


@pytest.mark.parametrize(("words", "status", "message"), [
    (["missing.py"], 1, "'missing.py' is not a file\nwrite the path of a Python program"),
    (["--sort", "speed", "program.py"], 2, "invalid choice: 'speed'"),
    ([], 2, "the following arguments are required: SCRIPT"),
], ids=["no such file", "sort", "no script"])
def test_mistakes_are_told(run, words, status, message):
    done = run(*words)
    assert done.returncode == status
    assert message in done.stderr
