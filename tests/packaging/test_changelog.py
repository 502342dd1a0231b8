"""CHANGELOG.md and SECURITY.md: their form, and that what they name exists."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

import pydispatch
from tests.together import together

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
NAMES = sorted(set(re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)`", CHANGELOG)))
TARGETS = [(page, target) for page in ("CHANGELOG.md", "SECURITY.md")
           for target in re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text())]
FILES = [file for page in ("CHANGELOG.md", "SECURITY.md")
         for file in re.findall(r"`((?:tests|pydispatch)/[^`]+)`", (ROOT / page).read_text())]


def found(name):
    """Return the object of a name relative to the package, or raise AttributeError or ModuleNotFoundError."""
    def step(parent, part):
        return getattr(parent, part) if hasattr(parent, part) else import_module(f"{parent.__name__}.{part}")
    return reduce(step, name.split("."), pydispatch)


def test_versions_are_headings_newest_first():
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    dates = [heading[-10:] for heading in headings[1:]]
    assert dates == sorted(dates, reverse=True)
    assert len(headings) > 1 or f"{pydispatch.__version__} will be the first version" in CHANGELOG


def test_changes_are_of_the_six_kinds():
    kinds = re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert kinds


@pytest.mark.parametrize("name", NAMES)
def test_what_the_changelog_names_exists(name):
    for library, prefix in (("scipy", "scipy."), ("dask", "backends.dask.")):
        if name.startswith(prefix):
            pytest.importorskip(library)
    assert found(name) is not None


@together("page, target", TARGETS)
def test_links_lead_to_files(page, target):
    if not target.startswith("https://"):
        assert (ROOT / target.partition("#")[0]).is_file()


@pytest.mark.parametrize("file", FILES)
def test_files_that_are_named_exist(file):
    assert (ROOT / file).is_file()
