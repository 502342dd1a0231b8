"""Behaviour inside vmap: conversion of batched values to numbers, writes, draws, nesting, the loop of operators without
a rule. test_escaped.py has values that leave."""

import itertools
import operator

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, PerformanceWarning, VmapError
from pydispatch.func import grad, jacrev, jvp, vmap
from pydispatch.library import register_vmap
from tests.comparing import close

X = np.arange(12.0).reshape(3, 4)
V = np.array([0.3, -1.2, 2.0])
OUT_OF_PLACE = "is an array from outside the function of vmap"


def equal(actual, expected):
    np.testing.assert_array_equal(actual, expected, strict=True)


pytestmark = pytest.mark.usefixtures("levels_are_left_as_they_were")


# --- numbers asked of batched values ---------------------------------------------------------------------------------

NUMBERS = {
    "item": lambda x: x.item(), "float": float, "int": int, "complex": complex, "index": operator.index,
    "bool": bool, "if": lambda x: 1 if x else 2, "and": lambda x: x and 1.0, "or": lambda x: x or 1.0,
    "not": operator.not_, "while": lambda x: next(iter("a") if x > 0 else iter("b")), "compared": lambda x: bool(x > 0),
    "range": lambda x: range(x), "an element": lambda x: float(x * 2.0),
    "max": lambda x: max(x, 1.0), "in a list": lambda x: 1.0 in [x, x],
}


@pytest.mark.parametrize("use", NUMBERS.values(), ids=NUMBERS)
def test_a_number_is_an_error(use):
    with pytest.raises(DataDependentError, match=r"vmap, called at .*each example has its own value") as raised:
        vmap(lambda x: use(x) and x)(np.arange(3))
    assert "\n" in str(raised.value)
    assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize("use", [bool, float], ids=["bool", "float"])
@pytest.mark.parametrize("wrap", [
    pytest.param(lambda f: vmap(lambda x: grad(lambda y: f(y) * y)(x)), id="vmap of grad"),
    pytest.param(lambda f: lambda x: grad(lambda y: vmap(f)(y).sum())(x), id="grad of vmap"),
    pytest.param(lambda f: lambda x: vmap(lambda y: vmap(lambda z: f(y))(x))(x), id="of an outer vmap"),
    pytest.param(lambda f: lambda x: vmap(lambda y: jvp(f, (y,), (y,))[1])(x), id="vmap of jvp"),
])
def test_a_number_is_an_error_at_any_level_below_too(use, wrap):
    with pytest.raises(DataDependentError, match="vmap"):
        wrap(lambda x: use(x) and x)(V)


CONVERSIONS = {
    "asarray": np.asarray, "array": np.array, "numpy": lambda x: x.numpy(), "a ufunc": lambda x: np.asarray([x, x]),
    "tolist": lambda x: x.tolist(),
    "a raw key": lambda x: np.arange(5)[x[0:1]], "written to raw": lambda x: np.zeros(4).__setitem__(slice(None), x),
}


@pytest.mark.parametrize("use", CONVERSIONS.values(), ids=CONVERSIONS)
def test_conversion_to_numpy_is_an_error(use):
    with pytest.raises((ConversionError, DataDependentError), match="vmap"):
        vmap(lambda x: use(x) is None or x)(X)


@pytest.mark.parametrize("name", ["unique", "nonzero", "argwhere", "flatnonzero"])
def test_functions_of_numpy_whose_result_depends_on_elements_are_refused(name):
    function = getattr(np, name)
    with pytest.raises(DataDependentError, match="size="):
        vmap(function)(X)


@pytest.mark.parametrize("name", ["allclose", "array_equal"])
def test_comparisons_of_whole_arrays_give_a_truth_value_per_example(name):
    function = getattr(np, name)
    Y = X.copy()
    Y[0, 0] += 1
    np.testing.assert_array_equal(vmap(function)(X, Y), [function(x, y) for x, y in zip(X, Y, strict=True)])
    with pytest.raises((DataDependentError, VmapError)):
        vmap(lambda x, y: x if function(x, y) else y)(X, Y)


def test_there_is_no_way_around_the_levels():
    # `.data` would strip only one interpreter.
    for transform in (vmap, grad, jacrev):
        with pytest.raises(AttributeError, match="data"):
            transform(lambda x: x.data)(V)


def test_conversion_error_is_an_error_of_autograd():
    assert issubclass(ConversionError, AutogradError)


