"""Memory: what a node costs, what a graph keeps, what a backward pass gives back, and that training does not grow."""

import gc
import sys
import sysconfig
import tracemalloc
import weakref

import numpy as np
import psutil
import pytest

from pydispatch import Tensor, _core, ops
from pydispatch.autograd import (
    Function,
    backward,
    detect_anomaly,
    enable_grad,
    grad,
    inference_mode,
    no_grad,
    register_multi_grad_hook,
    saved_tensors_hooks,
)
from pydispatch.exceptions import AutogradError
from pydispatch.func import vjp
from tests.autograd.leaves import Cube, SabotageError, constant, leaf

NP = ops.np
MEGABYTE = 1 << 20
BYTES_PER_NODE = 300
SLACK = 60      # blocks: what the interpreter's own caches may take


def traced(function):
    """Return the bytes that are held after `function()`, while its result lives, and the most that was held meanwhile.
    """
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
    x, n = leaf([1.0, 2.0]), 20_000
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
    assert after <= 1.1 * MEGABYTE          # the gradient, as the graph was there before
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
    assert first.detach().item() == pytest.approx(1.0 + n)
    assert second.item() == pytest.approx(2.0 * n)


# --- training --------------------------------------------------------------------------------------------------------


def network():
    """Return a step of training a small network, which drops and keeps gradients in every way."""
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
        return loss.detach().item()

    return step


def resident():
    return psutil.Process().memory_info().rss


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("steps", [1_000, pytest.param(8_000, marks=pytest.mark.slow)])
def test_training_does_not_grow_without_the_collector(steps):
    step = network()
    first_loss, grown = step(0), []
    for _ in range(4):      # caches and pages fill up, also those of other threads, but a leak never stops
        before, blocks = resident(), sys.getallocatedblocks()
        for i in range(steps):
            last_loss = step(i)
        grown.append((sys.getallocatedblocks() - blocks, resident() - before))
        if grown[-1][0] <= SLACK and grown[-1][1] <= MEGABYTE:
            break
    else:
        pytest.fail(f"blocks and bytes that were left: {grown}")
    assert last_loss < first_loss


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_memory_written_to_again_and_again_does_not_keep_its_past(steps):
    # A running mean, detached at every step, must drop the history of former steps.
    x = leaf([1.0, 2.0])
    state = constant([0.0, 0.0])
    nodes = []
    for _ in range(steps):
        state = state.detach()
        state += x * 0.1
        nodes.append(weakref.ref(state.grad_fn))
    assert [node() is not None for node in nodes] == [False] * (steps - 1) + [True]


# --- nothing is left behind ------------------------------------------------------------------------------------------


def sabotage(*args):
    raise SabotageError


