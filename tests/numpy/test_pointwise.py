"""Functions of every element: what the samples do not show."""

import math

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, ops
from pydispatch.autograd import grad
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DataDependentError
from pydispatch.func import vmap
from pydispatch.tracing import make_fx

X = np.array([[1.0, np.nan], [3.0, 4.0]])


@pytest.mark.parametrize("function", [
    lambda x: pnp.allclose(x, 1.0, atol=5), lambda x: pnp.array_equal(x, X[1]), lambda x: pnp.array_equiv(x, X[1])])
def test_one_truth_value_is_pythons_but_an_array_where_something_observes(function):
    assert function(X[1]) is True
    assert function(Tensor(X[1])) is True
    assert vmap(function)(X).tolist() == [False, True]
    assert make_fx(function)(X[0])(X[1]).tolist() is True
    assert function(MetaArray((2,), X.dtype)).shape == ()


@pytest.mark.parametrize("function", [np.array_equal, np.array_equiv])
def test_text_equals_numbers_only_where_there_are_no_elements(function):
    for shape in ((0, 2), (1, 2)):
        text, numbers = np.zeros(shape, "S2"), np.zeros(shape)
        assert function(Tensor(text), Tensor(numbers)) is function(text, numbers)


def test_nan_to_num_in_place():
    for x in (Tensor(X[0].copy()), X[0].copy()):
        assert pnp.nan_to_num(x, copy=False) is x
        assert x.tolist() == [1.0, 0.0]
    leaf = Tensor(X[0].copy(), requires_grad=True)
    x = ops.np.copy(leaf)
    pnp.nan_to_num(x, copy=False)
    assert grad(x.sum(), leaf)[0].tolist() == [1.0, 0.0]


def test_results_are_written_into_out():
    x, fraction, whole = Tensor(np.array([1.5, -2.25])), Tensor(np.zeros(2)), Tensor(np.zeros(2))
    assert np.modf(x, out=(fraction, whole))[0] is fraction
    assert (fraction.tolist(), whole.tolist()) == ([0.5, -0.25], [1.0, -2.0])
    np.divmod(x, 1.0, fraction, whole, where=[True, False])
    assert (fraction.tolist(), whole.tolist()) == ([1.0, -0.25], [0.5, -2.0])
    np.divmod(x, [0.0, 2.0], out=(fraction, None), where=[False, True])
    assert fraction.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("order", range(6))
def test_derivatives_of_sinc(order):
    # The derivatives are integrals of t^k cos(pi x t + k pi / 2) over [0, 1].
    x = np.array([0.0, 1e-9, 1e-3, 0.5, 1.0, -1.5, 3.7, 20.25])
    nodes, weights = np.polynomial.legendre.leggauss(100)
    t = (nodes + 1) / 2
    expected = np.cos(math.pi * x[:, None] * t + order * math.pi / 2) * t ** order @ weights / 2
    np.testing.assert_allclose(ops.np.sinc_derivative(x, order) / math.pi ** order, expected, atol=1e-14)


@pytest.mark.parametrize("order", range(5))
def test_derivatives_of_the_bessel_function(order):
    # The series is the sum of (x / 2)^2m / m!^2, differentiated term by term.
    x = np.array([0.0, 1e-9, 0.5, -2.0, 10.0])
    expected = np.zeros_like(x)
    for m in range((order + 1) // 2, 50):
        factor = math.factorial(2 * m) // math.factorial(2 * m - order) / (4 ** m * math.factorial(m) ** 2)
        expected += factor * x ** (2 * m - order)
    np.testing.assert_allclose(ops.np.i0_derivative(x, order), expected, rtol=1e-13)


def test_the_gradient_of_fmod_has_the_exact_quotient():
    x2 = Tensor(np.array([0.1]), requires_grad=True)
    assert grad(pnp.fmod(0.3, x2), x2)[0].tolist() == [-2.0]      # 0.3 / 0.1 rounds to 3, but 0.3 lies below 3 * 0.1


def test_real_if_close_tells_what_to_write_where_values_are_unknown():
    z = np.array([1 + 0j, 2])
    for run in (lambda: vmap(pnp.real_if_close)(z[None]), lambda: make_fx(pnp.real_if_close)(z)):
        with pytest.raises(DataDependentError, match=r"real\(x\)"):
            run()
