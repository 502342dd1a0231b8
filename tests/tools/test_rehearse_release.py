"""`python tools/rehearse_release.py` runs the commands of the release workflow, and knows everything that is in it."""

import platform
import re
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("yaml")
from tools import rehearse_release

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "tools" / "rehearse_release.py").read_text(encoding="utf-8")
OWN = rehearse_release.RUNNERS.get(f"{platform.system()} {platform.machine()}")
WORKFLOW = """
jobs:
  first:
    strategy:
      matrix:
        os: [OWN, another]
        number: ["3", "4"]
    steps:
      - uses: actions/setup-python@v1
      - run: |
          echo ${{ matrix.number }} > number-${{ matrix.number }}.txt
          echo wrote ${{ matrix.number }}
      - uses: actions/upload-artifact@v1
        with:
          name: made-${{ matrix.number }}
          path: "*.txt"
  second:
    steps:
      - uses: actions/download-artifact@v1
        with:
          path: here
          pattern: "[m]*"
          merge-multiple: true
      - run: cat here/*.txt | tr -d '\\n'
      - if: github.ref_type == 'tag'
        run: exit 1
      - uses: pypa/gh-action-pypi-publish@v1
  third:
    if: github.ref_type == 'tag'
    steps:
      - run: exit 1
"""


def steps():
    return [step for job in rehearse_release.jobs().values() for step in job["steps"]]


def test_each_action_of_the_workflow_is_done_or_left_out():
    used = {step["uses"].partition("@")[0] for step in steps() if "uses" in step}
    assert used == {*rehearse_release.ACTIONS, *rehearse_release.LEFT_OUT}


def test_each_expression_of_a_command_is_of_the_matrix():
    commands = [step["run"] for step in steps() if "run" in step]
    assert commands
    for job in rehearse_release.jobs().values():
        values = dict.fromkeys(job.get("strategy", {}).get("matrix", {}), "x")
        for step in job["steps"]:
            assert "${{" not in rehearse_release.filled(step.get("run", ""), values)


def test_each_setting_of_cibuildwheel_is_used():
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    read = set(re.findall(r"""given(?:\.get\()?[\["']+([\w-]+)""", SCRIPT))
    assert {*given, *given["linux"]} - {"linux", "skip"} <= read
    assert rehearse_release.settings(ROOT).keys() <= rehearse_release.SETTINGS


def test_an_unknown_setting_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.cibuildwheel]\nbuild = "cp311-*"\ntest-groups = ["x"]\n')
    with pytest.raises(SystemExit, match=r"does not know these settings of cibuildwheel: {'test-groups'}"):
        rehearse_release.settings(tmp_path)


@pytest.fixture
def rehearsal(tmp_path, monkeypatch):
    workflow = tmp_path / "release.yml"
    workflow.write_text(WORKFLOW.replace("OWN", str(OWN)))
    monkeypatch.setattr(rehearse_release, "WORKFLOW", workflow)
    return rehearse_release.Rehearsal(tmp_path / "artifacts", {"python3": Path(sys.executable)})


@pytest.mark.skipif(OWN is None, reason="the workflow runs on Linux and macOS")
def test_jobs_run_for_this_system_and_pass_artifacts_on(rehearsal, tmp_path):
    for name, job in rehearse_release.jobs().items():
        rehearse_release.run_job(rehearsal, name, job, tmp_path)
    assert [(job, result) for job, _, result, _ in rehearsal.rows] == [
        (f"first {OWN} 3", "wrote 3"), (f"first {OWN} 4", "wrote 4"),
        ("second", "34"), ("second", "left out"), ("second", "left out"), ("third", "left out")]


def test_a_command_that_fails_ends_the_rehearsal_with_its_output(tmp_path):
    with pytest.raises(SystemExit, match=r"why\n\nfailed with 3: echo why; exit 3"):
        rehearse_release.run("echo why; exit 3", tmp_path)
