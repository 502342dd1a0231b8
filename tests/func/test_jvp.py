"""jvp: primals, tangents, outputs, the switch of forward mode, in-place operators."""

import itertools
from collections import namedtuple

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops, tree
from pydispatch.autograd import Function
from pydispatch.exceptions import DispatchError
from pydispatch.func import grad, jvp, vjp
from tests.comparing import close, is_raw
from tests.func.forward_mode import set_forward_enabled
from tests.functions import Stateless

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.5, -0.7])
T = np.array([1.0, -2.0, 0.25])
Pair = namedtuple("Pair", ["first", "second"])


def cube(x):
    return x**3


# --- values -------------------------------------------------------------------------------------------------


def test_value_and_tangent():
    output, tangent = jvp(cube, (X,), (T,))
    close(output, X**3)
    close(tangent, 3 * X**2 * T)


def test_several_primals():
    _, tangent = jvp(lambda x, y: x * ops.np.sin(y), (X, Y), (T, 2 * T))
    close(tangent, T * np.sin(Y) + X * np.cos(Y) * 2 * T)


def test_broadcasting():
    column, row = np.array([[1.0], [2.0]]), X
    _, tangent = jvp(lambda a, b: a * b, (column, row), (np.ones((2, 1)), T))
    close(tangent, row + column * T)


def test_matrix_times_vector():
    matrix = np.arange(6.0).reshape(2, 3)
    _, tangent = jvp(lambda m, x: m @ x, (matrix, X), (np.ones((2, 3)), T))
    close(tangent, np.full(2, X.sum()) + matrix @ T)


def test_captured_arrays_are_constants():
    close(jvp(lambda x: Y * x + Y, (X,), (T,))[1], Y * T)


def test_complex():
    z, t = np.array([1 + 2j, -1j]), np.array([0.5 - 1j, 2.0 + 0j])
    close(jvp(lambda z: z**2, (z,), (t,))[1], 2 * z * t)
    close(jvp(lambda z: (z * z.conj()).real, (z,), (t,))[1], 2 * (z.conj() * t).real)


def test_identity():
    output, tangent = jvp(lambda x: x, (X,), (T,))
    close(output, X)
    close(tangent, T)


def test_raw_in_raw_out():
    assert all(map(is_raw, jvp(cube, (X,), (T,))))


def test_tensors_in_tensors_out():
    output, tangent = jvp(cube, (Tensor(X),), (Tensor(T),))
    assert type(output) is type(tangent) is Tensor
    assert not output.requires_grad
    assert not tangent.requires_grad


def test_tracked_tensors_give_tracked_results():
    x = Tensor(X.copy(), requires_grad=True)
    t = Tensor(T.copy(), requires_grad=True)
    output, tangent = jvp(cube, (x,), (t,))
    assert output.requires_grad
    by_x, by_t = autograd.grad(tangent.sum(), (x, t))
    close(by_x, 6 * X * T)
    close(by_t, 3 * X**2)


def test_function_is_called_once():
    calls = []
    jvp(lambda x: calls.append(1) or x * 2, (X,), (T,))
    assert calls == [1]


def test_tangent_with_repeated_elements():
    tangent = np.broadcast_to(2.0, 3)
    assert tangent.strides == (0,)
    close(jvp(cube, (X,), (tangent,))[1], 6 * X**2)


