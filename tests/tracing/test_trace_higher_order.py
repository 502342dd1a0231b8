"""Higher-order operators in graphs: one node whose functions are graphs. Printing, running, compiling, pickling."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from pydispatch import OpOverload, Tensor, ops
from pydispatch.exceptions import DataDependentError
from pydispatch.func import grad, jvp, vmap
from pydispatch.higher_order import HigherOrderOperator, associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.higher_order.associative_scan import ASSOCIATIVE_SCAN
from pydispatch.higher_order.cond import COND
from pydispatch.higher_order.map import MAP
from pydispatch.higher_order.scan import SCAN
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.library import custom_op
from pydispatch.tracing import FakeMode, FakeTensor, Graph, Transformer, make_fx
from tests.higher_order.compositions import same

X = np.array([0.3, -1.2, 2.0])
WEIGHT = Tensor(np.array([1.0, 2.0, 3.0]))


def chooses(x):
    return cond(x.sum() > 0, lambda x: ops.np.sin(x) * WEIGHT, lambda x: x * 2.0, (x,))


def loops(x):
    return scan(lambda c, x: (c * x, c + x), np.ones(()), x)


def maps(x):
    return map_slices(lambda n, x: ops.np.exp(n) + x, x, x)


def counts(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (0, x))


def combines(x):
    return associative_scan(lambda a, b: a * b, x)


PROGRAMS = {
    "cond": (chooses, COND, ["true_fn", "false_fn"]),
    "scan": (loops, SCAN, ["combine"]),
    "map": (maps, MAP, ["f"]),
    "while_loop": (counts, WHILE, ["cond_fn", "body_fn"]),
    "associative_scan": (combines, ASSOCIATIVE_SCAN, ["combine"]),
}
programs = pytest.mark.parametrize("name", PROGRAMS)
modes = pytest.mark.parametrize("mode", ["real", "fake"])


@programs
@modes
def test_one_node_whose_functions_are_graphs(name, mode):
    program, operator, functions = PROGRAMS[name]
    graph = make_fx(program, tracing_mode=mode)(X)
    graph.lint()
    (node,) = graph.find_nodes(target=operator)
    passed = [graph.constants[used.target] for used in node.all_input_nodes if used.target in functions]
    assert [type(value) for value in passed] == [Graph] * len(functions)
    for function in passed:
        function.lint()
    same(graph(X), program(X))


@programs
def test_other_values_than_those_of_the_trace(name):
    program = PROGRAMS[name][0]
    graph = make_fx(program)(X)
    same(graph(-X), program(-X))
    same(graph.interpret(-X), program(-X))
    same(graph.compile()(-X), program(-X))


@programs
@pytest.mark.parametrize("way", [lambda graph: pickle.loads(pickle.dumps(graph)), copy.deepcopy,
                                 lambda graph: Transformer(graph).transform()], ids=["pickle", "deepcopy", "transform"])
def test_copies(name, way):
    program = PROGRAMS[name][0]
    graph = make_fx(program)(X)
    other = way(graph)
    assert str(other) == str(graph)
    same(other(-X), program(-X))


@programs
def test_tensors_in_tensors_out(name):
    graph = make_fx(PROGRAMS[name][0])(X)
    leaves = graph(Tensor(X))
    assert all(type(leaf) is Tensor for leaf in (leaves if isinstance(leaves, tuple) else (leaves,)))


@programs
def test_fakes_have_the_shapes_and_dtypes(name):
    program = PROGRAMS[name][0]
    mode = FakeMode(allow_real_inputs=True)
    expected = program(X)
    found = program(mode.from_array(X))
    with mode:
        again = program(mode.from_array(X))
    for result in (found, again):
        pairs = zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]
        for fake, real in pairs:
            assert type(fake) is FakeTensor
            assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


def test_text():
    graph = make_fx(lambda x: cond(x.sum() > 0, ops.np.sin, lambda x: x * 2.0, (x,)))(X)
    assert str(graph) == """\
def forward(x_1):
    # x_1: float64[3]
    sum_1 = ops.np.sum(x_1)  # float64[]
    greater = ops.np.greater(sum_1, 0);  sum_1 = None  # bool[]
    true_fn = constants['true_fn']
    false_fn = constants['false_fn']
    cond_1 = cond(greater, true_fn, false_fn, (x_1,));  greater = true_fn = false_fn = x_1 = None  # (float64[3],)
    getitem = cond_1[0];  cond_1 = None  # float64[3]
    return getitem

# true_fn
# def forward(values_1):
#     # values_1: float64[3]
#     sin = ops.np.sin(values_1);  values_1 = None  # float64[3]
#     return (sin,)

