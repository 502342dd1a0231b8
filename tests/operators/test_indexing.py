"""Reading and writing selected elements: which keys are whose, what is a view, what is written once or summed."""

import warnings

import numpy as np
import pytest

from pydispatch import Tensor, compile, ops
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func import functionalize, jvp, vjp, vmap
from tests.together import together

INDEX_ARRAYS = [np.array([0, 1]), np.array(1), np.array([True, False]), True, np.True_, (slice(None), np.array([0]))]


def array():
    return np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("key", [0, (1, 2, ...), (0, ..., 1), ..., None, slice(None, None, -2), (), (None, 1)])
def test_getitem_gives_views(key):
    x = array()
    view = ops.np.getitem(x, key)
    assert isinstance(view, np.ndarray)
    view[...] = 7
    assert (np.asarray(x[key]) == 7).all()


@pytest.mark.parametrize("key", INDEX_ARRAYS)
def test_index_gives_copies(key):
    x = array()
    copy = ops.np.index(x, key)
    assert np.array_equal(copy, x[key])
    assert not np.may_share_memory(copy, x)


@pytest.mark.parametrize("key", INDEX_ARRAYS)
def test_basic_operators_send_index_arrays_to_their_twins(key):
    with pytest.raises(DispatchTypeError, match=r"getitem: argument key holds an? .*\nuse ops\.np\.index for"):
        ops.np.getitem(array(), key)
    with pytest.raises(DispatchTypeError, match=r"setitem_: argument key holds an? .*\nuse ops\.np\.index_put_ for"):
        ops.np.setitem_(array(), key, 1)


@pytest.mark.parametrize("key", [0, (1, slice(None)), ..., None])
def test_operators_for_index_arrays_send_basic_keys_to_their_twins(key):
    with pytest.raises(DispatchTypeError, match=r"index: .* no index array or mask\nuse ops\.np\.getitem"):
        ops.np.index(array(), key)
    with pytest.raises(DispatchTypeError, match=r"index_put_: .* or mask\n.*np\.setitem_, or ops\.np\.setitem "):
        ops.np.index_put_(array(), key, 1)


def test_an_integer_of_numpys_is_an_index_array_without_axes():
    x = array()
    row = ops.np.index(x, np.int64(1))
    np.testing.assert_array_equal(row, x[1])
    assert not np.may_share_memory(row, x)
    np.testing.assert_array_equal(ops.np.index(x, (slice(None), np.int64(1))), x[:, 1])
    ops.np.index_put_(x, np.int64(1), 7)
    np.testing.assert_array_equal(x[1], 7)


class Position:
    """An int in all but type."""

    def __index__(self):
        return 1


def test_whatever_says_which_int_it_is_indexes_like_that():
    x, written = Tensor(array()), Tensor(array())
    assert x[Position()].tolist() == array()[1].tolist()
    assert x[0, Position()].tolist() == array()[0, 1].tolist()
    written[Position()] = 7
    assert (written.array[1] == 7).all()


def no_key(name, key, remedy):
    return pytest.param(key, remedy, id=name)


NO_KEYS = [
    no_key("range", range(2), "pass tuple(range(0, 2)) for one index per axis, or np.array(range(0, 2))"),
    no_key("range beside an int", (0, range(2)), "pass tuple(range(0, 2)) for one index per axis"),
    no_key("range beside an array", (range(2), np.array([0])), "pass tuple(range(0, 2)) for one index per axis"),
    no_key("set", {1}, "pass np.array(list(...))"),
    no_key("iterator", iter([1]), "pass np.array(list(...))"),
    no_key("text", "a", "pass int(number), an index array, or a slice"),
    no_key("text beside an int", (0, "a"), "pass int(number)"),
    no_key("float", 1.0, "pass int(number)"),
    no_key("NumPy float", np.float64(1), "pass int(number)"),
    no_key("object", object(), "pass int(number)"),
]


