"""Reductions and accumulations along axes."""

from __future__ import annotations

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch.backends.meta import MetaArray, along, broadcastable, dtype_of, sample, shape_of
from pydispatch.operators.declare import array_method, declare, exact, forwarding, named

LONG = 1 << 30
"""An extent to reduce over that no ddof exceeds; in an array with no elements it costs nothing."""

AXES = "Tensor a, int[1]? axis=None"
TYPED = f"{AXES}, ScalarType? dtype=None"
KEPT = "*, bool keepdims=False"
PART = f"{KEPT}, Tensor? where=None"
STARTED = f"{KEPT}, Scalar? initial=None, Tensor? where=None"
SPREAD = f"*, Scalar ddof=0, {PART[3:]}, Tensor? mean=None, Scalar? correction=None"
ONE_AXIS = "Tensor a, int? axis=None"


def reduction(name, arguments, kernel, *, empty=True, tags=(), **entry):
    """Declare a reduction; not `empty` says that it has no value over no elements."""
    meta = reduction_meta(name, kernel, empty)
    declare(name, arguments, kernel, meta, out=kernel, tags=("reduction", *tags), **entry)


def accumulation(name, **entry):
    """Declare an accumulation: a running sum, say."""
    kernel = array_method(name)
    arguments = f"{ONE_AXIS}, ScalarType? dtype=None"
    # NumPy 2.4 crashes where out is 0-d
    out = exact(name, kernel, lambda shape, axis=None, *rest: along(shape, axis)[0])
    declare(name, arguments, kernel, accumulation_meta(kernel), out=out, tags=("accumulation",), **entry)


def folding(ufunc):
    """The kernel that reduces by a ufunc, over all axes where none is given; it costs a third of np.sum."""
    reduce = ufunc.reduce

    def kernel(a, axis=None, *args, **options):
        return reduce(a, axis, *args, **options)
    return named(kernel, f"{ufunc.__name__}.reduce")


def reduction_meta(name, kernel, empty):
    """The rule: the dtype by the kernel on an array (0, LONG), over its second axis; the shape by the axes."""
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


def reduced_axes(axis, ndim):
    """The axes, none negative, that `axis` (None, an int, a tuple) names."""
    if axis is None:
        return tuple(range(ndim))
    if ndim == 0 and isinstance(axis, int):
        along((), axis)
        return ()
    return normalize_axis_tuple(axis, ndim)


def reduced_shape(shape, axes, keepdims):
    """`shape` after reduction over `axes`, none of them negative."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def accumulation_meta(kernel):
    """The rule: the shape of the argument, as a vector where no axis is given."""
    def meta(a, axis=None, *args, out=None, **options):
        if out is not None:
            options["out"] = sample(out)
        dtype = kernel(np.empty(0, dtype_of(a)), 0, *args, **options).dtype
        return MetaArray(along(shape_of(a), axis)[0], dtype)
    return meta


reduction("sum", f"{TYPED}, {STARTED}", folding(np.add))
reduction("prod", f"{TYPED}, {STARTED}", folding(np.multiply))
reduction("max", f"{AXES}, {STARTED}", folding(np.maximum), empty=False)
reduction("min", f"{AXES}, {STARTED}", folding(np.minimum), empty=False)
reduction("all", f"{AXES}, {PART}", folding(np.logical_and))
reduction("any", f"{AXES}, {PART}", folding(np.logical_or))
reduction("mean", f"{TYPED}, {PART}", array_method("mean"))
reduction("var", f"{TYPED}, {SPREAD}", forwarding(np.var))
reduction("std", f"{TYPED}, {SPREAD}", forwarding(np.std))
reduction("argmax", f"{ONE_AXIS}, {KEPT}", array_method("argmax"), empty=False)
reduction("argmin", f"{ONE_AXIS}, {KEPT}", array_method("argmin"), empty=False)
accumulation("cumsum")
accumulation("cumprod")
