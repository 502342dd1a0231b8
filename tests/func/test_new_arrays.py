"""Arrays that a function makes are its own, whatever makes them: it writes numbers and followed values to them."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, ops
from pydispatch.exceptions import AutogradError, FunctionalizationError, VmapError
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_rows
from pydispatch.tracing import make_fx

X = np.array([0.5, 1.0, 2.0])
BATCH = np.stack([X, X + 1])
C = np.array([1.0, -2.0, 3.0])
A = np.arange(9.0).reshape(3, 3)


def linear(x):
    return A @ x


def constant(x):
    return pnp.ones(3)


def quadratic(x):
    return x @ A @ x


OF_CAPTURED = {
    # of an array C, raw or a Tensor, that the function captures
    "sin": lambda x, c: pnp.sin(c),
    "add": lambda x, c: ops.np.add(c, c),
    "array": lambda x, c: pnp.array(c),
    "copy": lambda x, c: pnp.copy(c), "zeros_like": lambda x, c: pnp.zeros_like(c),
    "full_like": lambda x, c: pnp.full_like(c, 1.0),
    "where": lambda x, c: pnp.where(c > 0, c, 0.0),
    "sort": lambda x, c: pnp.sort(c),
    "cumsum": lambda x, c: pnp.cumsum(c),
    "concatenate": lambda x, c: pnp.concatenate([c[:1], c[1:]]),
    "stack": lambda x, c: pnp.stack([c[0], c[1], c[2]]),
    "irfft": lambda x, c: pnp.fft.irfft(c, 3),
    "solve": lambda x, c: pnp.linalg.solve(pnp.eye(3) + 1, c),
    "view of a new array": lambda x, c: pnp.exp(c * 0.1)[::-1],
    "first of two": lambda x, c: pnp.linalg.qr(pnp.outer(c, c) + pnp.eye(3))[0],
    "scan": lambda x, c: scan(lambda a, u: (a + u, a * u), c * 1, pnp.stack([c, c]))[0],
    "cond": lambda x, c: cond(np.array(True), lambda c: c * 2, lambda c: c * 3, (c,)),
}
OF_NUMBERS = {
    # a vector of three elements, made of numbers and lists alone
    "mgrid": lambda x: pnp.mgrid[0:3] * 1.0,
    "mgrid of two axes": lambda x: pnp.mgrid[0:2, 0:3][1] * 1.0,
    "mgrid of fractions": lambda x: pnp.mgrid[0:1:3j],
    "ogrid": lambda x: pnp.ogrid[0:3.0, 0:2.0][0][:, 0],
    "indices": lambda x: pnp.indices((3,), float)[0],
    "indices, sparse": lambda x: pnp.indices((3, 2), float, sparse=True)[0][:, 0],
    "fromfunction": lambda x: pnp.fromfunction(lambda i, j: i + 2 * j, (3, 2))[:, 1],
    "fromiter": lambda x: pnp.fromiter((i / 2 for i in range(3)), float),
    "r_": lambda x: pnp.r_[0.0, 1:3],
    "c_": lambda x: pnp.c_[[0.0, 1, 2], [3, 4, 5]][:, 0],
    "meshgrid": lambda x: pnp.meshgrid([0.0, 1.0, 2.0], [1.0])[0][0],
    "tri": lambda x: pnp.tri(3)[1],
    "tril": lambda x: pnp.tril([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])[1],
    "vander": lambda x: pnp.vander([1.0, 2.0], 3)[1],
    "diag": lambda x: pnp.diag([1.0, 2.0, 3.0])[2],
    "outer": lambda x: pnp.outer([1.0, 2.0], [1.0, 2.0, 3.0])[1],
    "hstack": lambda x: pnp.hstack([[1.0, 2.0], [3.0]]),
    "linspace": lambda x: pnp.linspace(0, 1, 3),
    "geomspace": lambda x: pnp.geomspace(1, 4, 3),
    "hanning": lambda x: pnp.hanning(3),
    "fftfreq": lambda x: pnp.fft.fftfreq(3),
    "sin of a list": lambda x: pnp.sin([0.0, 1.0, 2.0]),
    "eigh of lists": lambda x: pnp.linalg.eigh([[1.0, 0, 0], [0, 2, 0], [0, 0, 3]])[0],
    "leggauss": lambda x: pnp.polynomial.legendre.leggauss(3)[0],
    "vectorize": lambda x: pnp.vectorize(lambda v: v + 1.0)([1, 2, 3]),
}
OF_TRANSFORMS = {
    # what a transform inside computes, a constant of it more often than not
    "jacfwd": lambda x: func.jacfwd(linear)(x),
    "jacrev": lambda x: func.jacrev(linear)(x),
    "jacfwd of the diagonal": lambda x: func.jacfwd(lambda x: x * 2)(x),
    "jacrev of the diagonal": lambda x: func.jacrev(lambda x: x * 2)(x),
    "hessian": lambda x: func.hessian(quadratic)(x),
    "hessian of zeros": lambda x: func.hessian(lambda x: x.sum())(x),
    "jacfwd of a constant": lambda x: func.jacfwd(constant)(x),
    "jacrev of a constant": lambda x: func.jacrev(constant)(x),
    "grad": lambda x: func.grad(lambda x: x.sum())(x),
    "grad of a product": lambda x: func.grad(lambda x: (C * x).sum())(x),
    "grad of a constant": lambda x: func.grad(lambda x: pnp.ones(3).sum())(x),
    "value_and_grad": lambda x: func.value_and_grad(lambda x: (C * x).sum())(x)[1],
    "jvp": lambda x: func.jvp(linear, (x,), (np.ones(3),))[1],
    "jvp of a constant": lambda x: func.jvp(constant, (x,), (np.ones(3),))[1],
    "value of jvp": lambda x: func.jvp(constant, (x,), (np.ones(3),))[0],
    "vjp": lambda x: func.vjp(linear, x)[1](np.ones(3))[0],
    "linearize": lambda x: func.linearize(linear, x)[1](np.ones(3)),
    "linearize of a constant": lambda x: func.linearize(constant, x)[1](np.ones(3)),
    "vmap": lambda x: func.vmap(lambda i: i * 2)(x),
    "vmap of a constant": lambda x: func.vmap(lambda i: pnp.ones(3))(x),
    "vmap of an array of numpy": lambda x: func.vmap(lambda i: np.ones(3))(x),
    "functionalize": lambda x: func.functionalize(constant)(x),
    "compile": lambda x: COMPILED(x),
    "map": lambda x: map_rows(lambda r: r * 0 + C, pnp.stack([x, x, x])),
    "while_loop": lambda x: while_loop(lambda i, c: i < 2, lambda i, c: (i + 1, c * 2), (np.array(0), pnp.copy(C)))[1],
    "associative_scan": lambda x: associative_scan(lambda a, b: a + b, pnp.stack([C, C, C])) * (x[0] * 0 + 1),
}
COMPILED = compile(lambda x: pnp.ones_like(x))


def writer(make):
    def f(x):
        y = make(x)
        y[0] = 5.0
        y[1:] *= 2.0
        y[1] = x[2] * x[0]
        return (y * y * x).sum()

    return f


def numbers(make):
    """Return a function that writes numbers alone: raw arrays of captured ones take them everywhere."""

    def f(x):
        y = make(x)
        y[0] = 5.0
        y[1:] *= 2.0
        return (y * y * x).sum()

    return f


def on_tape(f):
    leaf = Tensor(X, requires_grad=True)
    return autograd.grad(f(leaf), leaf)[0].numpy()


GRADIENTS = {
    "grad": lambda f: func.grad(f)(X),
    "compile of grad": lambda f: compile(func.grad(f))(X),
    "grad of compile": lambda f: func.grad(compile(f))(X),
    "vjp": lambda f: func.vjp(f, X)[1](np.float64(1.0))[0],
    "jacfwd": lambda f: func.jacfwd(f)(X),
    "jvp": lambda f: [func.jvp(f, (X,), (row,))[1] for row in np.eye(3)],
    "linearize": lambda f: [func.linearize(f, X)[1](row) for row in np.eye(3)],
    "compile of linearize": lambda f: [compile(lambda x, t: func.linearize(f, x)[1](t))(X, row) for row in np.eye(3)],
    "vmap of grad": lambda f: func.vmap(func.grad(f))(np.stack([X, X]))[0],
    "grad of vmap": lambda f: func.grad(lambda x: func.vmap(f)(pnp.stack([x, x]))[0])(X),
    "grad of functionalize": lambda f: func.grad(func.functionalize(f))(X),
}
VALUES = {
    "call": lambda f: f(X),
    "compile": lambda f: compile(f)(X),
    "make_fx": lambda f: make_fx(f)(X)(X),
    "vmap": lambda f: func.vmap(f)(np.stack([X, X]))[0],
    "compile of vmap": lambda f: compile(func.vmap(f))(np.stack([X, X]))[0],
    "functionalize": lambda f: func.functionalize(f)(X),
    "value_and_grad": lambda f: func.value_and_grad(f)(X)[0],
}


def slopes(f, step=1e-6):
    return [(f(X + e) - f(X - e)) / (2 * step) for e in step * np.eye(3)]


def plainly(make):
    """Make in NumPy's terms what `make` makes: a new array of numbers."""
    return lambda x: np.array(make(x))


