"""Filters of images, and coordinates between their elements."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")
IMAGE = between(-2, 2, 4, 5)
CLOSE = 1e-11
CROSS = [[0, 1, 0], [1, 1, 1], [0, 1, 0]]


def second_difference(input, axis, output, mode, cval):
    """Compute the second derivative along an axis by SciPy's filter, which takes Tensors too."""
    from pydispatch.scipy.ndimage import correlate1d
    return correlate1d(input, [1, -2, 1], axis, output, mode, cval, 0)


def slope(input, axis, output, mode, cval):
    from pydispatch.scipy.ndimage import sobel
    return sobel(input, axis, output, mode, cval)


def differences(line, output):
    output[...] = line[2:] * line[:-2]


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

FILTERS = {"smooth": True, "tolerance": ROUNDED}
for mode in MODES:
    for name in ("minimum_filter", "maximum_filter", "median_filter"):
        sample(f"ndimage.{name}", IMAGE, (3, 2), mode=mode, cval=0.13, origin=(1, 0), **FILTERS)
    for name in ("minimum_filter1d", "maximum_filter1d"):
        sample(f"ndimage.{name}", IMAGE, 3, 0, mode=mode, cval=0.13, **FILTERS)
    sample("ndimage.rank_filter", IMAGE, 1, footprint=CROSS, mode=mode, **FILTERS)
    sample("ndimage.percentile_filter", IMAGE, 30, 3, mode=mode, **FILTERS)
    for name in ("grey_dilation", "grey_erosion"):
        sample(f"ndimage.{name}", IMAGE, 2, mode=mode, **FILTERS)
    for name in ("sobel", "prewitt", "laplace"):
        sample(f"ndimage.{name}", IMAGE, mode=mode, **FILTERS)
    sample("ndimage.gaussian_laplace", IMAGE, 0.8, mode=mode, **FILTERS)
    if mode != "mirror":        # which makes slopes at corners 0
        sample("ndimage.gaussian_gradient_magnitude", IMAGE, 0.8, mode=mode, **FILTERS)
for name in ("grey_opening", "grey_closing", "morphological_gradient", "morphological_laplace", "white_tophat",
             "black_tophat"):
    sample(f"ndimage.{name}", IMAGE, 2, **FILTERS)
sample("ndimage.rank_filter", between(-2, 2, 7), 1, 3, **FILTERS)
for name in ("grey_dilation", "grey_erosion"):
    sample(f"ndimage.{name}", IMAGE, structure=between(-0.1, 0.2, 2, 3), footprint=[[1, 1, 1], [1, 1, 1]],
           mode="mirror", **FILTERS)
sample("ndimage.generic_laplace", IMAGE, second_difference, **FILTERS)
sample("ndimage.generic_gradient_magnitude", IMAGE, slope, **FILTERS)
sample("ndimage.generic_filter", IMAGE, np.ptp, (2, 3), mode="nearest", **FILTERS)
sample("ndimage.generic_filter1d", IMAGE, differences, 3, mode="wrap", **FILTERS)
sample("ndimage.vectorized_filter", IMAGE, np.ptp, size=(2, 3), **FILTERS)

SMALL, FAR = IMAGE[:3, :4].copy(), BEYOND[:, :3].copy()
for i, mode in enumerate((*MODES, "grid-constant", "grid-wrap", "grid-mirror")):
    order = 2 + i % 4
    sample("ndimage.map_coordinates", SMALL, FAR, order=order, mode=mode, cval=0.5, smooth=True, tolerance=CLOSE)
    sample("ndimage.spline_filter1d", SMALL, order, 0, mode=mode, smooth=True, tolerance=CLOSE)
    name, args = (("shift", ((0.3, -1.4),)), ("zoom", ((1.6, 0.8),)), ("rotate", (33.0,)),
                  ("affine_transform", (between(-1, 1, 2, 2), np.array([0.53, 0.21]))))[i % 4]
    sample(f"ndimage.{name}", SMALL, *args, order=5 - i % 3, mode=mode, smooth=True, tolerance=CLOSE)
sample("ndimage.affine_transform", SMALL, between(0.5, 1.2, 2), np.array([0.53, 0.21]), order=1, smooth=True,
       tolerance=CLOSE)
sample("ndimage.shift", IMAGE, np.array([0.3, -1.4]), smooth=True, tolerance=CLOSE)
sample("ndimage.shift", IMAGE * (1 + 0.5j), 0.7, smooth=True, tolerance=CLOSE)
sample("ndimage.zoom", IMAGE, 1.5, grid_mode=True, mode="grid-constant", smooth=True, tolerance=CLOSE)
sample("ndimage.spline_filter", IMAGE, smooth=True, tolerance=CLOSE)
sample("ndimage.spline_filter", IMAGE * (1 + 0.5j), 5, complex, smooth=True, tolerance=CLOSE)
sample("ndimage.geometric_transform", IMAGE, lambda place: (place[0] * 0.8 + 0.11, place[1] - 0.3), smooth=True,
       tolerance=CLOSE)

LABELS = np.array([[0, 1, 1, 2, 2], [0, 1, 2, 2, 3], [3, 3, 3, 0, 1], [2, 0, 0, 1, 3]])
for name in ("sum", "sum_labels", "mean", "variance", "standard_deviation", "minimum", "maximum", "median",
             "center_of_mass", "extrema"):
    for more in ((), (LABELS, 2), (LABELS, [1, 3])):
        sample(f"ndimage.{name}", IMAGE + 3, *more, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("ndimage.labeled_comprehension", IMAGE, LABELS, [1, 2], np.mean, float, 0.0, smooth=True, has_shape=False,
       tolerance=ROUNDED)

for image in (IMAGE, IMAGE * (1 + 0.5j)):
    for name in ("fourier_gaussian", "fourier_uniform", "fourier_ellipsoid", "fourier_shift"):
        sample(f"ndimage.{name}", image, (1.3, 2.1), smooth=True, tolerance=ROUNDED)
        sample(f"ndimage.{name}", image, 1.3, 7, smooth=True, tolerance=ROUNDED)
sample("ndimage.fourier_gaussian", IMAGE, np.array([0.6, 0.9]), smooth=True, tolerance=ROUNDED)
sample("ndimage.fourier_shift", IMAGE, np.array([0.6, 0.9]), smooth=True, tolerance=ROUNDED)

for name in ("binary_closing", "binary_dilation", "binary_erosion", "binary_fill_holes", "binary_hit_or_miss",
             "binary_opening", "binary_propagation", "distance_transform_bf", "distance_transform_cdt",
             "distance_transform_edt"):
    sample(f"ndimage.{name}", np.maximum(IMAGE, 0), has_shape=False)
sample("ndimage.label", np.maximum(IMAGE, 0), batches=False, has_shape=False)
sample("ndimage.find_objects", LABELS, batches=False, has_shape=False)
for name in ("maximum_position", "minimum_position"):
    sample(f"ndimage.{name}", IMAGE, LABELS, [1, 3], batches=False, has_shape=False)
sample("ndimage.histogram", IMAGE, -2, 2, 4, has_shape=False)
sample("ndimage.watershed_ift", np.arange(20, dtype=np.uint8).reshape(4, 5), LABELS, has_shape=False)
