"""Function under transforms."""

import itertools

import numpy as np
import pytest

from pydispatch import Tensor, autograd, library, ops
from pydispatch.autograd import Function, once_differentiable
from pydispatch.exceptions import (
    AutogradError,
    ConversionError,
    NoDerivativeError,
    NoKernelError,
    PerformanceWarning,
    RegistrationError,
    VmapError,
)
from pydispatch.func import Transform, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from pydispatch.testing import gradcheck
from pydispatch.tree import tree_leaves
from tests.comparing import all_close as close
from tests.functions import Stateless
from tests.warning_filters import loops_allowed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 3))     # as many examples as elements: a wrong axis has the right shape
Y = RNG.normal(size=(4, 3))
W = RNG.normal(size=3)


def total(x):
    return ops.np.sum(x)


def define(forward, backward=None, setup=None, jvp=None, vmap=None, name="Sample", **attributes):
    """Return a Function of the new style out of functions."""
    body = {"forward": forward, "backward": backward, "jvp": jvp, "vmap": vmap,
            "setup_context": setup or (lambda ctx, inputs, output: None)}
    methods = {method: staticmethod(function) for method, function in body.items() if function is not None}
    return type(name, (Function,), methods | attributes)


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*[value for value in inputs if hasattr(value, "dtype")])
    ctx.save_for_forward(*[value for value in inputs if hasattr(value, "dtype")])


def in_numpy(function):
    return lambda *args: function(*map(np.asarray, args))


@pytest.fixture(params=["forward of operators", "forward of NumPy"])
def module(request):
    """Provide the functions of forward: operators, or NumPy, which a transform cannot look into."""
    if request.param == "forward of operators":
        return ops.np
    return type("NumPy", (), {"__getattr__": lambda self, name: in_numpy(getattr(np, name))})()


def sine(module, **attributes):
    """Compute sin with the derivative 3·cos: deliberately not the true one."""
    return define(module.sin, lambda ctx, g: 3 * g * ops.np.cos(ctx.saved_tensors[0]), save_inputs,
                  lambda ctx, t: 3 * t * ops.np.cos(ctx.saved_tensors[0]), **attributes)


