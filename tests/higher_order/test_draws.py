"""Draws happen once: a second run of a body sees the draws of the first, however a gradient is asked for.

The bodies multiply squares by what they draw, so a derivative says which numbers it saw. The oracle is one plain run,
where nothing is differentiated: its differences, which are exact for polynomials of second degree, and the states in
which it leaves the generators.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.stats

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, ops
from pydispatch.autograd.randomness import are_same_states, full_state_of, hidden_source, set_full_state
from pydispatch.exceptions import AutogradError, DataDependentError, DispatchTypeError, FunctionalizationError
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.library import custom_op
from pydispatch.tracing import make_fx
from tests.modes.recorders import Passing
from tests.together import together

X = np.array([0.5, -1.0, 2.0])
N = 4


class Sources:
    """Two generators with known states."""

    def __init__(self) -> None:
        self.first = pnp.random.default_rng(7)
        self.second = pnp.random.Generator(np.random.MT19937(3))

    @property
    def states(self) -> list[Any]:
        return [words(rng) for rng in (self.first, self.second)]


def words(rng: np.random.Generator) -> list[int]:
    return list(map(int, ops.np.random_state(rng)))


# --- the constructs: each returns an array that depends on X by a factor, or by its square ----------------------------


def factor(rngs: Sources, h: Any, power: int = 1) -> Any:
    """Return the body: three draws of one generator, and one of another."""
    return h ** power * rngs.first.normal(size=3) * rngs.second.uniform(1.0, 2.0)


def by_checkpoint(x: Any, rngs: Sources) -> Any:
    return autograd.checkpoint(lambda h: factor(rngs, h, 2), x)


def by_cond(x: Any, rngs: Sources) -> Any:
    return cond(np.array(True), lambda h: factor(rngs, h, 2), lambda h: h * rngs.second.uniform(), (x,))


def by_scan(x: Any, rngs: Sources) -> Any:
    def combine(total: Any, _: Any) -> Any:
        return total + factor(rngs, x, 2), total * rngs.first.normal()
    carry, rows = scan(combine, x * 1, length=N)
    return carry + rows.sum(0)


def by_map(x: Any, rngs: Sources) -> Any:
    return map_slices(lambda k: k * factor(rngs, x, 2), np.arange(1.0, N + 1)).sum(0)


def by_while(x: Any, rngs: Sources) -> Any:
    def test(i: Any, total: Any) -> Any:
        return i + rngs.second.uniform(0.0, 0.5) < N

    def body(i: Any, total: Any) -> Any:
        return i + 1.0, total + factor(rngs, x, 2)
    return while_loop(test, body, (0.0, x * 0))[1]


def by_associative_scan(x: Any, rngs: Sources) -> Any:
    scale = np.arange(1.0, N + 1)[:, None]
    return associative_scan(lambda a, b: a + b * rngs.first.normal(size=3), scale * x ** 2).sum(0)


def by_nested(x: Any, rngs: Sources) -> Any:
    """Return a checkpoint and a cond in a scan, which draws itself, and a generator that is made inside."""
    def combine(total: Any, k: Any) -> Any:
        own = pnp.random.default_rng(11)
        inner = cond(k > 1, lambda h: factor(rngs, h, 2), lambda h: h * own.normal(size=3), (x,))
        more = autograd.checkpoint(lambda h: h ** 2 * rngs.first.normal(size=3), x)
        return total + inner * rngs.second.uniform() + more * own.normal(), None
    return scan(combine, x * 0, np.arange(float(N)))[0]


def by_counted_while(x: Any, rngs: Sources) -> Any:
    return while_loop(lambda i, total: i < N, lambda i, total: (i + 1, total + factor(rngs, x, 2)), (0, x * 0))[1]


def by_dropout(x: Any, rngs: Sources) -> Any:
    """Compute a mask from draws that are not Tensors, which no run without data can do."""
    def layer(h: Any, _: Any) -> Any:
        mask = (rngs.first.uniform(size=3) < 0.5) * 2.0
        return h * 1.0 + x ** 2 * mask, None
    return scan(layer, x * 0, length=N)[0]


CONSTRUCTS = [
    by_dropout, by_checkpoint, by_cond, by_scan, by_map, by_while, by_counted_while, by_associative_scan, by_nested]


# --- the ways to ask for a derivative, and the oracle ----------------------------------------------------------------

Function = Callable[[Any], Any]


def total(construct: Callable[[Any, Sources], Any], rngs: Sources) -> Function:
    return lambda x: construct(x, rngs).sum()


@cache
def plain_run(construct: Callable[[Any, Sources], Any]) -> tuple[Any, Any, Any, Any]:
    """Return the value, the slope and the curvature at X, and the states that a run leaves."""
    def value(x: Any) -> Any:
        return total(construct, Sources())(x)

    steps = np.eye(3)
    slope = np.array([(value(X + e) - value(X - e)) / 2 for e in steps])
    curvature = np.array([[value(X + d + e) - value(X + d - e) - value(X - d + e) + value(X - d - e) for d in steps]
                          for e in steps]) / 4
    rngs = Sources()
    return total(construct, rngs)(X), slope, curvature, rngs.states


def of_tape(f: Function) -> Any:
    x = Tensor(X.copy(), requires_grad=True)
    f(x).backward()
    return x.grad.array


def of_tape_twice(f: Function) -> Any:
    x = Tensor(X.copy(), requires_grad=True)
    y = f(x)
    first = autograd.grad(y, x, retain_graph=True)[0].array
    np.testing.assert_array_equal(autograd.grad(y, x)[0].array, first)
    return first


def of_vjp(f: Function) -> Any:
    _, pull = func.vjp(f, X)
    first, = pull(np.array(1.0))
    np.testing.assert_array_equal(pull(np.array(1.0))[0], first)
    return first


def of_batch_of_vjps(f: Function) -> Any:
    """Run vjps as a batch after the first run, so that the examples share the draws of that run."""
    _, pull = func.vjp(f, X)
    rows, = func.vmap(pull, randomness="different")(np.array([1.0, 2.0]))
    np.testing.assert_allclose(rows[1], 2 * rows[0])
    return rows[0]


def of_linearize(f: Function) -> Any:
    _, push = func.linearize(f, X)
    return np.array([push(row) for row in np.eye(3)])


def in_mode(f: Function) -> Any:
    with Passing():
        return func.grad(f)(X)


def of_tape_in_mode(f: Function) -> Any:
    with Passing():
        return of_tape(f)


def in_vmap(f: Function) -> Any:
    return func.vmap(func.grad(f), randomness="same")(np.stack([X, X]))[1]


SLOPES: dict[str, Callable[[Function], Any]] = {
    "tape": of_tape, "tape twice": of_tape_twice, "grad": lambda f: func.grad(f)(X),
    "value_and_grad": lambda f: func.value_and_grad(f)(X)[1], "vjp": of_vjp, "vmap of vjp": of_batch_of_vjps,
    "linearize": of_linearize, "jacrev": lambda f: func.jacrev(f)(X),
    "jacfwd": lambda f: func.jacfwd(f, randomness="same")(X), "vmap of grad": in_vmap, "mode": in_mode,
    "tape in a mode": of_tape_in_mode, "functionalize": lambda f: func.functionalize(func.grad(f))(X),
    "graph": lambda f: make_fx(func.grad(f), tracing_mode="fake")(X)(X),
    "compile of grad": lambda f: compile(func.grad(f))(X), "grad of compile": lambda f: func.grad(compile(f))(X),
    "compile of vmap of grad": lambda f: compile(func.vmap(func.grad(f), randomness="same"))(np.stack([X, X]))[1],
    "compile to Python": lambda f: compile(func.grad(f), backend="python")(X),
}


def of_second_order_on_tape(f: Function) -> Any:
    x = Tensor(X.copy(), requires_grad=True)
    slope, = autograd.grad(f(x), x, create_graph=True)
    return np.array([autograd.grad(slope[i], x, retain_graph=True)[0].array for i in range(3)])


CURVATURES: dict[str, Callable[[Function], Any]] = {
    "create_graph": of_second_order_on_tape,
    "hessian": lambda f: func.hessian(f)(X),
    "jacrev of grad": lambda f: func.jacrev(func.grad(f))(X),
    "jacfwd of grad": lambda f: func.jacfwd(func.grad(f), randomness="same")(X),
    "compile of jacrev of grad": lambda f: compile(func.jacrev(func.grad(f)))(X),
    "compile of hessian": lambda f: compile(func.hessian(f))(X),
}

CANNOT = {(by_while, name) for name in ("graph", *SLOPES, *CURVATURES) if "compile" in name or name == "graph"}
"""The number of steps depends on draws, which a trace does not have."""


@pytest.mark.parametrize("way", [*SLOPES, *CURVATURES])
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_derivatives_see_the_draws_of_the_value(construct, way):
    _, slope, curvature, states = plain_run(construct)
    rngs = Sources()
    ask = {**SLOPES, **CURVATURES}[way]
    if (construct, way) in CANNOT:
        with pytest.raises(DataDependentError, match="number of steps"):
            ask(total(construct, rngs))
        return
    found = ask(total(construct, rngs))
    np.testing.assert_allclose(found, slope if way in SLOPES else curvature, atol=1e-9)
    assert rngs.states == states


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_values_beside_gradients_and_tangents_are_those_of_a_plain_run(construct):
    value, slope, _, states = plain_run(construct)
    direction = np.array([1.0, 10.0, 100.0])
    first, second = Sources(), Sources()
    found, derivative = func.value_and_grad(total(construct, first))(X)
    np.testing.assert_allclose((found, *derivative), (value, *slope), atol=1e-9)
    found, derivative = func.jvp(total(construct, second), (X,), (direction,))
    np.testing.assert_allclose((found, derivative), (value, slope @ direction))
    assert first.states == second.states == states


@pytest.mark.parametrize("construct", [one for one in CONSTRUCTS if one is not by_while])
def test_a_compiled_gradient_goes_on_drawing_as_one_that_is_not(construct):
    plain, here = Sources(), Sources()
    compiled = compile(func.value_and_grad(total(construct, here)))
    for _ in range(3):
        expected = func.value_and_grad(total(construct, plain))(X)
        for one, other in zip(compiled(X), expected, strict=True):
            np.testing.assert_allclose(one, other)
        assert here.states == plain.states


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("construct", [by_checkpoint, by_cond, by_scan, by_map, by_counted_while])
def test_under_vmap_the_gradient_of_each_example_sees_its_draw(construct, randomness):
    batch = np.stack([X, X + 1, X * 2])
    first, second = Sources(), Sources()
    values = func.vmap(total(construct, first), randomness=randomness)(batch)
    found, slopes = func.vmap(func.value_and_grad(total(construct, second)), randomness=randomness)(batch)
    np.testing.assert_allclose(found, values)
    assert first.states == second.states
    third = Sources()
    step = func.vmap(total(construct, third), randomness=randomness)(batch * (1 + 1e-6))
    np.testing.assert_allclose((step - values) / 1e-6, (slopes * batch).sum(1), rtol=1e-4, atol=1e-4)


# --- where generators come from --------------------------------------------------------------------------------------


def made_outside(x: Any) -> Any:
    rng = pnp.random.default_rng(7)
    return cond(np.array(True), lambda h: (h * rng.normal(size=3)).sum(), lambda h: h.sum() * 1, (x,))


def made_inside(x: Any) -> Any:
    return cond(np.array(True), lambda h: (h * pnp.random.default_rng(7).normal(size=3)).sum(),
                lambda h: h.sum() * 1, (x,))


def passed_as_an_operand(x: Any) -> Any:
    return cond(np.array(True), lambda h, rng: (h * rng.normal(size=3)).sum(), lambda h, rng: h.sum() * 1,
                (x, pnp.random.default_rng(7)))


def of_numpy(x: Any) -> Any:
    rng = np.random.default_rng(7)
    return cond(np.array(True), lambda h: (h * ops.np.random_normal(rng, size=3)).sum(), lambda h: h.sum() * 1, (x,))


@pytest.mark.parametrize("f", [made_outside, made_inside, passed_as_an_operand, of_numpy])
def test_a_generator_may_be_made_outside_or_inside_or_be_an_operand(f):
    drawn = np.random.default_rng(7).normal(size=3)
    np.testing.assert_array_equal(func.grad(f)(X), drawn)
    compiled = compile(func.grad(f))
    if f is of_numpy:           # made in the trace by a call that the trace does not see: it would go on
        with pytest.raises(DispatchTypeError, match="made a Generator"):
            compiled(X)
        return
    for _ in range(2):
        np.testing.assert_array_equal(compiled(X), drawn)


def test_a_generator_without_a_seed_that_is_made_inside_is_repeated_as_well():
    x = Tensor(X, requires_grad=True)
    y = autograd.checkpoint(lambda h: h * pnp.random.default_rng().normal(size=3), x)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.array * X, y.array)


def test_a_generator_without_a_seed_that_is_made_in_a_body_is_refused_in_a_graph():
    def f(x):
        return cond(np.array(True), lambda h: h @ pnp.random.default_rng().normal(size=3), lambda h: h.sum() * 1, (x,))

    with pytest.raises(AutogradError, match="random_default_rng"):
        compile(func.grad(f))(X)


def test_a_generator_as_an_argument_of_a_compiled_function():
    def f(x, rng):
        return autograd.checkpoint(lambda h: h * rng.normal(size=3), x).sum()

    compiled = compile(func.grad(f))
    np.testing.assert_array_equal(compiled(X, pnp.random.default_rng(7)), np.random.default_rng(7).normal(size=3))


@pytest.mark.parametrize("bit_generator", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_the_state_of_a_generator_as_an_array_restores_it(bit_generator):
    rng = pnp.random.Generator(bit_generator(3))
    rng.integers(0, 9, size=3, dtype=np.int32)          # leaves half a word behind
    states = ops.np.random_state(rng)
    other = ops.np.random_restored(pnp.random.Generator(bit_generator(4)), states)
    assert words(other) == list(map(int, states))
    expected = rng.integers(0, 9, size=5, dtype=np.int32)
    np.testing.assert_array_equal(other.integers(0, 9, size=5, dtype=np.int32), expected)
    np.testing.assert_array_equal(other.normal(size=3), rng.normal(size=3))


# --- changes of generators by other means than draws ------------------------------------------------------------------


def spawned(x: Any, rng: Any) -> Any:
    return x * rng.spawn(1)[0].normal(size=3)


def spawned_of_a_sequence(x: Any, rng: Any) -> Any:
    return x * pnp.random.default_rng(rng.bit_generator.seed_seq.spawn(1)[0]).normal(size=3)


def spawned_twice(x: Any, rng: Any) -> Any:
    one, other = rng.spawn(2)
    return x * other.normal(size=3) * rng.normal() * one.normal()


def advanced(x: Any, rng: Any) -> Any:
    rng.bit_generator.advance(5)
    return x * rng.normal(size=3)


def advanced_between_draws(x: Any, rng: Any) -> Any:
    first = rng.normal(size=3)
    return x * first * advanced(1.0, rng) * rng.normal()


def set_back(x: Any, rng: Any) -> Any:
    state = rng.bit_generator.state
    first = rng.normal(size=3)
    rng.bit_generator.state = state
    return x * first * rng.normal(size=3) * rng.normal()


def drawn_raw(x: Any, rng: Any) -> Any:
    return x * float(rng.bit_generator.random_raw() >> 40) * rng.normal(size=3)


def written(x: Any, rng: Any) -> Any:
    """Write, which ends the speculative run of a first step and has its gradient run all steps again."""
    factor = pnp.zeros(1)
    factor[0] = 2.0
    return advanced_between_draws(x, rng) * factor[0]


def once_by_checkpoint(x: Any, body: Any) -> Any:
    return autograd.checkpoint(body, x)


def once_by_cond(x: Any, body: Any) -> Any:
    return cond(np.array(True), body, lambda h: h * 1, (x,))


def twice_by_scan(x: Any, body: Any) -> Any:
    return scan(lambda total, _: (total + body(x), None), x * 0, length=2)[0]


def twice_by_map(x: Any, body: Any) -> Any:
    return map_slices(lambda k: k * body(x), np.ones(2)).sum(0)


def twice_by_while(x: Any, body: Any) -> Any:
    return while_loop(lambda i, total: i < 2, lambda i, total: (i + 1, total + body(x)), (0, x * 0))[1]


@pytest.mark.parametrize("construct", [once_by_checkpoint, once_by_cond, twice_by_scan, twice_by_map, twice_by_while])
@together("change", [
    spawned, spawned_of_a_sequence, spawned_twice, advanced, advanced_between_draws, set_back, drawn_raw, written])
def test_changes_of_a_captured_generator_happen_once(construct, change):
    rng, plain = pnp.random.default_rng(7), np.random.default_rng(7)
    slope = sum(change(np.ones(3), plain) for _ in range(1 if construct in (once_by_checkpoint, once_by_cond) else 2))
    bits = rng.bit_generator            # in reach of the body, too
    value, found = func.value_and_grad(lambda x: construct(x, lambda h: change(h, rng) if bits else h).sum())(X)
    np.testing.assert_allclose((value, *found), (slope @ X, *slope))
    assert words(rng) == words(plain)
    assert rng.spawn(1)[0].normal() == plain.spawn(1)[0].normal()


@pytest.mark.parametrize("construct", [once_by_checkpoint, once_by_cond, twice_by_scan])
def test_a_seed_of_the_system_is_drawn_once(construct):
    def body(h: Any) -> Any:
        return h * pnp.random.default_rng(np.random.SeedSequence()).normal(size=3)

    value, slope = func.value_and_grad(lambda x: construct(x, body).sum())(X)
    np.testing.assert_allclose(value, slope @ X)


TAKES_RANDOM_STATE = np.lib.NumpyVersion(np.__version__) >= "2.2.0"


@pytest.mark.parametrize("source", [np.random.PCG64, *([np.random.RandomState] if TAKES_RANDOM_STATE else [])])
def test_a_generator_that_shares_the_stream_of_a_source_draws_once(source):
    shared, plain = source(7), np.random.default_rng(source(7))
    value, slope = func.value_and_grad(lambda x: autograd.checkpoint(
        lambda h: (h * pnp.random.default_rng(shared).normal(size=3)).sum(), x))(X)
    drawn = plain.normal(size=3)
    np.testing.assert_allclose((value, *slope), (drawn @ X, *drawn))
    assert pnp.random.default_rng(shared).normal() == plain.normal()


# --- runs that nobody asked for --------------------------------------------------------------------------------------


def test_a_trial_that_is_given_up_draws_nothing():
    rng, plain = pnp.random.default_rng(7), np.random.default_rng(7)

    def combine(total, x):
        drawn = rng.normal() * x
        copied = pnp.zeros(1)
        copied[0] = drawn                   # a write ends the speculative run of the first step
        return total + copied[0], None

    carry, _ = scan(combine, np.array(0.0), np.ones(3))
    np.testing.assert_allclose(carry, plain.normal(size=3).sum())
    assert words(rng) == words(plain)


def test_runs_without_data_draw_nothing():
    rng, plain = pnp.random.default_rng(7), np.random.default_rng(7)
    found = func.vmap(lambda x: scan(lambda total, k: (total + k * rng.normal(), None), x, np.ones(2))[0],
                      randomness="same")(np.zeros(3))
    np.testing.assert_allclose(found, plain.normal(size=2).sum())
    assert words(rng) == words(plain)


def test_chunks_of_a_batch_share_their_draws_in_a_graph_too():
    rng, here = pnp.random.default_rng(7), pnp.random.default_rng(7)
    drawn = np.random.default_rng(7).normal(size=3)

    def chunked(x, rng):
        return func.vmap(lambda row: row * rng.normal(size=3), randomness="same", chunk_size=1)(x)

    np.testing.assert_array_equal(chunked(np.ones((2, 3)), rng), [drawn, drawn])
    compiled = compile(lambda x: chunked(x, here))
    np.testing.assert_array_equal(compiled(np.ones((2, 3))), [drawn, drawn])
    assert words(rng) == words(here)


# --- operators that cannot be repeated -------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [
    lambda op, x: autograd.checkpoint(op, x).sum(),
    lambda op, x: cond(np.array(True), op, lambda h: h * 1, (x,)).sum(),
    lambda op, x: scan(lambda total, k: (total + op(x) * k, None), x * 0, np.ones(2))[0].sum(),
    lambda op, x: while_loop(lambda i, total: i < 2, lambda i, total: (i + 1, total + op(x)), (0, x * 0))[1].sum(),
])
@pytest.mark.parametrize("tags", [("nondeterministic",), ("nondeterministic_seeded",)])
def test_an_operator_with_a_state_is_refused_where_it_would_run_again(fresh, f, tags):
    calls = []

    def noise(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        return x * len(calls)

    op = custom_op(f"{fresh.namespace}::noise", noise, mutates_args=(), tags=tags)
    op.register_fake(lambda x: ops.np.empty_like(x))
    op.register_autograd(lambda ctx, g: g)
    assert np.all(f(op, X) != 0)
    n = len(calls)
    pattern = rf"{fresh.namespace}::noise.*can return a different result(.|\n)*type Generator"
    with Passing(), pytest.raises(AutogradError, match=pattern):
        func.grad(lambda x: f(op, x))(X)
    assert n < len(calls)                   # the first run is allowed


def test_an_operator_that_draws_from_an_argument_is_repeated(fresh):
    def noise(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x * rng.normal(size=x.shape)

    op = custom_op(f"{fresh.namespace}::noise", noise, mutates_args=())
    op.register_fake(lambda x, rng: ops.np.empty_like(x))
    op.register_autograd(lambda ctx, g: (g * ctx.slope, None), setup_context=lambda ctx, inputs, output: setattr(
        ctx, "slope", output / inputs[0]))
    rng, plain = np.random.default_rng(7), np.random.default_rng(7)
    slope = func.grad(lambda x: autograd.checkpoint(lambda h: op(h, rng), x).sum())(X)
    np.testing.assert_allclose(slope, plain.normal(size=3))
    assert words(rng) == words(plain)


# --- branches of which each example of a batch takes one ---

OF_EXAMPLES = np.array([[1.0, 2, 3], [-1, 2, 3], [2, 2, 1], [-3, 1, 1]])
OVER_A_BATCH = {
    # over a batch, and for one example
    "vmap": (lambda f: func.vmap(f, randomness="same"), lambda f: f),
    "vmap of grad": (lambda f: func.vmap(func.grad(lambda x: f(x).sum()), randomness="same"),
                     lambda f: func.grad(lambda x: f(x).sum())),
    "vmap of jacfwd": (lambda f: func.vmap(func.jacfwd(f, randomness="same"), randomness="same"),
                       lambda f: func.jacfwd(f, randomness="same")),
    "grad of vmap": (lambda f: func.grad(lambda batch: func.vmap(f, randomness="same")(batch).sum()),
                     lambda f: func.grad(lambda x: f(x).sum())),
    "compile": (lambda f: compile(func.vmap(f, randomness="same")), lambda f: f),
    "compile of grad": (lambda f: compile(func.vmap(func.grad(lambda x: f(x).sum()), randomness="same")),
                        lambda f: func.grad(lambda x: f(x).sum())),
}


@pytest.mark.parametrize("way", OVER_A_BATCH)
def test_each_example_draws_in_the_branch_that_it_takes(way):
    def f(x, rng):
        scaled = x * rng.normal(size=3)
        y = cond(x[0] > 0, lambda x: x * rng.normal(size=3), lambda x: x * x + rng.normal(size=3), (scaled,))
        return y * rng.normal(size=3)

    of_batch, of_one = OVER_A_BATCH[way]
    expected = [of_one(lambda x: f(x, pnp.random.default_rng(5)))(x) for x in OF_EXAMPLES]
    rng = pnp.random.default_rng(5)
    np.testing.assert_allclose(of_batch(lambda x: f(x, rng))(OF_EXAMPLES), expected, rtol=1e-12)
    left = pnp.random.default_rng(5)
    f(X, left)
    assert rng.normal() == left.normal()


# --- states that something other than the draw of an operator changes -------------------------------------------------


class Held:
    """A generator and its bit generator, held in places that a function can reach in several ways."""

    def __init__(self) -> None:
        self.rng = pnp.random.default_rng(3)
        self.bits = self.rng.bit_generator
        self.numpys = np.random.Generator(np.random.PCG64(4))
        self.in_a_list = [np.random.MT19937(5)]
        bits = np.random.SFC64(6)
        self.in_a_cell = lambda: float(bits.random_raw() % 1000)
        self.start = self.bits.state
        self.sequence = np.random.SeedSequence(8)
        self.legacy = np.random.RandomState(9)
        np.random.seed(10)      # NumPy's hidden generator, which keeps the second of two normal numbers
        np.random.normal()

    def advanced(self) -> Any:
        self.bits.advance(3)
        return self.rng.normal()

    def advanced_afterwards(self) -> Any:
        drawn = self.rng.normal()
        self.bits.random_raw()
        return drawn

    def set(self) -> Any:
        self.bits.state = np.random.PCG64(9).state
        return self.rng.normal()

    def seeded(self) -> Any:
        np.random.seed(11)
        return np.random.normal()

    def set_to_the_start(self) -> Any:
        self.bits.state = self.start
        return self.rng.normal()


UNSEEN: dict[str, Callable[[Held], Any]] = {
    "advance, then a draw": Held.advanced,
    "a draw, then advance": Held.advanced_afterwards,
    "state, then a draw": Held.set,
    "bits": lambda held: float(held.bits.random_raw() % 1000),
    "bits in a list": lambda held: float(held.in_a_list[0].random_raw() % 1000),
    "bits in the cell of another function": lambda held: held.in_a_cell(),
    "NumPy's own generator": lambda held: held.numpys.normal(),
    "another generator on the bits": lambda held: np.random.Generator(held.bits).normal(),
    "NumPy's RandomState": lambda held: np.random.RandomState(held.bits).normal(),
    "a captured RandomState": lambda held: held.legacy.normal(),
    "a child of NumPy's own generator": lambda held: held.numpys.spawn(1)[0].normal(),
    "a child of a sequence": lambda held: np.random.default_rng(held.sequence.spawn(1)[0]).normal(),
    "raw draws of a child": lambda held: np.random.Generator(held.bits.spawn(1)[0]).normal(),
    "the hidden generator": lambda held: np.random.normal(),
    "integers of the hidden generator": lambda held: float(np.random.randint(1000)),
    "the hidden generator in a library": lambda held: scipy.stats.norm.rvs(),
    "a seed of the hidden generator": Held.seeded,
}
TRACES: dict[str, Callable[..., Any]] = {
    "real": lambda f: make_fx(f)(X),
    "fake": lambda f: make_fx(f, tracing_mode="fake")(X),
    "compile": lambda f: compile(f)(X),
    "grad": lambda f: make_fx(func.grad(lambda x: f(x).sum()))(X),
    "checkpoint": lambda f: make_fx(func.grad(lambda x: autograd.checkpoint(f, x).sum()))(X),
    "map": lambda f: make_fx(lambda x: map_slices(f, x))(X),
    "cond": lambda f: compile(lambda x: cond(np.array(True), f, lambda x: x * 1, (x,)))(X),
    "scan": lambda f: compile(lambda x: scan(lambda c, x: (c + f(x), None), 0.0, x)[0])(X),
    "while_loop": lambda f: compile(lambda x: while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, f(c)), (0, x))[1])(X),
}


SET_TO_THE_START = {"state of before, then a draw": Held.set_to_the_start}


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
@together("draw", [*UNSEEN.values(), *SET_TO_THE_START.values()], ids=[*UNSEEN, *SET_TO_THE_START])
def test_traces_refuse_states_that_change_unseen(draw, trace):
    held = Held()
    with pytest.raises((DispatchTypeError, FunctionalizationError), match=r"the state of a [A-Z](.|\n)*draw by"):
        trace(lambda x: x * draw(held))


LOOPS: dict[str, Callable[..., Any]] = {
    "scan": lambda f, x: scan(lambda c, x: (c + f(x), None), 0.0, x)[0],
    "map": lambda f, x: map_slices(f, x).sum(),
    "while_loop": lambda f, x: while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c + f(x[i, ...])), (0, 0.0))[1],
}
GRADIENTS: dict[str, Callable[..., Any]] = {
    "value": lambda f: (f(X), None),
    "grad": lambda f: func.value_and_grad(f)(X),
    "jvp": lambda f: func.jvp(f, (X,), (X,)),
    "vjp": lambda f: (lambda value, pull: (value, pull(np.float64(1.0))[0]))(*func.vjp(f, X)),
    "linearize": lambda f: (lambda value, push: (value, push(X)))(*func.linearize(f, X)),
    "second derivative": lambda f: (None, func.grad(lambda s: func.grad(lambda x: f(s * x))(X) @ X)(1.0)),
    "vmap of grad": lambda f: (None, func.vmap(func.grad(f), randomness="same")(X[None])[0]),
}


@pytest.mark.parametrize("ask", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@together("draw", [*UNSEEN.values(), *SET_TO_THE_START.values()], ids=[*UNSEEN, *SET_TO_THE_START])
def test_loops_follow_states_that_change_unseen_or_refuse(draw, loop, ask):
    # NumPy's loop is the oracle: the value and the slope are the draws of each step, or there is an error.
    held = Held()
    factors = np.array([draw(held) for _ in X])
    held = Held()
    try:
        value, slope = ask(lambda x: loop(lambda v: v * draw(held), x))
    except FunctionalizationError as error:
        assert "the state of a" in str(error)       # noqa: PT017
        return
    if value is not None:
        np.testing.assert_allclose(value, factors @ X)
    if slope is not None:
        np.testing.assert_allclose(slope, factors @ X if np.ndim(slope) == 0 else factors)


@pytest.mark.parametrize("way", ["checkpoint", "cond"])
@together("draw", [*UNSEEN.values(), *SET_TO_THE_START.values()], ids=[*UNSEEN, *SET_TO_THE_START])
def test_one_run_follows_states_that_change_unseen_or_refuses(way, draw):
    factor, held = draw(Held()), Held()
    body = lambda x: x * draw(held)     # noqa: E731
    try:
        if way == "checkpoint":
            slope = func.grad(lambda x: autograd.checkpoint(body, x).sum())(X)
        else:
            slope = func.grad(lambda x: cond(np.array(True), body, lambda x: x * 1, (x,)).sum())(X)
    except FunctionalizationError as error:
        assert "the state of a" in str(error)       # noqa: PT017
        return
    np.testing.assert_allclose(slope, np.full(3, factor))


@pytest.mark.parametrize("trace", [TRACES[name] for name in ("real", "fake", "compile", "grad")])
def test_traces_refuse_a_state_that_is_set_back_after_a_draw(trace):
    held = Held()

    def drawn_twice(x: Any) -> Any:
        state = held.bits.state
        first = x * held.rng.normal()
        held.bits.state = state
        return first * held.rng.normal()

    with pytest.raises(DispatchTypeError, match=r"the state of a PCG64"):
        trace(drawn_twice)


@pytest.mark.parametrize("bit_generator", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
@pytest.mark.parametrize("is_half_drawn", [False, True])
def test_traces_leave_states_as_they_are(bit_generator, is_half_drawn):
    rng = pnp.random.Generator(bit_generator(3))
    bits = rng.bit_generator
    rng.integers(0, 9, size=2 + is_half_drawn, dtype=np.int32)
    before = repr(bits.state)
    make_fx(lambda x: x * rng.normal(size=3) if bits else x, tracing_mode="fake")(X)
    assert repr(bits.state) == before


LOOPS["checkpoint"] = lambda f, x: sum(autograd.checkpoint(f, x[i, ...]) for i in range(3))


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("draw", [*UNSEEN.values(), *SET_TO_THE_START.values()], ids=[*UNSEEN, *SET_TO_THE_START])
def test_bodies_that_need_data_follow_states_that_change_unseen_or_refuse(draw, is_first, loop):
    def body(v: Any, held: Held) -> Any:
        first = draw(held) if is_first else 1.0
        scale = 2.0 if float(held.rng.uniform(size=1)[0]) < 0.5 else 1.0
        return v * first * scale * (1.0 if is_first else draw(held))

    held = Held()
    factors = np.array([body(1.0, held) for _ in X])
    for ask in (GRADIENTS["grad"], GRADIENTS["jvp"], GRADIENTS["vjp"]):
        held = Held()
        try:
            value, slope = ask(lambda x, held=held: loop(lambda v: body(v, held), x))
        except FunctionalizationError as error:
            assert "the state of a" in str(error)       # noqa: PT017
            continue
        np.testing.assert_allclose(value, factors @ X)
        np.testing.assert_allclose(slope, factors @ X if np.ndim(slope) == 0 else factors)


def test_the_state_of_the_hidden_generator_is_read_as_numpy_reads_it():
    # It is read from memory, since NumPy takes long for it.
    source = hidden_source()
    for seed, n in itertools.product(range(3), range(4)):
        np.random.seed(seed)
        np.random.normal(size=n)
        state, by_numpy = full_state_of(source), np.random.get_state(legacy=False)
        drawn = np.random.normal(size=3)
        assert not are_same_states(full_state_of(source), state)
        set_full_state(source, state)
        assert are_same_states(np.random.get_state(legacy=False), by_numpy)
        assert are_same_states(full_state_of(source), state)
        np.testing.assert_array_equal(np.random.normal(size=3), drawn)


@pytest.mark.parametrize("construct", [once_by_checkpoint, once_by_cond])
def test_the_hidden_generator_is_left_as_one_run_leaves_it(construct):
    np.random.seed(3)
    drawn, after = np.random.normal(size=3), np.random.normal()
    np.random.seed(3)
    slope = func.grad(lambda x: construct(x, lambda h: h * np.random.normal(size=3)).sum())(X)
    np.testing.assert_allclose(slope, drawn)
    assert np.random.normal() == after


def jumped(held: Held) -> Any:
    return pnp.random.default_rng(held.rng.bit_generator.jumped()).normal()


def drawn_by_a_child(held: Held) -> Any:
    return held.rng.spawn(1)[0].normal()


@pytest.mark.parametrize("ask", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("draw", [jumped, drawn_by_a_child])
def test_loops_repeat_the_draws_of_generators_made_of_others(draw, loop, ask):
    held = Held()
    factors = np.array([draw(held) for _ in X])
    held = Held()
    value, slope = ask(lambda x: loop(lambda v: v * draw(held), x))
    if value is not None:
        np.testing.assert_allclose(value, factors @ X)
    if slope is not None:
        np.testing.assert_allclose(slope, factors @ X if np.ndim(slope) == 0 else factors)
