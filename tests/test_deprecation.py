"""Deprecated functions warn at the call of the user, and are removed in the version that they name."""

import re
from pathlib import Path

import pytest

import pydispatch
from pydispatch import deprecation
from pydispatch.deprecation import Deprecation, deprecated

SOURCES = Path(pydispatch.__file__).parent


def numbers(version):
    return tuple(map(int, version.split(".")))


@pytest.fixture
def old(monkeypatch):
    monkeypatch.setattr(deprecation, "DEPRECATIONS", [])

    @deprecated("func.old", since="0.2", until="0.4", instead="func.new(x)")
    def old(x, *, y=1):
        """Return the sum."""
        return x + y
    return old


def test_a_call_warns_and_names_versions_and_what_to_write(old):
    message = re.escape(
        "func.old is deprecated since version 0.2, and will be removed in version 0.4\nwrite func.new(x)")
    with pytest.warns(DeprecationWarning, match=f"^{message}$") as caught:
        assert old(2, y=3) == 5
    assert [warning.filename for warning in caught] == [__file__]


def test_the_function_keeps_its_name_and_docstring(old):
    assert (old.__name__, old.__doc__) == ("old", "Return the sum.")


def test_it_is_listed(old):
    listed, = deprecation.DEPRECATIONS
    assert listed == Deprecation("func.old", "0.2", "0.4")


def test_nothing_outlives_its_version():
    for path in SOURCES.rglob("*.py"):
        if "@deprecated(" in path.read_text():
            __import__(".".join(("pydispatch", *path.relative_to(SOURCES).with_suffix("").parts)))
    version = numbers(pydispatch.__version__)
    assert [d.name for d in deprecation.DEPRECATIONS if numbers(d.until) <= version] == []
