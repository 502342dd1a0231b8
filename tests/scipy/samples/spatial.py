"""Distances between all rows of matrices. `test_spatial` has those between vectors, which SciPy returns as numbers."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12
A, B = np.exp(between(-2, 2, 4, 3)), 1.37 * np.exp(between(-2, 1, 3, 3, seed=1))      # no two differences are equal

for name in ("euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski", "canberra", "braycurtis", "correlation",
             "cosine"):
    sample("spatial.distance.cdist", A, B, name, smooth=True, tolerance=ROUNDED)
    sample("spatial.distance.pdist", A, name, smooth=True, tolerance=ROUNDED)
for name in ("seuclidean", "mahalanobis"):
    sample("spatial.distance.cdist", A, B, name, smooth=True, tolerance=1e-9)
    sample("spatial.distance.pdist", A, name, smooth=name == "seuclidean", tolerance=1e-9)
sample("spatial.distance.cdist", A, B, "minkowski", p=3.0, w=between(1, 3, 3), smooth=True, tolerance=ROUNDED)
sample("spatial.distance.squareform", between(1, 3, 6), smooth=True)
sample("spatial.distance.squareform", np.array([[0.0, 1.0], [1.0, 0.0]]), checks=False, smooth=True)
sample("spatial.distance.jensenshannon", between(1, 3, 5), between(1, 3, 5, seed=1), smooth=True, has_shape=False,
       tolerance=ROUNDED)
sample("spatial.distance_matrix", A, B, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("spatial.minkowski_distance", A[:3], B, 3.0, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("spatial.minkowski_distance_p", A[:3], B, 3.0, smooth=True, has_shape=False, tolerance=ROUNDED)