def product(module, **attributes):
    """Compute x·y, broadcast. The gradients have the broadcast shape."""
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad
        return g * y if needs_x else None, g * x if needs_y else None

    def tangent(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return x * ty + tx * y

    return define(module.multiply, backward, save_inputs, tangent, **attributes)


# --- nesting ---------------------------------------------------------------------------------------------------------

PROGRAMS = {
    "grad": (lambda f: grad(lambda x: total(f(x))), 3 * np.cos(X)),
    "vmap": (vmap, np.sin(X)),
    "vmap(grad)": (lambda f: vmap(grad(lambda x: total(f(x)))), 3 * np.cos(X)),
    "grad(vmap)": (lambda f: grad(lambda x: total(vmap(f)(x))), 3 * np.cos(X)),
    "jvp": (lambda f: lambda x: jvp(f, (x,), (x,))[1], 3 * np.cos(X) * X),
    "vjp": (lambda f: lambda x: vjp(f, x)[1](X)[0], 3 * np.cos(X) * X),
    "vmap(vmap)": (lambda f: vmap(vmap(f)), np.sin(X)),
    "vmap(vmap, 1)": (lambda f: vmap(vmap(f), 1, 1), np.sin(X)),
    "grad(grad)": (lambda f: grad(lambda x: total(grad(lambda y: total(f(y)))(x))), -3 * np.sin(X)),
    "vmap(vmap(grad(grad)))": (lambda f: vmap(vmap(grad(grad(f)))), -3 * np.sin(X)),
    "grad(vmap(vmap))": (lambda f: grad(lambda x: total(vmap(vmap(f))(x))), 3 * np.cos(X)),
    "jvp(vmap)": (lambda f: lambda x: jvp(vmap(f), (x,), (x,))[1], 3 * np.cos(X) * X),
    "vmap(jvp)": (lambda f: vmap(lambda x: jvp(f, (x,), (x,))[1]), 3 * np.cos(X) * X),
    "vmap(vjp)": (lambda f: vmap(lambda x: vjp(f, x)[1](x)[0]), 3 * np.cos(X) * X),
    "jvp(grad(vmap))": (lambda f: lambda x: jvp(grad(lambda y: total(vmap(f)(y))), (x,), (x,))[1], -3 * np.sin(X) * X),
    "grad(jvp(vmap))": (lambda f: grad(lambda x: total(jvp(vmap(f), (x,), (np.ones((3, 3)),))[1])), -3 * np.sin(X)),
    "grad(vmap(grad))": (lambda f: grad(lambda x: total(vmap(grad(lambda y: total(f(y))))(x))), -3 * np.sin(X)),
    "vmap(jvp(vmap(grad)))": (lambda f: vmap(lambda x: jvp(vmap(grad(f)), (x,), (x,))[1]), -3 * np.sin(X) * X),
}


@loops_allowed
@pytest.mark.parametrize("rule", ["generated", "own"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_new_style_under_every_transform(module, rule, name):
    f = sine(module, generate_vmap_rule=True) if rule == "generated" else sine(
        module, vmap=lambda info, in_dims, x: (f.apply(x), in_dims[0]))
    program, expected = PROGRAMS[name]
    close(program(f.apply)(X), expected)
    close(program(f.apply)(Tensor(X)).detach(), expected)


@loops_allowed
@pytest.mark.parametrize("has_jvp", [True, False], ids=["jvp", "transposed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_kept_as_attributes(module, name, has_jvp):
    def keep(ctx, inputs, output):
        ctx.kept = {"inputs": inputs}

    def derivative(ctx, g):
        (x,) = ctx.kept["inputs"]
        return 3 * g * ops.np.cos(x)

    f = define(module.sin, derivative, keep, derivative if has_jvp else None, generate_vmap_rule=True)
    program, expected = PROGRAMS[name]
    close(program(f.apply)(X), expected)


@loops_allowed
def test_jacobians(module):
    f = sine(module, generate_vmap_rule=True).apply
    for jacobian in jacrev, jacfwd:
        close(jacobian(f)(W), np.diag(3 * np.cos(W)))
        close(vmap(jacobian(f))(Y), np.stack([np.diag(3 * np.cos(row)) for row in Y]))
    close(hessian(lambda x: total(f(x)))(W), np.diag(-3 * np.sin(W)))


# --- what a class must have ------------------------------------------------------------------------------------------


class OldStyle(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return 2 * g


@pytest.mark.parametrize("program", [
    lambda f: grad(lambda x: total(f(x))), vmap, lambda f: lambda x: jvp(f, (x,), (x,))], ids=["grad", "vmap", "jvp"])
def test_old_style_under_every_transform(program):
    with pytest.raises(RuntimeError, match=r"OldStyle(.|\n)*setup_context"):
        program(OldStyle.apply)(X)


@pytest.mark.parametrize("args", [lambda x: x, lambda x: W], ids=["batched", "nothing batched"])
def test_no_vmap_rule(args):
    f = sine(ops.np)
    with pytest.raises(VmapError, match=r"Sample(.|\n)*generate_vmap_rule = True(.|\n)*vmap\(info, in_dims, \*args\)"):
        vmap(lambda x: f.apply(args(x)))(X)
    close(grad(lambda x: total(f.apply(x)))(X), 3 * np.cos(X))


@pytest.mark.parametrize("args", [lambda x: x, lambda x: W], ids=["batched", "nothing batched"])
def test_both_rules(args):
    f = sine(ops.np, vmap=lambda info, in_dims, x: (f.apply(x), in_dims[0]), generate_vmap_rule=True)
    with pytest.raises(VmapError, match="Sample has both a vmap staticmethod and generate_vmap_rule"):
        vmap(lambda x: f.apply(args(x)))(X)


# --- gradients of arguments that broadcast, or are shared ------------------------------------------------------------


@loops_allowed
def test_unbatched_argument_is_summed_over(module):
    f = product(module, generate_vmap_rule=True)
    mapped = vmap(f.apply, (0, None))
    close(mapped(Y, W), Y * W)
    close(grad(lambda y, w: total(mapped(y, w)), (0, 1))(Y, W), (np.broadcast_to(W, (4, 3)), Y.sum(0)))
    close(grad(lambda w: total(vmap(lambda y: f.apply(y, w))(Y)))(W), Y.sum(0))
    close(jvp(mapped, (Y, W), (Y, W))[1], 2 * Y * W)


@loops_allowed
def test_per_example_gradients(module):
    f = product(module, generate_vmap_rule=True)
    gradients = vmap(grad(lambda w, y: total(f.apply(w, y)), (0, 1)), (None, 0))(W, Y)
    close(gradients, (Y, np.broadcast_to(W, (4, 3))))


@loops_allowed
@pytest.mark.parametrize(("shapes", "in_dims"), [
    (((3, 3), (3, 3, 3)), (0, 0)), (((3,), (3, 3)), (0, 0)), (((3, 3), (3,)), (0, 0)), (((3, 3), (3, 3)), (None, 1)),
    (((3, 3, 1), (3, 1, 3)), (0, 0)), (((3, 3, 3), (3, 3)), (-1, 0)),
])
def test_per_example_sums_are_taken_before_the_batch_axis_moves(module, shapes, in_dims):
    # The engine would sum the wrong axis of an array that broadcasting has enlarged.
    f = product(module, generate_vmap_rule=True)
    x, y = (np.random.default_rng(n).normal(size=shape) for n, shape in enumerate(shapes))

    def loss(x, y):
        return total(vmap(f.apply, in_dims)(x, y) ** 2)

    def reference(x, y):
        return total(vmap(ops.np.multiply, in_dims)(x, y) ** 2)

    close(grad(loss, (0, 1))(x, y), grad(reference, (0, 1))(x, y))
    tangents = (x[::-1], y[::-1])
    close(jvp(loss, (x, y), tangents)[1], jvp(reference, (x, y), tangents)[1])
    assert gradcheck(loss, [Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)])


# --- the author's rule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("output", "pattern"), [
    pytest.param(lambda x: [x, 0], "a list, expected exactly two values", id="list"),
    pytest.param(lambda x: x, "expected exactly two values", id="one-value"),
    pytest.param(lambda x: (x, 0, 0), "a tuple of 3, expected exactly two", id="three-values"),
    pytest.param(lambda x: (x, (0, 0)), r"out_dims \(0, 0\)", id="tuple-for-an-array"),
    pytest.param(lambda x: ((x, x), (0,)), r"out_dims \(0,\)", id="too-few"),
    pytest.param(lambda x: ((x, x), (0, (0, 0))), r"out_dims \(0, \(0, 0\)\)", id="too-deep"),
    pytest.param(lambda x: (x, 0.0), r"out_dims 0\.0", id="float"),
])
def test_what_a_rule_must_return(output, pattern):
    f = sine(ops.np, vmap=lambda info, in_dims, x: output(x))
    with pytest.raises(VmapError, match=f"the vmap staticmethod of Sample .*{pattern}"):
        vmap(f.apply)(Y)


def test_prefix_of_the_output():
    f = define(ops.np.sin, vmap=lambda info, in_dims, x: ((x, [x * 2, x.T if x.ndim == 2 else x]), (0, [0, -1])))
    close(vmap(f.apply)(Y), (Y, [2 * Y, Y]))
    g = define(ops.np.sin, vmap=lambda info, in_dims, x: ({"a": x, "b": [x, x]}, 0))
    close(vmap(g.apply)(Y), {"a": Y, "b": [Y, Y]})
    h = define(ops.np.sin, vmap=lambda info, in_dims, x: ({"a": x, "b": W}, {"b": None, "a": 0}))
    close(vmap(h.apply)(Y), {"a": Y, "b": np.stack([W] * len(Y))})


def test_output_without_a_batch_axis():
    f = define(ops.np.sin, vmap=lambda info, in_dims, x: ((W, x), (None, 0)))
    close(vmap(f.apply, out_dims=(None, 0))(Y), (W, Y))
    close(vmap(f.apply)(Y), (np.broadcast_to(W, (4, 3)), Y))


def test_what_a_rule_gets():
    seen = []

    def rule(info, in_dims, x, pair, n):
        seen.append((info.batch_size, info.randomness, in_dims))
        return f.apply(x, pair, n), 0 if info.batch_size else None

    f = define(lambda x, pair, n: x * n + pair[0] + pair[1], vmap=rule)
    call = lambda x, y, w: f.apply(x, [y, w], 2)  # noqa: E731
    close(vmap(call, (0, 0, None), randomness="different")(Y, 2 * Y, W), 4 * Y + W)
    assert seen == [(4, "different", (0, [0, None], None))]
    seen.clear()
    close(vmap(lambda y: vmap(lambda w: f.apply(y, [y, y], 2))(X))(Y), np.broadcast_to(4 * Y[:, None], (4, 3, 3)))
    assert seen == [(4, "error", (0, [0, 0], None))]


# --- outputs that are inputs -----------------------------------------------------------------------------------------


def overwriting(module, **attributes):
    def forward(x):
        if module is ops.np:
            ops.np.exp_(x)
        else:
            array = x.numpy() if isinstance(x, Tensor) else x
            np.exp(array, out=array)
        return x

    def setup(ctx, inputs, output):
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    def times_output(ctx, value):
        return value * ctx.saved_tensors[0]

    return define(forward, times_output, setup, times_output, **attributes)


@loops_allowed
def test_function_that_writes_in_place(module):
    f = overwriting(module, generate_vmap_rule=True).apply

    def program(x):
        x = x * 1.0
        y = f(x)
        assert y is x
        return y

    close(vmap(program)(Y), np.exp(Y))
    close(grad(lambda x: total(program(x)))(W), np.exp(W))
    close(grad(lambda x: total(vmap(program)(x)))(Y), np.exp(Y))
    close(vmap(grad(lambda x: total(program(x))))(Y), np.exp(Y))
    close(jvp(vmap(program), (Y,), (Y,))[1], np.exp(Y) * Y)
    close(vmap(vmap(program))(Y[..., None])[..., 0], np.exp(Y))     # examples of Y alone would be scalars
    raw = Y.copy()
    vmap(f)(raw)
    close(raw, np.exp(Y))


@loops_allowed
def test_in_place_on_what_examples_share():
    def forward(x, y):
        ops.np.add_(x, y)
        return x

    f = define(forward, lambda ctx, g: (g, g), lambda ctx, inputs, output: ctx.mark_dirty(inputs[0]),
               generate_vmap_rule=True)
    with pytest.raises(VmapError):
        vmap(lambda y: f.apply(np.zeros(3), y))(Y)


def test_input_that_is_returned_and_saved():
    f = define(lambda x: x, lambda ctx, g: g * ctx.saved_tensors[0], save_inputs, generate_vmap_rule=True)
    close(grad(lambda x: total(f.apply(x)))(W), W)
    close(grad(lambda x: total(grad(lambda y: total(f.apply(y)))(x)))(W), np.ones(3))
    close(vmap(grad(lambda x: total(f.apply(x))))(Y), Y)


@loops_allowed
def test_input_that_is_returned(module):
    f = define(lambda x: x, lambda ctx, g: g, generate_vmap_rule=True).apply
    close(grad(f)(np.array(2.0)), np.array(1.0))
    close(vmap(grad(f))(W), np.ones(3))
    close(grad(lambda x: total(vmap(f)(x)))(Y), np.ones((4, 3)))
    close(vmap(lambda y, w: (y, f(w)), (0, None))(Y, W), (Y, np.broadcast_to(W, (4, 3))))


# --- the context -----------------------------------------------------------------------------------------------------


def test_needs_input_grad_of_each_level():
    seen = []

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, g

    f = define(ops.np.add, backward, generate_vmap_rule=True).apply
    grad(lambda x: grad(lambda y: total(f(x, y)))(np.array(2.0)) + x)(np.array(1.0))
    assert (False, True) in seen
    seen.clear()
    grad(lambda w: total(vmap(lambda y: f(y, w))(Y)))(W)
    assert seen == [(False, True)]
    seen.clear()
    vmap(grad(lambda y, w: total(f(y, w))), (0, None))(Y, W)
    assert seen == [(True, False)]


@loops_allowed
@pytest.mark.parametrize("rule", ["generated", "own"])
def test_output_that_is_not_differentiable(module, rule):
    def forward(x):
        return module.multiply(x, 2.0), module.multiply(x, 3.0)

    def setup(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])

    def backward(ctx, g, g_constant):
        assert not np.any(np.asarray(ops.np.sum(g_constant)) if type(g_constant) is Tensor else 0)
        return 2 * g

    attributes = {"generate_vmap_rule": True} if rule == "generated" else {
        "vmap": lambda info, in_dims, x: (f.apply(x), 0)}
    f = define(forward, backward, setup, lambda ctx, t: (2 * t, None), **attributes)
    loss = lambda x: sum(total(part) for part in f.apply(x))  # noqa: E731
    close(vmap(grad(loss))(Y), np.full((4, 3), 2.0))
    close(grad(lambda y: sum(total(part) for part in vmap(f.apply)(y)))(Y), np.full((4, 3), 2.0))
    close(jvp(vmap(f.apply), (Y,), (Y,))[1], (2 * Y, np.zeros((4, 3))))


@loops_allowed
def test_no_zeros_where_they_are_not_wanted(module):
    seen = []

    def backward(ctx, g, unused):
        seen.append(unused)
        return 2 * g

    f = define(lambda x: (module.multiply(x, 2.0), module.multiply(x, 3.0)), backward,
               lambda ctx, inputs, output: ctx.set_materialize_grads(False), generate_vmap_rule=True)
    close(vmap(grad(lambda x: total(f.apply(x)[0])))(Y), np.full((4, 3), 2.0))
    close(grad(lambda y: total(vmap(f.apply)(y)[0]))(Y), np.full((4, 3), 2.0))
    assert seen == [None, None]


@loops_allowed
def test_function_inside_jvp_inside_grad(module):
    f = sine(module, generate_vmap_rule=True).apply
    program = grad(lambda x: total(jvp(f, (x,), (np.ones(3),))[1]))
    close(program(W), -3 * np.sin(W))
    close(vmap(program)(Y), -3 * np.sin(Y))
    close(grad(lambda y: total(vmap(lambda x: jvp(f, (x,), (np.ones(3),))[1])(y)))(Y), -3 * np.sin(Y))


@loops_allowed
def test_output_that_is_saved(module):
    f = define(module.exp, lambda ctx, g: g * ctx.saved_tensors[0],
               lambda ctx, inputs, output: ctx.save_for_backward(output), generate_vmap_rule=True).apply
    slope = grad(lambda x: total(f(x)))
    close(grad(lambda x: total(slope(x)))(W), np.exp(W))
    close(vmap(grad(lambda x: total(slope(x))))(Y), np.exp(Y))
    close(grad(lambda y: total(grad(lambda z: total(vmap(f)(z)))(y)))(Y), np.exp(Y))


@pytest.mark.parametrize("where", ["forward", "setup_context", "backward", "vmap"])
def test_exceptions_leave_no_level_behind(where):
    def fail(*args):
        raise ZeroDivisionError

    parts = {"forward": ops.np.sin, "setup": save_inputs, "backward": lambda ctx, g: g}
    parts |= {"vmap": fail} if where == "vmap" else {
        {"setup_context": "setup"}.get(where, where): fail, "generate_vmap_rule": True}
    f = define(**parts)
    with pytest.raises(ZeroDivisionError):
        grad(lambda x: total(vmap(f.apply)(x)))(X)
    close(vmap(ops.np.sin)(X), np.sin(X))


def test_names_of_nodes():
    f = sine(ops.np, name="Wave", generate_vmap_rule=True)
    x = Tensor(X, requires_grad=True)
    assert f.apply(x).grad_fn.name == "WaveBackward"
    assert vmap(f.apply)(x).grad_fn.name == "vmap(Wave)Backward"
    assert vmap(vmap(f.apply))(x).grad_fn.name == "vmap(vmap(Wave))Backward"
    names = []
    grad(lambda x: (names.append((y := f.apply(x)).grad_fn.name), total(y))[1])(X)
    assert names == ["WaveBackward"]


def test_what_is_saved_without_a_batch_axis_has_none():
    shapes = []

    def backward(ctx, g):
        shapes.append([tuple(value.shape) for value in ctx.saved_tensors])
        x, w = ctx.saved_tensors
        return g * w, g * x

    f = define(ops.np.multiply, backward, save_inputs, generate_vmap_rule=True).apply
    saved = []
    y = Tensor(Y, requires_grad=True)
    with autograd.saved_tensors_hooks(lambda t: (saved.append(tuple(t.shape)), t)[1], lambda t: t):
        result = vmap(f, (0, None))(y, Tensor(W))
    total(result).backward()
    assert saved == [(4, 3), (3,)]
    assert shapes == [[(3,), (3,)]]


@loops_allowed
def test_none_for_a_batched_input(module):
    f = define(module.multiply, lambda ctx, g: (None, g), generate_vmap_rule=True).apply
    close(grad(lambda y: total(vmap(f)(y, y[::-1])))(Y), np.ones((4, 3)))
    close(grad(lambda y: total(vmap(f, (0, None))(y, W)))(Y), np.zeros((4, 3)))
    close(vmap(grad(lambda y, w: total(f(y, w))), (0, None))(Y, W), np.zeros((4, 3)))


def test_defaults_of_forward():
    seen = []

    def setup(ctx, inputs, output):
        seen.append(inputs[1:])

    f = define(lambda x, index=(2,), by=3.0: x[index] * by, lambda ctx, g: (None, None, None), setup,
               generate_vmap_rule=True).apply
    close(vmap(f)(Y), 3 * Y[:, 2])
    grad(lambda y: total(vmap(f)(y)))(Y)
    assert set(seen) == {((2,), 3.0)}


# --- randomness ------------------------------------------------------------------------------------------------------


def test_randomness_of_the_vmap():
    f = define(lambda x, generator: x + ops.np.random_uniform(generator, size=(3,)), lambda ctx, g: (g, None),
               generate_vmap_rule=True).apply

    def run(randomness):
        generator = np.random.default_rng(7)
        return np.asarray(vmap(lambda x: f(x, generator), randomness=randomness)(np.zeros((4, 3))))

    with pytest.raises(VmapError):
        run("error")
    same, different = run("same"), run("different")
    assert len({row.tobytes() for row in same}) == 1
    assert len({row.tobytes() for row in different}) == 4
    np.testing.assert_array_equal(different, np.random.default_rng(7).uniform(size=(4, 3)))
    np.testing.assert_array_equal(same[0], np.random.default_rng(7).uniform(size=3))


# --- containers ------------------------------------------------------------------------------------------------------


@loops_allowed
def test_containers_of_arguments_and_results(module):
    def forward(values, scale):
        return {"sum": module.multiply(module.add(values["a"], values["b"][0]), scale), "list": [values["b"][0] * 1.0]}

    def backward(ctx, g):
        return {"a": g["sum"] * 2.0, "b": [g["sum"] * 2.0 + g["list"][0]]}, None

    f = define(forward, backward, generate_vmap_rule=True).apply
    mapped = vmap(lambda y, w: f({"a": y, "b": [w]}, 2.0), (0, None))
    close(mapped(Y, W), {"sum": 2 * (Y + W), "list": [np.broadcast_to(W, (4, 3))]})
    loss = lambda y, w: sum(total(leaf) for leaf in tree_leaves(mapped(y, w)))  # noqa: E731
    close(grad(loss, (0, 1))(Y, W), (np.full((4, 3), 2.0), np.full(3, 12.0)))


# --- forward mode made of backward -----------------------------------------------------------------------------------


@loops_allowed
def test_backward_is_transposed_where_jvp_is_missing(module):
    f = define(module.multiply, lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]), save_inputs,
               generate_vmap_rule=True).apply
    x, y = Y, Y[::-1] * 2
    tangents = (np.cos(x), np.sin(y))
    expected = tangents[0] * y + x * tangents[1]
    close(jvp(f, (x, y), tangents)[1], expected)
    close(jvp(vmap(f), (x, y), tangents)[1], expected)
    close(vmap(lambda x, y, s, t: jvp(f, (x, y), (s, t))[1])(x, y, *tangents), expected)
    close(jvp(lambda x: f(x, y), (x,), (tangents[0],))[1], tangents[0] * y)
    close(jvp(lambda w: vmap(f, (0, None))(Y, w), (W,), (W,))[1], Y * W)
    close(grad(lambda x: total(jvp(f, (x, y), tangents)[1]))(x), tangents[1])
    close(jvp(lambda x: jvp(f, (x, y), tangents)[1], (x,), (x,))[1], x * tangents[1])
    assert gradcheck(f, [Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)], check_forward_ad=True)


