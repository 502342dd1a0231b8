"""Pages get what Furo's lack, once."""

import pytest

pytest.importorskip("sphinx")
from extensions.accessibility import EMPTY_HEADER, REPLACED, accessible


@pytest.mark.parametrize(("old", "new"), REPLACED, ids=[old for old, _ in REPLACED])
def test_each_part_is_changed_once(old, new):
    page = f"<body>{old}</body>"
    assert accessible(page) == f"<body>{new}</body>"
    assert accessible(accessible(page)) == accessible(page)


def test_an_empty_header_is_a_cell():
    table = '<tr><th class="head"><p></p></th><th class="head"><p>x</p></th></tr>'
    assert accessible(table) == '<tr><td></td><th class="head"><p>x</p></th></tr>'
    assert not EMPTY_HEADER.search(accessible(table))
