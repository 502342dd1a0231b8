"""Functions that rearrange, join and split arrays."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

sample("atleast_1d", np.array(1.5), smooth=True)
sample("atleast_1d", grid(2, 3), smooth=True)
sample("atleast_1d", [1.0, 2.0])
sample("concatenate", [grid(2, 3), grid(1, 3)], smooth=True)
sample("concatenate", (grid(2, 3), grid(2, 1)), axis=1, smooth=True)
sample("concatenate", (grid(2), [1, 2]), axis=None, smooth=True)
sample("concatenate", (grid(2, dtype="f4"), grid(2, dtype=int)), dtype="f8")
sample("vstack", [grid(3), grid(3)], smooth=True)
sample("vstack", [grid(2, 3), grid(3, dtype=int)])
sample("reshape", grid(2, 3), (3, 2), smooth=True)
sample("reshape", grid(2, 3), (3, -1), order="F", smooth=True)
sample("reshape", grid(2, 3), -1, smooth=True)
sample("stack", [grid(2, 3), grid(2, 3, seed=1)], axis=-1, smooth=True)
sample("stack", [[1.0, 2.0], grid(2)])
sample("split", grid(6), 3, smooth=True)
sample("split", grid(2, 6), [1, 4], axis=1, smooth=True)
sample("repeat", grid(2, 3), 2, smooth=True)
sample("repeat", grid(2, 3), [1, 2], axis=0, smooth=True)
sample("ravel", grid(2, 3), smooth=True)
sample("ravel", grid(2, 3), order="F", smooth=True)
