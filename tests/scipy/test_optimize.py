"""root, minimize and fixed_point: values against SciPy, derivatives against closed forms and iterations by hand."""

import numpy as np
import pytest
from scipy import optimize as reference

from pydispatch import Tensor, compile, ops
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vmap
from pydispatch.scipy.optimize import fixed_point, minimize, root
from tests.higher_order import compositions

X = np.array([0.3, 0.9])
BATCH = np.array([[0.3, 0.9], [0.1, 0.4], [0.8, 0.2]])
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
EXACT = {"xtol": 1e-14}


def kepler(e):
    """Return the eccentric anomaly at the mean anomaly 1, for each eccentricity."""
    return root(lambda u, e: u - e * ops.np.sin(u) - 1.0, np.ones(2), (e,), options=EXACT).x


def kepler_by_newton(e):
    u = 1.0 + 0.0 * e
    for _ in range(8):
        u = u - (u - e * ops.np.sin(u) - 1.0) / (1.0 - e * ops.np.cos(u))
    return u


def captured_root(p):
    """Return a quadratic equation, coefficients captured, unknowns in a pytree."""
    scale = ops.np.exp(p)

    def equations(s):
        return {"u": s["u"] * s["u"] - scale, "v": s["v"] - s["u"] * p}

    found = root(equations, {"u": np.ones(2), "v": np.ones(2)}, options=EXACT)
    return found.x["u"], found.x["v"]


def captured_root_by_hand(p):
    u = ops.np.exp(0.5 * p)
    return u, u * p


def quadratic(p):
    return minimize(lambda x: 0.5 * (x * (MATRIX @ x)).sum() - (p * x).sum(), np.zeros(2), method="trust-exact",
                    tol=1e-13).x


def quadratic_by_hand(p):
    return np.linalg.inv(MATRIX) @ p


def convex(p):
    """Return a minimum of exp(x) - q x, at log(q)."""
    q = p * p + 1.0
    return minimize(lambda x, q: (ops.np.exp(x) - q * x).sum(), np.zeros(2), (q,), tol=1e-13).x


def convex_by_hand(p):
    return ops.np.log(p * p + 1.0)


def square_root(p):
    return fixed_point(lambda x: 0.5 * (x + (p + 1.0) / x), np.ones(2), xtol=1e-14)


def square_root_by_hand(p):
    return ops.np.sqrt(p + 1.0)


def iterated(p):
    return fixed_point(lambda x, p: 0.3 * ops.np.sin(x) + p, np.zeros(2), (p,), xtol=1e-15, method="iteration")


def iterated_by_hand(p):
    x = p * 0.0
    for _ in range(40):
        x = 0.3 * ops.np.sin(x) + p
    return x


TestCompositions = compositions.tests_of({
    "kepler": (kepler, kepler_by_newton),
    "captured_root": (captured_root, captured_root_by_hand),
    "quadratic": (quadratic, quadratic_by_hand),
    "convex": (convex, convex_by_hand),
    "square_root": (square_root, square_root_by_hand),
    "iterated": (iterated, iterated_by_hand),
}, (X,), BATCH)


# --- values ----------------------------------------------------------------------------------------------------------


def system(x):
    """Return the equations of SciPy's example, as a list."""
    return [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]]


