"""A blurred image, sharpened by least squares: the deconvolution of an image by Fourier transforms.

    python examples/mathematics/deconvolution.py [--plot FILE]

Its convolution with the blur has to come close to what was observed, and differences of neighbours are penalized: their
squares, or about their absolute values, which keeps edges (total variation, Rudin, Osher and Fatemi, 1992). L-BFGS
follows the gradient of `fftconvolve`. The independent check is LSQR, for the squares, with SciPy's convolutions alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
import scipy.signal
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, lsqr

import pydispatch
import pydispatch.numpy as np
from pydispatch import func
from pydispatch.scipy import signal

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot
try:
    from tqdm import tqdm
except ImportError:
    def tqdm(iterable: Any, *_: Any, **__: Any) -> Any:
        return iterable     # no progress bar

NOISE, STEPS = 0.02, 300            # of the observation, and at most of the methods
SQUARES, EDGES, ROUNDED = 0.02, 0.004, 0.01     # weights of the penalties, and where edges begin


def scene(size: int) -> numpy.ndarray:
    """Draw a disc, a ring and a bar on a dark ground."""
    down, right = numpy.mgrid[-1:1:size * 1j, -1:1:size * 1j]
    disc, ring = numpy.hypot(down + 0.35, right + 0.35) < 0.35, abs(numpy.hypot(down - 0.3, right - 0.3) - 0.4) < 0.08
    return 0.9 * disc + 0.7 * ring + 0.5 * ((abs(down - 0.7) < 0.06) & (right < 0))


def blur(width: int) -> numpy.ndarray:
    """Return the blur of a point: a streak along the diagonal, as by a moving camera, out of focus."""
    down, right = numpy.mgrid[-width:width + 1, -width:width + 1]
    found = numpy.exp(-(down - right) ** 2 / 2 - (down + right) ** 2 / (2 * width ** 2))
    return found / found.sum()


def observe(image: numpy.ndarray, kernel: numpy.ndarray) -> numpy.ndarray:
    """Return the image blurred, with noise."""
    found = scipy.signal.convolve(image, kernel)
    return found + NOISE * numpy.random.default_rng(0).standard_normal(found.shape)


def objective(pixels: Any, observed: Any, kernel: Any, keeps_edges: bool) -> Any:
    """Return half the squared distance from what was observed, and the penalty."""
    image = pixels.reshape(len(observed) - len(kernel) + 1, -1)
    total = ((signal.fftconvolve(image, kernel) - observed) ** 2).sum() / 2
    for apart in (image[1:] - image[:-1], image[:, 1:] - image[:, :-1]):
        total = total + (EDGES * np.sqrt(apart ** 2 + ROUNDED ** 2) if keeps_edges else SQUARES / 2 * apart ** 2).sum()
    return total


def sharpen(observed: numpy.ndarray, kernel: numpy.ndarray, keeps_edges: bool) -> numpy.ndarray:
    """Return the image of the least objective, from a dark one on."""
    n = len(observed) - len(kernel) + 1
    slope = pydispatch.compile(func.value_and_grad(lambda x: objective(x, observed, kernel, keeps_edges)))
    ticks = iter(tqdm(range(STEPS), "edges" if keeps_edges else "squares", unit="step"))
    next(ticks)         # a step is counted when the next one begins
    return minimize(slope, numpy.zeros(n * n), jac=True, method="L-BFGS-B", callback=lambda _: next(ticks, None),
                    options={"maxiter": STEPS, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-7}).x.reshape(n, n)


def by_lsqr(observed: numpy.ndarray, kernel: numpy.ndarray) -> numpy.ndarray:
    """Return the image of the least squares, without gradients: the operator and its transpose, written by hand."""
    n = len(observed) - len(kernel) + 1
    apart = SQUARES ** 0.5 * numpy.diff(numpy.eye(n), axis=0)

    def forwards(x: numpy.ndarray) -> numpy.ndarray:
        x = x.reshape(n, n)
        return numpy.concatenate([scipy.signal.convolve(x, kernel), apart @ x, x @ apart.T], axis=None)

    def backwards(y: numpy.ndarray) -> numpy.ndarray:
        first, down, right = numpy.split(y, [observed.size, observed.size + n * (n - 1)])
        found = scipy.signal.correlate(first.reshape(observed.shape), kernel, "valid")
        return (found + apart.T @ down.reshape(n - 1, n) + right.reshape(n, n - 1) @ apart).ravel()

    wanted = numpy.concatenate([observed.ravel(), numpy.zeros(2 * n * (n - 1))])
    whole = LinearOperator((wanted.size, n * n), matvec=forwards, rmatvec=backwards, dtype=float)
    return lsqr(whole, wanted, atol=1e-12, btol=1e-12, iter_lim=STEPS)[0].reshape(n, n)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=96, help="of the image, in pixels")
    parser.add_argument("--plot", type=Path, default=Path("deconvolution.png"), metavar="FILE")
    options = parser.parse_args(words)
    image, kernel = scene(options.size), blur(width := options.size // 16)
    observed = observe(image, kernel)
    found = {"observed": observed[width:-width, width:-width]}
    found |= {name: sharpen(observed, kernel, name == "edges") for name in ("squares", "edges")}
    for name, picture in found.items():
        print(f"{name:24} {numpy.sqrt(((picture - image) ** 2).mean()):9.5f}  away from the scene")
    print(f"{'squares, less LSQR':24} {abs(found['squares'] - by_lsqr(observed, kernel)).max():9.5f}  at most")
    if Figure is not None:
        figure = Figure(figsize=(11, 3), layout="constrained")
        for axes, title in zip(figure.subplots(1, 4), ("scene", *found), strict=True):
            axes.imshow(found.get(title, image), cmap="gray", vmin=0, vmax=1)
            axes.set(title=title, xticks=[], yticks=[])
        figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
