"""Batching rules of custom operators: registered ones, generated ones, and loops ."""

import gc
import itertools
import warnings
import weakref

import numpy as np
import pytest

from pydispatch import DispatchMode, OpOverload, Tensor, autograd, exceptions, ops
from pydispatch._core import Vmap
from pydispatch._registry.registrations import definition_of
from pydispatch.backends import MetaArray
from pydispatch.exceptions import NoDerivativeError, PerformanceWarning, VmapError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from pydispatch.library import Library, custom_op, register_pydispatch, register_vmap
from pydispatch.testing import gradcheck, gradgradcheck
from pydispatch.tracing import FakeMode, make_fx
from pydispatch.tree import tree_map
from tests.comparing import all_close as close
from tests.warning_filters import loops_allowed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 3))     # as many examples as elements: a wrong axis has the right shape
Y = RNG.normal(size=(4, 3))
W = RNG.normal(size=3)


def loop(function, in_dims=0):
    """Return the oracle of vmap: the function on each example, results stacked."""
    def looped(*args):
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
        size = next(arg.shape[dim] for arg, dim in zip(args, dims, strict=True) if dim is not None)
        results = [
            function(*[arg if dim is None else np.asarray(np.take(arg, number, dim))
                       for arg, dim in zip(args, dims, strict=True)])
            for number in range(size)
        ]
        return tree_map(lambda column: np.stack([np.asarray(value) for value in column]), transposed(results))
    return looped


class Column(list):
    """Leaves of all results at one place: no container."""


def transposed(results):
    if isinstance(results[0], (tuple, list)):
        return tuple(transposed(list(column)) for column in zip(*results, strict=True))
    return Column(results)


@pytest.fixture
def ns(fresh):
    """Provide a namespace that is empty again after the test."""
    return fresh.namespace


def define(name, kernel, schema="(Tensor x) -> Tensor", backward=None, setup=None, jvp=None, **options):
    definition = custom_op(name, kernel, mutates_args=options.pop("mutates_args", ()), schema=schema, **options)
    if backward is not None:
        definition.register_autograd(backward, setup_context=setup, jvp=jvp)
    return definition


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*[value for value in inputs if hasattr(value, "dtype")])


def s3_backward(ctx, g):
    return 3 * g * ops.np.cos(ctx.saved_tensors[0])


def count(function, calls):
    def counted(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)
    return counted


@pytest.fixture(params=["kernel of NumPy", "kernel of operators"])
def is_batchable(request):
    """Provide whether the kernel of the operator can run on a batch."""
    return request.param == "kernel of operators"


@pytest.fixture
def calls():
    """Provide the calls of the kernel of s3."""
    return []


@pytest.fixture
def s3(ns, is_batchable, calls):
    """Provide an operator sin with the formula 3·cos·ct: deliberately not the true derivative."""
    kernel = count(ops.np.sin if is_batchable else np.sin, calls)
    return define(f"{ns}::s3", kernel, backward=s3_backward, setup=save_inputs, batchable=is_batchable)


def total(x):
    return ops.np.sum(x)


# --- compositions of transforms --------------------------------------------------------------------------------------


@loops_allowed
def test_value_and_number_of_calls(s3, calls, is_batchable):
    close(vmap(s3)(X), np.sin(X))
    assert len(calls) == (1 if is_batchable else 3)


@loops_allowed
def test_forward_runs_once_under_every_transform_above(s3, calls, is_batchable):
    grad(lambda x: total(vmap(s3)(x)))(X)
    assert len(calls) == (1 if is_batchable else 3)


@loops_allowed
@pytest.mark.parametrize(("program", "expected"), [
    pytest.param(lambda f: grad(lambda x: total(vmap(f)(x))), 3 * np.cos(X), id="grad(vmap)"),
    pytest.param(lambda f: vmap(grad(lambda x: total(f(x)))), 3 * np.cos(X), id="vmap(grad)"),
    pytest.param(lambda f: vmap(vmap(f)), np.sin(X), id="vmap(vmap)"),
    pytest.param(lambda f: grad(lambda x: total(vmap(vmap(f))(x))), 3 * np.cos(X), id="grad(vmap(vmap))"),
    pytest.param(lambda f: vmap(vmap(grad(grad(f)))), -3 * np.sin(X), id="vmap(vmap(grad(grad)))"),
    pytest.param(lambda f: lambda x: jvp(vmap(f), (x,), (np.ones_like(x),))[1], 3 * np.cos(X), id="jvp(vmap)"),
    pytest.param(lambda f: vmap(lambda x: jvp(f, (x,), (np.ones(3),))[1]), 3 * np.cos(X), id="vmap(jvp)"),
    pytest.param(lambda f: lambda x: jvp(grad(lambda y: total(vmap(f)(y))), (x,), (np.ones_like(x),))[1],
                 -3 * np.sin(X), id="jvp(grad(vmap))"),
    pytest.param(lambda f: grad(lambda x: total(jvp(vmap(f), (x,), (np.ones((3, 3)),))[1])), -3 * np.sin(X),
                 id="grad(jvp(vmap))"),
    pytest.param(lambda f: grad(lambda x: total(grad(lambda y: total(vmap(f)(y)))(x))), -3 * np.sin(X),
                 id="grad(grad(vmap))"),
    pytest.param(lambda f: vmap(vmap(lambda x: jvp(f, (x,), (np.ones(()),))[1])), 3 * np.cos(X), id="vmap(vmap(jvp))"),
    pytest.param(lambda f: lambda x: jvp(vmap(vmap(f)), (x,), (np.ones_like(x),))[1], 3 * np.cos(X),
                 id="jvp(vmap(vmap))"),
    pytest.param(lambda f: vmap(lambda x: vjp(vmap(f), x)[1](np.ones(3))[0]), 3 * np.cos(X), id="vmap(vjp(vmap))"),
    pytest.param(lambda f: functionalize(vmap(f)), np.sin(X), id="functionalize(vmap)"),
    pytest.param(lambda f: vmap(functionalize(f)), np.sin(X), id="vmap(functionalize)"),
])
def test_compositions(s3, program, expected):
    close(program(s3)(X), expected)


