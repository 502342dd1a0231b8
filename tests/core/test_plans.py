"""Plans and variants by hand: what leaves its memory, or does not fit together, is refused when it is made."""

import contextlib
import gc
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from numpy.linalg import _umath_linalg

from pydispatch import Tensor, _core, compile, ops
from pydispatch.exceptions import PerformanceWarning
from pydispatch.higher_order import cond, map, scan, while_loop
from pydispatch.library import Library
from pydispatch.tree import tree_leaves
from tests.together import together

NP = ops.np
X = np.arange(3.0)
FLOAT, BOOL = np.dtype(float), np.dtype(bool)
SPEC = (3,), FLOAT


def exp_twice(x):
    return NP.exp(x) * 2.0


def described(function, *arrays):
    """Return the description of the plan of a function."""
    compiled = compile(function)
    compiled(*arrays)
    variant, = compiled.variants
    return variant.plan.described


PLANS = {
    "loops": (exp_twice, X),
    "blocks": (lambda x: NP.exp(x * 2.0) + x, np.ones(20_000)),
    "sums in blocks": (lambda x: (x * 2.0 + 1.0).sum(), np.ones(20_000)),
    "rows": (lambda x: NP.exp(x - x.max(axis=1, keepdims=True)), np.ones((200, 100))),
    "product": (lambda x: x @ x.T, np.ones((3, 4))),
    "scan": (lambda xs: scan(lambda c, x: (c + x, c * x), xs[0] * 0.0, xs), np.ones((4, 3))),
    "scan backward": (lambda xs: scan(lambda c, x: (c + x[::-1], c * 1.0), xs[0] * 1.0, xs[:, ::-1], reverse=True),
                      np.ones((4, 3))),
    "map": (lambda xs: map(lambda x: map(NP.exp, x), xs), np.ones((4, 3))),
    "while": (lambda x: while_loop(lambda x: x.sum() < 9.0, lambda x: (x + 1.0,), (x,))[0], X),
    "cond": (lambda x: cond(x.sum() > 0.0, NP.exp, NP.sin, (x,)), X),
    "gather": (lambda x, i: x[i] + 1.0, np.ones((3, 2)), np.array([0, 2])),
    "pick": (lambda x, i, k: x[i, k] + 1.0, np.ones((3, 4)), np.array([0, 2]), np.array([1, -1])),
    "put": (lambda x, i, v: NP.index_put(x, (i, 1), v), np.ones((3, 4)), np.array([0, 2]), np.array([5.0, 7.0])),
    "put_sum": (lambda x, i, v: NP.index_put(x, (i, i), v, accumulate=True), np.ones((3, 3)), np.array([2, 2]),
                np.array([5.0, 7.0])),
    "add_layers": (lambda x, i, v: NP.index_put(x, (i,), v, accumulate=True), X, np.array([2, 2]),
                   np.array([5.0, 7.0])),
    "call": (lambda x: NP.i0(x) * 2.0, X),
    "inverses": (lambda x: NP.linalg_inv(x) * 2.0, np.eye(3) + np.ones((2, 3, 3))),
    "solutions": (lambda x, y: NP.linalg_solve_with(x, y), np.eye(64) * 2, np.ones((64, 2))),
    "triangle": (lambda x, y: NP.linalg_solve_with(x, y, lower=True), np.eye(24) * 2, np.ones(24)),
    "transforms": (lambda x: NP.fft_rfft(x), np.ones((2, 6))),
    "searches": (lambda x, v: NP.searchsorted(x, v), X, np.array([0.5, 7.0])),
    "interpolation": (lambda x, v: NP.interp(v, x, x * x), X, np.array([0.5, 7.0])),
    "sorts": (lambda x: NP.sort(x) * NP.argsort(x), np.array([[3.0, 1.0, 2.0], [7.0, 8.0, 5.0]])),
    "add_products": (lambda x, i, v: NP.index_put(x, (i,), v * x[i], accumulate=True), X, np.array([2, 2]),
                     np.array([5.0, 7.0])),
    "filter": (lambda x, w: ops.scipy.ndimage_convolve(x, w), np.ones((3, 17)), np.array([[1.0, 2.0], [3.0, 4.0]])),
    "choose": (lambda x: NP.where(x > 1.0, x, 0.0), X),
    "views": (lambda x: NP.flip(x) + x[1:2], X),
    "text": (lambda x: NP.concatenate([x, x[::-1]]), np.array(["abc", "d"])),
}
HAS_SVD = hasattr(_umath_linalg, "svd_f")       # NumPy 2.0 names its loops otherwise
if HAS_SVD:
    PLANS["singular values"] = lambda x: NP.linalg_svd(x, False)[1], np.arange(12.0).reshape(2, 3, 2)
