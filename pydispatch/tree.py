"""Containers as trees: the arrays inside lists, tuples, dicts, named tuples and registered classes are arguments too.

A container is flattened to its leaves and a `TreeSpec` that puts leaves back. Anything that is not a registered
container is a leaf, None included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


def n_leaves(spec: TreeSpec) -> int:
    """How many leaves a container of this spec has."""
    return 1 if spec.type is None else sum(map(n_leaves, spec.children))


def tree_leaves(value: Any) -> list[Any]:
    """The leaves of a container, depth first."""
    return tree_flatten(value)[0]


def tree_map(function: Callable[[Any], Any], value: Any) -> Any:
    """The container with the function applied to every leaf."""
    leaves, spec = tree_flatten(value)
    return tree_unflatten(map(function, leaves), spec)


def _array_leaves(value: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(value) if _core.is_array(leaf)]


def _map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    leaves, spec = tree_flatten(value)
    if not any(map(_core.is_array, leaves)):
        return value
    return tree_unflatten([function(leaf) if _core.is_array(leaf) else leaf for leaf in leaves], spec)


_core.connect(array_leaves=_array_leaves, map_arrays=_map_arrays)
