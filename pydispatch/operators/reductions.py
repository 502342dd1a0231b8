"""Reductions and accumulations along axes."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch._core import ArrayMethod, MetaArray, Reduction, expand, restored, spread, sum_to
from pydispatch.operators.batching import batch_of, into, reshaped, rows_along
from pydispatch.operators.declare import check_fit, declare, exact, named, operators
from pydispatch.operators.meta import along, broadcastable, dtype_of, sample, shape_of
from pydispatch.operators.pointwise import nonzero
from pydispatch.operators.shapes import inverted

average, concatenate, ones_like, select, total = operators("mean", "concatenate", "ones_like", "where", "sum")

LONG = 1 << 30
"""An extent to reduce over that exceeds every ddof. In an array without elements it costs no memory."""

AXES = "Tensor a, int[1]? axis=None"
TYPED = f"{AXES}, ScalarType? dtype=None"
KEPT = "*, bool keepdims=False"
PART = f"{KEPT}, Tensor? where=None"
STARTED = f"{KEPT}, Scalar? initial=None, Tensor? where=None"
SPREAD = f"*, Scalar ddof=0, {PART[3:]}, Tensor? mean=None, Scalar? correction=None"
ONE_AXIS = "Tensor a, int? axis=None"


def reduction(name, arguments, kernel, *, empty=True, tags=(), **parts):
    """Declare a reduction. Without `empty`, it raises if there are no elements to reduce."""
    meta = reduction_meta(name, kernel, empty)
    parts.setdefault("vmap", {"axis": reduced_behind})
    declare(name, arguments, kernel, meta, out=kernel, tags=("reduction", *tags), **parts)


def accumulation(name, **parts):
    """Declare an accumulation, such as a running sum."""
    kernel = ArrayMethod(name)
    arguments = f"{ONE_AXIS}, ScalarType? dtype=None"
    # NumPy 2.4 crashes where out is 0-d
    out = exact(name, kernel, lambda shape, axis=None, *rest: along(shape, axis)[0])
    declare(name, arguments, kernel, accumulation_meta(kernel), out=out, tags=("accumulation",), vmap=accumulate_batch,
            **parts)


def reduction_meta(name, kernel, empty):
    """Return a meta kernel: the shape from the axes, the dtype from the kernel on an array (0, LONG), axis 1."""
    def meta(a, axis=None, *args, keepdims=False, where=None, mean=None, out=None, **options):
        rows = {"where": None if where is True else where, "mean": mean}
        probes = {key: np.empty((0, 1), dtype_of(value)) for key, value in rows.items() if value is not None}
        if out is not None:
            probes["out"] = sample(out)
        dtype = kernel(np.empty((0, LONG), dtype_of(a)), 1, *args, **options, **probes).dtype
        shape = shape_of(a)
        axes = reduced_axes(axis, len(shape))
        if not empty and "initial" not in options and 0 in (shape[axis] for axis in axes):
            raise ValueError(f"{name}: argument a has shape {shape}, with no elements to reduce over\npass initial=")
        if where is not None and not broadcastable(shape_of(where), shape):
            raise ValueError(f"{name}: argument where has shape {shape_of(where)}, argument a has {shape}\n"
                             "pass a mask that broadcasts to the shape of a")
        return MetaArray(reduced_shape(shape, axes, keepdims), dtype)
    return meta


def of_spread(name):
    """Return the kernel of a variance or standard deviation. The method of ndarray does not take `correction`."""
    function, method = getattr(np, name), ArrayMethod(name)

    def kernel(*args, **options):
        return (function if "correction" in options else method)(*args, **options)
    return named(kernel, name)


def reduced_axes(axis, ndim):
    """Return the axes that `axis` (None, an int, a tuple) names, as non-negative numbers."""
    if axis is None:
        return tuple(range(ndim))
    if ndim == 0 and isinstance(axis, int):
        along((), axis)
        return ()
    return normalize_axis_tuple(axis, ndim)


def reduced_shape(shape, axes, keepdims):
    """Return `shape` after a reduction over `axes`, which are non-negative."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def accumulation_meta(kernel):
    """Return a meta kernel: the shape of the argument, as a vector where no axis is given."""
    def meta(a, axis=None, *args, out=None, **options):
        if out is not None:
            options["out"] = sample(out)
        dtype = kernel(np.empty(0, dtype_of(a)), 0, *args, **options).dtype
        return MetaArray(along(shape_of(a), axis)[0], dtype)
    return meta


# batches


@lru_cache(maxsize=1024)
def reduced_behind(axis, ndim, n):
    """Return the axes to reduce a batch over, from the axes of an example. They never include the batch axis."""
    axes = tuple([axis + 1 for axis in reduced_axes(axis, ndim)])
    return axes[0] if len(axes) == 1 else axes


