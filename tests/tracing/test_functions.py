"""Users' functions in traces: one node each, with the derivative that they define, however a tape is used.

The derivative that the Functions here define is ten times that of what they compute, so a result shows which it is.
"""

from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, autograd, func
from pydispatch.exceptions import AutogradError
from pydispatch.tracing import make_fx

X, W = np.array([1.0, 2.0, 3.0]), np.array([2.0, -1.0, 0.5])
MODES = ["real", "fake"]


class Cube(autograd.Function):
    """setup_context saves what it computes."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0] * inputs[0])

    @staticmethod
    def backward(ctx, grad):
        square, = ctx.saved_tensors
        return 30 * grad * square


class CubeByCtx(autograd.Function):
    """The older style: forward takes ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        square, = ctx.saved_tensors
        return 30 * grad * square


BOTH = [Cube, CubeByCtx]


def slope_on_tape(function: Any, x: Any, leaf: Tensor) -> Any:
    slope, = autograd.grad(function(x).sum(), leaf)
    return slope


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cube", BOTH)
def test_a_graph_has_the_gradient_of_a_captured_tensor(cube, mode):
    leaf = Tensor(W, requires_grad=True)
    for weight in (leaf, leaf * 1.0):
        graph = make_fx(lambda x, weight=weight: x * cube.apply(weight), tracing_mode=mode)(X)
        np.testing.assert_allclose(slope_on_tape(graph, X * 2, leaf), 2 * X * 30 * W * W)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cube", BOTH)
def test_a_graph_within_a_graph_has_the_gradient_of_a_captured_tensor(cube, mode):
    leaf = Tensor(W, requires_grad=True)
    graph = make_fx(lambda x: make_fx(lambda y: y * cube.apply(leaf))(x)(x), tracing_mode=mode)(X)
    np.testing.assert_allclose(slope_on_tape(graph, X * 2, leaf), 2 * X * 30 * W * W)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cube", BOTH)
def test_a_graph_has_the_gradient_of_an_argument(cube, mode):
    graph = make_fx(cube.apply, tracing_mode=mode)(X)
    leaf = Tensor(W, requires_grad=True)
    np.testing.assert_allclose(slope_on_tape(graph, leaf, leaf), 30 * W * W)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cube", BOTH)
def test_a_backward_pass_in_a_trace_follows_what_was_saved(cube, mode):
    def slope(x):
        leaf = x.detach().requires_grad_(True)
        return autograd.grad(cube.apply(leaf).sum(), leaf)[0]

    graph = make_fx(slope, tracing_mode=mode)(X)
    np.testing.assert_allclose(graph(W), 30 * W * W)


@pytest.mark.parametrize("mode", MODES)
def test_a_trace_of_a_tracked_argument_keeps_the_derivative(mode):
    graph = make_fx(Cube.apply, tracing_mode=mode)(Tensor(X, requires_grad=True))
    np.testing.assert_allclose(func.grad(lambda x: graph(x).sum())(W), 30 * W * W)


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_that_would_lose_a_derivative_is_refused(mode):
    message = "CubeByCtx is used under make_fx, but its forward takes ctx(.|\n)*define forward"
    with pytest.raises(AutogradError, match=message):
        make_fx(CubeByCtx.apply, tracing_mode=mode)(Tensor(X, requires_grad=True))


def test_a_function_that_writes_to_a_tracked_argument():
    class Doubled(autograd.Function):
        @staticmethod
        def forward(x):
            x *= 2
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def backward(ctx, grad):
            return 20 * grad

    def slope(x):
        leaf = x.detach().requires_grad_(True)
        return autograd.grad((Doubled.apply(leaf * 3.0) * x).sum(), leaf)[0]

    np.testing.assert_allclose(slope(Tensor(W)), 60 * W)
    np.testing.assert_allclose(make_fx(slope)(X)(W), 60 * W)
