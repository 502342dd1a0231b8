"""Under `vmap`, arrays that the function makes take batches, and views are views of what NumPy would make them of.

Each program is run by NumPy, on one example after the other, and by `pydispatch.numpy` under `vmap`, alone and with
other transforms around it or inside.
"""

import itertools
import math

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, compile, func, higher_order, ops
from pydispatch.exceptions import DispatchTypeError, VmapError
from pydispatch.tracing import make_fx
from tests.together import together

RNG = numpy.random.default_rng(5)
ROWS = RNG.normal(size=(4, 3))
INDICES = numpy.array([[0, 2], [1, 0], [2, 2], [1, 1]])
FIRST_AND_LAST = numpy.array([True, False, True])

# --- programs: (np, a row, two indices) -> an array ------------------------------------------------------------------


def elements(np, x, i):
    out = np.zeros(3)
    for k in range(3):
        out[k] = x[k] * k
    return out


def augmented_slice(np, x, i):
    out = np.zeros(3)
    out[1:] += x[1:]
    return out


def augmented_array(np, x, i):
    out = np.zeros(3)
    out += x
    return out


def augmented_element(np, x, i):
    out = np.zeros(4)
    out[i] += x[0]
    return out


def running_total(np, x, i):
    total = np.zeros((1,))
    for k in range(3):
        total += x[k]
    return total


def batched_positions(np, x, i):
    out = np.ones((2, 3))
    out[:, i] = x[:2, None]
    return out


def constant_positions(np, x, i):
    out = np.ones(3)
    out[numpy.array([0, 2])] = x[:2]
    return out


def constant_mask(np, x, i):
    out = np.ones(3)
    out[FIRST_AND_LAST] = x[:2]
    return out


def batched_mask(np, x, i):
    out = np.ones(3)
    out[x > 0] = 2.0
    return out


def add_at(np, x, i):
    out = np.zeros(3)
    np.add.at(out, i, x[:2])
    return out


def put_elements(np, x, i):
    out = np.zeros(3)
    np.put(out, [0, 2], x[:2])
    return out


def place(np, x, i):
    out = np.zeros(3)
    np.place(out, FIRST_AND_LAST, x[:2])
    return out


def putmask(np, x, i):
    out = np.zeros(3)
    np.putmask(out, FIRST_AND_LAST, x)
    return out


def copyto(np, x, i):
    out = np.zeros(3)
    np.copyto(out, x)
    return out


def copyto_where(np, x, i):
    out = np.zeros(3)
    np.copyto(out, x, where=FIRST_AND_LAST)
    return out


def fill(np, x, i):
    out = np.zeros(3)
    out.fill(x[0])
    return out


def fill_diagonal(np, x, i):
    out = np.zeros((3, 3))
    np.fill_diagonal(out, x)
    return out


def sort_in_place(np, x, i):
    out = np.zeros(3)
    out[:] = x
    out.sort()
    return out


def out_of_pointwise(np, x, i):
    out = np.zeros(3)
    np.sin(x, out=out)
    return out


def out_of_a_view(np, x, i):
    out = np.zeros((2, 3))
    np.multiply(x, 2, out=out[1])
    return out


def two_outs(np, x, i):
    quotient, remainder = np.zeros(3), np.empty(3)
    np.divmod(x, 2.0, out=(quotient, remainder))
    return quotient + 3 * remainder


def out_of_a_sum(np, x, i):
    out = np.zeros((1,))
    np.sum(x, axis=0, keepdims=True, out=out)
    return out


def out_of_cumsum(np, x, i):
    out = np.zeros(3)
    np.cumsum(x, out=out)
    return out


def out_of_concatenate(np, x, i):
    out = np.zeros(6)
    np.concatenate([x, x], out=out)
    return out


def made_by_full(np, x, i):
    out = np.full((2, 2), 3.0)
    out[0, 0] = x[0]
    return out


def made_by_arange(np, x, i):
    out = np.arange(3.0)
    out *= x[0]
    return out


def made_by_empty_like(np, x, i):
    out = np.empty_like(numpy.arange(3.0))
    out[:] = 0
    out[0] = x[0]
    return out


def made_by_copy(np, x, i):
    out = np.copy(numpy.arange(3.0))
    out[0] = x[0]
    return out


def made_by_array(np, x, i):
    out = np.array(numpy.arange(3.0))
    out[0] = x[0]
    return out


def made_of_a_list(np, x, i):
    out = np.array([1.0, 2.0, 3.0])
    out[0] = x[0]
    return out


