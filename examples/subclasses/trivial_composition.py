"""A subclass that has an array: the wrapper that all others here are variations of.

A Shell gives it shape, dtype and strides. The values are elsewhere, in `inner`. The handler unwraps, calls, wraps, and
says which results are arguments or views of them. It counts the calls, to show that backward passes through it too.
"""

from collections import Counter
from typing import ClassVar

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.subclasses import Shell, return_and_correct_aliasing
from pydispatch.tree import tree_map


class Wrapper(Tensor):
    """A Tensor around `inner`, which holds the values."""

    calls: ClassVar[Counter] = Counter()

    def __init__(self, inner, *, requires_grad=False):
        super().__init__(Shell(inner), requires_grad=requires_grad)
        self.inner = inner

    def __repr__(self):
        return f"Wrapper({self.inner!r})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        cls.calls[str(func.name)] += 1
        kwargs = kwargs or {}
        inner_args, inner_kwargs = tree_map(lambda leaf: leaf.inner if isinstance(leaf, cls) else leaf, (args, kwargs))
        result = func(*inner_args, **inner_kwargs)
        result = tree_map(lambda leaf: cls(leaf) if isinstance(leaf, Tensor) else leaf, result)
        return return_and_correct_aliasing(func, args, kwargs, result)


def main():
    """Compute one layer of a network and its gradient, on wrapped arrays."""
    random = np.random.default_rng(0)
    weights = Wrapper(Tensor(random.normal(size=(3, 2))), requires_grad=True)
    inputs = Wrapper(Tensor(random.normal(size=(5, 3))))
    loss = ops.np.tanh(inputs @ weights).sum()
    loss.backward()
    print(f"loss {loss!r}")
    print(f"gradient {weights.grad!r}")
    print("calls", dict(Wrapper.calls))


if __name__ == "__main__":
    main()
