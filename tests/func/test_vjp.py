"""vjp: outputs, cotangents, calling vjp_fn again and later, modes."""

from collections import namedtuple

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops, tree
from pydispatch.exceptions import DispatchError
from pydispatch.func import grad, vjp
from tests.comparing import close, is_raw

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.5, -0.7])
G = np.array([1.0, -2.0, 0.25])
T3 = np.array([0.5, 3.0, -1.0])
Pair = namedtuple("Pair", ["first", "second"])


def cube(x):
    return x**3


# --- values -------------------------------------------------------------------------------------------------


def test_value_and_pullback():
    output, pull = vjp(cube, X)
    close(output, X**3)
    close(pull(G)[0], 3 * X**2 * G)


def test_one_primal_gives_a_tuple_of_one():
    gradients = vjp(cube, X)[1](G)
    assert type(gradients) is tuple
    assert len(gradients) == 1


def test_several_primals():
    output, pull = vjp(lambda x, y: x * y**2, X, Y)
    close(output, X * Y**2)
    by_x, by_y = pull(G)
    close(by_x, G * Y**2)
    close(by_y, G * 2 * X * Y)


def test_no_primals():
    output, pull = vjp(lambda: X * 2)
    close(output, X * 2)
    assert pull(G) == ()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unused_primal_gives_zeros(dtype):
    _, pull = vjp(lambda x, y: x * 2, X, np.ones((2, 2), dtype))
    by_x, by_y = pull(G)
    close(by_x, 2 * G)
    close(by_y, np.zeros((2, 2), dtype))


@pytest.mark.parametrize("f", [lambda x: Y, lambda x: ops.np.sign(x), lambda x: x.detach() * 2],
                         ids=["constant", "step", "detached"])
def test_unrelated_output_gives_zeros(f):
    close(vjp(f, X)[1](G)[0], np.zeros(3))


def test_identity():
    output, pull = vjp(lambda x: x, X)
    close(output, X)
    close(pull(G)[0], G)


def test_matrix_times_vector():
    matrix = np.arange(6.0).reshape(2, 3)
    _, pull = vjp(lambda m, x: m @ x, matrix, X)
    by_matrix, by_x = pull(np.array([1.0, -1.0]))
    close(by_matrix, np.outer([1.0, -1.0], X))
    close(by_x, matrix.T @ np.array([1.0, -1.0]))


def test_complex():
    z, g = np.array([1 + 2j, -1j]), np.array([0.5 - 1j, 2.0 + 0j])
    _, pull = vjp(lambda z: z**2, z)
    close(pull(g)[0], g * np.conj(2 * z))


def test_raw_in_raw_out():
    output, pull = vjp(cube, X)
    assert is_raw(output)
    assert is_raw(pull(G)[0])


def test_tensor_in_tensor_out():
    output, pull = vjp(cube, Tensor(X))
    assert type(output) is Tensor
    assert type(pull(Tensor(G))[0]) is Tensor
    assert type(pull(G)[0]) is Tensor
    assert not output.requires_grad


def test_function_is_called_once():
    calls = []
    _, pull = vjp(lambda x: calls.append(1) or x * 2, X)
    pull(G)
    pull(G)
    assert calls == [1]


# --- containers of outputs ----------------------------------------------------------------------------------

TREES = {
    "tuple": lambda a, b: (a, b), "list": lambda a, b: [a, b], "dict": lambda a, b: {"b": b, "a": a},
    "namedtuple": Pair, "nested": lambda a, b: [(a,), {"k": b}],
}


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_outputs_and_cotangents_in_containers(make):
    output, pull = vjp(lambda x: make(x * 2, ops.np.negative(x)), X)
    assert type(output) is type(make(X, X))
    np.testing.assert_equal(output, make(X * 2, -X))
    close(pull(make(G, 3 * G))[0], 2 * G - 3 * G)


def test_tuple_of_one_output():
    output, pull = vjp(lambda x: (x**2,), X)
    assert type(output) is tuple
    close(pull((G,))[0], 2 * X * G)
    with pytest.raises(RuntimeError):
        pull(G)


MISMATCHES = {"list for tuple": [G, G], "longer": (G, G, G), "shorter": (G,), "bare": G, "dict": {"a": G, "b": G},
              "deeper": (G, (G,)), "None": None, "empty": ()}


@pytest.mark.parametrize("cotangents", MISMATCHES.values(), ids=MISMATCHES)
def test_cotangents_in_another_container(cotangents):
    _, pull = vjp(lambda x: (x, x * 2), X)
    with pytest.raises(RuntimeError) as caught:
        pull(cotangents)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("keys", [("a", "c"), ("a",), ("a", "b", "c")], ids=repr)
def test_other_keys(keys):
    _, pull = vjp(lambda x: {"a": x, "b": x * 2}, X)
    with pytest.raises(RuntimeError):
        pull(dict.fromkeys(keys, G))


def test_unused_output_has_no_share():
    _, pull = vjp(lambda x: (x**2, Y), X)
    close(pull((G, 5 * G))[0], 2 * X * G)