def made_by_an_operator(np, x, i):
    out = np.sqrt(np.eye(3) + 1)
    out[1] = x
    return out


def a_list_of_arrays(np, x, i):
    rows = [np.zeros(2) for _ in range(3)]
    for k in range(3):
        rows[k][k % 2] = x[k]
    return np.stack(rows)


def views_made_before(np, x, i):
    out = np.zeros((2, 3))
    row, column = out[0], out[:, 1]
    part = row[1:]
    part[:] = x[:2]
    column += 1
    return np.concatenate([out.ravel(), row, column, part])


def views_of_views(np, x, i):
    out = np.zeros((3, 2))
    turned = out.T
    flat = turned.reshape(-1)               # a copy
    lines = np.reshape(out, (2, 3))         # a view
    out[0] = x[:2]
    turned[1] += x
    flat[0] = 9
    lines[1] *= 2
    return np.concatenate([out.ravel(), flat, lines.ravel()])


def pieces(np, x, i):
    out = np.eye(3)
    first, second, third = np.split(out, 3)
    second += x
    third[:] = second + first
    return out


def rows_in_a_loop(np, x, i):
    out = np.zeros((3, 1))
    for row in out:
        row += x[:1]
    return out


def elements_of_the_flat_array(np, x, i):
    out = np.zeros((2, 3))
    out.flat[1:3] = x[:2]
    return out


def real_part(np, x, i):
    out = np.zeros(3, complex)
    real = out.real
    real += x
    return np.abs(out)


def transposed_order(np, x, i):
    out = np.zeros((2, 3)).T
    copied, viewed = out.ravel(), out.T.ravel()
    copied[:] = x[0]
    viewed[1:3] = x[1:]
    return out


def with_and_without_axes(np, x, i):
    out = np.zeros((2, 3))
    wide, deep, swapped = out[None], np.atleast_3d(out), np.swapaxes(out, 0, 1)
    np.squeeze(wide)[0] = x
    deep[1, :, 0] -= x
    swapped[0] *= 3
    return np.concatenate([out.ravel(), wide.ravel(), deep.ravel()])


def two_buffers(np, x, i):
    old, new = np.zeros((2, 3)), np.ones((2, 3))
    old[0] = x
    for _ in range(3):
        new[1] = old[0] + new[0]
        old, new = new, old
    return old + 2 * new


def copies_stay(np, x, i):
    out = np.zeros(3)
    before = out.copy()
    out[...] = x
    after = out.copy()
    out -= 1
    return np.stack([out, before, after])


def written_twice_with_constants(np, x, i):
    out = np.zeros(3)
    out[0] = 5.0
    half = out[:2]
    half[1] = 6.0
    half *= x[:2]
    out[2] = 7.0
    return out


# views of batches: what they are views of, or whether they are copies, one example decides


def ravel_of_computed(np, x, i):
    y = x[None] * i[:, None] + 1.0
    y.ravel()[::2] = 5.0
    return y


def ravel_of_turned(np, x, i):
    y = (x[None] * i[:, None] + 1.0).T
    y.ravel()[::2] = 5.0
    y.T.ravel()[1] = 7.0
    return y


def reshape_of_a_part(np, x, i):
    y = x[None] * i[:, None] + 1.0
    part = y[:, 1:]
    part.reshape(-1)[:] = 3.0
    y.reshape(3, 2)[1] = 4.0
    return y


def views_after_a_write(np, x, i):
    y = x[None] * i[:, None] + 1.0
    y[0] = x
    y.reshape(-1)[1:3] = i
    np.squeeze(y[None]).T.reshape(-1)[:] = 9.0      # a copy
    return y


PROGRAMS = [value for value in list(globals().values())
            if getattr(value, "__module__", None) == __name__ and callable(value)]


# --- ways to run them ------------------------------------------------------------------------------------------------


def example(program):
    return lambda x, i: program(np, x, i)


def total_and_output(f):
    def run(*args):
        output = f(*args)
        return np.sum(output), output
    return run


def on_grad_inside(f):
    return func.vmap(lambda x, i: func.value_and_grad(total_and_output(f), has_aux=True)(x, i)[0][1])


def on_grad_around(f):
    return lambda X, K: func.value_and_grad(total_and_output(func.vmap(f)), has_aux=True)(X, K)[0][1]


def in_a_body(f):
    """Write in a branch that all examples take, and in both of a batched condition."""
    def run(x, i):
        return higher_order.cond(x[0] > -100.0, f, lambda x, i: f(x, i) * 0, (x, i))
    return func.vmap(run)


