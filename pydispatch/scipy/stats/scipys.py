"""Distributions whose formulas are SciPy's own, run on Tensors.

SciPy writes each distribution as a class with the formulas `_pdf`, `_cdf`, `_ppf`, ..., in standard form, for values
inside of the support. Those of a copy (see `borrowed.py`) take Tensors.
"""

# tests: tests/scipy/test_stats.py
from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import inf, nan
from threading import RLock
from typing import Any

import numpy as np
from scipy import stats

from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import DataDependentError
from pydispatch.numpy.declare import known_values
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.scipy.batches import by_example_if_needed
from pydispatch.scipy.borrowed import Borrowed, copy_of
from pydispatch.scipy.stats.distributions import (
    REFUSED,
    REFUSED_OF_INTEGERS,
    DiscreteDistribution,
    Distribution,
    Parameter,
    add_method,
    add_refusals,
    both,
    is_number,
    log_probability,
    mask_of,
    positive,
    with_signature,
)

declaring = RLock()
add, divide, log, subtract, where = LIBRARY.operators("add", "divide", "log", "subtract", "where")


class ScipysDistribution(Distribution):
    """A distribution by SciPy's formulas."""

    def __init__(self, name: str) -> None:
        scipys = getattr(stats, name)
        shapes = tuple([Parameter(shape.strip()) for shape in (scipys.shapes or "").split(",") if shape])
        super().__init__(name, shapes, nan, nan, nan, scipys.__doc__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not self.declare():
            return super().__getattr__(name)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        self.declare()
        return list(super().__dir__())

    def declare(self) -> bool:
        """Declare the methods, unless that is done. The first access to one calls this, as an import has no time."""
        with declaring:
            is_new = not self.__dict__.get("is_declared")
            if is_new:
                declare_methods(self)
                self.__dict__["is_declared"] = True
        return is_new

    @cached_property
    def formulas(self) -> Any:
        """The copy of SciPy's object."""
        return copied_distribution(self.scipys)

    def formula(self, method: str) -> Callable[..., Any]:
        """Return the formula of a method in standard form."""
        if method.startswith("log") and not overrides(self.scipys, method):
            return self.logarithm_of(method.removeprefix("log"))
        return lambda *args: by_example_if_needed(getattr(self.formulas, f"_{method}"), args, {})

    def logarithm_of(self, method: str) -> Callable[..., Any]:
        """Return the formula of a logarithm: of a probability, from whichever of it and its complement is smaller."""
        def of_probability(*args: Any) -> Any:
            return log_probability(*[self.formula(each)(*args) for each in (method, COMPLEMENT[method])])
        if method in COMPLEMENT and not isinstance(self, DiscreteDistribution):
            return of_probability
        return lambda *args: log(self.formula(method)(*args))

    def searched(self, method: str) -> Callable[..., Any]:
        """Return the formula of a quantile that SciPy searches for, with derivatives from F(y) = q."""
        of_probability, density = self.formula("cdf" if method == "ppf" else "sf"), self.formula("pdf")

        def search(q: Any, *shapes: Any) -> Any:
            with np.errstate(all="ignore"):
                y = getattr(self.scipys, f"_{method}")(known(q), *map(known, shapes))
            y = as_tensor(np.asarray(y))
            for _ in range(3):      # each doubles the order of the derivatives that are right, and moves y by 0
                step = divide(subtract(of_probability(y, *shapes), q), density(y, *shapes))
                step = subtract(step, known(step))
                y = subtract(y, step) if method == "ppf" else add(y, step)
            return y

        def known(value: Any) -> Any:
            found = value if isinstance(value, (int, float)) else known_values(value)
            if found is None:
                raise DataDependentError(f"stats.{self.name}.{method} searches for a value, which a trace cannot\n"
                                         "compute it outside")
            return found

        return lambda *args: by_example_if_needed(search, args, {})

    def scaled(self, formula: Callable[..., Any]) -> Callable[..., Any]:
        """Return the formula of pdf from one in standard form."""
        def of_scaled(y: Any, given: dict[str, Any]) -> Any:
            found = formula(y, *self.shapes_of(given))
            return found if is_number(given["scale"], 1) else divide(found, given["scale"])
        return of_scaled

    def checked(self, given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        shapes = self.shapes_of(given)
        allowed = mask_of(lambda of, *values: (self.scipys if of is np else self.formulas)._argcheck(*values), *shapes
                          ) if shapes else None
        return given, both(allowed, mask_of(positive, given["scale"]))

    def ends(self, given: dict[str, Any]) -> tuple[Any, Any]:
        shapes = self.shapes_of(given)
        known = [shape if isinstance(shape, (int, float)) else known_values(shape) for shape in shapes]
        low, high = (self.formulas._get_support(*shapes) if any(each is None for each in known)
                     else self.scipys._get_support(*known))
        return as_end(low), as_end(high)

    def within(self, y: Any, given: dict[str, Any]) -> Any:
        is_open = getattr(type(self.scipys), "_support_mask", None) is stats.rv_continuous._open_support_mask
        return both(*self.past_ends(y, given)) if is_open else super().within(y, given)

    def inside(self, given: dict[str, Any]) -> Any:
        low, high = self.ends(given)
        below = other_end(low, high, -2.0)
        return (below + other_end(high, low, 2.0)) / 2


def as_end(value: Any) -> Any:
    """Return an end of a support, as a number if it is one."""
    return float(value) if isinstance(value, (int, float, np.generic, np.ndarray)) and np.ndim(value) == 0 else value


def other_end(end: Any, opposite: Any, distance: float) -> Any:
    """Return a finite number in place of an infinite end: at a distance from the other end, if that is finite."""
    if isinstance(end, float) and isinstance(opposite, float):
        return end if abs(end) != inf else opposite + distance if abs(opposite) != inf else distance / 2
    isfinite = ops.np.isfinite
    return where(isfinite(end), end, where(isfinite(opposite), opposite + distance, distance / 2))


class ScipysDiscreteDistribution(ScipysDistribution, DiscreteDistribution):
    """A distribution of integers by SciPy's formulas."""

    def checked(self, given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        return super().checked({**given, "scale": 1})


def copied_distribution(scipys: Any) -> Any:
    """Return the distribution of the same name in the copy of its module."""
    return getattr(copy_of(type(scipys).__module__), scipys.name)


def make_scipys(name: str) -> ScipysDistribution:
    """Return a distribution by SciPy's formulas."""
    is_discrete = isinstance(getattr(stats, name), stats.rv_discrete)
    return (ScipysDiscreteDistribution if is_discrete else ScipysDistribution)(name)


def declare_methods(distribution: ScipysDistribution) -> None:
    """Declare the methods of a distribution by SciPy's formulas. Refuse those that SciPy computes numerically."""
    name, is_discrete = distribution.name, isinstance(distribution, DiscreteDistribution)
    ending, first = ("pmf", "k") if is_discrete else ("pdf", "x")
    formula = distribution.formula
    methods = {
        ending: distribution.density(distribution.scaled(formula(ending)), 0.0),
        f"log{ending}": distribution.density(distribution.log_density(formula(f"log{ending}")), -inf),
        "cdf": distribution.probability(formula("cdf"), 0.0, 1.0),
        "sf": distribution.probability(formula("sf"), 1.0, 0.0),
        "logcdf": distribution.probability(formula("logcdf"), -inf, 0.0),
        "logsf": distribution.probability(formula("logsf"), 0.0, -inf)}
    refused = dict(REFUSED_OF_INTEGERS if is_discrete else REFUSED)
    if not is_discrete:
        methods["ppf"] = distribution.quantile(formula("ppf"))
        methods["isf"] = distribution.quantile(formula("isf"), 1.0)
    numeric = numeric_methods(distribution.scipys).union(COMPILED.get(name, "").split())
    for method, at_low in (("ppf", 0.0), ("isf", 1.0)):
        if method in methods and method in numeric and name not in KINKED and not numeric & {"cdf", "sf", "pdf"}:
            methods[method] = distribution.quantile(distribution.searched(method), at_low)
            numeric.remove(method)
    for method, function in methods.items():
        if method in numeric:
            refused[method] = NUMERIC
        else:
            of = "q" if method in ("ppf", "isf") else first
            add_method(distribution, method, with_signature(method, of, function))
    add_refusals(distribution, refused)
    declare_moments(distribution)


def declare_moments(distribution: Distribution) -> None:
    """Declare the methods of a distribution that take its parameters only, and for which SciPy has a formula."""
    excluded = COMPILED.get(distribution.name, "").split()
    for method, formula in FORMULA_OF_MOMENT.items():
        if overrides(distribution.scipys, formula) and not {method, formula}.intersection(excluded) and not (
                method == "median" and isinstance(distribution, DiscreteDistribution)):
            add_method(distribution, method, BorrowedMethod(distribution.scipys, method))


FORMULA_OF_MOMENT = {"entropy": "entropy", "mean": "stats", "median": "ppf", "std": "stats", "var": "stats"}


class BorrowedMethod(Borrowed):
    """The implementation of a distribution's method by the copy of SciPy's object."""

    def __init__(self, scipys: Any, method: str) -> None:
        super().__init__(getattr(scipys, method))
        self.scipys = scipys

    def function(self) -> Callable[..., Any]:
        return getattr(copied_distribution(self.scipys), self.__name__)


COMPILED: dict[str, str] = {
    **dict.fromkeys(
        ("genhyperbolic", "geninvgauss", "irwinhall", "ksone", "kstwo", "kstwobign", "landau", "levy_stable", "ncf",
         "nchypergeom_fisher", "nchypergeom_wallenius", "nct", "pearson3", "poisson_binom", "studentized_range",
         "zipfian"), "pdf logpdf pmf logpmf cdf sf logcdf logsf ppf isf entropy stats"),
    **dict.fromkeys(("vonmises", "vonmises_line", "norminvgauss", "skewnorm"), "cdf sf logcdf logsf ppf isf"),
    **dict.fromkeys(("gennorm", "invgauss", "wald"), "ppf isf"),
    "dgamma": "cdf sf logcdf logsf ppf isf", "dweibull": "ppf isf", "dpareto_lognorm": "sf logsf",
    "hypergeom": "logcdf logsf entropy", "jf_skew_t": "stats", "kappa4": "ppf stats entropy", "ncx2": "pdf logpdf isf",
}
"""Methods by code that is compiled, or whose derivative is not finite, and so cannot run on Tensors."""
KINKED = ("dweibull", "gennorm")
"""Distributions whose quantiles have no derivative at the median."""
NUMERIC = "SciPy computes it by a search, an integral or compiled code, without a derivative here: pass plain arrays"
COMPLEMENT = {"cdf": "sf", "sf": "cdf"}


def numeric_methods(scipys: Any) -> set[str]:
    """Return the methods for which SciPy has no formula, but a search or an integral."""
    found: set[str] = set()
    for methods in (("pdf", "logpdf"), ("pmf", "logpmf"), ("cdf", "sf"), ("ppf", "isf")):
        if not any(overrides(scipys, method) for method in methods):
            found.update(methods, [f"log{method}" for method in methods])
    return found


def overrides(scipys: Any, method: str) -> bool:
    """Return whether a distribution has a formula for a method, in place of the one for all distributions."""
    base = stats.rv_discrete if isinstance(scipys, stats.rv_discrete) else stats.rv_continuous
    return getattr(type(scipys), f"_{method}", None) is not getattr(base, f"_{method}", None)
