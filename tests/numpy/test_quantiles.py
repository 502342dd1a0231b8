"""Quantiles whose `q` is differentiated, batched or traced, by every method, against those of NumPy."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, ops
from pydispatch.numpy.statistics import POSITIONS
from pydispatch.tracing import make_fx
from tests.together import together

DATA = np.random.default_rng(0).normal(size=(3, 6))
HOLES = np.where(np.arange(18).reshape(3, 6) % 7 == 2, np.nan, DATA)
NAMES = {"quantile": (DATA, 1), "percentile": (DATA, 100), "nanquantile": (HOLES, 1), "nanpercentile": (HOLES, 100)}
SHARES = np.array([0.0, 0.13, 0.5, 0.77, 1.0])
RUNS = {
    "Tensor": lambda f, q: f(Tensor(q, requires_grad=True)),
    "vmap": lambda f, q: np.moveaxis(func.vmap(f, out_dims=-1)(q), -1, 0),
    "make_fx": lambda f, q: make_fx(f)(q * 0)(q),
    "compile": lambda f, q: compile(f)(q),
    "grad": lambda f, q: func.grad(lambda q: ((found := f(q)).sum(), found), has_aux=True)(q)[1],
}


@pytest.mark.parametrize("run", RUNS)
@together("method", POSITIONS)
@pytest.mark.parametrize("name", NAMES)
def test_values_are_numpys(name, method, run):
    data, whole = NAMES[name]
    for q, axis in ((SHARES * whole, 1), (np.array([0.3, 0.6]) * whole, (0, 1)), (SHARES * whole, 0)):
        found = RUNS[run](lambda q, axis=axis: getattr(pnp, name)(data, q, axis, method=method), q)
        expected = getattr(np, name)(data, q, axis, method=method)
        found = found.detach().numpy() if isinstance(found, Tensor) else found
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
@together("method", POSITIONS)
def test_slopes_are_those_of_differences(name, method):
    data, whole = NAMES[name]
    q, step = np.array([0.23, 0.61]) * whole, 1e-6
    weights = np.cos(np.arange(6.0)).reshape(2, 3)

    def total(library, q, data=data):
        return (getattr(library, name)(data, q, 1, method=method) * weights).sum()

    sides = [[total(np, q + sign * step * row) for sign in (1, -1)] for row in np.eye(2)]
    expected = [(high - low) / (2 * step) for high, low in sides]
    for found in (func.grad(lambda q: total(pnp, q))(q), func.jacfwd(lambda q: total(pnp, q))(q),
                  compile(func.grad(lambda q: total(pnp, q)))(q)):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    tracked = Tensor(q, requires_grad=True)
    values = Tensor(np.where(np.isnan(data), 0.0, data), requires_grad=True)
    along_q, along_values = autograd.grad(total(pnp, tracked, values), (tracked, values), materialize_grads=True)
    direction = np.sin(np.arange(18.0)).reshape(3, 6)
    ends = [total(np, q, values.detach().numpy() + sign * step * direction) for sign in (1, -1)]
    assert along_q.shape == q.shape
    np.testing.assert_allclose((along_values.numpy() * direction).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("method", ["linear", "lower", "hazen"])
def test_an_element_beside_an_infinite_one_is_itself(method):
    x = Tensor(np.array([1.0, 2.0, np.inf]))
    q = np.array(0.5)
    expected = pnp.quantile(x, q, method=method)
    assert expected == 2.0
    assert func.value_and_grad(lambda q: pnp.quantile(x, q, method=method))(q)[0] == expected


MANY = np.random.default_rng(1).normal(size=(3, 301))
WITH_NAN = np.where(np.arange(903).reshape(3, 301) == 400, np.nan, MANY)


@pytest.mark.parametrize("x", [MANY, WITH_NAN, np.round(MANY, 1), MANY.astype(np.float32), (MANY * 50).astype(int)])
@pytest.mark.parametrize("transform", [lambda f: f, compile, func.vmap])
def test_quantiles_of_many_elements_are_numpys(x, transform):
    for name, *args in (("quantile", SHARES), ("quantile", 0.95), ("percentile", [30, 30.1]), ("median",)):
        axis = -1 if transform is not func.vmap else None
        found = transform(lambda x, name=name, args=args, axis=axis: getattr(pnp, name)(x, *args, axis=axis))(x)
        expected = getattr(np, name)(x, *args, axis=-1)
        found = np.moveaxis(found, 0, -1) if transform is func.vmap and np.ndim(args[:1]) > 1 else found
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("transform", [lambda f: f, compile])
def test_gradients_of_selected_elements_go_to_these(transform):
    x = MANY[0]
    order = np.argsort(x)
    for function, parts in ((lambda x: pnp.quantile(x, 0.95), {285: 1.0}),
                            (lambda x: pnp.quantile(x, 0.9525), {285: 0.25, 286: 0.75}), (pnp.median, {150: 1.0}),
                            (lambda x: pnp.median(x[:300]) + 0 * x[0], None),
                            (lambda x: pnp.partition(x, 297)[-3:].sum(), {298: 1.0, 299: 1.0, 300: 1.0})):
        found = transform(func.grad(function))(x)
        if parts is None:
            parts, order = {149: 0.5, 150: 0.5}, np.argsort(x[:300])
        expected = np.zeros(301)
        expected[order[list(parts)]] = list(parts.values())
        np.testing.assert_allclose(found, expected, atol=1e-12)
        order = np.argsort(x)


def test_nan_has_the_gradient_of_what_is_nan():
    x = WITH_NAN[1]
    for function in (pnp.median, lambda x: pnp.quantile(x, 0.3)):
        found = func.grad(function)(x)
        assert np.isnan(found[np.isnan(x)]).all() or (found == np.isnan(x)).all()


def test_partitions_have_their_elements_in_place():
    for kth in (7, [0, 150, -1]):
        found = pnp.partition(Tensor(MANY), kth, 1).numpy()
        np.testing.assert_array_equal(found[:, kth], np.sort(MANY, 1)[:, kth])
        np.testing.assert_array_equal(np.sort(found, 1), np.sort(MANY, 1))
        places = pnp.argpartition(Tensor(MANY), kth, 1).numpy()
        np.testing.assert_array_equal(np.take_along_axis(MANY, places, 1), found)


@pytest.mark.parametrize(("shape", "axis"), [((1, 1, 0), 0), ((2, 0), 0), ((2, 0, 2), 0), ((0, 3), 1)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arrays_without_elements(shape, axis):
    x = np.zeros(shape)
    for make in (Tensor, lambda x: Tensor(x, requires_grad=True)):
        assert pnp.median(make(x), axis).shape == np.median(x, axis).shape
        assert pnp.partition(make(x), 0, axis).shape == shape
    assert compile(lambda x: pnp.median(x, axis))(x).shape == np.median(x, axis).shape
    assert ops.np.argpartition(x, (0,), axis).shape == shape
    assert ops.np.argpartition(np.zeros((3, 0)), (0,), 1).shape == (3, 0)