DESCRIBED = {name: described(*call) for name, call in PLANS.items()}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_made_of_what_it_says_that_it_was_made_of(name):
    function, *arrays = PLANS[name]
    found = _core.Plan(*DESCRIBED[name]).run(*arrays)
    for one, other in zip(found, tree_leaves(function(*arrays)), strict=True):
        np.testing.assert_array_equal(one, np.asarray(other), strict=True)


# --- plans that are none ---


def changed(name, *places_and_values):
    """Return the description with other values in these places."""
    parts = list(DESCRIBED[name])
    for place, value in zip(places_and_values[::2], places_and_values[1::2], strict=True):
        parts[place] = value
    return parts


def with_step(name, kind, place, value):
    """Return the description with another value in the first step of a kind."""
    steps = list(DESCRIBED[name][5])
    wanted, _, loop = kind.partition("s ")          # "loops put": the first such loop
    i = next(i for i, step in enumerate(steps) if step[0] == wanted and (not loop or step[LOOP][0].startswith(loop)))
    step = list(steps[i])
    step[place] = value(step[place]) if callable(value) else value
    steps[i] = tuple(step)
    return changed(name, 5, tuple(steps))


INPUTS, CONSTANTS, RESULTS, ENTRIES, ARENA, CALLS, THREADS, DONATED = 0, 1, 2, 3, 4, 6, 7, 8
INSIDE, LOOP, BUFFERS, OFFSETS, EXTENTS, STRIDES, SIZES, STEPS, NUMBERS, WORK = range(1, 11)


def with_number(k, value):
    return lambda numbers: (*numbers[:k], value, *numbers[k + 1:])


