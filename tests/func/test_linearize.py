"""linearize: the value, the derivative function again and again, inside other transforms, errors."""

from collections import namedtuple

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, higher_order, ops, tree
from pydispatch.autograd import Function
from pydispatch.exceptions import DispatchError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tree import tree_leaves, tree_map
from tests.comparing import close, is_raw
from tests.functions import FUNCTIONS, Cube, Stateless
from tests.operators.oracles import DIFFERENTIABLE, assert_near, cases, likewise, quiet

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.5, -0.7])
T = np.array([1.0, -2.0, 0.25])
Pair = namedtuple("Pair", ["first", "second"])


def wave(x):
    return ops.np.sin(x) * x**2


def slope(x):
    return np.cos(x) * x**2 + np.sin(x) * 2 * x


def curvature(x):
    return -np.sin(x) * x**2 + 4 * x * np.cos(x) + 2 * np.sin(x)


# --- values -------------------------------------------------------------------------------------------------


def test_value_and_derivative():
    output, derivative = linearize(wave, X)
    close(output, np.sin(X) * X**2)
    close(derivative(T), slope(X) * T)


@pytest.mark.parametrize("weight", [1.0, -2.0, 0.0, 1e200])
def test_tangents_again_and_again(weight):
    _, derivative = linearize(wave, X)
    for tangent in (T, weight * T, Y, weight * Y):
        close(derivative(tangent), slope(X) * tangent)


def test_function_is_called_once():
    calls = []
    _, derivative = linearize(lambda x: calls.append(1) or x * x, X)
    derivative(T)
    derivative(Y)
    assert calls == [1]


def test_several_primals():
    output, derivative = linearize(lambda x, y: x * ops.np.sin(y), X, Y)
    close(output, X * np.sin(Y))
    close(derivative(T, 2 * T), T * np.sin(Y) + X * np.cos(Y) * 2 * T)


def test_matrix_times_vector():
    matrix = np.arange(6.0).reshape(2, 3)
    _, derivative = linearize(lambda m, x: m @ x, matrix, X)
    close(derivative(np.ones((2, 3)), T), np.full(2, X.sum()) + matrix @ T)


def test_complex():
    z, t = np.array([1 + 2j, -1j]), np.array([0.5 - 1j, 2.0 + 0j])
    close(linearize(lambda z: z**2, z)[1](t), 2 * z * t)
    close(linearize(lambda z: (z * z.conj()).real, z)[1](t), 2 * (z.conj() * t).real)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tangent_has_the_dtype_of_the_output(dtype):
    _, derivative = linearize(lambda x: x * 2, X.astype(dtype))
    close(derivative(T.astype(dtype)), (2 * T).astype(dtype))


def test_branches_on_the_primal_are_taken_once():
    _, derivative = linearize(lambda x: x**2 if x[0] > 0 else -x, X)
    close(derivative(-T), -2 * X * T)


def test_loop_whose_length_depends_on_the_primal():
    def halved(x):
        while abs(x) > 1:
            x = x / 2
        return x**2

    _, derivative = linearize(halved, np.array(10.0))
    close(derivative(np.array(3.0)), 2 * (10.0 / 16) * 3.0 / 16)


@pytest.mark.parametrize(("f", "primal"), [(ops.np.sqrt, 4.0), (lambda x: x * 1e200, 1e200), (ops.np.reciprocal, 1e-5)],
                         ids=["sqrt", "overflow", "reciprocal"])
def test_no_warning_that_jvp_does_not_give(f, primal):
    x = np.array(primal)
    with np.errstate(over="ignore"):
        derivative = linearize(f, x)[1]
    assert np.isfinite(derivative(np.array(1e-250)))


def test_sqrt_at_zero_does_not_warn_before_there_is_a_tangent():
    _, derivative = linearize(ops.np.sqrt, np.array(0.0))
    with np.errstate(divide="ignore"):
        close(derivative(np.array(1.0)), np.inf)


# --- what you pass is what you get --------------------------------------------------------------------------


def test_raw_in_raw_out():
    output, derivative = linearize(lambda x: (wave(x), x.sum(), Y), X)
    assert all(map(is_raw, output))
    assert all(map(is_raw, derivative(T)))


def test_tensor_in_tensor_out():
    output, derivative = linearize(wave, Tensor(X))
    assert type(output) is Tensor
    assert type(derivative(T)) is type(derivative(Tensor(T))) is Tensor
    assert not derivative(T).requires_grad
    assert type(linearize(wave, X)[1](Tensor(T))) is Tensor


