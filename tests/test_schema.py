"""Names, types and schemas: the tables of the specification, row by row, and laws over generated schemas."""

from __future__ import annotations

import copy
import enum
import functools
import itertools
import math
import numbers
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Optional

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydispatch import schema as module
from pydispatch.exceptions import RegistrationError, SchemaError
from pydispatch.schema import (
    DEVICE,
    REQUIRED,
    RESERVED_WORDS,
    AliasInfo,
    Argument,
    OpaqueType,
    OperatorName,
    Return,
    Schema,
    check_strict,
    check_tags,
    compare_signature,
    first_difference,
    infer_kernel_schema,
    infer_schema,
    parse_name,
    parse_schema,
    parse_schema_or_name,
    parse_signature,
    register_opaque_type,
    same_value,
    unregister_opaque_type,
    validate_namespace,
)


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Plan:
    """An opaque class of the user."""


@pytest.fixture(scope="module", autouse=True)
def _registered_types():
    classes = (Color, Access, Plan)
    for cls in classes:
        register_opaque_type(cls)
    yield
    for cls in classes:
        unregister_opaque_type(cls)


def argument(text: str) -> Argument:
    """The one argument of a schema."""
    return parse_signature(f"({text}) -> ()").arguments[0]


def message_of(text: str, parse=parse_schema) -> str:
    with pytest.raises(SchemaError) as raised:
        parse(text)
    return str(raised.value)


def caret(message: str) -> str:
    """What stands at the caret of a message."""
    *_, line, mark = message.splitlines()
    return line[mark.index("^") :]


def assert_says(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message


# --- names (section 1) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("foo", (None, "foo", "")),
        ("_foo", (None, "_foo", "")),
        ("foo2", (None, "foo2", "")),
        ("ns::foo", ("ns", "foo", "")),
        ("ns::foo.ov", ("ns", "foo", "ov")),
        ("foo.ov", (None, "foo", "ov")),
        ("_::foo", ("_", "foo", "")),
        ("ns::foo._x", ("ns", "foo", "_x")),
        ("ns :: foo .ov", ("ns", "foo", "ov")),
        ("ns\t::foo. ov", ("ns", "foo", "ov")),
        ("foo\n", (None, "foo", "")),
        ("foo  # a comment", (None, "foo", "")),
        ("foo # a comment\n", (None, "foo", "")),
        *[(word, (None, word, "")) for word in ("lambda", "from", "try", "except", "yield", "async", "await")],
        *[(word, (None, word, "")) for word in ("nonlocal", "finally", "match", "type", "print", "inf", "self")],
        ("Tensor::out.Tensor", ("Tensor", "out", "Tensor")),
    ],
)
def test_name(text, fields):
    name = parse_name(text)
    assert (name.namespace, name.name, name.overload) == fields
    assert parse_name(str(name)) == name
    assert str(name) == text.split("#")[0].replace(" ", "").replace("\t", "").strip()


@pytest.mark.parametrize(
    ("text", "at", "parts"),
    [
        ("a::b::c", "::c", ["the end of the name", "found '::'"]),
        ("ns:foo", ":foo", ["found ':'"]),
        ("::foo", "::foo", ["the name of an operator", "found '::'"]),
        ("ns::", "", ["after '::'", "the end of the text"]),
        ("ns::foo.", "", ["the name of an overload", "the end of the text"]),
        ("ns.x::foo", "::foo", ["found '::'"]),
        ("ns::foo.a.b", ".b", ["found '.'"]),
        ("foo-bar", "-bar", ["found '-'"]),
        ("1foo", "1foo", ["found '1foo'"]),
        ("ns::foo.2", ".2", ["found '.2'"]),
        ("ns::foo.default", "default", ["'default' is not a legal overload name"]),
        ("ns::foo.__x", "__x", ["'__x' is not a legal overload name"]),
        ("ns::for", "for", ["reserved word 'for'"]),
        ("if::foo", "if::foo", ["reserved word 'if'"]),
        ("ns::foo.is", "is", ["reserved word 'is'"]),
        ("ns::None", "None", ["reserved word 'None'"]),
        ("", "", ["the name of an operator", "found the end of the text"]),
        ("naïve", "ïve", ["found 'ï'"]),
        ("foo bar", "bar", ["the end of the name", "found 'bar'"]),
        ("foo\nbar", "", ["the end of the name", "the end of the line"]),
        ("foo(Tensor x) -> ()", "(Tensor x) -> ()", ["expected a name, found a schema", "`foo`"]),
        *[(word, word, [f"reserved word {word!r}"]) for word in sorted(RESERVED_WORDS)],
    ],
)
def test_name_refused(text, at, parts):
    message = message_of(text, parse_name)
    assert_says(message, *parts)
    assert caret(message) == at


def test_name_is_a_text():
    assert_says(message_of(3, parse_name), "expected a name as text, found int 3")
    assert_says(message_of(None), "expected a schema as text, found NoneType None")


def test_schema_or_name():
    assert parse_schema_or_name("ns::foo.ov") == OperatorName("ns", "foo", "ov")
    assert parse_schema_or_name("ns::foo() -> ()") == parse_schema("ns::foo() -> ()")
    assert caret(message_of("ns::foo x", parse_schema_or_name)) == "x"
    message = message_of("ns::foo")
    assert_says(message, "expected a schema, found a name", "ns::foo(Tensor x) -> Tensor")


def test_namespace_is_set_when_not_set():
    name = parse_name("foo.ov")
    assert name.with_namespace("ns") == OperatorName("ns", "foo", "ov")
    assert (name.qualified, name.with_namespace("ns").qualified) == ("foo", "ns::foo")
    qualified = parse_name("a::foo")
    assert qualified.with_namespace("b") is qualified
    schema = parse_schema("foo(Tensor x) -> Tensor")
    assert str(schema.with_namespace("ns")) == "ns::foo(Tensor x) -> Tensor"
    assert schema.with_namespace("ns").with_namespace("b") == schema.with_namespace("ns")
    nameless = parse_signature("() -> ()")
    assert nameless.with_namespace("ns") is nameless


def test_clone_with_name():
    schema = parse_schema("foo(Tensor(a!) x, *, int[2] k=1) -> (Tensor(a!) y, int)")
    clone = schema.with_name("ns::bar.ov")
    assert str(clone) == "ns::bar.ov(Tensor(a!) x, *, int[2] k=1) -> (Tensor(a!) y, int)"
    assert (clone.arguments, clone.returns, clone.overload) == (schema.arguments, schema.returns, "ov")
    assert clone.with_name(OperatorName(None, "foo")) == schema


@pytest.mark.parametrize("text", ["ns", "_", "n2", "lambda"])
def test_namespace(text):
    assert validate_namespace(text) == text


@pytest.mark.parametrize("text", ["", "a::b", "has space", "1x", "for", "a.b", "é", None])
def test_namespace_refused(text):
    with pytest.raises(SchemaError) as raised:
        validate_namespace(text)
    assert repr(text) in str(raised.value)


# --- schemas that are accepted, and how they print (2.1, 2.7) -------------------------------------------------

