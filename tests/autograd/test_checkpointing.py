"""Checkpoints: the same values and gradients, with nothing kept in between."""

import functools
import gc
import itertools
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, func, higher_order
from pydispatch.autograd import checkpoint
from pydispatch.exceptions import ConversionError, FunctionalizationError
from pydispatch.ops import ops
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.records import Runs
from tests.together import together


def leaf(*values):
    return Tensor(np.array(values), requires_grad=True)


def program(x, scale):
    return ops.np.exp(ops.np.sin(x) * scale)


def gradient(x, scale):
    return np.exp(np.sin(x) * scale) * scale * np.cos(x)


def test_value_and_gradient_are_those_of_the_function():
    x = leaf(0.5, -1.0)
    y = checkpoint(program, x, 3.0)
    np.testing.assert_allclose(y.detach().numpy(), np.exp(np.sin(x.array) * 3.0), rtol=1e-12)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient(x.array, 3.0), rtol=1e-12)


def test_the_function_runs_again_for_the_backward_pass():
    calls = Runs()

    def counted(x):
        calls.append(autograd.is_grad_enabled())
        return x * x

    x = leaf(3.0)
    y = checkpoint(counted, x)
    assert calls == [False]
    y.backward()
    assert calls == [False, True]
    assert x.grad.item() == 6.0


@pytest.mark.parametrize("tracked", [(True, False), (False, True), (True, True)], ids=["first", "second", "both"])
def test_each_argument_gets_its_gradient(tracked):
    x, y = (Tensor(np.array([2.0]), requires_grad=flag) for flag in tracked)
    checkpoint(lambda a, b: a * b * b, x, y).backward()
    assert (x.grad is not None, y.grad is not None) == tracked
    if tracked[0]:
        assert x.grad.item() == 4.0
    if tracked[1]:
        assert y.grad.item() == 8.0


def test_several_results():
    x = leaf(2.0)
    square, cube = checkpoint(lambda a: (a * a, a * a * a), x)
    (square + cube).backward()
    assert x.grad.item() == 16.0


def test_its_gradient_can_be_differentiated():
    x = leaf(2.0)
    (first,) = autograd.grad(checkpoint(lambda a: a * a * a, x), x, create_graph=True)
    assert first.detach().item() == 12.0
    assert autograd.grad(first + x, x)[0].item() == 13.0


X = np.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 2.0]])


@pytest.mark.parametrize("transformed", [
    pytest.param(lambda f: func.grad(lambda x: f(x).sum()), id="grad"),
    pytest.param(func.vmap, id="vmap"),
    pytest.param(lambda f: lambda x: func.jvp(f, (x,), (x,)), id="jvp"),
    pytest.param(lambda f: func.vmap(func.grad(lambda x: f(x).sum())), id="vmap(grad)"),
    pytest.param(lambda f: func.grad(lambda x: func.vmap(f)(x).sum()), id="grad(vmap)"),
    pytest.param(lambda f: func.hessian(lambda x: f(x).sum()), id="hessian"),
])
def test_it_can_be_transformed(transformed):
    scale = np.array([2.0, 3.0])
    found = transformed(lambda x: checkpoint(program, x, scale))(X)
    expected = transformed(lambda x: program(x, scale))(X)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


def test_arguments_in_containers_and_numbers_that_are_none():
    x, y = leaf(2.0), leaf(3.0)
    result = checkpoint(lambda pair, n, nothing: pair[0] * pair[1]["y"] * n, (x, {"y": y}), 4.0, None)
    assert result.detach().item() == 24.0
    result.backward()
    assert (x.grad.item(), y.grad.item()) == (12.0, 8.0)


# --- what the function captures --------------------------------------------------------------------------------------


WEIGHT = np.array([[0.5, -0.3], [0.8, 0.1]])
GLOBALS = {}


class Layer:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return ops.np.tanh(x @ self.weight)

    def method(self, x):
        return self(x)


def of_global(weight):
    GLOBALS["weight"] = weight
    return lambda x: ops.np.tanh(x @ GLOBALS["weight"])


def of_closure_in_a_closure(weight):
    def inner(x):
        return x @ weight

    return lambda x: ops.np.tanh(inner(x))


HOLDERS = {
    "object": Layer,
    "method": lambda weight: Layer(weight).method,
    "partial": lambda weight: functools.partial(lambda weight, x: ops.np.tanh(x @ weight), weight),
    "closure": of_closure_in_a_closure,
    "global": of_global,
    "checkpoint": lambda weight: lambda x: checkpoint(lambda x: ops.np.tanh(x @ weight), x),
}


def rows(x, weight):
    return ops.np.tanh(x @ weight)


