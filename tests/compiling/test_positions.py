"""Single elements at given positions are read, written and added to by loops of plans."""

import functools

import numpy as np
import pytest

from pydispatch import compile, ops
from pydispatch.func import grad
from tests.compiling.same import check_same
from tests.together import together

NP = ops.np
DTYPES = ["f8", "f4", "i4", "i8", "?", "i1", "c16", "i2"]
SHAPES = [(3, 4), (200, 100), (1, 5), (5, 1)]
READS = {
    "of each row": lambda x, k: NP.index(x, (np.arange(len(x)), k)),
    "of each row of a temporary": lambda x, k: NP.index(NP.negative(x * 2), (np.arange(len(x)), k)),
    "anywhere": lambda x, k: NP.index(x, (k % len(x), k)),
    "of one row": lambda x, k: NP.index(x, (0, k)),
    "of a column": lambda x, k: NP.index(x[:, 0], k % len(x)),
    "of a transposed array": lambda x, k: NP.index(x.T, (k, np.arange(len(x)))),
    "in the shape of the positions": lambda x, k: NP.index(x, (NP.reshape(k, (-1, 1)) % len(x), k)),
}
WRITES = {
    "of each row": lambda x, k, v: NP.index_put(x, (np.arange(len(x)), k), v),
    "anywhere, the last of several": lambda x, k, v: NP.index_put(x, (k % len(x) % 2, k), v),
    "the same to all": lambda x, k, v: NP.index_put(x, (np.arange(len(x)), k), v[0]),
}


def arguments(shape, dtype):
    random = np.random.default_rng(0)
    x = (10 * random.standard_normal(shape)).astype(dtype)
    v = (10 * random.standard_normal(shape[0])).astype(dtype)
    return x, random.integers(-shape[1], shape[1], shape[0]), v


def check(function, *args):
    compiled = compile(function)
    for _ in range(2):
        found, expected = compiled(*args), np.asarray(function(*args))
        np.testing.assert_array_equal(found, expected, strict=True)
    assert "call " not in compiled.plan(*args)


@together("read", READS.values(), ids=READS)
@together("shape", SHAPES, ids=str)
@together("dtype", DTYPES)
def test_reads(read, dtype, shape):
    x, k, _ = arguments(shape, dtype)
    check(read, x, k)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@together("dtype", DTYPES)
def test_writes(write, dtype, shape):
    check(write, *arguments(shape, dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "q"])
def test_sums(dtype, shape):
    check(lambda x, k, v: NP.index_put(x, (k % len(x) % 2, k), v, accumulate=True), *arguments(shape, dtype))


