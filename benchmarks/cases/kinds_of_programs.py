"""Ordinary programs of many kinds, as plans beside NumPy by hand, JAX and PyTorch.

    python -m benchmarks.cases.kinds_of_programs [PATTERN]      all programs, or those whose titles contain this

A program is written once for libraries like NumPy. By hand it is written for NumPy, with its gradient. All results are
compared before they are timed. Rows that end in "gradient" time the gradients by all arguments.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pydispatch.numpy as pnp
from benchmarks.cases.contests import FLOOR, Call, check
from benchmarks.cases.kinds import Effort, import_or_note
from benchmarks.cases.structures import Extended, Function, Program, summed
from pydispatch import compile, func, higher_order
from pydispatch.cli.timing import make_loop, on_one_core, quiet, time_in_rounds

EFFORT = Effort(31, 1, 0.5)
RANDOM = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


# --- solvers ---------------------------------------------------------------------------------------------------------

WEEKS = np.linspace(0.0, 10.0, 21)
PEOPLE = np.array([0.99, 0.01, 0.0])


def epidemic(library: Any) -> Function:
    """Solve an epidemic with seasons, and compare the infected with none."""
    def program(rates: Any) -> Any:
        def slope(y: Any, t: Any) -> Any:
            new = rates[0] * (1 + 0.3 * library.cos(t)) * y[0] * y[1]
            return library.stack((-new, new - rates[1] * y[1], rates[1] * y[1]))
        return (library.odeint(slope, PEOPLE, WEEKS, rtol=1e-7, atol=1e-7)[:, 1] ** 2).sum()
    return program


def epidemic_by_hand(rates: Any) -> Any:
    """Solve the adjoint equation between each two times."""
    from scipy.integrate import solve_ivp
    fine = {"rtol": 1e-7, "atol": 1e-7}

    def slope(t: Any, y: Any) -> Any:
        new = rates[0] * (1 + 0.3 * np.cos(t)) * y[0] * y[1]
        return np.array([-new, new - rates[1] * y[1], rates[1] * y[1]])

    def back(t: Any, values: Any) -> Any:
        season, (s, i), (a, b, c) = 1 + 0.3 * np.cos(t), values[:2], values[3:6]
        of_new, force = b - a, rates[0] * season
        return np.concatenate((slope(t, values), (
            -of_new * force * i, -of_new * force * s - (c - b) * rates[1], 0.0, -of_new * season * s * i, (b - c) * i)))

    states = solve_ivp(slope, WEEKS[[0, -1]], PEOPLE, t_eval=WEEKS, **fine).y.T
    sent, total = np.zeros(3), np.zeros(2)
    for k in range(len(WEEKS) - 1, 0, -1):
        start = np.concatenate((states[k], sent, total))
        start[4] += 2 * states[k, 1]
        end = solve_ivp(back, WEEKS[[k, k - 1]], start, **fine).y[:, -1]
        sent, total = end[3:6], end[6:]
    return total,


N_CELLS = 200


def implicit_heat(library: Any) -> Function:
    """Make eight implicit steps of the heat equation between 200 cells with different walls."""
    def program(walls: Any, state: Any) -> Any:
        inner = walls[1:-1]
        matrix = library.diag(1 + walls[1:] + walls[:-1]) - library.diag(inner, 1) - library.diag(inner, -1)
        for _ in range(8):
            state = library.linalg.solve(matrix, state)
        return (state * state).sum()
    return program


def implicit_heat_by_hand(walls: Any, state: Any) -> Any:
    """Solve with three diagonals."""
    from scipy.linalg import solve_banded
    bands = np.zeros((3, N_CELLS))
    bands[0, 1:] = bands[2, :-1] = -walls[1:-1]
    bands[1] = 1 + walls[1:] + walls[:-1]
    states = [state]
    for _ in range(8):
        states.append(solve_banded((1, 1), bands, states[-1]))
    g, of_walls = 2 * states[-1], np.zeros_like(walls)
    for state in reversed(states[1:]):
        g = solve_banded((1, 1), bands, g)
        of_walls -= np.diff(g, prepend=0, append=0) * np.diff(state, prepend=0, append=0)
    return of_walls, g


# --- scans -----------------------------------------------------------------------------------------------------------

N_SPINS, N_FLIPS = 64, 5000
SITES, CHANCES = RANDOM.integers(0, N_SPINS, N_FLIPS), RANDOM.uniform(0, 1, N_FLIPS)


def metropolis(library: Any) -> Function:
    """Flip 5,000 spins of a ring in turn, or not."""
    def flip(spins: Any, drawn: Any) -> Any:
        i, chance = drawn
        change = 2 * spins[i] * (spins[i - 1] + spins[(i + 1) % N_SPINS])
        spin = library.where(chance < library.exp(-0.7 * change), -spins[i], spins[i])
        return library.put(spins, i, spin), spin

    return lambda spins, sites, chances: library.scan(flip, spins, (sites, chances))


def metropolis_by_hand(spins: Any, sites: Any, chances: Any) -> Any:
    """Write into one array."""
    spins, found = spins.copy(), np.empty(len(sites))
    for k, (i, chance) in enumerate(zip(sites, chances, strict=True)):
        change = 2 * spins[i] * (spins[i - 1] + spins[(i + 1) % N_SPINS])
        if chance < np.exp(-0.7 * change):
            spins[i] = -spins[i]
        found[k] = spins[i]
    return spins, found


N_STATES = 32
SYMBOLS = RANDOM.integers(0, 10, 300)


def hidden_markov(library: Any) -> Function:
    """Compute the log-likelihood of 300 symbols in 32 states."""
    def program(moves: Any, signs: Any) -> Any:
        moves = moves - library.logsumexp(moves, 1)[:, None]
        signs = signs - library.logsumexp(signs, 1)[:, None]

        def step(state: Any, sign: Any) -> Any:
            return library.logsumexp(state[:, None] + moves, 0) + sign, None

        seen = signs.T[SYMBOLS]
        return library.logsumexp(library.scan(step, seen[0], seen[1:])[0], 0)
    return program


def log_sums(x: Any, axis: int) -> Any:
    """Add exponentials."""
    largest = x.max(axis, keepdims=True)
    return np.log(np.exp(x - largest).sum(axis)) + largest.squeeze(axis)


def hidden_markov_value(moves: Any, signs: Any) -> Any:
    """Go forwards."""
    moves, signs = moves - log_sums(moves, 1)[:, None], signs - log_sums(signs, 1)[:, None]
    seen = signs.T[SYMBOLS]
    state = seen[0]
    for sign in seen[1:]:
        state = log_sums(state[:, None] + moves, 0) + sign
    return log_sums(state, 0)


def hidden_markov_by_hand(moves: Any, signs: Any) -> Any:
    """Keep the states, and go backwards with probabilities of moves."""
    logs, shown = moves - log_sums(moves, 1)[:, None], signs - log_sums(signs, 1)[:, None]
    seen = shown.T[SYMBOLS]
    states = [seen[0]]
    for sign in seen[1:]:
        states.append(log_sums(states[-1][:, None] + logs, 0) + sign)
    g, of_moves, of_seen = np.exp(states[-1] - log_sums(states[-1], 0)), np.zeros_like(logs), np.empty_like(seen)
    for k in range(len(seen) - 1, 0, -1):
        of_seen[k] = g
        both = np.exp(states[k - 1][:, None] + logs - (states[k] - seen[k])) * g
        of_moves += both
        g = both.sum(1)
    of_seen[0] = g
    of_signs = np.zeros_like(signs.T)
    np.add.at(of_signs, SYMBOLS, of_seen)
    return (of_moves - np.exp(logs) * of_moves.sum(1)[:, None],
            of_signs.T - np.exp(shown) * of_signs.T.sum(1)[:, None])


PLACES = np.linspace(-10, 10, 512, endpoint=False)
HALF_KICK = np.exp(-0.5j * 0.01 * 0.5 * PLACES ** 2)
DRIFT = np.exp(-0.5j * 0.01 * (2 * np.pi * np.fft.fftfreq(512, PLACES[1] - PLACES[0])) ** 2)


def split_step(library: Any) -> Function:
    """Let a wave of 512 points move for 50 steps."""
    kick, drift = library.asarray(HALF_KICK), library.asarray(DRIFT)

    def step(wave: Any, _: Any) -> Any:
        return kick * library.fft.ifft(drift * library.fft.fft(kick * wave)), None

    return lambda wave: library.abs(library.scan(step, wave, None, length=50)[0])


def split_step_by_hand(wave: Any) -> Any:
    """Transform forth and back."""
    for _ in range(50):
        wave = HALF_KICK * np.fft.ifft(DRIFT * np.fft.fft(HALF_KICK * wave))
    return np.abs(wave)


# --- gather and scatter ----------------------------------------------------------------------------------------------

BUYERS, GOODS, SCORES = RANDOM.integers(0, 400, 6000), RANDOM.integers(0, 600, 6000), normal(6000)


def recommending(library: Any) -> Function:
    """Compute the squared errors of 6,000 scores as products of rows of 20, and a bias."""
    scores = library.asarray(SCORES)

    def program(u: Any, v: Any, bias: Any) -> Any:
        error = (u[BUYERS] * v[GOODS]).sum(-1) + bias[GOODS] - scores
        return (error * error).mean() + 0.01 * (u * u).sum()
    return program


def recommending_by_hand(u: Any, v: Any, bias: Any) -> Any:
    """Add rows by np.add.at, and numbers by np.bincount."""
    left, right = u[BUYERS], v[GOODS]
    error = ((left * right).sum(-1) + bias[GOODS] - SCORES) * (2 / len(SCORES))
    of_u, of_v = 0.02 * u, np.zeros_like(v)
    np.add.at(of_u, BUYERS, right * error[:, None])
    np.add.at(of_v, GOODS, left * error[:, None])
    return of_u, of_v, np.bincount(GOODS, error, len(bias))


N_ATOMS = 400
NEIGHBOURS = (np.arange(N_ATOMS)[:, None] + RANDOM.integers(1, N_ATOMS, (N_ATOMS, 16))) % N_ATOMS


def neighbours(library: Any) -> Function:
    """Compute Yukawa's energy of 400 atoms with 16 neighbours each."""
    def program(x: Any) -> Any:
        apart = x[:, None] - x[NEIGHBOURS]
        distance = library.sqrt((apart * apart).sum(-1) + 0.01)
        return (library.exp(-distance) / distance).sum()
    return program


