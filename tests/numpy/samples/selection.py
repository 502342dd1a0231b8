"""Samples of functions that choose, sort and search."""

import numpy as np

from pydispatch import ops
from tests.numpy.samples.sample import grid, sample

sample("where", grid(2, 3) > 0, grid(2, 3), grid(3, seed=1), smooth=True)
sample("where", [True, False], 1, [2.0, 3.0])
MASK = np.array([True, False, True, True])

# how many elements there are depends on values
UNKNOWN = {"batches": False, "has_shape": False}
for a in (grid(4), grid(2, 3), grid(4, dtype=bool), np.array([[0, 3, 0], [1, 0, 2]]), np.zeros((0, 3)), np.zeros(3)):
    for name in ("nonzero", "flatnonzero", "argwhere"):
        sample(name, a, **UNKNOWN)
    sample("where", a, **UNKNOWN)
    sample("count_nonzero", a, **UNKNOWN)       # of NumPy 2.0 it is an int, which is no result of a transform
    sample("count_nonzero", a, -1)
sample("argwhere", np.array(3), **UNKNOWN)
sample("count_nonzero", grid(2, 3, dtype=bool), axis=1, keepdims=True)
sample("count_nonzero", grid(2, 3, dtype=int), axis=(0, 1))
sample("compress", MASK, grid(4), smooth=True, **UNKNOWN)
sample("compress", [0, 1], grid(3, 2), axis=1, smooth=True)
sample("compress", [False, True], grid(2, 3), 0, smooth=True)
sample("extract", grid(2, 3) > 0, grid(2, 3), smooth=True, **UNKNOWN)
sample("choose", np.array([0, 1, 1, 0]), [grid(4), grid(4, seed=1)], smooth=True)
sample("choose", np.array([[0, 2], [1, 0]]), (1.0, grid(2), 3), smooth=True)
sample("choose", np.array([-1, 5, 1]), [grid(3), grid(3, seed=1)], mode="wrap", smooth=True)
sample("choose", np.array([-1, 5, 1]), [grid(3), grid(3, seed=1)], mode="clip", smooth=True)
sample("select", [grid(4) > 1, grid(4) < 0], [grid(4), grid(4, seed=1)], default=3.0, smooth=True)
sample("select", [np.array([True, False])], [np.array([1, 2])])
sample("select", [np.array([True, False, True])], [grid(2, 3)], 0, smooth=True)
X = grid(6)
sample("piecewise", X, [X < 0, X >= 0], [lambda x: -x * x, lambda x: x * x * x], smooth=True, batches=False,
       has_shape=False)     # the conditions are those of the sample
sample("piecewise", X, [X < 0], [-1, 1])
sample("piecewise", X, X < 0, [lambda x: ops.np.multiply(x, 2), 0.5], smooth=True, batches=False)

for name in ("partition", "argpartition"):
    sample(name, grid(5), (0, 1, 2, 3, 4), smooth=name == "partition")
    sample(name, grid(3, 2), (0, 1), smooth=name == "partition")
    sample(name, grid(3, 2, dtype=int), (0, 1, 2), axis=0)
    sample(name, grid(2, 3), tuple(range(6)), axis=None, smooth=name == "partition")
sample("lexsort", (np.array([1, 0, 1, 0, 2]), np.array([2, 2, 1, 1, 0])))
sample("lexsort", grid(2, 4))
sample("lexsort", (grid(2, 3), grid(2, 3, dtype=int)), axis=0)
sample("sort_complex", grid(4))
sample("sort_complex", grid(4, dtype=complex))
sample("sort_complex", grid(4, dtype=np.int8))
EDGES = np.array([-1.0, 0.0, 0.0, 0.5, 1.5])
for side in ("left", "right"):
    # the first array is rolled in a batch, and would not be sorted
    sample("searchsorted", EDGES, grid(2, 3), side, batches=False)
    sample("searchsorted", EDGES.tolist(), grid(2, 3), side)
    sample("searchsorted", EDGES, 0.0, side=side, batches=False)
    sample("searchsorted", np.array([1, 3, 5]), [3, 4, 9, -1], side=side, batches=False)
    sample("searchsorted", np.array([0.0, 1.0, np.nan]), np.array([np.nan, 0.5, 1.0]), side=side, batches=False)
sample("searchsorted", np.array([3.0, 1.0, 2.0]), grid(3), sorter=np.array([1, 2, 0]), batches=False)
for right in (False, True):
    sample("digitize", grid(2, 3), EDGES, right, has_shape=False)      # traced with edges that do not rise
    sample("digitize", grid(2, 3), EDGES.tolist(), right)
    sample("digitize", grid(4), EDGES[::-1].tolist(), right=right)
sample("digitize", np.array([1, 2]), [1.5])

for right in (False, True):     # at the edges themselves
    sample("digitize", np.array([0.0, 1.0, 2.0, 3.0, 4.0]), [1.0, 2.0, 3.0], right)
    sample("digitize", np.array([0.0, 1.0, 2.0, 3.0, 4.0]), [3.0, 2.0, 1.0], right)
