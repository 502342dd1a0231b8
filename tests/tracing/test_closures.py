"""Tracing composes with every transform, in any order: what a function captures of a level is followed into it.

Stacks of transforms, traces and bodies of control flow around a polynomial of two variables, of which the innermost
function captures one. The oracle is the polynomial itself, whose derivatives are known.
"""

import random

import numpy as np
import pytest

from pydispatch import Tensor, autograd, compile, ops
from pydispatch.func import functionalize, grad, jacfwd, jvp, linearize, vjp, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx
from tests.together import together

ONE, TRUE = np.array(1.0), np.array(True)

POLYNOMIAL = {(1, 5): 0.5, (2, 3): -0.75, (0, 4): 0.25, (3, 1): 1.5, (2, 0): 0.5}
"""The coefficients, by the exponents of the captured value and of the argument."""


def value_of(coefficients, k, x):
    total = 0.0
    for (i, j), factor in coefficients.items():
        term = factor
        for _ in range(i):
            term = term * k
        for _ in range(j):
            term = term * x
        total = total + term
    return total


def derivative(coefficients, variable):
    found = {}
    for exponents, factor in coefficients.items():
        if exponents[variable]:
            lower = list(exponents)
            lower[variable] -= 1
            found[tuple(lower)] = factor * exponents[variable]
    return found


