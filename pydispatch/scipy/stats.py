"""`scipy.stats` for arrays and Tensors: densities and distribution functions, with gradients of all their
parameters.

Each distribution is an object with SciPy's methods, written with operators. If `x` or a parameter is outside of
the domain of a formula, the formula gets a number inside instead, and its result is dropped. No gradient
is nan for this reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, log, nan, pi
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy import stats

import pydispatch.scipy.linalg
import pydispatch.scipy.special  # noqa: F401
from pydispatch._core import is_array
from pydispatch._loading import only_public
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import COMPOSITE, as_array, as_nonscalar, known_values
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.scipy.checks import value_check
from pydispatch.scipy.pack import FACE, SCIPY

add, divide, exp, expm1, floor, log1p, multiply, negative, square, subtract, where = LIBRARY.operators(
    "add", "divide", "exp", "expm1", "floor", "log1p", "multiply", "negative", "square", "subtract", "where")
betainc, betaincc, betaincinv, betaln, gammainc, gammaincc, gammaincinv, gammaln = SCIPY.operators(
    "special_betainc", "special_betaincc", "special_betaincinv", "special_betaln", "special_gammainc",
    "special_gammaincc", "special_gammaincinv", "special_gammaln")
log_ndtr, ndtr, ndtri, poch, stdtr, stdtrit, xlog1py, xlogy = SCIPY.operators(
    "special_log_ndtr", "special_ndtr", "special_ndtri", "special_poch", "special_stdtr", "special_stdtrit",
    "special_xlog1py", "special_xlogy")
cholesky, = SCIPY.operators("linalg_cholesky")
LOG_2, LOG_PI, LOG_2_PI = log(2), log(pi), log(2 * pi)
Check = Callable[..., Any]      # (numpy or ops.np, values) -> mask of the allowed ones


def positive(of: Any, values: Any) -> Any:
    return of.greater(values, 0)


def not_negative(of: Any, values: Any) -> Any:
    return of.greater_equal(values, 0)


def probability(of: Any, values: Any) -> Any:
    return of.logical_and(of.greater_equal(values, 0), of.less_equal(values, 1))


def count(of: Any, values: Any) -> Any:
    return of.logical_and(of.greater_equal(values, 0), of.equal(values, of.floor(values)))


def mask_of(check: Check, *values: Any) -> Any:
    """Return a mask of where a check holds, or None if it is known to hold everywhere."""
    known = [value if isinstance(value, (bool, int, float)) else known_values(value) for value in values]
    if any(each is None for each in known):
        return check(ops.np, *values)
    with np.errstate(invalid="ignore"):
        found = np.asarray(check(np, *known))
    return None if found.all() else found


def both(*masks: Any) -> Any:
    """Return a mask of where all masks hold. None means a mask that holds everywhere."""
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else ops.np.logical_and(found, mask)
    return found


def chosen(mask: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the mask holds and `no` elsewhere. A mask None holds everywhere."""
    return yes if mask is None else where(mask, yes, no)


def is_number(value: Any, number: float) -> bool:
    return isinstance(value, (int, float)) and value == number


def logarithm(probabilities: Any) -> Any:
    """Return the logarithm of probabilities, some of which may be 0 or nan."""
    mask = mask_of(lambda of, values: of.logical_not(of.less_equal(values, 0)), probabilities)
    return chosen(mask, ops.np.log(chosen(mask, probabilities, 1.0)), -inf)


class Parameter(NamedTuple):
    """A parameter: its name, a check of its values, and an allowed value."""

    name: str
    check: Check = positive
    instead: float = 1.0


LOCATION, SCALE = Parameter("loc"), Parameter("scale")


class Methods:
    """The methods of one distribution. Those that are not declared here are SciPy's own."""

    def __init__(self, name: str, doc: str):
        self.name = name
        self.scipys = getattr(stats, name)
        self.__doc__ = doc

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "scipys" not in self.__dict__:
            raise AttributeError(f"distribution has no attribute {name!r}")
        return getattr(self.scipys, name)


