"""Functions given by samples: interpolation and convolution."""

from __future__ import annotations

from math import prod

import numpy as np

from pydispatch._core import MetaArray, convolve_vectors, correlate_vectors, is_of_numpy, sum_to
from pydispatch.operators.batching import batch_of, padded, rank, reshaped
from pydispatch.operators.declare import declare, operators
from pydispatch.operators.meta import broadcast, dtype_of, shape_of

concatenate, convolve, flip, getitem, interval, scatter_add, take, take_along, where, zeros_like = operators(
    "concatenate", "convolve", "flip", "getitem", "interval", "scatter_add", "take", "take_along_axis", "where",
    "zeros_like",
)

# --- interpolation ---------------------------------------------------------------------------------------------------
#
# Sample points `xp` of more than one axis are a batch. Each row of them, and of `fp`, belongs to one part of `x`, and
# to one element of `left` and `right`, if these have axes at all.


def rows_of(x, batch):
    """Reshape the elements of each part of a batch to a row."""
    return x.reshape((prod(batch), prod(x.shape[len(batch):])))


def interp_kernel(x, xp, fp, left=None, right=None):
    """Interpolate linearly between samples."""
    xp, fp = np.asarray(xp), np.asarray(fp)
    if xp.ndim < 2:
        return np.interp(x, xp, fp, left, right)
    batch = xp.shape[:-1]
    x = np.asarray(x)
    result = np.empty(x.shape, complex if fp.dtype.kind == "c" else float)
    ends = [np.broadcast_to(end, batch).reshape(-1) for end in (left, right)]
    rows = zip(rows_of(result, batch), *[rows_of(values, batch) for values in (x, xp, fp)], *ends, strict=True)
    for row, *values in rows:
        row[:] = np.interp(*values)
    return result


def interp_meta(x, xp, fp, left=None, right=None):
    for values in (x, xp):
        if not np.can_cast(dtype_of(values), float, "safe"):
            raise TypeError(f"interp: dtype {dtype_of(values)} does not convert to float64")
    if len(shape_of(xp)) < 1 or len(shape_of(fp)) != len(shape_of(xp)):
        raise ValueError("interp: sample points and values are vectors")
    if shape_of(xp) != shape_of(fp):
        raise ValueError(f"interp: {shape_of(xp)[-1]} sample points, {shape_of(fp)[-1]} values")
    if not shape_of(xp)[-1]:
        raise ValueError("interp: array of sample points is empty")
    return MetaArray(shape_of(x), complex if dtype_of(fp).kind == "c" else float)


def interval_kernel(x, xp):
    """Return the position of the first of the two sample points that each element lies between, from 0 on."""
    x, xp = np.asarray(x), np.asarray(xp)
    last = max(xp.shape[-1] - 2, 0)
    if xp.ndim == 1:
        return np.minimum(np.maximum(xp.searchsorted(x, "right") - 1, 0), last)
    batch = xp.shape[:-1]
    result = np.empty(x.shape, np.intp)
    for row, points, samples in zip(*[rows_of(values, batch) for values in (result, x, xp)], strict=True):
        row[:] = samples.searchsorted(points, "right") - 1
    return result.clip(0, last)


def interval_batch(op, info, in_dims, x, xp):
    if in_dims[1] is None and rank(xp) == 1:
        return op(x, xp), 0
    return op(batch_of(x, in_dims[0], info.batch_size), batch_of(xp, in_dims[1], info.batch_size)), 0


def interp_batch(op, info, in_dims, x, xp, fp, left, right):
    n, dims = info.batch_size, in_dims[:3]
    levels = rank(xp) - (in_dims[1] == 0) - 1       # batch axes of the sample points in one example
    if levels < 0:
        raise ValueError("interp: sample points and values are vectors")
    if in_dims[1:] == (None,) * 4 and not levels:
        return op(x, xp, fp, left, right), 0
    ends = [end if dim is None and not rank(end) else batch_of(end, dim, n) if rank(end) - (dim == 0) else
            reshaped(end, (n, *(1,) * levels)) for end, dim in zip((left, right), in_dims[3:], strict=True)]
    return op(*[batch_of(value, dim, n) for value, dim in zip((x, xp, fp), dims, strict=True)], *ends), 0


def in_double_precision(x):
    return x if getattr(x, "dtype", None) in (np.float64, np.complex128) else x * np.float64(1)