TAKES_NUMPYS_KEYS = {
    "t[key]": lambda x, key: Tensor(x)[key],
    "t[key] = v": lambda x, key: Tensor(x).__setitem__(key, 1),
    "vmap": lambda x, key: vmap(lambda rows: rows[key])(np.stack([x, x])),
}
TAKES_NO_RANGES = {
    "index": ops.np.index,
    "index_put": lambda x, key: ops.np.index_put(x, key, 1),
    "Meta": lambda x, key: ops.np.index(MetaArray(x.shape), key),
}


@pytest.mark.parametrize(("use", "key", "remedy"), [
    pytest.param(use, *row.values, id=f"{name}-{row.id}")
    for name, use in {**TAKES_NUMPYS_KEYS, **TAKES_NO_RANGES}.items() for row in NO_KEYS
    if name in TAKES_NO_RANGES or "range" not in row.id
])
def test_what_is_no_key_is_refused_with_a_remedy(use, key, remedy):
    with pytest.raises(DispatchTypeError, match=r"^[a-z_]+: argument key holds \w+ .*, expected ints") as caught:
        use(array(), key)
    assert str(caught.value).splitlines()[1].startswith(remedy)


@pytest.mark.parametrize("key", [range(2), (0, range(2)), (range(2), np.array([0])), (..., range(1))])
def test_ranges_are_keys(key):
    x, written = array(), array()
    assert np.array_equal(Tensor(x)[key].numpy(), x[key])
    assert np.array_equal(vmap(lambda rows: rows[key])(np.stack([x, x])), np.stack([x[key], x[key]]))
    Tensor(written)[key] = 7
    x[key] = 7
    assert np.array_equal(written, x)


@pytest.mark.parametrize(("key", "remedy"), NO_KEYS)
@pytest.mark.parametrize("use", [ops.np.getitem, lambda x, key: ops.np.setitem(x, key, 1)], ids=["getitem", "setitem"])
def test_basic_operators_leave_it_to_numpy_but_for_ranges(use, key, remedy):
    items = key if type(key) is tuple else (key,)
    with pytest.raises(DispatchTypeError if any(isinstance(item, range) for item in items) else IndexError):
        use(array(), key)


def test_lists_are_no_index_arrays():
    with pytest.raises(DispatchTypeError, match=r"index: argument key holds a tuple.*\npass np\.array\(\(0, 1\)\)"):
        ops.np.index(array(), ([0, 1], 0))
    with pytest.raises(DispatchTypeError, match="getitem: argument key holds a tuple"):
        ops.np.getitem(array(), ([0, 1], 0))


def test_tensors_in_a_key():
    x = Tensor(array())
    found = ops.np.index(x, (slice(None), Tensor(np.array([2, 0]))))
    assert isinstance(found, Tensor)
    assert found.tolist() == [[2, 0], [5, 3]]


def test_repeated_indices_are_written_once_or_summed():
    indices = np.array([0, 0, 2])
    assert ops.np.index_put(np.zeros(3), indices, np.array([1.0, 2.0, 3.0])).tolist() == [2, 0, 3]
    assert ops.np.index_put(np.zeros(3), indices, np.array([1.0, 2.0, 3.0]), accumulate=True).tolist() == [3, 0, 3]
    assert ops.np.scatter_add(np.zeros((1, 3)), indices[None], np.ones((1, 3)), 1).tolist() == [[2, 0, 1]]


PLACES = np.random.default_rng(0).integers(-5, 5, 40)


