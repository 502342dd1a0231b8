"""Alias annotations, facts derived from schemas, equality."""

import pytest

from pydispatch.schema import AliasInfo, OperatorName, parse_schema
from pydispatch.schema.frozen import REQUIRED
from tests.schema.samples import argument


def alias(before: str = "", write: bool = False, after: str | None = None, contained: AliasInfo | None = None):
    return AliasInfo(frozenset(before), write, None if after is None else frozenset(after), contained)


@pytest.mark.parametrize(("text", "info", "mutable"), [
    ("Tensor x", None, False),
    ("Tensor(a) x", alias("a"), False),
    ("Tensor(a!) x", alias("a", True), True),
    ("Tensor(a -> b) x", alias("a", False, "b"), False),
    ("Tensor(a! -> a|b) x", alias("a", True, "ab"), True),
    ("Tensor(a -> *) x", alias("a", False, "*"), False),
    ("Tensor(a|b!) x", alias("ab", True), True),
    ("Tensor! x", alias("", True), True),
    ("Tensor(a)? x", alias("a"), False),
    ("Tensor(a)[] x", alias(contained=alias("a")), False),
    ("Tensor(a!)[] x", alias(write=True, contained=alias("a", True)), True),
    ("Tensor(a!)?[] x", alias(write=True, contained=alias("a", True)), True),
    ("Tensor[](b) x", alias("b"), False),
    ("Tensor(a)[](b) x", alias("b", contained=alias("a")), False),
    ("Tensor(a!)[](b) x", alias("b", contained=alias("a", True)), True),
    ("Tensor(a!)[][] x", alias(write=True, contained=alias(write=True, contained=alias("a", True))), True),
], ids=str)
def test_alias_annotation(text, info, mutable):
    found = argument(text)
    assert found.alias == info
    assert found.mutable is mutable


def test_facts_of_arguments():
    schema = parse_schema("f(Tensor(a!) x, Tensor y, int n=3, *, Tensor(b!) out, Tensor z) -> Tensor(b!)")
    x, y, n, out, z = schema.arguments
    assert [a.mutable for a in schema.arguments] == [True, False, False, True, False]
    assert [a.is_out for a in schema.arguments] == [False, False, False, True, False]
    assert [a.kw_only for a in schema.arguments] == [False, False, False, True, True]
    assert (n.default, n.has_default) == (3, True)
    assert (x.default, y.has_default, z.has_default, repr(REQUIRED)) == (REQUIRED, False, False, "REQUIRED")
    assert str(out) == "Tensor(b!) out"
    assert schema.is_mutable
    assert schema.returns[0].mutable
    assert not parse_schema("f(Tensor(a) x) -> Tensor(a)").is_mutable


def test_clone_with_name():
    schema = parse_schema("foo(Tensor(a!) x, *, int[2] k=1) -> (Tensor(a!) y, int)")
    clone = schema.with_name("ns::bar.ov")
    assert str(clone) == "ns::bar.ov(Tensor(a!) x, *, int[2] k=1) -> (Tensor(a!) y, int)"
    assert (clone.arguments, clone.returns, clone.overload) == (schema.arguments, schema.returns, "ov")
    assert clone.with_name(OperatorName(None, "foo")) == schema


PAIRS = [
    # (one, other, equal)
    ("int x", "int y", False),
    ("int x=1", "int x", False), ("int x=1", "int x=2", False),
    ("int? x=None", "int? x", False),
    ("float x=1", "float x=1.0", True),
    ("int[2] x=1", "int[2] x=[1,1]", True),
    ("bool x=1", "bool x=True", True),
    ("int[] x", "int[2] x", False),
    ("*, int x", "int x", False),
    ("Tensor(a) x", "Tensor(b) x", False), ("Tensor(a) x", "Tensor x", False),
    ("Tensor(a|b) x", "Tensor(b|a) x", True),
    ("Tensor(a -> a) x", "Tensor(a) x", True),
    ("ScalarType x", "int x", False),
    ("Scalar x=1", "Scalar x=1.0", False), ("Scalar x=1", "Scalar x=True", False),
    ("float x=nan", "float x=nan", True),
    ("complex x=nan+1j", "complex x=nan+1j", True),
    ("float[] x=[nan]", "float[] x=[nan]", True),
    ("int? x", "int x", False),
    ("Union(int, str) x", "Union(str, int) x", False),
    ("int?? x", "int? x", True),
]


@pytest.mark.parametrize(("one", "other", "equal"), PAIRS, ids=[f"{a} / {b}" for a, b, _ in PAIRS])
def test_equality(one, other, equal):
    a, b = parse_schema(f"f({one}) -> ()"), parse_schema(f"f({other}) -> ()")
    assert (a == b) is equal
    assert (a != b) is not equal
    assert not equal or hash(a) == hash(b)


@pytest.mark.parametrize(("one", "other", "equal"), [
    ("f() -> Tensor", "f() -> (Tensor)", True),
    ("f() -> Tensor", "f() -> Tensor y", False),
    ("f() -> Tensor x", "f() -> Tensor y", False),
    ("f() -> ((int, int))", "f() -> (int, int)", False),
    ("f() -> ()", "g() -> ()", False), ("f() -> ()", "f.a() -> ()", False), ("f() -> ()", "ns::f() -> ()", False),
    ("f(\nint x) -> ()", "f(int x) -> ()  # the same", True),
])
def test_equality_of_schemas(one, other, equal):
    assert (parse_schema(one) == parse_schema(other)) is equal


def test_list_default_is_frozen():
    default = argument("int[] x=[1, 2]").default
    assert default == (1, 2)
    assert {parse_schema("f(int[] x=[1, 2]) -> ()"): 1}
