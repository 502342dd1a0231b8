"""grad and value_and_grad: arguments, outputs, auxiliary values, errors, what works inside."""

import collections
from collections import namedtuple

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops, tree
from pydispatch.exceptions import DispatchError
from pydispatch.func import grad, value_and_grad, vjp
from tests.comparing import close, is_raw
from tests.ids import without_address
from tests.together import together

X = np.array([0.3, -1.2, 2.0])
TWO, THREE = np.array(2.0), np.array(3.0)
Pair = namedtuple("Pair", ["first", "second"])
NOT_AN_ARRAY = {"bool": True, "int": 2, "None": None, "str": "x", "object": object()}


def sum_of_cubes(x):
    return (x**3).sum()


def product_with_square(x, y):
    return x * y**2


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-2.0, 0.0, 0.7])
def test_first_derivative(number):
    close(grad(ops.np.sin)(np.array(number)), np.cos(number))


@pytest.mark.parametrize("number", [-2.0, 0.0, 0.7])
def test_second_derivative(number):
    close(grad(lambda x: grad(ops.np.sin)(x))(np.array(number)), -np.sin(number))


def test_gradient_of_an_array_has_its_shape():
    x = np.arange(6.0).reshape(2, 3)
    close(grad(sum_of_cubes)(x), 3 * x**2)


def test_numpy_scalar_is_an_array():
    close(grad(ops.np.sin)(np.float64(0.7)), np.cos(0.7))


def test_argument_used_twice_adds_up():
    close(grad(lambda x: (x * X + x * x).sum())(X), X + 2 * X)


def test_the_same_array_in_two_places_is_two_arguments():
    left, right = grad(lambda a, b: (a * b**2).sum(), argnums=(0, 1))(X, X)
    close(left, X**2)
    close(right, 2 * X**2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradient_has_the_dtype_of_the_argument(dtype):
    x = X.astype(dtype)
    close(grad(lambda x: (x * np.ones(3)).sum())(x), np.ones(3, dtype))


def test_complex_argument_real_output():
    z = np.array([1 + 1j, -2j, 3.0])
    close(grad(lambda z: (z * z.conj()).real.sum())(z), 2 * z)


def test_absolute_value_squared():
    close(grad(lambda z: ops.np.absolute(z) ** 2)(np.array(1 + 1j)), 2 + 2j)


def test_function_is_called_once():
    calls = []

    def f(x):
        calls.append(x.shape)
        return (x * x).sum()

    grad(f)(X)
    assert calls == [(3,)]


def test_name_and_docstring_are_kept():
    for transformed in (grad(sum_of_cubes), value_and_grad(product_with_square)):
        assert transformed.__doc__ == transformed.__wrapped__.__doc__
        assert transformed.__name__ == transformed.__wrapped__.__name__


# --- what you pass is what you get --------------------------------------------------------------------------


def test_raw_in_raw_out():
    value, gradient = value_and_grad(sum_of_cubes)(X)
    assert is_raw(value)
    assert is_raw(gradient)


def test_tensor_in_tensor_out():
    value, gradient = value_and_grad(sum_of_cubes)(Tensor(X))
    assert type(value) is type(gradient) is Tensor
    assert not value.requires_grad
    assert not gradient.requires_grad
    close(gradient, 3 * X**2)


def test_raw_and_tensor_arguments_mix():
    raw, tensor = grad(lambda a, b: (a**2).sum() + (b**3).sum(), argnums=(0, 1))(X, Tensor(X))
    close(raw, 2 * X)
    close(tensor, 3 * X**2)
    assert type(tensor) is Tensor


def test_result_is_tracked_by_the_outer_tape():
    x = Tensor(X, requires_grad=True)
    value, gradient = value_and_grad(sum_of_cubes)(x)
    assert value.requires_grad
    assert gradient.requires_grad
    gradient.sum().backward()
    close(x.grad, 6 * X)


def test_captured_tracked_tensor_gets_its_gradient():
    w = Tensor(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    gradient = grad(lambda x: (x * x * w).sum())(X)
    gradient.sum().backward()
    close(w.grad, 2 * X)


def test_eager_grads_are_not_touched():
    x = Tensor(X, requires_grad=True)
    grad(sum_of_cubes)(x)
    assert x.grad is None


# --- argnums ------------------------------------------------------------------------------------------------

BY_X, BY_Y = 9.0, 12.0
ARGNUMS = {"0": (0, BY_X), "1": (1, BY_Y), "-1": (-1, BY_Y), "-2": (-2, BY_X), "(0, 1)": ((0, 1), (BY_X, BY_Y)),
           "(1, 0)": ((1, 0), (BY_Y, BY_X)), "(0, -1)": ((0, -1), (BY_X, BY_Y)), "(1,)": ((1,), (BY_Y,))}


@pytest.mark.parametrize(("argnums", "expected"), ARGNUMS.values(), ids=ARGNUMS)
def test_argnums_choose_the_arguments(argnums, expected):
    gradients = grad(product_with_square, argnums)(TWO, THREE)
    assert type(gradients) is tuple or not isinstance(expected, tuple)
    close(np.array(gradients), np.array(expected))


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), (), [0], 0.0, 5, -3, (0, 2), None, "0"], ids=repr)
@pytest.mark.parametrize("transform", [grad, value_and_grad])
def test_refused_argnums(transform, argnums):
    with pytest.raises(RuntimeError, match="argnums"):
        transform(product_with_square, argnums)(TWO, THREE)


