"""map: values, contracts, every transform against unrolled loops."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError, FunctionalizationError
from pydispatch.func import grad
from pydispatch.higher_order import map as map_slices
from tests.higher_order import compositions

X = np.array([[0.3, -1.2], [2.0, 0.4], [0.9, -0.7]])
BATCH = np.stack([X, X[::-1] * 0.5, np.sin(X)])


def stacked(f, xs):
    return ops.np.stack([f(xs[i]) for i in range(len(xs))])


def plain(x):
    return map_slices(lambda row: ops.np.sin(row).sum() * row, x)


def plain_unrolled(x):
    return stacked(lambda row: ops.np.sin(row).sum() * row, x)


def shared(x):
    """Return an argument that every slice gets, and a captured one."""
    offset = ops.np.cos(x[1])
    return map_slices(lambda row, w, n: (row * w + offset) * n, x, x[0] * 2.0, 3)


def shared_unrolled(x):
    return stacked(lambda row: (row * x[0] * 2.0 + ops.np.cos(x[1])) * 3, x)


def containers(x):
    return map_slices(lambda s: {"sum": s[0].sum(), "parts": (s[1] * s[0], s[0] > 0)}, (x, ops.np.sin(x)))


def containers_unrolled(x):
    return {"sum": x.sum(1), "parts": (x * ops.np.sin(x), x > 0)}


def nested(x):
    return map_slices(lambda row: map_slices(lambda n: n * row.sum(), row), x)


def nested_unrolled(x):
    return x * x.sum(1, keepdims=True)


TestW11Compositions = compositions.tests_of({
    "plain": (plain, plain_unrolled),
    "shared": (shared, shared_unrolled),
    "containers": (containers, containers_unrolled),
    "nested": (nested, nested_unrolled),
}, (X,), BATCH)


def test_gradients_of_shared_arguments_are_summed():
    gradient = grad(lambda w: map_slices(lambda x, w: x * w, np.array([2.0, 4.0, 8.0]), w).sum())(np.array(5.0))
    compositions.same(gradient, np.array(14.0))


def test_gradients_of_captured_arrays_are_summed():
    weight = Tensor(np.array(5.0), requires_grad=True)
    map_slices(lambda x: x * weight, np.array([2.0, 4.0, 8.0])).sum().backward()
    compositions.same(weight.grad, np.array(14.0))


def test_result_that_is_a_slice():
    compositions.same(map_slices(lambda row: row, X), X)


def test_raw_in_raw_out():
    assert type(map_slices(lambda row: row * 2, X)) is np.ndarray
    assert type(map_slices(lambda row: row * 2, Tensor(X))) is Tensor


@pytest.mark.parametrize(("xs", "message"), [
    ((X, X[:2]), "map: xs have lengths 3, 2"),
    ([], "map: xs contains no arrays"),
    ({"a": 3}, "map: xs contains an int, expected arrays"),
], ids=["unequal", "nothing", "number"])
def test_xs_of_map(xs, message):
    with pytest.raises(DispatchTypeError, match=message):
        map_slices(lambda x: x * 1, xs)


def test_scalars_have_no_slices():
    with pytest.raises(np.exceptions.AxisError):
        map_slices(lambda x: x, np.array(1.0))


def test_function_that_is_none():
    with pytest.raises(DispatchTypeError, match="map: f is a NoneType, expected a function"):
        map_slices(None, X)


def test_write_to_a_slice():
    def f(row):
        row *= 2
        return row

    x = X.copy()
    with pytest.raises(FunctionalizationError, match="map: f writes in place to argument 0"):
        map_slices(f, x)
    compositions.same(x, X)
