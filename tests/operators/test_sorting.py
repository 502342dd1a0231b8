"""Sorting is differentiated as a composite: the forward pass computes the order once, and the tape keeps it."""

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, autograd, func, ops
from pydispatch.autograd import no_grad
from pydispatch.library import register_autograd
from pydispatch.tracing import make_fx

sort = ops.np.sort
RNG = np.random.default_rng(0)
X, OTHER, WEIGHTS = RNG.normal(size=(3, 4, 5))
AXES = [None, 0, 1, -1]


class Names(DispatchMode):
    def __init__(self):
        self.seen = []

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name.name)
        return func(*args, **kwargs or {})

    def count(self, name):
        return self.seen.count(name)


class Composites(Names):
    decompose_composites = False


def weighted(x, axis=0):
    """Return a number that depends on which element goes where."""
    result = sort(x, axis)
    return (result**3 * WEIGHTS.reshape(result.shape)).sum()


def expected_gradient(x, axis=0):
    order = np.argsort(x, axis)
    slopes = 3 * np.sort(x, axis) ** 2
    result = np.empty(order.shape)
    np.put_along_axis(result, order, slopes * WEIGHTS.reshape(order.shape), axis)
    return result.reshape(x.shape)


def leaf(x=X):
    return Tensor(x.copy(), requires_grad=True)


# --- the order is computed once, and only where a derivative is wanted ---


@pytest.mark.parametrize("x", [X, Tensor(X)], ids=["raw", "Tensor"])
def test_without_a_derivative_there_is_no_order(x):
    with Names() as names:
        sort(x, 0)
    assert names.seen == ["sort"]


def test_in_no_grad_there_is_no_order():
    with Names() as names, no_grad():
        sort(leaf(), 0)
    assert names.seen == ["sort"]


def test_the_tape_computes_the_order_once():
    x = leaf()
    with Names() as names:
        result = weighted(x)
        gradient, = autograd.grad(result, x, create_graph=True)
        autograd.grad((gradient * gradient).sum(), x, retain_graph=True)
        autograd.grad(result, x)
    assert (names.count("argsort"), names.count("sort")) == (1, 0)


def test_grad_of_grad_computes_the_order_once():
    with Names() as names:
        func.grad(lambda x: (func.grad(weighted)(x) ** 2).sum())(X)
    assert (names.count("argsort"), names.count("sort")) == (1, 0)


def test_jvp_computes_the_order_once():
    with Names() as names:
        func.jvp(weighted, (X,), (OTHER,))
    assert (names.count("argsort"), names.count("sort")) == (1, 0)


def test_a_mode_that_takes_composites_whole_sees_the_operator():
    x = leaf()
    with Composites() as names:
        autograd.grad(weighted(x), x)
    assert names.count("sort") == 1


def test_the_array_itself_is_not_kept():
    x = leaf()
    y = x * 1.0
    result = weighted(y)
    ops.np.multiply_(y, 0.0)
    gradient, = autograd.grad(result, x)
    np.testing.assert_allclose(gradient.numpy(), expected_gradient(X))


# --- derivatives ---


@pytest.mark.parametrize("axis", AXES)
def test_gradient_on_the_tape(axis):
    x = leaf()
    weighted(x, axis).backward()
    np.testing.assert_allclose(x.grad.numpy(), expected_gradient(X, axis))


@pytest.mark.parametrize("axis", AXES)
def test_gradient_by_grad(axis):
    np.testing.assert_allclose(func.grad(lambda x: weighted(x, axis))(X), expected_gradient(X, axis))


@pytest.mark.parametrize("axis", AXES)
def test_tangent(axis):
    value, tangent = func.jvp(lambda x: sort(x, axis), (X,), (OTHER,))
    np.testing.assert_array_equal(value, np.sort(X, axis))
    np.testing.assert_array_equal(tangent, np.take_along_axis(OTHER, np.argsort(X, axis), axis))


