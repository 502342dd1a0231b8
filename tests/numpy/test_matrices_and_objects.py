"""Matrices of NumPy, and arrays of objects that hold Tensors, as arguments."""

import functools
import operator
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func, ops
from pydispatch.exceptions import AutogradError, DataDependentError, DispatchTypeError
from pydispatch.tracing import make_fx
from tests.together import together

X = np.array([1.0, 2.0, 3.0])
WAYS: dict[str, Callable[..., Any]] = {
    "tensors": lambda f: f(Tensor(X)),
    "tape": lambda f: f(Tensor(X, requires_grad=True)),
    "grad": lambda f: func.grad(lambda x: pnp.sum(f(x)))(X),
    "jvp": lambda f: func.jvp(f, (X,), (X,)),
    "vmap": lambda f: func.vmap(f)(X[None]),
    "functionalize": lambda f: func.functionalize(f)(X),
    "make_fx": lambda f: make_fx(f)(X),
    "compile": lambda f: compile(f)(X),
}
TEXT = np.array(["1.0", "b", "2.0"])
UNLIKE: dict[str, Callable[..., Any]] = {
    "array": lambda x: (x == TEXT, x != TEXT),
    "column": lambda x: (x == TEXT[:, None], x != TEXT[:2, None]),
    "element": lambda x: (x[0] == TEXT, x != TEXT[0]),
    "scalar": lambda x: (x[0] == TEXT[0], x.sum() != "b"),
    "list": lambda x: (x == ["1.0", "b", "c"], x != ["b"]),
    "bytes": lambda x: (x == TEXT.astype(bytes), x != b"b"),
    "date": lambda x: (x == np.datetime64("2000-01-01"), x != np.array(["2000-01-01"] * 3, "M8[D]")),
}
SQUARE = np.array([[0.5, -1.0], [1.5, 2.0]])
ON_MATRICES: dict[str, Callable[..., Any]] = {
    "multiply": lambda x, m: pnp.multiply(x, m),
    "multiply, matrix first": lambda x, m: pnp.multiply(m, x),
    "NumPy's multiply": lambda x, m: np.multiply(x, m),
    "divide": lambda x, m: pnp.divide(m, x),
    "power": lambda x, m: pnp.power(pnp.abs(x), m),
    "maximum": lambda x, m: pnp.maximum(x, m),
    "add": lambda x, m: m + x,
    "matmul": lambda x, m: m @ x,
    "where": lambda x, m: pnp.where(x > 0, m, x) * x,
    "einsum": lambda x, m: pnp.einsum("ik,jk->ij", x, m),
    "outer": lambda x, m: pnp.outer(m, x),
    "append": lambda x, m: pnp.append(x, m),
    "stack": lambda x, m: pnp.sin(pnp.stack([m, x])),
    "nested sequence": lambda x, m: pnp.exp([x, m]),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("way", [
    lambda f: f(Tensor(SQUARE)), lambda f: func.grad(lambda x: pnp.sum(f(x)))(SQUARE),
    lambda f: func.hessian(lambda x: pnp.sum(f(x)))(SQUARE), lambda f: func.jvp(f, (SQUARE,), (SQUARE,))[1],
    lambda f: func.vmap(f)(SQUARE[None]), lambda f: func.vmap(func.grad(lambda x: pnp.sum(f(x))))(SQUARE[None]),
    lambda f: func.functionalize(f)(SQUARE), lambda f: make_fx(f)(SQUARE)(2 * SQUARE),
], ids=["tensors", "grad", "hessian", "jvp", "vmap", "vmap of grad", "functionalize", "make_fx"])
@together("function", ON_MATRICES.values(), ids=ON_MATRICES)
def test_functions_of_matrices_are_those_of_arrays(function, way):
    matrix = np.matrix([[3.0, 1.0], [2.0, 5.0]])
    found, expected = way(lambda x: function(x, matrix)), way(lambda x: function(x, np.asarray(matrix)))
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12)


