"""Names of nodes: Python identifiers, unique in a graph, that hide no global or built-in name."""

# tests: tests/tracing/test_graph.py
from __future__ import annotations

import builtins
import keyword
import re

GLOBAL_NAMES = ("constants", "forward", "inf", "nan", "np", "operator", "ops", "tree_unflatten")
"""Names that generated code uses as globals."""

BUILTINS = frozenset(dir(builtins))
RESERVED = frozenset((*BUILTINS, *keyword.kwlist, *GLOBAL_NAMES, "__builtins__"))
NUMBERED = re.compile(r"(.+)_(\d+)")


def is_plain(text: str) -> bool:
    """Return whether this text is a name in Python source that Python reads as the same text."""
    # Python normalizes names that are not ASCII, and no code may set __debug__. A subclass of str may print anything.
    is_identifier = type(text) is str and text.isascii() and text.isidentifier()
    return is_identifier and not keyword.iskeyword(text) and text != "__debug__"


def is_name(text: str) -> bool:
    """Return whether this can be the name of a node."""
    return text not in RESERVED and is_plain(text)


class Names:
    """The names that are taken in a graph. Each name is given out once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """Return `wanted` as an identifier, with a number at its end if it is taken."""
        if type(wanted) is str and wanted in self._last and wanted in self._taken and not wanted[-1].isdigit():
            name = self._numbered(wanted)       # the commonest case: another call of an operator
            self._taken.add(name)
            return name
        name = str.__str__(wanted)          # for a subclass of str, the text itself
        if not (name.isascii() and name.isidentifier()):
            name = re.sub(r"\W", "_", name, flags=re.ASCII)
            if not name or name[0].isdigit():
                name = f"_{name}"
        if name in self._taken or name in RESERVED:
            name = self._numbered(name)
        self._taken.add(name)
        return name

    def reserve(self, name: str) -> None:
        """Reserve a name, so that no node gets it."""
        self._taken.add(name)

    def _numbered(self, name: str) -> str:
        found = NUMBERED.fullmatch(name) if name[-1].isdigit() else None
        base, number = (found[1], int(found[2])) if found else (name, 0)
        number = max(number, self._last.get(base, 0)) + 1
        while (numbered := f"{base}_{number}") in self._taken:      # no reserved name ends in a number
            number += 1
        self._last[base] = number
        return numbered
