"""Differences, gradients, integrals, interpolation and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._registry.operators import packet
from pydispatch.numpy.declare import ABSENT, array_function, as_array, as_nonscalar, known_values
from pydispatch.operators.calculus import MODES
from pydispatch.operators.layouts import laid_out_like
from pydispatch.ops import ops

CONVOLVE = packet("np", "convolve")


def part(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """Return a slice along one axis."""
    return ops.np.getitem(x, (*(slice(None),) * axis, slice(start, stop)))


@array_function()
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = ABSENT, append: Any = ABSENT) -> Any:
    """Return the differences of neighbours along an axis, computed `n` times."""
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    a = as_nonscalar(a)
    if not a.ndim:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis_index(axis, a.ndim)
    ends = [None if end is ABSENT else as_end(end, a, axis) for end in (prepend, append)]
    if any(end is not None for end in ends):
        a = ops.np.concatenate([x for x in (ends[0], a, ends[1]) if x is not None], axis)
    difference = ops.np.not_equal if a.dtype == bool else ops.np.subtract
    for _ in range(min(n, max(a.shape[axis], 1))):      # after that, no elements are left
        a = difference(part(a, axis, 1, None), part(a, axis, None, -1))
    return a


def as_end(end: Any, a: Any, axis: int) -> Any:
    """Return the array to join to another one, before or after it.

    A number becomes an array with one element along the axis.
    """
    end = as_nonscalar(end)
    shape = [1 if i == axis else extent for i, extent in enumerate(a.shape)]
    return end if end.ndim else ops.np.broadcast_to(end, tuple(shape))


@array_function()
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Return the differences of neighbours among all elements, joined with the elements to put before and after."""
    ary = ops.np.ravel(as_nonscalar(ary))
    ends = []
    for name, end in (("to_begin", to_begin), ("to_end", to_end)):
        end = None if end is None else as_nonscalar(end)
        if end is not None and not np.can_cast(end.dtype, ary.dtype, casting="same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule.")
        ends.append(None if end is None else ops.np.astype(ops.np.ravel(end), ary.dtype, copy=False))
    result = ops.np.subtract(part(ary, 0, 1, None), part(ary, 0, None, -1))
    if all(end is None for end in ends):
        return result
    return ops.np.concatenate([x for x in (ends[0], result, ends[1]) if x is not None])


@array_function()
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return the slopes along each axis, by differences of neighbours.

    They are of second order inside, and of order `edge_order` at edges.
    """
    f = as_nonscalar(f)
    axes = tuple(range(f.ndim)) if axis is None else normalize_axis_tuple(axis, f.ndim)
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError("invalid number of arguments")
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    spacings = [as_array(x) for x in varargs] or [1.0]
    if len(varargs) == 1 and getattr(spacings[0], "ndim", None) and len(axes) > 1:
        raise TypeError("invalid number of arguments")
    spacings = spacings * len(axes) if len(spacings) == 1 else spacings
    if f.dtype.kind == "M":
        f = ops.np.subtract(f, np.zeros((), f.dtype))       # slopes of dates are durations, which can be halved
    elif f.dtype.kind not in "fcm":
        f = ops.np.astype(f, float)
    found = tuple([slope(f, along, step, edge_order) for along, step in zip(axes, spacings, strict=True)])
    return found[0] if len(found) == 1 else found


def slope(f: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    """Return the slopes along one axis. `spacing` is the distance between neighbours, or the coordinates."""
    n = f.shape[axis]
    step = spacing
    if getattr(spacing, "ndim", 0):
        if spacing.ndim != 1:
            raise ValueError("distances must be either scalars or 1d")
        if spacing.shape[0] != n:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        if spacing.dtype.kind in "iu":
            spacing = ops.np.astype(spacing, float)
        step = ops.np.subtract(part(spacing, 0, 1, None), part(spacing, 0, None, -1))
        if isinstance(step, np.ndarray) and step.size and (step == step[0]).all():
            step = step[0]
    if n < edge_order + 1:
        raise ValueError("Shape of array too small to calculate a numerical gradient, "
                         "at least (edge_order + 1) elements are required.")
    slopes = uneven_slopes if getattr(step, "ndim", 0) else even_slopes
    found = laid_out_like(slopes(f, axis, step, edge_order), f)
    return found if found.dtype == f.dtype else ops.np.astype(found, f.dtype)


def even_slopes(f: Any, axis: int, h: Any, edge_order: int) -> Any:
    """Return the slopes where all distances are equal."""
    op, n = ops.np, f.shape[axis]
    inside = []
    if n > 2:
        inside = [op.divide(op.subtract(part(f, axis, 2, None), part(f, axis, None, -2)), 2.0 * h)]
    if edge_order == 1:
        return op.concatenate([between(f, axis, 0, h), *inside, between(f, axis, n - 2, h)], axis)
    first, last = [[op.divide(weight, h) for weight in weights] for weights in ((-1.5, 2.0, -0.5), (0.5, -2.0, 1.5))]
    return op.concatenate([weighted(f, axis, 0, 1, first), *inside, weighted(f, axis, n - 3, 1, last)], axis)


def uneven_slopes(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    """Return the slopes where distances between neighbours differ."""
    op, n = ops.np, f.shape[axis]
    inside = []
    if n > 2:
        left, right = part(step, 0, None, -1), part(step, 0, 1, None)
        both = op.add(left, right)
        weights = (op.divide(op.negative(right), op.multiply(left, both)),
                   op.divide(op.subtract(right, left), op.multiply(left, right)),
                   op.divide(left, op.multiply(right, both)))
        inside = [weighted(f, axis, 0, n - 2, [along(weight, f.ndim, axis) for weight in weights])]
    if edge_order == 1:
        ends = [between(f, axis, place, op.getitem(step, place)) for place in (0, n - 2)]
        return op.concatenate([ends[0], *inside, ends[1]], axis)
    first = edge_weights(op.getitem(step, 0), op.getitem(step, 1))
    last = [op.negative(weight) for weight in edge_weights(op.getitem(step, -1), op.getitem(step, -2))[::-1]]
    return op.concatenate([weighted(f, axis, 0, 1, first), *inside, weighted(f, axis, n - 3, 1, last)], axis)


def edge_weights(near: Any, far: Any) -> list[Any]:
    """Return the weights of the first three elements in the slope at the first one.

    The arguments are the distances between them.
    """
    op = ops.np
    total = op.add(near, far)
    return [op.divide(op.negative(op.add(op.multiply(2.0, near), far)), op.multiply(near, total)),
            op.divide(total, op.multiply(near, far)), op.divide(op.negative(near), op.multiply(far, total))]


def between(f: Any, axis: int, place: int, h: Any) -> Any:
    """Return the slope between two neighbours."""
    return ops.np.divide(ops.np.subtract(part(f, axis, place + 1, place + 2), part(f, axis, place, place + 1)), h)


def weighted(f: Any, axis: int, start: int, length: int, weights: Sequence[Any]) -> Any:
    """Return the weighted sum of slices of this length. The first begins at `start`, each other one element later."""
    terms = [ops.np.multiply(weight, part(f, axis, start + k, start + k + length)) for k, weight in enumerate(weights)]
    return ops.np.add(ops.np.add(terms[0], terms[1]), terms[2])


def along(x: Any, ndim: int, axis: int) -> Any:
    """Reshape a vector to lie along an axis of arrays of `ndim` axes."""
    return ops.np.reshape(x, tuple([-1 if i == axis else 1 for i in range(ndim)]))


@array_function()
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integrate samples along an axis by trapezoids."""
    y = as_nonscalar(y)
    of_heights = normalize_axis_index(axis, y.ndim)     # x, and so the result, may have more axes
    width = as_array(dx)
    if x is not None:
        x = as_nonscalar(x)
        width = diff.on_tensors(x, axis=0 if x.ndim == 1 else axis)     # type: ignore[attr-defined]
        if x.ndim == 1:
            width = along(width, y.ndim, of_heights)
    heights = ops.np.add(part(y, of_heights, 1, None), part(y, of_heights, None, -1))
    return ops.np.sum(ops.np.divide(ops.np.multiply(width, heights), 2.0), axis)


