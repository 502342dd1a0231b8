"""Large arrays: loops in blocks and on threads, around the borders of blocks, bit for bit as operator by operator."""

import functools
import gc
import re
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import scipy.special

from pydispatch import Tensor, compile, ops
from pydispatch.compiling import steps
from pydispatch.func import grad, value_and_grad, vmap
from pydispatch.scipy import special
from tests.compiling.same import check_same
from tests.together import together
from tests.warning_filters import quiet

SIZES = (1, 2, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192, 8193, 12289, 65537)
LARGE = (200_000, 1_000_003)
threads = pytest.mark.parametrize("n_threads", [1, 2, 4, 0])


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


ELEMENTWISE = {
    "one loop": lambda x, y: ops.np.sin(x),
    "a chain": lambda x, y: ops.np.sqrt(ops.np.exp(-x * x) + y * y) * 2.0 - x,
    "several results": lambda x, y: (x + y, x - y, x * y, (x > y) & (y > 0)),
    "temporaries that are read late": lambda x, y: (lambda a, b, c: a * b + c * a + ops.np.sin(b))(x + 1, y * 2, x * y),
    "other dtypes": lambda x, y: (ops.np.astype(x, np.dtype(np.float32)) * ops.np.astype(y * 100, np.dtype(np.int8)),
                                  ops.np.where(x > 0, ops.np.astype(y, np.dtype(complex)), 1j)),
    "a reduction at the end": lambda x, y: (x * y + 1).sum(),
    "sums of several": lambda x, y: (lambda a, b: (a, a.sum(), (a * b).mean(), b.sum() * b, (a + b).sum(axis=0)))(
        x * y + 1, x - y),
    "a sum of float32": lambda x, y: (ops.np.astype(x, np.dtype(np.float32)) * 3 + 1).sum(),
    "sums of zeros": lambda x, y: ((ops.np.absolute(x) * -0.0).sum(), ops.np.where(x > 9, 1.0, -0.0).sum()),
    "a sum of all but the first": lambda x, y: (x * y + 1)[1:].sum(),
    "reductions amid": lambda x, y: (x - x.mean()) / ops.np.sqrt(((x - x.mean()) ** 2).mean() + y.max()),
    "views": lambda x, y: (x[::-1] + y, x[1:] - x[:-1], ops.np.concatenate([y[:1], x[1:]]) * 2),
    "a shift": lambda x, y: (lambda a: a[1:] * a[:-1])(x + y),
    "powers": lambda x, y: x**2 + y**3 + ops.np.absolute(x) ** 0.5,
    "a call of Python amid": lambda x, y: ops.np.sort(x + y) * 2 + ops.np.cumsum(x * 2),
    "gathers": lambda x, y: ops.np.take(x + 1, ops.np.astype(ops.np.absolute(y), np.dtype(int)) % x.shape[0]) * y,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@together("size", SIZES)
def test_sizes_around_the_borders_of_blocks(size, name):
    x, y = numbers(2, size)
    with quiet():
        check_same(compile(ELEMENTWISE[name])(x, y), ELEMENTWISE[name](x, y))


@threads
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_large_arrays_on_threads(name, n_threads):
    x, y = numbers(2, LARGE[0])
    compiled = compile(ELEMENTWISE[name], threads=n_threads)
    with quiet():
        expected = ELEMENTWISE[name](x, y)
        for _ in range(2):
            check_same(compiled(x, y), expected)


@pytest.mark.slow
@threads
@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_larger_arrays_on_threads(name, size, n_threads):
    x, y = numbers(2, size)
    with quiet():
        check_same(compile(ELEMENTWISE[name], threads=n_threads)(x, y), ELEMENTWISE[name](x, y))


ROWS = {
    "softmax": lambda x: (lambda e: e / e.sum(1, keepdims=True))(ops.np.exp(x - x.max(1, keepdims=True))),
    "standardized rows": lambda x: (x - x.mean(1, keepdims=True)) / ops.np.sqrt((x * x).mean(1, keepdims=True) + 1),
    "standardized columns": lambda x: (x - x.mean(0)) / ops.np.sqrt((x * x).mean(0) + 1),
    "sums": lambda x: ((x * 2).sum(1), (x + 1).sum(0), x.sum(), x.max(1), x.min(0), (x > 0).all(1)),
    "transposed": lambda x: (x.T.sum(0) + (x.T * 2).max(0)) * x.T,
    "strided": lambda x: x[::2, 1::2] * 2 + x[1::2, ::2][: (x.shape[0] + 1) // 2, : x.shape[1] // 2].sum()
    if x.shape[0] > 1 and x.shape[1] > 1 else x * 2,
    "broadcast": lambda x: x * x[:1] + x[:, :1] - x[0, 0],
    "outer": lambda x: (x[:, :1] * x[:1] + 1).sum(1) * 2,
    "products": lambda x: ops.np.tanh(x @ ops.np.transpose(x[:3])) * 2 + 1,
    "entropy": lambda x: -(lambda p: (p * ops.np.log(p)).sum(1))(ops.np.exp(x) / ops.np.exp(x).sum(1, keepdims=True)),
}
SHAPES = ((1, 20_000), (20_000, 1), (3, 5000), (5000, 3), (127, 129), (4097, 2), (64, 512))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("n_threads", [1, 3])
@together("shape", SHAPES, ids=str)
def test_rows_with_reductions_inside(shape, name, n_threads):
    x = numbers(*shape)
    with quiet():
        check_same(compile(ROWS[name], threads=n_threads)(x), ROWS[name](np.array(x)))


SHORT_ROWS = {
    "a row beside": lambda x: (x + x[0], x[1] - x, x * x[2], x / x[3]),
    "a column beside": lambda x: (x + x[:, :1], x[:, 1:2] - x, x * x[:, :1], x[:, 1:2] / x),
    "sums of columns": lambda x: (x.sum(0), (x * x).sum(0) + 1, ops.np.prod(x, 0)),
    "in place of an operand": lambda x: ((x * 2 + x[0]) / x[1] - x[2]) * x[:, :1],
    "rows and tests": lambda x: ops.np.where(x < x[0], x * x[1] - 1, ops.np.absolute(x)) + (x > x[2]),
    "extremes of columns": lambda x: (x.max(0), x.min(0), (x * 2).max(0) + x[3:].min(0), x[-4:].max(0)),
}


@pytest.mark.parametrize("name", SHORT_ROWS)
@pytest.mark.parametrize("dtype", [float, np.float32])
@together("width", [2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 64])
def test_short_rows(name, dtype, width):
    x = numbers(3001, width).astype(dtype)
    x[5:9] = np.resize(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 1e38], dtype), (4, width))
    compiled = compile(SHORT_ROWS[name])
    with quiet():
        for array in (x, x[:4], x[::-1]):
            check_same(compiled(array), SHORT_ROWS[name](np.ascontiguousarray(array)))
    x = np.abs(numbers(3001, width)).astype(dtype) + 1
    if name == "a row beside":
        x[3, -1] = 0
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
            compiled(x)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.5, 1e30, 1e-38])