def test_too_few_arguments():
    with pytest.raises(RuntimeError, match="argnums"):
        grad(product_with_square)()


def test_keyword_arguments_are_passed_and_not_differentiated():
    seen = []

    def f(x, *, scale, label):
        seen.append((scale.requires_grad if isinstance(scale, Tensor) else False, label))
        return (x * scale).sum()

    close(grad(f)(X, scale=np.arange(3.0), label="kept"), np.arange(3.0))
    assert seen == [(False, "kept")]


@pytest.mark.parametrize("other", [*NOT_AN_ARRAY.values(), np.arange(3), np.array(["text"])], ids=without_address)
def test_not_differentiated_argument_may_be_anything(other):
    seen = []

    def f(x, other):
        seen.append(other)
        return x.sum()

    close(grad(f)(X, other), np.ones(3))
    assert len(seen) == 1


# --- containers of arguments --------------------------------------------------------------------------------

Y = np.array([1.5, 0.5, -0.7])
TREES = {
    "tuple": lambda a, b: (a, b), "list": lambda a, b: [a, b], "dict": lambda a, b: {"b": b, "a": a},
    "namedtuple": Pair, "nested": lambda a, b: {"k": [(a,), Pair(b, [])], "empty": ()},
}


def weighted_leaves(value):
    """Return the sum of k times the cube of the k-th leaf: of each leaf another derivative."""
    return sum(((k + 1) * (leaf**3).sum() for k, leaf in enumerate(tree.tree_leaves(value))), ops.np.zeros(()))


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_gradient_has_the_structure_of_the_argument(make):
    gradient = grad(weighted_leaves)(make(X, Y[:2]))
    order = (2, 1) if make is TREES["dict"] else (1, 2)
    assert tree.tree_flatten(gradient)[1] == tree.tree_flatten(make(X, Y))[1]
    for actual, expected in zip(
        tree.tree_leaves(gradient), tree.tree_leaves(make(order[0] * 3 * X**2, order[1] * 3 * Y[:2]**2)), strict=True):
        assert is_raw(actual)
        close(actual, expected)


def test_registered_container():
    class Box:
        def __init__(self, content):
            self.content = content

    tree.register_pytree_node(Box, lambda box: ((box.content,), None), lambda children, _: Box(*children))
    gradient = grad(lambda box: (box.content**3).sum())(Box(X))
    assert type(gradient) is Box
    close(gradient.content, 3 * X**2)


