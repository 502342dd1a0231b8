"""Arguments that NumPy takes and that operators do not have. Oracle: NumPy, in values, shapes and dtypes."""

import copy
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, compile, func
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, DispatchTypeError
from pydispatch.scipy import special
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves

VECTOR = numpy.array([3.0, 1.0, 2.0])
SINGLE = numpy.array([1, 2, 3], "f4")
MATRIX = numpy.arange(6.0).reshape(2, 3)

ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "astype, class of dtypes": (lambda np, x: x.astype(numpy.dtypes.Float32DType), (VECTOR,)),
    "array, class of dtypes": (lambda np, x: np.array(x, numpy.dtypes.Float32DType), (VECTOR,)),
    "subtract, class of dtypes": (
        lambda np, x: np.subtract(x, x, dtype=numpy.dtypes.Float64DType), (numpy.array([1, 2]),)),
    "sum, class of dtypes": (lambda np, x: np.sum(x, dtype=numpy.dtypes.Float64DType), (numpy.array([1, 2]),)),
    "array, copy if needed": (lambda np, x: np.array(x, copy=numpy._CopyMode.IF_NEEDED), (VECTOR,)),
    "array, copy always": (lambda np, x: np.array(x, copy=numpy._CopyMode.ALWAYS), (VECTOR,)),
    "select, wider default": (lambda np, x: np.select([x > 1], [x], numpy.float64(0.1)), (SINGLE,)),
    "select, default of more axes": (
        lambda np, x, d: np.select([x[:1] > 1], [x[:1]], d), (SINGLE, numpy.arange(6.0).reshape(2, 3))),
    "select, number too large": (lambda np, x, y: np.select([x > 1], [y], 300), (SINGLE, numpy.array([1, 2, 3], "i2"))),
    "digitize, no bins": (lambda np, x, bins: np.digitize(x, bins), (VECTOR, numpy.zeros(0))),
    "digitize, one bin": (lambda np, x, bins: np.digitize(x, bins, right=True), (VECTOR, numpy.array([2.0]))),
    "reduceat, no indices": (lambda np, x: np.add.reduceat(x, []), (SINGLE,)),
    "reduceat, no indices of a matrix": (lambda np, x: np.maximum.reduceat(x, [], axis=1), (MATRIX,)),
    "take, mode": (lambda np, x: np.take(x, [0, 1], mode=None), (VECTOR,)),
    "choose, mode": (lambda np, k, x: np.choose(k, [x, 2 * x], mode=None), (numpy.array([1, 0, 1]), VECTOR)),
    "astype": (lambda np, k: np.astype(k, None), (numpy.array([1, 2]),)),
    "linspace, one": (lambda np, x: np.linspace(x, 2.0, num=1, retstep=True), (numpy.array(1.0),)),
    "linspace, none": (lambda np, x: np.linspace(x, 2.0, num=0, retstep=True), (numpy.array(1.0),)),
    "linspace, one without the end": (
        lambda np, x: np.linspace(x, 2.0, num=1, retstep=True, endpoint=False), (numpy.array(1.0),)),
    "linspace, of vectors": (lambda np, x: np.linspace(x, 2 * x, num=3, retstep=True), (VECTOR,)),
    "histogram of float16": (lambda np, x: np.histogram(x, [0.0, 1.5, 2.5, 4.0]), (VECTOR.astype("f2"),)),
    "nanquantile of float32": (lambda np, x: np.nanquantile(x, 0.3), (numpy.array([1, numpy.nan, 3], "f4"),)),
    "einsum_path": (lambda np, a: np.einsum_path("ij,jk,kl", a, a, a, optimize="optimal")[0][1:], (numpy.eye(3),)),
    "einsum_path, numbers of axes": (lambda np, a: np.einsum_path(a, [0, 1], a, [1, 2])[0][1:], (numpy.eye(3),)),
}
OF_VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "setxor1d": (lambda np, a, b: np.setxor1d(a, b), (numpy.array([1, 1, 2, 5]), numpy.array([2, 3, 3]))),
    "setxor1d, duplicates": (lambda np, a, b: np.setxor1d(a, b, assume_unique=True),
                             (numpy.array([1, 1, 2, 5]), numpy.array([2, 3, 3]))),
    "setxor1d, matrices": (lambda np, a, b: np.setxor1d(a, b), (MATRIX, MATRIX + 2)),
    "setxor1d, nothing": (lambda np, a, b: np.setxor1d(a, b), (numpy.zeros(0), numpy.zeros(0))),
    "setxor1d, nan": (lambda np, a, b: np.setxor1d(a, b), (numpy.array([1, numpy.nan]), numpy.array([2, numpy.nan]))),
    "intersect1d": (lambda np, a, b: np.intersect1d(a, b, return_indices=True),
                    (numpy.array([5, 1, 1, 2]), numpy.array([3, 2, 2, 5]))),
    "intersect1d, duplicates": (lambda np, a, b: np.intersect1d(a, b, assume_unique=True),
                                (numpy.array([1, 1, 2, 5]), numpy.array([2, 3, 3]))),
    "intersect1d, distinct": (lambda np, a, b: np.intersect1d(a, b, assume_unique=True, return_indices=True),
                              (numpy.array([4, 1, 2, 5]), numpy.array([2, 5, 3]))),
    "intersect1d, nothing": (lambda np, a, b: np.intersect1d(a, b, return_indices=True),
                             (numpy.zeros(0), numpy.ones(2, int))),
}


def assert_same(found: Any, expected: Any) -> None:
    found, expected = tree_leaves(found), tree_leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        one = one.numpy() if isinstance(one, Tensor) else one
        numpy.testing.assert_array_equal(one, other)
        assert numpy.asarray(one).dtype == numpy.asarray(other).dtype
        assert numpy.shape(one) == numpy.shape(other)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", [*ROWS, *OF_VALUES])