SAME = object()
ACCEPTED = [
    ("f() -> ()", SAME),
    ("f(Tensor x) -> Tensor", SAME),
    ("ns::f.ov(Tensor x) -> Tensor", SAME),
    ("f(Tensor x) -> (Tensor)", "f(Tensor x) -> Tensor"),
    ("f(Tensor x) -> (Tensor, int)", SAME),
    ("f(Tensor x) -> ((Tensor, int))", SAME),
    ("f(Tensor x) -> ((Tensor, int)?)", SAME),
    ("f(Tensor x) -> ((Tensor, int)[] pairs)", SAME),
    ("f(Tensor x) -> (())", SAME),
    ("f(Tensor x) -> ((Tensor, int), int)", SAME),
    ("f(Tensor x) -> Tensor y", SAME),
    ("f(Tensor x) -> (Tensor y, int)", SAME),
    ("f(Tensor x) -> (int, Tensor y)", SAME),
    ("f(Tensor x) -> Tensor[2]", SAME),
    ("f(  Tensor  x ,int y )->( Tensor )", "f(Tensor x, int y) -> Tensor"),
    ("f(\n  Tensor x,  # the input\n  int y\n) -> Tensor\n", "f(Tensor x, int y) -> Tensor"),
    ("f(Tensor x) -> (\nTensor\n)", "f(Tensor x) -> Tensor"),
    ("f(Tensor x) -> Tensor # done", "f(Tensor x) -> Tensor"),
    ("f(Tensor x) -> Tensor # done\n", "f(Tensor x) -> Tensor"),
    ("f(*) -> ()", "f() -> ()"),
    ("f(Tensor a, *) -> ()", "f(Tensor a) -> ()"),
    ("f(*, Tensor a, *, Tensor b) -> ()", "f(*, Tensor a, Tensor b) -> ()"),
    ("f(*, int a=1, int b) -> ()", SAME),
    ("f(int a=1, int[] b) -> ()", SAME),
    ("f(int a=1, Tensor[2] b) -> ()", SAME),
    # types
    *[(f"f({name} x) -> {name}", SAME) for name in module.BASE_TYPES],
    ("f(int? x, int[] y, int[2] z, int[2]? w) -> ()", SAME),
    ("f(int?? x) -> ()", "f(int? x) -> ()"),
    ("f(int[]? x, int?[] y, int?[]? z, Tensor?[] w) -> ()", SAME),
    ("f(int[][] x, int[][2] y, Tensor[][] z) -> ()", SAME),
    ("f((int, Tensor) x, () y, (int) z, (int, (str, bool[])[])? w) -> ()", SAME),
    ("f(Dict(str, Tensor) x, Dict(int, int[])[]? y) -> ()", SAME),
    ("f(Union(int, str) x) -> ()", SAME),
    ("f(Union(int, None) x) -> ()", "f(int? x) -> ()"),
    ("f(Union(int, NoneType) x) -> ()", "f(int? x) -> ()"),
    ("f(Union(int) x, Union(int, int) y) -> ()", "f(int x, int y) -> ()"),
    ("f(Union(int?, str) x) -> ()", "f(Union(int, str)? x) -> ()"),
    ("f(Union(int, Union(str, bool)) x) -> ()", "f(Union(int, str, bool) x) -> ()"),
    ("f(Color c, Plan p, Color[] cs, Plan? q) -> Plan", SAME),
    # alias annotations
    ("f(Tensor(a) x, Tensor(a!) y, Tensor(a -> b) z) -> Tensor(a)", SAME),
    ("f(Tensor(a! -> a|b) x, Tensor(a -> *) y, Tensor(*) z) -> ()", SAME),
    ("f(Tensor(b|a) x) -> ()", "f(Tensor(a|b) x) -> ()"),
    ("f(Tensor(a|*) x) -> ()", "f(Tensor(*|a) x) -> ()"),
    ("f(Tensor(a|b!) x) -> ()", SAME),
    ("f(Tensor(a -> a) x) -> ()", "f(Tensor(a) x) -> ()"),
    ("f(Tensor! x) -> ()", SAME),
    ("f(Tensor![] x, Tensor[]! y, Tensor(a)[]! z) -> ()", SAME),
    ("f(Tensor(a)? x, Tensor(a)?[] y, Tensor(a!)?[]? z) -> ()", SAME),
    ("f(Tensor(a)[] x, Tensor[](b) y, Tensor(a)[](b) z, Tensor(a!)[] w) -> ()", SAME),
    ("f(Tensor(a!)[2](b)? x, Tensor(a)[][](c)? y) -> ()", SAME),
    ("f(int(a) x, Dict(str, Tensor)(a!) y, Union(Tensor, int)(a) z) -> ()", SAME),
    ("f(Union(Tensor, None)(a) x) -> ()", "f(Tensor(a)? x) -> ()"),
    # defaults
    ("f(int x=1, int y=-1, int z=007) -> ()", "f(int x=1, int y=-1, int z=7) -> ()"),
    ("f(int x=9223372036854775807, int y=-9223372036854775808) -> ()", SAME),
    ("f(int x=True) -> ()", "f(int x=1) -> ()"),
    ("f(int? x=None, int? y=1) -> ()", SAME),
    ("f(float x=1) -> ()", "f(float x=1.0) -> ()"),
    ("f(float x=1., float y=.5, float z=-1e-3) -> ()", "f(float x=1.0, float y=0.5, float z=-0.001) -> ()"),
    ("f(float x=0.1, float y=1e+20, float z=-0.0) -> ()", SAME),
    ("f(float x=inf, float y=-inf, float z=nan) -> ()", SAME),
    ("f(bool x=True, bool y=False) -> ()", SAME),
    ("f(bool x=1, bool y=0) -> ()", "f(bool x=True, bool y=False) -> ()"),
    ("f(str x='a') -> ()", 'f(str x="a") -> ()'),
    ("f(str? x=None, str y=\"\") -> ()", SAME),
    (r"""f(str x="\\ \' \" \n \t \a \b \f \v \033") -> ()""", SAME),
    ("f(str x='''two\nlines''') -> ()", r'f(str x="two\nlines") -> ()'),
    ('f(str x="""a "quoted" word""") -> ()', r'f(str x="a \"quoted\" word") -> ()'),
    ("f(str x='naïve # no comment') -> ()", 'f(str x="naïve # no comment") -> ()'),
    ("f(complex x=1j) -> ()", SAME),
    ("f(complex x=1) -> ()", "f(complex x=1+0j) -> ()"),
    ("f(complex x=-1.5-2j, complex y=-0.0+infj) -> ()", "f(complex x=-1.5-2j, complex y=-0+infj) -> ()"),
    ("f(complex x=1 + 2j) -> ()", "f(complex x=1+2j) -> ()"),
    ("f(Scalar a=1, Scalar b=1.0, Scalar c=True, Scalar d=2j, Scalar? e=None) -> ()", SAME),
    ("f(ScalarType x=float32, ScalarType? y=None, ScalarType z=bool) -> ()", SAME),
    ("f(ScalarType x='float32') -> ()", "f(ScalarType x=float32) -> ()"),
    ("f(ScalarType x='>f4') -> ()", 'f(ScalarType x=">f4") -> ()'),
    ("f(Device x='cpu') -> ()", 'f(Device x="CPU") -> ()'),
    ("f(Device? x='META', Device? y=None) -> ()", 'f(Device? x="Meta", Device? y=None) -> ()'),
    ("f(Generator? x=None, Plan? y=None, Tensor? z=None, Tensor[]? w=None) -> ()", SAME),
    ("f(Color x=Color.RED, Color? y=Color.GREEN, Color[] z=[Color.RED]) -> ()", SAME),
    ("f(int[] x=[], int[] y=[1, 1], int[2] z=[1, 2]) -> ()", SAME),
    ("f(int[2] x=1, int[2] y=[1, 1], int[0] z=1) -> ()", "f(int[2] x=1, int[2] y=1, int[0] z=[]) -> ()"),
    ("f(int[1] x=1, int[2] y=[1, 1, 1]) -> ()", "f(int[1] x=[1], int[2] y=[1, 1, 1]) -> ()"),
    ("f(float[2] x=1, bool[2] y=True) -> ()", "f(float[2] x=[1.0, 1.0], bool[2] y=[True, True]) -> ()"),
    ("f(str[] x=['a', \"b\"]) -> ()", 'f(str[] x=["a", "b"]) -> ()'),
    ("f(Scalar[] x=[1, 1.0], bool[] y=[True], str[] z=[]) -> ()", SAME),
    ("f(int[]? x=[], int[]? y=[1], int[2]? z=1, int[]? w=None) -> ()", SAME),
    ("f(ScalarType[] x=[float32, int8], int?[] y=[1, None]) -> ()", SAME),
    ("f((int, str) x=[1, 'a'], int[][] y=[[1], []]) -> ()", 'f((int, str) x=[1, "a"], int[][] y=[[1], []]) -> ()'),
    ('f(Union(int, str) x=1, Union(int, str) y="a", Union(float, int) z=1) -> ()', SAME),
    ('f(Union(ScalarType, str) x=">f4", Union(ScalarType, int) y=">f4") -> ()', SAME),
    ("f(ScalarType x='M8[ns]') -> ()", 'f(ScalarType x="<M8[ns]") -> ()'),
    ("f(Union(str, ScalarType) x=float32, Union(str, Color) y=Color.RED) -> ()", SAME),
    ('f(Any x=None, Any y=1.0, Any? z="a", Any w=[1, [2]]) -> ()', SAME),
]


@pytest.mark.parametrize(("text", "printed"), ACCEPTED, ids=[text for text, _ in ACCEPTED])
def test_accepted(text, printed):
    schema = parse_schema(text)
    assert str(schema) == (text if printed is SAME else printed)
    again = parse_schema(str(schema))
    assert again == schema
    assert hash(again) == hash(schema)
    assert str(again) == str(schema)


def test_nameless_schemas():
    schema = parse_signature("(Tensor x) -> Tensor")
    assert schema.name is None
    assert schema.overload == ""
    assert str(schema) == "(Tensor x) -> Tensor"
    assert schema.with_name("ns::f") == parse_schema("ns::f(Tensor x) -> Tensor")


def test_64_arguments():
    names = [f"x{i}" for i in range(65)]
    assert len(parse_signature(f"({', '.join(f'int {name}' for name in names[:64])}) -> ()").arguments) == 64
    message = message_of(f"f({', '.join(f'int {name}' for name in names)}) -> ()")
    assert_says(message, "more than 64 arguments", "Tensor[] xs")
    assert caret(message).startswith("int x64")


# --- schemas that are refused ---------------------------------------------------------------------------------

