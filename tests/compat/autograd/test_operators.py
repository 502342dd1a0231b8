"""The functions on functions of compat.autograd: closed forms, HIPS's conventions, and errors of HIPS's classes."""

import inspect
import warnings

import numpy
import pydispatch.compat.autograd.numpy as np
import pytest
from numpy.testing import assert_allclose
from pydispatch.compat.autograd.builtins import tuple as atuple
from pydispatch.compat.autograd.core import make_jvp as core_jvp
from pydispatch.compat.autograd.core import make_vjp as core_vjp
from pydispatch.compat.autograd.misc import const_graph
from pydispatch.compat.autograd.misc.fixed_points import fixed_point
from pydispatch.compat.autograd.util import quick_grad_check
from pydispatch.compat.autograd.wrap_util import unary_to_nary

import pydispatch.compat.autograd as ag
from pydispatch.compat.autograd.test_util import check_grads, combo_check, scalar_close
from pydispatch.exceptions import AutogradError

X = numpy.array([0.3, -1.2, 2.0])
V = numpy.array([1.0, 0.5, -2.0])
A = numpy.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
Z = numpy.array([0.5 + 1j, -1.0 + 0.25j])


def cubes(x):
    return np.sum(x**3)


def weighted(x, y, scale=1.0):
    return scale * np.sum(x**2 * y)


