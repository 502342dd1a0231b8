"""Two images of one scene laid on each other: the gradient of an interpolation in an affine map.

    python examples/mathematics/registration.py [--plot FILE]

The second image is turned, stretched and moved, and has noise. L-BFGS finds the map for which the squared differences
are least, from blurred images first, so that it does not stop at details. The independent check is Powell's method,
which needs no gradients, with SciPy's functions alone, from the map of the most blurred images on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
import scipy.ndimage
from scipy.optimize import minimize

import pydispatch
from pydispatch import func
from pydispatch.scipy import ndimage

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

NOISE, MARGIN = 0.02, 6         # of an image, and the part of it at each side, one in so many, that is not compared
TRUE = numpy.array([0.93, 0.21, -0.16, 1.06, 0.04, -0.03])      # a matrix, and a shift as a part of the size


def scene(size: int) -> numpy.ndarray:
    """Draw a few spots."""
    down, right = numpy.mgrid[-1:1:size * 1j, -1:1:size * 1j]
    spots = numpy.random.default_rng(1).uniform(-0.8, 0.8, (14, 2))
    return sum(numpy.exp(-((down - y) ** 2 + (right - x) ** 2) * 25 * (1 + i % 3)) for i, (y, x) in enumerate(spots))


def laid(library: Any, image: Any, unknowns: Any) -> Any:
    """Return the image after an affine map about its centre, with the interpolation of this library."""
    size = image.shape[0]
    matrix, shift, centre = unknowns[:4].reshape(2, 2), unknowns[4:] * size, numpy.full(2, (size - 1) / 2)
    return library.affine_transform(image, matrix, centre - matrix @ centre + shift, order=3, mode="nearest")


def difference(library: Any, unknowns: Any, image: Any, target: Any) -> Any:
    """Return the mean squared difference of an image that is laid on another, away from their sides."""
    inside = (slice(len(image) // MARGIN, -(len(image) // MARGIN)),) * 2
    return ((laid(library, image, unknowns)[inside] - target[inside]) ** 2).mean()


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=64, help="of the images, in pixels")
    parser.add_argument("--plot", type=Path, default=Path("registration.png"), metavar="FILE")
    options = parser.parse_args(words)
    image = scene(options.size)
    target = laid(scipy.ndimage, image, TRUE)
    target += NOISE * numpy.random.default_rng(0).standard_normal(target.shape)
    start = numpy.array([1.0, 0, 0, 1, 0, 0])
    slope = pydispatch.compile(func.value_and_grad(lambda *args: difference(ndimage, *args)))
    steps = [start]
    for width in (options.size / 20, options.size / 60, 0):
        pair = [scipy.ndimage.gaussian_filter(each, width) for each in (image, target)]
        steps.append(minimize(slope, steps[-1], tuple(pair), jac=True, method="L-BFGS-B",
                              options={"ftol": 1e-14, "gtol": 1e-10}).x)
    found = steps[-1]
    powell = minimize(lambda x: difference(scipy.ndimage, x, image, target), steps[1], method="Powell",
                      options={"xtol": 1e-7, "ftol": 1e-12}).x
    print(f"{'':24} {'matrix':>9}{'':30} shift")
    for name, unknowns in (("true", TRUE), ("found", found), ("Powell's method", powell)):
        print(f"{name:24}", *[f"{x:9.5f}" for x in unknowns])
    print(f"{'less Powell, at most':24} {abs(found - powell).max():9.5f}")
    if Figure is not None:
        figure = Figure(figsize=(11, 3), layout="constrained")
        pictures = {"image": image, "target": target, "difference at first": laid(scipy.ndimage, image, start) - target,
                    "difference": laid(scipy.ndimage, image, found) - target}
        for axes, (title, picture) in zip(figure.subplots(1, 4), pictures.items(), strict=True):
            axes.imshow(picture, cmap="gray", vmin=-1 if "difference" in title else 0, vmax=1)
            axes.set(title=title, xticks=[], yticks=[])
        figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