@loops_allowed
@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_use_the_given_derivative(s3, jacobian):
    close(jacobian(s3)(W), np.diag(3 * np.cos(W)))
    close(vmap(jacobian(s3))(Y), np.stack([np.diag(3 * np.cos(row)) for row in Y]))
    close(jacobian(vmap(s3))(Y), np.einsum("ij,ik,jl->ijkl", 3 * np.cos(Y), np.eye(4), np.eye(3)))


@loops_allowed
def test_hessian_uses_the_given_derivative(s3):
    close(hessian(lambda x: total(s3(x)))(W), np.diag(-3 * np.sin(W)))
    close(vmap(hessian(lambda x: total(s3(x))))(Y), np.stack([np.diag(-3 * np.sin(row)) for row in Y]))


@pytest.fixture
def tot(ns, is_batchable):
    """Provide Σx² with gradient 2x·ct: not elementwise."""
    kernel = (lambda x: total(x * x)) if is_batchable else lambda x: np.sum(x * x)

    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g

    return define(f"{ns}::tot", kernel, backward=backward, setup=save_inputs, batchable=is_batchable)


@loops_allowed
@pytest.mark.parametrize("in_dim", [0, 1, -1])
def test_gradient_that_is_not_elementwise(tot, in_dim):
    c = np.array([1.0, 10.0, 100.0])
    gradient = grad(lambda x: total(vmap(tot, in_dim)(x) * c))(X)
    close(gradient, 2 * X * (c[:, None] if in_dim == 0 else c[None, :]))


@pytest.fixture
def lin(ns, is_batchable):
    """Provide [a, w] -> [a·w, a + w]: a list of arrays in, a list out. Gradients may be None."""
    def backward(ctx, grads):
        a, w = ctx.saved_tensors
        g1, g2 = grads
        gradients = [g2, g2] if g1 is None else [g1 * w, g1 * a] if g2 is None else [g1 * w + g2, g1 * a + g2]
        return [gradients]

    def setup(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[0])

    return define(f"{ns}::lin", lambda arrays: [arrays[0] * arrays[1], arrays[0] + arrays[1]],
                  "(Tensor[] arrays) -> Tensor[]", backward, setup, batchable=is_batchable)


@loops_allowed
def test_captured_weights_are_summed_over_the_batch(lin):
    close(grad(lambda w: total(vmap(lambda a: lin([a, w])[0])(Y)))(W), Y.sum(0))
    both = lambda w: total(ops.np.add(*vmap(lambda a, w: tuple(lin([a, w])), (0, None))(Y, w)))  # noqa: E731
    close(grad(both)(W), Y.sum(0) + 4)
    close(jvp(both, (W,), (np.ones(3),))[1], (Y.sum(0) + 4).sum())


@loops_allowed
def test_unused_output(lin):
    close(grad(lambda y: total(vmap(lambda a: lin([a, W])[1])(y)))(Y), np.ones((4, 3)))


@loops_allowed
def test_modes_see_one_operator_where_they_stand(s3, ns):
    seen = []

    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Log():
        vmap(s3)(X)
    assert [str(op.name) for op in seen] == [f"vmap({ns}::s3)"]
    assert definition_of(seen[0]).parent is s3.operator
    assert f"vmap({ns}::s3)" in repr(seen[0])
    seen.clear()

    def inner(x):
        with Log():
            return s3(x)

    vmap(inner)(X)
    assert [str(op.name) for op in seen] == [f"{ns}::s3"]
    seen.clear()
    with Log():
        vmap(vmap(s3))(X)
    assert [str(op.name) for op in seen] == [f"vmap(vmap({ns}::s3))"]
    assert definition_of(definition_of(seen[0]).parent).parent is s3.operator


@loops_allowed
def test_mode_outside_of_grad_sees_the_forward_once(tot, ns):
    seen = []

    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func.name))
            return func(*args, **(kwargs or {}))

    with Log():
        grad(lambda x: total(vmap(tot)(x)))(X)
    assert seen.count(f"vmap({ns}::tot)") == 1
    assert f"{ns}::tot" not in seen


@loops_allowed
@pytest.mark.parametrize("size", [1, 2])
def test_small_batches(s3, size):
    x = X[:size]
    close(vmap(s3)(x), np.sin(x))
    close(grad(lambda x: total(vmap(s3)(x)))(x), 3 * np.cos(x))
    close(vmap(grad(lambda x: total(s3(x))))(x), 3 * np.cos(x))


def test_batch_without_examples(s3, is_batchable, ns):
    x = np.empty((0, 3))
    if not is_batchable:
        with pytest.raises(VmapError, match=rf"operator {ns}::s3: .*no examples(.|\n)*register_fake\(\"{ns}::s3\""):
            vmap(s3)(x)
        s3.register_fake(ops.np.zeros_like)
    for result in (vmap(s3)(x), grad(lambda x: total(vmap(s3)(x)))(x), vmap(grad(lambda x: total(s3(x))))(x)):
        assert result.shape == (0, 3)
        assert result.dtype == np.float64