def test_the_same_array_as_both_primals():
    close(jvp(lambda a, b: a * b**2, (X, X), (T, np.zeros(3)))[1], T * X**2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tangent_has_the_dtype_of_the_output(dtype):
    output, tangent = jvp(cube, (X.astype(dtype),), (T.astype(dtype),))
    assert output.dtype == tangent.dtype == dtype


@pytest.mark.parametrize(("primal", "tangent"), [(np.float64, np.float32), (np.float32, np.float64)])
def test_tangent_of_another_float_dtype_is_cast_to_that_of_the_primal(primal, tangent):
    _, result = jvp(lambda x: x * 2, (X.astype(primal),), (T.astype(tangent),))
    close(result, (2 * T).astype(primal))


# --- containers of outputs ----------------------------------------------------------------------------------

TREES = {
    "tuple": lambda a, b: (a, b), "list": lambda a, b: [a, b], "dict": lambda a, b: {"b": b, "a": a},
    "namedtuple": Pair, "nested": lambda a, b: [(a,), {"k": b}],
}


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_outputs_in_containers(make):
    output, tangent = jvp(lambda x: make(x * 2, ops.np.negative(x)), (X,), (T,))
    assert type(output) is type(tangent) is type(make(X, X))
    np.testing.assert_equal(output, make(X * 2, -X))
    np.testing.assert_equal(tangent, make(2 * T, -T))


def test_has_aux():
    output, tangent, aux = jvp(lambda x: (x * 2, {"sine": ops.np.sin(x), "n": 3}), (X,), (T,), has_aux=True)
    close(output, 2 * X)
    close(tangent, 2 * T)
    assert is_raw(aux["sine"])
    close(aux["sine"], np.sin(X))
    assert aux["n"] == 3


@pytest.mark.parametrize("f", [lambda x: x, lambda x: [x, x], lambda x: (x, x, x)], ids=["bare", "list", "three"])
def test_has_aux_needs_a_tuple_of_two(f):
    with pytest.raises(RuntimeError, match="has_aux"):
        jvp(f, (X,), (T,), has_aux=True)


# --- containers of primals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_primals_in_containers(make):
    def f(value, y):
        first, second = tree.tree_leaves(value)
        return first * y + second**2

    first, second = tree.tree_leaves(make(X, Y))
    along_first, along_second = tree.tree_leaves(make(T, 2 * T))
    output, tangent = jvp(f, (make(X, Y), T), (make(T, 2 * T), Y))
    close(output, first * T + second**2)
    close(tangent, along_first * T + first * Y + 2 * second * along_second)
    assert is_raw(tangent)


def test_keys_in_another_order():
    close(jvp(lambda p: p["a"] * p["b"], ({"a": X, "b": Y},), ({"b": T, "a": 2 * T},))[1], 2 * T * Y + X * T)


REFUSED_TREES = {
    "list for tuple": (((X, Y),), ([T, T],), RuntimeError, r"tangents have the structure \(\[\*, \*\],\), expected"),
    "other keys": (({"a": X},), ({"b": T},), RuntimeError, r"\{'b': \*\}.*expected.*\{'a': \*\}"),
    "leaf for container": (({"a": X},), (T,), RuntimeError, "structure"),
    "container for leaf": ((X,), ([T],), RuntimeError, "structure"),
    "shape": ((X, {"a": [X]}), (T, {"a": [T[:2]]}), RuntimeError, r"tangent 1\['a'\]\[0\] has shape \(2,\)"),
    "primal int": (([1],), ([T],), RuntimeError, r"primal 0\[0\] is of type int"),
    "tangent None": (([X],), ([None],), RuntimeError, r"tangent 0\[0\] is of type NoneType"),
    "primal integers": (([np.arange(3)],), ([T],), ValueError, r"primal 0\[0\] has dtype int64"),
    "no leaf": (({}, []), ({}, []), RuntimeError, "no primals"),
}


@pytest.mark.parametrize(("primals", "tangents", "kind", "text"), REFUSED_TREES.values(), ids=REFUSED_TREES)
def test_refused_containers(primals, tangents, kind, text):
    with pytest.raises(kind, match=text) as caught:
        jvp(lambda *args: X, primals, tangents)
    assert isinstance(caught.value, DispatchError)


def test_strict_names_the_output():
    with pytest.raises(RuntimeError, match=r"output\['b'\]\[0\] does not depend"):
        jvp(lambda x: {"a": x, "b": [Y]}, (X,), (T,), strict=True)


# --- refused arguments --------------------------------------------------------------------------------------

REFUSED = {
    "primals bare": (X, (T,)), "primals list": ([X], (T,)), "tangents bare": ((X,), T), "tangents list": ((X,), [T]),
    "fewer tangents": ((X, Y), (T,)), "more tangents": ((X,), (T, T)), "empty": ((), ()),
    "primal int": ((1,), (np.array(1.0),)), "tangent int": ((np.array(1.5),), (1,)),
    "primal None": ((None,), (T,)), "tangent None": ((X,), (None,)), "primal str": (("x",), ("x",)),
    "tangent shape (1,)": ((X,), (T[:1],)), "tangent shape ()": ((X,), (np.array(1.0),)),
    "tangent shape (1, 3)": ((X,), (T[None],)), "tangent complex": ((X,), (T * 1j,)),
}


@pytest.mark.parametrize(("primals", "tangents"), REFUSED.values(), ids=REFUSED)
def test_refused_arguments(primals, tangents):
    with pytest.raises(RuntimeError) as caught:
        jvp(lambda *args: X, primals, tangents)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_])
def test_primals_of_integers(dtype):
    whole = np.ones(3, dtype)
    for primals, tangents in (((whole,), (T,)), ((X,), (whole,)), ((whole,), (whole,))):
        with pytest.raises(ValueError, match=np.dtype(dtype).name) as caught:
            jvp(lambda x: x * 1.0, primals, tangents)
        assert isinstance(caught.value, DispatchError)


