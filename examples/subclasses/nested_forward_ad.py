"""Forward-mode differentiation as a subclass, nested to any depth.

A Dual holds a value and a tangent, which may be Duals of an outer derivative. Derivatives are numbered in the order in
which they start. A call is handled by the derivative with the highest number among its arguments. Duals of the others
are constants to it. Tangents of different derivatives are never mixed up.
"""

from itertools import count

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_leaves

numbers = count()


class Dual(Tensor):
    """A value, its tangent, and the number of the derivative that the tangent belongs to."""

    def __init__(self, primal, tangent, number):
        super().__init__(Shell(primal))
        self.primal, self.tangent, self.number = primal, tangent, number

    def __repr__(self):
        return f"Dual({self.primal}, {self.tangent}, number={self.number})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        number = max(leaf.number for leaf in tree_leaves(args) if isinstance(leaf, cls))
        if func not in FORMULAS or kwargs:
            name = f"ops.np.{func.name.name}.default"
            raise NotImplementedError(f"{func.name} has no formula\nadd one: FORMULAS[{name}] = ...")
        varies = [isinstance(arg, cls) and arg.number == number for arg in args]
        primals = [arg.primal if inner else arg for arg, inner in zip(args, varies, strict=True)]
        tangent = 0.0
        for arg, inner, formula in zip(args, varies, FORMULAS[func], strict=True):
            if inner:
                tangent = formula(arg.tangent, *primals) + tangent
        return cls(func(*primals), tangent, number)


FORMULAS = {
    ops.np.add.default: (lambda t, x, y: t, lambda t, x, y: t),
    ops.np.subtract.default: (lambda t, x, y: t, lambda t, x, y: -t),
    ops.np.multiply.default: (lambda t, x, y: t * y, lambda t, x, y: t * x),
    ops.np.divide.default: (lambda t, x, y: t / y, lambda t, x, y: -t * x / (y * y)),
    ops.np.negative.default: (lambda t, x: -t,),
    ops.np.sin.default: (lambda t, x: t * ops.np.cos(x),),
    ops.np.cos.default: (lambda t, x: -t * ops.np.sin(x),),
    ops.np.exp.default: (lambda t, x: t * ops.np.exp(x),),
}
"""For each operator and argument, a formula: from its tangent and all values to its part of the result's tangent."""


def derivative(function):
    """Return the derivative of a function that works element by element."""

    def derived(x):
        number = next(numbers)
        result = function(Dual(x, np.ones(x.shape), number))
        depends = isinstance(result, Dual) and result.number == number
        return result.tangent if depends else np.zeros(x.shape)

    return derived


def main():
    """Compute third derivatives, and the example that needs numbers."""
    x = np.array([0.0, 0.5, 1.0])
    third = derivative(derivative(derivative(ops.np.sin)))
    print(f"sin'''    {third(x)}")
    print(f"-cos      {-np.cos(x)}")
    mixed = derivative(lambda x: x * derivative(lambda y: x + y)(x))
    print(f"d/dx x (d/dy (x + y)) {mixed(x)}, and not 2")


if __name__ == "__main__":
    main()
