"""Functions that take an index take an array of any interpreter: functions x kinds of index x ways to run them.

Oracles: NumPy, finite differences for gradients, a Python loop for vmap.
"""

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, compile, func
from pydispatch.exceptions import DataDependentError
from pydispatch.tracing import make_fx
from tests.together import together

VECTOR = numpy.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0])
MATRIX = numpy.arange(12.0).reshape(3, 4) + 1
MASKS = [numpy.array([1, 0, 1, 1, 0, 1], bool), numpy.array([0, 0, 1, 0, 0, 1], bool)]
Program = Callable[[Any, Any, Any], Any]


def writing(write: Program) -> Program:
    """Return the program that writes to a copy of its argument."""
    def program(np: Any, x: Any, k: Any) -> Any:
        y = x * 1.0
        write(np, y, k)
        return y
    return program


def places(*values: Any) -> list[numpy.ndarray]:
    return [numpy.array(value) for value in values]


READING: dict[str, tuple[Program, numpy.ndarray, list[numpy.ndarray]]] = {
    "roll": (lambda np, x, k: np.roll(x, k), MATRIX, places(2, -1)),
    "roll, axis": (lambda np, x, k: np.roll(x, k, axis=1), MATRIX, places(2, -1)),
    "roll, shifts": (lambda np, x, k: np.roll(x, k, axis=(0, 1)), MATRIX, places([2, 1], [-1, 3])),
    "roll, one axis twice": (lambda np, x, k: np.roll(x, k, axis=0), VECTOR, places([2, 1], [-1, 3])),
    "insert": (lambda np, x, k: np.insert(x, k, 7.0), VECTOR, places(2, -1)),
    "insert, several": (lambda np, x, k: np.insert(x, k, [7.0, 8.0]), VECTOR, places([2], [-1])),
    "insert, indices": (lambda np, x, k: np.insert(x, k, [7.0, 8.0, 9.0]), VECTOR, places([2, 2, 0], [-1, 5, 6])),
    "insert, axis": (lambda np, x, k: np.insert(x, k, x[:, :2], axis=1), MATRIX, places([2, 1], [-1, 0])),
    "insert, number and axis": (lambda np, x, k: np.insert(x, k, [1.0, 2, 3], axis=1), MATRIX, places(2, -1)),
    "delete": (lambda np, x, k: np.delete(x, k), MATRIX, places(2, -1)),
    "delete, axis": (lambda np, x, k: np.delete(x, k, axis=0), MATRIX, places([2], [-2])),
    "take": (lambda np, x, k: np.take(x, k, axis=1), MATRIX, places(2, -1)),
    "take_along_axis": (lambda np, x, k: np.take_along_axis(x, k, 1), MATRIX,
                        places([[2], [1], [0]], [[-1], [3], [0]])),
    "choose": (lambda np, x, k: np.choose(k, [x, 2 * x]), VECTOR, places([0, 1, 0, 1, 1, 0], [1] * 6)),
    "getitem": (lambda np, x, k: x[k], MATRIX, places(2, -1)),
    "getitem, indices": (lambda np, x, k: x[:, k], MATRIX, places([2, 0], [-1, 0])),
    "unravel_index": (lambda np, x, k: x[np.unravel_index(k, (3, 4))], MATRIX, places([2, 11], [7, 0])),
    "partition": (lambda np, x, k: np.sort(np.partition(x, k)), VECTOR, places(2, 3)),
    "searchsorted": (lambda np, x, k: x * np.searchsorted(numpy.arange(6.0) * 2, 4.5, sorter=k), VECTOR,
                     places([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])),
}
WRITING: dict[str, tuple[Program, numpy.ndarray, list[numpy.ndarray]]] = {
    "put": (lambda np, y, k: np.put(y, k, [7.0, 8.0]), VECTOR, places([2, 0], [-1, 2])),
    "put, number": (lambda np, y, k: np.put(y, k, 7.0), MATRIX, places(2, -1)),
    "put, wrap": (lambda np, y, k: np.put(y, k, [7.0, 8.0], mode="wrap"), MATRIX, places([20, -33], [-1, 2])),
    "put, clip": (lambda np, y, k: np.put(y, k, [7.0, 8.0], mode="clip"), MATRIX, places([20, -33], [-1, 2])),
    "place": (lambda np, y, k: np.place(y, k, [7.0, 8.0]), VECTOR, MASKS),
    "putmask": (lambda np, y, k: np.putmask(y, k, [7.0, 8.0]), VECTOR, MASKS),
    "put_along_axis": (lambda np, y, k: np.put_along_axis(y, k, 7.0, 1), MATRIX,
                       places([[2], [1], [0]], [[-1], [3], [0]])),
    "put_along_axis, flat": (lambda np, y, k: np.put_along_axis(y, k, 7.0, None), MATRIX, places([2, 7], [-1, 3])),
}
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "power", "divide", "hypot")
BY_RAW_KEY = ("getitem", "getitem, indices", "unravel_index")
"""Programs that index with Tensors what they are given; NumPy refuses to index a raw array so."""
for name in BINARY:
    # no three elements of a power: NumPy 2.4.6 leaves out one (np.power.reduce([4, 1.5, 5.]) is 1024.0)
    READING[f"{name}.reduceat"] = (lambda np, x, k, name=name: getattr(np, name).reduceat(x / 3, k), VECTOR,
                                   places([0, 2, 1, 3, 4], [2, 4, 3, 5, 4]) if name == "power" else
                                   places([0, 3, 1], [2, 3, 5]))
    READING[f"{name}.reduceat, axis"] = (lambda np, x, k, name=name: getattr(np, name).reduceat(x / 4, k, 1), MATRIX,
                                         places([3, 0, 2], [2, 2, 3]))
    WRITING[f"{name}.at"] = (lambda np, y, k, name=name: getattr(np, name).at(y, k, 2.25), VECTOR,
                             places([0, 3, 0], [2, -2, 5]))
    WRITING[f"{name}.at, number"] = (lambda np, y, k, name=name: getattr(np, name).at(y, k, 2.25), VECTOR,
                                     places(1, -2))
    WRITING[f"{name}.at, tuple"] = (
        lambda np, y, k, name=name: getattr(np, name).at(y, (k, slice(1, 3)), numpy.array([2.25, 3.25])), MATRIX,
        places([0, 2, 0], [1, -2, 1]))
    WRITING[f"{name}.at, column"] = (lambda np, y, k, name=name: getattr(np, name).at(y, (slice(None), k), 2.25),
                                     MATRIX, places(1, -2))
