"""The source of a graph: its text for each kind of call, literals that evaluate to themselves."""

import builtins
import enum
import gc
import linecache
import math
import operator
import pickle
import traceback
import weakref
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch._registry import registrations
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.schema.user_types import register_opaque_type, unregister_opaque_type
from pydispatch.tracing import ArraySpec, Graph
from pydispatch.tracing.codegen import Scope, argument_text
from pydispatch.tracing.literals import same_literal
from pydispatch.tree import register_pytree_node

Point = namedtuple("Point", "x y")
X = np.arange(1.0, 7.0).reshape(2, 3)


class Ring:
    def __init__(self, children):
        self.children = list(children)


@pytest.fixture(scope="module", autouse=True)
def ring():
    register_pytree_node(Ring, lambda ring: (ring.children, None), lambda children, _: Ring(children))


class Color(enum.Enum):
    RED = 1


def graph_of(build, *names):
    """Return the graph whose output `build(graph, *placeholders)` is."""
    graph = Graph()
    graph.output(build(graph, *map(graph.placeholder, names)))
    return graph


def in_place(graph, x):
    sine = graph.call_function(ops.np.sin, (x,))
    return graph.call_function(ops.np.multiply, (graph.call_function(ops.np.add_, (sine, 1)), 2))


def split_and_max(graph, x):
    split = graph.call_function(ops.np.split, (x, 2, 0))
    first = graph.call_function(operator.getitem, (split, 0))
    graph.call_function(operator.getitem, (split, 1))
    return graph.call_function(ops.np.add, (first, 1))


def with_constant(graph, x):
    return graph.call_function(ops.np.add, (x, graph.add_constant(X)))


TEXTS = [
    pytest.param(in_place, ["x_1"], """\
def forward(x_1):
    sin = ops.np.sin(x_1);  x_1 = None
    add_ = ops.np.add_(sin, 1);  sin = None
    multiply = ops.np.multiply(add_, 2);  add_ = None
    return multiply
""", id="sin(x).add_(1) * 2"),
    pytest.param(lambda graph, x: graph.call_function(ops.np.var, (x, 0), {"ddof": 1, "keepdims": True}), ["x_1"], """\
def forward(x_1):
    var = ops.np.var(x_1, 0, ddof=1, keepdims=True);  x_1 = None
    return var
""", id="keyword arguments, spaced as PEP 8 says"),
    pytest.param(with_constant, ["x_1"], """\
def forward(x_1):
    constant = constants['constant']
    add = ops.np.add(x_1, constant);  x_1 = constant = None
    return add
""", id="x + constant"),
    pytest.param(split_and_max, ["x_1"], """\
def forward(x_1):
    split = ops.np.split(x_1, 2, 0);  x_1 = None
    getitem = split[0]
    getitem_1 = split[1];  split = getitem_1 = None
    add = ops.np.add(getitem, 1);  getitem = None
    return add
""", id="split, several results"),
    pytest.param(
        lambda graph, x: graph.call_function(ops.np.sum, (x, 0), {"keepdims": True, "where": None}), ["x_1"], """\
def forward(x_1):
    sum_1 = ops.np.sum(x_1, 0, keepdims=True, where=None);  x_1 = None
    return sum_1
""", id="sum is a builtin"),
    pytest.param(lambda graph, x, o: graph.call_function(ops.np.absolute, (x,), {"out": o}), ["x_1", "o_1"], """\
def forward(x_1, o_1):
    absolute = ops.np.absolute.out(x_1, out=o_1);  x_1 = o_1 = None
    return absolute
""", id="out="),
    pytest.param(lambda graph, x: graph.call_function(ops.np.add_, (x, 1)), ["x_1"], """\
def forward(x_1):
    add_ = ops.np.add_(x_1, 1);  x_1 = None
    return add_
""", id="an argument is written to"),
    pytest.param(lambda graph, x: [x, {"a": (None, 2.5)}, (x,)], ["x_1"], """\
def forward(x_1):
    return [x_1, {'a': (None, 2.5)}, (x_1,)]
""", id="nested output"),
    pytest.param(lambda graph, x: graph.call_function(ops.np.getitem, (x, (slice(None, 2), ..., None, -1))), ["x"], """\
def forward(x):
    getitem = ops.np.getitem(x, (slice(None, 2), ..., None, -1));  x = None
    return getitem
""", id="slices"),
    pytest.param(lambda graph, x: graph.call_function(ops.np.sum, (x, None, np.dtype("float32"))), ["x"], """\
def forward(x):
    sum_1 = ops.np.sum(x, None, np.dtype('float32'));  x = None
    return sum_1
""", id="a dtype"),
    pytest.param(lambda graph, x: graph.call_function(ops.np.clip, (x, -math.inf, math.inf)), ["x"], """\
def forward(x):
    clip = ops.np.clip(x, -inf, inf);  x = None
    return clip
""", id="inf"),
    pytest.param(lambda graph, x: graph.call_function(max, (graph.call_function(len, (x,)), 7)), ["x"], """\
def forward(x):
    len_1 = len(x);  x = None
    max_1 = max(len_1, 7);  len_1 = None
    return max_1
""", id="builtin functions"),
    pytest.param(
        lambda graph, x: graph.call_function(operator.neg, (graph.call_function(np.flipud, (x,)),)), ["x"], """\
def forward(x):
    flipud = np.flipud(x);  x = None
    neg = operator.neg(flipud);  flipud = None
    return neg
""", id="functions of operator and numpy"),
    pytest.param(lambda graph, x: 3, ["x"], """\
def forward(x):
    return 3
""", id="a literal"),
]


