"""Graphs as straight-line NumPy: the code, its results, Tensors as arguments, and what it costs."""

import copy
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases.programs import ProgramFunctions, programs
from pydispatch import Tensor, default_backend, func, ops
from pydispatch.autograd import no_grad
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import AutogradError, DispatchTypeError, GraphError
from pydispatch.tracing import Graph, make_fx
from pydispatch.tracing.symbolic import trace_with_proxies

X, Y = np.random.default_rng(0).standard_normal((2, 2, 3))
OPERATORS, NUMPY = (
    ProgramFunctions(*[getattr(library, name) for name in ProgramFunctions._fields]) for library in (ops.np, np))


def traced(function):
    return trace_with_proxies(function, Graph())


def body(graph):
    return [line.strip() for line in graph.compile().source.splitlines() if not line.startswith("#")][1:]


# --- the code ---


def test_chains_of_ufuncs_read_like_numpy():
    compiled = traced(lambda x, y: (ops.np.sin(x) * 2.0 + y).sum(0)).compile()
    assert compiled.source == """\
# np_sin: np.sin
# np_multiply: np.multiply
# np_add: np.add
# np_sum: the kernel of np::sum, add.reduce
def forward(x, y):
    sin = np_sin(x);  x = None
    multiply = np_multiply(sin, 2.0);  sin = None
    add = np_add(multiply, y);  multiply = y = None
    sum_1 = np_sum(add, (0,));  add = None
    return sum_1
"""
    assert compiled.function.__globals__["np_add"] is np.add
    np.testing.assert_array_equal(compiled(X, Y), (np.sin(X) * 2 + Y).sum(0))
    assert repr(compiled) == "<CompiledGraph(x, y)>"


@pytest.mark.parametrize(("function", "lines"), [
    pytest.param(lambda x: ops.np.add_(ops.np.sin(x), 1) * 2,
                 ["sin = np.asanyarray(np_sin(x));  x = None", "np_add(sin, 1, out=sin)",
                  "multiply = np_multiply(sin, 2);  sin = None", "return multiply"], id="in-place"),
    pytest.param(lambda x: ops.np.add(x, 1, out=x), ["np_add(x, 1, out=x)", "return x"], id="out="),
    pytest.param(lambda x: ops.np.sum(x, axis=None, keepdims=False), ["sum_1 = np_sum(x);  x = None", "return sum_1"],
                 id="defaults are dropped"),
    pytest.param(lambda x: ops.np.sum(x, dtype="float32"),
                 ["sum_1 = np_sum(x, None, literal);  x = None", "return sum_1"], id="a dtype is made once"),
    pytest.param(lambda x: x[:1, 0], ["getitem = np_getitem(x, literal);  x = None", "return getitem"],
                 id="slices are made once"),
    pytest.param(lambda x: ops.np.concatenate((x, x), 1),
                 ["concatenate = np_concatenate((x, x), 1);  x = None", "return concatenate"], id="lists"),
    pytest.param(lambda x: (x, [2.5]), ["return (x, [2.5])"], id="nothing to do"),
])
def test_lines(function, lines):
    assert body(traced(function)) == lines


@pytest.mark.parametrize(("device", "line"), [
    ("CPU", "zeros = np_zeros((2, 3), device='CPU')"), ("Meta", "zeros = ops.np.zeros((2, 3), device='Meta')")])
def test_another_device_is_left_to_dispatch(device, line):
    graph = Graph()
    graph.output(graph.call_function(ops.np.zeros, ((2, 3),), {"device": device}))
    assert body(graph)[0] == line
    assert graph.compile()().shape == (2, 3)
    assert type(graph.compile()()) is type(graph())


def test_constants_are_globals():
    graph = traced(lambda x: x * Y)
    assert body(graph) == ["multiply = np_multiply(x, constant_1);  x = None", "return multiply"]
    np.testing.assert_array_equal(graph.compile()(X), X * Y)


def test_a_constant_that_is_tracked_is_refused():
    graph = traced(lambda x: x * Tensor(Y, requires_grad=True))
    with pytest.raises(AutogradError, match="constant"):
        graph.compile()


