"""Containers as trees."""

from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydispatch import DispatchKeySet, Tensor, _core, compile, func, tree
from pydispatch.exceptions import RegistrationError
from pydispatch.tracing import make_fx
from pydispatch.tree import (
    LEAF,
    OPEN,
    TreeSpec,
    completed,
    described_structure,
    flat_spec,
    in_order_of,
    is_alike,
    is_pytree_node_type,
    keystr,
    n_leaves,
    path_of_leaf,
    path_to_leaf_number,
    register_pytree_node,
    spread,
    tree_flatten,
    tree_flatten_present,
    tree_leaves,
    tree_leaves_with_path,
    tree_map,
    tree_structure,
    tree_unflatten,
)
from tests.ids import without_address

Pair = namedtuple("Pair", "left right")


class Named(NamedTuple):
    only: object


class Ring:
    """A container of the user's: children, and a label that is not one."""

    def __init__(self, children, label):
        self.children, self.label = children, label

    def __eq__(self, other):
        return isinstance(other, Ring) and (self.children, self.label) == (other.children, other.label)

    __hash__ = None


class SubRing(Ring):
    """Not registered, and so no container."""


@pytest.fixture(scope="module", autouse=True)
def ring():
    register_pytree_node(Ring, lambda ring: (ring.children, ring.label), Ring)


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=2), st.floats(allow_nan=False))


def containers(children):
    some = st.lists(children, max_size=3)
    return st.one_of(
        some, some.map(tuple), st.dictionaries(st.text(max_size=2), children, max_size=3),
        st.builds(Pair, children, children), st.builds(Named, children), st.builds(Ring, some, st.text(max_size=2)))


trees = st.recursive(leaves, containers, max_leaves=12)


def expected_leaves(value):
    """Return the leaves, depth first, written out by hand."""
    if type(value) in (list, tuple, Pair, Named):
        children = value
    elif type(value) is dict:
        children = value.values()
    elif type(value) is Ring:
        children = value.children
    else:
        return [value]
    return [leaf for child in children for leaf in expected_leaves(child)]


@given(trees)
def test_flatten_and_unflatten_are_inverse(value):
    flat, spec = tree_flatten(value)
    assert flat == expected_leaves(value) == tree_leaves(value)
    rebuilt = tree_unflatten(flat, spec)
    assert rebuilt == value
    assert type(rebuilt) is type(value)
    assert tree_flatten(rebuilt)[1] == spec


@given(trees)
def test_map_keeps_the_shape(value):
    flat, spec = tree_flatten(value)
    assert tree_flatten(tree_map(lambda leaf: {leaf}, value)) == ([{leaf} for leaf in flat], spec)


@given(trees)
def test_mapping_makes_new_containers(value):
    before = repr(value)
    result = tree_map(lambda leaf: "changed", value)
    assert set(tree_leaves(result)) <= {"changed"}
    assert repr(value) == before


SPECS = [
    (1, LEAF),
    (None, LEAF),
    ("ab", LEAF),
    (np.ones(2), LEAF),
    ([], TreeSpec(list, None, ())),
    ((1, [2]), TreeSpec(tuple, None, (LEAF, TreeSpec(list, None, (LEAF,))))),
    ({"a": 1, "b": ()}, TreeSpec(dict, ("a", "b"), (LEAF, TreeSpec(tuple, None, ())))),
    (Pair(1, 2), TreeSpec(Pair, Pair, (LEAF, LEAF))),
    (Ring([1], "r"), TreeSpec(Ring, "r", (LEAF,))),
    (OrderedDict(b=1, a=2), TreeSpec(OrderedDict, ("b", "a"), (LEAF, LEAF))),
    (defaultdict(list, b=1), TreeSpec(defaultdict, (list, "b"), (LEAF,))),
    (deque([1, 2], maxlen=3), TreeSpec(deque, 3, (LEAF, LEAF))),
]


@pytest.mark.parametrize(("value", "spec"), SPECS, ids=[type(row[0]).__name__ for row in SPECS])
def test_specs(value, spec):
    assert tree_flatten(value)[1] == spec


CLASSES = [
    (list, True),
    (tuple, True),
    (dict, True),
    (Pair, True),
    (Named, True),
    (Ring, True),
    (SubRing, False),
    (set, False),
    (str, False),
    (np.ndarray, False),
    (Tensor, False),
    (OrderedDict, True),
    (defaultdict, True),
    (deque, True),
    (Counter, False),
    (int, False),
    (type(None), False),
    (type("Listlike", (list,), {}), False),
    (type("Tuplelike", (tuple,), {}), False),
]


