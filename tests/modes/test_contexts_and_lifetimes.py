"""Modes in copied contexts, on deep stacks, beside gradients that are added up, and what they keep alive."""

import contextlib
import contextvars
import gc
import threading
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, _core, func, ops
from pydispatch.autograd import grad
from pydispatch.exceptions import DispatchTypeError, StateOrderError, UntrackedResultWarning
from pydispatch.modes import DispatchMode, mode_stack, no_dispatch
from tests.modes.recorders import Declining, Recorder, Whole, wrapper_class
from tests.subclasses.classes import Around

VALUES = np.array([1.0, 2.0])


def leave_out_of_order(mode):
    with pytest.raises(StateOrderError):
        mode.__exit__(None, None, None)
    return mode_stack()


# --- contexts --------------------------------------------------------------------------------------------------------


def test_leaving_out_of_order_is_seen_in_this_context_alone():
    outer, inner = Recorder("outer"), Recorder("inner")
    with outer, inner:
        assert contextvars.copy_context().run(leave_out_of_order, outer) == (inner,)
        assert mode_stack() == (outer, inner)
        ops.np.add(VALUES, 1.0)
    assert outer.operators == inner.operators == ["np::add"]


def test_leaving_below_a_transform_is_seen_in_this_context_alone():
    outer = Recorder("outer")

    def f(x):
        contextvars.copy_context().run(leave_out_of_order, outer)
        return (x * x).sum()

    with outer:
        gradient = func.grad(f)(VALUES)
        assert mode_stack() == (outer,)
    assert gradient.tolist() == (2 * VALUES).tolist()
    assert "np::multiply" in outer.operators
    assert mode_stack() == ()


def test_leaving_below_a_transform_takes_the_mode_off_for_good():
    outer = Recorder("outer")

    def f(x):
        leave_out_of_order(outer)
        y = x * x
        assert mode_stack() == ()
        return y.sum()

    outer.__enter__()
    gradient = func.grad(f)(VALUES)
    assert mode_stack() == ()
    assert gradient.tolist() == (2 * VALUES).tolist()


def test_leaving_below_no_dispatch():
    outer, inner = Recorder("outer"), Recorder("inner")
    outer.__enter__()
    with no_dispatch(), inner:
        assert leave_out_of_order(outer) == (inner,)
        ops.np.add(VALUES, 1.0)
    assert (outer.operators, inner.operators) == ([], ["np::add"])
    assert mode_stack() == ()


def test_threads_with_copied_stacks_do_not_meet():
    outer, inner = Recorder("outer"), Recorder("inner")
    seen = []
    with outer, inner:
        contexts = [contextvars.copy_context() for _ in range(8)]
        threads = [threading.Thread(target=lambda c=c: seen.append(c.run(leave_out_of_order, outer))) for c in contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mode_stack() == (outer, inner)
    assert seen == [(inner,)] * 8


# --- depth -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Recorder, Declining, Whole, lambda: _core.PythonInterpreter("deep")],
                         ids=["passing", "declining", "whole", "transforms"])
def test_a_stack_that_is_too_deep_is_a_recursion_error(make):
    before = _core.current_state()
    with contextlib.ExitStack() as stack:
        for _ in range(20_000):
            stack.enter_context(make())
        with pytest.raises(RecursionError):
            ops.np.add(Tensor(VALUES), 1.0)
    assert _core.current_state() is before
    assert ops.np.add(Tensor(VALUES), 1.0).array.tolist() == [2.0, 3.0]


# --- lifetimes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Recorder, Declining, Whole])
@pytest.mark.parametrize("values", [lambda: VALUES, lambda: Tensor(VALUES), lambda: wrapper_class()(VALUES)],
                         ids=["raw", "Tensor", "wrapper"])
def test_a_mode_goes_without_the_collector(make, values):
    argument, mode = values(), make()
    gone = weakref.ref(mode)
    gc.disable()
    try:
        with mode:
            ops.np.add(argument, 1.0)
        mode.calls.clear()
        del mode
        assert gone() is None
    finally:
        gc.enable()


