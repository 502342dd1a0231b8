"""Autograd inside of a wrapper: the tape records what is called on the inner array.

In a handler the tape is off, as it records the call from outside. `restore_entry_state()` turns on again what was on
when the operator was called. Then the inner array may require grad, and the handler decides what its gradient is: here
that of `rint`, zero nearly everywhere, is replaced by one.
"""

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.modes import restore_entry_state
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_map


class InnerGrad(Tensor):
    """A wrapper that requires no grad, around a Tensor that may."""

    def __init__(self, inner):
        super().__init__(Shell(inner))
        self.inner = inner

    def __repr__(self):
        return f"InnerGrad({self.inner})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda leaf: leaf.inner if isinstance(leaf, cls) else leaf, (args, kwargs or {}))
        with restore_entry_state():
            result = straight_through(*args) if func is ops.np.rint.default else func(*args, **kwargs)
        return tree_map(lambda leaf: cls(leaf) if isinstance(leaf, Tensor) else leaf, result)


def straight_through(x):
    """Compute `rint` with the gradient of the identity."""
    return x + (ops.np.rint(x) - x).detach()


def main():
    """Fit numbers that are rounded: without the replaced gradient, nothing would move."""
    target = np.array([3.0, -2.0, 7.0])
    plain, leaf = (Tensor(np.zeros(3), requires_grad=True) for _ in range(2))
    ops.np.square(ops.np.rint(plain) - target).sum().backward()
    loss = ops.np.square(ops.np.rint(InnerGrad(leaf)) - target).sum()
    print(f"outside: requires_grad={loss.requires_grad}, inside: {loss.inner.requires_grad}")
    loss.inner.backward()
    print(f"gradient {plain.grad} becomes {leaf.grad}")


if __name__ == "__main__":
    main()
