"""Names of operators, and namespaces."""

import pytest

from pydispatch.exceptions import SchemaError
from pydispatch.schema import OperatorName, parse_name, parse_schema, parse_signature
from pydispatch.schema.names import validate_namespace
from pydispatch.schema.scanner import RESERVED_WORDS
from tests.schema.samples import assert_says, caret, message_of
from tests.together import together


@together("text, fields", [
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
])
def test_name(text, fields):
    name = parse_name(text)
    assert (name.namespace, name.name, name.overload) == fields
    assert parse_name(str(name)) == name
    assert str(name) == text.split("#")[0].replace(" ", "").replace("\t", "").strip()


@together("text, at, parts", [
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
])
def test_name_refused(text, at, parts):
    message = message_of(text, parse_name)
    assert_says(message, *parts)
    assert caret(message) == at


def test_name_is_a_text():
    assert_says(message_of(3, parse_name), "expected a name as a string, found int 3")
    assert_says(message_of(None), "expected a schema as a string, found NoneType None")


@pytest.mark.parametrize("text", ["ns", "_", "n2", "lambda"])
def test_namespace(text):
    assert validate_namespace(text) == text


@pytest.mark.parametrize("text", ["", "a::b", "has space", "1x", "for", "a.b", "é", None])
def test_namespace_refused(text):
    with pytest.raises(SchemaError) as raised:
        validate_namespace(text)
    assert repr(text) in str(raised.value)


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