WRONG = {
    "shape of an input": changed("loops", INPUTS, ((3, FLOAT),)),
    "no dtype of an input": changed("loops", INPUTS, (((3,), None),)),
    "objects go in": changed("loops", INPUTS, (((3,), np.dtype(object)),)),
    "strings with memory go in": changed("loops", INPUTS, (((3,), np.dtypes.StringDType()),)),
    "smaller input": changed("loops", INPUTS, (((2,), FLOAT),)),
    "constant that is strided": changed("loops", CONSTANTS, (X[::2],)),
    "constant that is a list": changed("loops", CONSTANTS, ([1.0],)),
    "constant of objects": changed("loops", CONSTANTS, (np.array([1.0], object),)),
    "no result": changed("loops", RESULTS, ()),
    "result that is nothing": changed("loops", RESULTS, (None,)),
    "result of a hundred axes": changed("loops", RESULTS, (((1,) * 100, FLOAT),)),
    "result of a negative size": changed("loops", RESULTS, (((-3,), FLOAT),)),
    "result of objects": changed("loops", RESULTS, (((3,), np.dtype(object)),)),
    "result of a type": changed("loops", RESULTS, (((3,), float),)),
    "smaller result": changed("loops", RESULTS, (((1,), FLOAT),)),
    "no addresses": changed("loops", ENTRIES, 0),
    "no arena": changed("loops", ARENA, 0),
    "negative arena": changed("loops", ARENA, -1),
    "endless arena": changed("loops", ARENA, 2**62),
    "no threads": changed("loops", THREADS, 0),
    "too many threads": changed("loops", THREADS, 1000),
    "more donated than there is": changed("loops", DONATED, (1,)),
    "donated twice": (((SPEC,)), (), (SPEC, SPEC), 4, 64, (), (), 1, (0, 0)),
    "donated of another dtype": ((((3,), np.dtype("f4")),), (), (SPEC,), 3, 64, (), (), 1, (0,)),
    "donated nothing": changed("loops", DONATED, (None,)),
    "a step that is a list": changed("loops", 5, (list(DESCRIBED["loops"][5][0]),)),
    "a step without a label": with_step("loops", "loop", 11, None),
    "steps that follow": with_step("loops", "loop", INSIDE, 10),
    "a loop with steps": with_step("loops", "loop", INSIDE, 1),
    "no loop": with_step("loops", "loop", LOOP, None),
    "a loop of more operands": with_step("loops", "loop", LOOP, ("ufunc", np.add, (12, 12, 12))),
    "a loop of longer elements": with_step("loops", "loop", LOOP, ("copy", 16)),
    "a loop of objects": with_step("loops", "loop", LOOP, ("ufunc", np.negative, (17, 17))),
    "a gather that is a loop": with_step("loops", "loop", LOOP, ("gather",)),
    "an address beyond the table": with_step("loops", "loop", BUFFERS, with_number(0, 1000)),
    "an address before the table": with_step("loops", "loop", BUFFERS, with_number(0, -5)),
    "an address that nothing sets": changed(
        "loops", 5, with_step("loops", "loop", BUFFERS, with_number(0, 4))[5], ENTRIES, 5),
    "an input that is written to": with_step("loops", "loop", BUFFERS, with_number(1, 1)),
    "a constant that is written to": with_step("loops", "loop", BUFFERS, with_number(1, 2)),
    "an input that a call writes to": changed("call", CALLS, ((print, (), ((1, 0, (3,), (8,), FLOAT),)),)),
    "a move that changes places": with_step("scan", "repeat", NUMBERS, lambda numbers: (
        *numbers[:-2], numbers[-6], numbers[-1])),
    "an offset beyond the array": with_step("loops", "loop", OFFSETS, with_number(0, 10**9)),
    "an offset before the array": with_step("loops", "loop", OFFSETS, with_number(0, -8)),
    "an offset beyond all memory": with_step("loops", "loop", OFFSETS, with_number(0, 2**60)),
    "an offset far before all memory": with_step("loops", "loop", OFFSETS, with_number(0, -(2**62))),
    "a condition beyond all memory": with_step("cond", "choose", NUMBERS, with_number(1, 2**60)),
    "more addresses than memory holds": changed("loops", ENTRIES, 2**61),
    "an array of a call beyond all memory": changed("call", CALLS, (
        (print, ((1, 2**60, (3,), (8,), FLOAT),), (), None, ()),)),
    "a result of a call that repeats an element": changed("call", CALLS, (
        (print, (), ((0, 0, (300,), (0,), FLOAT),), abs, ()),)),
    "rows that are local twice": with_step("blocks", "loop", NUMBERS, with_number(3, 2)),
    "rows beyond all memory": with_step("blocks", "loop", NUMBERS, with_number(1, 2**46)),
    "more elements": with_step("loops", "loop", SIZES, (4,)),
    "no elements": with_step("loops", "loop", SIZES, (0,)),
    "no sizes": with_step("loops", "loop", SIZES, ()),
    "no strides": with_step("loops", "loop", STEPS, ()),
    "long strides": with_step("loops", "loop", STEPS, (16, 8)),
    "endless strides": with_step("loops", "loop", STEPS, (2**62, 2**62)),
    "an axis more": with_step("loops", "loop", EXTENTS, (2,)),
    "numbers in a list": with_step("loops", "loop", STRIDES, []),
    "negative work": with_step("loops", "loop", WORK, -1),
    "a choice without a condition": with_step("loops", "loop", 0, "choose"),
    "blocks without rows": with_step("loops", "loop", 0, "blocks"),
    "a repetition of nothing": with_step("loops", "loop", 0, "repeat"),
    "rows beyond": with_step("blocks", "blocks", NUMBERS, with_number(0, 10**6)),
    "no rows in a block": with_step("blocks", "blocks", NUMBERS, with_number(1, 0)),
    "parts of sums that are too short": with_step("sums in blocks", "blocks", NUMBERS, with_number(1, 64)),
    "memory of threads that is not there": changed(
        "blocks", 5, with_step("blocks", "blocks", NUMBERS, with_number(2, 10**9))[5], THREADS, 2),
    "rows apart": with_step("blocks", "loop", NUMBERS, with_number(1, 16)),
    "rows in a loop that gathers": with_step("blocks", "loop", LOOP, ("gather",)),
    "rows without numbers": with_step("rows", "loop", NUMBERS, ()),
    "products of more columns": with_step("product", "loop", SIZES, with_number(3, 100)),
    "products of nothing": with_step("product", "loop", SIZES, with_number(2, 0)),
    "a step more": with_step("scan", "repeat", NUMBERS, with_number(3, 5)),
    "no step": with_step("scan", "repeat", NUMBERS, with_number(3, 0)),
    "more moves": with_step("scan", "repeat", NUMBERS, with_number(1, 100)),
    "fewer moves than none": with_step("scan", "repeat", NUMBERS, with_number(1, -1)),
    "a place beyond the arena": with_step("scan", "repeat", NUMBERS, with_number(8, 10**6)),
    "a place of an array": with_step("scan", "repeat", NUMBERS, with_number(7, 1)),
    "a while of more steps": with_step("while", "while", NUMBERS, with_number(6, 1000)),
    "a while with a condition elsewhere": with_step("while", "while", NUMBERS, with_number(5, 10**6)),
    "a while that moves": with_step("while", "while", NUMBERS, with_number(1, 1)),
    "a choice in the middle of a step": with_step("cond", "choose", NUMBERS, with_number(2, 1000)),
    "a choice by what is elsewhere": with_step("cond", "choose", NUMBERS, with_number(1, 10**6)),
    "a gather of more layers": with_step("gather", "loop", SIZES, with_number(3, 4)),
    "picks along a longer axis": with_step("pick", "loop", LOOP, lambda loop: (*loop[:2], (2, 4, 32, 4, 8))),
    "picks along more axes": with_step("pick", "loop", LOOP, lambda loop: (*loop[:2], (3, 3, 32, 4, 8, 1, 8))),
    "picks along no axes": with_step("pick", "loop", LOOP, lambda loop: (*loop[:2], ())),
    "picks of longer elements": with_step("pick", "loop", LOOP, lambda loop: ("pick", 16, loop[2])),
    "elements put further apart": with_step("put", "loops put", LOOP, lambda loop: (*loop[:2], (2, 3, 64, 4, 8))),
    "sums of longer elements": with_step("put_sum", "loops put", LOOP, lambda loop: ("put_sum", 15, loop[2])),
    "sums of more layers": with_step("add_layers", "loops add", SIZES, with_number(3, 4)),
    "sums of longer layers": with_step("add_layers", "loops add", LOOP, ("add_layers", 15)),
    "sums of layers that are apart": with_step("add_layers", "loops add", STEPS, with_number(4, 16)),
    "a transform of no elements": with_step("transforms", "loops ufunc", SIZES, (2, 6, 1)),
    "rows that are sorted apart": with_step("sorts", "loops sort", STEPS, (24, 24, 8, 16)),
    "a filter of columns that are apart": with_step("filter", "loops filter", STEPS, (144, 0, 136, 16, -8, 8)),
    "a filter of other weights": with_step("filter", "loops filter", LOOP, lambda loop: (*loop[:2], loop[2][:-1])),
    "a filter beyond its memory": with_step("filter", "loops filter", LOOP, lambda loop: (
        *loop[:2], (*loop[2][:-1], 800))),
    "solutions of no rows": with_step("solutions", "loops solve", SIZES, (1, 0, 2)),
    "an unknown loop over matrices": with_step("inverses", "loops ufunc", LOOP, ("ufunc", np.vecdot, (12, 12, 12))),
    "products of more elements": with_step("add_products", "loops add", SIZES, with_number(3, 4)),
    "products of no elements": with_step("add_products", "loops add", SIZES, with_number(1, 0)),
    "products of longer elements": with_step("add_products", "loops add", LOOP, ("add_products", 15)),
    "a gather of no layers": with_step("gather", "loop", SIZES, with_number(3, 0)),
    "a call of nothing": with_step("call", "call", NUMBERS, (7,)),
    "a call that copies what it does not say": changed("call", CALLS, ((*DESCRIBED["call"][CALLS][0][:4], 1),)),
    "calls that are none": changed("call", CALLS, (None,)),
    "an array of a call beyond its memory": changed("call", CALLS, (
        (print, ((1, 0, (300,), (8,), FLOAT),), (), None, ()),)),
    "an array of a call of a hundred axes": changed("call", CALLS, (
        (print, ((1, 0, (1,) * 100, (8,) * 100, FLOAT),), (), None, ()),)),
    "an array of a call without strides": changed("call", CALLS, ((print, ((1, 0, (3,), (), FLOAT),), (), None, ()),)),
    "an array of a call of objects": changed("call", CALLS, (
        (print, ((1, 0, (3,), (8,), np.dtype(object)),), (), None, ()),)),
    "an array of a call that is a list": changed("call", CALLS, ((print, ([1, 0, (3,), (8,), FLOAT],), (), None, ()),)),
}
if HAS_SVD:
    WRONG["singular values beyond the smaller extent"] = with_step(
        "singular values", "loops ufunc", SIZES, (2, 3, 2, 1))


