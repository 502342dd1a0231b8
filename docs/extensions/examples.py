"""The gallery: a page for each program of examples/, with its picture, its output, its source, and downloads.

Each program runs when pages are built, and again when it is newer than what it made. All that is made lies in
`docs/generated`: the programs as notebooks, too, and archives of the packages. Pages with examples get links to
themselves as a script and as a notebook.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from sphinx.application import Sphinx
from sphinx.util import logging

from .notebooks import cells_of_page, cells_of_program, notebook, script

DOCS = Path(__file__).parents[1]
EXAMPLES = DOCS.parent / "examples"
MADE = DOCS / "generated"
RUN = ("mathematics", "transforms", "digits", "subclasses")
NOT_RUN = ("dask",)         # starts processes and takes minutes
PACKAGES = ("pack", "cython-package")
PICTURES = {"per_sample_gradients": "gradients.png"}
LABELS = {"hamiltonian_monte_carlo": "Hamiltonian Monte Carlo", "neural_ode": "Neural ODE", "ode": "ODE"}
WITHOUT = {"index", "changelog", "security"}
log = logging.getLogger(__name__)


class Program(NamedTuple):
    """A program of the gallery."""

    path: Path

    @property
    def name(self) -> str:
        """Of its page, and of what it made."""
        return self.path.parent.name if self.path.stem == "train" else self.path.stem

    @property
    def prose(self) -> str:
        """Its docstring."""
        return ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""

    @property
    def title(self) -> str:
        """The first line of its docstring."""
        return self.prose.partition("\n")[0].rstrip(".")

    @property
    def label(self) -> str:
        """Its name in the sidebar."""
        return LABELS.get(self.name) or self.name.replace("_", " ").capitalize()

    @property
    def picture(self) -> str:
        """The file that it draws, if it draws one."""
        return PICTURES.get(self.name, f"{self.name}.png")


def programs(folders: tuple[str, ...]) -> list[Program]:
    """All programs in these folders."""
    return [Program(path) for folder in folders for path in sorted((EXAMPLES / folder).glob("*.py"))]


def run(program: Program) -> None:
    """Run a program, if it is newer than what it printed."""
    printed = MADE / f"{program.name}.txt"
    if printed.exists() and printed.stat().st_mtime > program.path.stat().st_mtime:
        return
    environment = {**os.environ, "TQDM_DISABLE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, program.path], cwd=MADE, env=environment, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        log.warning("%s failed:\n%s", program.path.name, done.stderr)
    else:
        printed.write_text(done.stdout, encoding="utf-8")


def write(path: Path, text: str) -> None:
    """Write what has changed, so that Sphinx reads only that again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_archive(path: Path, folder: Path) -> None:
    """Write a folder's sources as an archive, which holds the folder."""
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.suffix in {".md", ".py", ".pyx", ".toml"} and "build" not in file.parts[len(folder.parts):]:
                archive.write(file, file.relative_to(folder.parent))


def page(program: Program) -> str:
    """The page of a program, in Markdown."""
    source = os.path.relpath(program.path, MADE)
    links = [f"{{download}}`{program.path.name} <{source}>`",
             f"{{download}}`{program.name}.ipynb <{program.name}.ipynb>`"]
    parts = [f"# {program.title}", "Download: " + ", ".join(links)]
    prose = program.prose.partition("\n")[2].strip("\n")       # its indented lines are commands
    if prose:
        parts.append(prose)
    if (MADE / program.picture).exists():
        parts.append(f"![What the program draws]({program.picture})")
    parts += ["## What it prints", f"```{{literalinclude}} {program.name}.txt\n:language: text\n```",
              "## The program", f"```{{literalinclude}} {source}\n:language: python\n```"]
    return "\n\n".join(parts) + "\n"


def card(program: Program) -> str:
    """The entry of a program in the gallery, in Markdown that another page includes."""
    address = f"generated/{program.name}.md"
    picture = f"[![{program.title}](generated/{program.picture})]({address})\n\n"
    if not (MADE / program.picture).exists():
        picture = ""
    return f":::{{container}} card\n{picture}[{program.title}]({address})\n:::\n"


def make(app: Sphinx) -> None:
    """Run all programs, and write what Sphinx reads."""
    MADE.mkdir(exist_ok=True)
    found = programs(RUN)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, found))
    for program in found:
        write(MADE / f"{program.name}.md", page(program))
    for program in found + programs(NOT_RUN):
        picture = program.picture if (MADE / program.picture).exists() else None
        cells = cells_of_program(program.path.read_text(encoding="utf-8"), picture)
        write(MADE / f"{program.name}.ipynb", notebook(cells))
    for package in PACKAGES:
        write_archive(MADE / f"{package}.zip", EXAMPLES / package)
    for folder in RUN:
        cards = "\n".join(card(program) for program in found if program.path.parent.name == folder)
        entries = "\n".join(f"{program.label} <generated/{program.name}>" for program in found
                            if program.path.parent.name == folder)
        write(MADE / f"{folder}.cards", f"::::{{container}} cards\n{cards}\n::::\n\n"
                                        f"```{{toctree}}\n:hidden:\n\n{entries}\n```\n")


def add_downloads(app: Sphinx, name: str, content: list[str]) -> None:
    """Write a page's script and notebook, and end the page with links to them."""
    cells = cells_of_page(content[0])
    if "/" in name or name in WITHOUT or not any(cell.is_code for cell in cells):
        return
    stem = f"{name.replace('-', '_')}_examples"     # not `numpy.py`, which would hide NumPy
    links = [f"{{download}}`{kind} <generated/pages/{stem}.{ending}>`" for kind, ending in (
        ("script", "py"), ("notebook", "ipynb"))]
    (MADE / "pages").mkdir(exist_ok=True)
    write(MADE / "pages" / f"{stem}.py", script(content[0]))
    write(MADE / "pages" / f"{stem}.ipynb", notebook(cells))
    content[0] += f"\n\n:::{{container}} downloads\nThe examples of this page as a {' and a '.join(links)}\n:::\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", make)
    app.connect("source-read", add_downloads)
    return {"parallel_read_safe": False}
