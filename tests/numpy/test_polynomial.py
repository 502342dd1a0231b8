"""`numpy.polynomial`: values of NumPy's functions, on Tensors, and their gradients."""

import inspect

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, func

FAMILIES = {"polynomial": "poly", "chebyshev": "cheb", "legendre": "leg", "laguerre": "lag", "hermite": "herm",
            "hermite_e": "herme"}
X, Y = numpy.array([0.5, -1.0]), numpy.array([0.25, 2.0])
COEFFICIENTS, SQUARE, CUBE = [numpy.arange(1.0, 1 + 2 ** n).reshape((2,) * n) for n in (1, 2, 3)]


def calls_of(short: str):
    for c in (COEFFICIENTS, SQUARE):
        for tensor in (True, False):
            yield f"{short}val", (X, c, tensor)
    for name in ("add", "sub", "mul"):
        yield f"{short}{name}", (COEFFICIENTS, X)
    yield f"{short}mulx", (COEFFICIENTS,)
    yield f"{short}val2d", (X, Y, SQUARE)
    yield f"{short}val3d", (X, Y, X, CUBE)
    yield f"{short}grid2d", (X, Y, SQUARE)
    yield f"{short}der", (numpy.arange(4.0),)
    yield f"{short}int", (COEFFICIENTS,)
    yield f"{short}vander", (X, 2)
    yield f"{short}fromroots", (X,)


CALLS = [(family, name, args) for family, short in FAMILIES.items() for name, args in calls_of(short)] + [
    ("polynomial", "polyvalfromroots", (X, Y)), ("polynomial", "polyvalfromroots", (X, SQUARE)),
    ("polynomial", "polyvalfromroots", (X, SQUARE, True))]


@pytest.mark.parametrize("family", FAMILIES)
def test_values_on_tensors(family):
    for each, name, args in CALLS:
        if each != family:
            continue
        expected = getattr(getattr(numpy.polynomial, family), name)(*args)
        ours = getattr(getattr(np.polynomial, family), name)
        assert numpy.array_equal(ours(*args), expected)
        arrays = [i for i, arg in enumerate(args) if isinstance(arg, numpy.ndarray)]
        for places in ([arrays[0]], arrays[-1:], arrays):
            found = ours(*[Tensor(arg) if i in places else arg for i, arg in enumerate(args)])
            assert numpy.allclose(found.numpy() if isinstance(found, Tensor) else found, expected), (name, places)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_values(family):
    value = getattr(getattr(np.polynomial, family), f"{FAMILIES[family]}val")
    assert func.vmap(lambda x: value(x, COEFFICIENTS))(X).shape == (2,)
    for c in (COEFFICIENTS, SQUARE):
        in_x, in_c = func.grad(lambda x, c: np.sum(value(x, c)), argnums=(0, 1))(X, c)
        near = [numpy.sum(getattr(getattr(numpy.polynomial, family), value.__name__)(X + h, c)) for h in (-1e-6, 1e-6)]
        assert numpy.allclose(in_x.sum(), (near[1] - near[0]) / 2e-6)
        assert numpy.allclose((in_c * c).sum(), numpy.sum(value(X, c)))     # linear in the coefficients


def test_polynomial_from_roots_has_its_zeros():
    assert np.polynomial.polynomial.polyvalfromroots(Tensor(X), Tensor(Y)).tolist() == (
        numpy.polynomial.polynomial.polyvalfromroots(X, Y).tolist())


def test_module_has_numpys_names():
    assert set(np.polynomial.__all__) == set(numpy.polynomial.__all__)
    for family in FAMILIES:
        ours, numpys = getattr(np.polynomial, family), getattr(numpy.polynomial, family)
        assert ours.__all__ == numpys.__all__
        for name in numpys.__all__:
            value = getattr(numpys, name)
            if callable(value) and not isinstance(value, type):
                assert inspect.signature(getattr(ours, name)) == inspect.signature(value)
            else:
                assert getattr(ours, name) is value
