"""Errors that say in which operator, of which arguments, they came up, whatever the kernel said itself.

The exception passes through as it is, with a note. Type, message and traceback are those of the kernel. A summary of an
array is its dtype and shape: it must not fail, and must not run operators.
"""

import numpy as np

from pydispatch import DispatchMode, Tensor, ops
from pydispatch.tree import tree_map

ARRAYS = (Tensor, np.ndarray, np.generic)


class Summary(str):
    """A text that stands for itself."""

    __repr__ = str.__str__


class ErrorContext(DispatchMode):
    """Adds a note to every exception that an operator raises, and the last operators that went well before it."""

    decompose_composites = False        # the operator that the user called, and not one of its pieces

    def __init__(self, n_before=2):
        self.before, self.n_before = [], n_before

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        call = describe(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            error.add_note(f"in {call}")
            for earlier in reversed(self.before[-self.n_before:]):
                error.add_note(f"after {earlier}")
            raise
        self.before.append(f"{call} = {summary(result)}")
        return result


def describe(func, args, kwargs):
    """Describe the call on one line."""
    arguments = [*map(summary, args), *(f"{name}={summary(value)}" for name, value in kwargs.items())]
    return f"{func.name}({', '.join(arguments)})"


def summary(value):
    """Summarize an array by class, dtype and shape, in containers too. Shorten anything else."""
    def of_leaf(leaf):
        if isinstance(leaf, ARRAYS):
            return Summary(f"{type(leaf).__name__}:{leaf.dtype}{list(leaf.shape)}")
        text = repr(leaf)
        return Summary(text if len(text) < 40 else f"{text[:36]}...")

    return repr(tree_map(of_leaf, value))


def main():
    """Run two layers of a network, one of which does not fit."""
    x, first, second = (Tensor(np.ones(shape)) for shape in ((8, 4), (4, 16), (15, 2)))
    try:
        with ErrorContext():
            hidden = ops.np.tanh(x @ first)
            ops.np.matmul(hidden, second)
    except ValueError as error:
        print(f"{type(error).__name__}: {error}", *error.__notes__, sep="\n  ")


if __name__ == "__main__":
    main()
