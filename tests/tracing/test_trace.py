"""`make_fx`: what it records, what it refuses, and that the graph computes what the function does."""

from __future__ import annotations

import copy
import functools
import gc
import operator
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

import pydispatch.numpy as pnp
from pydispatch import DispatchMode, Tensor, autograd, below_python, compile, func, library, ops
from pydispatch.backends import MetaArray
from pydispatch.exceptions import AliasingError, DataDependentError, DispatchTypeError, FunctionalizationError
from pydispatch.library import Library
from pydispatch.modes import current_mode, mode_stack, no_dispatch
from pydispatch.subclasses import Shell
from pydispatch.tracing import ArraySpec, FakeMode, FakeTensor, Graph, Transformer, get_decompositions, make_fx
from pydispatch.tree import register_pytree_node, tree_flatten, tree_leaves, tree_map, tree_unflatten
from tests.functions import Stateless
from tests.together import together

THREE = np.array([0.25, -1.5, 2.0])
SQUARE = np.array([[0.5, -1.0, 2.0], [1.5, 0.75, -0.25], [3.0, 0.1, 1.0]])
MASK = np.array([True, False, True])
OTHER = np.array([3.0, 4.0, 5.0])
np_ops = ops.np


@pytest.fixture(scope="module")
def custom():
    """Provide operators: a composite, one with a keyword, one with a list, one with a gradient."""
    with Library("traced", "DEF") as lib:
        lib.define("linear(Tensor x, Tensor w, Tensor b) -> Tensor")
        lib.impl("linear", lambda x, w, b: np_ops.add(np_ops.matmul(x, np_ops.transpose(w)), b),
                 "CompositeImplicitAutograd")
        lib.define("scaled_add(Tensor a, Tensor b, *, Scalar alpha=1) -> Tensor")
        lib.impl("scaled_add", lambda a, b, alpha=1: a + alpha * b, "CPU")
        lib.define("halves(Tensor x) -> Tensor[]")
        lib.impl("halves", lambda x: [x[:len(x) // 2].copy(), x[len(x) // 2:].copy()], "CPU")
        lib.define("extremes(Tensor x) -> (Tensor, Tensor)")
        lib.impl("extremes", lambda x: (np.asarray(x.min()), np.asarray(x.max())), "CPU")
        lib.define("count(Tensor x) -> int")
        lib.impl("count", lambda x: int((x > 0).sum()), "CPU")
        lib.define("double_(Tensor(a!) x) -> ()")
        lib.impl("double_", _double, "CPU")
        cube = library.custom_op("traced::cube", lambda x: x ** 3, mutates_args=(), schema="(Tensor x) -> Tensor")
        cube.register_autograd(lambda ctx, g: g * 3 * ctx.saved_tensors[0] * ctx.saved_tensors[0],
                               setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
        cube.register_fake(lambda x: np_ops.empty_like(x))
        yield ops.traced


def _double(x):
    x *= 2


# --- the texts -------------------------------------------------------------------------------------------------------


def lines(graph: Graph) -> list[str]:
    """Return the body of the code, without what lets go of values."""
    return [line.strip().partition(";")[0] for line in graph.code.splitlines()[1:] if line]


def in_place(x):
    y = np_ops.sin(x)
    y += 1
    return y * 2


def written_out(x, o):
    return np_ops.absolute(x, out=o)


def mutating(x):
    x += 1
    return x


def literal(x):
    return x + np.array([3.0, 4.0, 5.0])


def parts(x):
    return np_ops.split(x, 3)[0] + x.max()


def slope(x):
    return func.grad(lambda x: (np_ops.sin(x) * x).sum())(x)


def loss_and_gradient(x):
    x = x.detach().requires_grad_()
    loss = (np_ops.exp(x) * x).sum()
    return loss, autograd.grad(loss, x)[0]


def by_shape(x):
    return x * 2 if x.shape[0] == 3 else x + 1


def switched(x):
    with autograd.no_grad():
        return x * 2


TEXTS = {
    "in place": (in_place, (THREE,), [
        "sin = ops.np.sin(x_1)",
        "add_ = ops.np.add_(sin, 1)",
        "multiply = ops.np.multiply(add_, 2)",
        "return multiply",
    ]),
    "keyword that equals its default": (lambda x: ops.traced.scaled_add(x, x, alpha=1), (THREE,), [
        "scaled_add = ops.traced.scaled_add(x_1, x_1)",
        "check_shape_1 = check_shape(scaled_add, 'scaled_add', (3,))",
        "return scaled_add",
    ]),
    "keyword": (lambda x: ops.traced.scaled_add(x, x, alpha=2), (THREE,), [
        "scaled_add = ops.traced.scaled_add(x_1, x_1, alpha=2)",
        "check_shape_1 = check_shape(scaled_add, 'scaled_add', (3,))",
        "return scaled_add",
    ]),
    "array from elsewhere": (literal, (THREE,), [
        "constant = constants['constant']",
        "add = ops.np.add(x_1, constant)",
        "return add",
    ]),
    "several results": (parts, (THREE,), [
        "split = ops.np.split(x_1, 3)",
        "getitem = split[0]",
        "getitem_1 = split[1]",
        "getitem_2 = split[2]",
        "max_1 = ops.np.max(x_1)",
        "add = ops.np.add(getitem, max_1)",
        "return add",
    ]),
    "composite": (lambda x, w, b: ops.traced.linear(x, w, b), (SQUARE, SQUARE, THREE), [
        "transpose = ops.np.transpose(w_1)",
        "matmul = ops.np.matmul(x_1, transpose)",
        "add = ops.np.add(matmul, b_1)",
        "return add",
    ]),
    "sum(0, keepdims, dtype)": (lambda x: x.sum(0, dtype=np.float64, keepdims=True), (SQUARE,), [
        "sum_1 = ops.np.sum(x_1, (0,), np.dtype('float64'), keepdims=True)",
        "return sum_1",
    ]),
    "grad inside": (slope, (THREE,), [
        "sin = ops.np.sin(x_1)",
        "multiply = ops.np.multiply(sin, x_1)",
        "sum_1 = ops.np.sum(multiply)",
        "ones = ops.np.ones((), dtype=np.dtype('float64'), device='CPU')",
        "broadcast_to = ops.np.broadcast_to(ones, (3,))",
        "multiply_1 = ops.np.multiply(broadcast_to, x_1)",
        "multiply_2 = ops.np.multiply(broadcast_to, sin)",
        "cos = ops.np.cos(x_1)",
        "multiply_3 = ops.np.multiply(multiply_1, cos)",
        "add = ops.np.add(multiply_2, multiply_3)",
        "copy = ops.np.copy(add)",
        "return copy",
    ]),
    "out=": (written_out, (THREE, np.zeros(3)), ["absolute = ops.np.absolute.out(x_1, out=o_1)", "return absolute",]),
    "input that is written to": (mutating, (THREE,), ["add_ = ops.np.add_(x_1, 1)", "return add_",]),
    "branch on a shape": (by_shape, (THREE,), ["multiply = ops.np.multiply(x_1, 2)", "return multiply",]),
    "shape as a number": (lambda x: x.reshape(-1) * x.shape[0], (SQUARE,), [
        "reshape = ops.np.reshape(x_1, (-1,))",
        "multiply = ops.np.multiply(reshape, 3)",
        "return multiply",
    ]),
    "no_grad": (switched, (THREE,), ["multiply = ops.np.multiply(x_1, 2)", "return multiply",]),
    "one array for two parameters": (lambda a, b: a + b, (THREE, THREE), ["add = ops.np.add(a_1, b_1)", "return add",]),
    "a number is baked in": (lambda x, n: x * n, (THREE, 3), ["multiply = ops.np.multiply(x_1, 3)", "return multiply"]),
    "unused operators stay": (lambda x: (np_ops.sin(x), x * 2)[1], (THREE,), [
        "sin = ops.np.sin(x_1)",
        "multiply = ops.np.multiply(x_1, 2)",
        "return multiply",
    ]),
    "factory": (lambda x: x + np_ops.ones(3), (THREE,), [
        "ones = ops.np.ones((3,))",
        "add = ops.np.add(x_1, ones)",
        "return add",
    ]),
    "NumPy scalar": (lambda x: x * np.float64(2), (THREE,), [
        "multiply = ops.np.multiply(x_1, np.float64(2.0))",
        "return multiply",
    ]),
    "detach is no alias": (lambda x: x.detach() * x, (THREE,), [
        "detach = ops.np.detach(x_1)",
        "multiply = ops.np.multiply(detach, x_1)",
        "return multiply",
    ]),
    "astype without a copy": (lambda x: x.astype(float, copy=False) * x, (THREE,), [
        "astype = ops.np.astype(x_1, np.dtype('float64'), copy=False)",
        "multiply = ops.np.multiply(astype, x_1)",
        "return multiply",
    ]),
}


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize(("f", "args", "expected"), TEXTS.values(), ids=TEXTS)
def test_text(f, args, expected):
    assert lines(make_fx(f)(*copy.deepcopy(args))) == expected


def test_text_of_a_joint_graph():
    found = lines(make_fx(loss_and_gradient)(THREE))
    assert found[1:4] == ["exp = ops.np.exp(detach)", "multiply = ops.np.multiply(exp, detach)",
                          "sum_1 = ops.np.sum(multiply)"]
    assert sum("ops.np.multiply" in line for line in found) == 4
    assert found[-1] == "return (sum_1, copy)"


# --- the graph does what the function does ---------------------------------------------------------------------------


class Program(NamedTuple):
    """A function, and the shapes of its arguments."""

    f: Callable[..., Any]
    shapes: tuple[Any, ...]
    check_shapes: bool = True


class Point(NamedTuple):
    x: Any
    y: Any


def view_of_a_result(x):
    y = x * 1
    row = y[0]
    row += 10
    y[1:, 1] = row[0]
    return y, row


def through_views(x):
    flat = x.reshape(-1)
    flat[2:5] *= 3
    return x.T + 1, flat.sum()


def constant_that_is_written(x):
    total = Tensor(np.zeros(3))
    total += x
    total += x
    return total


def view_of_a_constant_that_is_written(x):
    total = Tensor(np.zeros((2, 3)))
    row = total[0]
    row += x
    return total * 2, row


def constant_that_is_returned(x):
    return Tensor(np.array([1.0, 2.0])), x


def raw_constants(x):
    return np_ops.add(np.ones(3), np.ones(3)) * x


def buffer(x):
    result = np_ops.zeros((3, 3))
    for i in range(3):
        result[i] = x * i
    return result


def sum_in_place(x):
    total = x.sum()
    total += 1
    return total


def selections(x):
    index = np_ops.argmax(x, axis=1)
    return x[x > 0].sum(), x[np.array([2, 0])], np_ops.take_along_axis(x, index.reshape(3, 1), 1)


def put(x):
    y = x.copy()
    y[MASK] = 0.0
    y[np.array([0, 0])] += 1.0
    return y


def layers(x, weights):
    for w, b in weights:
        x = np_ops.tanh(x @ w + b)
    return x


def pytrees(tree):
    (first, second), third = tree["a"], tree["b"]
    return {"sum": first + third, "rest": [second, None, ("text", 2, 1.5)], "point": Point(third, 0)}


def doubly_differentiated(x):
    x = x.detach().requires_grad_()
    first, = autograd.grad((np_ops.sin(x) * x * x).sum(), x, create_graph=True)
    second, = autograd.grad((first * first).sum(), x)
    return first.detach(), second


def value_slope_and_tangent(x):
    value, gradient = func.value_and_grad(lambda x: (x * np_ops.exp(x)).sum())(x)
    return value, gradient, func.jvp(lambda x: np_ops.tanh(x) * x, (x,), (x * 2,))


def tangent_of_a_gradient(x):
    return func.jvp(func.grad(lambda x: (x * x * np_ops.sin(x)).sum()), (x,), (np_ops.ones(3),))


def pulled_back(x):
    output, vjp_fn = func.vjp(lambda x: x[::-1] * x, x)
    return vjp_fn(output)


def backward_to_a_leaf(x):
    x = x.detach().requires_grad_()
    (x * x * x).sum().backward()
    return x.grad


def write_then_differentiate(x):
    x = x.detach().requires_grad_()
    y = x * 1
    y[0] = 5.0
    y *= x
    return autograd.grad(y.sum(), x)[0]


def hooked(x):
    x = x.detach().requires_grad_()
    x.register_hook(lambda g: g * 2)
    return autograd.grad((x * x).sum(), x)[0]


def checkpointed(x):
    x = x.detach().requires_grad_()
    return autograd.grad(autograd.checkpoint(lambda x: np_ops.sin(x) * x, x).sum(), x)[0]


class Twice(Stateless):
    """x * 2, whose gradient is said to be 5."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 5


def through_a_function(x):
    x = x.detach().requires_grad_()
    return autograd.grad(Twice.apply(x * x).sum(), x)[0], autograd.grad(Twice.apply(x).sum(), x)[0]


def accumulated(x):
    x = x.detach().requires_grad_()
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    np_ops.split(x * x, 3)[1].sum().backward()
    return x.grad, y.grad


def statistics(x):
    return x.mean(0), x.std(axis=1, keepdims=True), np_ops.var(x, ddof=1), np_ops.clip(x, -1, 1)


def views(x):
    return x.T, x.mT, x.swapaxes(0, 1), np_ops.moveaxis(x, 0, -1), np_ops.expand_dims(x, 0).squeeze(), x[..., None, ::2]


def joins(x, y):
    return np_ops.stack([x, y]), np_ops.concatenate((x, y)), np_ops.where(x > y, x, y)


def constants_alone(x):
    n = np_ops.arange(4)[2].item()
    return x * n, np_ops.full((2,), float(np_ops.sum(np.ones(3))))


def known_after_a_write(x):
    mask = np_ops.zeros(3)
    mask[1] = 1.0
    return x * mask if bool(mask[1] > 0) else x


PROGRAMS = {
    "in place": Program(in_place, (3,)),
    "view of a result is written to": Program(view_of_a_result, ((3, 3),)),
    "views of an input are written to": Program(through_views, ((3, 3),)),
    "input is written to": Program(mutating, (3,)),
    "out=": Program(written_out, (3, 3)),
    "array from elsewhere": Program(literal, (3,)),
    "constant is written to": Program(constant_that_is_written, (3,)),
    "view of a constant is written to": Program(view_of_a_constant_that_is_written, (3,)),
    "constant is returned": Program(constant_that_is_returned, (3,)),
    "operators on raw constants": Program(raw_constants, (3,)),
    "rows of a buffer": Program(buffer, (3,)),
    "sum in place": Program(sum_in_place, (3,)),
    "several results": Program(parts, (3,)),
    "indexing": Program(selections, ((3, 3),), check_shapes=False),
    "writing by masks and indices": Program(put, (3,)),
    "loop": Program(layers, ((4, 3), [((3, 5), (5,)), ((5, 2), (2,))])),
    "pytrees": Program(pytrees, ({"a": [3, 2], "b": 3},)),
    "named tuple": Program(lambda point: Point(point.y * 2, point.x), (Point(3, 3),)),
    "one array for two parameters": Program(lambda a, b: (a + b, a), (3, 3)),
    "result is an input": Program(lambda x, y: y, (3, 3)),
    "no result": Program(lambda x: None, (3,)),
    "grad": Program(slope, (3,)),
    "autograd.grad": Program(loss_and_gradient, (3,)),
    "second derivative": Program(doubly_differentiated, (3,)),
    "value_and_grad, jvp": Program(value_slope_and_tangent, (3,)),
    "jvp of grad": Program(tangent_of_a_gradient, (3,)),
    "vjp": Program(pulled_back, (3,)),
    "backward": Program(backward_to_a_leaf, (3,)),
    "gradient through writes": Program(write_then_differentiate, (3,)),
    "hook": Program(hooked, (3,)),
    "checkpoint": Program(checkpointed, (3,)),
    "Function": Program(through_a_function, (3,)),
    "gradients that are accumulated": Program(accumulated, (3,)),
    "reductions": Program(statistics, ((3, 4),)),
    "views": Program(views, ((3, 4),)),
    "joins": Program(joins, (3, 3)),
    "numbers of constants": Program(constants_alone, (3,)),
    "numbers of constants after a write": Program(known_after_a_write, (3,)),
    "composite": Program(lambda x, w, b: ops.traced.linear(x, w, b), ((2, 3), (4, 3), (4,))),
    "list of a custom operator": Program(lambda x: ops.traced.halves(x)[1] * 2, (4,)),
    "two results of a custom operator": Program(lambda x: np_ops.subtract(*ops.traced.extremes(x)), (4,)),
    "custom operator that returns nothing": Program(lambda x: (ops.traced.double_(x), x + 1)[1], (3,)),
    "gradient of a custom operator": Program(
        lambda x: (ops.traced.cube(x), func.grad(lambda x: ops.traced.cube(x).sum())(x)), (3,)),
}
NEEDS_DATA = ("constant is written to", "indexing", "numbers of constants", "numbers of constants after a write",
              *[name for name in PROGRAMS if "custom operator" in name and "gradient" not in name])


def arguments(shapes: Any, seed: int) -> Any:
    """Return arrays of these shapes, nested alike."""
    if isinstance(shapes, int):
        return np.random.default_rng(seed).standard_normal(shapes)
    if type(shapes) is tuple and all(isinstance(n, int) for n in shapes):
        return np.random.default_rng(seed).standard_normal(shapes)
    if isinstance(shapes, dict):
        return {key: arguments(shape, seed + i) for i, (key, shape) in enumerate(shapes.items())}
    children = [arguments(shape, seed + i) for i, shape in enumerate(shapes)]
    return type(shapes)(*children) if hasattr(shapes, "_fields") else type(shapes)(children)


def all_arguments(program: Program, seed: int) -> tuple[Any, ...]:
    return tuple([arguments(shape, seed + 10 * i) for i, shape in enumerate(program.shapes)])


def all_arguments_of(graph: Graph) -> Any:
    leaves = [np.full(node.meta["val"].shape, 0.5) for node in graph.placeholders]
    return tree_unflatten(leaves, graph.in_spec)


def wrapped(value: Any) -> Any:
    return tree_map(lambda leaf: Tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, value)


def check_equal(found: Any, expected: Any) -> None:
    found_leaves, found_spec = tree_flatten(found)
    leaves, spec = tree_flatten(expected)
    assert found_spec == spec
    for value, right in zip(found_leaves, leaves, strict=True):
        if isinstance(right, (Tensor, np.ndarray, np.generic)):
            raw, right = [np.asarray(one.array if isinstance(one, Tensor) else one) for one in (value, right)]
            assert (raw.dtype, raw.shape) == (right.dtype, right.shape)
            np.testing.assert_allclose(raw, right, rtol=1e-13)
        else:
            assert type(value) is type(right)
            assert value == right


def check_runs(run: Callable[..., Any], program: Program) -> None:
    """Assert that the graph is the function on arguments that it was not traced with, twice, raw and as Tensors."""
    for seed in (1, 2):
        eager = wrapped(all_arguments(program, seed))
        expected = program.f(*eager)
        raw, tensors = all_arguments(program, seed), wrapped(all_arguments(program, seed))
        found_raw, found = run(*raw), run(*tensors)
        check_equal(found_raw, expected)
        check_equal(found, expected)
        assert not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found_raw))
        check_equal(raw, eager)             # what is written to arguments
        check_equal(tensors, eager)


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize("name", PROGRAMS)
def test_run(name):
    program = PROGRAMS[name]
    graph = make_fx(program.f, check_shapes=program.check_shapes)(*all_arguments(program, 0))
    graph.lint()
    check_runs(graph, program)


def without_dead_code(graph: Graph) -> Graph:
    graph.eliminate_dead_code()
    graph.lint()
    return graph


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize("change", [
    without_dead_code, Graph.compile, lambda graph: pickle.loads(pickle.dumps(graph)),
    lambda graph: Transformer(graph).transform(),
    lambda graph: make_fx(graph, check_shapes=graph.check_shapes)(*all_arguments_of(graph)),
], ids=["without dead code", "compiled", "pickled", "transformed", "traced again"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_run_of_what_is_made_of_the_graph(name, change):
    program = PROGRAMS[name]
    graph = make_fx(program.f, check_shapes=program.check_shapes)(*all_arguments(program, 0))
    check_runs(change(graph), program)


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NEEDS_DATA])
def test_run_of_what_was_traced_without_data(name):
    program = PROGRAMS[name]
    args = all_arguments(program, 0)
    before = copy.deepcopy(args)
    graph = make_fx(program.f, tracing_mode="fake")(*args)
    check_equal(args, before)
    check_runs(graph, program)


@pytest.mark.parametrize("name", ["in place", "grad", "views", "reductions", "loop"])
def test_tensors_as_examples(name):
    program = PROGRAMS[name]
    graph = make_fx(program.f)(*wrapped(all_arguments(program, 0)))
    assert graph.code == make_fx(program.f)(*all_arguments(program, 0)).code


# --- arguments -------------------------------------------------------------------------------------------------------


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.find_nodes(op="placeholder")]


def with_rest(first, *rest):
    return first


def test_names_of_leaves():
    graph = make_fx(lambda x, d, n: x)(THREE, {"a": THREE, "b": [THREE, None]}, 2)
    assert names(graph) == ["x_1", "d_1", "d_2", "d_3", "n_1"]
    assert names(make_fx(with_rest)(THREE, THREE, [THREE])) == ["first_1", "rest_1", "rest_2"]
    assert names(make_fx(ops.np.sin.default)(THREE)) == ["x_1"]
    assert names(make_fx(min)([THREE])) == ["arg_1"]


def test_wrong_number_of_arguments():
    with pytest.raises(DispatchTypeError, match=r"missing a required argument: 'y'\npass .*: make_fx\(f\)\(x, y\)$"):
        make_fx(lambda x, y: x)(THREE)
    assert current_mode() is None


def test_an_error_inside_the_function_stays():
    wraps_two = functools.wraps(lambda x, y: x)(lambda x: ops.np.add(x, x))     # its signature is not its own
    assert make_fx(wraps_two)(THREE)(THREE).tolist() == (THREE + THREE).tolist()
    for function in (lambda x: x + "a", lambda x: max(1, x, key=3)):
        with pytest.raises(TypeError) as found:
            make_fx(function)(THREE)
        assert "make_fx(f)" not in str(found.value)


def test_tracing_computes_and_writes():
    x = THREE.copy()
    make_fx(mutating)(x)
    np.testing.assert_array_equal(x, THREE + 1)


def test_array_that_is_captured_and_passed():
    graph = make_fx(lambda x: x + THREE)(THREE)
    np.testing.assert_array_equal(graph(OTHER), OTHER + THREE)
    tensor = Tensor(THREE)
    graph = make_fx(lambda x: x + tensor)(tensor)
    np.testing.assert_array_equal(graph(OTHER), OTHER + THREE)


def test_one_tensor_for_two_parameters():
    for requires_grad in (False, True):
        x = Tensor(THREE, requires_grad=requires_grad)
        graph = make_fx(lambda a, b: a - b)(x, x)
        np.testing.assert_array_equal(graph(OTHER, THREE), OTHER - THREE)


def test_one_foreign_array_for_two_parameters(backends):
    x = backends.ArrayA(THREE)
    with pytest.raises(DispatchTypeError, match=r"arguments a_1 and b_1 are the same ArrayA.*\npass a copy"):
        make_fx(lambda a, b: a)(x, x)


def test_overlapping_arguments():
    x = np.arange(4.0)

    def f(a, b):
        a += 1
        return b * 2

    graph = make_fx(f)(x[:3], x[1:])
    y = np.arange(4.0)
    np.testing.assert_array_equal(graph(y[:3], y[1:]), [4, 6, 6])


def test_meta_arrays_as_arguments():
    graph = make_fx(lambda a, b: a @ b)(MetaArray((3, 3)), MetaArray((3, 3)))
    np.testing.assert_array_equal(graph(SQUARE, SQUARE), SQUARE @ SQUARE)
    x = MetaArray((3,))
    assert lines(make_fx(lambda a, b: a - b)(x, x)) == ["subtract = ops.np.subtract(a_1, b_1)", "return subtract"]


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("capture", [
    lambda: THREE, lambda: Tensor(THREE), lambda: Tensor(THREE, requires_grad=True),
    lambda: Tensor(THREE, requires_grad=True) * 1,
])
def test_what_is_captured_is_not_the_argument(capture, mode):
    captured = capture()
    graph = make_fx(lambda x: x * captured, tracing_mode=mode)(captured)
    np.testing.assert_array_equal(getattr(found := graph(OTHER), "array", found), OTHER * THREE)


class OfASubclass(Tensor):
    pass


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("tracked", [False, True])
def test_what_cannot_be_told_from_the_argument_is_refused(tracked, mode):
    captured = OfASubclass(THREE.copy(), requires_grad=tracked)
    trace = make_fx(lambda x: x * captured, tracing_mode=mode)
    if mode == "real":
        with pytest.raises(DispatchTypeError, match=r"argument x_1 .* that the function also captures\npass a copy"):
            trace(captured)
    graph = trace(captured if mode == "fake" else OfASubclass(THREE.copy()))
    np.testing.assert_array_equal(getattr(found := graph(OTHER), "array", found), OTHER * THREE)


def test_leaf_of_the_tape_as_argument():
    def f(x):
        (x * x).sum().backward()
        return x.grad * 1

    graph = make_fx(f)(Tensor(THREE, requires_grad=True))
    np.testing.assert_array_equal(graph(OTHER), 2 * OTHER)


def test_number_stays_what_it_was():
    graph = make_fx(lambda x, n, flag: x * n if flag else x)(THREE, 3, True)
    np.testing.assert_array_equal(graph(OTHER, 3, True), OTHER * 3)
    for args in ((OTHER, 4, True), (OTHER, 3.0, True), (OTHER, 3, False)):
        with pytest.raises(DispatchTypeError, match=r"n_1|flag_1"):
            graph(*args)


class Box:
    def __init__(self, inside):
        self.inside = inside


register_pytree_node(Box, lambda box: ([box.inside], None), lambda children, _: Box(*children))


def test_registered_container():
    graph = make_fx(lambda box: Box(box.inside * 2))(Box(THREE))
    found = graph(Box(OTHER))
    assert type(found) is Box
    np.testing.assert_array_equal(found.inside, OTHER * 2)


# --- what is known of nodes ------------------------------------------------------------------------------------------


def test_meta():
    def f(x, n):
        return np_ops.split(x, 3), x.sum()      # the line of the calls

    graph = make_fx(f)(THREE, 2)
    spec = {node.name: node.meta["val"] for node in graph.nodes if "val" in node.meta}
    third, scalar = ArraySpec((1,), np.dtype(float), "CPU"), ArraySpec((), np.dtype(float), "CPU")
    assert spec["x_1"] == ArraySpec((3,), np.dtype(float), "CPU")
    assert spec["n_1"] == 2
    assert spec["split"] == (third, third, third)
    assert spec["getitem"] == third
    assert spec["sum_1"] == scalar
    line = f.__code__.co_firstlineno + 1
    calls = graph.find_nodes(op="call_function")
    assert len(calls) == 5
    assert {node.meta["site"] for node in calls} == {f"{__file__}:{line}"}


def test_targets_are_overloads():
    graph = make_fx(lambda x: np_ops.absolute(np_ops.split(x, 3)[0], out=np_ops.zeros(1)))(THREE)
    targets = [node.target for node in graph.find_nodes(op="call_function")]
    assert targets == [np_ops.split.default, operator.getitem, operator.getitem, operator.getitem, np_ops.zeros.default,
                       np_ops.absolute.out]


# --- constants -------------------------------------------------------------------------------------------------------


def test_constant_is_there_once():
    graph = make_fx(lambda x: (x + OTHER) * OTHER - Tensor(OTHER))(THREE)
    assert list(graph.constants) == ["constant"]
    np.testing.assert_array_equal(graph(THREE), (THREE + OTHER) * OTHER - OTHER)


def test_constant_does_not_follow_its_array():
    captured = OTHER.copy()
    graph = make_fx(lambda x: x + captured)(THREE)
    captured += 100
    np.testing.assert_array_equal(graph(THREE), THREE + OTHER)


def test_written_constant_does_not_accumulate():
    captured = Tensor(np.zeros(3))

    def f(x):
        np_ops.add_(captured, x)
        return captured * 1

    graph = make_fx(f)(THREE)
    np.testing.assert_array_equal(captured.array, THREE)
    for _ in range(3):
        np.testing.assert_array_equal(graph(OTHER), OTHER)
    np.testing.assert_array_equal(captured.array, THREE)


def test_returned_constant_is_a_copy():
    graph = make_fx(constant_that_is_returned)(THREE)
    first, _ = graph(THREE)
    first[:] = 100
    np.testing.assert_array_equal(graph(THREE)[0], [1, 2])


def test_array_that_numpy_writes_to_between_uses():
    captured = np.zeros(3)

    def f(x):
        first = x + captured
        captured[:] = 5
        return first, x + captured

    graph = make_fx(f)(THREE)
    check_equal(graph(OTHER), (OTHER, OTHER + 5))


def test_constants_that_share_memory():
    memory = np.zeros(4)

    def f(x):
        left, right = Tensor(memory[:3]), Tensor(memory[1:])
        left += x
        return left + right

    with pytest.raises(AliasingError, match="share memory, and the traced function writes to one"):
        make_fx(f)(THREE)
    assert current_mode() is None


def test_opaque_argument(fresh, define):
    scale = define(fresh, "scale(Tensor x, Any how) -> Tensor", CPU=lambda x, how: how(x))
    graph = make_fx(lambda x: scale(x, np.sin))(THREE)
    np.testing.assert_array_equal(graph(OTHER), np.sin(OTHER))


# --- numbers ---------------------------------------------------------------------------------------------------------

NUMBERS = {
    "bool": lambda x: x if x.sum() > 0 else -x,
    "float": lambda x: x * float(x.sum()),
    "int": lambda x: x[int(x[2])],
    "complex": lambda x: x * complex(x.sum()),
    "item": lambda x: x * x[0].item(),
    "index": lambda x: [1, 2, 3][np_ops.argmax(x)],
    "contains": lambda x: 2.0 in x,
    "tolist": lambda x: np_ops.add(x, x.tolist()[0]),
    "numpy()": lambda x: x + x.numpy(),
    "asarray": lambda x: x + np.asarray(x),
    "float64(x)": lambda x: x + np.float64(x[0]),
    "of a result": lambda x: np_ops.sin(x).sum().item(),
    "of a constant that was written to": lambda x: _written(x).item(),
    "of a view of a constant that was written to": lambda x: _written_by_view(x).item(),
}


def _written(x):
    total = np_ops.zeros(())
    total += x.sum()
    return total


def _written_by_view(x):
    total = Tensor(np.zeros(2))
    last = total[1, ...]
    part = total[1:]
    part += x[0]
    return last


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
@together("f", NUMBERS.values(), ids=NUMBERS)
def test_number_of_a_traced_value(f, tracing_mode):
    with pytest.raises(DataDependentError):
        make_fx(f, tracing_mode=tracing_mode)(THREE)
    assert current_mode() is None


def test_advice():
    with pytest.raises(DataDependentError) as caught:
        make_fx(NUMBERS["bool"])(THREE)
    first, second = str(caught.value).splitlines()
    assert first.startswith("make_fx: greater, which depends on the arguments of the trace, was used as a Python num")
    assert f"{__file__}:" in first
    assert "To choose: np.where(condition, a, b) or pydispatch.higher_order.cond" in second


def test_values_of_constants_are_known():
    def f(x):
        table = Tensor(OTHER)
        assert table.tolist() == [3.0, 4.0, 5.0]
        np.testing.assert_array_equal(np.asarray(table), OTHER)
        assert float(np_ops.sum(table) * 2) == 24.0
        return x * int(table[0])

    np.testing.assert_array_equal(make_fx(f)(THREE)(OTHER), OTHER * 3)


@pytest.mark.usefixtures("custom")
def test_values_of_custom_operators_are_not_known():
    with pytest.raises(DataDependentError):
        make_fx(lambda x: x * ops.traced.cube(np.array(2.0)).item())(THREE)


@pytest.mark.usefixtures("custom")
def test_operator_that_returns_a_number():
    with pytest.raises(DataDependentError, match=r"traced::count: the result 2 is not an array.*\nreturn a 0-d array"):
        make_fx(lambda x: x * ops.traced.count(x))(THREE)


def test_what_numpy_makes_of_a_result_is_no_constant():
    with pytest.raises(DataDependentError, match=r"an array that NumPy made from a traced value.*\nuse the Tensors"):
        make_fx(lambda x: x + np_ops.sin(x).array[:])(THREE)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("custom")
def test_custom_operator_is_one_node():
    graph = make_fx(func.grad(lambda x: ops.traced.cube(x).sum()))(THREE)
    assert len(graph.find_nodes(target=ops.traced.cube)) == 1
    np.testing.assert_allclose(graph(OTHER), 3 * OTHER ** 2)


def test_tape_is_on_under_the_trace():
    x = Tensor(THREE, requires_grad=True)
    results = []
    make_fx(lambda x: results.append((x * x).sum()))(x)
    np.testing.assert_array_equal(autograd.grad(results[0], x)[0].array, 2 * THREE)


def test_trace_inside_of_grad():
    graphs = []

    def f(x):
        graphs.append(make_fx(lambda x: x * x)(x))
        return graphs[0](x).sum()

    np.testing.assert_array_equal(func.grad(f)(THREE), 2 * THREE)
    assert lines(graphs[0]) == ["multiply = ops.np.multiply(x_1, x_1)", "return multiply"]


def test_graph_is_differentiable():
    graph = make_fx(lambda x: np_ops.sin(x) * x)(THREE)
    np.testing.assert_allclose(func.grad(lambda x: graph(x).sum())(OTHER), np.cos(OTHER) * OTHER + np.sin(OTHER))


def test_autograd_function():
    graph = make_fx(func.grad(lambda x: (Twice.apply(x) * x.detach()).sum()))(THREE)
    np.testing.assert_array_equal(graph(OTHER), 5 * OTHER)


# --- modes and nesting -----------------------------------------------------------------------------------------------


def test_nested_traces():
    inner = []

    def f(x):
        inner.append(make_fx(lambda y: y * 2)(x))
        return inner[0](x) + 1

    graph = make_fx(f)(THREE)
    np.testing.assert_array_equal(graph(OTHER), OTHER * 2 + 1)
    np.testing.assert_array_equal(inner[0](OTHER), OTHER * 2)
    assert len(graph.find_nodes(target=np_ops.multiply)) == 2


def test_nested_traces_of_a_gradient_through_writes():
    inner = []

    def f(x):
        inner.append(make_fx(write_then_differentiate)(x))
        return inner[0](x)

    outer = make_fx(f)(THREE)
    expected = write_then_differentiate(Tensor(OTHER)).array
    np.testing.assert_allclose(inner[0](OTHER), expected)
    np.testing.assert_allclose(outer(OTHER), expected)


class Doubling(DispatchMode):
    def __pydispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + result if func is np_ops.sin.default else result


def test_mode_that_is_entered_inside():
    def f(x):
        with Doubling():
            return np_ops.sin(x)

    assert lines(make_fx(f)(THREE)) == ["sin = ops.np.sin(x_1)", "add = ops.np.add(sin, sin)", "return add"]


def test_mode_that_is_on_around():
    with Doubling():
        graph = make_fx(np_ops.sin.default)(THREE)
    assert lines(graph) == ["sin = ops.np.sin(x_1)", "return sin"]


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
def test_exception_restores_everything(tracing_mode):
    def f(x):
        np_ops.sin(x)
        raise KeyError("f")

    with Doubling() as outer:
        with pytest.raises(KeyError):
            make_fx(f, tracing_mode=tracing_mode)(THREE)
        assert mode_stack() == (outer,)
    assert mode_stack() == ()


def test_values_are_let_go():
    kept = []

    def f(x):
        kept.extend(map(weakref.ref, (np_ops.sin(x).array, x.array)))
        return x * 2

    graph = make_fx(f)(THREE)
    gc.collect()
    assert [reference() for reference in kept] == [None, None]
    np.testing.assert_array_equal(graph(OTHER), OTHER * 2)


def test_kinds_of_functions():
    class Model:
        def __call__(self, x):
            return x * 2

        def method(self, x):
            return x * 2

    def scaled(factor, x):
        return x * factor

    for f in (Model(), Model().method, functools.partial(scaled, 2)):
        graph = make_fx(f)(THREE)
        assert names(graph) == ["x_1"]
        np.testing.assert_array_equal(graph(OTHER), OTHER * 2)


def test_failed_call_is_not_in_the_graph():
    def f(x):
        try:
            x @ np.ones(7)
        except ValueError:
            return x * 2
        return x

    assert [line for line in lines(make_fx(f)(THREE)) if "ops." in line] == ["multiply = ops.np.multiply(x_1, 2)"]


def test_traces_in_threads():
    graphs = {}
    barrier = threading.Barrier(4)

    def work(n):
        def f(x):
            for _ in range(n):
                barrier.wait()
                x = x + n
            for _ in range(4 - n):
                barrier.wait()
            return x

        graphs[n] = make_fx(f)(THREE)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(1, 5):
        assert len(graphs[n].find_nodes(target=np_ops.add)) == n
        np.testing.assert_array_equal(graphs[n](OTHER), OTHER + n * n)


# --- without data ----------------------------------------------------------------------------------------------------


def test_fake_inputs():
    seen = []
    graph = make_fx(lambda x: (seen.append(x), x * 2)[1], tracing_mode="fake")(THREE)
    assert isinstance(seen[0], FakeTensor)
    np.testing.assert_array_equal(graph(OTHER), OTHER * 2)


def test_fakes_of_the_caller():
    mode = FakeMode()
    x = mode.from_array(THREE)
    for tracing_mode in ("real", "fake"):
        graph = make_fx(lambda x: np_ops.sin(x), tracing_mode=tracing_mode)(x)
        np.testing.assert_array_equal(graph(OTHER), np.sin(OTHER))


def test_huge_arrays_are_not_made():
    graph = make_fx(lambda x: (x @ np_ops.ones((10 ** 6, 10 ** 6))).sum(), tracing_mode="fake")(MetaArray((10 ** 6,)))
    assert graph.find_nodes(target=np_ops.matmul)[0].meta["val"].shape == (10 ** 6,)


def test_constant_cannot_be_written_to_without_data():
    with pytest.raises(DispatchTypeError, match="holds an array with data"):
        make_fx(constant_that_is_written, tracing_mode="fake")(THREE)


def test_constant_does_not_accumulate_without_data():
    zeros = Tensor(np.zeros((2, 3)))

    def f(x):
        row = zeros[0]
        row += x
        return zeros * 2

    graph = make_fx(f, tracing_mode="fake")(THREE)
    np.testing.assert_array_equal(zeros.array, np.zeros((2, 3)))
    for _ in range(2):
        np.testing.assert_array_equal(graph(OTHER), [2 * OTHER, np.zeros(3)])


def test_small_constants_are_known_without_data():
    graph = make_fx(lambda x: x * (np_ops.full((), 3.0) + 1).item(), tracing_mode="fake")(THREE)
    np.testing.assert_array_equal(graph(OTHER), OTHER * 4)


def test_leaf_from_elsewhere_without_data():
    weight = Tensor(OTHER, requires_grad=True)

    def f(x):
        return autograd.grad((x * x * weight).sum(), weight)[0]

    np.testing.assert_array_equal(make_fx(f, tracing_mode="fake")(THREE)(OTHER), OTHER * OTHER)


def test_unknown_tracing_mode():
    with pytest.raises(DispatchTypeError, match=r"tracing_mode is 'symbolic', expected 'real' or 'fake'\n"):
        make_fx(in_place, tracing_mode="symbolic")


# --- decompositions --------------------------------------------------------------------------------------------------


def test_decomposition():
    graph = make_fx(lambda x: np_ops.square(x) + 1, decompositions={np_ops.square.default: lambda x: x * x})(THREE)
    assert lines(graph) == ["multiply = ops.np.multiply(x_1, x_1)", "add = ops.np.add(multiply, 1)", "return add"]


def test_decompositions_of_pieces():
    table = get_decompositions([np_ops.std, np_ops.var, np_ops.mean])
    graph = make_fx(lambda x: x.std(axis=0), decompositions=table)(SQUARE)
    assert [node.target for node in graph.find_nodes(op="call_function")] == [
        getattr(np_ops, name).default
        for name in ("sum", "divide", "subtract", "multiply", "sum", "divide", "sqrt")]
    np.testing.assert_allclose(graph(SQUARE.T.copy()), SQUARE.T.std(axis=0))


def test_decomposition_that_declines():
    table = get_decompositions([np_ops.square])
    graph = make_fx(lambda x: np_ops.square(x) * np_ops.square(x.astype(int)), decompositions=table)(THREE)
    assert len(graph.find_nodes(target=np_ops.square)) == 1
    np.testing.assert_array_equal(graph(OTHER), OTHER ** 4)


def test_decomposition_of_the_way_back():
    table = get_decompositions([np_ops.absolute, np_ops.square])
    graph = make_fx(func.grad(lambda x: np_ops.square(x).sum()), decompositions=table)(THREE)
    assert not graph.find_nodes(target=np_ops.square)
    np.testing.assert_array_equal(graph(OTHER), 2 * OTHER)


def test_decomposition_keeps_the_gradient():
    table = {np_ops.square.default: lambda x: x * x}
    x = Tensor(THREE, requires_grad=True)
    results = []
    make_fx(lambda x: results.append(np_ops.square(x).sum()), decompositions=table)(x)
    np.testing.assert_array_equal(autograd.grad(results[0], x)[0].array, 2 * THREE)


def test_decomposition_for_a_packet():
    with pytest.raises(DispatchTypeError, match=r"expected an OpOverload\npass the overload"):
        make_fx(in_place, decompositions={np_ops.square: lambda x: x * x})


# --- subclasses ------------------------------------------------------------------------------------------------------


class Two(Tensor):
    def __init__(self, a, b, *, requires_grad=False):
        super().__init__(Shell(a), requires_grad=requires_grad)
        self.a, self.b = a, b

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        def pick(name):
            return tree_map(lambda leaf: getattr(leaf, name) if isinstance(leaf, Two) else leaf, (args, kwargs or {}))

        (args_a, kwargs_a), (args_b, kwargs_b) = pick("a"), pick("b")
        return cls(func(*args_a, **kwargs_a), func(*args_b, **kwargs_b))


class Sneaky(Tensor):
    """Is-a, with a handler that computes where no mode can see it."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return super().__pydispatch__(func, types, args, kwargs)


class Open(Tensor):
    """Is-a, with a handler that calls the operator on Tensors."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        plain = tree_map(lambda leaf: Tensor(leaf.array) if isinstance(leaf, Open) else leaf, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def test_subclass_that_is_made_inside():
    def f(a, b, y):
        product = Two(a, b) * y
        return product.a, product.b, y + y

    graph = make_fx(f)(THREE, OTHER, THREE)
    assert lines(graph) == ["multiply = ops.np.multiply(a_1, y_1)", "multiply_1 = ops.np.multiply(b_1, y_1)",
                            "add = ops.np.add(y_1, y_1)", "return (multiply, multiply_1, add)"]
    check_equal(graph(OTHER, THREE, OTHER), (OTHER * OTHER, THREE * OTHER, OTHER + OTHER))


def test_gradient_of_a_subclass_that_is_made_inside():
    def f(a, b):
        x = Two(a, b, requires_grad=True)
        gradient, = autograd.grad((x * x).sum(), x)
        return gradient.a, gradient.b

    check_equal(make_fx(f)(THREE, OTHER)(OTHER, THREE), (2 * OTHER, 2 * THREE))


def test_subclass_as_argument():
    graph = make_fx(lambda x, y: np_ops.sin(x) * y)(Two(Tensor(THREE), Tensor(OTHER)), THREE)
    assert lines(graph) == ["sin = ops.np.sin(x_1)", "multiply = ops.np.multiply(sin, y_1)", "return multiply"]
    found = graph(Two(Tensor(OTHER), Tensor(THREE)), OTHER)
    check_equal((found.a, found.b), (np.sin(OTHER) * OTHER, np.sin(THREE) * OTHER))


def test_inner_value_of_an_argument():
    with pytest.raises(DispatchTypeError, match=r"that the argument x_1 holds was used directly.*\npass the arrays"):
        make_fx(lambda x: x.a + 1)(Two(Tensor(THREE), Tensor(OTHER)))


def test_inner_value_of_a_traceable_argument():
    class Slotted(Tensor):
        __slots__ = ("inner",)

        def __init__(self, inner):
            super().__init__(Shell(inner))
            self.inner = inner

        def __tensor_flatten__(self):
            return ("inner",), None

        @staticmethod
        def __tensor_unflatten__(inner, context, shape, strides):
            return Slotted(inner["inner"])

        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            inner = [leaf.inner if isinstance(leaf, Slotted) else leaf for leaf in args]
            return cls(func(*inner, **(kwargs or {})))

    with pytest.raises(DispatchTypeError, match=r"an array that the argument x_1 holds was used directly"):
        make_fx(lambda x: np_ops.add(x.inner, 1))(Slotted(THREE))
    graph = make_fx(lambda x: (Slotted(x) + 1).inner)(THREE)
    np.testing.assert_array_equal(graph(OTHER), OTHER + 1)


def test_argument_meets_what_is_made_inside():
    with pytest.raises(DispatchTypeError, match="a Two that is an argument of the trace and a Two that was made"):
        make_fx(lambda x, y: x * Two(y, y))(Two(Tensor(THREE), Tensor(OTHER)), THREE)


def test_subclass_as_result():
    with pytest.raises(DispatchTypeError, match=r"the function returns a Two.*\nreturn the arrays that it holds"):
        make_fx(lambda y: Two(y, y))(THREE)


@pytest.mark.parametrize("operation", [
    np_ops.sin, lambda x: np_ops.add_(x, 1), lambda x: below_python(np_ops.sin, Tensor(x)) * x,
], ids=["out of place", "in place", "in part"])
def test_handler_that_hides_what_it_does(operation):
    with pytest.raises(DataDependentError, match=r"x_1.* as an argument of a kernel below the modes"):
        make_fx(lambda x: operation(Sneaky(x)))(THREE.copy())
    assert current_mode() is None


def test_handler_that_calls_on():
    def f(x):
        x = Open(x)
        np_ops.add_(x, 1)
        return np_ops.sin(x), Tensor(x) * 2

    check_equal(make_fx(f)(THREE.copy())(OTHER.copy()), (np.sin(OTHER + 1), (OTHER + 1) * 2))


def test_hidden_computation_on_constants():
    graph = make_fx(lambda x: x + Tensor(np_ops.sin(Sneaky(OTHER))))(THREE)
    np.testing.assert_array_equal(graph(THREE), THREE + np.sin(OTHER))


class Declining(Two):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_subclass_that_declines():
    with pytest.raises(TypeError, match="Declining"):
        make_fx(lambda y: Declining(y, y) * 2)(THREE)
    assert current_mode() is None


def test_no_dispatch_is_refused_in_a_trace_and_leaves_nothing():
    def program(x):
        with no_dispatch():
            y = ops.np.exp(x)
        return y * 2.0

    with pytest.raises(DataDependentError, match=r"no_dispatch\(\)"):
        make_fx(program)(np.ones(2))
    assert mode_stack() == ()
    with no_dispatch():     # around the trace it is nothing to it
        graph = make_fx(lambda x: ops.np.exp(x) * 2.0)(np.ones(2))
    np.testing.assert_array_equal(graph(np.zeros(2)), [2.0, 2.0])


# --- graphs that write to out= are differentiated like the function ---------------------------------------------------


def fills_out(x):
    y = pnp.zeros(3)
    np.sin(x, out=y)
    np.multiply(y, x, out=y)
    z = pnp.empty_like(x)
    np.add(y, x[0], out=z[...])
    np.cumsum(z, out=z)
    return (y * z).sum()


@pytest.mark.parametrize("derivative", [
    func.grad, func.hessian, func.jacfwd, lambda f: compile(func.grad(f)), lambda f: compile(func.hessian(f)),
    lambda f: lambda x: func.linearize(f, x)[1](x), lambda f: lambda x: func.jvp(f, (x,), (x,))[1],
    lambda f: lambda x: func.vmap(func.grad(f))(np.stack([x, x])), lambda f: func.grad(func.functionalize(f)),
])
def test_graphs_that_write_to_out_have_derivatives(derivative):
    x = np.array([0.5, 1.0, 2.0])
    graph = make_fx(fills_out)(x)
    assert "out=" in str(graph)
    np.testing.assert_allclose(derivative(graph)(x), derivative(fills_out)(x), rtol=1e-12)
    slopes = [(fills_out(x + e) - fills_out(x - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(func.grad(graph)(x), slopes, rtol=1e-6)


class Tenfold(np.ndarray):
    """Arrays whose sums are ten times as large."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        result = getattr(ufunc, method)(*map(np.asarray, inputs), **options)
        return 10 * result if ufunc is np.add else result


def test_captured_arrays_keep_their_operators():
    captured = OTHER.copy().view(Tenfold)
    graph = make_fx(lambda x: x + captured)(THREE)
    np.testing.assert_array_equal(graph(THREE), captured + THREE)
    captured[0] = 99.0      # a constant is a copy
    np.testing.assert_array_equal(graph(THREE), 10 * (OTHER + THREE))


@pytest.mark.parametrize("read", [float, lambda t: t.item(), lambda t: t.tolist(), np.asarray])
@pytest.mark.parametrize("trace", [
    compile, lambda f: lambda x: make_fx(f)(x)(x), lambda f: lambda x: make_fx(f, tracing_mode="fake")(x)(x)])
def test_constants_made_inside_become_numbers_and_arrays(read, trace):
    def scaled(x):
        return x * read(pnp.arange(3.0)[2])

    np.testing.assert_array_equal(trace(scaled)(THREE), scaled(THREE))


def picked_by_a_mask(x):
    return x[pnp.arange(3) != 1]


def written_by_a_mask(x):
    y = x * 1.0
    y[pnp.array([0, 1, 1]) == 1] *= 2.0
    return y


def sliced_under_grad(x):
    n = pnp.arange(7)[-1] // 3
    return func.grad(lambda y: (y[: pnp.arange(3)[2]] ** 2).sum())(x) * func.vmap(lambda y: y[:n].sum())(x[None])


def sliced_at_a_constant(x):
    return x[: pnp.argmax(pnp.array([1, 3, 2])) + 1]


def at_nonzeros(x):
    rows, columns = pnp.nonzero(pnp.tri(3))
    return pnp.outer(x, x)[rows, columns]


def grouped(x):
    values, places = pnp.unique(pnp.array([1, 2, 1]), return_inverse=True)
    return pnp.bincount(places, x) / values


def counted_in_place(x):
    counts = pnp.zeros(2)
    while counts[0] < 3:
        counts[0] += 1
        counts[1] += float(counts[0])
    return x * counts[1]


def by_scipy(x):
    return scipy.sparse.spdiags(pnp.arange(3.0), 0, 3, 3).sum() * x


def under_grad(x):
    return func.grad(lambda y: (y * y * float(pnp.arange(3.0)[2])).sum())(x)


def under_vmap(x):
    weights = pnp.arange(3.0)
    return func.vmap(lambda y: y * float(weights[2]) * weights.tolist()[1])(x)


def by_texts(x):
    found = {}
    for write in (str, repr, "{:03d}".format, "%s of".__mod__, lambda i: f"{i}"):
        for i in pnp.arange(3):
            found[write(i)] = x[i]
    return sum(found.values()) * len(found) * int(f"{pnp.arange(3)[2]}")


CONSTANTS_MADE_INSIDE = [by_texts, sliced_under_grad, picked_by_a_mask, written_by_a_mask, sliced_at_a_constant,
                         at_nonzeros, grouped, counted_in_place, by_scipy, under_grad, under_vmap]


@pytest.mark.parametrize("program", CONSTANTS_MADE_INSIDE)
def test_constants_made_inside_decide(program):
    expected = program(THREE)
    np.testing.assert_array_equal(compile(program)(THREE), expected)
    np.testing.assert_array_equal(make_fx(program)(THREE)(THREE), expected)
    compiled = compile(program)
    compiled(np.zeros(3))
    np.testing.assert_array_equal(compiled(THREE), expected)


@pytest.mark.parametrize("view", [False, True])
def test_a_constant_that_an_argument_was_written_to_is_no_number(view):
    def scaled(x):
        made = pnp.zeros(3)
        part = made[1:]
        float(made[1])
        (part if view else made)[1] = x[0]
        return x * float((made if view else part).sum())

    with pytest.raises(DataDependentError, match="depends on the arguments"):
        compile(scaled)(THREE)


def sum_beside_a_write(value: Any, converted: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that converts an array, writes to it, and uses the converted one."""
    def function(x: Any) -> Any:
        z = pnp.arange(5.0)
        array = converted(z[1:])
        z[2] = x[0] if value is None else value
        return x * array.sum()
    return function


def test_an_array_that_numpy_has_sees_writes_of_constants() -> None:
    x = np.array([2.0])
    function = sum_beside_a_write(7.0, np.asarray)
    np.testing.assert_array_equal(make_fx(function)(x)(x), function(x))


@pytest.mark.parametrize("transform", [
    lambda f, x: make_fx(f)(x), lambda f, x: compile(f)(x), lambda f, x: func.functionalize(f)(x),
], ids=["make_fx", "compile", "functionalize"])
def test_a_write_that_an_array_of_numpy_would_miss_is_refused(transform: Any) -> None:
    x = np.array([2.0])
    with pytest.raises((DataDependentError, FunctionalizationError), match="NumPy has an array"):
        transform(sum_beside_a_write(None, np.asarray), x)
    copied = sum_beside_a_write(None, lambda z: np.asarray(z.copy()))
    np.testing.assert_array_equal(compile(copied)(x), copied(x))