WAYS = {
    "vmap": func.vmap,
    "last axes": lambda f: lambda X, K: func.vmap(f, -1)(numpy.ascontiguousarray(X.T), numpy.ascontiguousarray(K.T)),
    "Fortran order": lambda f: lambda X, K: func.vmap(f)(numpy.asfortranarray(X), numpy.asfortranarray(K)),
    "vmap in vmap": lambda f: func.vmap(lambda x, i: func.vmap(lambda y: f(y, i))(x[None])[0]),
    "vmap of constants": lambda f: lambda X, K: func.vmap(lambda j: func.vmap(f)(X, K) + 0 * j)(numpy.ones(2))[1],
    "grad inside": on_grad_inside,
    "grad around": on_grad_around,
    "jvp inside": lambda f: func.vmap(lambda x, i: func.jvp(lambda x: f(x, i), (x,), (x,))[0]),
    "jvp around": lambda f: lambda X, K: func.jvp(lambda X: func.vmap(f)(X, K), (X,), (X,))[0],
    "functionalize around": lambda f: func.functionalize(func.vmap(f)),
    "functionalize inside": lambda f: func.vmap(func.functionalize(f)),
    "make_fx": lambda f: lambda X, K: make_fx(func.vmap(f))(X, K)(X, K),
    "compile": lambda f: compile(func.vmap(f)),
    "chunks": lambda f: func.vmap(f, chunk_size=3),
    "cond": in_a_body,
}


def looped(program):
    return numpy.stack([program(numpy, x, i) for x, i in zip(ROWS, INDICES, strict=True)])


