"""Minima with bounds and constraints, least squares and roots of one unknown, as functions of parameters.

SciPy searches, with derivatives of the user's function. A constrained minimum x has multipliers m with
z = clip(z - G(z), low, high), where z = (x, m), G = (dL/dx, -dL/dm) and L = f - m c is Lagrange's function. An
unknown at a bound stays there, and the others have a slope of zero. The implicit function theorem differentiates this
equation.
"""

# tests: tests/scipy/test_optima.py
from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize
from scipy.optimize import OptimizeResult

from pydispatch._core import Jvp, Vmap, is_array
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.func import jacfwd
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import Arrays, Flat, check_function
from pydispatch.numpy.declare import as_array, known_values
from pydispatch.ops import ops
from pydispatch.scipy.implicit import Options, fitted, implicit_operator, jacobian_products, packed, raw, unpacked
from pydispatch.scipy.linalg import cholesky, solve_triangular
from pydispatch.scipy.problems import Solution, as_arguments, as_real_unknowns, as_unknowns, problem
from pydispatch.tree import tree_leaves

NP = ops.np
Search = Callable[["Given"], OptimizeResult]
UNDECIDED = 1e-7        # the distance from a bound, and the slope there, at which either side may be the minimum


def lagrangian(fun: Flat, n: int) -> Flat:
    """Return f - m c as a function of x, m and the other arguments of `fun`, whose results are f and c."""
    def function(*values: Any) -> Arrays:
        value, *others = fun(*values)
        value = NP.reshape(value, ())
        return (NP.subtract(value, NP.sum(NP.multiply(values[1], others[0]))) if n == 2 else value,)

    return function


def _distances(fun: Flat, n: int) -> Flat:
    """Return z - clip(z - G, low, high). It is constant where a bound is reached by a slope of 0."""
    of = lagrangian(fun, n)

    def residual(*values: Any) -> Arrays:
        slopes = rules.gradients_of(of, (True,) * n + (False,) * (len(values) - n), (True,), "minimize")(
            *values, NP.ones_like(values[0], shape=()))
        found = []
        for i, (z, slope) in enumerate(zip(values[:n], slopes, strict=True)):
            low, high = values[n + i], values[2 * n + i]
            slope = NP.negative(slope) if i else slope
            gap = NP.minimum(NP.subtract(z, low), NP.subtract(high, z))
            undecided = NP.logical_and(NP.less_equal(gap, UNDECIDED), NP.less_equal(NP.absolute(slope), UNDECIDED))
            distance = NP.subtract(z, NP.minimum(NP.maximum(NP.subtract(z, slope), low), high))
            found.append(NP.where(undecided, 0.0, distance))
        return tuple(found)

    return residual


class Given:
    """The start and the bounds of a search, and functions of vectors with their derivatives."""

    def __init__(self, fun: Flat, z: Arrays, args: Arrays) -> None:
        self.fun, self.like, self.args, self.n = fun, z[:1], args, len(z)
        self.others = tuple(map(np.zeros_like, z[1:]))      # multipliers, on which f and c do not depend
        self.x0, self.lower, self.upper = packed(z[:1]), raw(args[0]).ravel(), raw(args[self.n]).ravel()
        flags = (True,) + (False,) * (self.n - 1 + len(args))
        objective = lagrangian(fun, 1)
        self.last = lambda *values: fun(*values)[-1:]
        self._both = rules.with_gradients(objective, flags, (True,), "minimize")
        self._product, _ = jacobian_products(rules.gradients_of(objective, flags, (True,), "minimize"), 1, True)

    def bounds(self) -> Any:
        return optimize.Bounds(self.lower, self.upper)

    def values(self, x: Any) -> Arrays:
        return (*unpacked(np.asarray(x, float).reshape(-1), self.like), *self.others, *self.args)

    def value(self, x: Any) -> float:
        return float(raw(self.fun(*self.values(x))[0]).reshape(()))

    def vector(self, x: Any) -> Any:
        """Return the last result: the constraints or the residuals."""
        return packed(self.fun(*self.values(x))[-1:])

    def value_and_gradient(self, x: Any) -> tuple[float, Any]:
        value, slope = self._both(*self.values(x), np.ones(()))
        return float(raw(value)), packed((slope,))

    def hessian_product(self, x: Any, direction: Any) -> Any:
        one = np.ones(())
        return packed(self._product(*unpacked(direction, self.like), *self.values(x), one))

    def hessian(self, x: Any) -> Any:
        return np.stack([self.hessian_product(x, row) for row in np.eye(self.x0.size)])

    def jacobian(self, x: Any) -> Any:
        """Return the derivatives of `vector`, a row for each number of it."""
        values = self.values(x)
        flags = (True,) + (False,) * (len(values) - 1)
        pushed = rules.jvp_of(self.last, flags, Jvp("jvp"))
        size = self.x0.size
        unit = np.eye(size).reshape(size, *self.like[0].shape)
        columns = rules.batched(pushed, (False,) * len(values) + (True,), Vmap(size))(*values, unit)[1]
        return raw(columns).reshape(size, -1).T

    def multipliers(self, x: Any) -> Any:
        """Return multipliers for which the slope of Lagrange's function is 0, those of inactive constraints 0."""
        slope, c, rows = self.value_and_gradient(x)[1], self.vector(x), self.jacobian(x)
        weight = np.minimum(1, np.minimum(x - self.lower, self.upper - x))      # 0 at a bound
        one_sided = np.diag(np.where(np.isfinite(raw(self.args[1])), c, 0))
        return np.linalg.lstsq(np.vstack([weight[:, None] * rows.T, one_sided]),
                               np.concatenate([weight * slope, 0 * c]), rcond=None)[0]


