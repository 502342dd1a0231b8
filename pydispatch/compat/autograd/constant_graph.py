"""`const_graph`, which records a function once and runs the recorded calls from then on."""

# tests: tests/compat/autograd/test_operators.py
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pydispatch.tracing import make_fx
from pydispatch.tree import tree_map

__all__ = ["const_graph"]


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return `partial(fun, *args, **kwargs)` as the graph of its first call, for arrays of the same shapes."""
    graph: Any = None

    def run(*varying: Any) -> Any:
        nonlocal graph
        varying = tree_map(lambda leaf: np.float64(leaf) if isinstance(leaf, float) else leaf, varying)
        if graph is None:
            graph = make_fx(partial(fun, *args, **kwargs))(*varying)
        return graph(*varying)

    return run
