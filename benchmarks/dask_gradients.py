"""Gradients over the chunks of Dask arrays: `map_chunks`, beside HIPS autograd and gradients by hand in NumPy.

    python -m benchmarks.dask_gradients [PROGRAM]           all programs, or one; a few sizes of chunks

Each row is the value of a program and its gradient by the parameters, summed over chunks that are in memory. All three
run as one task per chunk and a tree of sums, on Dask's synchronous scheduler and one core, so times are those of the
processor: Dask's own part is in them, other programs of the machine are not. The results are compared before they are
timed. The three take turns; a ratio is the median over rounds.

A *pass* describes the graph and runs it, as each step of an optimizer does. `run` is the second half alone: graphs of
`delayed` calls, as the other two have, take long to describe and are quick to run, those of arrays the other way round.
`at most` is the throughput over HIPS autograd of tasks that compute what all three need, and nothing else: the products
of matrices and the exponentials, logarithms and hyperbolic tangents. No gradient by NumPy's loops gets past it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from operator import truediv
from statistics import median
from typing import Any, NamedTuple

import autograd
import autograd.numpy as anp
import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed

import pydispatch.numpy as pnp
from pydispatch import func
from pydispatch.backends.dask import map_chunks
from pydispatch.cli.timing import on_one_core
from pydispatch.higher_order import scan

RANDOM = np.random.default_rng(0)
ROUNDS = 7
CHUNKS = 20
OURS, HIPS, BY_HAND, LEAST = "ours", "HIPS autograd", "by hand", "the least"
BOUNDS = {HIPS: 5.0, BY_HAND: 0.9}     # so many times our throughput over theirs
FEATURES = 8
BATCH = 25      # rows of one local step


class Program(NamedTuple):
    """A loss of some rows, `loss(namespace, X, y, w)`, its value and gradient by hand, and what both need at least."""

    loss: Callable[..., Any]
    by_hand: Callable[..., Any]
    least: Callable[..., Any]
    weights: Any
    sizes: tuple[int, int] = (10_000, 100_000)      # rows of a chunk


def logistic(np: Any, X: Any, y: Any, w: Any) -> Any:
    """Compute the loss of a logistic regression."""
    return log_loss(np, np.dot(X, w), y)


def log_loss(np: Any, z: Any, y: Any) -> Any:
    """Compute as NumPy does it fastest. `logaddexp` takes twice as long."""
    return np.sum(np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z))) - y * z)


def log_loss_by_hand(z: Any, y: Any) -> Any:
    e = np.exp(-np.abs(z))
    return np.sum(np.maximum(z, 0.0) + np.log1p(e) - y * z), np.where(z < 0, e, 1.0) / (1 + e) - y


def logistic_by_hand(X: Any, y: Any, w: Any) -> Any:
    value, of_z = log_loss_by_hand(X @ w, y)
    return value, X.T @ of_z


def robust(np: Any, X: Any, y: Any, w: Any) -> Any:
    """Compute the loss of a regression with errors of Student's t distribution."""
    e = y - np.dot(X, w)
    return np.sum(2.5 * np.log1p(e * e / 4.0))


def robust_by_hand(X: Any, y: Any, w: Any) -> Any:
    e = y - X @ w
    q = e * e / 4.0
    return np.sum(2.5 * np.log1p(q)), X.T @ (-1.25 * e / (1 + q))


def network(np: Any, X: Any, y: Any, w: Any) -> Any:
    """Compute the loss of a network with one hidden layer."""
    return log_loss(np, np.dot(np.tanh(np.dot(X, w["hidden"]) + w["bias"]), w["out"]), y)


def network_by_hand(X: Any, y: Any, w: Any) -> Any:
    h = np.tanh(X @ w["hidden"] + w["bias"])
    value, of_z = log_loss_by_hand(h @ w["out"], y)
    of_h = np.outer(of_z, w["out"]) * (1 - h * h)
    return value, {"hidden": X.T @ of_h, "bias": of_h.sum(0), "out": h.T @ of_z}


def recurrent(np: Any, X: Any, y: Any, w: Any) -> Any:
    """Compute a recurrent network, whose steps are the columns: many operators on small arrays."""
    h = np.tanh(np.dot(X[:, :1], w["in"]))
    for t in range(1, FEATURES):
        h = np.tanh(np.dot(h, w["state"]) + np.dot(X[:, t:t + 1], w["in"]))
    return log_loss(np, np.dot(h, w["out"]), y)


