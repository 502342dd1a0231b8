"""Containers as trees: the arrays inside lists, tuples, dicts, named tuples and registered classes are arguments too.

A container is flattened to its leaves and a `TreeSpec` that puts leaves back. Anything that is not a registered
container is a leaf, None included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import RegistrationError


class TreeSpec(NamedTuple):
    """The shape of a container: its class, what that class needs to be rebuilt, and the shapes of its children."""

    type: type | None       # None: a leaf
    context: Any
    children: tuple[TreeSpec, ...]


class _Node(NamedTuple):
    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[list[Any], Any], Any]


LEAF = TreeSpec(None, None, ())
_nodes: dict[type, _Node] = {
    tuple: _Node(lambda value: (value, None), lambda children, _: tuple(children)),
    list: _Node(lambda value: (value, None), lambda children, _: children),
    dict: _Node(
        lambda value: (value.values(), tuple(value)), lambda children, keys: dict(zip(keys, children, strict=True))
    ),
}
_COMMON_LEAVES = frozenset((np.ndarray, Tensor, int, float, str, bool, type(None)))
_named_tuple = _Node(lambda value: (value, type(value)), lambda children, cls: cls(*children))


def register_pytree_node(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[list[Any], Any], Any],
) -> None:
    """Make instances of exactly `cls` containers: `flatten(value) -> (children, context)` and its inverse.

    Raises RegistrationError when the class is a container already.
    """
    if cls in _nodes:
        raise RegistrationError(f"{cls.__name__} is registered as a container\nregister a subclass of it instead")
    _nodes[cls] = _Node(flatten, unflatten)


def is_container_type(cls: type) -> bool:
    """Are instances of `cls` taken apart?"""
    return _node_of(cls) is not None


def _node_of(cls: type) -> _Node | None:
    node = _nodes.get(cls)
    if node is None and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple
    return node


def tree_flatten(value: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a container, depth first, and the spec that rebuilds it."""
    if type(value) in _COMMON_LEAVES:
        return [value], LEAF
    leaves: list[Any] = []
    return leaves, _flatten_into(value, leaves)


def _flatten_into(value: Any, leaves: list[Any]) -> TreeSpec:
    node = None if type(value) in _COMMON_LEAVES else _node_of(type(value))
    if node is None:
        leaves.append(value)
        return LEAF
    children, context = node.flatten(value)
    return TreeSpec(type(value), context, tuple([_flatten_into(child, leaves) for child in children]))


def tree_unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """The container of this spec with these leaves."""
    if spec is LEAF:
        return next(iter(leaves))
    return _unflatten_from(iter(leaves), spec)


