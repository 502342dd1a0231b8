"""Distributions by SciPy's formulas: values, gradients, batches and plans of each method, against SciPy's values."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.stats as theirs

import pydispatch
from pydispatch import Tensor
from pydispatch.exceptions import DataDependentError
from pydispatch.func import grad, vmap
from pydispatch.numpy.declare import REFUSED
from pydispatch.scipy import stats
from pydispatch.scipy.pack import FACE
from tests.scipy import families  # noqa: F401  declares all methods
from tests.together import together

SHAPES: dict[str, tuple[float, ...]] = {
    "alpha": (4.11,), "anglit": (), "arcsine": (), "argus": (1.15,), "beta": (2.66, 1.72), "betaprime": (5.75, 6.9),
    "bradford": (0.34,), "burr": (12.07, 4.94), "burr12": (11.5, 4.6), "cauchy": (), "chi": (89.7,), "chi2": (63.25,),
    "cosine": (), "crystalball": (2.3, 3.45), "dgamma": (1.27,), "dpareto_lognorm": (3.45, 1.38, 1.72, 2.3),
    "dweibull": (2.38,), "erlang": (11,), "expon": (), "exponnorm": (1.72,), "exponpow": (3.1,),
    "exponweib": (3.33, 2.24), "f": (33.35, 20.7), "fatiguelife": (2.2,), "fisk": (3.55,), "foldcauchy": (5.42,),
    "foldnorm": (2.24,), "gamma": (2.29,), "gausshyper": (15.83, 3.59, 2.89, 5.96), "genexpon": (10.5, 18.67, 3.77),
    "genextreme": (-0.11,), "gengamma": (5.08, 3.59), "genhalflogistic": (0.89,),
    "genhyperbolic": (0.57, 1.72, -0.57), "geninvgauss": (2.64, 1.72), "genlogistic": (0.47,), "gennorm": (1.49,),
    "halfgennorm": (0.78,), "genpareto": (0.11,), "gibrat": (), "gompertz": (1.09,), "gumbel_l": (), "gumbel_r": (),
    "halfcauchy": (), "halflogistic": (), "halfnorm": (), "hypsecant": (), "invgamma": (4.68,), "invgauss": (0.17,),
    "invweibull": (12.17,), "irwinhall": (9.0,), "jf_skew_t": (9.2, 4.6), "johnsonsb": (4.96, 3.66),
    "johnsonsu": (2.94, 2.59), "kappa4": (0.3, 0.4), "kappa3": (1.15,), "ksone": (12.0,), "kstwo": (9.0,),
    "kstwobign": (), "landau": (), "laplace": (), "laplace_asymmetric": (2.3,), "levy": (), "levy_l": (),
    "levy_stable": (1.62, -0.57), "loggamma": (0.48,), "logistic": (), "loglaplace": (3.74,), "lognorm": (1.1,),
    "loguniform": (0.01, 1.44), "lomax": (2.16,), "maxwell": (), "mielke": (11.96, 5.29), "moyal": (),
    "nakagami": (5.71,), "ncf": (31.05, 31.05, 0.48), "nct": (16.1, 0.28), "ncx2": (24.15, 1.21), "norm": (),
    "norminvgauss": (1.44, 0.57), "pareto": (3.01,), "pearson3": (0.11,), "powerlaw": (1.91,),
    "powerlognorm": (2.46, 0.51), "powernorm": (5.11,), "rayleigh": (), "rdist": (1.84,), "recipinvgauss": (0.72,),
    "reciprocal": (0.01, 1.44), "rel_breitwigner": (42.03,), "rice": (0.89,), "semicircular": (),
    "skewcauchy": (0.57,), "skewnorm": (4.6,), "studentized_range": (3.45, 11.5), "t": (3.15,),
    "trapezoid": (0.23, 0.92), "triang": (0.18,), "truncexpon": (5.39,), "truncnorm": (-1.26, 3.14),
    "truncpareto": (2.07, 6.09), "truncweibull_min": (2.88, 0.29, 2.01), "tukeylambda": (3.6,), "uniform": (),
    "vonmises": (4.59,), "vonmises_line": (4.59,), "wald": (), "weibull_max": (3.3,), "weibull_min": (2.05,),
    "wrapcauchy": (0.04,), "bernoulli": (0.34,), "betabinom": (6, 2.64, 0.72), "betanbinom": (6, 10.7, 2),
    "binom": (6, 0.46), "boltzmann": (1.61, 20), "dlaplace": (0.92,), "geom": (0.57,), "hypergeom": (31, 13, 7),
    "nchypergeom_fisher": (141, 81, 61, 0.57), "nchypergeom_wallenius": (141, 81, 61, 0.57), "logser": (0.69,),
    "nbinom": (0.46, 0.46), "planck": (0.59,), "poisson": (0.69,), "randint": (8, 32), "skellam": (16, 9),
    "zipf": (7.59,), "zipfian": (0.86, 16), "yulesimon": (12.0,), "nhypergeom": (21, 8, 2),
}
"""Values of the shape parameters, by distribution."""

LOCATION, SCALE = 0.3, 1.7
MOMENTS = ("entropy", "mean", "median", "std", "var")
OF_PROBABILITIES = ("ppf", "isf")
PROBABILITIES = np.array([0.15, 0.3, 0.5, 0.7, 0.9])
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning",
                                         "ignore:overflow:RuntimeWarning")
"""Formulas that SciPy computes for a part of the elements only also compute here for the others, which are dropped."""
OURS = [name for name in stats.__all__ if name in SHAPES]
OF_POINTS = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "sf", "logcdf", "logsf", *OF_PROBABILITIES)


def taken(methods: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the distributions and methods that take Tensors."""
    return [(name, method) for name in OURS for method in methods
            if FACE.kinds.get(f"stats.{name}.{method}", REFUSED) != REFUSED]