def test_nothing_batched(s3, calls, ns):
    seen = []

    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func.name))
            return func(*args, **(kwargs or {}))

    with Log():
        result = vmap(lambda x: (s3(W), x)[0])(Y)
    assert seen.count(f"{ns}::s3") == 1
    assert len(calls) == 1
    close(result, np.broadcast_to(np.sin(W), (4, 3)))


@loops_allowed
def test_no_backward(ns, is_batchable):
    f = define(f"{ns}::f", ops.np.sin if is_batchable else np.sin, batchable=is_batchable)
    close(vmap(f)(X), np.sin(X))
    for program in (grad(lambda x: total(vmap(f)(x))), vmap(grad(lambda x: total(f(x))))):
        with pytest.raises(NotImplementedError, match=f"{ns}::f"):
            program(X)
    with pytest.raises(NoDerivativeError, match=f"{ns}::f"):
        jvp(vmap(f), (X,), (X,))


@loops_allowed
def test_kernel_that_closes_over_a_value_of_a_transform(ns, is_batchable):
    captured = []
    f = define(f"{ns}::f", lambda x: x * captured[0], backward=lambda ctx, g: g, batchable=is_batchable)

    def program(w):
        captured[:] = [w]
        return total(vmap(f)(X))

    with pytest.raises(exceptions.AutogradError, match="not active here"):
        grad(program)(W)


# --- arguments -------------------------------------------------------------------------------------------------------


def affine_backward(ctx, g):
    x, *rest = ctx.saved_tensors
    gradients = [g * ctx.scale * (rest[0] if ctx.has_y else 1.0), (g * ctx.scale * x) if ctx.has_y else None, None]
    return tuple(gradients)


def affine_setup(ctx, inputs, keyword_only_inputs, output):
    x, y, n = inputs
    ctx.scale = keyword_only_inputs["by"] * n
    ctx.has_y = y is not None
    ctx.save_for_backward(*([x] if y is None else [x, y]))


@pytest.fixture
def affine(ns, is_batchable):
    """Provide x·y·n·by, with an optional array, a number and a keyword-only number."""
    def kernel(x, y=None, n=1, *, by=2.0):
        return x * n * by if y is None else x * y * n * by

    return define(f"{ns}::affine", kernel, "(Tensor x, Tensor? y=None, int n=1, *, float by=2.0) -> Tensor",
                  affine_backward, affine_setup, batchable=is_batchable)


@loops_allowed
@pytest.mark.parametrize(("in_dims", "shapes"), [
    ((0, 0), ((4, 3), (4, 3))), ((0, None), ((4, 3), (3,))), ((None, 0), ((3,), (4, 3))), ((1, 0), ((3, 4), (4, 3))),
    ((0, -1), ((4, 3), (3, 4))), ((0, 0), ((4, 2, 3), (4, 3))), ((0, 0), ((3,), (3, 3))), ((0, None), ((3,), (3,))),
    ((None, 0), ((3, 3), (3, 3))), ((0, 0), ((3, 1), (3, 3))),
])
def test_in_dims_of_broadcasting_operators(affine, in_dims, shapes):
    x, y = (np.random.default_rng(n).normal(size=shape) for n, shape in enumerate(shapes))
    call = lambda x, y: affine(x, y, 3, by=0.5)  # noqa: E731
    reference = lambda x, y: x * y * 1.5  # noqa: E731
    expected = loop(reference, in_dims)(x, y)
    close(vmap(call, in_dims)(x, y), expected)
    weights = np.random.default_rng(5).normal(size=expected.shape)
    numerical = [numerical_gradient(lambda *a: float((loop(reference, in_dims)(*a) * weights).sum()), (x, y), i)
                 for i in range(2)]
    close(grad(lambda x, y: total(vmap(call, in_dims)(x, y) * weights), (0, 1))(x, y), tuple(numerical), rtol=1e-6)
    per_example = vmap(grad(lambda x, y: total(call(x, y)), (0, 1)), in_dims)(x, y)
    close(per_example, loop(lambda x, y: tuple(
        numerical_gradient(lambda *a: float(reference(*a).sum()), (x, y), i) for i in range(2)), in_dims)(x, y), 1e-6)
    tangents = (np.cos(x), np.sin(y))
    along = sum(float((n * t).sum()) for n, t in zip(numerical, tangents, strict=True))
    pushed = jvp(lambda x, y: total(vmap(call, in_dims)(x, y) * weights), (x, y), tangents)[1]
    close(pushed, np.array(along), rtol=1e-6)


def numerical_gradient(function, args, i, step=1e-4):
    """Differentiate by central differences, which are exact up to degree two."""
    gradient = np.empty(args[i].shape)
    for index in np.ndindex(*args[i].shape):
        ends = []
        for sign in (1, -1):
            moved = [arg.copy() for arg in args]
            moved[i][index] += sign * step
            ends.append(function(*moved))
        gradient[index] = (ends[0] - ends[1]) / (2 * step)
    return gradient


@loops_allowed
def test_optional_that_is_none_and_defaults(affine):
    close(vmap(affine)(Y), 2 * Y)
    close(grad(lambda y: total(vmap(lambda x: affine(x, by=5.0))(y)))(Y), np.full((4, 3), 5.0))
    close(vmap(lambda x: affine(x, None, 2))(Y), 4 * Y)