class Segments:
    """The position of each element among the sample points.

    `length` is the length of the element's segment, `part` the fraction of the segment that lies before the element.
    Everything is computed with operators, except for arrays of NumPy without a batch.
    """

    def __init__(self, x, xp):
        self.x, self.xp = x, xp = in_double_precision(x), in_double_precision(xp)
        self.plain = type(x) is np.ndarray and type(xp) is np.ndarray and xp.ndim == 1
        self.n = xp.shape[-1]
        self.position = interval(x, xp)
        self.next = self.position + int(self.n > 1)
        self.start = self.pick(xp, 0)
        self.length = self.pick(xp, 1) - self.start

    @property
    def part(self):
        return (self.x - self.start) / self.divisor

    @property
    def divisor(self):
        return self.length + (self.length == 0)

    def pick(self, values, following):
        """Return the sample at the start of each element's segment, or the one at its end."""
        position = self.next if following else self.position
        if self.xp.ndim == 1:
            if type(values) is np.ndarray and type(position) is np.ndarray:
                return values[position]
            return take(values, position)
        return reshaped(take_along(values, self.flat(position), -1), tuple(self.x.shape))

    def flat(self, values):
        """Reshape values so that the elements that belong to a row of sample points lie along one axis."""
        batch = self.xp.shape[:-1]
        return reshaped(values, (*batch, prod(self.x.shape[len(batch):])))

    def end(self, place):
        """Return the first sample point, or the last, shaped for a comparison with the elements."""
        if self.xp.ndim == 1:
            return self.xp[place]
        extra = (1,) * (self.x.ndim - self.xp.ndim + 1)
        return reshaped(getitem(self.xp, (..., place)), (*self.xp.shape[:-1], *extra))

    def below(self):
        return self.x < self.end(0)

    def above(self):
        return self.x > self.end(-1)

    def inside(self):
        return (self.x >= self.end(0)) & (self.x <= self.end(-1))

    def slope(self, fp):
        fp = in_double_precision(fp)
        return (self.pick(fp, 1) - self.pick(fp, 0)) / self.divisor

    def summed(self, at_start, at_end):
        """Add up values of the elements, `at_start` at the starts of their segments and `at_end` at the ends."""
        shape = tuple(self.xp.shape)
        starts, ends = self.position, self.next
        if self.plain and is_of_numpy(at_start) and at_start.dtype == float:
            return np.bincount(np.concatenate((starts.ravel(), ends.ravel())),
                               np.concatenate((at_start.ravel(), at_end.ravel())), self.n)
        total = zeros_like(at_start, shape=shape)
        for indices, values in ((starts, at_start), (ends, at_end)):
            total = scatter_add(total, self.flat(indices), self.flat(values), -1)
        return total


def interp_vjp_of_points(g, x, xp, fp):
    """Multiply the gradient by the slope between the samples, which is 0 outside.

    The slope at a sample point is the one to its right. At the last sample point, it is the one to its left.
    """
    segments = Segments(x, xp)
    return g * where(segments.inside(), segments.slope(fp), 0.0)


def interp_vjp_of_places(g, x, xp, fp):
    segments = Segments(x, xp)
    moved = g * where(segments.inside(), -segments.slope(fp), 0.0)
    end = moved * segments.part
    return segments.summed(moved - end, end)


def interp_vjp_of_samples(g, x, xp, left, right):
    segments = Segments(x, xp)
    end = g * where(segments.inside(), segments.part, 0.0)
    start = where(segments.inside(), g, 0.0) - end
    if left is None:
        start = start + where(segments.below(), g, 0.0)
    if right is None:
        end = end + where(segments.above(), g, 0.0)
    return segments.summed(start, end)


def end_vjp(g, outside, end_shape):
    g = where(outside, g, 0.0)
    return g.sum() if not end_shape else g.reshape((*end_shape, prod(g.shape[len(end_shape):]))).sum(-1)


def interp_jvp_of_places(t, x, xp, fp):
    """Return the tangent of the result when sample points move: a segment that moves carries its line along."""
    segments = Segments(x, xp)
    part = segments.part
    moved = segments.pick(t, 0) * (1 - part) + segments.pick(t, 1) * part
    return where(segments.inside(), -segments.slope(fp) * moved, 0.0)


def interp_jvp_of_samples(t, x, xp, left, right):
    segments = Segments(x, xp)
    part = segments.part
    inside = segments.pick(t, 0) * (1 - part) + segments.pick(t, 1) * part
    found = where(segments.inside(), inside, 0.0)
    if left is None:
        found = where(segments.below(), segments.pick(t, 0), found)
    return where(segments.above(), segments.pick(t, 1), found) if right is None else found


def end_jvp(t, outside, x_shape, xp):
    return where(outside, reshaped(t, (*t.shape, *(1,) * (len(x_shape) - rank(t)))) if rank(t) else t, 0.0)


declare("interval", "Tensor x, Tensor xp", interval_kernel, lambda x, xp: MetaArray(shape_of(x), np.intp),
        tags=("sorting",), differentiable=False, vmap=interval_batch)
declare("interp", "Tensor x, Tensor xp, Tensor fp, Tensor? left=None, Tensor? right=None", interp_kernel, interp_meta,
        tags=("calculus",), vmap=interp_batch,
        left_out={"period": "use pydispatch.numpy.interp, which handles periods"}, vjp=(
            interp_vjp_of_points, interp_vjp_of_places, interp_vjp_of_samples,
            lambda g, x, xp, left_shape: end_vjp(g, Segments(x, xp).below(), left_shape),
            lambda g, x, xp, right_shape: end_vjp(g, Segments(x, xp).above(), right_shape)),
        jvp=(interp_vjp_of_points, interp_jvp_of_places, interp_jvp_of_samples,
             lambda t, x, x_shape, xp: end_jvp(t, Segments(x, xp).below(), x_shape, xp),
             lambda t, x, x_shape, xp: end_jvp(t, Segments(x, xp).above(), x_shape, xp)))

