"""HTML for notebooks: Tensors, key sets, explanations and profiles, without scripts or external styles.

Everything is drawn in the colour of its text, so colours are those of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from pydispatch import _core
from pydispatch._core import DispatchKeySet, Tensor

if TYPE_CHECKING:
    from pydispatch.debug.explain import Explanation

FAINT = "opacity:.7;font-size:90%"
BOX = "display:inline-block;border:1px solid currentColor;border-radius:3px;padding:0 .4em;margin:.1em"


def tensor_html(tensor: Tensor) -> str:
    """Render a Tensor: its class, shape, dtype and graph node, above its values."""
    facts = [type(tensor).__name__]
    try:
        facts += [f"shape {tuple(tensor.shape)}", str(tensor.dtype), str(tensor.device)]
        facts += [] if isinstance(tensor, _core.Wrapper) else [
            f"requires_grad={tensor.requires_grad}", *([f"grad_fn={tensor.grad_fn!r}"] if tensor.grad_fn else [])]
    except Exception:       # an uninitialised subclass, or a view that may not be used: the repr still works
        pass
    return f'<div style="{FAINT}">{escape(" · ".join(facts))}</div><pre>{escape(repr(tensor))}</pre>'


def keyset_html(keyset: DispatchKeySet) -> str:
    """Render the keys of a key set, highest first."""
    keys = [key.name for key in keyset][::-1]
    boxes = "".join(f'<span style="{BOX}">{escape(name)}</span>' for name in keys)
    return f'<div><span style="{FAINT}">DispatchKeySet, highest first:</span> {boxes or "empty"}</div>'


def explanation_html(explanation: Explanation) -> str:
    """Render an explanation as a tree whose branches can be closed."""
    first, *lines = str(explanation).splitlines()
    branches = [(line.index("─") // 3, line.partition("─ ")[2]) if "─ " in line else (-1, line) for line in lines]
    return f"<details open><summary><code>{escape(first)}</code></summary>{_branches(branches)}</details>"


def _branches(lines: list[tuple[int, str]]) -> str:
    """Render lines with their depths as nested lists."""
    parts = []
    for text, inner in _grouped(lines):
        shown = f"<code>{escape(text)}</code>"
        parts.append(f"<li><details open><summary>{shown}</summary>{_branches(inner)}</details></li>" if inner else
                     f"<li>{shown}</li>")
    return f'<ul style="list-style:none;margin:0;padding-left:1.2em">{"".join(parts)}</ul>'


def _grouped(lines: list[tuple[int, str]]) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield the text of each line, with the deeper lines after it."""
    i = 0
    while i < len(lines):
        end = next((j for j in range(i + 1, len(lines)) if lines[j][0] <= lines[i][0]), len(lines))
        yield lines[i][1], lines[i + 1:end]
        i = end


def table(titles: Iterable[str], rows: Iterable[tuple[float, Iterable[str]]]) -> str:
    """Render a table with a bar of length 0 to 1 in each row. The first column is text, the others are numbers."""
    head = "".join(f'<th style="text-align:{"right" if i else "left"}">{escape(title)}</th>'
                   for i, title in enumerate(titles))
    body = []
    for part, cells in rows:
        columns = "".join(f'<td style="text-align:{"right" if i else "left"}">{escape(cell)}</td>'
                          for i, cell in enumerate(cells))
        bar = ('<td style="text-align:left;min-width:8em"><div style="background:currentColor;opacity:.4;height:.8em;'
               f'width:{part * 100:.1f}%"></div></td>')
        body.append(f"<tr>{columns}{bar}</tr>")
    return f"<table><thead><tr>{head}<th></th></tr></thead><tbody>{''.join(body)}</tbody></table>"


def paragraph(text: str) -> str:
    """Render text next to other output."""
    return f'<div style="{FAINT}">{escape(text)}</div>'
