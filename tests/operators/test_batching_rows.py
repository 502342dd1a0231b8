"""Batching rules of operators: cases written by hand, with loops as oracle.

Sizes of batches are those of axes of the examples wherever that could be mistaken for broadcasting or a product.
"""

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, compile, ops
from pydispatch.exceptions import DataDependentError, DispatchTypeError, VmapError
from pydispatch.func import grad, hessian, jacfwd, jacrev, vmap
from pydispatch.operators import DECLARATIONS
from tests.together import together

op = ops.np


def values(*shape: int, dtype: Any = float) -> np.ndarray:
    """Return numbers none of which is like another, from 1 on."""
    return (np.arange(1, 1 + np.prod(shape, dtype=int)) * 7 % 31 + 0.5).astype(dtype).reshape(shape)


def loop(function: Any, in_dims: Any, *args: Any) -> Any:
    n = next(arg.shape[dim] for arg, dim in zip(args, in_dims, strict=True) if dim is not None)
    results = [function(*[arg if dim is None else np.take(arg, i, dim) for arg, dim in zip(args, in_dims, strict=True)])
               for i in range(n)]
    return np.stack([np.asarray(result) for result in results])


def check(function: Any, in_dims: Any, *args: Any, exact: bool = True) -> np.ndarray:
    """Assert that `vmap` of the function is the loop in values, dtype and shape."""
    expected = loop(function, in_dims, *args)
    found = vmap(function, in_dims=tuple(in_dims))(*args)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(found, expected) if exact else np.allclose(found, expected, rtol=1e-13)
    return found


def arrays_of(shapes: Any, batched: Any, n: int = 2) -> list[np.ndarray]:
    """Return examples of these shapes, in a batch where the flag says so."""
    return [values(n, *shape) if flag else values(*shape) for shape, flag in zip(shapes, batched, strict=True)]


def dims_of(batched: Any) -> tuple[int | None, ...]:
    return tuple([0 if flag else None for flag in batched])


# --- pointwise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_dims", list(product((0, 1, -1, None), (0, 1, 2, -1, None)))[:-1])
def test_each_argument_has_its_own_axis(in_dims):
    shapes = ([3, 4], [4, 5, 4])
    for shape, dim in zip(shapes, in_dims, strict=True):
        if dim is not None:
            shape.insert(dim if dim >= 0 else len(shape) + 1 + dim, 2)
    check(lambda x, y: op.sum(x) + op.sum(op.multiply(y, y), 0), in_dims, *[values(*shape) for shape in shapes],
          exact=False)


@pytest.mark.parametrize(("one", "other"), [
    ((3,), (2, 5, 3)), ((2, 5, 3), (3,)), ((), (2, 2)), ((2, 2), (2,)), ((2, 1), (2,)), ((1, 2), (2, 2, 2))])
@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
def test_examples_of_other_numbers_of_axes_broadcast(one, other, batched):
    check(op.subtract, dims_of(batched), *arrays_of((one, other), batched))


def test_a_number_of_each_example_is_not_paired_with_a_vector_of_as_many():
    found = check(op.multiply, (0, None), values(3), values(3))
    assert found.shape == (3, 3)
    assert check(op.multiply, (None, 0), values(3), values(3)).shape == (3, 3)
    assert check(op.power, (0, 0), values(3), values(3, 3)).shape == (3, 3)


@pytest.mark.parametrize("batched", [flags for flags in product((True, False), repeat=3) if any(flags)])
def test_where_with_three_operands(batched):
    condition, x, y = arrays_of(((2,), (2, 2), ()), batched)
    check(lambda condition, x, y: op.where(op.greater(condition, 10), x, y), dims_of(batched), condition, x, y)
    check(lambda condition, x, y: op.clip(x, y, condition), dims_of(batched), condition, x, y)


@pytest.mark.parametrize("shape", [(), (2,), (3, 2)])
def test_a_number_of_each_example_has_its_dtype(shape):
    found = check(op.add, (0, None), values(2, dtype=np.float64), values(*shape, dtype=np.float32))
    assert found.dtype == np.float64
    assert check(lambda x: op.add(x, 2.5), (0,), values(2, dtype=np.float32)).dtype == np.float32
    assert check(lambda x: op.add(300, x), (0,), values(2, dtype=np.int16)).dtype == np.int16


