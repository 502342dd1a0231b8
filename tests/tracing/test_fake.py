"""FakeMode and FakeTensor: programs on shapes alone."""

import copy
import gc
import pickle
import subprocess
import sys
import tracemalloc
import weakref
from contextlib import nullcontext

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, _core, default_backend, func, library, ops
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DataDependentError, DispatchTypeError, NoDataError, NoKernelError, StateOrderError
from pydispatch.library import custom_op, get_ctx
from pydispatch.modes import mode_stack
from pydispatch.subclasses import Shell
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import FakeMode, FakeTensor, make_fx


@pytest.fixture
def mode():
    return FakeMode()


def described(x):
    return type(x), x.shape, x.dtype, x.device, x.fake_mode


# --- conversion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [
    np.ones((2, 3), np.float32), Tensor(np.ones((2, 3), np.float32)), MetaArray((2, 3), np.float32),
], ids=["array", "tensor", "meta"])
def test_from_array(mode, x):
    device = "Meta" if isinstance(x, MetaArray) else "CPU"
    assert described(mode.from_array(x)) == (FakeTensor, (2, 3), np.float32, device, mode)


def test_the_same_array_gives_the_same_fake(mode):
    x, tensor = np.ones(3), Tensor(np.ones(3))
    assert mode.from_array(x) is mode.from_array(x)
    assert mode.from_array(tensor) is mode.from_array(tensor)
    assert mode.from_array(x) is not mode.from_array(x.copy())
    assert mode.from_array(x) is not FakeMode().from_array(x)
    fake = mode.from_array(x)
    assert mode.from_array(fake) is fake


@pytest.mark.parametrize("make", [lambda: np.ones(3), lambda: Tensor(np.ones(3))], ids=["array", "tensor"])
def test_arrays_are_not_kept_alive(mode, make):
    x = make()
    alive = weakref.ref(x)
    fake = weakref.ref(mode.from_array(x))
    del x
    gc.collect()
    assert alive() is None
    assert fake() is None


def test_another_array_at_the_same_address_gets_its_own_fake(mode):
    for n in range(50):
        assert mode.from_array(np.ones(n)).shape == (n,)


def test_a_mode_is_not_kept_alive_by_what_it_has_converted():
    mode, x = FakeMode(), np.ones(3)
    alive = weakref.ref(mode)
    mode.from_array(x)
    del mode
    gc.collect()
    assert alive() is None
    del x


def test_fakes_of_what_requires_grad_do(mode):
    assert mode.from_array(Tensor(np.ones(3), requires_grad=True)).requires_grad
    assert not mode.from_array(Tensor(np.ones(3))).requires_grad


@pytest.mark.parametrize("x", [1.5, [1, 2], None, LoggingTensor(np.ones(2))],
                         ids=["number", "list", "none", "subclass"])
def test_from_array_refuses_what_is_no_array(mode, x):
    with pytest.raises(DispatchTypeError, match=rf"from_array: expected an array.*{type(x).__name__}\n.*from_array\("):
        mode.from_array(x)


class Scaled(Tensor):
    """An array and a factor, which is not computed with."""

    def __init__(self, inner, factor):
        super().__init__(Shell(inner))
        self.inner, self.factor = inner, factor

    def __tensor_flatten__(self):
        return ["inner"], self.factor

    @staticmethod
    def __tensor_unflatten__(inner, context, shape, strides):
        return Scaled(inner["inner"], context)

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        values = [arg.inner if isinstance(arg, cls) else arg for arg in args]
        return Scaled(func(*values, **(kwargs or {})), args[0].factor)


def test_wrappers_that_can_be_taken_apart(mode):
    x = Scaled(np.ones((2, 3), np.float32), 5)
    x.requires_grad = True
    fake = mode.from_array(x)
    assert (type(fake), fake.factor, fake.requires_grad) == (Scaled, 5, True)
    assert described(fake.inner) == (FakeTensor, (2, 3), np.float32, "CPU", mode)
    assert mode.from_array(x) is fake
    with mode:
        result = ops.np.add(fake, 1)
    assert type(result) is Scaled
    assert described(result.inner) == described(fake.inner)