@loops_allowed
def test_lists_with_batched_and_constant_elements(ns, is_batchable):
    def kernel(arrays):
        return sum(n * array for n, array in enumerate(arrays, 1) if array is not None)

    f = define(f"{ns}::weighted", kernel, "(Tensor?[] arrays) -> Tensor",
               lambda ctx, g: [[None if n is None else n * g for n in ctx.numbers]],
               lambda ctx, inputs, output: setattr(
                   ctx, "numbers", [None if a is None else n for n, a in enumerate(inputs[0], 1)]),
               batchable=is_batchable)
    call = lambda y, w: f([w, None, y, y])  # noqa: E731
    close(vmap(call, (0, None))(Y, W), W + 7 * Y)
    close(grad(lambda y, w: total(vmap(call, (0, None))(y, w)), (0, 1))(Y, W), (np.full((4, 3), 7.0), np.full(3, 4.0)))
    close(vmap(grad(lambda y, w: total(call(y, w)), (0, 1)), (0, None))(Y, W), (np.full((4, 3), 7.0), np.ones((4, 3))))


@loops_allowed
def test_several_results_and_numbers(ns, is_batchable):
    f = define(f"{ns}::parts", lambda x: (x * 2, [x * 3, x * 4], 7), "(Tensor x) -> (Tensor, Tensor[], int)",
               lambda ctx, g, gs, _: 2 * g + 3 * gs[0] + 4 * gs[1], batchable=is_batchable)
    numbers = []

    def call(x):
        one, (two, three), number = f(x)
        numbers.append(number)
        return one, two, three

    close(vmap(call)(Y), (2 * Y, 3 * Y, 4 * Y))
    assert numbers == [7]
    c = np.arange(12.0).reshape(4, 3)
    close(grad(lambda y: sum(total(part * c) for part in vmap(call)(y)))(Y), 9 * c)
    close(grad(lambda y: total(vmap(call)(y)[2]))(Y), np.full((4, 3), 4.0))
    close(jvp(vmap(call), (Y,), (c,))[1], (2 * c, 3 * c, 4 * c))


@loops_allowed
def test_results_that_are_not_differentiable(ns, is_batchable):
    np_ = ops.np if is_batchable else np

    def kernel(x):
        mask = np_.greater(x, 0.0)
        return x * mask, mask, x * 2.0

    def setup(ctx, inputs, output):
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(output[1])

    def backward(ctx, g, *rest):
        (mask,) = ctx.saved_tensors
        return g * mask

    f = define(f"{ns}::f", kernel, "(Tensor x) -> (Tensor, Tensor, Tensor)", backward, setup, batchable=is_batchable)
    c = np.arange(12.0).reshape(4, 3)
    positive, mask, doubled = vmap(f)(Y)
    close((positive, doubled), (Y * (Y > 0), 2 * Y))
    np.testing.assert_array_equal(mask, Y > 0, strict=True)
    close(grad(lambda y: sum(total(part * c) for part in vmap(f)(y)[::2]))(Y), c * (Y > 0))
    close(vmap(grad(lambda y, c: sum(total(part * c) for part in f(y)[::2])))(Y, c), c * (Y > 0))
    close(vmap(lambda x, t: jvp(lambda x: f(x)[0], (x,), (t,))[1])(Y, c), c * (Y > 0))
    x = Tensor(Y, requires_grad=True)
    assert [result.requires_grad for result in vmap(f)(x)] == [True, False, False]


@loops_allowed
def test_complex_numbers(ns, is_batchable):
    z = Y + 1j * Y[::-1]
    f = define(f"{ns}::cube", lambda z: z * z * z, backward=lambda ctx, g: g * (3 * ctx.saved_tensors[0] ** 2).conj(),
               setup=save_inputs, batchable=is_batchable)
    close(vmap(f)(z), z**3)
    close(vmap(lambda z: vjp(f, z)[1](z)[0])(z), z * (3 * z**2).conj())
    close(jvp(vmap(f), (z,), (1j * z,))[1], 1j * z * 3 * z**2)


# --- the eager tape --------------------------------------------------------------------------------------------------


@loops_allowed
def test_eager_tape_outside(s3, ns):
    x = Tensor(X, requires_grad=True)
    y = vmap(s3)(x)
    assert y.grad_fn.name == "vmap(S3)Backward"
    (gradient,) = autograd.grad(total(y), x, create_graph=True)
    close(gradient.detach(), 3 * np.cos(X))
    (second,) = autograd.grad(total(gradient), x)
    close(second, -3 * np.sin(X))


@loops_allowed
def test_eager_tape_inside(s3):
    def slope(x):
        x = x * 1.0
        return autograd.grad(total(s3(w)), w)[0] * x

    w = Tensor(W, requires_grad=True)
    close(vmap(slope)(Y), 3 * np.cos(W) * Y)


def test_tracked_array_that_a_kernel_closes_over_is_a_constant(ns):
    w = Tensor(W, requires_grad=True)
    f = define(f"{ns}::f", lambda x: x * w, backward=lambda ctx, g: g, batchable=True)
    x = Tensor(Y, requires_grad=True)
    y = vmap(f)(x)
    close(y.detach(), Y * W)
    total(y).backward()
    close(x.grad, np.ones_like(Y))      # what backward says
    assert w.grad is None


@loops_allowed
@pytest.mark.parametrize("program", [
    pytest.param(lambda f: vmap(grad(grad(lambda x: f(x)))), id="vmap(grad(grad))"),
    pytest.param(lambda f: grad(lambda x: total(grad(lambda x: total(vmap(f)(x)))(x))), id="grad(grad(vmap))"),
    pytest.param(lambda f: lambda x: jvp(vmap(grad(f)), (x,), (np.ones(3),))[1], id="jvp(vmap(grad))"),
])
def test_saved_results_are_differentiated(ns, is_batchable, program):
    def setup(ctx, inputs, output):
        ctx.save_for_backward(output)

    f = define(f"{ns}::exp", ops.np.exp if is_batchable else np.exp, backward=lambda ctx, g: g * ctx.saved_tensors[0],
               setup=setup, batchable=is_batchable)
    close(program(f)(W), np.exp(W))
    x = Tensor(W, requires_grad=True)
    (slope,) = autograd.grad(total(vmap(f)(x)), x, create_graph=True)
    (curvature,) = autograd.grad(total(slope), x)
    close(curvature, np.exp(W))