@pytest.mark.parametrize("of", OF_TRANSFORMS)
def test_what_a_transform_computes_can_be_written_to(of):
    f, plain = writer(OF_TRANSFORMS[of]), writer(plainly(OF_TRANSFORMS[of]))
    value = plain(X)
    for way, call in VALUES.items():
        np.testing.assert_allclose(np.asarray(call(f)), value, rtol=1e-9, err_msg=way)
    expected = slopes(plain)
    for way, call in (GRADIENTS | {"tape": on_tape}).items():
        if way != "tape" or of in ("jacfwd", "grad", "vmap", "compile"):
            np.testing.assert_allclose(np.asarray(call(f)), expected, rtol=2e-6, atol=1e-6, err_msg=way)


@pytest.mark.parametrize("of", OF_NUMBERS)
def test_what_is_made_of_numbers_can_be_written_to(of):
    f, plain = writer(OF_NUMBERS[of]), writer(plainly(OF_NUMBERS[of]))
    for way, call in VALUES.items():
        np.testing.assert_allclose(np.asarray(call(f)), plain(X), rtol=1e-12, err_msg=way)
    for way, call in (GRADIENTS | {"tape": lambda f: on_tape(func.functionalize(f))}).items():
        np.testing.assert_allclose(np.asarray(call(f)), slopes(plain), rtol=2e-6, err_msg=way)