def neighbours_by_hand(x: Any) -> Any:
    """Add the forces on both atoms of each pair."""
    apart = x[:, None] - x[NEIGHBOURS]
    distance = np.sqrt((apart * apart).sum(-1) + 0.01)
    force = (-np.exp(-distance) * (1 + distance) / distance ** 3)[..., None] * apart
    found = force.sum(1)
    np.subtract.at(found, NEIGHBOURS, force)
    return found,


GRID = np.arange(24 * 24).reshape(24, 24)
TRIANGLES = np.concatenate([np.stack(corners, -1).reshape(-1, 3) for corners in (
    (GRID[:-1, :-1], GRID[1:, :-1], GRID[:-1, 1:]), (GRID[1:, 1:], GRID[:-1, 1:], GRID[1:, :-1]))])
REST = np.stack(np.divmod(GRID.ravel(), 24), -1) * 1.0
SIDES = REST[TRIANGLES][:, 1:] - REST[TRIANGLES][:, :1]
UNBENT, AREAS = np.linalg.inv(SIDES), np.abs(np.linalg.det(SIDES)) / 2


def elastic(library: Any) -> Function:
    """Compute the neo-Hookean energy of 1,058 triangles."""
    unbent, areas = library.asarray(UNBENT), library.asarray(AREAS)

    def program(x: Any) -> Any:
        corners = x[TRIANGLES]
        bent = unbent @ (corners[:, 1:] - corners[:, :1])
        volume = library.log(library.linalg.det(bent))
        return (areas * (0.5 * (bent * bent).sum((1, 2)) - 1 - volume + 0.5 * volume * volume)).sum()
    return program