@pytest.mark.parametrize("f", [lambda x: x, lambda x: x * 2, lambda x: x.reshape(3)], ids=["same", "new", "view"])
def test_tangents_are_not_changed(f):
    t = T.copy()
    linearize(f, X)[1](t)
    close(t, T)


def test_results_are_independent_of_one_another():
    _, derivative = linearize(lambda x: (x * 2, Y), X)
    first = derivative(T)
    first[0][:] = first[1][:] = 7.0
    second = derivative(T)
    close(second[0], 2 * T)
    close(second[1], np.zeros(3))


# --- containers ---------------------------------------------------------------------------------------------

TREES = {
    "tuple": lambda a, b: (a, b), "list": lambda a, b: [a, b], "dict": lambda a, b: {"b": b, "a": a},
    "namedtuple": Pair, "nested": lambda a, b: [(a,), {"k": b}],
}


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_outputs_in_containers(make):
    output, derivative = linearize(lambda x: make(x * 2, wave(x)), X)
    assert type(output) is type(derivative(T)) is type(make(X, X))
    np.testing.assert_equal(output, make(X * 2, np.sin(X) * X**2))
    np.testing.assert_allclose(tree.tree_leaves(derivative(T)), tree.tree_leaves(make(2 * T, slope(X) * T)))


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_primals_in_containers(make):
    def f(value, y):
        first, second = tree.tree_leaves(value)
        return first * y + second**2

    first, second = tree.tree_leaves(make(X, Y))
    along_first, along_second = tree.tree_leaves(make(T, 2 * T))
    _, derivative = linearize(f, make(X, Y), T)
    close(derivative(make(T, 2 * T), Y), along_first * T + first * Y + 2 * second * along_second)


def test_keys_in_another_order():
    _, derivative = linearize(lambda p: p["a"] * p["b"], {"a": X, "b": Y})
    close(derivative({"b": T, "a": 2 * T}), 2 * T * Y + X * T)


INDEPENDENT = {
    "captured": lambda x: Y, "made inside": lambda x: ops.np.ones(3), "like": lambda x: ops.np.ones_like(x),
    "detached": lambda x: x.detach(), "from constants": lambda x: ops.np.sin(Y),
}


@pytest.mark.parametrize("f", INDEPENDENT.values(), ids=INDEPENDENT)
def test_independent_output_gives_zeros(f):
    close(linearize(f, X)[1](T), np.zeros(3))


@pytest.mark.parametrize(("f", "expected"), [
    (lambda x: (x * 10).astype(np.int64), np.zeros(3, np.int64)), (lambda x: x > 0, np.zeros(3, np.bool_)),
], ids=["int", "bool"])
def test_output_of_integers_has_a_zero_tangent(f, expected):
    close(linearize(f, X)[1](T), expected)


# --- errors -------------------------------------------------------------------------------------------------

REFUSED_TANGENTS = {
    "shape (1,)": ((T[:1], {"a": T}), r"tangent 0 has shape \(1,\).*shape \(3,\)"),
    "shape ()": ((np.array(1.0), {"a": T}), r"tangent 0 has shape \(\)"),
    "shape in a container": ((T, {"a": T[:2]}), r"tangent 1\['a'\] has shape \(2,\)"),
    "float32": ((T.astype(np.float32), {"a": T}), r"dtype float32.*dtype float64"),
    "int": ((T.astype(np.int64), {"a": T}), "dtype int64"),
    "complex": ((T, {"a": T * 1j}), "dtype complex128"),
    "fewer": ((T,), "structure"), "more": ((T, {"a": T}, T), "structure"), "none": ((), "structure"),
    "other keys": ((T, {"b": T}), r"\{'b': \*\}\), expected \(\*, \{'a': \*\}\)"), "bare": ((T, T), "structure"),
    "list": (([T], {"a": T}), "structure"), "float": ((1.5, {"a": T}), r"tangent 0 has shape \(\)"),
    "number": ((1, {"a": T}), "tangent 0 is an int"),
    "None": ((None, {"a": T}), "tangent 0 is a NoneType"),
}


@pytest.mark.parametrize(("tangents", "text"), REFUSED_TANGENTS.values(), ids=REFUSED_TANGENTS)
def test_refused_tangents(tangents, text):
    _, derivative = linearize(lambda x, p: x * p["a"], X, {"a": Y})
    with pytest.raises(RuntimeError, match=text) as caught:
        derivative(*tangents)
    assert isinstance(caught.value, DispatchError)
    assert len(str(caught.value).splitlines()) == 2
    close(derivative(T, {"a": T}), T * Y + X * T)


