"""Kernels in C give what NumPy's functions give: bits, dtype and layout, warnings and errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, _core, ops
from tests.core.test_elementwise import LEFT_TO_NUMPY, TYPES, numbers, outcome
from tests.core.test_iteration import laid_out, layouts
from tests.together import together

DTYPES = [*TYPES, *map(np.dtype, ("e", "g", ">f8", "M8[s]", "U3", "O", [("a", int), ("b", float)]))]
each_dtype = pytest.mark.parametrize("dtype", [None, *DTYPES], ids=str)



def shown(function, *args, **kwargs):
    """Return the outcome, as text where the memory holds pointers or padding."""
    def call():
        result = function(*args, **kwargs)
        if result.dtype.char not in "OgG":
            return result
        return np.array([repr(element) for element in result.ravel()], str).reshape(result.shape)
    return outcome(call)


# --- making arrays ----------------------------------------------------------------------------------------------------

SHAPES = [(), (0,), (1,), (7,), (2, 3), (3, 0, 2), (4096,), (4097,), (64, 65), (10**5, 0), (-1,), (1,) * 64, (1,) * 65]
VALUES = {
    "int": 3, "negative": -7, "too large": 300, "too large for 64 bits": 2**70, "float": 1.5, "nan": np.nan,
    "inf": -np.inf, "too large for float32": 1e300, "too small for float32": 1e-300, "minus 0": -0.0, "bool": True,
    "complex": 1 - 2j, "NumPy's": np.float32(0.1), "array": np.array(2.5), "row": np.array([[1, 2, 3]]),
    "complex array": np.array([1j]), "array of half": np.array([1.5], "e"), "swapped": np.array(1.5, ">f8"),
    "masked": np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
}


@each_dtype
def test_ones(dtype):
    for shape in SHAPES:
        assert shown(_core.ones, shape, dtype=dtype) == shown(np.ones, shape, dtype=dtype), shape


@each_dtype
@together("value", VALUES.values(), ids=VALUES)
def test_full(value, dtype):
    for shape in SHAPES:
        assert shown(_core.full, shape, value, dtype=dtype) == shown(np.full, shape, value, dtype=dtype), shape


@pytest.mark.parametrize("dtype", [*DTYPES, np.float32, "f4", float, int, bool, complex], ids=str)
@given(layout=layouts, kind=st.sampled_from(TYPES), shape=st.lists(st.integers(0, 3), max_size=4))
@settings(max_examples=30, deadline=None)
def test_astype(dtype, layout, kind, shape):
    x = laid_out(numbers(kind, shape, seed=1), *layout)
    assert shown(ops.np.astype, x, dtype) == shown(x.astype, dtype)


# --- joining ----------------------------------------------------------------------------------------------------------

JOINED = {
    "C order": lambda x: [x, x + 1, x],
    "Fortran order": lambda x: [np.asfortranarray(x), np.asfortranarray(x)],
    "both orders": lambda x: [x, np.asfortranarray(x)],
    "every other element": lambda x: [x[..., ::2], x[..., ::2]],
    "backwards": lambda x: [x[::-1], x],
    "one array": lambda x: [x],
    "many arrays": lambda x: [x] * 40,
    "two dtypes": lambda x: [x, x.astype(np.float32), x],
    "empty, and not": lambda x: [x[:0], x],
    "of other shapes": lambda x: [x, x[:-1]],
    "with another number of axes": lambda x: [x, x[0]],
    "a matrix and its transpose": lambda x: [x, x.T],
    "subclass": lambda x: [x, np.ma.array(x, mask=x > 2)],
    "with one row, made by slicing": lambda x: [x[:1], x[1:2]],
    "large": lambda x: [np.tile(x, (40,) * x.ndim)] * 2,
}
SOURCES = {"vector": (4,), "matrix": (3, 4), "cube": (2, 3, 4), "square": (3, 3), "row": (1, 5), "long": (40, 2)}


@pytest.mark.parametrize("function", ["concatenate", "stack"])
@pytest.mark.parametrize("shape", SOURCES.values(), ids=SOURCES)
@together("arrays", JOINED.values(), ids=JOINED)
def test_joining(arrays, shape, function):
    listed = tuple(arrays(np.arange(float(np.prod(shape))).reshape(shape)))
    for axis in range(-len(shape) - 2, len(shape) + 3):
        ours, numpys = getattr(_core, function), getattr(np, function)
        assert outcome(ours, listed, axis) == outcome(numpys, listed, axis), axis


@pytest.mark.parametrize("function", ["concatenate", "stack"])
@together("dtype", [*TYPES, *LEFT_TO_NUMPY], ids=str)
def test_joining_every_dtype(function, dtype):
    listed = (np.arange(6).reshape(2, 3).astype(dtype), np.ones((2, 3), dtype))
    for axis in range(2):
        assert outcome(getattr(_core, function), listed, axis) == outcome(getattr(np, function), listed, axis)


def test_joining_arrays_without_axes():
    listed = (np.array(1.0), np.array(2.0))
    assert outcome(_core.stack, listed) == outcome(np.stack, listed)
    assert outcome(_core.concatenate, listed, 0) == outcome(np.concatenate, listed, 0)


def test_what_was_joined_is_a_new_array():
    x = np.ones(3)
    for joined in (_core.concatenate((x,)), _core.stack((x,))):
        joined[...] = 0.0
    assert x.tolist() == [1, 1, 1]


# --- numbers of NumPy's as Tensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [
    np.array([3, 9, 1]), np.array([2.0, np.nan]), np.array([True]), np.array([1.0, 5.0], "f"), np.array([2, 1], "u1"),
    np.array([-2**63, 2**63 - 1]),
], ids=str)
@pytest.mark.parametrize("name", ["max", "argmax", "sum"])
def test_a_scalar_becomes_an_array(name, x):
    expected, found = getattr(np, name)(x), getattr(ops.np, name)(Tensor(x)).array
    assert (type(found), found.shape, found.dtype) == (np.ndarray, (), expected.dtype)
    assert found.tobytes() == expected.tobytes()


# --- convolution ------------------------------------------------------------------------------------------------------

MODES = {"valid": 0, "same": 1, "full": 2}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("m", range(1, 14))
def test_vectors_are_convolved_and_correlated_as_numpy_does(m, mode):
    random = np.random.default_rng(m)
    for n in (*range(1, 20), 63, 64, 1000):
        for step in (1, -1, 2):
            a, v = random.standard_normal(n), random.standard_normal(abs(step) * m)[::step]
            close = {"rtol": 1e-13, "atol": 1e-14}
            np.testing.assert_allclose(_core.convolve_vectors(a, v, MODES[mode]), np.convolve(a, v, mode), **close)
            np.testing.assert_allclose(_core.convolve_vectors(v, a, MODES[mode]), np.convolve(v, a, mode), **close)
            found = _core.correlate_vectors(a, v, MODES[mode])
            assert (found is None) == (n < m and mode != "full")
            if found is not None:
                np.testing.assert_allclose(found, np.correlate(a, v, mode), **close)


@pytest.mark.parametrize("m", range(1, 14))
def test_in_a_convolution_each_number_is_in_the_sums_of_its_windows_only(m):
    for n in range(m, 40):
        for place in range(n):
            a = np.zeros(n)
            a[place] = np.nan
            for number, mode in enumerate(MODES):
                expected = np.convolve(a, np.ones(m), mode)
                np.testing.assert_array_equal(_core.convolve_vectors(a, np.ones(m), number), expected)
                np.testing.assert_array_equal(_core.correlate_vectors(a, np.ones(m), number),
                                              np.correlate(a, np.ones(m), mode))


def test_a_convolution_of_other_arrays_than_vectors_of_float64_is_numpys_to_do():
    x = np.ones(4)
    for other in (np.ones((2, 2)), np.ones(0), np.ones(3, "f"), np.ones(3, int), np.ones(3, ">f8"), [1.0], 1.0,
                  np.ma.array([1.0])):
        for function in (_core.convolve_vectors, _core.correlate_vectors):
            assert function(x, other, 2) is None
            assert function(other, x, 2) is None
    assert _core.convolve_vectors(x, x, 2, 15) is None
    np.testing.assert_array_equal(_core.convolve_vectors(x, x, 2, 16), [1, 2, 3, 4, 3, 2, 1])


def test_a_convolution_of_zeros_has_the_signs_of_numpys():
    for a, v in (([-0.0], [1.0]), ([-0.0, 1.0], [2.0, -0.0, 0.0]), ([0.0] * 20, [-1.0] * 3)):
        found = _core.convolve_vectors(np.array(a), np.array(v), 2)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(np.convolve(a, v)))