@pytest.mark.parametrize(("build", "names", "text"), TEXTS)
def test_text(build, names, text):
    graph = graph_of(build, *names)
    assert graph.code == text
    graph.lint()


@pytest.mark.parametrize(("build", "names", "text"), TEXTS[:-2])
def test_code_runs_with_its_globals(build, names, text):
    graph = graph_of(build, *names)
    namespace = graph.globals
    exec(graph.code, namespace)
    args = [X.copy() for _ in names]
    expected = graph(*[arg.copy() for arg in args])
    assert repr(namespace["forward"](*args)) == repr(expected)
    assert repr(graph.compile()(*[X.copy() for _ in names])) == repr(expected)


def test_comments_tell_what_is_known():
    graph = Graph()
    x, y = graph.placeholder("x_1"), graph.placeholder("y_1")
    split = graph.call_function(ops.np.split, (x, 2))
    first = graph.call_function(operator.getitem, (split, 0))
    item = graph.call_function(operator.getitem, (first, 0))
    graph.output([first, item, y])
    half = ArraySpec((1, 3), np.dtype("float64"))
    for node, value in ((x, ArraySpec((2, 3), np.dtype("float64"))), (split, (half, half)), (first, half), (item, 2)):
        node.meta["val"] = value
    assert str(graph) == """\
def forward(x_1, y_1):
    # x_1: float64[2, 3]
    split = ops.np.split(x_1, 2);  x_1 = None  # (float64[1, 3], float64[1, 3])
    getitem = split[0];  split = None  # float64[1, 3]
    getitem_1 = getitem[0]  # int
    return [getitem, getitem_1, y_1]
"""
    assert "#" not in graph.code


def test_the_code_follows_changes():
    graph = graph_of(lambda graph, x: graph.call_function(ops.np.sin, (x,)), "x")
    np.testing.assert_array_equal(graph(X), np.sin(X))
    node, = graph.find_nodes(target=ops.np.sin)
    node.target = ops.np.cos.default
    np.testing.assert_array_equal(graph(X), np.cos(X))
    node.args = (1.5,)
    assert graph(X) == np.cos(1.5)
    graph.output_node.args = (graph.placeholders[0],)
    assert graph(X) is X


@pytest.mark.parametrize("how", [lambda graph: graph, lambda graph: graph.compile()], ids=["code", "compiled"])
def test_tracebacks_show_the_line(how):
    graph = graph_of(lambda graph, x: graph.call_function(ops.np.matmul, (x, x)), "x")
    run = how(graph)
    with pytest.raises(ValueError, match="matmul") as caught:
        run(X)
    assert "matmul(x, x)" in "".join(traceback.format_exception(caught.value))
    known = set(linecache.cache)
    del run, caught
    graph.note_change()
    gc.collect()
    assert known <= set(linecache.cache)        # no file goes while linecache may be looking through it
    how(graph)(np.eye(2))
    assert not known <= set(linecache.cache)


def test_a_graph_without_output_has_no_code():
    graph = Graph()
    graph.placeholder("x")
    with pytest.raises(GraphError, match=r"has no output\n.*graph\.output"):
        _ = graph.code


