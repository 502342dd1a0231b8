"""A complex array made of two real ones, which may be of any class themselves.

It says how to take it apart and how to put it together, by the protocol `__tensor_flatten__` and
`__tensor_unflatten__`, so that other code can go through its parts without knowing it.
"""

import numpy as np

from pydispatch import Tensor, ops, subclasses
from pydispatch.library import register_pydispatch


class ComplexPair(Tensor):
    """real + 1j * imag. The rules are below, by operator."""

    def __init__(self, re, im, *, requires_grad=False):
        super().__init__(subclasses.Shell(re, dtype=np.result_type(re.dtype, 1j)), requires_grad=requires_grad)
        self.re, self.im = re, im

    def __repr__(self):
        return f"ComplexPair({self.re}, {self.im})"

    def __tensor_flatten__(self):
        return ("re", "im"), None

    @staticmethod
    def __tensor_unflatten__(inner, context, shape, strides):
        return ComplexPair(inner["re"], inner["im"])

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func.name} has no rule for ComplexPair\ncall register_pydispatch(op, cls, rule)")


def parts(value):
    """Return real and imaginary part of a ComplexPair, an array or a number."""
    return (value.re, value.im) if isinstance(value, ComplexPair) else (value.real, value.imag)


def rule(*names):
    """Register a function of the parts of each argument, for these operators. It gets the operator too."""

    def register(function):
        for name in names:
            register_pydispatch(
                getattr(ops.np, name).default, ComplexPair,
                lambda cls, func, types, args, kwargs: function(func, *args, **kwargs),
            )
        return function

    return register


@rule("reshape", "transpose", "swapaxes", "getitem", "sum", "mean", "detach", "negative")
def each_part(func, x, *args, **kwargs):
    return ComplexPair(func(x.re, *args, **kwargs), func(x.im, *args, **kwargs))


@rule("add", "subtract")
def add(func, x, y):
    (a, b), (c, d) = parts(x), parts(y)
    return ComplexPair(func(a, c), func(b, d))


@rule("multiply", "matmul")
def multiply(func, x, y):
    (a, b), (c, d) = parts(x), parts(y)
    return ComplexPair(func(a, c) - func(b, d), func(a, d) + func(b, c))


@rule("conjugate")
def conjugate(func, x):
    return ComplexPair(x.re, -x.im)


@rule("absolute")
def absolute(func, x):
    return ops.np.hypot(x.re, x.im)


def main():
    """Rotate by complex multiplication, and look at the parts."""
    angle = np.linspace(0, np.pi, 3)
    turn = ComplexPair(np.cos(angle).round(12), np.sin(angle).round(12))
    point = ComplexPair(np.array([3.0, 3.0, 3.0]), np.array([4.0, 4.0, 4.0]))
    print(f"{turn.dtype}{list(turn.shape)}, parts {[part.dtype.name for part in subclasses.flatten(turn)[0].values()]}")
    print(f"turned  {turn * point!r}")
    print(f"lengths {abs(turn * point)}")
    print(f"there and back {turn.conj() * (turn * point)!r}")


if __name__ == "__main__":
    main()
