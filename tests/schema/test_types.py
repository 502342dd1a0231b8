"""Conversion of values to types, with parts and without."""

from array import array
from collections import ChainMap, UserList, deque
from functools import partial

import numpy as np
import pytest

from pydispatch import Tensor
from pydispatch.backends import MetaArray
from pydispatch.schema.base_types import BASE_TYPES
from pydispatch.schema.frozen import same_value
from tests.ids import without_address
from tests.schema.samples import ARRAY, Color, Plan, SubArray, argument, assert_says
from tests.together import together


@together("text, contains", [
    *[(name, name in ("Tensor", "Any")) for name in BASE_TYPES],
    ("Tensor?", True), ("Tensor[]", True), ("Tensor?[]", True), ("Tensor[]?", True), ("Tensor[][]", True),
    ("(int, Tensor)", True), ("Dict(str, Tensor)", True), ("Union(int, Tensor)", True), ("Any[]", True),
    ("int[]", False), ("(int, str)", False), ("Dict(str, int)", False), ("Union(int, str)?", False),
    ("Color", False), ("Plan", True),
])
def test_contains_arrays(text, contains):
    assert argument(f"{text} x").type.contains_arrays is contains


GENERATOR = np.random.default_rng(0)
PLAN = Plan()
SEQUENCES = [deque, UserList, np.array, partial(array, "i"), lambda x: np.array(x, "i1"), lambda x: Tensor(np.array(x))]
HOLDERS = [np.array, lambda x: np.array([[x]]), lambda x: Tensor(np.array(x)), lambda x: Tensor(np.array([x]))]
NUMBERS = [
    ("int", 3), ("float", 0.5), ("bool", True), ("complex", 2j), ("Scalar", 3), ("Scalar", 0.5), ("Scalar", True)]
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
    ("Scalar", np.complex64(1j), 1j), ("Scalar", np.float64(0.5), 0.5), ("Scalar", np.complex128(1j), 1j),
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
    *[("int[]", make((1, 2)), (1, 2)) for make in SEQUENCES],
    ("int[]", range(3), (0, 1, 2)), ("int[]", np.array([], int), ()), ("int[]", np.ma.array([1, 2]), (1, 2)),
    ("int[]", [np.array(1), Tensor(np.array([2])), 3], (1, 2, 3)), ("int[2]?", range(2), (0, 1)),
    ("int[][]", np.arange(4).reshape(2, 2), ((0, 1), (2, 3))), ("int[][]", [np.arange(2), range(1)], ((0, 1), (0,))),
    ("int[2]", np.array(1), (1, 1)), ("int[2]", Tensor(np.array(1)), (1, 1)), ("int[2]", np.array([1]), (1,)),
    ("int?[]", np.array([1]), (1,)), ("float[]", np.arange(2), (0.0, 1.0)), ("float[]", deque([1]), (1.0,)),
    ("bool[]", np.array([True, False]), (True, False)), ("complex[]", np.array([1j]), (1j,)),
    ("Scalar[]", np.array([1.5]), (1.5,)), ("str[]", deque(["a"]), ("a",)), ("Tensor[]", deque([ARRAY]), (ARRAY,)),
    ("(int, int)", range(2), (0, 1)), ("(int, float)", np.arange(2), (0, 1.0)),
    ("Dict(str, int)", ChainMap({"a": 1}), {"a": 1}), ("Dict(str, int[])", {"a": range(1)}, {"a": (0,)}),
    *[(type, make(number), number) for type, number in NUMBERS for make in HOLDERS],
    ("float", np.array(1), 1.0), ("float", np.array(0.5, np.longdouble), 0.5), ("complex", np.array(1), 1 + 0j),
    ("bool", np.array(1), True), ("int", np.array(True), 1), ("int?", np.array(1), 1),
    ("Union(int, Tensor)", ARRAY, ARRAY), ("Union(int, float)", np.array(0.5), 0.5),
    ("Color", Color.RED, Color.RED), ("Plan", PLAN, PLAN), ("Plan?", None, None),
    ("Any", PLAN, PLAN), ("Any", None, None), ("Any", [1, [2]], (1, (2,))), ("Any", {"a": [1]}, {"a": [1]}),
]


@together("declared, value, converted", CONVERTED, ids=lambda x: without_address(x)[:25])
def test_conversion(declared, value, converted):
    found = argument(f"{declared} x").convert(value)
    assert same_value(found, converted)


@pytest.mark.parametrize("number", [np.longdouble(1) / 3, np.clongdouble(1j) / 3, np.uint64(3), np.ulonglong(2**63)],
                         ids=lambda number: type(number).__name__)
@pytest.mark.parametrize("holder", [lambda x: x, *HOLDERS])
def test_a_scalar_of_which_python_has_no_number_keeps_its_kind(number, holder):
    found = argument("Scalar x").convert(holder(number))
    assert type(found) is type(number)
    assert found == number