CHAINS = {
    "grad": lambda f: func.grad(f, argnums=(0, 1)),
    "vjp": lambda f: lambda x, w: func.vjp(f, x, w)[1](np.array(1.5)),
    "jvp": lambda f: lambda x, w: func.jvp(f, (x, w), (x + 1, w - 1)),
    "vmap": lambda f: func.vmap(f, in_dims=(0, None)),
    "vmap over weights": lambda f: lambda x, w: func.vmap(f)(x, ops.np.stack([w, 2 * w, w + 1])),
    "grad(grad)": lambda f: func.grad(lambda x, w: (func.grad(f, argnums=1)(x, w) ** 2).sum(), argnums=(0, 1)),
    "grad(vmap)": lambda f: func.grad(lambda x, w: func.vmap(f, in_dims=(0, None))(x, w).sum(), argnums=(0, 1)),
    "grad(vmap over weights)": lambda f: func.grad(
        lambda x, w: func.vmap(f)(x, ops.np.stack([w, 2 * w, w + 1])).sum(), argnums=(0, 1)),
    "vmap(grad)": lambda f: func.vmap(func.grad(f, argnums=(0, 1)), in_dims=(0, None)),
    "vmap(grad(grad))": lambda f: func.vmap(
        func.grad(lambda x, w: (func.grad(f, argnums=1)(x, w) ** 2).sum(), argnums=(0, 1)), in_dims=(0, None)),
    "jvp(grad)": lambda f: lambda x, w: func.jvp(func.grad(f, argnums=(0, 1)), (x, w), (x + 1, w - 1)),
    "grad(jvp)": lambda f: func.grad(lambda x, w: func.jvp(f, (x, w), (x + 1, w - 1))[1], argnums=(0, 1)),
    "hessian": lambda f: func.hessian(f, argnums=1),
    "functionalize": lambda f: func.functionalize(func.grad(f, argnums=(0, 1))),
    "linearize": lambda f: lambda x, w: func.linearize(f, x, w)[1](x + 1, w - 1),
    "make_fx": lambda f: lambda x, w: make_fx(func.grad(f, argnums=(0, 1)))(x * 0, w * 0)(x, w),
    "scan": lambda f: func.grad(
        lambda x, w: higher_order.scan(lambda c, x: (c + f(x, w), None), np.array(0.0), x)[0], argnums=(0, 1)),
    "map": lambda f: func.grad(lambda x, w: higher_order.map(lambda x: f(x, w), x).sum(), argnums=(0, 1)),
    "while_loop": lambda f: func.jvp(lambda w: higher_order.while_loop(
        lambda i, c: i < 2, lambda i, c: (i + 1, c * f(X, w)), (np.array(0), np.array(1.0)))[1], (WEIGHT,), (WEIGHT,))
    and (lambda x, w: func.grad(lambda w: higher_order.while_loop(
        lambda i, c: i < 2, lambda i, c: (i + 1, c * f(x, w)), (np.array(0), np.array(1.0)))[1])(w)),
    "cond": lambda f: func.grad(lambda x, w: higher_order.cond(
        np.array(True), lambda x: f(x, w), lambda x: x.sum() * 1.0, (x,)), argnums=(0, 1)),
    "cond in grad(grad)": lambda f: func.grad(lambda x, w: (func.grad(lambda x, w: higher_order.cond(
        np.array(True), lambda x: f(x, w), lambda x: x.sum() * 1.0, (x,)), argnums=1)(x, w) ** 2).sum(),
        argnums=(0, 1)),
    "map in vmap": lambda f: lambda x, w: func.vmap(lambda w: func.grad(
        lambda x, w: higher_order.map(lambda x: f(x, w), x).sum(), argnums=(0, 1))(x, w))(ops.np.stack([w, w + 1])),
}


def on_the_tape(f):
    def run(x, w):
        x, w = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
        first = autograd.grad(f(x, w), (x, w), create_graph=True)
        return [*first, *autograd.grad((first[0] * first[1].sum()).sum(), (x, w))]

    return run


def in_a_scan_on_the_tape(f):
    def run(x, w):
        x, w = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
        higher_order.scan(lambda c, x: (c + f(x, w), None), np.array(0.0), x)[0].backward()
        return x.grad, w.grad

    return run


TRANSFORMS = {**CHAINS, "tape": on_the_tape, "scan on the tape": in_a_scan_on_the_tape}
REPLACED_IN_EACH_STEP = ("global", "map in vmap")


@together("holder, chain", [pair for pair in itertools.product(HOLDERS, TRANSFORMS) if pair != REPLACED_IN_EACH_STEP])
def test_captured_tensors_are_differentiated(holder, chain):
    transform = TRANSFORMS[chain]
    found = transform(lambda x, w: checkpoint(HOLDERS[holder](w), x).sum())(X, WEIGHT)
    expected = transform(lambda x, w: ops.np.tanh(x @ w).sum())(X, WEIGHT)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        one, other = (leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in (one, other))
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


