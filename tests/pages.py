"""Tables of pages that `python tools/regenerate.py` writes."""

import re
from collections.abc import Mapping, Sequence


def with_tables(text: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return the text of a page with these rows between `<!-- TITLE: ... -->` and `<!-- end -->`, by title."""
    for title, rows in tables.items():
        between = re.compile(rf"(<!-- {title}: .*? -->\n).*?(<!-- end -->)", re.DOTALL)
        text, found = between.subn(lambda match, rows=rows: "\n".join([match[1], *rows, "", match[2]]), text)
        if found != 1:
            raise ValueError(f"the page has {found} places for the table {title!r}: it needs one "
                             f"`<!-- {title}: ... -->` with an `<!-- end -->` after it")
    return text
