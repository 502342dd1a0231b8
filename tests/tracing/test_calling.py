"""Graphs accept the values, shapes and dtypes that they were traced for, in every kind of array."""

import copy
import functools
import pickle

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, func, library, ops
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DataDependentError, DispatchTypeError
from pydispatch.func import functionalize, grad, jvp, vmap
from pydispatch.higher_order import associative_scan, cond, map, scan, while_loop
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import ArraySpec, FakeMode, Graph, GraphInterpreter, Transformer, make_fx
from tests.together import together

WAYS = {
    "called": lambda graph: graph,
    "interpreted": lambda graph: graph.interpret,
    "interpreter": lambda graph: GraphInterpreter(graph).run,
    "compiled": lambda graph: graph.compile(),
    "pickled": lambda graph: pickle.loads(pickle.dumps(graph)),
    "copied": copy.deepcopy,
    "transformed": lambda graph: Transformer(graph).transform(),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))


def average(x):
    return x.sum() / len(x)


def pair(xs):
    return xs["a"] + xs["b"]


EIGHT = "x_1 is float64[8], expected float64[4]"
MISFITS = [
    pytest.param(average, (np.ones(4),), (np.ones(8),), EIGHT, id="shape"),
    pytest.param(average, (np.ones(4),), (Tensor(np.ones(8)),), EIGHT, id="shape of a Tensor"),
    pytest.param(average, (np.ones(4),), (np.ones((4, 1)),), r"x_1 is float64[4, 1], expected float64[4]", id="axes"),
    pytest.param(average, (np.ones(4),), (np.ones(4, "f4"),), "x_1 is float32[4], expected float64[4]", id="dtype"),
    pytest.param(average, (np.ones(4),), (2.0,), "x_1 is 2.0, expected float64[4]", id="a number"),
    pytest.param(lambda x: x * 2, (np.array(1),), (1.5,), "x_1 is 1.5, expected int64[]", id="a float"),
    pytest.param(pair, ({"a": np.ones(2), "b": np.ones(3)[:1]},), ({"a": np.ones(2), "b": np.ones(2)},),
                 "xs_2 is float64[2], expected float64[1]", id="in a pytree"),
    pytest.param(lambda x, n: x * n, (np.ones(2), 3), (np.ones(3), 3), "x_1 is float64[3], expected float64[2]",
                 id="beside a number"),
    pytest.param(lambda x: ops.np.sum(x), (np.ones(2),), (np.ones(2, ">f8"),), "x_1 is >f8[2], expected float64[2]",
                 id="byte order"),
]


@each_way
@pytest.mark.parametrize(("function", "traced", "given", "message"), MISFITS)
def test_other_shapes_and_dtypes_are_refused(way, function, traced, given, message):
    run = way(make_fx(function)(*traced))
    run(*traced)
    with pytest.raises(DispatchTypeError) as caught:
        run(*given)
    first, remedy = str(caught.value).split("\n")
    assert first == f"the graph's argument {message}, as in the trace"
    assert remedy.startswith("trace again: make_fx(f)(*args)")
    assert "check_shapes=False" in remedy


@each_way
def test_a_graph_that_is_right_for_any_shape_can_say_so(way):
    run = way(make_fx(lambda x: x / x.sum(), check_shapes=False)(np.ones(4)))
    for x in (np.ones(8), np.ones((2, 1), "f4"), np.array(3.0)):
        np.testing.assert_array_equal(run(x), x / x.sum())


@each_way
def test_the_user_may_change_their_mind(way):
    graph = make_fx(lambda x: x * 2)(np.ones(4))
    graph.check_shapes = False
    np.testing.assert_array_equal(way(graph)(np.ones(8)), np.full(8, 2.0))


@each_way
def test_graphs_without_notes_have_nothing_to_check(way):
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(ops.np.add, (x, y)))
    assert graph.check_shapes
    y.meta["val"] = ArraySpec((2,), np.dtype(float))
    np.testing.assert_array_equal(way(graph)(np.ones((3, 1)), np.ones(2)), np.full((3, 2), 2.0))
    with pytest.raises(DispatchTypeError, match=r"argument y is float64\[3\], expected float64\[2\]"):
        way(graph)(1, np.ones(3))


