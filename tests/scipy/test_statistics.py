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