REFUSED = [
    # (text, what stands at the caret, parts of the message)
    ("f(Tensor x)", "", ["'->'", "the end of the text", "`-> ()` returns nothing"]),
    ("f(Tensor x) - > ()", "- > ()", ["'->'", "'-'"]),
    ("f(Tensor) -> ()", ") -> ()", ["the name of the argument", "found ')'", "`Tensor x`"]),
    ("f(Tensor x,) -> ()", ") -> ()", ["expected a type", "found ')'"]),
    ("f(Tensor x int y) -> ()", "int y) -> ()", ["',' or ')'", "found 'int'"]),
    ("f(Tensor x -> ()", "-> ()", ["',' or ')'", "found '->'"]),
    ("f(, Tensor x) -> ()", ", Tensor x) -> ()", ["expected a type"]),
    ("f(Tensor x) -> Tensor, int", ", int", ["the end of the schema", "found ','"]),
    ("f(Tensor x) -> (Tensor,)", ")", ["expected a type"]),
    ("f(Tensor x) -> (*)", "*)", ["expected a type", "'*'"]),
    ("f(Tensor x) -> int=1", "=1", ["the end of the schema", "'='"]),
    ("f(Tensor x) -> (int y=1)", "=1)", ["',' or ')'", "'='"]),
    ("f(Tensor x) -> (Tensor, int)[]", "[]", ["the end of the schema", "'['"]),
    ("f(Tensor x) ->", "", ["expected a type", "the end of the text"]),
    ("f(Tensor x) -> ()\ng(Tensor x) -> ()", "", ["the end of the schema", "the end of the line"]),
    ("f(Tensor x) -> () g", "g", ["the end of the schema"]),
    ("f\n(Tensor x) -> ()", "", ["the end of the line"]),
    ("f(Tensor @) -> ()", "@) -> ()", ["found '@'"]),
    ("f(Tensor is) -> ()", "is) -> ()", ["reserved word 'is'"]),
    ("f(Tensor x) -> Tensor for", "for", ["reserved word 'for'"]),
    # duplicates
    ("f(Tensor x, int x) -> ()", "x) -> ()", ["two arguments are named 'x'"]),
    ("f(Tensor x) -> (Tensor y, int y)", "y)", ["two returns are named 'y'"]),
    # order of defaults
    ("f(int a=1, int b) -> ()", "b) -> ()", ["'b' has no default", "'a'", "`*, int b`"]),
    ("f(int a=1, int? b) -> ()", "b) -> ()", ["'b' has no default"]),
    ("f(int a=1, int[]? b) -> ()", "b) -> ()", ["'b' has no default"]),
    # types
    ("f(double x) -> ()", "double x) -> ()", ["'double'", "`float`"]),
    ("f(int64_t x) -> ()", "int64_t x) -> ()", ["'int64_t'", "`int`"]),
    ("f(tensor x) -> ()", "tensor x) -> ()", ["'tensor'", "`Tensor`"]),
    ("f(Int x) -> ()", "Int x) -> ()", ["'Int'", "`int`"]),
    ("f(object x) -> ()", "object x) -> ()", ["'object'", "`Any`"]),
    ("f(number x) -> ()", "number x) -> ()", ["'number'", "`Scalar`"]),
    ("f(Optional[int] x) -> ()", "Optional[int] x) -> ()", ["'Optional'", "`int?`"]),
    ("f(List[int] x) -> ()", "List[int] x) -> ()", ["'List'", "`int[]`"]),
    ("f(list x) -> ()", "list x) -> ()", ["'list'", "`T[]`"]),
    ("f(dict x) -> ()", "dict x) -> ()", ["'dict'", "`Dict`"]),
    ("f(t x) -> t", "t x) -> t", ["no type variables", "`Any`"]),
    ("f(Nonsense x) -> ()", "Nonsense x) -> ()", ["unknown type 'Nonsense'", "Tensor, int", "Color", "Union(A, B)"]),
    ("f(None x) -> ()", "None x) -> ()", ["'None'", "`T?`"]),
    ("f(int[2][] x) -> ()", "[] x) -> ()", ["outermost list"]),
    ("f(int[2]?[] x) -> ()", "[] x) -> ()", ["outermost list"]),
    ("f(int[1.5] x) -> ()", "1.5] x) -> ()", ["the size of the list", "'1.5'"]),
    ("f(int[0x2] x) -> ()", "0x2] x) -> ()", ["the size of the list", "'0x2'"]),
    ("f(int[-1] x) -> ()", "-1] x) -> ()", ["the size of the list", "'-'"]),
    ("f(int[n] x) -> ()", "n] x) -> ()", ["the size of the list", "'n'"]),
    ("f((int[2], int) x) -> ()", "2], int) x) -> ()", ["no size hint inside a tuple"]),
    ("f(Dict(str) x) -> ()", ") x) -> ()", ["a Dict has two types"]),
    ("f(Dict() x) -> ()", ") x) -> ()", ["a Dict has two types"]),
    ("f(Dict x) -> ()", "x) -> ()", ["expected '('", "Dict(str, Tensor)"]),
    ("f(Union() x) -> ()", ") x) -> ()", ["at least one type"]),
    ("f(Union(None) x) -> ()", ") x) -> ()", ["at least one type"]),
    ("f((int, ) x) -> ()", ") x) -> ()", ["expected a type"]),
    # alias annotations
    ("f(Tensor() x) -> ()", ") x) -> ()", ["the name of an alias set"]),
    ("f(Tensor(!) x) -> ()", "!) x) -> ()", ["the name of an alias set"]),
    ("f(Tensor(-> a) x) -> ()", "-> a) x) -> ()", ["the name of an alias set"]),
    ("f(Tensor(a -> ) x) -> ()", ") x) -> ()", ["the name of an alias set"]),
    ("f(Tensor(a, b) x) -> ()", ", b) x) -> ()", ["')' after an alias annotation", "(a|b!)"]),
    ("f(Tensor(a!|b) x) -> ()", "|b) x) -> ()", ["')' after an alias annotation"]),
    ("f(Tensor(a -> b!) x) -> ()", "!) x) -> ()", ["')' after an alias annotation"]),
    ("f(Tensor(1) x) -> ()", "1) x) -> ()", ["the name of an alias set"]),
    ("f(Tensor(a.b) x) -> ()", ".b) x) -> ()", ["')' after an alias annotation"]),
    ("f(Tensor(for) x) -> ()", "for) x) -> ()", ["reserved word 'for'"]),
    ("f(Tensor?(a) x) -> ()", "(a) x) -> ()", ["the name of the argument", "'('"]),
    ("f((Tensor(a), Tensor) x) -> ()", "(a), Tensor) x) -> ()", ["no alias annotation inside a tuple"]),
    ("f(Dict(str, Tensor(a)) x) -> ()", "(a)) x) -> ()", ["no alias annotation inside a tuple, Dict"]),
    ("f(Union(Tensor(a), int) x) -> ()", "(a), int) x) -> ()", ["no alias annotation"]),
    ("f((Tensor!, int) x) -> ()", "!, int) x) -> ()", ["no alias annotation"]),
    ("f((Tensor, int)(a) x) -> ()", "(a) x) -> ()", ["no alias annotation"]),
    ("f(Tensor (a b) x) -> ()", "b) x) -> ()", ["')' after an alias annotation"]),
    # defaults
    ("f(int x=1.5) -> ()", "1.5) -> ()", ["'x' of type int", "expected int, found float 1.5"]),
    ("f(int x=None) -> ()", "None) -> ()", ["'x' of type int", "expected int, found NoneType None"]),
    ("f(int x='a') -> ()", "'a') -> ()", ["expected int, found str 'a'"]),
    ("f(int? x='a') -> ()", "'a') -> ()", ["expected int?, found str 'a'"]),
    ("f(int x=9223372036854775808) -> ()", "9223372036854775808) -> ()", ["more than 64 bits"]),
    ("f(Scalar x=-9223372036854775809) -> ()", "-9223372036854775809) -> ()", ["more than 64 bits"]),
    (f"f(int x={'9' * 5000}) -> ()", "9" * 5000 + ") -> ()", ["more than 64 bits"]),
    ("f(int x=0x10) -> ()", "0x10) -> ()", ["expected a number", "'0x10'", "decimal"]),
    ("f(int x=1_000) -> ()", "1_000) -> ()", ["expected a number", "'1_000'"]),
    ("f(int x=+1) -> ()", "+1) -> ()", ["expected a default", "'+'"]),
    ("f(int x=--1) -> ()", "-1) -> ()", ["expected a number"]),
    ("f(int x=) -> ()", ") -> ()", ["expected a default", "')'"]),
    ("f(int x=inf) -> ()", "inf) -> ()", ["expected int, found float inf"]),
    ("f(int x=foo) -> ()", "foo) -> ()", ["'foo' is not a value of type int", "'foo'"]),
    ("f(float x='a') -> ()", "'a') -> ()", ["expected float, found str 'a'"]),
    ("f(float x=None) -> ()", "None) -> ()", ["expected float"]),
    ("f(float x=1j) -> ()", "1j) -> ()", ["expected float, found complex 1j"]),
    ("f(float x=1+2) -> ()", "2) -> ()", ["an imaginary part"]),
    ("f(bool x=true) -> ()", "true) -> ()", ["'true' is not a value of type bool"]),
    ("f(bool x=2) -> ()", "2) -> ()", ["expected bool, found int 2"]),
    ("f(bool x=1.0) -> ()", "1.0) -> ()", ["expected bool, found float 1.0"]),
    ("f(str x=1) -> ()", "1) -> ()", ["expected str, found int 1"]),
    ("f(str x=None) -> ()", "None) -> ()", ["expected str"]),
    ("f(str x=abc) -> ()", "abc) -> ()", ["'abc' is not a value of type str", "`'abc'`"]),
    ("f(str x='abc) -> ()", "'abc) -> ()", ["expected a default"]),
    (r"f(str x='\x41') -> ()", r"'\x41') -> ()", [r"unknown escape '\x'", "octal"]),
    (r"f(str x='\u0041') -> ()", r"'\u0041') -> ()", [r"unknown escape '\u'"]),
    ("f(Scalar x='a') -> ()", "'a') -> ()", ["expected Scalar, found str 'a'"]),
    ("f(Tensor x=1) -> ()", "1) -> ()", ["'x' of type Tensor", "no literal", "`Tensor? x=None`"]),
    ("f(Tensor x=None) -> ()", "None) -> ()", ["expected Tensor, found NoneType None"]),
    ("f(Tensor? x=1) -> ()", "1) -> ()", ["no literal", "`Tensor? x=None`"]),
    ("f(Tensor[] x=[]) -> ()", "[]) -> ()", ["no literal", "`Tensor[]? x=None`"]),
    ("f(Tensor?[] x=[None]) -> ()", "[None]) -> ()", ["no literal"]),
    ("f(Generator x=None) -> ()", "None) -> ()", ["expected Generator"]),
    ("f(Plan x=None) -> ()", "None) -> ()", ["expected Plan"]),
    ("f(Device x=cpu) -> ()", "cpu) -> ()", ["'cpu' is not a value of type Device", "`'cpu'`"]),
    ("f(Device x='abacus') -> ()", "'abacus') -> ()", ["expected Device, found str 'abacus'", "CPU", "Meta"]),
    ("f(Device x=None) -> ()", "None) -> ()", ["expected Device"]),
    ("f(ScalarType x=6) -> ()", "6) -> ()", ["expected ScalarType, found int 6"]),
    ("f(ScalarType x=None) -> ()", "None) -> ()", ["expected ScalarType"]),
    ("f(Color x=RED) -> ()", "RED) -> ()", ["'RED'", "Color.RED, Color.GREEN"]),
    ("f(Color x=Color.BLUE) -> ()", "Color.BLUE) -> ()", ["'Color.BLUE'", "Color.RED"]),
    ("f(Color x=1) -> ()", "1) -> ()", ["expected Color, found int 1"]),
    *[(f"f(int x={word}) -> ()", f"{word}) -> ()", [f"{word!r} is not a value of type int"])
      for word in ("float", "complex", "long", "strided", "Mean", "contiguous_format", "float32")],
    *[(f"f(ScalarType x={word}) -> ()", f"{word}) -> ()", [f"{word!r}", "name of a dtype"])
      for word in ("float", "complex", "double", "f8", "strided", "Mean", "nonsense")],
    ("f(int[] x=1) -> ()", "1) -> ()", ["expected int[], found int 1"]),
    ("f(int[] x=[1.5]) -> ()", "[1.5]) -> ()", ["expected int[], found tuple (1.5,)", "element 0"]),
    ("f(int[] x=[1,]) -> ()", "]) -> ()", ["expected a default"]),
    ("f(int[] x=[1) -> ()", ") -> ()", ["',' or ']'"]),
    ("f(str[2] x='a') -> ()", "'a') -> ()", ["expected str[], found str 'a'"]),
    ("f((int, str) x=[1]) -> ()", "[1]) -> ()", ["expected (int, str)", "length 1"]),
    ("f(Dict(str, int) x=1) -> ()", "1) -> ()", ["expected Dict(str, int), found int 1"]),
    ("f(Any x=foo) -> ()", "foo) -> ()", ["'foo' is not a value of type Any"]),
    # what other dispatchers have
    ("f(...) -> ()", "...) -> ()", ["'...'", "`Tensor[] xs`"]),
    ("f(Tensor x, ...) -> ()", "...) -> ()", ["'...'", "`Tensor[] xs`"]),
    ("f(Tensor x) -> ...", "...", ["'...'"]),
    ("f(Tensor x) -> (Tensor, ...)", "...)", ["'...'"]),
    *[(f"f({name} x) -> ()", f"{name} x) -> ()", [name.partition("(")[0].partition(".")[0], remedy])
      for name, remedy in [
        ("SymInt", "`int`"), ("SymBool", "`bool`"), ("DeviceIndex", "`int`"), ("Layout", "eave the argument out"),
        ("MemoryFormat", "`str order`"), ("Stream", "eave the argument out"), ("Storage", "`Tensor`"),
        ("QScheme", "eave the argument out"), ("Quantizer", "eave the argument out"),
        ("ConstQuantizerPtr", "eave the argument out"), ("Capsule", "register_opaque_type(cls)"),
        ("Future(int)", "register_opaque_type(cls)"), ("RRef(int)", "register_opaque_type(cls)"),
        ("Await(int)", "register_opaque_type(cls)"), ("AnyClassType", "`Any`"),
        ("AnyEnumType", "register_opaque_type(cls)"), ("__torch__.torch.classes.a.B", "register_opaque_type(cls)"),
    ]],
]


