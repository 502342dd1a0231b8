"""The files about the project agree with each other: pyproject.toml, workflows, templates, citation."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
YAML = [*WORKFLOWS, *sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ROOT / ".readthedocs.yaml",
        ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]


def group(name: str) -> set[str]:
    """Return the requirements of a dependency group, with those of the groups that it includes."""
    found: set[str] = set()
    for entry in PYPROJECT["dependency-groups"][name]:
        found |= {entry} if isinstance(entry, str) else group(entry["include-group"])
    return found


def expanded(requirements: set[str]) -> set[str]:
    """Return the requirements, with those of the extras of this project that they name."""
    own = re.compile(r"pydispatch-numpy\[(.*)\]")
    found = {each for each in requirements if not own.fullmatch(each)}
    for extras in [match[1].split(",") for each in requirements if (match := own.fullmatch(each))]:
        for extra in extras:
            found |= expanded(set(PYPROJECT["project"]["optional-dependencies"][extra]))
    return found


def test_the_extra_dev_is_the_dependency_group_dev():
    assert expanded({"pydispatch-numpy[dev]"}) == expanded(group("dev"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned(path):
    uses = re.findall(r"uses: ([\w.-]+/[\w.-]+)@(.*)$", path.read_text(), re.MULTILINE)
    assert uses
    for action, pin in uses:
        assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+(, .*)?|v\d+\.\d+\.\d+ +# an exact version, .*", pin), action


def test_pull_requests_are_tested_with_each_python_that_the_project_names():
    named = [line.rpartition(" ")[2] for line in PYPROJECT["project"]["classifiers"] if "Python :: 3." in line]
    tested, = re.findall(r"python: \[(.*)\]", (ROOT / ".github/workflows/checks.yml").read_text())
    assert [version.strip('"') for version in tested.split(", ")] == named


def test_every_link_leads_to_the_same_repository():
    source = PYPROJECT["project"]["urls"]["Source"]
    texts = {path: path.read_text() for path in (
        ROOT / "pyproject.toml", ROOT / "CITATION.cff", ROOT / ".github/ISSUE_TEMPLATE/config.yml")}
    for path, text in texts.items():
        links = re.findall(r"https://github\.com/\S+?(?=[\s\"])", text)
        assert links, path
        assert all(link == source or link.startswith(f"{source}/") for link in links), path
    assert (ROOT / ".github/CODEOWNERS").read_text().split()[-1] == "@" + source.split("/")[3]


def test_the_release_checks_the_links():
    line = f'Source = "{PYPROJECT["project"]["urls"]["Source"]}"'
    assert line in (ROOT / "pyproject.toml").read_text().splitlines()
    assert 'grep -qx "Source = \\"$GITHUB_SERVER_URL/$GITHUB_REPOSITORY\\"" pyproject.toml' in (
        ROOT / ".github/workflows/release.yml").read_text()


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_is_well_formed(path):
    yaml = pytest.importorskip("yaml")
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_hooks_name_files_that_exist():
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    files = [word for entry in re.findall(r"entry: (.*)", text) for word in shlex.split(entry) if "/" in word]
    assert files
    assert all((ROOT / name).is_file() for name in files)


def test_the_citation_is_of_this_project():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"license: {PYPROJECT['project']['license']}\n" in text
    assert f"  - name: {PYPROJECT['project']['authors'][0]['name']}\n" in text
