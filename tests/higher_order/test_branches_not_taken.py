"""A branch or a step that an example does not take has no part in its value or its derivatives.

The oracle is a loop over the examples, each of which runs only what it takes.
"""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import compile
from pydispatch.func import grad, hessian, jacfwd, jvp, vmap
from pydispatch.higher_order import cond, while_loop
from pydispatch.tree import tree_leaves

BATCHES = {
    "mixed": np.array([4.0, -1.0, 9.0, 0.0]), "none": np.array([-1.0, -2.0, -0.5, 0.0]),
    "all": np.array([1.0, 2.0, 3.0, 4.0]),
}


def of_cond(x, w):
    """Return a cond whose first branch is out of its domain at and below 0, in its values and in its slopes."""
    return cond(x > 0, lambda x, w: pnp.sqrt(x) * w + pnp.log(x * w) / x, lambda x, w: x * x * w, (x, w))


def of_cond_that_captures(x, w):
    return cond(x > 0, lambda x: pnp.sqrt(x * w) + w / x, lambda x: x * 0 + w, (x,))


def of_nested_conds(x, w):
    def positive(x):
        return cond(x > 3, lambda x: pnp.sqrt(x - 3) * w, lambda x: pnp.log(x) / x * w, (x,))

    return cond(x > 0, positive, lambda x: x * w, (x,))


def of_while(x, w):
    """Return a while_loop whose root is out of its domain for finished examples."""
    return while_loop(lambda total, v: v > 1, lambda total, v: (total + w * pnp.sqrt(v - 1), v * w - 1), (0.0, x))[0]


def of_matrices(x, w):
    """Return a program where a factor of Cholesky raises an error if there is none."""
    matrix = pnp.array([[2.0, 0.5], [0.5, 1.0]]) * x
    return cond(x > 0, lambda m: pnp.linalg.cholesky(m).sum() * w, lambda m: m.sum() * w, (matrix,))


FUNCTIONS = [(of_cond, 2.0), (of_cond_that_captures, 2.0), (of_nested_conds, 1.5), (of_while, 0.5), (of_matrices, 2.0)]

TRANSFORMS = {
    "grad": lambda f: grad(f, argnums=(0, 1)), "hessian": lambda f: hessian(f, argnums=(0, 1)),
    "jacfwd": lambda f: jacfwd(f, argnums=(0, 1)), "jvp": lambda f: lambda x, w: jvp(f, (x, w), (x * 0 + 1, w * 0 + 1)),
    "grad of grad": lambda f: grad(lambda x, w: grad(f)(x, w).sum(), argnums=(0, 1)),
}


def summed(f, is_batch):
    if is_batch:
        return lambda xs, w: vmap(f, (0, None))(xs, w).sum()
    return lambda xs, w: sum(f(x, w) for x in xs)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("f", "w"), FUNCTIONS)
def test_derivatives_of_a_batch_are_those_of_a_loop(f, w, batch, name):
    transform, xs, w = TRANSFORMS[name], BATCHES[batch], np.array(w)
    if f is of_matrices and batch == "none":        # nobody's operands are in the domain
        return
    with np.errstate(all="raise" if batch != "none" else "ignore"):
        found = transform(summed(f, True))(xs, w)
    with np.errstate(all="ignore"):
        expected = transform(summed(f, False))(xs, w)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert np.all(np.isfinite(one))
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("f", [of_cond, of_cond_that_captures, of_nested_conds])
def test_compiled_gradients_of_a_batch_are_those_of_a_loop(f):
    xs, w = BATCHES["mixed"], np.array(2.0)
    found = compile(grad(summed(f, True), argnums=(0, 1)))(xs, w)
    for one, other in zip(found, grad(summed(f, False), argnums=(0, 1))(xs, w), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_an_empty_batch():
    assert vmap(of_cond, (0, None))(np.zeros(0), np.array(2.0)).shape == (0,)
