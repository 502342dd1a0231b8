"""How a graph is called: what goes in as it is and what goes out, so that it is used like one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema.values import short_repr
from pydispatch.tracing.literals import is_literal, same_literal
from pydispatch.tracing.node import Node
from pydispatch.tracing.values import ArraySpec
from pydispatch.tree import tree_map


def call_on_leaves(function: Callable[..., Any], leaves: list[Any], wants_tensors: bool) -> Any:
    """`function(*leaves)`: with a Tensor among the leaves results are Tensors, else raw.

    A function that `wants_tensors` gets them in any case: from raw arrays operators make NumPy's scalars, which cannot
    be written to, and which are other keys than arrays.
    """
    if any(isinstance(leaf, Tensor) for leaf in leaves):
        return tree_map(_as_tensor, function(*leaves))
    if not wants_tensors:
        return function(*leaves)
    inner = [_as_tensor(leaf) for leaf in leaves]
    passed = {id(tensor): leaf for tensor, leaf in zip(inner, leaves, strict=True) if not isinstance(leaf, np.generic)}
    return tree_map(lambda value: _as_raw(value, passed), function(*inner))


def _as_tensor(value: Any) -> Any:
    return Tensor(value) if _core.is_array(value) and not isinstance(value, Tensor) else value


def _as_raw(value: Any, passed: dict[int, Any]) -> Any:
    if id(value) in passed:
        return passed[id(value)]
    return value.array if type(value) is Tensor and not value.requires_grad else value


def check_fixed(placeholders: list[Node], leaves: list[Any]) -> None:
    """DispatchTypeError, naming the argument, for another value where the graph was made for one value alone."""
    for node, leaf in zip(placeholders, leaves, strict=True):
        if is_fixed(node) and not _same(node.meta["val"], leaf):
            found = " ".join(short_repr(leaf).split())
            raise DispatchTypeError(
                f"the graph's argument {node.name} is {found}, expected {short_repr(node.meta['val'])}, for which "
                "alone the graph was made\ntrace again: make_fx(f)(*args)")


def is_fixed(placeholder: Node) -> bool:
    """Is the graph made for one value of this argument, as of numbers and strings, which are part of the graph?"""
    return "val" in placeholder.meta and not isinstance(placeholder.meta["val"], ArraySpec)


def _same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if is_literal(left) and is_literal(right):
        return same_literal(left, right)
    return type(left) is type(right) and not _core.is_array(left) and bool(left == right)
