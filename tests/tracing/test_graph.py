"""Graphs by hand: nodes, names, editing, dead code, lint, structure of arguments and results, copies."""

import builtins
import copy
import keyword
import operator
import pickle
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.tracing import ArraySpec, Graph, spec_of
from pydispatch.tracing.names import Names, is_name
from pydispatch.tree import tree_flatten

Point = namedtuple("Point", "x y")
X = np.arange(6.0).reshape(2, 3)


def multiply_add():
    """Build x * y + z, with its nodes."""
    graph = Graph()
    x, y, z = map(graph.placeholder, ("x_1", "y_1", "z_1"))
    product = graph.call_function(ops.np.multiply.default, (x, y))
    total = graph.call_function(ops.np.add.default, (product, z))
    graph.output(total)
    return graph, (x, y, z, product, total)


def names_of(graph):
    return [node.name for node in graph.nodes]


# --- nodes and names ---


def test_nodes_know_their_inputs_users_and_neighbours():
    graph, (x, _y, z, product, total) = multiply_add()
    assert names_of(graph) == ["x_1", "y_1", "z_1", "multiply", "add", "output"]
    assert [node.op for node in graph.nodes] == ["placeholder"] * 3 + ["call_function"] * 2 + ["output"]
    assert total.all_input_nodes == [product, z]
    assert list(product.users) == [total]
    assert (product.prev, product.next, x.prev, graph.output_node.next) == (z, total, None, None)
    assert list(reversed(graph.nodes)) == list(graph.nodes)[::-1]
    assert len(graph.nodes) == 6
    assert product.target is ops.np.multiply.default


def test_a_node_that_is_used_twice_is_one_input():
    graph = Graph()
    x = graph.placeholder("x")
    square = graph.call_function(ops.np.multiply, (x, x))
    assert square.all_input_nodes == [x]
    assert list(x.users) == [square]


@pytest.mark.parametrize(("wanted", "names"), [
    pytest.param(["add", "add", "add"], ["add", "add_1", "add_2"], id="numbers on collision"),
    pytest.param(["x_1", "x_1", "x_1"], ["x_1", "x_2", "x_3"], id="a number goes on"),
    pytest.param(["add_", "add_"], ["add_", "add__1"], id="in-place"),
    pytest.param(["sum", "all", "abs"], ["sum_1", "all_1", "abs_1"], id="builtins"),
    pytest.param(["lambda", "None", "np", "ops", "inf"], ["lambda_1", "None_1", "np_1", "ops_1", "inf_1"],
                 id="keywords, globals of the code"),
    pytest.param(["a.b", "<lambda>", "1st", "", "é"], ["a_b", "_lambda_", "_1st", "_", "__1"], id="illegal characters"),
])
def test_names(wanted, names):
    fresh = Names()
    assert [fresh.fresh(name) for name in wanted] == names


@given(st.lists(st.one_of(st.sampled_from(["x", "x_1", "sum", "for", "x_1_1"]), st.text(max_size=4)), max_size=12))
def test_names_are_unique_identifiers_that_hide_nothing(wanted):
    fresh = Names()
    names = [fresh.fresh(name) for name in wanted]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isidentifier()
        assert is_name(name)
        assert not keyword.iskeyword(name)
        assert name == "_" or not hasattr(builtins, name)     # doctest keeps the last value there


def test_a_packet_stands_for_the_overload_that_fits():
    graph = Graph()
    x = graph.placeholder("x")
    assert graph.call_function(ops.np.add, (x, 1)).target is ops.np.add.default
    assert graph.call_function(ops.np.add, (x, 1), {"out": x}).target is ops.np.add.out
    with pytest.raises(DispatchTypeError, match=r"no overload of np::add.*\n.*argument x2 is missing"):
        graph.call_function(ops.np.add, (x,))


# --- literals ---


@pytest.mark.parametrize("value", [
    None, True, 2, 2.5, float("nan"), 1j, "text", b"bytes", ..., np.dtype("float32"), np.float64, float,
    np.float32(1.5), np.True_, (1, [2, {"key": 3}]), slice(None, 2), Point(1, 2),
], ids=repr)
def test_literals_are_arguments(value):
    graph = Graph()
    node = graph.call_function(print, (value,))
    assert repr(node.args) == repr((value,))