COMPLEX = {
    "a polynomial": lambda z, w, x: ((z * w + z) * w - z) * (0.5 - 2j) + w * w + ops.np.square(z),
    "numbers": lambda z, w, x: ((0.5 + 1j) - z * (1j - 2), (z + 0.25) * 3.0, z - (1 + 0.5j) * w),
    "conjugates": lambda z, w, x: (ops.np.conjugate(z) * w - ops.np.conjugate(z * w), -ops.np.conjugate(-w)),
    "parts": lambda z, w, x: (z.real * z.real + z.imag * z.imag, z.imag * x - w.real, x / z.real + z.imag),
    "parts of what is computed": lambda z, w, x: (lambda a: (a.real - a.imag, a.imag * x, a * a))(z * w + 1j),
    "choices": lambda z, w, x: (lambda small: ops.np.where(small, z * z + w, z))(z.real * z.real + z.imag * z.imag < x),
    "choices of parts": lambda z, w, x: ops.np.where(z.imag < w.real, z.real, x * w.imag) + ops.np.where(
        x > 0, z.imag, w.imag),
    "a row beside": lambda z, w, x: (z * w[-1:] + w, ops.np.conjugate(z[0]) - z * w[:1]),
    "real numbers": lambda z, w, x: (z * x + w, 2.0 * z - w / 3.0, x - z),
}


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
@together("shape", [(1025,), (4099,), (9001,), (70, 4), (301, 16), (41, 100)], ids=str)
def test_complex_numbers(shape, dtype, name):
    z, w = (numbers(2, *shape) + 1j * numbers(2, *shape, seed=1)).astype(dtype)
    x = numbers(*shape, seed=2).astype(z.real.dtype)
    compiled = compile(COMPLEX[name])
    with quiet():
        for _ in range(2):
            for strided in (z, np.repeat(z, 2, -1)[..., ::2]):
                found, expected = compiled(strided, w, x), COMPLEX[name](z, w, x)
                check_same(found, expected)
            special = np.add.outer(SPECIAL, 1j * SPECIAL).astype(dtype).ravel()
            special.imag = np.tile(SPECIAL, len(SPECIAL))
            z, w = np.resize(special, shape), np.resize(special[::-1][3:], shape)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        compile(lambda z: z * z + z)(np.full(shape, 1e30 + 1e30j, np.complex64))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_computed_lies_in_c_order(shape):
    x = numbers(*shape)
    found = compile(lambda x: ((x.T + 1).sum(0), ops.np.sin(x.T).T.mean(0)))(x)
    in_order = np.ascontiguousarray(x.T)
    check_same(found, ((in_order + 1).sum(0), np.sin(in_order).T.mean(0)))
    fortran = np.asfortranarray(x)
    check_same(compile(lambda x: (x.sum(), x.sum(1), x.sum(0)))(fortran), (x.sum(), x.sum(1), x.sum(0)))