REFUSED_PRIMALS = {
    "none": ((), RuntimeError, "no primals"), "empty": (({},), RuntimeError, "no primals"),
    "int": ((1,), RuntimeError, "primal 0 is of type int"), "None": (([X, None],), RuntimeError, r"primal 0\[1\]"),
    "integers": ((np.arange(3),), ValueError, "primal 0 has dtype int64"),
}


@pytest.mark.parametrize(("primals", "kind", "text"), REFUSED_PRIMALS.values(), ids=REFUSED_PRIMALS)
def test_refused_primals(primals, kind, text):
    with pytest.raises(kind, match=text) as caught:
        linearize(lambda *args: X, *primals)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("output", [1, None, "x", (X, 1)], ids=["int", "None", "str", "leaf"])
def test_refused_outputs(output):
    with pytest.raises(RuntimeError, match="linearize: the output") as caught:
        linearize(lambda x: output, X)
    assert isinstance(caught.value, DispatchError)


def test_exception_leaves_no_level():
    def fail(x):
        x.sum()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        linearize(fail, X)
    close(grad(lambda x: wave(x).sum())(X), slope(X))


# --- writes -------------------------------------------------------------------------------------------------


def test_write_to_what_was_computed_with():
    def f(x):
        y = x * 2
        z = y * x           # 2 x²
        y += 100
        y *= x              # 2 x² + 100 x
        return z, y

    _, derivative = linearize(f, X)
    first, second = derivative(T)
    close(first, 4 * X * T)
    close(second, (4 * X + 100) * T)


def test_write_through_a_view_to_what_was_computed_with():
    def f(x):
        y = x * 1
        z = y * x
        y[1:] *= 3
        return z, y * x

    _, derivative = linearize(f, X)
    first, second = derivative(T)
    close(first, 2 * X * T)
    close(second, 2 * X * T * [1.0, 3.0, 3.0])


def test_buffer_made_inside():
    def f(x):
        buffer = ops.np.zeros(4)
        buffer[1:] += x**2
        buffer[0] = x[0] * 3
        return buffer

    _, derivative = linearize(f, X)
    for tangent in (T, Y):
        close(derivative(tangent), [3 * tangent[0], *(2 * X * tangent)])


def test_captured_array_is_not_written_to():
    captured = X.copy()

    def f(x):
        ops.np.add_(captured, x)
        return x

    with pytest.raises(RuntimeError, match="linearize"):
        linearize(f, X)
    close(captured, X)


class InPlaceTangent(Stateless):
    """Twice its argument. Its jvp writes to the tangent that it is given."""

    @staticmethod
    def forward(x):
        return np.asarray(x) * 2

    @staticmethod
    def jvp(ctx, tangent):
        doubled = tangent.reshape(-1)
        doubled *= 2
        return tangent


def test_jvp_that_writes_to_tangents():
    _, derivative = linearize(lambda x: InPlaceTangent.apply(x * X), X)
    t = T.copy()
    for _ in range(2):
        close(derivative(t), 2 * T * X)
    close(t, T)
    _, derivative = linearize(InPlaceTangent.apply, X)
    for _ in range(2):
        close(derivative(t), 2 * T)
    close(t, T)


# --- Functions and operators --------------------------------------------------------------------------------


class OnlyForward(Function):
    """The cube. Differentiable in forward mode alone, by an operator of somebody's own on the tangent."""

    operator = None

    @staticmethod
    def forward(x):
        return np.asarray(x)**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        return OnlyForward.operator(tangent, ctx.saved_tensors[0])


def test_jvp_of_the_author_is_used(fresh, define):
    calls = []

    def kernel(t, x):
        calls.append(1)
        return 3 * x**2 * t

    OnlyForward.operator = define(fresh, "slope(Tensor t, Tensor x) -> Tensor", CPU=kernel)
    _, derivative = linearize(OnlyForward.apply, X)
    calls.clear()
    close(derivative(T), 3 * X**2 * T)
    close(derivative(Y), 3 * X**2 * Y)
    assert calls == [1, 1]


def test_function_with_several_outputs():
    output, derivative = linearize(lambda x: Cube.apply(x)[0], X)
    close(output, X**3)
    close(derivative(T), 3 * X**2 * T)


