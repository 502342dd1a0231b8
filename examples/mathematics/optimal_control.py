"""Optimal control of a pendulum, through the root of a shooting function.

    python examples/mathematics/optimal_control.py [--plot FILE]

Which torque swings a pendulum up with the least effort, the integral of its square? By Pontryagin's principle state and
costate follow the gradients of one Hamiltonian, which `grad` finds. The costate at the start is the root of where that
ends. Through `root` the least effort has a gradient in the start and in gravity, by the implicit function theorem. The
independent checks: SciPy's solve_bvp, and that the gradient in the start is the costate, as the theory says.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
from scipy.integrate import solve_bvp

import pydispatch
import pydispatch.numpy as np
from pydispatch import func
from pydispatch.scipy.integrate import odeint
from pydispatch.scipy.optimize import root

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot
try:
    from tqdm import tqdm
except ImportError:
    def tqdm(iterable: Any, *_: Any, **__: Any) -> Any:
        return iterable     # no progress bar

HANGING, UPRIGHT = numpy.array([0.0, 0.0]), numpy.array([numpy.pi, 0.0])
GRAVITY, TIMES = numpy.array(1.0), numpy.linspace(0.0, 4.0, 101)
TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}


def hamiltonian(state: Any, costate: Any, gravity: Any) -> Any:
    """Compute effort, plus the costate times the rates of angle and speed, at the torque that makes this least."""
    torque = -costate[1]
    return 0.5 * torque ** 2 + costate[0] * state[1] + costate[1] * (torque - gravity * np.sin(state[0]))


@pydispatch.compile
def flow(point: dict[str, Any], t: Any, gravity: Any) -> dict[str, Any]:
    """Return the rates of state, costate, and of the effort so far."""
    of_state, of_costate = func.grad(hamiltonian, argnums=(0, 1))(point["state"], point["costate"], gravity)
    return {"state": of_costate, "costate": -of_state, "effort": 0.5 * point["costate"][1] ** 2}


def path(start: Any, costate: Any, gravity: Any, times: Any) -> dict[str, Any]:
    """Return states, costates and efforts at all times."""
    return odeint(flow, {"state": start, "costate": costate, "effort": np.zeros(())}, times, (gravity,), **TOLERANCE)


def first_costate(start: Any, gravity: Any, target: Any, guess: Any) -> Any:
    """Return the costate at the start from which the path ends at the target."""
    def miss(costate: Any) -> Any:
        return path(start, costate, gravity, TIMES[[0, -1]])["state"][-1] - target

    return root(miss, guess, tol=1e-8).x


def least_effort(start: Any, gravity: Any, guess: Any) -> Any:
    """Return the effort of the best path from a state to upright. `guess` only says where to look for it."""
    costate = first_costate(start, gravity, UPRIGHT, guess)
    return path(start, costate, gravity, TIMES[[0, -1]])["effort"][-1]


def solve(n_targets: int) -> numpy.ndarray:
    """Return the first costate of the swing up, by way of lower targets."""
    costate = numpy.zeros(2)
    for share in tqdm(numpy.linspace(0, 1, n_targets + 1)[1:], "raising the target", unit="target"):
        costate = first_costate(HANGING, GRAVITY, share * UPRIGHT, costate)
    return costate


def by_collocation() -> numpy.ndarray:
    """Return the first costate, by SciPy's solver of boundary value problems and equations written by hand."""
    def rates(t: Any, y: Any) -> Any:
        return numpy.stack([y[1], -y[3] - GRAVITY * numpy.sin(y[0]), GRAVITY * y[3] * numpy.cos(y[0]), -y[2]])

    guess = numpy.linspace([0.0, 0.0, 0.0, 0.0], [numpy.pi, 0.0, 0.0, 0.0], len(TIMES)).T
    return solve_bvp(rates, lambda a, b: numpy.concatenate([a[:2] - HANGING, b[:2] - UPRIGHT]), TIMES, guess, tol=1e-9,
                     max_nodes=100_000).y[2:, 0]


def plot(costate: numpy.ndarray, file: Path) -> None:
    """Plot angle, speed and torque."""
    found = path(HANGING, costate, GRAVITY, TIMES)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(TIMES, found["state"], label=["angle", "speed"])
    axes.plot(TIMES, -found["costate"][:, 1], "--", label="torque")
    axes.set(title="A pendulum is swung up with the least effort", xlabel="time")
    axes.legend()
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Solve, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", type=int, default=4, help="on the way up")
    parser.add_argument("--plot", type=Path, default=Path("optimal_control.png"), metavar="FILE", help="for the plot")
    options = parser.parse_args(words)
    costate = solve(options.targets)
    value, (of_start, of_gravity) = func.value_and_grad(least_effort, argnums=(0, 1))(HANGING, GRAVITY, costate)
    print(f"{'costate at the start':32} {costate[0]:12.8f} {costate[1]:12.8f}")
    print("{:32} {:12.8f} {:12.8f}".format("by collocation", *by_collocation()))
    print(f"{'gradient of the effort there':32} {of_start[0]:12.8f} {of_start[1]:12.8f}")
    print(f"{'least effort, and by gravity':32} {float(value):12.8f} {float(of_gravity):12.8f}")
    if Figure is not None:
        plot(costate, options.plot)


if __name__ == "__main__":
    main()
