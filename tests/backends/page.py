"""The tables of docs/backends.md.

A table stands between `<!-- coverage of NAME: MODULE -->`, where the module registers the backend, and `<!-- end -->`.
"""

import re
from importlib import import_module

from pydispatch.backends.coverage import COVERED, DECOMPOSED, KINDS, MISSING, PARTIAL, Coverage, coverage

TABLE = re.compile(r"(<!-- coverage of (\w+): ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANING = {COVERED: COVERED, DECOMPOSED: "from other operators", MISSING: "missing"}


def table(backend: str) -> list[str]:
    """Return how a backend runs NumPy's operators. Random numbers are left out."""
    return rows({name: each for name, each in coverage(backend).items() if not name.startswith("random_")})


def rows(found: dict[str, Coverage]) -> list[str]:
    """Return a row for each kind, and for each list of arguments that kernels do not take. The longest has no names."""
    groups: dict[str, list[str]] = {}
    for kind in KINDS:
        for name, each in found.items():
            if each.kind == kind:
                arguments = ", ".join(f"`{argument}`" for argument in each.unsupported)
                groups.setdefault(f"without {arguments}" if kind == PARTIAL else MEANING[kind], []).append(name)
    largest = max(groups, key=lambda what: len(groups[what]))
    return ["| what | operators |", "|---|---|", *[
        f"| {what} ({len(names)}) | {'all others' if what == largest else ' '.join(f'`{name}`' for name in names)} |"
        for what, names in groups.items()]]


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
