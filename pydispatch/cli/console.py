"""Printing for the command line: headings, tables, bars, trees and pictures.

`Rich` prints in colour on a terminal if rich is installed. `Plain` prints text. Both have the same methods.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TextIO

try:
    from rich import box
    from rich.console import Console as Terminal
    from rich.syntax import Syntax
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree
except ImportError:
    has_rich = False
else:
    has_rich = True

STYLES = {"": "", "good": "green", "bad": "bold red", "dim": "dim", "name": "bold"}
SHADES = " .:-=+*#%@"
ASCII = str.maketrans("├└│─█▉▊▋▌▍▎▏▸≤≥×µ·", "|`|-#####   ><>xu.")


class Column(NamedTuple):
    """A column of a table. Numbers are aligned to the right."""

    title: str
    right: bool = False
    wraps: bool = False     # whether it wraps if the terminal is too narrow


class Cell(NamedTuple):
    """A text with one of STYLES."""

    text: str
    style: str = ""


def bar(value: float, mark: float, *, width: int = 12, mark_at: int = 8) -> str:
    """Draw a bar of `width` characters in eighths, on a scale where character `mark_at` is the value `mark`."""
    eighths = round(8 * mark_at * value / mark)
    if eighths > 8 * width:
        return "█" * (width - 1) + "▸"
    full, rest = divmod(eighths, 8)
    text = ("█" * full + " ▏▎▍▌▋▊▉"[rest]).ljust(width)[:width]
    return text if full > mark_at else text[:mark_at] + "│" + text[mark_at + 1:]


class Plain:
    """Prints plain text, without Unicode if the file cannot encode it."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.width = shutil.get_terminal_size().columns if file.isatty() else None

    def heading(self, text: str) -> None:
        """Print a line that starts a section."""
        self.line(f"\n{text}\n{'─' * len(text)}")

    def line(self, text: str = "", style: str = "") -> None:
        """Print text unchanged."""
        self.file.write(self._encodable(f"{text}\n"))

    def paragraph(self, text: str) -> None:
        """Print prose, wrapped."""
        self.line(textwrap.fill(text, min(self.width or 88, 88)))

    def code(self, text: str) -> None:
        """Print Python source."""
        self.line(textwrap.indent(text, "    "))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]], title: str = "") -> None:
        """Print a blank line and a table. Rows hold as many cells as there are columns."""
        texts = [[_text(cell) for cell in row] for row in rows]
        titles = [column.title for column in columns]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        if self.width is not None:
            over = max(0, sum(widths) + 2 * (len(widths) - 1) - self.width)
            widths = [max(30, width - over) if column.wraps else width
                      for column, width in zip(columns, widths, strict=True)]
        self.line(f"\n{title}" if title else "")
        for row in (titles, ["─" * min(width, 60) for width in widths], *texts):
            self._row(columns, widths, row)

    def _row(self, columns: Sequence[Column], widths: Sequence[int], texts: Sequence[str]) -> None:
        cells = [
            textwrap.wrap(text, width, subsequent_indent="  ") if column.wraps else [text]
            for column, width, text in zip(columns, widths, texts, strict=True)
        ]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            aligned = [part.rjust(width) if column.right else part.ljust(width)
                       for column, width, part in zip(columns, widths, parts, strict=True)]
            self.line("  ".join(aligned).rstrip())

    def tree(self, text: str) -> None:
        """Print a tree that is already drawn, with three characters per depth."""
        self.line(text)

    def pictures(self, pictures: Mapping[str, Any]) -> None:
        """Print arrays of shape (2 * rows, columns) side by side, dark to bright from 0 to 1. NaN is a cross."""
        drawn = [[title.ljust(image.shape[1]), *_shades(image)] for title, image in pictures.items()]
        self.line("\n".join("  ".join(lines).rstrip() for lines in zip(*drawn, strict=True)))

    def _encodable(self, text: str) -> str:
        try:
            text.encode(self.file.encoding or "utf-8")
        except UnicodeEncodeError:
            return text.translate(ASCII).encode("ascii", "replace").decode()
        return text


