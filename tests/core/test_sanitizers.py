"""The core under AddressSanitizer and UndefinedBehaviorSanitizer: no access out of bounds, freed, or misaligned."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCES = ("pydispatch", "setup.py", "pyproject.toml", "README.md", "LICENSE")
AROUND_TESTS = ("tests", "conftest.py", "pyproject.toml")
TESTS = (
    "tests/core/test_plans.py", "tests/core/test_kernels.py", "tests/core/test_loops.py", "tests/core/test_folds.py",
    "tests/schema/test_hostile.py", "tests/schema/test_parser.py", "tests/autograd/test_tape.py",
    "tests/autograd/test_in_place.py",
)


def library_of_sanitizer() -> str:
    """Where libasan is, or nothing."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return ""
    path = subprocess.check_output([gcc, "-print-file-name=libasan.so"], text=True).strip()
    return path if Path(path).is_absolute() else ""     # the name alone, where there is none


LIBRARY = library_of_sanitizer()


@pytest.mark.slow
@pytest.mark.skipif(not LIBRARY, reason="GCC has no libasan here")
def test_sanitizers_find_nothing(tmp_path: Path, count) -> None:
    source, around, site = tmp_path / "source", tmp_path / "around", tmp_path / "site"
    copy_from_checkout(SOURCES, source)
    copy_from_checkout(AROUND_TESTS, around)
    setup = source / "setup.py"
    assert '"-O3"' in setup.read_text()
    setup.write_text(setup.read_text().replace('"-O3"', '"-O0"'))       # with checks, -O3 takes minutes
    run(tmp_path, sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target", str(site), str(source),
        CFLAGS="-w -fsanitize=address,undefined -fno-sanitize-recover=all")
    output = run(
        around, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS,
        LD_PRELOAD=LIBRARY, PYTHONMALLOC="malloc", PYTHONPATH=str(site),
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1")     # Python and NumPy keep some memory to the end
    count("tests under sanitizers", int(output.rpartition(" passed")[0].split()[-1]))


def copy_from_checkout(names: tuple[str, ...], folder: Path) -> None:
    folder.mkdir()
    for name in names:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(CHECKOUT / name, folder)


def run(folder: Path, *command: str, **variables: str) -> str:
    completed = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout[-5000:] + completed.stderr[-5000:]
    return completed.stdout
