"""SciPy's classes on Tensors: those of the copies of its modules (see `borrowed.py`).

Their objects are pytree nodes, so functions under transforms can take and return them. Under `vmap`, a constructor or
a method that needs values runs for one example after the other, as functions do.
"""

# tests: tests/scipy/test_classes.py
from __future__ import annotations

import builtins
from functools import partial, wraps
from types import FunctionType
from typing import Any

from pydispatch._core import Tensor, is_array
from pydispatch.numpy.declare import known_values
from pydispatch.scipy.batches import all_as_tensors, by_example_if_needed
from pydispatch.tree import register_pytree_node, tree_leaves, tree_map

MUTATING = ("add_", "set_")


class Batching(type):
    """A class whose constructor and methods run for one example of a batch after the other if they need values."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        for key, value in namespace.items():
            if takes_batches(key, value):
                setattr(cls, key, on_batches(value))
        register_pytree_node(cls, flattened, unflattened)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return called(super().__call__, args, kwargs)


def build_class(body: Any, name: str, *bases: Any, **kwargs: Any) -> type:
    """Make a class, as the statement does."""
    is_plain = all(type(base) in (type, Batching) and not issubclass(base, (BaseException, dict, tuple))
                   for base in bases)
    metaclass = {"metaclass": Batching} if is_plain and not kwargs else kwargs
    found: type = builtins.__build_class__(body, name, *bases, **metaclass)
    return found


def called(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method or a class. Arrays give arrays, though the copies write their results to Tensors."""
    found = by_example_if_needed(function, args, kwargs)
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs))):
        return all_as_tensors(found)
    return tree_map(as_numpys, found)


def as_numpys(leaf: Any) -> Any:
    """Return the NumPy array or scalar of a Tensor. Other values, and Tensors of unknown values, are unchanged."""
    known = known_values(leaf) if isinstance(leaf, Tensor) else None
    return leaf if known is None else known[()]


def takes_batches(name: str, value: Any) -> bool:
    return isinstance(value, (FunctionType, classmethod, staticmethod)) and not name.startswith(MUTATING) and (
        not name.startswith("_") or name in ("__call__", "__getitem__", "__mul__", "__pow__"))


def on_batches(method: Any) -> Any:
    """Return a method that runs for one example after the other if it needs values."""
    if isinstance(method, staticmethod):
        return staticmethod(wraps(method)(lambda *args, **kwargs: called(method, args, kwargs)))
    if isinstance(method, classmethod):
        function = method.__func__
        return classmethod(wraps(function)(lambda cls, *args, **kwargs: called(
            partial(function, cls), args, kwargs)))
    return wraps(method)(lambda self, *args, **kwargs: called(method, (self, *args), kwargs))


def state_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object."""
    slots = {name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ()) if name != "__dict__"}
    return {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)} | getattr(
        value, "__dict__", {})


def flattened(value: Any) -> tuple[Any, Any]:
    """Return the attributes that hold arrays, and the class and the others."""
    state = state_of(value)
    arrays = {name: each for name, each in state.items() if any(map(is_array, tree_leaves(each)))}
    others = tuple([(name, each) for name, each in state.items() if name not in arrays])
    return tuple(arrays.values()), (type(value), tuple(arrays), others)


def unflattened(children: Any, context: Any) -> Any:
    cls, names, others = context
    value = object.__new__(cls)
    for name, attribute in (*zip(names, children, strict=True), *others):
        object.__setattr__(value, name, attribute)
    return value
