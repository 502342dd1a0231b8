"""`scipy.optimize` for functions: roots, minimizers and fixed points as differentiable functions of parameters.

SciPy computes the primal solutions, with exact derivatives of the user's function. The gradients are those of
the implicit function theorem (`implicit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize
from scipy.optimize import OptimizeResult

from pydispatch._loading import only_public
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import Arrays, Flat, Nesting, check_function, show
from pydispatch.higher_order.while_loop import WHILE
from pydispatch.ops import ops
from pydispatch.scipy import hybrid, quasi_newton
from pydispatch.scipy.borrowed import borrow, make_constant, publish
from pydispatch.scipy.implicit import (
    DENSE_SIZE,
    LINEAR_SOLVE,
    Options,
    check_count,
    fitted,
    implicit_operator,
    jacobian_products,
    joined,
    matrix_of,
    packed,
    unpacked,
)
from pydispatch.scipy.optima import (
    all_by_name,
    brent,
    constrained,
    curve_fit,
    fminbound,
    golden,
    least_squares,
    leastsq,
    linprog,
    lsq_linear,
    minimize_scalar,
    newton,
    nnls,
    root_scalar,
)
from pydispatch.scipy.problems import Solution, as_arguments, as_real_unknowns, as_unknowns, check_shapes, problem
from pydispatch.tree import tree_flatten, tree_unflatten

__all__ = [
    "OptimizeResult", "brent", "curve_fit", "fixed_point", "fminbound", "fsolve", "golden", "least_squares", "leastsq",
    "linear_solve", "linprog", "lsq_linear", "minimize", "minimize_scalar", "newton", "nnls", "root", "root_scalar",
    *(_by_name := all_by_name()),
]
globals().update(_by_name)
__dir__ = only_public(globals())


# --- linear systems --------------------------------------------------------------------------------------------------


def linear_solve(
    matvec: Callable[..., Any], b: Any, *, method: str = "gmres", symmetric: bool | None = None, rtol: float = 1e-10,
    atol: float = 0.0, maxiter: int | None = None,
) -> Any:
    """Solve `matvec(x) == b` for x, where `matvec` is linear.

    The gradient of `b` solves the transposed system. Arrays that `matvec` captures have gradients, too.

    Parameters
    ----------
    matvec
        Linear function of x. It returns the structure of `b`.
    b
        Array of any shape, or a pytree of arrays, of floating-point or complex numbers. x has the same structure.
    method
        "cg" (conjugate gradients, for positive definite systems), "gmres", or "dense", which forms the matrix.
    symmetric
        Whether `matvec` is its own adjoint. Its gradients then need no transpose. Implied by "cg".
    rtol, atol
        Iterations end when the residual is at most `max(rtol * norm(b), atol)`, for each example of a batch.
    maxiter
        Largest number of calls of `matvec`. None means 10 times the number of unknowns.

    Returns
    -------
    Any
        The solution x, with the structure of `b`.

    Raises
    ------
    ConvergenceError
        If the iterations do not converge.
    numpy.linalg.LinAlgError
        If the matrix is singular ("dense").
    ValueError
        If `b` has NaN.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> linear_solve(lambda x: A @ x, np.array([3.0, 4.0]), method="dense")
    array([1., 1.])
    """
    check_function("linear_solve: matvec", matvec, "linear_solve(lambda x: A @ x, b)")
    if method not in ("cg", "gmres", "dense"):
        raise ValueError(f"linear_solve: method is {method!r}, expected 'cg', 'gmres' or 'dense'\n"
                         'write linear_solve(matvec, b, method="gmres")')
    b = as_unknowns("linear_solve", "b", b)
    nesting = Nesting(tree_flatten(b)[1], "b", "return the structure of b")
    found = problem("linear_solve", "matvec", matvec, b, (), nesting)
    check_shapes("linear_solve", "matvec", found.results, found.unknowns, "b")
    if found.results is not None:       # a complex matrix gives complex solutions
        dtype = np.result_type(*[value.dtype for value in (*found.results, *found.unknowns)])
        if dtype.kind == "c" and any(value.dtype.kind != "c" for value in found.unknowns):
            b = tree_unflatten([value.astype(dtype) for value in found.unknowns], found.spec)
            found = problem("linear_solve", "matvec", matvec, b, (), nesting)
    return found.solve(LINEAR_SOLVE, {
        "who": "linear_solve", "method": method, "symmetric": method == "cg" if symmetric is None else symmetric,
        "rtol": rtol, "atol": atol, "maxiter": maxiter})


# --- roots -----------------------------------------------------------------------------------------------------------


def _root_residual(fun: Flat, n: int) -> Flat:
    return lambda *values: fitted("root: fun", fun(*values), values[:n])


def _find_root(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> Arrays:
    n = len(x0)
    residual = _root_residual(fun, n)
    forward, _ = jacobian_products(residual, n, False)

    def function(vector: Any) -> Any:
        return packed(residual(*unpacked(vector, x0), *args))

    def jacobian(vector: Any) -> Any:
        x = unpacked(vector, x0)
        return matrix_of(forward, x, (*x, *args))

    method = options["method"]
    found = optimize.root(function, packed(x0), method=method, tol=options["tol"], options=options["options"],
                          callback=options.get("callback"), jac=jacobian if method in ("hybr", "lm") else None)
    if not found.success and not (method == "hybr" and _is_exact(found, jacobian)):
        raise ConvergenceError(_one_line(found.message))
    if method == "lm":                  # lm minimizes squares, and stops at any minimum
        size, before = np.abs(found.fun).max(initial=0), np.abs(function(packed(x0))).max(initial=0)
        if not size <= 1e-6 * max(1.0, before):
            raise ConvergenceError(f"the squares of fun have a minimum that is not a root, where fun is {size:.2g}")
    return unpacked(found.x, x0)


def _is_exact(found: OptimizeResult, jacobian: Callable[[Any], Any]) -> bool:
    """Return whether x is a root within rounding: a Newton step moves it by no more than rounding does."""
    try:
        step = np.linalg.solve(jacobian(found.x), found.fun)
    except np.linalg.LinAlgError:
        return False
    return bool(np.abs(step).max() <= 1e-12 * max(1.0, np.abs(found.x).max()))


def _one_line(message: Any) -> str:
    return " ".join(str(message).split())


def _settings(options: Options, name_of_tol: str, **known: Any) -> dict[str, Any]:
    """Return the settings for loops, of which the tolerance has this name. Loops have no others than the known ones."""
    found = {name_of_tol: options["tol"], **known, **(options["options"] or {})}
    if found.keys() != {name_of_tol, *known}:
        raise NotImplementedError
    return found


def _root_loops(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> tuple[Arrays, Any]:
    """Find a root by the same method as SciPy, unless another one is given."""
    if options["method"] != "hybr" or options.get("callback") is not None:
        raise NotImplementedError
    settings = _settings(options, "xtol", maxfev=0, factor=100)
    residual = _root_residual(fun, len(x0))
    forward, _ = jacobian_products(residual, len(x0), False)

    def function(vector: Any, *args: Any) -> Any:
        return joined(residual(*unpacked(vector, x0), *args))

    def jacobian(vector: Any, *args: Any) -> Any:
        x = unpacked(vector, x0)
        return matrix_of(forward, x, (*x, *args))

    x, is_root = hybrid.root(function, jacobian, joined(x0), args, **settings)
    return unpacked(x, x0), is_root


ROOT = implicit_operator("root", _root_residual, _find_root, _root_loops)


def root(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: str = "hybr", jac: Any = None, tol: float | None = None,
    callback: Any = None, options: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Find a root of `fun(x, *args)` by `scipy.optimize.root`, with exact Jacobians, as a function of parameters.

    Gradients of x with respect to `args` and to arrays that `fun` captures are those of the implicit function
    theorem. The gradient of `x0` is zero. Under `vmap`, every example is solved to its own tolerance.

    Parameters
    ----------
    fun
        Function of an x with the structure of `x0`. It returns as many numbers.
    x0
        Start: an array, a list of numbers, or a pytree of arrays.
    args
        Further arguments of `fun`.
    jac
        Not used: it is that of `fun`. If it is True, `fun` also returns it.
    method, tol, callback, options
        As in `scipy.optimize.root`.

    Returns
    -------
    OptimizeResult
        The result, with `x`, like `x0`, and `fun`, its value there.

    Raises
    ------
    ConvergenceError
        If the solver does not converge. The message is SciPy's.
    DispatchTypeError
        If the number of equations is not the number of unknowns.

    Examples
    --------
    >>> import numpy as np
    >>> root(lambda x, a: x * x - a, np.array([1.0]), args=np.array([4.0])).x
    array([2.])
    """
    check_function("root: fun", fun, "root(lambda x: x * x - 2.0, x0)")
    if jac is True:
        fun = partial(first_result, fun)
    x0 = as_real_unknowns("root", x0)
    found = problem("root", "fun", fun, x0, args)
    if found.results is not None:
        check_count("root: fun", found.results, found.unknowns)
    x = found.solve(ROOT, {"method": method, "tol": tol, "options": options} | with_callback(callback))
    return Solution(x, {"fun": lambda: fun(x, *as_arguments(args))}, status=1,
                    message="The solution converged.")