class FunctionOnTangents(Stateless):
    """The identity, whose jvp applies a Function to the tangent."""

    @staticmethod
    def forward(x):
        return np.asarray(x) * 1

    @staticmethod
    def jvp(ctx, tangent):
        return InPlaceTangent.apply(tangent) * 0.5


def test_function_applied_to_tangents():
    _, derivative = linearize(FunctionOnTangents.apply, X)
    close(derivative(T), T)
    close(derivative(Y), Y)
    _, derivative = linearize(lambda x: wave(FunctionOnTangents.apply(x)) + FunctionOnTangents.apply(x), X)
    close(derivative(T), (slope(X) + 1) * T)


def test_steps_that_lead_nowhere_are_not_taken(fresh, define):
    calls = []

    def kernel(x):
        calls.append(1)
        return x * 2

    class Counting(Stateless):
        @staticmethod
        def forward(x):
            return np.asarray(x) * 2

        @staticmethod
        def jvp(ctx, tangent):
            return doubled(tangent)

    doubled = define(fresh, "doubled(Tensor x) -> Tensor", CPU=kernel)

    def f(x):
        unused = Counting.apply(x)
        return (x * unused.detach()).sum()

    _, derivative = linearize(f, X)
    calls.clear()
    close(derivative(T), (T * 2 * X).sum())
    assert calls == []


HIGHER_ORDER = {
    "cond": lambda x: higher_order.cond(x.sum() > 0, ops.np.sin, lambda x: x * 2, (x,)),
    "map": lambda x: higher_order.map(lambda v: ops.np.sin(v) * v * x[0], x),
    "scan": lambda x: higher_order.scan(lambda carry, v: (carry * v + 1, carry * v), x[0], x)[1],
    "while_loop": lambda x: higher_order.while_loop(lambda v: v.sum() < 10, lambda v: (v * v + 1,), (x,))[0],
    "associative_scan": lambda x: higher_order.associative_scan(ops.np.multiply, x),
}


@pytest.mark.parametrize("f", HIGHER_ORDER.values(), ids=HIGHER_ORDER)
def test_operators_on_functions(f):
    _, derivative = linearize(f, X)
    for tangent in (T, Y):
        close(derivative(tangent), jvp(f, (X,), (tangent,))[1])
    close(jacfwd(f)(X) @ T, derivative(T))
    close(jacrev(f)(X) @ T, derivative(T))


