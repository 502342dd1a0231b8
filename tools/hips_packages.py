"""Run the tests of packages that use HIPS autograd, with it and with ours: `tools/hips_packages.py FOLDER [NAME ...]`.

It installs the packages of `PACKAGES` from PyPI into an environment in the folder, unpacks their sources, and prints
the table of docs/coming-from-hips-autograd.md. In the second copy, `autograd` is replaced in each line that imports it.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
OURS = "pydispatch.compat.autograd"
LINES = (
    (re.compile(r"^( *(?:>>> )?)import autograd((?:\.\w+)*)$", re.MULTILINE),
     rf"\1import {OURS}\2; from pydispatch.compat import autograd"),
    (re.compile(r"^( *(?:>>> )?(?:from|import) +)autograd\b(?=[ .])", re.MULTILINE), rf"\1{OURS}"),
    (re.compile(r"(?<=[\"'])autograd(?=\.(?:numpy|scipy)\b)"), OURS),
)
"""The lines that change: imports, and names of modules that are imported or patched."""


class Package(NamedTuple):
    """A package: the paths of its tests in its sources, what else it needs, and options of pytest."""

    version: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


PACKAGES: dict[str, Package] = {
    "lifelines": Package("0.30.3", ("lifelines/tests",), ("flaky", "dill", "psutil", "statsmodels", "scikit-learn"),
                         ("--ignore=lifelines/tests/test_plotting.py",)),
    "surpyval": Package("0.25", ("surpyval/tests",)),
    "reliability": Package("0.9.0", ("tests",)),
    "mici": Package("0.4.1", ("tests/test_autodiff.py",)),
    "pymanopt": Package("2.2.1", ("tests",), ("nose2", "parameterized")),
    "grcwa": Package("0.1.2", ("tests",)),
}


class Outcome(NamedTuple):
    """The tests that ran and passed, and the seconds of processor time that they took."""

    ran: int
    passed: int
    seconds: float


def run(*command: str | Path, folder: Path, path: str = "") -> None:
    """Run a command in a folder, with `path` for Python's modules."""
    environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL)


def sources_of(name: str, package: Package, folder: Path, python: Path) -> Path:
    """Return the folder of the package's sources, and install what it needs."""
    pip = (python, "-m", "pip", "-q")
    run(*pip, "install", f"{name}=={package.version}", "autograd", "pytest", "setuptools", *package.needs,
        folder=folder)
    run(*pip, "download", "--no-deps", "--no-build-isolation", f"--no-binary={name}", f"{name}=={package.version}",
        folder=folder)
    archive = next(folder.glob(f"{name.replace('-', '?')}-{package.version}.tar.gz"))
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "sources", filter="data")
    return folder / "sources" / archive.name.removesuffix(".tar.gz")


def replace_imports(folder: Path) -> int:
    """Replace HIPS autograd by ours in all files of a folder, and return the number of lines that changed."""
    changed = 0
    for file in folder.rglob("*.py"):
        text = found = file.read_text()
        for pattern, new in LINES:
            text, n = pattern.subn(new, text)
            changed += n
        if text != found:
            file.write_text(text)
    return changed


def outcome(package: Package, folder: Path, python: Path) -> Outcome:
    """Run the tests of the sources in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run(python, "-m", "pytest", "-q", "--junitxml=results.xml", *package.options, *package.tests, folder=folder,
        path=f"{folder}:{folder / 'src'}:{ROOT}")
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    cases = [*ElementTree.parse(folder / "results.xml").iter("testcase")]
    ran = [case for case in cases if case.find("skipped") is None]
    return Outcome(len(ran), sum(case.find("failure") is None and case.find("error") is None for case in ran), seconds)


def row(name: str, folder: Path, python: Path) -> str:
    """Return the row of the table for a package."""
    package = PACKAGES[name]
    sources = sources_of(name, package, folder, python)
    found = []
    changed = 0
    for which in ("hips", "ours"):
        copy = folder / which / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sources, copy)
        changed = replace_imports(copy) if which == "ours" else 0
        found.append(outcome(package, copy, python))
    theirs, ours = found
    return (f"| {name} {package.version} | {theirs.ran} | {theirs.passed} | {ours.passed} | "
            f"{ours.seconds / theirs.seconds:.2f} | {changed} |")


def main(arguments: list[str]) -> None:
    """Print the table."""
    folder = Path(arguments[0]).resolve()
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    print("| package | tests | pass with HIPS autograd | pass here | time | lines changed |\n|---|---|---|---|---|---|")
    for name in arguments[1:] or PACKAGES:
        print(row(name, folder, python), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