# --- outputs ------------------------------------------------------------------------------------------------

REFUSED_OUTPUTS = {
    "int": lambda x: 1, "None": lambda x: None, "str": lambda x: "x", "leaf that is no array": lambda x: (x, 1),
    "empty tuple": lambda x: (), "empty dict": lambda x: {},
}


@pytest.mark.parametrize("f", REFUSED_OUTPUTS.values(), ids=REFUSED_OUTPUTS)
def test_refused_outputs(f):
    with pytest.raises(RuntimeError) as caught:
        jvp(f, (X,), (T,))
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize(("f", "expected"), [
    (lambda x: (x * 10).astype(np.int64), np.zeros(3, np.int64)), (lambda x: x > 0, np.zeros(3, np.bool_)),
], ids=["int", "bool"])
def test_output_of_integers_has_a_zero_tangent(f, expected):
    close(jvp(f, (X,), (T,))[1], expected)


INDEPENDENT = {
    "captured": lambda x: Y, "made inside": lambda x: ops.np.ones(3), "like": lambda x: ops.np.ones_like(x),
    "detached": lambda x: x.detach(), "from constants": lambda x: ops.np.sin(Y),
}


@pytest.mark.parametrize("f", INDEPENDENT.values(), ids=INDEPENDENT)
def test_independent_output(f):
    close(jvp(f, (X,), (T,))[1], np.zeros(3))
    with pytest.raises(RuntimeError, match="strict") as caught:
        jvp(f, (X,), (T,), strict=True)
    assert isinstance(caught.value, DispatchError)


def test_one_of_two_outputs_is_independent():
    output, (dependent, independent) = jvp(lambda x: (x * 2, Y), (X,), (T,))
    close(output[1], Y)
    close(dependent, 2 * T)
    close(independent, np.zeros(3))
    with pytest.raises(RuntimeError):
        jvp(lambda x: (x * 2, Y), (X,), (T,), strict=True)


def test_strict_accepts_a_dependent_output():
    close(jvp(cube, (X,), (T,), strict=True)[1], 3 * X**2 * T)
    close(jvp(lambda x: x, (X,), (T,), strict=True)[1], T)


# --- higher order -------------------------------------------------------------------------------------------


def test_jvp_of_jvp():
    _, tangent = jvp(lambda x: jvp(cube, (x,), (T,))[1], (X,), (Y,))
    close(tangent, 6 * X * T * Y)


def test_jvp_of_vjp():
    _, tangent = jvp(lambda x: vjp(cube, x)[1](T)[0], (X,), (Y,))
    close(tangent, 6 * X * T * Y)


def test_derivative_by_the_tangent():
    close(jvp(lambda t: jvp(cube, (X,), (t,))[1], (T,), (Y,))[1], 3 * X**2 * Y)
    close(grad(lambda t: jvp(cube, (X,), (t,))[1].sum())(T), 3 * X**2)


def test_hessian_vector_product():
    matrix = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 4.0]])
    _, product = jvp(grad(lambda x: 0.5 * x @ (matrix @ x)), (X,), (T,))
    close(product, matrix @ T)


# --- modes --------------------------------------------------------------------------------------------------


def test_no_grad_inside_does_not_matter():
    def f(x):
        with autograd.no_grad():
            return cube(x)

    close(jvp(f, (X,), (T,))[1], 3 * X**2 * T)


def test_no_grad_outside_does_not_matter_to_the_tangent():
    x = Tensor(X.copy(), requires_grad=True)
    with autograd.no_grad():
        output, tangent = jvp(cube, (x,), (Tensor(T),))
    close(tangent, 3 * X**2 * T)
    assert not output.requires_grad
    assert not tangent.requires_grad


def test_forward_mode_switched_off_inside():
    def f(x):
        with set_forward_enabled(False):
            return cube(x)

    close(jvp(f, (X,), (T,))[1], np.zeros(3))


def test_forward_mode_switched_off_outside():
    with set_forward_enabled(False):
        close(jvp(cube, (X,), (T,))[1], 3 * X**2 * T)


def test_only_the_inner_level_is_switched_on():
    def f(x):
        with set_forward_enabled(False):
            _, slope = jvp(cube, (x,), (T,))
        return slope * x

    close(jvp(f, (X,), (Y,))[1], 3 * X**2 * T * Y)


def test_switch_that_leaks_is_restored():
    def f(x):
        set_forward_enabled(False)
        return x * 2

    close(jvp(f, (X,), (T,))[1], np.zeros(3))
    close(jvp(cube, (X,), (T,))[1], 3 * X**2 * T)


