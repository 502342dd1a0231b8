"""Every operator of the library, and its derivatives, under `make_fx`: the graph run on other values is the call."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, func, ops
from pydispatch.operators import DECLARATIONS
from pydispatch.tracing import Graph, make_fx
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten
from tests.operators.samples import functional_names, smooth_samples

NAMES = [name for name in functional_names() if name not in ("detach", "item", "empty", "empty_like")]     # no samples
DIFFERENTIABLE = [name for name in NAMES if DECLARATIONS[name].differentiable]
MANY = 16
"""The number of sample calls of an operator that are traced by default, spread over all. The slow test traces each."""


def is_inexact(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc"


def calls(name: str, step: int) -> Iterator[tuple[Callable[..., Any], list[np.ndarray]]]:
    """Sample calls as functions of the arrays of floating-point and complex numbers in them, and these arrays."""
    for sample in smooth_samples(name)[::step]:
        leaves, spec = tree_flatten(tuple(sample))
        positions = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]

        def call(*values: Any, leaves: Any = leaves, spec: Any = spec, positions: Any = positions) -> Any:
            leaves = list(leaves)
            for position, value in zip(positions, values, strict=True):
                leaves[position] = value
            args, kwargs = tree_unflatten(leaves, spec)
            return getattr(ops.np, name)(*args, **kwargs)

        yield call, [leaves[position] for position in positions]


def steps(name: str) -> int:
    return max(1, len(smooth_samples(name)) // MANY)


def pulled_back(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradients of all floating-point results."""
    def gradients(*values: Any) -> Any:
        outputs, vjp_fn = func.vjp(lambda *values: tuple(tree_leaves(call(*values))), *values)
        return vjp_fn(tuple([ops.np.ones_like(output) for output in outputs]))

    return gradients


def check(call: Callable[..., Any], values: list[np.ndarray]) -> bool:
    """Trace with `values`, run with others. False where the call itself is an error, which other tests cover."""
    others = [np.asarray(value * 0.9, value.dtype) for value in values]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            expected = tree_leaves(call(*map(Tensor, others)))
            call(*map(Tensor, values))
        except (TypeError, ValueError, IndexError, RuntimeError, NotImplementedError, ArithmeticError):
            return False
        graph = make_fx(call)(*values)
        assert isinstance(graph, Graph)
        found = tree_leaves(graph(*others))
    assert len(found) == len(expected)
    for value, right in zip(found, expected, strict=True):
        right = right.array if isinstance(right, Tensor) else right
        assert (value.dtype, value.shape) == (right.dtype, right.shape)
        precision = 16 * np.finfo(right.dtype).eps if right.dtype.kind in "fc" else 0   # sums are in another order
        np.testing.assert_allclose(value, right, rtol=precision, atol=precision)
    return True


@pytest.mark.parametrize("name", NAMES)
def test_operator(name):
    assert sum(check(call, values) for call, values in calls(name, steps(name))) > 0


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name):
    assert sum(check(pulled_back(call), values) for call, values in calls(name, steps(name)) if values) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_samples(name):
    for call, values in calls(name, 1):
        check(call, values)
        if name in DIFFERENTIABLE and values:
            check(pulled_back(call), values)
