"""`scipy.spatial` for arrays and Tensors: distances between vectors and between all rows of matrices."""

from __future__ import annotations

from pydispatch._loading import only_public
from pydispatch.scipy.borrowed import borrow as _borrow
from pydispatch.scipy.pack import FACE as _FACE
from pydispatch.scipy.spatial import distance  # noqa: F401

_borrow("spatial", "distance_matrix minkowski_distance minkowski_distance_p")
_FUNCTIONS = {name.removeprefix("spatial."): function.public for name, function in _FACE.functions.items()
              if name.startswith("spatial.") and name.count(".") == 1}
globals().update(_FUNCTIONS)
__all__ = sorted([*_FUNCTIONS, "distance"])
__dir__ = only_public(globals())