@pytest.mark.parametrize(("text", "at", "parts"), REFUSED, ids=[text[:60] for text, _, _ in REFUSED])
def test_refused(text, at, parts):
    message = message_of(text)
    assert_says(message, *parts)
    assert message.startswith("cannot read schema: ")
    assert caret(message) == at


def test_caret_in_a_later_line():
    message = message_of("f(\n\tTensor x,\n\tTensor) -> Tensor")
    assert message.splitlines()[-2:] == ["    \tTensor) -> Tensor", "    \t      ^"]


def test_whole_message():
    assert message_of("f(Tensor) -> Tensor").splitlines() == [
        "cannot read schema: expected the name of the argument, found ')'",
        "Write it after the type: `Tensor x`",
        "    f(Tensor) -> Tensor",
        "            ^",
    ]


# --- annotations (2.6) and derived facts ----------------------------------------------------------------------


def alias(before: str = "", write: bool = False, after: str | None = None, contained: AliasInfo | None = None):
    return AliasInfo(frozenset(before), write, None if after is None else frozenset(after), contained)


@pytest.mark.parametrize(
    ("text", "info", "mutable"),
    [
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
    ],
    ids=str,
)
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


@pytest.mark.parametrize(
    ("text", "contains"),
    [
        *[(name, name in ("Tensor", "Any")) for name in module.BASE_TYPES],
        ("Tensor?", True), ("Tensor[]", True), ("Tensor?[]", True), ("Tensor[]?", True), ("Tensor[][]", True),
        ("(int, Tensor)", True), ("Dict(str, Tensor)", True), ("Union(int, Tensor)", True), ("Any[]", True),
        ("int[]", False), ("(int, str)", False), ("Dict(str, int)", False), ("Union(int, str)?", False),
        ("Color", False), ("Plan", True),
    ],
)
def test_contains_arrays(text, contains):
    assert argument(f"{text} x").type.contains_arrays is contains


# --- equality (2.8) -------------------------------------------------------------------------------------------

PAIRS = [
    # (one, other, equal)
    ("int x", "int y", False),
    ("int x=1", "int x", False),
    ("int x=1", "int x=2", False),
    ("int? x=None", "int? x", False),
    ("float x=1", "float x=1.0", True),
    ("int[2] x=1", "int[2] x=[1,1]", True),
    ("bool x=1", "bool x=True", True),
    ("int[] x", "int[2] x", False),
    ("*, int x", "int x", False),
    ("Tensor(a) x", "Tensor(b) x", False),
    ("Tensor(a) x", "Tensor x", False),
    ("Tensor(a|b) x", "Tensor(b|a) x", True),
    ("Tensor(a -> a) x", "Tensor(a) x", True),
    ("ScalarType x", "int x", False),
    ("Scalar x=1", "Scalar x=1.0", False),
    ("Scalar x=1", "Scalar x=True", False),
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


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("f() -> Tensor", "f() -> (Tensor)", True),
        ("f() -> Tensor", "f() -> Tensor y", False),
        ("f() -> Tensor x", "f() -> Tensor y", False),
        ("f() -> ((int, int))", "f() -> (int, int)", False),
        ("f() -> ()", "g() -> ()", False),
        ("f() -> ()", "f.a() -> ()", False),
        ("f() -> ()", "ns::f() -> ()", False),
        ("f(\nint x) -> ()", "f(int x) -> ()  # the same", True),
    ],
)
def test_equality_of_schemas(one, other, equal):
    assert (parse_schema(one) == parse_schema(other)) is equal


def test_list_default_is_frozen():
    default = argument("int[] x=[1, 2]").default
    assert default == (1, 2)
    assert {parse_schema("f(int[] x=[1, 2]) -> ()"): 1}


def test_values_are_frozen():
    schema = parse_schema("ns::f(Tensor(a!) x, int? n=1) -> Tensor(a!)")
    for value in (schema, schema.name, schema.arguments[0], schema.arguments[0].alias, schema.returns[0]):
        with pytest.raises(AttributeError, match="is frozen"):
            value.name = "other"
        with pytest.raises(AttributeError, match="is frozen"):
            del value.name
        with pytest.raises(AttributeError):
            value.new = 1
        assert value != 1
        assert str(value) in repr(value)


@pytest.mark.parametrize("text", [text for text, _ in ACCEPTED], ids=str)
def test_pickle_and_copy(text):
    schema = parse_schema(text)
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema
    assert copy.copy(schema) == schema


# --- conversion of values (7.1 rule 10; stripping 2.2) --------------------------------------------------------


class SubArray(np.ndarray):
    pass


