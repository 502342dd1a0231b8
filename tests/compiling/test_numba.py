"""The backend "numba": its results against the operators', which loops it makes, threads, and pickles.

Numba is no part of the extra `test`, since it and LLVM take 200 MB: `.ci/run` has it from the extra `dev`.
"""

import pickle
import signal
import threading

import numpy as np
import pytest

from pydispatch import compile, func, ops
from pydispatch.exceptions import DataDependentError
from pydispatch.higher_order import cond, map, scan, while_loop
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from tests.operators.samples import functional_names, samples

pytest.importorskip("numba")
from pydispatch.compiling import numba_backend

n = ops.np
rng = np.random.default_rng(0)
MADE = "loop of numba's"


@pytest.fixture
def smallest(monkeypatch):
    """Compile loops of any length, and single ones, to machine code."""
    monkeypatch.setattr(numba_backend, "SMALLEST_GROUP", 1)
    monkeypatch.setattr(numba_backend, "FEWEST_LOOPS", 1)


def check_close(found, expected, ulps=64):
    """Assert that floats differ by few units in the last place of the largest element, and others not at all."""
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind not in "fc":
            np.testing.assert_array_equal(one, other)
            continue
        finite = np.abs(other[np.isfinite(other)])
        tolerance = ulps * np.finfo(other.dtype).eps * (finite.max() if finite.size else 0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def check(function, *arguments, made=True, ulps=64, **options):
    """Assert that the compiled function gives what the function gives, and return it, compiled."""
    compiled = compile(function, backend="numba", **options)
    with np.errstate(all="ignore"):
        expected = function(*arguments)
        check_close(compiled(*arguments), expected, ulps)
        check_close(compiled(*tree_map(np.copy, arguments)), expected, ulps)    # in C, and some may be given up
    assert (MADE in compiled.plan(*arguments)) == made
    return compiled


# --- operators -------------------------------------------------------------------------------------------------------

NAMES = [name for name in functional_names() if name not in ("empty", "empty_like")]


def sample_calls(name):
    """Return some of the sample calls, few on arrays of several dtypes, since casts are separate steps."""
    pure, mixed = [], []
    for sample in samples(name):
        leaves, spec = tree_flatten((sample.args, sample.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
        if places:
            (pure if len({leaves[i].dtype for i in places}) == 1 else mixed).append((leaves, spec, places))
    step = max(len(pure) // 12, 1)
    return [*pure[NAMES.index(name) % step :: step][::2], *mixed[::16]]


def as_function(operator, leaves, spec, places):
    def function(*arrays):
        given = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            given[i] = array
        args, kwargs = tree_unflatten(given, spec)
        return operator(*args, **kwargs)

    return function


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("smallest")
def test_samples_of_operators(name):
    operator = getattr(ops.np, name)
    for leaves, spec, places in sample_calls(name):
        function = as_function(operator, leaves, spec, places)
        arrays = [leaves[i] for i in places]
        expected, found = outcome(function, arrays), outcome(compile(function, backend="numba"), arrays)
        if isinstance(found, Exception):
            assert isinstance(expected, Exception) or isinstance(found, DataDependentError), (leaves, found)
        else:
            check_close(found, expected)


def outcome(function, arrays):
    try:
        return function(*arrays)
    except Exception as error:
        return error


X, Y = rng.standard_normal((2, 600))
POSITIVE = rng.random(600) + 0.5
LONG = rng.standard_normal(1200)
HUGE = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5] * 100)


def n_operands(name):
    return sum(str(argument.type) == "Tensor" for argument in getattr(ops.np, name).default.schema.arguments)


def edges(dtype, turn):
    values = np.roll(HUGE, turn)
    with np.errstate(all="ignore"):
        return values.astype(dtype) if np.dtype(dtype).kind == "f" else np.nan_to_num(values).astype(dtype)


CHEAP = ("add", "subtract", "multiply", "divide", "negative", "absolute", "square", "sign", "maximum", "minimum",
         "fmax", "fmin", "floor", "ceil", "trunc", "rint", "sqrt", "less", "greater_equal", "equal", "isnan",
         "isfinite", "signbit", "copysign", "remainder", "floor_divide", "fmod", "logical_and", "logical_not",
         "reciprocal")


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint8", "int64"])
def test_numbers_at_the_edges_are_numpys(dtype, smallest):
    arrays = [edges(dtype, 0), edges(dtype, 3)]

    def function(*arrays):
        return [getattr(n, name)(*arrays[: n_operands(name)]) for name in names]

    names = [name for name in CHEAP if has_loop(name, arrays[: n_operands(name)])]
    assert len(names) > 20
    with np.errstate(all="ignore"):
        expected = function(*arrays)
        found = compile(function, backend="numba")(*arrays)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def has_loop(name, arrays):
    try:
        with np.errstate(all="ignore"):
            getattr(n, name)(*arrays)
    except TypeError:
        return False
    return True


# --- groups ----------------------------------------------------------------------------------------------------------


def softmax_loss(x, target):
    def loss(x):
        z = x - n.max(x, axis=1, keepdims=True)
        total = n.log(n.sum(n.exp(z), axis=1, keepdims=True))
        return n.mean(n.sum(target * (total - z), axis=1))
    return func.value_and_grad(loss)(x)


def adam(parameters, gradients, means, squares, step):
    one, other = 1.0 - 0.9 ** step, 1.0 - 0.999 ** step
    found = []
    for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        found.append((p - 1e-3 * (m / one) / (n.sqrt(v / other) + 1e-8), m, v))
    return found


LABELS = rng.integers(0, 48, 64)


def put(x, positions, values):
    x = n.copy(x)
    x[np.arange(len(x)), positions] = values
    return x


def labelled_loss(x, labels):
    def loss(x):
        z = x - n.detach(n.max(x, axis=1, keepdims=True))
        return n.mean(n.log(n.sum(n.exp(z), axis=1)) - z[np.arange(64), labels])
    return func.value_and_grad(loss)(x)


def mixed_dtypes(x, i, b):
    half = x.astype("float32")
    return (half * 3 + i, n.where(b, i, -i) // 3 % 7, n.logical_and(b, x > 0), (i + b) * x, n.maximum(half, 0.5),
            n.astype(x * 100, "int64") + i)


def written_parts(x):
    y = n.copy(x)
    y[1:-1] = x[:-2] * 0.25 + x[2:] * 0.5
    return y * 2 + x, n.stack([x * x, x + 1], 1), n.concatenate([x - 1, x * 3]) * 2


SQUARE = rng.standard_normal((64, 48))
CUBE = rng.standard_normal((20, 6, 30))
GROUPS = {
    "a chain": (lambda x, y: (n.exp(x) * y + 2, n.tanh(x - y)), X, Y),
    "numbers as arrays": (lambda x, a, b: (x * a + b) / a, X, np.array(2.0), np.array(3.0)),
    "one element of each": (lambda x, y: x * y[3] + y[:1], X, Y),
    "reversed and strided": (lambda x, y: x[::-1] * y[::-1] + 1, X, Y),
    "every second": (lambda x: x[::2] * 2 + x[1::2], LONG),
    "strided arguments": (lambda x, y: x * y + x, rng.standard_normal((700, 3))[:, 1], np.ones(1400)[::2]),
    "transposed": (lambda x: (x.T * 2 + 1, x + x.T[0, 0]), SQUARE),
    "rows and columns": (lambda x, r, c: (x - r) * c + r, SQUARE, SQUARE[0], SQUARE[:, :1]),
    "a stencil": (lambda u: u[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]), SQUARE),
    "softmax": (softmax_loss, SQUARE, np.eye(64, 48)),
    "reductions of rows": (lambda x: (n.sum(x * x, axis=1), n.max(x, axis=1) - n.min(x, axis=1),
                                      n.prod(x[:, :3] + 1, axis=1), n.mean(x, axis=-1)), SQUARE),
    "what goes into reductions of columns": (lambda x: n.sum(n.exp(x) * 2, axis=0) + n.max(x, axis=0), SQUARE),
    "what goes into reductions of all": (lambda x: n.sum(n.exp(x) * 2), SQUARE),
    "normalized rows": (lambda x: (x - n.mean(x, axis=1, keepdims=True)) / n.sqrt(n.sum(x * x, axis=1, keepdims=True)),
                        SQUARE),
    "three axes": (lambda x: (n.sum(x * 2, axis=2), n.sum(x + 1, axis=1), n.max(x * x, axis=(1, 2), keepdims=True)),
                   CUBE),
    "short rows": (lambda x: n.sum(x * x, axis=1, keepdims=True) * x, rng.standard_normal((300, 3))),
    "booleans": (lambda x: n.all(x[:, :4] > -3, axis=1) | n.any(x > 2, axis=1), SQUARE),
    "mixed dtypes": (mixed_dtypes, X, rng.integers(-9, 9, 600), X > Y),
    "written parts": (written_parts, X),
    "complex": (lambda z: (z * z.conj() / (z + 2), n.absolute(z) + z.real, z.imag * 2), X + 1j * Y),
    "complex64": (lambda z: z * 2 + z / (1 + z), (X + 1j * Y).astype("complex64")),
    "float32": (lambda x: n.exp(x) * 0.1 + n.maximum(x, 0), X.astype("float32")),
    "unsigned": (lambda x: (x - 3) * 7 // 2 + (x << 1) - (x >> 2), rng.integers(0, 99, 600).astype("uint8")),
    "gathered": (lambda x, i: x[i] * 2 + x, X, rng.integers(-600, 600, 600)),
    "elements of rows": (lambda x, k: (x * 2)[np.arange(64), k] + n.sum(x, axis=1), SQUARE, LABELS),
    "elements of rows, from the end": (lambda x, k: (x + 1)[np.arange(64), k] * 2, SQUARE, LABELS - 48),
    "elements of columns": (lambda x, k: (x.T * 2)[np.arange(48), k] * 2 + 1, SQUARE, LABELS[:48]),
    "written elements of rows": (lambda x, v, k: put(x * 2, k, v) + 1, SQUARE, SQUARE[:, 0], LABELS),
    "one number in each row": (lambda x, k: put(n.zeros_like(x), k, -1.0) + x, SQUARE, LABELS),
    "cross-entropy with labels": (labelled_loss, SQUARE, LABELS),
    "powers": (lambda x: x ** 2 + x ** 0.5 + x ** -1.5, POSITIVE),
    "repeated calls": (lambda x: (n.sort(x) * 2 + x, n.cumsum(x) + n.exp(x) * 3), X),
    "nothing to compute": (lambda x: (x[:0] * 2 + 1, x * 2 + 1), X),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_loops(name):
    function, *arguments = GROUPS[name]
    check(function, *arguments)


def test_positions_out_of_range_are_refused():
    function, x, labels = GROUPS["elements of rows"]
    compiled = check(function, x, labels)
    wrong = labels.copy()
    wrong[7] = -49
    with pytest.raises(IndexError, match="index -49 is out of bounds for axis with size 48"):
        compiled(x, wrong)
    with pytest.raises(IndexError, match="index -49 is out of bounds for axis 1 with size 48"):
        function(x, wrong)


def test_few_elements_of_rows_are_a_loop_of_the_core():
    compiled = check(lambda x, k: x[np.arange(3), k] * 2, SQUARE[:3], LABELS[:3], made=False)
    assert "= index(" in compiled.plan(SQUARE[:3], LABELS[:3])


def test_a_pytree_of_arrays_has_one_function_for_equal_computations():
    arrays = [[rng.random(600 + k % 3) for k in range(12)] for _ in range(4)]
    known = len(numba_backend._compiled)
    check(adam, *arrays, np.asarray(3.0))
    assert len(numba_backend._compiled) <= known + 1


def test_other_shapes_need_no_other_function():
    function = compile(lambda x, y: n.cos(x) * y - n.sum(x * y, axis=1, keepdims=True), backend="numba")
    function(*rng.random((2, 100, 90)))
    known = len(numba_backend._compiled)
    x, y = rng.random((2, 80, 110))
    check_close(function(x, y), np.cos(x) * y - np.sum(x * y, axis=1, keepdims=True))
    assert len(numba_backend._compiled) == known


def test_small_arrays_and_single_loops_stay_numpys():
    check(lambda x: n.exp(x) * 2 + 1, X[:20], made=False)
    check(lambda x: n.exp(x), X, made=False)


def test_chains_of_many_operands_are_left_in_blocks():
    check(lambda *arrays: sum(arrays), *rng.random((64, 600)), made=False)


def test_long_programs_are_compiled_in_pieces():
    def polynomial(x):
        y = x
        for i in range(150):
            y = y * x + (i % 7 + 1.0)
        return y

    def branching(x):
        return sum([n.exp(x * i) + i for i in range(70)])

    for function in (polynomial, branching):
        lines = check(function, rng.random(600)).plan(rng.random(600)).splitlines()
        pieces = [line.partition(f"{MADE}(")[2].partition(")")[0] for line in lines if MADE in line]
        assert 2 <= len(pieces) <= 7
        assert all(2 <= len(names.split(", ")) <= numba_backend.MOST_LOOPS for names in pieces)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_change_no_bits(threads):
    x, target = rng.standard_normal((5000, 40)), np.eye(5000, 40)
    one = compile(softmax_loss, backend="numba")(x, target)
    more = compile(softmax_loss, backend="numba", threads=threads)(x, target)
    for found, expected in zip(tree_leaves(more), tree_leaves(one), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_results_take_the_memory_of_donated_arguments():
    compiled = check(lambda x, y: (n.exp(x) * y + x, x * 2 + y), X, Y, donate=0)
    x = X.copy()
    expected, address = (np.exp(x) * Y + x, x * 2 + Y), x.ctypes.data
    found = compiled(x, Y)
    check_close(found, expected)
    assert address in [result.ctypes.data for result in found]


def test_arguments_stay_as_they_are():
    x, y = X.copy(), Y.copy()
    compile(lambda x, y: (x * y + 1, n.exp(x) - y), backend="numba")(x, y)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_floating_point_flags_of_machine_code_are_reported_by_no_later_step():
    x = np.where(X > 0, np.nan, X)
    with np.errstate(all="raise"):
        found = compile(lambda x: (n.where(x < 0, x * 2, 0.0), n.where(x[:3] < 0, x[:3], 0.0) + 1), backend="numba")(x)
    np.testing.assert_array_equal(found[0], np.where(x < 0, x * 2, 0.0))


# --- repetitions -----------------------------------------------------------------------------------------------------


def pendulum(state):
    def step(state, _):
        angle, speed = state[0], state[1]
        new = n.stack([angle + 0.01 * speed, speed - 0.01 * n.sin(angle)])
        return new, new[0] * 2
    return scan(step, state, None, length=500)


def kalman(mean, measured):
    move, seen = np.eye(4) + 0.1 * np.eye(4, k=2), np.eye(2, 4)

    def step(carry, z):
        mean, spread = carry
        mean, spread = move @ mean, move @ spread @ move.T + 0.01 * np.eye(4)
        gain = spread @ seen.T / (n.sum(spread) + 1)
        return (mean + gain @ (z - seen @ mean), spread - gain @ seen @ spread), n.sum(mean)
    return scan(step, (mean, np.eye(4)), measured)


def collatz(k):
    return while_loop(lambda k, steps: k > 1, lambda k, steps: (n.where(k % 2 == 0, k // 2, 3 * k + 1), steps + 1),
                      (k, np.zeros((), np.int64)))


def roots(values):
    def step(total, value):
        root, turns = while_loop(
            lambda r, i: n.absolute(r * r - value) > 1e-12, lambda r, i: ((r + value / r) / 2, i + 1),
            (value * 1.0, np.zeros((), np.int64)))
        return total + root, (root * 1, turns * 1)
    return scan(step, np.zeros(()), values)


def nested(values):
    def outer(state, value):
        last, ys = scan(lambda a, b: (a * 0.5 + b * value, a + b), state, np.arange(5.0))
        return last, cond(last > 1, lambda a, b: a * 2 + n.sum(b), lambda a, b: a - 1, (last, ys))
    return scan(outer, np.ones(()), values)


def matrix_rows(x):
    return map(lambda row: (n.sum(row * row), row - n.max(row)), x)


REPETITIONS = {
    "a pendulum": (pendulum, np.array([1.0, 0.0])),
    "smoothing": (lambda x: scan(lambda s, v: (0.9 * s + 0.1 * v, s * 2), x[0], x), X),
    "from the end": (lambda x, y: scan(lambda s, v: (s * v[0] + v[1], s + v[0]), x[0], (x, y), reverse=True), X, Y),
    "of shifted arrays": (lambda x: scan(lambda s, v: (s + v[0] * v[1], s * 1), np.zeros(()), (x[:-1], x[1:])), X),
    "of every second": (lambda x: scan(lambda s, v: (s + v, s * 2), np.zeros(()), x[::2]), X),
    "carries that change places": (
        lambda x: scan(lambda c, v: ((c[1] * 1, c[0] + v), c[0] - c[1]), (x[0], x[1]), x), X),
    "a carry that is not read": (lambda x: scan(lambda c, v: (v * 2, v + 1), x[0], x), X),
    "a carry of many": (lambda x: scan(lambda c, v: (n.tanh(c * 0.5 + v), n.sum(c)), np.zeros(40), x), X),
    "integers": (lambda k: scan(lambda c, v: ((c * 31 + v) % 1009, c // 2), np.ones((), np.int64), k),
                 rng.integers(0, 99, 200)),
    "booleans": (lambda x: scan(lambda c, v: (n.logical_xor(c, v > 0), n.logical_not(c)), np.zeros((), bool), x), X),
    "complex": (lambda x: scan(lambda c, v: (c * 0.5j + v, n.absolute(c)), np.zeros((), complex), x), X),
    "products of matrices": (kalman, np.zeros(4), rng.random((100, 2))),
    "while": (collatz, np.asarray(27)),
    "while, not once": (collatz, np.asarray(1)),
    "while, for long": (lambda x: while_loop(lambda x, i: i < 20000, lambda x, i: (x * 0.999 + 1, i + 1),
                                             (x, np.zeros((), np.int64))), np.asarray(2.0)),
    "while inside": (roots, rng.random(50) + 1),
    "a branch and a repetition inside": (nested, rng.random(60)),
    "rows": (matrix_rows, SQUARE),
    "a branch alone": (lambda x: cond(x[0] > 0, lambda x: n.sin(x) * 2 + 1.5, lambda x: x * 3 - 1.0, (x,)) * 3 + x, X),
    "a branch in a branch": (
        lambda x: cond(x[0] > 0, lambda x: cond(x[1] > 0, lambda x: x * 2 + 1, lambda x: x * 3 + 2, (x,)) * 2,
                       lambda x: x * x + 1, (x,)) - x, X),
    "its gradient": (lambda x: func.grad(lambda x: n.sum(scan(lambda s, v: (n.sin(s) + v, s * s), x[0], x)[1]))(x), X),
    "a batch": (lambda x: func.vmap(lambda x: scan(lambda s, v: (0.9 * s + v, s * 2), x[0], x))(x), SQUARE),
}


@pytest.mark.parametrize("name", REPETITIONS)
def test_repetitions(name):
    function, *arguments = REPETITIONS[name]
    check(function, *arguments, ulps=4096)


@pytest.mark.parametrize("threads", [1, 2])
def test_repetitions_go_from_first_to_last_on_any_number_of_threads(threads):
    x = rng.random(100_000)
    check(lambda x: scan(lambda s, v: (0.5 * s + v, s * 2), x[0], x), x, threads=threads)


def test_bodies_that_call_functions_are_no_loop():
    check(lambda x: scan(lambda s, v: (s + n.sort(v)[0], s * 1), np.zeros(()), x), SQUARE, made=False)


def test_large_bodies_are_groups_of_loops():
    compiled = check(lambda x: scan(lambda s, _: (n.cos(s) * 0.5 + s * s, n.sum(s)), x, None, length=20),
                     rng.random(6000))
    assert "repeat 20 times" in compiled.plan(rng.random(6000))


def test_a_loop_that_never_ends_is_interrupted():
    def interrupt(*_):
        raise InterruptedError("now")

    compiled = compile(lambda x: while_loop(lambda x: x > 0, lambda x: (n.cos(x * 0) + 1,), (x,)), backend="numba")
    compiled.plan(np.ones(()))
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(InterruptedError, match="now"):
            compiled(np.ones(()))
    finally:
        signal.signal(signal.SIGALRM, before)


# --- transforms, pickles, threads ------------------------------------------------------------------------------------


def product(x, y):
    return n.sum(n.sin(x) * y * y)


def test_transforms_of_compiled_functions():
    compiled = compile(product, backend="numba")
    check_close(func.grad(compiled)(X, Y), func.grad(product)(X, Y))
    check_close(func.vmap(compiled)(SQUARE, SQUARE), func.vmap(product)(SQUARE, SQUARE))
    check_close(func.jvp(compiled, (X, Y), (Y, X)), func.jvp(product, (X, Y), (Y, X)))
    check_close(compile(func.hessian(product), backend="numba")(X[:30], Y[:30]), func.hessian(product)(X[:30], Y[:30]))


def test_pickles_are_graphs():
    compiled = compile(product, backend="numba")
    compiled(X, Y)
    again = pickle.loads(pickle.dumps(compiled))
    assert MADE in again.plan(X, Y) or again.cache_info().currsize == 1
    np.testing.assert_array_equal(again(X, Y), compiled(X, Y))


def test_plans_with_machine_code_are_not_pickled():
    run = numba_backend.compile_to_numba(make_fx(lambda x: (n.exp(x) * 2 + 1,))(X))
    assert run.counts == (1, 0)
    with pytest.raises(TypeError, match="a plan with machine code cannot be pickled"):
        pickle.dumps(run.plan)


def test_threads_of_python_share_a_function():
    compiled = compile(softmax_loss, backend="numba", threads=2)
    arrays = [rng.standard_normal((400, 50)) for _ in range(4)]
    target = np.eye(400, 50)
    found = {}

    def work(i):
        for _ in range(20):
            found[i] = compiled(arrays[i], target)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, array in enumerate(arrays):
        check_close(found[i], softmax_loss(array, target))


# --- random programs -------------------------------------------------------------------------------------------------


def random_program(seed):
    """Return a function of three arrays, of operators, views, broadcasts, casts and reductions, and the arrays."""
    draw = np.random.default_rng(seed)
    rows, columns = int(draw.integers(2, 40)), int(draw.integers(1, 40))
    arrays = [draw.standard_normal((rows, columns)), draw.standard_normal((rows, 1)).astype("float32"),
              draw.integers(-5, 6, columns)]
    unary = (n.sin, n.tanh, n.negative, n.absolute, n.square, n.sign, n.floor)
    binary = (n.add, n.subtract, n.multiply, n.maximum, n.minimum, n.arctan2)
    steps = [tuple(draw.integers(0, 1 << 20, 5)) for _ in range(int(draw.integers(4, 25)))]

    def function(*given):
        values = list(given)
        for kind, a, b, c, d in steps:
            x, y = values[a % len(values)], values[b % len(values)]
            if x.ndim == 0 or y.ndim == 0:
                x, y = given[0], given[1]
            match kind % 12:
                case 0 | 1 | 2 | 3:
                    try:
                        np.broadcast_shapes(x.shape, y.shape)
                    except ValueError:
                        y = x
                    values.append(binary[c % len(binary)](x, y))
                case 4 | 5:
                    values.append(unary[c % len(unary)](x))
                case 6:
                    values.append((n.sum, n.max, n.min, n.mean)[c % 4](x, axis=d % x.ndim, keepdims=bool(c % 3)))
                case 7:
                    values.append(x[::-1] if c % 2 else n.flip(x, x.ndim - 1))
                case 8:
                    values.append(n.where(x > 0, x, -1))
                case 9:
                    values.append(n.astype(x, ("float32", "float64")[c % 2]))
                case 10:
                    values.append(n.swapaxes(n.swapaxes(x, 0, -1) * 2, 0, -1))
                case 11:
                    values.append(n.concatenate([x, x * 2], axis=d % x.ndim)[tuple([slice(0, k) for k in x.shape])])
        return tuple(values[3:])

    return function, arrays


def check_random_program(seed):
    function, arrays = random_program(seed)
    compiled = compile(function, backend="numba", threads=1 + seed % 2, donate=(0, 1, 2) if seed % 3 else ())
    with np.errstate(all="ignore"):
        expected = [np.asarray(result) for result in function(*arrays)]
        for _ in range(2):
            for found, wanted in zip(compiled(*[np.copy(array) for array in arrays]), expected, strict=True):
                assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), seed
                largest = max(np.abs(wanted).max(initial=0), 1)
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * largest, err_msg=str(seed))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed, smallest):
    check_random_program(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 24))
def test_more_random_programs(seed, smallest):
    check_random_program(seed)


def test_what_was_written_before_is_read_beside_what_is_written_now():
    def function(x, weights):
        y = ops.np.tanh(x @ weights)
        z = ops.np.copy(y)
        z[:, 1:] = y[:, :-1] * 0.5
        z[-1] *= 2.0
        z[0] += y[1]
        found = ops.np.sin(z)
        return ops.np.sum(ops.np.maximum(found, ops.np.maximum(x, y)) * found) + ops.np.mean(z)

    generator = np.random.default_rng(0)
    x, weights = generator.standard_normal((900, 12)), generator.standard_normal((12, 12)) * 0.3
    gradient = func.grad(function, (0, 1))
    for found, expected in zip(compile(gradient, backend="numba")(x, weights), gradient(x, weights), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