def test_kernels_are_those_of_the_table(fresh, define):
    triple = define(fresh, "triple(Tensor x) -> Tensor", CPU=lambda x: 3 * x)
    graph = traced(lambda x: triple(x))
    compiled = graph.compile()
    np.testing.assert_array_equal(compiled(X), 3 * X)
    assert compiled.function.__globals__[f"{fresh.namespace}_triple"](1) == 3


CONVENTIONS = {"keyset": {"with_keyset": True}, "boxed": {"boxed": True}, "composite": {}}


@pytest.mark.parametrize("convention", list(CONVENTIONS))
def test_kernels_that_take_more_than_arrays_are_dispatched(fresh, convention):
    def with_keyset(keyset, x):
        return -x

    def boxed(op, stack):
        stack.append(-stack.pop())

    def composite(x):
        return ops.np.negative(Tensor(x) if isinstance(x, np.ndarray) else x)

    function = {"keyset": with_keyset, "boxed": boxed, "composite": composite}[convention]
    fresh.define("minus(Tensor x) -> Tensor")
    key = "CompositeImplicitAutograd" if convention == "composite" else "CPU"
    fresh.impl("minus", function, key, **CONVENTIONS[convention])
    graph = Graph()
    graph.output(graph.call_function(getattr(ops, fresh.namespace).minus, (graph.placeholder("x"),)))
    assert body(graph)[0] == f"minus = ops.{fresh.namespace}.minus(x);  x = None"
    result = graph.compile()(X)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, -X)


def test_arguments_that_a_kernel_has_no_default_for_are_filled_in(fresh):
    fresh.define("scale(Tensor x, float by=2.0, *, int plus=3) -> Tensor")
    fresh.impl("scale", lambda x, by, *, plus: x * by + plus, "CPU")
    graph = Graph()
    graph.output(graph.call_function(getattr(ops, fresh.namespace).scale, (graph.placeholder("x"),)))
    assert body(graph)[0] == f"scale = array_of({fresh.namespace}_scale(x, 2.0, plus=3));  x = None"
    np.testing.assert_array_equal(graph.compile()(X), 2 * X + 3)


def test_an_argument_in_the_middle_gets_its_default(fresh):
    fresh.define("mix(Tensor x, float by=2.0, int plus=3) -> Tensor")
    fresh.impl("mix", lambda x, by=2.0, plus=3: x * by + plus, "CPU")
    graph = Graph()
    graph.output(graph.call_function(getattr(ops, fresh.namespace).mix, (graph.placeholder("x"),), {"plus": 5}))
    assert body(graph)[0] == f"mix = array_of({fresh.namespace}_mix(x, 2.0, 5));  x = None"
    np.testing.assert_array_equal(graph.compile()(X), 2 * X + 5)


def test_numbers_that_are_computed_are_converted_by_the_operator():
    graph = Graph()
    x, axis = graph.placeholder("x"), graph.placeholder("axis")
    graph.output(graph.call_function(ops.np.sum, (x, axis)))
    assert body(graph)[0] == "sum_1 = ops.np.sum(x, axis);  x = axis = None"
    np.testing.assert_array_equal(graph.compile()(X, 1), X.sum(1))


@pytest.mark.parametrize("number", [True, 3, 0.5, 1j])
def test_parts_of_numbers_are_arrays(number):
    x = np.ones(2, "int8")
    graph = make_fx(lambda x: (ops.np.real(number), ops.np.imag(number) + x))(x)
    for found, expected in zip(graph.compile()(x), graph(x), strict=True):
        assert type(found) is type(expected) is np.ndarray
        np.testing.assert_array_equal(found, expected, strict=True)


def test_several_results_are_tuples(fresh):
    fresh.define("both(Tensor x) -> (Tensor, Tensor)")
    fresh.impl("both", lambda x: [x + 1, x + 2], "CPU")
    both = getattr(ops, fresh.namespace).both
    graph = Graph()
    x = graph.placeholder("x")
    results = [graph.call_function(both, (x,)), graph.call_function(ops.np.split, (x, 2))]
    graph.output([*results, graph.call_function(operator.getitem, (results[0], 1))])
    pair, split, second = graph.compile()(X)
    assert type(pair) is type(split) is tuple
    assert second is pair[1]
    np.testing.assert_array_equal(second, X + 2)
    np.testing.assert_array_equal(split[1], X[1:])


