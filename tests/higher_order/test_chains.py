"""One program with all operators in one another, under every chain of grad, jvp and vmap, against plain Python."""

import itertools

import numpy as np
import pytest

from pydispatch import ops
from pydispatch.func import grad, jvp, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from tests.higher_order.compositions import concrete

WEIGHT = np.array([0.5, -0.3, 0.8])
X = np.array([0.4, -0.7, 1.1])


def program(x):
    """Return a scan whose step captures `w` and holds a cond and a while_loop that capture `w` and a slice."""
    w = ops.np.cos(x) * WEIGHT

    def combine(c, y):
        c = cond((c * y).sum() > 0, lambda c: ops.np.tanh(c * w + y), lambda c: c * 0.5 + w, (c,))
        grown = while_loop(lambda z: (z * z).sum() < 1.0, lambda z: z * 1.5 + y * 0.1, (c,))[0]
        return grown * 0.7, (c * w).sum()

    c, ys = scan(combine, x * 1.0, ops.np.stack([x, w, x * w]))
    return c.sum() * map_slices(lambda y: y * c.sum(), ys).sum()


def program_in_python(x):
    w = ops.np.cos(x) * WEIGHT
    c, ys = x * 1.0, []
    for y in (x, w, x * w):
        c = ops.np.tanh(c * w + y) if concrete((c * y).sum()) > 0 else c * 0.5 + w
        ys.append((c * w).sum())
        while concrete((c * c).sum()) < 1.0:
            c = c * 1.5 + y * 0.1
        c = c * 0.7
    return c.sum() * (ops.np.stack(ys) * c.sum()).sum()


def gradient(f):
    return lambda x: (grad(f)(x) * ops.np.sin(x + 1)).sum()


def derivative(f):
    return lambda x: jvp(f, (x,), (ops.np.cos(x) + 0.3,))[1]


FACTORS = (1.0, 2.0, -1.0)


def examples(x):
    return [x, x * 0.5 - 0.2, ops.np.negative(x)]


def batch(f):
    return lambda x: (vmap(f)(ops.np.stack(examples(x))) * np.array(FACTORS)).sum()


def one_by_one(f):
    return lambda x: sum(f(example) * factor for example, factor in zip(examples(x), FACTORS, strict=True))


STEPS = {"g": (gradient, gradient), "j": (derivative, derivative), "v": (batch, one_by_one)}
CHAINS = ["".join(chain) for n in range(1, 5) for chain in itertools.product("gjv", repeat=n)
          if chain.count("g") + chain.count("j") <= 3]


@pytest.mark.parametrize("chain", CHAINS)
def test_chain(chain):
    found, expected = program, program_in_python
    for step in chain:
        found, expected = STEPS[step][0](found), STEPS[step][1](expected)
    np.testing.assert_allclose(np.asarray(found(X)), np.asarray(expected(X)), rtol=1e-7)
