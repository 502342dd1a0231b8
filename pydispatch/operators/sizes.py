"""Errors from lengths that are known only when an array is computed, as Dask arrays have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from pydispatch import _core
from pydispatch._registry.backends import has_unknown_sizes, unknown_sizes
from pydispatch.ops import ops
from pydispatch.tree import tree_flatten, tree_unflatten

LENGTHS = (0, 1, 2, 3, 840)     # many numbers divide the last one, and few indices exceed it
LONGEST = 1000      # the longest length that is tried for an unknown one
MOST_ARRAYS = 3     # with more arrays than this, only equal lengths are tried


def blame_unknown_sizes(
    what: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> None:
    """Raise UnsupportedError for a call that failed, if unknown lengths contributed to the failure.

    They did not if the call fails for zeros of any lengths instead of these arrays, and with an equal error where all
    lengths are the same.
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
    """Return some lengths to try for each array.

    They include those of other arrays and the numbers in the call, which it may require.
    """
    known = [n for leaf in leaves if _core.is_array(leaf) for n in leaf.shape]      # some of these are nan
    numbers = [leaf for leaf in leaves if type(leaf) is int]
    lengths = {*LENGTHS, *[n for n in (*known, *numbers) if 0 <= n <= LONGEST]}
    return product(lengths, repeat=n_arrays) if n_arrays <= MOST_ARRAYS else [(n,) * n_arrays for n in lengths]


def _zeros(array: Any, length: int) -> Any:
    return ops.np.zeros_like(array, shape=tuple([length if math.isnan(n) else n for n in array.shape]))


def _is_alike(error: Exception, other: Exception) -> bool:
    """Return whether the errors are equal in type and words, except that `other` has nan for a length."""
    words = re.sub(r"\bnan\b", r"\\d+", re.escape(str(other)))
    return type(error) is type(other) and re.fullmatch(words, str(error)) is not None
