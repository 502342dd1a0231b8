"""The contents of the sdist and of the wheel built from it. The wheel works without a checkout."""

import tarfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

from pydispatch import __version__

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).parents[2] / "pydispatch"
CORE_SOURCES, TYPES = [
    {path.relative_to(PACKAGE.parent).as_posix() for pattern in patterns for path in PACKAGE.glob(pattern)}
    for patterns in (("**/*.pyx", "**/*.pxd", "**/*.h"), ("**/*.pyi", "py.typed"))
]
TOP_LEVEL = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "SECURITY.md", "MANIFEST.in", "conftest.py",
             "pyproject.toml", "setup.py"}


GENERATED_FOLDERS = ("docs/_build/", "docs/generated/")     # by Sphinx: examples of the pages as scripts


def python_files(folder: Path) -> set[str]:
    """Return the Python files below a folder of the checkout that nobody generated, relative to the checkout."""
    names = {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*.py")}
    return {name for name in names if not name.startswith(GENERATED_FOLDERS)}


@pytest.fixture(scope="module")
def sdist_names(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        files = [PurePosixPath(member.name) for member in archive if member.isfile()]
    return {PurePosixPath(*path.parts[1:]).as_posix() for path in files}


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_sdist_holds_every_source(sdist_names: set[str], pytestconfig: pytest.Config) -> None:
    checkout = pytestconfig.rootpath
    folders = ("pydispatch", "tests", "benchmarks", "docs", "examples", "tools")
    wanted = CORE_SOURCES | TYPES | TOP_LEVEL | {".ci/run", "docs/index.md"}
    wanted |= {name for folder in folders for name in python_files(checkout / folder)}
    assert wanted <= sdist_names


def test_sdist_holds_nothing_generated(sdist_names: set[str]) -> None:
    generated = {".c", ".cpp", ".html", ".so", ".pyc"}
    assert not {name for name in sdist_names if PurePosixPath(name).suffix in generated}
    assert not {name for name in sdist_names if name.startswith(("build/", *GENERATED_FOLDERS))}


def test_wheel_holds_the_package_and_nothing_else(wheel_names: set[str], pytestconfig: pytest.Config) -> None:
    package = {name for name in wheel_names if not name.startswith(f"pydispatch_numpy-{__version__}.dist-info/")}
    extensions = {name for name in package if name.endswith(".so")}
    assert len(extensions) == 1
    assert next(iter(extensions)).startswith("pydispatch/_core.")
    sources = python_files(pytestconfig.rootpath / "pydispatch") | TYPES
    assert package - extensions == sources | {"pydispatch/c_api.pxd"}


def test_metadata(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(f"pydispatch_numpy-{__version__}.dist-info/METADATA"))
    assert metadata["Name"] == "pydispatch-numpy"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "BSD-3-Clause"
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert needed == ["numpy>=2"]


def test_wheel_works_with_numpy_alone(environment, wheel: Path) -> None:
    environment.pip("install", wheel)
    completed = environment.python("-W", "error", "-m", "pydispatch", "demo")
    assert completed.returncode == 0, completed.stderr
    completed = environment.python("-c", "import pydispatch._core; print(pydispatch._core.__file__)")
    assert str(environment.interpreter.parents[1]) in completed.stdout

