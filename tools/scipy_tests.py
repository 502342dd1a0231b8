"""Run SciPy's own tests on SciPy and on `pydispatch.scipy`: `tools/scipy_tests.py FOLDER [SUBPACKAGE ...]`.

It runs the tests that the installed SciPy ships, those that fail once more on SciPy itself, and prints a table. In the
first run, this module is a plugin of pytest: public modules of SciPy that a test module imports are faces, whose names
are those of `pydispatch.scipy`. The folder receives the output of the runs, and for each subpackage a list of the tests
that pass with SciPy only.
"""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
SUBPACKAGES = ("linalg", "special", "stats", "signal", "interpolate", "optimize", "integrate", "fft", "ndimage",
               "sparse", "sparse.linalg", "spatial", "cluster")
NESTED = {"sparse": ("linalg", "csgraph")}
"""Folders of tests that belong to other subpackages."""

# --- the plugin ------------------------------------------------------------------------------------------------------

FACES: dict[str, ModuleType] = {}


class Face(ModuleType):
    """A public module of SciPy, with the names of `pydispatch.scipy` where it has them."""

    def __init__(self, original: ModuleType) -> None:
        super().__init__(original.__name__, original.__doc__)
        self.__dict__.update({name: value for name, value in vars(original).items()
                              if name.startswith("__") and name not in ("__getattr__", "__dir__")})
        self.__dict__["__original__"] = original
        try:
            self.__dict__["__ours__"] = import_module(f"pydispatch.{original.__name__}")
        except ModuleNotFoundError:
            self.__dict__["__ours__"] = None

    def __getattr__(self, name: str) -> Any:
        original = getattr(self.__original__, name)
        if isinstance(original, ModuleType):
            return face_of(original)
        if self.__ours__ is None or name not in self.__ours__.__all__:
            return original
        ours = getattr(self.__ours__, name)
        declare_capabilities(original, ours)
        return ours

    def __dir__(self) -> list[str]:
        return dir(self.__original__)


def face_of(module: ModuleType) -> ModuleType:
    """Return the face of a public module of SciPy. Other modules are unchanged."""
    name = module.__name__
    if name.partition(".")[0] != "scipy" or "._" in name or ".tests" in name:
        return module
    if name not in FACES:
        FACES[name] = Face(module)
    return FACES[name]


def declare_capabilities(original: Any, ours: Any) -> None:
    """Add a function to the table of what SciPy's functions can do, which its tests read."""
    from scipy._lib._array_api import xp_capabilities_table as table
    try:
        if original in table:
            table[ours] = table[original]
    except TypeError:       # objects without hash
        return
    if isinstance(original, type):
        for name, value in vars(original).items():
            if isinstance(value, (FunctionType, classmethod, staticmethod)):
                declare_capabilities(getattr(original, name), getattr(ours, name))


def import_for_tests(
    name: str, variables: Any = None, local: Any = None, fromlist: Any = (), level: int = 0, original: Any = __import__,
) -> Any:
    """Import a module, as `__import__` does. SciPy's test modules get faces."""
    found = original(name, variables, local, fromlist, level)
    importer = (variables or {}).get("__name__", "")
    return face_of(found) if importer.startswith("scipy.") and ".tests." in importer else found


def pytest_configure() -> None:
    """Install the loader."""
    builtins.__import__ = import_for_tests


# --- the comparison --------------------------------------------------------------------------------------------------


def run(subpackage: str, folder: Path, which: str, *options: str) -> dict[str, str]:
    """Run the tests of a subpackage. Return, for each that ran, "" or the message of its failure."""
    scipys = Path(import_module("scipy").__path__[0])
    tests = scipys / subpackage.replace(".", "/")
    results = folder / f"{subpackage}.{which}.xml"
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\nfilterwarnings = ignore::pytest.PytestRemovedIn10Warning\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}", "OPENBLAS_NUM_THREADS": "1"}
    with open(results.with_suffix(".txt"), "wb") as out:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:xdist", "-m", "not slow",
             "--continue-on-collection-errors", "-c", settings, f"--rootdir={folder}", f"--confcutdir={scipys}",
             "-o", f"cache_dir={folder / subpackage}", f"--junitxml={results}", *options,
             *[f"--ignore={tests / name}" for name in NESTED.get(subpackage, ())], tests],
            cwd=folder, env=environment, stdout=out, stderr=out, check=False)
    return outcomes(results)


def outcomes(file: Path) -> dict[str, str]:
    """Return, for each test of a file of results that ran, "" or the message of its failure."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("skipped") is None:
            failure = next((each for each in map(case.find, ("failure", "error")) if each is not None), None)
            message = "" if failure is None else failure.get("message", "") or "failed"
            key = f"{case.get('classname')}.{case.get('name')}"
            found[key] = found.get(key, "") or message
    return found


def row(subpackage: str, folder: Path) -> str:
    """Return the row of the table for a subpackage, and write the list of the tests that only pass with SciPy."""
    ours = run(subpackage, folder, "ours", "-p", "scipy_tests")
    failed = {name: message for name, message in ours.items() if message}
    theirs = run(subpackage, folder, "scipy", "--last-failed", "--last-failed-no-failures=none") if failed else {}
    lost = [f"{name}: {message.splitlines()[0]}" for name, message in failed.items()
            if not theirs.get(name, "did not run")]
    (folder / f"{subpackage}.lost.txt").write_text("\n".join(lost))
    return f"| {subpackage} | {len(ours)} | {len(ours) - len(failed)} | {len(failed) - len(lost)} | {len(lost)} |"


def main(arguments: list[str]) -> None:
    """Print the table."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print("| subpackage | tests | pass here | fail with SciPy too | pass with SciPy only |\n|---|---|---|---|---|")
    for subpackage in arguments[1:] or SUBPACKAGES:
        print(row(subpackage, folder), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
