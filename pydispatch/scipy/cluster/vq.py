"""`scipy.cluster.vq` for arrays and Tensors: the nearest codes of observations, and scaled observations."""

# tests: tests/scipy/test_functions.py
from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch._loading import only_public
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.ops import ops
from pydispatch.scipy.borrowed import borrow, make_constant, publish
from pydispatch.scipy.pack import FACE
from pydispatch.scipy.spatial.distance import cdist


@FACE.array_function("cluster.vq")
def vq(obs: Any, code_book: Any, check_finite: bool = True) -> Any:
    """Return the index of the code that is nearest to each observation, and the distance to it."""
    obs, code_book = as_nonscalar(obs), as_nonscalar(code_book)
    if obs.ndim != code_book.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    if obs.ndim == 1:
        obs, code_book = ops.np.expand_dims(obs, 1), ops.np.expand_dims(code_book, 1)
    dtype = np.result_type(obs.dtype, code_book.dtype, np.float32)
    distances = ops.np.astype(cdist(obs, code_book), dtype, copy=False)
    code = ops.np.argmin(distances, 1)
    nearest = ops.np.take_along_axis(distances, ops.np.expand_dims(code, 1), 1)[:, 0]
    return ops.np.astype(code, "int32"), nearest


borrow("cluster.vq", "whiten")
make_constant("cluster.vq", "kmeans kmeans2")
__all__ = publish("cluster.vq", globals())
__dir__ = only_public(globals())
