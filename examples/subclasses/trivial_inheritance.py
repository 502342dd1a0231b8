"""A subclass that is an array: results remember which data they were computed from.

It has memory of its own, like any Tensor. Its handler lets Tensor's own run the operator, and gives the results their
class back, with the sources of all arguments.
"""

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.tree import tree_leaves, tree_map


class Sourced(Tensor):
    """An array with the names of the data that it depends on."""

    def __init__(self, array, sources, *, requires_grad=False):
        super().__init__(array, requires_grad=requires_grad)
        self.sources = frozenset(sources)

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        sources = frozenset().union(*[leaf.sources for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls)])

        def with_sources(leaf):
            if isinstance(leaf, cls):       # written in place: it is the argument, and already of this class
                leaf.sources = sources
                return leaf
            return cls(leaf.array, sources) if isinstance(leaf, Tensor) else leaf

        return tree_map(with_sources, super().__pydispatch__(func, types, args, kwargs))


def main():
    """Fit a line to measurements, and ask the result what it depends on."""
    time = Sourced(np.array([0.0, 1.0, 2.0, 3.0]), {"clock"})
    voltage = Sourced(np.array([1.0, 3.1, 4.9, 7.0]), {"voltmeter"})
    offset = Sourced(np.array(0.5), {"calibration"})
    corrected = voltage - offset
    centred = time - time.mean()
    slope = ops.np.sum(centred * corrected) / ops.np.sum(centred * centred)
    print(f"corrected: {sorted(corrected.sources)}")
    print(f"slope {slope.item():.2f}: {sorted(slope.sources)}")
    centred += offset
    print(f"written in place: {sorted(centred.sources)}")


if __name__ == "__main__":
    main()
