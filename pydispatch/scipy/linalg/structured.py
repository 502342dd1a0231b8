"""Matrices with a structure: blocks along the diagonal, constant diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.meta import broadcast
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE


@FACE.array_function("linalg")
def block_diag(*arrs: Any) -> Any:
    """Return a matrix with these blocks along its diagonal, and zeros elsewhere. Vectors are rows. Stacks broadcast."""
    blocks = [as_nonscalar(x) for x in arrs]
    blocks = [x if x.ndim > 1 else ops.np.reshape(x, (1, -1)) for x in blocks]
    batch = broadcast([tuple(x.shape[:-2]) for x in blocks])
    width = sum(x.shape[-1] for x in blocks)
    dtype = np.result_type(*[x.dtype for x in blocks])
    rows, before = [], 0
    for x in blocks:
        n, m = tuple(x.shape[-2:])
        x = ops.np.broadcast_to(x if x.dtype == dtype else ops.np.astype(x, dtype), (*batch, n, m))
        zeros = [ops.np.zeros_like(x, shape=(*batch, n, k)) for k in (before, width - before - m)]
        rows.append(ops.np.concatenate([zeros[0], x, zeros[1]], -1))
        before += m
    return ops.np.concatenate(rows, -2)


@FACE.array_function("linalg")
def toeplitz(c: Any, r: Any = None) -> Any:
    """Return a matrix with constant diagonals, from its first column and its first row."""
    c = as_nonscalar(c)
    c = c if c.ndim else ops.np.reshape(c, (1,))
    r = ops.np.conjugate(c) if r is None else as_nonscalar(r)
    r = r if r.ndim else ops.np.reshape(r, (1,))
    n, m = c.shape[-1], r.shape[-1]
    batch = broadcast((tuple(c.shape[:-1]), tuple(r.shape[:-1])))
    dtype = np.result_type(c.dtype, r.dtype)
    parts = [ops.np.broadcast_to(x if x.dtype == dtype else ops.np.astype(x, dtype), (*batch, x.shape[-1]))
             for x in (ops.np.flip(c, -1), ops.np.getitem(r, (..., slice(1, None))))]
    place = np.arange(n - 1, -1, -1)[:, None] + np.arange(m)
    return ops.np.take(ops.np.concatenate(parts, -1), place, -1)
