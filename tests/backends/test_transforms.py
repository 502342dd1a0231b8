"""Gradients, batches, tangents, modes and traces of arrays whose library only their own functions can read.

LoneArrays have no methods and no operators, and refuse to be read by NumPy, so that whatever computes with them calls
an operator of ours.
"""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import DispatchMode, Tensor, func
from pydispatch.autograd import backward
from pydispatch.func import functionalize
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.backends.lone import LoneArray
from tests.together import together

RNG = np.random.default_rng(16)
X, Y, W = RNG.normal(size=(8, 3)), (RNG.random(8) > 0.5).astype(float), RNG.normal(size=3)


def logistic(w, x, y):
    z = pnp.matmul(x, w)
    return pnp.mean(pnp.log1p(pnp.exp(-z)) + (1 - y) * z)


def network(w, x, y):
    h = pnp.tanh(x * w)
    h = pnp.where(h > 0, h, 0.1 * h)
    return pnp.sum((pnp.max(h, axis=1) - y) ** 2) + pnp.var(h) + pnp.sum(pnp.sort(h[:, 0])[1:3])


def shapes(w, x, y):
    parts = pnp.concatenate([x * w, pnp.reshape(x, (3, 8)).T], axis=1)
    picked = parts[[0, 3, 3]]
    return pnp.sum(pnp.expand_dims(picked, 1) / (2 + pnp.moveaxis(picked, 0, 1)[0, :3, None] ** 2)) * pnp.std(y)


PROGRAMS = {"logistic": logistic, "network": network, "shapes": shapes}
TRANSFORMS = {
    "value": lambda f: lambda *args: f(*map(as_tensor, args)),
    "grad": lambda f: func.grad(f, argnums=(0, 1)),
    "value_and_grad": func.value_and_grad,
    "jvp": lambda f: lambda *args: func.jvp(f, args, args),
    "vjp": lambda f: lambda *args: func.vjp(f, *args)[1](pnp.ones_like(f(*map(as_tensor, args)))),
    "hessian": func.hessian,
    "jacrev": func.jacrev,
    "vmap of grad": lambda f: func.vmap(func.grad(lambda w, x, y: f(w, x, y)), in_dims=(0, None, None)),
    "grad of vmap": lambda f: func.grad(lambda w, x, y: pnp.sum(func.vmap(lambda v: f(v, x, y))(w))),
    "grad of grad": lambda f: func.grad(lambda w, x, y: pnp.sum(func.grad(f)(w, x, y) ** 2)),
    "eager": lambda f: lambda *args: eager(f, *args),
    "mode": lambda f: lambda *args: under_mode(f, *args),
    "make_fx": lambda f: lambda *args: make_fx(func.grad(f))(*args)(*args),
    "functionalize": lambda f: functionalize(func.grad(f)),
}
BATCHES = [name for name in TRANSFORMS if "vmap" in name]


def as_tensor(value):
    return value if isinstance(value, Tensor) else Tensor(value)


def eager(f, w, x, y):
    w = Tensor(w, requires_grad=True)
    backward(f(w, Tensor(x), Tensor(y)))
    return w.grad


def under_mode(f, *args):
    with Watching() as mode:
        found = func.grad(f)(*args)
    assert len(mode.seen) > 10
    return found


class Watching(DispatchMode):
    def __init__(self):
        self.seen = []

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def plain(leaf):
    """Return the arrays in a result, and LoneArrays where they were passed."""
    leaf = leaf.array if isinstance(leaf, Tensor) else leaf
    return leaf.hidden if isinstance(leaf, LoneArray) else leaf


@pytest.mark.parametrize("program", PROGRAMS)
@together("transform", TRANSFORMS)
def test_a_program_computes_what_it_does_on_numpys_arrays(program, transform):
    transformed = TRANSFORMS[transform](PROGRAMS[program])
    w = np.stack([W, 2 * W]) if transform in BATCHES else W
    expected = tree_leaves(tree_map(plain, transformed(w, X, Y)))
    found = tree_leaves(transformed(*map(LoneArray, (w, X, Y))))
    assert not [leaf for leaf in found if isinstance(leaf, np.ndarray)]
    for one, other in zip(map(plain, found), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
