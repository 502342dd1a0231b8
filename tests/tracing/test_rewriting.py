"""Replacing patterns in graphs."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.library import Library
from pydispatch.tracing import Graph
from pydispatch.tracing.symbolic import trace_with_proxies

X, Y, Z = np.random.default_rng(0).standard_normal((3, 2, 3))


minus = ops.np.negative


def traced(function):
    return trace_with_proxies(function, Graph())


def targets(graph):
    return [str(node.target.name) for node in graph.nodes if node.op == "call_function"]


@pytest.fixture(scope="module")
def fma():
    """Provide a custom operator: x * y + z at once."""
    with Library("rewriting_tests", "DEF") as library:
        library.define("fma(Tensor x, Tensor y, Tensor z) -> Tensor")
        library.impl("fma", lambda x, y, z: x * y + z, "CPU")
        yield ops.rewriting_tests.fma


# --- the example ---


def test_multiply_and_add_become_one_operator(fma):
    graph = traced(lambda x, y, z: ops.np.sin(x * y + z) * z + 1.0)
    expected = graph(X, Y, Z)
    matches = graph.replace(lambda x, y, z: x * y + z, fma)
    graph.lint()
    assert graph.code == """\
def forward(x, y, z):
    fma = ops.rewriting_tests.fma(x, y, z);  x = y = None
    sin = ops.np.sin(fma);  fma = None
    fma_1 = ops.rewriting_tests.fma(sin, z, 1.0);  sin = z = None
    return fma_1