def test_the_same_output_twice():
    def f(x):
        y = x**2
        return y, y

    close(vjp(f, X)[1]((G, 3 * G))[0], 4 * G * 2 * X)


# --- containers of primals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_primals_in_containers(make):
    def f(value, y):
        leaves = tree.tree_leaves(value)
        return leaves[0] * y, leaves[1]**2

    output, pull = vjp(f, make(X, Y), G)
    by_tree, by_y = pull((G, Y))
    first, second = tree.tree_leaves(make(X, Y))
    close(output[0], first * G)
    found_first, found_second = tree.tree_leaves(by_tree)
    close(found_first, G * G)
    close(found_second, 2 * second * Y)
    close(by_y, G * first)
    assert tree.tree_flatten(by_tree)[1] == tree.tree_flatten(make(X, Y))[1]
    assert is_raw(found_first)


def test_unused_leaf_gives_zeros():
    _, pull = vjp(lambda p: p["a"] * 2, {"a": X, "b": np.ones((2, 2), np.float32)})
    (gradient,) = pull(G)
    close(gradient["a"], 2 * G)
    close(gradient["b"], np.zeros((2, 2), np.float32))


def test_keys_in_another_order():
    _, pull = vjp(lambda x: {"a": x, "b": [{"c": x * 2, "d": x**2}]}, X)
    close(pull({"b": [{"d": T3, "c": 3 * G}], "a": G})[0], G + 6 * G + 2 * X * T3)


@pytest.mark.parametrize(("leaf", "kind"), [(1, ValueError), (None, ValueError), (np.arange(3), RuntimeError)],
                         ids=["int", "None", "integers"])
def test_refused_leaf_is_named(leaf, kind):
    with pytest.raises(kind, match=r"vjp: argument 1\['w'\]\[0\]") as caught:
        vjp(lambda x, p: x, X, {"w": [leaf]})
    assert isinstance(caught.value, DispatchError)


def test_messages_say_what_was_found_and_expected():
    _, pull = vjp(lambda x: {"a": x, "b": (x, [x])}, X)
    with pytest.raises(RuntimeError, match=r"\{'a': \*, 'b': \[\*, \*\]\}, expected \{'a': \*, 'b': \(\*, \[\*\]\)\}"):
        pull({"a": G, "b": [G, G]})
    with pytest.raises(RuntimeError, match=r"\['b'\]\[1\]\[0\] has shape \(2,\), but the output has shape \(3,\)"):
        pull({"a": G, "b": (G, [G[:2]])})
    with pytest.raises(RuntimeError, match=r"output\[0\]\['k'\] has dtype bool"):
        vjp(lambda x: ({"k": x > 0},), X)


# --- refused outputs and primals ----------------------------------------------------------------------------

REFUSED_OUTPUTS = {
    "number": lambda x: 1, "None": lambda x: None, "str": lambda x: "x", "empty tuple": lambda x: (),
    "empty list": lambda x: [], "empty dict": lambda x: {}, "int": lambda x: (x > 0).astype(int),
    "bool": lambda x: x > 0, "int leaf": lambda x: (x, x > 0), "leaf that is no array": lambda x: (x, 1),
    "None leaf": lambda x: [x, None],
}


@pytest.mark.parametrize("f", REFUSED_OUTPUTS.values(), ids=REFUSED_OUTPUTS)
def test_refused_outputs(f):
    with pytest.raises(RuntimeError) as caught:
        vjp(f, X)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("primal", [np.arange(3), np.array([True]), Tensor(np.arange(3))], ids=repr)
def test_primal_of_integers(primal):
    with pytest.raises(RuntimeError, match=primal.dtype.name):
        vjp(lambda x: x * 1.0, primal)


@pytest.mark.parametrize("primal", [1, None, "x"], ids=repr)
def test_primal_that_is_no_array(primal):
    with pytest.raises(ValueError, match=type(primal).__name__):
        vjp(lambda x: Y, primal)


# --- cotangents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (), (4,), (3, 1), (1, 3)], ids=repr)
def test_cotangent_of_another_shape(shape):
    _, pull = vjp(cube, X)
    with pytest.raises(RuntimeError, match=r"\(3,\)") as caught:
        pull(np.ones(shape))
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.bool_])
def test_cotangent_is_cast(dtype):
    close(vjp(cube, X)[1](np.array([1, 0, 1], dtype))[0], 3 * X**2 * [1, 0, 1])


def test_cotangent_of_higher_precision_is_cast():
    close(vjp(cube, X.astype(np.float32))[1](G)[0], (3 * X**2 * G).astype(np.float32), rtol=1e-6)


def test_complex_cotangent_of_a_real_output():
    _, pull = vjp(cube, X)
    with pytest.raises(RuntimeError, match="complex"):
        pull(G * 1j)


@pytest.mark.parametrize("f", [cube, lambda x: x.sum()], ids=["vector", "scalar"])
def test_cotangent_none(f):
    _, pull = vjp(f, X)
    with pytest.raises(RuntimeError):
        pull(None)


