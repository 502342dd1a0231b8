"""The tables of docs/backends.md: `python -m tests.backends.page` writes them.

A table stands between `<!-- coverage of NAME: MODULE -->`, where the module registers the backend, and `<!-- end -->`.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from pydispatch.backends.coverage import DECOMPOSED, KINDS, MISSING, PARTIAL, Coverage, coverage

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
TABLE = re.compile(r"(<!-- coverage of (\w+): ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANING = {PARTIAL: "without some arguments", DECOMPOSED: "from other operators", MISSING: "missing"}


def table(backend: str) -> list[str]:
    """What a backend has of NumPy's operators, one row per kind; random numbers are left out."""
    found = {name: each for name, each in coverage(backend).items() if not name.startswith("random_")}
    rows = ["| what | operators |", "|---|---|"]
    for kind in KINDS:
        names = [described(name, each) for name, each in found.items() if each.kind == kind]
        rows += [f"| {MEANING.get(kind, kind)} ({len(names)}) | {' '.join(names)} |"] if names else []
    return rows


def described(name: str, found: Coverage) -> str:
    """The operator, with what its kernel does not take."""
    return f"`{name}`" + (f" ({', '.join(found.untaken)})" if found.kind == PARTIAL else "")


def renewed(text: str) -> str:
    """The page with its tables as they should be."""
    def written(match: re.Match[str]) -> str:
        try:
            import_module(match[3])
        except ImportError:     # the library is not installed
            return match[0]
        return "\n".join([match[1].rstrip(), "", *table(match[2]), "", match[4]])
    return TABLE.sub(written, text)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