def test_a_global_that_each_step_of_a_loop_replaces_is_refused(monkeypatch):
    monkeypatch.setitem(GLOBALS, "weight", WEIGHT)
    holder, chain = REPLACED_IN_EACH_STEP
    with pytest.raises(FunctionalizationError, match=r"replaces the key 'weight' of a dict in each step"):
        TRANSFORMS[chain](lambda x, w: checkpoint(HOLDERS[holder](w), x).sum())(X, WEIGHT)


def test_weights_of_a_layer_have_gradients():
    layer = Layer(Tensor(WEIGHT, requires_grad=True))
    checkpoint(layer, X).sum().backward()
    expected = X.T @ (1 - np.tanh(X @ WEIGHT) ** 2)
    np.testing.assert_allclose(layer.weight.grad.numpy(), expected, rtol=1e-12)


def test_of_no_argument():
    weight = leaf(2.0)
    checkpoint(lambda: weight * weight).backward()
    assert weight.grad.item() == 4.0


def test_captured_and_passed():
    x = leaf(3.0)
    checkpoint(lambda y: y * x, x).backward()
    assert x.grad.item() == 6.0


def test_a_captured_tensor_that_is_returned():
    weight = leaf(2.0)
    out, same = checkpoint(lambda: (weight * 3.0, weight))
    (out + same).backward()
    assert weight.grad.item() == 4.0


def test_the_function_may_look_at_data():
    weight = leaf(2.0)

    def decide(x):
        return x * weight if float(x[0]) > 0 else x * weight * weight

    for value, expected in ((1.0, 1.0), (-1.0, -4.0)):
        weight.grad = None
        checkpoint(decide, np.array([value])).backward()
        assert weight.grad.item() == expected


def test_nothing_runs_twice_on_the_way_forward():
    calls = Runs()
    weight = leaf(2.0)

    def counted(x):
        calls.append(x)
        return x * weight

    for transform, expected in ((lambda f: f, 1), (func.vmap, 1), (lambda f: func.grad(lambda x: f(x).sum()), 2)):
        calls.clear()
        transform(lambda x: checkpoint(counted, x))(np.array([3.0]))
        assert len(calls) == expected


@pytest.mark.parametrize("transform", [
    pytest.param(lambda f: lambda x, w: f(Tensor(x), Tensor(w, requires_grad=True)), id="tape"),
    pytest.param(lambda f: func.grad(f, argnums=1), id="grad"),
    pytest.param(lambda f: func.grad(lambda x, w: func.vmap(f, in_dims=(0, None))(x[None], w).sum(), argnums=1),
                 id="grad(vmap)"),
    pytest.param(lambda f: func.grad(lambda x, w: func.grad(f, argnums=1)(x, w).sum(), argnums=1), id="grad(grad)"),
])
def test_nothing_in_between_is_kept(transform):
    alive = []

    def counted(w, x):
        for _ in range(5):
            x = ops.np.tanh(x @ w)
            array = x
            while isinstance(array, Tensor):
                array = _core.value_below(array, array.interpreter) if isinstance(array, _core.Wrapper) else array.array
            alive.append(weakref.ref(array))
        return x

    def program(x, w):
        y = checkpoint(functools.partial(counted, w), x)
        gc.collect()
        assert sum(ref() is not None for ref in alive) <= 1     # the result
        return y.sum()

    transform(program)(X, WEIGHT)
    assert alive


def test_a_captured_value_in_a_list():
    x = np.array([0.5, 1.1, -0.4])
    found = func.grad(lambda x: checkpoint(lambda h: ops.np.stack([h, x]), x).sum())(x)
    np.testing.assert_array_equal(found, [2.0, 2.0, 2.0])


@pytest.mark.parametrize("argument", [2.0, 2 + 0j, np.array(2.0)], ids=["float", "complex", "array"])
def test_a_number_in_the_output_made_from_a_captured_tensor_raises(argument):
    tensor = leaf(3.0, 4.0)

    def gradient():
        y = checkpoint(lambda z: z * float(tensor[0]), argument)
        return autograd.grad(ops.np.sum(y), tensor)

    with pytest.raises(ConversionError, match="used as float"):
        gradient()


def test_a_number_in_the_output_that_nothing_tracked_made_is_returned():
    tensor = leaf(3.0, 4.0)
    y, number = checkpoint(lambda x: (ops.np.sum(x * tensor), 0.5), tensor)
    assert number == 0.5
    assert np.array_equal(autograd.grad(y, tensor)[0].array, [6.0, 8.0])
