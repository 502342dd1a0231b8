"""The arguments of nodes (nodes and literals in pytrees), and the known properties of a node's value."""

# tests: tests/tracing/test_graph.py
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import DataDependentError
from pydispatch.tree import is_pytree_node_type, tree_flatten, tree_unflatten

LEAVES: set[type] = {int, float, bool, str, NoneType, np.ndarray, _core.Tensor}
"""The most common classes of values that are neither pytree nodes nor slices, nor can become one."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The shape, dtype and device of an array, printed as `float64[2, 3]`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: str = "CPU"
    is_scalar: bool = field(default=False, compare=False, repr=False)      # NumPy returns it as a scalar

    def __str__(self) -> str:
        suffix = "" if self.device == "CPU" else f" on {self.device}"
        return f"{self.dtype}{list(self.shape)}{suffix}"


def spec_of(value: Any) -> Any:
    """Return the `node.meta["val"]` of a value.

    Parameters
    ----------
    value : object
        Any value.

    Returns
    -------
    ArraySpec, tuple or object
        The spec of an array, a tuple of specs for a list or tuple, and any other value itself.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch.tracing import spec_of
    >>> spec_of(numpy.zeros((2, 3)))
    ArraySpec(shape=(2, 3), dtype=dtype('float64'), device='CPU')
    """
    if isinstance(value, (tuple, list)):
        return tuple(map(spec_of, value))
    if not _core.is_array(value):
        return value
    return ArraySpec(tuple(value.shape), value.dtype, device_of(value), _core.is_scalar(value))


def check_shape(value: Any, name: str, shape: tuple[int, ...]) -> None:
    """Raise DataDependentError if the shape of the result of the operator `name` differs from the trace."""
    found = tuple(value.shape)
    if found != shape:
        raise DataDependentError(
            f"{name}: the result has shape {found}, expected {shape} as in the trace: the shape depends on data, and "
            "sizes of the trace are numbers in the graph\n"
            "trace again: make_fx(f)(*args); if f is right for all sizes, make_fx(f, check_shapes=False)(*args)"
        )


def device_of(array: Any) -> str:
    """Return the name of the backend of an array or Tensor."""
    if isinstance(array, _core.Tensor):
        return array.device
    return next((key.backend for key in _core.keys_of(array) if key.backend is not None), "CPU")


def describe_spec(spec: Any) -> str:
    """Return `node.meta["val"]` as a comment, or "" if nothing is known."""
    if isinstance(spec, tuple):
        inner = ", ".join(map(describe_spec, spec))
        return f"({inner},)" if len(spec) == 1 else f"({inner})"
    if isinstance(spec, ArraySpec):
        return str(spec)
    return "" if spec is None else type(spec).__name__


def map_values(function: Callable[[Any], Any], value: Any, *, lists: type = list) -> Any:
    """Apply the function to everything in `value` except pytree nodes and slices. Lists become `lists`."""
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
        # CPython crashes if it cannot allocate the pair that `items` yields
        return {key: map_values(function, value[key], lists=lists) for key in value}
    if kind is slice:
        return slice(*[map_values(function, part, lists=lists) for part in (value.start, value.stop, value.step)])
    if is_pytree_node_type(kind):
        leaves, spec = tree_flatten(value)
        return tree_unflatten([map_values(function, leaf, lists=lists) for leaf in leaves], spec)
    return function(value)


def values_in(value: Any) -> list[Any]:
    """Return everything in `value` except pytree nodes and slices, from left to right."""
    found: list[Any] = []
    map_values(found.append, value)
    return found
