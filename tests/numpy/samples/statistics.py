"""Samples of order statistics, averages, correlations, histograms, and of reductions without nan."""

import numpy as np

from pydispatch.numpy.statistics import POSITIONS
from tests.numpy.samples.sample import grid, sample

CLOSE = 1e-12
sample("ptp", grid(2, 3), smooth=True)
sample("ptp", grid(2, 3, dtype=int), axis=1, keepdims=True)
for name in ("cumulative_sum", "cumulative_prod"):
    sample(name, grid(4), smooth=True, tolerance=CLOSE)
    sample(name, grid(2, 3), axis=1, include_initial=True, smooth=True, tolerance=CLOSE)
    sample(name, grid(4, dtype=int), dtype=float)
sample("average", grid(2, 3), smooth=True, tolerance=CLOSE)
sample("average", grid(2, 3, dtype=int), tolerance=CLOSE)
sample("average", grid(2, 3), axis=0, weights=np.array([1.0, 3.0]), smooth=True, tolerance=CLOSE)
sample("average", grid(2, 3), weights=np.abs(grid(2, 3, seed=2)), returned=True, smooth=True, tolerance=CLOSE)
sample("average", grid(2, 3), 1, np.array([1, 2, 1]), keepdims=True, smooth=True, tolerance=CLOSE)
sample("average", grid(2, 3), 1, returned=True, tolerance=CLOSE)

for a in (grid(5), grid(4), grid(2, 3)):
    sample("median", a, smooth=True, tolerance=CLOSE)
    for q in (0.3, 0.0, 1.0, [0.25, 0.5, 0.9]):
        sample("quantile", a, q, smooth=True, tolerance=CLOSE)
sample("median", grid(5, dtype=int))
sample("median", grid(4, dtype=bool))
sample("median", grid(4, dtype=np.float32), tolerance=1e-6)
sample("median", np.array([1.0, np.nan, 2.0]))
sample("median", np.where(np.arange(300) == 7, np.nan, np.arange(300.0)))
sample("median", np.sin(np.arange(2 * 201.0)).reshape(2, 201), axis=1, smooth=True, tolerance=CLOSE)
sample("median", np.zeros(0))
sample("median", grid(2, 3, 4), axis=(0, 2), keepdims=True, smooth=True, tolerance=CLOSE)
sample("median", grid(2, 3, 4), axis=1, smooth=True, tolerance=CLOSE)
for method in POSITIONS:
    for q in (0.25, [0.1, 0.5, 0.77], [[0.2], [1.0]]):
        sample("quantile", grid(2, 5), q, axis=1, method=method, smooth=True, tolerance=CLOSE)
    sample("quantile", grid(6, dtype=int), [0.3, 0.6], method=method, tolerance=CLOSE)
    sample("quantile", grid(4, dtype=np.float32), np.float32(0.3), method=method, tolerance=1e-6)
sample("quantile", grid(2, 3, 2), [0.2, 0.6], axis=(0, 2), keepdims=True, smooth=True, tolerance=CLOSE)
sample("quantile", np.array([1.0, np.nan, 2.0]), 0.5)
sample("quantile", grid(4), 0.4, method="inverted_cdf", weights=np.array([1.0, 2.0, 0.5, 1.0]), tolerance=CLOSE)
sample("percentile", grid(2, 5), [30, 60.0], axis=-1, smooth=True, tolerance=CLOSE)
sample("percentile", grid(5), 50, method="lower", smooth=True, tolerance=CLOSE)

HOLES = np.where(grid(3, 4, seed=4) > 1.2, np.nan, grid(3, 4, seed=4))
for name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmin", "nanmax", "nanmedian"):
    for a in (HOLES, grid(2, 3)):
        sample(name, a, smooth=a is not HOLES, tolerance=CLOSE)
        sample(name, a, axis=1, tolerance=CLOSE, smooth=a is not HOLES)
        sample(name, a, axis=0, keepdims=True, tolerance=CLOSE)
    sample(name, grid(2, 3, dtype=int), tolerance=CLOSE)
    sample(name, np.array([np.nan, np.nan]), tolerance=CLOSE)
    sample(name, HOLES.astype(np.float32), 1, tolerance=1e-5)
for name in ("nansum", "nanprod", "nanmean", "nanvar"):
    sample(name, HOLES + 1j, tolerance=CLOSE)
sample("nanvar", HOLES, 1, ddof=1, tolerance=CLOSE)
for name in ("nancumsum", "nancumprod"):
    sample(name, HOLES, tolerance=CLOSE)
    sample(name, HOLES, axis=1, tolerance=CLOSE)