class Reversed(np.ndarray):
    """An array whose products are not those of plain arrays."""

    def __mul__(self, other):
        return np.asarray(self)[::-1] * other

    __rmul__ = __mul__


SUBCLASSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "matrix": np.matrix,
    "recarray": lambda a: a.copy().view(np.recarray),
    "another class": lambda a: a.copy().view(Reversed),
}
BY_OPERATORS: dict[str, Callable[..., Any]] = {
    "multiply": lambda x, m: ops.np.multiply(x, m), "multiply by": lambda x, m: ops.np.multiply(m, x),
    "divide": lambda x, m: ops.np.divide(x, m), "divide by": lambda x, m: ops.np.divide(m, x),
    "power": lambda x, m: ops.np.power(x, m), "power of": lambda x, m: ops.np.power(m, x),
    "arctan2": lambda x, m: ops.np.arctan2(x, m), "hypot": lambda x, m: ops.np.hypot(x, m),
    "copysign": lambda x, m: ops.np.copysign(x, m), "logaddexp": lambda x, m: ops.np.logaddexp(x, m),
    "fmod": lambda x, m: ops.np.fmod(m, x), "maximum": lambda x, m: ops.np.maximum(x, m),
    "matmul": lambda x, m: ops.np.matmul(x, m), "where": lambda x, m: ops.np.where(x > 1, x * 2, m) * x,
    "einsum": lambda x, m: pnp.einsum("ij,jk->ik", x, m), "concatenate": lambda x, m: ops.np.concatenate([x, m]),
    "solve": lambda x, m: ops.np.linalg_solve(m, x), "square of a product": lambda x, m: ops.np.multiply(x, m) ** 2,
}
POSITIVE = np.array([[0.5, 1.1], [1.5, 2.0]])
OTHER = np.array([[3.0, 1.0], [2.0, 5.0]])
DERIVATIVES: dict[str, Callable[..., Any]] = {
    "grad": lambda f: func.grad(lambda x: ops.np.sum(f(x)))(POSITIVE),
    "jvp": lambda f: func.jvp(f, (POSITIVE,), (POSITIVE,))[1],
    "vjp": lambda f: func.vjp(lambda x: ops.np.sum(f(x)), POSITIVE)[1](1.0)[0],
    "grad of grad": lambda f: func.grad(lambda x: ops.np.sum(func.grad(lambda x: ops.np.sum(f(x)))(x) ** 2))(POSITIVE),
    "tape": lambda f: gradient_on_the_tape(f),
}


def gradient_on_the_tape(f):
    x = Tensor(POSITIVE.copy(), requires_grad=True)
    y = f(x)
    assert not isinstance(y.array, np.matrix)
    ops.np.sum(y).backward()
    return x.grad.array


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("way", DERIVATIVES)
@pytest.mark.parametrize("subclass", SUBCLASSES)
@together("function", BY_OPERATORS)
def test_formulas_compute_with_plain_arrays(subclass, function, way):
    other, f = SUBCLASSES[subclass](OTHER), BY_OPERATORS[function]
    found, expected = DERIVATIVES[way](lambda x: f(x, other)), DERIVATIVES[way](lambda x: f(x, OTHER))
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_residuals_of_subclasses_survive_writes(tmp_path):
    mapped = np.memmap(tmp_path / "numbers", float, "w+", shape=(3,))
    for array in (mapped, np.ones(3).view(np.recarray), np.ones(3).view(Reversed)):
        array[:] = [1.0, 2.0, 3.0]

        def f(x):
            y = ops.np.multiply(x, array)       # noqa: B023
            array[:] = 7.0                      # noqa: B023
            return ops.np.sum(y)

        np.testing.assert_array_equal(func.grad(f)(X), [1.0, 2.0, 3.0])


def of_objects(x):
    found = np.empty(3, object)
    for i in range(3):
        found[i] = x[i]
    return found


