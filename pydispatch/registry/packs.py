"""Packs: installed distributions that declare the operators of a namespace, or register a backend.

They are found by their entry points.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType

from pydispatch.exceptions import PackError
from pydispatch.registry.operators import families_of
from pydispatch.registry.registrations import packets

OPERATORS, BACKENDS = "pydispatch.packs", "pydispatch.backends"
"""The groups of entry points: from a namespace to the module that declares its operators, and from the module of the
arrays of a backend to the module that registers it."""

_looked_up: set[str] = set()
"""Namespaces whose packs are loaded, or that have none."""


def load_pack(namespace: str) -> None:
    """Import the pack of a namespace, if one is installed and was not imported yet; raises PackError if that fails.

    After a failure the next look-up tries again. A pack that is installed after its namespace was asked for is found by
    the next process.
    """
    if namespace in _looked_up:
        return
    point = pack_named(namespace)
    if point is None or _is_imported(point):
        _looked_up.add(namespace)


def pack_named(namespace: str) -> EntryPoint | None:
    """The entry point of a namespace; PackError if several distributions have one."""
    return only_one(f"ops.{namespace}", "declare operators of this namespace", [
        *installed(tuple(sys.path), OPERATORS).select(name=namespace)])


def only_one(what: str, deed: str, points: list[EntryPoint]) -> EntryPoint | None:
    """The one of these entry points; None if there is none, PackError for several with different modules."""
    if len({point.value for point in points}) > 1:
        raise PackError(f"{what}: {' and '.join(map(described, points))} {deed}\nuninstall all but one of them")
    return points[0] if points else None


def namespaces_of_packs() -> list[str]:
    """Those for which a pack is installed."""
    return sorted(installed(tuple(sys.path), OPERATORS).names)


@lru_cache(maxsize=8)
def installed(path: tuple[str, ...], group: str) -> EntryPoints:
    """The entry points of all packs on this path, whose distributions take milliseconds to read."""
    return entry_points(group=group)


def _is_imported(point: EntryPoint) -> bool:
    """Import the pack; False if this very thread is importing it, so that the pack looks for an operator of its own.

    Python's import lock holds up other threads until the operators are there.
    """
    module = imported(f"ops.{point.name}", point)
    if getattr(module.__spec__, "_initializing", False):
        return False
    if not packets.get(point.name) and not families_of(point.name):
        raise PackError(f"ops.{point.name}: {described(point)} declares no operator of this namespace\n"
                        f"its module has to end with the call of install() of its Pack({point.name!r})")
    return True


def imported(what: str, point: EntryPoint) -> ModuleType:
    """The module of a pack; PackError if its import fails."""
    try:
        return import_module(point.module)
    except Exception as error:
        raise PackError(f"{what}: {described(point)} failed to load: {type(error).__name__}: {error}\n"
                        f"mend or reinstall it; to see where it fails: python -c 'import {point.module}'") from error


def missing_library(error: BaseException | None) -> str:
    """The library of others whose absence raised this error, or one of its causes; "" if there is no such one."""
    while error is not None:
        name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if name not in ("", "pydispatch"):
            return name
        error = error.__cause__
    return ""


def load_backend_pack(what: str, module: str) -> None:
    """Import the pack of the backend for arrays of a module, if one is installed; PackError if that fails.

    The pack for `dask.array.core` is found by that name, or by "dask.array" or "dask".
    """
    point = only_one(what, "register a backend for them", [
        point for point in installed(tuple(sys.path), BACKENDS) if f"{module}.".startswith(f"{point.name}.")])
    if point is not None:
        imported(what, point)


def load_backend_packs(name: str = "") -> list[PackError]:
    """Import installed packs of backends: those found by this name, in any case; all others if there are none.

    Returns the errors of those that fail.
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
    """A pack for messages: the distribution and the module."""
    distribution = point.dist
    name = "a distribution" if distribution is None else f"{distribution.name} {distribution.version}"
    return f"the pack {name} ({point.value})"
