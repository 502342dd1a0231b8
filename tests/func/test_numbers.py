"""Floats as arguments of transforms, results of one element, constants as results, and results without an array."""

from functools import partial

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AutogradError, DispatchError
from pydispatch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from tests import comparing
from tests.together import together

close = partial(comparing.close, atol=0.0)

X = np.array([0.5, -2.0, 3.0])


def cube(x):
    return x * x * x


# --- floats as arguments ---------------------------------------------------------------------------------------------

AT_TWO = {
    "grad": (lambda: grad(cube)(2.0), 12.0),
    "argnums": (lambda: grad(lambda x, y: x * y, argnums=(0, 1))(2.0, np.array(5.0))[0], 5.0),
    "value": (lambda: value_and_grad(cube)(2.0)[0], 8.0),
    "value_and_grad": (lambda: value_and_grad(cube)(2.0)[1], 12.0),
    "container": (lambda: grad(lambda p: cube(p["w"]) + p["b"].sum())({"w": 2.0, "b": X})["w"], 12.0),
    "vjp": (lambda: vjp(cube, 2.0)[0], 8.0),
    "pullback": (lambda: vjp(cube, 2.0)[1](np.array(0.5))[0], 6.0),
    "float cotangent": (lambda: vjp(cube, np.array(2.0))[1](0.5)[0], 6.0),
    "jvp": (lambda: jvp(cube, (2.0,), (0.5,))[0], 8.0),
    "tangent": (lambda: jvp(cube, (2.0,), (0.5,))[1], 6.0),
    "tangent in a container": (lambda: jvp(lambda p: cube(p[0]), ([2.0],), ([0.5],))[1], 6.0),
    "jacrev": (lambda: jacrev(cube)(2.0), 12.0),
    "jacfwd": (lambda: jacfwd(cube)(2.0), 12.0),
    "hessian": (lambda: hessian(cube)(2.0), 12.0),
    "nested": (lambda: grad(grad(cube))(2.0), 12.0),
    "linearize": (lambda: linearize(cube, 2.0)[0], 8.0),
    "linear": (lambda: linearize(cube, 2.0)[1](0.5), 6.0),
    "complex": (lambda: grad(lambda z: (z * z.conj()).real)(2.0 + 1.0j), 4.0 + 2.0j),
    "NumPy scalar": (lambda: grad(cube)(np.float64(2.0)), 12.0),
}


@pytest.mark.parametrize("name", AT_TWO)
def test_a_number_enters_and_leaves_as_a_scalar(name):
    call, expected = AT_TWO[name]
    found = call()
    assert isinstance(found, np.generic) or (type(found) is np.ndarray and name == "float cotangent")
    close(found, expected)


def test_a_float_that_is_not_differentiated_stays_one():
    seen = []
    grad(lambda x, y: seen.append(y) or x.sum())(X, 2.0)
    assert seen == [2.0]
    assert type(seen[0]) is float


@pytest.mark.parametrize("transform", [grad, value_and_grad, jacrev, jacfwd, hessian])
@pytest.mark.parametrize("number", [3, True], ids=repr)
def test_an_int_is_refused_with_the_float_to_write(transform, number):
    with pytest.raises(DispatchError, match=rf"is of type {type(number).__name__}.*\n.*{float(number)}"):
        transform(cube)(number)


# --- results of one element ------------------------------------------------------------------------------------------

ONE_ELEMENT = {
    "(1,)": lambda x: cube(x).sum().reshape(1), "(1, 1)": lambda x: cube(x).sum(keepdims=True).reshape(1, 1),
    "kept axis": lambda x: cube(x).sum(axis=0, keepdims=True), "()": lambda x: cube(x).sum(),
}


@pytest.mark.parametrize("f", ONE_ELEMENT.values(), ids=ONE_ELEMENT)
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_a_result_of_one_element_is_a_scalar(f, wrap):
    value, gradient = value_and_grad(f)(wrap(X))
    close(np.asarray(gradient), 3 * X ** 2)
    close(np.asarray(value), f(X))
    close(np.asarray(grad(f)(wrap(X))), 3 * X ** 2)


@pytest.mark.parametrize("f", ONE_ELEMENT.values(), ids=ONE_ELEMENT)
def test_and_so_in_other_transforms(f):
    close(vmap(grad(f))(np.stack([X, 2 * X])), [3 * X ** 2, 12 * X ** 2])
    close(jvp(grad(f), (X,), (np.ones(3),))[1], 6 * X)
    close(jacrev(grad(f))(X), np.diag(6 * X))
    close(grad(lambda x: grad(f)(x)[:1])(X), [6 * X[0], 0, 0])


