"""Schemas of annotated functions and kernels."""

from __future__ import annotations

import enum
import functools
import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Optional

import numpy as np
import numpy.typing as npt
import pytest

from pydispatch.exceptions import SchemaError
from pydispatch.schema import DEVICE, parse_schema, parse_signature
from pydispatch.schema.inference import infer_kernel_schema, infer_schema
from tests.schema.samples import Access, Color, Plan, SubArray, assert_says
from tests.together import together

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
]
if sys.version_info >= (3, 12):
    exec("type Arrays = list[np.ndarray]\ntype Swapped[K, V] = dict[V, K]\ntype Same[T] = T\ntype Again = Same[Arrays]")
    ANNOTATIONS += [
        (eval(text), spelled) for text, spelled in [
            ("Arrays", "Tensor[]"), ("Arrays | None", "Tensor[]?"), ("Swapped[int, str]", "Dict(str, int)"),
            ("Again", "Tensor[]"), ("Same[Same[float]]", "float"), ("'Same[int]'", "int"),
        ]]


def with_annotations(ret=None, **annotations):
    """Return a function of these parameters, annotated with these objects. `ret` is the annotation of its return."""
    function = eval(f"lambda {', '.join(annotations)}: None", globals())
    function.__annotations__ = {**annotations, "return": ret}
    function.__name__ = function.__qualname__ = "made"
    return function


@together("annotation, spelled", ANNOTATIONS, ids=lambda x: str(x)[:40])
def test_annotation_of_a_parameter(annotation, spelled):
    function = with_annotations(x=annotation)
    assert str(infer_schema(function)) == f"({spelled} x) -> ()"
    assert str(infer_kernel_schema(function)) == f"({spelled} _0) -> ()"


@pytest.mark.parametrize(("annotation", "returns"), [
    (None, "()"), (type(None), "()"), ("None", "()"), (np.ndarray, "Tensor"), (list[np.ndarray], "Tensor[]"),
    (int, "int"), (float, "float"), (bool, "bool"), (numbers.Number, "Scalar"), (np.ndarray | None, "Tensor?"),
    (tuple[np.ndarray, int], "(Tensor, int)"), (tuple[np.ndarray, ...], "Tensor[]"),
    (tuple[np.ndarray, tuple[int, int]], "(Tensor, (int, int))"), (Plan, "Plan"),
])
def test_annotation_of_the_return(annotation, returns):
    function = with_annotations(ret=annotation)
    assert str(infer_schema(function)) == f"() -> {returns}"
    assert str(infer_kernel_schema(function)) == f"() -> {returns}"


UNMAPPED = [
    (list, ["'list'", "Name the type of its elements: list[int]"]),
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
    ) -> tuple[np.ndarray, int]: ...

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


@pytest.mark.parametrize(("function", "parts"), [
    (no_annotation, ["function no_annotation: parameter 'x' has no annotation", "`x: np.ndarray`"]),
    (no_return, ["the return has no annotation", "`-> np.ndarray`"]),
    (positional_only, ["parameter 'x' is positional-only", "without `/`"]),
    (star, ["parameter 'x' is variadic", "`*args`"]),
    (stars, ["parameter 'x' is variadic", "`**kwargs`"]),
    (none_default, ["parameter 'x' cannot have its default", "expected int, found NoneType None"]),
    (array_default, ["parameter 'x'", "default 1.0", "`x=None`"]),
    (flag_default, ["parameter 'x'", "cannot express", "`x=None`"]),
    (big_default, ["parameter 'x'", "1180591620717411303424", "cannot express"]),
    (struct_default, ["parameter 'x'", "cannot express"]),
    (reserved_name, ["'Ellipsis'", "another name"]),
])
def test_no_inference(function, parts):
    with pytest.raises(SchemaError) as raised:
        infer_schema(function)
    assert_says(str(raised.value), *parts)


def test_too_many_parameters():
    function = with_annotations(**{f"x{i}": int for i in range(65)})
    with pytest.raises(SchemaError, match="more than 64 parameters\n"):
        infer_schema(function)


