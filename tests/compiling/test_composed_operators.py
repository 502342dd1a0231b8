"""Operators that are several steps of a plan, or a loop along an axis: the bits of the operators, in every layout."""

import itertools

import numpy as np
import pytest

from pydispatch import compile, func, ops
from pydispatch.exceptions import CompilationError
from pydispatch.higher_order import scan
from tests.compiling.same import check_same
from tests.together import together
from tests.warning_filters import quiet

np_ops = ops.np
SHAPES = [(1,), (5,), (1, 6), (4, 1), (2, 3, 4), (20_000,), (3000, 7), (6, 3000)]
VIEWS = {
    "argument": lambda x: x, "value": lambda x: x * 1.5, "transposed": lambda x: np_ops.transpose(x * 1.5),
    "reversed": lambda x: (x * 2)[::-1], "part": lambda x: (x + 1)[..., ::2],
}
ALONG_AN_AXIS = {
    "cumsum": lambda x, axis: np_ops.cumsum(x, axis) * 2,
    "cumprod": lambda x, axis: np_ops.cumprod(x / 3, axis),
    "var": lambda x, axis: np_ops.var(x, axis),
    "var of a sample": lambda x, axis: np_ops.var(x, axis, ddof=0.5, keepdims=True) + x,
    "std": lambda x, axis: np_ops.std(x, axis, keepdims=True) * x,
    "argmax": lambda x, axis: np_ops.argmax(x, axis),
    "argmin": lambda x, axis: np_ops.argmin(x, axis, keepdims=True),
    "repeat": lambda x, axis: np_ops.repeat(x, 3, axis),
    "roll": lambda x, axis: np_ops.roll(x, 3, axis),
}
OTHERS = {
    "round": lambda x: [np_ops.round(x * 7, decimals) for decimals in (0, 1, 3, -1)],
    "roll": lambda x: np_ops.roll(x, (-2, 5), (0, -1)),
    "tile": lambda x: [np_ops.tile(x, 2), np_ops.tile(x, (2, 1, 3))],
    "complex": lambda x: [np_ops.complex(x, x * 2) * 1j, np_ops.complex(1.5, x)],
    "sinc": np_ops.sinc,
    "frexp": lambda x: [np_ops.frexp_mantissa(x), np_ops.frexp_exponent(x)],
}


def sample(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


def check(function, x, *others, threads=(1,), calls=0):
    with quiet():
        expected = function(x, *others)
        for n in threads:
            compiled = compile(function, threads=n)
            for _ in range(2):
                check_same(compiled(x, *others), expected, (x.shape, x.dtype))
            if calls is not None:
                assert f" {calls} calls of Python" in compiled.explain(x, *others)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ALONG_AN_AXIS)
@pytest.mark.parametrize("dtype", [float, np.float32])
def test_operators_along_an_axis(name, view, dtype):
    for shape in SHAPES:
        x = sample(shape, dtype)
        if name.startswith("arg"):
            x[np.random.default_rng(1).random(shape) < 0.2] = np.nan
        for axis in (None, -1, *range(len(shape) - 1)):
            large = x.size > 1000 and name.startswith("arg")
            # NumPy joins axes that lie apart for some sums, and takes others the other way round
            check(lambda x, axis=axis: ALONG_AN_AXIS[name](VIEWS[view](x), axis), x,
                  threads=(1, 2) if x.size > 1000 else (1,),
                  calls=None if large or name.startswith(("var", "std")) else 0)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dtype", [float, np.float32])
def test_operators_on_all_elements(name, view, dtype):
    for shape in SHAPES:
        check(lambda x: OTHERS[name](VIEWS[view](x)), sample(shape, dtype))


@pytest.mark.parametrize("name", ALONG_AN_AXIS)
@pytest.mark.parametrize("dtype", [int, np.uint8, bool, np.complex128])
def test_other_dtypes(name, dtype):
    for shape, view in itertools.product([(5,), (2, 3, 4)], [np_ops.copy, np_ops.transpose]):
        for axis in (None, *range(len(shape))):
            check(lambda x, axis=axis, view=view: ALONG_AN_AXIS[name](view(x), axis), sample(shape, dtype), calls=None)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "var", "std", "repeat", "roll"])
def test_gradients_of_composed_operators(name):
    def loss(x):
        return np_ops.sum(ALONG_AN_AXIS[name](x, 1) ** 2)

    x = sample((5, 3, 4), float)
    for function in (func.grad(loss), func.vmap(func.grad(lambda x: loss(x[None])))):
        check(function, x)