class Distribution(Methods):
    """A distribution of numbers."""

    def __init__(self, name: str, shapes: tuple[Parameter, ...], low: float, high: Any, inner: float, doc: str):
        super().__init__(name, doc)
        self.shapes = shapes
        self.low = low          # the ends of the support in standard form, and a number between
        self.high = high        # a number, or the name of a parameter
        self.inner = inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(is_array(value) and not isinstance(value, (np.ndarray, np.generic))
               for value in (*args, *kwargs.values())):
            raise DispatchTypeError(f"scipy.stats.{self.name}(...) does not take a Tensor\n"
                                    "pass the parameters to the method: "
                                    f"stats.{self.name}.cdf(x, {', '.join(p.name + '=...' for p in self.parameters)})")
        return self.scipys(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<distribution pydispatch.scipy.stats.{self.name}>"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order in which the methods take them."""
        return (*self.shapes, LOCATION, SCALE)

    def arguments(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters by name. Raise TypeError as a Python function with these parameters does."""
        names = [parameter.name for parameter in self.parameters]
        title = f"stats.{self.name}.{method}()"
        if len(args) > len(names):
            raise TypeError(f"{title} takes at most {len(names)} parameters, {len(args)} were given")
        found = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in found:
                raise TypeError(f"{title} got multiple values for argument {name!r}")
            if name not in names:
                raise TypeError(f"{title} got an unexpected keyword argument {name!r}")
            found[name] = value
        for parameter in self.shapes:
            if parameter.name not in found:
                raise TypeError(f"{title} is missing the parameter {parameter.name!r}")
        return {"loc": 0, "scale": 1, **{name: as_array(value) for name, value in found.items()}}

    def checked(self, given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the parameters with forbidden values replaced, and a mask of where all were allowed."""
        masks = {p.name: mask_of(p.check, given[p.name]) for p in self.parameters if p is not LOCATION}
        allowed = {p.name: chosen(masks[p.name], given[p.name], p.instead) for p in self.parameters if p.name in masks}
        return {**given, **allowed}, both(*masks.values())

    def standard(self, x: Any, given: dict[str, Any]) -> Any:
        """Return `x` in standard form, in double precision."""
        if x.dtype != np.float64:
            x = ops.np.astype(x, np.dtype(float))
        if not is_number(given["loc"], 0):
            x = subtract(x, given["loc"])
        return x if is_number(given["scale"], 1) else divide(x, given["scale"])

    def shapes_of(self, given: dict[str, Any]) -> list[Any]:
        return [given[parameter.name] for parameter in self.shapes]

    def finished(self, found: Any, y: Any, allowed: Any) -> Any:
        """Return the result, with nan where a parameter is not allowed or `x` is nan."""
        if self.low != -inf:
            allowed = both(allowed, mask_of(lambda of, y: of.equal(y, y), y))
        return chosen(allowed, found, nan)

    # --- methods

    def density(self, formula: Callable[..., Any], is_log: bool) -> Callable[..., Any]:
        """Return the method logpdf or pdf from a formula for logpdf."""
        def of_x(method: str, x: Any, args: Any, kwargs: Any) -> Any:
            given, allowed = self.checked(self.arguments(method, args, kwargs))
            y = self.standard(as_nonscalar(x), given)
            inside = self.within(y, given)
            found = formula(chosen(inside, y, self.inner), *self.shapes_of(given))
            if not is_number(given["scale"], 1):
                found = subtract(found, ops.np.log(given["scale"]))
            found = chosen(inside, found, -inf) if is_log else chosen(inside, exp(found), 0.0)
            return self.finished(found, y, allowed)
        return of_x

    def within(self, y: Any, given: dict[str, Any]) -> Any:
        """Return a mask of where the density is not 0."""
        masks = []
        if self.low != -inf:
            masks.append(mask_of(lambda of, y: of.greater_equal(y, self.low), y))
        if self.high != inf:
            masks.append(mask_of(lambda of, y, high: of.less_equal(y, high), y, given.get(self.high, self.high)))
        return both(*masks)

    def probability(self, formula: Callable[..., Any], below: float, above: float) -> Callable[..., Any]:
        """Return a distribution function with its values below and above the support."""
        def of_x(method: str, x: Any, args: Any, kwargs: Any) -> Any:
            given, allowed = self.checked(self.arguments(method, args, kwargs))
            y = self.standard(as_nonscalar(x), given)
            over, under = self.past_ends(y, given)
            inside = both(over, under)
            found = formula(chosen(inside, y, self.inner), *self.shapes_of(given))
            return self.finished(chosen(under, chosen(over, found, below), above), y, allowed)
        return of_x

    def past_ends(self, y: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        """Return masks of where `y` is above the lower end of the support, and where it is below the upper one."""
        over = under = None
        if self.low != -inf:
            over = mask_of(lambda of, y: of.greater(y, self.low), y)
        if self.high != inf:
            under = mask_of(lambda of, y, high: of.less(y, high), y, given.get(self.high, self.high))
        return over, under

    def quantile(self, formula: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method ppf from a formula for it."""
        def of_q(method: str, q: Any, args: Any, kwargs: Any) -> Any:
            given, allowed = self.checked(self.arguments(method, args, kwargs))
            q = self.standard(as_nonscalar(q), {"loc": 0, "scale": 1})
            inside = mask_of(lambda of, q: of.logical_and(of.greater(q, 0), of.less(q, 1)), q)
            found = moved(formula(chosen(inside, q, 0.5), *self.shapes_of(given)), given)
            if inside is not None:
                low, high = [end if abs(end) == inf else moved(end, given) for end in (self.low, self.high)]
                at_end = where(ops.np.equal(q, 0), low, where(ops.np.equal(q, 1), high, nan))
                found = where(inside, found, at_end)
            return chosen(allowed, found, nan)
        return of_q


def moved(y: Any, given: dict[str, Any]) -> Any:
    """Convert a value from the standard form."""
    if not is_number(given["scale"], 1):
        y = multiply(y, given["scale"])
    return y if is_number(given["loc"], 0) else add(y, given["loc"])


class DiscreteDistribution(Distribution):
    """A distribution of integers. Its functions are constant between integers, so `k` has no gradient."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*self.shapes, LOCATION)

    def within(self, y: Any, given: dict[str, Any]) -> Any:
        return both(super().within(y, given), mask_of(lambda of, y: of.equal(y, of.floor(y)), y))

    def past_ends(self, y: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        _, under = super().past_ends(y, given)
        return mask_of(lambda of, y: of.greater_equal(y, self.low), y), under


# --- declarations ----------------------------------------------------------------------------------------------------

REFUSED = {
    "rvs": "draw random numbers by pydispatch.numpy.random, and shift and scale them",
    "fit": "a fit has no gradient: maximize the sum of logpdf or logpmf over the parameters",
    "isf": "write it as a quantile of the complement, ppf(1 - q), if there is a ppf",
}
REFUSED_OF_INTEGERS = {
    "rvs": REFUSED["rvs"],
    **dict.fromkeys(("ppf", "isf"), "quantiles of integers are integers without gradients: pass arrays")}


def add_method(distribution: Any, method: str, call: Callable[..., Any]) -> None:
    """Declare one method as an array function."""
    path = f"{distribution.name}.{method}"
    function = FACE.declare(f"stats.{path}", call, COMPOSITE)
    function.__dict__.update(__qualname__=path, __module__="pydispatch.scipy.stats")
    distribution.__dict__[method] = function


def add_refusals(distribution: Any, refused: Mapping[str, str]) -> None:
    """Declare the methods that do not take Tensors."""
    for method, reason in refused.items():
        FACE.refuse({f"stats.{distribution.name}.{method}": reason})
        distribution.__dict__[method] = FACE.functions[f"stats.{distribution.name}.{method}"]


def with_signature(method: str, first: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with SciPy's name for its first argument."""
    if first == "k":
        return lambda k, *args, **kwds: function(method, k, args, kwds)
    if first == "q":
        return lambda q, *args, **kwds: function(method, q, args, kwds)
    return lambda x, *args, **kwds: function(method, x, args, kwds)


def declare(distribution: Distribution, log_density: Callable[..., Any], cdf: Callable[..., Any],
            sf: Callable[..., Any], ppf: Callable[..., Any] | None = None, logcdf: Callable[..., Any] | None = None,
            logsf: Callable[..., Any] | None = None) -> Distribution:
    """Declare the methods of a distribution from formulas in standard form."""
    is_discrete = isinstance(distribution, DiscreteDistribution)
    ending, first = ("pmf", "k") if is_discrete else ("pdf", "x")
    methods = {
        ending: distribution.density(log_density, False), f"log{ending}": distribution.density(log_density, True),
        "cdf": distribution.probability(cdf, 0.0, 1.0), "sf": distribution.probability(sf, 1.0, 0.0),
        "logcdf": distribution.probability(logcdf or (lambda *args: logarithm(cdf(*args))), -inf, 0.0),
        "logsf": distribution.probability(logsf or (lambda *args: logarithm(sf(*args))), 0.0, -inf)}
    for method, function in methods.items():
        add_method(distribution, method, with_signature(method, first, function))
    if ppf is not None:
        add_method(distribution, "ppf", with_signature("ppf", "q", distribution.quantile(ppf)))
    add_refusals(distribution, REFUSED_OF_INTEGERS if is_discrete else REFUSED)
    return distribution


# --- continuous distributions ----------------------------------------------------------------------------------------


norm = declare(
    Distribution("norm", (), -inf, inf, 0.0, "The normal distribution."),
    lambda x: subtract(multiply(square(x), -0.5), LOG_2_PI / 2),
    cdf=ndtr, sf=lambda x: ndtr(negative(x)), ppf=ndtri, logcdf=log_ndtr, logsf=lambda x: log_ndtr(negative(x)))


def t_log_density(x: Any, df: Any) -> Any:
    """Return the log density, which is that of the normal distribution for an infinite `df`."""
    finite = mask_of(lambda of, df: of.isfinite(df), df)
    df = chosen(finite, df, 1.0)
    half = multiply(df, 0.5)
    factor = subtract(ops.np.log(poch(half, 0.5)), multiply(add(ops.np.log(df), LOG_PI), 0.5))
    found = subtract(factor, multiply(add(half, 0.5), log1p(divide(square(x), df))))
    return found if finite is None else where(finite, found, subtract(multiply(square(x), -0.5), LOG_2_PI / 2))


t = declare(
    Distribution("t", (Parameter("df"),), -inf, inf, 0.0, "Student's t distribution."), t_log_density,
    cdf=lambda x, df: stdtr(df, x), sf=lambda x, df: stdtr(df, negative(x)), ppf=lambda q, df: stdtrit(df, q))
gamma = declare(
    Distribution("gamma", (Parameter("a"),), 0, inf, 1.0, "The gamma distribution."),
    lambda x, a: subtract(subtract(xlogy(subtract(a, 1.0), x), x), gammaln(a)),
    cdf=lambda x, a: gammainc(a, x), sf=lambda x, a: gammaincc(a, x), ppf=lambda q, a: gammaincinv(a, q))


def chi2_log_density(x: Any, df: Any) -> Any:
    half = multiply(df, 0.5)
    return subtract(subtract(xlogy(subtract(half, 1.0), x), multiply(x, 0.5)),
                    add(gammaln(half), multiply(half, LOG_2)))


chi2 = declare(
    Distribution("chi2", (Parameter("df"),), 0, inf, 1.0, "The chi-squared distribution."), chi2_log_density,
    cdf=lambda x, df: gammainc(multiply(df, 0.5), multiply(x, 0.5)),
    sf=lambda x, df: gammaincc(multiply(df, 0.5), multiply(x, 0.5)),
    ppf=lambda q, df: multiply(gammaincinv(multiply(df, 0.5), q), 2.0))
beta = declare(
    Distribution("beta", (Parameter("a"), Parameter("b")), 0, 1, 0.5, "The beta distribution."),
    lambda x, a, b: subtract(add(xlog1py(subtract(b, 1.0), negative(x)), xlogy(subtract(a, 1.0), x)), betaln(a, b)),
    cdf=lambda x, a, b: betainc(a, b, x), sf=lambda x, a, b: betaincc(a, b, x),
    ppf=lambda q, a, b: betaincinv(a, b, q))
expon = declare(
    Distribution("expon", (), 0, inf, 1.0, "The exponential distribution."), negative,
    cdf=lambda x: negative(expm1(negative(x))), sf=lambda x: exp(negative(x)),
    ppf=lambda q: negative(log1p(negative(q))), logsf=negative)
uniform = declare(
    Distribution("uniform", (), 0, 1, 0.5, "The uniform distribution."), lambda x: ops.np.zeros_like(x),
    cdf=lambda x: multiply(x, 1.0), sf=lambda x: subtract(1.0, x), ppf=lambda q: multiply(q, 1.0))


def laplace_cdf(x: Any) -> Any:
    """Return the distribution function. It uses exponentials of negative numbers only, which do not overflow."""
    above = ops.np.greater(x, 0)
    half = multiply(exp(where(above, negative(x), x)), 0.5)
    return where(above, subtract(1.0, half), half)


def laplace_logcdf(x: Any) -> Any:
    above = ops.np.greater(x, 0)
    falling = where(above, negative(x), x)
    return where(above, log1p(multiply(exp(falling), -0.5)), subtract(falling, LOG_2))


def laplace_ppf(q: Any) -> Any:
    above = ops.np.greater(q, 0.5)
    found = ops.np.log(multiply(where(above, subtract(1.0, q), q), 2.0))
    return where(above, negative(found), found)


laplace = declare(
    Distribution("laplace", (), -inf, inf, 0.0, "The Laplace distribution."),
    lambda x: subtract(negative(ops.np.absolute(x)), LOG_2),
    cdf=laplace_cdf, sf=lambda x: laplace_cdf(negative(x)), ppf=laplace_ppf, logcdf=laplace_logcdf,
    logsf=lambda x: laplace_logcdf(negative(x)))


# --- discrete distributions ------------------------------------------------------------------------------------------


def poisson_log_density(k: Any, mu: Any) -> Any:
    k = floor(k)
    return subtract(subtract(xlogy(k, mu), gammaln(add(k, 1.0))), mu)


poisson = declare(
    DiscreteDistribution("poisson", (Parameter("mu", not_negative),), 0, inf, 0.0, "The Poisson distribution."),
    poisson_log_density, cdf=lambda k, mu: gammaincc(add(floor(k), 1.0), mu),
    sf=lambda k, mu: gammainc(add(floor(k), 1.0), mu))


def binom_log_density(k: Any, n: Any, p: Any) -> Any:
    k, n = floor(k), floor(n)
    others = subtract(n, k)
    ways = subtract(gammaln(add(n, 1.0)), add(gammaln(add(k, 1.0)), gammaln(add(others, 1.0))))
    return add(ways, add(xlogy(k, p), xlog1py(others, negative(p))))


def binom_probability(function: Any) -> Callable[..., Any]:
    """Return a distribution function by one of the beta distribution, which is not called for k = n."""
    def formula(k: Any, n: Any, p: Any) -> Any:
        k = floor(k)
        return function(add(k, 1.0), ops.np.maximum(subtract(floor(n), k), 1.0), p)
    return formula


binom = declare(
    DiscreteDistribution("binom", (Parameter("n", count), Parameter("p", probability, 0.5)), 0, "n", 0.0,
                         "The binomial distribution."),
    binom_log_density, cdf=binom_probability(betaincc), sf=binom_probability(betainc))


# --- distributions of vectors ----------------------------------------------------------------------------------------


def normal_parameters(mean: Any, cov: Any) -> tuple[int, Any, Any]:
    """Return the number of dimensions, mean and covariance. In simple cases these are given as numbers or vectors."""
    mean = None if mean is None else as_nonscalar(mean)
    cov = as_nonscalar(1.0 if cov is None else cov)
    dim = mean.size if mean is not None else cov.shape[0] if cov.ndim > 1 else 1
    mean = np.zeros(dim) if mean is None else ops.np.reshape(mean, (dim,))
    if cov.ndim == 0 or (cov.ndim == 1 and cov.shape[0] == dim):
        cov = multiply(cov, np.eye(dim))
    if cov.ndim != 2 or cov.shape[0] != cov.shape[1]:
        raise ValueError("array 'cov' must be square if it is two dimensional, but "
                         f"cov.shape = {tuple(cov.shape)}, and mean has {dim} elements")
    if cov.shape[0] != dim:
        raise ValueError(f"mean has {dim} elements, cov is of shape {tuple(cov.shape)}")
    return dim, mean, cov


def check_definite(diagonal: Any, who: str) -> None:
    """Raise SciPy's error for a covariance that is singular within rounding, from the diagonal of its factor.

    SciPy compares eigenvalues. They are at least as far apart as the squares of these elements.
    """
    if diagonal.size and (diagonal.min(-1) ** 2 <= ROUNDED * diagonal.max(-1) ** 2).any():
        raise LinAlgError(f"{who}: the covariance must be symmetric positive definite\n"
                          "add a little to its diagonal, for example cov + 1e-9 * numpy.eye(n)")


definite = value_check("stats_definite", check_definite)
ROUNDED = 1e6 * np.finfo(float).eps
"""The quotient of eigenvalues below which SciPy takes the smaller one for 0."""


def normal_log_density(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Compute the log density by a triangular factor of the covariance, of which only the lower triangle is read."""
    dim, mean, cov = normal_parameters(mean, cov)
    x = as_nonscalar(x)
    if x.ndim == 0:
        x = ops.np.reshape(x, (1,))
    elif x.ndim == 1 and dim == 1:
        x = ops.np.reshape(x, (x.shape[0], 1))
    if x.shape[-1] != dim:
        raise ValueError(f"x has vectors of {x.shape[-1]} elements, mean has {dim}")
    x, mean, cov = [v if v.dtype == np.float64 else ops.np.astype(v, np.dtype(float)) for v in (x, mean, cov)]
    apart = subtract(x, mean)
    rows = ops.np.reshape(apart, (-1 if apart.size else 0, dim))
    found = (singular_log_density if allow_singular else definite_log_density)(rows, dim, cov)
    found = ops.np.reshape(found, tuple(apart.shape[:-1]))
    kept = tuple([n for n in found.shape if n != 1])
    return found if len(kept) == found.ndim else ops.np.reshape(found, kept)


def definite_log_density(rows: Any, dim: int, cov: Any) -> Any:
    """Compute the log density of deviations from the mean."""
    factor = cholesky(cov, lower=True)
    white = ops.np.linalg_solve(factor, ops.np.transpose(rows))
    return multiply(add(ops.np.sum(square(white), 0), add(log_determinant(factor, dim), dim * LOG_2_PI)), -0.5)


def log_determinant(factor: Any, dim: int) -> Any:
    """Compute the logarithm of the determinant of a covariance from its triangular factor."""
    diagonal = ops.np.getitem(ops.np.reshape(factor, (dim * dim,)), slice(None, None, dim + 1))
    return multiply(ops.np.sum(ops.np.log(definite(diagonal, "stats.multivariate_normal"))), 2.0)


def singular_log_density(rows: Any, dim: int, cov: Any) -> Any:
    """Compute the log density of deviations on the span of a covariance, whose rank is taken as constant.

    It is -inf elsewhere. As in SciPy, eigenvalues below a part of the largest are 0.
    """
    values, vectors = ops.np.linalg_eigh(ops.np.detach(cov))
    largest = ops.np.max(ops.np.absolute(values), 0, keepdims=True)
    kept = ops.np.greater(values, multiply(largest, ROUNDED))
    onto = ops.np.matmul(multiply(vectors, kept), ops.np.transpose(vectors))     # the projection onto the span
    others = subtract(np.eye(dim), onto)
    full = add(ops.np.matmul(ops.np.matmul(onto, cov), onto), multiply(others, largest))
    factor = cholesky(multiply(add(full, ops.np.transpose(full)), 0.5), lower=True)
    inside = ops.np.matmul(rows, onto)
    white = ops.np.linalg_solve(factor, ops.np.transpose(inside))
    rank = ops.np.astype(ops.np.sum(kept), np.dtype(float))
    left_out = multiply(subtract(float(dim), rank), ops.np.log(ops.np.sum(largest)))
    diagonal = ops.np.getitem(ops.np.reshape(factor, (dim * dim,)), slice(None, None, dim + 1))
    constant = add(subtract(multiply(ops.np.sum(ops.np.log(diagonal)), 2.0), left_out), multiply(rank, LOG_2_PI))
    found = multiply(add(ops.np.sum(square(white), 0), constant), -0.5)
    apart = ops.np.sqrt(ops.np.sum(square(ops.np.detach(subtract(rows, inside))), -1))
    return where(ops.np.less(apart, multiply(largest, 1e3 * ROUNDED)), found, -inf)


def normal_entropy(mean: Any = None, cov: Any = 1) -> Any:
    """Return the differential entropy."""
    dim, _, cov = normal_parameters(mean, cov)
    cov = cov if cov.dtype == np.float64 else ops.np.astype(cov, np.dtype(float))
    return multiply(add(log_determinant(cholesky(cov, lower=True), dim), dim * (LOG_2_PI + 1)), 0.5)


def normal_logpdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Return the logarithm of the density at vectors along the last axis."""
    return normal_log_density(x, mean, cov, allow_singular)


def normal_pdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Return the density at vectors along the last axis."""
    return exp(normal_log_density(x, mean, cov, allow_singular))


multivariate_normal = Methods("multivariate_normal", "The normal distribution of vectors.")
add_method(multivariate_normal, "logpdf", normal_logpdf)
add_method(multivariate_normal, "pdf", normal_pdf)
add_method(multivariate_normal, "entropy", normal_entropy)
add_refusals(multivariate_normal, {
    "rvs": REFUSED["rvs"], "fit": REFUSED["fit"],
    **dict.fromkeys(("cdf", "logcdf"), "the integral over a box uses random points, and has no derivative here")})


def dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    """Return the logarithm of the density at vectors along the first axis. Their last element may be left out."""
    x, alpha = as_nonscalar(x), as_nonscalar(alpha)
    if alpha.ndim != 1:
        raise ValueError(f"parameter vector 'a' must be one dimensional, but a.shape = {alpha.shape}")
    n = alpha.shape[0]
    if not x.ndim or x.shape[0] not in (n, n - 1):
        raise ValueError("vector 'x' must have either the same number of entries as, or one entry "
                         f"fewer than, parameter vector 'a', but alpha.shape = {tuple(alpha.shape)} and x.shape = "
                         f"{tuple(x.shape)}")
    alpha = all_positive(alpha, "stats.dirichlet")
    if x.shape[0] == n - 1:
        last = subtract(1.0, ops.np.sum(x, 0, keepdims=True))
        x = ops.np.concatenate((x, last), 0)
    x = ops.np.moveaxis(on_simplex(ops.np.moveaxis(x, 0, -1), "stats.dirichlet"), -1, 0)
    alphas = ops.np.reshape(alpha, (n, *(1,) * (x.ndim - 1)))
    inside = mask_of(lambda of, x, alphas: of.logical_or(of.not_equal(x, 0), of.greater_equal(alphas, 1)), x, alphas)
    if inside is not None:
        x = where(all_finite_there(inside, "stats.dirichlet"), x, 1.0)
    constant = subtract(gammaln(ops.np.sum(alpha)), ops.np.sum(gammaln(alpha)))
    return add(ops.np.sum(xlogy(subtract(alphas, 1.0), x), 0), constant)


def check_positive(alpha: Any, who: str) -> None:
    """Raise SciPy's error for parameters that are not positive."""
    if not (alpha > 0).all():
        raise ValueError(f"{who}: all parameters must be greater than 0")


def check_on_simplex(x: Any, who: str) -> None:
    """Raise SciPy's error for vectors along the last axis that are not probabilities."""
    if (x < 0).any():
        raise ValueError(f"{who}: each entry in 'x' must be greater than or equal to zero")
    if (x > 1).any():
        raise ValueError(f"{who}: each entry in 'x' must be smaller or equal one")
    if (abs(x.sum(-1) - 1) > 10e-10).any():
        raise ValueError(f"{who}: the input vector 'x' must lie within the normal simplex, but np.sum(x, 0) = "
                         f"{x.sum(-1)}")


def check_finite_there(inside: Any, who: str) -> None:
    """Raise SciPy's error where the density is infinite."""
    if not inside.all():
        raise ValueError(f"{who}: each entry in 'x' must be greater than zero if its alpha is less than one")


all_positive = value_check("stats_positive", check_positive)
on_simplex = value_check("stats_on_simplex", check_on_simplex)
all_finite_there = value_check("stats_finite_there", check_finite_there)


def dirichlet_pdf(x: Any, alpha: Any) -> Any:
    """Return the density at vectors along the first axis. Their last element may be left out."""
    return exp(dirichlet_logpdf(x, alpha))


dirichlet = Methods("dirichlet", "The Dirichlet distribution.")
add_method(dirichlet, "logpdf", dirichlet_logpdf)
add_method(dirichlet, "pdf", dirichlet_pdf)
add_refusals(dirichlet, {"rvs": REFUSED["rvs"]})

SCIPY.install("stats")
__all__ = sorted(name for name, value in globals().items() if isinstance(value, Methods))
__dir__ = only_public(globals())
