"""Lengths that are known only when an array is computed, which Dask's arrays have: did a call fail because of them?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydispatch import _core
from pydispatch.ops import ops
from pydispatch.registry.backends import has_unknown_sizes, unknown_sizes
from pydispatch.tree import tree_leaves, tree_map

LENGTHS = (0, 1, 2, 3, 840)
"""Stand for unknown lengths: the least ones, and one that many numbers divide."""
LONGEST = 1000      # so long are those that stand for them, where the call's own lengths and numbers are longer


def blame_unknown_sizes(
    what: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> None:
    """UnsupportedError for a call that failed, where unknown lengths have a part in it.

    They have none if the call fails alike for zeros of whatever lengths in place of these arrays.
    """
    unknown = next((leaf for leaf in tree_leaves((args, kwargs)) if _is_of_unknown_sizes(leaf)), None)
    if unknown is not None and not all(
            _fails_alike(call, args, kwargs, n, error) for n in _lengths_to_try(args, kwargs)):
        raise unknown_sizes(what, unknown, f"the call failed with {error!r}") from error


def _is_of_unknown_sizes(leaf: Any) -> bool:
    return _core.is_array(leaf) and has_unknown_sizes(leaf)


def _lengths_to_try(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[int]:
    """Some lengths, those of the other arrays and the numbers in the call among them, which it may ask for."""
    lengths = set(LENGTHS)
    for leaf in tree_leaves((args, kwargs)):
        if _core.is_array(leaf):
            lengths.update(leaf.shape)
        elif type(leaf) is int:
            lengths.add(leaf)
    return (n for n in lengths if 0 <= n <= LONGEST)        # nan is not


def _fails_alike(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], length: int, error: Exception
) -> bool:
    """Does the call give the same error, in the same words, for arrays of this length?"""
    def known(leaf: Any) -> Any:
        if not _is_of_unknown_sizes(leaf):
            return leaf
        return ops.np.zeros_like(leaf, shape=tuple([length if math.isnan(n) else n for n in leaf.shape]))

    try:
        args, kwargs = tree_map(known, (args, dict(kwargs)))
        call(*args, **kwargs)
    except Exception as other:
        return type(other) is type(error) and str(other) == re.sub(r"\bnan\b", str(length), str(error))
    return False
