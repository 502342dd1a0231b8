"""Subclasses that misbehave: containers that change under a call, deleted attributes, recursion, saved outputs."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, WrapperTensor, _core, func, ops
from pydispatch.autograd import Function, grad
from pydispatch.exceptions import AutogradError, DispatchTypeError, NoKernelError
from pydispatch.library import Library, get_kernel
from pydispatch.subclasses import Shell
from pydispatch.tree import register_pytree_node
from tests.custom_operators import CUSTOM_OPERATORS
from tests.subclasses.classes import Around, Is, Wrapped, bottom

VALUES = np.array([1.0, 2.0])
WRAPPERS = [Around, Wrapped]


# --- Tensors that only a container holds -----------------------------------------------------------------------------


class Collecting(Tensor):
    """Declines, after everything that nobody holds has been freed and its memory used again."""

    box: Any = None

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if cls.box is not None:
            cls.box.items.clear()
        gc.collect()
        assert len([Tensor(VALUES) for _ in range(1000)]) == 1000
        return NotImplemented


class Answering(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return Tensor(np.array([len(types)]))


class MakesItems:
    """Its items are made when it is taken apart."""


class HasItems:
    def __init__(self) -> None:
        self.items = [Collecting(VALUES), Answering(VALUES)]


register_pytree_node(MakesItems, lambda box: ([Collecting(VALUES), Answering(VALUES)], None), lambda _, context: None)
register_pytree_node(HasItems, lambda box: (list(box.items), None), lambda _, context: None)


@pytest.mark.parametrize("emptied", [False, True], ids=["made on demand", "emptied by a handler"])
def test_arguments_that_take_part_live_as_long_as_the_call(emptied, monkeypatch):
    with Library("review_boxes", "DEF") as library:
        library.define("f(Any box) -> Tensor")
        for _ in range(20):
            box = HasItems() if emptied else MakesItems()
            monkeypatch.setattr(Collecting, "box", box if emptied else None)
            assert ops.review_boxes.f(box).array.tolist() == [2]


def test_handlers_hold_nothing_after_the_call():
    tensor = Around(Tensor(VALUES))
    gone = weakref.ref(tensor)
    counts = [sys.getrefcount(tensor)]
    for _ in range(100):
        ops.np.add(tensor, 1.0)
        ops.np.concatenate([tensor, tensor])
    counts.append(sys.getrefcount(tensor))
    assert counts[0] == counts[1]
    del tensor
    assert gone() is None


# --- attributes of WrapperTensor and Shell ---------------------------------------------------------------------------


def test_inner_can_be_deleted_and_set_again():
    tensor = Around.__new__(Around)
    del tensor.inner
    tensor.__init__(Tensor(VALUES))
    assert bottom(tensor) is VALUES
    del tensor.inner
    with pytest.raises(AttributeError, match="inner"):
        ops.np.add(tensor, 1.0)
    tensor.inner = Tensor(VALUES)
    assert bottom(ops.np.add(tensor, 1.0)).tolist() == [2.0, 3.0]


def test_a_shell_is_no_view_of_itself():
    first, second = Shell(VALUES), Shell(VALUES)
    first.base = second
    with pytest.raises(ValueError, match="view of itself"):
        second.base = first
    with pytest.raises(ValueError, match="view of itself"):
        second.base = second
    assert second.base is None


@pytest.mark.parametrize("make", [
    lambda: Shell(), lambda: Shell(None), lambda: Shell("x"), lambda: Shell([1]), lambda: Shell(VALUES, 2),
    lambda: Shell(VALUES, unknown=2), lambda: Shell(shape=(1.5,)),
], ids=["nothing", "None", "str", "list", "two", "unknown keyword", "float"])
def test_shells_of_wrong_arguments(make):
    with pytest.raises(TypeError):
        make()


# --- uninitialized objects -------------------------------------------------------------------------------------------


class NeverInitialised(Tensor):
    def __init__(self) -> None:
        pass

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("it takes no part")


@pytest.mark.parametrize("call", [
    lambda x: x + 1, lambda x: 1 + x, lambda x: -x, lambda x: ops.np.add(x, 1.0), lambda x: Tensor(VALUES) * x,
], ids=["+", "right +", "-", "add", "beside a Tensor"])
def test_an_object_that_was_never_initialized_is_named(call):
    with pytest.raises(DispatchTypeError, match=r"NeverInitialised.*never initialized"):
        call(NeverInitialised())


class ReturnsUninitialized(Is):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return Tensor.__new__(Tensor)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_handler_may_not_return_an_object_that_was_never_initialized(requires_grad):
    with pytest.raises(DispatchTypeError, match="ReturnsUninitialized"):
        ops.np.exp(ReturnsUninitialized(VALUES, requires_grad=requires_grad))


# --- recursion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: Around(Tensor(VALUES)), lambda: Around(Tensor(VALUES), requires_grad=True), lambda: Is(VALUES),
], ids=["WrapperTensor", "tracked", "is-a"])
def test_a_recursion_error_leaves_the_state_as_it_was(make):
    tensor = make()
    before = _core.current_state()
    failures = 0

    def deeper():
        nonlocal failures
        try:
            ops.np.exp(tensor)
        except RecursionError:
            failures += 1
        deeper()

    with pytest.raises(RecursionError):
        deeper()
    assert failures > 0
    assert _core.current_state() is before
    assert (Around(Tensor(VALUES), requires_grad=True) * 2).requires_grad


# --- outputs that functions of others save ---------------------------------------------------------------------------


class ExpSavingOutput(Function):
    """Saves its output while it runs."""

    @staticmethod
    def forward(ctx, x):
        y = ops.np.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class ExpSavingInSetup(Function):
    """Saves its output afterwards."""

    @staticmethod
    def forward(x):
        return ops.np.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        assert type(y) is not Tensor
        return g * y


@pytest.mark.parametrize("function", [ExpSavingOutput, ExpSavingInSetup])
@pytest.mark.parametrize("cls", [*WRAPPERS, Is])
def test_saved_outputs_of_functions_are_of_their_class(cls, function):
    x = cls(VALUES, requires_grad=True)
    (first,) = grad(function.apply(x).sum(), x, create_graph=True)
    assert type(first) is cls
    assert bottom(first).tolist() == np.exp(VALUES).tolist()
    (second,) = grad(first.sum(), x)
    assert type(second) is cls
    assert bottom(second).tolist() == np.exp(VALUES).tolist()


SORT = next(sample for sample in CUSTOM_OPERATORS if sample.name == "numpy_sort")
CUBE = next(sample for sample in CUSTOM_OPERATORS if sample.name == "numpy_cube")


@pytest.mark.parametrize("cls", [*WRAPPERS, Is])
@pytest.mark.parametrize("by_name", [False, True])
def test_saved_integers_of_custom_operators_are_of_their_class(cls, by_name):
    values, weights = np.array([[3.0, 1.0, 2.0]]), np.array([[10.0, 20.0, 30.0]])
    x = cls(values, requires_grad=True)
    y, order, _ = (SORT.by_name if by_name else SORT.operator)(x, 1)
    (gradient,) = grad(y, x, cls(weights))
    assert bottom(order).tolist() == [[1, 2, 0]]
    assert bottom(gradient).tolist() == [[30.0, 10.0, 20.0]]


@pytest.mark.parametrize("cls", [*WRAPPERS, Is])
@pytest.mark.parametrize("by_name", [False, True])
def test_saved_results_of_custom_operators_are_of_their_class(cls, by_name):
    x = cls(VALUES, requires_grad=True)
    y, slope = (CUBE.by_name if by_name else CUBE.operator)(x)
    (gradient,) = grad(y + slope, x, cls(np.ones(2)))
    assert bottom(gradient).tolist() == (3 * VALUES**2 + 6 * VALUES).tolist()


# --- wrappers around the values of a transform -----------------------------------------------------------------------


@pytest.mark.parametrize("call", [
    lambda: func.grad(lambda x: (Around(x) * Around(x)).sum())(VALUES),
    lambda: func.vjp(lambda x: Around(x) * Around(x), VALUES),
    lambda: func.jvp(lambda x: Around(x) * Around(x), (VALUES,), (VALUES,)),
    lambda: func.functionalize(lambda x: Around(x) * Around(x))(VALUES),
], ids=["grad", "vjp", "jvp", "functionalize"])
def test_a_wrapper_made_around_a_value_of_a_transform_is_no_result(call):
    with pytest.raises((AutogradError, DispatchTypeError), match="Around"):
        call()


def test_what_such_a_wrapper_holds_is_a_result():
    assert func.grad(lambda x: (Around(x) * Around(x)).inner.sum())(VALUES).tolist() == (2 * VALUES).tolist()


# --- WrapperTensor: what WrapperTensor says of itself ----------------------------------------------------------------


def test_wrapper_tensor_needs_a_handler():
    class Bare(WrapperTensor):
        pass

    with pytest.raises(DispatchTypeError, match="Bare must define __pydispatch__"):
        Bare(Tensor(VALUES))


# --- handlers that share a Shell -------------------------------------------------------------------------------------


class SharesShell(Tensor):
    """Its views are over the Shell of the argument itself."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return cls(args[0].array)


@pytest.mark.parametrize("call", [
    lambda x: x.detach(), lambda x: x.reshape(-1), lambda x: x[...], lambda x: ops.np.exp(x),
], ids=["detach", "reshape", "getitem", "exp"])
def test_a_result_may_be_over_the_shell_of_an_argument(call):
    x = SharesShell(Shell(VALUES))
    assert call(x).array is x.array
    assert x.array.base is None


# --- the Python key by name ------------------------------------------------------------------------------------------


def test_the_kernel_under_the_python_key_is_the_handlers():
    handlers = get_kernel("np::exp", "Python")
    result = handlers(Wrapped(VALUES))
    assert type(result) is Wrapped
    np.testing.assert_array_equal(bottom(result), np.exp(VALUES))
    with pytest.raises(NoKernelError, match="Python"):
        handlers(VALUES)
