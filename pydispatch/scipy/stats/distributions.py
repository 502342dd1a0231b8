"""Distributions: objects with SciPy's methods, written with operators.

If `x` or a parameter is outside of the domain of a formula, the formula gets a number inside instead, and its result is
dropped. No gradient is nan for this reason.
"""

# tests: tests/scipy/test_stats.py

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from importlib import import_module
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from pydispatch._core import is_array
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import COMPOSITE, as_array, as_nonscalar, known_values
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE

add, divide, exp, log1p, multiply, negative, subtract, where = LIBRARY.operators(
    "add", "divide", "exp", "log1p", "multiply", "negative", "subtract", "where")
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


def log_probability(probability: Any, complement: Any) -> Any:
    """Return the logarithm of a probability from it or its complement, whichever is smaller and so more precise."""
    small = mask_of(lambda of, value: of.logical_not(of.greater_equal(value, 0.5)), probability)
    if small is None:
        return logarithm(probability)
    large = log1p(negative(where(small, 0.5, complement)))
    return where(small, logarithm(where(small, probability, 0.5)), large)


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
    """The methods of one distribution. Those that are not declared here are SciPy's own.

    SciPy's class is the `__class__` of the object, so that it is an instance of `stats.rv_continuous`, for example.
    """

    def __init__(self, name: str, doc: str):
        self.__dict__.update(name=name, scipys=getattr(stats, name), __doc__=doc)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "scipys" not in self.__dict__:
            raise AttributeError(f"distribution has no attribute {name!r}")
        return getattr(self.scipys, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(is_array(value) and not isinstance(value, (np.ndarray, np.generic))
               for value in (*args, *kwargs.values())):
            raise DispatchTypeError(f"scipy.stats.{self.name}(...) does not take a Tensor\n"
                                    f"pass the parameters to a method: stats.{self.name}.{self.example}")
        return self.scipys(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<distribution pydispatch.scipy.stats.{self.name}>"

    @property
    def example(self) -> str:
        """A call of a method."""
        return "logpdf(x, ...)" if "logpdf" in self.__dict__ else "logpmf(x, ...)"

    @property
    def __class__(self) -> type:
        return type(self.__dict__["scipys"])

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError(f"the class of stats.{self.name} cannot change")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.scipys)})

    def __reduce__(self) -> tuple[Any, ...]:
        return copied, (self.name, self.scipys)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.scipys, name, value)       # a setting of SciPy's, such as random_state


def copied(name: str, scipys: Any) -> Methods:
    """Return a copy of a distribution, with its own generator of random numbers."""
    original = getattr(import_module("pydispatch.scipy.stats"), name)
    found: Methods = object.__new__(type(original))
    own = copy(scipys)
    found.__dict__.update(original.__dict__, scipys=own, rvs=own.rvs)
    return found