@pytest.mark.parametrize(("cls", "expected"), CLASSES, ids=[row[0].__name__ for row in CLASSES])
def test_what_is_a_container(cls, expected):
    assert is_pytree_node_type(cls) is expected


def test_dicts_keep_their_order():
    assert list(tree_map(str, {"b": 1, "a": 2})) == ["b", "a"]
    assert tree_leaves({"b": 1, "a": 2}) == [1, 2]


WithDefault = namedtuple("WithDefault", "a b", defaults=(2.0,))
COLLECTIONS = [OrderedDict(z=1.0, a=2.0), defaultdict(list, z=1.0, a=2.0), deque([1.0, 2.0], maxlen=3),
               deque([1.0]), WithDefault(1.0)]


@pytest.mark.parametrize("value", COLLECTIONS, ids=repr)
def test_classes_of_collections(value):
    leaves, spec = tree_flatten(value)
    rebuilt = tree_unflatten(leaves, spec)
    assert type(rebuilt) is type(value)
    assert rebuilt == value
    assert getattr(rebuilt, "default_factory", None) is getattr(value, "default_factory", None)
    assert getattr(rebuilt, "maxlen", None) == getattr(value, "maxlen", None)
    arrays = tree_map(np.array, value)
    double = tree_map(lambda leaf: 2 * leaf, value)
    assert tree_map(float, func.grad(lambda tree: sum(leaf * leaf for leaf in tree_leaves(tree)))(arrays)) == double
    assert tree_map(float, compile(lambda tree: tree_map(lambda leaf: leaf * 2, tree))(arrays)) == double
    assert tree_map(float, make_fx(lambda tree: tree_map(lambda leaf: leaf * 2, tree))(arrays)(arrays)) == double


def test_paths_and_words_of_classes_of_collections():
    tree = {"p": OrderedDict(a=1), "q": defaultdict(list, b=2), "r": deque([3])}
    assert [keystr(path) for path, _ in tree_leaves_with_path(tree)] == ["['p']['a']", "['q']['b']", "['r'][0]"]
    assert described_structure(tree_structure(tree)) == (
        "{'p': OrderedDict({'a': *}), 'q': defaultdict({'b': *}), 'r': deque(*)}")


def test_default_dicts_match_in_any_order_and_ordered_ones_in_theirs():
    one, other = defaultdict(list, a=1, b=2), defaultdict(list, b=20, a=10)
    assert tree_map(lambda x, y: x + y, one, other) == {"a": 11, "b": 22}
    with pytest.raises(ValueError, match="different structure"):
        tree_map(lambda x, y: x + y, OrderedDict(a=1, b=2), OrderedDict(b=20, a=10))


@pytest.mark.parametrize("cls", [list, tuple, dict, Ring, OrderedDict])
def test_a_class_is_registered_once(cls):
    with pytest.raises(RegistrationError, match=rf"{cls.__name__} is already a pytree node[\s\S]*subclass"):
        register_pytree_node(cls, lambda value: ((), None), lambda children, _: cls())


def test_recursive_containers_are_a_recursion_error():
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        tree_flatten(endless)
    with pytest.raises(RecursionError):
        _core.keys_of(endless)


def test_array_leaves_bring_keys(backends):
    a, t = backends.ArrayA(1), Tensor(np.ones(1))
    assert _core.keys_of([1, {"x": a}]) == DispatchKeySet("A")
    assert _core.keys_of(Ring([a, Pair(t, None)], "r")) == DispatchKeySet("A", "CPU", "AutogradCPU")
    assert _core.keys_of(SubRing([a], "r")) == DispatchKeySet()
    assert _core.keys_of({"x": "text", "y": [None, 1]}) == DispatchKeySet()


def test_a_container_without_arrays_is_handed_on_as_it_is():
    value = {"a": [1, Ring([], "r")]}
    assert tree._map_arrays(lambda leaf: 1 / 0, value) is value


# --- specs -----------------------------------------------------------------------------------------------------------

NESTED = ({"w": [1, 2], "b": 3}, Pair(4, ()), 5)


def spec_of(value):
    return tree_flatten(value)[1]


def test_spec_of_a_flat_tuple():
    assert flat_spec(3) == spec_of((1, 2, 3))
    assert flat_spec(3) is flat_spec(3)


