"""Compiled functions that draw: derivatives of every order see the draws of the value, which is drawn once.

The oracle is the function itself, by the same transforms: values, derivatives, and the states of all generators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, ops
from pydispatch.exceptions import AutogradError
from pydispatch.higher_order import cond, scan
from pydispatch.library import custom_op
from pydispatch.tree import tree_leaves
from tests.higher_order.test_draws import Sources

X = np.array([0.5, -1.0, 2.0])
BATCH = np.stack([X, X * 2])

# --- functions: each gives a number ----------------------------------------------------------------------------------


def by_operators(x: Any, rngs: Sources) -> Any:
    made = pnp.random.default_rng(3)
    noise = rngs.first.normal(size=3) * made.normal(size=3)
    return (np.sin(x) * x * noise * rngs.second.uniform() + x**3 * rngs.first.normal(size=3) * made.normal()).sum()


def by_writes(x: Any, rngs: Sources) -> Any:
    y = x * 1.0
    y[...] = y * rngs.first.normal(size=3)
    y[1:] *= rngs.second.uniform()
    return (np.sin(y) * x).sum()


def by_cond(x: Any, rngs: Sources) -> Any:
    return cond(x.sum() > 0, lambda h: (h**3 * rngs.first.normal(size=3)).sum(), lambda h: h.sum() * 1, (x,))


def by_scan(x: Any, rngs: Sources) -> Any:
    def step(total: Any, part: Any) -> Any:
        return total + np.sin(part * part) * rngs.first.normal() + total * total * rngs.second.uniform(), None

    return scan(step, x[0] * 1.0, x)[0]


def by_checkpoint(x: Any, rngs: Sources) -> Any:
    inner = autograd.checkpoint(lambda h: h**3 * rngs.first.normal(size=3), x)
    return (inner * np.cos(x) * rngs.second.normal()).sum()


def by_compiled(x: Any, rngs: Sources) -> Any:
    inner = compile(lambda h: h**3 * rngs.first.normal(size=3))
    return (inner(x) * np.sin(inner(x)) * rngs.second.normal(size=3)).sum()


FUNCTIONS = [by_operators, by_writes, by_cond, by_scan, by_checkpoint, by_compiled]

# --- what is asked of them -------------------------------------------------------------------------------------------


def summed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: f(x).sum()


def pulled_twice(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(x: Any) -> Any:
        value, pull = func.vjp(f, x)
        return value, pull(np.float64(1.0)), pull(np.float64(2.0))

    return g


def linearized(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(x: Any) -> Any:
        value, push = func.linearize(f, x)
        return value, push(x), push(2 * x)

    return g


def on_tape(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(x: Any) -> Any:
        leaf = Tensor(x, requires_grad=True)
        value = f(leaf)
        slope, = autograd.grad(value, leaf, create_graph=True)
        second, = autograd.grad(slope.sum(), leaf, retain_graph=True)
        again, = autograd.grad(value, leaf)
        return value.detach(), slope.detach(), second, again

    return g


WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "value_and_grad": func.value_and_grad,
    "grad_grad": lambda f: func.grad(summed(func.grad(f))),
    "grad_grad_grad": lambda f: func.grad(summed(func.grad(summed(func.grad(f))))),
    "values": lambda f: func.value_and_grad(lambda x: sum(map(np.sum, func.value_and_grad(f)(x)))),
    "jvp_grad": lambda f: lambda x: func.jvp(func.grad(f), (x,), (x,)),
    "grad_jvp": lambda f: func.grad(lambda x: func.jvp(f, (x,), (x,))[1]),
    "hessian": func.hessian,
    "vjp_twice": pulled_twice,
    "grad_vjp_twice": lambda f: func.grad(lambda x: sum(map(np.sum, tree_leaves(pulled_twice(f)(x))))),
    "linearize": linearized,
    "linearize_grad": lambda f: linearized(func.grad(f)),
    "grad_linearize": lambda f: func.grad(lambda x: sum(linearized(f)(x))),
    "vmap_grad": lambda f: lambda x: func.vmap(func.grad(f), randomness="different")(BATCH),
    "vmap_grad_grad": lambda f: lambda x: func.vmap(func.grad(summed(func.grad(f))), randomness="different")(BATCH),
    "vmap_grad_grad_same": lambda f: lambda x: func.vmap(func.grad(summed(func.grad(f))), randomness="same")(BATCH),
    "grad_grad_vmap": lambda f: lambda x: func.grad(summed(func.grad(
        lambda batch: func.vmap(f, randomness="different")(batch).sum())))(BATCH),
    "jvp_vmap_grad": lambda f: lambda x: func.jvp(func.vmap(func.grad(f), randomness="different"), (BATCH,), (BATCH,)),
    "grad_grad_checkpoint": lambda f: func.grad(summed(func.grad(lambda x: autograd.checkpoint(f, x)))),
    "tape": on_tape,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives_of_compiled_functions_see_the_draws_of_the_value(function, way):
    def results(wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> tuple[list[Any], list[Any]]:
        rngs = Sources()
        g = WAYS[way](wrapped(lambda x: function(x, rngs)))
        return [np.asarray(leaf) for _ in range(2) for leaf in tree_leaves(g(X))], rngs.states

    expected, states = results(lambda f: f)
    found, states_found = results(compile)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert states_found == states


def test_a_second_derivative_refuses_operators_that_cannot_repeat_their_draws(fresh):
    op = custom_op(f"{fresh.namespace}::jitter", lambda x: x * np.random.default_rng().normal(), mutates_args=(),
                   schema="(Tensor x) -> Tensor", tags=("nondeterministic",))
    op.register_fake(lambda x: ops.np.empty_like(x))
    f = compile(lambda x: (x**3 * op(ops.np.detach(x))).sum())
    assert func.grad(f)(X).shape == (3,)
    with pytest.raises(AutogradError, match=f"operator {fresh.namespace}::jitter, called at .*can return a different"):
        func.grad(summed(func.grad(f)))(X)


def test_copies_in_a_graph_are_those_of_the_generator_that_a_run_draws_from():
    rngs = Sources()
    compiled = compile(lambda x: func.grad(lambda x: by_checkpoint(x, rngs))(x).sum())
    expected = Sources()
    slopes = func.grad(lambda x: func.grad(lambda x: by_checkpoint(x, expected))(x).sum())(X)
    np.testing.assert_allclose(func.grad(lambda x: autograd.checkpoint(compiled, x))(X), slopes, rtol=1e-9)
    assert rngs.states == expected.states
