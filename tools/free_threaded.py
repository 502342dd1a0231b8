"""Build a free-threaded CPython from Debian's sources, with what the tests need: `python tools/free_threaded.py`.

It needs root on a Debian machine with a C compiler, takes the newest version whose sources are served, and prints the
path of the interpreter, for `PYTHON_FT`. A second run only prints the path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = Path(sys.argv[1] if len(sys.argv) > 1 else "/opt/free-threaded")
SUITES = ("sid", "forky", "trixie")
VERSIONS = ("3.15", "3.14", "3.13")
LIBRARIES = ("dpkg-dev", "libffi-dev", "libssl-dev", "zlib1g-dev", "libbz2-dev", "liblzma-dev", "libsqlite3-dev")
NEEDED = ("numpy", "scipy", "cython>=3.3.1,<3.4", "setuptools>=77", "pytest", "pytest-xdist", "hypothesis", "sybil",
          "psutil", "greenlet")


def run(*command: str | Path, folder: Path | None = None) -> str:
    """Run a command, leaving other programs the processor, and return what it prints."""
    completed = subprocess.run(["nice", "-n", "15", *command], cwd=folder, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{(completed.stdout + completed.stderr)[-3000:]}")
    return completed.stdout


def fetch_sources(folder: Path) -> Path:
    """Return the unpacked newest sources that are served.

    An index may list sources that the server does not have, so each version of each suite is tried.
    """
    sites = run("apt-get", "indextargets", "--format", "$(SITE)").split()
    site = next(site for site in sites if "security" not in site)
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    sources = folder / "sources.list"
    sources.write_text("".join(f"deb-src [signed-by={key}] {site} {suite} main\n" for suite in SUITES))
    (folder / "lists" / "partial").mkdir(parents=True)
    options = [f"-oDir::Etc::SourceList={sources}", "-oDir::Etc::SourceParts=-",
               f"-oDir::State::Lists={folder / 'lists'}", "-oAPT::Sandbox::User=root"]
    run("apt-get", *options, "update")
    for name, version in listed_sources(options):
        try:
            run("apt-get", *options, "source", "--download-only", f"{name}={version}", folder=folder)
        except RuntimeError:
            print(f"{name} {version} is not served", file=sys.stderr)
            continue
        run("dpkg-source", "-x", folder / f"{name}_{version}.dsc", folder / "sources")
        return folder / "sources"
    raise RuntimeError("no sources of CPython are served: try again later")


def listed_sources(options: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and versions of CPython's sources in the indices, the newest first."""
    for version in VERSIONS:
        shown = run("apt-cache", *options, "showsrc", "--only-source", f"python{version}")
        found = [line.split()[1] for line in shown.splitlines() if line.startswith("Version: ")]
        found.sort(key=lambda number: [int(digits) for digits in re.findall(r"\d+", number)], reverse=True)
        yield from ((f"python{version}", number) for number in found)


def build(folder: Path) -> None:
    """Configure, compile and install the interpreter, without optimizations that take long."""
    sources, built = fetch_sources(folder), folder / "built"
    built.mkdir()
    run(sources / "configure", "-q", "--disable-gil", f"--prefix={PREFIX}", "--with-ensurepip=install", folder=built)
    run("make", f"-j{os.cpu_count()}", folder=built)
    run("make", "install", folder=built)


def main() -> None:
    """Print the path of the interpreter, which the first run builds."""
    python = PREFIX / "bin" / "python3"
    if not python.exists():
        run("apt-get", "update")
        run("apt-get", "install", "-y", "--no-install-recommends", *LIBRARIES)
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
    run(python, "-m", "pip", "install", "--only-binary=:all:", *NEEDED)     # older versions where the newest lacks one
    print(python)


if __name__ == "__main__":
    main()
