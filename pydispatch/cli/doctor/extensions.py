"""Checks of packs, backends and compilers: which load, and why the others fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import pydispatch
from pydispatch._registry import packs
from pydispatch.cli.doctor.findings import Finding, text_of
from pydispatch.compiling import compilers
from pydispatch.exceptions import CompilationError, PackError


def examine_packs() -> Iterator[Finding]:
    """Load each pack that is installed."""
    points = packs.installed(tuple(sys.path), packs.OPERATORS)
    for name in sorted(points.names):
        try:
            point = packs.pack_named(name)
        except PackError as error:
            yield wrong(f"ops.{name}", error)
        else:
            assert point is not None
            yield examine_pack(f"ops.{name}", point, partial(packs.load_pack, name))


def examine_backends() -> Iterator[Finding]:
    """Load each backend that is installed."""
    for point in sorted(packs.installed(tuple(sys.path), packs.BACKENDS), key=lambda point: point.name):
        subject = f"{point.name} arrays"
        yield examine_pack(subject, point, partial(packs.imported, subject, point))


def examine_pack(subject: str, point: EntryPoint, load: Callable[[], object]) -> Finding:
    """Load a pack. A pack of this distribution does not fail if only its library is not installed."""
    try:
        load()
    except PackError as error:
        missing = packs.missing_library(error.__cause__)
        is_ours = point.dist is not None and point.dist.name == pydispatch.__distribution__
        return Finding(subject, f"needs {missing}, not installed") if missing and is_ours else wrong(subject, error)
    return Finding(subject, f"loads: {packs.described(point)}")


def wrong(subject: str, error: Exception) -> Finding:
    """Return the finding for an error whose last line is its remedy."""
    first, *_, remedy = str(error).splitlines()
    return Finding(subject, first.removeprefix(f"{subject}: "), remedy)


def examine_compilers() -> Iterator[Finding]:
    """Load each compiler by its name."""
    for name in compiler_names():
        subject = f"compile(backend={name!r})"
        error = error_of_compiler(name)
        if error is None:
            yield Finding(subject, "loads")
        elif isinstance(error, CompilationError) and packs.missing_library(error.__cause__):
            yield Finding(subject, f"needs {packs.missing_library(error.__cause__)}, not installed")
        else:
            yield Finding(subject, f"failed to load: {text_of(error)}", f"upgrade or remove what {name!r} needs")


def error_of_compiler(name: str) -> Exception | None:
    """Load a compiler, and return the exception that it raises, or None."""
    try:
        compilers.compiler_named(name)
    except Exception as error:
        return error
    return None


def compiler_names() -> list[str]:
    """List the compilers of the package, then those of other packages."""
    found = [point.name for point in entry_points(group=compilers.GROUP)]
    return list(dict.fromkeys(["plan", "python", *compilers.ON_DEMAND, *sorted(found)]))