ON_OBJECTS: dict[str, Callable[..., Any]] = {
    "multiply": lambda x, a: pnp.multiply(x, a),
    "operator": lambda x, a: a * x,
    "operator of ops": lambda x, a: ops.np.multiply(x, a),
    "Tensor": lambda x, a: Tensor(a) * x,
    "concatenate": lambda x, a: pnp.concatenate([a, x])[:3],
    "stack": lambda x, a: pnp.stack([x, a])[1],
    "matmul": lambda x, a: pnp.matmul(x, a),
    "where": lambda x, a: pnp.where(x > 1, a, x),
    "maximum": lambda x, a: pnp.maximum(x, a),
}


@pytest.mark.parametrize("trace", [make_fx, lambda f: make_fx(f, tracing_mode="fake"), compile],
                         ids=["real", "fake", "compile"])
@together("function", ON_OBJECTS.values(), ids=ON_OBJECTS)
def test_traces_refuse_objects_that_hold_their_values(function, trace):
    with pytest.raises(DataDependentError, match=r"array of objects that holds values of the traced(.|\n)*np\.stack"):
        trace(lambda x: function(x, of_objects(x)))(X)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
@together("function", ON_OBJECTS.values(), ids=ON_OBJECTS)
def test_transforms_refuse_objects_that_hold_their_values(function, transform):
    with pytest.raises(AutogradError, match=f"is a value of {transform}"):
        WAYS[transform](lambda x: pnp.sum(function(x, of_objects(x))))


def test_operators_of_python_on_objects_are_traced():
    graph = make_fx(lambda x: np.sum(of_objects(x) * X))(X)
    np.testing.assert_allclose(graph(2 * X), np.sum(2 * X * X))
    np.testing.assert_allclose(func.grad(lambda x: np.sum(of_objects(x) * X))(X), X)


OF_FRACTIONS = np.array([Fraction(1, 2), Fraction(3), Fraction(1, 4)], dtype=object)
TO_OBJECTS: dict[str, Callable[..., Any]] = {
    "multiply": lambda x, a: ops.np.multiply(x, a), "operator": lambda x, a: x * a, "reflected": lambda x, a: a * x,
    "maximum": lambda x, a: pnp.maximum(x, a), "where": lambda x, a: pnp.where(X > 1, a, x),
    "concatenate": lambda x, a: pnp.concatenate([x, a]), "stack": lambda x, a: pnp.stack([x, a]),
    "dot": lambda x, a: pnp.dot(x, a), "einsum": lambda x, a: pnp.einsum("i,i->", x, a),
    "Tensor": lambda x, a: x * Tensor(a), "astype": lambda x, a: x.astype(object),
    "write": lambda x, a: Tensor(a.copy()).__setitem__(0, x[0]), "sum": lambda x, a: pnp.sum(a, initial=x[0]),
}


@pytest.mark.parametrize("way", ["tape", "grad", "jvp", "vjp", "hessian"])
@together("function", TO_OBJECTS)
def test_results_of_objects_do_not_lose_a_gradient(function, way):
    f = TO_OBJECTS[function]
    ways = {
        "tape": lambda f: f(Tensor(X, requires_grad=True)),
        "grad": lambda f: func.grad(lambda x: (f(x), x.sum())[1])(X),
        "jvp": lambda f: func.jvp(f, (X,), (X,)),
        "vjp": lambda f: func.vjp(f, X),
        "hessian": lambda f: func.hessian(lambda x: (f(x), x.sum())[1])(X),
    }
    with pytest.raises((AutogradError, DispatchTypeError), match=r"objects|cannot be written|object dtype"):
        ways[way](lambda x: f(x, OF_FRACTIONS))


@pytest.mark.parametrize("reduce", ["sum", "prod", "max", "cumsum", "add.reduce"])
def test_reductions_of_objects_follow_their_gradients(reduce):
    # NumPy computes with the elements, each of which is a Tensor.
    def f(x, module):
        function = functools.reduce(getattr, reduce.split("."), module)
        found = function(of_objects(x * x))
        return found[-1] if reduce == "cumsum" else found

    expected = {"prod": 2 * np.prod(X ** 2) / X, "max": [0.0, 0.0, 6.0]}.get(reduce, 2 * X)
    for module in (pnp, np):
        np.testing.assert_allclose(func.grad(lambda x: f(x, module))(X), expected)      # noqa: B023
        x = Tensor(X, requires_grad=True)
        f(x, module).backward()
        np.testing.assert_allclose(x.grad.array, expected)


