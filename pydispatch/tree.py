"""Pytrees: the arrays inside lists, tuples, dicts, named tuples and registered classes are arguments too.

A pytree is flattened to its leaves and a `TreeSpec` that rebuilds it. Anything that is not a registered node is a leaf,
None included. Two pytrees match by structure: dicts by their keys, in any order.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import RegistrationError
from pydispatch.loading import deferred, only_public

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "SequenceKey", "TreeSpec", "keystr", "register_dataclass",
    "register_pytree_node", "register_pytree_node_class", "tree_all", "tree_broadcast", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce",
    "tree_structure", "tree_transpose", "tree_unflatten",
]
__dir__ = only_public(globals())


class TreeSpec(NamedTuple):
    """The structure of a pytree: its class, what that class needs to be rebuilt, and the specs of its children."""

    type: type | None       # None: a leaf
    context: Any
    children: tuple[TreeSpec, ...]


class SequenceKey(NamedTuple):
    """A step of a path: into a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


class DictKey(NamedTuple):
    """A step of a path: into a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class GetAttrKey(NamedTuple):
    """A step of a path: into a named tuple or a dataclass."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


class FlattenedIndexKey(NamedTuple):
    """A step of a path: to a child of a registered class, by its number."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


Key: TypeAlias = SequenceKey | DictKey | GetAttrKey | FlattenedIndexKey
KeyPath: TypeAlias = tuple[Key, ...]
IsLeaf: TypeAlias = Callable[[Any], bool] | None


class _NodeType:
    __slots__ = ("fields", "flatten", "unflatten")

    def __init__(
        self, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[list[Any], Any], Any],
        fields: Sequence[str] | None = None,
    ):
        self.flatten = flatten
        self.unflatten = unflatten
        self.fields = fields    # the attributes that the children are, where they are some


C = TypeVar("C", bound=type)
LEAF = TreeSpec(None, None, ())
OPEN = TreeSpec(object, None, ())
"""In a spec that pytrees are held against: anything may be there."""
remember = deferred("registry.sites", "remember")
replaces_former = deferred("registry.sites", "replaces_former")
_BUILT_IN = frozenset((tuple, list, dict))      # the core takes these apart itself
_NONE_GIVEN: Any = object()
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

    The code that registered it may run again, with OverrideWarning. Raises RegistrationError if the class is a pytree
    node otherwise.
    """
    _register(cls, _NodeType(flatten, unflatten))


def register_pytree_node_class(cls: C) -> C:
    """A decorator of classes with `tree_flatten(self)` and a class method `tree_unflatten(cls, context, children)`."""
    _register(cls, _NodeType(
        lambda value: value.tree_flatten(), lambda children, context: cls.tree_unflatten(context, children)))  # type: ignore[attr-defined]
    return cls


def register_dataclass(
    cls: C, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] = ()
) -> C:
    """Make a dataclass a pytree node; a decorator, too. `data_fields` are its children, `meta_fields` its structure.

    Without `data_fields`, the children are all other fields that `__init__` takes.
    """
    dataclasses = sys.modules.get("dataclasses")        # who has a dataclass has loaded it; it is slow to import
    if dataclasses is None or not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TypeError(f"{cls!r} is no dataclass\nput @dataclass below @register_dataclass")
    meta = tuple(meta_fields)
    taken = [field.name for field in dataclasses.fields(cls) if field.init]
    data = tuple(name for name in taken if name not in meta) if data_fields is None else tuple(data_fields)
    if sorted((*data, *meta)) != sorted(taken):
        raise TypeError(f"{cls.__name__}: {', '.join((*data, *meta))} are not its fields, which are {', '.join(taken)}"
                        "\nname each field once, as data or as meta")

    def flatten(value: Any) -> tuple[Iterable[Any], Any]:
        return [getattr(value, name) for name in data], tuple([getattr(value, name) for name in meta])

    def unflatten(children: list[Any], context: Any) -> Any:
        return cls(**dict(zip((*data, *meta), (*children, *context), strict=True)))

    _register(cls, _NodeType(flatten, unflatten, data))
    return cls


