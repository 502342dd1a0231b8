"""A thousand epidemics: `vmap` over a custom operator that simulates one.

    python examples/transforms/simulation.py [--plot FILE]

The kernel is a loop over days on plain numbers, as one has it from a C library. Nothing can look into it. `vmap` calls
it once for each example, with a PerformanceWarning that says so. Then the operator is given a batching rule.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from pydispatch import Tensor, func, ops
from pydispatch.exceptions import PerformanceWarning
from pydispatch.library import custom_op

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

FIRST = 0.01        # the share of people who are ill on the first day
NOISE = 0.2


@custom_op("epidemic::simulate", mutates_args=())
def simulate(rates: Tensor, weather: Tensor) -> Tensor:
    """Return the share of people who are ill, day by day.

    The rates are those of infection and of recovery. The weather is a number for each day, which changes the first.
    """
    infection, recovery = map(float, rates)
    healthy, ill = 1 - FIRST, FIRST
    result = np.empty(len(weather))
    for day, change in enumerate(weather.tolist()):
        infected = min(max(infection * (1 + NOISE * change) * healthy * ill, 0.0), healthy)
        healthy, ill = healthy - infected, ill + infected - recovery * ill
        result[day] = ill
    return result


@custom_op("epidemic::simulate_all", mutates_args=())
def simulate_all(rates: Tensor, weather: Tensor) -> Tensor:
    """Simulate many epidemics, each day for all of them at once."""
    infection, recovery = rates.T
    healthy, ill = np.full(len(rates), 1 - FIRST), np.full(len(rates), FIRST)
    result = np.empty(weather.shape)
    for day, change in enumerate(weather.T):
        infected = np.minimum(np.maximum(infection * (1 + NOISE * change) * healthy * ill, 0.0), healthy)
        healthy, ill = healthy - infected, ill + infected - recovery * ill
        result[:, day] = ill
    return result


def rule(info, in_dims, rates, weather):
    """Repeat the arguments that all epidemics share."""
    each = (
        value if axis == 0 else ops.np.broadcast_to(value, (info.batch_size, *value.shape))
        for axis, value in zip(in_dims, (rates, weather), strict=True)
    )
    return simulate_all(*each), 0


def ensemble(count: int, days: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw rates and weather of so many epidemics."""
    random = np.random.default_rng(seed)
    return random.uniform((0.2, 0.08), (0.6, 0.15), (count, 2)), random.standard_normal((count, days))


def timed(call: Any, *args: Any) -> tuple[Any, float]:
    """Return the result of a call, and the milliseconds that it took."""
    start = time.perf_counter()
    return call(*args), 1e3 * (time.perf_counter() - start)


def plot(shares: np.ndarray, file: Path) -> None:
    """Plot the quantiles of the ensemble, and a few epidemics."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for low, high in ((0.05, 0.95), (0.25, 0.75)):
        axes.fill_between(range(shares.shape[1]), *np.quantile(shares, (low, high), axis=0), color="tab:red", alpha=0.2)
    axes.plot(shares[:5].T, color="0.5", linewidth=0.7)
    axes.plot(np.median(shares, axis=0), color="tab:red")
    axes.set(title=f"{len(shares):,} epidemics: median, quartiles, 5 to 95 %", xlabel="day", ylabel="share ill")
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Simulate them all in both ways."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="epidemics")
    parser.add_argument("--days", type=int, default=120, help="days of each")
    parser.add_argument("--plot", type=Path, default=Path("simulation.png"), metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)

    rates, weather = ensemble(options.count, options.days)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PerformanceWarning)
        one_by_one, slow = timed(func.vmap(simulate), rates, weather)
    print(f"{caught[0].category.__name__}: {caught[0].message}\n")

    simulate.register_vmap(rule)
    together, fast = timed(func.vmap(simulate), rates, weather)
    print(f"{options.count} times {options.days} days   milliseconds")
    print(f"one by one        {slow:13.1f}\nby the rule       {fast:13.1f}   {slow / fast:.0f} times as fast")
    print(f"largest difference {np.abs(together - one_by_one).max():.1e}")
    print(f"medians of the peaks: {np.median(together.max(1)):.1%} ill, day {np.median(together.argmax(1)):.0f}")
    if Figure is not None:
        plot(together, options.plot)
        print(f"picture: {options.plot}")


if __name__ == "__main__":
    main()
