"""Helpers of the tests of the tape: leaves, constants, strict comparison of gradients, derivatives by differences."""

import numpy as np

from pydispatch import Tensor
from pydispatch.autograd import Function


class SabotageError(Exception):
    """Raised by kernels and backward functions that have to fail."""


class Cube(Function):
    """Saves an input and its output."""

    @staticmethod
    def forward(ctx, x):
        result = x * x * x
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx, g):
        x, result = ctx.saved_tensors
        return g * 3.0 * result / x


def leaf(values, dtype=np.float64):
    """Return a Tensor that requires grad."""
    return Tensor(np.array(values, dtype), requires_grad=True)


def constant(values, dtype=np.float64):
    return Tensor(np.array(values, dtype))


def assert_gradient(found, expected, rtol=1e-12, atol=1e-14):
    """Assert that `found` is a Tensor of exactly the expected shape and dtype, equal but for rounding."""
    assert isinstance(found, Tensor)
    expected = np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found.detach().array, expected, rtol=rtol, atol=atol)


def gradient_by_differences(function, *arrays, step=1e-6):
    """Return the gradients of the sum of `function(*arrays)`, an array of float64, by central differences."""
    return tuple(_one_gradient(function, arrays, place, step) for place in range(len(arrays)))


def _one_gradient(function, arrays, place, step):
    gradient = np.zeros(arrays[place].shape)
    for index in np.ndindex(gradient.shape):
        totals = []
        for sign in (1, -1):
            moved = [array.copy() for array in arrays]
            moved[place][index] += sign * step
            totals.append(np.sum(function(*moved)))
        gradient[index] = (totals[0] - totals[1]) / (2 * step)
    return gradient