for name in ("nanargmin", "nanargmax"):
    sample(name, HOLES)
    sample(name, HOLES, axis=1)
sample("nanquantile", HOLES, [0.2, 0.7], axis=1, tolerance=CLOSE)
sample("nanquantile", HOLES, 0.3, tolerance=CLOSE)
sample("nanpercentile", HOLES, 40, axis=0, keepdims=True, tolerance=CLOSE)
sample("nanquantile", grid(2, 3), 0.3, axis=1, smooth=True, tolerance=CLOSE)

for name in ("cov", "corrcoef"):
    sample(name, grid(3, 5), smooth=True, tolerance=CLOSE)
    sample(name, grid(5), smooth=name == "cov", tolerance=CLOSE)
    sample(name, grid(3, 5, dtype=complex), tolerance=CLOSE)
    sample(name, grid(5), grid(5, seed=1), smooth=True, tolerance=CLOSE)
    sample(name, grid(5, 2), rowvar=False, smooth=True, tolerance=CLOSE)
    sample(name, grid(2, 4, dtype=int), tolerance=CLOSE)
sample("cov", grid(2, 4), bias=True, smooth=True, tolerance=CLOSE)
sample("cov", grid(2, 4), ddof=0, fweights=np.array([1, 2, 1, 3]), smooth=True, batches=True, tolerance=CLOSE)
sample("cov", grid(2, 4), aweights=np.array([0.5, 2.0, 1.0, 1.5]), smooth=True, tolerance=CLOSE)

# the largest element says how long the result is
sample("bincount", np.array([1, 3, 1, 0]), batches=False, has_shape=False)
sample("bincount", np.array([1, 3, 1, 0]), np.array([0.5, 1.0, 2.0, 3.0]), batches=False, has_shape=False, smooth=True)
sample("bincount", np.array([1, 2]), minlength=5, batches=False, has_shape=False)
sample("histogram", grid(8), 3, tolerance=CLOSE)
sample("histogram", grid(8), [-1.0, 0.0, 0.5, 2.0])
sample("histogram", grid(8), 4, (-1.0, 1.0), tolerance=CLOSE)
sample("histogram", grid(8), 4, density=True, tolerance=CLOSE)
sample("histogram", grid(2, 4, dtype=int), 3, tolerance=CLOSE)
sample("histogram", grid(8), 4, weights=np.abs(grid(8, seed=1)), tolerance=CLOSE)
sample("histogram_bin_edges", grid(8), 3, smooth=True, tolerance=CLOSE)
sample("histogram_bin_edges", np.array([], np.complex64), 2)
sample("histogram2d", grid(8), grid(8, seed=1), 3, tolerance=CLOSE)
sample("histogram2d", grid(8), grid(8, seed=1), [2, [-1.0, 0.0, 1.0]], density=True, tolerance=CLOSE)
sample("histogramdd", grid(8, 2), 3, tolerance=CLOSE)
sample("histogramdd", (grid(8), grid(8, seed=1), grid(8, seed=2)), (2, 3, 2), tolerance=CLOSE)

# a row with nan, one without, and weights: which elements are left out
SOME_NAN = np.where(grid(3, 5) > 1.4, np.nan, grid(3, 5))
WEIGHTS = np.array([[1.0, 0.0, 2.0, 0.5, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.5, 1.0, 2.0]])
IS_RECENT = np.lib.NumpyVersion(np.__version__) >= "2.2.0"      # where closest_observation is as documented
for method in ("inverted_cdf", "averaged_inverted_cdf", *["closest_observation"] * IS_RECENT, "lower", "higher",
               "midpoint", "nearest"):
    sample("nanquantile", SOME_NAN, [0.2, 0.5], axis=1, method=method, tolerance=1e-15)
    sample("nanquantile", SOME_NAN, 0.4, method=method, tolerance=1e-15)
for name in ("nanquantile", "quantile"):
    sample(name, SOME_NAN, [0.3, 0.8], axis=1, weights=WEIGHTS, method="inverted_cdf", batches=False)
    sample(name, SOME_NAN, 0.5, axis=0, weights=WEIGHTS, method="inverted_cdf", keepdims=True, batches=False)
sample("nanpercentile", SOME_NAN, 50, weights=WEIGHTS, method="inverted_cdf")
for name in ("nanmedian", "nanmean", "nanmax", "nanquantile"):
    sample(name, np.zeros((0, 2)), *(0.5,) * (name == "nanquantile"), axis=1, batches=False)
