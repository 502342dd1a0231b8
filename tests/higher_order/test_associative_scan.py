"""associative_scan: values, contracts, every transform against plain loops."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError, FunctionalizationError
from pydispatch.func import hessian, vmap
from pydispatch.higher_order import associative_scan
from pydispatch.tracing import make_fx
from tests.higher_order import compositions

X = np.random.default_rng(3).normal(size=(5, 2, 2))
BATCH = np.stack([X, X[::-1] * 0.5, np.sin(X)])


def loop(combine, parts, reverse=False):
    rows = parts[:1] if not reverse else parts[-1:]
    for part in parts[1:] if not reverse else parts[-2::-1]:
        rows = [*rows, combine(rows[-1], part)]
    return rows[::-1] if reverse else rows


def matrices(x):
    return associative_scan(lambda a, b: a @ b, x)


def matrices_unrolled(x):
    return ops.np.stack(loop(lambda a, b: a @ b, [x[i] for i in range(5)]))


def backwards(x):
    return associative_scan(lambda a, b: a * b, x, reverse=True)


def backwards_unrolled(x):
    return ops.np.stack(loop(lambda a, b: a * b, [x[i] for i in range(5)], reverse=True))


def captured(x):
    """Combine by sums of a captured multiple: associative for any `scale` that commutes."""
    scale = ops.np.cos(x).mean()
    return associative_scan(lambda a, b: a + b + scale, x)


def captured_unrolled(x):
    scale = ops.np.cos(x).mean()
    return ops.np.stack(loop(lambda a, b: a + b + scale, [x[i] for i in range(5)]))


def affine(left, right):
    return {"w": left["w"] * right["w"], "b": left["b"] * right["w"] + right["b"], "n": left["n"] + right["n"]}


def recurrences(x):
    """Return a linear recurrence, with a count, which has no derivative."""
    found = associative_scan(affine, {"w": x[:, 0], "b": x[:, 1], "n": np.ones(5, int)})
    return found["b"], found["n"]


def recurrences_unrolled(x):
    rows = loop(affine, [{"w": x[i, 0], "b": x[i, 1], "n": np.ones((), int)} for i in range(5)])
    return ops.np.stack([row["b"] for row in rows]), ops.np.stack([row["n"] for row in rows])


TestCompositions = compositions.tests_of({
    "matrices": (matrices, matrices_unrolled),
    "backwards": (backwards, backwards_unrolled),
    "captured": (captured, captured_unrolled),
    "recurrences": (recurrences, recurrences_unrolled),
}, (X,), BATCH)


@pytest.mark.parametrize("n", range(1, 12))
@pytest.mark.parametrize("reverse", [False, True])
def test_every_length(n, reverse):
    x = np.random.default_rng(n).normal(size=(n, 2, 2))
    expected = np.stack(loop(lambda a, b: a @ b, list(x), reverse))
    compositions.same(associative_scan(lambda a, b: a @ b, x, reverse=reverse), expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axis(axis):
    compositions.same(associative_scan(ops.np.add, X, axis=axis), np.cumsum(X, axis))


def test_one_slice_is_copied():
    found = associative_scan(ops.np.add, X[:1])
    compositions.same(found, X[:1])
    assert not np.shares_memory(found, X)


def test_number_of_calls_grows_with_the_logarithm():
    calls = []

    def combine(a, b):
        calls.append(a.shape)
        return a + b

    associative_scan(combine, np.arange(1024.0))
    assert len(calls) <= 1 + 2 * 10
    assert set(calls) == {()}


def test_raw_in_raw_out():
    assert type(matrices(X)) is np.ndarray
    assert type(matrices(Tensor(X))) is Tensor


@pytest.mark.parametrize(("combine", "xs", "message"), [
    (lambda a, b: a.sum() + b, X, None),
    (lambda a, b: a[:1] + b[:1], X, r"associative_scan: combine returns float64\[1, 2\] for array 0"),
    (lambda a, b: (a + b, a), X, r"associative_scan: combine returns \(\*, \*\), expected \*, the structure of xs"),
    (3, X, "associative_scan: combine is an int"),
    (ops.np.add, [], "associative_scan: xs contains no arrays"),
], ids=["fits", "shape", "structure", "no function", "nothing"])
def test_arguments(combine, xs, message):
    if message is None:
        assert associative_scan(combine, xs).shape == xs.shape
        return
    with pytest.raises(DispatchTypeError, match=message):
        associative_scan(combine, xs)


def test_write_to_an_argument():
    def combine(a, b):
        a += b
        return a

    with pytest.raises(FunctionalizationError, match="associative_scan: combine writes in place to argument 0"):
        associative_scan(combine, X.copy())


def test_what_is_the_same_for_all_examples_stays_so():
    found = vmap(lambda w: associative_scan(lambda a, b: (a[0] + b[0], a[1] * b[1]), (X, X * w))[0], out_dims=None)(
        np.array([1.0, 2.0]))
    compositions.same(found, np.cumsum(X, 0))


def test_fake_trace_of_second_derivatives():
    graph = make_fx(hessian(lambda x: associative_scan(lambda a, b: a * b, x).sum()), tracing_mode="fake")(np.ones(3))
    x = np.array([2.0, 3.0, 5.0])
    compositions.same(graph(x), np.array([[0.0, 6.0, 3.0], [6.0, 0.0, 2.0], [3.0, 2.0, 0.0]]))
