"""The stack of modes: entering, leaving in any order, threads, tasks, generators, turning modes off."""

import asyncio
import contextvars
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pydispatch import DispatchMode, Tensor, below_python, exclude_keys, func, include_keys, ops
from pydispatch.autograd import no_grad
from pydispatch.exceptions import StateOrderError
from pydispatch.modes import current_mode, mode_stack, no_dispatch, restore_entry_state
from tests.modes.recorders import Declining, Recorder, wrapper_class

NP = ops.np
X = np.array([1.0, 2.0])


@pytest.fixture(autouse=True)
def stack_is_left_empty():
    assert mode_stack() == ()
    yield
    assert mode_stack() == ()


# --- asking -----------------------------------------------------------------------------------------------------


def test_current_mode_and_stack_at_each_depth():
    a, b = Recorder("a"), Recorder("b")
    assert (current_mode(), mode_stack()) == (None, ())
    with a:
        assert (current_mode(), mode_stack()) == (a, (a,))
        with b:
            assert (current_mode(), mode_stack()) == (b, (a, b))
            with a:
                assert (current_mode(), mode_stack()) == (a, (a, b, a))
            assert (current_mode(), mode_stack()) == (b, (a, b))
        assert (current_mode(), mode_stack()) == (a, (a,))
    assert (current_mode(), mode_stack()) == (None, ())


def test_guards_and_transforms_are_not_listed():
    mode = Recorder()
    seen = []

    def function(x):
        seen.append((current_mode(), mode_stack()))
        with Recorder("inner") as inner, include_keys("Tracer"):
            seen.append((current_mode(), mode_stack() == (mode, inner), current_mode() is inner))
        return x.sum()

    with mode, no_grad(), include_keys("Tracer"):
        func.grad(function)(X)
    assert seen[0] == (mode, (mode,))
    assert seen[1][1:] == (True, True)


def test_in_a_handler_the_stack_is_what_is_outside_of_the_mode():
    seen = {}

    class Asking(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen[self.name] = (current_mode(), mode_stack())
            return func(*args, **kwargs)

    a, b, c = Asking("a"), Asking("b"), Asking("c")
    with a, b, c:
        NP.exp(X)
    assert seen == {"c": (b, (a, b)), "b": (a, (a,)), "a": (None, ())}


def test_in_a_kernel_all_modes_are_off_that_passed_the_call_on(fresh, define):
    seen = []

    def kernel(x):
        seen.append(mode_stack())
        return x + 1

    op = define(fresh, "f(Tensor x) -> Tensor", CPU=kernel)
    with Recorder(), Recorder():
        op(X)
    assert seen == [()]


# --- entering again ---------------------------------------------------------------------------------------------


def test_a_handler_may_enter_itself_for_other_calls():
    class Again(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, kwargs)
            if func is NP.exp.default:
                with self:
                    return NP.negative(NP.sin(*args))
            return func(*args, **kwargs)

    with Again() as mode:
        np.testing.assert_array_equal(NP.exp(X), -np.sin(X))
        assert mode_stack() == (mode,)
    assert mode.operators == ["np::exp", "np::sin", "np::negative"]


def test_a_handler_may_enter_itself_around_the_same_call_if_it_ends():
    class Twice(Recorder):
        depth = 0

        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, kwargs)
            self.depth += 1
            try:
                if self.depth < 3:
                    with self:
                        return func(*args, **kwargs)
                return func(*args, **kwargs)
            finally:
                self.depth -= 1

    with Twice() as mode:
        NP.exp(X)
    assert mode.operators == ["np::exp"] * 3