def _register(cls: type, node: _NodeType) -> None:
    if cls in _BUILT_IN or (cls in _nodes and not replaces_former("pytree node", cls)):
        raise RegistrationError(f"{cls.__name__} is already a pytree node\nregister a subclass of it instead")
    remember("pytree node", cls)
    _nodes[cls] = node


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


def tree_flatten(value: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a pytree, depth first, and the spec that rebuilds it.

    `is_leaf` is asked about every node before it is taken apart: where it says True, the node is a leaf.
    """
    return _flatten(value) if is_leaf is None else _flatten_until(is_leaf, value)


def tree_flatten_present(value: Any) -> tuple[list[Any], TreeSpec]:
    """`tree_flatten`, but None is no leaf: the spec says where it is."""
    return _flatten_present(value)


def tree_unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """The pytree of this spec with these leaves."""
    if spec is flat_spec(len(spec.children)):
        return tuple(islice(leaves, len(spec.children)))
    return _core.unflatten_from(iter(leaves), spec, _node_or_none)


def tree_leaves(value: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a pytree, depth first."""
    return tree_flatten(value, is_leaf)[0]


def tree_structure(value: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """The spec of a pytree."""
    return tree_flatten(value, is_leaf)[1]


def tree_map(function: Callable[..., Any], value: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """The pytree with the function applied to every leaf, and to what stands there in each tree of `rest`.

    Trees of `rest` have the structure of the first one, which may end earlier: a leaf of it meets a whole part of
    theirs. Raises ValueError where they differ.
    """
    if rest or is_leaf is not None:
        leaves, spec = tree_flatten(value, is_leaf)
        return tree_unflatten(map(function, leaves, *_parts_of_each(spec, rest)), spec)
    if type(value) in _COMMON_LEAVES:
        return function(value)
    if type(value) is tuple and _core.are_flat(value):
        return tuple(map(function, value))
    leaves, spec = tree_flatten(value)
    return tree_unflatten(map(function, leaves), spec)


def tree_reduce(
    function: Callable[[Any, Any], Any], value: Any, initializer: Any = _NONE_GIVEN, is_leaf: IsLeaf = None
) -> Any:
    """`functools.reduce` over the leaves of a pytree."""
    leaves = tree_leaves(value, is_leaf)
    if initializer is _NONE_GIVEN:
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_all(value: Any, is_leaf: IsLeaf = None) -> bool:
    """Are all leaves of a pytree true?"""
    return all(tree_leaves(value, is_leaf))


def tree_broadcast(prefix: Any, full: Any, is_leaf: IsLeaf = None) -> Any:
    """The leaves of `prefix` in the structure of `full`, which goes on where `prefix` ends."""
    leaves, spec = tree_flatten(prefix, is_leaf)
    parts, = _parts_of_each(spec, (full,))
    spread_out = [tree_map(lambda _, leaf=leaf: leaf, part) for leaf, part in zip(leaves, parts, strict=True)]
    return tree_unflatten(spread_out, spec)


def tree_transpose(outer: TreeSpec, inner: TreeSpec | None, value: Any) -> Any:
    """A tree of trees, inside out: `value` has the structure `outer` of trees of `inner`; the result the reverse.

    Without `inner`, it is the structure that all these trees have.
    """
    trees = _parts(outer, value, (), 0)
    if inner is None and not trees:
        raise ValueError("tree_transpose: a tree without leaves does not say what its inner trees are like\n"
                         "pass their structure: tree_transpose(outer, inner, value)")
    spec = tree_structure(trees[0]) if inner is None else inner
    columns = _parts_of_each(spec, tuple(trees))
    rows: Iterable[Any] = zip(*columns, strict=True) if columns else [()] * n_leaves(spec)
    return tree_unflatten([tree_unflatten(row, outer) for row in rows], spec)


def tree_flatten_with_path(value: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The leaves of a pytree, each with its path, and the spec that rebuilds it."""
    leaves, spec = tree_flatten(value, is_leaf)
    return list(zip(_paths(spec, ()), leaves, strict=True)), spec


def tree_leaves_with_path(value: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves of a pytree, each with its path."""
    return tree_flatten_with_path(value, is_leaf)[0]


def tree_map_with_path(function: Callable[..., Any], value: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """`tree_map` with a function that gets the path of the leaf first."""
    leaves, spec = tree_flatten(value, is_leaf)
    return tree_unflatten(map(function, _paths(spec, ()), leaves, *_parts_of_each(spec, rest)), spec)


def keystr(path: KeyPath) -> str:
    """A path in Python's notation: `['weights'][0]`."""
    return "".join(map(str, path))


def _flatten_until(is_leaf: Callable[[Any], bool], value: Any) -> tuple[list[Any], TreeSpec]:
    leaves: list[Any] = []

    def spec_of(value: Any) -> TreeSpec:
        opened = None if is_leaf(value) else _opened(value)
        if opened is None:
            leaves.append(value)
            return LEAF
        specs = tuple([spec_of(child) for child in opened[0]])
        if type(value) is tuple and all(spec is LEAF for spec in specs):
            return flat_spec(len(specs))
        return TreeSpec(type(value), opened[1], specs)

    return leaves, spec_of(value)


def _opened(value: Any) -> tuple[Iterable[Any], Any] | None:
    """The children of a node, and what its class needs to be rebuilt; None for a leaf."""
    cls = type(value)
    if cls is tuple or cls is list:
        return value, None
    if cls is dict:
        return value.values(), tuple(value)
    node = _node_of(cls)
    return None if node is None else node.flatten(value)


def _parts_of_each(spec: TreeSpec, trees: tuple[Any, ...]) -> list[list[Any]]:
    return [_parts(spec, tree, (), n) for n, tree in enumerate(trees, 1)]


def _parts(spec: TreeSpec, value: Any, path: KeyPath, number: int) -> list[Any]:
    """What stands in a pytree where this spec has leaves, in the order of the spec; ValueError where it differs."""
    if spec.type is None:
        return [value]
    opened = _opened(value) if type(value) is spec.type else None
    children = None if opened is None else list(opened[0])
    if opened is not None and children is not None:
        found = TreeSpec(spec.type, opened[1], (LEAF,) * len(children))
        if is_same_node(spec, found):
            if spec.type is dict:
                children = [value[key] for key in spec.context]
            return [part for key, inner, child in zip(_keys_of(spec), spec.children, children, strict=True)
                    for part in _parts(inner, child, (*path, key), number)]
    there = described_structure(tree_structure(value))
    where = f" at {keystr(path)}" if path else ""
    raise ValueError(
        f"pytrees of different structure{where}: {described_structure(spec)} in the first, {there} in "
        f"{f'number {number + 1}' if number else 'the tree'}\n"
        "the others may only go on where the first one has a leaf")


def _paths(spec: TreeSpec, path: KeyPath) -> Iterator[KeyPath]:
    if spec.type is None:
        yield path
    for key, child in zip(_keys_of(spec), spec.children, strict=True):
        yield from _paths(child, (*path, key))


def _keys_of(spec: TreeSpec) -> list[Key]:
    """The steps from a node to its children."""
    if spec.type is dict:
        return [DictKey(key) for key in spec.context]
    names = None if spec.type is None else _field_names(spec.type)
    if names is not None:
        return [GetAttrKey(name) for name in names]
    kind = SequenceKey if spec.type in _BUILT_IN else FlattenedIndexKey
    return [kind(i) for i in range(len(spec.children))]


def _field_names(cls: type) -> Sequence[str] | None:
    node = _nodes.get(cls)
    names: Sequence[str] | None = getattr(cls, "_fields", None) if node is None else node.fields
    return names


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
    fields = _field_names(spec.type)
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
