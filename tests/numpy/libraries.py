"""Functions of SciPy and scikit-learn on Tensors, which they take by the array API standard. Prints what came out.

`python -m tests.numpy.libraries` in an environment with SCIPY_ARRAY_API=1, which both read when they are imported.
"""

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.cluster.vq
import scipy.constants
import scipy.differentiate
import scipy.fft
import scipy.integrate
import scipy.optimize
import scipy.signal
import scipy.special
import scipy.stats
import sklearn
from scipy.spatial.transform import Rotation
from sklearn import decomposition, discriminant_analysis, linear_model, metrics, naive_bayes, preprocessing
from sklearn.metrics import pairwise

from pydispatch import Tensor, ops
from pydispatch.func import functionalize, grad
from pydispatch.tree import tree_leaves

X = np.random.default_rng(0).standard_normal((8, 3))
CLASSES = (X[:, 0] > 0).astype(int)

SMOOTH: dict[str, Callable[[Any], Any]] = {
    "special.logsumexp": lambda x: scipy.special.logsumexp(x, axis=0),
    "special.softmax": lambda x: scipy.special.softmax(x, axis=1),
    "special.log_softmax": lambda x: scipy.special.log_softmax(x, axis=1),
    "special.xlogy": lambda x: scipy.special.xlogy(abs(x), abs(x) + 1),
    "stats.zscore": scipy.stats.zscore,
    "stats.skew": scipy.stats.skew,
    "stats.kurtosis": scipy.stats.kurtosis,
    "stats.moment": lambda x: scipy.stats.moment(x, 3),
    "stats.gmean": lambda x: scipy.stats.gmean(abs(x) + 1),
    "stats.hmean": lambda x: scipy.stats.hmean(abs(x) + 1),
    "stats.variation": lambda x: scipy.stats.variation(x + 5),
    "stats.sem": scipy.stats.sem,
    "stats.iqr": scipy.stats.iqr,
    "stats.f_oneway": lambda x: scipy.stats.f_oneway(x[:, 0], x[:, 1]).statistic,
    "stats.circmean": scipy.stats.circmean,
    "stats.quantile": lambda x: scipy.stats.quantile(x, 0.3),
    "fft.irfft": lambda x: scipy.fft.irfft(x + 1j * x),
    "signal.fftconvolve": lambda x: scipy.signal.fftconvolve(x, x[:2]),
    "signal.hilbert": lambda x: abs(scipy.signal.hilbert(x, axis=0)),
    "integrate.trapezoid": lambda x: scipy.integrate.trapezoid(x, axis=0),
    "integrate.cumulative_trapezoid": lambda x: scipy.integrate.cumulative_trapezoid(x, axis=0),
    "integrate.tanhsinh": lambda x: scipy.integrate.tanhsinh(lambda t: t * t, 0 * x[:, 0], abs(x[:, 1])).integral,
    "optimize.rosen": scipy.optimize.rosen,
    "optimize.rosen_der": scipy.optimize.rosen_der,
    "cluster.vq.whiten": scipy.cluster.vq.whiten,
    "constants.convert_temperature": lambda x: scipy.constants.convert_temperature(x, "Celsius", "Kelvin"),
    "Rotation.as_matrix": lambda x: Rotation.from_rotvec(x).as_matrix(),
    "MinMaxScaler": lambda x: preprocessing.MinMaxScaler().fit_transform(x),
    "Normalizer": lambda x: preprocessing.Normalizer().fit_transform(x),
    "PolynomialFeatures": lambda x: preprocessing.PolynomialFeatures(2).fit_transform(x),
    "PCA": lambda x: decomposition.PCA(2, svd_solver="full").fit_transform(x),
    "Ridge": lambda x: linear_model.Ridge(solver="svd").fit(x[:, :2], x[:, 2]).coef_,
    "GaussianNB": lambda x: naive_bayes.GaussianNB().fit(x, classes_for(x)).predict_proba(x),
    "cosine_similarity": pairwise.cosine_similarity,
    "rbf_kernel": pairwise.rbf_kernel,
}
"""Functions that are made of what a namespace has: with gradients."""
OTHERS: dict[str, Callable[[Any], Any]] = {
    "special.expit": scipy.special.expit,
    "special.gammaln": lambda x: scipy.special.gammaln(abs(x) + 1),
    "stats.ttest_1samp": lambda x: tuple(scipy.stats.ttest_1samp(x, 0.0)),
    "stats.pearsonr": lambda x: scipy.stats.pearsonr(x[:, 0], x[:, 1]).statistic,
    "stats.entropy": lambda x: scipy.stats.entropy(abs(x)),
    "stats.rankdata": lambda x: scipy.stats.rankdata(x, axis=0),
    "fft.dct": scipy.fft.dct,
    "signal.detrend": scipy.signal.detrend,
    "signal.medfilt": lambda x: scipy.signal.medfilt(x[:, 0]),
    "cluster.vq.vq": lambda x: scipy.cluster.vq.vq(x, x[:2]),
    "differentiate.derivative": lambda x: scipy.differentiate.derivative(np.tanh, x[:, 0]).df,
    # it fills in what 0 / 0 gives, whose slope is nan
    "StandardScaler": lambda x: preprocessing.StandardScaler().fit_transform(x),
    # it cuts off by the rank, a value
    "LinearDiscriminantAnalysis": lambda x: discriminant_analysis.LinearDiscriminantAnalysis(solver="svd").fit(
        x, classes_for(x)).predict_proba(x),
    "LogisticRegression": lambda x: linear_model.LogisticRegression().fit(x, classes_for(x)).coef_,
    "mean_squared_error": lambda x: metrics.mean_squared_error(x[:, 0], x[:, 1]),
    "accuracy_score": lambda x: metrics.accuracy_score(classes_for(x), 1 - classes_for(x)),
    "confusion_matrix": lambda x: metrics.confusion_matrix(classes_for(x), classes_for(x)),
}
"""Functions that compute in compiled code, give numbers of Python's, or have no gradient for another reason."""
NUMBERS = ("mean_squared_error", "accuracy_score")


