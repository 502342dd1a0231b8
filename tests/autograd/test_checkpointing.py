"""Checkpoints: the same values and gradients, with nothing kept in between."""

import numpy as np
import pytest

from pydispatch import Tensor, autograd, func
from pydispatch.autograd import checkpoint
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves


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


def test_its_gradient_can_be_differentiated():
    x = leaf(2.0)
    (first,) = autograd.grad(checkpoint(lambda a: a * a * a, x), x, create_graph=True)
    assert first.item() == 12.0
    assert autograd.grad(first + x, x)[0].item() == 13.0


X = np.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 2.0]])


@pytest.mark.parametrize("transformed", [
    pytest.param(lambda f: func.grad(lambda x: f(x).sum()), id="grad"),
    pytest.param(func.vmap, id="vmap"),
    pytest.param(lambda f: lambda x: func.jvp(f, (x,), (x,)), id="jvp"),
    pytest.param(lambda f: func.vmap(func.grad(lambda x: f(x).sum())), id="vmap(grad)"),
    pytest.param(lambda f: func.grad(lambda x: func.vmap(f)(x).sum()), id="grad(vmap)"),
    pytest.param(lambda f: func.hessian(lambda x: f(x).sum()), id="hessian"),
])
def test_it_can_be_transformed(transformed):
    scale = np.array([2.0, 3.0])
    found = transformed(lambda x: checkpoint(program, x, scale))(X)
    expected = transformed(lambda x: program(x, scale))(X)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


def test_arguments_in_containers_and_numbers_that_are_none():
    x, y = leaf(2.0), leaf(3.0)
    result = checkpoint(lambda pair, n, nothing: pair[0] * pair[1]["y"] * n, (x, {"y": y}), 4.0, None)
    assert result.item() == 24.0
    result.backward()
    assert (x.grad.item(), y.grad.item()) == (12.0, 8.0)
