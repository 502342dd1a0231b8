"""Functions that interpolate. `test_interpolate` and `test_classes` have the classes."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12
X, Y, Q = np.array([0.0, 0.7, 1.5, 2.0, 3.1, 4.0]), between(-2, 2, 6), np.array([0.2, 1.7, 2.4, 3.7])
POINTS, QUERIES = np.array([[0.0, 0.0], [1.0, 0.1], [0.1, 1.0], [1.1, 1.2]]), np.array([[0.4, 0.5], [0.8, 0.6]])

for name in ("barycentric_interpolate", "krogh_interpolate", "pchip_interpolate"):
    sample(f"interpolate.{name}", X, Y, Q, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("interpolate.interpn", (np.array([0.0, 0.45, 1.0]), np.array([0.0, 0.7, 1.2])), between(-2, 2, 3, 3), QUERIES,
       smooth=True, has_shape=False, tolerance=ROUNDED)
sample("interpolate.griddata", POINTS, between(-2, 2, 4), QUERIES, smooth=True, has_shape=False, tolerance=ROUNDED)
