"""Memory: what a node costs, what a graph keeps, what a backward pass gives back, and that training does not grow."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref

import numpy as np
import psutil
import pytest

from pydispatch import ops
from pydispatch.autograd import backward, grad, no_grad
from tests.autograd.leaves import constant, leaf

NP = ops.np
MEGABYTE = 1 << 20
BYTES_PER_NODE = 300


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def traced(function):
    """The bytes that are held after `function()`, while its result lives, and the most that was held meanwhile."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        result = function()
        now, peak = tracemalloc.get_traced_memory()
        del result
        return now - before, peak - before
    finally:
        tracemalloc.stop()


# --- nodes -----------------------------------------------------------------------------------------------------------

RECORDED = {
    "one argument": lambda x: NP.negative(x),
    "a saved result": lambda x: NP.exp(x),
    "a saved argument": lambda x: NP.sin(x),
    "a product with a number": lambda x: x * 3.0,
    "a product with itself": lambda x: x * x,
    "a sum": lambda x: x + x,
    "a reduction": lambda x: x.sum(),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_node_takes_at_most_300_bytes(case):
    x, n = leaf([1.0, 2.0]), 100_000
    function = RECORDED[case]

    def results():
        return [function(x) for _ in range(n)]

    tracked, _ = traced(results)
    with no_grad():
        untracked, _ = traced(results)
    assert 0 < (tracked - untracked) / n <= BYTES_PER_NODE


def test_a_node_of_a_chain_takes_at_most_300_bytes():
    n = 100_000

    def chain():
        value = leaf([1.0])
        for _ in range(n):
            value = value + 1.0
        return value

    kept, _ = traced(chain)
    assert kept / n <= BYTES_PER_NODE


# --- graphs of large arrays ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_collector")
def test_operators_that_save_nothing_keep_no_intermediate_results():
    x = leaf(np.ones(MEGABYTE // 8))

    def chain():
        value = x
        for _ in range(20):
            value = (value + 1.0) * 0.5
        return value

    kept, peak = traced(chain)
    assert kept <= 1.1 * MEGABYTE
    assert peak <= 3.1 * MEGABYTE


@pytest.mark.usefixtures("no_collector")
def test_backward_gives_back_what_it_has_used():
    """At no time more than the graph, the gradient that goes down, and the one that is being made."""
    x, n = leaf(np.ones(MEGABYTE // 8)), 20

    def forward():
        value = x
        for _ in range(n):
            value = NP.sin(value)
        return value.sum()

    held, _ = traced(forward)
    assert (n - 1.9) * MEGABYTE <= held <= (n + 0.1) * MEGABYTE
    total = [forward()]

    def run():
        total.pop().backward()

    after, peak = traced(run)
    assert after <= 1.1 * MEGABYTE          # the gradient; the graph was there before
    assert peak <= 4.1 * MEGABYTE


@pytest.mark.usefixtures("no_collector")
def test_backward_of_many_uses_sums_as_it_goes():
    x = leaf(np.ones(MEGABYTE // 8))
    value = x * 1.0
    total = sum((value * float(i)).sum() for i in range(20))
    _, peak = traced(total.backward)
    assert peak <= 5.1 * MEGABYTE


@pytest.mark.usefixtures("no_collector")
def test_the_gradient_of_a_leaf_takes_no_more_than_itself_when_it_is_added_to():
    x = leaf(np.ones(MEGABYTE // 8))
    (x * 2.0).sum().backward()
    total = (x * 3.0).sum()
    kept, _ = traced(total.backward)
    assert kept <= 0.1 * MEGABYTE


# --- long graphs -----------------------------------------------------------------------------------------------------

LENGTHS = [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
CHAINS = {
    "nothing saved": lambda value, x: value + 1.0,
    "results saved": lambda value, x: NP.tanh(value),
    "the leaf at every step": lambda value, x: value + x,
    "views": lambda value, x: value.reshape(1),
    "writes": lambda value, x: NP.add_(value, x),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("case", CHAINS)
def test_long_chains_are_built_run_and_freed(case, n):
    x = leaf([0.5])
    value = x * 1.0
    nodes = []
    for i in range(n):
        value = CHAINS[case](value, x)
        if i % (n // 10) == 0:
            nodes.append(weakref.ref(value.grad_fn))
    assert all(node() is not None for node in nodes)
    value.backward()
    assert x.grad.shape == (1,)
    del value
    assert all(node() is None for node in nodes)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("n", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_wide_graphs_are_built_run_and_freed(n):
    x = leaf([0.5])
    parts = [x * 2.0 for _ in range(n)]
    node = weakref.ref(parts[0].grad_fn)
    backward(parts)
    assert x.grad.item() == 2.0 * n
    del parts
    assert node() is None


def test_a_chain_within_a_chain_of_second_derivatives():
    x, n = leaf([0.5]), 2_000
    value = x
    for _ in range(n):
        value = value * 1.0 + x * x
    (first,) = grad(value, [x], create_graph=True)
    (second,) = grad(first, [x])
    assert first.item() == pytest.approx(1.0 + n)
    assert second.item() == pytest.approx(2.0 * n)


# --- training --------------------------------------------------------------------------------------------------------


def network():
    """A small network; a step of training it, in which every way to drop and keep gradients has its turn."""
    rng = np.random.default_rng(0)
    weights = [leaf(rng.normal(size=shape) * 0.3) for shape in ((4, 8), (8,), (8, 1))]
    inputs, targets = constant(rng.normal(size=(16, 4))), constant(rng.normal(size=(16, 1)))

    def step(i):
        first, bias, last = weights
        hidden = NP.tanh(inputs @ first + bias) * 1.0
        hidden[:, :1] *= 0.5
        loss = NP.square(hidden @ last - targets).mean()
        handle = hidden.register_hook(lambda g: g * 1.0)
        if i % 3 == 0:
            gradients = grad(loss, weights)
        else:
            for weight in weights:
                weight.grad = None
            loss.backward(retain_graph=i % 3 == 1)
            gradients = [weight.grad for weight in weights]
        with no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= gradient * 0.05
        if i % 5 == 0:
            (once,) = grad(NP.tanh(first).sum(), [first], create_graph=True)
            grad(once.sum(), [first])
        handle.remove()
        return loss.item()

    return step


def resident():
    return psutil.Process().memory_info().rss


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(("warm", "steps"), [(1_000, 2_500), pytest.param(1_000, 10_000, marks=pytest.mark.slow)])
def test_training_does_not_grow_without_the_collector(warm, steps):
    step = network()
    first_loss = step(0)
    for i in range(warm):
        step(i)
    before, blocks = resident(), sys.getallocatedblocks()
    for i in range(warm, steps):
        last_loss = step(i)
    assert sys.getallocatedblocks() - blocks <= 100
    assert resident() - before <= MEGABYTE
    assert last_loss < first_loss


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_memory_written_to_again_and_again_does_not_keep_its_past(steps):
    """A running mean, detached at every step: the history before that must go."""
    x = leaf([1.0, 2.0])
    state = constant([0.0, 0.0])
    nodes = []
    for _ in range(steps):
        state = state.detach()
        state += x * 0.1
        nodes.append(weakref.ref(state.grad_fn))
    assert [node() is not None for node in nodes] == [False] * (steps - 1) + [True]
