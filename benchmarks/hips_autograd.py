"""Gradients of `pydispatch.compat.autograd` beside those of HIPS autograd: `python -m benchmarks.hips_autograd`.

It needs HIPS autograd. The libraries take turns, so that a ratio is the median over rounds of what was timed together.
"""

from __future__ import annotations

import importlib
import statistics
import timeit
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pydispatch.cli.timing import on_one_core

RANDOM = np.random.default_rng(0)
OURS = "pydispatch.compat.autograd"
Case = tuple[Callable[[Any], Any], Any]       # a gradient function, and its argument


def cases(package: str) -> Iterator[tuple[str, Case]]:
    """Yield the gradients by name, small ones first, each by the functions of a package."""
    ag = importlib.import_module(package)
    anp, special, stats = [importlib.import_module(f"{package}.{name}") for name in (
        "numpy", "scipy.special", "scipy.stats")]
    x, points, labels = DATA["x"], DATA["points"], DATA["labels"]

    def rosenbrock(x: Any) -> Any:
        return anp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def logistic(points: Any, labels: Any) -> Callable[[Any], Any]:
        def loss(w: Any) -> Any:
            z = anp.dot(points, w)
            return anp.sum(anp.logaddexp(0.0, z) - labels * z)
        return loss

    def layers(points: Any) -> Callable[[Any], Any]:
        return lambda w: anp.sum(anp.tanh(anp.dot(anp.tanh(anp.dot(points, w[0])), w[1])) ** 2)

    def gaussian_process(t: Any) -> Any:
        apart = (x[:, None] - x) ** 2
        factor = anp.linalg.cholesky(anp.exp(t[0] - 0.5 * apart / anp.exp(t[1])) + anp.exp(t[2]) * np.eye(len(x)))
        white = anp.linalg.solve(factor, x)
        return 0.5 * anp.dot(white, white) + anp.sum(anp.log(anp.diag(factor)))

    def repeated(x: Any) -> Any:
        y = x
        for _ in range(50):
            y = anp.sin(y) * x + y
        return y

    def log_determinant(a: Any) -> Any:
        product = anp.dot(a, a.T) + 100 * np.eye(len(a))
        return anp.sum(anp.log(anp.diag(anp.linalg.cholesky(product))))

    yield "100 calls on a float", (ag.grad(repeated), 0.7)
    yield "sum of squares, 10", (ag.grad(lambda x: anp.sum(x**2)), x)
    yield "Rosenbrock, 10", (ag.grad(rosenbrock), x)
    yield "logistic regression, 50 x 10", (ag.grad(logistic(points, labels)), x)
    yield "two layers, 50 x 10", (ag.grad(layers(points)), DATA["weights"])
    yield "Gaussian process, 10", (ag.grad(gaussian_process), np.array([0.1, 0.2, -1.0]))
    yield "log density, 10", (ag.grad(lambda x: anp.sum(stats.norm.logpdf(x, 0.5, 2.0))), x)
    yield "gammaln, 10", (ag.grad(lambda x: anp.sum(special.gammaln(x))), np.abs(x) + 1)
    yield "Hessian of Rosenbrock, 10", (ag.hessian(rosenbrock), x)
    yield "Jacobian of tanh, 10", (ag.jacobian(lambda x: anp.tanh(anp.dot(DATA["square"], x))), x)
    yield "elementwise, 1e6", (ag.grad(lambda x: anp.sum(anp.sin(x) * anp.exp(-x**2))), DATA["long"])
    yield "Rosenbrock, 1e6", (ag.grad(rosenbrock), DATA["long"])
    yield "logistic regression, 5000 x 200", (ag.grad(logistic(*DATA["many"])), DATA["wide"])
    yield "two layers, 5000 x 200", (ag.grad(layers(DATA["many"][0])), DATA["deep"])
    yield "log determinant, 300", (ag.grad(log_determinant), DATA["matrix"])


DATA: dict[str, Any] = {
    "x": RANDOM.normal(size=10), "points": RANDOM.normal(size=(50, 10)), "labels": RANDOM.integers(0, 2, 50),
    "weights": (RANDOM.normal(size=(10, 20)), RANDOM.normal(size=(20, 3))), "square": RANDOM.normal(size=(10, 10)),
    "long": RANDOM.normal(size=10**6), "many": (RANDOM.normal(size=(5000, 200)), RANDOM.integers(0, 2, 5000)),
    "wide": RANDOM.normal(size=200), "deep": (0.1 * RANDOM.normal(size=(200, 300)), RANDOM.normal(size=(300, 10))),
    "matrix": RANDOM.normal(size=(300, 300)),
}


def measure(ours: Case, theirs: Case, rounds: int = 9) -> tuple[float, float]:
    """Return the microseconds of a call of ours, and the median ratio to theirs."""
    timers = [timeit.Timer(lambda case=case: case[0](case[1])) for case in (ours, theirs)]      # type: ignore[misc]
    for timer in timers:
        timer.timeit(2)
    number = max(1, int(0.02 / max(timers[0].timeit(1), 1e-6)))
    taken = [[timer.timeit(number) / number for timer in timers] for _ in range(rounds)]
    return statistics.median(mine for mine, _ in taken) * 1e6, statistics.median(mine / his for mine, his in taken)


def main() -> None:
    """Print a table."""
    on_one_core()
    warnings.simplefilter("ignore")
    print("| gradient | µs | of HIPS autograd's time |\n|---|---|---|")
    for (name, ours), (_, theirs) in zip(cases(OURS), cases("autograd"), strict=True):
        time, ratio = measure(ours, theirs)
        print(f"| {name} | {time:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
