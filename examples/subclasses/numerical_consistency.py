"""Where does a program in single precision lose its digits? Run each operator in double precision beside it.

Every result has a shadow in float64, computed from the shadows of the arguments. The mode reports how far the two are
apart, operator by operator. The first large step is where to look.
"""

from typing import NamedTuple

import numpy as np

from pydispatch import DispatchMode, Tensor, ops
from pydispatch.tree import tree_leaves, tree_map

ARRAYS = (Tensor, np.ndarray, np.generic)


class Row(NamedTuple):
    operator: str
    error: float


class Shadowed(DispatchMode):
    """`rows`: for each operator that gave float32, the relative error of its result."""

    def __init__(self):
        self.rows = []
        self.shadows = {}       # by id: the result, so that it stays, and its shadow

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        shadow_args, shadow_kwargs = tree_map(self.shadow, (args, kwargs))
        result = func(*args, **kwargs)
        shadow = func(*shadow_args, **shadow_kwargs)
        for low, high in zip(tree_leaves(result), tree_leaves(shadow), strict=True):
            if isinstance(low, ARRAYS) and low.dtype == np.float32:
                self.shadows[id(low)] = low, high
                self.rows.append(Row(func.name.name, relative_error(low, high)))
        return result

    def shadow(self, value):
        """Return the shadow of an array, the array in float64 if it has none, and anything else unchanged."""
        if not isinstance(value, ARRAYS) or value.dtype != np.float32:
            return value
        return self.shadows[id(value)][1] if id(value) in self.shadows else ops.np.astype(value, np.float64)

    def __str__(self):
        return "\n".join(f"  {row.operator:10} {row.error:8.1e} {'#' * digits(row.error)}" for row in self.rows)


def relative_error(low, high):
    """Return the largest distance, in terms of the largest number."""
    return float(abs(low - high).max() / max(float(abs(high).max()), 1e-300))


def digits(error):
    """Return how many of the seven digits of single precision are lost."""
    return max(0, round(np.log10(max(error, 1e-7) / 1e-7)))


def naive_variance(x):
    """Return the textbook's formula: the mean of squares less the square of the mean."""
    return ops.np.square(x).mean() - ops.np.square(x.mean())


def variance(x):
    """Return the mean square of the distances from the mean."""
    return ops.np.square(x - x.mean()).mean()


def main():
    """Compare two formulas for the variance of numbers that are far from zero."""
    x = Tensor((1000.0 + np.random.default_rng(0).normal(size=1000)).astype(np.float32))
    for function in (naive_variance, variance):
        with Shadowed() as report:
            function(x)
        print(f"{function.__name__}: of the seven digits of float32, lost are")
        print(report)


if __name__ == "__main__":
    main()
