"""`scipy.spatial` for arrays and Tensors: distances between vectors and between all rows of matrices."""

from __future__ import annotations

from pydispatch._loading import only_public
from pydispatch.scipy.borrowed import borrow as _borrow
from pydispatch.scipy.borrowed import publish as _publish
from pydispatch.scipy.spatial import distance, transform  # noqa: F401

_borrow("spatial", "distance_matrix minkowski_distance minkowski_distance_p")
__all__ = _publish("spatial", globals(), ["distance", "transform"])
__dir__ = only_public(globals())
