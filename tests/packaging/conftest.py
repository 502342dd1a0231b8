"""Real builds and real installs: one sdist and the wheel built from it serve the whole session.

`PYDISPATCH_DIST` names a folder with both. Without it the first test that needs them builds them.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(*(".git", ".venv", ".benchmarks", ".hypothesis", ".*_cache"),
                                    *("__pycache__", "build", "dist", "*.egg-info", "*.so", "_build"))


class Environment:
    """A fresh virtual environment, used from an empty folder so that no checkout is importable."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", symlinks=True)
        self.interpreter = folder / "venv" / "bin" / "python"
        self.folder = folder / "empty"
        self.folder.mkdir()

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python. The caller looks at the return code and the output."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([str(self.interpreter), *arguments], cwd=self.folder, env=variables, capture_output=True,
                              text=True, check=False)

    def pip(self, *arguments: str | Path) -> None:
        """Run pip on the environment, and fail with its output."""
        run(sys.executable, "-m", "pip", "--python", self.interpreter, "--quiet", *arguments)


def copy_without_core(folder: Path) -> Path:
    """Copy the checkout, with an empty core, for tests that build but never import it: a build takes seconds."""
    shutil.copytree(CHECKOUT, folder, ignore=NOT_SOURCE)
    (folder / "pydispatch" / "_core.pyx").write_text("")
    (folder / "pydispatch" / "_core.pxd").unlink()
    return folder


def run(*command: str | Path) -> None:
    completed = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with the sdist of this checkout, and the wheel built from that sdist."""
    if built := os.environ.get("PYDISPATCH_DIST"):
        return Path(built)
    source = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(CHECKOUT, source, ignore=NOT_SOURCE)
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, source)
    return folder


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    (path,) = dist.glob("*.tar.gz")
    return path


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path
