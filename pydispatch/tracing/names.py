"""Names of nodes: Python identifiers, each once in a graph, none of which hides something."""

from __future__ import annotations

import builtins
import keyword
import re

GLOBAL_NAMES = ("constants", "forward", "inf", "nan", "np", "operator", "ops", "tree_unflatten")
"""What generated code finds among its globals."""

RESERVED = frozenset((*dir(builtins), *keyword.kwlist, *GLOBAL_NAMES))


def is_name(text: str) -> bool:
    """Can this be the name of a node?"""
    return text.isidentifier() and text not in RESERVED


class Names:
    """The names that are taken in a graph; one that was given is never given again."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)
        self._last: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, made an identifier, with a number at its end where it is taken."""
        name = wanted
        if not (name.isascii() and name.isidentifier()):
            name = re.sub(r"\W", "_", name, flags=re.ASCII)
            if not name or name[0].isdigit():
                name = f"_{name}"
        if name in self._taken:
            name = self._numbered(name)
        self._taken.add(name)
        return name

    def reserve(self, name: str) -> None:
        """Never give this name to a node."""
        self._taken.add(name)

    def _numbered(self, name: str) -> str:
        found = re.fullmatch(r"(.+)_(\d+)", name)
        base, number = (found[1], int(found[2])) if found else (name, 0)
        number = max(number, self._last.get(base, 0)) + 1
        while f"{base}_{number}" in self._taken:
            number += 1
        self._last[base] = number
        return f"{base}_{number}"