SAMPLES = [sample for sample in FUNCTIONS if sample.forward_mode and sample.transforms and sample.deterministic]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_function(sample):
    for arguments in sample.arguments():
        leaves, spec = tree.tree_flatten(arguments)
        places = [i for i, leaf in enumerate(leaves) if is_raw(leaf) and leaf.dtype.kind in "fc"]

        def function(*values, leaves=leaves, spec=spec, places=places):
            chosen = dict(zip(places, values, strict=True))
            given = [chosen[i] * 1 if i in chosen else leaf for i, leaf in enumerate(leaves)]
            output = sample.function.apply(*tree.tree_unflatten(given, spec))
            return [leaf for leaf in tree.tree_leaves(output) if leaf.dtype.kind in "fc"]

        primals = [leaves[i] for i in places]
        _, derivative = linearize(function, *primals)
        for seed in (1, 20):
            tangents = likewise(primals, seed)
            expected = jvp(function, tuple(primals), tuple(tangents))[1]
            for found, wanted in zip(derivative(*tangents), expected, strict=True):
                close(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_every_operator(name):
    for case in cases(name)[::3]:
        with quiet():
            def function(*values, case=case):
                return tuple(case.ours(*values))

            output, derivative = linearize(function, *case.values)
            for seed in (1, 20):
                tangents = likewise(case.values, seed)
                expected_output, expected = jvp(function, tuple(case.values), tuple(tangents))
                np.testing.assert_equal(list(map(np.asarray, output)), list(map(np.asarray, expected_output)))
                for found, wanted in zip(derivative(*tangents), expected, strict=True):
                    assert found.dtype == wanted.dtype
                    assert_near(found, wanted, case, "linearize")
            batch = [np.stack([tangent, -2 * tangent]).astype(tangent.dtype) for tangent in tangents]
            for found, wanted in zip(vmap(derivative)(*batch), expected, strict=True):
                assert_near(found, np.stack([wanted, -2 * wanted]), case, "a batch of linearize")


# --- inside of other transforms, and around them ------------------------------------------------------------


def test_grad_of_the_value_and_of_the_derivative():
    def f(x):
        output, derivative = linearize(wave, x)
        return (output + derivative(T)).sum()

    close(grad(f)(X), slope(X) + curvature(X) * T)


def test_grad_by_the_tangent():
    close(grad(lambda t: linearize(wave, X)[1](t).sum())(T), slope(X))


def test_transpose_is_vjp():
    _, derivative = linearize(wave, X)
    close(vjp(derivative, T)[1](Y)[0], vjp(wave, X)[1](Y)[0])


def test_derivative_function_under_grad_vjp_and_jvp():
    _, derivative = linearize(wave, X)
    close(grad(lambda t: (derivative(t) * Y).sum())(T), slope(X) * Y)
    close(jvp(derivative, (T,), (Y,))[1], slope(X) * Y)
    close(grad(lambda x: (derivative(T) * x).sum())(X), slope(X) * T)


def test_linearize_of_grad_is_a_hessian_vector_product():
    _, product = linearize(grad(lambda x: wave(x).sum()), X)
    close(product(T), curvature(X) * T)
    close(product(Y), curvature(X) * Y)


def test_linearize_of_jvp_vjp_and_linearize():
    close(linearize(lambda x: jvp(wave, (x,), (T,))[1], X)[1](Y), curvature(X) * T * Y)
    close(linearize(lambda x: vjp(wave, x)[1](T)[0], X)[1](Y), curvature(X) * T * Y)
    close(linearize(lambda x: linearize(wave, x)[1](T), X)[1](Y), curvature(X) * T * Y)


def test_batch_of_tangents():
    _, derivative = linearize(wave, X)
    close(vmap(derivative)(np.eye(3)), np.diag(slope(X)))


def test_batch_of_primals_and_tangents():
    points, tangents = np.stack([X, Y]), np.stack([T, X])
    close(vmap(lambda x, t: linearize(wave, x)[1](t))(points, tangents), slope(points) * tangents)
    close(vmap(lambda x: linearize(wave, x)[1](T))(points), slope(points) * T)
    close(vmap(lambda t: linearize(wave, X)[1](t))(tangents), slope(X) * tangents)


def test_jacobians_through_it():
    _, derivative = linearize(wave, X)
    close(jacfwd(derivative)(T), np.diag(slope(X)))
    close(jacrev(derivative)(T), np.diag(slope(X)))
    close(jacfwd(lambda x: linearize(wave, x)[1](T))(X), np.diag(curvature(X) * T))
    close(jacrev(lambda x: linearize(wave, x)[1](T))(X), np.diag(curvature(X) * T))


def test_linearized_jacobian():
    _, product = linearize(jacfwd(wave), X)
    close(product(T), np.diag(curvature(X) * T))
    _, product = linearize(hessian(lambda x: (x**4).sum()), X)
    close(product(T), np.diag(24 * X * T))


def test_functionalize_around_it():
    def f(x):
        y = x.copy()
        y *= x
        return y

    close(functionalize(lambda x: linearize(f, x)[1](T))(X), 2 * X * T)
    close(linearize(functionalize(f), X)[1](T), 2 * X * T)


def test_eager_tape_differentiates_the_result():
    x = Tensor(X.copy(), requires_grad=True)
    output, derivative = linearize(wave, x)
    assert output.requires_grad
    derivative(Tensor(T)).sum().backward(retain_graph=True)
    close(x.grad, curvature(X) * T)
    t = Tensor(T.copy(), requires_grad=True)
    derivative(t).sum().backward()
    close(t.grad, slope(X))


def test_no_grad_outside_does_not_matter_to_the_value():
    x = Tensor(X.copy(), requires_grad=True)
    with autograd.no_grad():
        output, derivative = linearize(wave, x)
        assert not derivative(T).requires_grad
    assert not output.requires_grad
    close(derivative(T).detach(), slope(X) * T)


def test_no_grad_inside_does_not_matter_to_the_value_and_cuts_the_levels_around():
    def f(x):
        with autograd.no_grad():
            y = x**2
        return y * x

    close(linearize(f, X)[1](T), 3 * X**2 * T)
    expected = grad(lambda x: jvp(f, (x,), (T,))[1].sum())(X)
    close(grad(lambda x: linearize(f, x)[1](T).sum())(X), expected)
    close(expected, 2 * X * T)      # 2 x t and x² are constants: of (2 x t) x + x² t remains the x behind
    by_tangent = grad(lambda t: jvp(f, (X,), (t,))[1].sum())(T)
    close(grad(lambda t: linearize(f, X)[1](t).sum())(T), by_tangent)


def test_outlives_the_levels_it_was_made_in():
    kept = []

    def f(x):
        kept.append(linearize(wave, x)[1])
        return x.sum()

    grad(f)(X)
    close(kept[0](T), slope(X) * T)


# --- bodies that write to a copy of what they get ---------------------------------------------------------------------


def written_copy(c, x):
    c = c.copy()
    c[1:] = x
    c[0] *= 2
    return c


BODIES_THAT_WRITE = {
    "scan": lambda x: higher_order.scan(
        lambda c, u: (written_copy(c, u), (written_copy(c, u) * c).sum()), x, x)[1].sum(),
    "carry of scan": lambda x: higher_order.scan(lambda c, u: (written_copy(c, u * c[0]), c[0] * 1), x, x)[0].sum(),
    "cond": lambda x: higher_order.cond(
        np.array(True), lambda c: written_copy(c, c[0] * c[1]), lambda c: c * 1, (x,)).sum(),
    "cond of the other branch": lambda x: higher_order.cond(
        np.array(False), lambda c: c * 1, lambda c: written_copy(c, c[0] * c[1]), (x,)).sum(),
    "while_loop": lambda x: higher_order.while_loop(
        lambda i, c: i < 3, lambda i, c: (i + 1, written_copy(c, c[0] * c[2])), (np.array(0), x))[1].sum(),
    "map": lambda x: (higher_order.map(lambda u: written_copy(x, u), x) ** 2).sum(),
}


@pytest.mark.parametrize("body", BODIES_THAT_WRITE)
def test_bodies_that_write_to_copies(body):
    f, x, t = BODIES_THAT_WRITE[body], np.array([0.5, 1.5, -2.0]), np.array([1.0, -0.3, 2.0])
    slope = (f(x + 1e-6 * t) - f(x - 1e-6 * t)) / 2e-6
    value, push = linearize(f, x)
    np.testing.assert_allclose(value, f(x))
    for found in (push(t), push(t), compile(lambda x, t: linearize(f, x)[1](t))(x, t), jvp(f, (x,), (t,))[1],
                  grad(f)(x) @ t, vmap(push)(np.stack([t, t]))[1]):
        np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-8)
    second = grad(lambda x: linearize(f, x)[1](t))(x)
    np.testing.assert_allclose(second, hessian(f)(x) @ t, rtol=1e-9, atol=1e-9)


