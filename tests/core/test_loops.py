"""Loops of float64 give the bits, warnings and errors of NumPy, which computes everything that is not plain.

Other types and layouts: test_elementwise.py. Reductions: test_folds.py. The order of loops: test_iteration.py.
"""

import itertools
import tracemalloc
import warnings

import numpy as np
import pytest

from pydispatch import Tensor, _core, func, ops
from pydispatch._registry.fused_formulas import PRODUCTS, fused_formula_of
from pydispatch.autograd import grad
from pydispatch.library import Library
from pydispatch.operators.declare import DECLARATIONS, operators
from tests.together import together
from tests.warning_filters import all_warnings

cos, sin, total = operators("cos", "sin", "sum")

SPECIAL = np.array([
    0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1e308, -1e308, 710.0, 1e-8])
UFUNCS = [
    ufunc for ufunc in (getattr(np, name, None) for name in DECLARATIONS)
    if isinstance(ufunc, np.ufunc) and ufunc is not np.matmul and "d" * ufunc.nin + "->d" in ufunc.types
]
each_ufunc = pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)


def outcome(function, *args):
    """Return the outcome of a call: type, dtype, shape and bits of the result, or the error, and what it warned of."""
    with all_warnings() as caught:
        try:
            result = function(*args)
        except (ValueError, TypeError, FloatingPointError) as error:
            told = type(error), str(error).partition("\n")[0]
        else:
            told = type(result), result.dtype, result.shape, np.asarray(result).tobytes()
    return told, [(warning.category, str(warning.message)) for warning in caught]


def operands(ufunc, *choices):
    """Return every combination of the choices, as many as the ufunc takes."""
    return itertools.product(choices, repeat=ufunc.nin)


# --- element by element ----------------------------------------------------------------------------------------------


def test_the_library_has_many_ufuncs_with_loops():
    assert len(UFUNCS) > 40
    assert {"add", "divide", "tanh", "logaddexp", "copysign", "rint"} <= {ufunc.__name__ for ufunc in UFUNCS}


@each_ufunc
def test_special_values_come_out_as_from_numpy(ufunc):
    pairs = np.array(list(itertools.product(SPECIAL, repeat=2))).T
    args = [np.ascontiguousarray(row) for row in pairs[:ufunc.nin]]
    assert outcome(_core.loop_result, ufunc, *args) == outcome(ufunc, *args)
    for i in range(len(SPECIAL)):
        single = [np.ascontiguousarray(row[i::len(SPECIAL)][:3]) for row in pairs[:ufunc.nin]]
        assert outcome(_core.loop_result, ufunc, *single) == outcome(ufunc, *single)


@each_ufunc
@together("shape", [(1,), (2,), (3,), (8,), (17,), (4096,), (2, 3), (1, 1), (3, 1, 2)], ids=str)
def test_shapes_come_out_as_from_numpy(ufunc, shape):
    random = np.random.default_rng(0)
    args = [random.uniform(0.1, 0.9, shape) for _ in range(ufunc.nin)]
    assert outcome(_core.loop_result, ufunc, *args) == outcome(ufunc, *args)


@pytest.mark.parametrize("ufunc", [np.add, np.divide, np.arctan2, np.power], ids=lambda ufunc: ufunc.__name__)
@together("number", [2.0, -0.0, float("nan"), 3, 0, -7, 2**29, np.float64(1.5),
                     np.array(0.25)], ids=lambda number: f"{type(number).__name__} {number}")
def test_numbers_stand_for_arrays(ufunc, number):
    x = np.array([1.0, 2.0, 0.5])
    for args in ((x, number), (number, x)):
        assert outcome(_core.loop_result, ufunc, *args) == outcome(ufunc, *args)


@pytest.mark.parametrize("ufunc", [np.subtract, np.divide, np.hypot], ids=lambda ufunc: ufunc.__name__)
@together("left, right", [
    ((3, 4), (4,)), ((4,), (3, 4)), ((2, 3, 4), (3, 4)), ((2, 3, 4), (4,)), ((4,), (2, 3, 4)), ((5, 1), (1,)),
    ((3, 4), (1,)), ((1, 1), (3, 4)), ((1,), (1,)), ((1,), (1, 1)),
], ids=str)
def test_rows_are_repeated(ufunc, left, right):
    random = np.random.default_rng(0)
    args = random.normal(size=left), random.normal(size=right)
    assert outcome(_core.loop_result, ufunc, *args) == outcome(ufunc, *args)


