"""The tables of docs/scipy.md."""

from importlib import import_module

from pydispatch.numpy.declare import COMPOSITE
from pydispatch.scipy.borrowed import CLASSES, FOR_ARRAYS
from pydispatch.scipy.pack import FACE, FAMILIES, PASSED_ON, SOLVERS
from tests.numpy.page import KINDS_IN_ORDER
from tests.pages import with_tables
from tests.scipy import families  # noqa: F401  declares all functions

KINDS = (*KINDS_IN_ORDER, FOR_ARRAYS)
OF_STRUCTURES = ("sparse", "interpolate")
"""Modules whose functions take or make structures of arrays, and so are not declared one by one."""
WRITTEN_FOR = "1.17"
"""The version of SciPy whose functions the tables have."""


def within(family: str, kind: str) -> list[str]:
    """Return the functions of one kind in one family."""
    return sorted(name.removeprefix(f"{family}.") for name, found in FACE.kinds.items()
                  if found == kind and name.startswith(f"{family}."))


def classes_of(family: str) -> list[str]:
    """Return the classes of a family that run SciPy's code on Tensors."""
    return [path.removeprefix(f"{family}.") for path in CLASSES if path.startswith(f"{family}.")]


def listed(names: list[str]) -> str:
    """Return names as code, one after the other. Methods of objects follow all objects that have the same."""
    objects: dict[str, list[str]] = {}
    for name in names:
        of, _, method = name.rpartition(".")
        objects.setdefault(of if name.count(".") > name.startswith("stats.") else name, []).append(method)
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, methods in objects.items():
        groups.setdefault(tuple(methods) if name not in names else (), []).append(name)
    return "; ".join(" ".join(f"`{name}`" for name in group) + (": " if methods else "")
                     + " ".join(f"`{method}`" for method in methods) for methods, group in groups.items())


def table() -> list[str]:
    rows = ["| family | what it is | functions |", "|---|---|---|"]
    for family in (*FAMILIES, *SOLVERS):
        kinds = {**{kind: within(family, kind) for kind in KINDS},
                 COMPOSITE: sorted(within(family, COMPOSITE) + classes_of(family)),
                 "operator on functions": undeclared(family) if family in SOLVERS else [],
                 "passed on": sorted(PASSED_ON.get(family, ()))}
        rows += [f"| `{family}` | {kind} | {listed(names)} |" for kind, names in kinds.items() if names]
    rows += [f"| `{module}` | written with operators | {listed(undeclared(module))} |" for module in OF_STRUCTURES]
    return rows


def undeclared(module: str) -> list[str]:
    """Return the functions and classes that a module defines without a declaration, and those of its `linalg`."""
    namespace = import_module(f"pydispatch.scipy.{module}")
    parts = {"": namespace} | ({"linalg.": namespace.linalg} if hasattr(namespace, "linalg") else {})
    return sorted([path + name for path, part in parts.items() for name in part.__all__
                   if getattr(getattr(part, name), "__module__", "").startswith("pydispatch.")
                   and f"{module}.{path}{name}" not in {*FACE.functions, *CLASSES}])


def reasons() -> list[str]:
    """Return every refused function, with the reason. Those with the same reason together."""
    groups: dict[str, list[str]] = {}
    for name, reason in sorted(FACE.reasons.items()):
        groups.setdefault(" ".join(reason.split()), []).append(name)
    return ["| function | why, and what to write |", "|---|---|",
            *[f"| {listed(names)} | {reason} |" for reason, names in groups.items()]]


def renewed(text: str) -> str:
    """Return the text of the page with its tables as they should be."""
    return with_tables(text, {"functions": table(), "refused": reasons()})
