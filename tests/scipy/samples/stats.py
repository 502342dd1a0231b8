"""Distributions: inside of their support, and where their density or their functions have kinks or ends."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-11
LOC, SCALE = between(-0.2, 0.2, 3), between(0.8, 1.5, 3)
DENSITIES = ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf")

EVERYWHERE, AT_LEAST_0, FROM_0_TO_1 = between(-2, 2, 2, 3), between(0.3, 4, 2, 3), between(0.3, 0.7, 2, 3)
SHAPES = {"norm": (EVERYWHERE, ()), "t": (EVERYWHERE, (between(1.5, 6, 3),)), "laplace": (EVERYWHERE, ()),
          "expon": (AT_LEAST_0, ()), "gamma": (AT_LEAST_0, (between(0.7, 3, 3),)),
          "chi2": (AT_LEAST_0, (between(1.5, 6, 3),)), "uniform": (FROM_0_TO_1, ()),
          "beta": (FROM_0_TO_1, (between(0.7, 3, 3), between(0.8, 2, 3)))}

for name, (x, shapes) in SHAPES.items():
    for method in DENSITIES:
        sample(f"stats.{name}.{method}", x, *shapes, smooth=True, tolerance=ROUNDED)
        sample(f"stats.{name}.{method}", x, *shapes, LOC, scale=SCALE, smooth=True, tolerance=ROUNDED)
        sample(f"stats.{name}.{method}", np.array([-1.0, 0.0, 1.0, 2.0, np.inf, np.nan]), *[v[0] for v in shapes],
               tolerance=ROUNDED)
        sample(f"stats.{name}.{method}", x, *shapes, scale=np.array([1.0, -1.0, 0.0]), tolerance=ROUNDED)
    for method in ("ppf", "isf"):
        sample(f"stats.{name}.{method}", between(0.1, 0.9, 2, 3), *shapes, loc=LOC, scale=SCALE, smooth=True,
               tolerance=1e-9)
        sample(f"stats.{name}.{method}", np.array([-0.1, 0.0, 1e-20, 0.3, 1.0, 1.1, np.nan]), *[v[0] for v in shapes],
               tolerance=1e-9)
sample("stats.norm.logpdf", [0.0, 1.0], [0.5, 0.2], 2, smooth=False)
sample("stats.t.logpdf", EVERYWHERE, np.array([np.inf, 1e9, 2.0]), tolerance=ROUNDED)
sample("stats.norm.logpdf", np.arange(3))

COUNTS = np.arange(6).reshape(2, 3)
for method in ("pmf", "logpmf", "cdf", "sf", "logcdf", "logsf"):
    sample(f"stats.poisson.{method}", COUNTS, between(0.5, 4, 3), smooth=True, tolerance=ROUNDED)
    sample(f"stats.poisson.{method}", np.array([-1.0, 0.5, 2.0, 3.5, np.nan]), 2.5, loc=1, tolerance=ROUNDED)
    sample(f"stats.poisson.{method}", COUNTS, np.array([0.0, -1.0, 2.0]), tolerance=ROUNDED)
    sample(f"stats.binom.{method}", COUNTS, 7, between(0.2, 0.8, 3), smooth=True, tolerance=ROUNDED)
    sample(f"stats.binom.{method}", np.array([-1.0, 0.5, 2.0, 5.0, 6.0, np.nan]), 5, 0.4, tolerance=ROUNDED)
    sample(f"stats.binom.{method}", COUNTS, np.array([3, 0, 9]), np.array([0.0, 1.0, 1.5]), tolerance=ROUNDED)

MATRIX = np.array([[2.0, 0.3, -0.2], [0.3, 1.5, 0.4], [-0.2, 0.4, 1.2]])
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
sample("stats.multivariate_normal.entropy", between(-1, 1, 3), MATRIX, tolerance=ROUNDED)
sample("stats.multivariate_normal.entropy", between(-1, 1, 2), between(1, 2, 2), smooth=True, tolerance=ROUNDED)
for method in ("pdf", "logpdf"):
    sample(f"stats.multivariate_normal.{method}", between(-1, 1, 4, 2), between(-1, 1, 2), between(1, 2, 2),
           smooth=True, tolerance=ROUNDED)
    sample(f"stats.multivariate_normal.{method}", between(-1, 1, 2, 3), between(-1, 1, 3), MATRIX, tolerance=ROUNDED)
    sample(f"stats.multivariate_normal.{method}", between(-1, 1, 3), smooth=True, tolerance=ROUNDED)
    sample(f"stats.multivariate_normal.{method}", between(-1, 1, 1, 2, 2), cov=np.diag([1.0, 2.0]), tolerance=ROUNDED)
    sample(f"stats.multivariate_normal.{method}", [[2.0, 4.0], [1.0, 1.0]], [0.5, 1.0], SINGULAR,
           allow_singular=True, tolerance=ROUNDED)
    sample(f"stats.dirichlet.{method}", between(0.1, 0.3, 2), between(0.5, 3, 3), smooth=True, batches=False,
           tolerance=ROUNDED)
    sample(f"stats.dirichlet.{method}", between(0.1, 0.3, 2, 2), between(0.5, 3, 3), smooth=True, tolerance=ROUNDED)

TALLIES = np.array([[1, 2, 3], [2, 2, 2], [1, 1, 1], [-1, 4, 3]])
for method in ("pmf", "logpmf"):
    sample(f"stats.multinomial.{method}", TALLIES[:2], 6, np.array([0.2, 0.3, 0.5]), smooth=True, tolerance=ROUNDED)
    sample(f"stats.multinomial.{method}", TALLIES, 6, np.array([0.2, 0.3, 0.5]), tolerance=ROUNDED)
    sample(f"stats.multinomial.{method}", TALLIES, np.array([6, 6, 3, 6]), np.array([0.25, 0.75, 0.0]),
           tolerance=ROUNDED)