@pytest.mark.parametrize("function", [
    lambda x: ops.np.reshape((x + 1.0).T, (2, 3)).T + x.T, lambda x: np.reshape(x * 2.0, (3, 2), order="F") + x.T,
    lambda x: ops.np.reshape(x * 2.0, (3, 2)) + x.T, lambda x: ops.np.reshape(x.T * 2.0, (2, 3)).T * 3.0,
])
def test_matrices_of_other_shapes_in_the_same_memory(function):
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(compile(function)(x), function(Tensor(x)).array)


def test_rows_of_three_axes():
    x = numbers(30, 40, 50)

    def function(x):
        return ((x - x.mean((1, 2), keepdims=True)) * 2).sum(2), (x * 3).max(1), x.sum((0, 1)) + 1

    for n_threads in (1, 2):
        check_same(compile(function, threads=n_threads)(x), function(x))


@pytest.mark.parametrize("size", [9000, 100_000])
def test_blocks_are_in_the_plan(size):
    compiled = compile(ELEMENTWISE["a chain"])
    x, y = numbers(2, size)
    text = compiled.plan(x, y)
    assert f"of {size} elements:" in text
    assert text.startswith("for each block of ")
    assert "1 call" not in compiled.explain(x, y)
    compiled(x, y)
    plan = compiled.variants[0].plan
    assert plan.described[4] < x.nbytes     # of the arena


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("function", [
    pytest.param(lambda x: (x * x + 1).sum(), id="of a chain"),
    pytest.param(lambda x: ops.np.sin(x).sum(), id="of one loop"),
    pytest.param(lambda x: (lambda a: a.sum() / (a * x).mean())(x + 1), id="of several"),
])
def test_what_is_added_up_stays_in_the_cache(function, n_threads):
    compiled = compile(function, threads=n_threads)
    x = numbers(100_000)
    check_same(compiled(x), function(x))
    in_blocks = [line for line in compiled.plan(x).splitlines() if line.startswith(" ")]
    added_up = [line for line in compiled.plan(x).splitlines() if "add.reduce" in line]
    assert sum(line in in_blocks for line in added_up) * 2 == len(added_up) > 0


def with_another_last_row(x, y):
    """Return rows that are computed together, the last of which is computed again."""
    x = ops.np.copy(x * 1.0)
    x[-1] += y[0] + 5.0
    return x


def with_other_elements(x, y):
    x = ops.np.copy(x * 2.0)
    x[::3, 1] = y[::3, 0] * 3.0
    x[1:4] = 0.5
    return x


@threads
@pytest.mark.parametrize("written", [with_another_last_row, with_other_elements])
def test_sums_wait_for_all_that_is_written_to_what_they_add_up(written, n_threads):
    def sums(x, y):
        found = written(x, y)
        return found.sum(), (found * y).sum(), ops.np.mean(found), found.sum(axis=0)

    x, y = numbers(3000, 5), numbers(3000, 5, seed=1)
    check_same(compile(sums, threads=n_threads)(x, y), sums(x, y))


def test_errors_in_sums_of_blocks_are_reported():
    compiled = compile(lambda x: (x * 1e300).sum())
    with pytest.warns(RuntimeWarning, match="overflow encountered in add.reduce"):
        assert compiled(np.full(100_000, 1e5)) == np.inf


WORK_OF_THREAD = steps.WORK_OF_THREAD      # before the tests have others


def threads_of(function, x):
    """Return how many threads share each of the blocks that a plan for many threads has."""
    compiled = compile(function, threads=8)
    with quiet():
        compiled(x)
    return threads_of_blocks(compiled)


def threads_of_blocks(compiled):
    return [step[9][4] for step in compiled.variants[0].plan.described[5] if step[0] == "blocks"]