SEQUENCES = ([5, 6], (5, 6), "ab", b"ab")


@pytest.mark.parametrize("sequence", SEQUENCES, ids=repr)
@pytest.mark.parametrize("number", [np.int64(2), np.uint8(0), np.True_, np.float64(2)], ids=repr)
def test_a_scalar_repeats_a_sequence_as_numpys_does(sequence, number):
    scalar = Tensor(np.array([number]))[0]
    for product in (lambda number: sequence * number, lambda number: number * sequence):
        try:
            expected = product(number)
        except (TypeError, DeprecationWarning):     # of truth values, in older versions of NumPy
            with pytest.raises(TypeError):
                product(scalar)
        else:
            assert product(scalar) == expected
            assert type(product(scalar)) is type(sequence)


def test_a_position_found_under_grad_repeats_a_list():
    def loss(x):
        bins = [0.0] * (x.argmax() + 1)
        bins[-1] += x[0]
        return sum(bins) * len(bins)

    assert func.grad(loss)(np.array([1.0, 9.0, 3.0])).tolist() == [2, 0, 0]


def quietly(compare, left, right):
    """Return the elements of a comparison, or the type of its error."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return np.asarray(compare(left, right)).tolist()
        except Exception as error:
            return type(error)


def values_of(results):
    return [np.asarray(result).tolist() for result in results]


@pytest.mark.parametrize("way", ["tensors", "vmap", "functionalize", "make_fx", "compile"])
@pytest.mark.parametrize("unlike", UNLIKE)
def test_text_and_numbers_are_not_equal(unlike, way):
    expected, found = UNLIKE[unlike](X), WAYS[way](UNLIKE[unlike])
    found = found(X) if way == "make_fx" else [each[0] for each in found] if way == "vmap" else found
    assert values_of(found) == values_of(expected)
    assert [np.asarray(each).dtype for each in found] == [bool, bool]


def test_text_is_not_equal_to_numbers():
    text = Tensor(TEXT)
    for compare in (lambda t: (t == 1, t != 1.0), lambda t: (t == X, t != X), lambda t: (t == TEXT, t != "b"),
                    lambda t: (t < "b", t[1] >= "b"), lambda t: (t == None, t != b"b")):      # noqa: E711
        assert values_of(compare(text)) == values_of(compare(TEXT))
    for array in (np.array(["2000-01-01", "2001-01-01"], "M8[D]"), np.array([None, 1, "b"], object)):
        for other in ("2000-01-01", "b", None, 1, TEXT[1]):
            expected = [quietly(compare, array, other) for compare in (operator.eq, operator.ne)]
            found = [quietly(compare, Tensor(array), other) for compare in (operator.eq, operator.ne)]
            assert str(found) == str(expected)
    with pytest.raises(ValueError, match="broadcast"):
        operator.eq(Tensor(X), TEXT[:2])
    with pytest.raises(TypeError, match="equal"):
        pnp.equal(Tensor(X), TEXT)


def test_comparisons_with_text_under_derivatives_are_constants():
    for unequal in (lambda x: x != TEXT, lambda x: TEXT != x, lambda x: ~(TEXT == x)):     # noqa: SIM300
        f = lambda x, unequal=unequal: pnp.where(unequal(x), x * x, 0.0).sum()      # noqa: E731
        assert func.grad(f)(X).tolist() == (2 * X).tolist()
        assert func.jvp(f, (X,), (X,))[1] == 2 * (X * X).sum()
        assert func.vmap(f)(X[None]).tolist() == [(X * X).sum()]
        assert compile(f)(X) == (X * X).sum()
        x = Tensor(X, requires_grad=True)
        f(x).backward()
        assert x.grad.tolist() == (2 * X).tolist()
        with pytest.raises(TypeError):
            func.grad(lambda x: operator.lt(TEXT, x).sum())(X)
