"""Forward-mode differentiation as a subclass, nested to any depth.

A Dual holds a value and a tangent, which may be Duals of an outer derivative. Each derivative has an interpreter, later
ones a higher one, and a call is the business of the highest interpreter among its arguments: the others' Duals are
constants to it. So tangents of different derivatives are never mixed up.
"""

from itertools import count

import numpy as np

from pydispatch import Shell, Tensor, ops
from pydispatch.tree import tree_leaves

interpreters = count()


class Dual(Tensor):
    """A value, how fast it changes, and the interpreter of the derivative that asks."""

    def __init__(self, primal, tangent, interpreter):
        super().__init__(Shell(primal))
        self.primal, self.tangent, self.interpreter = primal, tangent, interpreter

    def __repr__(self):
        return f"Dual({self.primal}, {self.tangent}, interpreter={self.interpreter})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        interpreter = max(leaf.interpreter for leaf in tree_leaves(args) if isinstance(leaf, cls))
        if func not in RULES or kwargs:
            raise NotImplementedError(f"{func.name} has no rule\nadd one: RULES[ops.np.{func.name.name}.default] = ...")
        varies = [isinstance(arg, cls) and arg.interpreter == interpreter for arg in args]
        primals = [arg.primal if inner else arg for arg, inner in zip(args, varies, strict=True)]
        tangent = 0.0
        for arg, inner, rule in zip(args, varies, RULES[func], strict=True):
            if inner:
                tangent = rule(arg.tangent, *primals) + tangent
        return cls(func(*primals), tangent, interpreter)


RULES = {
    ops.np.add.default: (lambda t, x, y: t, lambda t, x, y: t),
    ops.np.subtract.default: (lambda t, x, y: t, lambda t, x, y: -t),
    ops.np.multiply.default: (lambda t, x, y: t * y, lambda t, x, y: t * x),
    ops.np.divide.default: (lambda t, x, y: t / y, lambda t, x, y: -t * x / (y * y)),
    ops.np.negative.default: (lambda t, x: -t,),
    ops.np.sin.default: (lambda t, x: t * ops.np.cos(x),),
    ops.np.cos.default: (lambda t, x: -t * ops.np.sin(x),),
    ops.np.exp.default: (lambda t, x: t * ops.np.exp(x),),
}
"""For each operator a rule for each argument: from its tangent and all values to its part of the result's tangent."""


def derivative(function):
    """The function that gives how fast `function` changes with its argument, element by element."""

    def derived(x):
        interpreter = next(interpreters)
        result = function(Dual(x, np.ones(x.shape), interpreter))
        depends = isinstance(result, Dual) and result.interpreter == interpreter
        return result.tangent if depends else np.zeros(x.shape)

    return derived


def main():
    """Third derivatives, and the example that needs interpreters."""
    x = np.array([0.0, 0.5, 1.0])
    third = derivative(derivative(derivative(ops.np.sin)))
    print(f"sin'''    {third(x)}")
    print(f"-cos      {-np.cos(x)}")
    mixed = derivative(lambda x: x * derivative(lambda y: x + y)(x))
    print(f"d/dx x (d/dy (x + y)) {mixed(x)}, and not 2")


if __name__ == "__main__":
    main()