# --- convolution -----------------------------------------------------------------------------------------------------
#
# Arrays of more than one axis are batches of vectors, which broadcast.

PADDING = {"reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap",
           "grid-wrap": "wrap", "constant": None, "grid-constant": None}
"""The modes of SciPy's filters, and NumPy's names for them."""
MODES = {"valid": 0, "same": 1, "full": 2}
VALID = MODES["valid"]


def convolve_kernel(a, v, mode="full"):
    """Compute the convolution of vectors.

    It is the sum, at each distance, of the products of the elements of one vector and of the other one, reversed.
    """
    if mode in MODES:
        found = convolve_vectors(a, v, MODES[mode])
        if found is not None:
            return found
    a, v = np.asarray(a), np.asarray(v)
    if not a.ndim or not v.ndim:
        raise ValueError("convolve: arguments a and v must be vectors\nreshape a number to (1,)")
    if not a.shape[-1] or not v.shape[-1]:
        raise ValueError(f"{'v' if a.shape[-1] else 'a'} cannot be empty")
    if v.shape[-1] > a.shape[-1]:
        a, v = v, a
    if a.ndim == v.ndim == 1:
        return np.convolve(a, v, mode)
    batch = broadcast((a.shape[:-1], v.shape[:-1]))
    n, m = a.shape[-1], v.shape[-1]
    rows = prod(batch)
    before, length = window(n, m, mode)
    if rows > m:
        result = np.zeros((*batch, n + m - 1), np.result_type(a, v))
        for k in range(m):
            result[..., k:k + n] += a * v[..., k:k + 1]
        return result[..., before:before + length]
    result = np.empty((rows, length), np.result_type(a, v))
    pairs = [rows_of(np.broadcast_to(x, (*batch, x.shape[-1])), batch) for x in (a, v)]
    for i, (one, other) in enumerate(zip(*pairs, strict=True)):
        result[i] = np.convolve(one, other, mode)
    return result.reshape((*batch, length))


def window(n, m, mode):
    """Return where the result begins within the full convolution of vectors of these lengths, and its length."""
    least, most = min(n, m), max(n, m)
    if mode not in MODES:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    if mode == "full":
        return 0, n + m - 1
    return (least - 1 - least // 2, most) if mode == "same" else (least - 1, most - least + 1)


def convolve_meta(a, v, mode="full"):
    shapes = [shape_of(a), shape_of(v)]
    for name, shape in zip("av", shapes, strict=True):
        if not shape or not shape[-1]:
            raise ValueError(f"{name} cannot be empty")
    dtype = np.convolve(np.ones(1, dtype_of(a)), np.ones(1, dtype_of(v)), mode).dtype
    _, length = window(shapes[0][-1], shapes[1][-1], mode)
    return MetaArray((*broadcast([shape[:-1] for shape in shapes]), length), dtype)


def convolve_vjp_of_first(g, a_shape, v, mode):
    found = correlate_vectors(g, v, VALID) if mode == "full" and len(a_shape) == 1 else None
    return convolve_vjp(g, a_shape, v, mode) if found is None else found


def convolve_vjp_of_second(g, v_shape, a, mode):
    found = correlate_vectors(g, a, VALID) if mode == "full" and len(v_shape) == 1 else None
    return convolve_vjp(g, v_shape, a, mode) if found is None else found


def convolve_vjp(g, own_shape, other, mode):
    """Return the gradient of one vector: a convolution of `g` with the other one, reversed."""
    are_vectors = type(g) is np.ndarray and type(other) is np.ndarray and g.ndim == other.ndim == len(own_shape) == 1
    n, m = own_shape[-1], other.shape[-1]
    before, length = window(n, m, mode)
    after = n + m - 1 - before - length
    back = "valid"
    if mode == "valid" and n >= m:
        back, before, after = "full", 0, 0      # restores the elements that were cut off on both sides
    if are_vectors:
        if before or after:
            wide = np.zeros(n + m - 1, g.dtype)
            wide[before:before + length] = g
            g = wide
        return np.convolve(g, other[::-1], back)    # type: ignore[call-overload]
    if before or after:
        zeros = [zeros_like(g, shape=(*g.shape[:-1], k)) for k in (before, after)]
        g = concatenate([zeros[0], g, zeros[1]], -1)
    found = convolve(g, flip(other, -1), back)
    return sum_to(found, own_shape)


def convolve_batch(op, info, in_dims, a, v, mode):
    ndim = max(rank(x) - (dim == 0) for x, dim in zip((a, v), in_dims, strict=False))
    return op(*[padded(x, ndim) if dim == 0 else x for x, dim in zip((a, v), in_dims, strict=False)], mode), 0


declare("convolve", 'Tensor a, Tensor v, str mode="full"', convolve_kernel, convolve_meta, tags=("calculus",),
        vmap=convolve_batch, jvp="multilinear", vjp=(convolve_vjp_of_first, convolve_vjp_of_second))
