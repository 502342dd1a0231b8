"""`const_graph`, which records a function once and runs the recorded calls from then on."""

# tests: tests/compat/autograd/test_structures.py
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydispatch.tracing import make_fx

__all__ = ["const_graph"]


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return `partial(fun, *args, **kwargs)` as the graph of its first call, for arrays of the same shapes."""
    graph: Any = None

    def run(*varying: Any) -> Any:
        nonlocal graph
        if graph is None:
            graph = make_fx(partial(fun, *args, **kwargs))(*varying)
        return graph(*varying)

    return run