def test_an_operator_without_result(fresh):
    seen = []
    fresh.define("look(Tensor x) -> ()")
    fresh.impl("look", lambda x: seen.append(x.copy()), "CPU")
    look = getattr(ops, fresh.namespace).look
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_function(look, (x,))
    graph.output(x)
    assert graph.compile()(X) is X
    np.testing.assert_array_equal(seen[0], X)


def test_a_literal_of_another_type_is_refused():
    graph = Graph()
    graph.output(graph.call_function(ops.np.sum, (graph.placeholder("x"), "rows")))
    with pytest.raises(DispatchTypeError, match=r"operator np::sum: argument axis: expected int.*'rows'\n.*np::sum\("):
        graph.compile()


def test_a_graph_that_is_not_well_formed_is_refused():
    with pytest.raises(GraphError, match="no output"):
        Graph().compile()


# --- writes ---


def writing(x, y):
    """Write through a view, into an argument, into a result."""
    row = x[0]
    row += y[1]
    total = x.sum(axis=0, keepdims=True)
    total *= 2
    result = ops.np.exp(x)
    result -= total
    return result, row, x, total


@pytest.mark.parametrize("wrap", [np.array, Tensor], ids=["raw", "Tensor"])
def test_writes(wrap):
    graph = traced(writing)
    expected_x = X.copy()
    expected_x[0] += Y[1]
    total = 2 * expected_x.sum(axis=0, keepdims=True)
    for run in (graph, graph.interpret, graph.compile()):
        x, y = wrap(X.copy()), wrap(Y)
        result, row, same, written = run(x, y)
        assert same is x
        np.testing.assert_array_equal(np.asarray(x), expected_x)
        np.testing.assert_array_equal(np.asarray(row), expected_x[0])
        np.testing.assert_allclose(np.asarray(written), total)
        np.testing.assert_allclose(np.asarray(result), np.exp(expected_x) - total)
        assert np.shares_memory(np.asarray(row), np.asarray(x))
        assert {type(value) for value in (result, row, same, written)} == {type(x)}


def test_an_index_without_axes_stays_an_array():
    graph = traced(lambda x, i: ops.np.index(x, ops.np.add(i, i)))
    assert body(graph)[0] == "add = np.asanyarray(np_add(i, i));  i = None"
    one = np.array(1)
    for run in (graph, graph.interpret, graph.compile()):
        for index in (one, np.int64(1), Tensor(one)):
            np.testing.assert_array_equal(run(np.arange(6.0), index), 2.0)
    key = traced(lambda x, i: ops.np.index(x, i))
    for run in (key, key.interpret, key.compile()):
        np.testing.assert_array_equal(run(np.arange(6.0), np.int64(1)), 1.0)


def test_a_numpy_scalar_as_argument_is_not_written_to():
    graph = traced(lambda x: ops.np.add_(x, 1))
    x = np.float64(2.0)
    for run in (graph, graph.interpret, graph.compile()):
        assert run(x) == 3.0
    assert x == 2.0


def test_versions_rise_where_arguments_are_written_to():
    graph = traced(writing)
    for run in (graph, graph.compile()):
        x, y = Tensor(X.copy()), Tensor(Y)
        run(x, y)
        assert x._version >= 1
        assert y._version == 0


# --- Tensors as arguments ---


def test_results_that_are_arguments_stay_these_objects():
    compiled = traced(lambda x, y: [x, y, x + y]).compile()
    x, y = Tensor(X), Tensor(Y)
    found = compiled(x, y)
    assert found[0] is x
    assert found[1] is y
    assert type(found[2]) is Tensor


def test_gradients_are_not_lost():
    graph = traced(lambda x: x * 2)
    compiled = graph.compile()
    x = Tensor(X, requires_grad=True)
    with pytest.raises(AutogradError, match="argument x of a compiled graph"):
        compiled(x)
    with no_grad():
        np.testing.assert_array_equal(compiled(x).numpy(), 2 * X)
    np.testing.assert_array_equal(compiled(x.detach()).numpy(), 2 * X)
    graph(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full_like(X, 2))
    with pytest.raises(AutogradError):
        func.grad(lambda x: compiled(x).sum())(X)


