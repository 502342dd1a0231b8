"""The names that commands take: of operators, of functions of NumPy and SciPy, and of objects in modules."""

# tests: tests/cli/test_names.py
from __future__ import annotations

import difflib
import importlib
import re
import sys
from typing import Any

from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry.operators import load_all
from pydispatch._registry.packs import namespaces_of_packs
from pydispatch._registry.registrations import packets
from pydispatch.exceptions import OperatorNotFoundError, PackError
from pydispatch.numpy.declare import FUNCTIONS

FACES = {"numpy": "np", "scipy": "scipy"}


def load_packs() -> None:
    """Load the operators of NumPy and of all installed packs. Report packs that fail on standard error."""
    for namespace in ("np", *namespaces_of_packs()):
        try:
            load_all(namespace)
        except PackError as error:
            print(error, file=sys.stderr)


def object_named(text: str) -> Any:
    """Return what a name leads to: an operator, one overload of it, or an object of a module with a method `explain`.

    An operator has its own name, with or without namespace (`np::linalg_svd`, `add`), and that of NumPy's or SciPy's
    function (`numpy.linalg.svd`, `np.linalg.svd`, `linalg.svd`, `svd`).
    """
    load_packs()
    name = re.sub(r"^(pydispatch\.)?(ops\.)?", "", text.strip().replace("::", "."))
    head, _, rest = name.partition(".")
    head = FACES.get(head, head)
    found: Any
    if head in packets and rest:
        found = _operator(head, rest)
    else:
        found = next(filter(None, [_operator(namespace, name) for namespace in packets]), None) or _object(name)
    if found is None:
        qualified = f"{head}::{rest}" if head in packets and rest else name
        raise OperatorNotFoundError(f"no operator {qualified}\n{_remedy(name, head, rest)}")
    return found


def _operator(namespace: str, path: str) -> OpOverload | OpOverloadPacket | None:
    """Return the operator at a dotted path, whose last part may be an overload."""
    operators = packets[namespace]
    joined = path.replace(".", "_")
    ends = [name for name in operators if name.partition("_")[2] == joined and not name.endswith("_")]
    for name in (path, joined, *(ends if len(ends) == 1 else ())):
        if name in operators:
            return operators[name]
    name, _, overload = path.rpartition(".")
    packet = operators.get(name) or operators.get(name.replace(".", "_"))
    if packet is None or not name:
        return None
    found: OpOverload = getattr(packet, overload)
    return found


def _object(path: str) -> Any:
    """Return the object at a dotted path of a module, if it can be explained."""
    parts = path.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part, None)
        found = getattr(found, "operator", found)       # of `custom_op`
        return found if hasattr(found, "explain") else None
    return None


def _remedy(name: str, head: str, rest: str) -> str:
    if (path := rest if head == "np" and rest else name) in FUNCTIONS:
        return f"numpy.{path} is a function that calls operators, as python -m pydispatch profile SCRIPT shows"
    return meant(name) or "import the module that defines it: --import MODULE"


def meant(text: str) -> str:
    """Return a line with the operators of similar names, or an empty string."""
    head, _, rest = text.replace("::", ".").partition(".")
    head = FACES.get(head, head)
    within = [head] if head in packets and rest else list(packets)
    wanted = (rest if head in packets and rest else text).replace(".", "_")
    known: dict[str, list[str]] = {face: [namespace] for face, namespace in FACES.items()}
    for namespace in within:
        known.setdefault(namespace, []).append(namespace)
        for name in packets[namespace]:
            if not name.endswith("_") and "__" not in name:
                for key in {name, name.partition("_")[2] or name}:
                    known.setdefault(key, []).append(f"{namespace}::{name}")
    keys = sorted(difflib.get_close_matches(wanted, known, 3, 0.7), key=lambda key: not key.startswith(wanted))
    alike = [name for key in keys for name in sorted(known[key], key=lambda name: not name.endswith(f"::{key}"))]
    return f"did you mean {' or '.join(dict.fromkeys(alike))}?" if alike else ""
