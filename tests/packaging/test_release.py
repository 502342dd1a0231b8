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


@pytest.fixture(scope="module")
def jobs():
    return pytest.importorskip("yaml").safe_load(WORKFLOW)["jobs"]


def test_it_tries_each_python_that_it_builds_for(jobs):
    tried = {job: jobs[job]["strategy"]["matrix"] for job in ("wheels", "install")}
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert [f"cp{version.replace('.', '')}-*" for version in tried["install"]["python"]] == built
    assert tried["install"]["os"] == tried["wheels"]["os"]


def test_it_publishes_only_after_all_else(jobs):
    assert {*jobs["publish"]["needs"], "publish"} == jobs.keys()
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"


def test_it_uploads_to_testpypi_what_it_publishes(jobs):
    first, last = jobs["testpypi"]["steps"], jobs["publish"]["steps"]
    assert first[0] == last[0]
    assert "test.pypi.org" in first[1]["with"]["repository-url"]


def test_each_job_has_the_permissions_that_it_needs(jobs):
    assert all(job["steps"] for job in jobs.values())
    permissions = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    assert permissions == {"testpypi": {"id-token": "write"},
                           "publish": {"attestations": "write", "contents": "write", "id-token": "write"}}
