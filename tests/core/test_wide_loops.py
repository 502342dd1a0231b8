"""Wide loops of plans: the bits and the floating-point errors of NumPy's own, on all layouts and special values."""

import itertools

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import compile, ops
from pydispatch._core import ELEMENTARY_OPERATIONS
from tests.compiling.same import check_same
from tests.together import together

NAMES = {name: 1 if kind == "ROOT" else 2 for name, kind, *_ in ELEMENTARY_OPERATIONS
         if kind in ("TWO", "TWO_FLOATS", "EXTREME", "ROOT")} | {"sin": 1, "cos": 1}
SIZES = (17, 31, 32, 33, 47, 63, 64, 65, 129, 255, 256, 257, 1000, 9001)
dtypes = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda dtype: dtype.__name__)


def special_numbers(dtype):
    """Return both zeros, infinities, both nans, the smallest, the largest, and some between."""
    info = np.finfo(dtype)
    return np.array([0.0, -0.0, 1.0, -1.0, 1 / 3, np.inf, -np.inf, np.nan, -np.nan, info.max, -info.max, info.tiny,
                     info.smallest_subnormal], dtype)


def operands(dtype, size):
    """Return two arrays in which each special number meets each other one, if they are long enough."""
    special = special_numbers(dtype)
    pairs = np.array([*itertools.product(special, special)], dtype)
    left, right = np.resize(pairs[np.random.default_rng(0).permutation(len(pairs))], (size, 2)).T
    return left.copy(), right.copy()


@together("name", NAMES)
@dtypes
@together("size", SIZES)
def test_bits_of_each_size(name, size, dtype):
    given = operands(dtype, size)[:NAMES[name]]
    with np.errstate(all="ignore"):
        check_same(compile(getattr(ops.np, name))(*given), getattr(np, name)(*given))


@dtypes
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name] == 2])
def test_bits_beside_a_repeated_number(name, place, dtype):
    left, _ = operands(dtype, 700)
    compiled = compile(getattr(ops.np, name))
    for number in special_numbers(dtype):
        given = [left, left]
        given[place] = np.array(number)
        with np.errstate(all="ignore"):
            check_same(compiled(*given), getattr(np, name)(*given))


LAYOUTS = {
    "a step of two": lambda x: x[::2],
    "reversed": lambda x: x[::-1],
    "beginning anywhere": lambda x: x[3:],
    "columns": lambda x: x[:990].reshape(30, 33)[:, 1:30],
    "one row again and again": lambda x: np.broadcast_to(x[:40], (20, 40)),
    "one column again and again": lambda x: np.broadcast_to(x[:40, None], (40, 50)),
}


@pytest.mark.parametrize("name", NAMES)
@dtypes
@together("layout", LAYOUTS)
def test_bits_of_each_layout(name, layout, dtype):
    given = operands(dtype, 1000)[:NAMES[name]]
    of_numpy, of_ours = getattr(np, name), getattr(ops.np, name)
    turned = compile(lambda *arrays: of_ours(*[LAYOUTS[layout](array) for array in arrays]))
    mixed = compile(lambda *arrays: of_ours(LAYOUTS[layout](arrays[0]), *arrays[1:]))
    laid_out = [np.array(LAYOUTS[layout](array)) for array in given]
    with np.errstate(all="ignore"):
        check_same(turned(*given), of_numpy(*laid_out))
        check_same(mixed(given[0], *laid_out[1:]), of_numpy(*laid_out))


@dtypes
@pytest.mark.parametrize("name", NAMES)
def test_results_in_the_place_of_an_operand(name, dtype):
    left, right = operands(dtype, 1001)
    of_numpy, of_ours = getattr(np, name), getattr(ops.np, name)

    def chain(operator):
        if NAMES[name] == 1:
            return lambda x, y: operator(operator(x * y))
        return lambda x, y: operator(operator(operator(x * y, y), 0.25), operator(x, y))

    with np.errstate(all="ignore"):
        check_same(compile(chain(of_ours))(left, right), chain(of_numpy)(left, right))