def rosen(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("method", ["hybr", "lm", "broyden1", "df-sane"])
def test_root_is_scipys(method):
    found = root(system, [0, 0], method=method)
    np.testing.assert_allclose(found.x, reference.root(system, [0.0, 0.0]).x, atol=1e-5)
    np.testing.assert_allclose(found.fun, np.zeros(2), atol=1e-5)
    assert found.success
    assert found["x"] is found.x


@pytest.mark.parametrize("method", [None, "CG", "BFGS", "Newton-CG", "L-BFGS-B", "TNC", "SLSQP", "trust-ncg",
                                    "trust-exact", "trust-krylov", "dogleg", "Nelder-Mead", "Powell"])
def test_minimize_finds_the_minimum_of_rosenbrocks_function(method):
    start = np.array([1.1, 1.2]) if method == "dogleg" else np.array([0.8, 1.2])
    tight = {} if method in ("Nelder-Mead", "Powell", "TNC") else {"tol": 1e-9}
    found = minimize(rosen, start, method=method, **tight)
    np.testing.assert_allclose(found.x, np.ones(2), atol=1e-3)
    assert float(found.fun) < 1e-6


def test_gradients_and_hessians_are_exact_so_fewer_calls_are_needed():
    calls = []

    def counted(x):
        calls.append(x)
        return rosen(x)

    minimize(counted, np.array([0.8, 1.2]), method="BFGS")
    expected = reference.minimize(lambda x: rosen(x), np.array([0.8, 1.2]), method="BFGS")
    assert len(calls) < expected.nfev


@pytest.mark.parametrize("method", ["del2", "iteration"])
def test_fixed_point_is_scipys(method):
    def f(x, c1, c2):
        return np.sqrt(c1 / (x + c2))

    args = np.array([10.0, 12.0]), np.array([3.0, 5.0])
    found = fixed_point(f, [1.2, 1.3], args, method=method)
    np.testing.assert_allclose(found, reference.fixed_point(f, [1.2, 1.3], args, method=method), rtol=1e-12)


def test_fun_is_computed_when_it_is_asked_for():
    found = root(lambda x: x * x - 2.0, np.ones(1))
    assert "fun" not in found
    np.testing.assert_allclose(found.fun, 0.0, atol=1e-8)
    assert "fun" in found
    with pytest.raises(AttributeError, match="nfev"):
        found.nfev     # noqa: B018


@pytest.mark.parametrize("x0", [1.0, [1.0, 2.0], np.array(1.0), np.ones((2, 3)), np.ones(2, np.float32), [1, 2]])
def test_a_solution_has_the_shape_and_dtype_of_the_start(x0):
    expected = np.asarray(x0, None if np.asarray(x0).dtype.kind == "f" else float)
    tol = 1e-4
    for x in (root(lambda x: x * x - 2, x0, tol=tol).x, fixed_point(lambda x: x / 2 + 1 / x, x0, xtol=tol),
              minimize(lambda x: ((x - 3) ** 2).sum(), x0, tol=tol).x):
        assert x.shape == expected.shape
        assert x.dtype == expected.dtype


def test_tensors_in_tensors_out():
    p = Tensor(X)
    assert isinstance(root(lambda x: x - p, X).x, Tensor)
    assert isinstance(minimize(lambda x: ((x - X) ** 2).sum(), p).x, Tensor)
    assert isinstance(fixed_point(lambda x: x * 0.5 + X, X), np.ndarray)


# --- derivatives -----------------------------------------------------------------------------------------------------


def test_minimiser_of_a_quadratic_has_the_inverse_as_jacobian():
    def minimiser(b):
        return minimize(lambda x: 0.5 * x @ (MATRIX @ x) - b @ x, np.zeros(2), tol=1e-12).x

    for jacobian in (jacrev, jacfwd):
        np.testing.assert_allclose(jacobian(minimiser)(X), np.linalg.inv(MATRIX), atol=1e-12)
    second = hessian(lambda b: (minimiser(b) ** 2).sum())(X)
    np.testing.assert_allclose(second, 2 * np.linalg.inv(MATRIX) @ np.linalg.inv(MATRIX), atol=1e-10)


@pytest.mark.parametrize("solver", [
    pytest.param(lambda p: root(lambda x: x + ops.np.tanh(MATRIX @ x) - p, np.zeros(2), options=EXACT).x, id="root"),
    pytest.param(lambda p: minimize(lambda x: (ops.np.cosh(x - p) + 0.5 * (MATRIX @ x) ** 2).sum(), np.zeros(2),
                                    tol=1e-12).x, id="minimize"),
    pytest.param(lambda p: fixed_point(lambda x: 0.2 * ops.np.cos(MATRIX @ x) + p, np.zeros(2), xtol=1e-15),
                 id="fixed_point"),
])
def test_finite_differences(solver):
    e, direction = 1e-5, np.array([0.6, -0.8])

    def difference(f, x):
        return (np.asarray(f(x + e * direction)) - np.asarray(f(x - e * direction))) / (2 * e)

    def loss(p):
        return (ops.np.sin(solver(p)) * np.array([1.0, 2.0])).sum()

    np.testing.assert_allclose(jvp(solver, (X,), (direction,))[1], difference(solver, X), rtol=1e-6)
    np.testing.assert_allclose(grad(loss)(X) @ direction, difference(loss, X), rtol=1e-6)
    second = difference(grad(loss), X)
    np.testing.assert_allclose(jvp(grad(loss), (X,), (direction,))[1], second, rtol=1e-5)
    np.testing.assert_allclose(grad(lambda p: jvp(loss, (p,), (direction,))[1])(X), second, rtol=1e-5)


@pytest.mark.parametrize("tol", [1e-12, 1e-14, 1e-16])
def test_a_root_that_rounding_does_not_let_improve_is_found(tol):
    found = root(lambda x: x ** 3 + x - 1.0, 0.5, tol=tol).x
    np.testing.assert_allclose(found ** 3 + found, 1.0, rtol=1e-15)


def test_the_start_has_no_gradient():
    found = grad(lambda x0: root(lambda x: x * x - 2.0, x0).x.sum())(X)
    np.testing.assert_array_equal(found, np.zeros(2))
    _, moved = jvp(lambda x0: root(lambda x: x * x - 2.0, x0).x, (X,), (X,))
    np.testing.assert_array_equal(moved, np.zeros(2))


def test_more_unknowns_than_a_matrix_is_made_for():
    n = 600

    def chain(p):
        def equations(x):
            padded = ops.np.concatenate((np.zeros(1), x, np.zeros(1)))
            return 3.0 * x + 0.1 * x ** 3 - padded[2:] - padded[:-2] - p
        return root(equations, np.zeros(n), method="krylov", tol=1e-9).x

    p = np.ones(n)
    found = grad(lambda p: chain(p).sum())(p)
    x = chain(p)
    jacobian = np.diag(3 + 0.3 * x * x) - np.eye(n, k=1) - np.eye(n, k=-1)
    np.testing.assert_allclose(found, np.linalg.solve(jacobian.T, np.ones(n)), rtol=1e-6)


def test_linearize():
    value, push = linearize(kepler, X)
    compositions.same(value, kepler(X))
    compositions.same(push(BATCH[1]), jvp(kepler_by_newton, (X,), (BATCH[1],))[1])


# --- bad input -------------------------------------------------------------------------------------------------------


BAD = {
    "no_root": (lambda: root(lambda x: x * x + 1.0, 1.0), ConvergenceError, "not making good progress"),
    "nan_x0": (lambda: root(lambda x: x - 1.0, [1.0, np.nan]), ConvergenceError, "not making good progress"),
    "nan_fun": (lambda: root(lambda x: x * np.nan, [1.0, 1.0]), ConvergenceError, "not making good progress"),
    "maxfev": (lambda: root(lambda x: np.exp(x) - 5.0, 0.0, options={"maxfev": 2}), ConvergenceError,
               "The number of calls to function has reached maxfev = 2"),
    "lm_minimum": (lambda: root(lambda x: x * x + 1.0, 1.0, method="lm"), ConvergenceError,
                   "a minimum that is not a root, where fun is 1"),
    "few_equations": (lambda: root(lambda x: x[:1], np.ones(2)), DispatchTypeError,
                      "fun returns 1 numbers for 2 unknowns"),
    "singular": (lambda: grad(lambda p: root(lambda x: (x - p) ** 2, p + 0.0).x)(np.array(1.0)),
                 np.linalg.LinAlgError, "the root is not isolated"),
    "root_method": (lambda: root(lambda x: x, 1.0, method="foo"), ValueError, "method is 'foo'"),
    "root_function": (lambda: root(1.0, 1.0), DispatchTypeError, "fun is a float"),
    "minimize_maxiter": (lambda: minimize(lambda x: ((x - 3) ** 4).sum(), np.ones(2), options={"maxiter": 1}),
                         ConvergenceError, "Maximum number of iterations"),
    "minimize_vector": (lambda: minimize(lambda x: x, np.ones(2)), DispatchTypeError, r"fun returns float64\[2\]"),
    "no_minimum": (lambda: minimize(lambda x: -x * x, 1.0), ConvergenceError, "precision loss"),
    "saddle": (lambda: minimize(lambda x: x[0] ** 2 - x[1] ** 2, np.ones(2)), ConvergenceError, "precision loss"),
    "minimize_nan": (lambda: minimize(lambda x: (x * np.nan).sum(), np.ones(2)), ConvergenceError, "NaN"),
    "minimize_flat": (lambda: grad(lambda p: minimize(lambda x: (x.sum() - p) ** 2, np.zeros(2)).x[0])(np.array(1.0)),
                      np.linalg.LinAlgError, "the minimum is not isolated"),
    "diverging": (lambda: fixed_point(lambda x: 2 * x + 1.0, np.ones(2), method="iteration", maxiter=20),
                  ConvergenceError, "Failed to converge after 20 iterations"),
    "no_fixed_point": (lambda: fixed_point(lambda x: x + 1.0, np.ones(2)), ConvergenceError, "Failed to converge"),
    "fixed_point_shape": (lambda: fixed_point(lambda x: x.sum(), np.ones(2)), DispatchTypeError,
                          r"func returns float64\[\] as array 0, where x0 is float64\[2\]"),
    "fixed_point_method": (lambda: fixed_point(lambda x: x, 1.0, method="foo"), ValueError, "method is 'foo'"),
    "complex": (lambda: root(lambda x: x - 1j, [1j]), DispatchTypeError, r"x0 holds complex128\[1\]"),
    "no_array": (lambda: root(lambda x: x, {}), DispatchTypeError, "x0 holds no array"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message) as caught:
        call()
    first, *more = str(caught.value).splitlines()
    assert first.startswith(("root: ", "minimize: ", "fixed_point: "))
    assert more


def test_errors_of_the_function_itself_pass():
    def mine(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        fixed_point(mine, 1.0)


SOLVERS = {
    "root": lambda s: root(lambda x: x * x - s, 1.0).x,
    "minimize": lambda s: minimize(lambda x: ((x - 3) ** 4).sum() * s, np.array(1.0), options={"maxiter": 40},
                                   tol=1e-3).x,
    "fixed_point": lambda s: fixed_point(lambda x: x / s + 1.0, 1.0, method="iteration", maxiter=100),
}
ONE_FAILS = {"root": np.array([1.0, 2.0, -1.0]), "minimize": np.array([1.0, 1.0, np.nan]),
             "fixed_point": np.array([2.0, 3.0, 0.5])}


@pytest.mark.parametrize("transform", [
    pytest.param(lambda f, x: vmap(f)(x), id="vmap"),
    pytest.param(lambda f, x: vmap(grad(f))(x), id="vmap_grad"),
    pytest.param(lambda f, x: grad(lambda x: vmap(f)(x).sum())(x), id="grad_vmap"),
    pytest.param(lambda f, x: jvp(vmap(f), (x,), (x,)), id="jvp_vmap"),
    pytest.param(lambda f, x: vmap(f)(Tensor(x, requires_grad=True)), id="tape"),
    pytest.param(lambda f, x: compile(vmap(f))(x), id="compiled"),
    pytest.param(lambda f, x: compile(grad(lambda x: vmap(f)(x).sum()))(x), id="compiled_grad"),
])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_example_that_failed_is_named(transform, solver):
    with pytest.raises(ConvergenceError, match=rf"^{solver}: .*\(example 2 of the batch\)"):
        transform(SOLVERS[solver], ONE_FAILS[solver])


# --- plans -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_scipy(monkeypatch):
    """Return a function after which SciPy's solvers fail."""
    def refused(*args, **kwargs):
        raise AssertionError("a plan called SciPy")

    def forbid():
        for name in ("root", "minimize", "fixed_point"):
            monkeypatch.setattr(reference, name, refused)
    return forbid


def random_equations(seed):
    """Return equations of a few unknowns, with a parameter, and where to start."""
    random = np.random.default_rng(seed)
    n = seed % 4 + 1
    matrix, vector, start = random.normal(size=(n, n)), random.normal(size=n), 3 * random.normal(size=n)
    functions = [lambda x, p: matrix @ ops.np.sin(x) + (1 + vector ** 2) * x - p,
                 lambda x, p: ops.np.exp(0.5 * matrix @ x) + 0.1 * x ** 3 - 2.0 * p,
                 lambda x, p: x ** 3 + matrix @ x - p]
    return functions[seed % 3], start


WITHOUT_ROOT = (3, 4, 5, 7, 10, 16, 21, 28, 29, 31)


@pytest.mark.parametrize("seed", [seed for seed in range(32) if seed not in WITHOUT_ROOT])
def test_plans_find_the_roots_that_scipy_finds(seed, without_scipy):
    fun, start = random_equations(seed)
    compiled = compile(lambda x, p: root(fun, x, p).x)
    p = np.array(0.3)
    expected = root(fun, start, p).x
    without_scipy()
    np.testing.assert_allclose(compiled(start, p), expected, rtol=1e-9, atol=1e-12)


def test_roots_in_plans_take_rejected_steps_and_new_jacobians(without_scipy):
    def fun(x, a):
        return ops.np.concatenate((x[:1] - a, 10 * (x[1:] - x[:-1] ** 2)))

    start, a = np.array([-1.2, 1, 1, 1, 1]), np.array(0.9)
    expected = 0.9 ** (2.0 ** np.arange(5))
    compiled = compile(lambda a: root(fun, start, a, tol=1e-12).x)
    without_scipy()
    np.testing.assert_allclose(compiled(a), expected, rtol=1e-11)
    gradient = compile(grad(lambda a: root(fun, start, a, options={"xtol": 1e-12, "factor": 50}).x[-1]))
    np.testing.assert_allclose(gradient(a), 16 * 0.9 ** 15, rtol=1e-10)


def test_a_plan_starts_at_a_root(without_scipy):
    compiled = compile(lambda x: root(lambda x: x * x - 4.0, x).x)
    without_scipy()
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(compiled(np.array([2.0, -2.0])), [2.0, -2.0])


@pytest.mark.parametrize("call", [
    lambda x: root(lambda x: x ** 3 - 2.0, x, options={"maxfev": 2}).x,
    lambda x: root(lambda x: x ** 2 + 1.0, x).x,
    lambda x: root(lambda x: x * x + 1.0, x * 0.0).x,
    lambda x: root(*random_equations(4), 0.3).x,
    lambda x: root(*random_equations(7), 0.3).x,
    lambda x: minimize(lambda x: ((x - 3.0) ** 4).sum(), x, options={"maxiter": 1}).x,
    lambda x: minimize(lambda x: -(x * x).sum(), x).x,
    lambda x: fixed_point(lambda x: 2.0 * x + 1.0, x, method="iteration", maxiter=20),
    lambda x: grad(lambda p: minimize(lambda x: (x.sum() - p) ** 2, np.zeros(2)).x[0])(x[0]),
])
def test_plans_raise_the_errors_of_scipy(call):
    x = np.array([1.0, 0.5])
    with pytest.raises((ConvergenceError, np.linalg.LinAlgError)) as expected:
        call(x)
    with pytest.raises(expected.type) as caught:
        compile(call)(x)
    assert str(caught.value) == str(expected.value)


def random_function(seed):
    """Return a function with minima, a parameter and where to start."""
    random = np.random.default_rng(seed)
    n = seed % 4 + 1
    matrix, vector, start = random.normal(size=(n, n)), random.normal(size=n), 3 * random.normal(size=n)
    functions = [lambda x, p: ops.np.sin(matrix @ x).sum() + p * (x * x).sum(),
                 lambda x, p: ops.np.logaddexp(0.0, matrix @ x).sum() + p * ((x - vector) ** 2).sum(),
                 lambda x, p: ((matrix @ x - vector) ** 4).sum() + p * (x * x).sum(),
                 lambda x, p: (100 * (x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - p * x) ** 2).sum()]
    return functions[seed // 4 % 4], start


@pytest.mark.parametrize("seed", range(16))
def test_plans_find_the_minima_that_scipy_finds(seed, without_scipy):
    fun, start = random_function(seed)
    tol = None if (seed + seed // 4) % 2 else 1e-10     # both for each function, and for each number of variables
    p = np.array(0.3)
    solve = lambda x, p: minimize(fun, x, p, tol=tol).x     # noqa: E731
    expected, compiled = solve(start, p), compile(solve)
    slope = grad(lambda p: solve(start, p).sum())
    expected_slope, compiled_slope = slope(p), compile(slope)
    without_scipy()
    np.testing.assert_allclose(compiled(start, p), expected, rtol=1e-5 if tol is None else 1e-8, atol=1e-9)
    np.testing.assert_allclose(compiled_slope(p), expected_slope, rtol=1e-3 if tol is None else 1e-7, atol=1e-9)


@pytest.mark.parametrize("method", ["del2", "iteration"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_plans_find_the_fixed_points_of_scipy_to_the_bit(method, dtype, without_scipy):
    def solve(x, p):
        return fixed_point(lambda x: {"a": ops.np.cos(x["a"] * p), "b": 0.5 * x["b"] + x["a"][0]}, x, method=method,
                           xtol=1e-5)

    x, p = {"a": np.array([0.5, 0.0], dtype), "b": np.array(0.0, dtype)}, np.array(0.9, dtype)
    expected, compiled = solve(x, p), compile(solve)
    without_scipy()
    found = compiled(x, p)
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()}


@pytest.mark.parametrize("solver", [
    lambda p, q: root(lambda x, p: x - p * ops.np.sin(x) - q, np.ones(2), p).x,
    lambda p, q: minimize(lambda x, p: (ops.np.cosh(x - p) * q).sum(), np.zeros(2), p, tol=1e-9).x,
    lambda p, q: fixed_point(lambda x, p: ops.np.cos(p * x) + q, np.zeros(2), p),
])
def test_batches_in_plans(solver, without_scipy):
    calls = (vmap(solver, in_dims=(0, None)), vmap(vmap(solver, in_dims=(0, None)), in_dims=(None, 0)),
             grad(lambda p, q: vmap(solver, in_dims=(0, None))(p, q).sum()))
    arguments = (BATCH, np.array(0.7)), (BATCH, np.array([0.6, 0.8])), (BATCH, np.array(0.7))
    expected = [call(*given) for call, given in zip(calls, arguments, strict=True)]
    without_scipy()
    for call, given, one in zip(calls, arguments, expected, strict=True):
        np.testing.assert_allclose(compile(call)(*given), one, rtol=1e-8, atol=1e-12)
