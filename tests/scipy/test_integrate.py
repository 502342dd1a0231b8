"""odeint and quad: closed forms, SciPy's values, and every transform against them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import integrate as reference

from pydispatch import Tensor, ops
from pydispatch.exceptions import ConvergenceError, DataDependentError, DispatchTypeError
from pydispatch.func import grad, jacfwd, jacrev, jvp, linearize, vmap
from pydispatch.scipy.integrate import IntegrationWarning, odeint, quad
from tests.higher_order import compositions

X = np.array([0.3, 0.9])
BATCH = np.array([[0.3, 0.9], [0.1, 0.4], [0.8, 0.2]])
TIMES = np.array([0.0, 0.3, 1.0])
FINE = {"rtol": 1e-13, "atol": 1e-13}


def decay(k):
    """dy/dt = -k y from (1, 2)."""
    return odeint(lambda y, t, k: -k * y, np.array([1.0, 2.0]), TIMES, (k,), **FINE)


def decay_by_hand(k):
    return np.array([1.0, 2.0]) * ops.np.exp(-k * TIMES[:, None])


def captured(x):
    """The state is a pytree, it starts from x, and the rate is captured."""
    rate = ops.np.sin(x)
    found = odeint(lambda s, t: {"y": rate * s["y"] * ops.np.cos(t)}, {"y": x + 1.0}, TIMES, **FINE)
    return found["y"]


def captured_by_hand(x):
    return (x + 1.0) * ops.np.exp(ops.np.sin(x) * np.sin(TIMES)[:, None])


def until(x):
    """The times depend on x."""
    t = TIMES[:2] * (x[0] + 1.0) + x[1]
    return odeint(lambda y, t: y * t, np.ones(2), t, **FINE)


def until_by_hand(x):
    t = TIMES[:2] * (x[0] + 1.0) + x[1]
    return ops.np.exp(0.5 * ops.np.reshape(t * t - t[0] * t[0], (-1, 1))) * np.ones(2)


def gaussian(s):
    y, _ = quad(lambda x: ops.np.exp(-(s + 1.0) * x * x), -np.inf, np.inf, epsabs=1e-12, epsrel=1e-12)
    return y


def gaussian_by_hand(s):
    return ops.np.sqrt(np.pi / (s + 1.0))


def between(s):
    """The limits depend on s; the values are a pytree."""
    found, _ = quad(lambda x, s: (ops.np.exp(s[0] * x), s * x), s[0], s[1] + 1.0, (s,), epsabs=1e-13, epsrel=1e-13)
    return found


def between_by_hand(s):
    a, b = s[0], s[1] + 1.0
    return (ops.np.exp(s[0] * b) - ops.np.exp(s[0] * a)) / s[0], s * (b * b - a * a) / 2


class TestOdeint(compositions.tests_of({
    "decay": (decay, decay_by_hand),
    "captured": (captured, captured_by_hand),
    "until": (until, until_by_hand),
}, (X,), BATCH)):
    pass


class TestQuad(compositions.tests_of({
    "gaussian": (gaussian, gaussian_by_hand),
    "between": (between, between_by_hand),
}, (X,), BATCH)):
    pass