@pytest.mark.parametrize(("value", "text"), [
    (1, "*"), ((1,), "(*,)"), ((), "()"), ([1, (2, 3)], "[*, (*, *)]"), ({"a": 1, 2: [3]}, "{'a': *, 2: [*]}"),
    (Pair(1, [2]), "Pair(*, [*])"), (Ring([1], "r"), "Ring(*)"),
], ids=without_address)
def test_structure_in_words(value, text):
    assert described_structure(spec_of(value)) == text


def test_paths_of_leaves():
    spec = spec_of(NESTED)
    assert n_leaves(spec) == 5
    assert [path_of_leaf(spec, n) for n in range(5)] == ["[0]['w'][0]", "[0]['w'][1]", "[0]['b']", "[1].left", "[2]"]
    assert [path_to_leaf_number(spec, n) for n in range(5)] == ["0['w'][0]", "0['w'][1]", "0['b']", "1.left", "2"]
    assert path_to_leaf_number(spec, 3, (4, 7, 1)) == "7.left"
    assert path_of_leaf(LEAF, 0) == ""


@pytest.mark.parametrize(("value", "like", "expected"), [
    (1, 0, [1]), ((1, [2]), (0, [0]), [1, 2]), ({"b": [1, 2], "a": 3}, {"a": 0, "b": [0, 0]}, [3, 1, 2]),
    ({"b": {"y": 1, "x": 2}, "a": 3}, {"a": 0, "b": {"x": 0, "y": 0}}, [3, 2, 1]),
    (1, [0], None), ([1], 0, None), ([1], (0,), None), ((1,), (0, 0), None), ({"a": 1}, {"b": 0}, None),
    (Ring([1], "r"), Ring([0], "s"), None), ((1, 2), Pair(0, 0), None), ([1, [2]], [0, (0,)], None),
], ids=without_address)
def test_leaves_in_the_order_of_another_container(value, like, expected):
    assert in_order_of(spec_of(like), *tree_flatten(value)) == expected


@pytest.mark.parametrize(("value", "expected"), [
    (((1, 2), [3]), [1, 2, 3]), (([1, 2], (3,)), [1, 2, 3]), (((1, 2), 3), None), (((1,), [3]), None)], ids=str)
def test_lists_and_tuples_may_match_each_other(value, expected):
    assert in_order_of(spec_of(((0, 0), [0])), *tree_flatten(value), any_sequence=True) == expected


OPENED = TreeSpec(tuple, None, (spec_of({"a": 0, "b": 0}), OPEN))


@pytest.mark.parametrize(("value", "expected"), [
    (({"b": 1, "a": 2}, 3), [2, 1, 3]), (({"b": 1, "a": 2}, [3, (4,)]), [2, 1, 3, 4]), (({"b": 1, "a": 2}, ()), [2, 1]),
    (({"a": 1}, 3), None), (({"b": 1, "a": 2},), None),
], ids=str)
def test_anything_matches_what_is_open(value, expected):
    leaves, found = tree_flatten(value)
    assert in_order_of(OPENED, leaves, found) == expected
    assert is_alike(OPENED, found) is (expected is not None)
    if expected is not None:
        assert completed(OPENED, found) == spec_of(({"a": 0, "b": 0}, value[1]))


def test_none_may_be_a_part_of_the_structure():
    leaves, spec = tree_flatten_present([None, (1, None)])
    assert (leaves, described_structure(spec)) == ([1], "[None, (*, None)]")
    assert tree_unflatten([2], spec) == [None, (2, None)]
    assert in_order_of(spec, *tree_flatten_present([None, (1, 2)])) is None


@pytest.mark.parametrize(("prefix", "expected"), [
    (0, [0] * 5), (None, [None] * 5), ((0, None, 1), [0, 0, 0, None, 1]),
    (({"b": 1, "w": 2}, 3, 4), [2, 2, 1, 3, 4]), (({"b": 1, "w": [2, 3]}, Pair(4, 9), 5), [2, 3, 1, 4, 5]),
    ((0, 1), None), ([0, 1, 2], None), (({"b": 1}, 0, 0), None), (({"b": 1, "w": (2, 3)}, 0, 0), None),
    ((0, (1, 2), 0), None), ((0, 0, (1,)), None),
], ids=str)
def test_a_prefix_is_spread_over_the_leaves(prefix, expected):
    assert spread(prefix, spec_of(NESTED)) == expected


