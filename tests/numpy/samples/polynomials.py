"""Samples of functions of polynomials, and of windows."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

CLOSE = 1e-10
sample("polyval", grid(4), grid(2, 3), smooth=True, tolerance=CLOSE)
sample("polyval", [1, 2, 3], 4)
sample("polyval", grid(3, dtype=complex), grid(2), smooth=True, tolerance=CLOSE)
for name in ("polyadd", "polysub", "polymul"):
    has_shape = name != "polymul"       # which drops leading zeros
    sample(name, grid(3), grid(4, seed=1), smooth=True, has_shape=has_shape, tolerance=CLOSE)
    sample(name, [1, 2], [1, 2, 3])
    sample(name, grid(3), 2.0, smooth=True, has_shape=has_shape)
sample("polymul", np.array([0.0, 0.0, 1.0, 2.0]), grid(2), batches=False, has_shape=False)
# leading zeros of the remainder are dropped
for u, v in ((grid(5), grid(2, seed=2)), (grid(3), grid(3, seed=2)), (grid(2), grid(4, seed=3))):
    sample("polydiv", u, v, smooth=len(u) != len(v), batches=False, has_shape=False, tolerance=CLOSE)
sample("polydiv", [1.0, 5.0, 2.0], [2.0, 1.0], tolerance=CLOSE)
for m in (0, 1, 2):
    sample("polyder", grid(4), m, smooth=True, tolerance=CLOSE)
    sample("polyint", grid(4), m, smooth=True, tolerance=CLOSE)
sample("polyint", grid(3), 2, k=[1.0, 2.0], smooth=True, tolerance=CLOSE)
sample("polyint", [1, 2, 3], k=3)
sample("poly", grid(3), smooth=True, tolerance=CLOSE)
sample("poly", grid(3, dtype=complex), smooth=True, tolerance=CLOSE)
# real by their values
sample("poly", np.array([1.0 + 2j, 1.0 - 2j]), batches=False, has_shape=False, tolerance=CLOSE)
sample("poly", np.array([[2.0, 1.0], [0.5, 3.0]]), smooth=True, batches=False, has_shape=False, tolerance=CLOSE)
sample("poly", [])
sample("roots", np.array([1.0, -6.0, 11.0, -6.0]), smooth=True, batches=False, has_shape=False, tolerance=CLOSE)
sample("roots", np.array([0.0, 2.0, 3.0, 0.0, 0.0]), batches=False, has_shape=False, tolerance=CLOSE)
sample("roots", [3.2, 2, 1], tolerance=CLOSE)
X = np.array([0.0, 0.5, 1.0, 1.7, 2.5, 3.0])
# the rank decides whether there are residuals
UNKNOWN = {"batches": False, "has_shape": False, "tolerance": 1e-8}
sample("polyfit", X, grid(6), 2, smooth=True, tolerance=1e-9)
sample("polyfit", X, grid(6, 2), 1, smooth=True, tolerance=1e-9)
sample("polyfit", X, grid(6), 2, w=np.array([1.0, 2.0, 1.0, 0.5, 1.0, 1.0]), smooth=True, tolerance=1e-9)
sample("polyfit", X, grid(6), 2, cov=True, tolerance=1e-9)
sample("polyfit", X, grid(6), 2, cov="unscaled", tolerance=1e-9)
sample("polyfit", X, grid(6), 2, full=True, **UNKNOWN)

for name in ("bartlett", "blackman", "hamming", "hanning"):
    for n in (0, 1, 5, 6, 5.5):
        sample(name, n)
for n in (0, 1, 5, 6):
    sample("kaiser", n, 3.0, tolerance=1e-12)
sample("kaiser", 5, np.array(2.5), smooth=True, tolerance=1e-12)