def test_transposing_sums_what_broadcasting_made_larger():
    f = product(ops.np)
    del f.jvp
    x, y = np.array([2.0, 3.0]), np.array([[1.0, 2.0], [3.0, 4.0]])
    close(jvp(f.apply, (x, y), (x, y))[1], 2 * x * y)


def test_transposing_of_complex_numbers():
    z = np.array([1 + 2j, -0.5j])
    f = define(lambda z: z**3, lambda ctx, g: g * (3 * ctx.saved_tensors[0] ** 2).conj(), save_inputs)
    close(jvp(f.apply, (z,), (1j * z,))[1], 1j * z * 3 * z**2)


def test_transposing_with_several_outputs():
    def setup(ctx, inputs, output):
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)

    f = define(lambda x: (x * 2, [x * 3], x * 5, x > 0), lambda ctx, a, b, *rest: 2 * a + 3 * b[0], setup)
    outputs, tangents = jvp(f.apply, (W,), (W,))
    close(outputs, (2 * W, [3 * W], 5 * W, W > 0))
    close(tangents[:2], (2 * W, [3 * W]))
    assert not np.any(tangents[2])


@pytest.mark.parametrize(("backward", "pattern"), [
    pytest.param(lambda ctx, g: Tensor(np.asarray(g) * 2), "NumPy", id="black-box"),
    pytest.param(once_differentiable(lambda ctx, g: g * 2), "once_differentiable", id="once_differentiable"),
])
def test_transposing_is_an_error_where_it_is_not_possible(backward, pattern):
    f = define(lambda x: x * 2, backward)
    with pytest.raises(NoDerivativeError, match=rf"Sample has no jvp.*{pattern}(.|\n)*jvp staticmethod"):
        jvp(f.apply, (W,), (W,))