def elastic_by_hand(x: Any) -> Any:
    """Compute stresses, and add them at the corners."""
    corners = x[TRIANGLES]
    bent = UNBENT @ (corners[:, 1:] - corners[:, :1])
    volume = np.log(np.linalg.det(bent))
    stress = bent + (volume - 1)[:, None, None] * np.linalg.inv(bent).swapaxes(1, 2)
    forces = UNBENT.swapaxes(1, 2) @ (stress * AREAS[:, None, None])
    found = np.zeros_like(x)
    np.add.at(found, TRIANGLES[:, 1:], forces)
    np.subtract.at(found, TRIANGLES[:, 0], forces.sum(1))
    return found,


N_NODES = 500
SENDERS, RECEIVERS = RANDOM.integers(0, N_NODES, 3000), RANDOM.integers(0, N_NODES, 3000)


def messages(library: Any) -> Function:
    """Let 500 nodes with 16 features exchange 3,000 messages, twice."""
    def program(x: Any, w: Any, v: Any) -> Any:
        for _ in range(2):
            sent = library.tanh(x[SENDERS] @ w[0] + x[RECEIVERS] @ w[1])
            x = library.tanh(x @ v + library.segment_sum(sent, RECEIVERS, N_NODES))
        return (x * x).sum()
    return program