class Sabotage(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    backward = staticmethod(sabotage)


def run_twice(x):
    result = (x * x).sum()
    result.backward()
    result.backward()


def write_to_saved(x):
    value = x * 1.0
    square = value * value
    value += 1.0
    square.sum().backward()


def forgotten_writes(x):
    value = x * 1.0
    results = []
    for i in range(5):
        results.append(NP.exp(value) * value[1:])
        value[i:] += 1.0
    del results[1::2]


def fail_in_the_middle(x):
    """Fail in a backward pass while gradients wait at several nodes and at a leaf."""
    parts = [x * float(i) for i in range(5)]
    (Sabotage.apply(parts[0]) + sum(NP.sin(part) for part in parts) + x).sum().backward()


def fail_in_a_hook(x):
    value = x * 2.0
    value.register_hook(sabotage)
    (value * x + x).sum().backward()


def fail_in_a_leafs_hook(x):
    handle = x.register_hook(sabotage)
    try:
        (x * x).sum().backward()
    finally:
        handle.remove()


def wrong_gradient(x):
    value = x * 2.0
    value.register_hook(lambda g: constant(np.ones(7)))
    value.sum().backward()


def refused_write(x):
    x *= 2.0


def several_hooks(x):
    value = x * 2.0
    value.retain_grad()
    value.grad_fn.register_prehook(lambda g: None)
    value.grad_fn.register_hook(lambda g, _: None)
    handle = register_multi_grad_hook([x, value], lambda gradients: None)
    value.sum().backward()
    handle.remove()
    assert value.grad is not None


def writes_and_views(x):
    base = x * 1.0
    view, other = base[:1], base.reshape(-1)
    view *= 3.0
    base += x
    other[1] = x[0]
    first, _ = NP.split(base, 2)
    (view.sum() + other.sum() + first.sum()).backward()


def second_order(x):
    (first,) = grad(NP.exp(x * x).sum(), [x], create_graph=True)
    grad(first.sum(), [x])


def with_saved_hooks(x):
    with saved_tensors_hooks(lambda tensor: tensor.array.copy(), Tensor):
        result = Cube.apply(NP.sin(x))
    result.sum().backward()


def with_anomaly(x):
    with detect_anomaly():
        Cube.apply(NP.sin(x)).sum().backward()


def nested(x):
    def inner(g):
        with enable_grad():
            y = leaf([1.0, 2.0])
            (y * y).sum().backward()

    value = x * 2.0
    value.register_hook(inner)
    value.sum().backward()


def in_inference(x):
    with inference_mode():
        value = x * 2.0
    return x * value


def unused(x):
    return grad((x * 2.0).sum(), [x, leaf([1.0])])


HARMLESS = {
    "write to a saved value": write_to_saved,
    "writes to a saved value, never differentiated": forgotten_writes,
    "backward": lambda x: (x * x).sum().backward(),
    "backward to a result": lambda x: backward_to(x * 2.0),
    "grad": lambda x: grad((NP.sin(x) * x).sum(), [x, x]),
    "grad of unused": lambda x: grad((x * 2.0).sum(), [x, leaf([1.0])], allow_unused=True),
    "second order": second_order,
    "Function": lambda x: Cube.apply(x * 1.0).sum().backward(),
    "Function that is dropped": lambda x: Cube.apply(x * 1.0),
    "hooks": several_hooks,
    "writes and views": writes_and_views,
    "saved hooks": with_saved_hooks,
    "anomaly": with_anomaly,
    "nested": nested,
    "assigned gradient": lambda x: setattr(x, "grad", constant([1.0, 2.0])),
    "detach": lambda x: (x.detach(), Tensor(x), x.detach().requires_grad_()),
}
FAILING = {
    "second backward": run_twice,
    "error in the middle": fail_in_the_middle,
    "error in a hook": fail_in_a_hook,
    "error in a leaf's hook": fail_in_a_leafs_hook,
    "wrong gradient from a hook": wrong_gradient,
    "write to a leaf": refused_write,
    "saving what inference mode made": in_inference,
    "unused input": unused,
    "cotangent of another shape": lambda x: (x * 2.0).backward(np.ones(7)),
    "no cotangent": lambda x: (x * 2.0).backward(),
    "integers": lambda x: Tensor(np.zeros(2, int), requires_grad=True),
    "setting a gradient of another shape": lambda x: setattr(x, "grad", constant(np.ones(7))),
}


def backward_to(value):
    (value * 3.0).sum().backward(inputs=[value])


def survive(function, x):
    with pytest.raises((AutogradError, SabotageError)):
        function(x)


PROGRAMS = HARMLESS | {name: lambda x, f=function: survive(f, x) for name, function in FAILING.items()}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("repetitions", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", PROGRAMS)
def test_repeating_a_program_leaves_memory_as_it_was(case, repetitions):
    x = leaf([1.0, 2.0])
    grown = []
    for _ in range(4):
        blocks, references = sys.getallocatedblocks(), sys.getrefcount(x)
        for _ in range(repetitions):
            PROGRAMS[case](x)
            x.grad = None
        grown.append((sys.getallocatedblocks() - blocks, sys.getrefcount(x) - references))
        if grown[-1][0] <= SLACK and grown[-1][1] == 0:
            return
    pytest.fail(f"blocks and references of x that were left: {grown}")


# --- gradients in the memory of gradients ---


def test_a_chain_of_formulas_needs_the_memory_of_one_gradient():
    # Backward overwrites arrays that nothing else holds. Otherwise there would be two gradients at a time.
    n = 4096                            # as many elements as formulas take in loops of their own
    x, factor = Tensor(np.ones(n), requires_grad=True), np.full(n, 1.5)
    y = x
    for _ in range(20):
        y = y * factor
    loss = y.sum()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        loss.backward(retain_graph=True)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(x.grad, np.full(n, 1.5 ** 20))
    assert 8 * n <= peak < 1.5 * 8 * n


def test_what_else_holds_a_gradient_keeps_it():
    x, factor = Tensor(np.arange(1.0, 5.0), requires_grad=True), np.array([2.0, 3.0, 4.0, 5.0])
    middle = x * factor
    middle.retain_grad()
    seen = []
    end = middle * factor
    end.register_hook(lambda g: seen.append(g))
    given = np.array([1.0, 10.0, 100.0, 1000.0])
    (end * 3.0).backward(given, retain_graph=True)
    (end * 3.0).backward(given)
    np.testing.assert_array_equal(given, [1.0, 10.0, 100.0, 1000.0])
    for gradient in seen:
        np.testing.assert_array_equal(gradient, 3.0 * given)
    np.testing.assert_array_equal(middle.grad, 6.0 * given * factor)
    np.testing.assert_array_equal(x.grad, 6.0 * given * factor ** 2)


def test_a_gradient_that_goes_two_ways_is_whole_on_both():
    x, y = (Tensor(np.ones(3), requires_grad=True) for _ in range(2))
    factor = np.array([2.0, 3.0, 4.0])
    total = x * factor + y              # the gradient of the sum goes to both as it is
    (total * factor * factor).sum().backward()
    np.testing.assert_array_equal(y.grad, factor ** 2)
    np.testing.assert_array_equal(x.grad, factor ** 3)
    assert not np.shares_memory(np.asarray(x.grad), np.asarray(y.grad))


FACTOR = np.array([2.0, 3.0, 4.0, 5.0])
LENDING = {
    "it becomes the gradient of a leaf": lambda x, g: (x + 0.0).backward(g),
    "formulas take it": lambda x, g: (x * FACTOR * FACTOR).backward(g),
    "another is added to it": lambda x, g: (lambda y: backward([y, y], [g, FACTOR]))(x * FACTOR),
    "it is added to another": lambda x, g: [(x + 0.0).backward(value) for value in (g, FACTOR, g)],
    "gradients are returned": lambda x, g: setattr(x, "grad", grad(x + 0.0, x, g)[0]),
    "a pullback takes it": lambda x, g: setattr(x, "grad", Tensor(vjp(lambda value: value + 0.0, x.array)[1](g)[0])),
    "a formula returns it": lambda x, g: PassedOn.apply(x, g).backward(np.ones(4)),
}


class PassedOn(Function):
    """Its formula returns an array that it was given."""

    @staticmethod
    def forward(ctx, x, gradient):
        ctx.gradient = gradient
        return x + 0.0

    @staticmethod
    def backward(ctx, gradient):
        return ctx.gradient, None


@pytest.mark.parametrize("case", LENDING)
def test_an_array_that_one_local_variable_holds_is_not_written_over(case):
    # Since CPython 3.14 calls borrow the reference of the local variable, which is then the only one.
    x, given = leaf([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 10.0, 100.0, 1000.0])
    LENDING[case](x, given)
    np.testing.assert_array_equal(given, [1.0, 10.0, 100.0, 1000.0])
    assert not np.shares_memory(given, x.grad.array)


def test_a_gradient_that_only_a_suspended_generator_holds_is_not_written_over():
    def keeping():
        gradient = yield
        yield
        yield gradient

    x, kept = leaf([1.0, 2.0, 3.0, 4.0]), keeping()
    next(kept)
    middle = x * FACTOR
    middle.register_hook(kept.send)
    (middle * FACTOR).backward(np.ones(4))
    np.testing.assert_array_equal(next(kept), FACTOR)
    np.testing.assert_array_equal(x.grad, FACTOR ** 2)


# --- the garbage collector -------------------------------------------------------------------------------------------


# A free-threaded CPython counts objects in steps of 512. It also waits for a quarter as many new objects as there are
# old ones, unless the threshold of the next generation is 0.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
OBJECTS_PER_COLLECTION = 1024 if FREE_THREADED else 700


@pytest.fixture
def collections():
    """Return the generations that the garbage collector goes through, as it does so."""
    found = []

    def note(phase, about):
        if phase == "start":
            found.append(about["generation"])

    before, was_enabled = gc.get_threshold(), gc.isenabled()
    gc.collect()
    gc.set_threshold(700, 0 if FREE_THREADED else 10, 10)
    gc.enable()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    if not was_enabled:
        gc.disable()


N_RECORDED = 20_000


def recorded(n, size):
    """Return the end of a chain of multiplications."""
    result, factor = Tensor(np.ones(size), requires_grad=True), Tensor(np.ones(size))
    for _ in range(n):
        result = result * factor
    return result


def test_small_recorded_calls_start_few_collections(collections):
    end = recorded(N_RECORDED, 4)
    assert len(collections) <= N_RECORDED / 700 * (2 if _core.PORTABLE else 1 / 4)
    del end


def test_large_recorded_calls_count_as_any_object(collections):
    end = recorded(3_000, 1_000)        # 512 nodes come from the free list
    assert len(collections) >= (3_000 - 512) // OBJECTS_PER_COLLECTION
    del end


def test_cycles_of_recorded_calls_are_collected(collections):
    alive = []
    for _ in range(N_RECORDED):
        x = Tensor(np.ones(4), requires_grad=True)
        x.grad = x * x          # whose node holds x
        alive.append(weakref.ref(x))
    del x
    assert collections
    assert sum(reference() is not None for reference in alive) < N_RECORDED / 2
