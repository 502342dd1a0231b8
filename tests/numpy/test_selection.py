"""Functions whose results have as many elements as values say, and those that search."""

import math

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.autograd import grad
from pydispatch.backends import MetaArray
from pydispatch.exceptions import ConversionError, DataDependentError
from pydispatch.func import functionalize, hessian, jacfwd, vmap
from pydispatch.func import grad as func_grad
from pydispatch.tracing import make_fx

X = np.array([[0.0, 2.0, 0.0, 3.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [4.0, 5.0, 6.0, 7.0]])
OF_UNKNOWN_LENGTH = {
    "nonzero": pnp.nonzero, "flatnonzero": pnp.flatnonzero, "argwhere": pnp.argwhere, "unique": pnp.unique,
    "where": pnp.where, "extract": lambda x: pnp.extract(x > 0, x), "union1d": lambda x: pnp.union1d(x, x),
    "bincount": lambda x: pnp.bincount(pnp.astype(x, int)),
}


@pytest.mark.parametrize("name", OF_UNKNOWN_LENGTH)
def test_where_values_cannot_be_looked_at_the_length_is_unknown(name):
    function = OF_UNKNOWN_LENGTH[name]
    for run in (lambda: vmap(function)(X), lambda: make_fx(function)(X[0])):
        with pytest.raises((DataDependentError, ConversionError), match="length=" if name == "bincount" else None):
            run()
    if name not in ("extract", "bincount"):     # these compute with Python's operators, which a MetaArray has not
        with pytest.raises((DataDependentError, ConversionError, TypeError)):
            function(MetaArray((4,)))


def padded(values, size, fill_value):
    return np.concatenate([values, np.full(max(0, size - len(values)), fill_value)])[:size]


@pytest.mark.parametrize("size", [0, 1, 3, 6])
def test_nonzero_of_a_known_size_is_a_loop(size):
    expected = np.stack([padded(np.flatnonzero(row), size, -1) for row in X])
    np.testing.assert_array_equal(vmap(lambda x: pnp.flatnonzero(x, size=size, fill_value=-1))(X), expected)
    np.testing.assert_array_equal(vmap(lambda x: pnp.nonzero(x, size=size, fill_value=-1)[0])(X), expected)
    np.testing.assert_array_equal(np.stack([pnp.flatnonzero(x, size=size, fill_value=-1) for x in X]), expected)
    assert pnp.argwhere(MetaArray((4, 2)), size=size).shape == (size, 2)
    traced = make_fx(lambda x: pnp.flatnonzero(x, size=size, fill_value=-1))(X[0])
    np.testing.assert_array_equal(np.asarray(traced(X[3])), expected[3])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_unique_of_a_known_size_is_a_loop(size):
    values, counts = vmap(lambda x: pnp.unique(x, return_counts=True, size=size))(X)
    for row, found, count in zip(X, values, counts, strict=True):
        expected, expected_counts = np.unique(row, return_counts=True)
        np.testing.assert_array_equal(found, padded(expected, size, expected[0]))
        np.testing.assert_array_equal(count, padded(expected_counts, size, 0))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_inverse_says_which_row_is_which(axis):
    rows = np.array([[1, 2], [0, 5], [1, 2], [0, 4]])
    values, inverse = pnp.unique(Tensor(rows), return_inverse=True, axis=axis)
    np.testing.assert_array_equal(np.take(values.numpy(), inverse.numpy(), axis), rows)


def test_bincount_of_a_known_length_is_a_loop():
    x = X.astype(int)
    found = vmap(lambda x: pnp.bincount(x, length=8))(x)
    np.testing.assert_array_equal(found, np.stack([np.bincount(row, minlength=8) for row in x]))


def test_sizes_that_numpy_does_not_know_are_taken_for_raw_arrays_too():
    np.testing.assert_array_equal(pnp.nonzero(X[0], size=3)[0], [1, 3, 0])
    with pytest.raises(TypeError):
        np.nonzero(X[0], size=3)


def test_unique_elements_get_the_gradient_of_their_first_occurrence():
    found = func_grad(lambda x: pnp.sum(pnp.unique(x) * np.arange(1.0, 4.0)))(np.array([2.0, 1.0, 2.0, 5.0]))
    np.testing.assert_array_equal(found, [2.0, 1.0, 0.0, 3.0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_searching_a_batch_of_arrays_is_a_loop(side):
    edges = np.sort(np.random.default_rng(0).integers(0, 6, (5, 4)).astype(float), -1)
    edges[0, -1] = np.nan
    values = np.array([[0.0, 2.0], [np.nan, 3.0], [5.0, 1.0], [2.0, 2.0], [9.0, -1.0]])
    for in_dims, v in (((0, 0), values), ((0, None), values), ((0, None), values[0])):
        found = vmap(lambda a, v: pnp.searchsorted(a, v, side), in_dims=in_dims)(edges, v)
        expected = [np.searchsorted(edges[i], v[i] if in_dims[1] == 0 else v, side) for i in range(5)]
        np.testing.assert_array_equal(found, expected)


def test_a_partition_is_one():
    x = np.random.default_rng(1).permutation(20.0 * np.arange(20))
    for function in (lambda t: pnp.partition(t, 7), lambda t: t[pnp.argpartition(t, 7)]):
        found = function(Tensor(x)).numpy()
        assert found[7] == np.sort(x)[7]
        assert (found[:7] <= found[7]).all()
        assert (found[7:] >= found[7]).all()


# --- users' functions ----------------------------------------------------------------------------------------------


@pnp.vectorize
def clipped(x, limit=1.0):
    return pnp.where(x > limit, limit, x)


def test_vectorize_is_numpys_for_arrays_and_a_vmap_for_tensors():
    x = np.linspace(0.0, 2.0, 6).reshape(2, 3)
    np.testing.assert_array_equal(clipped(x), np.minimum(x, 1))
    tensor = Tensor(x, requires_grad=True)
    np.testing.assert_array_equal(clipped(tensor).detach().numpy(), np.minimum(x, 1))
    gradient, = grad(clipped(tensor, limit=np.array([0.5, 1.0, 1.5])).sum(), tensor)
    np.testing.assert_array_equal(gradient.numpy(), (x <= [0.5, 1.0, 1.5]).astype(float))


def test_vectorize_with_a_signature_maps_over_the_other_axes():
    solve = pnp.vectorize(pnp.linalg.solve, signature="(n,n),(n)->(n)")
    a, b = np.eye(2) * np.arange(1.0, 4.0)[:, None, None], np.arange(2.0)
    np.testing.assert_allclose(solve(Tensor(a), Tensor(b)).numpy(), solve(a, b))


def test_vectorize_leaves_what_is_excluded():
    power = pnp.vectorize(lambda x, n: x ** n, excluded=[1])
    np.testing.assert_array_equal(power(Tensor(np.arange(3.0)), 2).numpy(), [0.0, 1.0, 4.0])


def test_vectorize_gives_the_dtypes_that_it_was_told():
    square = pnp.vectorize(lambda x: x * x, otypes=[int])
    x = np.array([1.5, -2.0])
    assert square(Tensor(x)).dtype == square(x).dtype == np.dtype(int)
    np.testing.assert_array_equal(square(Tensor(x)).numpy(), square(x))
    both = pnp.vectorize(lambda x: (x, x > 0), otypes="fd")
    assert [part.dtype for part in both(Tensor(x))] == [part.dtype for part in both(x)] == [np.float32, np.float64]


def by_case(x):
    return x * x if x > 0 else -x


def test_vectorize_calls_a_function_that_looks_at_values_in_a_loop():
    x = np.array([[1.0, -2.0], [3.0, -0.5]])
    function = pnp.vectorize(by_case)
    tensor = Tensor(x, requires_grad=True)
    np.testing.assert_array_equal(function(tensor).detach().numpy(), function(x))
    slope = np.where(x > 0, 2 * x, -1)
    np.testing.assert_array_equal(grad(function(tensor).sum(), tensor)[0].numpy(), slope)
    np.testing.assert_array_equal(func_grad(lambda x: function(x).sum())(x), slope)
    sines = pnp.vectorize(math.sin)
    np.testing.assert_array_equal(sines(Tensor(x)).numpy(), sines(x))
    signs = pnp.vectorize(lambda x: ("up" if x > 0 else "down", 1))
    for left, right in zip(signs(Tensor(x)), signs(x), strict=True):
        assert isinstance(left, Tensor)
        np.testing.assert_array_equal(left.numpy(), right)
    with pytest.raises(DataDependentError, match="vmap"):
        vmap(function)(x)


@pytest.mark.parametrize("function", [
    lambda row: row[row > 0].sum(), lambda row: math.hypot(row[0], row[1]),
    lambda row: pnp.histogram(row, [-9, 0, 9])[0], lambda row: [by_case(x) for x in row],
    lambda row: pnp.bincount(pnp.astype(row > 0, int), minlength=3),
])
def test_apply_along_axis_calls_a_function_that_looks_at_values_in_a_loop(function):
    x = np.array([[1.0, -2.0, 0.5], [3.0, -0.5, 0.0]])
    for axis in (0, 1):
        found = np.apply_along_axis(function, axis, Tensor(x))
        expected = np.apply_along_axis(function, axis, x)
        assert isinstance(found, Tensor)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected)


PAIR = np.array([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(("x", "conditions"), [
    (PAIR[0], [[True, False]]), (PAIR[0], [np.True_, np.False_]), (PAIR[0], [True, False]), (PAIR[0], np.array([1, 0])),
    (PAIR, [[True, False]]), (PAIR, np.array([True, False])), (PAIR, [PAIR > 2]), (PAIR[0], 1), (PAIR[0, 0], [True]),
])
@pytest.mark.parametrize("functions", [[lambda x: x * 2], [lambda x: x * 2, 7]])
def test_piecewise_reads_conditions_as_numpy_does(x, conditions, functions):
    found = np.piecewise(Tensor(x), conditions, functions)
    np.testing.assert_array_equal(found.numpy(), np.piecewise(x, conditions, functions))


def test_piecewise_with_a_condition_for_each_row():
    def doubled(x):
        return pnp.piecewise(x, [x[:, 0] > 1], [lambda rows: rows * 2, 0])
    np.testing.assert_array_equal(vmap(doubled)(PAIR[None])[0], doubled(PAIR))
    np.testing.assert_array_equal(func_grad(lambda x: doubled(x).sum())(PAIR), [[0, 0], [2, 2]])
    two = pnp.piecewise(Tensor(PAIR[0]), [Tensor(PAIR[0, 0]) > 1, Tensor(PAIR[0, 1]) > 1], [5, 6])
    np.testing.assert_array_equal(two.numpy(), [6, 5])


def by_size(x):
    """Return an operator whose functions use the number of elements."""
    return pnp.piecewise(x, [x > 1.5, x < 0], [lambda v: v * v.size, lambda v: v.sum(), lambda v: -v * v.size])


@pytest.mark.parametrize("run", [
    lambda f: f, functionalize, lambda f: functionalize(f, remove="mutations_and_views"),
    lambda f: functionalize(functionalize(f))], ids=["raw", "functionalize", "without views", "twice"])
def test_piecewise_under_functionalize_passes_the_elements_of_each_condition(run):
    x = np.array([1.0, 2.0, 3.0, -0.5, -1.5])
    np.testing.assert_array_equal(run(by_size)(x), np.piecewise(
        x, [x > 1.5, x < 0], [lambda v: v * v.size, lambda v: v.sum(), lambda v: -v * v.size]))
    for derivative in (jacfwd, lambda f: func_grad(lambda x: (f(x) ** 2).sum()), hessian):
        np.testing.assert_array_equal(derivative(run(by_size))(x), derivative(by_size)(x))

    def on_written(x):
        y = x.copy()
        y[0] = 7.0
        return by_size(y)

    np.testing.assert_array_equal(run(on_written)(x), on_written(x))


@pytest.mark.parametrize("conditions", [[[True]], [PAIR > 0], [[True, False, True]]])
def test_piecewise_refuses_conditions_that_numpy_refuses(conditions):
    for x in (PAIR[0], Tensor(PAIR[0])):
        with pytest.raises(IndexError):
            np.piecewise(x, conditions, [3.0])


def test_ndenumerate_gives_elements_through_which_gradients_flow():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert list(pnp.ndenumerate(x)) == list(np.ndenumerate(x))
    def weighed(x):
        return sum(value * (10 * i + j) for (i, j), value in pnp.ndenumerate(x))
    np.testing.assert_array_equal(func_grad(weighed)(x), [[0, 1], [10, 11]])
    np.testing.assert_array_equal(vmap(weighed)(np.stack([x, -x])), [weighed(x), -weighed(x)])


def test_trim_zeros_reads_constants_in_traces():
    constant = np.array([0.0, 1.0, 0.0])
    graph = make_fx(lambda x: pnp.trim_zeros(constant) * x)(X[0])
    np.testing.assert_array_equal(graph(X[0]), X[0])
    with pytest.raises((DataDependentError, ConversionError)):
        vmap(pnp.trim_zeros)(X)