def as_function(f):
    """Return a Function that captures what `f` does, and says its derivative."""
    class Said(autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return f(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * grad(f)(*ctx.saved_tensors)

    return Said.apply


# Functions like the one inside.
SAME = {
    "make_fx": lambda f: lambda x: make_fx(f)(x)(x),
    "fake": lambda f: lambda x: make_fx(f, tracing_mode="fake")(x)(x),
    "make_fx of a constant": lambda f: lambda x: make_fx(lambda: f(x) * 1.0)()(),
    "graph for another value": lambda f: lambda x: make_fx(f)(x * 2.0)(x),
    "compile": lambda f: compile(f),
    "compile of a constant": lambda f: lambda x: compile(lambda y: f(x) * y)(ONE),
    "Function": as_function,
    "checkpoint": lambda f: lambda x: autograd.checkpoint(f, x),
    "functionalize": functionalize,
    "vmap": lambda f: lambda x: vmap(f)(ops.np.stack([x * 0.5, x]))[1],
    "vmap of a constant": lambda f: lambda x: vmap(lambda y: f(x) * y)(np.array([3.0, 1.0]))[1],
    "vjp": lambda f: lambda x: vjp(f, x)[0],
    "jvp": lambda f: lambda x: jvp(f, (x,), (ONE,))[0],
    "linearize": lambda f: lambda x: linearize(f, x)[0],
    "cond": lambda f: lambda x: cond(TRUE, lambda x: f(x) * 1.0, lambda x: x * 3.0, (x,)),
    "cond of a constant": lambda f: lambda x: cond(TRUE, lambda: f(x) * 1.0, lambda: x * 3.0),
    "map": lambda f: lambda x: map_slices(f, ops.np.stack([x, x * 0.5]))[0],
    "scan": lambda f: lambda x: scan(lambda c, t: (f(c) * t, f(c) * 1.0), x, np.ones(1))[0],
    "rows of a scan": lambda f: lambda x: scan(lambda c, t: (c * 1.0, f(x) * t), x, np.ones(2))[1][1],
    "while_loop": lambda f: lambda x: while_loop(lambda n, y: n < 1, lambda n, y: (n + 1, f(y)), (np.array(0), x))[1],
    "associative_scan": lambda f: lambda x: associative_scan(
        lambda a, b: f(x) * b + 0.0 * a, np.stack([np.ones(()), np.ones(())]))[1],
}
# Derivatives of the one inside.
SLOPES = {
    "grad": grad,
    "grad of make_fx": lambda f: lambda x: grad(make_fx(f)(x))(x),
    "make_fx of grad": lambda f: lambda x: make_fx(grad(f))(x)(x),
    "tangent": lambda f: lambda x: jvp(f, (x,), (ONE,))[1],
    "linear": lambda f: lambda x: linearize(f, x)[1](ONE),
    "jacfwd": jacfwd,
    "compile of grad": lambda f: compile(grad(f)),
    "grad of compile": lambda f: grad(compile(f)),
}
OF_THE_WHOLE = {
    "value": lambda f, x: (f(x), 0),
    "grad": lambda f, x: (grad(f)(x), 1),
    "vmap": lambda f, x: (vmap(f)(np.stack([x, x * 2]))[0], 0),
    "vmap(grad)": lambda f, x: (vmap(grad(f))(np.stack([x * 2, x]))[1], 1),
    "grad(vmap)": lambda f, x: (grad(lambda xs: vmap(f)(xs).sum())(np.stack([x * 2, x]))[1], 1),
    "make_fx": lambda f, x: (make_fx(f)(x * 2)(x), 0),
    "fake": lambda f, x: (make_fx(f, tracing_mode="fake")(x * 2)(x), 0),
    "make_fx(grad)": lambda f, x: (make_fx(grad(f))(x * 2)(x), 1),
    "compile": lambda f, x: (compile(f)(x), 0),
    "compile(grad)": lambda f, x: (compile(grad(f))(x), 1),
    "jvp": lambda f, x: (jvp(f, (x,), (ONE,))[1], 1),
    "tape": lambda f, x: (on_tape(f, x), 1),
}


def on_tape(f, x):
    leaf = Tensor(x, requires_grad=True)
    f(leaf).backward()
    return np.asarray(leaf.grad)


def check(names, where):
    """Check a stack of transforms around the polynomial, the first one outermost."""
    x = np.array(0.75)
    inside = POLYNOMIAL
    for name in names:
        inside = derivative(inside, 1) if name in SLOPES else inside

    def whole(k):
        def innermost(y):
            return value_of(POLYNOMIAL, k, y)

        f = innermost
        for name in reversed(names):
            f = (SAME | SLOPES)[name](f)
        return f(k * 1.0)

    found, order = OF_THE_WHOLE[where](whole, x)
    expected = value_of(inside, x, x)
    if order:
        expected = sum(value_of(derivative(inside, variable), x, x) for variable in (0, 1))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, err_msg=f"{' in '.join(names)}, {where}")


def is_known(names, where):
    """Return the gradient of a while_loop without data has an unknown number of steps."""
    return "while_loop" not in names or not any("compile" in name or "fake" in name for name in (*names, where))


ONES = [(name, where) for name in [*SAME, *SLOPES] for where in OF_THE_WHOLE if is_known([name], where)]


@pytest.mark.parametrize(("name", "where"), ONES)
def test_one(name, where):
    check([name], where)


def stacks(n, seed):
    """Yield random stacks with at most two derivatives, each with what is asked of it."""
    rng = random.Random(seed)
    while n:
        names = rng.sample([*SAME, *SAME, *SLOPES], rng.choice((2, 2, 3)))
        where = rng.choice(list(OF_THE_WHOLE))
        if sum(name in SLOPES for name in names) <= 2 and is_known(names, where):
            n -= 1
            yield names, where


ONCE_WRONG = [(["vmap of a constant", "checkpoint"], "grad"), (["associative_scan", "checkpoint"], "grad(vmap)"),
              (["make_fx of a constant", "compile"], "value"), (["make_fx of a constant", "checkpoint"], "tape"),
              (["vmap", "fake", "vmap of a constant"], "value"),
              (["vmap of a constant", "fake", "associative_scan"], "grad")]


@together("names, where", [*ONCE_WRONG, *stacks(60, 1)])
def test_stacks(names, where):
    check(names, where)


@pytest.mark.slow
@pytest.mark.parametrize(("names", "where"), list(stacks(500, 2)))
def test_many_stacks(names, where):
    check(names, where)
