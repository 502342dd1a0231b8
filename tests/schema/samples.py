"""Types of the user, values, and what messages say: shared by the tests of schemas."""

import enum

import numpy as np
import pytest

from pydispatch.exceptions import SchemaError
from pydispatch.schema import Argument, parse_schema, parse_signature
from pydispatch.schema.base_types import BASE_TYPES


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Plan:
    """An opaque class of the user."""


class SubArray(np.ndarray):
    pass


ARRAY = np.arange(3.0)
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
    *[(f"f({name} x) -> {name}", SAME) for name in BASE_TYPES],
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


def argument(text: str) -> Argument:
    """Return the one argument of a schema."""
    return parse_signature(f"({text}) -> ()").arguments[0]


def message_of(text: str, parse=parse_schema) -> str:
    with pytest.raises(SchemaError) as raised:
        parse(text)
    return str(raised.value)


def caret(message: str) -> str:
    """Return the text at the caret of a message."""
    *_, line, mark = message.splitlines()
    return line[mark.index("^") :]


def assert_says(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message