@pytest.mark.parametrize("values", ["normal", "negative zeros", "infinities"])
@together("shape", [(3, 4), (1, 4), (3, 1), (1, 1), (2, 7), (2, 8), (2, 9), (3, 127), (3, 129), (8, 500), (2, 3, 4),
                    (2, 3, 1), (2, 1, 9)], ids=str)
def test_sums_over_the_last_axes(shape, values):
    x = np.random.default_rng(0).normal(size=shape)
    if values == "negative zeros":
        x = np.full(shape, -0.0)
    elif values == "infinities":
        x[0] = np.inf
        x[0, ..., -1] = -np.inf
    fold = _core.Reduction(np.add)
    for kept in range(1, len(shape)):
        axes = tuple(range(kept, len(shape)))
        assert outcome(fold, x, axes) == outcome(np.add.reduce, x, axes)


class Array(np.ndarray):
    """A subclass."""


PLAIN = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
READ_ONLY = PLAIN.copy()
READ_ONLY.flags.writeable = False
LAID_OUT_OTHERWISE = {"column": PLAIN[:, :1].copy(), "stretched row": PLAIN[:1].copy(), "turned": PLAIN.T.copy().T,
                      "strided": np.ones((2, 6))[:, ::2], "reversed": PLAIN[:, ::-1],
                      "repeated": np.broadcast_to(np.float64(2), (2, 3))}
NOT_PLAIN = {
    "swapped": PLAIN.astype(">f8"), "subclass": PLAIN.view(Array), "object": PLAIN.astype(object),
    "unaligned": np.frombuffer(b"." + PLAIN.tobytes(), "u1")[1:].view("f8").reshape(2, 3),
    "with metadata": PLAIN.astype(np.dtype("f8", metadata={"unit": "m"}))[:, ::-1],
    "float32": PLAIN.astype("f4"), "longdouble": PLAIN.astype("g"), "half": PLAIN.astype("e"), "complex": PLAIN + 0j,
    "int": PLAIN.astype("i8"), "int beyond one digit": 2**31, "True": True, "complex number": 1j,
    "float32 scalar": np.float32(2), "wrong shape": np.ones((2, 4)), "wrong row": np.ones(2),
    "many axes": np.ones((1,) * 9),
}


@pytest.mark.parametrize("name", LAID_OUT_OTHERWISE)
def test_every_layout_has_loops(name):
    other = LAID_OUT_OTHERWISE[name]
    for args in ((PLAIN, other), (other, PLAIN), (other, other)):
        assert outcome(_core.loop_result, np.multiply, *args) == outcome(np.multiply, *args)
        assert outcome(ops.np.multiply, *args) == outcome(np.multiply, *args)


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_numpy(name):
    other = NOT_PLAIN[name]
    for args in ((PLAIN, other), (other, PLAIN)):
        assert _core.loop_result(np.multiply, *args) is NotImplemented
        assert outcome(ops.np.multiply, *args)[0][:2] == outcome(np.multiply, *args)[0][:2]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (4097,), (65, 64)], ids=str)
def test_arrays_without_elements_or_with_many_are_left_to_numpy(shape):
    x = np.ones(shape)
    assert _core.loop_result(np.add, x, x) is NotImplemented
    assert _core.loop_result(np.exp, x) is NotImplemented
    assert outcome(ops.np.add, x, x) == outcome(np.add, x, x)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "?"])
@together("function", [np.add, np.subtract, np.divide, np.power, np.less, np.exp, np.sqrt, np.negative])
def test_arrays_without_axes_have_loops_whose_results_are_scalars(function, dtype):
    op = getattr(ops.np, function.__name__)
    for numbers in ((2, 1), (0, 0), (-1, -1), (1, 0)):
        args = [np.array(number, dtype) for number in numbers[:function.nin]]
        expected = outcome(function, *args)
        assert outcome(op, *args) == expected
        assert outcome(lambda *args: op(*map(Tensor, args)).numpy()[()], *args) == expected
        if dtype == "f8":
            assert outcome(_core.loop_result, function, *args) == expected
            assert outcome(_core.loop_result, function, *args[:-1], 2.0) == outcome(function, *args[:-1], 2.0)