def messages_value(x: Any, w: Any, v: Any) -> Any:
    """Add messages by np.add.at."""
    for _ in range(2):
        total = x @ v
        np.add.at(total, RECEIVERS, np.tanh(x[SENDERS] @ w[0] + x[RECEIVERS] @ w[1]))
        x = np.tanh(total)
    return (x * x).sum()


def messages_by_hand(x: Any, w: Any, v: Any) -> Any:
    """Go backwards through both layers."""
    kept = []
    for _ in range(2):
        left, right, total = x[SENDERS], x[RECEIVERS], x @ v
        sent = np.tanh(left @ w[0] + right @ w[1])
        np.add.at(total, RECEIVERS, sent)
        kept.append((x, left, right, sent, x := np.tanh(total)))
    g, of_w, of_v = 2 * x, np.zeros_like(w), np.zeros_like(v)
    for before, left, right, sent, after in reversed(kept):
        g = g * (1 - after * after)
        of_sent = g[RECEIVERS] * (1 - sent * sent)
        of_w[0] += left.T @ of_sent
        of_w[1] += right.T @ of_sent
        of_v += before.T @ g
        g = g @ v.T
        np.add.at(g, SENDERS, of_sent @ w[0].T)
        np.add.at(g, RECEIVERS, of_sent @ w[1].T)
    return g, of_w, of_v


N_PAGES = 3000
LINKS = np.sort(RANDOM.integers(0, N_PAGES, N_PAGES * 8)), RANDOM.integers(0, N_PAGES, N_PAGES * 8)
ROW_ENDS = np.searchsorted(LINKS[0], np.arange(N_PAGES + 1))


def ranks(library: Any) -> Function:
    """Multiply a vector ten times by a sparse matrix with eight numbers a row."""
    def program(data: Any, x: Any) -> Any:
        for _ in range(10):
            x = library.segment_sum(data * x[LINKS[1]], LINKS[0], N_PAGES)
            x = x / library.sqrt((x * x).sum())
        return (x ** 3).sum()
    return program


def ranks_kept(data: Any, x: Any) -> Any:
    """Use SciPy's product."""
    from scipy.sparse import csr_array
    matrix, kept = csr_array((data, LINKS[1], ROW_ENDS)), [(x, x, 1.0)]
    for _ in range(10):
        y = matrix @ kept[-1][0]
        norm = np.sqrt((y * y).sum())
        kept.append((y / norm, y, norm))
    return matrix, kept


def ranks_value(data: Any, x: Any) -> Any:
    """Go forwards."""
    return (ranks_kept(data, x)[1][-1][0] ** 3).sum()


def ranks_by_hand(data: Any, x: Any) -> Any:
    """Go backwards with the transposed matrix."""
    matrix, kept = ranks_kept(data, x)
    g, of_data = 3 * kept[-1][0] ** 2, np.zeros_like(data)
    for k in range(10, 0, -1):
        _, y, norm = kept[k]
        g = g / norm - y * ((g * y).sum() / norm ** 3)
        of_data += g[LINKS[0]] * kept[k - 1][0][LINKS[1]]
        g = matrix.T @ g
    return of_data, g


POINTS = normal(4000, 6)


def cluster(library: Any) -> Function:
    """Make a step of k-means with 20 centres."""
    def program(points: Any, centres: Any) -> Any:
        apart = (centres * centres).sum(-1) - 2 * (points @ centres.T)
        nearest = library.argmin(apart, 1)
        counts = library.count(nearest, 20)
        return library.segment_sum(points, nearest, 20) / counts[:, None], nearest
    return program


def cluster_by_hand(points: Any, centres: Any) -> Any:
    """Add the columns by np.bincount."""
    nearest = np.argmin((centres * centres).sum(-1) - 2 * (points @ centres.T), 1)
    sums = np.stack([np.bincount(nearest, column, 20) for column in points.T], 1)
    return sums / np.bincount(nearest, minlength=20)[:, None], nearest


# --- selection -------------------------------------------------------------------------------------------------------

RETURNS = normal(20000, 10)


def tail(library: Any) -> Function:
    """Compute the mean of the largest tenth of losses that are not linear."""
    returns = library.asarray(RETURNS)

    def program(weights: Any) -> Any:
        change = returns @ weights
        losses = change + 0.1 * change * change
        limit = library.quantile(losses, 0.9)
        return limit + library.maximum(losses - limit, 0.0).mean() / 0.1
    return program


