"""The tables of docs/operators.md."""

from collections.abc import Iterable

from pydispatch._registry.operators import load_all
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.operators.declare import OF_FAMILIES
from tests.operators.samples import NUMBERS, functional_names, random_names
from tests.pages import with_tables

CATEGORIES = ("pointwise", "reduction", "accumulation", "sorting", "linalg", "calculus", "view", "join",
              "rearrangement", "indexing", "creation", "conversion", "random")


def category(name: str) -> str:
    return DECLARATIONS[name].tags[0]


NAMES = sorted([*functional_names(), *NUMBERS, *random_names()], key=lambda name: CATEGORIES.index(category(name)))


def grouped(pairs: Iterable[tuple[tuple[str, ...], str]]) -> dict[tuple[str, ...], list[str]]:
    """Return the operators that have the same thing to tell, in order."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for told, name in pairs:
        groups.setdefault(told, []).append(name)
    return groups


def code(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def operators_table() -> list[str]:
    """List every operator, by category and variants."""
    groups = grouped(((category(name), variants(name)), name) for name in NAMES)
    rows = [f"| {kind} | {code(names)} | {forms} |" for (kind, forms), names in groups.items()]
    return ["| category | operators | variants |", "|---|---|---|", *rows]


def families_table() -> list[str]:
    """List every operator that is loaded on first use, by family."""
    groups = grouped(((name.partition("_")[0],), name) for name in sorted(OF_FAMILIES))
    rows = [f"| {family} | {code(names)} |" for (family,), names in groups.items()]
    return ["| family | operators |", "|---|---|", *rows]


def variants(name: str) -> str:
    return code(variant.removeprefix(name) for variant in VARIANTS[name][1:] if variant)


def left_out_table() -> list[str]:
    """Return every parameter that is left out, with the remedy."""
    groups = grouped((item, name) for name in NAMES for item in DECLARATIONS[name].left_out.items())
    rows = [f"| `{parameter}` | {summary(names)} | {remedy} |" for (parameter, remedy), names in groups.items()]
    return ["| parameter | of | remedy |", "|---|---|---|", *sorted(rows)]


def summary(names: list[str]) -> str:
    """Return the names, those of nearly a whole category as that category."""
    parts = []
    for kind in CATEGORIES:
        members = [name for name in NAMES if category(name) == kind]
        here = [name for name in members if name in names]
        missing = [name for name in members if name not in names]
        whole = len(members) > 5 and len(missing) < len(members) / 3
        parts.append(f"{kind}{', less ' + code(missing) if missing else ''}" if whole else code(here))
    return "; ".join(filter(None, parts))


def renewed(text: str) -> str:
    """Return the text of the page with its tables as they should be."""
    return with_tables(text, {
        "operators": operators_table(), "families": families_table(), "left out": left_out_table()})


load_all("np")
