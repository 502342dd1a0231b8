"""Primitives of compat.autograd: rules of both modes, what they are called with, and questions about values."""

import typing

import numpy
import pydispatch.compat.autograd.numpy as np
import pytest
from numpy.testing import assert_allclose
from pydispatch.compat.autograd.builtins import DictBox, SequenceBox
from pydispatch.compat.autograd.extend import (
    Box,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    register_notrace,
)
from pydispatch.compat.autograd.numpy.numpy_boxes import ArrayBox
from pydispatch.compat.autograd.numpy.numpy_vjps import unbroadcast_f
from pydispatch.compat.autograd.tracer import getval, isbox

from pydispatch import Tensor
from pydispatch.compat.autograd import (
    core,
    extend,
    grad,
    hessian,
    isinstance,
    jacobian,
    make_jvp,
    make_vjp,
    tracer,
    type,
)
from pydispatch.compat.autograd.test_util import check_grads
from pydispatch.exceptions import AutogradError, UnsupportedError

X = numpy.array([0.3, -1.2, 2.0])
Y = numpy.array([2.0, 0.5, 1.5])


def power():
    """Return a primitive `x**n * y` of raw arrays, with all rules."""
    @primitive
    def power(x, y, n=2):
        assert all(type_of is not Tensor for type_of in map(Tensor.__class__, (x, y)))
        assert not any(Tensor in t.__mro__ for t in (x.__class__, y.__class__))
        return x**n * y

    defvjp(power, lambda ans, x, y, n=2: lambda g: g * n * x**(n - 1) * y, lambda ans, x, y, n=2: lambda g: g * x**n)
    return power


def test_rules_by_argument():
    f = power()
    assert f.__name__ == "power"
    assert_allclose(f(X, Y, n=3), X**3 * Y)
    found = grad(lambda x, y: np.sum(f(x, y, n=3)), (0, 1))(X, Y)
    assert_allclose(found, [3 * X**2 * Y, X**3])
    check_grads(f, (0, 1), modes=["rev"], order=2)(X, Y)
    assert_allclose(hessian(lambda x: np.sum(f(x, Y, n=3)))(X), numpy.diag(6 * X * Y))
    assert_allclose(jacobian(lambda x: f(x, Y))(X), numpy.diag(2 * X * Y))


def test_forward_mode_transposes_the_vjp_without_a_jvp():
    f = power()
    assert_allclose(make_jvp(lambda x: f(x, Y))(X)(Y)[1], 2 * X * Y * Y)
    defjvp(f, lambda g, ans, x, y: 7 * g, "same")
    assert_allclose(make_jvp(lambda x: f(x, Y))(X)(Y)[1], 7 * Y)
    assert_allclose(make_jvp(f, 1)(X, Y)(X)[1], X**3)


def test_rules_for_all_arguments():
    scale = primitive(lambda a, b: a * b)
    seen = []

    def vjps(argnums, ans, args, kwargs):
        seen.append(argnums)
        return lambda g: [g * args[1 - i] for i in argnums]

    defvjp_argnums(scale, vjps)
    defjvp_argnums(scale, lambda argnums, gs, ans, args, kwargs: sum(
        g * args[1 - i] for i, g in zip(argnums, gs, strict=True)))
    check_grads(scale, (0, 1))(2.0, 3.0)
    assert grad(scale, 1)(2.0, 3.0) == 2
    assert seen[-1] == (1,)
    defvjp_argnum(scale, lambda argnum, ans, args, kwargs: lambda g: g * 10)
    defjvp_argnum(scale, lambda argnum, g, ans, args, kwargs: g * 10)
    assert grad(scale, 1)(2.0, 3.0) == make_jvp(scale)(2.0, 3.0)(1.0)[1] == 10
    def_linear(scale)
    assert make_jvp(scale, (0, 1))(2.0, 3.0)((1.0, 1.0))[1] == 5


def test_rules_replace_those_of_a_function_of_the_namespace():
    former = np.arctan
    try:
        defjvp(np.arctan, lambda g, ans, x: 5 * g)
        assert make_jvp(np.arctan)(1.0)(1.0)[1] == 5
        assert grad(np.arctan)(1.0) == 0.5      # the vjp is still its own
        check_grads(lambda x: np.arctan(x * x), modes=["rev"])(X)
        defvjp(former, lambda ans, x: lambda g: 7 * g)
        assert grad(np.arctan)(1.0) == 7
        assert grad(former)(1.0) == 0.5
        assert np.arctan(1.0) == former(1.0)
    finally:
        np.arctan = former