def recurrent_by_hand(X: Any, y: Any, w: Any) -> Any:
    states = [np.tanh(X[:, :1] @ w["in"])]
    for t in range(1, FEATURES):
        states.append(np.tanh(states[-1] @ w["state"] + X[:, t:t + 1] @ w["in"]))
    value, of_z = log_loss_by_hand(states[-1] @ w["out"], y)
    of_h, of_state, of_in = np.outer(of_z, w["out"]), np.zeros_like(w["state"]), np.zeros_like(w["in"])
    for t in range(FEATURES - 1, -1, -1):
        of_sum = of_h * (1 - states[t] * states[t])
        of_in += X[:, t:t + 1].T @ of_sum
        if t:
            of_state += states[t - 1].T @ of_sum
            of_h = of_sum @ w["state"].T
    return value, {"in": of_in, "state": of_state, "out": states[-1].T @ of_z}


def least_of_logistic(X: Any, y: Any, w: Any) -> Any:
    return np.sum(np.log1p(np.exp(X @ w))), X.T @ y


def least_of_robust(X: Any, y: Any, w: Any) -> Any:
    e = X @ w
    return np.sum(np.log1p(e * e)), X.T @ y


def least_of_network(X: Any, y: Any, w: Any) -> Any:
    h = np.tanh(X @ w["hidden"])
    return np.sum(np.log1p(np.exp(h @ w["out"]))), {"hidden": X.T @ h, "bias": w["bias"], "out": h.T @ y}


def least_of_recurrent(X: Any, y: Any, w: Any) -> Any:
    h = np.tanh(X * w["in"])
    of_state = np.zeros_like(w["state"])
    for _ in range(FEATURES - 1):
        before, h = h, np.tanh(h @ w["state"])
        of_state += before.T @ h
        h @ w["state"].T
    return np.sum(np.log1p(np.exp(h @ w["out"]))), {"in": w["in"], "state": of_state, "out": h.T @ y}


RECURRENT = {"in": np.full((1, 8), 0.1), "state": 0.3 * RANDOM.standard_normal((8, 8)),
             "out": RANDOM.standard_normal(8)}
NETWORK = {"hidden": RANDOM.standard_normal((FEATURES, 8)), "bias": np.zeros(8), "out": RANDOM.standard_normal(8)}
PROGRAMS = {
    "logistic regression": Program(logistic, logistic_by_hand, least_of_logistic, np.full(FEATURES, 0.1)),
    "robust regression": Program(robust, robust_by_hand, least_of_robust, np.full(FEATURES, 0.1)),
    "network": Program(network, network_by_hand, least_of_network, NETWORK),
    "recurrent network": Program(recurrent, recurrent_by_hand, least_of_recurrent, RECURRENT, (100, 1_000)),
}


def local_steps(value_and_grad: Callable[..., Any], X: Any, y: Any, w: Any) -> Any:
    """Make gradient steps on the batches of a chunk from given weights. Return the sum of losses, and the last weights.
    """
    total = 0.0
    for start in range(0, len(X), BATCH):
        value, gradient = value_and_grad(X[start:start + BATCH], y[start:start + BATCH], w)
        w = {name: w[name] - 0.01 * gradient[name] for name in w} if isinstance(w, dict) else w - 0.01 * gradient
        total += value
    return total, w


def our_local_steps(value_and_grad: Callable[..., Any], X: Any, y: Any, w: Any) -> Any:
    """Make these steps as a loop of the compiled function."""
    def step(w: Any, batch: Any) -> Any:
        value, gradient = value_and_grad(*batch, w)
        return ({name: w[name] - 0.01 * gradient[name] for name in w} if isinstance(w, dict)
                else w - 0.01 * gradient), value

    n = len(X) // BATCH
    w, values = scan(step, w, (pnp.reshape(X, (n, BATCH, -1)), pnp.reshape(y, (n, BATCH))))
    return pnp.sum(values), w


class Times(NamedTuple):
    """Seconds of passes, and of their runs alone, by rounds."""

    whole: list[float]
    run: list[float]


class Contest(NamedTuple):
    """One row: what each library does with a chunk, its weights, and what they need at least, if that is known."""

    name: str
    n_rows: int
    ours: Callable[..., Any]
    theirs: dict[str, Callable[..., Any]]
    least: Callable[..., Any] | None
    weights: Any


def contests() -> Iterator[Contest]:
    """Yield all rows."""
    for name, program in PROGRAMS.items():
        loss = program.loss
        ours = func.value_and_grad(lambda X, y, w, loss=loss: loss(pnp, X, y, w), argnums=2)
        theirs = {HIPS: autograd.value_and_grad(lambda X, y, w, loss=loss: loss(anp, X, y, w), argnum=2),
                  BY_HAND: program.by_hand}
        for n_rows in program.sizes:
            yield Contest(name, n_rows, ours, theirs, program.least, program.weights)
        yield Contest(
            f"{name}, local steps", 10_000, lambda X, y, w, ours=ours: our_local_steps(ours, X, y, w),
            {peer: lambda X, y, w, each=each: local_steps(each, X, y, w) for peer, each in theirs.items()},
            None, program.weights)


