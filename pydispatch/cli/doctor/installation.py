"""Which pydispatch, Python, NumPy and optional libraries run, how the core was built, and who shares our name."""

from __future__ import annotations

import operator
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions, version
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pydispatch
from pydispatch import _core
from pydispatch.cli.doctor.findings import REINSTALL, Finding

FOR_DEVELOPERS = {"bench", "dev", "docs", "examples", "lint", "test", "types"}
"""Extras with nothing that the package itself would use."""

COMPARISONS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[^]]*\])?(?P<bounds>[^;]*)(?P<marker>;.*)?")


class Requirement(NamedTuple):
    """A line of a distribution's requirements: a library, its versions, and the extra that asks for it."""

    name: str
    bounds: str
    extra: str


def examine_installation() -> Iterator[Finding]:
    """The package, its interpreter and its core."""
    yield examine_package(Path(pydispatch.__file__).parent, our_distribution())
    yield from examine_clash(packages_distributions().get("pydispatch", []))
    yield examine_python(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), getattr(sys, "_is_gil_enabled", bool)())
    yield from examine_core(Path(_core.__file__))


def examine_libraries() -> Iterator[Finding]:
    """NumPy, and the libraries that the package uses where they are installed."""
    ours = our_distribution()
    if ours is None:
        yield Finding("NumPy", version("numpy"))
        return
    seen = set()
    for line in ours.requires or ():
        requirement = parse_requirement(line)
        if requirement and requirement.extra not in FOR_DEVELOPERS and requirement.name not in seen:
            seen.add(requirement.name)
            yield examine_library(requirement)


def our_distribution() -> Distribution | None:
    """What pip knows of the package; None if it was not installed."""
    try:
        return distribution(pydispatch.__distribution__)
    except PackageNotFoundError:
        return None


def examine_python(is_free_threaded: bool, has_gil: bool) -> Finding:
    """The interpreter. A free-threaded one enables its GIL when it imports the core, unless the user forbids that."""
    found = (f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}, "
             f"{sys.executable}")
    if not is_free_threaded:
        return Finding("Python", found)
    if has_gil:
        return Finding("Python", f"{found}, free-threaded, the GIL is enabled")
    return Finding("Python", f"{found}, free-threaded, the GIL is disabled: so the core is safe in one thread only",
                   "unset PYTHON_GIL and leave out -X gil=0: importing pydispatch enables the GIL")


def examine_package(folder: Path, ours: Distribution | None) -> Finding:
    """Does Python import what pip installed?"""
    found = f"{pydispatch.__distribution__} {pydispatch.__version__} in {folder}"
    if ours is None:
        return Finding("pydispatch", f"{found}, not installed: packs and backends that are not imported are not found",
                       "install it; in a checkout: pip install -e .")
    if ours.version != pydispatch.__version__:
        return Finding("pydispatch", f"{found}, but pip installed {ours.version}", REINSTALL)
    return Finding("pydispatch", found)


def examine_clash(names: list[str]) -> Iterator[Finding]:
    """The other distributions that install an import package of our name, as far as ours still works."""
    for name in sorted(set(names) - {pydispatch.__distribution__}):
        yield Finding("name clash", f"{name} {version(name)} also installs a package `pydispatch`. Ours was installed "
                                    "last, so both work; after you upgrade or remove the other, install ours again: "
                                    f"{REINSTALL}")


def examine_core(file: Path) -> Iterator[Finding]:
    """What the compiled core tells of its build, and whether sources beside it are newer."""
    content = file.read_bytes()
    words = [f"{file.name}, {len(content) / 1e6:.1f} MB", f"Cython {cython_version()}", compiler_of(content)]
    words += ["with debug information"] if b".debug_info" in content else []
    words += [f"with {name}" for name, mark in SANITIZERS.items() if mark in content]
    newer = [path.name for path in sources_of(file) if path.stat().st_mtime > file.stat().st_mtime]
    words += [f"older than {', '.join(newer[:3])}: compile it again if you edited that"] if newer else []
    yield Finding("core", ", ".join(words))
    yield Finding("build flags", build_flags(content) or "not recorded: this compiler is not GCC, or was told not to")


SANITIZERS = {"AddressSanitizer": b"__asan_init", "UndefinedBehaviorSanitizer": b"__ubsan_handle_"}


def compiler_of(content: bytes) -> str:
    """The C compiler that wrote this file. GCC's name is in all of them, from the parts that the linker adds."""
    compilers = re.findall(rb"clang version [\d.]+", content) or re.findall(rb"GCC: \([^\0]*\) [\d.]+", content)
    return compilers[0].decode() if compilers else "C compiler unknown"


def build_flags(content: bytes) -> str:
    """The flags that GCC was given and recorded in the file, as setup.py asks it to, without folders and macros."""
    recorded = re.search(rb"GNU C\d* [\d.]+ ([^\0]*)", content)
    return recorded[1].decode() if recorded else ""


def sources_of(file: Path) -> list[Path]:
    """The sources of the core, which a checkout has and a wheel has not: it has the header of the C API alone."""
    folders = (file.parent, file.parent / "core")
    found = sorted(path for folder in folders for ending in ("pyx", "pxd") for path in folder.glob(f"*.{ending}"))
    return found if any(path.suffix == ".pyx" for path in found) else []


def cython_version() -> str:
    """The version of Cython that wrote the core, from the name of the module that holds its types."""
    modules = {type(value).__module__ for value in vars(_core).values()}
    return ", ".join(name.removeprefix("_cython_").replace("_", ".") for name in modules if name.startswith("_cython_"))


def parse_requirement(line: str) -> Requirement | None:
    """A requirement; None for one that only names extras of ours."""
    match = REQUIREMENT.fullmatch(line)
    if match is None or (match["extras"] and match["name"] == pydispatch.__distribution__):
        return None
    extra = re.search(r"extra == ['\"]([\w-]+)['\"]", match["marker"] or "")
    return Requirement(match["name"], match["bounds"].strip(" ()"), extra[1] if extra else "")


def examine_library(requirement: Requirement) -> Finding:
    """Is a library there, in a version that we work with?"""
    name, bounds, extra = requirement
    wanted = pydispatch.__distribution__ + (f"[{extra}]" if extra else "")
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, f"not installed; pip install '{wanted}' adds it")
    if not is_within(found, bounds):
        return Finding(name, f"{found}, expected {bounds}", f"pip install --upgrade '{wanted}'")
    return Finding(name, found)


def is_within(found: str, bounds: str) -> bool:
    """Does a version keep bounds such as ">=2.0,<3"?"""
    for comparison, bound in re.findall(r"([<>=]=?)\s*([\d.]+)", bounds):
        left, right = zip(*zip_longest(release(found), release(bound), fillvalue=0), strict=True)
        if not COMPARISONS[comparison](left, right):
            return False
    return True


def release(text: str) -> list[int]:
    """The numbers of a version, without what marks a pre-release or a local build."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return [int(number) for number in numbers[0].split(".")] if numbers else [0]
