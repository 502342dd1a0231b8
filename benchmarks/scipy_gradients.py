"""Gradients of functions of `pydispatch.scipy`, beside the same by hand in SciPy, HIPS autograd and PyTorch.

    python -m benchmarks.scipy_gradients [FUNCTION]         all functions, or one; a few sizes

Each row is value and gradient of `sum(f(x) * weights)` by `x`. The gradients are compared before they are timed. The
libraries take turns, so that a ratio is the median over rounds of what was timed together. Peers that are not installed
are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.signal
import scipy.special
from numpy_gradients import tabulate

import pydispatch.numpy as pnp
from pydispatch.cli.timing import on_one_core
from pydispatch.func import grad
from pydispatch.scipy import linalg, signal, special

RANDOM = np.random.default_rng(0)
BOUND = 1.2         # over the gradient by hand


class Case(NamedTuple):
    """A function of one array, as each library spells it, and its gradient by hand."""

    name: str
    x: np.ndarray
    ours: Callable[[Any], Any]
    by_hand: Callable[[np.ndarray], np.ndarray]
    autograd: Callable[[Any, Any], Any] | None = None      # (autograd, x), with autograd.numpy and autograd.scipy
    torch: Callable[[Any, Any], Any] | None = None      # (torch, x)


def cases() -> Iterator[Case]:
    """Yield all rows."""
    for n in (4, 100, 1000):
        yield from of_special(n)
        yield from of_signals(n)
    for n in (2, 10, 30):
        yield from of_images(n)
    for n in (4, 16, 32, 64):
        yield from of_triangles(n)


def of_special(n: int) -> Iterator[Case]:
    """Yield special functions of a vector of n elements."""
    x, w = RANDOM.uniform(0.5, 4, n), RANDOM.standard_normal(n)

    def gammaln_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(scipy.special.gammaln(x) * w)
        return w * scipy.special.digamma(x)

    def erf_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(scipy.special.erf(x) * w)
        return w * (2 / math.sqrt(math.pi) * np.exp(-x * x))

    def logsumexp_by_hand(x: np.ndarray) -> np.ndarray:
        largest = x.max()
        powers = np.exp(x - largest)
        total = powers.sum()
        largest + np.log(total)
        return powers / total

    yield Case(f"gammaln {n}", x, lambda x: pnp.sum(special.gammaln(x) * w), gammaln_by_hand,
               lambda autograd, x: autograd.numpy.sum(autograd.scipy.special.gammaln(x) * w),
               lambda torch, x: (torch.special.gammaln(x) * torch.from_numpy(w)).sum())
    yield Case(f"erf {n}", x, lambda x: pnp.sum(special.erf(x) * w), erf_by_hand,
               lambda autograd, x: autograd.numpy.sum(autograd.scipy.special.erf(x) * w),
               lambda torch, x: (torch.special.erf(x) * torch.from_numpy(w)).sum())
    yield Case(f"logsumexp {n}", x, special.logsumexp, logsumexp_by_hand,
               lambda autograd, x: autograd.scipy.special.logsumexp(x),
               lambda torch, x: torch.logsumexp(x, 0))


def of_signals(n: int) -> Iterator[Case]:
    """Yield convolutions of a vector with one of three, by hand in NumPy, which is faster there than SciPy."""
    x, kernel = RANDOM.standard_normal(n), RANDOM.standard_normal(3)

    def in_mode(mode: str, back: str, padding: int) -> Case:
        w = RANDOM.standard_normal(n - 2 + 2 * padding)

        def by_autograd(convolve: Callable[..., Any], x: Any) -> Any:   # it has no mode "same"
            return convolve(x, kernel)[1:-1] if mode == "same" else convolve(x, kernel, mode=mode)

        def convolve_by_hand(x: np.ndarray) -> np.ndarray:
            np.sum(np.convolve(x, kernel, mode) * w)
            return np.correlate(w, kernel, back)

        return Case(
            f"convolve {n} {mode}", x, lambda x: pnp.sum(signal.convolve(x, kernel, mode) * w), convolve_by_hand,
            lambda autograd, x: autograd.numpy.sum(by_autograd(autograd.scipy.signal.convolve, x) * w),
            lambda torch, x: (torch.nn.functional.conv1d(
                x[None, None], torch.from_numpy(kernel[::-1].copy())[None, None], padding=padding)[0, 0]
                * torch.from_numpy(w)).sum())

    yield in_mode("full", "valid", 2)
    yield in_mode("same", "same", 1)
    yield in_mode("valid", "full", 0)


def of_images(n: int) -> Iterator[Case]:
    """Yield convolutions of an n x n matrix with one of 3 x 3."""
    x, kernel, w = [RANDOM.standard_normal((m, m)) for m in (n, 3, n + 2)]

    def convolve_by_hand(x: np.ndarray) -> np.ndarray:
        np.sum(scipy.signal.convolve(x, kernel) * w)
        return scipy.signal.correlate(w, kernel, "valid")

    yield Case(f"convolve {n}x{n}", x, lambda x: pnp.sum(signal.convolve(x, kernel) * w), convolve_by_hand,
               lambda autograd, x: autograd.numpy.sum(autograd.scipy.signal.convolve(x, kernel) * w),
               lambda torch, x: (torch.nn.functional.conv2d(
                   x[None, None], torch.from_numpy(kernel[::-1, ::-1].copy())[None, None], padding=2)[0, 0]
                   * torch.from_numpy(w)).sum())


def of_triangles(n: int) -> Iterator[Case]:
    """Yield functions of a lower triangle of n rows."""
    a, b, w = np.tril(RANDOM.standard_normal((n, n))) + n * np.eye(n), RANDOM.standard_normal(n), RANDOM.random(n)

    def solve_by_hand(x: np.ndarray) -> np.ndarray:
        y = scipy.linalg.solve_triangular(x, b, lower=True)
        np.sum(y * w)
        return -np.tril(np.outer(scipy.linalg.solve_triangular(x, w, 1, lower=True), y))

    yield Case(f"solve_triangular {n}", a, lambda x: pnp.sum(linalg.solve_triangular(x, b, lower=True) * w),
               solve_by_hand,
               lambda autograd, x: autograd.numpy.sum(autograd.scipy.linalg.solve_triangular(x, b, lower=True) * w),
               lambda torch, x: (torch.linalg.solve_triangular(x, torch.from_numpy(b)[:, None], upper=False)[:, 0]
                                 * torch.from_numpy(w)).sum())


def ways(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the gradient by each library that is installed."""
    ours = grad(case.ours)
    found: dict[str, Callable[[], Any]] = {"hand": lambda: case.by_hand(case.x), "ours": lambda: ours(case.x)}
    if case.autograd is not None:
        try:
            import autograd
            import autograd.numpy
            import autograd.scipy.linalg
            import autograd.scipy.signal
            import autograd.scipy.special
        except ImportError:
            pass
        else:
            function = case.autograd
            theirs = autograd.grad(lambda x: function(autograd, x))
            found["autograd"] = lambda: theirs(case.x)
    if case.torch is not None:
        try:
            import torch
        except ImportError:
            return found
        torch.set_num_threads(1)
        x = torch.from_numpy(case.x.copy()).requires_grad_()
        of_torch = case.torch
        found["torch"] = lambda: torch.autograd.grad(of_torch(torch, x), x)[0].numpy()
    return found


def checked(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the ways after checking that their gradients are those by hand."""
    expected, found = case.by_hand(case.x), ways(case)
    for name, run in found.items():
        np.testing.assert_allclose(run(), expected, rtol=1e-6, atol=1e-8, err_msg=f"{case.name}, {name}")
    return found


def main() -> None:
    """Print the table, and what misses its bound."""
    on_one_core()
    missed = tabulate(cases(), checked, BOUND)
    print(f"\n{len(missed)} above their bounds:", *missed, sep="\n  ")


if __name__ == "__main__":
    main()
