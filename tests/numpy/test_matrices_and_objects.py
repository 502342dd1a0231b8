"""Matrices of NumPy, and arrays of objects that hold Tensors, as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func, ops
from pydispatch.exceptions import AutogradError, DataDependentError
from pydispatch.tracing import make_fx

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
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("way", [
    lambda f: f(Tensor(SQUARE)), lambda f: func.grad(lambda x: pnp.sum(f(x)))(SQUARE),
    lambda f: func.hessian(lambda x: pnp.sum(f(x)))(SQUARE), lambda f: func.jvp(f, (SQUARE,), (SQUARE,))[1],
    lambda f: func.vmap(f)(SQUARE[None]), lambda f: func.vmap(func.grad(lambda x: pnp.sum(f(x))))(SQUARE[None]),
    lambda f: func.functionalize(f)(SQUARE), lambda f: make_fx(f)(SQUARE)(2 * SQUARE),
], ids=["tensors", "grad", "hessian", "jvp", "vmap", "vmap of grad", "functionalize", "make_fx"])
@pytest.mark.parametrize("function", ON_MATRICES.values(), ids=ON_MATRICES)
def test_functions_of_matrices_are_those_of_arrays(function, way):
    matrix = np.matrix([[3.0, 1.0], [2.0, 5.0]])
    found, expected = way(lambda x: function(x, matrix)), way(lambda x: function(x, np.asarray(matrix)))
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12)


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


@pytest.mark.parametrize("function", ON_OBJECTS.values(), ids=ON_OBJECTS)
@pytest.mark.parametrize("trace", [make_fx, lambda f: make_fx(f, tracing_mode="fake"), compile],
                         ids=["real", "fake", "compile"])
def test_traces_refuse_objects_that_hold_their_values(function, trace):
    with pytest.raises(DataDependentError, match=r"array of objects that holds values of the traced(.|\n)*np\.stack"):
        trace(lambda x: function(x, of_objects(x)))(X)


@pytest.mark.parametrize("function", ON_OBJECTS.values(), ids=ON_OBJECTS)
@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_transforms_refuse_objects_that_hold_their_values(function, transform):
    with pytest.raises(AutogradError, match=f"is a value of {transform}"):
        WAYS[transform](lambda x: pnp.sum(function(x, of_objects(x))))


def test_operators_of_python_on_objects_are_traced():
    graph = make_fx(lambda x: np.sum(of_objects(x) * X))(X)
    np.testing.assert_allclose(graph(2 * X), np.sum(2 * X * X))
    np.testing.assert_allclose(func.grad(lambda x: np.sum(of_objects(x) * X))(X), X)