@pytest.mark.parametrize(("value", "message"), [
    pytest.param(X, r"an array, an ndarray of shape \(2, 3\).*\n.*graph\.add_constant\(array\)", id="ndarray"),
    pytest.param(Tensor(X), r"an array, a Tensor of shape \(2, 3\).*\n.*graph\.add_constant\(array\)", id="Tensor"),
    pytest.param({1, 2}, r"\{1, 2\}, a set, expected nodes.*\n.*graph\.add_constant\(value\)", id="set"),
    pytest.param([1, (object(),)], r"object", id="nested"),
])
def test_other_values_are_refused(value, message):
    graph = Graph()
    with pytest.raises(DispatchTypeError, match=message):
        graph.call_function(ops.np.negative, (value,))
    assert names_of(graph) == []


def test_operators_get_tuples_and_functions_what_was_given():
    graph = Graph()
    x = graph.placeholder("x")
    assert graph.call_function(ops.np.concatenate, ([x, x],)).args == ((x, x),)
    assert graph.call_function(print, ([x, {"a": [1]}],)).args == ([x, {"a": [1]}],)


def test_nodes_in_containers_and_slices_are_inputs():
    graph = Graph()
    x, y, z = map(graph.placeholder, "xyz")
    node = graph.call_function(print, ([x], slice(y, None), Point(1, {"k": z})), {"end": x})
    assert node.all_input_nodes == [x, y, z]
    assert all(node in used.users for used in (x, y, z))


def test_a_node_of_another_graph_is_refused():
    other = Graph().placeholder("x")
    with pytest.raises(GraphError, match="its argument x belongs to another graph"):
        Graph().call_function(ops.np.negative, (other,))


# --- editing ---


def test_setting_arguments_keeps_users():
    _, (x, _y, z, product, total) = multiply_add()
    total.args = (z, [x][0])
    assert (list(product.users), total in x.users, total in z.users) == ([], True, True)
    product.kwargs = {"dtype": np.dtype("float32")}
    assert product.kwargs == {"dtype": np.dtype("float32")}
    total.replace_input_with(x, 3.0)
    assert total.args == (z, 3.0)
    assert total not in x.users


def test_replace_all_uses_with():
    graph, (_x, _y, z, product, total) = multiply_add()
    with graph.inserting_after(product):
        negative = graph.call_function(ops.np.negative, (product,))
    assert product.replace_all_uses_with(negative) == [total]
    assert negative.args == (product,)          # it keeps using what it replaces
    assert total.args == (negative, z)
    graph.lint()
    np.testing.assert_array_equal(graph(X, X, X), -(X * X) + X)


def test_insertion_points():
    graph, (x, _, _, product, _total) = multiply_add()
    with graph.inserting_before(product):
        graph.call_function(ops.np.sin, (x,))
        graph.call_function(ops.np.cos, (x,))
    with graph.inserting_after(product):        # in order, where torch.fx reverses them
        graph.call_function(ops.np.tan, (x,))
        graph.call_function(ops.np.exp, (x,))
    graph.call_function(ops.np.log, (x,))
    assert names_of(graph)[3:] == ["sin", "cos", "multiply", "tan", "exp", "add", "log", "output"]
    graph.lint()


def test_an_insertion_point_may_be_erased():
    graph, (_, _, z, product, total) = multiply_add()
    with graph.inserting_before(total):
        graph.output_node.args = (product,)
        graph.erase_node(total)
        last = graph.call_function(ops.np.sin, (z,))
    assert last.next is graph.output_node
    graph.lint()


def test_nodes_can_be_erased_and_inserted_while_one_iterates():
    graph = Graph()
    value = graph.placeholder("x")
    for _ in range(4):
        value = graph.call_function(ops.np.sin, (value,))
    graph.output(value)
    for node in graph.nodes:
        if node.target is ops.np.sin.default:
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.call_function(ops.np.cos, node.args))
            graph.erase_node(node)
    assert names_of(graph) == ["x", "cos", "cos_1", "cos_2", "cos_3", "output"]
    graph.lint()


