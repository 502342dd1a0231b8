"""Compiled functions that call compiled functions: bodies run once for each program, however deep and often."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, higher_order
from pydispatch.higher_order import cond, scan
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.functions import Stateless
from tests.records import Runs

X = np.array([0.5, 1.0, 2.0])
BATCH = np.stack([X, X * 2])


class Chain:
    """Functions of which each calls the one before twice, and how often each has run. The last is `outermost`."""

    def __init__(self, depth: int, wrap: Callable[..., Any] = compile) -> None:
        self._calls = [Runs() for _ in range(depth)]
        self.functions: list[Any] = []
        for level in range(depth):
            self.functions.append(wrap(self._body(level)))

    def _body(self, level: int) -> Callable[..., Any]:
        def body(x: Any) -> Any:
            self._calls[level].append(None)
            if level == 0:
                return np.sin(x) * x
            inner = self.functions[level - 1]
            return inner(x) * inner(x * 1.5)

        return body

    @property
    def runs(self) -> list[int]:
        return list(map(len, self._calls))

    @property
    def outermost(self) -> Any:
        return self.functions[-1]


def summed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: f(x).sum()


def on_tape(f: Callable[..., Any]) -> Any:
    leaf = Tensor(X, requires_grad=True)
    return autograd.grad(f(leaf).sum(), leaf)[0]


WAYS: dict[str, tuple[Callable[..., Any], int]] = {
    # how it is called, and how many programs of each function are traced for that: derivatives need one more
    "call": (lambda f: f(X), 1),
    "compile": (lambda f: compile(lambda x: f(x) + f(x))(X), 1),
    "cond": (lambda f: cond(np.array(True), f, lambda x: x * 1, (X,)), 1),
    "compile_cond": (lambda f: compile(lambda x: cond(x.sum() > 0, f, lambda x: x * 1, (x,)))(X), 1),
    "vmap": (lambda f: func.vmap(f)(BATCH), 1),
    "compile_vmap": (lambda f: compile(func.vmap(f))(BATCH), 1),
    "make_fx": (lambda f: make_fx(f)(X)(X), 2),
    "grad": (lambda f: func.grad(summed(f))(X), 2),
    "compile_grad": (lambda f: compile(func.grad(summed(f)))(X), 2),
    "tape": (on_tape, 2),
    "jvp": (lambda f: func.jvp(f, (X,), (X,)), 2),
    "vmap_grad": (lambda f: func.vmap(func.grad(summed(f)))(BATCH), 2),
    "hessian": (lambda f: func.hessian(summed(f))(X), 5),
    "compile_hessian": (lambda f: compile(func.hessian(summed(f)))(X), 5),
}


@pytest.mark.parametrize("way", WAYS)
def test_bodies_run_once_for_each_program(way):
    call, n_programs = WAYS[way]
    chain = Chain(6)
    found = call(chain.outermost)
    assert max(chain.runs) <= n_programs
    if n_programs <= 2:
        assert set(chain.runs) == {n_programs}
    expected = call(Chain(6, lambda f: f).outermost)
    for one, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    before = list(chain.runs)
    call(chain.outermost)
    assert chain.runs == before         # but for lambdas around it, which are compiled again


@pytest.mark.parametrize("way", WAYS)
def test_functions_that_were_called_before_are_not_traced_again(way):
    call, n_programs = WAYS[way]
    chain = Chain(4)
    for function in chain.functions:
        function(X)
    assert set(chain.runs) == {1}
    call(chain.outermost)
    assert max(chain.runs) <= n_programs


def test_graphs_are_those_of_functions_that_are_not_compiled():
    plain, compiled = Chain(3, lambda f: f).outermost, Chain(3).outermost
    graphs = [compile(lambda x, f=f: f(x)).graph(X) for f in (plain, compiled)]
    one, other = [[(node.op, str(node.target)) for node in graph.nodes] for graph in graphs]
    assert one == other


def test_nodes_of_inlined_graphs_have_the_sites_of_the_function():
    inner = compile(lambda x: np.sin(x))
    graph = compile(lambda x: inner(x) * 2).graph(X)
    assert all(__file__ in node.meta["site"] for node in graph.find_nodes(op="call_function"))


def test_what_a_compiled_function_hides_from_derivatives_is_hidden_in_another():
    class Straight(Stateless):
        @staticmethod
        def forward(x):
            return np.round(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    @compile
    def inner(x):
        with autograd.no_grad():
            constant = x * x
        return Straight.apply(x) * constant

    outer = compile(lambda x: inner(x) + inner(x * 2))
    expected = 3 * X * X + 2 * 3 * (2 * X) ** 2
    for slope in (func.grad(summed(outer))(X), compile(func.grad(summed(outer)))(X), on_tape(outer),
                  compile(lambda x: func.grad(summed(outer))(x))(X)):
        np.testing.assert_allclose(slope, expected)
    graph = make_fx(lambda x: inner(x) * 2)(X)
    np.testing.assert_allclose(func.jvp(lambda x: graph(x).sum(), (X,), (X,))[0], 2 * (np.round(X) * X * X).sum())
    assert any("Straight" in str(node.target) for node in graph.nodes)


def test_results_that_no_tangent_goes_into_are_no_tangents():
    f = compile(lambda x: cond(x.sum() > 0, lambda h: (h**3).sum(), lambda h: h.sum() * 1, (x,)))

    def g(x):
        value, push = func.linearize(f, x)
        return push(x) + value

    np.testing.assert_allclose(func.grad(g)(X), 3 * X**2 + 9 * X**2)


def test_a_compiled_function_that_writes_is_called_by_one_that_writes():
    @compile
    def filled(x):
        out = pnp.zeros(3)
        for i in range(3):
            out[i] = x[i] * i
        return out

    @compile
    def outer(x):
        out = filled(x)
        out[0] = x[1]
        return out * filled(x)

    np.testing.assert_allclose(outer(X), [0, 1, 16])
    np.testing.assert_allclose(func.grad(summed(outer))(X), [0, 2, 16])


# --- the results of compiled functions belong to the caller, who may write to them ------------------------------------


def doubled(x):
    return x * 2


def spread(x):
    return pnp.broadcast_to(x.sum(), (3,))


def rows_of_one(x):
    return pnp.broadcast_to(x * 2, (2, 3))


def with_a_view(x):
    y = x * 2
    return y, y[1:]


def twice(x):
    y = x * 2
    return y, y


def itself(x):
    return x


def part(x):
    return x[1:]


def constant(x):
    return pnp.ones_like(x)


def reversed_parts(x):
    y = x * x
    return y[::-1], y.T


def of_a_loop(x):
    return scan(lambda c, u: (c + u, c * u), x, pnp.stack([x, x]))


INNER = (doubled, spread, rows_of_one, with_a_view, twice, itself, part, constant, reversed_parts, of_a_loop)


def as_compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the results of a call of the compiled function, which share memory with nothing."""

    def fresh(x: Any) -> Any:
        results = f(x)
        return tuple(map(pnp.copy, results)) if isinstance(results, tuple) else pnp.copy(results)

    return fresh


