"""Functions that choose elements, and that sort and search."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

sample("where", grid(2, 3) > 0, grid(2, 3), grid(3), smooth=True)
sample("where", np.array([True, False]), 1.0, [2, 3])
