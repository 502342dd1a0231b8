"""Gradients of programs that gather and scatter, select, and solve: eager and plans beside NumPy by hand, JAX, PyTorch.

    python -m benchmarks.cases.structures [PATTERN]         all programs, or those whose titles contain this

Each call returns the gradients by all arguments. They are compared with those by hand before they are timed.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import pydispatch.numpy as pnp
from benchmarks.cases.contests import FLOOR, Call, run
from benchmarks.cases.kinds import Effort, import_or_note
from pydispatch import compile
from pydispatch.cli.timing import on_one_core
from pydispatch.func import grad

Function = Callable[..., Any]
EFFORT = Effort(31, 1, 0.5)
RANDOM = np.random.default_rng(0)


class Program(NamedTuple):
    """A program from arrays to results, with the functions of a library, and what it or its gradient is by hand."""

    title: str
    make: Callable[[Any], Function]
    by_hand: Function
    arguments: tuple[np.ndarray, ...]
    in_torch: bool = True


# --- gather and scatter ----------------------------------------------------------------------------------------------

USERS, ITEMS = RANDOM.integers(0, 500, 5000), RANDOM.integers(0, 300, 5000)
RATINGS = RANDOM.standard_normal(5000)


def factorisation(library: Any) -> Function:
    """Compute the squared errors of 5,000 ratings as products of rows of 16."""
    def program(u: Any, v: Any) -> Any:
        error = (u[USERS] * v[ITEMS]).sum(-1) - RATINGS
        return (error * error).sum()
    return program


def factorisation_by_hand(u: Any, v: Any) -> Any:
    """Add the rows by np.add.at."""
    left, right = u[USERS], v[ITEMS]
    error = 2 * ((left * right).sum(-1) - RATINGS)[:, None]
    of_u, of_v = np.zeros_like(u), np.zeros_like(v)
    np.add.at(of_u, USERS, right * error)
    np.add.at(of_v, ITEMS, left * error)
    return of_u, of_v


N_ATOMS = 500
FIRST, SECOND = np.sort(RANDOM.integers(0, N_ATOMS, 10000)), RANDOM.integers(0, N_ATOMS - 1, 10000)
SECOND = np.where(SECOND >= FIRST, SECOND + 1, SECOND)


def pairs(library: Any) -> Function:
    """Compute the energy of 10,000 pairs from a list of neighbours."""
    def program(x: Any) -> Any:
        apart = x[FIRST] - x[SECOND]
        power = 1.0 / ((apart * apart).sum(-1) + 0.1)
        return (power * power - power).sum()
    return program


def pairs_by_hand(x: Any) -> Any:
    """Add the forces on both atoms of each pair."""
    apart = x[FIRST] - x[SECOND]
    power = 1.0 / ((apart * apart).sum(-1) + 0.1)
    force = ((1 - 2 * power) * power * power * 2)[:, None] * apart
    found = np.zeros_like(x)
    np.add.at(found, FIRST, force)
    np.subtract.at(found, SECOND, force)
    return found,


def columns(library: Any) -> Function:
    """Compute an energy from the columns of an array, which are read one by one."""
    def program(x: Any) -> Any:
        radius = x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1] + x[:, 2] * x[:, 2]
        return (radius * x[:, 3]).sum()
    return program


def columns_by_hand(x: Any) -> Any:
    """Write each column of the gradient."""
    found = np.empty_like(x)
    found[:, :3] = 2 * x[:, :3] * x[:, 3:]
    found[:, 3] = x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1] + x[:, 2] * x[:, 2]
    return found,


N_NODES = 400
SOURCE, TARGET = RANDOM.integers(0, N_NODES, 4000), np.sort(RANDOM.integers(0, N_NODES, 4000))


def graph_network(library: Any) -> Function:
    """Send messages of 16 numbers along 4,000 edges, and add them up at the nodes, twice."""
    def program(x: Any, w: Any) -> Any:
        for _ in range(2):
            x = library.tanh(library.segment_sum(x[SOURCE], TARGET, N_NODES) @ w)
        return (x * x).sum()
    return program


def graph_network_by_hand(x: Any, w: Any) -> Any:
    """Go backwards through the two layers."""
    sums, states = [], [x]
    for _ in range(2):
        total = np.zeros_like(x)
        np.add.at(total, TARGET, states[-1][SOURCE])
        sums.append(total)
        states.append(np.tanh(total @ w))
    g, of_w = 2 * states[2], np.zeros_like(w)
    for total, state in ((sums[1], states[2]), (sums[0], states[1])):
        g = g * (1 - state * state)
        of_w += total.T @ g
        back, g = (g @ w.T)[TARGET], np.zeros_like(x)
        np.add.at(g, SOURCE, back)
    return g, of_w


N_ROWS = 2000
STARTS = np.arange(0, N_ROWS * 10, 10)
COLUMNS = RANDOM.integers(0, N_ROWS, N_ROWS * 10)
OF_ROW = np.repeat(np.arange(N_ROWS), 10)


def power_iteration(library: Any) -> Function:
    """Multiply a vector by a sparse matrix five times, row by row."""
    def program(data: Any, x: Any) -> Any:
        for _ in range(5):
            x = library.segment_sum(data * x[COLUMNS], OF_ROW, N_ROWS)
            x = x / library.sqrt((x * x).sum())
        return (x * x * x).sum()
    return program


def slices_added(library: Any) -> Function:
    """Multiply a vector by a sparse matrix five times, with sums of slices."""
    def program(data: Any, x: Any) -> Any:
        for _ in range(5):
            x = library.slice_sums(data * x[COLUMNS], STARTS, OF_ROW)
            x = x / library.sqrt((x * x).sum())
        return (x * x * x).sum()
    return program


def power_iteration_by_hand(data: Any, x: Any) -> Any:
    """Go backwards through the products."""
    kept = []
    for _ in range(5):
        y = np.add.reduceat(data * x[COLUMNS], STARTS)
        norm = np.sqrt((y * y).sum())
        kept.append((x, y, norm))
        x = y / norm
    g, of_data = 3 * x * x, np.zeros_like(data)
    for before, y, norm in reversed(kept):
        g = g / norm - y * ((g * y).sum() / norm ** 3)
        spread = g[OF_ROW]
        of_data += spread * before[COLUMNS]
        g = np.bincount(COLUMNS, spread * data, N_ROWS)
    return of_data, g


POINTS = RANDOM.standard_normal((5000, 8))


def k_means(library: Any) -> Function:
    """Compute the centres after one step, for 5,000 points and 16 centres, and how far they moved."""
    def program(centres: Any) -> Any:
        apart = (centres * centres).sum(-1) - 2 * (POINTS @ centres.T)
        nearest = library.argmin(apart, 1)
        sums = library.segment_sum(library.asarray(POINTS), nearest, 16)
        counts = library.count(nearest, 16)
        moved = sums / library.maximum(counts, 1)[:, None] - centres
        return (moved * moved).sum()
    return program


def k_means_by_hand(centres: Any) -> Any:
    """Differentiate the movement."""
    nearest = np.argmin((centres * centres).sum(-1) - 2 * (POINTS @ centres.T), 1)
    sums = np.zeros((16, 8))
    np.add.at(sums, nearest, POINTS)
    counts = np.bincount(nearest, minlength=16)
    return -2 * (sums / np.maximum(counts, 1)[:, None] - centres),


# --- selection -------------------------------------------------------------------------------------------------------

RETURNS = RANDOM.standard_normal((10000, 8))


def tail_loss(library: Any) -> Function:
    """Compute the mean loss beyond the 95 % quantile."""
    def program(weights: Any) -> Any:
        losses = RETURNS @ weights
        limit = library.quantile(losses, 0.95)
        return limit + library.maximum(losses - limit, 0.0).mean() / 0.05
    return program


def tail_loss_by_hand(weights: Any) -> Any:
    """Select two elements by a partition."""
    losses = RETURNS @ weights
    n = len(losses)
    position = 0.95 * (n - 1)
    low = int(position)
    order = np.argpartition(losses, (low, low + 1))[low:low + 2]
    part = position - low
    limit = losses[order[0]] * (1 - part) + losses[order[1]] * part
    g = (losses > limit) / (n * 0.05)
    rest = 1 - g.sum()
    g[order[0]] += rest * (1 - part)
    g[order[1]] += rest * part
    return RETURNS.T @ g,


def medians(library: Any) -> Function:
    """Compute medians of 200 rows of 501 elements."""
    def program(x: Any) -> Any:
        return (library.median(x, 1) ** 2).sum()
    return program


def medians_by_hand(x: Any) -> Any:
    """Select the middle of each row."""
    middle = np.argpartition(x, 250, 1)[:, 250]
    found, rows = np.zeros_like(x), np.arange(len(x))
    found[rows, middle] = 2 * x[rows, middle]
    return found,


# --- matrices --------------------------------------------------------------------------------------------------------

N_UNKNOWNS = 200


def heat(library: Any) -> Function:
    """Make ten implicit steps of the heat equation with 200 unknowns."""
    eye = np.eye(N_UNKNOWNS)
    second = 2 * eye - np.eye(N_UNKNOWNS, k=1) - np.eye(N_UNKNOWNS, k=-1)

    def program(conductivity: Any, start: Any) -> Any:
        matrix, state = eye + conductivity[:, None] * second, start
        for _ in range(10):
            state = library.linalg.solve(matrix, state)
        return (state * state).sum()
    return program


def heat_by_hand(conductivity: Any, start: Any) -> Any:
    """Factor the matrix once."""
    from scipy.linalg import lu_factor, lu_solve
    eye = np.eye(N_UNKNOWNS)
    second = 2 * eye - np.eye(N_UNKNOWNS, k=1) - np.eye(N_UNKNOWNS, k=-1)
    factors = lu_factor(eye + conductivity[:, None] * second)
    states = [start]
    for _ in range(10):
        states.append(lu_solve(factors, states[-1]))
    g, of_rows = 2 * states[-1], np.zeros(N_UNKNOWNS)
    for state in reversed(states[1:]):
        g = lu_solve(factors, g, trans=1)
        of_rows -= g * (second @ state)
    return of_rows, g


PLACES, TARGETS = np.sort(RANDOM.uniform(0, 10, 300)), RANDOM.standard_normal(300)
SQUARES = (PLACES[:, None] - PLACES) ** 2


def gaussian_process(library: Any) -> Function:
    """Compute the likelihood of 300 observations, by the logarithms of scale and noise."""
    def program(scale: Any, noise: Any) -> Any:
        covariance = library.exp(SQUARES * (-0.5 / (scale * scale))) + noise * np.eye(300)
        lower = library.linalg.cholesky(covariance)
        weighted = library.linalg.solve(covariance, TARGETS)
        return 0.5 * (TARGETS * weighted).sum() + library.log(library.diagonal(lower)).sum()
    return program


def gaussian_process_by_hand(scale: Any, noise: Any) -> Any:
    """Invert the matrix by its Cholesky factor."""
    from scipy.linalg import lapack
    kernel = np.exp(SQUARES * (-0.5 / (scale * scale)))
    lower, _ = lapack.dpotrf(kernel + noise * np.eye(300), lower=1)
    inverse, _ = lapack.dpotri(lower, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weighted = inverse @ TARGETS
    g = 0.5 * (inverse - weighted[:, None] * weighted)
    return (g * kernel * SQUARES).sum() / scale ** 3, np.trace(g)


def small_matrices(library: Any) -> Function:
    """Compute inverses and determinants of 1,000 matrices 3x3."""
    def program(a: Any) -> Any:
        inverse = library.linalg.inv(a)
        return (inverse * inverse).sum() + (library.linalg.det(a) ** 2).sum()
    return program


def small_matrices_by_hand(a: Any) -> Any:
    """Use the inverses for both."""
    inverse = np.linalg.inv(a)
    turned = inverse.swapaxes(-1, -2)
    return turned * (2 * np.linalg.det(a) ** 2)[:, None, None] - 2 * (turned @ inverse @ turned),


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


STRUCTURES = {program.title: program for program in (
    Program("matrix factorisation", factorisation, factorisation_by_hand, (normal(500, 16), normal(300, 16))),
    Program("pair energies", pairs, pairs_by_hand, (normal(N_ATOMS, 3) * 3,)),
    Program("columns", columns, columns_by_hand, (normal(5000, 4),)),
    Program("graph network", graph_network, graph_network_by_hand, (normal(N_NODES, 16), normal(16, 16) / 16)),
    Program("sparse power iteration", power_iteration, power_iteration_by_hand,
            (RANDOM.uniform(0, 1, N_ROWS * 10), normal(N_ROWS))),
    Program("sums of slices", slices_added, power_iteration_by_hand,
            (RANDOM.uniform(0, 1, N_ROWS * 10), normal(N_ROWS))),
    Program("k-means step", k_means, k_means_by_hand, (POINTS[:16] + 0.1,)),
    Program("tail loss", tail_loss, tail_loss_by_hand, (RANDOM.uniform(0, 1, 8),)),
    Program("medians of rows", medians, medians_by_hand, (normal(200, 501),)),
    Program("implicit heat equation", heat, heat_by_hand, (RANDOM.uniform(0.5, 2, N_UNKNOWNS), normal(N_UNKNOWNS))),
    Program("Gaussian process", gaussian_process, gaussian_process_by_hand, (np.array(1.3), np.array(0.1))),
    Program("stacked small matrices", small_matrices, small_matrices_by_hand,
            (normal(1000, 3, 3) + 3 * np.eye(3),)),
)}


# --- ways ------------------------------------------------------------------------------------------------------------


class Extended:
    """A library with sums of segments, which libraries spell differently."""

    def __init__(self, library: Any, **functions: Function) -> None:
        self.library, self.functions = library, functions

    def __getattr__(self, name: str) -> Any:
        return self.functions[name] if name in self.functions else getattr(self.library, name)


def summed(values: Any, segments: Any, n: int) -> Any:
    """Sum segments by `add.at`."""
    total = pnp.zeros_like(values, shape=(n, *values.shape[1:]))
    pnp.add.at(total, segments, values)
    return total


OURS = Extended(pnp, segment_sum=summed, slice_sums=lambda values, starts, _: pnp.add.reduceat(values, starts),
                count=lambda values, n: pnp.bincount(values, length=n))


def eagerly(program: Program) -> Call:
    """Differentiate eagerly."""
    function = grad(program.make(OURS), tuple(range(len(program.arguments))))
    return functools.partial(function, *program.arguments)


def by_plan(program: Program) -> Call:
    """Compile the gradient to a plan."""
    function = compile(grad(program.make(OURS), tuple(range(len(program.arguments)))))
    return functools.partial(function, *program.arguments)


def by_jax(program: Program) -> Call:
    """Compile the gradient by XLA, in float64. Each call waits for its results."""
    import jax
    jax.config.update("jax_enable_x64", True)
    library = Extended(
        jax.numpy, segment_sum=lambda x, segments, n: jax.ops.segment_sum(x, segments, n),
        slice_sums=lambda x, starts, segments: jax.ops.segment_sum(x, segments, len(starts)),
        count=lambda x, n: jax.numpy.bincount(x, length=n))
    function = jax.jit(jax.grad(program.make(library), tuple(range(len(program.arguments)))))
    on_device = [jax.numpy.asarray(argument) for argument in program.arguments]
    return lambda: jax.block_until_ready(function(*on_device))


MAKERS: dict[str, Callable[[Program], Call]] = {"eager": eagerly, "plan": by_plan, "jax": by_jax}
MODULES = {"eager": "pydispatch", "plan": "pydispatch", "jax": "jax"}


def structure_calls(title: str, threads: int, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls, NumPy's first."""
    program = STRUCTURES[title]
    return {FLOOR: functools.partial(program.by_hand, *program.arguments)} | {
        name: MAKERS[name](program) for name in names}


def main(words: Sequence[str]) -> None:
    """Print microseconds of NumPy by hand, and the other ways over it, medians of rounds."""
    names = [name for name in MAKERS if import_or_note(MODULES[name], name, {})]
    print(f"{'':26}{'numpy':>12}" + "".join(f"{name:>9}" for name in names))
    for title in STRUCTURES:
        if not words or words[0] in title:
            times = run(structure_calls, (title,), 1, names, EFFORT)
            ratios = [statistics.median([this / floor for this, floor in zip(times[name], times[FLOOR], strict=True)])
                      for name in names]
            print(f"{title:26}{statistics.median(times[FLOOR]) / 1000:9.0f} µs"
                  + "".join(f"{ratio:9.2f}" for ratio in ratios))


if __name__ == "__main__":
    on_one_core()
    main(sys.argv[1:])
