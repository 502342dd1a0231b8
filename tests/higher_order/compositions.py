"""Programs under transforms and their compositions, against the same programs written as plain Python loops.

A program takes one array and returns arrays. The oracle never sees a higher-order operator, and never `vmap`: batches
are taken apart by hand.
"""

import numpy as np
import pytest

from pydispatch import Tensor, _core, ops
from pydispatch.func import functionalize, grad, jvp, vmap
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map


def concrete(value):
    """Return the number in an array of one element, whatever interpreters it is a value of."""
    return np.asarray(_core.bottom_array(value) if isinstance(value, Tensor) else value).item()


def loss(program):
    """Return the sum of the squares of everything that a program returns."""
    return lambda x: sum([(leaf * leaf).sum() for leaf in tree_leaves(program(x)) if leaf.dtype.kind in "fc"])


def direction(x):
    return ops.np.cos(x) + 0.5


def on_tape(program):
    def gradient(x):
        leaf = Tensor(np.asarray(x), requires_grad=True)
        loss(program)(leaf).backward()
        return leaf.grad.numpy()
    return gradient


def on_tape_twice(program):
    def gradient(x):
        leaf = Tensor(np.asarray(x), requires_grad=True)
        (first,) = _core.grad(loss(program)(leaf), leaf, create_graph=True)
        (first * first).sum().backward()
        return leaf.grad.numpy()
    return gradient


SINGLE = {
    "value": lambda program: program,
    "grad": lambda program: grad(loss(program)),
    "jvp": lambda program: lambda x: jvp(loss(program), (x,), (direction(x),))[1],
    "grad_grad": lambda program: grad(lambda x: (grad(loss(program))(x) ** 2).sum()),
    "jvp_grad": lambda program: lambda x: jvp(grad(loss(program)), (x,), (direction(x),))[1],
    "grad_jvp": lambda program: grad(lambda x: jvp(loss(program), (x,), (direction(x),))[1]),
    "tape": on_tape,
    "tape_tape": on_tape_twice,
}
"""Compositions for one example: on both sides the same, the program in place of the operator."""

WRAPPED = {
    "functionalize": lambda program: functionalize(program),
    "make_fx_real": lambda program: lambda x: make_fx(program)(np.asarray(x) + 0.0)(x),
    "make_fx_fake": lambda program: lambda x: make_fx(program, tracing_mode="fake")(x)(x),
    "interpreted": lambda program: lambda x: make_fx(program)(x).interpret(x),
    "compiled": lambda program: lambda x: make_fx(program)(x).compile()(x),
    "functionalize_grad": lambda program: functionalize(grad(loss(program))),
    "grad_functionalize": lambda program: grad(loss(functionalize(program))),
    "make_fx_grad": lambda program: lambda x: make_fx(grad(loss(program)))(x)(x),
    "compiled_grad": lambda program: lambda x: make_fx(grad(loss(program)))(x).compile()(x),
    "make_fx_jvp": lambda program: lambda x: make_fx(SINGLE["jvp"](program))(x)(x),
}
"""Compositions that mean what the program, its gradient or derivative means."""
MEANS = {name: "grad" if "grad" in name else "jvp" if "jvp" in name else "value" for name in WRAPPED}

BATCHED = ("value", "grad", "jvp", "grad_grad", "jvp_grad", "grad_jvp")


def same(actual, desired, rtol=1e-9):
    """Assert equal structure, shapes, dtypes and values."""
    found, expected = tree_leaves(actual), tree_leaves(desired)
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        left, right = np.asarray(left), np.asarray(right)
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=rtol, atol=1e-9, strict=True)


def check_single(program, unrolled, x, name):
    same(SINGLE[name](program)(x), SINGLE[name](unrolled)(x))


def check_wrapped(program, unrolled, x, name):
    same(WRAPPED[name](program)(x), SINGLE[MEANS[name]](unrolled)(x))


def check_batched(program, unrolled, batch, name):
    """Compare vmap of a composition with a loop over the examples."""
    rows = [tree_leaves(SINGLE[name](unrolled)(x)) for x in batch]
    same(vmap(SINGLE[name](program))(batch), [np.stack(column) for column in zip(*rows, strict=True)])


def check_gradient_of_batch(program, unrolled, batch):
    """Compare grad(vmap) and jvp(vmap) with those of the examples, and vmap(vmap) with the loop."""
    rows = [grad(loss(unrolled))(x) for x in batch]
    same(grad(lambda batch: vmap(loss(program))(batch).sum())(batch), np.stack(rows))
    rows = [jvp(loss(unrolled), (x,), (direction(x),))[1] for x in batch]
    same(jvp(vmap(loss(program)), (batch,), (direction(batch),))[1], np.stack(rows))
    twice = np.stack([batch, batch[::-1]])
    rows = [tree_map(np.asarray, vmap(program)(row)) for row in twice]
    columns = zip(*map(tree_leaves, rows), strict=True)
    same(vmap(vmap(program))(twice), [np.stack(column) for column in columns])


def tests_of(programs, points, batch):
    """Return a class of tests, to be given a name that begins with Test: programs under every composition.

    `programs` has for each name the program and the plain loop that it is, `points` the arrays that they are called
    with, and `batch` several of these.
    """
    each = pytest.mark.parametrize("program", programs)

    class Tests:
        @each
        @pytest.mark.parametrize("x", points)
        @pytest.mark.parametrize("composition", SINGLE)
        def test_single(self, program, x, composition):
            check_single(*programs[program], x, composition)

        @each
        @pytest.mark.parametrize("composition", WRAPPED)
        def test_traced_and_functionalized(self, program, composition):
            check_wrapped(*programs[program], points[0], composition)

        @each
        @pytest.mark.parametrize("composition", BATCHED)
        def test_vmap(self, program, composition):
            check_batched(*programs[program], batch, composition)

        @each
        def test_gradient_of_a_batch(self, program):
            check_gradient_of_batch(*programs[program], batch)

    return Tests