def position_batch(op, info, in_dims, a, axis, keepdims, *out):
    """Apply argmax or argmin to a batch. Without an axis, positions count all elements of an example."""
    a = batch_of(a, in_dims[0], info.batch_size)
    if axis is not None and a.ndim > 1:
        return op(a, rows_along(a, axis)[1], keepdims=keepdims, **into(out)), 0
    rows, axis = rows_along(a, axis)
    if not out and not keepdims:
        return op(rows, axis), 0
    shape = (info.batch_size,) + (1,) * (a.ndim - 1 if keepdims else 0)
    if out:
        check_fit(op.name, shape, out[0])
        return op(rows, axis, out=reshaped(out[0], shape[:1])), 0
    return reshaped(op(rows, axis), shape), 0


def accumulate_batch(op, info, in_dims, a, axis, dtype, *out):
    return op(*rows_along(batch_of(a, in_dims[0], info.batch_size), axis), dtype, **into(out)), 0


# derivatives of reductions


def n_terms(shape, axis, where, dtype):
    """Return the number of elements that are reduced to one.

    With a mask, it is an array that broadcasts to `shape`.
    """
    if where is None or where is True:
        return prod(shape if axis is None else [shape[i] for i in axis])
    return expand(where, shape).sum(axis, dtype.newbyteorder("="), keepdims=True)     # loops need native byte order


def mean_vjp(g, a_shape, axis, where):
    """Return the gradient of a mean. For a mean over no elements nothing is divided, which avoids a warning."""
    if where is None:
        return spread(g / (n_terms(a_shape, axis, None, None) or 1), a_shape, axis, None)
    n = n_terms(a_shape, axis, where, g.dtype)
    return spread(restored(g, a_shape, axis) / nonzero(n), a_shape, axis, where)


def share(a, axis, initial, where, result):
    """Return each element's share of the gradient of an extremum. Elements that tie share it equally."""
    extreme = a == restored(result, a.shape, axis)
    extreme = extreme if where is None else extreme & where
    n = extreme.sum(axis, a.dtype.newbyteorder("="), keepdims=True)     # loops need native byte order
    return extreme / (n if initial is None else nonzero(n))


def converted(a, dtype):
    """Return the argument as a reduction in `dtype` reads it: the real parts of complex numbers if `dtype` is real."""
    return a.real if a.dtype.kind == "c" and dtype is not None and dtype.kind != "c" else a


def other_factors(a, axis, dtype, initial, where):
    """Return the derivative of a product: the product of the other elements.

    It is exact for zeros, since nothing is divided.
    """
    a = converted(a, dtype)
    reduced = reduced_axes(axis, a.ndim)
    order = (*[i for i in range(a.ndim) if i not in reduced], *reduced)
    laid_out = (a if where is None else select(where, a, 1.0)).transpose(order)
    rows = laid_out.reshape((*laid_out.shape[:a.ndim - len(reduced)], n_terms(a.shape, reduced, None, None)))
    others = products_before(rows) * products_before(rows[..., ::-1])[..., ::-1]
    others = others.reshape(laid_out.shape).transpose(inverted(order))
    others = others if initial is None else others * initial
    return others if where is None else others * where


def variance_slope(a, axis, dtype, ddof, where, mean, correction):
    """Return the derivative of a variance: 2 (a - mean) / (n - ddof). The terms from the mean cancel."""
    from_mean = a - (average(converted(a, dtype), axis, keepdims=True, where=where) if mean is None else mean)
    n = n_terms(from_mean.shape, axis, where, from_mean.dtype) - (ddof if correction is None else correction)
    slope = 2 * from_mean.conj() / (n * (n > 0))
    return slope if where is None else slope * where


def var_vjp(g, a, axis, dtype, ddof, where, mean, correction):
    return restored(g, a.shape, axis) * variance_slope(a, axis, dtype, ddof, where, mean, correction)


def var_vjp_of_mean(g, a, axis, dtype, ddof, where, mean, correction, mean_shape):
    return sum_to(-var_vjp(g, a, axis, dtype, ddof, where, mean, correction), mean_shape)


def var_jvp(t, a, axis, dtype, ddof, where, mean, correction, keepdims):
    return (t * variance_slope(a, axis, dtype, ddof, where, mean, correction)).sum(axis, keepdims=keepdims)


def var_jvp_of_mean(t, a, axis, dtype, ddof, where, mean, correction, keepdims):
    return var_jvp(-t, a, axis, dtype, ddof, where, mean, correction, keepdims)


reduction("sum", f"{TYPED}, {STARTED}", Reduction(np.add),
          vjp=spread,
          jvp=lambda t, axis, keepdims, where: total(t, axis, keepdims=keepdims, where=where))
reduction("prod", f"{TYPED}, {STARTED}", Reduction(np.multiply),
          vjp=lambda g, a, axis, dtype, initial, where:
          restored(g, a.shape, axis) * other_factors(a, axis, dtype, initial, where),
          jvp=lambda t, a, axis, dtype, initial, where, keepdims:
          (t * other_factors(a, axis, dtype, initial, where)).sum(axis, keepdims=keepdims))