@pytest.mark.parametrize("of", ["jacfwd", "hessian", "grad of a product", "jvp", "vjp", "vmap of a constant"])
def test_second_derivatives_of_what_writes_to_such_arrays(of):
    f = writer(OF_TRANSFORMS[of])
    gradient = func.grad(f)
    expected = [(gradient(X + e) - gradient(X - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    for call in (func.hessian, lambda f: compile(func.hessian(f)), lambda f: func.jacrev(func.grad(f))):
        np.testing.assert_allclose(call(f)(X), np.transpose(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("of", OF_CAPTURED)
def test_what_is_made_of_a_captured_tensor_can_be_written_to(of):
    make, c = OF_CAPTURED[of], Tensor(C.copy())
    f, plain = writer(lambda x: make(x, c)), writer(lambda x: np.array(make(x, C)))
    for way, call in VALUES.items():
        np.testing.assert_allclose(np.asarray(call(f)), plain(X), rtol=1e-12, err_msg=way)
    for way, call in GRADIENTS.items():
        np.testing.assert_allclose(np.asarray(call(f)), slopes(plain), rtol=2e-6, err_msg=way)
    assert c.array.tolist() == C.tolist()


@pytest.mark.parametrize("of", OF_CAPTURED)
def test_what_is_made_of_a_captured_array_can_be_written_to(of):
    make, kept = OF_CAPTURED[of], C.copy()
    f, plain = numbers(lambda x: make(x, C)), numbers(lambda x: np.array(make(x, C)))
    for way, call in VALUES.items():
        np.testing.assert_allclose(np.asarray(call(f)), plain(X), rtol=1e-12, err_msg=way)
    for way, call in GRADIENTS.items():
        np.testing.assert_allclose(np.asarray(call(f)), slopes(plain), rtol=2e-6, err_msg=way)
    followed = writer(lambda x: make(x, C))
    expected = writer(lambda x: np.array(make(x, C)))
    for call in (compile, lambda f: compile(func.functionalize(f))):
        np.testing.assert_allclose(np.asarray(call(followed)(X)), expected(X), rtol=1e-12)
    np.testing.assert_allclose(compile(func.grad(followed))(X), slopes(expected), rtol=2e-6)
    assert kept.tolist() == C.tolist()


def test_what_is_made_of_values_of_the_level_outside_takes_those_of_the_level_inside():
    def inner(x, z):
        y = pnp.sin(x)
        y[1] = z[0] * z[2]
        return (y * z).sum()

    def gradient(x):        # with respect to z, by hand
        z = x * 2
        return (z * pnp.stack([pnp.sin(x[0]) + z[1] * z[2], z[0] * z[2], z[0] * z[1] + pnp.sin(x[2])])).sum()

    def f(x):
        return (x * 2 * func.grad(lambda z: inner(x, z))(x * 2)).sum()

    for call in (func.grad, func.hessian, func.jacfwd, compile, lambda f: compile(func.grad(f)),
                 lambda f: compile(func.hessian(f))):
        np.testing.assert_allclose(call(f)(X), call(gradient)(X), rtol=1e-12)
    for call in (func.vmap, lambda f: func.vmap(func.grad(f)), lambda f: func.jacfwd(func.vmap(f))):
        np.testing.assert_allclose(call(f)(BATCH), call(gradient)(BATCH), rtol=1e-12)


VIEWS = {
    "reshape": lambda c: pnp.reshape(c, (3,)),
    "part": lambda c: c[:2],
    "transpose": lambda c: pnp.transpose(c),
    "itself": lambda c: c,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("run", [
    lambda f: func.grad(f)(X), lambda f: func.functionalize(f)(X), lambda f: compile(f)(X),
    lambda f: func.vmap(f)(BATCH),
])
def test_views_of_captured_arrays_are_not_the_functions_own(view, run):
    c = Tensor(C.copy())

    def f(x):
        y = VIEWS[view](c)
        y[0] = x[0]
        return (y * y).sum() * x.sum()

    with pytest.raises((AutogradError, FunctionalizationError, VmapError, TypeError)):
        run(f)
    assert c.array.tolist() == C.tolist()


def test_results_that_are_not_batched_are_new_arrays():
    rows = func.vmap(lambda x: C)(X)
    rows[0, 0] = 9.0
    assert rows[1, 0] == C[0] == 1.0
    columns = func.vmap(lambda x: C, out_dims=1)(X)
    columns[0] = 5.0
    np.testing.assert_array_equal(columns, [[5.0] * 3, [-2.0] * 3, [3.0] * 3])


def test_the_tape_keeps_what_it_records_inside_of_a_transform():
    leaf = Tensor(C, requires_grad=True)

    def f(x):
        y = leaf * 2.0
        assert y.requires_grad
        y.backward(np.ones(3))
        return (x * x).sum()

    np.testing.assert_array_equal(func.grad(f)(X), 2 * X)
    np.testing.assert_array_equal(leaf.grad.numpy(), [2.0] * 3)
