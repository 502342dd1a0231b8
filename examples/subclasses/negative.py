"""Lazy negation: a sign beside an array, and arithmetic that does not need the negated values.

`-x` copies nothing, signs cancel in products, and sums become differences. Only an operator without a rule makes the
negated values. Rules are added to a table, one for each operator.
"""

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.library import register_pydispatch
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_map


class Signed(Tensor):
    """`sign * magnitude`, where the magnitude is any array and the sign 1 or -1."""

    made = 0        # how many arrays of negated values were made

    def __init__(self, magnitude, sign=1):
        super().__init__(Shell(magnitude))
        self.magnitude, self.sign = magnitude, sign

    def __repr__(self):
        return f"Signed({'-' if self.sign < 0 else '+'}{self.magnitude})"

    def value(self):
        """Return the values, negated where they have to be."""
        if self.sign > 0:
            return self.magnitude
        Signed.made += 1
        return -self.magnitude

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if func.schema.is_mutable:
            raise NotImplementedError(f"{func.name}: no rule writes to a Signed array\nwrite to x.value()")
        args, kwargs = tree_map(lambda leaf: leaf.value() if isinstance(leaf, cls) else leaf, (args, kwargs or {}))
        return func(*args, **kwargs)


def split(value):
    """Return magnitude and sign, of other arrays and of numbers too."""
    return (value.magnitude, value.sign) if isinstance(value, Signed) else (value, 1)


def negate(cls, func, types, args, kwargs):
    magnitude, sign = split(args[0])
    return cls(magnitude, -sign)


def multiply(cls, func, types, args, kwargs):
    (left, left_sign), (right, right_sign) = map(split, args)
    return cls(func(left, right, **kwargs), left_sign * right_sign)


def add(cls, func, types, args, kwargs):
    (left, left_sign), (right, right_sign) = map(split, args)
    if left_sign == right_sign:
        return cls(func(left, right, **kwargs), left_sign)
    return cls(ops.np.subtract(left, right, **kwargs), left_sign)


def absolute(cls, func, types, args, kwargs):
    return func(args[0].magnitude, **kwargs)


for op, rule in [
    (ops.np.negative, negate), (ops.np.multiply, multiply), (ops.np.divide, multiply), (ops.np.matmul, multiply),
    (ops.np.add, add), (ops.np.absolute, absolute),
]:
    register_pydispatch(op.default, Signed, rule)


def main():
    """Compute an expression with five minus signs, and count those that cost anything."""
    a, b = Signed(np.array([1.0, 2.0])), Signed(np.array([3.0, 4.0]))
    result = (-a) * (-b) + -(a / -b)
    print(f"{result!r} with {Signed.made} negated arrays")
    print(f"exp needs the values: {ops.np.exp(-a)} with {Signed.made}")


if __name__ == "__main__":
    main()
