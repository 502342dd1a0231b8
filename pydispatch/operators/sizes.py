"""Lengths that are known only when an array is computed, which Dask's arrays have: did a call fail because of them?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from pydispatch import _core
from pydispatch.ops import ops
from pydispatch.registry.backends import has_unknown_sizes, unknown_sizes
from pydispatch.tree import tree_flatten, tree_unflatten

LENGTHS = (0, 1, 2, 3, 840)     # many numbers divide the last one, and few indices exceed it
LONGEST = 1000      # no longer one stands for an unknown length
MOST_ARRAYS = 3     # so many have lengths that differ


def blame_unknown_sizes(
    what: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> None:
    """UnsupportedError for a call that failed, where unknown lengths have a part in it.

    They have none if the call fails for zeros of whatever lengths in place of these arrays, and alike where all have
    one length.
    """
    leaves, spec = tree_flatten((args, dict(kwargs)))
    places = [i for i, leaf in enumerate(leaves) if _core.is_array(leaf) and has_unknown_sizes(leaf)]

    def fails(lengths: Sequence[int]) -> bool:
        known = [*leaves]
        try:
            for i, n in zip(places, lengths, strict=True):
                known[i] = _zeros(leaves[i], n)
            args, options = tree_unflatten(known, spec)
            call(*args, **options)
        except Exception as other:
            return len(set(lengths)) > 1 or _is_alike(other, error)
        return False

    if places and not all(map(fails, _lengths_to_try(leaves, len(places)))):
        raise unknown_sizes(what, leaves[places[0]], f"the call failed with {error!r}") from error


def _lengths_to_try(leaves: Sequence[Any], n_arrays: int) -> Iterable[tuple[int, ...]]:
    """Some lengths for each array: those of other arrays and the numbers in the call, which it may ask for, too."""
    known = [n for leaf in leaves if _core.is_array(leaf) for n in leaf.shape]      # of which some are nan
    numbers = [leaf for leaf in leaves if type(leaf) is int]
    lengths = {*LENGTHS, *[n for n in (*known, *numbers) if 0 <= n <= LONGEST]}
    return product(lengths, repeat=n_arrays) if n_arrays <= MOST_ARRAYS else [(n,) * n_arrays for n in lengths]


def _zeros(array: Any, length: int) -> Any:
    return ops.np.zeros_like(array, shape=tuple([length if math.isnan(n) else n for n in array.shape]))


def _is_alike(error: Exception, other: Exception) -> bool:
    """Are these the same, in the same words, but for nan where the first has a length?"""
    words = re.sub(r"\bnan\b", r"\\d+", re.escape(str(other)))
    return type(error) is type(other) and re.fullmatch(words, str(error)) is not None