class Distribution(Methods):
    """A distribution of numbers."""

    def __init__(self, name: str, shapes: tuple[Parameter, ...], low: float, high: Any, inner: float, doc: str):
        super().__init__(name, doc)
        # `low` and `high` are the ends of the support in standard form, `inner` is a number between. `high` may be the
        # name of a parameter.
        self.__dict__.update(shape_parameters=shapes, low=low, high=high, inner=inner)

    @property
    def example(self) -> str:
        """A call of a method."""
        return f"cdf(x, {', '.join(parameter.name + '=...' for parameter in self.parameters)})"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order in which the methods take them."""
        return (*self.shape_parameters, LOCATION, SCALE)

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
        for parameter in self.shape_parameters:
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
        return [given[parameter.name] for parameter in self.shape_parameters]

    def finished(self, found: Any, y: Any, allowed: Any) -> Any:
        """Return the result, with nan where a parameter is not allowed or `x` is nan."""
        if self.low != -inf:
            allowed = both(allowed, mask_of(lambda of, y: of.equal(y, y), y))
        return chosen(allowed, found, nan)

    # --- methods

    def density(self, formula: Callable[..., Any], outside: float) -> Callable[..., Any]:
        """Return the method pdf or logpdf from a formula of a number in standard form and the parameters."""
        def of_x(method: str, x: Any, args: Any, kwargs: Any) -> Any:
            given, allowed = self.checked(self.arguments(method, args, kwargs))
            y = self.standard(as_nonscalar(x), given)
            inside = self.within(y, given)
            found = formula(self.moved_inside(inside, y, given), given)
            return self.finished(chosen(inside, found, outside), y, allowed)
        return of_x

    def log_density(self, formula: Callable[..., Any]) -> Callable[..., Any]:
        """Return the formula of logpdf from one in standard form."""
        def of_scaled(y: Any, given: dict[str, Any]) -> Any:
            found = formula(y, *self.shapes_of(given))
            return found if is_number(given["scale"], 1) else subtract(found, ops.np.log(given["scale"]))
        return of_scaled

    def moved_inside(self, mask: Any, y: Any, given: dict[str, Any]) -> Any:
        """Return `y` where the mask holds, and a number inside of the support elsewhere."""
        return y if mask is None else where(mask, y, self.inside(given))

    def ends(self, given: dict[str, Any]) -> tuple[Any, Any]:
        """Return the ends of the support in standard form."""
        return self.low, given.get(self.high, self.high)

    def inside(self, given: dict[str, Any]) -> Any:
        """Return a number where all formulas are smooth."""
        return self.inner

    def within(self, y: Any, given: dict[str, Any]) -> Any:
        """Return a mask of where the density is not 0."""
        low, high = self.ends(given)
        over = None if is_number(low, -inf) else mask_of(lambda of, y, low: of.greater_equal(y, low), y, low)
        under = None if is_number(high, inf) else mask_of(lambda of, y, high: of.less_equal(y, high), y, high)
        return both(over, under)

    def probability(self, formula: Callable[..., Any], below: float, above: float) -> Callable[..., Any]:
        """Return a distribution function with its values below and above the support."""
        def of_x(method: str, x: Any, args: Any, kwargs: Any) -> Any:
            given, allowed = self.checked(self.arguments(method, args, kwargs))
            y = self.standard(as_nonscalar(x), given)
            over, under = self.past_ends(y, given)
            inside = both(over, under)
            found = formula(self.moved_inside(inside, y, given), *self.shapes_of(given))
            return self.finished(chosen(under, chosen(over, found, below), above), y, allowed)
        return of_x

    def past_ends(self, y: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        """Return masks of where `y` is above the lower end of the support, and where it is below the upper one."""
        low, high = self.ends(given)
        over = None if is_number(low, -inf) else mask_of(lambda of, y, low: of.greater(y, low), y, low)
        under = None if is_number(high, inf) else mask_of(lambda of, y, high: of.less(y, high), y, high)
        return over, under

    def quantile(self, formula: Callable[..., Any], at_low: float = 0.0) -> Callable[..., Any]:
        """Return the method ppf or isf from a formula for it. The lower end of the support is that of `at_low`."""
        def of_q(method: str, q: Any, args: Any, kwargs: Any) -> Any:
            given, allowed = self.checked(self.arguments(method, args, kwargs))
            q = self.standard(as_nonscalar(q), {"loc": 0, "scale": 1})
            inside = mask_of(lambda of, q: of.logical_and(of.greater(q, 0), of.less(q, 1)), q)
            found = moved(formula(chosen(inside, q, 0.5), *self.shapes_of(given)), given)
            if inside is not None:
                low, high = [end if is_number(end, inf) or is_number(end, -inf) else moved(end, given)
                             for end in self.ends(given)]
                at_end = where(ops.np.equal(q, at_low), low, where(ops.np.equal(q, 1.0 - at_low), high, nan))
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
        return (*self.shape_parameters, LOCATION)

    def within(self, y: Any, given: dict[str, Any]) -> Any:
        return both(super().within(y, given), mask_of(lambda of, y: of.equal(y, of.floor(y)), y))

    def past_ends(self, y: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        _, under = super().past_ends(y, given)
        low, _ = self.ends(given)
        return mask_of(lambda of, y, low: of.greater_equal(y, low), y, low), under


# --- declarations ----------------------------------------------------------------------------------------------------

REFUSED = {
    "rvs": "draw random numbers by pydispatch.numpy.random, and shift and scale them",
    "fit": "a fit has no gradient: maximize the sum of logpdf or logpmf over the parameters",
}
REFUSED_OF_INTEGERS = {
    "rvs": REFUSED["rvs"],
    **dict.fromkeys(("ppf", "isf"), "quantiles of integers are integers without gradients: pass arrays")}


def add_method(distribution: Any, method: str, call: Callable[..., Any]) -> None:
    """Declare one method as an array function."""
    path = f"{distribution.name}.{method}"
    keep_method(distribution, method, FACE.declare(f"stats.{path}", call, COMPOSITE))


def keep_method(distribution: Any, method: str, function: Any) -> None:
    """Add an array function to a distribution. Its name is that by which it is found, as when it is pickled."""
    function.__dict__.update(__qualname__=f"{distribution.name}.{method}", __module__="pydispatch.scipy.stats")
    distribution.__dict__[method] = function


def add_refusals(distribution: Any, refused: Mapping[str, str]) -> None:
    """Declare the methods that do not take Tensors."""
    for method, reason in refused.items():
        path = f"stats.{distribution.name}.{method}"
        FACE.refuse({path: reason})
        keep_method(distribution, method, FACE.functions[path])


def with_signature(method: str, first: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with SciPy's name for its first argument."""
    if first == "k":
        return lambda k, *args, **kwds: function(method, k, args, kwds)
    if first == "q":
        return lambda q, *args, **kwds: function(method, q, args, kwds)
    return lambda x, *args, **kwds: function(method, x, args, kwds)


def declare(distribution: Distribution, log_density: Callable[..., Any], cdf: Callable[..., Any],
            sf: Callable[..., Any], ppf: Callable[..., Any] | None = None, isf: Callable[..., Any] | None = None,
            logcdf: Callable[..., Any] | None = None, logsf: Callable[..., Any] | None = None) -> Distribution:
    """Declare the methods of a distribution from formulas in standard form."""
    is_discrete = isinstance(distribution, DiscreteDistribution)
    ending, first = ("pmf", "k") if is_discrete else ("pdf", "x")
    log_scaled = distribution.log_density(log_density)

    def log_of(probability: Callable[..., Any], complement: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return (logarithm(probability(*args)) if is_discrete
                else log_probability(probability(*args), complement(*args)))

    methods = {
        ending: distribution.density(lambda y, given: exp(log_scaled(y, given)), 0.0),
        f"log{ending}": distribution.density(log_scaled, -inf),
        "cdf": distribution.probability(cdf, 0.0, 1.0), "sf": distribution.probability(sf, 1.0, 0.0),
        "logcdf": distribution.probability(logcdf or (lambda *args: log_of(cdf, sf, args)), -inf, 0.0),
        "logsf": distribution.probability(logsf or (lambda *args: log_of(sf, cdf, args)), 0.0, -inf)}
    for method, function in methods.items():
        add_method(distribution, method, with_signature(method, first, function))
    for method, formula, at_low in (("ppf", ppf, 0.0), ("isf", isf, 1.0)):
        if formula is not None:
            add_method(distribution, method, with_signature(method, "q", distribution.quantile(formula, at_low)))
    add_refusals(distribution, REFUSED_OF_INTEGERS if is_discrete else REFUSED)
    return distribution
