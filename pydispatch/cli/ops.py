"""`python -m pydispatch ops`: the operators that are registered."""

from __future__ import annotations

import argparse
import fnmatch

from pydispatch._core import OpOverload
from pydispatch._registry.registrations import definition_of, kernels_of, operators
from pydispatch.cli.console import Cell, Column, Plain, Rich
from pydispatch.cli.names import load_packs, object_named
from pydispatch.exceptions import DispatchError
from pydispatch.keys import all_keys


def run_ops(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """List the operators whose names match, including those of installed packs."""
    load_packs()
    pattern = f"*{arguments.pattern}*".replace("::", ".")
    names = [name for name in sorted(operators) if fnmatch.fnmatch(name.replace("::", "."), pattern)]
    if not names:
        try:
            found = object_named(arguments.pattern)
        except DispatchError as error:
            remedy = str(error).partition("\n")[2]
            raise DispatchError(f"no operator matches {arguments.pattern!r}\n{remedy}") from None
        names = [str(op.name) for op in getattr(found, "overloads", [found]) if isinstance(op, OpOverload)]
    columns = [Column("operator"), Column("kernels"), Column("schema [tags]", wraps=True)]
    out.table(columns, map(operator_row, names))


def operator_row(name: str) -> tuple[str | Cell, ...]:
    """Return the name, the keys that have kernels, and the schema without the name, with tags."""
    op = operators[name]
    definition = definition_of(op)
    kernels = kernels_of(op)
    keys = ", ".join(key.name for key in all_keys() if key in kernels)
    if definition is None:
        return Cell(name, "name"), keys, Cell("no definition", "bad")
    tags = f" [{', '.join(definition.tags)}]" if definition.tags else ""
    return Cell(name, "name"), keys, str(definition.schema).removeprefix(name) + tags