def test_forward_mode_does_not_matter_to_grad():
    with set_forward_enabled(False):
        close(grad(lambda x: cube(x).sum())(X), 3 * X**2)

    def f(x):
        with set_forward_enabled(False):
            return cube(x).sum()

    close(grad(f)(X), 3 * X**2)


@pytest.mark.parametrize("names", list(itertools.product(["jvp", "grad"], repeat=2)), ids=" of ".join)
def test_switched_off_around_an_inner_transform(names):
    def derivative(name, f):
        return grad(f) if name == "grad" else lambda x: jvp(f, (x,), (np.ones(()),))[1]

    outer, inner = names

    def f(x):
        with set_forward_enabled(False):
            slope = derivative(inner, cube)(x)
        return slope * x

    close(derivative(outer, f)(np.array(2.0)), 36.0 if outer == "grad" else 12.0)


def test_detach_has_no_tangent():
    close(jvp(lambda x: x.detach() * x, (X,), (T,))[1], X * T)


# --- rules --------------------------------------------------------------------------------------------------


class WithoutRule(Stateless):
    @staticmethod
    def forward(x):
        return np.asarray(x) * 2


class BackwardOnly(WithoutRule):
    """The same without a jvp: it is the transpose of backward."""

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def test_function_without_a_rule():
    with pytest.raises(NotImplementedError, match="WithoutRule") as caught:
        jvp(WithoutRule.apply, (X,), (T,))
    assert isinstance(caught.value, DispatchError)


def test_function_with_a_backward_only():
    close(jvp(BackwardOnly.apply, (X,), (T,))[1], 2 * T)


def test_function_without_a_rule_on_constants():
    close(jvp(lambda x: WithoutRule.apply(Y) * x, (X,), (T,))[1], 2 * Y * T)


class WithJvpInside(Function):
    @staticmethod
    def forward(x):
        return jvp(cube, (np.asarray(x),), (np.ones(x.shape),))[1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 6 * g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return 6 * tangent * ctx.saved_tensors[0]


def test_jvp_inside_a_forward():
    close(WithJvpInside.apply(X), 3 * X**2)
    close(jvp(WithJvpInside.apply, (X,), (T,))[1], 6 * X * T)
    close(grad(lambda x: WithJvpInside.apply(x).sum())(X), 6 * X)


@pytest.mark.parametrize("transform", ["grad", "jvp"])
def test_transforms_inside_a_kernel(transform, fresh, define):
    def kernel(x):
        if transform == "grad":
            return grad(lambda x: cube(x).sum())(x)
        return jvp(cube, (x,), (np.ones_like(x),))[1]

    slope = define(fresh, "slope(Tensor x) -> Tensor", CPU=kernel)
    close(slope(X), 3 * X**2)
    close(jvp(lambda x: slope(Y) * x, (X,), (T,))[1], 3 * Y**2 * T)


# --- in place -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda x: ops.np.zeros(3), ops.np.zeros_like], ids=["zeros", "zeros_like"])
def test_only_the_other_has_a_tangent(make):
    def f(x):
        buffer = make(x)
        buffer += 1
        buffer *= x
        return buffer

    output, tangent = jvp(f, (X,), (T,))
    close(output, X)
    close(tangent, T)


def test_only_the_target_has_a_tangent():
    def f(x):
        y = x * 2
        y *= Y
        y += 1
        return y

    close(jvp(f, (X,), (T,))[1], 2 * Y * T)


def test_both_have_tangents():
    def f(x):
        y = x * 2
        y *= x
        return y

    close(jvp(f, (X,), (T,))[1], 4 * X * T)


def test_write_of_a_tangent_through_a_view():
    def f(x):
        buffer = ops.np.zeros(4)
        view = buffer[1:]
        view += x**2
        buffer[0] = x[0] * 3
        return buffer

    output, tangent = jvp(f, (X,), (T,))
    close(output, [3 * X[0], *X**2])
    close(tangent, [3 * T[0], *(2 * X * T)])


def test_overwriting_ends_the_tangent():
    def f(x):
        y = x * 2
        y[1] = 7.0
        return y

    close(jvp(f, (X,), (T,))[1], [2 * T[0], 0.0, 2 * T[2]])


def test_arguments_are_not_changed():
    x, t = X.copy(), T.copy()

    def f(x):
        y = x.copy()
        y *= 3
        return y

    _, tangent = jvp(f, (x,), (t,))
    close(tangent, 3 * T)
    close(x, X)
    close(t, T)
