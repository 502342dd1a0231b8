"""State that the tape keeps and shares: threads, release while formulas run, raw operands, values of interpreters."""

import gc
import threading
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, autograd, func
from pydispatch.exceptions import AutogradError, StateOrderError
from pydispatch.ops import ops
from tests.autograd.leaves import leaf


def in_threads(function, count):
    errors = []

    def run(k):
        try:
            function(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_that_multiply_by_floats_keep_their_own():
    cotangent = np.ones(20_000)

    def work(k):
        x = leaf(np.ones(20_000))
        for i in range(40):
            numbers = [1000.0 * (k + 1) + i + j for j in range(8)]
            products = [x * number for number in numbers]
            for number, product in zip(numbers, products, strict=True):
                (gradient,) = autograd.grad(product, [x], cotangent)
                assert gradient.array[0] == number

    in_threads(work, 3)


@pytest.mark.parametrize("loss", [lambda x: x.sum(), lambda x: (x * 2.0).sum()], ids=["sum", "product"])
def test_threads_that_share_a_leaf_lose_nothing(loss):
    x = leaf(np.zeros(200_000))

    def work(k):
        for _ in range(8):
            loss(x).backward()

    in_threads(work, 4)
    (once,) = autograd.grad(loss(x), [x])
    np.testing.assert_array_equal(x.grad.array, 32 * once.array)


def test_a_graph_released_by_an_unpack_hook_is_refused():
    x, w, ran = leaf([1.0, 2.0]), leaf([3.0, 4.0]), []

    def unpack(value):
        if not ran:
            ran.append(True)
            z.backward(np.ones(2))
        return value

    with autograd.saved_tensors_hooks(lambda value: value, unpack):
        z = x / w
    with pytest.raises(AutogradError, match="second time"):
        z.backward(np.ones(2))


@pytest.mark.parametrize(("part", "expected"), [(slice(None), [3.0, 4.0]), (slice(0, 1), [3.0, 3.0])],
                         ids=["whole", "part"])
def test_a_raw_operand_in_the_memory_of_the_target_counts_as_it_was(part, expected):
    x = leaf([3.0, 4.0])
    y = x * 1.0
    y *= y.array[part]
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, expected)


def test_the_tape_inside_of_a_transform_leaves_no_values_of_it():
    x = leaf(np.arange(4.0))

    def loss(t):
        (x[1:] * 2.0).sum().backward()
        return (t * t).sum()

    np.testing.assert_array_equal(func.grad(loss)(np.ones(2)), [2.0, 2.0])
    assert type(x.grad) is Tensor
    np.testing.assert_array_equal(x.grad.array, [0.0, 2.0, 2.0, 2.0])


def test_a_guard_left_inside_of_a_transform_that_is_in_it():
    guard = autograd.no_grad()
    guard.__enter__()

    def loss(t):
        guard.__exit__(None, None, None)
        return (t * t).sum()

    with pytest.raises(StateOrderError):
        func.grad(loss)(np.ones(2))
    assert autograd.is_grad_enabled()


def test_a_view_of_a_saved_result_makes_no_cycle():
    gc.disable()
    try:
        y = ops.np.exp(leaf([1.0, 2.0]))
        view = y[:]
        node = weakref.ref(y.grad_fn)
        del y, view
        assert node() is None
    finally:
        gc.enable()


def test_a_node_hook_sees_the_gradient_of_each_factor_of_a_square():
    x, seen = leaf([3.0]), []
    y = x * x
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))
    y.sum().backward()
    assert [[gradient.array.tolist() for gradient in inputs] for inputs in seen] == [[[3.0], [3.0]]]


@pytest.mark.parametrize("run", [
    lambda f: f(leaf([1.0, 2.0])),
    lambda f: func.grad(lambda x: f(x).sum())(np.ones(2)),
    lambda f: func.jvp(f, (np.ones(2),), (np.ones(2),)),
], ids=["tape", "grad", "jvp"])
def test_an_operator_without_a_gradient_does_not_overwrite_a_tracked_value(run):
    def overwritten(x):
        y = x * 3.0
        ops.np.logical_not_(y)
        return y

    with pytest.raises(AutogradError, match="logical_not_"):
        run(overwritten)