@pytest.mark.parametrize("options", [{"kind": "stable"}, {"kind": "heapsort"}, {"stable": True}], ids=str)
def test_options_are_those_of_the_order(options):
    x = RNG.integers(0, 3, 20).astype(float)
    tangent = func.jvp(lambda x: sort(x, **options), (x,), (np.arange(20.0),))[1]
    np.testing.assert_array_equal(tangent, np.argsort(x, **options))


def test_linearized():
    value, linear = func.linearize(lambda x: sort(x, 0), X)
    np.testing.assert_array_equal(value, np.sort(X, 0))
    np.testing.assert_array_equal(linear(OTHER), np.take_along_axis(OTHER, np.argsort(X, 0), 0))


def test_a_formula_of_a_user_replaces_the_composite():
    with register_autograd("np::sort", lambda ctx, gradient: (gradient * 7.0, None, None)), Names() as names:
        gradient = func.grad(lambda x: sort(x, 0).sum())(X)
    np.testing.assert_array_equal(gradient, np.full(X.shape, 7.0))
    assert names.count("argsort") == 0


def test_complex_numbers():
    z = X + 1j * OTHER
    result = func.grad(lambda z: ops.np.real(sort(z, 0) * WEIGHTS).sum())(z)
    expected = np.empty_like(z)
    np.put_along_axis(expected, np.argsort(z, 0), WEIGHTS + 0j, 0)
    np.testing.assert_allclose(result, expected)


def test_second_derivatives_agree():
    outer = [func.jacfwd, func.jacrev]
    hessians = [one(other(weighted))(X) for one in outer for other in (*outer, func.grad)]
    for hessian in hessians[1:]:
        np.testing.assert_allclose(hessian, hessians[0])
    assert np.any(hessians[0])


# --- under transforms, modes and traces ---


def test_gradients_of_examples_and_of_a_batch():
    def cubes(row):
        return (sort(row) ** 3).sum()

    np.testing.assert_allclose(func.vmap(func.grad(cubes))(X), 3 * X**2)
    np.testing.assert_allclose(func.grad(lambda x: func.vmap(cubes)(x).sum())(X), 3 * X**2)
    np.testing.assert_allclose(func.vmap(func.grad(lambda x, w: (sort(x) * w).sum()), (None, 0))(X[0], WEIGHTS),
                               WEIGHTS[:, np.argsort(np.argsort(X[0]))])


@pytest.mark.parametrize("wrap", [func.functionalize, lambda f: func.functionalize(f, remove="mutations_and_views")],
                         ids=["writes", "writes and views"])
def test_functionalized(wrap):
    np.testing.assert_allclose(wrap(func.grad(weighted))(X), expected_gradient(X))
    np.testing.assert_allclose(func.grad(wrap(weighted))(X), expected_gradient(X))


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
@pytest.mark.parametrize("transform", [
    func.grad, lambda f: func.grad(lambda x: (func.grad(f)(x) ** 2).sum()), func.jacfwd,
    lambda f: func.functionalize(func.grad(f)),
], ids=["grad", "grad of grad", "jacfwd", "functionalize of grad"])
def test_graphs_compute_the_order_of_what_they_get(transform, tracing_mode):
    graph = make_fx(transform(weighted), tracing_mode=tracing_mode)(X)
    np.testing.assert_allclose(graph(OTHER), transform(weighted)(OTHER))
    assert len(graph.find_nodes(target=ops.np.argsort)) == 1


def test_a_graph_of_the_tape_computes_the_order_of_what_it_gets():
    graph = make_fx(lambda x: autograd.grad(weighted(x), x)[0])(leaf())
    np.testing.assert_allclose(graph(OTHER), expected_gradient(OTHER))


def test_a_graph_without_derivatives_has_the_operator():
    graph = make_fx(sort)(X)
    assert [node.target for node in graph.find_nodes(op="call_function")] == [ops.np.sort.default]


def test_a_checkpoint_computes_it_again():
    x = leaf()
    autograd.checkpoint(weighted, x).backward()
    np.testing.assert_allclose(x.grad.numpy(), expected_gradient(X))
