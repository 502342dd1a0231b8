"""Implementations of functions of `pydispatch.numpy`: NumPy's own, its loop, the operator, or the composition."""

import copy
import inspect
import operator
import pickle

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, default_backend
from pydispatch._core import ArrayFunction, as_builtin
from pydispatch.autograd import no_grad
from pydispatch.backends import MetaArray
from pydispatch.func import grad
from pydispatch.library import Library
from pydispatch.modes import DispatchMode
from pydispatch.numpy.declare import FUNCTIONS
from tests.together import together
from tests.warning_filters import all_warnings


class Telling(np.ndarray):
    """An array that says which function of NumPy's it was passed to."""

    def __array_function__(self, function, types, args, kwargs):
        return function


class Other:
    """The same of no array."""

    __array_function__ = Telling.__array_function__


ASKED = [pytest.param(np.ones(2).view(Telling), id="subclass"), pytest.param(Other(), id="other class")]


@pytest.mark.parametrize("value", ASKED)
@pytest.mark.parametrize("wrapped", [lambda x: [x, np.ones(2)], lambda x: (np.ones(2), x)], ids=["list", "tuple"])
def test_objects_with_a_protocol_are_asked(value, wrapped):
    assert pnp.concatenate(wrapped(value)) is np.concatenate


@pytest.mark.parametrize("value", ASKED)
def test_objects_with_a_protocol_are_asked_by_keyword(value):
    assert pnp.concatenate([np.ones(2)], out=value) is np.concatenate


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
@pytest.mark.parametrize("call", [
    pytest.param(lambda x: pnp.multiply(x, x), id="loop"), pytest.param(lambda x: pnp.multiply(x, 2), id="number"),
    pytest.param(lambda x: pnp.multiply(x.astype(int), 2), id="no loop"),
])
def test_kernels_of_users_are_called(call):
    with Library("np", "IMPL") as library:
        library.impl("multiply", lambda x1, x2, **options: np.full(3, 7.0), "CPU")
        assert call(np.ones(3)).tolist() == [7, 7, 7]
    assert call(np.ones(3)).tolist() in ([1, 1, 1], [2, 2, 2])


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
@pytest.mark.parametrize("name", ["real", "imag"])
def test_the_first_call_after_a_registration_is_numpys_too(name):
    with Library("np", "IMPL") as library:
        library.impl(name, lambda val: np.full(3, 7.0), "CPU")
    assert type(getattr(pnp, name)(2.5)) is float


class Noting(DispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __pydispatch__(self, op, types, args, kwargs):
        self.seen.append(str(op.name))
        return op(*args, **kwargs)


def test_modes_see_raw_arrays():
    x = np.ones(2)
    with Noting() as noting:
        pnp.sin(x)
        pnp.add(x, 1)
        pnp.concatenate([x, x])
    assert noting.seen == ["np::sin", "np::add", "np::concatenate"]


def test_numbers_go_to_the_ambient_backend():
    with default_backend("Meta"):
        assert isinstance(pnp.sin(0.5), MetaArray)
    assert isinstance(pnp.sin(0.5), np.float64)


MAKING = [
    ("zeros", ((2, 3),), {}), ("zeros", (3, int), {}), ("ones", ([2, 3],), {"dtype": "f4"}), ("empty", ((0, 2),), {}),
    ("full", ((2, 3), 7), {}), ("full", (2, [1.5, 2]), {}), ("arange", (5,), {}), ("arange", (1, 2.5, 0.5), {}),
    ("linspace", (0, 1, 4), {}), ("eye", (3, 4, 1), {}), ("identity", (3,), {"dtype": int}), ("tri", (3, 4, -1), {}),
    ("geomspace", (1, 8, 4), {}), ("logspace", (0, 1.5, 3), {}),
    ("fft.fftfreq", (5,), {}), ("fft.fftfreq", (4, 0.5), {}), ("fft.rfftfreq", (5, 2), {}),
    *((name, (n,), {}) for name in ("bartlett", "blackman", "hamming", "hanning") for n in (0, 1, 5)),
    *(("kaiser", (n, 3.0), {}) for n in (0, 1, 5)),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), MAKING, ids=[f"{name}{args}" for name, args, _ in MAKING])
def test_what_makes_arrays_makes_them_on_the_default_backend(name, args, kwargs):
    function = operator.attrgetter(name)(pnp)
    expected = function.numpy_function(*args, **kwargs)
    holds_values = name == "full" and isinstance(args[1], list)       # an array, which brings its own backend
    with default_backend("Meta"):
        found = function(*args, **kwargs)
    assert type(found) is (np.ndarray if holds_values else MetaArray)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert type(function(*args, **kwargs)) is np.ndarray