@pytest.mark.parametrize(("function", "size", "expected"), [
    pytest.param(lambda x: x * x + 1, 10_000, 1, id="little work"),
    pytest.param(lambda x: x * x + 1, 60_000, 1, id="as much as one thread needs"),
    pytest.param(lambda x: x * x + 1, 120_000, 3, id="as much as three need"),
    pytest.param(lambda x: x * x + 1, 10_000_000, 8, id="enough for all"),
    pytest.param(lambda x: ops.np.exp(x) + 1, 10_000, 1, id="little work in a slow loop"),
    pytest.param(lambda x: ops.np.exp(x) + 1, 25_000, 3, id="a slow loop"),
])
def test_threads_start_where_each_has_enough_work(function, size, expected, monkeypatch):
    monkeypatch.setattr(steps, "WORK_OF_THREAD", WORK_OF_THREAD)
    assert threads_of(function, np.ones(size)) == [expected]


def test_threads_take_no_more_than_a_block_each():
    x, y = numbers(2, 1_000_000)
    sizes = []
    for n_threads in (1, 4):
        compiled = compile(ELEMENTWISE["a chain"], threads=n_threads)
        compiled(x, y)
        sizes.append(compiled.variants[0].plan.described[4])
    assert sizes[1] <= 4 * sizes[0] < x.nbytes


@pytest.mark.parametrize("function", [
    lambda x, y: -x + y, lambda x, y: x + -y, lambda x, y: x - -y, lambda x, y: -x * 2.0, lambda x, y: 0.0 * -y])
def test_negative_operands_need_no_loop(function):
    x, y = map(np.ravel, np.meshgrid([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan], [0.0, -0.0, 3.0, np.inf, 1e308]))
    for dtype in (np.float64, np.float32):
        with quiet():
            args = x.astype(dtype), y.astype(dtype)
            compiled = compile(function)
            check_same(compiled(*args), function(*args))
        assert len(compiled.plan(*args).splitlines()) == 1


def test_negative_operands_without_elements():
    x = np.zeros(0)
    check_same(compile(lambda x: -x * np.broadcast_to(2.0, 0))(x), x)


def test_equal_calls_run_once():
    compiled = compile(lambda x: ops.np.sin(x * 2) + ops.np.sin(x * 2))
    assert len(compiled.plan(numbers(5)).splitlines()) == 3
    random = compile(lambda x, g: ops.np.random_uniform(g, size=(2,)) - ops.np.random_uniform(g, size=(2,)))
    assert random.plan(numbers(5), np.random.default_rng()).count("call np::random_uniform") == 2


def test_constants_are_folded():
    compiled = compile(lambda x: x + ops.np.sin(ops.np.arange(3.0)) * 2)
    assert len(compiled.plan(numbers(3)).splitlines()) == 1
    check_same(compiled(numbers(3)), numbers(3) + np.sin(np.arange(3.0)) * 2)


def test_gradients_of_large_arrays():
    def loss(w, x, y):
        logits = x @ w
        shifted = logits - logits.max(1, keepdims=True)
        return -(y * (shifted - ops.np.log(ops.np.exp(shifted).sum(1, keepdims=True)))).mean()

    w, x = numbers(20, 10), numbers(3000, 20)
    y = np.eye(10)[np.arange(3000) % 10]
    expected = value_and_grad(loss)(w, x, y)
    for n_threads in (1, 2):
        for found in (compile(value_and_grad(loss), threads=n_threads)(w, x, y),
                      value_and_grad(compile(loss, threads=n_threads))(w, x, y)):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_batches_of_large_arrays():
    x = numbers(8, 4000)
    function = ELEMENTWISE["a reduction at the end"]
    found = vmap(compile(function), in_dims=(0, None))(x, x[0])
    np.testing.assert_allclose(found, [function(row, x[0]) for row in x], rtol=1e-13)


def test_donated_memory_in_blocks():
    def update(p, g, m):
        m = 0.9 * m + 0.1 * g
        return p - 0.01 * m / (ops.np.sqrt(m * m) + 1e-8), m

    p, g, m = numbers(3, 100_000)
    expected = update(p, g, m)
    for n_threads in (1, 2):
        compiled = compile(update, donate=(0, 2), threads=n_threads)
        compiled(p, g, m)
        given = p.copy(), g, m.copy()
        found = compiled(*given)
        assert found[0] is given[0]
        assert found[1] is given[2]
        check_same(found, expected)


def test_floating_point_errors_of_other_threads_are_reported():
    x = np.ones(1_000_000)
    x[-1] = 0
    compiled = compile(lambda x: 1.0 / x + 1, threads=4)
    with np.errstate(divide="ignore"):
        compiled(x)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero encountered in divide"):
        compiled(x)