def _unflatten_from(leaves: Iterator[Any], spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    node = _node_of(spec.type)
    assert node is not None
    return node.unflatten([_unflatten_from(leaves, child) for child in spec.children], spec.context)


def tree_leaves(value: Any) -> list[Any]:
    """The leaves of a container, depth first."""
    return tree_flatten(value)[0]


def tree_map(function: Callable[[Any], Any], value: Any) -> Any:
    """The container with the function applied to every leaf."""
    leaves, spec = tree_flatten(value)
    return tree_unflatten(map(function, leaves), spec)


# --- specs -----------------------------------------------------------------------------------------------------------


@functools.cache
def flat_spec(n: int) -> TreeSpec:
    """That of a tuple of `n` leaves; always the same object."""
    return TreeSpec(tuple, None, (LEAF,) * n)


def n_leaves(spec: TreeSpec) -> int:
    """How many leaves a container of this spec has."""
    return 1 if spec.type is None else sum(map(n_leaves, spec.children))


def described_structure(spec: TreeSpec) -> str:
    """A container as one would write it, with * for leaves: `(*, {'a': *})`."""
    if spec.type is None:
        return "*"
    children = [described_structure(child) for child in spec.children]
    if spec.type is dict:
        items = [f"{key!r}: {child}" for key, child in zip(spec.context, children, strict=True)]
        return f"{{{', '.join(items)}}}"
    inner = ", ".join(children)
    if spec.type is tuple:
        return f"({inner},)" if len(children) == 1 else f"({inner})"
    return f"[{inner}]" if spec.type is list else f"{spec.type.__name__}({inner})"


def path_of_leaf(spec: TreeSpec, n: int) -> str:
    """Where a leaf of a container is, for messages, like `['weights'][0]`; nothing for a leaf alone."""
    if spec.type is None:
        return ""
    i, n = _child_of_leaf(spec, n)
    path = path_of_leaf(spec.children[i], n)
    if spec.type is dict:
        return f"[{spec.context[i]!r}]{path}"
    fields = getattr(spec.type, "_fields", None)
    return f"[{i}]{path}" if fields is None else f".{fields[i]}{path}"


def place_of_leaf(spec: TreeSpec, n: int, positions: Sequence[int] | None = None) -> str:
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


def in_order_of(spec: TreeSpec, leaves: list[Any], found: TreeSpec) -> list[Any] | None:
    """The leaves of a container of the spec `found` in the order of another that is nested alike; None if it is not.

    Dicts may have their keys in another order.
    """
    return leaves if found == spec else _matched(iter(leaves), found, spec, _same_type, spreads=False)


def spread(prefix: Any, spec: TreeSpec, *, any_sequence: bool = False) -> list[Any] | None:
    """For every leaf of a container the entry of `prefix`, nested as that is, as far as it goes; None unless it is so.

    With `any_sequence`, lists and tuples are as good as one another.
    """
    if prefix is None or type(prefix) is int:
        return [prefix] * n_leaves(spec)
    leaves, found = tree_flatten(prefix)
    return _matched(iter(leaves), found, spec, _same_kind if any_sequence else _same_type, spreads=True)


def _matched(
    leaves: Iterator[Any], found: TreeSpec, spec: TreeSpec, alike: Callable[[TreeSpec, TreeSpec], bool], *,
    spreads: bool,
) -> list[Any] | None:
    """One of these leaves, of a container `found`, for each leaf of `spec`; None where they are not nested alike."""
    if found.type is None:
        return [next(leaves)] * n_leaves(spec) if spreads or spec.type is None else None
    if spec.type is None or len(found.children) != len(spec.children) or not alike(found, spec):
        return None
    is_dict = spec.type is dict
    expected = dict(zip(spec.context, spec.children, strict=True)) if is_dict else {}
    children = [expected[key] for key in found.context] if is_dict else spec.children
    parts = []
    for child, inner in zip(found.children, children, strict=True):
        part = _matched(leaves, child, inner, alike, spreads=spreads)
        if part is None:
            return None
        parts.append(part)
    if is_dict:
        by_key = dict(zip(found.context, parts, strict=True))
        parts = [by_key[key] for key in spec.context]
    return [leaf for part in parts for leaf in part]


def _same_type(one: TreeSpec, other: TreeSpec) -> bool:
    """Are two containers of one class, and alike to it but for the order of the keys of dicts?"""
    if one.type is not other.type:
        return False
    return set(one.context) == set(other.context) if one.type is dict else bool(one.context == other.context)


def _same_kind(one: TreeSpec, other: TreeSpec) -> bool:
    return all(issubclass(spec.type or object, (list, tuple)) for spec in (one, other)) or _same_type(one, other)


# --- for the core ----------------------------------------------------------------------------------------------------


def _array_leaves(value: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(value) if _core.is_array(leaf)]


def _map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    leaves, spec = tree_flatten(value)
    if not any(map(_core.is_array, leaves)):
        return value
    return tree_unflatten([function(leaf) if _core.is_array(leaf) else leaf for leaf in leaves], spec)


_core.connect(array_leaves=_array_leaves, map_arrays=_map_arrays)
