"""Samples of functions that call users' functions."""

from pydispatch import ops
from tests.numpy.samples.sample import grid, sample

sample("apply_along_axis", ops.np.sum, 0, grid(3, 4), smooth=True, tolerance=1e-12)
sample("apply_along_axis", ops.np.cumsum, 1, grid(2, 3, 2), smooth=True, tolerance=1e-12)
sample("apply_along_axis", lambda x: ops.np.multiply(ops.np.expand_dims(x, 0), 2.0), 1, grid(2, 3), smooth=True)
sample("apply_over_axes", ops.np.sum, grid(2, 3, 2), [0, 2], smooth=True, tolerance=1e-12)
