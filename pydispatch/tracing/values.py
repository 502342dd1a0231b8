"""What stands in the arguments of a node: nodes and literals in containers; and what is known of a node's value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import DispatchError
from pydispatch.tree import tree_leaves, tree_map


class GraphError(DispatchError, RuntimeError):
    """A graph is not well-formed, or would not be after what was asked for."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape, dtype and device of an array; printed `float64[2, 3]`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: str = "CPU"

    def __str__(self) -> str:
        place = "" if self.device == "CPU" else f" on {self.device}"
        return f"{self.dtype}{list(self.shape)}{place}"


def spec_of(value: Any) -> Any:
    """For `node.meta["val"]`: the spec of an array or Tensor, in lists and tuples a tuple of them, else the value."""
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
    """`node.meta["val"]` as a comment; "" where nothing is known."""
    if isinstance(spec, tuple):
        inner = ", ".join(map(describe_spec, spec))
        return f"({inner},)" if len(spec) == 1 else f"({inner})"
    if isinstance(spec, ArraySpec):
        return str(spec)
    return "" if spec is None else type(spec).__name__


def map_values(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with the function applied to everything in it but containers and slices."""
    return tree_map(lambda leaf: _map_leaf(function, leaf), value)


def _map_leaf(function: Callable[[Any], Any], leaf: Any) -> Any:
    if isinstance(leaf, slice):
        return slice(*[map_values(function, part) for part in (leaf.start, leaf.stop, leaf.step)])
    return function(leaf)


def values_in(value: Any) -> Iterator[Any]:
    """Everything in `value` but containers and slices, from left to right."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, slice):
            yield from values_in((leaf.start, leaf.stop, leaf.step))
        else:
            yield leaf
