"""`scipy.linalg` for arrays and Tensors: triangular systems, factors, functions of matrices, structured matrices.

Operators take matrices and stacks of them. Formulas follow the same rules as in `operators/decompositions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scipy import linalg as _linalg
from scipy.linalg import LinAlgError, LinAlgWarning  # noqa: F401

from pydispatch._loading import only_public
from pydispatch.numpy.declare import OPERATOR as _OPERATOR
from pydispatch.scipy.borrowed import borrow as _borrow
from pydispatch.scipy.linalg import banded, decompositions, elimination, functions, general, structured, triangular  # noqa: F401
from pydispatch.scipy.pack import FACE as _FACE
from pydispatch.scipy.pack import PASSED_ON as _PASSED_ON
from pydispatch.scipy.pack import SCIPY as _SCIPY

_borrow("linalg", """
    polar orth companion leslie fiedler fiedler_companion convolution_matrix khatri_rao cosm sinm tanm coshm
    sinhm tanhm orthogonal_procrustes solve_circulant solve_discrete_lyapunov expm_cond diagsvd subspace_angles
""")
_SCIPY.install("linalg")
_FUNCTIONS = {name.removeprefix("linalg."): function for name, function in _FACE.functions.items()
              if name.startswith("linalg.")}
if TYPE_CHECKING:       # type checkers cannot see what the next line defines
    from pydispatch._stubs.scipy_linalg import *  # noqa: F403
globals().update(_FUNCTIONS)
globals().update({name: getattr(_linalg, name) for name in _PASSED_ON["linalg"]})
_FACE.kinds.update({f"linalg.{name}": _OPERATOR for name in _FUNCTIONS if f"linalg_{name}" in _SCIPY.of_families})
__all__ = sorted([*_FUNCTIONS, *_PASSED_ON["linalg"], "LinAlgError", "LinAlgWarning"])
__dir__ = only_public(globals())
