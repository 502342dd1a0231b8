"""`pytest --require NAME` turns skips for want of NAME into failures."""

import shutil
from pathlib import Path

import pytest

from tests.needs import find

pytest_plugins = ["pytester"]
PROGRAM = '''
import pytest
from tests.needs import needs, not_installed

@needs("no-such-program")
def test_marked():
    pass

@needs("python3")
def test_with_its_program():
    pass

def test_by_itself():
    pytest.skip(not_installed("no-such-program"))

def test_of_a_library():
    pytest.importorskip("json.no_such_module")

def test_of_something_else():
    pytest.skip("only on other systems")

@pytest.mark.xfail(strict=True)
def test_that_fails_as_expected():
    raise ValueError
'''
MODULE = "import pytest; json = pytest.importorskip('json.no_such_module')"


@pytest.fixture
def run(pytester):
    pytester.makepyfile(test_program=PROGRAM)
    return lambda *arguments: pytester.runpytest_inprocess("-p", "tests.needs", "-p", "no:xdist", *arguments)


def test_missing_programs_and_libraries_are_skips(run):
    run().assert_outcomes(passed=1, skipped=4, xfailed=1)


@pytest.mark.parametrize("names", ["no-such-program", "json,no-such-program", "no_such_module", "json.nothing"])
def test_a_run_does_not_start_without_what_it_requires(run, names):
    done = run("--require", names)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: --require {names.rpartition(',')[2]}: not installed"])


def test_a_skip_for_want_of_a_required_library_fails(run):
    done = run("--require", "json, python3")
    done.assert_outcomes(passed=1, skipped=3, failed=1, xfailed=1)
    done.stdout.fnmatch_lines(["*could not import 'json.no_such_module'*, and --require has json"])


def test_a_skip_for_want_of_a_required_program_fails(run, monkeypatch):
    monkeypatch.setattr("tests.needs.pytest_configure", lambda config: None)     # it is missing only for the test
    done = run("--require", "no-such-program")
    done.assert_outcomes(passed=1, skipped=2, failed=1, errors=1, xfailed=1)
    done.stdout.fnmatch_lines(["no-such-program is not installed, and --require has no-such-program"])


def test_a_module_that_is_skipped_for_want_of_a_required_library_is_an_error(run, pytester):
    pytester.makepyfile(test_module=MODULE)
    run().assert_outcomes(passed=1, skipped=5, xfailed=1)
    run("--require", "json", "test_module.py").assert_outcomes(errors=1)


def test_finding():
    assert find("python3") == shutil.which("python3")
    assert find("no-such-program") is None
    library = find("libasan")
    assert library is None or Path(library).name == "libasan.so"


@pytest.mark.parametrize(("printed", "found"), [("libasan.so", None), ("/lib/libasan.so", "/lib/libasan.so")])
def test_libasan_is_where_gcc_says(tmp_path, monkeypatch, printed, found):
    gcc = tmp_path / "gcc"
    gcc.write_text(f"#!/bin/sh\necho {printed}\n")
    gcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find.__wrapped__("libasan") == found
    gcc.unlink()
    assert find.__wrapped__("libasan") is None


@pytest.mark.parametrize("name", ["chromium-browser", "google-chrome"])
def test_a_browser_has_several_names(tmp_path, monkeypatch, name):
    (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find.__wrapped__("chromium") == str(tmp_path / name)
