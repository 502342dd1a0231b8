"""Vector spaces, flattened containers, and optimizers of containers."""

import numpy
import pydispatch.compat.autograd.numpy as np
import pytest
from numpy.testing import assert_allclose
from pydispatch.compat.autograd.extend import VSpace, vspace
from pydispatch.compat.autograd.misc.flatten import flatten, flatten_func
from pydispatch.compat.autograd.misc.optimizers import adam, rmsprop, sgd
from pydispatch.compat.autograd.numpy.numpy_vjps import match_complex, repeat_to_match_shape, unbroadcast
from pydispatch.compat.autograd.numpy.numpy_vspaces import ArrayVSpace, ComplexArrayVSpace
from pydispatch.compat.autograd.util import subval, subvals

from pydispatch.compat.autograd import builtins, grad
from pydispatch.compat.autograd.test_util import check_grads

NESTED = {"b": [1.0, numpy.array([[2.0, 3.0]])], "a": (numpy.array([1j, 2.0]),)}


@pytest.mark.parametrize("value", [2.0, numpy.ones((2, 3)), 1j * numpy.ones(2), NESTED])
def test_vector_spaces(value):
    space = vspace(value)
    basis = list(space.standard_basis())
    assert len(basis) == space.size
    assert_allclose([[space.inner_prod(x, y) for x in basis] for y in basis], numpy.eye(space.size))
    total = space.zeros()
    for vector in basis:
        total = space.mut_add(total, vector)
    assert_allclose(space.inner_prod(total, space.ones()), space.size)
    assert space == vspace(space.randn()) == vspace(space.covector(space.scalar_mul(space.randn(), 2.0)))
    check_grads(space.add, (0, 1), order=1)(space.randn(), space.randn())
    check_grads(space.inner_prod, (0, 1), order=1)(space.randn(), space.randn())


def test_classes_of_spaces():
    assert type(vspace(1.0)) is ArrayVSpace
    assert type(vspace(1j)) is ComplexArrayVSpace
    assert vspace(NESTED).iscomplex
    assert vspace(numpy.ones((2, 3))).shape == (2, 3)
    assert vspace([1.0, numpy.ones(2)]).shape[1].size == 2
    assert vspace(1.0) != vspace(1j)
    assert isinstance(VSpace(1.0).dtype, numpy.dtype)
    for value in (1, "a", None):
        with pytest.raises(TypeError, match="vector space"):
            vspace(value)
    VSpace.register(type("Subclass", (numpy.ndarray,), {}), ArrayVSpace)


def test_flatten_and_back():
    vector, unflatten = flatten(NESTED)
    assert_allclose(vector, [1j, 2, 1, 2, 3])       # keys in order
    found = unflatten(vector)
    assert list(found) == ["b", "a"]
    assert type(found["a"]) is tuple
    assert type(found["b"][0]) is numpy.float64
    assert found["b"][1].dtype == float
    assert_allclose(found["b"][1], NESTED["b"][1])
    assert flatten(([], ()))[0].shape == (0,)
    assert_allclose(grad(lambda x, y: np.sum(flatten([x, {"y": y}])[0] ** 2), 1)(1.0, 3.0), 6)
    function, _, start = flatten_func(lambda p: {"y": p["x"] ** 2}, {"x": numpy.array([1.0, 3.0])})
    assert_allclose(function(start), [1, 9])


def test_containers_are_pythons():
    assert (builtins.list, builtins.tuple, builtins.dict) == (list, tuple, dict)
    assert subval((1, 2, 3), 1, 5) == (1, 5, 3)
    assert subvals([1, 2, 3], [(0, 4), (2, 6)]) == (4, 2, 6)


@pytest.mark.parametrize(("optimize", "options"), [
    (sgd, {"num_iters": 300}), (rmsprop, {"num_iters": 2000, "step_size": 0.003}),
    (adam, {"num_iters": 1000, "step_size": 0.03})])
def test_optimizers_find_a_minimum(optimize, options):
    seen = []
    gradient = grad(lambda p, i: np.sum((p["x"] - numpy.array([1.0, -2.0])) ** 2) + (p["y"][0] - 3.0) ** 2)
    start = {"x": numpy.zeros(2), "y": (0.0,)}
    found = optimize(gradient, start, callback=lambda p, i, g: seen.append(i), **options)
    assert seen == list(range(options["num_iters"]))
    assert_allclose(found["x"], [1, -2], atol=0.01)
    assert_allclose(found["y"][0], 3, atol=0.01)
    assert sgd(gradient, start, num_iters=1)["y"][0] == pytest.approx(0.1 * 0.1 * 6)


def test_helpers_of_rules():
    ones = numpy.ones((2, 3))
    assert_allclose(unbroadcast(ones, ((1, 3), 2, float, False)), [[2, 2, 2]])
    assert unbroadcast(ones, ((), 0, float, False)) == 6
    assert unbroadcast(1j * ones, ((3,), 1, float, False)).dtype == float
    assert match_complex(1j, 1.0) == 1 + 0j
    assert match_complex(1.0, 1j) == 0
    spread, n = repeat_to_match_shape(numpy.ones(3), (2, 3), float, 0, False)
    assert spread.shape == (2, 3)
    assert n == 2
    assert repeat_to_match_shape(1.0, (2, 3), float, None, False)[1] == 6
