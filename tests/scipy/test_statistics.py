"""Tests of hypotheses whose results are objects of SciPy's: values, derivatives, batches."""

import numpy as np
import pytest
import scipy.stats as theirs

from pydispatch import Tensor, func
from pydispatch.scipy import stats
from pydispatch.testing import gradcheck
from tests.scipy.samples.sample import between
from tests.together import together

X, Y = np.exp(between(-2, 1, 12)), np.exp(between(-2, 2, 12, seed=1))
CALLS = [("alexandergovern", (X, Y), {}), ("chi2_contingency", (9 * X.reshape(3, 4),), {}), ("pearsonr", (X, Y), {}),
         ("pearsonr", (X, Y), {"alternative": "less"}), ("skewtest", (X,), {}), ("ttest_1samp", (X, 0.5), {}),
         ("ttest_ind", (X, Y), {}), ("ttest_ind", (X, Y), {"equal_var": False}), ("ttest_rel", (X, Y), {})]

OF_RANKS = [("ansari", (X, Y)), ("brunnermunzel", (X, Y)), ("chatterjeexi", (X, Y)), ("cramervonmises_2samp", (X, Y)),
            ("fligner", (X, Y)), ("friedmanchisquare", (X, Y, Y[::-1])), ("kruskal", (X, Y)), ("ks_2samp", (X, Y)),
            ("mannwhitneyu", (X, Y)), ("mood", (X, Y)), ("quantile_test", (X,)), ("ranksums", (X, Y)),
            ("somersd", (X, Y)), ("weightedtau", (X, Y)), ("wilcoxon", (X, Y)), ("anderson_ksamp", ([X, Y],)),
            ("spearmanrho", (X, Y))]
OF_RANKS = [(name, args) for name, args in OF_RANKS if hasattr(theirs, name)]
OTHERS = {"anderson": (lambda of, x: of.anderson(x, "norm").statistic, 1e-6),
          "binned_statistic": (lambda of, x: of.binned_statistic(Y, x, "mean", 3).statistic, 1e-6),
          "cramervonmises": (lambda of, x: of.cramervonmises(x, "expon").statistic, 1e-6),
          "epps_singleton_2samp": (lambda of, x: of.epps_singleton_2samp(x, Y).statistic, 1e-6),
          "ttest_ind_from_stats": (
              lambda of, x: of.ttest_ind_from_stats(x[0], x[1], 9, x[2], x[3], 7).statistic, 1e-6),
          "directional_stats": (lambda of, x: of.directional_stats(x.reshape(6, 2)).mean_direction, 1e-6),
          "obrientransform": (lambda of, x: of.obrientransform(x, Y)[0], 1e-6),
          "median_test": (lambda of, x: of.median_test(x, Y).median, 1e-6),
          "boxcox_normmax": (lambda of, x: of.boxcox_normmax(x + 1.0, method="mle"), 1e-3),
          "boxcox": (lambda of, x: of.boxcox(x + 1.0)[1], 1e-3), "ppcc_max": (lambda of, x: of.ppcc_max(x), 1e-3),
          "yeojohnson_normmax": (lambda of, x: of.yeojohnson_normmax(x), 1e-3)}
"""Functions with other results, and the steps of their differences: the last search for a minimum."""


def pair(name, args, options):
    """Return the statistic and its probability."""
    found = getattr(stats, name)(*args, **options)
    return found.statistic, found.pvalue


@together("name, args, options", CALLS)
def test_values_of_tensors_are_scipys(name, args, options):
    found = pair(name, [Tensor(x) if isinstance(x, np.ndarray) else x for x in args], options)
    expected = getattr(theirs, name)(*args, **options)
    assert all(isinstance(each, Tensor) for each in found)
    np.testing.assert_allclose(found, (expected.statistic, expected.pvalue), rtol=1e-10)


@together("name, args, options", CALLS)
def test_derivatives_are_those_of_finite_differences(name, args, options):
    tensors = [Tensor(x.copy(), requires_grad=True) for x in args if isinstance(x, np.ndarray)]
    others = args[len(tensors):]
    gradcheck(lambda *tensors: pair(name, (*tensors, *others), options), tensors, check_forward_ad=True)


@together("name, args, options", CALLS)
def test_a_batch_is_a_loop(name, args, options):
    first, *others = args
    batch = np.stack([first, first[::-1] * 1.1])
    found = func.vmap(lambda x: pair(name, (x, *others), options))(batch)
    expected = [pair(name, (x, *others), options) for x in batch]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-9)


def test_results_are_of_scipys_classes():
    found = stats.ttest_ind(Tensor(X), Y)
    assert type(found).__name__ == type(theirs.ttest_ind(X, Y)).__name__
    with pytest.raises(ValueError, match="must have length at least 2"):
        stats.pearsonr(Tensor(X[:1]), Y[:1])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@together("name", OTHERS)
def test_other_results(name):
    call, step = OTHERS[name]
    expected = np.asarray(call(theirs, X))
    np.testing.assert_allclose(call(stats, Tensor(X)).numpy(), expected, rtol=1e-6, atol=1e-7)
    slopes = [(call(theirs, X + each) - call(theirs, X - each)) / (2 * step) for each in step * np.eye(12)]
    found = func.jacrev(lambda x: call(stats, x))(X)
    np.testing.assert_allclose(np.asarray(found).T, slopes, rtol=1e-5 if step < 1e-5 else 0.03, atol=1e-6 + step)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@together("name, args", OF_RANKS)
def test_statistics_of_ranks_are_constants(name, args):
    tensors = [list(map(Tensor, x)) if isinstance(x, list) else Tensor(x) for x in args]
    found, expected = getattr(stats, name)(*tensors), getattr(theirs, name)(*args)
    np.testing.assert_allclose((found.statistic, found.pvalue), (expected.statistic, expected.pvalue))
    first = args[0][0] if isinstance(args[0], list) else args[0]

    def statistic(x):
        return getattr(stats, name)(*([[x, Y]] if isinstance(args[0], list) else [x, *args[1:]])).statistic

    np.testing.assert_array_equal(func.grad(lambda x: statistic(x) + (x * 0).sum())(first), 0)