# --- black boxes -----------------------------------------------------------------------------------------------------


def test_loop_warns():
    f = sine(np, generate_vmap_rule=True)
    f.forward = staticmethod(in_numpy(np.sin))
    with pytest.warns(PerformanceWarning, match=r"Sample runs once for each example(.|\n)*vmap\(info, in_dims"):
        close(vmap(f.apply)(Y), np.sin(Y))


def test_forward_is_not_tried_again_once_it_has_taken_numpy_arrays():
    calls = itertools.count()

    def forward(x):
        next(calls)
        return np.sin(np.asarray(x))

    f = define(forward, generate_vmap_rule=True).apply
    with pytest.warns(PerformanceWarning):
        vmap(f)(Y)
    assert next(calls) == 5
    with pytest.warns(PerformanceWarning):
        vmap(f)(Y)
    assert next(calls) == 10


@loops_allowed
def test_black_box_backward_runs_once_per_example():
    f = define(in_numpy(lambda x: np.sum(x * x)), save_inputs and (
        lambda ctx, g: Tensor(2 * np.asarray(g) * np.asarray(ctx.saved_tensors[0]))), save_inputs,
        generate_vmap_rule=True).apply
    c = np.array([1.0, 10.0, 100.0])
    close(grad(lambda x: total(vmap(f)(x) * c))(X), 2 * X * c[:, None])
    close(grad(lambda x: total(vmap(f, 1)(x) * c))(X), 2 * X * c)