def test_rules_of_other_functions_are_not_used():
    def square(x):
        return x * x

    defvjp(square, lambda ans, x: lambda g: 5 * g)
    assert grad(square)(3.0) == 6


def test_rules_may_ask_for_values_in_a_jacobian():
    f = primitive(lambda x: x**2)
    defvjp(f, lambda ans, x: lambda g: getval(g) * 2 * x)
    assert_allclose(jacobian(f)(X), numpy.diag(2 * X))


def test_none_is_zero_and_argnums_select():
    f = primitive(lambda x, y: x * y)
    defvjp(f, None, lambda ans, x, y: lambda g: g * x)
    assert_allclose(grad(lambda x: np.sum(f(x, Y)))(X), 0 * X)
    g = primitive(lambda x, y: x * y)
    defvjp(g, lambda ans, x, y: lambda g: g * x, argnums=[1])
    assert grad(g, 1)(2.0, 3.0) == 2
    with pytest.raises(NotImplementedError, match="argnum 0 not defined"):
        grad(g, 0)(2.0, 3.0)


def test_without_a_rule():
    f = primitive(lambda x: x * 2)
    with pytest.raises(NotImplementedError):
        grad(f)(1.0)
    with pytest.raises(NotImplementedError):
        make_jvp(f)(1.0)(1.0)
    g = power()
    with pytest.raises(NotImplementedError, match="keyword"):
        grad(lambda y: np.sum(g(X, y=y)))(Y)
    with pytest.raises(ValueError, match="'same'"):
        defjvp(g, "other")


def test_rules_get_raw_arrays_unless_differentiated_again():
    kinds = []
    f = primitive(np.sin)

    def rule(ans, x):
        kinds.append((isbox(x), isbox(ans), x.__class__))
        return lambda g: kinds.append((isbox(g), g.__class__)) or g * np.cos(x)

    defvjp(f, rule)
    assert_allclose(grad(lambda x: np.sum(f(x)))(X), numpy.cos(X))
    assert kinds == [(False, False, numpy.ndarray), (False, numpy.ndarray)]
    grad(f)(1.0)
    assert kinds[-1] == (False, numpy.float64)
    assert_allclose(grad(grad(f))(1.0), -numpy.sin(1.0))
    assert kinds[-2][:2] == (True, True)


def test_rules_get_conjugate_gradients():
    f = primitive(lambda z: z**2)
    defvjp(f, lambda ans, z: lambda g: g * 2 * z)
    z, w = 0.5 + 1j, 2.0 - 1j
    assert_allclose(make_vjp(f)(z)[0](w), make_vjp(lambda z: z**2)(z)[0](w))
    assert_allclose(make_vjp(f)(z)[0](w), 2 * z * w)
    check_grads(f, modes=["rev"])(z)
    f = primitive(lambda x: x * z)      # the gradient of a real argument is the real part of what the rule returns
    defvjp(f, lambda ans, x: lambda g: g * z)
    assert_allclose(grad(lambda x: np.sum(np.abs(f(x)) ** 2))(X), 2 * X * abs(z) ** 2)


def test_a_gradient_of_another_shape_is_refused():
    f = primitive(lambda x, y: x * y)
    defvjp(f, lambda ans, x, y: lambda g: g * y, lambda ans, x, y: unbroadcast_f(y, lambda g: g * x))
    assert_allclose(grad(lambda y: np.sum(f(X, y)))(2.0), X.sum())
    with pytest.raises(AutogradError, match=r"shape \(3,\), but the argument has shape \(\)"):
        grad(lambda x: np.sum(f(x, Y)))(2.0)


def test_containers_are_arguments_and_results():
    @primitive
    def swap(pair):
        return pair[1], 2 * pair[0]

    defvjp(swap, lambda ans, pair: lambda g: (2 * g[1], g[0]))
    found = grad(lambda a, b: np.sum(swap((a, b))[0] * Y + swap((a, b))[1]), (0, 1))(X, X)
    assert_allclose(found, [2 * numpy.ones(3), Y])


