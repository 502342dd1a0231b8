"""Calls that take next to no time in NumPy: what we add to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cases.kinds import Excess
from pydispatch._core import Tensor
from pydispatch.ops import ops

SMALL = "Small calls, more than NumPy"
BOUND = 0.3
ROWS = (
    # what, of arrays, of Tensors, in NumPy
    ("zeros(4)", "ours.zeros(4)", None, "np.zeros(4)"),
    ("zeros((2, 3), dtype=int)", "ours.zeros((2, 3), dtype=int)", None, "np.zeros((2, 3), dtype=int)"),
    ("ones(4)", "ours.ones(4)", None, "np.ones(4)"),
    ("empty(4)", "ours.empty(4)", None, "np.empty(4)"),
    ("full(4, 1.5)", "ours.full(4, 1.5)", None, "np.full(4, 1.5)"),
    ("arange(4)", "ours.arange(4)", None, "np.arange(4)"),
    ("eye(3)", "ours.eye(3)", None, "np.eye(3)"),
    ("linspace(0, 1, 4)", "ours.linspace(0.0, 1.0, 4)", None, "np.linspace(0.0, 1.0, 4)"),
    ("zeros_like(x)", "ours.zeros_like(x)", "ours.zeros_like(X)", "np.zeros_like(x)"),
    ("x[0]", "ours.getitem(x, 0)", "X[0]", "x[0]"),
    ("x[-1]", "ours.getitem(x, -1)", "X[-1]", "x[-1]"),
    ("x[1:3]", "ours.getitem(x, slice(1, 3))", "X[1:3]", "x[1:3]"),
    ("x[None]", "ours.getitem(x, None)", "X[None]", "x[None]"),
    ("m[1, 2]", "ours.getitem(m, (1, 2))", "M[1, 2]", "m[1, 2]"),
    ("m[..., 0]", "ours.getitem(m, (..., 0))", "M[..., 0]", "m[..., 0]"),
    ("m[:, 1]", "ours.getitem(m, (slice(None), 1))", "M[:, 1]", "m[:, 1]"),
    ("x[array]", "ours.index(x, key)", "X[key]", "x[key]"),
    ("x[0] = 2.0", "ours.setitem_(x, 0, 2.0)", "X[0] = 2.0", "x[0] = 2.0"),
    ("m[1] = x", "ours.setitem_(m, 1, x)", "M[1] = X", "m[1] = x"),
    ("x[...] = y", "ours.setitem_(x, ..., y)", "X[...] = Y", "x[...] = y"),
    ("reshape", "ours.reshape(x, (2, 2))", "ours.reshape(X, (2, 2))", "x.reshape((2, 2))"),
    ("transpose", "ours.transpose(m)", "M.T", "m.T"),
    ("ravel", "ours.ravel(m)", "M.ravel()", "m.ravel()"),
    ("concatenate", "ours.concatenate([x, y])", "ours.concatenate([X, Y])", "np.concatenate([x, y])"),
    ("concatenate, axis=1", "ours.concatenate([m, m], axis=1)", "ours.concatenate([M, M], axis=1)",
     "np.concatenate([m, m], axis=1)"),
    ("stack", "ours.stack([x, y])", "ours.stack([X, Y])", "np.stack([x, y])"),
    ("add, out=", "ours.add(x, y, out=out)", "ours.add(X, Y, out=OUT)", "np.add(x, y, out=out)"),
    ("add, dtype=", "ours.add(x, y, dtype=np.float32)", "ours.add(X, Y, dtype=np.float32)",
     "np.add(x, y, dtype=np.float32)"),
    ("add_", "ours.add_(x, 0.0)", "ours.add_(X, 0.0)", "np.add(x, 0.0, out=x)"),
    ("sum, axis=0", "ours.sum(m, axis=0)", "M.sum(axis=0)", "m.sum(axis=0)"),
    ("sum, keepdims", "ours.sum(m, axis=-1, keepdims=True)", "M.sum(axis=-1, keepdims=True)",
     "m.sum(axis=-1, keepdims=True)"),
    ("sum, out=", "ours.sum(m, axis=0, out=out)", "ours.sum(M, axis=0, out=OUT)", "np.sum(m, axis=0, out=out)"),
    ("sum, where=", "ours.sum(x, where=mask)", "ours.sum(X, where=mask)", "np.sum(x, where=mask)"),
    ("max, axis=1", "ours.max(m, axis=1)", "M.max(axis=1)", "m.max(axis=1)"),
    ("mean", "ours.mean(x)", "X.mean()", "x.mean()"),
    ("argmax", "ours.argmax(x)", "X.argmax()", "x.argmax()"),
    ("clip", "ours.clip(x, 0.0, 1.0)", "X.clip(0.0, 1.0)", "x.clip(0.0, 1.0)"),
    ("astype", "ours.astype(x, np.float32)", "X.astype(np.float32)", "x.astype(np.float32)"),
    ("copy", "ours.copy(x)", "X.copy()", "x.copy()"),
    ("array * scalar", "ours.multiply(x, s)", "X * s", "x * s"),
    ("scalar * array", "ours.multiply(s, x)", "s * X", "s * x"),
    ("scalar * scalar", "ours.multiply(s, s)", "S * S", "np.multiply(s, s)"),
    ("take", "ours.take(x, key)", "X.take(key)", "x.take(key)"),
)


def small_cases() -> Iterator[Excess]:
    """Yield each call on arrays, and on Tensors that have views, since most indexed Tensors have some."""
    x, y, m, out = np.arange(4.0), np.ones(4), np.ones((3, 4)), np.empty(4)
    names: dict[str, Any] = {
        "np": np, "ours": ops.np, "x": x, "y": y, "m": m, "out": out, "key": np.array([0, 2]), "mask": x > 1,
        "X": Tensor(x.copy()), "Y": Tensor(y.copy()), "M": Tensor(m.copy()), "OUT": Tensor(out.copy()),
        "s": np.float64(3.0), "S": Tensor(np.float64(3.0)),
    }
    for tensor in ("X", "Y", "M"):
        names[tensor][...]
    for name, raw, wrapped, numpy in ROWS:
        if raw is not None:
            yield Excess(SMALL, name, BOUND, raw, numpy, names)
        if wrapped is not None:
            yield Excess(SMALL, f"{name}, Tensors", BOUND, wrapped, numpy, names)
