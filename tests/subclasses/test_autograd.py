"""Autograd above subclasses."""

import threading

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, _core, func, ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.autograd import Function, backward, checkpoint, detect_anomaly, grad, no_grad, saved_tensors_hooks
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.library import register_autograd
from pydispatch.modes import restore_entry_state
from pydispatch.testing import LoggingTensor, gradcheck
from tests.subclasses.classes import Is, Two, Wrapped, bottom, calls_of, noting_arguments

DETACH = ops.np.detach.default


def detaches(calls):
    return sum(call is DETACH for call in calls)


def names(calls):
    return [str(call.name).removeprefix("np::") for call in calls]


def leaf(values, cls=Wrapped):
    return cls(np.array(values, dtype=float), requires_grad=True)


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradient_of_a_subclass():
    x = LoggingTensor(np.array([3.0]), requires_grad=True)
    y = x * x
    (dx,) = grad(y, x, LoggingTensor(np.array([1.0])))
    assert type(dx) is LoggingTensor
    np.testing.assert_array_equal(dx.elem, [6.0])
    assert x._version == 0
    assert type(y) is LoggingTensor
    np.testing.assert_array_equal(y.elem, [9.0])
    assert not x.elem.requires_grad if isinstance(x.elem, Tensor) else True


def test_the_saved_input_is_the_very_object():
    seen = []
    looks = noting_arguments(seen)
    x, y = leaf([2.0], looks), leaf([5.0], looks)
    z = x * y
    del seen[:]
    z.backward(looks(np.ones(1)))
    used = [argument for args in seen for argument in args]
    assert any(argument is x for argument in used)
    assert any(argument is y for argument in used)
    np.testing.assert_array_equal(x.grad.inner, [5.0])
    np.testing.assert_array_equal(y.grad.inner, [2.0])


# --- how often detach is called --------------------------------------------------------------------------------------


def test_detach_once():
    for cls in (Is, Wrapped):
        x = leaf([3.0], cls)
        with calls_of(cls) as calls:
            y = x.detach()
        assert calls == [DETACH]
        assert type(y) is cls
        assert not y.requires_grad
        assert bottom(y) is bottom(x) or np.shares_memory(bottom(y), bottom(x))


INPUTS = {
    "mul": (lambda x: x * x, [6.0]),
    "sin": (lambda x: ops.np.sin(x), np.cos([3.0])),
    "log": (lambda x: ops.np.log(x), [1 / 3]),
    "no leaf": (lambda x: (x + 0) * (x + 0), [6.0]),
}


@pytest.mark.parametrize("cls", [Is, Wrapped])
@pytest.mark.parametrize(("function", "expected"), INPUTS.values(), ids=INPUTS.keys())
def test_saving_an_input_detaches_nothing(cls, function, expected):
    x = leaf([3.0], cls)
    with calls_of(cls) as calls:
        y = function(x)
    assert detaches(calls) == 0
    (dx,) = grad(y, x, cls(np.ones(1)))
    assert type(dx) is cls
    np.testing.assert_allclose(bottom(dx), expected)


OUTPUTS = {
    "exp": (lambda x: ops.np.exp(x), lambda x: np.exp(x)),
    "tanh": (lambda x: ops.np.tanh(x), lambda x: 1 - np.tanh(x) ** 2),
    "sqrt": (lambda x: ops.np.sqrt(x), lambda x: 0.5 / np.sqrt(x)),
}


@pytest.mark.parametrize("cls", [Is, Wrapped])
@pytest.mark.parametrize(("function", "derivative"), OUTPUTS.values(), ids=OUTPUTS.keys())
def test_saving_an_output_detaches_once_and_reading_it_once(cls, function, derivative):
    x = leaf([3.0], cls)
    with calls_of(cls) as calls:
        y = function(x)
    assert detaches(calls) == 1
    with calls_of(cls) as calls:
        (dx,) = grad(y, x, cls(np.ones(1)))
    assert detaches(calls) == 1
    assert type(dx) is cls
    np.testing.assert_allclose(bottom(dx), derivative(np.array([3.0])))


def test_without_recording_nothing_is_detached():
    with calls_of(Wrapped) as calls:
        with no_grad():
            ops.np.exp(leaf([3.0]))
        ops.np.exp(Wrapped(np.ones(1)))
    assert names(calls) == ["exp", "exp"]