def test_subclasses_with_handlers_and_other_backends_are_refused():
    class Handled(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    compiled = traced(lambda x: x * 2).compile()
    for value in (Handled(X), Tensor(MetaArray((2, 3)))):
        with pytest.raises(DispatchTypeError, match=r"argument x is a \w+ of backend \w+, expected a plain Tensor.*\n"
                                                    r"run the graph itself"):
            compiled(value)


COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_it_is_copied_as_its_graph(copied):
    graph = traced(lambda x: x * 2)
    compiled = graph.compile()
    again = copied(compiled)
    assert again.source == compiled.source
    np.testing.assert_array_equal(again(X), 2 * X)
    graph.find_nodes(op="call_function")[0].args = (graph.placeholders[0], 3)
    with pytest.raises(TypeError, match=r"have changed since it was compiled\n.*\.compile\(\)"):
        copied(compiled)


def test_it_takes_what_numpy_takes():
    compiled = traced(lambda x, y: x * y).compile()
    assert compiled(2, np.float64(3.0)) == 6.0
    assert compiled(x=X, y=2)[0, 0] == 2 * X[0, 0]
    with pytest.raises(DispatchTypeError, match="the graph takes 2 arguments, but 1 was given"):
        compiled(X)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        compiled(y=X)


def test_the_device_is_numpys_whatever_the_ambient_one():
    graph = Graph()
    graph.output(graph.call_function(ops.np.ones, ((3,),)))
    with default_backend("Meta"):
        np.testing.assert_array_equal(graph.compile()(), np.ones(3))
        assert type(graph()) is MetaArray


# --- everything gives the same ---

UNARY = ("sin", "tanh", "negative", "exp", "floor", "isnan", "sign", "square", "logical_not", "absolute")
BINARY = ("add", "subtract", "multiply", "maximum", "less", "hypot", "arctan2", "copysign", "logical_or", "equal")
shapes = st.sampled_from([(), (1,), (3,), (2, 3), (2, 1)])
dtypes = st.sampled_from(["float64", "float32", "int64", "bool"])


@st.composite
def pointwise_programs(draw):
    """Draw a graph of pointwise operators, its arguments, and what NumPy gives for it."""
    graph = Graph()
    arrays = [np.full(draw(shapes), draw(st.sampled_from([0.75, -2, 0])), draw(dtypes))
              for _ in range(draw(st.integers(1, 3)))]
    pairs = [(graph.placeholder(f"x_{i}"), array) for i, array in enumerate(arrays)]
    if draw(st.booleans()):
        constant = np.linspace(-1, 1, 3)
        pairs.append((graph.add_constant(constant), constant))
    for _ in range(draw(st.integers(0, 12))):
        name = draw(st.sampled_from(UNARY + BINARY))
        operands = [draw(st.sampled_from(pairs)) for _ in range(1 if name in UNARY else 2)]
        if name in BINARY and draw(st.booleans()):
            number = draw(st.sampled_from([2, 0.5, -1.0, True, np.float32(1.5)]))
            operands[draw(st.integers(0, 1))] = number, number
        nodes, values = zip(*operands, strict=True)
        try:
            with np.errstate(all="ignore"):
                value = getattr(np, name)(*values)
        except TypeError:           # a loop that NumPy does not have, such as that of - for bools
            continue
        pairs.append((graph.call_function(getattr(ops.np, name), nodes), value))
    graph.output([node for node, _ in pairs])
    return graph, arrays, [value for _, value in pairs]


@given(pointwise_programs())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_code_interpreter_compiled_and_numpy_agree(program):
    graph, arrays, expected = program
    graph.lint()
    compiled = graph.compile()
    for run in (graph, graph.interpret, compiled):
        for found, wanted in zip(run(*arrays), expected, strict=True):
            assert type(found) is type(wanted)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
    for found, wanted in zip(compiled(*map(Tensor, arrays)), expected, strict=True):
        assert (type(found), found.dtype, found.shape) == (Tensor, wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found.numpy(), wanted)


# --- programs of the benchmarks ---


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.title)
def test_benchmarked_programs(program):
    graph = traced(program.make(OPERATORS))
    arguments = list(program.arguments.values())
    compiled = graph.compile()
    np.testing.assert_array_equal(compiled(*arguments), graph(*arguments))
    np.testing.assert_allclose(compiled(*arguments), program.make(NUMPY)(*arguments), rtol=1e-12)
    assert "ops." not in compiled.source