# false_fn
# def forward(values_1):
#     # values_1: float64[3]
#     multiply = ops.np.multiply(values_1, 2.0);  values_1 = None  # float64[3]
#     return (multiply,)
"""


def test_compiled_graphs_call_compiled_graphs():
    compiled = make_fx(loops)(X).compile()
    assert "combine_1: a graph, compiled" in compiled.source
    assert "the rule of scan for NumPy arrays" in compiled.source


def test_compiled_graphs_of_functions_that_are_transformed():
    assert "a graph\n" in make_fx(combines)(X).compile().source


@pytest.mark.parametrize("transform", [
    lambda f: grad(lambda x: (f(x)[1] ** 2).sum()), lambda f: lambda x: jvp(f, (x,), (x,))[1]], ids=["grad", "jvp"])
def test_derivatives_are_one_node_per_loop(transform):
    graph = make_fx(transform(loops))(X)
    assert len(graph.find_nodes(target=SCAN)) <= 2
    same(graph(-X), transform(loops)(-X))
    same(graph.compile()(-X), transform(loops)(-X))


def test_derivatives_of_the_graph():
    graph = make_fx(loops)(X)
    for transform in (lambda f: grad(lambda x: (f(x)[1] ** 2).sum()), lambda f: lambda x: jvp(f, (x,), (x,))[1]):
        same(transform(graph)(-X), transform(loops)(-X))
    batch = np.stack([X, -X])
    same(vmap(graph)(batch), vmap(loops)(batch))
    same(make_fx(vmap(graph))(batch)(batch), vmap(loops)(batch))


def test_what_is_captured_of_the_trace_is_an_argument():
    def program(x):
        y = ops.np.cos(x)
        return cond(x.sum() > 0, lambda: y * 2.0, lambda: y + x, ())

    graph = make_fx(program)(X)
    (node,) = graph.find_nodes(target=COND)
    assert [used.name for used in node.args[3]] == ["cos", "x_1"]
    same(graph(-X - 1), program(-X - 1))


def test_loops_in_loops():
    def program(x):
        return scan(lambda c, x: (cond(x > 0, lambda: c * x, lambda: c + x, ()), maps(ops.np.stack([c, x]))), 1.0, x)

    graph = make_fx(program)(X)
    (combine,) = [value for value in graph.constants.values() if isinstance(value, Graph)]
    assert len(combine.find_nodes(target=COND)) == len(combine.find_nodes(target=MAP)) == 1
    same(graph(-X), program(-X))
    same(graph.compile()(-X), program(-X))


def test_body_that_needs_data_is_traced_with_data(fresh):
    @custom_op(f"{fresh.namespace}::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    def program(x):
        return scan(lambda c, x: (double(c) + x, None), 0.0, x)[0]

    graph = make_fx(program)(X)
    names = [str(node.target.name) for node in graph.constants["combine"].find_nodes(op="call_function")
             if isinstance(node.target, OpOverload)]
    assert names == [f"{fresh.namespace}::double", "np::add"]
    same(graph(-X), program(-X))


def test_unused_operators_are_dead_code_unless_their_functions_do_more():
    generator = np.random.default_rng(0)

    def program(x):
        loops(x)
        scan(lambda c, x: (c + ops.np.random_normal(generator, 0.0, 1.0), None), 0.0, x)
        return x * 1

    graph = make_fx(program)(X)
    assert len(graph.find_nodes(target=SCAN)) == 2
    graph.eliminate_dead_code()
    (left,) = graph.find_nodes(target=SCAN)
    assert "random" in str(graph.constants[left.args[0].target])


def test_numbers_of_results_are_refused():
    with pytest.raises(DataDependentError, match="getitem, which depends on the arguments of the trace"):
        make_fx(lambda x: float(loops(x)[0]))(X)


def test_operator_of_a_user():
    # Without `examples` functions are constants of the graph.
    twice = HigherOrderOperator("twice")
    twice.py_impl("CPU")(lambda f, x: f(f(x)))
    graph = make_fx(lambda x: twice(ops.np.sin, x))(X)
    (node,) = graph.find_nodes(target=twice)
    same(graph(-X), np.sin(np.sin(-X)))
    assert graph.constants[node.args[0].target] is ops.np.sin


def test_operator_of_a_user_with_examples():
    twice = HigherOrderOperator("twice", examples=lambda f, x: {0: (x,)})
    twice.py_impl("CPU")(lambda f, x: f(f(x)))
    graph = make_fx(lambda x: twice(lambda x: ops.np.sin(x) * 2, x))(X)
    assert type(graph.constants["f"]) is Graph
    same(graph(-X), 2 * np.sin(2 * np.sin(-X)))


def test_decompositions_reach_inside():
    graph = make_fx(loops, decompositions={ops.np.multiply.default: lambda a, b: ops.np.divide(a, 1 / b)})(X)
    names = [node.target.name.name for node in graph.constants["combine"].find_nodes(op="call_function")]
    assert "multiply" not in names
    assert "divide" in names


CAPTURES = {      # functions that capture what they also get as an argument
    "cond": lambda c: cond(c.sum() > 0, lambda x: x * 2.0 + c, lambda x: x - c, (c,)),
    "scan": lambda c: scan(lambda s, _: (s * 0.5 + c, s - c), c, None, length=3),
    "map": lambda c: map_slices(lambda x: x * 2.0 + c, c),
    "while_loop": lambda c: while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.0 + c), (0, c)),
}


@modes
@pytest.mark.parametrize("name", CAPTURES)
def test_an_argument_that_is_captured_too_stays_an_argument(name, mode):
    function, values = CAPTURES[name], np.array([1.0, 2.0, 3.0])
    graph = make_fx(function, tracing_mode=mode)(values)
    for array in (values, values * 2):
        same(graph(array), function(Tensor(array)))