def fsolve(
    func: Callable[..., Any], x0: Any, args: Any = (), fprime: Any = None, full_output: bool = False,
    col_deriv: bool = False, xtol: float = 1.49012e-8, maxfev: int = 0, band: Any = None, epsfcn: Any = None,
    factor: float = 100, diag: Any = None,
) -> Any:
    """Find a root of `func(x, *args)` like `root`.

    Returns
    -------
    Array or tuple
        The root, or with `full_output` the root, a dict with `fvec`, a flag and a message.

    Examples
    --------
    >>> fsolve(lambda x: x * x - 4.0, [1.0])
    array([2.])
    """
    if band is not None or diag is not None:
        raise NotImplementedError("fsolve: band and diag are not supported\nleave them out")
    x0 = as_unknowns("fsolve", "x0", x0)
    found = root(func, np.atleast_1d(x0) if isinstance(x0, np.ndarray) else x0, args,
                 options={"xtol": xtol, "maxfev": maxfev, "factor": factor})
    return (found.x, {"fvec": found.fun}, found.status, found.message) if full_output else found.x


# --- minimizers ------------------------------------------------------------------------------------------------------


GRADIENT_METHODS = frozenset((
    "bfgs", "cg", "dogleg", "l-bfgs-b", "newton-cg", "slsqp", "tnc", "trust-constr", "trust-exact", "trust-krylov",
    "trust-ncg"))
