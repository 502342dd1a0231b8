"""Pytrees: the arrays in lists, tuples, dicts, named tuples, classes of `collections` and registered classes.

A pytree is flattened to its leaves and a `TreeSpec` that rebuilds it. Every value that is not a registered node is a
leaf, including None. Two pytrees match by structure: dicts by their keys, in any order.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch._loading import only_public
from pydispatch._sites import remember, replaces_former
from pydispatch.exceptions import RegistrationError

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "SequenceKey", "TreeSpec", "keystr", "register_dataclass",
    "register_pytree_node", "register_pytree_node_class", "tree_all", "tree_broadcast", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce",
    "tree_structure", "tree_transpose", "tree_unflatten",
]
__dir__ = only_public(globals())


class TreeSpec(NamedTuple):
    """The structure of a pytree: its class, the context with which that rebuilds it, and its children's specs."""

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
        self.fields = fields    # the attributes that hold the children, or None


C = TypeVar("C", bound=type)
LEAF = TreeSpec(None, None, ())
OPEN = TreeSpec(object, None, ())
"""In a spec that pytrees are compared with: matches any value."""
_BUILT_IN = frozenset((tuple, list, dict))      # the core flattens these itself
_NONE_GIVEN: Any = object()
_nodes: dict[type, _NodeType] = {
    OrderedDict: _NodeType(lambda value: (value.values(), tuple(value)),
                           lambda children, keys: OrderedDict(zip(keys, children, strict=True))),
    defaultdict: _NodeType(lambda value: (value.values(), (value.default_factory, *value)),
                           lambda children, context: defaultdict(context[0], zip(context[1:], children, strict=True))),
    deque: _NodeType(lambda value: (value, value.maxlen), deque),
}
_COMMON_LEAVES = frozenset((
    np.ndarray, Tensor, _core.GradTensor, _core.JvpTensor, _core.BatchedTensor, int, float, str, bool, NoneType))
_COMMON_PRESENT = _COMMON_LEAVES - {NoneType}


def _flatten_named(value: Any) -> tuple[Iterable[Any], Any]:
    """Return the fields of a named tuple, followed by its other attributes, such as results of SciPy have."""
    others = getattr(value, "__dict__", None)
    return ((*value, *others.values()), (type(value), *others)) if others else (value, type(value))


def _unflatten_named(children: list[Any], context: Any) -> Any:
    if not isinstance(context, tuple):
        return context(*children)
    cls, *names = context
    found = tuple.__new__(cls, children[:-len(names)])
    found.__dict__.update(zip(names, children[-len(names):], strict=True))
    return found


_named_tuple = _NodeType(_flatten_named, _unflatten_named)
_none = _NodeType(lambda value: ((), None), lambda children, _: None)


