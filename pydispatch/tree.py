"""Pytrees: the arrays inside lists, tuples, dicts, named tuples and registered classes are arguments too.

A pytree is flattened to its leaves and a `TreeSpec` that rebuilds it. Anything that is not a registered node is a leaf,
None included. Two pytrees match by structure: dicts by their keys, in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import RegistrationError


class TreeSpec(NamedTuple):
    """The structure of a pytree: its class, what that class needs to be rebuilt, and the specs of its children."""

    type: type | None       # None: a leaf
    context: Any
    children: tuple[TreeSpec, ...]


class _NodeType:
    __slots__ = ("flatten", "unflatten")

    def __init__(self, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[list[Any], Any], Any]):
        self.flatten = flatten
        self.unflatten = unflatten


LEAF = TreeSpec(None, None, ())
OPEN = TreeSpec(object, None, ())
"""In a spec that pytrees are held against: anything may be there."""
_BUILT_IN = frozenset((tuple, list, dict))      # the core takes these apart itself
_nodes: dict[type, _NodeType] = {}
_COMMON_LEAVES = frozenset((
    np.ndarray, Tensor, _core.GradTensor, _core.JvpTensor, _core.BatchedTensor, int, float, str, bool, NoneType))
_COMMON_PRESENT = _COMMON_LEAVES - {NoneType}
_named_tuple = _NodeType(lambda value: (value, type(value)), lambda children, cls: cls(*children))
_none = _NodeType(lambda value: ((), None), lambda children, _: None)


def register_pytree_node(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[list[Any], Any], Any],
) -> None:
    """Make instances of exactly `cls` pytree nodes: `flatten(value) -> (children, context)` and its inverse.

    Raises RegistrationError if the class is a pytree node already.
    """
    if cls in _BUILT_IN or cls in _nodes:
        raise RegistrationError(f"{cls.__name__} is already a pytree node\nregister a subclass of it instead")
    _nodes[cls] = _NodeType(flatten, unflatten)


def is_pytree_node_type(cls: type) -> bool:
    """Are instances of `cls` pytree nodes?"""
    return cls in _BUILT_IN or _node_of(cls) is not None


def _node_of(cls: type) -> _NodeType | None:
    node = _nodes.get(cls)
    if node is None and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple
    return node


def _node_or_none(cls: type) -> _NodeType | None:
    return _none if cls is NoneType else _node_of(cls)


def tree_flatten(value: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a pytree, depth first, and the spec that rebuilds it."""
    return _flatten(value)


def tree_flatten_present(value: Any) -> tuple[list[Any], TreeSpec]:
    """The same, but None is no leaf: the spec says where it is."""
    return _flatten_present(value)


def tree_unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """The pytree of this spec with these leaves."""
    if spec is flat_spec(len(spec.children)):
        return tuple(islice(leaves, len(spec.children)))
    return _core.unflatten_from(iter(leaves), spec, _node_or_none)


def tree_leaves(value: Any) -> list[Any]:
    """The leaves of a pytree, depth first."""
    return tree_flatten(value)[0]


def tree_map(function: Callable[[Any], Any], value: Any) -> Any:
    """The pytree with the function applied to every leaf."""
    if type(value) in _COMMON_LEAVES:
        return function(value)
    if type(value) is tuple and _core.are_flat(value):
        return tuple(map(function, value))
    leaves, spec = tree_flatten(value)
    return tree_unflatten(map(function, leaves), spec)


# --- specs -----------------------------------------------------------------------------------------------------------


@functools.cache
def flat_spec(n: int) -> TreeSpec:
    """That of a tuple of `n` leaves; always the same object."""
    return TreeSpec(tuple, None, (LEAF,) * n)


def n_leaves(spec: TreeSpec) -> int:
    """How many leaves a pytree of this spec has."""
    return 1 if spec.type is None else sum(map(n_leaves, spec.children))


def described_structure(spec: TreeSpec) -> str:
    """The structure of a pytree in Python's notation, with * for leaves: `(*, {'a': *})`, and ... for OPEN."""
    if spec is OPEN:
        return "..."
    if spec.type is None or spec.type is NoneType:
        return "*" if spec.type is None else "None"
    children = [described_structure(child) for child in spec.children]
    if spec.type is dict:
        items = [f"{key!r}: {child}" for key, child in zip(spec.context, children, strict=True)]
        return f"{{{', '.join(items)}}}"
    inner = ", ".join(children)
    if spec.type is tuple:
        return f"({inner},)" if len(children) == 1 else f"({inner})"
    return f"[{inner}]" if spec.type is list else f"{spec.type.__name__}({inner})"


def path_of_leaf(spec: TreeSpec, n: int) -> str:
    """The path to a leaf of a pytree, for messages, like `['weights'][0]`; "" for a leaf alone."""
    if spec.type is None:
        return ""
    i, n = _child_of_leaf(spec, n)
    path = path_of_leaf(spec.children[i], n)
    if spec.type is dict:
        return f"[{spec.context[i]!r}]{path}"
    fields = getattr(spec.type, "_fields", None)
    return f"[{i}]{path}" if fields is None else f".{fields[i]}{path}"