def test_conversion_keeps_identity():
    view = ARRAY.view(SubArray)
    assert argument("Tensor x").convert(view) is view
    assert argument("Tensor? x").convert(ARRAY) is ARRAY
    assert argument("Tensor[] x").convert([ARRAY])[0] is ARRAY
    assert argument("Plan x").convert(PLAN) is PLAN


NOT_CONVERTED = [
    ("int", 1.0), ("int", "1"), ("int", None), ("int", np.float64(1)), ("int", 1j), ("int", [1]),
    ("int", np.array(1.0)), ("int", np.array([1, 2])), ("int", np.array([], int)), ("int", Tensor(np.array(1.0))),
    ("int", np.array(1, "m8[s]")), ("int", np.array(1, object)), ("int", np.ma.masked), ("int", MetaArray((), int)),
    ("float", "1"), ("float", None), ("float", 1j), ("float", np.array(1j)), ("float", np.array("1")),
    ("bool", 2), ("bool", 1.0), ("bool", None), ("bool", "True"), ("bool", ARRAY), ("bool", np.array(2)),
    ("str", 1), ("str", None), ("str", b"a"), ("complex", "1j"), ("complex", None),
    ("Scalar", "1"), ("Scalar", None), ("Scalar", ARRAY), ("Scalar", np.datetime64("2020-01-01")),
    ("ScalarType", None), ("ScalarType", 6), ("ScalarType", ARRAY), ("ScalarType", "nonsense"),
    ("Device", None), ("Device", 0), ("Generator", None), ("Generator", np.random),
    ("Tensor", None), ("Tensor", "a"), ("Tensor", PLAN), ("Tensor", {"a": 1}),
    ("int[]", 1), ("int[]", None), ("int[]", "ab"), ("int[2]", None), ("int[2]", "ab"),
    ("int[]", {1}), ("int[]", {1: 1}), ("int[]", iter([1])), ("int[]", b"ab"), ("int[]", bytearray(2)),
    ("int[]", memoryview(b"ab")), ("int[]", np.array(1)), ("int[]", np.ones(2)), ("int[]", np.ones((1, 2), int)),
    ("int[]", np.ones(2, "m8[s]")), ("int[]", np.array([1], object)), ("int[]", MetaArray((2,), int)),
    ("float[]", np.array(["a"])), ("str[]", np.array(["a"])), ("str[]", "ab"),
    ("Tensor[]", np.ones((2, 2))), ("Tensor[]", Tensor(ARRAY)), ("Any[]", ARRAY), ("(int, int)", {1, 2}),
    ("str[2]", "a"), ("Tensor[2]", 1.0), ("Tensor[]", ARRAY),
    ("(int, str)", 1), ("Dict(str, int)", [1]), ("Union(int, str)", 1.5), ("Union(int, str)", None),
    ("Color", 1), ("Color", "RED"), ("Plan", 1), ("Plan", None),
]


@together("declared, value", NOT_CONVERTED, ids=lambda x: without_address(x)[:25])
def test_no_conversion(declared, value):
    found = argument(f"{declared} x")
    with pytest.raises(TypeError) as raised:
        found.convert(value)
    message = str(raised.value)
    assert message.startswith(f"expected {found.type}, found {type(value).__name__} ")
    assert "\n" not in message


@pytest.mark.parametrize(("declared", "value", "message"), [
    ("float", 10**400, "expected float, found int 1000"),
    ("complex", 10**400, "expected complex, found int 1000"),
    ("Device", "abacus", "expected Device, found str 'abacus' (backends: CPU"),
    ("(int, str)", [1], "expected (int, str), found list [1] of length 1"),
])
def test_values_out_of_range(declared, value, message):
    with pytest.raises(ValueError, match="expected") as raised:
        argument(f"{declared} x").convert(value)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("value", [[1.0, 2.0], (1, 2), []], ids=str)
def test_lists_are_not_arrays(value):
    with pytest.raises(TypeError) as raised:
        argument("Tensor x").convert(value)
    assert_says(str(raised.value), repr(value), "lists are not arrays", "np.asarray(...)")


@pytest.mark.parametrize(("declared", "value", "parts"), [
    ("int[]", [1, "a"], ["expected int[], found list [1, 'a']", "element 1: expected int, found str 'a'"]),
    ("int[]?", [1.5], ["expected int[]?, found list [1.5]", "element 0: expected int"]),
    ("(int, str)", (1, 2), ["expected (int, str), found tuple (1, 2)", "element 1: expected str"]),
    ("Dict(str, int)", {"a": "b"}, ["expected Dict(str, int), found", "element 0: expected int, found str 'b'"]),
    ("int", "x" * 1000, ["expected int, found str 'xxx", "xxx'"]),
    ("int", np.zeros((100, 100)), ["expected int, found ndarray array([[0., 0."]),
])
def test_what_a_refusal_says(declared, value, parts):
    with pytest.raises(TypeError) as raised:
        argument(f"{declared} x").convert(value)
    assert_says(str(raised.value), *parts)
    assert len(str(raised.value)) < 200