def test_arrays_of_other_backends(mode, backends):
    fake = mode.from_array(backends.ArrayA(np.ones((2, 3))))
    assert described(fake) == (FakeTensor, (2, 3), np.float64, "A", mode)
    assert (fake + mode.from_array(np.ones(3))).device == "A"
    assert (mode.from_array(np.ones(3)) + fake).device == "A"


def test_copies(mode):
    fake = mode.from_array(Tensor(np.ones(3), requires_grad=True))
    twin = copy.deepcopy([fake, fake])
    assert twin[0] is twin[1] is not fake
    assert described(twin[0]) == described(fake)
    assert twin[0].requires_grad
    assert described(copy.copy(fake)) == described(fake)
    with pytest.raises(DispatchTypeError, match="pickled"):
        pickle.dumps(fake)


def test_a_fake_is_made_by_its_mode():
    with pytest.raises(DispatchTypeError, match=r"an ndarray does not have a FakeMode\n.*mode\.from_array\(x\)"):
        FakeTensor(np.ones(3))


def test_repr(mode):
    fake = mode.from_array(np.ones((2, 3)))
    assert repr(fake) == str(fake) == f"{fake}" == "FakeTensor(shape=(2, 3), dtype=float64, device=CPU)"


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: ops.np.zeros((2, 3)), lambda: ops.np.full((2, 3), 0.0),
    lambda: ops.np.linspace(0, 1, 3) + ops.np.ones((2, 1)),
])
def test_factories_make_fakes(mode, make):
    with mode:
        assert described(make()) == (FakeTensor, (2, 3), np.float64, "CPU", mode)


def test_factories_make_fakes_of_the_device(mode, backends):
    with mode:
        assert ops.np.zeros(3, device="A").device == "A"
        assert ops.np.zeros(3, device="Meta").device == "Meta"
        assert ops.np.zeros_like(ops.np.zeros(3), device="A").device == "A"
        with default_backend("A"):
            assert ops.np.zeros(3).device == "A"


def test_a_device_that_is_passed_by_position(mode, fresh):
    f = custom_op(f"{fresh.namespace}::f", lambda n, device: np.zeros(n), mutates_args=(),
                  schema="(int n, Device device) -> Tensor")
    f.register_fake(lambda n, device: ops.np.zeros((n,), device=device))
    with mode:
        assert described(f(10**12, "CPU")) == (FakeTensor, (10**12,), np.float64, "CPU", mode)


def test_outside_of_the_mode_factories_are_real(mode):
    with mode:
        pass
    assert isinstance(ops.np.zeros(3), np.ndarray)


def test_a_fake_reenters_its_mode(mode):
    x = mode.from_array(np.ones((2, 3)))
    assert described(ops.np.sin(x) + 1) == (FakeTensor, (2, 3), np.float64, "CPU", mode)
    assert described(x[0]) == (FakeTensor, (3,), np.float64, "CPU", mode)


def test_entering_the_same_mode_twice_does_nothing(mode):
    with mode, FakeMode() as other, mode as again:
        assert again is mode
        assert mode_stack() == (mode, other)
    with mode:
        with mode:
            assert mode_stack() == (mode,)
        assert mode_stack() == (mode,)
    assert mode_stack() == ()


def test_modes_that_are_left_in_another_order(mode):
    other = FakeMode()
    mode.__enter__()
    other.__enter__()
    mode.__enter__()
    mode.__exit__(None, None, None)
    with pytest.raises(StateOrderError):
        mode.__exit__(None, None, None)
    assert mode_stack() == (other,)
    other.__exit__(None, None, None)
    assert mode_stack() == ()
    with pytest.raises(StateOrderError):
        mode.__exit__(None, None, None)


def test_entries_are_undone_when_an_error_passes(mode):
    with mode:
        with pytest.raises(ZeroDivisionError), mode:
            raise ZeroDivisionError
        assert mode_stack() == (mode,)
    assert mode_stack() == ()


