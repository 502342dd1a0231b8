"""Operators of distances, with kernels in C.

pydispatch loads this module when `ops.distances` is first used: see the entry point in pyproject.toml.
"""

from distances_pack import kernels
from pydispatch import ops
from pydispatch.library import c_function
from pydispatch.packs import Pack

pack = Pack("distances")
pack.pointwise(
    "smooth_abs", c_function(kernels.smooth_abs_kernel(), name="smooth_abs"), "Tensor x",
    vjp=lambda g, x: g * x / ops.np.sqrt(x * x + 1))
pack.pointwise(
    "squared_distance", c_function(kernels.squared_distance_kernel(), name="squared_distance"), "Tensor x, Tensor y",
    vjp=(lambda g, x, y: g * 2.0 * (x - y), lambda g, x, y: g * 2.0 * (y - x)))
pack.install()
