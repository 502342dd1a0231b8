"""Gradients of functions of `pydispatch.numpy`, beside the same by hand in NumPy, HIPS autograd and PyTorch.

    python -m benchmarks.numpy_gradients [FUNCTION]         all functions, or one; a few sizes

Each row is value and gradient of `sum(f(x) * weights)` by `x`. The gradients are compared before they are timed. The
libraries take turns, so that a ratio is the median over rounds of what was timed together. The last row is the gradient
of 1,000 solves of 3x3, stacked, beside a loop over them. Peers that are not installed are left out.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import pydispatch.numpy as pnp
from pydispatch.cli.timing import collecting, make_loop, on_one_core, quiet, time_in_rounds
from pydispatch.func import grad

RANDOM = np.random.default_rng(0)
BOUND = 1.3         # over the gradient by hand
BOUND_OF_STACK = 20     # times as fast as a loop


class Case(NamedTuple):
    """A function of one array, as each library spells it, and its gradient by hand."""

    name: str
    x: np.ndarray
    ours: Callable[[Any, Any], Any]         # (namespace, x) -> a number, also with autograd's namespace
    by_hand: Callable[[np.ndarray], np.ndarray]
    torch: Callable[[Any, Any], Any] | None = None      # (torch, x)


def symmetric(n: int) -> np.ndarray:
    a = RANDOM.standard_normal((n, n))
    return a + a.T + np.diag(np.arange(n) * 3.0)


def cases() -> Iterator[Case]:
    """Yield all rows."""
    for n in (4, 100, 1000):
        yield from of_vectors(n)
    for n in (2, 8, 32, 64):
        yield from of_matrices(n)


def of_vectors(n: int) -> Iterator[Case]:
    """Yield functions of a vector of n elements."""
    x, w = RANDOM.standard_normal(n), RANDOM.standard_normal(n)
    kernel = RANDOM.standard_normal(3)
    wide = RANDOM.standard_normal(n + 4)
    full = RANDOM.standard_normal(n + 2)
    points, values = np.linspace(-3, 3, 7), RANDOM.standard_normal(7)

    def sort_by_hand(x: np.ndarray) -> np.ndarray:
        order = np.argsort(x)
        np.sum(x[order] * w)
        g = np.empty_like(x)
        g[order] = w
        return g

    def median_by_hand(x: np.ndarray) -> np.ndarray:
        order = np.argsort(x) if n < 200 else np.argpartition(x, ((n - 1) // 2, n // 2, n - 1))
        middle = order[(n - 1) // 2:n // 2 + 1]
        last = x[order[-1]]
        if last != last:            # nan comes last, and is the median then
            middle = order[-1:]
        np.mean(x[middle])
        g = np.zeros_like(x)
        g[middle] = 1 / len(middle)
        return g

    def pad_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(np.pad(x, 2) * wide)
        return wide[2:-2]

    def convolve_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(np.convolve(x, kernel) * full)
        return np.correlate(full, kernel, "valid")

    def interp_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(np.interp(x, points, values) * w)
        i = np.clip(np.searchsorted(points, x, "right") - 1, 0, len(points) - 2)
        slopes = np.diff(values) / np.diff(points)
        return np.where((x >= points[0]) & (x <= points[-1]), w * slopes[i], 0.0)

    def fft_by_hand(x: np.ndarray) -> np.ndarray:
        y = np.fft.fft(x)
        np.sum(y.real * w + y.imag * w)
        return np.fft.fft(w - 1j * w).real

    yield Case(f"sort {n}", x, lambda np, x: np.sum(np.sort(x) * w), sort_by_hand,
               lambda torch, x: (torch.sort(x)[0] * torch.from_numpy(w)).sum())
    yield Case(f"median {n}", x, lambda np, x: np.median(x), median_by_hand,
               lambda torch, x: torch.quantile(x, 0.5))
    yield Case(f"pad {n}", x, lambda np, x: np.sum(np.pad(x, 2, "constant") * wide), pad_by_hand,
               lambda torch, x: (torch.nn.functional.pad(x, (2, 2)) * torch.from_numpy(wide)).sum())
    yield Case(f"convolve {n}", x, lambda np, x: np.sum(np.convolve(x, kernel) * full), convolve_by_hand,
               lambda torch, x: (torch.nn.functional.conv1d(
                   x[None, None], torch.from_numpy(kernel[::-1].copy())[None, None], padding=2)[0, 0]
                   * torch.from_numpy(full)).sum())
    yield Case(f"interp {n}", x, lambda np, x: np.sum(np.interp(x, points, values) * w), interp_by_hand)
    yield Case(f"fft {n}", x, lambda np, x: (lambda y: np.sum(np.real(y) * w + np.imag(y) * w))(np.fft.fft(x)),
               fft_by_hand,
               lambda torch, x: (lambda y: (y.real * torch.from_numpy(w) + y.imag * torch.from_numpy(w)).sum())(
                   torch.fft.fft(x)))


def of_matrices(n: int) -> Iterator[Case]:
    """Yield functions of an n x n matrix."""
    a, w, v = symmetric(n), RANDOM.standard_normal((n, n)), RANDOM.standard_normal(n)
    b = RANDOM.standard_normal((n, n))
    w = w + w.T

    def einsum_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(np.einsum("ij,jk->ik", x, b) * w)
        return np.einsum("ik,jk->ij", w, b)

    def cov_by_hand(x: np.ndarray) -> np.ndarray:
        apart = x - x.mean(1, keepdims=True)
        np.sum(apart @ apart.T / (n - 1) * w)
        g = (w + w.T) @ apart / (n - 1)
        return g - g.mean(1, keepdims=True)

    def slogdet_by_hand(x: np.ndarray) -> np.ndarray:
        np.linalg.slogdet(x)
        return np.linalg.inv(x).T

    def solve_by_hand(x: np.ndarray) -> np.ndarray:
        y = np.linalg.solve(x, v)
        np.sum(y * v)
        return -np.outer(np.linalg.solve(x.T, v), y)

    def eigh_by_hand(x: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(x)
        np.sum(values * v) + np.sum(vectors * vectors * w)
        g = 2 * vectors * w
        differences = values[None, :] - values[:, None]
        np.fill_diagonal(differences, np.inf)
        middle = vectors.T @ g / differences + np.diag(v)
        g = vectors @ middle @ vectors.T
        return (g + g.T) / 2

    def svd_by_hand(x: np.ndarray) -> np.ndarray:
        u, s, vh = np.linalg.svd(x, full_matrices=False)
        np.sum(s * v) + np.sum(u * u * w)
        g = 2 * u * w
        squares = s[None, :] ** 2 - s[:, None] ** 2
        np.fill_diagonal(squares, np.inf)
        inner = u.T @ g
        return u @ ((inner - inner.T) / squares * s + np.diag(v)) @ vh

    def of_eigh(np: Any, x: Any) -> Any:
        values, vectors = np.linalg.eigh(x)
        return np.sum(values * v) + np.sum(vectors * vectors * w)

    def of_svd(np: Any, x: Any) -> Any:
        u, s, _ = np.linalg.svd(x, full_matrices=False)
        return np.sum(s * v) + np.sum(u * u * w)

    def torch_eigh(torch: Any, x: Any) -> Any:
        values, vectors = torch.linalg.eigh(x)
        return (values * torch.from_numpy(v)).sum() + (vectors * vectors * torch.from_numpy(w)).sum()

    def torch_svd(torch: Any, x: Any) -> Any:
        u, s, _ = torch.linalg.svd(x, full_matrices=False)
        return (s * torch.from_numpy(v)).sum() + (u * u * torch.from_numpy(w)).sum()

    yield Case(f"einsum {n}", a, lambda np, x: np.sum(np.einsum("ij,jk->ik", x, b) * w), einsum_by_hand,
               lambda torch, x: (torch.einsum("ij,jk->ik", x, torch.from_numpy(b)) * torch.from_numpy(w)).sum())
    yield Case(f"cov {n}", a, lambda np, x: np.sum(np.cov(x) * w), cov_by_hand,
               lambda torch, x: (torch.cov(x) * torch.from_numpy(w)).sum())
    yield Case(f"slogdet {n}", a, lambda np, x: np.linalg.slogdet(x)[1], slogdet_by_hand,
               lambda torch, x: torch.linalg.slogdet(x)[1])
    yield Case(f"solve {n}", a, lambda np, x: np.sum(np.linalg.solve(x, v) * v), solve_by_hand,
               lambda torch, x: (torch.linalg.solve(x, torch.from_numpy(v)) * torch.from_numpy(v)).sum())
    yield Case(f"eigh {n}", a, of_eigh, eigh_by_hand, torch_eigh)
    yield Case(f"svd {n}", a, of_svd, svd_by_hand, torch_svd)


def ways(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the gradient by each library that is installed."""
    ours = grad(lambda x: case.ours(pnp, x))
    found: dict[str, Callable[[], Any]] = {"hand": lambda: case.by_hand(case.x), "ours": lambda: ours(case.x)}
    try:
        import autograd
        import autograd.numpy as anp
    except ImportError:
        pass
    else:
        theirs = autograd.grad(lambda x: case.ours(anp, x))
        found["autograd"] = lambda: theirs(case.x)
    try:
        import torch
    except ImportError:
        return found
    if case.torch is not None:
        torch.set_num_threads(1)
        x = torch.from_numpy(case.x.copy()).requires_grad_()
        function = case.torch
        found["torch"] = lambda: torch.autograd.grad(function(torch, x), x)[0].numpy()
    return found