CALLS, CALLS_OF_PARAMETERS = taken(OF_POINTS), taken(MOMENTS)


def of(module: Any, name: str, method: str) -> Any:
    """Return a method of a distribution."""
    return getattr(getattr(module, name), method)


def arguments(name: str, method: str) -> tuple[Any, ...]:
    """Return points inside of the support and the parameters, moved and scaled where the distribution can be."""
    scipys = getattr(theirs, name)
    discrete = isinstance(scipys, theirs.rv_discrete)
    parameters = (*SHAPES[name], *((3,) if discrete else (LOCATION, SCALE)))
    if method in OF_PROBABILITIES:
        return (PROBABILITIES, *parameters)
    if method in MOMENTS:
        return parameters
    if discrete:
        points = np.unique(scipys.rvs(*parameters, size=5, random_state=1)).astype(float)
        return (points[scipys.sf(points, *parameters) > 0], *parameters)
    return (scipys.ppf(PROBABILITIES, *parameters) + 1e-3, *parameters)


@together("name, method", CALLS)
def test_values_are_scipys(name, method):
    x, *parameters = arguments(name, method)
    x = np.concatenate([x, [-1e3, -0.5, 0.0, 0.5, 1.0, 2.0, 1e3, np.nan]])
    with np.errstate(all="ignore"):
        expected = of(theirs, name, method)(x, *parameters)
        found = of(stats, name, method).on_tensors(x, *parameters)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300, equal_nan=True)


@together("name, method", CALLS_OF_PARAMETERS)
def test_moments_are_scipys(name, method):
    parameters = arguments(name, method)
    expected = of(theirs, name, method)(*parameters)
    found = of(stats, name, method)(*map(Tensor, parameters))
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def differentiable(name: str, method: str) -> list[int]:
    """Return the positions of the arguments that have gradients: not x of a distribution of integers, nor counts."""
    discrete, first = isinstance(getattr(theirs, name), theirs.rv_discrete), method not in MOMENTS
    shapes = [i + first for i, shape in enumerate(SHAPES[name]) if isinstance(shape, float) or not discrete]
    others = [] if discrete else [*([0] if first else []), len(SHAPES[name]) + first, len(SHAPES[name]) + first + 1]
    return [place for place in sorted(shapes + others) if place - first not in NO_SLOPE.get(name, ())]


NO_SLOPE = {"erlang": (0,), "gausshyper": (0, 1, 2), "ncx2": (0,)}
"""Shapes that are whole numbers, or in which special functions have no derivatives."""