# --- reductions and accumulations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "any", "all"])
@together("ndim", range(4))
def test_batched_reductions(name, ndim):
    x = values(*(2,) * (ndim + 1))
    axes = [None, (), *range(-ndim, ndim), *([(0, 1), (-1, 0)] if ndim > 1 else [])]
    for axis, keepdims, dim in product(axes, (False, True), {0, -1, ndim // 2}):
        check(lambda x, a=axis, k=keepdims: getattr(op, name)(x, axis=a, keepdims=k), (dim,), x, exact=False)


@pytest.mark.parametrize("ndim", range(4))
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_batched_positions(name, ndim):
    x = values(*(2,) * (ndim + 1))
    for axis, keepdims in product([None, *range(-ndim, ndim), *([0, -1] if ndim == 0 else [])], (False, True)):
        check(lambda x, a=axis, k=keepdims: getattr(op, name)(x, a, keepdims=k), (0,), x)


@pytest.mark.parametrize(("keepdims", "shape"), [(True, (1, 1)), (False, (1,)), (True, (1,))])
def test_positions_are_written_to_what_has_their_shape(keepdims, shape):
    x, out, out_of_one = values(2, 2, 2), np.zeros((2, *shape), int), np.zeros(shape, int)
    function = vmap(lambda x, out: op.argmax(x, keepdims=keepdims, out=out))
    try:
        op.argmax(x[0], keepdims=keepdims, out=out_of_one)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            function(x, out)
    else:
        assert np.array_equal(function(x, out), loop(lambda x: op.argmax(x, keepdims=keepdims), (0,), x))


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("mask", [(), (2,), (2, 1), (2, 2)])
def test_where_and_mean_belong_to_the_example(mask, batched):
    x, limits = arrays_of(((2, 2), mask), batched)
    dims = dims_of(batched)
    check(lambda x, limits: op.sum(x, 0, where=op.greater(limits, 8)), dims, x, limits)
    check(lambda x, limits: op.max(x, initial=0, where=op.greater(limits, 8)), dims, x, limits)
    check(lambda x, limits: op.var(x, 1, mean=limits), dims, x, limits, exact=False)


def test_a_mask_of_more_axes_than_the_example_is_an_error():
    with pytest.raises(ValueError, match="operand"):
        vmap(lambda x: op.sum(x, where=np.ones((2, 3), bool)))(values(2, 3))


@pytest.mark.parametrize("axis", [1, -2, (0, 0), (0, 1)])
def test_axes_that_an_example_does_not_have(axis):
    with pytest.raises((np.exceptions.AxisError, ValueError)) as expected:
        op.sum(values(3), axis)
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
        vmap(lambda x: op.sum(x, axis))(values(2, 3))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_batched_accumulations(name, axis):
    check(lambda x: getattr(op, name)(x, axis), (0,), values(2, 2, 2))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_accumulations_of_one_number(axis):
    assert check(lambda x: op.cumsum(x, axis), (0,), values(3)).shape == (3, 1)


# --- views -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
def test_squeeze_keeps_the_batch(n):
    assert check(op.squeeze, (0,), values(n, 1, 3, 1)).shape == (n, 3)
    assert check(op.squeeze, (0,), values(n)).shape == (n,)
    assert check(lambda x: op.squeeze(x, 0), (0,), values(n, 1, 1)).shape == (n, 1)
    with pytest.raises(ValueError, match="cannot select an axis to squeeze out which has size not equal to one"):
        vmap(lambda x: op.squeeze(x, 0))(values(1, 3))


@pytest.mark.parametrize(("name", "args", "shape"), [
    ("reshape", (-1,), (2, 3)), ("reshape", ((3, -1),), (2, 3)), ("reshape", ((2, 1),), (2,)), ("reshape", ((),), (1,)),
    ("ravel", (), (2, 3)), ("ravel", (), ()), ("transpose", (), (2, 3)), ("transpose", ((-1, 0),), (2, 2)),
    ("transpose", ((2, 0, 1),), (2, 3, 2)), ("transpose", (), ()), ("swapaxes", (-1, 0), (2, 3)),
    ("moveaxis", (0, -1), (2, 3, 2)), ("moveaxis", ((0, 1), (-1, 0)), (2, 3, 2)), ("expand_dims", (0,), (2,)),
    ("expand_dims", (-1,), (2,)), ("expand_dims", ((0, -1),), (2,)), ("expand_dims", (0,), ()),
    ("broadcast_to", ((2, 3),), (3,)), ("broadcast_to", ((2, 2, 2),), (2,)), ("broadcast_to", ((2, 3),), ()),
    ("diagonal", (), (2, 3)), ("diagonal", (1, -1, 0), (3, 2, 3)), ("diagonal", (0, 2, 1), (3, 2, 3)),
    ("sliding_window_view", ((2,), 0), (3, 2)), ("sliding_window_view", ((2, 2),), (3, 2)),
    ("sliding_window_view", ((2, 1), (-1, -1)), (2, 3)), ("sliding_window_view", ((),), ()), ("read_only", (), (2, 3)),
    ("flip", (), (2, 3)), ("flip", (0,), (2, 3)), ("flip", ((-1,),), (2, 3)), ("flip", (), ()),
])
def test_batched_views(name, args, shape):
    x = values(2, *shape)
    found = check(lambda x: getattr(op, name)(x, *args), (0,), x)
    assert np.shares_memory(found, x) == (shape != () or name == "transpose")
    check(lambda x: getattr(op, name)(x, *args), (-1,), np.moveaxis(x, 0, -1))


@pytest.mark.parametrize(("shape", "expected"), [(-1, (6,)), ((3, -1), (3, 2)), ((-1, 1, 6), (1, 1, 6)), (6, (6,))])
def test_reshape_of_no_examples(shape, expected):
    assert vmap(lambda x: op.reshape(x, shape))(np.zeros((0, 2, 3))).shape == (0, *expected)


@pytest.mark.parametrize(("name", "args", "shape"), [
    ("roll", (1,), (2, 3)), ("roll", ((1, 2),), (2, 3)), ("roll", (1, 0), (2, 3)), ("roll", ((1, -1), (0, 1)), (2, 3)),
    ("roll", (1,), ()), ("repeat", (2,), (2, 3)), ("repeat", ((1, 0, 2), 1), (2, 3)), ("repeat", (2, -1), (2, 3)),
    ("repeat", (3,), ()), ("tile", (2,), (2, 3)), ("tile", ((2, 1),), (2,)), ("tile", ((2, 1, 2),), (2,)),
    ("tile", ((),), (2, 3)), ("tile", ((2, 2),), ()),
])
def test_rearrangements_know_the_axes_of_an_example_only(name, args, shape):
    check(lambda x: getattr(op, name)(x, *args), (0,), values(2, *shape))


def test_batched_attributes():
    x = Tensor(values(2, 2, 3))
    assert vmap(lambda x: x.T)(x).shape == (2, 3, 2)
    assert vmap(lambda x: x.mT)(x).shape == (2, 3, 2)
    assert np.array_equal(vmap(lambda x: x.T)(x).array, x.array.swapaxes(1, 2))


@pytest.mark.parametrize("sections", [2, (1,), (1, 9)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_batched_split(sections, axis):
    x = values(2, 2, 4)
    found = vmap(lambda x: tuple(op.split(x, sections, axis)))(x)
    expected = [np.split(example, sections, axis) for example in x]
    assert len(found) == len(expected[0])
    for piece, pieces in zip(found, zip(*expected, strict=True), strict=True):
        assert np.array_equal(piece, np.stack(pieces))


@pytest.mark.parametrize("shape", [(12,), (-1, 5), (2, 3), (3, -1)])
def test_a_shape_that_an_example_does_not_fit(shape):
    with pytest.raises(ValueError, match="cannot reshape array of size 4 into shape") as expected:
        op.reshape(values(2, 2), shape)
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        vmap(lambda x: op.reshape(x, shape))(values(3, 2, 2))


# --- products --------------------------------------------------------------------------------------------------------

VECTOR, MATRIX, STACK = (2,), (2, 2), (2, 2, 2)


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@together("one, other", list(product((VECTOR, MATRIX, STACK), repeat=2)))
def test_all_extents_are_alike(one, other, batched):
    for dims in product((0, -1, 1), repeat=2):
        in_dims = [dim if flag else None for dim, flag in zip(dims, batched, strict=True)]
        arrays = arrays_of((one, other), batched)
        check(op.matmul, in_dims, *arrays)


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@together("one, other", [
    ((3,), (3,)), ((4, 3), (3,)), ((3,), (3, 5)), ((4, 3), (3, 5)), ((6, 4, 3), (3,)), ((3,), (6, 3, 5)),
    ((6, 4, 3), (3, 5)), ((4, 3), (6, 3, 5)), ((6, 4, 3), (6, 3, 5)), ((7, 1, 4, 3), (6, 3, 5)),
    ((6, 4, 3), (7, 1, 3, 5)), ((0, 3), (3, 2)), ((2, 0), (0, 3)),
])
def test_batched_products(one, other, batched):
    arrays = arrays_of((one, other), batched)
    check(op.matmul, dims_of(batched), *arrays)


@pytest.mark.parametrize(("x1", "x2", "in_dims"), [
    pytest.param((4, 3), (3, 5), (0, None), id="rows times a matrix"),
    pytest.param((5, 3), (4, 3), (None, 0), id="a matrix times columns"),
    pytest.param((4, 2, 3), (3, 5), (0, None), id="matrices times a matrix"),
    pytest.param((2, 3), (4, 3, 5), (None, 0), id="a matrix times matrices"),
    pytest.param((4, 3), (6, 3, 5), (0, None), id="rows times a stack"),
    pytest.param((6, 5, 3), (4, 3), (None, 0), id="a stack times columns"),
])
def test_what_is_not_mapped_is_not_repeated(x1, x2, in_dims):
    seen = []
    arrays = [values(*x1), values(*x2)]
    shared = arrays[in_dims.index(None)]
    matmul = ops.np.matmul.default

    def record(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return matmul(*args, **kwargs)

    DECLARATIONS["matmul"].vmap(record, None, (*in_dims, None, None), *arrays, None, "same_kind")
    passed, = seen
    assert [arg.size for arg in passed if np.shares_memory(arg, shared)] == [shared.size]


@pytest.mark.parametrize(("one", "other"), [((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 2))])
def test_an_out_of_too_few_axes(one, other):
    with pytest.raises(ValueError, match=r"matmul|output operand") as expected:
        op.matmul(values(*one), values(*other), out=np.zeros(()))
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        vmap(lambda x: op.matmul(values(*one), values(*other), out=ops.np.getitem(x, (0, Ellipsis))))(np.zeros((2, 1)))


@pytest.mark.parametrize(("one", "other"), [((), (3,)), ((3,), ()), ((3,), (2,)), ((2, 3), (2, 3))])
@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
def test_shapes_that_make_no_product(one, other, batched):
    arrays = arrays_of((one, other), batched, 3)
    with pytest.raises(ValueError, match="matmul") as expected:
        op.matmul(values(*one), values(*other))
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        vmap(op.matmul, in_dims=dims_of(batched))(*arrays)


# --- indexing --------------------------------------------------------------------------------------------------------

ALL = slice(None)


@pytest.mark.parametrize("key", [
    0, -1, (0, 1), ALL, slice(None, None, -1), (ALL, 0), (Ellipsis, 0), None, (None, 0, None), Ellipsis, (),
    (0, Ellipsis),
], ids=str)
def test_basic_keys(key):
    x = values(2, 2, 3)
    found = check(lambda x: op.getitem(x, key), (0,), x)
    assert np.shares_memory(found, x) == (key != (0, 1))        # an element is a scalar
    tensor = vmap(lambda x: x[key])(Tensor(x))
    assert np.array_equal(tensor.array, found)


ONE, OTHER, PAIRS = np.array([1, 0]), np.array([1, 1]), np.array([[0, 1], [1, 1]])
ADVANCED = {
    "one": (ONE,), "one in the middle": (ALL, ONE), "one at the end": (Ellipsis, ONE), "matrix": (ALL, PAIRS),
    "adjacent": (ALL, ONE, OTHER), "adjacent at the front": (ONE, OTHER), "separated": (ONE, ALL, OTHER),
    "separated by a new axis": (ONE, None, OTHER), "broadcast": (ALL, ONE, PAIRS), "with an int": (ALL, 0, ONE),
    "separated from an int": (0, ALL, ONE), "with a new axis before": (None, ALL, ONE), "all axes": (ONE, PAIRS, OTHER),
}


@pytest.mark.parametrize("x_is_mapped", [True, False])
@together("key", ADVANCED.values(), ids=ADVANCED)
def test_index_arrays(key, x_is_mapped):
    places = [i for i, item in enumerate(key) if isinstance(item, np.ndarray)]
    for flags in product((True, False), repeat=len(places)):
        if not x_is_mapped and not any(flags):
            continue
        arrays = [np.stack([key[i], 1 - key[i]]) if flag else key[i] for i, flag in zip(places, flags, strict=True)]
        x = values(2, 2, 2, 2) if x_is_mapped else values(2, 2, 2)
        dims = (0 if x_is_mapped else None, *[0 if flag else None for flag in flags])

        def keyed(*items: Any) -> Any:
            found = list(key)
            for place, item in zip(places, items, strict=True):
                found[place] = item
            return tuple(found) if len(found) > 1 else found[0]

        found = check(lambda x, *items: op.index(x, keyed(*items)), dims, x, *arrays)
        example = found.shape[1:]
        for shape in ((), example, example[1:], (1, *example), example[-1:]):
            put = values(*shape)
            check(lambda x, *items, put=put: op.index_put(x, keyed(*items), put), dims, x, *arrays)
            check(lambda x, put, *items: op.index_put(x, keyed(*items), put), (dims[0], 0, *dims[1:]),
                  x, values(2, *shape), *arrays)
            if len(shape) <= len(example):
                check(lambda x, put, *items: op.index_put(x, keyed(*items), put, accumulate=True),
                      (dims[0], 0, *dims[1:]), x, values(2, *shape), *arrays)


def test_an_element_of_each_example():
    x, i = values(3, 3), np.array([2, 0, 1])
    expected = x[np.arange(3), i]
    assert np.array_equal(vmap(lambda x, i: op.index(x, i))(x, i), expected)
    assert np.array_equal(vmap(lambda x, i: x[i])(Tensor(x), Tensor(i)).array, expected)
    assert np.array_equal(vmap(lambda i: op.index(x, i))(i), x[i])
    with pytest.raises(DispatchTypeError, match=r"getitem.*\n.*ops\.np\.index"):
        vmap(lambda x, i: op.getitem(x, i))(x, i)


def test_an_index_out_of_bounds_is_that_of_an_example():
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        vmap(op.index)(values(2, 3), np.array([2, 3]))
    with pytest.raises(IndexError, match="array is 1-dimensional, but 2 were indexed"):
        vmap(lambda x: op.getitem(x, (0, 0)))(values(2, 3))


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@together("axis", [None, 0, 1, -1])
def test_batched_take(axis, mode, batched):
    x = values(2, 2, 3) if batched[0] else values(2, 3)
    for indices in (1, [1, 0], [[1, 0], [0, 0]]):
        chosen = np.array(indices)
        if batched[1]:
            chosen = np.stack([chosen, 1 - chosen])
        check(lambda x, i: op.take(x, i, axis, mode=mode), dims_of(batched), x, chosen)


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_take_into_out(axis, batched):
    x, = arrays_of([(2, 2)], batched[:1])
    chosen = np.array([[1, 0], [0, 0]]) if batched[1] else np.array([1, 0])
    expected = loop(lambda x, i: op.take(x, i, axis), dims_of(batched), x, chosen)
    out = np.zeros_like(expected)
    vmap(lambda x, i, out: op.take(x, i, axis, out=out), in_dims=(*dims_of(batched), 0))(x, chosen, out)
    assert np.array_equal(out, expected)


def test_take_with_bools():
    check(lambda x, i: op.take(x, i), (0, 0), values(2, 3), np.array([[True, False], [True, True]]))


def test_the_search_for_the_example_that_fails_writes_nothing():
    x = values(2, 3)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        vmap(lambda x, i: op.index_put_(x, i, 0.0))(x, np.array([[0], [3]]))
    assert np.array_equal(x, values(2, 3))


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("axis", "indices"), [(0, [[1, 0]]), (1, [[1, 0], [0, 0]]), (-1, [[1]]), (None, [3, 0])])
def test_take_along_axis_and_scatter_add(axis, indices, batched):
    x, indices = values(2, 2), np.array(indices)
    x = values(2, 2, 2) if batched[0] else x
    indices = np.stack([indices, 1 - indices]) % 2 if batched[1] else indices
    dims = dims_of(batched)
    check(lambda x, i: op.take_along_axis(x, i, axis), dims, x, indices)
    if axis is not None:
        check(lambda x, i: op.scatter_add(x, i, 1.5, axis), dims, x, indices)
        for shape in ((), indices.shape[-1:], (1, 1)):
            check(lambda x, i, v: op.scatter_add(x, i, v, axis), (*dims, 0), x, indices, values(2, *shape))


MASK = np.array([[True, False], [True, True]])


@pytest.mark.parametrize("key", [MASK, MASK[0], (ALL, MASK[0]), (MASK[0], ALL, MASK[1]), (ALL, MASK), True], ids=str)
def test_a_captured_mask_works(key):
    x = values(2, 2, 2, 2)
    check(lambda x: op.index(x, key), (0,), x)
    check(lambda x: op.index_put(x, key, 0.5), (0,), x)
    check(lambda x, value: op.index_put(x, key, value), (0, 0), x, np.array([-1.5, -2.5]))


@pytest.mark.parametrize("key", [MASK, MASK[0], (ALL, MASK[0])], ids=str)
def test_a_captured_mask_traces_with_one_number_per_example(key):
    x, numbers = values(2, 2), np.array([-1.5, -2.5])

    def written(x, key, value):
        return op.index_put(x, key, value)

    expected = [written(x, key, number) for number in numbers]
    np.testing.assert_array_equal(compile(vmap(written, (None, None, 0)))(x, key, numbers), expected)


def test_fractions_put_into_large_integers_leave_the_others_exact():
    x = np.array([2 ** 60 + 1, 2 ** 60 + 1])
    check(lambda mask, value: op.index_put(x, mask, value), (0, 0), MASK, np.array([1.5, -2.5]))


@pytest.mark.parametrize("call", [
    pytest.param(lambda x, mask: op.index(x, mask), id="index"),
    pytest.param(lambda x, mask: op.index(x, (ALL, mask)), id="index in a tuple"),
    pytest.param(lambda x, mask: op.index_put(x, (mask, 0), 1.0), id="index_put in a tuple"),
    pytest.param(lambda x, mask: op.index_put(x, mask, np.ones(2)), id="index_put of several values"),
])
def test_a_mapped_mask_is_refused(call):
    with pytest.raises(VmapError, match=r"np::index\S*: argument key holds a mask .*vmap.*\n.*np\.where\(mask"):
        vmap(call)(values(2, 2, 2), MASK)


@pytest.mark.parametrize("mask", [(2,), (2, 2), ()])
@pytest.mark.parametrize("x_is_mapped", [True, False])
def test_one_number_is_put_where_a_mapped_mask_says(mask, x_is_mapped):
    x, mask = values(2, 2, 2) if x_is_mapped else values(2, 2), values(2, *mask) > 14
    dims = (0 if x_is_mapped else None, 0)
    check(lambda x, mask: op.index_put(x, mask, 0), dims, x, mask)
    check(lambda x, mask: op.index_put(x, mask, 2, accumulate=True), dims, x, mask)
    check(lambda x, mask, value: op.index_put(x, mask, value), (*dims, 0), x, mask, np.array([-1.0, -2.0]))
    check(lambda x, mask, value: op.index_put(x, mask, value), (*dims, 0), x.astype(int), mask, np.array([-1.5, -2.5]))


@pytest.mark.parametrize("x_is_mapped", [True, False])
def test_one_number_is_put_where_a_mapped_mask_behind_slices_says(x_is_mapped):
    x, mask = values(2, 3, 2, 2) if x_is_mapped else values(3, 2, 2), values(2, 2) > 14
    dims = (0 if x_is_mapped else None, 0)
    for before in ((ALL,), (ALL, ALL)):
        check(lambda x, mask, before=before: op.index_put(x, (*before, mask), 0), dims, x, mask)
        check(lambda x, mask, before=before: op.index_put(x, (*before, mask), 2, accumulate=True), dims, x, mask)
        check(lambda x, mask, v, before=before: op.index_put(x, (*before, mask), v), (*dims, 0), x, mask, values(2))


@pytest.mark.parametrize("derivative", [jacfwd, jacrev, hessian], ids=["jacfwd", "jacrev", "hessian"])
def test_derivatives_where_each_example_has_its_own_mask(derivative):
    x, mask = values(3, 2) / 30, np.array([[True, False], [False, False], [True, True]])

    def cubes(x: Any, mask: Any) -> Any:
        y = op.power(op.index_put(x, mask, 0.0), 3)
        return op.sum(y) if derivative is hessian else y

    found = vmap(derivative(cubes))(x, mask)
    slopes = np.where(mask, 0.0, 6 * x if derivative is hessian else 3 * x**2)
    assert np.allclose(found, np.stack([np.diag(row) for row in slopes]), rtol=1e-12)


@pytest.mark.parametrize(("key", "shape"), [
    (0, (2,)), (0, ()), (0, (1, 2)), ((0, 1), ()), (ALL, (2, 2)), (ALL, (2,)), ((ALL, 0), (2,)), ((None, 0), (1, 2)),
    (Ellipsis, (1, 2, 2)), ((), (2,)), ((Ellipsis, None), (2, 1)),
], ids=str)
def test_batched_setitem(key, shape):
    x = values(2, 2, 2)
    check(lambda x, value: op.setitem(x, key, value), (0, None), x, values(*shape))
    check(lambda x, value: op.setitem(x, key, value), (0, 0), x, values(2, *shape))
    check(lambda x, value: op.setitem(x, key, value), (None, 0), x[0], values(2, *shape))
    target = x.copy()
    vmap(lambda x, value: op.setitem_(x, key, value))(target, values(2, *shape))
    assert np.array_equal(target, loop(lambda x, value: op.setitem(x, key, value), (0, 0), x, values(2, *shape)))


@pytest.mark.parametrize("write", [
    pytest.param(lambda x, y: op.setitem_(x, 0, y), id="setitem_"),
    pytest.param(lambda x, y: op.index_put_(x, np.array([0]), y), id="index_put_"),
    pytest.param(lambda x, y: op.index_put_(x, op.astype(y, np.dtype(int)), 1.0), id="by mapped index"),
    pytest.param(lambda x, y: op.scatter_add_(x, np.array([0]), y, 0), id="scatter_add_"),
    pytest.param(lambda x, y: op.add_(x, y), id="add_"),
    pytest.param(lambda x, y: op.sum.out(y, out=x), id="sum.out"),
])
def test_what_is_mapped_is_not_written_to_what_is_captured(write):
    captured = values(2)
    with pytest.raises(VmapError, match=r"(?s)np::.*outside the function of vmap.*would overwrite.*\n"):
        vmap(lambda y: write(captured, y))(np.zeros(2))
    assert np.array_equal(captured, values(2))


def test_constants_are_written_to_what_is_captured_once():
    captured = np.zeros(2)

    def function(x: Any) -> Any:
        op.add_(captured, 1.0)
        op.setitem_(captured, 0, 5.0)
        return x

    vmap(function)(values(3))
    assert np.array_equal(captured, [5, 1])


def test_writes_through_views_are_seen_in_the_source():
    x = Tensor(values(2, 3, 2))
    expected = x.array.copy()
    expected[:, 1] *= 2
    expected[:, :, 0] = 0

    def function(x: Any) -> Any:
        row = x[1]
        row *= 2
        x.T[0] = 0.0
        return x

    found = vmap(function)(x)
    assert np.array_equal(found.array, expected)
    assert np.array_equal(x.array, expected)


@pytest.mark.parametrize("call", [
    pytest.param(lambda x, y: op.setitem(x, ALL, y), id="setitem"),
    pytest.param(lambda x, y: op.index_put(x, np.array([0, 1]), y), id="index_put"),
    pytest.param(lambda x, y: op.scatter_add(x, np.array([0, 1]), y, 0), id="scatter_add"),
    pytest.param(op.full_like, id="full_like"),
    pytest.param(lambda x, y: op.full((2,), y), id="full"),
])
@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
def test_values_of_more_axes_than_the_target(call, batched):
    arrays = arrays_of(((2,), (2, 2)), batched)
    with pytest.raises((ValueError, IndexError)) as expected:
        call(values(2), values(2, 2))
    with pytest.raises(type(expected.value), match="broadcast"):
        vmap(lambda x, y: op.sum(x) + call(x, y), in_dims=dims_of(batched))(*arrays)


def test_values_without_elements_have_too_many_axes_too():
    with pytest.raises(ValueError, match="broadcast"):
        vmap(lambda x: op.setitem(x, ALL, np.zeros((2, 0))))(np.zeros((2, 0)))


# --- numbers and sequences -------------------------------------------------------------------------------------------


TO_CHOOSE, OF_ITS_OWN = r"(?s)vmap.*\n.*where", r"a value of vmap.*each example has its own value"


@pytest.mark.parametrize(("use", "message"), [
    pytest.param(lambda x: op.item(x), TO_CHOOSE, id="ops.np.item"),
    pytest.param(lambda x: x.item(), OF_ITS_OWN, id="item"),
    pytest.param(float, OF_ITS_OWN, id="float"), pytest.param(bool, TO_CHOOSE, id="bool"),
])
def test_numbers_are_refused(use, message):
    with pytest.raises(DataDependentError, match=message):
        vmap(use)(Tensor(values(2)))


def test_examples_are_sequences():
    def function(x: Any) -> Any:
        assert (len(x), x.shape, x.ndim, x.size) == (2, (2, 3), 2, 6)
        a, b = x
        return sum([row * (i + 1) for i, row in enumerate(x)]) + a - b

    x = Tensor(values(4, 2, 3))
    assert np.array_equal(vmap(function)(x).array, 2 * x.array[:, 0] + x.array[:, 1])


# --- joins, and factories -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stack", "concatenate"])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
@together("batched", [flags for flags in product((True, False), repeat=3) if any(flags)])
def test_joins_with_some_that_are_not_mapped(name, axis, batched):
    if (name, axis) == ("stack", None):
        axis = 2
    arrays = [values(2, 2, 2) + i if flag else values(2, 2) + i for i, flag in enumerate(batched)]
    check(lambda *arrays: getattr(op, name)(arrays, axis), dims_of(batched), *arrays)


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_an_example_does_not_have(axis):
    with pytest.raises(np.exceptions.AxisError, match=f"axis {axis} is out of bounds for array of dimension 2"):
        vmap(lambda x: op.concatenate((x, x), axis))(values(2, 2, 2))


def test_numbers_of_examples_are_no_vectors():
    with pytest.raises(ValueError, match="zero-dimensional arrays cannot be concatenated"):
        vmap(lambda x: op.concatenate((x, x)))(values(3))
    assert check(lambda x: op.stack((x, 2, x)), (0,), values(3)).shape == (3, 3)


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("axis", [0, -1])
@together("start, stop", [((), ()), ((), (2,)), ((2,), ()), ((2, 1), (2,))])
def test_batched_linspace(start, stop, axis, batched):
    arrays = arrays_of((start, stop), batched)
    check(lambda a, b: op.linspace(a, b, 3, axis=axis), dims_of(batched), *arrays)


def test_batched_full():
    check(lambda v: op.full((2, 2), v), (0,), values(2))
    check(lambda v: op.full((2, 2), v), (0,), values(2, 2))
    check(lambda v: op.full_like(np.zeros((2, 2)), v), (0,), values(2))
    check(op.full_like, (0, None), values(2, 2, 2), values(2))
    check(lambda x, v: op.full_like(x, v, shape=(2, 3)), (0, 0), values(2, 2), values(2))
    with pytest.raises(ValueError, match="broadcast"):
        vmap(lambda x: op.full_like(x, values(2, 2)))(values(2, 2))


def test_what_is_made_like_a_mapped_array_is_mapped():
    def function(x: Any) -> Any:
        made = op.zeros_like(x, shape=(2,))
        op.setitem_(made, 0, op.sum(x))
        return made

    check(function, (0,), values(3, 2))


def test_gradients_of_each_example():
    weights = values(3)
    found = vmap(grad(lambda x: op.sum(op.multiply(op.index(x, np.array([0, 0, 1])), weights))))(values(4, 2))
    assert np.array_equal(found, np.tile([weights[0] + weights[1], weights[2]], (4, 1)))


ROW = np.array([1.0, 10.0, 100.0])      # the same cotangent for every example


@pytest.mark.parametrize("outside", [False, True], ids=["vmap(grad)", "grad(vmap)"])
@pytest.mark.parametrize("x_is_mapped", [True, False], ids=["x mapped", "x shared"])
@pytest.mark.parametrize("read", [
    pytest.param(lambda x, i: op.index(x, i), id="index"),
    pytest.param(lambda x, i: op.stack([x[i[0]], x[i[1]], x[i[2]]]), id="x[i]"),
    pytest.param(lambda x, i: op.take(x, i, 0), id="take"),
    pytest.param(lambda x, i: op.take(x, i - 3, 0, mode="wrap"), id="take with wrap"),
    pytest.param(lambda x, i: op.take(x, i), id="take of all"),
    pytest.param(lambda x, i: op.take_along_axis(x, i, 0), id="take_along_axis"),
    pytest.param(lambda x, i: op.index_put(op.zeros_like(x), i, x[:3], accumulate=True)[:3], id="index_put values"),
    pytest.param(lambda x, i: op.index_put(x, i, 2.0)[:3], id="index_put target"),
    pytest.param(lambda x, i: op.scatter_add(x, i, x[:3], 0)[:3], id="scatter_add"),
])
def test_gradients_where_each_example_has_its_own_index(read, x_is_mapped, outside):
    x, indices = values(2, 4) if x_is_mapped else values(4), np.array([[0, 0, 3], [2, 1, 2]])
    dims = (0 if x_is_mapped else None, 0)

    def loss(x: Any, i: Any) -> Any:
        return op.sum(op.multiply(read(x, i), ROW))

    expected = np.zeros(x.shape)
    for n, k in product(range(2), range(4)):
        row = x[n] if x_is_mapped else x
        slope = loss(row + np.eye(4)[k], indices[n]) - loss(row, indices[n])     # it is linear in x
        expected[(n, k) if x_is_mapped else (k,)] += slope
    if outside:
        found = grad(lambda x: op.sum(vmap(loss, dims)(x, indices)))(x)
    else:
        found = vmap(grad(loss), dims)(x, indices)
        found = found if x_is_mapped else found.sum(0)
    assert np.allclose(found, expected, rtol=1e-12)