def added(parts: list[Any]) -> Any:
    """Return the sum of some (value, gradient)."""
    first, *rest = parts
    for part in rest:
        first = (first[0] + part[0], {name: first[1][name] + part[1][name] for name in first[1]}
                 if isinstance(first[1], dict) else first[1] + part[1])
    return first


def under_dask(function: Callable[..., Any], X: Any, y: Any, w: Any) -> Any:
    """Build a graph of one task per chunk, and of sums of eight."""
    weights = delayed(w, traverse=False)
    parts = [delayed(function)(rows, labels, weights)
             for rows, labels in zip(X.to_delayed().ravel(), y.to_delayed(), strict=True)]
    while len(parts) > 1:
        parts = [delayed(added)(parts[i:i + 8]) for i in range(0, len(parts), 8)]
    return parts[0]


def tabulate(name: str = "") -> None:
    """Print the rows whose program has this in its name, and mark ratios below their bounds."""
    print(f"{'our throughput over theirs':45}{'ours':>12}{'HIPS autograd':>26}{'by hand':>18}")
    print(f"{'program':36}{'rows':>9}{'pass':>12}{'pass':>10}{'run':>8}{'at most':>8}{'pass':>10}{'run':>8}")
    for contest in contests():
        if name not in contest.name:
            continue
        X = RANDOM.standard_normal((CHUNKS * contest.n_rows, FEATURES))
        y = (RANDOM.random(len(X)) < 0.5).astype(float)
        passes = passes_of(contest, X, y)
        check({peer: passes[peer]() for peer in (OURS, *contest.theirs)})
        times = timed(passes)
        print(f"{contest.name:36}{contest.n_rows:>9,}{len(X) / median(times[OURS].whole) / 1e6:>8.1f} M/s"
              f"{shown(times, HIPS, 'whole'):>10}{shown(times, HIPS, 'run'):>8}"
              f"{at_most(times) if contest.least else '':>8}"
              f"{shown(times, BY_HAND, 'whole'):>10}{shown(times, BY_HAND, 'run'):>8}", flush=True)


def passes_of(contest: Contest, X: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """Return for each library a function that describes a pass over chunks in memory."""
    rows, labels = (dask.persist(da.from_array(array, chunks=(contest.n_rows, *array.shape[1:])),
                                 scheduler="sync")[0] for array in (X, y))
    others = contest.theirs | ({LEAST: contest.least} if contest.least else {})
    return {OURS: lambda: map_chunks(contest.ours, rows, labels, contest.weights, reduce="sum")} | {
        peer: lambda each=each: under_dask(each, rows, labels, contest.weights) for peer, each in others.items()}


def shown(times: dict[str, Times], peer: str, part: str) -> str:
    """Show our throughput over that of another."""
    ratio = median(map(truediv, getattr(times[peer], part), getattr(times[OURS], part)))
    return f"{ratio:.2f}{'' if ratio >= BOUNDS[peer] else '<'}"


def at_most(times: dict[str, Times]) -> str:
    """Show the throughput of the least possible work over that of HIPS autograd."""
    return f"{median(map(truediv, times[HIPS].run, times[LEAST].run)):.2f}"


def check(tasks: dict[str, Any]) -> None:
    """Check that all compute the same."""
    found = {name: dask.compute(task, scheduler="sync")[0] for name, task in tasks.items()}
    value, gradient = found[OURS]
    for other_value, other_gradient in found.values():
        np.testing.assert_allclose(other_value, value, rtol=1e-8)
        for part in gradient if isinstance(gradient, dict) else [...]:
            np.testing.assert_allclose(other_gradient[part], gradient[part], rtol=1e-6, atol=1e-8)


def timed(passes: dict[str, Callable[[], Any]]) -> dict[str, Times]:
    """Return seconds of the processor for each, in rounds."""
    times = {name: Times([], []) for name in passes}
    for number in range(ROUNDS):
        for name in list(passes)[::1 if number % 2 else -1]:
            start = time.process_time()
            graph = passes[name]()
            described = time.process_time()
            dask.compute(graph, scheduler="sync")
            end = time.process_time()
            times[name].whole.append(end - start)
            times[name].run.append(end - described)
    return times


if __name__ == "__main__":
    on_one_core()
    tabulate(*sys.argv[1:])