@loops_allowed
def test_black_box_backward_inside_of_vmap():
    def backward(ctx, g):
        x = np.asarray(ctx.saved_tensors[0])
        return Tensor(3 * np.asarray(g) * np.cos(x)), None

    f = define(lambda x, n: np.sin(np.asarray(x)), backward, save_inputs,
               lambda ctx, t, _: Tensor(5 * np.asarray(t) * np.cos(np.asarray(ctx.saved_tensors[0]))),
               generate_vmap_rule=True).apply
    close(vmap(grad(lambda x: total(f(x, 2) * W)))(Y), 3 * np.cos(Y) * W)
    close(vmap(vmap(grad(lambda x: f(x, 2))))(Y), 3 * np.cos(Y))
    close(vmap(lambda x: jvp(lambda x: f(x, 2), (x,), (x,))[1])(Y), 5 * np.cos(Y) * Y)


@loops_allowed
def test_once_differentiable_under_vmap(module):
    f = define(module.sin, once_differentiable(lambda ctx, g: 3 * g * ctx.saved_tensors[0]), save_inputs,
               generate_vmap_rule=True).apply
    slope = grad(lambda x: total(vmap(f)(x)))
    close(slope(Y), 3 * Y)
    close(vmap(grad(lambda x: total(f(x))))(Y), 3 * Y)
    with pytest.raises(AutogradError, match="once_differentiable"):
        grad(lambda x: total(slope(x)))(Y)
    with pytest.raises(AutogradError, match="once_differentiable"):
        vmap(grad(lambda x: total(grad(lambda y: total(f(y)))(x))))(Y)