def test_erasing_refuses_while_there_are_users():
    graph, (x, _, _, product, _total) = multiply_add()
    graph.call_function(ops.np.sin, (product,))
    with pytest.raises(GraphError, match=r"node multiply cannot be erased: add, sin use its value\n.*replace_all_uses"):
        graph.erase_node(product)
    with pytest.raises(RuntimeError, match="cannot be erased: multiply use"):
        graph.erase_node(x)
    assert product in graph.nodes


def test_an_erased_node_is_gone():
    graph, (*_, product, total) = multiply_add()
    graph.output_node.args = (product,)
    graph.erase_node(total)
    assert list(product.users) == [graph.output_node]
    with pytest.raises(GraphError, match="add was erased"):
        total.args = ()
    with pytest.raises(GraphError, match="its argument add was erased"):
        graph.call_function(ops.np.sin, (total,))
    with pytest.raises(GraphError, match="add is not in this graph"):
        graph.erase_node(total)


def test_there_is_one_output_and_it_is_last():
    graph, (*_, total) = multiply_add()
    with pytest.raises(GraphError, match="already has an output"):
        graph.output(total)
    graph.call_function(ops.np.sin, (total,))
    assert graph.nodes.__repr__().endswith("sin, output]")


def test_find_nodes():
    graph, (x, y, z, product, total) = multiply_add()
    assert graph.find_nodes(op="placeholder") == [x, y, z]
    assert graph.find_nodes(target=ops.np.add.default) == [total]
    assert graph.find_nodes(target=ops.np.multiply) == [product]
    assert graph.find_nodes(op="placeholder", target="y_1") == [y]


# --- dead code ---


def test_dead_code_goes_with_what_it_alone_used():
    graph, (_x, *_, _total) = multiply_add()
    weight = graph.add_constant(X, "weight")
    sine = graph.call_function(ops.np.sin, (weight,))
    graph.call_function(operator.getitem, (sine, 0))
    assert graph.eliminate_dead_code() is True
    assert names_of(graph) == ["x_1", "y_1", "z_1", "multiply", "add", "output"]
    assert graph.constants == {}
    assert graph.eliminate_dead_code() is False


def test_dead_code_that_does_something_stays(fresh, define):
    draw = define(fresh, "draw(Tensor x, *, Generator? generator=None) -> Tensor")
    check = define(fresh, "check(Tensor x) -> ()")
    write = define(fresh, "write(Tensor(a!) x) -> Tensor")
    fresh.define("tagged(Tensor x) -> Tensor", tags=["random"])
    tagged = getattr(ops, fresh.namespace).tagged
    plain = define(fresh, "plain(Tensor x) -> Tensor")
    graph = Graph()
    x = graph.placeholder("x")
    for target in (ops.np.add_, ops.np.subtract, draw, check, write, tagged, plain):
        graph.call_function(target, (x, 1) if target in (ops.np.add_, ops.np.subtract) else (x,))
    graph.call_function(ops.np.add, (x, 1), {"out": x})
    graph.call_function(print, (x,))
    graph.output(None)
    graph.eliminate_dead_code()
    assert names_of(graph) == ["x", "add_", "draw", "check", "write", "tagged", "add", "print_1", "output"]


def test_arguments_stay_though_unused():
    graph = Graph()
    graph.placeholder("x")
    graph.output(3)
    assert graph.eliminate_dead_code() is False
    assert graph(X) == 3


# --- lint ---


def make_name_taken(graph, nodes):
    nodes[3].name = "x_1"


def make_name_hide(graph, nodes):
    nodes[3].name = "sum"


def make_disorder(graph, nodes):
    graph._unlink(nodes[4])
    with graph.inserting_before(nodes[3]):
        graph._linked(nodes[4])


def make_unknown_user(graph, nodes):
    nodes[0].users[nodes[4]] = None


def make_missing_user(graph, nodes):
    del nodes[0].users[nodes[3]]


def make_target_uncallable(graph, nodes):
    nodes[3].target = "multiply"


def make_missing_constant(graph, nodes):
    graph.add_constant(X)
    graph.constants.clear()


def make_misfit(graph, nodes):
    nodes[3].args = (nodes[0],)