@loops_allowed
def test_gradcheck_of_a_mapped_operator(tot):
    f = lambda x: vmap(tot)(x) * np.array([1.0, 2.0, 3.0])  # noqa: E731
    x = Tensor(X, requires_grad=True)
    assert gradcheck(f, [x], check_forward_ad=True)
    assert gradgradcheck(f, [x])


# --- pieces that take NumPy arrays -----------------------------------------------------------------------------------


def black_box_setup(ctx, inputs, output):
    ctx.x = np.asarray(inputs[0])


def black_box_backward(ctx, g):
    return Tensor(2 * ctx.x * np.asarray(g))


@loops_allowed
@pytest.mark.parametrize(("setup", "backward"), [
    pytest.param(save_inputs, lambda ctx, g: Tensor(2 * np.asarray(ctx.saved_tensors[0]) * np.asarray(g)),
                 id="backward"),
    pytest.param(black_box_setup, lambda ctx, g: 2 * ctx.x * g, id="setup"),
    pytest.param(black_box_setup, black_box_backward, id="both"),
])
@pytest.mark.parametrize("in_dim", [0, 1])
def test_black_box_pieces_run_once_per_example(ns, setup, backward, in_dim):
    f = define(f"{ns}::tot", lambda x: np.sum(x * x), backward=backward, setup=setup)
    c = np.array([1.0, 10.0, 100.0])
    expected = 2 * X * (c[:, None] if in_dim == 0 else c[None, :])
    x = Tensor(X, requires_grad=True)
    total(vmap(f, in_dim)(x) * c).backward()
    close(x.grad, expected)
    w = Tensor(W, requires_grad=True)
    total(vmap(lambda y, w: f(w + y * 0), (0, None))(Y, w)).backward()
    close(w.grad, 2 * 4 * W)
    close(grad(lambda x: total(vmap(f, in_dim)(x) * c))(X), expected)


@loops_allowed
def test_black_box_setup_does_not_lose_second_derivatives(ns):
    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.n = int(np.asarray(output) > -5)

    f = define(f"{ns}::cube", lambda x: x**3, backward=lambda ctx, g: ctx.n * 3 * ctx.saved_tensors[0] ** 2 * g,
               setup=setup)
    values = np.array([0.3, -1.2, 2.0])
    x = Tensor(values, requires_grad=True)
    (gradient,) = autograd.grad(total(vmap(f)(x)), x, create_graph=True)
    close(gradient.detach(), 3 * values**2 * (values**3 > -5))
    close(autograd.grad(total(gradient), x)[0], 6 * values)


@loops_allowed
def test_black_box_jvp(ns):
    f = define(f"{ns}::f", np.sin, backward=lambda ctx, g: g, setup=save_inputs,
               jvp=lambda ctx, t: Tensor(np.cos(np.asarray(ctx.saved_tensors[0])) * np.asarray(t)))
    close(jvp(vmap(f), (X,), (X,))[1], np.cos(X) * X)


@loops_allowed
def test_black_box_derivatives_inside_of_vmap(ns):
    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.scale = [inputs[0] * 0 + 3.0, 2.0]

    def backward(ctx, g):
        (x,), (three, two) = ctx.saved_tensors, ctx.scale
        return Tensor(np.asarray(g) * np.cos(np.asarray(x)) * np.asarray(three) * two)

    def tangent(ctx, t):
        return Tensor(np.asarray(t) * np.cos(np.asarray(ctx.saved_tensors[0])) * 5.0)

    f = define(f"{ns}::f", np.sin, backward=backward, setup=setup, jvp=tangent)
    weighted = lambda x: total(f(x) * W)  # noqa: E731
    close(vmap(grad(weighted))(Y), 6 * np.cos(Y) * W)
    close(vmap(vmap(grad(lambda x: f(x))))(Y), 6 * np.cos(Y))
    close(vmap(lambda x: jvp(f, (x,), (x,))[1])(Y), 5 * np.cos(Y) * Y)
    close(grad(lambda y: total(vmap(f)(y) * W))(Y), 6 * np.cos(Y) * W)


def test_black_box_backward_inside_of_vmap_warns(ns):
    f = define(f"{ns}::f", ops.np.sin, backward=lambda ctx, g: Tensor(np.asarray(g) * 2.0), batchable=True)
    with pytest.warns(PerformanceWarning, match=f"backward of operator {ns}::f runs once for each example") as told:
        close(vmap(grad(lambda x, y: total(f(x) * y)))(Y, Y), 2 * Y)
    assert [warning.filename for warning in told] == [__file__]


def test_transposing_a_black_box_is_an_error(ns):
    f = define(f"{ns}::f", np.sin, backward=lambda ctx, g: Tensor(3 * np.asarray(g)))
    with pytest.raises(NoDerivativeError, match=rf"{ns}::f has no jvp(.|\n)*jvp=jvp"):
        jvp(f, (W,), (W,))