@together("name, method", CALLS + CALLS_OF_PARAMETERS)
def test_gradients_are_those_of_finite_differences(name, method):
    args, places = arguments(name, method), differentiable(name, method)
    if not places:
        return
    weights = np.cos(np.arange(np.size(args[0]))) if method not in MOMENTS else 1.0
    found = grad(lambda *args: np.sum(of(stats, name, method)(*args) * weights), tuple(places))(*args)
    for place, slope in zip(places, found, strict=True):
        direction = np.cos(3 * np.arange(np.size(args[place]))).reshape(np.shape(args[place]))
        step = 1e-5 * max(1.0, float(np.abs(args[place]).max()))

        def value(k, place=place, shift=step * direction):
            moved = [arg + k * shift if i == place else arg for i, arg in enumerate(args)]
            return float(np.sum(of(theirs, name, method)(*moved) * weights))

        expected = (8 * (value(1) - value(-1)) - (value(2) - value(-2))) / (12 * step)
        if np.isfinite(expected):       # some moments are infinite
            np.testing.assert_allclose((slope * direction).sum(), expected, rtol=2e-4, atol=1e-6,
                                       err_msg=f"argument {place}")


@together("name", ["argus", "foldnorm", "invgauss"])
def test_searched_quantiles_have_second_derivatives(name):
    def slope(q):
        return grad(lambda q: of(stats, name, "ppf")(q, *SHAPES[name]))(q)

    q, step = np.array(0.3), 1e-5
    np.testing.assert_allclose(grad(slope)(q), (slope(q + step) - slope(q - step)) / (2 * step), rtol=1e-5)


@together("name, method", CALLS)
def test_vmap_is_a_loop(name, method):
    x, *parameters = arguments(name, method)
    function = of(stats, name, method)
    batch = np.stack([x, x[::-1]])
    found = vmap(lambda x: function(x, *parameters))(batch)
    np.testing.assert_allclose(found, [function(each, *parameters) for each in batch], rtol=1e-12)


BY_VALUES = {"betaprime": ("ppf", "isf"), "jf_skew_t": ("ppf", "isf"), "kappa3": ("sf", "logcdf", "logsf"),
             "logser": ("cdf", "logcdf"), "nbinom": ("logcdf",), "skellam": ("pmf", "logpmf"),
             "truncnorm": ("cdf", "sf", "logcdf", "logsf"),
             **dict.fromkeys(("argus", "exponnorm", "foldcauchy", "foldnorm", "invgauss", "recipinvgauss",
                              "rel_breitwigner", "wald"), ("ppf", "isf")), "kappa4": ("ppf",)}
"""Methods whose code depends on values, which a trace lacks."""


@together("name, method", CALLS)
def test_compiled_is_eager(name, method):
    args, function = arguments(name, method), of(stats, name, method)
    if method in BY_VALUES.get(name, ()):
        with pytest.raises(DataDependentError):
            pydispatch.compile(function)(*args)
        return
    np.testing.assert_allclose(pydispatch.compile(function)(*args), function(*args), rtol=1e-12)


# --- SciPy's objects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["norm", "cauchy", "poisson", "zipf", "dirichlet"])
def test_a_distribution_is_an_instance_of_scipys_class(name):
    ours, scipys = getattr(stats, name), getattr(theirs, name)
    assert isinstance(ours, type(scipys))
    assert getattr(ours, "shapes", None) == getattr(scipys, "shapes", None)
    assert {each for each in dir(scipys) if not each.startswith("_")} <= set(dir(ours))


def test_scipys_functions_take_a_distribution():
    assert theirs.make_distribution(stats.beta)(a=2.0, b=3.0).mean() == 0.4


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize("name", ["norm", "cauchy", "poisson"])
def test_a_copy_of_a_distribution_draws_from_its_own_generator(name, copied):
    shapes = SHAPES[name]
    ours = copied(getattr(stats, name))
    ours.random_state = 3
    assert (ours.rvs(*shapes, size=4) == getattr(theirs, name).rvs(*shapes, size=4, random_state=3)).all()
    assert getattr(theirs, name).random_state is not ours.random_state
    assert grad(lambda loc: ours.cdf(0.5, *shapes, loc))(0.0) == grad(
        lambda loc: getattr(stats, name).cdf(0.5, *shapes, loc))(0.0)


@pytest.mark.parametrize("method", ["cdf", "fit", "rvs"])
def test_a_method_is_pickled_by_its_name(method):
    assert pickle.loads(pickle.dumps(getattr(stats.norm, method))) is getattr(stats.norm, method)


def test_a_setting_of_scipys_has_its_effect():
    x = np.array([-1.0, 0.5, 2.0])
    try:
        stats.levy_stable.parameterization = "S0"
        found = stats.levy_stable.pdf(x, 1.5, 0.6)
        expected = theirs.levy_stable.pdf(x, 1.5, 0.6)
    finally:
        stats.levy_stable.parameterization = "S1"
    assert (found == expected).all()
    assert (found != theirs.levy_stable.pdf(x, 1.5, 0.6)).all()