"""
    np.testing.assert_array_equal(graph(X, Y, Z), expected)
    np.testing.assert_array_equal(graph.compile()(X, Y, Z), expected)
    x, y, z = graph.placeholders
    assert [match.arguments for match in matches] == [
        {"x": x, "y": y, "z": z}, {"x": graph.find_nodes(target=ops.np.sin)[0], "y": z, "z": 1.0}]
    assert [[node.name for node in match.nodes.values()] for match in matches] == [
        ["multiply", "add"], ["multiply_1", "add_1"]]
    assert [match.results for match in matches] == [(node,) for node in graph.find_nodes(target=fma)]


# --- what matches ---


@pytest.mark.parametrize(("program", "pattern", "replacement", "left", "n"), [
    pytest.param(lambda x, y: x * x, lambda a: a * a, ops.np.square, ["np::square"], 1,
                 id="a parameter twice, one value"),
    pytest.param(lambda x, y: x * y, lambda a: a * a, ops.np.square, ["np::multiply"], 0,
                 id="a parameter twice, two values"),
    pytest.param(lambda x, y: x * 2 + 2, lambda a: a * 2, lambda a: a + a, ["np::add", "np::add"], 1, id="a literal"),
    pytest.param(lambda x, y: x * 2.0, lambda a: a * 2, lambda a: a + a, ["np::multiply"], 0, id="2.0 is not 2"),
    pytest.param(lambda x, y: x * True, lambda a: a * 1, lambda a: a, ["np::multiply"], 0, id="True is not 1"),
    pytest.param(lambda x, y: y + x * y, lambda a, b, c: a * b + c, lambda a, b, c: a - b - c,
                 ["np::multiply", "np::add"], 0, id="the order of arguments counts"),
    pytest.param(lambda x, y: ops.np.sum(x, axis=0), lambda a: a.sum(0), lambda a: a.max(0), ["np::max"], 1,
                 id="spelled otherwise"),
    pytest.param(lambda x, y: x.sum(0, keepdims=True), lambda a: a.sum(0), lambda a: a.max(0), ["np::sum"], 0,
                 id="another keyword argument"),
    pytest.param(lambda x, y: x.sum(0, keepdims=False), lambda a: a.sum(0), lambda a: a.max(0), ["np::max"], 1,
                 id="a default given"),
    pytest.param(lambda x, y: x[:1, 0], lambda a: a[:1, 0], lambda a: a + 1, ["np::add"], 1, id="slices"),
    pytest.param(lambda x, y: x[:2, 0], lambda a: a[:1, 0], lambda a: a + 1, ["np::getitem"], 0, id="other slices"),
    pytest.param(lambda x, y: ops.np.concatenate((x, y)), lambda a, b: ops.np.concatenate((a, b)), lambda a, b: a - b,
                 ["np::subtract"], 1, id="lists"),
    pytest.param(lambda x, y: ops.np.concatenate((x, y, x)), lambda a, b: ops.np.concatenate((a, b)),
                 lambda a, b: a - b, ["np::concatenate"], 0, id="a longer list"),
    pytest.param(lambda x, y: ops.np.sin(x) + ops.np.sin(y), ops.np.sin, ops.np.cos,
                 ["np::cos", "np::cos", "np::add"], 2,
                 id="twice"),
    pytest.param(lambda x, y: minus(minus(minus(x))), lambda a: minus(minus(a)),
                 lambda a: +a, ["np::positive", "np::negative"], 1,
                 id="without overlap, from the first"),
    pytest.param(lambda x, y: x * 1.0 + y, lambda a: a * 1.0, lambda a: a, ["np::add"], 1, id="a parameter instead"),
    pytest.param(lambda x, y: x - x, lambda a: a - a, lambda a: 0.0, [], 1, id="a literal instead"),
    pytest.param(lambda x, y: x + y, lambda a, b: a + b, lambda a, b: b + a, ["np::add"], 1, id="into itself"),
    pytest.param(lambda x, y: (x + 1) * (x + 1), lambda a: a + 1, ops.np.exp, ["np::exp", "np::exp", "np::multiply"], 2,
                 id="equal nodes are two matches"),
    pytest.param(lambda x, y: ops.np.exp(x) - ops.np.exp(y), lambda a, b: ops.np.exp(a) - ops.np.exp(b),
                 lambda a, b: a - b, ["np::subtract"], 1, id="two branches"),
])
def test_matching(program, pattern, replacement, left, n):
    graph = traced(program)
    assert len(graph.replace(pattern, replacement)) == n
    graph.lint()
    assert targets(graph) == left


def test_one_node_may_be_two_of_the_pattern():
    graph = traced(lambda x: (lambda e: e - e)(ops.np.exp(x)))
    assert len(graph.replace(lambda a, b: ops.np.exp(a) - ops.np.exp(b), lambda a, b: ops.np.expm1(a - b))) == 1
    assert targets(graph) == ["np::subtract", "np::expm1"]
    np.testing.assert_array_equal(graph(X), np.zeros_like(X))


def test_an_intermediate_result_that_is_used_elsewhere_is_kept(fma):
    def program(x, y, z):
        product = x * y
        return product + z, product

    graph = traced(program)
    assert graph.replace(lambda x, y, z: x * y + z, fma) == []
    assert targets(graph) == ["np::multiply", "np::add"]


def test_dead_users_do_not_count(fma):
    def program(x, y, z):
        product = x * y
        ops.np.sin(product)
        return product + z

    graph = traced(program)
    assert len(graph.replace(lambda x, y, z: x * y + z, fma)) == 1
    assert targets(graph) == ["rewriting_tests::fma"]


def test_a_result_may_be_used_many_times(fma):
    graph = traced(lambda x, y, z: (lambda total: [total, total + total])(x * y + z))
    assert len(graph.replace(lambda x, y, z: x * y + z, fma)) == 1
    assert targets(graph) == ["rewriting_tests::fma", "np::add"]
    np.testing.assert_array_equal(graph(X, Y, Z)[1], 2 * (X * Y + Z))


def test_several_results():
    graph = traced(lambda x, y: ops.np.sin(x) * y + ops.np.cos(x))
    assert graph.replace(lambda a: (ops.np.sin(a), ops.np.cos(a)), lambda a: (ops.np.cos(a), ops.np.sin(a)))
    graph.lint()
    np.testing.assert_array_equal(graph(X, Y), np.cos(X) * Y + np.sin(X))


def test_several_results_of_which_one_needs_the_other_do_not_match():
    graph = traced(lambda x: ops.np.cos(ops.np.sin(x) + 1))
    assert graph.replace(lambda a, b: (ops.np.sin(a), ops.np.cos(b)), lambda a, b: (a, b)) == []


def test_operators_with_several_results():
    with Library("rewriting_pairs", "DEF") as library:
        library.define("pair(Tensor x) -> (Tensor, Tensor)")
        library.impl("pair", lambda x: (x + 1, x + 2), "CPU")
        pair = ops.rewriting_pairs.pair
        graph = traced(lambda x: (lambda both: both[0] * both[1])(pair(x)))
        expected = graph(X)

        def pattern(a):
            first, second = pair(a)
            return first * second

        assert len(graph.replace(pattern, lambda a: (a + 1) * (a + 2))) == 1
        assert targets(graph) == ["np::add", "np::add", "np::multiply"]
        np.testing.assert_array_equal(graph(X), expected)


def test_graphs_as_pattern_and_replacement():
    def split_and_add(graph):
        x = graph.placeholder("x")
        split = graph.call_function(ops.np.split, (x, 2))
        return graph.call_function(
            ops.np.add, tuple([graph.call_function(operator.getitem, (split, i)) for i in (0, 1)]))

    pattern, graph = Graph(), Graph()
    pattern.output(split_and_add(pattern))
    graph.output(graph.call_function(ops.np.sin, (split_and_add(graph),)))
    assert len(graph.replace(pattern, lambda a: a.sum(0, keepdims=True))) == 1
    assert targets(graph) == ["np::sum", "np::sin"]
    np.testing.assert_allclose(graph(X), np.sin(X.sum(0, keepdims=True)))
    assert len(pattern.nodes) == 6              # as it was


def test_constants_of_replacements_and_patterns():
    weight = np.arange(3.0)
    graph = traced(lambda x: ops.np.sin(x) + ops.np.sin(x * 2))
    assert len(graph.replace(ops.np.sin, lambda a: a * weight)) == 2
    assert list(graph.constants) == ["constant"]
    np.testing.assert_array_equal(graph(X), X * weight + X * 2 * weight)
    assert graph.replace(lambda a: a * weight.copy(), ops.np.cos) == []
    assert len(graph.replace(lambda a: a * weight, ops.np.cos)) == 2
    np.testing.assert_array_equal(graph(X), np.cos(X) + np.cos(X * 2))
    graph.eliminate_dead_code()
    assert graph.constants == {}


def test_what_is_known_of_a_result_is_known_of_what_replaces_it():
    graph = traced(lambda x: ops.np.sin(x))
    graph.find_nodes(target=ops.np.sin)[0].meta["val"] = "known"
    graph.replace(ops.np.sin, lambda a: ops.np.cos(a) + 1)
    assert [node.meta.get("val") for node in graph.find_nodes(op="call_function")] == [None, "known"]


# --- writes ---


def written_between(x, y, z):
    product = x * y
    x += 1
    return product + z


def written_before(x, y, z):
    x += 1
    return x * y + z


def written_after(x, y, z):
    total = x * y + z
    x += 1
    return total


def other_written_between(x, y, z):
    product = x * y
    ops.np.sin(z).__iadd__(1)
    return product + z


def view_written_between(x, y, z):
    row = x[0]
    product = x * y
    row += 1
    return product + z


def result_written_after(x, y, z):
    total = x * y + z
    total += x
    return total


@pytest.mark.parametrize(("program", "n"), [
    (written_between, 0), (written_before, 1), (written_after, 1), (other_written_between, 1),
    (view_written_between, 0), (result_written_after, 1),
])
def test_writes(fma, program, n):
    graph = traced(program)
    expected = graph(X.copy(), Y, Z)
    assert len(graph.replace(lambda x, y, z: x * y + z, fma)) == n
    assert targets(graph).count("rewriting_tests::fma") == n
    np.testing.assert_array_equal(graph(X.copy(), Y, Z), expected)
    np.testing.assert_array_equal(program(*[Tensor(value.copy()) for value in (X, Y, Z)]).numpy(), expected)


def test_a_copy_is_not_replaced_by_its_source_where_that_is_written_to():
    def program(x):
        doubled = x * 1.0
        doubled += 1
        return doubled - x

    graph = traced(program)
    assert graph.replace(lambda a: a * 1.0, lambda a: a) == []
    np.testing.assert_array_equal(graph(X.copy()), np.ones_like(X) + X - X)


def test_two_results_are_not_replaced_by_one_where_that_is_written_to():
    def program(x):
        sine, other = ops.np.sin(x), ops.np.cos(x)
        sine += 1
        return sine - other

    graph = traced(program)
    expected = graph(X)
    assert graph.replace(lambda a: (ops.np.sin(a), ops.np.cos(a)), lambda a: (lambda b: (b, b))(ops.np.tan(a))) == []
    assert len(graph.replace(lambda a: (ops.np.sin(a), ops.np.cos(a)), lambda a: (ops.np.sin(a), ops.np.cos(a)))) == 1
    np.testing.assert_array_equal(graph(X), expected)


def test_functions_of_python_in_a_replacement():
    def hypotenuse(x, y):
        return (x * x + y * y) ** 0.5

    replacement = Graph()
    replacement.output(replacement.call_function(hypotenuse, tuple(map(replacement.placeholder, "ab"))))
    graph = traced(lambda x, y: ops.np.hypot(x, y) + 1)
    assert len(graph.replace(ops.np.hypot, replacement)) == 1
    assert "hypotenuse_1 = hypotenuse(x, y)" in graph.code
    np.testing.assert_allclose(graph(X, Y), np.hypot(X, Y) + 1)


def test_a_replacement_may_write_to_what_it_made(fma):
    def replacement(x, y, z):
        product = x * y
        product += z
        return product

    graph = traced(lambda x, y, z: ops.np.sin(x * y + z))
    assert len(graph.replace(lambda x, y, z: x * y + z, replacement)) == 1
    assert targets(graph) == ["np::multiply", "np::add_", "np::sin"]
    for run in (graph, graph.compile()):
        x = X.copy()
        np.testing.assert_array_equal(run(x, Y, Z), np.sin(X * Y + Z))
        np.testing.assert_array_equal(x, X)


# --- errors, after which the graph is as it was ---


def write_to_argument(a):
    a += 1
    return a


@pytest.mark.parametrize(("pattern", "replacement", "error", "message"), [
    pytest.param(write_to_argument, lambda a: a, GraphError, "node add_ has side effects", id="writes"),
    pytest.param(lambda a: a * 2, lambda a: write_to_argument(a), GraphError,
                 "replacement's node add_ writes, or can write, to a parameter", id="replacement writes"),
    pytest.param(lambda a: a * 2, lambda a: write_to_argument(a[0]), GraphError,
                 "replacement's node add_ writes, or can write, to a parameter", id="replacement writes to a view"),
    pytest.param(lambda a: a, lambda a: a, GraphError, "returns a, which is not a result of", id="no operator"),
    pytest.param(lambda a: 3, lambda a: 3, GraphError, "returns 3, which is not a result of", id="literal"),
    pytest.param(lambda a: (), lambda a: (), GraphError, "does not use its parameter a", id="nothing"),
    pytest.param(lambda: (), lambda: (), GraphError, "returns nothing", id="nothing at all"),
    pytest.param(lambda a, b: a + 1, lambda a, b: a, GraphError, "does not use its parameter b", id="unused"),
    pytest.param(lambda a: (ops.np.sin(a), a + 1)[1], lambda a: a, GraphError, "no node uses the pattern's node sin",
                 id="dead"),
    pytest.param(lambda a: a + 1, lambda a, b: a, GraphError, "1 parameters, but the replacement 2", id="parameters"),
    pytest.param(lambda a: a + 1, lambda a: (a, a), GraphError, "return different structures", id="results"),
    pytest.param(lambda a: a.shape, lambda a: a, GraphError, "cannot read shapes or dtypes", id="shape"),
    pytest.param(lambda a: ops.np.split(a, 2)[0], lambda a: a, GraphError, r"np::split returns Tensor\[\]", id="list"),
    pytest.param(lambda a, *, b: a + b, lambda a: a, DispatchTypeError, r"has the parameters \(a, \*, b\)",
                 id="keyword-only"),
    pytest.param(lambda *a: a[0] + 1, lambda a: a, DispatchTypeError, r"has the parameters \(\*a\)", id="varargs"),
    pytest.param(3, lambda a: a, DispatchTypeError, "pattern is an int, expected a function", id="no function"),
])
def test_errors(pattern, replacement, error, message):
    graph = traced(lambda x: ops.np.sin(x) * 2)
    text = str(graph)
    with pytest.raises(error, match=message):
        graph.replace(pattern, replacement)
    assert str(graph) == text
    graph.lint()


def test_numbers_cannot_be_taken_from_symbols():
    with pytest.raises(GraphError, match=r"whose value is unknown in a pattern|a pattern cannot read shapes"):
        traced(lambda x: x * float(x))


# --- random programs ---

STEPS = {"add": np.add, "multiply": np.multiply, "subtract": np.subtract, "sin": np.sin, "negative": np.negative,
         "add_": None, "view": None}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=14))
def test_rewriting_never_changes_what_a_program_computes(fma_for_random, steps):
    def program(x, y):
        values = [x, y]
        for name, i, j in steps:
            left, right = values[i % len(values)], values[j % len(values)]
            if name == "view":
                values.append(left[::-1])
            elif name in ("sin", "negative"):
                values.append(getattr(ops.np, name)(left))
            else:
                values.append(getattr(ops.np, name)(left, right))
        return values[2:]

    graph = traced(program)
    expected = graph(X.copy(), Y.copy())
    for pattern, replacement in ((lambda a, b, c: a * b + c, fma_for_random), (lambda a, b: a - b, lambda a, b: a + -b),
                                 (lambda a: minus(minus(a)), lambda a: +a),
                                 (lambda a: a[::-1], lambda a: ops.np.flip(a, 0))):
        graph.replace(pattern, replacement)
        for found, wanted in zip(graph(X.copy(), Y.copy()), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.fixture(scope="module")
def fma_for_random(fma):
    return fma