def test_a_decorated_function(mode):
    assert type(mode(lambda: ops.np.zeros(3))()) is FakeTensor


@pytest.mark.parametrize("real", [np.ones(3), Tensor(np.ones(3)), MetaArray((3,))], ids=["array", "tensor", "meta"])
@pytest.mark.parametrize("inside", [True, False])
def test_arrays_with_data_are_refused(mode, real, inside):
    x = mode.from_array(np.ones(3))
    message = r"operator np::add: argument x2 holds an array .*expected a FakeTensor.*\n.*mode\.from_array\(x2\)"
    with mode if inside else nullcontext(), pytest.raises(DispatchTypeError, match=message):
        ops.np.add(x, real)


def test_arrays_with_data_are_refused_where_there_is_no_fake(mode):
    with mode, pytest.raises(DispatchTypeError, match=r"np::sin: argument x holds an array"):
        ops.np.sin(np.ones(3))
    with mode, pytest.raises(DispatchTypeError, match=r"np::concatenate: argument arrays holds an array"):
        ops.np.concatenate([np.ones(3), np.ones(2)])


def test_scalars_of_numpy_are_literals(mode):
    x = mode.from_array(np.ones(3, np.float32))
    assert (x * np.float64(2)).dtype == np.float64
    assert (x * 2.0).dtype == np.float32
    assert x[np.int64(1)].shape == ()


def test_real_inputs_that_are_allowed():
    mode = FakeMode(allow_real_inputs=True)
    x = mode.from_array(np.ones((3, 4)))
    assert described(x + np.ones(4)) == described(x)
    assert described(np.ones((3, 1)) + x) == described(x)
    assert x[np.array([True, False, True])].shape == (2, 4)
    with mode:
        assert described(ops.np.sin(Tensor(np.ones((3, 4))))) == described(x)
        assert described(ops.np.add(np.ones((3, 1)), np.ones(4))) == described(x)


@pytest.mark.parametrize("write", [
    lambda target, x: ops.np.add_(target, x), lambda target, x: ops.np.add_(target, 1),
    lambda target, x: ops.np.add(x, x, out=target), lambda target, x: ops.np.setitem_(target, 0, x[0]),
])
def test_real_inputs_are_never_written_to(write):
    mode, target = FakeMode(allow_real_inputs=True), np.zeros(3)
    x = mode.from_array(np.ones(3))
    with mode, pytest.raises(DispatchTypeError, match=r"argument \w+ holds an array with data, expected a FakeTensor"):
        write(target, x)
    assert target.tolist() == [0, 0, 0]


def test_fakes_of_two_modes_do_not_mix(mode):
    x, y = mode.from_array(np.ones(3)), FakeMode().from_array(np.ones(3))
    assert (x + x).shape == (y + y).shape       # the answer for two arrays of one mode is known
    with pytest.raises(DispatchTypeError, match=r"np::add: found a FakeTensor of another FakeMode.*\n.*one mode"):
        x + y
    with mode, pytest.raises(DispatchTypeError, match="of another FakeMode"):
        ops.np.sin(x) + y
    with pytest.raises(DispatchTypeError, match="from_array: found a FakeTensor of another FakeMode"):
        mode.from_array(y)


def test_what_one_mode_has_found_another_one_knows(mode, monkeypatch):
    expected = mode.from_array(np.ones((3, 1))) + mode.from_array(np.ones((1, 11), np.float32))
    other = FakeMode()
    monkeypatch.setattr(FakeMode, "_find", None)
    found = other.from_array(np.zeros((3, 1))) + other.from_array(np.zeros((1, 11), np.float32))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype) == ((3, 11), np.float64)
    assert found.fake_mode is other


def test_each_mode_asks_the_meta_kernels_of_users():
    asked = []

    def meta(x, **options):
        asked.append(x.shape)
        return MetaArray((len(asked),), x.dtype)

    before = ops.np.cosh(FakeMode().from_array(np.ones(13)))
    with library.impl("np::cosh", "Meta", meta):
        during = [ops.np.cosh(FakeMode().from_array(np.ones(13))).shape for _ in range(2)]
    after = ops.np.cosh(FakeMode().from_array(np.ones(13)))
    assert asked == [(13,), (13,)]
    assert during == [(1,), (2,)]
    assert before.shape == after.shape == (13,)


