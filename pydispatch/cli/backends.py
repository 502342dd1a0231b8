"""`python -m pydispatch backends`: how much of NumPy's operators each backend covers."""

from __future__ import annotations

import argparse
import sys

from pydispatch._registry.backends import BACKENDS
from pydispatch._registry.packs import load_backend_packs, missing_library
from pydispatch.backends.coverage import KINDS, MISSING, Coverage, counts, coverage
from pydispatch.cli.console import Cell, Column, Plain, Rich
from pydispatch.exceptions import PackError
from pydispatch.keys import backend_names


def run_backends(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Print how much of NumPy each backend covers, or the kernel for every operator of one backend."""
    name = arguments.name
    if name.lower() not in map(str.lower, backend_names()):
        for error in load_backend_packs(name):
            missing = missing_library(error.__cause__)
            subject = str(error).partition(":")[0]
            print(f"{subject}: needs {missing}, which is not installed" if missing else error, file=sys.stderr)
    if name:
        covered = coverage(name)
        out.table([Column("operator"), Column(""), Column("kernel, or why there is none", wraps=True)],
                  [row(*item) for item in sorted(covered.items(), key=lambda item: KINDS.index(item[1].kind))])
        out.line("\n" + ", ".join(f"{number} {kind}" for kind, number in counts(covered).items()))
        return
    if not BACKENDS:
        raise PackError("no run-time backend is registered, and no backend pack is installed\n"
                        "name the module that registers one: --import MODULE")
    out.table([Column("backend"), Column("arrays"), *[Column(kind, right=True) for kind in KINDS]], [
        (Cell(each, "name"), f"{backend.array_type.__module__}.{backend.array_type.__qualname__}",
         *[str(number) for number in counts(coverage(each)).values()]) for each, backend in sorted(BACKENDS.items())])


def row(name: str, found: Coverage) -> tuple[str | Cell, ...]:
    """Return the operator, the kind, and the kernel with the arguments that it does not take."""
    without = f"; without {', '.join(found.unsupported)}" if found.unsupported else ""
    return Cell(name, "name"), Cell(found.kind, "bad" if found.kind == MISSING else ""), found.text + without
