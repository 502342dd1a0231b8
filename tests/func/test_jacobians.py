"""jacrev, jacfwd, hessian: shapes, containers, chunks, control flow, errors."""

import itertools
from collections import namedtuple

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, ops, tree
from pydispatch.backends import MetaArray
from pydispatch.exceptions import AutogradError, DispatchError
from pydispatch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from tests.comparing import all_close, close
from tests.functions import Stateless
from tests.together import together

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.5, -0.7])
M = np.arange(6.0).reshape(2, 3) / 4
Pair = namedtuple("Pair", ["first", "second"])
BOTH = pytest.mark.parametrize("jacobian", [jacrev, jacfwd])


def row_by_row(f, *args):
    """Return the Jacobian of a function of arrays that returns one array, one vjp per element of the output."""
    output, pull = vjp(f, *args)
    shape = np.shape(output)
    rows = [pull(unit.reshape(shape)) for unit in np.eye(np.size(output))]
    return tuple(np.reshape([row[i] for row in rows], (*shape, *np.shape(arg))) for i, arg in enumerate(args))


def by_differences(f, x, step=1e-6):
    """Return the Jacobian of a function of one array that returns one array, by central differences."""
    columns = [
        (np.asarray(f(x + step * unit)) - np.asarray(f(x - step * unit))) / (2 * step)
        for unit in np.eye(x.size).reshape(x.size, *x.shape)
    ]
    return np.moveaxis(np.array(columns), 0, -1).reshape(columns[0].shape + x.shape)


# --- values -------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "pointwise": (lambda x: ops.np.sin(x) * x**2, X),
    "matrix times vector": (lambda x: ops.np.tanh(M @ x), X),
    "to a matrix": (lambda x: x[:, None] * ops.np.cos(x), X),
    "of a matrix": (lambda m: m.sum(axis=0) * m[0], M),
    "matrix to matrix": (lambda m: m @ m.T, M),
    "0-d to 0-d": (ops.np.exp, np.array(0.5)),
    "0-d to vector": (lambda x: x * ops.np.sin(X * x), np.array(0.5)),
    "vector to 0-d": (lambda x: (x**3).sum(), X),
    "one element to one element": (lambda x: x**2, np.array([3.0])),
    "indexing": (lambda x: x[np.array([2, 0, 0])] * x[1:2], X),
    "concatenate": (lambda x: ops.np.concatenate([x, x**2, Y]), X),
    "mean and max": (lambda x: x.mean() * x.max() - x, X),
    "where": (lambda x: ops.np.where(x > 0, x**2, -x), X),
    "cumsum": (lambda x: ops.np.cumsum(x * x), X),
    "in place": (lambda x: _in_place(x), X),
}


def _in_place(x):
    y = x * 1
    y *= x
    y[1:] += x[0]
    return y


@BOTH
@together("f, x", FUNCTIONS.values(), ids=FUNCTIONS)
def test_values_and_shapes(jacobian, f, x):
    found = jacobian(f)(x)
    assert type(found) is np.ndarray
    assert found.shape == np.shape(f(x)) + x.shape
    close(found, by_differences(f, x), rtol=1e-7)