ARRAY = np.arange(3.0)
GENERATOR = np.random.default_rng(0)
PLAN = Plan()
CONVERTED = [
    # (type, value, converted)
    ("int", 1, 1), ("int", True, 1), ("int", np.int8(3), 3), ("int", np.uint64(2**63), 2**63), ("int", np.True_, 1),
    ("float", 2, 2.0), ("float", 1.5, 1.5), ("float", np.float32(0.5), 0.5), ("float", np.int64(2), 2.0),
    ("float", True, 1.0), ("float", np.longdouble(0.5), 0.5),
    ("bool", True, True), ("bool", 0, False), ("bool", 1, True), ("bool", np.False_, False), ("bool", np.int8(1), True),
    ("str", "a", "a"), ("str", np.str_("a"), "a"),
    ("complex", 1, 1 + 0j), ("complex", 1.5, 1.5 + 0j), ("complex", np.complex64(2j), 2j),
    ("Scalar", 1, 1), ("Scalar", 1.0, 1.0), ("Scalar", True, True), ("Scalar", 1 + 0j, 1 + 0j),
    ("Scalar", np.int32(1), 1), ("Scalar", np.float32(0.5), 0.5), ("Scalar", np.True_, True),
    ("Scalar", np.complex64(1j), 1j), ("Scalar", np.longdouble(0.5), 0.5), ("Scalar", np.clongdouble(1j), 1j),
    ("ScalarType", np.dtype("int8"), np.dtype("int8")), ("ScalarType", float, np.dtype("float64")),
    ("ScalarType", np.float32, np.dtype("float32")), ("ScalarType", ">f4", np.dtype(">f4")),
    ("Device", "CPU", "CPU"), ("Device", "cpu", "CPU"), ("Device", "meta", "Meta"),
    ("Generator", GENERATOR, GENERATOR),
    ("Tensor", ARRAY, ARRAY), ("Tensor", 1, 1), ("Tensor", True, True), ("Tensor", 1.5, 1.5), ("Tensor", 2j, 2j),
    ("Tensor?", None, None), ("Tensor?", ARRAY, ARRAY), ("int?", None, None), ("int?", True, 1),
    ("int[]", [1, True], (1, 1)), ("int[]", (), ()), ("int[]", [], ()), ("int[][]", [[1], ()], ((1,), ())),
    ("int[]?", None, None), ("int[]?", [], ()), ("int?[]", [1, None], (1, None)),
    ("Tensor[]", [ARRAY, 1.0], (ARRAY, 1.0)), ("Tensor?[]", (None, ARRAY), (None, ARRAY)),
    ("int[2]", 1, (1, 1)), ("int[2]", np.int8(1), (1, 1)), ("int[2]", [1, 2, 3], (1, 2, 3)), ("int[2]", [], ()),
    ("int[2]?", 1, (1, 1)), ("int[2]?", None, None), ("int?[2]", 1, (1, 1)), ("float[2]", 1, (1.0, 1.0)),
    ("bool[2]", [1, 0], (True, False)), ("Scalar[2]", 1.5, (1.5, 1.5)), ("complex[1]", 1, (1 + 0j,)),
    ("(int, str)", [1, "a"], (1, "a")), ("(float, Tensor)", (1, ARRAY), (1.0, ARRAY)), ("()", [], ()),
    ("Dict(str, float)", {"a": 1}, {"a": 1.0}), ("Dict(str, int[])", {"a": [1]}, {"a": (1,)}),
    ("Union(int, str)", "a", "a"), ("Union(int, float)", 1.5, 1.5), ("Union(float, int)", 1, 1),
    ("Union(int, float)", np.float32(1), 1.0), ("Union(str, int)?", None, None), ("Union(float, str)", 1, 1.0),
    ("Color", Color.RED, Color.RED), ("Plan", PLAN, PLAN), ("Plan?", None, None),
    ("Any", PLAN, PLAN), ("Any", None, None), ("Any", [1, [2]], (1, (2,))), ("Any", {"a": [1]}, {"a": [1]}),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value", "converted"), CONVERTED, ids=lambda x: str(x)[:25])
def test_conversion(declared, value, converted):
    found = argument(f"{declared} x").convert(value)
    assert same_value(found, converted)


def test_conversion_keeps_identity():
    view = ARRAY.view(SubArray)
    assert argument("Tensor x").convert(view) is view
    assert argument("Tensor? x").convert(ARRAY) is ARRAY
    assert argument("Tensor[] x").convert([ARRAY])[0] is ARRAY
    assert argument("Plan x").convert(PLAN) is PLAN


NOT_CONVERTED = [
    ("int", 1.0), ("int", "1"), ("int", None), ("int", np.float64(1)), ("int", 1j), ("int", np.array(1)), ("int", [1]),
    ("float", "1"), ("float", None), ("float", 1j), ("float", np.array(1.0)),
    ("bool", 2), ("bool", 1.0), ("bool", None), ("bool", "True"), ("bool", ARRAY),
    ("str", 1), ("str", None), ("str", b"a"), ("complex", "1j"), ("complex", None),
    ("Scalar", "1"), ("Scalar", None), ("Scalar", np.array(1)), ("Scalar", np.datetime64("2020-01-01")),
    ("ScalarType", None), ("ScalarType", 6), ("ScalarType", ARRAY), ("ScalarType", "nonsense"),
    ("Device", None), ("Device", 0), ("Generator", None), ("Generator", np.random),
    ("Tensor", None), ("Tensor", "a"), ("Tensor", PLAN), ("Tensor", {"a": 1}),
    ("int[]", 1), ("int[]", None), ("int[]", "ab"), ("int[]", np.array([1])), ("int[2]", None), ("int[2]", "ab"),
    ("str[2]", "a"), ("Tensor[2]", 1.0), ("Tensor[]", ARRAY),
    ("(int, str)", 1), ("Dict(str, int)", [1]), ("Union(int, str)", 1.5), ("Union(int, str)", None),
    ("Color", 1), ("Color", "RED"), ("Plan", 1), ("Plan", None),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value"), NOT_CONVERTED, ids=lambda x: str(x)[:25])
def test_no_conversion(declared, value):
    found = argument(f"{declared} x")
    with pytest.raises(TypeError) as raised:
        found.convert(value)
    message = str(raised.value)
    assert message.startswith(f"expected {found.type}, found {type(value).__name__} ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        ("float", 10**400, "expected float, found int 1000"),
        ("complex", 10**400, "expected complex, found int 1000"),
        ("Device", "abacus", "expected Device, found str 'abacus'; backends: CPU"),
        ("(int, str)", [1], "expected (int, str), found list [1] of length 1"),
    ],
)
def test_values_out_of_range(declared, value, message):
    with pytest.raises(ValueError, match="expected") as raised:
        argument(f"{declared} x").convert(value)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("value", [[1.0, 2.0], (1, 2), []], ids=str)
def test_lists_are_not_arrays(value):
    with pytest.raises(TypeError) as raised:
        argument("Tensor x").convert(value)
    assert_says(str(raised.value), repr(value), "lists are not arrays", "np.asarray(...)")


@pytest.mark.parametrize(
    ("declared", "value", "parts"),
    [
        ("int[]", [1, "a"], ["expected int[], found list [1, 'a']", "element 1: expected int, found str 'a'"]),
        ("int[]?", [1.5], ["expected int[]?, found list [1.5]", "element 0: expected int"]),
        ("(int, str)", (1, 2), ["expected (int, str), found tuple (1, 2)", "element 1: expected str"]),
        ("Dict(str, int)", {"a": "b"}, ["expected Dict(str, int), found", "element 0: expected int, found str 'b'"]),
        ("int", "x" * 1000, ["expected int, found str 'xxx", "xxx'"]),
        ("int", np.zeros((100, 100)), ["expected int, found ndarray array([[0., 0."]),
    ],
)
def test_what_a_refusal_says(declared, value, parts):
    with pytest.raises(TypeError) as raised:
        argument(f"{declared} x").convert(value)
    assert_says(str(raised.value), *parts)
    assert len(str(raised.value)) < 200


def test_same_value():
    nan = float("nan")
    assert same_value(nan, float("nan"))
    assert same_value((1, (nan,)), (1, (float("nan"),)))
    assert same_value({"a": nan}, {"a": float("nan")})
    assert same_value(0.0, -0.0)
    assert not same_value({"a": 1}, {"b": 1})
    assert not same_value((), None)
    assert not same_value((1,), (1, 1))
    assert same_value(ARRAY, ARRAY)
    assert not same_value(ARRAY, ARRAY.copy())
    for a, b in itertools.combinations([1, 1.0, True, 1 + 0j, "1"], 2):
        assert not same_value(a, b)


# --- types of the user ----------------------------------------------------------------------------------------


def test_registering_a_type():
    class Local:
        pass

    register_opaque_type(Local, "Elsewhere")
    try:
        register_opaque_type(Local, "Elsewhere")  # again: nothing happens
        schema = parse_schema("f(Elsewhere x) -> Elsewhere[]")
        assert schema.arguments[0].type == OpaqueType("Elsewhere", Local)
        with pytest.raises(RegistrationError, match=r"registered as 'Elsewhere'\n.*unregister_opaque_type"):
            register_opaque_type(Local, "Other")
        with pytest.raises(RegistrationError, match=r"'Elsewhere': the name is taken by .*Local\n.*unregister"):
            register_opaque_type(int, "Elsewhere")
    finally:
        unregister_opaque_type("Elsewhere")
    assert_says(message_of("f(Elsewhere x) -> ()"), "unknown type 'Elsewhere'")
    assert isinstance(schema.arguments[0].convert(Local()), Local)
    with pytest.raises(RegistrationError, match=r"not registered\nThese are: .*Color"):
        unregister_opaque_type(Local)


@pytest.mark.parametrize("name", ["Tensor", "int", "Dict", "Union", "SymInt", "for", "1x", "a.b", "é", ""])
def test_names_that_types_cannot_have(name):
    with pytest.raises(RegistrationError) as raised:
        register_opaque_type(int, name)
    assert_says(str(raised.value), repr(name), "register_opaque_type(int, name=")


# --- inference from annotations (2.9) -------------------------------------------------------------------------

Alias = list[np.ndarray]

ANNOTATIONS = [
    (np.ndarray, "Tensor"), (np.generic, "Tensor"), (np.float64, "Tensor"), (SubArray, "Tensor"),
    (npt.NDArray[np.float64], "Tensor"), (npt.NDArray[Any], "Tensor"),
    (int, "int"), (float, "float"), (bool, "bool"), (str, "str"), (complex, "complex"), (numbers.Number, "Scalar"),
    (np.dtype, "ScalarType"), (np.dtype[Any], "ScalarType"), (type, "ScalarType"), (type[np.generic], "ScalarType"),
    (np.random.Generator, "Generator"), (Any, "Any"), (DEVICE, "Device"),
    (int | None, "int?"), (Optional[int], "int?"), (None | np.ndarray, "Tensor?"),  # noqa: UP045
    (list[int], "int[]"), (Sequence[np.ndarray], "Tensor[]"), (list[str], "str[]"), (list[np.dtype], "ScalarType[]"),
    (list[np.ndarray | None], "Tensor?[]"), (list[int] | None, "int[]?"), (list[list[int]], "int[][]"),
    (tuple[int, ...], "int[]"), (tuple[int, str], "(int, str)"), (tuple[()], "()"),
    (dict[str, np.ndarray], "Dict(str, Tensor)"), (Mapping[str, int], "Dict(str, int)"),
    (int | str, "Union(int, str)"), (int | str | None, "Union(int, str)?"), (int | float, "Union(int, float)"),
    (Literal["C", "F"], "str"), (Literal[1, None], "int?"), (Annotated[int, "a size"], "int"),
    (Color, "Color"), (Plan, "Plan"), (list[Plan], "Plan[]"),
    ("int", "int"), ("Alias", "Tensor[]"), ("np.ndarray | None", "Tensor?"), (list["Plan"], "Plan[]"),
]  # fmt: skip


def with_annotations(ret=None, **annotations):
    """A function of these parameters, annotated with these objects; `ret` is the annotation of its return."""
    function = eval(f"lambda {', '.join(annotations)}: None", globals())
    function.__annotations__ = {**annotations, "return": ret}
    function.__name__ = function.__qualname__ = "made"
    return function


@pytest.mark.parametrize(("annotation", "spelled"), ANNOTATIONS, ids=lambda x: str(x)[:40])
def test_annotation_of_a_parameter(annotation, spelled):
    function = with_annotations(x=annotation)
    assert str(infer_schema(function)) == f"({spelled} x) -> ()"
    assert str(infer_kernel_schema(function)) == f"({spelled} _0) -> ()"


@pytest.mark.parametrize(
    ("annotation", "returns"),
    [
        (None, "()"), (type(None), "()"), ("None", "()"), (np.ndarray, "Tensor"), (list[np.ndarray], "Tensor[]"),
        (int, "int"), (float, "float"), (bool, "bool"), (numbers.Number, "Scalar"), (np.ndarray | None, "Tensor?"),
        (tuple[np.ndarray, int], "(Tensor, int)"), (tuple[np.ndarray, ...], "Tensor[]"),
        (tuple[np.ndarray, tuple[int, int]], "(Tensor, (int, int))"), (Plan, "Plan"),
    ],
)  # fmt: skip
def test_annotation_of_the_return(annotation, returns):
    function = with_annotations(ret=annotation)
    assert str(infer_schema(function)) == f"() -> {returns}"
    assert str(infer_kernel_schema(function)) == f"() -> {returns}"


UNMAPPED = [
    (list, ["'list'", "Say of what: list[int]"]),
    (tuple, ["'tuple'", "tuple[str, int]"]),
    (dict, ["'dict'", "dict[str, int]"]),
    (set[int], ["set[int]", "np.ndarray, int"]),
    (object, ["'object'", "register_opaque_type"]),
    (None, ["None", "np.ndarray, int"]),
    ("Nowhere", ["'Nowhere'", "could not be evaluated"]),
    (list["Nowhere"], ["could not be evaluated"]),  # noqa: F821
    (pytest.Item, ["register_opaque_type(cls)"]),
    (enum.Enum("Unregistered", "A B"), ["register_opaque_type(Unregistered)"]),
    (1, ["'1'", "np.ndarray, int"]),
]


@pytest.mark.parametrize(("annotation", "parts"), UNMAPPED, ids=lambda x: str(x)[:40])
def test_annotation_without_a_type(annotation, parts):
    function = with_annotations(x=annotation)
    with pytest.raises(SchemaError) as raised:
        infer_schema(function)
    assert_says(str(raised.value), "function made: parameter 'x' is annotated", *parts)
    assert infer_kernel_schema(function) is None


@pytest.mark.parametrize("annotation", [tuple[np.ndarray], tuple[()], set[int], list], ids=str)
def test_return_without_a_type(annotation):
    function = with_annotations(ret=annotation)
    with pytest.raises(SchemaError, match="function made: the return is annotated"):
        infer_schema(function)
    assert infer_kernel_schema(function) is None


def test_inferred_schema():
    def function(
        x: np.ndarray, n: int = 1, f: float = 2, *, s: str = "a", dtype: np.dtype = np.float32, c: Color = Color.RED,
        device: DEVICE = "cpu", axis: tuple[int, ...] = (0, 1), shape: tuple[int, int] | None = (2, 3),
        k: numbers.Number = 1.0, ids: list[int] = [1], out: np.ndarray | None = None, e: float = math.nan,  # noqa: B006
    ) -> tuple[np.ndarray, int]: ...  # fmt: skip

    assert str(infer_schema(function, name="ns::f.ov")) == (
        'ns::f.ov(Tensor x, int n=1, float f=2.0, *, str s="a", ScalarType dtype=float32, Color c=Color.RED, '
        'Device device="CPU", int[] axis=[0, 1], (int, int)? shape=[2, 3], Scalar k=1.0, int[] ids=[1], '
        "Tensor? out=None, float e=nan) -> (Tensor, int)"
    )
    assert infer_schema(function).name is None
    assert parse_schema(str(infer_schema(function, name="f"))) == infer_schema(function, name="f")


def no_annotation(x, y: int) -> int: ...
def no_return(x: int): ...
def positional_only(x: int, /) -> int: ...
def star(*x: int) -> int: ...
def stars(**x: int) -> int: ...
def none_default(x: int = None) -> int: ...  # noqa: RUF013
def array_default(x: np.ndarray = 1.0) -> int: ...
def flag_default(x: Access = Access.READ | Access.WRITE) -> int: ...
def big_default(x: int = 2**70) -> int: ...
def struct_default(x: np.dtype = np.dtype("i4,f8")) -> int: ...  # noqa: B008
def reserved_name(Ellipsis: int) -> int: ...


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (no_annotation, ["function no_annotation: parameter 'x' has no annotation", "`x: np.ndarray`"]),
        (no_return, ["the return has no annotation", "`-> np.ndarray`"]),
        (positional_only, ["parameter 'x' is positional-only", "without `/`"]),
        (star, ["parameter 'x' is variadic", "`*args`"]),
        (stars, ["parameter 'x' is variadic", "`**kwargs`"]),
        (none_default, ["parameter 'x' cannot have its default", "expected int, found NoneType None"]),
        (array_default, ["parameter 'x'", "default 1.0", "`x=None`"]),
        (flag_default, ["parameter 'x'", "cannot spell", "`x=None`"]),
        (big_default, ["parameter 'x'", "1180591620717411303424", "cannot spell"]),
        (struct_default, ["parameter 'x'", "cannot spell"]),
        (reserved_name, ["'Ellipsis'", "another name"]),
    ],
)
def test_no_inference(function, parts):
    with pytest.raises(SchemaError) as raised:
        infer_schema(function)
    assert_says(str(raised.value), *parts)


