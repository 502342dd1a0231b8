"""Operators whose results have shapes that depend on data."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch._registry.backends import dtype_of
from pydispatch.operators.declare import PACKS
from pydispatch.ops import ops
from pydispatch.tracing.fake import FakeMode
from pydispatch.tracing.values import device_of
from pydispatch.tree import tree_leaves, tree_map

INDEX = ops.np.index.default


def has_shape_of_data(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], is_known: Callable[[Any], bool]
) -> bool:
    """Return whether a later run may return another shape for arguments of the same shapes.

    Among the operators of packs, only indexing by a mask does. Another operator may, unless it has a fake that infers
    the shape.
    """
    leaves = tree_leaves((args, kwargs))
    if op.namespace in PACKS:
        return op is INDEX and any(_core.is_array(leaf) and dtype_of(leaf).kind == "b" and not is_known(leaf)
                                   for leaf in leaves[1:])
    if any(_core.is_array(leaf) and device_of(leaf) != "CPU" for leaf in leaves):
        return True
    return contextvars.Context().run(_needs_data, op, args, kwargs)


def _needs_data(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator infers no shape from the shapes of its arguments."""
    mode = FakeMode()
    args, kwargs = tree_map(
        lambda leaf: mode.new_fake(tuple(leaf.shape), leaf.dtype) if _core.is_array(leaf) else leaf, (args, kwargs))
    try:
        with mode:
            op(*args, **kwargs)
    except Exception:       # a fake with another fault has no effect on a trace with data
        return True
    return False
