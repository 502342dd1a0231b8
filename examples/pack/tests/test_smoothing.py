"""The operators of the pack: checked by opcheck, against closed forms, and as users find them."""

import numpy as np
import pytest

from pydispatch import Tensor, compile, func, ops
from pydispatch.testing import opcheck
from pydispatch.tracing import make_fx

X = np.array([[-2.0, -0.3, 0.4, 1.7], [0.1, 0.2, -0.7, 3.0]])


@pytest.mark.parametrize(("name", "arguments"), [
    ("softplus", ()), ("huber", ()), ("huber", (0.5,)), ("moving_sum", (1,)), ("moving_sum", (3,)),
])
def test_operators(name, arguments):
    opcheck(getattr(ops.smoothing, name), (Tensor(X.copy(), requires_grad=True), *arguments), atol=1e-6, rtol=1e-6)


def test_values():
    np.testing.assert_allclose(ops.smoothing.softplus(X), np.log1p(np.exp(X)))
    np.testing.assert_allclose(ops.smoothing.huber(X), np.where(abs(X) < 1, X**2 / 2, abs(X) - 0.5))
    np.testing.assert_allclose(ops.smoothing.moving_sum(X, 2), X[:, :-1] + X[:, 1:])


def test_gradient_in_a_batch():
    slopes = func.vmap(func.grad(lambda x: ops.smoothing.softplus(x).sum()))(X)
    np.testing.assert_allclose(slopes, 1 / (1 + np.exp(-X)))


def test_trace():
    graph = make_fx(lambda x: ops.smoothing.moving_sum(x, 2) * 2)(X)
    np.testing.assert_allclose(graph(X), 2 * (X[:, :-1] + X[:, 1:]))


def test_compiled():
    def loss(x):
        return ops.smoothing.huber(ops.smoothing.moving_sum(ops.smoothing.softplus(x), 2), 1.5).sum()

    gradient = func.value_and_grad(loss)
    for found, expected in zip(compile(gradient)(X), gradient(X), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("width", [0, 5])
def test_bad_width(width):
    with pytest.raises(ValueError, match="argument width"):
        ops.smoothing.moving_sum(X, width)