def test_too_many_parameters():
    function = with_annotations(**{f"x{i}": int for i in range(65)})
    with pytest.raises(SchemaError, match="more than 64 parameters\n"):
        infer_schema(function)


def writes(x: np.ndarray, ys: list[np.ndarray], z: np.ndarray | None, n: int, d: dict[str, np.ndarray]) -> None: ...


@pytest.mark.parametrize(
    ("mutates_args", "arguments"),
    [
        ((), "Tensor x, Tensor[] ys, Tensor? z, int n, Dict(str, Tensor) d"),
        (("x",), "Tensor(a0!) x, Tensor[] ys, Tensor? z, int n, Dict(str, Tensor) d"),
        ({"ys", "z"}, "Tensor x, Tensor(a1!)[] ys, Tensor(a2!)? z, int n, Dict(str, Tensor) d"),
        ("unknown", "Tensor(a0!) x, Tensor(a1!)[] ys, Tensor(a2!)? z, int n, Dict(str, Tensor)(a4!) d"),
    ],
)
def test_mutates_args(mutates_args, arguments):
    schema = infer_schema(writes, mutates_args=mutates_args)
    assert str(schema) == f"({arguments}) -> ()"
    assert parse_signature(str(schema)) == schema


@pytest.mark.parametrize(
    ("mutates_args", "parts"),
    [
        ("x", ["mutates_args is a text, 'x'", "('x',)"]),
        (("w",), ["names 'w'", "Parameters: x, ys, z, n, d"]),
        (("n",), ["parameter 'n' is in mutates_args", "type is int", "np.ndarray"]),
    ],
)
def test_mutates_args_refused(mutates_args, parts):
    with pytest.raises(SchemaError) as raised:
        infer_schema(writes, mutates_args=mutates_args)
    assert_says(str(raised.value), "function writes", *parts)


def test_inference_of_other_callables():
    class Callable_:  # noqa: N801
        def __call__(self, x: int) -> int: ...

        def method(self, x: np.ndarray, n: int) -> int: ...

    def function(x: int, y: int) -> int: ...

    assert str(infer_schema(Callable_())) == "(int x) -> int"
    assert str(infer_schema(Callable_().method)) == "(Tensor x, int n) -> int"
    assert str(infer_schema(functools.partial(function, 1))) == "(int y) -> int"
    assert str(infer_kernel_schema(Callable_().method)) == "(Tensor _0, int _1) -> int"
    assert infer_kernel_schema(Callable_()) is None
    assert infer_kernel_schema(functools.partial(function, 1)) is None
    assert infer_kernel_schema(np.add) is None
    assert infer_kernel_schema(len) is None


