"""Bodies that run again find what their first run found, whatever the program has written since.

Oracle: the same program without the write.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func
from pydispatch.higher_order import associative_scan, cond, map, scan, while_loop
from pydispatch.scipy.integrate import odeint, quad
from pydispatch.scipy.optimize import fixed_point, root
from pydispatch.tracing import make_fx
from tests.records import Runs
from tests.together import together

X = np.array([0.5, 1.1, -0.4])


def tape(f):
    x = Tensor(X.copy(), requires_grad=True)
    f(x).backward()
    return x.grad


WAYS = {
    "value": lambda f: f(X),
    "grad": lambda f: func.grad(f)(X),
    "tape": tape,
    "hessian": lambda f: func.hessian(f)(X),
    "jacrev of grad": lambda f: func.jacrev(func.grad(f))(X),
    "vmap of grad": lambda f: func.vmap(func.grad(f))(np.stack([X, 2 * X])),
    "grad of vmap": lambda f: func.grad(lambda batch: func.vmap(f)(batch).sum())(np.stack([X, 2 * X])),
    "linearize": lambda f: func.linearize(f, X)[1](np.ones(3)),
    "vjp": lambda f: func.vjp(f, X)[1](np.float64(1.0)),
    "jvp": lambda f: func.jvp(f, (X,), (np.ones(3),))[1],
    "compile": lambda f: compile(f)(X),
    "compiled grad": lambda f: compile(func.grad(f))(X),
    "compiled hessian": lambda f: compile(func.hessian(f))(X),
    "make_fx of grad": lambda f: make_fx(func.grad(f))(X)(X),
    "grad of functionalize": lambda f: func.grad(func.functionalize(f))(X),
}
QUICK = ("grad", "tape", "hessian", "vmap of grad", "linearize", "vjp")
SLOW = [way if way in QUICK else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


def assert_same(way, program):
    """Compare a program of (argument, whether to write afterwards) with and without the writes."""
    expected, found = [WAYS[way](lambda x: program(x, writes)) for writes in (False, True)]     # noqa: B023
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9)


# --- what a body captures: (what gives the array, what changes it afterwards) ---

captured = np.zeros(3)


def in_a_variable(array):
    return lambda: array, lambda: array.__imul__(5)


def in_a_global(array):
    global captured
    captured = array
    return lambda: captured, lambda: captured.__imul__(5)


def as_a_view(array):
    both = np.stack([array, array])
    row = both[1]
    return lambda: row, lambda: both.__imul__(5)


def as_a_read_only_view(array):
    matrix = np.broadcast_to(array, (3, 3))
    return lambda: matrix[0], lambda: array.__imul__(5)


def in_a_list(array):
    held = [array]
    return lambda: held[0], lambda: held[0].__imul__(5)


def replaced_in_a_list(array):
    held = [array]
    return lambda: held[0], lambda: held.__setitem__(0, array * 5)


def popped_from_a_list(array):
    held = [array, array * 5]
    return lambda: held[0], lambda: held.pop(0)


def replaced_in_a_dict(array):
    held = {"array": array}
    return lambda: held["array"], lambda: held.update(array=array * 5)


def added_to_a_dict(array):
    held = {}
    return lambda: held.get("array", array), lambda: held.update(array=array * 5)


def as_an_attribute(array):
    held = SimpleNamespace(array=array)
    return lambda: held.array, lambda: setattr(held, "array", array * 5)


def further_away(array):
    held = SimpleNamespace(layers=[SimpleNamespace(array=array)])
    return lambda: held.layers[0].array, lambda: setattr(held.layers[0], "array", array * 5)


def as_a_tensor(array):
    held = [Tensor(array)]
    return lambda: held[0], lambda: held.__setitem__(0, Tensor(array * 5))


def of_a_number(array):
    held = SimpleNamespace(factor=1.0)
    return lambda: array * held.factor, lambda: setattr(held, "factor", 5.0)


def of_a_generator_of_numpy(array):
    generator = np.random.default_rng(7)
    return lambda: generator.normal(size=3), lambda: generator.normal(size=3)


HOLDERS = {f.__name__: f for f in (
    in_a_variable, in_a_global, as_a_view, as_a_read_only_view, in_a_list, replaced_in_a_list, popped_from_a_list,
    replaced_in_a_dict, added_to_a_dict, as_an_attribute, further_away, as_a_tensor, of_a_number)}

CONSTRUCTS = {
    "checkpoint": lambda x, body: autograd.checkpoint(body, x),
    "cond": lambda x, body: cond(x[1] > -99, body, lambda x: x * 1.0, (x,)),
    "cond of a constant": lambda x, body: cond(np.array(True), body, lambda x: x * 1.0, (x,)),
    "scan": lambda x, body: scan(lambda c, _: (body(c), None), x, length=2)[0],
    "while_loop": lambda x, body: while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, body(x)), (0, x))[1],
    "map": lambda x, body: map(lambda row: body(row), pnp.stack([x, x])).sum(0),
    "associative_scan": lambda x, body: associative_scan(lambda a, b: a * b * body(b), pnp.stack([x, x]))[1],
    "nested": lambda x, body: autograd.checkpoint(
        lambda x: scan(lambda c, _: (cond(c[1] > -99, body, lambda c: c * 1.0, (c,)), None), x, length=2)[0], x),
}
SOLVERS = {
    "odeint": lambda x, body: odeint(lambda y, t: -body(y), x, np.array([0.0, 0.5]))[-1],
    "quad": lambda x, body: quad(lambda t: body(x).sum() * t, 0.0, 1.0)[0],
    "root": lambda x, body: root(lambda y, x: y - 0.05 * body(y) - x, x, (x,)).x,
    "fixed_point": lambda x, body: fixed_point(lambda y, x: 0.05 * body(y) + x, x, (x,)),
}


def with_capture(construct, holder):
    def program(x, writes):
        get, change = holder(np.array([1.0, 2.0, 3.0]))
        y = construct(x, lambda x: pnp.sin(x * get()) * x)
        if writes:
            change()
        return (y * y).sum()
    return program


@pytest.mark.parametrize("way", SLOW)
@pytest.mark.parametrize("construct", CONSTRUCTS)
@together("holder", HOLDERS)
def test_a_body_finds_what_it_captured(construct, holder, way):
    assert_same(way, with_capture(CONSTRUCTS[construct], HOLDERS[holder]))


@pytest.mark.parametrize("way", ["grad", "tape", "vjp", pytest.param("hessian", marks=pytest.mark.slow)])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_function_of_a_solver_finds_what_it_captured(solver, holder, way):
    assert_same(way, with_capture(SOLVERS[solver], HOLDERS[holder]))


@pytest.mark.parametrize("construct", ["checkpoint", "cond", "cond of a constant"])
@together("way", ["value", "grad", "tape", "hessian", "vjp", "linearize", "jvp", "vmap of grad"])
def test_a_body_draws_from_a_generator_of_numpy_as_in_its_first_run(construct, way):
    assert_same(way, with_capture(CONSTRUCTS[construct], of_a_generator_of_numpy))


# --- arrays that are passed, results, and what a body does to what it captures ---


def body(*arrays):
    return pnp.sin(arrays[0] * arrays[-1]) * arrays[0]


def raw_slices(x):
    c = np.array([[1.0, 2, 3], [4, 5, 6]])
    return c, scan(lambda carry, row: (body(carry, row), None), x, c)[0]


def raw_carry(x):
    c = np.array([1.0, 2, 3])
    return c, scan(lambda carry, row: (body(carry, row), None), c, pnp.stack([x, x]))[0]


def raw_operand(x):
    c = np.array([1.0, 2, 3])
    return c, cond(x[0] > -99, body, lambda x, c: x * c, (x, c))


def raw_argument_of_a_checkpoint(x):
    c = np.array([1.0, 2, 3])
    return c, autograd.checkpoint(body, x, c)


def raw_argument_of_map(x):
    c = np.array([1.0, 2, 3])
    return c, map(body, pnp.stack([x, x]), c).sum(0)


def raw_rows(x):
    c = np.array([[1.0, 2, 3], [4, 5, 6]])
    return c, map(lambda row: body(x, row), c).sum(0)


def raw_part_of_a_carry(x):
    c = np.array([1.0, 2, 3])
    return c, while_loop(lambda i, x, c: i < 2, lambda i, x, c: (i + 1, body(x, c), c), (0, x, c))[1]


def raw_pairs(x):
    c = np.array([[1.0, 2, 3], [4, 5, 6]])
    return c, associative_scan(lambda a, b: a * b * pnp.sin(x), c)[1]


def raw_predicate(x):
    c = np.ones(1)
    return c, cond(c, lambda x: body(x, x), lambda x: x * 1.0, (x,))


def carry(x):
    c = x * 2
    return c, scan(lambda carry, row: (body(carry, carry) * row, None), c, np.ones((2, 3)))[0]


def slices(x):
    c = pnp.stack([x, x])
    return c, scan(lambda carry, row: (body(carry, row), None), x, c)[0]


def rows(x):
    c = pnp.stack([x, x])
    return c, map(lambda row: body(row, row), c)


def argument_of_map(x):
    c = x * 2
    return c, map(body, pnp.stack([x, x]), c)


def carry_of_while_loop(x):
    c = x * 2
    return c, while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, body(x, x)), (0, c))[1]


def operand(x):
    c = x * 2
    return c, cond(x[0] > -99, lambda x: body(x, x), lambda x: x * 1.0, (c,))


def predicate(x):
    c = x * 0 + 1
    return c, cond(c[:1], lambda x: body(x, x), lambda x: x * 1.0, (x,))


def argument_of_a_checkpoint(x):
    c = x * 2
    return c, autograd.checkpoint(lambda x: body(x, x), c)


def pairs(x):
    c = pnp.stack([x, x])
    return c, associative_scan(lambda a, b: pnp.exp(a * b), c)


def value_that_scan_captures(x):
    c = x * 2
    return c, scan(lambda carry, row: (body(carry, c), None), x, np.ones((2, 3)))[0]


def value_that_while_loop_captures(x):
    c = x * 2
    return c, while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, body(x, c)), (0, x))[1]


def value_that_cond_captures(x):
    c = x * 2
    return c, cond(x[0] > -99, lambda x: body(x, c), lambda x: x * 1.0, (x,))


def value_that_a_checkpoint_captures(x):
    c = x * 2
    return c, autograd.checkpoint(lambda x: body(x, c), x)


def value_that_associative_scan_captures(x):
    c = x * 2
    return c, associative_scan(lambda a, b: a * b * c, pnp.stack([x, x]))


PASSED = {f.__name__: f for f in (
    raw_slices, raw_carry, raw_operand, raw_argument_of_a_checkpoint, raw_argument_of_map, raw_rows,
    raw_part_of_a_carry, raw_pairs, raw_predicate, carry, slices, rows, argument_of_map, carry_of_while_loop, operand,
    predicate, argument_of_a_checkpoint, pairs, value_that_scan_captures, value_that_while_loop_captures,
    value_that_cond_captures, value_that_a_checkpoint_captures, value_that_associative_scan_captures)}


@pytest.mark.parametrize("way", SLOW)
@pytest.mark.parametrize("name", PASSED)
def test_a_body_finds_what_was_passed(name, way):
    def program(x, writes):
        passed, y = PASSED[name](x)
        if writes:
            passed *= 5
        return (y * y).sum()

    assert_same(way, program)


RESULTS = {
    "carry": lambda x: scan(lambda c, v: (pnp.exp(c * v * 0.1), None), x, np.ones((2, 3)))[0],
    "view of the carry": lambda x: scan(lambda c, v: (pnp.exp(c * v * 0.1)[::1], None), x, np.ones((2, 3)))[0],
    "rows of scan": lambda x: scan(lambda c, v: (c * 1.0, pnp.exp(c * v * 0.1)), x, np.ones((2, 3)))[1],
    "rows of map": lambda x: map(lambda v: pnp.exp(v * x), np.ones((2, 3))),
    "while_loop": lambda x: while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, pnp.exp(x * 0.1)), (0, x))[1],
    "cond": lambda x: cond(x[0] > -9, pnp.exp, lambda x: x * 1.0, (x,)),
    "checkpoint": lambda x: autograd.checkpoint(pnp.exp, x),
    "associative_scan": lambda x: associative_scan(lambda a, b: pnp.exp(a * b), pnp.stack([x, x])),
}


@pytest.mark.parametrize("way", SLOW)
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_written_to(name, way):
    def program(x, writes):
        y = RESULTS[name](x)
        z = y * 1.0
        if writes:
            y *= 5
        return (z * z).sum()

    assert_same(way, program)


@pytest.mark.parametrize("way", ["value", "grad", "tape", "vjp", "linearize"])
@pytest.mark.parametrize("construct", ["checkpoint", "cond", "cond of a constant"])
def test_what_a_body_keeps_of_its_first_run_is_not_there_in_the_next(construct, way):
    def program(x, keeps):
        known = {}

        def body(x):
            if not keeps or "sine" not in known:
                known["sine"] = pnp.sin(x)
            return known["sine"] * x

        return (CONSTRUCTS[construct](x, body) ** 2).sum()

    assert_same(way, program)


def test_everything_is_afterwards_as_the_program_left_it():
    array, listed, named = np.ones(3), [1.0], {"factor": 2.0}
    generator = np.random.default_rng(7)

    def f(x):
        y = autograd.checkpoint(lambda x: x * x * array * listed[0] * named["factor"] * generator.normal(size=3), x)
        array[:] = 3.0
        listed[0] = 4.0
        listed.append(5.0)
        named.update(factor=6.0, other=7.0)
        return y.sum()

    found = func.grad(f)(X)
    drawn = np.random.default_rng(7)
    np.testing.assert_allclose(found, 4 * X * drawn.normal(size=3), rtol=1e-12)
    assert array.tolist() == [3.0] * 3
    assert listed == [4.0, 5.0]
    assert named == {"factor": 6.0, "other": 7.0}
    assert generator.normal() == drawn.normal()


def test_a_loop_that_no_write_follows_to_runs_once():
    runs = Runs()

    def body(carry, row):
        runs.append(None)
        return pnp.sin(carry) * row, carry * row

    rows = np.ones((4, 3))
    func.grad(lambda x: sum(part.sum() for part in scan(body, x * 2, rows)))(X)
    assert len(runs) == 1 + 4       # one without data


def test_what_a_body_counts_is_counted():
    counts = {"runs": 0}

    def body(carry, row):
        counts["runs"] += 1
        return carry * row, None

    func.grad(lambda x: scan(body, x, np.ones((4, 3)))[0].sum())(X)
    assert counts["runs"] == 4
