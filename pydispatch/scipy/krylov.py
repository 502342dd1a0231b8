"""Iterative methods for a batch of linear systems. Each example is done when its own residual is small.

`product` takes and returns an array of vectors along the last axis. `refuse(options, problem, bad)` raises for
examples that are not solved.
"""

# tests: tests/scipy/test_implicit.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Product = Callable[[Any], Any]
Refuse = Callable[[dict[str, Any], str, Any], None]
RESTART = 30


def _dot(left: Any, right: Any) -> Any:
    return np.einsum("...i,...i->...", left.conj(), right)


def _tolerances(b: Any, options: dict[str, Any]) -> Any:
    return np.maximum(options["rtol"] * np.linalg.norm(b, axis=-1), options["atol"])


def _limit(b: Any, options: dict[str, Any]) -> int:
    return int(options["maxiter"] or 10 * b.shape[-1])


def _divided(left: Any, right: Any) -> Any:
    """Divide, with 0 for a divisor of 0."""
    return np.divide(left, right, out=np.zeros_like(left), where=right != 0)


def conjugate_gradients(product: Product, b: Any, options: dict[str, Any], refuse: Refuse) -> Any:
    """Solve positive definite systems by conjugate gradients, starting from zeros."""
    x, r, p = np.zeros_like(b), b, b
    tolerances = _tolerances(b, options)
    rho = _dot(r, r)
    for _ in range(_limit(b, options)):
        active = ~(np.sqrt(rho.real) <= tolerances)
        if not active.any():
            return x
        q = product(p)
        _check_product(q, options, refuse)
        curvature = _dot(p, q)
        refused = active & ~(curvature.real > 0)
        if refused.any():
            refuse(options, "the matrix is not positive definite, which cg requires", refused)
        alpha = np.where(active, _divided(rho, curvature), 0)[..., None]
        x, r = x + alpha * p, r - alpha * q
        new = _dot(r, r)
        p = r + np.where(active, _divided(new, rho), 0)[..., None] * p
        rho = new
    _check_converged(np.sqrt(rho.real), tolerances, "cg", options, refuse, _limit(b, options))
    return x


def gmres(product: Product, b: Any, options: dict[str, Any], refuse: Refuse) -> Any:
    """Solve general systems by restarted GMRES, starting from zeros."""
    x, r = np.zeros_like(b), b
    tolerances = _tolerances(b, options)
    n_left = limit = _limit(b, options)
    while True:
        norms = np.linalg.norm(r, axis=-1)
        if (norms <= tolerances).all() or n_left <= 0:
            break
        step, taken = _cycle(product, r, tolerances, min(RESTART, b.shape[-1], n_left), options, refuse)
        x = x + np.where(norms <= tolerances, 0, 1)[..., None] * step
        r = b - product(x)
        n_left -= taken
    _check_converged(norms, tolerances, "gmres", options, refuse, limit)
    return x


def _cycle(
    product: Product, r: Any, tolerances: Any, n_steps: int, options: dict[str, Any], refuse: Refuse
) -> tuple[Any, int]:
    """Return the step that minimizes the residual over a Krylov space, and the number of products."""
    beta = np.linalg.norm(r, axis=-1)
    basis = [_divided(r, beta[..., None].astype(r.dtype))]
    h = np.zeros((*beta.shape, n_steps + 1, n_steps), r.dtype)
    for j in range(n_steps):
        w = product(basis[j])
        _check_product(w, options, refuse)
        for _ in range(2):                  # the second pass removes rounding errors of the first
            for i, v in enumerate(basis):
                part = _dot(v, w)
                h[..., i, j] += part
                w = w - part[..., None] * v
        h[..., j + 1, j] = np.linalg.norm(w, axis=-1)
        basis.append(_divided(w, h[..., j + 1, j, None]))
        q, triangle = np.linalg.qr(h[..., : j + 2, : j + 1], mode="complete")
        target = q[..., 0, :].conj() * beta[..., None]
        if (np.abs(target[..., -1]) <= 0.5 * tolerances).all():
            break
    weights = _back_substituted(triangle[..., :-1, :], target[..., :-1])
    return np.einsum("...j,j...i->...i", weights, np.stack(basis[:-1])), j + 1


def _back_substituted(triangle: Any, target: Any) -> Any:
    """Solve triangular systems, with 0 for rows of zeros."""
    n = target.shape[-1]
    x = np.zeros_like(target)
    scale = np.abs(triangle).max(axis=(-1, -2), initial=0)
    for i in reversed(range(n)):
        rest = target[..., i] - np.einsum("...j,...j->...", triangle[..., i, i + 1:], x[..., i + 1:])
        pivot = triangle[..., i, i]
        pivot = np.where(np.abs(pivot) > 1e-14 * scale, pivot, 0)
        x[..., i] = _divided(rest, pivot)
    return x


def _check_product(found: Any, options: dict[str, Any], refuse: Refuse) -> None:
    bad = ~np.isfinite(found).all(axis=-1)
    if bad.any():
        refuse(options, "the product with a vector has infs or NaNs", bad)


def _check_converged(
    norms: Any, tolerances: Any, method: str, options: dict[str, Any], refuse: Refuse, limit: int
) -> None:
    bad = ~(norms <= tolerances)
    if bad.any():
        worst = norms[tuple(np.argwhere(bad)[0])]
        refuse(options, f"{method} has not converged after {limit} iterations, the residual is {worst:.2g}", bad)