def test_annotations_may_name_what_the_function_captures():
    local = list[int]

    def function(x: local, y: "local | None") -> None:  # noqa: UP037
        return local

    function.__annotations__ = {"x": "local", "y": "local | None", "return": None}
    assert str(infer_schema(function)) == "(int[] x, int[]? y) -> ()"


def keyset_first(keys, x: np.ndarray, *, b: int, a: str) -> np.ndarray: ...


@pytest.mark.parametrize(
    ("function", "inferred"),
    [
        (lambda x, y: x, None),
        (no_annotation, None),
        (no_return, None),
        (star, None),
        (stars, None),
        (positional_only, "(int _0) -> int"),
        (array_default, "(Tensor _0) -> int"),
        (writes, "(Tensor _0, Tensor[] _1, Tensor? _2, int _3, Dict(str, Tensor) _4) -> ()"),
        (keyset_first, None),
    ],
)
def test_inferred_kernel_schema(function, inferred):
    found = infer_kernel_schema(function)
    assert (None if found is None else str(found)) == inferred


def test_key_set_is_not_inferred():
    assert str(infer_kernel_schema(keyset_first, with_keyset=True)) == "(Tensor _0, *, int b, str a) -> Tensor"


# --- inferred against real (2.10) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("real", "inferred", "difference"),
    [
        ("(Tensor x) -> Tensor", "(Tensor _0) -> Tensor", None),
        ("(Tensor x) -> Tensor", "(Tensor _0, int _1) -> Tensor", "number of arguments: expected 1, inferred 2"),
        ("(Tensor x) -> (Tensor, int)", "(Tensor _0) -> Tensor", "number of returns: expected 2, inferred 1"),
        ("(int x) -> (Tensor, int)", "() -> Tensor", "number of arguments: expected 1, inferred 0"),
        ("(int x) -> (Tensor, int)", "(str _0) -> Tensor", "number of returns: expected 2, inferred 1"),
        ("(int x, Tensor? y) -> int", "(int _0, Tensor _1) -> str", "argument 2: expected Tensor?, inferred Tensor"),
        ("(Any x) -> ()", "(Tensor _0) -> ()", "argument 1: expected Any, inferred Tensor"),
        ("(int x) -> (int, str)", "(int _0) -> (int, bool)", "return 2: expected str, inferred bool"),
        ("(int a=1, *, int[2] b=1) -> Tensor y", "(int _0, int[] _1) -> Tensor", None),
        ("(Tensor(a!) x) -> Tensor(a!)", "(Tensor _0) -> Tensor", None),
        ("(ScalarType x) -> ()", "(int _0) -> ()", "argument 1: expected ScalarType, inferred int"),
        ("(Device? x) -> ()", "(str? _0) -> ()", None),
        ("(Device[] x) -> ()", "(str[] _0) -> ()", None),
        ("(str x) -> ()", "(Device _0) -> ()", "argument 1: expected str, inferred Device"),
        ("(int x, *, int a, str b) -> ()", "(int _0, *, str b, int a) -> ()", None),
        ("(int x, *, int a) -> ()", "(int _0, *, str a) -> ()", "argument 2: expected int, inferred str"),
    ],
)
def test_first_difference(real, inferred, difference):
    assert first_difference(parse_signature(real), parse_signature(inferred)) == difference


SCHEMA = "(Tensor x, Tensor y, int n=1, *, Scalar alpha=1, Tensor out) -> Tensor"


def wrapped(x, y, n, *, alpha, out): ...


@functools.wraps(wrapped)
def wrapper(*args, **kwargs): ...


class Method:
    def kernel(self, x, y, n=1, *, alpha=1, out): ...

    def __call__(self, x, y, n, *, alpha=1, out): ...


@pytest.mark.parametrize(
    ("schema", "function", "fill"),
    [
        (SCHEMA, lambda x, y, n=1, *, alpha=1, out: x, ""),
        (SCHEMA, lambda a, b, c=1, *, out, alpha=1: a, ""),
        (SCHEMA, lambda x, y, n, *, alpha=1, out: x, "n"),
        (SCHEMA, lambda x, y, n, *, alpha, out: x, "n alpha"),
        (SCHEMA, lambda x, y, n=True, *, alpha=1, out: x, ""),
        (SCHEMA, lambda x, y, n=1, alpha=1, out=None: x, ""),
        (SCHEMA, lambda x, y, n=1, alpha=1, out=None, more=3: x, ""),
        (SCHEMA, lambda x, y, /, n, *, alpha, out: x, "n alpha"),
        (SCHEMA, lambda *args, **kwargs: args, ""),
        (SCHEMA, lambda x, *args, **kwargs: args, ""),
        (SCHEMA, lambda x, *args, out, **kwargs: args, ""),
        (SCHEMA, wrapped, "n alpha"),
        (SCHEMA, wrapper, "n alpha"),
        (SCHEMA, Method().kernel, ""),
        (SCHEMA, Method(), "n"),
        (SCHEMA, functools.partial(lambda k, x, y, n=1, *, alpha=1, out: x, None), ""),
        ("(Tensor x, Tensor y) -> Tensor", np.add, ""),
        ("(Tensor x) -> Tensor", np.nditer, ""),
        ("() -> ()", lambda: None, ""),
        ("(int[] l=[1, 2]) -> ()", lambda l=[1, 2]: None, ""),  # noqa: E741
        ("(int[] l=[1, 2]) -> ()", lambda l=(1, 2): None, ""),  # noqa: E741
        ("(int[2] l=1) -> ()", lambda l=1: None, ""),  # noqa: E741
        ("(float f=nan) -> ()", lambda f=float("nan"): None, ""),
        ("(float f=1) -> ()", lambda f=1: None, ""),
        ("(ScalarType d=float32) -> ()", lambda d=np.float32: None, ""),
        ("(Device d='cpu') -> ()", lambda d="cpu": None, ""),
        ("(Tensor? t=None, int? i=None) -> ()", lambda t=None, i=None: None, ""),
    ],
)
def test_signature_of_a_kernel(schema, function, fill):
    assert compare_signature(parse_signature(schema), function) == frozenset(fill.split())


@pytest.mark.parametrize(
    ("schema", "function", "parts"),
    [
        (SCHEMA, lambda x, y: x, ["takes 2 positional arguments (x, y)", "passes 3 (x, y, n)"]),
        (SCHEMA, lambda x, y, n=1, *, alpha=1: x, ["no keyword argument 'out'"]),
        (SCHEMA, lambda x, out, n=1, *, alpha=1, **kwargs: x, ["no keyword argument 'out'"]),
        (SCHEMA, lambda x, y, n=1, out=1, /, *, alpha=1: x, ["no keyword argument 'out'"]),
        (SCHEMA, lambda x, y, n=1, *, alpha=1, out, z: x, ["requires a parameter 'z'"]),
        ("(Tensor x) -> ()", lambda x, y: x, ["requires a parameter 'y'"]),
        ("(Tensor x, *, int a) -> ()", lambda x, y, /, *, a: x, ["requires a parameter 'y'"]),
        (SCHEMA, lambda x, y, n=2, *, alpha=1, out: x, ["'n'", "is 2", "schema's is 1"]),
        (SCHEMA, lambda x, y, n=None, *, alpha=1, out: x, ["'n'", "is None", "schema's is 1"]),
        (SCHEMA, lambda x, y, n=1, *, alpha=1.0, out: x, ["'alpha'", "is 1.0", "schema's is 1"]),
        (SCHEMA, lambda x, y, n=1, *, alpha=True, out: x, ["'alpha'", "is True", "schema's is 1"]),
        ("(int[]? l=None) -> ()", lambda l=(): None, ["'l'", "is ()", "schema's is None"]),  # noqa: E741
        ("(Tensor? t=None) -> ()", lambda t=1.0: None, ["'t'", "is 1.0", "schema's is None"]),
        ("(Tensor x) -> Tensor", np.add, ["requires a parameter 'x1'"]),
        ("(Tensor x) -> Tensor", lambda: None, ["takes 0 positional arguments ()"]),
    ],
)
def test_signature_that_does_not_fit(schema, function, parts):
    with pytest.raises(ValueError, match="it") as raised:
        compare_signature(parse_signature(schema), function)
    assert_says(str(raised.value), *parts)


def test_key_set_is_not_compared():
    schema = parse_signature("(Tensor x, int n=1) -> Tensor")
    assert compare_signature(schema, lambda keys, x, n: x, with_keyset=True) == {"n"}
    assert compare_signature(schema, lambda keys, /, x, n=1: x, with_keyset=True) == frozenset()
    with pytest.raises(ValueError, match="takes 1 positional"):
        compare_signature(schema, lambda keys, x: x, with_keyset=True)


def test_what_fills_is_callable():
    """Calling a kernel with stripped arguments, and the returned ones filled in, works."""
    schema = parse_signature("(Tensor x, int n=1, str s='a', *, int k=2, int m=3) -> ()")
    for n, k in itertools.product(["n", "n=1"], ["k", "k=2"]):
        kernel = eval(f"lambda x, {n}, s{n[1:] and '=' + repr('a')}, *, {k}, m=3: 0")
        fill = compare_signature(schema, kernel)
        positional = [a.default for a in schema.arguments[1:3] if a.name in fill]
        keywords = {a.name: a.default for a in schema.arguments[3:] if a.name in fill}
        assert kernel(ARRAY, *positional, **keywords) == 0


