"""Bodies that run again see the variables of their first run. Oracle: the same program with plain operators."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, ops
from pydispatch.exceptions import AutogradError, DataDependentError, FunctionalizationError, VmapError
from pydispatch.higher_order import associative_scan, cond, map, scan, while_loop
from pydispatch.tracing import make_fx
from tests.together import together

X = np.array([0.5, 1.1, -0.4])
FACTORS = (1.0, 2.0, 3.0)
factor = 1.0


def plain(x):
    for k in FACTORS:
        x = x * k
    return (x * x).sum()


def with_checkpoint(x):
    for k in FACTORS:
        x = autograd.checkpoint(lambda x: x * k, x)      # noqa: B023  the variable of this turn
    return (x * x).sum()


def with_cond(x):
    for k in FACTORS:
        x = cond(x[1] > -9, lambda x: x * k, lambda x: -x, (x,))    # noqa: B023
    return (x * x).sum()


def with_scan(x):
    for k in FACTORS:
        x = scan(lambda c, v: (c * k * v, None), x, np.ones((1, 3)))[0]     # noqa: B023
    return (x * x).sum()


def with_while_loop(x):
    for k in FACTORS:
        x = while_loop(lambda i, x: i < 1, lambda i, x: (i + 1, x * k), (0, x))[1]      # noqa: B023
    return (x * x).sum()


def with_map(x):
    for k in FACTORS:
        x = map(lambda v: v * k, x)
    return (x * x).sum()


def with_a_helper(x):
    for k in FACTORS:
        def scaled(x):
            return x * k    # noqa: B023
        x = autograd.checkpoint(lambda x: scaled(x), x)
    return (x * x).sum()


def with_a_global(x):
    global factor
    for factor in FACTORS:
        x = cond(x[1] > -9, lambda x: x * factor, lambda x: -x, (x,))    # noqa: B023
    return (x * x).sum()


def with_a_global_function(x):
    global scaled
    for k in FACTORS:
        def scaled(x, k=k):
            return x * k
        x = autograd.checkpoint(lambda x: scaled(x), x)
    return (x * x).sum()


PROGRAMS = {f.__name__: f for f in (with_checkpoint, with_cond, with_scan, with_while_loop, with_map, with_a_helper,
                                    with_a_global, with_a_global_function)}
WAYS: dict[str, Callable[..., Any]] = {
    "grad": lambda f: func.grad(f)(X),
    "hessian": lambda f: func.hessian(f)(X),
    "jacrev of grad": lambda f: func.jacrev(func.grad(f))(X),
    "vmap of grad": lambda f: func.vmap(func.grad(f))(np.stack([X, 2 * X])),
    "linearize": lambda f: func.linearize(f, X)[1](np.ones(3)),
    "vjp": lambda f: func.vjp(f, X)[1](np.float64(1.0)),
    "compiled grad": lambda f: compile(func.grad(f))(X),
    "compiled hessian": lambda f: compile(func.hessian(f))(X),
}


@pytest.mark.parametrize("name", PROGRAMS)
@together("way", WAYS)
def test_a_body_in_a_loop_sees_the_variables_of_its_turn(name, way):
    np.testing.assert_allclose(WAYS[way](PROGRAMS[name]), WAYS[way](plain), rtol=1e-12)


def test_layers_in_a_loop_get_their_gradients():
    weights = [k * np.eye(3) for k in FACTORS]

    def net(weights, call):
        h = X
        for w in weights:
            h = call(lambda h: ops.np.tanh(w @ h), h)       # noqa: B023
        return h.sum()

    found = func.grad(lambda weights: net(weights, autograd.checkpoint))(weights)
    expected = func.grad(lambda weights: net(weights, lambda f, h: f(h)))(weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_variables_that_a_body_binds_are_those_of_the_program():
    calls = 0

    def body(c, v):
        nonlocal calls
        calls += 1
        return c * v, None

    scan(body, X, np.ones((2, 3)))
    assert calls


def test_a_body_fills_an_array_of_its_own():
    def filled(x):
        y = np.zeros(3)
        y[:] = x
        return y

    np.testing.assert_array_equal(map(filled, np.ones((2, 3))), np.ones((2, 3)))
    np.testing.assert_array_equal(cond(np.array(True), filled, filled, (X,)), X)


# --- what a body changes itself: one run, as the program sees it. (the body, how many runs it has counted) ---

runs = 0


def counting_in_a_key():
    held = {"runs": 0}

    def body(x):
        held["runs"] += 1
        return (x * held["runs"]).sum()

    return body, lambda: held["runs"]


def appending_to_a_list():
    held = []

    def body(x):
        held.append(1)
        return x.sum() * len(held)

    return body, lambda: len(held)


def popping_from_a_list():
    held = [3, 2, 1]

    def body(x):
        return x.sum() * held.pop()

    return body, lambda: 3 - len(held)


def binding_a_variable():
    runs = 0

    def body(x):
        nonlocal runs
        runs += 1
        return x.sum() * runs

    return body, lambda: runs


def binding_a_variable_in_a_helper():
    runs = 0

    def count():
        nonlocal runs
        runs += 1

    def body(x):
        count()
        return x.sum() * runs

    return body, lambda: runs


def binding_a_variable_without_a_value():
    def body(x):
        nonlocal runs
        try:
            runs += 1
        except NameError:
            runs = 1
        return x.sum() * runs

    runs = 0
    del runs
    return body, lambda: runs       # noqa: F821  the body binds it


def binding_a_global():
    global runs
    runs = 0

    def body(x):
        global runs
        runs += 1
        return x.sum() * runs

    return body, lambda: runs


def count_globally():
    global runs
    runs += 1


def binding_a_global_in_a_helper():
    global runs
    runs = 0

    def body(x):
        count_globally()
        return x.sum() * runs

    return body, lambda: runs


def binding_a_new_global():
    globals().pop("made", None)

    def body(x):
        global made
        made = globals().get("made", 0) + 1
        return x.sum() * made

    return body, lambda: made


def counting_in_itself():
    def body(x):
        body.runs += 1
        return x.sum() * body.runs

    body.runs = 0
    return body, lambda: body.runs


def counting_in_a_class():
    class Counter:
        runs = 0

    def body(x):
        Counter.runs += 1
        return x.sum() * Counter.runs

    return body, lambda: Counter.runs


def counting_in_the_class_of_an_object():
    class Counter:
        runs = 0

    class Body(Counter):
        def __call__(self, x):
            Counter.runs += 1
            return x.sum() * self.runs

    return Body(), lambda: Counter.runs


def counting_in_a_slot():
    class Counter:
        __slots__ = ("runs",)

    held = Counter()
    held.runs = 0

    def body(x):
        held.runs += 1
        return x.sum() * held.runs

    return body, lambda: held.runs


def filling_an_empty_slot():
    class Counter:
        __slots__ = ("runs",)

    held = Counter()

    def body(x):
        held.runs = getattr(held, "runs", 0) + 1
        return x.sum() * held.runs

    return body, lambda: held.runs


def binding_an_attribute_to_a_new_array():
    class State:
        pass

    held = State()
    held.runs = pnp.zeros(3)

    def body(x):
        held.runs = held.runs + 1
        return (x * held.runs).sum()

    return body, lambda: held.runs[0]


def writing_to_overlapping_views():
    both = np.zeros((2, 3))
    row = both[0]

    def body(x):
        both[...] += 1
        return (x * row).sum()

    return body, lambda: both.mean()


CHANGES = {f.__name__: f for f in (
    counting_in_a_key, appending_to_a_list, popping_from_a_list, binding_a_variable, binding_a_variable_in_a_helper,
    binding_a_variable_without_a_value, binding_a_global, binding_a_global_in_a_helper, binding_a_new_global,
    counting_in_itself, counting_in_a_class, counting_in_the_class_of_an_object, counting_in_a_slot,
    filling_an_empty_slot, binding_an_attribute_to_a_new_array, writing_to_overlapping_views)}
ONCE = {
    "cond": lambda x, body: cond(np.array(True), body, lambda x: x.sum() * 0.0, (x,)),
    "cond of x": lambda x, body: cond(x[0] > 0, body, lambda x: x.sum() * 0.0, (x,)),
    "checkpoint": lambda x, body: autograd.checkpoint(body, x),
    "nested": lambda x, body: autograd.checkpoint(lambda x: cond(x[0] > 0, body, lambda x: x.sum() * 0.0, (x,)), x),
    "one step": lambda x, body: scan(lambda c, _: (c + body(x), None), 0.0, length=1)[0],
}


def on_the_tape(f):
    x = Tensor(X.copy(), requires_grad=True)
    y = f(x)
    y.backward()
    return y.detach(), x.grad


SUM, ONES = X.sum(), np.ones(3)
SEEN: dict[str, tuple[Callable[..., Any], Any]] = {      # what it computes for the sum of X
    "value": (lambda f: [f(X)], [SUM]),
    "value_and_grad": (lambda f: func.value_and_grad(f)(X), (SUM, ONES)),
    "tape": (on_the_tape, (SUM, ONES)),
    "vmap": (lambda f: func.vmap(f)(X[None]), [SUM]),
    "vmap of value_and_grad": (lambda f: func.vmap(func.value_and_grad(f))(X[None]), ([SUM], [ONES])),
    "jvp": (lambda f: func.jvp(f, (X,), (ONES,)), (SUM, 3.0)),
    "jacfwd": (lambda f: [func.jacfwd(f)(X)], [ONES]),
    "jacrev": (lambda f: [func.jacrev(f)(X)], [ONES]),
    "hessian": (lambda f: [func.hessian(f)(X)], [np.zeros((3, 3))]),
    "linearize": (lambda f: (lambda y, push: (y, push(ONES), push(ONES)))(*func.linearize(f, X)), (SUM, 3.0, 3.0)),
    "vjp": (lambda f: (lambda y, pull: (y, *pull(1.0), *pull(1.0)))(*func.vjp(f, X)), (SUM, ONES, ONES)),
    "functionalize": (lambda f: [func.functionalize(f)(X)], [SUM]),
    "compile": (lambda f: [compile(f)(X)], [SUM]),
    "compiled value_and_grad": (lambda f: compile(func.value_and_grad(f))(X), (SUM, ONES)),
    "make_fx": (lambda f: [make_fx(f)(X)(X)], [SUM]),
}
QUICK = ("value", "value_and_grad", "tape", "vmap", "jacfwd", "linearize", "compile")
SLOW = [way if way in QUICK else pytest.param(way, marks=pytest.mark.slow) for way in SEEN]


@pytest.mark.parametrize("way", SLOW)
@pytest.mark.parametrize("name", ONCE)
@together("change", CHANGES)
def test_what_a_body_changes_is_changed_once(name, way, change):
    body, count = CHANGES[change]()
    run, expected = SEEN[way]
    for value, one in zip(run(lambda x: ONCE[name](x, body)), expected, strict=True):
        np.testing.assert_allclose(np.asarray(value), one, rtol=1e-12)
    assert count() == 1


@pytest.mark.parametrize("way", SLOW)
@pytest.mark.parametrize("name", ONCE)
@together("change", CHANGES)
def test_what_a_body_changes_in_the_function_is_changed_once(name, way, change):
    run, expected = SEEN[way]
    for value, one in zip(run(lambda x: ONCE[name](x, CHANGES[change]()[0])), expected, strict=True):
        np.testing.assert_allclose(np.asarray(value), one, rtol=1e-12)


# --- what changes from step to step ---

LOOPS = {
    "scan": lambda body: scan(lambda c, _: (c + body(), None), 0.0, length=3)[0],
    "map": lambda body: map(lambda c: c + body(), np.zeros(3)).sum(),
    "while_loop": lambda body: while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c + body()), (0, 0.0))[1],
    "within another": lambda body: scan(
        lambda c, _: (scan(lambda c, _: (c + body(), None), c, length=3)[0], None), 0.0, length=1)[0],
}


@pytest.mark.parametrize("way", SLOW)
@pytest.mark.parametrize("name", LOOPS)
@together("change", ["counting_in_a_key", "popping_from_a_list", "binding_a_variable", "binding_a_variable_in_a_helper",
                     "binding_a_global", "binding_a_global_in_a_helper", "counting_in_itself", "counting_in_a_class",
                     "counting_in_the_class_of_an_object", "counting_in_a_slot"])
def test_what_changes_from_step_to_step_is_right_or_refused(name, way, change):
    def f(x):
        body, _ = CHANGES[change]()
        return LOOPS[name](lambda: body(x))

    run, expected = SEEN[way]
    try:
        found = run(f)
    except FunctionalizationError as error:
        if way in ("value", "vmap", "jvp", "jacfwd", "functionalize"):      # one run of the loop
            raise
        assert "in each step, but when the loop runs again" in str(error)        # noqa: PT017
        return
    for value, one in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(value), 6 * np.asarray(one), rtol=1e-12)


REPLACING = {
    "counting_in_a_key": "the key 'runs' of a dict", "popping_from_a_list": "element 2 of a list",
    "binding_a_variable": "the variable 'runs'", "binding_a_global": "the global variable 'runs'",
    "counting_in_itself": "the attribute 'runs' of body", "counting_in_a_class": "the attribute 'runs' of Counter",
    "counting_in_a_slot": "the attribute 'runs' of Counter",
    "binding_an_attribute_to_a_new_array": "the attribute 'runs' of State",
    "writing_to_overlapping_views": r"elements of an array of shape \(2, 3\)",
}


def jacobian_of_two(f):
    """Return the Jacobian of two results, whose batch of gradients runs the steps again, unlike the one of `f`."""
    return func.jacrev(lambda x: ops.np.stack([f(x)] * 2))


@pytest.mark.parametrize(("change", "what"), REPLACING.items(), ids=REPLACING)
def test_the_error_names_what_changes(change, what):
    def f(x):
        body, _ = CHANGES[change]()
        return LOOPS["scan"](lambda: body(x))

    with pytest.raises(FunctionalizationError, match=f"scan: combine replaces {what} in each step"):
        jacobian_of_two(f)(X)


def test_a_state_that_needs_data_is_refused():
    def f(x):
        held = {"runs": 0}

        def body(c, _):
            held["runs"] += 1
            if c > 1e9:
                c = c * 2
            return c + (x * held["runs"]).sum(), None

        return scan(body, 0.0, length=3)[0]

    with pytest.raises(FunctionalizationError, match="make it a part of init: scan"):
        func.value_and_grad(f)(X)


def test_a_state_that_returns_to_its_start_is_refused():
    def f(x):
        held = {"sign": 1}

        def body(c, _):
            held["sign"] *= -1
            return c + (x * held["sign"] * c).sum(), None

        return scan(body, 1.0, length=4)[0]

    np.testing.assert_allclose(func.grad(f)(X), func.jacfwd(f)(X), rtol=1e-12)
    for transform in (jacobian_of_two, compile):
        with pytest.raises(FunctionalizationError, match="the key 'sign'"):
            transform(f)(X)


def test_combine_of_associative_scan_is_refused_if_it_counts():
    def f(x):
        body, _ = counting_in_a_key()
        return associative_scan(lambda a, b: a + b + body(x), np.zeros(4))[-1]

    with pytest.raises(FunctionalizationError, match="associative_scan: combine replaces the key 'runs'"):
        func.grad(f)(X)


def test_caches_and_records_of_a_loop_go_on_working():
    def f(x):
        cache, records = {}, []

        def body(c, _):
            records.append(None)
            cache.setdefault("weights", np.arange(3.0))
            return c * pnp.sin(x * cache["weights"]), None

        return scan(body, x, length=3)[0].sum()

    expected = func.jacfwd(f)(X)
    for transform in (func.grad, func.jacrev, lambda f: compile(func.grad(f))):
        np.testing.assert_allclose(transform(f)(X), expected, rtol=1e-12)


# --- a cache that the first step fills ---


def filling(kind, fresh, found):
    """Return a function that computes a value once, and keeps it in a cache of this kind."""
    cache: Any = {"dict": {}, "list": [], "attribute": found}[kind]

    def factor():
        if kind == "attribute":
            if not hasattr(cache, "kept"):
                cache.kept = fresh()
            return cache.kept
        if not cache:
            if kind == "dict":
                cache["kept"] = (fresh(),)
            else:
                cache.append(fresh())
        return cache["kept"][0] if kind == "dict" else cache[0]

    return factor


def scan_with_a_cache(kind):
    def f(x):
        def step(c, v):
            return c + (factor() * v).sum(), None

        factor = filling(kind, lambda: pnp.sin(x), step)
        return scan(step, 0.0, x)[0]

    return f


def map_with_a_cache(kind):
    def f(x):
        def body(v):
            return (factor() * v).sum()

        factor = filling(kind, lambda: pnp.sin(x), body)
        return map(body, x).sum()

    return f


def while_loop_with_a_cache(kind):
    def f(x):
        def body(i, c):
            return i + 1, c + (factor() * x[i]).sum()

        factor = filling(kind, lambda: pnp.sin(x), body)
        return while_loop(lambda i, c: i < 3, body, (0, 0.0))[1]

    return f


FORWARD = {
    "jvp": lambda f: func.jvp(f, (X,), (np.eye(3)[0],))[1],
    "jacfwd": lambda f: func.jacfwd(f)(X)[0],
    "jacfwd of jacfwd": lambda f: func.jacfwd(func.jacfwd(f))(X)[0],
}


@pytest.mark.parametrize("way", FORWARD.values(), ids=FORWARD)
@pytest.mark.parametrize("kind", ["dict", "list", "attribute"])
@pytest.mark.parametrize("loop", [scan_with_a_cache, map_with_a_cache, while_loop_with_a_cache])
def test_a_value_that_the_first_step_keeps_is_refused_in_forward_mode(loop, kind, way):
    f = loop(kind)
    np.testing.assert_allclose(f(X), np.sin(X).sum() * X.sum())
    np.testing.assert_allclose(func.grad(f)(X), np.cos(X) * X.sum() + np.sin(X).sum())
    with pytest.raises(FunctionalizationError, match=r"keeps a value of a step in .*\n.*before the loop"):
        way(f)


def test_a_cache_of_numbers_is_none_of_the_loops_business():
    cache: dict[str, Any] = {}

    def step(c, v):
        cache.setdefault("kept", np.arange(3.0))
        return c + (cache["kept"] * v).sum(), None

    np.testing.assert_allclose(func.jacfwd(lambda x: scan(step, 0.0, x)[0])(X), np.full(3, 3.0))


# --- what a step adds and later steps find: the loop is right, or refused where it runs again ---

SLICES = np.array([[0.5, 1.1, -0.4], [0.3, 0.2, 0.9], [1.3, -0.7, 0.1]])


def caching(row, cache):
    """Keep a cache that the first step fills from its own slice."""
    if "kept" not in cache:
        cache["kept"] = pnp.sin(row)
    return cache["kept"] * row


def caching_deep(row, cache):
    if "kept" not in cache:
        cache["kept"] = [{"value": pnp.sin(row)}]
    return cache["kept"][0]["value"] * row


def flagging(row, cache):
    """Compute something else in later steps, though nothing is kept but a flag."""
    is_first, cache["started"] = "started" not in cache, True
    return row * (1.0 if is_first else pnp.cos(row))


def recording(row, cache):
    records = cache.setdefault("records", [])
    records.append(None)
    return row * len(records)


def differing_late(row, cache):
    """Compute something else from the third step on."""
    records = cache.setdefault("records", [])
    records.append(None)
    return row * (1.0 if len(records) < 3 else pnp.cos(row))


def caching_constants(row, cache):
    cache.setdefault("constant", np.arange(3.0))
    return row * pnp.cos(cache["constant"] * row)


ADDING = {f.__name__: f for f in (caching, caching_deep, flagging, recording, differing_late, caching_constants)}


def by_hand(body):
    def f(x):
        cache = {}
        return sum((body(x[i], cache) * (i + 1)).sum() for i in range(3))

    return f


BY_LOOP = {
    "scan": lambda body, cache, x: scan(
        lambda c, v: (c + (body(v[0], cache) * v[1]).sum(), None), 0.0, (x, np.arange(1.0, 4.0)))[0],
    "map": lambda body, cache, x: map(lambda v: (body(v[0], cache) * v[1]).sum(), (x, np.arange(1.0, 4.0))).sum(),
    "while_loop": lambda body, cache, x: while_loop(
        lambda i, c: i < 3, lambda i, c: (i + 1, c + (body(x[i], cache) * (i + 1)).sum()), (0, 0.0))[1],
}
RUNNING_AGAIN: dict[str, Callable[..., Any]] = {
    "value": lambda f: f(SLICES),
    "grad": lambda f: func.grad(f)(SLICES),
    "tape": lambda f: on_the_tape_of(f, SLICES),
    "vjp": lambda f: func.vjp(f, SLICES)[1](1.0)[0],
    "jvp": lambda f: func.jvp(f, (SLICES,), (SLICES,))[1],
    "jacrev": lambda f: func.jacrev(f)(SLICES),
    "hessian": lambda f: func.hessian(f)(SLICES),
    "linearize": lambda f: func.linearize(f, SLICES)[1](SLICES),
    "grad of grad": lambda f: func.grad(lambda x: (func.grad(f)(x) ** 2).sum())(SLICES),
    "compile": lambda f: compile(f)(SLICES),
    "compiled grad": lambda f: compile(func.grad(f))(SLICES),
    "make_fx": lambda f: make_fx(f)(2 * SLICES)(SLICES),
    "vmap": lambda f: func.vmap(f)(SLICES[None])[0],
    "vmap of grad": lambda f: func.vmap(func.grad(f))(SLICES[None])[0],
    "functionalize": lambda f: func.functionalize(f)(SLICES),
}


def on_the_tape_of(f, value):
    x = Tensor(value.copy(), requires_grad=True)
    f(x).backward()
    return x.grad.array


@pytest.mark.parametrize("name", ADDING)
@pytest.mark.parametrize("loop", BY_LOOP)
@together("way", RUNNING_AGAIN)
def test_a_step_that_adds_something_is_right_or_refused(loop, name, way):
    body, run = ADDING[name], RUNNING_AGAIN[way]
    try:
        found = run(lambda x: BY_LOOP[loop](body, {}, x))
    except (FunctionalizationError, VmapError, AutogradError) as error:
        assert name != "caching_constants"
        assert way not in ("value", "grad", "tape")
        assert "in a step" in str(error) or "value of" in str(error)                        # noqa: PT017
        return
    np.testing.assert_allclose(found, run(by_hand(body)), rtol=1e-10)


def test_the_error_names_what_a_step_adds():
    with pytest.raises(FunctionalizationError, match=(
            r"map: f adds the key 'kept' of a dict in a step, and later(.|\n)*before the loop, or carry it: scan\(")):
        jacobian_of_two(lambda x: BY_LOOP["map"](caching, {}, x))(SLICES)


def test_records_of_a_loop_whose_length_depends_on_data():
    def f(x):
        records = []

        def body(c):
            records.append(None)
            return c * x * 1.5

        return while_loop(lambda c: (c < 50).all(), body, (x * x,))[0].sum()

    start = np.array([2.0, 3.0])
    step = 1e-6 * np.eye(2)
    expected = [(f(start + e) - f(start - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(func.jacrev(f)(start), expected, rtol=1e-6)


# --- values that a body keeps, and that the program uses after it ---


def keep(held, x):
    held.append(pnp.sin(x))
    held.append(np.arange(1.0, 4.0) if np.ndim(x) else 1.5)
    return x * 2


KEEPING = {
    "map": lambda held, x: map(lambda v: keep(held, v), x),
    "scan": lambda held, x: scan(lambda c, v: (c + keep(held, v), None), 0.0, x),
    "while_loop": lambda held, x: while_loop(lambda i, c: i < 1, lambda i, c: (i + 1, keep(held, c)), (0, x)),
    "cond": lambda held, x: cond(x[0] > -9, lambda x: keep(held, x), lambda x: x * 1.0, (x,)),
    "cond, not taken": lambda held, x: cond(x[0] < -9, lambda x: x * len(held), lambda x: keep(held, x), (x,)),
    "checkpoint": lambda held, x: autograd.checkpoint(lambda x: keep(held, x), x),
    "nested": lambda held, x: autograd.checkpoint(
        lambda x: cond(x[0] > -9, lambda x: keep(held, x), lambda x: x * 1.0, (x,)), x),
    "captured": lambda held, x: map(lambda v: (keep(held, x), v)[1], np.ones(2)),
}


def kept_by(name):
    def f(x):
        held = []
        KEEPING[name](held, x)
        return held[-2].sum()       # of the last step

    return f


AFTERWARDS = {way: run for way, run in SEEN.items() if way not in ("vmap", "vmap of value_and_grad", "functionalize")}


@pytest.mark.parametrize("name", KEEPING)
@together("way", AFTERWARDS)
def test_a_kept_value_has_its_gradient_or_is_refused(name, way):
    run = AFTERWARDS[way][0]
    try:
        found = run(kept_by(name))
    except (AutogradError, DataDependentError, FunctionalizationError, VmapError) as error:
        assert way != "value"
        named = "keeps a value|adds element|FakeTensor|a value of cond: .*, which no longer runs"
        is_named = re.search(named, str(error))
        assert is_named
        return
    for value, one in zip(found, run(lambda x: pnp.sin(x[-1:] if name in ("map", "scan") else x).sum()), strict=True):
        np.testing.assert_allclose(np.asarray(value), np.asarray(one), rtol=1e-12)


@pytest.mark.parametrize("name", KEEPING)
def test_a_kept_value_may_be_looked_at(name):
    # Records of a loop, and constants, are no part of the result.
    held = []

    def f(x):
        return (x * x).sum() + (KEEPING[name](held, x), 0.0)[1] + (held[-1] * x).sum()

    np.testing.assert_allclose(func.grad(f)(X), 2 * X + (np.arange(1.0, 4.0) if np.ndim(held[-1]) else 1.5))
    np.testing.assert_allclose(np.asarray(held[-2]), np.sin(X[-1] if name in ("map", "scan") else X))
