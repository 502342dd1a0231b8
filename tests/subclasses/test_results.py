"""Results of handlers, which are checked against the schema like those of kernels."""

from __future__ import annotations

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.testing import LoggingTensor
from tests.subclasses.classes import Wrapped, calls_of

answer: list[object] = []


class Says(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return answer[0]


@pytest.fixture
def ask(fresh, define):
    """Return `ask`: `ask(returns, value)` is the caller's result if a handler returns `value`."""

    def call(returns, value):
        answer[:] = [value]
        return define(fresh, f"f(Tensor x) -> {returns}")(Says(np.ones(2)))

    yield call
    answer.clear()


T = Tensor(np.ones(2))
U = Tensor(np.zeros(2))
SAYS = Says(np.ones(2))
RAW = np.arange(3.0)
AS_IT_IS = object()

ACCEPTED = {
    "(): None": ("()", None, None),
    "Tensor: a Tensor": ("Tensor", T, AS_IT_IS),
    "Tensor: a subclass": ("Tensor", SAYS, AS_IT_IS),
    "Tensor: of another class": ("Tensor", LoggingTensor(RAW), AS_IT_IS),
    "Tensor?: None": ("Tensor?", None, None),
    "Tensor?: a Tensor": ("Tensor?", T, AS_IT_IS),
    "Tensor[]: a list": ("Tensor[]", [T, U], (T, U)),
    "Tensor[]: a tuple": ("Tensor[]", (T, SAYS), (T, SAYS)),
    "Tensor[]: empty": ("Tensor[]", [], ()),
    "Tensor?[]: None in it": ("Tensor?[]", [None, T], (None, T)),
    "(Tensor, Tensor): a tuple": ("(Tensor, Tensor)", (T, U), (T, U)),
    "(Tensor, Tensor): a list": ("(Tensor, Tensor)", [T, U], (T, U)),
    "(Tensor, int): in order": ("(Tensor, int)", (T, 1), (T, 1)),
    "int: int": ("int", 3, 3),
    "int: NumPy's": ("int", np.int8(3), 3),
    "float: float": ("float", 0.5, 0.5),
    "float: int": ("float", 2, 2.0),
    "float: NumPy's": ("float", np.float32(0.5), 0.5),
    "bool: bool": ("bool", True, True),
    "bool: NumPy's": ("bool", np.True_, True),
    "str: str": ("str", "text", "text"),
    "Scalar: int": ("Scalar", 1, 1),
    "Scalar: float": ("Scalar", 1.0, 1.0),
    "Scalar: bool": ("Scalar", True, True),
    "Scalar: complex": ("Scalar", 1j, 1j),
    "int[]: a list": ("int[]", [1, 2], (1, 2)),
    "int[]: a tuple": ("int[]", (1, 2), (1, 2)),
    "dtype": ("ScalarType", np.float32, np.dtype(np.float32)),
}


@pytest.mark.parametrize(("returns", "value", "expected"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_results(ask, returns, value, expected):
    result = ask(returns, value)
    if expected is AS_IT_IS:
        assert result is value
        return
    assert type(result) is type(expected)
    if isinstance(expected, tuple):
        assert [id(item) if isinstance(item, Tensor) else item for item in result] == [
            id(item) if isinstance(item, Tensor) else item for item in expected]
        assert list(map(type, result)) == list(map(type, expected))
    else:
        assert result == expected


REFUSED = {
    "(): a Tensor": ("()", T),
    "(): 0": ("()", 0),
    "(): ()": ("()", ()),
    "44-Tensor: None": ("Tensor", None),
    "8-Tensor: text": ("Tensor", "arf"),
    "Tensor: a list": ("Tensor", [T]),
    "Tensor: a tuple": ("Tensor", (T,)),
    "Tensor[]: a Tensor": ("Tensor[]", T),
    "Tensor[]: None": ("Tensor[]", None),
    "Tensor[]: None in it": ("Tensor[]", [T, None]),
    "Tensor[]: a generator": ("Tensor[]", (value for value in (T, U))),
    "(Tensor, Tensor): one": ("(Tensor, Tensor)", (T,)),
    "(Tensor, Tensor): three": ("(Tensor, Tensor)", (T, U, T)),
    "(Tensor, Tensor): a dict": ("(Tensor, Tensor)", {0: T, 1: U}),
    "(Tensor, Tensor): a Tensor": ("(Tensor, Tensor)", T),
    "(Tensor, Tensor): None": ("(Tensor, Tensor)", None),
    "(Tensor, Tensor): None in it": ("(Tensor, Tensor)", (T, None)),
    "(Tensor, int): swapped": ("(Tensor, int)", (1, T)),
    "int: float": ("int", 1.5),
    "float: None": ("float", None),
    "bool: 1.5": ("bool", 1.5),
    "bool: None": ("bool", None),
    "bool: a list": ("bool", [0]),
    "str: int": ("str", 3),
    "str: bytes": ("str", b"text"),
    "Scalar: None": ("Scalar", None),
    "Scalar: a Tensor": ("Scalar", Tensor(np.ones(2))),
    "int[]: floats": ("int[]", [1.5]),
    "int[]: an int": ("int[]", 1),
    "dtype: a number": ("ScalarType", 7),
}


@pytest.mark.parametrize(("returns", "value"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_results(ask, returns, value):
    with pytest.raises(DispatchTypeError, match="::f") as caught:
        ask(returns, value)
    assert "Says" in str(caught.value), "the message says whose handler it was"


RAW_RESULTS = {"Tensor": RAW, "Tensor?": RAW, "Tensor[]": [RAW, T], "(Tensor, Tensor)": (RAW, T)}


@pytest.mark.parametrize(("returns", "value"), RAW_RESULTS.items(), ids=RAW_RESULTS.keys())
def test_raw_arrays_are_wrapped(ask, returns, value):
    result = ask(returns, value)
    first = result[0] if isinstance(result, tuple) else result
    assert type(first) is Tensor
    assert first.array is RAW


def test_a_numpy_scalar_becomes_a_tensor(ask):
    result = ask("Tensor", np.float32(2.5))
    assert type(result) is Tensor
    assert (result.shape, result.dtype) == ((), np.float32)


def test_detach_is_checked_too():
    answer[:] = ["arf"]
    with pytest.raises(DispatchTypeError, match="np::detach"):
        SAYS.detach()


def test_list_return():
    class Splits(Wrapped):
        container = tuple

        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return cls.container(super().__pydispatch__(func, types, args, kwargs))

    class SplitsIntoList(Splits):
        container = list

    expected = ops.np.split(np.arange(6.0), 3)
    for cls in (Splits, SplitsIntoList):
        parts = ops.np.split(cls(np.arange(6.0)), 3)
        assert type(parts) is tuple
        assert {type(part) for part in parts} == {cls}
        for part, plain in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(part.inner, plain)


# --- mutated arguments, and results that are arguments ---------------------------------------------------------------


def test_in_place_returns_the_argument():
    w = Wrapped(np.ones(2))
    with calls_of(Wrapped) as calls:
        assert ops.np.add_(w, 1) is w
        before = w
        w += 2
        assert w is before
    assert calls == [ops.np.add_.default, ops.np.add_.default]
    np.testing.assert_array_equal(w.inner, [4, 4])


@pytest.mark.parametrize("answered", ["arf", None, 1], ids=str)
def test_what_is_returned_for_a_mutated_argument_is_checked(answered):
    answer[:] = [answered]
    with pytest.raises(DispatchTypeError, match="np::add_"):
        ops.np.add_(SAYS, 1)


@pytest.mark.parametrize("x", [Wrapped(np.ones(2)), Tensor(np.ones(2)), np.ones(2)], ids=["has-a", "Tensor", "raw"])
def test_out_is_the_argument(x):
    out = Wrapped(np.zeros(2))
    assert ops.np.absolute(x, out=out) is out
    np.testing.assert_array_equal(out.inner, [1, 1])


def test_an_out_argument_of_a_subclass():
    x, y = LoggingTensor(np.full(1, -1.0)), LoggingTensor(np.zeros(1))
    assert ops.np.absolute(x, out=y) is y
    np.testing.assert_array_equal(y.elem, [1.0])


def test_a_plain_argument_that_is_mutated_stays_plain():
    plain, raw, w = Tensor(np.ones(2)), np.ones(2), Wrapped(np.full(2, 3.0))
    with calls_of(Wrapped) as calls:
        assert ops.np.add_(plain, w) is plain
        assert ops.np.add_(raw, w) is raw
    assert calls == [ops.np.add_.default] * 2
    np.testing.assert_array_equal(plain.array, [4, 4])
    np.testing.assert_array_equal(raw, [4, 4])


def test_several_mutated_returns(fresh, define):
    def kernel(x, *, a, b):
        a[...] = x
        b[...] = -x
        return b, a

    op = define(fresh, "f(Tensor x, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(a!), Tensor(b!))", CPU=kernel)
    a, b = Wrapped(np.zeros(2)), Wrapped(np.zeros(2))
    result = op(np.ones(2), a=a, b=b)
    assert type(result) is tuple
    assert result[0] is a
    assert result[1] is b
    np.testing.assert_array_equal(a.inner, [1, 1])
    np.testing.assert_array_equal(b.inner, [-1, -1])


class Keeps(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return args[0]


KEPT = {
    "positive": lambda x: ops.np.positive(x),
    "reshape": lambda x: ops.np.reshape(x, (2,)),
    "detach": lambda x: x.detach(),
}


@pytest.mark.parametrize("call", KEPT.values(), ids=KEPT.keys())
def test_a_result_may_be_the_argument(call):
    keeps = Keeps(np.ones(2))
    assert call(keeps) is keeps


def test_the_tape_makes_an_alias_of_it():
    class Copies(Keeps):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return cls(args[0].array) if func is ops.np.detach.default else args[0]

    x = Copies(np.ones(2), requires_grad=True)
    y = ops.np.positive(x)
    assert y is not x
    assert type(y) is Copies
    assert x.is_leaf
    assert not y.is_leaf
    assert y.array is x.array
    y.backward(np.full(2, 3.0))
    np.testing.assert_array_equal(x.grad, [3, 3])


def test_a_handler_that_always_returns_its_argument_cannot_be_recorded():
    with pytest.raises(AutogradError, match=r"Keeps.*np::detach"):
        ops.np.positive(Keeps(np.ones(2), requires_grad=True))