# --- bodies of loops that write through views ---


def written_by_neighbours(v):
    z = pnp.zeros(3)
    z[0] = v[0]
    z[1:] = z[:-1] * v[1:]
    return z


LOOPS = {
    "map": lambda x: map_slices(written_by_neighbours, x),
    "map of elements": lambda x: map_slices(lambda v: written_by_neighbours(pnp.stack([v, v, v])), x[0]),
    "scan": lambda x: scan(lambda s, v: (s + 1, written_by_neighbours(v)), 0.0, x)[1],
    "scan of two": lambda x: scan(lambda s, v: (s * written_by_neighbours(v), s * 1), np.ones(3), x),
    "while_loop": lambda x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, written_by_neighbours(y)), (0, x[0])),
    "cond": lambda x: cond(np.array(True), written_by_neighbours, lambda y: y * 1, (x[0],)),
    "captured": lambda x: map_slices(lambda v: written_by_neighbours(v * x[0]), x),
    "nested": lambda x: map_slices(lambda v: map_slices(lambda w: written_by_neighbours(v * w), v), x),
    "draws": lambda x: map_slices(lambda v: written_by_neighbours(v * pnp.random.default_rng(1).random(3)), x),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_whose_body_writes_through_views(loop):
    x, sent = np.array([[0.5, -1.0, 2.0], [1.5, 0.7, -0.3]]), np.array([[1.0, 0.2, -0.4], [0.3, 2.0, 0.1]])
    output, push = linearize(LOOPS[loop], x)
    expected, tangent = jvp(LOOPS[loop], (x,), (sent,))
    twice = tree_map(lambda leaf: 2 * leaf, tangent)
    for found, value in ((output, expected), (push(sent), tangent), (push(2 * sent), twice)):
        for one, other in zip(tree_leaves(found), tree_leaves(value), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)
    batched = vmap(lambda x: linearize(LOOPS[loop], x)[1](sent), randomness="same")(np.stack([x, x]))
    for one, other in zip(tree_leaves(batched), tree_leaves(tangent), strict=True):
        np.testing.assert_allclose(one, np.stack([other, other]), rtol=1e-12)