def make_in_spec_wrong(graph, nodes):
    graph.in_spec = tree_flatten((1, 2))[1]


def make_list_grow(graph, nodes):
    graph.output_node.args = ([nodes[4]],)
    graph.output_node.args[0].append(nodes[3])


def make_no_output(graph, nodes):
    graph.erase_node(graph.output_node)


@pytest.mark.parametrize(("spoil", "message"), [
    (make_name_taken, "node x_1: its name 'x_1' is taken"),
    (make_name_hide, "node sum: its name 'sum' is taken, hides something"),
    (make_disorder, "node add: it uses multiply, which does not come before it"),
    (make_unknown_user, "node x_1: add is among its users, but does not use it"),
    (make_missing_user, "node multiply: it uses x_1, but is not among that node's users"),
    (make_target_uncallable, "node multiply: its target is 'multiply', expected an operator or a function"),
    (make_missing_constant, "node constant: the graph has no constant 'constant'"),
    (make_misfit, "node multiply: operator np::multiply does not accept its arguments: argument x2 is missing"),
    (make_in_spec_wrong, "in_spec has 2 leaves, but the graph has 3 placeholders"),
    (make_list_grow, "node output: a list or dict in its arguments was changed"),
    (make_no_output, "the graph has no output"),
])
def test_lint(spoil, message):
    graph, nodes = multiply_add()
    graph.lint()
    spoil(graph, nodes)
    with pytest.raises(GraphError, match=message):
        graph.lint()


def test_lint_tells_of_an_operator_that_is_gone(new_library, define):
    with new_library() as library:
        gone = define(library, "gone(Tensor x) -> Tensor", CPU=np.sin)
        graph = Graph()
        graph.output(graph.call_function(gone, (graph.placeholder("x"),)))
        graph.lint()
    with pytest.raises(GraphError, match=r"node gone: operator .*::gone was removed at"):
        graph.lint()


# --- constants, arguments and results ---


def test_constants():
    graph = Graph()
    x = graph.placeholder("x")
    weight, other = graph.add_constant(X, "weight"), graph.add_constant(-X, "weight")
    assert (weight.target, other.target, weight.op) == ("weight", "weight_1", "get_attr")
    again = graph.get_attr("weight")
    assert again is not weight
    graph.output(graph.call_function(ops.np.add, (graph.call_function(ops.np.multiply, (x, weight)), other)))
    np.testing.assert_array_equal(graph(2.0), X)
    graph.constants["weight_1"] = X
    np.testing.assert_array_equal(graph(2.0), 3 * X)
    with pytest.raises(KeyError, match="no constant 'bias'"):
        graph.get_attr("bias")


def nested_graph():
    """Build ({"a": x, "b": [y, z]}, w) -> {"sum": (x + y,), "rest": [z, None, w, 2.5]}."""
    graph = Graph()
    x, y, z, w = map(graph.placeholder, ("d_1", "d_2", "d_3", "w_1"))
    graph.in_spec = tree_flatten(({"a": 0, "b": [0, 0]}, 0))[1]
    total = graph.call_function(ops.np.add, (x, y))
    graph.output({"sum": (total,), "rest": [z, None, w, 2.5]})
    return graph


@pytest.mark.parametrize("how", [
    lambda graph: graph, lambda graph: graph.interpret, lambda graph: graph.compile(),
], ids=["code", "interpreter", "compiled"])
def test_structures_of_arguments_and_results(how):
    graph = nested_graph()
    graph.lint()
    found = how(graph)({"a": X, "b": [X, -X]}, 7)
    assert list(found) == ["sum", "rest"]
    assert type(found["sum"]) is tuple
    np.testing.assert_array_equal(found["sum"][0], 2 * X)
    np.testing.assert_array_equal(found["rest"][0], -X)
    assert found["rest"][1:] == [None, 7, 2.5]
    assert graph.out_spec == tree_flatten(found)[1]