def test_conversion_in_the_rule_of_an_author_is_an_error():
    f = define(ops.np.sin, vmap=lambda info, in_dims, x: (np.sin(np.asarray(x)), 0))
    close(vmap(f.apply)(Y), np.sin(Y))
    with pytest.raises(ConversionError):
        grad(lambda x: total(vmap(f.apply)(x)))(Y)


@loops_allowed
@pytest.mark.parametrize("size", [0, 1])
def test_small_batches(size):
    f = sine(ops.np, generate_vmap_rule=True).apply
    x = Y[:size]
    close(vmap(f)(x), np.sin(x))
    close(grad(lambda x: total(vmap(f)(x)))(x), 3 * np.cos(x))
    g = sine(type("NumPy", (), {"sin": staticmethod(in_numpy(np.sin))}), generate_vmap_rule=True).apply
    if size == 0:
        with pytest.raises(VmapError, match="Sample: vmap over an empty batch"):
            vmap(g)(x)
    else:
        close(vmap(g)(x), np.sin(x))


# --- the eager tape --------------------------------------------------------------------------------------------------


@loops_allowed
def test_eager_tape(module):
    f = sine(module, generate_vmap_rule=True).apply
    x = Tensor(Y, requires_grad=True)
    (gradient,) = autograd.grad(total(vmap(f)(x)), x, create_graph=True)
    close(gradient.detach(), 3 * np.cos(Y))
    close(autograd.grad(total(gradient), x)[0], -3 * np.sin(Y))
    with autograd.no_grad():
        assert not vmap(f)(x).requires_grad