@together("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_is_what_a_loop_does(program, way):
    found = WAYS[way](example(program))(ROWS, INDICES)
    numpy.testing.assert_allclose(numpy.asarray(found), looped(program), rtol=1e-12, atol=1e-12)


@together("program", PROGRAMS, ids=lambda program: program.__name__)
def test_its_gradient_is_that_of_a_loop(program):
    def total(X):
        return np.sum(np.sin(func.vmap(example(program))(X, INDICES)))

    def slope(x, i):
        def one(x):
            return numpy.sin(program(numpy, x, i)).sum()
        return [(one(x + step) - one(x - step)) / 2e-6 for step in 1e-6 * numpy.eye(3)]

    expected = [slope(x, i) for x, i in zip(ROWS, INDICES, strict=True)]
    numpy.testing.assert_allclose(func.grad(total)(ROWS), expected, rtol=1e-6, atol=1e-7)


# --- what is not made inside -----------------------------------------------------------------------------------------


def test_an_array_from_outside_takes_no_batch():
    outside = Tensor(numpy.zeros(3))
    view = outside[1:]
    for target in (outside, view):
        with pytest.raises(VmapError, match=r"from outside the function.*each example would overwrite"):
            func.vmap(lambda x, target=target: np.copyto(target, x[:target.shape[0]]))(ROWS)
    assert not numpy.asarray(outside).any()


def test_a_view_of_an_array_from_outside_is_from_outside():
    outside = Tensor(numpy.zeros((2, 3)))

    def f(x):
        row = np.reshape(outside, (3, 2)).T[0]
        row += x
        return row

    with pytest.raises(VmapError, match="from outside the function"):
        func.vmap(f)(ROWS)
    assert not numpy.asarray(outside).any()


def test_what_all_examples_share_stays_one_array():
    def f(x):
        table = np.arange(3.0) * 2
        assert float(table[1]) == 2.0
        assert numpy.asarray(table).tolist() == table.tolist() == [0.0, 2.0, 4.0]
        assert bool(table.sum() > 0)
        return table * x

    numpy.testing.assert_array_equal(func.vmap(f)(ROWS), ROWS * [0.0, 2.0, 4.0])


def test_it_may_be_used_after_the_function():
    kept = []

    def f(x):
        kept.append(np.ones(3))
        return x

    func.vmap(f)(ROWS)
    numpy.testing.assert_array_equal(kept[0] + 1, [2.0, 2.0, 2.0])


def test_views_that_are_gone_are_forgotten():
    def f(x):
        out = np.zeros(2000)
        for k in range(2000):
            out[k:k + 1].sum()
        out[:3] = x
        return out[:3]

    numpy.testing.assert_array_equal(func.vmap(f)(ROWS), ROWS)


# --- scalars ----------------------------------------------------------------------------------------------------------


def sums_and_elements(np, x):
    y = np.zeros(3)
    t = y[0]
    t += x[0]               # binds another value
    y[1] = t
    u = y.sum()
    y *= 2.0                # `u` is a value
    return y, t, u, np.max(y) + y[2]


def elements_of_an_array_of_no_batch(np, x):
    y = np.arange(3.0)
    t, k = y[1], int(y[2])
    y[1] = x[1]
    first = y[k - 1]
    y[:] = y[::-1]
    return y, t, first


@pytest.mark.parametrize("f", [sums_and_elements, elements_of_an_array_of_no_batch])
def test_elements_of_an_array_made_inside_are_values(f):
    batch = numpy.arange(6.0).reshape(2, 3)
    found = func.vmap(lambda x: f(np, x))(batch)
    for value, *expected in zip(found, *[f(numpy, x) for x in batch], strict=True):
        numpy.testing.assert_array_equal(value, expected)


def test_an_element_of_an_array_made_inside_is_not_written_to():
    def f(x):
        t = np.zeros(3)[0]
        t[...] = x
        return t

    with pytest.raises(DispatchTypeError, match="scalar, which is immutable"):
        func.vmap(f)(numpy.arange(2.0))


VIEWS_OR_COPIES = {
    "ravel": np.ravel, "reshape": lambda v: np.reshape(v, -1),
    "reshape in F order": lambda v: np.reshape(v, -1, order="F"),
    "ravel in F order": lambda v: np.ravel(v, order="F"), "flat": lambda v: v.flat[:], "real": np.real, "flip": np.flip,
    "ascontiguousarray": np.ascontiguousarray, "asfortranarray": np.asfortranarray, "squeeze": np.squeeze,
    "ascontiguousarray of .T": lambda v: np.ascontiguousarray(v.T), "astype": lambda v: v.astype(float, copy=False),
    "array": lambda v: np.array(v, copy=None), "atleast_3d": np.atleast_3d, "ravel of a slice": lambda v: v[1:].ravel(),
    "ravel of a row": lambda v: v[0].ravel(), "ravel of columns": lambda v: v[..., 1:].ravel(),
}


@pytest.mark.parametrize("name", VIEWS_OR_COPIES)
def test_what_is_a_view_of_an_example(name):
    starts = {"as passed": lambda v: v, "detached": ops.np.detach, "made": lambda v: v * 1.0,
              "detached view": lambda v: ops.np.detach(v.T), "made and detached": lambda v: ops.np.detach(v * 1.0)}

    def write(x, start):
        first = start(x)
        view = VIEWS_OR_COPIES[name](first)
        view *= -1
        return first * 1.0, view * 1.0

    for shape, order, start in itertools.product(((3, 4), (2, 3, 4), (3, 1, 4)), "CF", starts):
        for dim in range(len(shape)):
            X = numpy.array(numpy.arange(24.0)[:math.prod(shape)].reshape(shape), order=order)
            Y = X.copy(order="K")
            rows = [write(Tensor(row), starts[start]) for row in numpy.moveaxis(Y, dim, 0)]
            found = func.vmap(lambda x, start=starts[start]: write(x, start), dim)(X)
            case = f"{name} of an example {start}, axis {dim} of {order} order, shape {shape}"
            for one, others in zip(found, zip(*rows, strict=True), strict=True):
                numpy.testing.assert_array_equal(one, numpy.stack([*map(numpy.asarray, others)]), err_msg=case)
            numpy.testing.assert_array_equal(X, Y, err_msg=case)


@pytest.mark.parametrize("in_dims", [0, 1, (0, 1), (1, 0)])
@pytest.mark.parametrize("join", [
    lambda a, b: np.stack([a, b, a]), lambda a, b: np.stack([a, b], axis=1),
    lambda a, b: np.concatenate([a[None], b[None], numpy.ones((1, 4))]), lambda a, b: np.vstack([a, b]),
], ids=["stack", "stack along 1", "concatenate", "vstack"])
def test_what_is_joined_lies_in_memory_as_in_a_loop(join, in_dims):
    def f(a, b):
        joined = join(a, b)
        ordered, flat = np.asfortranarray(joined), joined.T.ravel()
        joined[0, 1] = 7.0
        return ordered, flat, joined

    a, b = numpy.arange(8.0).reshape(2, 4), numpy.arange(8.0, 16.0).reshape(2, 4)
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims, in_dims)
    batches = [x if dim == 0 else numpy.ascontiguousarray(x.T) for x, dim in zip((a, b), dims, strict=True)]
    loop = [f(*[numpy.take(x, i, dim) for x, dim in zip(batches, dims, strict=True)]) for i in range(2)]
    for found, expected in zip(func.vmap(f, in_dims=in_dims)(*batches), zip(*loop, strict=True), strict=True):
        assert numpy.array_equal(found, numpy.stack(expected))