@pytest.mark.parametrize("position", [0, 600_000, -1])
@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_exceptions_of_loops_on_other_threads_are_raised(n_threads, position):
    x = np.ones(1_000_000)
    compiled = compile(lambda x: special.gammaln(x) * 2.0, threads=n_threads)
    expected = compiled(x)
    assert threads_of_blocks(compiled) == [n_threads]
    x[position] = -1.0
    assert compiled(x)[position] == np.inf
    with scipy.special.errstate(singular="raise"):
        with pytest.raises(scipy.special.SpecialFunctionError) as eager:
            scipy.special.gammaln(x)
        with pytest.raises(scipy.special.SpecialFunctionError, match=re.escape(str(eager.value))):
            compiled(x)
        x[position] = 1.0
        check_same(compiled(x), expected)
    with scipy.special.errstate(singular="warn"):
        x[position] = -1.0
        with pytest.warns(scipy.special.SpecialFunctionWarning, match="singularity"):
            compiled(x)


def test_nothing_keeps_the_exceptions_of_threads():
    x = np.full(1_000_000, -1.0)
    compiled = compile(special.gammaln, threads=4)
    with scipy.special.errstate(singular="raise"):
        for _ in range(3):
            with pytest.raises(scipy.special.SpecialFunctionError):
                compiled(x)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, scipy.special.SpecialFunctionError)]


def test_gradients_through_blocks_on_the_tape():
    x = Tensor(numbers(50_000), requires_grad=True)
    function = ELEMENTWISE["a chain"]
    compile(lambda x: function(x, x * 2).sum())(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), grad(lambda x: function(x, x * 2).sum())(numbers(50_000)), rtol=1e-12)


# --- loops that go through registers together ------------------------------------------------------------------------

