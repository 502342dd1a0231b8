"""Containers, which are Python's own, and vectors of the arrays that they hold."""

# tests: tests/compat/autograd/test_values.py
from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any

import numpy

import pydispatch.numpy as np
from pydispatch.compat.autograd.primitives import notrace_primitive
from pydispatch.compat.autograd.spaces import match_complex

__all__ = ["dict", "flatten", "flatten_func", "isinstance", "list", "tuple", "type"]
dict, list, tuple = builtins.dict, builtins.list, builtins.tuple
isinstance, type = notrace_primitive(builtins.isinstance), notrace_primitive(builtins.type)


def flatten(value: Any) -> Any:
    """Return a vector of all numbers in nested lists, tuples and dicts, and the function that rebuilds the value."""
    leaves = [*_leaves(value)]
    vector = np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else numpy.zeros(0)

    def unflatten(vector: Any) -> Any:
        ends = numpy.cumsum([0, *[np.size(leaf) for leaf in leaves]])
        parts = iter([match_complex(leaf, np.reshape(vector[start:end], np.shape(leaf)))
                      for leaf, start, end in zip(leaves, ends[:-1], ends[1:], strict=True)])
        return _rebuilt(value, parts)

    return vector, unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> Any:
    """Return the function of vectors that `func` is, the function that rebuilds a value, and the example's vector."""
    vector, unflatten = flatten(example)
    return lambda x, *args: flatten(func(unflatten(x), *args))[0], unflatten, vector


def _leaves(value: Any) -> Iterable[Any]:
    """Return the leaves of nested containers, those of dicts in the order of the sorted keys."""
    if builtins.isinstance(value, (builtins.list, builtins.tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    if builtins.isinstance(value, builtins.dict):
        return [leaf for key in sorted(value) for leaf in _leaves(value[key])]
    return [value]


def _rebuilt(value: Any, leaves: Any) -> Any:
    if builtins.isinstance(value, (builtins.list, builtins.tuple)):
        items = [_rebuilt(item, leaves) for item in value]
        return builtins.type(value)(*items) if hasattr(value, "_fields") else builtins.type(value)(items)
    if builtins.isinstance(value, builtins.dict):
        found = {key: _rebuilt(value[key], leaves) for key in sorted(value)}
        return {key: found[key] for key in value}
    part = next(leaves)
    return part[()] if builtins.isinstance(part, numpy.ndarray) and not part.ndim else part