for name in ("negative", "tanh", "sqrt", "exp"):
    WRITING[f"{name}.at"] = (lambda np, y, k, name=name: getattr(np, name).at(y, k), VECTOR,
                             places([0, 3, 0], [2, -2, 5]))
for name in ("sum", "prod", "mean", "max", "min", "std", "var", "nansum", "nanprod", "nanmax", "nanmin", "nanmean"):
    start = {"initial": -1.0} if name.endswith(("max", "min")) else {}
    READING[f"{name}, where"] = (lambda np, x, k, name=name, start=start: getattr(np, name)(x, where=k, **start),
                                 VECTOR, MASKS)
for name in ("add", "multiply", "maximum", "minimum"):
    start = {"initial": -1.0} if name.endswith("imum") else {}
    READING[f"{name}.reduce, where"] = (
        lambda np, x, k, name=name, start=start: getattr(np, name).reduce(x, where=k, **start), VECTOR, MASKS)
STARTED: dict[str, tuple[Program, numpy.ndarray, list[numpy.ndarray]]] = {
    f"{name}, initial": (lambda np, x, k, name=name: getattr(np, name)(x, initial=k), VECTOR, places(2.25, 70.0))
    for name in ("sum", "prod", "max", "min", "nansum", "nanprod", "nanmax", "nanmin")}
for name in ("add", "multiply", "maximum", "minimum"):
    STARTED[f"{name}.reduce, initial"] = (lambda np, x, k, name=name: getattr(np, name).reduce(x, 1, initial=k), MATRIX,
                                          places(2.25, 70.0))
ROWS = READING | STARTED | {name: (writing(write), x, ks) for name, (write, x, ks) in WRITING.items()}

