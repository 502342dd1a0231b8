"""Output of the console, with and without rich, and on terminals without Unicode."""

import io
import os

import numpy as np
import pytest

from pydispatch.cli import console as module
from pydispatch.cli.console import Cell, Column, Plain, bar, console

CONSOLES = [Plain, module.Rich] if module.has_rich else [Plain]
COLUMNS = [Column("name"), Column("number", right=True), Column("text", wraps=True)]
ROWS = [("one", "1", "short"), (Cell("twenty", "good"), "20", "a longer text, which has to be wrapped somewhere")]
TREE = "root\n├─ a\n│  ├─ b\n│  └─ c\n└─ d"


class File(io.TextIOWrapper):
    """A file in memory, which may say that it is a terminal."""

    def __init__(self, encoding="utf-8", terminal=False):
        super().__init__(io.BytesIO(), encoding=encoding)
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def printed(kind, method, *args, encoding="utf-8", terminal=False):
    """Return the output of a method, without trailing blanks."""
    file = File(encoding, terminal)
    getattr(kind(file), method)(*args)
    file.flush()
    return "\n".join(line.rstrip() for line in file.buffer.getvalue().decode(encoding).splitlines())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "    │ "), (0.5, "██  │ "), (0.25, "█   │ "), (1, "████│ "), (1.25, "█████ "), (1.5, "██████"), (9, "█████▸")])
def test_a_bar_has_its_mark_at_its_place(value, expected):
    assert bar(value, 1, width=6, mark_at=4) == expected


def test_a_bar_shows_eighths():
    assert [bar(8 + i, 8, width=3, mark_at=1) for i in range(3)] == ["█│ ", "█│ ", "█│ "]
    assert [bar(i, 8, width=3, mark_at=1)[0] for i in range(9)] == list(" ▏▎▍▌▋▊▉█")


@pytest.mark.parametrize("kind", CONSOLES)
def test_a_table_is_aligned_and_has_what_it_was_given(kind):
    lines = printed(kind, "table", COLUMNS, ROWS, "A title").splitlines()
    assert lines[:2] == ["", "A title"]
    assert [line.split()[0] for line in (lines[2], *lines[4:6])] == ["name", "one", "twenty"]
    assert [line.index(word) + len(word) for line, word in zip(lines[4:6], ["1", "20"], strict=True)] == [14, 14]
    assert "a longer text" in lines[5]


def test_a_column_wraps_on_a_narrow_terminal_only(monkeypatch):
    monkeypatch.setattr(module.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((52, 24)))
    assert len(printed(Plain, "table", COLUMNS, ROWS).splitlines()) == 5
    lines = printed(Plain, "table", COLUMNS, ROWS, terminal=True).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 52


@pytest.mark.parametrize("kind", CONSOLES)
def test_a_tree_keeps_its_branches(kind):
    lines = printed(kind, "tree", TREE).splitlines()
    assert [line.lstrip("├└─│ ") for line in lines] == ["root", "a", "b", "c", "d"]
    depths = [len(line) - 1 for line in lines[1:]]
    assert depths[0] == depths[3] < depths[1] == depths[2]


@pytest.mark.parametrize("kind", CONSOLES)
def test_texts_are_printed_as_they_are(kind):
    for method in ("line", "paragraph", "heading", "tree"):
        assert "a[0] [bold]b[/bold] :smile:" in printed(kind, method, "a[0] [bold]b[/bold] :smile:")
    assert "    x = a[0]" in printed(kind, "code", "x = a[0]")
    assert "a[0]" in printed(kind, "table", [Column("a[0]")], [("[red]a[0]",)], "[t]")


@pytest.mark.parametrize("kind", CONSOLES)
def test_pictures_stand_side_by_side(kind):
    image = np.array([[0, 1.0, np.nan], [0, 1.0, 0.5]])
    lines = printed(kind, "pictures", {"one": image, "two": image}).splitlines()
    assert lines[0].split() == ["one", "two"]
    assert lines[1] == (" @x   @x" if kind is Plain else "▀▀▀  ▀▀▀")


def test_plain_text_does_without_unicode_where_it_must():
    assert printed(Plain, "tree", TREE, encoding="ascii").splitlines() == ["root", "|- a", "|  |- b", "|  `- c", "`- d"]
    assert printed(Plain, "line", "≤ 2.5× · 3 µs Ω", encoding="ascii") == "< 2.5x . 3 us ?"


def test_rich_is_for_terminals(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(console(File(terminal=True)), CONSOLES[-1])
    assert isinstance(console(File()), Plain)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(console(File(terminal=True)), Plain)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(module, "has_rich", False)
    assert isinstance(console(File(terminal=True)), Plain)