@pytest.mark.parametrize(("shape", "key"), [
    pytest.param((5,), PLACES, id="elements"),
    pytest.param((5,), np.sort(PLACES), id="sorted"),
    pytest.param((5, 3), PLACES, id="rows"),
    pytest.param((5, 3), (PLACES[::2].astype(np.int32), ...), id="strided_int32"),
    pytest.param((5, 2, 2), PLACES.reshape(4, 10), id="matrices"),
    pytest.param((3, 5), (slice(None), PLACES), id="columns"),
    pytest.param((2, 5, 3), (slice(None), PLACES.reshape(4, 10)), id="middle"),
    pytest.param((5, 3), PLACES[:0], id="nothing"),
    pytest.param((5, 5), (PLACES, PLACES[::-1]), id="single"),
])
@pytest.mark.parametrize("layout", ["whole", "strided", "row", "number"])
@together("dtype", [bool, np.int8, np.uint64, np.float16, np.float32, np.float64, np.complex64])
def test_layers_are_added_in_numpys_order(dtype, shape, key, layout):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(shape) * 100).astype(dtype)
    values = (rng.standard_normal(x[key].shape) * 10.0 ** rng.integers(-3, 3, x[key].shape)).astype(dtype)
    values = {"whole": values, "strided": np.repeat(values, 2, -1)[..., ::2], "row": values[:1],
              "number": np.array(3, dtype)}[layout]
    expected = x.copy()
    np.add.at(expected, key, np.broadcast_to(values, x[key].shape))

    def put(x, values):
        return ops.np.index_put(x, key, values, accumulate=True)

    for function in (put, compile(put)):
        np.testing.assert_array_equal(function(x, values), expected, strict=True)


@pytest.mark.parametrize("index", [5, -6])
@pytest.mark.parametrize("transform", [lambda f: f, compile])
def test_nothing_is_added_where_a_position_is_out_of_range(index, transform):
    x = np.ones((5, 3))
    with pytest.raises(IndexError, match=str(index)):
        transform(lambda x, key: ops.np.index_put(x, key, 1.0, accumulate=True))(x, np.array([0, index]))
    with pytest.raises(IndexError, match=str(index)):
        ops.np.index_put_(x, np.array([0, index]), np.ones((2, 3)), accumulate=True)
    assert (x == 1).all()


def test_sums_of_layers_report_what_numpy_reports():
    huge = np.full((2, 3), 1e308)
    for transform in (lambda f: f, compile):
        add = transform(lambda x: ops.np.index_put(x, np.array([0, 0]), huge, accumulate=True))
        with pytest.warns(RuntimeWarning, match="overflow encountered in add"):
            assert np.isinf(add(huge)[0]).all()


def test_values_in_the_memory_to_which_they_are_added():
    x = np.arange(4)
    ops.np.index_put_(x, x, x[::-1], accumulate=True)
    assert x.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(("key", "values", "expected"), [
    pytest.param(lambda x: x, lambda x: 3, [3, 3, 1, 0], id="key"),
    pytest.param(lambda x: x[::-1], lambda x: 3, [3, 3, 1, 0], id="reversed_key"),
    pytest.param(lambda x: x[1:3], lambda x: 10**6, [10**6, 10**6, 1, 0], id="far_outside"),
    pytest.param(lambda x: np.array([3, 2, 1, 0]), lambda x: x, [0, 1, 0, 1], id="values"),
    pytest.param(lambda x: (x[:3],), lambda x: x[:3], [0, 1, 1, 0], id="key_and_values"),
])
@pytest.mark.parametrize("write", [
    pytest.param(ops.np.index_put_, id="index_put_"),
    pytest.param(lambda x, key, values: Tensor(x).__setitem__(key, values), id="Tensor"),
])
def test_index_arrays_and_values_in_the_memory_that_is_written_to(write, key, values, expected):
    x = np.array([1, 0, 1, 0])
    write(x, key(x), values(x))
    assert x.tolist() == expected


def test_scatter_add_is_the_adjoint_of_take_along_axis():
    x, indices = array(), np.array([[2, 2, 0, -1], [0, 1, 1, 0]])
    weights = np.arange(8.0).reshape(2, 4)
    taken = ops.np.take_along_axis(x, indices, 1)
    scattered = ops.np.scatter_add(np.zeros_like(x), indices, weights, 1)
    assert (taken * weights).sum() == (x * scattered).sum()


