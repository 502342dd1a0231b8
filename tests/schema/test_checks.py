"""The stricter dialect, and tags."""

import pytest

from pydispatch.exceptions import SchemaError
from pydispatch.schema import parse_schema
from pydispatch.schema.checks import check_strict, check_tags
from tests.schema.samples import assert_says


@pytest.mark.parametrize(("text", "tags"), [
    ("f(Tensor x) -> Tensor", ()),
    ("f(Tensor(a) x) -> Tensor(a)", ()),
    ("f(Tensor(a|b) x) -> Tensor(a|b)", ()),
    ("f_(Tensor(a!) x) -> Tensor(a!)", ["inplace"]),
    ("f_(Tensor(a!) x) -> ()", ["pointwise"]),
    ("f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", ["out"]),
    ("f.out(Tensor x, *, Tensor(a!) y, Tensor(b!) z) -> (Tensor(a!), Tensor(b!))", ["out", "pointwise"]),
])
def test_strict(text, tags):
    check_strict(text, tags)
    check_strict(parse_schema(text), tags)


@pytest.mark.parametrize(("text", "parts"), [
    ("f(Tensor x)->Tensor", ["not canonical", "`f(Tensor x) -> Tensor`"]),
    ("f(Tensor(ab) x) -> ()", ["'ab'", "lower-case letter"]),
    ("f(Tensor(A) x) -> ()", ["'A'", "lower-case letter"]),
    ("f(Tensor(a)[](bc) x) -> ()", ["'bc'"]),
    ("f(Tensor(ab)[] x) -> ()", ["'ab'"]),
    ("f(Tensor(a|b!) x) -> ()", ["(a|b!)", "several sets"]),
    ("f(Tensor(a!) x) -> (Tensor(a!), int)", ["only some of the returns are annotated as written to"]),
    ("f(Tensor x, Tensor(a!) y) -> Tensor(a!)", ["neither an out argument nor the first"]),
    ("f(Tensor x) -> Tensor(a!)", ["neither an out argument nor the first"]),
    ("f(Tensor x, *, Tensor(a!) out) -> Tensor", ["not the out arguments in order", "(Tensor(a!))"]),
    ("f(*, Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor(a!))",
     ["not the out arguments in order", "(Tensor(a!), Tensor(b!))"]),
])
def test_not_strict(text, parts):
    with pytest.raises(SchemaError) as raised:
        check_strict(text)
    assert_says(str(raised.value), str(parse_schema(text)), *parts)


@pytest.mark.parametrize(("text", "tag", "part"), [
    ("f(Tensor x) -> Tensor", "out", "no argument is written to"),
    ("f(Tensor(a!) x) -> Tensor(a!)", "out", "`Tensor(a!) x` is not a keyword-only array"),
    ("f(*, Tensor(a!)[] out) -> Tensor(a!)[]", "out", "is not a keyword-only array"),
    ("f(Tensor x, *, Tensor(a!) out) -> Tensor", "out", "not the out arguments in order"),
    ("f(Tensor x, *, Tensor(a!) out) -> ()", "out", "not the out arguments in order"),
    ("f(Tensor x) -> Tensor", "inplace", "does not write to exactly its first argument"),
    ("f() -> ()", "inplace", "does not write to exactly its first argument"),
    ("f(Tensor x, Tensor(a!) y) -> Tensor(a!)", "inplace", "does not write to exactly its first argument"),
    ("f(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)", "inplace", "does not write to exactly its first argument"),
    ("f(Tensor(a!)[] x) -> Tensor(a!)[]", "inplace", "does not write to exactly its first argument"),
    ("f(*, Tensor(a!) x) -> Tensor(a!)", "inplace", "does not write to exactly its first argument"),
    ("f(Tensor(a!) x) -> Tensor", "inplace", "does not return its first argument"),
    ("f(Tensor(a!) x) -> ()", "inplace", "does not return its first argument"),
])
def test_tags(text, tag, part):
    schema = parse_schema(text)
    with pytest.raises(SchemaError) as raised:
        check_tags(schema, [tag])
    assert_says(str(raised.value), text, part, "\nReturn `(" if "order" in part else f"tagged `{tag}`")
