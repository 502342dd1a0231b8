"""Distributions: they add up to 1, have no gradient outside of their support, and are those of other libraries."""

import operator
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats as theirs

import pydispatch
from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func import grad, jacfwd, vmap
from pydispatch.scipy import stats
from pydispatch.scipy.stats import scipys
from tests.scipy.samples.sample import between
from tests.together import together

SHAPES = {"norm": (), "t": (3.5,), "gamma": (1.7,), "beta": (1.5, 2.5), "expon": (), "uniform": (), "laplace": (),
          "chi2": (3.3,)}
BOUNDED = {"gamma": (-1.0,), "expon": (-0.5,), "chi2": (-2.0,), "beta": (-0.3, 1.2), "uniform": (-0.1, 1.5)}
METHODS = ["pdf", "logpdf", "cdf", "sf", "logcdf", "logsf"]


def method_of(name):
    return operator.attrgetter(name)(stats)


@pytest.mark.parametrize("name", SHAPES)
def test_densities_integrate_to_one(name):
    low, high = getattr(theirs, name).interval(1 - 1e-9, *SHAPES[name])
    x = np.linspace(low, high, 400_001)
    y = method_of(f"{name}.pdf")(Tensor(x), *SHAPES[name]).numpy()
    assert np.trapezoid(y[np.isfinite(y)], x[np.isfinite(y)]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_the_slope_of_the_distribution_function_is_the_density(name):
    x = np.array([0.21, 0.47, 0.93])
    slope = vmap(grad(lambda x: method_of(f"{name}.cdf")(x, *SHAPES[name])))(x)
    np.testing.assert_allclose(slope, getattr(theirs, name).pdf(x, *SHAPES[name]), rtol=1e-9)
    slope = vmap(grad(lambda x: method_of(f"{name}.logsf")(x, *SHAPES[name])))(x)
    expected = getattr(theirs, name)
    np.testing.assert_allclose(slope, -expected.pdf(x, *SHAPES[name]) / expected.sf(x, *SHAPES[name]), rtol=1e-9)


@pytest.mark.parametrize("name", SHAPES)
def test_quantiles_are_the_inverse(name):
    q = np.array([0.05, 0.3, 0.5, 0.9])
    shapes = SHAPES[name]

    def back(q):
        return method_of(f"{name}.cdf")(method_of(f"{name}.ppf")(q, *shapes, 0.3, 1.7), *shapes, 0.3, 1.7)

    np.testing.assert_allclose(vmap(back)(q), q, rtol=1e-9)
    np.testing.assert_allclose(vmap(grad(back))(q), np.ones(4), rtol=1e-6)


@pytest.mark.parametrize("name", BOUNDED)
@together("method", METHODS)
def test_outside_of_the_support_there_is_no_gradient(name, method):
    function = method_of(f"{name}.{method}")
    x, shapes = np.array(BOUNDED[name]), [np.float64(value) for value in SHAPES[name]]
    parameters = (*shapes, np.float64(0.0), np.float64(1.0))

    def summed(x, *parameters):
        y = function(x, *parameters)
        return ops.np.sum(ops.np.where(ops.np.isfinite(y), y, 0.0))

    places = tuple(range(len(parameters) + 1))
    np.testing.assert_array_equal(function(Tensor(x), *parameters).numpy(),
                                  getattr(getattr(theirs, name), method)(x, *parameters))
    for gradient in grad(lambda x, *rest: ops.np.sum(function(x, *rest)), places)(x, *parameters):
        np.testing.assert_array_equal(gradient, np.zeros(np.shape(gradient)))
    for gradient in vmap(grad(summed, places), in_dims=(0,) + (None,) * len(parameters))(x, *parameters):
        np.testing.assert_array_equal(gradient, np.zeros(np.shape(gradient)))
    inside = grad(lambda x, *rest: ops.np.sum(function(x, *rest)), places)(np.full(2, 0.4), *parameters[:-1],
                                                                           np.float64(-1.0))
    for gradient in inside:
        np.testing.assert_array_equal(gradient, np.zeros(np.shape(gradient)))


@pytest.mark.parametrize(("name", "parameters"), [("poisson", (2.5,)), ("binom", (12, 0.3))])
def test_probabilities_of_integers_add_up(name, parameters):
    k = np.arange(60)
    pmf = method_of(f"{name}.pmf")(Tensor(k), *parameters).numpy()
    np.testing.assert_allclose(pmf.sum(), 1)
    np.testing.assert_allclose(method_of(f"{name}.cdf")(Tensor(k), *parameters).numpy(), np.cumsum(pmf), atol=1e-13)
    scores = jacfwd(lambda p: method_of(f"{name}.pmf")(k, *parameters[:-1], p))(np.float64(parameters[-1]))
    assert abs(scores.sum()) < 1e-12


@pytest.mark.parametrize("name", ["poisson", "binom"])
def test_between_integers_there_is_nothing(name):
    parameters = {"poisson": (2.5,), "binom": (7, 0.3)}[name]
    k = np.array([-1.0, 0.5, 1.0, 8.0])
    for method in ("logpmf", "pmf", "cdf", "logsf"):
        gradient = grad(lambda k, m=method: ops.np.sum(method_of(f"{name}.{m}")(k, *parameters)))(k)
        np.testing.assert_array_equal(gradient, np.zeros(4))
    with_p = grad(lambda p: ops.np.sum(ops.np.exp(method_of(f"{name}.logpmf")(k, *parameters[:-1], p))))(
        np.float64(parameters[-1]))
    assert np.isfinite(with_p)


def test_maximum_likelihood_of_the_normal_distribution_is_mean_and_deviation():
    # There the gradient of the sum of logpdf is 0.
    x = between(-1, 3, 50)
    gradient = grad(lambda loc, scale: ops.np.sum(stats.norm.logpdf(x, loc, scale)), (0, 1))(x.mean(), x.std())
    np.testing.assert_allclose(gradient, (0, 0), atol=1e-10)


def test_gaussian_of_vectors_has_its_closed_form():
    a, x, mean = between(-1, 1, 3, 3), between(-1, 1, 4, 3), between(-1, 1, 3)

    def ours(a):
        return ops.np.sum(stats.multivariate_normal.logpdf(x, mean, ops.np.add(ops.np.matmul(a, ops.np.transpose(a)),
                                                                               np.eye(3))))

    cov = a @ a.T + np.eye(3)
    inverse, apart = np.linalg.inv(cov), x - mean
    expected = theirs.multivariate_normal.logpdf(x, mean, cov).sum()
    assert float(ours(a)) == pytest.approx(expected)
    of_cov = 0.5 * (inverse @ apart.T @ apart @ inverse - len(x) * inverse)
    np.testing.assert_allclose(grad(ours)(a), 2 * of_cov @ a, atol=1e-11)
    gradient = grad(lambda mean: ops.np.sum(stats.multivariate_normal.logpdf(x, mean, cov)))(mean)
    np.testing.assert_allclose(gradient, (apart @ inverse).sum(0), atol=1e-12)


def test_gaussian_on_a_line_has_the_derivatives_of_the_one_on_numbers():
    direction = np.array([1.0, 2.0])        # of length 5 ** 0.5

    def ours(t, variance):
        cov = ops.np.multiply(variance, np.outer(direction, direction))
        return stats.multivariate_normal.logpdf(ops.np.multiply(t, direction), None, cov, allow_singular=True)

    def theirs_on_numbers(t, variance):
        return stats.norm.logpdf(t * np.sqrt(5), 0.0, (5 * variance) ** 0.5)

    for order in (ours, theirs_on_numbers), (grad(ours, (0, 1)), grad(theirs_on_numbers, (0, 1))):
        np.testing.assert_allclose(order[0](0.7, 1.3), order[1](0.7, 1.3))
    found = stats.multivariate_normal.logpdf(Tensor(np.ones(2)), None, np.outer(direction, direction), True)
    assert float(found) == -np.inf


def test_entropy_has_half_of_the_inverse_as_gradient():
    cov = np.array([[2.0, 0.3], [0.3, 1.0]])
    found = grad(lambda cov: stats.multivariate_normal.entropy(None, cov))(cov)
    np.testing.assert_allclose(found, 0.5 * np.linalg.inv(cov), atol=1e-12)


def test_a_batch_of_covariances_is_a_loop():
    x, covs = between(-1, 1, 3), np.stack([np.eye(3), np.diag([1.0, 2.0, 3.0])])
    found = vmap(lambda cov: stats.multivariate_normal.logpdf(x, None, cov))(covs)
    np.testing.assert_allclose(found, [theirs.multivariate_normal.logpdf(x, None, cov) for cov in covs])


def test_vectors_on_the_simplex_may_be_complete():
    x, alpha = np.array([[0.2, 0.1], [0.3, 0.1], [0.5, 0.8]]), np.array([1.5, 2.0, 3.0])
    found = stats.dirichlet.logpdf(Tensor(x), alpha).numpy()
    np.testing.assert_allclose(found, theirs.dirichlet.logpdf(x, alpha))
    np.testing.assert_allclose(stats.dirichlet.logpdf(Tensor(x[:2]), alpha).numpy(), found)


@pytest.mark.parametrize("name", ["norm", "laplace", "t", "uniform"])
def test_densities_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    loc, scale = between(-0.3, 0.3, 3), between(0.8, 1.5, 3)
    x = between(0.3, 0.7, 3)
    makers = {"norm": torch.distributions.Normal, "laplace": torch.distributions.Laplace,
              "t": lambda loc, scale: torch.distributions.StudentT(torch.tensor(3.5), loc, scale),
              "uniform": lambda loc, scale: torch.distributions.Uniform(loc, loc + scale)}
    values = [torch.tensor(value, requires_grad=True) for value in (x, loc, scale)]
    makers[name](*values[1:]).log_prob(values[0]).sum().backward()
    found = grad(lambda x, loc, scale: ops.np.sum(method_of(f"{name}.logpdf")(x, *SHAPES[name], loc, scale)),
                 (0, 1, 2))(x, loc, scale)
    for one, other in zip(found, values, strict=True):
        expected = np.zeros(3) if other.grad is None else other.grad.numpy()
        np.testing.assert_allclose(one, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["gamma", "beta", "chi2", "t", "poisson"])
def test_gradients_in_shapes_are_those_of_jax(name):
    jax = pytest.importorskip("jax")
    jstats = pytest.importorskip("jax.scipy.stats")
    shapes = {"poisson": (2.5,), **SHAPES}[name]
    method = "logpmf" if name == "poisson" else "logpdf"
    x = np.array([1.0, 3.0]) if name == "poisson" else np.array([0.3, 0.7])
    places = tuple(range(len(shapes)))
    expected = jax.grad(lambda *shapes: getattr(getattr(jstats, name), method)(x, *shapes).sum(), places)(*shapes)
    found = grad(lambda *shapes: ops.np.sum(method_of(f"{name}.{method}")(x, *shapes)), places)(
        *[np.float64(value) for value in shapes])
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-5)