# --- shapes that depend on data ---


class Positive(autograd.Function):
    """The positive elements. The trace sees only the call."""

    @staticmethod
    def forward(x):
        return x[x > 0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return pnp.where(x > 0, pnp.sum(g), 0.0)


def mean_of(select):
    """Return a function that bakes the number of selected elements into its trace."""

    def mean(x):
        y = select(x)
        return pnp.sum(y) / y.shape[0]

    return mean


def selected(x):
    return x[x > 0]


SELECTIONS = {
    "mask": selected,
    "mask of a copy": lambda x: (x * 1)[x > 0],
    "mask beside a slice": lambda x: pnp.stack([x, x], 1)[x > 0, :1],
    "scalar mask": lambda x: x[:1][pnp.min(x) < 0],
    "Function": Positive.apply,
    "body of cond": lambda x: cond(x[0] > 0, mean_of(selected), mean_of(selected), (x,)).reshape(1),
    "body of scan": lambda x: scan(lambda c, _: (c + mean_of(selected)(x), None), 0.0, np.zeros(2))[0].reshape(1),
}
ONE_NEGATIVE, NONE_NEGATIVE = np.array([1.0, -2.0, 3.0]), np.array([1.0, 2.0, 3.0])


@each_way
@together("select", SELECTIONS.values(), ids=SELECTIONS)
def test_a_size_of_other_data_is_refused(way, select):
    # The trace has sizes as numbers: it would divide the sum of three elements by 2.
    mean = mean_of(select)
    run = way(make_fx(mean)(ONE_NEGATIVE))
    np.testing.assert_allclose(run(ONE_NEGATIVE * 2), mean(ONE_NEGATIVE * 2))
    for x in (NONE_NEGATIVE, Tensor(NONE_NEGATIVE)):
        with pytest.raises(DataDependentError, match=r"expected \(\d.*as in the trace[^$]*check_shapes=False"):
            run(x)


@pytest.mark.parametrize("around", [
    grad, lambda f: lambda x: jvp(f, (x,), (x,))[1], functionalize, lambda f: make_fx(f)(ONE_NEGATIVE),
    lambda f: vmap(lambda _: f(NONE_NEGATIVE)),
], ids=["grad", "jvp", "functionalize", "inlined", "vmap"])
def test_a_size_of_other_data_is_refused_under_transforms(around):
    graph = make_fx(mean_of(selected))(ONE_NEGATIVE)
    with pytest.raises(DataDependentError, match=r"index: the result has shape \(3,\), expected \(2,\)"):
        around(graph)(NONE_NEGATIVE)
    traced = make_fx(grad(mean_of(selected)))(ONE_NEGATIVE)
    np.testing.assert_array_equal(traced(ONE_NEGATIVE), [0.5, 0, 0.5])
    with pytest.raises(DataDependentError, match="index"):
        traced(NONE_NEGATIVE)


@each_way
def test_a_size_of_other_data_is_allowed_on_request(way):
    run = way(make_fx(lambda x: pnp.sum(x[x > 0]), check_shapes=False)(ONE_NEGATIVE))
    assert run(NONE_NEGATIVE) == 6
    graph = make_fx(lambda x: pnp.sum(x[x > 0]))(ONE_NEGATIVE)
    graph.check_shapes = False
    assert way(graph)(NONE_NEGATIVE) == 6


@each_way
def test_the_check_stays_without_users(way):
    def count(x):
        return x * x[x > 0].shape[0]

    graph = make_fx(count)(ONE_NEGATIVE)
    graph.eliminate_dead_code()
    np.testing.assert_array_equal(way(graph)(ONE_NEGATIVE), count(ONE_NEGATIVE))
    with pytest.raises(DataDependentError, match="index"):
        way(graph)(NONE_NEGATIVE)


def no_fake(op):
    """Register nothing."""


def fake_of_dynamic_size(op):
    op.register_fake(lambda x: ops.np.empty((library.get_ctx().new_dynamic_size(),)))


@each_way
@pytest.mark.parametrize("register", [no_fake, fake_of_dynamic_size])
def test_a_size_of_a_custom_operator_is_checked(fresh, way, register):
    op = library.custom_op(f"{fresh.namespace}::positive", lambda x: x[x > 0].copy(), mutates_args=(),
                           schema="(Tensor x) -> Tensor")
    register(op)
    run = way(make_fx(mean_of(op))(ONE_NEGATIVE))
    assert run(ONE_NEGATIVE) == 2
    with pytest.raises(DataDependentError, match="positive: the result has shape"):
        run(NONE_NEGATIVE)


def test_sizes_that_are_known_are_not_checked():
    mask = np.array([True, False, True])
    assert "check_shape" not in make_fx(lambda x: x[mask] + x[pnp.array([0, 1])])(ONE_NEGATIVE).code


# --- what fits ---


@each_way
@together("dtype, number", [
    ("f8", 2.0), ("f4", 2.0), ("f4", 2), ("f8", True), ("i1", 2), ("u2", 2), ("c8", 2.0), ("c16", 2j), ("?", True),
    ("i8", True),
])
def test_a_number_in_place_of_an_array_without_axes(way, dtype, number):
    array = np.array(number, dtype)
    other = np.arange(3, dtype="f4")
    run = way(make_fx(lambda x, y: x * y)(array, other))
    result = run(number, other)
    assert result.dtype == (array * other).dtype
    np.testing.assert_array_equal(result, array * other)


@each_way
def test_numpys_scalars_are_arrays_without_axes(way):
    run = way(make_fx(lambda x: x + 1)(np.array(1.0)))
    assert run(np.float64(2.0)) == 3.0
    with pytest.raises(DispatchTypeError, match=r"x_1 is float32\[\], expected float64\[\]"):
        run(np.float32(2.0))


@pytest.mark.parametrize("wrap", [
    Tensor, LoggingTensor, lambda x: Tensor(x, requires_grad=True), lambda x: x[::-1][::-1], np.asfortranarray,
], ids=["Tensor", "subclass", "tracked", "view", "order"])
def test_values_of_any_kind_fit_by_shape_and_dtype(wrap):
    graph = make_fx(lambda x: x.sum(0) / len(x))(np.ones((4, 2)))
    value = wrap(np.arange(8.0).reshape(4, 2))
    result = graph(value)
    assert isinstance(result, Tensor) is isinstance(value, Tensor)
    with autograd.no_grad():
        np.testing.assert_array_equal([result[0].item(), result[1].item()], [3.0, 4.0])
    with pytest.raises(DispatchTypeError, match=r"x_1 is float64\[3, 2\], expected float64\[4, 2\]"):
        graph(wrap(np.ones((3, 2))))


def test_arrays_without_data():
    graph = make_fx(average)(np.ones(4))
    assert graph(MetaArray((4,))).shape == ()
    with FakeMode(allow_real_inputs=True) as mode:
        assert graph(mode.from_array(np.ones(4))).shape == ()
    for large in (MetaArray((8,)), mode.from_array(np.ones(8))):
        with pytest.raises(DispatchTypeError, match=r"x_1 is float64\[8\], expected float64\[4\]"):
            graph(large)
    on_meta = make_fx(average)(MetaArray((4,)))
    assert on_meta(np.ones(4)) == 1.0


X = np.arange(12.0).reshape(3, 4)
TRANSFORMS = [
    pytest.param(lambda f: vmap(f), X, [1.5, 5.5, 9.5], id="vmap"),
    pytest.param(lambda f: vmap(f, in_dims=1), X.T, [1.5, 5.5, 9.5], id="vmap over the last axis"),
    pytest.param(lambda f: vmap(vmap(f)), X[None], [[1.5, 5.5, 9.5]], id="vmap of vmap"),
    pytest.param(grad, X[0], np.full(4, 0.25), id="grad"),
    pytest.param(lambda f: vmap(grad(f)), X, np.full((3, 4), 0.25), id="vmap of grad"),
    pytest.param(lambda f: grad(lambda x: vmap(f)(x).sum()), X, np.full((3, 4), 0.25), id="grad of vmap"),
    pytest.param(lambda f: lambda x: jvp(f, (x,), (x,))[1], X[1], 5.5, id="jvp"),
    pytest.param(functionalize, X[1], 5.5, id="functionalize"),
    pytest.param(func.jacrev, X[1], np.full(4, 0.25), id="jacrev"),
    pytest.param(func.jacfwd, X[1], np.full(4, 0.25), id="jacfwd"),
]


@pytest.mark.parametrize(("transform", "x", "expected"), TRANSFORMS)
def test_the_shape_that_counts_is_that_which_the_graph_sees(transform, x, expected):
    graph = make_fx(average)(np.ones(4))
    np.testing.assert_allclose(transform(graph)(x), expected)
    with pytest.raises(DispatchTypeError, match=r"x_1 is float64\[2\], expected float64\[4\]"):
        transform(graph)(np.take(x, [0, 1], x.shape.index(4)))


def test_a_graph_in_a_trace_sees_the_trace():
    inner = make_fx(average)(np.ones(4))
    outer = make_fx(lambda x: inner(x) * 2)(np.ones(4))
    assert outer(np.full(4, 3.0)) == 6.0
    with pytest.raises(DispatchTypeError, match=r"x_1 is float64\[8\]"):
        make_fx(lambda x: inner(x) * 2)(np.ones(8))


BODIES = [
    pytest.param(lambda x: cond(x.sum() > 0, lambda y: y.sum() / len(y), lambda y: y.sum(), (x,)), id="cond"),
    pytest.param(lambda x: scan(lambda c, y: (c + y.sum(), c * 1), ops.np.zeros(()), x)[0] / len(x), id="scan"),
    pytest.param(lambda x: map(lambda y: y * 2.0, x).sum() / len(x), id="map"),
    pytest.param(lambda x: while_loop(lambda c: c.sum() < 99.0, lambda c: c * 2 + 1, (x,))[0].sum() / len(x),
                 id="while_loop"),
    pytest.param(lambda x: associative_scan(lambda a, b: a * b + a, x).sum() / len(x), id="associative_scan"),
]


@pytest.mark.parametrize("function", BODIES)
@together("way", [way for name, way in WAYS.items() if name != "interpreter"])
def test_bodies_of_control_flow(function, way):
    x = np.linspace(0.1, 1.0, 8)
    run = way(make_fx(function)(np.ones(8)))
    expected = np.asarray(function(x))
    np.testing.assert_allclose(run(x), expected)
    with pytest.raises(DispatchTypeError, match=r"float64\[4\], expected float64\[8\]"):
        run(x[:4])


@pytest.mark.parametrize("way", [way for name, way in WAYS.items() if name != "interpreter"])
@pytest.mark.parametrize("body", [
    lambda x: cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, (x,)), lambda x: map(lambda y: y * 2, x),
], ids=["cond", "map"])
def test_bodies_take_what_the_graph_takes(body, way):
    run = way(make_fx(body, check_shapes=False)(np.ones((4, 2))))
    np.testing.assert_array_equal(run(np.ones((4, 3))), np.full((4, 3), 2.0))


@pytest.mark.parametrize("transform", [
    vmap, lambda f: grad(lambda x: f(x).sum()), lambda f: lambda x: jvp(f, (x,), (x,))[1]], ids=["vmap", "grad", "jvp"])
@pytest.mark.parametrize("function", BODIES)
def test_bodies_of_control_flow_under_transforms(function, transform):
    x = np.linspace(0.1, 1.0, 16).reshape(2, 8) if transform is vmap else np.linspace(0.1, 1.0, 8)
    graph = make_fx(function)(np.ones(8))
    np.testing.assert_allclose(np.asarray(transform(graph)(x)), np.asarray(transform(function)(x)))


def test_arguments_of_a_compiled_graph_by_name():
    compiled = make_fx(functools.partial(lambda x, y: x - y))(np.ones(2), np.ones(2)).compile()
    np.testing.assert_array_equal(compiled(y_1=np.ones(2), x_1=np.zeros(2)), [-1.0, -1.0])
    with pytest.raises(DispatchTypeError, match="y_1 is float64"):
        compiled(np.ones(2), y_1=np.ones(3))