@pytest.mark.parametrize("x", [
    pytest.param(np.arange(4.0), id="float64"),
    pytest.param(np.arange(8.0)[::2], id="strided"),
    pytest.param(np.arange(4.0).astype(">f8"), id="byte_swapped"),
    pytest.param(np.arange(4, dtype=np.float32), id="float32"),
])
@pytest.mark.parametrize("indices", [
    pytest.param(np.array([2, -1, 2, 0]), id="intp"),
    pytest.param(np.array([2, 9, -1, 9, 2, 9, 0, 9])[::2], id="strided_positions"),
    pytest.param(np.array([2, -1, 2, 0], dtype=np.int32), id="int32"),
    pytest.param(np.zeros(0, dtype=int), id="none"),
])
def test_vectors_are_taken_and_their_gradients_added_at_positions(x, indices):
    weights = np.arange(1.0, len(indices) + 1).astype(x.dtype)
    taken, pull_back = vjp(lambda x: ops.np.take_along_axis(x, indices, 0), x)
    expected = np.zeros_like(x)
    np.add.at(expected, indices, weights)
    np.testing.assert_array_equal(taken, x[indices], strict=True)
    np.testing.assert_array_equal(pull_back(weights)[0], expected)


@pytest.mark.parametrize("index", [4, -5])
def test_positions_beyond_a_vector_are_an_index_error(index):
    with pytest.raises(IndexError):
        ops.np.take_along_axis(np.arange(4.0), np.array([0, index]), 0)


@pytest.mark.parametrize(("name", "args"), [
    ("setitem", (0, 9.0)), ("index_put", (np.array([0]), 9.0)), ("scatter_add", (np.array([[0]]), 9.0, 1))])
def test_functions_leave_their_argument_alone(name, args):
    x = array()
    written = getattr(ops.np, name)(x, *args)
    assert np.array_equal(x, array())
    assert getattr(ops.np, f"{name}_")(x, *args) is x
    assert np.array_equal(x, written)


@pytest.mark.parametrize("target", [1.0, np.float64(1)])
@pytest.mark.parametrize(("name", "args"), [("add_", (1,)), ("setitem_", ((), 1)), ("sin_", ())])
def test_scalars_are_not_written_to(name, args, target):
    with pytest.raises(DispatchTypeError, match=(
            rf"np::{name}: argument 'x1?' .*: expected an array to write into, "
            rf"found float.*\n.*call ops\.np\.{name[:-1]},")):
        getattr(ops.np, name)(target, *args)


@pytest.mark.parametrize("key", [np.array([1, 0]), np.array([True, True]), (slice(None), np.array([1, 0, 2]))], ids=str)
def test_values_that_share_memory_with_what_is_written_to(key):
    x = np.arange(6.0).reshape(2, 3)
    expected = x.copy()
    expected[key] = x[:, ::-1].copy()
    assert np.array_equal(ops.np.index_put_(x, key, x[:, ::-1]), expected)


def assigned(x, key, value):
    x = x.copy()
    x[key] = value
    return x


@pytest.mark.parametrize("key", [0, (0,), ..., (0, ...), None, slice(0, 1)], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_one_element_takes_what_it_takes_in_numpy(key, shape):
    def outcome(f, *args):
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            try:
                return np.asarray(f(*args)).tolist()
            except (ValueError, DeprecationWarning) as error:
                return type(error)

    x, value = np.arange(3.0), np.full(shape, 7.0)
    expected = outcome(assigned, x, key, value)
    assert outcome(lambda x: compile(lambda x, v: assigned(x, key, v))(x, value), x) == expected
    assert outcome(lambda x: compile(lambda x: assigned(x, key, value))(x), x) == expected
    assert outcome(lambda x: functionalize(lambda x: assigned(x, key, value))(x), x) == expected
    assert outcome(lambda x: jvp(lambda x: assigned(x, key, value), (x,), (x,))[0], x) == expected
    for dims, values in ((0, 0), np.stack([value, value])), ((0, None), value):
        batched = vmap(lambda x, v: assigned(x, key, v), dims)
        assert outcome(lambda x, v: batched(x, v)[0], np.stack([x, x]), values) == expected     # noqa: B023
