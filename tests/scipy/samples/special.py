"""Special functions, at points where they are smooth."""

from __future__ import annotations

import numpy as np

from tests.scipy.samples.sample import between, sample

sample("special.gammaln", between(0.1, 5, 2, 3), smooth=True)
sample("special.digamma", between(0.1, 5, 2, 3), smooth=True)
sample("special.polygamma", np.array([[1], [2]]), between(0.5, 5, 3), smooth=True)
sample("special.softmax", between(-2, 2, 2, 3), smooth=True)
sample("special.softmax", between(-2, 2, 2, 3), axis=-1, smooth=True)
