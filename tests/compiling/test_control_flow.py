"""Loops and branches inside plans, against Python's loops: without a call of Python between the steps."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, ops
from pydispatch.exceptions import DataDependentError
from pydispatch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from pydispatch.higher_order import HigherOrderOperator, associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from tests.comparing import raw
from tests.compiling.same import check_same
from tests.compiling.test_transforms import near, on_tape, on_tape_twice
from tests.warning_filters import quiet

ROWS = np.random.default_rng(7).uniform(0.2, 0.9, (6, 3))
START = np.array([0.5, -0.3, 0.8])
MATRIX = np.random.default_rng(8).uniform(-0.5, 0.5, (3, 3))


# --- loops as Python has them ----------------------------------------------------------------------------------------


def looped_scan(combine, init, xs=None, *, length=None, reverse=False, axis=0):
    n = length if xs is None else leaves_of(xs)[0].shape[axis]
    ys = []
    for i in reversed(range(n)) if reverse else range(n):
        init, y = combine(init, None if xs is None else picked(xs, i, axis))
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    return init, stacked(ys)


def leaves_of(value):
    return [leaf for item in value.values() for leaf in leaves_of(item)] if isinstance(value, dict) else (
        [leaf for item in value for leaf in leaves_of(item)] if isinstance(value, (tuple, list)) else [value])


def picked(xs, i, axis):
    if isinstance(xs, (tuple, list)):
        return type(xs)([picked(x, i, axis) for x in xs])
    return ops.np.take(xs, np.array(i), axis)


def stacked(ys):
    if ys[0] is None:
        return None
    if isinstance(ys[0], (tuple, list)):
        return type(ys[0])([stacked(column) for column in zip(*ys, strict=True)])
    return ops.np.stack(ys)


def looped_while(cond_fn, body_fn, init):
    carry = tuple([value if isinstance(value, Tensor) else Tensor(value) for value in init])
    while bool(raw(cond_fn(*carry))):
        found = body_fn(*carry)
        carry = found if isinstance(found, tuple) else (found,)
    return carry


def looped_map(f, xs, *args):
    return stacked([f(picked(xs, i, 0), *args) for i in range(leaves_of(xs)[0].shape[0])])


def looped_associative_scan(combine, xs, *, reverse=False):
    n = len(xs)
    found = [xs[n - 1 if reverse else 0]]
    for i in reversed(range(n - 1)) if reverse else range(1, n):
        found.append(combine(found[-1], xs[i]))
    return ops.np.stack(found[::-1] if reverse else found)


def chosen(pred, true_fn, false_fn, operands=()):
    return (true_fn if bool(raw(pred)) else false_fn)(*operands)


class Python:
    scan, while_loop, map, associative_scan, cond = map(
        staticmethod, (looped_scan, looped_while, looped_map, looped_associative_scan, chosen))


class Library:
    scan, while_loop, map, associative_scan, cond = map(
        staticmethod, (scan, while_loop, map_slices, associative_scan, cond))


# --- programs --------------------------------------------------------------------------------------------------------


def smoothing(h, xs):
    return h.scan(lambda c, x: (0.9 * c + 0.1 * x, c * x), START * 1, xs)


def without_slices(h, xs):
    return h.scan(lambda c, _: (ops.np.sin(c) + xs[0], c * 2), xs[0] * 1, None, length=7)


def without_results(h, xs):
    return h.scan(lambda c, x: (ops.np.tanh(c @ MATRIX + x), None), xs[0] * 1, xs)[0]


def pytrees(h, xs):
    carry, ys = h.scan(
        lambda c, x: ((c[0] + x[1], ops.np.maximum(c[1], x[0])), [c[0] * x[0], x[1] * 1]),
        (xs[0] * 1, xs[1] * 1), (xs, xs * 2))
    return carry, ys


def swapped_carries(h, xs):
    return h.scan(lambda c, x: ((c[1] * 1, c[0] + x), c[0] * 1), (xs[0] * 1, xs[1] * 2), xs)


def one_result_twice(h, xs):
    def combine(c, x):
        y = c * x
        return (y, y * 1), y + 0 * c
    return h.scan(lambda c, x: (combine(c[0], x)[0], (c[1] * x, c[1] * x)), (xs[0] * 1, xs[1] * 1), xs)


def constants_as_results(h, xs):
    return h.scan(lambda c, x: (c + 1.0, ops.np.ones(2) * 3), ops.np.zeros(3), xs)


def a_slice_as_result(h, xs):
    return h.scan(lambda c, x: (x * 1, x[::-1] * 1), xs[0] * 1, xs)


def columns(h, xs):
    return h.scan(lambda c, x: (c + x.sum(), x * c), ops.np.zeros(()), xs, axis=1)


def of_a_view(h, xs):
    return h.scan(lambda c, x: (c * x, c + x), xs[0] * 1, xs[::-2])


def nested_scans(h, xs):
    def row(c, x):
        inner, ys = h.scan(lambda d, e: (d * e + c[0], d + e), c[1] * 1, x)
        return c + inner, ys
    return h.scan(row, xs[0] * 1, xs)


def a_scan_after_a_scan(h, xs):
    first, ys = h.scan(lambda c, x: (c + x, c * x), xs[0] * 1, xs)
    return h.scan(lambda c, y: (c * 0.5 + y, c - y), first, ys, reverse=True)


def integers_and_bools(h, xs):
    return h.scan(lambda c, x: ((c[0] + 1, c[1] ^ (x > 0.5)), (c[0] * 2, c[1] & (x > 0.3))),
                  (ops.np.zeros((), dtype=np.dtype(np.int32)), ops.np.zeros((3,), dtype=np.dtype(bool))), xs)


def newton(h, xs):
    return h.while_loop(lambda x, i: (ops.np.absolute(x * x - 2) > 1e-10).any() & (i < 50),
                        lambda x, i: (0.5 * (x + 2 / x), i + 1), (xs[0] + 1, ops.np.zeros(())))


def no_step(h, xs):
    return h.while_loop(lambda x: x.sum() < -100, lambda x: (x * 2,), (xs[0] * 1,))


def collatz(h, xs):
    n = ops.np.astype(ops.np.floor(xs[0, 0] * 100), np.dtype(np.int64)) + 3
    return h.while_loop(
        lambda n, steps: n > 1, lambda n, steps: (ops.np.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1),
        (n, ops.np.zeros((), dtype=np.dtype(np.int64))))


def a_loop_in_a_loop(h, xs):
    def body(x, i):
        y, = h.while_loop(lambda y: y.sum() < 10 + i, lambda y: (y * 1.5 + 0.01,), (x * 1,))
        return y * 0.25, i + 1
    return h.while_loop(lambda x, i: i < 4, body, (xs[0] * 1, ops.np.zeros(())))


def a_carried_condition(h, xs):
    return h.while_loop(lambda go, x: go, lambda go, x: (x.sum() < 20, x * 2),
                        (ops.np.ones((), dtype=np.dtype(bool)), xs[0] * 1))


def a_branch(h, xs):
    return h.cond(xs.sum() > 5, lambda x: (ops.np.sin(x), x.sum()), lambda x: (x * 2, x.max()), (xs,))


def a_branch_that_hands_on(h, xs):
    return h.cond(xs[0, 0] < 0.5, lambda x, y: x * 1, lambda x, y: y * 1, (xs[0], xs[1]))


def branches_in_branches(h, xs):
    return h.cond(xs[0, 0] > 0.5,
                  lambda x: h.cond(x[1, 1] > 0.5, lambda x: x * 2, lambda x: x * 3, (x,)),
                  lambda x: h.cond(x[1, 2] > 0.5, lambda x: x * 5, lambda x: x * 7, (x,)), (xs,))


def a_branch_in_a_loop(h, xs):
    return h.scan(lambda c, x: (h.cond(x[0] > 0.5, lambda c: c + x, lambda c: c * x, (c,)), c * 1), xs[0] * 1, xs)


def a_loop_in_a_branch(h, xs):
    return h.cond(xs[0, 1] > 0.5, lambda x: h.scan(lambda c, x: (c + x, c * 1), x[0] * 1, x)[1],
                  lambda x: h.map(lambda x: x * 2, x), (xs,))


def slice_by_slice(h, xs):
    return h.map(lambda x, w: (ops.np.sort(x), (x @ w).sum(), x[::-1] * 1), xs, MATRIX)


def products(h, xs):
    return h.associative_scan(lambda a, b: a * b, xs)


def matrices_from_behind(h, xs):
    return h.associative_scan(lambda a, b: ops.np.matmul(a, b), ops.np.stack([xs[:3], xs[3:], xs[1:4]]), reverse=True)


def with_calls_of_python(h, xs):
    return h.scan(lambda c, x: (ops.np.sort(c)[::-1] + ops.np.cumsum(x), ops.np.argsort(c * x)), xs[0] * 1, xs)


def with_a_gather(h, xs):
    return h.scan(lambda c, i: (c + xs[i], ops.np.take(c, np.array([2, 0]))), xs[0] * 1, np.array([0, 3, -1, 5, 2]))


PROGRAMS = {function.__name__: function for function in (
    smoothing, without_slices, without_results, pytrees, swapped_carries, one_result_twice, constants_as_results,
    a_slice_as_result, columns, of_a_view, nested_scans, a_scan_after_a_scan, integers_and_bools, newton, no_step,
    collatz, a_loop_in_a_loop, a_carried_condition, a_branch, a_branch_that_hands_on, branches_in_branches,
    a_branch_in_a_loop, a_loop_in_a_branch, slice_by_slice, products, matrices_from_behind, with_calls_of_python,
    with_a_gather)}
SMOOTH = [name for name in PROGRAMS if name not in ("collatz", "integers_and_bools", "constants_as_results")]
IN_WHILE = ("newton", "no_step", "a_loop_in_a_loop", "a_carried_condition")
"""Whose gradient keeps every step, and a plan would have to know how many there are."""
CALLS = ("with_calls_of_python", "slice_by_slice")
SCATTERS = ("with_a_gather",)
"""Whose gradients call Python."""
POINTS = [ROWS, 1 - ROWS, ROWS[::-1].copy(), ROWS * 0.1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_loops_of_python(name):
    compiled = compile(lambda xs: PROGRAMS[name](Library, xs))
    for xs in (*POINTS, *POINTS):
        expected = PROGRAMS[name](Python, xs)
        if "products" in name or "matrices" in name:
            near(compiled(xs), expected)
        else:
            check_same(compiled(xs), tuple(expected) if isinstance(expected, tuple) else expected)
    assert compiled.cache_info() == (7, 1, 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_the_operators_on_functions_themselves(name):
    compiled = compile(lambda xs: PROGRAMS[name](Library, xs))
    for xs in POINTS:
        check_same(compiled(xs), PROGRAMS[name](Library, xs))
        check_same(compiled(Tensor(xs)), PROGRAMS[name](Library, xs))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in CALLS])
def test_no_call_of_python_between_the_steps(name):
    compiled = compile(lambda xs: PROGRAMS[name](Library, xs))
    assert " call " not in compiled.plan(ROWS)
    assert " 0 calls of Python" in compiled.explain(ROWS)


@pytest.mark.parametrize(("name", "words"), [
    ("smoothing", "repeat 6 times"), ("newton", "while"), ("a_branch", "if "), ("slice_by_slice", "repeat 6 times")])
def test_loops_and_branches_are_steps_of_the_plan(name, words):
    assert words in compile(lambda xs: PROGRAMS[name](Library, xs)).plan(ROWS)


def total(value):
    return sum([(leaf * leaf).sum() for leaf in leaves_of(value) if leaf is not None and leaf.dtype.kind == "f"])


DERIVATIVES = {
    "grad": grad, "tape": on_tape, "tape twice": on_tape_twice,
    "grad of grad": lambda f: grad(lambda x: (grad(f)(x) ** 2).sum()),
    "jvp": lambda f: lambda x: jvp(f, (x,), (ops.np.cos(x),)),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(ops.np.stack([x, x * 0.9])),
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives(name, derivative):
    if name in IN_WHILE and derivative != "jvp":
        with pytest.raises(DataDependentError, match=r"the gradient of a loop needs the number of steps.*\n.*scan"):
            DERIVATIVES[derivative](compile(lambda xs: total(PROGRAMS[name](Library, xs))))(ROWS)
        return
    if derivative == "vmap of grad":
        gradient = grad(lambda xs: total(PROGRAMS[name](Python, xs)))
        expected = np.stack([gradient(ROWS), gradient(ROWS * 0.9)])
    else:
        expected = DERIVATIVES[derivative](lambda xs: total(PROGRAMS[name](Python, xs)))(ROWS)
    near(DERIVATIVES[derivative](compile(lambda xs: total(PROGRAMS[name](Library, xs))))(ROWS), expected)


@pytest.mark.parametrize("name", [name for name in SMOOTH if name not in IN_WHILE])
def test_compiled_gradients(name):
    gradient = compile(grad(lambda xs: total(PROGRAMS[name](Library, xs))))
    near(gradient(ROWS), grad(lambda xs: total(PROGRAMS[name](Python, xs)))(ROWS))
    if name not in CALLS + SCATTERS:
        assert " 0 calls of Python" in gradient.explain(ROWS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches(name):
    batch = np.stack(POINTS)
    with quiet():
        found = vmap(compile(lambda xs: PROGRAMS[name](Library, xs)))(batch)
    for i, xs in enumerate(POINTS):
        near([leaf[i] for leaf in leaves_of(found) if leaf is not None],
             [raw(leaf) for leaf in leaves_of(PROGRAMS[name](Python, xs)) if leaf is not None])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 1000])
def test_lengths(n, reverse):
    xs = np.random.default_rng(n).standard_normal((n, 2))

    def combine(c, x):
        return ops.np.tanh(c * 0.9 + x), c - x

    check_same(compile(lambda xs: scan(combine, ops.np.ones(2), xs, reverse=reverse))(xs),
               looped_scan(combine, ops.np.ones(2), xs, reverse=reverse))


@pytest.mark.parametrize(("xs", "length"), [(np.zeros((0, 2)), None), (None, 0)], ids=["slices", "length"])
def test_no_steps(xs, length):
    for wrap in (compile, lambda function: function):
        carry, ys = wrap(lambda c: scan(lambda c, x: (c * 2, c * 1), c, xs, length=length))(np.ones(2))
        np.testing.assert_array_equal(carry, np.ones(2))
        assert ys.shape == (0, 2)


@pytest.mark.parametrize("size", [3, 5000, 20_000])
def test_bodies_over_large_arrays(size):
    x = np.random.default_rng(2).standard_normal(size)

    def combine(c, k):
        y = ops.np.exp(-c * c) * k + ops.np.sin(c)
        return y, (y.sum(), y * 2)

    ks = np.linspace(0, 1, 5)
    for threads in (1, 2):
        found = compile(lambda x, ks: scan(combine, x, ks), threads=threads)(x, ks)
        check_same(found, looped_scan(combine, x, ks))


def test_scans_neither_read_nor_fill_arrays_that_nothing_uses():
    def program(x, vs, ws):
        return scan(lambda s, row: (s + row[0], (s * 2.0, s * 3.0)), x, (vs, ws))[1][0]

    x, rows = np.array(0.5), ROWS[:, 0].copy()
    compiled = compile(program)
    check_same(compiled(x, rows, rows * 2.0), raw(program(x, rows, rows * 2.0)))
    text = compiled.plan(x, rows, rows)
    assert "carrying 1, over part of input1, part of result0:" in text
    assert "2.0" in text
    assert "3.0" not in text


def test_long_functions_of_slices_come_first_in_a_body():
    # Later functions would wait for memory if they took values computed before the long ones.
    def program(x, rows):
        return scan(lambda s, row: (s + (s * 2.0 + row) * ops.np.cos(row), ops.np.sin(s) * 3.0), x, rows)

    x, rows = np.array(0.5), ROWS[:, 0].copy()
    compiled = compile(program)
    check_same(compiled(x, rows), raw(program(x, rows)))
    body = [line.split(" = ")[1].split("(")[0] for line in compiled.plan(x, rows).splitlines() if line[0] == " "]
    assert body[0] == "cos"
    assert "sin" in body[1:]


def test_a_branch_runs_alone():
    compiled = compile(lambda x: cond(x[0] > 0, lambda x: ops.np.log(x), lambda x: x / 2.0, (x,)))
    with np.errstate(all="raise"):
        check_same(compiled(np.ones(3)), np.zeros(3))
        check_same(compiled(-np.ones(3)), -np.ones(3) / 2)
        with pytest.raises(FloatingPointError, match="invalid value encountered in log"):
            compiled(np.array([1.0, -1.0, 1.0]))


@pytest.mark.parametrize("first", [-1.0, 1.0])
def test_what_a_branch_computes_in_blocks_is_there_after_it(first):
    x = np.full(50_000, first)
    function = lambda h: lambda x: h.cond(      # noqa: E731
        x[0] > 0, lambda x: ops.np.sin(x) * 2 + 1.5, lambda x: x * 3 - 1.0, (x,)) * 3 + x
    check_same(compile(function(Library))(x), function(Python)(x))


def test_a_known_condition_leaves_one_branch():
    compiled = compile(lambda x, flag: cond(flag, lambda x: x * 2, lambda x: x * 3, (x,)))
    check_same(compiled(START, True), START * 2)
    check_same(compiled(START, False), START * 3)
    assert "if " not in compiled.plan(START, True)
    assert "if " in compiled.plan(START, np.array(True))


def test_an_index_out_of_range_in_a_loop():
    compiled = compile(lambda x, indices: scan(lambda c, i: (c + x[i], None), ops.np.zeros(()), indices)[0])
    check_same(compiled(START, np.array([0, 2, -3])), (START[0] + START[2]) + START[0] + 0.0)
    for _ in range(2):
        with pytest.raises(IndexError, match="index 3 is out of bounds for axis with size 3"):
            compiled(START, np.array([0, 3, 1]))
        check_same(compiled(START, np.array([1, 1, 1])), START[1] + START[1] + START[1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")       # which make the loops of a row run again, one by one
@pytest.mark.parametrize("n", [3, 2000], ids=["saved bytes", "too large to save"])
def test_a_loop_that_writes_elements(n):
    def step(carry, i):
        total, x = carry
        x = x.copy()
        x[i] = 1.0 / x[i] + x[(i + 1) % n]
        return (total + x[i], x), x[i - 1]

    x, positions = np.linspace(-1.0, 2.0, n), np.tile([0, 2, 1, 2], 300)
    compiled = compile(lambda x, positions: scan(step, (np.zeros(()), x), positions))
    for k in (0, 2, 700, 1199):
        x[k % 3] = 0.0
        check_same(compiled(x, positions), scan(step, (np.zeros(()), x), positions))
        positions[k] = n
        with pytest.raises(IndexError, match=f"index {n} is out of bounds for axis.* with size {n}"):
            compiled(x, positions)
        positions[k] = 1


# --- random programs -------------------------------------------------------------------------------------------------


@st.composite
def bodies(draw, depth=0):
    """Draw a function of a carry of two rows and a slice, which may loop and branch itself."""
    kinds = ["mix", "swap", "reduce", "gather", "cast", "fixed"] + ["cond", "scan", "while", "two"] * (depth < 2)
    kind = draw(st.sampled_from(kinds))
    number = draw(st.sampled_from([0.5, -0.25, 1.0, 0.0]))
    if kind == "mix":
        return lambda h, c, x: (c[0] * number + x, ops.np.sin(c[1] - c[0]))
    if kind == "swap":
        return lambda h, c, x: (c[1] * 1, c[0] * 1)
    if kind == "reduce":
        return lambda h, c, x: (c[0] + c[1].sum() * number, x * c[1].max())
    if kind == "gather":
        return lambda h, c, x: (c[0][::-1] + number, ops.np.take(c[1], np.array([1, 0, 2])))
    if kind == "cast":
        return lambda h, c, x: (ops.np.astype(ops.np.astype(c[0], np.dtype(np.float32)), np.dtype(float)),
                                ops.np.where(c[1] > number, c[1], x))
    if kind == "fixed":
        return lambda h, c, x: (c[0] * 1, ops.np.full((3,), number))
    inner, other = draw(bodies(depth + 1)), draw(bodies(depth + 1))
    if kind == "two":
        return lambda h, c, x: other(h, inner(h, c, x), x * 0.5)
    if kind == "cond":
        return lambda h, c, x: h.cond(
            c[0].sum() > number, lambda a, b, x: inner(h, (a, b), x), lambda a, b, x: other(h, (a, b), x), (*c, x))
    if kind == "scan":
        reverse = draw(st.booleans())

        def scanned(h, c, x):
            carry, ys = h.scan(lambda c, y: (inner(h, c, x * y), c[0] * y), c, x, reverse=reverse)
            return carry[0] + ys[1], carry[1]

        return scanned
    count = draw(st.integers(0, 3))
    return lambda h, c, x: h.while_loop(
        lambda a, b, i: i < count, lambda a, b, i: (*inner(h, (a, b), x), i + 1), (*c, ops.np.zeros(())))[:2]


def check_random_program(body):
    def program(h, xs):
        return h.scan(lambda c, x: (body(h, c, x), (c[0] * x, c[1] - x)), (xs[0] * 1, xs[1] * 1), xs)

    compiled = compile(lambda xs: program(Library, xs))
    with quiet():
        for xs in POINTS[:2]:
            check_same(compiled(xs), tuple(program(Python, xs)))
    assert " 0 calls of Python" in compiled.explain(ROWS)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(bodies())
def test_random_loops(body):
    check_random_program(body)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(bodies())
def test_many_random_loops(body):
    check_random_program(body)


def test_functions_of_other_operators_are_plans_for_arrays_like_those_of_the_trace():
    kinds = []
    twice = HigherOrderOperator("twice_compiled", examples=lambda f, x: {0: (x,)})

    @twice.py_impl("CPU")
    def run(f, x):
        kinds.append(type(f).__name__)
        return f(*f(x))[0] + f(np.float64(x))[0]         # the last gets a scalar, which no plan takes

    @twice.py_impl("Meta")
    def run_without_data(f, x):
        return f(x)[0]

    def function(x):
        return twice(lambda x: (x * 3 + 1,), x)

    x = np.array(3.0)
    np.testing.assert_array_equal(compile(function)(x), function(x))
    assert kinds == ["FunctionOfOperator", "function"]


# --- functions that write to arrays of their own ---------------------------------------------------------------------


def written(x):
    x = ops.np.copy(x)
    x[0], x[1] = x[1], x[0]
    x[1:] += 1.0
    return x


def written_in_turn(x):
    turned = ops.np.reshape(x, (-1,)) * 1.0
    turned[:1] = 3.0
    return turned


WRITING = {
    "scan": lambda x: scan(lambda carry, row: (written(carry + row), written(row)), x, ROWS),
    "while_loop": lambda x: while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, written(x)), (np.array(0), x)),
    "cond": lambda x: cond(x[0] > 0.0, written, lambda x: x * 1.0, (x,)),
    "map": lambda x: map_slices(lambda row: written(row * x), ROWS),
    "nested": lambda x: scan(
        lambda carry, row: (cond(carry[0] > 0.0, written, written_in_turn, (carry,)), None), x, ROWS)[0],
}
LOOPED = {
    "scan": lambda x: looped_scan(lambda carry, row: (written(carry + row), written(row)), x, ROWS),
    "while_loop": lambda x: (3, written(written(written(x)))),
    "cond": lambda x: written(x) if x[0] > 0.0 else x,
    "map": lambda x: np.stack([written(row * x) for row in ROWS]),
    "nested": lambda x: looped_scan(
        lambda carry, row: (written(carry) if carry[0] > 0.0 else written_in_turn(carry), None), x, ROWS)[0],
}


@pytest.mark.parametrize("kind", WRITING)
def test_functions_of_control_flow_write_to_their_own_arrays(kind):
    found, expected = compile(WRITING[kind])(START), LOOPED[kind](START)
    for one, other in zip(leaves_of(found), leaves_of(expected), strict=True):
        np.testing.assert_allclose(one, np.asarray(other))


def added_up(function, x):
    """Return the sum of the squares of all that a function returns."""
    total = 0.0
    for leaf in leaves_of(function(x)):
        total = total + ops.np.sum(leaf * leaf * 0.5)
    return total


@pytest.mark.parametrize("kind", [kind for kind in WRITING if kind != "while_loop"])
def test_compiled_gradients_of_functions_of_control_flow_that_write(kind):
    shift = 1e-6 * np.eye(len(START))
    differences = [(added_up(LOOPED[kind], START + h) - added_up(LOOPED[kind], START - h)) / 2e-6 for h in shift]
    of_sum = lambda x: added_up(WRITING[kind], x)       # noqa: E731
    for gradient in (compile(grad(of_sum)), grad(compile(of_sum)), compile(grad(compile(of_sum)))):
        np.testing.assert_allclose(gradient(START), differences, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(on_tape(compile(of_sum))(START), differences, rtol=1e-5, atol=1e-7)


# --- bodies that write -----------------------------------------------------------------------------------------------


def element_in_zeros(v):
    z = pnp.zeros(3)
    z[0] = v
    return z


def neighbours_added(y):
    z = y.copy()
    z[1:] = z[1:] + z[:-1]
    return z * z


def shuffled(v):
    y = v.copy()
    pnp.random.default_rng(7).shuffle(y)
    return y * v


def drawn_into(v):
    y = v.copy()
    pnp.random.default_rng(7).random(out=y)
    return y * v


def permuted_into(v):
    y = pnp.zeros(3)
    pnp.random.default_rng(7).permuted(v, out=y)
    return y * v


LOOPS = {
    "map": (lambda f, x: map_slices(f, x), lambda f, x: np.stack([f(row) for row in x])),
    "scan": (lambda f, x: scan(lambda s, row: (s + f(row), None), np.zeros(3), x)[0], lambda f, x: sum(map(f, x))),
    "while_loop": (lambda f, x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, f(y)), (0, x[0]))[1],
                   lambda f, x: f(f(x[0]))),
    "cond": (lambda f, x: cond(x[0, 0] > 0, f, lambda y: y * 1, (x[0],)), lambda f, x: f(x[0])),
}


@pytest.mark.parametrize("write", [neighbours_added, shuffled, drawn_into, permuted_into])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_body_that_writes(loop, write):
    here, in_python = LOOPS[loop]
    batch = np.stack([ROWS[:2], ROWS[2:4]])
    np.testing.assert_allclose(compile(lambda x: here(write, x))(ROWS[:2]), in_python(write, ROWS[:2]))
    mapped = compile(vmap(lambda x: here(write, x), randomness="same"))(batch)
    np.testing.assert_allclose(mapped, np.stack([in_python(write, x) for x in batch]))
    derived = compile(jacfwd(lambda x: here(write, x), randomness="same"))(ROWS[:2])
    np.testing.assert_allclose(derived, jacfwd(lambda x: in_python(write, x), randomness="same")(ROWS[:2])
                               if loop != "map" else jacrev(lambda x: pnp.stack([write(row) for row in x]))(ROWS[:2]))


@pytest.mark.parametrize("second", [hessian, lambda f: jacfwd(grad(f)), lambda f: jacrev(jacfwd(f))])
@pytest.mark.parametrize("loop", ["map", "scan", "cond"])
def test_second_derivatives_of_a_body_that_writes(loop, second):
    here, in_python = LOOPS[loop][0], {**LOOPS, "map": (None, lambda f, x: sum(map(f, x)))}[loop][1]
    np.testing.assert_allclose(compile(second(lambda x: here(neighbours_added, x).sum()))(ROWS[:2]),
                               hessian(lambda x: in_python(neighbours_added, x).sum())(ROWS[:2]), atol=1e-12)


def test_a_batch_of_elements_written_to_an_array_that_the_body_makes():
    found = compile(vmap(lambda x: map_slices(element_in_zeros, x)))(ROWS)
    np.testing.assert_array_equal(found[:, :, 0], ROWS)
    assert not found[:, :, 1:].any()