@pytest.mark.parametrize("function", [
    np.sum, np.divmod, np.modf, lambda x, y: x, np.vecdot, np.frompyfunc(max, 2, 1), np.ldexp, np.bitwise_and])
def test_a_function_without_one_result_for_float64_has_no_loop(function):
    assert _core.loop_result(function, PLAIN, PLAIN) is NotImplemented
    assert _core.loop_result(function, PLAIN) is NotImplemented


def test_a_read_only_array_is_read_and_the_result_is_new():
    result = _core.loop_result(np.add, READ_ONLY, READ_ONLY)
    assert result.flags.owndata
    assert result.flags.writeable
    assert not np.shares_memory(result, READ_ONLY)
    np.testing.assert_array_equal(READ_ONLY, PLAIN)


# --- floating-point errors -------------------------------------------------------------------------------------------

ERRORS = {"divide": (np.log, [np.array([0.0, 1.0])]), "over": (np.exp, [np.array([1000.0])]),
          "under": (np.multiply, [np.array([1e-300]), np.array([1e-300])]), "invalid": (np.sqrt, [np.array([-1.0])])}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("how", ["ignore", "warn", "raise"])
def test_errstate_holds(kind, how):
    ufunc, args = ERRORS[kind]
    with np.errstate(**{kind: how}):
        expected = outcome(ufunc, *args)
        assert outcome(_core.loop_result, ufunc, *args) == expected
        assert outcome(getattr(ops.np, ufunc.__name__), *args) == expected
    assert (expected[0][0] is FloatingPointError) == (how == "raise")
    assert len(expected[1]) == (how == "warn")


def test_errstate_calls_what_it_was_told_to():
    called = []
    with np.errstate(divide="call", call=lambda kind, flags: called.append((kind, flags))):
        np.log(np.zeros(1))
        _core.loop_result(np.log, np.zeros(1))
    assert called[0] == called[1]


def test_errors_from_before_are_not_reported():
    with np.errstate(all="ignore"):
        _core.loop_result(np.log, np.array([0.0, -1.0]))
        np.divide(np.ones(3), 0.0)
    with np.errstate(all="raise"):
        _core.loop_result(np.add, PLAIN, PLAIN)


def test_an_error_leaves_nothing_behind():
    x = np.zeros(512)
    with np.errstate(all="raise"):
        tracemalloc.start()
        try:
            for attempt in range(300):
                if attempt == 100:
                    before = tracemalloc.get_traced_memory()[0]
                with pytest.raises(FloatingPointError):
                    _core.loop_result(np.log, x)
            assert tracemalloc.get_traced_memory()[0] - before < 10 * x.nbytes
        finally:
            tracemalloc.stop()


# --- sums ------------------------------------------------------------------------------------------------------------

SHAPES = [(), (1,), (2,), (7,), (8,), (9,), (127,), (128,), (129,), (1000,), (4096,), (5000,), (0,), (2, 3), (3, 2),
          (8, 16), (16, 8), (100, 1), (1, 100), (2, 3, 4), (200, 1, 2), (9, 2, 1), (0, 3), (3, 0)]


@pytest.mark.parametrize("values", ["normal", "large", "negative zeros", "special"])
@together("shape", SHAPES, ids=str)
def test_sums_are_those_of_add_reduce(shape, values):
    random = np.random.default_rng(0)
    x = {"normal": random.normal(size=shape), "large": 10.0 ** random.uniform(-300, 308.2, shape),
         "negative zeros": np.full(shape, -0.0), "special": random.choice(SPECIAL, shape)}[values]
    assert outcome(ops.np.sum, x) == outcome(np.add.reduce, x, None)
    if len(shape) > 1:
        assert outcome(_core.sum_to, x, shape[1:]) == outcome(np.add.reduce, x, 0)


@pytest.mark.parametrize("name", [*LAID_OUT_OTHERWISE, "swapped", "float32", "longdouble", "int", "complex"])
def test_sums_of_what_is_not_plain_are_those_of_add_reduce(name):
    array = (LAID_OUT_OTHERWISE | NOT_PLAIN)[name]
    assert outcome(ops.np.sum, array) == outcome(np.add.reduce, array, None)


