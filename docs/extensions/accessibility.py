"""What Furo's pages lack for readers who use a keyboard or a screen reader: tests/site checks them with axe."""

import re
from pathlib import Path

from sphinx.application import Sphinx

REPLACED = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ('<div class="content-icon-container">', '<div class="content-icon-container" role="region" aria-label="View">'),
    ('<div id="search-results"></div>', '<h1>Search</h1><div id="search-results" aria-live="polite"></div>'),
    # What scrolls can be scrolled by keys only if it has the focus.
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)
EMPTY_HEADER = re.compile(r'<th class="head"><p></p></th>')


def accessible(html: str) -> str:
    """Return a page of Furo's with what it lacks."""
    for old, new in REPLACED:
        html = html.replace(old, new)
    return EMPTY_HEADER.sub("<td></td>", html)


def change_pages(app: Sphinx, error: Exception | None) -> None:
    """Change each page that was written."""
    if error is None and app.builder.name == "html":
        for path in Path(app.outdir).rglob("*.html"):
            path.write_text(accessible(path.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the change. It does nothing to a page that has it, which a later build leaves as it is."""
    app.connect("build-finished", change_pages)