@pytest.mark.parametrize(("args", "message"), [
    pytest.param((), r"takes 2 arguments, but 0 were given\n.* graph\(\{'a': \*, 'b': \[\*, \*\]\}, \*\)", id="none"),
    pytest.param((X, X), r"argument 0 is \*, expected \{'a': \*, 'b': \[\*, \*\]\}", id="no dict"),
    pytest.param(({"a": X, "b": [X]}, X), r"argument 0\['b'\] is \[\*\], expected \[\*, \*\]", id="shorter list"),
    pytest.param(({"a": X, "b": (X, X)}, X), r"argument 0\['b'\] is \(\*, \*\), expected \[\*, \*\]", id="tuple"),
    pytest.param(({"a": X, "c": [X, X]}, X), r"argument 0 is \{'a': \*, 'c'", id="other key"),
    pytest.param(({"a": X, "b": [X, Point(X, X)]}, X), r"argument 0\['b'\]\[1\] is Point\(\*, \*\), expected \*",
                 id="pytree for a value"),
])
@pytest.mark.parametrize("how", [
    lambda graph: graph, lambda graph: graph.interpret, lambda graph: graph.compile(),
], ids=["code", "interpreter", "compiled"])
def test_other_structures_are_refused(how, args, message):
    with pytest.raises(DispatchTypeError, match=message):
        how(nested_graph())(*args)


def test_the_structure_follows_the_output():
    graph, (x, *_, total) = multiply_add()
    assert graph.out_spec == tree_flatten(0)[1]
    graph.output_node.args = ([total, x],)
    assert graph.out_spec == tree_flatten([0, 0])[1]
    np.testing.assert_array_equal(graph(X, X, X)[0], X * X + X)


@pytest.mark.parametrize("value", [3, 3.0, True, "text", None, float("nan")], ids=repr)
def test_a_value_for_which_alone_the_graph_was_made(value):
    graph = Graph()
    graph.placeholder("n_1").meta["val"] = value
    graph.output(graph.placeholder("x_1"))
    for run in (graph, graph.interpret, graph.compile()):
        assert run(value, X) is X
        with pytest.raises(DispatchTypeError, match=r"argument n_1 is 4, expected .*\n.*make_fx"):
            run(4, X)
        with pytest.raises(DispatchTypeError, match="argument n_1 is"):
            run(X, X)


@pytest.mark.parametrize("how", [
    lambda graph: graph, lambda graph: graph.interpret, lambda graph: graph.compile(),
], ids=["code", "interpreter", "compiled"])
def test_what_you_pass_is_what_you_get(how):
    graph, _ = multiply_add()
    run = how(graph)
    assert type(run(X, X, X)) is np.ndarray
    for args in ((Tensor(X), X, X), (2.0, X, Tensor(X))):
        result = run(*args)
        assert type(result) is Tensor
        np.testing.assert_array_equal(result.numpy(), np.asarray(args[0]) * X + X)


def test_specs():
    assert str(ArraySpec((2, 3), np.dtype("float64"))) == "float64[2, 3]"
    assert str(ArraySpec((), np.dtype("int8"), "Meta")) == "int8[] on Meta"
    assert spec_of(X) == ArraySpec((2, 3), np.dtype("float64")) == spec_of(Tensor(X))
    assert spec_of([X, 3]) == (ArraySpec((2, 3), np.dtype("float64")), 3)
    assert hash(spec_of(X)) == hash(spec_of(-X))


# --- copies ---


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))],
                         ids=["copy", "deepcopy", "pickle"])
def test_copies(copied):
    graph = nested_graph()
    constant = graph.add_constant(X, "weight")
    with graph.inserting_before(graph.output_node):
        getitem = graph.call_function(operator.getitem, (constant, (slice(None, 1), 0)))
        getitem.meta["val"] = spec_of(X[:1, 0])
    result = graph.output_node.args[0]
    result["rest"].append(getitem)
    graph.output_node.args = (result,)
    text = str(graph)
    other = copied(graph)
    assert (str(other), other.in_spec) == (text, graph.in_spec)
    other.lint()
    assert not set(other.nodes) & set(graph.nodes)
    other.erase_node(other.output_node)
    other.add_constant(X)
    assert str(graph) == text
    assert list(graph.constants) == ["weight"]


def test_a_long_graph_pickles():
    graph = Graph()
    value = graph.placeholder("x")
    for _ in range(3000):
        value = graph.call_function(ops.np.negative, (value,))
    graph.output(value)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(graph))(X), X)