def path_to_leaf_number(spec: TreeSpec, n: int, positions: Sequence[int] | None = None) -> str:
    """The position of the argument that a leaf is in, and its path there, where `spec` is that of some arguments.

    `positions` are those of these arguments, where they are not all.
    """
    i, n = _child_of_leaf(spec, n)
    return f"{i if positions is None else positions[i]}{path_of_leaf(spec.children[i], n)}"


def _child_of_leaf(spec: TreeSpec, n: int) -> tuple[int, int]:
    """Which child a leaf is in, and which leaf of that it is."""
    for i, child in enumerate(spec.children):
        size = n_leaves(child)
        if n < size:
            return i, n
        n -= size
    raise IndexError(n)


def in_order_of(
    spec: TreeSpec, leaves: list[Any], found: TreeSpec, *, any_sequence: bool = False
) -> list[Any] | None:
    """The leaves of a pytree of the spec `found` in the order of another that is nested alike; None if it is not.

    Dicts may have their keys in another order. With `any_sequence`, lists and tuples are as good as one another. Where
    `spec` is OPEN, anything is alike.
    """
    if fits(found, spec):
        return leaves
    return _matched(iter(leaves), found, spec, _is_same_kind if any_sequence else is_same_node, spreads=False)


def fits(found: TreeSpec, spec: TreeSpec) -> bool:
    """Does a pytree have exactly this structure, in the same order, with anything where the spec is OPEN?"""
    if found is spec or spec is OPEN:
        return True
    return (found.type is spec.type and len(found.children) == len(spec.children) and found.context == spec.context
            and all(map(fits, found.children, spec.children)))


def is_alike(spec: TreeSpec, found: TreeSpec) -> bool:
    """Do two specs have the same structure?"""
    return in_order_of(spec, list(range(n_leaves(found))), found) is not None


def completed(spec: TreeSpec, found: TreeSpec) -> TreeSpec:
    """A spec with what a pytree that is nested so has in it where it is OPEN."""
    if fits(found, spec):
        return found
    pairs = zip(spec.children, children_in_order_of(spec, found), strict=True)
    return spec._replace(children=tuple([completed(*pair) for pair in pairs]))


def children_in_order_of(spec: TreeSpec, found: TreeSpec) -> Sequence[TreeSpec]:
    """The children of a spec in the order of those of another one; both are of one class, dicts of the same keys."""
    if spec.type is not dict:
        return found.children
    by_key = dict(zip(found.context, found.children, strict=True))
    return [by_key[key] for key in spec.context]


def spread(prefix: Any, spec: TreeSpec, *, any_sequence: bool = False) -> list[Any] | None:
    """For every leaf of a pytree the entry of `prefix`, nested as that is, as far as it goes; None unless it is so.

    With `any_sequence`, lists and tuples are as good as one another.
    """
    if prefix is None or type(prefix) is int:
        return [prefix] * n_leaves(spec)
    leaves, found = tree_flatten(prefix)
    return _matched(iter(leaves), found, spec, _is_same_kind if any_sequence else is_same_node, spreads=True)


def _matched(
    leaves: Iterator[Any], found: TreeSpec, spec: TreeSpec, alike: Callable[[TreeSpec, TreeSpec], bool], *,
    spreads: bool,
) -> list[Any] | None:
    """One of these leaves, of a pytree `found`, for each leaf of `spec`; None where they are not nested alike."""
    if spec is OPEN:
        return [next(leaves) for _ in range(n_leaves(found))]
    if found.type is None:
        return [next(leaves)] * n_leaves(spec) if spreads or spec.type is None else None
    if spec.type is None or not alike(found, spec):
        return None
    children = children_in_order_of(found, spec)
    parts = [_matched(leaves, child, inner, alike, spreads=spreads)
             for child, inner in zip(found.children, children, strict=True)]
    if any(part is None for part in parts):
        return None
    if spec.type is dict:
        by_key = dict(zip(found.context, parts, strict=True))
        parts = [by_key[key] for key in spec.context]
    return [leaf for part in parts for leaf in part or ()]


def is_same_node(one: TreeSpec, other: TreeSpec) -> bool:
    """Are two nodes of one class, with as many children, dicts with the same keys?"""
    if one.type is not other.type or len(one.children) != len(other.children):
        return False
    return set(one.context) == set(other.context) if one.type is dict else bool(one.context == other.context)


def _is_same_kind(one: TreeSpec, other: TreeSpec) -> bool:
    if all(issubclass(spec.type or object, (list, tuple)) for spec in (one, other)):
        return len(one.children) == len(other.children)
    return is_same_node(one, other)


_flatten = _core.Flattening(TreeSpec, LEAF, flat_spec, _COMMON_LEAVES, _node_of)
_flatten_present = _core.Flattening(TreeSpec, LEAF, flat_spec, _COMMON_PRESENT, _node_or_none)


# --- for the core ----------------------------------------------------------------------------------------------------


def _array_leaves(value: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(value) if _core.is_array(leaf)]


def _map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    leaves, spec = tree_flatten(value)
    if not any(map(_core.is_array, leaves)):
        return value
    return tree_unflatten([function(leaf) if _core.is_array(leaf) else leaf for leaf in leaves], spec)


_core.connect(array_leaves=_array_leaves, map_arrays=_map_arrays)
