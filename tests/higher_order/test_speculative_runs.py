"""Loops that nothing observes: the first step runs speculatively, and finds what a run without data finds elsewhere."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, library, ops
from pydispatch.func import grad
from pydispatch.higher_order import cond, rules, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tree import tree_leaves
from tests.modes.recorders import Passing
from tests.together import together

WEIGHTS = Tensor(np.array([[0.5, 0.1], [0.2, 0.3]]))
RAW = np.array([1.0, 3.0])


class Layer:
    """Holds a Tensor where no variable of a function leads to it directly."""

    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Double(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return ops.np.multiply(x, 2.0)

    @staticmethod
    def backward(ctx, g):
        return g * 2.0


@library.custom_op("test_speculative_runs::halve", mutates_args=())
def halve(x: np.ndarray) -> np.ndarray:
    return x / 2


halve.register_autograd(lambda ctx, g: g / 2)


def in_place(x):
    y = x + 1
    y += x
    return y


def makes_from_data(x):
    return x * Tensor(np.array([2.0, 3.0]))


def makes_and_drops(x):
    """Make and drop Tensors, whose memory may be that of a former one, which a speculative run has noted."""
    for number in range(20):
        made = Tensor(np.full(2, float(number)))
        x = x + made * 0.5
        del made
    return x * WEIGHTS[0]


def collects_garbage(x):
    gc.collect()
    y = x * WEIGHTS[0]
    gc.collect()
    return y


def closing_over(captured, function):
    return lambda x: function(x, captured)


CELLS = {
    "nothing captured": lambda: lambda x: ops.np.tanh(x) + 1.0,
    "a raw array": lambda: closing_over(RAW, lambda x, w: x * w),
    "a Tensor in a closure": lambda: closing_over(Tensor(RAW), lambda x, w: x * w),
    "a Tensor in a global variable": lambda: lambda x: WEIGHTS @ x,
    "a Tensor in a list": lambda: closing_over([Tensor(RAW)], lambda x, w: x * w[0]),
    "a Tensor in slots": lambda: closing_over(Layer(Tensor(RAW)), lambda x, w: x * w.held),
    "a Tensor that is not used": lambda: closing_over(Tensor(RAW), lambda x, w: x * 2.0),
    "a tracked Tensor": lambda: closing_over(Tensor(RAW, requires_grad=True), lambda x, w: x * w),
    "a Tensor of its own": lambda: makes_from_data,
    "Tensors of its own, dropped": lambda: makes_and_drops,
    "a collection of garbage": lambda: collects_garbage,
    "a factory": lambda: lambda x: x + ops.np.ones(2),
    "a write to its own": lambda: in_place,
    "a write to its argument": lambda: lambda x: ops.np.add_(x, 1.0),
    "a write to what it captures": lambda: closing_over(Tensor(RAW.copy()), lambda x, w: ops.np.add_(w, x)),
    "its argument": lambda: lambda x: x,
    "a view of its argument": lambda: lambda x: x[::-1],
    "what it captures": lambda: closing_over(Tensor(RAW), lambda x, w: w),
    "a view of what it captures": lambda: closing_over(Tensor(RAW), lambda x, w: w[::-1]),
    "a Function": lambda: lambda x: Double.apply(x),
    "a custom operator with a gradient": lambda: lambda x: halve(x),
    "a branch": lambda: lambda x: cond(x.sum() > 0, lambda x: x + 1.0, lambda x: x * 1.0, (x,)),
    "a loop": lambda: lambda x: scan(lambda c, _: (c * WEIGHTS[0], None), x, length=2)[0],
    "a gradient": lambda: lambda x: grad(lambda x: (WEIGHTS @ x).sum())(x) + x,
    "reads a number": lambda: lambda x: x + 1.0 if x.sum().detach().item() > 1 else x * WEIGHTS[0],
    "reads a bool": lambda: lambda x: x + 1.0 if x.sum() > 1 else x * WEIGHTS[0],
    "reads an array": lambda: lambda x: x + 1.0 if np.asarray(x).sum() > 1 else x * WEIGHTS[0],
    "reads an element": lambda: lambda x: x + 1.0 if x.detach().tolist()[0] > 1 else x * WEIGHTS[0],
    "fails": lambda: lambda x: x + np.ones(3),
    "another shape": lambda: lambda x: x.sum(),
    "another dtype": lambda: lambda x: x.astype(np.float32),
    "no array": lambda: lambda x: "text",
    "a number": lambda: lambda x: 1.5,
    "nothing": lambda: lambda x: None,
    "a raw array of its own": lambda: lambda x: np.array([1.0, 2.0]),
}
LOOPS = {
    "scan": lambda f: scan(lambda c, x: (f(c), x * 2.0), RAW, np.arange(4.0).reshape(2, 2)),
    "scan, rows alone": lambda f: scan(lambda c, x: (c + 1, f(x)), 0, np.arange(4.0).reshape(2, 2), reverse=True),
    "scan, by length": lambda f: scan(lambda c, _: ({"a": f(c["a"])}, None), {"a": Tensor(RAW)}, length=3),
    "map": lambda f: map_slices(lambda x, by: f(x) if f(x) is None else (f(x), by), np.arange(6.0).reshape(3, 2), 2.0),
    "while_loop": lambda f: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, f(x)), (0, RAW)),
    "while_loop, no step": lambda f: while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, f(x)), (0, RAW)),
    "while_loop, by a test that captures": lambda f: while_loop(
        lambda i, x: i < WEIGHTS.sum() * 2, lambda i, x: (i + 1, f(x)), (0, RAW)),
}


def described(value):
    """Return the structure, types and contents of a result."""
    if isinstance(value, (tuple, list)):
        return [type(value), *map(described, value)]
    if isinstance(value, dict):
        return {key: described(entry) for key, entry in value.items()}
    if value is None:
        return None
    array = value.detach().array if isinstance(value, Tensor) else value
    is_tracked = isinstance(value, Tensor) and value.requires_grad
    return type(value), is_tracked, array.dtype, array.shape, np.asarray(array).tolist()


def outcome(loop, make):
    """Return the result, or the error, of a loop over a new function."""
    try:
        return described(loop(make()))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@together("make", CELLS.values(), ids=CELLS)
def test_a_trial_changes_nothing_that_a_caller_sees(make, loop):
    found = outcome(loop, make)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "is_constant_and_unseen", lambda *args: False)
        expected = outcome(loop, make)
    assert found == expected


RUNS = {
    "scan": lambda f: scan(lambda c, x: (f(c), x + c), RAW, np.arange(8.0).reshape(4, 2)),
    "map": lambda f: map_slices(f, np.arange(8.0).reshape(4, 2)),
    "while_loop": lambda f: while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, f(x)), (0, RAW)),
}


@pytest.mark.parametrize("loop", RUNS.values(), ids=RUNS)
def test_a_function_runs_once_for_each_step(loop):
    generator = np.random.default_rng(0)
    drawn = []

    def noisy(x):
        drawn.append(generator.standard_normal(2))
        return x + drawn[-1]

    loop(noisy)
    np.testing.assert_array_equal(drawn, np.random.default_rng(0).standard_normal((4, 2)))


@pytest.mark.parametrize("step", [lambda x: x + 1.0, halve], ids=["rule of a mode", "gradient of a custom operator"])
@pytest.mark.parametrize("loop", RUNS.values(), ids=RUNS)
def test_what_users_register_does_not_end_a_trial(loop, step):
    handle = library.register_pydispatch(ops.np.add.default, Passing, lambda mode, func, types, args, kwargs: None)
    calls = []
    try:
        loop(lambda x: calls.append(x) or step(x))
    finally:
        handle.remove()
    assert len(calls) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, RecursionError])
@pytest.mark.parametrize("loop", RUNS.values(), ids=RUNS)
def test_an_error_that_ends_a_trial_leaves_nothing_behind(loop, error):
    def interrupted(x):
        ops.np.multiply(x, WEIGHTS[0])
        raise error

    before = _core.current_state()
    with pytest.raises(error):
        loop(interrupted)
    assert _core.current_state() is before
    assert _core.is_unobserved()
    results = [leaf for leaf in tree_leaves(loop(lambda x: x * WEIGHTS[0])) if isinstance(leaf, Tensor)]
    assert results
    assert all(leaf.grad_fn is None for leaf in results)


OBSERVED = {
    "an argument is tracked": (lambda: Tensor(RAW, requires_grad=True), lambda x: x + 1.0),
    "what it captures is tracked": (lambda: RAW, closing_over(Tensor(RAW, requires_grad=True), lambda x, w: x + w)),
}


@pytest.mark.parametrize(("start", "function"), OBSERVED.values(), ids=OBSERVED)
def test_where_the_tape_observes_a_loop_it_is_one_node(start, function):
    found = scan(lambda c, _: (function(c), None), start(), length=3)[0]
    assert found.grad_fn.name == "ScanBackward"