class Rich:
    """Prints in colour on a terminal."""

    def __init__(self, file: TextIO) -> None:
        self.terminal = Terminal(file=file, highlight=False)

    def heading(self, text: str) -> None:
        """Print a line that starts a section."""
        self.terminal.print()
        self.terminal.rule(Text(text, "bold magenta"), align="left", style="magenta")

    def line(self, text: str = "", style: str = "") -> None:
        """Print text unchanged."""
        self.terminal.print(Text(text, STYLES[style]), soft_wrap=True)

    def paragraph(self, text: str) -> None:
        """Print prose, wrapped."""
        self.terminal.print(Text(text), width=min(self.terminal.width, 88))

    def code(self, text: str) -> None:
        """Print Python source."""
        code = Syntax(text, "python", theme="ansi_dark", background_color="default", padding=(0, 4))
        self.terminal.print(code)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]], title: str = "") -> None:
        """Print a blank line and a table. Rows hold as many cells as there are columns."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for column in columns:
            side: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(Text(column.title), justify=side, no_wrap=not column.wraps, overflow="fold")
        for row in rows:
            table.add_row(*(Text(_text(cell), STYLES[getattr(cell, "style", "")]) for cell in row))
        self.line(f"\n{title}" if title else "", "name")
        self.terminal.print(table)

    def tree(self, text: str) -> None:
        """Print a tree that is already drawn, with three characters per depth."""
        first, *lines = text.splitlines()
        nodes = [Tree(Text(first, "bold"), guide_style="dim")]
        for line in lines:
            prefix, rest = TREE_LINE.fullmatch(line).groups()  # type: ignore[union-attr]
            del nodes[len(prefix) // 3:]
            nodes.append(nodes[-1].add(Text(rest)))
        self.terminal.print(nodes[0])

    def pictures(self, pictures: Mapping[str, Any]) -> None:
        """Print arrays of shape (2 * rows, columns) side by side, dark to bright from 0 to 1. NaN is red."""
        grid = Table.grid(padding=(0, 2))
        for title, image in pictures.items():
            grid.add_column(title, no_wrap=True, width=image.shape[1])
        grid.add_row(*(Text(title, "bold") for title in pictures))
        grid.add_row(*(_half_blocks(image) for image in pictures.values()))
        self.terminal.print(grid)


TREE_LINE = re.compile(r"((?:[│ ]  )*[├└]─ )(.*)")


def _shades(image: Any) -> Iterator[str]:
    """Yield lines of shades, where a character is the mean of two pixels."""
    for rows in zip(image[::2].tolist(), image[1::2].tolist(), strict=True):
        means = [(upper + lower) / 2 for upper, lower in zip(*rows, strict=True)]
        yield "".join("x" if mean != mean else SHADES[round(mean * (len(SHADES) - 1))] for mean in means)


def _half_blocks(image: Any) -> Text:
    """Draw two pixels per character: the foreground is the upper one, the background the lower one."""
    text = Text()
    for rows in zip(image[::2].tolist(), image[1::2].tolist(), strict=True):
        for upper, lower in zip(*rows, strict=True):
            text.append("▀", f"{_colour(upper)} on {_colour(lower)}")
        text.append("\n")
    text.right_crop()
    return text


def _colour(brightness: float) -> str:
    if brightness != brightness:
        return "rgb(220,30,30)"
    red, green, blue = (round(255 * brightness ** power) for power in (0.8, 1.2, 0.6))
    return f"rgb({red},{green},{blue})"


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def console(file: TextIO | None = None) -> Plain | Rich:
    """Return the console for a file, by default standard output."""
    file = file or sys.stdout
    is_terminal = file.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return Rich(file) if is_terminal and has_rich else Plain(file)