def test_argnums_of_containers_and_arrays():
    def f(params, x, rest):
        return (params["w"] * x * rest[0]).sum()

    args = ({"w": X}, Y, [TWO])
    by_rest, by_x, by_params = grad(f, argnums=(-1, 1, 0))(*args)
    assert type(by_rest) is list
    close(by_rest[0], (X * Y).sum())
    close(by_x, X * 2)
    close(by_params["w"], Y * 2)
    only, = grad(f, argnums=(0,))(*args)
    close(only["w"], Y * 2)


def test_value_and_grad_of_a_container_with_aux():
    def f(params, *, scale):
        return (params["w"] * scale).sum(), {"seen": params["w"] * 2}

    (value, aux), gradient = value_and_grad(f, has_aux=True)({"w": X, "unused": Y}, scale=Y)
    close(value, (X * Y).sum())
    assert is_raw(value)
    assert is_raw(aux["seen"])
    close(aux["seen"], 2 * X)
    close(gradient["w"], Y)
    close(gradient["unused"], np.zeros(3))


def test_tensors_in_containers_give_tensors():
    value, gradient = value_and_grad(weighted_leaves)([Tensor(X), Y])
    assert type(value) is type(gradient[0]) is Tensor
    assert is_raw(gradient[1])
    value, gradient = value_and_grad(lambda x, rest: (x * rest["y"]).sum())(X, {"y": Tensor(Y)})
    assert type(value) is Tensor
    assert is_raw(gradient)


def test_the_same_array_in_two_places_is_two_leaves():
    gradient = grad(lambda pair: (pair[0] * pair[1]**2).sum())((X, X))
    close(gradient[0], X**2)
    close(gradient[1], 2 * X**2)


def test_no_leaves():
    assert grad(lambda nothing: X.sum() * ops.np.ones(()))({}) == {}


def test_nested_grads_of_containers():
    def inner(params):
        return (params["w"]**3 * params["v"]).sum()

    def outer(params):
        slopes = grad(inner)(params)
        return (slopes["w"] * slopes["v"]).sum()

    w, v = X, Y
    gradient = grad(outer)({"w": w, "v": v})        # of 3 w^5 v
    close(gradient["w"], 15 * w**4 * v)
    close(gradient["v"], 3 * w**5)


def test_containers_of_tracked_tensors():
    x = Tensor(X.copy(), requires_grad=True)
    grad(lambda p: (p["x"]**3).sum())({"x": x})["x"].sum().backward()
    close(x.grad, 6 * X)


def test_a_class_that_is_not_registered_is_no_container():
    counter = collections.Counter(x=X)
    with pytest.raises(ValueError, match="argument 0 is a Counter"):
        grad(lambda p: p["x"].sum())(counter)
    close(grad(lambda p: p["x"].sum())(dict(counter))["x"], np.ones(3))
    close(grad(lambda y, p: (p["x"] * y).sum())(X, counter), X)


REFUSED_LEAVES = {
    "int": ({"a": [X, np.arange(3)]}, RuntimeError, r"argument 0\['a'\]\[1\] has dtype int64"),
    "number": ((X, 1), ValueError, r"argument 0\[1\] is of type int"),
    "None": (Pair(X, None), ValueError, r"argument 0\.second is a NoneType"),
}


@pytest.mark.parametrize(("argument", "kind", "text"), REFUSED_LEAVES.values(), ids=REFUSED_LEAVES)
@pytest.mark.parametrize("transform", [grad, value_and_grad])
def test_refused_leaves_are_named(transform, argument, kind, text):
    with pytest.raises(kind, match=text) as caught:
        transform(weighted_leaves)(argument)
    assert isinstance(caught.value, DispatchError)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("output", ["shape (3,)", "tuple"])