def register_pytree_node(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[list[Any], Any], Any],
) -> None:
    """Make instances of exactly `cls` pytree nodes.

    The code that registered the class may run again, with OverrideWarning.

    Parameters
    ----------
    cls : type
        The class.
    flatten : callable
        A function `flatten(value) -> (children, context)`.
    unflatten : callable
        Its inverse, `unflatten(children, context) -> value`.

    Raises
    ------
    RegistrationError
        If the class is already a pytree node for another reason.

    Examples
    --------
    >>> from pydispatch import tree
    >>> class Pair:
    ...     def __init__(self, first, second):
    ...         self.first, self.second = first, second
    >>> tree.register_pytree_node(
    ...     Pair, lambda pair: ((pair.first, pair.second), None), lambda children, _: Pair(*children))
    >>> tree.tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    _register(cls, _NodeType(flatten, unflatten))


def register_pytree_node_class(cls: C) -> C:
    """Register the decorated class as a pytree node.

    Parameters
    ----------
    cls : type
        A class with a method `tree_flatten(self)`, which returns (children, context), and a class method
        `tree_unflatten(cls, context, children)`.

    Returns
    -------
    type
        The class.
    """
    _register(cls, _NodeType(
        lambda value: value.tree_flatten(), lambda children, context: cls.tree_unflatten(context, children)))  # type: ignore[attr-defined]
    return cls


def register_dataclass(
    cls: C, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] = ()
) -> C:
    """Make a dataclass a pytree node, directly or as a decorator.

    Parameters
    ----------
    cls : type
        The dataclass.
    data_fields : sequence of str, optional
        The fields that are children. By default they are all other fields that `__init__` takes.
    meta_fields : sequence of str, optional
        The fields that belong to the structure.

    Returns
    -------
    type
        The class.

    Raises
    ------
    TypeError
        If the class is not a dataclass, or these are not its fields.

    Examples
    --------
    >>> import dataclasses
    >>> from pydispatch import tree
    >>> @tree.register_dataclass
    ... @dataclasses.dataclass
    ... class Point:
    ...     x: float
    ...     y: float
    >>> tree.tree_map(lambda number: 2 * number, Point(1.0, 2.0))
    Point(x=2.0, y=4.0)
    """
    dataclasses = sys.modules.get("dataclasses")        # slow to import, and already imported if there is a dataclass
    if dataclasses is None or not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TypeError(f"{cls!r} is not a dataclass\nput @dataclass below @register_dataclass")
    meta = tuple(meta_fields)
    taken = [field.name for field in dataclasses.fields(cls) if field.init]
    data = tuple(name for name in taken if name not in meta) if data_fields is None else tuple(data_fields)
    if sorted((*data, *meta)) != sorted(taken):
        raise TypeError(f"{cls.__name__}: {', '.join((*data, *meta))} are not exactly its fields, {', '.join(taken)}"
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
    """Return whether instances of `cls` are pytree nodes."""
    return cls in _BUILT_IN or _node_of(cls) is not None


def _node_of(cls: type) -> _NodeType | None:
    node = _nodes.get(cls)
    if node is None and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple
    return node


def _node_or_none(cls: type) -> _NodeType | None:
    return _none if cls is NoneType else _node_of(cls)


def tree_flatten(value: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a pytree, depth first, and the spec that rebuilds it.

    Parameters
    ----------
    value : object
        The pytree.
    is_leaf : callable, optional
        Called on every node before it is flattened. If it returns True, the node is a leaf.

    Returns
    -------
    leaves : list
        The leaves.
    spec : TreeSpec
        The structure, for `tree_unflatten`.

    Examples
    --------
    >>> from pydispatch import tree
    >>> leaves, spec = tree.tree_flatten({"a": (1, 2), "b": 3})
    >>> leaves
    [1, 2, 3]
    >>> tree.tree_unflatten([10 * leaf for leaf in leaves], spec)
    {'a': (10, 20), 'b': 30}
    """
    return _flatten(value) if is_leaf is None else _flatten_until(is_leaf, value)


def tree_flatten_present(value: Any) -> tuple[list[Any], TreeSpec]:
    """Flatten a pytree without None among the leaves. The spec shows where None is."""
    return _flatten_present(value)


def tree_unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """Return the pytree of this spec with these leaves.

    Parameters
    ----------
    leaves : iterable
        The leaves, depth first.
    spec : TreeSpec
        The structure that `tree_flatten` returned.

    Returns
    -------
    object
        The pytree.
    """
    if spec is flat_spec(len(spec.children)):
        return tuple(islice(leaves, len(spec.children)))
    return _core.unflatten_from(iter(leaves), spec, _node_or_none)


