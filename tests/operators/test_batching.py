"""Every operator of the library under `vmap` against a loop over the examples, over sample calls.

An operator that is added to the library is covered by its samples. Every non-empty set of the arrays of a call is
mapped once, along the first axis, the last one, or one counted from the end; the others are the same for all examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, count
from typing import Any, NamedTuple

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.func import vmap
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tree import tree_flatten, tree_unflatten
from tests.operators.samples import Sample, functional_names, numpy_function, samples, schema_of
from tests.operators.test_differential import UNDEFINED, agreeing, is_error, outcome

NAMES = [name for name in functional_names()
         if any("Tensor" in str(argument.type) for argument in schema_of(name).arguments)]
EXACT = {"view", "rearrangement", "join", "indexing", "creation", "conversion", "predicate"}
"""The categories whose results are those of the loop to the bit."""


class Mapped(NamedTuple):
    """A call with some of its arrays mapped: the leaves of the arguments, those of every example, and their axes."""

    name: str
    leaves: tuple[Any, ...]
    spec: Any
    dims: tuple[int | None, ...]
    n: int

    def example(self, i: int) -> Sample:
        return self.sample([leaf if dim is None else np.take(leaf, i, dim)
                            for leaf, dim in zip(self.leaves, self.dims, strict=True)])

    def sample(self, leaves: Any) -> Sample:
        return Sample(*tree_unflatten(list(leaves), self.spec))

    def mapped(self, operator: Any) -> Any:
        """The operator as a function of the mapped arrays, the others being constants, and these arrays."""
        places = [i for i, dim in enumerate(self.dims) if dim is not None]

        def function(*values: Any) -> Any:
            leaves = list(self.leaves)
            for place, value in zip(places, values, strict=True):
                leaves[place] = value
            args, kwargs = self.sample(leaves)
            return operator(*args, **kwargs)

        return function, tuple([self.dims[i] for i in places]), [self.leaves[i] for i in places]

    def __repr__(self) -> str:
        args, kwargs = self.sample(self.leaves)
        return f"{self.name}(*{args}, **{kwargs}) mapped along {self.dims}"


def is_mappable(name: str, leaf: Any) -> bool:
    """Arrays are; masks in a key are not, since shapes would depend on them, nor are numbers in a basic key."""
    if not isinstance(leaf, (np.ndarray, np.generic)) or (name == "getitem" and isinstance(leaf, np.generic)):
        return False
    return leaf.dtype.kind != "b" or not name.startswith("index")


def examples_like(leaf: Any, n: int) -> np.ndarray:
    """`n` arrays, stacked, with the values of this one in other orders; ints of one element go down to -1."""
    values = np.asarray(leaf)
    if values.dtype.kind == "b" and values.size == 1:
        return np.stack([values ^ bool(i % 2) for i in range(n)])
    if values.size == 1:
        kind = values.dtype.kind
        turned = [values - i if kind in "fc" else np.maximum(values.astype(int) - i, -(kind == "i")) for i in range(n)]
        return np.stack(turned).astype(values.dtype)
    return np.stack([np.roll(values, i) if values.size else values for i in range(n)])


def places_of_axes(ndim: int) -> list[int]:
    """Axes to map along, of an array whose examples have `ndim` axes: first, last, and counted from the end."""
    return [0, -1, -ndim - 1, ndim]


def mapped_calls(name: str, found: Any, sizes: Any = (2, 3)) -> Iterator[Mapped]:
    turn = count()
    for sample in found:
        leaves, spec = tree_flatten(tuple(sample))
        places = [i for i, leaf in enumerate(leaves) if is_mappable(name, leaf)]
        for chosen in (subset for size in range(1, len(places) + 1) for subset in combinations(places, size)):
            i = next(turn)
            n = sizes[i % len(sizes)]
            values, dims = list(leaves), [None] * len(leaves)
            for place in chosen:
                axes = places_of_axes(np.ndim(leaves[place]))
                dims[place] = axes[(i + place) % len(axes)]
                values[place] = np.moveaxis(examples_like(leaves[place], n), 0, dims[place])
            yield Mapped(name, tuple(values), spec, tuple(dims), n)


def looped(call: Mapped, function: Any) -> Any:
    """What the function gives for each example, stacked: an array, a list of them, or the class of the first error."""
    results = [outcome(function, *call.example(i)) for i in range(call.n)]
    errors = [result for result in results if is_error(result)]
    if errors:
        return errors[0]
    if isinstance(results[0], list):
        return [np.stack(parts) for parts in zip(*results, strict=True)]
    return np.stack(results)


def is_exact(name: str, dtype: Any) -> bool:
    return dtype.kind not in "fc" or not EXACT.isdisjoint(DECLARATIONS[name].tags)


def assert_same(found: Any, expected: Any, call: Any, name: str) -> None:
    if is_error(found) or is_error(expected):
        agrees = is_error(found) and is_error(expected) and issubclass(found, agreeing(expected))
        assert agrees, f"{call}: found {found!r}, expected {expected!r}"
    elif isinstance(expected, list):
        assert len(found) == len(expected), call
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, call, name)
    else:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (call, found, expected)
        if name in UNDEFINED:
            return
        if is_exact(name, expected.dtype):
            assert np.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc"), (call, found, expected)
        else:
            rtol = 1e-5 if expected.dtype.itemsize // (1 + (expected.dtype.kind == "c")) < 8 else 1e-12
            assert np.allclose(found, expected, rtol=rtol, atol=rtol, equal_nan=True), (call, found, expected)


def check_call(call: Mapped) -> None:
    function, dims, values = call.mapped(getattr(ops.np, call.name))
    found = outcome(vmap(function, in_dims=dims), values, {})
    assert_same(found, looped(call, numpy_function(call.name)), call, call.name)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_a_loop(name):
    for call in mapped_calls(name, samples(name)):
        check_call(call)