def _find_optimum(fun: Flat, z: Arrays, args: Arrays, options: Options) -> Arrays:
    given = Given(fun, z, args)
    found = options["search"](given)
    if not found.success:
        raise ConvergenceError(" ".join(str(found.message).split()))
    options["report"].update(found)
    x = np.atleast_1d(np.asarray(found.x, float))
    return (*unpacked(x, z[:1]), given.multipliers(x)) if len(z) == 2 else unpacked(x, z)


def no_loops(*_: Any) -> Any:
    """Raise NotImplementedError: plans call the operator."""
    raise NotImplementedError


OPTIMA = {name: implicit_operator(name, _distances, _find_optimum, no_loops) for name in (
    "minimize_within", "minimize_scalar", "least_squares", "linprog")}
REPORTED = ("nit", "nfev", "njev", "nhev", "status", "message", "active_mask", "unbounded_sol")


def optimum(
    operator: str, who: str, body: Callable[..., Any], x0: Any, args: Any, search: Search, bounds: Any = None,
    n_equal: int = 0, n_more: int = 0,
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the minimum, its multipliers, and what SciPy reports about the search.

    `body(x, *args)` returns f and c, of which the first `n_equal` are 0 and the others, `n_more`, at least 0.
    """
    n = n_equal + n_more
    bounds = (-np.inf, np.inf) if bounds is None else bounds
    low, high = [NP.broadcast_to(as_array(each), x0.shape) for each in bounds]
    z: tuple[Any, ...] = (x0,)
    lows: tuple[Any, ...] = (low,)
    highs: tuple[Any, ...] = (high,)
    if n:
        z, highs = (x0, np.zeros(n)), (high, np.full(n, np.inf))
        lows = (low, np.concatenate([np.full(n_equal, -np.inf), np.zeros(n_more)]))
    found = problem(who, "fun", lambda z, lows, highs, *args: body(z[0], *args), z,
                    (lows, highs, *as_arguments(args)))
    report: dict[str, Any] = {}
    solution = found.solve(OPTIMA[operator], {"who": who, "search": search, "report": report})
    return solution[0], solution[1] if n else None, {key: report[key] for key in REPORTED if key in report}


def bounds_of(bounds: Any) -> Any:
    """Return lower and upper bounds, from SciPy's `Bounds` or from a pair for each unknown."""
    if bounds is None or isinstance(bounds, optimize.Bounds):
        return bounds and (bounds.lb, bounds.ub)
    pairs = list(zip(*bounds, strict=True))
    return [as_array([end if each is None else each for each in side])
            for side, end in zip(pairs, (-np.inf, np.inf), strict=True)]


def stacked_constraints(constraints: Any, x0: Any) -> tuple[Callable[..., Any], int, int]:
    """Return one function for all constraints, and how many of its results are 0 and at least 0."""
    equal: list[Callable[..., Any]] = []
    more: list[Callable[..., Any]] = []
    for each in constraints if isinstance(constraints, (list, tuple)) else [constraints]:
        if isinstance(each, dict):
            fun, args = each["fun"], each.get("args", ())
            (equal if each["type"] == "eq" else more).append(lambda x, fun=fun, args=args: fun(x, *args))
            continue
        fun = each.fun if isinstance(each, optimize.NonlinearConstraint) else (
            lambda x, matrix=each.A: NP.matmul(matrix, x))
        n = np.size(as_vector(fun(x0)))
        low, high = [np.broadcast_to(end, n) for end in (each.lb, each.ub)]
        for group, chosen, end, sign in (
                (equal, low == high, low, 1.0), (more, (low != high) & (low > -np.inf), low, 1.0),
                (more, (low != high) & (high < np.inf), high, -1.0)):
            if chosen.any():
                group.append(partial(distances_from, fun, np.flatnonzero(chosen), end[chosen], sign))
    n_equal, n_more = [sum(np.size(as_vector(fun(x0))) for fun in group) for group in (equal, more)]
    return lambda x: NP.concatenate([as_vector(fun(x)) for fun in (*equal, *more)]), n_equal, n_more


def distances_from(fun: Callable[..., Any], rows: Any, end: Any, sign: float, x: Any) -> Any:
    """Return how far some of the results of a function are from an end."""
    return NP.multiply(sign, NP.subtract(NP.take(as_vector(fun(x)), rows, 0), end))


def as_vector(value: Any) -> Any:
    return NP.reshape(NP.astype(np.asarray(value) if isinstance(value, (int, float, list)) else value, float), (-1,))


def constrained(
    fun: Callable[..., Any], x0: Any, args: Any, method: Any, bounds: Any, constraints: Any, derivatives: Any,
    others: dict[str, Any],
) -> OptimizeResult:
    """Minimize within bounds and constraints. `derivatives` are the methods that take gradients, and more."""
    if len(tree_leaves(x0)) != 1:
        raise DispatchTypeError("minimize: x0 is a pytree, expected an array, with bounds or constraints\n"
                                "pass an array")
    is_bound = not constraints and not isinstance(constraints, (optimize.LinearConstraint,
                                                                optimize.NonlinearConstraint))
    c, n_equal, n_more = (None, 0, 0) if is_bound else stacked_constraints(constraints, x0)
    kind = ("slsqp" if c else "l-bfgs-b") if method is None else method.lower()
    of_gradients, of_products = derivatives

    def body(x: Any, *args: Any) -> Any:
        return (fun(x, *args), c(x)) if c else (fun(x, *args),)

    def search(given: Given) -> OptimizeResult:
        rules = [{"type": name, "fun": lambda x, part=part: given.vector(x)[part],
                  "jac": lambda x, part=part: given.jacobian(x)[part]}
                 for name, part, n in (("eq", slice(n_equal), n_equal), ("ineq", slice(n_equal, None), n_more)) if n]
        return optimize.minimize(
            given.value_and_gradient if kind in of_gradients else given.value, given.x0, method=method or kind,
            jac=True if kind in of_gradients else None, hessp=given.hessian_product if kind in of_products else None,
            bounds=None if bounds is None else given.bounds(), constraints=rules, **others)

    x, multipliers, report = optimum(
        "minimize_within", "minimize", body, x0, args, search, bounds_of(bounds), n_equal, n_more)
    return Solution(x, {"fun": lambda: fun(x, *as_arguments(args))}, **report,
                    **{} if multipliers is None else {"multipliers": multipliers})


# --- least squares ---------------------------------------------------------------------------------------------------


LOSSES: dict[str, Callable[[Any], Any]] = {
    "soft_l1": lambda z: NP.multiply(2.0, NP.subtract(NP.sqrt(NP.add(1.0, z)), 1.0)),
    "huber": lambda z: NP.where(NP.less_equal(z, 1), z, NP.subtract(NP.multiply(2.0, NP.sqrt(NP.where(
        NP.less_equal(z, 1), 1.0, z))), 1.0)),
    "cauchy": lambda z: NP.log1p(z), "arctan": lambda z: NP.arctan(z)}


def squares(
    who: str, fun: Callable[..., Any], x0: Any, args: Any, search: Search, bounds: Any = None, loss: Any = "linear",
    f_scale: float = 1.0,
) -> OptimizeResult:
    """Minimize half the sum of squares of `fun(x, *args)`, or of a loss of them."""
    def cost(r: Any) -> Any:
        z = NP.square(NP.divide(r, f_scale))
        if loss != "linear":
            z = loss(z)[0] if callable(loss) else LOSSES[loss](z)
        return NP.multiply(0.5 * f_scale ** 2, NP.sum(z))

    def body(x: Any, *args: Any) -> Any:
        r = as_vector(fun(x, *args))
        return cost(r), r

    x, _, report = optimum("least_squares", who, body, x0, args, search, bounds)

    def residuals(x: Any) -> Any:
        return as_vector(fun(x, *as_arguments(args)))

    def gradient() -> Any:
        return NP.matmul(residuals(x), jacfwd(residuals)(x))

    later = {"fun": lambda: residuals(x), "cost": lambda: cost(residuals(x)), "jac": lambda: jacfwd(residuals)(x)}
    return Solution(x, {**later, "grad": gradient} if loss == "linear" else later, **report)


def least_squares(
    fun: Any, x0: Any, jac: Any = "2-point", bounds: Any = (-np.inf, np.inf), method: str = "trf", ftol: Any = 1e-8,
    xtol: Any = 1e-8, gtol: Any = 1e-8, x_scale: Any = None, loss: Any = "linear", f_scale: float = 1.0,
    diff_step: Any = None, tr_solver: Any = None, tr_options: Any = None, jac_sparsity: Any = None,
    max_nfev: Any = None, verbose: int = 0, args: Any = (), kwargs: Any = None,
) -> OptimizeResult:
    """Minimize a sum of squares, or of a loss of them, by `scipy.optimize.least_squares`.

    The Jacobian is that of `fun`, so `jac`, `diff_step` and `jac_sparsity` are not used. The result has `x`, and
    `fun`, `cost`, `jac` and `grad`, which are computed when they are read. All have gradients with respect to `args`,
    `bounds` and arrays that `fun` captures.

    Parameters
    ----------
    fun, x0, jac, bounds, method, ftol, xtol, gtol, x_scale, loss, f_scale, args, kwargs
        As in SciPy.
    diff_step, tr_solver, tr_options, jac_sparsity, max_nfev, verbose
        As in SciPy.

    Returns
    -------
    OptimizeResult
        The result.

    Raises
    ------
    ConvergenceError
        If the search fails. The message comes from SciPy.

    Examples
    --------
    >>> least_squares(lambda x: x - [1.0, 3.0], [0.5, 0.5]).x
    array([1., 3.])
    """
    check_function("least_squares: fun", fun, "least_squares(lambda x: x - 2.0, x0)")
    bounds = (bounds.lb, bounds.ub) if isinstance(bounds, optimize.Bounds) else bounds
    scale = {} if x_scale is None else {"x_scale": x_scale}

    def search(given: Given) -> OptimizeResult:
        return optimize.least_squares(
            given.vector, given.x0, given.jacobian, (given.lower, given.upper), method, ftol, xtol, gtol, loss=loss,
            f_scale=f_scale, tr_solver=tr_solver, tr_options=tr_options or {}, max_nfev=max_nfev, verbose=verbose,
            **scale)

    return squares("least_squares", lambda x, *args: fun(x, *args, **kwargs or {}), as_unknown("least_squares", x0),
                   args, search, bounds, loss, f_scale)


def as_unknown(who: str, x0: Any) -> Any:
    """Return a start as an array of one axis at least."""
    x0 = as_real_unknowns(who, as_array(x0))
    return x0 if x0.ndim else NP.reshape(x0, (1,))


def by_leastsq(**settings: Any) -> Search:
    """Return a search by MINPACK's `lmder`, which SciPy's `leastsq` and `curve_fit` call."""
    def search(given: Given) -> OptimizeResult:
        x, _, about, message, status = optimize.leastsq(
            given.vector, given.x0, Dfun=given.jacobian, full_output=True, **settings)
        return OptimizeResult(x=x, nfev=about["nfev"], njev=about["njev"], message=message, status=status,
                              success=status in (1, 2, 3, 4))
    return search


def leastsq(
    func: Any, x0: Any, args: Any = (), Dfun: Any = None, full_output: bool = False, col_deriv: bool = False,
    ftol: float = 1.49012e-8, xtol: float = 1.49012e-8, gtol: float = 0.0, maxfev: int = 0, epsfcn: Any = None,
    factor: float = 100, diag: Any = None,
) -> Any:
    """Minimize a sum of squares by `scipy.optimize.leastsq`, with the Jacobian of `func`.

    Returns
    -------
    tuple
        The minimum and SciPy's flag. With `full_output`, as in SciPy, also the inverse of the Hessian, of which
        second derivatives are left out, and a dict with `fvec` and `nfev`.

    Examples
    --------
    >>> leastsq(lambda x: x - 2.0, [0.5])[0]
    array([2.])
    """
    search = by_leastsq(ftol=ftol, xtol=xtol, gtol=gtol, maxfev=maxfev, factor=factor, diag=diag)
    found = squares("leastsq", func, as_unknown("leastsq", x0), args, search)
    status = found.get("status", 1)
    if not full_output:
        return found.x, status
    return (found.x, inverse_of_squares(found.jac), {"fvec": found.fun, "nfev": found.get("nfev")},
            found.get("message"), status)


def inverse_of_squares(jacobian: Any) -> Any:
    """Return the inverse of J^T J, or None if it is known to be singular."""
    known = known_values(jacobian)
    if known is not None and np.linalg.matrix_rank(known) < known.shape[1]:
        return None
    return NP.linalg_inv(NP.matmul(NP.swapaxes(jacobian, 0, 1), jacobian))


def curve_fit(
    f: Any, xdata: Any, ydata: Any, p0: Any = None, sigma: Any = None, absolute_sigma: bool = False,
    check_finite: Any = None, bounds: Any = (-np.inf, np.inf), method: Any = None, jac: Any = None, *,
    full_output: bool = False, nan_policy: Any = None, **kwargs: Any,
) -> Any:
    """Fit a function to data by `scipy.optimize.curve_fit`, with its own Jacobian.

    Parameters and covariance have gradients with respect to `xdata`, `ydata`, `sigma`, and arrays that `f` captures.

    Parameters
    ----------
    f, xdata, ydata, p0, sigma, absolute_sigma, bounds, method, full_output
        As in SciPy.
    check_finite, jac, nan_policy, **kwargs
        As in SciPy, but `jac` is not used, and `nan_policy` may only be None or "raise".

    Returns
    -------
    tuple
        The parameters and their covariance. With `full_output` also a dict, a message and a flag.

    Raises
    ------
    ConvergenceError
        If the search fails. The message comes from SciPy.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> curve_fit(lambda x, a, b: a * x + b, x, 2 * x + 1)[0].round(6)
    array([2., 1.])
    """
    if nan_policy not in (None, "raise"):
        raise NotImplementedError("curve_fit: nan_policy='omit' is not supported\nleave out the missing values")
    low, high = (bounds.lb, bounds.ub) if isinstance(bounds, optimize.Bounds) else bounds
    ends: list[Any] = [known_values(as_array(end)) if np.ndim(end) else end for end in (low, high)]
    if p0 is None:
        names = optimize._minpack_py._getfullargspec(f).args
        if len(names) < 2:
            raise ValueError("Unable to determine number of fit parameters.")
        n = len(names) - 1
        p0 = optimize._minpack_py._initialize_feasible(*[np.broadcast_to(end, n) for end in ends])
    p0 = as_unknown("curve_fit", np.atleast_1d(p0) if isinstance(p0, (int, float)) else p0)
    is_bounded = any(end is None or np.isfinite(end).any() for end in ends)
    method = method or ("trf" if is_bounded else "lm")
    ydata = as_array(ydata)
    xdata = as_array(xdata) if isinstance(xdata, (list, tuple)) else xdata
    if check_finite is not False:
        for data in (xdata, ydata):
            known = known_values(data) if is_array(data) else None
            if known is not None and not np.isfinite(known).all():
                raise ValueError("array must not contain infs or NaNs")
    if not np.size(ydata):
        raise ValueError("`ydata` must not be empty!")
    sigma = None if sigma is None else as_array(sigma)
    factor = cholesky(sigma, lower=True) if sigma is not None and sigma.ndim == 2 else None

    def residuals(p: Any) -> Any:
        r = NP.subtract(f(xdata, *[p[i] for i in range(p.shape[0])]), ydata)
        return r if sigma is None else (
            NP.divide(r, sigma) if factor is None else solve_triangular(factor, r, lower=True))

    if method == "lm":
        search = by_leastsq(**kwargs)
    else:
        settings = {"max_nfev" if key == "maxfev" else key: value for key, value in kwargs.items()}

        def search(given: Given) -> OptimizeResult:
            return optimize.least_squares(given.vector, given.x0, given.jacobian, (given.lower, given.upper), method,
                                          **settings)

    found = squares("curve_fit", residuals, p0, (), search, (low, high), kwargs.get("loss", "linear"),
                    kwargs.get("f_scale", 1.0))
    p = found.x
    n_data, n_unknown = found.fun.shape[0], p.shape[0]
    covariance = inverse_of_squares(found.jac)
    if covariance is not None and not absolute_sigma:
        covariance = None if n_data <= n_unknown else NP.multiply(
            covariance, NP.divide(NP.multiply(2.0, found.cost), float(n_data - n_unknown)))
    if covariance is None:
        covariance = NP.add(NP.multiply(NP.expand_dims(p, 0), np.zeros((n_unknown, 1))), np.inf)
        warnings.warn("Covariance of the parameters could not be estimated", category=optimize.OptimizeWarning,
                      stacklevel=2)
    about = {"nfev": found.get("nfev"), "fvec": found.fun}
    return (p, covariance, about, found.get("message"), found.get("status")) if full_output else (p, covariance)


def lsq_linear(
    A: Any, b: Any, bounds: Any = (-np.inf, np.inf), method: str = "trf", tol: float = 1e-10, lsq_solver: Any = None,
    lsmr_tol: Any = None, max_iter: Any = None, verbose: int = 0, *, lsmr_maxiter: Any = None,
) -> OptimizeResult:
    """Minimize the squares of `A x - b` within bounds by `scipy.optimize.lsq_linear`.

    Returns
    -------
    OptimizeResult
        The result, with gradients of `x`, `fun` and `cost` by `A`, `b` and `bounds`.

    Examples
    --------
    >>> lsq_linear([[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0], (0.0, 1.5)).x.round(6)
    array([1. , 1.5])
    """
    def search(given: Given) -> OptimizeResult:
        return optimize.lsq_linear(*linear(given), (given.lower, given.upper), method, tol, lsq_solver, lsmr_tol,
                                   max_iter, verbose, lsmr_maxiter=lsmr_maxiter)

    bounds = (bounds.lb, bounds.ub) if isinstance(bounds, optimize.Bounds) else bounds
    return linear_squares("lsq_linear", A, b, search, bounds)


def linear_squares(who: str, A: Any, b: Any, search: Search, bounds: Any) -> OptimizeResult:
    A, b = as_array(A), as_array(b)
    return squares(who, lambda x, A, b: NP.subtract(NP.matmul(A, x), b), np.zeros(A.shape[1]), (A, b), search, bounds)


def linear(given: Given) -> tuple[Any, Any]:
    """Return A and b of the linear function A x - b that a search is given."""
    zero = np.zeros(given.x0.size)
    return given.jacobian(zero), -given.vector(zero)


def nnls(A: Any, b: Any, *, maxiter: Any = None) -> tuple[Any, Any]:
    """Minimize the norm of `A x - b` over x that is not negative, by `scipy.optimize.nnls`.

    Returns
    -------
    tuple
        x and the norm, with gradients by `A` and `b`.

    Examples
    --------
    >>> nnls([[1.0, 0.0], [0.0, 1.0]], [1.0, -2.0])[0]
    array([1., 0.])
    """
    def search(given: Given) -> OptimizeResult:
        return OptimizeResult(x=optimize.nnls(*linear(given), maxiter=maxiter)[0], success=True)

    found = linear_squares("nnls", A, b, search, (0.0, np.inf))
    return found.x, NP.sqrt(NP.multiply(2.0, found.cost))


# --- linear programs -------------------------------------------------------------------------------------------------


def linprog(
    c: Any, A_ub: Any = None, b_ub: Any = None, A_eq: Any = None, b_eq: Any = None, bounds: Any = (0, None),
    method: str = "highs", callback: Any = None, options: Any = None, x0: Any = None, integrality: Any = None,
) -> OptimizeResult:
    """Minimize `c x` where `A_ub x <= b_ub`, `A_eq x == b_eq`, by `scipy.optimize.linprog`.

    `x`, `fun`, `slack`, `con` and the marginals of `eqlin` and `ineqlin` have gradients by all arrays. The solution has
    to be a vertex with as many active constraints as unknowns, or the gradient raises an error.

    Returns
    -------
    OptimizeResult
        The result.

    Raises
    ------
    ConvergenceError
        If the problem is infeasible or unbounded. The message comes from SciPy.

    Examples
    --------
    >>> linprog([-1.0, -2.0], [[1.0, 1.0]], [4.0]).x
    array([0., 4.])
    """
    if integrality is not None and np.any(integrality):
        raise NotImplementedError("linprog: integrality is not supported: integers have no gradient\n"
                                  "call scipy.optimize.linprog")
    c = as_array(c)
    rows = [None if each is None else as_array(each) for each in (A_eq, b_eq, A_ub, b_ub)]
    n_equal, n_more = [0 if each is None else each.shape[0] for each in (rows[1], rows[3])]
    n = c.shape[0]
    bounds = [(0, None)] * n if bounds is None else bounds
    bounds = [bounds] * n if np.ndim(bounds[0]) == 0 else list(bounds) * (n if len(bounds) == 1 else 1)

    def constraints(x: Any, equal: Any, b_eq: Any, less: Any, b_ub: Any) -> list[Any]:
        return [*([NP.subtract(NP.matmul(equal, x), b_eq)] if n_equal else []),
                *([NP.subtract(b_ub, NP.matmul(less, x))] if n_more else [])]

    def body(x: Any, c: Any, *rows: Any) -> Any:
        cost, parts = NP.sum(NP.multiply(c, x)), constraints(x, *rows)
        return (cost, NP.concatenate(parts)) if parts else (cost,)

    def search(given: Given) -> OptimizeResult:
        cost, limits = given.value_and_gradient(given.x0)[1], np.stack([given.lower, given.upper], 1)
        if not n_equal + n_more:
            return optimize.linprog(cost, bounds=limits, method=method, options=options)
        matrix, ends = linear(given)
        return optimize.linprog(
            cost, -matrix[n_equal:] if n_more else None, -ends[n_equal:] if n_more else None,
            matrix[:n_equal] if n_equal else None, ends[:n_equal] if n_equal else None,
            limits, method, options=options)

    x, multipliers, report = optimum(
        "linprog", "linprog", body, np.zeros(n), (c, *rows), search, bounds_of(bounds), n_equal, n_more)
    values: Any = () if multipliers is None else constraints(x, *rows)
    found = Solution(x, {"fun": lambda: NP.sum(NP.multiply(c, x))}, **report)
    if n_equal:
        found.update(con=NP.negative(values[0]), eqlin=OptimizeResult(
            residual=NP.negative(values[0]), marginals=NP.getitem(multipliers, slice(n_equal))))
    if n_more:
        found.update(slack=values[-1], ineqlin=OptimizeResult(
            residual=values[-1], marginals=NP.negative(NP.getitem(multipliers, slice(n_equal, None)))))
    return found


# --- one unknown -----------------------------------------------------------------------------------------------------


def minimize_scalar(
    fun: Any, bracket: Any = None, bounds: Any = None, args: Any = (), method: Any = None, tol: Any = None,
    options: Any = None,
) -> OptimizeResult:
    """Find a local minimum of a function of one number by `scipy.optimize.minimize_scalar`.

    Returns
    -------
    OptimizeResult
        The result, with gradients of `x` and `fun` by `args`, `bounds` and arrays that `fun` captures.

    Raises
    ------
    ConvergenceError
        If the search fails. The message comes from SciPy.

    Examples
    --------
    >>> minimize_scalar(lambda x: (x - 2.0) ** 2).x.round(6)
    np.float64(2.0)
    """
    check_function("minimize_scalar: fun", fun, "minimize_scalar(lambda x: x * x)")
    is_bounded = bounds is not None

    def search(given: Given) -> OptimizeResult:
        given_bounds = {"bounds": (given.lower[0], given.upper[0])} if is_bounded else {}
        return optimize.minimize_scalar(given.value, bracket, method=method, tol=tol, options=options, **given_bounds)

    x, _, report = optimum("minimize_scalar", "minimize_scalar", lambda x, *args: (fun(x, *args),), np.zeros(()), args,
                           search, bounds)
    return Solution(x, {"fun": lambda: fun(x, *as_arguments(args))}, **report)


def brent(
    func: Any, args: Any = (), brack: Any = None, tol: float = 1.48e-8, full_output: bool = False, maxiter: int = 500,
) -> Any:
    """Find a minimum like `minimize_scalar` by Brent's method, and return x."""
    return by_method("brent", func, args, {"xtol": tol, "maxiter": maxiter}, full_output, bracket=brack)


def golden(
    func: Any, args: Any = (), brack: Any = None, tol: float = 1.4901161193847656e-08, full_output: bool = False,
    maxiter: int = 5000,
) -> Any:
    """Find a minimum like `minimize_scalar` by golden sections, and return x."""
    return by_method("golden", func, args, {"xtol": tol, "maxiter": maxiter}, full_output, bracket=brack)


def fminbound(
    func: Any, x1: Any, x2: Any, args: Any = (), xtol: float = 1e-5, maxfun: int = 500, full_output: bool = False,
    disp: int = 1,
) -> Any:
    """Find a minimum between bounds like `minimize_scalar`, and return x."""
    return by_method("bounded", func, args, {"xatol": xtol, "maxiter": maxfun}, full_output, bounds=(x1, x2))


def by_method(method: str, func: Any, args: Any, options: Any, full_output: bool, **where: Any) -> Any:
    found = minimize_scalar(func, args=args, method=method, options=options, **where)
    last = 0 if method == "bounded" else found.get("nit")
    return (found.x, found.fun, last, found.get("nfev")) if full_output else found.x


def _equations(fun: Flat, n: int) -> Flat:
    return lambda *values: fitted("root_scalar: f", fun(*values), values[:n])


def _find_scalar_root(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> Arrays:
    function = _equations(fun, 1)
    slopes, _ = jacobian_products(function, 1, True)        # each equation has its own unknown
    like, n_starts = x0, options["n_starts"]

    def value_at(x: Any) -> Any:
        return given_back(raw(function(np.asarray(x, like[0].dtype).reshape(like[0].shape), *args)[0]))

    def slope_at(x: Any) -> Any:
        x = np.asarray(x, like[0].dtype).reshape(like[0].shape)
        return given_back(raw(slopes(np.ones_like(x), x, *args)[0]))

    found, is_found, report = options["search"](value_at, slope_at, given_back(raw(x0[0])),
                                                [given_back(raw(each)) for each in args[:n_starts]])
    if not is_found:
        raise ConvergenceError(f"the search ends without a root: {report.get('flag', '')}".rstrip(": "))
    options["report"].update(report)
    return (np.asarray(found, like[0].dtype).reshape(like[0].shape),)


def given_back(x: Any) -> Any:
    """Return an array without axes as a number, as SciPy's searches expect."""
    return x if x.ndim else x.item()


SCALAR_ROOT = implicit_operator("root_scalar", _equations, _find_scalar_root, no_loops)


def scalar_root(who: str, f: Any, x0: Any, starts: Sequence[Any], args: Any, search: Any) -> tuple[Any, dict[str, Any]]:
    """Return a root and SciPy's report. The search gets f, its derivative, the start and the other starts."""
    check_function(f"{who}: f", f, f"{who}(lambda x: x * x - 2.0, 0.0, 2.0)")
    starts = tuple([as_unknowns(who, "a start", each) for each in starts])
    report: dict[str, Any] = {}
    x0 = as_unknowns(who, "x0", x0)
    if is_array(x0) and not x0.ndim:        # SciPy's searches for one number compute in double precision
        x0 = NP.astype(x0, np.result_type(x0.dtype, np.float64), copy=False)
    found = problem(who, "f", lambda x, *values: f(x, *values[len(starts):]), x0, (*starts, *as_arguments(args)))
    return found.solve(SCALAR_ROOT, {"who": who, "search": search, "report": report, "n_starts": len(starts)}), report


def as_results(x: Any, report: dict[str, Any]) -> Any:
    """Return SciPy's `RootResults`. Where each example of a batch had its own search, counts are None."""
    found = optimize.RootResults(x, report.get("iterations"), report.get("function_calls"), 0, report.get("method"))
    found.converged, found.flag = True, "converged"
    return found


def root_scalar(
    f: Any, args: Any = (), method: Any = None, bracket: Any = None, fprime: Any = None, fprime2: Any = None,
    x0: Any = None, x1: Any = None, xtol: Any = None, rtol: Any = None, maxiter: Any = None, options: Any = None,
) -> Any:
    """Find a root of a function of one number by `scipy.optimize.root_scalar`.

    Methods that use a derivative get that of `f`.

    Returns
    -------
    RootResults
        The result. `root` has gradients by `args` and arrays that `f` captures.

    Raises
    ------
    ConvergenceError
        If the search does not converge.

    Examples
    --------
    >>> root_scalar(lambda x, a: x * x - a, (4.0,), bracket=(0.0, 5.0)).root.round(6)
    np.float64(2.0)
    """
    others = {"method": method, "xtol": xtol, "rtol": rtol, "maxiter": maxiter, "options": options}
    starts = [each for each in (*(() if bracket is None else bracket), x1) if each is not None]

    def search(value_at: Any, slope_at: Any, start: float, starts: list[float]) -> Any:
        given: dict[str, Any] = {}
        if bracket is not None:
            given["bracket"] = starts[:2]
        if x1 is not None:
            given["x1"] = starts[-1]
        if x0 is not None:
            given["x0"] = start
            if method == "newton" or (method is None and bracket is None and x1 is None):
                given["fprime"] = slope_at
            elif fprime is not None or fprime2 is not None:
                given.update(fprime=fprime, fprime2=fprime2)
        found = optimize.root_scalar(value_at, **given, **others)
        return found.root, found.converged, vars(found) if hasattr(found, "__dict__") and vars(found) else dict(found)

    x, report = scalar_root("root_scalar", f, 0.0 if x0 is None else x0, starts, args, search)
    return as_results(x, report)


def bracketing(name: str, original: Any, signature: inspect.Signature) -> Callable[..., Any]:
    def function(f: Any, a: Any, b: Any, *more: Any, **kwargs: Any) -> Any:
        settings = dict(list(signature.bind(f, a, b, *more, **kwargs).arguments.items())[3:])
        args, wants_all, _ = settings.pop("args", ()), settings.pop("full_output", False), settings.pop("disp", True)

        def search(value_at: Any, slope_at: Any, start: float, starts: list[float]) -> Any:
            x, about = original(value_at, *starts, full_output=True, disp=False, **settings)
            return x, about.converged, dict(about)

        x, report = scalar_root(name, f, 0.0, (a, b), args, search)
        return (x, as_results(x, report)) if wants_all else x
    return function


def newton(
    func: Any, x0: Any, fprime: Any = None, args: Any = (), tol: float = 1.48e-8, maxiter: int = 50,
    fprime2: Any = None, x1: Any = None, rtol: float = 0.0, full_output: bool = False, disp: bool = True,
) -> Any:
    """Find roots by `scipy.optimize.newton`, one for each element of `x0`.

    With `fprime`, whose values are not used, it is Newton's method with the derivative of `func`, else the secant
    method.

    Returns
    -------
    Array or tuple
        The roots, with gradients by `args` and arrays that `func` captures, and with `full_output` SciPy's report.

    Raises
    ------
    ConvergenceError
        If the search does not converge.

    Examples
    --------
    >>> newton(lambda x: x * x - 2.0, 1.0).round(6)
    np.float64(1.414214)
    """
    def search(value_at: Any, slope_at: Any, start: Any, starts: list[Any]) -> Any:
        x, *about = optimize.newton(value_at, start, slope_at if fprime is not None else None, (), tol, maxiter,
                                    None, starts[0] if x1 is not None else None, rtol, True, False)
        return x, np.all(about[0].converged if np.ndim(x) == 0 else about[0]), dict(about[0]) if np.ndim(x) == 0 else {}

    x, report = scalar_root("newton", func, x0, () if x1 is None else (x1,), args, search)
    return (x, as_results(x, report)) if full_output else x


# --- many functions of one kind --------------------------------------------------------------------------------------


def by_name(name: str, make: Callable[[str, Any, inspect.Signature], Callable[..., Any]], what: str) -> Any:
    """Return a function with the name and the parameters of one of SciPy's."""
    original = getattr(optimize, name)
    function = make(name, original, inspect.signature(original))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what} by `scipy.optimize.{name}`, with gradients of what the function captures."
    function.__signature__ = inspect.signature(original)    # type: ignore[attr-defined]
    return function


def rooting(name: str, original: Any, signature: inspect.Signature) -> Callable[..., Any]:
    def function(F: Any, xin: Any, *args: Any, **kwargs: Any) -> Any:
        settings = dict(list(signature.bind(F, xin, *args, **kwargs).arguments.items())[2:])
        settings.update(settings.pop("kw", {}))

        def search(value_at: Any, slope_at: Any, start: Any, starts: list[Any]) -> Any:
            return original(value_at, start, **settings), True, {}

        return scalar_root(name, F, xin, (), (), search)[0]
    return function


def searching(name: str, original: Any, signature: inspect.Signature) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        settings = dict(signature.bind(*args, **kwargs).arguments)
        fun, more, x0 = settings.pop("func", None) or settings.pop("f"), settings.pop("args", ()), settings.get("x0")
        if settings.pop("full_output", False):
            raise NotImplementedError(f"{name}: full_output is not supported\ncall minimize, whose result has more")
        check_function(f"{name}: func", fun, f"{name}(lambda x: (x * x).sum(), ...)")
        bounds = bounds_of(settings.get("bounds"))
        flag = FLAGS.get(name)
        start = np.zeros(bounds[0].shape) if x0 is None else as_unknown(name, x0)
        for unused in ("fprime", "fhess_p", "fhess"):
            settings.pop(unused, None)

        def search(given: Given) -> OptimizeResult:
            known = {"x0": given.x0, "bounds": given.bounds(), "fprime": lambda x: given.value_and_gradient(x)[1],
                     "fhess_p": given.hessian_product}
            chosen = {key: known[key] for key in known if key in settings or (
                key.startswith("f") and key in signature.parameters)}
            if flag is None:
                return original(given.value, **settings | chosen)
            found = original(given.value, **settings | chosen, full_output=True)
            return OptimizeResult(x=found[0], success=found[flag] == 0, message=f"flag {found[flag]}")

        x, _, report = optimum("minimize_within", name, lambda x, *args: (fun(x, *args),), start, more, search, bounds)
        return x if flag is not None else Solution(x, {"fun": lambda: fun(x, *as_arguments(more))}, **report)
    return function


FLAGS = {"fmin": 4, "fmin_bfgs": 6, "fmin_cg": 4, "fmin_ncg": 5, "fmin_powell": 5}
"""Functions that return a tuple, with the place of the flag that is 0 if the search succeeds."""


def all_by_name() -> dict[str, Callable[..., Any]]:
    """Return the functions that this module does not write out."""
    names = {
        "Find a root between two numbers": (bracketing, "bisect brenth brentq ridder toms748"),
        "Find a root": (rooting, "anderson broyden1 broyden2 diagbroyden excitingmixing linearmixing newton_krylov"),
        "Find a minimum": (searching, """basinhopping differential_evolution dual_annealing fmin fmin_bfgs fmin_cg
                                         fmin_ncg fmin_powell shgo""")}
    return {name: by_name(name, make, what) for what, (make, of) in names.items() for name in of.split()}
