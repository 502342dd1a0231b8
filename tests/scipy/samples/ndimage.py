"""Filters of images, and coordinates between their elements."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")
IMAGE = between(-2, 2, 4, 5)

sample("ndimage.convolve", IMAGE, between(-1, 1, 2, 3), smooth=True, tolerance=ROUNDED)
sample("ndimage.convolve1d", IMAGE, between(-1, 1, 3), smooth=True, tolerance=ROUNDED)
for mode in MODES:
    sample("ndimage.convolve", IMAGE, between(-1, 1, 3, 2), mode=mode, cval=0.5, origin=(1, -1), smooth=True,
           tolerance=ROUNDED)
    sample("ndimage.correlate", IMAGE, between(-1, 1, 4, 3), mode=mode, cval=0.5, smooth=True, tolerance=ROUNDED)
    sample("ndimage.convolve1d", IMAGE, between(-1, 1, 4), 0, mode=mode, cval=0.5, origin=-1, smooth=True,
           tolerance=ROUNDED)
    sample("ndimage.correlate1d", IMAGE, between(-1, 1, 4), mode=mode, origin=1, smooth=True, tolerance=ROUNDED)
    sample("ndimage.gaussian_filter1d", between(-2, 2, 5), 1.2, order=1, mode=mode, smooth=True, tolerance=ROUNDED)
    sample("ndimage.gaussian_filter", IMAGE, (0.7, 1.3), mode=mode, truncate=2.0, smooth=True, tolerance=ROUNDED)
    sample("ndimage.uniform_filter1d", IMAGE, 4, mode=mode, origin=-1, smooth=True, tolerance=ROUNDED)
    sample("ndimage.uniform_filter", IMAGE, 3, mode=mode, cval=1.0, smooth=True, tolerance=ROUNDED)
sample("ndimage.correlate", IMAGE, between(-1, 1, 3, 3), smooth=True, tolerance=ROUNDED)
sample("ndimage.convolve", between(-2, 2, 2, 3, 3), between(-1, 1, 2), axes=1, origin=-1, smooth=True,
       tolerance=ROUNDED)
sample("ndimage.convolve", between(-2, 2, 3), between(-1, 1, 7), mode="reflect", smooth=True, tolerance=ROUNDED)
sample("ndimage.convolve", np.arange(12).reshape(3, 4), np.ones((2, 2)))
sample("ndimage.gaussian_filter", IMAGE, 1.0, smooth=True, tolerance=ROUNDED)
sample("ndimage.gaussian_filter", IMAGE, 1.0, order=(2, 3), radius=2, smooth=True, tolerance=ROUNDED)
sample("ndimage.gaussian_filter", between(-2, 2, 2, 3, 4), 1.0, axes=(0, 2), mode=("wrap", "nearest"), smooth=True,
       tolerance=ROUNDED)
sample("ndimage.gaussian_filter", IMAGE.astype(np.float32), 1.0, output=np.float64, tolerance=ROUNDED)
sample("ndimage.uniform_filter", np.arange(20).reshape(4, 5), 3)

POINTS = np.stack([between(0.2, 2.8, 6), between(0.2, 3.8, 6, seed=1)]) + 0.0123
BEYOND = np.stack([between(-6.2, 9.8, 5), between(-7.2, 12.8, 5, seed=1)]) + 0.0123
for order in (1, 0):
    sample("ndimage.map_coordinates", IMAGE, POINTS, order=order, smooth=True, tolerance=ROUNDED)
    for mode in (*MODES, "grid-constant", "grid-wrap", "grid-mirror"):
        sample("ndimage.map_coordinates", IMAGE, BEYOND, order=order, mode=mode, cval=0.5, smooth=True,
               tolerance=ROUNDED)
sample("ndimage.map_coordinates", between(-2, 2, 3, 3, 3), between(0.1, 1.9, 3, 2, 2), order=1, smooth=True,
       tolerance=ROUNDED)
sample("ndimage.map_coordinates", between(-2, 2, 5), between(0.2, 3.7, 1, 3), order=1, smooth=True, tolerance=ROUNDED)
sample("ndimage.map_coordinates", np.arange(20).reshape(4, 5), POINTS, order=1)