INSIDE = {
    "backward": lambda x: (Tensor(V, requires_grad=True) * x).sum().backward(),
    "requires_grad_": lambda x: x.requires_grad_(),
    "retain_grad": lambda x: x.retain_grad(),
    "a hook": lambda x: x.register_hook(print),
}


@pytest.mark.parametrize("use", INSIDE.values(), ids=INSIDE)
def test_what_only_a_leaf_of_the_tape_can_do_is_an_error(use):
    with pytest.raises(AutogradError):
        vmap(lambda x: use(x) or x)(V)


def test_backward_from_a_batched_value_tells_why():
    w = Tensor(V, requires_grad=True)

    def into(x):
        return autograd.grad((w * w).sum(), x)

    for use in (lambda x: (w * x).sum().backward(), lambda x: autograd.grad((w * x).sum(), w), into):
        with pytest.raises(AutogradError, match=r"is a value of vmap, called at .*\n.*pydispatch\.func\.grad"):
            vmap(use)(V)
        with pytest.raises(AutogradError, match=r"is a value of vmap, called at .*\n.*pydispatch\.func\.grad"):
            vmap(use)(Tensor(V, requires_grad=True))


def test_autograd_grad_of_captured_tensors_works():
    w = Tensor(V, requires_grad=True)

    def f(c):
        (gradient,) = autograd.grad((w * w * w).sum(), w)
        return gradient * c

    found = vmap(f)(np.array([1.0, 2.0]))
    equal(np.asarray(found), np.array([3 * V**2, 6 * V**2]))


def test_autograd_grad_with_a_batched_cotangent():
    w = Tensor(V, requires_grad=True)
    y = ops.np.sin(w)
    cotangents = np.arange(6.0).reshape(2, 3)
    (found,) = vmap(lambda c: autograd.grad(y, w, c))(Tensor(cotangents))
    close(found.array, cotangents * np.cos(V))


def test_iteration_len_unpacking():
    def f(x):
        a, b, c, d = x
        assert len(x) == 4
        assert a.shape == ()
        total = a * 0
        for element in x:
            total = total + element
        first, *rest = x
        return total, b + c * d, first, rest

    found = vmap(f)(X)
    equal(found[0], X.sum(1))
    equal(found[1], X[:, 1] + X[:, 2] * X[:, 3])
    equal(found[2], X[:, 0])
    equal(found[3][2], X[:, 3])
    with pytest.raises(TypeError, match="0-d"):
        vmap(lambda x: list(x))(V)


def test_repr_of_a_live_value():
    texts = []
    vmap(lambda x: texts.extend([repr(x), repr([x])]) or x)(X)
    assert all("BatchedTensor" in text and "vmap" in text and "over" not in text for text in texts)


def test_a_mask_that_all_examples_share_selects():
    mask = np.array([True, False, True, True])
    equal(vmap(lambda x: x[mask])(X), X[:, mask])
    equal(vmap(lambda x, m: x[m], (0, None))(X, mask), X[:, mask])


def test_a_mask_of_each_example_is_an_error():
    for x in (X, Tensor(X)):
        with pytest.raises(RuntimeError, match="vmap"):
            vmap(lambda x: x[x > 1.0])(x)
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda m, t: t[m], (0, None))(X > 1.0, np.arange(4.0))


# --- writes ----------------------------------------------------------------------------------------------------------

WRITES = {
    "add_": lambda target, value: ops.np.add_(target, value),
    "multiply_": lambda target, value: ops.np.multiply_(target, value),
    "operator": operator.iadd,
    "setitem, all": lambda target, value: ops.np.setitem_(target, Ellipsis, value),
    "setitem, one": lambda target, value: ops.np.setitem_(target, 0, value),
    "brackets": lambda target, value: target.__setitem__(0, value),
    "a view": lambda target, value: ops.np.add_(target[1:], value),
    "index_put_": lambda target, value: ops.np.index_put_(target, (np.array([0, 2]),), value),
    "out": lambda target, value: ops.np.add(target, value, out=target),
}


def written(write, target, value):
    target = Tensor(target.copy())
    write(target, value)
    return target.array


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_batched_into_batched_and_constant_into_batched(write):
    for values, dims in ((V, (0, 0)), (np.array(2.5), (0, None))):
        x = X.copy()
        vmap(lambda x, v: (write(x, v), x)[1], dims)(x, values)
        equal(x, np.stack([written(write, X[i], np.broadcast_to(values, (3,))[i]) for i in range(3)]))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("captured", ["closed over", "argument"])
