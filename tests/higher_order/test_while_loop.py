"""while_loop: values, contracts, every transform against unrolled loops."""

from typing import NamedTuple

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import DataDependentError, DispatchTypeError, FunctionalizationError
from pydispatch.func import grad, jvp, vmap
from pydispatch.higher_order import while_loop
from pydispatch.higher_order.closures import Nesting
from pydispatch.tracing import make_fx
from pydispatch.tree import in_order_of, tree_flatten, tree_map
from tests.higher_order import compositions

X = np.array([0.3, 0.9])
BATCH = np.array([[0.3, 0.9], [3.0, 2.0], [30.0, 10.0], [1.0, 0.1]])


def counted(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, ops.np.sin(x) + x * x), (0, x * 0.1))[1]


def counted_unrolled(x):
    x = x * 0.1
    for _ in range(3):
        x = ops.np.sin(x) + x * x
    return x


def growing(x):
    """Take as many steps as x says, and none for a large x."""
    (found,) = while_loop(lambda x: x.sum() < 10, lambda x: x * x + 1.0, (x,))
    return found


def growing_unrolled(x):
    while compositions.concrete(x.sum()) < 10:
        x = x * x + 1.0
    return x


def captured(x):
    """Loop with a predicate and a body that capture arrays that depend on x."""
    limit, rate = ops.np.absolute(x).sum() + 3.0, ops.np.cos(x) + 1.5
    found = while_loop(lambda s: s["v"].sum() < limit, lambda s: {"v": s["v"] * rate + 0.5, "n": s["n"] + 1},
                       ({"v": x * 1.0, "n": 0},))
    return found[0]["v"]


def captured_unrolled(x):
    limit, rate = ops.np.absolute(x).sum() + 3.0, ops.np.cos(x) + 1.5
    x = x * 1.0
    while compositions.concrete(x.sum() < limit):
        x = x * rate + 0.5
    return x


def nested(x):
    def body(i, x):
        return i + 1, while_loop(lambda y: y.sum() < 4, lambda y: y * 1.5 + x, (x * 0.3,))[0] * 0.3

    return while_loop(lambda i, x: i < 2, body, (0, x + 0.0))[1]


def nested_unrolled(x):
    for _ in range(2):
        y = x * 0.3
        while compositions.concrete(y.sum()) < 4:
            y = y * 1.5 + x
        x = y * 0.3
    return x


TestW15W16W17Compositions = compositions.tests_of({
    "counted": (counted, counted_unrolled),
    "growing": (growing, growing_unrolled),
    "captured": (captured, captured_unrolled),
    "nested": (nested, nested_unrolled),
}, (X,), BATCH)


# --- values ----------------------------------------------------------------------------------------------------------


def collatz(n):
    return while_loop(
        lambda n, steps: n != 1,
        lambda n, steps: (ops.np.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1), (n, 0))[1]


def collatz_in_python(n):
    steps = 0
    while n != 1:
        n, steps = n // 2 if n % 2 == 0 else 3 * n + 1, steps + 1
    return steps


@pytest.mark.parametrize("n", [1, 2, 7, 27])
def test_collatz_steps(n):
    compositions.same(collatz(np.array(n)), np.array(collatz_in_python(n)))


def test_collatz_of_a_batch():
    compositions.same(vmap(collatz)(np.arange(1, 30)), np.array([collatz_in_python(n) for n in range(1, 30)]))


def test_zero_iterations_give_a_copy():
    (found,) = while_loop(lambda x: x.sum() > 100, lambda x: x * 2, (X,))
    compositions.same(found, X)
    assert not np.shares_memory(found, X)


def test_zero_iterations_gradient():
    compositions.same(grad(lambda x: while_loop(lambda x: x.sum() > 100, lambda x: x * 2, (x,))[0].sum())(X),
                      np.ones(2))


@pytest.mark.parametrize("composition", compositions.SINGLE)
def test_zero_iterations_of_compositions(composition):
    compositions.check_single(growing, growing_unrolled, np.array([30.0, 10.0]), composition)
    compositions.check_single(nested, nested_unrolled, np.array([30.0, 10.0]), composition)


