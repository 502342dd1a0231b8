"""Foxes and rabbits: an ordinary differential equation, fitted to noisy counts.

    python examples/transforms/ode.py [--plot FILE]

The Lotka-Volterra equations are solved by Runge and Kutta's method, one `scan` over the steps, and the solution is
differentiated with respect to the initial state and the parameters, for Gauss and Newton's method with damping.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from pydispatch import func, ops
from pydispatch.higher_order import scan

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

STEP = 0.1
TRUE_START = np.array([10.0, 5.0])
TRUE_PARAMETERS = np.array([1.1, 0.4, 0.4, 0.1])
NAMES = ("rabbits at first", "foxes at first", "births", "hunted", "deaths", "fed")


def velocity(state: Any, births: Any, hunted: Any, deaths: Any, fed: Any) -> Any:
    """Return the velocity: rabbits are born and hunted, foxes die and are fed."""
    rabbits, foxes = state[0], state[1]
    return ops.np.stack([births * rabbits - hunted * rabbits * foxes, fed * rabbits * foxes - deaths * foxes])


def solve(start: Any, parameters: Any, steps: int) -> Any:
    """Return the states after each step, of shape (steps, 2)."""
    rates = [parameters[i] for i in range(4)]

    def advance(state: Any, _: Any) -> tuple[Any, Any]:
        first = velocity(state, *rates)
        second = velocity(state + STEP / 2 * first, *rates)
        third = velocity(state + STEP / 2 * second, *rates)
        fourth = velocity(state + STEP * third, *rates)
        after = state + STEP / 6 * (first + 2 * second + 2 * third + fourth)
        return after, after

    return scan(advance, start, None, length=steps)[1]


def observe(steps: int, noise: float, seed: int) -> np.ndarray:
    """Return the counts, each off by a few per cent."""
    exact = solve(TRUE_START, TRUE_PARAMETERS, steps)
    return exact * (1 + noise * np.random.default_rng(seed).standard_normal(exact.shape))


def loss(unknowns: Any, counts: np.ndarray) -> Any:
    """Return half the sum of the squared residuals."""
    return (residuals_of(unknowns, counts) ** 2).sum() * 0.5


def residuals_of(unknowns: Any, counts: np.ndarray) -> Any:
    """Return the solution less the counts. The unknowns are the initial state and the parameters."""
    return (solve(unknowns[:2], unknowns[2:], len(counts)) - counts).reshape(-1)


def fit(counts: np.ndarray, guess: np.ndarray, rounds: int = 15) -> tuple[np.ndarray, list[float]]:
    """Return the unknowns with the least squares, and the loss in each round (Levenberg and Marquardt's method)."""
    unknowns, damping, losses = guess, 1.0, [float(loss(guess, counts))]
    for _ in range(rounds):
        matrix, residuals = func.jacfwd(residuals_of)(unknowns, counts), residuals_of(unknowns, counts)
        normal = matrix.T @ matrix
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), matrix.T @ residuals)
        after = float(loss(unknowns - step, counts))
        if after < losses[-1]:
            unknowns, damping = unknowns - step, damping / 5
            losses.append(after)
        else:
            damping *= 5
    return unknowns, losses


def plot(counts: np.ndarray, fitted: np.ndarray, file: Path) -> None:
    """Plot the counts, and the solution that fits them."""
    times = STEP * np.arange(1, len(counts) + 1)
    solution = solve(fitted[:2], fitted[2:], len(counts))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for animal, colour, name in zip((0, 1), ("tab:blue", "tab:red"), ("rabbits", "foxes"), strict=True):
        axes.plot(times, counts[:, animal], ".", color=colour, alpha=0.4)
        axes.plot(times, solution[:, animal], color=colour, label=name)
    axes.set(title="Counts, and the fitted solution", xlabel="time", ylabel="animals")
    axes.legend()
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Fit, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200, help="of a tenth of a time unit each")
    parser.add_argument("--noise", type=float, default=0.05, help="standard deviation, as a share")
    parser.add_argument("--plot", type=Path, default=Path("ode.png"), metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)

    counts = observe(options.steps, options.noise, seed=0)
    guess = np.array([*counts[0], 1.0, 0.3, 0.5, 0.15])
    fitted, losses = fit(counts, guess)
    slopes = func.grad(loss)(fitted, counts)
    print(f"loss {losses[0]:.1f} -> {losses[-1]:.3f} in {len(losses) - 1} steps")
    print(f"{'':18}    true   guess  fitted  gradient of the loss there")
    for name, *values in zip(NAMES, (*TRUE_START, *TRUE_PARAMETERS), guess, fitted, slopes, strict=True):
        print(f"{name:18}" + "".join(f"{value:8.3f}" for value in values[:3]) + f"{values[3]:10.1e}")
    if Figure is not None:
        plot(counts, fitted, options.plot)
        print(f"picture: {options.plot}")


if __name__ == "__main__":
    main()
