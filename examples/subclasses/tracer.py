"""A tracer: run a function once and get a program, a list of operator calls, that can be printed and run again.

A Traced array has values, so that the function may look at them, and a name. Its handler runs the operator and adds a
line to the program. Arrays without a name are constants of the program. (`make_fx` does all of this in earnest.)
"""

from typing import NamedTuple

import numpy as np

from pydispatch import Tensor
from pydispatch.tree import tree_leaves, tree_map


class Name(str):
    """A variable of the program."""

    __repr__ = str.__str__


class Step(NamedTuple):
    """One call, with names for arrays. `results` are in the containers in which the operator gives them."""

    results: object
    func: object
    args: tuple
    kwargs: dict

    def __str__(self):
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.results!r} = {str(self.func.name).replace('::', '.')}({', '.join(arguments)})"


class Program:
    """A function as steps: `program(*arrays)` runs them."""

    def __init__(self, function, arrays):
        self.names, self.steps = [], []
        inputs = [self.named(array) for array in arrays]
        self.inputs = tuple(self.names)
        self.output = names_in(function(*inputs))

    def named(self, array):
        """Return the array under a new name."""
        self.names.append(Name(f"v{len(self.names)}"))
        return Traced(array, self, self.names[-1])

    def __str__(self):
        head = f"def program({', '.join(self.inputs)}):"
        return "\n    ".join([head, *map(str, self.steps), f"return {self.output!r}"])

    def __call__(self, *arrays):
        values = dict(zip(self.inputs, arrays, strict=True))

        def value_of(leaf):
            return values[leaf] if isinstance(leaf, Name) else leaf

        for results, func, *names in self.steps:
            args, kwargs = tree_map(value_of, names)
            values.update(zip(tree_leaves(results), tree_leaves(func(*args, **kwargs)), strict=True))
        return tree_map(value_of, self.output)


class Traced(Tensor):
    """An array of values that has a name in a program."""

    def __init__(self, array, program, name):
        super().__init__(array)
        self.program, self.name = program, name

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        program = next(leaf.program for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls))
        result = super().__pydispatch__(func, types, args, kwargs)
        result = tree_map(lambda leaf: program.named(leaf.array) if type(leaf) is Tensor else leaf, result)
        program.steps.append(Step(*map(names_in, (result, func, args, kwargs))))
        return result


def names_in(value):
    return tree_map(lambda leaf: leaf.name if isinstance(leaf, Traced) else leaf, value)


def power_sum(x):
    """Compute x + x² + x³, and the largest of these."""
    result = x
    for exponent in (2, 3):
        result = result + x ** exponent
    return result, result.max()


def main():
    """Unroll a loop, and run the result on other arrays."""
    program = Program(power_sum, [np.array([1.0, 2.0])])
    print(program)
    print(f"of [2, 3]: {program(np.array([2.0, 3.0]))}")


if __name__ == "__main__":
    main()
