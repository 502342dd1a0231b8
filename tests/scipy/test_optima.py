"""Minima within bounds and constraints, least squares, roots of one unknown: SciPy's values, finite differences."""

import inspect

import numpy as np
import pytest
from scipy import optimize as reference

import pydispatch
from pydispatch import Tensor
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.func import grad, jacfwd, jacrev, vmap
from pydispatch.scipy import optimize
from tests.together import together

T = np.linspace(0, 3, 7)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.sin(9 * T)
A = np.array([[1.0, 0.5], [0.3, 1.0], [0.2, 0.7]])
B = np.array([0.5, 2.0, -3.0])
TIGHT = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}


def curve(t, a, b, c):
    return a * np.exp(-b * t) + c


def bowl(x, a):
    return ((x - a) ** 2).sum() + x[0] * x[1]


def residuals(y):
    return lambda p: curve(T, *p) - y


BALANCED = [{"type": "eq", "fun": lambda x: x.sum() - 1}, {"type": "ineq", "fun": lambda x: 10 - x[0]}]
CALLS = {
    "curve_fit": (lambda o, y: o.curve_fit(curve, T, y, **TIGHT)[0], Y),
    "curve_fit covariance": (lambda o, y: o.curve_fit(curve, T, y, [2.0, 1.0, 0.4], **TIGHT)[1], Y),
    "curve_fit sigma": (lambda o, s: o.curve_fit(curve, T, Y, sigma=s, absolute_sigma=True, **TIGHT)[1],
                        0.1 + 0.01 * T),
    "curve_fit covariance of data": (
        lambda o, s: o.curve_fit(curve, T, Y, sigma=0.3 * np.eye(7) + s * s[:, None], **TIGHT)[0], 0.1 + 0.01 * T),
    "curve_fit of times": (lambda o, t: o.curve_fit(curve, t, Y, **TIGHT)[0], T),
    "curve_fit bounds": (lambda o, y: o.curve_fit(curve, T, y, bounds=([0, 0, 0.52], 9), **TIGHT)[0], Y),
    "least_squares": (lambda o, y: o.least_squares(residuals(y), [2.0, 1.0, 0.4], **TIGHT).x, Y),
    "least_squares cost": (lambda o, y: o.least_squares(residuals(y), [2.0, 1.0, 0.4], **TIGHT).cost, Y),
    "least_squares huber": (lambda o, y: o.least_squares(residuals(y), [2.0, 1.0, 0.4], loss="huber", f_scale=0.04,
                                                         **TIGHT).cost, Y),
    "least_squares bounds": (lambda o, u: o.least_squares(residuals(Y), [2.0, 1.0, 0.4],
                                                          bounds=([0.0, 0.0, 0.0], u), **TIGHT).x,
                             np.array([9.0, 1.2, 9.0])),
    "leastsq": (lambda o, y: o.leastsq(residuals(y), [2.0, 1.0, 0.4], ftol=1e-14, xtol=1e-14)[0], Y),
    "lsq_linear": (lambda o, A: o.lsq_linear(A, np.array([1.0, -2.0, 0.3]), (0, 0.2)).x, A),
    "nnls": (lambda o, b: o.nnls(A, b)[0], np.array([1.0, -2.0, 0.3])),
    "nnls norm": (lambda o, b: o.nnls(A, b)[1], np.array([1.0, -2.0, 0.3])),
    "linprog": (lambda o, b: o.linprog([-1.0, -2.0], [[1.0, 1.0], [1.0, 3.0]], b).x, np.array([4.0, 6.0])),
    "linprog marginals": (lambda o, c: o.linprog(c, [[1.0, 1.0], [1.0, 3.0]], [4.0, 6.0]).ineqlin.marginals,
                          np.array([-1.0, -2.0])),
    "linprog equations": (lambda o, A: o.linprog([-1.0, -2.0, 0.5], A, [4.0], np.ones((1, 3)), [3.0],
                                                 [(0, 2), (0, 1.5), (0, None)]).x, np.array([[1.0, 1.0, 0.2]])),
    "minimize_scalar": (lambda o, a: o.minimize_scalar(lambda x: np.exp(x) - a * x, tol=1e-12).fun, np.array(5.0)),
    **{name: (lambda o, a, name=name: getattr(o, name)(lambda x: np.exp(x) - a * x, tol=1e-10), np.array(5.0))
       for name in ("brent", "golden")},
    "fminbound": (lambda o, a: o.fminbound(lambda x: (x - a) ** 2, 0.0, 8.0), np.array(5.0)),
    "minimize_scalar bounded": (lambda o, a: o.minimize_scalar(lambda x: (x - a) ** 2, bounds=(0.0, 8.0)).x,
                                np.array(5.0)),
    "minimize bounds": (lambda o, a: o.minimize(bowl, np.zeros(3), (a,), bounds=[(0, 1), (None, 1.2), (0.3, None)]).x,
                        B),
    "minimize constraints": (lambda o, a: o.minimize(bowl, np.full(3, 0.5), (a,), constraints=BALANCED, tol=1e-12).x,
                             B),
    "minimize linear constraint": (lambda o, a: o.minimize(
        bowl, np.full(3, 0.5), (a,), tol=1e-12, constraints=reference.LinearConstraint(np.ones((1, 3)), 0.5, 1)).x, B),
    "minimize trust-constr": (lambda o, a: o.minimize(
        bowl, np.full(3, 0.5), (a,), method="trust-constr", tol=1e-12, constraints=BALANCED[0]).x, B),
    "root_scalar": (lambda o, a: o.root_scalar(lambda x: x ** 3 - a, bracket=(0.0, 4.0)).root, np.array(5.0)),
    "root_scalar newton": (lambda o, a: o.root_scalar(lambda x: x ** 3 - a, x0=2.0).root, np.array(5.0)),
    "root_scalar secant": (lambda o, a: o.root_scalar(lambda x: x ** 3 - a, x0=2.0, x1=2.5).root, np.array(5.0)),
    "newton": (lambda o, a: o.newton(lambda x: x ** 3 - a, np.array([2.0, 1.0])), np.array([5.0, 3.0])),
    "fsolve": (lambda o, a: o.fsolve(lambda x: x ** 3 - a, np.array([2.0, 1.0])), np.array([5.0, 3.0])),
    "shgo": (lambda o, a: o.shgo(bowl, [(0, 3)] * 3, (a,)).fun, B),
    "differential_evolution": (lambda o, a: o.differential_evolution(bowl, [(0, 3)] * 3, (a,), maxiter=5, tol=9.0).fun,
                               B),
    **{name: (lambda o, a, name=name: getattr(o, name)(lambda x: x ** 3 - a, 0.0, 4.0, xtol=1e-13), np.array(5.0))
       for name in ("bisect", "brenth", "brentq", "ridder", "toms748")},
    **{name: (lambda o, a, name=name: getattr(o, name)(lambda x: x + 0.2 * x ** 2 - a, np.zeros(2), f_tol=1e-11),
              np.array([0.4, 0.3]))
       for name in ("anderson", "broyden1", "broyden2", "diagbroyden", "excitingmixing", "linearmixing",
                    "newton_krylov")},
    **{name: (lambda o, a, name=name: getattr(o, name)(lambda x: ((x - a) ** 2).sum() + x[0] ** 2, np.zeros(2), disp=0),
              np.array([1.0, 2.0])) for name in ("fmin_bfgs", "fmin_cg")},
}


