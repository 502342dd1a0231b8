"""Containers as trees."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydispatch import DispatchKeySet, Tensor, _core, tree
from pydispatch.exceptions import RegistrationError
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
    n_leaves,
    path_of_leaf,
    path_to_leaf_number,
    register_pytree_node,
    spread,
    tree_flatten,
    tree_flatten_present,
    tree_leaves,
    tree_map,
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
        some,
        some.map(tuple),
        st.dictionaries(st.text(max_size=2), children, max_size=3),
        st.builds(Pair, children, children),
        st.builds(Named, children),
        st.builds(Ring, some, st.text(max_size=2)),
    )


trees = st.recursive(leaves, containers, max_leaves=12)


def expected_leaves(value):
    """The leaves, depth first, written out by hand."""
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
    (OrderedDict, False),
    (deque, False),
    (int, False),
    (type(None), False),
    (type("Listlike", (list,), {}), False),
    (type("Tuplelike", (tuple,), {}), False),
]


@pytest.mark.parametrize(("cls", "expected"), CLASSES, ids=[row[0].__name__ for row in CLASSES])
def test_what_is_a_container(cls, expected):
    """Exactly the registered classes, and named tuples: a subclass may mean something else."""
    assert is_pytree_node_type(cls) is expected


def test_dicts_keep_their_order():
    assert list(tree_map(str, {"b": 1, "a": 2})) == ["b", "a"]
    assert tree_leaves({"b": 1, "a": 2}) == [1, 2]


@pytest.mark.parametrize("cls", [list, tuple, dict, Ring])
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
    (((1, 2), [3]), [1, 2, 3]), (([1, 2], (3,)), [1, 2, 3]), (((1, 2), 3), None), (((1,), [3]), None),
], ids=str)
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