def test_batched_into_captured_is_an_error_and_nothing_is_written(write, captured):
    target = Tensor(X[0].copy())
    by_argument = vmap(lambda v, t: write(t, v), (0, None))
    with pytest.raises(VmapError, match=OUT_OF_PLACE) as raised:
        by_argument(V, target) if captured == "argument" else vmap(lambda v: write(target, v))(V)
    assert "operator np::" in str(raised.value)
    assert "np.zeros" in str(raised.value)
    equal(target.array, X[0])


def test_even_where_the_shapes_do_not_fit_either():
    target = Tensor(np.zeros(4))
    with pytest.raises(VmapError, match=OUT_OF_PLACE):
        vmap(lambda x: ops.np.add_(target, x))(np.ones((2, 3, 7)))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_constant_into_captured_is_written_once(write):
    target = Tensor(X[0].copy())
    vmap(lambda x: (write(target, 2.0), x)[1])(X)
    equal(target.array, written(write, X[0], 2.0))


@pytest.mark.parametrize("make", [
    pytest.param(lambda x: ops.np.zeros(4), id="zeros"),
    pytest.param(lambda x: np.arange(4.0) * ops.np.ones(4), id="product"),
    pytest.param(lambda x: ops.np.copy(np.ones(4)), id="copy of a raw array"),
    pytest.param(lambda x: ops.np.zeros_like(x), id="zeros_like"), pytest.param(lambda x: x.copy(), id="copy"),
    pytest.param(lambda x: ops.np.empty_like(x), id="empty_like"),
    pytest.param(lambda x: ops.np.full_like(x, 3.0), id="full_like"), pytest.param(lambda x: x * 0, id="computed"),
])
def test_arrays_made_inside_can_be_written_to(make):
    def f(x):
        made = make(x)
        made[...] = 1.0
        made[0] = x[1]
        return made

    expected = np.ones_like(X)
    expected[:, 0] = X[:, 1]
    equal(vmap(f)(X), expected)


def test_writes_through_views_of_batched_values():
    def f(x):
        y = x * 1.0
        row = y[1:3]
        row *= 10.0
        y[::2] = row
        return y, row

    def by_numpy(x):
        y = x * 1.0
        y[1:3] *= 10.0
        row = y[1:3].copy()
        y[::2] = row
        return y

    equal(vmap(f)(X)[0], np.stack([by_numpy(x) for x in X]))


def test_a_write_must_not_make_the_target_larger():
    x, y = np.ones((4, 3)), np.ones((4, 4, 3))
    with pytest.raises(ValueError, match=r"add_|operand") as unbatched:
        ops.np.add_(x[0], y[0])
    with pytest.raises(ValueError, match=r"add_|operand") as batched:
        vmap(ops.np.add_)(x, y)
    assert str(batched.value) == str(unbatched.value)
    equal(x, np.ones((4, 3)))


def test_writes_at_two_levels():
    target = Tensor(np.zeros(3))

    def outer(x):
        def inner(y):
            ops.np.add_(x, 1.0)         # the same for every y: once
            return x * y

        return vmap(inner)(np.array([1.0, 2.0]))

    x = X.copy()
    found = vmap(outer)(x)
    equal(x, X + 1.0)
    equal(found, np.stack([(X + 1.0), (X + 1.0) * 2.0], axis=1))
    with pytest.raises(VmapError, match=OUT_OF_PLACE):
        vmap(lambda x: vmap(lambda y: ops.np.add_(x, y))(V))(X)
    with pytest.raises(VmapError, match=OUT_OF_PLACE):
        vmap(lambda x: vmap(lambda y: ops.np.add_(target, x[0]))(V))(X)
    equal(target.array, np.zeros(3))


# --- operators on few and many dimensions ----------------------------------------------------------------------------


def test_a_number_of_each_example_with_a_row_of_all():
    row = np.array([10.0, 20.0, 30.0])
    equal(vmap(lambda x: x * row)(V), V[:, None] * row)
    equal(vmap(lambda x: row - x)(V), row - V[:, None])
    equal(vmap(lambda x, r: x * r, (0, None))(V, row), V[:, None] * row)
    square = row * np.ones((3, 1))
    equal(vmap(lambda x, r: x + r)(V, square), V[:, None] + square)


