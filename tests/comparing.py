"""Comparisons of arrays that tests share, and tests of what a value is."""

from typing import Any

import numpy as np

from pydispatch import Tensor
from pydispatch.tree import tree_flatten


def close(actual: Any, desired: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    """Check that two arrays have one shape and dtype, and the same elements but for rounding."""
    np.testing.assert_allclose(np.asarray(actual), np.asarray(desired), rtol=rtol, atol=atol, strict=True)


def all_close(actual: Any, desired: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    """Check that two pytrees have one structure, and that their leaves are close."""
    found, expected = tree_flatten(actual), tree_flatten(desired)
    assert found[1] == expected[1]
    for left, right in zip(found[0], expected[0], strict=True):
        close(left, right, rtol, atol)


def is_raw(value: Any) -> bool:
    """Return whether a value is an array or a number of NumPy, and no Tensor or subclass."""
    return type(value) is np.ndarray or isinstance(value, np.generic)


def raw(value: Any) -> Any:
    """Return the array in a Tensor of any depth, and anything else unchanged."""
    while isinstance(value, Tensor):
        value = value.array
    return value


def to_tensor(leaf: Any) -> Any:
    """Wrap an array in a Tensor, and return anything else unchanged."""
    return Tensor(leaf) if isinstance(leaf, np.ndarray) else leaf
