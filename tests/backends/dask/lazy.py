"""Dask arrays for tests: cut in several ways, and compared without that anything was computed before."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.calls import check_same, quietly

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
backend = pytest.importorskip("pydispatch.backends.dask")

CUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "one": lambda x: da.from_array(x, chunks=-1),
    "several": lambda x: da.from_array(x, chunks=tuple(max(1, -(-n // 2)) for n in x.shape)),
    "uneven": lambda x: da.from_array(x, chunks=tuple((1, n - 1) if n > 1 else (n,) for n in x.shape)),
}
"""One chunk; two along each axis; a short and a long one along each axis."""
uneven = CUTS["uneven"]


class ComputedError(Exception):
    """Something was computed that should stay lazy."""


def refuse(*args: Any, **options: Any) -> Any:
    raise ComputedError


@contextmanager
def nothing_computed() -> Iterator[None]:
    """Raise ComputedError where a program computes an array."""
    with dask.config.set(scheduler=refuse):
        yield


def lazily(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call in which nothing is computed."""
    with nothing_computed():
        return quietly(function, args, options)


def computed(tree: Any) -> Any:
    """Return the arrays of Dask's in a tree as NumPy's."""
    return quietly(tree_map, (lambda leaf: leaf.compute(scheduler="sync") if isinstance(leaf, da.Array) else leaf,
                              tree), {})


def check_lazy(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Assert that Dask arrays have the elements of NumPy's once they are computed."""
    leaves, others = tree_leaves(found), tree_leaves(expected)
    assert len(leaves) == len(others)
    assert all(isinstance(leaf, da.Array) for leaf, other in zip(leaves, others, strict=True)
               if isinstance(other, np.ndarray))
    is_single = any(np.asarray(other).dtype in (np.float32, np.complex64) for other in others)
    check_same(computed(found), expected, max(tolerance, 1e-3 if is_single else 1e-9))


def n_tasks(*arrays: Any) -> int:
    """Return how many tasks the graph of some arrays has that Dask optimized."""
    return len({key for array in dask.optimize(*arrays) for key in dict(array.__dask_graph__())})
