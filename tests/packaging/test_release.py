"""The workflow that releases names what the project has."""

import re
import tomllib
from pathlib import Path

import pytest

import pydispatch

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / ".github/workflows/release.yml").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_it_reads_the_version_where_the_version_is():
    pattern, = re.findall(r"sed -n 's/(\^__version__ .*)\$/", WORKFLOW)
    pattern = pattern.replace(r"\(", "(").replace(r"\)", ")")
    text = (ROOT / "pydispatch/__init__.py").read_text()
    assert re.findall(pattern, text, re.MULTILINE) == [pydispatch.__version__]


def test_it_builds_for_each_python_that_the_project_names():
    named = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert built == [f"cp{version.replace('.', '')}-*" for version in named]


def test_it_publishes_only_after_all_else():
    jobs = set(re.findall(r"^  (\w+):$", WORKFLOW.partition("\njobs:\n")[2], re.MULTILINE))
    needed, = re.findall(r"needs: \[(.*)\]", WORKFLOW)
    assert {*needed.split(", "), "publish"} == jobs


def test_it_is_well_formed():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(WORKFLOW)["jobs"]
    assert all(job["steps"] for job in jobs.values())
    assert jobs["publish"]["permissions"] == {"attestations": "write", "id-token": "write"}