MIXED = [
    pytest.param(shapes, mapped, id=f"{shapes}-{''.join('bu'[not m] for m in mapped)}")
    for shapes in [((), (3,), (2, 3)), ((3,), (), ()), ((2, 1), (3,), ()), ((3, 3), (3,), (3, 3))]
    for mapped in itertools.product((True, False), repeat=3) if any(mapped)
]


@pytest.mark.parametrize(("shapes", "mapped"), MIXED)
def test_three_mixed_operands(shapes, mapped):
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=((3, *shape) if m else shape)) for shape, m in zip(shapes, mapped, strict=True)]
    dims = tuple([0 if m else None for m in mapped])
    for f, by_numpy in [
        (lambda a, b, c: ops.np.where(a > 0, b, c), lambda a, b, c: np.where(a > 0, b, c)),
        (lambda a, b, c: ops.np.clip(a, b, c), np.clip),
        (lambda a, b, c: (a < b) == (c >= a), lambda a, b, c: (a < b) == (c >= a)),
    ]:
        expected = np.stack([
            by_numpy(*[a[i] if m else a for a, m in zip(arrays, mapped, strict=True)]) for i in range(3)])
        equal(vmap(f, dims)(*arrays), expected)


@pytest.mark.parametrize(("a", "b"), [((2,), (3,)), ((2, 3), (2, 3)), ((), (2,))], ids=str)
def test_the_error_is_that_of_one_example(a, b):
    with pytest.raises((ValueError, TypeError)) as unbatched:
        ops.np.matmul(np.ones(a), np.ones(b))
    with pytest.raises((ValueError, TypeError)) as batched:
        vmap(ops.np.matmul)(np.ones((3, *a)), np.ones((3, *b)))
    assert str(batched.value) == str(unbatched.value)
    assert type(batched.value) is type(unbatched.value)


@pytest.mark.parametrize("call", [
    pytest.param(lambda x: x.sum(axis=1), id="an axis too many"), pytest.param(lambda x: x.reshape((3,)), id="reshape"),
    pytest.param(lambda x: x[5], id="an index"), pytest.param(lambda x: x + np.ones(3), id="shapes"),
    pytest.param(lambda x: ops.np.transpose(x, (0, 1)), id="axes"), pytest.param(lambda x: x["a"], id="a key"),
])
def test_other_errors_are_those_of_one_example(call):
    with pytest.raises(Exception) as unbatched:  # noqa: PT011
        call(Tensor(X[0]))
    with pytest.raises(Exception) as batched:  # noqa: PT011
        vmap(call)(X)
    assert type(batched.value) is type(unbatched.value)
    assert str(batched.value) == str(unbatched.value)


@pytest.mark.parametrize("dtypes", [
    ("float32", "float64"), ("float64", "float32"), ("int64", "float32"), ("bool", "int8"), ("complex64", "float64"),
], ids="-".join)
@pytest.mark.parametrize("ranks", [(0, 1), (0, 0), (1, 0)], ids=str)
def test_dtypes_are_those_of_one_example(dtypes, ranks):
    a, b = (np.ones((3, 3)[:rank + 1], dtype) for rank, dtype in zip(ranks, dtypes, strict=True))
    for dims in ((0, 0), (0, None), (None, 0)):
        args = [array if dim == 0 else array[0] for array, dim in zip((a, b), dims, strict=True)]
        expected = ops.np.add(a[0], b[0]).dtype
        assert vmap(ops.np.add, dims)(*args).dtype == expected


@pytest.mark.parametrize("scalar", [2, 2.5, True, 1j], ids=repr)
@pytest.mark.parametrize("dtype", ["int8", "float32", "complex64", "bool"])
def test_python_numbers_stay_weak(scalar, dtype):
    for f in (lambda x: x * scalar, lambda x: scalar + x, lambda x: ops.np.maximum(x, scalar)):
        expected = f(Tensor(np.ones((), dtype)))
        found = vmap(f)(np.ones(3, dtype))
        equal(found, np.full(3, expected.array))


# --- nesting ---------------------------------------------------------------------------------------------------------


def test_nested_axes_count_in_what_each_level_sees():
    x = np.arange(24.0).reshape(2, 3, 4)
    seen = []
    inner = vmap(lambda v: seen.append(v.shape) or v * 2, 0)
    equal(vmap(inner, 1)(x), np.moveaxis(x, 1, 0) * 2)
    assert seen == [(4,)]
    equal(vmap(vmap(lambda v: v * 2, -1), -1)(x), np.moveaxis(x, (2, 1), (0, 1)) * 2)
    equal(vmap(vmap(lambda v: v * 2, -1, -1), 0, -1)(x), np.moveaxis(x, 0, -1) * 2)
    equal(vmap(vmap(lambda v: v * 2, 0, 1), 2, 2)(x), np.swapaxes(x, 0, 1) * 2)