def test_carry_that_stays():
    found, _ = while_loop(lambda x, i: i < 2, lambda x, i: (x, i + 1), (X, 0))
    compositions.same(found, X)
    assert not np.shares_memory(found, X)


def test_carry_swapped():
    found = while_loop(lambda a, b, i: i < 3, lambda a, b, i: (b, a, i + 1), (X, X * 2, 0))
    compositions.same(found, (X * 2, X, np.array(3)))


def test_shared_predicate_leaves_the_loop_as_it_is():
    graph = make_fx(vmap(counted))(BATCH)
    body = graph.constants["body_fn"]
    assert [node.target.name.name for node in body.find_nodes(op="call_function")] == ["add", "sin", "multiply", "add"]


def test_one_value_alone():
    assert while_loop(lambda x: x < 10, lambda x: x * 2, (3,))[0] == 12


def test_structure_is_that_of_init():
    found = while_loop(lambda s, v: s["a"] < 3, lambda s, v: ({"a": s["a"] + 1}, [v[0] * 2]), [{"a": 0}, [1.0]])
    assert type(found) is list
    compositions.same(found, [{"a": np.array(3)}, [np.array(8.0)]])


# --- reverse mode ----------------------------------------------------------------------------------------------------


def test_gradient_of_captured_arrays():
    def f(rate):
        return while_loop(lambda x: x.sum() < 50, lambda x: x * rate + 1.0, (X,))[0].sum()

    def unrolled(rate):
        x = X
        while compositions.concrete(ops.np.sum(x)) < 50:
            x = x * rate + 1.0
        return x.sum()

    rate = np.array([1.5, 0.5])
    compositions.same(grad(f)(rate), grad(unrolled)(rate))
    leaf = Tensor(rate, requires_grad=True)
    f(leaf).backward()
    compositions.same(leaf.grad, grad(unrolled)(rate))
    rates = np.array([[1.5, 0.5], [2.5, 3.0], [1.1, 1.2]])
    compositions.same(vmap(grad(f))(rates), np.stack([grad(unrolled)(rate) for rate in rates]))


def test_finished_examples_do_not_spoil_gradients():
    def f(x):
        return while_loop(lambda x, n: n > 0, lambda x, n: (x / n, n - 1.0), (x[0] * 1.0, x[1] * 1.0))[0]

    batch = np.array([[2.0, 1.0], [3.0, 3.0]])
    with np.errstate(all="ignore"):
        found = vmap(grad(f))(batch)
    compositions.same(found[:, 0], np.array([1.0, 1 / 6]))


def test_jvp_with_another_number_of_steps_each():
    found = vmap(lambda x: jvp(growing, (x,), (x,)))(BATCH)
    rows = [jvp(growing_unrolled, (x,), (x,)) for x in BATCH]
    compositions.same(found, tuple([np.stack(column) for column in zip(*rows, strict=True)]))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "message"), [
    (lambda x: x[:1] * 1, r"while_loop: body_fn returns float64\[1\] for array 0 of the carry, expected float64\[2\]"),
    (lambda x: x > 0, r"while_loop: body_fn returns bool\[2\]"),
    (lambda x: (x * 1, x * 1), r"while_loop: body_fn returns \(\*, \*\), expected \(\*,\), the structure of init"),
    (lambda x: 1.0, "while_loop: body_fn: result 0 is a float, expected an array"),
], ids=["shape", "dtype", "structure", "number"])
def test_metadata_errors(body, message):
    with pytest.raises(DispatchTypeError, match=message):
        while_loop(lambda x: x.sum() < 3, body, (X,))