@loops_allowed
def test_attributes_that_hold_batches(ns, is_batchable):
    # They are values of a vmap that has ended before backward, and must not be taken for those of a new one.
    def setup(ctx, inputs, output):
        ctx.kept = {"x": [inputs[0], None], "twice": inputs[0] * 2}
        ctx.shape = inputs[0].shape

    def backward(ctx, g):
        assert ctx.shape == g.shape
        return g * (ctx.kept["twice"] + ctx.kept["x"][0])

    f = define(f"{ns}::f", ops.np.sin if is_batchable else np.sin, backward=backward, setup=setup,
               batchable=is_batchable)
    close(grad(lambda y: total(vmap(f)(y)))(Y), 3 * Y)
    close(grad(lambda y: total(vmap(vmap(f))(y)))(Y), 3 * Y)
    close(vmap(grad(lambda y: total(f(y))))(Y), 3 * Y)


# --- warnings --------------------------------------------------------------------------------------------------------


def test_loop_warns_and_says_what_to_do(ns):
    f = define(f"{ns}::f", np.sin, backward=lambda ctx, g: g)
    with pytest.warns(PerformanceWarning, match=rf"operator {ns}::f(.|\n)*register_vmap(.|\n)*batchable=True") as told:
        vmap(f)(X)
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerformanceWarning)
        with pytest.raises(PerformanceWarning):
            vmap(f)(X)


def test_no_warning_where_there_is_no_loop(ns):
    f = define(f"{ns}::f", ops.np.sin, backward=s3_backward, setup=save_inputs, batchable=True)
    g = define(f"{ns}::g", np.sin, backward=s3_backward, setup=save_inputs)
    g.register_vmap(lambda info, in_dims, x: (g(x), in_dims[0]))
    for op in (f, g):
        vmap(op)(X)
        grad(lambda x, op=op: total(vmap(op)(x)))(X)
        vmap(grad(lambda x, op=op: total(op(x))))(X)
        jvp(vmap(op), (X,), (X,))


def test_batchable_kernel_that_takes_numpy_arrays_loops(ns):
    f = define(f"{ns}::f", lambda x: np.sin(np.asarray(x)), backward=lambda ctx, g: g, batchable=True)
    with pytest.warns(PerformanceWarning, match=rf"{ns}::f(.|\n)*write its kernel with operators"):
        close(vmap(f)(X), np.sin(X))


def test_batchable_kernel_is_not_run_again_after_it_has_written(ns):
    def kernel(x):
        ops.np.add_(x, 1.0)
        np.asarray(x)

    f = define(f"{ns}::f", kernel, "(Tensor(a!) x) -> ()", mutates_args=("x",), batchable=True)
    with pytest.raises(VmapError, match=f"operator {ns}::f: under vmap, it wrote to an argument before"):
        vmap(f)(Y.copy())


# --- operators without a derivative ----------------------------------------------------------------------------------


@pytest.fixture
def plain(fresh):
    """Define an operator by its schema, with a NumPy kernel."""
    def define_operator(schema, kernel, **options):
        fresh.define(schema, **options)
        fresh.impl(schema.partition("(")[0], kernel, "CPU")
        return getattr(getattr(ops, fresh.namespace), schema.partition("(")[0]).default
    return define_operator


def test_loop_over_examples(plain):
    f = plain("f(Tensor x, Tensor y) -> (Tensor, Tensor)", lambda x, y: (x * y, x + y))
    with pytest.warns(PerformanceWarning):
        close(vmap(f, (0, None))(Y, W), (Y * W, Y + W))


@loops_allowed
def test_nested_loops(plain):
    calls = []
    f = plain("f(Tensor x) -> Tensor", count(np.sin, calls))
    close(vmap(vmap(f))(Y), np.sin(Y))
    assert len(calls) == 12


@loops_allowed
def test_in_place(plain):
    def fill(x, y):
        x[...] = y
    f = plain("fill(Tensor(a!) x, Tensor y) -> ()", fill)
    x = np.zeros((4, 3))

    def program(x, y):
        assert f(x, y) is None
        return x * 2

    close(vmap(program)(x, Y), 2 * Y)
    close(x, Y)
    close(vmap(program, (0, None))(x, W), np.broadcast_to(2 * W, (4, 3)))
    with pytest.raises(VmapError, match="'x'"):
        vmap(lambda y: program(W.copy(), y))(Y)


@loops_allowed
def test_in_place_result_is_its_argument(plain):
    def twice(x):
        np.multiply(x, 2, out=x)
        return x
    f = plain("twice_(Tensor(a!) x) -> Tensor(a!)", twice)
    x = Y.copy()

    def program(x):
        y = f(x)
        assert y is x
        return y

    close(vmap(program)(x), 2 * Y)
    close(x, 2 * Y)


def test_views_need_a_rule(plain):
    f = plain("view(Tensor(a) x) -> Tensor(a)", lambda x: x[:1])
    with pytest.raises(VmapError, match=r"share memory(.|\n)*register_vmap"):
        vmap(f)(Y)


def test_loop_without_examples(plain, fresh):
    f = plain("f(Tensor x) -> (Tensor, Tensor)", lambda x: (np.sin(x), x.sum() > 0))
    x = np.empty((0, 3))
    with pytest.raises(VmapError, match="register_fake"):
        vmap(f)(x)
    fresh.impl("f", lambda x: (MetaArray(x.shape, x.dtype), MetaArray((), bool)), "Meta")
    first, second = vmap(f)(x)
    assert (first.shape, first.dtype, second.shape, second.dtype) == ((0, 3), np.float64, (0,), np.bool_)


@loops_allowed
def test_results_that_do_not_fit_together(plain):
    sizes = itertools.count(1)
    f = plain("f(Tensor x) -> Tensor", lambda x: np.zeros(next(sizes)))
    with pytest.raises(exceptions.DataDependentError, match=r"shapes in the examples of vmap: \(1,\), \(2,\)"):
        vmap(f)(X)
    g = plain("g(Tensor x) -> int", lambda x: next(sizes))
    with pytest.raises(VmapError, match="differs between the examples"):
        vmap(g)(X)


