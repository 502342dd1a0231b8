"""Sums over the axes that broadcasting stretched."""

import itertools

import numpy as np
import pytest

from pydispatch import Tensor, autograd, func


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (1, 1), (2, 3), (4, 1, 3), (1, 2, 1)])
def test_it_is_the_transpose_of_broadcasting(shape):
    value = np.arange(24.0).reshape(4, 2, 3)
    expected = np.zeros(shape)
    sources = np.broadcast_to(np.arange(expected.size).reshape(shape), value.shape)
    np.add.at(expected.reshape(-1), sources, value)
    for wrap, given in itertools.product((np.asarray, Tensor), (tuple, list)):
        np.testing.assert_allclose(np.asarray(autograd.sum_to(wrap(value), given(shape))), expected)


def test_other_shapes_are_refused():
    for shape in ((2,), (4, 2, 3, 1), (1, 4, 2, 3)):
        with pytest.raises(ValueError, match="cannot be summed to shape"):
            autograd.sum_to(np.ones((4, 2, 3)), shape)


def test_it_is_differentiated_and_batched():
    x = np.arange(6.0).reshape(3, 2)
    gradient = func.grad(lambda x: (autograd.sum_to(x, (2,)) ** 2).sum())(x)
    np.testing.assert_allclose(gradient, np.broadcast_to(2 * x.sum(0), (3, 2)))
    np.testing.assert_allclose(func.vmap(lambda x: autograd.sum_to(x, (1,)))(x), x.sum(1, keepdims=True))