def test_dtypes_that_are_equal_keep_their_numbers():
    for code in "lql":
        fake = FakeMode().from_array(np.zeros(3, code))
        assert ops.np.negative(fake).dtype.num == fake.dtype.num == np.dtype(code).num


def test_classes_that_it_does_not_know_come_first(mode):
    x = LoggingTensor(mode.from_array(np.ones(3)))
    with mode:
        y = x + 1
    assert type(y) is LoggingTensor
    assert type(y.elem) is FakeTensor
    assert type(x + mode.from_array(np.ones(3))) is LoggingTensor


def test_modes_around_and_inside_see_the_calls(mode):
    seen = []

    class Seeing(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append((str(func.name), types))
            return func(*args, **(kwargs or {}))

    x = mode.from_array(np.ones(3))
    with Seeing(), mode:
        ops.np.sin(x)
    with mode, Seeing():
        ops.np.cos(x)
        assert type(ops.np.zeros(3)) is FakeTensor
    assert seen == [("np::sin", (FakeTensor,)), ("np::cos", (FakeTensor,)), ("np::zeros", ())]


def test_in_place_gives_the_same_object(mode):
    x = mode.from_array(np.ones((2, 3)))
    y = x
    y += mode.from_array(np.ones(3))
    assert y is x
    assert ops.np.add(x, 1, out=x) is x
    assert ops.np.multiply(x[0], 2, out=x[1]).shape == (3,)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        ops.np.add_(mode.from_array(np.ones(3)), x)


def test_an_out_is_what_was_passed_however_often_the_call_was_made(mode):
    x, y = mode.from_array(np.ones(3)), mode.from_array(np.ones(3).copy())
    for out in (x, y, x):
        assert ops.np.add(x, x, out=out) is out
        assert ops.np.add(x, y, out=out) is out
        assert ops.np.add_(out, out) is out


def test_literals_of_other_types_are_other_calls(mode):
    x = mode.from_array(np.ones(3, np.int8))
    assert [(x + number).dtype for number in (1, 1.0, True, 1j) for _ in range(2)] == [
        *[np.int8] * 2, *[np.float64] * 2, *[np.int8] * 2, *[np.complex128] * 2]
    for _ in range(2):
        assert (x + 1).dtype == np.int8
        with pytest.raises(OverflowError):
            x + 300
    assert x[:2].shape == (2,)
    assert x[:1].shape == (1,)


def test_views_share_memory(mode):
    x = mode.from_array(np.ones((2, 3)))
    for _ in range(2):
        view = x.T[0].reshape(2, 1)
        before = x._version
        view += 1
        assert x._version == view._version == before + 1
    assert x.copy()._version == 0


def test_a_new_registration_is_seen(mode):
    x = mode.from_array(np.ones(3))
    with mode:
        assert ops.np.sin(x).shape == (3,)
        with library.impl("np::sin", "Meta", lambda x, **options: MetaArray((7,))):
            assert ops.np.sin(x).shape == (7,)
        assert ops.np.sin(x).shape == (3,)


@pytest.mark.parametrize(("convert", "shares"), [
    (lambda x: ops.np.astype(x, np.dtype(float)), False), (lambda x: ops.np.astype(x, np.dtype(int)), False),
    (lambda x: ops.np.astype(x, np.dtype(int), copy=False), True), (lambda x: ops.np.real(x), True),
    (lambda x: ops.np.reshape(x, (3, 2), copy=True), False), (lambda x: x[:1], True), (lambda x: x.T, True),
], ids=range(7))
def test_results_of_operators_that_may_return_views(mode, convert, shares):
    array = np.arange(6).reshape(2, 3)
    for source in (mode.from_array(array), mode.from_array(array) * 2):
        for _ in range(2):
            assert _core.have_one_memory(convert(source), source) == shares

    def function(x):
        source = ops.np.negative(x)
        result = convert(source)
        result += 1
        return source, result

    graph = make_fx(func.functionalize(function), tracing_mode="fake")(array)
    for found, expected in zip(graph(array), function(array), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_memory_of_a_mode_is_bounded(mode, monkeypatch):
    monkeypatch.setattr("pydispatch.tracing.fake.CAPACITY", 8)
    x = mode.from_array(np.ones(100))
    for n in range(100):
        assert x[:n].shape == (n,)
    assert len(mode._answers) <= 8


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [bool, float, int, complex, lambda x: x.item(), ops.np.item, lambda x: [][x]],
                         ids=["bool", "float", "int", "complex", "item", "ops.item", "index"])
def test_numbers_depend_on_data(mode, ask):
    x = mode.from_array(np.ones((), int))
    with pytest.raises(DataDependentError, match=r"operator np::item.*\n.*where\("):
        ask(x)
    with mode, pytest.raises(DataDependentError, match=r"operator np::item.*\n.*where\("):
        ask(x)


def test_a_branch_on_data_is_refused(mode):
    x = mode.from_array(np.ones(3))
    with mode, pytest.raises(DataDependentError, match="np::item"):
        not ops.np.sum(x) > 0


@pytest.mark.parametrize("ask", [np.asarray, lambda x: x.numpy(), lambda x: x.tolist()],
                         ids=["asarray", "numpy", "tolist"])
def test_nothing_leaves_for_numpy(mode, ask):
    with pytest.raises(DispatchTypeError, match=r"without|no data"):
        ask(mode.from_array(np.ones(3)))


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: ops.np.full((), 2.5), 2.5),
    (lambda: ops.np.zeros((1, 1)), 0.0),
    (lambda: ops.np.arange(7, 8), 7),
    (lambda: ops.np.add(2, 0.5), 2.5),
    (lambda: ops.np.full((), 2.0) * 3 + 1, 7.0),
    (lambda: ops.np.sin(np.float64(0.5)), float(np.sin(0.5))),
    (lambda: ops.np.ones((1,)).reshape(()), 1.0),
    (lambda: ops.np.astype(ops.np.full((), 2.5), np.dtype(int)), 2),
    (lambda: ops.np.full((), 2.0).detach(), 2.0),
    (lambda: ops.np.full((), 2.0, device="Meta"), 2.0),
])
def test_small_constants_have_a_value(mode, make, expected):
    with mode:
        x = make()
    assert type(x) is FakeTensor
    assert x.item() == expected
    assert type(x.item()) is type(expected)
    assert bool(x) == bool(expected)


