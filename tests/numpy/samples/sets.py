"""Samples of functions of sets. How many elements they give depends on values."""

import itertools

import numpy as np

from tests.numpy.samples.sample import grid, sample

UNKNOWN = {"batches": False, "has_shape": False}
DOUBLE = np.array([2.5, -1.0, 2.5, 0.0, -1.0])
WITH_NAN = np.array([1.0, np.nan, 0.0, np.nan, 1.0])
NUMBERS = np.array([[3, 1], [2, 3]])

for a in (grid(4), DOUBLE, NUMBERS, np.zeros(0), np.array(["b", "a", "b"])[:0], DOUBLE > 0, DOUBLE + 0j):
    if a.dtype.kind == "U":
        continue
    sample("unique", a, smooth=a.dtype.kind == "f" and a is not DOUBLE, **UNKNOWN)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        sample(name, a, **UNKNOWN)
    if a.dtype.kind == "f":         # NumPy 2.3 leaves the order of others open
        sample("unique_values", a, **UNKNOWN)
for flags in itertools.product((False, True), repeat=3):
    sample("unique", DOUBLE, *flags, **UNKNOWN)
sample("unique", WITH_NAN, return_counts=True, **UNKNOWN)
sample("unique", WITH_NAN, return_inverse=True, equal_nan=False, **UNKNOWN)
ROWS = np.array([[1, 2], [0, 5], [1, 2], [0, 4]])
for axis in (0, 1, -1):
    sample("unique", ROWS, return_index=True, return_counts=True, axis=axis, **UNKNOWN)
sample("isin", NUMBERS, [1, 2, 5])
sample("isin", DOUBLE, np.array([2.5, 7.0]))
sample("isin", DOUBLE, np.array([2.5, 7.0]), invert=True)
sample("isin", DOUBLE, np.zeros(0))
if hasattr(np, "in1d"):
    sample("in1d", NUMBERS, [1, 2, 5])
for name in ("intersect1d", "setdiff1d", "setxor1d", "union1d"):
    sample(name, DOUBLE, np.array([2.5, 3.0]), **UNKNOWN)
    sample(name, NUMBERS, [3, 4], **UNKNOWN)
    sample(name, grid(3), grid(4), smooth=name == "union1d", **UNKNOWN)
sample("intersect1d", DOUBLE, np.array([2.5, 0.0]), return_indices=True, **UNKNOWN)