@loops_allowed
def test_operators_that_write(ns, is_batchable):
    np_ = ops.np if is_batchable else np

    def double(x):
        (ops.np.multiply_(x, 2.0) if is_batchable else np.multiply(x, 2.0, out=x))

    f = define(f"{ns}::f", double, "(Tensor(a!) x) -> ()", mutates_args=("x",), batchable=is_batchable)
    x = Y.copy()
    close(vmap(lambda x: (f(x), x + 1)[1])(x), 2 * Y + 1)
    close(x, 2 * Y)
    sin = np_.sin.out if is_batchable else np_.sin
    g = define(f"{ns}::g.out", lambda x, *, out: sin(x, out=out), "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
               mutates_args=("out",), tags="out", batchable=is_batchable)
    out = np.zeros((4, 3))
    close(vmap(lambda x, out: g(x, out=out))(Y, out), np.sin(Y))
    close(out, np.sin(Y))


def test_result_that_is_the_same_for_all_can_be_written_to(ns):
    f = define(f"{ns}::f", lambda x: ops.np.zeros((3,)), batchable=True)
    close(vmap(lambda x: ops.np.add_(f(x), x))(Y), Y)


@loops_allowed
def test_tensors_stay_tensors(s3):
    assert type(vmap(s3)(Tensor(X))) is Tensor
    assert type(vmap(s3)(X)) is np.ndarray


# --- operators that draw ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["without a derivative", "with a derivative", "batchable"])
def draw(ns, request):
    def kernel(generator, x):
        return x + generator.normal(size=x.shape)

    backward = None if request.param == "without a derivative" else lambda ctx, g: (None, 5 * g)
    return define(f"{ns}::draw", kernel, "(Generator generator, Tensor x) -> Tensor", backward, tags=("random",),
                  batchable=request.param == "batchable")


def deviates(*shape):
    return np.random.default_rng(7).normal(size=shape)


def drawn(draw, randomness, x, *, is_mapped):
    generator = np.random.default_rng(7)
    program = lambda row: draw(generator, row) if is_mapped else row * 0 + draw(generator, W)  # noqa: E731
    return vmap(program, randomness=randomness)(x)


@loops_allowed
@pytest.mark.parametrize("is_mapped", [True, False], ids=["batched", "nothing batched"])
def test_draws_are_what_randomness_says(draw, ns, is_mapped):
    with pytest.raises(VmapError, match=rf"operator {ns}::draw draws random numbers(.|\n)*randomness=\"different\""):
        drawn(draw, "error", Y, is_mapped=is_mapped)
    close(drawn(draw, "different", Y, is_mapped=is_mapped), (Y if is_mapped else W) + deviates(4, 3))
    if is_mapped:
        with pytest.raises(VmapError, match=r"argument 'x', of shape .*is batched in vmap"):
            drawn(draw, "same", Y, is_mapped=True)
    else:
        close(drawn(draw, "same", Y, is_mapped=False), np.broadcast_to(W + deviates(3), (4, 3)))


@loops_allowed
def test_draws_keep_the_derivative_of_their_author(ns):
    draw = define(f"{ns}::draw", lambda generator, x: x + generator.normal(size=x.shape),
                  "(Generator generator, Tensor x) -> Tensor", lambda ctx, g: (None, 5 * g), tags=("random",))
    generator = np.random.default_rng(7)
    loss = lambda y: total(vmap(lambda x: draw(generator, x), randomness="different")(y))  # noqa: E731
    close(grad(loss)(Y), np.full((4, 3), 5.0))
    close(jvp(loss, (Y,), (Y,))[1], 5 * Y.sum())


# --- registered rules ------------------------------------------------------------------------------------------------


def test_registered_rule_takes_effect(ns):
    seen = []
    f = define(f"{ns}::f", lambda arrays, n=2, *, by=1.0: sum(arrays) * n * by,
               "(Tensor[] arrays, int n=2, *, float by=1.0) -> Tensor")

    @f.register_vmap
    def rule(info, in_dims, arrays, n=2, *, by=1.0):
        seen.append((info.batch_size, info.randomness, in_dims, by))
        moved = [a if d is None else ops.np.moveaxis(a, d, -1) for a, d in zip(arrays, in_dims[0], strict=True)]
        ones = [ops.np.expand_dims(a, -1) if d is None else a for a, d in zip(moved, in_dims[0], strict=True)]
        return f(ones, n, by=by), -1

    close(vmap(lambda y, w: f([y, w], by=3.0), (0, None), randomness="same")(Y, W), (Y + W) * 6)
    assert seen == [(4, "same", ((0, None),), 3.0)]
    seen.clear()
    close(vmap(vmap(lambda y: f([y, y], 5)))(Y), 10 * Y)
    assert [(size, dims) for size, _, dims, _ in seen] == [(3, ((0, 0), None)), (4, ((0, 0), None))]
    seen.clear()
    close(vmap(lambda y: (f([W]), y)[0])(Y), np.broadcast_to(2 * W, (4, 3)))
    assert seen == []