@pytest.mark.parametrize(("f", "x"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_all_ways_give_the_same(f, x):
    expected, = row_by_row(f, x)
    for found in (jacrev(f)(x), jacfwd(f)(x), jacrev(f, chunk_size=1)(x), jacrev(f, chunk_size=2)(x)):
        close(found, expected)


def test_not_square():
    matrix = np.random.default_rng(0).normal(size=(4, 3))
    for jacobian in (jacrev, jacfwd):
        close(jacobian(lambda x: matrix @ x)(X), matrix)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@BOTH
def test_blocks_have_the_dtype(jacobian, dtype):
    close(jacobian(lambda x: x * 2)(X.astype(dtype)), 2 * np.eye(3, dtype=dtype))


@BOTH
def test_function_is_called_once(jacobian):
    calls = []
    jacobian(lambda x: calls.append(x.shape) or ops.np.sin(x))(X)
    assert calls == [(3,)]


@BOTH
def test_name_and_docstring_are_kept(jacobian):
    assert jacobian(close).__name__ == hessian(close).__name__ == "close"


@BOTH
def test_blocks_do_not_share_memory_with_anything(jacobian):
    x = X.copy()
    first, second = jacobian(lambda x: (x, x))(x)
    first[:] = 7.0
    close(second, np.eye(3))
    close(x, X)


class Stubborn(Stateless):
    """Whose derivatives are constants, whatever the cotangents and tangents are: no batch of them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return np.asarray(x) * 1

    @staticmethod
    def backward(ctx, g):
        return Y

    @staticmethod
    def jvp(ctx, tangent):
        return Y


def test_derivatives_that_are_no_batch_are_repeated():
    rows, columns = jacrev(Stubborn.apply)(X), jacfwd(Stubborn.apply)(X)
    close(rows, np.stack([Y] * 3))
    close(columns, np.stack([Y] * 3, axis=1))
    rows += 1
    columns += 1
    close(Y, np.array([1.5, 0.5, -0.7]))


@BOTH
def test_arguments_by_keyword_are_refused(jacobian):
    for transform in (jacobian, hessian):
        with pytest.raises(TypeError):
            transform(lambda x, y: x * y)(X, y=Y)


# --- batches of unit vectors ----------------------------------------------------------------------------------

LONG = np.linspace(-1.0, 2.0, 10)
BY_ELEMENT = {
    "identity": lambda x: x,
    "chain": lambda x: ops.np.sin(x) * x + ops.np.exp(-x) / 3.0,
    "branches": lambda x: ops.np.where(x > 0, x * x, -x) + ops.np.absolute(x),
    "infinite slopes": lambda x: ops.np.sqrt(x - LONG[0]) * 2,
    "infinite constants": lambda x: x * np.where(LONG > 0, np.inf, 1.0),
    "constants with fewer axes": lambda x: x * 2.0 + np.float64(3) * LONG[:1] - np.array(1.0),
    "constants with more axes": lambda x: x * np.ones((2, 1)) + x,
    "another dtype": lambda x: ops.np.astype(ops.np.astype(x, np.float32) * 3, np.float64) * x,
    "parts": lambda x: (x * x)[1:] * (x * 3)[:-1],
    "written to": lambda x: written_to(x * x),
    "reversed": lambda x: (x * 2)[::-1] * x,
    "reshaped": lambda x: (x * 2).reshape(5, 2) * np.arange(2.0),
    "repeated": lambda x: ops.np.stack([x * x, x]),
    "sums": lambda x: (x * x).sum() * x,
    "several terms": lambda x: x * x * x - x[0] * x + ops.np.sin(x * x),
}


def written_to(y):
    y[2:4] = y[0]
    return y * y


def single_directions(jacobian, f, x):
    """Return the Jacobian without batches: from one cotangent or tangent at a time."""
    if jacobian is jacrev:
        return jacrev(f, chunk_size=1)(x)
    return np.stack([jvp(f, (x,), (unit.reshape(x.shape),))[1] for unit in np.eye(x.size)], -1)


@BOTH
@pytest.mark.parametrize("name", BY_ELEMENT)
@np.errstate(all="ignore")
def test_batches_have_the_bits_of_single_directions(jacobian, name):
    found, expected = jacobian(BY_ELEMENT[name])(LONG), single_directions(jacobian, BY_ELEMENT[name], LONG)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert (np.signbit(found) == np.signbit(expected.reshape(found.shape)))[~np.isnan(found)].all()


@pytest.mark.parametrize("name", [name for name in BY_ELEMENT if not name.startswith("infinite")])
def test_long_hessians_in_all_ways(name):
    def f(x):
        return ops.np.sum(BY_ELEMENT[name](x))
    expected = jacrev(jacrev(f, chunk_size=1), chunk_size=1)(LONG)
    for way in (hessian(f), jacfwd(jacfwd(f)), jacrev(jacfwd(f)), jacfwd(grad(f)), lambda x: hessian(f)(Tensor(x))):
        close(way(LONG), expected)
    close(vmap(hessian(f))(np.stack([LONG, LONG])), np.stack([expected, expected]))


def test_derivatives_of_users_see_all_examples():
    seen = []

    class Square(autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.x, = inputs

        @staticmethod
        def backward(ctx, g):
            seen.append((g.shape, _core.array_of(g).shape))
            return 2 * ctx.x * g.detach()

        @staticmethod
        def jvp(ctx, t):
            seen.append((t.shape, _core.array_of(t).shape))
            return 2 * ctx.x * t.detach()

    for jacobian in (jacrev, jacfwd):
        close(jacobian(lambda x: Square.apply(x * 1.0))(LONG), np.diag(2 * LONG))
    assert set(seen) == {((10,), (10, 10))}


# --- arguments and containers -------------------------------------------------------------------------------


def pair(x, y):
    return x * y.sum()


BY_X, BY_Y = Y.sum() * np.eye(3), np.tile(X[:, None], (1, 3))
ARGNUMS = {"0": (0, BY_X), "1": (1, BY_Y), "-1": (-1, BY_Y), "(1,)": ((1,), (BY_Y,)), "(0, 1)": ((0, 1), (BY_X, BY_Y)),
           "(1, 0)": ((1, 0), (BY_Y, BY_X))}


@BOTH
@pytest.mark.parametrize(("argnums", "expected"), ARGNUMS.values(), ids=ARGNUMS)
def test_argnums_choose_the_arguments(jacobian, argnums, expected):
    all_close(jacobian(pair, argnums)(X, Y), expected)


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), (), [0], 0.0, 5, None], ids=repr)
@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_refused_argnums(transform, argnums):
    with pytest.raises(RuntimeError, match="argnums"):
        transform(pair, argnums)(X, Y)


@BOTH
def test_outputs_are_outside_inputs_inside(jacobian):
    def f(x, p):
        return {"a": x * p["w"], "b": [p["w"].sum() * x.sum(), (M @ x,)]}

    found = jacobian(f, argnums=(0, 1))(X, {"w": Y, "unused": M})
    zeros = np.zeros((2, 3))
    all_close(found, {
        "a": (np.diag(Y), {"w": np.diag(X), "unused": np.zeros((3, 2, 3))}),
        "b": [
            (np.full(3, Y.sum()), {"w": np.full(3, X.sum()), "unused": zeros}),
            ((M, {"w": zeros, "unused": np.zeros((2, 2, 3))}),),
        ],
    })
    assert {type(leaf) for leaf in tree.tree_leaves(found)} == {np.ndarray}
    only_dict = jacobian(f, argnums=1)(X, {"w": Y, "unused": M})
    close(only_dict["a"]["w"], np.diag(X))


@BOTH
def test_one_argument_in_a_tuple(jacobian):
    (block,), = (jacobian(lambda x: (x * 2,), argnums=(0,))(X),)[0]
    close(block, 2 * np.eye(3))


TREES = {
    "tuple": lambda a, b: (a, b), "list": lambda a, b: [a, b], "dict": lambda a, b: {"b": b, "a": a},
    "namedtuple": Pair, "nested": lambda a, b: [(a,), {"k": b}],
}


@BOTH
@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_jacobians_of_containers(jacobian, make):
    def f(value):
        first, second = tree.tree_leaves(value)
        return make(first * 2, first * second)

    x, y = tree.tree_leaves(make(X, Y))
    first, second = tree.tree_leaves(make(0, 1))      # a dict may turn them round
    by = [make(*_turned(first, 2 * np.eye(3), np.zeros((3, 3)))), make(*_turned(first, np.diag(y), np.diag(x)))]
    all_close(jacobian(f)(make(X, Y)), make(*by))
    assert {first, second} == {0, 1}


def _turned(first, a, b):
    return (b, a) if first else (a, b)


@BOTH
@pytest.mark.parametrize("f", [lambda x: Y, lambda x: ops.np.ones(3), lambda x: x.detach(), ops.np.sign],
                         ids=["captured", "made inside", "detached", "step"])
def test_unrelated_output(jacobian, f):
    close(jacobian(f)(X), np.zeros((3, 3)))


@BOTH
def test_unrelated_input_and_output_among_others(jacobian):
    found = jacobian(lambda x, y: (x * 2, M), argnums=(0, 1))(X, M)
    all_close(found, ((2 * np.eye(3), np.zeros((3, 2, 3))), (np.zeros((2, 3, 3)), np.zeros((2, 3, 2, 3)))))


@BOTH
def test_arguments_that_are_not_differentiated_may_be_anything(jacobian):
    close(jacobian(lambda x, n, label, rest: x * n * rest["k"])(X, 2, "text", {"k": Y, "none": None}), np.diag(2 * Y))


@BOTH
def test_argument_that_is_not_differentiated_may_be_written_to(jacobian):
    written = np.zeros(3)

    def f(x, buffer):
        buffer += 1
        return x * buffer

    close(jacobian(f)(X, written), np.eye(3))
    close(written, np.ones(3))


# --- aux ----------------------------------------------------------------------------------------------------


@BOTH
def test_has_aux(jacobian):
    found, aux = jacobian(lambda x: (x**2, {"sine": ops.np.sin(x), "label": "text", "captured": Y}), has_aux=True)(X)
    close(found, np.diag(2 * X))
    assert type(aux["sine"]) is np.ndarray
    close(aux["sine"], np.sin(X))
    assert aux["label"] == "text"
    assert aux["captured"] is Y


@BOTH
@pytest.mark.parametrize("f", [lambda x: x, lambda x: [x, x], lambda x: (x, x, x)], ids=["bare", "list", "three"])
def test_has_aux_needs_a_tuple_of_two(jacobian, f):
    with pytest.raises(RuntimeError, match=f"{jacobian.__name__}.*has_aux"):
        jacobian(f, has_aux=True)(X)


def test_aux_that_differs_from_tangent_to_tangent_is_the_first():
    _, aux = jacfwd(lambda x: (x, ops.np.random_normal(np.random.default_rng(0), size=(3,))), has_aux=True,
                    randomness="different")(X)
    assert aux.shape == (3,)


# --- chunks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 4, 5, 100, None])
def test_jacobian_in_chunks(chunk_size):
    def f(x, m):
        return ops.np.sin(x) * m.sum(), {"k": M @ x, "zero": Y}

    whole = jacrev(f, argnums=(0, 1))(X, M)
    all_close(jacrev(f, argnums=(0, 1), chunk_size=chunk_size)(X, M), whole)


@pytest.mark.parametrize("chunk_size", [0, -1, 1.0, "2", True], ids=repr)
def test_refused_chunks(chunk_size):
    with pytest.raises(ValueError, match="jacrev: chunk_size"):
        jacrev(lambda x: x, chunk_size=chunk_size)


class Batches:
    """An operator that notes the shapes that its kernel gets in backward."""

    def __init__(self, library, define):
        self.shapes = []
        self.operator = define(library, "noted(Tensor g) -> Tensor", CPU=self.kernel)

    def kernel(self, g):
        self.shapes.append(g.shape)
        return g * 1

    def function(self):
        note = self.operator

        class Noting(Stateless):
            @staticmethod
            def forward(x):
                return np.asarray(x) * 1

            @staticmethod
            def backward(ctx, g):
                return note(g)

        return Noting.apply


def test_chunk_of_one_batches_nothing(fresh, define):
    # Every row is a separate call, so it works for functions that cannot be batched.
    batches = Batches(fresh, define)
    close(jacrev(batches.function(), chunk_size=1)(X), np.eye(3))
    assert batches.shapes == [(3,)] * 3


# --- control flow and random numbers ------------------------------------------------------------------------


@BOTH
def test_function_may_branch_on_the_primal(jacobian):
    def f(x):
        if x[0] > 0:
            return x**2 * float(bool((x > -5).all()))
        return -x

    close(jacobian(f)(X), np.diag(2 * X))
    close(jacobian(f)(-X), -np.eye(3))


@BOTH
def test_loop_whose_length_depends_on_the_primal(jacobian):
    def f(x):
        while x.max() > 1:
            x = x / 2
        return x

    close(jacobian(f)(X), np.eye(3) / 2)
    close(jacobian(lambda x: x * x.detach().item(0))(X)[1], X[0] * np.eye(3)[1])


def draw(x):
    return x * ops.np.random_normal(np.random.default_rng(7), size=(3,))


def test_draws_in_jacfwd():
    with pytest.raises(RuntimeError, match="random") as caught:
        jacfwd(draw)(X)
    assert isinstance(caught.value, DispatchError)
    once = np.random.default_rng(7).normal(size=3)
    close(jacfwd(draw, randomness="same")(X), np.diag(once))
    each = np.random.default_rng(7).normal(size=(3, 3))
    close(jacfwd(draw, randomness="different")(X), np.diag(np.diag(each)))
    with pytest.raises(RuntimeError, match="jacfwd: randomness is 'sometimes'"):
        jacfwd(draw, randomness="sometimes")(X)


def test_draws_in_jacrev_are_drawn_once():
    close(jacrev(draw)(X), np.diag(np.random.default_rng(7).normal(size=3)))


# --- refused arguments and outputs --------------------------------------------------------------------------

BAD_INPUTS = {
    "int": (1, ValueError, RuntimeError, "argument 0 is of type int"),
    "None": (None, ValueError, RuntimeError, "argument 0 is (a|of type) NoneType"),
    "int array": (np.arange(3), RuntimeError, ValueError, "argument 0 has dtype int64"),
    "bool array": (np.array([True]), RuntimeError, ValueError, "argument 0 has dtype bool"),
    "leaf": ([X, np.arange(3)], RuntimeError, ValueError, r"argument 0\[1\] has dtype int64"),
}


@pytest.mark.parametrize(("value", "reverse", "forward", "text"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_refused_inputs(value, reverse, forward, text):
    for jacobian, kind in ((jacrev, reverse), (jacfwd, forward)):
        with pytest.raises(kind, match=f"{jacobian.__name__}: {text}") as caught:
            jacobian(lambda x: X)(value)
        assert isinstance(caught.value, DispatchError)
        assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian, grad])
def test_refused_inputs_are_named_by_their_position(transform):
    for value in (1, np.arange(3)):
        with pytest.raises(DispatchError, match=rf"{transform.__name__}: argument 2\['k'\]"):
            transform(lambda *args: X, argnums=(0, 2))(X, "text", {"k": value})


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_complex_input(transform):
    with pytest.raises(RuntimeError, match=f"{transform.__name__}: argument 1 has dtype complex128"):
        transform(lambda x, z: x, argnums=(1,))(X, X * 1j)
    with pytest.raises(RuntimeError, match=f"{transform.__name__}: argument 0 has dtype complex128"):
        transform(lambda z: (z * z.conj()).real)(X * 1j)


def test_holomorphic_functions_have_complex_derivatives():
    z, w = np.array([1 + 2j, -0.5j]), np.array([2.0 - 1j, 3j])

    def function(z, w):
        return {"sum": np.array([1j, 2]) * z ** 3 * w, "product": (z * w).sum()}

    factors = np.array([1j, 2])
    slopes = {"sum": (np.diag(factors * 3 * z ** 2 * w), np.diag(factors * z ** 3)), "product": (w, z)}
    for found in (jacrev(function, (0, 1), holomorphic=True)(z, w), jacfwd(function, (0, 1), holomorphic=True)(z, w),
                  jacrev(function, (0, 1), holomorphic=True, chunk_size=1)(z, w)):
        for name, blocks in slopes.items():
            for block, expected in zip(found[name], blocks, strict=True):
                close(block, expected)
    close(hessian(lambda z: (z ** 3).sum(), holomorphic=True)(z), np.diag(6 * z))
    close(vmap(jacrev(lambda z: z ** 2, holomorphic=True))(z), 2 * z)


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_what_holomorphic_asks_for(transform):
    name = transform.__name__
    with pytest.raises(AutogradError, match=rf"argument 0 has dtype complex128.*\n.*{name}\(f, holomorphic=True\)"):
        transform(lambda z: z)(X * 1j)
    with pytest.raises(AutogradError, match="argument 0 has dtype float64, expected a complex one"):
        transform(lambda z: z, holomorphic=True)(X)
    with pytest.raises(AutogradError, match=rf"output has dtype float64.*\n.*{name}\(lambda x, y: f\(x \+ 1j"):
        transform(lambda z: z.real, holomorphic=True)(X * 1j)


def test_complex_output():
    with pytest.raises(RuntimeError, match="jacrev: the output has dtype complex128"):
        jacrev(lambda x: x * 1j)(X)
    close(jacfwd(lambda x: x * 1j)(X), 1j * np.eye(3))


def test_int_output():
    with pytest.raises(RuntimeError, match=r"jacrev: the output\['k'\] has dtype int64"):
        jacrev(lambda x: {"k": (x > 0).astype(np.int64)})(X)
    close(jacfwd(lambda x: (x > 0).astype(np.int64))(X), np.zeros((3, 3), np.int64))


@pytest.mark.parametrize("output", [1, None, "x", (X, 1)], ids=["int", "None", "str", "leaf"])
@BOTH
def test_refused_outputs(jacobian, output):
    with pytest.raises(RuntimeError, match=f"{jacobian.__name__}: the output") as caught:
        jacobian(lambda x: output)(X)
    assert isinstance(caught.value, DispatchError)


@BOTH
def test_exception_leaves_no_level(jacobian):
    def fail(x):
        x.sum()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        jacobian(fail)(X)
    close(jacobian(lambda x: x * 2)(X), 2 * np.eye(3))
    assert not isinstance(ops.np.add(X, X), Tensor)


@BOTH
def test_captured_array_is_not_written_to(jacobian):
    captured = X.copy()
    with pytest.raises(RuntimeError, match=jacobian.__name__):
        jacobian(lambda x: ops.np.add_(captured, x) * x)(X)
    close(captured, X)


# --- empty arrays -------------------------------------------------------------------------------------------


@BOTH
def test_empty_output(jacobian):
    close(jacobian(lambda x: x[:0] * 2)(X), np.zeros((0, 3)))
    empty, full = jacobian(lambda x: (x[:0], x * 2))(X)
    close(empty, np.zeros((0, 3)))
    close(full, 2 * np.eye(3))


@BOTH
def test_empty_input(jacobian):
    nothing = np.zeros((0, 2))
    close(jacobian(lambda x: ops.np.sin(X) + x.sum())(nothing), np.zeros((3, 0, 2)))
    by_nothing, by_x = jacobian(lambda a, b: b * 2 + a.sum(), argnums=(0, 1))(nothing, X)
    close(by_nothing, np.zeros((3, 0, 2)))
    close(by_x, 2 * np.eye(3))


def test_arrays_without_data():
    x = MetaArray((3,), np.dtype(np.float64))
    for jacobian in (jacrev, jacfwd, hessian):
        found = jacobian(lambda x: (ops.np.sin(x) * x).sum(axis=0, keepdims=True))(x)
        assert type(found) is MetaArray
        assert found.shape == ((1, 3, 3) if jacobian is hessian else (1, 3))
    for chunk_size in (1, 2, None):
        assert jacrev(ops.np.sin, chunk_size=chunk_size)(x).shape == (3, 3)
        first, second = jacrev(lambda x: (ops.np.sin(x), x.reshape(3, 1)), chunk_size=chunk_size)(x)
        assert type(first) is type(second) is MetaArray
        assert (first.shape, second.shape) == ((3, 3), (3, 1, 3))
    first, second = jacfwd(lambda x, y: ops.np.sin(x) * y, argnums=(0, 1))(x, x)
    assert first.shape == second.shape == (3, 3)


# --- Tensors ------------------------------------------------------------------------------------------------


@BOTH
def test_tensor_in_tensor_out(jacobian):
    found = jacobian(lambda x, p: (x * p["w"], Y), argnums=(0, 1))(X, {"w": Tensor(Y)})
    assert all(type(leaf) is Tensor and not leaf.requires_grad for leaf in tree.tree_leaves(found))


@BOTH
def test_eager_tape_differentiates_the_result(jacobian):
    x = Tensor(X.copy(), requires_grad=True)
    found = jacobian(lambda x: x**3)(x)
    assert found.requires_grad
    found.sum().backward()
    close(x.grad, 6 * X)


@BOTH
def test_no_grad_outside_does_not_matter_to_the_value(jacobian):
    x = Tensor(X.copy(), requires_grad=True)
    with autograd.no_grad():
        found = jacobian(lambda x: x**3)(x)
    assert not found.requires_grad
    close(found, np.diag(3 * X**2))


# --- nested -------------------------------------------------------------------------------------------------


def quartic(x):
    return (x**4).sum() + x[0] * x[1] * x[2]


def hessian_of_quartic(x):
    return np.diag(12 * x**2) + np.array([[0, x[2], x[1]], [x[2], 0, x[0]], [x[1], x[0], 0]])


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product([jacrev, jacfwd], repeat=2)),
                         ids=lambda f: f.__name__)
def test_second_derivatives_agree(outer, inner):
    close(outer(inner(quartic))(X), hessian_of_quartic(X))
    expected = by_differences(jacrev(lambda x: ops.np.sin(M @ x)), X)
    close(outer(inner(lambda x: ops.np.sin(M @ x)))(X), expected, rtol=1e-7)


@pytest.mark.parametrize("ways", list(itertools.product([jacrev, jacfwd], repeat=3)),
                         ids=lambda ways: " of ".join(way.__name__ for way in ways))
def test_third_derivatives_agree(ways):
    first, second, third = ways
    found = first(second(third(quartic)))(X)
    expected = np.zeros((3, 3, 3))
    for i in range(3):
        expected[i, i, i] = 24 * X[i]
    for i, j, k in itertools.permutations(range(3)):
        expected[i, j, k] = 1.0
    close(found, expected)


def test_hessian_of_a_quadratic_form():
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    close(hessian(lambda x: x @ (matrix @ x))(X), matrix + matrix.T)


def test_hessian_of_a_vector_output():
    close(hessian(lambda x: x**3)(X), np.einsum("ij,jk->ijk", np.eye(3), np.diag(6 * X)))


def test_hessian_of_two_arguments():
    def f(x, y):
        return (x**2).sum() * (y**3).sum()

    blocks = hessian(f, argnums=(0, 1))(X, Y)
    assert type(blocks) is tuple
    assert type(blocks[0]) is tuple
    all_close(blocks, ((2 * np.eye(3) * (Y**3).sum(), np.outer(2 * X, 3 * Y**2)),
                       (np.outer(3 * Y**2, 2 * X), np.diag(6 * Y) * (X**2).sum())))


def test_hessian_of_matrices():
    found = hessian(lambda m: (m**3).sum())(M)
    assert found.shape == (2, 3, 2, 3)
    close(found.reshape(6, 6), np.diag(6 * M.ravel()))


def test_hessian_of_containers():
    found = hessian(lambda p: {"out": p["a"].sum() * (p["b"]**2).sum()})({"a": X, "b": Y})
    all_close(found, {"out": {
        "a": {"a": np.zeros((3, 3)), "b": np.tile(2 * Y, (3, 1))},
        "b": {"a": np.tile(2 * Y[:, None], (1, 3)), "b": 2 * X.sum() * np.eye(3)},
    }})


def test_hessian_of_a_linear_function_is_zero():
    close(hessian(lambda x: (x * Y).sum())(X), np.zeros((3, 3)))
    close(hessian(lambda x: Y.sum() * ops.np.ones(()))(X), np.zeros((3, 3)))


def test_jacobians_in_batches():
    points = np.random.default_rng(1).normal(size=(5, 3))
    close(vmap(hessian(quartic))(points), np.stack([hessian_of_quartic(point) for point in points]))
    expected = np.cos(points @ M.T)[:, :, None] * M
    for jacobian in (jacrev, jacfwd):
        close(vmap(jacobian(lambda x: ops.np.sin(M @ x)))(points), expected)


@BOTH
def test_jacobian_of_a_batched_function(jacobian):
    points = np.random.default_rng(1).normal(size=(2, 3))
    found = jacobian(vmap(lambda x: ops.np.sin(x).sum()))(points)
    expected = np.zeros((2, 2, 3))
    for i in range(2):
        expected[i, i] = np.cos(points[i])
    close(found, expected)


@BOTH
def test_inside_of_grad_and_jvp(jacobian):
    def f(x):
        return (jacobian(lambda x: x**3)(x) * M[0]).sum()       # 3 x² · M[0]

    close(grad(f)(X), 6 * X * M[0])
    close(jvp(f, (X,), (Y,))[1], (6 * X * M[0] * Y).sum())


def test_laplacian():
    close(np.trace(hessian(lambda x: ops.np.exp((x * Y).sum()))(X)), np.exp(X @ Y) * (Y @ Y))
