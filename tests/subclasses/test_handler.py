"""Calls of handlers: when, with which arguments, in which state, and how they pass calls on."""

from __future__ import annotations

import copy
import gc
import pickle
import sys

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, below_python, exclude_keys, include_keys, ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.autograd import Function, enable_grad, grad, inference_mode, no_grad
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DispatchError, DispatchTypeError, NoKernelError, StateOrderError
from pydispatch.library import Stack
from pydispatch.modes import no_dispatch, restore_entry_state
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_map
from tests.subclasses.classes import Is, Wrapped, bottom, calls_of
from tests.together import together

ONES = np.ones((2, 2))


def name(func):
    return str(func.name)


# --- who takes part --------------------------------------------------------------------------------------------------


class NoHandler(Tensor):
    pass


class Disabled(Is):
    """A subclass of one with a handler that has taken it back."""

    __pydispatch__ = Tensor.__pydispatch__


class DisabledAnew(Is):
    __pydispatch__ = vars(Tensor)["__pydispatch__"]


TAKING_PART = {
    "base tensor": (lambda: Tensor(ONES), False),
    "subclass without a handler": (lambda: NoHandler(ONES), False),
    "the base handler, assigned": (lambda: Disabled(ONES), False),
    "the base handler, from its namespace": (lambda: DisabledAnew(ONES), False),
    "is-a": (lambda: Is(ONES), True),
    "has-a": (lambda: Wrapped(ONES), True),
    "is-a over MetaArray": (lambda: Is(MetaArray((2, 2))), True),
    "has-a over has-a": (lambda: Wrapped(Wrapped(ONES)), True),
    "a view of is-a": (lambda: Is(ONES)[0], True),
    "requires_grad": (lambda: Is(ONES, requires_grad=True), True),
}


@pytest.mark.parametrize(("make", "expected"), TAKING_PART.values(), ids=TAKING_PART.keys())
def test_who_takes_part(make, expected):
    tensor = make()
    assert tensor.dispatches_to_python is expected
    assert (DispatchKey.Python in tensor.keys) is expected


def test_the_bit_is_set_when_the_object_is_made():
    class Late(Tensor):
        pass

    before = Late(ONES)
    Late.__pydispatch__ = classmethod(lambda cls, func, types, args=(), kwargs=None: Tensor(np.full(2, 7.0)))
    after = Late(ONES)
    assert before.dispatches_to_python is False
    assert after.dispatches_to_python is True
    np.testing.assert_array_equal(ops.np.negative(before).array, -ONES)
    np.testing.assert_array_equal(ops.np.negative(after).array, [7, 7])
    np.testing.assert_array_equal(ops.np.add(before, after).array, [7, 7])