EXTREME = {
    "vjp": lambda g, a, axis, initial, where, result:
    restored(g, a.shape, axis) * share(a, axis, initial, where, result),
    "jvp": lambda t, a, axis, initial, where, result, keepdims:
    (t * share(a, axis, initial, where, result)).sum(axis, keepdims=keepdims),
}
reduction("max", f"{AXES}, {STARTED}", Reduction(np.maximum), empty=False, **EXTREME)
reduction("min", f"{AXES}, {STARTED}", Reduction(np.minimum), empty=False, **EXTREME)
reduction("all", f"{AXES}, {PART}", Reduction(np.logical_and), differentiable=False)
reduction("any", f"{AXES}, {PART}", Reduction(np.logical_or), differentiable=False)
reduction("mean", f"{TYPED}, {PART}", ArrayMethod("mean"), vjp=mean_vjp, jvp="linear")
reduction("var", f"{TYPED}, {SPREAD}", of_spread("var"), vjp=(var_vjp, None, var_vjp_of_mean),
          jvp=(var_jvp, None, var_jvp_of_mean))
reduction("std", f"{TYPED}, {SPREAD}", of_spread("std"), vjp=(
    lambda g, a, axis, dtype, ddof, where, mean, correction, result:
    var_vjp(g / (2 * nonzero(result)), a, axis, dtype, ddof, where, mean, correction),
    None,
    lambda g, a, axis, dtype, ddof, where, mean, correction, mean_shape, result:
    var_vjp_of_mean(g / (2 * nonzero(result)), a, axis, dtype, ddof, where, mean, correction, mean_shape),
), jvp=(
    lambda t, a, axis, dtype, ddof, where, mean, correction, keepdims, result:
    var_jvp(t, a, axis, dtype, ddof, where, mean, correction, keepdims) / (2 * nonzero(result)),
    None,
    lambda t, a, axis, dtype, ddof, where, mean, correction, keepdims, result:
    var_jvp_of_mean(t, a, axis, dtype, ddof, where, mean, correction, keepdims) / (2 * nonzero(result)),
))
reduction("argmax", f"{ONE_AXIS}, {KEPT}", ArrayMethod("argmax"), empty=False, differentiable=False,
          vmap=position_batch)
reduction("argmin", f"{ONE_AXIS}, {KEPT}", ArrayMethod("argmin"), empty=False, differentiable=False,
          vmap=position_batch)

# derivatives of accumulations


def reversed_along(x, axis):
    axis = axis % x.ndim
    return x[(slice(None),) * axis + (slice(None, None, -1),)]


def sums_after(g, axis):
    """Return, for each element, the sum of it and all elements that follow."""
    return reversed_along(reversed_along(g, axis or 0).cumsum(axis or 0), axis or 0)


def products_before(rows):
    """Return, for each element along the last axis, the product of the elements before it."""
    return concatenate((ones_like(rows[..., :1]), rows[..., :-1].cumprod(-1)), -1)


def recurrence(factors, terms):
    """Compute `s` with s[k] = factors[k] * s[k - 1] + terms[k] along the last axis, in log2(n) steps.

    After each step, terms[k] includes twice as many terms before k, and factors[k] is the product of as many factors.
    """
    width = 1
    while width < terms.shape[-1]:
        terms = concatenate((terms[..., :width], terms[..., width:] + factors[..., width:] * terms[..., :-width]), -1)
        factors = concatenate((factors[..., :width], factors[..., width:] * factors[..., :-width]), -1)
        width *= 2
    return terms


def in_rows(x, axis):
    """Return `x` with the axis moved to the end, or without an axis all of its elements in a row."""
    return x.reshape((-1,)) if axis is None or x.ndim == 0 else x.swapaxes(axis, -1)


def from_rows(rows, shape, axis):
    """Undo `in_rows`, for an array of `shape`."""
    return rows.reshape(shape) if axis is None or not shape else rows.swapaxes(axis, -1)


def cumprod_vjp(g, a, axis, dtype):
    """Return the gradient of a running product. It does not divide by elements, and is right for zeros, too."""
    rows = in_rows(converted(a, dtype), axis)
    following = concatenate((ones_like(rows[..., :1]), rows[..., :0:-1]), -1)
    after = recurrence(following, in_rows(g, axis)[..., ::-1])[..., ::-1]
    return from_rows(products_before(rows) * after, a.shape, axis)


def cumprod_jvp(t, a, axis, dtype, result):
    rows = in_rows(converted(a, dtype), axis)
    tangents = recurrence(rows, products_before(rows) * in_rows(t, axis))
    return from_rows(tangents, result.shape, axis)


accumulation("cumsum", vjp=lambda g, a_shape, axis: sums_after(g, axis).reshape(a_shape), jvp="linear")
accumulation("cumprod", vjp=cumprod_vjp, jvp=cumprod_jvp)