OF_SHAPE: dict[str, tuple[Program, numpy.ndarray, numpy.ndarray]] = {
    "repeat": (lambda np, x, k: np.repeat(x, k), VECTOR, numpy.array(2)),
    "repeat, counts": (lambda np, x, k: np.repeat(x, k), VECTOR, numpy.array([2, 1, 0, 1, 1, 1])),
    "split": (lambda np, x, k: np.concatenate(np.split(x, k)[::-1]), VECTOR, numpy.array([2, 3])),
    "split, sections": (lambda np, x, k: np.concatenate(np.split(x, k)[::-1]), VECTOR, numpy.array(3)),
    "array_split": (lambda np, x, k: np.concatenate(np.array_split(x, k)[::-1]), VECTOR, numpy.array([2, 3])),
    "hsplit": (lambda np, x, k: np.concatenate(np.hsplit(x, k)[::-1]), VECTOR, numpy.array([2, 3])),
    "vsplit": (lambda np, x, k: np.concatenate(np.vsplit(x, k)[::-1]), MATRIX, numpy.array([2, 3])),
    "delete": (lambda np, x, k: np.delete(x, k), VECTOR, numpy.array([2, 3])),
    "delete, mask": (lambda np, x, k: np.delete(x, k), VECTOR, MASKS[0]),
    "insert, mask": (lambda np, x, k: np.insert(x, k, 7.0), VECTOR, MASKS[0]),
    "compress": (lambda np, x, k: np.compress(k, x), VECTOR, MASKS[0]),
    "extract": (lambda np, x, k: np.extract(k, x), VECTOR, MASKS[0]),
}
"""The shape of these results depends on the values of the index."""


def assert_same(found: Any, expected: Any) -> None:
    found = found.detach().numpy() if isinstance(found, Tensor) else found
    numpy.testing.assert_allclose(found, expected, rtol=1e-7)
    assert numpy.shape(found) == numpy.shape(expected)


def of_argument(v: Any, k: numpy.ndarray) -> Any:
    """Return the index, computed from an argument of a transform."""
    zero = np.sum(np.zeros_like(v) * v)
    return k + zero if k.dtype.kind == "f" else np.not_equal(k, zero != 0) if k.dtype.kind == "b" else (
        k + np.astype(np.floor(zero), numpy.int64))


def differences(f: Callable[[Any], Any], x: numpy.ndarray, weights: Any) -> numpy.ndarray:
    result = numpy.empty(x.shape)
    for place in numpy.ndindex(x.shape):
        step = numpy.zeros(x.shape)
        step[place] = 1e-5
        result[place] = numpy.sum((f(x + step) - f(x - step)) * weights) / 2e-5
    return result


@pytest.mark.parametrize("name", ROWS)
def test_an_index_is_an_array_of_any_interpreter(name):
    program, x, (k, other) = ROWS[name]
    expected, of_other = program(numpy, x, k), program(numpy, x, other)
    assert_same(program(np, Tensor(x), Tensor(k)), expected)
    assert_same(program(numpy, Tensor(x), Tensor(k)), expected)
    assert_same(program(np, Tensor(x), k), expected)
    assert_same(program(np, Tensor(x, requires_grad=True), Tensor(k)), expected)

    weights = numpy.cos(numpy.arange(expected.size)).reshape(expected.shape)
    slopes = differences(lambda v: program(numpy, v, k), x, weights)
    for index in (lambda v: k, lambda v: Tensor(k), lambda v: of_argument(v, k)):
        found = func.grad(lambda v, index=index: np.sum(program(np, v, index(v)) * weights))(x)
        numpy.testing.assert_allclose(found, slopes, rtol=1e-4, atol=1e-6)
    assert_same(func.jvp(lambda v: program(np, v, of_argument(v, k)), (x,), (x,))[0], expected)

    assert_same(make_fx(lambda v, k: program(np, v, k))(x, k)(x, other), of_other)
    compiled = compile(lambda v, k: program(np, v, k))
    assert_same(compiled(x, k), expected)
    assert_same(compiled(x, other), of_other)

    stacked = numpy.stack([k, other])
    batch = numpy.stack([x, 2 * x])
    loop = numpy.stack([program(numpy, x, k), program(numpy, 2 * x, other)])
    assert_same(func.vmap(lambda v, k: program(np, v, k))(batch, stacked), loop)
    if name not in (*WRITING, *BY_RAW_KEY):
        assert_same(func.vmap(lambda k: program(np, x, k))(stacked), numpy.stack([expected, of_other]))


@pytest.mark.filterwarnings("ignore:.*insert:FutureWarning")     # of older versions of NumPy
@pytest.mark.parametrize("name", OF_SHAPE)
def test_an_index_that_decides_about_a_shape_has_to_be_known(name):
    program, x, k = OF_SHAPE[name]
    expected = program(numpy, x, k)
    assert_same(program(np, Tensor(x), Tensor(k)), expected)
    weights = numpy.cos(numpy.arange(expected.size))
    weights = weights.reshape(expected.shape)
    slopes = differences(lambda v: program(numpy, v, k), x, weights)
    found = func.grad(lambda v: np.sum(program(np, v, of_argument(v, k)) * weights))(x)
    numpy.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)
    with pytest.raises(DataDependentError, match="depends on values"):
        func.vmap(lambda k: program(np, x, k))(numpy.stack([k, k]))
    with pytest.raises(DataDependentError, match="depends on values"):
        make_fx(lambda k: program(np, x, k))(k)