def test_outputs_that_are_no_scalars_are_refused_for_a_container(output):
    outputs = {"shape (3,)": lambda p: p["x"] * 2, "tuple": lambda p: (p["x"].sum(), 1)}
    with pytest.raises(RuntimeError, match="grad: the function returned"):
        grad(outputs[output])({"x": X})


def test_exception_leaves_no_level():
    def fail(params):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        grad(fail)({"x": X})
    close(grad(lambda p: (p["x"] * Y).sum())({"x": X})["x"], Y)


# --- refused arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.bool_])
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_argument_of_integers(dtype, wrap):
    with pytest.raises(RuntimeError, match=np.dtype(dtype).name):
        grad(lambda x: (x * 1.0).sum())(wrap(np.ones(3, dtype)))


@pytest.mark.parametrize("argument", NOT_AN_ARRAY.values(), ids=NOT_AN_ARRAY)
@pytest.mark.parametrize("transform", [grad, value_and_grad])
def test_differentiated_argument_that_is_no_array(transform, argument):
    with pytest.raises(ValueError, match=type(argument).__name__) as caught:
        transform(lambda x: X.sum())(argument)
    assert isinstance(caught.value, DispatchError)


# --- outputs ------------------------------------------------------------------------------------------------

REFUSED_OUTPUTS = {
    "shape (2,)": lambda x: x[:2], "shape (0,)": lambda x: x[:0], "int": lambda x: 1,
    "None": lambda x: None, "tuple": lambda x: (x.sum(), x.sum()),
    "list": lambda x: [x.sum()], "str": lambda x: "loss",
    "complex": lambda x: (x * 1j).sum(),
    "count": lambda x: (x > 0).sum(), "bool": lambda x: (x > 0).all(),
    "raw vector": lambda x: X, "raw int": lambda x: np.array(3),
}


@pytest.mark.parametrize("transform", [grad, value_and_grad])
@together("f", REFUSED_OUTPUTS.values(), ids=REFUSED_OUTPUTS)
def test_outputs_that_are_no_real_scalars_are_refused(transform, f):
    with pytest.raises(RuntimeError) as caught:
        transform(f)(X)
    assert isinstance(caught.value, DispatchError)


def test_message_of_a_refused_output_says_what_was_found_and_what_to_write():
    with pytest.raises(RuntimeError, match=r"\(2,\)") as caught:
        grad(lambda x: x[:2])(X)
    assert len(str(caught.value).splitlines()) == 2


UNRELATED = {
    "captured array": lambda x, y: np.array(3.0), "captured NumPy scalar": lambda x, y: np.float64(3.0),
    "captured Tensor": lambda x, y: Tensor(np.array(3.0)), "the other argument": lambda x, y: y.sum(),
    "made inside": lambda x, y: ops.np.ones(3).sum(), "like the argument": lambda x, y: ops.np.ones_like(x).sum(),
    "by a step": lambda x, y: ops.np.sign(x).sum(), "through integers": lambda x, y: (x > 0).astype(float).sum(),
}


