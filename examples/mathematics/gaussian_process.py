"""Gaussian process regression: the marginal likelihood, its gradient, and the hyperparameters that maximize it.

    python examples/mathematics/gaussian_process.py [--plot FILE]

The negative log marginal likelihood is written with NumPy's functions (Rasmussen and Williams, "Gaussian Processes for
Machine Learning", 2006, equation 5.8). Its gradient is compiled once, and SciPy's BFGS follows it. The independent
check is scikit-learn's regressor with the same kernel, where that is installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
from scipy.optimize import OptimizeResult, minimize

import pydispatch
import pydispatch.numpy as np
from pydispatch import func

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot
try:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
except ImportError:
    GaussianProcessRegressor = None     # no check

NAMES = ("amplitude", "length", "noise")


def observe(count: int, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return points, and a curve there with noise of standard deviation 0.2."""
    random = numpy.random.default_rng(seed)
    x = numpy.sort(random.uniform(0, 10, count))
    return x, numpy.sin(x) + 0.3 * x + 0.2 * random.standard_normal(count)


def covariance(hyperparameters: Any, left: Any, right: Any) -> Any:
    """Compute the covariance of the curve at two sets of points: amplitude^2 exp(-distance^2 / (2 length^2))."""
    amplitude, length = np.exp(hyperparameters[0]), np.exp(hyperparameters[1])
    return amplitude ** 2 * np.exp(-0.5 * ((left[:, None] - right) / length) ** 2)


def negative_log_likelihood(hyperparameters: Any, x: Any, y: Any) -> Any:
    """Compute -log p(y | x), the curve integrated out. Every term comes from one Cholesky factor."""
    n = len(y)
    noise = np.exp(2 * hyperparameters[2]) + 1e-10
    factor = np.linalg.cholesky(covariance(hyperparameters, x, x) + noise * np.eye(n))
    whitened = np.linalg.solve(factor, y)
    return 0.5 * whitened @ whitened + np.log(np.diagonal(factor)).sum() + 0.5 * n * np.log(2 * np.pi)


def fit(x: numpy.ndarray, y: numpy.ndarray) -> OptimizeResult:
    """Return the logarithms of the hyperparameters of the greatest likelihood."""
    objective = pydispatch.compile(func.value_and_grad(negative_log_likelihood))
    return minimize(objective, numpy.array([0.0, 0.0, -1.0]), (x, y), jac=True, method="BFGS")


def posterior(hyperparameters: Any, x: Any, y: Any, points: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of the curve at these points, given what was observed."""
    across = covariance(hyperparameters, points, x)
    observed = covariance(hyperparameters, x, x) + np.exp(2 * hyperparameters[2]) * np.eye(len(y))
    weights = np.linalg.solve(observed, np.concatenate([y[:, None], across.T], axis=1))
    variance = np.exp(2 * hyperparameters[0]) - (across * weights[:, 1:].T).sum(axis=1)
    return across @ weights[:, 0], np.sqrt(np.maximum(variance, 0))


def by_scikit_learn(hyperparameters: numpy.ndarray, x: numpy.ndarray, y: numpy.ndarray) -> float:
    """Return the log marginal likelihood at the same hyperparameters."""
    amplitude, length, noise = numpy.exp(hyperparameters)
    kernel = ConstantKernel(amplitude ** 2) * RBF(length) + WhiteKernel(noise ** 2)
    return GaussianProcessRegressor(kernel, optimizer=None).fit(x[:, None], y).log_marginal_likelihood_value_


def plot(hyperparameters: numpy.ndarray, x: numpy.ndarray, y: numpy.ndarray, file: Path) -> None:
    """Plot the observations, and the curve with two standard deviations to each side."""
    points = numpy.linspace(-1, 12, 300)
    mean, deviation = posterior(hyperparameters, x, y, points)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(points, mean - 2 * deviation, mean + 2 * deviation, alpha=0.2, label="two deviations")
    axes.plot(points, mean, label="mean")
    axes.plot(x, y, ".k", label="observed")
    axes.set(title="Gaussian process of the greatest likelihood", xlabel="x", ylabel="y")
    axes.legend()
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Fit, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="of observations")
    parser.add_argument("--plot", type=Path, default=Path("gaussian_process.png"), metavar="FILE")
    options = parser.parse_args(words)
    x, y = observe(options.count)
    found = fit(x, y)
    for name, value in zip(NAMES, numpy.exp(found.x), strict=True):
        print(f"{name:28} {value:9.4f}")
    print(f"{'log marginal likelihood':28} {-found.fun:9.4f}  after {found.nfev} evaluations")
    if GaussianProcessRegressor is not None:
        print(f"{'the same by scikit-learn':28} {by_scikit_learn(found.x, x, y):9.4f}")
    if Figure is not None:
        plot(found.x, x, y, options.plot)


if __name__ == "__main__":
    main()
