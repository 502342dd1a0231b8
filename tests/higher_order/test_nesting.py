"""Operators on functions within one another: how often the innermost function runs."""

import functools

import numpy as np
import pytest

from pydispatch import Tensor, autograd, compile, ops
from pydispatch.func import grad, hessian, jvp, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import Graph, make_fx
from tests.functions import Stateless
from tests.records import Runs
from tests.together import together

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
    runs = Runs()

    def innermost(x):
        runs.append(None)
        return ops.np.sin(x)

    function = innermost
    for _ in range(depth):
        function = around(function)
    transform(function)(X)
    return len(runs)


@pytest.mark.parametrize(("name", "transform"), TRANSFORMS.items(), ids=TRANSFORMS)
@pytest.mark.parametrize("around", [*AROUND.values(), *CAPTURING.values()], ids=[*AROUND, *CAPTURING])
@pytest.mark.parametrize("deepest", [6, pytest.param(8, marks=pytest.mark.slow)])
def test_the_runs_of_the_innermost_function_are_a_polynomial_in_the_depth(around, name, transform, deepest):
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


@pytest.mark.parametrize("holder", HOLDERS)
@together("around", [*AROUND.values(), *CAPTURING.values()], ids=[*AROUND, *CAPTURING])
def test_the_outermost_call_finds_what_the_innermost_function_captures(around, holder):
    def loss(weight, x):
        function = HOLDERS[holder](weight)
        if holder == "a Function":
            function = functools.partial(lambda call, y: call(y, weight), function)
        return around(around(around(function)))(x).sum()

    weight = np.array([0.3, 0.5])
    for found, expected in zip(grad(loss, argnums=(0, 1))(weight, X), (X, weight), strict=True):
        np.testing.assert_array_equal(found, expected)


# --- graphs of bodies: within a trace, transforms of a body are made of its graph, once ------------------------------


class Nested:
    """Branches within branches, each with an operator before and after the next: how often each has run."""

    def __init__(self, depth: int, predicate=lambda x: (x > 0).all()) -> None:
        self.runs = [Runs() for _ in range(depth + 1)]
        self.predicate = predicate

    def __call__(self, x):
        return self.level(0, x)

    def level(self, i, x):
        if i == len(self.runs) - 1:
            self.runs[i].append(None)
            return ops.np.sin(x) * x

        def chosen(x):
            self.runs[i].append(None)
            return ops.np.sin(self.level(i + 1, x * 2)) * x

        return cond(self.predicate(x), chosen, lambda x: x * x, (x,))


def n_nodes(graph, seen=None):
    """Return the nodes of a graph and of those that it calls, each graph once."""
    seen = {} if seen is None else seen
    if id(graph) in seen:
        return 0
    seen[id(graph)] = graph
    return len(graph.nodes) + sum(n_nodes(each, seen) for each in graph.constants.values() if isinstance(each, Graph))


def summed(f):
    return lambda x: f(x).sum()


WITHIN_TRACES = {
    "plain": lambda f: f,
    "grad": lambda f: grad(summed(f)),
    "hessian": lambda f: hessian(summed(f)),
    "vmap of grad": lambda f: lambda x: vmap(grad(summed(f)))(ops.np.stack([x, x * 2])),
    "jvp of grad": lambda f: lambda x: jvp(grad(summed(f)), (x,), (x,)),
    "grad of grad": lambda f: grad(summed(grad(summed(f)))),
}


@pytest.mark.parametrize("trace", [compile, make_fx])
@pytest.mark.parametrize("name", WITHIN_TRACES)
def test_nested_branches_in_a_trace_grow_linearly(name, trace):
    transform = WITHIN_TRACES[name]
    sizes = []
    for depth in range(1, 8):
        nested = Nested(depth, lambda x: np.array(True)) if "vmap" in name else Nested(depth)
        traced = trace(transform(nested))
        found = traced(X)
        graph = found if trace is make_fx else traced.graph(X)
        assert list(map(len, nested.runs)) == [2 + i for i in range(depth)] + [1 + depth]
        sizes.append(n_nodes(graph))
    assert not np.diff(sizes[1:], 2).any(), sizes


@pytest.mark.parametrize("transform", WITHIN_TRACES.values(), ids=WITHIN_TRACES)
def test_nested_branches_in_a_trace_compute_what_they_do_outside(transform):
    expected = transform(Nested(3))(X)
    for found in (compile(transform(Nested(3)))(X), make_fx(transform(Nested(3)))(X)(X)):
        for one, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)


def by_no_grad(x):
    with autograd.no_grad():
        constant = x * x
    return constant * x


def by_a_function(x):
    class Rounded(Stateless):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return ops.np.rint(x * 3)

        @staticmethod
        def backward(ctx, g):
            return 5 * g

    return Rounded.apply(x) * x


def by_writes(x):
    out = ops.np.zeros_like(x)
    out[0] = x[1] * x[0]
    return out * x


BODIES = {
    "without gradients": by_no_grad,
    "a Function": by_a_function,
    "a checkpoint": lambda x: autograd.checkpoint(lambda y: y**3, x),
    "detached": lambda x: ops.np.detach(x) * x * x,
    "writes": by_writes,
    "a gradient": lambda x: grad(lambda y: (y**3).sum())(x) * x,
    "a jvp": lambda x: jvp(lambda y: y**3, (x,), (x,))[1],
    "a vmap": lambda x: vmap(lambda y: ops.np.sin(y) * x.sum())(x),
    "a scan": lambda x: scan(lambda c, y: (c * y, None), x, ops.np.stack([x, x * 2]))[0],
    "a while_loop": lambda x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * x), (np.array(0), x))[1],
}


@pytest.mark.parametrize("transform", WITHIN_TRACES.values(), ids=WITHIN_TRACES)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_bodies_hide_from_derivatives_is_hidden_in_a_trace(body, transform):
    def f(x):
        by = x * 1.5

        def chosen(x):
            return cond(x.sum() > -1, lambda x: ops.np.sin(body(x)) * by, lambda x: x * by, (x,))

        return cond(x.sum() > 0, chosen, lambda x: x * 1, (x,))

    expected = transform(f)(X)
    for found in (compile(transform(f))(X), make_fx(transform(f))(X)(X)):
        for one, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)


IN_TRACES = {name: around for name, around in {**AROUND, **CAPTURING}.items() if name != "while_loop by example"}
"""Those whose gradients can be traced: they do as many steps for all data."""


@pytest.mark.parametrize("transform", WITHIN_TRACES.values(), ids=WITHIN_TRACES)
@pytest.mark.parametrize("around", IN_TRACES.values(), ids=IN_TRACES)
def test_in_a_trace_a_body_runs_once_for_each_level_and_once_for_its_graph(around, transform):
    runs = [runs_at_depth(depth, around, lambda f: compile(transform(f))) for depth in range(1, 5)]
    assert runs == [2, 3, 4, 5]


@pytest.mark.parametrize("transform", [WITHIN_TRACES["grad"], WITHIN_TRACES["hessian"]], ids=["grad", "hessian"])
@pytest.mark.parametrize("name", [name for name in IN_TRACES if name != "associative_scan"])
def test_graphs_of_nested_loops_grow_linearly(name, transform):
    sizes = []
    for depth in range(1, 7):
        function = ops.np.sin
        for _ in range(depth):
            function = IN_TRACES[name](lambda x, inner=function: ops.np.sin(inner(x)))
        sizes.append(n_nodes(compile(transform(function)).graph(X)))
    assert not np.diff(sizes[2:], 2).any(), sizes
