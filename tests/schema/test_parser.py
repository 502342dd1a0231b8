"""Schemas that are accepted, and how they print. Schemas that are refused, and why."""

from pydispatch.schema import OperatorName, parse_schema, parse_schema_or_name, parse_signature
from tests.schema.samples import ACCEPTED, SAME, assert_says, caret, message_of
from tests.together import together


def test_schema_or_name():
    assert parse_schema_or_name("ns::foo.ov") == OperatorName("ns", "foo", "ov")
    assert parse_schema_or_name("ns::foo() -> ()") == parse_schema("ns::foo() -> ()")
    assert caret(message_of("ns::foo x", parse_schema_or_name)) == "x"
    message = message_of("ns::foo")
    assert_says(message, "expected a schema, found a name", "ns::foo(Tensor x) -> Tensor")


@together("text, printed", ACCEPTED, ids=[text for text, _ in ACCEPTED])
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


def test_more_than_64_arguments():
    names = [f"x{i}" for i in range(65)]
    assert len(parse_signature(f"({', '.join(f'int {name}' for name in names[:64])}) -> ()").arguments) == 64
    message = message_of(f"f({', '.join(f'int {name}' for name in names)}) -> ()")
    assert_says(message, "more than 64 arguments", "Tensor[] xs")
    assert caret(message).startswith("int x64")


REFUSED = [
    # (text, what stands at the caret, parts of the message)
    ("f(Tensor x)", "", ["'->'", "the end of the text", "Write `-> ()` to return nothing"]),
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
    ("f(t x) -> t", "t x) -> t", ["type variables are not supported", "`Any`"]),
    ("f(Nonsense x) -> ()", "Nonsense x) -> ()", ["unknown type 'Nonsense'", "Tensor, int", "Color", "Union(A, B)"]),
    ("f(None x) -> ()", "None x) -> ()", ["'None'", "`T?`"]),
    ("f(int[2][] x) -> ()", "[] x) -> ()", ["outermost list"]),
    ("f(int[2]?[] x) -> ()", "[] x) -> ()", ["outermost list"]),
    ("f(int[1.5] x) -> ()", "1.5] x) -> ()", ["the size of the list", "'1.5'"]),
    ("f(int[0x2] x) -> ()", "0x2] x) -> ()", ["the size of the list", "'0x2'"]),
    ("f(int[-1] x) -> ()", "-1] x) -> ()", ["the size of the list", "'-'"]),
    ("f(int[n] x) -> ()", "n] x) -> ()", ["the size of the list", "'n'"]),
    ("f((int[2], int) x) -> ()", "2], int) x) -> ()", ["lists inside a tuple, Dict or Union cannot have size hints"]),
    ("f(Dict(str) x) -> ()", ") x) -> ()", ["a Dict takes exactly two types"]),
    ("f(Dict() x) -> ()", ") x) -> ()", ["a Dict takes exactly two types"]),
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
    ("f((Tensor(a), Tensor) x) -> ()", "(a), Tensor) x) -> ()", ["types inside a tuple, Dict or Union"]),
    ("f(Dict(str, Tensor(a)) x) -> ()", "(a)) x) -> ()", ["types inside a tuple, Dict"]),
    ("f(Union(Tensor(a), int) x) -> ()", "(a), int) x) -> ()", ["cannot have alias annotations"]),
    ("f((Tensor!, int) x) -> ()", "!, int) x) -> ()", ["cannot have alias annotations"]),
    ("f((Tensor, int)(a) x) -> ()", "(a) x) -> ()", ["a tuple cannot have an alias annotation"]),
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
        ("SymInt", "`int`"), ("SymBool", "`bool`"), ("DeviceIndex", "`int`"), ("Layout", "eave it out"),
        ("MemoryFormat", "`str order`"), ("Stream", "eave it out"), ("Storage", "`Tensor`"),
        ("QScheme", "eave it out"), ("Quantizer", "eave it out"),
        ("ConstQuantizerPtr", "eave it out"), ("Capsule", "register_opaque_type(cls)"),
        ("Future(int)", "register_opaque_type(cls)"), ("RRef(int)", "register_opaque_type(cls)"),
        ("Await(int)", "register_opaque_type(cls)"), ("AnyClassType", "`Any`"),
        ("AnyEnumType", "register_opaque_type(cls)"), ("__torch__.torch.classes.a.B", "register_opaque_type(cls)"),
    ]],
]


@together("text, at, parts", REFUSED, ids=[text[:60] for text, _, _ in REFUSED])
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
