"""Samples of functions of indices and bits."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

for order in ("C", "F"):
    sample("unravel_index", np.array([0, 5, 3]), (2, 3), order)
    sample("unravel_index", np.array([[0, 23], [7, 11]]), (2, 3, 4), order=order)
    sample("ravel_multi_index", (np.array([0, 1, 1]), np.array([2, 0, 1])), (2, 3), order=order)
sample("unravel_index", 4, 6)
sample("ravel_multi_index", (np.array([0, 4, -1]), np.array([2, 0, 1])), (2, 3), mode="wrap")
sample("ravel_multi_index", (np.array([0, 4, -1]), np.array([2, 7, 1])), (2, 3), mode=("clip", "wrap"))
sample("ravel_multi_index", [[0, 1], [2, 0]], (2, 3))
for bitorder in ("big", "little"):
    sample("packbits", grid(11, dtype=bool), bitorder=bitorder)
    sample("packbits", grid(3, 9, dtype=int), 1, bitorder)
    sample("packbits", grid(8, 2, dtype=bool), axis=0, bitorder=bitorder)
    sample("unpackbits", np.array([7, 130, 255], np.uint8), bitorder=bitorder)
    for count in (None, 3, 20, -2):
        sample("unpackbits", np.array([[7, 130], [1, 0]], np.uint8), axis=1, count=count, bitorder=bitorder)