def test_functions_take_the_arguments_of_numpys(name):
    call, arrays = (ROWS | OF_VALUES)[name]
    expected = call(numpy, *arrays)
    assert_same(call(np, *arrays), expected)
    assert_same(call(np, *map(Tensor, arrays)), expected)
    assert_same(call(numpy, *map(Tensor, arrays)), expected)
    if name in ROWS:
        batches = [numpy.stack([array, array]) for array in arrays]
        if name.startswith("einsum_path"):      # of numbers, which no example has of its own
            seen = []
            func.vmap(lambda *args: seen.append(call(np, *args)) or args[0])(*batches)
            assert_same(seen[0], expected)
        else:
            assert_same(compile(lambda *args: call(np, *args))(*arrays), expected)
            found = func.vmap(lambda *args: call(np, *args))(*batches)
            assert_same([leaf[1] for leaf in tree_leaves(found)], expected)


@pytest.mark.parametrize("mode", ["full", "f"])
def test_qr_knows_the_old_name_of_its_default(mode):
    with pytest.warns(DeprecationWarning, match="'full' option is deprecated"):
        expected = numpy.linalg.qr(MATRIX, mode)
    with pytest.warns(DeprecationWarning, match="'full' option is deprecated"):
        assert_same(np.linalg.qr(Tensor(MATRIX), mode), expected)


def test_qr_refuses_inner_formats():
    for mode in ("raw", "economic", "e"):
        with pytest.raises(DispatchTypeError, match="LAPACK's internal format"):
            np.linalg.qr(Tensor(MATRIX), mode)


def test_the_sign_of_a_complex_logsumexp_compiles():
    z = numpy.array([1 + 2j, -1.0, 0.0])
    expected = special.logsumexp(z, return_sign=True)
    assert [part.dtype for part in expected] == ["f8", "c16"]
    for found in (compile(lambda z: special.logsumexp(z, return_sign=True))(z),
                  special.logsumexp(Tensor(z), return_sign=True),
                  make_fx(lambda z: special.logsumexp(z, return_sign=True), tracing_mode="fake")(z)(z)):
        assert_same(found, expected)


def test_sizes_come_with_what_fills_them_up():
    x = numpy.array([3.0, 1.0, 3.0, 2.0])

    def unique(x: Any) -> Any:
        return np.unique(x, size=5, fill_value=-1.0, return_counts=True)

    for run in (unique, lambda x: unique(Tensor(x)), compile(unique), make_fx(unique)(x),
                lambda x: [part[1] for part in func.vmap(unique)(numpy.stack([x * 0, x]))]):
        assert_same(run(x), [numpy.array([1.0, 2, 3, -1, -1]), numpy.array([1, 1, 2, 0, 0])])
    rows = numpy.array([[2, 1], [0, 1], [2, 1]])
    assert_same(np.unique(rows, axis=0, size=3, fill_value=9), numpy.array([[0, 1], [2, 1], [9, 9]]))
    assert_same(np.unique(rows.T, axis=1, size=3, fill_value=9), numpy.array([[0, 2, 9], [1, 1, 9]]))
    assert_same(np.unique(x, size=5), numpy.array([1.0, 2, 3, 1, 1]))

    def nonzero(x: Any) -> Any:
        return np.nonzero(x, size=3, fill_value=(5, 6))

    for run in (nonzero, lambda x: nonzero(Tensor(x)), compile(nonzero)):
        assert_same(run(numpy.eye(2)), (numpy.array([0, 1, 5]), numpy.array([0, 1, 6])))
    assert_same(np.argwhere(numpy.eye(2), size=3, fill_value=(5, 6)), numpy.array([[0, 0], [1, 1], [5, 6]]))
    with pytest.raises(ValueError, match="zip"):
        np.nonzero(numpy.eye(2), size=3, fill_value=(5, 6, 7))


def test_functions_of_python_take_tensors_without_a_gradient():
    def join(left: Any, right: Any) -> Any:
        return f"{left} {right}" if right > 1 else left + right

    function = numpy.frompyfunc(join, 2, 1)
    expected = function(VECTOR, SINGLE)
    for found in (function(Tensor(VECTOR), SINGLE), np.frompyfunc(join, 2, 1)(VECTOR, Tensor(SINGLE))):
        assert isinstance(found, Tensor)
        assert found.numpy().tolist() == expected.tolist()
    assert numpy.frompyfunc(max, 2, 1).reduce(Tensor(VECTOR)) == 3.0
    with pytest.raises(AutogradError, match="its gradient would be lost"):
        function(Tensor(VECTOR, requires_grad=True), SINGLE)
    for transform in (func.grad, func.vmap, make_fx):
        with pytest.raises((ConversionError, DataDependentError)):
            transform(lambda x: np.sum(function(x, x)))(MATRIX)


def test_copies_are_values_of_the_transform():
    def program(x: Any) -> Any:
        first, second = copy.copy(x), copy.deepcopy({"x": [x, x]})
        assert second["x"][0] is second["x"][1]
        first *= 2
        second["x"][0][...] += 1
        return first + second["x"][0] * x

    expected = program(VECTOR)
    for run in (compile(program), make_fx(program)(VECTOR * 0), func.functionalize(program),
                lambda x: program(Tensor(x)), lambda x: func.vmap(program)(numpy.stack([x * 2, x]))[1],
                lambda x: func.jvp(program, (x,), (x,))[0]):
        assert_same(run(VECTOR), expected)
    numpy.testing.assert_array_equal(func.grad(lambda x: np.sum(program(x)))(VECTOR), 2 * VECTOR + 3)