@pytest.mark.parametrize("shape", [(3, 4), (200, 100), (5, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@together("function", [
    lambda zeros, x: zeros + x, lambda zeros, x: x * 2.0 + zeros, lambda zeros, x: (x + zeros, zeros * x),
    lambda zeros, x: NP.reshape(zeros, -1) + NP.reshape(x, -1),
], ids=["left", "right", "of zeros used twice", "of another shape"])
def test_sums_with_zeros_but_for_an_element_of_each_row(function, dtype, shape):
    x, k, v = arguments(shape, dtype)
    x[x < 0] = -0.0
    v[::2] = -0.0

    def added(x, k, v):
        zeros = NP.zeros(shape, dtype=np.dtype(dtype))
        return function(NP.index_put(zeros, (np.arange(len(x)), k), v, accumulate=True), x)

    compiled = compile(added)
    check_same(compiled(x, k, v), added(x, k, v))


def test_the_gradient_of_picked_elements_takes_no_zeros():
    x, k, _ = arguments((50, 40), "f8")
    loss = compile(grad(lambda x: NP.sum(NP.exp(x)) - NP.sum(NP.index(x, (np.arange(50), k)))))
    assert "copy" not in loss.plan(x)


@pytest.mark.parametrize("position", [5, -6, 2**40])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [4, 5000])
def test_positions_out_of_range(n, threads, position):
    compiled = compile(lambda x, k: NP.index(NP.exp(x), (np.arange(n), k)), threads=threads)
    x, k = np.ones((n, 5)), np.zeros(n, int)
    compiled(x, k)
    k[n // 2] = position
    with pytest.raises(IndexError, match=rf"index {position} is out of bounds for axis.* with size 5"):
        compiled(x, k)
    k[n // 2] = 4
    np.testing.assert_array_equal(compiled(x, k), np.full(n, np.exp(1.0)))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradient_of_cross_entropy_is_one_group_of_loops(threads):
    labels = np.random.default_rng(1).integers(0, 50, 3000)
    x = np.random.default_rng(2).standard_normal((3000, 50))

    def loss(x, labels):
        shifted = x - NP.detach(x.max(axis=1, keepdims=True))
        chosen = NP.index(shifted, (np.arange(3000), labels))
        return (NP.log(NP.exp(shifted).sum(axis=1)) - chosen).mean()

    compiled = compile(lambda x, labels: grad(loss)(x, labels), threads=threads)
    softmax = np.exp(x - x.max(1, keepdims=True))
    softmax /= softmax.sum(1, keepdims=True)
    np.testing.assert_allclose(compiled(x, labels), (softmax - np.eye(50)[labels]) / 3000, atol=1e-15)
    assert compiled.plan(x, labels).count("for each block") == 1


PARTS = {
    "columns": [(slice(None), 0), (slice(None), 2), (slice(None), 0)],
    "the same column": [(slice(None), 1), (slice(None), 1), (slice(None), 2)],
    "overlapping rows": [(slice(1, None),), (slice(None, -1),), (0,)],
    "an element": [(0, 0), (slice(None), 1), (0, 0)],
    "reversed": [(slice(None, None, -1),), (slice(None, None, 2), 1)],
    "many": [(i % 4, i % 3) for i in range(24)],
}


@pytest.mark.parametrize("name", PARTS)
def test_sums_of_parts_in_zeros_have_the_bits_of_sums(name):
    def placed(x, key):
        return NP.setitem(NP.zeros_like(x), key, NP.getitem(x, key))

    def from_left(x):
        return functools.reduce(NP.add, [placed(x, key) for key in PARTS[name]])

    def from_right(x):
        return functools.reduce(lambda total, key: placed(x, key) + total, PARTS[name], x * 2.0)

    for x in (np.arange(12.0).reshape(4, 3) - 5.0, -np.zeros((4, 3)), np.full((4, 3), 0.1, np.float32)):
        for function in (from_left, from_right):
            check_same(compile(function)(x), function(x))


# --- sums of products with picked elements ---


def sum_of_products(x, i, k, v):
    return NP.index_put(x * 0.0, (i,), v * x[k], accumulate=True)


PRODUCTS = {
    "of factors and elements": sum_of_products,
    "of elements and factors": lambda x, i, k, v: NP.index_put(x, (i,), x[k] * v, accumulate=True),
    "of elements and elements": lambda x, i, k, v: NP.index_put(x, (i,), x[k] * x[i], accumulate=True),
    "of elements in a row of a matrix": lambda x, i, k, v: NP.index_put(
        x, (i,), v * NP.reshape(x, (2, -1))[1, k % (len(x) // 2)], accumulate=True),
    "of every second element": lambda x, i, k, v: NP.index_put(x, (i,), v * x[::2][k % 2], accumulate=True),
    "that are used twice": lambda x, i, k, v: (NP.scatter_add(x, i, v * x[k], 0), v * x[k], x[k] * 2.0),
    "of one number": lambda x, i, k, v: NP.scatter_add(x, i, x[k] * 3.0, 0),
    "of factors of one row": lambda x, i, k, v: NP.scatter_add(x, i, NP.reshape(v[:1] * x[k], -1), 0),
}


@together("function", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("order", ["sorted", "random"])
def test_sums_of_products(function, dtype, order):
    random = np.random.default_rng(0)
    x, v = (10 * random.standard_normal(40)).astype(dtype), (10 * random.standard_normal(300)).astype(dtype)
    x[:3], v[:3] = 0, -0.0
    i, k = random.integers(-40, 40, (2, 300))
    compiled = compile(function)
    check_same(compiled(x, np.sort(i) if order == "sorted" else i, k, v),
               function(x, np.sort(i) if order == "sorted" else i, k, v))


def test_products_that_are_only_added_are_not_stored():
    x, i, v = np.ones(40), np.arange(40), np.ones(40)
    assert "index" not in compile(sum_of_products).plan(x, i, i, v)
    assert "index" not in compile(grad(lambda *args: NP.sum(sum_of_products(*args) ** 2))).plan(x, i, i, v)


@pytest.mark.parametrize("bad", [0, 1])
def test_sums_of_products_out_of_range(bad):
    x, positions, v = np.ones(3), [np.array([0, 1]), np.array([1, 2])], np.ones(2)
    compiled = compile(sum_of_products)
    compiled(x, *positions, v)
    positions[bad] = np.array([0, 3])
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        compiled(x, *positions, v)