@pytest.mark.parametrize("make", [
    lambda x: ops.np.zeros(2)[0], lambda x: ops.np.full((), 1.0) + x, lambda x: ops.np.empty(1),
    lambda x: ops.np.sum(ops.np.ones(2)), lambda x: ops.np.zeros_like(x),
])
def test_what_is_no_small_constant_has_none(mode, make):
    with mode, pytest.raises(DataDependentError):
        make(mode.from_array(np.ones(()))).item()


@pytest.mark.parametrize("write", [
    lambda x, other: ops.np.add_(x, 1), lambda x, other: ops.np.add(other, 1, out=x),
    lambda x, other: ops.np.setitem_(x.reshape((1, 1)), (0, 0), 3), lambda x, other: ops.np.multiply_(x.T, other),
    lambda x, other: ops.np.multiply_(x.detach(), other),
], ids=["in place", "out", "to a view", "to a transposed", "to a detached"])
def test_a_write_forgets_the_value(mode, write):
    with mode:
        x, view = ops.np.full(1, 2.0), None
        view = x.reshape(())
        assert x.item() == view.item() == 2
        write(x, ops.np.full(1, 2.0))
        for forgetful in (x, view, x + 1):
            with pytest.raises(DataDependentError):
                forgetful.item()


def test_constants_of_many_elements_have_no_item(mode):
    with pytest.raises(ValueError, match="one element"):
        mode.from_array(np.ones(3)).item()