@array_function()
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Interpolate linearly between samples. With a period, the function is periodic."""
    x, xp, fp = as_array(x), as_nonscalar(xp), as_nonscalar(fp)
    if period is not None:
        known = known_values(as_nonscalar(period))
        if known is not None and not known:
            raise ValueError("period must be a non-zero value")
        period = ops.np.absolute(as_array(period))
        left = right = None
        if xp.ndim != 1 or fp.ndim != 1:
            raise ValueError("Data points must be 1-D sequences")
        if xp.shape != fp.shape:
            raise ValueError("fp and xp are not of the same length")
        x, xp = ops.np.remainder(x, period), ops.np.remainder(xp, period)
        order = ops.np.argsort(xp)
        xp, fp = ops.np.take(xp, order), ops.np.take(fp, order)
        xp = ops.np.concatenate([ops.np.subtract(part(xp, 0, -1, None), period), xp,
                                 ops.np.add(part(xp, 0, 0, 1), period)])
        fp = ops.np.concatenate([part(fp, 0, -1, None), fp, part(fp, 0, 0, 1)])
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError("interp: sample points and values are vectors")
    if left is None and right is None:
        return ops.np.interp(x, xp, fp)
    return ops.np.interp(x, xp, fp, left if left is None else as_array(left), right if right is None else
                         as_array(right))


def as_vector(name: str, x: Any) -> Any:
    """Return an argument of a convolution as an array of one axis."""
    x = as_nonscalar(x)
    shape = x.shape
    if len(shape) > 1:
        raise ValueError("object too deep for desired array")
    if not shape:
        return ops.np.reshape(x, (1,))
    if not shape[0]:
        raise ValueError(f"{name} cannot be empty")
    return x


@array_function(operator=(2, 2, ()), of_vectors=True)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Compute the convolution of two vectors.

    It is the sum, at each distance, of the products of the elements of one vector and of the other one, reversed.
    """
    a, v = as_vector("a", a), as_vector("v", v)
    return CONVOLVE(a, v) if mode == "full" else CONVOLVE(a, v, mode_name(mode))


@array_function()
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """Compute the correlation of two vectors.

    It is the sum, at each distance, of the products of the elements of one vector and the conjugates of the other one.
    """
    if not as_nonscalar(a).ndim or not as_nonscalar(v).ndim:
        raise ValueError("object of too small depth for desired array")
    a, v = as_vector("a", a), as_vector("v", v)
    mode = mode_name(mode)
    v = ops.np.flip(ops.np.conjugate(v) if v.dtype.kind == "c" else v)
    n, m = a.shape[0], v.shape[0]
    if mode != "same" or n >= m:
        return ops.np.convolve(a, v, mode)
    return part(ops.np.convolve(a, v), 0, n // 2, n // 2 + m)      # here NumPy rounds in the other direction


ONE = np.ones(1)


def mode_name(mode: Any) -> str:
    """Return the full name of a mode, given by its name or by NumPy's number for it.

    Raises the same errors as NumPy for other values.
    """
    if mode == "full":
        return "full"
    np.convolve(ONE, ONE, mode)
    return next(name for name, number in MODES.items() if mode == number or (
        isinstance(mode, str) and mode in (name, name[0])))
