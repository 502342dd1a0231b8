"""A camera, calibrated on one photograph of a known board.

    python examples/mathematics/camera_calibration.py [--plot FILE]

The photograph should be the board, seen at coordinates that follow from the camera: turned, scaled, shifted, and bent
by the lens (Brown's radial distortion). `map_coordinates` has gradients in the coordinates, so the residuals have a
Jacobian in the camera's parameters, and least squares fits them. Both images are blurred first: then a first guess that
is a few pixels off is good enough. The independent check is SciPy alone, with finite differences.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
import scipy.ndimage
from scipy.optimize import OptimizeResult, least_squares

import pydispatch
import pydispatch.numpy as np
from pydispatch import func
from pydispatch.scipy import ndimage

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

NAMES = ("zoom", "turn", "down", "right", "distortion")
TRUE_CAMERA = numpy.array([0.82, 0.15, 3.0, -2.0, -0.12])
FIRST_GUESS = numpy.array([0.9, 0.1, 0.0, 0.0, 0.0])
BLUR = 2.0              # pixels
SQUARE = 16             # pixels of the board's image


def board(rows: Any, columns: Any) -> Any:
    """Return the brightness of a chessboard with soft edges, one square of which is marked, at places on it."""
    squares = numpy.tanh(4 * numpy.sin(numpy.pi * rows / SQUARE) * numpy.sin(numpy.pi * columns / SQUARE))
    mark = numpy.exp(-((rows - 1.5 * SQUARE) ** 2 + (columns - 0.5 * SQUARE) ** 2) / 40)
    return 0.5 + 0.4 * squares + 0.5 * mark


def pixels(size: int) -> numpy.ndarray:
    """Return rows and columns of an image, from its middle."""
    return numpy.stack(numpy.meshgrid(*[numpy.arange(size) - (size - 1) / 2] * 2, indexing="ij"))


def seen(camera: Any, places: Any) -> Any:
    """Return where on the board the pixels of a photograph look, from its middle."""
    half = places.shape[1] / 2
    bent = places * (1 + camera[4] * ((places / half) ** 2).sum(axis=0))
    sine, cosine = np.sin(camera[1]), np.cos(camera[1])
    down, right = cosine * bent[0] - sine * bent[1], sine * bent[0] + cosine * bent[1]
    return np.stack([camera[0] * down + camera[2], camera[0] * right + camera[3]])


def photograph(size: int, seed: int = 0) -> numpy.ndarray:
    """Return the image that the true camera sees of the board itself, with noise."""
    noise = 0.05 * numpy.random.default_rng(seed).standard_normal((size, size))
    return board(*seen(TRUE_CAMERA, pixels(size))) + noise


def residuals(camera: Any, photo: Any, image: Any) -> Any:
    """Return the photograph that this camera should have taken, less the one that there is."""
    places = seen(camera, pixels(photo.shape[0])) + (image.shape[0] - 1) / 2
    expected = ndimage.map_coordinates(image, places, order=1, mode="nearest")
    return (expected - photo).reshape(-1)


def fit(photo: numpy.ndarray, image: numpy.ndarray) -> OptimizeResult:
    """Return the camera of the least squares, by the compiled Jacobian."""
    jacobian = pydispatch.compile(func.jacfwd(residuals))
    return least_squares(residuals, FIRST_GUESS, jacobian, args=(photo, image))


def fit_by_scipy(photo: numpy.ndarray, image: numpy.ndarray) -> OptimizeResult:
    """Fit the same camera without gradients."""
    def apart(camera: numpy.ndarray) -> numpy.ndarray:
        places = seen(camera, pixels(len(photo))) + (len(image) - 1) / 2
        return (scipy.ndimage.map_coordinates(image, places, order=1, mode="nearest") - photo).ravel()

    return least_squares(apart, FIRST_GUESS)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=128, help="of the photograph, in pixels")
    parser.add_argument("--plot", type=Path, default=Path("camera_calibration.png"), metavar="FILE")
    options = parser.parse_args(words)
    photo = photograph(options.size)
    image = board(*pixels(options.size + 40))
    blurred = [ndimage.gaussian_filter(picture, width) for picture, width in (
        (photo, BLUR), (image, BLUR * TRUE_CAMERA[0]))]
    found, expected = fit(*blurred), fit_by_scipy(*blurred)
    print(f"{'camera':12} {'true':>9} {'guess':>9} {'fitted':>9} {'by SciPy':>9}")
    for i, name in enumerate(NAMES):
        print(f"{name:12} {TRUE_CAMERA[i]:9.4f} {FIRST_GUESS[i]:9.4f} {found.x[i]:9.4f} {expected.x[i]:9.4f}")
    print(f"{'photographs':12} {'':>9} {'':>9} {found.nfev + found.njev:9d} {expected.nfev * 6:9d}")
    if Figure is not None:
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        shown = {"photograph": photo, "less the first guess": residuals(FIRST_GUESS, photo, image).reshape(photo.shape),
                 "less the fit": residuals(found.x, photo, image).reshape(photo.shape)}
        for axes, (title, picture) in zip(figure.subplots(1, 3), shown.items(), strict=True):
            axes.imshow(picture, cmap="gray", vmin=0 if title == "photograph" else -1, vmax=1)
            axes.set(title=title, xticks=[], yticks=[])
        figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