def classes_for(x: Any) -> Any:
    return Tensor(CLASSES) if isinstance(x, Tensor) else CLASSES


def outcome(name: str, function: Callable[[Any], Any]) -> str:
    """Return "" if the function gives for a Tensor what it gives for an array, with its gradient if it has one."""
    found, expected = tree_leaves(function(Tensor(X))), tree_leaves(function(X))
    if name not in NUMBERS and not all(isinstance(leaf, Tensor) for leaf in found):
        return f"gave {[type(leaf).__name__ for leaf in found]}"
    if not all(np.allclose(np.asarray(one), other, rtol=1e-6, atol=1e-9)
               for one, other in zip(found, expected, strict=True)):
        return f"gave {found}, expected {expected}"
    return wrong_gradient(function) if name in SMOOTH else ""


def wrong_gradient(function: Callable[[Any], Any]) -> str:
    """Return "" if the slope along a direction agrees with differences.

    Several of the functions write in place to what a derivative needs, so they are functionalized.
    """
    weights = np.cos(np.arange(function(X).size)).reshape(function(X).shape)
    gradient = grad(functionalize(lambda x: ops.np.sum(ops.np.real(function(x)) * weights)))(X)
    step = 1e-6 * np.sin(np.arange(X.size).reshape(X.shape))
    found = np.sum(gradient * step)
    expected = np.sum((np.real(function(X + step)) - np.real(function(X - step))) * weights) / 2
    return "" if np.allclose(found, expected, rtol=1e-4, atol=1e-12) else f"slope {found}, expected {expected}"


def report() -> dict[str, str]:
    """Return the outcome of each function."""
    results = {}
    for name, function in {**SMOOTH, **OTHERS}.items():
        try:
            results[name] = outcome(name, function)
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sklearn.set_config(array_api_dispatch=True)
    print(json.dumps(report()))