GRADIENTS = {
    "grad": (ag.grad(cubes)(X), 3 * X**2),
    "grad by position": (ag.grad(weighted, 1)(X, V, scale=2.0), 2 * X**2),
    "grad by keyword": (ag.grad(weighted, argnum=0)(X, V), 2 * X * V),
    "elementwise_grad": (ag.elementwise_grad(lambda x: x**3)(X), 3 * X**2),
    "egrad": (ag.egrad(np.sin)(X), numpy.cos(X)),
    "deriv": (ag.deriv(lambda x: x**3)(X), 3 * X**2),
    "jacobian": (ag.jacobian(lambda x: np.dot(A, x**2))(X), A * 2 * X),
    "hessian": (ag.hessian(cubes)(X), numpy.diag(6 * X)),
    "hessian_vector_product": (ag.hessian_vector_product(cubes)(X, V), 6 * X * V),
    "hessian_tensor_product": (ag.hessian_tensor_product(cubes)(A, 2 * A), 12 * A**2),
    "tensor_jacobian_product": (ag.tensor_jacobian_product(lambda x: np.dot(A, x**2))(X, V[:2]), V[:2] @ (A * 2 * X)),
    "vector_jacobian_product": (ag.vector_jacobian_product(lambda x: np.dot(A, x))(X, V[:2]), V[:2] @ A),
    "make_vjp": (ag.make_vjp(lambda x: np.dot(A, x))(X)[0](V[:2]), V[:2] @ A),
    "make_jvp": (ag.make_jvp(lambda x: np.dot(A, x))(X)(V)[1], A @ V),
    "make_jvp_reversemode": (ag.differential_operators.make_jvp_reversemode(lambda x: np.dot(A, x**2))(X)(V),
                             A @ (2 * X * V)),
    "make_hvp": (ag.make_hvp(cubes)(X)[0](V), 6 * X * V),
    "make_ggnvp": (ag.make_ggnvp(lambda x: np.dot(A, x))(X)(V), A.T @ A @ V),
    "grad_named": (ag.grad_named(weighted, "y")(X, V), X**2),
    "checkpoint": (ag.grad(lambda x: np.sum(ag.checkpoint(np.sin)(x)))(X), numpy.cos(X)),
    "holomorphic_grad": (ag.holomorphic_grad(lambda z: np.sum(z**3))(Z), 3 * Z**2),
    "gradient of a real function of complex numbers": (ag.grad(lambda z: np.sum(np.abs(z)**2))(Z), 2 * Z.conj()),
    "vjp of a complex function": (ag.make_vjp(lambda z: z**2)(Z)[0](Z), 2 * Z * Z),
    "jvp of a complex function": (ag.make_jvp(lambda z: z**2)(Z)(Z)[1], 2 * Z * Z),
    "jacobian of a real function of complex numbers": (ag.jacobian(lambda z: np.real(z**2))(Z), numpy.diag(2 * Z)),
    "grad of integers": (ag.grad(cubes)(numpy.array([1, 2])), [3.0, 12.0]),
    "grad of float32": (ag.grad(cubes)(X.astype(numpy.float32)), (3 * X**2).astype(numpy.float32)),
    "third derivative": (ag.grad(ag.grad(ag.grad(lambda x: x**4)))(2.0), 48.0),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_derivatives_have_closed_forms(name):
    found, expected = GRADIENTS[name]
    assert numpy.shape(found) == numpy.shape(expected)
    assert numpy.asarray(found).dtype == numpy.asarray(expected).dtype
    assert_allclose(found, expected, rtol=1e-6)


def test_values_come_first():
    value, gradient = ag.value_and_grad(cubes)(X)
    assert_allclose(value, numpy.sum(X**3))
    assert_allclose(gradient, 3 * X**2)
    value, tangent = core_jvp(np.sin, X)(V)
    assert_allclose([value, tangent], [numpy.sin(X), numpy.cos(X) * V])
    assert_allclose(core_vjp(np.sin, X)[1], numpy.sin(X))
    gradient, aux = ag.grad_and_aux(lambda x: (np.sum(x**2), x + 1))(X)
    assert_allclose([gradient, aux], [2 * X, X + 1])


def test_numbers_give_scalars_of_numpy():
    for x in (2.0, numpy.float64(2.0), numpy.array(2.0)):
        assert type(ag.grad(lambda x: x * x)(x)) is numpy.float64
        assert type(ag.value_and_grad(lambda x: x * x)(x)[0]) is numpy.float64
    assert type(ag.make_jvp(np.sin)(2.0)(1.0)[1]) is numpy.float64
    assert ag.jacobian(lambda x: x * x)(2.0).shape == ()


def test_several_arguments_give_a_tuple():
    assert_allclose(ag.grad(weighted, argnum=[1, 0])(X, V), [X**2, 2 * X * V])
    assert type(ag.grad(weighted, (0,))(X, V)) is tuple


def test_containers():
    point = {"a": 2.0, "b": [X, (V,)]}
    found = ag.grad(lambda p: p["a"] * np.sum(p["b"][0] * p["b"][1][0]))(point)
    assert list(found) == ["a", "b"]
    assert type(found["b"]) is list
    assert type(found["b"][1]) is tuple
    assert_allclose(found["a"], X @ V)
    assert_allclose(found["b"][0], 2 * V)
    vjp, _ = ag.make_vjp(lambda x: atuple((x**2, {"y": 3 * x})))(X)
    assert_allclose(vjp((V, {"y": V})), 2 * X * V + 3 * V)


def test_multigrad_dict_names_the_arguments():
    found = ag.multigrad_dict(weighted)(X, y=V)
    assert_allclose(found["x"], 2 * X * V)
    assert_allclose(found["y"], X**2)
    assert_allclose(found["scale"], X**2 @ V)
    assert list(found) == ["x", "y", "scale"]


@pytest.mark.parametrize(("function", "x"), [
    (lambda x: x, X), (lambda x: np.sum(x) * 1j, X), (lambda x: None, X), (lambda x: "a", 1.0), (lambda x: x > 0, 1.0),
    (np.sum, "a"), (np.sum, 3), (lambda x: float(x), 1.0), (lambda x: np.sum(x[0]), {0: "a"})])
def test_what_cannot_be_differentiated_is_a_type_error(function, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError):
            ag.grad(function)(x)


def test_a_write_to_the_argument_is_a_type_error():
    def write(x):
        x[0] = 1.0
        return np.sum(x)

    with pytest.raises(TypeError, match="in place") as caught:
        ag.grad(write)(X.copy())
    assert isinstance(caught.value, AutogradError)
    with pytest.raises(TypeError, match="real-output"):
        ag.elementwise_grad(lambda x: 1j * x)(X)


def test_a_constant_warns():
    with pytest.warns(UserWarning, match="independent of input"):
        assert ag.grad(lambda x: 1.0)(2.0) == 0
    with pytest.warns(UserWarning, match="independent of input"):
        assert_allclose(ag.make_vjp(lambda x: V)(X)[0](V), 0 * X)
    with pytest.warns(UserWarning, match="not complex"):
        ag.holomorphic_grad(lambda x: x**2)(1.0)


def test_names():
    assert ag.grad(cubes, 1).__name__ == "grad_of_cubes_wrt_argnum_1"
    assert ag.grad.__name__ == "grad"
    assert "cubes" in ag.jacobian(cubes).__doc__
    assert list(inspect.signature(ag.make_ggnvp).parameters) == ["f", "g", "f_argnum"]
    with pytest.raises(AssertionError):
        ag.grad(cubes, "x")


def test_operators_on_functions_of_one_argument_become_general():
    @unary_to_nary
    def doubled(fun, x, times=2):
        return times * fun(x)

    assert doubled(lambda x, y: x - y, 1, 3)(1.0, 5.0) == -12
    assert doubled(lambda x, y: x[0] * y, (0,))([4.0], 5.0) == 40


def test_fixed_point_has_the_derivative_of_its_equation():
    def root(a):
        return fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, lambda x, y: np.abs(x - y), 1e-12)

    assert_allclose(root(2.0), numpy.sqrt(2))
    assert_allclose(ag.grad(root)(2.0), 0.5 / numpy.sqrt(2))


def test_check_grads_finds_errors():
    check_grads(lambda x, y: np.sum(np.sin(x) * y), (0, 1))(X, V)
    check_grads(lambda z: z**2)(Z)
    combo_check(np.sum, (0,), order=1)([X, A], axis=[None, 0])
    wrong = ag.primitive(lambda x: x**2)
    wrong.__name__ = "wrong"
    ag.extend.defvjp(wrong, lambda ans, x: lambda g: g * x)
    with pytest.raises(AssertionError, match=r"\(VJP\) check of wrong failed"):
        check_grads(wrong, modes=["rev"])(1.0)
    assert scalar_close(1.0, 1.0 + 1e-9)
    with pytest.warns(UserWarning, match="deprecated"):
        quick_grad_check(lambda x, y: x**2 + y, 1.0, (2.0,))


def test_const_graph_runs_the_function_once():
    runs = []

    def function(x, y):
        runs.append(x)
        return ag.grad(lambda z: np.sin(z) * y)(x)

    graph = const_graph(function, y=2.0)
    assert_allclose([graph(0.5), graph(1.0)], 2 * numpy.cos([0.5, 1.0]))
    assert len(runs) == 1