def tail_by_hand(weights: Any) -> Any:
    """Select two elements by a partition."""
    change = RETURNS @ weights
    losses, n = change + 0.1 * change * change, len(change)
    low, part = int(0.9 * (n - 1)), 0.9 * (n - 1) % 1
    first, second = np.argpartition(losses, (low, low + 1))[low:low + 2]
    limit = losses[first] * (1 - part) + losses[second] * part
    g = (losses > limit) / (n * 0.1)
    rest = 1 - g.sum()
    g[first] += rest * (1 - part)
    g[second] += rest * part
    return (g * (1 + 0.2 * change)) @ RETURNS,


# --- matrices --------------------------------------------------------------------------------------------------------

def densities(library: Any) -> Function:
    """Compute 1,000 normal densities with covariances 3x3."""
    def program(spread: Any, x: Any) -> Any:
        weighted = (library.linalg.inv(spread) @ x[..., None])[..., 0]
        return (x * weighted).sum() + library.log(library.linalg.det(spread)).sum()
    return program


def densities_by_hand(spread: Any, x: Any) -> Any:
    """Use the inverse for all."""
    turned = np.linalg.inv(spread).swapaxes(1, 2)
    left, right = (turned @ x[..., None])[..., 0], (x[:, None] @ turned)[:, 0]
    return turned - left[..., None] * right[:, None], left + right


TIMES, SEEN = np.sort(RANDOM.uniform(0, 10, 300)), normal(300)
APART = np.abs(TIMES[:, None] - TIMES)


def regression(library: Any) -> Function:
    """Compute the likelihood of 300 values of a Gaussian process with Matérn's covariance."""
    apart, seen, eye = library.asarray(APART), library.asarray(SEEN), library.asarray(np.eye(300))

    def program(logs: Any) -> Any:
        scaled = apart * library.exp(-logs[0])
        covariance = library.exp(logs[1]) * (1 + scaled) * library.exp(-scaled) + library.exp(logs[2]) * eye
        lower = library.linalg.cholesky(covariance)
        white = library.solve_triangular(lower, seen)
        return 0.5 * (white * white).sum() + library.log(library.diagonal(lower)).sum()
    return program