# --- products of matrices --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["plain", "turned", "strided"])
@pytest.mark.parametrize("right", ["plain", "turned", "strided"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@together("m, k, n", [(1, 1, 1), (2, 3, 4), (8, 4, 16), (1, 5, 1), (7, 1, 3), (32, 32, 32)])
def test_products_are_those_of_matmul(m, k, n, left, right, dtype):
    def matrix(rows, columns, layout):
        random = np.random.default_rng(rows)
        if layout == "turned":
            return random.normal(size=(columns, rows)).astype(dtype).T
        if layout == "strided":
            return random.normal(size=(2 * rows, 3 * columns)).astype(dtype)[::2, ::3]
        return random.normal(size=(rows, columns)).astype(dtype)

    args = matrix(m, k, left), matrix(k, n, right)
    assert outcome(_core.loop_result, np.matmul, *args) == outcome(np.matmul, *args)
    assert outcome(ops.np.matmul, *args) == outcome(np.matmul, *args)


@pytest.mark.parametrize(("left", "right"), [
    ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 2)), ((2, 3), (2, 3)),
    ((33, 32), (32, 32)),
], ids=str)
def test_other_products_are_left_to_numpy(left, right):
    args = np.ones(left), np.ones(right)
    assert _core.loop_result(np.matmul, *args) is NotImplemented
    assert outcome(ops.np.matmul, *args) == outcome(np.matmul, *args)


# --- formulas --------------------------------------------------------------------------------------------------------


def formulas():
    """Yield every formula of the library that has a fused: name, index, formula, fused."""
    for name, declaration in DECLARATIONS.items():
        given = declaration.vjp if isinstance(declaration.vjp, tuple) else (declaration.vjp,)
        for i, formula in enumerate(given):
            fused = fused_formula_of(formula)
            if fused is not None and declaration.variant == "functional":
                yield name, i, formula, fused


FORMULAS = list(formulas())


def test_the_common_formulas_have_shortcuts():
    found = {(name, i) for name, i, *_ in FORMULAS}
    common = {("multiply", 0), ("multiply", 1), ("subtract", 1), ("sin", 0), ("exp", 0), ("tanh", 0), ("log1p", 0)}
    assert common <= found


@pytest.mark.parametrize(
    ("formula", "fused"), [row[2:] for row in FORMULAS], ids=[f"{name} {i}" for name, i, *_ in FORMULAS])
def test_a_shortcut_gives_what_the_formula_gives(formula, fused):
    random = np.random.default_rng(0)
    count = formula.__code__.co_argcount
    for shape in ((4,), (2, 3), (1,)):
        args = [random.uniform(0.2, 0.8, shape) for _ in range(count)]
        assert outcome(_core.fused_result, fused, *args) == outcome(formula, *args)
    for i in range(1, count):
        args = [0.5 if k == i else random.uniform(0.2, 0.8, 5) for k in range(count)]
        assert outcome(_core.fused_result, fused, *args) == outcome(formula, *args)
    for number in (0.5, np.float32(0.5), 3, np.float64(0.5), 1e300):
        args = [random.uniform(0.2, 0.8, (2, 3)).astype("f4") for _ in range(count)]
        assert outcome(_core.fused_result, fused, *args) == outcome(formula, *args)
        args[-1] = number
        if count > 1 and _core.fused_result(fused, *args) is not NotImplemented:
            assert outcome(_core.fused_result, fused, *args) == outcome(formula, *args)
            assert type(number) is not np.float64
    with np.errstate(all="ignore"):
        args = [SPECIAL.astype("f4")] * count
    assert outcome(_core.fused_result, fused, *args)[0] == outcome(formula, *args)[0]
    args = [SPECIAL] * count
    assert outcome(_core.fused_result, fused, *args)[0] == outcome(formula, *args)[0]


def test_products_of_other_types_are_left_to_numpy():
    for left, right in (("f4", "f8"), ("i8", "i8"), ("F", "F"), (">f4", "f4")):
        assert _core.loop_result(np.matmul, np.ones((2, 2), left), np.ones((2, 2), right)) is NotImplemented


def test_products_are_the_formulas_of_matmul():
    random = np.random.default_rng(0)
    x1, x2, g = random.normal(size=(3, 4)), random.normal(size=(4, 2)), random.normal(size=(3, 2))
    left, right = DECLARATIONS["matmul"].vjp
    of_left, of_right = PRODUCTS["np::matmul"]
    assert outcome(_core.fused_result, of_left, g, x1.shape, x2) == outcome(left, g, x1.shape, x2)
    assert outcome(_core.fused_result, of_right, g, x1, x2.shape) == outcome(right, g, x1, x2.shape)


