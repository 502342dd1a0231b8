"""`scipy.linalg` for arrays and Tensors: triangular systems, factors, functions of matrices, structured matrices.

Operators take matrices and stacks of them. Formulas follow the same rules as in `operators/decompositions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydispatch._loading import only_public
from pydispatch.numpy.declare import OPERATOR as _OPERATOR
from pydispatch.scipy.borrowed import borrow as _borrow
from pydispatch.scipy.borrowed import make_constant as _make_constant
from pydispatch.scipy.borrowed import publish as _publish
from pydispatch.scipy.linalg import (  # noqa: F401
    banded,
    decompositions,
    elimination,
    equations,
    functions,
    general,
    structured,
    triangular,
)
from pydispatch.scipy.pack import FACE as _FACE
from pydispatch.scipy.pack import SCIPY as _SCIPY

_borrow("linalg", """
    polar orth companion leslie fiedler fiedler_companion convolution_matrix khatri_rao cosm sinm tanm coshm
    sinhm tanhm orthogonal_procrustes solve_circulant solve_discrete_lyapunov expm_cond diagsvd subspace_angles
""")
_make_constant("linalg", "bandwidth ishermitian issymmetric")
_SCIPY.install("linalg")
if TYPE_CHECKING:       # type checkers cannot see what the next line defines
    from pydispatch._stubs.scipy_linalg import *  # noqa: F403
_FACE.kinds.update({name: _OPERATOR for name in _FACE.functions
                    if name.startswith("linalg.") and name.replace(".", "_") in _SCIPY.of_families})
__all__ = _publish("linalg", globals())
__dir__ = only_public(globals())