def writes(x: np.ndarray, ys: list[np.ndarray], z: np.ndarray | None, n: int, d: dict[str, np.ndarray]) -> None: ...


@pytest.mark.parametrize(("mutates_args", "arguments"), [
    ((), "Tensor x, Tensor[] ys, Tensor? z, int n, Dict(str, Tensor) d"),
    (("x",), "Tensor(a0!) x, Tensor[] ys, Tensor? z, int n, Dict(str, Tensor) d"),
    ({"ys", "z"}, "Tensor x, Tensor(a1!)[] ys, Tensor(a2!)? z, int n, Dict(str, Tensor) d"),
    ("unknown", "Tensor(a0!) x, Tensor(a1!)[] ys, Tensor(a2!)? z, int n, Dict(str, Tensor)(a4!) d"),
])
def test_mutates_args(mutates_args, arguments):
    schema = infer_schema(writes, mutates_args=mutates_args)
    assert str(schema) == f"({arguments}) -> ()"
    assert parse_signature(str(schema)) == schema


@pytest.mark.parametrize(("mutates_args", "parts"), [
    ("x", ["mutates_args is a string, 'x'", "('x',)"]),
    (("w",), ["{'w'} in mutates_args were not found", "Parameters: x, ys, z, n, d"]),
    ({"w": 1, "v": 2}, ["{'v', 'w'} in mutates_args were not found"]),
    (("n",), ["parameter 'n' is in mutates_args", "type is int", "can be mutated", "np.ndarray"]),
])
def test_mutates_args_refused(mutates_args, parts):
    with pytest.raises(SchemaError) as raised:
        infer_schema(writes, mutates_args=mutates_args)
    assert_says(str(raised.value), "function writes", *parts)


@pytest.mark.parametrize(
    "mutates_args", [["x"], {"x"}, {"x": None}, iter(["x"]), (name for name in "x")], ids=lambda it: type(it).__name__)
def test_mutates_args_is_any_iterable_of_names(mutates_args):
    assert str(infer_schema(writes, mutates_args=mutates_args)).startswith("(Tensor(a0!) x, Tensor[] ys,")


@pytest.mark.parametrize("mutates_args", [None, 3])
def test_mutates_args_is_no_other_thing(mutates_args):
    with pytest.raises(TypeError) as raised:
        infer_schema(writes, mutates_args=mutates_args)
    assert_says(str(raised.value), f"mutates_args is {mutates_args}", "Pass ()")


def in_place(x: np.ndarray, n: int) -> np.ndarray: ...
def into(x: np.ndarray, *, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


def test_tags_say_what_is_returned():
    assert str(infer_schema(in_place, mutates_args=["x"], tags="inplace")) == "(Tensor(a0!) x, int n) -> Tensor(a0!)"
    written = infer_schema(into, mutates_args=["b", "a"], tags=("out", "other"))
    assert str(written) == "(Tensor x, *, Tensor(a1!) a, Tensor(a2!) b) -> (Tensor(a1!), Tensor(a2!))"
    assert str(infer_schema(in_place, mutates_args=["x"], tags="other")) == "(Tensor(a0!) x, int n) -> Tensor"


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


@pytest.mark.parametrize(("function", "inferred"), [
    (lambda x, y: x, None),
    (no_annotation, None),
    (no_return, None),
    (star, None),
    (stars, None),
    (positional_only, "(int _0) -> int"),
    (array_default, "(Tensor _0) -> int"),
    (writes, "(Tensor _0, Tensor[] _1, Tensor? _2, int _3, Dict(str, Tensor) _4) -> ()"),
    (keyset_first, None),
])
def test_inferred_kernel_schema(function, inferred):
    found = infer_kernel_schema(function)
    assert (None if found is None else str(found)) == inferred


def test_key_set_is_not_inferred():
    assert str(infer_kernel_schema(keyset_first, with_keyset=True)) == "(Tensor _0, *, int b, str a) -> Tensor"