OUTSIDE = 2.0


@together("formula", [
    lambda g: g,
    lambda g, x: g,
    lambda g, x: g * 2.0,
    lambda g, x: g * x if x else g,
    lambda g, x: g * (x > 0),
    lambda g, x: g * x ** 2,
    lambda g, x: g * x + x * x,
    lambda g, x: (g * x) / (g + x),
    lambda g, x: g @ x,
    lambda g, x: g * x[0],
    lambda g, x: g * x.conj(),
    lambda g, x: g * x * 1j,
    lambda g, x: g * x * True,
    lambda g, x: g * x * OUTSIDE,
    lambda g, x: g * abs(x),
    lambda g, x: np.multiply(g, x),
    lambda g, x: total(g * x),
    lambda g, x: sin(2.0) * g * x,
    lambda g, x, n=2: g * x * n,
    lambda g, x, y, z: g * x * y * z * x * y * z * x * y * z,
    lambda g, x: (g * x, g),
    lambda g, x: None,
    np.sin,
    None,
])
def test_a_formula_that_is_no_chain_has_no_shortcut(formula):
    assert fused_formula_of(formula) is None


def test_an_argument_that_may_be_none_is_left_to_the_formula():
    fused = fused_formula_of(lambda g, lo, x: g * x if lo is None else g * lo * x)
    np.testing.assert_array_equal(_core.fused_result(fused, PLAIN, PLAIN, PLAIN), PLAIN ** 3)
    assert _core.fused_result(fused, PLAIN, None, PLAIN) is NotImplemented


@pytest.mark.parametrize("name", ["column", "turned", "float32", "complex", "subclass", "wrong shape"])
def test_a_shortcut_is_not_taken_for_what_is_not_plain(name):
    fused = fused_formula_of(lambda g, x: g * x)
    assert _core.fused_result(fused, PLAIN, (LAID_OUT_OTHERWISE | NOT_PLAIN)[name]) is NotImplemented
    assert _core.fused_result(fused, PLAIN, (2, 3)) is NotImplemented
    assert _core.fused_result(fused, 1.0, 2.0) is NotImplemented


def test_the_formula_calls_a_kernel_of_a_user_as_long_as_it_is_registered():
    called = []

    def kernel(x, **options):
        called.append(x)
        return np.full_like(x, 7.0)

    x = Tensor(np.ones(3), requires_grad=True)
    right = np.cos(np.ones(3))
    assert grad(ops.np.sin(x).sum(), x)[0].tolist() == right.tolist()
    with Library("np", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("cos", kernel, "CPU")
        assert grad(ops.np.sin(x).sum(), x)[0].tolist() == [7.0] * 3
        assert len(called) == 1
    assert grad(ops.np.sin(x).sum(), x)[0].tolist() == right.tolist()
    assert len(called) == 1


def test_a_gradient_that_is_recorded_takes_no_shortcut():
    x = Tensor(np.full(3, 0.5), requires_grad=True)
    (first,) = grad(ops.np.sin(x).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), -np.sin(0.5), rtol=1e-15)


# --- gradients that are added up --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (5000,)], ids=str)
def test_gradients_are_added_up_in_place(shape, dtype):
    x = Tensor(np.ones(shape, dtype), requires_grad=True)
    (x * 3.0).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first
    np.testing.assert_array_equal(first.numpy(), np.full(shape, 5.0))


def test_gradients_that_overlap_what_they_are_added_to_are_added_right():
    memory = np.arange(6.0)
    x = Tensor(np.ones(5), requires_grad=True)
    x.grad = Tensor(memory[:5])
    (x * 1.0).backward(Tensor(memory[1:]))
    np.testing.assert_array_equal(x.grad.numpy(), np.arange(5.0) + np.arange(1.0, 6.0))


@pytest.mark.parametrize("n", [3, 4096, 4097])
def test_gradients_of_small_and_large_arrays_agree_with_the_closed_form(n):
    x = np.linspace(0.1, 2.0, n)
    gradient = func.grad(lambda x: (ops.np.sin(x) * ops.np.exp(-x) / (x + 1.0)).sum())(x)
    closed = np.exp(-x) * (np.cos(x) - np.sin(x) - np.sin(x) / (x + 1)) / (x + 1)
    np.testing.assert_allclose(gradient, closed, rtol=1e-12, atol=1e-14)
