"""Loops over few elements, which a plan runs as one piece of code: the bits of NumPy, its errors, and repetitions."""

import itertools
import pickle
import re
import threading
import warnings

import numpy as np
import pytest

from pydispatch import Tensor, compile, func, ops
from pydispatch._core import ELEMENTARY_OPERATIONS
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.higher_order import map as repeated
from tests.compiling.same import check_same
from tests.together import together
from tests.warning_filters import all_warnings, quiet

EDGES = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, -np.nan, 5e-324, 1e-40, 1e308, -3e38, 2.0]
INTEGERS = [0, 1, -1, 2**62, -2**63, 2**63 - 1, 7]
SIZES = (1, 2, 3, 4, 5, 8, 15, 16, 17)
CLASSES = {name: kind for name, kind, *_ in ELEMENTARY_OPERATIONS}
ARITHMETIC = [name for name in CLASSES if CLASSES[name] in ("TWO", "TWO_FLOATS", "EXTREME")]
COMPARISONS = [name for name in CLASSES if CLASSES[name] == "COMPARISON"]
OF_ONE = [name for name in CLASSES if CLASSES[name] in ("ONE", "ROOT", "ONE_BY_ONE")]
LOGICAL = [name for name in CLASSES if CLASSES[name] == "LOGICAL"]


