"""Distances between two vectors: SciPy's values, gradients of finite differences, batches, plans."""

import numpy as np
import pytest
import scipy.spatial.distance as theirs

import pydispatch
from pydispatch import Tensor, func
from pydispatch.scipy.spatial import distance
from pydispatch.testing import gradcheck, gradgradcheck
from tests.scipy.samples.sample import between
from tests.together import together

U, V, WEIGHTS = np.exp(between(-2, 2, 6)), np.exp(between(-2, 1, 6, seed=1)), between(1, 3, 6)
CALLS = [*[(name, {}) for name in ("braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine",
                                   "euclidean", "minkowski", "sqeuclidean")],
         *[(name, {"w": WEIGHTS}) for name in ("braycurtis", "canberra", "chebyshev", "cityblock", "correlation",
                                               "cosine", "euclidean", "minkowski", "sqeuclidean")],
         ("minkowski", {"p": 3.5}), ("correlation", {"centered": False}), ("seuclidean", {"V": WEIGHTS}),
         ("mahalanobis", {"VI": np.diag(WEIGHTS) + 0.1})]


@together("name, options", CALLS)
def test_distances_of_tensors_are_scipys(name, options):
    found = getattr(distance, name)(Tensor(U), V, **options)
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found, getattr(theirs, name)(U, V, **options), rtol=1e-12)


@together("name, options", CALLS)
def test_derivatives_are_those_of_finite_differences(name, options):
    tensors = Tensor(U.copy(), requires_grad=True), Tensor(V.copy(), requires_grad=True)
    gradcheck(lambda u, v: getattr(distance, name)(u, v, **options), tensors, check_forward_ad=True)
    gradgradcheck(lambda u, v: getattr(distance, name)(u, v, **options), tensors)


@together("name, options", CALLS)
def test_a_batch_is_a_loop_and_compiled_is_eager(name, options):
    def function(u):
        return getattr(distance, name)(u, V, **options)

    batch = np.stack([U, U[::-1]])
    expected = [getattr(theirs, name)(u, V, **options) for u in batch]
    np.testing.assert_allclose(func.vmap(function)(batch), expected, rtol=1e-12)
    np.testing.assert_allclose(pydispatch.compile(func.vmap(function))(batch), expected, rtol=1e-12)


def test_the_gradient_of_a_length_is_zero_where_vectors_are_equal():
    np.testing.assert_array_equal(func.grad(lambda u: distance.cdist(u, U[None]).sum())(U[None]), np.zeros((1, 6)))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: distance.cdist(Tensor(np.ones((2, 3))), np.ones((2, 2))), "same number of columns"),
    (lambda: distance.cdist(Tensor(np.ones(3)), np.ones((2, 2))), "XA must be a 2-dimensional array"),
    (lambda: distance.euclidean(Tensor(np.ones((2, 2))), np.ones(2)), "Input vector should be 1-D"),
    (lambda: distance.squareform(Tensor(np.ones(4))), "Incompatible vector size"),
    (lambda: distance.minkowski(Tensor(U), V, -1), "p must be greater than 0"),
])
def test_wrong_arguments_raise_as_in_scipy(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_metric_of_compiled_code_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="metric 'yule' is not supported for Tensors"):
        distance.pdist(Tensor(np.ones((2, 3))), "yule")
