"""Print the tables of `python -m benchmarks`, or write JSON, or both."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cases as bench
from pydispatch.cli.console import Cell, Column, Plain, Rich, bar
from pydispatch.exceptions import DispatchError

TIMES = {
    bench.OTHERS: "kernel/us/other", bench.PEER: "theirs/ours", bench.GRAPHS: "", bench.ONCE: "",
    **dict.fromkeys(bench.COMPILATION, ""),
    bench.INTERPRETER: "depth 1/2/3/4", bench.LINE: "depth 1/2/3/4",
}
MICROSECONDS_FROM = 10_000      # nanoseconds: a table with such times shows all of its times in microseconds


def run_bench(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Measure, and print a table per group as it is done, or JSON, or both."""
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
        raise DispatchError(f"no row matches {arguments.rows!r}\nsee them all: python -m benchmarks --quick")
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
    """Print a table with bars. The mark in a bar is the bound."""
    slow = any(time >= MICROSECONDS_FROM for row in rows for time in row.times.values())
    columns = (
        Column("".ljust(25)), Column(TIMES.get(title, f"this/other, {'µs' if slow else 'ns'}").ljust(15)),
        Column("measured", right=True), Column("bound".rjust(8)), Column("".ljust(10)), Column("".ljust(4)),
    )
    out.table(columns, (bench_row(row, slow) for row in rows), title)


def bench_row(row: bench.Row, slow: bool) -> tuple[str | Cell, ...]:
    """Return the cells of a row: the measured value, the bound, a bar that compares them, and a verdict."""
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
    """Return the value, to three digits but no more than two decimals."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_unit(number: str, unit: str) -> str:
    """Return the value with its unit, with a space before units in letters: 2.5× and 30 ms."""
    return f"{number}{unit}" if unit == "×" else f"{number} {unit}"