# --- constants as results --------------------------------------------------------------------------------------------

CONSTANTS = {
    "float": lambda x: 1.5, "raw": lambda x: np.array(1.5), "NumPy scalar": lambda x: np.float64(1.5),
    "Tensor": lambda x: Tensor(np.array(1.5)), "made inside": lambda x: ops.np.ones(()) * 1.5,
    "raw (1,)": lambda x: np.array([1.5]), "detached": lambda x: x.detach().sum() + 0.0,
}


@pytest.mark.parametrize("f", CONSTANTS.values(), ids=CONSTANTS)
def test_a_constant_has_the_gradient_zero(f):
    shape = np.shape(np.asarray(f(Tensor(X))))
    close(grad(f)(X), np.zeros(3))
    close(value_and_grad(f)(X)[0], np.asarray(f(Tensor(X))))
    close(value_and_grad(f)(X)[1], np.zeros(3))
    close(vjp(f, X)[1](np.ones(shape))[0], np.zeros(3))
    close(jvp(f, (X,), (X,))[1], np.zeros(shape))
    close(linearize(f, X)[1](X), np.zeros(shape))
    close(jacrev(f)(X), np.zeros((*shape, 3)))
    close(jacfwd(f)(X), np.zeros((*shape, 3)))
    close(hessian(f)(X), np.zeros((*shape, 3, 3)))
    close(vmap(grad(f))(np.stack([X, X])), np.zeros((2, 3)))


def test_a_float_among_results_is_a_0d_array():
    output, pull = vjp(lambda x: {"loss": cube(x), "rate": 0.1}, X)
    close(output["rate"], 0.1)
    close(pull({"loss": np.ones(3), "rate": 1.0})[0], 3 * X ** 2)
    assert jacrev(lambda x: (cube(x), 0.1))(X)[1].shape == (3,)


def test_a_complex_number_is_no_real_result():
    with pytest.raises(AutogradError, match="complex128"):
        grad(lambda x: 1j)(X)


# --- results without an array ----------------------------------------------------------------------------------------

WITHOUT_ARRAY = {"None": None, "()": (), "[]": [], "{}": {}, "str": "text", "nested": ({}, [])}
DERIVATIVES = {
    "grad": lambda f: grad(f)(X), "value_and_grad": lambda f: value_and_grad(f)(X), "vjp": lambda f: vjp(f, X),
    "jvp": lambda f: jvp(f, (X,), (X,)), "jvp-strict": lambda f: jvp(f, (X,), (X,), strict=True),
    "jacrev": lambda f: jacrev(f)(X), "jacfwd": lambda f: jacfwd(f)(X), "hessian": lambda f: hessian(f)(X),
    "linearize": lambda f: linearize(f, X), "vjp-aux": lambda f: vjp(lambda x: (f(x), x), X, has_aux=True),
    "jvp-aux": lambda f: jvp(lambda x: (f(x), x), (X,), (X,), has_aux=True),
    "grad-aux": lambda f: grad(lambda x: (f(x), x), has_aux=True)(X),
}


@pytest.mark.parametrize("result", WITHOUT_ARRAY.values(), ids=WITHOUT_ARRAY)
@together("call", DERIVATIVES.values(), ids=DERIVATIVES)
def test_a_function_that_returns_no_array_is_refused(call, result):
    with pytest.raises(AutogradError, match=r"expected (an array|one real number)|returned no array") as caught:
        call(lambda x: result)
    assert len(str(caught.value).splitlines()) == 2


# --- argnums ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("argnums", "text"), [
    ((0.0,), r"\(0\.0,\), expected an int or a tuple of ints\n"), (0.0, "0.0, expected an int or a tuple of ints\n"),
    ([0], r"\[0\], expected an int or a tuple of ints\n"), ((), "an empty tuple, expected at least one position\n"),
    ((True,), "expected an int or a tuple of ints\n"),
], ids=repr)
@together("transform", [grad, value_and_grad, jacrev, jacfwd, hessian])
def test_argnums_that_names_no_argument(transform, argnums, text):
    with pytest.raises(AutogradError, match=text):
        transform(lambda x: x.sum(), argnums=argnums)(X)