def test_entering_itself_around_the_same_call_for_ever_is_a_recursion_error():
    class Endless(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            with self:
                return func(*args, **kwargs)

    with Endless() as mode:
        with pytest.raises(RecursionError):
            NP.exp(X)
        assert mode_stack() == (mode,)
    np.testing.assert_array_equal(NP.exp(X), np.exp(X))


def test_a_handler_called_by_hand_changes_no_stack():
    mode = Recorder()
    result = mode.__pydispatch__(NP.exp.default, (), (X,), {})
    np.testing.assert_array_equal(result, np.exp(X))
    assert mode.operators == ["np::exp"]


def test_a_handler_may_open_and_close_other_modes():
    log = []

    class Opening(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, kwargs)
            with Recorder("inside", log):
                return func(*args, **kwargs)

    with Recorder("outer", log), Opening("opening", log) as mode:
        NP.exp(X)
        assert current_mode() is mode
    assert log == ["opening np::exp", "inside np::exp", "outer np::exp"]


# --- leaving in any order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1])
def test_leaving_out_of_order_takes_out_exactly_its_own_entry(left):
    # In PyTorch leaving pops the innermost entry.
    modes = [Recorder("first"), Recorder("second"), Recorder("third")]
    for mode in modes:
        mode.__enter__()
    with pytest.raises(StateOrderError) as caught:
        modes[left].__exit__(None, None, None)
    lines = str(caught.value).splitlines()
    assert f"<{modes[left].name}>" in lines[0]
    assert "<third>" in lines[0]
    assert "with" in lines[1]
    remaining = [mode for mode in modes if mode is not modes[left]]
    assert mode_stack() == tuple(remaining)
    NP.exp(X)
    assert [mode.operators for mode in modes] == [[] if mode is modes[left] else ["np::exp"] for mode in modes]
    for mode in reversed(remaining):
        mode.__exit__(None, None, None)


def test_leaving_below_a_transform_and_below_guards():
    mode, guard = Recorder("mode"), include_keys("Tracer")
    seen = []

    def function(x):
        with pytest.raises(StateOrderError, match="<mode>"):
            mode.__exit__(None, None, None)
        seen.append(mode_stack())
        return (x * x).sum()

    mode.__enter__()
    np.testing.assert_array_equal(func.grad(function)(X), 2 * X)
    assert seen == [()]
    mode.__enter__()
    guard.__enter__()
    with pytest.raises(StateOrderError, match="<mode>"):
        mode.__exit__(None, None, None)
    assert mode_stack() == ()
    guard.__exit__(None, None, None)


class AnyOrder(RuleBasedStateMachine):
    """Modes and guards entered and left at random, against a plain list of those that are in force."""

    def __init__(self):
        super().__init__()
        self.context = contextvars.Context()
        self.things = [Recorder("a"), Recorder("b"), Recorder("c"), include_keys("Tracer"), exclude_keys("Meta")]
        self.entered = []

    @rule(number=st.integers(0, 4))
    def enter(self, number):
        self.context.run(self.things[number].__enter__)
        self.entered.append(self.things[number])

    @rule(number=st.integers(0, 4))
    def leave(self, number):
        thing = self.things[number]
        positions = [i for i, other in enumerate(self.entered) if other is thing]
        try:
            self.context.run(thing.__exit__, None, None, None)
            raised = False
        except StateOrderError:
            raised = True
        assert raised == (not positions or positions[-1] != len(self.entered) - 1)
        if positions:
            del self.entered[positions[-1]]

    @invariant()
    def the_stack_is_what_is_in_force_and_a_call_goes_through_it(self):
        modes = [thing for thing in self.entered if isinstance(thing, DispatchMode)]
        assert self.context.run(mode_stack) == tuple(modes)
        log = []
        for mode in modes:
            mode.log = log
        self.context.run(NP.exp, X)
        assert log == [f"{mode.name} np::exp" for mode in reversed(modes)]


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow])


