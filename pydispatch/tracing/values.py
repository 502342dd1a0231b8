"""The arguments of nodes (nodes and literals in pytrees), and what is known of a node's value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.tree import is_pytree_node_type, tree_flatten, tree_unflatten

LEAVES: set[type] = {int, float, bool, str, NoneType, np.ndarray, _core.Tensor}
"""The commonest classes of what is neither a pytree node nor a slice, nor can become one."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape, dtype and device of an array; printed `float64[2, 3]`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: str = "CPU"

    def __str__(self) -> str:
        suffix = "" if self.device == "CPU" else f" on {self.device}"
        return f"{self.dtype}{list(self.shape)}{suffix}"


def spec_of(value: Any) -> Any:
    """The `node.meta["val"]` of a value: the spec of an array, a tuple of specs for a list or tuple, else the value."""
    if isinstance(value, (tuple, list)):
        return tuple(map(spec_of, value))
    if not _core.is_array(value):
        return value
    return ArraySpec(tuple(value.shape), value.dtype, device_of(value))


def device_of(array: Any) -> str:
    """The name of the backend of an array or Tensor."""
    if isinstance(array, _core.Tensor):
        return array.device
    return next((key.backend for key in _core.keys_of(array) if key.backend is not None), "CPU")


def describe_spec(spec: Any) -> str:
    """`node.meta["val"]` as a comment; "" if nothing is known."""
    if isinstance(spec, tuple):
        inner = ", ".join(map(describe_spec, spec))
        return f"({inner},)" if len(spec) == 1 else f"({inner})"
    if isinstance(spec, ArraySpec):
        return str(spec)
    return "" if spec is None else type(spec).__name__


def map_values(function: Callable[[Any], Any], value: Any, *, lists: type = list) -> Any:
    """`value` with the function applied to everything in it except pytree nodes and slices; lists become `lists`."""
    # like tree_map but without a spec, since tracing does this for each operator
    kind = type(value)
    if kind is tuple:
        return tuple([function(item) if type(item) in LEAVES else map_values(function, item, lists=lists)
                      for item in value])
    if kind in LEAVES:
        return function(value)
    if kind is list:
        return lists([map_values(function, item, lists=lists) for item in value])
    if kind is dict:
        # CPython crashes where it cannot make the pair that `items` gives
        return {key: map_values(function, value[key], lists=lists) for key in value}
    if kind is slice:
        return slice(*[map_values(function, part, lists=lists) for part in (value.start, value.stop, value.step)])
    if is_pytree_node_type(kind):
        leaves, spec = tree_flatten(value)
        return tree_unflatten([map_values(function, leaf, lists=lists) for leaf in leaves], spec)
    return function(value)


def values_in(value: Any) -> list[Any]:
    """Everything in `value` except pytree nodes and slices, from left to right."""
    found: list[Any] = []
    map_values(found.append, value)
    return found
