"""Descriptive statistics, tests of hypotheses, correlations."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-11
X, Y, TABLE = between(-2, 2, 12), between(-3, 2, 12, seed=1), between(-2, 2, 9, 2)
POSITIVE = np.exp(X)

for name in ("tmean", "tvar", "tstd", "tsem", "tmin", "tmax", "skew", "kurtosis", "sem", "zscore",
             "kstat", "kstatvar", "describe", "iqr",
             "differential_entropy", "lmoment", "jarque_bera", "kurtosistest", "normaltest"):
    sample(f"stats.{name}", X, smooth=True, has_shape=False, tolerance=ROUNDED)
for name in ("circmean", "circvar", "circstd", "variation", "gmean", "hmean", "gstd", "gzscore", "entropy", "chisquare",
             "power_divergence"):
    sample(f"stats.{name}", POSITIVE, smooth=True, has_shape=False, tolerance=ROUNDED)
for name in ("skew", "kurtosis", "sem", "zscore", "gmean", "hmean"):
    sample(f"stats.{name}", np.abs(TABLE) + 0.1, axis=0, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.median_abs_deviation", POSITIVE[1:], smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.pmean", POSITIVE, 2.0, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.expectile", X, 0.3, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.trim_mean", X, 0.1, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.moment", X, 3, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.theilslopes", POSITIVE, np.exp(Y), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.zmap", X, Y, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.scoreatpercentile", X, 30.0, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.quantile", X, 0.3, smooth=True, has_shape=False, tolerance=ROUNDED)
for name in ("linregress", "pointbiserialr", "f_oneway", "levene", "bartlett",
             "energy_distance", "wasserstein_distance"):
    sample(f"stats.{name}", X, Y, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.combine_pvalues", between(0, 1, 5), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.false_discovery_control", between(0, 1, 5), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.boxcox_llf", 0.4, POSITIVE, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.yeojohnson_llf", np.array(0.4), X, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.boxcox", POSITIVE, 0.3, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.yeojohnson", X, 0.3, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("stats.mode", X, smooth=True, has_shape=False)
sample("stats.sigmaclip", X, 2.0, 2.0, smooth=True, has_shape=False)
sample("stats.probplot", X, smooth=True, has_shape=False, tolerance=1e-9)
for name in ("spearmanr", "kendalltau"):
    sample(f"stats.{name}", X, Y, has_shape=False)
sample("stats.rankdata", X, has_shape=False)
sample("stats.percentileofscore", X, 0.1, has_shape=False)
sample("stats.tiecorrect", X, has_shape=False)
