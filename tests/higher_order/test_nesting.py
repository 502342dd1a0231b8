"""Operators on functions within one another: how often the innermost function runs."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from pydispatch import Tensor, autograd, compile, ops
from pydispatch.func import grad, jvp, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx
from tests.cases import in_one_case

X = np.array([1.0, 2.0])

AROUND = {
    "cond": lambda f: lambda x: cond(x.sum() > 0, f, lambda x: ops.np.cos(x), (x,)),
    "map": lambda f: lambda x: map_slices(f, ops.np.expand_dims(x, 0))[0] + 0,
    "scan": lambda f: lambda x: scan(lambda carry, _: (f(carry), None), x, length=1)[0],
    "while_loop": lambda f: lambda x: while_loop(lambda i, y: i < 1, lambda i, y: (i + 1, f(y)), (0, x))[1],
    "while_loop by example": lambda f: lambda x: while_loop(
        lambda i, y: (i < 1) & (y.sum() < 9), lambda i, y: (i + 1, f(y)), (0, x))[1],
    "associative_scan": lambda f: lambda x: associative_scan(lambda a, b: f(b), ops.np.stack([x, x]))[1],
}
ONES = np.ones(2)
CAPTURING = {
    "cond, capturing": lambda f: lambda x: cond(x.sum() > 0, lambda y: f(x * y), lambda y: ops.np.cos(x * y), (ONES,)),
    "map, capturing": lambda f: lambda x: map_slices(lambda y: f(x * y), ops.np.expand_dims(ONES, 0))[0] + 0,
    "scan, capturing": lambda f: lambda x: scan(lambda carry, _: (f(x * carry), None), ONES, length=1)[0],
    "results of a scan, capturing": lambda f: lambda x: scan(
        lambda carry, _: (carry + 1, f(x * carry)), ONES, length=1)[1][0],
}
"""The same where only a function knows that the call depends on the argument."""
TRANSFORMS = {
    "plain": lambda f: f,
    "grad": lambda f: grad(lambda x: f(x).sum()),
    "tape": lambda f: lambda x: f(Tensor(x, requires_grad=True)).sum().backward(),
    "jvp": lambda f: lambda x: jvp(f, (x,), (x,)),
    "vmap": lambda f: vmap(f),
    "make_fx": lambda f: make_fx(f),
    "make_fx of grad": lambda f: make_fx(grad(lambda x: f(x).sum())),
    "compile": lambda f: compile(f),
}


def runs_at_depth(depth, around, transform):
    runs = 0

    def innermost(x):
        nonlocal runs
        runs += 1
        return ops.np.sin(x)

    function = innermost
    for _ in range(depth):
        function = around(function)
    transform(function)(X)
    return runs


@in_one_case
@pytest.mark.parametrize(("name", "transform"), TRANSFORMS.items(), ids=TRANSFORMS)
@pytest.mark.parametrize("around", [*AROUND.values(), *CAPTURING.values()], ids=[*AROUND, *CAPTURING])
@pytest.mark.parametrize("deepest", [7, pytest.param(9, marks=pytest.mark.slow)])
def test_the_runs_of_the_innermost_function_are_a_polynomial_in_the_depth(around, name, transform, deepest):
    """Each level adds its own run without data, and what a transform makes of it runs all levels within.

    From the second level on: one loop alone may have a step without any transform, and such a loop needs no run of its
    own.
    """
    runs = [runs_at_depth(depth, around, transform) for depth in range(1, deepest + 1)]
    degree = 3 if name == "make_fx of grad" else 2      # that traces the derivative of each level, too
    assert runs[0] <= 7
    assert not np.diff(runs[1:], degree + 1).any(), runs


def test_make_fx_within_itself_runs_a_function_once():
    def within(f):
        return lambda x: make_fx(f)(x)(x)

    assert [runs_at_depth(depth, within, make_fx) for depth in range(1, 9)] == [1] * 8


HOLDERS = {
    "an operator": lambda weight: lambda x: x * weight,
    "a checkpoint": lambda weight: lambda x: autograd.checkpoint(lambda y: y * weight, x),
    "a Function": lambda weight: type("Scaled", (autograd.Function,), {
        "generate_vmap_rule": True,
        "forward": staticmethod(lambda x, by: x * by),
        "setup_context": staticmethod(lambda ctx, inputs, output: None),
        "backward": staticmethod(lambda ctx, g: (g * weight, g * X)),
    }).apply,
}


@in_one_case
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("around", [*AROUND.values(), *CAPTURING.values()], ids=[*AROUND, *CAPTURING])
def test_the_outermost_call_finds_what_the_innermost_function_captures(around, holder):
    def loss(weight, x):
        function = HOLDERS[holder](weight)
        if holder == "a Function":
            function = functools.partial(lambda call, y: call(y, weight), function)
        return around(around(around(function)))(x).sum()

    weight = np.array([0.3, 0.5])
    for found, expected in zip(grad(loss, argnums=(0, 1))(weight, X), (X, weight), strict=True):
        np.testing.assert_array_equal(found, expected)
