"""The recipe for conda-forge agrees with pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

import pydispatch

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


@pytest.fixture(scope="module")
def recipe():
    return pytest.importorskip("yaml").safe_load((ROOT / "recipe/recipe.yaml").read_text())


def requirements(entries):
    """Return the requirements without compilers and interpreters, written as pyproject.toml writes them."""
    return sorted(entry.replace(" ", "") for entry in entries if entry not in ("python", "pip"))


def test_name_and_version_are_those_of_the_package(recipe):
    assert recipe["context"]["version"] == pydispatch.__version__
    assert recipe["package"] == {"name": PROJECT["name"], "version": "${{ version }}"}
    sdist = f"/{PROJECT['name']}/{PROJECT['name'].replace('-', '_')}-${{{{ version }}}}.tar.gz"
    assert recipe["source"]["url"].endswith(sdist)
    assert re.fullmatch("[0-9a-f]{64}", recipe["source"]["sha256"])


def test_dependencies_are_those_of_the_project(recipe):
    needed = recipe["requirements"]
    assert requirements(needed["host"]) == sorted(PYPROJECT["build-system"]["requires"])
    assert requirements(needed["run"]) == sorted(PROJECT["dependencies"])
    cross, *_ = needed["build"]
    assert set(requirements(cross["then"])) - set(requirements(needed["host"])) == {"cross-python_${{target_platform}}"}
    assert f'match(python, "{PROJECT["requires-python"].replace(">=", "<")}")' in recipe["build"]["skip"]


def test_it_describes_the_project_in_the_same_words(recipe):
    about = recipe["about"]
    assert about["homepage"] == PROJECT["urls"]["Source"]
    assert about["summary"] == PROJECT["description"]
    assert about["license"] == PROJECT["license"]
    assert [about["license_file"]] == PROJECT["license-files"]


def test_its_imports_exist(recipe):
    imports = recipe["tests"][0]["python"]["imports"]
    assert [__import__(name, fromlist=["_"]).__name__ for name in imports] == imports