# --- exceptions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("where", ["block", "handler", "kernel", "subclass"])
def test_whatever_is_raised_the_stack_is_restored(fresh, define, error, where):
    raised = error("reason")

    class Raising(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            if where == "handler":
                raise raised
            return func(*args, **kwargs)

    class Broken(wrapper_class("W")):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            raise raised

    def kernel(x):
        raise raised

    op = define(fresh, "f(Tensor x) -> Tensor", CPU=kernel)
    outer, inner = Recorder("outer"), Raising("inner")

    def run():
        if where == "block":
            raise raised
        op(Broken(X) if where == "subclass" else X)

    with outer:
        with pytest.raises(error) as caught:  # noqa: SIM117
            with inner:
                run()
        assert caught.value is raised
        assert mode_stack() == (outer,)
        with inner:
            with pytest.raises(error):
                run()
            assert mode_stack() == (outer, inner)


def test_a_handler_that_leaves_a_mode_entered():
    leaked = Recorder("leaked")

    class Leaking(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            leaked.__enter__()
            return func(*args, **kwargs)

    with Recorder("outer") as outer, Leaking("leaking") as mode:
        np.testing.assert_array_equal(NP.exp(X), np.exp(X))
        assert leaked.operators == ["np::exp"]
        assert mode_stack() == (outer, mode)
        NP.sin(X)
        assert leaked.operators == ["np::exp", "np::sin"]
    assert mode_stack() == ()


def test_a_handler_that_leaves_its_own_mode():
    class Leaving(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            with pytest.raises(StateOrderError, match="<leaving>"):
                self.__exit__(None, None, None)
            return func(*args, **kwargs)

    with Leaving("leaving") as mode:
        np.testing.assert_array_equal(NP.exp(X), np.exp(X))
        assert mode_stack() == (mode,)


# --- turning modes off ------------------------------------------------------------------------------------------


def test_no_dispatch():
    log = []
    W = wrapper_class("W", log)
    with Recorder("outer", log), Recorder("inner", log):
        with no_dispatch():
            assert (current_mode(), mode_stack()) == (None, ())
            np.testing.assert_array_equal(NP.add(X, X), X + X)
            NP.zeros(2)
        assert log == []
        NP.exp(W(X))
    assert log == ["inner np::exp", "outer np::exp", "W np::exp"]


def test_no_dispatch_switches_subclasses_off():
    class IsA(Tensor):
        seen = 0

        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            cls.seen += 1
            return super().__pydispatch__(func, types, args, kwargs)

    x = IsA(X)
    with no_dispatch():
        result = NP.exp(x)
    assert (IsA.seen, type(result)) == (0, Tensor)
    NP.exp(x)
    assert IsA.seen == 1


def test_no_dispatch_leaves_transforms_and_the_tape_alone():
    def cube(x):
        with no_dispatch():
            return (x * x * x).sum()

    np.testing.assert_allclose(func.grad(cube)(X), 3 * X**2)
    with Recorder() as mode:
        np.testing.assert_allclose(func.grad(cube)(X), 3 * X**2)
        x = Tensor(X, requires_grad=True)
        with no_dispatch():
            y = x * x
    assert y.requires_grad
    assert "np::multiply" in mode.operators     # of the way back, which is outside of `no_dispatch`


def test_a_mode_entered_inside_of_no_dispatch_is_on():
    with Recorder() as outer, no_dispatch(), Recorder() as inner:
        assert mode_stack() == (inner,)
        NP.exp(X)
    assert (outer.operators, inner.operators) == ([], ["np::exp"])


def test_no_dispatch_in_a_handler_and_as_a_decorator():
    log = []

    @no_dispatch()
    def quietly(x):
        return NP.exp(x)

    class Quiet(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, kwargs)
            with no_dispatch():
                return func(*args, **kwargs)

    with Recorder("outer", log), Quiet("quiet", log):
        quietly(X)
        NP.sin(X)
    assert log == ["quiet np::sin"]


def test_below_python():
    log = []

    class IsA(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            log.append("IsA")
            return super().__pydispatch__(func, types, args, kwargs)

    x = IsA(X)
    x.requires_grad_()
    with Recorder("mode", log) as mode:
        result = below_python(NP.sum.default, x, axis=0)
        assert mode_stack() == (mode,)
    assert log == []
    assert not result.requires_grad
    np.testing.assert_array_equal(result.array, 3.0)


@pytest.mark.parametrize("under", [False, True], ids=["no mode", "in a mode's handler"])
def test_restore_entry_state_needs_a_subclass_handler(under):
    def enter():
        with pytest.raises(StateOrderError), restore_entry_state():
            pass

    class Entering(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            enter()
            return func(*args, **kwargs)

    enter()
    if under:
        with Entering():
            NP.exp(X)


def test_restore_entry_state_under_a_passthrough_mode():
    W = wrapper_class("W")

    class Inside(W):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            with restore_entry_state():
                return super().__pydispatch__(func, types, args, kwargs)

    inner = Tensor(X, requires_grad=True)
    with Recorder() as mode:
        result = NP.multiply(Inside(inner), 3.0)
    assert mode.operators == ["np::multiply"]
    assert not result.requires_grad
    assert result.inner.requires_grad
    result.inner.backward(Tensor(np.ones(2)))
    np.testing.assert_array_equal(inner.grad.array, [3.0, 3.0])


# --- threads ----------------------------------------------------------------------------------------------------


def in_thread(function, *args):
    """Return the result of a function in a new thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


def test_a_mode_is_left_where_it_was_entered():
    mode = Recorder()

    def leave():
        with pytest.raises(StateOrderError, match="<mode>"):
            mode.__exit__(None, None, None)

    with mode:
        in_thread(leave)
        contextvars.Context().run(leave)
        assert mode_stack() == (mode,)


def test_one_mode_in_several_threads():
    mode, threads, calls = Recorder(), 4, 200
    start = threading.Barrier(threads)

    def work(number):
        start.wait()
        for _ in range(calls):
            with mode:
                assert mode_stack() == (mode,)
                NP.add(X, number)
            assert mode_stack() == ()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    assert len(mode.calls) == threads * calls


def test_a_mode_in_one_thread_is_off_in_its_handler_only_there():
    inside, release = threading.Event(), threading.Event()

    class Waiting(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, kwargs)
            if func is NP.exp.default:
                inside.set()
                assert release.wait(10)
            return func(*args, **kwargs)

    mode = Waiting()

    def work():
        with mode:
            NP.exp(X)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    with mode:
        NP.sin(X)
    release.set()
    thread.join()
    assert mode.operators == ["np::exp", "np::sin"]


# --- asyncio ----------------------------------------------------------------------------------------------------


def test_a_task_inherits_the_modes_of_its_creator():
    mode, other = Recorder("mode"), Recorder("other")

    async def child():
        with other:
            await asyncio.sleep(0)
            NP.exp(X)
            return mode_stack()

    async def main():
        with mode:
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
            assert mode_stack() == (mode,)
        assert mode_stack() == ()
        return await task

    assert asyncio.run(main()) == (mode, other)
    assert mode.operators == other.operators == ["np::exp"]


def test_tasks_of_a_handler_start_with_its_stack():
    seen = []

    class Looping(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            async def ask():
                seen.append(mode_stack())

            asyncio.run(ask())
            seen.append(mode_stack())
            return func(*args, **kwargs)

    with Recorder("outer") as outer, Looping("looping") as mode:
        NP.exp(X)
        assert mode_stack() == (outer, mode)
    assert seen == [(outer,), (outer,)]


# --- generators -------------------------------------------------------------------------------------------------


def careless(mode):
    with mode:
        yield mode_stack()
        yield mode_stack()


def test_a_mode_held_across_a_yield_stays_on_in_the_consumer():
    mode = Recorder()
    generator = careless(mode)
    assert next(generator) == (mode,)
    assert mode_stack() == (mode,)
    NP.exp(X)
    assert mode.operators == ["np::exp"]
    generator.close()
    assert mode_stack() == ()


def test_a_generator_in_a_context_of_its_own_keeps_its_mode():
    mode = Recorder()
    generator, context = careless(mode), contextvars.copy_context()
    assert context.run(next, generator) == (mode,)
    assert mode_stack() == ()
    NP.exp(X)
    assert mode.calls == []
    context.run(generator.close)


# --- memory -----------------------------------------------------------------------------------------------------


def enter_and_leave(mode):
    with mode:
        NP.exp(X)


def decline(mode):
    with Declining(), mode:
        NP.exp(X)


def raise_in_block(mode):
    with pytest.raises(ZeroDivisionError), mode:
        raise ZeroDivisionError


def inside_grad(mode):
    def function(x):
        with mode:
            return (x * x).sum()

    func.grad(function)(X)


def outside_of_grad(mode):
    with mode:
        func.grad(lambda x: (x * x).sum())(X)


def on_the_tape(mode):
    x = Tensor(X, requires_grad=True)
    with mode:
        y = (x * x).sum()
        y.backward()


def out_of_order(mode):
    other = Recorder("other")
    mode.__enter__()
    other.__enter__()
    with pytest.raises(StateOrderError):
        mode.__exit__(None, None, None)
    other.__exit__(None, None, None)


def decorated(mode):
    mode(lambda: NP.exp(X))()


USES = [enter_and_leave, decline, raise_in_block, inside_grad, outside_of_grad, on_the_tape, out_of_order, decorated]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_modes_do_not_outlive_their_use(use):
    class Plain(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs)

    mode = Plain()
    reference = weakref.ref(mode)
    use(mode)
    del mode
    gc.collect()
    assert reference() is None


def test_many_entries_are_many_handlers():
    mode = Recorder()
    depth = 50
    for _ in range(depth):
        mode.__enter__()
    NP.exp(X)
    assert mode.operators == ["np::exp"] * depth
    for _ in range(depth):
        mode.__exit__(None, None, None)