@pytest.mark.parametrize("cotangent", ["x", object(), [1.0, 2.0, 3.0]], ids=["str", "object", "list"])
def test_cotangent_that_is_no_array(cotangent):
    _, pull = vjp(cube, X)
    with pytest.raises(RuntimeError):
        pull(cotangent)


def test_cotangent_is_not_changed_and_not_shared():
    g = G.copy()
    _, pull = vjp(lambda x: x, X)
    (gradient,) = pull(g)
    close(gradient, G)
    close(g, G)


# --- aux ----------------------------------------------------------------------------------------------------


def test_has_aux():
    output, pull, aux = vjp(lambda x: (x**2, {"sine": ops.np.sin(x), "label": "text"}), X, has_aux=True)
    close(output, X**2)
    close(pull(G)[0], 2 * X * G)
    assert is_raw(aux["sine"])
    close(aux["sine"], np.sin(X))
    assert aux["label"] == "text"


@pytest.mark.parametrize("f", [lambda x: x, lambda x: [x, x], lambda x: (x, x, x)], ids=["bare", "list", "three"])
def test_has_aux_needs_a_tuple_of_two(f):
    with pytest.raises(RuntimeError, match="has_aux"):
        vjp(f, X, has_aux=True)


# --- vjp_fn later -------------------------------------------------------------------------------------------


def test_called_again():
    _, pull = vjp(lambda x: ops.np.sin(x) * x**2, X)
    slope = np.cos(X) * X**2 + np.sin(X) * 2 * X
    for weight in (1.0, -2.0, 0.0, 1.0):
        close(pull(weight * G)[0], weight * G * slope)


def test_outlives_its_level_and_its_function():
    def make():
        local = X + 1
        return vjp(lambda x: x * local, X)[1]

    close(make()(G)[0], G * (X + 1))


def test_is_used_inside_another_transform():
    _, pull = vjp(cube, X)
    close(grad(lambda g: pull(g)[0].sum())(G), 3 * X**2)


def test_is_made_outside_and_its_primal_is_constant_inside():
    _, pull = vjp(cube, X)
    close(grad(lambda x: (pull(G)[0] * x).sum())(X), 3 * X**2 * G)


def test_results_are_differentiable_again():
    x = Tensor(X.copy(), requires_grad=True)
    output, pull = vjp(cube, x)
    (gradient,) = pull(Tensor(G))
    assert output.requires_grad
    gradient.sum().backward()
    close(x.grad, 6 * X * G)


def test_results_are_differentiable_by_the_cotangent():
    g = Tensor(G.copy(), requires_grad=True)
    (gradient,) = vjp(cube, X)[1](g)
    gradient.sum().backward()
    close(g.grad, 3 * X**2)


def test_result_under_no_grad_is_not_tracked():
    x = Tensor(X.copy(), requires_grad=True)
    _, pull = vjp(cube, x)
    with autograd.no_grad():
        (gradient,) = pull(Tensor(G))
    assert not gradient.requires_grad
    close(gradient, 3 * X**2 * G)


def test_made_under_no_grad_and_called_outside():
    x = Tensor(X.copy(), requires_grad=True)
    with autograd.no_grad():
        output, pull = vjp(cube, x)
    assert not output.requires_grad
    (gradient,) = pull(Tensor(G))
    close(gradient.detach(), 3 * X**2 * G)


def test_exception_in_backward_leaves_it_usable():
    fail = [True]

    def check(g):
        if fail[0]:
            raise ZeroDivisionError

    def f(x):
        y = x**2
        y.register_hook(check)
        return y

    _, pull = vjp(f, X)
    with pytest.raises(ZeroDivisionError):
        pull(G)
    fail[0] = False
    close(pull(G)[0], 2 * X * G)


@pytest.mark.parametrize("f", [cube, ops.np.exp], ids=["saves its argument", "saves its result"])
def test_write_between_vjp_and_its_use_changes_nothing(f):
    x = Tensor(X.copy())
    output, pull = vjp(f, x)
    written = x if f is cube else output
    written += 1
    close(pull(G)[0], G * (3 * X**2 if f is cube else np.exp(X)))


def test_write_at_an_outer_level_changes_nothing():
    def outer(x):
        y = x * 1.0
        _, pull = vjp(cube, y)
        y += 1
        return pull(G)[0].sum()

    close(grad(outer)(X), 6 * X * G)


@pytest.mark.parametrize("nested", [False, True])
def test_arrays_that_users_write_to_before_the_pullback(nested):
    x = np.array([0.5, 1.1, -0.4])
    for function, derivative in ((np.exp, np.exp(x)), (np.square, 2 * x)):
        given = x.copy()
        output, pull = vjp(lambda x, f=function: {"y": f(x)} if nested else f(x), given)
        found = output["y"] if nested else output
        given *= 10
        found *= 7
        cotangent = np.ones(3)
        np.testing.assert_allclose(pull({"y": cotangent} if nested else cotangent)[0], derivative, rtol=1e-12)
