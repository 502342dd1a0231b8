"""Gradients over the chunks of Dask arrays: `map_chunks`, beside HIPS autograd and gradients by hand in NumPy.

    python benchmarks/dask_gradients.py [PROGRAM]           all programs, or one; a few sizes of chunks

Each row is the value of a program and its gradient by the parameters, summed over chunks that are in memory. All three
run as one task per chunk and a tree of sums, on Dask's synchronous scheduler and one core, so times are those of the
processor: Dask's own part is in them, other programs of the machine are not. The results are compared before they are
timed. The three take turns; a ratio is the median over rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from operator import truediv
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
BOUNDS = {"HIPS autograd": 5.0, "by hand": 0.9}     # so many times our throughput over theirs
FEATURES = 8
BATCH = 25      # rows of one local step


class Program(NamedTuple):
    """A loss of some rows, `loss(namespace, X, y, w)`, and the value with the gradient by hand."""

    loss: Callable[..., Any]
    by_hand: Callable[..., Any]
    weights: Any


def logistic(np: Any, X: Any, y: Any, w: Any) -> Any:
    """Logistic regression."""
    return log_loss(np, np.dot(X, w), y)


def log_loss(np: Any, z: Any, y: Any) -> Any:
    """As NumPy computes it fastest; `logaddexp` takes twice as long."""
    return np.sum(np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z))) - y * z)


def log_loss_by_hand(z: Any, y: Any) -> Any:
    e = np.exp(-np.abs(z))
    return np.sum(np.maximum(z, 0.0) + np.log1p(e) - y * z), np.where(z < 0, e, 1.0) / (1 + e) - y


def logistic_by_hand(X: Any, y: Any, w: Any) -> Any:
    value, of_z = log_loss_by_hand(X @ w, y)
    return value, X.T @ of_z


def robust(np: Any, X: Any, y: Any, w: Any) -> Any:
    """Regression with errors of Student's t distribution."""
    e = y - np.dot(X, w)
    return np.sum(2.5 * np.log1p(e * e / 4.0))


def robust_by_hand(X: Any, y: Any, w: Any) -> Any:
    e = y - X @ w
    q = e * e / 4.0
    return np.sum(2.5 * np.log1p(q)), X.T @ (-1.25 * e / (1 + q))


def network(np: Any, X: Any, y: Any, w: Any) -> Any:
    """One hidden layer."""
    return log_loss(np, np.dot(np.tanh(np.dot(X, w["hidden"]) + w["bias"]), w["out"]), y)


def network_by_hand(X: Any, y: Any, w: Any) -> Any:
    h = np.tanh(X @ w["hidden"] + w["bias"])
    value, of_z = log_loss_by_hand(h @ w["out"], y)
    of_h = np.outer(of_z, w["out"]) * (1 - h * h)
    return value, {"hidden": X.T @ of_h, "bias": of_h.sum(0), "out": h.T @ of_z}


NETWORK = {"hidden": RANDOM.standard_normal((FEATURES, 8)), "bias": np.zeros(8), "out": RANDOM.standard_normal(8)}
PROGRAMS = {
    "logistic regression": Program(logistic, logistic_by_hand, np.full(FEATURES, 0.1)),
    "robust regression": Program(robust, robust_by_hand, np.full(FEATURES, 0.1)),
    "network": Program(network, network_by_hand, NETWORK),
}


def local_steps(value_and_grad: Callable[..., Any], X: Any, y: Any, w: Any) -> Any:
    """Gradient steps on the batches of a chunk, from the same weights: the sum of losses, and where they lead."""
    total = 0.0
    for start in range(0, len(X), BATCH):
        value, gradient = value_and_grad(X[start:start + BATCH], y[start:start + BATCH], w)
        w = {name: w[name] - 0.01 * gradient[name] for name in w} if isinstance(w, dict) else w - 0.01 * gradient
        total += value
    return total, w


def our_local_steps(value_and_grad: Callable[..., Any], X: Any, y: Any, w: Any) -> Any:
    """The same as a loop of the compiled function."""
    def step(w: Any, batch: Any) -> Any:
        value, gradient = value_and_grad(*batch, w)
        return ({name: w[name] - 0.01 * gradient[name] for name in w} if isinstance(w, dict)
                else w - 0.01 * gradient), value

    n = len(X) // BATCH
    w, values = scan(step, w, (pnp.reshape(X, (n, BATCH, -1)), pnp.reshape(y, (n, BATCH))))
    return pnp.sum(values), w


