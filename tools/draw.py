"""Draw the logo, the icon and the poster of the architecture. `python tools/regenerate.py` writes them.

The poster names the chapters that `pydispatch/_core.pyx` lists, and the packages with the first lines of their
docstrings.
"""

import ast
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "pydispatch"
BLUE, LIGHT_BLUE = "#0a4bff", "#7aa2ff"
INK, PAPER = "#1b1e27", "#e8eaf2"
END = "<!-- Written by `python tools/regenerate.py`. -->\n</svg>\n"

# --- the logo ---

MARK = ('<path d="M16 4 v8 M16 12 L6 22 M16 12 v10 M16 12 l10 10"/>\n  <g fill="{colour}">'
        '<circle cx="16" cy="5" r="2.5"/><circle cx="6" cy="25" r="2.5"/><circle cx="16" cy="25" r="2.5"/>'
        '<circle cx="26" cy="25" r="2.5"/></g>')
"""A call, and the kernels from which the table selects one."""

RING = "M0 -10 a10 10 0 1 1 20 0 a10 10 0 1 1 -20 0"
LETTERS = {     # the strokes on a base line at 0, and the width
    "p": (f"{RING} M0 -20 V10", 20),
    "y": ("M0 -20 L9.3 0 M18 -20 L5 10", 18),
    "d": (f"{RING} M20 -32 V0", 20),
    "i": ("M0 -20 V0 M0 -29 v0.1", 0),
    "s": ("M12 -17 A5.5 5 0 0 0 7 -20 h-1 A5 5 0 0 0 6 -10 h2 A5 5 0 0 1 8 0 h-1 A5.5 5 0 0 1 1 -3", 13),
    "a": (f"{RING} M20 -20 V0", 20),
    "t": ("M5 -29 V-5 a5 5 0 0 0 5 5 h2 M0 -20 h12", 12),
    "c": ("M17 -17.1 a10 10 0 1 0 0 14.2", 17),
    "h": ("M0 -32 V0 M0 -11 a9 9 0 0 1 18 0 V0", 18),
}


def icon() -> str:
    """Return the mark."""
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" fill="none" stroke-width="3" '
            f'stroke-linecap="round" stroke-linejoin="round" stroke="{BLUE}">\n  {MARK.format(colour=BLUE)}\n{END}')


def logo(colour: str, ink: str) -> str:
    """Return the mark beside the name, in two colours."""
    strokes, left = [], 62.0
    for letter in "pydispatch":
        path, width = LETTERS[letter]
        strokes.append(f'  <path transform="translate({left:g} 42)" d="{path}"/>')
        left += width + 9
    drawing = MARK.format(colour=colour)
    mark = f'<g transform="translate(2 6) scale(1.5)" stroke="{colour}" stroke-width="3">{drawing}</g>'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left:g} 60" role="img" fill="none" '
            f'stroke-linecap="round" stroke-linejoin="round">\n  <title>pydispatch</title>\n  {mark}\n'
            f'  <g stroke="{ink}" stroke-width="4">\n' + "\n".join(strokes) + f"\n  </g>\n{END}")


# --- the poster ---

WIDTH, LINE, EDGE, INDENT = 1120, 19, 10, 120
STYLE = """  <style>
    .poster { color: var(--color-foreground-primary, #1b1e27); }
    @media (prefers-color-scheme: dark) { .poster { color: var(--color-foreground-primary, #e8eaf2); } }
    .poster rect { fill: none; stroke: currentColor; stroke-opacity: 0.45; }
    .poster .lit { fill: #0a4bff; fill-opacity: 0.12; }
    .poster text { fill: currentColor; }
    .poster .code { font-family: ui-monospace, monospace; font-size: 12px; }
    .poster .title { font-size: 22px; font-weight: 600; }
    .poster .head { font-size: 14px; font-weight: 600; }
  </style>"""


def steps() -> list[tuple[str, str]]:
    """Return the steps of a call, with what each does."""
    text = (PACKAGE / "_core.pyx").read_text(encoding="utf-8").split('"""')[1]
    return re.findall(r"^      (\w+) +(.*)$", text, re.MULTILINE)


def chapters() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield the chapters of the core: name, what it has, and its parts."""
    text = (PACKAGE / "_core.pyx").read_text(encoding="utf-8")
    for name, about, includes in re.findall(r'^# (\w+): (.*)\n((?:include ".*\n)+)', text, re.MULTILINE):
        yield name, about, re.findall(r'^include ".*/(\w+)\.pyx" +# (.*)$', includes, re.MULTILINE)


def packages() -> Iterator[tuple[str, str]]:
    """Yield the packages that are written in Python, with the first line of each docstring."""
    for path in sorted(PACKAGE.glob("*/__init__.py")):
        if not path.parent.name.startswith("_stubs"):
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            yield path.parent.name, docstring.partition("\n")[0]


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a text of a class."""
    kind = f' class="{kind}"' if kind else ""
    return f'  <text x="{x:g}" y="{y:g}"{kind}>{escape(words, quote=False)}</text>'


def table(y: float, rows: list[tuple[str, str]], columns: int) -> tuple[list[str], float]:
    """Return rows of a name and what it is about, in columns, and the height that they take."""
    height = -(-len(rows) // columns)
    lines = []
    for index, (name, about) in enumerate(rows):
        x, below = 2 * EDGE + index // height * (WIDTH - 2 * EDGE) / columns, y + (index % height + 1) * LINE
        lines += [text(x, below, name, "code"), text(x + INDENT, below, about)]
    return lines, height * LINE


def box(y: float, head: str, rows: list[tuple[str, str]], columns: int, kind: str = "") -> tuple[list[str], float]:
    """Return a box with a heading, and the place below it."""
    lines, height = table(y + 24, rows, columns)
    kind = f' class="{kind}"' if kind else ""
    frame = f'  <rect{kind} x="{EDGE}" y="{y:g}" width="{WIDTH - 2 * EDGE}" height="{height + 36:g}" rx="6"/>'
    return [frame, text(2 * EDGE, y + 21, head, "head"), *lines], y + height + 46


def poster() -> str:
    """Return one page: a call, the chapters of the core, and the packages around it."""
    lines, y = box(44, "A call", steps(), 1, "lit")
    for name, about, parts in chapters():
        more, y = box(y, f"{name}: {about}", parts, 2)
        lines += more
    more, y = box(y, "In Python", list(packages()), 1, "lit")
    title = "The architecture of pydispatch"
    return (f'<svg class="poster" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" role="img" '
            'aria-labelledby="poster-title" font-family="system-ui, sans-serif" font-size="12.5">\n'
            f'  <title id="poster-title">{title}: the steps of a call, chapters of the core, packages</title>\n'
            + "\n".join([STYLE, text(EDGE, 28, title, "title"), *lines, *more]) + f"\n{END}")
