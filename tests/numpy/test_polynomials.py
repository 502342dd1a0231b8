"""Polynomials whose leading zeros are unknown: in traces, compiled, without data, and in batches."""

import numpy as np
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor, compile
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DataDependentError
from pydispatch.func import grad, vmap
from pydispatch.tracing import make_fx

P, Q = np.array([0.0, 0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
DROPPING = {
    "polymul": (face.polymul, np.polymul, (P, Q), r"np\.convolve\(a1, a2\)"),
    "polymul, second": (lambda q, p: face.polymul(p, q), lambda q, p: np.polymul(p, q), (P, Q), r"np\.convolve"),
    "polydiv": (lambda u, v: face.polydiv(u, v)[1], lambda u, v: np.polydiv(u, v)[1], (Q, Q[:2]),
                "trim_leading_zeros_from_remainder=False"),
    "roots": (face.roots, np.roots, (P,), "strip_zeros=False"),
}
WAYS = {
    "compile": lambda f: compile(f), "compile, python": lambda f: compile(f, backend="python"),
    "make_fx": lambda f: lambda *args: make_fx(f)(*args)(*args),
    "fake": lambda f: lambda *args: make_fx(f, tracing_mode="fake")(*args)(*args),
    "Meta": lambda f: lambda *args: f(*[Tensor(MetaArray(arg.shape, arg.dtype)) for arg in args]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DROPPING)
def test_shapes_that_depend_on_unknown_values_are_refused(name, way):
    function, _, args, remedy = DROPPING[name]
    with pytest.raises(DataDependentError, match=rf"NumPy drops leading coefficients that are 0.*\n.*{remedy}"):
        WAYS[way](function)(*args)


@pytest.mark.parametrize("way", ["compile", "make_fx", "fake"])
def test_what_the_remedies_say_is_right(way):
    traced = WAYS[way]
    np.testing.assert_allclose(traced(face.convolve)(P, Q), np.convolve(P, Q))
    u, v = np.array([3.0, 1.0, 4.0, 1.0]), np.array([2.0, 7.0, 1.0])
    for found, expected in zip(traced(lambda u, v: face.polydiv(u, v, trim_leading_zeros_from_remainder=False))(u, v),
                               np.polydiv(u, v), strict=True):
        np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(np.sort(np.asarray(traced(lambda p: face.roots(p, strip_zeros=False))(
        np.array([1.0, -6.0, 11.0, -6.0])))), [1, 2, 3])


@pytest.mark.parametrize("p", [np.array([2.0, 3.0]), np.array([2, 3])], ids=str)
def test_one_root_of_a_real_polynomial_is_real(p):
    found = compile(lambda p: face.roots(p, strip_zeros=False))(p)
    np.testing.assert_array_equal(found, np.roots(p))
    assert found.dtype == np.roots(p).dtype


@pytest.mark.parametrize("m", [np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[1, 2], [3, 4]])], ids=str)
def test_the_characteristic_polynomial_of_a_real_matrix_is_real(m):
    for found in (compile(face.poly)(m), vmap(face.poly)(m[None])[0], face.poly(m), face.poly(Tensor(m)).numpy()):
        np.testing.assert_allclose(found, np.poly(m), atol=1e-15)
        assert found.dtype == np.poly(m).dtype


@pytest.mark.parametrize("name", DROPPING)
def test_batches_drop_what_all_examples_drop(name):
    function, expected, args, remedy = DROPPING[name]
    batch = [np.stack([arg, 2 * arg]) for arg in args]
    np.testing.assert_allclose(vmap(function)(*batch), [expected(*args), expected(*[2 * arg for arg in args])])
    mixed = [np.stack([np.ones_like(args[0]), P[:len(args[0])]]), *[np.stack([arg, arg]) for arg in args[1:]]]
    if name != "polydiv":
        with pytest.raises(DataDependentError, match=rf"differs between the examples(.|\n)*{remedy}"):
            vmap(function)(*mixed)


def test_gradients_know_the_values():
    np.testing.assert_allclose(grad(lambda p: face.polymul(p, Q).sum())(P), [0, 0, 6, 6])
    np.testing.assert_allclose(vmap(grad(lambda p: face.polymul(p, Q).sum()))(P[None])[0], [0, 0, 6, 6])
