"""Gradients of loops whose number of steps a trace knows: compared with those that nothing traces."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import compile
from pydispatch.exceptions import DataDependentError
from pydispatch.func import grad, hessian, jacrev, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.tracing import make_fx
from tests.together import together

X = np.array([0.5, -1.0, 2.0])
LIMIT = np.array(3)


def counted(x):
    return while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t * x + pnp.sin(t)), (0, x))[1].sum()


def to_a_captured_limit(x):
    return while_loop(lambda i, t: i < LIMIT * 2, lambda i, t: (i + 1, t * x * i + t), (0, x))[1].sum()


def of_no_step(x):
    return while_loop(lambda i, t: i < 0, lambda i, t: (i + 1, t * x), (0, x * 2))[1].sum()


def by_two_counters(x):
    """Look at one counter, which the other one moves."""
    def body(i, step, t):
        return i + step, step * 2, t * t + x

    return while_loop(lambda i, step, t: i < 20, body, (0, 1, x))[2].sum()


def nested(x):
    def body(i, t):
        return i + 1, while_loop(lambda j, u: j < 2, lambda j, u: (j + 1, u * x), (0, t))[1]

    return while_loop(lambda i, t: i < 3, body, (0, x))[1].sum()


def in_a_scan_and_a_cond(x):
    def combine(c, k):
        more = while_loop(lambda j, u: j < 2, lambda j, u: (j + 1, u * x + k), (0, c))[1]
        return cond(k > 1, lambda c: c * 1, lambda c: c * 2, (more,)), None

    return scan(combine, x, np.arange(3.0))[0].sum()


LOOPS = [counted, to_a_captured_limit, of_no_step, by_two_counters, nested, in_a_scan_and_a_cond]


@pytest.mark.parametrize("transform", [
    grad, lambda f: jacrev(grad(f)), hessian, lambda f: lambda x: vmap(grad(f))(pnp.stack([x, x + 1])),
], ids=["grad", "jacrev of grad", "hessian", "vmap of grad"])
@together("f", LOOPS)
def test_the_gradient_of_a_loop_of_known_length_compiles(f, transform):
    expected = transform(f)(X)
    np.testing.assert_allclose(compile(transform(f))(X), expected, rtol=1e-12)
    np.testing.assert_allclose(make_fx(transform(f), tracing_mode="fake")(X)(X), expected, rtol=1e-12)


@pytest.mark.parametrize("f", LOOPS)
def test_the_gradient_of_a_compiled_loop_of_known_length(f):
    np.testing.assert_allclose(grad(compile(f))(X), grad(f)(X), rtol=1e-12)


def until_large(x):
    return while_loop(lambda t: t.sum() < 100, lambda t: (t * 2,), (x,))[0].sum()


def to_a_limit_that_is_an_argument(x):
    return while_loop(lambda i, t: i < x.sum(), lambda i, t: (i + 1, t * 2), (0.0, x))[1].sum()


def to_a_drawn_limit(x):
    rng = pnp.random.default_rng(3)
    return while_loop(lambda i, t: i + rng.uniform() < 3, lambda i, t: (i + 1, t * 2), (0.0, x))[1].sum()


def to_a_limit_that_changes(x):
    limit = pnp.zeros(())
    limit[...] = x.sum()
    return while_loop(lambda i, t: i < limit, lambda i, t: (i + 1, t * 2), (0.0, x))[1].sum()


@pytest.mark.parametrize("f", [until_large, to_a_limit_that_is_an_argument, to_a_drawn_limit, to_a_limit_that_changes])
def test_a_length_that_depends_on_data_is_no_constant(f):
    with pytest.raises(DataDependentError, match="number of steps"):
        compile(grad(f))(X)


def test_a_loop_without_a_gradient_stays_a_loop():
    graph = make_fx(counted, tracing_mode="fake")(X)
    assert graph.find_nodes(target=while_loop.operator)
