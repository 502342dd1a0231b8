"""An independent model of reverse mode: a graph of single numbers, and NumPy arrays of objects for views and writes.

A `Scalar` knows its value and, per number that it was computed from, the derivative by that number, itself a Scalar. An
array is a NumPy array of Scalars, so NumPy alone decides what a view shows and what a write replaces.
"""

import math

import numpy as np


class Scalar:
    __slots__ = ("parents", "value")

    def __init__(self, value, parents=()):
        self.value = value
        self.parents = parents

    def __add__(self, other):
        other = as_scalar(other)
        return Scalar(self.value + other.value, ((self, ONE), (other, ONE)))

    def __sub__(self, other):
        other = as_scalar(other)
        return Scalar(self.value - other.value, ((self, ONE), (other, MINUS_ONE)))

    def __mul__(self, other):
        other = as_scalar(other)
        return Scalar(self.value * other.value, ((self, other), (other, self)))

    def __truediv__(self, other):
        return self * reciprocal(as_scalar(other))

    def __neg__(self):
        return Scalar(-self.value, ((self, MINUS_ONE),))

    __radd__, __rmul__ = __add__, __mul__


ONE, MINUS_ONE, HALF = Scalar(1.0), Scalar(-1.0), Scalar(0.5)


def as_scalar(value):
    return value if isinstance(value, Scalar) else Scalar(float(value))


def sin(x):
    return Scalar(math.sin(x.value), _lazily(x, cos))


def cos(x):
    return Scalar(math.cos(x.value), _lazily(x, lambda x: -sin(x)))


def exp(x):
    return Scalar(math.exp(x.value), _lazily(x, exp))


def tanh(x):
    return Scalar(math.tanh(x.value), _lazily(x, lambda x: ONE - tanh(x) * tanh(x)))


def reciprocal(x):
    return Scalar(1.0 / x.value, _lazily(x, lambda x: -(reciprocal(x) * reciprocal(x))))


def identity(x):
    return Scalar(x.value, ((x, ONE),))


def maximum(x, y):
    if x.value == y.value:
        return Scalar(x.value, ((x, HALF), (y, HALF)))
    larger = x if x.value > y.value else y
    return Scalar(larger.value, ((larger, ONE),))


class _lazily:  # noqa: N801
    """The parents of a function of one number: the derivative is a graph without end, so it is made when asked for."""

    __slots__ = ("derivative", "x")

    def __init__(self, x, derivative):
        self.x, self.derivative = x, derivative

    def __iter__(self):
        yield self.x, self.derivative(self.x)


def array_of(values):
    array = np.empty(np.shape(values), object)
    for index in np.ndindex(array.shape):
        array[index] = Scalar(float(values[index]))
    return array


def values_of(array):
    result = np.empty(np.shape(array))
    for index in np.ndindex(result.shape):
        result[index] = array[index].value
    return result


def gradients_of(outputs, cotangents, inputs):
    """Return per input an array of Scalars: the sum over outputs of cotangent times derivative."""
    arriving = {}
    for output, cotangent in zip(outputs, cotangents, strict=True):
        for index in np.ndindex(output.shape):
            _arrive(arriving, output[index], as_scalar(cotangent[index]))
    roots = [scalar for output in outputs for scalar in output.flat]
    for scalar in _consumers_first(roots):
        if scalar in arriving:
            for parent, derivative in scalar.parents:
                _arrive(arriving, parent, arriving[scalar] * derivative)
    zero = Scalar(0.0)
    found = []
    for array in inputs:
        gradient = np.empty(array.shape, object)
        for index in np.ndindex(array.shape):
            gradient[index] = arriving.get(array[index], zero)
        found.append(gradient)
    return found


def _arrive(arriving, scalar, gradient):
    arriving[scalar] = arriving[scalar] + gradient if scalar in arriving else gradient


def _consumers_first(roots):
    """Return all that the roots depend on, each after everything that was computed from it."""
    done, order, stack = set(), [], [(root, False) for root in roots]
    while stack:
        scalar, finished = stack.pop()
        if finished:
            order.append(scalar)
        elif scalar not in done:
            done.add(scalar)
            stack.append((scalar, True))
            stack += [(parent, False) for parent in _parents(scalar)]
    return reversed(order)


def _parents(scalar):
    if isinstance(scalar.parents, _lazily):
        return (scalar.parents.x,)
    return tuple(parent for parent, _ in scalar.parents)