@pytest.mark.parametrize(("prefix", "expected"), [
    ([0, None, 1], [0, 0, 0, None, 1]), (({"b": 1, "w": (2, 3)}, (4, 5), 6), [2, 3, 1, 4, 6]), ([0, 1], None),
    ((0, 0, [1]), None), (([1, 2], 0, 0), None),
], ids=str)
def test_lists_and_tuples_may_be_as_good_as_one_another(prefix, expected):
    assert spread(prefix, spec_of(NESTED), any_sequence=True) == expected


# --- the functions that JAX has --------------------------------------------------------------------------------------


@tree.register_dataclass
@dataclass
class Layer:
    weights: object
    bias: object
    name: str = "layer"


@partial(tree.register_dataclass, meta_fields=["name"])
@dataclass
class NamedLayer:
    weights: object
    name: str


@tree.register_pytree_node_class
class Box:
    """A class with the methods that JAX asks for."""

    def __init__(self, content, label):
        self.content, self.label = content, label

    def tree_flatten(self):
        return [self.content], self.label

    @classmethod
    def tree_unflatten(cls, label, children):
        return cls(*children, label)


def test_map_over_several_trees():
    first, second = {"a": (1, 2), "b": [3]}, {"b": [30], "a": (10, 20)}
    assert tree_map(lambda x, y, z: x + y + z, first, second, first) == {"a": (12, 24), "b": [36]}
    assert tree_map(lambda x, y: (x, y), (1, 2), ([3, 4], {"c": 5})) == ((1, [3, 4]), (2, {"c": 5}))
    assert tree_map(divmod, 7, 2) == (3, 1)


@given(trees)
def test_several_trees_of_one_structure_meet_leaf_by_leaf(value):
    leaves, spec = tree_flatten(value)
    numbers = tree_unflatten(range(len(leaves)), spec)
    assert [leaf for pair in tree_leaves(tree_map(lambda *pair: Ring(pair, "pair"), value, numbers),
                                         is_leaf=lambda node: isinstance(node, Ring) and node.label == "pair")
            for leaf in pair.children] == [part for n, leaf in enumerate(leaves) for part in (leaf, n)]


@pytest.mark.parametrize(("first", "other", "message"), [
    ({"a": [1]}, {"a": (2,)}, r"at \['a'\]: \[\*\] in the first, \(\*,\) in number 2"),
    ((1, 2), (1, 2, 3), r"structure: \(\*, \*\) in the first, \(\*, \*, \*\)"),
    ({"a": 1}, {"b": 1}, r"\{'a': \*\} in the first, \{'b': \*\}"),
    ([1], 1, r"\[\*\] in the first, \* in"),
    (Pair(1, (2,)), Pair(1, 2), r"at \.right"),
    (Ring([1], "x"), Ring([1], "y"), "Ring"),
])
def test_trees_that_differ_are_refused_by_their_path(first, other, message):
    with pytest.raises(ValueError, match=message):
        tree_map(lambda x, y: x, first, other)


def test_what_is_a_leaf_can_be_said():
    value = {"a": (1, 2), "b": [(3, 4), None]}
    assert tree_leaves(value, is_leaf=lambda node: type(node) is tuple) == [(1, 2), (3, 4), None]
    assert tree_map(len, {"a": (1, 2), "b": [(3, 4, 5)]}, is_leaf=lambda node: type(node) is tuple) == {
        "a": 2, "b": [3]}
    flat, spec = tree_flatten(value, is_leaf=lambda node: False)
    assert (flat, spec) == tree_flatten(value)
    assert tree.tree_structure((1, 2), lambda node: False) is flat_spec(2)


def test_reductions_over_leaves():
    assert tree.tree_reduce(lambda x, y: 10 * x + y, {"a": (1, 2), "b": 3}) == 123
    assert tree.tree_reduce(lambda x, y: x + y, [[1], [2]], 100) == 103
    assert tree.tree_reduce(lambda x, y: x + y, [[1], [2]], [], is_leaf=lambda node: node in ([1], [2])) == [1, 2]
    with pytest.raises(TypeError):
        tree.tree_reduce(lambda x, y: x, [])
    assert tree.tree_all([True, {"a": 1}])
    assert not tree.tree_all([True, {"a": 0}])


def test_a_prefix_becomes_a_tree():
    assert tree.tree_broadcast((1, 2), ([3, 4], 5)) == ([1, 1], 2)
    with pytest.raises(ValueError, match="different structure"):
        tree.tree_broadcast((1, 2), [3, 4])


