"""linear_solve and the implicit function theorem: every transform against NumPy's dense solution."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.func import grad, jacfwd, jacrev, jvp, linearize, vmap
from pydispatch.scipy.optimize import linear_solve
from tests.higher_order import compositions

RANDOM = np.random.default_rng(0)
B = RANDOM.normal(size=3)
BATCH = RANDOM.normal(size=(3, 3))
FIXED = RANDOM.normal(size=(3, 3)) + 3 * np.eye(3)


def column(x):
    return ops.np.reshape(x, (-1, 1))


def general(x):
    """Return a matrix that depends on x, and is not symmetric."""
    return FIXED + column(ops.np.sin(x)) * ops.np.cos(x + 1.0)


def definite(x):
    v = ops.np.cos(x)
    return np.diag([2.0, 3.0, 4.0]) + column(v) * v


def direct(matrix):
    return lambda x: ops.np.linalg_solve(matrix(x), x)


def solving(matrix, method):
    def program(x):
        m = matrix(x)
        return linear_solve(lambda v: m @ v, x, method=method, rtol=1e-14)
    return program


def with_fixed_matrix(x):
    return linear_solve(lambda v: FIXED @ v, ops.np.sin(x), rtol=1e-14)


TestCompositions = compositions.tests_of({
    "cg": (solving(definite, "cg"), direct(definite)),
    "gmres": (solving(general, "gmres"), direct(general)),
    "dense": (solving(general, "dense"), direct(general)),
    "fixed_matrix": (with_fixed_matrix, lambda x: ops.np.linalg_solve(FIXED, ops.np.sin(x))),
}, (B,), BATCH)


# --- values and derivatives ------------------------------------------------------------------------------------------


METHODS = ["cg", "gmres", "dense"]
SPD = FIXED @ FIXED.T


@pytest.mark.parametrize("method", METHODS)
def test_solution_of_a_pytree_of_any_shapes(method):
    def matvec(x):
        return {"a": 2.0 * x["a"] + 0.1 * x["b"].sum(), "b": 3.0 * x["b"] + 0.1 * x["a"]}

    b = {"a": np.array(1.0), "b": np.arange(6.0).reshape(2, 3)}
    x = linear_solve(matvec, b, method=method)
    for name, found in matvec(x).items():
        np.testing.assert_allclose(found, b[name], rtol=1e-9, atol=1e-12, strict=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobian_in_b_is_the_inverse(method, jacobian):
    found = jacobian(lambda b: linear_solve(lambda x: SPD @ x, b, method=method))(B)
    np.testing.assert_allclose(found, np.linalg.inv(SPD), rtol=1e-9)


@pytest.mark.parametrize("method", ["gmres", "dense"])
def test_gradient_of_what_matvec_captures(method):
    def loss(solve):
        return lambda m: (solve(m) ** 2).sum()

    found = grad(loss(lambda m: linear_solve(lambda x: m @ x, B, method=method)))(FIXED)
    np.testing.assert_allclose(found, grad(loss(lambda m: ops.np.linalg_solve(m, B)))(FIXED), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dims", [(0, 0), (None, 0), (0, None)])
def test_vmap_over_matrices_and_right_hand_sides(method, dims):
    matrices = SPD + np.arange(4)[:, None, None] * np.eye(3)
    rows = RANDOM.normal(size=(4, 3))
    args = [rows_of if dim == 0 else rows_of[1] for rows_of, dim in zip((matrices, rows), dims, strict=True)]
    found = vmap(lambda m, b: linear_solve(lambda x: m @ x, b, method=method), dims)(*args)
    expected = np.linalg.solve(np.broadcast_to(args[0], (4, 3, 3)), np.broadcast_to(args[1], (4, 3))[..., None])[..., 0]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_examples_of_a_batch_keep_their_own_tolerance():
    scales = np.array([1.0, 1e-9])
    found = vmap(lambda s: linear_solve(lambda x: SPD @ x, s * B, method="cg", rtol=1e-12))(scales)
    np.testing.assert_allclose(found, scales[:, None] * np.linalg.solve(SPD, B), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_complex_hermitian_system(method):
    matrix = SPD + 1j * np.array([[0, 1, 2], [-1, 0, 3], [-2, -3, 0.0]]) / 4
    b = B + 1j * BATCH[0]
    np.testing.assert_allclose(linear_solve(lambda x: matrix @ x, b, method=method), np.linalg.solve(matrix, b))

    def loss(solve):
        return lambda b: ops.np.absolute(solve(b)[0] * (1 + 2j)).sum()

    found = grad(loss(lambda b: linear_solve(lambda x: matrix @ x, b, method=method)))(b)
    np.testing.assert_allclose(found, grad(loss(lambda b: ops.np.linalg_solve(matrix, b)))(b), rtol=1e-8)


def test_a_complex_matrix_makes_complex_solutions():
    np.testing.assert_allclose(linear_solve(lambda x: (1 + 1j) * x, B), B / (1 + 1j))


@pytest.mark.parametrize("method", ["cg", "gmres"])
def test_a_large_system_without_a_matrix(method):
    n = 1000

    def laplacian(x):
        padded = ops.np.concatenate((np.zeros(1), x, np.zeros(1)))
        return 2.5 * x - padded[2:] - padded[:-2]

    b = np.sin(np.arange(n))
    x = linear_solve(laplacian, b, method=method)
    np.testing.assert_allclose(laplacian(x), b, atol=1e-8)
    ones = grad(lambda b: linear_solve(laplacian, b, method=method).sum())(b)
    np.testing.assert_allclose(laplacian(ones), np.ones(n), atol=1e-7)


def test_linearize():
    program = solving(general, "gmres")
    value, push = linearize(program, B)
    compositions.same(value, program(B))
    compositions.same(push(BATCH[0]), jvp(direct(general), (B,), (BATCH[0],))[1])


def test_tensors_in_tensors_out():
    assert isinstance(linear_solve(lambda x: SPD @ x, Tensor(B)), Tensor)
    assert isinstance(linear_solve(lambda x: SPD @ x, B), np.ndarray)
    matrix = Tensor(SPD)
    assert isinstance(linear_solve(lambda x: matrix @ x, B), Tensor)


# --- bad input -------------------------------------------------------------------------------------------------------


SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
REGULAR = np.array([[2.0, 0.5], [0.5, 1.0]])
TWO = np.array([1.0, 3.0])

BAD = {
    "singular": (lambda: linear_solve(lambda x: SINGULAR @ x, TWO, method="dense"), np.linalg.LinAlgError,
                 "linear_solve: Singular matrix"),
    "singular_gmres": (lambda: linear_solve(lambda x: SINGULAR @ x, TWO), ConvergenceError,
                       "gmres has not converged after 20 iterations"),
    "indefinite": (lambda: linear_solve(lambda x: -(REGULAR @ x), TWO, method="cg"), ConvergenceError,
                   "not positive definite"),
    "maxiter": (lambda: linear_solve(lambda x: REGULAR @ x, TWO, method="cg", maxiter=1), ConvergenceError,
                "cg has not converged after 1 iterations"),
    "nan": (lambda: linear_solve(lambda x: REGULAR @ x, np.array([1.0, np.nan])), ValueError,
            "linear_solve: array must not contain infs or NaNs"),
    "nan_in_matvec": (lambda: linear_solve(lambda x: x * np.nan, TWO), ConvergenceError, "has infs or NaNs"),
    "affine": (lambda: linear_solve(lambda x: REGULAR @ x + 1.0, TWO, method="dense"), ConvergenceError,
               "the function is not linear"),
    "shape": (lambda: linear_solve(lambda x: x.sum(), TWO), DispatchTypeError,
              r"matvec returns float64\[\] as array 0, where b is float64\[2\]"),
    "structure": (lambda: linear_solve(lambda x: (x, x), TWO), DispatchTypeError, "the structure of b"),
    "method": (lambda: linear_solve(lambda x: x, TWO, method="lu"), ValueError, "method is 'lu'"),
    "no_function": (lambda: linear_solve(REGULAR, TWO), DispatchTypeError, "matvec is an ndarray"),
    "no_numbers": (lambda: linear_solve(lambda x: x, "b"), DispatchTypeError, "expected arrays of numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message) as caught:
        call()
    assert str(caught.value).startswith("linear_solve: ")
    assert len(str(caught.value).splitlines()) >= 2


def failing(scale, method):
    return linear_solve(lambda x: scale * (REGULAR @ x), TWO, method=method)


@pytest.mark.parametrize("transform", [
    pytest.param(lambda f, x: vmap(f)(x), id="vmap"),
    pytest.param(lambda f, x: vmap(grad(lambda s: f(s).sum()))(x), id="vmap_grad"),
    pytest.param(lambda f, x: grad(lambda x: vmap(f)(x).sum())(x), id="grad_vmap"),
    pytest.param(lambda f, x: jvp(vmap(f), (x,), (x,)), id="jvp_vmap"),
    pytest.param(lambda f, x: vmap(f)(Tensor(x, requires_grad=True)), id="tape"),
])
@pytest.mark.parametrize(("method", "error"), [("cg", ConvergenceError), ("dense", np.linalg.LinAlgError)])
def test_the_example_that_failed_is_named(transform, method, error):
    bad = -1.0 if method == "cg" else 0.0
    with pytest.raises(error, match=r"^linear_solve: .*\(example 1 of the batch\)"):
        transform(lambda s: failing(s, method), np.array([1.0, bad, 2.0]))


def test_the_example_of_a_batch_of_batches_is_named():
    scales = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0]])
    with pytest.raises(ConvergenceError, match=r"\(example 1, 2 of the batch\)"):
        vmap(vmap(lambda s: failing(s, "cg")))(scales)
