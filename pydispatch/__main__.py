"""`python -m pydispatch`: demo, bench, ops, explain."""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib
import itertools
import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pydispatch import _core, bench, demo  # _core first: it explains a clash of packages
from pydispatch.backends.meta import MetaArray
from pydispatch.console import Cell, Column, Plain, Rich, bar, console
from pydispatch.exceptions import DispatchError
from pydispatch.keys import all_keys
from pydispatch.registry import registrations
from pydispatch.registry.operators import find_packet
from pydispatch.timing import on_one_core

# --- bench -----------------------------------------------------------------------------------------------

TIMES = {
    bench.OTHERS: "kernel/us/other", bench.PEER: "theirs/ours", bench.GRAPHS: "", bench.ONCE: "",
    bench.LEVEL: "depth 1/2/3/4", bench.LINE: "depth 1/2/3/4",
}
MICROSECONDS_FROM = 10_000      # nanoseconds: a table with such times shows all of its times in microseconds


def run_bench(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Measure; print a table per group as it is done, or JSON, or both."""
    effort = bench.QUICK if arguments.quick else bench.FULL
    left_out: dict[str, str] = {}
    rows: list[bench.Row] = []
    prints = arguments.json != "-"
    measured = bench.measure(effort, arguments.rows, left_out)
    for group, members in itertools.groupby(measured, key=lambda row: row.group):
        rows += (of_group := list(members))
        if prints:
            print_group(out, group, of_group)
    if not rows and not left_out:
        raise DispatchError(f"no row matches {arguments.rows!r}\nsee them all: python -m pydispatch bench --quick")
    if left_out and prints:
        out.line()
        for name, reason in left_out.items():
            out.line(f"left out: {name}: {reason}", "dim")
    if arguments.json:
        text = json.dumps(bench.report(rows, left_out, effort), indent=1)
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(f"{text}\n")


def print_group(out: Plain | Rich, title: str, rows: Sequence[bench.Row]) -> None:
    """A table with bars; the mark in a bar is the bound."""
    slow = any(time >= MICROSECONDS_FROM for row in rows for time in row.times.values())
    columns = (
        Column("".ljust(25)), Column(TIMES.get(title, f"this/other, {'µs' if slow else 'ns'}").ljust(15)),
        Column("measured", right=True), Column("bound".rjust(8)), Column("".ljust(10)), Column("".ljust(4)),
    )
    out.table(columns, (bench_row(row, slow) for row in rows), title)


def bench_row(row: bench.Row, slow: bool) -> tuple[str | Cell, ...]:
    """What was measured, the bound, a bar of the one against the other, and a word."""
    times = [three_digits(time / 1e3) if slow else f"{time:.0f}" for time in row.times.values()]
    measured = Cell(row.name, "name"), Cell("/".join(times), "dim"), with_unit(three_digits(row.value), row.unit)
    if row.bound is None:
        return *measured, "", "", ""
    sign, word = "≥" if row.at_least else "≤", "ok" if row.ok else "low" if row.at_least else "over"
    style = "good" if row.ok else "bad"
    return (
        *measured,
        f"{sign} {with_unit(f'{row.bound:g}', row.unit)}".rjust(8),
        Cell(bar(row.value, row.bound, width=10, mark_at=6), style),
        Cell(word, style),
    )


def three_digits(value: float) -> str:
    """The value, to three digits but no more than two decimals."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_unit(number: str, unit: str) -> str:
    """2.5×, but 30 ms."""
    return f"{number}{unit}" if unit == "×" else f"{number} {unit}"


# --- ops -------------------------------------------------------------------------------------------------


def run_ops(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """List the operators whose name matches."""
    pattern = f"*{arguments.pattern}*".replace("::", ".")
    names = [name for name in sorted(registrations.operators) if fnmatch.fnmatch(name.replace("::", "."), pattern)]
    if not names:
        hint = "is the module that defines it imported? --import MODULE"
        raise DispatchError(f"no operator matches {arguments.pattern!r}\n{hint}")
    columns = [Column("operator"), Column("kernels"), Column("schema [tags]", wraps=True)]
    out.table(columns, map(operator_row, names))


def operator_row(name: str) -> tuple[str | Cell, ...]:
    """The name, the keys that have kernels, and the schema without the name, with tags."""
    op = registrations.operators[name]
    definition = registrations.definition_of(op)
    kernels = registrations.kernels_of(op)
    keys = ", ".join(key.name for key in all_keys() if key in kernels)
    if definition is None:
        return Cell(name, "name"), keys, Cell("no definition", "bad")
    tags = f" [{', '.join(definition.tags)}]" if definition.tags else ""
    return Cell(name, "name"), keys, str(definition.schema).removeprefix(name) + tags


# --- explain ---------------------------------------------------------------------------------------------

ARRAY = re.compile(r"\b(?P<wrapper>(?:Tensor:)?(?:meta:)?)(?P<dtype>[a-z]\w*)\[(?P<shape>[\d, ]*)\]")


def run_explain(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Say what a call would do, and why."""
    positional, keywords = [], {}
    for text in arguments.values:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            keywords[name] = parse_value(value)
        else:
            positional.append(parse_value(text))
    namespace, _, rest = arguments.operator.replace("::", ".").partition(".")
    name, _, overload = rest.partition(".")
    packet = find_packet(f"{namespace}::{name}")
    op = getattr(packet, overload) if overload else packet
    out.tree(str(op.explain(*positional, **keywords)))


def parse_value(text: str) -> Any:
    """A Python literal in which `float64[2,3]` is an array; a text that is no literal is a string.

    The array holds ones; `Tensor:float64[3]` is a Tensor over one, `meta:float64[3]` a MetaArray.
    """
    arrays: dict[str, Any] = {}

    def name_of_array(match: re.Match[str]) -> str:
        name = f"array_{len(arrays)}"
        arrays[name] = make_array(**match.groupdict())
        return name

    source = ARRAY.sub(name_of_array, text)
    try:
        return evaluate(ast.parse(source.strip(), mode="eval").body, arrays)
    except (SyntaxError, ValueError):
        if arrays:
            hint = "write a Python literal, with arrays like float64[2,3] in it"
            raise DispatchError(f"cannot read {text!r}\n{hint}") from None
        return text


def make_array(wrapper: str, dtype: str, shape: str) -> Any:
    """The array that a description in the command line stands for."""
    extents = tuple(int(extent) for extent in shape.split(",") if extent.strip())
    try:
        array = MetaArray(extents, dtype) if "meta:" in wrapper else np.ones(extents, dtype)
    except TypeError:
        raise DispatchError(f"{dtype!r} is no dtype of NumPy\nwrite arrays like float64[2,3]") from None
    return _core.Tensor(array) if "Tensor:" in wrapper else array


def evaluate(node: ast.expr, arrays: dict[str, Any]) -> Any:
    """The value of a literal that may hold arrays, by name."""
    match node:
        case ast.Name(id=name) if name in arrays:
            return arrays[name]
        case ast.List(elts=items):
            return [evaluate(item, arrays) for item in items]
        case ast.Tuple(elts=items):
            return tuple(evaluate(item, arrays) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            names = [ast.literal_eval(key) for key in keys if key is not None]
            return dict(zip(names, (evaluate(value, arrays) for value in values), strict=True))
    return ast.literal_eval(node)


# --- the command line ------------------------------------------------------------------------------------


def parse_command_line(words: Sequence[str]) -> argparse.Namespace:
    """What to do."""
    parser = argparse.ArgumentParser(
        prog="python -m pydispatch", description="An operator dispatcher for NumPy."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("demo", help="an operator, from its first kernel to its cost")
    command.set_defaults(run=lambda out, _: demo.main(out), modules=[])

    command = commands.add_parser("bench", help="measure what dispatches and gradients cost")
    command.add_argument("--json", metavar="FILE", help="write all to FILE; - prints it, and no tables")
    command.add_argument(
        "--rows", metavar="PATTERN", default="", help="only rows with this in group/name; * is a wildcard"
    )
    command.add_argument("--quick", action="store_true", help="a few rounds only: a look, not a measurement")
    command.set_defaults(run=run_bench, modules=[])

    command = commands.add_parser("ops", help="list operators")
    command.add_argument("pattern", nargs="?", default="", help="a part of the name; * is a wildcard")
    command.set_defaults(run=run_ops)
    add_import_option(command)

    command = commands.add_parser(
        "explain", help="say which kernel a call would run, and why",
        epilog="example: python -m pydispatch explain np.add Tensor:float64[2,3] 1.5",
    )
    command.add_argument("operator", help="namespace.operator[.overload]")
    command.add_argument(
        "values", nargs="*", metavar="ARG",
        help="ARG or name=ARG: a Python literal, or float64[2,3], Tensor:float64[3], meta:float64[3]",
    )
    command.set_defaults(run=run_explain)
    add_import_option(command)
    return parser.parse_args(words)


def add_import_option(command: argparse.ArgumentParser) -> None:
    """For operators that are not ours."""
    command.add_argument(
        "--import", metavar="MODULE", dest="modules", action="append", default=[],
        help="import this first, for the operators and kernels that it registers",
    )


def main(words: Sequence[str]) -> int:
    """Run a command; returns the exit status."""
    arguments = parse_command_line(words)
    try:
        for module in arguments.modules:
            importlib.import_module(module)
        arguments.run(console(), arguments)
    except (DispatchError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)       # `python -m pydispatch ops | head` ends quietly
    if sys.argv[1:2] == ["bench"]:
        on_one_core()
    sys.exit(main(sys.argv[1:]))
