"""A beam that vibrates as fast as it can with a given mass: gradients of an eigenvalue of sparse matrices.

    python examples/mathematics/stiffest_beam.py [--plot FILE]

The beam is clamped at one end and carries a weight at the other. Its pieces have different heights, which SLSQP changes
so that the lowest frequency rises while the mass stays. The independent check is the formula of Fox and Kapoor (1968),
dw = v^T (dK - w dM) v, with dense matrices and SciPy's `eigh` alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
import scipy.linalg
from scipy.optimize import LinearConstraint, minimize

import pydispatch.numpy as np
from pydispatch import func
from pydispatch.scipy.sparse import csr_array
from pydispatch.scipy.sparse.linalg import eigsh

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None       # no plot

WEIGHT, LEAST, STEPS = 0.2, 0.2, 60     # at the tip, the least height of a piece, and the most steps of SLSQP
BENDING = numpy.array([[12, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4.0]])
INERTIA = numpy.array([[156, 22, 54, -13], [22, 4, 13, -3], [54, 13, 156, -22], [-13, -3, -22, 4.0]]) / 420


def pieces(matrix: numpy.ndarray, n: int) -> numpy.ndarray:
    """Return the matrix of a piece of length 1 / n: every second unknown is a slope, and is measured along it."""
    scale = numpy.array([1, 1 / n, 1, 1 / n])
    return matrix * scale * scale[:, None]


def places(n: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the rows and columns of the elements of all pieces. The first two unknowns are clamped."""
    unknowns = 2 * numpy.arange(n)[:, None] + numpy.arange(4)
    return numpy.repeat(unknowns, 4, 1).ravel(), numpy.tile(unknowns, 4).ravel()


def matrices(heights: Any) -> tuple[Any, Any]:
    """Return the sparse matrices of stiffness, which grows as the cube of the height, and of mass."""
    n = heights.shape[0]
    rows, columns = places(n)
    free = numpy.flatnonzero((rows > 1) & (columns > 1))
    where = (numpy.append(rows[free], 2 * n) - 2, numpy.append(columns[free], 2 * n) - 2)
    tip = numpy.array([0.0, WEIGHT])
    stiffness = (heights ** 3)[:, None, None] * (n ** 3 * pieces(BENDING, n))
    mass = heights[:, None, None] * (pieces(INERTIA, n) / n)
    return tuple(csr_array((np.append(np.reshape(part, -1)[free], tip[i]), where)) for i, part in
                 enumerate((stiffness, mass)))


def lowest(heights: Any) -> Any:
    """Return the square of the lowest frequency."""
    stiffness, mass = matrices(heights)
    return eigsh(stiffness, 1, mass, sigma=0.0)[0][0]


def by_formula(heights: numpy.ndarray) -> numpy.ndarray:
    """Return the gradient by the formula of Fox and Kapoor, without transforms."""
    stiffness, mass = [matrix.toarray() for matrix in matrices(heights)]
    n, (values, vectors) = len(heights), scipy.linalg.eigh(stiffness, mass, subset_by_index=[0, 0])
    shape = numpy.append([0, 0], vectors[:, 0])
    parts = numpy.stack([shape[2 * i:2 * i + 4] for i in range(n)])
    bent, moved = [numpy.einsum("ij,jk,ik->i", parts, pieces(matrix, n), parts) for matrix in (BENDING, INERTIA)]
    return 3 * heights ** 2 * n ** 3 * bent - values[0] * moved / n


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=24, help="of the pieces of the beam")
    parser.add_argument("--plot", type=Path, default=Path("stiffest_beam.png"), metavar="FILE")
    options = parser.parse_args(words)
    even = numpy.ones(options.count)
    slope = func.value_and_grad(lambda heights: -np.log(lowest(heights)))
    found = minimize(slope, even, jac=True, method="SLSQP", bounds=[(LEAST, None)] * options.count,
                     constraints=LinearConstraint(even[None] / options.count, 1, 1), options={"maxiter": STEPS}).x
    for name, heights in (("even", even), ("best", found)):
        print(f"{name:24} {lowest(heights) ** 0.5:9.5f}  lowest frequency, mass {heights.mean():.6f}")
    gradient, formula = func.grad(lowest)(found), by_formula(found)
    print(f"{'gradient, less formula':24} {abs(gradient - formula).max() / abs(gradient).max():9.1e}  at most")
    if Figure is not None:
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True)
        edges = numpy.linspace(0, 1, options.count + 1)
        for name, heights in (("even", even), ("best", found)):
            axes[0].stairs(heights / 2, edges, baseline=-heights / 2, fill=True, alpha=0.5, label=name)
            vectors = eigsh(*matrices(heights)[:1], 1, matrices(heights)[1], sigma=0.0)[1][::2, 0]
            axes[1].plot(edges, numpy.append(0, vectors / vectors[-1]), label=name)
        axes[0].set(ylabel="height")
        axes[1].set(xlabel="distance from the clamp", ylabel="vibration")
        axes[0].legend()
        figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