@pytest.mark.parametrize(("rule", "pattern"), [
    pytest.param(lambda info, in_dims, x: [x, 0], "a list, expected exactly two values", id="list"),
    pytest.param(lambda info, in_dims, x: x, "expected exactly two values", id="one-value"),
    pytest.param(lambda info, in_dims, x: (x, 0, 0), "a tuple of 3, expected exactly two", id="three-values"),
    pytest.param(lambda info, in_dims, x: (x, (0, 0)), r"out_dims \(0, 0\)", id="tree"),
    pytest.param(lambda info, in_dims, x: (x, "0"), "out_dims '0'", id="text"),
    pytest.param(lambda info, in_dims, x: (x, True), "out_dims True", id="bool"),
    pytest.param(lambda info, in_dims, x: (x, 2), "axis 2 does not hold the 4 examples", id="axis"),
    pytest.param(lambda info, in_dims, x: (x, 1), "axis 1 does not hold the 4 examples", id="size"),
    pytest.param(lambda info, in_dims, x: (2.0, 0), "axis 0 for a float, which is not an array", id="number"),
])
def test_what_a_rule_must_return(ns, rule, pattern):
    f = define(f"{ns}::f", np.sin)
    register_vmap(f"{ns}::f", rule)
    with pytest.raises(VmapError, match=f"operator {ns}::f: the batching rule .*{pattern}"):
        vmap(f)(Y)


def test_output_without_a_batch_axis(ns):
    f = define(f"{ns}::f", lambda x: (x, x.shape[0]), "(Tensor x) -> (Tensor, int)")
    f.register_vmap(lambda info, in_dims, x: ((W, 5), None))
    numbers = []

    def program(x):
        value, number = f(x)
        numbers.append(number)
        return value

    close(vmap(program)(Y), np.broadcast_to(W, (4, 3)))
    assert numbers == [5]


def test_rules_of_both_kinds_are_of_one_mechanism(ns):
    f = define(f"{ns}::f", np.sin)
    f.register_vmap(lambda info, in_dims, x: (x * 2, 0))
    close(vmap(f)(Y), 2 * Y)

    def rule(interpreter, func, args, kwargs):
        return args[0] * 1

    with pytest.warns(exceptions.OverrideWarning):
        handle = register_pydispatch(f, Vmap, rule)
    with pytest.raises(exceptions.AutogradError):      # the interpreter is absent where rules run
        vmap(f)(Y)
    handle.remove()
    close(vmap(f)(Y), 2 * Y)


def test_removing_a_rule_brings_back_the_generated_one(ns):
    f = define(f"{ns}::f", ops.np.sin, backward=s3_backward, setup=save_inputs, batchable=True)
    with Library(ns, "FRAGMENT"):
        handle = register_vmap(f, lambda info, in_dims, x: (x * 2, 0))
        close(vmap(f)(Y), 2 * Y)
        handle.remove()
    close(vmap(f)(Y), np.sin(Y))


# --- everything else -------------------------------------------------------------------------------------------------


@loops_allowed
def test_new_derivative_is_used_from_the_next_call_on(s3):
    close(grad(lambda x: total(vmap(s3)(x)))(X), 3 * np.cos(X))
    s3.register_autograd(lambda ctx, g: 11 * g)
    close(grad(lambda x: total(vmap(s3)(x)))(X), np.full((3, 3), 11.0))


@loops_allowed
def test_arrays_without_data(s3):
    s3.register_fake(ops.np.zeros_like)
    result = vmap(s3)(MetaArray((4, 3), np.float32))
    assert (type(result), result.shape, result.dtype) == (MetaArray, (4, 3), np.float32)
    with FakeMode() as mode:
        fake = vmap(s3)(mode.from_array(Tensor(Y)))
    assert (fake.shape, fake.dtype) == ((4, 3), np.float64)


@loops_allowed
def test_trace_holds_the_derived_operator(s3, ns):
    s3.register_fake(ops.np.zeros_like)
    graph = make_fx(lambda x: vmap(s3)(x) * 2)(Y)
    assert f"vmap({ns}::s3)" in [str(node.target.name) for node in graph.nodes if isinstance(node.target, OpOverload)]
    close(graph(Y), 2 * np.sin(Y))
    assert "vmap" in str(graph)


def test_errors_name_the_derived_operator(ns):
    f = define(f"{ns}::f", lambda x: x if x.sum() > 0 else -x, backward=lambda ctx, g: g, batchable=True)
    with pytest.raises(exceptions.DataDependentError, match=rf"vmap\({ns}::f\)"):
        vmap(f)(X)
    g = define(f"{ns}::g", ops.np.sin, backward=lambda ctx, g: g if g.sum() > 0 else -g, batchable=True)
    with pytest.raises(exceptions.DataDependentError, match=rf"vmap\({ns}::g\)"):
        grad(lambda x: total(vmap(g)(x)))(X)


@loops_allowed
def test_exceptions_leave_no_level_behind(ns, is_batchable):
    def fail(*args):
        raise ZeroDivisionError
    f = define(f"{ns}::f", fail, backward=lambda ctx, g: g, batchable=is_batchable)
    with pytest.raises(ZeroDivisionError):
        vmap(f)(X)
    g = define(f"{ns}::g", np.sin, backward=fail)
    with pytest.raises(ZeroDivisionError):
        grad(lambda x: total(vmap(g)(x)))(X)
    close(vmap(ops.np.sin)(X), np.sin(X))


@loops_allowed
def test_derived_operators_go_with_their_operator(ns, is_batchable):
    f = define(f"{ns}::f", ops.np.sin if is_batchable else np.sin, backward=s3_backward, setup=save_inputs,
               batchable=is_batchable)
    vmap(f)(X)
    grad(lambda x, f=f: total(vmap(vmap(f))(x)))(X)
    gone = weakref.ref(f.operator)
    f.remove()
    del f
    gc.collect()
    assert gone() is None


@loops_allowed
def test_derived_operators_are_made_once(s3):
    seen = []

    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Log():
        vmap(s3)(X)
        vmap(s3)(Y)
        vmap(s3, randomness="same")(Y)
    assert seen[0] is seen[1]
    assert seen[1] is not seen[2]