HESSIAN_METHODS = frozenset(("dogleg", "trust-exact"))
PRODUCT_METHODS = frozenset(("newton-cg", "trust-constr", "trust-krylov", "trust-ncg"))
PRECISION_LOSS = 2      # SciPy's status if rounding hides further descent


def _scalar(fun: Flat) -> Flat:
    def objective(*values: Any) -> Arrays:
        results = fun(*values)
        _check_scalar(results)
        return (ops.np.reshape(results[0], ()),)

    return objective


def _check_scalar(results: Arrays) -> None:
    if len(results) != 1 or math.prod(results[0].shape) != 1:
        raise DispatchTypeError(f"minimize: fun returns {', '.join(map(show, results)) or 'nothing'}, expected one "
                                "number\nreturn a sum: (r * r).sum()")


def _gradient(fun: Flat, n: int) -> Flat:
    def gradient(*values: Any) -> Arrays:
        flags = (True,) * n + (False,) * (len(values) - n)
        one = ops.np.ones_like(values[0], shape=())
        return rules.gradients_of(_scalar(fun), flags, (True,), "minimize")(*values, one)

    return gradient


def _find_minimum(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> Arrays:
    n = len(x0)
    objective, gradient = _scalar(fun), _gradient(fun, n)
    both = rules.with_gradients(objective, (True,) * n + (False,) * len(args), (True,), "minimize")
    product, _ = jacobian_products(gradient, n, True)
    one = np.ones((), x0[0].dtype)

    def value(vector: Any) -> float:
        return float(packed(objective(*unpacked(vector, x0), *args))[0])

    def value_and_gradient(vector: Any) -> tuple[float, Any]:
        results = both(*unpacked(vector, x0), *args, one)
        return float(packed(results[:1])[0]), packed(results[1:]).astype(np.float64)

    def hessian(vector: Any) -> Any:
        x = unpacked(vector, x0)
        return matrix_of(product, x, (*x, *args))

    def hessian_product(vector: Any, direction: Any) -> Any:
        x = unpacked(vector, x0)
        return packed(product(*unpacked(direction, x0), *x, *args))

    method = options["method"]
    kind = "bfgs" if method is None else method.lower()
    given: dict[str, Any] = {"jac": True} if kind in GRADIENT_METHODS else {}
    if kind in HESSIAN_METHODS:
        given["hess"] = hessian
    elif kind in PRODUCT_METHODS:
        given["hessp"] = hessian_product
    found = optimize.minimize(value_and_gradient if given else value, packed(x0), method=method, tol=options["tol"],
                              options=options["options"], callback=options.get("callback"), **given)
    if found.success:
        return unpacked(found.x, x0)
    if found.status != PRECISION_LOSS or not given or found.x.size > DENSE_SIZE:
        raise ConvergenceError(_one_line(found.message))
    wanted: float = (options["options"] or {}).get("gtol") or options["tol"] or 1e-5
    x, is_found = _newton_steps(lambda vector: value_and_gradient(vector)[1], hessian, found.x, wanted)
    if not is_found:
        raise ConvergenceError(_one_line(found.message))
    return unpacked(x, x0)


def _newton_steps(
    gradient: Callable[[Any], Any], hessian: Callable[[Any], Any], x: Any, wanted: float
) -> tuple[Any, bool]:
    """Return the zero of the gradient near x, and whether it is a minimum.

    The gradient still resolves x when values of the function no longer differ.
    """
    g, h = gradient(x), hessian(x)
    for _ in range(5):
        try:
            new = x - np.linalg.solve(h, g)
        except np.linalg.LinAlgError:
            break
        new_g = gradient(new)
        if not np.abs(new_g).max() < np.abs(g).max():
            break
        x, g, h = new, new_g, hessian(new)
    rounding = 1e-12 * np.abs(h).max() * max(1.0, np.abs(x).max())
    return x, bool(np.abs(g).max() <= max(wanted, rounding)) and _curves_upward(h)


def _curves_upward(h: Any) -> bool:
    """Return whether a Hessian has no direction of descent, within rounding. At maxima and saddle points it has one."""
    if not np.isfinite(h).all():
        return False
    curvatures = np.linalg.eigvalsh(h)
    return bool(curvatures[0] >= -1e-8 * np.abs(curvatures).max())


def _minimum_loops(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> tuple[Arrays, Any]:
    """Find a minimum by the same method as SciPy, unless another one is given."""
    if (options["method"] or "BFGS").lower() != "bfgs" or options.get("callback") is not None:
        raise NotImplementedError
    settings = _settings(options, "gtol", maxiter=None)
    n = len(x0)
    both = rules.with_gradients(_scalar(fun), (True,) * n + (False,) * len(args), (True,), "minimize")

    def value_and_gradient(vector: Any, *args: Any) -> Arrays:
        value, *gradients = both(*unpacked(vector, x0), *args, np.ones((), x0[0].dtype))
        return value, joined(gradients)

    product, _ = jacobian_products(_gradient(fun, n), n, True)

    def hessian(vector: Any, *args: Any) -> Any:
        x = unpacked(vector, x0)
        return matrix_of(product, x, (*x, *args))

    x, is_minimum = quasi_newton.minimum(value_and_gradient, hessian, joined(x0), args, **settings)
    return unpacked(x, x0), is_minimum


MINIMIZE = implicit_operator("minimize", _gradient, _find_minimum, _minimum_loops, is_symmetric=True)


def with_callback(callback: Any) -> Options:
    return {} if callback is None else {"callback": callback}


def first_result(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)[0]


def minimize(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: str | None = None, jac: Any = None, hess: Any = None,
    hessp: Any = None, bounds: Any = None, constraints: Any = (), tol: float | None = None, callback: Any = None,
    options: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Find a local minimum of `fun(x, *args)` by `scipy.optimize.minimize`, with exact derivatives.

    Methods that use gradients, Hessians or products with them get those of `fun`. Gradients of x with respect to
    `args` and to arrays that `fun` captures are those of the implicit function theorem. They are as exact as x is,
    so pass a small `tol`. The gradient of `x0` is zero.

    Parameters
    ----------
    fun
        Function of an x with the structure of `x0`. It returns one number.
    x0
        Start: an array of real numbers, a list of numbers, or a pytree of arrays.
    args
        Further arguments of `fun`.
    jac, hess, hessp
        Not used: they are those of `fun`. If `jac` is True, `fun` also returns its gradient, which is not used.
    bounds, constraints
        As in `scipy.optimize.minimize`. They may depend on parameters, too. If one is reached where the slope of `fun`
        is 0, x has no gradient, and computing it raises LinAlgError.
    method, tol, callback, options
        As in `scipy.optimize.minimize`.

    Returns
    -------
    OptimizeResult
        The result, with `x`, like `x0`, and `fun`, its value there. With constraints, also their `multipliers`.

    Raises
    ------
    ConvergenceError
        If the solver does not converge. The message is SciPy's.

    Examples
    --------
    >>> import numpy as np
    >>> minimize(lambda x: ((x - 3.0) ** 2).sum(), np.array([1.0])).x.round(6)
    array([3.])
    """
    check_function("minimize: fun", fun, "minimize(lambda x: (x * x).sum(), x0)")
    if jac is True:
        fun = partial(first_result, fun)
    x0 = as_real_unknowns("minimize", x0)
    if bounds is not None or not isinstance(constraints, (list, tuple)) or constraints:
        return constrained(fun, x0, args, method, bounds, constraints, (GRADIENT_METHODS, PRODUCT_METHODS),
                           {"tol": tol, "callback": callback, "options": options})
    found = problem("minimize", "fun", fun, x0, args)
    if found.results is not None:
        _check_scalar(found.results)
    x = found.solve(MINIMIZE, {"method": method, "tol": tol, "options": options} | with_callback(callback))
    return Solution(x, {"fun": lambda: fun(x, *as_arguments(args))}, status=0,
                    message="Optimization terminated successfully.")


# --- fixed points ----------------------------------------------------------------------------------------------------


def _fixed_point_residual(fun: Flat, n: int) -> Flat:
    def residual(*values: Any) -> Arrays:
        return tuple([new - old for new, old in zip(fun(*values), values[:n], strict=True)])

    return residual


def _find_fixed_point(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> Arrays:
    def function(vector: Any) -> Any:
        return packed(fun(*unpacked(vector, x0), *args))

    try:
        with np.errstate(invalid="ignore", over="ignore"):      # divergence is reported below
            found = optimize.fixed_point(function, packed(x0), (), options["xtol"], options["maxiter"],
                                         options["method"])
    except RuntimeError as error:
        if not str(error).startswith("Failed to converge"):     # an error of the function itself
            raise
        raise ConvergenceError(_one_line(error)) from error
    return unpacked(found, x0)


def _fixed_point_loops(fun: Flat, x0: Arrays, args: Arrays, options: Options) -> tuple[Arrays, Any]:
    """Iterate as SciPy does, to the bit."""
    where, absolute = ops.np.where, ops.np.absolute

    def goes_on(x: Any, n_done: Any, is_found: Any, *args: Any) -> Arrays:
        return ((n_done < options["maxiter"]) & ops.np.logical_not(is_found),)

    def step(x: Any, n_done: Any, is_found: Any, *args: Any) -> Arrays:
        new = joined(fun(*unpacked(x, x0), *args))
        if options["method"] == "del2":
            after = joined(fun(*unpacked(new, x0), *args))
            bend = after - 2.0 * new + x
            is_bent = bend != 0
            new = where(is_bent, x - ops.np.square(new - x) / where(is_bent, bend, 1), after)
        change = where(x != 0, (new - x) / where(x != 0, x, 1), new)
        return new, n_done + 1, ops.np.all(absolute(change) < options["xtol"])

    x, _, is_found = WHILE(goes_on, step, (joined(x0), np.zeros((), int), np.zeros((), bool)), args, False)
    return unpacked(x, x0), ops.np.logical_and(is_found, ops.np.all(ops.np.isfinite(x)))


FIXED_POINT = implicit_operator("fixed_point", _fixed_point_residual, _find_fixed_point, _fixed_point_loops)


def fixed_point(
    func: Callable[..., Any], x0: Any, args: Any = (), xtol: float = 1e-8, maxiter: int = 500, method: str = "del2",
) -> Any:
    """Find the x with `func(x, *args) == x` by `scipy.optimize.fixed_point`, as a function of parameters.

    Gradients with respect to `args` and to arrays that `func` captures are those of the implicit function theorem.
    The gradient of `x0` is zero.

    Parameters
    ----------
    func
        Function that takes and returns the structure of `x0`.
    x0
        Start: an array, a list of numbers, or a pytree of arrays.
    args
        Further arguments of `func`.
    xtol, maxiter
        As in `scipy.optimize.fixed_point`.
    method
        "del2" (Steffensen's method) or "iteration".

    Returns
    -------
    Any
        The fixed point, with the structure of `x0`.

    Raises
    ------
    ConvergenceError
        If the iteration does not converge. The message is SciPy's.

    Examples
    --------
    >>> import pydispatch.numpy as pnp
    >>> fixed_point(lambda x: pnp.cos(x), [1.0]).round(6)
    array([0.739085])
    """
    check_function("fixed_point: func", func, "fixed_point(lambda x: np.cos(x), x0)")
    if method not in ("del2", "iteration"):
        raise ValueError(f"fixed_point: method is {method!r}, expected 'del2' or 'iteration'\n"
                         'write fixed_point(func, x0, method="iteration")')
    x0 = as_unknowns("fixed_point", "x0", x0)
    nesting = Nesting(tree_flatten(x0)[1], "x0", "return the structure of x0")
    found = problem("fixed_point", "func", func, x0, args, nesting)
    check_shapes("fixed_point", "func", found.results, found.unknowns, "x0")
    return found.solve(FIXED_POINT, {"xtol": xtol, "maxiter": maxiter, "method": method})


LINEAR_SOLVE.trust_rules()
for _function, _operator in (
    (linear_solve, LINEAR_SOLVE), (root, ROOT), (minimize, MINIMIZE), (fixed_point, FIXED_POINT),
):
    _function.__dict__.update(operator=_operator, py_impl=_operator.py_impl)
borrow("optimize", "approx_fprime check_grad rosen rosen_der rosen_hess rosen_hess_prod")
make_constant("optimize", "linear_sum_assignment")
__all__ = publish("optimize", globals(), __all__)