def writer(g: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes numbers and values to each result of `g`, then uses all results and the argument.
    """

    def f(x: Any) -> Any:
        x = x * 1
        total = (x * x).sum()
        results = g(x)
        results = results if isinstance(results, tuple) else (results,)
        for i, y in enumerate(results):
            y[0] = 5 * x[0]
            y[-1:] *= 3
            y[1] += i
        for y in results:
            total = total + (y * y * x[:y.shape[-1]]).sum()
        return total + (x**3).sum()

    return f


WRITING = {
    "call": lambda f: f(X),
    "compile": lambda f: compile(f)(X),
    "make_fx": lambda f: make_fx(f)(X)(X),
    "functionalize": lambda f: func.functionalize(f)(X),
    "compile_functionalize": lambda f: compile(func.functionalize(f))(X),
    "vmap": lambda f: func.vmap(f)(BATCH),
    "compile_vmap": lambda f: compile(func.vmap(f))(BATCH),
    "vmap_of_one": lambda f: func.vmap(lambda i: f(X * 1) * i)(X),
    "compile_vmap_of_one": lambda f: compile(lambda x: func.vmap(lambda i: f(x) * i)(x))(X),
    "grad": lambda f: func.grad(f)(X),
    "compile_grad": lambda f: compile(func.grad(f))(X),
    "tape": lambda f: on_tape(f),
    "jvp": lambda f: func.jvp(f, (X,), (X,)),
    "compile_jvp": lambda f: compile(lambda x: func.jvp(f, (x,), (x,)))(X),
    "linearize": lambda f: func.linearize(f, X)[1](X),
    "compile_linearize": lambda f: compile(lambda x: func.linearize(f, x)[1](x))(X),
    "jacfwd": lambda f: func.jacfwd(f)(X),
    "compile_jacfwd": lambda f: compile(func.jacfwd(f))(X),
    "hessian": lambda f: func.hessian(f)(X),
    "compile_hessian": lambda f: compile(func.hessian(f))(X),
    "grad_of_graph": lambda f: func.grad(make_fx(f)(X))(X),
    "compile_scan": lambda f: compile(lambda x: scan(lambda c, u: (c + f(u), c * 1), x.sum(), BATCH)[0])(X),
    "grad_of_cond": lambda f: func.grad(lambda x: cond(np.array(True), f, lambda x: x.sum(), (x,)))(X),
    "compile_grad_of_map": lambda f: compile(func.grad(lambda x: higher_order.map(f, pnp.stack([x, x * 2])).sum()))(X),
}


@pytest.mark.parametrize("way", WRITING)
@pytest.mark.parametrize("inner", INNER)
def test_results_of_compiled_functions_can_be_written_to(inner, way):
    got = WRITING[way](writer(compile(inner)))
    expected = WRITING[way](writer(as_compiled(inner)))
    for one, other in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


@pytest.mark.parametrize("inner", INNER)
def test_gradients_of_what_writes_to_such_results_are_slopes(inner):
    plain = writer(as_compiled(inner))
    slopes = [(plain(X + step) - plain(X - step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(compile(func.grad(writer(compile(inner))))(X), slopes, rtol=1e-6)


@pytest.mark.parametrize("backend", ["python", "numba"])
def test_results_of_functions_of_other_backends_can_be_written_to(backend):
    if backend == "numba":
        pytest.importorskip("numba")
    f, expected = writer(compile(rows_of_one, backend=backend)), writer(as_compiled(rows_of_one))
    np.testing.assert_allclose(compile(func.hessian(f), backend=backend)(X), func.hessian(expected)(X))