def regression_by_hand(logs: Any) -> Any:
    """Invert the matrix by its Cholesky factor."""
    from scipy.linalg import lapack
    scale, size, noise = np.exp(-logs[0]), np.exp(logs[1]), np.exp(logs[2])
    scaled = APART * scale
    falling = np.exp(-scaled) * size
    kernel = (1 + scaled) * falling
    lower, _ = lapack.dpotrf(kernel + noise * np.eye(300), lower=1)
    inverse, _ = lapack.dpotri(lower, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weighted = inverse @ SEEN
    g = 0.5 * (inverse - weighted[:, None] * weighted)
    return np.array([(g * falling * scaled * scaled).sum(), (g * kernel).sum(), noise * np.trace(g)]),


# --- arrays ----------------------------------------------------------------------------------------------------------

PLANE = np.linspace(-1.5, 1.5, 200) + 1j * np.linspace(-1.2, 1.2, 150)[:, None]


def julia(library: Any) -> Function:
    """Count for 30,000 complex numbers how many of 40 steps stay small."""
    def step(state: Any, _: Any) -> Any:
        z, count = state
        inside = z.real * z.real + z.imag * z.imag < 4.0
        return (library.where(inside, z * z + (-0.8 + 0.156j), z), count + inside), None

    def program(z: Any, count: Any) -> Any:
        return library.scan(step, (z, count), None, length=40)[0][1]
    return program


def julia_by_hand(z: Any, count: Any) -> Any:
    """Compute where numbers are small."""
    z, count = z.copy(), count.copy()
    for _ in range(40):
        inside = z.real * z.real + z.imag * z.imag < 4.0
        z[inside] = z[inside] ** 2 + (-0.8 + 0.156j)
        count += inside
    return count


def compass(library: Any) -> Function:
    """Compute the energy of 256² needles in a field."""
    def program(angle: Any) -> Any:
        around = library.cos(angle - library.roll(angle, 1, 0)) + library.cos(angle - library.roll(angle, 1, 1))
        return -(around + 0.3 * library.cos(angle)).sum()
    return program


def compass_value(angle: Any) -> Any:
    """Roll the angles."""
    around = np.cos(angle - np.roll(angle, 1, 0))
    around += np.cos(angle - np.roll(angle, 1, 1))
    return -around.sum() - 0.3 * np.cos(angle).sum()


def compass_by_hand(angle: Any) -> Any:
    """Roll the angles, and the sines back."""
    down, right = np.sin(angle - np.roll(angle, 1, 0)), np.sin(angle - np.roll(angle, 1, 1))
    return down + right - np.roll(down, -1, 0) - np.roll(right, -1, 1) + 0.3 * np.sin(angle),


def edges(library: Any) -> Function:
    """Filter an image of 128² by two Gaussians."""
    def program(image: Any) -> Any:
        return ((library.blur(image, 1.0) - library.blur(image, 2.0)) ** 4).sum()
    return program


def edges_by_hand(image: Any) -> Any:
    """Filter the slopes, since these filters are symmetric."""
    from scipy.ndimage import gaussian_filter
    g = 4 * (gaussian_filter(image, 1.0) - gaussian_filter(image, 2.0)) ** 3
    return gaussian_filter(g, 1.0) - gaussian_filter(g, 2.0),


COST, MASSES = RANDOM.uniform(0, 1, (200, 200)), np.full(200, 1 / 200)


def transport(library: Any) -> Function:
    """Make 20 steps of Sinkhorn's between 200 and 200 masses."""
    masses = library.asarray(MASSES)

    def program(cost: Any) -> Any:
        kernel = library.exp(-5 * cost)
        u, v = masses, masses
        for _ in range(20):
            u = masses / (kernel @ v)
            v = masses / (u @ kernel)
        return (u[:, None] * kernel * cost * v).sum()
    return program


def transport_by_hand(cost: Any) -> Any:
    """Go backwards through the steps."""
    kernel = np.exp(-5 * cost)
    us, vs = [], [MASSES]
    for _ in range(20):
        us.append(MASSES / (kernel @ vs[-1]))
        vs.append(MASSES / (us[-1] @ kernel))
    u, v, weighted = us[-1], vs[-1], kernel * cost
    both = u[:, None] * v
    of_kernel, of_u, of_v = both * cost, weighted @ v, u @ weighted
    for k in range(19, -1, -1):
        back = -of_v * vs[k + 1] * vs[k + 1] / MASSES
        of_kernel += us[k][:, None] * back
        of_u = of_u + kernel @ back
        back = -of_u * us[k] * us[k] / MASSES
        of_kernel += back[:, None] * vs[k]
        of_u, of_v = 0.0, back @ kernel
    return both * kernel - 5 * kernel * of_kernel,


IMAGES, LABELS = normal(8, 20, 20), RANDOM.integers(0, 10, 8)


def recognising(library: Any) -> Function:
    """Compute the loss of eight images after a convolution with eight filters 5x5."""
    images = library.asarray(IMAGES)

    def program(filters: Any, dense: Any) -> Any:
        hidden = library.maximum(library.convolve_all(images, filters), 0.0)        # 8 images, 16 x 16 places, filters
        pooled = hidden.reshape(8, 8, 2, 8, 2, 8).sum((2, 4)).reshape(8, 512)
        scores = pooled @ dense
        return (library.logsumexp(scores, 1) - scores[np.arange(8), LABELS]).mean()
    return program


def windows_of(library: Any, images: Any, filters: Any) -> Any:
    """Multiply windows by filters."""
    windows = library.lib.stride_tricks.sliding_window_view(images, (5, 5), (1, 2)).reshape(8, 16, 16, 25)
    return windows @ filters.reshape(25, 8)


def recognising_by_hand(filters: Any, dense: Any) -> Any:
    """Multiply windows by filters, and by slopes."""
    windows = np.lib.stride_tricks.sliding_window_view(IMAGES, (5, 5), (1, 2)).reshape(-1, 25)
    before = (windows @ filters.reshape(25, 8)).reshape(8, 16, 16, 8)
    pooled = np.maximum(before, 0).reshape(8, 8, 2, 8, 2, 8).sum((2, 4)).reshape(8, 512)
    scores = pooled @ dense
    g = np.exp(scores - log_sums(scores, 1)[:, None])
    g[np.arange(8), LABELS] -= 1
    g /= 8
    of_hidden = np.broadcast_to((g @ dense.T).reshape(8, 8, 1, 8, 1, 8), (8, 8, 2, 8, 2, 8)).reshape(-1, 8)
    return (windows.T @ (of_hidden * (before.reshape(-1, 8) > 0))).reshape(5, 5, 8), pooled.T @ g


SPREADS = (lambda a: a @ a.swapaxes(1, 2) + np.eye(3))(normal(1000, 3, 3))
GRAPH = normal(N_NODES, 16), normal(2, 16, 16) / 4, normal(16, 16) / 4
SPARSE = RANDOM.uniform(0, 1, N_PAGES * 8), RANDOM.uniform(0, 1, N_PAGES)
CHAIN = normal(N_STATES, N_STATES), normal(N_STATES, 10)
ANGLES = RANDOM.uniform(-3, 3, (256, 256))
PROGRAMS = {program.title: program for program in (
    Program("adaptive odeint, gradient", epidemic, epidemic_by_hand, (np.array([1.5, 0.4]),), False),
    Program("Metropolis scan", metropolis, metropolis_by_hand,
            (np.where(normal(N_SPINS) > 0, 1.0, -1.0), SITES, CHANCES), False),
    Program("implicit heat equation, gradient", implicit_heat, implicit_heat_by_hand,
            (RANDOM.uniform(0.5, 2, N_CELLS + 1), normal(N_CELLS))),
    Program("matrix factorisation, gradient", recommending, recommending_by_hand,
            (normal(400, 20), normal(600, 20), normal(600))),
    Program("pair energies, gradient", neighbours, neighbours_by_hand, (normal(N_ATOMS, 3) * 2,)),
    Program("quantile loss, gradient", tail, tail_by_hand, (RANDOM.uniform(0, 1, 10),)),
    Program("Julia set, complex128", julia, julia_by_hand, (PLANE, np.zeros(PLANE.shape, int))),
    Program("1,000 inv and det 3x3, gradient", densities, densities_by_hand, (SPREADS, normal(1000, 3))),
    Program("neo-Hookean elements, gradient", elastic, elastic_by_hand, (REST + 0.05 * normal(576, 2),)),
    Program("XY model 256²", compass, compass_value, (ANGLES,)),
    Program("XY model 256², gradient", compass, compass_by_hand, (ANGLES,)),
    Program("graph network", messages, messages_value, GRAPH),
    Program("graph network, gradient", messages, messages_by_hand, GRAPH),
    Program("Gaussian process, gradient", regression, regression_by_hand, (np.array([0.1, 0.2, -1.0]),)),
    Program("HMM, 32 states", hidden_markov, hidden_markov_value, CHAIN),
    Program("HMM, 32 states, gradient", hidden_markov, hidden_markov_by_hand, CHAIN),
    Program("split-step Schrödinger", split_step, split_step_by_hand, (np.exp(-PLACES ** 2 + 1j * PLACES),)),
    Program("sparse power iteration", ranks, ranks_value, SPARSE),
    Program("sparse power iteration, gradient", ranks, ranks_by_hand, SPARSE),
    Program("image filters, gradient", edges, edges_by_hand, (normal(128, 128),), False),
    Program("k-means step", cluster, cluster_by_hand, (POINTS, POINTS[:20] + 0.1)),
    Program("Sinkhorn 200², gradient", transport, transport_by_hand, (COST,)),
    Program("CNN by windows, gradient", recognising, recognising_by_hand, (normal(5, 5, 8), normal(512, 10) / 20)),
)}


# --- ways ------------------------------------------------------------------------------------------------------------


def ours() -> Any:
    """Name what the programs use."""
    from pydispatch.scipy import integrate, linalg, ndimage, special

    def put(x: Any, i: Any, value: Any) -> Any:
        x = pnp.copy(x)
        x[i] = value
        return x

    return Extended(
        pnp, segment_sum=summed, count=lambda values, n: pnp.bincount(values, length=n), put=put,
        scan=higher_order.scan, odeint=integrate.odeint, logsumexp=special.logsumexp, blur=ndimage.gaussian_filter,
        solve_triangular=functools.partial(linalg.solve_triangular, lower=True),
        convolve_all=functools.partial(windows_of, pnp))


def by_plan(program: Program, backend: str = "plan") -> Call:
    """Compile the program to a plan."""
    function = program.make(ours())
    if program.title.endswith("gradient"):
        function = func.grad(function, tuple(range(len(program.arguments))))
    compiled = compile(function) if backend == "plan" else compile(function, backend=backend)
    return functools.partial(compiled, *program.arguments)


def by_jax(program: Program) -> Call:
    """Compile the program by XLA, in float64. Each call waits for its results."""
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax import lax
    from jax.experimental.ode import odeint
    from jax.scipy import linalg, special

    def blur(image: Any, sigma: float) -> Any:
        size = int(4 * sigma + 0.5)
        weights = np.exp(-0.5 * (np.arange(-size, size + 1) / sigma) ** 2)
        wide = jax.numpy.pad(image, size, "symmetric")[None, None]
        for shape in ((1, 1, -1, 1), (1, 1, 1, -1)):
            wide = lax.conv(wide, (weights / weights.sum()).reshape(shape), (1, 1), "VALID")
        return wide[0, 0]

    library = Extended(
        jax.numpy, segment_sum=jax.ops.segment_sum, count=lambda x, n: jax.numpy.bincount(x, length=n),
        put=lambda x, i, value: x.at[i].set(value), scan=lax.scan, logsumexp=special.logsumexp, blur=blur,
        odeint=odeint,
        solve_triangular=functools.partial(linalg.solve_triangular, lower=True),
        convolve_all=lambda images, filters: lax.conv_general_dilated(
            images[..., None], filters[:, :, None], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    function = program.make(library)
    if program.title.endswith("gradient"):
        function = jax.grad(function, tuple(range(len(program.arguments))))
    compiled = jax.jit(function)
    on_device = [jax.numpy.asarray(argument) for argument in program.arguments]
    return lambda: jax.block_until_ready(compiled(*on_device))


def by_torch(program: Program) -> Call:
    """Compute by PyTorch, eagerly."""
    import torch
    torch.set_num_threads(1)

    def scan(step: Function, state: Any, xs: Any, length: int | None = None) -> Any:
        for x in [None] * length if length else xs:
            state, _ = step(state, x)
        return state, None

    library = Extended(
        torch, asarray=torch.from_numpy, scan=scan,
        segment_sum=lambda x, segments, n: x.new_zeros((n, *x.shape[1:])).index_add(0, torch.as_tensor(segments), x),
        count=lambda x, n: torch.bincount(x, minlength=n), maximum=torch.clamp_min,
        solve_triangular=lambda a, b: torch.linalg.solve_triangular(a, b[:, None], upper=False)[:, 0],
        convolve_all=lambda images, filters: torch.nn.functional.conv2d(
            images[:, None], filters.permute(2, 0, 1)[:, None]).permute(0, 2, 3, 1))
    function = program.make(library)
    is_gradient = program.title.endswith("gradient")
    tensors = [torch.from_numpy(argument).requires_grad_(is_gradient) for argument in program.arguments]
    return lambda: torch.autograd.grad(function(*tensors), tensors) if is_gradient else function(*tensors)


MAKERS: dict[str, Callable[[Program], Call]] = {
    "plan": by_plan, "numba": functools.partial(by_plan, backend="numba"), "jax": by_jax, "torch": by_torch}
MODULES = {"plan": "pydispatch", "numba": "numba", "jax": "jax", "torch": "torch"}


def program_calls(title: str, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls, NumPy's first."""
    program = PROGRAMS[title]
    return {FLOOR: functools.partial(program.by_hand, *program.arguments)} | {
        name: MAKERS[name](program) for name in names if name != "torch" or program.in_torch}


def times_of(title: str, names: Sequence[str]) -> dict[str, list[float]]:
    """Return nanoseconds of each way in each round, after a check that all give the same."""
    calls = program_calls(title, names)
    precision = {"rtol": 1e-4, "atol": 1e-6} if "odeint" in title else {"rtol": 1e-7, "atol": 1e-9}
    check(calls, title, precision)
    with quiet():
        rounds = time_in_rounds([make_loop("call()", {"call": call}) for call in calls.values()], EFFORT.rounds,
                                EFFORT.seconds * len(calls))
    return dict(zip(calls, map(list, zip(*rounds, strict=True)), strict=True))


def row(title: str, names: Sequence[str]) -> tuple[float, str]:
    """Return the ratio of our best way to the best of the others, and a line of a table."""
    medians = {name: statistics.median(times) / 1000 for name, times in times_of(title, names).items()}
    mine = {name: medians.pop(name) for name in ("plan", "numba") if name in medians}
    best = min(mine.values())
    ratios = {name: best / time for name, time in medians.items()}
    cells = [title, *(f"{mine[name]:,.0f}" if name in mine else "" for name in ("plan", "numba")),
             *(f"{ratios[name]:.2f}" if name in ratios else "" for name in (FLOOR, "jax", "torch"))]
    return max(ratios.values()), f"| {' | '.join(cells)} |"


def main(words: Sequence[str]) -> None:
    """Print microseconds of ours, and the better over the other ways, worst first."""
    names = [name for name in MAKERS if import_or_note(MODULES[name], name, {})]
    rows = []
    for title in PROGRAMS:
        if not words or words[0] in title:
            rows.append(row(title, names))
            print(f"{rows[-1][0]:7.2f}  {rows[-1][1]}", file=sys.stderr, flush=True)
    print("| program | plan, µs | backend numba, µs | / NumPy by hand | / JAX | / torch |\n|---|---|---|---|---|---|")
    print("\n".join(line for _, line in sorted(rows, reverse=True)))


if __name__ == "__main__":
    on_one_core()
    main(sys.argv[1:])