@pytest.mark.parametrize("name", [*BINARY, "negative", "exp"])
@together("key", [2, numpy.int64(-1), slice(1, 5, 2), ..., (slice(None), 1), (1, 2), numpy.array([1, 1]),
                  [0, 2, 0], (slice(None), [1, 1, 3]), numpy.arange(12).reshape(3, 4) > 4, ()])
def test_at_takes_every_key(name, key):
    values = (2.25,) if name in BINARY else ()
    expected, tensor = MATRIX / 12, Tensor(MATRIX / 12)
    getattr(numpy, name).at(expected, key, *values)
    getattr(np, name).at(tensor, key, *values)
    assert_same(tensor, expected)

    def program(np: Any, x: Any) -> Any:
        y = x * 1.0
        getattr(np, name).at(y, key, *values)
        return np.sum(y * MATRIX)

    x = numpy.sqrt(MATRIX) / 3 + 0.51
    found = func.grad(lambda x: program(np, x))(x)
    numpy.testing.assert_allclose(found, differences(lambda x: program(numpy, x), x, 1.0), rtol=1e-5)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", ["i8", "f4", "f8"])
@together("value", [2, 0.5, numpy.array([0.5]), numpy.array([1.5, 2.5], "f4")])
def test_at_casts_as_numpy_does(name, dtype, value):
    expected = numpy.array([1, 2, 3], dtype)
    tensor = Tensor(expected.copy())
    for key in ([0, 2], slice(1, 3)):
        getattr(numpy, name).at(expected, key, value)
        getattr(np, name).at(tensor, key, value)
    assert_same(tensor, expected)
    assert tensor.dtype == expected.dtype


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("n", [0, 1, 300])
def test_extremes_at_many_equal_places(name, n):
    random = numpy.random.default_rng(0)
    x, v = random.standard_normal(5), random.permutation(n) / 70 - 2
    keys = random.integers(-5, 5, (2, n))

    def program(np: Any, v: Any, k: Any) -> Any:
        y = x + np.sum(v[:0]) + np.sum(k[:0])
        getattr(np, name).at(y, k, v)
        return y

    slopes = func.grad(lambda v, k: np.sum(program(np, v, k) ** 2))
    for values in (v, numpy.where(v > 1, numpy.nan, v)):
        with numpy.errstate(invalid="ignore"):
            expected = numpy.stack([program(numpy, values, k) for k in keys])
        numpy.testing.assert_array_equal(func.vmap(lambda k, values=values: program(np, values, k))(keys), expected)
        numpy.testing.assert_array_equal(
            compile(lambda v, k: program(np, v, k))(values, keys[0]), expected[0])
    expected = differences(lambda v: program(numpy, v, keys[0]) ** 2, v, 1.0)
    numpy.testing.assert_allclose(slopes(v, keys[0]), expected, atol=1e-7)
    numpy.testing.assert_allclose(compile(slopes)(v, keys[0]), expected, atol=1e-7)


def test_at_of_one_argument_takes_no_values():
    with pytest.raises(ValueError, match="at takes 2 arguments"):
        np.negative.at(Tensor(VECTOR.copy()), [0], 1.0)


@pytest.mark.parametrize("call", [
    lambda np, x, k: np.insert(x, k, [1.0, 2.0]), lambda np, x, k: np.put(x * 1, k, 1.0),
    lambda np, x, k: np.delete(x, k[:1]), lambda np, x, k: np.add.reduceat(x, k),
    lambda np, x, k: np.multiply.at(x * 1, k, 2.0)])
def test_an_index_out_of_bounds_is_an_error_wherever_it_is_known(call):
    wrong = numpy.array([9, 1])

    def result(np: Any, x: Any, k: Any) -> Any:
        found = call(np, x, k)
        return x if found is None else found

    for run in (lambda: call(numpy, VECTOR, wrong), lambda: call(np, Tensor(VECTOR), Tensor(wrong)),
                lambda: func.vmap(lambda x, k: result(np, x, k))(VECTOR[None], wrong[None])):
        with pytest.raises(IndexError, match=r"out of bounds|out-of-bounds"):
            run()
