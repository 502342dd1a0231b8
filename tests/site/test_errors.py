"""The error index quotes words that messages of the package have."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE)


def literals(node: ast.expr) -> Iterator[str]:
    """Yield the text of a string in the source, with a space for each value that is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else " " for part in node.values)


@pytest.fixture(scope="module")
def messages() -> str:
    """Return all strings of the package as one text."""
    found = [path.read_text(encoding="utf-8") for path in ROOT.glob("pydispatch/**/*.pyx")]
    for path in ROOT.glob("pydispatch/**/*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found += [text for node in nodes if isinstance(node, ast.expr) for text in literals(node)]
    return re.sub(r'"\s*f?"', "", " ".join("\n".join(found).split()))


def test_the_index_has_rows():
    assert len(ROWS) > 40
    assert len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_the_package_has_these_words(messages, row):
    for words in re.findall(r"`([^`]*)`", row):
        assert words in messages, words