def test_the_handler_is_looked_up_at_each_call():
    class Changing(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return Tensor(np.array(1))

    x = Changing(ONES)
    assert ops.np.negative(x).item() == 1
    Changing.__pydispatch__ = classmethod(lambda cls, func, types, args=(), kwargs=None: Tensor(np.array(2)))
    assert ops.np.negative(x).item() == 2
    Changing.__pydispatch__ = Tensor.__pydispatch__
    result = ops.np.negative(x)
    assert type(result) is Tensor
    np.testing.assert_array_equal(result.array, -ONES)


def test_the_bit_belongs_to_the_object():
    result = no_dispatch()(ops.np.negative)(Is(ONES))
    assert type(result) is Tensor
    assert not result.dispatches_to_python


def test_the_base_class_has_a_handler():
    result = Tensor.__pydispatch__(ops.np.negative.default, (), (Tensor(ONES),), {})
    assert type(result) is Tensor
    np.testing.assert_array_equal(result.array, -ONES)


def test_a_shell_needs_a_handler():
    class Without(Tensor):
        pass

    with pytest.raises(TypeError, match=r"^Without must define __pydispatch__"):
        Without(Shell(ONES))
    with pytest.raises(TypeError, match=r"^Tensor must define __pydispatch__"):
        Tensor(Shell(ONES))
    assert type(Wrapped(ONES)) is Wrapped


@pytest.mark.parametrize("make", [Tensor, NoHandler, Is], ids=lambda cls: cls.__name__)
def test_many_objects_over_one_array(make):
    x = Is(ONES)
    again = make(x)
    assert type(again) is make
    assert again.array is x.array
    assert again.dispatches_to_python is (make is Is)


# --- which calls reach it --------------------------------------------------------------------------------------------

EXPRESSIONS = {
    "shape and the like": (lambda x: (x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.strides, x.requires_grad), []),
    "hash, id, len, version": (lambda x: (hash(x), id(x), len(x), x._version, x.is_leaf, x.device), []),
    "repr": (lambda x: (repr(x), str(x)), []),
    "requires_grad_": (lambda x: x.requires_grad_(), []),
    "detach": (lambda x: x.detach(), ["np::detach"]),
    "item": (lambda x: x[0, 0].item(), ["np::getitem", "np::item"]),
    "float": (lambda x: float(x.sum()), ["np::sum", "np::item"]),
    "bool": (lambda x: bool(x.all()), ["np::all", "np::item"]),
    "int": (lambda x: int(x.sum()), ["np::sum", "np::item"]),
    "complex": (lambda x: complex(x.sum()), ["np::sum", "np::item"]),
    "x[0]": (lambda x: x[0], ["np::getitem"]),
    "x[0, 1]": (lambda x: x[0, 1], ["np::getitem"]),
    "x[mask]": (lambda x: x[np.array([True, False])], ["np::index"]),
    "x[0] = 1": (lambda x: x.__setitem__(0, 1.0), ["np::setitem_"]),
    "x[mask] = 1": (lambda x: x.__setitem__(np.array([True, False]), 1.0), ["np::index_put_"]),
    "x + 1": (lambda x: x + 1, ["np::add"]),
    "1 - x": (lambda x: 1 - x, ["np::subtract"]),
    "x += 1": (lambda x: x.__iadd__(1), ["np::add_"]),
    "x @ x": (lambda x: x @ x, ["np::matmul"]),
    "x == x": (lambda x: x == x, ["np::equal"]),
    "x ** 2": (lambda x: x**2, ["np::square"]),
    "x ** 3": (lambda x: x**3, ["np::power"]),
    "-x": (lambda x: -x, ["np::negative"]),
    "abs": (lambda x: abs(x), ["np::absolute"]),
    "divmod": (lambda x: divmod(x, 2), ["np::floor_divide", "np::remainder"]),
    "out=": (lambda x: ops.np.add(x, x, out=np.zeros((2, 2))), ["np::add.out"]),
    "reshape": (lambda x: x.reshape(4), ["np::reshape"]),
    "T": (lambda x: x.T, ["np::transpose"]),
    "astype": (lambda x: x.astype(np.float32), ["np::astype"]),
    "copy": (lambda x: x.copy(), ["np::copy"]),
    "zeros_like": (lambda x: ops.np.zeros_like(x), ["np::zeros_like"]),
    "zeros": (lambda x: ops.np.zeros(2), []),
    "arange": (lambda x: ops.np.arange(2), []),
    "stack of a list": (lambda x: ops.np.stack([ONES, x]), ["np::stack"]),
    "index of it": (lambda x: ops.np.index(ONES, (x.astype(int),)), ["np::astype", "np::index"]),
    "into the index": (lambda x: ops.np.index_put_(np.ones((2, 2)), (x > 5,), 1.0), ["np::greater", "np::index_put_"]),
    "keyword-only": (lambda x: ops.np.sum(ONES, where=x.astype(bool)), ["np::astype", "np::sum"]),
    "iteration": (lambda x: list(x), ["np::getitem"] * 2),
}


@pytest.mark.parametrize("cls", [Is, Wrapped], ids=["is-a", "has-a"])
@together("expression, expected", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_what_reaches_the_handler(cls, expression, expected):
    x = cls(np.ones((2, 2)))
    with calls_of(cls) as calls:
        expression(x)
    assert list(map(name, calls)) == expected


@pytest.mark.parametrize("cls", [Is, Wrapped], ids=["is-a", "has-a"])
def test_numbers_are_those_of_the_array(cls):
    x = cls(np.array(2.5))
    assert (x.item(), float(x), int(x), bool(x), complex(x)) == (2.5, 2.5, 2, True, 2.5 + 0j)
    assert type(x.item()) is float
    assert [10, 20, 30][cls(np.array(1))] == 20
    with pytest.raises(TypeError):
        [10, 20, 30][cls(np.array(1.0))]
    with pytest.raises((TypeError, ValueError)):
        bool(cls(np.ones(2)))


@pytest.mark.parametrize(
    "convert", [lambda x: x.tolist(), lambda x: x.numpy(), lambda x: np.asarray(x)], ids=["tolist", "numpy", "asarray"])
def test_a_shell_has_no_values(convert):
    with pytest.raises(DispatchTypeError, match="Wrapped"):
        convert(Wrapped(ONES))
    assert np.shape(convert(Is(ONES))) == (2, 2)


def test_a_shell_has_no_memory():
    w = Wrapped(ONES)
    assert isinstance(w.array, Shell)
    with pytest.raises(DispatchTypeError):
        np.asarray(w.array)


def test_no_allocation():
    w = Wrapped(Shell(shape=(10**6, 10**6), dtype=np.float64))
    assert w.shape == (10**6, 10**6)
    assert w.size == 10**12
    assert w.nbytes == 8 * 10**12


LIKE = {
    "zeros_like": lambda x: ops.np.zeros_like(x),
    "ones_like": lambda x: ops.np.ones_like(x),
    "empty_like": lambda x: ops.np.empty_like(x),
    "full_like": lambda x: ops.np.full_like(x, 3),
    "copy": lambda x: x.copy(),
    "dtype": lambda x: ops.np.zeros_like(x, dtype=np.int8),
    "shape": lambda x: ops.np.ones_like(x, shape=(1, 2)),
}


@pytest.mark.parametrize("make", LIKE.values(), ids=LIKE.keys())
def test_arrays_like_it(make):
    assert type(make(Is(ONES))) is Is
    assert type(make(Wrapped(ONES))) is Wrapped


def test_index_only_subclass():
    class Index(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            assert types == (Index,)
            return func(*tree_map(lambda leaf: leaf.array if isinstance(leaf, Index) else leaf, args), **kwargs)

    seen = []
    x = Tensor(np.zeros(3))
    assert ops.np.index_put_(x, (Index(np.array([0, 2])),), 1.0) is x
    assert seen == [ops.np.index_put_.default]
    np.testing.assert_array_equal(x.array, [1, 0, 1])


def test_a_kernel_above_python_may_keep_the_call(fresh, define, token):
    op = define(fresh, "f(Tensor x) -> str", Autograd=token("autograd"), CPU=token("cpu"))
    with calls_of(Is) as calls:
        assert op(Is(ONES)) == "autograd"
        with exclude_keys("Autograd"):
            assert op(Is(ONES)) == "cpu"
    assert calls == [op]


def test_composites_come_in_pieces(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CIA=lambda x: ops.np.exp(ops.np.negative(x)))
    with calls_of(Wrapped) as calls:
        result = op(Wrapped(ONES))
    assert calls == [ops.np.negative.default, ops.np.exp.default]
    np.testing.assert_array_equal(bottom(result), np.exp(-ONES))


def test_composites_come_whole_without_autograd(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CIA=lambda x: ops.np.exp(ops.np.negative(x)))
    with exclude_keys("Autograd"), calls_of(Wrapped) as calls:
        result = op(Wrapped(ONES))
    assert calls == [op]
    np.testing.assert_array_equal(bottom(result), np.exp(-ONES))


def test_inference_mode():
    with inference_mode(), calls_of(Wrapped) as calls:
        ops.np.exp(Wrapped(ONES))
    assert calls == [ops.np.exp.default]


def by_stack(x):
    op = ops.np.negative.default
    stack = Stack(op.bind((x,)))
    op.call_boxed(stack)
    return stack[0]


WAYS = {
    "packet": lambda x: ops.np.negative(x),
    "overload": lambda x: ops.np.negative.default(x),
    "by name": lambda x: ops.np.negative(x=x),
    "boxed": by_stack,
    "language": lambda x: -x,
    "redispatch": lambda x: ops.np.negative.default.redispatch(DispatchKeySet("Python", "CPU"), x),
}


@pytest.mark.parametrize("cls", [Is, Wrapped], ids=["is-a", "has-a"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_way_to_call(way, cls):
    with calls_of(cls) as calls:
        result = way(cls(ONES))
    assert calls == [ops.np.negative.default]
    assert type(result) is cls
    np.testing.assert_array_equal(bottom(result), -ONES)


def test_a_kernel_at_python_comes_before_handlers(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=lambda x: x + 1, Python=lambda x: x.array + 2)
    with calls_of(Is) as calls:
        np.testing.assert_array_equal(op(Is(ONES)).array, ONES + 2)
    assert calls == []
    np.testing.assert_array_equal(op(ONES), ONES + 1)


@pytest.mark.parametrize("guard", [lambda: exclude_keys("Python"), no_dispatch], ids=["exclude_keys", "no_dispatch"])
def test_python_excluded(guard):
    with guard(), calls_of(Is) as calls:
        assert type(ops.np.negative(Is(ONES))) is Tensor
    assert calls == []


def test_explain_says_who_handles():
    text = str(ops.np.negative.default.explain(Is(ONES)))
    assert "dispatched on Python" in text


@pytest.mark.parametrize("cls", [Is, Wrapped], ids=["is-a", "has-a"])
def test_formatting_a_number_asks_for_it(cls):
    with calls_of(cls) as calls:
        assert f"{cls(np.array(2.5)):.2f}" == "2.50"
    assert calls == [ops.np.item.default] * (cls is Wrapped)


# --- arguments -------------------------------------------------------------------------------------------------------

got: list[tuple] = []


class Seen(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        got.append((cls, func, types, args, kwargs))
        return Tensor(np.zeros(()))


@pytest.fixture(autouse=True)
def forget():
    got.clear()


def test_the_call():
    x = Seen(ONES)
    ops.np.sum(x, [0, 1])
    ((cls, func, types, args, kwargs),) = got
    assert cls is Seen
    assert func is ops.np.sum.default
    assert types == (Seen,)
    assert args[0] is x
    assert args[1:] == ((0, 1),)
    assert kwargs == {}
    assert [type(value) for value in (types, args, args[1], kwargs)] == [tuple, tuple, tuple, dict]


def test_found_on_the_argument():
    class ByMethod(Tensor):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            got.append((self, func, types, args, kwargs))
            return Tensor(np.zeros(()))

    class ByStaticMethod(Tensor):
        @staticmethod
        def __pydispatch__(func, types, args=(), kwargs=None):
            got.append((None, func, types, args, kwargs))
            return Tensor(np.zeros(()))

    first, second = ByMethod(ONES), ByStaticMethod(ONES)
    ops.np.add(1.0, first)
    ops.np.negative(second)
    ops.np.stack([Tensor(ONES), first, ByMethod(ONES)])
    assert got[0][0] is first
    assert got[1][0] is None
    assert got[1][3] == (second,)
    assert got[2][0] is first, "the first of its class"
    assert [len(types) for _, _, types, _, _ in got] == [1, 1, 1]


def test_identity_of_arrays():
    a, b, raw, plain = Seen(ONES), Seen(ONES), np.ones(2), Tensor(ONES)
    given = [a, raw, plain, b]
    ops.np.concatenate(given)
    (values,) = got[0][3]
    assert type(values) is tuple
    assert [id(value) for value in values] == [id(value) for value in given]


def test_the_operator_tells():
    ops.np.add(Seen(ONES), 1, out=np.zeros(2))
    func = got[0][1]
    assert func is ops.np.add.out
    assert str(func.name) == "np::add.out"
    assert func.namespace == "np"
    assert func.overload_name == "out"
    assert [argument.name for argument in func.schema.arguments][-1] == "out"
    assert copy.deepcopy(func) is func
    assert pickle.loads(pickle.dumps(func)) is func
    assert {func: 1}[ops.np.add.out] == 1


# --- the state inside ------------------------------------------------------------------------------------------------


class Runs(Tensor):
    body = None

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return cls.body(func, *args, **kwargs)


def run_inside(body, *args, op=None):
    Runs.body = staticmethod(body)
    return (op or ops.np.negative)(*args)


def test_nothing_is_recorded_inside():
    inner, seen = Tensor(ONES, requires_grad=True), []

    def body(func, x):
        assert x.requires_grad, "it is the user's object"
        assert x is outer
        seen.append(func(inner))
        return Tensor(np.zeros(()))

    outer = Runs(ONES, requires_grad=True)
    result = run_inside(body, outer)
    assert seen[0].requires_grad is False
    assert seen[0].is_leaf
    assert result.requires_grad is True
    assert not result.is_leaf


def test_grad_mode_is_as_it_was_but_of_no_effect():
    inner, seen = Tensor(ONES, requires_grad=True), []

    def body(func, x):
        with enable_grad():
            seen.append(func(inner).requires_grad)
        return x.array

    run_inside(body, Runs(ONES))
    with no_grad():
        run_inside(body, Runs(ONES))
    assert seen == [False, False]
    assert ops.np.negative(inner).requires_grad, "and afterwards all is as before"


def test_functionalities_above_python_are_off(fresh, define, tracer, token):
    from_inside = []
    op = define(fresh, "f(Tensor x) -> str", Tracer=token("tracer"), CPU=token("cpu"))

    def body(func, x):
        from_inside.append(op(Tensor(ONES)))
        with restore_entry_state():
            from_inside.append(op(Tensor(ONES)))
        return x.array

    with include_keys("Tracer"):
        run_inside(body, Runs(ONES))
        assert op(Tensor(ONES)) == "tracer"
    assert from_inside == ["cpu", "tracer"]


def test_functionalities_come_before_handlers(fresh, define, tracer):
    seen = []

    def kernel(keys, x):
        seen.append(x)
        return op.redispatch(keys & DispatchKeySet.full_after(tracer), x)

    fresh.define("f(Tensor x) -> Tensor")
    fresh.impl("f", kernel, "Tracer", with_keyset=True)
    fresh.impl("f", lambda x: x + 1, "CPU")
    op = find_or_raise(f"{fresh.namespace}::f")
    x = Wrapped(ONES)
    with include_keys("Tracer"), calls_of(Wrapped) as calls:
        result = op(x)
    assert len(seen) == 1
    assert seen[0] is x
    assert calls == [op]
    np.testing.assert_array_equal(bottom(result), ONES + 1)


def test_inner_handlers_are_called():
    w = Wrapped(Wrapped(Wrapped(ONES)))
    with calls_of(Wrapped) as calls:
        result = ops.np.negative(w)
    assert calls == [ops.np.negative.default] * 3
    assert type(result.inner.inner) is Wrapped
    np.testing.assert_array_equal(bottom(result), -ONES)


def test_the_same_object_recurses():
    with pytest.raises(RecursionError):
        run_inside(lambda func, x: func(x), Runs(ONES))
    np.testing.assert_array_equal(ops.np.negative(Tensor(ONES)).array, -ONES)


def test_an_exception_restores_the_state():
    class GivesUp(BaseException):
        pass

    def body(func, x):
        raise GivesUp

    x = Tensor(ONES, requires_grad=True)
    for error in (GivesUp, GivesUp):
        with pytest.raises(error):
            run_inside(body, Runs(ONES))
    assert ops.np.negative(x).requires_grad
    with calls_of(Is) as calls:
        ops.np.negative(Is(ONES))
    assert len(calls) == 1


class Fails(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        raise KeyError(func)


class Declines(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class AnswersText(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return "text"


@pytest.mark.parametrize("cls", [Is, Wrapped, Fails, Declines, AnswersText], ids=lambda cls: cls.__name__)
def test_no_reference_is_kept_or_lost(cls):
    x, y, where, options = cls(ONES), Tensor(ONES), np.array(True), (0, 1)
    values = x, y, where, options, ONES, ops.np.sum.default, cls, None
    results = []

    def calls():
        for _ in range(50):
            for call in (lambda: ops.np.add(y, x), lambda: ops.np.stack([y, x]),
                         lambda: ops.np.sum(x, options, where=where, keepdims=True)):
                try:
                    results.append(call())
                except (KeyError, TypeError):
                    results.append(None)
        results.clear()

    calls()
    gc.collect()
    before = [sys.getrefcount(value) for value in values[:-1]]
    calls()
    gc.collect()
    after = [sys.getrefcount(value) for value in values[:-1]]
    assert after == before


@pytest.mark.parametrize("guard", [no_grad, restore_entry_state, no_dispatch], ids=lambda guard: guard.__name__)
def test_what_a_handler_leaves_open_ends_with_it(guard):
    opened = []

    def body(func, x):
        opened.append(guard())
        opened[-1].__enter__()
        return x.array

    run_inside(body, Runs(ONES))
    assert ops.np.negative(Tensor(ONES, requires_grad=True)).requires_grad
    with calls_of(Is) as calls:
        ops.np.negative(Is(ONES))
    assert len(calls) == 1
    with pytest.raises(StateOrderError):
        opened[0].__exit__(None, None, None)


# --- ways to call on -------------------------------------------------------------------------------------------------


def test_super_call():
    x = Is(np.arange(4.0))
    with calls_of(Is) as calls:
        result = x * x
    assert calls == [ops.np.multiply.default]
    assert type(result) is Is
    np.testing.assert_array_equal(result.array, np.arange(4.0) ** 2)


@pytest.mark.parametrize("kwargs", [{}, None], ids=["empty", "None"])
@pytest.mark.parametrize("container", [list, tuple])
def test_super_call_with_a_list(container, kwargs):
    class WithList(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), _=None):
            return super().__pydispatch__(func, types, container(args), kwargs)

    result = ops.np.add(WithList(ONES), 1)
    assert type(result) is Tensor
    np.testing.assert_array_equal(result.array, ONES + 1)


def test_super_call_records_nothing():
    seen = []

    class Looks(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            out = super().__pydispatch__(func, types, args, kwargs)
            seen.append((out.requires_grad, args[0].requires_grad))
            return out

    result = ops.np.exp(Looks(ONES, requires_grad=True))
    assert seen == [(False, True)]
    assert result.requires_grad


def test_python_stays_off_for_the_whole_super_call(fresh, define):
    inner = Is(ONES)
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=lambda x: ops.np.negative(inner).array + x)
    with calls_of(Is) as calls:
        result = op(Is(ONES))
    assert calls == [op]
    np.testing.assert_array_equal(result.array, np.zeros((2, 2)))


def test_super_call_on_a_shell_is_an_error():
    class Forwards(Tensor):
        def __init__(self):
            super().__init__(Shell(ONES))

        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return super().__pydispatch__(func, types, args, kwargs)

    with pytest.raises(DispatchError):
        ops.np.negative(Forwards())


def test_no_dispatch_on_a_shell():
    with no_dispatch(), pytest.raises((DispatchError, NoKernelError)):
        Wrapped(ONES) + 1


def test_no_dispatch_inside():
    class Unwraps(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            with no_dispatch():
                return cls(func(*args, **kwargs))

    result = ops.np.exp(Unwraps(ONES))
    assert type(result) is Unwraps
    np.testing.assert_array_equal(result.array, np.exp(ONES))


def test_below_python():
    class Below(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            got.append(func)
            return cls(below_python(func, *args, **kwargs))

    x = Below(ONES, requires_grad=True)
    result = ops.np.sum(x, axis=0, keepdims=True)
    assert type(result) is Below
    assert result.requires_grad
    np.testing.assert_array_equal(result.array, ONES.sum(0, keepdims=True))
    assert got == [ops.np.sum.default]
    outside = below_python(ops.np.exp.default, x)
    assert type(outside) is Tensor
    assert not outside.requires_grad
    assert got == [ops.np.sum.default]


class Inside(Wrapped):
    """The same, in the state of the call."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        with restore_entry_state():
            return super().__pydispatch__(func, types, args, kwargs)


def test_restore_entry_state():
    x = Tensor(ONES, requires_grad=True)
    out = ops.np.exp(Inside(x))
    assert not out.requires_grad
    assert out.inner.requires_grad
    out.inner.sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.exp(ONES))
    with pytest.raises(RuntimeError):
        out.sum().backward()


def test_without_restore_entry_state_nothing_is_recorded():
    x = Tensor(ONES, requires_grad=True)
    out = ops.np.exp(Wrapped(x))
    assert not out.requires_grad
    assert not out.inner.requires_grad


def test_what_was_off_at_entry_stays_off():
    x = Tensor(ONES, requires_grad=True)
    with no_grad():
        assert not ops.np.exp(Inside(x)).inner.requires_grad


def test_restore_entry_state_only_inside_a_handler():
    with pytest.raises(StateOrderError), restore_entry_state():
        pass
    assert ops.np.exp(Tensor(ONES, requires_grad=True)).requires_grad


def test_functions_get_the_subclass():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(x)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            seen.append(x)
            seen.append(g)
            return g * 2 * x

    seen = []
    x = Wrapped(np.array([3.0]), requires_grad=True)
    (dx,) = grad(Square.apply(x), x, Wrapped(np.array([1.0])))
    forward, saved, gradient = seen
    assert forward is x
    assert saved is x
    assert type(gradient) is Wrapped
    assert type(dx) is Wrapped
    np.testing.assert_array_equal(dx.inner, [6.0])
