"""Properties of all solvers: one call to modes, one node of a trace, a step of a plan, a rule for every level."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import pydispatch
from pydispatch import DispatchMode, Tensor, ops
from pydispatch._core import MetaArray
from pydispatch.autograd import inference_mode, no_grad
from pydispatch.exceptions import DispatchTypeError, FunctionalizationError
from pydispatch.func import functionalize, grad, jvp, vmap
from pydispatch.higher_order import Functionalize, Grad, Jvp, Vmap, cond, scan
from pydispatch.scipy.integrate import odeint, quad
from pydispatch.scipy.optimize import fixed_point, linear_solve, minimize, root
from pydispatch.tracing import Graph, make_fx

P = np.array([0.5, 0.7])
FUNCTIONS = {"linear_solve": linear_solve, "root": root, "minimize": minimize, "fixed_point": fixed_point,
             "odeint": odeint, "quad": quad}
PROGRAMS = {
    "linear_solve": lambda p: linear_solve(lambda x: (p + 1.0) * x, np.ones(2)),
    "root": lambda p: root(lambda x: x ** 3 + p * x - 1.0, np.ones(2)).x,
    "minimize": lambda p: minimize(lambda x: ((x - p) ** 2).sum(), np.ones(2)).x,
    "fixed_point": lambda p: fixed_point(lambda x: ops.np.cos(p * x), np.ones(2)),
    "odeint": lambda p: odeint(lambda y, t: -p * y, np.ones(2), np.linspace(0, 1, 3)),
    "quad": lambda p: quad(lambda x: ops.np.exp(-p * x), 0.0, 1.0)[0],
}
each = pytest.mark.parametrize("name", PROGRAMS)


def loss(program):
    return lambda p: (program(p) ** 2).sum()


@each
def test_modes_see_one_call(name):
    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **kwargs or {})

    calls = []
    with Log():
        PROGRAMS[name](P)
    assert calls == [FUNCTIONS[name].operator]


@each
def test_a_mode_may_have_a_rule_of_its_own(name):
    class Mine(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    operator = FUNCTIONS[name].operator
    expected = PROGRAMS[name](P)
    operator.py_impl(Mine)(lambda mode, *args: tuple([2 * value for value in operator(*args)]))
    with Mine():
        np.testing.assert_array_equal(PROGRAMS[name](P), 2 * expected)


@each
@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_trace_has_one_node_with_the_graph_of_the_function(name, mode):
    graph = make_fx(PROGRAMS[name], tracing_mode=mode)(P)
    nodes = [node for node in graph.nodes if node.op == "call_function" and node.target is FUNCTIONS[name].operator]
    assert len(nodes) == 1
    assert any(isinstance(value, Graph) for value in graph.constants.values())
    np.testing.assert_array_equal(graph(P + 0.1), PROGRAMS[name](P + 0.1))
    np.testing.assert_array_equal(graph.compile()(P + 0.1), PROGRAMS[name](P + 0.1))


@each
def test_compiled_functions_run_it_as_a_step(name):
    compiled = pydispatch.compile(PROGRAMS[name])
    np.testing.assert_allclose(compiled(P), PROGRAMS[name](P), rtol=1e-12)
    np.testing.assert_allclose(compiled(P + 0.1), PROGRAMS[name](P + 0.1), rtol=1e-12)
    np.testing.assert_allclose(grad(loss(compiled))(P), grad(loss(PROGRAMS[name]))(P), rtol=1e-9)
    np.testing.assert_allclose(pydispatch.compile(grad(loss(PROGRAMS[name])))(P), grad(loss(PROGRAMS[name]))(P),
                               rtol=1e-9)
    np.testing.assert_allclose(pydispatch.compile(vmap(PROGRAMS[name]))(np.stack([P, P + 1])),
                               np.stack([PROGRAMS[name](P), PROGRAMS[name](P + 1)]), rtol=1e-6)


OF_ARGUMENTS = {
    "linear_solve": lambda p: linear_solve(lambda x: 2.0 * x, p),
    "root": lambda p: root(lambda x, p: x ** 3 + p * x - 1.0, np.ones(2), (p,)).x,
    "minimize": lambda p: minimize(lambda x, p: ((x - p) ** 2).sum(), np.ones(2), (p,)).x,
    "fixed_point": lambda p: fixed_point(lambda x, p: ops.np.cos(p * x), np.ones(2), (p,)),
    "odeint": lambda p: odeint(lambda y, t, p: -p * y, np.ones(2), np.linspace(0, 1, 3), (p,)),
    "quad": lambda p: quad(lambda x, p: ops.np.exp(-p * x), 0.0, 1.0, (p,))[0],
}


@each
def test_arrays_without_data(name):
    found = OF_ARGUMENTS[name](Tensor(MetaArray((2,), np.dtype(float))))
    expected = OF_ARGUMENTS[name](P)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


@each
def test_there_is_a_rule_for_every_transform(name):
    operator = FUNCTIONS[name].operator
    for place in (Vmap, Grad, Jvp, Functionalize, "CPU", "Meta", "Autograd"):
        assert operator.rule_for(place) is not None, place
    assert pickle.loads(pickle.dumps(operator)) is operator
    assert operator.name == name


@each
def test_solvers_in_loops_and_branches(name):
    program = PROGRAMS[name]

    def looped(p):
        return scan(lambda total, x: (total + program(p * x).sum(), None), 0.0, np.array([1.0, 1.5]))[0]

    def branched(p):
        return cond(p.sum() > 1, lambda p: program(p).sum(), lambda p: p.sum() * 2, (p,))

    def by_hand(p):
        return program(p).sum() + program(p * 1.5).sum()

    np.testing.assert_allclose(looped(P), by_hand(P))
    np.testing.assert_allclose(grad(looped)(P), grad(by_hand)(P), rtol=1e-6)
    np.testing.assert_allclose(grad(branched)(P), grad(lambda p: program(p).sum())(P), rtol=1e-6)
    np.testing.assert_allclose(vmap(branched)(np.stack([P, P / 9])), [program(P).sum(), 2 * P.sum() / 9], rtol=1e-6)


@each
def test_a_function_may_write_to_arrays_of_its_own(name):
    def writing(p):
        q = ops.np.copy(p)
        ops.np.add_(q, 1.0)
        return PROGRAMS[name](q)

    np.testing.assert_array_equal(functionalize(writing)(P), PROGRAMS[name](P + 1.0))


def test_writes_to_arguments_are_refused():
    def bad(x):
        ops.np.add_(x, 1.0)
        return x

    for call in (lambda: root(bad, P), lambda: minimize(lambda x: bad(x).sum(), P), lambda: fixed_point(bad, P),
                 lambda: odeint(lambda y, t: bad(y), P, [0.0, 1.0]), lambda: linear_solve(bad, P)):
        with pytest.raises(FunctionalizationError):
            call()


@each
def test_a_batch_may_be_empty(name):
    batch = np.zeros((0, 2))
    expected = PROGRAMS[name](P)
    assert vmap(PROGRAMS[name])(batch).shape == (0, *expected.shape)
    assert vmap(grad(loss(PROGRAMS[name])))(batch).shape == (0, 2)


@each
@pytest.mark.parametrize("guard", [no_grad, inference_mode])
def test_values_without_a_tape(name, guard):
    with guard():
        found = PROGRAMS[name](Tensor(P, requires_grad=True))
    assert not found.requires_grad
    np.testing.assert_array_equal(found.numpy(), PROGRAMS[name](P))


@each
def test_gradient_of_a_tensor_on_the_tape(name):
    p = Tensor(P, requires_grad=True)
    loss(PROGRAMS[name])(p).backward()
    np.testing.assert_allclose(p.grad.numpy(), grad(loss(PROGRAMS[name]))(P), rtol=1e-9)


def test_solvers_within_solvers():
    def end(u):
        return odeint(lambda y, t: u - y, np.zeros(1), [0.0, 1.0], rtol=1e-11, atol=1e-11)[-1]

    def control(target):
        return root(lambda u: end(u) - target, np.ones(1), tol=1e-10).x.sum()

    np.testing.assert_allclose(control(np.array(0.5)), 0.5 / (1 - np.exp(-1)), rtol=1e-8)
    np.testing.assert_allclose(grad(control)(np.array(0.5)), 1 / (1 - np.exp(-1)), rtol=1e-8)

    def outer(p):
        """Return the minimum over x of the largest root."""
        def value(x):
            return root(lambda r: r * r - (x * x + p), x * 0 + 2.0, tol=1e-12).x + (x - p) ** 2
        return minimize(value, np.array(0.4), tol=1e-9).x

    e = 1e-4
    difference = (outer(np.array(0.5 + e)) - outer(np.array(0.5 - e))) / (2 * e)
    np.testing.assert_allclose(grad(outer)(np.array(0.5)), difference, rtol=1e-5)
    np.testing.assert_allclose(jvp(outer, (np.array(0.5),), (np.array(1.0),))[1], difference, rtol=1e-5)


def test_results_of_a_wrong_handler_are_named():
    class Careless(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs or {})[0]

    with Careless(), pytest.raises(DispatchTypeError, match="operator root: the handler of mode Careless"):
        PROGRAMS["root"](P)


def test_scipy_is_imported_by_this_package_only():
    program = """
import sys
import pydispatch, pydispatch.numpy, pydispatch.func, pydispatch.higher_order, pydispatch.tracing
assert not any(name.partition(".")[0] == "scipy" for name in sys.modules)
import pydispatch.scipy
assert "scipy.optimize" not in sys.modules
pydispatch.scipy.optimize.root
assert "scipy.optimize" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
