"""Comparison of compiled functions, bit for bit, with the functions themselves, called step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch.tree import tree_flatten
from tests.comparing import raw
from tests.properties.programs import same_bits

BACKENDS = ("plan", "python")


def check_same(found: Any, expected: Any, what: Any = "") -> None:
    """Assert equal structure and dtypes, shapes and bits of arrays. Any nan equals any nan."""
    found_leaves, found_spec = tree_flatten(found)
    leaves, spec = tree_flatten(expected)
    assert found_spec == spec, f"{what}: found {found_spec}, expected {spec}"
    for one, other in zip(found_leaves, leaves, strict=True):
        one, other = np.asarray(raw(one)), np.asarray(raw(other))
        assert same_bits(one, other), f"{what}: found {one!r}, expected {other!r}"


def results_of_two_calls(compiled: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the results of the first call, which compiles, and of the second, which runs the compiled function."""
    return [compiled(*arguments), compiled(*arguments)]
