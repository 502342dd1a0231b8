"""Functions of the chunks of arrays, and the functions that transforms derive from them. Workers get them by pickle.

They take raw arrays and return a tuple of arrays. Chunked arrays come first, then those that are the same for all
chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pydispatch import _core, func
from pydispatch._core import MetaArray, Tensor
from pydispatch.autograd.values import bottom_of
from pydispatch.higher_order.closures import unseen
from pydispatch.tree import TreeSpec, tree_flatten, tree_unflatten

Arrays = tuple[Any, ...]
Specs = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]      # shape and dtype of each array


class ArgumentMarker(Enum):
    """Replaces an array in the arguments of a user's function. Each marker is the same object in every process."""

    CHUNKED = "one chunk of it"
    SHARED = "the same for all chunks"


CHUNKED, SHARED = ArgumentMarker


def specs_of(values: Sequence[Any]) -> Specs:
    """Return the shape and dtype of each array."""
    return tuple([(tuple(value.shape), value.dtype) for value in values])


def _without_data(specs: Specs) -> list[Tensor]:
    return [Tensor(MetaArray(shape, dtype)) for shape, dtype in specs]


class ChunkFunction:
    """A function of arrays. The first `n_chunked` arguments are chunked."""

    n_chunked: int

    def __call__(self, *values: Any) -> Arrays:
        """Return the results for one chunk."""
        raise NotImplementedError

    def specs_of_results(self, specs: Specs) -> Specs:
        """Return the shapes and dtypes of the results for arguments of these shapes and dtypes."""
        known = _SPECS.setdefault(self, {})
        if specs not in known:
            known[specs] = specs_of(unseen(self, *_without_data(specs)))
        return known[specs]


_SPECS: WeakKeyDictionary[ChunkFunction, dict[Specs, Specs]] = WeakKeyDictionary()
"""Known shapes and dtypes of results, by function and arguments. They are not attributes, as functions are pickled."""


class OfPytrees(ChunkFunction):
    """A user's function. In `leaves`, the leaves of its arguments, CHUNKED and SHARED replace arrays."""

    def __init__(self, f: Callable[..., Any], spec: TreeSpec, leaves: Sequence[Any]) -> None:
        self._f = f
        self._spec = spec
        self._leaves = tuple(leaves)
        self.n_chunked = sum(leaf is CHUNKED for leaf in leaves)

    def __call__(self, *values: Any) -> Arrays:
        """Return the arrays that the function returns."""
        return tuple([leaf for leaf in tree_flatten(self._output(values))[0] if _core.is_array(leaf)])

    def abstract_result(self, specs: Specs) -> tuple[Specs, TreeSpec, list[Any]]:
        """Return the shapes and dtypes of the arrays that the function returns, and the spec and leaves of its output.

        Each array among the leaves is replaced by its number.
        """
        output = unseen(self._output, _without_data(specs))
        leaves, spec = tree_flatten(output)
        arrays = [leaf for leaf in leaves if _core.is_array(leaf)]
        numbers = iter(range(len(arrays)))
        known = _SPECS.setdefault(self, {})[specs] = specs_of(arrays)
        return known, spec, [_Number(next(numbers)) if _core.is_array(leaf) else leaf for leaf in leaves]

    def _output(self, values: Sequence[Any]) -> Any:
        chunked, shared = iter(values[:self.n_chunked]), iter(values[self.n_chunked:])
        args = tree_unflatten([next(chunked) if leaf is CHUNKED else next(shared) if leaf is SHARED else leaf
                               for leaf in self._leaves], self._spec)
        return self._f(*args)


class _Number(int):
    """The number of an array among the results."""


def is_number_of_array(leaf: Any) -> bool:
    """Return whether a leaf of an abstract result replaces an array."""
    return type(leaf) is _Number