def test_hooks_get_the_subclass():
    packed, unpacked = [], []

    def pack(x):
        packed.append(x)
        return len(packed) - 1

    def unpack(index):
        unpacked.append(index)
        return packed[index]

    x = leaf([3.0])
    with saved_tensors_hooks(pack, unpack):
        y = x * x
        z = ops.np.exp(x)
    assert {type(value) for value in packed} == {Wrapped}
    assert [bottom(value).tolist() for value in packed] == [[3.0], [3.0], [np.exp(3.0)]]
    (y + z).backward(Wrapped(np.ones(1)))
    assert {bottom(packed[index]).item() for index in unpacked} == {3.0, np.exp(3.0)}
    np.testing.assert_allclose(x.grad.inner, 6 + np.exp([3.0]))


def test_detach_may_return_any_class():
    class ToPlain(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            if func is DETACH:
                return Tensor(args[0].inner)
            return super().__pydispatch__(func, types, args, kwargs)

    x = leaf([3.0], ToPlain)
    assert type(x.detach()) is Tensor
    assert not x.detach().dispatches_to_python


def test_what_detach_returns_is_checked():
    class Wrong(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return "arf" if func is DETACH else super().__pydispatch__(func, types, args, kwargs)

    x = leaf([3.0], Wrong)
    with pytest.raises(DispatchTypeError, match="np::detach"):
        x.detach()
    with pytest.raises(DispatchTypeError, match="np::detach"):
        ops.np.exp(x)


CALLS = {  # what a call asks of the handler, its backward, another one, whose gradient is added to the first
    "product with a number": (lambda x: x * 2, ["multiply"], ["multiply"]),
    "product with itself": (lambda x: x * x, ["multiply"], ["multiply", "add"]),
    "saves an input": (lambda x: ops.np.sin(x), ["sin"], ["cos", "multiply"]),
    "saves its output": (lambda x: ops.np.exp(x), ["exp", "detach"], ["detach", "multiply"]),
    "reduction": (lambda x: x.sum(), ["sum"], ["broadcast_to"]),
    "view": (lambda x: x.reshape(1, 1), ["reshape"], ["reshape"]),
    "two ways": (lambda x: ops.np.sin(x) + ops.np.exp(x), ["sin", "exp", "detach", "add"],
                 ["detach", "multiply", "cos", "multiply", "add"]),
}


@pytest.mark.parametrize("cls", [Is, Wrapped])
@pytest.mark.parametrize(("function", "forward", "on_the_way_back"), CALLS.values(), ids=CALLS.keys())
def test_what_the_tape_asks_of_a_handler(cls, function, forward, on_the_way_back):
    x = leaf([3.0], cls)
    with calls_of(cls) as calls:
        y = function(x)
    assert names(calls) == forward
    gradient = cls(np.ones(y.shape))
    with calls_of(cls) as calls:
        y.backward(gradient)
    assert names(calls) == [*on_the_way_back, "copy"], "what is stored nobody else has"
    y = function(x)
    with calls_of(cls) as calls:
        y.backward(gradient)
    assert names(calls) == [*on_the_way_back, "add"]
    y = function(x)
    with calls_of(cls) as calls:
        backward(y, gradient, inputs=[x])
    assert names(calls) == [*on_the_way_back, "add"]


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_are_of_the_class():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with calls_of(Wrapped) as calls:
        ops.np.sum(x * x).backward()
    assert type(x.grad) is Wrapped
    np.testing.assert_array_equal(x.grad.inner, [[2.0, 4.0], [6.0, 8.0]])
    assert "multiply" in names(calls)


def test_gradients_add_up():
    x = leaf([3.0])
    (x * 2).backward(Wrapped(np.ones(1)))
    first = x.grad
    (x * 2).backward(Wrapped(np.ones(1)))
    assert type(first) is type(x.grad) is Wrapped
    np.testing.assert_array_equal(x.grad.inner, [4.0])


def test_second_order():
    x = leaf([3.0])
    y = x * x * x
    (dx,) = grad(y, x, Wrapped(np.ones(1)), create_graph=True)
    (ddx,) = grad(dx, x, Wrapped(np.ones(1)))
    np.testing.assert_allclose(dx.inner, [27.0])
    np.testing.assert_allclose(ddx.inner, [18.0])
    assert type(ddx) is Wrapped


@pytest.mark.parametrize("cls", [Is, Wrapped])
def test_mixed_with_plain_leaves(cls):
    x, plain = leaf([3.0], cls), Tensor(np.array([5.0]), requires_grad=True)
    y = (x * plain).sum()
    assert type(y) is cls
    y.backward()
    np.testing.assert_array_equal(bottom(x.grad), [5.0])
    np.testing.assert_array_equal(bottom(plain.grad), [3.0])


def test_broadcasting_is_summed_away():
    x = leaf([2.0])
    y = ops.np.sum(x * Wrapped(np.arange(6.0).reshape(2, 3)))
    y.backward()
    assert x.grad.shape == (1,)
    np.testing.assert_array_equal(x.grad.inner, [15.0])


@pytest.mark.parametrize("cls", [Is, Wrapped, lambda x, **options: Wrapped(Wrapped(x), **options)],
                         ids=["is-a", "has-a", "has has-a"])
def test_a_network_gives_the_gradients_that_it_gives_plain(cls):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((4, 3), (3, 5), (5,), (5, 2))]

    def loss(x, w, b, v):
        hidden = ops.np.tanh(x @ w + b)
        out = ops.np.exp(hidden @ v)
        return ops.np.mean(out / out.sum(axis=1, keepdims=True) * ops.np.arange(2.0))

    plain = [Tensor(array, requires_grad=True) for array in arrays]
    wrapped = [cls(array, requires_grad=True) for array in arrays]
    loss(*plain).backward()
    loss(*wrapped).backward()
    for one, other in zip(wrapped, plain, strict=True):
        np.testing.assert_allclose(bottom(one.grad), other.grad.array, rtol=1e-12)


# --- versions --------------------------------------------------------------------------------------------------------


def test_detach_shares_the_version_counter():
    x = Is(np.ones(1))
    version = x._version
    ops.np.add_(x.detach(), 1)
    assert x._version == version + 1


def test_a_write_through_the_wrapper_is_noticed():
    w = leaf([3.0])
    x = w * 1
    y = x * x
    ops.np.add_(x, 1)
    assert x._version == 1
    y.backward(Wrapped(np.ones(1)))
    np.testing.assert_array_equal(w.grad.inner, [6.0])


def test_a_write_behind_its_back_is_not():
    w = leaf([3.0])
    y = w * w
    w.inner += 1
    assert w._version == 0
    y.backward(Wrapped(np.ones(1)))
    np.testing.assert_array_equal(w.grad.inner, [8.0])


# --- what else the tape does -----------------------------------------------------------------------------------------


def test_hooks_and_kept_gradients():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.retain_grad()
    seen = []
    y.register_hook(lambda gradient: (seen.append(gradient), gradient * 10)[1])
    x.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad))
    ops.np.sum(y * y).backward()
    assert list(map(type, [*seen, y.grad])) == [Wrapped] * 3
    np.testing.assert_array_equal(y.grad.inner, [40, 80])
    np.testing.assert_array_equal(x.grad.inner, [80, 160])