JOINED = {
    "every form": lambda x, y: (lambda a: 2.0 - a / (3.0 * (y - a) * a) + (0.5 / a - y) * (a + a) * (a * a))(x * y + 1),
    "of one operand": lambda x, y: ops.np.sqrt(ops.np.square(-x) + y * y) - ops.np.negative(x),
    "the same number twice": lambda x, y: (lambda a: (a - a) / (a / a) + a)(x + y),
    "numbers that are computed": lambda x, y: (x * (y[0] + 1.0) - y[1]) / (y[:1] + 2.0),
    "results on the way": lambda x, y: (lambda a, b: (a, b, a * b - x, (a - b) * y))(x + y, x * y),
    "a loop of another kind between": lambda x, y: (lambda a, b: ops.np.exp(-a * b) * b + a / b)(x * y + 1, x * x + 2),
    "elements that lie elsewhere": lambda x, y: (x[1:] - x[:-1]) * y[1:] + (x[1:] + 1.0) * x[:-1],
    "another dtype": lambda x, y: ops.np.astype(ops.np.astype(x, np.dtype(np.float32)) * 3 + 1, x.dtype) / (y + 1) - x,
    "rows": lambda x, y: (lambda m, n: (m * n[:1] + n[:, :1]) * 2.0 - m)(x[:x.shape[0] // 8 * 8].reshape(-1, 8) + 1.0,
                                                                        y[:y.shape[0] // 8 * 8].reshape(-1, 8)),
    "many": lambda x, y: functools.reduce(lambda a, i: (a * y + x) * 0.5 - a / (i + 2.0), range(40), x),
    "sums": lambda x, y: (x * y - 1.0).sum() + ((x + y) * x).sum(),
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@together("size, n_threads", [(8192, 1), (8193, 1), (20_011, 1), (100_003, 3)])
def test_fused_loops(size, n_threads, dtype, name):
    x, y = numbers(2, size).astype(dtype)
    x[5], y[7], x[-1] = np.inf, np.nan, 0
    with quiet():
        check_same(compile(JOINED[name], threads=n_threads)(x, y), JOINED[name](x, y))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@together("shape", [(1, 40), (3, 7), (50, 8), (33, 45), (200, 71), (20, 512), (20, 5000)])
def test_sums_of_rows(shape, dtype):
    x = numbers(*shape).astype(dtype)
    x[0, 0], x[-1, -1] = np.inf, np.nan

    def function(x):
        return x.sum(axis=0), (x * 2 + 1).sum(axis=0), (x[:, 1:] * x[:, :-1]).sum(axis=0), x.T.sum(axis=1)

    with quiet():
        check_same(compile(function)(x), function(x))


def test_a_temporary_is_stored_as_it_is_read():
    u, v, w = numbers(3, 90)
    functions = [
        lambda u, v, w: np.multiply.outer(u, v).T + np.multiply.outer(u, w),
        lambda u, v, w: (lambda m: m.T + m)(np.multiply.outer(u, v)),
        lambda u, v, w: (lambda m: (m.T @ v + m.T * 2, m.T[1:] - w))(np.multiply.outer(u, v) * 3),
        lambda u, v, w: (lambda m: m.T * m.T)(u[:, None] + v[None, :60]),
    ]
    for function in functions:
        check_same(compile(function)(u, v, w), function(u, v, w))
    assert "strided" not in compile(lambda u, v: np.multiply.outer(u, v).T * 2 + 1).plan(u, v)


TESTED = {
    "comparisons": lambda x, y: [test(x, y) for test in (np.less, np.less_equal, np.equal, np.not_equal)],
    "a choice": lambda x, y: np.where(x > y, x * y, x + y) - np.where(np.greater_equal(y, x), x[0], y),
    "choices of numbers": lambda x, y: np.where(x < y, 1, 0) * x + np.where(x[0] < y[0], x, y),
    "bools": lambda x, y: (lambda a, b: ~(a & b) | (a ^ b) & np.logical_not(b))((x < y), (y < x[1]) | (x == y)),
    "extremes": lambda x, y: np.maximum(x, y) * np.minimum(x, y[3]) - np.maximum(y[4], x),
    "extremes of zeros": lambda x, y: np.maximum((x - x) * y, (y - y) * x) + np.minimum(x * 0, 0),
    "truth as a number": lambda x, y: ((x > 1) * y + (y > 1) * x, (x < y).astype(x.dtype) + x, (x * y).astype(bool)),
    "absolute values": lambda x, y: np.negative(x * y) + x,
    "a count": lambda x, y: (x * y + (x > y)).astype(np.int64) * 2 + (x < y),
    "bytes": lambda x, y: (((x > y) * 200 + x).astype(np.uint8).astype(x.dtype) + y),
    "other sizes": lambda x, y: (
        ((x + y).astype(np.float32) * np.float32(2)).astype(np.float64) + (x * y).astype(np.int32)),
    "halves": lambda x, y: (x.astype(np.int32) + y.astype(np.int32)).astype(x.dtype) * (x + y).astype(np.int64),
    "rows and columns": lambda x, y: (lambda m, n: (m * n[:1] + n[:, 3:4] > m) * m + np.where(n[:, :1] > 0, m, n[:1]))(
        x[:x.size // 37 * 37].reshape(-1, 37), y[:y.size // 37 * 37].reshape(-1, 37)),
    "a transposed product": lambda x, y: np.multiply.outer(x[:90], y[:70]) + np.multiply.outer(y[:70], x[:90]).T,
}
OF_FLOATS = {
    "signs": lambda x, y: (
        np.sign(x) * y + np.sign(y), np.absolute(x - y) * np.sign(x * y), np.square(x) + np.sqrt(y * y)),
}
OF_INTEGERS = {
    "bits": lambda x, y: ((x & y) ^ (x | 7)) + ~x,
    "shifts": lambda x, y: ((x << 5) ^ (y >> 3)) + ((x >> y) ^ (y << x)) + (x >> 200 % (8 * x.itemsize)),
    "a hash": lambda x, y: functools.reduce(
        lambda h, i: (h ^ (h >> 13)) * 0x5bd1e99 + (h << i) - (y & 255), range(5), x),
}


@pytest.mark.parametrize(("dtype", "name"), [(dtype, name) for dtypes, functions in (
    ("fd", {**TESTED, **OF_FLOATS}), ("ilIL", {**TESTED, **OF_INTEGERS})) for dtype in dtypes for name in functions])
@together("size, n_threads", [(8193, 1), (20_011, 2)])
def test_fused_loops_on_other_elements(size, n_threads, dtype, name):
    function = {**TESTED, **OF_FLOATS, **OF_INTEGERS}[name]
    x, y = (numbers(2, size) * 10).astype("l" if dtype in "IL" else dtype).astype(dtype)
    x[::7] = y[::7]
    with quiet():
        if dtype in "fd" and name != "a count":
            x[[5, 7000]], y[7], x[-1], y[::11] = [np.inf, -0.0], np.nan, 0, -0.0
        if dtype in "fd" and name == "bytes":       # C does not define others
            x, y = np.nan_to_num(np.clip(x, 0, 50)), np.nan_to_num(y)
        check_same(compile(function, threads=n_threads)(x, y), function(x, y))


def test_fused_loops_warn_as_numpy_does():
    x = numbers(9000)
    x[4000] = np.nan
    compiled = compile(lambda x: (np.where(x > 0, x * 2, x - 1), np.maximum(x * 2, 0) + np.sign(x + 1)))
    for _ in range(2):
        compiled(x)
    x[4001] = 1e300
    compiled = compile(lambda x: (x * 3).astype(np.float32).astype(np.float64) + 1)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="overflow encountered in cast"):
            compiled(x)


@pytest.mark.parametrize("place", [0, 4000, -1])
def test_fused_loops_tell_which_of_them_met_an_error(place):
    x, y = numbers(2, 10_001)
    x[place], y[place] = 0, 1e300
    compiled = compile(lambda x, y: ((y * 2.0 - 1.0) / x + (y * 0.5) * 1e300, x * y))
    with np.errstate(all="ignore"):
        compiled(x, y)
    with np.errstate(over="ignore"), pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as seen:
        compiled(x, y)
    assert len(seen) == 1
    with np.errstate(divide="ignore"), pytest.warns(RuntimeWarning, match="overflow encountered in multiply") as seen:
        compiled(x, y)
    assert len(seen) == 1


def test_fused_loops_overwrite_donated_memory():
    x, y = numbers(2, 50_000)
    compiled = compile(lambda x, y: (x * 0.9 + y * 0.1, (y - x) / (x * x + 1.0)), donate=(0, 1))
    expected = (x * 0.9 + y * 0.1, (y - x) / (x * x + 1.0))
    compiled(x.copy(), y.copy())
    one, other = x.copy(), y.copy()
    check_same(compiled(one, other), expected)


STREAMING = {
    "a result": lambda x, y: x * 2.0 + y,
    "results that are needed later": lambda x, y: (lambda a, b: (a, b, a * b - x, (a - b) * y))(x + y, x * y),
    "more than are kept": lambda x, y: functools.reduce(lambda results, i: (*results, results[-1] * y - results[0] * i),
                                                        range(7), (x + y,)),
    "one that another kind of loop reads": lambda x, y: (lambda a: (a, ops.np.exp(-a * a) + a))(x * y + 1.0),
    "one that a sum reads": lambda x, y: (lambda a: (a, a.sum(), a - y))(x * y + 1.0),
    "a part of one": lambda x, y: (lambda a: (a, a[1:] - a[:-1]))(x * y + 1.0),
}


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_large_results_stream_to_memory(n_threads, dtype, name):
    x, y = numbers(2, (1 << 25) // np.dtype(dtype).itemsize // 2 + 11).astype(dtype)
    x[5], y[7], x[-1] = np.inf, np.nan, 0
    compiled = compile(STREAMING[name], threads=n_threads)
    with quiet():
        expected = STREAMING[name](x, y)
        check_same(compiled(x, y), expected)
        check_same(compiled(x, y), expected)


def test_streaming_loops_tell_which_of_them_met_an_error():
    x, y = numbers(2, 1 << 21)
    x[-1], y[3] = 0, 1e300
    compiled = compile(lambda x, y: (lambda a: (a, 1.0 / x - a))(y * 1e10), threads=2)
    with np.errstate(over="ignore"), pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
        found = compiled(x, y)
    with quiet():
        check_same(found, (y * 1e10, 1.0 / x - y * 1e10))


@pytest.mark.parametrize("first", [0, 1, 3])
def test_results_stream_to_donated_memory_at_any_address(first):
    x, y = (np.concatenate([np.zeros(first), values])[first:] for values in numbers(2, 1 << 21))
    compiled = compile(lambda x, y: (lambda a: (a, (y - a) / (a * a + 1.0)))(x * 0.9 + y * 0.1), donate=(0, 1))
    one = x * 0.9 + y * 0.1
    expected = one, (y - one) / (one * one + 1.0)
    check_same(compiled(x, y), expected)


# --- threads that wait for work --------------------------------------------------------------------------------------


def in_a_new_process(source):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=300)


def test_plans_run_on_threads_in_the_child_of_a_fork():
    done = in_a_new_process("""
        import os, warnings
        import numpy as np
        from pydispatch import compile
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = compile(lambda x: x * 2.0 + 1.0, threads=3)
        x = np.arange(500_000.0)
        compiled(x)
        child = os.fork()
        right = np.array_equal(compiled(x), x * 2.0 + 1.0)
        if child == 0:
            os._exit(0 if right else 1)
        print(os.waitpid(child, 0)[1], right)
    """)
    assert done.stdout == "0 True\n", done.stderr


def test_threads_that_wait_are_used_again():
    done = in_a_new_process("""
        import os, time
        import numpy as np
        from pydispatch import compile
        compiled = compile(lambda x: x * 2.0 + 1.0, threads=3)
        x = np.arange(500_000.0)
        before = len(os.listdir("/proc/self/task"))
        for i in range(200):
            assert np.array_equal(compiled(x), x * 2.0 + 1.0)
            if i % 50 == 0:
                time.sleep(0.01)        # they fall asleep
        print(len(os.listdir("/proc/self/task")) - before)
    """)
    assert done.stdout == "2\n", done.stderr


def test_threads_that_wait_take_no_signals():
    done = in_a_new_process("""
        import pathlib
        import numpy as np
        from pydispatch import compile
        before = set(pathlib.Path("/proc/self/task").iterdir())
        compile(lambda x: x * 2.0 + 1.0, threads=2)(np.arange(500_000.0))
        for task in set(pathlib.Path("/proc/self/task").iterdir()) - before:
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            print(int(status["SigBlk"], 16) >> 1 & 1, int(status["SigBlk"], 16) >> 14 & 1)      # SIGINT, SIGTERM
    """)
    assert done.stdout == "1 1\n", done.stderr


def test_threads_that_wake_up_use_the_cores_of_the_one_that_asks_but_another_one():
    done = in_a_new_process("""
        import os, pathlib, time
        import numpy as np
        from pydispatch import compile

        def cores():
            found = set()
            for task in pathlib.Path("/proc/self/task").iterdir():
                if task.name != str(os.getpid()):
                    status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
                    found.add(int(status["Cpus_allowed"].replace(",", ""), 16).bit_count())
            return found

        def has_cores(n):
            for _ in range(50):     # on a busy machine, it may wake up when all is done
                time.sleep(0.05)    # it falls asleep
                compiled(x)
                if n in cores():
                    return True
            return False

        compiled, x = compile(lambda x: x * 2.0 + 1.0, threads=2), np.arange(500_000.0)
        compiled(x)
        allowed = os.sched_getaffinity(0)
        print(len(allowed) == 1 or has_cores(max(len(allowed) - 1, 1)))
        os.sched_setaffinity(0, {min(allowed)})
        print(has_cores(1))
    """)
    assert done.stdout == "True\nTrue\n", done.stderr


def test_several_python_threads_share_rows_at_once():
    x = numbers(300_000)
    compiled = compile(ELEMENTWISE["a chain"], threads=3)
    expected = ELEMENTWISE["a chain"](x, x)
    right = []

    def work():
        right.extend(np.array_equal(compiled(x, x), expected) for _ in range(30))

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 150


@pytest.mark.parametrize("direction", ["FE_UPWARD", "FE_TONEAREST"])
def test_threads_round_as_the_one_that_asks_them(direction):
    done = in_a_new_process(f"""
        import ctypes
        import numpy as np
        from pydispatch import compile
        compiled = compile(lambda x: x / 3.0 + 1e-30, threads=4)
        x = np.arange(500_000.0)
        compiled(x)
        ctypes.CDLL(None).fesetround({{"FE_UPWARD": 0x800, "FE_TONEAREST": 0}}["{direction}"])
        print(np.array_equal(compiled(x), x / 3.0 + 1e-30))
    """)
    assert done.stdout == "True\n", done.stderr


# --- sums, some parts at a time --------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [
    pytest.param(lambda x: x.sum(), id="all"), pytest.param(lambda x: (x * 2.0).sum(), id="of results"),
    pytest.param(lambda x: x.sum(axis=1), id="of rows"), pytest.param(lambda x: x.sum(axis=0), id="of columns"),
    pytest.param(lambda x: x[:, ::2].sum(axis=1), id="of every second"),
])
def test_sums_add_up_in_numpys_order(function, dtype):
    random = np.random.default_rng(0)
    compiled = compile(function)
    for n in (*range(120, 140), 7, 8, 255, 256, 257, 263, 264, 511, 512, 519, 1000, 1023, 3001, 8191, 20_003):
        x = (random.standard_normal((3, n)) * 10.0 ** random.uniform(-8, 8, n)).astype(dtype)
        check_same(compiled(x), function(x))
        x[1, -1], x[2, n // 2] = np.inf, np.nan
        check_same(compiled(x), function(x))
        compiled.cache_clear()


def test_sums_report_overflows():
    compiled = compile(lambda x: x.sum())
    x = np.full(1000, 1e306)
    with np.errstate(over="ignore"):
        compiled(x)
    with pytest.warns(RuntimeWarning, match="overflow encountered in add.reduce"):
        assert compiled(x) == np.inf