@together("parts", WRONG.values(), ids=list(WRONG))
def test_what_leaves_its_memory_is_no_plan(parts):
    with pytest.raises((TypeError, ValueError)):
        _core.Plan(*parts)


ENDLESS = 1 << 40


@pytest.mark.parametrize("name", PLANS)
def test_every_number_of_a_plan_by_another(name):
    _function, *arrays = PLANS[name]
    made = 0
    for i, step in enumerate(DESCRIBED[name][5]):
        for place in range(BUFFERS, WORK):
            for k, number in enumerate(step[place]):
                for other in (number + 1, number - 1, number + 64, 0, -number, ENDLESS):
                    steps = list(DESCRIBED[name][5])
                    steps[i] = (*step[:place], with_number(k, other)(step[place]), *step[place + 1:])
                    try:
                        plan = _core.Plan(*changed(name, 5, tuple(steps)))
                    except (TypeError, ValueError):
                        continue
                    made += 1
                    if other != ENDLESS and name != "while":
                        try_to_run(plan, arrays)
    assert made


def try_to_run(plan, arrays):
    with np.errstate(all="ignore"), contextlib.suppress(IndexError, ValueError):
        plan.run(*arrays)


def test_has_loop():
    assert _core.has_loop(("copy", 12))
    assert _core.has_loop(("ufunc", np.add, (12, 12, 12)))
    assert _core.has_loop(("sum_part", 12))
    assert _core.has_loop(("add_parts", 11, 128))
    for loop in (("sum_part", 7), ("add_parts", 7, 128), ("add_parts", 12, 127)):
        assert not _core.has_loop(loop)
    for loop in (("copy", -1), ("copy", 2**40), ("ufunc", np.add, (17, 17, 17)), ("ufunc", len, (1,)), ("cast", 99, 1)):
        assert not _core.has_loop(loop)


