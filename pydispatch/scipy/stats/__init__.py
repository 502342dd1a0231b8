"""`scipy.stats` for arrays and Tensors: distributions with gradients of all their parameters."""

from __future__ import annotations

from typing import Any

from scipy import stats as _stats

import pydispatch.scipy.linalg
import pydispatch.scipy.special  # noqa: F401
from pydispatch._loading import only_public
from pydispatch.scipy.borrowed import borrow as _borrow
from pydispatch.scipy.borrowed import borrow_classes as _borrow_classes
from pydispatch.scipy.borrowed import make_constant as _make_constant
from pydispatch.scipy.borrowed import publish as _publish
from pydispatch.scipy.pack import SCIPY as _SCIPY
from pydispatch.scipy.stats import closed_forms as _closed_forms
from pydispatch.scipy.stats import vectors as _vectors
from pydispatch.scipy.stats.distributions import Distribution as _Distribution
from pydispatch.scipy.stats.distributions import Methods as _Methods
from pydispatch.scipy.stats.scipys import declare_moments as _declare_moments
from pydispatch.scipy.stats.scipys import make_scipys as _make_scipys


def _public_names() -> dict[str, Any]:
    """Return the distributions: those written here, and those by SciPy's formulas."""
    ours = {name: value for module in (_closed_forms, _vectors) for name, value in vars(module).items()
            if isinstance(value, _Methods)}
    kinds = (_stats.rv_continuous, _stats.rv_discrete)
    theirs = [name for name in _stats.__all__ if isinstance(getattr(_stats, name), kinds)]
    for value in ours.values():
        if isinstance(value, _Distribution):
            _declare_moments(value)
    return {name: _make_scipys(name) for name in theirs if name not in ours} | ours


_borrow("stats", """
    bartlett boxcox_llf chisquare circmean circstd circvar combine_pvalues describe
    differential_entropy energy_distance entropy expectile f_oneway gmean gstd gzscore hmean iqr
    jarque_bera kstat kstatvar kurtosis kurtosistest levene linregress lmoment median_abs_deviation moment normaltest
    pmean pointbiserialr power_divergence scoreatpercentile sem skew tmax tmean tmin trim_mean tsem
    tstd tvar variation wasserstein_distance yeojohnson_llf zmap zscore
    false_discovery_control quantile theilslopes alexandergovern chi2_contingency pearsonr
    skewtest ttest_1samp ttest_ind ttest_rel
    anderson binned_statistic boxcox boxcox_normmax cramervonmises directional_stats epps_singleton_2samp median_test
    mode obrientransform ppcc_max probplot sigmaclip ttest_ind_from_stats yeojohnson yeojohnson_normmax
""")
_make_constant("stats", """
    anderson_ksamp ansari brunnermunzel chatterjeexi cramervonmises_2samp fligner friedmanchisquare kruskal ks_2samp
    mannwhitneyu mood percentileofscore quantile_test spearmanr kendalltau rankdata ranksums somersd spearmanrho
    tiecorrect weightedtau wilcoxon
""")
_borrow_classes("stats", "gaussian_kde")
_DISTRIBUTIONS = _public_names()
globals().update(_DISTRIBUTIONS)
_SCIPY.install("stats")
__all__ = _publish("stats", globals(), _DISTRIBUTIONS)
__dir__ = only_public(globals())
