"""Bayesian logistic regression, sampled by Hamiltonian Monte Carlo.

    python examples/mathematics/hamiltonian_monte_carlo.py [--plot FILE]

A transition of a chain is one function: leapfrog steps along the gradient of the log-posterior, then acceptance by
Metropolis (Neal, "MCMC using Hamiltonian dynamics", 2011). `vmap` runs it for all chains, `compile` makes a plan of it.
The independent check is the posterior on a grid, summed by plain NumPy.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy

import pydispatch
import pydispatch.numpy as np
from pydispatch import func
from pydispatch.higher_order import scan

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot
try:
    from tqdm import tqdm
except ImportError:
    def tqdm(iterable: Any, *_: Any, **__: Any) -> Any:
        return iterable     # no progress bar

TRUE_WEIGHTS = numpy.array([-0.5, 1.5])
LEAPFROGS, STEP = 6, 0.1        # about a quarter of an oscillation


def observe(count: int, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Draw rows of (1, x), and outcomes: 1 with probability 1 / (1 + exp(-row . weights))."""
    random = numpy.random.default_rng(seed)
    rows = numpy.stack([numpy.ones(count), random.standard_normal(count)], axis=1)
    return rows, (random.uniform(size=count) < 1 / (1 + numpy.exp(-rows @ TRUE_WEIGHTS))).astype(float)


def log_posterior(weights: Any, rows: Any, happened: Any) -> Any:
    """Compute the log posterior up to a constant: the likelihood, and a normal prior of variance 4 for each weight."""
    scores = rows @ weights
    return (happened * scores - np.logaddexp(0.0, scores)).sum() - (weights ** 2).sum() / 8


def transition(weights: Any, momentum: Any, threshold: Any, rows: Any, happened: Any) -> tuple[Any, Any]:
    """Return the next weights of a chain, and whether they are new: Newton's equations for a while, then a test."""
    def slope(position: Any) -> Any:
        return func.grad(log_posterior)(position, rows, happened)

    def leap(carry: Any, _: Any) -> tuple[Any, Any]:
        position, speed = carry
        position = position + STEP * speed
        return (position, speed + STEP * slope(position)), None

    half = momentum + STEP / 2 * slope(weights)
    (end, speed), _ = scan(leap, (weights, half), None, length=LEAPFROGS)
    speed = speed - STEP / 2 * slope(end)       # the last of the steps was a whole one
    gain = log_posterior(end, rows, happened) - log_posterior(weights, rows, happened)
    gain = gain + ((momentum ** 2).sum() - (speed ** 2).sum()) / 2
    accepted = np.log(threshold) < gain
    return np.where(accepted, end, weights), accepted


def sample(rows: numpy.ndarray, happened: numpy.ndarray, chains: int, length: int,
           seed: int = 1) -> tuple[numpy.ndarray, float]:
    """Draw weights of shape (4/5 length, chains, 2), after a warm-up. Return also the share of accepted steps."""
    random = numpy.random.default_rng(seed)
    move = pydispatch.compile(func.vmap(transition, in_dims=(0, 0, 0, None, None)))
    weights, kept, accepted = random.standard_normal((chains, 2)), [], 0.0
    for _ in tqdm(range(length), "sampling", unit="step"):
        momenta, thresholds = random.standard_normal((chains, 2)), random.uniform(size=chains)
        weights, are_new = move(weights, momenta, thresholds, rows, happened)
        kept.append(weights)
        accepted += are_new.mean() / length
    return numpy.stack(kept[length // 5:]), accepted


def on_a_grid(rows: numpy.ndarray, happened: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Mean and standard deviation of the posterior, by plain NumPy on 301 x 301 points."""
    axis = numpy.linspace(-4, 4, 301)
    points = numpy.stack(numpy.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    scores = points @ rows.T
    logs = (happened * scores - numpy.logaddexp(0, scores)).sum(1) - (points ** 2).sum(1) / 8
    shares = numpy.exp(logs - logs.max())
    shares /= shares.sum()
    return shares @ points, numpy.sqrt(shares @ (points - shares @ points) ** 2)


def main(words: list[str] | None = None) -> None:
    """Sample, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chains", type=int, default=100, help="how many")
    parser.add_argument("--length", type=int, default=500, help="of each chain")
    parser.add_argument("--plot", type=Path, default=Path("hamiltonian_monte_carlo.png"), metavar="FILE")
    options = parser.parse_args(words)
    rows, happened = observe(100)
    weights, accepted = sample(rows, happened, options.chains, options.length)
    mean, deviation = on_a_grid(rows, happened)
    print(f"{accepted:.0%} of {options.chains * options.length} steps accepted")
    print(f"{'weight':10} {'true':>8} {'mean':>8} {'on a grid':>10} {'deviation':>10} {'on a grid':>10}")
    for i, name in enumerate(("constant", "slope")):
        print(f"{name:10} {TRUE_WEIGHTS[i]:8.3f} {weights[..., i].mean():8.3f} {mean[i]:10.3f} "
              f"{weights[..., i].std():10.3f} {deviation[i]:10.3f}")
    if Figure is not None:
        figure = Figure(figsize=(6, 5), layout="constrained")
        axes = figure.subplots()
        axes.hexbin(*weights.reshape(-1, 2).T, gridsize=60, cmap="Blues", mincnt=1)
        axes.plot(*mean, "+k", markersize=12, label="mean on a grid")
        axes.set(title="Posterior of the weights", xlabel="constant", ylabel="slope")
        axes.legend()
        figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
