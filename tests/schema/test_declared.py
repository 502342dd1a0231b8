"""Signatures of declarations are read as the parser reads them, quickly."""

from __future__ import annotations

import pytest

from pydispatch import ops
from pydispatch.exceptions import SchemaError
from pydispatch.operators.declare import DECLARATIONS, OF_FAMILIES
from pydispatch.schema import parse_signature
from pydispatch.schema.declared import parse_declared_signature

assert all((ops.np.linalg_inv, ops.np.fft_fft, ops.np.random_normal))     # they declare their families
LIBRARY = sorted({"(" + declaration.schema_text.partition("(")[2]
                  for declaration in (*DECLARATIONS.values(), *OF_FAMILIES.values())})
SIGNATURES = [
    "() -> ()", "(Tensor x) -> Tensor", "(Tensor x, *, int n) -> (Tensor, int)", "(Tensor? x=None) -> Tensor?",
    "(int[2] k=1) -> int[]", "(int[2]? k=None) -> int[2]", "(int[2] k=[1, 2]) -> Tensor", "(int?[] k) -> Tensor?[]",
    "(Tensor(a) x) -> Tensor(a)", "(Tensor(a!) x, *, Tensor(b!)? out) -> (Tensor(a!), Tensor(b!))", "(Tensor! x) -> ()",
    "(Tensor(a|b) x) -> Tensor(a|b)", "(Tensor(a -> *) x) -> Tensor(*)", "(Tensor(a)[] x) -> Tensor(a)",
    "(Tensor(a!)[](b) x) -> ()", "((int, Tensor) pair) -> (int, Tensor)",
    "(Dict(str, Tensor) d) -> (Tensor x, Tensor y)",
    "(Union(int, str, None) x=None) -> Any", "(Any x=3) -> Any", "(str s=\"a, b\") -> ()", "(str s=') -> (') -> ()",
    "(int ?n) -> Tensor", "(float x=-1) -> Tensor", "(float x=1e-3, complex c=2j) -> Tensor", "(bool b=1) -> Tensor",
    "(int n=9223372036854775807) -> Tensor", "(int n=-9223372036854775808) -> Tensor", "(int n=007) -> Tensor",
    "(Union(int, str) x, Union(int[], float)? y=None) -> Union(int, Tensor)", "(int[2] x) -> int[][]",
    "(float x=0.5, float y=-2.25, Scalar z=-1, Scalar w=1.) -> Tensor", "(int?[][]? k=None) -> Tensor(a)?[3]",
    "(ScalarType t=float32) -> Tensor", "(Scalar s=1, Device? device=None) -> Tensor",
    "( Tensor  x ,int n = 3 )->Tensor",
    "(Tensor x,\n int n) -> Tensor  # a comment", "(Generator? g=None, *, int[] shape) -> Tensor[] xs",
]
REFUSED = [
    "", "x", "(Tensor x)", "(Tensor x) -> ", "Tensor x) -> Tensor", "(Tensor) -> Tensor", "(Tensor x, ) -> Tensor",
    "(Tensor x, Tensor x) -> Tensor", "(int n=1, Tensor x) -> Tensor", "(Nothing x) -> Tensor",
    "(Tensor import) -> Tensor",
    "(Tensor x=1) -> Tensor", "(int n=None) -> Tensor", "(int n=1.5) -> Tensor",
    "(int n=9223372036854775808) -> Tensor", "(str s=word) -> Tensor", "(bool b=2) -> Tensor", "(Tensor() x) -> Tensor",
    "(Tensor(ab x) -> Tensor", "(Tensor x -> Tensor",
    "(int[2][] n) -> Tensor", "(Union(Tensor(a), int) x) -> Tensor", "(Union() x) -> Tensor", "(int[x] n) -> Tensor",
    "(int[ n) -> Tensor", "(Tensor x) -> None", "(Tensor x) -> (Tensor", "(Union(int[2], str) x) -> Tensor",
    "(Tensor x) -> Tensor y z",
    "(str s=\"a, int n) -> Tensor", "(Tensor(1) x) -> Tensor",
    f"({', '.join(f'Tensor x{i}' for i in range(65))}) -> Tensor",
]


@pytest.mark.parametrize("text", [*LIBRARY, *SIGNATURES])
def test_it_is_what_the_parser_reads(text):
    expected = parse_signature(text)
    found = parse_declared_signature(text)
    assert found == expected
    assert str(found) == str(expected)
    assert [type(argument.default) for argument in found.arguments] == [
        type(argument.default) for argument in expected.arguments]
    assert (found.written, found.takes_generator) == (expected.written, expected.takes_generator)


@pytest.mark.parametrize("text", REFUSED)
def test_errors_are_the_parsers(text):
    with pytest.raises(SchemaError) as expected:
        parse_signature(text)
    with pytest.raises(SchemaError) as found:
        parse_declared_signature(text)
    assert str(found.value) == str(expected.value)


def test_arguments_are_shared():
    first, second = parse_declared_signature("(Tensor x, int n=3) -> Tensor"), parse_declared_signature(
        "(int m, int n=3) -> Tensor")
    assert first.arguments[1] is second.arguments[1]
    assert parse_declared_signature("(Tensor x, *, int n=3) -> Tensor").arguments[1].kw_only