def test_a_mode_goes_after_a_transform_and_a_backward_pass():
    mode = Declining()
    gone = weakref.ref(mode)
    gc.collect()
    gc.disable()
    try:
        with mode:
            x = Around(Tensor(VALUES), requires_grad=True)
            (ops.np.exp(x) * x).sum().backward()
            func.grad(lambda x: (x * x).sum())(Around(Tensor(VALUES)))
        mode.calls.clear()
        del mode, x
        assert gone() is None
    finally:
        gc.enable()


# --- gradients under a mode that passes calls on ---------------------------------------------------------------------


def no_mode():
    return contextlib.nullcontext()


@pytest.mark.parametrize("around", [no_mode, Recorder, Declining], ids=["no mode", "passing", "declining"])
def test_gradients_are_added_in_place(around):
    x = Tensor(VALUES, requires_grad=True)
    with around():
        (x * x).sum().backward()
        first = x.grad
        (x * x).sum().backward()
    assert x.grad is first
    assert first._version == 1
    assert first.array.tolist() == (4 * VALUES).tolist()


@pytest.mark.parametrize("around", [no_mode, Recorder, Declining], ids=["no mode", "passing", "declining"])
def test_gradients_with_a_graph_are_not_added_in_place(around):
    x = Tensor(VALUES, requires_grad=True)
    with around():
        (x * x * x).sum().backward()
        first = x.grad
        (x * x * x).sum().backward(create_graph=True)
        assert grad(x.grad.sum(), x)[0].array.tolist() == (6 * VALUES).tolist()
    assert not first.requires_grad
    assert first.array.tolist() == (3 * VALUES**2).tolist()
    assert x.grad.array.tolist() == (6 * VALUES**2).tolist()


CONSTANTS = {
    "full_like": lambda x: ops.np.full_like(x, 3.0),
    "zeros_like": lambda x: ops.np.zeros_like(x),
    "where, as the condition": lambda x: ops.np.where(x, 1.0, 2.0),
    "a comparison": lambda x: x > 1,
    "a conversion to int": lambda x: x.astype("int64"),
    "detach": lambda x: x.detach(),
}


@pytest.mark.filterwarnings("error::pydispatch.exceptions.UntrackedResultWarning")
@pytest.mark.parametrize("call", CONSTANTS.values(), ids=CONSTANTS)
def test_no_warning_where_no_gradient_ends(call):
    class Passing(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs)

    x = Tensor(VALUES, requires_grad=True)
    with Passing():
        assert not call(x).requires_grad


@pytest.mark.parametrize("call", [
    lambda x: ops.np.full_like(Tensor(VALUES), x.sum()), lambda x: ops.np.where(Tensor(VALUES), x, 2.0),
], ids=["full_like", "where"])
def test_a_warning_where_the_gradient_of_another_argument_ends(call):
    class Detaching(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **kwargs)
            return result if func is ops.np.sum.default else result.detach()

    x = Tensor(VALUES, requires_grad=True)
    with Detaching(), pytest.warns(UntrackedResultWarning):
        call(x)


# --- results ---------------------------------------------------------------------------------------------------------


class ReturnsUninitialized(DispatchMode):
    def __pydispatch__(self, func, types, args=(), kwargs=None):
        return Tensor.__new__(Tensor)


@pytest.mark.parametrize("call", [
    lambda: ops.np.exp(Tensor(VALUES)), lambda: func.grad(lambda x: (x * x).sum())(VALUES),
    lambda: func.jvp(lambda x: x * x, (VALUES,), (VALUES,)),
], ids=["call", "grad", "jvp"])
def test_a_mode_may_not_return_an_object_that_was_never_initialized(call):
    with ReturnsUninitialized(), pytest.raises(DispatchTypeError, match="ReturnsUninitialized"):
        call()
