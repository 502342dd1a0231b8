"""Newton's method, from 40,000 starting points at once.

    python examples/transforms/newton.py [--plot FILE]

Himmelblau's function has nine points where its gradient is zero. The gradient and the Hessian are transforms of the
function, `while_loop` repeats the step, and `vmap` runs it from every start: to which of the nine does each lead?
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from pydispatch import Tensor, func, ops
from pydispatch.higher_order import while_loop
from pydispatch.library import custom_op

try:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

TOLERANCE = 1e-10
MOST_STEPS = 60


def himmelblau(point: Any) -> Any:
    """Compute Himmelblau's function of x and y."""
    x, y = point[0], point[1]
    return (x * x + y - 11) ** 2 + (x + y * y - 7) ** 2


@custom_op("newton::solve", mutates_args=())
def solve(matrix: Tensor, vector: Tensor) -> Tensor:
    """Solve a system of linear equations, or many with a batch axis in front of both."""
    return np.linalg.solve(matrix, vector[..., None])[..., 0]


@solve.register_vmap
def solve_batch(info, in_dims, matrix, vector):
    """Solve a stack of systems in one call of NumPy."""
    if None in in_dims:     # one of the two is the same for all
        shape = (info.batch_size, *matrix.shape[-2:])
        matrix, vector = ops.np.broadcast_to(matrix, shape), ops.np.broadcast_to(vector, shape[:-1])
    return solve(matrix, vector), 0


gradient = func.grad(himmelblau)
hessian = func.hessian(himmelblau)


def newton(start: Any) -> tuple[Any, Any]:
    """Return the point where Newton's method ends, and after how many steps."""
    def goes_on(point: Any, steps: Any) -> Any:
        return (abs(gradient(point)).max() > TOLERANCE) & (steps < MOST_STEPS)

    def step(point: Any, steps: Any) -> tuple[Any, Any]:
        return point - solve(hessian(point), gradient(point)), steps + 1

    return while_loop(goes_on, step, (start, np.zeros((), int)))


def starts(count: int) -> np.ndarray:
    """Return points of a square, `count` on each side, in rows from below."""
    side = np.linspace(-6.0, 6.0, count)
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def distinct(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points that differ, and for each given point which of them it is."""
    rounded, places = np.unique(points.round(6) + 0.0, axis=0, return_inverse=True)
    return rounded, places.reshape(-1)


def kind(point: np.ndarray) -> str:
    """Classify by the signs of the Hessian's eigenvalues."""
    signs = np.sign(np.linalg.eigvalsh(hessian(point)))
    return {2: "minimum", -2: "maximum"}.get(int(signs.sum()), "saddle")


def plot(places: np.ndarray, steps: np.ndarray, found: np.ndarray, file: Path) -> None:
    """Plot a colour for each end, darker where it took longer."""
    side = round(np.sqrt(len(places)))
    colours = colormaps["tab10"](places)[:, :3] * (1 - 0.7 * (steps / steps.max())[:, None])
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(colours.reshape(side, side, 3), extent=(-6, 6, -6, 6), origin="lower")
    axes.plot(*found.T, "w.", markersize=4)
    axes.set(title="Where Newton's method ends, by its start", xlabel="x", ylabel="y")
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Print where it ends, and how often."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", type=int, default=200, help="starting points on each side of the square")
    parser.add_argument("--plot", type=Path, default=Path("newton.png"), metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)

    points, steps = func.vmap(newton)(starts(options.side))
    found, places = distinct(points)
    print("      x         y      value  kind     starts  mean steps")
    for number, point in enumerate(found):
        here = places == number
        value = himmelblau(point)
        print(f"{point[0]:9.5f} {point[1]:9.5f} {value:9.4f}  {kind(point):8} {here.sum():6} {steps[here].mean():8.1f}")
    if Figure is not None:
        plot(places, steps, found, options.plot)
        print(f"picture: {options.plot}")


if __name__ == "__main__":
    main()