class Contest(NamedTuple):
    """One row: what each library does with a chunk, and its weights."""

    name: str
    n_rows: int
    ours: Callable[..., Any]
    theirs: dict[str, Callable[..., Any]]
    weights: Any


def contests() -> Iterator[Contest]:
    """All rows."""
    for name, program in PROGRAMS.items():
        loss = program.loss
        ours = func.value_and_grad(lambda X, y, w, loss=loss: loss(pnp, X, y, w), argnums=2)
        theirs = {"HIPS autograd": autograd.value_and_grad(lambda X, y, w, loss=loss: loss(anp, X, y, w), argnum=2),
                  "by hand": program.by_hand}
        for n_rows in (10_000, 100_000):
            yield Contest(name, n_rows, ours, theirs, program.weights)
        yield Contest(
            f"{name}, local steps", 10_000, lambda X, y, w, ours=ours: our_local_steps(ours, X, y, w),
            {peer: lambda X, y, w, each=each: local_steps(each, X, y, w) for peer, each in theirs.items()},
            program.weights)


def added(parts: list[Any]) -> Any:
    """The sum of some (value, gradient)."""
    first, *rest = parts
    for part in rest:
        first = (first[0] + part[0], {name: first[1][name] + part[1][name] for name in first[1]}
                 if isinstance(first[1], dict) else first[1] + part[1])
    return first


def under_dask(function: Callable[..., Any], X: Any, y: Any, w: Any) -> Any:
    """A graph of one task per chunk, and of sums of eight."""
    weights = delayed(w, traverse=False)
    parts = [delayed(function)(rows, labels, weights)
             for rows, labels in zip(X.to_delayed().ravel(), y.to_delayed(), strict=True)]
    while len(parts) > 1:
        parts = [delayed(added)(parts[i:i + 8]) for i in range(0, len(parts), 8)]
    return parts[0]


def tabulate(name: str = "") -> None:
    """Print the rows whose program has this in its name; a ratio below its bound is marked."""
    print(f"{'program':36}{'rows':>9}{'ours':>12}{'HIPS autograd':>16}{'by hand':>10}   (our throughput over theirs)")
    for contest in contests():
        if name not in contest.name:
            continue
        X = RANDOM.standard_normal((CHUNKS * contest.n_rows, FEATURES))
        y = (RANDOM.random(len(X)) < 0.5).astype(float)
        rows, labels = (dask.persist(da.from_array(array, chunks=(contest.n_rows, *array.shape[1:])),
                                     scheduler="sync")[0] for array in (X, y))
        tasks = {"ours": map_chunks(contest.ours, rows, labels, contest.weights, reduce="sum")} | {
            peer: under_dask(each, rows, labels, contest.weights) for peer, each in contest.theirs.items()}
        check(tasks)
        times = timed(tasks)
        ratios = {peer: statistics.median(map(truediv, times[peer], times["ours"])) for peer in contest.theirs}
        per_second = len(X) / statistics.median(times["ours"])
        shown = [f"{ratio:.2f}{'' if ratio >= BOUNDS[peer] else ' <'}" for peer, ratio in ratios.items()]
        print(f"{contest.name:36}{contest.n_rows:>9,}{per_second / 1e6:>8.1f} M/s{shown[0]:>16}{shown[1]:>10}",
              flush=True)


def check(tasks: dict[str, Any]) -> None:
    """All compute the same."""
    found = {name: dask.compute(task, scheduler="sync")[0] for name, task in tasks.items()}
    value, gradient = found["ours"]
    for other_value, other_gradient in found.values():
        np.testing.assert_allclose(other_value, value, rtol=1e-8)
        for part in gradient if isinstance(gradient, dict) else [...]:
            np.testing.assert_allclose(other_gradient[part], gradient[part], rtol=1e-6, atol=1e-8)


def timed(tasks: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of the processor for each, in rounds."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(ROUNDS):
        for name in list(tasks)[::1 if number % 2 else -1]:
            start = time.process_time()
            dask.compute(tasks[name], scheduler="sync")
            times[name].append(time.process_time() - start)
    return times


if __name__ == "__main__":
    on_one_core()
    tabulate(*sys.argv[1:])
