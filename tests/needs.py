"""Programs and libraries that tests need and a machine may lack.

A test is skipped without its program or library, by `@needs("valgrind")`, `pytest.skip(not_installed("chromium"))` or
`pytest.importorskip("numba")`. `pytest --require valgrind,chromium,numba` does not start if one of them is missing, and
a test that is skipped for want of one fails.

The conftest.py of the repository loads this as a plugin.
"""

import re
import shutil
import subprocess
from collections.abc import Generator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def needs(program: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test where the program is missing."""
    return pytest.mark.skipif(find(program) is None, reason=not_installed(program))


def not_installed(name: str) -> str:
    """Return the reason of a skip for want of a program or library."""
    return f"{name} is not installed"


@cache
def find(program: str) -> str | None:
    """Return where a program or GCC's libasan is, None if it is not on this machine."""
    if program == "libasan":
        return _libasan()
    return next(filter(None, map(shutil.which, BROWSERS if program == "chromium" else (program,))), None)


def _libasan() -> str | None:
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    path = subprocess.check_output([gcc, "-print-file-name=libasan.so"], text=True).strip()
    return path if Path(path).is_absolute() else None       # GCC prints the name alone where it finds no file


def required(config: pytest.Config) -> list[str]:
    """Return the names that follow `--require`."""
    return [name.strip() for name in config.getoption("--require").split(",") if name.strip()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require", metavar="NAME,...", default="", help=(
        "programs and libraries that must be there: without them, no test runs, and none is skipped for want of them"))


def pytest_configure(config: pytest.Config) -> None:
    # PathFinder alone: pydispatch has a finder that registers with autoray when it is first looked for
    missing = [name for name in required(config) if find(name) is None and PathFinder.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"--require {','.join(missing)}: not installed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return failed_if_required((yield), required(item.config))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
        collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return failed_if_required((yield), required(collector.config))


def failed_if_required(report: Report, names: list[str]) -> Report:
    """Return the report, as a failure if it is a skip for want of one of these names."""
    if report.skipped and isinstance(report.longrepr, tuple):
        why = report.longrepr[2].removeprefix("Skipped: ")
        of_import = re.match(r"could not import '([\w.]+)'", why)
        for name in names:
            if why == not_installed(name) or (of_import and name in of_import[1].split(".")):
                report.outcome = "failed"
                report.longrepr = f"{why}, and --require has {name}"
    return report