# --- operators of others ---------------------------------------------------------------------------------------------


def test_a_registered_fake_is_run(mode, fresh):
    f = custom_op(f"{fresh.namespace}::f", lambda x, n: np.repeat(x, n), mutates_args=(),
                  schema="(Tensor x, int n) -> Tensor")
    f.register_fake(lambda x, n: ops.np.zeros((x.shape[0] * n,), dtype=x.dtype))
    x = mode.from_array(np.ones(10**6, np.float32))
    assert described(f(x, 10**6)) == (FakeTensor, (10**12,), np.float32, "CPU", mode)


def test_without_a_fake_the_error_says_how_to_register_one(mode, fresh):
    f = custom_op(f"{fresh.namespace}::f", lambda x: x.copy(), mutates_args=(), schema="(Tensor x) -> Tensor")
    with mode, pytest.raises(NoKernelError, match=rf"(?s){fresh.namespace}::f.*no fake.*register_fake") as caught:
        f(mode.from_array(np.ones(3)))
    assert "which comes from argument 'x' (position 1, FakeTensor)" in str(caught.value)


@pytest.mark.parametrize(("ask", "error", "message"), [
    (lambda x: x.numpy(), NoDataError, r"^FakeTensor\.numpy\(\): a FakeTensor has .* no data\nread these"),
    (lambda x: x.tolist(), NoDataError, r"^FakeTensor\.tolist\(\): a FakeTensor has .* no data\nread these"),
    (lambda x: np.asarray(x), NoDataError, r": a FakeTensor has .* no data\nread these"),
    (lambda x: ops.np.zeros(x), DispatchTypeError, r"'shape' \(position 1\): .* found FakeTensor .* no data"),
    (lambda x: Tensor(x), DispatchTypeError, r"^Tensor must define __pydispatch__ to wrap a FakeTensor, which has no"),
    (lambda x: len(x[0]), TypeError, r"^an array of shape \(\) has no len\(\)\nread \.shape"),
], ids=["numpy", "tolist", "asarray", "shape", "Tensor", "len"])
def test_errors_call_a_fake_what_it_is(mode, ask, error, message):
    x = mode.from_array(np.ones(3))
    with mode, pytest.raises(error, match=message) as caught:
        ask(x)
    assert "Shell" not in str(caught.value)


