"""Checks of pydispatch, Python, NumPy and optional libraries, of the core's build, and of name clashes."""

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

FOR_DEVELOPERS = {"bench", "dev", "examples", "test"}
"""Extras that the package itself does not use."""

COMPARISONS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[^]]*\])?(?P<bounds>[^;]*)(?P<marker>;.*)?")


class Requirement(NamedTuple):
    """A line of a distribution's requirements: a library, its versions, and the extra that requires it."""

    name: str
    bounds: str
    extra: str


def examine_installation() -> Iterator[Finding]:
    """Examine the package, its interpreter and its core."""
    yield examine_package(Path(pydispatch.__file__).parent, our_distribution())
    yield from examine_clash(packages_distributions().get("pydispatch", []))
    yield examine_python(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), getattr(sys, "_is_gil_enabled", bool)())
    yield from examine_core(Path(_core.__file__))


def examine_libraries() -> Iterator[Finding]:
    """Examine NumPy, and the libraries that the package uses if they are installed."""
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
    """Return pip's record of the package, or None if it was not installed."""
    try:
        return distribution(pydispatch.__distribution__)
    except PackageNotFoundError:
        return None


def examine_python(is_free_threaded: bool, has_gil: bool) -> Finding:
    """Examine the interpreter. A free-threaded one enables the GIL for the core, unless the user forbids it."""
    found = (f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}, "
             f"{sys.executable}")
    if not is_free_threaded:
        return Finding("Python", found)
    if has_gil:
        return Finding("Python", f"{found}, free-threaded, the GIL is enabled")
    return Finding("Python", f"{found}, free-threaded, the GIL is disabled: the core is now safe in only one thread",
                   "unset PYTHON_GIL and leave out -X gil=0: importing pydispatch enables the GIL")


def examine_package(folder: Path, ours: Distribution | None) -> Finding:
    """Check that Python imports the package that pip installed."""
    found = f"{pydispatch.__distribution__} {pydispatch.__version__} in {folder}"
    if ours is None:
        return Finding("pydispatch", f"{found}, not installed: packs and backends that are not imported are not found",
                       "install it (in a checkout: pip install -e .)")
    if ours.version != pydispatch.__version__:
        return Finding("pydispatch", f"{found}, but pip installed {ours.version}", REINSTALL)
    return Finding("pydispatch", found)


def examine_clash(names: list[str]) -> Iterator[Finding]:
    """Yield other distributions that install an import package named `pydispatch`, as far as this one still works."""
    for name in sorted(set(names) - {pydispatch.__distribution__}):
        yield Finding("name clash", f"{name} {version(name)} also installs a package `pydispatch`. Ours was installed "
                                    "last, so both work. After you upgrade or remove the other, reinstall ours: "
                                    f"{REINSTALL}")


def examine_core(file: Path) -> Iterator[Finding]:
    """Examine the build of the compiled core, and whether sources next to it are newer."""
    content = file.read_bytes()
    words = [f"{file.name}, {len(content) / 1e6:.1f} MB", f"Cython {cython_version()}", compiler_of(content)]
    words += ["with debug information"] if b".debug_info" in content else []
    words += [f"with {name}" for name, mark in SANITIZERS.items() if mark in content]
    newer = [path.name for path in sources_of(file) if path.stat().st_mtime > file.stat().st_mtime]
    words += [f"older than {', '.join(newer[:3])}: compile it again if you edited these files"] if newer else []
    yield Finding("core", ", ".join(words))
    yield Finding("build flags", build_flags(content) or "not recorded: the compiler is not GCC, or recording is off")


SANITIZERS = {"AddressSanitizer": b"__asan_init", "UndefinedBehaviorSanitizer": b"__ubsan_handle_"}


def compiler_of(content: bytes) -> str:
    """Return the C compiler of a file. All files name GCC, because of the parts that the linker adds."""
    compilers = re.findall(rb"clang version [\d.]+", content) or re.findall(rb"GCC: \([^\0]*\) [\d.]+", content)
    return compilers[0].decode() if compilers else "C compiler unknown"


def build_flags(content: bytes) -> str:
    """Return the flags that GCC recorded in the file, as setup.py requests, without folders and macros."""
    recorded = re.search(rb"GNU C\d* [\d.]+ ([^\0]*)", content)
    return recorded[1].decode() if recorded else ""


def sources_of(file: Path) -> list[Path]:
    """Return the sources of the core in a checkout. A wheel has only the header of the C API."""
    found = sorted(path for ending in ("pyx", "pxd") for path in file.parent.rglob(f"*.{ending}"))
    return found if any(path.suffix == ".pyx" for path in found) else []


def cython_version() -> str:
    """Return the version of Cython that wrote the core, from the name of the module that holds its types."""
    modules = {type(value).__module__ for value in vars(_core).values()}
    return ", ".join(name.removeprefix("_cython_").replace("_", ".") for name in modules if name.startswith("_cython_"))


def parse_requirement(line: str) -> Requirement | None:
    """Parse a requirement. Return None for one that only names extras of this distribution."""
    match = REQUIREMENT.fullmatch(line)
    if match is None or (match["extras"] and match["name"] == pydispatch.__distribution__):
        return None
    extra = re.search(r"extra == ['\"]([\w-]+)['\"]", match["marker"] or "")
    return Requirement(match["name"], match["bounds"].strip(" ()"), extra[1] if extra else "")


def examine_library(requirement: Requirement) -> Finding:
    """Check that a library is installed in a supported version."""
    name, bounds, extra = requirement
    wanted = pydispatch.__distribution__ + (f"[{extra}]" if extra else "")
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, f"not installed, pip install '{wanted}' adds it")
    if not is_within(found, bounds):
        return Finding(name, f"{found}, expected {bounds}", f"pip install --upgrade '{wanted}'")
    return Finding(name, found)


def is_within(found: str, bounds: str) -> bool:
    """Return whether a version satisfies bounds such as ">=2.0,<3"."""
    for comparison, bound in re.findall(r"([<>=]=?)\s*([\d.]+)", bounds):
        left, right = zip(*zip_longest(release(found), release(bound), fillvalue=0), strict=True)
        if not COMPARISONS[comparison](left, right):
            return False
    return True


def release(text: str) -> list[int]:
    """Return the numbers of a version, without the marks of a pre-release or a local build."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return [int(number) for number in numbers[0].split(".")] if numbers else [0]