def pairs(dtype, n):
    """Return vectors of so many elements that meet each pair of edges, and the numbers beside them."""
    if dtype is np.bool_:
        values = np.array([False, True])
    elif dtype is np.int64:
        values = np.array(INTEGERS)
    else:
        with np.errstate(over="ignore"):
            values = np.array(EDGES).astype(dtype)
    found = np.array(list(itertools.product(values, values)), dtype)
    found = np.resize(found, (-(-len(found) // n) * n, 2))
    return [(block[:, 0].copy(), block[:, 1].copy()) for block in found.reshape(-1, n, 2)]


def check_everywhere(function, dtype, n):
    """Compare a compiled function with the function itself: of vectors, of a vector and a number, of numbers."""
    compiled = compile(function)
    with quiet():
        for x, y in pairs(dtype, n):
            for one, other in ((x, y), (x, y[0]), (x[0], y)) if n > 1 else ((x, y), (x[0], y[0])):
                one, other = np.asarray(one), np.asarray(other)
                check_same(compiled(one, other), function(one, other), (one, other))


def in_every_form(operator):
    """Take operands from memory, and results of the step before on the left, on the right and on both sides."""
    def function(x, y):
        first = operator(x, y)
        left = operator(first, y)
        right = operator(x, left)
        both = operator(right, right)
        return first, left, right, both, operator(both, first)
    return function


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@together("n", SIZES)
def test_arithmetic(name, dtype, n):
    if CLASSES[name] != "TWO_FLOATS" or dtype is not np.int64:
        check_everywhere(in_every_form(getattr(ops.np, name)), dtype, n)


LINKS = {
    "to the right of the result": lambda z, x, y: [z := z + y, z := z * x, z := z - y],
    "to the left of the result": lambda z, x, y: [z := y + z, z := x * z, z := y - z],
    "after a quotient": lambda z, x, y: [z := z / y, z := z - x, z := y * z],
    "after numbers from memory": lambda z, x, y: [x * y, w := x - y, w := y - w, w + z],
    "after their own": lambda z, x, y: [z := z + z, z := z * y, w := z - x, w * w],
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("name", LINKS)
def test_long_rows_of_arithmetic(name, dtype):
    if name == "after a quotient" and dtype is np.int64:
        return

    def function(x, y):
        found = [x]
        for _ in range(5):
            found += LINKS[name](found[-1], x, y)
        return tuple(found[1:])

    check_everywhere(function, dtype, 1)
    check_everywhere(lambda x, y: function(x, y)[-1], dtype, 1)


OF_LINKS = {
    "plus": lambda z, other: z + other, "minus": lambda z, other: z - other, "times": lambda z, other: other * z,
    "from": lambda z, other: other - z,
}


@together("first", ["plus", "minus", "times"])
@together("does", [*itertools.product(OF_LINKS, repeat=3)])
def test_links(first, does):
    one, two, three = [OF_LINKS[name] for name in does]

    def step(x, y):
        a = OF_LINKS[first](x, y)
        b = one(a, x)
        c = two(b, y)
        d = ops.np.absolute(c)
        e = one(d, y)
        f = two(e, x)
        return a, b, c, d, e, f, three(f, a)

    x, y = np.array(pairs(np.float64, 1))[..., 0].T
    with quiet():
        check_same(compile(lambda x, y: repeated(lambda xy: step(*xy), (x, y)))(x, y), step(x, y))
        check_same(compile(lambda x, y: repeated(lambda xy: step(*xy)[-1], (x, y)))(x, y), step(x, y)[-1])


@together("does", [*itertools.product(OF_LINKS, repeat=3)])
def test_links_with_carries(does):
    one, two, three = [OF_LINKS[name] for name in does]

    def step(carry, xy):
        (a, b), (x, y) = carry, xy
        a = two(one(a, x), y)
        b = three(b, a)
        return (a, b), one(two(b, y), x)

    x, y = np.random.default_rng(0).standard_normal((2, 7))
    (a, b), c = compile(lambda x, y: scan(step, (x[0], y[0]), (x, y)))(x, y)
    carry, results = (x[0], y[0]), []
    for xy in zip(x, y, strict=True):
        carry, result = step(carry, xy)
        results.append(result)
    check_same((a, b, c), (*carry, np.array(results)))


@together("name", COMPARISONS)
@together("n", SIZES)
@together("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_comparisons(name, dtype, n):
    compare = getattr(ops.np, name)
    if dtype is np.bool_:
        check_everywhere(compare, dtype, n)
    else:
        check_everywhere(lambda x, y: (compare(x, y), compare(x + y, y), compare(x, y * x), compare(x - y, x - y)),
                         dtype, n)


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@together("n", SIZES)
def test_functions_of_one_number(name, dtype, n):
    function = getattr(ops.np, name)
    if CLASSES[name] != "ROOT" or dtype is not np.int64:
        check_everywhere(lambda x, y: (function(x), function(function(x) + y), function(y)), dtype, n)


@pytest.mark.parametrize("name", LOGICAL)
@together("n", SIZES)
def test_bools(name, n):
    function = getattr(ops.np, name)
    check_everywhere(lambda x, y: (function(x, y), ops.np.logical_not(function(y, x)), ops.np.invert(x)), np.bool_, n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_choices_and_copies(dtype, n):
    def function(x, y):
        chosen = ops.np.where(ops.np.equal(x, y), x, y)
        return (chosen, ops.np.where(x.astype(np.dtype(bool)), y, x), ops.np.stack([y, x], -1)
                if x.shape == y.shape else x, ops.np.full_like(x, 1), ops.np.broadcast_to(chosen, (2, *chosen.shape)))

    check_everywhere(function, dtype, n)


@pytest.mark.parametrize("n", SIZES)
def test_elements_of_a_vector_that_overlap_the_result(n):
    def function(x):
        y = x * 2.0
        return y * y[0], y[::-1] - y, ops.np.setitem(y, slice(1, None), y[:-1]), (y + 1.0)[n // 2] * (y + 1.0)

    x = np.arange(1.0, n + 1)
    check_same(compile(function)(x), function(x))


@pytest.mark.parametrize("outer", [2, 5])
def test_loops_with_outer_axes_and_reductions_in_between(outer):
    def function(x):
        rows = x[:, ::2] * 2.0
        total = ops.np.sum(rows + 1.0)
        return (rows.T @ rows) * total, ops.np.max(ops.np.exp(x), axis=0) / total, ops.np.sin(total) - total

    x = np.random.default_rng(0).standard_normal((outer, 4))
    check_same(compile(function)(x), function(x))


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS = {
    "divide by zero": (lambda x: x / 0.0, 1.0),
    "overflow in an operation": (lambda x: x * 1e308, 1e10),
    "underflow": (lambda x: x * 1e-300, 1e-300),
    "invalid": (lambda x: x - np.inf, np.inf),
    "invalid root": (lambda x: ops.np.sqrt(x), -1.0),
    "overflow in a call": (lambda x: ops.np.exp(x), 1e4),
    "underflow in a call": (lambda x: ops.np.exp(x), -1e4),
    "invalid in a call": (lambda x: ops.np.sin(x), np.inf),
    "divide by zero in a call": (lambda x: ops.np.log(x), 0.0),
}
AROUND = {
    "alone": lambda x: x,
    "before operations": lambda x: ops.np.where(x > 3.0, -x, ops.np.maximum(x, 1.0)),
    "before calls": lambda x: ops.np.isfinite(ops.np.floor(x)),
    "before zeros of both signs": lambda x: ops.np.maximum(ops.np.copysign(0.0, x), -0.0),
    "before comparisons": lambda x: ops.np.broadcast_to(x, (40, *x.shape)) < 2.0,
}


def reported(function, x, how):
    """Return the effect of `errstate`: the error, or the warnings, without the lines that compiled functions add."""
    with np.errstate(all=how), all_warnings() as caught:
        try:
            function(x)
        except FloatingPointError as error:
            return [re.sub(r" \(at .*\)", "", str(error))]
    return [re.sub(r" \(at .*\)", "", str(warning.message)) for warning in caught]


@together("name", ERRORS)
@pytest.mark.parametrize("how", ["raise", "warn", "ignore"])
@together("shape", [(), (1,), (4,), (16,), (3, 3)], ids=str)
@pytest.mark.parametrize("around", AROUND)
def test_errors_are_those_of_numpy(name, around, shape, how):
    raising, number = ERRORS[name]
    after = AROUND[around]

    def function(x):
        return after(raising(x + 0.0)), x * 1.0

    x = np.full(shape, number)
    expected = reported(function, Tensor(x), how)      # numbers of NumPy's report in other words
    assert (len(expected) == 0) == (how == "ignore")
    compiled = compile(function)
    assert reported(compiled, x, how) == expected
    assert reported(compiled, x, how) == expected
    with quiet():
        check_same(compiled(x), function(x))
    other = np.full(shape, 0.75)
    assert reported(compiled, other, "raise") == reported(function, Tensor(other), "raise")


def test_an_error_names_the_line_of_its_loop():
    def function(x):
        x = x * 2.0 + 1.0
        x = x - 3.0
        x = 1.0 / x
        return x * x + x

    line = function.__code__.co_firstlineno + 3
    compiled = compile(function)
    called = []
    for x in (np.array(1.0), np.ones(4)):
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=rf"in divide \(at .*py:{line}\)"):
            compiled(x)
        with np.errstate(divide="call", call=lambda kind, flag: called.append((kind, flag))):
            compiled(x)
    assert called == [("divide by zero", 1)] * 2


def test_what_is_run_once_more_gives_the_same_results():
    def function(x, y):
        for _ in range(5):
            x = x * y + x
            y = 1.0 / (y - y)
        return x, y

    for n in (1, 4):
        x, y = np.arange(1.0, n + 1), np.full(n, 3.0)
        with quiet():
            expected = function(x, y)
        compiled, donating = compile(function), compile(lambda x, y: (x * y + x) / (y - y), donate=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with np.errstate(all="warn"):
                check_same(compiled(x, y), expected)
                check_same(donating(x.copy(), y), (x * y + x) / (y - y))


def test_each_loop_is_reported_once():
    def function(x):
        return 1.0 / x, ops.np.sqrt(x - 1.0), x * 1e200 * 1e200 + 1.0

    assert len(reported(compile(function), np.array(0.0), "warn")) == 2
    assert len(reported(compile(function), np.array([0.0, 1.0]), "warn")) == 3


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp", "log", "tanh", "arctan", "sinh", "cosh", "expm1",
                                  "log1p"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_functions_of_single_numbers_have_the_bits_of_numpys(name, dtype):
    function = getattr(ops.np, name)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, 1e300, -1e22, 710.0]
    with quiet():
        xs = np.array([*special, *np.random.default_rng(0).uniform(-9, 9, 1000)]).astype(dtype)
        compiled = compile(
            lambda xs: scan(lambda s, x: (s + 1, (function(x * 1.5), function(function(x)))), xs[0], xs)[1])
        expected = [np.array([function(x * dtype(1.5)) for x in xs]), np.array([function(function(x)) for x in xs])]
        for found, one in zip(compiled(xs), expected, strict=True):
            check_same(found, one)


# --- repetitions ------------------------------------------------------------------------------------------------------

LENGTHS = (1, 2, 3, 64, 65, 131, 255, 256, 257, 512, 515)


def smoothed(level, xs):
    def step(level, x):
        level = level + (x - level) * 0.25
        return level, level
    return scan(step, level, xs)


def swapped(state, xs):
    def step(state, x):
        return (ops.np.copy(state[1]), state[0] + x), state[0] - state[1]
    return scan(step, (state, state * 2.0), xs)


def kept(state, xs):
    return scan(lambda state, x: ((ops.np.copy(state[0]), state[0] * x + state[1]), None), (state, state * 1.0), xs)


def turned(state, xs):
    return scan(lambda state, x: (ops.np.sin(state) + x, (state > x, state * x)), state, xs, reverse=True)


def chosen(state, xs):
    def step(state, x):
        return ops.np.where(x > 0.0, ops.np.maximum(state, x), -state), ops.np.copy(state)
    return scan(step, state, xs)


def nested(state, xs):
    def step(state, x):
        inner, states = scan(lambda inner, _: (inner * 0.5 + x, ops.np.copy(inner)), state, None, length=3)
        return inner, (states, inner)
    return scan(step, state, xs)


def branching(state, xs):
    def step(state, x):
        state = cond(ops.np.sum(x) > 0.0, lambda s: s * 2.0 - 1.0, lambda s: -s * 0.25, (state,))
        return state, state
    return scan(step, state, xs)


def long(state, xs):
    def step(state, x):
        for factor in (0.5, -0.25, 1.5, 0.75):
            state = x - (state - 1.0) * factor + state * x
        return state, -state
    return scan(step, state, xs)


SCANS = {function.__name__: function for function in (smoothed, swapped, kept, turned, chosen, nested, branching, long)}


@pytest.mark.parametrize("name", SCANS)
@together("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@together("shape", [(), (3,), (2, 3)], ids=str)
def test_repetitions(name, shape, dtype, length):
    random = np.random.default_rng(length)
    state, xs = random.standard_normal(shape).astype(dtype), random.standard_normal((length, *shape)).astype(dtype)
    with quiet():
        check_same(compile(SCANS[name])(state, xs), SCANS[name](state, xs))


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_repetitions_until_a_test_fails(shape):
    def function(x):
        return while_loop(lambda x, n: (ops.np.max(x) < 100.0) & (n < 1000), lambda x, n: (x * 1.5 + 1.0, n + 1),
                          (x, ops.np.zeros((), dtype=np.dtype(int))))

    for start in (0.0, 50.0, 200.0):
        check_same(compile(function)(np.full(shape, start)), function(np.full(shape, start)))


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_gradients_of_repetitions(shape):
    def loss(state, xs):
        last, levels = smoothed(state, xs)
        return ops.np.sum(last * last) + ops.np.sum(levels)

    random = np.random.default_rng(0)
    state, xs = random.standard_normal(shape), random.standard_normal((70, *shape))
    gradient = func.grad(loss, argnums=(0, 1))
    check_same(compile(gradient)(state, xs), compile(gradient, backend="python")(state, xs))


@pytest.mark.parametrize("where", ["first", "last", "middle", "all"])
@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
@together("length", [1, 2, 65, 256, 257, 513])
def test_errors_in_repetitions(shape, where, length):
    def function(state, xs):
        def step(state, x):
            state = state * 0.5 + 1.0
            quotient = state / x
            state = ops.np.minimum(quotient, 1.0) - 0.25
            return state, quotient
        return scan(step, state, xs)

    line = function.__code__.co_firstlineno + 3
    xs = np.ones((length, *shape))
    xs[{"first": 0, "last": -1, "middle": length // 2, "all": slice(None)}[where]] = 0.0
    state, compiled = np.full(shape, 0.5), compile(function)
    with quiet():
        expected = function(state, xs)
        check_same(compiled(state, xs), expected)
    with all_warnings() as caught:
        check_same(compiled(state, xs), expected)
    message, = [str(warning.message) for warning in caught]     # of which NumPy keeps a hundred characters
    assert re.fullmatch(rf"divide by zero encountered in divide \(at .*small_loops\.py:{line}\)", message)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="in divide"):
        compiled(state, xs)
    with np.errstate(all="raise"):
        check_same(compiled(state, xs * 0.0 + 1.0), function(state, xs * 0.0 + 1.0))


# --- single elements at positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_divisions_of_integers(name):
    check_everywhere(in_every_form(getattr(np, name)), np.int64, 1)


def moved(x, step, number):
    """Change one element by others: next to it, from the end, and in two steps that meet the same place."""
    place, before = tuple(step), tuple([k - 1 for k in step])
    x[place] = x[before] + number
    x[before] = x[place]
    x[(-1, *place[1:])] = x[place]
    return x[before]


def moves(shape, length):
    random = np.random.default_rng(3)
    return tuple([random.integers(0, extent, length) for extent in shape])


@pytest.mark.parametrize("shape", [(700,), (30, 40), (3, 20, 30), (2, 3, 4, 50)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int16, np.uint8, np.complex128])
@pytest.mark.parametrize("length", [1, 2, 257, 600])
def test_elements_of_a_carry(shape, dtype, length):
    def step(x, given):
        *place, number = given
        x = x.copy()
        return x, moved(x, place, number)

    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    numbers = (np.arange(length) % 3).astype(dtype)
    compiled = compile(lambda x, *given: scan(step, x, given))
    after, results = compiled(x, *moves(shape, length), numbers)
    expected = x.copy()
    with quiet():
        by_hand = [moved(expected, place, number)
                   for *place, number in zip(*moves(shape, length), numbers, strict=True)]
    check_same((after, results), (expected, np.array(by_hand)))
    assert "0 calls" in compiled.explain(x, *moves(shape, length), numbers)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_add_to_elements(dtype):
    def total(x, rows, columns):
        def step(sum, place):
            return sum * x[place[0], place[1]] + x[place[1], place[0]], None
        return scan(step, np.ones((), dtype), (rows, columns))[0]

    x, places = np.linspace(0.5, 1.2, 900).reshape(30, 30).astype(dtype), moves((30, 30), 300)
    gradient = func.grad(total)
    np.testing.assert_allclose(compile(gradient)(x, *places), gradient(x, *places), rtol=1e-5)


@pytest.mark.parametrize("where", [0, 1, 255, 256, 400])
def test_elements_are_restored_before_loops_run_again(where):
    def step(x, given):
        i, j, divisor = given
        x = x.copy()
        x[i, j] = x[i, j] * 0.5 + 1.0
        x[j, i] = x[i, j] / divisor
        x[i, j] = ops.np.minimum(x[j, i], 2.0)
        return x, x[i, j]

    def function(x, *given):
        return scan(step, x, given)

    divisors = np.linspace(1.0, 2.0, 500)
    divisors[where] = 0.0
    given = np.ones((40, 40)), *moves((40, 40), 500), divisors
    compiled = compile(function)
    with quiet():
        expected = function(*given)
        check_same(compiled(*given), expected)
    with all_warnings() as caught:
        check_same(compiled(*given), expected)
    assert ["divide by zero" in str(warning.message) for warning in caught] == [True]
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="in divide"):
        compiled(*given)
    given[1][where] = 40
    with quiet(), pytest.raises(IndexError, match="index 40 is out of bounds for axis with size 40"):
        compiled(*given)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_pickled_plan_writes_its_code_anew():
    compiled = compile(smoothed)
    state, xs = np.array(0.5), np.arange(70.0)
    expected = compiled(state, xs)
    again = pickle.loads(pickle.dumps(compiled.variants[0].plan))
    for one, other in zip(again.run(state, xs), expected, strict=True):
        check_same(one, other)


def test_threads_share_a_plan_but_not_its_code():
    compiled = compile(smoothed)
    given = [(np.array(float(i)), np.arange(5000.0) * i) for i in range(6)]
    expected = [compiled(*arguments) for arguments in given]
    found = [[] for _ in given]

    def work(i):
        for _ in range(20):
            found[i].append(compiled(*given[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, one in zip(found, expected, strict=True):
        for result in results:
            check_same(result, one)
