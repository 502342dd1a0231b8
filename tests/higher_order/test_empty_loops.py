"""Loops without a step, and without a carry: what JAX makes of them. Shapes come from a run without data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import compile
from pydispatch.exceptions import DataDependentError, DispatchTypeError
from pydispatch.func import grad, hessian, jvp, vmap
from pydispatch.higher_order import associative_scan, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves

EMPTY = np.zeros((0, 3), np.float32)
INIT = np.array([1.0, 2.0, 3.0])


def zeros(*shape: int, dtype: Any = np.float64) -> Any:
    return np.zeros(shape, dtype)


LOOPS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "scan": (lambda xs: scan(lambda c, x: (c + x, (x * 2, c.sum())), INIT, xs),
             (INIT, (zeros(0, 3, dtype=np.float32), zeros(0)))),
    "scan, reversed": (lambda xs: scan(lambda c, x: (c + x, x.sum()), INIT, xs, reverse=True),
                       (INIT, zeros(0, dtype=np.float32))),
    "scan along axis 1": (lambda xs: scan(lambda c, x: (c + x, x * 2), INIT, xs.T, axis=1),
                          (INIT, zeros(0, 3, dtype=np.float32))),
    "scan without xs": (lambda xs: scan(lambda c, x: (c * 2, c + 1), INIT * (1 + xs.sum()), length=0),
                        (INIT, zeros(0, 3))),
    "scan without results": (lambda xs: scan(lambda c, x: (c + x, None), INIT, xs), (INIT, None)),
    "scan without a carry": (lambda xs: scan(lambda c, x: ((), x * 2), (), xs), ((), zeros(0, 3, dtype=np.float32))),
    "map": (lambda xs: map_slices(lambda x, w: (x * w, {"a": x.sum() > 0}), xs, INIT),
            (zeros(0, 3), {"a": zeros(0, dtype=bool)})),
    "associative_scan": (lambda xs: associative_scan(lambda a, b: a * b, xs), EMPTY),
    "associative_scan along axis 1": (lambda xs: associative_scan(lambda a, b: a * b, xs.T, axis=1), EMPTY.T),
}


def assert_same(found: Any, expected: Any) -> None:
    one, other = tree_leaves(found), tree_leaves(expected)
    assert len(one) == len(other)
    for value, wanted in zip(one, other, strict=True):
        np.testing.assert_array_equal(np.asarray(value), wanted, strict=True)


@pytest.mark.parametrize(("loop", "expected"), LOOPS.values(), ids=LOOPS)
def test_no_step(loop, expected):
    assert_same(loop(EMPTY), expected)
    assert_same(compile(loop)(EMPTY), expected)
    assert_same(make_fx(loop)(EMPTY)(EMPTY), expected)
    assert_same(make_fx(loop, tracing_mode="fake")(EMPTY)(EMPTY), expected)


@pytest.mark.parametrize(("loop", "expected"), LOOPS.values(), ids=LOOPS)
def test_no_step_under_transforms(loop, expected):
    def total(xs):
        return sum([leaf.sum() for leaf in tree_leaves(loop(xs)) if leaf is not None]) + xs.sum()

    assert grad(total)(EMPTY).shape == (0, 3)
    assert hessian(total)(EMPTY).shape == (0, 3, 0, 3)
    assert compile(grad(total))(EMPTY).shape == (0, 3)
    batch = np.zeros((2, 0, 3), np.float32)
    found = vmap(lambda xs: [leaf for leaf in tree_leaves(loop(xs)) if leaf is not None])(batch)
    assert_same(found, [np.stack([leaf, leaf]) for leaf in tree_leaves(expected) if leaf is not None])


def test_the_gradient_of_a_carry_that_no_step_changes():
    np.testing.assert_array_equal(
        grad(lambda init: (scan(lambda c, x: (c * x, None), init, EMPTY.astype(float))[0] ** 2).sum())(INIT), 2 * INIT)
    value, tangent = jvp(lambda init: scan(lambda c, x: (c * x, None), init, EMPTY.astype(float))[0], (INIT,), (INIT,))
    np.testing.assert_array_equal((value, tangent), (INIT, INIT))


def test_no_step_returns_a_copy():
    carry, _ = scan(lambda c, x: (c + x, None), INIT, EMPTY)
    carry[0] = 9
    assert INIT[0] == 1
    found = associative_scan(lambda a, b: a * b, EMPTY)
    assert not np.shares_memory(found, EMPTY)


def test_a_function_that_needs_data_has_no_shape_without_a_step():
    with pytest.raises(DataDependentError, match="no slice to run it on"):
        map_slices(lambda x: x * float(x.sum()), EMPTY)


def test_a_negative_length_is_refused():
    with pytest.raises(DispatchTypeError, match="length is -1"):
        scan(lambda c, x: (c, None), INIT, length=-1)


def test_a_scan_without_a_carry_is_a_map():
    xs = np.arange(6.0).reshape(2, 3)
    for f in (lambda xs: scan(lambda c, x: ((), (x * x).sum()), (), xs)[1],
              lambda xs: scan(lambda c, x: ((), (x * x).sum()), (), xs, reverse=True)[1]):
        np.testing.assert_array_equal(f(xs), (xs * xs).sum(1))
        np.testing.assert_array_equal(grad(lambda xs, f=f: f(xs).sum())(xs), 2 * xs)
        np.testing.assert_array_equal(vmap(f)(np.stack([xs, xs + 1]))[1], ((xs + 1) ** 2).sum(1))
        np.testing.assert_array_equal(compile(f)(xs), (xs * xs).sum(1))


def test_a_while_loop_without_a_carry():
    assert while_loop(lambda: np.array(False), lambda: (), ()) == ()
    assert vmap(lambda x: (while_loop(lambda: np.array(False), lambda: (), ()), x)[1])(INIT).shape == (3,)
    rng, plain = pnp.random.default_rng(7), np.random.default_rng(7)
    assert while_loop(lambda: np.asarray(rng.uniform() < 0.9), lambda: (), ()) == ()
    while plain.uniform() < 0.9:
        pass
    assert rng.bit_generator.state == plain.bit_generator.state