def test_the_inner_level_maps_what_is_captured():
    ys = np.array([1.0, 10.0])
    equal(vmap(lambda x: vmap(lambda y: x * y)(ys))(V), np.outer(V, ys))
    equal(vmap(vmap(ops.np.multiply, (None, 0)), (0, None))(V, ys), np.outer(V, ys))
    equal(vmap(vmap(ops.np.multiply, (0, None)), (None, 0))(ys, V), np.outer(V, ys))


def test_the_same_function_at_three_levels():
    batched = vmap(lambda x: x * 2 + 1)
    x = np.arange(24.0).reshape(2, 3, 4)
    equal(batched(V), V * 2 + 1)
    equal(vmap(batched)(X), X * 2 + 1)
    equal(vmap(vmap(batched))(x), x * 2 + 1)
    equal(vmap(vmap(batched, 1, 1), 2, 2)(x), x * 2 + 1)
    f = vmap(vmap(vmap(lambda a, b, c: a * b - c, (None, None, 0)), (None, 0, None)), (0, None, None))
    equal(f(V, V + 1, V + 2), V[:, None, None] * (V + 1)[:, None] - (V + 2))


def test_at_the_inner_level_even_where_the_outer_one_maps():
    with pytest.raises(ValueError, match="needs one to find"):
        vmap(lambda x: vmap(lambda y: y, (None,))(x))(X)


def test_the_outer_batch_of_an_inner_argument_is_no_axis():
    with pytest.raises(ValueError, match=r"in_dims has 0 for argument 0, which has shape \(\)"):
        vmap(lambda x: vmap(lambda y: y)(x))(V)
    with pytest.raises(ValueError, match="in_dims has 1 for argument 0"):
        vmap(vmap(lambda y: y, 1))(X)


def test_values_of_two_levels_of_the_same_size_are_not_mixed():
    n = 3
    a, b = np.arange(9.0).reshape(n, n), np.arange(9.0).reshape(n, n) ** 2
    found = vmap(lambda x: vmap(lambda y: (x * y).sum() + x[0])(b))(a)
    equal(found, a @ b.T + a[:, :1])


@pytest.mark.parametrize("order", list(itertools.permutations(["grad", "jvp", "vmap"])), ids=" of ".join)
def test_with_derivatives_in_any_order(order):
    # d/dx of the sum of sin(x y) over x and over y, at two points.
    ys = np.array([0.5, 2.0, -1.0])
    wrappers = {
        "grad": lambda f: grad(lambda x: f(x).sum()),
        "jvp": lambda f: lambda x: jvp(f, (x,), (np.ones(()),))[1],
        "vmap": lambda f: lambda x: vmap(lambda y: f(x * y))(ys).sum(),
    }
    f = ops.np.sin
    for name in reversed(order):
        f = wrappers[name](f)
    inner = order[order.index("vmap") + 1:]     # derivatives with respect to x y, each one without a factor y
    derivative = {0: np.sin, 1: np.cos, 2: lambda z: -np.sin(z)}
    outer = 2 - len(inner)
    expected = sum(nth_derivative(2, 0.7 * y) * y**outer for y in ys)
    del derivative
    close(np.asarray(f(np.array(0.7))), np.asarray(expected))


def nth_derivative(n, z):
    return [np.sin, np.cos, lambda z: -np.sin(z), lambda z: -np.cos(z)][n](z)


def test_per_example_gradients_and_the_gradient_of_a_batch():
    def loss(w, x):
        return (ops.np.tanh(x * w) ** 2).sum()

    w = np.array([0.5, -1.0, 2.0, 0.1])
    each = vmap(grad(loss), (None, 0))(w, X)
    expected = 2 * np.tanh(X * w) * (1 - np.tanh(X * w) ** 2) * X
    close(each, expected)
    close(grad(lambda w: vmap(loss, (None, 0))(w, X).sum())(w), expected.sum(0))


# --- what is called, and how often -----------------------------------------------------------------------------------


