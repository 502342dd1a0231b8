"""Loops on every type and layout give what NumPy gives, bit for bit: values, dtype, layout, warnings, errors."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pydispatch.numpy as pnp
from pydispatch import Tensor, _core, ops
from pydispatch.operators.declare import DECLARATIONS, IS_NUMPY_2_0
from tests.core.test_iteration import laid_out, layouts
from tests.numpy.calls import case_named
from tests.together import together
from tests.warning_filters import all_warnings

TYPES = [np.dtype(code) for code in "?bBhHiIlLqQfdFD"]
LEFT_TO_NUMPY = [np.dtype(code) for code in ("e", "g", "G", "O", ">f8", ">i4", "M8[s]", "m8[s]")]
UFUNCS = [ufunc for ufunc in (getattr(np, name, None) for name in DECLARATIONS)
          if isinstance(ufunc, np.ufunc) and ufunc.nout == 1 and ufunc.signature is None]
each_ufunc = pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)


def outcome(function, *args, of_layout=lambda array: array.strides, **kwargs):
    """Return the outcome of a call: type, dtype, shape, layout and bits of the result, or the error, and its warnings.
    """
    with all_warnings() as caught:
        try:
            result = function(*args, **kwargs)
        except (ValueError, TypeError, FloatingPointError, OverflowError) as error:
            told = type(error), str(error).partition("\n")[0]
        else:
            array = np.asarray(result)
            told = type(result), array.dtype, array.shape, of_layout(array), array.tobytes()
    return told, [(warning.category, str(warning.message)) for warning in caught]


def steps(array):
    """Return the strides of axes along which something is stepped over."""
    return tuple(stride for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1)


SPECIAL = {
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, -np.nan, 1e-30, 3e38, 88.7, 1e-42, 2.0, 7.25],
    "c": [0j, -0.0 + 1j, 1 - 2j, complex(np.inf, 1), complex(np.nan, 0), -0.5 + 0j, 3e-30j, 1e20 + 1e20j],
    "i": [0, 1, -1, 2, 3, 5, 100, -128, 127],
    "u": [0, 1, 2, 3, 5, 100, 255],
    "b": [False, True],
}


def numbers(dtype, shape, seed):
    return np.random.default_rng(seed).choice(np.array(SPECIAL[dtype.kind], dtype), shape)


def has_loop(ufunc, dtype):
    """Return whether NumPy calculates with these numbers without converting them."""
    try:
        types = ufunc.resolve_dtypes((*[dtype] * ufunc.nin, None))
    except TypeError:
        return False
    return types[:-1] == (dtype,) * ufunc.nin


def converts(ufunc, dtype, args):
    """Return whether NumPy converts these whole numbers to one floating-point type and runs one loop."""
    try:
        types = ufunc.resolve_dtypes((*[dtype] * ufunc.nin, None))
    except TypeError:
        return False
    if dtype.kind not in "biu" or types[:-1] != (types[0],) * ufunc.nin or types[0].char not in "efd":
        return False
    args = [arg for arg in args if arg.ndim]
    in_order = args[0].ndim == 1 or all(arg.flags.c_contiguous for arg in args) or (
        all(arg.flags.f_contiguous for arg in args))
    return in_order and len({arg.shape for arg in args}) == 1 and (types[0].char == "e") < args[0].size <= 64


def test_most_ufuncs_have_loops_for_many_types():
    found = [(ufunc, dtype) for ufunc in UFUNCS for dtype in TYPES if has_loop(ufunc, dtype)]
    assert len(found) > 400
    assert (np.less, np.dtype("f4")) in found
    assert (np.divide, np.dtype("i8")) not in found


SHAPES = [((5,), (5,)), ((3, 4), (3, 4)), ((8, 16), (16,)), ((16,), (8, 16)), ((8, 1), (1, 16)), ((8, 16), (8, 1)),
          ((2, 1), (1, 40)), ((4, 3, 5), (3, 1)), ((6, 1, 5), (4, 1)), ((1,), (7,)), ((1, 1), (1,)), ((), (9,)),
          ((2, 3, 1, 4), (3, 5, 1)), ((70, 50), (50,))]


@each_ufunc
def test_every_ufunc_on_every_type(ufunc):
    for dtype in TYPES:
        with case_named(dtype):
            check_of_type(ufunc, dtype)


def check_of_type(ufunc, dtype):
    taken = has_loop(ufunc, dtype)
    for k, shapes in enumerate(SHAPES):
        args = [numbers(dtype, shape, k + 17 * i) for i, shape in enumerate(shapes[:ufunc.nin])]
        for given_args in (args, [arg.T for arg in args] if shapes[0] == shapes[-1] else args[::-1],
                           [arg[..., ::-1] if arg.ndim else arg for arg in args]):
            if max(arg.ndim for arg in given_args) == 0:
                continue
            expected = outcome(ufunc, *given_args)
            found = outcome(_core.loop_result, ufunc, *given_args)
            if taken or converts(ufunc, dtype, given_args):
                assert found == expected, shapes
            else:
                assert _core.loop_result(ufunc, *given_args) is NotImplemented


@pytest.mark.parametrize("dtype", LEFT_TO_NUMPY, ids=str)
def test_other_types_are_left_to_numpy(dtype):
    x = np.ones((2, 3)).astype("i8").astype(dtype)
    for ufunc in (np.add, np.less, np.negative, np.maximum):
        assert _core.loop_result(ufunc, *[x] * ufunc.nin) is NotImplemented


NUMBERS = [0, 1, -1, 3, 127, 128, 200, 255, 256, 65536, 2**29, 2**31, -200, 0.0, -0.0, 2.5, 1e-40, 1e39, float("inf"),
           float("nan"), True, False, 1j, np.float64(1.5), np.float32(1.5), np.int64(3), np.bool(True)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@together("number", NUMBERS, ids=lambda number: f"{type(number).__name__} {number}")
def test_numbers_take_on_the_type_of_the_array(number, dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)[:, ::-1]
    names = ["add", "multiply", "maximum", "power", "copysign", "logical_and", "logical_or", "logical_xor"]
    if not (IS_NUMPY_2_0 and type(number) is int):      # where NumPy's comparison may crash
        names.append("less_equal")
    for name in names:
        for args in ((x, number), (number, x)):
            assert outcome(getattr(ops.np, name), *args) == outcome(getattr(np, name), *args), name


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.logical_and,
                                   *(() if IS_NUMPY_2_0 else (np.less, np.not_equal))],
                         ids=lambda ufunc: ufunc.__name__)
@together("dtype", [dtype for dtype in TYPES if dtype.kind in "iu"], ids=str)
def test_numbers_beside_integers_have_loops(ufunc, dtype):
    x = np.array([3, 1, 2, 0], dtype)
    for args in ((x, 3), (3, x)):
        assert outcome(_core.loop_result, ufunc, *args) == outcome(ufunc, *args)


@st.composite
def operands(draw, n, types=TYPES):
    shapes = draw(arrays.mutually_broadcastable_shapes(num_shapes=n, min_dims=0, max_dims=4, max_side=5))
    dtype = draw(st.sampled_from(types))
    return [laid_out(numbers(dtype, shape, draw(st.integers(0, 99))), *draw(layouts)) for shape in shapes.input_shapes]


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_masks_beside_numbers(data):
    ufunc = data.draw(st.sampled_from([ufunc for ufunc in UFUNCS if ufunc.nin == 2]))
    args = data.draw(operands(2, [np.dtype("f4"), np.dtype("f8")]))
    which = data.draw(st.integers(0, 1))
    args[which] = laid_out(args[which] != 0, *data.draw(layouts))
    operator = getattr(ops.np, ufunc.__name__)      # NumPy may copy a mask first: axes of one element differ then
    assert outcome(operator, *args, of_layout=steps) == outcome(ufunc, *args, of_layout=steps)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@together("shapes", SHAPES, ids=str)
def test_masks_beside_numbers_have_loops(dtype, shapes):
    x, mask = numbers(np.dtype(dtype), shapes[0], 0), numbers(np.dtype(bool), shapes[1], 1)
    for args in ((x, mask), (mask, x), (x[..., ::-1] if x.ndim else x, mask), (x.T, mask.T)):
        if shapes[0] == shapes[1] or args[0] is x or args[0] is mask:
            for ufunc in (np.multiply, np.maximum, np.less, np.arctan2):
                assert outcome(_core.loop_result, ufunc, *args) == outcome(ufunc, *args)
    assert _core.loop_result(np.logical_and, x, mask) is NotImplemented or x.ndim + mask.ndim == 0


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_ufuncs_on_any_layout(data):
    ufunc = data.draw(st.sampled_from(UFUNCS))
    args = data.draw(operands(ufunc.nin))
    expected = outcome(ufunc, *args)
    assert outcome(getattr(ops.np, ufunc.__name__), *args) == expected
    tensors = [Tensor(arg) for arg in args]
    assert outcome(lambda: getattr(ops.np, ufunc.__name__)(*tensors).array)[0][1:] == expected[0][1:] or (
        isinstance(expected[0][0], type) and issubclass(expected[0][0], Exception))


@each_ufunc
def test_operands_without_a_common_shape_raise_as_in_numpy(ufunc):
    if ufunc.nin == 2:
        args = np.ones((2, 3), "f4"), np.ones((2, 4), "f4")
        assert outcome(getattr(ops.np, ufunc.__name__), *args) == outcome(ufunc, *args)


# --- errors ----------------------------------------------------------------------------------------------------------

ERRORS = {
    "divide": (np.log, [np.zeros((2, 3), "f4")]), "over": (np.exp, [np.full(3, 1000, "f4")]),
    "under": (np.multiply, [np.full((2, 3), 1e-30, "f4").T, np.full((2,), 1e-30, "f4")]),
    "invalid": (np.subtract, [np.full((2, 1), np.inf), np.full((1, 2), np.inf)]),
}
INT_ERRORS = {
    "divide": (np.floor_divide, [np.ones((2, 3), int), np.zeros(3, int)]),
    "over": (np.floor_divide, [np.full(3, np.iinfo("i4").min, "i4"), np.full(3, -1, "i4")]),
}


@pytest.mark.parametrize(("kind", "case"), [*ERRORS.items(), *INT_ERRORS.items()])
@pytest.mark.parametrize("how", ["ignore", "warn", "raise"])
def test_errstate_holds(kind, case, how):
    ufunc, args = case
    with np.errstate(**{kind: how}):
        expected = outcome(ufunc, *args)
        assert outcome(_core.loop_result, ufunc, *args) == expected
        assert outcome(getattr(ops.np, ufunc.__name__), *args) == expected
    assert (expected[0][0] is FloatingPointError) == (how == "raise")


def test_a_loop_that_raises_says_what_numpy_says():
    args = np.arange(3), np.array([-1, 2, -3])
    assert outcome(_core.loop_result, np.power, *args) == outcome(np.power, *args)
    assert outcome(_core.loop_result, np.power, *args)[0][0] is ValueError


# --- `where` and `clip` ----------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_where_on_any_layout(data):
    mask, *args = data.draw(operands(3))
    mask = (mask != 0)
    for k in range(2):
        if data.draw(st.booleans()):
            args[k] = data.draw(st.sampled_from(NUMBERS))
    assert outcome(ops.np.where, mask, *args) == outcome(np.where, mask, *args)


def test_where_has_a_loop():
    mask, x = np.array([True, False]), np.array([1.0, 2.0])
    for args in ((mask, x, x), (mask, x, 0.0), (mask, 1.0, x), (mask, 1.0, 0.0), (mask[:, None], x, -x)):
        assert outcome(_core.loop_result, np.where, *args) == outcome(np.where, *args)
    for args in ((x, x, x), (mask, x, x > 1), (mask, x.astype("f4"), x), (mask, 1, 2), (True, x, x), (mask, x, None)):
        assert _core.loop_result(np.where, *args) is NotImplemented


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_clip_on_any_layout(data):
    array, *limits = data.draw(operands(3, [dtype for dtype in TYPES if dtype.kind not in "bc"]))
    limits = [data.draw(st.sampled_from([limit, None, *NUMBERS[:20]])) for limit in limits]
    for count in (1, 2):
        args = array, *limits[:count]
        if any(limit is not None for limit in args[1:]):
            assert outcome(ops.np.clip, *args) == outcome(lambda a, *rest: a.clip(*rest), *args)


# --- numbers, and `out` ----------------------------------------------------------------------------------------------

SCALARS = [True, False, 0, 1, -1, 3, 2.5, -2.5, -0.0, float("inf"), float("nan"), 1e300, 2**40, np.float64(1.5),
           np.float32(2.5), np.int64(3), *[np.array(number, dtype) for dtype in TYPES for number in
                                           {"b": (True, False), "u": (0, 3), "i": (-1, 0, 3)}.get(
                                               dtype.kind, (0.0, -1.5, np.inf, np.nan))]]


@each_ufunc
def test_numbers_and_arrays_without_axes(ufunc):
    function = getattr(pnp, ufunc.__name__)
    firsts = SCALARS if ufunc.nin == 1 else [1, True, -2.5, np.float64(1.5), *[np.array(1, dtype) for dtype in TYPES]]
    for first in firsts:
        for args in [(first,)] if ufunc.nin == 1 else [(first, second) for second in SCALARS if ufunc.nin == 2]:
            assert outcome(function, *args) == outcome(ufunc, *args), args


def outs(dtype, shape):
    """Yield arrays to write into: of every order, with gaps, backwards, of other types and shapes.

    One that is no array.
    """
    yield np.zeros(shape, dtype)
    yield np.zeros(shape, dtype, order="F")
    yield np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
    yield np.zeros(shape, dtype)[..., ::-1]
    yield np.zeros(shape, "f8")
    yield np.zeros(shape, "i2")
    yield np.zeros((2, *shape), dtype)
    yield np.zeros((), dtype)
    yield np.broadcast_to(np.zeros((), dtype), shape)
    yield np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, (0,) * len(shape))
    yield np.zeros(shape, dtype).view(np.matrix) if len(shape) == 2 else np.zeros(shape, dtype).tolist()


@each_ufunc
def test_results_are_written_into_out(ufunc):
    for dtype, shape in itertools.product(TYPES, [(5,), (3, 4)]):
        with case_named(dtype, shape):
            check_out(ufunc, dtype, shape)


def check_out(ufunc, dtype, shape):
    function = getattr(pnp, ufunc.__name__)
    args = [numbers(dtype, shape, i) for i in range(ufunc.nin)]
    result_type = dtype if not has_loop(ufunc, dtype) else ufunc.resolve_dtypes((*[dtype] * ufunc.nin, None))[-1]
    for k, (out, same) in enumerate(zip(outs(result_type, shape), outs(result_type, shape), strict=True)):
        if k % 2:
            assert outcome(function, *args, out) == outcome(ufunc, *args, same), k
        else:
            assert outcome(function, *args, out=out) == outcome(ufunc, *args, out=same), k


@each_ufunc
def test_results_of_another_dtype(ufunc):
    functions = [getattr(module, ufunc.__name__) for module in (pnp, ops.np)]
    wanted_types = map(np.dtype, ["f", "d", "?", "l", "B", "D", "e", ">f8"])
    for (i, dtype), (j, wanted) in itertools.product(enumerate(TYPES), enumerate(wanted_types)):
        size = (3, 16, 70)[(UFUNCS.index(ufunc) + i + j) % 3]       # neighbours call each pair of types with all sizes
        args = [numbers(dtype, size, k) if size > 3 else np.arange(1, 1 + size).astype(dtype) for k in range(ufunc.nin)]
        for given_args in (args, [args[0], *[2] * (ufunc.nin - 1)], [args[0], *[0.5] * (ufunc.nin - 1)]):
            expected = without_type_of_error(ufunc, *given_args, dtype=wanted)
            for function in functions:
                with case_named(function, dtype, wanted, size, given_args[1:]):
                    assert without_type_of_error(function, *given_args, dtype=wanted) == expected


def without_type_of_error(function, *args, **kwargs):
    """Return the outcome without the type of an error, since operators word conversion errors differently."""
    (told, warned) = outcome(function, *args, **kwargs)
    return "an error" if len(told) == 2 else (told, warned)


@each_ufunc
def test_operators_write_into_out(ufunc):
    function = getattr(ops.np, ufunc.__name__)
    for dtype, shape in itertools.product(TYPES, [(5,), (3, 4)]):
        if has_loop(ufunc, dtype):
            args = [numbers(dtype, shape, i) for i in range(ufunc.nin)]
            with case_named(dtype, shape):
                ours, theirs = [np.zeros(shape, ufunc.resolve_dtypes((*[dtype] * ufunc.nin, None))[-1]) for _ in "01"]
                expected = outcome(ufunc, *args, out=theirs)
                assert outcome(function, *args, out=ours) == expected
                if len(expected[0]) == 2:       # an error: 2 to the power of -1 is no integer
                    continue
                held = Tensor(np.zeros_like(ours))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert function(*map(Tensor, args), out=held) is held
                assert held.array.tobytes() == theirs.tobytes()


def test_out_is_the_result():
    x, out = np.ones(4), np.empty(4)
    assert pnp.sin(x, out=out) is out
    assert pnp.add(x, x, out) is out
    assert pnp.add(x, 1, out=x) is x


@pytest.mark.parametrize("name", ["add", "subtract", "greater", "power"])
@pytest.mark.parametrize("place", [
    pytest.param(lambda m: (m[:4], m[1:5]), id="ahead"), pytest.param(lambda m: (m[1:5], m[:4]), id="behind"),
    pytest.param(lambda m: (m[:4], m[:4]), id="same"), pytest.param(lambda m: (m[:4], m[3::-1]), id="backwards"),
    pytest.param(lambda m: (m[::2][:4], m[:4]), id="gaps"), pytest.param(lambda m: (m[:4], m[4:8]), id="beside"),
    pytest.param(lambda m: (m.reshape(2, 4), m.reshape(4, 2).T), id="transposed"),
    pytest.param(lambda m: (m[3], m[:4]), id="an element"),
])
@together("dtype", ["f8", "f4", "i8", "?"])
def test_out_that_shares_memory_with_an_operand(name, dtype, place):
    def run(module):
        x, out = place(np.array([3, 1, 2, 0, 5, 4, 1, 2], dtype))
        return outcome(getattr(module, name), x, np.ones(4, dtype)[:x.shape[-1] if x.ndim else 4], out=out)
    assert run(pnp) == run(np)