def keys(rng: np.random.Generator, shape: tuple[int, ...]):
    """Draw keys of arrays, which broadcast, and of whole axes."""
    whole = tuple(rng.integers(1, 4, rng.integers(0, 3)))
    parts = [rng.integers(-n, n, tuple(1 if rng.random() < 0.2 else k for k in whole[rng.integers(0, len(whole) + 1):]))
             if rng.random() < 0.6 else slice(None) for n in shape]
    if len(parts) > 1 and rng.random() < 0.3:       # also between arrays, where it may stand for no axis
        place = rng.integers(0, len(parts))
        parts[place:place + rng.integers(0, 2)] = [Ellipsis]
    return [part if not isinstance(part, slice) or part == slice(None) else slice(None) for part in parts]


@together("seed", range(60))
def test_keys_of_arrays_and_whole_axes(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(1, 5)))
    x, key = sample(shape, float), keys(rng, shape)
    arrays = [part for part in key if isinstance(part, np.ndarray)]
    if not arrays:
        return

    def filled(arrays):
        rest = iter(arrays)
        return tuple([next(rest) if isinstance(part, np.ndarray) else part for part in key])

    values = rng.standard_normal(x[tuple(key)].shape)
    check(lambda x, *arrays: np_ops.index(x * 2, filled(arrays)), x, *arrays)
    check(lambda x, *arrays: func.grad(lambda x: np_ops.sum(np_ops.index(x, filled(arrays)) ** 2))(x), x, *arrays)
    for accumulate in (False, True):
        check(lambda x, values, *arrays, accumulate=accumulate: np_ops.index_put(
            x * 2, filled(arrays), values, accumulate=accumulate), x, values, *arrays)


@together("seed", range(30))
def test_positions_along_an_axis(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
    axis = int(rng.integers(-len(shape), len(shape)))
    extents = [1 if rng.random() < 0.2 else n for n in shape]
    extents[axis] = int(rng.integers(1, 5))
    x, positions = sample(shape, float), rng.integers(-shape[axis], shape[axis], extents)
    check(lambda x, positions: np_ops.take_along_axis(x * 2, positions, axis), x, positions)
    check(lambda x, positions: np_ops.scatter_add(
        x, positions, 1.5 * np_ops.take_along_axis(x, positions, axis), axis), x, positions)
    with pytest.raises(IndexError, match="out of bounds for axis"):
        compile(lambda x, positions: np_ops.take_along_axis(x, positions, axis))(x, positions + 10)


def test_many_elements_are_written_by_numpy():
    x, positions = sample((3000, 5), float), np.array([4, 0, 0])
    check(lambda x, positions: np_ops.index_put(x, (slice(None), positions), 1.5), x, positions, calls=1)
    vector, places = sample((5000,), float), np.random.default_rng(1).integers(-5000, 5000, 5000)
    check(lambda x, places: np_ops.scatter_add(x, places, x * 2, 0), vector, places)
    check(lambda x, places: np_ops.take_along_axis(x * 2, places, 0), vector, places)


def test_the_likeliest_states_of_a_hidden_chain():
    def likeliest(changes, seen):
        def combine(scores, row):
            candidates = scores[:, None] + changes
            best = np_ops.argmax(candidates, 0)
            return np_ops.take_along_axis(candidates, best[None], 0)[0] + row, best
        scores, best = scan(combine, seen[0] * 1, seen[1:])
        return np_ops.argmax(scores), np_ops.max(scores), best

    rng = np.random.default_rng(0)
    check(likeliest, np.log(rng.random((4, 4))), np.log(rng.random((50, 4))))


def test_what_accumulates_in_a_repetition():
    def sums(x):
        return np_ops.cumsum(np_ops.sin(x), 0) * np_ops.cumsum(x, 1) + x

    for shape in ((5000, 3), (3, 5000), (4, 2)):
        check(sums, sample(shape, float), threads=(1, 2))
    try:
        compiled = compile(sums, backend="numba")
        np.testing.assert_allclose(compiled(sample((5000, 3), float)), sums(sample((5000, 3), float)), rtol=1e-9)
    except CompilationError:        # which says that numba is not installed
        pass


def test_constants_are_accumulated_once():
    kept = np.array([3.0, 1.0, 2.0])
    compiled = compile(lambda x: x + np_ops.cumsum(kept) + np_ops.var(kept))
    check_same(compiled(kept), kept + np.cumsum(kept) + np.var(kept))
    assert ", 0 calls of Python, 2 constants folded" in compiled.explain(kept)
