"""A Kalman filter, fitted by maximum likelihood.

    python examples/mathematics/kalman.py [--plot FILE]

A series is a level that drifts, with a slope that drifts too, seen through noise (a local linear trend). The filter is
one `scan` over the series, so its likelihood has a gradient in the three standard deviations. BFGS maximizes it. The
independent check is the density of the whole series as one normal vector, by SciPy.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
from scipy.optimize import OptimizeResult, minimize
from scipy.stats import multivariate_normal

import pydispatch
import pydispatch.numpy as np
from pydispatch import func
from pydispatch.higher_order import scan

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

TRUE_DEVIATIONS = numpy.array([0.5, 0.05, 1.0])
NAMES = ("of the level", "of the slope", "of the noise")
TRANSITION = numpy.array([[1.0, 1.0], [0.0, 1.0]])      # the level moves by the slope
FIRST_VARIANCE = 100.0                                  # of level and slope before the series begins


def observe(length: int, seed: int = 0) -> numpy.ndarray:
    """Draw a series from the model."""
    random = numpy.random.default_rng(seed)
    state, series = numpy.array([0.0, 0.1]), []
    for _ in range(length):
        state = TRANSITION @ state + TRUE_DEVIATIONS[:2] * random.standard_normal(2)
        series.append(state[0] + TRUE_DEVIATIONS[2] * random.standard_normal())
    return numpy.array(series)


def filtered(logarithms: Any, series: Any) -> tuple[Any, Any]:
    """Return the log-density of each observation given those before, and the mean of the level after each."""
    variances = np.exp(2 * logarithms)
    drift = np.stack([variances[0], np.zeros(()), np.zeros(()), variances[1]]).reshape(2, 2)

    def advance(carry: Any, observed: Any) -> tuple[Any, Any]:
        mean, covariance = carry
        mean, covariance = TRANSITION @ mean, TRANSITION @ covariance @ TRANSITION.T + drift
        variance = covariance[0, 0] + variances[2]
        surprise = observed - mean[0]
        gain = covariance[:, 0] / variance
        mean = mean + gain * surprise
        covariance = covariance - gain[:, None] * covariance[0]
        log_density = -0.5 * (np.log(2 * np.pi * variance) + surprise ** 2 / variance)
        return (mean, covariance), (log_density, mean[0])

    return scan(advance, (numpy.zeros(2), FIRST_VARIANCE * numpy.eye(2)), series)[1]


def negative_log_likelihood(logarithms: Any, series: Any) -> Any:
    """Compute -log p(series), for the logarithms of the standard deviations."""
    return -filtered(logarithms, series)[0].sum()


def fit(series: numpy.ndarray) -> OptimizeResult:
    """Return the logarithms of the standard deviations of the greatest likelihood."""
    objective = pydispatch.compile(func.value_and_grad(negative_log_likelihood))
    return minimize(objective, numpy.full(3, -1.0), (series,), jac=True, method="BFGS")


def density_of_the_whole(logarithms: numpy.ndarray, series: numpy.ndarray) -> float:
    """Compute the same log-likelihood without a filter: the covariance of all observations, and their joint density."""
    variances = numpy.exp(2 * logarithms)
    n = len(series)
    powers = [numpy.linalg.matrix_power(TRANSITION, k) for k in range(n + 1)]
    reach = numpy.array([[power[0] for power in powers[i::-1]] + [numpy.zeros(2)] * (n - 1 - i) for i in range(n)])
    of_start = numpy.array([power[0] for power in powers[1:]])
    covariance = (FIRST_VARIANCE * of_start @ of_start.T + variances[2] * numpy.eye(n)
                  + numpy.einsum("ikd,jkd,d->ij", reach, reach, variances[:2]))
    return float(multivariate_normal.logpdf(series, numpy.zeros(n), covariance))


def plot(series: numpy.ndarray, level: numpy.ndarray, file: Path) -> None:
    """Plot the series, and the level that the filter sees in it."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(series, ".k", alpha=0.4, label="observed")
    axes.plot(level, label="level, filtered")
    axes.set(title="Local linear trend of the greatest likelihood", xlabel="step", ylabel="value")
    axes.legend()
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Fit, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=300, help="of the series")
    parser.add_argument("--plot", type=Path, default=Path("kalman.png"), metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)
    series = observe(options.length)
    found = fit(series)
    print(f"{'standard deviation':24} {'true':>8} {'fitted':>8}")
    for name, true, fitted in zip(NAMES, TRUE_DEVIATIONS, numpy.exp(found.x), strict=True):
        print(f"{name:24} {true:8.3f} {fitted:8.3f}")
    print(f"{'log-likelihood':24} {-found.fun:17.6f}  after {found.nfev} evaluations")
    print(f"{'of the whole at once':24} {density_of_the_whole(found.x, series):17.6f}")
    if Figure is not None:
        plot(series, filtered(found.x, series)[1], options.plot)


if __name__ == "__main__":
    main()
