"""Switches of recording: no_grad, enable_grad, set_grad_enabled, inference_mode, in every way to use them."""

import asyncio
import contextvars
import inspect
import threading

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.autograd import (
    Function,
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from pydispatch.exceptions import AutogradError, StateOrderError
from tests.autograd.leaves import assert_gradient, constant, leaf
from tests.together import together

NP = ops.np

# A guard, and whether recording is on inside.
GUARDS = {
    "no_grad": (no_grad, False),
    "enable_grad": (enable_grad, True),
    "set_grad_enabled(False)": (lambda: set_grad_enabled(False), False),
    "set_grad_enabled(True)": (lambda: set_grad_enabled(True), True),
    "inference_mode": (inference_mode, False),
    "inference_mode(False)": (lambda: inference_mode(False), True),
}
SWITCHES = {name: guard for name, guard in GUARDS.items() if name != "inference_mode(False)"}


@pytest.fixture(autouse=True)
def the_state_is_left_as_it_was():
    assert (is_grad_enabled(), is_inference_mode_enabled()) == (True, False)
    yield
    assert (is_grad_enabled(), is_inference_mode_enabled()) == (True, False)


# --- as context managers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GUARDS)
def test_what_is_recorded_inside_a_guard(name):
    guard, records = GUARDS[name]
    x = leaf([1.0])
    with guard():
        assert is_grad_enabled() is records
        result = x * 2.0
    assert (result.requires_grad, result.grad_fn is not None, result.is_leaf) == (records, records, not records)
    assert (x * 2.0).requires_grad


@pytest.mark.parametrize("inner", SWITCHES)
@together("outer", SWITCHES)
def test_the_innermost_guard_decides(outer, inner):
    (outer_guard, outer_records), (inner_guard, inner_records) = SWITCHES[outer], SWITCHES[inner]
    x = leaf([1.0])
    with outer_guard():
        with inner_guard():
            assert is_grad_enabled() is inner_records
            result = x * 2.0
        assert is_grad_enabled() is outer_records
    in_inference = "inference_mode" in (outer, inner)       # what is made there never requires a gradient
    assert result.requires_grad is (inner_records and not in_inference)


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_is_left_with_an_exception(name):
    with pytest.raises(ZeroDivisionError), GUARDS[name][0]():
        raise ZeroDivisionError


@pytest.mark.parametrize("name", SWITCHES)
def test_one_guard_object_may_be_entered_again(name):
    make, records = SWITCHES[name]
    with no_grad():
        guard = make()
        with guard:
            pass
        with guard, guard:
            assert is_grad_enabled() is records
        assert not is_grad_enabled()


def test_guards_left_in_another_order_say_so_and_leave_the_others_on():
    first, second = no_grad(), enable_grad()
    first.__enter__()
    second.__enter__()
    with pytest.raises(StateOrderError):
        first.__exit__(None, None, None)
    assert is_grad_enabled()
    second.__exit__(None, None, None)


def test_set_grad_enabled_works_at_once():
    def without_recording():
        set_grad_enabled(False)
        assert not is_grad_enabled()
        set_grad_enabled(True)
        assert is_grad_enabled()
        with no_grad():
            set_grad_enabled(True)
            assert is_grad_enabled()

    contextvars.copy_context().run(without_recording)


def test_set_grad_enabled_within_a_guard_ends_with_it():
    with no_grad():
        set_grad_enabled(True)
        inside = is_grad_enabled()
    assert inside
    assert is_grad_enabled()


@pytest.mark.parametrize("flag", [0, 1, np.True_], ids=["0", "1", "np.True_"])
def test_flags_are_truth_values(flag):
    with set_grad_enabled(flag):
        assert is_grad_enabled() is bool(flag)


# --- as decorators ---------------------------------------------------------------------------------------------------

DECORATORS = {
    "no_grad": (no_grad, False),
    "no_grad()": (no_grad(), False),
    "enable_grad": (enable_grad, True),
    "enable_grad()": (enable_grad(), True),
    "inference_mode": (inference_mode, False),
    "inference_mode()": (inference_mode(), False),
}


@pytest.fixture
def decorate(request):
    """Provide a decorator, whether recording is on in what it decorates, and a guard that switches it the other way."""
    decorator, records = DECORATORS[request.param]
    return decorator, records, no_grad if records else enable_grad


every_decorator = pytest.mark.parametrize("decorate", DECORATORS, indirect=True)


@every_decorator
def test_a_function(decorate):
    decorator, records, other = decorate

    @decorator
    def work(a, *, b):
        """Return its words."""
        return a, b, is_grad_enabled()

    with other():
        assert work(1, b=2) == (1, 2, records)
        assert is_grad_enabled() is not records
    assert (work.__name__, work.__doc__) == ("work", "Return its words.")
    assert list(inspect.signature(work).parameters) == ["a", "b"]


@every_decorator
def test_a_method(decorate):
    decorator, records, _ = decorate

    class Model:
        factor = 3.0

        @decorator
        def apply(self, x):
            return x * self.factor

        @classmethod
        @decorator
        def make(cls):
            return is_grad_enabled()

    assert Model().apply(leaf([1.0])).requires_grad is records
    assert Model.make() is records


@every_decorator
def test_a_generator(decorate):
    decorator, records, other = decorate

    @decorator
    def steps():
        """Yield its words."""
        received = yield is_grad_enabled()
        while received:
            received = yield received, is_grad_enabled()
        return is_grad_enabled()

    assert inspect.isgeneratorfunction(steps)
    assert steps.__doc__ == "Yield its words."
    with other():
        generator = steps()
        assert next(generator) is records
        assert is_grad_enabled() is not records
        assert generator.send("a") == ("a", records)
        assert is_grad_enabled() is not records
        with pytest.raises(StopIteration) as stop:
            generator.send(None)
        assert stop.value.value is records
        assert is_grad_enabled() is not records


def test_a_guard_inside_a_generator_is_the_callers_too_until_a_decorator_restores_it():
    def steps():
        with no_grad():
            yield

    generator = steps()
    next(generator)
    assert not is_grad_enabled()
    generator.close()
    assert is_grad_enabled()


@every_decorator
def test_a_coroutine(decorate):
    decorator, records, other = decorate
    log = []

    @decorator
    async def work(value):
        log.append(is_grad_enabled())
        await asyncio.sleep(0)
        log.append(is_grad_enabled())
        return value

    async def main():
        with other():
            assert inspect.iscoroutinefunction(work)
            assert await work(3) == 3
            assert is_grad_enabled() is not records

    asyncio.run(main())
    assert log == [records, records]


@every_decorator
def test_an_async_generator(decorate):
    decorator, records, other = decorate

    @decorator
    async def steps():
        for _ in range(3):
            await asyncio.sleep(0)
            received = yield is_grad_enabled()
            assert received is None

    async def main():
        with other():
            seen = [(item, is_grad_enabled()) async for item in steps()]
            assert seen == [(records, not records)] * 3

    assert inspect.isasyncgenfunction(steps)
    asyncio.run(main())


def test_set_grad_enabled_as_a_decorator():
    @set_grad_enabled(False)
    def work():
        return is_grad_enabled()

    @set_grad_enabled(False)
    def steps():
        yield is_grad_enabled()
        yield is_grad_enabled()

    assert is_grad_enabled()
    assert work() is False
    assert is_grad_enabled()
    assert work() is False
    for item in steps():
        assert item is False
        assert is_grad_enabled()


def test_decorated_functions_record_nothing():
    @no_grad
    def step(x):
        x -= 1.0
        return x

    x = leaf([3.0])
    assert step(x) is x
    assert x.requires_grad
    np.testing.assert_array_equal(x.array, [2.0])


# --- threads and tasks -----------------------------------------------------------------------------------------------


def in_a_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    (result,) = results
    return result


@pytest.mark.parametrize("name", ["no_grad", "inference_mode"])
def test_a_new_thread_starts_with_recording_on(name):
    with GUARDS[name][0]():
        assert in_a_thread(lambda: (is_grad_enabled(), is_inference_mode_enabled())) == (True, False)
        assert not is_grad_enabled()


# --- what no_grad allows ---------------------------------------------------------------------------------------------


def test_no_grad_around_everything():
    x = leaf([1.0])
    with no_grad():
        result = x * 2.0
    with pytest.raises(AutogradError, match="requires_grad"):
        result.backward()


def test_no_grad_around_a_part_makes_that_part_a_constant():
    x = leaf([3.0])
    with no_grad():
        part = x * x
    (part * x).backward()
    assert_gradient(x.grad, [9.0])


def test_enable_grad_within_no_grad():
    x = leaf([3.0])
    with no_grad():
        with enable_grad():
            result = x * x
        (gradient,) = grad(result, [x])
    assert_gradient(gradient, [6.0])


def test_backward_under_no_grad():
    x = leaf([3.0])
    result = x * x
    with no_grad():
        result.backward()
    assert_gradient(x.grad, [6.0])


@pytest.mark.parametrize("through", ["method", "constructor"])
def test_detach_cuts(through):
    x = leaf([3.0])
    y = x * x
    cut = y.detach() if through == "method" else Tensor(y)
    assert (cut.requires_grad, cut.grad_fn, cut.is_leaf) == (False, None, True)
    assert np.shares_memory(cut.array, y.array)
    (cut * x).backward()
    assert_gradient(x.grad, [9.0])


def test_detach_of_a_leaf_is_a_constant_that_shares_memory():
    x = leaf([3.0])
    cut = x.detach()
    assert (cut.requires_grad, x.requires_grad) == (False, True)
    assert np.shares_memory(cut.array, x.array)


def test_leaves_may_be_made_under_no_grad():
    with no_grad():
        x = leaf([3.0])
        assert (x.requires_grad, x.is_leaf) == (True, True)
        y = constant([1.0]).requires_grad_()
    (x * y).backward()
    assert_gradient(x.grad, [1.0])


def test_views_of_a_leaf_under_no_grad_are_constants():
    x = leaf([1.0, 2.0])
    with no_grad():
        view = x[:1]
        assert not view.requires_grad
    assert np.shares_memory(view.array, x.array)
    assert not (view * 2.0).requires_grad


def test_the_mode_in_function_forward_is_off_and_as_it_was_afterwards():
    seen = []

    class Looking(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(is_grad_enabled())
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            seen.append(is_grad_enabled())
            return g * 2.0

    result = Looking.apply(leaf([1.0]))
    assert is_grad_enabled()
    result.backward()
    assert seen == [False, False]


def test_raw_calls_are_the_same_in_every_mode():
    for guard, _ in GUARDS.values():
        with guard():
            result = NP.multiply(np.array([1.0, 2.0]), 3.0)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, [3.0, 6.0])


# --- inference mode --------------------------------------------------------------------------------------------------


def made_in_inference(make=lambda: constant([1.0, 2.0]) * 3.0):
    with inference_mode():
        return make()


def test_the_switch_is_visible():
    with inference_mode():
        assert is_inference_mode_enabled()
        with inference_mode(False):
            assert not is_inference_mode_enabled()
            assert is_grad_enabled()
            assert (leaf([1.0]) * 2.0).requires_grad
        assert is_inference_mode_enabled()


ORDINARY_LEAF = leaf([1.0, 2.0])
MARKED = {
    "result of constants": lambda: constant([1.0, 2.0]) * 3.0,
    "result of a leaf": lambda: ORDINARY_LEAF * 3.0,
    "result of raw and Tensor": lambda: np.array([1.0, 2.0]) + constant([1.0, 2.0]),
    "new Tensor": lambda: constant([1.0, 2.0]),
    "list of results": lambda: NP.split(constant([1.0, 2.0, 3.0, 4.0]) * 1.0, 2)[0],
    "view of a result": lambda: (constant([1.0, 2.0, 3.0]) * 1.0)[1:],
    "with enable_grad": lambda: enable_grad()(lambda: constant([1.0, 2.0]) * 3.0)(),
}


@pytest.mark.parametrize("make", MARKED)
def test_what_is_made_in_inference_mode_is_not_saved_for_backward(make):
    value = made_in_inference(MARKED[make])
    assert not value.requires_grad
    with pytest.raises(AutogradError, match="inference"):
        leaf([1.0, 2.0]) * value


@pytest.mark.parametrize("make", MARKED)
def test_what_is_made_in_inference_mode_is_not_written_to_outside(make):
    value = made_in_inference(MARKED[make])
    before = value.array.copy()
    with pytest.raises(AutogradError, match="inference"):
        value += 1.0
    with pytest.raises(AutogradError, match="inference"):
        value[0] = 1.0
    np.testing.assert_array_equal(value.array, before)


@pytest.mark.parametrize("make", MARKED)
def test_what_is_made_in_inference_mode_does_not_require_gradients_outside(make):
    value = made_in_inference(MARKED[make])
    with pytest.raises(AutogradError, match="inference"):
        value.requires_grad_()
    with pytest.raises(AutogradError, match="inference"):
        value.requires_grad = True


def test_operators_that_save_nothing_of_it_are_fine():
    value, x = made_in_inference(), leaf([5.0, 7.0])
    result = (x + value).sum() + (x - value).sum() + NP.concatenate([x, value]).sum()
    result.backward()
    assert_gradient(x.grad, [3.0, 3.0])


def test_operators_on_constants_are_fine():
    value = made_in_inference()
    result = value * constant([2.0, 2.0])
    np.testing.assert_array_equal(result.array, [6.0, 12.0])
    result += 1.0
    assert (leaf([1.0, 1.0]) * result).requires_grad


def test_a_copy_made_outside_is_an_ordinary_tensor():
    x, copy = leaf([5.0, 7.0]), made_in_inference().copy()
    copy += 1.0
    (x * copy).sum().backward()
    assert_gradient(x.grad, [4.0, 7.0])


def test_writes_inside_are_fine():
    with inference_mode():
        value = constant([1.0, 2.0]) * 3.0
        value += 1.0
        value[0] = 9.0
    np.testing.assert_array_equal(value.array, [9.0, 7.0])


def test_ordinary_tensors_stay_ordinary_inside():
    x, value = leaf([5.0, 7.0]), constant([1.0, 2.0])
    with inference_mode():
        value += 1.0
        view = value[:1]
        view *= 10.0
    assert value._version == 2
    view += 1.0
    (x * value).sum().backward()
    assert_gradient(x.grad, [21.0, 3.0])


def test_what_was_saved_survives_writes_inside():
    x = leaf([5.0, 7.0])
    value = x * 1.0
    square = value * value
    with inference_mode():
        value += 1.0
    square.sum().backward()
    assert_gradient(x.grad, [10.0, 14.0])


def test_leaves_used_inside_stay_leaves():
    x = leaf([5.0])
    with inference_mode():
        x * 2.0
        x += 1.0
    assert (x.requires_grad, x.is_leaf) == (True, True)
    (x * x).backward()
    assert_gradient(x.grad, [12.0])


def test_a_function_may_not_save_it_either():
    class Saving(Function):
        @staticmethod
        def forward(ctx, x, value):
            ctx.save_for_backward(value)
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return g, None

    with pytest.raises(AutogradError, match="inference"):
        Saving.apply(leaf([1.0, 2.0]), made_in_inference())
