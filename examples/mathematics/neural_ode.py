"""A neural ODE, fitted to a spiral by the adjoint equation.

    python examples/mathematics/neural_ode.py [--plot FILE]

A network of one hidden layer is the right-hand side of a differential equation (Chen et al., "Neural ordinary
differential equations", 2018). `odeint` follows pieces of a spiral, one example of a `vmap` each. The gradient of the
misfit solves the adjoint equation, is compiled, and L-BFGS moves the weights. The independent check is SciPy's LSODA,
which follows the network's field from the first point on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
from scipy.integrate import odeint as lsoda
from scipy.optimize import OptimizeResult, minimize

import pydispatch
import pydispatch.numpy as np
from pydispatch import func
from pydispatch.scipy.integrate import odeint

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot
try:
    from tqdm import tqdm
except ImportError:
    def tqdm(iterable: Any, *_: Any, **__: Any) -> Any:
        return iterable     # no progress bar

SPIRAL = numpy.array([[-0.1, 2.0], [-2.0, -0.1]])
TIMES = numpy.linspace(0.0, 10.0, 401)
START = numpy.array([2.0, 0.0])
PIECE = numpy.arange(0, 40, 5)       # which points a piece has
N_PIECES, HIDDEN = 24, 32
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def true_path() -> numpy.ndarray:
    """Return the spiral: the rate is linear in the cubes of the coordinates."""
    return lsoda(lambda y, t: y ** 3 @ SPIRAL, START, TIMES, rtol=1e-10, atol=1e-10)


def first_weights(seed: int = 0) -> numpy.ndarray:
    """Return a network with a field of about zero."""
    return 0.1 * numpy.random.default_rng(seed).standard_normal(5 * HIDDEN)


def field(y: Any, t: Any, weights: Any) -> Any:
    """Compute the right-hand side."""
    into, shift, out = weights[:2 * HIDDEN], weights[2 * HIDDEN:3 * HIDDEN], weights[3 * HIDDEN:]
    return np.tanh(y ** 3 @ into.reshape(2, HIDDEN) + shift) @ out.reshape(HIDDEN, 2)


def misfit(weights: Any, pieces: Any) -> Any:
    """Return the mean square distance from the pieces of the path, each followed from its start."""
    def follow(start: Any) -> Any:
        return odeint(field, start, TIMES[PIECE], (weights,), **TOLERANCE)

    return ((func.vmap(follow)(pieces[:, 0]) - pieces) ** 2).mean()


def pieces_of(path: numpy.ndarray) -> numpy.ndarray:
    """Return pieces of the path, closer together at its start, where it is fast: a row of points each."""
    firsts = ((len(path) - PIECE[-1] - 1) * numpy.linspace(0, 1, N_PIECES) ** 2).astype(int)
    return path[firsts[:, None] + PIECE]


def fit(pieces: numpy.ndarray, n_steps: int) -> tuple[numpy.ndarray, list[float]]:
    """Return the weights after so many steps of L-BFGS, and the misfits on the way."""
    gradient, misfits = pydispatch.compile(func.value_and_grad(misfit)), []
    bar = iter(tqdm(range(n_steps), "fitting", unit="step"))

    def note(intermediate_result: OptimizeResult) -> None:
        misfits.append(float(intermediate_result.fun))
        next(bar, None)

    found = minimize(gradient, first_weights(), (pieces,), jac=True, method="L-BFGS-B", callback=note,
                     options={"maxiter": n_steps})
    next(bar, None)     # counts the last step
    return found.x, misfits


def plot(path: numpy.ndarray, learned: numpy.ndarray, misfits: list[float], file: Path) -> None:
    """Plot the spiral, the network's path, and the misfits."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(*path.T, ".k", markersize=2, label="spiral")
    left.plot(*learned.T, label="neural ODE, from its first point")
    figure.legend(loc="outside lower left", ncols=2)
    right.semilogy(misfits)
    right.set(title="Misfit of the pieces", xlabel="step")
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Fit, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200, help="of L-BFGS")
    parser.add_argument("--plot", type=Path, default=Path("neural_ode.png"), metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)
    path = true_path()
    weights, misfits = fit(pieces_of(path), options.steps)
    learned = odeint(field, START, TIMES, (weights,))
    by_lsoda = lsoda(lambda y, t: field(y, t, weights), START, TIMES, rtol=1e-9, atol=1e-9)
    print(f"{'misfit after the first step, the last':40} {misfits[0]:10.2e} {misfits[-1]:10.2e}")
    print(f"{'distance from the spiral, mean':40} {numpy.linalg.norm(learned - path, axis=1).mean():10.2e}")
    print(f"{'distance from LSODA, largest':40} {numpy.abs(learned - by_lsoda).max():10.2e}")
    if Figure is not None:
        plot(path, learned, misfits, options.plot)


if __name__ == "__main__":
    main()