# --- in a transform of one's own -------------------------------------------------------------------------------------


class Doubling(Transform):
    """Values with a note. What is called is noted, and calls go on."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def process(self, func, args, kwargs):
        self.calls.append(func.name if func.schema is None else func.name.name)
        below = [arg.array if self.owns(arg) else arg for arg in args]
        return self.wrap(func(*below, **kwargs), "processed")


class Strict(Transform):
    pass


class Half(Stateless):
    """x, of which the slope is said to be one half."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return g * 0.5


def at(interpreter, function, x):
    with interpreter:
        result = function(interpreter.wrap(x))
        assert interpreter.owns(result)
        return result.array, result.note


def test_a_transform_processes_a_function_as_one_call():
    interpreter = Doubling()
    value, note = at(interpreter, Half.apply, np.array([1.0, 2.0]))
    assert (interpreter.calls, note) == (["Half"], "processed")
    np.testing.assert_array_equal(value, [1.0, 2.0])


def test_what_a_transform_calls_below_is_differentiated_by_the_author():
    np.testing.assert_array_equal(grad(lambda x: at(Doubling(), Half.apply, x)[0])(np.array(3.0)), 0.5)
    np.testing.assert_array_equal(
        vmap(grad(lambda x: at(Doubling(), Half.apply, x)[0]))(np.array([3.0, 4.0])), [0.5, 0.5])
    x = Tensor(np.array(3.0), requires_grad=True)
    at(Doubling(), Half.apply, x)[0].backward()
    assert x.grad.item() == 0.5


def test_a_function_on_batches_within_a_transform_is_one_call():
    interpreter = Doubling()
    value, _ = at(interpreter, vmap(Half.apply), np.array([1.0, 2.0]))
    assert interpreter.calls == ["vmap(Half)"]
    np.testing.assert_array_equal(value, [1.0, 2.0])


def test_a_transform_without_rule_and_process_refuses_a_function():
    with pytest.raises(NoKernelError, match=r"Function Half has no rule for Strict.*\nregister one: "
                                            r"library\.register_pydispatch\(Half, Strict, rule\)"):
        at(Strict(), Half.apply, np.array(1.0))


def test_a_rule_for_a_function():
    def rule(interpreter, func, args, kwargs):
        assert (func.name, kwargs) == ("Half", {})
        return interpreter.wrap(func(args[0].array) + 1.0, "by the rule")

    handle = library.register_pydispatch(Half, Strict, rule)
    assert at(Strict(), Half.apply, np.array(1.0)) == (2.0, "by the rule")
    handle.remove()
    handle.remove()
    with pytest.raises(NoKernelError):
        at(Strict(), Half.apply, np.array(1.0))


def test_a_function_of_constants_is_none_of_a_transforms_business():
    with Strict():
        assert Half.apply(np.array(1.0)) == 1.0