@pytest.mark.parametrize("f", UNRELATED.values(), ids=UNRELATED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unrelated_output_gives_zeros(f, dtype):
    close(grad(f)(X.astype(dtype), X), np.zeros(3, dtype))


def test_unused_argument_gives_zeros():
    used, unused = grad(lambda x, y: x.sum(), argnums=(0, 1))(X, np.ones((2, 2), np.float32))
    close(used, np.ones(3))
    close(unused, np.zeros((2, 2), np.float32))


def test_the_argument_itself_as_output():
    close(grad(lambda x: x)(TWO), 1.0)


# --- auxiliary values ---------------------------------------------------------------------------------------


def with_aux(x):
    return (x * x).sum(), {"twice": 2 * x, "constant": X, "label": "text", "nested": [x, (None, 3)]}


def check_aux(aux, x):
    assert list(aux) == ["twice", "constant", "label", "nested"]
    assert is_raw(aux["twice"])
    close(aux["twice"], 2 * x)
    assert aux["constant"] is X
    assert aux["label"] == "text"
    assert is_raw(aux["nested"][0])
    close(aux["nested"][0], x)
    assert aux["nested"][1] == (None, 3)


def test_aux_is_unwrapped():
    gradient, aux = grad(with_aux, has_aux=True)(X)
    close(gradient, 2 * X)
    check_aux(aux, X)


def test_aux_of_an_inner_grad_belongs_to_the_outer_level():
    def outer(a):
        gradient, aux = grad(lambda b: (b**2 * a, b * a), has_aux=True)(THREE)
        assert aux.requires_grad
        return gradient + 100 * aux

    close(grad(outer)(TWO), 2 * 3.0 + 100 * 3.0)


@pytest.mark.parametrize("output", ["list", "three", "bare", "one"])
@pytest.mark.parametrize("transform", [grad, value_and_grad])
def test_has_aux_needs_a_tuple_of_two(transform, output):
    outputs = {
        "list": lambda x: [x.sum(), x], "three": lambda x: (x.sum(), x, x), "bare": lambda x: x.sum(),
        "one": lambda x: (x.sum(),),
    }
    with pytest.raises(RuntimeError, match="has_aux"):
        transform(outputs[output], has_aux=True)(X)


def test_value_and_grad():
    value, gradient = value_and_grad(sum_of_cubes)(X)
    close(value, (X**3).sum())
    close(gradient, 3 * X**2)


def test_value_and_grad_with_aux():
    (value, aux), gradient = value_and_grad(with_aux, has_aux=True)(X)
    close(value, (X * X).sum())
    close(gradient, 2 * X)
    check_aux(aux, X)


def test_value_and_grad_with_argnums():
    value, gradients = value_and_grad(product_with_square, argnums=(1, 0))(TWO, THREE)
    close(value, 18.0)
    close(np.array(gradients), np.array([BY_Y, BY_X]))


# --- operators without a derivative -------------------------------------------------------------------------


@pytest.fixture
def opaque(fresh, define):
    """Provide an operator that nobody gave a derivative."""
    return define(fresh, "opaque(Tensor x) -> Tensor", CPU=lambda x: x * 2)


def test_operator_without_derivative_on_detached(opaque):
    close(grad(lambda x: (x * opaque(x.detach())).sum())(X), 2 * X)


def test_operator_without_derivative_on_an_outer_value_names_it(opaque):
    with pytest.raises(NotImplementedError, match="opaque"):
        grad(lambda a: grad(lambda b: (b * opaque(a)).sum())(X).sum())(X)


# --- what works inside --------------------------------------------------------------------------------------


CONVERSIONS = {
    "np.asarray": np.asarray, "np.array": np.array, "float": lambda x: float(x[0]),
    "np.add(raw, x, out)": lambda x: np.add(X, x, out=X.copy()), "numpy()": lambda x: x.numpy(),
    "memory of a slot": lambda x: np.zeros(3).__setitem__(0, x[0]),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_conversion_to_numpy_is_refused(convert):
    def f(x):
        convert(x)
        return x.sum()

    with pytest.raises((TypeError, ValueError, RuntimeError)):
        grad(f)(X)


def test_numpys_functions_inside():
    close(grad(lambda x: np.sum(np.multiply(np.sort(x), [1.0, 2.0, 3.0])))(X), np.argsort(np.argsort(X)) + 1.0)


def test_raw_arrays_on_the_left():
    close(grad(lambda x: (X * x + X @ x + np.float64(2.0) * x + 3.0 * x).sum())(X), X + 3 * X + 2.0 + 3.0)


def test_hook_on_the_argument():
    def f(x):
        x.register_hook(lambda g: g + 1)
        return sum_of_cubes(x)

    close(grad(f)(X), 3 * X**2 + 1)


def test_autograd_grad_inside_is_a_constant_without_create_graph():
    def f(x):
        (slope,) = autograd.grad((x**3).sum(), x)
        return (slope * x).sum()

    close(grad(f)(X), 3 * X**2)


def test_tracked_leaf_made_inside():
    leaves = []

    def f(x):
        leaf = Tensor(X.copy(), requires_grad=True)
        leaves.append(leaf)
        return (x * leaf**2).sum()

    gradient = grad(f)(X)
    close(gradient.detach(), X**2)
    assert leaves[0].grad is None
    gradient.sum().backward()
    close(leaves[0].grad, 2 * X)


@pytest.mark.parametrize("transform", [grad, lambda f: lambda x: vjp(f, x)], ids=["grad", "vjp"])
def test_saved_tensors_hooks_inside_are_refused(transform):
    def f(x):
        with autograd.saved_tensors_hooks(lambda t: t, lambda t: t):
            return (x * x).sum()

    with pytest.raises(RuntimeError, match="saved"):
        transform(f)(X)


# --- in place on values made inside -------------------------------------------------------------------------


def test_chain_of_in_place_operations():
    def f(x):
        y = x * 2
        y += 1
        y *= x
        return y.sum()

    close(grad(f)(X), 4 * X + 1)


# --- conventions where there is no derivative ---------------------------------------------------------------

ZERO = np.array(0.0)
CONVENTIONS = {
    "abs at 0": (ops.np.absolute, ZERO, 0.0),
    "maximum tie": (lambda x: ops.np.maximum(x, ZERO), ZERO, 0.5),
    "minimum tie": (lambda x: ops.np.minimum(ZERO, x), ZERO, 0.5),
    "max ties": (lambda x: x.max(), np.array([1.0, 3.0, 3.0]), [0.0, 0.5, 0.5]),
    "min ties": (lambda x: x.min(), np.array([1.0, 1.0, 3.0, 1.0]), [1 / 3, 1 / 3, 0.0, 1 / 3]),
    "clip at the edges": (lambda x: x.clip(0.0, 1.0).sum(), np.array([-1.0, 0.0, 0.5, 1.0, 2.0]), [0.0, 1, 1, 1, 0]),
    "sqrt at 0": (ops.np.sqrt, ZERO, np.inf),
    "sign": (ops.np.sign, ZERO, 0.0), "floor": (ops.np.floor, TWO, 0.0), "ceil": (ops.np.ceil, TWO, 0.0),
    "rint": (ops.np.rint, TWO, 0.0), "trunc": (ops.np.trunc, TWO, 0.0), "round": (lambda x: x.round(), TWO, 0.0),
    "x**0 at 0": (lambda x: x**0, ZERO, 0.0), "0**y": (lambda y: ops.np.power(ZERO, y), TWO, 0.0),
    "arctan2(0, 0)": (lambda x: ops.np.arctan2(x, ZERO), ZERO, 0.0),
    "std of equal values": (lambda x: x.std(), np.ones(3), [0.0, 0.0, 0.0]),
    "prod, one zero": (lambda x: x.prod(), np.array([2.0, 0.0, 5.0]), [0.0, 10.0, 0.0]),
    "prod, two zeros": (lambda x: x.prod(), np.array([2.0, 0.0, 0.0]), [0.0, 0.0, 0.0]),
    "where trap": (lambda x: ops.np.where(x > 0, ops.np.sqrt(x), 0.0).sum(), np.array([4.0, -1.0]), [0.25, np.nan]),
    "double where": (
        lambda x: ops.np.where(x > 0, ops.np.sqrt(ops.np.where(x > 0, x, 1.0)), 0.0).sum(), np.array([4.0, -1.0]),
        [0.25, 0.0]),
}


@pytest.mark.parametrize(("f", "x", "expected"), CONVENTIONS.values(), ids=CONVENTIONS)
def test_conventions_where_no_derivative_exists(f, x, expected):
    with np.errstate(divide="ignore", invalid="ignore"):
        close(grad(f)(x), np.array(expected, float))
