"""`.ci/run` leaves no test out: one that the extra `test` is not enough for runs with the other tools."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / ".ci" / "run"
SCRIPT = RUN.read_text(encoding="utf-8")
EXTRA_TEST = {"scipy", "einops", "opt_einsum", "autoray", "array_api_strict", "cloudpickle", "matplotlib", "sklearn"}
"""Libraries that the environment of the default tests has."""


def runs_with_tools() -> list[tuple[set[str], list[str]]]:
    """Return what each run of tests with all tools requires, and the files and folders that it is given."""
    lines = re.findall(r"^.*python -m pytest (.*)$", SCRIPT.replace("\\\n", " "), re.MULTILINE)
    expanded = [subprocess.check_output(["bash", "-c", f"browser= on_both_cores=; echo {line}"], text=True, cwd=ROOT)
                for line in lines if "--require" in line]
    found = []
    for words in map(shlex.split, expanded):
        names, = [word.partition("=")[2] for word in words if word.startswith("--require=")]
        found.append((set(names.split(",")), [word for word in words if (ROOT / word.partition("::")[0]).exists()]))
    return found


RUNS = runs_with_tools()
REQUIRED = set().union(*[names for names, _ in RUNS])


def optional(path: Path) -> set[str]:
    """Return the libraries without which a file, or a test in it, is skipped."""
    text = path.read_text(encoding="utf-8")
    return {name.partition(".")[0] for name in re.findall(r'importorskip\(\s*"([\w.]+)"', text)}


def test_tests_that_need_a_library_run_where_it_is():
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for library in (optional(path) & REQUIRED) - EXTRA_TEST:
            assert any(library in names and name.startswith(word.partition("::")[0])
                       for names, words in RUNS for word in words), f".ci/run never runs {name} with {library}"


def test_what_the_tests_need_is_known():
    needed = set().union(*map(optional, ROOT.glob("tests/**/test_*.py")))
    assert needed - REQUIRED - EXTRA_TEST == {
        "_testcapi", "json", "jax", "pandas", "pydispatch", "resource", "torch", "xarray"}


@pytest.mark.parametrize("what", ["pydispatch demo", "pytest"])
def test_the_readme_has_each_command_once(what):
    assert f'readme "{what}"' in SCRIPT or f"readme {what}" in SCRIPT
    assert len(re.findall(rf"^python3 -m venv .* -m {what}$", (ROOT / "README.md").read_text(), re.MULTILINE)) == 1


def test_an_unknown_tier_is_refused():
    done = subprocess.run(["bash", RUN, "fast"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "usage: .ci/run [quick]\n")
