"""LoggingTensor and LoggingMode: their logs and the format of a line."""

import asyncio
import gc
import weakref
from collections import namedtuple

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops
from pydispatch.exceptions import AutogradError
from pydispatch.library import Library
from pydispatch.testing import LoggingMode, LoggingTensor, capture_logs, log_input

Pair = namedtuple("Pair", "left right")


def lines(text):
    return [line.strip() for line in text.strip().splitlines()]


def logged(data, dtype=np.float64, name="x", requires_grad=False):
    """Return a LoggingTensor that has been logged as an input."""
    tensor = LoggingTensor(np.array(data, dtype), requires_grad=requires_grad)
    log_input(name, tensor)
    return tensor


@pytest.fixture(scope="module")
def samples():
    """Provide a library with one operator for each form of argument and result."""
    with Library("logged", "DEF") as library:
        library.define("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
        library.impl("addmv", lambda self, mat, vec, *, beta=1, alpha=1: beta * self + alpha * mat @ vec, "CPU")
        library.define('foo(Tensor x, Tensor?[] ys, str s="a", float[]? f=None, *, bool b=True)'
                       " -> (Tensor, Tensor[], int)")
        library.impl("foo", lambda x, ys, *args, **options: (x + 0, (x + 1, x + 2), 3), "CPU")
        library.define("width(Tensor x) -> int")
        library.impl("width", lambda x: x.shape[-1], "CPU")
        library.define("nested(Any tree, ScalarType? dtype=None) -> Tensor")
        library.impl("nested", lambda tree, dtype=None: np.zeros(2), "CompositeExplicitAutograd")
        yield ops.logged


# --- logs ---


def test_a_gradients_are_logged_like_calls():
    with capture_logs() as log:
        x = logged([3.0], np.float32, requires_grad=True)
        gradient, = autograd.grad(x * x, x, logged([1.0], np.float32, "grad_y"))
    assert log == lines("""
        $0: f32[1] = input('x')
        $1: f32[1] = np.multiply($0, $0)
        $2: f32[1] = input('grad_y')
        $3: f32[1] = np.multiply($2, $0)
        $4: f32[1] = np.add($3, $3)
        $5: f32[1] = np.copy($4)
    """)
    assert type(gradient) is LoggingTensor
    np.testing.assert_array_equal(gradient.elem.array, np.array([6.0], np.float32), strict=True)


def test_b_out_is_the_last_keyword():
    with capture_logs() as log:
        x, y = logged([-1.0]), logged([0.0], name="y")
        result = ops.np.absolute(x, out=y)
    assert log == lines("""
        $0: f64[1] = input('x')
        $1: f64[1] = input('y')
        $2: f64[1] = np.absolute.out($0, out=$1)
    """)
    assert result is y
    assert y.elem.item() == 1.0


def test_c_keyword_only_arguments_are_stripped_one_by_one(samples):
    with capture_logs() as log:
        x, mat, vec = logged([1.0]), logged([[1.0]], name="mat"), logged([1.0], name="vec")
        for options in ({}, {"beta": 1}, {"beta": 2}, {"alpha": 2}, {"alpha": 2, "beta": 2}):
            samples.addmv(x, mat, vec, **options)
    assert log[3:] == lines("""
        $3: f64[1] = logged.addmv($0, $1, $2)
        $4: f64[1] = logged.addmv($0, $1, $2)
        $5: f64[1] = logged.addmv($0, $1, $2, beta=2)
        $6: f64[1] = logged.addmv($0, $1, $2, alpha=2)
        $7: f64[1] = logged.addmv($0, $1, $2, beta=2, alpha=2)
    """)


def test_d_a_saved_result_is_detached_when_it_is_saved_and_when_it_is_read():
    with capture_logs() as log:
        x = logged([0.0, 1.0], requires_grad=True)
        ops.np.exp(x).sum().backward()
    assert log == lines("""
        $0: f64[2] = input('x')
        $1: f64[2] = np.exp($0)
        $2: f64[2] = np.detach($1)
        $3: f64[] = np.sum($1)
        $4: f64[] = np.ones_like($3)
        $5: f64[2] = np.broadcast_to($4, (2,))
        $6: f64[2] = np.detach($2)
        $7: f64[2] = np.multiply($5, $6)
        $8: f64[2] = np.copy($7)
    """)
    assert type(x.grad) is LoggingTensor
    np.testing.assert_allclose(x.grad.elem.array, np.exp([0.0, 1.0]), rtol=1e-15)


def test_e_lists_and_tuples():
    with capture_logs() as log:
        x = logged([1.0, 2.0, 3.0, 4.0], np.float32)
        ops.np.split(x, 2)
        ops.np.split(x, [1, 3])
        for _ in x:
            pass
        ops.np.stack([x, x])
        ops.np.concatenate([x, x])
        ops.np.argmax(x.reshape(2, 2), 0)
    assert log == lines("""
        $0: f32[4] = input('x')
        ($1: f32[2], $2: f32[2]) = np.split($0, 2)
        ($3: f32[1], $4: f32[2], $5: f32[1]) = np.split($0, (1, 3))
        $6: f32[] = np.getitem($0, 0)
        $7: f32[] = np.getitem($0, 1)
        $8: f32[] = np.getitem($0, 2)
        $9: f32[] = np.getitem($0, 3)
        $10: f32[2, 4] = np.stack(($0, $0))
        $11: f32[8] = np.concatenate(($0, $0))
        $12: f32[2, 2] = np.reshape($0, (2, 2))
        $13: i64[2] = np.argmax($12, 0)
    """)


def test_f_writes_views_and_indices():
    with capture_logs() as log:
        x = logged(np.zeros((3, 3)))
        row = x[0]
        row += 1.0
        x[1, 2] = Tensor(np.array(5.0))
        mask = x > 0
        x[mask] = 7.0
        x[np.array([0, 1])]
    assert log == lines("""
        $0: f64[3, 3] = input('x')
        $1: f64[3] = np.getitem($0, 0)
        $2: f64[3] = np.add_($1, 1.0)
        $3: f64[3, 3] = np.setitem_($0, (1, 2), Tensor(5.))
        $4: b8[3, 3] = np.greater($0, 0)
        $5: f64[3, 3] = np.index_put_($0, $4, 7.0)
        $6: f64[2, 3] = np.index($0, array([0, 1]))
    """)
    np.testing.assert_array_equal(x.elem.array, [[7, 7, 7], [0, 0, 7], [0, 0, 0]])


def test_g_the_inner_of_two_logs_first():
    with capture_logs() as log:
        x = LoggingTensor(LoggingTensor(np.zeros(2)))
        log_input("x", x)
        y = x + 1
    assert log == lines("""
        $0: f64[2] = input('x')
        $2: f64[2] = np.add($1, 1)
        $3: f64[2] = np.add($0, 1)
    """)
    assert [type(value) for value in (y, y.elem, y.elem.elem)] == [LoggingTensor, LoggingTensor, Tensor]


def test_h_of_two_modes_the_outer_logs_first_and_numbers_are_shared():
    x, y = Tensor(np.array(1.0)), Tensor(np.array(2.0))
    with capture_logs(is_mode=True) as log, LoggingMode(), LoggingMode():
        made = ops.np.empty(())
        x + y
    assert log == lines("""
        $0: f64[] = np.empty(())
        $0: f64[] = np.empty(())
        $3: f64[] = np.add($1, $2)
        $3: f64[] = np.add($1, $2)
    """)
    assert made.shape == ()


def test_i_scalars_stay_scalars():
    with capture_logs() as log:
        x = logged([1.0, 2.0], np.float32)
        x + Tensor(np.array(2.0))
        x + 2.0
        x + 2
        ops.np.multiply(2, x)
        2 - x
        ops.np.power(2, x)
    assert log == lines("""
        $0: f32[2] = input('x')
        $1: f64[2] = np.add($0, Tensor(2.))
        $2: f32[2] = np.add($0, 2.0)
        $3: f32[2] = np.add($0, 2)
        $4: f32[2] = np.multiply(2, $0)
        $5: f32[2] = np.subtract(2, $0)
        $6: f32[2] = np.power(2, $0)
    """)


def test_j_every_kind_of_argument_and_result(samples):
    with capture_logs() as log:
        x = logged([1.0, 2.0])
        samples.foo(x, [None, x], "b")
        samples.foo(x, [None], f=[1, 2], b=False)
    assert log == lines("""
        $0: f64[2] = input('x')
        ($1: f64[2], ($2: f64[2], $3: f64[2]), 3) = logged.foo($0, (None, $0), 'b')
        ($4: f64[2], ($5: f64[2], $6: f64[2]), 3) = logged.foo($0, (None,), 'a', (1.0, 2.0), b=False)
    """)


# --- the rules ---


def test_other_arrays_are_shown_to_tensors_and_numbered_in_modes():
    x, raw = LoggingTensor(np.zeros(2)), np.ones((2, 2))
    with capture_logs() as shown, capture_logs(is_mode=True) as numbered:
        ops.np.matmul(x, raw)
    assert shown == ["$1: f64[2] = np.matmul($0, array([[1., 1.], [1., 1.]]))"]
    assert numbered == ["$2: f64[2] = np.matmul($0, $1)"]


def test_a_number_is_of_one_object_and_not_of_its_address():
    with capture_logs(is_mode=True) as log:
        for _ in range(50):
            log_input("x", np.zeros(3))
    assert [line.partition(":")[0] for line in log] == [f"${number}" for number in range(50)]


def test_numbers_do_not_keep_arrays_alive():
    x = LoggingTensor(np.zeros(3))
    reference = weakref.ref(x)
    with capture_logs():
        log_input("x", x)
        del x
        gc.collect()
        assert reference() is None


def test_scalars_of_numpy_are_arrays():
    with capture_logs(is_mode=True) as log, LoggingMode():
        total = ops.np.sum(np.ones(3))
        ops.np.multiply(total, 2)
    assert log == ["$1: f64[] = np.sum($0)", "$2: f64[] = np.multiply($1, 2)"]


@pytest.mark.parametrize(("dtype", "text"), [
    ("f8", "f64"), ("f4", "f32"), ("f2", "f16"), ("c8", "c64"), ("c16", "c128"), ("i1", "i8"), ("i2", "i16"),
    ("i4", "i32"), ("i8", "i64"), ("u1", "u8"), ("u2", "u16"), ("u4", "u32"), ("u8", "u64"), ("?", "b8"),
    ("M8[s]", "datetime64[s]"), ("U3", "<U3"), ("O", "object"),
])
def test_logged_types(dtype, text):
    with capture_logs() as log:
        logged(np.zeros((2, 0, 1), dtype), dtype)
    assert log == [f"$0: {text}[2, 0, 1] = input('x')"]


def test_what_is_no_array_is_shown(samples):
    with capture_logs(is_mode=True) as log, LoggingMode():
        samples.nested({"a": [np.zeros(1), None], "b": Pair("c", slice(1, None))}, np.float32)
        samples.nested([], "f8")
    assert log == lines("""
        $1: f64[2] = logged.nested({'a': [$0, None], 'b': Pair(left='c', right=slice(1, None, None))}, dtype('float32'))
        $2: f64[2] = logged.nested((), dtype('float64'))
    """)


def test_a_result_that_is_no_array(samples):
    with capture_logs() as log:
        samples.width(logged([1.0, 2.0]))
    assert log[1:] == ["2 = logged.width($0)"]


@pytest.mark.parametrize("convert", [float, bool, Tensor.item], ids=["float", "bool", "item"])
def test_numbers_are_read_by_an_operator(convert):
    with capture_logs() as log:
        assert convert(logged(2.0)) == convert(Tensor(np.array(2.0)))
    assert log == ["$0: f64[] = input('x')", "2.0 = np.item($0)"]


def test_a_mode_shows_that_a_result_is_an_argument():
    x = Tensor(np.zeros(2))
    with capture_logs(is_mode=True) as log, LoggingMode():
        x += 1.0
    assert log == ["$0: f64[2] = np.add_($0, 1.0)"]


def test_a_tensor_does_not_though_the_caller_gets_the_argument():
    with capture_logs() as log:
        x = before = logged([0.0])
        x += 1.0
    assert log[1:] == ["$1: f64[1] = np.add_($0, 1.0)"]
    assert x is before
    assert x.elem.item() == 1.0


# --- tensors, modes and captures ---


def test_a_tensor_that_requires_grad_detaches_what_it_is_around():
    elem = Tensor(np.ones(2), requires_grad=True)
    outer = LoggingTensor(elem, requires_grad=True)
    assert (outer.requires_grad, outer.elem.requires_grad) == (True, False)
    assert LoggingTensor(elem).elem is elem


def test_a_subclass_logs_once_and_keeps_its_class():
    class Named(LoggingTensor):
        pass

    with capture_logs() as log:
        result = LoggingTensor(np.ones(1)) + Named(np.ones(1))
    assert log == ["$2: f64[1] = np.add($0, $1)"]
    assert repr(result) == "Named(Tensor([2.]))"


def test_a_write_to_a_view_does_not_lose_a_gradient():
    y = LoggingTensor(np.ones(3), requires_grad=True) * 1.0
    view = y[1:]
    with pytest.raises(AutogradError, match="cannot be written to in place"):
        view *= 10.0


def test_repr_str_and_format_agree():
    x = LoggingTensor(np.ones(2))
    assert repr(x) == str(x) == f"{x}" == "LoggingTensor(Tensor([1., 1.]))"


def test_a_mode_sees_the_way_back():
    x = Tensor(np.array([0.0, 1.0]), requires_grad=True)
    loss = ops.np.sin(x).sum()
    with capture_logs(is_mode=True) as log, LoggingMode():
        loss.backward()
    assert log == lines("""
        $0: f64[] = np.ones((), dtype=dtype('float64'), device='CPU')
        $2: f64[2] = np.broadcast_to($1, (2,))
        $4: f64[2] = np.cos($3)
        $5: f64[2] = np.multiply($2, $4)
    """)
    np.testing.assert_array_equal(x.grad.array, np.cos([0.0, 1.0]), strict=True)


def test_a_mode_changes_neither_values_nor_gradients():
    def gradient():
        x = Tensor(np.linspace(0.5, 2.0, 4), requires_grad=True)
        (ops.np.exp(x) * ops.np.sin(x[::-1])).sum().backward()
        return x.grad.array

    expected = gradient()
    with LoggingMode():
        np.testing.assert_array_equal(gradient(), expected, strict=True)


def test_nested_captures_have_numbers_of_their_own():
    with capture_logs() as outer:
        x = logged([1.0])
        x + 1
        with capture_logs() as inner:
            x + 2
    assert inner == ["$1: f64[1] = np.add($0, 2)"]
    assert outer[1:] == ["$1: f64[1] = np.add($0, 1)", "$2: f64[1] = np.add($0, 2)"]


def test_nothing_is_logged_after_a_capture():
    x = LoggingTensor(np.ones(1))
    with capture_logs() as log:
        x + 1
        with pytest.raises(ValueError, match="broadcast"), capture_logs() as abandoned:
            ops.np.add(x, np.ones((2, 3)), out=x + 2)
    x + 3
    assert abandoned == ["$1: f64[1] = np.add($0, 2)"]
    assert log == ["$1: f64[1] = np.add($0, 1)", "$2: f64[1] = np.add($0, 2)"]


def test_a_call_that_raises_is_not_logged():
    with capture_logs() as log, pytest.raises(ValueError, match="shapes"):
        LoggingTensor(np.ones(2)) + np.ones(3)
    assert log == []


def test_captures_of_tasks_are_their_own():
    async def task(number):
        with capture_logs() as log:
            x = logged([0.0])
            await asyncio.sleep(0)
            x + number
        return log[1:]

    async def both():
        return await asyncio.gather(task(1), task(2))

    assert asyncio.run(both()) == [["$1: f64[1] = np.add($0, 1)"], ["$1: f64[1] = np.add($0, 2)"]]
