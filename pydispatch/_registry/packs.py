"""Packs: installed distributions, found by entry points, that declare a namespace's operators or register a backend."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from pydispatch._registry.registrations import packets
from pydispatch.exceptions import PackError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

OPERATORS, BACKENDS = "pydispatch.packs", "pydispatch.backends"
"""The groups of entry points.

The first maps a namespace to the module that declares its operators. The second maps the module of a backend's arrays
to the module that registers the backend.
"""

_looked_up: set[str] = set()
"""Namespaces whose packs are loaded, or that have no pack."""
_on_demand: dict[str, str] = {}
"""The modules that define operators on demand, by the start of the operators' full names."""


def load_on_demand(modules: Mapping[str, str]) -> None:
    """Import each of these modules when an operator whose name starts with its key is first looked up."""
    _on_demand.update(modules)


def modules_for(name: str) -> list[str]:
    """Return the modules on demand that may define an operator of this full name."""
    return [module for start, module in list(_on_demand.items()) if name.startswith(start)]


def families_of(namespace: str) -> list[str]:
    """Return the modules that define operators of this namespace on demand."""
    return [module for start, module in list(_on_demand.items()) if start.partition("::")[0] == namespace]


def load_pack(namespace: str) -> None:
    """Import the pack of a namespace, if one is installed and was not imported yet.

    Raises PackError if the import fails. The next look-up then tries again. A pack that is installed after the first
    look-up of its namespace is found by the next process.
    """
    if namespace in _looked_up:
        return
    point = pack_named(namespace)
    if point is None or _is_imported(point):
        _looked_up.add(namespace)


def pack_named(namespace: str) -> EntryPoint | None:
    """Return the entry point of a namespace, or None. Raise PackError if several distributions declare it."""
    return only_one(f"ops.{namespace}", "declare operators of this namespace", [
        *installed(tuple(sys.path), OPERATORS).select(name=namespace)])


def only_one(what: str, deed: str, points: list[EntryPoint]) -> EntryPoint | None:
    """Return the first entry point, or None if there is none. Raise PackError if they name different modules."""
    if len({point.value for point in points}) > 1:
        raise PackError(f"{what}: {' and '.join(map(described, points))} {deed}\nuninstall all but one of them")
    return points[0] if points else None


def namespaces_of_packs() -> list[str]:
    """Return the namespaces that have an installed pack."""
    return sorted(installed(tuple(sys.path), OPERATORS).names)


@lru_cache(maxsize=8)
def installed(path: tuple[str, ...], group: str) -> EntryPoints:
    """Return the entry points of a group on this path. They are cached, as reading distributions takes milliseconds."""
    found: EntryPoints = import_module("importlib.metadata").entry_points(group=group)
    return found


def _is_imported(point: EntryPoint) -> bool:
    """Import a pack and return whether its import is complete.

    It is incomplete if the pack, while this thread imports it, looks up an operator of its namespace. Python's import
    lock makes other threads wait until the operators are declared.
    """
    module = imported(f"ops.{point.name}", point)
    if getattr(module.__spec__, "_initializing", False):
        return False
    if not packets.get(point.name) and not families_of(point.name):
        raise PackError(f"ops.{point.name}: {described(point)} declares no operator of this namespace\n"
                        f"its module must end with a call of the method install() of its Pack({point.name!r})")
    return True


def imported(what: str, point: EntryPoint) -> ModuleType:
    """Import and return the module of a pack. Raise PackError if the import fails."""
    try:
        return import_module(point.module)
    except Exception as error:
        raise PackError(f"{what}: {described(point)} failed to load: {type(error).__name__}: {error}\n"
                        f"repair or reinstall it. To see where it fails: python -c 'import {point.module}'") from error


def missing_library(error: BaseException | None) -> str:
    """Return the third-party package whose absence raised this error or one of its causes, or an empty string."""
    while error is not None:
        name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if name not in ("", "pydispatch"):
            return name
        error = error.__cause__
    return ""


def load_backend_pack(what: str, module: str) -> None:
    """Import the pack of the backend for arrays of a module, if one is installed.

    The pack for `dask.array.core` is found by that name, or by "dask.array" or "dask". Raises PackError if the import
    fails.
    """
    point = only_one(what, "register a backend for them", [
        point for point in installed(tuple(sys.path), BACKENDS) if f"{module}.".startswith(f"{point.name}.")])
    if point is not None:
        imported(what, point)


def load_backend_packs(name: str = "") -> list[PackError]:
    """Import the installed packs of backends with this name, in any case, or all packs if none has it.

    Returns the errors of the packs that fail.
    """
    points = list(installed(tuple(sys.path), BACKENDS))
    errors = []
    for point in [point for point in points if point.name.lower() == name.lower()] or points:
        try:
            imported(f"backend {point.name}", point)
        except PackError as error:
            errors.append(error)
    return errors


def described(point: EntryPoint) -> str:
    """Describe a pack by its distribution and module, for messages."""
    distribution = point.dist
    name = "a distribution" if distribution is None else f"{distribution.name} {distribution.version}"
    return f"the pack {name} ({point.value})"
