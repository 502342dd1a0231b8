"""`scipy.stats` for arrays and Tensors: distributions with gradients of all their parameters."""

from __future__ import annotations

from typing import Any

from scipy import stats as _stats

import pydispatch.scipy.linalg
import pydispatch.scipy.special  # noqa: F401
from pydispatch._loading import only_public
from pydispatch.scipy.pack import SCIPY as _SCIPY
from pydispatch.scipy.stats import closed_forms as _closed_forms
from pydispatch.scipy.stats import vectors as _vectors
from pydispatch.scipy.stats.distributions import Methods as _Methods
from pydispatch.scipy.stats.scipys import declare_moments as _declare_moments
from pydispatch.scipy.stats.scipys import declare_scipys as _declare_scipys


def _public_names() -> dict[str, Any]:
    """Return the distributions: those written here, and those by SciPy's formulas."""
    ours = {name: value for module in (_closed_forms, _vectors) for name, value in vars(module).items()
            if isinstance(value, _Methods)}
    kinds = (_stats.rv_continuous, _stats.rv_discrete)
    theirs = [name for name in _stats.__all__ if isinstance(getattr(_stats, name), kinds)]
    for name, value in ours.items():
        if name in theirs:
            _declare_moments(value)
    return {name: _declare_scipys(name) for name in theirs if name not in ours} | ours


globals().update(_public_names())
_SCIPY.install("stats")
__all__ = sorted([name for name, value in globals().items() if isinstance(value, _Methods)])
__dir__ = only_public(globals())
