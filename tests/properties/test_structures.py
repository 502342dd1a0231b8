"""Containers are matched by structure: dicts by key wherever a function's result meets what it has to fit."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.func import grad, jvp, linearize, vjp, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_flatten, tree_map
from tests.functions import Stateless
from tests.together import together

ONE, TWO, THREE = np.array(1.0), np.array(2.0), np.array(3.0)
PAIR = {"a": TWO, "b": THREE}
SWAPPED = {"b": THREE, "a": TWO}


def swapped(a, b):
    return {"b": b, "a": a}


def same(actual, desired):
    assert tree_flatten(actual)[1] == tree_flatten(desired)[1]
    for one, other in zip(tree_flatten(actual)[0], tree_flatten(desired)[0], strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


class Apart(Stateless):
    """(x, 2x) in a dict. Its jvp gives the tangents in another order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return {"a": x * 1.0, "b": x * 2.0}

    @staticmethod
    def backward(ctx, grads):
        return grads["a"] + 2.0 * grads["b"]

    @staticmethod
    def jvp(ctx, tangent):
        return swapped(tangent * 1.0, tangent * 2.0)


class Joined(Stateless):
    """a + 2b of a dict, whose backward gives the gradients in another order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(pair):
        return pair["a"] + pair["b"] * 2.0

    @staticmethod
    def backward(ctx, g):
        return swapped(g * 1.0, g * 2.0)


class Wrong(Joined):
    """The same with gradients of another structure."""

    @staticmethod
    def backward(ctx, g):
        return {"a": g, "c": g}


class WrongTangents(Apart):
    """The same with tangents of another structure."""

    @staticmethod
    def jvp(ctx, tangent):
        return {"a": tangent, "c": tangent}


def step(c):
    """Return two variables that depend on each other, returned in another order."""
    return swapped(c["b"] + 10, c["a"] + 1)


def stepped(times):
    c = {"a": np.array(0), "b": np.array(1)}
    for _ in range(times):
        c = {"a": c["b"] + 10, "b": c["a"] + 1}
    return c


INIT = {"a": np.array(0), "b": np.array(1)}


def of_scan(combine=lambda c, _: (step(c), None)):
    return scan(combine, INIT, length=3)[0]


def needs_data(c, _):
    assert c["a"].item() >= 0
    return step(c), None


def chosen(pred):
    return cond(pred, lambda x: {"a": x * 1, "b": x * 2}, lambda x: swapped(x * 3, x * 4), (ONE,))


def chosen_with_data(pred):
    return cond(pred, lambda x: {"a": x * 1, "b": x * 2} if x else None,
                lambda x: swapped(x * 3, x * 4) if x else None, (ONE,))


def alternating():
    """Return a function that returns its dict in another order at every second call."""
    turns = iter(range(100))

    def f(x):
        return {"a": x * 1, "b": x * 2} if next(turns) % 2 else swapped(x * 1, x * 2)

    return f


def gradients_on_the_tape(pair):
    tracked = tree_map(lambda leaf: Tensor(leaf.copy(), requires_grad=True), pair)
    Joined.apply(tracked).backward()
    return tree_map(lambda leaf: leaf.grad, tracked)


XS = {"p": np.array([1, 2, 3]), "q": np.array([1, 1, 1])}
BATCH = {"a": np.array([2.0, 5.0]), "b": np.array([3.0, 7.0])}


@together("call, expected", [
    (of_scan, stepped(3)),
    (lambda: of_scan(needs_data), stepped(3)),
    (lambda: vmap(lambda x: scan(lambda c, _: (step(c), None), {"a": x, "b": x + 1}, length=3)[0])(np.array([0, 0])),
     {"a": np.array([22, 22]), "b": np.array([12, 12])}),
    (lambda: while_loop(lambda c: c["a"] < 15, lambda c: step(c), (INIT,))[0], stepped(3)),
    (lambda: associative_scan(lambda x, y: {"q": x["q"] + y["q"], "p": x["p"] * y["p"]}, XS),
     {"p": np.array([1, 2, 6]), "q": np.array([1, 2, 3])}),
    (lambda: map_slices(alternating(), np.arange(4.0)), swapped(np.arange(4.0), 2 * np.arange(4.0))),
    (lambda: chosen(np.array(True)), {"a": ONE, "b": TWO}),
    (lambda: chosen(np.array(False)), {"a": THREE, "b": np.array(4.0)}),
    (lambda: vmap(chosen)(np.array([True, False])), {"a": np.array([1.0, 3.0]), "b": np.array([2.0, 4.0])}),
    (lambda: vmap(chosen_with_data)(np.array([True, False])), {"a": np.array([1.0, 3.0]), "b": np.array([2.0, 4.0])}),
    (lambda: jvp(Apart.apply, (ONE,), (THREE,))[1], {"a": THREE, "b": np.array(6.0)}),
    (lambda: vmap(lambda x: jvp(Apart.apply, (x,), (x,))[1])(np.ones(2)), {"a": np.ones(2), "b": 2 * np.ones(2)}),
    (lambda: grad(Joined.apply)(PAIR), {"a": ONE, "b": TWO}),
    (lambda: grad(Joined.apply)(SWAPPED), {"b": TWO, "a": ONE}),
    (lambda: vmap(grad(Joined.apply))(BATCH), {"a": np.ones(2), "b": 2 * np.ones(2)}),
    (lambda: grad(lambda d: vmap(Joined.apply)(d).sum())(BATCH), {"a": np.ones(2), "b": 2 * np.ones(2)}),
    (lambda: jvp(Joined.apply, (PAIR,), (swapped(ONE, ONE * 0),))[1], ONE),
    (lambda: gradients_on_the_tape(SWAPPED), {"b": TWO, "a": ONE}),
    (lambda: vjp(lambda x: {"a": x * 1.0, "b": x * 2.0}, ONE)[1](swapped(ONE, ONE * 0)), (ONE,)),
    (lambda: jvp(lambda d: d["a"] * d["b"], (PAIR,), (swapped(ONE, ONE * 0),))[1], THREE),
    (lambda: linearize(lambda d: d["a"] * d["b"], PAIR)[1](swapped(ONE, ONE * 0)), THREE),
    (lambda: vmap(lambda d: d["a"] - d["b"], in_dims=({"b": None, "a": 0},))({"a": np.ones(2), "b": ONE}), np.zeros(2)),
    (lambda: vmap(lambda x: {"a": x, "b": ONE}, out_dims={"b": None, "a": 0})(np.ones(2)), {"a": np.ones(2), "b": ONE}),
    (lambda: vmap(alternating(), chunk_size=1)(np.ones(2)), swapped(np.ones(2), 2 * np.ones(2))),
    (lambda: make_fx(lambda d: d["a"] - d["b"])(PAIR)(SWAPPED), -ONE),
    (lambda: make_fx(lambda d: d["a"] - d["b"])(PAIR).compile()(SWAPPED), -ONE),
], ids=["scan", "scan over data", "vmap of scan", "while_loop", "associative_scan", "map", "cond", "cond other",
        "vmap of cond", "vmap of cond over data", "Function.jvp", "vmap of Function.jvp", "Function.backward",
        "swapped arg", "vmap of grad", "grad of vmap", "transposed backward", "tape", "vjp", "jvp", "linearize",
        "in_dims", "out_dims", "chunks", "graph", "compiled graph"])
def test_keys_in_another_order(call, expected):
    same(call(), expected)


@pytest.mark.parametrize(("call", "error", "found", "wanted"), [
    (lambda: scan(lambda c, _: ((c[0] * 0,) * 3, None), (ONE, (ONE, ONE)), length=2), DispatchTypeError,
     "scan: combine returns ((*, *, *), None)", "((*, (*, *)), ...)"),
    (lambda: of_scan(lambda c, _: ((c["a"] * 1, c["b"] * 1), None)), DispatchTypeError,
     "scan: combine returns ((*, *), None)", "({'a': *, 'b': *}, ...)"),
    (lambda: of_scan(lambda c, _: ({"a": c["a"] * 1, "c": c["b"] * 1}, None)), DispatchTypeError,
     "scan: combine returns ({'a': *, 'c': *}, None)", "({'a': *, 'b': *}, ...)"),
    (lambda: of_scan(lambda c, _: ({"a": c["a"] * 1, "b": None}, None)), DispatchTypeError,
     "scan: combine returns ({'a': *, 'b': None}, None)", "({'a': *, 'b': *}, ...)"),
    (lambda: while_loop(lambda c: c["a"] < 3, lambda c: (c["a"] + 1, c["b"] + 1), (INIT,)), DispatchTypeError,
     "while_loop: body_fn returns (*, *)", "({'a': *, 'b': *},)"),
    (lambda: while_loop(lambda x, y: x < 3, lambda x, y: {"x": x, "y": y}, (ONE, ONE)), DispatchTypeError,
     "while_loop: body_fn returns {'x': *, 'y': *}", "(*, *)"),
    (lambda: associative_scan(lambda x, y: (x["p"] * 1, y["q"] * 1), XS), DispatchTypeError,
     "associative_scan: combine returns (*, *)", "{'p': *, 'q': *}"),
    (lambda: cond(np.array(True), lambda x: (x * 1, x * 1), lambda x: [x * 1, x * 1], (ONE,)), DispatchTypeError,
     "cond: false_fn returns [*, *]", "(*, *), the structure of the result of true_fn"),
    (lambda: grad(Wrong.apply)(PAIR), AutogradError, "found {'a': *, 'c': *}", "expected {'a': *, 'b': *}"),
    (lambda: vmap(grad(Wrong.apply))(BATCH), AutogradError, "found {'a': *, 'c': *}", "expected {'a': *, 'b': *}"),
    (lambda: jvp(Wrong.apply, (PAIR,), (PAIR,)), AutogradError, "found {'a': *, 'c': *}", "expected {'a': *, 'b': *}"),
    (lambda: jvp(WrongTangents.apply, (ONE,), (ONE,)), AutogradError, "{'a': *, 'c': *}", "expected {'a': *, 'b': *}"),
    (lambda: make_fx(lambda d: d["a"] - d["b"])(PAIR)({"a": ONE, "c": ONE}), DispatchTypeError,
     "argument 0 is {'a': *, 'c': *}", "expected {'a': *, 'b': *}"),
    (lambda: make_fx(lambda d: d["x"]["a"])({"x": PAIR, "y": ONE})({"y": ONE, "x": {"b": ONE}}), DispatchTypeError,
     "argument 0['x'] is {'b': *}", "expected {'a': *, 'b': *}"),
], ids=["scan nested", "scan tuple for dict", "scan key", "scan None", "while_loop tuple", "while_loop dict",
        "associative_scan", "cond", "backward", "vmap of backward", "transposed backward", "Function.jvp", "graph",
        "graph inner"])
def test_another_structure(call, error, found, wanted):
    with pytest.raises(error) as raised:
        call()
    first, second = str(raised.value).split("\n")
    assert found in first
    assert wanted in first
    assert second


def test_results_may_change_their_order_with_the_level():
    def last(x):
        init = {"a": x, "b": x * 2}
        final = scan(lambda c, _: (swapped(ops.np.sin(c["b"]), c["a"] * c["b"]), None), init, length=2)[0]
        return final["a"] + 3 * final["b"]

    def unrolled(x):
        a, b = x, x * 2
        for _ in range(2):
            a, b = ops.np.sin(b), a * b
        return a + 3 * b

    same(grad(last)(ONE), grad(unrolled)(ONE))
    same(jvp(last, (ONE,), (ONE,))[1], grad(unrolled)(ONE))
