"""The pack `scipy`: operators for functions of SciPy, such as `scipy::special_gammaln`, family by family.

The module of a family declares its operators, and the functions with SciPy's names that call them.
"""

from __future__ import annotations

try:
    import scipy
except ImportError as error:
    raise ImportError("pydispatch.scipy needs SciPy, which is not installed\n"
                      'install it: pip install "pydispatch-numpy[scipy]"') from error

from pydispatch.numpy.declare import Face
from pydispatch.packs import Pack
from pydispatch.scipy.errors import name_function

FAMILIES = (
    "fft",
    "signal",
    "ndimage",
    "stats",
    "special",
    "linalg",
    "sparse",
    "interpolate",
    "spatial",
    "cluster",
)

SOLVERS = ("integrate", "optimize")
"""Modules of functions that take functions. Each is a higher-order operator, not a declaration of the pack."""

SCIPY = Pack("scipy", {family: f"pydispatch.scipy.{family}" for family in FAMILIES})
SCIPY.install()
FACE = Face("pydispatch.scipy", "scipy", scipy, name_function)
PASSED_ON: dict[str, tuple[str, ...]] = {}
"""For each family, names that are passed on from SciPy, because they do not take an array."""