def test_trees_of_trees_inside_out():
    outer = tree.tree_structure([0, 0])
    value = [{"a": 1, "b": (2,)}, {"b": (4,), "a": 3}]
    inner = tree.tree_structure(value[0])
    expected = {"a": [1, 3], "b": ([2, 4],)}
    assert tree.tree_transpose(outer, inner, value) == tree.tree_transpose(outer, None, value) == expected
    assert tree.tree_transpose(inner, outer, expected) == [value[0], {"a": 3, "b": (4,)}]
    assert tree.tree_transpose(tree.tree_structure([]), inner, []) == {"a": [], "b": ([],)}
    with pytest.raises(ValueError, match="the structure of its inner trees"):
        tree.tree_transpose(tree.tree_structure([]), None, [])


def test_paths_to_leaves():
    value = {"a": [1, (2,)], "b": Pair(3, Ring([4], "x")), "c": Layer(5, 6)}
    paths = [path for path, _ in tree.tree_leaves_with_path(value)]
    assert list(map(tree.keystr, paths)) == [
        "['a'][0]", "['a'][1][0]", "['b'].left", "['b'].right[<flat index 0>]", "['c'].weights", "['c'].bias",
        "['c'].name"]
    assert paths[3] == (tree.DictKey("b"), tree.GetAttrKey("right"), tree.FlattenedIndexKey(0))
    assert tree.tree_map_with_path(lambda path, x, y: (tree.keystr(path), x, y), [1, 2], [3, [4]]) == [
        ("[0]", 1, 3), ("[1]", 2, [4])]
    flat, spec = tree.tree_flatten_with_path(value)
    assert tree_unflatten([leaf for _, leaf in flat], spec)["a"] == value["a"]
    assert tree.tree_leaves_with_path(7) == [((), 7)]


def test_dataclasses_as_nodes():
    assert tree_map(lambda leaf: leaf * 2, Layer(1, 2, "x")) == Layer(2, 4, "xx")
    doubled = tree_map(lambda leaf: leaf * 2, NamedLayer([1, 2], "x"))
    assert doubled == NamedLayer([2, 4], "x")
    assert path_of_leaf(tree_flatten(NamedLayer([1, 2], "x"))[1], 1) == ".weights[1]"
    with pytest.raises(ValueError, match="different structure"):
        tree_map(lambda x, y: x, NamedLayer(1, "x"), NamedLayer(1, "y"))
    with pytest.raises(RegistrationError, match="already"):
        tree.register_dataclass(Layer)
    with pytest.raises(TypeError, match="is not a dataclass"):
        tree.register_dataclass(Ring)

    @dataclass
    class Partly:
        one: int
        two: int

    with pytest.raises(TypeError, match="one are not exactly its fields, one, two"):
        tree.register_dataclass(Partly, ["one"])


def test_classes_that_take_themselves_apart():
    box = tree_map(lambda leaf: leaf + 1, Box([1, 2], "b"))
    assert (box.content, box.label) == ([2, 3], "b")


@pytest.mark.parametrize("value", [
    3, [], (), {}, {"a": [1, (2, 3)], "b": {"c": 4}}, (1, [2], Pair(3, {"d": 5})), [[[], 1], ()]], ids=repr)
def test_functions_answer_as_those_of_jax(value):
    util = pytest.importorskip("jax.tree_util")
    assert tree_leaves(value) == util.tree_leaves(value)
    assert [(tree.keystr(path), leaf) for path, leaf in tree.tree_leaves_with_path(value)] == [
        (util.keystr(path), leaf) for path, leaf in util.tree_leaves_with_path(value)]
    for is_leaf in (None, lambda node: type(node) is list, lambda node: type(node) is dict):
        assert tree_leaves(value, is_leaf) == util.tree_leaves(value, is_leaf)
        others = tree_map(lambda leaf: [leaf, leaf], value, is_leaf=is_leaf)
        assert others == util.tree_map(lambda leaf: [leaf, leaf], value, is_leaf=is_leaf)
        assert tree_map(lambda *parts: parts, value, others, is_leaf=is_leaf) == util.tree_map(
            lambda *parts: parts, value, others, is_leaf=is_leaf)
    assert tree.tree_reduce(lambda x, y: x - y, value, 100) == util.tree_reduce(lambda x, y: x - y, value, 100)
    assert tree.tree_all(value) == util.tree_all(value)
