"""Checkpoints: the same values and gradients, with nothing kept in between."""

import numpy as np
import pytest

from pydispatch import Tensor, autograd
from pydispatch.autograd import checkpoint
from pydispatch.exceptions import AutogradError
from pydispatch.ops import ops


def leaf(*values):
    return Tensor(np.array(values), requires_grad=True)


def program(x, scale):
    return ops.np.exp(ops.np.sin(x) * scale)


def gradient(x, scale):
    return np.exp(np.sin(x) * scale) * scale * np.cos(x)


def test_value_and_gradient_are_those_of_the_function():
    x = leaf(0.5, -1.0)
    y = checkpoint(program, x, 3.0)
    np.testing.assert_allclose(y.detach().numpy(), np.exp(np.sin(x.array) * 3.0), rtol=1e-12)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient(x.array, 3.0), rtol=1e-12)


def test_the_function_runs_again_for_the_backward_pass():
    calls = []

    def counted(x):
        calls.append(autograd.is_grad_enabled())
        return x * x

    x = leaf(3.0)
    y = checkpoint(counted, x)
    assert calls == [False]
    y.backward()
    assert calls == [False, True]
    assert x.grad.item() == 6.0


@pytest.mark.parametrize("tracked", [(True, False), (False, True), (True, True)], ids=["first", "second", "both"])
def test_each_argument_gets_its_gradient(tracked):
    x, y = (Tensor(np.array([2.0]), requires_grad=flag) for flag in tracked)
    checkpoint(lambda a, b: a * b * b, x, y).backward()
    assert (x.grad is not None, y.grad is not None) == tracked
    if tracked[0]:
        assert x.grad.item() == 4.0
    if tracked[1]:
        assert y.grad.item() == 8.0


def test_several_results():
    x = leaf(2.0)
    square, cube = checkpoint(lambda a: (a * a, a * a * a), x)
    (square + cube).backward()
    assert x.grad.item() == 16.0


def test_its_gradient_is_not_differentiated_silently():
    x = leaf(2.0)
    (first,) = autograd.grad(checkpoint(lambda a: a * a * a, x), x, create_graph=True)
    with pytest.raises(AutogradError, match="once_differentiable"):
        autograd.grad(first + x, x)