def test_functions_of_the_user_do_not_hide_nodes_nor_each_other():
    def fma(x, y, z):
        return x * y + z

    def other(x):
        return -x

    other.__name__ = "fma"
    graph = Graph()
    x = graph.placeholder("fma_2")
    value = graph.call_function(fma, (x, x, x))
    graph.output((value, graph.call_function(other, (value,)), graph.call_function(fma, (x, x, value))))
    assert graph.code.count(" = fma(") == 2
    results = graph(X)
    np.testing.assert_array_equal(results[0], X * X + X)
    np.testing.assert_array_equal(results[1], -results[0])
    np.testing.assert_array_equal(results[2], X * X + results[0])


def test_the_overload_is_named_where_the_name_alone_calls_another(fresh):
    fresh.define("pick.first(Tensor x) -> str")
    fresh.define("pick.second(Tensor x) -> str")
    fresh.impl("pick.first", lambda x: "first", "CPU")
    fresh.impl("pick.second", lambda x: "second", "CPU")
    packet = getattr(ops, fresh.namespace).pick
    graph = graph_of(
        lambda graph, x: [graph.call_function(packet.second, (x,)), graph.call_function(packet.first, (x,))], "x")
    assert graph(X) == ["second", "first"]
    assert f"pick = ops.{fresh.namespace}.pick.second(x)" in graph.code
    assert f"pick_1 = ops.{fresh.namespace}.pick(x)" in graph.code


def test_keywords_of_python_as_names_of_arguments():
    def function(**kwargs):
        return kwargs["lambda"]

    graph = graph_of(lambda graph, x: graph.call_function(function, (), {"lambda": x}), "x")
    assert "function(**{'lambda': x})" in graph.code
    assert graph(X) is X


@pytest.mark.parametrize("value", [Point(1, [2]), Ring([1, Point(None, 2)])], ids=["named tuple", "registered class"])
def test_containers_of_any_class(value):
    def function(value):
        return value

    graph = graph_of(lambda graph, x: [graph.call_function(function, (value,)), Point(x, 1)], "x")
    assert "tree_unflatten([" in graph.code
    for run in (graph, graph.interpret, graph.compile()):
        found, point = run(X)
        assert type(found) is type(value)
        assert (type(point), point.x is X, point.y) == (Point, True, 1)


def test_members_of_enumerations(fresh):
    register_opaque_type(Color)
    try:
        fresh.define("paint(Tensor x, Color color) -> str")
        fresh.impl("paint", lambda x, color: color.name, "CPU")
        target = getattr(ops, fresh.namespace).paint
        graph = graph_of(lambda graph, x: graph.call_function(target, (x, Color.RED)), "x")
        assert f"ops.{fresh.namespace}.paint(x, Color.RED)" in graph.code
        assert graph(X) == graph.compile()(X) == "RED"
    finally:
        unregister_opaque_type(Color)


# --- literals ---

numbers = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=5),
    st.binary(max_size=5), st.just(...), st.floats().map(np.float64), st.floats(width=16).map(np.float16),
    st.complex_numbers().map(np.complex128), st.integers(-128, 127).map(np.int8), st.booleans().map(np.bool_),
    st.floats().map(np.longdouble),
    st.sampled_from(["float32", "i8", "complex64", ">f4", "U3", "datetime64[s]", "bool"]).map(np.dtype),
    st.sampled_from([np.float32, np.bool_, np.int64, np.longdouble, int, float, bool, complex]))
literals = st.recursive(numbers, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3), inner, max_size=3), st.builds(slice, inner, inner, inner),
    st.builds(Point, inner, inner)), max_leaves=8)


