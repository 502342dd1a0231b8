"""A pack of operators: `pydispatch.ops.smoothing.softplus`, `.huber` and `.moving_sum`."""

import numpy as np

from pydispatch import ops
from pydispatch.backends import MetaArray
from pydispatch.packs import Pack

pack = Pack("smoothing")
(moving_sum,) = pack.operators("moving_sum")


# --- pointwise: the shape, the Meta kernel and the batching rule follow from the kernel ------------------------------


def softplus(x):
    """log(1 + exp(x)), without an overflow."""
    return np.logaddexp(x, 0.0)


def huber(x, width=1.0):
    """Compute x²/2 near 0, and a straight line beyond the width."""
    near = np.minimum(np.abs(x), width)
    return near * (np.abs(x) - near / 2)


def huber_slope(g, x, width):
    return g * ops.np.clip(x, -width, width)


pack.pointwise("softplus", softplus, "Tensor x", vjp=lambda g, x: g / (1 + ops.np.exp(-x)))
pack.pointwise("huber", huber, "Tensor x, float width=1.0", vjp=huber_slope)


# --- along an axis: every part of the entry is written out -----------------------------------------------------------


def sums(x, width):
    """Return the sums of `width` neighbours along the last axis: there are `width - 1` fewer of them."""
    check(np.shape(x), width)
    return np.lib.stride_tricks.sliding_window_view(x, width, axis=-1).sum(axis=-1)


def sums_meta(x, width):
    check(x.shape, width)
    return MetaArray((*x.shape[:-1], x.shape[-1] - width + 1), np.empty(0, x.dtype).sum().dtype)


def check(shape, width):
    if not shape or not 1 <= width <= shape[-1]:
        raise ValueError(f"moving_sum: argument width is {width}, and x has shape {shape}, expected a width from 1 to "
                         "the length of the last axis\npass an array of at least `width` elements")


def sums_vjp(g, width):
    """Differentiate: every element is in the sums that begin at most `width - 1` places before it."""
    zeros = ops.np.zeros_like(g, shape=(*g.shape[:-1], width - 1))
    return moving_sum(ops.np.concatenate((zeros, g, zeros), axis=-1), width)


def sums_batch(op, info, in_dims, x, width):
    """Move the batch axis first, so that the last axis of an example is still the last."""
    check(x.shape[1:], width)
    return op(x, width), 0


pack.declare("moving_sum", "Tensor x, int width", sums, sums_meta, vjp=sums_vjp, jvp="linear", vmap=sums_batch)

pack.install()