def test_arrays_keep_their_backend_whatever_the_default():
    with default_backend("Meta"):
        assert type(pnp.zeros_like(np.ones(2))) is np.ndarray
        assert type(pnp.asarray([1, 2])) is np.ndarray
        assert type(pnp.fft.fftfreq(3, np.array(0.5))) is type(pnp.kaiser(3, np.array(0.5))) is np.ndarray
        assert type(pnp.add(pnp.zeros(2), np.ones(2))) is MetaArray


@pytest.mark.parametrize(("name", "x", "kept"), [
    ("asarray", np.ones((2, 3)).T, True), ("asanyarray", np.ones(()), True),
    ("ascontiguousarray", np.ones((2, 3)), True), ("ascontiguousarray", np.ones((2, 3)).T, False),
    ("ascontiguousarray", np.ones(()), False), ("asfortranarray", np.ones((2, 3)), False),
    ("asfortranarray", np.ones((2, 3)).T, True), ("asarray", np.ones(2).view(Telling), False),
])
def test_arrays_that_are_their_own_results(name, x, kept):
    found, expected = getattr(pnp, name)(x), getattr(np, name)(x)
    assert (found is x) == (expected is x) == kept
    assert found.shape == expected.shape
    assert found.flags.c_contiguous == expected.flags.c_contiguous