X = Tensor(np.array([0.5, 1.0]))
BAD_CALLS = {
    "missing": (lambda: stats.gamma.logpdf(X), TypeError, r"stats.gamma.logpdf\(\) is missing the parameter 'a'"),
    "unknown": (lambda: stats.norm.cdf(X, mean=0), TypeError, "unexpected keyword argument 'mean'"),
    "twice": (lambda: stats.norm.cdf(X, 0, loc=0), TypeError, "multiple values for argument 'loc'"),
    "too many": (lambda: stats.poisson.pmf(X, 1, 0, 1), TypeError, r"stats.poisson.pmf\(\) takes at most 2"),
    "random": (lambda: stats.norm.rvs(X), DispatchTypeError, "rvs does not take a Tensor\n.*pydispatch.numpy.random"),
    "fit": (lambda: stats.norm.fit(X), DispatchTypeError, "norm.fit does not take a Tensor\n.*logpdf"),
    "frozen": (lambda: stats.norm(X), DispatchTypeError, r"pass the parameters to a method: stats.norm.cdf\(x, loc="),
    "covariance": (lambda: stats.multivariate_normal.logpdf(X, X, np.ones((2, 3))), ValueError, "must be square"),
    "indefinite": (lambda: stats.multivariate_normal.logpdf(X, X, -np.eye(2)), np.linalg.LinAlgError, "definite"),
    "simplex": (lambda: stats.dirichlet.logpdf(Tensor(np.array([0.5, 0.6, 0.5])), np.ones(3)), ValueError, "simplex"),
    "alpha": (lambda: stats.dirichlet.logpdf(X, np.ones((2, 2))), ValueError, "dirichlet.logpdf: .*one dimensional"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_errors_name_the_function(call, error, message):
    with pytest.raises(error, match=message):
        call()


THREE = np.array([0.2, 0.3, 0.5])
BAD_VALUES = {
    "simplex": (lambda x: stats.dirichlet.logpdf(x, np.ones(3)), THREE * 2, "^stats.dirichlet: .*simplex"),
    "alpha": (lambda alpha: stats.dirichlet.pdf(THREE, alpha), -THREE, "^stats.dirichlet: all parameters"),
}


@pytest.mark.parametrize(("function", "bad", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_are_found_in_a_batch_and_in_a_plan(function, bad, message):
    for transform in (vmap, lambda function: vmap(grad(function))):
        with pytest.raises(ValueError, match=message) as caught:
            transform(function)(np.stack([THREE, bad]))
        assert caught.value.__notes__ == ["in example 1 of a batch of 2"]
    with pytest.raises(ValueError, match=message):
        pydispatch.compile(function)(bad)


def test_an_indefinite_covariance_of_a_batch_is_named():
    covariances = np.stack([np.eye(2), -np.eye(2)])
    with pytest.raises(np.linalg.LinAlgError, match=r"^stats\.multivariate_normal\b") as caught:
        vmap(lambda cov: stats.multivariate_normal.logpdf(np.ones(2), np.zeros(2), cov))(covariances)
    assert caught.value.__notes__ == ["in example 1 of a batch of 2"]


def test_the_rest_of_a_distribution_is_scipys():
    assert stats.norm.mean(1.5) == 1.5
    assert stats.norm(1.0, 2.0).cdf(1.0) == 0.5
    assert stats.norm.rvs(size=3, random_state=0).tolist() == theirs.norm.rvs(size=3, random_state=0).tolist()


def test_methods_are_functions_of_their_own():
    assert repr(stats.norm.logpdf) == "<array function pydispatch.scipy.stats.norm.logpdf>"
    assert pickle.loads(pickle.dumps(stats.norm.logpdf)) is stats.norm.logpdf
    logpdf = stats.norm.logpdf
    np.testing.assert_allclose(logpdf(np.array([0.0, 1.0])), theirs.norm.logpdf([0.0, 1.0]))


def test_a_family_brings_the_operators_of_its_formulas():
    code = ("import numpy as np; from pydispatch import Tensor; from pydispatch.scipy import stats; "
            "print(stats.multivariate_normal.pdf(Tensor(np.zeros(2)), np.zeros(2), np.eye(2)))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(found.stdout) == pytest.approx(1 / (2 * np.pi))


def test_the_first_access_to_a_method_declares_all(monkeypatch):
    declared = []
    monkeypatch.setattr(scipys, "declare_methods", lambda distribution: (
        declared.append(distribution.name), vars(distribution).update(pdf="ours")))
    made = scipys.make_scipys("gumbel_r")
    assert made.name == "gumbel_r"
    assert not declared
    assert made.pdf == "ours"
    assert made.support() == (-np.inf, np.inf)      # SciPy's
    assert declared == ["gumbel_r"]