@pytest.mark.parametrize(("cond_fn", "message"), [
    (lambda x: x > 0, r"while_loop: the result of cond_fn has shape \(2,\), expected one element"),
    (lambda x: (x.sum() > 0, x.sum() > 1), "while_loop: cond_fn returns 2 arrays"),
    (lambda x: True, "while_loop: cond_fn: result 0 is a bool, expected an array"),
], ids=["shape", "several", "bool"])
def test_predicates(cond_fn, message):
    with pytest.raises(DispatchTypeError, match=message):
        while_loop(cond_fn, lambda x: x * 1, (X,))


@pytest.mark.parametrize(("args", "message"), [
    ((3, lambda x: x, (X,)), "while_loop: cond_fn is an int, expected a function"),
    ((lambda x: x, None, (X,)), "while_loop: body_fn is a NoneType, expected a function"),
    ((lambda x: x, lambda x: x, X), "while_loop: init is an ndarray, expected a tuple or list"),
], ids=["cond_fn", "body_fn", "init"])
def test_arguments(args, message):
    with pytest.raises(DispatchTypeError, match=message):
        while_loop(*args)


def test_write_to_the_carry():
    def body(x):
        x += 1
        return x

    x = X.copy()
    with pytest.raises(FunctionalizationError, match="while_loop: body_fn writes in place to argument 0"):
        while_loop(lambda x: x.sum() < 10, body, (x,))
    compositions.same(x, X)


def test_graph_of_a_gradient_takes_as_many_steps_as_it_needs():
    graph = make_fx(grad(lambda x: growing(x).sum()))(X)
    for x in BATCH:
        compositions.same(graph(x), grad(lambda x: growing_unrolled(x).sum())(x))
        compositions.same(graph.compile()(x), grad(lambda x: growing_unrolled(x).sum())(x))


def test_gradient_without_data():
    def grown(x):
        return while_loop(lambda x: x.sum() < 100, lambda x: (x * 2,), (x,))[0]

    with pytest.raises(DataDependentError, match="needs the number of steps"):
        make_fx(grad(lambda x: grown(x).sum()), tracing_mode="fake")(X)


class Pair(NamedTuple):
    """A carry whose class is no tuple of Python's own."""

    i: object
    x: object


@pytest.mark.parametrize(("body", "init"), [
    pytest.param(lambda i, x: (i + 1, x * 2.0), (0, 1.0), id="tuple"),
    pytest.param(lambda i, x: [i + 1, x * 2.0], (0, 1.0), id="list"),
    pytest.param(lambda i, x: [i + 1, x * 2.0], [0, 1.0], id="list for a list"),
    pytest.param(lambda i, x: Pair(i + 1, x * 2.0), Pair(0, 1.0), id="named tuple"),
    pytest.param(lambda i, x: (i + 1, {"b": [x["b"][0] * 2.0]}), (0, {"b": [1.0]}), id="nested"),
    pytest.param(lambda i: i + 1, (0,), id="alone"),
    pytest.param(lambda i: [i + 1], (0,), id="list of one"),
    pytest.param(lambda s: {"i": s["i"] + 1, "x": s["x"] * 2.0}, ({"x": 1.0, "i": 0},), id="dict alone"),
])
def test_carry_in_containers(body, init):
    def test(first, *rest):
        return (first["i"] if isinstance(first, dict) else first) < 5

    expected = init
    while test(*expected):
        result = body(*expected)
        expected = result if isinstance(result, (tuple, list)) else (result,)
    found = while_loop(test, body, init)
    assert type(found) is type(init)
    numbers = [tree_flatten(tree_map(float, value)) for value in (tuple(found), tuple(expected))]
    assert in_order_of(numbers[0][1], *numbers[1]) == numbers[0][0]


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: [x], lambda x: x], ids=["tuple", "list", "alone"])
def test_what_a_step_returns_is_taken_apart_in_python_once(wrap, monkeypatch):
    calls = []
    leaves_of = Nesting.leaves_of
    monkeypatch.setattr(Nesting, "leaves_of", lambda self, *args: calls.append(self) or leaves_of(self, *args))
    assert while_loop(lambda i: i < 9, lambda i: wrap(i + 1), (0,))[0] == 9
    assert len(calls) == 2      # of each function, without data