def test_rules_for_functions_are_for_transforms():
    with pytest.raises(RegistrationError, match="a rule must be for a subclass of"):
        library.register_pydispatch(Half, Tensor, lambda *args: None)


def test_a_checkpoint_comes_in_pieces():
    interpreter = Doubling()
    weight = np.array(3.0)
    value, note = at(interpreter, lambda x: autograd.checkpoint(lambda y: y * weight + x, x), np.array(2.0))
    assert (interpreter.calls, value, note) == (["multiply", "add"], 8.0, "processed")
    np.testing.assert_array_equal(
        grad(lambda w: at(Doubling(), lambda x: autograd.checkpoint(lambda y: y * w + x, x), np.array(2.0))[0])(weight),
        2.0)


CALLS = {"Function": Half.apply, "checkpoint": lambda x: autograd.checkpoint(lambda y: y * 0.5, x)}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_call_gets_around_a_transform_without_rules(call):
    with pytest.raises(NoKernelError, match=r"has no rule for Strict, and Strict.* defines no process method"):
        at(Strict(), call, np.array(1.0))


@pytest.mark.parametrize(("name", "first", "gradient"), [
    pytest.param("Function", ["Half", "multiply"], 3.0, id="Function"),
    pytest.param("checkpoint", ["multiply", "multiply"], 2.0, id="checkpoint"),
])
def test_the_gradient_within_a_transform_belongs_to_it(name, first, gradient):
    interpreter = Doubling()
    value, note = at(interpreter, grad(lambda x: CALLS[name](x) * x), np.array(2.0))
    assert (interpreter.calls[:2], note) == (first, "processed")
    np.testing.assert_array_equal(value, gradient)


def test_what_a_checkpoint_captures_of_a_transform_belongs_to_it():
    interpreter = Doubling()
    value, note = at(interpreter, lambda w: autograd.checkpoint(lambda y: y * w, np.array(2.0)), np.array(3.0))
    assert (interpreter.calls, value, note) == (["multiply"], 6.0, "processed")


def test_what_a_forward_captures_of_a_transform_belongs_to_it():
    def with_captured(w):
        class Scaled(Half):
            @staticmethod
            def forward(x):
                return x * w

        return Scaled.apply(np.array(2.0))

    interpreter = Doubling()
    value, note = at(interpreter, with_captured, np.array(3.0))
    assert (interpreter.calls, value, note) == (["Scaled"], 6.0, "processed")


# --- batches ---------------------------------------------------------------------------------------------------------


def test_forward_does_not_see_the_axis_of_the_examples():
    shapes = []

    class Shaped(Stateless):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            shapes.append(x.array.shape)
            return x * 2.0

    with pytest.warns(PerformanceWarning):
        result = vmap(Shaped.apply)(np.ones((3, 2)))
    assert shapes == [(2,)] * 3
    np.testing.assert_array_equal(result, np.full((3, 2), 2.0))
    with pytest.raises(ConversionError, match=r"its `\.array`"):
        vmap(lambda x: x * x.array)(np.ones((3, 2)))


@pytest.mark.parametrize(("output", "dims"), [
    pytest.param(lambda x: [x], (None,), id="a list, a tuple"),
    pytest.param(lambda x: (x,), [0], id="a tuple, a list"),
    pytest.param(lambda x: (x, [x]), (0, (0,)), id="deeper"),
    pytest.param(lambda x: {"a": x}, {"b": 0}, id="other keys"),
    pytest.param(lambda x: {"a": x}, (0,), id="a dict, a tuple"),
    pytest.param(lambda x: (x, x), (0,), id="fewer"),
])
def test_out_dims_are_nested_as_the_output_is(output, dims):
    class Mapped(Stateless):
        @staticmethod
        def forward(x):
            return output(x * 1.0)

        @staticmethod
        def vmap(info, in_dims, x):
            return output(x), dims

    with pytest.raises(VmapError, match="whose structure differs"):
        vmap(Mapped.apply)(np.ones(3))


def test_a_tensor_that_is_an_argument_and_captured_counts_once_in_each_place():
    def applied(w):
        class Scaled(autograd.Function):
            @staticmethod
            def forward(x):
                return x * x * w

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * 2 * x * w

        return Scaled.apply(w)

    value = np.array([1.0, 2.0, 3.0])
    leaf = Tensor(value, requires_grad=True)
    slope, = autograd.grad(applied(leaf).sum(), leaf, create_graph=True)
    second, = autograd.grad(slope.sum(), leaf)
    for found, expected in ((slope.detach(), 3 * value**2), (second, 6 * value),
                            (grad(lambda w: applied(w).sum())(value), 3 * value**2),
                            (jvp(applied, (value,), (value,))[1], 3 * value**3),
                            (jvp(grad(lambda w: applied(w).sum()), (value,), (value,))[1], 6 * value**2)):
        np.testing.assert_allclose(found, expected)
