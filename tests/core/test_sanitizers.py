"""The core under AddressSanitizer and UndefinedBehaviorSanitizer: no access out of bounds, freed, or misaligned."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import find, needs

CHECKOUT = Path(__file__).parents[2]
LATER = 2**32       # a time in the next century
COPIED = ("pydispatch", "tests", "conftest.py", "setup.py", "pyproject.toml", "README.md", "LICENSE")
TESTS = ("tests/core/test_plans.py", "tests/core/test_kernels.py", "tests/core/test_loops.py",
         "tests/core/test_folds.py", "tests/schema/test_hostile.py", "tests/schema/test_parser.py",
         "tests/autograd/test_tape.py", "tests/autograd/test_in_place.py")


@pytest.mark.slow
@needs("libasan")
def test_sanitizers_find_nothing(tmp_path: Path, count) -> None:
    checkout, built = tmp_path / "checkout", tmp_path / "built"
    checkout.mkdir()
    for name in COPIED:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, checkout / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(CHECKOUT / name, checkout)
    generated = Path("build", "pydispatch", "_core.c")
    if is_up_to_date(CHECKOUT / generated):
        (checkout / generated).parent.mkdir(parents=True)
        shutil.copy(CHECKOUT / generated, checkout / generated)
        os.utime(checkout / generated, (LATER, LATER))      # or NumPy's files in the build's environment are newer
    setup = checkout / "setup.py"
    assert '"-O3"' in setup.read_text()
    setup.write_text(setup.read_text().replace('"-O3"', '"-O0"'))       # with checks, -O3 takes minutes
    run(tmp_path, sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target", str(built), str(checkout),
        CFLAGS="-w -fsanitize=address,undefined -fno-sanitize-recover=all")
    (core,) = built.glob("pydispatch/_core.*.so")
    shutil.copy(core, checkout / "pydispatch")      # some tests read the sources, which lie there
    output = run(
        checkout, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS,
        LD_PRELOAD=str(find("libasan")), PYTHONMALLOC="malloc", PYTHONPATH=str(checkout),
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1")     # Python and NumPy keep some memory to the end
    count("tests under sanitizers", int(output.rpartition(" passed")[0].split()[-1]))


def is_up_to_date(generated: Path) -> bool:
    """Return whether this is the C that Cython generates from the sources."""
    sources = [path for path in (CHECKOUT / "pydispatch").rglob("*") if path.suffix in (".pyx", ".pxd", ".h")]
    return generated.exists() and generated.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def run(folder: Path, *command: str, **variables: str) -> str:
    completed = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout[-5000:] + completed.stderr[-5000:]
    return completed.stdout
