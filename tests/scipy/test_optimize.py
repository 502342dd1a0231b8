"""root, minimize and fixed_point: values against SciPy, derivatives against closed forms and iterations by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize as reference

from pydispatch import Tensor, ops
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vmap
from pydispatch.scipy.optimize import fixed_point, minimize, root
from tests.higher_order import compositions

X = np.array([0.3, 0.9])
BATCH = np.array([[0.3, 0.9], [0.1, 0.4], [0.8, 0.2]])
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
EXACT = {"xtol": 1e-14}


def kepler(e):
    """The eccentric anomaly at the mean anomaly 1, for each eccentricity."""
    return root(lambda u, e: u - e * ops.np.sin(u) - 1.0, np.ones(2), (e,), options=EXACT).x


def kepler_by_newton(e):
    u = 1.0 + 0.0 * e
    for _ in range(8):
        u = u - (u - e * ops.np.sin(u) - 1.0) / (1.0 - e * ops.np.cos(u))
    return u


def captured_root(p):
    """A quadratic equation, coefficients captured, unknowns in a pytree."""
    scale = ops.np.exp(p)

    def equations(s):
        return {"u": s["u"] * s["u"] - scale, "v": s["v"] - s["u"] * p}

    found = root(equations, {"u": np.ones(2), "v": np.ones(2)}, options=EXACT)
    return found.x["u"], found.x["v"]


def captured_root_by_hand(p):
    u = ops.np.exp(0.5 * p)
    return u, u * p


def quadratic(p):
    return minimize(lambda x: 0.5 * (x * (MATRIX @ x)).sum() - (p * x).sum(), np.zeros(2), method="trust-exact",
                    tol=1e-13).x


def quadratic_by_hand(p):
    return np.linalg.inv(MATRIX) @ p


def convex(p):
    """A minimum of exp(x) - q x, at log(q)."""
    q = p * p + 1.0
    return minimize(lambda x, q: (ops.np.exp(x) - q * x).sum(), np.zeros(2), (q,), tol=1e-13).x


def convex_by_hand(p):
    return ops.np.log(p * p + 1.0)


def square_root(p):
    """Heron's iteration."""
    return fixed_point(lambda x: 0.5 * (x + (p + 1.0) / x), np.ones(2), xtol=1e-14)


def square_root_by_hand(p):
    return ops.np.sqrt(p + 1.0)


def iterated(p):
    return fixed_point(lambda x, p: 0.3 * ops.np.sin(x) + p, np.zeros(2), (p,), xtol=1e-15, method="iteration")


def iterated_by_hand(p):
    x = p * 0.0
    for _ in range(40):
        x = 0.3 * ops.np.sin(x) + p
    return x


TestCompositions = compositions.tests_of({
    "kepler": (kepler, kepler_by_newton),
    "captured_root": (captured_root, captured_root_by_hand),
    "quadratic": (quadratic, quadratic_by_hand),
    "convex": (convex, convex_by_hand),
    "square_root": (square_root, square_root_by_hand),
    "iterated": (iterated, iterated_by_hand),
}, (X,), BATCH)