class Pullback(ChunkFunction):
    """The gradients of the `wanted` arguments, from the arguments and the cotangents of the `moving` results.

    Cotangents of results that are joined follow the chunked arguments. Those of summed results come at the end.
    """

    def __init__(self, function: ChunkFunction, wanted: Sequence[bool], moving: Sequence[bool],
                 summed: Sequence[bool]) -> None:
        self._function = function
        self._wanted = tuple(wanted)
        self._moving = tuple(moving)
        self._is_summed = tuple([flag for flag, moves in zip(summed, moving, strict=True) if moves])
        self.n_chunked = function.n_chunked + self._is_summed.count(False)

    def __call__(self, *values: Any) -> Arrays:
        """Return the gradients."""
        primals, cotangents = self._sorted(values)

        def of_wanted(*chosen: Any) -> Arrays:
            given = iter(chosen)
            results = self._function(*[next(given) if wanted else primal
                                       for primal, wanted in zip(primals, self._wanted, strict=True)])
            return tuple([result for result, moves in zip(results, self._moving, strict=True) if moves])

        chosen = [primal for primal, wanted in zip(primals, self._wanted, strict=True) if wanted]
        gradients: Arrays = func.vjp(of_wanted, *chosen)[1](cotangents)
        return gradients

    def specs_of_results(self, specs: Specs) -> Specs:
        """Return the shapes and dtypes of the wanted arguments, which their gradients share."""
        primals, _ = self._sorted(specs)
        return tuple([spec for spec, wanted in zip(primals, self._wanted, strict=True) if wanted])

    def _sorted(self, values: Sequence[Any]) -> tuple[Arrays, Arrays]:
        """Return the arguments of the function, and the cotangents in the order of its results."""
        n, n_all = self._function.n_chunked, len(self._wanted)
        chunked, per_chunk = values[:n], iter(values[n:self.n_chunked])
        shared, summed = values[self.n_chunked:][:n_all - n], iter(values[self.n_chunked:][n_all - n:])
        cotangents = tuple([next(summed) if flag else next(per_chunk) for flag in self._is_summed])
        return (*chunked, *shared), cotangents


class Pushforward(ChunkFunction):
    """The results and their tangents, from the arguments and the tangents of those that are `moving`.

    Tangents of chunked arguments follow these. Those of other arguments come at the end.
    """

    def __init__(self, function: ChunkFunction, moving: Sequence[bool]) -> None:
        self._function = function
        self._moving = tuple(moving)
        self.n_chunked = function.n_chunked + sum(moving[:function.n_chunked])

    def __call__(self, *values: Any) -> Arrays:
        """Return the results, then their tangents."""
        primals, tangents = self._sorted(values)

        def of_moving(*chosen: Any) -> Arrays:
            given = iter(chosen)
            return self._function(*[next(given) if moves else primal
                                    for primal, moves in zip(primals, self._moving, strict=True)])

        chosen = tuple([primal for primal, moves in zip(primals, self._moving, strict=True) if moves])
        results, pushed = func.jvp(of_moving, chosen, tangents)
        return (*results, *pushed)

    def specs_of_results(self, specs: Specs) -> Specs:
        """Return the shapes and dtypes of the results, then those of their tangents."""
        return self._function.specs_of_results(self._sorted(specs)[0]) * 2

    def _sorted(self, values: Sequence[Any]) -> tuple[Arrays, Arrays]:
        n, n_all = self._function.n_chunked, len(self._moving)
        shared = values[self.n_chunked:]
        return ((*values[:n], *shared[:n_all - n]),
                (*values[n:self.n_chunked], *shared[n_all - n:]))


class Batched(ChunkFunction):
    """A function on batches. The batch axis of chunked arguments is axis 1, after the rows. Others have it first."""

    def __init__(self, function: ChunkFunction, batched: Sequence[bool], summed: Sequence[bool],
                 randomness: str) -> None:
        self.n_chunked = function.n_chunked
        in_dims = [(1 if i < self.n_chunked else 0) if flag else None for i, flag in enumerate(batched)]
        self._mapped = func.vmap(function, tuple(in_dims), tuple([0 if flag else 1 for flag in summed]), randomness)

    def __call__(self, *values: Any) -> Arrays:
        """Return the results of all examples."""
        results: Arrays = self._mapped(*values)
        return results


def as_arrays(results: Sequence[Any]) -> Arrays:
    """Convert the results for one chunk to NumPy arrays."""
    return tuple([np.asarray(bottom_of(result)) for result in results])
