"""Functions of arrays that belong to optimization. `test_optima` and `test_optimize` have those of functions."""

import numpy as np

from tests.scipy.samples.sample import between, sample

X = between(0.5, 1.5, 4)
for name in ("rosen", "rosen_der", "rosen_hess"):
    sample(f"optimize.{name}", X, smooth=True, has_shape=False, tolerance=1e-12)
sample("optimize.rosen_hess_prod", X, X[::-1], smooth=True, has_shape=False, tolerance=1e-12)
sample("optimize.approx_fprime", X, lambda x: (x * x).sum(), 1e-3, smooth=True, has_shape=False,
       tolerance=1e-9)
sample("optimize.check_grad", lambda x: (x ** 4).sum(), lambda x: 4 * x ** 3, X, epsilon=1e-3, smooth=True,
       has_shape=False, tolerance=1e-7)
sample("optimize.linear_sum_assignment", np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]]), has_shape=False)