def tree_leaves(value: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves of a pytree, depth first.

    Parameters
    ----------
    value : object
        The pytree.
    is_leaf : callable, optional
        Called on every node before it is flattened. If it returns True, the node is a leaf.

    Returns
    -------
    list
        The leaves.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_leaves({"a": (1, 2), "b": 3}, is_leaf=lambda node: isinstance(node, tuple))
    [(1, 2), 3]
    """
    return tree_flatten(value, is_leaf)[0]


def tree_structure(value: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """Return the spec of a pytree."""
    return tree_flatten(value, is_leaf)[1]


def tree_map(function: Callable[..., Any], value: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply the function to every leaf of a pytree, and to the corresponding part of each tree of `rest`.

    Parameters
    ----------
    function : callable
        A function of a leaf, and of one part of each tree of `rest`.
    value : object
        The pytree.
    `*rest` : object
        Trees with the structure of the first one, which may end earlier: a leaf of it corresponds to a whole part of
        theirs.
    is_leaf : callable, optional
        Called on every node before it is flattened. If it returns True, the node is a leaf.

    Returns
    -------
    object
        A pytree of the results.

    Raises
    ------
    ValueError
        If the structures differ.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_map(lambda x, y: x + y, {"a": (1, 2), "b": 3}, {"a": (10, 20), "b": 30})
    {'a': (11, 22), 'b': 33}
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
    """Apply `functools.reduce` to the leaves of a pytree.

    Parameters
    ----------
    function : callable
        A function of the previous result and a leaf.
    value : object
        The pytree.
    initializer : object, optional
        The first result. Without it, that is the first leaf.
    is_leaf : callable, optional
        Called on every node before it is flattened. If it returns True, the node is a leaf.

    Returns
    -------
    object
        The last result.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_reduce(lambda total, leaf: total + leaf, {"a": (1, 2), "b": 3})
    6
    """
    leaves = tree_leaves(value, is_leaf)
    if initializer is _NONE_GIVEN:
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_all(value: Any, is_leaf: IsLeaf = None) -> bool:
    """Return whether all leaves of a pytree are true.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_all({"a": (1, 2), "b": 0})
    False
    """
    return all(tree_leaves(value, is_leaf))


def tree_broadcast(prefix: Any, full: Any, is_leaf: IsLeaf = None) -> Any:
    """Return the leaves of `prefix` in the structure of `full`, repeating a leaf where `full` continues.

    Parameters
    ----------
    prefix : object
        A pytree with the structure of `full`, which may end earlier.
    full : object
        The pytree with the whole structure.
    is_leaf : callable, optional
        Called on every node of `prefix` before it is flattened. If it returns True, the node is a leaf.

    Returns
    -------
    object
        A pytree of the structure of `full`.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_broadcast((0, 1), ([5, 6], {"a": 7}))
    ([0, 0], {'a': 1})
    """
    leaves, spec = tree_flatten(prefix, is_leaf)
    parts, = _parts_of_each(spec, (full,))
    spread_out = [tree_map(lambda _, leaf=leaf: leaf, part) for leaf, part in zip(leaves, parts, strict=True)]
    return tree_unflatten(spread_out, spec)


def tree_transpose(outer: TreeSpec, inner: TreeSpec | None, value: Any) -> Any:
    """Turn a tree of trees inside out.

    Parameters
    ----------
    outer : TreeSpec
        The structure of `value`.
    inner : TreeSpec or None
        The structure of the trees in `value`. If None, it is the structure that all of them have.
    value : object
        A tree of trees.

    Returns
    -------
    object
        A pytree of structure `inner` that holds trees of structure `outer`.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_transpose(tree.tree_structure([0, 0]), None, [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    trees = _parts(outer, value, (), 0)
    if inner is None and not trees:
        raise ValueError("tree_transpose: a tree without leaves does not show the structure of its inner trees\n"
                         "pass their structure: tree_transpose(outer, inner, value)")
    spec = tree_structure(trees[0]) if inner is None else inner
    columns = _parts_of_each(spec, tuple(trees))
    rows: Iterable[Any] = zip(*columns, strict=True) if columns else [()] * n_leaves(spec)
    return tree_unflatten([tree_unflatten(row, outer) for row in rows], spec)


def tree_flatten_with_path(value: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Return the leaves of a pytree, each with its path, and the spec that rebuilds it."""
    leaves, spec = tree_flatten(value, is_leaf)
    return list(zip(_paths(spec, ()), leaves, strict=True)), spec


def tree_leaves_with_path(value: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """Return the leaves of a pytree, each with its path.

    Examples
    --------
    >>> from pydispatch import tree
    >>> for path, leaf in tree.tree_leaves_with_path({"weights": [1, 2]}):
    ...     print(tree.keystr(path), leaf)
    ['weights'][0] 1
    ['weights'][1] 2
    """
    return tree_flatten_with_path(value, is_leaf)[0]


def tree_map_with_path(function: Callable[..., Any], value: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply a function to every leaf like `tree_map`, with the path of the leaf as the first argument.

    Examples
    --------
    >>> from pydispatch import tree
    >>> tree.tree_map_with_path(lambda path, leaf: tree.keystr(path), {"weights": [1, 2]})
    {'weights': ["['weights'][0]", "['weights'][1]"]}
    """
    leaves, spec = tree_flatten(value, is_leaf)
    return tree_unflatten(map(function, _paths(spec, ()), leaves, *_parts_of_each(spec, rest)), spec)


def keystr(path: KeyPath) -> str:
    """Return a path in Python's notation: `['weights'][0]`."""
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
    """Return the children of a node, and the context that its class needs for rebuilding, or None for a leaf."""
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
    """Return the parts of a pytree at the leaves of this spec, in order. Raise ValueError if structures differ."""
    if spec.type is None:
        return [value]
    opened = _opened(value) if type(value) is spec.type else None
    children = None if opened is None else list(opened[0])
    if opened is not None and children is not None:
        found = TreeSpec(spec.type, opened[1], (LEAF,) * len(children))
        if is_same_node(spec, found):
            if spec.type in _UNORDERED:
                children = [value[key] for key in _dict_keys(spec) or ()]
            return [part for key, inner, child in zip(_keys_of(spec), spec.children, children, strict=True)
                    for part in _parts(inner, child, (*path, key), number)]
    there = described_structure(tree_structure(value))
    where = f" at {keystr(path)}" if path else ""
    raise ValueError(
        f"pytrees of different structure{where}: {described_structure(spec)} in the first, {there} in "
        f"{f'number {number + 1}' if number else 'the tree'}\n"
        "the other trees can differ only where the first one has a leaf")


def _paths(spec: TreeSpec, path: KeyPath) -> Iterator[KeyPath]:
    if spec.type is None:
        yield path
    for key, child in zip(_keys_of(spec), spec.children, strict=True):
        yield from _paths(child, (*path, key))


def _keys_of(spec: TreeSpec) -> list[Key]:
    """Return the steps from a node to its children."""
    keys = _dict_keys(spec)
    if keys is not None:
        return [DictKey(key) for key in keys]
    names = None if spec.type is None else _field_names(spec)
    if names is not None:
        return [GetAttrKey(name) for name in names]
    kind = SequenceKey if spec.type in _BUILT_IN or spec.type is deque else FlattenedIndexKey
    return [kind(i) for i in range(len(spec.children))]


_UNORDERED = frozenset((dict, defaultdict))


def _dict_keys(spec: TreeSpec) -> tuple[Any, ...] | None:
    """Return the keys of a dict of any kind, in its order, or None for another node."""
    if spec.type is dict or spec.type is OrderedDict:
        keys: tuple[Any, ...] = spec.context
        return keys
    return spec.context[1:] if spec.type is defaultdict else None


def _field_names(spec: TreeSpec) -> Sequence[str] | None:
    cls: Any = spec.type
    node = _node_of(cls)
    if node is _named_tuple:
        return (*cls._fields, *(spec.context[1:] if isinstance(spec.context, tuple) else ()))
    return None if node is None else node.fields


# --- specs -----------------------------------------------------------------------------------------------------------


@functools.cache
def flat_spec(n: int) -> TreeSpec:
    """Return the spec of a tuple of `n` leaves, always the same object."""
    return TreeSpec(tuple, None, (LEAF,) * n)


def n_leaves(spec: TreeSpec) -> int:
    """Return how many leaves a pytree of this spec has."""
    return 1 if spec.type is None else sum(map(n_leaves, spec.children))


def described_structure(spec: TreeSpec) -> str:
    """Return the structure of a pytree in Python's notation, with * for leaves and ... for OPEN: `(*, {'a': *})`."""
    if spec is OPEN:
        return "..."
    if spec.type is None or spec.type is NoneType:
        return "*" if spec.type is None else "None"
    children = [described_structure(child) for child in spec.children]
    keys = _dict_keys(spec)
    if keys is not None:
        items = ", ".join([f"{key!r}: {child}" for key, child in zip(keys, children, strict=True)])
        return f"{{{items}}}" if spec.type is dict else f"{spec.type.__name__}({{{items}}})"
    inner = ", ".join(children)
    if spec.type is tuple:
        return f"({inner},)" if len(children) == 1 else f"({inner})"
    return f"[{inner}]" if spec.type is list else f"{spec.type.__name__}({inner})"


def path_of_leaf(spec: TreeSpec, n: int) -> str:
    """Return the path to a leaf of a pytree, for messages, like `['weights'][0]`, or "" for a leaf by itself."""
    if spec.type is None:
        return ""
    i, n = _child_of_leaf(spec, n)
    path = path_of_leaf(spec.children[i], n)
    keys = _dict_keys(spec)
    if keys is not None:
        return f"[{keys[i]!r}]{path}"
    fields = _field_names(spec)
    return f"[{i}]{path}" if fields is None else f".{fields[i]}{path}"


def path_to_leaf_number(spec: TreeSpec, n: int, positions: Sequence[int] | None = None) -> str:
    """Return the position of the argument that a leaf is in, and its path there. `spec` describes some arguments.

    `positions` are the positions of these arguments if they are not all.
    """
    i, n = _child_of_leaf(spec, n)
    return f"{i if positions is None else positions[i]}{path_of_leaf(spec.children[i], n)}"


def _child_of_leaf(spec: TreeSpec, n: int) -> tuple[int, int]:
    """Return the number of the child that a leaf is in, and the leaf's number in that child."""
    for i, child in enumerate(spec.children):
        size = n_leaves(child)
        if n < size:
            return i, n
        n -= size
    raise IndexError(n)


def in_order_of(
    spec: TreeSpec, leaves: list[Any], found: TreeSpec, *, any_sequence: bool = False
) -> list[Any] | None:
    """Return the leaves of a pytree of the spec `found` in the order of `spec`, or None if the structures differ.

    Dicts may have their keys in another order. With `any_sequence`, lists and tuples are interchangeable. Where `spec`
    is OPEN, anything matches.
    """
    if fits(found, spec):
        return leaves
    return _matched(iter(leaves), found, spec, _is_same_kind if any_sequence else is_same_node, spreads=False)


def fits(found: TreeSpec, spec: TreeSpec) -> bool:
    """Return whether a pytree has exactly this structure, in the same order, with anything where the spec is OPEN."""
    if found is spec or spec is OPEN:
        return True
    return (found.type is spec.type and len(found.children) == len(spec.children) and found.context == spec.context
            and all(map(fits, found.children, spec.children)))


def is_alike(spec: TreeSpec, found: TreeSpec) -> bool:
    """Return whether two specs have the same structure."""
    return in_order_of(spec, list(range(n_leaves(found))), found) is not None


def completed(spec: TreeSpec, found: TreeSpec) -> TreeSpec:
    """Return the spec with its OPEN parts replaced by those of a pytree of this structure."""
    if fits(found, spec):
        return found
    pairs = zip(spec.children, children_in_order_of(spec, found), strict=True)
    return spec._replace(children=tuple([completed(*pair) for pair in pairs]))


def children_in_order_of(spec: TreeSpec, found: TreeSpec) -> Sequence[TreeSpec]:
    """Return the children of `found` in the order of those of `spec`.

    Both are of one class, and dicts have the same keys.
    """
    if spec.type not in _UNORDERED:
        return found.children
    by_key = dict(zip(_dict_keys(found) or (), found.children, strict=True))
    return [by_key[key] for key in _dict_keys(spec) or ()]


def spread(prefix: Any, spec: TreeSpec, *, any_sequence: bool = False) -> list[Any] | None:
    """Return, for every leaf of `spec`, the entry of `prefix`, or None if `prefix` is not a prefix of the structure.

    With `any_sequence`, lists and tuples are interchangeable.
    """
    if prefix is None or type(prefix) is int:
        return [prefix] * n_leaves(spec)
    leaves, found = tree_flatten(prefix)
    return _matched(iter(leaves), found, spec, _is_same_kind if any_sequence else is_same_node, spreads=True)


def _matched(
    leaves: Iterator[Any], found: TreeSpec, spec: TreeSpec, alike: Callable[[TreeSpec, TreeSpec], bool], *,
    spreads: bool,
) -> list[Any] | None:
    """Return, for each leaf of `spec`, one of these leaves of a pytree `found`, or None if the structures differ."""
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
    if spec.type in _UNORDERED:
        by_key = dict(zip(_dict_keys(found) or (), parts, strict=True))
        parts = [by_key[key] for key in _dict_keys(spec) or ()]
    return [leaf for part in parts for leaf in part or ()]


def is_same_node(one: TreeSpec, other: TreeSpec) -> bool:
    """Return whether two nodes are of one class, with as many children, and for dicts the same keys."""
    if one.type is not other.type or len(one.children) != len(other.children):
        return False
    return set(one.context) == set(other.context) if one.type in _UNORDERED else bool(one.context == other.context)


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
