"""Functions of diagonals and triangles, and grids of indices."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

sample("tri", 3, 4, 1)
for k in (-1, 0, 2):
    sample("tril", grid(3, 4), k, smooth=True)
    sample("triu", grid(2, 3, 3), k, smooth=True)
    sample("diagonal", grid(3, 4), k, smooth=True)
    sample("trace", grid(3, 4), k, smooth=True, tolerance=1e-15)
    sample("diag", grid(3), k, smooth=True)
    sample("diag", grid(3, 4), k, smooth=True)
    sample("diagflat", grid(2, 2), k, smooth=True)
sample("tril", grid(3, 3, dtype=int))
sample("triu", grid(3, 3, dtype=bool))
sample("diagonal", grid(2, 3, 4), 1, 2, 0, smooth=True)
sample("trace", grid(2, 3, 4, dtype="f4"), dtype="f8")
sample("trace", grid(3, 3, dtype=bool))
sample("diag", [1, 2, 3])
sample("vander", grid(3), smooth=True, tolerance=1e-15)
sample("vander", grid(3), 4, increasing=True, smooth=True, tolerance=1e-15)
sample("vander", grid(3, dtype=int), 2)
sample("tril_indices_from", grid(3, 4), 1)
sample("triu_indices_from", grid(3, 4), -1)
sample("diag_indices_from", grid(3, 3))
sample("meshgrid", grid(2), grid(3), smooth=True)
sample("meshgrid", grid(2), grid(3), indexing="ij", sparse=True, smooth=True)
sample("meshgrid", grid(2), [1, 2], grid(3), smooth=True)
sample("indices", (2, 3))
sample("indices", (2, 0, 3), float)
sample("indices", ())
sample("indices", [3], "f4", sparse=True)
sample("fromfunction", lambda i, j: i * 10 + j, (2, 3))
sample("fromfunction", lambda i, k: i - k, (3,), dtype=int, k=2)
sample("ix_", np.array([0, 2]), [1, 3])
# how many elements a mask selects depends on its values
sample("ix_", np.array([True, False, True]), np.array([1]), batches=False, has_shape=False)
sample("geomspace", np.array(1.0), np.array(100.0), 5, smooth=True, tolerance=1e-13)
sample("geomspace", np.array([1.0, 2.0]), 64.0, 4, endpoint=False, smooth=True, tolerance=1e-13)
sample("logspace", np.array(0.0), np.array(2.0), 5, smooth=True, tolerance=1e-13)
sample("logspace", grid(2), 2.0, 3, base=2.0, smooth=True, tolerance=1e-13)