# --- strict schemas (rule 21, tags) ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("f(Tensor x) -> Tensor", ()),
        ("f(Tensor(a) x) -> Tensor(a)", ()),
        ("f(Tensor(a|b) x) -> Tensor(a|b)", ()),
        ("f_(Tensor(a!) x) -> Tensor(a!)", ["inplace"]),
        ("f_(Tensor(a!) x) -> ()", ["pointwise"]),
        ("f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", ["out"]),
        ("f.out(Tensor x, *, Tensor(a!) y, Tensor(b!) z) -> (Tensor(a!), Tensor(b!))", ["out", "pointwise"]),
    ],
)
def test_strict(text, tags):
    check_strict(text, tags)
    check_strict(parse_schema(text), tags)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("f(Tensor x)->Tensor", ["not canonical", "`f(Tensor x) -> Tensor`"]),
        ("f(Tensor(ab) x) -> ()", ["'ab'", "lower-case letter"]),
        ("f(Tensor(A) x) -> ()", ["'A'", "lower-case letter"]),
        ("f(Tensor(a)[](bc) x) -> ()", ["'bc'"]),
        ("f(Tensor(ab)[] x) -> ()", ["'ab'"]),
        ("f(Tensor(a|b!) x) -> ()", ["(a|b!)", "several sets"]),
        ("f(Tensor(a!) x) -> (Tensor(a!), int)", ["some returns are written to, some are not"]),
        ("f(Tensor x, Tensor(a!) y) -> Tensor(a!)", ["neither an out argument nor the first"]),
        ("f(Tensor x) -> Tensor(a!)", ["neither an out argument nor the first"]),
        ("f(Tensor x, *, Tensor(a!) out) -> Tensor", ["not the out arguments in order", "(Tensor(a!))"]),
        (
            "f(*, Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor(a!))",
            ["not the out arguments in order", "(Tensor(a!), Tensor(b!))"],
        ),
    ],
)
def test_not_strict(text, parts):
    with pytest.raises(SchemaError) as raised:
        check_strict(text)
    assert_says(str(raised.value), str(parse_schema(text)), *parts)


@pytest.mark.parametrize(
    ("text", "tag", "part"),
    [
        ("f(Tensor x) -> Tensor", "out", "no argument is written to"),
        ("f(Tensor(a!) x) -> Tensor(a!)", "out", "`Tensor(a!) x` is not a keyword-only array"),
        ("f(*, Tensor(a!)[] out) -> Tensor(a!)[]", "out", "is not a keyword-only array"),
        ("f(Tensor x, *, Tensor(a!) out) -> Tensor", "out", "not the out arguments in order"),
        ("f(Tensor x, *, Tensor(a!) out) -> ()", "out", "not the out arguments in order"),
        ("f(Tensor x) -> Tensor", "inplace", "does not write to its first argument alone"),
        ("f() -> ()", "inplace", "does not write to its first argument alone"),
        ("f(Tensor x, Tensor(a!) y) -> Tensor(a!)", "inplace", "does not write to its first argument alone"),
        ("f(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)", "inplace", "does not write to its first argument alone"),
        ("f(Tensor(a!)[] x) -> Tensor(a!)[]", "inplace", "does not write to its first argument alone"),
        ("f(*, Tensor(a!) x) -> Tensor(a!)", "inplace", "does not write to its first argument alone"),
        ("f(Tensor(a!) x) -> Tensor", "inplace", "does not return its first argument"),
        ("f(Tensor(a!) x) -> ()", "inplace", "does not return its first argument"),
    ],
)
def test_tags(text, tag, part):
    schema = parse_schema(text)
    with pytest.raises(SchemaError) as raised:
        check_tags(schema, [tag])
    assert_says(str(raised.value), text, part, "\nReturn `(" if "order" in part else f"tagged `{tag}`")


# --- every schema reads back as it prints ---------------------------------------------------------------------

identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda text: text not in RESERVED_WORDS and text != "default" and not text.startswith("__")
)
alias_names = st.one_of(st.just("*"), identifiers)
alias_sets = st.frozensets(alias_names, min_size=1, max_size=3)
own_aliases = st.one_of(
    st.builds(AliasInfo, alias_sets, st.booleans(), st.one_of(st.none(), alias_sets)),
    st.just(AliasInfo(frozenset(), True)),
)
named_types = st.sampled_from([*module.BASE_TYPES, "Color", "Plan"]).map(lambda text: argument(f"{text} x").type)
types = st.recursive(
    named_types,
    lambda inner: st.one_of(
        inner.map(module.optional),
        inner.map(module.ListType),
        st.lists(inner, max_size=3).map(module.TupleType),
        st.builds(module.DictType, inner, inner),
        st.lists(inner, min_size=1, max_size=3).map(module.union),
    ),
    max_leaves=5,
)


@st.composite
def annotations(draw, type):
    """An alias annotation that fits the type, or None."""
    if isinstance(type, module.OptionalType):
        return draw(annotations(type.inner))
    if isinstance(type, module.TupleType) or draw(st.booleans()):
        return None if not isinstance(type, module.ListType) else draw(st.none())
    if not isinstance(type, module.ListType):
        return draw(own_aliases)
    contained = draw(annotations(type.inner))
    own = draw(st.one_of(st.none(), own_aliases))
    if own is not None:
        return AliasInfo(own.before, own.write, own.after, contained)
    return contained and AliasInfo(frozenset(), contained.write, frozenset(), contained)


numbers_64 = st.integers(-(2**63), 2**63 - 1)
values = {
    "int": numbers_64,
    "float": st.floats(),
    "bool": st.booleans(),
    "str": st.text(max_size=8),
    "complex": st.complex_numbers(allow_nan=True),
    "Scalar": st.one_of(numbers_64, st.floats(), st.booleans(), st.complex_numbers()),
    # Quoted dtypes are in the table above: in a Union with str, the quoted text is a str.
    "ScalarType": st.sampled_from(["float32", "int8", "bool", "object"]).map(np.dtype),
    "Device": st.sampled_from(["CPU", "Meta"]),
    "Any": st.one_of(st.none(), numbers_64, st.text(max_size=3), st.lists(st.booleans(), max_size=2).map(tuple)),
    "Color": st.sampled_from(Color),
}


def defaults(type):
    """Values that a default of this type can have; nothing if there are none."""
    match type:
        case module.OptionalType():
            return st.one_of(st.none(), defaults(type.inner))
        case module.AnyType():
            return values["Any"]
        case _ if type.contains_arrays:
            return st.nothing()
        case module.ListType():
            inner = defaults(type.inner)
            return st.just(()) if inner.is_empty else st.lists(inner, max_size=3).map(tuple)
        case module.TupleType():
            return st.tuples(*map(defaults, type.items))
        case module.UnionType():
            return st.one_of(*map(defaults, type.members))
    return values.get(str(type), st.nothing())


@st.composite
def arguments(draw, name, kw_only):
    declared = draw(types)
    outer = declared.inner if isinstance(declared, module.OptionalType) else declared
    size = draw(st.one_of(st.none(), st.integers(0, 4))) if isinstance(outer, module.ListType) else None
    bare = Argument(name, declared, size, REQUIRED, kw_only, draw(annotations(declared)))
    possible = defaults(declared)
    if possible.is_empty or draw(st.booleans()):
        return bare
    return Argument(name, declared, size, bare.convert(draw(possible)), kw_only, bare.alias)


@st.composite
def schemas(draw):
    name = OperatorName(draw(st.one_of(st.none(), identifiers)), draw(identifiers), draw(st.just("") | identifiers))
    names = draw(st.lists(identifiers, max_size=5, unique=True))
    n_positional = draw(st.integers(0, len(names)))
    made = [draw(arguments(text, i >= n_positional)) for i, text in enumerate(names)]
    # Those without a default first: rule 8.
    made.sort(key=lambda a: (a.kw_only, not a.kw_only and a.has_default))
    returns = []
    for text in draw(st.lists(st.just("") | identifiers, max_size=3, unique_by=lambda text: text or object())):
        declared = draw(types)
        outer = declared.inner if isinstance(declared, module.OptionalType) else declared
        size = draw(st.none() | st.integers(0, 4)) if isinstance(outer, module.ListType) else None
        returns.append(Return(text, declared, size, draw(annotations(declared))))
    return Schema(name, made, returns)


@given(schemas())
def test_round_trip(schema):
    text = str(schema)
    again = parse_schema(text)
    assert again == schema
    assert hash(again) == hash(schema)
    assert str(again) == text
    assert pickle.loads(pickle.dumps(again)) == again


@given(st.text(alphabet=" ab:.()[],*=?!|->'\"1.5j\n#\\Tensorinst", max_size=40))
def test_any_text_parses_or_is_a_schema_error(text):
    for parse in (parse_name, parse_schema, parse_schema_or_name, parse_signature):
        try:
            value = parse(text)
        except SchemaError:
            continue
        assert (parse_signature if parse is parse_signature else parse_schema_or_name)(str(value)) == value


@given(st.data())
def test_damaged_schemas_are_schema_errors(data):
    text = str(data.draw(schemas()))
    i = data.draw(st.integers(0, len(text)))
    j = data.draw(st.integers(i, len(text)))
    damaged = text[:i] + text[j:]
    try:
        schema = parse_schema(damaged)
    except SchemaError as error:
        assert "^" in str(error)  # noqa: PT017
    else:
        assert parse_schema(str(schema)) == schema


def test_import_needs_nothing_slow():
    """What NumPy does not import, this module must not either."""
    code = (
        "import sys, numpy; before = set(sys.modules); import pydispatch.schema; "
        "print(*(m for m in set(sys.modules) - before if not m.startswith('pydispatch')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"dataclasses", "difflib", "numpy.random", "numpy.typing"} & set(found)