# --- variants ---

ARRAY = "array", (3,), FLOAT


def call_variant(n, guard, output, *args):
    function = _core.CompiledFunction()
    function.add_variant(_core.Variant(_core.Plan(*DESCRIBED["loops"]), n, guard, output))
    return function(*args)


@pytest.mark.parametrize(("n", "guard", "output"), [
    pytest.param(5, (ARRAY,), None, id="more arguments"),
    pytest.param(-1, (ARRAY,), None, id="fewer arguments than none"),
    pytest.param(1, (("tuple", 9), ARRAY), None, id="more items"),
    pytest.param(1, (("list", -1), ARRAY), None, id="fewer items than none"),
    pytest.param(1, (ARRAY, ("value", 1)), None, id="what no argument is"),
    pytest.param(2, (("value",), ARRAY), None, id="a value that is missing"),
    pytest.param(1, (("dict", ["a"]), ARRAY), None, id="keys in a list"),
    pytest.param(1, (("dict", 1), ARRAY), None, id="one key"),
    pytest.param(1, (list(ARRAY),), None, id="an item that is a list"),
    pytest.param(1, (("array", (3,)),), None, id="no dtype"),
    pytest.param(1, (("array", (3,), 1),), None, id="a number as dtype"),
    pytest.param(1, (("array", (300,), FLOAT),), None, id="another shape than the plan's"),
    pytest.param(1, (("array", (3,), np.dtype(object)),), None, id="another dtype than the plan's"),
    pytest.param(1, (("bogus", 1),), None, id="another kind"),
    pytest.param(1, (("number", float),), None, id="a number without a sign"),
    pytest.param(1, (("number", complex, 1),), None, id="a complex number"),
    pytest.param(1, (ARRAY,), (), id="an output of nothing"),
    pytest.param(1, (ARRAY,), (("tuple", 3), ("array",)), id="an output of more items"),
    pytest.param(1, (ARRAY,), (("tuple", 2), ("array",), ("array",)), id="an output of more arrays"),
    pytest.param(1, (ARRAY,), (("array",), ("array",)), id="two outputs"),
    pytest.param(1, (ARRAY,), (("dict", None), ("array",)), id="an output without keys"),
    pytest.param(1, (ARRAY,), (None,), id="an output of None"),
    pytest.param(1, (ARRAY,), 3, id="an output that is no function"),
])
def test_what_does_not_fit_its_plan_is_no_variant(n, guard, output):
    with pytest.raises((TypeError, ValueError)):
        call_variant(n, guard, output, *[X] * max(n, 0))