def differences(function, x, step=3e-5):
    columns = [(function(x + d) - function(x - d)) / (2 * step) for d in step * np.eye(x.size).reshape(-1, *x.shape)]
    return np.moveaxis(np.array(columns), 0, -1).reshape(np.shape(columns[0]) + x.shape)


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@together("name", CALLS)
def test_values_are_scipys_and_derivatives_those_of_differences(name):
    call, x = CALLS[name]
    np.testing.assert_allclose(call(optimize, x), call(reference, x), rtol=2e-6, atol=1e-7)

    def function(x):
        return call(optimize, x)

    expected = differences(function, x)
    for transform in (jacrev, jacfwd):
        np.testing.assert_allclose(transform(function)(x), expected, atol=3e-4 * max(1.0, np.abs(expected).max()))


@together("name", ["curve_fit covariance", "linprog", "minimize constraints", "least_squares cost", "newton", "brentq"])
def test_second_order_batches_and_plans(name):
    call, x = CALLS[name]

    def function(x):
        return call(optimize, x)

    expected = differences(jacrev(function), x)
    np.testing.assert_allclose(jacfwd(jacrev(function))(x), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    batch = np.stack([x, 1.01 * x])
    np.testing.assert_allclose(vmap(function)(batch), [function(each) for each in batch], rtol=1e-12)
    np.testing.assert_allclose(vmap(jacrev(function))(batch), [jacrev(function)(each) for each in batch], rtol=1e-12)
    np.testing.assert_allclose(pydispatch.compile(function)(x), function(x), rtol=1e-12)
    assert isinstance(function(Tensor(x)), Tensor)


def test_bounds_of_a_search_have_examples():
    found = vmap(lambda a, b: optimize.brentq(lambda x: x * x - a, 0.0, b))(np.array([4.0, 9.0]), np.array([3.0, 5.0]))
    np.testing.assert_allclose(found, [2.0, 3.0])


def test_complex_roots():
    def found(a):
        return optimize.newton(lambda x: x * x + a, 1.0 + 1.0j, tol=1e-14)

    np.testing.assert_allclose(found(4.0), 2j, atol=1e-12)
    np.testing.assert_allclose(grad(lambda a: found(a).imag)(np.array(4.0)), 0.25, rtol=1e-9)


def test_results_report_what_scipy_does():
    found, expected = [o.root_scalar(lambda x: x ** 3 - 5, bracket=(0.0, 4.0)) for o in (optimize, reference)]
    assert dict(found) == dict(expected)
    found, expected = [o.least_squares(residuals(Y), [2.0, 1.0, 0.4], o is optimize or "3-point")
                       for o in (optimize, reference)]
    assert (found.status, found.message, found.success) == (expected.status, expected.message, True)
    np.testing.assert_allclose(found.grad, expected.grad, atol=1e-5)
    assert optimize.minimize(bowl, np.ones(3), (B,), bounds=[(0, 1)] * 3).nit > 0
    popt, _, about, message, flag = optimize.curve_fit(curve, T, Y, full_output=True)
    assert (flag in (1, 2, 3, 4), about["fvec"].shape, bool(message), popt.shape) == (True, T.shape, True, (3,))


def test_a_function_with_its_gradient():
    found = optimize.minimize(lambda x: ((x * x).sum(), 2 * x), np.ones(2), jac=True)
    np.testing.assert_allclose(found.x, 0, atol=1e-8)
    assert optimize.root(lambda x: (x * x - 4, 2 * x), [1.0], jac=True).x.round(8) == 2


def test_multipliers_are_slopes_of_the_minimum():
    def lowest(level):
        return optimize.minimize(bowl, np.ones(3), (B,), tol=1e-12,
                                 constraints={"type": "eq", "fun": lambda x: x.sum() - level})
    slope = grad(lambda level: lowest(level).fun)(np.array(1.0))
    np.testing.assert_allclose(lowest(np.array(1.0)).multipliers, [slope], rtol=1e-6)


BAD = {
    "degenerate": (lambda: grad(lambda a: optimize.minimize(lambda x: ((x - a) ** 2).sum(), np.ones(1),
                                                            bounds=[(0, None)]).x.sum())(np.array(0.0)),
                   np.linalg.LinAlgError, "minimize: Singular matrix"),
    "many vertices": (lambda: grad(lambda b: optimize.linprog([-1.0, -1.0], [[1.0, 1.0]], b).x[0])(np.array([4.0])),
                      np.linalg.LinAlgError, "linprog: Singular matrix"),
    "infeasible": (lambda: optimize.linprog([1.0], [[1.0]], [-1.0]), ConvergenceError, "linprog: The problem is inf"),
    "not found": (lambda: optimize.curve_fit(curve, T, Y, maxfev=2), ConvergenceError, "curve_fit: Number of calls"),
    "no sign": (lambda: optimize.brentq(lambda x: x * x + 1, 0.0, 1.0), ValueError, "different signs"),
    "diverging": (lambda: optimize.newton(lambda x: x * x + 1.0, 1.0), ConvergenceError, "newton: the search ends"),
    "pytree": (lambda: optimize.minimize(lambda x: x["a"].sum(), {"a": np.ones(1), "b": np.ones(1)},
                                         bounds=[(0, 1)]), DispatchTypeError, "minimize: x0 is a pytree"),
    "integers": (lambda: optimize.linprog([1.0], integrality=[1]), NotImplementedError, "integers have no gradient"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


def test_a_covariance_that_is_not_determined_is_infinite():
    with pytest.warns(reference.OptimizeWarning, match="could not be estimated"):
        covariance = optimize.curve_fit(lambda x, a, b: a * x + b, [1.0, 2.0], [1.0, 2.0])[1]
    assert np.isinf(covariance).all()


@together("name", ["bisect", "brentq", "curve_fit", "fmin", "fsolve", "leastsq", "lsq_linear", "minimize",
                   "minimize_scalar", "newton", "root_scalar", "toms748", "shgo"])
def test_parameters_are_scipys(name):
    assert list(inspect.signature(getattr(optimize, name)).parameters) == list(
        inspect.signature(getattr(reference, name)).parameters)


def test_brackets_and_bounds_may_be_arrays():
    found = optimize.root_scalar(lambda x: x * x - 2.0, bracket=np.array([0.0, 5.0]))
    assert found.root == pytest.approx(np.sqrt(2.0))
    found = optimize.least_squares(lambda x: x - 3.0, np.ones(2), bounds=np.array([[0.0, 0.0], [2.0, 5.0]]))
    np.testing.assert_allclose(found.x, [2.0, 3.0], rtol=1e-5)
