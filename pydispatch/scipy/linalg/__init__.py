"""`scipy.linalg` for arrays and Tensors: triangular systems, factors, functions of matrices, structured matrices.

Operators take matrices and stacks of them. Formulas follow the same rules as in `operators/decompositions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scipy.linalg import LinAlgError, LinAlgWarning  # noqa: F401

from pydispatch._loading import only_public
from pydispatch.numpy.declare import OPERATOR as _OPERATOR
from pydispatch.scipy.linalg import banded, elimination, functions, general, structured, triangular  # noqa: F401
from pydispatch.scipy.pack import FACE as _FACE
from pydispatch.scipy.pack import SCIPY as _SCIPY

_SCIPY.install("linalg")
_FUNCTIONS = {name.removeprefix("linalg."): function for name, function in _FACE.functions.items()
              if name.startswith("linalg.")}
if TYPE_CHECKING:       # type checkers cannot see what the next line defines
    from pydispatch._stubs.scipy_linalg import *  # noqa: F403
globals().update(_FUNCTIONS)
_FACE.kinds.update({f"linalg.{name}": _OPERATOR for name in _FUNCTIONS if f"linalg_{name}" in _SCIPY.of_families})
__all__ = sorted([*_FUNCTIONS, "LinAlgError", "LinAlgWarning"])
__dir__ = only_public(globals())
