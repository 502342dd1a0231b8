"""Objects of other libraries: as items of keys, and as arguments of functions inside transforms. Oracle: NumPy."""

import array
from typing import Any

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, func
from pydispatch.tracing import make_fx
from tests.modes.recorders import Passing

VECTOR = numpy.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0])
MATRIX = numpy.arange(12.0).reshape(3, 4)


class Indexed:
    """A number for `__index__` only."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Arrayed:
    """An object that NumPy converts by `__array__`."""

    def __init__(self, values: Any) -> None:
        self.values = numpy.array(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        return numpy.array(self.values, dtype)


class Both(Arrayed):
    """An array that is a number, too, which NumPy asks first."""

    def __index__(self) -> int:
        return 1


class Named:
    """Numbers with a unit, which NumPy's functions ask what they mean."""

    def __init__(self, values: Any, unit: str) -> None:
        self.values, self.unit = numpy.asarray(values), unit

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        return numpy.array(self.values, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        values = [value.values if isinstance(value, Named) else value for value in inputs]
        return Named(getattr(ufunc, method)(*values, **kwargs), f"{ufunc.__name__} of {self.unit}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return f"{function.__name__} of {self.unit}"


KEYS = [Indexed(2), Indexed(-1), (Indexed(0), Indexed(1)), Arrayed([2, 0]), Arrayed(1), Arrayed([True, False, True]),
        (Arrayed([0, 1]), Arrayed([1, 1])), (slice(None), Arrayed([3, 1])), Both([0, 2]), range(2), range(0),
        (range(2), 1), memoryview(numpy.array([2, 1])), array.array("q", [1, 1]), Arrayed([]), [range(2), range(1, 3)],
        numpy.int8(1), True, (numpy.array(2), slice(1, 3))]
WRONG_KEYS = ["a", b"a", 1.5, {1, 2}, Arrayed([0.5]), Arrayed(["a"]), 1j]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_takes_what_numpy_reads(key):
    expected = MATRIX[key]
    numpy.testing.assert_array_equal(Tensor(MATRIX)[key].numpy(), expected)
    assert Tensor(MATRIX)[key].shape == expected.shape
    written, tensor = MATRIX.copy(), Tensor(MATRIX.copy())
    written[key] = tensor[key] = 7.0
    numpy.testing.assert_array_equal(tensor.numpy(), written)
    for function in (np.add, np.negative):
        written, tensor = MATRIX.copy(), Tensor(MATRIX.copy())
        values = () if function is np.negative else (2.0,)
        function.at(tensor, key, *values)
        getattr(numpy, function.__name__).at(written, key, *values)
        numpy.testing.assert_array_equal(tensor.numpy(), written)
    slope = func.grad(lambda x: np.sum(x[key] * x[key]))(MATRIX)
    counts = numpy.zeros(MATRIX.shape)
    numpy.add.at(counts, key, 1.0)
    numpy.testing.assert_array_equal(slope, 2 * MATRIX * counts)
    numpy.testing.assert_array_equal(func.vmap(lambda x: x[key])(numpy.stack([MATRIX, -MATRIX])),
                                     numpy.stack([expected, -expected]))
    numpy.testing.assert_array_equal(make_fx(lambda x: x[key])(MATRIX)(MATRIX + 1), expected + 1)


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_other_keys_are_errors(key):
    with pytest.raises((IndexError, TypeError)):
        Tensor(MATRIX)[key]
    with pytest.raises((IndexError, TypeError)):
        Tensor(MATRIX.copy())[key] = 1.0


CALLS = {
    "exp": lambda np, x: np.exp(x), "add": lambda np, x: np.add(x, x),
    "beside a list": lambda np, x: np.add([1.0, 2.0], x), "maximum": lambda np, x: np.maximum(VECTOR[:2], x),
    "reduce": lambda np, x: np.add.reduce(x), "outer": lambda np, x: np.multiply.outer(x, VECTOR),
    "sum": lambda np, x: np.sum(x), "where": lambda np, x: np.where(x, 1.0, 2.0),
    "concatenate": lambda np, x: np.concatenate([VECTOR, x]), "stack": lambda np, x: np.stack((x, x)),
    "median": lambda np, x: np.median(x),
    "dot": lambda np, x: np.dot(x, x), "norm": lambda np, x: np.linalg.norm(x), "mean": lambda np, x: np.mean(a=x),
    "divmod": lambda np, x: np.divmod(x, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_objects_are_asked_inside_transforms_as_outside(name):
    call, named = CALLS[name], Named([1.0, 2.0], "m")
    expected = call(numpy, named)
    seen = []

    def program(x: Any) -> Any:
        seen.append(call(np, named))
        return np.sum(x * 2)

    program(VECTOR)
    func.grad(program)(VECTOR)
    func.vmap(program)(MATRIX)
    func.jvp(program, (VECTOR,), (VECTOR,))
    func.functionalize(program)(VECTOR)
    make_fx(program)(VECTOR)
    with Passing():
        program(VECTOR)
    assert len(seen) >= 7
    for found in seen:
        assert type(found) is type(expected)
        if isinstance(expected, Named):
            assert found.unit == expected.unit
            numpy.testing.assert_array_equal(found.values, expected.values)
        else:
            assert found == expected


def test_series_keep_their_index_inside_transforms():
    pandas = pytest.importorskip("pandas")
    left = pandas.Series([1.0, 2.0, numpy.nan], index=["a", "b", "c"])
    right = pandas.Series([10.0, 20.0, 30.0], index=["c", "b", "a"])

    def program(x: Any) -> Any:
        assert np.add(left, right).dropna().to_dict() == {"a": 31.0, "b": 22.0}
        assert type(np.exp(left)) is pandas.Series
        assert np.sum(left) == 3.0          # which leaves nan out
        assert np.mean(left) == 1.5
        return np.sum(x)

    for run in (program, func.grad(program), func.vmap(program), make_fx(program)):
        run(numpy.ones((2, 2)))


@pytest.mark.parametrize("make", [
    lambda pandas: pandas.Series(VECTOR > 2), lambda pandas: pandas.Index([1, 0]), lambda pandas: pandas.array([1, 0]),
    lambda pandas: pandas.Series([4, 0]).iloc[0], lambda pandas: pandas.Series([], dtype=float)])
def test_keys_of_pandas(make):
    key = make(pytest.importorskip("pandas"))
    numpy.testing.assert_array_equal(Tensor(VECTOR)[key].numpy(), VECTOR[key])
    slope = numpy.zeros(6)
    slope[key] = 1.0
    numpy.testing.assert_array_equal(func.grad(lambda x: np.sum(x[key]))(VECTOR), slope)


def test_arrays_of_xarray():
    xarray = pytest.importorskip("xarray")
    named = xarray.DataArray([1, 0], dims="t")
    numpy.testing.assert_array_equal(Tensor(VECTOR)[named].numpy(), VECTOR[named.values])

    def program(x: Any) -> Any:
        assert np.exp(named).dims == ("t",)
        return np.sum(x)

    func.grad(program)(VECTOR)
