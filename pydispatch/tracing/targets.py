"""Names of the targets of nodes, for people and for source code that runs anywhere."""

# tests: tests/tracing/test_graph.py
from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from pydispatch._core import OpOverload
from pydispatch._registry import registrations
from pydispatch.operators.declare import declaration_of
from pydispatch.ops import ops
from pydispatch.tracing.names import BUILTINS, is_plain

PATHS: dict[OpOverload, str] = {}
"""The paths of operators that a pack declares, which are never removed."""


def name_of(target: Any) -> str:
    """Return the name of an operator, without its namespace, or of a function."""
    if isinstance(target, OpOverload):
        return str(target.name.name)
    return str(getattr(target, "__name__", type(target).__name__))


def path_of(target: Any) -> str | None:
    """Return the path of an operator, or of a function of NumPy or Python, in source code, or None for others."""
    if isinstance(target, OpOverload):
        known = PATHS.get(target)
        if known is not None:
            return known
        path = operator_path(target)
        if not (all(map(is_plain, path)) and leads_to(target, path)):
            return None
        found = ".".join(("ops", *path))
        if declaration_of(target) is not None:
            PATHS[target] = found
        return found
    name = name_of(target)
    if not is_plain(name):
        return None
    if name in BUILTINS and getattr(builtins, name, None) is target:
        return name
    for module, prefix in ((operator, "operator."), (np, "np.")):
        if vars(module).get(name) is target:        # getattr warns of names that NumPy has retired
            return f"{prefix}{name}"
    return None


def leads_to(op: OpOverload, path: tuple[str, ...]) -> bool:
    """Return whether these attributes of `ops` lead to this operator, or to a packet that calls it."""
    found: Any = ops
    for part in path:
        found = getattr(found, part, None)
    return found is op or getattr(found, "overloads", ())[:1] == (op,)


def operator_path(op: OpOverload) -> tuple[str, ...]:
    """Return the namespace and name of an operator, and the overload if the name by itself would call another one."""
    name = op.name
    packet = registrations.packets.get(name.namespace or "", {}).get(name.name)
    path = (name.namespace or "", name.name)
    is_first = packet is not None and packet.overloads[:1] == (op,)
    return path if is_first else (*path, name.overload or "default")