def same(left, right):
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, slice):
        return same((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    if isinstance(left, dict):
        return list(left) == list(right) and same(list(left.values()), list(right.values()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (complex, np.complexfloating)):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, (float, np.floating)):
        return bool(left == right and np.signbit(left) == np.signbit(right)) or bool(left != left and right != right)
    return bool(left == right)


@given(literals)
def test_literals_evaluate_to_themselves(value):
    scope = Scope(Graph())
    text = argument_text(value, scope)
    assert same(eval(text, scope.names), value)


@given(numbers, numbers)
def test_same_literal_is_equality_of_value_and_type(left, right):
    assert same_literal(left, left)
    assert same_literal(left, right) == same(left, right)


@pytest.mark.parametrize(("left", "right"), [
    (1, 1.0), (1, True), (0.0, -0.0), (1.0, np.float64(1.0)), (np.dtype("f4"), np.float32), (1j, -1j),
    (complex(0.0, 0.0), complex(-0.0, 0.0)), ("a", b"a"), (None, False),
], ids=repr)
def test_literals_that_differ(left, right):
    assert not same_literal(left, right)


# --- hostile names and constants ---


class Word(str):
    """A text that prints itself as another."""

    __slots__ = ()

    def __repr__(self):
        return "run_evil()"

    __str__ = __repr__

    def __format__(self, spec):
        return "run_evil()"


class Number(np.float64):
    """A number that prints itself as something else."""

    def __repr__(self):
        return "run_evil()"


class Permission(enum.Flag):
    READ, WRITE = 1, 2


Odd = enum.Enum("Odd", {"k=run_evil(), b": 1, "lambda": 2, "name": 3, "plain": 4, "__debug__": 5})


def nested(value, n):
    for _ in range(n):
        value = (value,)
    return value


NAMES = ["run", "run_any", "constants", "ops", "np", "operator", "forward", "tree_unflatten", "nan", "inf", "self",
         "print", "lambda", "None", "__debug__", "__builtins__", "__import__", "_", "", "a b", "x\n    run_evil()",
         "k=run_evil(), b", "x);run_evil(", "\N{LATIN SMALL LIGATURE FI}", "fi", "\N{ANGSTROM SIGN}", "x\r\x00\u2028#",
         "\ud800", "'", "\\", '"""', "{x}", Word("word"), "general"]
CONSTANTS = [
    Permission.READ | Permission.WRITE, Permission(0), *Odd, Number(2.0), Number, 10**5000, -(10**5000), nested(1, 200),
    nested([{"a": slice(None, 1)}], 120),
    np.dtype([("a", "f8"), ("b); run_evil(", "i4")]), np.dtype((float, (2,))),
    np.dtype("f8", metadata={"a": 1}), math.nan, -0.0, math.inf, complex(-0.0, math.inf), {(1, 2): None},
    {Word("k"): 1}, {math.inf: [1]}, np.longdouble(1) / 3, np.float16(0.1), np.True_, slice([1], None, 2),
    "\ud800\x00'\n", b"'\n",
]
hostile_names = st.one_of(st.sampled_from(NAMES), st.text(max_size=6))
constants = st.one_of(
    st.sampled_from(range(len(CONSTANTS))).map(lambda i: CONSTANTS[i]),     # Hypothesis asks for repr: some have none
    literals,
)


def collect(*args, **kwargs):
    return args, kwargs


def copied(graph):
    return pickle.loads(pickle.dumps(graph))


@pytest.fixture(scope="module")
def evil():
    ran = []
    builtins.run_evil = lambda: ran.append(1)
    yield ran
    del builtins.run_evil


@given(st.lists(hostile_names, min_size=1, max_size=4), st.dictionaries(hostile_names, constants, max_size=3),
       st.lists(constants, max_size=2), hostile_names)
@example(["x"], {}, [], "object")            # getattr(np, "object") warns
def test_nothing_in_a_graph_becomes_code(evil, names, keywords, args, function_name):
    def function(*args, **kwargs):
        return collect(*args, **kwargs)

    function.__name__ = function_name
    graph = Graph()
    xs = [graph.placeholder(name) for name in names]
    constant = graph.add_constant(X, names[0])
    passed = graph.call_function(collect, (*xs, *args, constant), keywords)
    graph.output([graph.call_function(function, (passed,), keywords), *args, *xs])
    graph.lint()
    values = list(range(len(names)))
    inner = (*values, *args, X), keywords
    expected = [((inner,), keywords), *args, *values]
    for run in (graph, graph.interpret, graph.compile()):
        assert same(run(*values), expected)
    namespace = graph.globals
    exec(str(graph), namespace)             # with its comments
    assert same(namespace["forward"](*values), expected)
    graph.draw("dot"), graph.draw("mermaid")
    assert not evil


@given(st.lists(hostile_names, min_size=1, max_size=4), st.dictionaries(hostile_names, constants, max_size=3))
def test_pickled_graphs_run_alike(names, keywords):
    graph = Graph()
    xs = [graph.placeholder(name) for name in names]
    graph.output(graph.call_function(collect, (*xs, graph.add_constant(3, names[-1])), keywords))
    if any(isinstance(value, Number) for value in keywords.values()):
        return                              # NumPy pickles it as a float64
    values = list(range(len(names)))
    assert same(copied(graph)(*values), graph(*values))
    assert copied(graph).code == graph.code


@pytest.mark.parametrize("name", ["x y", "x_1", "\N{LATIN SMALL LIGATURE FI}", Word("x"), "print"], ids=ascii)
@pytest.mark.parametrize("run", [lambda graph: graph(X, X), lambda graph: graph.compile(), lambda graph: graph.code],
                         ids=["run", "compile", "code"])
def test_a_name_that_was_set_is_checked(name, run):
    graph = graph_of(lambda graph, x, y: [x, y], "x_1", "y_1")
    graph.placeholders[1].name = name
    with pytest.raises(GraphError, match=r"its name .* is taken, hides something, or is not an identifier"):
        run(graph)


def test_keywords_are_texts():
    graph = Graph()
    with pytest.raises(DispatchTypeError, match=r"the keywords are \[1\], expected strings\nname arguments"):
        graph.call_function(collect, (), {1: 2})


@pytest.mark.parametrize(("name", "spec"), [
    pytest.param("x", type("a\nrun_evil()", (), {})(), id="a class"),
    pytest.param("x", ArraySpec((1,), np.dtype([("a\nrun_evil()", "f8")])), id="a field"),
    pytest.param("x", ArraySpec((1,), np.dtype("f8"), "CPU\nrun_evil()"), id="a device"),
])
def test_comments_end_with_their_line(evil, name, spec):
    graph = graph_of(lambda graph, x: graph.call_function(collect, (x,)), name)
    for node in graph.nodes:
        node.meta["val"] = spec
    graph.constants["a\nrun_evil()"] = Graph()
    graph.constants["a\nrun_evil()"].output(None)
    exec(str(graph), graph.globals)
    assert not evil


def test_a_function_that_became_builtin_hides_no_node(monkeypatch):
    monkeypatch.setattr(builtins, "collect", collect, raising=False)
    graph = graph_of(lambda graph, x: graph.call_function(collect, (graph.call_function(collect, (x,)),)), "x")
    assert graph(1) == graph.compile()(1) == (((((1,), {})),), {})


def test_operators_that_attributes_do_not_lead_to(fresh):
    fresh.define("name(Tensor x) -> str")
    fresh.define("name.schema(Tensor x) -> str")
    fresh.define("__class__(Tensor x) -> str")
    fresh.impl("name", lambda x: "name", "CPU")
    fresh.impl("name.schema", lambda x: "name.schema", "CPU")
    fresh.impl("__class__", lambda x: "__class__", "CPU")
    targets = [registrations.packets[fresh.namespace][name] for name in ("name", "__class__")]
    overloads = [overload for packet in targets for overload in packet.overloads]
    graph = graph_of(lambda graph, x: [graph.call_function(overload, (x,)) for overload in overloads], "x")
    assert graph(X) == graph.interpret(X) == graph.compile()(X) == ["name", "name.schema", "__class__"]


def test_what_a_function_may_change_is_made_anew_in_each_run():
    def grow(pair):
        pair[0].append(1)
        return len(pair[0])

    graph = graph_of(lambda graph, x: graph.call_function(grow, (([], x),)), "x")
    fixed = graph_of(lambda graph, x: graph.call_function(grow, (([],),)), "x")
    for run in (graph, graph.interpret, graph.compile(), fixed, fixed.interpret, fixed.compile()):
        assert (run(X), run(X)) == (1, 1)


# --- memory ---


@pytest.mark.parametrize("how", [
    lambda graph: graph, lambda graph: graph.interpret, lambda graph: graph.compile(),
], ids=["code", "interpreter", "compiled"])
def test_values_are_let_go_after_their_last_use(how):
    alive = []

    def watched(value):
        result = Tensor(value.array + 1) if isinstance(value, Tensor) else value + 1
        alive.append(weakref.ref(result))
        gc.collect()
        counts.append(sum(1 for one in alive if one() is not None))
        return result

    counts = []
    graph = Graph()
    value = graph.placeholder("x")
    for _ in range(5):
        value = graph.call_function(watched, (value,))
    graph.output(value)
    how(graph)(X)
    assert counts == [1, 2, 2, 2, 2]            # a result, and what it was made of