def test_a_composite_needs_no_fake(mode, fresh, define):
    f = define(fresh, "f(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: ops.np.sin(x) * ops.np.ones(x.shape))
    x = mode.from_array(np.ones(3))
    with mode:
        assert described(f(x)) == described(x)


def test_operators_that_only_write_need_no_fake(mode, fresh):
    f = custom_op(f"{fresh.namespace}::f", lambda x: None, mutates_args=("x",), schema="(Tensor(a!) x) -> ()")
    x = mode.from_array(np.ones(3))
    assert f(x) is None
    assert x._version == 1


def test_a_composite_that_asks_for_data_is_told_so(mode, fresh, define):
    f = define(fresh, "f(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: x if ops.np.sum(x) > 0 else -x)
    with mode, pytest.raises(DataDependentError, match="np::item"):
        f(mode.from_array(np.ones(3)))


@pytest.mark.parametrize("ask", [np.asarray, bool, lambda x: x.shape if x else None], ids=["asarray", "bool", "if"])
def test_a_fake_that_asks_for_data_is_told_so(mode, fresh, ask):
    f = custom_op(f"{fresh.namespace}::f", lambda x: x.copy(), mutates_args=(), schema="(Tensor x) -> Tensor")
    f.register_fake(ask)
    with pytest.raises(DataDependentError, match=rf"operator {fresh.namespace}::f: .*values.*\n.*register_fake"):
        f(mode.from_array(np.ones(3)))


@pytest.mark.parametrize(("ask", "error", "message"), [
    (lambda ctx: ctx.create_unbacked_symint(min=1), ValueError, "greater than or equal to 2"),
    (lambda ctx: ctx.create_unbacked_symint(min=-1), ValueError, "greater than or equal to 2"),
    (lambda ctx: ctx.new_dynamic_size(min=-1), ValueError, "greater than or equal to 0"),
    (lambda ctx: ctx.new_dynamic_size(min=3, max=2), ValueError, "greater than or equal to min=3"),
    (lambda ctx: ctx.new_dynamic_size(min="n"), ValueError, "min='n'.*expected an int"),
    (lambda ctx: ctx.new_dynamic_size(max=2.5), ValueError, "max=2.5.*expected an int"),
    (lambda ctx: ctx.new_dynamic_size(), DataDependentError, "data-dependent output shape"),
    (lambda ctx: ctx.new_dynamic_size(min=2, max=5), DataDependentError, "data-dependent output shape"),
    (lambda ctx: ctx.create_unbacked_symint(), DataDependentError, "data-dependent output shape"),
], ids=["65", "65", "65 now", "max<min", "66 min", "66 max", "68", "68 bounds", "68 then"])
def test_sizes_that_depend_on_data(mode, fresh, ask, error, message):
    name = f"{fresh.namespace}::f"
    f = custom_op(name, lambda x: np.flatnonzero(x), mutates_args=(), schema="(Tensor x) -> Tensor")
    f.register_fake(lambda x: MetaArray((ask(get_ctx()),), int))
    with mode, pytest.raises(error, match=rf"operator {name}: its fake \(registered at [^,]*\)(:| req).*{message}"):
        f(mode.from_array(np.ones(3)))
    assert get_ctx() is None


# --- gradients -------------------------------------------------------------------------------------------------------


def network(x, w, b):
    h = ops.np.tanh(x @ w + b)
    return ops.np.mean((h.reshape((-1,)) * h.reshape((-1,))) ** 2)


def test_backward(mode):
    x = mode.from_array(np.ones((5, 3), np.float32))
    w, b = (mode.from_array(Tensor(np.ones(shape, np.float32), requires_grad=True)) for shape in ((3, 4), (4,)))
    with mode:
        network(x, w, b).backward()
    assert (type(w.grad), w.grad.shape, w.grad.dtype) == (FakeTensor, (3, 4), np.float32)
    assert (type(b.grad), b.grad.shape, b.grad.dtype) == (FakeTensor, (4,), np.float32)
    assert x.grad is None
    with mode:
        network(x, w, b).backward()
    assert w.grad.shape == (3, 4)


def test_backward_outside_of_the_mode(mode):
    w = mode.from_array(Tensor(np.ones((3, 4)), requires_grad=True))
    network(mode.from_array(np.ones((5, 3))), w, mode.from_array(np.ones(4))).backward()
    assert described(w.grad) == described(w)


def test_func_grad(mode):
    w = mode.from_array(np.ones((3, 4)))
    x, b = mode.from_array(np.ones((5, 3))), mode.from_array(np.ones(4))
    with mode:
        assert described(func.grad(lambda w: network(x, w, b))(w)) == described(w)
    assert described(func.grad(lambda w: network(x, w, b))(w)) == described(w)
    with mode:
        second = func.grad(lambda w: ops.np.sum(func.grad(lambda w: network(x, w, b))(w) ** 2))(w)
    assert described(second) == described(w)


def test_backward_on_meta_arrays():
    w = Tensor(MetaArray((10**6, 10**6)), requires_grad=True)
    network(MetaArray((5, 10**6)), w, MetaArray((10**6,))).backward()
    assert (w.grad.shape, w.grad.dtype, w.grad.device) == ((10**6, 10**6), np.float64, "Meta")


# --- memory ----------------------------------------------------------------------------------------------------------


def huge_step():
    """Forward and backward of a network whose activations and parameters have 10^9 elements and more."""
    mode = FakeMode()
    with mode:
        x, w, b = ops.np.zeros((10**5, 10**4)), ops.np.zeros((10**4, 10**5)), ops.np.zeros(10**5)
        w.requires_grad = b.requires_grad = True
        network(x, w, b).backward()
        assert w.grad.shape == (10**4, 10**5)
        assert b.grad.shape == (10**5,)
        return ops.np.zeros((10**6, 10**6))


def test_a_fake_run_allocates_next_to_nothing():
    huge_step()
    tracemalloc.start()
    try:
        assert huge_step().size == 10**12
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


PROGRAM = """
import resource
import pydispatch.func
from tests.tracing.test_fake import huge_step
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
huge_step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_fake_run_takes_less_than_ten_megabytes():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 10 * 1024


def test_a_new_fake_is_like_that_of_an_array_by_itself(mode):
    x = np.ones((2, 3), np.float32)
    one, other = mode.new_fake(x.shape, x.dtype), mode.new_fake(x.shape, x.dtype)
    assert described(one) == described(mode.from_array(x))
    assert one.array is not other.array
    assert one.array.base is other.array.base is None


def test_fakes_of_arrays_that_share_memory_share_theirs():
    base = np.arange(6.0)
    with FakeMode() as mode:
        head, tail, other = mode.from_array(base[:4]), mode.from_array(Tensor(base[2:])), mode.from_array(base.copy())
        assert _core.have_one_memory(head, tail)
        assert not _core.have_one_memory(head, other)


def test_a_traced_functionalization_on_fakes_refuses_inputs_that_share_memory():
    def program(x, y):
        ops.np.multiply_(x, 2.0)
        return y + 1.0

    base = np.arange(6.0)
    with pytest.raises(RuntimeError, match="share memory"):
        make_fx(func.functionalize(program), tracing_mode="fake")(base[:4], base[2:])


def ones(x):
    """Return a value that does not depend on x."""
    return ops.np.sum(ops.np.ones(2))


def sum_of_cubes(x):
    return ops.np.sum(x * x * x)


@pytest.mark.parametrize(("transform", "shape"), [
    (func.vmap(func.grad(ones)), (2, 3)),
    (func.vmap(lambda x: func.jvp(ones, (x,), (x,))[1]), (2,)),
    (lambda x: func.jvp(func.grad(ones), (x,), (x,))[1], (2, 3)),
    (lambda x: func.jvp(lambda y: (ones(y),), (x,), (x,))[1][0], ()),
    (lambda x: func.jvp(lambda y: (y + 1, y), (x,), (x,))[1][0], (2, 3)),
    (func.vmap(ones), (2,)),
    (func.jacrev(sum_of_cubes), (2, 3)),
    (func.jacfwd(sum_of_cubes), (2, 3)),
    (func.hessian(sum_of_cubes), (2, 3, 2, 3)),
    (func.jacrev(func.jacrev(sum_of_cubes)), (2, 3, 2, 3)),
    (func.jacfwd(func.jacfwd(sum_of_cubes)), (2, 3, 2, 3)),
    (func.vmap(func.hessian(sum_of_cubes)), (2, 3, 3)),
    (lambda x: func.jacrev(lambda y, z: (y[0] * z).sum())(x, x), (2, 3)),
], ids=["zero gradient", "zero tangent", "zero tangent of a gradient", "zero tangent in a tuple",
        "tangent in a tuple", "constant", "jacrev", "jacfwd", "hessian",
        "jacrev jacrev", "jacfwd jacfwd", "vmap hessian", "jacrev of a part"])
def test_transforms_of_fakes_are_fakes(mode, transform, shape):
    with mode:
        found = transform(mode.from_array(np.ones((2, 3))))
    assert described(found) == (FakeTensor, shape, np.dtype(float), "CPU", mode)


def test_unit_vectors_by_operators_are_those_of_numpy():
    x = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])

    def program(x, y):
        return {"a": x[0] * y[:, 1].sum(), "b": (x * x).sum(), "c": x[:, 2] * y[0, :2]}

    for jacobian in (func.jacrev(program, (0, 1)), func.jacfwd(program, (0, 1))):
        found, expected = make_fx(jacobian, tracing_mode="fake")(x, x + 1)(x, x + 1), jacobian(x, x + 1)
        assert found.keys() == expected.keys()
        for name in found:
            for one, other in zip(found[name], expected[name], strict=True):
                np.testing.assert_array_equal(one, other, strict=True)