CONVERSIONS = ("asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
"""Functions that may return their argument, and the builtins of the namespace."""


def read_only(x):
    x.flags.writeable = False
    return x


CONVERTED = {
    "contiguous": np.ones((2, 3)), "fortran": np.ones((2, 3)).T, "neither": np.ones((4, 6))[::2, ::2],
    "0-d": np.ones(()), "one axis": np.arange(3), "empty": np.ones((0, 2)), "strided": np.arange(6)[::2],
    "bool": np.array([True]),
    "byte-swapped": np.ones(2, ">f8"), "read-only": read_only(np.ones((2, 2))), "object": np.array([None, 1]),
    "subclass": np.ones((2, 2)).view(Telling),
    "float": 3.5, "int": 7, "huge int": 2**70, "boolean": True, "complex": 1j, "scalar": np.float32(2), "None": None,
    "text": "abc", "list": [[1, 2], [3, 4.5]], "ragged": [[1], [2, 3]], "object()": Other(), "dict": {"a": 1},
}
CALLED = {
    "alone": lambda f, x: f(x), "dtype": lambda f, x: f(x, "f4"), "keyword": lambda f, x: f(a=x),
    "dtype by keyword": lambda f, x: f(x, dtype=float), "unknown": lambda f, x: f(x, nonsense=1),
    "too many": lambda f, x: f(x, None, None, None), "nothing": lambda f, x: f(),
}


def conversion(function, x, call):
    """Return whether a conversion returns its argument, else the memory of its result, or the error."""
    try:
        found = call(function, x)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    shared = isinstance(x, np.ndarray) and np.shares_memory(found, x)
    return (found is x, shared, type(found), found.base is x, found.shape, found.dtype, found.strides, str(found.flags),
            repr(found.tolist()))


@together("call", CALLED.values(), ids=CALLED.keys())
@together("x", CONVERTED.values(), ids=CONVERTED.keys())
@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_are_numpys(name, x, call):
    expected = conversion(getattr(np, name), x, call)
    assert conversion(getattr(pnp, name), x, call) == expected
    assert conversion(FUNCTIONS[name], x, call) == expected     # what the builtin stands for


@pytest.mark.parametrize("surrounding", [Noting, no_grad, lambda: default_backend("Meta")])
@pytest.mark.parametrize("name", CONVERSIONS)
@together("x", [x for x in CONVERTED.values() if type(x) is np.ndarray and x.ndim])
def test_conversions_of_arrays_with_axes_are_numpys_whatever_is_active(name, x, surrounding):
    with surrounding():
        found = conversion(getattr(pnp, name), x, CALLED["alone"])
    assert found == conversion(getattr(np, name), x, CALLED["alone"])


def test_modes_see_the_axis_that_a_conversion_adds():
    with Noting() as noting:
        assert pnp.ascontiguousarray(np.ones(())).shape == pnp.ascontiguousarray(2.0).shape == (1,)
        assert pnp.asarray(2.0).shape == ()
    assert noting.seen == ["np::reshape", "np::copy", "np::reshape"]      # an array of a number is new


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_of_tensors_are_tensors(name):
    function, t = getattr(pnp, name), Tensor(np.ones((2, 2)), requires_grad=True)
    for found in (function(t), function(a=t), function([t, t]), function([t[0], [1.0, 2.0]]), FUNCTIONS[name](t)):
        assert isinstance(found, Tensor)
        assert found.requires_grad
    t = Tensor(np.ones((2, 2), order="F" if name == "asfortranarray" else "C"), requires_grad=True)
    assert function(t) is t
    assert isinstance(function(np.ones(2), like=t), Tensor)
    meta = MetaArray((2,), np.dtype(float))
    assert function(meta) is meta
    assert grad(lambda x: pnp.sum(function(x) * x))(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_are_builtins_that_tell_who_they_are(name):
    function = getattr(pnp, name)
    assert inspect.isbuiltin(function)
    assert (function.__name__, function.__qualname__, function.__module__) == (name, name, "pydispatch.numpy")
    assert function.__doc__ == getattr(np, name).__doc__
    names = list(inspect.signature(function).parameters)
    assert names == list(inspect.signature(FUNCTIONS[name].implementation).parameters)
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function is FUNCTIONS[name].public
    assert len({getattr(pnp, other) for other in CONVERSIONS}) == len(CONVERSIONS)


def test_only_conversions_are_builtins():
    with pytest.raises(ValueError, match="cannot be a builtin: it is not a conversion"):
        as_builtin(FUNCTIONS["zeros"], "(shape)")
    other = ArrayFunction(np.asarray, lambda a: a, keeps="K")
    other.__dict__.update(__name__="other", __qualname__="other", __module__="there", __doc__="")
    with pytest.raises(ValueError, match="already 4 builtins"):
        as_builtin(other, "(a)")


@pytest.mark.parametrize("listed", [list, tuple])
def test_lists_of_tensors_and_arrays_are_joined(listed):
    t = Tensor(np.ones(2))
    assert isinstance(pnp.concatenate(listed([t, np.ones(2)])), Tensor)
    assert isinstance(pnp.stack(listed([np.ones(2), t]), axis=1), Tensor)
    assert pnp.concatenate(listed([t, [1.0, 2.0]]), axis=0).numpy().tolist() == [1, 1, 1, 2]


def test_a_list_that_changes_while_it_is_looked_at():
    class Shortening(Other):
        def __init__(self, values):
            self.values = values

        @property
        def __class__(self):        # isinstance asks for it
            del self.values[1:]
            return Shortening

    values = []
    values += [Shortening(values), np.ones(2), np.ones(2)]
    assert pnp.concatenate(values) is np.concatenate


def test_a_list_within_itself_is_an_error():
    values = [np.ones(2)]
    values.append(values)
    with pytest.raises((RecursionError, ValueError)):
        pnp.concatenate(values)


SHAPES = [3, 0, -1, True, np.int64(2), 2**62, 2**70, (), [], (2, 3), [2, 0], (2, -1), (2, True), [np.int64(2), 3],
          (2, 2.0), 2.0, "2", (2**31, 2**31, 2**31), (1,) * 8, (1,) * 9, (1,) * 65, np.array([2, 3]), np.array(2),
          [[2]], [Tensor(np.array(2)), 3]]
DTYPES = [
    {}, *({"dtype": dtype} for dtype in (int, float, bool, complex, "f4", np.float32, np.dtype(">i2"), None, object)),
    {"dtype": str}, {"dtype": "no"}, {"order": "F"}, {"dtype": int, "order": "F"}, {"shape": 1}]


@pytest.mark.parametrize("name", ["zeros", "empty"])
@together("shape", SHAPES, ids=repr)
def test_arrays_of_a_shape_are_numpys(name, shape):
    found, expected = [
        [described(lambda: function(shape, *args, **kwargs)) for kwargs in DTYPES for args in positional(kwargs)]  # noqa: B023
        for function in (getattr(pnp, name), getattr(np, name))]
    assert found == expected


def positional(kwargs):
    """Return the arguments that a dtype may come in by position, besides."""
    return [()] if "dtype" in kwargs or "shape" in kwargs else [(), (int,), ("f4",), (None, "C")]


def described(call):
    """Return the kind of array that a call gives, or the error. Ignore the values of `empty`."""
    try:
        found = call()
    except (TypeError, ValueError, MemoryError, ArithmeticError) as error:
        return type(error), str(error)
    return type(found), found.shape, found.dtype, found.strides, found.flags.owndata


def test_zeros_are_zeros():
    for shape in (3, (2, 3), [2, 2], ()):
        for kwargs in ({}, {"dtype": int}, {"dtype": bool}):
            np.empty(shape).fill(7)     # what the memory held
            assert not pnp.zeros(shape, **kwargs).any()


ENDS = [0, 1, 5, 4096, 4097, -1, True, 2.5, np.int64(3), np.array(3), "3", None, [3], (3,)]


@pytest.mark.parametrize("kwargs", [{}, {"dtype": float}, {"step": 2}], ids=repr)
@together("end", ENDS, ids=repr)
def test_numbers_below_one_are_numpys(end, kwargs):
    expected, found = [described(lambda: function(end, **kwargs)) for function in (np.arange, pnp.arange)]  # noqa: B023
    assert found == expected
    if found[0] is np.ndarray:
        np.testing.assert_array_equal(pnp.arange(end, **kwargs), np.arange(end, **kwargs))


@together("args", [(1, 2.5, 0.5), (0.1, 1, 0.1), (-0.0, 2), (0, 5), (5, 0, -1), (5, 0, -2.5), (1, 1), (2, 1), (1, 2, 0),
                   (0.0, 1.0, 0.0), (0, 1, np.nan), (np.inf, 1), (0, 1e9, 1e6), (0, 4096.5), (0, 4097), (4097, 4100),
                   (0, 8192, 4096), (-3, 3, 0.7), (2.0,), (2.5,), (1e-320, 1), (0, 1e-320, 1), (5, 6, 1e-300),
                   (1, 2, 3, float), (1, True), (0, 3, 1.5), (7, -8, -3)], ids=repr)
@pytest.mark.parametrize("kwargs", [
    {}, {"dtype": "f4"}, {"dtype": np.float32}, {"dtype": float}, {"dtype": "float64"}, {"dtype": int}, {"dtype": "i4"},
    {"dtype": "f2"}, {"dtype": bool}, {"dtype": np.dtype("f4")}, {"dtype": ">f4"}, {"dtype": None}, {"dtype": "none"},
], ids=repr)
def test_numbers_between_two_are_numpys(args, kwargs):
    with np.errstate(all="ignore"):
        expected, found = [described(lambda: function(*args, **kwargs)) for function in (np.arange, pnp.arange)]  # noqa: B023
        assert found == expected
        if found[0] is np.ndarray:
            assert pnp.arange(*args, **kwargs).tobytes() == np.arange(*args, **kwargs).tobytes()


@pytest.mark.parametrize("dtype", [float, int, bool, complex, str, object, None, "f4"], ids=repr)
@together("array", [np.arange(3), np.arange(6.0).reshape(2, 3).T, np.arange(6.0)[::2], np.array(1.5), np.array([]),
                    np.array([1 + 2j]), np.array([1.5, np.nan, 1e300]), np.arange(3, dtype=">i4"), np.array(["1", "2"]),
                    np.array(["x"]), np.array([None]), np.array([1, "2"], object), [1, 2], 3, np.array("2020", "M8[D]"),
                    np.ones((2, 3), order="F"), np.ones(2, "f2"), np.array([True])], ids=repr)
def test_arrays_of_a_dtype_are_numpys(array, dtype):
    for args, kwargs in (((array, dtype), {}), ((array,), {"dtype": dtype})):
        with all_warnings() as expected_warnings, np.errstate(all="ignore"):
            expected = described(lambda: np.asarray(*args, **kwargs))       # noqa: B023
        with all_warnings() as found_warnings, np.errstate(all="ignore"):
            found = described(lambda: pnp.asarray(*args, **kwargs))         # noqa: B023
            assert found == expected
            assert [str(w.message) for w in found_warnings] == [str(w.message) for w in expected_warnings]
            if found[0] is np.ndarray:
                result, of_numpy = pnp.asarray(*args, **kwargs), np.asarray(*args, **kwargs)
                assert (result is array) == (of_numpy is array)
                assert (repr(result), result.strides) == (repr(of_numpy), of_numpy.strides)


ARRAYS_WITHOUT_AXES = [np.array(1.5), np.array(3), np.array(2j), np.array(True), np.array(1, ">i4"), np.array("text"),
                       np.array(None), np.ones(3)[1:2].reshape(()), np.ones((2, 2))[1, 1, ...],
                       np.broadcast_to(np.float32(1), ()), np.frombuffer(b"\0" * 9, "u1")[1:].view("f8").reshape(())]


@pytest.mark.parametrize("x", ARRAYS_WITHOUT_AXES, ids=lambda x: x.dtype.str)
@pytest.mark.parametrize("name", ["ascontiguousarray", "asfortranarray"])
def test_conversions_add_an_axis_as_numpy_does(name, x):
    expected, found = [getattr(library, name)(x) for library in (np, pnp)]
    assert str(found.flags) == str(expected.flags)
    assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
    assert found.base is expected.base
    assert np.shares_memory(found, x)
    np.testing.assert_array_equal(found, expected)
