"""linear_solve and the implicit function theorem: every transform against NumPy's dense solution."""

from __future__ import annotations

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.func import grad, jacfwd, jacrev, jvp, linearize, vmap
from pydispatch.scipy.optimize import linear_solve
from tests.higher_order import compositions

RANDOM = np.random.default_rng(0)
B = RANDOM.normal(size=3)
BATCH = RANDOM.normal(size=(3, 3))
FIXED = RANDOM.normal(size=(3, 3)) + 3 * np.eye(3)


def column(x):
    return ops.np.reshape(x, (-1, 1))


def general(x):
    """A matrix that depends on x, and is not symmetric."""
    return FIXED + column(ops.np.sin(x)) * ops.np.cos(x + 1.0)


def definite(x):
    v = ops.np.cos(x)
    return np.diag([2.0, 3.0, 4.0]) + column(v) * v


def direct(matrix):
    return lambda x: ops.np.linalg_solve(matrix(x), x)


def solving(matrix, method):
    def program(x):
        m = matrix(x)
        return linear_solve(lambda v: m @ v, x, method=method, rtol=1e-14)
    return program


def with_fixed_matrix(x):
    return linear_solve(lambda v: FIXED @ v, ops.np.sin(x), rtol=1e-14)


TestCompositions = compositions.tests_of({
    "cg": (solving(definite, "cg"), direct(definite)),
    "gmres": (solving(general, "gmres"), direct(general)),
    "dense": (solving(general, "dense"), direct(general)),
    "fixed_matrix": (with_fixed_matrix, lambda x: ops.np.linalg_solve(FIXED, ops.np.sin(x))),
}, (B,), BATCH)
