"""Schemas and names from strangers: whatever their text is, nothing of it runs and nothing is imported."""

import builtins
import sys

import pytest

from pydispatch.exceptions import SchemaError
from pydispatch.schema import parse_name, parse_schema


@pytest.fixture(autouse=True)
def nothing_ran(monkeypatch):
    """Fail a test that calls `run_evil`, or imports a module."""
    ran = []
    monkeypatch.setattr(builtins, "run_evil", lambda: ran.append(1), raising=False)
    before = set(sys.modules)
    yield
    assert ran == []
    assert set(sys.modules) == before


def default_of(text):
    """Return the default of the one argument of a schema, which can be printed."""
    schema = parse_schema(f"a::b({text}) -> ()")
    assert parse_schema(str(schema)) == schema
    return schema.arguments[0].default


@pytest.mark.parametrize(("text", "expected"), [
    ('str x="run_evil()"', "run_evil()"),
    ("str x='{run_evil()}'", "{run_evil()}"),
    ("str x=\"__import__('antigravity')\"", "__import__('antigravity')"),
    ("str x='%(run_evil)s'", "%(run_evil)s"),
    ("str x='''run_evil()'''", "run_evil()"),
])
def test_texts_stay_texts(text, expected):
    assert default_of(text) == expected


@pytest.mark.parametrize("text", [
    "int x=run_evil()", "int x=(run_evil())", "int[] x=[run_evil()]", "Any x=run_evil", "float x=1+run_evil()",
    "str x=f'{run_evil()}'", "str x='' 'run_evil()'", "ScalarType x=run_evil",
    "antigravity.run x", "this.Zen x", "os.system x", "Tensor x=lambda: run_evil()", "Tensor(run_evil()) x",
    "int[run_evil()] x", "Tensor x\0", "Tensor \N{FULLWIDTH LATIN SMALL LETTER X}", "str x='\\N{BULLET}'",
    "Tensor x) -> ()\nrun_evil(", "Tensor x) -> (); run_evil(",
])
def test_expressions_are_refused(text):
    with pytest.raises(SchemaError, match="cannot read schema"):
        default_of(text)


@pytest.mark.parametrize("text", [
    "run_evil()", "a::run_evil()", "a::b.__class__", "a::b.__init__", "a::class", "a::b\nrun_evil()", "a::b c", "::b",
    "a::", "a::b;run_evil()", "\N{LATIN SMALL LIGATURE FI}::b", "a::b\0", "../a::b", "a.b::c", "",
])
def test_names_are_identifiers(text):
    with pytest.raises(SchemaError):
        parse_name(text)


@pytest.mark.parametrize("text", [
    "(" * 5000 + "Tensor" + ")" * 5000 + " x", "Tensor" + "[]" * 5000 + " x", "int[] x=" + "[" * 5000 + "]" * 5000,
    "int x=" + "9" * 10_000,
], ids=["tuples", "lists", "defaults", "digits"])
def test_depth_and_length_end_in_an_error(text):
    with pytest.raises((SchemaError, RecursionError)):
        default_of(text)