def test_methods_and_former_ways():
    class Scale:
        @primitive
        def times(self, x):
            return 3 * x

    defvjp(Scale.times, None, lambda ans, self, x: lambda g: 3 * g)
    assert grad(Scale().times)(2.0) == 3
    f = primitive(lambda x, y: x * y)
    with pytest.warns(UserWarning, match="deprecated"):
        f.defgrad(lambda ans, x, y: lambda g: g * y)
    with pytest.warns(UserWarning, match="deprecated"):
        f.defvjp(lambda g, ans, vs, gvs, x, y: g * x * vs.size, argnum=1)
    assert grad(f, (0, 1))(2.0, 3.0) == (3, 2)
    with pytest.warns(UserWarning, match="deprecated"):
        f.defvjp_is_zero([0])
    assert grad(f)(2.0, 3.0) == 0


def test_questions_about_values():
    def ask(x):
        assert isbox(x)
        assert Box.__instancecheck__(x)
        assert ArrayBox.__instancecheck__(x)
        assert isinstance(x, numpy.ndarray)
        assert type(x) is numpy.ndarray
        assert not isbox(np.ones(2))
        assert_allclose(getval(x), X)
        assert_allclose(x._value, X)
        assert not isbox(getval({"x": x})["x"])
        with pytest.raises(AttributeError, match="_node"):
            x._node     # noqa: B018
        return np.sum(x)

    assert_allclose(grad(ask)(X), 1)
    assert not isbox(X)
    assert getval(X) is X
    assert issubclass(ArrayBox, Box)
    assert ArrayBox in typing.get_args(typing.Union[numpy.ndarray, ArrayBox])     # noqa: UP007


def test_containers_that_are_differentiated():
    def ask(x):
        assert Box.__instancecheck__(x)
        assert DictBox.__instancecheck__(x)
        assert SequenceBox.__instancecheck__(x["a"])
        assert not DictBox.__instancecheck__({"a": X})
        assert not ArrayBox.__instancecheck__(x)
        assert isinstance(x, dict)
        return np.sum(x["a"][0])

    assert_allclose(grad(ask)({"a": [X]})["a"][0], 1)


def test_functions_without_derivatives():
    shape = notrace_primitive(lambda x: numpy.asarray(x).shape)
    assert_allclose(grad(lambda x: shape(x)[0] * np.sum(x))(X), 3)
    f = primitive(lambda x: x**2)
    register_notrace(None, f)
    assert_allclose(grad(lambda x: np.sum(f(x) + x))(X), 1)


@pytest.mark.parametrize("use", [
    lambda: core.VJPNode.new_root(), lambda: tracer.new_box(X, 0, None), lambda: tracer.trace_stack.new_trace(),
    lambda: extend.SparseObject(None, None),
    lambda: ArrayBox(X, 0, None), lambda: ArrayBox.register(object), lambda: core.VSpace.register(object),
    lambda: setattr(ArrayBox, "shape", ()), lambda: defvjp(len, None), lambda: defjvp(numpy.sin, None)])
def test_what_cannot_be_names_a_remedy(use):
    with pytest.raises(UnsupportedError, match="\n"):
        use()


def test_results_that_are_python_numbers_have_derivatives():
    f = primitive(lambda x, n, word: float(numpy.sum(x)) ** n)
    defvjp(f, lambda ans, x, n, word: lambda g: g * n * float(numpy.sum(x)) ** (n - 1) * numpy.ones_like(x))
    assert_allclose(grad(lambda x: f(x, 2, "word"))(X), 2 * X.sum())
    g = primitive(lambda x, n: numpy.floor(x).astype(int))      # a straight-through estimator
    defvjp(g, lambda ans, x, n: lambda g: g * n)
    assert_allclose(grad(lambda x: np.sum(g(x, 3.0) * Y))(X), 3 * Y)
    h = primitive(lambda x: (numpy.sort(x), numpy.argsort(x)))
    defvjp(h, lambda ans, x: lambda g: g[0][numpy.argsort(ans[1])])
    assert_allclose(grad(lambda x: np.sum(h(x)[0] * numpy.arange(3)) + Y[h(x)[1]][0])(X), numpy.argsort(X.argsort()))
    assert primitive(lambda x: 3)(X) == 3


def test_a_write_after_the_call_does_not_change_the_gradient():
    f = primitive(lambda x: x**2)
    defvjp(f, lambda ans, x: lambda g: 2 * g * x)

    def loss(x):
        y = 1 * x
        z = f(y)
        y[0] = 100.0
        return np.sum(z)

    assert_allclose(grad(loss)(X), 2 * X)