def test_variants_cannot_be_changed_from_outside():
    compiled = compile(exp_twice)
    compiled(X)
    assert type(compiled.variants) is tuple
    with pytest.raises(TypeError):
        compiled.add_variant(None)
    with pytest.raises(AttributeError):
        compiled.variants = [None]


ARGUMENTS = {
    "shapes": lambda i: np.ones(i + 1),
    "Tensors": lambda i: Tensor(np.ones((2, i))),
    "names": lambda i: {f"x{i}": np.ones(2), "n": "1"},
    "numbers": lambda i: (np.ones(2), i * 0.5),
    "texts": lambda i: (np.ones(2), f"{i}"),
    "lists": lambda i: [np.ones(2)] * (i + 1),
    "nested": lambda i: ((None, np.float64(1)), [np.ones(2)] * (i // 2 + 1), {"b": i % 2}),
}


def total(tree):
    arrays = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
    numbers = [float(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, (int, float, str))]
    return sum([ops.np.sum(array) for array in arrays]) + sum(numbers)


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_each_of_many_variants_is_found(kind):
    compiled = compile(total)
    calls = [ARGUMENTS[kind](i) for i in range(40)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        results = [compiled(call) for call in calls]
    for call, result in zip(calls * 2, results * 2, strict=True):
        np.testing.assert_array_equal(compiled(call), result)
    assert compiled.hits == 80
    compiled.remove_variant(compiled.variants[3])
    compiled(calls[7])
    compiled.clear_variants()
    assert compiled.variants == ()
    np.testing.assert_array_equal(compiled(calls[5]), results[5])


class TakesOut:
    """A key that looks like "b", and takes away the first array while it is compared."""

    def __init__(self, arguments):
        self.arguments = arguments

    def __hash__(self):
        return hash("b")

    def __eq__(self, other):
        if other == "b":
            self.arguments["a"] = None
        return other == "b" or other is self


def test_what_is_taken_out_of_the_arguments_while_they_are_compared():
    n = 1_000_000       # the memory of so large an array goes back to the system
    compiled = compile(lambda given: given["a"] + given["b"])
    compiled({"a": np.ones(n), "b": np.ones(n)})
    arguments = {"a": np.ones(n)}
    arguments[TakesOut(arguments)] = np.ones(n)
    assert compiled(arguments).sum() == 2.0 * n
    assert compiled.hits == 0       # a key of another type is not "b" to the guard


# --- signals and threads ---


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_an_endless_loop_lets_signals_and_other_threads_through():
    compiled = compile(lambda x: while_loop(lambda x: x[0] < 1e300, lambda x: (x * 1.0,), (x,))[0])
    compiled(np.full(3, 1e301))
    counts, rings, over = [], [], threading.Event()

    def count():
        while not over.is_set():
            counts.append(None)
            time.sleep(1e-4)

    def ring(*_):
        rings.append(None)
        if len(counts) > 30 or len(rings) > 600:
            raise TimeoutError

    before, thread = signal.signal(signal.SIGALRM, ring), threading.Thread(target=count)
    thread.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with pytest.raises(TimeoutError):
            compiled(X)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        over.set()
        thread.join()
    assert len(counts) > 30     # the other thread ran while the loop did
    assert compiled(np.full(3, 1e301)).tolist() == [1e301] * 3


def root(x):
    if x < 0:
        raise ValueError("a negative number")
    return x ** 0.5


def inverse(x):
    if x == 0:
        raise ZeroDivisionError("a zero")
    return 1 / x


@pytest.fixture(scope="module")
def raising():
    """Provide universal functions whose loops raise."""
    vectorize = pytest.importorskip("numba").vectorize(["float64(float64)"])
    return vectorize(root).ufunc, vectorize(inverse).ufunc


@pytest.mark.parametrize(("negative", "zero", "error"), [
    (None, 900, ZeroDivisionError), (900, None, ValueError), (300, 900, ValueError), (900, 300, ZeroDivisionError),
    (10, 900, ValueError), (900, 10, ZeroDivisionError), (None, None, None)])
def test_of_several_threads_the_first_in_the_order_of_rows_tells_its_exception(raising, negative, zero, error):
    compiled = compile(lambda x: NP.exp(NP.sqrt(x)), threads=4)
    x = np.ones(1_000_000)
    compiled(x)
    variant, = compiled.variants
    parts = list(variant.plan.described)
    numbers, = [step[9] for step in parts[5] if step[0] == "blocks"]
    assert numbers[4] == 4
    ufuncs = dict(zip((np.sqrt, np.exp), raising, strict=True))
    parts[5] = tuple([step if step[LOOP] is None else (*step[:LOOP], (
        "ufunc", ufuncs[step[LOOP][1]], step[LOOP][2]), *step[LOOP + 1:]) for step in parts[5]])
    plan = _core.Plan(*parts)
    for position, value in (negative, -1.0), (zero, 0.0):
        if position is not None:
            x[position * 1000] = value
    with contextlib.nullcontext() if error is None else pytest.raises(error):
        result, = plan.run(x)
        np.testing.assert_array_equal(result, x)


@pytest.mark.parametrize("n", [4, 1000])
def test_threads_of_a_short_run_raise_without_waiting_for_the_gil(raising, n):
    spec = (n,), FLOAT
    numbers = n, n // 4, 0, 0, 4
    plan = _core.Plan(
        (spec,), (), (spec,), 3, 0, (
            ("blocks", 1, None, (), (), (), (), (), (), numbers, n, ("", None)),
            ("loop", 0, ("ufunc", raising[1], (12, 12)), (1, 2), (0, 0), (), (), (n,), (8, 8), (1, 8, 8, 0, 0, 0, 0), n,
             ("inverse", None))), (), 4, ())
    assert plan.run(np.full(n, 2.0))[0].tolist() == [0.5] * n
    for position in range(0, n, n // 4):
        x = np.ones(n)
        x[position] = 0
        with pytest.raises(ZeroDivisionError, match="a zero"):
            plan.run(x)


# --- kernels in Python among the steps ---


@pytest.fixture
def operators():
    with Library("planned", "DEF") as lib:
        lib.define("f(Tensor x) -> Tensor")
        lib.impl("f", NP.empty_like.default, "Meta")
        yield lib


def test_a_kernel_may_call_the_function_that_calls_it(operators):
    compiled = compile(lambda x: ops.planned.f(x * 1.0) * 2.0)
    calls = []

    def kernel(x):
        calls.append(x)
        return compiled(x + 1.0) if len(calls) < 4 else x

    operators.impl("f", kernel, "CPU")
    assert compiled(X).tolist() == [48.0, 64.0, 80.0]
    assert [call.tolist() for call in calls] == [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [3.0, 4.0, 5.0]]


def test_what_a_kernel_keeps_stays_as_it_was(operators):
    kept = []
    operators.impl("f", lambda x: (kept.append(x), x * 1.0)[1], "CPU")
    compiled = compile(lambda x: ops.planned.f(x * 2.0) * 3.0)
    for i in range(4):
        compiled(X + i)
    assert [x.tolist() for x in kept] == [[2.0 * (k + i) for k in range(3)] for i in range(4)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError, SystemExit, RecursionError])
def test_an_exception_of_a_kernel_leaves_nothing_behind(operators, error):
    def kernel(x):
        if x[0] < 0.0:
            raise error
        return x

    operators.impl("f", kernel, "CPU")
    compiled = compile(lambda x: ops.planned.f(x * 2.0) * 3.0)
    x = -np.ones(3)
    held, state = sys.getrefcount(x), _core.current_state()
    for _ in range(3):
        with pytest.raises(error):
            compiled(x)
    gc.collect()
    assert sys.getrefcount(x) == held
    assert _core.current_state() is state
    assert compiled(X).tolist() == [0.0, 6.0, 12.0]