def test_checkpoints():
    x = leaf([1.0, 2.0])
    checkpoint(lambda x: ops.np.exp(x) * x, x).sum().backward()
    np.testing.assert_allclose(x.grad.inner, np.exp([1.0, 2.0]) * [2, 3])


def test_looking_for_nan():
    with detect_anomaly():
        x = leaf([1.0, 2.0])
        ops.np.sum(ops.np.exp(x) * x).backward()
    np.testing.assert_allclose(x.grad.inner, np.exp([1.0, 2.0]) * [2, 3])
    y = leaf([0.0], Is)
    with detect_anomaly(), np.errstate(all="ignore"):
        z = ops.np.sum(ops.np.sqrt(y) * 0.0)
        with pytest.warns(UserWarning, match="SqrtBackward"), pytest.raises(AutogradError, match="nan"):
            z.backward()


def test_gradcheck_of_what_is_an_array():
    assert gradcheck(lambda x: ops.np.sin(x) * x, (leaf([1.0, 2.0], Is),))
    with pytest.raises(DispatchTypeError, match="wrapper"):
        gradcheck(lambda x: ops.np.sin(x) * x, (leaf([1.0, 2.0]),))


def test_functions_that_write_in_place():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return ops.np.add_(x, 1)

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf([1.0, 2.0])
    y = x * 2
    assert AddOne.apply(y) is y
    y.sum().backward()
    np.testing.assert_array_equal(y.inner, [3, 5])
    np.testing.assert_array_equal(x.grad.inner, [10, 10])


def test_custom_operators(fresh):
    fresh.define("twice(Tensor x) -> Tensor")
    name = f"{fresh.namespace}::twice"
    fresh.impl("twice", lambda x: x * 2, "CPU")
    register_autograd(name, lambda ctx, g: g * 2)
    x = leaf([1.0, 2.0])
    with calls_of(Wrapped) as calls:
        find_or_raise(name)(x).sum().backward()
    assert str(calls[0].name) == name
    assert names(calls[1:]) == ["sum", "ones_like", "broadcast_to", "multiply", "copy"]
    np.testing.assert_array_equal(x.grad.inner, [2, 2])