def checked(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the ways that have the function, once their gradients are those by hand."""
    expected, found = case.by_hand(case.x), {}
    for name, run in ways(case).items():
        try:
            result = run()
        except (NotImplementedError, AttributeError, ValueError, TypeError):
            continue
        if name != "torch" or not case.name.startswith("median"):       # which takes another element of a tie
            result = (result + result.T) / 2 if case.name.startswith("eigh") else result
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-8, err_msg=f"{case.name}, {name}")
        found[name] = run
    return found


def timed(runs: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Return microseconds of each, round by round, with the work of the garbage collector."""
    with quiet(), collecting():
        rounds = time_in_rounds([make_loop("run()", {"run": run}) for run in runs.values()], 61, 3.0)
    return {name: [time / 1e3 for time in times] for name, times in zip(runs, zip(*rounds, strict=True), strict=True)}


def ratio(these: list[float], others: list[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return statistics.median(this / other for this, other in zip(these, others, strict=True))


def stacked_solves() -> dict[str, Callable[[], Any]]:
    """Return the gradient of 1,000 solves of 3x3: of the stack, and one by one."""
    a, b = RANDOM.standard_normal((1000, 3, 3)) + 3 * np.eye(3), RANDOM.standard_normal((1000, 3, 1))

    def solved(a: Any, b: Any) -> Any:
        return pnp.sum(pnp.linalg.solve(a, b))

    gradient = grad(solved)
    np.testing.assert_allclose(gradient(a, b), [gradient(one, other) for one, other in zip(a, b, strict=True)])
    return {"stack": lambda: gradient(a, b),
            "loop": lambda: [gradient(one, other) for one, other in zip(a, b, strict=True)]}


def tabulate(
    cases: Iterable[Any], checked: Callable[[Any], dict[str, Callable[[], Any]]], bound: float
) -> list[str]:
    """Print a row for each case, all or those of one function. Return what misses its bound."""
    missed = []
    print(f"{'gradient of':20} {'hand':>9} {'ours':>9} {'ratio':>6} {'autograd':>9} {'torch':>9}   microseconds")
    for case in cases:
        if len(sys.argv) > 1 and case.name.partition(" ")[0] != sys.argv[1]:
            continue
        times = timed(checked(case))
        over_hand = ratio(times["ours"], times["hand"])
        shown = [f"{statistics.median(times[name]):9.1f}" if name in times else f"{'-':>9}"
                 for name in ("hand", "ours", "autograd", "torch")]
        print(f"{case.name:20} {' '.join(shown[:2])} {over_hand:6.2f} {' '.join(shown[2:])}", flush=True)
        if over_hand > bound:
            missed.append(f"{case.name}: {over_hand:.2f} times the one by hand")
        missed += [f"{case.name}: slower than {name}" for name in ("autograd", "torch")
                   if name in times and ratio(times["ours"], times[name]) > 1]
    return missed


def main() -> None:
    """Print the table, and what misses its bound."""
    on_one_core()
    missed = tabulate(cases(), checked, BOUND)
    if len(sys.argv) == 1:
        times = timed(stacked_solves())
        gained = ratio(times["loop"], times["stack"])
        stack = statistics.median(times["stack"])
        print(f"1,000 solves of 3x3: {stack:.0f} stacked, {gained:.0f} times as fast as a loop")
        if gained < BOUND_OF_STACK:
            missed.append(f"1,000 solves of 3x3: {gained:.1f} times as fast as a loop")
    print(f"\n{len(missed)} above their bounds:", *missed, sep="\n  ")


if __name__ == "__main__":
    main()
