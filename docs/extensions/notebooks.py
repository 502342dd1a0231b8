"""Scripts and notebooks made of what is there: pages with examples, and programs."""

from __future__ import annotations

import ast
import doctest
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LEFT_OUT = re.compile(r"!?\[([^\]]*)\]\((?!https?:)[^)]*\)|^\(.*\)=$", re.MULTILINE)
"""Links to other pages and pictures, which a notebook by itself has not, and names of sections."""
TREE = re.compile(r"^```\{toctree\}\n[^`]*^```\n", re.MULTILINE)


class Cell(NamedTuple):
    """Of a notebook: prose in Markdown, or code."""

    text: str
    is_code: bool
    raises: bool = False


def cells_of_page(page: str) -> list[Cell]:
    """The examples of a page, and the prose between them."""
    cells = []
    parts = BLOCK.split(TREE.sub("", page))
    for n, part in enumerate(parts):
        if n % 2:
            examples = doctest.DocTestParser().get_examples(part)
            if any(example.exc_msg for example in examples):       # each in a cell, so that one stops no other
                cells += [Cell(example.source.rstrip(), True, bool(example.exc_msg)) for example in examples]
            else:       # a block without prompts is a program as it stands
                text = "\n".join(example.source.rstrip() for example in examples) or part.rstrip()
                cells.append(Cell(text, True))
        elif part.strip():
            cells.append(Cell(part.strip(), False))
    return cells


def cells_of_program(source: str, picture: str | None = None) -> list[Cell]:
    """A program, cut where two empty lines are; what runs it at the end finds no words on the command line."""
    tree = ast.parse(source)
    prose = ast.get_docstring(tree) or ""
    lines = source.splitlines(keepends=True)
    body = "".join(lines[tree.body[0].end_lineno:]) if prose else source
    cells = [Cell(prose, False)] if prose else []
    pieces = [piece.strip("\n") for piece in body.split("\n\n\n") if piece.strip()]
    cells += [Cell(piece, True) for piece in pieces[:-1]]
    cells.append(Cell('import sys\n\nsys.argv = ["notebook"]\n' + pieces[-1], True))
    if picture:
        cells.append(Cell(f'from IPython.display import Image\n\nImage("{picture}")', True))
    return cells


def notebook(cells: list[Cell]) -> str:
    """The cells as a file that Jupyter opens."""
    made: list[dict[str, Any]] = []
    for n, cell in enumerate(cells):
        text = cell.text if cell.is_code else LEFT_OUT.sub(r"\1", cell.text)
        common = {"id": f"cell-{n}", "source": text.splitlines(keepends=True)}
        if cell.is_code:
            metadata = {"tags": ["raises-exception"]} if cell.raises else {}
            made.append({"cell_type": "code", "execution_count": None, "outputs": [], "metadata": metadata, **common})
        else:
            made.append({"cell_type": "markdown", "metadata": {}, **common})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def script(page: str) -> str:
    """The examples of a page as a program that prints what they show, with headings as comments."""
    return "\n".join(_lines(page)).strip() + "\n"


def _lines(page: str) -> Iterator[str]:
    for n, part in enumerate(BLOCK.split(page)):
        if n % 2:
            examples = doctest.DocTestParser().get_examples(part)
            yield from [_shown(example) for example in examples] or [part.rstrip()]
            yield ""
        else:
            yield from (f"# {line.lstrip('# ')}" for line in part.splitlines() if line.startswith("#"))


def _shown(example: doctest.Example) -> str:
    """An example that prints the value or the error that the page shows."""
    code = example.source.rstrip()
    if example.exc_msg:
        return (f"try:\n{textwrap.indent(code, '    ')}\nexcept Exception as error:\n"
                '    print(f"{type(error).__name__}: {error}")')
    match ast.parse(code).body:
        case [ast.Expr(value)] if example.want and not code.startswith("print("):
            return f"print({ast.unparse(value)})"
    return code