@pytest.mark.parametrize("key", [slice(1), np.array([0, 2])], ids=["setitem_", "index_put_"])
def test_writing_a_tracked_value(key):
    x, value = leaf([1.0, 2.0, 3.0]), leaf([5.0])
    y = x * 1
    y[key] = value
    (y * y).sum().backward()
    expected = np.array([2.0, 4.0, 6.0])
    times = expected[key].size
    expected[key] = 0
    np.testing.assert_array_equal(x.grad.inner, expected)
    np.testing.assert_array_equal(value.grad.inner, [10.0 * times])


def test_other_threads_are_not_inside_of_a_handler():
    results = []

    class Waits(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            other = threading.Thread(target=lambda: results.append(Tensor(np.ones(1), requires_grad=True) * 2))
            other.start()
            other.join(10)
            results.append(Tensor(np.ones(1), requires_grad=True) * 2)
            return super().__pydispatch__(func, types, args, kwargs)

    ops.np.negative(Waits(np.ones(1)))
    assert [result.requires_grad for result in results] == [True, False]


# --- who requires grad -----------------------------------------------------------------------------------------------


def test_only_the_outer():
    inner_grads = []

    class Looks(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            out = func(*cls.unwrap(args), **cls.unwrap(kwargs))
            inner_grads.append(out.requires_grad)
            return cls(out)

    x = Looks(Tensor(np.array([3.0])), requires_grad=True)
    y = x * x
    assert y.requires_grad
    assert inner_grads == [False]
    assert not x.inner.requires_grad


def test_only_the_inner_is_a_constant():
    x = Wrapped(Tensor(np.array([3.0]), requires_grad=True))
    y = x * x
    assert not y.requires_grad
    assert not y.inner.requires_grad
    with pytest.raises(AutogradError):
        y.backward(Wrapped(np.ones(1)))


def test_the_flag_is_that_of_the_outer():
    x = Wrapped(Tensor(np.array([3.0])))
    with calls_of(Wrapped) as calls:
        assert x.requires_grad_() is x
    assert calls == []
    assert x.requires_grad
    assert not x.inner.requires_grad


def test_a_leaf_is_not_written_to():
    x = leaf([3.0])
    with calls_of(Wrapped) as calls, pytest.raises(AutogradError):
        ops.np.add_(x, 1)
    assert calls == []
    np.testing.assert_array_equal(x.inner, [3.0])


@pytest.mark.parametrize("cls", [Is, Wrapped])
def test_in_place_on_what_is_no_leaf(cls):
    x = leaf([3.0], cls)
    y = x * 2
    same = ops.np.multiply_(y, x)
    assert same is y
    y.backward(cls(np.ones(1)))
    np.testing.assert_array_equal(bottom(x.grad), [12.0])


# --- wrappers of wrappers --------------------------------------------------------------------------------------------


def test_backward_through_two():
    x = LoggingTensor(LoggingTensor(np.array([3.0])), requires_grad=True)
    y = x * x
    y.backward(LoggingTensor(LoggingTensor(np.ones(1))))
    assert type(x.grad) is LoggingTensor
    assert type(x.grad.elem) is LoggingTensor
    np.testing.assert_array_equal(x.grad.elem.elem, [6.0])
    assert not x.elem.requires_grad


# --- Functions, and what they return ---------------------------------------------------------------------------------


def test_custom_autograd():
    escaped = []

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            y = x**2
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, g):
            assert type(g) is Wrapped
            (x,) = ctx.saved_tensors
            assert type(x) is Wrapped
            escaped.append(x)
            return g * 2 * x

    x = leaf([1.0])
    x.grad = Wrapped(np.zeros(1))
    with calls_of(Wrapped) as calls:
        y = Square.apply(x)
        y.backward(Wrapped(np.ones(1)))
    assert escaped[0] is x
    assert names(calls)[0] == "square"
    assert names(calls)[1:3] == ["multiply", "multiply"]
    assert {"add", "add_"} & set(names(calls)[3:]), "the gradient is added to the one that was there"
    assert type(x.grad) is Wrapped
    np.testing.assert_array_equal(x.grad.inner, [2.0])


def test_every_tensor_that_a_handler_sees_was_made_by_it():
    made = set()
    alive = []

    class Tracks(Wrapped):
        def __init__(self, inner, *, requires_grad=False):
            super().__init__(inner, requires_grad=requires_grad)
            made.add(id(self))
            alive.append(self)

        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            for argument in args:
                if isinstance(argument, Tensor):
                    assert id(argument) in made, (func, argument)
            return super().__pydispatch__(func, types, args, kwargs)

    x = leaf([0.5], Tracks)
    y = ops.np.exp(x) * ops.np.tanh(x) + x.reshape(1, 1)[0]
    y.backward(Tracks(np.ones(1)))
    assert id(x.grad) in made
    expected = np.exp(0.5) * np.tanh(0.5) + np.exp(0.5) * (1 - np.tanh(0.5) ** 2) + 1
    np.testing.assert_allclose(x.grad.inner, [expected])


def test_none_for_a_tensor_is_refused():
    class Wrong(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return None

    x = leaf([3.0], Wrong)
    with pytest.raises(DispatchTypeError, match="np::add"):
        x + x


# --- views -----------------------------------------------------------------------------------------------------------

VIEWS = {
    "getitem": lambda x: x[1:, 0],
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.T,
    "split": lambda x: ops.np.split(x, 2)[1],
    "broadcast_to": lambda x: ops.np.broadcast_to(x, (2, 2, 3)),
    "twice": lambda x: x.T[1][::-1],
}


@pytest.mark.parametrize("cls", [Is, Wrapped, lambda x: Two(x, x)], ids=["is-a", "has-a", "two"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_gradients_of_views_of_subclasses(cls, view):
    array = np.arange(6.0).reshape(2, 3)
    x, plain = cls(array).requires_grad_(), Tensor(array, requires_grad=True)
    (view(x) * view(x)).sum().backward()
    (view(plain) * view(plain)).sum().backward()
    got = x.grad.a if isinstance(x.grad, Two) else bottom(x.grad)
    np.testing.assert_array_equal(got, plain.grad.array)


def test_writing_through_a_view_of_is_a():
    x = leaf(np.arange(4.0), Is)
    y = x * 1
    ops.np.multiply_(y[1:3], 10)
    y.sum().backward()
    assert type(x.grad) is Is
    np.testing.assert_array_equal(x.grad.array, [1, 10, 10, 1])


def test_writing_to_the_base_of_a_view_of_is_a():
    x = leaf(np.arange(4.0), Is)
    y = x * 1
    view = y[1:3]
    ops.np.multiply_(y, 10)
    view.sum().backward()
    np.testing.assert_array_equal(x.grad.array, [0, 10, 10, 0])


# --- transforms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Is, Wrapped, lambda x: Wrapped(Wrapped(x))], ids=["is-a", "has-a", "has has-a"])
def test_transforms_are_above_handlers(cls):
    array = np.array([0.5, 2.0])
    x = cls(array)
    gradient = func.grad(lambda x: ops.np.sum(ops.np.sin(x) * x))(x)
    assert type(gradient) is type(x)
    np.testing.assert_allclose(bottom(gradient), np.cos(array) * array + np.sin(array))
    second = func.grad(lambda x: ops.np.sum(func.grad(lambda x: ops.np.sum(x * x * x))(x)))(x)
    assert type(second) is type(x)
    np.testing.assert_allclose(bottom(second), 6 * array)
    value, tangent = func.jvp(lambda x: ops.np.exp(x), (x,), (cls(np.array([1.0, -1.0])),))
    assert type(value) is type(tangent) is type(x)
    np.testing.assert_allclose(bottom(tangent), np.exp(array) * [1, -1])


def test_a_handler_sees_its_objects_and_no_wrappers_of_transforms():
    seen = set()

    class Looks(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.update(map(type, args))
            return super().__pydispatch__(func, types, args, kwargs)

    func.grad(lambda x: ops.np.sum(x * x))(Looks(np.ones(2)))
    assert Looks in seen
    assert not any(issubclass(cls, _core.Wrapper) for cls in seen)


def test_autograd_inside_a_handler_under_a_mode():
    class Inside(Two):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            with restore_entry_state():
                return super().__pydispatch__(func, types, args, kwargs)

    class PassesOn(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    a, b = (Tensor(np.array([value]), requires_grad=True) for value in (2.0, 3.0))
    with PassesOn():
        y = Inside(a, b) * Inside(a, b)
    assert type(y) is Inside
    (y.a + y.b).backward(np.ones(1))
    np.testing.assert_array_equal(a.grad.array, [4.0])
    np.testing.assert_array_equal(b.grad.array, [6.0])