@pytest.mark.parametrize(("name", "given", "message"), [
    ("add", (1e308, 1e308), "overflow"), ("subtract", (np.inf, np.inf), "invalid value"),
    ("multiply", (1e-308, 1e-308), "underflow"), ("divide", (1.0, 0.0), "divide by zero"),
    ("sqrt", (-1.0,), "invalid value"),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("where", [0, 40, 99])
def test_errors_are_reported_wherever_they_arise(name, given, message, where):
    arrays = [np.ones(100) for _ in given]
    for array, number in zip(arrays, given, strict=True):
        array[where] = number
    compiled = compile(getattr(ops.np, name))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=f"{message} encountered in {name}"):
        compiled(*arrays)
    with np.errstate(all="raise"):
        compiled(*[np.ones(100) for _ in given])


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_trigonometric_functions_report_only_errors_of_the_library(name):
    of_numpy, compiled = getattr(np, name), compile(getattr(ops.np, name))
    x = np.resize([0.0, -0.0, 1e-300, 1e-8, 1.0, np.pi, np.pi / 2, 1e6, 1e300, np.nan], 1000)
    with np.errstate(all="raise"):
        check_same(compiled(x), of_numpy(x))
    x[700] = np.inf
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=f"invalid value encountered in {name}"):
        compiled(x)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_is_no_error(name):
    compiled = compile(getattr(ops.np, name))
    x = np.resize([np.nan, 1.0, -0.0], 1000)
    with np.errstate(all="raise"):
        check_same(compiled(x, np.array(np.nan)), getattr(np, name)(x, np.nan))


MATRICES = {
    "rows": lambda x: x,
    "columns": lambda x: x.swapaxes(-1, -2),
    "the same matrix": lambda x: np.broadcast_to(x[:1], x.shape),
    "parts of matrices": lambda x: np.concatenate([x, x], -1)[..., : x.shape[-1]],
    "every second column": lambda x: np.repeat(x, 2, -1)[..., ::2],
}


@together("left", MATRICES)
@together("right", MATRICES)
@pytest.mark.parametrize("n", [2, 3, 4, 5])
@dtypes
def test_bits_of_products_of_small_matrices(left, right, n, dtype):
    given = [np.random.default_rng(0).standard_normal((50, n, n)).astype(dtype) for _ in range(2)]
    for x in given:
        x[:13, 0, 1] = special_numbers(dtype)

    with np.errstate(all="ignore"):
        check_same(compile(lambda x, y: ops.np.matmul(x, y))(*given), np.matmul(*given))
        x, y = MATRICES[left](given[0]), MATRICES[right](given[1])
        # BLAS takes no stride between columns: NumPy copies such matrices since 2.3, plans always
        laid_out = [np.copy(z) if min(z.strides[-2:]) > z.itemsize else z for z in (x, y)]
        check_same(compile(lambda x, y: ops.np.matmul(x, y))(x, y), np.matmul(*laid_out))


INVERSES = {"det": np.linalg.det, "inv": np.linalg.inv}
inverses = pytest.mark.parametrize("name", INVERSES)


def small_matrices(n):
    """Return regular matrices, of which some have equal numbers and zeros, and some are large or small."""
    random = np.random.default_rng(n)
    x = random.standard_normal((3000, n, n))
    x[:1000] = random.integers(-2, 3, (1000, n, n))
    x = x[np.abs(np.linalg.det(x)) > 1e-3]
    x[::5] *= 10.0 ** random.integers(-60, 60, (len(x[::5]), 1, 1))
    return x


@inverses
@together("layout", MATRICES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_bits_of_determinants_and_inverses_of_small_matrices(name, layout, n):
    x = MATRICES[layout](small_matrices(n))
    check_same(compile(getattr(pnp.linalg, name))(x), INVERSES[name](x))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_determinants_of_special_matrices(n):
    x = np.random.default_rng(0).standard_normal((400, n, n))
    for k, number in enumerate(itertools.product(special_numbers(np.float64), range(n), range(n))):
        x[k % 400, number[1], number[2]] = number[0]
    x[-3], x[-2], x[-1] = 0.0, 1.0, 5e-324
    with np.errstate(all="ignore"):
        check_same(compile(pnp.linalg.det)(x), np.linalg.det(x))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_inverses_report_what_those_of_numpy_report(n):
    x = small_matrices(n)[:200]
    compiled = compile(lambda x: pnp.linalg.inv(x * 1.0) + 0.0)
    with np.errstate(all="raise"):
        check_same(compiled(x), np.linalg.inv(x) + 0.0)
    tiny = x * 1e-160
    with np.errstate(all="ignore"):
        check_same(compiled(tiny), np.linalg.inv(tiny) + 0.0)
    x[150] = 1.0
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        compiled(x)
    x[150] = np.eye(n)
    x[150, 0, -1] = np.nan
    with np.errstate(all="ignore"):
        check_same(compiled(x), np.linalg.inv(x) + 0.0)