@pytest.fixture
def counted(define, fresh, spy):
    """Provide an operator with a batching rule that counts its calls."""
    calls = []

    def kernel(x):
        calls.append(("kernel", x.shape))
        return x + 1.0

    def rule(info, in_dims, x):
        calls.append(("rule", in_dims))
        return op(x), in_dims[0]

    op = define(fresh, "plus_one(Tensor x) -> Tensor", CPU=kernel)
    register_vmap(op, rule)
    return op, calls


def test_a_rule_is_skipped_where_nothing_is_batched(counted):
    op, calls = counted
    c = np.ones(2)
    found = vmap(lambda x: (op(c), x))(V)
    equal(found[0], np.full((3, 2), 2.0))
    assert calls == [("kernel", (2,))]
    calls.clear()
    equal(vmap(op)(V), V + 1.0)
    assert calls == [("rule", (0,)), ("kernel", (3,))]
    calls.clear()
    equal(vmap(lambda x: vmap(lambda y: op(x) * y)(V))(V), np.outer(V + 1.0, V))
    assert calls == [("rule", (0,)), ("kernel", (3,))]
    calls.clear()
    equal(vmap(vmap(op))(X), X + 1.0)
    assert [name for name, _ in calls] == ["rule", "rule", "kernel"]


# --- the loop over examples ------------------------------------------------------------------------------------------


@pytest.fixture
def black_box(define, fresh):
    """Define an operator that NumPy computes, without a batching rule. Return the operator and its calls."""

    def make(schema, function):
        calls = []

        def kernel(*args):
            calls.append(args)
            assert not any(isinstance(arg, Tensor) for arg in args)
            return function(*args)

        return define(fresh, schema, CPU=kernel), calls

    return make


def test_loop_with_lists_of_arrays(black_box):
    op, _ = black_box("total(Tensor[] xs) -> Tensor", sum)
    c = np.ones(4)
    with pytest.warns(PerformanceWarning, match="total"):
        equal(vmap(lambda x: op([x, c, x * 2]))(X), X * 3 + 1)


# --- draws -----------------------------------------------------------------------------------------------------------


def draw(generator):
    return ops.np.random_normal(generator, size=(2,))


def test_the_draw_is_refused_although_nothing_is_batched():
    generator = np.random.default_rng(3)
    before = generator.bit_generator.state
    with pytest.raises(VmapError, match=r"vmap, called at .*randomness"):
        vmap(lambda x: draw(generator) + x)(V)
    assert generator.bit_generator.state == before


@pytest.mark.parametrize("outer", ["same", "different"])
@pytest.mark.parametrize("inner", ["same", "different"])
def test_the_innermost_level_decides_first_about_draws(outer, inner):
    generator = np.random.default_rng(3)
    ys = np.zeros(4)
    found = vmap(lambda x: vmap(lambda y: draw(generator) + y, randomness=inner)(ys), randomness=outer)(np.zeros(3))
    shape = (*((3,) if outer == "different" else ()), *((4,) if inner == "different" else ()), 2)
    expected = np.random.default_rng(3).normal(size=shape)
    expected = expected if inner == "different" else np.expand_dims(expected, -2)
    equal(found, np.broadcast_to(expected, (3, 4, 2)))


@pytest.mark.parametrize(("outer", "inner"), [("error", "different"), ("different", "error"), ("error", "same")])
def test_a_draw_is_an_error_at_either_level(outer, inner):
    generator = np.random.default_rng(3)
    with pytest.raises(VmapError, match="randomness"):
        vmap(lambda x: vmap(lambda y: draw(generator) + y, randomness=inner)(V), randomness=outer)(V)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_derivatives_are_transparent(randomness):
    def run(f):
        generator = np.random.default_rng(3)
        return f(generator)

    expected = run(lambda g: vmap(lambda x: draw(g), randomness=randomness)(V))
    assert (len(np.unique(expected)) == 2) == (randomness == "same")
    found = run(lambda g: vmap(grad(lambda x: (x * draw(g)).sum()), randomness=randomness)(V))
    close(found, expected.sum(1))
    found = run(lambda g: grad(lambda x: vmap(lambda y: y * draw(g), randomness=randomness)(x).sum())(V))
    close(found, expected.sum(1))
    found = run(lambda g: vmap(lambda x: jvp(lambda y: y * draw(g), (x,), (np.ones(()),))[1], randomness=randomness)(V))
    close(found, expected)
    with pytest.raises(VmapError, match="randomness"):
        run(lambda g: vmap(grad(lambda x: (x * draw(g)).sum()))(V))
