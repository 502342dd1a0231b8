"""The tables of docs/backends.md.

A table stands between `<!-- coverage of NAME: MODULE -->`, where the module registers the backend, and `<!-- end -->`.
"""

from __future__ import annotations

import re
from importlib import import_module

from pydispatch.backends.coverage import DECOMPOSED, KINDS, MISSING, PARTIAL, Coverage, coverage

TABLE = re.compile(r"(<!-- coverage of (\w+): ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANING = {PARTIAL: "without some arguments", DECOMPOSED: "from other operators", MISSING: "missing"}


def table(backend: str) -> list[str]:
    """What a backend has of NumPy's operators, one row per kind. Random numbers are left out."""
    found = {name: each for name, each in coverage(backend).items() if not name.startswith("random_")}
    rows = ["| what | operators |", "|---|---|"]
    for kind in KINDS:
        names = [described(name, each) for name, each in found.items() if each.kind == kind]
        rows += [f"| {MEANING.get(kind, kind)} ({len(names)}) | {' '.join(names)} |"] if names else []
    return rows


def described(name: str, found: Coverage) -> str:
    """The operator, with what its kernel does not take."""
    return f"`{name}`" + (f" ({', '.join(found.unsupported)})" if found.kind == PARTIAL else "")


def renewed(text: str) -> str:
    """Return the text of the page with its tables as they should be, those of `not_installed` left as they are."""
    left = not_installed(text)
    return TABLE.sub(lambda match: match[0] if match[2] in left else "\n".join(
        [match[1], *table(match[2]), "", match[4]]), text)


def not_installed(text: str) -> list[str]:
    """Return the backends with a table on the page whose libraries are not installed."""
    return [match[2] for match in TABLE.finditer(text) if not can_import(match[3])]


def can_import(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
