"""Parameters that are views of one flat buffer: an optimiser updates all of them in one step.

A subclass without a handler: operators take it as the Tensor that it is, at no cost, and their results are plain. What
it adds is for other code to see: the two arrays, the buffer and the part of it, by the protocol for taking apart.
"""

from itertools import pairwise
from math import prod

import numpy as np

from pydispatch import Tensor, ops


class FlatView(Tensor):
    """The part of a flat buffer from `start`, as an array of some shape."""

    def __init__(self, buffer, start, shape):
        self.buffer, self.start = buffer, start
        self.part = buffer[start:start + prod(shape)].reshape(shape)
        super().__init__(self.part, requires_grad=True)

    def __tensor_flatten__(self):
        return ("buffer", "part"), self.start

    @staticmethod
    def __tensor_unflatten__(inner, start, shape, strides):
        return FlatView(inner["buffer"], start, shape)


def flatten_parameters(*arrays):
    """Return a buffer with the elements of all arrays, and a parameter for each of them."""
    buffer = np.concatenate([array.ravel() for array in arrays])
    starts = np.cumsum([0, *[array.size for array in arrays]]).tolist()
    return buffer, [FlatView(buffer, start, array.shape) for start, array in zip(starts, arrays, strict=False)]


def flat_gradient(parameters):
    """Return the gradients of all parameters, as a vector like the buffer. They are forgotten after that."""
    assert all(left.start < right.start for left, right in pairwise(parameters)), "in the order of the buffer"
    gradient = np.concatenate([parameter.grad.numpy().ravel() for parameter in parameters])
    for parameter in parameters:
        parameter.grad = None
    return gradient


def main():
    """Fit sin(x) by a small network, with momentum in two lines."""
    random = np.random.default_rng(0)
    shapes = [(1, 16), (16,), (16, 1), (1,)]
    buffer, parameters = flatten_parameters(*[random.normal(size=shape) for shape in shapes])
    velocity = np.zeros_like(buffer)
    x = np.linspace(-3, 3, 64)[:, None]
    for step in range(301):
        w1, b1, w2, b2 = parameters
        loss = ops.np.square(ops.np.tanh(x @ w1 + b1) @ w2 + b2 - np.sin(x)).mean()
        loss.backward()
        velocity = 0.9 * velocity - 0.02 * flat_gradient(parameters)
        buffer += velocity
        if step % 100 == 0:
            print(f"step {step:3}: loss {loss:.4f}")
    print(f"{len(parameters)} parameters share memory with one buffer: "
          f"{all(np.shares_memory(parameter.part, buffer) for parameter in parameters)}")


if __name__ == "__main__":
    main()
